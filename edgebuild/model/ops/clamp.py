"""RELU, RELU6, Relu, Clip: out[i] = min(max(in[i], low), high). Fused into the op before it where that can be."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Graph, Op, Tensor
from . import convert, elementwise, fixedpoint, intervals, linear, pointwise, spatial
from .base import Form, Kernel, Spec, clip_float, is_float, scale_of, zero_of

LARGEST = float(np.finfo(np.float32).max)


def from_tflite(low: float | None, high: float | None) -> Any:
    def read(node: Any) -> None:
        node.emit("clamp", node.inputs, clamp=(low, high))

    return read


def relu6_from_tflite(node: Any) -> None:
    """RELU6. TFLM clamps the stored numbers by the operand's scale, whatever scale the result declares."""
    as_stored = node.tensor(0).dtype in ("int8", "int16") and node.tensor(0).quant != node.output_quant()
    node.emit("clamp", node.inputs, clamp=(0.0, 6.0), **({"as_stored": True} if as_stored else {}))


def from_onnx_relu(node: Any) -> None:
    node.emit("clamp", node.inputs, clamp=(0.0, None))


def from_onnx_clip(node: Any) -> None:
    """Bounds are attributes up to opset 10 and operands from 11 on.

    Floats without one are bounded by the finite numbers, as the standard says; an infinite one bounds nothing.
    """

    def bound(position: int, name: str) -> float | None:
        value = node.attr(name, None)
        if len(node.inputs) > position and node.inputs[position]:
            value = np.ravel(node.real(node.constant(position, name)))[0]
        return None if value is None else float(value)

    x = node.tensor(0)
    if x.quant is not None:
        return _between_stored(node)
    if is_float(x) and any(_is_computed(node, position) for position in (1, 2)):
        return _between_computed(node)
    low, high = bound(1, "min"), bound(2, "max")
    if is_float(x):
        low, high = (LARGEST * sign if v is None else v for v, sign in ((low, -1), (high, 1)))
        if low <= high and low < np.inf and high > -np.inf:
            return node.emit("clamp", node.inputs[:1], clamp=tuple(None if np.isinf(v) else v for v in (low, high)))
    else:
        low, high = (None if v is None or np.isinf(v) else v for v in (low, high))
    name = node.inputs[0]  # integers, and bounds that cross: the upper one counts
    for function, value in (("maximum", low), ("minimum", high)):
        if value is not None:
            name = node.inner("pointwise", [name, node.array(value, like=x)], **pointwise.attributes(function))
    node.emit("reshape", [name], shape=x.shape)


def _is_computed(node: Any, position: int) -> bool:
    if len(node.inputs) <= position or not node.inputs[position]:
        return False
    bound = node.tensor(position)
    return bound.quant is None and not bound.constant


def _between_computed(node: Any) -> None:
    """Bounds that the graph computes, as the largest value less 80 dB of a spectrogram."""
    name, shape = node.inputs[0], node.tensor(0).shape
    for function, position in (("maximum", 1), ("minimum", 2)):
        if len(node.inputs) > position and node.inputs[position]:
            name = node.inner("pointwise", [name, node.inputs[position]], **pointwise.attributes(function))
    node.emit("reshape", [name], shape=shape)


def _between_stored(node: Any) -> None:
    """Bounds of a quantised tensor are of its scale, so that what is stored is compared."""
    name, shape = node.inputs[0], node.tensor(0).shape
    for function, position, what in (("maximum", 1, "min"), ("minimum", 2, "max")):
        if len(node.inputs) > position and node.inputs[position]:
            limit = node.array(np.ravel(node.constant(position, what).data)[:1], like=node.tensor(0))
            name = node.inner("pointwise", [name, limit], **pointwise.attributes(function))
    node.emit("reshape", [name], shape=shape)


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
    tflite={
        "RELU": from_tflite(0.0, None),
        "RELU6": relu6_from_tflite,
        "RELU_0_TO_1": from_tflite(0.0, 1.0),
        "RELU_N1_TO_1": from_tflite(-1.0, 1.0),
    },
    onnx={"Relu": from_onnx_relu, "Clip": from_onnx_clip},
    rows=convert.rows,
    clamps=True,
    integers=("int8", "int16"),
    plain=True,
    interval=intervals.rising(reference, convert.steady),
)
