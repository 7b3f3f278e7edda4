"""Placement options of a rolled run: what may lie in an operand that it reads for the last time, and in one slot.

A result may grow into such an operand, behind the rows that have been read. Blacker, Bridges and Hadfield (2020) call
this diagonal memory optimisation; here it holds for a whole run instead of one op. Rings, newest rows and sums of the
run are *overlaid* on the operand's start if the run first writes them when it no longer reads those bytes.

Newest rows of several rings may lie in one place, see `rolling`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from ..ir import Array, Graph
from ..kernels import kernel_of
from .printed import newest_name
from .rolling import Rolled, Trace, row_bytes
from .section import Overlap, Section, aligned, scratch_name

NEVER = 2**40
LINE = 32  # bytes: between what is overlaid and a result there is a whole line of any cache


@dataclass(frozen=True)
class Consumed:
    """An operand of a run: the calls that read it, and the bytes at its start that none of them reads from then on."""

    calls: Array
    below: Array

    @staticmethod
    def of(trace: Trace, rolled: Rolled, operand: str) -> Consumed:
        start, step = len(trace.run) - len(rolled.ops), row_bytes(trace.rolling.graph, operand)
        reads = np.array([(at, first * step) for at, reader, first in trace.reads[operand] if reader >= start])
        return Consumed(reads[:, 0], np.append(np.minimum.accumulate(reads[::-1, 1])[::-1], NEVER))

    def before(self, call: Array) -> Array:
        """The bytes at the start that a call, and those behind it, do not read."""
        free: Array = self.below[np.searchsorted(self.calls, call)]
        return free


def least_distance(trace: Trace, rolled: Rolled, consumed: Consumed, result: str) -> int:
    """The least distance in bytes by which the operand must start above `result`; below 0 it may start lower.

    Writing a row of the result must stay below every row of the operand that is read in the
    same call or later.
    """
    step = row_bytes(trace.rolling.graph, result)
    homes = [result, *(name for name, home in rolled.inside.items() if home == result)]
    writes = np.array([w for name in homes for w in trace.writes[name]])
    return int(np.max(writes[:, 1] * step - consumed.before(writes[:, 0])))


def best_overlap(
    trace: Trace, rolled: Rolled, dying: Sequence[str], sizes: Mapping[str, int], grain: int
) -> Overlap | None:
    """The overlap of a result and one of the operands that die here which saves most; None if none saves.

    `sizes`: bytes of storages. `grain`: bytes of which each distance is a multiple.
    """
    pairs = [(min(sizes[x], sizes[y]), x, y) for x in dying for y in rolled.results]
    best: Overlap | None = None
    for most, operand, result in sorted(pairs, key=lambda pair: -pair[0]):
        if best is not None and most <= best.saved:
            break
        distance = max(0, least_distance(trace, rolled, Consumed.of(trace, rolled, operand), result))
        overlap = Overlap.of(operand, result, -(-distance // grain) * grain, sizes)
        best = overlap if overlap.saved > (best.saved if best is not None else 0) else best
    return best


def _limits(trace: Trace, rolled: Rolled, consumed: Consumed) -> dict[str, int]:
    """Of rings, newest rows and sums of a run: where they must end at the latest, in bytes from the operand's start.

    Each row of a ring must end below what is read by the first call that writes there, or later.
    """
    graph, ends = trace.rolling.graph, dict[str, int]()
    for ring, rows in rolled.rings.items():
        if not rows:
            continue
        makers, size = [ring, *(n for n, home in rolled.inside.items() if home == ring)], row_bytes(graph, ring)
        first = np.array([trace.writes[n][:rows] for n in makers])[:, :, 0].min(axis=0)
        room = consumed.before(first) - size * np.arange(1, rows + 1)
        ends[ring] = int(room.min()) + rows * size
        if ring in rolled.separate:
            ends[newest_name(ring)] = int(consumed.before(first[:1])[0])
    for name in filter(trace.sums, rolled.results):
        ends[scratch_name(name)] = int(consumed.before(np.array([trace.first[trace.index[name]]]))[0])
    return ends


def with_overlaid(trace: Trace, section: Section, operand: str, sizes: Mapping[str, int], grain: int) -> Section:
    """A rolled section with what can be overlaid on an operand that dies here; as it is if that saves nothing.

    If a result overlaps the operand, too, it then begins behind what is overlaid.
    """
    rolled, overlap = section.rolled, section.overlap
    assert rolled is not None
    consumed, room = Consumed.of(trace, rolled, operand), sizes[operand]
    ends = {name: end for name, end in _limits(trace, rolled, consumed).items() if name in section.inner}
    if overlap is not None:
        behind = -least_distance(trace, rolled, consumed, overlap.result)
        room = min(behind, room - sizes[overlap.result]) // LINE * LINE
    offsets = _overlaid(section, ends, room, grain)
    if offsets and overlap is not None:
        top = max(at + section.inner[name] for name, at in offsets.items())
        overlap = Overlap.of(operand, overlap.result, -(-(-top // LINE) * LINE), sizes)
    return replace(section, overlap=overlap, overlaid={name: (operand, at) for name, at in offsets.items()})


@dataclass(frozen=True)
class _Part:
    """Something that may be overlaid: its bytes, where it must end, and its first and last op."""

    name: str
    size: int
    limit: int
    first: int
    last: int


def _overlaid(section: Section, limits: Mapping[str, int], room: int, grain: int) -> dict[str, int]:
    """Offsets of what is overlaid, from the operand's start; none if that does not lower the most in use.

    `limits`: where each must end. `room`: where all must. As long as something in use at the peak can be overlaid, the
    largest of that is.
    """
    in_use, before, offsets, chosen = list(section.in_use), max(section.in_use), dict[str, int](), list[_Part]()
    sizes = {name: -(-section.inner[name] // grain) * grain for name in limits}
    waiting = [_Part(n, sizes[n], min(end, room), *section.spans[n]) for n, end in limits.items()]
    waiting = sorted((p for p in waiting if p.size <= p.limit), key=lambda p: -p.size)
    while True:
        peak = in_use.index(max(in_use))
        part = next((p for p in waiting if p.first <= peak <= p.last), None)
        if part is None:
            return offsets if max(in_use) < before else {}
        waiting.remove(part)  # what finds no room finds none later
        packed = _packed(sorted([*chosen, part], key=lambda p: p.limit))
        if packed is not None:
            offsets, chosen = packed, [*chosen, part]
            for call in range(part.first, part.last + 1):
                in_use[call] -= section.inner[part.name]


def _packed(parts: Sequence[_Part]) -> dict[str, int] | None:
    """The lowest offset for each after the other; None: they do not fit."""
    placed: list[tuple[int, _Part]] = []
    for part in parts:
        at = 0
        for low, other in sorted(placed, key=lambda each: each[0]):
            meets = other.first <= part.last and part.first <= other.last
            if meets and low < at + part.size and at < low + other.size:
                at = low + other.size
        if at + part.size > part.limit:
            return None
        placed.append((at, part))
    return {part.name: at for at, part in placed}


def with_separate_rows(section: Section, graph: Graph, row_bytes: Mapping[str, int]) -> Section | None:
    """A rolled section with separate newest rows where that lowers the most in use; None if it does not.

    Kernels are those of the section, which has to get others. A ring stays as it is if one that reads it asks for all
    rows in one place.
    """
    rolled = section.rolled
    if rolled is None or not (names := _separable(section, rolled, row_bytes)):
        return None
    unable = set[str]()
    for op, form in zip(section.ops, section.forms, strict=True):
        roots = {root for root, _ in rolled.rolling.operands[op.outputs[0]]}
        kernel = kernel_of(op, graph, form) if not roots.isdisjoint(names) else None
        if kernel is not None and not all(k.finds_apart for k in (kernel, *kernel.others)):
            unable |= roots
    if unable and not (names := _separable(section, rolled, row_bytes, unable)):
        return None
    rings = {name: rows - (name in names) for name, rows in rolled.rings.items()}
    inner = {name: aligned(rows * row_bytes[name]) for name, rows in rings.items()}
    inner |= {newest_name(name): aligned(row_bytes[name]) for name in names}
    spans = {**rolled.spans, **{newest_name(name): rolled.newest[name] for name in names}}
    return replace(section, rolled=replace(rolled, rings=rings, separate=names), inner=inner, spans=spans)


def _separable(
    section: Section, rolled: Rolled, row_bytes: Mapping[str, int], unable: Container[str] = ()
) -> tuple[str, ...]:
    """The rings whose newest row pays to be separate; none if all together save nothing. None of those `unable`."""
    in_use, changes = np.array(section.in_use), dict[str, Array]()
    for name, (first, last) in rolled.newest.items():
        if name not in unable:
            (low, high), rows, size = rolled.spans[name], rolled.rings[name], row_bytes[name]
            changes[name] = np.zeros_like(in_use)
            changes[name][low : high + 1] = aligned((rows - 1) * size) - aligned(rows * size)
            changes[name][first : last + 1] += aligned(size)
    separate = in_use + sum(changes.values())
    least = int(separate.max())
    if least >= in_use.max():
        return ()
    for name, change in list(changes.items()):  # take back what does not lower the peak
        if (separate - change).max() <= least:
            separate = separate - changes.pop(name)
    return tuple(changes)


def least_rings(rolled: Rolled, row_bytes: Mapping[str, int]) -> int:
    """Most bytes of rings that are in use at once, with all newest rows separate; none may be separate yet."""
    changes = [0] * (max((last for _, last in rolled.spans.values()), default=0) + 2)
    for name, rows in rolled.rings.items():
        size = aligned((rows - (name in rolled.newest)) * row_bytes[name])
        first, last = rolled.spans[name]
        changes[first] += size
        changes[last + 1] -= size
    return max(accumulate(changes))
