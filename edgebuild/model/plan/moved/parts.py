"""The kernel of a part of an op with the constants of that part, and the copies of a part in their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ... import ops
from ...ir import Graph, Op, Quant, Tensor
from ...kernels import kernel_of
from ...ops.base import Form, Kernel, Ranges
from ..hierarchy.nest import Mapped, Range
from ..tiling.paths import needed


def tile_kernel(op: Op, graph: Graph, turn: Mapping[str, Range], form: Form, known: dict[object, Kernel]) -> Kernel:
    """The kernel of an op's tile with the constants of that tile; `known` keeps those of equal tiles."""
    out, *wanted = tile_ranges(op, graph, turn)
    attrs = ops.SPECS[op.kind].part(op, graph, out, wanted[0])
    sizes = tuple(tuple(past - first for first, past in r) for r in (*wanted, out))
    constant = tuple(r for r, n in zip(wanted, op.inputs, strict=True) if graph.tensors[n].constant)
    key = (sizes, constant, repr(sorted(attrs.items())))
    if key not in known:
        known[key] = kernel_of(*tile_of(op, graph, turn), replace(form, tile=True))
    return known[key]


def tile_ranges(op: Op, graph: Graph, turn: Mapping[str, Range]) -> list[Ranges]:
    """Ranges of a tile in the result and in each operand."""
    nest, y = ops.nest(op, graph), graph.result(op)
    wanted = [needed(nest, i, turn, graph.tensors[n].shape) for i, n in enumerate(op.inputs)]
    return [tuple(turn.get(axis, (0, n)) for axis, n in zip(nest.out, y.shape, strict=True)), *wanted]


def tile_of(op: Op, graph: Graph, turn: Mapping[str, Range]) -> tuple[Op, Graph]:
    """The op that makes a tile, in a graph of its own with the parts that it reads."""
    out, *wanted = tile_ranges(op, graph, turn)
    tensors, names, y = dict(graph.tensors), list[str](), graph.result(op)
    for i, (name, ranges) in enumerate(zip(op.inputs, wanted, strict=True)):
        same = next((n for n, had in zip(names, wanted, strict=False) if n == name and had != ranges), None)
        names.append(name if same is None else f"{name}/{i}")  # an op may read two parts of one tensor
        tensors[names[-1]] = replace(part_of(graph.tensors[name], ranges), name=names[-1])
    tensors[y.name] = part_of(y, out)
    attrs = ops.SPECS[op.kind].part(op, graph, out, wanted[0])
    return replace(op, inputs=tuple(names), attrs=attrs), replace(graph, ops=(op,), tensors=tensors)


def part_of(t: Tensor, ranges: Ranges) -> Tensor:
    """A part of a tensor under its own name."""
    shape = tuple(past - first for first, past in ranges)
    quant = t.quant
    if quant is not None and quant.axis is not None and not quant.per_tensor:
        first, past = ranges[quant.axis]
        quant = Quant(quant.scale[first:past], quant.zero_point[first:past], quant.axis)
    data = None if t.data is None else t.data[tuple(slice(*r) for r in ranges)]
    return replace(t, shape=shape, quant=quant, data=data)


def offsets(loops: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Far and near steps of all pieces of nested loops, the inmost first."""
    if not loops:
        yield 0, 0
        return
    n, far, near = loops[-1]
    for i in range(n):
        for more in offsets(loops[:-1]):
            yield i * far + more[0], i * near + more[1]


def instances(mapped: Mapped, turns: Sequence[Mapping[str, Range]], depth: int) -> list[int]:
    """How many tiles came before the one that is in use, for each turn."""
    found, last, number = [], None, -1
    for turn in turns:
        now = tuple(turn[a] for a in mapped.order[:depth])
        number += now != last
        last = now
        found.append(number)
    return found
