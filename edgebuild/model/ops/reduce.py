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
from . import intervals, loops, normalise, pointwise, reduction
from .base import UNSIGNED, Form, Kernel, Spec, is_float
from .functions import WORDS, WRAPPED
from .moves import axis_of
from .reduction import from_onnx, from_onnx_global, from_tflite, keeps_dims, kept_shape, onnx_axes

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
    begun = is_float(x) and graph.arithmetic == "tflite"
    shape["start"] = {"reduce_max": "-", "reduce_min": "+"}.get(op.kind, "") if begun else ""
    stem = f"{op.kind}_{'x'.join(map(str, x.shape)) or 1}"
    return Kernel("reduce.c.j2", stem, shape, estimate=6.0 * x.elements)


def _log_sum_exp(node: Any) -> None:
    """The largest element is taken out first, so that nothing overflows."""
    x, axes = node.tensor(0), onnx_axes(node)
    if axes is None:
        return node.emit("reshape", node.inputs[:1], shape=x.shape)
    largest = node.reshaped(node.inner("reduce_max", node.inputs[:1], axes=axes), kept_shape(x, axes, True))
    most = float(np.finfo(np.float32).max)
    largest = node.inner("clamp", [largest], clamp=(-most, most))  # the difference of two infinities is no number
    less = node.inner("pointwise", [node.inputs[0], largest], **pointwise.attributes("difference"))
    powers = node.inner("pointwise", [less], **pointwise.attributes("exp"))
    total = node.inner("pointwise", [node.inner("reduce_sum", [powers], axes=axes)], **pointwise.attributes("log"))
    shape = kept_shape(x, axes, keeps_dims(node))
    node.emit("pointwise", [node.reshaped(total, shape), node.reshaped(largest, shape)], **pointwise.attributes("sum"))


def lp_normalisation(node: Any) -> None:
    """x / |x| along one axis; 0 where the norm is 0."""
    axes, power = (axis_of(node, node.attr("axis", -1), len(node.tensor(0).shape)),), node.attr("p", 2)
    before, after = ("abs", "") if power == 1 else ("square", "sqrt")
    emit_normalised(node, axes, before, after, 0.0)


def emit_normalised(node: Any, axes: tuple[int, ...], before: str, after: str, least: float) -> None:
    """x, divided by a norm over the axes, or by `least` if that is more: after(sum of before(x)).

    Without a `least`, a norm of 0 gives 0.
    """
    total = node.inner("pointwise", node.inputs[:1], **pointwise.attributes(before))
    total = node.inner("reduce_sum", [total], axes=axes)
    if after:
        total = node.inner("pointwise", [total], **pointwise.attributes(after))
    if least:
        total = node.inner("pointwise", [node.array(np.float32(least)), total], **pointwise.attributes("maximum"))
    else:
        none = node.inner("pointwise", [total, node.array(np.float32(0))], **pointwise.attributes("equal"))
        operands = [none, node.array(np.float32(np.inf)), total]
        total = node.inner("pointwise", operands, **{**pointwise.attributes("where"), "to": "float32"})
    norm = node.reshaped(total, kept_shape(node.tensor(0), axes, True))
    node.emit("pointwise", [node.inputs[0], norm], **pointwise.attributes("quotient"))


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


def onnx_arg(largest: bool) -> Any:
    def read(node: Any) -> None:
        x = node.tensor(0)
        axis = axis_of(node, node.attr("axis", 0), len(x.shape))
        shape = kept_shape(x, (axis,), keeps_dims(node))
        last = bool(node.attr("select_last_index", 0))
        node.emit_as("arg", node.inputs[:1], shape, axis=axis, largest=largest, last=last, to="int64")

    return read


def tflite_arg(largest: bool) -> Any:
    def read(node: Any) -> None:
        x = node.tensor(0)
        axis = axis_of(node, int(np.ravel(node.constant(1, "axis").data)[0]), len(x.shape))
        node.emit("arg", node.inputs[:1], axis=axis, largest=largest, last=False, to=node.output_dtype())

    return read


def onnx_topk(node: Any) -> None:
    """Values and indices are two ops, each only if something wants it."""
    x = node.tensor(0)
    axis = axis_of(node, node.attr("axis", -1), len(x.shape))
    k = int(np.ravel(node.constant(1, "k").data)[0]) if len(node.inputs) > 1 else node.attr("k", 1)
    if not 1 <= k <= x.shape[axis]:
        raise node.error(f"k {k} of {x.shape[axis]}")
    common = {"axis": axis, "k": k, "largest": bool(node.attr("largest", 1))}
    for output, indices in enumerate((False, True)):
        if output < len(node.outputs) and node.outputs[output]:
            to = "int64" if indices else x.dtype
            node.emit("topk", node.inputs[:1], output=output, **common, indices=indices, to=to)


def tflite_topk(node: Any) -> None:
    x, k = node.tensor(0), int(np.ravel(node.constant(1, "k").data)[0])
    if not x.shape or not 1 <= k <= x.shape[-1]:
        raise node.error(f"k {k} of a tensor of shape {x.shape}", "k must be from 1 to the size of the last dimension")
    for output, indices in enumerate((False, True)):
        to = node.written[output].dtype
        attrs = {"axis": len(x.shape) - 1, "k": k, "largest": True, "indices": indices, "to": to}
        node.emit("topk", node.inputs[:1], output=output, **attrs)


def same_scale(op: Op, graph: Graph) -> str | None:
    """The largest or smallest elements have the operand's scale."""
    x, y = graph.operands(op)[0], graph.result(op)
    return None if op.attrs["indices"] or x.quant == y.quant else f"scales {x.quant} and {y.quant}"


def _spec(kind: str, tflite: dict[str, Any], onnx: dict[str, Any]) -> Spec:
    return Spec(
        kind=kind,
        nest=reduction.nest,
        reference=reference,
        kernel=kernel,
        tflite=tflite,
        onnx=onnx,
        exact=kind in EXTREMES,
        plain=True,
        limits=(plain_numbers,),
    )


SPECS = (
    _spec(
        "reduce_sum",
        {},
        {
            "ReduceSum": from_onnx("reduce_sum"),
            "ReduceSumSquare": from_onnx("reduce_sum", "square"),
            "ReduceL1": from_onnx("reduce_sum", "abs"),
            "ReduceL2": from_onnx("reduce_sum", "square", "sqrt"),
            "ReduceLogSum": from_onnx("reduce_sum", "", "log"),
            "ReduceLogSumExp": _log_sum_exp,
            "LpNormalization": lp_normalisation,
            **normalise.ONNX,
        },
    ),
    _spec("reduce_prod", {"REDUCE_PROD": from_tflite("reduce_prod")}, {"ReduceProd": from_onnx("reduce_prod")}),
    _spec(
        "reduce_max",
        {"REDUCE_MAX": from_tflite("reduce_max"), "REDUCE_ANY": from_tflite("reduce_max")},
        {"ReduceMax": from_onnx("reduce_max"), "GlobalMaxPool": from_onnx_global("reduce_max")},
    ),
    _spec(
        "reduce_min",
        {"REDUCE_MIN": from_tflite("reduce_min"), "REDUCE_ALL": from_tflite("reduce_min")},
        {"ReduceMin": from_onnx("reduce_min")},
    ),
    Spec(
        kind="arg",
        nest=line_nest,
        reference=arg_reference,
        kernel=line_kernel,
        tflite={"ARG_MAX": tflite_arg(True), "ARG_MIN": tflite_arg(False)},
        onnx={"ArgMax": onnx_arg(True), "ArgMin": onnx_arg(False)},
        float_only=True,
        plain=True,
    ),
    Spec(
        kind="topk",
        nest=line_nest,
        reference=topk_reference,
        kernel=line_kernel,
        tflite={"TOPK_V2": tflite_topk},
        onnx={"TopK": onnx_topk},
        float_only=True,
        integers=("int8", "int16"),
        plain=True,
        limits=(same_scale,),
        interval=intervals.rising(topk_reference, lambda op, graph: not op.attrs["indices"]),
    ),
)
