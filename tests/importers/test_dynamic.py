"""Files of `onnxruntime.quantization.quantize_dynamic`, and their fused forms, against onnxruntime."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.exporters.writer import Net


def net() -> Net:
    return Net("t{number}", 17)


def dense(weights: QuantType, per_channel: bool) -> onnx.ModelProto:
    """Gemm and MatMul; two layers share what was quantised."""
    n = net()
    x = n.op("Relu", n.linear(n.input("x", (1, 10)), 16, 10))
    one, other = n.projected(x, 16, 6), n.projected(x, 16, 5)
    rows = n.projected(n.op("Reshape", one, n.longs(1, 2, 3)), 3, 4)
    return dynamic(n.done(n.op("Softmax", rows, axis=-1), other), weights, per_channel)


def convolutions(weights: QuantType, per_channel: bool) -> onnx.ModelProto:
    """A padded image, groups, steps, and a window over a sequence."""
    n = net()
    x = n.op("Relu", n.conv(n.input("x", (1, 3, 9, 7)), 8, 3, (3, 3), pads=[1, 1, 1, 1], strides=[2, 1]))
    x = n.op("Add", n.conv(x, 8, 1, (3, 3), pads=[1, 1, 1, 1], group=8), x)
    x = n.conv(x, 6, 4, (2, 1), group=2)
    line = n.op("Reshape", x, n.longs(1, 6, -1))
    y = n.conv(line, 4, 6, (3,), dilations=[2], pads=[2, 2])
    return dynamic(n.done(y), weights, per_channel)


def cells(weights: QuantType, per_channel: bool) -> onnx.ModelProto:
    """LSTM both ways, and a second one over it."""
    n = net()
    x = n.input("x", (3, 1, 5))
    for inner in (5, 8):
        w, r, b = n.weight(2, 16, inner, fan=inner), n.weight(2, 16, 4, fan=8), n.weight(2, 32, fan=40)
        y = n.ops("LSTM", x, w, r, b, count=3, hidden_size=4, direction="bidirectional")[0]
        x = n.op("Reshape", n.op("Transpose", y, perm=[0, 2, 1, 3]), n.longs(3, 1, 8))
    return dynamic(n.done(n.projected(x, 8, 3)), weights, per_channel)


def dynamic(model: onnx.ModelProto, weights: QuantType, per_channel: bool) -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        given, quantised = Path(folder, "given.onnx"), Path(folder, "made.onnx")
        onnx.save(model, given)
        quantize_dynamic(given, quantised, weight_type=weights, per_channel=per_channel)
        return onnx.load(quantised)


def fused(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model as onnxruntime stores it after its own optimisation."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = str(Path(folder, "fused.onnx"))
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


NETWORKS: dict[str, Callable[[QuantType, bool], onnx.ModelProto]] = {
    "dense": dense,
    "convolutions": convolutions,
    "cells": cells,
}


def agrees(model: onnx.ModelProto, folder: Path) -> None:
    onnx.save(model, folder / "model.onnx")
    artifacts = compile_model(model_request(folder / "model.onnx", "model", "host", {}))
    result = verify(folder / "model.onnx", load_target("host"), artifacts)
    assert result["equal"], result


@pytest.mark.one_in(6)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("weights", [QuantType.QInt8, QuantType.QUInt8])
@pytest.mark.parametrize("name", NETWORKS)
def test_equal_to_onnxruntime(name: str, weights: QuantType, tmp_path: Path) -> None:
    model = NETWORKS[name](weights, weights == QuantType.QInt8)
    assert {"DynamicQuantizeLinear", "DynamicQuantizeLSTM"} & {node.op_type for node in model.graph.node}
    agrees(model, tmp_path)


@pytest.mark.needs("gcc")
def test_fused_products(tmp_path: Path) -> None:
    model = fused(dense(QuantType.QInt8, False))
    kinds = {node.op_type for node in model.graph.node}
    assert kinds & {"MatMulIntegerToFloat", "DynamicQuantizeMatMul"}, kinds
    agrees(model, tmp_path)


def test_bytes_of_the_application(tmp_path: Path) -> None:
    """An input of bytes with a zero point that is an input, too: exactly the sums."""
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 3, 8])
    zero = helper.make_tensor_value_info("zero", TensorProto.UINT8, [])
    y = helper.make_tensor_value_info("y", TensorProto.INT32, [2, 3, 5])
    n = net()
    w = n.stored(n.rng.integers(-128, 128, (8, 5)), np.int8)
    node = helper.make_node("MatMulInteger", ["x", w, "zero"], ["y"])
    graph = helper.make_graph([node], "sums", [x, zero], [y], n.constants)
    agrees(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path)
