"""A layout problem of one memory, reduced to what matters: who is live with whom.

Only the order of the times matters, and of all moments only those at which a live set is maximal:
the *sections*. A buffer spans a run of sections, with one extent or, in phases, several; two
conflict if they share a section and may not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import gcd

from edgebuild.model.plan.memory.problem import Buffer

from ....base.dataclass import dataclass


@dataclass(frozen=True)
class Extent:
    """In sections [first, end) a buffer takes `size` bytes from `offset` on, counted from its own start."""

    first: int
    end: int
    offset: int
    size: int


@dataclass(frozen=True)
class Sections:
    """Buffers of one memory, with no moment between the first and the last at which nothing is live."""

    buffers: tuple[Buffer, ...]
    spans: tuple[tuple[int, int], ...]  # first section of each buffer, and the one after its last
    extents: tuple[tuple[Extent, ...], ...]  # of each buffer, one after the other over its span
    live: tuple[tuple[int, ...], ...]  # the buffers of each section, by index
    may_overlap: frozenset[tuple[int, int]]  # pairs of indices, both ways round

    @cached_property
    def conflicts(self) -> tuple[frozenset[int], ...]:
        """Per buffer those with which it may share no bytes."""
        with_whom = [set[int]() for _ in self.buffers]
        for section in self.live:
            for i in section:
                with_whom[i].update(section)
        return tuple(
            frozenset(j for j in others if j != i and self.buffers[j].size and (i, j) not in self.may_overlap)
            if self.buffers[i].size
            else frozenset()
            for i, others in enumerate(with_whom)
        )

    @cached_property
    def sums(self) -> tuple[int, ...]:
        """Per section the least height of its buffers alone (a lower bound where some may overlap)."""
        return tuple(self._least(number, section) for number, section in enumerate(self.live))

    def size_in(self, i: int, section: int) -> int:
        """Bytes that a buffer takes in one of its sections."""
        return next(e.size for e in self.extents[i] if e.first <= section < e.end)

    def blocked(self, i: int, j: int, at: int) -> list[tuple[int, int]]:
        """With buffer j at offset `at`: the open intervals in which buffer i cannot start."""
        if not self.buffers[i].phases and not self.buffers[j].phases:
            return [(at - self.buffers[i].size, at + self.buffers[j].size)]
        return [
            (at + b.offset - a.offset - a.size, at + b.offset + b.size - a.offset)
            for a in self.extents[i]
            for b in self.extents[j]
            if a.first < b.end and b.first < a.end and a.size and b.size
        ]

    @property
    def bound(self) -> int:
        return max((*self.sums, *(b.size for b in self.buffers)), default=0)

    def _least(self, number: int, section: Sequence[int]) -> int:
        """Bytes of a set of buffers that all conflict, the heaviest first, stacked at aligned offsets.

        With all alignments multiples of g, every buffer but the topmost takes a multiple of g.
        """
        conflicting = list[int]()
        for i in sorted(section, key=lambda i: -self.buffers[i].size):
            if not self.may_overlap or all((i, j) not in self.may_overlap for j in conflicting):
                conflicting.append(i)
        if not conflicting:
            return 0
        if any(self.buffers[i].phases for i in conflicting):
            return sum(self.size_in(i, number) for i in conflicting)
        unit = gcd(*(self.buffers[i].align for i in conflicting))
        rounded = [-(-self.buffers[i].size // unit) * unit for i in conflicting]
        return sum(rounded) - max(r - self.buffers[i].size for i, r in zip(conflicting, rounded, strict=True))


def split(buffers: Sequence[Buffer], may_overlap: frozenset[frozenset[str]]) -> list[Sections]:
    """The buffers in components that share no moment of time, and each in sections."""
    components, end = list[list[Buffer]](), None
    for b in sorted(buffers, key=lambda b: (b.lower, b.upper)):
        if end is None or b.lower >= end:
            components.append([])
        components[-1].append(b)
        end = max(b.upper, end or b.upper)
    return [_sections(component, may_overlap) for component in components]


def _sections(buffers: list[Buffer], may_overlap: frozenset[frozenset[str]]) -> Sections:
    parts = [(i, phase) for i, b in enumerate(buffers) for phase in b.extents]
    events = sorted(event for n, (_, phase) in enumerate(parts) for event in ((phase.lower, 1, n), (phase.upper, 0, n)))
    live, now, first, end = list[tuple[int, ...]](), set[int](), dict[int, int](), dict[int, int]()
    grown = False
    for _, begins, n in events:
        if begins:
            now.add(n)
            first[n], grown = len(live), True
        else:
            if grown:
                live.append(tuple(sorted(parts[m][0] for m in now)))
                grown = False
            now.remove(n)
            end[n] = len(live)
    index = {b.name: i for i, b in enumerate(buffers)}
    pairs = [tuple(pair) for pair in may_overlap if len(pair) == 2 and pair <= index.keys()]
    both = frozenset((index[a], index[b]) for pair in pairs for a, b in (pair, pair[::-1]))
    extents: list[list[Extent]] = [[] for _ in buffers]
    for n, (i, phase) in enumerate(parts):
        extents[i].append(Extent(first[n], end[n], phase.offset, phase.size))
    spans = tuple((mine[0].first, mine[-1].end) for mine in extents)
    both = frozenset((i, j) for i, j in both if spans[i][0] < spans[j][1] and spans[j][0] < spans[i][1])
    return Sections(tuple(buffers), spans, tuple(map(tuple, extents)), tuple(live), both)
