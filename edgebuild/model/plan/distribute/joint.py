"""The least cost of running a network on a cluster, exactly: a form for each tensor and a method for each layer.

A path through a layered graph: its nodes are the forms of the tensors that are still read, so a tensor with several
readers is one decision. RAM is a limit that every arc keeps by itself; flash limits the sums over a path. The methods:

whole      the source computes the layer
stage      another device computes the layer
copies     every device computes all of it
fan-out    from all of the input, each device a part of the output channels (A -> P)
fan-in     from a part of the input channels, each device partial sums of all outputs (P -> Z), which are then sent
parts      channel by channel (P -> P), or a concatenation, of whose operands each device has the channels of its part
rows       each device some rows (F -> F); the halo beyond them is sent before (halo exchange) or was
           computed twice (recomputed halo), as the ranges of the form state"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import pairwise
from operator import add, le
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .forms import (
    ALL,
    SOURCE,
    SUMS,
    ClusterPlan,
    Conversion,
    Cost,
    Decision,
    Layer,
    Split,
    TensorForms,
    cost,
    has,
    held,
    transfers,
)

# Shortest paths in a layered graph under constraints: exact, by labels and Lagrangian bounds.
#
# Each arc has a cost and adds to sums; constraints are linear in these sums, and every path must keep them. A label
# is a path to a node, with its use of each constraint. A label that another dominates is dropped. So is one whose
# cost so far plus the bound of the rest exceeds the cost of the best path so far (Handler and Zang 1980 for the bound).

Floats = NDArray[np.float64]
Places = NDArray[np.int64]
INFINITY = float("inf")
CYCLES, ROUNDS = 3, 8  # of improving multipliers, for each constraint; more make the bound a little tighter
KEPT = 3  # bounds that labels are compared with
FIRST_LABELS, MAX_LABELS = 400, 20_000  # of a layer; the least promising of more are dropped: a loss, possibly
MAX_CHECKS = 15_000  # labels times constraints, if there are more than two constraints
SLACK = 1e-6  # limits are bytes, kept as floats


@dataclass(frozen=True)
class Arc:
    """From a node of a layer to a node of the next. `first`: bytes of flash that it adds to device `by` alone;
    `second`: to every device."""

    tail: int
    head: int
    cost: float
    first: float
    second: float
    choice: Any
    by: int = 0


@dataclass(frozen=True)
class Constraint:
    """Limit of a device's flash: bytes that it has alone, bytes that all have, and its share of the rest.

    `limit` is less its share of all weights. Bytes of `first` and `second` are not shared, so an arc gives back
    share * (first + second).
    """

    device: int
    share: float
    limit: float

    def use(self, arc: Arc) -> float:
        return arc.first * ((arc.by == self.device) - self.share) + arc.second * (1 - self.share)


@dataclass(frozen=True)
class Route:
    """A path from the first node to the last."""

    arcs: tuple[Arc, ...]
    cost: float


@dataclass(frozen=True)
class _Labels:
    """Paths to the nodes before a layer, by node. Each has its cost, its use of each constraint, and a bound of the
    rest. `arc`: place of its last arc in the layer before; `before`: place of the label that it extends."""

    node: Places
    cost: Floats
    used: Floats  # labels x constraints
    rest: Floats
    arc: Places
    before: Places

    def some(self, which: Any) -> _Labels:
        return _Labels(*(getattr(self, f.name)[which] for f in fields(self)))


ToGo = list[Floats]  # for each layer: least cost to the end, by node


@dataclass(frozen=True)
class _Step:
    """The arcs of a layer as arrays, sorted by their tails. `starts`: the first place of each tail in them.

    `nodes`, `nodes_behind`: the highest numbers of nodes before and behind the layer, plus 1.
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

    None if the search meets no path of cost at most `below`. No path of cost at most `below` costs less than the bound.
    """
    kept = _tightest(layers, constraints)
    steps = [_step(arcs, kept) for arcs in layers]
    bounds, best = _bounds(steps, kept, below)
    if not bounds:
        return None, INFINITY
    least = [_relaxed([step.weighed(i) for step in steps], ())[0] for i in range(len(kept))]
    # A first search with few labels gives an upper limit that prunes the second.
    for most in (FIRST_LABELS, MAX_LABELS if len(kept) <= 2 else MAX_CHECKS // len(kept)):
        upper = min(below, best.cost if best is not None else INFINITY)
        labels, left_out = _labelled(steps, kept, bounds, least, upper, most)
        best = labels if labels is not None else best
        if left_out == INFINITY:
            break
    if best is None or best.cost > below:
        return None, left_out
    return best, min(best.cost, left_out)


def _tightest(layers: Sequence[Sequence[Arc]], constraints: Sequence[Constraint]) -> list[Constraint]:
    """The constraints that can bind: of devices of equal shares that have nothing alone, that of the least limit."""
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
    most: int,
) -> tuple[Route | None, float]:
    """The best path of cost at most `upper`, and a lower bound of the cost of all paths whose labels were dropped."""
    none = np.zeros(1, np.int64)
    labels = _Labels(none, np.zeros(1), np.zeros((1, len(constraints))), np.zeros(1), none, none)
    history, left_out = list[_Labels](), INFINITY
    for number, step in enumerate(steps):
        history.append(labels)
        longer = _extended(labels, step, constraints, bounds, [some[number + 1] for some in least], number + 1, upper)
        longer = longer.some(_front(longer))
        order = np.argsort(total := longer.cost + longer.rest, kind="stable")
        labels = longer.some(np.sort(order[:most]))  # the most promising
        left_out = min(left_out, float(total[order[most]]) if len(order) > most else INFINITY)
    room = np.array([c.limit + SLACK for c in constraints])
    allowed = np.flatnonzero((labels.node == 0) & (labels.used <= room).all(axis=1))
    if not len(allowed):
        return None, left_out
    first = min(allowed.tolist(), key=lambda i: (labels.cost[i], *labels.used[i]))
    arcs, chosen, place = list[Arc](), labels, first
    for before, step in zip(reversed(history), reversed(steps), strict=True):
        arcs.append(step.arcs[step.order[chosen.arc[place]]])
        chosen, place = before, int(chosen.before[place])
    return Route(tuple(reversed(arcs)), float(labels.cost[first])), left_out


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

    `least`: for each constraint the least use from a node to the end.
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
    """Least costs from all nodes behind a layer to the end; infinite where no arc leaves."""
    ahead = np.full(step.nodes_behind, INFINITY)
    ahead[: len(to_go)] = to_go[: step.nodes_behind]
    return ahead


def _bounds(
    steps: Sequence[_Step], constraints: Sequence[Constraint], below: float
) -> tuple[list[_Bound], Route | None]:
    """Bounds by multipliers, improved one constraint at a time, and the best path within all limits on the way.

    No bounds if no path costs at most `below`.
    """
    best: Route | None = None

    def look(weights: Sequence[float]) -> tuple[_Bound, Route] | None:
        nonlocal best
        to_go, path = _relaxed(steps, weights)
        if path is None:
            return None
        kept = all(sum(c.use(a) for a in path.arcs) <= c.limit + SLACK for c in constraints)
        if kept and (best is None or path.cost < best.cost):
            best = path
        value = float(to_go[0][0]) - sum(w * c.limit for w, c in zip(weights, constraints, strict=True))
        return _Bound(tuple(weights), to_go, value), path

    # No path costs more than the dearest arcs of all layers together; paths above `below` do not count.
    dearest = min(below, sum(float(step.cost.max(initial=0.0)) for step in steps)) * (1 + 1e-9) + SLACK
    first = look([0.0] * len(constraints))
    if first is None or first[0].value > dearest:
        return [], None
    bounds, weights = [first[0]], [0.0] * len(constraints)
    for _ in range(CYCLES if best is None else 0):
        for number, constraint in enumerate(constraints):
            low, high = 0.0, INFINITY
            use = max(abs(constraint.limit), sum(abs(constraint.use(a)) for a in first[1].arcs), 1.0)
            weight = weights[number] or max(first[1].cost, 1.0) / use  # at first: cost a unit of use, or of the limit
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


def _front(labels: _Labels) -> Places:
    """Places of labels, given by node and rising cost, that no other of their node dominates in cost and all uses."""
    edges, kept = np.flatnonzero(np.diff(labels.node, prepend=-1, append=-1)), list[int]()
    for first, past in pairwise(edges.tolist()):
        best, count = np.empty_like(labels.used[first:past], order="F"), 0  # compared use by use
        for place, uses in enumerate(labels.used[first:past], first):
            if not (best[:count] <= uses).all(axis=1).any():
                best[count] = uses
                count += 1
                kept.append(place)
    return np.array(kept, np.int64)


STAGE = "stage"
METHODS = frozenset(["whole", "copies", "fan-out", "fan-in", "parts", "rows", STAGE])


Forms = tuple[tuple[int, Split], ...]
Bytes = tuple[int, ...]  # by device
Option = tuple[str, tuple[Split, ...], Split, tuple[Split, ...]]


@dataclass(frozen=True)
class _Choice:
    """The meaning of an arc: a decision, or the gathering of the results after the last layer."""

    decision: Decision | None
    spent: Cost
    compute_us: float
    gather: tuple[Conversion, ...] = ()


@dataclass(frozen=True)
class _LayerChoice:
    """An option of a layer whose inputs are kept in given forms. `gained`: new forms of inputs that are read later.

    `needs`: bytes of each device's RAM beside kept tensors. `whole`, `copied`: bytes of weights that device `by` alone
    has, and that all have.
    """

    keeps: Split
    reads: Mapping[int, Split]
    gained: Mapping[int, Split]
    sends: bool
    needs: Bytes
    value: float
    whole: int
    copied: int
    by: int
    choice: _Choice


@dataclass(frozen=True)
class Search(TensorForms):
    """All forms, methods and costs of a problem. `methods` of each layer may be used; None: all of METHODS.

    `sums_to`: letters of the forms in which a fan-in may leave its result.
    """

    objective: str = "traffic"
    methods: tuple[frozenset[str], ...] | None = None
    sums_to: str = "SAPF"
    _costs: dict[tuple[int, Split, Split, int], Cost] = field(default_factory=dict)
    _held: dict[tuple[int, Split, int], Bytes] = field(default_factory=dict)
    _cached: dict[tuple[int, tuple[Split, ...]], tuple[_LayerChoice, ...]] = field(default_factory=dict, init=False)

    # ---- costs

    def cost(self, tensor: int, have: Split, want: Split, partial: int = 4) -> Cost:
        key = (tensor, have, want, partial)
        if key not in self._costs:
            self._costs[key] = cost(
                transfers(self.network.tensors[tensor], have, want, self.cluster, partial), self.cluster
            )
        return self._costs[key]

    def value(self, spent: Cost, compute_us: float) -> float:
        return spent.time_us + compute_us if self.objective == "latency" else spent.bytes

    def alone(self, makes: Split) -> int:
        """The device that makes a tensor in this form alone; the source if there is none."""
        return next((k for k, r in enumerate(makes.ranges) if r[1]), self.cluster.source)

    def compute_us(self, layer: Layer, method: str, makes: Split) -> float:
        """The slowest device's time for its part."""
        devices, tensor = self.cluster.devices, self.network.tensors[layer.output]
        if method in ("whole", STAGE):
            return layer.macs / devices[self.alone(makes)].macs_per_us
        if method == "copies":
            return max(layer.macs / d.macs_per_us for d in devices)
        if method == "fan-in":
            return max(layer.macs * s / d.macs_per_us for d, s in zip(devices, self.cluster.shares, strict=True))
        total = tensor.channels if makes.letter == "P" else tensor.rows
        parts = ((past - first) / total for first, past in makes.ranges)
        return max(layer.macs * part / d.macs_per_us for d, part in zip(devices, parts, strict=True))

    # ---- steps

    @cached_property
    def options(self) -> tuple[tuple[Option, ...], ...]:
        """Options of each layer: method, forms of its inputs, the form it makes, and forms in which it may be kept."""
        allowed = self.methods or (METHODS,) * len(self.network.layers)
        pairs = zip(self.network.layers, allowed, strict=True)
        return tuple(tuple(o for o in self._options(layer) if o[0] in forms) for layer, forms in pairs)

    def _options(self, layer: Layer) -> Iterator[Option]:
        inputs, out = layer.inputs, layer.output
        yield "whole", (SOURCE,) * len(inputs), SOURCE, (SOURCE,)
        yield "copies", (ALL,) * len(inputs), ALL, (ALL,)
        for k in self.others:
            here = self.at(out, k)
            yield STAGE, tuple(self.at(t, k) for t in inputs), here, (here,)
        divisible = self.divisible(out)
        if layer.fan_out and divisible:
            yield "fan-out", (ALL,), self.channels(out), (self.channels(out),)
        if layer.fan_in and self.divisible(inputs[0]):
            kept = [
                SOURCE,
                ALL,
                *self.channel_forms[out],
                *self.row_forms[out],
                *(self.at(out, k) for k in self.others),
            ]
            yield "fan-in", (self.channels(inputs[0]),), SUMS, tuple(f for f in kept if f.letter in self.sums_to)
        if layer.by_channel and divisible:
            yield "parts", tuple(map(self.channels, inputs)), self.channels(out), (self.channels(out),)
        if layer.joins and divisible:
            wanted = tuple(self.joined(layer, i) for i in range(len(inputs)))
            yield "parts", wanted, self.channels(out), (self.channels(out),)
        if layer.window is not None:
            for form in self.row_forms[out]:
                yield "rows", tuple(Split("F", self.needed(layer, form.ranges, t)) for t in inputs), form, (form,)

    def rings(self, number: int, makes: Split) -> Iterator[Split]:
        """The form of a result that is rolled together with its reader, if both can be and memory is short."""
        layer = self.network.layers[number]
        after = self.readers[layer.output]
        if makes == SUMS or after != [number + 1] or after[0] == len(self.network.layers) or not layer.rolls:
            return
        reader = self.network.layers[after[0]]
        rows = self.network.tensors[layer.output].rows
        if reader.rolls and reader.window is not None and self.short[number]:
            ring = max(reader.window.size, reader.window.stride)
            if ring < rows:
                yield replace(makes, ring=ring)

    @cached_property
    def short(self) -> list[bool]:
        """Whether each layer's result may not fit a device together with the operands and the result of its reader."""
        tensors, room = self.network.tensors, min(self.limits.ram, default=float("inf"))
        missing = []
        for layer in self.network.layers:
            after = [self.network.layers[n] for n in self.readers[layer.output] if n < len(self.network.layers)]
            sizes = {t for x in (layer, *after) for t in (*x.inputs, x.output)}
            missing.append(not self.limits.thesis_arena and sum(tensors[t].bytes for t in sizes) > room)
        return missing

    def needs(self, layer: Layer, live: Mapping[int, Split], reads: Mapping[int, Split], makes: Split) -> Bytes | None:
        """Bytes of RAM that a step takes of each device beside the live tensors as they are kept: for operands in
        other forms, and for the result. None if it never fits.
        """
        if self.limits.thesis_arena:
            # Eq. 5.13: input and output of a layer with weights, divided where rows are split, whole otherwise.
            both = sum(self.network.tensors[t].bytes for t in (*layer.inputs, layer.output)) if layer.fan_out else 0
            parts = len(self.cluster.devices) if makes.letter == "F" else 1
            return self._none if both / parts <= min(self.limits.ram) else None
        if not self._ram_is_short:
            return self._none
        total = self._holds(layer.output, makes, layer.partial)
        for tensor, form in reads.items():
            kept = live[tensor]
            if kept != form:
                read, before = self._holds(tensor, form), self._holds(tensor, kept)
                total = tuple(t + max(r - b, 0) for t, r, b in zip(total, read, before, strict=True))
        return total

    @cached_property
    def _none(self) -> Bytes:
        return (0,) * len(self.cluster.devices)

    def _all_held(self, live: Mapping[int, Split]) -> Bytes:
        """Bytes that tensors in these forms take of each device."""
        if not self._ram_is_short or self.limits.thesis_arena:
            return self._none
        return tuple(map(sum, zip(self._none, *(self._holds(t, f) for t, f in live.items()), strict=True)))

    @cached_property
    def _ram_is_short(self) -> bool:
        return min(self.limits.ram, default=float("inf")) < float("inf")

    def _holds(self, tensor: int, form: Split, partial: int = 4) -> Bytes:
        """Bytes of a tensor in this form on each device."""
        key = (tensor, form, partial)
        stored = self._held.get(key)
        if stored is None:
            shape, source = self.network.tensors[tensor], self.cluster.source
            stored = tuple(held(shape, form, k, source, partial) for k in range(len(self.cluster.devices)))
            self._held[key] = stored
        return stored

    def constraints(self) -> tuple[Constraint, ...]:
        """Limits of each device's flash, as of `Constraint`."""
        pairs = enumerate(zip(self.cluster.shares, self.limits.flash, strict=True))
        return tuple(Constraint(k, share, flash - share * self.network.weights) for k, (share, flash) in pairs)

    def run(self, below: float = INFINITY) -> ClusterPlan | None:
        """The best plan within the limits; None if there is none, or none that costs at most `below`."""
        return self.solve(below)[0]

    def solve(self, below: float = INFINITY) -> tuple[ClusterPlan | None, float]:
        """The best plan as of `run`, and a bound: no plan costs less, or at most `below`."""
        return self.solved(self.graph(below), below)

    def solved(self, layers: Sequence[Sequence[Arc]], below: float = INFINITY) -> tuple[ClusterPlan | None, float]:
        """Best plan and bound of a graph of options, which does not depend on flash."""
        path, bound = shortest(layers, self.constraints(), below)
        return (self._plan(path) if path is not None else None), bound

    def graph(self, below: float = INFINITY, most: float = INFINITY) -> list[list[Arc]]:
        """Options of each layer, without those that no plan of cost `below` takes; none if more than `most`."""
        nodes: dict[Forms, int] = {tuple((t, SOURCE) for t in sorted(self.network.inputs)): 0}
        spent = {0: 0.0}  # least cost to each node, whatever the flash
        layers: list[list[Arc]] = []
        for number in range(len(self.network.layers)):
            after: dict[Forms, int] = {}
            best: dict[tuple[int, int, int, float, float], Arc] = {}
            reached: dict[int, float] = {}
            for forms, tail in nodes.items():
                if spent[tail] > below * (1 + 1e-9) + SLACK:
                    continue
                for arc in self._arcs(number, forms, tail, after):
                    key = (arc.tail, arc.head, arc.by, arc.first, arc.second)
                    if key not in best or arc.cost < best[key].cost:
                        best[key] = arc
                        reached[arc.head] = min(reached.get(arc.head, INFINITY), spent[tail] + arc.cost)
                if len(best) > most:
                    return []
            layers.append(list(best.values()))
            most -= len(best)
            nodes, spent = after, reached
        ends = (self._gathering(dict(forms), tail) for forms, tail in nodes.items())
        return [*layers, [end for end in ends if end is not None]]

    def _plan(self, path: Route) -> ClusterPlan:
        chosen = [arc.choice for arc in path.arcs]
        spent = sum((c.spent for c in chosen), Cost())
        decisions = tuple(c.decision for c in chosen[:-1] if c.decision is not None)
        compute = sum(c.compute_us for c in chosen)
        return ClusterPlan(self.network, self.cluster, decisions, chosen[-1].gather, spent, compute)

    def _gathering(self, live: dict[int, Split], tail: int) -> Arc | None:
        """The end of plans; None if a device has no RAM for the results as they are and as they are gathered."""
        both = (map(max, self._holds(t, f), self._holds(t, SOURCE)) for t, f in live.items())
        counts = self._ram_is_short and not self.limits.thesis_arena
        if counts and not all(map(le, map(sum, zip(self._none, *both, strict=True)), self.limits.ram)):
            return None
        gather = tuple(Conversion(t, live[t], SOURCE) for t in self.network.results if not has(live[t], SOURCE))
        spent = sum((self.cost(c.tensor, c.have, c.want) for c in gather), Cost())
        return Arc(tail, 0, self.value(spent, 0.0), 0, 0, _Choice(None, spent, 0.0, gather), self.cluster.source)

    def _arcs(self, number: int, forms: Forms, tail: int, after: dict[Forms, int]) -> Iterator[Arc]:
        """All options of a layer; the forms that they lead to get numbers in `after`."""
        layer, live = self.network.layers[number], dict(forms)
        remaining = tuple((t, f) for t, f in forms if max(self.readers[t], default=-1) > number)
        held_by, rolled = self._all_held(live), any(form.ring for form in live.values())
        for option in self._choices_of(number, tuple(live[t] for t in layer.inputs)):
            if rolled and option.sends:  # nothing is sent between steps that run row by row together
                continue
            if not all(map(le, map(add, held_by, option.needs), self.limits.ram)):
                continue
            stays = remaining
            if option.keeps.ring:  # operands of a run stay to its end
                stays = tuple((t, option.reads.get(t, f) if self.readers[t][-1:] == [number] else f) for t, f in forms)
            for gained in ({}, option.gained) if option.gained else ({},):
                key = tuple((t, gained.get(t, f)) for t, f in stays) if gained else stays
                if self.readers[layer.output]:
                    key = tuple(sorted((*key, (layer.output, option.keeps))))
                head = after.setdefault(key, len(after))
                yield Arc(tail, head, option.value, option.whole, option.copied, option.choice, option.by)

    def _choices_of(self, number: int, live: tuple[Split, ...]) -> tuple[_LayerChoice, ...]:
        """The options of a layer whose inputs are kept in these forms. Cached: other tensors make no difference."""
        key = number, live
        if key not in self._cached:
            self._cached[key] = tuple(
                self._new_choices(number, dict(zip(self.network.layers[number].inputs, live, strict=True)))
            )
        return self._cached[key]

    def gained(
        self, number: int, method: str, live: Mapping[int, Split], reads: Mapping[int, Split]
    ) -> Iterator[tuple[int, Split]]:
        """New forms of inputs that later layers read: with the parts that were sent for this layer."""
        for t, form in reads.items():
            if self.readers[t][-1] > number and not has(live[t], form):
                alone = method == STAGE or (self.stages and method == "whole")
                both = self.also_at(t, live[t], self.alone(form)) if alone else None
                if form == ALL or both is not None:
                    yield t, both or form

    def _new_choices(self, number: int, live: dict[int, Split]) -> Iterator[_LayerChoice]:
        layer = self.network.layers[number]
        for method, wanted, makes, kept in self.options[number]:
            asked = dict(zip(layer.inputs, wanted, strict=True))
            before = tuple(Conversion(t, live[t], want) for t, want in asked.items() if not has(live[t], want))
            reads = {t: live[t] if live[t].ring else want for t, want in asked.items()}
            gained = dict(self.gained(number, method, live, reads))
            spent = sum((self.cost(c.tensor, c.have, c.want) for c in before), Cost())
            whole = layer.flash if method in ("whole", STAGE) else 0
            by = self.alone(makes) if method == STAGE else self.cluster.source
            copied = layer.flash if method in ("copies", "rows") else layer.table if not whole else 0
            compute, sends = self.compute_us(layer, method, makes), bool(before) or method == "fan-in"
            for form in (*kept, *self.rings(number, makes)):
                total = spent + (self.cost(layer.output, SUMS, form, layer.partial) if makes == SUMS else Cost())
                needs = self.needs(layer, live, reads, form if form.ring else makes)
                if needs is not None:
                    choice = _Choice(Decision(number, method, before, wanted, makes, form), total, compute)
                    yield _LayerChoice(
                        form, reads, gained, sends, needs, self.value(total, compute), whole, copied, by, choice
                    )
