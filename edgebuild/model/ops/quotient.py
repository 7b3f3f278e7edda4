"""TFLM's DIV of int8: a quotient by the reciprocal of the divisor, in fixed point.

kernels/internal/reference/div.h (DivElementwise). The file's format leaves a division by zero open; a divisor of no
steps counts as one step here. Where the result is to be shifted right by more than 31 bits, gemmlowp's
RoundingDivideByPOT rounds away from zero, and 0 up: so 0 / 128 may be one step.
"""

from __future__ import annotations

import numpy as np

from ..ir import Array, Graph, Op
from . import fixedpoint
from .base import scale_of
from .fixedpoint import Multiplier, quantize_multiplier

TEXT = "{{eb_quotient}}({0} - x0_zero, {1} - x1_zero, y_mul, y_shift)"  # C, before the zero point is added
MOST = 255  # steps from a zero point


def factor(op: Op, graph: Graph) -> Multiplier:
    """From a quotient of steps to steps of the result."""
    a, b = (scale_of(t) for t in graph.operands(op))
    return quantize_multiplier(a / (b * scale_of(graph.result(op))))


def reference(a: Array, b: Array, m: Multiplier) -> Array:
    """a / b in steps of the result, for |a| and |b| within MOST."""
    inverses = [fixedpoint.reciprocal(max(size, 1), 31) for size in range(MOST + 1)]
    inverse, over = (np.array(column, np.int64)[abs(b)] for column in zip(*inverses, strict=True))
    value = np.where(b < 0, -a, a)
    headroom = 31 - np.ceil(np.log2(np.where(value < 0, -value, value + 1))).astype(np.int64)
    share = fixedpoint.rounding_high_multiply(fixedpoint.rounding_high_multiply(value << headroom, inverse), m.mantissa)
    right = over + headroom - m.shift
    near = fixedpoint.rounding_right_shift(share, np.clip(right, 0, 31))
    return np.where(right > 31, np.where(share < 0, -1, 1), near)
