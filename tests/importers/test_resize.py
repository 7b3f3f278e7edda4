"""Resize along one dimension, of any sizes, in all ways of the standard: the elements that onnxruntime takes."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats import read_model

WAYS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
CASES = 60


def model(r: random.Random, coordinates: str, nearest: str) -> tuple[onnx.ModelProto, int]:
    """A model that resizes a line, by a size or by a scale, and the elements of the line."""
    n, m, scale = r.randint(1, 60), r.randint(1, 60), np.float32(r.uniform(0.2, 3))
    by_scale = r.random() < 0.3 and int(scale * n) > 0
    m = int(scale * np.float32(n)) if by_scale else m
    given = [1.0, 1.0, float(scale), 1.0] if by_scale else [1, 1, m, 1]
    kind = onnx.TensorProto.FLOAT if by_scale else onnx.TensorProto.INT64
    attributes = {"mode": "nearest", "nearest_mode": nearest, "coordinate_transformation_mode": coordinates}
    names = ["x", "", "s"] if by_scale else ["x", "", "", "s"]
    node = onnx.helper.make_node("Resize", names, ["y"], **attributes)
    x, y = (onnx.helper.make_tensor_value_info(t, 1, [1, 1, k, 1]) for t, k in (("x", n), ("y", m)))
    graph = onnx.helper.make_graph([node], "g", [x], [y], [onnx.helper.make_tensor("s", kind, [4], given)])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 19)], ir_version=9), n


@pytest.mark.parametrize("nearest", NEAREST)
@pytest.mark.parametrize("coordinates", WAYS)
def test_nearest_of_onnxruntime(coordinates: str, nearest: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    r = random.Random(f"{coordinates} {nearest}")
    for _ in range(CASES):
        proto, n = model(r, coordinates, nearest)
        file, line = tmp_path / "model.onnx", np.arange(n, dtype=np.float32).reshape(1, 1, n, 1)
        onnx.save(proto, file)
        (want,) = onnxruntime.InferenceSession(file).run(None, {"x": line})
        graph = read_model(file)
        have = ops.run(graph, line)[graph.outputs[0]]
        assert np.array_equal(have.ravel(), want.ravel()), onnx.printer.to_text(proto)


def test_a_scale_whose_product_is_whole_in_float32_alone(tmp_path: Path) -> None:
    """13 / 9 as tf2onnx writes it. onnx finds 12 elements, the file notes 13, and onnxruntime makes 13."""
    node = onnx.helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")
    x, y = (onnx.helper.make_tensor_value_info(t, 1, [1, 1, n, 1]) for t, n in (("x", 9), ("y", 13)))
    graph = onnx.helper.make_graph([node], "g", [x], [y], [onnx.helper.make_tensor("s", 1, [4], [1, 1, 13 / 9, 1])])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    read = read_model(tmp_path / "m.onnx")
    assert read.tensors[read.outputs[0]].elements == 13


def test_shapes_that_a_file_notes_wrongly_or_not(tmp_path: Path) -> None:
    """skl2onnx notes a rank that ArgMax does not give, and no shape of scores; onnxruntime runs both."""
    nodes = [onnx.helper.make_node("ArgMax", ["x"], ["label"], axis=1), onnx.helper.make_node("Neg", ["x"], ["scores"])]
    x, label = (onnx.helper.make_tensor_value_info(t, k, s) for t, k, s in (("x", 1, [2, 3]), ("label", 7, [2])))
    scores = onnx.helper.make_tensor_value_info("scores", 1, None)
    graph = onnx.helper.make_graph(nodes, "g", [x], [label, scores])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    read = read_model(tmp_path / "m.onnx")
    assert [read.tensors[name].shape for name in read.outputs] == [(2, 1), (2, 3)]


@pytest.mark.parametrize("kind", ["size", "scale"])
def test_sizes_that_no_memory_holds(kind: str, tmp_path: Path) -> None:
    names, one = (["x", "", "", "s"], 7) if kind == "size" else (["x", "", "s"], 1)
    node = onnx.helper.make_node("Resize", names, ["y"], mode="linear")
    x, y = (onnx.helper.make_tensor_value_info(t, 1, [1, 1, k, 1]) for t, k in (("x", 3), ("y", None)))
    sizes = onnx.helper.make_tensor("s", one, [4], [1, 1, 3 << 55 if kind == "size" else 2.0**55, 1])
    graph = onnx.helper.make_graph([node], "g", [x], [y], [sizes])
    opsets = [onnx.helper.make_opsetid("", 19)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    with pytest.raises(EdgebuildError, match="at most 16777216 of a dimension"):
        read_model(tmp_path / "m.onnx")
