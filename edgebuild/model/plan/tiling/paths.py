"""Paths that can be cut into parts (Stahl 2024, section 4.3.3: block-based path discovery), and the cost of a cut path.

Both follow from the ops' index relations alone.

A path is a run of ops, each the only reader of the one before, that is computed in parts. The blocks of the thesis
follow from how the dimension that is cut appears in the relation of each op:

* FDT fan-out: no operand but constants is indexed by it; every part reads the whole input.
* PART: an operand is indexed by it unchanged (or in groups); parts need parts.
* FFMT: an operand is indexed by a window; parts need parts and the halo that their windows reach beyond them.
* FDT fan-in: the op sums over it; parts add to the sums of the whole result.
* SPLIT and CONCAT: where a path begins with an op that needs only a part of its input, and where it does not end with
  a fan-in.

The parts run one after the other, each from the first op to the last: parts of one path are interchangeable, so no
other order of them can take less while the result grows in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise, product
from math import prod

from ... import ops
from ...ir import ITEM_BYTES, Graph, Grouped, Nest, Op, Quant, Same, Spread, Tensor, Window, input_range, separable
from ...kernels import OF_CALL, OF_KERNEL
from ...ops.base import Ranges, is_float, unchanged
from ...ops.moves import neighbours
from ...ops.spatial import bias_quant
from ..memory.problem import ALIGN, aligned

MAX_OPS = 128  # ops of a path on either side of its tensor: the number of paths grows with its square
MAX_PARTS = 25
GRIDS = (2, 3, 4, 5)
Range = tuple[int, int]


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
    """The axis of the result that indexes this dimension of an operand, if parts of the one need parts of the other."""
    match nest.operands[operand][dim]:
        case Same(axis) | Window(axis) | Spread(axis) | Grouped(axis) if axis in nest.out:
            return axis
    return None


def needed(nest: Nest, operand: int, parts: Mapping[str, tuple[int, int]], shape: tuple[int, ...]) -> Ranges:
    """Ranges of an operand that a part of the op needs; `parts` has the ranges of the axes that are cut."""
    ranges = []
    for dim, size in enumerate(shape):
        relation = nest.operands[operand][dim]
        part = parts.get(relation.axis)
        if part is None:
            ranges.append((0, size))
        elif isinstance(relation, Same):
            ranges.append(part)
        else:
            ranges.append(input_range(nest, operand, dim, *part))
    return tuple(ranges)


def one_part(graph: Graph, op: Op, cut: Mapping[str, Range]) -> tuple[Op, tuple[Ranges, ...], Ranges]:
    """The op that makes a part of its result: with its attributes, the ranges of all operands and of the result.

    `cut`: ranges of axes of the op; the others are whole.
    """
    nest, y = ops.nest(op, graph), graph.result(op)
    out: Ranges = tuple(cut.get(axis, (0, n)) for axis, n in zip(nest.out, y.shape, strict=True))
    reads = tuple(needed(nest, i, cut, graph.tensors[n].shape) for i, n in enumerate(op.inputs))
    return replace(op, attrs=ops.SPECS[op.kind].part(op, graph, out, reads[0])), reads, out


def part_of(t: Tensor, ranges: Ranges, name: str = "") -> Tensor:
    """The elements of a tensor within these ranges, with their scales. `name`: of the part; empty: as the tensor."""
    quant, shape = t.quant, tuple(past - first for first, past in ranges)
    if quant is not None and quant.axis is not None and not quant.per_tensor:
        first, past = ranges[quant.axis]
        quant = replace(quant, scale=quant.scale[first:past], zero_point=quant.zero_point[first:past])
    data = None if t.data is None else t.data[tuple(slice(*r) for r in ranges)]
    return Tensor(name, shape, t.dtype, quant, data) if name else replace(t, shape=shape, quant=quant, data=data)


def graph_of_part(op: Op, graph: Graph, cut: Mapping[str, Range]) -> tuple[Op, Graph]:
    """The op that makes a part of its result, in a graph of its own with the parts that it reads."""
    part, wanted, out = one_part(graph, op, cut)
    tensors, names, y = dict(graph.tensors), list[str](), graph.result(op)
    for i, (name, ranges) in enumerate(zip(op.inputs, wanted, strict=True)):
        same = next((n for n, had in zip(names, wanted, strict=False) if n == name and had != ranges), None)
        names.append(name if same is None else f"{name}/{i}")  # an op may read two parts of one tensor
        tensors[names[-1]] = part_of(graph.tensors[name], ranges, names[-1])
    tensors[y.name] = part_of(y, out)
    return replace(part, inputs=tuple(names)), replace(graph, ops=(op,), tensors=tensors)


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
                path = Path(
                    tuple(op for op, _ in (*head, *tail)),
                    tuple(position for _, position in (*head, *tail)),
                    end,
                    fan_in,
                    windowed,
                )
                if path.method in methods:
                    yield path


Links = tuple[tuple[Op, int], ...]
Flags = tuple[bool, ...]


def _either(a: Flags, b: Flags) -> Flags:
    return tuple(x or y for x, y in zip(a, b, strict=True))


def _downward(graph: Graph, tensor: str, cut: tuple[int, ...]) -> Iterator[tuple[Links, tuple[int, ...], bool, Flags]]:
    """Tails of paths that begin at a tensor cut along `cut`: ops, dimensions cut at the end, fan-in, windowed."""
    tail: Links = ()
    windowed: Flags = (False,) * len(cut)
    while len(tail) < MAX_OPS and (op := only_reader(graph, tensor)) is not None:
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
    """Heads of paths that end with `op`, whose result is cut along `cut`: ops, and which dimensions windows go over."""
    heads: list[tuple[Op, tuple[int, ...], Links, Flags]] = [(op, cut, (), (False,) * len(cut))]
    while heads:
        op, cut, behind, below = heads.pop()
        nest = ops.nest(op, graph)
        axes = [nest.out[d] for d in cut]
        if not _follows(graph, op, axes):
            continue
        reads = [i for i, n in enumerate(op.inputs) if not graph.tensors[n].constant]
        dims = {i: [d for d in range(len(nest.operands[i])) if axis_of(nest, i, d) in axes] for i in reads}
        over = {axis_of(nest, i, d) for i in reads for d in dims[i] if isinstance(nest.operands[i][d], Window | Spread)}
        windowed = _either(below, tuple(axis in over for axis in axes))
        if not ops.SPECS[op.kind].view:
            yield ((op, -1), *behind), windowed
        for i in reversed(reads) if len(behind) < MAX_OPS else ():
            before = graph.producers.get(op.inputs[i])
            if before is not None and only_reader(graph, op.inputs[i]) is op and len(dims[i]) == len(cut):
                above = tuple(next(d for d in dims[i] if axis_of(nest, i, d) == nest.out[c]) for c in cut)
                heads.append((before, above, ((op, i), *behind), windowed))


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


@dataclass(frozen=True)
class Tiling:
    """A path and the number of parts along each dimension that is cut."""

    path: Path
    counts: tuple[int, ...]

    @property
    def parts(self) -> int:
        return prod(self.counts)


@dataclass(frozen=True)
class PartRanges:
    """For every op of a path the axes that are cut, and the ranges of all parts along each of them."""

    axes: tuple[tuple[str, ...], ...]
    ranges: tuple[tuple[tuple[Range, ...], ...], ...]

    def of_tile(self, i: int, tile: tuple[int, ...]) -> dict[str, Range]:
        """The ranges of op `i` in a tile, given by its number along each cut dimension."""
        return {axis: parts[t] for axis, parts, t in zip(self.axes[i], self.ranges[i], tile, strict=True)}

    @property
    def tiles(self) -> Iterator[tuple[int, ...]]:
        return product(*(range(len(parts)) for parts in self.ranges[-1]))


def even(size: int, count: int) -> tuple[Range, ...]:
    """`count` ranges whose sizes differ by one at most, the larger ones first."""
    small, more = divmod(size, count)
    ends = [0]
    for i in range(count):
        ends.append(ends[-1] + small + (i < more))
    return tuple(pairwise(ends))


def counts(graph: Graph, path: Path) -> Iterator[tuple[int, ...]]:
    """The numbers of parts to try: 2 to 25 along one dimension, 2x2 to 5x5 along two."""
    last = path.ops[-1]
    shape = graph.tensors[last.inputs[path.operands[-1]] if path.fan_in else last.outputs[0]].shape
    sizes = [shape[d] for d in path.cut]
    if len(sizes) == 1:
        yield from ((n,) for n in range(2, min(MAX_PARTS, sizes[0]) + 1))
    else:
        yield from ((n,) * len(sizes) for n in GRIDS if n <= min(sizes))


def part_ranges(graph: Graph, tiling: Tiling) -> PartRanges | None:
    """Ranges of all parts, from the last op back to the first; None if an op cannot be cut there."""
    path, last = tiling.path, tiling.path.ops[-1]
    nest = ops.nest(last, graph)
    if path.fan_in:
        relation = nest.operands[path.operands[-1]][path.cut[0]]
        axes: tuple[str, ...] = (relation.axis,)
    else:
        axes = tuple(nest.out[d] for d in path.cut)
    if any(n > nest.extents[axis] for axis, n in zip(axes, tiling.counts, strict=True)):
        return None
    ranges = tuple(even(nest.extents[axis], n) for axis, n in zip(axes, tiling.counts, strict=True))
    all_axes, all_ranges = [axes], [ranges]
    for i in range(len(path.ops) - 1, -1, -1):
        nest = ops.nest(path.ops[i], graph)
        cut = dict(zip(axes, ranges, strict=True))
        if not all(separable(nest, axis) for axis in axes) or not _whole_groups(graph, path.ops[i], cut):
            return None
        if i == 0:
            indexed = [(n, d, r) for n, operand in enumerate(nest.operands) for d, r in enumerate(operand)]
            over = ((n, d, cut.get(r.axis, ())) for n, d, r in indexed if isinstance(r, Window | Spread))
            reads = (input_range(nest, n, d, *part) for n, d, parts in over for part in parts)
            if any(first >= past for first, past in reads):  # rows between taps of a transposed convolution
                return None
            break
        position, before = path.operands[i], ops.nest(path.ops[i - 1], graph)
        dims = _dims(nest, position, axes)
        if not (path.fan_in and i == len(path.ops) - 1):
            ranges = tuple(
                tuple(input_range(nest, position, d, *part) for part in parts)
                for d, parts in zip(dims, ranges, strict=True)
            )
        axes = tuple(before.out[d] for d in dims)
        if any(first >= past for parts in ranges for first, past in parts):
            return None
        all_axes.append(axes)
        all_ranges.append(ranges)
    return PartRanges(tuple(reversed(all_axes)), tuple(reversed(all_ranges)))


def _whole_groups(graph: Graph, op: Op, ranges: Mapping[str, tuple[Range, ...]]) -> bool:
    """Whether a part that needs several groups of an operand has all of each."""
    relations = (r for operand in ops.nest(op, graph).operands for r in operand)
    groups = ((r.group, *part) for r in relations if isinstance(r, Grouped) for part in ranges.get(r.axis, ()))
    return all(first // n == (past - 1) // n or not (first % n or past % n) for n, first, past in groups)


def overlap(graph: Graph, path: Path) -> bool:
    """Whether parts certainly compute MACs twice: a window reaches over the end of a part that MACs compute."""
    nests = [ops.nest(op, graph) for op in path.ops]
    if path.fan_in or not any(nest.mac_count for nest in nests[:-1]):
        return False
    axes = tuple(nests[-1].out[d] for d in path.cut)
    for i in range(len(nests) - 1, 0, -1):
        dims = _dims(nests[i], path.operands[i], axes)
        reached = (nests[i].operands[path.operands[i]][d] for d in dims)
        wide = any(isinstance(r, Window) and (nests[i].extents[r.tap] - 1) * r.dilation + 1 > r.stride for r in reached)
        if wide and any(nest.mac_count for nest in nests[:i]):
            return True
        axes = tuple(nests[i - 1].out[d] for d in dims)
    return False


def _dims(nest: Nest, operand: int, axes: tuple[str, ...]) -> list[int]:
    """The dimensions of an operand that these axes index."""
    relations = nest.operands[operand]
    return [next(d for d, r in enumerate(relations) if r.axis == axis) for axis in axes]


@dataclass(frozen=True)
class TilingCost:
    """Bytes that the parts of a path take beside tensors that live throughout, and multiply-accumulates done again."""

    bytes: int
    extra_macs: int
    code: int  # estimated bytes of calls, and of kernels for the several sizes of parts


@dataclass(frozen=True)
class Estimate:
    """The cost of one tiling of a path, before any graph is made of it."""

    graph: Graph
    tiling: Tiling
    ranges: PartRanges

    @cached_property
    def cost(self) -> TilingCost:
        path, macs, most = self.tiling.path, 0, 0
        before, code = 0, 0
        for i, op in enumerate(path.ops):
            nest = ops.nest(op, self.graph)
            share = 1.0
            for axis, ranges in zip(self.ranges.axes[i], self.ranges.ranges[i], strict=True):
                share *= sum(past - first for first, past in ranges) / nest.extents[axis]
            macs += round(nest.mac_count * share) - nest.mac_count
            slices = self._slices(i)
            if ops.SPECS[op.kind].view:
                most = max(most, before + slices)
                continue
            kinds = self._kinds(i)
            outer = prod(self.tiling.counts[:-1])  # parts in the last dimension are made in loops
            code += OF_CALL * outer * kinds[-1] * (2 if slices else 1) + OF_KERNEL * (prod(kinds) - 1)
            if path.fan_in and i == len(path.ops) - 1:
                most = max(most, before + slices)
                break
            size = self._bytes(i)
            position = path.operands[i]
            in_place = position in ops.overwritable(op, self.graph)
            most = max(most, slices + (max(before, size) if in_place else before + size))
            before = size
        return TilingCost(max(most, before) + self._result, macs, code)

    @property
    def saved(self) -> int:
        """Bytes by which the tensors between the ops of the path become smaller."""
        inner = self.tiling.path.ops[:-1]
        whole = sum(aligned(self.graph.result(op).bytes) for op in inner)
        return whole - sum(self._bytes(i) for i in range(len(inner)))

    @property
    def _result(self) -> int:
        return result_bytes(self.graph, self.tiling.path)

    def _kinds(self, i: int) -> list[int]:
        """How many kinds of parts of op `i` there are along each dimension: by their size and their padding."""
        nest, counts = ops.nest(self.tiling.path.ops[i], self.graph), []
        relations = {r.axis: r for dims in nest.operands for r in dims if isinstance(r, Window | Spread)}
        for axis, parts in zip(self.ranges.axes[i], self.ranges.ranges[i], strict=True):
            kinds = {(past - first, 0, 0) for first, past in parts}
            if isinstance(r := relations.get(axis), Spread):
                kinds = {(first, past, 0) for first, past in parts}
            elif r is not None:
                reach = (nest.extents[r.tap] - 1) * r.dilation + 1 - r.pad - r.size
                kinds = {(b - a, max(0, r.pad - a * r.stride), max(0, (b - 1) * r.stride + reach)) for a, b in parts}
            counts.append(len(kinds))
        return counts

    def _largest(self, i: int) -> dict[str, Range]:
        """The longest range of op `i` along each axis."""
        longest = [max(ranges, key=lambda r: r[1] - r[0]) for ranges in self.ranges.ranges[i]]
        return dict(zip(self.ranges.axes[i], longest, strict=True))

    def _bytes(self, i: int) -> int:
        """Bytes of the largest part of the result of op `i`."""
        y, largest = self.graph.result(self.tiling.path.ops[i]), self._largest(i)
        lengths = [
            largest[axis][1] - largest[axis][0] if axis in largest else n
            for axis, n in zip(ops.nest(self.tiling.path.ops[i], self.graph).out, y.shape, strict=True)
        ]
        return aligned(prod(lengths) * ITEM_BYTES[y.dtype])

    def _slices(self, i: int) -> int:
        """Bytes of copies of parts of operands that op `i` reads from outside of the path."""
        op, nest, total = self.tiling.path.ops[i], ops.nest(self.tiling.path.ops[i], self.graph), 0
        for position, name in enumerate(op.inputs):
            t = self.graph.tensors[name]
            if t.constant or position == self.tiling.path.operands[i]:
                continue
            ranges = needed(nest, position, self._largest(i), t.shape)
            if not free(t.shape, ranges, ITEM_BYTES[t.dtype]):
                total += aligned(prod(past - first for first, past in ranges) * ITEM_BYTES[t.dtype])
        return total


def result_bytes(graph: Graph, path: Path) -> int:
    """Bytes of the whole result of a path, or of its sums in 4 bytes each: a lower bound for any tiling of it."""
    y = graph.result(path.ops[-1])
    return aligned(y.elements * 4 if path.fan_in else y.bytes)


def free(shape: tuple[int, ...], ranges: Ranges, item: int) -> bool:
    """Whether a part needs no copy: it is all of the tensor, or contiguous from an address aligned to words."""
    start = sum(first * prod(shape[d + 1 :]) for d, (first, _) in enumerate(ranges)) * item
    return neighbours(shape, ranges) and start % ALIGN == 0


# ---- The graph in which every part of a path is an op of its own (Stahl 2024, section 4.3.4)


OPEN = (None, None)


def tiled(graph: Graph, tiling: Tiling) -> Graph:
    """The graph with the path's ops replaced by those of its parts. All other names stay."""
    ranges = part_ranges(graph, tiling)
    assert ranges is not None, "a tiling that cannot be cut was chosen"
    parts = _Parts(graph, tiling, ranges)
    for number, tile in enumerate(ranges.tiles):
        parts.tile(number, tile)
    if tiling.path.fan_in:
        parts.finish()
    gone = {op.outputs[0] for op in tiling.path.ops}
    last = tiling.path.ops[-1].outputs[0]
    kept: list[Op] = []
    for op in graph.ops:
        kept += parts.ops if op.outputs[0] == last else [] if op.outputs[0] in gone else [op]
    return graph.with_ops(kept, parts.tensors.values())


@dataclass
class _Parts:
    """Ops and tensors of the parts, as they are made."""

    graph: Graph
    tiling: Tiling
    ranges: PartRanges
    ops: list[Op] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    so_far: str | None = None  # the result, or its sums, with all parts made until now

    @cached_property
    def again(self) -> str:
        """A mark that distinguishes the names of these parts from those of an earlier path through the same tensors."""
        names, mark = [op.outputs[0] for op in self.tiling.path.ops], ""
        while any(
            f"{name}{word}0{mark}" in self.graph.tensors for name in names for word in (":", " to ", " sums to ")
        ):
            mark += "'"
        return mark

    @property
    def result(self) -> Tensor:
        return self.graph.result(self.tiling.path.ops[-1])

    def tile(self, number: int, tile: tuple[int, ...]) -> None:
        """Add all ops of one part, and put it into the result."""
        path, before = self.tiling.path, ""
        for i, op in enumerate(path.ops):
            nest, cut = ops.nest(op, self.graph), self.ranges.of_tile(i, tile)
            inputs = []
            for position, name in enumerate(op.inputs):
                shape = self.graph.tensors[name].shape
                wanted = needed(nest, position, cut, shape)
                inputs.append(before if position == path.operands[i] else self.part(name, wanted, op, number))
            if path.fan_in and i == len(path.ops) - 1:
                self.add_to_sums(op, inputs, number)
                return
            before = self.compute(op, cut, inputs, number)
        self.insert(before, self.ranges.of_tile(len(path.ops) - 1, tile), number)

    def compute(self, op: Op, cut: Mapping[str, Range], inputs: list[str], number: int) -> str:
        y, (part, _, out) = self.graph.result(op), one_part(self.graph, op, cut)
        name = self.keep(
            replace(y, name=f"{y.name}:{number}{self.again}", shape=tuple(past - first for first, past in out))
        )
        self.ops.append(replace(part, name=f"{op.name}:{number}", inputs=tuple(inputs), outputs=(name,)))
        return name

    def part(self, name: str, ranges: Ranges, op: Op, number: int) -> str:
        """A part of a constant, or of a tensor from outside of the path: a view of it if possible, else a copy.

        Its name has the result of its reader, since ops of several paths may come from one node and share its name.
        """
        t = self.graph.tensors[name]
        if all(first == 0 and past == n for (first, past), n in zip(ranges, t.shape, strict=True)):
            return name
        size = tuple(past - first for first, past in ranges)
        where = place(ranges, t.shape)
        if t.data is not None:
            return self.keep(part_of(t, ranges, f"{name}[{where}]"))
        part_name = f"{name}[{where}] for {op.outputs[0]}:{number}{self.again}"
        if part_name in self.tensors:
            return part_name
        kind = "span" if free(t.shape, ranges, ITEM_BYTES[t.dtype]) else "slice"
        self.keep(replace(t, name=part_name, shape=size))
        attrs = {"begin": tuple(first for first, _ in ranges), "size": size}
        self.ops.append(Op(kind, f"{op.name}:{number} {kind}", (name,), (part_name,), attrs))
        return part_name

    def insert(self, part: str, cut: Mapping[str, Range], number: int) -> None:
        """Put a part into its place in the result."""
        y, last = self.result, number + 1 == self.tiling.parts
        name = y.name if last else self.keep(replace(y, name=f"{y.name} to {number}{self.again}"))
        nest = ops.nest(self.tiling.path.ops[-1], self.graph)
        begin = tuple(cut.get(axis, (0, 0))[0] for axis in nest.out)
        inputs = (part,) if self.so_far is None else (self.so_far, part)
        op_name = f"{self.tiling.path.ops[-1].name}:{number} insert"
        self.ops.append(Op("insert", op_name, inputs, (name,), {"shape": y.shape, "begin": begin}))
        self.so_far = name

    def add_to_sums(self, op: Op, inputs: list[str], number: int) -> None:
        """Add the products of a part to the sums of the whole result; the first part starts from the bias."""
        x, w, y = self.graph.operands(op)[0], self.graph.operands(op)[1], self.result
        real = is_float(y)
        kind, quant = ("float32", None) if real else ("int32", bias_quant(x, w))
        if self.so_far is None:
            self.so_far = inputs[2] if len(inputs) > 2 else self.no_bias(y, kind)
        direct = real and op.attrs["clamp"] == OPEN and number + 1 == self.tiling.parts
        sums_tensor = Tensor(f"{y.name} sums to {number}{self.again}", y.shape, kind, last_axis(quant, y))
        name = y.name if direct else self.keep(sums_tensor)
        sums = Op("partial_sum", f"{op.name}:{number}", (self.so_far, *inputs[:2]), (name,), op.attrs)
        self.ops.append(sums)
        self.so_far = name

    def no_bias(self, y: Tensor, dtype: str) -> str:
        import numpy as np

        return self.keep(Tensor(f"{y.name} no bias", y.shape[-1:], dtype, None, np.zeros(y.shape[-1:], dtype)))

    def finish(self) -> None:
        """Requantise and clamp the sums; float sums that have no clamp are the result."""
        op, y = self.tiling.path.ops[-1], self.result
        if self.so_far != y.name:
            assert self.so_far is not None
            kind = "clamp" if is_float(y) else "finish_sum"
            attrs = {"clamp": op.attrs["clamp"]}
            self.ops.append(Op(kind, f"{op.name} finish", (self.so_far,), (y.name,), attrs))

    def keep(self, t: Tensor) -> str:
        self.tensors[t.name] = t
        return t.name


def place(ranges: Ranges, shape: tuple[int, ...]) -> str:
    """Ranges as an index in words, `:,0-8`, for one constant may be cut differently; no `:` at the end."""
    words = [":" if past - first == n else f"{first}-{past}" for (first, past), n in zip(ranges, shape, strict=True)]
    while words and words[-1] == ":":
        words.pop()
    return ",".join(words)


def last_axis(quant: Quant | None, y: Tensor) -> Quant | None:
    """A quantisation per channel, the last dimension."""
    return replace(quant, axis=len(y.shape) - 1) if quant is not None and not quant.per_tensor else quant
