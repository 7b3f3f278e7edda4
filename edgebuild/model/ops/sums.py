"""Sums of products in int8: how an op's tensors become `Sums`, and the letters of templates."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from ..ir import Array, Graph, Op
from . import spatial
from .base import SAME, Form, Sums, zero_of

More = ParamSpec("More")
Made = TypeVar("Made")


def of(op: Op, graph: Graph, stem: str, weights: Array, size: tuple[int, ...], out: tuple[int, ...]) -> Sums:
    """The sums of an int8 op. `weights`: K x FH x FW x channels of one sum."""
    y = graph.result(op)
    mantissa, shift = (a.astype(np.int64) for a in spatial.multipliers(op, graph))
    bias = graph.operands(op)[2].data if len(op.inputs) > 2 else None
    start = np.zeros(out[2], np.int64) if bias is None else bias.astype(np.int64).ravel()
    dead = mantissa == 0  # the factor is below 2^-32: every sum becomes 0
    weights = np.where(dead[:, None, None, None], 0, weights).astype(np.int8)
    zero = zero_of(graph.operands(op)[0])
    start = np.where(dead, 0, start - zero * weights.astype(np.int64).sum(axis=(1, 2, 3)))
    low, high = spatial.bounds(op, y)
    return Sums(
        stem,
        (size[0], size[1], size[2]),
        (out[0], out[1], out[2]),
        tuple(op.attrs.get("stride", (1, 1))),
        tuple(op.attrs.get("pad", (0, 0))[:2]),
        tuple(op.attrs.get("dilation", (1, 1))),
        weights,
        start,
        np.where(dead, 2**30, mantissa),
        np.where(dead, 1, -shift),
        zero,
        zero_of(y),
        low,
        high,
        graph.arithmetic,
    )


def kept(make: Callable[Concatenate[Sums, More], Made]) -> Callable[Concatenate[Sums, More], Made]:
    """A function of sums, such as a stream of weights, that is computed once however many forms of kernels ask."""

    @wraps(make)
    def asked(s: Sums, /, *more: More.args, **named: More.kwargs) -> Made:
        key = (make, more, tuple(named.items()))
        if key not in s.following:
            s.following[key] = make(s, *more, **named)
        found: Made = s.following[key]
        return found

    return asked


def shape_of(s: Sums, form: Form) -> dict[str, int | str | bool | tuple[int, ...]]:
    """The letters of the templates."""
    (h, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    return {
        "H": h, "W": w, "C": c, "OH": oh, "OW": ow, "K": k, "FH": fh, "FW": fw,
        "SY": s.stride[0], "SX": s.stride[1], "PY": s.pad[0], "PX": s.pad[1], "DY": s.dilation[0], "DX": s.dilation[1],
        **spatial.rolled(form),
    }  # fmt: skip


def in_place(s: Sums, form: Form) -> str:
    """How a kernel works in place that makes one channel, or a few, from start to end before it reads the next.

    It has read a row of them before it makes the same row.
    """
    same = s.stride == (1, 1) and s.size == s.out
    return SAME if same and not form.rolled else ""


def words(values: Array) -> Array:
    """Values modulo 2^32 as int32."""
    return np.asarray(values & 0xFFFFFFFF, np.uint32).view(np.int32)
