"""Remove channels that have the same value for every input, and fold them into the biases of their readers.

An interval analysis bounds every element of every int8 tensor from the weights and the quantisation. A channel, an
index of the last dimension, is *constant* if all its elements have one and the same value. Channels that an op maps one
to one from operand to result (depthwise, pool, add, concat, reshape) are *tied*: all of them are kept, or none. A sum
permits the removal of a channel that is constant or has zero weights. Padding reads as the zero point, so a constant
channel of another value must stay if windows reach padding.

Float channels are never removed: zero times infinity is not zero.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from .. import ops
from ..ir import (
    Array,
    Dim,
    Graph,
    Grouped,
    Nest,
    Offset,
    Op,
    Removed,
    Same,
    Spread,
    Tensor,
    Window,
    after_move,
    separable,
    verify,
)
from ..ops.base import Interval, zero_of
from ..ops.spatial import bias_quant, multipliers, requantize_sum
from .canonicalize import drop_taps, rewrite, unused


class Ties:
    """Disjoint sets (union-find) of channels, (tensor, index of its last dimension), that are kept or removed together.

    `sizes`: the number of channels of every tensor.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        starts = np.cumsum([0, *sizes.values()])
        self._start = dict(zip(sizes, starts.tolist(), strict=False))
        self._parent = list(range(int(starts[-1])))
        self._pinned: set[int] = set()

    def tie(self, a: str, in_a: Array, b: str, in_b: Array) -> None:
        """Tie channel in_a[i] of `a` to channel in_b[i] of `b`, for every i."""
        for i, j in zip((in_a + self._start[a]).tolist(), (in_b + self._start[b]).tolist(), strict=True):
            self._parent[self._root(i)] = self._root(j)

    def tie_repeated(self, a: str, b: str) -> None:
        """Tie channels of a reshape's operand and result: those of the smaller last dimension repeat in the larger."""
        few, many = sorted((self.sizes[a], self.sizes[b]))
        if many % few:
            self.pin(a)
            self.pin(b)
            return
        small, large = (a, b) if self.sizes[a] == few else (b, a)
        channels = np.arange(many)
        self.tie(small, channels % few, large, channels)

    def pin(self, name: str, channels: Iterable[int] | None = None) -> None:
        """Keep these channels, by default all, and all that are or will be tied to them."""
        every = range(self.sizes[name]) if channels is None else channels
        self._pinned |= {self._start[name] + int(c) for c in every}

    def kept(self, block: int) -> dict[str, Array]:
        """The kept channels of every tensor, ascending: at least one and a multiple of `block`, or all.

        A tied neighbour's rounding may add channels, after which the number is not always a multiple.
        """
        roots = np.array([self._root(i) for i in range(len(self._parent))])
        stays = np.isin(roots, roots[list(self._pinned)])
        for name, size in self.sizes.items():
            own = slice(self._start[name], self._start[name] + size)
            count = int(stays[own].sum())
            missing = min(size, -(-max(count, 1) // block) * block) - count
            stays |= np.isin(roots, roots[own][~stays[own]][:missing])
        return {name: np.flatnonzero(stays[at : at + self.sizes[name]]) for name, at in self._start.items()}

    def _root(self, i: int) -> int:
        while self._parent[i] != i:
            self._parent[i] = self._parent[self._parent[i]]
            i = self._parent[i]
        return i


BLOCK = 4  # channels that kernels compute at once; a count that is no multiple costs more than it saves
WORD = 2**31

Kept = Mapping[str, Array]  # tensor -> kept channels, ascending


def remove_constants(graph: Graph, block: int = BLOCK) -> Graph:
    """The graph without constant channels and window taps in padding; outputs are the same bit for bit.

    A tensor keeps a multiple of `block` channels, or all of them.
    """
    never = constants(graph)  # the slowest part, so once per graph
    small = _with_constant_sums(rewrite(graph, (drop_taps,)), never)
    fixed = never if small is graph else constants(small)
    while (next_one := _remove(small, block, fixed)) is not small:
        verify(next_one, ops.result_shape)
        small, fixed = next_one, constants(next_one)
    removed = []
    for op in graph.ops:
        name = op.outputs[0]
        if not ops.SPECS[op.kind].view and graph.tensors[name].shape:
            total, left = (g.tensors[name].shape[-1] for g in (graph, small))
            removed.append(Removed(name, len(never.get(name, {})), total - left, total))
    removed = [r for r in removed if r.constant or r.channels]
    return replace(small, removed=tuple(removed), removed_macs=ops.macs(graph) - ops.macs(small))


def intervals(graph: Graph) -> Iterator[tuple[str, Interval]]:
    """The least and the largest value of every element of every int8 activation, by name.

    Intervals of a tensor are freed after its last reader, because those of a whole graph may exceed the memory.
    """
    least, most = np.int8(-128), np.int8(127)
    some = [t for t in graph.tensors.values() if t.dtype == "int8" and not t.constant]
    ranges = {t.name: (np.broadcast_to(least, t.shape), np.broadcast_to(most, t.shape)) for t in some}
    last = {name: op for op in graph.ops for name in op.inputs}
    yield from ((name, bounds) for name, bounds in ranges.items() if name not in graph.producers)
    for op in graph.ops:
        spec, operands, y = ops.SPECS[op.kind], graph.operands(op), graph.result(op)
        transfer = ops.spatial.rising(spec.reference) if spec.exact else spec.interval
        if y.dtype == "int8" and transfer is not None and all(t.constant or t.name in ranges for t in operands):
            each = ((t.data, t.data) if t.data is not None else ranges[t.name] for t in operands)
            if (bounds := transfer(op, graph, *each)) is not None:
                ranges[y.name] = bounds[0].reshape(y.shape), bounds[1].reshape(y.shape)
        yield from ((name, ranges[name]) for name in op.outputs if name in ranges)
        for name in op.inputs:
            if last[name] is op:
                ranges.pop(name, None)


def constants(graph: Graph) -> dict[str, dict[int, int]]:
    """The constant channels of every int8 activation with their values."""
    fixed: dict[str, dict[int, int]] = {}
    for name, (low, high) in intervals(graph):
        if low.ndim and low.size:
            least, most = (f(e.reshape(-1, e.shape[-1]), axis=0) for f, e in ((np.min, low), (np.max, high)))
            fixed[name] = {int(c): int(least[c]) for c in np.flatnonzero(least == most)}
    return fixed


# Which channels may be removed ---------------------------------------------------------------


def _remove(graph: Graph, block: int, fixed: Mapping[str, dict[int, int]]) -> Graph:
    """One round, with the graph's constant channels `fixed`; returns `graph` itself if none can be removed."""
    ties = Ties({t.name: t.shape[-1] if t.shape else 1 for t in graph.tensors.values() if not t.constant})
    for name in (*graph.inputs, *graph.outputs):
        ties.pin(name)
    relations = [ops.nest(op, graph) for op in graph.ops]
    for op, relation in zip(graph.ops, relations, strict=True):
        _tie(op, graph, relation, fixed, ties)
    kept = ties.kept(block)
    if all(len(channels) == ties.sizes[name] for name, channels in kept.items()):
        return graph
    return _without(graph, relations, kept, fixed)


def _tie(op: Op, graph: Graph, relation: Nest, fixed: Mapping[str, Mapping[int, int]], ties: Ties) -> None:
    """Tie or pin the channels of an op's operands and result, as its index relation demands."""
    y = graph.result(op)
    if ops.SPECS[op.kind].view:
        ties.tie_repeated(op.inputs[0], y.name)
        return
    last = relation.out[-1] if relation.out else ""
    if not separable(relation, last):  # the channel index also selects elements, as in groups of channels
        ties.pin(y.name)
    covered = np.zeros(ties.sizes[y.name], bool)
    for position, (t, dims) in enumerate(zip(graph.operands(op), relation.operands, strict=True)):
        for d, dim in enumerate(dims):
            covered[_following_indices(dim, last, len(covered))] = True
            if not t.constant and d < len(dims) - 1 and _axis(dim) == last:
                ties.pin(y.name)
        if not t.constant and dims:
            _tie_operand(op, graph, relation, position, fixed, ties)
    ties.pin(y.name, np.flatnonzero(~covered))


def _axis(dim: Dim) -> str:
    return dim.axis if isinstance(dim, Same | Offset | Grouped | Window | Spread) else ""


def _following_indices(dim: Dim, axis: str, size: int) -> slice:
    """The range of `axis` over which this operand's index moves with it."""
    match dim:
        case Offset(name, start, length) if name == axis:
            return slice(start, start + length)
        case Same(name) | Grouped(name, _) if name == axis:
            return slice(0, size)
    return slice(0, 0)


def _tie_operand(
    op: Op, graph: Graph, relation: Nest, position: int, fixed: Mapping[str, Mapping[int, int]], ties: Ties
) -> None:
    x, y = graph.operands(op)[position], graph.result(op)
    last, channels = relation.out[-1] if relation.out else "", np.arange(ties.sizes[x.name])
    match relation.operands[position][-1]:
        case Same(axis) if axis == last:
            ties.tie(x.name, channels, y.name, channels)
        case Offset(axis, start, size) if axis == last and 0 <= start <= ties.sizes[y.name] - size:
            ties.tie(x.name, channels, y.name, channels + start)
        case Offset(axis) if axis == last:  # a slice selects channels by number
            ties.pin(x.name)
            ties.pin(y.name)
        case Grouped(axis, group) if axis == last and len(channels) > 1:
            ties.tie(x.name, np.repeat(channels, group), y.name, np.arange(len(channels) * group))
        case Same() if position == 0 and _sums_over_channels(op, relation):
            needed = np.delete(channels, [*_foldable(op, graph, relation, fixed.get(x.name, {}))])
            ties.pin(x.name, needed)
        case _:
            ties.pin(x.name)


def _sums_over_channels(op: Op, relation: Nest) -> bool:
    """Whether the op sums products over all channels of its first operand."""
    channels = relation.operands[0][-1] if relation.operands[0] else None  # a scalar has none
    return ops.SPECS[op.kind].total is not None and isinstance(channels, Same) and channels.axis not in relation.out


def _foldable(op: Op, graph: Graph, relation: Nest, values: Mapping[int, int]) -> Iterator[int]:
    """Operand channels that a sum need not read: with zero weights, or constant and not mixed with other padding."""
    x, w = graph.operands(op)[:2]
    if x.dtype != "int8" or w.data is None:
        return
    weights = np.moveaxis(w.data, relation.operands[1].index(relation.operands[0][-1]), -1)
    unread = ~weights.any(axis=tuple(range(weights.ndim - 1)))
    yield from (int(c) for c in np.flatnonzero(unread))
    folded = {c: v for c, v in values.items() if v == zero_of(x) or not _padded(relation)}
    if folded and _fits(op, graph, folded):
        yield from folded


def _padded(relation: Nest) -> bool:
    """Whether some window reads padding of the first operand."""
    windows = [d for d in relation.operands[0] if isinstance(d, Window)]
    if any(isinstance(d, Spread) for d in relation.operands[0]):
        return True
    return any(
        d.pad > 0
        or (relation.extents[d.axis] - 1) * d.stride + (relation.extents[d.tap] - 1) * d.dilation - d.pad >= d.size
        for d in windows
    )


def _fits(op: Op, graph: Graph, folded: Mapping[int, int]) -> bool:
    """Whether any subset of these channels can be added to the bias within int32."""
    x, w, *bias = graph.operands(op)
    distances = {c: zero_of(x) + abs(v - zero_of(x)) for c, v in folded.items()}
    most = _contribution(op, graph, distances, abs(w.array.astype(np.int64)))
    return bool(
        (most + (abs(bias[0].data.astype(np.int64).ravel()) if bias and bias[0].data is not None else 0) < WORD).all()
    )


def _contribution(op: Op, graph: Graph, values: Mapping[int, int], weights: Array) -> Array:
    """Amount that operand channels with these `values` add to the sum of each output channel."""
    x, total = graph.operands(op)[0], ops.SPECS[op.kind].total
    assert total is not None
    inputs = np.full(x.shape, zero_of(x), np.int64)
    inputs[..., list(values)] = list(values.values())
    sums = total(op, graph, inputs, weights)
    return np.asarray(sums.reshape(-1, sums.shape[-1])[0])


# Constant channels that are kept -------------------------------------------------------------


def _with_constant_sums(graph: Graph, fixed: Mapping[str, dict[int, int]]) -> Graph:
    """The graph with zero weights and the smallest possible bias in output channels that are constant.

    Such channels no longer need their operands. Training may leave huge biases in channels that are never active;
    small ones permit faster kernels.
    """
    new, tensors, done = list[Op](), list[Tensor](), set[str]()
    for op in graph.ops:
        values = fixed.get(op.outputs[0], {})
        if ops.SPECS[op.kind].total is not None and values:
            names = [unused(f"{op.name}/{i}", graph, done) for i in (1, 2)]  # names of ops may repeat
            done.update(names)
            still = _with_bias_only(op, graph, values)
            tensors += [replace(t, name=n) for t, n in zip(still, names, strict=True)]
            op = replace(op, inputs=(op.inputs[0], *names, *op.inputs[3:]))
        new.append(op)
    return graph.with_ops(new, tensors) if tensors else graph


def _with_bias_only(op: Op, graph: Graph, values: Mapping[int, int]) -> tuple[Tensor, Tensor]:
    """Weights and bias of the op with zero weights in these output channels and biases that give `values`.

    Their scale is the largest of the other channels' if that can give the values, else their own.
    """
    x, w, *bias = graph.operands(op)
    assert w.quant is not None
    relation, still = ops.nest(op, graph), list(values)
    axis = relation.operands[1].index(Same(relation.out[-1]))
    data, scale = w.array.copy(), np.array(w.quant.scale)
    np.moveaxis(data, axis, 0)[still] = 0
    if not w.quant.per_tensor and len(live := np.delete(scale, still)):
        scale[still] = live.max()
    wanted = np.zeros(w.shape[axis], np.int64)
    wanted[still] = list(values.values())
    for scales in (scale, np.array(w.quant.scale)):
        weights = replace(w, data=data, quant=replace(w.quant, scale=tuple(scales.tolist())))
        least, reached = _least_bias(op, replace(graph, tensors={**graph.tensors, w.name: weights}), wanted)
        if reached[still].all():
            break
    assert reached[still].all(), "the op had these values with its own scale"
    start = bias[0].data.astype(np.int64).ravel() if bias and bias[0].data is not None else np.zeros_like(wanted)
    start = np.where(np.isin(np.arange(len(wanted)), still), least, start)
    return weights, Tensor("", start.shape, "int32", bias_quant(x, weights), start.astype(np.int32))


def _least_bias(op: Op, graph: Graph, wanted: Array) -> tuple[Array, Array]:
    """Per channel, the sum nearest to 0 that requantises to the wanted value, and whether there is one."""

    def result(total: Array) -> Array:
        return requantize_sum(total, op, graph).astype(np.int64)

    shift = multipliers(op, graph)[1].astype(np.int64)
    direction = np.sign(wanted - result(np.zeros_like(wanted)))  # binary search works because requantising is monotone
    low, high = np.full_like(wanted, -1), (WORD - 1) >> np.maximum(shift, 0)
    while (high - low > 1).any():
        middle = (low + high) // 2
        enough = direction * (result(direction * middle) - wanted) >= 0
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return direction * high, result(direction * high) == wanted


# Removal -------------------------------------------------------------------------------------


def _without(graph: Graph, relations: Iterable[Nest], kept: Kept, fixed: Mapping[str, Mapping[int, int]]) -> Graph:
    """The graph with the kept channels only; removed constant channels are added to biases."""
    new: list[Op] = []
    tensors = {name: _narrowed(graph.tensors[name], c) for name, c in kept.items() if graph.tensors[name].shape}
    for op, relation in zip(graph.ops, relations, strict=True):
        parts, changed = _with_operands(op, graph, relation, kept, fixed, tensors)
        tensors |= {t.name: t for t in changed}
        attrs = dict(op.attrs)
        if ops.SPECS[op.kind].view:
            attrs["shape"] = tensors[op.outputs[0]].shape
        new.append(replace(op, inputs=parts, attrs=attrs))
    return graph.with_ops(new, tensors.values())


def _narrowed(t: Tensor, channels: Array) -> Tensor:
    if len(channels) == t.shape[-1]:
        return t
    return replace(t, shape=(*t.shape[:-1], len(channels)), origin=after_move(t, "take", tuple(map(int, channels))))


def _with_operands(
    op: Op, graph: Graph, relation: Nest, kept: Kept, fixed: Mapping[str, Mapping[int, int]], new: Container[str]
) -> tuple[tuple[str, ...], list[Tensor]]:
    """Names of the op's operands, and new constants: narrowed ones, and the bias with the removed channels.

    New constants are not named like any of the `new` tensors, because names of ops may repeat.
    """
    if ops.SPECS[op.kind].view:
        return op.inputs, []
    operands = list(graph.operands(op))
    dims, axes = list(relation.operands), {}
    if relation.out:
        axes[relation.out[-1]] = kept[op.outputs[0]]
    if _sums_over_channels(op, relation):
        x = operands[0]
        axes[_axis(dims[0][-1])] = kept[x.name]
        gone = np.delete(np.arange(x.shape[-1]), kept[x.name]).tolist()
        folded = {c: fixed[x.name][c] for c in gone if c in fixed.get(x.name, {})}
        if folded:
            operands[2:3], dims[2:3] = [_bias(op, graph, folded)], [(Same(relation.out[-1]),)]
    operands = [_selected(t, d, axes) if t.constant else t for t, d in zip(operands, dims, strict=True)]
    before = (*graph.operands(op), None)
    changed = {
        position: replace(t, name=unused(f"{op.name}/{position}", graph, new))
        for position, t in enumerate(operands)
        if t.constant and t is not before[position]
    }
    return tuple(changed.get(i, t).name for i, t in enumerate(operands)), list(changed.values())


def _bias(op: Op, graph: Graph, folded: Mapping[int, int]) -> Tensor:
    """The bias plus the contribution of the folded channels."""
    x, w, *bias = graph.operands(op)
    start = bias[0] if bias else Tensor("", (), "int32", bias_quant(x, w))
    data = _contribution(op, graph, folded, w.array) + (
        0 if start.data is None else start.data.astype(np.int64).ravel()
    )
    return replace(start, shape=data.shape, data=data.astype(np.int32))


def _selected(t: Tensor, dims: tuple[Dim, ...], axes: Mapping[str, Array]) -> Tensor:
    """A constant narrowed to the kept indices of its axes; `t` itself if all are kept."""
    data, quant = t.array, t.quant
    for d, dim in enumerate(dims):
        if (channels := axes.get(_axis(dim))) is None:
            continue
        if isinstance(dim, Offset):
            channels = channels[(channels >= dim.start) & (channels < dim.start + dim.size)] - dim.start
        if len(channels) < data.shape[d]:
            data = data.take(channels, axis=d)
            if quant is not None and quant.axis == d and not quant.per_tensor:
                scales, zeros = (tuple(each[c] for c in channels) for each in (quant.scale, quant.zero_point))
                quant = replace(quant, scale=scales, zero_point=zeros)
    return t if data is t.array else replace(t, shape=data.shape, data=np.ascontiguousarray(data), quant=quant)
