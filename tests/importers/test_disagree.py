"""Parts of a model that do not fit each other, which the standard's checker passes: refused, never printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgebuild.base.errors import EdgebuildError
from edgebuild.model.formats import read_model


def model(kind: str, constants: list[np.ndarray], shape: tuple[int, ...], **attributes: Any) -> onnx.ModelProto:
    """One node on an input of this shape and constants."""
    names = [f"c{i}" for i in range(len(constants))]
    node = helper.make_node(kind, ["x", *names], ["y"], "node", **attributes)
    sizes = "abcd"[: len(shape) - (kind != "Conv")]
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, n)] for name, n in (("x", shape), ("y", list(sizes)))
    ]
    stored = [numpy_helper.from_array(c, n) for c, n in zip(constants, names, strict=True)]
    graph = helper.make_graph([node], "g", *ports, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize("length", [0, 1, 5, 7, 12])
@pytest.mark.parametrize("group", [1, 6])
def test_a_bias_of_another_length_than_the_channels(length: int, group: int, tmp_path: Path) -> None:
    """The kernels would read behind its end."""
    weights, bias = np.ones((6, 6 // group, 3, 3), np.float32), np.zeros(length, np.float32)
    onnx.save(model("Conv", [weights, bias], (1, 6, 8, 8), group=group), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=rf"bias of shape \({length},\) for 6 outputs"):
        read_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMax", "ArgMax"])
@pytest.mark.parametrize("keep", [-1, 2, 1 << 40])
def test_keepdims_that_tools_read_in_two_ways(kind: str, keep: int, tmp_path: Path) -> None:
    where = {"axis": 1} if kind == "ArgMax" else {"axes": [1]}
    proto = model(kind, [], (1, 3, 4), keepdims=keep, **where)
    if kind == "ArgMax":
        proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match=f"keepdims {keep}"):
        read_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("window", [[5, 5], [1, 1], [3, 1]])
def test_a_window_of_another_size_than_the_weights(kind: str, window: list[int], tmp_path: Path) -> None:
    """The checker sees it only where the shape of the result is told."""
    proto = model(kind, [np.ones((6, 6, 3, 3), np.float32)], (1, 6, 8, 8), kernel_shape=window)
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.shape.dim.extend([onnx.TensorShapeProto.Dimension() for _ in range(4)])
    onnx.save(proto, tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="kernel_shape"):
        read_model(tmp_path / "m.onnx")
