"""Shortest paths in a layered graph under constraints: exact, by labels and Lagrangian bounds.

Each arc has a cost and adds to two sums; constraints are linear in these sums, and every path must keep them. A label
is a path to a node, with what it uses of each constraint. A label that another betters in all is dropped. So is one
whose cost so far and bound of the rest exceed the best path known (Handler and Zang 1980 for the bound).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import atan2
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
    """a * first + b * second <= limit. `b` is not negative."""

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


ToGo = list[Floats]  # of each layer: by node


@dataclass(frozen=True)
class _Step:
    """The arcs of a layer as arrays, sorted by their tails. `starts`: the first place of each tail in them.

    `nodes` before the layer and `nodes_behind` it: numbers below these occur.
    """

    arcs: Sequence[Arc]
    order: Places
    tails: Places
    heads: Places
    cost: Floats
    first: Floats
    second: Floats
    starts: Places
    nodes: int
    nodes_behind: int


def _step(arcs: Sequence[Arc]) -> _Step:
    tails = np.array([x.tail for x in arcs], np.int64)
    order = np.argsort(tails, kind="stable")
    tails, heads = tails[order], np.array([x.head for x in arcs], np.int64)[order]
    cost, first, second = (
        np.array(some, np.float64)[order]
        for some in ([x.cost for x in arcs], [x.first for x in arcs], [x.second for x in arcs])
    )
    starts = np.flatnonzero(np.diff(tails, prepend=-1))
    nodes, behind = (int(some.max(initial=-1)) + 1 for some in (tails, heads))
    return _Step(arcs, order, tails, heads, cost, first, second, starts, nodes, behind)


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
        ahead = np.array([_of(b.to_go[number], arc.head) for b in bounds]) - spent + weights @ uses
        rest = (weighed[arc.tail] + ahead).max(axis=1)
        cost = before.cost + arc.cost
        keep = np.flatnonzero(cost + rest <= limit)
        if len(keep):
            places = np.full(len(keep), place)
            some = _Labels(cost[keep], before.used[keep] + uses, rest[keep], places, keep)
            found.setdefault(arc.head, []).append(some)
    ends = _outermost(constraints)
    return {node: _front(_joined(some), ends) for node, some in found.items()}


def _of(to_go: Floats, node: int) -> float:
    """From a node to the end; a node that no arc leaves has no way there."""
    return float(to_go[node]) if node < len(to_go) else INFINITY


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
    steps = [_step(arcs) for arcs in layers]

    def look(weights: Sequence[float]) -> tuple[_Bound, Route] | None:
        nonlocal best
        to_go, path = _relaxed(steps, constraints, weights)
        if path is None:
            return None
        if _within(path, constraints) and (best is None or path.cost < best.cost):
            best = path
        value = float(to_go[0][0]) - sum(w * c.limit for w, c in zip(weights, constraints, strict=True))
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
    steps: Sequence[_Step], constraints: Sequence[Constraint], weights: Sequence[float]
) -> tuple[ToGo, Route | None]:
    """Least cost + weights * uses from every node to the end, and such a path from the start."""
    a = sum(w * c.a for w, c in zip(weights, constraints, strict=True))
    b = sum(w * c.b for w, c in zip(weights, constraints, strict=True))
    to_go: ToGo = [np.zeros(1)]
    values = list[Floats]()
    for step in reversed(steps):
        rest = to_go[-1]
        ahead = np.full(max(step.nodes_behind, len(rest)), INFINITY)
        ahead[: len(rest)] = rest
        value = step.cost + a * step.first + b * step.second + ahead[step.heads]
        here = np.full(step.nodes, INFINITY)
        if len(value):
            here[step.tails[step.starts]] = np.minimum.reduceat(value, step.starts)
        values.append(value)
        to_go.append(here)
    to_go.reverse()
    if not (len(to_go[0]) and to_go[0][0] < INFINITY):
        return to_go, None
    arcs, node = list[Arc](), 0
    for step, value, here in zip(steps, reversed(values), to_go, strict=False):
        first, past = np.searchsorted(step.tails, [node, node + 1])
        place = int(first) + int(np.argmax(value[first:past] == here[node]))
        arcs.append(step.arcs[step.order[place]])
        node = arcs[-1].head
    return to_go, Route(tuple(arcs), sum(a.cost for a in arcs))


def _within(path: Route, constraints: Sequence[Constraint]) -> bool:
    return all(sum(c.use(a) for a in path.arcs) <= c.limit + SLACK for c in constraints)


def _front(found: _Labels, ends: tuple[int, int] | None) -> _Labels:
    """Labels that no other betters in cost and all uses, by rising cost. `ends`: of `_outermost`."""
    count = found.used.shape[1]
    found = found.some(np.lexsort((*(found.used[:, i] for i in reversed(range(count))), found.cost)))
    if ends is None:
        return found.some(np.zeros(1, np.int64))
    return found.some(_stairs(*(found.used[:, i].tolist() for i in ends)))


def _outermost(constraints: Sequence[Constraint]) -> tuple[int, int] | None:
    """Two constraints such that what uses no more of either uses no more of any; None where there are none.

    All uses are a * first + b * second with b >= 0, so the directions (a, b) lie in a half plane, and each is a sum of
    the two outermost ones with factors that are not negative.
    """
    if not constraints:
        return None
    turned = sorted(range(len(constraints)), key=lambda i: atan2(constraints[i].b, constraints[i].a))
    return turned[0], turned[-1]


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
