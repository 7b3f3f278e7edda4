"""Squared distances to vectors, and pairs of classes as shares: what support vector machines need besides products.

`distances`: out[n, v] = sum over f of (x[n, f] - vectors[v, f])^2. `coupling`: probabilities of `classes` classes from
numbers x of every pair (0, 1), (0, 2), ..., (1, 2), ..., of which 1 - sigmoid(x) is that of the first: Wu, Lin and
Weng, "Probability estimates for multi-class classification by pairwise coupling", JMLR 2004, algorithm 2, with
libsvm's end at an error of 0.005 / classes.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Same, Whole
from .base import Constant, Form, Kernel, Spec, is_float

MOST_TURNS, ERROR, MOST_CLASSES = 100, 0.005, 32
LEAST = 1e-7  # of a probability of one class against another


def nest(op: Op, graph: Graph) -> Nest:
    x, vectors = graph.operands(op)
    extents = {"n": x.shape[0], "v": vectors.shape[0]}
    return Nest(extents, ("n", "v"), ((Same("n"), Whole(x.shape[1])), (Same("v"), Whole(vectors.shape[1]))))


def reference(op: Op, graph: Graph, x: Array, vectors: Array) -> Array:
    return np.asarray(((x[:, None] - vectors) ** 2).sum(-1, dtype=np.float32))


def rows_of_floats(op: Op, graph: Graph) -> str | None:
    """Samples and constant vectors are rows of float32 of one length."""
    x, vectors = graph.operands(op)
    fits = is_float(x) and len(x.shape) == 2 and vectors.constant and vectors.shape[1:] == x.shape[1:]
    return None if fits else f"{x.dtype} of shape {x.shape}, vectors of shape {vectors.shape}"


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, vectors = graph.operands(op)
    shape: dict[str, Any] = {"N": x.shape[0], "F": x.shape[1], "V": vectors.shape[0]}
    assert vectors.data is not None
    constants = (Constant("vectors", vectors.data, "one a row"),)
    cost = 6.0 * shape["N"] * shape["F"] * shape["V"]
    return Kernel("distances.c.j2", f"distances_{shape['V']}x{shape['F']}", shape, constants, estimate=cost)


def coupling_nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    return Nest({"n": x.shape[0], "k": op.attrs["classes"]}, ("n", "k"), ((Same("n"), Whole(x.shape[1])),))


def coupled(op: Op, graph: Graph, x: Array) -> Array:
    with np.errstate(over="ignore"):
        first = 1 - 1 / (1 + np.exp(-x.astype(np.float32)))
    rows = np.clip(first, np.float32(LEAST), np.float32(1) - np.float32(LEAST))
    return np.array([_shares(row, op.attrs["classes"]) for row in rows], np.float32)


def _shares(pairs: Array, count: int) -> Array:
    first = np.zeros((count, count), np.float32)  # how probable i is against j
    for (i, j), value in zip(combinations(range(count), 2), pairs, strict=True):
        first[i, j], first[j, i] = value, np.float32(1) - value
    matrix = -first * first.T
    np.fill_diagonal(matrix, (first**2).sum(0))
    share = np.full(count, np.float32(1 / count))
    for _ in range(MOST_TURNS):
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
    fits = 2 <= count <= MOST_CLASSES and is_float(x) and x.shape[1:] == (count * (count - 1) // 2,)
    return None if fits else f"{count} classes, {x.dtype} of shape {x.shape}"


def coupling_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), count = graph.operands(op), op.attrs["classes"]
    shape: dict[str, Any] = {"N": x.shape[0], "K": count, "P": x.shape[1], "turns": MOST_TURNS, "error": ERROR / count}
    shape["least"] = LEAST
    return Kernel("coupling.c.j2", f"coupling_{count}", shape, estimate=60.0 * x.shape[0] * count**2)


DISTANCES = Spec(
    kind="distances", nest=nest, reference=reference, kernel=kernel, float_only=True, limits=(rows_of_floats,)
)
COUPLING = Spec(
    kind="coupling",
    nest=coupling_nest,
    reference=coupled,
    kernel=coupling_kernel,
    float_only=True,
    limits=(few_classes,),
)
