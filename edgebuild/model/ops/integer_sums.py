"""ConvInteger, MatMulInteger with a zero point that the graph computes; DynamicQuantizeLinear, which computes it.

integer_sums: out[n, y, x, k] = sum over (fy, fx, c) of (in[..] - zero) * w[k, fy, fx, c], in int32. Letters, attributes
and weights are those of conv2d; a matrix is one image of height 1. Padding stands for the zero point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Graph, Op, Quant, Tensor
from ..ir.axes import Nest
from . import conv2d, onnx_sides, pointwise, spatial
from .base import C_TYPES, Constant, Form, Kernel, Spec

BYTES = ("int8", "uint8")
SPAN = 255  # the largest size of a byte less its zero point
POINTWISE: dict[str, Any] = {"stride": (1, 1), "dilation": (1, 1), "pad": (0, 0, 0, 0), "groups": 1}


def dynamic_from_onnx(node: Any) -> None:
    """The result, its scale and its zero point, of which a node may want any."""
    x = node.inputs[0]
    axes = tuple(range(len(node.tensor(0).shape)))
    ends = [node.inner(kind, [x], axes=axes) for kind in ("reduce_min", "reduce_max")]
    step = node.inner("pointwise", ends, **pointwise.attributes("step_of_range"))
    zero = node.inner("pointwise", [ends[0], step], **pointwise.attributes("zero_of_range"))
    node.emit("pointwise", [x, step, zero], **pointwise.attributes("steps_from_zero"))
    names = [*node.outputs, "", ""]
    if names[1]:
        node.emit("reshape", [step], output=1, shape=())
    if names[2]:
        node.emit("cast", [zero], output=2, to="uint8")


def _weights(node: Any, axis: int) -> Tensor:
    """Constant weights without their zero points, which lie along `axis` if there are several."""
    w = node.constant(1, "weights")
    zeros = node.constant(3, "zero point of the weights").data if len(node.inputs) > 3 and node.inputs[3] else None
    if zeros is None or not zeros.any():
        return w
    zeros = np.ravel(zeros).astype(int)
    quant = Quant((1.0,) * zeros.size, tuple(int(z) for z in zeros), axis if zeros.size > 1 else None)
    return spatial.centred(Tensor(f"{w.name}@centred", w.shape, w.dtype, quant, w.data))


def _zero(node: Any) -> str:
    """The zero point of the first operand; 0 if the node has none."""
    if len(node.inputs) > 2 and node.inputs[2]:
        return str(node.inputs[2])
    return str(node.array(np.zeros((), node.tensor(0).dtype)))


def matmul_from_onnx(node: Any) -> None:
    w = _weights(node, 1)
    if w.data is None or len(w.shape) != 2:
        raise node.error(f"weights of shape {w.shape}", "a constant matrix is supported")
    x, columns = node.tensor(0), w.shape[1]
    rows = node.reshaped(node.inputs[0], (1, 1, x.elements // w.shape[0], w.shape[0]))
    turned = node.array(w.data.T[:, None, None, :])
    node.emit_as("integer_sums", [rows, turned, _zero(node)], (*x.shape[:-1], columns), **POINTWISE, to="int32")


def conv_from_onnx(node: Any) -> None:
    w = _weights(node, 0)
    attrs = onnx_sides.onnx_window(node, w.shape[2:])
    assert w.data is not None
    turned = np.moveaxis(w.data if len(w.shape) == 4 else w.data[:, :, None], 1, 3)
    del attrs["clamp"]
    operands = [node.nhwc(), node.array(turned), _zero(node)]
    node.emit_nchw("integer_sums", operands, groups=node.attr("group", 1), **attrs, to="int32")


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
    onnx={
        "ConvInteger": conv_from_onnx,
        "DynamicQuantizeLinear": dynamic_from_onnx,
        "MatMulInteger": matmul_from_onnx,
    },
    rows=lambda op, graph: spatial.rows(op, graph) if graph.operands(op)[2].constant else "",
    part=spatial.part,
    float_only=True,
    plain=True,
    limits=(spatial.window_limit, bytes_and_weights, conv2d.channels_agree),
)
