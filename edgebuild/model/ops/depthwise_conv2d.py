"""DEPTHWISE_CONV_2D, Conv with a group per channel: out[y, x, k] = sum over (fy, fx) of in[.., k / m] * w[fy, fx, k].

m = K / C is the channel multiplier. Weights are 1 x FH x FW x K.
"""

from __future__ import annotations

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Dim, Fixed, Grouped, Nest, Same
from . import intervals, spatial, sums
from .base import Form, Kernel, Spec, Sums, is_float, zero_of


def nest(op: Op, graph: Graph) -> Nest:
    """With m = 1 the channel axis is carried from input to output; else a group of m shares one."""
    x, w = graph.operands(op)[:2]
    extents, rows, columns = spatial.window_dims(op, x, w.shape[1:3])
    extents = {"n": x.shape[0], **extents, "k": w.shape[3]}
    channel: Dim = Same("k") if w.shape[3] == x.shape[3] else Grouped("k", w.shape[3] // x.shape[3])
    bias = [(Same("k"),)] * (len(op.inputs) - 2)
    weights: tuple[Dim, ...] = (Fixed(), Same("fy"), Same("fx"), Same("k"))
    return Nest(extents, ("n", "y", "x", "k"), ((Same("n"), rows, columns, channel), weights, *bias), macs=True)


def products(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    """The sums without bias, in float64, which is exact for up to int16."""
    out, zero = graph.result(op).shape[1:3], zero_of(graph.operands(op)[0])
    total = np.zeros((x.shape[0], *out, w.shape[3]))
    for fy, fx, under in spatial.taps(x, op, w.shape[1:3], out, zero):
        total += np.repeat(under.astype(np.float64) - zero, w.shape[3] // x.shape[3], axis=3) * w[0, fy, fx]
    return total


def whole_multiplier(op: Op, graph: Graph) -> str | None:
    """Output channels are a whole multiple of the input channels, weights are 1 x FH x FW x K."""
    x, w = graph.operands(op)[:2]
    if len(x.shape) == 4 and (len(w.shape) != 4 or w.shape[0] != 1 or w.shape[3] % x.shape[3]):
        return f"weights {w.shape} for {x.shape[3]} input channels"
    return None


def stem(op: Op, graph: Graph) -> str:
    w = graph.operands(op)[1]
    return f"depthwise_{w.shape[1]}x{w.shape[2]}_s{op.attrs['stride'][0]}_c{w.shape[3]}"


def layer(op: Op, graph: Graph) -> Sums | None:
    x, w = graph.operands(op)[:2]
    if is_float(x) or w.data is None or not spatial.plain(op, graph):
        return None
    weights = w.data.reshape(*w.shape[1:3], -1).transpose(2, 0, 1)[..., None]
    return sums.of(op, graph, stem(op, graph), weights, x.shape[1:], graph.result(op).shape[1:])


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, w = graph.operands(op)[:2]
    assert w.data is not None
    shape = spatial.window_shape(op, graph, w.shape[1:3], form) | spatial.sum_types(op, graph)
    shape |= {"M": w.shape[3] // x.shape[3]}
    constants = spatial.sum_constants(op, graph, w.data)
    return Kernel("depthwise_conv2d.c.j2", stem(op, graph), shape, constants, spatial.sum_scalars(op, graph))


SPEC = Spec(
    kind="depthwise_conv2d",
    nest=nest,
    kernel=kernel,
    **intervals.of_products(products),
    sums=layer,
    rows=spatial.rows,
    part=spatial.part,
    limits=(spatial.window_limit, whole_multiplier, spatial.bias_agrees, spatial.symmetric_weights),
)
