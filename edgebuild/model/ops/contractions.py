"""Sums of products: convolutions, dense layers, matrix products, and sums that are added up in parts."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from struct import Struct
from typing import Any

import numpy as np

from ..ir import Array, Dim, Fixed, Graph, Grouped, Nest, Op, Same, Spread, Tensor, Whole, same
from . import elementwise, fixedpoint, spatial
from .base import (
    C_TYPES,
    Constant,
    Form,
    Interval,
    Kernel,
    Limit,
    Ranges,
    Spec,
    Sums,
    Total,
    clip_float,
    is_float,
    quant_of,
    scale_of,
    zero_of,
)
from .functions import instructions, quantised_instructions

# Layers with constant weights. Letters, here and in the C: H rows, W columns, C channels in, K channels out, FH x FW
# the window, M = K / C the channel multiplier. Padding reads as the zero point.
#
# CONV_2D, Conv: out[y, x, k] = sum over (fy, fx, c) of in[y*s + fy*d - p, x*s + fx*d - p, c] * w[k, fy, fx, c].
# Weights are K x FH x FW x C. With `groups`, each group of outputs reads its own group of inputs, and the weights have
# C / groups channels.
#
# DEPTHWISE_CONV_2D, Conv with a group per channel: out[y, x, k] = sum over (fy, fx) of in[.., k / m] * w[fy, fx, k].
# Weights are 1 x FH x FW x K.
#
# TRANSPOSE_CONV, ConvTranspose: out[y, x, k] = sum of in[i, j, c] * w[k, fy, fx, c] where y = i * s + fy * d - p. Each
# output element gathers the inputs that would have been scattered over it. Weights are K x FH x FW x (C / groups);
# `size`: rows and columns of the output, which stride and padding do not determine.
#
# FULLY_CONNECTED, Gemm, MatMul with a constant: out[n, k] = sum over c of in[n, c] * w[k, c]. Weights are K x C.

OPTIONS, SAME, VALID = Struct("<3i"), 1, 2  # options and padding of MediaPipe's transpose convolution


def layer_nest(op: Op, graph: Graph) -> Nest:
    """Index relation. Output channels of a depthwise convolution index its input channels, in groups of M if M > 1."""
    x, w = graph.operands(op)[:2]
    bias = [same("k")] * (len(op.inputs) - 2)
    if op.kind == "dense":
        extents = {"n": x.shape[0], "k": w.shape[0], "c": w.shape[1]}
        return Nest(extents, ("n", "k"), (same("n", "c"), same("k", "c"), *bias), macs=True)
    weights = same("k", "fy", "fx", "c")
    channels: Dim = Same("c") if groups(op) == 1 else Whole(x.shape[3])
    sums = {"k": w.shape[0], "c": w.shape[3]}
    if op.kind == "depthwise_conv2d":
        weights, sums = (Fixed(), *same("fy", "fx", "k")), {"k": w.shape[3]}
        channels = Same("k") if w.shape[3] == x.shape[3] else Grouped("k", w.shape[3] // x.shape[3])
    sides: list[Dim]
    if op.kind == "transpose_conv2d":
        (sy, sx), (dy, dx), (py, px) = op.attrs["stride"], op.attrs["dilation"], op.attrs["pad"]
        extents = dict(zip(("y", "x", "fy", "fx"), (*op.attrs["size"], *w.shape[1:3]), strict=True))
        sides = [Spread("y", "fy", sy, dy, py, x.shape[1]), Spread("x", "fx", sx, dx, px, x.shape[2])]
    else:
        extents, *sides = spatial.window_dims(op, x, w.shape[1:3])
    extents = {"n": x.shape[0], **extents, **sums}
    return Nest(extents, ("n", "y", "x", "k"), ((Same("n"), *sides, channels), weights, *bias), macs=True)


def groups(op: Op) -> int:
    return int(op.attrs.get("groups", 1))


def parts(op: Op, channels: int, out: int) -> list[tuple[slice, slice]]:
    """Slices of the input and output channels of each group."""
    c, k = channels // groups(op), out // groups(op)
    return [(slice(g * c, (g + 1) * c), slice(g * k, (g + 1) * k)) for g in range(groups(op))]


# The sums without bias. In float64, which is exact for up to int16 and much faster than numpy's integers.


def conv2d_products(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    out, zero = graph.result(op).shape[1:3], zero_of(graph.operands(op)[0])
    total = np.zeros((x.shape[0], *out, w.shape[0]))
    for fy, fx, under in spatial.taps(x, op, w.shape[1:3], out, zero):
        values = under.astype(np.float64) - zero
        for ins, outs in parts(op, x.shape[3], w.shape[0]):
            total[..., outs] += values[..., ins] @ w[outs, fy, fx, :].astype(np.float64).T
    return total


def depthwise_conv2d_products(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    out, zero = graph.result(op).shape[1:3], zero_of(graph.operands(op)[0])
    total = np.zeros((x.shape[0], *out, w.shape[3]))
    for fy, fx, under in spatial.taps(x, op, w.shape[1:3], out, zero):
        total += np.repeat(under.astype(np.float64) - zero, w.shape[3] // x.shape[3], axis=3) * w[0, fy, fx]
    return total


def transpose_conv2d_products(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    """Sums without bias: scattered tap by tap, then cropped to `size`."""
    (sy, sx), (dy, dx), (py, px) = op.attrs["stride"], op.attrs["dilation"], op.attrs["pad"]
    (n, h, width, channels), (k, fh, fw, _), (oh, ow) = x.shape, w.shape, op.attrs["size"]
    far = (max(oh + py, (h - 1) * sy + (fh - 1) * dy + 1), max(ow + px, (width - 1) * sx + (fw - 1) * dx + 1))
    low = [max(0, -p) for p in (py, px)]
    total = np.zeros((n, far[0] + low[0], far[1] + low[1], k))
    values = x.astype(np.float64) - zero_of(graph.operands(op)[0])
    for ins, outs in parts(op, channels, k):
        for fy, fx in np.ndindex(fh, fw):
            y0, x0 = fy * dy + low[0], fx * dx + low[1]
            rows, columns = slice(y0, y0 + (h - 1) * sy + 1, sy), slice(x0, x0 + (width - 1) * sx + 1, sx)
            total[:, rows, columns, outs] += values[..., ins] @ w[outs, fy, fx].astype(np.float64).T
    top, left = py + low[0], px + low[1]
    return total[:, top : top + oh, left : left + ow]


def dense_products(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    return np.asarray((x.astype(np.float64) - zero_of(graph.operands(op)[0])) @ w.astype(np.float64).T)


def channels_agree(op: Op, graph: Graph) -> str | None:
    """Weights have as many input channels as a group of the input; groups divide the output channels, too."""
    x, w = graph.operands(op)[:2]
    if len(x.shape) == 4 and (len(w.shape) != 4 or w.shape[3] * groups(op) != x.shape[3] or w.shape[0] % groups(op)):
        return f"weights {w.shape}, {groups(op)} groups, for {x.shape[3]} input channels"
    return None


def whole_multiplier(op: Op, graph: Graph) -> str | None:
    """Output channels are a whole multiple of the input channels, weights are 1 x FH x FW x K."""
    x, w = graph.operands(op)[:2]
    if len(x.shape) == 4 and (len(w.shape) != 4 or w.shape[0] != 1 or w.shape[3] % x.shape[3]):
        return f"weights {w.shape} for {x.shape[3]} input channels"
    return None


def groups_agree(op: Op, graph: Graph) -> str | None:
    """Images are N x H x W x C; groups divide both channel counts; stride and dilation are at least 1."""
    x, w = graph.operands(op)[:2]
    groups = op.attrs["groups"]
    bad = len(x.shape) != 4 or len(w.shape) != 4 or w.shape[3] * groups != x.shape[3] or w.shape[0] % max(groups, 1)
    bad = bad or min(*op.attrs["stride"], *op.attrs["dilation"], *op.attrs["size"]) < 1
    return f"weights {w.shape}, {groups} groups, input {x.shape}, output {op.attrs['size']}" if bad else None


def columns_agree(op: Op, graph: Graph) -> str | None:
    """The weights are a constant matrix with as many columns as the input."""
    x, w = graph.operands(op)[:2]
    if w.data is None or len(w.shape) != 2 or len(x.shape) != 2 or w.shape[1] != x.shape[1]:
        return f"weights {w.shape}{'' if w.constant else ' (not constant)'} for an input of shape {x.shape}"
    return None


def transpose_part(op: Op, graph: Graph, out: Ranges, x: Ranges) -> dict[str, Any]:
    """Attributes of a part: output [first, past) from input [low, high). Both count from 0, so the padding changes."""
    pad = tuple(
        p + first - low * s
        for p, s, (first, _), (low, _) in zip(op.attrs["pad"], op.attrs["stride"], out[1:3], x[1:3], strict=True)
    )
    return {**op.attrs, "pad": pad, "size": tuple(past - first for first, past in out[1:3])}


def stem(op: Op, graph: Graph) -> str:
    """The beginning of the names of a layer's C functions."""
    x, w = graph.operands(op)[:2]
    if op.kind == "dense":
        return f"dense_c{w.shape[1]}_k{w.shape[0]}"
    window = f"{w.shape[1]}x{w.shape[2]}_s{op.attrs['stride'][0]}"
    if op.kind == "depthwise_conv2d":
        return f"depthwise_{window}_c{w.shape[3]}"
    name = {"conv2d": "conv2d", "transpose_conv2d": "transpose_conv", "integer_sums": "sums"}[op.kind]
    return f"{name}_{window}_c{x.shape[3]}_k{w.shape[0]}"


def layer_sums(op: Op, graph: Graph) -> Sums | None:
    """The layer as `Sums`, or None if it is not int8; a dense layer has a pixel for each row of the operand."""
    x, w = graph.operands(op)[:2]
    if is_float(x) or w.data is None or not spatial.is_one_type(op, graph):
        return None
    weights, size, out = w.data, x.shape[1:], graph.result(op).shape[1:]
    if op.kind == "dense":
        weights, size, out = w.data[:, None, None, :], (1, *x.shape), (1, x.shape[0], w.shape[0])
    elif op.kind == "depthwise_conv2d":
        weights = w.data.reshape(*w.shape[1:3], -1).transpose(2, 0, 1)[..., None]
    return spatial.sums_of(op, graph, stem(op, graph), weights, size, out)


def window_letters(op: Op, graph: Graph, form: Form) -> dict[str, Any]:
    """The letters of a template with a window; CG, KG: channels of a group, M: the channel multiplier."""
    x, w = graph.operands(op)[:2]
    shape = spatial.window_shape(op, graph, w.shape[1:3], form)
    if op.kind == "depthwise_conv2d":
        return {**shape, "M": w.shape[3] // x.shape[3]}
    return {**shape, "CG": w.shape[3], "KG": w.shape[0] // groups(op)}


def layer_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, w = graph.operands(op)[:2]
    if op.kind == "dense":
        shape: dict[str, Any] = {"N": x.shape[0], "C": w.shape[1], "K": w.shape[0], "float": is_float(x)}
        if form.rolled:
            return _by_rows(op, graph, form, shape | spatial.sum_types(op, graph))
    else:
        shape = window_letters(op, graph, form)
    shape |= spatial.sum_types(op, graph)
    constants, scalars = spatial.sum_constants(op, graph, w.array), spatial.sum_scalars(op, graph)
    return Kernel(
        f"contractions.c:{op.kind}", stem(op, graph), shape, constants, scalars,
        estimate=in_plain_c(layer_nest(op, graph), x, op.kind, form),
    )  # fmt: skip


def in_plain_c(nest: Nest, x: Tensor, kind: str, form: Form) -> float:
    """Instructions of a nest of products of x in plain C, as of this kind of layer; row by row, those of a row."""
    extents, kind, result = nest.extents, kind.removeprefix("transpose_"), 0.0
    if x.dtype == "int16":
        result = quantised_instructions(f"result of {kind}", x.dtype, form.core)
    name = f"product of {kind}"
    product = instructions(name, form.core) if is_float(x) else quantised_instructions(name, x.dtype, form.core)
    total = product * prod(extents.values()) + result * prod(extents[axis] for axis in nest.out)
    return total / (extents[nest.out[1]] if form.rolled else 1)


def _by_rows(op: Op, graph: Graph, form: Form, shape: dict[str, Any]) -> Kernel:
    """The kernel that gets one operand row at a time. If no sum can leave int32, the bias includes the zero point."""
    w, s = graph.operands(op)[1], layer_sums(op, graph)
    shape |= {"rows": form.rows, "folded": False}
    constants, scalars = spatial.sum_constants(op, graph, w.array), spatial.sum_scalars(op, graph)
    each = in_plain_c(layer_nest(op, graph), graph.operands(op)[0], op.kind, replace(form, rings=None)) / form.rows
    if s is not None and s.fits:
        shape |= {"folded": True}
        scalars = {"y_zero": s.y_zero, "low": s.low, "high": s.high}
        start = Constant("bias", s.start.astype(np.int32), "with the zero point folded in")
        constants = (Constant("w", s.weights.reshape(w.shape), "weights"), start, *s.rescaling)
        each = w.shape[0] * (15 + w.shape[1] / form.rows * 6)
    return Kernel(
        "contractions.c:dense_rows", f"{stem(op, graph)}_by_rows", shape, constants, scalars,
        scratch=4 * w.shape[0], estimate=each, placed=True, counted=True,
    )  # fmt: skip


def layer(kind: str, products: Total, *limits: Limit, **facts: Any) -> Spec:
    """The spec of a layer; `products` computes its sums without bias, exactly, in float64."""

    def total(op: Op, graph: Graph, x: Array, w: Array) -> Array:
        return products(op, graph, x, w).astype(np.int64)

    def reference(op: Op, graph: Graph, x: Array, w: Array, bias: Array | None = None, added: Any = None) -> Array:
        return spatial.finished(products(op, graph, x, w), bias, op, graph)

    limits = (*limits, spatial.bias_agrees, spatial.symmetric_weights)
    facts = {"rows": spatial.rows, "total": total, "fan_in": spatial.is_plain, "clamps": True, **facts}
    facts |= {"integers": spatial.INTEGERS, "interval": spatial.sums_interval(total), "limits": limits}
    return Spec(kind, layer_nest, reference, layer_kernel, **facts)


LAYERS = (
    layer("conv2d", conv2d_products, spatial.window_limit, channels_agree, sums=layer_sums, part=spatial.part),
    layer(
        "depthwise_conv2d", depthwise_conv2d_products, spatial.window_limit, whole_multiplier,
        sums=layer_sums, part=spatial.part,
    ),
    layer("transpose_conv2d", transpose_conv2d_products, groups_agree, total=None, part=transpose_part),
    layer(
        "dense", dense_products, columns_agree, sums=layer_sums, any_rows=True,
        rows=lambda op, graph: "reduce" if graph.operands(op)[0].shape[0] == 1 and spatial.is_plain(op, graph) else "",
    ),
)  # fmt: skip


# BATCH_MATMUL, MatMul of two activations: out[a, b, n, k] = sum over c of x[a, b, n, c] * w[a, b, c, k].
#
# Both operands have four dimensions; either may have one batch where the other has several. With `turned` the second is
# K x C. The matrices are not transposed here: a transpose in front of one is an op of its own.


def batch_matmul_nest(op: Op, graph: Graph) -> Nest:
    x, w = graph.operands(op)
    k, c = (w.shape[2], w.shape[3]) if op.attrs["turned"] else (w.shape[3], w.shape[2])
    a, b = (max(m, n) for m, n in zip(x.shape[:2], w.shape[:2], strict=True))
    extents = {"a": a, "b": b, "n": x.shape[2], "k": k, "c": c}

    def batch(t: Tensor) -> tuple[Dim, ...]:
        return tuple(Same(axis) if n == extents[axis] else Fixed() for axis, n in zip("ab", t.shape[:2], strict=True))

    matrix = (Same("k"), Same("c")) if op.attrs["turned"] else (Same("c"), Same("k"))
    return Nest(extents, ("a", "b", "n", "k"), ((*batch(x), Same("n"), Same("c")), (*batch(w), *matrix)), macs=True)


def wide(op: Op, graph: Graph) -> bool:
    """Whether sums have 64 bits: those of int16 operands."""
    return graph.operands(op)[0].dtype == "int16"


def multiplier(op: Op, graph: Graph) -> fixedpoint.Multiplier:
    x, w = (scale_of(t) for t in graph.operands(op))
    m = fixedpoint.quantize_multiplier(x * w / scale_of(graph.result(op)))
    if not wide(op, graph):
        return m
    mantissa, shift = fixedpoint.wide(np.array([m.mantissa]), np.array([m.shift]), graph.arithmetic)
    return fixedpoint.Multiplier(int(mantissa[0]), int(shift[0]))


def batch_matmul_reference(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    tx, tw = graph.operands(op)
    total = _products(op, x.astype(np.float64) - zero_of(tx), w.astype(np.float64) - zero_of(tw))
    if is_float(graph.result(op)):
        return clip_float(total, op.attrs["clamp"])
    return _rescaled(op, graph, total)


def _products(op: Op, x: Array, w: Array) -> Array:
    return np.asarray(x @ (w.swapaxes(2, 3) if op.attrs["turned"] else w))


def _rescaled(op: Op, graph: Graph, total: Array) -> Array:
    m, y = multiplier(op, graph), graph.result(op)
    requantize = fixedpoint.requantize_wide if wide(op, graph) else fixedpoint.requantize
    return spatial.stored(requantize(total.astype(np.int64), m.mantissa, m.shift, graph.arithmetic), op, y)


def interval(op: Op, graph: Graph, x: Interval, w: Interval) -> Interval:
    """Bounds of the result: products of the operands' middles, plus and minus |x| dw + dx |w| + dx dw.

    Middles and half widths are computed twice as large, so that they are integers.
    """
    middles, reaches = [], []
    for (low, high), t in zip((x, w), graph.operands(op), strict=True):
        low, high = low.astype(np.float64), high.astype(np.float64)
        middles.append(low + high - 2 * zero_of(t))
        reaches.append(high - low)
    (mx, mw), (dx, dw) = middles, reaches
    total, reach = _products(op, mx, mw), _products(op, abs(mx) + dx, dw) + _products(op, dx, abs(mw))
    return _rescaled(op, graph, (total - reach) // 4), _rescaled(op, graph, -((-total - reach) // 4))


def fitting(op: Op, graph: Graph) -> str | None:
    """The first operand is computed; both have 4 dimensions, one scale, equal inner sizes, and batches equal or 1."""
    x, w = graph.operands(op)
    inner = w.shape[3] if op.attrs["turned"] else w.shape[2]
    batches = all(m == n or 1 in (m, n) for m, n in zip(x.shape[:2], w.shape[:2], strict=True))
    scales = any(t.quant is not None and not t.quant.per_tensor for t in (x, w))
    bad = x.constant or scales or len(x.shape) != 4 or len(w.shape) != 4 or x.shape[3] != inner or not batches
    return f"operands {x.shape}{' (constant)' if x.constant else ''} and {w.shape}" if bad else None


def batch_matmul_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """The kernel for A x B matrices of N x K, sums over C; steps to an operand's next matrix, 0 for the same."""
    (x, w), y = graph.operands(op), graph.result(op)
    (a, b, n, k), c = y.shape, x.shape[3]
    steps: dict[str, Any] = {}
    for name, t in (("x", x), ("w", w)):
        size = prod(t.shape[2:])
        steps |= {f"{name}a": size * t.shape[1] if t.shape[0] > 1 else 0, f"{name}b": size if t.shape[1] > 1 else 0}
    shape: dict[str, Any] = {"A": a, "B": b, "N": n, "K": k, "C": c, "float": is_float(y), **steps}
    shape |= {"wide": wide(op, graph), "at": (c, 1) if op.attrs["turned"] else (1, k)}
    scalars = spatial.float_bounds(op, graph)
    if not is_float(y):
        m, (low, high) = multiplier(op, graph), spatial.bounds(op, y)
        scalars = {"x0_zero": zero_of(x), "x1_zero": zero_of(w), "multiplier": m.mantissa, "shift": m.shift}
        scalars |= {"y_zero": zero_of(y), "low": low, "high": high}
    constants = (Constant("x1", w.data, "second operand"),) if w.data is not None else ()
    return Kernel(
        "contractions.c:batch_matmul", f"matmul_{a * b}x{n}x{c}x{k}", shape, constants, scalars,
        estimate=in_plain_c(batch_matmul_nest(op, graph), x, "dense", form),
    )  # fmt: skip


BATCH_MATMUL = Spec(
    "batch_matmul", batch_matmul_nest, batch_matmul_reference, batch_matmul_kernel, clamps=True,
    integers=("int8", "int16"), interval=interval, limits=(fitting,),
)  # fmt: skip


# ConvInteger, MatMulInteger with a zero point that the graph computes; DynamicQuantizeLinear, which computes it.
#
# integer_sums: out[n, y, x, k] = sum over (fy, fx, c) of (in[..] - zero) * w[k, fy, fx, c], in int32. Letters,
# attributes and weights are those of conv2d; a matrix is one image of height 1. Padding reads as the zero point.

BYTES = ("int8", "uint8")
SPAN = 255  # largest absolute value of a byte less its zero point


def integer_sums_nest(op: Op, graph: Graph) -> Nest:
    sums = layer_nest(replace(op, inputs=op.inputs[:2]), graph)
    return replace(sums, operands=(*sums.operands, ()))


def integer_sums_reference(op: Op, graph: Graph, x: Array, w: Array, zero: Array) -> Array:
    less = x.astype(np.int64) - int(zero.reshape(()))
    return conv2d_products(op, graph, less, w).astype(np.int32)


def bytes_and_weights(op: Op, graph: Graph) -> str | None:
    """The input and its zero point are int8 or uint8 without a scale, weights are constants, sums stay in int32."""
    x, w, zero = graph.operands(op)
    if x.dtype not in BYTES or zero.dtype != x.dtype or zero.elements != 1 or x.quant is not None:
        return f"input {x.dtype}{' with a scale' if x.quant else ''}, zero point {zero.dtype} of shape {zero.shape}"
    if w.data is None:
        return f"weights '{w.name}' are computed by the graph"
    most = SPAN * int(np.abs(w.data.astype(np.int64)).reshape(w.shape[0], -1).sum(axis=1).max(initial=0))
    return f"sums of up to {most}" if most >= 2**31 else None


def integer_sums_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    _, w, zero = graph.operands(op)
    shape = window_letters(op, graph, form) | {"weight": C_TYPES[w.dtype], "computed": not zero.constant}
    scalars = {} if zero.data is None else {"x_zero": int(zero.data.reshape(()))}
    cost = 8.0 * graph.result(op).elements * w.elements / w.shape[0]
    constants = (Constant("w", w.array, "weights"),)
    return Kernel("contractions.c:integer_sums", stem(op, graph), shape, constants, scalars, estimate=cost)


INTEGER_SUMS = Spec(
    "integer_sums", integer_sums_nest, integer_sums_reference, integer_sums_kernel,
    rows=lambda op, graph: spatial.rows(op, graph) if graph.operands(op)[2].constant else "", part=spatial.part,
    float_only=True, plain=True, limits=(spatial.window_limit, bytes_and_weights, channels_agree),
)  # fmt: skip


# Sums over a part of the input channels, added to earlier sums: the fan-in of Fused Depthwise Tiling.
#
# partial_sum: operands are the start of the sums, the part of the input, and the weights of these channels. The start
# is a bias, or the sums so far, to which it adds in place. Attributes, letters and weights are those of the convolution
# or dense layer. int8 sums are int32, so the order of the parts has no effect; float rounds differently. join_sums adds
# the sums of two parts of the channels. finish_sum: the int8 result of int32 sums, whose quantisation is that of a
# bias.


def _layer(op: Op, graph: Graph) -> Op:
    """The layer that these sums are a part of, without the operand `start`."""
    return replace(op, kind="dense" if len(graph.operands(op)[1].shape) == 2 else "conv2d", inputs=op.inputs[1:])


def partial_sum_nest(op: Op, graph: Graph) -> Nest:
    sums = layer_nest(_layer(op, graph), graph)
    start = same(*sums.out[-1:]) if graph.operands(op)[0].constant else same(*sums.out)
    return replace(sums, operands=(start, *sums.operands))


def partial_sum_reference(op: Op, graph: Graph, start: Array, x: Array, w: Array) -> Array:
    products = (conv2d_products if x.ndim == 4 else dense_products)(_layer(op, graph), graph, x, w)
    return np.asarray(products + start).astype(graph.result(op).dtype)


def constant_weights(op: Op, graph: Graph) -> str | None:
    """Weights are constant; the input is a matrix or one image."""
    _, x, w = graph.operands(op)
    bad = not w.constant or len(x.shape) not in (2, 4) or (len(x.shape) == 4 and x.shape[0] != 1)
    return f"weights {w.name}, input {x.shape}" if bad else None


def partial_sum_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    start, x, w = graph.operands(op)
    y = graph.result(op)
    if len(x.shape) == 2:
        rows, channels = x.shape
        sizes = (1, rows, channels), (1, rows, w.shape[0]), (1, 1), (1, 1), (0, 0), (1, 1)
        shape: dict[str, Any] = {**spatial.letters(*sizes), "N": 1, "rolled": False}
    else:
        shape = spatial.window_shape(_layer(op, graph), graph, w.shape[1:3], form)
    shape |= {"float": is_float(x), "first": start.constant}
    constants = [Constant("w", w.array, "weights")]
    if start.data is not None:
        constants.append(Constant("bias", start.data.astype(y.dtype).ravel(), "bias"))
    stem = f"{'first' if start.constant else 'more'}_sums_{shape['FH']}x{shape['FW']}_c{shape['C']}_k{shape['K']}"
    scalars: dict[str, int | float] = {} if is_float(x) else {"x_zero": zero_of(x)}
    layer = _layer(op, graph)
    return Kernel(
        "contractions.c:partial_sum", stem, shape, tuple(constants), scalars,
        estimate=in_plain_c(layer_nest(layer, graph), x, layer.kind, form),
    )  # fmt: skip


def join_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    count = graph.result(op).elements
    return Kernel("contractions.c:join_sums", f"join_sums_{count}", {"N": count})


def multipliers(op: Op, graph: Graph) -> tuple[Array, Array]:
    """Mantissa and shift for each channel; scales of the sums are scale(x) * scale(w), so these are the layer's own."""
    (x,), y = graph.operands(op), graph.result(op)
    mantissa, shift = fixedpoint.quantize_multipliers(s / scale_of(y) for s in quant_of(x).scale)
    each = x.shape[-1] // len(mantissa)
    return np.repeat(mantissa, each), np.repeat(shift, each)


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
    return Kernel("contractions.c:finish_sum", stem, shape, constants, {"y_zero": zero_of(y), "low": low, "high": high})


PARTIAL = Spec("partial_sum", partial_sum_nest, partial_sum_reference, partial_sum_kernel, limits=(constant_weights,))
JOIN = Spec("join_sums", elementwise.nest, lambda op, graph, a, b: np.asarray(a + b), join_kernel)
FINISH = Spec("finish_sum", elementwise.nest, finish_reference, finish_kernel, clamps=True)
