"""Shortest paths in a layered graph under constraints: exact, by labels and Lagrangian bounds.

Each arc has a cost and adds to two sums; constraints are linear in these sums, and every path must keep them. A label
is a path to a node, with what it uses of each constraint. A label that another betters in all is dropped. So is one
whose cost so far and bound of the rest exceed the best path known (Handler and Zang 1980 for the bound).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
INFINITY = float("inf")
CYCLES, ROUNDS = 3, 8  # of multipliers, for each constraint; more make the bound a little tighter
KEPT = 3  # bounds that labels are held against
MOST = 4000  # labels of a layer; beyond that the least promising go, and the result may not be the best
SLACK = 1e-6  # limits are bytes, kept as floats


@dataclass(frozen=True)
class Arc:
    """From a node of a layer to a node of the next. `first` and `second`: what it adds to the two sums."""

    tail: int
    head: int
    cost: float
    first: float
    second: float
    choice: Any


@dataclass(frozen=True)
class Constraint:
    """a * first + b * second <= limit."""

    a: float
    b: float
    limit: float

    def use(self, arc: Arc) -> float:
        return self.a * arc.first + self.b * arc.second


@dataclass(frozen=True)
class Route:
    """A path. No path within the limits costs less than `bound`."""

    arcs: tuple[Arc, ...]
    cost: float
    bound: float = 0.0


@dataclass(frozen=True)
class _Labels:
    """Paths to a node. Each has its cost, what it uses of each constraint, and a bound of what follows. Its last arc is
    a place in the layer; beside it stands the place of the label before it at the tail of that arc."""

    cost: Floats
    used: Floats  # labels x constraints
    rest: Floats
    arc: Places
    before: Places

    def some(self, which: Any) -> _Labels:
        return _Labels(self.cost[which], self.used[which], self.rest[which], self.arc[which], self.before[which])


ToGo = list[dict[int, float]]


@dataclass(frozen=True)
class _Bound:
    """Least cost + weights * uses from every node to the end. `value`: no path within the limits costs less."""

    weights: tuple[float, ...]
    to_go: ToGo
    value: float


def shortest(
    layers: Sequence[Sequence[Arc]], constraints: Sequence[Constraint], below: float = INFINITY
) -> Route | None:
    """The path of least cost from node 0 before the first layer to node 0 behind the last.

    None if there is none, or none that costs at most `below`.
    """
    limits: dict[tuple[float, float], float] = {}
    for c in constraints:
        limits[c.a, c.b] = min(c.limit, limits.get((c.a, c.b), INFINITY))
    kept = [Constraint(a, b, limit) for (a, b), limit in limits.items() if limit < INFINITY]
    bounds, best = _bounds(layers, kept, below)
    if not bounds:
        return None
    upper = min(below, best.cost if best is not None else INFINITY)
    none = np.zeros(1, np.int64)
    labels = {0: _Labels(np.zeros(1), np.zeros((1, len(kept))), np.zeros(1), none, none)}
    history, proved = list[dict[int, _Labels]](), True
    for number, arcs in enumerate(layers):
        history.append(labels)
        labels, all_kept = _promising(_extended(labels, arcs, kept, bounds, number + 1, upper))
        proved &= all_kept
    if 0 in labels:
        ends, room = labels[0], np.array([c.limit + SLACK for c in kept])
        allowed = np.flatnonzero((ends.used <= room).all(axis=1))
        if len(allowed):
            first = min(allowed.tolist(), key=lambda i: (ends.cost[i], *ends.used[i]))
            best = _unwind(ends, first, history, layers)
    if best is None or best.cost > below:
        return None
    return replace(best, bound=best.cost if proved else min(best.cost, bounds[0].value))


def _extended(
    labels: dict[int, _Labels],
    arcs: Sequence[Arc],
    constraints: Sequence[Constraint],
    bounds: Sequence[_Bound],
    number: int,
    upper: float,
) -> dict[int, _Labels]:
    """Labels of the nodes behind a layer that may still lead to a path of cost `upper`."""
    weights = np.array([b.weights for b in bounds]).reshape(len(bounds), len(constraints))
    spent = weights @ np.array([c.limit for c in constraints]) if constraints else np.zeros(len(bounds))
    weighed = {node: found.used @ weights.T for node, found in labels.items()}
    found: dict[int, list[_Labels]] = {}
    limit = upper * (1 + 1e-12) + 1e-9
    for place, arc in enumerate(arcs):
        before = labels.get(arc.tail)
        if before is None:
            continue
        uses = np.array([c.use(arc) for c in constraints])
        ahead = np.array([b.to_go[number].get(arc.head, INFINITY) for b in bounds]) - spent + weights @ uses
        rest = (weighed[arc.tail] + ahead).max(axis=1)
        cost = before.cost + arc.cost
        keep = np.flatnonzero(cost + rest <= limit)
        if len(keep):
            places = np.full(len(keep), place)
            some = _Labels(cost[keep], before.used[keep] + uses, rest[keep], places, keep)
            found.setdefault(arc.head, []).append(some)
    return {node: _front(_joined(some)) for node, some in found.items()}


def _joined(some: Sequence[_Labels]) -> _Labels:
    if len(some) == 1:
        return some[0]
    return _Labels(*(np.concatenate([getattr(x, f.name) for x in some]) for f in fields(_Labels)))


def _promising(labels: dict[int, _Labels]) -> tuple[dict[int, _Labels], bool]:
    """At most MOST labels, those of the least bounds; and whether these are all."""
    if sum(len(found.cost) for found in labels.values()) <= MOST:
        return labels, True
    last = np.sort(np.concatenate([x.cost + x.rest for x in labels.values()]))[MOST]
    kept = {node: x.some(np.flatnonzero(x.cost + x.rest < last)) for node, x in labels.items()}
    return {node: found for node, found in kept.items() if len(found.cost)}, False


def _bounds(
    layers: Sequence[Sequence[Arc]], constraints: Sequence[Constraint], below: float
) -> tuple[list[_Bound], Route | None]:
    """Bounds by multipliers, improved one constraint at a time, and the best path within all limits that turned up.

    No bounds where no path costs at most `below`.
    """
    best: Route | None = None

    def look(weights: Sequence[float]) -> tuple[_Bound, Route] | None:
        nonlocal best
        to_go, path = _relaxed(layers, constraints, weights)
        if path is None:
            return None
        if _within(path, constraints) and (best is None or path.cost < best.cost):
            best = path
        value = to_go[0][0] - sum(w * c.limit for w, c in zip(weights, constraints, strict=True))
        return _Bound(tuple(weights), to_go, value), path

    found = look([0.0] * len(constraints))
    if found is None or found[0].value > below * (1 + 1e-9) + SLACK:
        return [], None
    bounds, weights = [found[0]], [0.0] * len(constraints)
    for _ in range(CYCLES if best is None else 0):
        for number, constraint in enumerate(constraints):
            low, high = 0.0, INFINITY
            weight = weights[number] or _first_weight(found[1], constraint)
            for _ in range(ROUNDS):
                found = look([*weights[:number], weight, *weights[number + 1 :]])
                assert found is not None
                bounds.append(found[0])
                used = sum(constraint.use(a) for a in found[1].arcs)
                low, high = (weight, high) if used > constraint.limit else (low, weight)
                weight = (low + high) / 2 if high < INFINITY else 4 * weight
            weights = list(max(bounds, key=lambda b: b.value).weights)
    bounds.sort(key=lambda b: -b.value)
    return bounds[:KEPT], best


def _first_weight(path: Route, constraint: Constraint) -> float:
    """A multiplier to begin with: cost a unit of use, or of the limit."""
    use = max(abs(constraint.limit), sum(abs(constraint.use(a)) for a in path.arcs), 1.0)
    return max(path.cost, 1.0) / use


def _relaxed(
    layers: Sequence[Sequence[Arc]], constraints: Sequence[Constraint], weights: Sequence[float]
) -> tuple[ToGo, Route | None]:
    """Least cost + weights * uses from every node to the end, and such a path from the start."""
    a = sum(w * c.a for w, c in zip(weights, constraints, strict=True))
    b = sum(w * c.b for w, c in zip(weights, constraints, strict=True))
    to_go: ToGo = [{} for _ in range(len(layers) + 1)]
    to_go[-1][0] = 0.0
    choice: list[dict[int, Arc]] = [{} for _ in layers]
    for number in reversed(range(len(layers))):
        here, behind, chosen = to_go[number], to_go[number + 1], choice[number]
        for arc in layers[number]:
            rest = behind.get(arc.head)
            if rest is not None:
                value = arc.cost + a * arc.first + b * arc.second + rest
                if value < here.get(arc.tail, INFINITY):
                    here[arc.tail], chosen[arc.tail] = value, arc
    if 0 not in to_go[0]:
        return to_go, None
    arcs, node = list[Arc](), 0
    for chosen in choice:
        arcs.append(chosen[node])
        node = chosen[node].head
    return to_go, Route(tuple(arcs), sum(a.cost for a in arcs))


def _within(path: Route, constraints: Sequence[Constraint]) -> bool:
    return all(sum(c.use(a) for a in path.arcs) <= c.limit + SLACK for c in constraints)


def _front(found: _Labels) -> _Labels:
    """Labels that no other betters in cost and all uses, by rising cost."""
    count = found.used.shape[1]
    found = found.some(np.lexsort((*(found.used[:, i] for i in reversed(range(count))), found.cost)))
    if count == 0:
        return found.some(np.zeros(1, np.int64))
    if count <= 2:
        return found.some(_stairs(found.used[:, 0].tolist(), found.used[:, -1].tolist()))
    kept, uses = list[int](), np.empty_like(found.used)
    for i, used in enumerate(found.used):
        if not (uses[: len(kept)] <= used).all(axis=1).any():
            uses[len(kept)] = used
            kept.append(i)
    return found.some(np.array(kept))


def _stairs(first_uses: list[float], second_uses: list[float]) -> list[int]:
    """The same for two uses. The stairs are the least second uses for rising first ones, of the labels kept so far."""
    kept, firsts, seconds = list[int](), list[float](), list[float]()
    for i, (first, second) in enumerate(zip(first_uses, second_uses, strict=True)):
        at = bisect_right(firsts, first)
        if at and seconds[at - 1] <= second:
            continue
        kept.append(i)
        end = at
        while end < len(firsts) and seconds[end] >= second:
            end += 1
        firsts[at:end], seconds[at:end] = [first], [second]
    return kept


def _unwind(ends: _Labels, place: int, history: Sequence[dict[int, _Labels]], layers: Sequence[Sequence[Arc]]) -> Route:
    """The path of a label behind the last layer. `history`: labels before each layer."""
    arcs, found, cost = list[Arc](), ends, float(ends.cost[place])
    for labels, some in zip(reversed(history), reversed(layers), strict=True):
        arc, place = some[int(found.arc[place])], int(found.before[place])
        found = labels[arc.tail]
        arcs.append(arc)
    return Route(tuple(reversed(arcs)), cost)
