"""SOFTMAX, Softmax over the last dimension: out[i] = exp(b * in[i]) / sum over j of exp(b * in[j]).

The quantised form takes exp() of the distance to the row's largest element, which is one of 256
values: a table made here with gemmlowp's own fixed-point steps, so that the result is TFLM's.
"""

from __future__ import annotations

from functools import cache
from math import floor
from typing import Any

import numpy as np

from ..arithmetic import Arithmetic
from ..ir import ITEM_BYTES, Array, Graph, Op, Tensor
from ..ir.axes import Nest, Same, Whole
from . import fixedpoint, softmax16
from .base import Constant, Form, Kernel, Spec, is_float, scale_of, zero_of

INTEGER_BITS, SUM_BITS = 5, 12  # Q5.26 differences, Q12.19 sum (kernels/internal/reference/softmax.h)


def nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    rows = tuple(Same(name) for name in names[:-1])
    return Nest(dict(zip(names, x.shape, strict=True)), names, ((*rows, Whole(x.shape[-1])),))


def exp_table(op: Op, graph: Graph) -> Array:
    """exp(-d * scale * beta) for d = 0, 1, ... in Q0.31, as far as it counts."""
    return np.array(_exp_table(op.attrs["beta"] * scale_of(graph.operands(op)[0])), np.int32)


def distance_factor(scale: float) -> fixedpoint.Multiplier:
    """From a distance to Q5.26."""
    return fixedpoint.quantize_multiplier(min(scale * (1 << (31 - INTEGER_BITS)), 2.0**31 - 1))


@cache
def _exp_table(scale: float) -> tuple[int, ...]:
    m = distance_factor(scale)
    radius = floor(((1 << INTEGER_BITS) - 1) * 2.0 ** (31 - INTEGER_BITS - m.shift))
    table = []
    for distance in range(min(radius, 255) + 1):
        scaled = int(fixedpoint.rounding_high_multiply(np.int64(-distance * 2 ** max(m.shift, 0)), m.mantissa))
        table.append(fixedpoint.exp_on_negative_values(scaled >> max(-m.shift, 0), INTEGER_BITS))
    return tuple(table)


def reference(op: Op, graph: Graph, x: Array) -> Array:
    if is_float(graph.result(op)):
        e = np.exp((x - x.max(axis=-1, keepdims=True)).astype(np.float64) * op.attrs["beta"])
        return (e / e.sum(axis=-1, keepdims=True)).astype(np.float32)
    if x.dtype == np.int16:
        lines = (
            softmax16.row(r, scale_of(graph.operands(op)[0]), op.attrs["beta"]) for r in x.reshape(-1, x.shape[-1])
        )
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
    """From a share in Q0.31 to steps of the output."""
    return fixedpoint.quantize_multiplier(2.0**-31 / quant.scale[0])


def output_quantisation(op: Op, graph: Graph) -> str | None:
    """A quantised TFLite softmax has output scale 1/256 and zero point -128, of int16 1/32768 and 0 and rows of at
    most 65536 elements; from int8 to int16, 1/65536 and -32768."""
    (x,), y = graph.operands(op), graph.result(op)
    q = y.quant
    if (x.dtype, y.dtype) == ("int8", "int16") and q is not None:
        fits = graph.arithmetic.fixed_point and q.zero_point[0] == -(2**15)
        return None if fits and abs(q.scale[0] * 2**16 - 1) < 1e-3 else f"output is int16, {q}"
    if y.dtype == "int16" and q is not None:
        fits = graph.arithmetic.fixed_point and y.shape[-1] <= 1 << 16 and q.zero_point[0] == 0
        return None if fits and abs(q.scale[0] * 2**15 - 1) < 1e-3 else f"output is int16, {q}"
    if is_float(y) or not graph.arithmetic.fixed_point or q is None:
        return None
    return None if q.zero_point[0] == -128 and abs(q.scale[0] * 256 - 1) < 1e-3 else f"output is {q}"


def step_of_int16(op: Op, graph: Graph) -> str | None:
    """A step of an int16 operand, times beta, is less than 163,842; beyond it TFLite shifts by more bits than C has."""
    (x,) = graph.operands(op)
    step = scale_of(x) * op.attrs["beta"] if x.dtype == "int16" and x.quant is not None else 0.0
    return f"a step of '{x.name}', times beta, is {step:g}" if step >= softmax16.LARGEST_STEP else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    y = graph.result(op)
    size = x.shape[-1]
    shape: dict[str, Any] = {"N": x.elements // size, "C": size, "float": is_float(x), "arithmetic": graph.arithmetic}
    shape |= {"wide": x.dtype == "int16", "computed": False, "bits": _bits(y)}
    if is_float(x):
        return Kernel("softmax.c.j2", f"softmax_{size}", shape, (), {"beta": op.attrs["beta"]})
    if x.dtype == "int16":
        m = softmax16.factor(scale_of(x), op.attrs["beta"])
        numbers: dict[str, int | float] = {"multiplier": m.mantissa, "shift": m.shift}
        return Kernel("softmax.c.j2", f"softmax_{size}", shape, softmax16.tables(), numbers)
    table = exp_table(op, graph)
    scalars: dict[str, int | float] = {"table_size": len(table)}
    if graph.arithmetic.rounds_once:
        assert y.quant is not None
        m = output_multiplier(y.quant)
        scalars |= {"multiplier": m.mantissa, "shift": m.shift, "y_zero": zero_of(y)}
    constants = (Constant("table", table, "exp(-d * scale), Q0.31"),)
    cost = shape["N"] * (80.0 + 30.0 * size)
    return Kernel("softmax.c.j2", f"softmax_{size}", shape, constants, scalars, estimate=cost)


SPEC = Spec(
    kind="softmax",
    nest=nest,
    reference=reference,
    kernel=kernel,
    integers=("int8", "int16"),
    limits=(output_quantisation, step_of_int16),
)
