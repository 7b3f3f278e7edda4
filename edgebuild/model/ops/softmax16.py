"""TFLM's softmax of int16: two tables of 513 values and straight lines between them.

kernels/internal/reference/softmax.h (SoftmaxInt16) and common.h (LUTPopulate, LUTLookup). exp() of distances from the
largest element, of which 2^16 steps are 10; 1 / (1 + x) for x from 0 to 1. Values are in Q0.15.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import exp
from typing import Any

import numpy as np

from ..arithmetic import Arithmetic
from ..ir import Array
from . import fixedpoint
from .base import Constant

STEPS, MOST, REACH = 512, 2**16 - 1, 10.0
LOW, HIGH = -(2**15), 2**15 - 1
LARGEST_STEP = 2.0**30 * REACH / MOST  # of the operand: from here on TFLM shifts by 31 bits or more


def _rounded(value: Any) -> Any:
    """Half away from zero."""
    return np.sign(value) * np.floor(np.abs(value) + np.float32(0.5))


def _table(function: Callable[[float], float], low: float, high: float) -> Array:
    """Values at 513 places from low to high, each moved by half of what a straight line errs in the middle.

    All in float32, as TFLM computes them when it starts.
    """
    one, two, unit = np.float32, np.float32(2), np.float32(2.0**15)
    step, found = one(high - low) / one(STEPS), []
    for i in range(STEPS):
        places = (one(low) + one(i) * step, one(low) + one(i) * step + step / two, one(low) + one(i + 1) * step)
        here, middle, after = (one(function(float(at))) * unit for at in places)
        line = _rounded((after + _rounded(here)) / two)
        found.append(_rounded(here) - _rounded((line - _rounded(middle)) / two))
    found.append(_rounded(one(function(high)) * unit))
    return np.clip(np.array(found), LOW, HIGH).astype(np.int16)


@cache  # few models need them, and they take milliseconds
def tables() -> tuple[Constant, Constant]:
    """exp(x) and 1 / (1 + x)."""
    powers, inverses = _table(exp, -REACH, 0.0), _table(lambda x: 1 / (1 + x), 0.0, 1.0)
    return Constant("exponential", powers, "exp(x), -10 to 0, Q0.15"), Constant("inverse", inverses, "1 / (1 + x)")


def factor(scale: float, beta: float) -> fixedpoint.Multiplier:
    """From steps of the input to 2^16 steps of 10."""
    return fixedpoint.quantize_multiplier(scale * beta / (REACH / MOST))


def looked_up(table: Array, value: Array | np.int64) -> Array:
    """The table's function of an int16."""
    at, rest = 256 + (value >> 7), value & 0x7F
    base, after = table[at].astype(np.int64), table[at + 1].astype(np.int64)
    return np.asarray(base + (((after - base) * rest + 64) >> 7))


def row(x: Array, scale: float, beta: float) -> Array:
    powers_of, inverse_of = (table.data for table in tables())
    m, less = factor(scale, beta), x.astype(np.int64) - int(x.max())
    scaled = fixedpoint.requantize(less, m.mantissa, m.shift, Arithmetic.TFLITE) + HIGH
    powers = looked_up(powers_of, np.clip(scaled, LOW, HIGH))
    total = int(powers.sum())
    headroom = 31 - total.bit_length()
    part = ((total << headroom) + (1 << 13)) >> 14
    share = int(looked_up(inverse_of, np.int64(max(LOW, min(HIGH, part - 2**15 - 2**16)))))
    right = 30 - headroom
    return np.clip((powers * share + (1 << (right - 1))) >> right, 0, HIGH).astype(np.int16)
