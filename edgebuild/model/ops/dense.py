"""FULLY_CONNECTED, Gemm, MatMul with a constant: out[n, k] = sum over c of in[n, c] * w[k, c]. Weights are K x C."""

from __future__ import annotations

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Same
from . import intervals, spatial, sums
from .base import Constant, Form, Kernel, Spec, Sums, is_float, zero_of


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
    sums=layer,
    rows=lambda op, graph: "reduce" if graph.operands(op)[0].shape[0] == 1 and spatial.plain(op, graph) else "",
    any_rows=True,
    limits=(columns_agree, spatial.bias_agrees, spatial.symmetric_weights),
)
