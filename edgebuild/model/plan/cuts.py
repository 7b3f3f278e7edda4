"""Cut an order of ops into sections: ops that run whole, and runs that are rolled.

Sections are intervals of the order, so a cut is a path, and sections are its edges. An interval has an edge for each
placement option: whole or by rows, in place or not, with or without separate newest rows. The best cut is the one of
least memory, and among all cuts within a limit the one with the fewest instructions. Both are found exactly, by
dynamic programming. Instructions that take longer than those of other kernels count for more (`Kernel.pace`).

While an op of a rolled run is called, not all of the run's rings hold rows that are still wanted. Only that op's
scratch is in use. So a run takes the most bytes in use during the calls of any of its ops. Each op may have the
fastest kernel whose scratch fits beside the other bytes in use.
"""

from __future__ import annotations

import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate
from math import inf

from ...base import progress
from ...base.errors import fail
from ...base.target import Target
from ..ir import ITEM_BYTES, Graph, Op
from ..kernels import kernel_of
from ..ops.base import SAME, Form
from .memory.problem import ALIGN, aligned
from .rolling import RollingGraph, Trace, possible_starts, simulate
from .section import (
    Choice,
    Choices,
    Decoupled,
    Overlap,
    Section,
    best_overlap,
    cost,
    distance,
    least_rings,
    scratch_name,
    slice_us,
    with_kernels,
    with_overlaid,
    with_separate_rows,
)

STEP = 0.94  # times the memory of one cut of the front: the limit for the next
FAR = 64  # useless sections in a row after which the search tries no longer ones
EQUAL = 1 - 1e-9  # tolerance for sums in another order
FIRST = 16  # ops that are rolled at once in the search of sections; twice as many where these are too few
SPARE = 27  # 1/SPARE of the least peak may be spent on faster kernels
WORTH = 64  # if they save at least 1/WORTH of the cost
FINENESS = 128  # 1/FINENESS of a peak is the precision of the bisection in `knee`
NEVER = 2**62
MAX_CALLS = 16_000_000  # of kernels that a search of sections simulates: about two minutes
Kernels = tuple[tuple[Choice, ...], ...]  # that each op of a section may have


def little_more(peak: int) -> int:
    """Limit on the peak in bytes when faster kernels may raise a least peak a little."""
    return peak + peak // SPARE


@dataclass(frozen=True)
class Interval:
    """A section of the ops [start, stop) with the least scratch, and the kernels that each of its ops may have.

    There are many intervals, and a cut takes few. So each holds figures only, and `make` makes its section.
    `live`: most bytes live while it runs; `others`: bytes live during the calls of each op, without its scratch.
    """

    start: int
    stop: int
    live: int
    others: array[int]
    calls: array[int]  # of each op
    choices: Kernels
    make: Callable[[], Section]

    @classmethod
    def of(
        cls,
        section: Section,
        start: int,
        around: int,
        choices: tuple[tuple[Choice, ...], ...],
        make: Callable[[], Section],
    ) -> Interval:
        """The figures of a section. `around`: bytes of tensors between sections that are live while it runs."""
        in_use, spans, others = section.in_use, section.spans, []
        for number, op in enumerate(section.ops):
            name = scratch_name(op.outputs[0])
            low, high = spans.get(name, (number, number))
            own = 0 if name in section.overlaid else section.inner.get(name, 0)
            others.append(around + max(in_use[low : high + 1]) - own)
        stop, calls = start + len(section.ops), array("q", section.calls_of)
        return cls(start, stop, around + max(in_use), array("q", others), calls, choices, make)

    @cached_property
    def section(self) -> Section:
        return self.make()

    @cached_property
    def quickest(self) -> float:
        """Cost with the fastest kernels."""
        return sum(n * each[0].cost for n, each in zip(self.calls, self.choices, strict=True))

    @cached_property
    def ample(self) -> int:
        """Bound on live bytes from which on every op has its fastest kernel."""
        return max(others + each[0].scratch for others, each in zip(self.others, self.choices, strict=True))

    def chosen(self, bound: int) -> list[Choice]:
        """For each op the fastest kernel within `bound` live bytes, or the one of least scratch."""
        kernels = zip(self.others, self.choices, strict=True)
        return [next((c for c in each if others + c.scratch <= bound), each[-1]) for others, each in kernels]

    def cost(self, bound: int) -> float:
        """Cost with these kernels."""
        if bound >= self.ample:
            return self.quickest
        return sum(n * c.cost for n, c in zip(self.calls, self.chosen(bound), strict=True))

    def peak(self, bound: int) -> int:
        """Most bytes live while it runs with these kernels."""
        return max(self.live, *(n + c.scratch for n, c in zip(self.others, self.chosen(bound), strict=True)))

    def within(self, bound: int) -> Section:
        """The section with these kernels."""
        return with_kernels(self.section, self.chosen(bound))


class Cuts:
    """All cuts of `count` ops into these intervals, which are sorted by their ends. `most`: bytes that suffice.

    More intervals may be added, in that order, before a cut is asked for.
    """

    def __init__(self, count: int, most: int, intervals: Iterable[Interval] = ()) -> None:
        self.count, self.most = count, most
        self.starting: dict[int, list[Interval]] = defaultdict(list)
        self._ending: dict[int, list[Interval]] = defaultdict(list)
        self._peaks = [0]
        for i in intervals:
            self.add(i)

    def add(self, i: Interval) -> None:
        self.starting[i.start].append(i)
        self._ending[i.stop].append(i)

    def least_until(self, position: int) -> int:
        """The least peak in bytes of any cut of the ops before a position; NEVER: there is no cut."""
        for stop in range(len(self._peaks), position + 1):
            peaks = (max(i.live, self._peaks[i.start]) for i in self._ending[stop])
            self._peaks.append(min(peaks, default=NEVER))
        return self._peaks[position]

    @property
    def least(self) -> int | None:
        """The least peak in bytes of any cut; None: there is no cut."""
        least = self.least_until(self.count)
        return least if least < NEVER else None

    def cost_between(self, start: int, stop: int, bound: int, costs: list[float]) -> float:
        """The least cost of ops [start, stop) in sections of at most `bound` live bytes each.

        `costs` caches the least cost from each position to `stop`, the nearest first; missing ones are appended. That
        from `start` is not, for an interval that begins there may yet be added.
        """

        def cost_from(position: int) -> float:
            fit = (i for i in self.starting[position] if i.stop <= stop and i.live <= bound)
            return min((i.cost(bound) + costs[stop - i.stop] for i in fit), default=inf)

        while len(costs) < stop - start:
            costs.append(cost_from(stop - len(costs)))
        return cost_from(start)

    def within(self, limit: int) -> tuple[Section, ...]:
        """The cut of least cost whose peak is at most `limit` bytes, or the least peak if that is more.

        Of cuts of equal cost, the one of the lowest peak.
        """
        bound = max(limit, self.least or 0)
        best: dict[int, tuple[tuple[float, int], Interval | None]] = {0: ((0, 0), None)}
        for i in (i for start in range(self.count) if start in best for i in self.starting[start] if i.live <= bound):
            (before, peak), there = best[i.start][0], best.get(i.stop)
            if there is not None and before + i.quickest > there[0][0]:  # a bound that is cheap to compute
                continue
            total = before + i.cost(bound), max(peak, i.peak(bound))
            if there is None or total < there[0]:
                best[i.stop] = (total, i)
        sections, position = list[Section](), self.count
        while (last := best[position][1]) is not None:
            sections.append(last.within(bound))
            position = last.start
        return tuple(reversed(sections))

    def tight(self) -> tuple[Section, ...]:
        """The cut of least peak, or of a peak little above it where that is noticeably faster."""
        least = self.least or 0
        tight, loose = self.within(least), self.within(little_more(least))
        before, after = cost(tight), cost(loose)
        return loose if before - after > before / WORTH else tight

    def knee(self, most: float) -> tuple[Section, ...]:
        """The cut of about the least peak whose cost is at most `most`; the fastest one if there is none."""
        low, high = self.least or 0, self.most
        if cost(tight := self.tight()) <= most:
            return tight
        best = self.within(max(low, high))
        while high - low > max(ALIGN, high // FINENESS):
            middle = (low + high) // 2
            sections = self.within(middle)
            if cost(sections) <= most:
                high, best = middle, sections
            else:
                low = middle
        return best


@dataclass
class _Effort:
    """Budget of a search of sections. True while ops up to `position` have not used their share of calls and time."""

    count: int
    deadline: float | None
    endless: bool
    position: int = 0
    calls: int = 0  # of kernels, that were simulated
    began: float = field(default_factory=time.monotonic)

    def __bool__(self) -> bool:
        share, spent = self.position / max(self.count, 1), time.monotonic() - self.began
        late = self.deadline is not None and spent > share * (self.deadline - self.began) / 2
        return self.endless or not (late or self.calls >= share * MAX_CALLS or progress.stopped())


@dataclass(frozen=True)
class Cutter:
    """Makes the sections of an order of ops, with their memory and cost, and finds cuts into them."""

    rolling: RollingGraph
    order: tuple[Op, ...]  # without views
    form: Form  # core and wishes that kernels are made for
    decoupled: Decoupled = field(default_factory=dict)
    deadline: float | None = None  # monotonic seconds; the search of rolled sections takes half of the time until then

    @property
    def graph(self) -> Graph:
        return self.rolling.graph

    @cached_property
    def choices(self) -> Choices:
        return Choices(self.rolling, self.form, self.decoupled)

    @cached_property
    def sizes(self) -> dict[str, int]:
        return self.rolling.sizes

    @cached_property
    def grain(self) -> int:
        """Bytes of which every distance between overlapping storages is a multiple: C aligns 64-bit numbers to 8."""
        widest = max((ITEM_BYTES[t.dtype] for t in self.graph.tensors.values() if not t.constant), default=1)
        return max(ALIGN, widest)

    @cached_property
    def life(self) -> dict[str, tuple[int, int]]:
        """Positions of first write and last read of every storage; -1 for inputs, past the end for outputs."""
        storage = self.rolling.storage
        life = {storage[n]: (-1, -1) for n in self.graph.inputs if storage[n] != self.rolling.streamed}
        for at, op in enumerate(self.order):
            life[op.outputs[0]] = (at, at)
            for name in op.inputs:
                if name in storage and storage[name] in life:
                    life[storage[name]] = (life[storage[name]][0], at)
        end = len(self.order)
        used = {storage[n] for op in self.order for n in op.inputs if n in storage}
        keep = {*self.rolling.outputs, *(n for n in life if n not in used)}
        return {name: (first, end if name in keep else last) for name, (first, last) in life.items()}

    def _dies(self, root: str, start: int, stop: int) -> bool:
        """Whether ops [start, stop) are the last to read a storage."""
        return start <= self.life.get(root, (0, -1))[1] < stop

    # ---- Sections of an interval

    @cached_property
    def untiled(self) -> tuple[Section, ...]:
        """Every op whole, with its fastest kernel."""
        return tuple(self.whole(at) for at in range(len(self.order)))

    def whole(self, at: int) -> Section:
        """The op at this position run whole by its fastest kernel, over an operand that it may overwrite if any."""
        op = self.order[at]
        roots = (root for root in self.rolling.overwritten(op) if self._dies(root, at, at + 1))
        overlaps = (Overlap.of(root, op.outputs[0], 0, self.sizes) for root in roots)
        best = max((o for o in overlaps if o.saved > 0), key=lambda o: o.saved, default=None)
        return self._one(at, best, self.choices.whole(op)[0])

    def in_place(self, at: int) -> Section | None:
        """The op at this position whole, its result over an operand that it reads for the last time.

        None: no kernel of the op works in place here.
        """
        op, storage = self.order[at], self.rolling.storage
        read = [n for n in op.inputs if n in storage]
        if len(read) != 1 or read[0] != op.inputs[0] or not self._dies(storage[read[0]], at, at + 1):
            return None
        root, choices = storage[read[0]], self.choices.whole(op, in_place=True)
        how = kernel_of(op, self.graph, choices[0].form).in_place if choices else ""
        above = distance(op, self.graph, how) if how else None
        if above is None or (how == SAME and self.graph.tensors[root].bytes != self.graph.result(op).bytes):
            return None
        overlap = Overlap.of(root, op.outputs[0], -(-above // self.grain) * self.grain, self.sizes)
        return self._one(at, overlap if overlap.saved > 0 else None, choices[0])

    def _one(self, at: int, overlap: Overlap | None, kernel: Choice) -> Section:
        op, storage = self.order[at], self.rolling.storage
        reads = tuple(dict.fromkeys(storage[n] for n in op.inputs if n in storage))
        return with_kernels(Section((op,), None, (op.outputs[0],), (), {}, reads=reads, overlap=overlap), [kernel])

    def without_overlap(self, section: Section, start: int) -> Interval:
        """The section without an overlap and without overlaid buffers."""
        section = self.whole(start) if section.in_place else section
        return self.interval(self._least_scratch(replace(section, overlap=None, overlaid={})), start)

    def by_rows(self, trace: Trace, start: int, stop: int) -> list[Interval]:
        """Ops [start, stop) run row by row with each placement option, the least memory first.

        Few are ever chosen, so `make` rolls a chosen one anew. To keep all sections would take 12 kB each.
        """
        first = stop - len(trace.run)

        def again(option: int) -> Section:
            return self._rolled(simulate(self.rolling, self.order[first:stop]), start, stop)[option]

        sections = enumerate(self._rolled(trace, start, stop))
        return [self.interval(section, start, partial(again, option)) for option, section in sections]

    def _rolled(self, trace: Trace, start: int, stop: int) -> list[Section]:
        rolled = trace.tail(len(trace.run) - (stop - start))
        rings = {name: aligned(n * self.rolling.row_bytes[name]) for name, n in rolled.rings.items()}
        dying = [n for n in rolled.operands if self._dies(n, start, stop)]
        overlap = best_overlap(trace, rolled, dying, self.sizes, self.grain)
        reads, spans = rolled.operands, rolled.spans
        joined = Section(rolled.ops, rolled, rolled.results, (), rings, reads=reads, spans=spans, overlap=overlap)
        joined = self._least_scratch(joined)
        separate = with_separate_rows(joined, self.graph, self.rolling.row_bytes)
        sections = [joined] if separate is None else [self._least_scratch(separate), joined]
        if dying:
            operand = overlap.operand if overlap is not None else max(dying, key=lambda n: self.sizes[n])
            sections = [with_overlaid(trace, section, operand, self.sizes, self.grain) for section in sections]
        return sections

    def _least_scratch(self, section: Section) -> Section:
        """The section with the kernels that need the least scratch."""
        return with_kernels(section, [each[-1] for each in self.choices.of(section)])

    def interval(self, section: Section, start: int, make: Callable[[], Section] | None = None) -> Interval:
        """The interval of a section that begins at this position. `make`: makes the section again."""
        choices = tuple(self.choices.of(section))
        return Interval.of(section, start, self.around(section, start), choices, make or (lambda: section))

    def fastest(self, section: Section, start: int, bound: int) -> Section | None:
        """The section with the fastest kernels within `bound` live bytes; None: it needs more."""
        interval = self.interval(section, start)
        return interval.within(bound) if interval.live <= bound else None

    # ---- Live bytes

    @cached_property
    def resident(self) -> list[int]:
        """Bytes of storages that were written before each position and are still wanted there."""
        changes = [0] * (len(self.order) + 2)
        for name, (first, last) in self.life.items():
            changes[first + 1] += self.sizes[name]
            changes[max(last, first) + 1] -= self.sizes[name]
        return list(accumulate(changes))

    @cached_property
    def _living(self) -> list[list[tuple[int, int, int]]]:
        """First write, last read and bytes of each storage that `resident` counts, by position."""
        living: list[list[tuple[int, int, int]]] = [[] for _ in range(len(self.order) + 1)]
        for name, (first, last) in self.life.items():
            for at in range(first + 1, last + 1):
                living[at].append((first, last, self.sizes[name]))
        return living

    def least(self, start: int, stop: int, rings: int = 0) -> int:
        """Lower bound on the bytes of any section of ops [start, stop): operands and results with the best overlap.

        `rings`: least bytes of its rings. They may lie over an operand where no result does.
        """
        results = [size for first, _, size in self._living[stop] if first >= start]
        dying = [size for _, last, size in self._living[start] if last < stop]
        result, operand = max(results, default=0), max(dying, default=0)
        beside = max(0, rings - max(0, operand - result))
        return self.resident[start] + sum(results) - min(result, operand) + beside

    def around(self, section: Section, start: int) -> int:
        """Live bytes of tensors between sections while this one runs, less its overlap."""
        saved = section.overlap.saved if section.overlap is not None else 0
        return self.resident[start] + sum(self.sizes[n] for n in section.results) - saved

    def profile(self, sections: Sequence[Section]) -> tuple[int, ...]:
        """Peak of live bytes in each section of a cut."""
        starts = accumulate((len(s.ops) for s in sections), initial=0)
        return tuple(self.around(s, start) + max(s.in_use) for s, start in zip(sections, starts, strict=False))

    def steps_of(self, sections: Sequence[Section]) -> dict[str, tuple[int, int]]:
        """First and last step, both inclusive, of every storage that lives between sections."""
        step_at = [step for step, s in enumerate(sections) for _ in s.ops]
        step_at.append(max(len(sections) - 1, 0))  # outputs live to the end
        inner = {n for s in sections if s.rolled for n in (*s.rolled.rings, *s.rolled.inside)}
        return {
            name: (step_at[max(first, 0)], step_at[last] if last >= 0 else 0)
            for name, (first, last) in self.life.items()
            if name not in inner
        }

    # ---- All cuts

    @cached_property
    def enough(self) -> int:
        """Bytes that suffice: the peak of every op whole, or all storages if a streamed input rules that out."""
        if self.rolling.streamed is not None:
            return sum(self.sizes.values())
        return max(self.profile(self.untiled), default=0)

    @cached_property
    def wholes(self) -> list[Interval]:
        """Every op whole, and in place where a kernel works so, with the least scratch."""
        sections = ((at, s) for at in range(len(self.order)) for s in (self.whole(at), self.in_place(at)))
        return [
            self.interval(self._least_scratch(section), at)
            for at, section in sections
            if section is not None and self.rolling.streamed not in section.reads
        ]

    @cached_property
    def whole_cuts(self) -> Cuts:
        """The cuts into whole ops."""
        return Cuts(len(self.order), self.enough, self.wholes)

    @cached_property
    def single_cuts(self) -> Cuts:
        """The cuts into single ops: whole, in place, or by rows where that lets the result overlap an operand."""
        cuts, least = Cuts(len(self.order), self.enough, self.wholes), dict[int, int]()
        for i in self.wholes:
            least[i.start] = min(i.live, least.get(i.start, i.live))
        floor = max((self.least(at, at + 1) for at in range(len(self.order))), default=0)
        for at, live in least.items():
            alone = self.order[at : at + 1]
            if live > floor and alone[0].outputs[0] not in self.decoupled and possible_starts(self.rolling, alone):
                for i in self.by_rows(simulate(self.rolling, alone), at, at + 1):
                    cuts.add(i)
        return cuts

    @cached_property
    def cuts(self) -> Cuts:
        """All cuts into useful sections. Raises EdgebuildError if a streamed input leaves none.

        A search that takes too long leaves out more sections, evenly: each op has the same share of calls and time.
        With a streamed input it does not end early, for then there might be no cut.
        """
        cuts = Cuts(len(self.order), self.enough, self.wholes)
        effort = _Effort(len(self.order), self.deadline, self.rolling.streamed is not None)
        for stop in range(1, len(self.order) + 1):
            effort.position = stop
            for i in self._rolled_until(stop, cuts, effort):
                cuts.add(i)
        if cuts.least is None:
            raise fail(
                f"input '{self.rolling.streamed}' cannot be streamed: an op needs it whole",
                file=self.graph.file,
                hints=["leave --stream-input out"],
            )
        return cuts

    def _rolled_until(self, stop: int, shorter: Cuts, effort: _Effort) -> Iterator[Interval]:
        """Rolled sections that end at `stop`, the shortest first. `shorter`: whole ops, and sections that end before.

        Dominance prunes most. A section is useless if a sequence of shorter ones takes no more memory: these make the
        same rows, from whole operands. It is useless, too, if such a sequence costs less within the bytes that every
        cut through its start takes anyway. The rings of a run are those of a shorter one and more, so the bounds of
        one run hold for all longer ones.
        """
        floor, costs = (
            max(self.resident[0], self.resident[len(self.order)]),
            defaultdict[int, list[float]](lambda: [0.0]),
        )
        streamed, before, count = self.rolling.streamed, stop, FIRST
        least, rings, measured, useless, looked_at = {stop: 0}, 0, 0, 0, stop  # `least`: peak from each start to `stop`
        while before > 0 and useless < FAR and rings <= self.enough and effort:
            before, count = max(0, stop - count), 2 * count
            starts = [before + s for s in possible_starts(self.rolling, self.order[before:stop])]
            trace, least_costs = None, list[float]()
            for start in (s for s in starts if s < looked_at):
                looked_at, bound = start, self.least(start, stop, rings)
                lives = [max(i.live, least[i.stop]) for i in shorter.starting[start] if i.stop in least]
                least[start] = min(lives, default=NEVER)
                if bound > self.enough or (streamed is None and least[start] <= bound):
                    useless += 1
                    if useless >= FAR:
                        break
                    continue
                if trace is None:  # rolling is slow: only once bounds do not rule the section out
                    trace = simulate(self.rolling, self.order[starts[-1] : stop])
                    least_costs = self.choices.least_costs(trace)
                    effort.calls += len(trace.events)
                useless, limit = 0, max(floor, shorter.least_until(start))
                most = least_costs[start - starts[-1]] * EQUAL
                costly = shorter.cost_between(start, stop, limit, costs[limit]) < most
                if costly and stop - start < measured + FIRST:
                    continue
                rolled = trace.tail(start - starts[-1])
                rings = max(rings, least_rings(rolled, self.rolling.row_bytes))
                measured, limit = stop - start, max(limit, self.least(start, stop, rings))
                if costly or shorter.cost_between(start, stop, limit, costs[limit]) < most:
                    continue
                intervals = self.by_rows(trace, start, stop)
                least[start] = min(least[start], *(i.live for i in intervals))
                if streamed not in rolled.operands:
                    yield from intervals
            if starts and starts[-1] > before:
                break  # an op before this start cannot be rolled

    @property
    def least_peak(self) -> int:
        """The least peak in bytes of any cut; 0 without ops."""
        return self.cuts.least or 0

    @cached_property
    def front(self) -> tuple[tuple[Section, ...], ...]:
        """The Pareto front of peak and cost, the least memory first: the fastest cut within each of many limits.

        Each limit is STEP times the memory of the cut before. So the front misses only cuts less than a step from a
        neighbour.
        """
        limit, front = 2 * sum(self.sizes.values()), list[tuple[int, float, tuple[Section, ...]]]()
        while True:
            sections = self.cuts.within(limit)
            peak, spent = max(self.profile(sections), default=0), cost(sections)
            if not front or spent > front[-1][1]:
                front.append((peak, spent, sections))
            elif peak < front[-1][0]:
                front[-1] = peak, spent, sections
            if limit <= self.least_peak:
                return tuple(sections for _, _, sections in reversed(front))
            limit = int(min(limit, peak) * STEP)


def sliced(cutter: Cutter, steps: tuple[Section, ...], target: Target, limit: float) -> tuple[Section, ...]:
    """The steps, with whole ops that take longer than `limit` microseconds run by rows where they can be."""
    cut, at = list[Section](), 0
    for section in steps:
        alone = cutter.order[at : at + len(section.ops)]
        long = section.rolled is None and slice_us(cutter.graph, section, target, limit) > limit
        if long and possible_starts(cutter.rolling, alone):
            rows = cutter.by_rows(simulate(cutter.rolling, alone), at, at + 1)
            quick = [i.within(i.ample) for i in rows]
            section = min(quick, key=lambda s: slice_us(cutter.graph, s, target, limit))
        cut.append(section)
        at += len(section.ops)
    return tuple(cut)
