"""Formulas that stand in data files: arithmetic over letters, checked when they are read."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from edgebuild.base.dataclass import dataclass

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
    """Arithmetic over letters: + - * / // % and `ceil`, `min`, `max`. Values may be numbers or numpy arrays."""

    text: str

    def __call__(self, values: Mapping[str, Any]) -> Any:
        return _value(ast.parse(self.text, mode="eval").body, values)


def parse_formula(text: str, letters: tuple[str, ...]) -> Formula:
    """Check a formula. Raises ValueError with what is wrong in it."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"'{text}' is no formula") from None
    _check(tree, letters)
    return Formula(text.strip())


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
