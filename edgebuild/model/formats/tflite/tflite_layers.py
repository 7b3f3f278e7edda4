"""Readers of TFLite operators that compute or move values.

Sums of products, windows, normalisation, elements, reductions; views, slices, joins, gathers, resizes, blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import floor, inf, prod
from typing import Any

import numpy as np

from ...ir import Array, Tensor, real_values
from ...ops import base, contractions, indexing
from ...ops.base import is_float, scale_of, zero_of
from ...ops.pointwise import attributes
from .. import compose

TFLITE_CLAMPS = {0: (None, None), 1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}


def fused_clamp(node: Any, code: int) -> tuple[float | None, float | None]:
    """The float bounds of a fused activation function of the TFLite schema. Raises EdgebuildError for others."""
    if code not in TFLITE_CLAMPS:
        raise node.error(f"fused activation {code} is not supported", "use NONE, RELU, RELU_N1_TO_1 or RELU6")
    return TFLITE_CLAMPS[code]


def window_of(node: Any, options_type: str, window: Sequence[int], dilated: bool = False) -> dict[str, Any]:
    """Stride, padding, activation and, if `dilated`, dilation of a windowed TFLite node as attributes."""
    options, size = node.options(options_type), node.tensor(0).shape[1:3]
    stride = (options.StrideH(), options.StrideW())
    dilation = (options.DilationHFactor(), options.DilationWFactor()) if dilated else (1, 1)
    if min(*stride, *dilation, *window) < 1:
        raise node.error(f"stride {stride}, dilation {dilation}, window {tuple(window)}", "all must be at least 1")
    same = options.Padding() == 0
    pad = compose.same_pad(size, window, stride, dilation) if same else (0, 0, 0, 0)
    clamp = fused_clamp(node, options.FusedActivationFunction())
    return {**({"dilation": dilation} if dilated else {}), "stride": stride, "pad": pad, "clamp": clamp}


def operands_of(node: Any, x: int, bias: int, symmetric: bool = True) -> list[str]:
    """Names of input, weights and bias. int16 sums without a bias get an int64 one, because TFLM sums in 64 bits.

    `symmetric`: int8 weights must have zero point 0, because TFLM's kernels ignore it. Legacy uint8 may have one.
    """
    weights = node.tensor(1)
    zeros_of_w = weights.quant.zero_point if weights.quant is not None else ()
    if symmetric and weights.dtype == "int8" and any(zeros_of_w) and weights.name not in node.legacy:
        zero = next(z for z in zeros_of_w if z)
        raise node.error(f"zero point {zero} of the weights", "supported: int8 weights have zero point 0")
    own = _of_unsigned(node, node.tensor(x), weights) if weights.name in node.legacy else node.inputs[1]
    operands = [node.inputs[x], own, *(n for n in node.inputs[bias : bias + 1] if n)]
    if len(operands) < 3 and node.tensor(x).dtype == "int16":
        operands.append(node.store(f"{node.outputs[0]}@bias", np.zeros(node.written[0].shape[-1], np.int64)))
    return operands


def _of_unsigned(node: Any, x: Tensor, weights: Tensor) -> str:
    """Weights with the effective scale of TFLite's uint8 kernels, which compute scale(x) * scale(w) in float32."""
    if x.quant is None or weights.quant is None or not weights.quant.per_tensor:
        return weights.name
    product = float(np.float32(scale_of(x)) * np.float32(scale_of(weights)))
    own = replace(
        weights, name=f"{node.outputs[0]}@weights", quant=replace(weights.quant, scale=(product / scale_of(x),))
    )
    node.builder.tensors[own.name] = own
    return own.name


def read_batch_matmul(node: Any) -> None:
    x, y = node.fields("BatchMatMulOptions", "AdjX", "AdjY")
    turn = tuple(range(len(node.tensor(0).shape) - 2))
    first = node.turned(node.inputs[0], (*turn, len(turn) + 1, len(turn))) if x else node.inputs[0]
    compose.matmul(node, first, node.inputs[1], bool(y), compose.OPEN)


def read_fully_connected(node: Any) -> None:
    """Read FULLY_CONNECTED. An input of any shape is reshaped to rows of the weights' input size."""
    options = node.options("FullyConnectedOptions")
    if options.WeightsFormat() != 0:
        raise node.error(f"weights format {options.WeightsFormat()}", "only the default format is supported")
    x, w = node.tensor(0), node.tensor(1)
    if not w.constant and len(node.inputs) < 3 and options.FusedActivationFunction() == 0:
        flat = node.reshaped(node.inputs[0], (x.elements // w.shape[-1], w.shape[-1]))
        compose.matmul(node, flat, node.inputs[1], True, compose.OPEN)
        return
    if len(w.shape) != 2 or x.elements % w.shape[1]:
        raise node.error(f"weights {w.shape} for an input of shape {x.shape}", "columns must divide the input's size")
    rows = x.elements // w.shape[1]
    flat = node.inputs[0] if len(x.shape) == 2 else node.reshaped(node.inputs[0], (rows, w.shape[1]))
    clamp = fused_clamp(node, options.FusedActivationFunction())
    front = x.shape[:-1] if options.KeepNumDims() else (rows,)
    written = node.written[0].shape  # may be a vector
    shape = written if written == (rows * w.shape[0],) else (*front, w.shape[0])
    node.emit_as("dense", [flat, *operands_of(node, 0, 2, symmetric=False)[1:]], shape, clamp=clamp)


def read_convolution(node: Any, kind: str, options_type: str) -> None:
    attrs = window_of(node, options_type, node.tensor(1).shape[1:3], dilated=True)
    if kind == "conv2d":
        attrs["groups"] = node.tensor(0).shape[-1] // max(1, node.tensor(1).shape[-1])
    node.emit(kind, operands_of(node, 0, 2), **attrs)


def read_transpose_conv(node: Any) -> None:
    """Read TRANSPOSE_CONV. Operand 0 repeats the output's shape; SAME padding is that of the reversed convolution."""
    options = node.options("TransposeConvOptions")
    x, w, size = node.tensor(2), node.tensor(1), node.written[0].shape[1:3]
    stride = (options.StrideH(), options.StrideW())
    if min(stride) < 1:
        raise node.error(f"stride {stride}", "strides must be at least 1")
    same = options.Padding() == 0
    pad = compose.same_pad(size, w.shape[1:3], stride, (1, 1))[:2] if same else (0, 0)
    clamp = fused_clamp(node, options.FusedActivationFunction())
    operands = operands_of(node, 2, 3)
    attrs = {"stride": stride, "dilation": (1, 1), "pad": pad, "size": size, "groups": x.shape[3] // w.shape[3]}
    node.emit("transpose_conv2d", operands, clamp=clamp, **attrs)


def read_mediapipe_transpose_conv(node: Any) -> None:
    """Read MediaPipe's Convolution2DTransposeBias (mediapipe/util/tflite/operations/transpose_conv_bias.cc, 0.10).

    Its options are a struct of C: padding (1: SAME, 2: VALID), stride of columns, stride of rows. SAME cuts off more
    than TensorFlow's: also the part of a window beyond the last whole stride.
    """
    if len(node.custom_options()) < contractions.OPTIONS.size:
        raise node.error(f"options of {len(node.custom_options())} bytes", "the file is damaged; export it again")
    padding, across, down = contractions.OPTIONS.unpack_from(node.custom_options())
    x, w, stride = node.tensor(0), node.constant(1, "weights"), (down, across)
    if (
        padding not in (contractions.SAME, contractions.VALID)
        or min(stride) < 1
        or (len(x.shape), len(w.shape)) != (4, 4)
    ):
        raise node.error(f"padding {padding}, stride {stride}, input {x.shape}, weights {w.shape}")
    sides = list(zip(x.shape[1:3], w.shape[1:3], stride, strict=True))
    less = [max(0, k - (n - 1) % s - 1) if padding == contractions.SAME else 0 for n, k, s in sides]
    size = tuple(s * (n - 1) + k - p for (n, k, s), p in zip(sides, less, strict=True))
    attrs = {"stride": stride, "dilation": (1, 1), "pad": (less[0] // 2, less[1] // 2), "size": size, "groups": 1}
    node.emit("transpose_conv2d", node.inputs[:3], clamp=(None, None), **attrs)


def pool_attributes(node: Any) -> dict[str, Any]:
    window = tuple(node.fields("Pool2DOptions", "FilterHeight", "FilterWidth"))
    return {"window": window, **window_of(node, "Pool2DOptions", window)}


def average_attributes(node: Any) -> dict[str, Any]:
    """Attributes of an average pool. TFLite rounds halves up for uint8 and away from zero for signed types."""
    return pool_attributes(node) | ({"halves_up": True} if node.outputs[0] in node.legacy else {})


def read_l2_pool(node: Any) -> None:
    """Read L2_POOL_2D: the root of the average of squares. Only the root is clamped to finite numbers."""
    attrs, squares = pool_attributes(node), node.apply("square", *node.inputs)
    average = node.inner("avg_pool2d", [squares], **{**attrs, "clamp": compose.OPEN, "finite": False})
    node.emit("pointwise", [average], **{**attributes("sqrt"), "clamp": attrs["clamp"], "finite": True})


def read_softmax(node: Any) -> None:
    beta = float(node.options("SoftmaxOptions").Beta())
    if not 0 < beta < inf:
        raise node.error(f"beta {beta}", "it must be positive")
    node.emit("softmax", node.inputs, beta=beta)


def read_local_response(node: Any) -> None:
    """Read LOCAL_RESPONSE_NORMALIZATION. TFLite leaves out channel c + radius (reference_ops.h, same name)."""
    options, x = node.options("LocalResponseNormalizationOptions"), node.tensor(0)
    if not is_float(x):
        raise node.error(f"'{x.name}' is {x.dtype}", "supported: float32")
    radius = options.Radius()
    if radius < 0:
        raise node.error(f"radius {radius}", "it must be at least 0")
    compose.local_response(node, len(x.shape) - 1, radius, radius - 1, options.Bias(), options.Alpha(), options.Beta())


MIN_DIVISOR = 1e-6  # least divisor of L2_NORMALIZATION of floats in TFLM


def read_l2_normalization(node: Any) -> None:
    if node.options("L2NormOptions").FusedActivationFunction():
        raise node.error("an activation function is fused", "supported: none")
    if is_float(node.tensor(0)):
        return compose.over_norm(node, (len(node.tensor(0).shape) - 1,), "square", "sqrt", MIN_DIVISOR)
    node.emit("unit_rows", node.inputs[:1], **({"scaled_first": True} if node.inputs[0] in node.legacy else {}))


# Readers of TFLite operators that compute element by element, or reduce dimensions.


def activation_of(node: Any, options_type: str) -> tuple[float | None, float | None]:
    return fused_clamp(node, node.options(options_type).FusedActivationFunction())


def read_add_n(node: Any) -> None:
    """Read ADD_N. Converters do not quantise it."""
    x = node.tensor(0)
    if x.quant is not None:
        raise node.error(f"a sum of {len(node.inputs)} operands of {x.dtype}", "supported: float32; write it as ADD")
    kind, attrs = ("add", {"finite": False}) if is_float(x) else ("pointwise", {"function": "sum"})
    node.chained(node.inputs, kind, True, clamp=(None, None), **attrs)


# Elementwise functions named like their operator, and those with another name.
OF_ONE_NAME = (
    "abs neg sign floor ceil round square sqrt rsqrt exp log sin cos tanh hard_swish elu minimum maximum prelu "
    "squared_difference floor_div equal not_equal greater greater_equal less less_equal"
)
FUNCTIONS_OF = {name.upper(): name for name in OF_ONE_NAME.split()} | {
    "LOGISTIC": "sigmoid", "POW": "power", "FLOOR_MOD": "mod", "SELECT_V2": "where", "SELECT": "where",
    "LOGICAL_NOT": "not", "LOGICAL_AND": "and", "LOGICAL_OR": "or",
}  # fmt: skip


def read_clamped(node: Any, function: str, options_type: str) -> None:
    finite = {"finite": True} if is_float(node.tensor(0)) else {}
    clamp = activation_of(node, options_type)
    node.emit("pointwise", node.inputs, **{**attributes(function), "clamp": clamp, **finite})


def read_dequantize(node: Any) -> None:
    """Read DEQUANTIZE. A constant stays quantised (float16 is float32 already), because later ops know its scale."""
    x = node.tensor(0)
    if x.constant and (x.quant is not None or x.dtype == "float32"):
        node.builder.tensors[node.outputs[0]] = replace(x, name=node.outputs[0])
        return
    node.emit("dequantize", node.inputs)


def read_relu6(node: Any) -> None:
    """Read RELU6. TFLM clamps the integers by the operand's scale, even if the result declares another one."""
    as_stored = node.tensor(0).dtype in ("int8", "int16") and node.tensor(0).quant != node.written[0].quant
    node.emit("clamp", node.inputs, clamp=(0.0, 6.0), **({"as_stored": True} if as_stored else {}))


def read_reduction(node: Any, kind: str) -> None:
    x = node.tensor(0)
    axes = compose.axes_of(node, node.constant(1, "axis").data, len(x.shape))
    keep = bool(node.options("ReducerOptions").KeepDims())
    node.emit_as(kind, node.inputs[:1], compose.kept_shape(x, axes, keep), axes=axes)


def read_arg(node: Any, largest: bool) -> None:
    axis = compose.axis_of(node, node.numbers(1, "axis")[0], len(node.tensor(0).shape))
    node.emit("arg", node.inputs[:1], axis=axis, largest=largest, last=False, to=node.written[0].dtype)


def read_topk(node: Any) -> None:
    x, k = node.tensor(0), node.numbers(1, "k")[0]
    if not x.shape or not 1 <= k <= x.shape[-1]:
        raise node.error(f"k {k} of a tensor of shape {x.shape}", "k must be from 1 to the size of the last dimension")
    for output, indices in enumerate((False, True)):
        to = node.written[output].dtype
        attrs = {"axis": len(x.shape) - 1, "k": k, "largest": True, "indices": indices, "to": to}
        node.emit("topk", node.inputs[:1], output=output, **attrs)


MAX_PADDING = 1 << 15  # elements at an end of a dimension of SPACE_TO_BATCH_ND


def read_slice(node: Any) -> None:
    x = node.tensor(0)
    begin, size = node.numbers(1, "begin"), node.numbers(2, "size")
    if min((*begin, *(s + 1 for s in size)), default=0) < 0:
        raise node.error(f"begins {begin}, sizes {size}", "a begin is at least 0, a size too, or -1 for the rest")
    index = [range(b, n if s < 0 else b + s) for b, s, n in zip(begin, size, x.shape, strict=True)]
    compose.values_at(node, node.inputs[0], index)


def read_strided_slice(node: Any) -> None:
    """Read STRIDED_SLICE. Bits of its masks mark begins and ends to ignore, and dimensions to drop, add or skip."""
    options, x = node.options("StridedSliceOptions"), node.tensor(0)
    begin, end, strides = (node.numbers(i, what) for i, what in enumerate(("begin", "end", "strides"), start=1))
    if options.EllipsisMask() or options.NewAxisMask():
        raise node.error("ellipsis or new axes", "export with explicit slices")
    index = compose.whole_index(x)
    for d, (b, e, step) in enumerate(zip(begin, end, strides, strict=True)):
        if step == 0:
            raise node.error("stride 0")
        if options.ShrinkAxisMask() >> d & 1:
            index[d] = [compose.axis_of(node, b, x.shape[d])]
            continue
        first = None if options.BeginMask() >> d & 1 else b
        past = None if options.EndMask() >> d & 1 else b + e if options.Offset() else e
        index[d] = range(x.shape[d])[first:past:step]
    compose.values_at(node, node.inputs[0], index, node.written[0].shape)


def read_split(node: Any) -> None:
    x, (axis,), count = node.tensor(1), node.numbers(0, "axis"), len(node.outputs)
    axis = compose.axis_of(node, axis, len(x.shape))
    compose.parts_along(node, node.inputs[1], axis, [x.shape[axis] // count] * count)


def read_split_v(node: Any) -> None:
    x, sizes, (axis,) = node.tensor(0), node.numbers(1, "sizes"), node.numbers(2, "axis")
    axis = compose.axis_of(node, axis, len(x.shape))
    rest = x.shape[axis] - sum(n for n in sizes if n >= 0)
    compose.parts_along(node, node.inputs[0], axis, [rest if n < 0 else n for n in sizes])


def read_unpack(node: Any) -> None:
    x = node.tensor(0)
    axis = compose.axis_of(node, node.options("UnpackOptions").Axis(), len(x.shape))
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    for output in range(len(node.outputs)):
        index = compose.whole_index(x)
        index[axis] = [output]
        compose.values_at(node, node.inputs[0], index, shape, output)


def read_pack(node: Any) -> None:
    """Read PACK: stack all operands along a new dimension."""
    options = node.options("PackOptions")
    if options.ValuesCount() != len(node.inputs):
        raise node.error(f"{len(node.inputs)} operands, but a count of {options.ValuesCount()}")
    compose.stacked(node, options.Axis())


def read_fill(node: Any) -> None:
    """Read FILL as a constant."""
    value = node.constant(1, "value")
    node.store(node.outputs[0], np.full(node.written[0].shape, np.ravel(value.data)[0], value.dtype), value.quant)


def read_zeros_like(node: Any) -> None:
    """Read ZEROS_LIKE. TFLM stores integer zeros, even if the zero point is another number."""
    node.store(node.outputs[0], np.zeros(node.tensor(0).shape, node.written[0].dtype), node.written[0].quant)


def read_depth_to_space(node: Any) -> None:
    (n, h, w, c), b = node.tensor(0).shape, node.options("DepthToSpaceOptions").BlockSize()
    compose.check_blocks(node, b * b, c)
    inner, shape = (n, h, w, b, b, c // b**2), (n, h * b, w * b, c // b**2)
    compose.rearranged(node, node.inputs[0], inner, (0, 1, 3, 2, 4, 5), shape)


def read_space_to_depth(node: Any) -> None:
    (n, h, w, c), b = node.tensor(0).shape, node.options("SpaceToDepthOptions").BlockSize()
    compose.check_blocks(node, b, h, w)
    inner, shape = (n, h // b, b, w // b, b, c), (n, h // b, w // b, c * b * b)
    compose.rearranged(node, node.inputs[0], inner, (0, 1, 3, 2, 4, 5), shape)


def read_mirror_pad(node: Any) -> None:
    pads = compose.pairs(np.reshape(node.constant(1, "paddings").data, (-1, 2)))
    compose.bordered(node, pads, "symmetric" if node.options("MirrorPadOptions").Mode() else "reflect")


def read_nearest(node: Any) -> None:
    """Read RESIZE_NEAREST_NEIGHBOR. Positions are computed in float32, as in TFLM."""
    options, (n, h, w, c) = node.options("ResizeNearestNeighborOptions"), node.tensor(0).shape
    out = node.numbers(1, "size")
    node.check_size((n, *out, c), node.tensor(0).dtype)
    index: list[compose.Index] = [range(n)]
    for size, wanted in zip((h, w), out, strict=True):
        corners = options.AlignCorners() and wanted > 1
        scale = np.float32((size - 1) / np.float32(wanted - 1) if corners else size / np.float32(wanted))
        at = (np.arange(wanted, dtype=np.float32) + np.float32(0.5 if options.HalfPixelCenters() else 0)) * scale
        places = [floor(abs(v) + 0.5) if options.AlignCorners() else floor(v) for v in at.astype(np.float64)]
        index.append([max(0, min(size - 1, p)) for p in places])
    compose.values_at(node, node.inputs[0], [*index, range(c)])


def read_batch_to_space(node: Any) -> None:
    """Read BATCH_TO_SPACE_ND: factors `block` of the batch move to the spatial dimensions, then crops are cut off."""
    x, block = node.tensor(0), node.numbers(1, "block")
    crops = np.reshape(node.constant(2, "crops").data, (-1, 2))
    n, spatial, rest = x.shape[0] // prod(block), x.shape[1 : 1 + len(block)], x.shape[1 + len(block) :]
    count = len(block)
    view = node.reshaped(node.inputs[0], (*block, n, *spatial, *rest))
    perm = [count, *(p for d in range(count) for p in (count + 1 + d, d))]
    perm += range(1 + 2 * count, 1 + 2 * count + len(rest))
    turned = node.inner("transpose", [view], perm=tuple(perm))
    whole = (n, *(s * b for s, b in zip(spatial, block, strict=True)), *rest)
    index: list[compose.Index] = [range(m) for m in whole]
    for d, (before, after) in enumerate(crops, start=1):
        index[d] = range(int(before), whole[d] - int(after))
    compose.values_at(node, node.reshaped(turned, whole), index)


def read_space_to_batch(node: Any) -> None:
    """Read SPACE_TO_BATCH_ND. TFLM pads with integer zeros, even if the zero point is another number. Files with a
    dynamic batch, which TFLM cannot run, are padded with the zero point as in TFLite."""
    x, block = node.tensor(0), node.numbers(1, "block")
    pads = np.reshape(node.constant(2, "paddings").data, (-1, 2))
    count, index = len(block), compose.whole_index(x)
    if pads.min(initial=0) < 0 or pads.max(initial=0) > MAX_PADDING:
        raise node.error(f"paddings {pads.tolist()}", f"from 0 to {MAX_PADDING} elements are supported")
    for d, (before, after) in enumerate(pads, start=1):
        index[d] = [-1] * int(before) + list(range(x.shape[d])) + [-1] * int(after)
    value = zero_of(x) if node.outputs[0] in node.unsized else 0
    padded = node.inner("take", [node.inputs[0]], index=compose.moving(index, x), value=value)
    shape = node.builder.tensors[padded].shape
    split = [m for n, b in zip(shape[1:], block, strict=False) for m in (n // b, b)]
    view = node.reshaped(padded, (shape[0], *split, *shape[1 + count :]))
    perm = [*(2 + 2 * d for d in range(count)), 0, *(1 + 2 * d for d in range(count))]
    perm += range(1 + 2 * count, 1 + 2 * count + len(shape) - 1 - count)
    turned = node.inner("transpose", [view], perm=tuple(perm))
    inside = [n // b for n, b in zip(shape[1:], block, strict=False)]
    node.emit("reshape", [turned], shape=(shape[0] * prod(block), *inside, *shape[1 + count :]))


def read_reshape(node: Any) -> None:
    """Read RESHAPE to the file's shape, or to the operand's if the file leaves the batch open."""
    shape = node.written[0].shape
    if len(node.inputs) > 1 and node.tensor(1).data is not None:
        shape = node.open_shape([int(n) for n in np.ravel(node.tensor(1).data)])
    node.emit("reshape", node.inputs[:1], shape=shape)


def read_ones(node: Any) -> None:
    """Read SQUEEZE and EXPAND_DIMS, which drop or add dimensions of 1. A dynamic batch keeps its size."""
    x, shape = node.tensor(0).shape, node.written[0].shape
    node.emit("reshape", node.inputs[:1], shape=node.open_shape((-1, *shape[1:])) if x and shape else shape)


def read_shape(node: Any) -> None:
    """Read SHAPE as a constant, because all shapes are static. A dynamic batch is 1 in the file."""
    shape = np.array(node.tensor(0).shape, node.written[0].dtype)
    node.builder.tensors[node.outputs[0]] = replace(node.written[0], data=shape)


def read_broadcast(node: Any) -> None:
    """Read BROADCAST_ARGS: the constant shape to which both shapes broadcast."""
    shapes = [tuple(np.ravel(node.constant(i, "shape").data)) for i in range(2)]
    together = np.array(np.broadcast_shapes(*shapes), node.written[0].dtype)
    node.builder.tensors[node.outputs[0]] = replace(node.written[0], data=together)


def read_densify(node: Any) -> None:
    """Read DENSIFY as the identity: the reader of tensors has made sparse constants dense."""
    x = node.constant(0, "tensor")
    node.builder.tensors[node.outputs[0]] = replace(x, name=node.outputs[0])


def read_concat(node: Any) -> None:
    """Read CONCATENATION. TFLite's uint8 kernel requantises operands to the result's scale; int8 and int16 do not."""
    if activation_of(node, "ConcatenationOptions") != (None, None):
        raise node.error("fused activation", "apply the activation to the operands")
    scale, parts = node.written[0].quant, list[str]()
    for i, name in enumerate(node.inputs):
        if (x := node.tensor(i)).elements:
            rescaled = name in node.legacy and x.quant != scale
            parts.append(node.inner("requantize", [name], scale) if rescaled else name)
    axis = node.options("ConcatenationOptions").Axis()
    node.emit("concat", parts, axis=compose.axis_of(node, axis, len(node.tensor(0).shape)))


def read_pad(node: Any) -> None:
    """Read PAD, PADV2. Without a value TFLM pads with the result's zero point, not the operand's; int16 with 0."""
    pads = np.asarray(node.constant(1, "paddings").data).reshape(-1, 2)
    if len(node.inputs) > 2:
        fill = node.constant(2, "value")
        compose.padded(node, compose.pairs(pads), np.ravel(fill.data)[0].item())
    else:
        x, quant = node.tensor(0), node.written[0].quant
        zero = 0 if quant is None or x.dtype == "int16" else quant.zero_point[0]
        compose.padded(node, compose.pairs(pads), None if zero == zero_of(x) else zero)


def read_embedding_lookup(node: Any) -> None:
    """Read EMBEDDING_LOOKUP: rows of operand 1. An int8 table with float results is dequantised."""
    table, index = node.tensor(1), node.inputs[0]
    real = table.data is not None and table.quant is not None and node.written[0].dtype == "float32"
    node.inputs = [node.array(real_values(table)) if real else node.inputs[1], index]
    compose.gathered(node, 0, 0)


def read_update_slice(node: Any) -> None:
    """Read DYNAMIC_UPDATE_SLICE: overwrite a part; its start is clamped so that the whole part is inside."""
    x, part, start = (node.tensor(i) for i in range(3))
    if len(part.shape) != len(x.shape) or any(n > m for n, m in zip(part.shape, x.shape, strict=True)):
        raise node.error(f"a part of shape {part.shape} in {x.shape}", "as many dimensions, and none of them larger")
    depth = max((d + 1 for d, n in enumerate(part.shape) if n < x.shape[d]), default=0)
    if start.elements != len(x.shape) or not depth:
        return node.emit("reshape", node.inputs[1:2], shape=x.shape)
    steps = np.array(base.steps(x.shape[:depth]), np.int32)
    rest = np.tensordot(steps, np.indices(part.shape[:depth]), 1).ravel()
    most = np.array([m - n for m, n in zip(x.shape, part.shape, strict=True)][:depth], np.int32)
    table = prod(x.shape[:depth]), prod(x.shape[depth:])
    if start.data is not None:
        places: Array | str = (np.clip(start.data[:depth], 0, most) * steps).sum() + rest
        return compose.scattered(node, places, table, 1, "none")
    name = node.inner("take", [node.inputs[2]], index=(tuple(range(depth)),))
    name = name if start.dtype == "int32" else node.inner("cast", [name], to="int32")
    for function, bound in (("maximum", np.zeros(depth, np.int32)), ("minimum", most), ("product", steps)):
        name = node.apply(function, name, node.array(bound))
    total = node.reshaped(node.inner("reduce_sum", [name], axes=(0,)), (1,))
    places = node.apply("sum", total, node.array(rest.astype(np.int32)))
    compose.scattered(node, places, table, 1, "none")


def read_bilinear(node: Any) -> None:
    """Read RESIZE_BILINEAR. Neighbours and float weights are TFLM's (kernels/internal/reference/resize_bilinear.h)."""
    options, x = node.options("ResizeBilinearOptions"), node.tensor(0)
    size, ends = node.numbers(1, "size"), (bool(options.AlignCorners()), bool(options.HalfPixelCenters()))
    tabled = indexing.real_table if is_float(x) or node.inputs[0] in node.legacy else indexing.table
    lines = [tabled(n, m, *ends) for n, m in zip(x.shape[1:3], size, strict=True)]
    if not is_float(x):
        return node.emit("bilinear", node.inputs[:1], rows=lines[0], columns=lines[1])
    passes = [
        (axis, [[before, after] for before, after, _ in line], [[1 - w, w] for _, _, w in line], [0.0] * len(line))
        for axis, line in enumerate(lines, start=1)
        if x.shape[axis] != len(line)
    ]
    compose.blended(node, passes)


def read_one_hot(node: Any) -> None:
    """Read ONE_HOT: `on` where the position along the new axis equals the index, else `off`. No negative indices."""
    x, rank, (_, _, on, off) = node.tensor(0), len(node.tensor(0).shape) + 1, node.inputs
    axis = compose.axis_of(node, node.options("OneHotOptions").Axis(), rank)
    depth = node.numbers(1, "depth")[0]
    if depth < 1:
        raise node.error(f"depth {depth}", "at least 1")
    for position, what in ((2, "on"), (3, "off")):
        value = node.tensor(position)
        if value.elements != 1 or value.dtype != node.written[0].dtype or value.quant != node.written[0].quant:
            raise node.error(f"{what} is {value.dtype} of shape {value.shape}", "one number like those of the result")
    index = node.reshaped(node.inputs[0], (*x.shape[:axis], 1, *x.shape[axis:]))
    compose.emit_where(node, compose.is_place(node, index, axis, depth), on, off, node.written[0].dtype)
