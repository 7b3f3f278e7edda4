"""Corrections of a float network before it is quantised, and of its biases after.

Cross-layer equalisation: scales of channels between two layers, so that their weights have like ranges.

Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019, equations 6 to 11.

Bias correction: what quantising a layer adds to its results on average is taken off its bias.

Nagel et al., ICCV 2019, section 4.2, with measured means: layer after layer, each behind those that are corrected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from .samples import Row, run

TURNS = 20  # over all pairs; a scale of one pair moves the ranges of the next
NEAR = 1e-3  # the largest change of a scale at which the turns end


@dataclass(frozen=True)
class Pair:
    """Names of the weights of two layers with nothing or a ReLU between them; `bias`: of the first one, or empty."""

    weights: str
    bias: str
    after: str
    depthwise: bool  # the second layer is


def equalised(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The network with equalised weights, which computes the same; None where no two layers follow each other."""
    pairs = list(_pairs(model.graph))
    if not pairs:
        return None
    values = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer if _is_real(t)}
    for _ in range(TURNS):
        if max([_equalise(pair, values) for pair in pairs]) < NEAR:
            break
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for tensor in copy.graph.initializer:
        if tensor.name in values:
            tensor.CopyFrom(numpy_helper.from_array(values[tensor.name].astype(np.float32), tensor.name))
    return copy


def _is_real(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_type == onnx.TensorProto.FLOAT)


def _equalise(pair: Pair, values: dict[str, NDArray[np.float64]]) -> float:
    """Scale the channels of one pair. Returns how far the scales are from 1."""
    first, second = values[pair.weights], values[pair.after]
    into = second.reshape(len(second), -1) if pair.depthwise else np.moveaxis(second, 1, 0).reshape(second.shape[1], -1)
    leaving, entering = np.abs(first).reshape(len(first), -1).max(1), np.abs(into).max(1)
    used = (leaving > 0) & (entering > 0)
    scale = np.where(used, np.sqrt(np.where(used, leaving, 1) / np.where(used, entering, 1)), 1.0)  # s of equation 11

    def along(array: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        return scale.reshape([-1 if i == axis else 1 for i in range(array.ndim)])

    values[pair.weights] = first / along(first, 0)
    if pair.bias:
        values[pair.bias] = values[pair.bias] / scale
    axis = 0 if pair.depthwise else 1
    values[pair.after] = second * along(second, axis)
    return float(np.abs(scale - 1).max())


def _pairs(graph: onnx.GraphProto) -> Iterator[Pair]:
    """Convolutions whose result, through nothing or a ReLU, only another convolution reads."""
    shapes = {t.name: tuple(t.dims) for t in graph.initializer if _is_real(t)}
    reads = Counter(name for node in graph.node for name in node.input)
    reads.update(value.name for value in graph.output)
    readers = {name: node for node in graph.node for name in node.input}
    for node in graph.node:
        if not _is_layer(node, shapes) or (len(node.input) > 2 and node.input[2] not in shapes):
            continue
        after, through = readers.get(node.output[0]), node.output[0]
        if after is not None and after.op_type == "Relu" and reads[through] == 1:
            through = after.output[0]
            after = readers.get(through)
        if after is None or reads[through] != 1 or after.input[0] != through or not _is_layer(after, shapes):
            continue
        groups = next((a.i for a in after.attribute if a.name == "group"), 1)
        names = (node.input[1], after.input[1], *node.input[2:3])
        depthwise = groups > 1
        channels = shapes[after.input[1]][0 if depthwise else 1]
        alone = all(reads[name] == 1 for name in names)
        if alone and channels == shapes[node.input[1]][0] and (not depthwise or groups == channels):
            yield Pair(node.input[1], node.input[2] if len(node.input) > 2 else "", after.input[1], depthwise)


def _is_layer(node: onnx.NodeProto, shapes: dict[str, tuple[int, ...]]) -> bool:
    return node.op_type == "Conv" and node.domain in ("", "ai.onnx") and node.input[1] in shapes


AXES = {"Conv": 1, "Gemm": 1}  # of a result's channels
ACTIVATIONS = ("Relu", "Clip")  # which are part of the layer before them
LIMIT = 2**31 - 1
BACK = "_DequantizeLinear_Output"  # how onnxruntime's quantiser names a tensor that went through integers


def clipped(graph: onnx.GraphProto) -> dict[str, str]:
    """The activation's result by the tensor that it alone reads, which onnxruntime gives the activation's range."""
    reads = Counter(name for node in graph.node for name in node.input)
    reads.update(value.name for value in graph.output)
    return {n.input[0]: n.output[0] for n in graph.node if n.op_type in ACTIVATIONS and reads[n.input[0]] == 1}


@dataclass(frozen=True)
class Bias:
    """A layer's result in the float network and in the other one, and the constants that are its bias.

    Where an activation of its own reads the result, it is that of the activation: see `clipped`.
    """

    right: str
    rounded: str
    axis: int
    numbers: str  # int32
    scale: str


def corrected(quantised: onnx.ModelProto, real: onnx.ModelProto, rows: Sequence[Row]) -> onnx.ModelProto | None:
    """A copy of the QDQ network with other biases; None if no layer has one. `real`: the network before."""
    biases = list(_biases(quantised.graph))
    if not biases:
        return None
    copy = onnx.ModelProto.FromString(quantised.SerializeToString())
    wanted = run(real, rows, [b.right for b in biases])
    constants = {t.name: t for t in copy.graph.initializer}
    for bias, right in zip(biases, wanted, strict=True):
        (value,) = run(copy, rows, [bias.rounded])
        axes = tuple(i for i in range(value.ndim) if i != bias.axis + 1)  # the first counts samples
        error = np.mean(value.astype(np.float64) - right, axis=axes)
        scale = numpy_helper.to_array(constants[bias.scale]).astype(np.float64)
        numbers = numpy_helper.to_array(constants[bias.numbers]).astype(np.float64) - error / scale
        moved = np.clip(np.rint(numbers), -LIMIT, LIMIT).astype(np.int32)
        constants[bias.numbers].CopyFrom(numpy_helper.from_array(moved, bias.numbers))
    return copy


def _biases(graph: onnx.GraphProto) -> Iterator[Bias]:
    makers = {name: node for node in graph.node for name in node.output}
    readers = {name: node for node in graph.node for name in node.input}
    constants = {t.name: t for t in graph.initializer}
    behind = clipped(graph)
    for node in graph.node:
        if node.op_type not in AXES or len(node.input) < 3:
            continue
        maker = makers.get(node.input[2])
        if maker is None or maker.op_type != "DequantizeLinear" or maker.input[0] not in constants:
            continue
        if constants[maker.input[0]].data_type == onnx.TensorProto.INT32 and maker.input[1] in constants:
            result = node.output[0]
            stored = readers.get(result)  # on its way through an int8 scale, which is its activation, too
            back = readers.get(stored.output[0]) if stored is not None and stored.op_type == "QuantizeLinear" else None
            rounded = back.output[0] if back is not None and back.op_type == "DequantizeLinear" else result
            rounded = behind.get(rounded, rounded)
            yield Bias(rounded.removesuffix(BACK), rounded, AXES[node.op_type], maker.input[0], maker.input[1])
