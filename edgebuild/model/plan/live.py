"""Tensors, rings, newest rows and scratch that are live when a step needs most. They add up to its peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from .cuts import Cutter
from .events import newest_name
from .section import Section, scratch_name

TENSOR, RING, NEWEST, SCRATCH = "tensor", "ring", "newest row", "scratch"


@dataclass(frozen=True)
class Live:
    """Bytes that are live. `tensor`: that they hold, or that a kernel makes with this scratch; `rows`: of a ring."""

    kind: str
    tensor: str
    bytes: int
    rows: int = 0


@dataclass(frozen=True)
class LiveSet:
    """All that is live when a step needs most, the largest first; `saved`: bytes of the result over an operand."""

    parts: tuple[Live, ...]
    saved: int = 0
    operand: str = ""
    result: str = ""

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts) - self.saved


def live_set(cutter: Cutter, steps: Sequence[Section], step: int) -> LiveSet:
    """Of a step of a cut; what lies over an operand, as guests of a run do, takes no bytes of its own."""
    section = steps[step]
    start = [0, *accumulate(len(s.ops) for s in steps)][step]
    before = (n for n, (first, last) in cutter.life.items() if first < start <= last)
    parts = [Live(TENSOR, name, cutter.sizes[name]) for name in (*before, *section.results)]
    busiest = section.in_use.index(max(section.in_use))
    rings = section.rolled.rings if section.rolled is not None else {}
    kinds = {scratch_name(op.outputs[0]): (SCRATCH, op.outputs[0]) for op in section.ops}
    kinds |= {newest_name(n): (NEWEST, n) for n in (section.rolled.apart if section.rolled is not None else ())}
    for name, size in section.inner.items():
        first, last = section.spans[name]
        if first <= busiest <= last and name not in section.guests:
            kind, tensor = kinds.get(name, (RING, name))
            parts.append(Live(kind, tensor, size, rings.get(name, 0)))
    parts.sort(key=lambda part: -part.bytes)
    overlap = cutter.best_overlap(section)
    if overlap is None:
        return LiveSet(tuple(parts))
    return LiveSet(tuple(parts), cutter.saving(overlap), overlap.operand, overlap.result)
