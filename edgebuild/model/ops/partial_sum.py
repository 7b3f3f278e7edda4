"""Sums over a part of the input channels, added to those that are there: the fan-in of Fused Depthwise Tiling.

partial_sum: operands are the start of the sums, the part of the input, and the weights of these channels. The start is
a bias, or the sums so far, to which it adds in place. Attributes, letters and weights are those of the convolution or
dense layer. int8 sums up in int32, so the order of the parts does not show; float rounds differently.
join_sums: sums of one part of the channels and those of another, added up.
finish_sum: the int8 result of int32 sums, whose quantisation is that of a bias.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Same
from . import conv2d, dense, elementwise, fixedpoint, spatial
from .base import Constant, Form, Kernel, Spec, is_float, quant_of, scale_of, zero_of


def _layer(op: Op) -> Op:
    """The same without what the sums start from."""
    return Op(op.kind, op.name, op.inputs[1:], op.outputs, op.attrs)


def nest(op: Op, graph: Graph) -> Nest:
    start, x, _ = graph.operands(op)
    found = (conv2d if len(x.shape) == 4 else dense).nest(_layer(op), graph)
    before = (Same(found.out[-1]),) if start.constant else tuple(Same(axis) for axis in found.out)
    return Nest(found.extents, found.out, (before, *found.operands), macs=True)


def reference(op: Op, graph: Graph, start: Array, x: Array, w: Array) -> Array:
    products = (conv2d if x.ndim == 4 else dense).products(_layer(op), graph, x, w)
    return np.asarray(products + start).astype(graph.result(op).dtype)


def constant_weights(op: Op, graph: Graph) -> str | None:
    """Weights are constant; the input is a matrix or one image."""
    _, x, w = graph.operands(op)
    bad = not w.constant or len(x.shape) not in (2, 4) or (len(x.shape) == 4 and x.shape[0] != 1)
    return f"weights {w.name}, input {x.shape}" if bad else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    start, x, w = graph.operands(op)
    y = graph.result(op)
    assert w.data is not None
    if len(x.shape) == 2:
        rows, channels = x.shape
        letters = {"H": 1, "W": rows, "C": channels, "OH": 1, "OW": rows, "K": w.shape[0], "FH": 1, "FW": 1}
        shape: dict[str, Any] = {**letters, "SY": 1, "SX": 1, "PY": 0, "PX": 0, "DY": 1, "DX": 1}
    else:
        shape = spatial.window_shape(_layer(op), graph, w.shape[1:3], form)
    shape |= {"float": is_float(x), "first": start.constant}
    constants = [Constant("w", w.data, "weights")]
    if start.data is not None:
        constants.append(Constant("bias", start.data.astype(y.dtype).ravel(), "bias"))
    stem = f"{'first' if start.constant else 'more'}_sums_{shape['FH']}x{shape['FW']}_c{shape['C']}_k{shape['K']}"
    scalars: dict[str, int | float] = {} if is_float(x) else {"x_zero": zero_of(x)}
    return Kernel("partial_sum.c.j2", stem, shape, tuple(constants), scalars)


def join_nest(op: Op, graph: Graph) -> Nest:
    shape = graph.operands(op)[0].shape
    names = tuple(f"i{d}" for d in range(len(shape)))
    return Nest(dict(zip(names, shape, strict=True)), names, (tuple(Same(name) for name in names),) * 2)


def join_reference(op: Op, graph: Graph, a: Array, b: Array) -> Array:
    return np.asarray(a + b)


def join_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    count = graph.result(op).elements
    return Kernel("join_sums.c.j2", f"join_sums_{count}", {"N": count})


def multipliers(op: Op, graph: Graph) -> tuple[Array, Array]:
    """Mantissa and shift for each channel; scales of the sums are scale(x) * scale(w), so these are the layer's own."""
    (x,), y = graph.operands(op), graph.result(op)
    pairs = [fixedpoint.quantize_multiplier(s / scale_of(y)) for s in quant_of(x).scale]
    pairs = pairs * x.shape[-1] if len(pairs) == 1 else pairs
    return np.array([p.mantissa for p in pairs], np.int32), np.array([p.shift for p in pairs], np.int8)


def finish_reference(op: Op, graph: Graph, x: Array) -> Array:
    y = graph.result(op)
    mantissa, shift = multipliers(op, graph)
    scaled = fixedpoint.requantize(x.astype(np.int64), mantissa.astype(np.int64), shift, graph.arithmetic)
    return np.clip(scaled + zero_of(y), *spatial.bounds(op, y)).astype(np.int8)


def finish_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), y = graph.operands(op), graph.result(op)
    mantissa, shift = multipliers(op, graph)
    constants = (Constant("multiplier", mantissa, "Q0.31"), Constant("shift", shift, "left if positive"))
    low, high = spatial.bounds(op, y)
    shape: dict[str, Any] = {"N": x.elements // x.shape[-1], "K": x.shape[-1]}
    stem = f"finish_sums_{shape['N']}x{shape['K']}"
    return Kernel("finish_sum.c.j2", stem, shape, constants, {"y_zero": zero_of(y), "low": low, "high": high})


PARTIAL = Spec(kind="partial_sum", nest=nest, reference=reference, kernel=kernel, limits=(constant_weights,))
JOIN = Spec(kind="join_sums", nest=join_nest, reference=join_reference, kernel=join_kernel)
FINISH = Spec(kind="finish_sum", nest=elementwise.nest, reference=finish_reference, kernel=finish_kernel, clamps=True)
