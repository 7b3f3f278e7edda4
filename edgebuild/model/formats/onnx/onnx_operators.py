"""ONNX's operators: kind of op -> name in the file -> reader of a node; "" has those composed of several kinds.

This module has readers of operators that move values: views, slices, joins, gathers, resizes, masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import ceil, floor, prod
from typing import Any

import numpy as np

from ...ir import Array, Tensor
from ...ops import base, indexing
from .. import compose
from ..builder import Reader, checked_size
from ..channels_first import global_average
from . import onnx_layers as layers


def read_slice(node: Any) -> None:
    """Read Slice. Starts, ends, axes and steps are operands from opset 10 on."""
    x = node.tensor(0)
    starts, ends = (node.numbers(at, name, node.attr(name, [])) for at, name in ((1, "starts"), (2, "ends")))
    axes = node.numbers(3, "axes", node.attr("axes", range(len(starts))))
    steps = node.numbers(4, "steps", []) or [1] * len(starts)
    index = compose.whole_index(x)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        d = compose.axis_of(node, axis, len(x.shape))
        if step == 0:
            raise node.error("step 0")
        last = end if end > -(2**31) + 1 else None
        index[d] = range(x.shape[d])[start : None if step < 0 and last is None else end : step]
    compose.values_at(node, node.inputs[0], index)


def read_split(node: Any) -> None:
    """Read Split: equal parts if no sizes are given, of which the last may be smaller."""
    x, count = node.tensor(0), len(node.outputs)
    axis = compose.axis_of(node, node.attr("axis", 0), len(x.shape))
    sizes = node.numbers(1, "split", node.attr("split", []))
    if not sizes:
        count = node.attr("num_outputs", count)
        each = ceil(x.shape[axis] / count)
        sizes = [min(each, x.shape[axis] - i * each) for i in range(count)]
    compose.parts_along(node, node.inputs[0], axis, sizes)


def read_depth_to_space(node: Any) -> None:
    (n, c, h, w), b = node.tensor(0).shape, node.attr("blocksize", 1)
    compose.check_blocks(node, b * b, c)
    if node.attr("mode", "DCR") == "DCR":
        inner, perm = (n, b, b, c // b**2, h, w), (0, 3, 4, 1, 5, 2)
    else:
        inner, perm = (n, c // b**2, b, b, h, w), (0, 1, 4, 2, 5, 3)
    compose.rearranged(node, node.inputs[0], inner, perm, (n, c // b**2, h * b, w * b))


def read_space_to_depth(node: Any) -> None:
    (n, c, h, w), b = node.tensor(0).shape, node.attr("blocksize", 1)
    compose.check_blocks(node, b, h, w)
    inner = (n, c, h // b, b, w // b, b)
    perm = (0, 3, 5, 1, 2, 4) if node.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    compose.rearranged(node, node.inputs[0], inner, perm, (n, c * b * b, h // b, w // b))


def read_reshape(node: Any) -> None:
    x = node.tensor(0)
    wanted = node.numbers(1, "shape")
    if not node.attr("allowzero", 0):
        wanted = [x.shape[d] if n == 0 else n for d, n in enumerate(wanted)]
    if -1 in wanted:
        rest = prod(n for n in wanted if n != -1)
        wanted[wanted.index(-1)] = x.elements // rest if rest else 0
    if prod(wanted) != x.elements:
        raise node.error(f"shape {tuple(wanted)} for an input of shape {x.shape}", "element counts must agree")
    node.emit("reshape", node.inputs[:1], shape=tuple(wanted))


def read_flatten(node: Any) -> None:
    x = node.tensor(0)
    axis = node.attr("axis", 1)
    if axis != len(x.shape):  # the axis may be the rank itself
        axis = compose.axis_of(node, axis, len(x.shape))
    node.emit("reshape", node.inputs[:1], shape=(prod(x.shape[:axis]), prod(x.shape[axis:])))


def read_squeeze(node: Any) -> None:
    """Read Squeeze. Axes are an attribute up to opset 12 and an operand from 13 on."""
    x = node.tensor(0)
    listed = node.numbers(1, "axes", node.attr("axes", [d for d, n in enumerate(x.shape) if n == 1]))
    axes = [compose.axis_of(node, a, len(x.shape)) for a in listed]
    node.emit("reshape", node.inputs[:1], shape=tuple(n for d, n in enumerate(x.shape) if d not in axes))


def read_unsqueeze(node: Any) -> None:
    x, listed = node.tensor(0), node.numbers(1, "axes", node.attr("axes", []))
    rank = len(x.shape) + len(listed)
    axes, rest = {compose.axis_of(node, a, rank) for a in listed}, iter(x.shape)
    node.emit("reshape", node.inputs[:1], shape=tuple(1 if d in axes else next(rest) for d in range(rank)))


def read_dropout(node: Any) -> None:
    """Read Dropout as the identity, as in inference. Its mask is all true."""
    compose.identity(node)
    if len(node.outputs) > 1 and node.outputs[1]:
        node.store(node.outputs[1], np.ones(node.tensor(0).shape, np.bool_))


def read_concat(node: Any) -> None:
    whole = [n for i, n in enumerate(node.inputs) if node.tensor(i).elements]
    node.emit("concat", whole, axis=compose.axis_of(node, node.attr("axis", 0), len(node.tensor(0).shape)))


def read_pad(node: Any) -> None:
    listed = node.constant(1, "pads").data if len(node.inputs) > 1 else node.attr("pads", [])
    value = _onnx_value(node) if node.has(2) else None
    pads = np.reshape(listed, (2, -1)).T
    if node.has(3):
        rank, axes = len(node.tensor(0).shape), node.numbers(3, "axes")
        full = np.zeros((rank, 2), int)
        full[[compose.axis_of(node, a, rank) for a in axes]] = pads
        pads = full
    compose.border(node, pads, node.attr("mode", "constant"), value)


def _onnx_value(node: Any) -> int | float | None:
    """A Pad's value: a float, or an int in steps of a quantised operand's scale; None for 0.0."""
    fill = node.constant(2, "value")
    if node.tensor(0).quant is not None and fill.quant is None and fill.dtype != "float32":
        return int(np.ravel(node.stored(fill))[0])
    return float(np.ravel(node.real(fill))[0]) or None


def _scatter_places(node: Any, sizes: Array, steps: Array, rest: Array | None) -> Array | str:
    """Flat positions index * steps + rest of the node's indices, which may count from the end of `sizes`.

    Without `rest` they are summed along their last dimension. An array if indices are constant, else a tensor's name.
    """
    index = node.tensor(1)
    if index.data is not None:
        at = index.data.astype(np.int64)
        if (at < -sizes).any() or (at >= sizes).any():
            raise node.error(f"indices {at.min()} to {at.max()} in {np.ravel(sizes).tolist()}")
        return np.asarray((at % sizes * steps).sum(-1) if rest is None else at % sizes * steps + rest)
    numbers = [node.array(np.asarray(n, np.int32)) for n in (0, sizes, steps, 0 if rest is None else rest)]
    name = node.inputs[1] if index.dtype == "int32" else node.inner("cast", [node.inputs[1]], to="int32")
    name = node.apply("product", compose.from_end(node, name, numbers[1], numbers[0]), numbers[2])
    if rest is None:
        return str(node.inner("reduce_sum", [name], axes=(len(index.shape) - 1,)))
    return str(node.apply("sum", name, numbers[3]))


def _element_places(node: Any) -> Array | str:
    """Flat positions for GatherElements and ScatterElements, whose indices replace the coordinate along one axis."""
    shape, index = node.tensor(0).shape, node.tensor(1)
    axis = compose.axis_of(node, node.attr("axis", 0), len(shape))
    if len(index.shape) != len(shape) or any(
        n > m for n, m in zip(index.shape, shape, strict=True) if m != shape[axis]
    ):
        raise node.error(f"indices of shape {index.shape} in {shape}", "as many dimensions, and none of them larger")
    steps, places = base.steps(shape), np.indices(index.shape)
    rest = sum(places[d] * steps[d] for d in range(len(shape)) if d != axis)
    return _scatter_places(node, np.array(shape[axis]), np.array(steps[axis]), np.zeros(index.shape, np.int64) + rest)


def read_gather_elements(node: Any) -> None:
    places, x = _element_places(node), node.tensor(0)
    flat = node.reshaped(node.inputs[0], (x.elements,))
    if isinstance(places, str):
        return node.emit("gather", [flat, places], axis=0, batch=0)
    compose.values_along(node, 0, places, places.shape, flat)


def read_scatter_elements(node: Any) -> None:
    if (places := node.tensor(1).shape) != (updates := node.tensor(2).shape):
        raise node.error(f"updates of shape {updates} for indices of shape {places}", "one shape is right for both")
    compose.scattered(node, _element_places(node), (node.tensor(0).elements, 1), 2, node.attr("reduction", "none"))


def read_scatter_nd(node: Any) -> None:
    """Read ScatterND: the indices' last dimension holds coordinates in the first dimensions of the tensor."""
    shape = node.tensor(0).shape
    depth = node.tensor(1).shape[-1]
    sizes, steps = np.array(shape[:depth]), np.array(base.steps(shape[:depth]))
    table = prod(shape[:depth]), prod(shape[depth:])
    compose.scattered(node, _scatter_places(node, sizes, steps, None), table, 2, node.attr("reduction", "none"))


Place = Callable[[Array], Array]


def _linear_weight(ratio: float, scale: float) -> tuple[int, Array]:
    """Offset of the first neighbour from the element at or below a position, and weights. `scale` < 1 widens."""
    start = floor(-1 / scale) + 1
    at = (np.arange(start, 2 - start) - ratio) * scale
    return start, np.clip(1 - np.abs(at), 0, 1)


def _cubic_weight(a: float) -> Callable[[float, float], tuple[int, Array]]:
    def weights(ratio: float, scale: float) -> tuple[int, Array]:
        start = floor(-2 / scale) + 1
        x = np.abs((np.arange(start, 2 - start) - ratio) * scale)
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
        return start, np.where(x <= 1, near, np.where(x < 2, far, 0))

    return weights


def resize_tables(
    n: int, places: list[float], scale: float, weights: Callable[[float, float], tuple[int, Array]], inside_only: bool
) -> tuple[list[list[int]], list[list[float]]]:
    """Per position, clamped indices of neighbours and their weights, of sum 1; wide windows omit those of weight 0."""
    index, weight = [], []
    for x in places:
        below = floor(x)
        start, w = weights(x - below, scale)
        at = np.arange(below + start, below + start + len(w))
        if inside_only:
            w = np.where((at >= 0) & (at < n), w, 0)
        inside = np.clip(at, 0, n - 1)
        index.append([int(i) for i in (np.where(w, inside, indexing.OUTSIDE) if scale < 1 else inside)])
        weight.append([float(v) for v in w / w.sum()])
    return index, weight


def two_neighbours(n: int, places: list[float]) -> tuple[list[list[int]], list[list[float]]]:
    """Per position, the element at or before it and the next one, with weights; the last element is its own next."""
    index, weight = [], []
    for x in (min(max(at, 0.0), n - 1.0) for at in places):
        first = floor(x)
        last = first == n - 1
        index.append([first, first + (not last)])
        weight.append([0.5, 0.5] if last else [1 - (x - first), x - first])
    return index, weight


def place_of(mode: str, n: int, m: int, scale: float, roi: tuple[float, float]) -> Place | None:
    """A function from float32 output coordinates to input coordinates, for ONNX's transformation `mode`; None: unknown.

    The order of float operations gives onnxruntime's coordinates: half_pixel from 13 to 1 is 5.9999995, not 6.
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


NEAR = 1e-6  # tolerance within which a position counts as the middle of two elements, as in onnxruntime
NEAREST: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda x: ceil(x - 0.5 - NEAR),
    "round_prefer_ceil": lambda x: floor(x + 0.5 + NEAR),
    "floor": floor,
    "ceil": ceil,
}
SIMPLE = "simple"  # nearest_mode of files before opset 11, as in onnxruntime: floor if the dimension grows, else ceil


def _given(node: Any, position: int, what: str) -> Array | None:
    data = np.ravel(node.constant(position, what).data) if node.has(position) else np.zeros(0)
    return data if data.size else None


MAX_PLACES = 1 << 24  # most elements of a dimension: float32 represents all integers up to it


def _resized_sizes(node: Any, x: Tensor) -> tuple[list[int], list[float]]:
    """The new size and the scale of every dimension of a Resize. Raises EdgebuildError if they are malformed."""
    rank = len(x.shape)
    axes = [compose.axis_of(node, a, rank) for a in node.attr("axes", range(rank))]
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
            factor[a], new[a] = float(s), floor(np.float32(s) * np.float32(x.shape[a]))  # in float32 as onnxruntime
    if min(factor) <= 0 or min(new) < 1:
        raise node.error(f"sizes {new} and scales {factor}", "all must be positive")
    if max(new) > MAX_PLACES:
        raise node.error(f"sizes {new}", f"at most {MAX_PLACES} of a dimension: places are counted in float32")
    checked_size(replace(x, name=node.outputs[0], shape=tuple(new)), node.builder.graph.file)
    return new, factor


def read_resize(node: Any) -> None:
    x, mode = node.tensor(0), node.attr("mode", "nearest")
    new, factor = _resized_sizes(node, x)
    transformation = node.attr("coordinate_transformation_mode", "half_pixel")
    rank = len(x.shape)
    roi = [(0.0, 1.0)] * rank
    if transformation == "tf_crop_and_resize" and (region := _given(node, 1, "roi")) is not None:
        axes = [compose.axis_of(node, a, rank) for a in node.attr("axes", range(rank))]
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
        return _resized_nearest(node, x, lines, factor, outside)
    if x.quant is not None:
        # A quantised image is resized in floats and requantised to its scale.
        image = Tensor(f"{node.outputs[0]}@dequantized", x.shape, "float32")
        node.add("dequantize", [x.name], image, {})
        resized = node.before("resized")
        resized.inputs = [image.name, *node.inputs[1:]]
        read_resize(resized)
        y = node.builder.tensors[resized.outputs[0]]
        return node.add("quantize", [y.name], Tensor(node.outputs[0], y.shape, x.dtype, x.quant), {})
    weights = {"linear": _linear_weight, "cubic": _cubic_weight(node.attr("cubic_coeff_a", -0.75))}.get(mode)
    if weights is None:
        raise node.error(f"mode {mode}", "nearest, linear and cubic are supported")
    passes = []
    for axis, line in enumerate(lines):
        if line is not None:
            widened = min(factor[axis], 1.0) if node.attr("antialias", 0) else 1.0
            n, inside = x.shape[axis], bool(node.attr("exclude_outside", 0))
            near = mode == "linear" and not node.attr("antialias", 0)
            index, weight = two_neighbours(n, line) if near else resize_tables(n, line, widened, weights, inside)
            passes.append((axis, index, weight, _offsets(line, n, outside, index)))
    compose.blended(node, passes)


def _offsets(line: list[float], n: int, outside: float | None, index: list[list[int]]) -> list[float]:
    """Offsets of a blend: `outside` for positions outside the image, whose neighbours are removed from `index`."""
    offsets = [0.0] * len(line)
    for i, at in enumerate(line):
        if outside is not None and not 0 <= at <= n - 1:
            offsets[i], index[i] = outside, [indexing.OUTSIDE] * len(index[i])
    return offsets


def _resized_nearest(
    node: Any, x: Tensor, lines: list[list[float] | None], factor: list[float], outside: float | None
) -> None:
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
        index.append([indexing.OUTSIDE if out else at for out, at in zip(beyond, chosen, strict=True)])
    moved = compose.moving(index, x)
    if any(t is not None for t in moved):
        node.emit("take", node.inputs[:1], index=moved, value=outside)
    else:
        node.emit("reshape", node.inputs[:1], shape=x.shape)


def read_one_hot(node: Any) -> None:
    """Read OneHot: `on` where the position along the new axis equals the index, else `off`.

    Indices may count from the end. Float indices are truncated, as in onnxruntime.
    """
    if node.tensor(0).dtype == "float32":
        node.inputs[0] = node.inner("cast", node.inputs[:1], to="int32")
    x, rank = node.tensor(0), len(node.tensor(0).shape) + 1
    axis = compose.axis_of(node, node.attr("axis", -1), rank)
    depth = node.numbers(1, "depth")[0]
    if depth < 1:
        raise node.error(f"depth {depth}", "at least 1")
    off, on = np.ravel(node.real(node.constant(2, "values")))
    index = node.reshaped(node.inputs[0], (*x.shape[:axis], 1, *x.shape[axis:]))
    index = compose.from_end(node, index, *(node.array(np.array(n, x.dtype)) for n in (depth, 0)))
    here = compose.is_place(node, index, axis, depth)
    compose.emit_where(node, here, node.array(np.array(on)), node.array(np.array(off)), str(on.dtype))


def read_hard_max(node: Any) -> None:
    """Read Hardmax: 1 at the first largest element along the axis, else 0."""
    x = node.tensor(0)
    axis = compose.axis_of(node, node.attr("axis", -1), len(x.shape))
    best = node.inner("arg", node.inputs[:1], axis=axis, largest=True, last=False, to="int32")
    best = node.reshaped(best, compose.kept_shape(x, (axis,), True))
    node.emit("cast", [compose.is_place(node, best, axis, x.shape[axis])], to=x.dtype)


def read_trilu(node: Any) -> None:
    """Read Trilu: keep elements on one side of a diagonal, set the others to 0."""
    x, (k,) = node.tensor(0), node.numbers(1, "k", [0])
    rows, columns = x.shape[-2:]
    right = np.arange(columns) - np.arange(rows)[:, None] - k  # distance to the right of the diagonal
    mask = right >= 0 if node.attr("upper", 1) else right <= 0
    compose.emit_where(node, node.array(mask), node.inputs[0], node.array(np.zeros((), x.dtype)), x.dtype)


def read_compress(node: Any) -> None:
    """Read Compress: elements, or slices along an axis, where the constant condition is true."""
    kept, axis = node.constant(1, "condition (the result's size)").data, node.attr("axis", None)
    whole = node.inputs[0] if axis is not None else node.reshaped(node.inputs[0], (node.tensor(0).elements,))
    shape = node.builder.tensors[whole].shape
    axis, index = compose.axis_of(node, axis or 0, len(shape)), np.flatnonzero(kept)
    compose.values_along(node, axis, index, (*shape[:axis], len(index), *shape[axis + 1 :]), whole)


def read_reverse_sequence(node: Any) -> None:
    """Read ReverseSequence: reverse the first elements along the time axis, as many as each sequence has."""
    time, batch = node.attr("time_axis", 0), node.attr("batch_axis", 1)
    if sorted((time, batch)) != [0, 1]:
        raise node.error(f"axes {time} and {batch}", "time and batch are the axes 0 and 1")
    compose.reversed_sequences(node, time, batch)


OPERATORS: Mapping[str, Mapping[str, Reader]] = {
    "take": {
        "Slice": read_slice,
        "Split": read_split,
        "Expand": compose.read_expand,
        "Tile": compose.read_tile,
        "DepthToSpace": read_depth_to_space,
        "SpaceToDepth": read_space_to_depth,
    },
    "": {
        "Compress": read_compress,
        "Hardmax": read_hard_max,
        "OneHot": read_one_hot,
        "ReverseSequence": read_reverse_sequence,
        "Trilu": read_trilu,
    },
    "add": {"Add": lambda node: compose.arithmetic(node, "add", compose.OPEN)},
    "arg": {"ArgMax": partial(layers.read_arg, largest=True), "ArgMin": partial(layers.read_arg, largest=False)},
    "avg_pool2d": {"AveragePool": partial(layers.read_pool, kind="avg_pool2d"), "GlobalAveragePool": global_average},
    "blend": {"Resize": read_resize, "LRN": layers.read_local_response},
    "cast": {
        "Cast": lambda node: node.emit("cast", node.inputs, to=node.dtype_of(node.attr("to", 1))),
        "CastLike": layers.read_cast_like,
    },
    "clamp": {"Relu": compose.emits("clamp", clamp=(0.0, None)), "Clip": layers.read_clip},
    "concat": {"Concat": read_concat},
    "conv2d": {"Conv": layers.read_conv2d},
    "dense": {"Einsum": layers.read_einsum, "Gemm": layers.read_gemm, "MatMul": compose.matrix_product},
    "gather": {"Gather": lambda node: compose.gathered(node, node.attr("axis", 0), 0)},
    "gather_nd": {"GatherND": compose.gathered_nd},
    "grid_sample": {"GridSample": layers.read_grid_sample, "AffineGrid": layers.read_affine_grid},
    "integer_sums": {
        "ConvInteger": layers.read_conv_integer,
        "DynamicQuantizeLinear": layers.read_dynamic_quantize,
        "MatMulInteger": layers.read_matmul_integer,
    },
    "max_pool2d": {"MaxPool": partial(layers.read_pool, kind="max_pool2d")},
    "mean": {"ReduceMean": partial(layers.read_reduction, kind="mean")},
    "mul": {"Mul": lambda node: compose.arithmetic(node, "mul", compose.OPEN)},
    "pad": {"Pad": read_pad},
    "pointwise": {
        **{name: partial(layers.read_function, function=function) for name, function in layers.FUNCTIONS_OF.items()},
        "BitShift": lambda node: node.emit_function(f"shift_{node.attr('direction', 'LEFT').lower()}"),
        "Gelu": lambda node: node.emit_function("gelu_tanh" if node.attr("approximate", "none") == "tanh" else "gelu"),
        "IsInf": layers.read_is_inf,
        "Mod": layers.read_mod,
        "Pow": layers.read_pow,
        "Min": partial(layers.read_chain, function="minimum"),
        "Max": partial(layers.read_chain, function="maximum"),
        "Sum": partial(layers.read_chain, function="sum"),
        "Mean": layers.read_mean,
    },
    "reduce_max": {
        "ReduceMax": partial(layers.read_reduction, kind="reduce_max"),
        "GlobalMaxPool": layers.read_global_maximum,
    },
    "reduce_min": {"ReduceMin": partial(layers.read_reduction, kind="reduce_min")},
    "reduce_prod": {"ReduceProd": partial(layers.read_reduction, kind="reduce_prod")},
    "reduce_sum": {
        "ReduceSum": partial(layers.read_reduction, kind="reduce_sum"),
        "ReduceSumSquare": partial(layers.read_reduction, kind="reduce_sum", before="square"),
        "ReduceL1": partial(layers.read_reduction, kind="reduce_sum", before="abs"),
        "ReduceL2": partial(layers.read_reduction, kind="reduce_sum", before="square", after="sqrt"),
        "ReduceLogSum": partial(layers.read_reduction, kind="reduce_sum", after="log"),
        "ReduceLogSumExp": layers.read_log_sum_exp,
        "LpNormalization": layers.read_lp_normalization,
        "InstanceNormalization": layers.read_instance_normalization,
        "LayerNormalization": layers.read_layer_normalization,
        "GroupNormalization": lambda node: compose.group_normalised(
            node, node.attr("num_groups", 0), node.inputs[1:3], node.attr("epsilon", 1e-5)
        ),
        "MeanVarianceNormalization": layers.read_mean_variance_normalization,
    },
    "reshape": {
        "Reshape": read_reshape,
        "Flatten": read_flatten,
        "Squeeze": read_squeeze,
        "Unsqueeze": read_unsqueeze,
        "Identity": compose.identity,
        "Dropout": read_dropout,
    },
    "running_sum": {"CumSum": layers.read_cumsum, "CumProd": lambda node: layers.read_cumsum(node, product=True)},
    "scatter": {
        "GatherElements": read_gather_elements,
        "ScatterElements": read_scatter_elements,
        "ScatterND": read_scatter_nd,
    },
    "softmax": {"Softmax": layers.read_softmax},
    "topk": {"TopK": layers.read_topk},
    "transpose": {
        "Transpose": lambda node: node.emit(
            "transpose", node.inputs[:1], perm=tuple(node.attr("perm", range(len(node.tensor(0).shape))[::-1]))
        )
    },
    "transpose_conv2d": {"ConvTranspose": layers.read_conv_transpose},
}

READERS: dict[str, Reader] = {name: reader for names in OPERATORS.values() for name, reader in names.items()}
