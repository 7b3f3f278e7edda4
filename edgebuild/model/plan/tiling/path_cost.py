"""Cost of a path that is cut into so many parts: bytes while it runs, and multiply-accumulates done twice.

The parts run one after the other, each from the first op to the last: parts of one path are interchangeable, so no
other order of them can take less while the result grows in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import prod

from ... import ops
from ...ir import ITEM_BYTES, Graph, Op
from ...ir.axes import Grouped, Nest, Spread, Window, input_range, separable
from ...kernels import code_bytes
from ...ops.base import Ranges
from ...ops.slice import neighbours
from .paths import GRIDS, MOST_PARTS, Path, needed

Range = tuple[int, int]
ALIGN = 4  # bytes of every buffer


@dataclass(frozen=True)
class Tiling:
    """A path and the number of parts along each dimension that is cut."""

    path: Path
    counts: tuple[int, ...]

    @property
    def parts(self) -> int:
        return prod(self.counts)


@dataclass(frozen=True)
class Cuts:
    """For every op of a path the axes that are cut, and the ranges of all parts along each of them."""

    axes: tuple[tuple[str, ...], ...]
    ranges: tuple[tuple[tuple[Range, ...], ...], ...]

    def of_tile(self, i: int, tile: tuple[int, ...]) -> dict[str, Range]:
        """The ranges of op `i` in a tile, given by its number along each cut dimension."""
        return {axis: found[t] for axis, found, t in zip(self.axes[i], self.ranges[i], tile, strict=True)}

    @property
    def tiles(self) -> Iterator[tuple[int, ...]]:
        return product(*(range(len(found)) for found in self.ranges[-1]))


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
        yield from ((n,) for n in range(2, min(MOST_PARTS, sizes[0]) + 1))
    else:
        yield from ((n,) * len(sizes) for n in GRIDS if n <= min(sizes))


def cuts(graph: Graph, tiling: Tiling) -> Cuts | None:
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
        if not all(separable(nest, axis) for axis in axes):
            return None
        if not _whole_groups(graph, path.ops[i], dict(zip(axes, ranges, strict=True))):
            return None
        if i == 0:
            if _reads_nothing(nest, dict(zip(axes, ranges, strict=True))):
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
    return Cuts(tuple(reversed(all_axes)), tuple(reversed(all_ranges)))


def _whole_groups(graph: Graph, op: Op, ranges: Mapping[str, tuple[Range, ...]]) -> bool:
    """A part that needs several groups of an operand has all of each."""
    for relations in ops.nest(op, graph).operands:
        for r in relations:
            if isinstance(r, Grouped) and r.axis in ranges:
                for first, past in ranges[r.axis]:
                    several = (past - 1) // r.group > first // r.group
                    if several and (first % r.group or past % r.group):
                        return False
    return True


def _reads_nothing(nest: Nest, ranges: Mapping[str, tuple[Range, ...]]) -> bool:
    """Whether a part needs no element of an operand: rows between the taps of a transposed convolution do."""
    for operand, relations in enumerate(nest.operands):
        for d, r in enumerate(relations):
            if isinstance(r, Window | Spread) and r.axis in ranges:
                found = (input_range(nest, operand, d, *part) for part in ranges[r.axis])
                if any(first >= past for first, past in found):
                    return True
    return False


def overlap(graph: Graph, path: Path) -> bool:
    """Whether parts certainly compute something twice: a window reaches over the end of a part of what has MACs."""
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
    """Bytes that the parts of a path take beside what lives through it, and multiply-accumulates done again."""

    bytes: int
    extra_macs: int
    code: int  # bytes of calls and of kernels for the several sizes of parts, more or less


@dataclass(frozen=True)
class Estimate:
    """The cost of one tiling of a path, before any graph is made of it."""

    graph: Graph
    tiling: Tiling
    cuts: Cuts

    @cached_property
    def cost(self) -> TilingCost:
        path, macs, most = self.tiling.path, 0, 0
        before, code = 0, 0
        for i, op in enumerate(path.ops):
            nest = ops.nest(op, self.graph)
            share = 1.0
            for axis, ranges in zip(self.cuts.axes[i], self.cuts.ranges[i], strict=True):
                share *= sum(past - first for first, past in ranges) / nest.extents[axis]
            macs += round(nest.mac_count * share) - nest.mac_count
            slices = self._slices(i)
            if ops.SPECS[op.kind].view:
                most = max(most, before + slices)
                continue
            kinds = self._kinds(i)
            outer = prod(self.tiling.counts[:-1])  # parts in the last dimension are made in loops
            code += code_bytes.OF_CALL * outer * kinds[-1] * (2 if slices else 1) + code_bytes.OF_KERNEL * (
                prod(kinds) - 1
            )
            if path.fan_in and i == len(path.ops) - 1:
                most = max(most, before + slices)
                break
            made = self._bytes(i)
            position = path.operands[i]
            in_place = position in ops.taken_up(op, self.graph)
            most = max(most, slices + (max(before, made) if in_place else before + made))
            before = made
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
        nest, found = ops.nest(self.tiling.path.ops[i], self.graph), []
        relations = {r.axis: r for dims in nest.operands for r in dims if isinstance(r, Window | Spread)}
        for axis, parts in zip(self.cuts.axes[i], self.cuts.ranges[i], strict=True):
            kinds = {(past - first, 0, 0) for first, past in parts}
            if isinstance(r := relations.get(axis), Spread):
                kinds = {(first, past, 0) for first, past in parts}
            elif r is not None:
                reach = (nest.extents[r.tap] - 1) * r.dilation + 1 - r.pad - r.size
                kinds = {(b - a, max(0, r.pad - a * r.stride), max(0, (b - 1) * r.stride + reach)) for a, b in parts}
            found.append(len(kinds))
        return found

    def _largest(self, i: int) -> dict[str, Range]:
        """The longest range of op `i` along each axis."""
        longest = [max(ranges, key=lambda r: r[1] - r[0]) for ranges in self.cuts.ranges[i]]
        return dict(zip(self.cuts.axes[i], longest, strict=True))

    def _bytes(self, i: int) -> int:
        """A part of the result of op `i`, the largest."""
        y, largest = self.graph.result(self.tiling.path.ops[i]), self._largest(i)
        lengths = [
            largest[axis][1] - largest[axis][0] if axis in largest else n
            for axis, n in zip(ops.nest(self.tiling.path.ops[i], self.graph).out, y.shape, strict=True)
        ]
        return aligned(prod(lengths) * ITEM_BYTES[y.dtype])

    def _slices(self, i: int) -> int:
        """Copies of parts of operands that op `i` reads from outside of the path."""
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
    """The whole result of a path, or its sums in 4 bytes each: what any tiling of it takes at least."""
    y = graph.result(path.ops[-1])
    return aligned(y.elements * 4 if path.fan_in else y.bytes)


def free(shape: tuple[int, ...], ranges: Ranges, item: int) -> bool:
    """A part that needs no copy: all of the tensor, or a run of elements that starts where kernels can read words."""
    start = sum(first * prod(shape[d + 1 :]) for d, (first, _) in enumerate(ranges)) * item
    return neighbours(shape, ranges) and start % ALIGN == 0


def aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
