"""LOG_SOFTMAX over the last dimension: out[i] = in[i] - log(sum over j of exp(in[j])).

The quantised form is TFLM's (kernels/internal/reference/integer_ops/log_softmax.h): distances from the row's largest
element are one of 256 values, so their place in Q5.26 and their exp() are tables; log() of the sum is a series.
"""

from __future__ import annotations

from math import floor
from typing import Any

import numpy as np

from ..arithmetic import Arithmetic
from ..ir import Array, Graph, Op
from . import fixedpoint, softmax
from .base import Constant, Form, Kernel, Spec, is_float, scale_of
from .fixedpoint import Multiplier, quantize_multiplier, requantize

OUTPUT = (1 / 16, 127)  # scale and zero point of the result, in TFLM
MOST = 4095  # exponentials that a sum in Q12.19 holds
OUTPUT_SHIFT = 22  # from Q5.26 to sixteenths


def tables(op: Op, graph: Graph) -> tuple[Array, Array, Multiplier]:
    """Minus distances 0, 1, ... in Q5.26, their exp() in Q12.19, and the factor from Q5.26 back to distances."""
    scale = scale_of(graph.operands(op)[0])
    m = quantize_multiplier(min(scale * (1 << (31 - softmax.INTEGER_BITS)), 2.0**31 - 1))
    radius = floor(((1 << softmax.INTEGER_BITS) - 1) * 2.0 ** (31 - softmax.INTEGER_BITS - m.shift))
    places = requantize(-np.arange(min(radius, 255) + 1), m.mantissa, m.shift, Arithmetic.TFLITE)
    powers = [fixedpoint.exp_on_negative_values(int(x), softmax.INTEGER_BITS) for x in places]
    sums = fixedpoint.rounding_right_shift(np.array(powers, np.int64), softmax.SUM_BITS)
    return places.astype(np.int32), sums.astype(np.int32), quantize_multiplier(2.0 ** (31 - m.shift) / m.mantissa)


def reference(op: Op, graph: Graph, x: Array) -> Array:
    if is_float(graph.result(op)):
        less = (x - x.max(axis=-1, keepdims=True)).astype(np.float64)
        return (less - np.log(np.exp(less).sum(axis=-1, keepdims=True))).astype(np.float32)
    places, powers, back = tables(op, graph)
    distance = x.max(axis=-1, keepdims=True).astype(np.int64) - x
    known = distance < len(places)
    at = np.where(known, distance, 0)
    total = np.where(known, powers[at], 0).astype(np.int64).sum(axis=-1, keepdims=True)
    logs = np.array([log_from_one(int(t)) for t in total.ravel()], np.int64).reshape(total.shape)
    reach = -requantize(logs - 2**31, back.mantissa, back.shift, Arithmetic.TFLITE)
    y = fixedpoint.rounding_right_shift(places[at] - logs, OUTPUT_SHIFT) + OUTPUT[1]
    return np.where(known & (distance < reach), np.clip(y, -128, 127), -128).astype(np.int8)


def log_from_one(raw: int) -> int:
    """log(x) in Q5.26 for x >= 1 in Q12.19 (log_x_for_x_greater_than_or_equal_to_1_impl of TFLite's common.h).

    x is 2^n r, with r within a factor of 2^(1/4) of 2^(-1/4). There are two ways to choose n, half a power apart; one
    of them does it. log(r) is a quotient of polynomials.
    """
    multiply = fixedpoint.multiply
    other = multiply(raw, SQRT_HALF)
    first, second = 32 - raw.bit_length(), 31 - other.bit_length()
    by_first = fixedpoint.saturate(multiply(raw << (first - 1), SQRT_HALF) << 1)
    r = min(by_first, fixedpoint.saturate(raw << second))
    power = max(((12 - first) << 25) + QUARTER, ((12 - second) << 25) - QUARTER)  # n in Q6.25
    middle = (r + FOURTH_ROOT + 1) // 2
    q = 2 * (r - FOURTH_ROOT)
    square = multiply(q, q)
    above = multiply(q, r) + multiply(multiply(q, square), ALPHA[0])
    below = multiply(middle, ALPHA[2] + q + multiply(ALPHA[1], square)) + multiply(ALPHA[3], q)
    inverse = fixedpoint.reciprocal(below + 2**31, 0)[0]
    rounded = int(fixedpoint.rounding_right_shift(np.int64(above), 6))
    return fixedpoint.saturate((multiply(power, LOG_TWO) + multiply(rounded, inverse)) * 2)


LOG_TWO, FOURTH_ROOT, SQRT_HALF = 1488522236, 1805811301, 1518500250  # log(2), 2^(-1/4), 2^(-1/2)
QUARTER = 1 << 23  # in Q6.25
ALPHA = (117049297, 127690142, 1057819769, 638450708)  # 11/240 a, a/20, 2/a - a, a/4 for a = 2^(1/4)


def known_form(op: Op, graph: Graph) -> str | None:
    """A quantised LOG_SOFTMAX is of int8, with output scale 1/16, zero point 127, and rows of at most 4095 elements."""
    x, y = graph.operands(op)[0], graph.result(op)
    if is_float(y):
        return None
    if not graph.arithmetic.fixed_point or x.dtype != "int8" or y.dtype != "int8" or y.quant is None or x.quant is None:
        return f"values of type {x.dtype}"
    fits = y.quant.zero_point[0] == OUTPUT[1] and abs(y.quant.scale[0] / OUTPUT[0] - 1) < 1e-3
    return None if fits and y.shape[-1] <= MOST else f"output is {y.quant}, rows of {y.shape[-1]}"


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    size = x.shape[-1]
    shape: dict[str, Any] = {"N": x.elements // size, "C": size, "float": is_float(x)}
    stem = f"log_softmax_{size}"
    if is_float(x):
        return Kernel("log_softmax.c.j2", stem, shape)
    places, powers, back = tables(op, graph)
    constants = (Constant("places", places, "-d * scale, Q5.26"), Constant("powers", powers, "exp() of them, Q12.19"))
    numbers: dict[str, int | float] = {"size": len(places), "multiplier": back.mantissa, "shift": back.shift}
    return Kernel("log_softmax.c.j2", stem, shape, constants, numbers)


SPEC = Spec(
    kind="log_softmax",
    nest=softmax.nest,
    reference=reference,
    kernel=kernel,
    limits=(known_form,),
)
