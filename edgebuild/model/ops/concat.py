"""CONCATENATION, Concat: the operands one after the other along one dimension."""

from __future__ import annotations

from itertools import count
from math import prod
from typing import Any

import numpy as np

from ..ir import ITEM_BYTES, Array, Graph, Op
from ..ir.axes import Dim, Nest, Offset, Same
from .base import Constant, Form, Kernel, Spec
from .slice import runs_cost


def nest(op: Op, graph: Graph) -> Nest:
    parts, axis = graph.operands(op), op.attrs["axis"]
    names = tuple(f"i{d}" for d in range(len(parts[0].shape)))
    extents = dict(zip(names, parts[0].shape, strict=True))
    extents[names[axis]] = sum(t.shape[axis] for t in parts)
    operands, start = [], 0
    for t in parts:
        dims: list[Dim] = [Same(name) for name in names]
        dims[axis] = Offset(names[axis], start, t.shape[axis])
        start += t.shape[axis]
        operands.append(tuple(dims))
    return Nest(extents, names, tuple(operands))


def reference(op: Op, graph: Graph, *parts: Array) -> Array:
    return np.concatenate(parts, axis=op.attrs["axis"])


def shapes_agree(op: Op, graph: Graph) -> str | None:
    """Operands have the same shape but along the axis."""
    rest = {(*t.shape[: op.attrs["axis"]], *t.shape[op.attrs["axis"] + 1 :]) for t in graph.operands(op)}
    return f"shapes {[t.shape for t in graph.operands(op)]}" if len(rest) > 1 else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """Runs of bytes: `outer` times, one run from each operand. Activations are x0, x1, ..., constants c0, c1, ..."""
    parts, axis = graph.operands(op), op.attrs["axis"]
    size = ITEM_BYTES[parts[0].dtype]
    runs = tuple(prod(t.shape[axis:]) * size for t in parts)
    starts = tuple(sum(runs[:i]) for i in range(len(runs)))
    outer = prod(parts[0].shape[2 if form.rolled else 0 : axis])
    shape: dict[str, Any] = {"outer": outer, "runs": runs, "starts": starts, "step": sum(runs)}
    activations = sum(not t.constant for t in parts)
    computed, constant = iter(["x"] if activations == 1 else [f"x{i}" for i in range(activations)]), count()
    shape["operands"] = tuple(f"c{next(constant)}" if t.constant else next(computed) for t in parts)
    constants = [
        Constant(n, t.data, "operand") for n, t in zip(shape["operands"], parts, strict=True) if t.data is not None
    ]
    cost = sum(runs_cost((outer, run // size), size) for run in runs)
    return Kernel("concat.c.j2", f"concat_{len(parts)}", shape, tuple(constants), placed=form.rolled, estimate=cost)


SPEC = Spec(
    kind="concat",
    nest=nest,
    reference=reference,
    kernel=kernel,
    rows=lambda op, graph: "each" if op.attrs["axis"] > 1 and not any(t.constant for t in graph.operands(op)) else "",
    exact=True,
    limits=(shapes_agree,),
)
