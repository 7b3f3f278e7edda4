"""FULLY_CONNECTED, Gemm, MatMul with a constant: out[n, k] = sum over c of in[n, c] * w[k, c]. Weights are K x C."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Same
from . import batch_matmul, einsum, intervals, spatial, sums
from .base import Constant, Form, Kernel, Spec, Sums, is_float, zero_of

OPEN = (None, None)


def from_tflite(node: Any) -> None:
    """The input is seen as rows of the weights' input size, whatever its shape."""
    options = node.options("FullyConnectedOptions")
    if options.WeightsFormat() != 0:
        raise node.error(f"weights format {options.WeightsFormat()}", "only the default format is supported")
    x, w = node.tensor(0), node.tensor(1)
    if not w.constant and len(node.inputs) < 3 and options.FusedActivationFunction() == 0:
        flat = node.reshaped(node.inputs[0], (x.elements // w.shape[-1], w.shape[-1]))
        batch_matmul.emit(node, flat, node.inputs[1], True, OPEN)
        return
    if len(w.shape) != 2 or x.elements % w.shape[1]:
        raise node.error(f"weights {w.shape} for an input of shape {x.shape}", "columns must divide the input's size")
    rows = x.elements // w.shape[1]
    flat = node.inputs[0] if len(x.shape) == 2 else node.reshaped(node.inputs[0], (rows, w.shape[1]))
    clamp = spatial.tflite_clamp(node, options.FusedActivationFunction())
    front = x.shape[:-1] if options.KeepNumDims() else (rows,)
    told = node.output_shape()  # a vector may stay one
    shape = told if told == (rows * w.shape[0],) else (*front, w.shape[0])
    node.emit_as("dense", [flat, *spatial.tflite_operands(node, 0, 2, symmetric=False)[1:]], shape, clamp=clamp)


def from_onnx_gemm(node: Any) -> None:
    """alpha x w + beta b: constants take up their factors, other operands are multiplied by them.

    A computed matrix makes a product of two activations.
    """
    x = node.turned(node.inputs[0], (1, 0)) if node.attr("transA", 0) else node.inputs[0]
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    w, turned = node.tensor(1), bool(node.attr("transB", 0))
    channels = w.shape[0 if turned else 1]
    in_row = not bias or (node.tensor(2).constant and node.tensor(2).elements in (1, channels))
    if w.constant and in_row:
        weights = node.scaled(node.permuted(w, (0, 1) if turned else (1, 0)), node.attr("alpha", 1.0))
        operands = [node.scaled(node.flat_bias(node.tensor(2), channels), node.attr("beta", 1.0))] if bias else []
        node.emit("dense", [x, weights, *operands], clamp=OPEN)
        return
    product = node.before("product") if bias else node
    if w.constant:
        weights = node.scaled(product.permuted(w, (0, 1) if turned else (1, 0)), node.attr("alpha", 1.0))
        product.emit("dense", [x, weights], clamp=OPEN)
    else:
        batch_matmul.emit(product, _times(node, x, node.attr("alpha", 1.0)), node.inputs[1], turned, OPEN)
    if bias:
        node.emit("add", [product.outputs[0], _times(node, bias, node.attr("beta", 1.0))], clamp=OPEN)


def _times(node: Any, name: str, factor: float) -> str:
    """Real values times a number."""
    if node.builder.tensors[name].constant:
        return str(node.scaled(name, factor))
    return name if factor == 1.0 else str(node.inner("mul", [name, node.array(np.float32(factor))], clamp=OPEN))


def from_onnx_matmul(node: Any) -> None:
    x, w = node.tensor(0), node.tensor(1)
    if w.data is None or len(w.shape) != 2 or len(x.shape) < 2:
        batch_matmul.emit(node, node.inputs[0], node.inputs[1], False, OPEN)
        return
    rows = (
        node.inputs[0] if len(x.shape) == 2 else node.reshaped(node.inputs[0], (x.elements // w.shape[0], w.shape[0]))
    )
    node.emit_as("dense", [rows, node.permuted(w, (1, 0))], (*x.shape[:-1], w.shape[1]), clamp=OPEN)


def nest(op: Op, graph: Graph) -> Nest:
    x, w = graph.operands(op)[:2]
    bias = [(Same("k"),)] * (len(op.inputs) - 2)
    extents = {"n": x.shape[0], "k": w.shape[0], "c": w.shape[1]}
    return Nest(extents, ("n", "k"), ((Same("n"), Same("c")), (Same("k"), Same("c")), *bias), macs=True)


def products(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    """The sums without bias, in float64, which is exact for up to int16."""
    return np.asarray((x.astype(np.float64) - zero_of(graph.operands(op)[0])) @ w.astype(np.float64).T)


def columns_agree(op: Op, graph: Graph) -> str | None:
    """The weights are a constant matrix with as many columns as the input."""
    x, w = graph.operands(op)[:2]
    if w.data is None or len(w.shape) != 2 or len(x.shape) != 2 or w.shape[1] != x.shape[1]:
        return f"weights {w.shape}{'' if w.constant else ' (not constant)'} for an input of shape {x.shape}"
    return None


def stem(op: Op, graph: Graph) -> str:
    w = graph.operands(op)[1]
    return f"dense_c{w.shape[1]}_k{w.shape[0]}"


def layer(op: Op, graph: Graph) -> Sums | None:
    """A pixel for each row of the operand."""
    x, w = graph.operands(op)[:2]
    if is_float(x) or w.data is None or not spatial.plain(op, graph):
        return None
    weights, rows = w.data[:, None, None, :], x.shape[0]
    return sums.of(op, graph, stem(op, graph), weights, (1, rows, w.shape[1]), (1, rows, w.shape[0]))


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, w = graph.operands(op)[:2]
    assert w.data is not None
    shape = {"N": x.shape[0], "C": w.shape[1], "K": w.shape[0], "float": is_float(x)} | spatial.sum_types(op, graph)
    if form.rolled:
        return _by_rows(op, graph, form, shape)
    constants = spatial.sum_constants(op, graph, w.data)
    return Kernel("dense.c.j2", stem(op, graph), shape, constants, spatial.sum_scalars(op, graph))


def _by_rows(op: Op, graph: Graph, form: Form, shape: dict[str, int | bool]) -> Kernel:
    """Fed with a row of the operand at a time. Where no sum can leave int32 the zero point is part of the bias."""
    w, s = graph.operands(op)[1], layer(op, graph)
    assert w.data is not None
    shape |= {"rows": form.rows, "folded": False}
    constants, scalars = spatial.sum_constants(op, graph, w.data), spatial.sum_scalars(op, graph)
    each = 8.0 * w.elements / form.rows
    if s is not None and s.fits:
        shape |= {"folded": True}
        scalars = {"y_zero": s.y_zero, "low": s.low, "high": s.high}
        start = Constant("bias", s.start.astype(np.int32), "with the zero point folded in")
        constants = (Constant("w", s.weights.reshape(w.shape), "weights"), start, *s.rescaling)
        each = w.shape[0] * (15 + w.shape[1] / form.rows * 6)
    return Kernel(
        "dense_rows.c.j2", f"{stem(op, graph)}_by_rows", shape, constants, scalars,
        scratch=4 * w.shape[0], estimate=each, placed=True, counted=True,
    )  # fmt: skip


SPEC = Spec(
    kind="dense",
    nest=nest,
    kernel=kernel,
    **intervals.of_products(products),
    tflite={"FULLY_CONNECTED": from_tflite},
    onnx={"Einsum": einsum.from_onnx, "Gemm": from_onnx_gemm, "MatMul": from_onnx_matmul},
    sums=layer,
    rows=lambda op, graph: "reduce" if graph.operands(op)[0].shape[0] == 1 and spatial.plain(op, graph) else "",
    any_rows=True,
    limits=(columns_agree, spatial.bias_agrees, spatial.symmetric_weights),
)
