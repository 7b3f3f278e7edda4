"""The best mapping of a layer, exactly: tile sizes, orders of loops, depths of operands, one buffer or two.

Given tile sizes, an operand's copies depend only on which loops they are inside of. So the search goes over the
distinct ways of putting operands into loops and evaluates all tile sizes of each at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import permutations, product
from math import prod
from typing import Any

import numpy as np

from ....base.dataclass import dataclass
from .costs import MappingCost, cost
from .grid import Copies, Costs, candidates, costs_of
from .nest import Mapped, Move, TiledLayer

Where = tuple[frozenset[str], frozenset[str]]  # loops around an operand's copies: that change it, that do not
MOST_BY_THEMSELVES = 4  # operands that move inside of loops of their own; the nestings of more are too many


class NoMapping(Exception):
    """No mapping fits. `needed`: bytes of the smallest, by space."""

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

    Raises NoMapping.
    """
    extents = layer.nest.extents
    mapped, counted = best_of(
        layer, room, tuple(tuple(candidates(extents[a], layer.units.get(a, 1))) for a in layer.axes)
    )
    counts = mapped.counts(layer)
    alike = tuple(tuple(t for t in range(1, extents[a] + 1) if -(-extents[a] // t) == counts[a]) for a in layer.axes)
    other, recounted = best_of(layer, room, alike)  # sizes that differ by how bytes round to cycles
    if recounted.total < counted.total:
        mapped, counted = other, recounted
    return replace(mapped, examined=mapped.examined + other.examined), counted


def best_of(
    layer: TiledLayer, room: Mapping[str, int], sizes: tuple[tuple[int, ...], ...]
) -> tuple[Mapped, MappingCost]:
    """The best of these tile sizes."""
    costs = costs_of(layer, sizes)
    shape = tuple(len(s) for s in sizes)
    calls = np.broadcast_to(prod(costs.counts.values()) if costs.counts else np.ones(()), shape)
    least: tuple[float, float, float] | None = None
    found: Mapped | None = None
    examined, smallest = 0, dict[str, float]()
    for nesting in nestings(layer):
        copies = [costs.copies(o, where[0]) for o, where in zip(layer.operands, nesting.where, strict=True)]
        again = [prod((costs.counts[a] for a in where[1]), start=np.ones(())) for where in nesting.where]
        for buffers in _buffers(layer, nesting):
            examined += calls.size
            total, taken, fits = _evaluate(layer, costs, copies, again, buffers, room, shape)
            if not fits.any():
                _remember(smallest, taken)
                continue
            total = np.where(fits, total, np.inf)
            low = float(total.min())
            if least is not None and low > least[0]:
                continue
            ties = np.flatnonzero(total.ravel() == low)
            memory = np.broadcast_to(sum(taken.values()), shape).ravel()
            at = min(ties, key=lambda t: (calls.ravel()[t], memory[t], t))
            key = (low, float(calls.ravel()[at]), float(memory[at]))
            if least is None or key < least:
                least = key
                index = np.unravel_index(at, shape) if shape else ()
                tile = {a: sizes[i][index[i]] for i, a in enumerate(layer.axes)}
                found = _mapping(layer, tile, nesting, buffers)
    if found is None:
        raise NoMapping(layer.name, {space: int(size) for space, size in smallest.items()})
    counted = cost(layer, found)
    return replace(found, cycles=counted.total, examined=examined), counted


def _evaluate(
    layer: TiledLayer,
    costs: Costs,
    copies: list[Copies],
    again: list[Any],
    buffers: tuple[int, ...],
    room: Mapping[str, int],
    shape: tuple[int, ...],
) -> tuple[Any, dict[str, Any], Any]:
    """Cycles, bytes by space, and whether they fit, of all tile sizes."""
    exposed, beside, ends = 0.0, None, 0.0
    taken: dict[str, Any] = dict.fromkeys(room, 0)
    fits: Any = np.ones(shape, bool)
    for operand, found, repeated, number in zip(layer.operands, copies, again, buffers, strict=True):
        cycles = found.cycles * repeated
        taken[operand.space] = taken[operand.space] + found.bytes * number
        fits = fits & found.allowed
        if number == 2:
            count = found.count * repeated
            beside = cycles if beside is None else beside + cycles
            ends = ends + cycles / count
            fits = fits & (count > 1)
        else:
            exposed = exposed + cycles
    for space, size in taken.items():
        fits = fits & (size <= room[space])
    calls = prod(costs.counts.values()) if costs.counts else np.ones(())
    busy = costs.compute if beside is None else np.maximum(costs.compute + ends, beside + costs.compute / calls)
    return np.broadcast_to(exposed + busy, shape), taken, fits


def nestings(layer: TiledLayer) -> Iterator[Nesting]:
    """Orders of loops with depths of operands; of those that move every operand alike, the first."""
    seen, groups = set(), together(layer)
    for order in permutations(layer.axes):
        depths = [[0, *(i + 1 for i, a in enumerate(order) if a in o.axes and not o.held)] for o in layer.operands]
        for wanted in product(*(sorted({d for i in group for d in depths[i]}) for group in groups)):
            most = {i: depth for group, depth in zip(groups, wanted, strict=True) for i in group}
            chosen = tuple(max(d for d in found if d <= most[i]) for i, found in enumerate(depths))
            where = tuple(
                (frozenset(order[:d]) & o.axes, frozenset(order[:d]) - o.axes)
                for o, d in zip(layer.operands, chosen, strict=True)
            )
            if where not in seen:
                seen.add(where)
                yield Nesting(order, chosen, where)


def together(layer: TiledLayer) -> tuple[tuple[int, ...], ...]:
    """Numbers of operands that move inside of the same loops: each alone; where there are many, all that are read."""
    free = [i for i, o in enumerate(layer.operands) if not o.held]
    if len(free) <= MOST_BY_THEMSELVES:
        return tuple((i,) for i in range(len(layer.operands)))
    alike = [i for i in free if not (layer.operands[i].result or layer.operands[i].packed)]
    return (tuple(alike), *((i,) for i in range(len(layer.operands)) if i not in alike))


def _buffers(layer: TiledLayer, nesting: Nesting) -> Iterator[tuple[int, ...]]:
    """One buffer or two for each operand that is moved more than once, where copies run beside the computing."""
    groups = together(layer)
    both = [bool(where[0]) and o.channel.overlap for o, where in zip(layer.operands, nesting.where, strict=True)]
    for chosen in product(*((1, 2) if any(both[i] for i in group) else (1,) for group in groups)):
        number = {i: n for group, n in zip(groups, chosen, strict=True) for i in group}
        yield tuple(number[i] if both[i] else 1 for i in range(len(layer.operands)))


def _mapping(layer: TiledLayer, tile: Mapping[str, int], nesting: Nesting, buffers: tuple[int, ...]) -> Mapped:
    """Without the loops that are gone through once."""
    order = tuple(a for a in nesting.order if tile[a] < layer.nest.extents[a])
    moves = []
    for operand, depth, number in zip(layer.operands, nesting.depths, buffers, strict=True):
        inside = [a for a in nesting.order[:depth] if a in order]
        while inside and inside[-1] not in operand.axes:
            inside.pop()
        moves.append(Move(operand.name, len(inside), number))
    return Mapped(tile, order, tuple(moves))


def _remember(smallest: dict[str, float], taken: Mapping[str, Any]) -> None:
    for space, size in taken.items():
        low = float(np.min(size))
        smallest[space] = min(smallest.get(space, low), low)
