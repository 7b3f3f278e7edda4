"""CONV_2D, Conv: out[y, x, k] = sum over (fy, fx, c) of in[y*s + fy*d - p, x*s + fx*d - p, c] * w[k, fy, fx, c].

Letters, here and in the C: H rows, W columns, C channels in, K channels out, FH x FW the window.
Weights are K x FH x FW x C.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..axes import Dim, Nest, Same
from ..ir import Array, Graph, Op
from . import cmsis_variants, dae_variants, intervals, mve_variants, scalar_variants, spatial, sum_variants, sums
from .base import Form, Kernel, Spec, clip_float, is_float, zero_of


def from_tflite(node: Any) -> None:
    options = node.options("Conv2DOptions")
    dilation = (options.DilationHFactor(), options.DilationWFactor())
    attrs = spatial.tflite_window(node, options, node.tensor(1).shape[1:3], dilation)
    node.emit("conv2d", node.inputs, dilation=dilation, **attrs)


def from_onnx(node: Any) -> None:
    """Conv; a group per input channel becomes a depthwise convolution."""
    w = node.constant(1, "weights")
    attrs = spatial.onnx_window(node, w.shape[2:])
    group = node.attr("group", 1)
    bias = [node.inputs[2]] if len(node.inputs) > 2 and node.inputs[2] else []
    x = node.nhwc(0)
    if group == 1:
        node.emit_nchw("conv2d", [x, node.permuted(w, (0, 2, 3, 1)), *bias], **attrs)
    elif w.shape[1] == 1 and group == node.tensor(0).shape[1]:
        node.emit_nchw("depthwise_conv2d", [x, node.permuted(w, (1, 2, 3, 0)), *bias], **attrs)
    else:
        raise node.error(f"group {group} of {node.tensor(0).shape[1]} channels", "use group 1 or one group per channel")


def nest(op: Op, graph: Graph) -> Nest:
    x, w = graph.operands(op)[:2]
    extents, rows, columns = spatial.window_dims(op, x, w.shape[1:3])
    extents = {"n": x.shape[0], **extents, "k": w.shape[0], "c": x.shape[3]}
    bias = [(Same("k"),)] * (len(op.inputs) - 2)
    weights: tuple[Dim, ...] = (Same("k"), Same("fy"), Same("fx"), Same("c"))
    return Nest(extents, ("n", "y", "x", "k"), ((Same("n"), rows, columns, Same("c")), weights, *bias), macs=True)


def products(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    """The sums without bias. In float64, which is exact for int8 and much faster than numpy's integers."""
    out, zero = graph.result(op).shape[1:3], zero_of(graph.operands(op)[0])
    total = np.zeros((x.shape[0], *out, w.shape[0]))
    for fy, fx, under in spatial.taps(x, op, w.shape[1:3], out, zero):
        total += (under.astype(np.float64) - zero) @ w[:, fy, fx, :].astype(np.float64).T
    return total


def total(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    return products(op, graph, x, w).astype(np.int64)


def reference(op: Op, graph: Graph, x: Array, w: Array, bias: Array | None = None) -> Array:
    start = 0 if bias is None else bias
    if x.dtype == np.int8:
        return spatial.requantize_sum(total(op, graph, x, w) + start, op, graph)
    return clip_float(products(op, graph, x, w) + start, op.attrs["clamp"])


def channels_agree(op: Op, graph: Graph) -> str | None:
    """Weights have as many input channels as the input; there is at most one bias per output channel."""
    x, w = graph.operands(op)[:2]
    if len(x.shape) == 4 and (len(w.shape) != 4 or w.shape[3] != x.shape[3]):
        return f"weights {w.shape} for {x.shape[3]} input channels"
    return None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, w = graph.operands(op)[:2]
    y = graph.result(op)
    (sy, _), (fh, fw) = op.attrs["stride"], w.shape[1:3]
    assert w.data is not None
    shape = spatial.window_shape(op, graph, w.shape[1:3], form)
    stem = f"conv2d_{fh}x{fw}_s{sy}_c{x.shape[3]}_k{y.shape[3]}"
    if not is_float(x):
        layer = sums.of(op, graph, w.data, x.shape[1:], y.shape[1:])
        if (
            found := dae_variants.pointwise(layer, form, stem)
            or sum_variants.best(
                layer,
                form,
                stem,
                (
                    *sum_variants.CONVOLUTIONS,
                    *mve_variants.CONVOLUTIONS,
                    *scalar_variants.CONVOLUTIONS,
                    *cmsis_variants.CONVOLUTIONS,
                ),
            )
        ) is not None:
            return found
    constants = spatial.sum_constants(op, graph, w.data)
    return Kernel("conv2d.c.j2", stem, shape, constants, spatial.sum_scalars(op, graph))


SPEC = Spec(
    kind="conv2d",
    nest=nest,
    reference=reference,
    kernel=kernel,
    tflite={"CONV_2D": from_tflite},
    onnx={"Conv": from_onnx},
    clamps=True,
    interval=intervals.sums(total),
    total=total,
    rows=spatial.rows,
    part=spatial.part,
    limits=(spatial.window_limit, channels_agree, spatial.symmetric_weights),
)
