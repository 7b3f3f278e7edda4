"""TFLite_Detection_PostProcess: boxes of an SSD head decoded, and those that lie over better ones left out.

`detection` gives one vector: M boxes (ymin, xmin, ymax, xmax), their classes, their scores, and how many there are.
What is behind them is 0. Boxes are taken in the order of their scores, and decoded only then. One is left out if it
overlaps one that was taken by more than `iou_threshold` (intersection over union). With `per_class` boxes at most of
each class, that is done for each class apart; with 0 a box has its best class alone. No list is sorted, so that little
lies in scratch memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Whole
from .base import Constant, Form, Kernel, Spec, is_float

SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")
NUMBERS = {"score_threshold": "nms_score_threshold", "iou_threshold": "nms_iou_threshold", **{n: n for n in SCALES}}
FIELDS = 6  # floats of a box in the result: corners, class, score


def nest(op: Op, graph: Graph) -> Nest:
    whole = tuple(tuple(Whole(n) for n in t.shape) for t in graph.operands(op))
    return Nest({"i": FIELDS * op.attrs["most"] + 1}, ("i",), whole)


def fitting(op: Op, graph: Graph) -> str | None:
    """Boxes are 1 x N x 4 or more, scores 1 x N x classes, perhaps with the background first; both of float32. Anchors
    are N x 4, overlaps from above 0 to 1."""
    boxes, scores, anchors = graph.operands(op)
    shapes = f"boxes of shape {boxes.shape}, scores {scores.shape}, anchors {anchors.shape}"
    if not (is_float(boxes) and is_float(scores)) or boxes.constant or scores.constant:
        return f"boxes are {boxes.dtype}, scores {scores.dtype}"
    if len(boxes.shape) != 3 or len(scores.shape) != 3 or boxes.shape[2] < 4 or anchors.shape != (boxes.shape[1], 4):
        return shapes
    extra = scores.shape[2] - op.attrs["classes"]
    if boxes.shape[0] != 1 or scores.shape[:2] != boxes.shape[:2] or not 0 <= extra <= 1 or op.attrs["classes"] < 1:
        return f"{shapes} for {op.attrs['classes']} classes"
    numbers = [op.attrs[name] for name in NUMBERS]
    if op.attrs["most"] < 1 or not np.isfinite(numbers).all() or 0 in [op.attrs[name] for name in SCALES]:
        return f"{op.attrs['most']} detections, numbers {numbers}"
    return None if 0 < op.attrs["iou_threshold"] <= 1 else f"a threshold of {op.attrs['iou_threshold']} for overlaps"


def _corners(op: Op, box: Array, anchor: Array) -> Array:
    """In double precision until the corners, as TFLM computes them."""
    (y, x, h, w), (ay, ax, ah, aw) = box[:4].astype(np.float64), anchor.astype(np.float64)
    ys, xs, hs, ws = (op.attrs[name] for name in SCALES)
    centre = np.array([y / ys * ah + ay, x / xs * aw + ax]).astype(np.float32)
    half = np.array([0.5 * np.exp(h / hs) * ah, 0.5 * np.exp(w / ws) * aw]).astype(np.float32)
    return np.concatenate([centre - half, centre + half])


def _overlap(a: Array, b: Array) -> np.float32:
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    sides = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), np.float32(0))
    common = sides[0] * sides[1]
    return np.float32(0) if min(areas) <= 0 else np.float32(common / (areas[0] + areas[1] - common))


def _taken(op: Op, scores: Array, boxes: Array, most: int) -> list[int]:
    """The boxes of one list of scores, the best first."""
    taken = list[int]()
    for n in np.argsort(-scores, kind="stable"):
        if len(taken) == most or not scores[n] >= op.attrs["score_threshold"]:
            break
        if all(_overlap(boxes[k], boxes[n]) <= op.attrs["iou_threshold"] for k in taken):
            taken.append(int(n))
    return taken


def reference(op: Op, graph: Graph, boxes: Array, scores: Array, anchors: Array) -> Array:
    most, classes, per_class = (op.attrs[n] for n in ("most", "classes", "per_class"))
    own = scores[0, :, -classes:]
    corners = np.stack([_corners(op, b, a) for b, a in zip(boxes[0], anchors, strict=True)])
    if per_class:
        lists = ((c, _taken(op, own[:, c], corners, per_class)) for c in range(classes))
        found = sorted(((-own[n, c], c, n) for c, places in lists for n in places), key=lambda e: e[0])[:most]
    else:
        found = [(-own[n].max(), int(own[n].argmax()), n) for n in _taken(op, own.max(1), corners, most)]
    y = np.zeros(FIELDS * most + 1, np.float32)
    for i, (score, c, n) in enumerate(found):
        y[4 * i : 4 * i + 4], y[4 * most + i], y[5 * most + i] = corners[n], c, -score
    y[-1] = len(found)
    return y


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    boxes, scores, anchors = graph.operands(op)
    count, columns, (most, classes) = boxes.shape[1], scores.shape[2], (op.attrs[n] for n in ("most", "classes"))
    kept = min(op.attrs["per_class"], count)
    shape: dict[str, Any] = {"N": count, "E": boxes.shape[2], "B": columns, "M": most, "C": classes, "kept": kept}
    shape |= {"first": columns - classes, "step": columns if kept or classes == 1 else 1}
    scratch = 4 * (4 * kept + most) if kept else 4 * count * (classes > 1)
    constants = (Constant("anchors", np.asarray(anchors.data), "y, x, h, w of each box"),)
    numbers = {name: op.attrs[name] for name in NUMBERS}
    cost = 8.0 * count * (columns + most * (classes if kept else 1))
    return Kernel("detection.c.j2", f"detection_{count}x{classes}", shape, constants, numbers, scratch, estimate=cost)


SPEC = Spec(
    kind="detection",
    nest=nest,
    reference=reference,
    kernel=kernel,
    float_only=True,
    limits=(fitting,),
)
