"""ADD, Add: out[i] = a[i] + b[i], with broadcasting."""

from __future__ import annotations

import numpy as np

from ..arithmetic import Arithmetic
from ..ir import Array, Graph, Op
from . import elementwise, fixedpoint, intervals, linear, spatial
from .base import Form, Kernel, Spec, clip_float, is_float, scale_of, zero_of

LEFT_SHIFT = {"int8": 20, "int16": 15}  # headroom of TFLM's quantised ADD (kernels/internal/reference/add.h)


def scaling(op: Op, graph: Graph) -> dict[str, int]:
    """Fixed-point factors of both operands and of their sum.

    tflite: both are brought to half of the larger scale, LEFT_SHIFT bits up, and the sum to the output's.
    onnx: both factors share one binary point, `point`, and the exact sum is rounded once.
    """
    a, b = (scale_of(t) for t in graph.operands(op))
    y = scale_of(graph.result(op))
    if graph.arithmetic.fixed_point:
        twice = 2 * max(a, b)
        m0, m1 = fixedpoint.quantize_multiplier(a / twice), fixedpoint.quantize_multiplier(b / twice)
        out = fixedpoint.quantize_multiplier(twice / (2 ** LEFT_SHIFT[graph.result(op).dtype] * y))
        factors = {"x0_mul": m0.mantissa, "x0_shift": m0.shift}
        factors |= {"x1_mul": m1.mantissa, "x1_shift": m1.shift, "y_mul": out.mantissa, "y_shift": out.shift}
        return factors
    point = min(46, 31 - fixedpoint.quantize_multiplier(max(a, b) / y).shift)
    return {"x0_mul": round(a / y * 2**point), "x1_mul": round(b / y * 2**point), "point": point}


def reference(op: Op, graph: Graph, a: Array, b: Array) -> Array:
    y = graph.result(op)
    if is_float(y):
        return clip_float(np.asarray(a + b), op.attrs["clamp"])
    f = scaling(op, graph)
    ta, tb = graph.operands(op)
    left, right = a.astype(np.int64) - zero_of(ta), b.astype(np.int64) - zero_of(tb)
    if graph.arithmetic.fixed_point:
        terms = [
            fixedpoint.requantize(x << LEFT_SHIFT[y.dtype], f[f"{n}_mul"], f[f"{n}_shift"], Arithmetic.TFLITE)
            for x, n in ((left, "x0"), (right, "x1"))
        ]
        total = fixedpoint.requantize(terms[0] + terms[1], f["y_mul"], f["y_shift"], Arithmetic.TFLITE)
    else:
        total = fixedpoint.round_half_even(left * f["x0_mul"] + right * f["x1_mul"], int(f["point"]))
    return np.clip(total + zero_of(y), *spatial.bounds(op, y)).astype(y.dtype)


def steady(op: Op, graph: Graph) -> bool:
    """Neither operand nor their sum leaves int32 on its way through the factors."""
    f = scaling(op, graph)
    return graph.arithmetic.rounds_once or fixedpoint.Multiplier(f["y_mul"], f["y_shift"]).holds(2**30)


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    y = graph.result(op)
    if is_float(y):
        return elementwise.kernel(op, graph, form, {})
    if y.dtype != "int8":
        return elementwise.kernel(op, graph, form, scaling(op, graph))
    a, b = (scale_of(t) / scale_of(y) for t in graph.operands(op))
    want = reference(op, graph, linear.INT8[:, None], linear.INT8)
    terms = (linear.Term(linear.INT8[:, None], a, 8), linear.Term(linear.INT8, b, 8))
    return elementwise.kernel(op, graph, form, scaling(op, graph), linear.fit(terms, want, *spatial.bounds(op, y)))


SPEC = Spec(
    kind="add",
    nest=elementwise.nest,
    reference=reference,
    kernel=kernel,
    clamps=True,
    integers=("int8", "int16"),
    interval=intervals.rising(reference, steady),
    rows=elementwise.rows,
    limits=(elementwise.broadcastable, elementwise.known_result),
)
