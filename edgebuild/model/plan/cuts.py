"""Cut an order of ops into sections: ops that run whole, and runs that are rolled.

Sections are intervals of the order, so the best cut is a path: the least of the largest memory that
any section takes, and among all cuts within a limit the one with the fewest instructions. Both are
found exactly, by dynamic programming over all intervals. Instructions that take longer than those of other kernels
count for more (`Kernel.pace`).

While an op of a rolled run is called, not all of the run's rings hold rows that are still wanted, and
only that op's scratch is in use. So what a run takes is the most that any of its ops finds in use, and
an op may have the fastest kernel whose scratch fits beside that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from ...base.errors import fail
from ..ir import ITEM_BYTES, Graph, Op
from ..kernels import kernel_of
from ..ops.base import SAME, Form
from .kernel_choices import Choices
from .known import Known, Shorter
from .over import Eaten, shift, with_guests
from .parted import least_rings, parted, unable_in
from .rolling import Rolled, RollingGraph, Trace, possible_starts, simulate
from .section import (
    ALIGN,
    Choice,
    Decoupled,
    Overlap,
    Section,
    aligned,
    cost,
    distance,
    with_kernels,
)
from .ways import Interval, Ways

STEP = 0.94  # of the memory of one cut to the limit of the next
FAR = 64  # sections one after the other that are of no use before longer ones are not looked at
EQUAL = 1 - 1e-9  # sums in another order may differ by so much
FIRST = 16  # ops that are rolled at once in the search of sections; twice as many where these are too few


@dataclass(frozen=True)
class Cutter:
    """All sections of an order of ops, and what they cost."""

    rolling: RollingGraph
    order: tuple[Op, ...]  # without views
    form: Form  # for which core kernels are, and what was asked for of them
    decoupled: Decoupled = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return self.rolling.graph

    @cached_property
    def sizes(self) -> dict[str, int]:
        return {root: aligned(self.graph.tensors[root].bytes) for root in self.rolling.storage.values()}

    @cached_property
    def grain(self) -> int:
        """Bytes of which every distance between overlapping storages is a multiple: C aligns 64-bit numbers to 8."""
        widest = max((ITEM_BYTES[t.dtype] for t in self.graph.tensors.values() if not t.constant), default=1)
        return max(ALIGN, widest)

    def _apart(self, distance: int) -> int:
        return -(-distance // self.grain) * self.grain

    @cached_property
    def life(self) -> dict[str, tuple[int, int]]:
        """Positions of first write and last read of every storage; -1 for inputs, past the end for outputs."""
        storage = self.rolling.storage
        found = {storage[n]: (-1, -1) for n in self.graph.inputs if storage[n] != self.rolling.streamed}
        for at, op in enumerate(self.order):
            found[op.outputs[0]] = (at, at)
            for name in op.inputs:
                if name in storage and storage[name] in found:
                    found[storage[name]] = (found[storage[name]][0], at)
        end = len(self.order)
        used = {storage[n] for op in self.order for n in op.inputs if n in storage}
        keep = {*self.rolling.outputs, *(n for n in found if n not in used)}
        return {name: (first, end if name in keep else last) for name, (first, last) in found.items()}

    @cached_property
    def untiled(self) -> tuple[Section, ...]:
        """Every op whole, with its fastest kernel."""
        return tuple(self.whole(at) for at in range(len(self.order)))

    def whole(self, at: int) -> Section:
        """The op at this position as it is, with its fastest kernel."""
        op = self.order[at]
        roots = (root for root in self.rolling.overwritten(op) if self._dies(root, at))
        overlaps = tuple(Overlap(root, op.outputs[0], 0) for root in roots)
        return with_kernels(self._one(at, overlaps), [self.choices.whole(op)[0]])

    def over(self, at: int) -> Section | None:
        """The op at this position whole, its result over an operand that it reads for the last time.

        None: there is no kernel that works in place.
        """
        op, storage = self.order[at], self.rolling.storage
        read = [n for n in op.inputs if n in storage]
        if len(read) != 1 or read[0] != op.inputs[0] or not self._dies(storage[read[0]], at):
            return None
        found = self.choices.whole(op, over=True)
        root, how = storage[read[0]], kernel_of(op, self.graph, found[0].form).in_place if found else ""
        apart = distance(op, self.graph, how) if how else None
        if apart is None or (how == SAME and self.graph.tensors[root].bytes != self.graph.result(op).bytes):
            return None
        return with_kernels(self._one(at, (Overlap(root, op.outputs[0], self._apart(apart)),)), [found[0]])

    def _one(self, at: int, overlaps: tuple[Overlap, ...]) -> Section:
        op, storage = self.order[at], self.rolling.storage
        reads = tuple(dict.fromkeys(storage[n] for n in op.inputs if n in storage))
        return Section((op,), None, reads, (op.outputs[0],), (), {}, {}, overlaps)

    def apart(self, section: Section, steps: Sequence[Section], bound: int) -> Section:
        """A step of a cut with no result over an operand, and the fastest kernels within a bound of the live bytes."""
        start = sum(len(s.ops) for s in steps[: steps.index(section)])
        if section.over:
            section = with_kernels(self.whole(start), [self.choices.whole(section.ops[0])[-1]])
        section = replace(section, overlaps=(), guests={})
        return self.fastest(section, start, bound) or section

    def _dies(self, root: str, at: int) -> bool:
        """Whether nobody reads a storage after the op at this position."""
        return self.life.get(root, (0, -1))[1] == at

    def rolled(self, trace: Trace, start: int, stop: int) -> Section:
        """The ops of an interval run row by row, with the kernels that ask for the least scratch."""
        found = trace.tail(len(trace.run) - (stop - start))
        rings = {name: aligned(n * self.rolling.row_bytes[name]) for name, n in found.rings.items()}
        overlaps = self._overlaps(trace, found, stop)
        return self._frugal(Section(found.ops, found, found.operands, found.results, (), rings, found.spans, overlaps))

    def by_rows(self, trace: Trace, start: int, stop: int) -> list[Interval]:
        """The ops of an interval run row by row in every way that there is, that of the least memory first."""
        whole = self.rolled(trace, start, stop)
        other = parted(whole, self.rolling.row_bytes)
        if other is not None and (unable := unable_in(whole, other, self.graph)):
            other = parted(whole, self.rolling.row_bytes, unable)
        found = [] if other is None else [self._frugal(other)]
        return [self.interval(self._with_guests(trace, section, stop), start) for section in (*found, whole)]

    def _with_guests(self, trace: Trace, section: Section, stop: int) -> Section:
        """The section with rings, newest rows and sums over an operand that dies here, where that saves."""
        overlap = self.best_overlap(section)
        dying = [n for n in section.reads if n in self.life and self.life[n][1] < stop]
        operand = overlap.operand if overlap is not None else max(dying, key=lambda n: self.sizes[n], default=None)
        return section if operand is None else with_guests(trace, section, operand, overlap, self.sizes, self.grain)

    def _frugal(self, section: Section) -> Section:
        """The section with the kernels that ask for the least scratch."""
        return with_kernels(section, [each[-1] for each in self._choices(section)])

    @cached_property
    def choices(self) -> Choices:
        return Choices(self.rolling, self.form, self.decoupled)

    def _choices(self, section: Section) -> list[tuple[Choice, ...]]:
        """For each op the kernels that it may have, fastest first; each later one asks for less scratch."""
        if section.rolled is None:
            return [self.choices.whole(section.ops[0], section.over)]
        return [self.choices.in_run(op, section.rolled) for op in section.ops]

    def fastest(self, section: Section, start: int, bound: int) -> Section | None:
        """The section with the fastest kernels whose scratch is within a bound of the live bytes; None: it is not."""
        found = self.interval(section, start)
        return found.within(bound) if found.live <= bound else None

    def interval(self, section: Section, start: int) -> Interval:
        """A section that begins at this position, with what its ops may have."""
        choices = tuple(self._choices(section))
        return Interval(start, start + len(section.ops), self.around(section, start), section, choices)

    def _overlaps(self, trace: Trace, found: Rolled, stop: int) -> tuple[Overlap, ...]:
        """The overlap of a dying operand and a result that saves most; those that could save more were looked at."""
        dying = [n for n in found.operands if n in self.life and self.life[n][1] < stop]
        pairs = [(min(self.sizes[x], self.sizes[y]), x, y) for x in dying for y in found.results]
        best: Overlap | None = None
        for most, operand, result in sorted(pairs, key=lambda pair: -pair[0]):
            if best is not None and most <= self.saving(best):
                break
            distance = max(0, shift(trace, found, Eaten.of(trace, found, operand), result))
            overlap = Overlap(operand, result, self._apart(distance))
            best = overlap if best is None or self.saving(overlap) > self.saving(best) else best
        return () if best is None else (best,)

    @cached_property
    def resident(self) -> list[int]:
        """Bytes of what was there before each position and is still wanted."""
        changes = [0] * (len(self.order) + 2)
        for name, (first, last) in self.life.items():
            changes[first + 1] += self.sizes[name]
            changes[max(last, first) + 1] -= self.sizes[name]
        return list(accumulate(changes))

    @cached_property
    def _living(self) -> list[list[tuple[int, int, int]]]:
        """First write, last read and bytes of what was there before each position and is still wanted."""
        found: list[list[tuple[int, int, int]]] = [[] for _ in range(len(self.order) + 1)]
        for name, (first, last) in self.life.items():
            for at in range(first + 1, last + 1):
                found[at].append((first, last, self.sizes[name]))
        return found

    def least(self, start: int, stop: int, rings: int = 0) -> int:
        """A bound of what any section of this interval takes: what is there before and after, best overlap and all.

        `rings`: bytes that rings take at least. They may lie over an operand as far as no result does.
        """
        results = [size for first, _, size in self._living[stop] if first >= start]
        dying = [size for _, last, size in self._living[start] if last < stop]
        result, operand = max(results, default=0), max(dying, default=0)
        beside = max(0, rings - max(0, operand - result))
        return self.resident[start] + sum(results) - min(result, operand) + beside

    def around(self, section: Section, start: int) -> int:
        """Bytes live between sections while one that starts at this position runs, with its best overlap."""
        best = self.best_overlap(section)
        saved = self.saving(best) if best is not None else 0
        return self.resident[start] + sum(self.sizes[n] for n in section.results) - saved

    def live(self, section: Section, start: int) -> int:
        """Most bytes live while a section that starts at this position runs."""
        return self.around(section, start) + max(section.in_use)

    def profile(self, sections: Sequence[Section]) -> tuple[int, ...]:
        """Bytes live in each of the sections of a cut."""
        starts = accumulate((len(s.ops) for s in sections), initial=0)
        return tuple(self.live(section, start) for section, start in zip(sections, starts, strict=False))

    def steps_of(self, sections: Sequence[Section]) -> dict[str, tuple[int, int]]:
        """First and last step, both inclusive, of every storage that is there between sections."""
        step_at = [step for step, s in enumerate(sections) for _ in s.ops]
        end = max(len(sections) - 1, 0)
        step_at.append(end)  # outputs live to the end
        inner = {n for s in sections if s.rolled for n in (*s.rolled.rings, *s.rolled.inside)}
        return {
            name: (step_at[max(first, 0)] if step_at else 0, step_at[last] if last >= 0 else 0)
            for name, (first, last) in self.life.items()
            if name not in inner
        }

    def best_overlap(self, section: Section) -> Overlap | None:
        """The overlap that saves most, if any saves."""
        best = max(section.overlaps, key=self.saving, default=None)
        return best if best is not None and self.saving(best) > 0 else None

    def saving(self, o: Overlap) -> int:
        operand, result = self.sizes[o.operand], self.sizes[o.result]
        return max(0, operand + result - max(max(o.distance, 0) + operand, result - min(o.distance, 0)))

    @cached_property
    def wholes(self) -> list[Interval]:
        """Every op whole, and in place where a kernel works so, with the least scratch."""
        found = []
        for at in range(len(self.order)):
            for section in (self.whole(at), self.over(at)):
                if section is not None and self.rolling.streamed not in section.reads:
                    least = with_kernels(section, [self.choices.whole(section.ops[0], section.over)[-1]])
                    found.append(self.interval(least, at))
        return found

    @cached_property
    def singles(self) -> list[Interval]:
        """Every op by itself: whole, in place, or by rows where the result so comes to lie over an operand."""
        found, least = list(self.wholes), dict[int, int]()
        for i in found:
            least[i.start] = min(i.live, least.get(i.start, i.live))
        floor = max((self.least(at, at + 1) for at in range(len(self.order))), default=0)
        for at, live in least.items():
            alone = self.order[at : at + 1]
            if live > floor and alone[0].outputs[0] not in self.decoupled and possible_starts(self.rolling, alone):
                found += self.by_rows(simulate(self.rolling, alone), at, at + 1)
        return sorted(found, key=lambda i: (i.start, i.stop))

    @cached_property
    def intervals(self) -> list[Interval]:
        """All sections that may be of use, with the least scratch."""
        known, found = Known(self.wholes), list(self.wholes)
        for stop in range(1, len(self.order) + 1):
            for i in self._rolled_until(stop, known):
                found.append(i)
                known.add(i)
        return sorted(found, key=lambda i: (i.start, i.stop))

    def _rolled_until(self, stop: int, known: Known) -> Iterator[Interval]:
        """Rolled sections that end at a position, the shortest first. `known`: sections that end before, and whole ops.

        One is of no use that takes no less than shorter ones in a row: these make the same rows, from operands that
        are there whole. The rings of a run are those of a shorter one and more, so some are not looked at. Nor is one
        that costs more than shorter ones in a row within what every cut takes that goes through its start.
        """
        shorter, floor = Shorter(known, stop), max(self.resident[0], self.resident[len(self.order)])
        streamed, before, count = self.rolling.streamed, stop, FIRST
        least, rings, measured, useless, looked_at = {stop: 0}, 0, 0, 0, stop
        while before > 0 and useless < FAR and rings <= self.enough:
            before, count = max(0, stop - count), 2 * count
            run = self.order[before:stop]
            starts = sorted((before + s for s in possible_starts(self.rolling, run)), reverse=True)
            trace, costs = None, list[float]()
            for start in starts:
                if start >= looked_at:
                    continue
                looked_at, bound = start, self.least(start, stop, rings)
                ways = [max(i.live, least[i.stop]) for i in known.starting[start] if i.stop in least]
                least[start] = min(ways, default=2**62)
                if bound > self.enough or (streamed is None and least[start] <= bound):
                    useless += 1
                    if useless >= FAR:
                        break
                    continue
                if trace is None:
                    trace = simulate(self.rolling, self.order[starts[-1] : stop])
                    costs = self.choices.least(trace)
                useless, taken, most = 0, max(floor, known.reached(start)), costs[start - starts[-1]] * EQUAL
                if (costly := shorter.cost(start, taken) < most) and stop - start < measured + FIRST:
                    continue
                rings = max(rings, least_rings(trace.tail(start - starts[-1]), self.rolling.row_bytes))
                measured = stop - start
                if costly or shorter.cost(start, max(taken, self.least(start, stop, rings))) < most:
                    continue
                found = self.by_rows(trace, start, stop)
                least[start] = min(least[start], *(i.live for i in found))
                if streamed not in found[0].section.reads:
                    yield from found
            if starts and starts[-1] > before:
                break  # what stands there cannot be rolled

    @cached_property
    def enough(self) -> int:
        """Bytes that no cut needs: what all ops whole take; a streamed input has no such cut."""
        if self.rolling.streamed is not None:
            return sum(self.sizes.values())
        return max(self.profile(untiled(self)), default=0)

    @cached_property
    def ways(self) -> Ways:
        """All cuts. Raises EdgebuildError if a streamed input leaves none."""
        found = Ways(self.intervals, len(self.order), self.enough)
        if found.least is None:
            raise fail(
                f"input '{self.rolling.streamed}' cannot be streamed: an op needs it whole",
                file=self.graph.file,
                hints=["leave --stream-input out"],
            )
        return found

    @property
    def least_peak(self) -> int:
        """The least of the largest live bytes that any cut takes."""
        return self.ways.least or 0

    def cut(self, limit: int | None = None) -> tuple[Section, ...]:
        """The sections with the fewest instructions whose peak is at most `limit`, or the least peak if that is more.

        No limit: the least peak, or little above it where that makes the whole noticeably faster.
        """
        least = self.least_peak
        return self.ways.tight() if limit is None else self.ways.within(max(limit, least))

    @cached_property
    def front(self) -> tuple[tuple[Section, ...], ...]:
        """The fastest cuts within limits that go down in steps of STEP: none takes less memory and time than another.

        The least memory comes first. Each limit is below what the cut before took, so that nothing between two
        neighbours is left out but what lies within a step.
        """
        limit, found = 2 * sum(self.sizes.values()), list[tuple[int, float, tuple[Section, ...]]]()
        while True:
            sections = self.cut(limit)
            peak, spent = max(self.profile(sections), default=0), cost(sections)
            if not found or spent > found[-1][1]:
                found.append((peak, spent, sections))
            elif peak < found[-1][0]:
                found[-1] = peak, spent, sections
            if limit <= self.least_peak:
                return tuple(sections for _, _, sections in reversed(found))
            limit = int(min(limit, peak) * STEP)

    def knee(self, most: float) -> tuple[Section, ...]:
        """The sections of least peak, more or less, that execute at most so many instructions; else the fastest."""
        return self.ways.knee(most)

    def alone(self, most: float, by_rows: bool) -> tuple[Section, ...]:
        """The same with every op by itself, whole or, where that is allowed, by rows."""
        return Ways(self.singles if by_rows else self.wholes, len(self.order), self.enough).knee(most)

    def alone_within(self, limit: int) -> tuple[Section, ...]:
        """The same with the fewest instructions within a limit of the live bytes, or with the least of these."""
        return (ways := Ways(self.singles, len(self.order), self.enough)).within(max(limit, ways.least or 0))


def untiled(cutter: Cutter) -> tuple[Section, ...]:
    """Every op whole, with its fastest kernel."""
    return cutter.untiled
