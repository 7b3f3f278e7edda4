"""Quantised images whose channels stand last, as onnxruntime's optimiser writes them, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify

RNG = np.random.default_rng(8)
STEPS = {"int8": np.int8(5), "uint8": np.uint8(131)}
Chain = list[tuple[str, list[str], dict[str, Any]]]  # operator of com.microsoft, operands behind the first, attributes
S, X = ["s", "z"], "steps"

CHAINS: dict[str, tuple[tuple[int, ...], Chain]] = {
    "convolution": ((1, 6, 5, 3), [
        ("QLinearConv", [*S, "w", "ws", "wz", *S, "b"], {"pads": [1, 0, 1, 1], "strides": [2, 1], "channels_last": 1}),
    ]),
    "convolution of lines": ((1, 9, 3), [("QLinearConv", [*S, "w1", "ws", "wz", *S], {"channels_last": 1})]),
    "convolution, channels first": ((1, 3, 6, 5), [("QLinearConv", [*S, "w", "ws", "wz", *S, "b"], {})]),
    "largest": ((1, 6, 5, 3), [("NhwcMaxPool", [], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 0, 1]})]),
    "mean": ((1, 6, 5, 3), [("QLinearAveragePool", [*S, *S], {"kernel_shape": [2, 3], "channels_last": 1})]),
    "mean of all": ((1, 6, 5, 3), [("QLinearGlobalAveragePool", [*S, *S], {"channels_last": 1})]),
    "all": ((1, 8, 8, 3), [
        ("QLinearConv", [*S, "w", "ws", "wz", *S, "b"], {"kernel_shape": [3, 3], "channels_last": 1}),
        ("NhwcMaxPool", [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("QLinearGlobalAveragePool", [*S, *S], {"channels_last": 1}),
    ]),
    "choice": ((2, 3, 4), [("QLinearWhere", [*S, "other", "ws", "z", *S], {})]),
}  # fmt: skip


def model(name: str, kind: str) -> onnx.ModelProto:
    """QuantizeLinear, the chain, DequantizeLinear."""
    shape, chain = CHAINS[name]
    constants = {
        "s": np.array(0.02, np.float32), "z": np.array(STEPS[kind]),
        "w": RNG.integers(-100, 100, (4, 3, 3, 3)).astype(np.int8), "ws": np.array(0.01, np.float32),
        "w1": RNG.integers(-100, 100, (4, 3, 3)).astype(np.int8), "wz": np.array(0, np.int8),
        "b": RNG.integers(-2000, 2000, 4).astype(np.int32), "which": np.array([[[True, False, True, False]]]),
        "other": RNG.integers(0, 100, (3, 4)).astype(kind),
    }  # fmt: skip
    nodes, at = [helper.make_node("QuantizeLinear", ["x", *S], [X])], X
    for number, (operator, operands, attributes) in enumerate(chain):
        before = ["which"] if operator == "QLinearWhere" else []
        inputs, at = [*before, at, *operands], f"made{number}"
        nodes.append(helper.make_node(operator, inputs, [at], domain="com.microsoft", **attributes))
    nodes.append(helper.make_node("DequantizeLinear", [at, *S], ["y"]))
    read = {name for node in nodes for name in node.input}
    stored = [numpy_helper.from_array(np.asarray(c), n) for n, c in constants.items() if n in read]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))
    graph = helper.make_graph(nodes, "one", [x], [y], stored)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("name", CHAINS)
def test_equals_onnxruntime(name: str, kind: str, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(model(name, kind), file)
    artifacts = compile_model(model_request(file, "model", "host", {}))
    assert verify(file, load_target("host"), artifacts)["equal"]
