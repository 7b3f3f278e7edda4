"""Plans that no other dominates in memory, traffic and time: what more flash on every device would buy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ....base.dataclass import dataclass
from .by_name import usage
from .decisions import ClusterPlan
from .forms import Cluster, Network
from .joint import Search
from .pipeline import pipeline
from .shortest import INFINITY
from .tensor_forms import DeviceLimits

STEPS = (1.0, 1.02, 1.05, 1.1, 1.2, 1.35, 1.6, 2.0, 2.5, 3.2, 4.0, 5.0, 6.5, 8.0, 12.0, 16.0)


@dataclass(frozen=True)
class ClusterPoint:
    """A plan: the most that a device needs of weights and tensors, bytes; the wire's bytes; microseconds, modelled."""

    weights: int
    arena: int
    traffic: int
    time_us: float

    def dominates(self, other: ClusterPoint) -> bool:
        mine, theirs = ((p.weights, p.arena, p.traffic, p.time_us) for p in (self, other))
        return mine != theirs and all(a <= b for a, b in zip(mine, theirs, strict=True))


def pareto(network: Network, cluster: Cluster) -> tuple[ClusterPoint, ...]:
    """Points by rising weights, for devices whose flash grows from an even part of the weights to all of them.

    RAM is that of the devices. Shares are those of the cluster.
    """
    points = list(dict.fromkeys(map(_point, _plans(network, cluster))))
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


def _point(plan: ClusterPlan) -> ClusterPoint:
    weights, arena = usage(plan)
    return ClusterPoint(max(weights), max(arena), plan.cost.bytes, round(plan.cost.time_us + plan.compute_us, 3))
