"""Grouped, dilated and transposed convolutions, and those of int16 values: two pixels at a time.

A list tells where the pixel under each tap lies; what lies there is widened group by group. See kernels/phases.py.
Channels that are no multiple of four lie gapless: the taps together are padded to one, instead of each by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...ir import Array, Graph, Op
from ...ops.base import C_TYPES, Constant, Kernel, Sums, Traffic, zero_of
from .. import phases
from ..row import KernelLayer
from . import wide
from .convolution import CALL, COPIED
from .dot import micro
from .factors import Factors, factors_within
from .weight_words import bounds, of_channels_with

FEW = 2  # channels that leave a part of others' blocks idle


@dataclass(frozen=True)
class PhaseSums:
    """The outputs of a phase as sums.

    `streams`: weights for each group, of which blocks of channels take the first `full` words. `run`: how many taps lie
    side by side in each row. `ends`: how sums become results, with the scalars that this takes.
    """

    taps: int
    run: int
    streams: tuple[Array, ...]
    full: int
    ends: dict[str, str | bool]
    scalars: dict[str, int | float]

    @property
    def finish(self) -> str:
        return str(self.ends["finish"])

    def alike(self, other: PhaseSums) -> bool:
        """Whether results come to be in the same way."""
        return (self.ends, self.scalars) == (other.ends, other.scalars)


def convolution(layer: KernelLayer) -> Kernel | None:
    """Where others do not serve: groups, columns that are not neighbours, int16; and for few channels."""
    (x, w), s = layer.graph.operands(layer.op)[:2], layer.sums
    neighbours = x.dtype == "int8" and (layer.op.attrs["dilation"][1] == 1 or w.shape[2] == 1)
    served = layer.op.attrs.get("groups", 1) == 1 and neighbours
    return None if served and (s is None or s.out[2] > FEW) else gathered(layer)


def _phases(op: Op, graph: Graph, taps: list[list[phases.Tap]], paired: bool) -> list[PhaseSums]:
    """The weights of each in the order in which they are read; none unless all have this form and end alike.

    `paired`: channels come in twos, whose sums may be large: each word has weights of one channel.
    """
    (x, w), runs = graph.operands(op)[:2], [phases.run(op, some) for some in taps]
    if wide.fits(op, graph) and x.shape[0] == 1:
        weights = [phases.weights(w.array, some) for some in taps]
        return [_wide_phase(op, graph, *phase) for phase in zip(weights, runs, strict=True)]
    sums = phases.int8_sums(op, graph, taps)
    if not sums:
        return []
    most = np.max([s.bound for s in sums], axis=0)
    ends = [factors_within(s, most) for s in sums]
    described = [_phase(op, *phase, paired) for phase in zip(sums, ends, runs, strict=True)]
    first = described[0]
    alike = [p for p in described if p is not None and first is not None and p.alike(first)]
    return alike if len(alike) == len(taps) else []


def _wide_phase(op: Op, graph: Graph, weights: Array, run: int) -> PhaseSums:
    """Of int16."""
    own, first, ends = phases.groups(op, len(weights)), wide.start(op, graph), wide.rescaling(op, graph)
    flat, (end, scalars) = weights.reshape(len(weights), 1, -1), wide.ends(op, graph)
    packed = [wide.stream(flat[part], first[part], ends[part], 2) for part in own]
    full = len(weights) // len(own) // 2 * packed[0].shape[1]
    form: dict[str, str | bool] = {"finish": f"wide{end}", "unit": False, "paired": False}
    streams = tuple(stream.ravel() for stream in packed)
    return PhaseSums(weights.shape[1], run, streams, full, form, scalars)


def _phase(op: Op, s: Sums, ends: Factors, run: int, paired: bool) -> PhaseSums | None:
    """Of int8."""
    own, count = phases.groups(op, len(s.weights)), s.weights.shape[1]
    rows = 1 if s.weights.shape[3] % 4 else count
    blocks = _twos if paired else _blocks
    possible = [blocks(phases.group(s, part), rows, ends.words[part]) for part in own]
    packed = [each for each in possible if each is not None]
    if len(packed) < len(own) or s.finish == "sums":
        return None
    streams, scalars = tuple(stream for stream, _ in packed), {"y_zero": s.y_zero, **ends.scalars, **bounds(s)}
    return PhaseSums(count, run, streams, packed[0][1], {**ends.shape, "paired": paired}, scalars)


def _twos(s: Sums, rows: int, ends: Array) -> tuple[Array, int] | None:
    """As `_blocks`, of channels in twos, and a last one by itself."""
    k = len(s.weights)
    weights, full = s.weights.reshape(k, rows, -1), k // 2 * 2
    parts = [wide.stream(weights[own], s.start[own], ends[own], count, range(4)).ravel()
             for own, count in ((slice(full), 2), (slice(full, k), 1)) if len(weights[own])]  # fmt: skip
    return (np.concatenate(parts), parts[0].size if full else 0) if s.fits else None


def _blocks(s: Sums, rows: int, ends: Array) -> tuple[Array, int] | None:
    """The stream of a group, and where in it the last channels begin: one or two by themselves, three as four."""
    k = len(s.weights)
    full, rest = k // 4 * 4, k % 4
    if rest not in (1, 2):
        stream = of_channels_with(s, 4, rows, ends)
        return None if stream is None else (stream.ravel(), full // 4 * stream.shape[1])
    last = phases.group(s, slice(full, k))
    words = wide.stream(last.weights.reshape(rest, rows, -1), last.start, ends[full:], rest, range(4)).ravel()
    blocks = of_channels_with(phases.group(s, slice(full)), 4, rows, ends[:full]) if full else np.empty(0, words.dtype)
    if blocks is None or not s.fits:
        return None
    return np.concatenate([blocks.ravel(), words]), blocks.size


def gathered(layer: KernelLayer) -> Kernel | None:
    """All phases must end alike."""
    (op, graph), form = phases.joined(layer.op, layer.graph), layer.form
    taps = phases.taps(op, graph)
    alike = _phases(op, graph, taps, False) or _phases(op, graph, taps, True)
    if not alike:
        return None
    (x, w), finish = graph.operands(op)[:2], alike[0].finish
    item, block = (2, 2) if finish.startswith("wide") else (1, 2 if alike[0].ends["paired"] else 4)
    most, run, (k, _, _, c) = max(p.taps for p in alike), max(p.run for p in alike), w.shape
    flat, groups, n = item == 2 or c % 4 > 0, op.attrs.get("groups", 1), -(-c // 4) * 4
    kg, inner = k // groups, -(-most * c // 4) * 4
    table = phases.places(taps, _heads(alike, flat))
    lines, zeros = 4 * inner + 8 * most, max(-(-x.shape[3] // 4) * 4, run * c)
    zeros_at = lines + (2 * inner if flat and item == 1 else 0)
    shape = phases.shape(layer, op, graph, table) | {
        "blocks": kg // block, "tail": kg % block, "full": kg // block * block,
        "gather": f"_{c}" if c in (4, 8) else "",
        "rest": kg % block if item == 1 and kg % block < 3 else 0, "n": n, "flat": flat, "run": run if flat else 1,
        "item": C_TYPES[x.dtype], "bytes": item, "wide": item == 2, **alike[0].ends, "padding": zeros,
        "bounds": finish.endswith("_clamped"), "list": 4 * inner, "lines": lines, "zeros": zeros_at,
    }  # fmt: skip
    stream = np.concatenate([part for p in alike for part in p.streams])
    head = "its weights, a group's last, the next group's, " + ("how many taps are neighbours, " if flat else "")
    constants = (
        Constant("w", stream, "start values, weights and factors by phases, groups and some channels"),
        Constant("places", table.ravel(), f"of each phase: {head}taps"),
    )
    pair = sum(_pair(p, c, groups, kg, flat) for p in alike) / len(alike)
    pairs = phases.pairs(op, graph, form)
    return Kernel(
        "arm_dsp/windows.c:gathered", layer.plain.stem, shape, constants, {"x_zero": zero_of(x), **alike[0].scalars},
        scratch=zeros_at + item * zeros, variant="dsp gathered taps", estimate=60 + 3 * x.shape[3] + pairs * pair,
        traffic=Traffic(passes=pairs),
    )  # fmt: skip


def _heads(described: list[PhaseSums], flat: bool) -> list[tuple[int, ...]]:
    """Where the weights of each phase begin, those of the last channels of a group, and the next group's."""
    heads, at = [], 0
    for p in described:
        heads.append((at, p.full, p.streams[0].size, *([p.run] if flat else [])))
        at += sum(stream.size for stream in p.streams)
    return heads


def _pair(p: PhaseSums, c: int, groups: int, kg: int, flat: bool) -> float:
    """Instructions for two pixels: beside the micro-kernels, medians of `./sconsw bench-kernels`."""
    entries, wide = p.taps / p.run, p.finish.startswith("wide")
    inner, together = -(-p.taps * c // 4) * 4, c * p.run * (2 if wide else 1)
    if flat:
        gather = 20 + entries * (15 if together <= 8 else 18 + 1.5 * together) + (0 if wide else 20 + 2.25 * inner)
    else:
        gather = 20 + p.taps * (3 + 1.75 * c if c <= 8 else 6 + 2.25 * c)
    if wide:
        products = -(-kg // 2) * (22 + 4 * (9 if p.ends["finish"] == "wide_clamped" else 5) + 3.9 * inner) + 25 * (
            kg % 2
        )
    else:
        rest = kg % 2 if p.ends["paired"] else kg % 4 if kg % 4 < 3 else 0
        products, turns = 0.0, inner // 4
        if p.ends["paired"]:
            products = kg // 2 * (micro("eb_rest2", p.finish).executed(groups=turns) + CALL)
        elif kg > rest:
            blocks = micro("eb_dot2", p.finish).executed(blocks=-(-(kg - rest) // 4), groups=turns)
            products += blocks + CALL + COPIED * 2 * (kg % 4 == 3)
        products += micro(f"eb_rest{rest}", p.finish).executed(groups=turns) + CALL if rest else 0
    return 30 + 22 * entries + groups * (gather + products)
