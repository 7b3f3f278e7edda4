"""Cut an order of ops into sections: ops that run whole, and runs that are rolled.

Sections are intervals of the order, so the best cut is a path: the least of the largest memory that
any section takes, and among all cuts within a limit the one with the fewest instructions. Both are
found exactly, by dynamic programming over all intervals.

While an op of a rolled run is called, not all of the run's rings hold rows that are still wanted, and
only that op's scratch is in use. So what a run takes is the most that any of its ops finds in use, and
an op may have the fastest kernel whose scratch fits beside that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import prod
from types import MappingProxyType

from ...base.errors import fail
from .. import ops
from ..axes import elementwise
from ..ir import ITEM_BYTES, Graph, Op
from ..kernels import kernel_of
from ..ops.base import Form
from .rolling import Rolled, RollingGraph, Trace, calls, possible_starts, simulate

Decoupled = Mapping[str, tuple[int, bool]]  # by result: how many channels or columns, and whether at the low clock
COUPLED: Decoupled = MappingProxyType({})

CALL, ROW_CALL = 40, 60  # instructions of a call beside those of the kernel's estimate, of a whole op and by rows
PORTABLE = 8  # instructions per turn of the innermost loop, of kernels in plain C that state none
SPARE = 27  # the part of the least peak that may be spent on faster kernels
WORTH = 64  # the part of all instructions that it must save
FINENESS = 128  # the part of a peak to which the least for a number of instructions is found
ALIGN = 4  # bytes; every buffer starts and ends on it, so kernels may use word accesses


@dataclass(frozen=True)
class Overlap:
    """`result` may share bytes with `operand` if it starts at least `distance` bytes below it."""

    operand: str
    result: str
    distance: int


@dataclass(frozen=True)
class Section:
    """One step of the schedule: an op that runs whole (`rolled` None), or a rolled run."""

    ops: tuple[Op, ...]
    rolled: Rolled | None
    reads: tuple[str, ...]  # storages
    results: tuple[str, ...]
    forms: tuple[Form, ...]  # of the ops' kernels
    inner: Mapping[str, int]  # bytes of rings and scratch, which live in this step alone
    spans: Mapping[str, tuple[int, int]]  # numbers of the first and the last op during whose calls they are in use
    overlaps: tuple[Overlap, ...]
    instructions: float  # estimated

    @property
    def name(self) -> str:
        return self.ops[-1].name

    @property
    def calls(self) -> int:
        return sum(self.rolled.counts) if self.rolled else 1

    @property
    def calls_of(self) -> list[int]:
        """How often each op is called."""
        return list(self.rolled.counts[: len(self.ops)]) if self.rolled else [1]

    @property
    def callers(self) -> int:
        """How many numbers `spans` may name: the ops, and behind them the application that brings rows."""
        return len(self.ops) + any(last >= len(self.ops) for _, last in self.spans.values())

    @cached_property
    def in_use(self) -> list[int]:
        """Bytes of `inner` in use during the calls of each op."""
        changes = [0] * (self.callers + 1)
        for name, size in self.inner.items():
            first, last = self.spans[name]
            changes[first] += size
            changes[last + 1] -= size
        return list(accumulate(changes[:-1]))


def little_more(peak: int) -> int:
    """The bytes that faster kernels may take where the least peak is asked for."""
    return peak + peak // SPARE


def aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def scratch_name(output: str) -> str:
    return f"{output} (scratch)"


def whole_form(op: Op, form: Form, decoupled: Decoupled = COUPLED) -> Form:
    """The form of the kernel of an op that runs whole; `form` says for which core."""
    granularity, lfo = decoupled.get(op.outputs[0], (0, False))
    return replace(form, granularity=granularity, lfo=lfo)


def row_form(rolling: RollingGraph, rolled: Rolled, op: Op, form: Form) -> Form:
    """The form of the kernel that an op of a rolled run needs."""
    return replace(form, rings=rings_of(rolling, rolled, op), rows=rolling.operands[op.outputs[0]][0][1])


def rings_of(rolling: RollingGraph, rolled: Rolled, op: Op) -> tuple[int, ...]:
    """Rows of the ring that each operand is; 0 where it is there whole."""
    rings, inside = rolled.rings, rolled.inside
    kept = [(rings.get(inside.get(root, root), 0), rows) for root, rows in rolling.operands[op.outputs[0]]]
    return tuple(0 if n >= rows else n for n, rows in kept)


def narrows(graph: Graph, x: str, y: str) -> bool:
    """Elements do not grow, so writing result i never reaches operand i + 1."""
    return ITEM_BYTES[graph.tensors[y].dtype] <= ITEM_BYTES[graph.tensors[x].dtype]


@dataclass(frozen=True)
class Choice:
    """A kernel that an op may have."""

    form: Form
    scratch: int  # bytes, aligned
    instructions: float  # of a call


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

    def whole(self, at: int) -> Section:
        """The op at this position as it is, with its fastest kernel."""
        op = self.order[at]
        relation, y, storage = ops.nest(op, self.graph), op.outputs[0], self.rolling.storage
        reads = tuple(dict.fromkeys(storage[n] for n in op.inputs if n in storage))
        overlaps = tuple(
            Overlap(storage[n], y, 0)
            for position, n in enumerate(op.inputs)
            if n in storage
            and self.life.get(storage[n], (0, -1))[1] == at
            and elementwise(relation, position)
            and narrows(self.graph, n, y)
        )
        return _with_kernels(Section((op,), None, reads, (y,), (), {}, {}, overlaps, 0), [self.choices(op)[0]])

    def rolled(self, trace: Trace, start: int, stop: int) -> Section:
        """The ops of an interval run row by row, with the kernels that ask for the least scratch."""
        found = trace.tail(len(trace.run) - (stop - start))
        rings = {name: aligned(n * self.rolling.row_bytes[name]) for name, n in found.rings.items()}
        overlaps = self._overlaps(trace, found, stop)
        plain = Section(found.ops, found, found.operands, found.results, (), rings, found.spans, overlaps, 0)
        return _with_kernels(plain, [self.choices(op, found)[-1] for op in found.ops])

    def choices(self, op: Op, rolled: Rolled | None = None) -> tuple[Choice, ...]:
        """The kernels for an op, fastest first; each later one asks for less scratch."""
        key = (op.outputs[0], rings_of(self.rolling, rolled, op) if rolled is not None else None)
        if key not in self.known:
            whole = whole_form(op, self.form, self.decoupled)
            form = row_form(self.rolling, rolled, op, self.form) if rolled is not None else whole
            found: list[Choice] = []
            stated = float(PORTABLE * prod(ops.nest(op, self.graph).extents.values()))
            stated, call = (stated / calls(self.rolling, op), ROW_CALL) if rolled is not None else (stated, CALL)
            kernel, limit = kernel_of(op, self.graph, form), None
            while not found or aligned(kernel.scratch) < found[-1].scratch:
                form = replace(form, scratch_limit=limit)
                found.append(Choice(form, aligned(kernel.scratch), (kernel.estimate or stated) + call))
                limit = aligned(kernel.scratch) - 1
                kernel = kernel_of(op, self.graph, replace(form, scratch_limit=limit)) if kernel.scratch else kernel
            self.known[key] = tuple(found)
        return self.known[key]

    @cached_property
    def known(self) -> dict[tuple[str, tuple[int, ...] | None], tuple[Choice, ...]]:
        return {}

    def fastest(self, section: Section, start: int, bound: int) -> Section | None:
        """The section with the fastest kernels whose scratch is within a bound of the live bytes; None: it is not."""
        if self.live(section, start) > bound:
            return None
        chosen = []
        for number, op in enumerate(section.ops):
            name = scratch_name(op.outputs[0])
            low, high = section.spans.get(name, (number, number))
            others = max(section.in_use[low : high + 1]) - section.inner.get(name, 0)
            room = bound - self.around(section, start) - others
            choices = self.choices(op, section.rolled)
            chosen.append(next((c for c in choices if c.scratch <= room), choices[-1]))
        return _with_kernels(section, chosen)

    def _overlaps(self, trace: Trace, found: Rolled, stop: int) -> tuple[Overlap, ...]:
        """The overlap of a dying operand and a result that saves most; those that could save more were looked at."""
        dying = [n for n in found.operands if n in self.life and self.life[n][1] < stop]
        pairs = [(min(self.sizes[x], self.sizes[y]), x, y) for x in dying for y in found.results]
        best: Overlap | None = None
        for most, operand, result in sorted(pairs, key=lambda pair: -pair[0]):
            if best is not None and most <= self.saving(best):
                break
            overlap = Overlap(operand, result, aligned(trace.shift(found, operand, result)))
            best = overlap if best is None or self.saving(overlap) > self.saving(best) else best
        return () if best is None else (best,)

    def least(self, start: int, stop: int) -> int:
        """A bound of what any section of this interval takes: what is there before and after, best overlap and all."""
        inside = {op.outputs[0] for op in self.order[start:stop]}
        results = [self.sizes[n] for n in inside if self.life[n][1] >= stop]
        before = {n: last for n, (first, last) in self.life.items() if first < start <= last}
        dying = [self.sizes[n] for n, last in before.items() if last < stop]
        return sum(self.sizes[n] for n in before) + sum(results) - min(max(results, default=0), max(dying, default=0))

    def around(self, section: Section, start: int) -> int:
        """Bytes live between sections while one that starts at this position runs, with its best overlap."""
        resident = sum(self.sizes[n] for n, (first, last) in self.life.items() if first < start <= last)
        best = self.best_overlap(section)
        saved = self.saving(best) if best is not None else 0
        return resident + sum(self.sizes[n] for n in section.results) - saved

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
        return max(0, operand + result - max(o.distance + operand, result))

    @cached_property
    def intervals(self) -> list[tuple[int, int, int, Section]]:
        """All sections that may be of use, with the least scratch: first position, one past the last, live bytes."""
        found = []
        wholes = untiled(self)
        # No cut is of use that takes more than all ops whole; a streamed input has no such cut.
        enough = max(self.profile(wholes), default=0) if self.rolling.streamed is None else sum(self.sizes.values())
        for start, whole in enumerate(wholes):
            if self.rolling.streamed not in whole.reads:
                least = _with_kernels(whole, [self.choices(whole.ops[0])[-1]])
                found.append((start, start + 1, self.live(least, start), least))
        for stop in range(1, len(self.order) + 1):
            starts = [s for s in possible_starts(self.rolling, self.order[:stop]) if self.least(s, stop) <= enough]
            if not starts:
                continue
            trace = simulate(self.rolling, self.order[min(starts) : stop])
            for start in starts:
                section = self.rolled(trace, start, stop)
                if self.rolling.streamed not in section.reads:
                    found.append((start, stop, self.live(section, start), section))
        return sorted(found, key=lambda interval: interval[:2])

    @cached_property
    def least_peak(self) -> int:
        """The least of the largest live bytes that any cut takes."""
        best: dict[int, int] = {0: 0}
        for start, stop, live, _ in self.intervals:
            if start in best:
                peak = max(best[start], live)
                best[stop] = min(best.get(stop, peak), peak)
        if len(self.order) not in best:
            raise fail(
                f"input '{self.rolling.streamed}' cannot be streamed: an op needs it whole",
                file=self.graph.file,
                hints=["leave --stream-input out"],
            )
        return best[len(self.order)]

    def cut(self, limit: int | None = None) -> tuple[Section, ...]:
        """The sections with the fewest instructions whose peak is at most `limit`, or the least peak if that is more.

        No limit: the least peak, or little above it where that makes the whole noticeably faster.
        """
        tight = self._within(max(limit or 0, self.least_peak))
        if limit is not None:
            return tight
        loose = self._within(little_more(self.least_peak))
        before, after = instructions(tight), instructions(loose)
        return loose if before - after > before / WORTH else tight

    def knee(self, most: float) -> tuple[Section, ...]:
        """The sections of least peak, more or less, that execute at most so many instructions; else the fastest."""
        low, high = self.least_peak, max(self.profile(untiled(self)), default=0)
        best = self._within(max(low, high))
        if instructions(tight := self.cut()) <= most:
            return tight
        while high - low > max(ALIGN, high // FINENESS):
            middle = (low + high) // 2
            found = self._within(middle)
            if instructions(found) <= most:
                high, best = middle, found
            else:
                low = middle
        return best

    def _within(self, bound: int) -> tuple[Section, ...]:
        """The sections with the fewest instructions whose peak is at most `bound`."""
        best: dict[int, tuple[float, tuple[Section, ...]]] = {0: (0, ())}
        for start, stop, live, least in self.intervals:
            section = self.fastest(least, start, bound) if live <= bound and start in best else None
            if section is not None:
                instructions, before = best[start]
                instructions += section.instructions
                if stop not in best or instructions < best[stop][0]:
                    best[stop] = (instructions, (*before, section))
        return best[len(self.order)][1]


def _with_kernels(section: Section, chosen: Sequence[Choice]) -> Section:
    """The section with these kernels, and their scratch.

    Sums of a reduction stay from its first call to its last, all other scratch is free after each call.
    """
    scratch = {op.outputs[0]: scratch_name(op.outputs[0]) for op in section.ops}
    own = set(scratch.values())
    inner = {name: size for name, size in section.inner.items() if name not in own}
    spans, calls = {name: section.spans[name] for name in inner}, section.calls_of
    for number, (name, choice) in enumerate(zip(scratch, chosen, strict=True)):
        if choice.scratch:
            inner[scratch[name]] = choice.scratch
            reduced = section.rolled is not None and name in section.results and section.rolled.spans.get(name)
            spans[scratch[name]] = reduced or (number, number)
    instructions = sum(n * choice.instructions for n, choice in zip(calls, chosen, strict=True))
    forms = tuple(choice.form for choice in chosen)
    return replace(section, forms=forms, inner=inner, spans=spans, instructions=instructions)


def instructions(sections: Sequence[Section]) -> float:
    """Estimated, of all sections."""
    return sum(s.instructions for s in sections)


def untiled(cutter: Cutter) -> tuple[Section, ...]:
    """Every op whole, with its fastest kernel."""
    return tuple(cutter.whole(at) for at in range(len(cutter.order)))


def frugal(cutter: Cutter) -> tuple[Section, ...]:
    """Every op whole, with its fastest kernel within little more than the least peak that there is so."""
    least = [_with_kernels(s, [cutter.choices(s.ops[0])[-1]]) for s in untiled(cutter)]
    bound = little_more(max(cutter.profile(least), default=0))
    return tuple(cutter.fastest(s, at, bound) or s for at, s in enumerate(least))
