"""CONV_2D, Conv: out[y, x, k] = sum over (fy, fx, c) of in[y*s + fy*d - p, x*s + fx*d - p, c] * w[k, fy, fx, c].

Letters, here and in the C: H rows, W columns, C channels in, K channels out, FH x FW the window.
Weights are K x FH x FW x C; with `groups` each of as many parts of K reads its own part of C, which is all that weights
then have.
"""

from __future__ import annotations

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Dim, Nest, Same, Whole
from . import intervals, spatial, sums
from .base import Form, Kernel, Spec, Sums, is_float, zero_of


def nest(op: Op, graph: Graph) -> Nest:
    x, w = graph.operands(op)[:2]
    extents, rows, columns = spatial.window_dims(op, x, w.shape[1:3])
    extents = {"n": x.shape[0], **extents, "k": w.shape[0], "c": w.shape[3]}
    channels: Dim = Same("c") if groups(op) == 1 else Whole(x.shape[3])
    bias = [(Same("k"),)] * (len(op.inputs) - 2)
    weights: tuple[Dim, ...] = (Same("k"), Same("fy"), Same("fx"), Same("c"))
    return Nest(extents, ("n", "y", "x", "k"), ((Same("n"), rows, columns, channels), weights, *bias), macs=True)


def groups(op: Op) -> int:
    return int(op.attrs.get("groups", 1))


def parts(op: Op, channels: int, out: int) -> list[tuple[slice, slice]]:
    """The channels in and out of each group."""
    c, k = channels // groups(op), out // groups(op)
    return [(slice(g * c, (g + 1) * c), slice(g * k, (g + 1) * k)) for g in range(groups(op))]


def products(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    """The sums without bias. In float64, which is exact for up to int16 and much faster than numpy's integers."""
    out, zero = graph.result(op).shape[1:3], zero_of(graph.operands(op)[0])
    total = np.zeros((x.shape[0], *out, w.shape[0]))
    for fy, fx, under in spatial.taps(x, op, w.shape[1:3], out, zero):
        values = under.astype(np.float64) - zero
        for ins, outs in parts(op, x.shape[3], w.shape[0]):
            total[..., outs] += values[..., ins] @ w[outs, fy, fx, :].astype(np.float64).T
    return total


def channels_agree(op: Op, graph: Graph) -> str | None:
    """Weights have as many input channels as a group of the input; groups divide the output channels, too."""
    x, w = graph.operands(op)[:2]
    if len(x.shape) == 4 and (len(w.shape) != 4 or w.shape[3] * groups(op) != x.shape[3] or w.shape[0] % groups(op)):
        return f"weights {w.shape}, {groups(op)} groups, for {x.shape[3]} input channels"
    return None


def stem(op: Op, graph: Graph) -> str:
    x, w = graph.operands(op)[:2]
    return f"conv2d_{w.shape[1]}x{w.shape[2]}_s{op.attrs['stride'][0]}_c{x.shape[3]}_k{w.shape[0]}"


def layer(op: Op, graph: Graph) -> Sums | None:
    x, w = graph.operands(op)[:2]
    if is_float(x) or w.data is None or not spatial.plain(op, graph):
        return None
    return sums.of(op, graph, stem(op, graph), w.data, x.shape[1:], graph.result(op).shape[1:])


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    w = graph.operands(op)[1]
    assert w.data is not None
    shape = spatial.window_shape(op, graph, w.shape[1:3], form) | spatial.sum_types(op, graph)
    shape |= {"CG": w.shape[3], "KG": w.shape[0] // groups(op)}
    constants = spatial.sum_constants(op, graph, w.data)
    return Kernel("conv2d.c.j2", stem(op, graph), shape, constants, spatial.sum_scalars(op, graph))


SPEC = Spec(
    kind="conv2d",
    nest=nest,
    kernel=kernel,
    **intervals.of_products(products),
    sums=layer,
    rows=spatial.rows,
    part=spatial.part,
    limits=(spatial.window_limit, channels_agree, spatial.bias_agrees, spatial.symmetric_weights),
)
