"""Convolutions whose taps are no neighbours in memory: in groups, dilated, or transposed, two pixels at a time.

A list tells where the pixel under each tap lies. A transposed convolution is one ordinary convolution for each phase
of its output (row and column modulo the stride): phase r has the taps f with f * dilation = r modulo the stride.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ...ir import Array, Graph, Op
from ...ops import spatial, sums
from ...ops.base import C_TYPES, Constant, Kernel, Sums, Traffic, is_float, zero_of
from ..row import Layer
from . import wide
from .convolution import bounds, paired, per_output

Taps = list[tuple[int, int, int, int]]  # rows and columns from the pixel below the output's, tap row and column


@dataclass(frozen=True)
class Phase:
    """The outputs of a phase as sums: a stream of weights for each group; `taps` are those that count.

    `finish`: how sums become results, with the scalars that this takes. `result`: instructions for that.
    """

    taps: Taps
    streams: tuple[Array, ...]
    finish: str
    scalars: dict[str, int | float]
    result: float


def convolution(layer: Layer) -> Kernel | None:
    """Only what other kernels do not serve: groups, columns that are not neighbours, and int16."""
    op, graph = layer.op, layer.graph
    x, w = graph.operands(op)[:2]
    neighbours = x.dtype == "int8" and (op.attrs["dilation"][1] == 1 or w.shape[2] == 1)
    if w.data is None or (op.attrs.get("groups", 1) == 1 and neighbours):
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
    """Its weights in the order in which they are read; None if there is no such form. A phase without taps gets one."""
    (x, w), y, groups = graph.operands(op)[:2], graph.result(op), op.attrs.get("groups", 1)
    if x.shape[0] != 1 or w.data is None:
        return None
    k, _, _, c = w.shape
    under = [w.data[:, fy, fx] for _, _, fy, fx in taps] or [np.zeros((k, c), np.int8)]
    weights, taps = np.stack(under, axis=1), taps or [(0, 0, 0, 0)]
    own = [slice(g * (k // groups), (g + 1) * (k // groups)) for g in range(groups)]
    if wide.fits(op, graph):
        first, factors, (end, scalars) = wide.start(op, graph), wide.rescaling(op, graph), wide.ends(op, graph)
        streams = tuple(wide.stream(weights[part], first[part], factors[part], 2) for part in own)
        return Phase(taps, streams, f"wide{end}", scalars, 9.0 if end else 5.0)
    if is_float(x) or {x.dtype, w.dtype, y.dtype} != {"int8"}:
        return None
    s = sums.of(op, graph, "", weights[:, :, None], x.shape[1:], y.shape[1:])
    found = [paired(_group(s, part), weights.shape[1]) for part in own]
    streams = tuple(stream for stream in found if stream is not None)
    if len(streams) < groups or s.finish == "sums":
        return None
    return Phase(taps, streams, s.finish, {"y_zero": s.y_zero, **bounds(s)}, per_output(s))


def _group(s: Sums, own: slice) -> Sums:
    """The channels of one group."""
    weights = s.weights[own]
    return replace(
        s, out=(*s.out[:2], len(weights)), weights=weights, start=s.start[own], mantissa=s.mantissa[own],
        right=s.right[own],
    )  # fmt: skip


def _kernel(layer: Layer, phases: list[list[Phase]], period: tuple[int, int]) -> Kernel | None:
    """`period`: rows and columns of phases. All of them must end alike."""
    op, graph, form, flat = layer.op, layer.graph, layer.form, [p for row in phases for p in row]
    (x, w), (oh, ow, k), finish = graph.operands(op)[:2], graph.result(op).shape[1:], flat[0].finish
    if any(p.finish != finish for p in flat):
        return None
    item, block = (2, 2) if finish.startswith("wide") else (1, 4)
    groups, most, c = op.attrs.get("groups", 1), max(len(p.taps) for p in flat), w.shape[3]
    kg, n, whole = k // groups, -(-c // 4) * 4, op.kind == "conv2d"
    stride, pad = op.attrs["stride"], op.attrs["pad"]
    shape = spatial.window_shape(op, graph, w.shape[1:3], form) | {
        "whole": whole, "G": groups, "CG": c, "KG": kg, "blocks": kg // block, "tail": kg % block,
        "full": kg // block * block, "gather": _gather(item, c), "n": n, "entry": 4 + 2 * most, "half": n // 2,
        "item": C_TYPES[x.dtype], "wide": item == 2, "finish": finish, "bounds": finish.endswith("_clamped"),
        "list": 4 * most * n, "zeros": 4 * most * n + 8 * most,
        "padding": -(-x.shape[3] // 4) * 4, "into": 1 if whole else stride[1], "along": stride[1] if whole else 1,
        "phase_y": pad[0] % stride[0], "phase_x": pad[1] % stride[1],
        "below": pad[0] // stride[0], "beside": pad[1] // stride[1],
    }  # fmt: skip
    stream = np.concatenate([part.ravel() for p in flat for part in p.streams])
    constants = (
        Constant("w", stream, "start values, weights and rescaling by phases, groups and four channels"),
        Constant("places", _places(flat, kg, block, 4 + 2 * most), "of each phase: its weights, a group's last, taps"),
    )
    scalars: dict[str, int | float] = {"x_zero": zero_of(x), **flat[0].scalars}
    rows, each = 1 if form.rolled else oh, [_pair(len(p.taps), c, groups, kg, p.result) for p in flat]
    pairs = rows * period[1] * -(-ow // period[1] // 2)
    return Kernel(
        "arm_dsp/gathered.c.j2", layer.plain.stem, shape, constants, scalars,
        scratch=shape["zeros"] + item * shape["padding"], variant="dsp gathered taps",
        estimate=60 + 3 * shape["padding"] + pairs * sum(each) / len(each), traffic=Traffic(passes=rows * -(-ow // 2)),
    )  # fmt: skip


def _gather(item: int, c: int) -> str:
    """Of the functions that widen a group's channels: by their number."""
    if item == 2:
        return "_halves" if c % 4 else "_wide"
    return {4: "_4", 8: "_8"}.get(c, "_bytes" if c % 4 else "")


def _places(phases: list[Phase], kg: int, block: int, entry: int) -> Array:
    """Where the weights of each phase begin, those of the last channels of a group, and the next group's; its taps."""
    table, at = np.zeros((len(phases), entry), np.int32), 0
    for row, p in zip(table, phases, strict=True):
        step = p.streams[0].shape[1]
        row[:4] = at, kg // block * step, -(-kg // block) * step, len(p.taps)
        row[4 : 4 + 2 * len(p.taps)] = [place for tap in p.taps for place in tap[:2]]
        at += sum(stream.size for stream in p.streams)
    return table.ravel()


def _pair(taps: int, c: int, groups: int, kg: int, result: float) -> float:
    """Instructions for two pixels."""
    n = -(-c // 4) * 4
    widen = taps * (10 + 20 * c if c % 4 else 3 + 1.75 * c if c <= 8 else 6 + 2.25 * c)
    return 30 + 22 * taps + groups * (50 + widen + 2 * kg * (0.8 * taps * n + result) + 25 * (kg % 4 > 0))
