"""Pieces of tensors, the ops that make them, and the messages that bring them to other devices."""

from __future__ import annotations

from dataclasses import replace

from ...base.dataclass import dataclass
from .. import ops
from ..ir import Graph, Op, Tensor
from ..ops.base import Ranges, check_limits
from ..plan.distribute.forms import Range, Transfer
from ..plan.tiling.paths import one_part, part_of


@dataclass(frozen=True)
class Message:
    """A transfer with its number. `step`: the layer before which it is sent (behind it, for sums)."""

    number: int
    step: int
    tensor: str
    transfer: Transfer
    item: int  # bytes of an element on the wire


def ranges_of(t: Tensor, rows: Range, channels: Range) -> Ranges:
    """Rows and channels as ranges of all dimensions."""
    ranges = [(0, n) for n in t.shape]
    if len(t.shape) == 4 and t.shape[0] == 1:
        ranges[1] = rows
    if ranges:
        ranges[-1] = channels
    return tuple(ranges)


def can_be_cut(graph: Graph, op: Op, dim: int) -> bool:
    """Whether halves of the result along a dimension are what the op makes of parts of its operands."""
    nest = ops.nest(op, graph)
    half = graph.result(op).shape[dim] // 2
    if half == 0:
        return False
    for cut in ((0, half), (half, graph.result(op).shape[dim])):
        part, reads, out = one_part(graph, op, {nest.out[dim]: cut})
        if any(first >= past for ranges in reads for first, past in ranges):
            return False
        tensors = dict(graph.tensors)
        for name, ranges in zip(op.inputs, reads, strict=True):
            tensors[name] = part_of(graph.tensors[name], ranges)
        y = graph.result(op)
        tensors[y.name] = part_of(y, out)
        small = replace(graph, ops=(part,), tensors=tensors)
        if ops.result_shape(part, small) != tensors[y.name].shape or check_limits(ops.SPECS[op.kind], part, small):
            return False
    return True


@dataclass(frozen=True)
class Piece:
    """A part of a tensor under a name of its own; all of it under its own."""

    name: str
    ranges: Ranges
