"""Shortest paths in a layered graph under constraints: exact, by labels and Lagrangian bounds.

Each arc has a cost and adds to two sums; constraints are linear in these sums, and every path must keep them. A label
is a path to a node, with what it uses of each constraint. A label that another betters in all is dropped, and so is
one whose cost so far and bound of the rest exceed the best path known (Handler and Zang 1980 for the bound).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Any

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
class _Label:
    rest: float  # bound of what follows
    cost: float
    used: tuple[float, ...]  # of each constraint
    trail: Any  # (label before, arc)


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
    bounds, best = _bounds(layers, kept)
    if not bounds:
        return None
    upper = min(below, best.cost if best is not None else INFINITY)
    labels, proved = {0: [_Label(0.0, 0.0, (0.0,) * len(kept), None)]}, True
    for number, arcs in enumerate(layers):
        after: dict[int, list[_Label]] = {}
        for arc in arcs:
            uses = tuple(c.use(arc) for c in kept)
            rests = [(b.weights, b.to_go[number + 1].get(arc.head, INFINITY)) for b in bounds]
            for label in labels.get(arc.tail, ()):
                cost = label.cost + arc.cost
                used = tuple(u + more for u, more in zip(label.used, uses, strict=True))
                left = [c.limit - u for c, u in zip(kept, used, strict=True)]
                rest = max(to_go - sum(map(mul, weights, left)) for weights, to_go in rests)
                if cost + rest <= upper * (1 + 1e-12) + 1e-9:
                    after.setdefault(arc.head, []).append(_Label(rest, cost, used, (label, arc)))
        labels, all_kept = _promising({node: _front(found) for node, found in after.items()})
        proved &= all_kept
    ends = [x for x in labels.get(0, ()) if all(u <= c.limit + SLACK for u, c in zip(x.used, kept, strict=True))]
    if ends:
        best = _unwind(min(ends, key=lambda x: (x.cost, x.used)))
    if best is None or best.cost > below:
        return None
    return replace(best, bound=best.cost if proved else min(best.cost, bounds[0].value))


def _promising(labels: dict[int, list[_Label]]) -> tuple[dict[int, list[_Label]], bool]:
    """At most MOST labels, those of the least bounds; and whether these are all."""
    if sum(map(len, labels.values())) <= MOST:
        return labels, True
    last = sorted(x.cost + x.rest for found in labels.values() for x in found)[MOST]
    kept = {node: [x for x in found if x.cost + x.rest < last] for node, found in labels.items()}
    return {node: found for node, found in kept.items() if found}, False


def _bounds(layers: Sequence[Sequence[Arc]], constraints: Sequence[Constraint]) -> tuple[list[_Bound], Route | None]:
    """Bounds by multipliers, improved one constraint at a time, and the best path within all limits that turned up."""
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
    if found is None:
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


def _front(found: list[_Label]) -> list[_Label]:
    """Labels that no other betters in cost and all uses, by rising cost."""
    found.sort(key=lambda x: (x.cost, x.used))
    if not found or len(found[0].used) > 2:
        kept: list[_Label] = []
        for x in found:
            if not any(all(a <= b for a, b in zip(k.used, x.used, strict=True)) for k in kept):
                kept.append(x)
        return kept
    return _front_of_two([(x.used[0] if x.used else 0.0, x.used[-1] if x.used else 0.0) for x in found], found)


def _front_of_two(uses: list[tuple[float, float]], found: list[_Label]) -> list[_Label]:
    """The same for two uses. The stairs are the least second uses for rising first ones, of the labels kept so far."""
    kept, firsts, seconds = list[_Label](), list[float](), list[float]()
    for (first, second), label in zip(uses, found, strict=True):
        at = bisect_right(firsts, first)
        if at and seconds[at - 1] <= second:
            continue
        kept.append(label)
        end = at
        while end < len(firsts) and seconds[end] >= second:
            end += 1
        firsts[at:end], seconds[at:end] = [first], [second]
    return kept


def _unwind(label: _Label) -> Route:
    arcs, cost = list[Arc](), label.cost
    while label.trail is not None:
        label, arc = label.trail
        arcs.append(arc)
    return Route(tuple(reversed(arcs)), cost)
