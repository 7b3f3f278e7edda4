"""Convolutions whose taps are no neighbours in memory: in groups, dilated, or transposed, two pixels at a time.

A list tells where the pixel under each tap lies. A transposed convolution is one ordinary convolution for each phase
of its output (row and column modulo the stride): phase r has the taps f with f * dilation = r modulo the stride.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...ir import Array, Graph, Op
from ...ops import spatial, sums
from ...ops.base import Constant, Kernel, Sums, Traffic, is_float, zero_of
from ..row import Layer
from .convolution import bounds, paired, per_output

Taps = list[tuple[int, int, int, int]]  # rows and columns from the pixel below the output's, tap row and column


@dataclass(frozen=True)
class Phase:
    """The outputs of a phase as sums: `stream` holds its groups one after the other, `taps` are those that count."""

    taps: Taps
    sums: Sums
    streams: tuple[Array, ...]


def convolution(layer: Layer) -> Kernel | None:
    """Only what other kernels do not serve: groups, and columns that are not neighbours."""
    op, graph = layer.op, layer.graph
    w = graph.operands(op)[1]
    if w.data is None or (op.attrs["groups"] == 1 and (op.attrs["dilation"][1] == 1 or w.shape[2] == 1)):
        return None
    (fh, fw), (dy, dx) = w.shape[1:3], op.attrs["dilation"]
    taps = [(fy * dy, fx * dx, fy, fx) for fy in range(fh) for fx in range(fw)]
    phase = _phase(op, graph, taps)
    return _kernel(layer, [[phase]], (1, 1)) if phase is not None else None


def transposed(layer: Layer) -> Kernel | None:
    op, graph = layer.op, layer.graph
    w = graph.operands(op)[1]
    (sy, sx), (dy, dx) = op.attrs["stride"], op.attrs["dilation"]
    if w.data is None:
        return None
    found: list[list[Phase]] = []
    for row in range(sy):
        found.append([])
        for column in range(sx):
            rows = [((row - fy * dy) // sy, fy) for fy in range(w.shape[1]) if (row - fy * dy) % sy == 0]
            columns = [((column - fx * dx) // sx, fx) for fx in range(w.shape[2]) if (column - fx * dx) % sx == 0]
            phase = _phase(op, graph, [(y, x, fy, fx) for y, fy in rows for x, fx in columns])
            if phase is None:
                return None
            found[-1].append(phase)
    return _kernel(layer, found, (sy, sx))


def _phase(op: Op, graph: Graph, taps: Taps) -> Phase | None:
    """Its sums and its weights as eb_dot2 reads them; None if there is no such form. A phase without taps gets one."""
    (x, w), y = graph.operands(op)[:2], graph.result(op)
    if is_float(x) or {x.dtype, w.dtype, y.dtype} != {"int8"} or x.shape[0] != 1 or w.data is None:
        return None
    groups, (k, _, _, c) = op.attrs["groups"], w.shape
    under = [w.data[:, fy, fx] for _, _, fy, fx in taps] or [np.zeros((k, c), np.int8)]
    weights = np.stack(under, axis=1)[:, :, None]
    s = sums.of(op, graph, "", weights, x.shape[1:], y.shape[1:])
    parts = []
    for g in range(groups):
        own = slice(g * (k // groups), (g + 1) * (k // groups))
        part = replace(
            s, out=(*s.out[:2], k // groups), weights=weights[own], start=s.start[own], mantissa=s.mantissa[own],
            right=s.right[own],
        )  # fmt: skip
        parts.append(paired(part, weights.shape[1]))
    streams = tuple(p for p in parts if p is not None)
    return Phase(taps or [(0, 0, 0, 0)], s, streams) if len(streams) == groups and s.finish != "sums" else None


def _kernel(layer: Layer, phases: list[list[Phase]], period: tuple[int, int]) -> Kernel | None:
    """`period`: rows and columns of phases. All of them must end alike."""
    op, graph, form, flat = layer.op, layer.graph, layer.form, [p for row in phases for p in row]
    (x, w), (oh, ow, k), s = graph.operands(op)[:2], graph.result(op).shape[1:], flat[0].sums
    if any(p.sums.finish != s.finish for p in flat):
        return None
    groups, most, c = op.attrs["groups"], max(len(p.taps) for p in flat), w.shape[3]
    kg, n, whole = k // groups, -(-c // 4) * 4, op.kind == "conv2d"
    stride, pad = op.attrs["stride"], op.attrs["pad"]
    shape = spatial.window_shape(op, graph, w.shape[1:3], form) | {
        "whole": whole, "G": groups, "CG": c, "KG": kg, "blocks": kg // 4, "tail": kg % 4, "full": kg // 4 * 4,
        "gather": {4: "_4", 8: "_8"}.get(c, "_bytes" if c % 4 else ""), "n": n, "entry": 4 + 2 * most,
        "finish": s.finish, "list": 4 * most * n, "zeros": 4 * most * n + 8 * most,
        "padding": -(-x.shape[3] // 4) * 4, "into": 1 if whole else stride[1], "along": stride[1] if whole else 1,
        "phase_y": pad[0] % stride[0], "phase_x": pad[1] % stride[1],
        "below": pad[0] // stride[0], "beside": pad[1] // stride[1],
    }  # fmt: skip
    stream = np.concatenate([part.ravel() for p in flat for part in p.streams])
    constants = (
        Constant("w", stream, "start values, weights and rescaling by phases, groups and four channels"),
        Constant("places", _places(flat, kg, 4 + 2 * most), "of each phase: its weights, a group's last, taps"),
    )
    scalars: dict[str, int | float] = {"x_zero": zero_of(x), "y_zero": s.y_zero, **bounds(s)}
    rows, each = 1 if form.rolled else oh, [_pair(len(p.taps), c, groups, kg, per_output(s)) for p in flat]
    pairs = rows * period[1] * -(-ow // period[1] // 2)
    return Kernel(
        "arm_dsp/gathered.c.j2", layer.plain.stem, shape, constants, scalars,
        scratch=shape["zeros"] + shape["padding"], variant="dsp gathered taps",
        estimate=60 + 3 * shape["padding"] + pairs * sum(each) / len(each), traffic=Traffic(passes=rows * -(-ow // 2)),
    )  # fmt: skip


def _places(phases: list[Phase], kg: int, entry: int) -> Array:
    """Where the weights of each phase begin, those of the last channels of a group, and the next group's; its taps."""
    table, at = np.zeros((len(phases), entry), np.int32), 0
    for row, p in zip(table, phases, strict=True):
        step = p.streams[0].shape[1]
        row[:4] = at, kg // 4 * step, -(-kg // 4) * step, len(p.taps)
        row[4 : 4 + 2 * len(p.taps)] = [place for tap in p.taps for place in tap[:2]]
        at += sum(stream.size for stream in p.streams)
    return table.ravel()


def _pair(taps: int, c: int, groups: int, kg: int, result: float) -> float:
    """Instructions for two pixels."""
    n = -(-c // 4) * 4
    widen = taps * (10 + 20 * c if c % 4 else 3 + 1.75 * c if c <= 8 else 6 + 2.25 * c)
    return 30 + 22 * taps + groups * (50 + widen + 2 * kg * (0.8 * taps * n + result) + 25 * (kg % 4 > 0))
