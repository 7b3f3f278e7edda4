"""Activations with a scale for each channel or block, bfloat16, and shared constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.model import ops
from edgebuild.model.formats import read_model
from edgebuild.model.ir import Array, Graph
from tests.importers.test_onnx import onnxruntime_outputs

SHAPE = (3, 4, 5)


def saved(nodes: list[onnx.NodeProto], stored: dict[str, Array], file: Path, opset: int = 21) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in "xy")
    constants = [numpy_helper.from_array(np.asarray(v), n) for n, v in stored.items()]
    proto = helper.make_model(helper.make_graph(nodes, "scales", [x], [y], constants), ir_version=10,
                             opset_imports=[helper.make_opsetid("", opset)])  # fmt: skip
    onnx.save(proto, file)
    return proto


def ran(graph: Graph, x: Array) -> Array:
    return ops.run(graph, x)[graph.outputs[0]]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize(("axis", "block"), [(1, 0), (-1, 0), (0, 0), (1, 2), (2, 3)])
@pytest.mark.parametrize("zeros", [True, False])
def test_many_scales(dtype: type, axis: int, block: int, zeros: bool, tmp_path: Path) -> None:
    """Values beyond both ends and halfway between steps are among them; a Cast reads the steps, too."""
    rng, at, info = np.random.default_rng(0), axis % 3, np.iinfo(dtype)
    sizes = tuple(-(-n // block) if d == at else n for d, n in enumerate(SHAPE)) if block else (SHAPE[at],)
    scale = 2.0 ** rng.integers(-6, -2, sizes).astype(np.float32) if block else rng.uniform(0.01, 0.1, sizes)
    stored = {"s": scale.astype(np.float32), "z": rng.integers(info.min // 4, info.max // 2, sizes).astype(dtype)}
    names = ["s", "z"] if zeros or dtype != np.uint8 else ["s"]
    settings = {"axis": axis, **({"block_size": block} if block else {})}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", *names], ["q"], **settings),
        helper.make_node("DequantizeLinear", ["q", *names], ["r"], **settings),
        helper.make_node("Cast", ["q"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["r", "c"], ["y"]),
    ]
    proto = saved(nodes, stored, tmp_path / "m.onnx")
    graph = read_model(tmp_path / "m.onnx")
    for spread in (0.5, 1e3):
        x = (spread * rng.standard_normal(SHAPE)).astype(np.float32)
        x.flat[::3] = np.round(x.flat[::3] * 64 * 2) / 128  # halves of steps where the scale is a power of two
        np.testing.assert_array_equal(ran(graph, x), onnxruntime_outputs(proto, [x])[0])


def test_bfloat16_is_read_as_single_precision(tmp_path: Path) -> None:
    import ml_dtypes

    w = np.array([[1.5, -2.25, 0.001, 3e38]] * 5, ml_dtypes.bfloat16).T
    nodes = [helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT),
             helper.make_node("Expand", ["f", "shape"], ["e"]), helper.make_node("Min", ["x", "e"], ["y"])]  # fmt: skip
    proto = saved(nodes, {"w": w, "shape": np.array(SHAPE, np.int64)}, tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    np.testing.assert_array_equal(ran(read_model(tmp_path / "m.onnx"), x), onnxruntime_outputs(proto, [x])[0])


def test_a_quantised_constant_under_another_name(tmp_path: Path) -> None:
    """PyTorch shares equal parameters by Identity; the quantiser stores them."""
    stored = {"q": np.array([3, -5, 7, 100], np.int8), "s": np.float32(0.02), "z": np.int8(-6)}
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["mean"]),
        helper.make_node("Identity", ["mean"], ["variance"]),
        helper.make_node("BatchNormalization", ["x", "mean", "mean", "mean", "variance"], ["y"]),
    ]
    stored["q"] = np.array([3, 5, 7, 100], np.int8)
    proto = saved(nodes, stored, tmp_path / "m.onnx", 17)
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    have, want = ran(read_model(tmp_path / "m.onnx"), x), onnxruntime_outputs(proto, [x])[0]
    np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [1, 6])
def test_old_opsets_whose_operators_are_the_same(opset: int, tmp_path: Path) -> None:
    nodes = [helper.make_node("Floor" if opset == 6 else "Not", ["x"], ["y"])]
    proto = saved(nodes, {}, tmp_path / "m.onnx", opset)
    kind = TensorProto.FLOAT if opset == 6 else TensorProto.BOOL
    for value in (proto.graph.input[0], proto.graph.output[0]):
        value.type.tensor_type.elem_type = kind
    onnx.save(proto, tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    x = x if opset == 6 else x > 0
    want = np.floor(x) if opset == 6 else ~x
    np.testing.assert_array_equal(ran(read_model(tmp_path / "m.onnx"), x), want)
