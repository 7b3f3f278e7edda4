"""Between which values an op's int8 or int16 result lies if its operands lie between given ones: for `Spec.interval`.

Intervals are inclusive and held element by element, so that padding, slices and reshapes need no rules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from . import spatial
from .base import Interval, Total, Transfer, zero_of

Reference = Callable[..., Array]


def always(op: Op, graph: Graph) -> bool:
    return True


def rising(reference: Reference, steady: Callable[[Op, Graph], bool] = always) -> Transfer:
    """Of an op whose result never falls where an operand rises. `steady`: its arithmetic stays in int32."""

    def interval(op: Op, graph: Graph, *operands: Interval) -> Interval | None:
        low, high = zip(*operands, strict=True)
        return (reference(op, graph, *low), reference(op, graph, *high)) if steady(op, graph) else None

    return interval


def corners(reference: Reference, steady: Callable[[Op, Graph], bool] = always) -> Transfer:
    """Of an op that rises or falls in each operand while the others stay: its extremes are at ends of intervals."""

    def interval(op: Op, graph: Graph, *operands: Interval) -> Interval | None:
        if not steady(op, graph):
            return None
        ends = [reference(op, graph, *chosen) for chosen in product(*operands)]
        return np.minimum.reduce(ends), np.maximum.reduce(ends)

    return interval


def sums(total: Total) -> Transfer:
    """Of a requantised sum of products: negative weights take the other end of the input's interval.

    With the interval's ends at m - d and m + d, the sums lie between m w - d |w| and m w + d |w|: two sums of products
    in place of four. `total` takes 2 m and 2 d, whose zero points it takes away.
    """

    def interval(op: Op, graph: Graph, x: Interval, w: Interval, *bias: Interval) -> Interval | None:
        (low, high), weights = (end.astype(np.int64) for end in x), w[0].astype(np.int64)
        zero, start = zero_of(graph.operands(op)[0]), bias[0][0].astype(np.int64).ravel() if bias else 0
        middle, reach = total(op, graph, low + high - zero, weights), total(op, graph, high - low + zero, abs(weights))
        least, most = (middle - reach) // 2 + start, (middle + reach) // 2 + start
        fits = spatial.fits(least, op, graph) & spatial.fits(most, op, graph)
        bottom, top = spatial.bounds(op, graph.result(op))
        ends = [spatial.requantize_sum(np.where(fits, end, 0), op, graph) for end in (least, most)]
        return np.where(fits, ends[0], bottom), np.where(fits, ends[1], top)

    return interval


def of_products(products: Callable[[Op, Graph, Array, Array], Array], parts: bool = True) -> dict[str, Any]:
    """Fields of the `Spec` of an op that makes sums of products, from these sums: exact, without bias, in float64.

    `parts`: the sums may be added up part by part.
    """

    def total(op: Op, graph: Graph, x: Array, w: Array) -> Array:
        return products(op, graph, x, w).astype(np.int64)

    def reference(op: Op, graph: Graph, x: Array, w: Array, bias: Array | None = None) -> Array:
        return spatial.finished(products(op, graph, x, w), bias, op, graph)

    found = {"reference": reference, "interval": sums(total), "clamps": True, "integers": spatial.INTEGERS}
    return {**found, "total": total, "fan_in": spatial.plain} if parts else found
