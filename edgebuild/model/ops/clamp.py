"""RELU, RELU6, Relu, Clip: out[i] = min(max(in[i], low), high). Fused into the op before it where that can be."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Graph, Op, Tensor
from . import convert, elementwise, fixedpoint, intervals, linear, spatial
from .base import Form, Kernel, Spec, clip_float, is_float, scale_of, zero_of


def reference(op: Op, graph: Graph, x: Array) -> Array:
    t, y = graph.operands(op)[0], graph.result(op)
    if is_float(y):
        return clip_float(x, op.attrs["clamp"])
    target = _result(op, graph)
    m = fixedpoint.quantize_multiplier(scale_of(t) / scale_of(target))
    scaled = fixedpoint.requantize(x.astype(np.int64) - zero_of(t), m.mantissa, m.shift, graph.arithmetic)
    return np.clip(scaled + zero_of(target), *spatial.bounds(op, target)).astype(y.dtype)


def _result(op: Op, graph: Graph) -> Tensor:
    """The tensor whose quantisation the stored results have: `as_stored`, that of the operand."""
    return graph.operands(op)[0] if op.attrs.get("as_stored") else graph.result(op)


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    t, y = graph.operands(op)[0], graph.result(op)
    shape: dict[str, Any] = {"operation": "clamp", "N": t.elements, "x": t.dtype, "y": y.dtype}
    shape |= {"arithmetic": graph.arithmetic}
    if form.rolled:
        shape["N"] = t.elements // t.shape[1]
    if not is_float(y):
        target = _result(op, graph)
        factor = scale_of(t) / scale_of(target)
        m = fixedpoint.quantize_multiplier(factor)
        low, high = spatial.bounds(op, target)
        scalars: convert.Scalars = {"x_zero": zero_of(t), "y_zero": zero_of(target), "multiplier": m.mantissa}
        scalars |= {"shift": m.shift, "low": low, "high": high}
        if t.dtype != "int8":
            shape["linear"] = False
            return Kernel("convert.c.j2", f"clamp_{shape['N']}", shape, (), scalars, placed=form.rolled)
        want = reference(op, graph, linear.INT8)
        return convert.rescaling(op, graph, form, shape, scalars, factor, want, (low, high))
    shape["linear"] = False
    return Kernel("convert.c.j2", f"clamp_{shape['N']}", shape, (), spatial.float_bounds(op, graph), placed=form.rolled)


SPEC = Spec(
    kind="clamp",
    nest=elementwise.nest,
    reference=reference,
    kernel=kernel,
    rows=convert.rows,
    clamps=True,
    integers=("int8", "int16"),
    plain=True,
    interval=intervals.rising(reference, convert.steady),
)
