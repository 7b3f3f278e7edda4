"""SVMClassifier and SVMRegressor of ai.onnx.ml, as skl2onnx writes SVC, NuSVC, SVR, NuSVR and OneClassSVM of
scikit-learn: one kernel function for all support vectors, a matrix of coefficients, and votes.
"""

from __future__ import annotations

from itertools import accumulate, combinations
from typing import Any

import numpy as np

from ...ir import Array
from ...ops.pointwise import attributes

OPEN = (None, None)
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
MOST_DEGREE = 8


def _operands(node: Any, count: int, weights: Array) -> list[str]:
    """Of the dense layer that weighs the kernel function of every sample and every support vector.

    Of a linear machine all vectors are one: a sum of products has no need of them, and is rounded less.
    """
    kind, x = node.attr("kernel_type", "LINEAR"), node.inputs[0]
    degree = _parameters(node)[2]
    vectors = node.floats("support_vectors")
    if kind not in KERNELS or (kind == "POLY" and degree not in range(1, MOST_DEGREE + 1)):
        raise node.error(f"kernel {kind}, degree {degree}", f"supported: {', '.join(KERNELS)}; degrees 1 to 8")
    if count < 1 or len(node.tensor(0).shape) != 2 or vectors.size != count * node.tensor(0).shape[1]:
        seen = f"{vectors.size} numbers of {count} support vectors, input of shape {node.tensor(0).shape}"
        raise node.error(seen, "rows of features; for a machine without support vectors export a linear model")
    x = x if node.tensor(0).dtype == "float32" else node.inner("cast", [x], to="float32")
    vectors = vectors.reshape(count, -1)
    if kind == "LINEAR":
        return [x, node.array((weights.astype(np.float64) @ vectors.astype(np.float64)).astype(np.float32))]
    return [_kernels(node, x, vectors), node.array(weights)]


def _kernels(node: Any, x: str, vectors: Array) -> str:
    kind, count = node.attr("kernel_type", "LINEAR"), len(vectors)
    gamma, offset, degree = _parameters(node)
    if kind == "RBF":
        apart = node.inner("distances", [x, node.array(vectors)])
        scaled = node.inner("mul", [apart, node.array(np.float32(-gamma))], clamp=OPEN)
        return str(node.inner("pointwise", [scaled], **attributes("exp")))
    weights = node.array(vectors * np.float32(gamma))
    inner = node.inner("dense", [x, weights, node.array(np.full(count, offset, np.float32))], clamp=OPEN)
    if kind == "SIGMOID":
        return str(node.inner("pointwise", [inner], **attributes("tanh")))
    power = inner
    for _ in range(int(degree) - 1):
        power = node.inner("mul", [power, inner], clamp=OPEN)
    return str(power)


def _parameters(node: Any) -> tuple[float, float, float]:
    """Gamma, offset, degree."""
    gamma, offset, degree = (*node.attr("kernel_params", []), 0.0, 0.0, 3.0)[:3]
    return gamma, offset, degree


def _fitting(node: Any, name: str, size: int) -> Array:
    values = node.floats(name)
    if values.size != size:
        raise node.error(f"{values.size} {name}", f"{size} are needed")
    return values


def regressor(node: Any) -> None:
    """The sum of weighted kernels; of one class, 1 inside and -1 outside."""
    if node.attr("post_transform", "NONE") != "NONE":
        raise node.error(f"post_transform {node.attr('post_transform', '')}", "NONE is supported")
    count = node.attr("n_supports", 0)
    operands = _operands(node, count, _fitting(node, "coefficients", count)[None])
    operands.append(node.array(_fitting(node, "rho", 1)))
    if not node.attr("one_class", 0):
        return node.emit("dense", operands, clamp=OPEN)
    total = node.inner("dense", operands, clamp=OPEN)
    inside = node.inner("pointwise", [total, node.array(np.float32(0))], **attributes("greater"))
    choice = [inside, *(node.array(np.full((1, 1), v, np.float32)) for v in (1, -1))]
    node.emit("pointwise", choice, **{**attributes("where"), "to": "float32"})


def classifier(node: Any) -> None:
    """Of each pair of classes one gets a vote; the first of those with most is the label.

    Scores are those of the pairs, of two classes -s and s; or shares, if the file has probabilities.
    """
    own = node.attr("vectors_per_class", [])
    labels = np.array(node.attr("classlabels_ints", []), np.int64)
    classes = labels.size or len(node.attr("classlabels_strings", []))
    if classes < 2 or len(own) != classes or min(own) < 0 or node.attr("post_transform", "NONE") != "NONE":
        seen = f"{classes} classes, support vectors of {len(own)}, post_transform {node.attr('post_transform', 'NONE')}"
        raise node.error(seen, "classes have support vectors; post_transform is NONE")
    pairs = list(combinations(range(classes), 2))
    weights = _pair_weights(_fitting(node, "coefficients", (classes - 1) * sum(own)), own, pairs)
    rho = node.array(_fitting(node, "rho", len(pairs)))
    scores = node.inner("dense", [*_operands(node, sum(own), weights), rho], clamp=OPEN)
    if labels.size and node.outputs[0]:
        _label(node, scores, labels, pairs)
    if len(node.outputs) < 2 or not node.outputs[1]:
        return
    if node.attr("prob_a", []):
        a, b = (node.array(_fitting(node, name, len(pairs))) for name in ("prob_a", "prob_b"))
        line = node.inner("add", [node.inner("mul", [scores, a], clamp=OPEN), b], clamp=OPEN)
        node.emit("coupling", [line], output=1, classes=classes)
    elif classes == 2:
        both = node.array(np.array([[-1.0, 1.0]], np.float32))
        node.emit("mul", [scores, both], output=1, clamp=OPEN)
    else:
        node.emit("reshape", [scores], output=1, shape=node.builder.tensors[scores].shape)


def _pair_weights(coefficients: Array, own: list[int], pairs: list[tuple[int, int]]) -> Array:
    """(pairs, vectors): the file has a row for each class but one, with a gap where a class meets itself."""
    table, ends = coefficients.reshape(-1, sum(own)), list(accumulate(own))
    weights = np.zeros((len(pairs), sum(own)), np.float32)
    for row, (i, j) in zip(weights, pairs, strict=True):
        for of, against in ((i, j - 1), (j, i)):
            place = slice(ends[of] - own[of], ends[of])
            row[place] = table[against, place]
    return weights


def _label(node: Any, scores: str, labels: Array, pairs: list[tuple[int, int]]) -> None:
    won = node.inner("pointwise", [scores, node.array(np.float32(0))], **attributes("greater"))
    votes = np.zeros((labels.size, len(pairs)), np.float32)
    for p, (i, j) in enumerate(pairs):
        votes[i, p], votes[j, p] = 1, -1
    start = node.array(np.maximum(-votes, 0).sum(1))
    total = node.inner("dense", [node.inner("cast", [won], to="float32"), node.array(votes), start], clamp=OPEN)
    best = node.inner("arg", [total], axis=1, largest=True, last=False, to="int64")
    node.emit("gather", [node.array(labels), best], axis=0, batch=0)


SVM_READERS = {"SVMClassifier": classifier, "SVMRegressor": regressor}
