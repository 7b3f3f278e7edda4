"""Fixed-point arithmetic of quantised ops: the one place that rounds.

A real multiplier m is held as (M, shift) with m = M / 2^31 * 2^shift and M in [2^30, 2^31); a
positive shift is a left shift. An arithmetic rounds in one of two ways:

* `fixed_point`: x * 2^shift through a rounding high multiply, then a rounding right shift (half away
  from zero), as TFLM's and CMSIS-NN's kernels do (gemmlowp's fixedpoint.h). Bit-exact with them.
* `rounds_once`: one rounding of the exact product, half to even, as QuantizeLinear rounds. Equal to
  onnxruntime wherever M / 2^31 is the scale itself, else within one step of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from math import floor, frexp

import numpy as np

from ..ir import Arithmetic, Array, Graph, Op, Quant, Tensor
from .base import Constant, scale_of, zero_of

INT32_MAX = 2**31 - 1
Numbers = dict[str, int | float]  # constants of C, by name
HALF_ROOT = 1518500250  # sqrt(1/2) in Q0.31


@dataclass(frozen=True)
class Multiplier:
    """m = mantissa / 2^31 * 2^shift."""

    mantissa: int
    shift: int

    def named(self, prefix: str) -> dict[str, int]:
        """The multiplier as parameters of a kernel."""
        return {f"{prefix}_mul": self.mantissa, f"{prefix}_shift": self.shift}

    def times(self, x: Array | np.int64, arithmetic: Arithmetic) -> Array:
        """x * m in the given arithmetic, see `requantize`."""
        return requantize(x, self.mantissa, self.shift, arithmetic)

    def holds(self, most: int) -> bool:
        """Whether x * m stays in int32 on the way for all |x| <= `most`, and so rises with x."""
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


def quantize_multipliers(reals: Iterable[float]) -> tuple[Array, Array]:
    """Mantissas (int32) and shifts (int8) of several multipliers."""
    pairs = [quantize_multiplier(real) for real in reals]
    return np.array([m.mantissa for m in pairs], np.int32), np.array([m.shift for m in pairs], np.int8)


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


def requantize(
    x: Array | np.int64, mantissa: Array | int, shift: Array | int, arithmetic: Arithmetic, added: Array | None = None
) -> Array:
    """x * M / 2^31 * 2^shift in the given arithmetic. `x` holds int32 values; int64 out.

    `added`: added to the product, which is then rounded down in any arithmetic.
    """
    x, shift = np.asarray(x, np.int64), np.asarray(shift, np.int64)
    if added is not None:
        return np.asarray((x * mantissa + added) >> (31 - shift))
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    if arithmetic.fixed_point:
        in_words = (x << left).astype(np.int32).astype(np.int64)
        return rounding_right_shift(rounding_high_multiply(in_words, mantissa), right)
    return round_half_even(x * mantissa, 31 - shift)


def scaled_text(value: str, name: str, m: Multiplier, most: int, bits: int = 0) -> tuple[str, Numbers]:
    """C of `requantize` in TFLite's arithmetic, and the numbers in it, for `value` << `bits` with |value| <= `most`.

    Half of an even number is exact. Two 32-bit products replace a 64-bit one where they stay in int32. Names of shared
    C functions are in braces.
    """
    up = bits + max(m.shift, 0)
    down = 31 - up
    if m.mantissa == 2**30 and m.shift >= 0 and up and most << up < 2**31:
        return f"{value} * (1 << {up - 1})", {}
    if most << up >= 2**30:
        raised = f"{value} * (1 << {bits})" if bits else value
        return f"{{eb_requantize}}({raised}, {name}_mul, {name}_shift)", {**m.named(name)}
    high, low = divmod(m.mantissa, 1 << down)
    text, numbers = f"{value} * {name}_high", Numbers({f"{name}_high": high})
    if low and (most << down) + (1 << (down - 1)) < 2**31:
        text = f"{{eb_scale_parts}}({value}, {name}_high, {name}_low, {down})"
        numbers |= {f"{name}_low": low}
    elif low:
        text = f"{{eb_round_high}}({value} * (1 << {up + 1}), {name}_mul)"
        numbers = {f"{name}_mul": m.mantissa}
    if m.shift < 0:
        text, numbers = f"{{eb_halves_away}}({text}, {name}_down)", {**numbers, f"{name}_down": -m.shift}
    return text, numbers


WIDE_SUMS = 2**39  # `requantize_wide` is for sums below this


def wide(mantissa: Array, shift: Array, arithmetic: Arithmetic) -> tuple[Array, Array]:
    """Multipliers for `requantize_wide`, rounded to fewer bits: a sum beyond int32 times 31 bits would leave int64."""
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
    """The largest difference of two values of an integer type, hence of a value and its zero point."""
    low, high = limits(dtype)
    return high - low


def clamp_bounds(quant: Quant, low: float | None, high: float | None, dtype: str) -> tuple[int, int]:
    """The quantised range that an activation's real bounds (None: open) leave, as TFLM computes it."""
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
    """x, saturated to int32."""
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


# Results of few quantised operands as one linear form in int32:
#
#     y = clamp(((f0 x0 >> down0) + (f1 x1 >> down1) + offset) >> shift)
#
# The arithmetics round several times, in 64 bits. But int8 operands have 2^16 pairs of values at most, so a form is
# checked against the arithmetic for all of them. Only forms that are equal everywhere are used.
INT8 = np.arange(-128, 128, dtype=np.int64)
MAX_VALUES = 2**20  # most values for which a form is checked


@dataclass(frozen=True)
class Term:
    """An operand's `values` (shaped for broadcasting), its weight in the result, and the right shift of its product."""

    values: Array
    weight: float
    down: int


@dataclass(frozen=True)
class Linear:
    """(sum of terms * factors, each shifted down, + offset) >> shift; `below` is subtracted for negative products."""

    factors: tuple[int, ...]
    offset: int
    shift: int
    below: int = 0


def fit_twice(m: Multiplier, products: Array, want: Array, zero: int, low: int, high: int) -> Linear | None:
    """TFLM's two roundings of m * products as one sum: (product * factor >> 18, + offset) >> shift.

    x * M / 2^31, halves up, is (x * M >> 18, + 2^12) >> 13. The second rounding is half away from zero: for negative x
    its threshold is one step, 2^13, higher. An even factor is tried first, for cores that multiply in halves.
    """
    shift = 13 - m.shift
    offset = (1 << 12) + (1 << shift - 1) + (zero << shift) if m.shift < 0 else 0
    if m.shift >= 0 or (int(abs(products).max()) << 13) + abs(offset) >= 2**31:
        return None
    for factor in (m.mantissa & ~1, m.mantissa):
        sums = (products * factor >> 18) - (products < 0) * (1 << 13) + offset
        if np.array_equal(np.clip(sums >> shift, low, high), want):
            return Linear((factor,), offset, shift, 1 << 13)
    return None


def fit_terms(terms: Sequence[Term], want: Array, low: int, high: int) -> Linear | None:
    """The finest linear form in int32 that gives `want`, clamped to [low, high], for all values; None if there is none.

    Results are cached: a search of plans asks for the same form many times.
    """
    key = hashlib.sha256(want.tobytes())
    for t in terms:
        key.update(t.values.tobytes())
    question = (key.digest(), want.shape, low, high, *((t.values.shape, t.weight, t.down) for t in terms))
    if question not in _answers:
        _answers[question] = _fit_terms(terms, want, low, high)
    return _answers[question]


_answers: dict[tuple[object, ...], Linear | None] = {}


def _fit_terms(terms: Sequence[Term], want: Array, low: int, high: int) -> Linear | None:
    tried = 0
    for shift in range(30, 7, -1):
        factors = [round(t.weight * 2.0 ** (shift + t.down)) for t in terms]
        reach = sum(abs(f) * int(abs(t.values).max()) >> t.down for f, t in zip(factors, terms, strict=True))
        if max(map(abs, factors)) >= 2**31 - 1 or reach >= 2**30:
            continue
        for nudge in product((0, 1, -1), repeat=len(terms)):
            nudged = tuple(f + n for f, n in zip(factors, nudge, strict=True))
            offset = _offset(terms, nudged, shift, want, low, high)
            if offset is not None:
                return Linear(nudged, offset, shift)
        tried += 1
        if tried == 2:  # where the finest two shifts fail, coarser ones do, too
            break
    return None


def _offset(
    terms: Sequence[Term], factors: tuple[int, ...], shift: int, want: Array, low: int, high: int
) -> int | None:
    """The middle of the offsets that are exact for all values: want << shift <= sum + offset < (want + 1) << shift."""
    total = np.zeros(want.shape, np.int64)
    for f, t in zip(factors, terms, strict=True):
        total = total + (f * t.values >> t.down)
    want = want.astype(np.int64)
    least = int(((want << shift) - total)[want > low].max(initial=-(2**31)))
    most = int((((want + 1) << shift) - 1 - total)[want < high].min(initial=2**31 - 1))
    offset = (least + most) // 2
    fits = abs(offset) < 2**31 and int(total.min()) + offset >= -(2**31) and int(total.max()) + offset < 2**31
    return offset if least <= most and fits else None


@dataclass(frozen=True)
class Scaled:
    """Maps an integer x to clamp((high(x' << up, factor) + offset) >> shift); high: the upper word of a product.

    x' is x, or x - 1 for negative x if `away`: then halves are rounded away from zero.
    """

    factor: int
    offset: int
    shift: int
    up: int
    away: bool

    def letters(self, zero: int) -> dict[str, int | bool]:
        """The numbers of the template `linear`; `zero` is subtracted from the integer first."""
        return {"linear": True, "up": self.up, "away": self.away, "shift": self.shift, "zero": zero}

    @property
    def scalars(self) -> dict[str, int | float]:
        return {"y_mul": self.factor, "offset": self.offset}


def fit_even(terms: Sequence[Term], want: Array, zeros: float, low: int, high: int) -> Linear | None:
    """The form whose last shift rounds to the nearest, halves to even, and whose factors are powers of two.

    `zeros`: added to the weighted sum before it is rounded, in steps of the result. None if the form is not exact.
    """
    shift = max(0, *(-(frexp(t.weight)[1] - 1) for t in terms))
    factors = tuple(round(t.weight * 2.0 ** (shift + t.down)) for t in terms)
    offset = round(zeros * 2**shift)
    reach = sum(t.weight * int(abs(t.values).max()) for t in terms) + abs(zeros)
    if shift > 22 or reach * 2.0**shift >= 2**30 or any(f & (f - 1) or f <= 0 for f in factors):
        return None
    total = np.full(want.shape, offset, np.int64)
    for f, t in zip(factors, terms, strict=True):
        total = total + (f * t.values >> t.down)
    rounded = round_half_even(total, shift) if shift else total
    return Linear(factors, offset, shift) if (np.clip(rounded, low, high) == want).all() else None


def fit_scale(first: int, want: Array, weight: float, low: int, high: int) -> Scaled | None:
    """The form that maps first, first + 1, ... to `want`, about `weight` times them, clamped to [low, high]."""
    if want.size > MAX_VALUES:
        return None
    values = np.arange(first, first + want.size, dtype=np.int64)
    up = 30 - int(abs(values).max()).bit_length()
    for away in (False, True):
        form = fit_terms((Term(values - (away & (values < 0)), weight, 32 - up),), want, low, high)
        if form is not None:
            return Scaled(form.factors[0], form.offset, form.shift, up, away)
    return None


# LOGISTIC, TANH and HARD_SWISH of int8 in the fixed-point steps of TFLM, which uses gemmlowp.


def _q4(x: Tensor, inside: Callable[[int], int]) -> Array:
    """Results of TFLM's LOGISTIC or TANH for -128 to 127: inputs in Q4.27, saturated beyond their range."""
    fraction, shift = frexp(scale_of(x) * 2.0**27)
    mantissa = floor(fraction * 2**31 + 0.5)
    m = Multiplier(mantissa // 2, shift + 1) if mantissa == 2**31 else Multiplier(mantissa, shift)
    radius = floor(15 * 2.0 ** (27 - m.shift))

    def result(value: int) -> int:
        if abs(value) >= radius:
            return 127 if value > 0 else -128
        return inside(int(m.times(np.int64(value), Arithmetic.TFLITE)))

    return np.array([result(int(v)) for v in INT8 - zero_of(x)], np.int64)


def _newton(unit: int) -> int:
    """2 / (1 + x) in Q2.29 for x = unit / 2^31 (gemmlowp's one_over_one_plus_x_for_x_in_0_1)."""
    return newton_reciprocal((unit + INT32_MAX + 1) // 2)


def logistic(op: Op, x: Tensor, y: Tensor) -> Array:
    def inside(raw: int) -> int:
        upper = saturate(_newton(exp_on_negative_values(-abs(raw), 4)) << 1)
        value = upper if raw > 0 else INT32_MAX - upper if raw < 0 else 1 << 30
        return int(rounding_right_shift(np.int64(value), 23)) - 128

    return _q4(x, inside)


def tanh_int8(op: Op, x: Tensor, y: Tensor) -> Array:
    def inside(raw: int) -> int:
        size = saturate(_newton(exp_on_negative_values(-abs(raw), 5)) - (1 << 29) << 2)
        value = size if raw > 0 else -size if raw < 0 else 0
        return int(rounding_right_shift(np.int64(value), 24))

    return _q4(x, inside)


def _multiplier16(real: float) -> tuple[int, int]:
    """Mantissa in 16 bits, and exponent."""
    m = quantize_multiplier(real)
    large = m.mantissa >= INT32_MAX - (1 << 15)
    return 2**15 - 1 if large else (m.mantissa + (1 << 15)) >> 16, m.shift


def _int16(value: int) -> int:
    return max(-(2**15), min(2**15 - 1, value))


def _high16(a: int, b: int, rounds: bool = True) -> int:
    """The upper half of 2ab, saturated: gemmlowp's doubling high multiply of int16, which truncates towards zero."""
    product = a * b
    nudged = product + ((1 << 14) if product >= 0 else 1 - (1 << 14)) if rounds else product
    return _int16(abs(nudged) // 2**15 * (1 if nudged >= 0 else -1))


def hard_swish(op: Op, x: Tensor, y: Tensor) -> Array:
    """Results for -128 to 127, as in TFLM's kernels/internal/reference/hard_swish.h."""
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
            reluish = int(rounding_right_shift(np.int64(reluish), -gate_shift))
        product = _high16((reluish + (1 << 15)) >> 1, scaled, rounds=False)
        return int(rounding_right_shift(np.int64(product), max(0, -out_shift)))

    return np.array([result(int(v)) for v in INT8 - zero_of(x)], np.int64) + zero_of(y)


# TFLM's sigmoid and tanh of int16: 256 values of the sigmoid at steps of 1/24, with linear interpolation.
#
# kernels/internal/reference/integer_ops/logistic.h and tanh.h. Arguments are in steps of 1 / (3 * 4096), results in
# Q0.15.


def _sigmoid_table() -> Array:
    """Values in Q0.16, less a 16th of the curve's second difference, so that lines between them err evenly."""
    x = np.arange(256) / 24
    value = 1 / (1 + np.exp(-x))
    bend = value * (1 - value) * (1 - 2 * value) / 24**2
    values = np.rint(65536 * (value - bend / 16)).astype(np.int64)
    values[-1] = 65535
    return values


SIGMOID = _sigmoid_table()
SIGMOID_CONSTANT = Constant("table", (SIGMOID - 2**15).astype(np.int16), "sigmoid(i / 24) in Q0.16, less 2^15")


def sigmoid_argument(value: Array, multiplier: int, shift: int) -> Array:
    """(x * multiplier) / 2^shift, halves up."""
    return np.asarray((value.astype(np.int64) * multiplier + ((1 << shift) >> 1)) >> shift)


def _on_lines(x: Array, bits: int, most: int) -> Array:
    """The table's curve at |x|, whose `bits` low bits lie between two values; `most` beyond the last."""
    size = np.abs(x.astype(np.int64))
    at, rest = np.minimum(size >> bits, 254), size & ((1 << bits) - 1)
    a, b = SIGMOID[at], SIGMOID[at + 1]
    return np.where(size >> bits >= 255, most, (a << bits) + rest * (b - a))


def sigmoid(x: Array) -> Array:
    result = _on_lines(x, 9, 0x7FFF << 10)
    return np.asarray(np.where(x >= 0, result + 512, (1 << 25) - result + 511) >> 10)


def tanh_int16(x: Array) -> Array:
    """tanh(x) = 2 sigmoid(2x) - 1, by the same table."""
    result = _on_lines(x, 8, 0xFFFF << 8)
    return np.asarray(np.where(x >= 0, result - (1 << 23) + 128, (1 << 23) - result + 127) >> 8)


def sigmoid_scaling(scale: float, powers: tuple[int, ...]) -> tuple[int, int]:
    """Multiplier and shift from steps of `scale` to arguments; exact for scales 2^(power - 12) of `powers`."""
    for power in powers:
        if scale == 2.0 ** (power - 12):
            return 3 << power, 0
    multiplier, shift = scale * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2 and shift <= 30:
        multiplier, shift = multiplier * 2, shift + 1
    return int(multiplier), shift


# TFLM's DIV of int8: a quotient by the reciprocal of the divisor, in fixed point.
#
# kernels/internal/reference/div.h (DivElementwise). The file's format leaves a division by zero open; a divisor of 0
# steps counts as one step here. Where the result is to be shifted right by more than 31 bits, gemmlowp's
# RoundingDivideByPOT rounds away from zero, and 0 up: so 0 / 128 may be one step.

QUOTIENT = "{{eb_quotient}}({0} - x0_zero, {1} - x1_zero, y_mul, y_shift)"  # C, before the zero point is added
MAX_STEPS = 255  # steps from a zero point


def quotient_factor(op: Op, graph: Graph) -> Multiplier:
    """The factor from a quotient of steps to steps of the result."""
    a, b = (scale_of(t) for t in graph.operands(op))
    return quantize_multiplier(a / (b * scale_of(graph.result(op))))


def quotient(a: Array, b: Array, m: Multiplier) -> Array:
    """a / b in steps of the result, for |a| and |b| within MAX_STEPS."""
    share, right = _share(a, b, m)
    near = rounding_right_shift(share, np.clip(right, 0, 31))
    return np.where(right > 31, np.where(share < 0, -1, 1), near)


def quotient_is_open(a: Array, b: Array, m: Multiplier) -> bool:
    """Whether C leaves one of these quotients to the processor: a shift by more than 31 bits, a division by 0."""
    return bool(((_share(a, b, m)[1] > 31) | (b == 0)).any())


def _share(a: Array, b: Array, m: Multiplier) -> tuple[Array, Array]:
    """A quotient in fixed point, and the right shift in bits that it still needs."""
    inverses = [reciprocal(max(size, 1), 31) for size in range(MAX_STEPS + 1)]
    inverse, over = (np.array(column, np.int64)[abs(b)] for column in zip(*inverses, strict=True))
    value = np.where(b < 0, -a, a)
    headroom = 31 - np.ceil(np.log2(np.where(value < 0, -value, value + 1))).astype(np.int64)
    share = rounding_high_multiply(rounding_high_multiply(value << headroom, inverse), m.mantissa)
    return share, over + headroom - m.shift
