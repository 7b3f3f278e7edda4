"""Readers of TFLite operators that compute: sums of products, windows, normalisation, elements, reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from ...ops import contractions
from ...ops.base import is_float
from ...ops.pointwise import attributes
from .. import compose

TFLITE_CLAMPS = {0: (None, None), 1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}


def fused_clamp(node: Any, code: int) -> tuple[float | None, float | None]:
    """The real bounds of a fused activation function of the TFLite schema."""
    if code not in TFLITE_CLAMPS:
        raise node.error(f"fused activation {code} is not supported", "use NONE, RELU, RELU_N1_TO_1 or RELU6")
    return TFLITE_CLAMPS[code]


def window_of(node: Any, options_type: str, window: Sequence[int], dilated: bool = False) -> dict[str, Any]:
    """Stride, padding, activation and perhaps dilation of a windowed TFLite node as attributes."""
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
    """Input, weights and bias; int16 sums without a bias get one of int64, for TFLM sums these in 64 bits.

    `symmetric`: int8 weights must have zero point 0, since TFLM's kernels leave it out. Legacy uint8 may have one.
    """
    weights = node.tensor(1)
    zeros_of_w = weights.quant.zero_point if weights.quant is not None else ()
    if symmetric and weights.dtype == "int8" and any(zeros_of_w) and weights.name not in node.legacy:
        zero = next(z for z in zeros_of_w if z)
        raise node.error(f"zero point {zero} of the weights", "supported: int8 weights have zero point 0")
    operands = [node.inputs[x], node.inputs[1], *(n for n in node.inputs[bias : bias + 1] if n)]
    if len(operands) < 3 and node.tensor(x).dtype == "int16":
        operands.append(node.store(f"{node.outputs[0]}@bias", np.zeros(node.written[0].shape[-1], np.int64)))
    return operands


def read_batch_matmul(node: Any) -> None:
    x, y = node.fields("BatchMatMulOptions", "AdjX", "AdjY")
    turn = tuple(range(len(node.tensor(0).shape) - 2))
    first = node.turned(node.inputs[0], (*turn, len(turn) + 1, len(turn))) if x else node.inputs[0]
    compose.matmul(node, first, node.inputs[1], bool(y), compose.OPEN)


def read_fully_connected(node: Any) -> None:
    """The input is seen as rows of the weights' input size, whatever its shape."""
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
    written = node.written[0].shape  # a vector may stay one
    shape = written if written == (rows * w.shape[0],) else (*front, w.shape[0])
    node.emit_as("dense", [flat, *operands_of(node, 0, 2, symmetric=False)[1:]], shape, clamp=clamp)


def read_convolution(node: Any, kind: str, options_type: str) -> None:
    attrs = window_of(node, options_type, node.tensor(1).shape[1:3], dilated=True)
    if kind == "conv2d":
        attrs["groups"] = node.tensor(0).shape[-1] // max(1, node.tensor(1).shape[-1])
    node.emit(kind, operands_of(node, 0, 2), **attrs)


def read_transpose_conv(node: Any) -> None:
    """The first operand repeats the output's shape; SAME padding is that of the convolution that this one reverses."""
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
    """Convolution2DTransposeBias of MediaPipe (mediapipe/util/tflite/operations/transpose_conv_bias.cc, 0.10).

    Its options are a struct of C: padding (1: SAME, 2: VALID), stride of columns, of rows. SAME leaves out more than
    TensorFlow's: what a window reaches beyond the last whole stride.
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


def read_l2_pool(node: Any) -> None:
    """L2_POOL_2D: the root of the average of squares, which alone is kept within the finite numbers."""
    attrs, squares = pool_attributes(node), node.apply("square", *node.inputs)
    average = node.inner("avg_pool2d", [squares], **{**attrs, "clamp": compose.OPEN, "finite": False})
    node.emit("pointwise", [average], **{**attributes("sqrt"), "clamp": attrs["clamp"], "finite": True})


def read_softmax(node: Any) -> None:
    beta = float(node.options("SoftmaxOptions").Beta())
    if not 0 < beta < inf:
        raise node.error(f"beta {beta}", "it must be positive")
    node.emit("softmax", node.inputs, beta=beta)


def read_local_response(node: Any) -> None:
    """TFLite's kernels leave channel c + radius out (reference_ops.h, LocalResponseNormalization)."""
    options, x = node.options("LocalResponseNormalizationOptions"), node.tensor(0)
    if not is_float(x):
        raise node.error(f"'{x.name}' is {x.dtype}", "supported: float32")
    radius = options.Radius()
    if radius < 0:
        raise node.error(f"radius {radius}", "it must be at least 0")
    compose.local_response(node, len(x.shape) - 1, radius, radius - 1, options.Bias(), options.Alpha(), options.Beta())


LEAST = 1e-6  # length of a row of real numbers by which it is divided, in TFLM


def read_l2_normalization(node: Any) -> None:
    if node.options("L2NormOptions").FusedActivationFunction():
        raise node.error("an activation function is fused", "supported: none")
    if is_float(node.tensor(0)):
        return compose.over_norm(node, (len(node.tensor(0).shape) - 1,), "square", "sqrt", LEAST)
    node.emit("unit_rows", node.inputs[:1])


# Readers of TFLite operators that compute element by element, or reduce dimensions.


def activation_of(node: Any, options_type: str) -> tuple[float | None, float | None]:
    return fused_clamp(node, node.options(options_type).FusedActivationFunction())


def read_add_n(node: Any) -> None:
    """ADD_N. Converters leave it in real numbers."""
    x = node.tensor(0)
    if x.quant is not None:
        raise node.error(f"a sum of {len(node.inputs)} operands of {x.dtype}", "supported: float32; write it as ADD")
    kind, attrs = ("add", {"finite": False}) if is_float(x) else ("pointwise", {"function": "sum"})
    node.chained(node.inputs, kind, True, clamp=(None, None), **attrs)


# Functions of elements that have the name of the operator, and those that have another.
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
    """A constant stays as it is stored, float16 as float32: the ops that read it know what it stands for."""
    x = node.tensor(0)
    if x.constant and (x.quant is not None or x.dtype == "float32"):
        node.builder.tensors[node.outputs[0]] = replace(x, name=node.outputs[0])
        return
    node.emit("dequantize", node.inputs)


def read_relu6(node: Any) -> None:
    """RELU6. TFLM clamps the stored numbers by the operand's scale, whatever scale the result declares."""
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
