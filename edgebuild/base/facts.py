"""Facts from YAML into frozen dataclasses, strictly.

The dataclass is the schema: a field without a default is a required key, no other keys are allowed, and types are
checked where they stand, so that a mistake is reported with its line. The word `unknown` is a value of its own: it is
read as None where the field admits None, and refused elsewhere. Frequencies may be written `216MHz`.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from edgebuild.base.errors import EdgebuildError, did_you_mean, fail, from_os

if TYPE_CHECKING:
    from yaml.nodes import Node

T = TypeVar("T")

_UNITS = {"": 1, "kHz": 1_000, "MHz": 1_000_000}


def read_facts(kind: type[T], file: Path) -> T:
    """The file's content as a `kind`. Raises EdgebuildError with file, line and column."""
    node = compose(file)
    if node is None:
        raise fail("the file is empty", file=str(file), line=1)
    return typing.cast(T, _read(kind, node))


def compose(file: Path) -> Node | None:
    """The YAML nodes of a file with their line marks; None for an empty file. Raises EdgebuildError."""
    import yaml  # late: most commands never read facts

    try:
        with file.open(encoding="utf-8") as stream:
            found: Node | None = yaml.compose(stream, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
            return found
    except OSError as error:
        raise from_os(error, "cannot read it", str(file)) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise fail(f"not YAML: {error.problem}", file=str(file), line=line, column=column) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise fail(f"not YAML: {' '.join(str(error).split())}", file=str(file)) from None


def _read(kind: Any, node: Node) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
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
        return {_scalar(arguments[0], k, k.value): _read(arguments[1], v) for k, v in _entries(node)}
    if not isinstance(node.value, str):
        raise wrong(node, f"expected {_name(kind)}, not a map or list")
    return _scalar(kind, node, node.value)


def _read_dataclass(kind: Any, node: Node) -> Any:
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for name, value in keys_of(node, tuple(fields)).items():
        values[name] = _read(hints[name], value)
    for name, field in fields.items():
        optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name not in values and not optional:
            raise wrong(node, f"missing key '{name}'", "write `unknown` where nothing is known")
    try:
        return kind(**values)
    except ValueError as error:
        raise wrong(node, str(error)) from None


def _read_tuple(arguments: tuple[Any, ...], node: Node) -> tuple[Any, ...]:
    from yaml.nodes import SequenceNode

    items = node.value
    if not isinstance(node, SequenceNode):
        raise wrong(node, "expected a list [a, b]")
    if arguments[-1] is Ellipsis:
        return tuple(_read(arguments[0], item) for item in items)
    if len(items) != len(arguments):
        raise wrong(node, f"expected {len(arguments)} values, not {len(items)}")
    return tuple(_read(a, item) for a, item in zip(arguments, items, strict=True))


def _entries(node: Node) -> list[tuple[Node, Node]]:
    from yaml.nodes import MappingNode

    if not isinstance(node, MappingNode):
        raise wrong(node, "expected a map (key: value)")
    return list(node.value)


def entries(node: Node) -> dict[str, Node]:
    """The map's values by key, in order; every key a word that is there once."""
    from yaml.nodes import ScalarNode

    found: dict[str, Node] = {}
    for key, value in _entries(node):
        if not isinstance(key, ScalarNode):
            raise wrong(key, "a key must be a word")
        if key.value in found:
            raise wrong(key, f"key '{key.value}' is given twice")
        found[key.value] = value
    return found


def keys_of(node: Node, known: tuple[str, ...]) -> dict[str, Node]:
    """The map's values by key. Raises EdgebuildError for a key that is not among `known`."""
    found = entries(node)
    for key, _ in node.value:
        if key.value not in known:
            near = did_you_mean(key.value, known)
            raise wrong(key, f"unknown key '{key.value}'{near}", "known: " + ", ".join(known))
    return found


def _scalar(kind: Any, node: Node, text: str) -> Any:
    if kind is str:
        return text
    if kind is bool and text in ("true", "false"):
        return text == "true"
    if kind is int or kind is float:
        if re.fullmatch(r"0x[0-9a-fA-F_]+", text):
            return int(text, 16)
        match = re.fullmatch(r"(-?[0-9_]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(|kHz|MHz)", text)
        if match:
            number = float(match[1]) * _UNITS[match[2]]
            if kind is float:
                return number
            if abs(number - round(number)) < 1e-6:
                return round(number)
    raise wrong(node, f"expected {_name(kind)}, not '{text}'")


def _name(kind: Any) -> str:
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(kind, str(kind))


def wrong(node: Node, text: str, *hints: str) -> EdgebuildError:
    mark = node.start_mark
    return fail(text, file=mark.name, line=mark.line + 1, column=mark.column + 1, hints=hints)
