"""Slice from a computed start to that start plus a constant, against onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.cli import main
from edgebuild.model import ops
from edgebuild.model.formats import read_model
from tests.importers.test_onnx import onnxruntime_outputs

node = helper.make_node
SHAPE = (2, 8, 5)
CONSTANTS = {
    "axes": [1], "both": [1, 2], "last": [-1], "zero": [0], "one": [1], "two": [2], "three": [3], "sizes": [3, 2],
    "eight": [8], "steps": [2], "minus": [-1], "most": [6], "ends": [9, 4], "first": [0, 1], "scalar": 3,
}  # fmt: skip


def model(nodes: list[onnx.NodeProto], count: int = 1, kind: int = TensorProto.INT64) -> onnx.ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)
    at = helper.make_tensor_value_info("at", kind, [count] if count else [])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 3)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    stored = [numpy_helper.from_array(np.array(v, dtype), n) for n, v in CONSTANTS.items()]
    graph = helper.make_graph(nodes, "places", [x, at], [y], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SUM = node("Add", ["at", "three"], ["end"])
CASES = {
    "sum": (model([SUM, node("Slice", ["x", "at", "end", "axes"], ["y"])]), [-8, -7, -4, 0, 1, 4, 5]),
    "of int32": (
        model([SUM, node("Slice", ["x", "at", "end", "axes", "one"], ["y"])], kind=TensorProto.INT32),
        [-8, -5, 0, 5],
    ),
    "last axis": (model([SUM, node("Slice", ["x", "at", "end", "last"], ["y"])]), [-5, -4, 0, 2]),
    "a scalar, as PyTorch has it": (
        model(
            [
                node("Add", ["at", "scalar"], ["sum"]),
                node("Unsqueeze", ["at", "zero"], ["start"]),
                node("Unsqueeze", ["sum", "zero"], ["end"]),
                node("Slice", ["x", "start", "end", "axes"], ["y"]),
            ],
            count=0,
        ),
        [-8, -4, 0, 5],
    ),
    "two axes": (
        model([node("Add", ["at", "sizes"], ["end"]), node("Slice", ["x", "at", "end", "both"], ["y"])], count=2),
        [(0, 0), (5, 3), (2, -5), (-4, 1)],
    ),
    "one of two axes": (
        model(
            [
                SUM,
                node("Concat", ["zero", "at"], ["starts"], axis=0),
                node("Concat", ["one", "end"], ["past"], axis=0),
                node("Slice", ["x", "starts", "past", "first"], ["y"]),
            ]
        ),
        [0, 5, -6],
    ),
    "the last three": (
        model([node("Sub", ["at", "three"], ["start"]), node("Slice", ["x", "start", "at", "axes"], ["y"])]),
        [3, 4, 8, -1, -5],
    ),
    "kept inside, as JAX does": (
        model(
            [
                node("Max", ["at", "zero"], ["above"]),
                node("Min", ["above", "most"], ["start"]),
                node("Add", ["two", "start"], ["end"]),
                node("Slice", ["x", "start", "end", "axes"], ["y"]),
            ]
        ),
        [-20, -1, 0, 3, 6, 7, 100],
    ),
    "all": (model([node("Add", ["at", "eight"], ["end"]), node("Slice", ["x", "at", "end", "axes"], ["y"])]), [0]),
}


@pytest.mark.parametrize("name", CASES)
def test_equals_onnxruntime(name: str, tmp_path: Path) -> None:
    proto, places = CASES[name]
    onnx.save(proto, tmp_path / "m.onnx")
    graph = read_model(tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(0, 1, SHAPE).astype(np.float32)
    kind = proto.graph.input[1].type.tensor_type
    dtype, shape = helper.tensor_dtype_to_np_dtype(kind.elem_type), [d.dim_value for d in kind.shape.dim]
    for place in places:
        at = np.array(place, dtype).reshape(shape)
        (want,) = onnxruntime_outputs(proto, [x, at])
        np.testing.assert_array_equal(ops.run(graph, x, at)[graph.outputs[0]], want, strict=True)


def test_a_start_beyond_the_last_place_is_moved_there(tmp_path: Path) -> None:
    """Where onnxruntime's result has fewer elements than the firmware's, which cannot change."""
    proto, _ = CASES["sum"]
    onnx.save(proto, tmp_path / "m.onnx")
    graph = read_model(tmp_path / "m.onnx")
    x = np.random.default_rng(0).normal(0, 1, SHAPE).astype(np.float32)
    for at, start in ((6, 5), (100, 5), (-9, 0), (-100, 0), (-1, 5)):
        (want,) = onnxruntime_outputs(proto, [x, np.array([at])])
        assert want.shape[1] < 3
        np.testing.assert_array_equal(ops.run(graph, x, np.array([at]))[graph.outputs[0]], x[:, start : start + 3])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Slice", ["x", "at", "eight", "axes"], ["y"])], "its length along axis 1 is computed by the graph"),
        ([node("Slice", ["x", "zero", "at", "axes"], ["y"])], "its length along axis 1 is computed by the graph"),
        ([SUM, node("Slice", ["x", "at", "end", "axes", "two"], ["y"])], "in steps of 1"),
        (
            [node("Mul", ["at", "two"], ["end"]), node("Slice", ["x", "at", "end", "axes"], ["y"])],
            "slice from a start to the same start plus a constant",
        ),
        ([node("Add", ["at", "minus"], ["end"]), node("Slice", ["x", "at", "end", "axes"], ["y"])], "-1 elements of 8"),
        ([SUM, node("Slice", ["x", "at", "end", "at"], ["y"])], "axes must be a constant"),
    ],
)
def test_what_is_refused_says_why(nodes: list[onnx.NodeProto], message: str, tmp_path: Path) -> None:
    onnx.save(model(nodes), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=message):
        read_model(tmp_path / "m.onnx")


def test_the_c_code_of_it(tmp_path: Path) -> None:
    onnx.save(CASES["kept inside, as JAX does"][0], tmp_path / "m.onnx")
    assert main(["verify", str(tmp_path / "m.onnx"), "--target", "host"]) == 0
