"""GatherElements, ScatterElements, ScatterND, DYNAMIC_UPDATE_SLICE: elements or rows at places of their own.

`scatter` is y = x with rows of the third operand at the places of the second, one after another; `scatter_reduce` joins
them with those that are there. Readers make one place in a table of rows of all the indices that a file gives for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Same, Whole
from . import pointwise
from .base import Constant, Form, Kernel, Spec
from .gather import INDICES, wrapped

# How a row joins the one that is there, and the numpy meaning.
JOINS: dict[str, tuple[str, Any]] = {
    "none": ("next", lambda before, after: after),
    "add": ("before + next", np.add),
    "mul": ("before * next", np.multiply),
    "max": ("next > before ? next : before", np.maximum),
    "min": ("next < before ? next : before", np.minimum),
}


def nest(op: Op, graph: Graph) -> Nest:
    """Rows of any number may be written; columns have nothing to do with each other."""
    x, _, update = graph.operands(op)
    operands = ((Whole(x.shape[0]), Same("c")), (Whole(update.shape[0]),), (Whole(update.shape[0]), Same("c")))
    return Nest({"r": x.shape[0], "c": x.shape[1]}, ("r", "c"), operands)


def reference(op: Op, graph: Graph, x: Array, index: Array, update: Array) -> Array:
    y, join = x.copy(), JOINS[op.attrs["reduction"]][1]
    for at, row in zip(wrapped(index, len(x)), update, strict=True):
        y[at] = join(y[at], row)
    return y


def whole_places(op: Op, graph: Graph) -> str | None:
    """Places are whole numbers, which are kept inside of the table; updates are of its type."""
    x, index, update = graph.operands(op)
    fits = index.dtype in INDICES and index.quant is None and update.dtype == x.dtype
    return None if fits else f"indices are {index.dtype}, updates {update.dtype} of a table of {x.dtype}"


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    operands = graph.operands(op)
    x, index, _ = operands
    names = pointwise.operand_names(operands)
    shape: dict[str, Any] = dict(zip(("table", "index", "update"), names, strict=True))
    shape |= {
        "rows": x.shape[0],
        "run": x.shape[1],
        "N": index.elements,
        "bytes": x.bytes,
        "row_bytes": x.bytes // x.shape[0],
    }
    shape["join"] = JOINS[op.attrs["reduction"]][0]
    constants = (Constant(n, t.data, "operand") for n, t in zip(names, operands, strict=True) if t.data is not None)
    cost = 20.0 + 1.5 * x.elements + index.elements * (10.0 + 6.0 * x.shape[1])
    return Kernel("scatter.c.j2", f"{op.kind}_{x.shape[0]}x{x.shape[1]}", shape, tuple(constants), estimate=cost)


SPEC = Spec(
    kind="scatter",
    nest=nest,
    reference=reference,
    kernel=kernel,
    exact=True,
    limits=(whole_places,),
)
REDUCE = replace(SPEC, kind="scatter_reduce", exact=False, float_only=True, plain=True)
