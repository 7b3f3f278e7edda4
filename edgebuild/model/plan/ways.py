"""Cuts of an order of ops into sections as paths: the least memory, and the fewest instructions within some memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from .section import ALIGN, Choice, Section, cost, scratch_name, with_kernels

SPARE = 27  # the part of the least peak that may be spent on faster kernels
WORTH = 64  # the part of all instructions that it must save
FINENESS = 128  # the part of a peak to which the least for a number of instructions is found


def little_more(peak: int) -> int:
    """The bytes that faster kernels may take where the least peak is asked for."""
    return peak + peak // SPARE


@dataclass(frozen=True)
class Interval:
    """A section of the ops [start, stop) with the least scratch, and the kernels that each of its ops may have.

    `around`: bytes that live between sections while it runs.
    """

    start: int
    stop: int
    around: int
    section: Section
    choices: tuple[tuple[Choice, ...], ...]

    @cached_property
    def live(self) -> int:
        """Most bytes live while it runs."""
        return self.around + max(self.section.in_use)

    @cached_property
    def others(self) -> tuple[int, ...]:
        """Bytes of the section in use during the calls of each op, beside its scratch."""
        in_use, found = self.section.in_use, []
        for number, op in enumerate(self.section.ops):
            name = scratch_name(op.outputs[0])
            low, high = self.section.spans.get(name, (number, number))
            own = 0 if name in self.section.guests else self.section.inner.get(name, 0)
            found.append(max(in_use[low : high + 1]) - own)
        return tuple(found)

    @cached_property
    def quickest(self) -> float:
        """Cost with the fastest kernels."""
        calls = self.section.calls_of
        return sum(n * each[0].cost for n, each in zip(calls, self.choices, strict=True))

    @cached_property
    def ample(self) -> int:
        """Live bytes within which all kernels are the fastest."""
        wanted = (others + each[0].scratch for others, each in zip(self.others, self.choices, strict=True))
        return self.around + max(wanted)

    def chosen(self, bound: int) -> list[Choice]:
        """The fastest kernels whose scratch is within a bound of the live bytes."""
        rooms = (bound - self.around - others for others in self.others)
        kernels = zip(rooms, self.choices, strict=True)
        return [next((c for c in each if c.scratch <= room), each[-1]) for room, each in kernels]

    def cost(self, bound: int) -> float:
        """Cost with these kernels."""
        if bound >= self.ample:
            return self.quickest
        calls = self.section.calls_of
        return sum(n * c.cost for n, c in zip(calls, self.chosen(bound), strict=True))

    def peak(self, bound: int) -> int:
        """Most bytes live while it runs with these kernels."""
        wanted = (others + c.scratch for others, c in zip(self.others, self.chosen(bound), strict=True))
        return self.around + max(max(wanted), max(self.section.in_use))

    def within(self, bound: int) -> Section:
        """The section with these kernels."""
        return with_kernels(self.section, self.chosen(bound))


@dataclass(frozen=True)
class Ways:
    """All cuts of `count` ops into these intervals, which are in order. `most`: bytes that no cut needs."""

    intervals: Sequence[Interval]
    count: int
    most: int

    @cached_property
    def least(self) -> int | None:
        """The least of the largest live bytes that any cut takes; None: there is no cut."""
        best: dict[int, int] = {0: 0}
        for i in self.intervals:
            if i.start in best:
                peak = max(best[i.start], i.live)
                best[i.stop] = min(best.get(i.stop, peak), peak)
        return best.get(self.count)

    def within(self, bound: int) -> tuple[Section, ...]:
        """The sections with the fewest instructions whose peak is at most `bound`, which must be possible.

        Of those with equally few, sections whose largest live bytes are least.
        """
        best: dict[int, tuple[tuple[float, int], Interval | None]] = {0: ((0, 0), None)}
        for i in self.intervals:
            if i.live > bound or i.start not in best:
                continue
            (before, peak), there = best[i.start][0], best.get(i.stop)
            if there is not None and before + i.quickest > there[0][0]:
                continue
            total = before + i.cost(bound), max(peak, i.peak(bound))
            if there is None or total < there[0]:
                best[i.stop] = (total, i)
        found, at = list[Section](), self.count
        while (last := best[at][1]) is not None:
            found.append(last.within(bound))
            at = last.start
        return tuple(reversed(found))

    def tight(self) -> tuple[Section, ...]:
        """The sections of least peak, or of little above it where that makes the whole noticeably faster."""
        least = self.least or 0
        tight, loose = self.within(least), self.within(little_more(least))
        before, after = cost(tight), cost(loose)
        return loose if before - after > before / WORTH else tight

    def knee(self, most: float) -> tuple[Section, ...]:
        """The sections of least peak, more or less, that execute at most so many instructions; else the fastest."""
        low, high = self.least or 0, self.most
        if cost(tight := self.tight()) <= most:
            return tight
        best = self.within(max(low, high))
        while high - low > max(ALIGN, high // FINENESS):
            middle = (low + high) // 2
            found = self.within(middle)
            if cost(found) <= most:
                high, best = middle, found
            else:
                low = middle
        return best
