"""TRANSPOSE_CONV, ConvTranspose: out[y, x, k] = sum of in[i, j, c] * w[k, fy, fx, c] where y = i * s + fy * d - p.

Each output element gathers the inputs that would have been scattered over it. Weights are K x FH x FW x (C / groups);
`size` are the rows and columns of the output, which stride and padding leave open.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Dim, Nest, Same, Spread, Whole
from . import intervals, spatial
from .base import Form, Kernel, Ranges, Spec, zero_of

OPTIONS, SAME, VALID = Struct("<3i"), 1, 2  # of MediaPipe's operator


def nest(op: Op, graph: Graph) -> Nest:
    x, w = graph.operands(op)[:2]
    (sy, sx), (dy, dx), (py, px) = op.attrs["stride"], op.attrs["dilation"], op.attrs["pad"]
    height, width = op.attrs["size"]
    extents = {"n": x.shape[0], "y": height, "x": width, "fy": w.shape[1], "fx": w.shape[2]}
    extents |= {"k": w.shape[0], "c": w.shape[3]}
    rows, columns = Spread("y", "fy", sy, dy, py, x.shape[1]), Spread("x", "fx", sx, dx, px, x.shape[2])
    channels: Dim = Same("c") if op.attrs["groups"] == 1 else Whole(x.shape[3])
    weights: tuple[Dim, ...] = (Same("k"), Same("fy"), Same("fx"), Same("c"))
    bias = [(Same("k"),)] * (len(op.inputs) - 2)
    return Nest(extents, ("n", "y", "x", "k"), ((Same("n"), rows, columns, channels), weights, *bias), macs=True)


def products(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    """The sums without bias, in float64, which is exact for up to int16: scattered tap by tap, then cut to size."""
    (sy, sx), (dy, dx), (py, px) = op.attrs["stride"], op.attrs["dilation"], op.attrs["pad"]
    (n, h, width, _), (k, fh, fw, c), (oh, ow) = x.shape, w.shape, op.attrs["size"]
    far = (max(oh + py, (h - 1) * sy + (fh - 1) * dy + 1), max(ow + px, (width - 1) * sx + (fw - 1) * dx + 1))
    low = [max(0, -p) for p in (py, px)]
    total = np.zeros((n, far[0] + low[0], far[1] + low[1], k))
    values, groups = x.astype(np.float64) - zero_of(graph.operands(op)[0]), op.attrs["groups"]
    for g in range(groups):
        part, outs = values[..., g * c : (g + 1) * c], slice(g * (k // groups), (g + 1) * (k // groups))
        for fy in range(fh):
            for fx in range(fw):
                y0, x0 = fy * dy + low[0], fx * dx + low[1]
                rows, columns = slice(y0, y0 + (h - 1) * sy + 1, sy), slice(x0, x0 + (width - 1) * sx + 1, sx)
                total[:, rows, columns, outs] += part @ w[outs, fy, fx].astype(np.float64).T
    top, left = py + low[0], px + low[1]
    return total[:, top : top + oh, left : left + ow]


def part(op: Op, graph: Graph, out: Ranges, x: Ranges) -> dict[str, Any]:
    """Output (first, past) from input (low, high): both begin at 0 again, so the padding moves along."""
    pad = tuple(
        p + first - low * s
        for p, s, (first, _), (low, _) in zip(op.attrs["pad"], op.attrs["stride"], out[1:3], x[1:3], strict=True)
    )
    return {**op.attrs, "pad": pad, "size": tuple(past - first for first, past in out[1:3])}


def groups_agree(op: Op, graph: Graph) -> str | None:
    """Images are N x H x W x C; groups divide both channel counts; stride and dilation are at least 1."""
    x, w = graph.operands(op)[:2]
    groups = op.attrs["groups"]
    bad = len(x.shape) != 4 or len(w.shape) != 4 or w.shape[3] * groups != x.shape[3] or w.shape[0] % max(groups, 1)
    bad = bad or min(*op.attrs["stride"], *op.attrs["dilation"], *op.attrs["size"]) < 1
    return f"weights {w.shape}, {groups} groups, input {x.shape}, output {op.attrs['size']}" if bad else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, w = graph.operands(op)[:2]
    assert w.data is not None
    shape = spatial.window_shape(op, graph, w.shape[1:3], form) | spatial.sum_types(op, graph)
    shape |= {"CG": w.shape[3], "KG": w.shape[0] // op.attrs["groups"]}
    stem = f"transpose_conv_{w.shape[1]}x{w.shape[2]}_s{op.attrs['stride'][0]}_c{x.shape[3]}_k{w.shape[0]}"
    constants = spatial.sum_constants(op, graph, w.data)
    return Kernel("transpose_conv2d.c.j2", stem, shape, constants, spatial.sum_scalars(op, graph))


SPEC = Spec(
    kind="transpose_conv2d",
    nest=nest,
    kernel=kernel,
    **intervals.of_products(products, parts=False),
    rows=spatial.rows,
    part=part,
    limits=(groups_agree, spatial.bias_agrees, spatial.symmetric_weights),
)
