"""RELU, RELU6, Relu, Clip: out[i] = min(max(in[i], low), high). Fused into the op before it where that can be."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from . import convert, fixedpoint, intervals, linear, spatial
from .base import Form, Kernel, Spec, clip_float, is_float, scale_of, zero_of


def from_tflite(low: float | None, high: float | None) -> Any:
    def read(node: Any) -> None:
        node.emit("clamp", node.inputs, clamp=(low, high))

    return read


def from_onnx_relu(node: Any) -> None:
    node.emit("clamp", node.inputs, clamp=(0.0, None))


def from_onnx_clip(node: Any) -> None:
    """Bounds are attributes up to opset 10 and operands from 11 on; an infinite one is none."""

    def bound(position: int, name: str) -> float | None:
        value = node.attr(name, None)
        if len(node.inputs) > position and node.inputs[position]:
            value = np.ravel(node.real(node.constant(position, name)))[0]
        return None if value is None or np.isinf(value) else float(value)

    node.emit("clamp", node.inputs[:1], clamp=(bound(1, "min"), bound(2, "max")))


def reference(op: Op, graph: Graph, x: Array) -> Array:
    t, y = graph.operands(op)[0], graph.result(op)
    if is_float(y):
        return clip_float(x, op.attrs["clamp"])
    m = fixedpoint.quantize_multiplier(scale_of(t) / scale_of(y))
    scaled = fixedpoint.requantize(x.astype(np.int64) - zero_of(t), m.mantissa, m.shift, graph.arithmetic)
    return np.clip(scaled + zero_of(y), *spatial.bounds(op, y)).astype(np.int8)


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    t, y = graph.operands(op)[0], graph.result(op)
    shape: dict[str, Any] = {"operation": "clamp", "N": t.elements, "x": t.dtype, "y": y.dtype}
    shape |= {"arithmetic": graph.arithmetic, "rolled": form.rolled, "ring": form.rings[0] if form.rings else 0}
    if form.rolled:
        shape["N"] = t.elements // t.shape[1]
    if not is_float(y):
        m = fixedpoint.quantize_multiplier(scale_of(t) / scale_of(y))
        low, high = spatial.bounds(op, y)
        scalars: convert.Scalars = {"x_zero": zero_of(t), "y_zero": zero_of(y), "multiplier": m.mantissa}
        scalars |= {"shift": m.shift, "low": low, "high": high}
        return convert.rescaling(op, graph, form, shape, scalars, reference(op, graph, linear.INT8), (low, high))
    shape["linear"] = False
    return Kernel("convert.c.j2", f"clamp_{t.elements}", shape, (), spatial.float_bounds(op))


SPEC = Spec(
    kind="clamp",
    nest=convert.nest,
    reference=reference,
    kernel=kernel,
    tflite={"RELU": from_tflite(0.0, None), "RELU6": from_tflite(0.0, 6.0), "RELU_N1_TO_1": from_tflite(-1.0, 1.0)},
    onnx={"Relu": from_onnx_relu, "Clip": from_onnx_clip},
    rows=convert.rows,
    clamps=True,
    interval=intervals.rising(reference, convert.steady),
)
