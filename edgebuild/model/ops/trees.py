"""Ensembles of decision trees: out[n, k] = sum over trees of what the leaf that sample n comes to says of target k.

Operands behind x are tables. Of every node: the feature (-1: a leaf), the threshold, and where to go on if
x[feature] <= threshold and if not. A leaf has its first entry and the one past its last there, in the tables `target`
and `weight`. `missing`, if it is there, says which nodes a NaN leaves as if it were below the threshold.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Dim, Nest, Same, Whole
from .base import C_TYPES, Constant, Form, Kernel, Spec, is_float

TABLES = ("feature", "threshold", "yes", "no", "root", "target", "weight", "missing")
NOTES = {"feature": "-1: a leaf", "yes": "next if not above; of a leaf its first entry", "root": "of every tree",
         "no": "next if above; of a leaf past its last entry", "target": "of an entry"}  # fmt: skip


def nest(op: Op, graph: Graph) -> Nest:
    x, *tables = graph.operands(op)
    extents = {"n": x.shape[0], "k": op.attrs["targets"]}
    operands: list[tuple[Dim, ...]] = [(Same("n"), Whole(prod(x.shape[1:])))]
    return Nest(extents, ("n", "k"), (*operands, *(tuple(Whole(n) for n in t.shape) for t in tables)))


def reference(op: Op, graph: Graph, x: Array, *tables: Array) -> Array:
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


def known_tables(op: Op, graph: Graph) -> str | None:
    """Samples are rows of float32."""
    x = graph.operands(op)[0]
    bad = not is_float(x) or len(x.shape) != 2 or any(not t.constant for t in graph.operands(op)[1:])
    return f"input {x.dtype} of shape {x.shape}" if bad else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, *tables = graph.operands(op)
    named = dict(zip(TABLES, tables, strict=False))
    trees = named["root"].elements
    shape: dict[str, Any] = {"N": x.shape[0], "F": x.shape[1], "K": op.attrs["targets"], "T": trees}
    shape |= {"missing": "missing" in named, "place": C_TYPES[named["feature"].dtype]}
    constants = tuple(Constant(n, t.data, NOTES.get(n, "")) for n, t in named.items() if t.data is not None)
    depth = max(1, int(np.log2(named["feature"].elements / trees + 1)))
    stem = f"trees_{trees}x{x.shape[1]}"
    return Kernel("trees.c.j2", stem, shape, constants, estimate=12.0 * x.shape[0] * trees * depth)


SPEC = Spec(kind="trees", nest=nest, reference=reference, kernel=kernel, float_only=True, limits=(known_tables,))
