"""Results and guests over an operand that a rolled run reads for the last time, row after row.

A result may grow into it, behind the rows that have been read. Blacker, Bridges and Hadfield (2020) call this diagonal
memory optimisation; here it holds for a whole run instead of one op. Rings, newest rows and sums of the run are
*guests* if they are first written when so much of the operand has been read that they find room at its start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..ir import Array
from .events import newest_name
from .rolling import Rolled, Trace, row_bytes
from .section import Overlap, Section, scratch_name

NEVER = 2**40
LINE = 32  # bytes: between guests and a result there is a whole line of any cache


@dataclass(frozen=True)
class Eaten:
    """An operand of a run: the calls that read it, and the bytes at its start that none of them reads from then on."""

    calls: Array
    below: Array

    @staticmethod
    def of(trace: Trace, found: Rolled, operand: str) -> Eaten:
        start, step = len(trace.run) - len(found.ops), row_bytes(trace.rolling.graph, operand)
        reads = np.array([(at, first * step) for at, reader, first in trace.reads[operand] if reader >= start])
        return Eaten(reads[:, 0], np.append(np.minimum.accumulate(reads[::-1, 1])[::-1], NEVER))

    def before(self, call: Array) -> Array:
        """The bytes at the start that a call, and those behind it, do not read."""
        found: Array = self.below[np.searchsorted(self.calls, call)]
        return found


def shift(trace: Trace, found: Rolled, eaten: Eaten, result: str) -> int:
    """The least distance in bytes by which the operand must start above `result`; below 0 it may start lower.

    Writing a row of the result must stay below every row of the operand that is read in the
    same call or later.
    """
    step = row_bytes(trace.rolling.graph, result)
    homes = [result, *(name for name, home in found.inside.items() if home == result)]
    writes = np.array([w for name in homes for w in trace.writes[name]])
    return int(np.max(writes[:, 1] * step - eaten.before(writes[:, 0])))


def _limits(trace: Trace, found: Rolled, eaten: Eaten) -> dict[str, int]:
    """Of rings, newest rows and sums of a run: where they must end at the latest, in bytes from the operand's start.

    Each row of a ring must end below what is read by the first call that writes there, or later.
    """
    graph, ends = trace.rolling.graph, dict[str, int]()
    homes = {name: [name] for name, rows in found.rings.items() if rows}
    for name in (n for n, home in found.inside.items() if home in homes):
        homes[found.inside[name]].append(name)
    for name, made in homes.items():
        rows, size = found.rings[name], row_bytes(graph, name)
        first = np.array([trace.writes[n][:rows] for n in made])[:, :, 0].min(axis=0)
        left = eaten.before(first) - size * np.arange(1, rows + 1)
        ends[name] = int(left.min()) + rows * size
        if name in found.apart:
            ends[newest_name(name)] = int(eaten.before(first[:1])[0])
    for name in filter(trace.sums, found.results):
        ends[scratch_name(name)] = int(eaten.before(np.array([trace.first[trace.index[name]]]))[0])
    return ends


def with_guests(
    trace: Trace, section: Section, operand: str, overlap: Overlap | None, sizes: Mapping[str, int], grain: int
) -> Section:
    """A rolled section with guests over an operand that dies here; none where that does not lower the most in use.

    `overlap`: the result that lies over the operand, too. It then begins behind the guests, if it may.
    """
    rolled = section.rolled
    if rolled is None:
        return section
    eaten, room = Eaten.of(trace, rolled, operand), sizes[operand]
    ends = {name: end for name, end in _limits(trace, rolled, eaten).items() if name in section.inner}
    if overlap is not None:
        room = min(-shift(trace, rolled, eaten, overlap.result), room - sizes[overlap.result]) // LINE * LINE
    if not (found := _guests(section, ends, room, grain)):
        return section
    top = max(at + section.inner[name] for name, at in found.items())
    overlaps = () if overlap is None else (replace(overlap, distance=-(-(-top // LINE) * LINE)),)
    return replace(section, overlaps=overlaps, guests={name: (operand, at) for name, at in found.items()})


def _guests(section: Section, limits: Mapping[str, int], room: int, grain: int) -> dict[str, int]:
    """The guests of a section, and their offsets from the operand's start: of what takes the most, one after the other.

    `limits`: where each must end. `room`: where all must.
    """
    in_use, before, chosen = list(section.in_use), max(section.in_use), dict[str, int]()
    waiting = {}
    for name, limit in limits.items():
        size = -(-section.inner[name] // grain) * grain
        if size <= min(limit, room):
            waiting[name] = _Guest(name, size, min(limit, room), *section.spans[name])
    staying: list[_Guest] = []
    while True:
        at = in_use.index(max(in_use))
        able = [guest for guest in waiting.values() if guest.first <= at <= guest.last]
        for guest in sorted(able, key=lambda g: -g.size):
            del waiting[guest.name]  # who finds no room finds none later
            packed = _packed(sorted([*staying, guest], key=lambda g: g.limit))
            if packed is not None:
                chosen, staying = packed, [*staying, guest]
                for call in range(guest.first, guest.last + 1):
                    in_use[call] -= section.inner[guest.name]
                break
        else:
            return chosen if max(in_use) < before else {}


@dataclass(frozen=True)
class _Guest:
    name: str
    size: int
    limit: int
    first: int
    last: int


def _packed(order: Sequence[_Guest]) -> dict[str, int] | None:
    """The lowest offset for each after the other; None: they do not fit."""
    found: list[tuple[int, _Guest]] = []
    for guest in order:
        at = 0
        for low, other in found:
            meets = other.first <= guest.last and guest.first <= other.last
            if meets and low < at + guest.size and at < low + other.size:
                at = low + other.size
        if at + guest.size > guest.limit:
            return None
        found.append((at, guest))
        found.sort(key=lambda each: each[0])
    return {guest.name: at for at, guest in found}
