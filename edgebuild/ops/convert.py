"""Ops that change the type or the quantisation of each element: cast, quantize, dequantize, requantize."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..axes import Nest, Same
from ..ir import Array, Graph, Op
from . import fixedpoint, intervals, linear
from .base import Form, Kernel, Spec, scale_of, zero_of

TFLITE_TYPES = {0: "float32", 2: "int32", 9: "int8"}

Scalars = dict[str, int | float]


def cast_from_tflite(node: Any) -> None:
    node.emit("cast", node.inputs, to=node.output_dtype())


def cast_from_onnx(node: Any) -> None:
    node.emit("cast", node.inputs, to=node.dtype_of(node.attr("to", 1)))


def quantize_from_tflite(node: Any) -> None:
    """QUANTIZE reads float32 or, to change the scale, int8."""
    node.emit("quantize" if node.tensor(0).dtype == "float32" else "requantize", node.inputs)


def dequantize_from_tflite(node: Any) -> None:
    node.emit("dequantize", node.inputs)


def nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    return Nest(dict(zip(names, x.shape, strict=True)), names, (tuple(Same(name) for name in names),))


def cast_reference(op: Op, graph: Graph, x: Array) -> Array:
    return x.astype(graph.result(op).dtype)


def quantize_reference(op: Op, graph: Graph, x: Array) -> Array:
    """TFLM rounds half away from zero, ONNX half to even."""
    y = graph.result(op)
    steps = (x / np.float32(scale_of(y))).astype(np.float32)
    half_away = np.sign(steps) * np.floor(np.abs(steps).astype(np.float64) + 0.5)
    steps = half_away if graph.arithmetic == "tflite" else np.rint(steps)
    return np.clip(steps + zero_of(y), -128, 127).astype(np.int8)


def dequantize_reference(op: Op, graph: Graph, x: Array) -> Array:
    t = graph.operands(op)[0]
    return ((x.astype(np.int32) - zero_of(t)).astype(np.float32) * np.float32(scale_of(t))).astype(np.float32)


def requantize_reference(op: Op, graph: Graph, x: Array) -> Array:
    t, y = graph.operands(op)[0], graph.result(op)
    m = fixedpoint.quantize_multiplier(scale_of(t) / scale_of(y))
    scaled = fixedpoint.requantize(x.astype(np.int64) - zero_of(t), m.mantissa, m.shift, graph.arithmetic)
    return np.clip(scaled + zero_of(y), -128, 127).astype(np.int8)


def steady(op: Op, graph: Graph) -> bool:
    """The factor between two quantisations does not take an int8 out of int32."""
    return fixedpoint.quantize_multiplier(scale_of(graph.operands(op)[0]) / scale_of(graph.result(op))).holds(255)


def known_types(op: Op, graph: Graph) -> str | None:
    """Types are float32, int32 and int8; quantised tensors are int8 with one scale."""
    x, y = graph.operands(op)[0], graph.result(op)
    for t in (x, y):
        if t.dtype not in ("float32", "int32", "int8"):
            return f"type {t.dtype}"
        if (
            op.kind != "cast"
            and t.dtype != "float32"
            and (t.dtype != "int8" or t.quant is None or not t.quant.per_tensor)
        ):
            return f"'{t.name}' is {t.dtype}, {t.quant}"
    return None


def rows(op: Op, graph: Graph) -> str:
    return "each" if len(graph.result(op).shape) > 1 else ""


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, y = graph.operands(op)[0], graph.result(op)
    shape: dict[str, Any] = {"operation": op.kind, "N": x.elements, "x": x.dtype, "y": y.dtype}
    shape |= {"arithmetic": graph.arithmetic, "rolled": form.rolled, "ring": form.rings[0] if form.rings else 0}
    if form.rolled:
        shape["N"] = x.elements // x.shape[1]
    scalars: Scalars = {}
    if op.kind == "quantize":
        scalars = {"scale": scale_of(y), "y_zero": zero_of(y)}
    elif op.kind == "dequantize":
        scalars = {"x_zero": zero_of(x), "scale": scale_of(x)}
    elif op.kind == "requantize":
        m = fixedpoint.quantize_multiplier(scale_of(x) / scale_of(y))
        scalars = {"x_zero": zero_of(x), "y_zero": zero_of(y), "multiplier": m.mantissa, "shift": m.shift}
        return rescaling(op, graph, form, shape, scalars, requantize_reference(op, graph, linear.INT8), (-128, 127))
    shape["linear"] = False
    return Kernel("convert.c.j2", f"{op.kind}_{x.elements}", shape, (), scalars)


def rescaling(
    op: Op, graph: Graph, form: Form, shape: dict[str, Any], scalars: Scalars, want: Array, bounds: tuple[int, int]
) -> Kernel:
    """int8 of one quantisation to another within bounds; `want`: the results for all of int8."""
    x, y = graph.operands(op)[0], graph.result(op)
    stem, zero = f"{op.kind}_{x.elements}", zero_of(x)
    found = linear.scale(-128 - zero, want, scale_of(x) / scale_of(y), *bounds)
    shape["linear"] = found is not None
    if found is None:
        return Kernel("convert.c.j2", stem, shape, (), scalars, estimate=30.0 * shape["N"])
    shape |= {"up": found.up, "away": found.away, "shift": found.shift, "taken": zero}
    shape |= {"low": bounds[0], "high": bounds[1]}
    scalars = {"y_mul": found.factor, "offset": found.offset}
    if "mve" in form.features:
        return Kernel("convert_mve.c.j2", stem, shape, (), scalars, variant="mve", estimate=4.75 * shape["N"])
    return Kernel("convert.c.j2", stem, shape, (), scalars, variant="linear", estimate=14.0 * shape["N"])


CAST = Spec(
    "cast",
    nest,
    cast_reference,
    kernel,
    {"CAST": cast_from_tflite},
    {"Cast": cast_from_onnx},
    rows=rows,
    float_only=True,
    limits=(known_types,),
)
QUANTIZE = Spec(
    "quantize",
    nest,
    quantize_reference,
    kernel,
    {"QUANTIZE": quantize_from_tflite},
    rows=rows,
    float_only=True,
    limits=(known_types,),
)
DEQUANTIZE = Spec(
    "dequantize",
    nest,
    dequantize_reference,
    kernel,
    {"DEQUANTIZE": dequantize_from_tflite},
    rows=rows,
    float_only=True,
    limits=(known_types,),
)
REQUANTIZE = Spec(
    "requantize",
    nest,
    requantize_reference,
    kernel,
    rows=rows,
    interval=intervals.rising(requantize_reference, steady),
    limits=(known_types,),
)
