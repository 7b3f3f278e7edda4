"""Bias correction: what quantising a layer adds to its results on average is taken off its bias.

Nagel et al., ICCV 2019, section 4.2, with measured means: layer after layer, each behind those that are corrected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from .float_models import Row, run

AXES = {"Conv": 1, "Gemm": 1}  # of a result's channels
LIMIT = 2**31 - 1
BACK = "_DequantizeLinear_Output"  # how onnxruntime's quantiser names a tensor that went through integers


@dataclass(frozen=True)
class Bias:
    """A layer's result in the float network and in the other one, and the constants that are its bias."""

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
            yield Bias(rounded.removesuffix(BACK), rounded, AXES[node.op_type], maker.input[0], maker.input[1])
