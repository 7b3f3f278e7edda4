"""The best mapping of a layer, exactly: tile sizes, orders of loops, depths of operands, one buffer or two.

Given tile sizes, an operand's copies depend only on which loops they are inside of. So the search goes over the
distinct nestings of operands in loops and evaluates all tile sizes of each at once.

Two published mappings, implemented from their papers to compare: DORY (Burrello et al., IEEE TC 2021, section 4.2):
all operands move by the same tile, loops over channels, rows and columns in this order, two buffers each where copies
run beside computing; the tile fills the memory, with heuristics. LOMA (Symons et al., AICAS 2021): the loops' prime
factors, the smallest merged until there are at most N, in every order; each operand then keeps as many inner loops as
its memory holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import permutations, product
from math import ceil, inf, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...ir import Same, range_through
from ..memory.problem import ALIGN
from .nest import Mapped, MappingCost, Move, Operand, TiledLayer, cost, parts_of, ranges_of

# Costs of all tile sizes at once: arrays with one dimension for each axis that may be cut.
#
# The tiles along an axis have few distinct lengths (inner ones, those at the borders, a ragged last one). So a sum over
# all tiles is a sum over these, each with the number of times that it occurs.

Grid = NDArray[Any]
ALL_SIZES = 12  # an axis no longer than that is cut into tiles of every size


def candidates(extent: int, unit: int) -> list[int]:
    """Tile sizes to try: divisors, multiples of the unit, the least size for each number of tiles; all, if few."""
    if extent <= ALL_SIZES:
        return list(range(1, extent + 1))
    divisors = {d for d in range(1, extent + 1) if extent % d == 0}
    units = set(range(unit, extent + 1, unit)) if unit > 1 else set()
    ragged = {-(-extent // n) for n in range(1, extent + 1)}
    return sorted(divisors | units | ragged)


@dataclass(frozen=True)
class Copies:
    """Copies of an operand inside of the loops over some axes, by tile sizes: cycles, number, bytes of a buffer.

    `moved`: bytes of all copies. `allowed`: alignment and size suit the channel, and calls use contiguous parts.
    """

    cycles: Grid
    count: Grid
    bytes: Grid
    moved: Grid
    allowed: Grid


@dataclass(frozen=True)
class Costs:
    """Costs of a layer for all tile sizes at once, cached for the search."""

    layer: TiledLayer
    sizes: tuple[tuple[int, ...], ...]  # to try, of each axis that may be cut
    # The best mappings for all rooms of one space, by that space and the rooms of the others.
    frontiers: dict[Any, Frontier] = field(default_factory=dict, init=False)
    _copies_by_loops: dict[tuple[int, frozenset[str]], Copies] = field(default_factory=dict, init=False)

    def along(self, axis: int, values: Iterable[float]) -> Grid:
        shape = [1] * len(self.layer.axes)
        shape[axis] = -1
        return np.array(list(values)).reshape(shape)

    @cached_property
    def counts(self) -> dict[str, Grid]:
        """The number of tiles along each axis."""
        extents = self.layer.nest.extents
        return {a: self.along(i, (-(-extents[a] // t) for t in self.sizes[i])) for i, a in enumerate(self.layer.axes)}

    @cached_property
    def compute(self) -> Grid:
        """Cycles of all calls together."""
        layer, extents = self.layer, self.layer.nest.extents
        rows = layer.compute.rows[0] if layer.compute.rows else None
        lengths: dict[str, Grid | int] = dict(extents)
        times: Grid = np.ones(())
        width = len(layer.axes)
        for i, axis in enumerate(layer.axes):
            kinds = [self._kinds(axis, size, rows) for size in self.sizes[i]]
            length, taps, number = _padded(kinds, 3)
            shape = [1] * (2 * width)
            shape[i], shape[width + i] = length.shape
            lengths[axis], times = length.reshape(shape), times * number.reshape(shape)
            if axis == rows and layer.compute.rows:
                lengths[layer.compute.rows[1]] = taps.reshape(shape)
        if rows is not None and rows not in layer.axes and layer.compute.rows:
            row_taps = layer.taps((0, extents[rows])).items()
            each = [layer.compute.cycles({**lengths, rows: n, layer.compute.rows[1]: t}) * times for t, n in row_taps]
            total = sum(each[1:], each[0])
        else:
            total = layer.compute.cycles(lengths) * times
        total = np.broadcast_to(total, np.broadcast_shapes(np.shape(total), (1,) * 2 * width))
        calls = prod(self.counts.values()) if self.counts else np.ones(())
        return total.sum(axis=tuple(range(width, 2 * width))) + layer.compute.call * calls

    def _kinds(self, axis: str, size: int, rows: str | None) -> list[tuple[int, ...]]:
        """(length, taps, how often) of the tiles along an axis."""
        kinds: Counter[tuple[int, int]] = Counter()
        for part in ranges_of(self.layer.nest.extents[axis], size):
            if axis == rows:
                kinds.update((n, taps) for taps, n in self.layer.taps(part).items())
            else:
                kinds[part[1] - part[0], 1] += 1
        return [(*key, n) for key, n in kinds.items()]

    def copies(self, operand: Operand, outer: frozenset[str]) -> Copies:
        """Copies of an operand that is moved inside of the loops over the axes `outer`."""
        key = (id(operand), outer)  # by identity: two operands may be parts of one tensor
        if key not in self._copies_by_loops:
            self._copies_by_loops[key] = self._copies(operand, outer)
        return self._copies_by_loops[key]

    @cached_property
    def _lengths(self) -> dict[tuple[int, int], list[list[tuple[int, ...]]]]:
        """(length, how often) of an operand's dimension in the tiles of every size of the axis that indexes it."""
        layer, lengths = self.layer, {}
        for operand in layer.operands:
            for dim in range(len(operand.dims)):
                axis = operand.dims[dim].axis
                if axis in layer.axes:
                    lengths[id(operand), dim] = [
                        self._along(operand, dim, axis, size) for size in self.sizes[layer.axes.index(axis)]
                    ]
        return lengths

    def _along(self, operand: Operand, dim: int, axis: str, size: int) -> list[tuple[int, ...]]:
        if size >= self.layer.nest.extents[axis]:  # not cut: all of it, even elements that no window reaches
            return [(operand.sizes[dim], 1)]
        relation, nest = operand.dims[dim], self.layer.nest
        parts = ranges_of(nest.extents[axis], size)
        if isinstance(relation, Same):
            return list(Counter(past - first for first, past in parts).items())
        regions = (range_through(nest, relation, *part) for part in parts)
        return list(Counter(past - first for first, past in regions).items())

    def _even(self, operand: Operand, dim: int, axis: str, size: int) -> bool:
        """Whether all tiles of a size begin at addresses that the channel's alignment allows."""
        align, nest = operand.channel.align, self.layer.nest
        if align == 1 or operand.packed or operand.held or size >= nest.extents[axis]:
            return True
        step = operand.item * prod(operand.sizes[dim + 1 :])
        return all(range_through(nest, operand.dims[dim], *part)[0] * step % align == 0
                   for part in ranges_of(nest.extents[axis], size))  # fmt: skip

    def _copies(self, operand: Operand, outer: frozenset[str]) -> Copies:
        layer, width = self.layer, len(self.layer.axes)
        lengths: list[Grid | int] = []
        most: list[Grid | int] = []  # the longest of a buffer's dimension, in any tile
        called: list[Grid | int] = []  # the longest of its part that a call uses; 0: all, in every tile
        times: Grid = np.ones((1,) * 2 * width)
        there: Grid = np.ones((1,) * width, bool)
        for dim, size in enumerate(operand.sizes):
            axis = operand.dims[dim].axis
            if axis not in layer.axes:
                lengths, most, called = [*lengths, size], [*most, size], [*called, 0]
                continue
            i = layer.axes.index(axis)
            length, number = _padded(self._lengths[id(operand), dim], 2)
            largest = self.along(i, length.max(axis=1))
            called.append(np.where(self.along(i, length.min(axis=1)) == size, 0, largest) if axis not in outer else 0)
            there = there & self.along(i, length.min(axis=1) > 0)  # windows over nothing but padding
            if axis not in outer:
                lengths, most = [*lengths, size], [*most, size]
                continue
            shape = [1] * (2 * width)
            shape[i], shape[width + i] = length.shape
            lengths.append(length.reshape(shape))
            most.append(largest)
            there = there & self.along(i, (self._even(operand, dim, axis, n) for n in self.sizes[i])).astype(bool)
            times = times * number.reshape(shape)
        copies = self._priced(operand, lengths, times, most, called)
        if operand.held:
            copies = replace(copies, cycles=copies.cycles * 0, bytes=copies.bytes * 0, moved=copies.moved * 0)
        return replace(copies, allowed=copies.allowed & there)

    def _priced(
        self,
        operand: Operand,
        lengths: Sequence[Grid | int],
        times: Grid,
        most: Sequence[Grid | int],
        called: Sequence[Grid | int],
    ) -> Copies:
        channel, width = operand.channel, len(self.layer.axes)
        size = prod(lengths) * operand.item + (operand.extra * lengths[operand.extra_dim] if operand.extra else 0)
        if operand.packed:
            runs = starts = parts_of(channel, size) if channel.largest else 1
        else:
            runs, starts = _runs(lengths, operand.sizes, channel.dimensions)
        each = starts * channel.start_cycles + np.ceil(size / channel.bytes_per_cycle) + runs * channel.piece_cycles
        inner = tuple(range(width, 2 * width))
        flat = (1,) * width
        tile = prod(most) * operand.item + (operand.extra * most[operand.extra_dim] if operand.extra else 0)
        allowed: Any = np.ones(flat, bool)
        if channel.largest and not (operand.packed or operand.held):
            allowed = allowed & (np.asarray(tile) <= channel.largest)
        if channel.align > 1 and not (operand.packed or operand.held):
            sound = np.asarray(_aligned(lengths, operand, channel.align))
            allowed = allowed & np.broadcast_to(sound, np.broadcast_shapes(sound.shape, flat * 2)).all(axis=inner)
        if self.layer.views and not operand.packed:
            allowed = allowed & _contiguous(called, most)

        def over_tiles(figure: Any) -> Grid:
            total = np.asarray(figure * times)
            return np.asarray(np.broadcast_to(total, np.broadcast_shapes(total.shape, flat * 2)).sum(axis=inner))

        return Copies(
            over_tiles(each),
            times.sum(axis=inner),
            np.broadcast_to(-(-np.asarray(tile) // ALIGN) * ALIGN, np.broadcast_shapes(np.shape(tile), flat)),
            over_tiles(size),
            allowed,
        )


def costs_of(layer: TiledLayer, sizes: tuple[tuple[int, ...], ...]) -> Costs:
    """The costs of these tile sizes, cached in the layer, which is mapped into several rooms."""
    if sizes not in layer.costs:
        layer.costs[sizes] = Costs(layer, sizes)
    costs: Costs = layer.costs[sizes]
    return costs


def _runs(lengths: Sequence[Any], sizes: Sequence[Any], dimensions: int) -> tuple[Any, Any]:
    """`pieces_of` of all tiles at once."""
    runs, starts, loops, merged = np.ones(()), np.ones(()), np.zeros(()), np.ones((), bool)
    for length, size in zip(reversed(lengths), reversed(sizes), strict=True):
        runs = np.where(merged, runs, runs * length)
        loops = loops + (~merged & (np.asarray(length) > 1))
        starts = np.where(~merged & (loops > dimensions - 1), starts * length, starts)
        merged = merged & (np.asarray(length) == size)
    return runs, starts


def _contiguous(called: Sequence[Any], held: Sequence[Any]) -> Any:
    """Whether the parts that calls use are contiguous; 0 means all of a dimension."""
    contiguous, merged = np.ones((), bool), np.ones((), bool)
    for part, whole in zip(reversed(called), reversed(held), strict=True):
        length = np.where(np.asarray(part) == 0, whole, part)
        contiguous = contiguous & (merged | (length == 1))
        merged = merged & (np.asarray(part) == 0)
    return contiguous


def _aligned(lengths: Sequence[Any], operand: Operand, align: int) -> Any:
    """Whether the pieces of a tile, and the steps between them, are multiples of `align` bytes."""
    piece, merged, step = np.full((), operand.item), np.ones((), bool), operand.item
    sound = np.full((), operand.start % align == 0)
    for length, size in zip(reversed(lengths), reversed(operand.sizes), strict=True):
        piece = np.where(merged, piece * length, piece)
        sound = sound & (merged | (np.asarray(length) == 1) | (step % align == 0))
        merged, step = merged & (np.asarray(length) == size), step * size
    return sound & (piece % align == 0)


def _padded(kinds: Sequence[Sequence[tuple[int, ...]]], width: int) -> tuple[Grid, ...]:
    """Lists of kinds as arrays of one shape, padded with their first kind occurring 0 times."""
    longest = max(len(k) for k in kinds)
    filled = [[*k, *[(*k[0][:-1], 0)] * (longest - len(k))] for k in kinds]
    grid = np.array(filled, dtype=np.float64)
    return tuple(grid[:, :, i] for i in range(width))


Where = tuple[frozenset[str], frozenset[str]]  # loops around an operand's copies: that change it, that do not
MAX_BY_THEMSELVES = 4  # operands whose loops are chosen independently; more would have too many nestings


class NoMapping(Exception):
    """No mapping fits. `needed`: bytes of the smallest mapping, by space."""

    def __init__(self, layer: str, needed: Mapping[str, int]) -> None:
        super().__init__(layer)
        self.layer, self.needed = layer, dict(needed)


@dataclass(frozen=True)
class Nesting:
    """An order of loops and the depth of each operand in it."""

    order: tuple[str, ...]
    depths: tuple[int, ...]
    where: tuple[Where, ...]


def best(layer: TiledLayer, room: Mapping[str, int]) -> tuple[Mapped, MappingCost]:
    """The mapping of fewest cycles within `room` (bytes by space); fewest calls, then least memory among equals.

    If the layer's `power` has `least` set: of least energy, and of fewest cycles among equals.

    Raises NoMapping if none fits.
    """
    extents = layer.nest.extents
    mapped, counted = best_of(
        layer, room, tuple(tuple(candidates(extents[a], layer.units.get(a, 1))) for a in layer.axes)
    )
    counts = mapped.counts(layer)
    alike = tuple(tuple(t for t in range(1, extents[a] + 1) if -(-extents[a] // t) == counts[a]) for a in layer.axes)
    other, recounted = best_of(layer, room, alike)  # sizes that differ by how bytes round to cycles
    if recounted.score < counted.score:
        mapped, counted = other, recounted
    return replace(mapped, examined=mapped.examined + other.examined), counted


def best_of(
    layer: TiledLayer, room: Mapping[str, int], sizes: tuple[tuple[int, ...], ...]
) -> tuple[Mapped, MappingCost]:
    """The best mapping with these tile sizes. Raises NoMapping if none fits."""
    costs = costs_of(layer, sizes)
    space, *others = room
    key = (space, *((other, room[other]) for other in others))
    if key not in costs.frontiers:
        costs.frontiers[key] = _frontier(costs, space, {other: room[other] for other in others})
    return costs.frontiers[key].within(layer, room[space])


Choice = tuple[dict[str, int], Nesting, tuple[int, ...]]  # tile, loops, and buffers of each operand


@dataclass(frozen=True)
class Frontier:
    """The mappings that are best in some room of one space: each is better than all that take at most its bytes.

    `bytes`: of each, ascending. `smallest`: bytes of the smallest of all mappings, by space.
    """

    bytes: Grid
    choices: tuple[Choice, ...]
    smallest: Mapping[str, float]
    examined: int
    counted: dict[int, tuple[Mapped, MappingCost]] = field(default_factory=dict)

    def within(self, layer: TiledLayer, room: int) -> tuple[Mapped, MappingCost]:
        """The best mapping of at most `room` bytes. Raises NoMapping if none is so small."""
        at = int(np.searchsorted(self.bytes, room, side="right")) - 1
        if at < 0:
            raise NoMapping(layer.name, {space: int(size) for space, size in self.smallest.items()})
        if at not in self.counted:
            mapped = replace(_mapping(layer, *self.choices[at]), examined=self.examined)
            self.counted[at] = mapped, cost(layer, mapped)
        return self.counted[at]


def _frontier(costs: Costs, space: str, rooms: Mapping[str, int]) -> Frontier:
    """The mappings of these tile sizes that are best in some room of a space. `rooms`: of all other spaces."""
    layer, shape = costs.layer, tuple(len(s) for s in costs.sizes)
    tried, smallest, tables = list[tuple[Nesting, tuple[int, ...]]](), dict[str, float](), list[Grid]()
    for nesting in nestings(layer):
        buffers = list(_buffers(layer, nesting))
        total, score, calls, used, fits = _evaluate(costs, nesting, np.array(buffers))
        used = dict.fromkeys((space, *rooms), 0) | used
        for name, size in used.items():
            smallest[name] = min(float(np.min(size)), smallest.get(name, inf))
            fits = fits & (size <= rooms.get(name, inf))
        there = np.flatnonzero(fits)
        figures = (used[space], score, total, calls, sum(used.values()))
        rows = [np.broadcast_to(f, fits.shape).ravel()[there] for f in figures]
        table = np.array([*rows, there + len(tried) * prod(shape)])
        tables.append(table[:, _least(table)])
        tried += [(nesting, b) for b in buffers]
    table = np.hstack(tables)
    table = table[:, _least(table)]
    table = table[:, np.lexsort(table[::-1])]
    kept, low = list[int](), [inf]
    for at, (_, *key) in enumerate(table.T.tolist()):
        if key < low:
            low = key
            kept.append(at)
    choices = [divmod(int(which), prod(shape)) for which in table[-1, kept]]
    tiles = [np.unravel_index(at, shape) if shape else () for _, at in choices]
    each = [{a: s[i] for a, s, i in zip(layer.axes, costs.sizes, at, strict=True)} for at in tiles]
    chosen = tuple((tile, *tried[which]) for tile, (which, _) in zip(each, choices, strict=True))
    return Frontier(table[0, kept], chosen, smallest, prod(shape) * len(tried))


def _least(table: Grid) -> Grid:
    """Indices of the columns (bytes, score, ...) that no column of as few bytes beats in score."""
    order = np.lexsort(table[1::-1])
    scores = table[1, order]
    return order[scores <= np.minimum.accumulate(scores)]


def _evaluate(costs: Costs, nesting: Nesting, buffers: Grid) -> tuple[Any, Any, Any, dict[str, Any], Any]:
    """Cycles, the score to minimise, calls, bytes by space, and whether the mapping is allowed.

    Each array has a row for each choice of `buffers`, and in it all tile sizes.
    """
    layer, shape = costs.layer, (len(buffers), *(len(s) for s in costs.sizes))
    exposed, beside, ends, copied, fits = np.zeros(()), np.zeros(()), np.zeros(()), np.zeros(()), np.ones(shape, bool)
    used = dict[str, Any]()
    numbers = buffers.T.reshape(-1, len(buffers), *(1 for _ in costs.sizes))
    for operand, where, number in zip(layer.operands, nesting.where, numbers, strict=True):
        copy, repeated = costs.copies(operand, where[0]), prod((costs.counts[a] for a in where[1]), start=np.ones(()))
        cycles, double, count = copy.cycles * repeated, number == 2, copy.count * repeated
        copied = copied + copy.moved * repeated * operand.byte_pj
        used[operand.space] = used.get(operand.space, 0) + copy.bytes * number
        fits = fits & copy.allowed
        if double.any():
            exposed, beside = exposed + cycles * ~double, beside + cycles * double
            ends, fits = ends + cycles / count * double, fits & (~double | (count > 1))
        else:
            exposed = exposed + cycles
    calls = prod(costs.counts.values()) if costs.counts else np.ones(())
    total = exposed + np.maximum(costs.compute + ends, beside + costs.compute / calls)
    if layer.power is None or not layer.power.least:
        return total, total, calls, used, fits
    energy = np.round(layer.power.picojoules(costs.compute, total, copied), 6)  # the order of sums must not matter
    return total, energy, calls, used, fits


def nestings(layer: TiledLayer) -> Iterator[Nesting]:
    """Orders of loops with depths of operands; only the first of all that copy every operand inside the same loops."""
    seen, groups = set(), together(layer)
    for order in permutations(layer.axes):
        depths = [[0, *(i + 1 for i, a in enumerate(order) if a in o.axes and not o.held)] for o in layer.operands]
        for wanted in product(*(sorted({d for i in group for d in depths[i]}) for group in groups)):
            most = {i: depth for group, depth in zip(groups, wanted, strict=True) for i in group}
            chosen = tuple(max(d for d in possible if d <= most[i]) for i, possible in enumerate(depths))
            where = tuple(
                (frozenset(order[:d]) & o.axes, frozenset(order[:d]) - o.axes)
                for o, d in zip(layer.operands, chosen, strict=True)
            )
            if where not in seen:
                seen.add(where)
                yield Nesting(order, chosen, where)


def together(layer: TiledLayer) -> tuple[tuple[int, ...], ...]:
    """Groups of operands that move inside of the same loops: each alone; if there are many, all activations read."""
    free = [i for i, o in enumerate(layer.operands) if not o.held]
    if len(free) <= MAX_BY_THEMSELVES:
        return tuple((i,) for i in range(len(layer.operands)))
    alike = [i for i in free if not (layer.operands[i].result or layer.operands[i].packed)]
    return (tuple(alike), *((i,) for i in range(len(layer.operands)) if i not in alike))


def _buffers(layer: TiledLayer, nesting: Nesting) -> Iterator[tuple[int, ...]]:
    """One buffer or two for each operand that is moved more than once, if copies overlap with computing."""
    groups = together(layer)
    both = [bool(where[0]) and o.channel.overlap for o, where in zip(layer.operands, nesting.where, strict=True)]
    for chosen in product(*((1, 2) if any(both[i] for i in group) else (1,) for group in groups)):
        number = {i: n for group, n in zip(groups, chosen, strict=True) for i in group}
        yield tuple(number[i] if both[i] else 1 for i in range(len(layer.operands)))


def _mapping(layer: TiledLayer, tile: Mapping[str, int], nesting: Nesting, buffers: tuple[int, ...]) -> Mapped:
    """The mapping without the loops that run once."""
    order = tuple(a for a in nesting.order if tile[a] < layer.nest.extents[a])
    moves = []
    for operand, depth, number in zip(layer.operands, nesting.depths, buffers, strict=True):
        inside = [a for a in nesting.order[:depth] if a in order]
        while inside and inside[-1] not in operand.axes:
            inside.pop()
        moves.append(Move(operand.name, len(inside), number))
    return Mapped(tile, order, tuple(moves))


FILL, CHANNELS, BALANCE = 0.5, 1e2, 1e6  # alpha and beta of equation 7, section 5
EVERY_SIZE = 80  # an axis no longer than that is tried with every tile size
ROWS_AT_ONCE, COLUMNS_AT_ONCE, CHANNELS_AT_ONCE = 8, 2, 4  # of the kernels of PULP-NN


def dory(layer: TiledLayer, room: Mapping[str, int], cluster: bool) -> tuple[Mapped, MappingCost]:
    """DORY's tile. `cluster`: by the heuristics for PULP-NN; else rows and columns are whole if possible.

    Raises NoMapping if no tile fits.
    """
    extents = (layer.nest.extents[a] for a in layer.axes)
    sizes = tuple(tuple(range(1, n + 1) if n <= EVERY_SIZE else candidates(n, CHANNELS_AT_ONCE)) for n in extents)
    costs, shape = Costs(layer, sizes), tuple(len(s) for s in sizes)
    used: dict[str, Grid] = {space: np.zeros(()) for space in room}
    fits: Grid = np.ones(shape, bool)
    for operand in layer.operands:
        copies = costs.copies(operand, operand.axes & frozenset(layer.axes))
        both = 1 + (copies.count > 1) if operand.channel.overlap else 1
        used[operand.space] = used[operand.space] + copies.bytes * both
        fits = fits & copies.allowed
    for space, size in used.items():
        fits = fits & (size <= room[space])
    if not fits.any():
        raise NoMapping(layer.name, {space: int(np.min(size)) for space, size in used.items()})
    preference = np.where(fits, _tile_preference(costs, sum(used.values(), np.zeros(())), cluster), -np.inf)
    index = np.unravel_index(int(preference.argmax()), shape) if shape else ()
    tile = {a: sizes[i][index[i]] for i, a in enumerate(layer.axes)}
    mapped = _by_one_tile(layer, tile)
    return replace(mapped, examined=int(fits.size)), cost(layer, mapped)


def _channels_first(layer: TiledLayer) -> tuple[str, ...]:
    """Channels, rows, columns: axes that the weights have come first."""
    weights = {a for o in layer.operands if not o.result and len(o.axes & set(layer.axes)) == 1 for a in o.axes}
    return tuple(sorted(layer.axes, key=lambda a: a not in weights))


def _by_one_tile(layer: TiledLayer, tile: Mapping[str, int]) -> Mapped:
    loops = tuple(a for a in _channels_first(layer) if tile[a] < layer.nest.extents[a])
    moves = []
    for operand in layer.operands:
        depth = max((i + 1 for i, a in enumerate(loops) if a in operand.axes), default=0)
        moves.append(Move(operand.name, depth, 2 if depth and operand.channel.overlap else 1))
    return Mapped(tile, loops, tuple(moves))


def _tile_preference(costs: Costs, size: Grid, cluster: bool) -> Grid:
    """Score of each tile, to maximise: equation 7, or first whole rows and columns and then the fullest memory."""
    order = _channels_first(costs.layer)
    at = {a: costs.along(costs.layer.axes.index(a), costs.sizes[costs.layer.axes.index(a)]) for a in order}
    if not cluster:
        whole: Grid = np.zeros(())
        for i, a in enumerate(order):
            whole = whole + i * (at[a] == costs.layer.nest.extents[a])
        return size + whole * (1 << 40)
    one: Grid = np.ones(())
    channels, rows, columns = (*(at[a] for a in order), one, one, one)[:3]
    balance = (rows - 1) % ROWS_AT_ONCE + (columns - 1) % COLUMNS_AT_ONCE + (channels - 1) % CHANNELS_AT_ONCE
    return np.asarray(FILL * size + CHANNELS * channels + BALANCE * balance)


def loma(layer: TiledLayer, room: Mapping[str, int], most: int) -> float:
    """Cycles of the best order of at most `most` loop factors; each operand keeps all inner loops that fit.

    Raises NoMapping if no order fits.
    """
    factors = _factors(layer, most)
    best = np.inf
    price = _Price(layer)
    for order in _orders(tuple(factors)):
        cycles = price.allocate(order, room)
        if cycles is not None:
            best = min(best, cycles)
    if not np.isfinite(best):
        raise NoMapping(layer.name, {})
    return float(best)


def _factors(layer: TiledLayer, most: int) -> list[tuple[str, int]]:
    factors = []
    for axis in layer.axes:
        n, p = ceil(layer.nest.extents[axis] / layer.units.get(axis, 1)), 2
        while n > 1:
            if n % p == 0:
                factors.append((axis, p))
                n //= p
            else:
                p += 1
    while len(factors) > most:
        axes = [a for a in layer.axes if sum(f[0] == a for f in factors) > 1]
        small = min(axes, key=lambda a: prod(sorted(f for b, f in factors if b == a)[:2]))
        one, two = sorted((f for f in factors if f[0] == small), key=lambda f: f[1])[:2]
        factors.remove(one)
        factors.remove(two)
        factors.append((small, one[1] * two[1]))
    return sorted(factors)


def _orders(factors: tuple[tuple[str, int], ...]) -> Iterator[tuple[tuple[str, int], ...]]:
    """Distinct orders of a multiset."""
    if not factors:
        yield ()
    for factor in sorted(set(factors)):
        rest = list(factors)
        rest.remove(factor)
        for tail in _orders(tuple(rest)):
            yield (factor, *tail)


class _Price:
    """Cached costs of copies and calls by tile sizes."""

    def __init__(self, layer: TiledLayer) -> None:
        self.layer = layer
        self.costs = cache(lambda tile: Costs(layer, tuple((n,) for n in tile)))
        self.copies = cache(self._copies)
        self.compute = cache(lambda tile: float(self.costs(tile).compute.sum()))

    def tile(self, order: tuple[tuple[str, int], ...], depth: int) -> tuple[int, ...]:
        """Sizes of the axes inside of the first `depth` loops."""
        size = {a: self.layer.units.get(a, 1) for a in self.layer.axes}
        for axis, n in order[depth:]:
            size[axis] *= n
        return tuple(min(size[a], self.layer.nest.extents[a]) for a in self.layer.axes)

    def allocate(self, order: tuple[tuple[str, int], ...], room: Mapping[str, int]) -> float | None:
        """Keep as many inner loops of each operand as fit, one by one. Cycles; None: the smallest tile does not fit."""
        operands = self.layer.operands
        depths = [len(order)] * len(operands)
        tiles = [self.tile(order, d) for d in range(len(order) + 1)]
        used = dict.fromkeys(room, 0)
        for i, operand in enumerate(operands):
            used[operand.space] += self.copies(i, tiles[-1])[1]
        if any(used[s] > room[s] for s in used):
            return None
        for i, operand in enumerate(operands):
            while depths[i]:
                now, more = (self.copies(i, tiles[d])[1] for d in (depths[i], depths[i] - 1))
                if used[operand.space] + more - now > room[operand.space]:
                    break
                used[operand.space] += more - now
                depths[i] -= 1
        total = self.compute(tiles[max(depths)])
        for i, (operand, depth) in enumerate(zip(operands, depths, strict=True)):
            outer = list(order[:depth])
            while outer and outer[-1][0] not in operand.axes:
                outer.pop()
            again = prod(n for a, n in outer if a not in operand.axes)
            total += again * self.copies(i, tiles[depth])[0]
        return total

    def _copies(self, number: int, tile: tuple[int, ...]) -> tuple[float, int]:
        """Cycles of moving an operand once by tiles of a size, and bytes of a tile."""
        operand = self.layer.operands[number]
        copies = self.costs(tile).copies(operand, operand.axes & frozenset(self.layer.axes))
        return float(copies.cycles.sum()), int(copies.bytes.max())
