"""How far sums may lie from an oracle's where their terms cancel: what the operands' own rounding makes of it.

A nudge may turn a comparison or a step, and then results jump by any amount. So what a nudge does counts as rounding
up to a share of the largest result only (`rounding.MOST`). A sum whose terms cancel has a small result, and rounding
of its terms moves it by more than that share. Its bound is the one of error analysis: the sum of the products of one
operand's values with what the other one may be off by (Higham, Accuracy and Stability, 3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from .. import ops
from ..ir import Array, Graph, Op
from .rounding import MOST, Rng, largest, limit, moves, nudged

ADDED = ("sum", "difference")  # functions of elements


def bounds(graph: Graph, vectors: Sequence[Sequence[Array]]) -> dict[str, float]:
    """By tensor of real numbers: the most that its rounding may be, whatever nudges tell."""

    def run(near: list[list[Array]], rng: Rng | None) -> list[dict[str, Array]]:
        moved = _nudged(graph, rng) if rng else graph
        return [{**_constants(moved), **ops.run(moved, *row)} for row in near]

    shaped = [[x.reshape(graph.tensors[n].shape) for n, x in zip(graph.inputs, row, strict=True)] for row in vectors]
    moved, found = moves(shaped, run), dict[str, float]()
    for values in run(shaped, None):
        own = {name: max(MOST * largest(value), found.get(name, 0.0)) for name, value in values.items()}
        for op in graph.ops:
            if graph.result(op).dtype == "float32":
                off = [limit(values[n], moved.get(n, 0.0), own.get(n, 0.0)) for n in op.inputs]
                name = op.outputs[0]
                own[name] = max(own.get(name, 0.0), _of_sum(op, graph, values, off))
        found |= own
    return found


def _of_sum(op: Op, graph: Graph, values: Mapping[str, Array], off: Sequence[float]) -> float:
    """How far a result may be off if its operands are by so much; 0 where the op adds nothing."""
    spec, operands = ops.SPECS[op.kind], [values[name] for name in op.inputs]
    if spec.view or spec.exact:
        return max(off, default=0.0)
    if op.kind == "add" or op.attrs.get("function") in ADDED:
        return sum(off)
    if spec.total is None and op.kind not in ("batch_matmul", "reduce_sum"):
        return 0.0
    plain = replace(op, attrs={**op.attrs, "clamp": (None, None)} if "clamp" in op.attrs else op.attrs)
    factors, bias = [np.abs(x) for x in operands[:2]], [np.zeros_like(x) for x in operands[2:]]
    bound = sum(off[2:])
    for at, far in enumerate(off[:2]):
        moved = [np.full_like(x, far) if k == at else x for k, x in enumerate(factors)]
        bound += largest(spec.reference(plain, graph, *moved, *bias))
    return bound


def _constants(graph: Graph) -> dict[str, Array]:
    return {t.name: t.data for t in graph.tensors.values() if t.data is not None and t.dtype == "float32"}


def _nudged(graph: Graph, rng: Rng) -> Graph:
    new = {name: replace(graph.tensors[name], data=nudged(x, rng)) for name, x in _constants(graph).items()}
    return replace(graph, tensors={**graph.tensors, **new})
