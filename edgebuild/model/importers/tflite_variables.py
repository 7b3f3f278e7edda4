"""Variables of TFLite files: VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, and CALL_ONCE, whose graph gives first values.

A variable is known by its name in the file. Its value at the start of an inference is an input of the graph, and the
one that was assigned last an output; the builder joins the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..ir import Array, Tensor
from .builder import GraphBuilder, Node


@dataclass
class Variables:
    """`first`: values before the first inference. `handles`: the variable behind each resource tensor."""

    first: Mapping[str, Array]
    handles: dict[str, str] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)  # variable -> the tensor that it is at the start
    current: dict[str, str] = field(default_factory=dict)

    def handle(self, node: Any) -> None:
        self.handles[node.outputs[0]] = node.shared_name()

    def read_node(self, node: Any) -> None:
        name, value = self._of(node), node.written[0]
        if name not in self.current:
            self.current[name] = self.read[name] = value.name
            node.builder.tensors[value.name] = replace(value, data=None)
        elif self.current[name] != value.name:
            node.emit("reshape", [self.current[name]], shape=value.shape)

    def assign_node(self, node: Any) -> None:
        name, value = self._of(node), node.tensor(1)
        if name not in self.read:
            raise node.error(f"variable '{name}' is assigned before it is read", "read a variable before assigning it")
        if value.shape != node.builder.tensors[self.read[name]].shape:
            raise node.error(f"variable '{name}' changes its shape to {value.shape}")
        self.current[name] = value.name

    def _of(self, node: Node) -> str:
        if node.inputs[0] not in self.handles:
            raise node.error("the variable is not known", "VAR_HANDLE must come first")
        return self.handles[node.inputs[0]]

    def finish(self, builder: GraphBuilder) -> None:
        for name, first in self.read.items():
            value = self.first.get(name)
            builder.states.append((first, self.current[name], zero(builder.tensors[first]) if value is None else value))


def zero(state: Tensor) -> Array | None:
    """The stored zero that TFLM gives to a variable without a first value; None where that is 0."""
    if state.dtype != "int8" or state.quant is None or not any(state.quant.zero_point):
        return None
    return np.full(state.shape, state.quant.zero_point[0], np.int8)


def after(builder: GraphBuilder, state: Tensor) -> Tensor:
    """The tensor that a variable tensor of the file is after the inference; nothing else may write it."""
    made = replace(state, name=f"{state.name}@after", data=None)
    builder.tensors[made.name] = made
    builder.states.append((state.name, made.name, zero(state)))
    return made
