"""LOGISTIC, TANH and HARD_SWISH of int8 in the fixed-point steps of TFLM, which are gemmlowp's."""

from __future__ import annotations

from collections.abc import Callable
from math import floor, frexp

import numpy as np

from ..arithmetic import Arithmetic
from ..ir import Array, Op, Tensor
from . import fixedpoint
from .base import scale_of, zero_of
from .fixedpoint import Multiplier, quantize_multiplier, requantize
from .linear import INT8


def _q4(x: Tensor, saturated: tuple[int, int], inside: Callable[[int], int]) -> Array:
    """TFLM's LOGISTIC and TANH: Q4.27 inputs, and fixed results beyond the largest of them."""
    fraction, shift = frexp(scale_of(x) * 2.0**27)
    mantissa = floor(fraction * 2**31 + 0.5)
    m = Multiplier(mantissa // 2, shift + 1) if mantissa == 2**31 else Multiplier(mantissa, shift)
    radius = floor(15 * 2.0 ** (27 - m.shift))

    def result(value: int) -> int:
        if abs(value) >= radius:
            return saturated[value > 0]
        return inside(int(requantize(np.int64(value), m.mantissa, m.shift, Arithmetic.TFLITE)))

    return np.array([result(int(v)) for v in INT8 - zero_of(x)], np.int64)


def _newton(unit: int) -> int:
    """2 / (1 + x) in Q2.29 for x = unit / 2^31 (gemmlowp's one_over_one_plus_x_for_x_in_0_1)."""
    return fixedpoint.newton_reciprocal((unit + fixedpoint.INT32_MAX + 1) // 2)


def logistic(op: Op, x: Tensor, y: Tensor) -> Array:
    def inside(raw: int) -> int:
        upper = fixedpoint.saturate(_newton(fixedpoint.exp_on_negative_values(-abs(raw), 4)) << 1)
        value = upper if raw > 0 else fixedpoint.INT32_MAX - upper if raw < 0 else 1 << 30
        return int(fixedpoint.rounding_right_shift(np.int64(value), 23)) - 128

    return _q4(x, (-128, 127), inside)


def tanh(op: Op, x: Tensor, y: Tensor) -> Array:
    def inside(raw: int) -> int:
        size = fixedpoint.saturate(_newton(fixedpoint.exp_on_negative_values(-abs(raw), 5)) - (1 << 29) << 2)
        value = size if raw > 0 else -size if raw < 0 else 0
        return int(fixedpoint.rounding_right_shift(np.int64(value), 24))

    return _q4(x, (-128, 127), inside)


def _multiplier16(real: float) -> tuple[int, int]:
    """Mantissa in 16 bits and exponent."""
    m = quantize_multiplier(real)
    large = m.mantissa >= fixedpoint.INT32_MAX - (1 << 15)
    return 2**15 - 1 if large else (m.mantissa + (1 << 15)) >> 16, m.shift


def _int16(value: int) -> int:
    return max(-(2**15), min(2**15 - 1, value))


def _high16(a: int, b: int, rounds: bool = True) -> int:
    """The upper half of 2ab, saturated: gemmlowp's doubling high multiply of int16, which cuts towards zero."""
    product = a * b
    nudged = product + ((1 << 14) if product >= 0 else 1 - (1 << 14)) if rounds else product
    return _int16(abs(nudged) // 2**15 * (1 if nudged >= 0 else -1))


def hard_swish(op: Op, x: Tensor, y: Tensor) -> Array:
    """kernels/internal/reference/hard_swish.h."""
    fine = np.float32(1 / 128) * np.float32(scale_of(x))
    out, out_shift = _multiplier16(float(fine / np.float32(scale_of(y))))
    gate, gate_shift = _multiplier16(float(fine / np.float32(3.0 / 32768)))

    def result(value: int) -> int:
        scaled = _high16(value * 128, out)
        reluish = value * 128
        reluish = _int16(reluish << (gate_shift - 1)) if gate_shift > 0 else reluish
        reluish = _high16(reluish, gate)
        reluish = _int16(reluish << 1) if gate_shift > 0 else reluish
        if gate_shift < 0:
            reluish = int(fixedpoint.rounding_right_shift(np.int64(reluish), -gate_shift))
        product = _high16((reluish + (1 << 15)) >> 1, scaled, rounds=False)
        return int(fixedpoint.rounding_right_shift(np.int64(product), max(0, -out_shift)))

    return np.array([result(int(v)) for v in INT8 - zero_of(x)], np.int64) + zero_of(y)
