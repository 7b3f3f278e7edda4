"""Shortest paths in a layered graph under constraints: exact, by labels and Lagrangian bounds.

Each arc has a cost and adds to sums; constraints are linear in these sums, and every path must keep them. A label
is a path to a node, with what it uses of each constraint. A label that another dominates is dropped. So is one
whose cost so far and bound of the rest exceed the best path known (Handler and Zang 1980 for the bound).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise
from math import atan2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....base.dataclass import dataclass

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
INFINITY = float("inf")
CYCLES, ROUNDS = 3, 8  # of multipliers, for each constraint; more make the bound a little tighter
KEPT = 3  # bounds that labels are held against
FEW, MOST = 400, 20_000  # labels of a layer; beyond that the least promising go, and the result may not be the best
MANY = 15_000  # the same in all uses, where these are more than two
SLACK = 1e-6  # limits are bytes, kept as floats


@dataclass(frozen=True)
class Arc:
    """From a node of a layer to a node of the next. `first`, `second`: what it adds to what device `by` alone has, and
    to what all have."""

    tail: int
    head: int
    cost: float
    first: float
    second: float
    choice: Any
    by: int = 0


@dataclass(frozen=True)
class Constraint:
    """Most that a device has, `limit`: what it has alone, what all have, and its share of the rest.

    The rest falls by what is in no share, so that a path uses share * (- first - second) of it.
    """

    device: int
    share: float
    limit: float

    def use(self, arc: Arc) -> float:
        return arc.first * ((arc.by == self.device) - self.share) + arc.second * (1 - self.share)


@dataclass(frozen=True)
class Route:
    """A path. No path within the limits costs less than `bound`."""

    arcs: tuple[Arc, ...]
    cost: float
    bound: float = 0.0


@dataclass(frozen=True)
class _Labels:
    """Paths to the nodes before a layer, by node. Each has its cost, what it uses of each constraint, and a bound of
    what follows. Its last arc is a place in the layer before; beside it is the place of the label before it."""

    node: Places
    cost: Floats
    used: Floats  # labels x constraints
    rest: Floats
    arc: Places
    before: Places

    def some(self, which: Any) -> _Labels:
        return _Labels(*(getattr(self, f.name)[which] for f in fields(self)))


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
    uses: Floats  # arcs x constraints
    starts: Places
    nodes: int
    nodes_behind: int

    def weighed(self, constraint: int) -> _Step:
        """The arcs with their use of a constraint as their cost."""
        return replace(self, cost=self.uses[:, constraint], uses=self.uses[:, :0])


def _step(arcs: Sequence[Arc], constraints: Sequence[Constraint]) -> _Step:
    tails = np.array([x.tail for x in arcs], np.int64)
    order = np.argsort(tails, kind="stable")
    tails, heads, by = tails[order], *(np.array(x, np.int64)[order] for x in _columns(arcs, "head", "by"))
    cost, first, second = (np.array(x, np.float64)[order] for x in _columns(arcs, "cost", "first", "second"))
    uses = np.empty((len(arcs), len(constraints)))
    for i, c in enumerate(constraints):
        uses[:, i] = first * ((by == c.device) - c.share) + second * (1 - c.share)
    starts = np.flatnonzero(np.diff(tails, prepend=-1))
    nodes, behind = (int(some.max(initial=-1)) + 1 for some in (tails, heads))
    return _Step(arcs, order, tails, heads, cost, uses, starts, nodes, behind)


def _columns(arcs: Sequence[Arc], *names: str) -> list[list[float]]:
    return [[getattr(x, name) for x in arcs] for name in names]


@dataclass(frozen=True)
class _Bound:
    """Least cost + weights * uses from every node to the end. `value`: no path within the limits costs less."""

    weights: tuple[float, ...]
    to_go: ToGo
    value: float


def shortest(
    layers: Sequence[Sequence[Arc]], constraints: Sequence[Constraint], below: float = INFINITY
) -> tuple[Route | None, float]:
    """The path of least cost from node 0 before the first layer to node 0 behind the last, and a bound.

    None if none was found that costs at most `below`. No path of cost `below` costs less than the bound.
    """
    kept = _tightest(layers, constraints)
    steps = [_step(arcs, kept) for arcs in layers]
    bounds, best = _bounds(steps, kept, below)
    if not bounds:
        return None, INFINITY
    least = [_relaxed([step.weighed(i) for step in steps], ())[0] for i in range(len(kept))]
    ends = _outermost(kept) if len({arc.by for arcs in layers for arc in arcs}) == 1 else tuple(range(len(kept)))
    # A path that few labels find makes the bound of all others tighter.
    for most in (FEW, MOST if len(ends) <= 2 else MANY // len(ends)):
        upper = min(below, best.cost if best is not None else INFINITY)
        labels, left_out = _labelled(steps, kept, bounds, least, upper, ends, most)
        best = labels if labels is not None else best
        if left_out == INFINITY:
            break
    if best is None or best.cost > below:
        return None, left_out
    best = replace(best, bound=min(best.cost, left_out))
    return best, best.bound


def _tightest(layers: Sequence[Sequence[Arc]], constraints: Sequence[Constraint]) -> list[Constraint]:
    """The constraints that count: of devices of one share that have nothing alone, the one of the least limit."""
    alone = {arc.by for arcs in layers for arc in arcs if arc.first}
    tightest: dict[tuple[int, float], Constraint] = {}
    for c in constraints:
        key = (c.device if c.device in alone else -1, c.share)
        if c.limit < min(INFINITY, tightest[key].limit if key in tightest else INFINITY):
            tightest[key] = c
    return list(tightest.values())


def _labelled(
    steps: Sequence[_Step],
    constraints: Sequence[Constraint],
    bounds: Sequence[_Bound],
    least: Sequence[ToGo],
    upper: float,
    ends: Sequence[int],
    most: int,
) -> tuple[Route | None, float]:
    """The best path of cost `upper` that was found, and what all that were left out cost at least."""
    none = np.zeros(1, np.int64)
    labels = _Labels(none, np.zeros(1), np.zeros((1, len(constraints))), np.zeros(1), none, none)
    history, left_out = list[_Labels](), INFINITY
    for number, step in enumerate(steps):
        history.append(labels)
        longer = _extended(labels, step, constraints, bounds, [some[number + 1] for some in least], number + 1, upper)
        labels, left = _promising(longer.some(_front(longer, ends)), most)
        left_out = min(left_out, left)
    room = np.array([c.limit + SLACK for c in constraints])
    allowed = np.flatnonzero((labels.node == 0) & (labels.used <= room).all(axis=1))
    if not len(allowed):
        return None, left_out
    first = min(allowed.tolist(), key=lambda i: (labels.cost[i], *labels.used[i]))
    return _unwind(labels, first, history, steps), left_out


def _extended(
    labels: _Labels,
    step: _Step,
    constraints: Sequence[Constraint],
    bounds: Sequence[_Bound],
    least: Sequence[Floats],
    number: int,
    upper: float,
) -> _Labels:
    """Labels of the nodes behind a layer that may still lead to a path of cost `upper`, by node and rising cost.

    `least`: of each constraint the least that is used from a node on.
    """
    first, past = (np.searchsorted(labels.node, step.tails, side) for side in ("left", "right"))
    counts = past - first
    arc = np.repeat(np.arange(len(step.arcs)), counts)
    before = np.arange(len(arc)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    cost, used = labels.cost[before] + step.cost[arc], labels.used[before] + step.uses[arc]
    rest, heads = np.full(len(arc), -INFINITY), step.heads[arc]
    limits = np.array([c.limit for c in constraints])
    for bound in bounds:
        to_go = _ahead(bound.to_go[number], step)
        rest = np.maximum(rest, to_go[heads] + (used - limits) @ np.array(bound.weights))
    good = (cost + rest <= upper * (1 + 1e-12) + 1e-9) & (rest < INFINITY)
    for i, some in enumerate(least):
        good &= used[:, i] + _ahead(some, step)[heads] <= limits[i] + SLACK
    keep = np.flatnonzero(good)
    longer = _Labels(heads[keep], cost[keep], used[keep], rest[keep], arc[keep], before[keep])
    return longer.some(
        np.lexsort((*(longer.used[:, i] for i in reversed(range(len(limits)))), longer.cost, longer.node))
    )


def _ahead(to_go: Floats, step: _Step) -> Floats:
    """The same for all nodes behind a layer; from one that no arc leaves, the end is not reached."""
    ahead = np.full(step.nodes_behind, INFINITY)
    ahead[: len(to_go)] = to_go[: step.nodes_behind]
    return ahead


def _promising(labels: _Labels, most: int) -> tuple[_Labels, float]:
    """At most `most` labels, those of the least bounds; and what paths over the others cost at least."""
    total = labels.cost + labels.rest
    order = np.argsort(total, kind="stable")
    left = float(total[order[most]]) if len(order) > most else INFINITY
    return labels.some(np.sort(order[:most])), left


def _bounds(
    steps: Sequence[_Step], constraints: Sequence[Constraint], below: float
) -> tuple[list[_Bound], Route | None]:
    """Bounds by multipliers, improved one constraint at a time, and the best path within all limits that turned up.

    No bounds where no path costs at most `below`.
    """
    best: Route | None = None

    def look(weights: Sequence[float]) -> tuple[_Bound, Route] | None:
        nonlocal best
        to_go, path = _relaxed(steps, weights)
        if path is None:
            return None
        if _within(path, constraints) and (best is None or path.cost < best.cost):
            best = path
        value = float(to_go[0][0]) - sum(w * c.limit for w, c in zip(weights, constraints, strict=True))
        return _Bound(tuple(weights), to_go, value), path

    # What costs more than the dearest arcs of all layers, or than `below`, is no path.
    dearest = min(below, sum(float(step.cost.max(initial=0.0)) for step in steps)) * (1 + 1e-9) + SLACK
    first = look([0.0] * len(constraints))
    if first is None or first[0].value > dearest:
        return [], None
    bounds, weights = [first[0]], [0.0] * len(constraints)
    for _ in range(CYCLES if best is None else 0):
        for number, constraint in enumerate(constraints):
            low, high = 0.0, INFINITY
            weight = weights[number] or _first_weight(first[1], constraint)
            for _ in range(ROUNDS):
                first = look([*weights[:number], weight, *weights[number + 1 :]])
                assert first is not None
                bounds.append(first[0])
                if first[0].value > dearest:
                    return [], None
                used = sum(constraint.use(a) for a in first[1].arcs)
                low, high = (weight, high) if used > constraint.limit else (low, weight)
                weight = (low + high) / 2 if high < INFINITY else 4 * weight
            weights = list(max(bounds, key=lambda b: b.value).weights)
    bounds.sort(key=lambda b: -b.value)
    return bounds[:KEPT], best


def _first_weight(path: Route, constraint: Constraint) -> float:
    """A multiplier to begin with: cost a unit of use, or of the limit."""
    use = max(abs(constraint.limit), sum(abs(constraint.use(a)) for a in path.arcs), 1.0)
    return max(path.cost, 1.0) / use


def _relaxed(steps: Sequence[_Step], weights: Sequence[float]) -> tuple[ToGo, Route | None]:
    """Least cost + weights * uses from every node to the end, and such a path from the start."""
    to_go: ToGo = [np.zeros(1)]
    values = list[Floats]()
    for step in reversed(steps):
        rest = to_go[-1]
        ahead = np.full(max(step.nodes_behind, len(rest)), INFINITY)
        ahead[: len(rest)] = rest
        value = step.cost + step.uses @ np.array(weights) + ahead[step.heads]
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


def _front(labels: _Labels, ends: Sequence[int]) -> Places:
    """Places of labels that no other of their node dominates in cost and all uses. `labels`: by node and rising cost.

    `ends`: uses such that what is better in these is better in all.
    """
    edges = np.flatnonzero(np.diff(labels.node, prepend=-1, append=-1))
    if not ends:
        return edges[:-1]
    used, kept = labels.used[:, list(ends)], list[int]()
    for first, past in pairwise(edges.tolist()):
        if len(ends) <= 2:
            kept += _stairs(first, used[first:past, 0].tolist(), used[first:past, -1].tolist())
        else:
            kept += _unbettered(first, used[first:past])
    return np.array(kept, np.int64)


def _outermost(constraints: Sequence[Constraint]) -> Sequence[int]:
    """Two constraints such that what uses no more of either uses no more of any; none where there are none.

    Where one device alone has something, all uses are a * first + b * second with b >= 0. So the directions (a, b) lie
    in a half plane, and each is a sum of the two outermost ones with factors that are not negative.
    """
    if not constraints:
        return ()
    one = Arc(0, 0, 0.0, 1.0, 0.0, None)
    turned = sorted(range(len(constraints)), key=lambda i: atan2(1 - constraints[i].share, constraints[i].use(one)))
    return turned[0], turned[-1]


def _stairs(start: int, first_uses: list[float], second_uses: list[float]) -> list[int]:
    """Places from `start` on of labels that none before them dominates in two uses.

    The stairs are the least second uses for rising first ones, of the labels kept so far.
    """
    kept, firsts, seconds = list[int](), list[float](), list[float]()
    for i, (first, second) in enumerate(zip(first_uses, second_uses, strict=True)):
        at = bisect_right(firsts, first)
        if at and seconds[at - 1] <= second:
            continue
        kept.append(start + i)
        end = at
        while end < len(firsts) and seconds[end] >= second:
            end += 1
        firsts[at:end], seconds[at:end] = [first], [second]
    return kept


def _unbettered(start: int, used: Floats) -> list[int]:
    """The same for any number of uses."""
    kept, best, count = list[int](), np.empty_like(used), 0
    for i, uses in enumerate(used):
        if not (best[:count] <= uses).all(axis=1).any():
            best[count] = uses
            count += 1
            kept.append(start + i)
    return kept


def _unwind(ends: _Labels, place: int, history: Sequence[_Labels], steps: Sequence[_Step]) -> Route:
    """The path of a label behind the last layer. `history`: labels before each layer."""
    arcs, chosen, cost = list[Arc](), ends, float(ends.cost[place])
    for labels, step in zip(reversed(history), reversed(steps), strict=True):
        arcs.append(step.arcs[step.order[chosen.arc[place]]])
        chosen, place = labels, int(chosen.before[place])
    return Route(tuple(reversed(arcs)), cost)
