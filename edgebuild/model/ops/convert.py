"""Ops that change the type or the quantisation of each element: cast, quantize, dequantize, requantize."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Graph, Op, Tensor
from . import elementwise, fixedpoint, intervals, linear
from .base import C_TYPES, UNSIGNED, Form, Kernel, Spec, scale_of, zero_of

INTEGERS = ("int8", "int16", "int32")

Scalars = dict[str, int | float]


def cast_reference(op: Op, graph: Graph, x: Array) -> Array:
    """Reals become the nearest integers towards 0, as far as an integer of 32 bits or of the result's width reaches."""
    dtype = graph.result(op).dtype
    if x.dtype.kind != "f" or dtype in ("bool", "float32"):
        return x.astype(dtype)
    wide = dtype if dtype == "int64" or _narrow(op, graph) else "int32"
    low, high = fixedpoint.limits(wide)
    real = np.where(np.isnan(x), 0, x.astype(np.float64))
    below, above = real < float(low), real >= float(high + 1)
    whole = np.where(below | above, 0, real).astype(wide)
    return np.where(below, low, np.where(above, high, whole)).astype(wide).astype(dtype)


def _narrow(op: Op, graph: Graph) -> bool:
    """Casts of reals to 8 or 16 bits end at the ends of their type in TFLM; in onnxruntime the low bits are left."""
    x, y = graph.operands(op)[0], graph.result(op)
    return graph.arithmetic.saturating_casts and x.dtype == "float32" and y.dtype in ("int8", "uint8", "int16")


def quantize_reference(op: Op, graph: Graph, x: Array) -> Array:
    """TFLM rounds half away from zero, ONNX half to even."""
    y = graph.result(op)
    steps = (x / np.float32(scale_of(y))).astype(np.float32)
    half_away = np.sign(steps) * np.floor(np.abs(steps).astype(np.float64) + 0.5)
    steps = half_away if graph.arithmetic.fixed_point else np.rint(steps)
    return np.clip(steps + zero_of(y), *fixedpoint.limits(y.dtype)).astype(y.dtype)


def dequantize_reference(op: Op, graph: Graph, x: Array) -> Array:
    t = graph.operands(op)[0]
    return ((x.astype(np.int64) - zero_of(t)).astype(np.float32) * np.float32(scale_of(t))).astype(np.float32)


def requantize_reference(op: Op, graph: Graph, x: Array) -> Array:
    t, y = graph.operands(op)[0], graph.result(op)
    m = fixedpoint.quantize_multiplier(scale_of(t) / scale_of(y))
    scaled = fixedpoint.requantize(x.astype(np.int64) - zero_of(t), m.mantissa, m.shift, graph.arithmetic)
    return np.clip(scaled + zero_of(y), *fixedpoint.limits(y.dtype)).astype(y.dtype)


def steady(op: Op, graph: Graph) -> bool:
    """The factor between two quantisations takes no value out of int32."""
    x, y = graph.operands(op)[0], graph.result(op)
    return fixedpoint.quantize_multiplier(scale_of(x) / scale_of(y)).holds(fixedpoint.span(x.dtype))


def known_numbers(op: Op, graph: Graph) -> str | None:
    """Types are bool, float32, and integers of 8 to 64 bits; uint32 and uint64 are not made of float32."""
    x, y = graph.operands(op)[0], graph.result(op)
    real = x.dtype == "float32" and y.dtype in UNSIGNED
    unknown = [t.dtype for t in (x, y) if t.dtype not in C_TYPES or (t is y and real)]
    return f"type {unknown[0]}" if unknown else None


def known_types(op: Op, graph: Graph) -> str | None:
    """Types are float32, int32, int16 and int8; quantised tensors have one scale."""
    x, y = graph.operands(op)[0], graph.result(op)
    for t in (x, y):
        if t.dtype not in ("float32", "int32", "int16", "int8"):
            return f"type {t.dtype}"
        if t.dtype != "float32" and (t.quant is None or not t.quant.per_tensor):
            return f"'{t.name}' is {t.dtype}, {t.quant}"
    return None


def rows(op: Op, graph: Graph) -> str:
    return "each" if len(graph.result(op).shape) > 1 else ""


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, y = graph.operands(op)[0], graph.result(op)
    shape: dict[str, Any] = {"operation": op.kind, "N": x.elements, "x": x.dtype, "y": y.dtype}
    shape |= {"arithmetic": graph.arithmetic}
    if form.rolled:
        shape["N"] = x.elements // x.shape[1]
    scalars: Scalars = {}
    shape["linear"] = False
    shape["bounds"] = fixedpoint.limits(y.dtype) if op.kind == "cast" and _narrow(op, graph) else ()
    if op.kind == "quantize":
        scalars = {"scale": scale_of(y), "y_zero": zero_of(y), **_bounds(y)}
    elif op.kind == "dequantize":
        scalars = {"x_zero": zero_of(x), "scale": scale_of(x)}
    elif op.kind == "requantize":
        factor = scale_of(x) / scale_of(y)
        m = fixedpoint.quantize_multiplier(factor)
        scalars = {"x_zero": zero_of(x), "y_zero": zero_of(y), "multiplier": m.mantissa, "shift": m.shift}
        scalars |= _bounds(y)
        if x.dtype == y.dtype == "int8":
            want = requantize_reference(op, graph, linear.INT8)
            return rescaling(op, graph, form, shape, scalars, factor, want, (-128, 127))
    return Kernel("convert.c.j2", f"{op.kind}_{shape['N']}", shape, (), scalars, placed=form.rolled)


def _bounds(y: Tensor) -> Scalars:
    return dict(zip(("low", "high"), fixedpoint.limits(y.dtype), strict=True))


def rescaling(
    op: Op,
    graph: Graph,
    form: Form,
    shape: dict[str, Any],
    scalars: Scalars,
    factor: float,
    want: Array,
    bounds: tuple[int, int],
) -> Kernel:
    """int8 of one quantisation to another, `factor` times as fine, within bounds; `want`: results for all of int8."""
    x = graph.operands(op)[0]
    stem, zero = f"{op.kind}_{shape['N']}", zero_of(x)
    found = linear.scale(-128 - zero, want, factor, *bounds)
    shape["linear"] = found is not None
    if found is None:
        return Kernel("convert.c.j2", stem, shape, (), scalars, estimate=30.0 * shape["N"], placed=form.rolled)
    shape |= {"up": found.up, "away": found.away, "shift": found.shift, "taken": zero}
    shape |= {"low": bounds[0], "high": bounds[1]}
    scalars = {"y_mul": found.factor, "offset": found.offset}
    cost = 9.3 * shape["N"]
    return Kernel("convert.c.j2", stem, shape, (), scalars, variant="linear", estimate=cost, placed=form.rolled)


CAST = Spec(
    "cast",
    elementwise.nest,
    cast_reference,
    kernel,
    rows=rows,
    float_only=True,
    integers=INTEGERS,
    plain=True,
    limits=(known_numbers,),
)
QUANTIZE = Spec(
    "quantize",
    elementwise.nest,
    quantize_reference,
    kernel,
    interval=intervals.rising(quantize_reference),
    rows=rows,
    float_only=True,
    integers=INTEGERS,
    limits=(known_types,),
)
DEQUANTIZE = Spec(
    "dequantize",
    elementwise.nest,
    dequantize_reference,
    kernel,
    interval=intervals.rising(dequantize_reference),
    rows=rows,
    float_only=True,
    integers=INTEGERS,
    limits=(known_types,),
)
REQUANTIZE = Spec(
    "requantize",
    elementwise.nest,
    requantize_reference,
    kernel,
    rows=rows,
    interval=intervals.rising(requantize_reference, steady),
    integers=INTEGERS,
    limits=(known_types,),
)
