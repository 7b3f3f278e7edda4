"""Nodes of formats whose operators have arguments with names, most of them operators of ONNX under other names."""

from __future__ import annotations

from abc import abstractmethod
from ast import literal_eval
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .builder import GraphBuilder, Reader
from .channels_first import ChannelsFirstNode


class Name(str):
    """An argument that is a tensor."""

    __slots__ = ()


class NamedArgumentsNode(ChannelsFirstNode):
    """`arguments`: values of Python, a Name for a tensor, None where one is left out. `read`: those that were used."""

    def __init__(
        self, builder: GraphBuilder, name: str, origin: str, arguments: Mapping[str, Any], outputs: Sequence[str]
    ):
        self.arguments, self.read, self.attributes = dict(arguments), set[str](), dict[str, Any]()
        inputs = [name for value in arguments.values() for name in tensors_of(value)]
        super().__init__(builder, name, origin, inputs, outputs)
        self.opset = 21

    def attr(self, name: str, default: Any) -> Any:
        """An attribute of the operator of ONNX that the node is read as."""
        value = self.attributes.get(name)
        return default if value is None else value

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument's value, of a constant tensor its numbers; the default where it is left out."""
        self.read.add(name)
        value = self.arguments.get(name)
        if isinstance(value, Name):
            if (t := self.builder.tensors[value]).data is None:
                raise self.error(f"argument {name} is computed by the graph", "it must be a constant")
            value = t.data.tolist()
        return default if value is None or value == [] else value

    def operands(self, *names: str) -> None:
        """Make these arguments the operands, a|b if names differ: numbers become constants, '' is left out."""
        keys = [next((n for n in name.split("|") if n in self.arguments), name) for name in names]
        self.read.update(keys)
        values, self.inputs = [self.arguments.get(key) for key in keys], []
        like = next((self.builder.tensors[v].dtype for v in values if isinstance(v, Name)), "float32")
        for value in values:
            if value is not None and not tensors_of(value):
                kind = "float32" if isinstance(value, float) else "int64" if isinstance(value, list) else like
                value = self.array(np.array(value, kind))
            self.inputs += value if isinstance(value, list) else [value or ""]

    def in_type(self, dtype: str, *positions: int) -> None:
        """Cast operands that have no scale."""
        for position in positions:
            x = self.tensor(position)
            if x.dtype != dtype and x.quant is None:
                self.inputs[position] = self.inner("cast", [x.name], to=dtype)

    def in_one_type(self, result: str) -> None:
        """Cast the last two operands to the type of the result; of comparisons, to their common one."""
        places = range(len(self.inputs) - 2, len(self.inputs))
        if result == "bool":
            types = {self.tensor(i).dtype for i in places}
            result = "float32" if "float32" in types else str(np.result_type(*types))
        self.in_type(result, *places)

    def sides(self, value: Any, ends: int = 1) -> list[int]:
        """A number for each spatial dimension, given so or once for all, `ends` times; words stand for 0."""
        listed = value if isinstance(value, list) else [0 if isinstance(value, str) else value]
        return (listed * (len(self.tensor(0).shape) - 2) if len(listed) == 1 else listed) * ends

    @abstractmethod
    def result_type(self) -> str:
        """The type that the file tells of the first result."""


def tensors_of(value: Any) -> list[str]:
    return [v for v in (value if isinstance(value, list) else [value]) if isinstance(v, Name)]


def readers(table: str, onnx: Mapping[str, Reader], own: Mapping[str, Reader]) -> dict[str, Reader]:
    """Readers by name of a table's operators, each a line `names; operator; operands; attributes`.

    The operator of ONNX has an equals sign in front if its operands have one type. A name may have its own behind it,
    as `name>Operator`; where nothing is said, it is the name with a capital. Attributes are ONNX's, each
    `attribute=argument|other:default`, or with the default alone. A star behind an argument: a number for each spatial
    dimension, or one for all; two stars: for both ends of each. `own`: readers that the format has itself, by
    `names; operands; arguments that need not be read`.
    """
    by_name = dict[str, Reader]()
    for line in filter(None, table.split("\n")):
        names, operator, operands, *rules = (part.strip() for part in line.split(";"))
        for name, _, inline in (name.partition(">") for name in names.split()):
            other = inline or operator.strip("=") or name.capitalize()
            by_name[name] = _reader(onnx[other], operator[:1] == "=", operands.split(), " ".join(rules).split())
    for rows, reader in own.items():
        listed, operands, *others = rows.split(";")
        by_name |= dict.fromkeys(listed.split(), _reader(reader, False, operands.split(), (), " ".join(others).split()))
    return by_name


def _reader(
    reader: Reader, typed: bool, operands: Sequence[str], rules: Sequence[str], others: Sequence[str] = ()
) -> Reader:
    def read(node: NamedArgumentsNode) -> None:
        node.read.update(others)
        node.operands(*operands)
        if typed:
            node.in_one_type(node.result_type())
        for name, rule in (rule.split("=", 1) for rule in rules):
            argument, _, default = rule.partition(":")
            values = [node.argument(one) for one in argument.rstrip("*").split("|")]
            value = next((v for v in values if v is not None), literal_eval(default or "None"))
            node.attributes[name] = node.sides(value, argument.count("*")) if "*" in argument else value
        reader(node)

    return read
