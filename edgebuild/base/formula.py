"""Formulas that stand in data files: arithmetic over letters, checked when they are read."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from edgebuild.base.errors import fail

_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


@dataclass(frozen=True)
class Formula:
    """Arithmetic over letters: + - * / // % and `ceil`, `min`, `max`. Values may be numbers or numpy arrays.

    `place`: file, line and column.
    """

    text: str
    place: tuple[str, int, int] = ("", 0, 0)

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """The number. Raises EdgebuildError where it is below 0, infinite or not a number."""
        import numpy as np

        with np.errstate(all="ignore"):
            number = _value(self._tree, {k: np.asarray(v, np.float64) for k, v in values.items()})
        wrong = ~np.isfinite(number) | (np.asarray(number) < 0)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            first = float(np.asarray(number)[at])
            each = np.broadcast_arrays(np.asarray(number), *(np.asarray(v) for v in values.values()))[1:]
            words = ", ".join(f"{name} {float(v[at]):g}" for name, v in zip(values, each, strict=True))
            text = f"'{self.text}' is {first:g} for {words}"
            file, line, column = self.place
            hints = ["a formula that is 0 or more for all sizes"]
            raise fail(text, file=file, line=line, column=column, hints=hints)
        return number if np.ndim(number) else float(number)

    @cached_property
    def _tree(self) -> ast.expr:
        return ast.parse(self.text, mode="eval").body


def parse_formula(text: str, letters: tuple[str, ...], place: tuple[str, int, int] = ("", 0, 0)) -> Formula:
    """Check a formula, which stands at `place`. Raises ValueError with what is wrong in it."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"'{text}' is no formula") from None
    _check(tree, letters)
    return Formula(text.strip(), place)


def _check(node: ast.expr, letters: tuple[str, ...]) -> None:
    match node:
        case ast.Constant(value=int() | float()):
            return
        case ast.Name(id=name):
            if name not in letters:
                raise ValueError(f"unknown letter '{name}' in the formula; known: {' '.join(letters)}")
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            _check(left, letters)
            _check(right, letters)
        case ast.Call(func=ast.Name(id="ceil"), args=[inside], keywords=[]):
            _check(inside, letters)
        case ast.Call(func=ast.Name(id="min" | "max"), args=[left, right], keywords=[]):
            _check(left, letters)
            _check(right, letters)
        case _:
            raise ValueError(f"'{ast.unparse(node)}' is not allowed in a formula; use + - * / // %, ceil, min, max")


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    import numpy as np

    match node:
        case ast.Constant(value=number):
            return number
        case ast.Name(id=name):
            return values[name]
        case ast.BinOp(left=left, op=operator, right=right):
            return _OPERATORS[type(operator)](_value(left, values), _value(right, values))
        case ast.Call(func=ast.Name(id="ceil"), args=[inside]):
            return np.ceil(_value(inside, values))
        case ast.Call(func=ast.Name(id=name), args=[left, right]):
            function = np.minimum if name == "min" else np.maximum
            return function(_value(left, values), _value(right, values))
    raise AssertionError(ast.dump(node))
