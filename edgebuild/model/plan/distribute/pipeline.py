"""Pipelines: the source runs some layers in a row, then each device some, then the source again.

A baseline, and a plan that splits no layer where that sends least. The least bytes from any layer to any other by way
of the devices are products of matrices, one a device, in which sums stand for products and minima for sums. A tensor
that stands at one device alone has form F with all rows there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .decisions import ClusterPlan, Conversion, Decision
from .forms import SOURCE, Cluster, Network
from .joint import STAGE, Search
from .tensor_forms import at
from .transfers import Cost

INFINITY = float("inf")
Floats = NDArray[np.float64]


def pipeline(network: Network, cluster: Cluster, search: Search) -> tuple[ClusterPlan | None, float]:
    """The plan and a bound; no plan where no cut keeps each device's flash, and RAM for the tensors of a layer.

    The bound is below the plan in a star, where what the hub forwards is sent twice.
    """
    others = [k for k in range(len(cluster.devices)) if k != cluster.source]
    edges, bound = _cuts(network, search, others)
    if edges is None:
        return None, INFINITY
    order = [cluster.source, *others, cluster.source]
    where = [k for k, (first, past) in zip(order, pairwise(edges), strict=True) for _ in range(first, past)]
    return _plan(network, cluster, search, where), bound


def _cuts(network: Network, search: Search, others: Sequence[int]) -> tuple[list[int] | None, float]:
    """Numbers of layers: the source runs those up to the first, others[i] those from i to i + 1, the source the rest.

    None if none keep the limits. Beside them what they cost, if each message takes one hop.
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
        edges.append(int(np.flatnonzero(sent == sent.min())[-1]))  # the first devices work, where one is enough
    return [0, *reversed(edges), count], float(total[first, last])


def _kind(search: Search, device: int) -> tuple[float, float, float]:
    """Devices that are alike run a segment at the same cost."""
    return search.limits.flash[device], search.limits.ram[device], search.cluster.devices[device].macs_per_us


def _sent(search: Search, tensor: int) -> float:
    """The cost of a tensor that one device sends to another, in one hop."""
    source = search.cluster.source
    other = next(k for k in range(len(search.cluster.devices)) if k != source)
    return search.value(search.cost(tensor, SOURCE, search.at(tensor, other)), 0.0)


def _returned(network: Network, search: Search) -> Floats:
    """Cost of what the source gets back of the layers from any (row) up to any (column)."""
    count = len(network.layers)
    table = np.zeros((count + 1, count + 1))
    for number, layer in enumerate(network.layers if len(search.cluster.devices) > 1 else ()):
        last = max(search.readers[layer.output], default=-1)
        table[: number + 1, number + 1 : last + 1] += _sent(search, layer.output)
    return table


def _segments(network: Network, search: Search, device: int) -> Floats:
    """Cost of the layers from any (row) up to any (column) on a device, with what is sent to it.

    Infinite where they do not fit. What is sent back to the source is not counted.
    """
    count = len(network.layers)
    table = np.full((count + 1, count + 1), INFINITY)
    for first in range(count + 1):
        for past, spent in _segments_from(network, search, first, device):
            table[first, past] = spent
    return table


def _segments_from(network: Network, search: Search, first: int, device: int) -> Iterator[tuple[int, float]]:
    """Ends of segments of a device that begin at a layer, and what they cost."""
    tensors, readers, is_source = network.tensors, search.readers, device == search.cluster.source
    yield first, 0.0
    flash, spent = 0.0, 0.0
    own = set(network.inputs) if is_source else set[int]()  # made here, or here from the beginning
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
                before.append(Conversion(t, at(network, cluster, t, maker[t]), at(network, cluster, t, device)))
                holders[t].add(device)
        spent = sum((search.cost(c.tensor, c.have, c.want) for c in before), spent)
        compute += layer.macs / cluster.devices[device].macs_per_us
        form = at(network, cluster, layer.output, device)
        reads = tuple(at(network, cluster, t, device) for t in layer.inputs)
        decisions.append(Decision(number, STAGE, tuple(before), reads, form, form))
        holders[layer.output], maker[layer.output] = {device}, device
    gather = tuple(
        Conversion(t, at(network, cluster, t, maker[t]), SOURCE)
        for t in network.results
        if cluster.source not in holders[t]
    )
    spent = sum((search.cost(c.tensor, c.have, c.want) for c in gather), spent)
    return ClusterPlan(network, cluster, tuple(decisions), gather, spent, compute, 0.0, False)
