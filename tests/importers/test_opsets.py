"""Nodes of older opsets that the onnx package's converter passes over, against onnxruntime on the file as it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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

IMAGE, BLOCK = (1, 2, 4, 6), (2, 3, 4)


def proto(
    nodes: list[Any],
    shape: tuple[int, ...],
    result: tuple[int, ...],
    opset: int,
    ir: int,
    listed: bool,
    **constants: Any,
) -> onnx.ModelProto:
    """A model from `x`, and `choose` if a node reads it, to `y`; `listed`: the constants are inputs, too."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if any("choose" in node.input for node in nodes):
        inputs.append(helper.make_tensor_value_info("choose", TensorProto.BOOL, []))
    values = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    if listed:
        inputs += [helper.make_tensor_value_info(v.name, v.data_type, v.dims) for v in values]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def resized(opset: int, mode: str, rows: float, columns: float) -> onnx.ModelProto:
    scales, to = np.array([1, 1, rows, columns], np.float32), (1, 2, int(4 * rows), int(6 * columns))
    if opset < 9:
        return proto([helper.make_node("Upsample", ["x"], ["y"], scales=scales, mode=mode)], IMAGE, to, opset, 3, True)
    kind = "Upsample" if opset == 9 else "Resize"
    return proto([helper.make_node(kind, ["x", "s"], ["y"], mode=mode)], IMAGE, to, opset, 4, False, s=scales)


def hardmax(opset: int, **axis: Any) -> onnx.ModelProto:
    return proto([helper.make_node("Hardmax", ["x"], ["y"], **axis)], BLOCK, BLOCK, opset, 5, False)


def chosen(opset: int, one: str, other: str) -> onnx.ModelProto:
    """If, whose branches are these operators."""

    def branch(kind: str) -> onnx.GraphProto:
        value = helper.make_tensor_value_info(kind, TensorProto.FLOAT, BLOCK)
        return helper.make_graph([helper.make_node(kind, ["x"], [kind], axis=1)], kind, [], [value])

    node = helper.make_node("If", ["choose"], ["y"], then_branch=branch(one), else_branch=branch(other))
    return proto([node], BLOCK, BLOCK, opset, 6, False)


def looped() -> onnx.ModelProto:
    """A loop whose body has an operator that is read as its function body."""
    shape = (2, 3)
    state = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("state", "next")]
    go = [helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in ("go", "on")]
    turn = helper.make_tensor_value_info("turn", TensorProto.INT64, [])
    nodes = [
        helper.make_node("LogSoftmax", ["state"], ["logs"], axis=1),
        helper.make_node("Add", ["logs", "x"], ["next"]),
        helper.make_node("Identity", ["go"], ["on"]),
    ]
    body = helper.make_graph(nodes, "body", [turn, go[0], state[0]], [go[1], state[1]])
    loop = helper.make_node("Loop", ["turns", "true", "x"], ["y"], body=body)
    return proto([loop], shape, shape, 17, 8, False, turns=np.int64(3), true=np.bool_(True))


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{f"Upsample of opset {n}": partial(resized, n, "linear", 2, 3) for n in (7, 8, 9)},
    "Resize of opset 10": lambda: resized(10, "linear", 2.5, 2),
    "Resize of opset 10, smaller": lambda: resized(10, "linear", 0.5, 0.5),
    "Resize of opset 10, the nearest": lambda: resized(10, "nearest", 1.5, 2.5),
    "Resize of opset 10, rows nearest": lambda: resized(10, "nearest", 0.75, 1.5),
    **{f"Hardmax of opset {n}": partial(hardmax, n) for n in (7, 12, 13)},
    "Hardmax of opset 11, last axis": lambda: hardmax(11, axis=-1),
    "Hardmax of opset 9, all": lambda: hardmax(9, axis=0),
    "Hardmax in a branch": lambda: chosen(11, "Hardmax", "Softmax"),
    "LogSoftmax in a branch": lambda: chosen(11, "Softmax", "LogSoftmax"),
    "LogSoftmax in a branch, opset 17": lambda: chosen(17, "LogSoftmax", "Softmax"),
    "LogSoftmax in a loop": looped,
    "constants that are no inputs": lambda: proto(
        [helper.make_node("Add", ["x", "c"], ["y"])], (1, 3), (1, 3), 8, 3, False, c=np.ones((1, 3), np.float32)
    ),
}  # fmt: skip


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", NETWORKS)
def test_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    onnx.save(NETWORKS[name](), file)
    artifacts = compile_model(model_request(file, "model", "host", {}))
    assert verify(file, load_target("host"), artifacts)["equal"]
