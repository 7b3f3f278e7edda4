"""Variables of TFLite files: VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, and CALL_ONCE, whose graph gives first values.

A variable is known by its name in the file. Its value at the start of an inference is an input of the graph, and the
one that was assigned last an output; the builder joins the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from ....base.dataclass import dataclass
from ...ir import Array, Tensor
from ...ops.pointwise import attributes
from ..builder import GraphBuilder, Node


@dataclass
class Variables:
    """`first`: values before the first inference. `handles`: the variable behind each resource tensor."""

    first: Mapping[str, Array]
    handles: dict[str, str] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)  # variable -> the tensor that it is at the start
    assigned: dict[str, str] = field(default_factory=dict)  # variable -> the tensor that it became

    def handle(self, node: Any) -> None:
        self.handles[node.outputs[0]] = node.shared_name()

    def read_node(self, node: Any) -> None:
        name, value = self._of(node), node.written[0]
        if name not in self.now():
            self.read[name] = value.name
            node.builder.tensors[value.name] = replace(value, data=None)
        elif self.now()[name] != value.name:
            node.emit("reshape", [self.now()[name]], shape=value.shape)

    def assign_node(self, node: Any) -> None:
        """A variable that is assigned first keeps nothing for the next inference: it is no state."""
        name, value = self._of(node), node.tensor(1)
        before = self.now().get(name)
        if before is not None and value.shape != node.builder.tensors[before].shape:
            raise node.error(f"variable '{name}' changes its shape to {value.shape}")
        self.assigned[name] = value.name

    def now(self) -> dict[str, str]:
        """The tensor that each variable is."""
        return self.read | self.assigned

    def choose(self, node: Any, branches: Sequence[Callable[[], list[str]]]) -> list[list[str]]:
        """Read the branches, of which the first operand takes one; tell their results. Variables become that one's."""
        before, results, ends = dict(self.assigned), list[list[str]](), list[dict[str, str]]()
        for branch in branches:
            self.assigned = dict(before)
            results.append(branch())
            ends.append(self.assigned)
        self.assigned = before
        for name in dict.fromkeys(name for end in ends for name in end):
            values = [end.get(name, self.now().get(name)) for end in ends]
            if None in values:
                text = f"one branch alone assigns variable '{name}', which nothing reads before"
                raise node.error(text, "read the variable before the branches")
            self.assigned[name] = _selected(node, [str(value) for value in values])
        return results

    def _of(self, node: Node) -> str:
        if node.inputs[0] not in self.handles:
            raise node.error("the variable is not known", "VAR_HANDLE must come first")
        return self.handles[node.inputs[0]]

    def finish(self, builder: GraphBuilder) -> None:
        for name, first in self.read.items():
            value = self.first.get(name)
            builder.states.append((first, self.now()[name], zero(builder.tensors[first]) if value is None else value))


def _selected(node: Any, values: list[str]) -> str:
    """The tensor of these that the node's condition chooses; all elements are one choice."""
    first, *others = (node.builder.tensors[name] for name in values)
    if {t.name for t in others} == {first.name}:
        return values[0]
    if {(t.shape, t.dtype, t.quant) for t in others} != {(first.shape, first.dtype, first.quant)}:
        raise node.error("branches assign a variable values of two forms", "give them one shape, type and scale")
    condition = node.reshaped(node.inputs[0], (1,) * len(first.shape))
    chosen = {**attributes("where"), "to": first.dtype}
    return str(node.inner("pointwise", [condition, *values], first.quant, **chosen))


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
