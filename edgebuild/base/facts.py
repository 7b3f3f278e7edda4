"""Strict reading of facts from YAML into frozen dataclasses.

The dataclass is the schema: a field without a default is a required key, and no other keys are allowed. Types are
checked at their nodes, so that a mistake is reported with its line. The word `unknown` is read as None if the field
admits None, and is an error elsewhere. Frequencies may be written `216MHz`.

A type `Annotated[T, reader]` is read by the function `reader`, from the YAML node to a T. `Size`, `Count` and `Rate`
are such types, `one_of` makes others. `Annotated[tuple[T, ...], NAMED]` is a map whose keys become the field `name`.
"""

from __future__ import annotations

import ast
import dataclasses
import io
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from . import inputs
from .errors import EdgebuildError, did_you_mean, fail

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node


# Formulas in data files: arithmetic over letters, checked when they are read.

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
        """The value. Raises EdgebuildError if it is below 0, infinite or not a number."""
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


SIGNS = "+ - * / // %, ceil, min, max"


def parse_formula(text: str, letters: tuple[str, ...], place: tuple[str, int, int] = ("", 0, 0)) -> Formula:
    """Check a formula; `place`: its file, line and column. Raises ValueError with a message on the mistake."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"'{text}' is no formula; numbers and {' '.join(letters)} with {SIGNS} are one") from None
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
            raise ValueError(f"'{ast.unparse(node)}' is not allowed in a formula; use {SIGNS}")


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


T = TypeVar("T")
N = TypeVar("N", int, float)

PARTS = "parts"  # the key of a family's parts
NAMED = object()  # marks a tuple that is written as a map from names to items

_UNITS = {"": 1, "kHz": 1_000, "MHz": 1_000_000}
HEX, DIGITS = "0x[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*", "[0-9]+(?:_[0-9]+)*"
LARGEST = 2**64  # limit of addresses, sizes and frequencies
MAX_DIGITS = 100  # longer numbers are refused without conversion
_BINARY = {"": 0, "K": 10, "M": 20, "G": 30}


def read_facts(kind: type[T], file: Path) -> T:
    """Read a file as an instance of `kind`. Raises EdgebuildError with file, line and column."""
    node = compose(file)
    if node is None:
        raise fail("the file is empty", file=str(file), line=1)
    return typing.cast(T, _read(kind, node))


def read_node(kind: type[T], node: Node, **given: Any) -> T:
    """Read a map as an instance of `kind`, with the fields `given`, which must not be keys. Raises EdgebuildError."""
    return typing.cast(T, _read_dataclass(kind, node, given))


class _Named(io.StringIO):
    name = ""


def compose(file: Path) -> Node | None:
    """The YAML nodes of a file with their line marks; None for an empty file. Raises EdgebuildError."""
    import yaml  # late: most commands never read facts

    try:
        stream = _Named(inputs.read_text(file, most=inputs.YAML))
        stream.name = str(file)  # as marks have it
        root: Node | None = yaml.compose(stream, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return root
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise fail(f"not YAML: {error.problem}", file=str(file), line=line, column=column) from None
    except RecursionError:
        raise fail("not YAML: its lists and maps are nested too deeply", file=str(file)) from None
    except yaml.YAMLError as error:
        raise fail(f"not YAML: {' '.join(str(error).split())}", file=str(file)) from None


def _read(kind: Any, node: Node) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        inner, how = arguments[:2]
        if how is not NAMED:
            return how(node)
        item = typing.get_args(inner)[0]
        return tuple(read_node(item, entry, name=name) for name, entry in entries(node).items())
    if origin is types.UnionType or origin is typing.Union:
        if node.value == "unknown":
            return None
        return _read(next(a for a in arguments if a is not type(None)), node)
    if node.value == "unknown":
        raise wrong(node, "this fact cannot be unknown")
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, node)
    if origin is tuple:
        return _read_tuple(arguments, node)
    if origin is Mapping or origin is dict:
        return {_key(arguments[0], k): _read(arguments[1], v) for k, v in _entries(node)}
    if not isinstance(node.value, str):
        raise wrong(node, f"expected {_name(kind)}{_instead_of(node)}")
    return _scalar(kind, node, node.value)


def _key(kind: Any, node: Node) -> Any:
    """A map's key. Text is read literally, such as the name `off`, which YAML would read as false."""
    if not isinstance(node.value, str):
        raise wrong(node, "a key must be a word")
    return node.value if kind is str else _scalar(kind, node, node.value)


def _read_dataclass(kind: Any, node: Node, given: Mapping[str, Any] = types.MappingProxyType({})) -> Any:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {f.name: f for f in dataclasses.fields(kind) if f.name not in given}
    values = dict(given)
    for name, value in keys_of(node, tuple(fields)).items():
        values[name] = _read(hints[name], value)
    for name, field in fields.items():
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name not in values and not optional:
            hint = ["write `unknown` where nothing is known"] if type(None) in typing.get_args(hints[name]) else []
            raise wrong(node, f"missing key '{name}'", *hint)
    try:
        return kind(**values)
    except ValueError as error:
        raise wrong(node, str(error)) from None


def _read_tuple(arguments: tuple[Any, ...], node: Node) -> tuple[Any, ...]:
    from yaml.nodes import SequenceNode

    items = node.value
    if not isinstance(node, SequenceNode):
        raise wrong(node, f"expected a list [a, b]{_instead_of(node)}")
    if arguments[-1] is Ellipsis:
        return tuple(_read(arguments[0], item) for item in items)
    if len(items) != len(arguments):
        raise wrong(node, f"expected {len(arguments)} values, not {len(items)}")
    return tuple(_read(a, item) for a, item in zip(arguments, items, strict=True))


def _entries(node: Node) -> list[tuple[Node, Node]]:
    from yaml.nodes import MappingNode

    if not isinstance(node, MappingNode):
        seen = ", not a list" if isinstance(node.value, list) else _instead_of(node)
        raise wrong(node, f"expected a map (key: value){seen}")
    return list(node.value)


def entries(node: Node) -> dict[str, Node]:
    """The map's values by key, in order. Raises EdgebuildError unless keys are unique words."""
    from yaml.nodes import ScalarNode

    values: dict[str, Node] = {}
    for key, value in _entries(node):
        if not isinstance(key, ScalarNode):
            raise wrong(key, "a key must be a word")
        if key.value in values:
            raise wrong(key, f"key '{key.value}' is given twice")
        values[key.value] = value
    return values


def keys_of(node: Node, accepted: tuple[str, ...]) -> dict[str, Node]:
    """The map's values by key. Raises EdgebuildError for a key that is not among `accepted`."""
    values = entries(node)
    for key, _ in node.value:
        if key.value not in accepted:
            near = did_you_mean(key.value, accepted)
            raise wrong(key, f"unknown key '{key.value}'{near}", "known: " + ", ".join(accepted))
    return values


def _scalar(kind: Any, node: Node, text: str) -> Any:
    if kind is str and node.tag == "tag:yaml.org,2002:str":
        return text
    if kind is bool and node.tag == "tag:yaml.org,2002:bool":
        return text.lower() in ("true", "yes", "on")
    if (kind is int or kind is float) and len(text) <= MAX_DIGITS:
        if re.fullmatch(HEX, text):
            return _bounded(node, int(text, 16))
        match = re.fullmatch(rf"(-?(?:{DIGITS})?\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(|kHz|MHz)", text)
        if match:
            number = _bounded(node, float(match[1]) * _UNITS[match[2]])
            if kind is float:
                return number
            if abs(number - round(number)) < 1e-6:
                return round(number)
    raise wrong(node, f"expected {_name(kind)}{_instead_of(node)}")


def _bounded(node: Node, number: N) -> N:
    if abs(number) > LARGEST:
        raise wrong(node, "the number is too large: at most 2^64")
    return number


def _name(kind: Any) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(kind, str(kind))


# ---- readers of single values


def size(node: Node) -> int:
    """Bytes, hertz, an address: 4096, 0x1000, 4K, 2M, 1G (powers of 1024), also with the suffix B or iB."""
    match = re.fullmatch(f"({HEX}|{DIGITS})([KMG]?)(?:i?B)?", node.value) if isinstance(node.value, str) else None
    if not match:
        raise wrong(node, f"expected a number{_instead_of(node)}", "such as 4096, 0x1000, 256K or 2M")
    if len(match[1]) > MAX_DIGITS:
        raise wrong(node, "the number is too large: at most 2^64")
    return _bounded(node, int(match[1], 0 if match[1].startswith("0x") else 10) << _BINARY[match[2]])


def count(node: Node) -> int:
    """A number from 1 upwards."""
    number = size(node)
    if number < 1:
        raise wrong(node, "expected a number from 1 upwards, not 0")
    return number


def rate(node: Node) -> float:
    """A number above 0, such as 8 or 0.5."""
    if not isinstance(node.value, str) or not re.fullmatch(r"[0-9]*\.?[0-9]+", node.value) or not float(node.value):
        raise wrong(node, f"expected a number above 0{_instead_of(node)}")
    return _bounded(node, float(node.value))


def picojoules(node: Node) -> float:
    """Energy: a number from 0 upwards, such as 0.05."""
    if not isinstance(node.value, str) or not re.fullmatch(r"[0-9]*\.?[0-9]+", node.value):
        raise wrong(node, f"expected picojoules, a number from 0 upwards{_instead_of(node)}")
    return _bounded(node, float(node.value))


def read_text(node: Node) -> str:
    """Text. Raises EdgebuildError for a number or a list."""
    return str(_read(str, node))


def read_flag(node: Node) -> bool:
    """True or false."""
    return bool(_read(bool, node))


def one_of(accepted: tuple[str, ...]) -> Callable[[Node], str]:
    """A reader of one word that is among `accepted`."""

    def word(node: Node) -> str:
        text = read_text(node)
        if text not in accepted:
            raise wrong(node, f"unknown word '{text}'{did_you_mean(text, accepted)}", "known: " + ", ".join(accepted))
        return text

    return word


Size = Annotated[int, size]
Count = Annotated[int, count]
Rate = Annotated[float, rate]
Picojoules = Annotated[float, picojoules]


def _instead_of(node: Node) -> str:
    return f", not '{node.value}'" if isinstance(node.value, str) else ", not a map or list"


def wrong(node: Node, text: str, *hints: str) -> EdgebuildError:
    mark = node.start_mark
    return fail(text, file=mark.name, line=mark.line + 1, column=mark.column + 1, hints=hints)


# ---- families: files with several parts; each part is the common map merged with the part's own keys


def map_of(file: Path) -> MappingNode:
    """The map in a file. Raises EdgebuildError if the file has none."""
    from yaml.nodes import MappingNode

    node = compose(file)
    if not isinstance(node, MappingNode):
        raise fail("expected a map of keys, such as 'description: text'", file=str(file), line=1)
    return node


def parts_of(node: MappingNode) -> dict[str, Node]:
    """The maps of a family's parts, by name; empty if the map is no family."""
    return entries(entries(node)[PARTS]) if PARTS in entries(node) else {}


def stated_in(name: str, folder: Path) -> tuple[Path, MappingNode] | None:
    """(file, map) of a name in a folder, in a file of its own or as a part of a family; None if there is neither."""
    if (own := folder / f"{name}.yaml").is_file():
        return own, map_of(own)
    for file in sorted(folder.glob("*.yaml")):
        text = file.read_bytes()
        if PARTS.encode() in text and name.encode() in text and name in (parts := parts_of(family := map_of(file))):
            return file, merged(_withoutparts_of(family), _as_map(parts[name]))
    return None


def _withoutparts_of(family: MappingNode) -> MappingNode:
    from yaml.nodes import MappingNode

    rest = [(key, value) for key, value in family.value if key.value != PARTS]
    return MappingNode(family.tag, rest, family.start_mark, family.end_mark)


def _as_map(node: Node) -> MappingNode:
    from yaml.nodes import MappingNode

    if not isinstance(node, MappingNode):
        raise wrong(node, "a part is a map of keys, such as 'description:' and 'memories:'")
    return node


def _order(below: Iterable[str], above: Iterable[str]) -> list[str]:
    """Names of both maps in order: the parent's, and each new one in front of the name that follows it in `above`."""
    names, following = list(below), ""
    for name in reversed(list(above)):
        if name not in names:
            names.insert(names.index(following) if following else len(names), name)
        following = name
    return names


def merged(base: MappingNode, over: MappingNode, top: bool = True) -> MappingNode:
    """Merge two maps recursively; values of `over` replace those of `base`."""
    from yaml.nodes import MappingNode

    keys = {key.value: key for key, _ in base.value + over.value}
    below, above = entries(base), entries(over)
    if top:  # `abstract` is not inherited
        below.pop("abstract", None)
    values = []
    for name in _order(below, above):
        old, new = below.get(name), above.get(name)
        if isinstance(old, MappingNode) and isinstance(new, MappingNode):
            new = merged(old, new, top=False)
        values.append((keys[name], new if new is not None else old))
    return MappingNode(over.tag, values, over.start_mark, over.end_mark)
