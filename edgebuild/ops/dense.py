"""FULLY_CONNECTED, Gemm, MatMul with a constant: out[n, k] = sum over c of in[n, c] * w[k, c]. Weights are K x C."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..axes import Nest, Same
from ..ir import Array, Graph, Op
from . import cmsis_variants, intervals, mve_variants, scalar_variants, spatial, sum_variants, sums
from .base import Constant, Form, Kernel, Spec, clip_float, is_float, zero_of


def from_tflite(node: Any) -> None:
    """The input is seen as rows of the weights' input size, whatever its shape."""
    options = node.options("FullyConnectedOptions")
    if options.WeightsFormat() != 0:
        raise node.error(f"weights format {options.WeightsFormat()}", "only the default format is supported")
    x, w = node.tensor(0), node.tensor(1)
    if len(w.shape) != 2 or x.elements % w.shape[1]:
        raise node.error(f"weights {w.shape} for an input of shape {x.shape}", "columns must divide the input's size")
    rows = x.elements // w.shape[1]
    flat = node.inputs[0] if len(x.shape) == 2 else node.reshaped(node.inputs[0], (rows, w.shape[1]))
    clamp = spatial.tflite_clamp(node, options.FusedActivationFunction())
    front = x.shape[:-1] if options.KeepNumDims() else (rows,)
    node.emit_as("dense", [flat, *node.inputs[1:]], (*front, w.shape[0]), clamp=clamp)


def from_onnx_gemm(node: Any) -> None:
    if node.attr("transA", 0):
        raise node.error("transA of an activation", "export the layer without transA")
    w, bias = node.constant(1, "weights"), []
    if len(node.inputs) > 2 and node.inputs[2]:
        bias = [node.flat_bias(node.constant(2, "bias"), w.shape[0 if node.attr("transB", 0) else 1])]
    for name in ("alpha", "beta"):
        if node.attr(name, 1.0) != 1.0:
            raise node.error(f"{name} {node.attr(name, 1.0)}", f"fold {name} into the constants")
    name = node.permuted(w, (0, 1) if node.attr("transB", 0) else (1, 0))
    node.emit("dense", [node.inputs[0], name, *bias], clamp=(None, None))


def from_onnx_matmul(node: Any) -> None:
    x, w = node.tensor(0), node.constant(1, "second operand")
    if len(w.shape) != 2:
        raise node.error(f"second operand has shape {w.shape}", "only a matrix of weights is supported")
    rows = (
        node.inputs[0] if len(x.shape) == 2 else node.reshaped(node.inputs[0], (x.elements // w.shape[0], w.shape[0]))
    )
    node.emit_as("dense", [rows, node.permuted(w, (1, 0))], (*x.shape[:-1], w.shape[1]), clamp=(None, None))


def nest(op: Op, graph: Graph) -> Nest:
    x, w = graph.operands(op)[:2]
    bias = [(Same("k"),)] * (len(op.inputs) - 2)
    extents = {"n": x.shape[0], "k": w.shape[0], "c": w.shape[1]}
    return Nest(extents, ("n", "k"), ((Same("n"), Same("c")), (Same("k"), Same("c")), *bias), macs=True)


def products(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    """The sums without bias, in float64, which is exact for int8."""
    return np.asarray((x.astype(np.float64) - zero_of(graph.operands(op)[0])) @ w.astype(np.float64).T)


def total(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    return products(op, graph, x, w).astype(np.int64)


def reference(op: Op, graph: Graph, x: Array, w: Array, bias: Array | None = None) -> Array:
    start = 0 if bias is None else bias
    if x.dtype == np.int8:
        return spatial.requantize_sum(total(op, graph, x, w) + start, op, graph)
    return clip_float(products(op, graph, x, w) + start, op.attrs["clamp"])


def columns_agree(op: Op, graph: Graph) -> str | None:
    """The weights are a constant matrix with as many columns as the input."""
    x, w = graph.operands(op)[:2]
    if w.data is None or len(w.shape) != 2 or len(x.shape) != 2 or w.shape[1] != x.shape[1]:
        return f"weights {w.shape}{'' if w.constant else ' (not constant)'} for an input of shape {x.shape}"
    return None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, w = graph.operands(op)[:2]
    assert w.data is not None
    shape = {"N": x.shape[0], "C": w.shape[1], "K": w.shape[0], "float": is_float(x)}
    stem, layer = f"dense_c{w.shape[1]}_k{w.shape[0]}", None
    if not is_float(x):
        rows, columns = x.shape[0], w.shape[1]
        layer = sums.of(op, graph, w.data[:, None, None, :], (1, rows, columns), (1, rows, w.shape[0]))
    if form.rolled:
        return _by_rows(op, graph, form, f"{stem}_by_rows", shape, layer)
    makers = (
        *sum_variants.CONVOLUTIONS,
        *mve_variants.CONVOLUTIONS,
        *scalar_variants.CONVOLUTIONS,
        *cmsis_variants.CONVOLUTIONS,
    )
    if layer is not None and (found := sum_variants.best(layer, form, stem, makers)) is not None:
        return found
    constants = spatial.sum_constants(op, graph, w.data)
    return Kernel("dense.c.j2", stem, shape, constants, spatial.sum_scalars(op, graph))


def _by_rows(op: Op, graph: Graph, form: Form, stem: str, shape: dict[str, int | bool], s: sums.Sums | None) -> Kernel:
    """Fed with a row of the operand at a time. Where no sum can leave int32 the zero point is part of the bias."""
    w = graph.operands(op)[1]
    assert w.data is not None
    shape |= {"rows": form.rows, "ring": form.rings[0] if form.rings else 0, "folded": False, "vectors": False}
    constants, scalars = spatial.sum_constants(op, graph, w.data), spatial.sum_scalars(op, graph)
    each = 8.0 * w.elements / form.rows
    if s is not None and s.fits:
        shape |= {"folded": True, "vectors": "mve" in form.features}
        scalars = {"y_zero": s.y_zero, "low": s.low, "high": s.high}
        start = Constant("bias", s.start.astype(np.int32), "with the zero point folded in")
        weights = Constant("w", s.weights.reshape(w.shape), "weights")
        constants = (weights, start, *sum_variants.plain_rescaling(s))
        each = w.shape[0] * (15 + w.shape[1] / form.rows * (0.25 if shape["vectors"] else 6))
    return Kernel("dense_rows.c.j2", stem, shape, constants, scalars, scratch=4 * w.shape[0], estimate=each)


SPEC = Spec(
    kind="dense",
    nest=nest,
    reference=reference,
    kernel=kernel,
    tflite={"FULLY_CONNECTED": from_tflite},
    onnx={"Gemm": from_onnx_gemm, "MatMul": from_onnx_matmul},
    clamps=True,
    interval=intervals.sums(total),
    total=total,
    rows=lambda op, graph: "reduce" if graph.operands(op)[0].shape[0] == 1 else "",
    limits=(columns_agree, spatial.symmetric_weights),
)
