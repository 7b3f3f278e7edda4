"""Places of the largest elements, where rounding may decide which of two elements is larger."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir import Array, Graph, Op
from ..ops.base import Interval


def tells_places(op: Op) -> bool:
    """The op's result says where elements are, not how large."""
    return op.kind == "arg" or (op.kind == "topk" and bool(op.attrs["indices"]))


def possible_places(op: Op, graph: Graph, interval: Interval, own: Array, observed: Array) -> Array:
    """`observed` in each line where elements between the ends of their intervals may have that order, else `own`."""
    axis, last = op.attrs["axis"], op.attrs.get("last", False)
    ends = [end.astype(np.float64) for end in interval]
    low, high = ends if op.attrs["largest"] else (-ends[1], -ends[0])
    low, high = (np.moveaxis(np.flip(x, axis) if last else x, axis, -1) for x in (low, high))
    size = low.shape[-1]

    def rows(places: Array) -> Array:
        turned = np.moveaxis(places, axis, -1) if places.ndim == low.ndim else places[..., None]
        return np.asarray(size - 1 - turned if last else turned)

    shaped = observed.reshape(own.shape).astype(own.dtype)
    likely = np.array([_possible(rows(shaped)[at].tolist(), low[at].tolist(), high[at].tolist())
                       for at in np.ndindex(low.shape[:-1])]).reshape(low.shape[:-1])  # fmt: skip
    return np.where(np.expand_dims(likely, axis) if own.ndim == low.ndim else likely, shaped, own)


def _possible(places: Sequence[int], low: Sequence[float], high: Sequence[float]) -> bool:
    """Numbers between `low` and `high` may have their largest in these places, of equal ones the first.

    Each takes the largest number that is left for it. Steps that are no ends of intervals are not tried.
    """
    if len({*places}) != len(places) or not all(0 <= i < len(low) for i in places):
        return False
    ends = sorted({*low, *high}, reverse=True)
    least, before = np.inf, -1
    for i in places:
        left = (end for end in ends if low[i] <= end <= high[i] and (-end, i) > (-least, before))
        least, before = next(left, -np.inf), i
        if least == -np.inf:
            return False
    return all((-low[i], i) > (-least, before) for i in range(len(low)) if i not in places)
