"""Block-based path discovery (Stahl 2024, section 4.3.3), driven by the ops' index relations alone.

A path is a run of ops, each the only reader of the one before, that is computed in parts. The blocks of the thesis
follow from how the dimension that is cut appears in the relation of each op:

* FDT fan-out: no operand but constants is indexed by it; every part reads the whole input.
* PART: an operand is indexed by it unchanged (or in groups); parts need parts.
* FFMT: an operand is indexed by a window; parts need parts and what their windows reach beyond them.
* FDT fan-in: the op sums over it; parts add to the sums of the whole result.
* SPLIT and CONCAT: where a path begins with an op that needs only a part of its input, and where it does not end with
  a fan-in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ... import ops
from ...ir import Graph, Op
from ...ir.axes import Grouped, Nest, Same, Spread, Window, input_range
from ...ops.base import Ranges, unchanged

MOST_PARTS = 25
GRIDS = (2, 3, 4, 5)


@dataclass(frozen=True)
class Path:
    """`ops` in order; `operands[i]` is the position of the operand of op i that op i - 1 makes (-1 for the first).

    `cut` are dimensions of the last result, or of the last op's operand if it is a fan-in. `windowed`: of each
    dimension that is cut, whether a window goes over it anywhere, so that parts may overlap.
    """

    ops: tuple[Op, ...]
    operands: tuple[int, ...]
    cut: tuple[int, ...]
    fan_in: bool
    windowed: tuple[bool, ...]

    @property
    def method(self) -> str:
        return "ffmt" if all(self.windowed) else "both" if any(self.windowed) else "fdt"


def only_reader(graph: Graph, tensor: str) -> Op | None:
    """The one op that reads a tensor, and reads it once."""
    op = graph.only_consumer(tensor)
    return op if op is not None and op.inputs.count(tensor) == 1 else None


def axis_of(nest: Nest, operand: int, dim: int) -> str | None:
    """The axis of the result that indexes this dimension of an operand so that a part needs only a part."""
    match nest.operands[operand][dim]:
        case Same(axis) | Window(axis) | Spread(axis) | Grouped(axis) if axis in nest.out:
            return axis
    return None


def needed(nest: Nest, operand: int, parts: Mapping[str, tuple[int, int]], shape: tuple[int, ...]) -> Ranges:
    """Ranges of an operand that a part of the op needs; `parts` has the ranges of the axes that are cut."""
    found = []
    for dim, size in enumerate(shape):
        relation = nest.operands[operand][dim]
        part = parts.get(relation.axis)
        if part is None:
            found.append((0, size))
        elif isinstance(relation, Same):
            found.append(part)
        else:
            found.append(input_range(nest, operand, dim, *part))
    return tuple(found)


def paths(graph: Graph, tensor: str, methods: frozenset[str]) -> Iterator[Path]:
    """All paths in which `tensor` is made and read in parts, by one of the methods."""
    shape = graph.tensors[tensor].shape
    if tensor not in graph.producers:
        return
    cuts: list[tuple[int, ...]] = [(d,) for d, n in enumerate(shape) if n > 1]
    cuts += [(a, b) for (a,) in cuts for (b,) in cuts if a < b]
    for cut in cuts:
        starts = list(_upward(graph, graph.producers[tensor], cut))
        for tail, end, fan_in, below in _downward(graph, tensor, cut):
            for head, above in starts:
                windowed = _either(above, below)
                if len(cut) > 1 and not any(windowed):
                    continue
                found = Path(
                    tuple(op for op, _ in (*head, *tail)),
                    tuple(position for _, position in (*head, *tail)),
                    end,
                    fan_in,
                    windowed,
                )
                if found.method in methods:
                    yield found


Links = tuple[tuple[Op, int], ...]
Flags = tuple[bool, ...]


def _either(a: Flags, b: Flags) -> Flags:
    return tuple(x or y for x, y in zip(a, b, strict=True))


def _downward(graph: Graph, tensor: str, cut: tuple[int, ...]) -> Iterator[tuple[Links, tuple[int, ...], bool, Flags]]:
    """Ways to end behind a tensor cut along `cut`: ops, dimensions cut at the end, fan-in or not, windowed or not."""
    tail: Links = ()
    windowed: Flags = (False,) * len(cut)
    while (op := only_reader(graph, tensor)) is not None:
        nest, position = ops.nest(op, graph), op.inputs.index(tensor)
        axes = [axis_of(nest, position, d) for d in cut]
        if len(cut) == 1 and axes == [None] and _sums_over(graph, op, position, cut[0]):
            yield (*tail, (op, position)), cut, True, windowed
            return
        names = [axis for axis in axes if axis is not None]
        if len(set(names)) < len(cut) or not _follows(graph, op, names):
            return
        windowed = _either(windowed, tuple(isinstance(nest.operands[position][d], Window | Spread) for d in cut))
        tail = (*tail, (op, position))
        tensor, cut = op.outputs[0], tuple(nest.out.index(axis) for axis in names)
        if min(graph.tensors[tensor].shape[d] for d in cut) < 2:
            return
        yield tail, cut, False, windowed


def _upward(graph: Graph, op: Op, cut: tuple[int, ...]) -> Iterator[tuple[Links, Flags]]:
    """Ways to begin before the result of `op`, which is cut along `cut`: ops, and which dimensions windows go over."""
    nest = ops.nest(op, graph)
    axes = [nest.out[d] for d in cut]
    if not _follows(graph, op, axes):
        return
    reads = [i for i, n in enumerate(op.inputs) if not graph.tensors[n].constant]
    dims = {i: [d for d in range(len(nest.operands[i])) if axis_of(nest, i, d) in axes] for i in reads}
    over = {axis_of(nest, i, d) for i in reads for d in dims[i] if isinstance(nest.operands[i][d], Window | Spread)}
    windowed = tuple(axis in over for axis in axes)
    if not ops.SPECS[op.kind].view:
        yield ((op, -1),), windowed
    for i in reads:
        before = graph.producers.get(op.inputs[i])
        if before is None or only_reader(graph, op.inputs[i]) is not op or len(dims[i]) != len(cut):
            continue
        above = tuple(next(d for d in dims[i] if axis_of(nest, i, d) == nest.out[c]) for c in cut)
        for head, more in _upward(graph, before, above):
            yield (*head, (op, i)), _either(windowed, more)


def _follows(graph: Graph, op: Op, axes: list[str]) -> bool:
    """Whether the op can make a part of its result along these axes.

    No operand has a dimension of another kind on them. Each is a dimension of an operand, unless the op tells how it
    computes a part: the last dimension of a softmax cannot be cut, for every element needs all of a line.
    """
    nest, spec = ops.nest(op, graph), ops.SPECS[op.kind]
    named = set()
    for dim in (dim for relations in nest.operands for dim in relations):
        if dim.axis in axes:
            if not isinstance(dim, Same | Window | Spread | Grouped):
                return False
            named.add(dim.axis)
    return len(op.outputs) == 1 and (named.issuperset(axes) or spec.part is not unchanged)


def _sums_over(graph: Graph, op: Op, position: int, dim: int) -> bool:
    """Whether the op is a sum of products over this dimension of its first operand, one that can be cut."""
    relation = ops.nest(op, graph).operands[position][dim]
    spec = ops.SPECS[op.kind]
    layer = spec.total is not None and position == 0 and spec.fan_in(op, graph)
    return layer and isinstance(relation, Same) and relation.axis not in ops.nest(op, graph).out
