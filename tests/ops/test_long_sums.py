"""Sums of many floats: of 50,000 equal values added one after the other, a thousandth of the sum is rounded away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify

SHAPE, VALUE = (1, 3, 224, 224), 0.1
CASES: dict[str, tuple[str, dict[str, Any], float]] = {  # operator, attributes, exact result
    "global pool": ("GlobalAveragePool", {}, VALUE),
    "windows": ("AveragePool", {"kernel_shape": [112, 112], "strides": [56, 112]}, VALUE),
    "mean of all": ("ReduceMean", {"axes": [1, 2, 3]}, VALUE),
    "mean of columns": ("ReduceMean", {"axes": [2]}, VALUE),
    "sum": ("ReduceSum", {}, 3 * 224 * 224 * VALUE),
    "absolute": ("ReduceL1", {"axes": [1, 3]}, 3 * 224 * VALUE),
    "squares": ("ReduceSumSquare", {"axes": [1, 2, 3]}, 3 * 224 * 224 * VALUE**2),
}


@pytest.mark.one_in(6)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("tile", ["off", "rolling"])
@pytest.mark.parametrize("name", CASES)
def test_sums_of_equal_values(name: str, tile: str, tmp_path: Path) -> None:
    """onnxruntime, which adds them up one by one, too, is off by up to 8e-4; so the exact result is the oracle."""
    operator, attributes, exact = CASES[name]
    file = tmp_path / "m.onnx"
    x, y = (helper.make_tensor_value_info(v, TensorProto.FLOAT, s) for v, s in (("x", SHAPE), ("y", None)))
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node(operator, ["a"], ["y"], **attributes)]
    opsets = [helper.make_opsetid("", 13 if operator == "ReduceSum" else 17)]
    model = helper.make_model(helper.make_graph(nodes, "long", [x], [y]), opset_imports=opsets, ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), file)
    artifacts = compile_model(ModelRequest(file, "model", "host", tile=tile))
    verdict = verify(file, load_target("host"), artifacts, np.full((1, int(np.prod(SHAPE))), VALUE, np.float32))
    assert np.abs(np.array(verdict["output"]) / exact - 1).max() < 2e-5
