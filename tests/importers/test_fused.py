"""Operators that onnxruntime's optimiser makes of several, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats import read_model
from edgebuild.model.ir import Array
from tests.importers.test_onnx import onnxruntime_outputs

Case = tuple[str, tuple[int, ...], list[Any], dict[str, Any]]
OF_THE_STANDARD = (
    "SimplifiedLayerNormalization",
    "LayerNormalization",
    "GroupNormalization",
)  # as onnxruntime registers them
RNG = np.random.default_rng(4)


def numbers(*shape: int) -> Array:
    return RNG.normal(0, 0.5, shape).astype(np.float32)


CASES: dict[str, Case] = {
    "gelu": ("Gelu", (2, 5), [], {}),
    "gelu with a bias": ("BiasGelu", (2, 3, 5), [numbers(5)], {}),
    "gelu by tanh": ("FastGelu", (2, 5), [], {}),
    "gelu by tanh with a bias": ("FastGelu", (2, 5), [numbers(5)], {}),
    "gelu by sigmoid": ("QuickGelu", (2, 5), [], {}),
    "gelu by another sigmoid": ("QuickGelu", (2, 5), [], {"alpha": 0.7}),
    "product": ("FusedMatMul", (2, 3, 4), [numbers(4, 5)], {"alpha": 0.25}),
    "product, second turned": ("FusedMatMul", (2, 3, 4), [numbers(5, 4)], {"transB": 1}),
    "product, first turned": ("FusedMatMul", (2, 4, 3), [numbers(2, 4, 5)], {"transA": 1, "alpha": -2.0}),
    "product, both turned": ("FusedMatMul", (4, 3), [numbers(5, 4)], {"transA": 1, "transB": 1}),
    "norm": ("SkipLayerNormalization", (2, 3, 8), [numbers(2, 3, 8), numbers(8), numbers(8), numbers(8)], {}),
    "norm without offsets": ("SkipLayerNormalization", (1, 3, 8), [numbers(1, 3, 8), numbers(8)], {"epsilon": 1e-3}),
    "convolution": ("FusedConv", (1, 3, 6, 5), [numbers(4, 3, 3, 3), numbers(4)], {"activation": "Relu"}),
    "convolution and sum": (
        "FusedConv", (1, 3, 4, 4), [numbers(2, 3, 1, 1), numbers(2), numbers(1, 2, 4, 4)], {"activation": "Tanh"}
    ),
    "convolution, leaky": (
        "FusedConv", (1, 2, 5, 5), [numbers(3, 2, 2, 2)], {"activation": "LeakyRelu", "activation_params": [0.2]}
    ),
    "convolution, clipped": (
        "FusedConv", (1, 2, 5, 5), [numbers(3, 2, 2, 2)], {"activation": "Clip", "activation_params": [-0.2, 0.6]}
    ),
    "attention": ("Attention", (1, 5, 8), [numbers(8, 24), numbers(24)], {"num_heads": 2}),
    "attention, backwards": (
        "Attention", (2, 5, 6), [numbers(6, 36), numbers(36)], {"num_heads": 3, "unidirectional": 1, "scale": 0.3}
    ),
    "heads": ("MultiHeadAttention", (2, 4, 8), [numbers(2, 6, 8), numbers(2, 6, 8)], {"num_heads": 4}),
    "heads with a bias": (
        "MultiHeadAttention", (1, 4, 8), [numbers(1, 4, 8), numbers(1, 4, 8), numbers(24)],
        {"num_heads": 2, "unidirectional": 1},
    ),
    "root mean square": ("SimplifiedLayerNormalization", (2, 3, 8), [numbers(8)], {"epsilon": 1e-4, "axis": -1}),
    "norm before the standard has it": ("LayerNormalization", (2, 3, 8), [numbers(8), numbers(8)], {"axis": -1}),
    "root mean square of a sum": ("SkipSimplifiedLayerNormalization", (2, 3, 8), [numbers(2, 3, 8), numbers(8)], {}),
    "root mean square of a sum with a bias": (
        "SkipSimplifiedLayerNormalization", (2, 3, 8), [numbers(2, 3, 8), numbers(8), numbers(8)], {"epsilon": 1e-2}
    ),
    "four bits": (
        "MatMulNBits", (2, 3, 40), [RNG.integers(0, 256, (5, 2, 16), np.uint8), numbers(5, 2)],
        {"K": 40, "N": 5, "bits": 4, "block_size": 32},
    ),
    "four bits with zero points and a bias": (
        "MatMulNBits", (2, 48), [RNG.integers(0, 256, (3, 3, 8), np.uint8), numbers(3, 3),
                                 RNG.integers(0, 256, (3, 2), np.uint8), "", numbers(3)],
        {"K": 48, "N": 3, "bits": 4, "block_size": 16},
    ),
    "two bits with zero points": (
        "MatMulNBits", (2, 44), [RNG.integers(0, 256, (3, 3, 4), np.uint8), numbers(3, 3),
                                 RNG.integers(0, 256, (3, 1), np.uint8)],
        {"K": 44, "N": 3, "bits": 2, "block_size": 16},
    ),
    "four bits with real zero points": (
        "MatMulNBits", (2, 40), [RNG.integers(0, 256, (3, 3, 8), np.uint8), numbers(3, 3), numbers(3, 3) * 5],
        {"K": 40, "N": 3, "bits": 4, "block_size": 16},
    ),
    "eight bits": (
        "MatMulNBits", (4, 32), [RNG.integers(0, 256, (6, 2, 16), np.uint8), numbers(6, 2)],
        {"K": 32, "N": 6, "bits": 8, "block_size": 16},
    ),
    "dense": ("FusedGemm", (2, 4), [numbers(3, 4), numbers(3)], {"transB": 1, "activation": "Sigmoid"}),
    "dense, scaled": (
        "FusedGemm", (2, 4), [numbers(4, 3), numbers(3)],
        {"activation": "Selu", "activation_alpha": 1.5, "activation_gamma": 1.2},
    ),
    "dense, exponential": (
        "FusedGemm", (2, 4), [numbers(4, 3), numbers(3)], {"activation": "Elu", "activation_alpha": 0.7}
    ),
    "dense, soft": ("FusedGemm", (2, 4), [numbers(4, 3), numbers(3)], {"activation": "Softplus"}),
}  # fmt: skip


def model(case: Case, opset: int, outputs: int = 1) -> onnx.ModelProto:
    operator, shape, constants, attributes = case
    names = [f"c{i}" for i in range(len(constants))]
    results = ["y", "", "", "sum"][:outputs]
    names = [name if isinstance(c, np.ndarray) else "" for name, c in zip(names, constants, strict=True)]
    domain = "" if operator in OF_THE_STANDARD else "com.microsoft"
    node = helper.make_node(operator, ["x", *names], results, "node", domain=domain, **attributes)
    stored = [numpy_helper.from_array(c, n) for n, c in zip(names, constants, strict=True) if n]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    ys = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * len(shape)) for n in results if n]
    graph = helper.make_graph([node], "one", [x], ys, stored)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def check(proto: onnx.ModelProto, folder: Path) -> None:
    onnx.save(proto, folder / "m.onnx")
    graph = read_model(folder / "m.onnx")
    shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).normal(0, 2, shape).astype(np.float32)
    values = ops.run(graph, x)
    for name, want in zip(graph.outputs, onnxruntime_outputs(proto, [x]), strict=True):
        np.testing.assert_allclose(values[name], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [14, 21])
@pytest.mark.parametrize("name", CASES)
def test_equals_onnxruntime(name: str, opset: int, tmp_path: Path) -> None:
    check(model(CASES[name], opset), tmp_path)


@pytest.mark.parametrize("opset", [18, 20])
def test_groups_with_a_factor_for_each(opset: int, tmp_path: Path) -> None:
    """The deprecated GroupNormalization; that of opset 21 has one for each channel."""
    case: Case = ("GroupNormalization", (2, 6, 3, 2), [numbers(3), numbers(3)], {"num_groups": 3, "epsilon": 1e-3})
    check(model(case, opset), tmp_path)
    with pytest.raises(EdgebuildError, match="operand 'c0' has 3 numbers for 6 channels"):
        check(model(case, 21), tmp_path)


def test_the_sum_is_a_result_too(tmp_path: Path) -> None:
    check(model(CASES["norm"], 17, outputs=4), tmp_path)


def embedding(kinds: bool, places: bool) -> onnx.ModelProto:
    tables = {"words": numbers(20, 8), "places": numbers(9, 8), "kinds": numbers(2, 8)}
    stored = [numpy_helper.from_array(c, n) for n, c in {**tables, "g": numbers(8), "b": numbers(8)}.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT32, (2, 5))]
    stored.append(numpy_helper.from_array(np.array([[0, 1, 1, 0, 1]] * 2, np.int32), "which"))
    stored.append(numpy_helper.from_array(np.array([[4, 3, 2, 1, 8]] * 2, np.int32), "where"))
    names = ["x", "which" if kinds else "", "words", "places", "kinds" if kinds else "", "g", "b"]
    names += ["", "where"] if places else []
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (2, 5, 8)) for n in ("y", "sum")]
    node = helper.make_node("EmbedLayerNormalization", names, ["y", "", "sum"], "node", domain="com.microsoft")
    graph = helper.make_graph([node], "one", inputs, outputs, stored)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("kinds", [False, True])
@pytest.mark.parametrize("places", [False, True])
def test_embeddings(kinds: bool, places: bool, tmp_path: Path) -> None:
    proto = embedding(kinds, places)
    onnx.save(proto, tmp_path / "m.onnx")
    graph, x = read_model(tmp_path / "m.onnx"), np.random.default_rng(1).integers(0, 20, (2, 5)).astype(np.int32)
    values = ops.run(graph, x)
    for name, want in zip(graph.outputs, onnxruntime_outputs(proto, [x]), strict=True):
        np.testing.assert_allclose(values[name], want, rtol=1e-4, atol=1e-5)


def test_nodes_in_any_order(tmp_path: Path) -> None:
    """onnxruntime's converter to float16 writes casts at the end of the list."""
    proto = embedding(True, True)
    proto.graph.node.add().CopyFrom(helper.make_node("Identity", ["y"], ["z"]))
    proto.graph.output[0].name = "z"
    nodes = [*proto.graph.node][::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    onnx.save(proto, tmp_path / "m.onnx")
    assert read_model(tmp_path / "m.onnx").outputs == ("z", "sum")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("product", {"transBatchA": 1}, "transBatchA"),
        ("convolution", {"activation": "Gelu"}, "activation Gelu"),
        ("product", {"beta": 1.0}, "attribute 'beta'"),
        ("attention", {"qkv_hidden_sizes": [8, 8, 4]}, "qkv_hidden_sizes"),
        ("attention", {"do_rotary": 1}, "do_rotary"),
    ],
)
def test_what_is_refused_says_why(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    operator, shape, constants, attributes = CASES[name]
    onnx.save(model((operator, shape, constants, attributes | changes), 17), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=message):
        read_model(tmp_path / "m.onnx")


@pytest.mark.parametrize(
    ("operator", "constants", "message"),
    [
        ("Attention", [numbers(8, 24), numbers(24), np.array([4], np.int32)], "operand mask_index"),
        ("MultiHeadAttention", [], "no operand key"),
    ],
)
def test_attention_with_other_operands_is_refused(
    operator: str, constants: list[Array], message: str, tmp_path: Path
) -> None:
    onnx.save(model((operator, (1, 5, 8), constants, {"num_heads": 2}), 17), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=message):
        read_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("name", ["attention", "heads"])
def test_attention_with_more_results_is_refused(name: str, tmp_path: Path) -> None:
    proto = model(CASES[name], 17)
    proto.graph.node[0].output.append("present")
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="result 'present'"):
        read_model(tmp_path / "m.onnx")
