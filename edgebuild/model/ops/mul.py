"""MUL, Mul: out[i] = a[i] * b[i], with broadcasting."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import Array, Graph, Op
from . import elementwise, fixedpoint, intervals, linear, spatial
from .base import Form, Kernel, Spec, clip_float, is_float, scale_of, zero_of


def scaling(op: Op, graph: Graph) -> dict[str, int]:
    a, b = (scale_of(t) for t in graph.operands(op))
    m = fixedpoint.quantize_multiplier(a * b / scale_of(graph.result(op)))
    return {"y_mul": m.mantissa, "y_shift": m.shift}


def reference(op: Op, graph: Graph, a: Array, b: Array) -> Array:
    y = graph.result(op)
    if is_float(y):
        return clip_float(np.asarray(a * b), op.attrs["clamp"])
    f = scaling(op, graph)
    ta, tb = graph.operands(op)
    product = (a.astype(np.int64) - zero_of(ta)) * (b.astype(np.int64) - zero_of(tb))
    scaled = fixedpoint.requantize(product, f["y_mul"], f["y_shift"], graph.arithmetic)
    return np.clip(scaled + zero_of(y), *spatial.bounds(op, y)).astype(y.dtype)


def steady(op: Op, graph: Graph) -> bool:
    """ONNX's one rounding is of 64 bits; TFLM's product stays in int32."""
    f, most = scaling(op, graph), prod(fixedpoint.span(t.dtype) for t in graph.operands(op))
    return graph.arithmetic.rounds_once or fixedpoint.Multiplier(f["y_mul"], f["y_shift"]).holds(most)


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    y, (a, b) = graph.result(op), graph.operands(op)
    if is_float(y):
        return elementwise.kernel(op, graph, form, {})
    if y.dtype != "int8":
        return elementwise.kernel(op, graph, form, scaling(op, graph))
    products = (linear.INT8[:, None] - zero_of(a)) * (linear.INT8 - zero_of(b))
    want = reference(op, graph, linear.INT8[:, None], linear.INT8)
    terms = (linear.Term(products, scale_of(a) * scale_of(b) / scale_of(y), 18),)
    return elementwise.kernel(op, graph, form, scaling(op, graph), linear.fit(terms, want, *spatial.bounds(op, y)))


SPEC = Spec(
    kind="mul",
    nest=elementwise.nest,
    reference=reference,
    kernel=kernel,
    clamps=True,
    integers=("int8", "int16"),
    interval=intervals.corners(reference, steady),
    rows=elementwise.rows,
    limits=(elementwise.broadcastable, elementwise.known_result),
)
