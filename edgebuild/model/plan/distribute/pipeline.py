"""Pipelines, to compare with: each device runs some layers in a row, the source the first ones.

A dynamic program over the places where the network is cut finds the least bytes that go from one device to another. A
tensor that stands at one device alone has form F with all rows there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .decisions import ClusterPlan, Conversion, Decision
from .joint import Search
from .problem import SOURCE, Cluster, Network, Split
from .transfers import Cost

STAGE = "stage"
INFINITY = float("inf")


def pipeline(network: Network, cluster: Cluster, search: Search) -> ClusterPlan | None:
    """The plan; None where no cut keeps the flash of each device and the RAM that a layer's tensors take."""
    order = [cluster.source, *(k for k in range(len(cluster.devices)) if k != cluster.source)]
    edges = _cuts(network, search, order)
    if edges is None:
        return None
    where = [k for k, (first, past) in zip(order, pairwise(edges), strict=True) for _ in range(first, past)]
    return _plan(network, cluster, search, where)


def at(network: Network, cluster: Cluster, tensor: int, device: int) -> Split:
    """The form of a tensor that one device has."""
    rows = network.tensors[tensor].rows
    if device == cluster.source:
        return SOURCE
    return Split("F", tuple((0, rows) if k == device else (0, 0) for k in range(len(cluster.devices))))


def _cuts(network: Network, search: Search, order: Sequence[int]) -> list[int] | None:
    """Numbers of layers: device order[i] runs those from edge i to edge i + 1."""
    count = len(network.layers)
    best: list[dict[int, tuple[float, list[int]]]] = [{0: (0.0, [0])}]
    for device in order:
        after: dict[int, tuple[float, list[int]]] = {}
        for first, (cost, edges) in best[-1].items():
            for past, more in _segments(network, search, first, device):
                if cost + more < after.get(past, (INFINITY, []))[0]:
                    after[past] = cost + more, [*edges, past]
        best.append(after)
    found = best[-1].get(count)
    return found[1] if found is not None else None


def _segments(network: Network, search: Search, first: int, device: int) -> list[tuple[int, float]]:
    """Ends of segments of a device that begin at a layer, and the bytes that are sent to it (or back, at the end)."""
    found, flash, sent, here = [(first, 0.0)], 0.0, 0.0, set[int]()
    makers = {layer.output: n for n, layer in enumerate(network.layers)}
    is_source = device == search.cluster.source
    for number in range(first, len(network.layers)):
        layer = network.layers[number]
        flash += layer.weights
        room = sum(network.tensors[t].bytes for t in (*layer.inputs, layer.output))
        if flash > search.limits.flash[device] or room > search.limits.ram[device]:
            break
        for tensor in layer.inputs:
            there = is_source and (makers.get(tensor, -1) < 0 or first == 0)
            if makers.get(tensor, -1) < first and tensor not in here and not there:
                sent += network.tensors[tensor].bytes
                here.add(tensor)
        if layer.output in network.results and not is_source:
            sent += network.tensors[layer.output].bytes
        found.append((number + 1, sent))
    return found


def _plan(network: Network, cluster: Cluster, search: Search, where: Sequence[int]) -> ClusterPlan:
    spent, compute, decisions = Cost(), 0.0, list[Decision]()
    stands = {t: {cluster.source} for t in network.inputs}  # devices that have a tensor, its maker first
    maker = dict.fromkeys(network.inputs, cluster.source)
    for number, device in enumerate(where):
        layer, before = network.layers[number], list[Conversion]()
        for t in dict.fromkeys(layer.inputs):
            if device not in stands[t]:
                before.append(Conversion(t, at(network, cluster, t, maker[t]), at(network, cluster, t, device)))
                stands[t].add(device)
        spent = sum((search.cost(c.tensor, c.have, c.want) for c in before), spent)
        compute += layer.macs / cluster.devices[device].macs_per_us
        made = at(network, cluster, layer.output, device)
        reads = tuple(at(network, cluster, t, device) for t in layer.inputs)
        decisions.append(Decision(number, STAGE, tuple(before), reads, made, made))
        stands[layer.output], maker[layer.output] = {device}, device
    gather = tuple(
        Conversion(t, at(network, cluster, t, maker[t]), SOURCE)
        for t in network.results
        if cluster.source not in stands[t]
    )
    spent = sum((search.cost(c.tensor, c.have, c.want) for c in gather), spent)
    return ClusterPlan(network, cluster, tuple(decisions), gather, spent, compute, 0.0, False)
