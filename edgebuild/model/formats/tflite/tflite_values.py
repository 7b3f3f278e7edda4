"""Readers of TFLite operators that compute element by element, or reduce dimensions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...ops.base import is_float
from ...ops.pointwise import attributes
from ..compose import arithmetic, axes_of, axis_of, kept_shape, running_sum
from .tflite_layers import fused_clamp


def arithmetic_reader(kind: str, options_type: str) -> Any:
    def read(node: Any) -> None:
        arithmetic(node, kind, fused_clamp(node, node.options(options_type).FusedActivationFunction()))

    return read


def read_add_n(node: Any) -> None:
    """ADD_N. Converters leave it in real numbers."""
    x = node.tensor(0)
    if x.quant is not None:
        raise node.error(f"a sum of {len(node.inputs)} operands of {x.dtype}", "supported: float32; write it as ADD")
    kind, attrs = ("add", {"finite": False}) if is_float(x) else ("pointwise", {"function": "sum"})
    node.chained(node.inputs, kind, True, clamp=(None, None), **attrs)


FUNCTIONS_OF = {
    "ABS": "abs", "NEG": "neg", "SIGN": "sign", "FLOOR": "floor", "CEIL": "ceil", "ROUND": "round", "SQUARE": "square",
    "SQRT": "sqrt", "RSQRT": "rsqrt", "EXP": "exp", "LOG": "log", "SIN": "sin", "COS": "cos", "TANH": "tanh",
    "LOGISTIC": "sigmoid", "HARD_SWISH": "hard_swish", "ELU": "elu", "LOGICAL_NOT": "not", "MINIMUM": "minimum",
    "MAXIMUM": "maximum", "SQUARED_DIFFERENCE": "squared_difference", "POW": "power", "FLOOR_DIV": "floor_div",
    "FLOOR_MOD": "mod", "PRELU": "prelu", "EQUAL": "equal", "NOT_EQUAL": "not_equal", "GREATER": "greater",
    "GREATER_EQUAL": "greater_equal", "LESS": "less", "LESS_EQUAL": "less_equal", "LOGICAL_AND": "and",
    "LOGICAL_OR": "or", "SELECT_V2": "where", "SELECT": "where",
}  # fmt: skip


def function_reader(function: str) -> Any:
    def read(node: Any) -> None:
        node.emit("pointwise", node.inputs, **attributes(function))

    return read


def clamped_reader(function: str, options_type: str) -> Any:
    def read(node: Any) -> None:
        clamp = fused_clamp(node, node.options(options_type).FusedActivationFunction())
        finite = {"finite": True} if is_float(node.tensor(0)) else {}
        node.emit("pointwise", node.inputs, **{**attributes(function), "clamp": clamp, **finite})

    return read


def read_leaky_relu(node: Any) -> None:
    node.emit("pointwise", node.inputs, **attributes("leaky_relu", alpha=node.options("LeakyReluOptions").Alpha()))


def read_gelu(node: Any) -> None:
    node.emit(
        "pointwise", node.inputs, **attributes("gelu_tanh" if node.options("GeluOptions").Approximate() else "gelu")
    )


def read_cast(node: Any) -> None:
    node.emit("cast", node.inputs, to=node.output_dtype())


def read_quantize(node: Any) -> None:
    """QUANTIZE reads float32 or, to change scale or type, integers."""
    node.emit("quantize" if node.tensor(0).dtype == "float32" else "requantize", node.inputs)


def read_dequantize(node: Any) -> None:
    """A constant stays as it is stored, float16 as float32: the ops that read it know what it stands for."""
    x = node.tensor(0)
    if x.constant and (x.quant is not None or x.dtype == "float32"):
        node.builder.tensors[node.outputs[0]] = replace(x, name=node.outputs[0])
        return
    node.emit("dequantize", node.inputs)


def clamp_reader(low: float | None, high: float | None) -> Any:
    def read(node: Any) -> None:
        node.emit("clamp", node.inputs, clamp=(low, high))

    return read


def read_relu6(node: Any) -> None:
    """RELU6. TFLM clamps the stored numbers by the operand's scale, whatever scale the result declares."""
    as_stored = node.tensor(0).dtype in ("int8", "int16") and node.tensor(0).quant != node.output_quant()
    node.emit("clamp", node.inputs, clamp=(0.0, 6.0), **({"as_stored": True} if as_stored else {}))


def reduction_reader(kind: str) -> Any:
    def read(node: Any) -> None:
        x = node.tensor(0)
        axes = axes_of(node, node.constant(1, "axis").data, len(x.shape))
        keep = bool(node.options("ReducerOptions").KeepDims())
        node.emit_as(kind, node.inputs[:1], kept_shape(x, axes, keep), axes=axes)

    return read


def read_sum(node: Any) -> None:
    quantised = node.tensor(0).quant is not None
    reduction_reader("sum" if quantised else "reduce_sum")(node)


def arg_reader(largest: bool) -> Any:
    def read(node: Any) -> None:
        x = node.tensor(0)
        axis = axis_of(node, int(np.ravel(node.constant(1, "axis").data)[0]), len(x.shape))
        node.emit("arg", node.inputs[:1], axis=axis, largest=largest, last=False, to=node.output_dtype())

    return read


def read_topk(node: Any) -> None:
    x, k = node.tensor(0), int(np.ravel(node.constant(1, "k").data)[0])
    if not x.shape or not 1 <= k <= x.shape[-1]:
        raise node.error(f"k {k} of a tensor of shape {x.shape}", "k must be from 1 to the size of the last dimension")
    for output, indices in enumerate((False, True)):
        to = node.written[output].dtype
        attrs = {"axis": len(x.shape) - 1, "k": k, "largest": True, "indices": indices, "to": to}
        node.emit("topk", node.inputs[:1], output=output, **attrs)


def read_cumsum(node: Any) -> None:
    options = node.options("CumsumOptions")
    running_sum(node, bool(options.Exclusive()), bool(options.Reverse()))
