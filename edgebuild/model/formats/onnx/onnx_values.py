"""Readers of ONNX operators that compute element by element, or reduce dimensions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np

from ...ops import functions
from ...ops.base import is_float
from ...ops.pointwise import attributes
from ..compose import axes_of, axis_of, kept_shape, over_norm, running_sum

# Functions of elements by the operator's name; those that have its words are not listed.
OF_ONE_NAME = (
    "Abs Neg Sign Floor Ceil Round Reciprocal Sqrt Exp Log Erf Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh "
    "Tanh Sigmoid HardSigmoid HardSwish LeakyRelu ThresholdedRelu Elu Selu Celu Softplus Softsign Swish Mish Shrink "
    "Not Equal Greater Less And Or Xor Where"
)
FUNCTIONS_OF = {name: re.sub(r"\B([A-Z])", r"_\1", name).lower() for name in OF_ONE_NAME.split()} | {
    "IsNaN": "is_nan", "Sub": "difference", "Div": "quotient", "PRelu": "prelu", "GreaterOrEqual": "greater_equal",
    "LessOrEqual": "less_equal", "BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor",
    "BitwiseNot": "bit_not",
}  # fmt: skip


def read_function(node: Any, function: str) -> None:
    """Attributes of the node have the names of the parameters."""
    row = functions.FUNCTIONS[function]
    to = node.tensor(1).dtype if row.condition else ""
    node.emit_function(function, to=to, **{n: node.attr(n, v) for n, v in row.parameters.items()})


def read_mod(node: Any) -> None:
    signed = "remainder" if node.attr("fmod", 0) else "mod"
    node.emit_function("unsigned_remainder" if node.tensor(0).dtype == "uint8" else signed)


def read_pow(node: Any) -> None:
    """The result has the type of the base; constant exponents take it on."""
    base, exponent = node.tensor(0), node.tensor(1)
    power = node.inputs[1]
    if exponent.data is not None and exponent.quant is not None:
        power = node.array(node.real(exponent))
    elif exponent.dtype != base.dtype:
        computed = exponent.data is None
        power = node.inner("cast", [power], to=base.dtype) if computed else node.array(exponent.data, like=base)
    node.emit_function("power", node.inputs[0], power)


def read_chain(node: Any, function: str) -> None:
    """One op for each operand after the first."""
    node.chained(node.inputs, "pointwise", True, **attributes(function))


def read_mean(node: Any) -> None:
    """The sum, divided by the number of operands."""
    total = node.chained(node.inputs, "pointwise", False, **attributes("sum"))
    count = node.array(np.float32(len(node.inputs)))
    node.emit_function("quotient", total, count)


def read_is_inf(node: Any) -> None:
    """Beyond the largest number of either sign, or of one; a comparison of x with itself finds nothing."""
    signs = bool(node.attr("detect_negative", 1)), bool(node.attr("detect_positive", 1))
    largest = node.array(np.finfo(np.float32).max * np.float32(1 if signs[1] else -1))
    x = node.apply("abs", node.inputs[0]) if all(signs) else node.inputs[0]
    node.emit_function("greater" if signs[1] else "less", x, largest if any(signs) else x)


def read_bit_shift(node: Any) -> None:
    if node.tensor(0).dtype != "uint8":
        raise node.error(f"shifts of {node.tensor(0).dtype}", "supported: uint8")
    node.emit_function(f"shift_{node.attr('direction', 'LEFT').lower()}")


def read_cast_like(node: Any) -> None:
    """In the type of the second operand, of which no more is read; one with a scale stands for real numbers."""
    x, like = node.tensor(0), node.tensor(1)
    to = "float32" if like.quant is not None else like.dtype
    if x.data is not None and x.quant is None:
        node.builder.tensors[node.outputs[0]] = replace(x, name=node.outputs[0], dtype=to, data=x.data.astype(to))
        return
    if x.dtype == to:
        return node.emit("reshape", node.inputs[:1], shape=x.shape)
    node.emit("cast", node.inputs[:1], to=to)


LARGEST = float(np.finfo(np.float32).max)
BOUNDS = ((1, "maximum", "min"), (2, "minimum", "max"))  # of Clip: operand, function, name


def read_clip(node: Any) -> None:
    """Bounds are attributes up to opset 10 and operands from 11 on.

    Floats without one are bounded by the finite numbers, as the standard says; an infinite one bounds nothing.
    """

    def bound(position: int, name: str) -> float | None:
        value = node.attr(name, None)
        if node.has(position):
            value = np.ravel(node.real(node.constant(position, name)))[0]
        return None if value is None else float(value)

    x, name = node.tensor(0), node.inputs[0]
    operands = [(i, function, what) for i, function, what in BOUNDS if node.has(i)]
    if x.quant is not None:  # bounds are of its scale: what is stored is compared
        for i, function, what in operands:
            name = node.apply(function, name, node.array(np.ravel(node.constant(i, what).data)[:1], like=x))
    elif is_float(x) and any(t.quant is None and not t.constant for t in (node.tensor(i) for i, *_ in operands)):
        for i, function, _ in operands:  # the graph computes them: the largest value less 80 dB of a spectrogram
            name = node.apply(function, name, node.inputs[i])
    else:
        low, high = bound(1, "min"), bound(2, "max")
        if is_float(x):
            low, high = (LARGEST * sign if v is None else v for v, sign in ((low, -1), (high, 1)))
            if low <= high and low < np.inf and high > -np.inf:
                return node.emit("clamp", node.inputs[:1], clamp=tuple(None if np.isinf(v) else v for v in (low, high)))
        else:
            low, high = (None if v is None or np.isinf(v) else v for v in (low, high))
        for (_, function, _), value in zip(BOUNDS, (low, high), strict=True):
            if value is not None:  # integers, and bounds that cross: the upper one counts
                name = node.apply(function, name, node.array(value, like=x))
    node.emit("reshape", [name], shape=x.shape)


def keeps_dims(node: Any) -> bool:
    """The attribute keepdims, which is 0 or 1. Tools read other numbers each in its way."""
    keep = node.attr("keepdims", 1)
    if keep not in (0, 1):
        raise node.error(f"keepdims {keep}", "it must be 0 or 1")
    return bool(keep)


def read_axes(node: Any) -> tuple[int, ...] | None:
    """Axes are an attribute in older opsets and an operand in newer ones; None: nothing is to be done."""
    given = node.has(1)
    listed = node.constant(1, "axes").data if given else node.attr("axes", None)
    if (listed is None or np.size(listed) == 0) and node.attr("noop_with_empty_axes", 0):
        return None
    return axes_of(node, listed, len(node.tensor(0).shape))


def read_reduction(node: Any, kind: str, before: str = "", after: str = "") -> None:
    """A reduction, perhaps with elementwise functions before and after it."""
    axes, name = read_axes(node), node.inputs[0]
    if before:
        name = node.apply(before, name)
    keep = keeps_dims(node)
    x = node.tensor(0)
    if axes is None:
        return node.emit("reshape", [name], shape=x.shape)
    shape = kept_shape(x, axes, keep)
    if not axes:
        axes, shape = (0,), ()
        name = node.reshaped(name, (1,))
    if not after:
        return node.emit_as(kind, [name], shape, axes=axes)
    total = node.inner(kind, [name], axes=axes)
    node.emit_function(after, node.reshaped(total, shape))


def read_global_maximum(node: Any) -> None:
    """Over all rows and columns, which stay as dimensions of size 1."""
    x = node.tensor(0)
    axes = tuple(range(2, len(x.shape)))
    node.emit_as("reduce_max", node.inputs[:1], kept_shape(x, axes, True), axes=axes)


def read_log_sum_exp(node: Any) -> None:
    """The largest element is taken out first, so that nothing overflows."""
    x, axes = node.tensor(0), read_axes(node)
    if axes is None:
        return node.emit("reshape", node.inputs[:1], shape=x.shape)
    largest = node.reshaped(node.inner("reduce_max", node.inputs[:1], axes=axes), kept_shape(x, axes, True))
    largest = node.inner("clamp", [largest], clamp=(-LARGEST, LARGEST))  # the difference of two infinities is no number
    less = node.apply("difference", node.inputs[0], largest)
    powers = node.apply("exp", less)
    total = node.apply("log", node.inner("reduce_sum", [powers], axes=axes))
    shape = kept_shape(x, axes, keeps_dims(node))
    node.emit_function("sum", node.reshaped(total, shape), node.reshaped(largest, shape))


def read_lp_normalization(node: Any) -> None:
    """x / |x| along one axis; 0 where the norm is 0."""
    axes, power = (axis_of(node, node.attr("axis", -1), len(node.tensor(0).shape)),), node.attr("p", 2)
    before, after = ("abs", "") if power == 1 else ("square", "sqrt")
    over_norm(node, axes, before, after, 0.0)


def read_arg(node: Any, largest: bool) -> None:
    x = node.tensor(0)
    axis = axis_of(node, node.attr("axis", 0), len(x.shape))
    shape = kept_shape(x, (axis,), keeps_dims(node))
    last = bool(node.attr("select_last_index", 0))
    node.emit_as("arg", node.inputs[:1], shape, axis=axis, largest=largest, last=last, to="int64")


def read_topk(node: Any) -> None:
    """Values and indices are two ops, each only if something wants it."""
    x = node.tensor(0)
    axis = axis_of(node, node.attr("axis", -1), len(x.shape))
    k = node.numbers(1, "k")[0] if len(node.inputs) > 1 else node.attr("k", 1)
    if not 1 <= k <= x.shape[axis]:
        raise node.error(f"k {k} of {x.shape[axis]}")
    common = {"axis": axis, "k": k, "largest": bool(node.attr("largest", 1))}
    for output, indices in enumerate((False, True)):
        if output < len(node.outputs) and node.outputs[output]:
            to = "int64" if indices else x.dtype
            node.emit("topk", node.inputs[:1], output=output, **common, indices=indices, to=to)


def read_cumsum(node: Any, product: bool = False) -> None:
    if product and node.tensor(0).quant is not None:
        raise node.error("products of quantised values", "dequantise them first")
    running_sum(node, bool(node.attr("exclusive", 0)), bool(node.attr("reverse", 0)), product)
