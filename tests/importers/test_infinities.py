"""Infinities of float32 ONNX networks remain: onnxruntime bounds nothing that the model does not bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.request import model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from edgebuild.model.verify.rounding import distance, limit, moves

SHAPE = (1, 4, 4, 4)
VALUES = np.random.default_rng(1).normal(size=SHAPE).astype(np.float32)
NODES = {
    "sum": ("Add", [VALUES], {}),
    "product": ("Mul", [VALUES], {}),
    "rectified": ("Relu", [], {}),
    "convolution": ("Conv", [VALUES[0, :, :1, :1].reshape(1, 4, 1, 1)], {}),
    "average": ("AveragePool", [], {"kernel_shape": [2, 2]}),
    "maximum": ("MaxPool", [], {"kernel_shape": [2, 2]}),
    "border": ("Pad", [np.array([0, 0, 1, 1, 0, 0, 1, 1]), np.float32(-np.inf)], {}),
}


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", NODES)
def test_equals_onnxruntime(name: str, tmp_path: Path) -> None:
    kind, others, attributes = NODES[name]
    constants = [numpy_helper.from_array(np.asarray(v), f"c{i}") for i, v in enumerate(others)]
    node = helper.make_node(kind, ["x", *(c.name for c in constants)], ["y"], **attributes)
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", SHAPE), ("y", None)))
    model = helper.make_model(
        helper.make_graph([node], "g", [x], [y], constants), opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    file = tmp_path / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), file)
    inputs = np.random.default_rng(2).normal(size=(3, VALUES.size)).astype(np.float32)
    inputs[0, 5], inputs[1, 7], inputs[2] = np.inf, -np.inf, -np.inf
    result = verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})), inputs=inputs)
    assert result["equal"]


@pytest.mark.needs("gcc")
def test_products_of_one_function_have_bounds_of_their_own(tmp_path: Path) -> None:
    """The first is bounded on both sides; the second one's lower bound is no number that C has without a name."""
    bounds = [numpy_helper.from_array(np.float32(v), n) for v, n in ((-1, "low"), (5, "high"))]
    steps = [
        ("Mul", ["x", "w"], "a"), ("Clip", ["a", "low", "high"], "b"),
        ("Mul", ["b", "w"], "c"), ("Clip", ["c", "", "high"], "y"),
    ]  # fmt: skip
    nodes = [helper.make_node(kind, inputs, [result]) for kind, inputs, result in steps]
    x, w, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in ("x", "w", "y"))
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x, w], [y], bounds), opset_imports=[helper.make_opsetid("", 18)], ir_version=8
    )
    file = tmp_path / "bounds.onnx"
    onnx.save(model, file)
    artifacts = compile_model(model_request(file, "model", "host", {}))
    assert verify(file, load_target("host"), artifacts)["equal"]


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("weight, factor, bias", [(1e20, 1e20, 0.0), (1.0, 1.0, 3e38)])
def test_factors_whose_product_no_float_holds(weight: float, factor: float, bias: float, tmp_path: Path) -> None:
    """Batch normalisation behind a convolution: inputs may be small, or sums of opposite signs."""
    numbers = {
        "w": np.full((4, 4, 1, 1), weight), "b": np.full(4, bias), "s": np.full(4, factor), "o": np.full(4, bias),
        "m": np.zeros(4), "v": np.ones(4),
    }  # fmt: skip
    constants = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in numbers.items()]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"])]
    nodes.append(helper.make_node("BatchNormalization", ["c", "s", "o", "m", "v"], ["y"], epsilon=0.0))
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in "xy")
    file = tmp_path / "model.onnx"
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), file)
    inputs = np.full((3, VALUES.size), -1e-25, np.float32)
    inputs[1], inputs[2] = 1e-24, -3e38 / 4
    result = verify(file, load_target("host"), compile_model(model_request(file, "model", "host", {})), inputs=inputs)
    assert result["equal"]


def test_what_is_not_finite_is_compared() -> None:
    some = np.array([1.0, np.inf, -np.inf, np.nan], np.float32)
    assert distance(some, some) == 0 and limit(some) < 1
    for other in ([1, np.inf, np.inf, np.nan], [1, 3e38, -np.inf, np.nan], [1, np.inf, -np.inf, 0]):
        assert distance(some, np.array(other, np.float32)) == np.inf


def test_only_finite_inputs_are_moved() -> None:
    """An infinity that became the largest number would move what follows without a bound, and nothing is judged."""
    x = np.array([1.0, np.inf, -np.inf, np.nan, 3.4028235e38, -3.4028235e38], np.float32)
    seen = list[np.ndarray]()

    def run(vectors: list[list[np.ndarray]], _constants: object) -> list[dict[str, np.ndarray]]:
        seen.append(vectors[0][0])
        return [{"y": vectors[0][0]}]

    assert 0 < moves([[x]], run)["y"] < np.inf
    assert len(seen) > 1
    for near in seen:
        np.testing.assert_array_equal(near[1:4], x[1:4])
        assert np.isfinite(near[[0, 4, 5]]).all()


@pytest.mark.parametrize("mask", [-np.inf, np.finfo(np.float32).min])
def test_elements_of_a_mask_hide_no_others(mask: float) -> None:
    """onnxruntime masks with the lowest number where the standard has -inf. Neither makes the limit of rounding."""
    theirs, mine = (np.array([1.0, 2.0, m], np.float32) for m in (mask, -np.inf))
    assert distance(mine, theirs) == 0 and limit(theirs) < 1e-4
    mine[0] += 0.5
    assert distance(mine, theirs) == 0.5
    mine[2] = -1e30
    assert distance(mine, theirs) == np.inf
