"""Readers of MediaPipe's operators between landmarks and images (mediapipe/util/tflite/operations, 0.10, version 2).

A matrix of 4 x 4 leads from places in the image of a part to places in the whole one; its rows x and y count, and their
columns x, y and 1. Landmarks2TransformMatrix makes it of landmarks: the part has an angle, and room for some of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, sin
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from ..compose import moving

PLANE = (0, 1)  # x and y
DAMAGED = "fetch the file or export it again"


def read_landmarks_matrix(node: Any) -> None:
    """The box of the subset, turned until the line between two landmarks has an angle, as a matrix.

    Its columns are s_x e_x, s_y e_y, 0, and the place of the box's middle less half of the part: with the rows e_x, e_y
    of the rotation, and the box's size s in turned places, times a scale and divided by the part's size.
    """
    x, options = node.tensor(0), _options(node)
    try:
        subset = [int(i) for i in options["subset_idxs"]]
        ends = [int(options["left_rotation_idx"]), int(options["right_rotation_idx"])]
        size = np.array([int(options["output_width"]), int(options["output_height"])], np.float32)
        scale = np.array([options["scale_x"], options["scale_y"]], np.float32)
        angle = float(options["target_rotation_radians"])
    except (KeyError, TypeError, ValueError) as problem:
        raise node.error(f"its options are not those of version 2: {problem!r}", DAMAGED) from None
    indices = [*subset, *ends]
    if not subset or min(indices) < 0 or not all(np.isfinite([*scale, angle])) or min(*size, *scale) <= 0:
        raise node.error("no subset, or an index, a size, a scale or an angle that is none", DAMAGED)
    if len(x.shape) != 3 or x.shape[0] != 1 or x.shape[2] != 3 or max(indices) >= x.shape[1]:
        raise node.error(f"landmarks of shape {x.shape}, indices up to {max(indices)}", "supported: 1 x N x 3")
    places = _part(node, node.inputs[0], [(0,), subset, PLANE])
    left, right = (_part(node, node.inputs[0], [(0,), (end,), PLANE]) for end in ends)
    axes = _turned_axes(node, node.apply("difference", right, left), angle)
    lines = node.reshaped(axes, (1, 2, 1, 2))
    turned = _total(node, node.apply("product", node.reshaped(places, (1, 1, len(subset), 2)), lines), 3)
    turned = node.reshaped(turned, (1, 2, len(subset)))
    most, least = (node.reshaped(node.inner(f"reduce_{end}", [turned], axes=(2,)), (1, 2, 1)) for end in ("max", "min"))
    scaled = _times(node, node.apply("difference", most, least), (scale / size).reshape(1, 2, 1))
    columns = node.apply("product", axes, scaled)
    middle = _times(node, node.apply("sum", most, least), np.array([[[0.5]]], np.float32))
    corner = node.apply("difference", middle, _times(node, scaled, (size / 2).reshape(1, 2, 1)))
    last = node.reshaped(_total(node, node.apply("product", axes, corner), 1), (1, 1, 2))
    rows = node.inner("concat", [columns, node.array(np.zeros((1, 1, 2), np.float32)), last], axis=1)
    rest = node.array(np.eye(4, dtype=np.float32)[None, 2:])
    node.emit("concat", [node.turned(rows, (0, 2, 1)), rest], axis=1)


def _turned_axes(node: Any, line: str, angle: float) -> str:
    """Rows (cos r, -sin r), (sin r, cos r) of a rotation: `angle` less the line's, which is 0 of one without length."""
    line = node.reshaped(line, (1, 2))
    length = node.inner("reduce_sum", [node.apply("square", line)], axes=(1,))
    length = node.apply("sqrt", node.reshaped(length, (1, 1)))
    none = node.apply("equal", length, node.array(np.array([[0]], np.float32)))
    along = node.apply("quotient", line, length)
    unit = node.apply("where", none, node.array(np.array([[1, 0]], np.float32)), along, to="float32")
    c, s = cos(angle), sin(angle)
    weights = np.array([[c, s], [-s, c], [s, -c], [c, s]], np.float32)
    parts = node.apply("product", node.reshaped(unit, (1, 1, 2)), node.array(weights[None]))
    return str(node.reshaped(_total(node, parts, 2), (1, 2, 2)))


def read_transformed_landmarks(node: Any) -> None:
    """x and y of each landmark times the matrix; a third number stays."""
    x = node.tensor(0)
    _check_matrix(node)
    if len(x.shape) != 3 or x.shape[0] != 1 or x.shape[2] not in (2, 3):
        raise node.error(f"landmarks of shape {x.shape}", "supported: 1 x N x 2 and 1 x N x 3")
    count = x.shape[1]
    matrix = _part(node, node.inputs[1], [(0,), PLANE, PLANE])
    places = _part(node, node.inputs[0], [(0,), range(count), PLANE])
    parts = node.apply("product", node.reshaped(places, (1, count, 1, 2)), node.reshaped(matrix, (1, 1, 2, 2)))
    moved = node.reshaped(_total(node, parts, 3), (1, count, 2))
    shift = node.reshaped(_part(node, node.inputs[1], [(0,), PLANE, (3,)]), (1, 1, 2))
    if x.shape[2] == 2:
        node.emit_function("sum", moved, shift)
    else:
        depth = _part(node, node.inputs[0], [(0,), range(count), (2,)])
        node.emit("concat", [node.apply("sum", moved, shift), depth], axis=2)


def read_transformed_image(node: Any) -> None:
    """The part of an image whose places a matrix leads to, between pixels; 0 where it leads out of the image."""
    x, options = node.tensor(0), _options(node)
    _check_matrix(node)
    try:
        size = int(options["output_height"]), int(options["output_width"])
    except (KeyError, TypeError, ValueError) as problem:
        raise node.error(f"its options are not those of version 2: {problem!r}", DAMAGED) from None
    if len(x.shape) != 4 or x.shape[0] != 1 or min(size) < 1 or node.written[0].shape[1:3] != size:
        raise node.error(f"an image of shape {x.shape} to {size}", "supported: 1 x H x W x C, sizes as in the file")
    across, down = np.meshgrid(np.arange(size[1]) + 0.5, np.arange(size[0]) + 0.5)
    middles = np.stack([across, down, np.ones(size)], axis=-1).astype(np.float32).reshape(1, *size, 1, 3)
    matrix = node.reshaped(_part(node, node.inputs[1], [(0,), PLANE, (0, 1, 3)]), (1, 1, 1, 2, 3))
    place = node.reshaped(_total(node, node.apply("product", matrix, node.array(middles)), 4), (1, *size, 2))
    place = node.apply("difference", place, node.array(np.array([[[[0.5]]]], np.float32)))
    last = np.array([x.shape[2] - 1, x.shape[1] - 1], np.float32).reshape(1, 1, 1, 2)
    near = node.apply("maximum", place, node.array(np.array([[[[0]]]], np.float32)))
    near = node.apply("minimum", near, node.array(last))
    inside = node.inner("reduce_min", [node.apply("equal", place, near)], axes=(3,))
    grid = _times(node, near, 2 / np.maximum(last, 1))
    grid = node.apply("difference", grid, node.array(np.array([[[[1]]]], np.float32)))
    sampled = node.inner("grid_sample", [node.inputs[0], grid], taps=2, corners=True, padding="border")
    outside = node.array(np.array([[[[0]]]], np.float32))
    node.emit_function("where", node.reshaped(inside, (1, *size, 1)), sampled, outside, to="float32")


def _options(node: Any) -> dict[str, Any]:
    try:
        options = flexbuffers.Loads(node.custom_options())
    except Exception as problem:  # the options are a format of their own, whose reader checks nothing
        raise node.error(f"its options are damaged: {problem}", DAMAGED) from None
    return options if isinstance(options, dict) else {}


def _check_matrix(node: Any) -> None:
    if node.tensor(1).shape != (1, 4, 4):
        raise node.error(f"a matrix of shape {node.tensor(1).shape}", "supported: 1 x 4 x 4")


def _part(node: Any, name: str, index: Sequence[Sequence[int]]) -> str:
    tables = moving(index, node.builder.tensors[name])
    return str(node.inner("take", [name], index=tables)) if any(tables) else name


def _times(node: Any, name: str, factors: Any) -> str:
    return str(node.apply("product", name, node.array(np.asarray(factors, np.float32))))


def _total(node: Any, name: str, axis: int) -> str:
    return str(node.inner("reduce_sum", [name], axes=(axis,)))
