"""Classical models: forests of decision trees, support vector machines, and non-maximum suppression of boxes."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from .base import C_TYPES, Constant, Form, Kernel, Spec, is_float, lettered

# Ensembles of decision trees: out[n, k] = sum over trees of the weights for target k in the leaf that sample n reaches.
#
# Operands after x are tables. Per node: `feature` (-1: a leaf), `threshold`, and the next node if x[feature] <=
# threshold (`yes`) or not (`no`). In a leaf, `yes` and `no` are the range of its entries in the tables `target` and
# `weight`. `missing`, if present, marks the nodes at which a NaN counts as below the threshold.

TABLES = ("feature", "threshold", "yes", "no", "root", "target", "weight", "missing")
NOTES = {"feature": "-1: a leaf", "yes": "next if not above; of a leaf its first entry", "root": "of every tree",
         "no": "next if above; of a leaf past its last entry", "target": "of an entry"}  # fmt: skip


def trees_reference(op: Op, graph: Graph, x: Array, *tables: Array) -> Array:
    t = dict(zip(TABLES, tables, strict=False))
    y = np.zeros((len(x), op.attrs["targets"]), np.float32)
    for sample, total in zip(x, y, strict=True):
        for root in t["root"]:
            at = int(root)
            while t["feature"][at] >= 0:
                value = sample[t["feature"][at]]
                below = value <= t["threshold"][at] or ("missing" in t and t["missing"][at] and np.isnan(value))
                at = int(t["yes"][at] if below else t["no"][at])
            for entry in range(int(t["yes"][at]), int(t["no"][at])):
                total[t["target"][entry]] += t["weight"][entry]
    return y


def rows_and_tables(op: Op, graph: Graph) -> str | None:
    """Samples are rows of float32."""
    x = graph.operands(op)[0]
    bad = not is_float(x) or len(x.shape) != 2 or any(not t.constant for t in graph.operands(op)[1:])
    return f"input {x.dtype} of shape {x.shape}" if bad else None


def trees_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, *tables = graph.operands(op)
    named = dict(zip(TABLES, tables, strict=False))
    trees = named["root"].elements
    shape: dict[str, Any] = {"N": x.shape[0], "F": x.shape[1], "K": op.attrs["targets"], "T": trees}
    shape |= {"missing": "missing" in named, "place": C_TYPES[named["feature"].dtype]}
    constants = tuple(Constant(n, t.data, NOTES.get(n, "")) for n, t in named.items() if t.data is not None)
    depth = max(1, int(np.log2(named["feature"].elements / trees + 1)))
    stem = f"trees_{trees}x{x.shape[1]}"
    return Kernel("classifiers.c:trees", stem, shape, constants, estimate=12.0 * x.shape[0] * trees * depth)


TREES = Spec(
    "trees", lettered("n* -> nk", k=lambda op, graph: op.attrs["targets"]), trees_reference, trees_kernel,
    float_only=True, limits=(rows_and_tables,),
)  # fmt: skip


# Squared distances to vectors, and probabilities of classes from pairs: for support vector machines.
#
# `distances`: out[n, v] = sum over f of (x[n, f] - vectors[v, f])^2. `coupling`: probabilities of `classes` classes
# from a number x for each pair (0, 1), (0, 2), ..., (1, 2), ...; 1 - sigmoid(x) is the first's probability: Wu, Lin
# and Weng, "Probability estimates for multi-class classification by pairwise coupling", JMLR 2004, algorithm 2, with
# libsvm's stop at an error of 0.005 / classes.

MAX_TURNS, ERROR, MAX_CLASSES = 100, 0.005, 32
MIN_PROBABILITY = 1e-7  # lower limit of the probability of one class against another


def rows_of_floats(op: Op, graph: Graph) -> str | None:
    """Samples and constant vectors are rows of float32 of one length."""
    x, vectors = graph.operands(op)
    fits = is_float(x) and len(x.shape) == 2 and vectors.constant and vectors.shape[1:] == x.shape[1:]
    return None if fits else f"{x.dtype} of shape {x.shape}, vectors of shape {vectors.shape}"


def kernel_machine_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, vectors = graph.operands(op)
    shape: dict[str, Any] = {"N": x.shape[0], "F": x.shape[1], "V": vectors.shape[0]}
    constants = (Constant("vectors", vectors.array, "one a row"),)
    cost = 6.0 * shape["N"] * shape["F"] * shape["V"]
    return Kernel("classifiers.c:distances", f"distances_{shape['V']}x{shape['F']}", shape, constants, estimate=cost)


def coupled(op: Op, graph: Graph, x: Array) -> Array:
    with np.errstate(over="ignore"):
        first = 1 - 1 / (1 + np.exp(-x.astype(np.float32)))
    rows = np.clip(first, np.float32(MIN_PROBABILITY), np.float32(1) - np.float32(MIN_PROBABILITY))
    return np.array([_shares(row, op.attrs["classes"]) for row in rows], np.float32)


def _shares(pairs: Array, count: int) -> Array:
    first = np.zeros((count, count), np.float32)  # [i, j]: probability of i against j
    for (i, j), value in zip(combinations(range(count), 2), pairs, strict=True):
        first[i, j], first[j, i] = value, np.float32(1) - value
    matrix = -first * first.T
    np.fill_diagonal(matrix, (first**2).sum(0))
    share = np.full(count, np.float32(1 / count))
    for _ in range(MAX_TURNS):
        slopes = matrix @ share
        mean = share @ slopes
        if np.abs(slopes - mean).max() < ERROR / count:
            break
        for k in range(count):
            step = (mean - slopes[k]) / matrix[k, k]
            mean = (mean + step * (step * matrix[k, k] + 2 * slopes[k])) / (1 + step) ** 2
            share[k] += step
            share, slopes = share / (1 + step), (slopes + step * matrix[k]) / (1 + step)
    return np.asarray(share)


def few_classes(op: Op, graph: Graph) -> str | None:
    """Numbers of pairs are rows of float32, of 2 to 32 classes."""
    (x,), count = graph.operands(op), op.attrs["classes"]
    fits = 2 <= count <= MAX_CLASSES and is_float(x) and x.shape[1:] == (count * (count - 1) // 2,)
    return None if fits else f"{count} classes, {x.dtype} of shape {x.shape}"


def coupling_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), count = graph.operands(op), op.attrs["classes"]
    shape: dict[str, Any] = {"N": x.shape[0], "K": count, "P": x.shape[1], "turns": MAX_TURNS, "error": ERROR / count}
    shape["least"] = MIN_PROBABILITY
    return Kernel("classifiers.c:coupling", f"coupling_{count}", shape, estimate=60.0 * x.shape[0] * count**2)


DISTANCES = Spec(
    "distances", lettered("n* v* -> nv"),
    lambda op, graph, x, vectors: np.asarray(((x[:, None] - vectors) ** 2).sum(-1, dtype=np.float32)),
    kernel_machine_kernel, float_only=True, limits=(rows_of_floats,),
)  # fmt: skip
COUPLING = Spec(
    "coupling", lettered("n* -> nk", k=lambda op, graph: op.attrs["classes"]), coupled, coupling_kernel,
    float_only=True, limits=(few_classes,),
)  # fmt: skip


# TFLite_Detection_PostProcess: decodes the boxes of an SSD head and drops those that overlap better ones.
#
# `detection` gives one vector: M boxes (ymin, xmin, ymax, xmax), their classes, their scores, and how many there are.
# The rest is 0. Boxes are chosen in order of their scores, and only then decoded. A box is dropped if it overlaps a
# chosen one by more than `iou_threshold` (intersection over union). `per_class`: at most this many boxes of each class,
# chosen class by class; 0: a box has its best class only. No list is sorted, to save scratch memory.

SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")
NUMBERS = {"score_threshold": "nms_score_threshold", "iou_threshold": "nms_iou_threshold", **{n: n for n in SCALES}}
FIELDS = 6  # floats of a box in the result: corners, class, score


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
    """Corners (ymin, xmin, ymax, xmax) of a box in float32, from terms in double precision, as in TFLM."""
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


def _best_boxes(op: Op, scores: Array, boxes: Array, most: int) -> list[int]:
    """Indices of at most `most` boxes chosen by one list of scores, best first."""
    chosen = list[int]()
    for n in np.argsort(-scores, kind="stable"):
        if len(chosen) == most or not scores[n] >= op.attrs["score_threshold"]:
            break
        if all(_overlap(boxes[k], boxes[n]) <= op.attrs["iou_threshold"] for k in chosen):
            chosen.append(int(n))
    return chosen


def detection_reference(op: Op, graph: Graph, boxes: Array, scores: Array, anchors: Array) -> Array:
    most, classes, per_class = (op.attrs[n] for n in ("most", "classes", "per_class"))
    own = scores[0, :, -classes:]
    corners = np.stack([_corners(op, b, a) for b, a in zip(boxes[0], anchors, strict=True)])
    if per_class:
        lists = ((c, _best_boxes(op, own[:, c], corners, per_class)) for c in range(classes))
        boxes_of = sorted(((-own[n, c], c, n) for c, places in lists for n in places), key=lambda e: e[0])[:most]
    else:
        boxes_of = [(-own[n].max(), int(own[n].argmax()), n) for n in _best_boxes(op, own.max(1), corners, most)]
    y = np.zeros(FIELDS * most + 1, np.float32)
    for i, (score, c, n) in enumerate(boxes_of):
        y[4 * i : 4 * i + 4], y[4 * most + i], y[5 * most + i] = corners[n], c, -score
    y[-1] = len(boxes_of)
    return y


def detection_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    boxes, scores, anchors = graph.operands(op)
    count, columns, (most, classes) = boxes.shape[1], scores.shape[2], (op.attrs[n] for n in ("most", "classes"))
    kept = min(op.attrs["per_class"], count)
    shape: dict[str, Any] = {"N": count, "E": boxes.shape[2], "B": columns, "M": most, "C": classes, "kept": kept}
    shape |= {"first": columns - classes, "step": columns if kept or classes == 1 else 1}
    scratch = 4 * (4 * kept + most) if kept else 4 * count * (classes > 1)
    constants = (Constant("anchors", np.asarray(anchors.data), "y, x, h, w of each box"),)
    numbers = {name: op.attrs[name] for name in NUMBERS}
    cost = 8.0 * count * (columns + most * (classes if kept else 1))
    return Kernel(
        "classifiers.c:detection", f"detection_{count}x{classes}", shape, constants, numbers, scratch, estimate=cost
    )


DETECTION = Spec(
    "detection", lettered("-> i", i=lambda op, graph: FIELDS * op.attrs["most"] + 1), detection_reference,
    detection_kernel, float_only=True, limits=(fitting,),
)  # fmt: skip
