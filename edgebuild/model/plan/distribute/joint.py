"""The least cost of running a network on a cluster, exactly: a form for each tensor and a method for each layer.

A path through a layered graph: its nodes are the forms of the tensors that are still read, so a tensor with several
readers is one decision. RAM is a limit that every arc keeps by itself; flash limits the sums over a path. The methods:

whole      the source computes the layer
copies     every device computes all of it
fan-out    from all of the input, each device a part of the output channels (A -> P)
fan-in     from a part of the input channels, each device partial sums of all outputs (P -> Z), which are then sent
parts      channel by channel (P -> P), or tensors side by side, of which each device has what its part is made of
rows       each device some rows (F -> F); what its windows reach beyond them is sent before (halo exchange) or was
           computed twice (recomputed halo), which the ranges of the form say
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import add, le

from .decisions import ClusterPlan, Conversion, Decision, has
from .forms import ALL, SOURCE, SUMS, Cluster, Layer, Network, Ranges, Split, held, split
from .shortest import INFINITY, SLACK, Arc, Constraint, Route, shortest
from .transfers import Cost, cost, transfers

METHODS = frozenset(["whole", "copies", "fan-out", "fan-in", "parts", "rows"])
CROWDED = 0.5  # of the source's RAM: inputs that are larger leave it little for anything else
RUN = 4  # most layers in a row whose halos are computed twice


@dataclass(frozen=True)
class DeviceLimits:
    """Bytes. `arena(search, layer, forms of live tensors, makes)`: what a step takes of each device's RAM."""

    flash: tuple[float, ...]
    ram: tuple[float, ...]
    thesis_arena: bool = False


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
class _Way:
    """An option of a layer, its inputs kept in given forms. `gained`: inputs that all have then, and others read later.

    `needs`: bytes of each device's RAM beside what is kept. `whole`, `copied`: weights that the source alone has, and
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
    choice: _Choice


@dataclass(frozen=True)
class Search:
    """All forms, methods and costs of a problem. `methods` of each layer may be used; None: all of METHODS.

    `sums_to`: letters of the forms in which a fan-in may leave its result.
    """

    network: Network
    cluster: Cluster
    limits: DeviceLimits
    objective: str = "traffic"
    methods: tuple[frozenset[str], ...] | None = None
    sums_to: str = "SAPF"
    recompute: int = RUN
    _costs: dict[tuple[int, Split, Split, int], Cost] = field(default_factory=dict)
    _held: dict[tuple[int, Split, int], Bytes] = field(default_factory=dict)
    _found: dict[tuple[int, tuple[Split, ...]], tuple[_Way, ...]] = field(default_factory=dict, init=False)

    # ---- forms

    @cached_property
    def readers(self) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in self.network.tensors]
        for number, layer in enumerate(self.network.layers):
            for tensor in dict.fromkeys(layer.inputs):
                found[tensor].append(number)
        for tensor in self.network.results:
            found[tensor].append(len(self.network.layers))
        return found

    def channels(self, tensor: int) -> Split:
        return Split("P", split(self.network.tensors[tensor].channels, self.cluster.shares))

    @cached_property
    def channel_forms(self) -> list[tuple[Split, ...]]:
        """Of each tensor: channels by shares, and those of which a reader that joins tensors makes such."""
        found = []
        for tensor, readers in enumerate(self.readers):
            forms = [self.channels(tensor)] if self.divisible(tensor) else []
            for layer in (self.network.layers[n] for n in readers if n < len(self.network.layers)):
                if layer.joins and self.divisible(layer.output):
                    forms.append(self.joined(layer, layer.inputs.index(tensor)))
            found.append(tuple(dict.fromkeys(forms)))
        return found

    def divisible(self, tensor: int) -> bool:
        return self.network.tensors[tensor].channels >= len(self.cluster.devices)

    def joined(self, layer: Layer, position: int) -> Split:
        """The channels of an input that lie in the parts of the output."""
        start, count = layer.joins[position], self.network.tensors[layer.inputs[position]].channels
        ends = ([min(max(at - start, 0), count) for at in r] for r in self.channels(layer.output).ranges)
        return Split("P", tuple((first, past) for first, past in ends))

    def rows(self, tensor: int, lean: float = 1.0) -> Split:
        """Rows by shares; `lean`: what the source takes of its share."""
        shares = [s * lean if k == self.cluster.source else s for k, s in enumerate(self.cluster.shares)]
        return Split("F", split(self.network.tensors[tensor].rows, [s / sum(shares) for s in shares]))

    @cached_property
    def leans(self) -> tuple[float, ...]:
        """Rows of the source, in parts of its share: none, too, where the inputs leave it little room."""
        inputs = sum(self.network.tensors[t].bytes for t in self.network.inputs)
        room = self.limits.ram[self.cluster.source] if self.limits.ram else float("inf")
        others = any(s for k, s in enumerate(self.cluster.shares) if k != self.cluster.source)
        return (1.0,) if not others or self.limits.thesis_arena or inputs < CROWDED * room else (1.0, 0.0)

    @cached_property
    def row_forms(self) -> list[tuple[Split, ...]]:
        """Of each tensor: equal rows, and what up to `recompute` layers behind it need for theirs."""
        found: list[tuple[Split, ...]] = [() for _ in self.network.tensors]
        for tensor in reversed(range(len(self.network.tensors))):
            enough = self.network.tensors[tensor].rows >= len(self.cluster.devices)
            forms = [self.rows(tensor, lean) for lean in self.leans] if enough else []
            current, ahead = tensor, list[int]()
            while len(ahead) < self.recompute and len(self.readers[current]) == 1:
                number = self.readers[current][0]
                if number == len(self.network.layers) or self.network.layers[number].window is None:
                    break
                ahead.append(number)
                current = self.network.layers[number].output
                if self.network.tensors[current].rows >= len(self.cluster.devices):
                    forms += [self._back(self.rows(current, lean), ahead, tensor) for lean in self.leans]
            found[tensor] = tuple(dict.fromkeys(forms))
        return found

    def _back(self, form: Split, run: Sequence[int], tensor: int) -> Split:
        ranges = form.ranges
        for position, number in reversed(list(enumerate(run))):
            start = tensor if position == 0 else self.network.layers[run[position - 1]].output
            ranges = self.needed(self.network.layers[number], ranges, start)
        return Split("F", ranges)

    def needed(self, layer: Layer, ranges: Ranges, tensor: int) -> Ranges:
        assert layer.window is not None
        rows = self.network.tensors[tensor].rows
        return tuple(layer.window.needed(first, past, rows) for first, past in ranges)

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

    def compute_us(self, layer: Layer, method: str, makes: Split) -> float:
        """The slowest device's time for its part."""
        devices, tensor = self.cluster.devices, self.network.tensors[layer.output]
        if method == "whole":
            return layer.macs / devices[self.cluster.source].macs_per_us
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
        return tuple(tuple(o for o in self._options(layer) if o[0] in ways) for layer, ways in pairs)

    def _options(self, layer: Layer) -> Iterator[Option]:
        inputs, out = layer.inputs, layer.output
        yield "whole", (SOURCE,) * len(inputs), SOURCE, (SOURCE,)
        yield "copies", (ALL,) * len(inputs), ALL, (ALL,)
        divisible = self.divisible(out)
        if layer.fan_out and divisible:
            yield "fan-out", (ALL,), self.channels(out), (self.channels(out),)
        if layer.fan_in and self.divisible(inputs[0]):
            kept = [SOURCE, ALL, *self.channel_forms[out], *self.row_forms[out]]
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
        found = []
        for layer in self.network.layers:
            after = [self.network.layers[n] for n in self.readers[layer.output] if n < len(self.network.layers)]
            sizes = {t for x in (layer, *after) for t in (*x.inputs, x.output)}
            found.append(not self.limits.thesis_arena and sum(tensors[t].bytes for t in sizes) > room)
        return found

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
        found = self._held.get(key)
        if found is None:
            shape, source = self.network.tensors[tensor], self.cluster.source
            found = tuple(held(shape, form, k, source, partial) for k in range(len(self.cluster.devices)))
            self._held[key] = found
        return found

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

    def run(self, below: float = float("inf")) -> ClusterPlan | None:
        """The best plan within the limits; None if there is none, or none that costs at most `below`."""
        nodes: dict[Forms, int] = {tuple((t, SOURCE) for t in sorted(self.network.inputs)): 0}
        spent = {0: 0.0}  # least cost to each node, whatever the flash
        layers: list[list[Arc]] = []
        for number in range(len(self.network.layers)):
            after: dict[Forms, int] = {}
            best: dict[tuple[int, int, float, float], Arc] = {}
            reached: dict[int, float] = {}
            for forms, tail in nodes.items():
                if spent[tail] > below * (1 + 1e-9) + SLACK:
                    continue
                for arc in self._arcs(number, forms, tail, after):
                    key = (arc.tail, arc.head, arc.first, arc.second)
                    if key not in best or arc.cost < best[key].cost:
                        best[key] = arc
                        reached[arc.head] = min(reached.get(arc.head, INFINITY), spent[tail] + arc.cost)
            layers.append(list(best.values()))
            nodes, spent = after, reached
        layers.append([self._gathering(dict(forms), tail) for forms, tail in nodes.items()])
        path = shortest(layers, self.constraints(), below)
        return self._plan(path) if path is not None else None

    def _plan(self, path: Route) -> ClusterPlan:
        chosen = [arc.choice for arc in path.arcs]
        spent = sum((c.spent for c in chosen), Cost())
        decisions = tuple(c.decision for c in chosen[:-1] if c.decision is not None)
        compute, proved = sum(c.compute_us for c in chosen), path.bound >= path.cost - 1e-6
        return ClusterPlan(self.network, self.cluster, decisions, chosen[-1].gather, spent, compute, path.bound, proved)

    def _gathering(self, live: dict[int, Split], tail: int) -> Arc:
        gather = tuple(Conversion(t, live[t], SOURCE) for t in self.network.results if not has(live[t], SOURCE))
        spent = sum((self.cost(c.tensor, c.have, c.want) for c in gather), Cost())
        return Arc(tail, 0, self.value(spent, 0.0), 0, 0, _Choice(None, spent, 0.0, gather), self.cluster.source)

    def _arcs(self, number: int, forms: Forms, tail: int, after: dict[Forms, int]) -> Iterator[Arc]:
        """All ways to run a layer; the forms that they lead to get numbers in `after`."""
        layer, live = self.network.layers[number], dict(forms)
        remaining = tuple((t, f) for t, f in forms if max(self.readers[t], default=-1) > number)
        held_by, rolled = self._all_held(live), any(form.ring for form in live.values())
        for way in self._ways(number, tuple(live[t] for t in layer.inputs)):
            if rolled and way.sends:  # nothing is sent between steps that run row by row together
                continue
            if not all(map(le, map(add, held_by, way.needs), self.limits.ram)):
                continue
            stays = remaining
            if way.keeps.ring:  # what a run reads stays to its end
                stays = tuple((t, way.reads.get(t, f) if self.readers[t][-1:] == [number] else f) for t, f in forms)
            for gained in ({}, way.gained) if way.gained else ({},):
                key = tuple((t, gained.get(t, f)) for t, f in stays) if gained else stays
                if self.readers[layer.output]:
                    key = tuple(sorted((*key, (layer.output, way.keeps))))
                head = after.setdefault(key, len(after))
                yield Arc(tail, head, way.value, way.whole, way.copied, way.choice, self.cluster.source)

    def _ways(self, number: int, live: tuple[Split, ...]) -> tuple[_Way, ...]:
        """The options of a layer whose inputs are kept in these forms: the same whatever else is kept."""
        key = number, live
        if key not in self._found:
            self._found[key] = tuple(
                self._new_ways(number, dict(zip(self.network.layers[number].inputs, live, strict=True)))
            )
        return self._found[key]

    def _new_ways(self, number: int, live: dict[int, Split]) -> Iterator[_Way]:
        layer = self.network.layers[number]
        for method, wanted, makes, kept in self.options(number):
            asked = dict(zip(layer.inputs, wanted, strict=True))
            before = tuple(Conversion(t, live[t], want) for t, want in asked.items() if not has(live[t], want))
            reads = {t: live[t] if live[t].ring else want for t, want in asked.items()}
            gained = {
                t: f for t, f in reads.items()
                if self.readers[t][-1] > number and not has(live[t], f) and f.letter == "A"
            }  # fmt: skip
            spent = sum((self.cost(c.tensor, c.have, c.want) for c in before), Cost())
            whole = layer.weights if method == "whole" else 0
            copied = layer.weights if method in ("copies", "rows") else 0
            compute, sends = self.compute_us(layer, method, makes), bool(before) or method == "fan-in"
            for form in (*kept, *self.rings(number, makes)):
                total = spent + (self.cost(layer.output, SUMS, form, layer.partial) if makes == SUMS else Cost())
                needs = self.needs(layer, live, reads, form if form.ring else makes)
                if needs is not None:
                    choice = _Choice(Decision(number, method, before, wanted, makes, form), total, compute)
                    yield _Way(form, reads, gained, sends, needs, self.value(total, compute), whole, copied, choice)
