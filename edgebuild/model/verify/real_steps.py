"""Results of one quantised op in the arithmetic of the file: real numbers, and one rounding to steps of its scale.

The operands' integers stand for real numbers by the file's scales and zero points. The op computes on these in
float64, and its result is divided by the result's scale. The compiler's fixed-point numbers are no part of that. The
generated C multiplies by factors of 31 bits. So where a real result lies within `tie` of the middle between two steps,
either is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .. import ops
from ..ir import Array, Graph, Op, Tensor, reals_of
from ..ops.base import Interval
from ..ops.fixedpoint import limits
from .rounding import largest

# A tie is this many steps, and this share of a result in steps, around the middle between two. Factors of 31 bits are
# off by 2^-31 of a result, those of 64-bit sums and float32 by 2^-24.
STEPS, SHARE = 2.0**-20, 2.0**-22
AS_THEY_ARE = ("quantize", "requantize")  # ops that change how numbers are stored, and not the numbers


def is_exact(op: Op, graph: Graph) -> bool:
    """Whether the file's format defines the op's integers by real numbers: TFLite does by fixed-point arithmetic.

    Ops that only move or select values have the integers of their operands.
    """
    y = graph.result(op)
    computes = not ops.SPECS[op.kind].exact and y.dtype in ("int8", "int16") and y.quant is not None
    return computes and graph.arithmetic.rounds_once


def exact(op: Op, graph: Graph, operands: Sequence[Array]) -> Interval:
    """The least and the largest right integer of every element. `operands`: as the op gets them."""
    y = graph.result(op)
    assert y.quant is not None
    tensors = graph.operands(op)
    real = [_real(x, t) for x, t in zip(operands, tensors, strict=True)]
    twins = {t.name: _twin(t, x) for t, x in zip(tensors, real, strict=True)}
    twin = replace(graph, tensors={**graph.tensors, **twins, y.name: replace(y, dtype="float32", quant=None)})
    with np.errstate(all="ignore"):
        value = real[0] if op.kind in AS_THEY_ARE else ops.SPECS[op.kind].reference(op, twin, *real)
        value = value.reshape(y.shape).astype(np.float64)
        steps = value / y.quant.scale[0]
    terms = [largest(x) for x, t in zip(real, tensors, strict=True) if not t.constant]
    size = np.abs(steps)
    if ops.SPECS[op.kind].total is None:  # its terms may cancel
        size = np.maximum(size, max(terms, default=0.0) / y.quant.scale[0])
    tie = STEPS + SHARE * np.where(np.isfinite(size), size, 0.0)
    low, high = (float(end - y.quant.zero_point[0]) for end in limits(y.dtype))
    steps = np.clip(np.nan_to_num(steps, nan=low, posinf=high, neginf=low), low - 1, high + 1)
    least, most = np.ceil(steps - 0.5 - tie), np.floor(steps + 0.5 + tie)
    ends = [np.clip(end, low, high) + y.quant.zero_point[0] for end in (least, most)]
    return ends[0].astype(y.dtype), ends[1].astype(y.dtype)


def _real(x: Array, t: Tensor) -> Array:
    """The real numbers, in float64, that integers stand for; other values as they are."""
    if t.quant is None or x.dtype.kind not in "iu":
        return x.astype(np.float64) if x.dtype.kind == "f" else x
    return reals_of(x, t)


def _twin(t: Tensor, real: Array) -> Tensor:
    if real.dtype.kind != "f":
        return t
    return replace(t, dtype="float32", quant=None, data=real if t.constant else None)
