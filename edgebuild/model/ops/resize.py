"""Resize, Upsample, RESIZE_BILINEAR: each dimension by itself, as sums of neighbours with weights.

`blend` works along `axis`: out[i] = offset[i] + sum over k of weight[i][k] * in[index[i][k]]. OUTSIDE is the index of
no element. One of weight 0 counts: 0 times an infinity is no number, in onnxruntime and TFLM, too. To the nearest is
`take`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, prod
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op, Tensor
from ..ir.axes import Nest, Same, Whole
from . import bilinear, local_response, loops
from .base import Constant, Form, Kernel, Spec, is_float
from .moves import axis_of, moving
from .take import OUTSIDE

Place = Callable[[Array], Array]


def nest(op: Op, graph: Graph) -> Nest:
    (x,), axis = graph.operands(op), op.attrs["axis"]
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    extents = dict(zip(names, x.shape, strict=True)) | {names[axis]: len(op.attrs["index"])}
    dims = tuple(Whole(n) if d == axis else Same(names[d]) for d, n in enumerate(x.shape))
    return Nest(extents, names, (dims,))


def reference(op: Op, graph: Graph, x: Array) -> Array:
    line = np.moveaxis(x.astype(np.float64), op.attrs["axis"], 0)
    index, weight = np.array(op.attrs["index"]), np.array(op.attrs["weight"])
    rows = [(i[i != OUTSIDE], w[i != OUTSIDE]) for i, w in zip(index, weight, strict=True)]
    with np.errstate(all="ignore"):
        parts = [np.tensordot(w, line[i], 1) + o for (i, w), o in zip(rows, op.attrs["offset"], strict=True)]
        return np.moveaxis(np.stack(parts), 0, op.attrs["axis"]).astype(np.float32)


def real(op: Op, graph: Graph) -> str | None:
    """Values are float32."""
    x = graph.operands(op)[0]
    return None if is_float(x) else f"'{x.name}' is {x.dtype}"


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), y, axis = graph.operands(op), graph.result(op), op.attrs["axis"]
    index, weight = np.array(op.attrs["index"]), np.array(op.attrs["weight"], np.float32)
    offset = np.array(op.attrs["offset"], np.float32)
    inner = loops.steps(x.shape)[axis]
    shape: dict[str, Any] = {
        "outer": prod(x.shape[:axis]),
        "N": x.shape[axis],
        "M": len(index),
        "K": index.shape[1],
        "inner": inner,
        "offset": bool(offset.any()),
        "gaps": bool((index == OUTSIDE).any()),
    }
    constants = [
        Constant("index", index.astype(np.int16 if x.shape[axis] < 2**15 else np.int32), "of neighbours"),
        Constant("weight", weight, "of neighbours"),
    ]
    constants += [Constant("offset", offset, "of values outside")] if offset.any() else []
    cost = 6.0 * y.elements * shape["K"]
    return Kernel("blend.c.j2", f"blend_{shape['K']}_along_{axis}", shape, tuple(constants), estimate=cost)


# How neighbours are weighted -----------------------------------------------------------------


def _linear(ratio: float, scale: float) -> tuple[int, Array]:
    """First neighbour, counted from the one at a place or below it, and weights; `scale` below 1 widens the window."""
    start = floor(-1 / scale) + 1
    at = (np.arange(start, 2 - start) - ratio) * scale
    return start, np.clip(1 - np.abs(at), 0, 1)


def _cubic(a: float) -> Callable[[float, float], tuple[int, Array]]:
    def weights(ratio: float, scale: float) -> tuple[int, Array]:
        start = floor(-2 / scale) + 1
        x = np.abs((np.arange(start, 2 - start) - ratio) * scale)
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
        return start, np.where(x <= 1, near, np.where(x < 2, far, 0))

    return weights


def tables(
    n: int, places: list[float], scale: float, weights: Callable[[float, float], tuple[int, Array]], inside_only: bool
) -> tuple[list[list[int]], list[list[float]]]:
    """Neighbours, kept inside of the line, and their weights, which add up to 1. A wide window has none of weight 0."""
    index, weight = [], []
    for x in places:
        below = floor(x)
        start, w = weights(x - below, scale)
        at = np.arange(below + start, below + start + len(w))
        if inside_only:
            w = np.where((at >= 0) & (at < n), w, 0)
        found = np.clip(at, 0, n - 1)
        index.append([int(i) for i in (np.where(w, found, OUTSIDE) if scale < 1 else found)])
        weight.append([float(v) for v in w / w.sum()])
    return index, weight


def two_neighbours(n: int, places: list[float]) -> tuple[list[list[int]], list[list[float]]]:
    """The element at a place, or before it, and the next one; the last one is both, in equal parts."""
    index, weight = [], []
    for x in (min(max(at, 0.0), n - 1.0) for at in places):
        first = floor(x)
        last = first == n - 1
        index.append([first, first + (not last)])
        weight.append([0.5, 0.5] if last else [1 - (x - first), x - first])
    return index, weight


def place_of(mode: str, n: int, m: int, scale: float, roi: tuple[float, float]) -> Place | None:
    """Where output element x lies in the input, by the standard's name of the transformation.

    `x` is float32. In this order of operations it gives the places of onnxruntime: half a pixel of 13 to 1 is
    5.9999995, not 6.
    """
    last, real, (start, end) = max(m - 1, 1), np.float32, roi
    symmetric = float(real(n / 2) * (1 - real(m) / (real(scale) * real(n))))
    modes: dict[str, Place] = {
        "half_pixel": lambda x: (x + 0.5) / scale - 0.5,
        "half_pixel_symmetric": lambda x: (symmetric + (x.astype(float) + 0.5) / float(real(scale)) - 0.5).astype(real),
        "pytorch_half_pixel": lambda x: (x + 0.5) / scale - 0.5 if m > 1 else 0 * x,
        "align_corners": lambda x: x * (n - 1) / last,
        "asymmetric": lambda x: x / scale,
        "tf_half_pixel_for_nn": lambda x: (x + 0.5) / scale,
        "tf_crop_and_resize": lambda x: (
            start * (n - 1) + x * (end - start) * (n - 1) / last if m > 1 else 0 * x + 0.5 * (start + end) * (n - 1)
        ),
    }
    return modes.get(mode)


NEAR = 1e-6  # so far from the middle of two elements counts as the middle, as in onnxruntime

NEAREST: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda x: ceil(x - 0.5 - NEAR),
    "round_prefer_ceil": lambda x: floor(x + 0.5 + NEAR),
    "floor": floor,
    "ceil": ceil,
}
SIMPLE = "simple"  # of files before opset 11, as in onnxruntime: floor where the dimension grows, else ceil


# Files ---------------------------------------------------------------------------------------


def _given(node: Any, position: int, what: str) -> Array | None:
    if len(node.inputs) <= position or not node.inputs[position]:
        return None
    data = np.ravel(node.constant(position, what).data)
    return data if data.size else None


def _sizes(node: Any, x: Tensor) -> tuple[list[int], list[float]]:
    """Of every dimension the new size and the scale."""
    rank = len(x.shape)
    axes = [axis_of(node, a, rank) for a in node.attr("axes", range(rank))]
    scales, sizes = _given(node, 2, "scales"), _given(node, 3, "sizes")
    if (scales is None) == (sizes is None) or len(axes) != len(sizes if scales is None else scales):  # type: ignore[arg-type]
        raise node.error("neither scales nor sizes fit", "give either of them for each dimension, as constants")
    new, factor = list(x.shape), [1.0] * rank
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if sizes is not None:
        ratios = [float(s) / x.shape[a] for a, s in zip(axes, sizes, strict=True)]
        same = {"not_larger": min(ratios), "not_smaller": max(ratios)}.get(policy)
        for a, s, ratio in zip(axes, sizes, ratios, strict=True):
            factor[a] = ratio if same is None else same
            new[a] = int(s) if same is None else floor(same * x.shape[a] + 0.5)
    elif scales is not None:
        for a, s in zip(axes, scales, strict=True):
            factor[a], new[a] = float(s), floor(np.float32(s) * np.float32(x.shape[a]))  # 13 of 9, as onnxruntime
    if min(factor) <= 0 or min(new) < 1:
        raise node.error(f"sizes {new} and scales {factor}", "all must be positive")
    return new, factor


def from_onnx(node: Any) -> None:
    x, mode = node.tensor(0), node.attr("mode", "nearest")
    new, factor = _sizes(node, x)
    transformation = node.attr("coordinate_transformation_mode", "half_pixel")
    rank = len(x.shape)
    roi = [(0.0, 1.0)] * rank
    if transformation == "tf_crop_and_resize" and (region := _given(node, 1, "roi")) is not None:
        axes = [axis_of(node, a, rank) for a in node.attr("axes", range(rank))]
        for i, a in enumerate(axes):
            roi[a] = float(region[i]), float(region[i + len(axes)])
    lines: list[list[float] | None] = []
    for n, m, scale, part in zip(x.shape, new, factor, roi, strict=True):
        place = place_of(transformation, n, m, scale, part)
        if place is None:
            raise node.error(f"coordinates {transformation}", "use those of opset 19")
        same = n == m and (scale == 1.0 or new == list(x.shape)) and part == (0.0, 1.0)
        lines.append(None if same else place(np.arange(m, dtype=np.float32)).tolist())
    outside = float(node.attr("extrapolation_value", 0.0)) if transformation == "tf_crop_and_resize" else None
    if mode == "nearest":
        return _nearest(node, x, lines, factor, outside)
    if x.quant is not None:
        return _through_reals(node, x)
    weights = {"linear": _linear, "cubic": _cubic(node.attr("cubic_coeff_a", -0.75))}.get(mode)
    if weights is None:
        raise node.error(f"mode {mode}", "nearest, linear and cubic are supported")
    passes = []
    for axis, line in enumerate(lines):
        if line is not None:
            widened = min(factor[axis], 1.0) if node.attr("antialias", 0) else 1.0
            n, inside = x.shape[axis], bool(node.attr("exclude_outside", 0))
            near = mode == "linear" and not node.attr("antialias", 0)
            index, weight = two_neighbours(n, line) if near else tables(n, line, widened, weights, inside)
            passes.append((axis, index, weight, _offsets(line, n, outside, index)))
    _blend(node, passes)


def _through_reals(node: Any, x: Tensor) -> None:
    """A quantised image is resized as real numbers, and takes its scale again."""
    image = Tensor(f"{node.outputs[0]}@dequantized", x.shape, "float32")
    node.add("dequantize", [x.name], image, {})
    resized = node.before("resized")
    resized.inputs = [image.name, *node.inputs[1:]]
    from_onnx(resized)
    y = node.builder.tensors[resized.outputs[0]]
    node.add("quantize", [y.name], Tensor(node.outputs[0], y.shape, x.dtype, x.quant), {})


def _offsets(line: list[float], n: int, outside: float | None, index: list[list[int]]) -> list[float]:
    """Places outside have a value and no neighbours, if that is asked for."""
    found = [0.0] * len(line)
    for i, at in enumerate(line):
        if outside is not None and not 0 <= at <= n - 1:
            found[i], index[i] = outside, [OUTSIDE] * len(index[i])
    return found


def _blend(node: Any, passes: list[tuple[int, list[list[int]], list[list[float]], list[float]]]) -> None:
    """One op for each dimension that changes; those that make the tensor smaller come first."""
    name = node.inputs[0]
    ordered = sorted(passes, key=lambda p: len(p[1]) / node.tensor(0).shape[p[0]])
    for position, (axis, index, weight, offset) in enumerate(ordered, start=1):
        attrs = {"axis": axis, "offset": tuple(offset)}
        attrs |= {"index": tuple(map(tuple, index)), "weight": tuple(map(tuple, weight))}
        if position == len(ordered):
            return node.emit("blend", [name], **attrs)
        name = node.inner("blend", [name], **attrs)
    node.emit("reshape", [name], shape=node.tensor(0).shape)


def _nearest(node: Any, x: Tensor, lines: list[list[float] | None], factor: list[float], outside: float | None) -> None:
    mode = node.attr("nearest_mode", "round_prefer_floor")
    if mode not in (*NEAREST, SIMPLE):
        raise node.error(f"nearest_mode {mode}", ", ".join(NEAREST))
    index = []
    for n, line, scale in zip(x.shape, lines, factor, strict=True):
        if line is None:
            index.append(list(range(n)))
            continue
        choose = NEAREST[mode if mode != SIMPLE else "ceil" if scale < 1 else "floor"]
        beyond = [outside is not None and not 0 <= at <= n - 1 for at in line]
        chosen = [max(0, min(n - 1, choose(at))) for at in line]
        index.append([OUTSIDE if out else at for out, at in zip(beyond, chosen, strict=True)])
    moved = moving(index, x)
    if any(t is not None for t in moved):
        node.emit("take", node.inputs[:1], index=moved, value=outside)
    else:
        node.emit("reshape", node.inputs[:1], shape=x.shape)


def from_tflite(node: Any) -> None:
    """Neighbours and weights of float32 are those of TFLM (kernels/internal/reference/resize_bilinear.h)."""
    options, x = node.options("ResizeBilinearOptions"), node.tensor(0)
    size = [int(n) for n in np.ravel(node.constant(1, "size").data)]
    if not is_float(x):
        return bilinear.emit(node, size, bool(options.AlignCorners()), bool(options.HalfPixelCenters()))
    passes = []
    for axis, m in enumerate(size, start=1):
        n = x.shape[axis]
        corners = options.AlignCorners() and m > 1
        step = np.float32(n - 1) / np.float32(m - 1) if corners else np.float32(n) / np.float32(m)
        half = 0.5 if options.HalfPixelCenters() else 0.0
        line = [float((i + half) * step - half) for i in range(m)]
        index = [[max(floor(at), 0), max(min(ceil(at), n - 1), 0)] for at in line]
        weight = [[1 - (at - first), at - first] for at, (first, _) in zip(line, index, strict=True)]
        if n != m:
            passes.append((axis, index, weight, [0.0] * m))
    _blend(node, passes)


SPEC = Spec(
    kind="blend",
    nest=nest,
    reference=reference,
    kernel=kernel,
    tflite={"RESIZE_BILINEAR": from_tflite, "LOCAL_RESPONSE_NORMALIZATION": local_response.from_tflite},
    onnx={"Resize": from_onnx, "LRN": local_response.from_onnx},
    float_only=True,
    limits=(real,),
)
