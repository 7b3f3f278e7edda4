"""GatherElements, ScatterElements, ScatterND, DYNAMIC_UPDATE_SLICE: elements or rows at places of their own.

`scatter` is y = x with rows of the third operand at the places of the second, one after another; `scatter_reduce` joins
them with those that are there. Readers make one place in a table of rows of all the indices that a file gives for it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Same, Whole
from . import loops, pointwise
from .base import Constant, Form, Kernel, Spec
from .gather import INDICES, wrapped
from .moves import axis_of, taken_along

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


def _places(node: Any, sizes: Array, steps: Array, rest: Array | None) -> Array | str:
    """The places index * steps + rest of the node's indices, which may count from the end of `sizes`.

    Without a rest they are added up along their last dimension. Known places are an array, others a tensor's name.
    """
    index = node.tensor(1)
    if index.data is not None:
        at = index.data.astype(np.int64)
        if (at < -sizes).any() or (at >= sizes).any():
            raise node.error(f"indices {at.min()} to {at.max()} in {np.ravel(sizes).tolist()}")
        return np.asarray((at % sizes * steps).sum(-1) if rest is None else at % sizes * steps + rest)
    numbers = [node.array(np.asarray(n, np.int32)) for n in (0, sizes, steps, 0 if rest is None else rest)]
    name = node.inputs[1] if index.dtype == "int32" else node.inner("cast", [node.inputs[1]], to="int32")
    below = node.inner("pointwise", [name, numbers[0]], **pointwise.attributes("less"))
    around = node.inner("pointwise", [name, numbers[1]], **pointwise.attributes("sum"))
    name = node.inner("pointwise", [below, around, name], **{**pointwise.attributes("where"), "to": "int32"})
    name = node.inner("pointwise", [name, numbers[2]], **pointwise.attributes("product"))
    if rest is None:
        return str(node.inner("reduce_sum", [name], axes=(len(index.shape) - 1,)))
    return str(node.inner("pointwise", [name, numbers[3]], **pointwise.attributes("sum")))


def _element_places(node: Any) -> Array | str:
    """Of elements that have the place of their index along all axes but one."""
    shape, index = node.tensor(0).shape, node.tensor(1)
    axis = axis_of(node, node.attr("axis", 0), len(shape))
    if len(index.shape) != len(shape) or any(
        n > m for n, m in zip(index.shape, shape, strict=True) if m != shape[axis]
    ):
        raise node.error(f"indices of shape {index.shape} in {shape}", "as many dimensions, and none of them larger")
    steps, places = loops.steps(shape), np.indices(index.shape)
    rest = sum(places[d] * steps[d] for d in range(len(shape)) if d != axis)
    return _places(node, np.array(shape[axis]), np.array(steps[axis]), np.zeros(index.shape, np.int64) + rest)


def gather_elements(node: Any) -> None:
    places, x = _element_places(node), node.tensor(0)
    flat = node.reshaped(node.inputs[0], (x.elements,))
    if isinstance(places, str):
        return node.emit("gather", [flat, places], axis=0, batch=0)
    taken_along(node, 0, places, places.shape, flat)


def scatter_elements(node: Any) -> None:
    _scattered(node, _element_places(node), (node.tensor(0).elements, 1), 2, node.attr("reduction", "none"))


def scatter_rows(node: Any) -> None:
    """ScatterND: the last dimension of the indices is a place in the first dimensions of the tensor."""
    shape = node.tensor(0).shape
    depth = node.tensor(1).shape[-1]
    sizes, steps = np.array(shape[:depth]), np.array(loops.steps(shape[:depth]))
    table = prod(shape[:depth]), prod(shape[depth:])
    _scattered(node, _places(node, sizes, steps, None), table, 2, node.attr("reduction", "none"))


def update_slice(node: Any) -> None:
    """DYNAMIC_UPDATE_SLICE: a part put to a place that is kept such that all of the part is inside."""
    x, part, start = (node.tensor(i) for i in range(3))
    if len(part.shape) != len(x.shape) or any(n > m for n, m in zip(part.shape, x.shape, strict=True)):
        raise node.error(f"a part of shape {part.shape} in {x.shape}", "as many dimensions, and none of them larger")
    depth = max((d + 1 for d, n in enumerate(part.shape) if n < x.shape[d]), default=0)
    if start.elements != len(x.shape) or not depth:
        return node.emit("reshape", node.inputs[1:2], shape=x.shape)
    steps = np.array(loops.steps(x.shape[:depth]), np.int32)
    rest = np.tensordot(steps, np.indices(part.shape[:depth]), 1).ravel()
    most = np.array([m - n for m, n in zip(x.shape, part.shape, strict=True)][:depth], np.int32)
    table = prod(x.shape[:depth]), prod(x.shape[depth:])
    if start.data is not None:
        places: Array | str = (np.clip(start.data[:depth], 0, most) * steps).sum() + rest
        return _scattered(node, places, table, 1, "none")
    name = node.inner("take", [node.inputs[2]], index=(tuple(range(depth)),))
    name = name if start.dtype == "int32" else node.inner("cast", [name], to="int32")
    for function, numbers in (("maximum", np.zeros(depth, np.int32)), ("minimum", most), ("product", steps)):
        name = node.inner("pointwise", [name, node.array(numbers)], **pointwise.attributes(function))
    total = node.reshaped(node.inner("reduce_sum", [name], axes=(0,)), (1,))
    places = node.inner("pointwise", [total, node.array(rest.astype(np.int32))], **pointwise.attributes("sum"))
    _scattered(node, places, table, 1, "none")


def _scattered(node: Any, places: Array | str, table: tuple[int, int], update: int, reduction: str) -> None:
    """Rows that replace others at known places are moved there; of those that meet, the last."""
    if reduction not in JOINS:
        raise node.error(f"reduction {reduction}", f"supported: {', '.join(JOINS)}")
    (rows, run), shape = table, node.tensor(0).shape
    count = node.tensor(update).elements // run
    names = [node.reshaped(node.inputs[0], table), node.reshaped(node.inputs[update], (count, run))]
    if reduction == "none" and not isinstance(places, str):
        index = np.arange(rows)
        index[places.ravel()] = rows + np.arange(count)
        return taken_along(node, 0, index, shape, node.inner("concat", names, axis=0))
    at = node.array(places.ravel().astype(np.int32)) if not isinstance(places, str) else node.reshaped(places, (count,))
    kind = "scatter" if reduction == "none" else "scatter_reduce"
    node.emit_as(kind, [names[0], at, names[1]], shape, reduction=reduction)


SPEC = Spec(
    kind="scatter",
    nest=nest,
    reference=reference,
    kernel=kernel,
    tflite={"DYNAMIC_UPDATE_SLICE": update_slice},
    onnx={"GatherElements": gather_elements, "ScatterElements": scatter_elements, "ScatterND": scatter_rows},
    exact=True,
    limits=(whole_places,),
)
REDUCE = replace(SPEC, kind="scatter_reduce", tflite={}, onnx={}, exact=False, float_only=True, plain=True)
