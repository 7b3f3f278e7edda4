"""Plans by name: the joint optimum, and what others do, as restrictions of the same search.

`joint` may take a pipeline, too, which splits no layer: where devices have little flash it may be all that fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ....base.errors import fail
from .decisions import ClusterPlan
from .forms import SOURCE, Cluster, Network, Split, held, split
from .joint import DeviceLimits, Search
from .pipeline import pipeline
from .thesis import Counts, full

WAYS = ("joint", "fdto", "owp", "paper", "pipeline")
LEANINGS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0)  # of the source's share, where the cluster does not say the shares
INFINITY = float("inf")


@dataclass(frozen=True)
class Chosen:
    """A plan, what each device holds of it, and whether it is proved to be the best for its shares."""

    plan: ClusterPlan
    weights: tuple[int, ...]
    arena: tuple[int, ...]
    optimal: bool


def choose(
    network: Network, cluster: Cluster, stated: bool, method: str = "joint", objective: str = "traffic", file: str = ""
) -> Chosen:
    """The best plan by a method of WAYS. Raises EdgebuildError where no device split makes the network fit.

    `stated`: the shares are the user's; otherwise the source may lean on the others or help them.
    """
    best: Chosen | None = None
    for candidate in (cluster,) if stated else _leaning(cluster):
        flash, ram = zip(*((float(d.flash), float(d.ram)) for d in candidate.devices), strict=True)
        limits = DeviceLimits(flash, ram)
        for search in _searches(network, candidate, limits, method, objective):
            # A plan that is worse than the best so far is of no use, which makes the other searches short.
            known = INFINITY if best is None or objective == "memory" else _worth(best, objective)[0]
            plan = pipeline(network, candidate, search) if method == "pipeline" else search.run(known)
            if plan is None:
                continue
            proved = method == "joint" and objective != "memory" and plan.proved  # a bisection proves no least memory
            found = Chosen(plan, *usage(plan), proved)
            if best is None or _worth(found, objective) < _worth(best, objective):
                best = found
    whole = _in_a_row(network, cluster, objective) if method == "joint" else None
    if whole is not None and (best is None or _worth(whole, objective) < _worth(best, objective)):
        best = whole
    if best is None:
        raise _no_plan(network, cluster, method, objective, file)
    return best


def _in_a_row(network: Network, cluster: Cluster, objective: str) -> Chosen | None:
    """The pipeline, if it keeps all limits: its search knows the tensors of a layer, and not those that wait."""
    flash, ram = zip(*((float(d.flash), float(d.ram)) for d in cluster.devices), strict=True)
    plan = pipeline(network, cluster, Search(network, cluster, DeviceLimits(flash, ram), objective))
    if plan is None or len(cluster.devices) == 1:
        return None
    weights, arena = usage(plan)
    fits = all(w <= f and a <= r for w, f, a, r in zip(weights, flash, arena, ram, strict=True))
    return Chosen(plan, weights, arena, False) if fits else None


def _leaning(cluster: Cluster) -> Iterator[Cluster]:
    for factor in LEANINGS if len(cluster.devices) > 1 else (1.0,):
        devices = list(cluster.devices)
        devices[cluster.source] = replace(devices[cluster.source], share=devices[cluster.source].share * factor)
        yield replace(cluster, devices=tuple(devices))


def _worth(found: Chosen, objective: str) -> tuple[float, ...]:
    most = max(w + a for w, a in zip(found.weights, found.arena, strict=True))
    spent = (found.plan.cost.bytes, found.plan.cost.time_us + found.plan.compute_us)
    return {"traffic": (*spent, most), "latency": (spent[1], spent[0], most), "memory": (most, *spent)}[objective]


def _searches(
    network: Network, cluster: Cluster, limits: DeviceLimits, method: str, objective: str
) -> Iterator[Search]:
    goal = "latency" if objective == "latency" else "traffic"
    base = Search(network, cluster, limits, goal)
    match method:
        case "joint" if objective == "memory":
            yield from _ever_smaller(base)
        case "joint" | "pipeline":
            yield base
        case "fdto":
            yield replace(base, methods=_forced(network, cluster, {"fan-out"}))
        case "owp":
            yield replace(base, methods=_forced(network, cluster, {"fan-out", "fan-in"}), sums_to="SA")
        case "paper":
            yield replace(base, methods=_two_steps(network, cluster), sums_to="SA")
        case _:
            raise AssertionError(method)


def _ever_smaller(base: Search) -> Iterator[Search]:
    """For least memory: limits that become tighter until nothing fits, by bisection of flash + RAM of a device."""
    low = base.network.weights / len(base.cluster.devices)
    high = max(f + r for f, r in zip(base.limits.flash, base.limits.ram, strict=True))
    high = min(high, base.network.weights + sum(t.bytes for t in base.network.tensors))
    yield base
    for _ in range(8):
        middle, fits = (low + high) / 2, False
        for part in (0.3, 0.5, 0.7, 0.9):
            flash = tuple(min(f, middle * part) for f in base.limits.flash)
            ram = tuple(min(r, middle * (1 - part)) for r in base.limits.ram)
            tighter = replace(base, limits=replace(base.limits, flash=flash, ram=ram))
            if tighter.run() is not None:
                fits = True
                yield tighter
        low, high = (low, middle) if fits else (middle, high)


def _forced(network: Network, cluster: Cluster, ways: set[str]) -> tuple[frozenset[str], ...]:
    """Layers with weights by these methods where they can be cut so; all others at the source."""
    search = Search(network, cluster, DeviceLimits((), ()))
    found = []
    for number, layer in enumerate(network.layers):
        possible = {option[0] for option in search.options(number)} & ways if layer.weights else set()
        found.append(frozenset(possible or {"whole"}))
    return tuple(found)


def _two_steps(network: Network, cluster: Cluster) -> tuple[frozenset[str], ...]:
    """Rows before the switch that eq. 5.12 of the thesis chooses, weights split behind it."""
    tensors = network.tensors
    counts = [
        Counts(sum(tensors[t].bytes for t in layer.inputs), tensors[layer.output].bytes, layer.weights)
        if layer.fan_out else Counts(0, 0, 0, False)
        for layer in network.layers
    ]  # fmt: skip
    _, switch = full(counts, len(cluster.devices))
    search, behind = Search(network, cluster, DeviceLimits((), ())), _forced(network, cluster, {"fan-out", "fan-in"})
    rows = [frozenset({"rows"} & {o[0] for o in search.options(n)} or {"whole"}) for n in range(switch)]
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
            made = d.keeps if d.keeps.ring else d.makes
            total = held(network.tensors[layer.output], made, k, cluster.source, layer.partial)
            for t in {*live, *reads}:
                forms = [f for f in (live.get(t), reads.get(t)) if f is not None]
                total += max(held(network.tensors[t], f, k, cluster.source) for f in forms)
            arena[k] = max(arena[k], total)
        last = {t: readers.get(t, -1) > d.layer for t in live}
        if d.keeps.ring:  # what a run reads stays until it has ended
            live = {t: f if last[t] else reads.get(t, f) for t, f in live.items()}
        else:
            live = {t: f for t, f in live.items() if last[t]}
        live[layer.output] = d.keeps
    return tuple(weights), tuple(arena)


def _weights(plan: ClusterPlan, number: int, method: str, makes: Split, device: int) -> int:
    layer, cluster = plan.network.layers[number], plan.cluster
    match method:
        case "whole":
            return layer.weights if device == cluster.source else 0
        case "stage":
            return layer.weights if held(plan.network.tensors[layer.output], makes, device, cluster.source) else 0
        case "copies" | "rows":
            return layer.weights
    along = layer.inputs[0] if method == "fan-in" else layer.output
    channels = plan.network.tensors[along].channels
    first, past = split(channels, cluster.shares)[device]
    return layer.weights * (past - first) // channels


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
                made = replace(network.tensors[layer.output], item=1)
                part, of = held(made, d.makes, device, cluster.source), made.bytes
        total += layer.macs * part // of
    return total


def _no_plan(network: Network, cluster: Cluster, method: str, objective: str, file: str) -> Exception:
    """Which device lacks what: the plan without limits of flash, then of RAM, shows it."""
    room = DeviceLimits((INFINITY,) * len(cluster.devices), (INFINITY,) * len(cluster.devices))
    hints = []
    for search in _searches(network, cluster, room, "joint", "traffic"):
        plan = replace(search, limits=replace(room, flash=tuple(float(d.flash) for d in cluster.devices))).run()
        if plan is None:
            each = network.weights // len(cluster.devices)
            have = ", ".join(f"{d.name} {d.flash} B" for d in cluster.devices)
            hints.append(f"weights: {network.weights} B in all, {each} B each if all is split; flash: {have}")
        else:
            for d, a in zip(cluster.devices, usage(plan)[1], strict=True):
                if a > d.ram:
                    hints.append(f"device '{d.name}' needs {a} B of RAM for the plan of least traffic, has {d.ram} B")
    hints.append("more or larger devices, or another method, may fit")
    return fail(f"no plan of method {method} fits the cluster", file=file, hints=hints)
