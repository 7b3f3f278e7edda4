"""The least cost of running a network on a cluster, exactly: a form for each tensor and a method for each layer.

A path through a layered graph: its nodes are the forms of the tensors that are still read, so a tensor with several
readers is one decision. RAM is a limit that every arc keeps by itself; flash limits the sums over a path. The methods:

whole      the source computes the layer
stage      another device computes the layer
copies     every device computes all of it
fan-out    from all of the input, each device a part of the output channels (A -> P)
fan-in     from a part of the input channels, each device partial sums of all outputs (P -> Z), which are then sent
parts      channel by channel (P -> P), or tensors side by side, of which each device has what its part is made of
rows       each device some rows (F -> F); what its windows reach beyond them is sent before (halo exchange) or was
           computed twice (recomputed halo), which the ranges of the form say
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from operator import add, le

from ....base.dataclass import dataclass
from .decisions import ClusterPlan, Conversion, Decision, has
from .forms import ALL, SOURCE, SUMS, Layer, Split, held
from .shortest import INFINITY, SLACK, Arc, Constraint, Route, shortest
from .tensor_forms import TensorForms
from .transfers import Cost, cost, transfers

STAGE = "stage"
METHODS = frozenset(["whole", "copies", "fan-out", "fan-in", "parts", "rows", STAGE])


Forms = tuple[tuple[int, Split], ...]
Bytes = tuple[int, ...]  # by device
Option = tuple[str, tuple[Split, ...], Split, tuple[Split, ...]]


@dataclass(frozen=True)
class _Choice:
    """An arc of the search: a decision, or the gathering of the results behind the last."""

    decision: Decision | None
    spent: Cost
    compute_us: float
    gather: tuple[Conversion, ...] = ()


@dataclass(frozen=True)
class _LayerChoice:
    """An option of a layer, its inputs kept in given forms. `gained`: inputs that all have then, and others read later.

    `needs`: bytes of each device's RAM beside what is kept. `whole`, `copied`: weights that device `by` alone has, and
    all have.
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
        """The device that makes a tensor in this form, where one does."""
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

    def options(self, number: int) -> tuple[Option, ...]:
        """Method, forms of the inputs, form that the layer makes, and forms in which that may be kept."""
        return self._every_option[number]

    @cached_property
    def _every_option(self) -> tuple[tuple[Option, ...], ...]:
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
        """The form of a result that runs into its reader row by row, if that can be and memory is short."""
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
        """Of each layer: its result together with the operands and the result of the reader may not fit a device."""
        tensors, room = self.network.tensors, min(self.limits.ram, default=float("inf"))
        missing = []
        for layer in self.network.layers:
            after = [self.network.layers[n] for n in self.readers[layer.output] if n < len(self.network.layers)]
            sizes = {t for x in (layer, *after) for t in (*x.inputs, x.output)}
            missing.append(not self.limits.thesis_arena and sum(tensors[t].bytes for t in sizes) > room)
        return missing

    def needs(self, layer: Layer, live: Mapping[int, Split], reads: Mapping[int, Split], makes: Split) -> Bytes | None:
        """RAM that a step takes of each device beside the live tensors as they are kept: for those that it reads in
        other forms, and for the result. None if it never fits.
        """
        if self.limits.thesis_arena:
            return self._none if self._thesis_arena(layer, makes) <= min(self.limits.ram) else None
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

    def _thesis_arena(self, layer: Layer, makes: Split) -> float:
        """Eq. 5.13: input and output of a layer with weights, divided where rows are split, whole otherwise."""
        if not layer.fan_out:
            return 0.0
        both = sum(self.network.tensors[t].bytes for t in (*layer.inputs, layer.output))
        return both / len(self.cluster.devices) if makes.letter == "F" else both

    def constraints(self) -> tuple[Constraint, ...]:
        """Flash of each device: what it has alone, what all have, and its share of the rest."""
        pairs = enumerate(zip(self.cluster.shares, self.limits.flash, strict=True))
        return tuple(Constraint(k, share, flash - share * self.network.weights) for k, (share, flash) in pairs)

    def run(self, below: float = INFINITY) -> ClusterPlan | None:
        """The best plan within the limits; None if there is none, or none that costs at most `below`."""
        return self.solve(below)[0]

    def solve(self, below: float = INFINITY) -> tuple[ClusterPlan | None, float]:
        """The same, and a bound: no plan costs less, or at most `below`."""
        return self.solved(self.graph(below), below)

    def solved(self, layers: Sequence[Sequence[Arc]], below: float = INFINITY) -> tuple[ClusterPlan | None, float]:
        """The same of a graph, which does not depend on flash."""
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
        ends = ((dict(forms), tail) for forms, tail in nodes.items())
        layers.append([self._gathering(live, tail) for live, tail in ends if self._gathers(live)])
        return layers

    def _plan(self, path: Route) -> ClusterPlan:
        chosen = [arc.choice for arc in path.arcs]
        spent = sum((c.spent for c in chosen), Cost())
        decisions = tuple(c.decision for c in chosen[:-1] if c.decision is not None)
        compute, proved = sum(c.compute_us for c in chosen), path.bound >= path.cost - 1e-6
        return ClusterPlan(self.network, self.cluster, decisions, chosen[-1].gather, spent, compute, path.bound, proved)

    def _gathers(self, live: dict[int, Split]) -> bool:
        """Whether the source has room for all results beside what it holds of them."""
        if not self._ram_is_short or self.limits.thesis_arena:
            return True
        both = (map(max, self._holds(t, f), self._holds(t, SOURCE)) for t, f in live.items())
        return all(map(le, map(sum, zip(self._none, *both, strict=True)), self.limits.ram))

    def _gathering(self, live: dict[int, Split], tail: int) -> Arc:
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
            if option.keeps.ring:  # what a run reads stays to its end
                stays = tuple((t, option.reads.get(t, f) if self.readers[t][-1:] == [number] else f) for t, f in forms)
            for gained in ({}, option.gained) if option.gained else ({},):
                key = tuple((t, gained.get(t, f)) for t, f in stays) if gained else stays
                if self.readers[layer.output]:
                    key = tuple(sorted((*key, (layer.output, option.keeps))))
                head = after.setdefault(key, len(after))
                yield Arc(tail, head, option.value, option.whole, option.copied, option.choice, option.by)

    def _choices_of(self, number: int, live: tuple[Split, ...]) -> tuple[_LayerChoice, ...]:
        """The options of a layer whose inputs are kept in these forms: the same whatever else is kept."""
        key = number, live
        if key not in self._cached:
            self._cached[key] = tuple(
                self._new_choices(number, dict(zip(self.network.layers[number].inputs, live, strict=True)))
            )
        return self._cached[key]

    def gained(
        self, number: int, method: str, live: Mapping[int, Split], reads: Mapping[int, Split]
    ) -> Iterator[tuple[int, Split]]:
        """Forms in which inputs that others read later may be kept: with what was sent for this layer."""
        for t, form in reads.items():
            if self.readers[t][-1] > number and not has(live[t], form):
                alone = method == STAGE or (self.stages and method == "whole")
                both = self.also_at(t, live[t], self.alone(form)) if alone else None
                if form == ALL or both is not None:
                    yield t, both or form

    def _new_choices(self, number: int, live: dict[int, Split]) -> Iterator[_LayerChoice]:
        layer = self.network.layers[number]
        for method, wanted, makes, kept in self.options(number):
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
