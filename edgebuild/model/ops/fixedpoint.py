"""Fixed-point arithmetic of quantised ops: the one place that rounds.

A real multiplier m is held as (M, shift) with m = M / 2^31 * 2^shift and M in [2^30, 2^31); a
positive shift is a left shift. An arithmetic rounds in one of two ways:

* `fixed_point`: x * 2^shift through a rounding high multiply, then a rounding right shift (half away
  from zero), as TFLM's and CMSIS-NN's kernels do (gemmlowp's fixedpoint.h). Bit-exact with them.
* `rounds_once`: one rounding of the exact product, half to even, as QuantizeLinear rounds. Equal to
  onnxruntime wherever M / 2^31 is the scale itself, else within one step of it.
"""

from __future__ import annotations

from math import floor, frexp

import numpy as np

from ...base.dataclass import dataclass
from ..arithmetic import Arithmetic
from ..ir import Array, Quant

INT32_MAX = 2**31 - 1
HALF_ROOT = 1518500250  # sqrt(1/2) in Q0.31


@dataclass(frozen=True)
class Multiplier:
    """m = mantissa / 2^31 * 2^shift."""

    mantissa: int
    shift: int

    def holds(self, most: int) -> bool:
        """No |x| <= most leaves int32 on the way: where x rises, x * m does not fall."""
        return bool(fits(np.int64(most), self.shift))


def quantize_multiplier(real: float) -> Multiplier:
    """The nearest fixed-point form of `real` >= 0. Below 2^-32 it is zero, as in TFLM, and 2^30 is the largest."""
    if real == 0.0:
        return Multiplier(0, 0)
    fraction, shift = frexp(real)
    mantissa = floor(fraction * 2**31 + 0.5)
    if mantissa == 2**31:
        mantissa, shift = mantissa // 2, shift + 1
    if shift > 30:
        return Multiplier(INT32_MAX, 30)
    return Multiplier(mantissa, shift) if shift >= -31 else Multiplier(0, 0)


def rounding_high_multiply(x: Array | np.int64, mantissa: Array | int) -> Array:
    """round_half_up(x * mantissa / 2^31), int64 in and out; equals gemmlowp's for mantissa >= 0."""
    return (np.asarray(x, np.int64) * mantissa + (1 << 30)) >> 31


def rounding_right_shift(x: Array | np.int64, shift: Array | int) -> Array:
    """x / 2^shift, half away from zero; int64 in and out."""
    x, shift = np.asarray(x, np.int64), np.asarray(shift, np.int64)
    mask = (np.int64(1) << shift) - 1
    return (x >> shift) + ((x & mask) > (mask >> 1) + (x < 0))


def fits(x: Array | np.int64, shift: Array | int) -> Array:
    """Whether x, shifted left if `shift` is positive, stays in int32, so that requantize does not wrap around."""
    return np.asarray(abs(np.asarray(x, np.int64)) < (1 << 31) >> np.clip(np.asarray(shift, np.int64), 0, 31))


def _wrap32(x: Array) -> Array:
    return np.asarray(x, np.int64).astype(np.int32).astype(np.int64)


def requantize(x: Array | np.int64, mantissa: Array | int, shift: Array | int, arithmetic: Arithmetic) -> Array:
    """x * M / 2^31 * 2^shift in the given arithmetic. `x` holds int32 values; int64 out."""
    x, shift = np.asarray(x, np.int64), np.asarray(shift, np.int64)
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    if arithmetic.fixed_point:
        return rounding_right_shift(rounding_high_multiply(_wrap32(x << left), mantissa), right)
    return round_half_even(x * mantissa, 31 - shift)


WIDE_SUMS = 2**39  # `requantize_wide` is for sums below this


def wide(mantissa: Array, shift: Array, arithmetic: Arithmetic) -> tuple[Array, Array]:
    """Multipliers for `requantize_wide`: rounded, because a sum beyond int32 times 31 bits would leave int64."""
    bits = arithmetic.wide_bits
    rounded = (mantissa.astype(np.int64) + (1 << (30 - bits))) >> (31 - bits)
    return np.minimum(rounded, (1 << bits) - 1).astype(np.int32), np.minimum(shift, bits - 1).astype(np.int8)


def requantize_wide(x: Array, mantissa: Array | int, shift: Array | int, arithmetic: Arithmetic) -> Array:
    """x * M * 2^shift for |x| < 2^39 and M, shift of `wide`, rounded once: halves up, or to even."""
    right = arithmetic.wide_bits - np.asarray(shift, np.int64)
    product = np.asarray(x, np.int64) * mantissa
    if arithmetic.rounds_once:
        return round_half_even(product, right)
    return (product + (np.int64(1) << (right - 1))) >> right


def round_half_even(x: Array, shift: Array | int) -> Array:
    """x / 2^shift, half to even, for shift >= 1; int64 in and out."""
    shift = np.asarray(shift, np.int64)
    half = np.int64(1) << (shift - 1)
    floor_, rest = x >> shift, x & ((half << 1) - 1)
    return floor_ + ((rest > half) | ((rest == half) & ((floor_ & 1) == 1)))


def limits(dtype: str) -> tuple[int, int]:
    """The least and the largest value of an integer type."""
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def span(dtype: str) -> int:
    """The largest difference of two values of an integer type: of a value and its zero point, too."""
    low, high = limits(dtype)
    return high - low


def clamp_bounds(quant: Quant, low: float | None, high: float | None, dtype: str) -> tuple[int, int]:
    """The range of the type that an activation's real bounds leave, as TFLM computes it."""
    least, most = limits(dtype)
    scale, zero = np.float32(quant.scale[0]), quant.zero_point[0]

    def quantized(bound: float) -> int:
        ratio = float(np.clip(np.float64(np.float32(bound)) / scale, -(2.0**40), 2.0**40).astype(np.float32))
        return zero + int(np.sign(ratio) * floor(abs(ratio) + 0.5))

    lowest = least if low is None else max(least, quantized(low))
    highest = most if high is None else min(most, quantized(high))
    return lowest, highest


def exp_on_negative_values(raw: int, integer_bits: int) -> int:
    """exp(x) for x <= 0 in Q(integer_bits), result in Q0.31: gemmlowp's series and barrel shifter."""
    if raw == 0:
        return INT32_MAX
    fraction_bits = 31 - integer_bits
    quarter = 1 << (fraction_bits - 2)
    a = (raw & (quarter - 1)) - quarter
    result = _exp_near_minus_eighth(a << integer_bits)
    rest = a - raw
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)  # exp(-2^k), k = -2..4
    for exponent, factor in enumerate(factors, start=-2):
        if integer_bits > exponent and rest & (1 << (fraction_bits + exponent)):
            result = multiply(result, factor)
    return result


def _exp_near_minus_eighth(a: int) -> int:
    """exp(a) for a in [-1/4, 0), Q0.31: a Taylor series around -1/8 up to the fourth power."""
    at_eighth, third = 1895147668, 715827883
    x = a + (1 << 28)
    x2 = multiply(x, x)
    x3, x4 = multiply(x2, x), multiply(x2, x2)
    series = _shift(multiply(_shift(x4, 2) + x3, third) + x2, 1)
    return at_eighth + multiply(at_eighth, x + series)


def reciprocal(x: int, integer_bits: int) -> tuple[int, int]:
    """1 / x for x in Q(integer_bits), as (Q0.31 mantissa, bits over one)."""
    headroom = 32 - x.bit_length()
    half = ((x << headroom) - (1 << 31) + INT32_MAX + 1) // 2
    return saturate(newton_reciprocal(half) << 1), integer_bits - headroom


def newton_reciprocal(half: int) -> int:
    """1 / d in Q2.29 for d in [1/2, 1], a Q0.31 number: three Newton steps from 48/17 - 32/17 d."""
    estimate = 1515870810 + multiply(half, -1010580540)
    for _ in range(3):
        estimate += saturate(multiply(estimate, (1 << 29) - multiply(half, estimate)) << 2)
    return estimate


def multiply(a: int, b: int) -> int:
    """gemmlowp's saturating rounding doubling high multiply of two int32."""
    product = a * b
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    return abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)


def _shift(x: int, shift: int) -> int:
    return int(rounding_right_shift(np.int64(x), shift))


def saturate(x: int) -> int:
    """x in int32."""
    return max(-(2**31), min(INT32_MAX, x))


def inverse_root(total: int) -> tuple[int, int]:
    """1 / sqrt(total), as a Q0.31 factor and the bits by which the product is shifted right."""
    if total <= 1:
        return INT32_MAX, 0
    shift = 11
    while total >= 1 << 29:
        total, shift = total // 4, shift + 1
    pairs = (32 - total.bit_length() - 1) // 2 - 1
    shift, value = shift - pairs, total << (2 * pairs) >> 1  # Q3.28, from 1/4 to 1
    x = 1 << 28
    half = int(rounding_right_shift(np.int64(value), 1))
    for _ in range(5):
        cube = saturate(multiply(multiply(x, x), x) << 6)
        x = saturate((multiply((1 << 28) + (1 << 27), x) - multiply(half, cube)) << 3)
    x = multiply(x, HALF_ROOT)
    return (x << -shift, 0) if shift < 0 else (x, shift)
