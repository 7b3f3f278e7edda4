"""The kernel that a part of an op must have, by the op's index relation: the checker's own account of parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ... import ops
from ...ir import Graph, Op, Quant, Tensor
from ...ir.axes import Window, input_range
from ...kernels import kernel_of
from ...ops.base import Form, Kernel, Ranges
from .machine import BrokenPlan

COLUMNS = 2  # the dimension of N x H x W x C


class PartKernels:
    """Ranges that parts of an op make and need, and their kernels. Equal parts have one kernel, which is made once."""

    def __init__(self, op: Op, graph: Graph, form: Form) -> None:
        self.op, self.graph, self.form, self.nest = op, graph, replace(form, tile=True), ops.nest(op, graph)
        self.kernels: dict[object, Kernel] = {}

    def made(self, part: Mapping[str, tuple[int, int]]) -> Ranges:
        """Ranges of the result; axes without a range are whole."""
        shape = self.graph.result(self.op).shape
        return tuple(part.get(axis, (0, size)) for axis, size in zip(self.nest.out, shape, strict=True))

    def needed(self, part: Mapping[str, tuple[int, int]]) -> list[Ranges]:
        """Ranges of every operand."""
        return [
            tuple(
                (0, size) if (along := part.get(dim.axis)) is None else self._range(position, at, along)
                for at, (dim, size) in enumerate(zip(self.nest.operands[position], t.shape, strict=True))
            )
            for position, t in enumerate(self.graph.operands(self.op))
        ]

    def _range(self, position: int, dim: int, along: tuple[int, int]) -> tuple[int, int]:
        """Indices of an operand's dimension; those of an axis that is summed over are the axis itself."""
        axis = self.nest.operands[position][dim].axis
        return input_range(self.nest, position, dim, *along) if axis in self.nest.out else along

    def kernel(self, out: Ranges, needed: Sequence[Ranges]) -> Kernel:
        """The kernel of a part with its constants."""
        attrs = ops.SPECS[self.op.kind].part(self.op, self.graph, out, needed[0])
        operands = self.graph.operands(self.op)
        constant = tuple(ranges for ranges, t in zip(needed, operands, strict=True) if t.constant)
        sizes = tuple(tuple(past - first for first, past in ranges) for ranges in (*needed, out))
        key = sizes, constant, repr(sorted(attrs.items()))
        if key not in self.kernels:
            tensors, names = dict(self.graph.tensors), dict[tuple[str, Ranges], str]()
            for t, ranges in zip(operands, needed, strict=True):
                first = t.name not in names.values()  # an op may read two parts of one tensor
                name = names.setdefault((t.name, ranges), t.name if first else f"{t.name}:{len(names)}")
                tensors[name] = replace(_part(t, ranges), name=name)
            y = self.graph.result(self.op)
            tensors[y.name] = _part(y, out)
            inputs = tuple(names[t.name, ranges] for t, ranges in zip(operands, needed, strict=True))
            small = replace(self.op, inputs=inputs, attrs=attrs)
            self.kernels[key] = kernel_of(small, replace(self.graph, ops=(), tensors=tensors), self.form)
        return self.kernels[key]


def _part(t: Tensor, ranges: Ranges) -> Tensor:
    """A tensor's elements within these ranges, with their scales."""
    cut, quant = tuple(slice(*r) for r in ranges), t.quant
    if quant is not None and quant.axis is not None and len(quant.scale) > 1:
        mine = cut[quant.axis]
        quant = Quant(quant.scale[mine], quant.zero_point[mine], quant.axis)
    shape = tuple(past - first for first, past in ranges)
    return replace(t, shape=shape, quant=quant, data=None if t.data is None else t.data[cut])


def same_function(one: Kernel, other: Kernel) -> bool:
    """Whether a call of one kernel does what a call of the other does, with the constants of the other."""
    mine, its = (
        (k.template, dict(k.shape), list(k.scalars.items()), [str(c.data.dtype) for c in k.constants])
        for k in (one, other)
    )
    return mine == its


def kernel_of_columns(op: Op, graph: Graph, form: Form, low: int, high: int, begin: int) -> Kernel:
    """The kernel that makes the columns [low, high) of a row, and is given operands from their column `begin` on.

    Raises BrokenPlan where none could: it begins elsewhere than its columns, or a window leaves the row at its end.
    """
    nest, tensors, y, attrs = ops.nest(op, graph), dict(graph.tensors), graph.result(op), op.attrs
    tensors[y.name] = _part(y, _columns(y, high - low))
    for dims, t in zip(nest.operands, graph.operands(op), strict=True):
        if t.constant:
            continue
        relation = dims[COLUMNS]
        if isinstance(relation, Window):
            reach = (nest.extents[relation.tap] - 1) * relation.dilation
            left = relation.pad - low * relation.stride + begin
            right = (high - low - 1) * relation.stride + reach + 1 - left - t.shape[COLUMNS]
            inside = left == 0 and begin + (high - low - 1) * relation.stride + reach < t.shape[COLUMNS]
            if begin and not inside:
                raise BrokenPlan(f"{op.name}: columns {low} to {high} are not made from column {begin} on")
            top, _, below, _ = op.attrs["pad"]
            attrs = {**attrs, "pad": (top, left, below, right)}
        elif begin != low:
            raise BrokenPlan(f"{op.name}: column {low} is made from column {begin}")
        else:
            tensors[t.name] = _part(t, _columns(t, high - low))
    return kernel_of(replace(op, attrs=attrs), replace(graph, ops=(), tensors=tensors), form)


def _columns(t: Tensor, count: int) -> Ranges:
    return tuple((0, count if dim == COLUMNS else size) for dim, size in enumerate(t.shape))
