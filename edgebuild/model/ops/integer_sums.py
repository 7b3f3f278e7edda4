"""ConvInteger, MatMulInteger with a zero point that the graph computes; DynamicQuantizeLinear, which computes it.

integer_sums: out[n, y, x, k] = sum over (fy, fx, c) of (in[..] - zero) * w[k, fy, fx, c], in int32. Letters, attributes
and weights are those of conv2d; a matrix is one image of height 1. Padding stands for the zero point.
"""

from __future__ import annotations

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest
from . import conv2d, spatial
from .base import C_TYPES, Constant, Form, Kernel, Spec

BYTES = ("int8", "uint8")
SPAN = 255  # the largest size of a byte less its zero point


def nest(op: Op, graph: Graph) -> Nest:
    found = conv2d.nest(Op(op.kind, op.name, op.inputs[:2], op.outputs, op.attrs), graph)
    return Nest(found.extents, found.out, (*found.operands, ()), macs=True)


def reference(op: Op, graph: Graph, x: Array, w: Array, zero: Array) -> Array:
    less = x.astype(np.int64) - int(zero.reshape(()))
    return conv2d.products(op, graph, less, w).astype(np.int32)


def bytes_and_weights(op: Op, graph: Graph) -> str | None:
    """The input and its zero point are int8 or uint8 without a scale, weights are constants, sums stay in int32."""
    x, w, zero = graph.operands(op)
    if x.dtype not in BYTES or zero.dtype != x.dtype or zero.elements != 1 or x.quant is not None:
        return f"input {x.dtype}{' with a scale' if x.quant else ''}, zero point {zero.dtype} of shape {zero.shape}"
    if w.data is None:
        return f"weights '{w.name}' are computed by the graph"
    most = SPAN * int(np.abs(w.data.astype(np.int64)).reshape(w.shape[0], -1).sum(axis=1).max(initial=0))
    return f"sums of up to {most}" if most >= 2**31 else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, w, zero = graph.operands(op)
    assert w.data is not None
    shape = spatial.window_shape(op, graph, w.shape[1:3], form)
    shape |= {"CG": w.shape[3], "KG": w.shape[0] // conv2d.groups(op), "weight": C_TYPES[w.dtype]}
    shape |= {"computed": not zero.constant}
    scalars = {} if zero.data is None else {"x_zero": int(zero.data.reshape(()))}
    stem = f"sums_{w.shape[1]}x{w.shape[2]}_s{op.attrs['stride'][0]}_c{x.shape[3]}_k{w.shape[0]}"
    cost = 8.0 * graph.result(op).elements * w.elements / w.shape[0]
    return Kernel("integer_sums.c.j2", stem, shape, (Constant("w", w.data, "weights"),), scalars, estimate=cost)


SPEC = Spec(
    kind="integer_sums",
    nest=nest,
    reference=reference,
    kernel=kernel,
    rows=lambda op, graph: spatial.rows(op, graph) if graph.operands(op)[2].constant else "",
    part=spatial.part,
    float_only=True,
    plain=True,
    limits=(spatial.window_limit, bytes_and_weights, conv2d.channels_agree),
)
