"""TFLite_Detection_PostProcess, the end of SSD networks, against TFLite Micro: every bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats.tflite.tflite_reader import read_tflite
from edgebuild.model.ir import Array
from edgebuild.model.verify import oracles
from tests.fuzz.recipe import choice
from tests.graphs.tflite_models import Draft
from tests.ops.host import run_on_host
from tests.ops.test_tflm import interpreted

NAME = "custom TFLite_Detection_PostProcess"
OPTIONS: dict[str, Any] = {
    "max_detections": 10, "max_classes_per_detection": 1, "num_classes": 3, "nms_score_threshold": 0.25,
    "nms_iou_threshold": 0.45, "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "fast": {},
    "fast, one class": {"num_classes": 1},
    "all boxes overlap too much": {"nms_iou_threshold": 1e-6},
    "no box is good enough": {"nms_score_threshold": 2.0},
    "regular": {"use_regular_nms": True},
    "regular, few of a class": {"use_regular_nms": True, "detections_per_class": 2},
    "regular, more than fit": {"use_regular_nms": True, "nms_score_threshold": 0.0, "nms_iou_threshold": 0.9},
}
BOXES = 60


def model(changes: dict[str, Any], background: int = 1, boxes: int = BOXES, shaped: bool = True) -> bytes:
    """`shaped`: the file says which shapes the results have."""
    options, f, rng = OPTIONS | changes, Draft(choice(0)), np.random.default_rng(5)
    most = options["max_detections"]
    anchors = np.concatenate([rng.uniform(0, 1, (boxes, 2)), rng.uniform(0.1, 0.6, (boxes, 2))], axis=1)
    x = [
        f.input((1, boxes, 4), None, "float32"),
        f.input((1, boxes, options["num_classes"] + background), None, "float32"),
    ]
    operands = [*x, f.tensor("anchors", anchors.shape, "float32", None, anchors.astype(np.float32))]
    shapes = ((1, most, 4), (1, most), (1, most), (1,)) if shaped else ((),) * 4
    results = [f.tensor(f"y{i}", shape, "float32") for i, shape in enumerate(shapes)]
    f.operator(NAME, operands, results, bytes(flexbuffers.Dumps(options)))
    return f.pack(x, results)


def inputs(data: bytes, seed: int) -> list[Array]:
    """Encoded boxes as networks give them, and scores of few values: many are equal."""
    graph, rng = read_tflite(data, "ssd.tflite"), np.random.default_rng(seed)
    boxes, scores = (graph.tensors[name].shape for name in graph.inputs)
    return [rng.normal(0, 2, boxes).astype(np.float32), (rng.integers(0, 40, scores) / 40).astype(np.float32)]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("background", [0, 1])
def test_equals_tflm(name: str, background: int, tmp_path: Path) -> None:
    """Places behind the boxes, which TFLM leaves unwritten, are 0 here."""
    data = model(CASES[name], background)
    vectors = [inputs(data, seed) for seed in range(6)]
    (expected,) = interpreted([data], [vectors], tmp_path)
    graph, folder = read_tflite(data, "ssd.tflite"), tmp_path / "c"
    folder.mkdir()
    (compiled,) = run_on_host([graph], [vectors], folder)
    for vector, want, from_c in zip(vectors, expected, compiled, strict=True):
        values = ops.run(graph, *vector)
        count = int(want[3][0])
        for output, y in enumerate(want):
            have = values[graph.outputs[output]]
            np.testing.assert_array_equal(
                have.reshape(y.shape)[..., :count, :] if output == 0 else have.ravel()[:count],
                y[..., :count, :] if output == 0 else y.ravel()[:count],
            )
            np.testing.assert_array_equal(from_c[output].ravel(), have.ravel())
    assert name == "no box is good enough" or any(want[3][0] > 1 for want in expected) or "overlap" in name


@pytest.mark.parametrize("most", [1, 2])
def test_tflm_does_not_judge_where_it_writes_behind_its_buffers(most: int, tmp_path: Path) -> None:
    """One detection by class among few boxes: its lists hold the boxes alone."""
    file = tmp_path / "ssd.tflite"
    file.write_bytes(model({"use_regular_nms": True, "max_detections": most}, boxes=8))
    assert ("one detection" in oracles._misread(file)) == (most == 1)


def test_results_without_shapes_get_those_of_the_operator() -> None:
    graph = read_tflite(model({}, shaped=False), "ssd.tflite")
    assert [graph.tensors[name].shape for name in graph.outputs] == [(1, 10, 4), (1, 10), (1, 10), ()]


@pytest.mark.parametrize(
    ("changes", "background", "message"),
    [
        ({"max_classes_per_detection": 2}, 1, "max_classes_per_detection 2"),
        ({"nms_iou_threshold": 0.0}, 1, "a threshold of 0"),
        ({"y_scale": 0.0}, 1, "numbers"),
        ({}, 2, "for 3 classes"),
        ({"max_detections": 0}, 1, "0 detections"),
    ],
)
def test_what_is_refused_says_why(changes: dict[str, Any], background: int, message: str) -> None:
    with pytest.raises(EdgebuildError, match=message):
        read_tflite(model(changes, background, shaped=bool(changes.get("max_detections", 1))), "ssd.tflite")


def test_damaged_options_are_refused() -> None:
    data = model({})
    at = data.index(b"max_detections")
    with pytest.raises(EdgebuildError, match="max_detections"):
        read_tflite(data[:at] + b"max_detectioms" + data[at + 14 :], "ssd.tflite")
