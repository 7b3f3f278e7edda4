"""MediaPipe's operators between landmarks and images, against their definition in doubles: angles, boxes, matrices."""

from __future__ import annotations

from math import atan2, cos, sin
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.formats.tflite.tflite_reader import read_tflite
from edgebuild.model.ir import Array
from tests.fuzz.recipe import choice
from tests.graphs.tflite_models import Draft
from tests.ops.host import run_on_host

OPTIONS: dict[str, Any] = {
    "subset_idxs": [0, 2, 3, 4, 7], "left_rotation_idx": 1, "right_rotation_idx": 5, "target_rotation_radians": 0.0,
    "output_width": 6, "output_height": 4, "scale_x": 1.5, "scale_y": 1.25,
}  # fmt: skip
NAMES = "Landmarks2TransformMatrix", "TransformTensorBilinear", "TransformLandmarks"


def model(changes: dict[str, Any], dimensions: int = 3, image: tuple[int, ...] = (1, 9, 7, 3)) -> bytes:
    """Landmarks to a matrix, which cuts a part out of an image, and moves points of the part."""
    options, f = OPTIONS | changes, Draft(choice(0))
    marks, pixels = f.input((1, 8, 3), None, "float32"), f.input(image, None, "float32")
    points = f.input((1, 5, dimensions), None, "float32")
    size = options["output_height"], options["output_width"]
    matrix, part = f.tensor("matrix", (1, 4, 4), "float32"), f.tensor("part", (1, *size, image[3]), "float32")
    moved = f.tensor("moved", (1, 5, dimensions), "float32")
    f.operator(f"custom {NAMES[0]}", [marks], [matrix], bytes(flexbuffers.Dumps(options)))
    own = {"output_height": size[0], "output_width": size[1]}
    f.operator(f"custom {NAMES[1]}", [pixels, matrix], [part], bytes(flexbuffers.Dumps(own)))
    f.operator(f"custom {NAMES[2]}", [points, matrix], [moved], b"")
    return f.pack([marks, pixels, points], [matrix, part, moved])


def matrix_of(marks: Array, options: dict[str, Any]) -> Array:
    """The product of a shift, a rotation, a scale and a shift."""
    (left, right), box = (marks[0, [options[f"{end}_rotation_idx"] for end in ("left", "right")], :2],
                          marks[0, options["subset_idxs"], :2].astype(np.float64))  # fmt: skip
    angle = options["target_rotation_radians"] - atan2(right[1] - left[1], right[0] - left[0])
    turned = box @ np.array([[cos(angle), -sin(angle)], [sin(angle), cos(angle)]]).T
    low, high = turned.min(axis=0), turned.max(axis=0)
    back = np.array([[cos(angle), sin(angle)], [-sin(angle), cos(angle)]])
    size = np.array([options["output_width"], options["output_height"]])
    first, second = np.eye(4), np.eye(4)
    first[:2, 3], second[:2, 3] = back @ ((low + high) / 2), -size / 2
    rotation = np.eye(4)
    rotation[:2, :2] = back
    scale = np.diag([*((high - low) * [options["scale_x"], options["scale_y"]] / size), 1, 1])
    return np.asarray(first @ rotation @ scale @ second)


def part_of(image: Array, matrix: Array, size: tuple[int, int]) -> Array:
    _, height, width, channels = image.shape
    out = np.zeros((1, *size, channels))
    for row in range(size[0]):
        for column in range(size[1]):
            x, y = (matrix @ [column + 0.5, row + 0.5, 0, 1])[:2] - 0.5
            if 0 <= x <= width - 1 and 0 <= y <= height - 1:
                top, left = int(y), int(x)
                for h, v in ((top, 1 - (y - top)), (top + 1, y - top)):
                    for w, u in ((left, 1 - (x - left)), (left + 1, x - left)):
                        if v * u > 0:
                            out[0, row, column] += v * u * image[0, h, w]
    return out


CASES: dict[str, dict[str, Any]] = {
    "turned": {},
    "to an angle": {"target_rotation_radians": 0.7},
    "one landmark of the subset": {"subset_idxs": [3]},
    "a line without length": {"left_rotation_idx": 2, "right_rotation_idx": 2},
    "out of the image": {"scale_x": 6.0, "scale_y": 6.0},
}


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", CASES)
def test_equals_the_definition(name: str, tmp_path: Path) -> None:
    data, options, vectors = model(CASES[name], 2 + len(name) % 2), OPTIONS | CASES[name], []
    graph = read_tflite(data, "landmarks.tflite")
    for seed in range(4):
        rng = np.random.default_rng(seed)
        shapes = [graph.tensors[n].shape for n in graph.inputs]
        marks = np.concatenate([rng.uniform(0, 7, (1, 8, 1)), rng.uniform(0, 9, (1, 8, 2))], axis=2)
        vectors.append([marks.astype(np.float32), *(rng.normal(0, 2, s).astype(np.float32) for s in shapes[1:])])
    (from_c,) = run_on_host([graph], [vectors], tmp_path)
    for (marks, image, points), (matrix, part, moved) in zip(vectors, from_c, strict=True):
        want = matrix_of(marks, options)
        np.testing.assert_allclose(matrix.reshape(4, 4), want, atol=2e-5)
        size = options["output_height"], options["output_width"]
        np.testing.assert_allclose(part, part_of(image, matrix.reshape(4, 4), size).reshape(part.shape), atol=5e-4)
        places = np.concatenate([points[0, :, :2], np.zeros((5, 1)), np.ones((5, 1))], axis=1) @ want.T
        right = np.concatenate([places[:, :2], points[0, :, 2:]], axis=1)
        np.testing.assert_allclose(moved.reshape(right.shape), right, atol=5e-4)
        values = ops.run(graph, marks, image, points)
        np.testing.assert_allclose(values[graph.outputs[1]].reshape(part.shape), part, atol=1e-4)


def test_an_image_of_one_pixel(tmp_path: Path) -> None:
    graph = read_tflite(model({}, image=(1, 1, 1, 2)), "one.tflite")
    marks = np.zeros((1, 8, 3), np.float32)
    marks[0, :, :2] = 0.5
    values = ops.run(graph, marks, np.float32([[[[3, 4]]]]), np.zeros((1, 5, 3), np.float32))
    np.testing.assert_array_equal(values[graph.outputs[1]], np.broadcast_to(np.float32([3, 4]), (1, 4, 6, 2)))


@pytest.mark.parametrize(
    "changes",
    [{"subset_idxs": []}, {"subset_idxs": [8]}, {"left_rotation_idx": -1}, {"scale_x": 0.0}, {"subset_idxs": None},
     {"target_rotation_radians": float("nan")}],
    ids=str,
)  # fmt: skip
def test_options_that_are_none(changes: dict[str, Any]) -> None:
    with pytest.raises(EdgebuildError, match=rf"custom {NAMES[0]}"):
        read_tflite(model(changes), "landmarks.tflite")
