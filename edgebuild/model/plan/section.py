"""Steps of a schedule: ops that run whole, and runs that are rolled.

Each op of a step has a choice of kernels. Buffers of a step may share bytes with each other and with operands.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, product
from math import prod
from types import MappingProxyType

import numpy as np

from ...base.target import Target
from .. import ops
from ..ir import Array, Graph, Op
from ..kernels import cycles_of, kernel_of
from ..ops.base import PER_BYTE_KEPT, PER_CALL, PER_ROW_CALL, PER_ROW_KEPT, PER_TURN, PIXELS, Form, Kernel
from .memory.problem import aligned
from .printed import Step, newest_name
from .printed import scratch_name as scratch_name
from .rolling import Rolled, RollingGraph, Trace, calls, row_bytes

Decoupled = Mapping[str, tuple[int, bool]]  # by result: channels or columns gathered at once, whether at the low clock
COUPLED: Decoupled = MappingProxyType({})

MAX_STATES = 16  # combinations of ring sizes of an op's operands; with more, its least cost counts as 0
ALL_FREE = 2**40  # more bytes than any operand has
LINE = 32  # bytes of a cache line: overlaid buffers and a result do not share one


@dataclass(frozen=True)
class Overlap:
    """`result` may overlap `operand` if it starts at least `distance` bytes below it (negative: at most so far above).

    `saved`: bytes that this saves against placing both side by side.
    """

    operand: str
    result: str
    distance: int
    saved: int

    @classmethod
    def of(cls, operand: str, result: str, distance: int, sizes: Mapping[str, int]) -> Overlap:
        x, y = sizes[operand], sizes[result]
        together = max(max(distance, 0) + x, y - min(distance, 0))
        return cls(operand, result, distance, max(0, x + y - together))


@dataclass(frozen=True)
class Section(Step):
    """A step with the facts that the planner chooses by: storages read, lifetimes of buffers, overlaps, and cost."""

    rolled: Rolled | None
    reads: tuple[str, ...] = ()  # storages
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # first and last op whose calls use `inner`
    overlap: Overlap | None = None
    overlaid: Mapping[str, tuple[str, int]] = field(default_factory=dict)  # of `inner`: operand it lies in, offset
    instructions: float = 0.0  # estimated
    cost: float = 0.0  # instructions, each weighted by the pace of its kernel (`Kernel.cost`)

    @property
    def in_place(self) -> bool:
        """Whether the op runs whole and its kernel works in place."""
        return self.rolled is None and any(form.in_place for form in self.forms)

    @property
    def run(self) -> bool:
        """Whether several ops are rolled together. One op that goes by rows to overlap its operand is no run."""
        return self.rolled is not None and len(self.ops) > 1

    @property
    def calls(self) -> int:
        return sum(self.rolled.counts) if self.rolled else 1

    @property
    def calls_of(self) -> list[int]:
        """How often each op is called."""
        return list(self.rolled.counts[: len(self.ops)]) if self.rolled else [1]

    def kernels(self, graph: Graph) -> list[Kernel]:
        """The kernel of each op."""
        return [kernel_of(op, graph, form) for op, form in zip(self.ops, self.forms, strict=True)]

    @property
    def callers(self) -> int:
        """Count of the numbers that `spans` refers to: the ops, and the application if it brings rows."""
        return len(self.ops) + any(last >= len(self.ops) for _, last in self.spans.values())

    @cached_property
    def in_use(self) -> list[int]:
        """Bytes of `inner` in use during the calls of each op, without those that are overlaid on an operand."""
        changes = [0] * (self.callers + 1)
        for name in self.inner.keys() - self.overlaid.keys():
            first, last = self.spans[name]
            changes[first] += self.inner[name]
            changes[last + 1] -= self.inner[name]
        return list(accumulate(changes[:-1]))


def instructions(sections: Sequence[Section]) -> float:
    """Estimated instructions of all sections."""
    return sum(s.instructions for s in sections)


def cost(sections: Sequence[Section]) -> float:
    """Cost of all sections, by which plans are chosen."""
    return sum(s.cost for s in sections)


def whole_form(op: Op, form: Form, decoupled: Decoupled = COUPLED) -> Form:
    """The form of the kernel of an op that runs whole, for the core and wishes of `form`."""
    granularity, lfo = decoupled.get(op.outputs[0], (0, False))
    return replace(form, granularity=granularity, lfo=lfo)


def rings_of(rolling: RollingGraph, rolled: Rolled, op: Op) -> tuple[int, ...]:
    """Rows of each operand's ring, without a separate newest row; 0 for an operand that is whole."""
    rings, inside = rolled.rings, rolled.inside
    counts = [(rings.get(inside.get(root, root), 0), rows) for root, rows in rolling.operands[op.outputs[0]]]
    return tuple(0 if n >= rows else n for n, rows in counts)


def distance(op: Op, graph: Graph, in_place: str) -> int | None:
    """Bytes by which the first operand must start above the result of a kernel that states `in_place`.

    None: they cannot overlap, because their shapes do not match.
    """
    x, y = graph.operands(op)[0], graph.result(op)
    if in_place == PIXELS:
        return aligned(max(0, y.bytes - x.bytes)) if x.shape[:-1] == y.shape[:-1] else None
    return 0 if x.bytes == y.bytes else None


@dataclass(frozen=True)
class Choice:
    """A kernel that an op may have."""

    form: Form
    scratch: int  # bytes, aligned
    instructions: float  # of a call
    cost: float  # of a call: instructions, weighted by the kernel's pace


def with_kernels(section: Section, chosen: Sequence[Choice]) -> Section:
    """The section with the `chosen` kernel of each op, and their scratch.

    Sums of a reduction live from its first call to its last; all other scratch is free after each call.
    """
    scratch = {op.outputs[0]: scratch_name(op.outputs[0]) for op in section.ops}
    inner = {name: size for name, size in section.inner.items() if name not in scratch.values()}
    spans, counts = {name: section.spans[name] for name in inner}, section.calls_of
    for number, (name, choice) in enumerate(zip(scratch, chosen, strict=True)):
        if choice.scratch:
            inner[scratch[name]] = choice.scratch
            reduced = section.rolled is not None and name in section.results and section.rolled.spans.get(name)
            spans[scratch[name]] = reduced or (number, number)
    separate = section.rolled.separate if section.rolled is not None else ()
    times = dict(zip(scratch, counts, strict=True))
    copying = sum(times[n] * (PER_ROW_KEPT + PER_BYTE_KEPT * inner[newest_name(n)]) for n in separate)
    executed = sum(n * c.instructions for n, c in zip(counts, chosen, strict=True)) + copying
    spent = sum(n * c.cost for n, c in zip(counts, chosen, strict=True)) + copying
    forms = tuple(choice.form for choice in chosen)
    return replace(section, forms=forms, inner=inner, spans=spans, instructions=executed, cost=spent)


@dataclass(frozen=True)
class Choices:
    """Kernels that the ops of a graph may have, the fastest first; each later one needs less scratch.

    `form`: the core and the wishes that they are made for.
    """

    rolling: RollingGraph
    form: Form
    decoupled: Decoupled = field(default_factory=dict)
    _cache: dict[tuple[object, ...], tuple[Choice, ...]] = field(default_factory=dict, init=False, compare=False)

    def _once(self, key: tuple[object, ...], make: Callable[[], tuple[Choice, ...]]) -> tuple[Choice, ...]:
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def of(self, section: Section) -> list[tuple[Choice, ...]]:
        """For each op of a section the kernels that it may have."""
        if section.rolled is None:
            return [self.whole(section.ops[0], section.in_place)]
        return [self.in_run(op, section.rolled) for op in section.ops]

    def whole(self, op: Op, in_place: bool = False) -> tuple[Choice, ...]:
        """Kernels of an op that runs whole. `in_place`: only those that work in place, all in one manner; or none."""
        return self._once(
            (op.outputs[0], in_place),
            lambda: self._fastest_first(op, replace(whole_form(op, self.form, self.decoupled), in_place=in_place)),
        )

    def in_run(self, op: Op, rolled: Rolled) -> tuple[Choice, ...]:
        """Kernels of an op of a rolled run. The same ones serve separate newest rows, with forms that say so."""
        rings = rings_of(self.rolling, rolled, op)
        separate = tuple(root in rolled.separate for root, _ in self.rolling.operands[op.outputs[0]])
        if not any(separate):
            return self.by_rows(op, rings)
        return self._once(
            (op.outputs[0], rings, separate),
            lambda: tuple(
                replace(choice, form=replace(choice.form, rings=rings, separate=separate))
                for choice in self.in_run(op, rolled.joined)
            ),
        )

    def by_rows(self, op: Op, rings: tuple[int, ...]) -> tuple[Choice, ...]:
        """Kernels of an op by rows. `rings`: rows of each operand's ring; 0: the operand is whole."""
        rows = self.rolling.operands[op.outputs[0]][0][1]
        return self._once(
            (op.outputs[0], rings), lambda: self._fastest_first(op, replace(self.form, rings=rings, rows=rows))
        )

    def default_instructions(self, op: Op, form: Form) -> float:
        """Estimate for a kernel that states none: instructions of the whole op, or of a call that makes a row."""
        whole = float(PER_TURN * prod(ops.nest(op, self.rolling.graph).extents.values()))
        return whole / calls(self.rolling, op) if form.rolled else whole

    def _fastest_first(self, op: Op, form: Form) -> tuple[Choice, ...]:
        graph = self.rolling.graph
        stated, call = self.default_instructions(op, form), PER_ROW_CALL if form.rolled else PER_CALL
        kernel, choices = kernel_of(op, graph, form), list[Choice]()
        how = kernel.in_place if form.in_place else ""
        gathers = form.granularity > 0 and kernel_of(op, graph, replace(form, in_place=False)).traffic.rounds > 0
        while not choices or aligned(kernel.scratch) < choices[-1].scratch:
            if (form.in_place and (not how or how != kernel.in_place)) or (gathers and not kernel.traffic.rounds):
                break
            scratch, count = aligned(kernel.scratch), kernel.estimate or stated
            form = replace(form, scratch_limit=choices[-1].scratch - 1 if choices else None)
            choices.append(Choice(form, scratch, count + call, count * kernel.pace + call))
            kernel = kernel_of(op, graph, replace(form, scratch_limit=scratch - 1)) if kernel.scratch else kernel
        return tuple(choices)

    def least_costs(self, trace: Trace) -> list[float]:
        """For each op a lower bound on the cost by rows from it to the end, whichever ops before it run whole."""
        each = list[float]()
        for count, op in zip(trace.counts, trace.run, strict=False):
            states = [self._states(trace, root, rows) for root, rows in self.rolling.operands[op.outputs[0]]]
            rings = product(*states) if prod(map(len, states)) <= MAX_STATES else ()
            each.append(count * min((c.cost for some in rings for c in self.by_rows(op, some)), default=0.0))
        return list(accumulate(reversed(each)))[::-1]

    def _states(self, trace: Trace, root: str, rows: int) -> set[int]:
        """Possible rows of an operand's ring: its own, or the one of the result it is made in; 0: it is whole."""
        states, names = {0}, [root]
        while names:
            name = names.pop()
            ring = trace.rings.get(name, 0)
            states.add(0 if ring >= rows else ring)
            if ring == 1:
                readers = (op.outputs[0] for op in self.rolling.readers.get(name, []))
                names += [y for y in readers if name in self.rolling.in_place_rows[y]]
        return states


# ---- Placement options of a rolled run
#
# A result may grow into an operand that the run reads for the last time, behind the rows that have been read. Blacker,
# Bridges and Hadfield (2020) call this diagonal memory optimisation; here it holds for a whole run instead of one op.
# Rings, newest rows and sums of the run are *overlaid* on the operand's start if the run first writes them when it no
# longer reads those bytes. Newest rows of several rings may lie in one place, see `rolling`.


@dataclass(frozen=True)
class Consumed:
    """How a run consumes an operand: calls that read it, and the bytes at its start that are free before each."""

    calls: Array  # [n]: positions in the order of calls
    below: Array  # [n + 1]: bytes that neither this call nor a later one reads; the last: all

    @staticmethod
    def of(trace: Trace, rolled: Rolled, operand: str) -> Consumed:
        start, step = len(trace.run) - len(rolled.ops), row_bytes(trace.rolling.graph, operand)
        reads = np.array([(at, first * step) for at, reader, first in trace.reads[operand] if reader >= start])
        return Consumed(reads[:, 0], np.append(np.minimum.accumulate(reads[::-1, 1])[::-1], ALL_FREE))

    def before(self, call: Array) -> Array:
        """For each of these calls, the bytes at the operand's start that neither it nor a later one reads."""
        free: Array = self.below[np.searchsorted(self.calls, call)]
        return free


def least_distance(trace: Trace, rolled: Rolled, consumed: Consumed, result: str) -> int:
    """The least distance in bytes by which the operand must start above `result`; negative: it may start lower.

    Each row of the result must end below every row of the operand that is read in the same call or later.
    """
    step = row_bytes(trace.rolling.graph, result)
    homes = [result, *(name for name, home in rolled.inside.items() if home == result)]
    writes = np.array([w for name in homes for w in trace.writes[name]])
    return int(np.max(writes[:, 1] * step - consumed.before(writes[:, 0])))


def best_overlap(
    trace: Trace, rolled: Rolled, dying: Sequence[str], sizes: Mapping[str, int], grain: int
) -> Overlap | None:
    """The overlap of a result and one of the `dying` operands that saves most bytes; None if none saves any.

    `sizes`: bytes of storages. Distances are multiples of `grain` bytes.
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
    """The highest end at which each ring, newest row and sum may be overlaid, in bytes from the operand's start.

    Each row must end below all bytes of the operand that the first call that writes the row, or a later one, reads.
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
    """The rolled section with buffers overlaid on `operand`, which dies here; unchanged if that saves nothing.

    If a result overlaps the operand, too, it then begins behind these buffers.
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
    """A buffer that may be overlaid: its bytes, its highest end, and the first and last op that use it."""

    name: str
    size: int
    limit: int
    first: int
    last: int


def _overlaid(section: Section, limits: Mapping[str, int], room: int, grain: int) -> dict[str, int]:
    """Offsets of overlaid buffers from the operand's start; none if they do not lower the peak of the section.

    `limits`: the highest end of each; `room`: of all. Greedy: overlay the largest buffer in use at the peak, as long as
    there is one that fits.
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
        waiting.remove(part)  # a buffer that does not fit now never will
        packed = _packed(sorted([*chosen, part], key=lambda p: p.limit))
        if packed is not None:
            offsets, chosen = packed, [*chosen, part]
            for call in range(part.first, part.last + 1):
                in_use[call] -= section.inner[part.name]


def _packed(parts: Sequence[_Part]) -> dict[str, int] | None:
    """The lowest free offset for each part in the given order; None: one of them exceeds its limit."""
    placed: list[tuple[int, _Part]] = []
    for part in parts:
        at = 0
        for low, other in placed:
            meets = other.first <= part.last and part.first <= other.last
            if meets and low < at + part.size and at < low + other.size:
                at = low + other.size
        if at + part.size > part.limit:
            return None
        insort(placed, (at, part), key=lambda each: each[0])
    return {part.name: at for at, part in placed}


def with_separate_rows(section: Section, graph: Graph, row_bytes: Mapping[str, int]) -> Section | None:
    """The rolled section with separate newest rows where that lowers its peak; None if it does not.

    The caller has to choose its kernels anew. A ring stays as it is if a kernel that reads it needs all rows in one
    place.
    """
    rolled = section.rolled
    if rolled is None or not (names := _separable(section, rolled, row_bytes)):
        return None
    unable = set[str]()
    for op, form in zip(section.ops, section.forms, strict=True):
        roots = {root for root, _ in rolled.rolling.operands[op.outputs[0]]}
        kernel = kernel_of(op, graph, form) if not roots.isdisjoint(names) else None
        if kernel is not None and not all(k.reads_separate_rows for k in (kernel, *kernel.alternatives)):
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
    """The rings, except `unable` ones, whose separate newest row lowers the peak; none if all together save nothing."""
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
    for name, change in list(changes.items()):  # undo changes that do not lower the peak
        if (separate - change).max() <= least:
            separate = separate - changes.pop(name)
    return tuple(changes)


def least_rings(rolled: Rolled, row_bytes: Mapping[str, int]) -> int:
    """Lower bound on the peak of ring bytes: all newest rows that may be separate are left out. None may be yet."""
    changes = [0] * (max((last for _, last in rolled.spans.values()), default=0) + 2)
    for name, rows in rolled.rings.items():
        size = aligned((rows - (name in rolled.newest)) * row_bytes[name])
        first, last = rolled.spans[name]
        changes[first] += size
        changes[last + 1] -= size
    return max(accumulate(changes))


# Time of a step, for `NAME_step()`: no call of it takes longer than the application may wait (modelled).


def call_us(graph: Graph, section: Section, target: Target) -> list[float]:
    """Modelled microseconds of one call of each op; one instruction per cycle where the core has no figures."""
    cycles = (cycles_of(target, kernel.cost) or kernel.cost for kernel in section.kernels(graph))
    return [1e6 * n / (target.clock_hz or 1e6) for n in cycles]


def calls_in_slice(graph: Graph, section: Section, target: Target, limit: float | None) -> int:
    """How many calls of a rolled section one slice of at most `limit` microseconds makes; 0: all."""
    if limit is None or section.rolled is None:
        return 0
    each = call_us(graph, section, target)
    total = sum(n * us for n, us in zip(section.calls_of, each, strict=True))
    return max(1, int(limit / max(each))) if total > limit else 0


def slice_us(graph: Graph, section: Section, target: Target, limit: float | None) -> float:
    """Modelled microseconds of the longest slice of a section that is sliced for `limit`."""
    each = call_us(graph, section, target)
    total = sum(n * us for n, us in zip(section.calls_of, each, strict=True))
    count = calls_in_slice(graph, section, target, limit)
    return min(total, count * max(each)) if count else total
