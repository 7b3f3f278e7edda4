"""Convolutions whose taps are no neighbours in memory: in groups, dilated, or transposed.

A transposed convolution is one ordinary convolution for each phase of its output (row and column modulo the stride):
phase r has the taps f with f * dilation = r modulo the stride. An ordinary one is a single phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..ir import Array, Graph, Op
from ..ops import spatial
from ..ops.base import Form, Sums

Tap = tuple[int, int, int, int]  # rows and columns from the pixel below the output's, tap row and column


def taps(op: Op, graph: Graph) -> list[list[Tap]]:
    """The taps of each phase, by rows and columns of phases."""
    (fh, fw), (dy, dx) = graph.operands(op)[1].shape[1:3], op.attrs["dilation"]
    if not transposed(op):
        return [[(fy * dy, fx * dx, fy, fx) for fy in range(fh) for fx in range(fw)]]
    sy, sx = op.attrs["stride"]
    rows = [sorted(((r - f * dy) // sy, f) for f in range(fh) if (r - f * dy) % sy == 0) for r in range(sy)]
    columns = [sorted(((r - f * dx) // sx, f) for f in range(fw) if (r - f * dx) % sx == 0) for r in range(sx)]
    return [[(y, x, fy, fx) for y, fy in row for x, fx in column] for row in rows for column in columns]


def transposed(op: Op) -> bool:
    """The size of the result is an attribute, since stride and padding leave it open."""
    return "size" in op.attrs


def run(op: Op, found: Sequence[Tap]) -> int:
    """How many taps of each row are neighbours in memory: all of them, or 1."""
    row = [x for y, x, _, _ in found if y == found[0][0]]
    near = row == [*range(row[0], row[0] + len(row))] if row else False
    return len(row) if near and op.attrs.get("groups", 1) == 1 else 1


def weights(w: Array, found: Sequence[Tap]) -> Array:
    """K x taps x channels; a phase without taps gets one of zeros."""
    return np.stack([w[:, fy, fx] for _, _, fy, fx in found] or [np.zeros_like(w[:, 0, 0])], axis=1)


def groups(op: Op, k: int) -> list[slice]:
    """The output channels of each group."""
    count = op.attrs.get("groups", 1)
    return [slice(g * (k // count), (g + 1) * (k // count)) for g in range(count)]


def group(s: Sums, own: slice) -> Sums:
    """The channels of one group."""
    weights = s.weights[own]
    return replace(
        s, out=(*s.out[:2], len(weights)), weights=weights, start=s.start[own], mantissa=s.mantissa[own],
        right=s.right[own],
    )  # fmt: skip


def places(found: Sequence[Sequence[Tap]], heads: Sequence[Sequence[int]]) -> Array:
    """For each phase the numbers of its head, how many taps it has, and rows and columns of these."""
    most, ahead = max(1, *map(len, found)), len(heads[0]) + 1
    table = np.zeros((len(found), ahead + 2 * most), np.int32)
    for row, own, head in zip(table, found, heads, strict=True):
        row[: ahead - 1], row[ahead - 1] = head, max(1, len(own))
        row[ahead : ahead + 2 * len(own)] = [place for tap in own for place in tap[:2]]
    return table


def shape(op: Op, graph: Graph, form: Form, table: Array) -> dict[str, int | bool]:
    """Numbers of the templates, which take two outputs of a phase at a time.

    `into`: from one output of a phase to the next, `along`: what that is in the input.
    """
    x, w = graph.operands(op)[:2]
    stride, pad, whole = op.attrs["stride"], op.attrs["pad"], not transposed(op)
    return spatial.window_shape(op, graph, w.shape[1:3], form) | {
        "whole": whole, "G": op.attrs.get("groups", 1), "CG": w.shape[3], "KG": w.shape[0] // op.attrs.get("groups", 1),
        "entry": table.shape[1], "padding": -(-x.shape[3] // 4) * 4,
        "into": 1 if whole else stride[1], "along": stride[1] if whole else 1,
        "phase_y": pad[0] % stride[0], "phase_x": pad[1] % stride[1],
        "below": pad[0] // stride[0], "beside": pad[1] // stride[1],
    }  # fmt: skip


def pairs(op: Op, graph: Graph, form: Form) -> int:
    """How many times two outputs are computed at a time."""
    (oh, ow), across = graph.result(op).shape[1:3], 1 if not transposed(op) else op.attrs["stride"][1]
    return (1 if form.rolled else oh) * across * -(-ow // across // 2)
