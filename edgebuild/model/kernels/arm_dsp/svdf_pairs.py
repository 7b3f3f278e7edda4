"""SVDF with int16 states: four features or two times a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...ops import fixedpoint
from ...ops.base import Constant, Kernel, is_float, zero_of
from ..row import KernelLayer


def state(layer: KernelLayer) -> Kernel | None:
    """Features are widened once; their zero point is folded into the start values."""
    (old, x, w), y, k = layer.graph.operands(layer.op), layer.graph.result(layer.op), layer.plain
    if (old.dtype, x.dtype, y.dtype) != ("int16", "int8", "int16") or w.data is None:
        return None
    (filters, features), scalars = w.shape, _end(layer)
    if features % 4 or old.elements < 2 or scalars is None:
        return None
    start = (-zero_of(x) * w.data.astype(np.int64).sum(axis=1)).astype(np.int32)
    constants = *k.constants, Constant("start", start, "start values")
    shape = {**k.shape, "step": 2 if features % 8 == 0 else 1, "pairs": (old.elements - 1) // 2}
    estimate = 30.0 + 2 * features + 2.5 * old.elements + filters * (17 + 2.3 * features)
    return replace(
        k, template="arm_dsp/svdf.c.j2", shape=shape, constants=constants, scalars=scalars, scratch=2 * features,
        variant="dsp four features", estimate=estimate,
    )  # fmt: skip


def total(layer: KernelLayer) -> Kernel | None:
    """Sums over time of pairs of int16."""
    (held, times), y, k = layer.graph.operands(layer.op)[:2], layer.graph.result(layer.op), layer.plain
    terms, units, scalars = int(str(k.shape["T"])), int(str(k.shape["U"])), _end(layer)
    if (held.dtype, times.dtype, y.dtype) != ("int16", "int16", "int8") or terms % 2 or scalars is None:
        return None
    shape = {**k.shape, "step": 2 if terms % 4 == 0 else 1}
    return replace(
        k, template="arm_dsp/svdf.c.j2", shape=shape, scalars=scalars, variant="dsp two times",
        estimate=20 + units * (28 + 3.2 * terms),
    )  # fmt: skip


def _end(layer: KernelLayer) -> dict[str, int | float] | None:
    """Scalars of the rounding in two multiplications; None where results have other bounds than their type's."""
    k, y = layer.plain, layer.graph.result(layer.op)
    if not layer.graph.arithmetic.fixed_point or is_float(y):
        return None
    if (k.scalars["low"], k.scalars["high"]) != fixedpoint.limits(y.dtype):
        return None
    mantissa, shift = int(k.scalars["multiplier"]), int(k.scalars["shift"])
    if not -31 <= shift <= -1:
        return None
    return {"y_mul": 2 * mantissa - 2**32, "y_shift": -(2 ** (32 + shift)), "y_zero": zero_of(y)}
