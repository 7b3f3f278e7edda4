"""Sums, products and extremes over some dimensions, where and how large the extremes are.

`reduce_*` drop the dimensions `axes`. `arg` gives the index of the largest or smallest element along `axis`, `topk` the
`k` largest or smallest in order, or their indices; what is not a number is larger than all numbers.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Same, Whole
from . import intervals, loops, reduction
from .base import UNSIGNED, Form, Kernel, Spec, is_float
from .functions import WORDS, WRAPPED

# How a further element joins, and the numpy meaning.
JOINS = {
    "reduce_sum": ("result + next", np.sum),
    "reduce_prod": ("result * next", np.prod),
    "reduce_max": ("(next > result ? next : result)", np.max),
    "reduce_min": ("(next < result ? next : result)", np.min),
}
EXTREMES = ("reduce_max", "reduce_min")


def reference(op: Op, graph: Graph, x: Array) -> Array:
    y, meaning = graph.result(op), JOINS[op.kind][1]
    wide = x.astype(np.float64) if is_float(y) and op.kind not in EXTREMES else x
    return np.asarray(meaning(wide, axis=tuple(op.attrs["axes"]))).astype(y.dtype)  # type: ignore[operator]


def plain_numbers(op: Op, graph: Graph) -> str | None:
    """Sums and products are of floats and plain integers; extremes of any values, with one scale."""
    x, y = graph.operands(op)[0], graph.result(op)
    if x.dtype in UNSIGNED:
        return f"values of type {x.dtype}"
    if op.kind in EXTREMES:
        return None if x.quant == y.quant else f"scales {x.quant} and {y.quant}"
    return f"{op.kind} of quantised values" if x.quant is not None else None


def _wrapped(kind: str, dtype: str) -> str:
    """C for a sum or product of integers that leave their type at one end and go on at the other; "": of others."""
    function = {"reduce_sum": "sum", "reduce_prod": "product"}.get(kind, "")
    word = WORDS.get(dtype, "")
    return WRAPPED[function].replace("{word}", word).format("result", "next") if word and function else ""


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """Extremes begin at the first element; those of TFLite's floats at a finite number."""
    (x,) = graph.operands(op)
    steps, axes = loops.steps(x.shape), op.attrs["axes"]
    kept = [d for d in range(len(x.shape)) if d not in axes]
    shape: dict[str, Any] = {
        "kept": loops.collapsed([x.shape[d] for d in kept], [steps[d] for d in kept]),
        "reduced": loops.collapsed([x.shape[d] for d in axes], [steps[d] for d in axes]),
        "join": _wrapped(op.kind, x.dtype) or JOINS[op.kind][0],
        "parts": loops.parts(prod(x.shape[d] for d in axes), is_float(x) and op.kind == "reduce_sum"),
    }
    begun = is_float(x) and graph.arithmetic.finite
    shape["start"] = {"reduce_max": "-", "reduce_min": "+"}.get(op.kind, "") if begun else ""
    stem = f"{op.kind}_{'x'.join(map(str, x.shape)) or 1}"
    return Kernel("reduce.c.j2", stem, shape, estimate=6.0 * x.elements)


# Places of extremes --------------------------------------------------------------------------


def line_nest(op: Op, graph: Graph) -> Nest:
    """Every result may need the whole line along the axis: the first dimension of size 1, or of the k best."""
    (x,), axis = graph.operands(op), op.attrs["axis"]
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    extents = dict(zip(names, x.shape, strict=True)) | {names[axis]: op.attrs.get("k", 1)}
    dims = tuple(Whole(n) if d == axis else Same(names[d]) for d, n in enumerate(x.shape))
    out = names if "k" in op.attrs else (*names[:axis], *names[axis + 1 :])
    return Nest(extents, out, (dims,))


def arg_reference(op: Op, graph: Graph, x: Array) -> Array:
    axis, last = op.attrs["axis"], op.attrs["last"]
    line = np.flip(x, axis) if last else x
    found = (np.argmax if op.attrs["largest"] else np.argmin)(line, axis)
    return np.asarray(x.shape[axis] - 1 - found if last else found).astype(graph.result(op).dtype)


def topk_reference(op: Op, graph: Graph, x: Array) -> Array:
    axis = op.attrs["axis"]
    none = x != x
    keys = (-x.astype(np.float64), ~none) if op.attrs["largest"] else (x, none)
    order = np.lexsort(keys, axis).take(np.arange(op.attrs["k"]), axis=axis)
    found = order if op.attrs["indices"] else np.take_along_axis(x, order, axis)
    return np.asarray(found).astype(graph.result(op).dtype)


def line_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """Lines of `N` elements, `inner` apart; `before` compares a candidate with the best so far."""
    (x,), axis = graph.operands(op), op.attrs["axis"]
    sign = ">" if op.attrs["largest"] else "<"
    shape: dict[str, Any] = {
        "N": x.shape[axis],
        "outer": prod(x.shape[:axis]),
        "inner": prod(x.shape[axis + 1 :]),
        "k": op.attrs.get("k", 1),
        "sign": sign,
        "above": is_float(x) and op.kind == "topk",
        "last": bool(op.attrs.get("last", False)),
        "indices": bool(op.attrs.get("indices", True)),
    }
    stem = f"{op.kind}_{'x'.join(map(str, x.shape))}"
    return Kernel(f"{op.kind}.c.j2", stem, shape, estimate=6.0 * x.elements * shape["k"])


def same_scale(op: Op, graph: Graph) -> str | None:
    """The largest or smallest elements have the operand's scale."""
    x, y = graph.operands(op)[0], graph.result(op)
    return None if op.attrs["indices"] or x.quant == y.quant else f"scales {x.quant} and {y.quant}"


def _spec(kind: str) -> Spec:
    return Spec(
        kind=kind,
        nest=reduction.nest,
        reference=reference,
        kernel=kernel,
        exact=kind in EXTREMES,
        plain=True,
        limits=(plain_numbers,),
    )


SPECS = (
    *map(_spec, ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")),
    Spec(
        kind="arg",
        nest=line_nest,
        reference=arg_reference,
        kernel=line_kernel,
        float_only=True,
        plain=True,
    ),
    Spec(
        kind="topk",
        nest=line_nest,
        reference=topk_reference,
        kernel=line_kernel,
        float_only=True,
        integers=("int8", "int16"),
        plain=True,
        limits=(same_scale,),
        interval=intervals.rising(topk_reference, lambda op, graph: not op.attrs["indices"]),
    ),
)
