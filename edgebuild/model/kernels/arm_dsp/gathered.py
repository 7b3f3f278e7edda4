"""Grouped, dilated and transposed convolutions, and those of int16 values: two pixels at a time.

A list tells where the pixel under each tap lies; what lies there is widened group by group. See kernels/phases.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir import Array, Graph, Op
from ...ops import sums
from ...ops.base import C_TYPES, Constant, Kernel, Traffic, is_float, zero_of
from .. import phases
from ..row import KernelLayer
from . import wide
from .convolution import bounds, paired, per_output


@dataclass(frozen=True)
class PhaseSums:
    """The outputs of a phase as sums: a stream of weights for each group.

    `finish`: how sums become results, with the scalars that this takes. `result`: instructions for that.
    """

    taps: int
    streams: tuple[Array, ...]
    finish: str
    scalars: dict[str, int | float]
    result: float


def convolution(layer: KernelLayer) -> Kernel | None:
    """Only what other kernels do not serve: groups, columns that are not neighbours, and int16."""
    x, w = layer.graph.operands(layer.op)[:2]
    neighbours = x.dtype == "int8" and (layer.op.attrs["dilation"][1] == 1 or w.shape[2] == 1)
    return None if layer.op.attrs.get("groups", 1) == 1 and neighbours else gathered(layer)


def _phase(op: Op, graph: Graph, taps: list[phases.Tap]) -> PhaseSums | None:
    """Its weights in the order in which they are read; None if there is no such form."""
    (x, w), y = graph.operands(op)[:2], graph.result(op)
    if x.shape[0] != 1 or w.data is None:
        return None
    weights, own = phases.weights(w.data, taps), phases.groups(op, len(w.data))
    if wide.fits(op, graph):
        first, factors, (end, scalars) = wide.start(op, graph), wide.rescaling(op, graph), wide.ends(op, graph)
        streams = tuple(wide.stream(weights[part], first[part], factors[part], 2) for part in own)
        return PhaseSums(weights.shape[1], streams, f"wide{end}", scalars, 9.0 if end else 5.0)
    if is_float(x) or {x.dtype, w.dtype, y.dtype} != {"int8"}:
        return None
    s = sums.of(op, graph, "", weights[:, :, None], x.shape[1:], y.shape[1:])
    found = [paired(phases.group(s, part), weights.shape[1]) for part in own]
    streams = tuple(stream for stream in found if stream is not None)
    if len(streams) < len(own) or s.finish == "sums":
        return None
    return PhaseSums(weights.shape[1], streams, s.finish, {"y_zero": s.y_zero, **bounds(s)}, per_output(s))


def gathered(layer: KernelLayer) -> Kernel | None:
    """All phases must end alike."""
    op, graph, form, taps = layer.op, layer.graph, layer.form, phases.taps(layer.op, layer.graph)
    made = [_phase(op, graph, own) for own in taps]
    found = [p for p in made if p is not None and p.finish == getattr(made[0], "finish", "")]
    if len(found) < len(taps):
        return None
    (x, w), finish = graph.operands(op)[:2], found[0].finish
    item, block = (2, 2) if finish.startswith("wide") else (1, 4)
    most, (k, _, _, c) = max(p.taps for p in found), w.shape
    kg, n = k // op.attrs.get("groups", 1), -(-c // 4) * 4
    table = phases.places(taps, _heads(found, kg, block))
    shape = phases.shape(op, graph, form, table) | {
        "blocks": kg // block, "tail": kg % block, "full": kg // block * block, "gather": _gather(item, c), "n": n,
        "half": n // 2, "item": C_TYPES[x.dtype], "wide": item == 2, "finish": finish,
        "bounds": finish.endswith("_clamped"), "list": 4 * most * n, "zeros": 4 * most * n + 8 * most,
    }  # fmt: skip
    stream = np.concatenate([part.ravel() for p in found for part in p.streams])
    constants = (
        Constant("w", stream, "start values, weights and rescaling by phases, groups and some channels"),
        Constant("places", table.ravel(), "of each phase: its weights, a group's last, the next group's, taps"),
    )
    pair = sum(_pair(p.taps, c, op.attrs.get("groups", 1), kg, p.result) for p in found) / len(found)
    pairs = phases.pairs(op, graph, form)
    return Kernel(
        "arm_dsp/gathered.c.j2", layer.plain.stem, shape, constants, {"x_zero": zero_of(x), **found[0].scalars},
        scratch=4 * most * n + 8 * most + item * -(-x.shape[3] // 4) * 4, variant="dsp gathered taps",
        estimate=60 + 3 * x.shape[3] + pairs * pair, traffic=Traffic(passes=pairs),
    )  # fmt: skip


def _gather(item: int, c: int) -> str:
    """Of the functions that widen a group's channels: by their number."""
    if item == 2:
        return "_halves" if c % 4 else "_wide"
    return {4: "_4", 8: "_8"}.get(c, "_bytes" if c % 4 else "")


def _heads(found: list[PhaseSums], kg: int, block: int) -> list[tuple[int, int, int]]:
    """Where the weights of each phase begin, those of the last channels of a group, and the next group's."""
    heads, at = [], 0
    for p in found:
        step = p.streams[0].shape[1]
        heads.append((at, kg // block * step, -(-kg // block) * step))
        at += sum(stream.size for stream in p.streams)
    return heads


def _pair(taps: int, c: int, groups: int, kg: int, result: float) -> float:
    """Instructions for two pixels."""
    n = -(-c // 4) * 4
    widen = taps * (10 + 20 * c if c % 4 else 3 + 1.75 * c if c <= 8 else 6 + 2.25 * c)
    return 30 + 22 * taps + groups * (50 + widen + 2 * kg * (0.775 * taps * n + result) + 25 * (kg % 4 > 0))
