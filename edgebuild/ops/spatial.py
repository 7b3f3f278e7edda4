"""What the windowed ops (convolutions, pools) share: padding rules, window sums, requantisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..axes import Window
from ..ir import Array, Graph, Op, Quant, Tensor
from . import fixedpoint
from .base import Constant, Form, Ranges, quant_of, scale_of, zero_of

Pad = tuple[int, int, int, int]  # top, left, bottom, right
TFLITE_CLAMPS = {0: (None, None), 1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}


def tflite_clamp(node: Any, code: int) -> tuple[float | None, float | None]:
    """The real bounds of a fused activation function of the TFLite schema."""
    if code not in TFLITE_CLAMPS:
        raise node.error(f"fused activation {code} is not supported", "use NONE, RELU, RELU_N1_TO_1 or RELU6")
    return TFLITE_CLAMPS[code]


def same_pad(size: Sequence[int], window: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Pad:
    """TensorFlow's SAME padding: output = ceil(size / stride), the odd row or column at the end."""
    total = []
    for n, k, s, d in zip(size, window, stride, dilation, strict=True):
        out = -(-n // s)
        total.append(max((out - 1) * s + (k - 1) * d + 1 - n, 0))
    top, left = total[0] // 2, total[1] // 2
    return top, left, total[0] - top, total[1] - left


def tflite_window(node: Any, options: Any, window: Sequence[int], dilation: Sequence[int] = (1, 1)) -> dict[str, Any]:
    """Stride, padding and activation of a windowed TFLite node as attributes."""
    size = node.tensor(0).shape[1:3]
    stride = (options.StrideH(), options.StrideW())
    if min(*stride, *dilation, *window) < 1:
        raise node.error(
            f"stride {stride}, dilation {tuple(dilation)}, window {tuple(window)}", "all must be at least 1"
        )
    same = options.Padding() == 0
    pad = same_pad(size, window, stride, dilation) if same else (0, 0, 0, 0)
    clamp = tflite_clamp(node, options.FusedActivationFunction())
    return {"stride": stride, "pad": pad, "clamp": clamp}


def onnx_window(node: Any, window: Sequence[int]) -> dict[str, Any]:
    """Stride, dilation and padding of a windowed ONNX node as attributes (auto_pad resolved)."""
    stride = tuple(node.attr("strides", [1, 1]))
    dilation = tuple(node.attr("dilations", [1, 1]))
    auto = node.attr("auto_pad", "NOTSET")
    size = node.tensor(0).shape[2:4]
    if len(window) != 2:
        raise node.error(f"{len(window)}-D window", "only 2-D windows are supported; reshape 1-D data to height 1")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        top, left, bottom, right = same_pad(size, window, stride, dilation)
        pad = (top, left, bottom, right) if auto == "SAME_UPPER" else (bottom, right, top, left)
    else:
        pad = tuple(node.attr("pads", [0, 0, 0, 0])) if auto == "NOTSET" else (0, 0, 0, 0)
        if node.attr("ceil_mode", 0):
            pad = _ceil_pad(size, window, stride, dilation, pad)
    return {"stride": stride, "dilation": dilation, "pad": pad, "clamp": (None, None)}


def _ceil_pad(
    size: Sequence[int], window: Sequence[int], stride: Sequence[int], dilation: Sequence[int], pad: Sequence[int]
) -> Pad:
    """Enough padding at the end that the floor rule gives ONNX's ceil_mode output size."""
    out = list(pad)
    for i in range(2):
        room = size[i] + pad[i] + pad[i + 2] - (window[i] - 1) * dilation[i] - 1
        steps = -(-room // stride[i])
        if steps * stride[i] >= size[i] + pad[i]:  # the last window would start in the padding
            steps -= 1
        out[i + 2] += max(0, steps * stride[i] - room)
    return out[0], out[1], out[2], out[3]


def window_dims(op: Op, x: Tensor, window: Sequence[int]) -> tuple[dict[str, int], Window, Window]:
    """Extents of output rows and columns, and the relations of the input's height and width."""
    stride, pad = op.attrs["stride"], op.attrs["pad"]
    dilation = op.attrs.get("dilation", (1, 1))
    height, width = (
        (x.shape[1 + i] + pad[i] + pad[i + 2] - (window[i] - 1) * dilation[i] - 1) // stride[i] + 1 for i in range(2)
    )
    extents = {"y": height, "x": width, "fy": window[0], "fx": window[1]}
    rows = Window("y", "fy", stride[0], dilation[0], pad[0], x.shape[1])
    columns = Window("x", "fx", stride[1], dilation[1], pad[1], x.shape[2])
    return extents, rows, columns


def window_limit(op: Op, graph: Graph) -> str | None:
    """The window lies over at least one element of the input at every output position."""
    x, y = graph.operands(op)[0], graph.result(op)
    if len(x.shape) != 4:
        return f"input has {len(x.shape)} dimensions"
    if min(y.shape) < 1:
        return f"window is larger than the padded input {x.shape[1]}x{x.shape[2]}"
    return None


def taps(x: Array, op: Op, window: Sequence[int], out: Sequence[int], fill: float) -> Iterator[tuple[int, int, Array]]:
    """For every tap (fy, fx) of the window the input under it, shaped like the output's rows and columns."""
    top, left, bottom, right = op.attrs["pad"]
    stride, dilation = op.attrs["stride"], op.attrs.get("dilation", (1, 1))
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    for fy in range(window[0]):
        for fx in range(window[1]):
            y0, x0 = fy * dilation[0], fx * dilation[1]
            y1, x1 = y0 + (out[0] - 1) * stride[0] + 1, x0 + (out[1] - 1) * stride[1] + 1
            yield fy, fx, padded[:, y0 : y1 : stride[0], x0 : x1 : stride[1], :]


def rows(op: Op, graph: Graph) -> str:
    """Output rows one by one, each from the input rows under its window."""
    return "each"


def part(op: Op, graph: Graph, out: Ranges, x: Ranges) -> dict[str, Any]:
    """Attributes of the op that makes rows and columns `out` from rows and columns `x` of its input.

    Padding is what its windows reach beyond `x`: at the border of the whole input, and nowhere else.
    """
    taps = op.attrs["window"] if "window" in op.attrs else graph.operands(op)[1].shape[1:3]
    _, *relations = window_dims(op, graph.operands(op)[0], taps)
    pads = [(op.attrs["pad"][i], op.attrs["pad"][i + 2]) for i in range(2)]
    for i, (r, (first, past), (low, high)) in enumerate(zip(relations, out[1:3], x[1:3], strict=True)):
        if (first, past) != (0, graph.result(op).shape[1 + i]):
            end = (past - 1) * r.stride - r.pad + (taps[i] - 1) * r.dilation + 1
            pads[i] = low - (first * r.stride - r.pad), end - high
    (top, bottom), (left, right) = pads
    return {**op.attrs, "pad": (top, left, bottom, right)}


def window_shape(op: Op, graph: Graph, window: Sequence[int], form: Form) -> dict[str, Any]:
    """The letters of the templates: H, W, C in; OH, OW, K out; F window, S stride, P padding before, D dilation."""
    x, y = graph.operands(op)[0], graph.result(op)
    letters = ("H", "W", "C", "OH", "OW", "K", "FH", "FW", "SY", "SX", "PY", "PX", "DY", "DX")
    dilation = op.attrs.get("dilation", (1, 1))
    sizes = (*x.shape[1:], *y.shape[1:], *window, *op.attrs["stride"], *op.attrs["pad"][:2], *dilation)
    return {**dict(zip(letters, sizes, strict=True)), "float": x.dtype == "float32", **rolled(form)}


def rolled(form: Form) -> dict[str, Any]:
    """What a template needs to find input rows: `at` wraps the expression of a row's number."""
    return {"rolled": form.rolled, "ring": form.rings[0] if form.rings else 0}


# Requantisation of an int32 sum of products to the int8 output ---------------------------------


def multipliers(op: Op, graph: Graph) -> tuple[Array, Array]:
    """Mantissa and shift for each output channel: scale(x) * scale(w) / scale(y).

    The product is formed in double from the file's float32 scales, as TFLM does; a product formed
    in float32 moves single results.
    """
    x, w = graph.operands(op)[:2]
    y = graph.result(op)
    pairs = [fixedpoint.quantize_multiplier(scale_of(x) * s / scale_of(y)) for s in quant_of(w).scale]
    channels = y.shape[-1]
    pairs = pairs * channels if len(pairs) == 1 else pairs
    return np.array([p.mantissa for p in pairs], np.int32), np.array([p.shift for p in pairs], np.int8)


def requantize_sum(total: Array, op: Op, graph: Graph) -> Array:
    """int8 result of the int32 `total` (channels last): scale, add the zero point, clamp."""
    y = graph.result(op)
    mantissa, shift = multipliers(op, graph)
    scaled = fixedpoint.requantize(total, mantissa.astype(np.int64), shift, graph.arithmetic)
    return np.clip(scaled + zero_of(y), *bounds(op, y)).astype(np.int8)


def bounds(op: Op, y: Tensor) -> tuple[int, int]:
    return fixedpoint.clamp_bounds(quant_of(y), *op.attrs["clamp"])


def sum_constants(op: Op, graph: Graph, weights: Array) -> tuple[Constant, ...]:
    """Weights, bias and, for int8, multipliers and shifts, in the order of the kernels' parameters."""
    y = graph.result(op)
    out = [Constant("w", weights, "weights")]
    bias = graph.operands(op)[2].data if len(op.inputs) > 2 else None
    kind = np.float32 if y.dtype == "float32" else np.int32
    out.append(Constant("bias", np.zeros(y.shape[-1], kind) if bias is None else bias.astype(kind).ravel(), "bias"))
    if y.dtype == "int8":
        mantissa, shift = multipliers(op, graph)
        out += [Constant("multiplier", mantissa, "Q0.31"), Constant("shift", shift, "left if positive")]
    return tuple(out)


def sum_scalars(op: Op, graph: Graph) -> dict[str, int | float]:
    """Zero points and output bounds as the kernels' scalar parameters."""
    x, y = graph.operands(op)[0], graph.result(op)
    if y.dtype == "float32":
        return float_bounds(op)
    low, high = bounds(op, y)
    return {"x_zero": zero_of(x), "y_zero": zero_of(y), "low": low, "high": high}


def float_bounds(op: Op) -> dict[str, int | float]:
    low, high = op.attrs["clamp"]
    largest = float(np.finfo(np.float32).max)
    return {"low": -largest if low is None else float(low), "high": largest if high is None else float(high)}


def symmetric_weights(op: Op, graph: Graph) -> str | None:
    """Weights and bias are constants; weights have zero point 0, and one scale or one per output channel; the bias
    has scale(x) * scale(w)."""
    x, w = graph.operands(op)[:2]
    if computed := [t.name for t in graph.operands(op)[1:] if t.data is None]:
        return f"'{computed[0]}' is computed by the graph"
    if x.dtype == "float32":
        return None
    if w.quant is None:
        return "int8 weights without a scale"
    if any(w.quant.zero_point):
        return f"zero point {next(z for z in w.quant.zero_point if z)} of the weights"
    channels = graph.result(op).shape[-1]
    if len(w.quant.scale) not in (1, channels):
        return f"{len(w.quant.scale)} weight scales for {channels} output channels"
    return bias_scale_problem(x, w, graph.operands(op)[2] if len(op.inputs) > 2 else None)


def bias_scale_problem(x: Tensor, w: Tensor, bias: Tensor | None) -> str | None:
    if bias is not None and bias.dtype != "int32":
        return f"bias is {bias.dtype}, not int32"
    if bias is None or bias.quant is None or not any(bias.quant.scale):
        return None
    want = np.array(quant_of(w).scale) * scale_of(x)
    have = np.array(bias.quant.scale)
    if len(have) not in (1, len(want)) or not np.allclose(have, want, rtol=1e-2):
        return f"scale {have[0]:.6g} of the bias, scale(x) * scale(w) is {want[0]:.6g}"
    return None


def bias_quant(x: Tensor, w: Tensor) -> Quant:
    """The quantisation that a bias must have beside these operands."""
    scales = tuple(scale_of(x) * s for s in quant_of(w).scale)
    return Quant(scales, (0,) * len(scales), 0 if len(scales) > 1 else None)
