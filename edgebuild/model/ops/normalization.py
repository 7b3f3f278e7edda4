"""Ops that normalise rows: softmax, its logarithm, and rows of length one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import exp, floor
from typing import Any

import numpy as np

from ..ir import ITEM_BYTES, Arithmetic, Array, Graph, Nest, Op, Tensor, lines
from . import fixedpoint
from .base import Constant, Form, Kernel, Spec, is_float, scale_of, zero_of
from .fixedpoint import Multiplier, quantize_multiplier
from .functions import instructions, quantised_instructions

# TFLM's softmax of int16: two tables of 513 values with linear interpolation.
#
# kernels/internal/reference/softmax.h (SoftmaxInt16) and common.h (LUTPopulate, LUTLookup). exp() of distances from the
# largest element, of which 2^16 steps are 10; 1 / (1 + x) for x from 0 to 1. Values are in Q0.15.

STEPS, SOFTMAX16_MAX, REACH = 512, 2**16 - 1, 10.0
LOW, HIGH = -(2**15), 2**15 - 1
LARGEST_STEP = 2.0**30 * REACH / SOFTMAX16_MAX  # a step of the operand from which on TFLM shifts by 31 bits or more


def _rounded(value: Any) -> Any:
    """Round, half away from zero."""
    return np.sign(value) * np.floor(np.abs(value) + np.float32(0.5))


def line_table(function: Callable[[float], float], low: float, high: float, steps: float = 2.0**15) -> Array:
    """Values at 513 places from low to high, each shifted by half the interpolation's error in the middle.

    All in float32, as TFLM computes them when it starts. `steps`: of the result, per unit.
    """
    one, two, unit = np.float32, np.float32(2), np.float32(steps)
    step, values = one(high - low) / one(STEPS), []
    for i in range(STEPS):
        places = (one(low) + one(i) * step, one(low) + one(i) * step + step / two, one(low) + one(i + 1) * step)
        here, middle, after = (one(function(float(at))) * unit for at in places)
        line = _rounded((after + _rounded(here)) / two)
        values.append(_rounded(here) - _rounded((line - _rounded(middle)) / two))
    values.append(_rounded(one(function(high)) * unit))
    return np.clip(np.array(values), LOW, HIGH).astype(np.int16)


@cache  # few models need them, and they take milliseconds
def softmax16_tables() -> tuple[Constant, Constant]:
    """Tables of exp(x) for -10 to 0 and of 1 / (1 + x) for 0 to 1, in Q0.15."""
    powers, inverses = line_table(exp, -REACH, 0.0), line_table(lambda x: 1 / (1 + x), 0.0, 1.0)
    return Constant("exponential", powers, "exp(x), -10 to 0, Q0.15"), Constant("inverse", inverses, "1 / (1 + x)")


def factor(scale: float, beta: float) -> fixedpoint.Multiplier:
    """The factor from steps of the input to 1 / (2^16 - 1) of 10."""
    return fixedpoint.quantize_multiplier(scale * beta / (REACH / SOFTMAX16_MAX))


def looked_up(table: Array, value: Array | np.int64) -> Array:
    """The table's function at an int16, interpolated."""
    at, rest = 256 + (value >> 7), value & 0x7F
    base, after = table[at].astype(np.int64), table[at + 1].astype(np.int64)
    return np.asarray(base + (((after - base) * rest + 64) >> 7))


def row(x: Array, scale: float, beta: float) -> Array:
    powers_of, inverse_of = (table.data for table in softmax16_tables())
    m, less = factor(scale, beta), x.astype(np.int64) - int(x.max())
    scaled = m.times(less, Arithmetic.TFLITE) + HIGH
    powers = looked_up(powers_of, np.clip(scaled, LOW, HIGH))
    total = int(powers.sum())
    headroom = 31 - total.bit_length()
    part = ((total << headroom) + (1 << 13)) >> 14
    share = int(looked_up(inverse_of, np.int64(max(LOW, min(HIGH, part - 2**15 - 2**16)))))
    right = 30 - headroom
    return np.clip((powers * share + (1 << (right - 1))) >> right, 0, HIGH).astype(np.int16)


# SOFTMAX, Softmax over the last dimension: out[i] = exp(b * in[i]) / sum over j of exp(b * in[j]).
#
# The quantised form takes exp() of the distance to the row's largest element, which is one of 256
# values: a table computed here with gemmlowp's own fixed-point steps, so that the result is TFLM's.

SOFTMAX_ROW = 220.0  # instructions of a row, mostly for its reciprocal: `verify` of 10, 64 and 1,000 elements
SOFTMAX_PACE = 1.25  # `Kernel.pace` on XpulpV2, whose other kernels do not use the high words of products
INTEGER_BITS, SUM_BITS = 5, 12  # Q5.26 differences, Q12.19 sum (kernels/internal/reference/softmax.h)


def nest(op: Op, graph: Graph) -> Nest:
    return lines(graph.operands(op)[0].shape, -1)


def exp_table(op: Op, graph: Graph) -> Array:
    """exp(-d * scale * beta) for d = 0, 1, ... in Q0.31, for all distances that count."""
    return np.array(_exp_table(op.attrs["beta"] * scale_of(graph.operands(op)[0])), np.int32)


def distance_factor(scale: float) -> fixedpoint.Multiplier:
    """The factor from a distance to Q5.26."""
    return fixedpoint.quantize_multiplier(min(scale * (1 << (31 - INTEGER_BITS)), 2.0**31 - 1))


def _distances(scale: float) -> tuple[Multiplier, int]:
    """The factor from a distance to Q5.26, and how many distances count."""
    m = distance_factor(scale)
    return m, min(floor(((1 << INTEGER_BITS) - 1) * 2.0 ** (31 - INTEGER_BITS - m.shift)), 255) + 1


@cache
def _exp_table(scale: float) -> tuple[int, ...]:
    m, count = _distances(scale)
    table = []
    for distance in range(count):
        scaled = int(fixedpoint.rounding_high_multiply(np.int64(-distance * 2 ** max(m.shift, 0)), m.mantissa))
        table.append(fixedpoint.exp_on_negative_values(scaled >> max(-m.shift, 0), INTEGER_BITS))
    return tuple(table)


def softmax_reference(op: Op, graph: Graph, x: Array) -> Array:
    if is_float(graph.result(op)):
        e = np.exp((x - x.max(axis=-1, keepdims=True)).astype(np.float64) * op.attrs["beta"])
        return (e / e.sum(axis=-1, keepdims=True)).astype(np.float32)
    if x.dtype == np.int16:
        lines = (row(r, scale_of(graph.operands(op)[0]), op.attrs["beta"]) for r in x.reshape(-1, x.shape[-1]))
        return np.stack(list(lines)).reshape(x.shape)
    table, rows = exp_table(op, graph), x.reshape(-1, x.shape[-1])
    return np.stack([_row(op, graph, row, table) for row in rows]).reshape(x.shape)


def _row(op: Op, graph: Graph, row: Array, table: Array) -> Array:
    distance = int(row.max()) - row.astype(np.int64)
    e = np.where(distance < len(table), table[np.minimum(distance, len(table) - 1)], 0).astype(np.int64)
    total = int(fixedpoint.rounding_right_shift(e, SUM_BITS)[distance < len(table)].sum())
    inverse, over = fixedpoint.reciprocal(total, SUM_BITS)
    share = fixedpoint.rounding_high_multiply(e, inverse)
    low, high = fixedpoint.limits(graph.result(op).dtype)
    if graph.arithmetic.fixed_point:
        y = fixedpoint.rounding_right_shift(share, over + 31 - _bits(graph.result(op))) + low
    else:
        m = output_multiplier(graph.result(op).quant)
        shift = m.shift - over  # below -31 every share is less than half a step
        steps = (
            fixedpoint.requantize(share, m.mantissa, shift, Arithmetic.ONNX) if shift >= -31 else np.zeros_like(share)
        )
        y = steps + zero_of(graph.result(op))
    return np.clip(y, low, high).astype(graph.result(op).dtype)


def _bits(y: Tensor) -> int:
    return 8 * ITEM_BYTES[y.dtype]


def output_multiplier(quant: Any) -> fixedpoint.Multiplier:
    """The factor from a share in Q0.31 to steps of the output."""
    return fixedpoint.quantize_multiplier(2.0**-31 / quant.scale[0])


def output_quantisation(op: Op, graph: Graph) -> str | None:
    """A quantised TFLite softmax has output scale 1/256 and zero point -128, of int16 1/32768 and 0 and rows of at
    most 65536 elements; from int8 to int16, 1/65536 and -32768."""
    (x,), y = graph.operands(op), graph.result(op)
    q, fixed = y.quant, graph.arithmetic.fixed_point
    if q is None or is_float(y) or not (fixed or y.dtype == "int16"):
        return None
    zero, steps = (0, 2**15) if y.dtype == "int16" else (-128, 256)
    if (x.dtype, y.dtype) == ("int8", "int16"):
        zero, steps = -(2**15), 2**16
    fits = fixed and q.zero_point[0] == zero and abs(q.scale[0] * steps - 1) < 1e-3
    fits = fits and (zero != 0 or y.shape[-1] <= 1 << 16)
    return None if fits else f"output is {'int16, ' if y.dtype == 'int16' else ''}{q}"


def step_of_int16(op: Op, graph: Graph) -> str | None:
    """A step of an int16 operand, times beta, is less than 163,842; beyond it TFLite shifts by more bits than C has."""
    (x,) = graph.operands(op)
    step = scale_of(x) * op.attrs["beta"] if x.dtype == "int16" and x.quant is not None else 0.0
    return f"a step of '{x.name}', times beta, is {step:g}" if step >= LARGEST_STEP else None


def softmax_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    y = graph.result(op)
    size = x.shape[-1]
    shape: dict[str, Any] = {"N": x.elements // size, "C": size, "float": is_float(x), "arithmetic": graph.arithmetic}
    shape |= {"wide": x.dtype == "int16", "computed": False, "by_value": False, "bits": _bits(y)}
    if is_float(x):
        cost = 20.0 + instructions("softmax", form.core) * x.elements
        beta = {"beta": op.attrs["beta"]}
        return Kernel("normalization.c:softmax", f"softmax_{size}", shape, (), beta, estimate=cost)
    if x.dtype == "int16":
        m = factor(scale_of(x), op.attrs["beta"])
        numbers: dict[str, int | float] = {"multiplier": m.mantissa, "shift": m.shift}
        return Kernel("normalization.c:softmax", f"softmax_{size}", shape, softmax16_tables(), numbers)
    table = exp_table(op, graph)
    scalars: dict[str, int | float] = {"table_size": len(table)}
    if graph.arithmetic.rounds_once:
        assert y.quant is not None
        m = output_multiplier(y.quant)
        scalars |= {"multiplier": m.mantissa, "shift": m.shift, "y_zero": zero_of(y)}
    constants = (Constant("table", table, "exp(-d * scale), Q0.31"),)
    each = quantised_instructions("softmax", x.dtype, form.core, graph.arithmetic.rounds_once)
    cost, pace = shape["N"] * (SOFTMAX_ROW + each * size), SOFTMAX_PACE if form.core & {"corev", "gap8"} else 1.0
    return Kernel("normalization.c:softmax", f"softmax_{size}", shape, constants, scalars, estimate=cost, pace=pace)


SOFTMAX = Spec(
    "softmax", nest, softmax_reference, softmax_kernel, integers=("int8", "int16"),
    limits=(output_quantisation, step_of_int16),
)  # fmt: skip


# LOG_SOFTMAX over the last dimension: out[i] = in[i] - log(sum over j of exp(in[j])).
#
# The quantised form is TFLM's (kernels/internal/reference/integer_ops/log_softmax.h): distances from the row's largest
# element are one of 256 values, so their place in Q5.26 and their exp() are tables; log() of the sum is a series.

LOG_SOFTMAX_OUTPUT = (1 / 16, 127)  # scale and zero point of the result, in TFLM
LOG_SOFTMAX_MAX = 4095  # exponentials that a sum in Q12.19 holds
OUTPUT_SHIFT = 22  # right shift from Q5.26 to sixteenths
MIN_STEP = 2.0**-26  # a step of the operand: at or below it, the factor from Q5.26 back to steps is at least 1


def log_softmax_tables(op: Op, graph: Graph) -> tuple[Array, Array, Multiplier]:
    """Minus distances 0, 1, ... in Q5.26, their exp() in Q12.19, and the factor from Q5.26 back to distances."""
    m, count = _distances(scale_of(graph.operands(op)[0]))
    places = m.times(-np.arange(count), Arithmetic.TFLITE)
    powers = [fixedpoint.exp_on_negative_values(int(x), INTEGER_BITS) for x in places]
    sums = fixedpoint.rounding_right_shift(np.array(powers, np.int64), SUM_BITS)
    return places.astype(np.int32), sums.astype(np.int32), quantize_multiplier(2.0 ** (31 - m.shift) / m.mantissa)


def log_softmax_reference(op: Op, graph: Graph, x: Array) -> Array:
    if is_float(graph.result(op)):
        less = (x - x.max(axis=-1, keepdims=True)).astype(np.float64)
        return (less - np.log(np.exp(less).sum(axis=-1, keepdims=True))).astype(np.float32)
    places, powers, back = log_softmax_tables(op, graph)
    distance = x.max(axis=-1, keepdims=True).astype(np.int64) - x
    counted = distance < len(places)
    at = np.where(counted, distance, 0)
    total = np.where(counted, powers[at], 0).astype(np.int64).sum(axis=-1, keepdims=True)
    logs = np.array([log_from_one(int(t)) for t in total.ravel()], np.int64).reshape(total.shape)
    reach = -back.times(logs - 2**31, Arithmetic.TFLITE)
    y = fixedpoint.rounding_right_shift(places[at] - logs, OUTPUT_SHIFT) + LOG_SOFTMAX_OUTPUT[1]
    return np.where(counted & (distance < reach), np.clip(y, -128, 127), -128).astype(np.int8)


def log_from_one(raw: int) -> int:
    """log(x) in Q5.26 for x >= 1 in Q12.19 (log_x_for_x_greater_than_or_equal_to_1_impl of TFLite's common.h).

    x is 2^n r, with r within a factor of 2^(1/4) of 2^(-1/4). One of two choices of n satisfies
    this. log(r) is a quotient of polynomials.
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


def int8_rows(op: Op, graph: Graph, output: tuple[float, int], most: int) -> str | None:
    """Why TFLM's int8 form does not apply, or None. `output`: scale and zero point; `most`: elements of a row."""
    x, y = graph.operands(op)[0], graph.result(op)
    if not graph.arithmetic.fixed_point or x.dtype != "int8" or y.dtype != "int8" or y.quant is None or x.quant is None:
        return f"{x.dtype} to {y.dtype}"
    fits = y.quant.zero_point[0] == output[1] and abs(y.quant.scale[0] / output[0] - 1) < 1e-3
    return None if fits and y.shape[-1] <= most else f"output is {y.quant}, rows of {y.shape[-1]}"


def log_softmax_form(op: Op, graph: Graph) -> str | None:
    """A quantised LOG_SOFTMAX is of int8, with output scale 1/16, zero point 127, and rows of at most 4095 elements.

    Its input's scale is above 2^-26.
    """
    (x,) = graph.operands(op)
    if is_float(x):
        return None
    wrong = int8_rows(op, graph, LOG_SOFTMAX_OUTPUT, LOG_SOFTMAX_MAX)
    return wrong or (f"a step of '{x.name}' is {scale_of(x):g}" if scale_of(x) <= MIN_STEP else None)


def log_softmax_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    size = x.shape[-1]
    shape: dict[str, Any] = {"N": x.elements // size, "C": size, "float": is_float(x)}
    stem = f"log_softmax_{size}"
    if is_float(x):
        cost = 20.0 + instructions("log_softmax", form.core) * x.elements
        return Kernel("normalization.c:log_softmax", stem, shape, estimate=cost)
    places, powers, back = log_softmax_tables(op, graph)
    constants = (Constant("places", places, "-d * scale, Q5.26"), Constant("powers", powers, "exp() of them, Q12.19"))
    numbers: dict[str, int | float] = {"size": len(places), "multiplier": back.mantissa, "shift": back.shift}
    return Kernel("normalization.c:log_softmax", stem, shape, constants, numbers)


LOG_SOFTMAX = Spec("log_softmax", nest, log_softmax_reference, log_softmax_kernel, limits=(log_softmax_form,))


# L2_NORMALIZATION: rows of the last dimension, divided by their Euclidean lengths.
#
# The int8 form is TFLM's (kernels/internal/reference/integer_ops/l2normalization.h): one factor in fixed point a row,
# the inverse root of the sum of squares by five Newton steps. For float32, importers use other ops.
# `scaled_first`: as TFLite's uint8 kernel (kernels/internal/reference/l2normalization.h) multiplies by 128 and then
# rounds at the shift; the int8 kernel has the 128 in the shift.

UNIT_ROWS_OUTPUT = (1 / 128, 0)  # scale and zero point of the result
BITS = 7  # fraction bits of the result
UNIT_ROWS_MAX = 33000  # squares of at most 255 that an int32 holds


def unit_rows_reference(op: Op, graph: Graph, x: Array) -> Array:
    rows = x.reshape(-1, x.shape[-1]).astype(np.int64) - zero_of(graph.operands(op)[0])
    factors = [fixedpoint.inverse_root(int(total)) for total in (rows * rows).sum(axis=1)]
    before, inside = unit_rows_bits(op)
    steps = [
        fixedpoint.requantize(row << before, m, inside - right, graph.arithmetic)
        for row, (m, right) in zip(rows, factors, strict=True)
    ]
    return np.clip(np.stack(steps), -128, 127).astype(np.int8).reshape(x.shape)


def unit_rows_bits(op: Op) -> tuple[int, int]:
    """Fraction bits that are shifted in before the product with a row's factor, and those in the product's shift."""
    return (BITS, 0) if op.attrs.get("scaled_first") else (0, BITS)


def unit_rows_form(op: Op, graph: Graph) -> str | None:
    """A quantised L2_NORMALIZATION is of int8, with output scale 1/128, zero point 0, and rows of at most 33000."""
    return int8_rows(op, graph, UNIT_ROWS_OUTPUT, UNIT_ROWS_MAX)


def unit_rows_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    size, (before, inside) = x.shape[-1], unit_rows_bits(op)
    shape: dict[str, Any] = {"N": x.elements // size, "C": size, "before": before, "inside": inside}
    return Kernel(
        "normalization.c:unit_rows", f"unit_rows_{size}", shape, (), {"x_zero": zero_of(x)}, estimate=20.0 * x.elements
    )


UNIT_ROWS = Spec("unit_rows", nest, unit_rows_reference, unit_rows_kernel, limits=(unit_rows_form,))
