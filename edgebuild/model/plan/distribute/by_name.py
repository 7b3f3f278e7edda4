"""Plans by name of method: the joint optimum, and published methods as restrictions of the same search.

`joint` searches pipelines; then plans that split layers, with more or less of them on the source; then
plans in which devices run some layers alone and split others. Each is compared with the best so far."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ....base.errors import fail
from .forms import (
    SOURCE,
    Cluster,
    ClusterPlan,
    Conversion,
    Cost,
    Decision,
    DeviceLimits,
    Network,
    Split,
    held,
    split,
    whole_on,
)
from .joint import INFINITY, STAGE, Search

# Distribution as in Stahl 2024, chapter 5: element counts of a chain of layers, equal devices, 4 bytes a value.
#
# Only layers with weights that are convolutions count (`counted`); the others end the reuse of data and cost nothing.
# Both ILPs, eq. 5.12 to 5.15 and 5.16 to 5.23, have one free variable a layer, so dynamic programs solve them exactly.

BYTES = 4


@dataclass(frozen=True)
class Counts:
    """Elements of a layer's input, output and weights: M, K and Q of the thesis; all zero if it does not count."""

    m: int
    k: int
    q: int
    counted: bool = True


def single(layers: Sequence[Counts]) -> int:
    """Footprint F of one device: all weights, and the largest input and output of a layer."""
    return max(x.m + x.k for x in layers) + sum(x.q for x in layers)


def full(layers: Sequence[Counts], n: int) -> tuple[float, int]:
    """Eq. 5.12 to 5.15: least F of a device, and how many layers before that are split by rows (the switch).

    A layer that does not count cannot be named as the first with split weights, so the switch moves past it.
    """
    options = [(footprint(layers, n, at), at) for at in range(len(layers) + 1)]
    best, at = min(options)
    while at < len(layers) and not layers[at].counted:
        at += 1
    return best, at


def footprint(layers: Sequence[Counts], n: int, switch: int) -> float:
    """F of a device where the layers before `switch` are split by rows and the others by weights."""
    values = [(x.m + x.k) / (n if i < switch else 1) for i, x in enumerate(layers)]
    return max(values) + sum(x.q if i < switch else x.q / n for i, x in enumerate(layers))


def sequential(layers: Sequence[Counts]) -> int:
    """F of the largest layer by itself: no mapping of whole layers to devices needs less."""
    return max(x.m + x.k + x.q for x in layers)


def fan_out(layers: Sequence[Counts], n: int) -> float:
    """Communication C of fan-out in every layer, eq. 5.7 and 5.8."""
    return communication(layers, n, ["out" if x.counted else "" for x in layers])


def communication(layers: Sequence[Counts], n: int, methods: Sequence[str]) -> float:
    """C of a method for each layer: out, in, first and second of a fused pair, or "" for none; eq. 5.16.

    Fan-in is eq. 5.9. In eq. 5.8 the first summand counts where there is *no* reuse, as its figure shows.
    """
    total, reused = 0.0, False
    for i, (x, method) in enumerate(zip(layers, methods, strict=True)):
        after = methods[i + 1] if i + 1 < len(layers) else ""
        reuse = method == "out" and after in ("out", "first")
        scattered = 0.0 if reused else float(x.m * (n - 1))
        if method == "out":
            total += scattered + (x.k * (n - 1) if reuse else x.k * (n - 1) / n)
        elif method == "in":
            total += x.m * (n - 1) / n + x.k * (n - 1)
        elif method == "first":
            total += scattered
        elif method == "second":
            total += x.k * (n - 1)
        reused = reuse
    return total


def optimized(layers: Sequence[Counts], n: int) -> tuple[float, list[str]]:
    """C and methods of Optimized Weight Partitioning, eq. 5.17 to 5.23."""
    # The state after a layer is its method; its cost depends on the next layer's, so costs are of pairs.
    best: dict[str, tuple[float, list[str]]] = {"": (0.0, [])}
    for x in layers:
        after: dict[str, tuple[float, list[str]]] = {}
        for before, (_, chosen) in best.items():
            for method in _next(before, x.counted):
                methods = [*chosen, method]
                total = communication(layers[: len(methods)], n, methods)
                if method not in after or total < after[method][0]:
                    after[method] = total, methods
        best = after
    best.pop("first", None)
    return min(best.values(), key=lambda option: option[0])


def _next(before: str, counted: bool) -> tuple[str, ...]:
    if before == "first":
        return ("second",) if counted else ()
    return ("out", "in", "first") if counted else ("",)


# Pipelines: the source runs some layers in a row, then each device some, then the source again.
#
# A baseline, and a plan without split layers where that sends least. The least bytes from any layer to any other by way
# of the devices are (min, +) products of matrices, one for each device. A tensor on one device alone
# has form F with all rows there.

Floats = NDArray[np.float64]


def pipeline(network: Network, cluster: Cluster, search: Search) -> tuple[ClusterPlan | None, float]:
    """The plan and a bound; no plan if no cut keeps each device's flash, and RAM for the tensors of a layer.

    In a star the bound is below the plan, because messages that the hub forwards are sent twice.
    """
    others = [k for k in range(len(cluster.devices)) if k != cluster.source]
    edges, bound = _cuts(network, search, others)
    if edges is None:
        return None, INFINITY
    order = [cluster.source, *others, cluster.source]
    where = [k for k, (first, past) in zip(order, pairwise(edges), strict=True) for _ in range(first, past)]
    return _plan(network, cluster, search, where), bound


def _cuts(network: Network, search: Search, others: Sequence[int]) -> tuple[list[int] | None, float]:
    """Cuts and their cost: the source runs layers up to the first cut and from the last, others[i] from cut i to i + 1.

    None if no cuts keep the limits. The cost counts one hop for each message.
    """
    source, count = search.cluster.source, len(network.layers)
    own = _segments(network, search, source)
    alike = {_kind(search, k): k for k in others}
    costs = {kind: _segments(network, search, k) for kind, k in alike.items()}
    steps = [costs[_kind(search, k)] for k in others]
    weights = np.cumsum([0, *(layer.flash for layer in network.layers)])
    twice = weights[:, None] + weights[-1] - weights[None, :] > search.limits.flash[source]
    tables = [np.where(np.eye(count + 1, dtype=bool), 0.0, INFINITY)]
    for step in steps:
        tables.append(np.array([(row[:, None] + step).min(axis=0) for row in tables[-1]]))
    total = own[0][:, None] + tables[-1] + own[:, count][None, :] + _returned(network, search)
    total[twice] = INFINITY
    np.fill_diagonal(total[:count, :count], INFINITY)  # the source alone is one segment, not two
    first, last = (int(i) for i in np.unravel_index(int(total.argmin()), total.shape))
    if total[first, last] == INFINITY:
        return None, INFINITY
    edges = [last]
    for step, before in zip(reversed(steps), reversed(tables[:-1]), strict=True):
        sent = before[first] + step[:, edges[-1]]
        edges.append(int(np.flatnonzero(sent == sent.min())[-1]))  # of equals, the first devices work
    return [0, *reversed(edges), count], float(total[first, last])


def _kind(search: Search, device: int) -> tuple[float, float, float]:
    """A key that is equal for devices that run each segment at the same cost."""
    return search.limits.flash[device], search.limits.ram[device], search.cluster.devices[device].macs_per_us


def _sent(search: Search, tensor: int) -> float:
    """The cost of a tensor that one device sends to another, in one hop."""
    source = search.cluster.source
    other = next(k for k in range(len(search.cluster.devices)) if k != source)
    return search.value(search.cost(tensor, SOURCE, search.at(tensor, other)), 0.0)


def _returned(network: Network, search: Search) -> Floats:
    """Cost of sending results of layers [row, column) back to the source; (layers + 1) x (layers + 1)."""
    count = len(network.layers)
    table = np.zeros((count + 1, count + 1))
    for number, layer in enumerate(network.layers if len(search.cluster.devices) > 1 else ()):
        last = max(search.readers[layer.output], default=-1)
        table[: number + 1, number + 1 : last + 1] += _sent(search, layer.output)
    return table


def _segments(network: Network, search: Search, device: int) -> Floats:
    """Cost of layers [row, column) on a device, with sending their inputs to it; (layers + 1) x (layers + 1).

    Infinite where they do not fit. Sending results back to the source is not counted.
    """
    count = len(network.layers)
    table = np.full((count + 1, count + 1), INFINITY)
    for first in range(count + 1):
        for past, spent in _segments_from(network, search, first, device):
            table[first, past] = spent
    return table


def _segments_from(network: Network, search: Search, first: int, device: int) -> Iterator[tuple[int, float]]:
    """Ends of segments of a device that begin at a layer, and their costs."""
    tensors, readers, is_source = network.tensors, search.readers, device == search.cluster.source
    yield first, 0.0
    flash, spent = 0.0, 0.0
    own = set(network.inputs) if is_source else set[int]()  # made on this device, or there from the start
    here = set(own)
    for number in range(first, len(network.layers)):
        layer = network.layers[number]
        flash += layer.flash
        own = {t for t in own if readers[t] and readers[t][-1] >= number}
        room = sum(tensors[t].bytes for t in {*own, *layer.inputs, layer.output})
        if flash > search.limits.flash[device] or room > search.limits.ram[device]:
            return
        if not is_source:
            spent += sum(_sent(search, t) for t in layer.inputs if t not in here)
        spent += search.value(Cost(), layer.macs / search.cluster.devices[device].macs_per_us)
        here |= {*layer.inputs, layer.output}
        own.add(layer.output)
        yield number + 1, spent


def _plan(network: Network, cluster: Cluster, search: Search, where: Sequence[int]) -> ClusterPlan:
    spent, compute, decisions = Cost(), 0.0, list[Decision]()
    holders = {t: {cluster.source} for t in network.inputs}  # devices that have a tensor, its maker first
    maker = dict.fromkeys(network.inputs, cluster.source)
    for number, device in enumerate(where):
        layer, before = network.layers[number], list[Conversion]()
        for t in dict.fromkeys(layer.inputs):
            if device not in holders[t]:
                before.append(
                    Conversion(t, whole_on(network, cluster, t, maker[t]), whole_on(network, cluster, t, device))
                )
                holders[t].add(device)
        spent = sum((search.cost(c.tensor, c.have, c.want) for c in before), spent)
        compute += layer.macs / cluster.devices[device].macs_per_us
        form = whole_on(network, cluster, layer.output, device)
        reads = tuple(whole_on(network, cluster, t, device) for t in layer.inputs)
        decisions.append(Decision(number, STAGE, tuple(before), reads, form, form))
        holders[layer.output], maker[layer.output] = {device}, device
    gather = tuple(
        Conversion(t, whole_on(network, cluster, t, maker[t]), SOURCE)
        for t in network.results
        if cluster.source not in holders[t]
    )
    spent = sum((search.cost(c.tensor, c.have, c.want) for c in gather), spent)
    return ClusterPlan(network, cluster, tuple(decisions), gather, spent, compute)


METHODS = ("joint", "fdto", "owp", "paper", "pipeline")
SOURCE_SHARE_FACTORS = (
    0.25,
    0.5,
    0.75,
    1.0,
    1.5,
    2.0,
)  # factors of the source's share, if the cluster states no shares
MIXED, MAX_OPTIONS = 6, 60_000  # devices, and options of a network, up to which mixed plans are searched
MEMORY_FACTORS = (1.05, 1.15, 1.3, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)  # factors of devices' memory, if no plan fits
FINE = 0.01  # of memory: precision of the bisection


@dataclass(frozen=True)
class Chosen:
    """A plan, bytes of weights and arena on each device, and whether it is proved to be the best for its shares.

    `bound`: lower bound of the plans searched, in bytes or microseconds. `mixed`: whether the search had plans in which
    devices run some layers alone and split others.
    """

    plan: ClusterPlan
    weights: tuple[int, ...]
    arena: tuple[int, ...]
    optimal: bool
    bound: float = 0.0
    mixed: bool = False


def choose(
    network: Network, cluster: Cluster, stated: bool, method: str = "joint", objective: str = "traffic", file: str = ""
) -> Chosen:
    """The best plan by one of METHODS. Raises EdgebuildError if no plan fits the devices.

    `stated`: the user states the shares; otherwise the source may take less or more than its share.
    """
    if _lacks_flash(network, cluster):
        raise _no_plan(network, cluster, method, _nearest(network, cluster, method), file)
    incumbent = _Best(objective)
    several = method == "joint" and len(cluster.devices) > 1
    if several:  # the pipeline's search counts only the tensors of a layer, so limits are checked again
        limits = _limits(cluster)
        plan, bound = pipeline(network, cluster, Search(network, cluster, limits, incumbent.goal))
        incumbent.consider(plan if plan is not None and _keeps_limits(plan, limits) else None, bound)
    source, factors = (
        cluster.devices[cluster.source],
        (1.0,) if stated or len(cluster.devices) == 1 else SOURCE_SHARE_FACTORS,
    )
    for moved in (replace(source, share=source.share * factor) for factor in factors):
        devices = tuple(moved if d is source else d for d in cluster.devices)
        candidate = replace(cluster, devices=devices)
        search = _search(network, candidate, _limits(candidate), method, objective)
        if method == "pipeline":
            incumbent.consider(*pipeline(network, candidate, search))
        elif method == "joint" and objective == "memory":
            _least_memory(search, incumbent)
        else:
            incumbent.consider(*search.solve(incumbent.limit))
    mixed = several and len(cluster.devices) <= MIXED and _mixed(network, cluster, incumbent)
    if incumbent.best is None:
        nearest = _nearest(network, cluster, method)
        if nearest is None or not _keeps_limits(nearest, _limits(cluster)):
            raise _no_plan(network, cluster, method, nearest, file)
        incumbent.consider(nearest, 0.0)  # parts are whole channels and may need less than the shares
    best = incumbent.best
    assert best is not None
    worth = _objective_key(best, objective)[0]
    bound = min(incumbent.bound, worth)
    proved = method == "joint" and objective != "memory" and bound >= worth - 1e-6
    return replace(best, optimal=proved, bound=bound, mixed=mixed)


def _lacks_flash(network: Network, cluster: Cluster) -> bool:
    """Whether the flash of all devices together is too small for the weights."""
    return sum(d.flash for d in cluster.devices) < network.weights


def _limits(cluster: Cluster) -> DeviceLimits:
    return DeviceLimits(tuple(float(d.flash) for d in cluster.devices), tuple(float(d.ram) for d in cluster.devices))


@dataclass
class _Best:
    """The best plan so far. `bound`: the least bound of all searches."""

    objective: str
    best: Chosen | None = None
    bound: float = INFINITY

    @property
    def goal(self) -> str:
        return "latency" if self.objective == "latency" else "traffic"

    @property
    def limit(self) -> float:
        """Cost of the best plan: later searches leave out worse plans, which makes them short."""
        if self.best is None or self.objective == "memory":
            return INFINITY
        return _objective_key(self.best, self.objective)[0]

    @property
    def most(self) -> float:
        """Bytes on the device that holds most in the best plan."""
        return _largest_device(self.best) if self.best is not None else INFINITY

    def consider(self, plan: ClusterPlan | None, bound: float) -> None:
        """Keep a plan if it is better than the best. `bound`: of its search."""
        self.bound = min(self.bound, bound)
        if plan is not None:
            chosen = Chosen(plan, *usage(plan), False)
            if self.best is None or _objective_key(chosen, self.objective) < _objective_key(self.best, self.objective):
                self.best = chosen


def _keeps_limits(plan: ClusterPlan, limits: DeviceLimits) -> bool:
    pairs = zip(usage(plan), (limits.flash, limits.ram), strict=True)
    return all(u <= most for used, room in pairs for u, most in zip(used, room, strict=True))


def _mixed(network: Network, cluster: Cluster, incumbent: _Best) -> bool:
    """Try plans in which devices run some layers alone and split others; False: not searched.

    There may be too many options. If all cores are equally fast, a layer alone elsewhere takes as long as at the
    source. The time that such a plan saves is within the error of the model.
    """
    if incumbent.goal == "latency" and len({d.macs_per_us for d in cluster.devices}) == 1:
        return False
    candidate = cluster if incumbent.best is None else incumbent.best.plan.cluster
    search = Search(network, candidate, _limits(candidate), incumbent.goal, stages=True)
    graph = search.graph(incumbent.limit, MAX_OPTIONS)
    if graph and incumbent.objective == "memory":
        _least_memory(search, incumbent)
    elif graph:
        incumbent.consider(*search.solved(graph, incumbent.limit))
    return bool(graph)


def _objective_key(chosen: Chosen, objective: str) -> tuple[float, ...]:
    most = _largest_device(chosen)
    spent = (chosen.plan.cost.bytes, chosen.plan.cost.time_us + chosen.plan.compute_us)
    return {"traffic": (*spent, most), "latency": (spent[1], spent[0], most), "memory": (most, *spent)}[objective]


def _largest_device(chosen: Chosen) -> int:
    return max(w + a for w, a in zip(chosen.weights, chosen.arena, strict=True))


def _search(network: Network, cluster: Cluster, limits: DeviceLimits, method: str, objective: str) -> Search:
    base = Search(network, cluster, limits, "latency" if objective == "latency" else "traffic")
    match method:
        case "fdto":
            return replace(base, methods=_forced(network, cluster, {"fan-out"}))
        case "owp":
            return replace(base, methods=_forced(network, cluster, {"fan-out", "fan-in"}), sums_to="SA")
        case "paper":
            return replace(base, methods=_two_steps(network, cluster), sums_to="SA")
    assert method in METHODS, method
    return base


def _least_memory(base: Search, incumbent: _Best) -> None:
    """Minimise flash plus RAM of the device that needs most, by bisection within the limits."""
    # A lower bound for that device: an even part of the weights, or tensors that only the source can hold.
    low = max(base.network.weights / len(base.cluster.devices), _at_source(base.network))
    feasible = incumbent.best is not None
    if not feasible:
        incumbent.consider(*base.solve())
    parts = [0.3, 0.5, 0.7, 0.9]  # of flash plus RAM, for flash
    while incumbent.most - low > incumbent.most * FINE and incumbent.best is not None:
        middle, before = (low + incumbent.most) / 2, incumbent.best
        if feasible:  # test first whether these shares are better at all
            middle, feasible = max(low, incumbent.most * (1 - FINE)), False
        for part in list(parts):
            flash = tuple(min(f, middle * part) for f in base.limits.flash)
            ram = tuple(min(r, middle * (1 - part)) for r in base.limits.ram)
            if sum(flash) < base.network.weights or ram[base.cluster.source] < _at_source(base.network):
                continue
            incumbent.consider(*replace(base, limits=replace(base.limits, flash=flash, ram=ram)).solve())
            if incumbent.best is not before:
                parts.sort(key=lambda p: p != part)  # the part that worked is tried first
                break
        else:
            low = middle


def _at_source(network: Network) -> int:
    """Bytes of RAM of the source in any plan: the inputs lie there at first, the results at last."""
    return max(sum(network.tensors[t].bytes for t in some) for some in (network.inputs, network.results))


def _forced(network: Network, cluster: Cluster, forms: set[str]) -> tuple[frozenset[str], ...]:
    """For each layer the methods it is restricted to: these if it has weights and they apply, else the source alone."""
    search = Search(network, cluster, DeviceLimits((), ()))
    forced = []
    for number, layer in enumerate(network.layers):
        possible = {option[0] for option in search.options[number]} & forms if layer.weights else set()
        forced.append(frozenset(possible or {"whole"}))
    return tuple(forced)


def _two_steps(network: Network, cluster: Cluster) -> tuple[frozenset[str], ...]:
    """Rows are split before the switch that eq. 5.12 of the thesis chooses, weights after it."""
    tensors = network.tensors
    counts = [
        Counts(sum(tensors[t].bytes for t in layer.inputs), tensors[layer.output].bytes, layer.weights)
        if layer.fan_out else Counts(0, 0, 0, False)
        for layer in network.layers
    ]  # fmt: skip
    _, switch = full(counts, len(cluster.devices))
    search, behind = Search(network, cluster, DeviceLimits((), ())), _forced(network, cluster, {"fan-out", "fan-in"})
    rows = [frozenset({"rows"} & {o[0] for o in search.options[n]} or {"whole"}) for n in range(switch)]
    return (*rows, *behind[switch:])


def usage(plan: ClusterPlan) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bytes of weights and of tensors on each device, counted naively from the decisions."""
    network, cluster = plan.network, plan.cluster
    devices = range(len(cluster.devices))
    weights, arena = [0] * len(devices), [0] * len(devices)
    readers = {t: n for n, layer in enumerate(network.layers) for t in layer.inputs}
    readers |= dict.fromkeys(network.results, len(network.layers))
    live = dict.fromkeys(network.inputs, SOURCE)
    for d in plan.decisions:
        layer = network.layers[d.layer]
        reads = {t: live[t] if live[t].ring else f for t, f in zip(layer.inputs, d.reads, strict=True)}
        for k in devices:
            weights[k] += _weights(plan, d.layer, d.method, d.makes, k)
            result = d.keeps if d.keeps.ring else d.makes
            total = held(network.tensors[layer.output], result, k, cluster.source, layer.partial)
            for t in {*live, *reads}:
                forms = [f for f in (live.get(t), reads.get(t)) if f is not None]
                total += max(held(network.tensors[t], f, k, cluster.source) for f in forms)
            arena[k] = max(arena[k], total)
        last = {t: readers.get(t, -1) > d.layer for t in live}
        if d.keeps.ring:  # operands of a run stay until the run ends
            live = {t: f if last[t] else reads.get(t, f) for t, f in live.items()}
        else:
            live = {t: f for t, f in live.items() if last[t]}
        live[layer.output] = d.keeps
    for k in devices:  # the results are gathered
        both = ((held(network.tensors[t], f, k, cluster.source) for f in (live[t], SOURCE)) for t in network.results)
        arena[k] = max(arena[k], sum(map(max, both)))
    return tuple(weights), tuple(arena)


def _weights(plan: ClusterPlan, number: int, method: str, makes: Split, device: int) -> int:
    layer, cluster = plan.network.layers[number], plan.cluster
    match method:
        case "whole":
            return layer.flash if device == cluster.source else 0
        case "stage":
            return layer.flash if held(plan.network.tensors[layer.output], makes, device, cluster.source) else 0
        case "copies" | "rows":
            return layer.flash
    along = layer.inputs[0] if method == "fan-in" else layer.output
    channels = plan.network.tensors[along].channels
    first, past = split(channels, cluster.shares)[device]
    return layer.weights * (past - first) // channels + layer.table


def macs(plan: ClusterPlan, device: int) -> int:
    """Multiply-accumulates that a device does; rows that two devices compute count twice."""
    network, cluster, total = plan.network, plan.cluster, 0
    for d in plan.decisions:
        layer = network.layers[d.layer]
        match d.method:
            case "whole":
                part, of = int(device == cluster.source), 1
            case "copies":
                part, of = 1, 1
            case "fan-in":
                of = network.tensors[layer.inputs[0]].channels
                first, past = split(of, cluster.shares)[device]
                part = past - first
            case _:
                tensor = replace(network.tensors[layer.output], item=1)
                part, of = held(tensor, d.makes, device, cluster.source), tensor.bytes
        total += layer.macs * part // of
    return total


def _no_plan(network: Network, cluster: Cluster, method: str, plan: ClusterPlan | None, file: str) -> Exception:
    """The error that no plan fits. `plan`: one for devices with more memory, which shows the bytes that they lack."""
    hints = []
    if _lacks_flash(network, cluster):
        each = network.weights // len(cluster.devices)
        have = ", ".join(f"{d.name} {d.flash} B" for d in cluster.devices)
        hints.append(f"weights: {network.weights} B in all, {each} B each if all is split; flash: {have}")
    for d, weights, arena in zip(cluster.devices, *usage(plan), strict=True) if plan is not None else ():
        some = ((weights, d.flash, "flash"), (arena, d.ram, "RAM"))
        lacks = [f"{most} B of {kind}, has {has} B" for most, has, kind in some if most > has]
        hints += [f"the plan that lacks least needs of device '{d.name}' {line}" for line in lacks]
    hints.append("more or larger devices, or another method, may fit")
    return fail(f"no plan of method {method} fits the cluster", file=file, hints=hints)


def _nearest(network: Network, cluster: Cluster, method: str) -> ClusterPlan | None:
    """A plan for devices with more flash and RAM, by the least of MEMORY_FACTORS that allows one, or unlimited."""
    for times in (*MEMORY_FACTORS, INFINITY):
        pairs = [(d.flash * times, d.ram * times) if times < INFINITY else (times, times) for d in cluster.devices]
        flash, ram = zip(*pairs, strict=True)
        limits = DeviceLimits(flash, ram)
        if sum(flash) < network.weights:
            continue
        search = _search(network, cluster, limits, method, "traffic")
        nearest = pipeline(network, cluster, search)[0] if method == "pipeline" else search.run()
        if nearest is not None:
            return nearest
    return None


# Plans that no other dominates in memory, traffic and time: the gain of more flash on every device.

STEPS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.5, 8.0, 12.0, 16.0)


@dataclass(frozen=True)
class ClusterPoint:
    """A plan: the most that a device needs of weights and tensors, bytes; the wire's bytes; microseconds, modelled."""

    weights: int
    arena: int
    traffic: int
    time_us: float

    def dominates(self, other: ClusterPoint) -> bool:
        costs, other_costs = ((p.weights, p.arena, p.traffic, p.time_us) for p in (self, other))
        return costs != other_costs and all(a <= b for a, b in zip(costs, other_costs, strict=True))


def pareto(network: Network, cluster: Cluster) -> tuple[ClusterPoint, ...]:
    """Points by rising weights, for devices whose flash grows from an even part of the weights to all of them.

    RAM is that of the devices. Shares are those of the cluster.
    """
    points = list[ClusterPoint]()
    for plan in _plans(network, cluster):
        (weights, arena), time_us = map(max, usage(plan)), plan.cost.time_us + plan.compute_us
        points.append(ClusterPoint(weights, arena, plan.cost.bytes, round(time_us, 3)))
    points = list(dict.fromkeys(points))
    kept = [p for p in points if not any(q.dominates(p) for q in points)]
    return tuple(sorted(kept, key=lambda p: (p.weights, p.arena, p.traffic)))


def _plans(network: Network, cluster: Cluster) -> Iterator[ClusterPlan]:
    ram = tuple(float(d.ram) for d in cluster.devices)
    base = Search(network, cluster, DeviceLimits((INFINITY,) * len(ram), ram))
    graph, limit = base.graph(), INFINITY  # neither depends on flash; more flash never makes plans worse
    for step in STEPS:
        flash = tuple(min(step * share, 1.0) * network.weights + 1 for share in cluster.shares)
        search = replace(base, limits=DeviceLimits(flash, ram))
        split, in_a_row = search.solved(graph, limit)[0], pipeline(network, cluster, search)[0]
        yield from (plan for plan in (split, in_a_row) if plan is not None)
        limit = split.cost.bytes if split is not None else limit
        if all(step * share >= 1 for share in cluster.shares):
            return
