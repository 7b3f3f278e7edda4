"""Ways of others to map a layer, written from their papers, to compare with.

DORY (Burrello et al., IEEE TC 2021, section 4.2): all operands move by the same tile, loops over channels, rows and
columns in this order, two buffers each where copies run beside computing; the tile fills the memory, with heuristics.
LOMA (Symons et al., AICAS 2021): the loops' prime factors, the smallest merged until there are at most N, in every
order; each operand then keeps as many inner loops as its memory holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from math import ceil, prod

import numpy as np

from .mapper import Costs, Grid, NoMapping, candidates
from .nest import Mapped, MappingCost, Move, TiledLayer, cost

FILL, CHANNELS, BALANCE = 0.5, 1e2, 1e6  # alpha and beta of equation 7, section 5
EVERY_SIZE = 80  # of an axis no longer than that, every tile size is looked at
ROWS_AT_ONCE, COLUMNS_AT_ONCE, CHANNELS_AT_ONCE = 8, 2, 4  # of the kernels of PULP-NN


def dory(layer: TiledLayer, room: Mapping[str, int], cluster: bool) -> tuple[Mapped, MappingCost]:
    """DORY's tile. `cluster`: by the heuristics for PULP-NN; else rows and columns are whole if they can be.

    Raises NoMapping.
    """
    sizes = tuple(_sizes(layer.nest.extents[a]) for a in layer.axes)
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
    wish = np.where(fits, _wish(costs, sum(used.values(), np.zeros(())), cluster), -np.inf)
    index = np.unravel_index(int(wish.argmax()), shape) if shape else ()
    tile = {a: sizes[i][index[i]] for i, a in enumerate(layer.axes)}
    mapped = _by_one_tile(layer, tile)
    return replace(mapped, examined=int(fits.size)), cost(layer, mapped)


def _sizes(extent: int) -> tuple[int, ...]:
    return tuple(range(1, extent + 1)) if extent <= EVERY_SIZE else tuple(candidates(extent, CHANNELS_AT_ONCE))


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


def _wish(costs: Costs, size: Grid, cluster: bool) -> Grid:
    """Aim of the choice of a tile: equation 7, or rows and columns whole and then the memory full."""
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
    """Cycles of the best order of at most `most` loop factors, each operand kept as far in as it fits.

    Raises NoMapping.
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
    """Copies and calls by tile sizes, kept."""

    def __init__(self, layer: TiledLayer) -> None:
        self.layer = layer
        self.costs = cache(lambda tile: Costs(layer, tuple((n,) for n in tile)))
        self.copies = cache(self._copies)
        self.compute = cache(self._compute)

    def tile(self, order: tuple[tuple[str, int], ...], depth: int) -> tuple[int, ...]:
        """Sizes of the axes inside of the first `depth` loops."""
        size = {a: self.layer.units.get(a, 1) for a in self.layer.axes}
        for axis, n in order[depth:]:
            size[axis] *= n
        return tuple(min(size[a], self.layer.nest.extents[a]) for a in self.layer.axes)

    def allocate(self, order: tuple[tuple[str, int], ...], room: Mapping[str, int]) -> float | None:
        """Keep as many inner loops of each operand as fit, in turns; cycles, or None if the least tile does not."""
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

    def _compute(self, tile: tuple[int, ...]) -> float:
        return float(self.costs(tile).compute.sum())
