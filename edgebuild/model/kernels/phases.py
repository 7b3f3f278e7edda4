"""Convolutions whose taps are not neighbours in memory: in groups, dilated, or transposed.

A transposed convolution is one ordinary convolution for each phase of its output (row and column modulo the stride):
phase r has the taps f with f * dilation = r modulo the stride. An ordinary one is a single phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..ir import Array, Graph, Op, Quant
from ..ops import spatial
from ..ops.base import Form, Sums
from .row import KernelLayer

Tap = tuple[int, int, int, int]  # row and column from the input pixel under the output's, tap row and column


def taps(op: Op, graph: Graph) -> list[list[Tap]]:
    """The taps of each phase, by rows and columns of phases."""
    (fh, fw), (dy, dx) = graph.operands(op)[1].shape[1:3], op.attrs["dilation"]
    if not transposed(op):
        return [[(fy * dy, fx * dx, fy, fx) for fy in range(fh) for fx in range(fw)]]
    sy, sx = op.attrs["stride"]
    rows = [sorted(((r - f * dy) // sy, f) for f in range(fh) if (r - f * dy) % sy == 0) for r in range(sy)]
    columns = [sorted(((r - f * dx) // sx, f) for f in range(fw) if (r - f * dx) % sx == 0) for r in range(sx)]
    return [[(y, x, fy, fx) for y, fy in row for x, fx in column] for row in rows for column in columns]


def joined(op: Op, graph: Graph) -> tuple[Op, Graph]:
    """The op unchanged, or an equal one in which the outputs of a row that one input contributes to are one pixel.

    The latter requires that columns do not overlap: S neighbours of K channels then are one pixel of S * K channels.
    """
    (x, w, *bias), y, step = graph.operands(op), graph.result(op), op.attrs["stride"][1]
    dilation = op.attrs["dilation"][1]
    whole = transposed(op) and op.attrs["pad"][1] == 0 and y.shape[2] == x.shape[2] * step
    if not whole or step == 1 or op.attrs.get("groups", 1) > 1 or (w.shape[2] - 1) * dilation >= step or w.data is None:
        return op, graph
    columns = np.zeros((step, *w.shape[:2], 1, w.shape[3]), w.data.dtype)
    for f in range(w.shape[2]):
        columns[f * dilation, :, :, 0] = w.data[:, :, f]
    data = columns.reshape(-1, *columns.shape[2:])
    tensors = {w.name: replace(w, shape=data.shape, data=data, quant=_repeated(w.quant, step))}
    for b in bias:
        values = None if b.data is None else np.tile(b.data.ravel(), step)
        tensors[b.name] = replace(b, shape=(len(data),), data=values, quant=_repeated(b.quant, step))
    tensors[y.name] = replace(y, shape=(*y.shape[:2], x.shape[2], len(data)))
    attrs = {**op.attrs, "stride": (op.attrs["stride"][0], 1), "dilation": (op.attrs["dilation"][0], 1)}
    attrs["size"] = (op.attrs["size"][0], x.shape[2])
    return replace(op, attrs=attrs), replace(graph, tensors={**graph.tensors, **tensors})


def _repeated(quant: Quant | None, count: int) -> Quant | None:
    """The quantisation of `count` times the channels."""
    if quant is None or quant.per_tensor:
        return quant
    return replace(quant, scale=quant.scale * count, zero_point=quant.zero_point * count)


def transposed(op: Op) -> bool:
    """Whether the op is a transposed convolution, which has the size of the result as an attribute."""
    return "size" in op.attrs


def run(op: Op, taps_of_phase: Sequence[Tap]) -> int:
    """The number of taps of each row that are neighbours in memory: all of them, or 1."""
    row = [x for y, x, _, _ in taps_of_phase if y == taps_of_phase[0][0]]
    near = row == [*range(row[0], row[0] + len(row))] if row else False
    return len(row) if near and op.attrs.get("groups", 1) == 1 else 1


def weights(w: Array, taps_of_phase: Sequence[Tap]) -> Array:
    """K x taps x channels; a phase without taps gets one of zeros."""
    return np.stack([w[:, fy, fx] for _, _, fy, fx in taps_of_phase] or [np.zeros_like(w[:, 0, 0])], axis=1)


def groups(op: Op, k: int) -> list[slice]:
    """The output channels of each group."""
    count = op.attrs.get("groups", 1)
    return [slice(g * (k // count), (g + 1) * (k // count)) for g in range(count)]


def group(s: Sums, own: slice | Array) -> Sums:
    """The sums of some of the channels."""
    weights, added = s.weights[own], None if s.added is None else s.added[own]
    return replace(
        s, out=(*s.out[:2], len(weights)), weights=weights, start=s.start[own], mantissa=s.mantissa[own],
        right=s.right[own], added=added,
    )  # fmt: skip


def int8_sums(op: Op, graph: Graph, listed: Sequence[Sequence[Tap]]) -> list[Sums]:
    """Sums of each phase; none unless it is one image and all int8, and no sum can leave int32."""
    (x, w), y = graph.operands(op)[:2], graph.result(op)
    if {x.dtype, w.dtype, y.dtype} != {"int8"} or x.shape[0] != 1 or w.data is None:
        return []
    parts = [weights(w.data, own)[:, :, None] for own in listed]
    sums = [spatial.sums_of(op, graph, "", part, x.shape[1:], y.shape[1:]) for part in parts]
    return sums if all(s.fits for s in sums) else []


def places(listed: Sequence[Sequence[Tap]], heads: Sequence[Sequence[int]]) -> Array:
    """For each phase: the numbers of its head, the number of its taps, and their rows and columns."""
    most, ahead = max(1, *map(len, listed)), len(heads[0]) + 1
    table = np.zeros((len(listed), ahead + 2 * most), np.int32)
    for row, own, head in zip(table, listed, heads, strict=True):
        row[: ahead - 1], row[ahead - 1] = head, max(1, len(own))
        row[ahead : ahead + 2 * len(own)] = [place for tap in own for place in tap[:2]]
    return table


def shape(layer: KernelLayer, op: Op, graph: Graph, table: Array) -> dict[str, int | bool]:
    """Template numbers of a `joined` op, for kernels that compute two outputs of a phase at a time.

    `columns`: pixels of a row, of so many `channels`, of which a group computes its `own`, in phases `across`. `into`:
    distance of neighbouring outputs of a phase; `along`: their distance in the input. Letters are those of the layer's
    op.
    """
    x, w, y, groups = *graph.operands(op)[:2], graph.result(op), op.attrs.get("groups", 1)
    stride, pad, whole, stated = (
        op.attrs["stride"],
        op.attrs["pad"],
        not transposed(op),
        layer.graph.operands(layer.op)[1],
    )
    return spatial.window_shape(layer.op, layer.graph, stated.shape[1:3], layer.form) | {
        "whole": whole, "G": groups, "CG": w.shape[3], "KG": stated.shape[0] // groups,
        "columns": y.shape[2], "channels": y.shape[3], "own": y.shape[3] // groups, "across": stride[1],
        "entry": table.shape[1], "padding": -(-x.shape[3] // 4) * 4,
        "into": 1 if whole else stride[1], "along": stride[1] if whole else 1,
        "phase_y": pad[0] % stride[0], "phase_x": pad[1] % stride[1],
        "below": pad[0] // stride[0], "beside": pad[1] // stride[1],
    }  # fmt: skip


def pairs(op: Op, graph: Graph, form: Form) -> int:
    """The number of pairs of outputs that a kernel computes."""
    (oh, ow), across = graph.result(op).shape[1:3], 1 if not transposed(op) else op.attrs["stride"][1]
    return (1 if form.rolled else oh) * across * -(-ow // across // 2)
