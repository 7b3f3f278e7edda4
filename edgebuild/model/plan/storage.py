"""Translate graphs and plans for `memory/`: tasks to schedule, buffers to place, and the place of every tensor.

`memory/` knows no networks and `ops/` knows no memory; this module translates between them. A *storage* is a
run of bytes that a tensor and its views share; it is named after the tensor.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate, pairwise

from .. import ops
from ..ir import ITEM_BYTES, Op
from .cuts import Cutter, Interval
from .memory.layout import layout
from .memory.problem import ALIGN, Buffer, BufferMemory, MemoryProblem, Phase, Place, Task, TaskGraph, aligned
from .printed import newest_name
from .rolling import RollingGraph
from .section import Overlap, Section, scratch_name

LIMITS = 4  # limits of live bytes within which `loosened` cuts chains of overlaps
TRIED = 32  # sets of steps to cut them at that are laid out, spread evenly over all sets
LAID_OUT = 24_000  # ops in all of these layouts together: some seconds
Span = tuple[int, int]  # of bytes, [start, end)


@dataclass(frozen=True)
class Placed:
    """A tensor, a ring, a newest row or scratch: its place, and its life from step `first` to `last`, inclusive."""

    tensor: str
    bytes: int
    place: Place
    first: int
    last: int
    view_of: str | None = None  # the tensor whose bytes these are
    overlaps: str | None = None  # the tensor whose bytes it grows into
    rows: int = 0  # of a ring; 0: the tensor is whole
    calls: tuple[int, int] | None = None  # in a rolled run: numbers of the first and last op that use it
    scratch: bool = False  # of the kernel that makes the tensor
    newest: bool = False  # the place of the newest row of a ring, if it is separate


def task_graph(rolling: RollingGraph, running: Sequence[Op]) -> TaskGraph:
    """The ops as tasks on storages. A result may overwrite an operand that it reads element by element."""
    graph, storage = rolling.graph, rolling.storage
    sizes = dict(rolling.sizes)
    tasks, linked = list[Task](), ""
    for op in running:
        y, reads = op.outputs[0], dict.fromkeys(storage[n] for n in op.inputs if n in storage)
        pairs = [(root, y) for root in rolling.overwritten(op)]
        after, mark = ([linked] if linked else [], [f"{y} (order)"]) if ops.SPECS[op.kind].link else ([], [])
        linked = mark[0] if mark else linked
        sizes |= dict.fromkeys(mark, 0)  # no bytes: a mark keeps sends and receives in the given order
        tasks.append(Task(op.name, (*reads, *after), (y, *mark), tuple(dict.fromkeys(pairs))))
    inputs = tuple(dict.fromkeys(storage[n] for n in graph.inputs if n in storage))
    outputs = tuple(dict.fromkeys(storage[n] for n in graph.outputs))
    return TaskGraph(tuple(tasks), sizes, inputs, outputs)


def layout_problem(
    cutter: Cutter, steps: Sequence[Section], memories: Sequence[BufferMemory]
) -> tuple[MemoryProblem, dict[str, tuple[str, int]]]:
    """Buffers with their lifetimes, and for every storage its buffer and the offset in it, in bytes.

    Time advances by one for each op, also inside a rolled run.
    Storages that overlap on purpose are one buffer whose extent changes over time: the operand,
    then both, then the result.
    """
    begins = list(accumulate((section.callers for section in steps), initial=0)) if steps else [0, 1]
    ends = begins[1:] or [1]  # a graph without ops still has its inputs
    life = {n: (begins[first], ends[last] - 1) for n, (first, last) in cutter.steps_of(steps).items()}
    sizes = {n: cutter.sizes[n] for n in life if n in cutter.sizes}
    for begin, section in zip(begins, steps, strict=False):
        sizes |= section.inner
        life |= {n: (begin + section.spans[n][0], begin + section.spans[n][1]) for n in section.inner}
    owned = {n: symbol for n, symbol in cutter.rolling.arrays.items() if n in sizes}
    sizes |= {n: aligned(cutter.graph.tensors[n].bytes) for n in owned}
    homes = {n: (array_memory(symbol),) for n, symbol in owned.items()}
    arrays = [BufferMemory(homes[n][0], sizes[n]) for n in owned]
    usual = tuple(m.name for m in memories) if owned else ()
    group, shift = {n: n for n in life}, dict.fromkeys(life, 0)
    line = max((m.line for m in memories), default=1)
    for section in steps:
        if (overlap := section.overlap) is not None:
            group[overlap.result] = group[overlap.operand]
            # a larger distance than needed is legal
            shift[overlap.result] = shift[overlap.operand] - aligned(overlap.distance, line)
        for name, (operand, at) in section.overlaid.items():
            group[name], shift[name] = group[operand], shift[operand] + at
    members: dict[str, list[str]] = {}
    for name, buffer in group.items():
        members.setdefault(buffer, []).append(name)
    buffers: list[Buffer] = []
    inside: dict[str, tuple[str, int]] = {}
    for buffer, names in members.items():
        low = min(shift[n] for n in names)
        inside |= {n: (buffer, shift[n] - low) for n in names}
        wide = any(ITEM_BYTES[cutter.graph.tensors[n].dtype] > ALIGN for n in names if n in cutter.graph.tensors)
        spans = {n: (shift[n] - low, aligned(shift[n] - low + sizes[n], line)) for n in names}  # to the end of a line
        parts = [(*life[n], start, end - start) for n, (start, end) in spans.items()]
        buffers.append(_buffer(buffer, parts, max(2 * ALIGN if wide else ALIGN, line), homes.get(buffer, usual)))
    return MemoryProblem(tuple(buffers), (*memories, *arrays)), inside


def array_memory(symbol: str) -> str:
    """The name of an array of the application among the memories of a layout: no memory of a target is called so."""
    return f"{symbol}[]"


def _buffer(name: str, parts: Sequence[tuple[int, int, int, int]], align: int, memories: tuple[str, ...]) -> Buffer:
    """One buffer from parts (first step, last step, offset, size): its extent at every step."""
    times = sorted({t for first, last, _, _ in parts for t in (first, last + 1)})
    number = {t: i for i, t in enumerate(times)}
    lives: list[list[tuple[int, int]]] = [[] for _ in times]
    for first, last, at, size in parts:
        for live in lives[number[first] : number[last + 1]]:
            live.append((at, at + size))
    phases = []
    for (lower, upper), live in zip(pairwise(times), lives, strict=False):
        if live:
            low = min(a for a, _ in live)
            phases.append(Phase(lower, upper, low, max(b for _, b in live) - low))
    extent = max(p.offset + p.size for p in phases)
    return Buffer(name, extent, times[0], times[-1], align, memories, tuple(phases) if len(phases) > 1 else ())


@dataclass(frozen=True)
class _Link:
    """A step whose result or inner buffers lie over an operand. Spans count from the chain's first tensor.

    `added`: bytes that the step adds to the chain; `result`: its first span, which the next link may lie over.
    """

    step: int
    added: Span
    result: Span


@dataclass(frozen=True)
class _Chain:
    """A tensor, and steps in sequence, each of whose results overlaps the tensor before it in the chain."""

    first: Span
    links: list[_Link]

    @property
    def bytes(self) -> int:
        return _length(reduce(_hull, (link.added for link in self.links), self.first))

    def cut(self, limit: int, freed: Mapping[int, Interval], beside: int | None = None) -> list[int] | None:
        """The fewest steps at which to cut the chain so that no part is longer than `limit`; None: impossible.

        `freed`: the steps without overlaps, which must fit the limit to be cut. `beside`: a step to cut in any case.
        """
        steps, part, after = list[int](), self.first, self.first  # `after`: bytes of the part from `last` on
        last: _Link | None = None  # the last step of the part that may be cut
        for link in self.links:
            longer, after = _hull(part, link.added), _hull(after, link.added)
            free = freed[link.step].live <= limit
            if _length(longer) > limit or link.step == beside:
                chosen = link if free else last
                if chosen is None:
                    return None
                steps.append(chosen.step)
                longer = after = link.result if free else after
                last, free = None, False
                if _length(longer) > limit:
                    return None
            part = longer
            if free:
                last, after = link, link.result
        return steps


def _chains(cutter: Cutter, steps: Sequence[Section]) -> list[_Chain]:
    chains, growing, at = list[_Chain](), dict[str, _Chain](), dict[str, int]()
    for step, section in enumerate(steps):
        overlap = section.overlap
        operand = overlap.operand if overlap is not None else next((n for n, _ in section.overlaid.values()), None)
        if operand is None:
            continue
        if (chain := growing.pop(operand, None)) is None:
            at[operand] = 0
            chains.append(chain := _Chain((0, cutter.sizes[operand]), []))
        spans = [(at[operand] + o, at[operand] + o + section.inner[n]) for n, (_, o) in section.overlaid.items()]
        if overlap is not None:
            at[overlap.result] = start = at[operand] - overlap.distance
            spans.insert(0, (start, start + cutter.sizes[overlap.result]))
            growing[overlap.result] = chain
        chain.links.append(_Link(step, reduce(_hull, spans), spans[0]))
    return chains


def _stretched(cutter: Cutter, steps: Sequence[Section], peak: int) -> tuple[list[_Chain], dict[int, Interval]]:
    """The chains that take more bytes than `peak`, and each of their steps without overlaps."""
    chains = [chain for chain in _chains(cutter, steps) if chain.bytes > peak]
    starts = list(accumulate((len(s.ops) for s in steps), initial=0)) if chains else []
    links = (link.step for chain in chains for link in chain.links)
    return chains, {at: cutter.without_overlap(steps[at], starts[at]) for at in links}


def least_bytes(cutter: Cutter, steps: Sequence[Section]) -> int:
    """Lower bound on the bytes of the arena, whichever results of these steps are taken off their operands.

    Each link of a chain fixes the place of the next tensor, so a chain may take more bytes than any step.
    """
    least = max(cutter.profile(steps), default=0)
    chains, freed = _stretched(cutter, steps, least)
    for chain in chains:
        fits = partial(_fits, chain, freed)
        least += bisect_left(range(least, max(least, chain.bytes)), True, key=fits)
    return least


def _fits(chain: _Chain, freed: Mapping[int, Interval], limit: int) -> bool:
    return chain.cut(limit, freed) is not None


def loosened(cutter: Cutter, steps: tuple[Section, ...]) -> tuple[Section, ...]:
    """The steps with the fewest overlaps undone where chains of overlaps would take more bytes than any step.

    Of the sets of such steps that are tried, it is the one whose greedy layout is lowest.
    """
    chains, freed = _stretched(cutter, steps, max(cutter.profile(steps), default=0))
    if not chains:
        return steps
    least = least_bytes(cutter, steps)
    options = dict[frozenset[int], int]()  # limit of live bytes, by the steps
    for limit in sorted({least, *(i.live for i in freed.values() if i.live > least)})[:LIMITS]:
        for beside in (None, *(at for at, i in freed.items() if i.live <= limit)):
            cuts = [chain.cut(limit, freed, beside) for chain in chains]
            if all(cut is not None for cut in cuts) and any(cuts):
                options.setdefault(frozenset(at for cut in cuts for at in cut or ()), limit)
    tried = list(options.items())
    tried = tried[:: -(-len(tried) // max(1, min(TRIED, LAID_OUT // len(cutter.order)))) or 1]
    loose = (tuple(freed[at].within(limit) if at in cut else s for at, s in enumerate(steps)) for cut, limit in tried)

    def greedy_height(steps: Sequence[Section]) -> int:
        return layout(layout_problem(cutter, steps, (BufferMemory("arena"),))[0], effort=0.0).height

    return min(loose, key=greedy_height, default=steps)


def _hull(a: Span, b: Span) -> Span:
    return min(a[0], b[0]), max(a[1], b[1])


def _length(span: Span) -> int:
    return span[1] - span[0]


def placed_buffers(cutter: Cutter, steps: Sequence[Section], places: Mapping[str, Place]) -> tuple[Placed, ...]:
    """Every activation and all scratch with its place and life, in the order of first use."""
    graph = cutter.graph
    life, placed = cutter.steps_of(steps), list[Placed]()
    operands = {s.overlap.result: s.overlap.operand for s in steps if s.overlap is not None}
    for step, section in enumerate(steps):
        inner = partial(_inner, section, step, places)
        if section.rolled is not None:
            placed += [inner(name, name, rows=rows) for name, rows in section.rolled.rings.items()]
            placed += [inner(name, newest_name(name), newest=True) for name in section.rolled.separate]
            for name, home in section.rolled.inside.items():
                size = graph.tensors[name].bytes // max(1, graph.tensors[name].shape[1])
                placed.append(Placed(name, size, places[home], step, step, overlaps=home, rows=1))
        outputs = (op.outputs[0] for op in section.ops)
        placed += [inner(y, scratch_name(y), scratch=True) for y in outputs if scratch_name(y) in section.inner]
    rolled = {b.tensor for b in placed if not b.scratch and not b.newest}
    for name, (root, start) in cutter.rolling.views.items():
        if root not in rolled and root in places:
            view, place = root if root != name else None, places[root]
            place = replace(place, offset=place.offset + start)
            size = graph.tensors[name].bytes
            placed.append(Placed(name, size, place, *life[root], view, operands.get(name)))
    return tuple(sorted(placed, key=lambda b: (b.first, b.last)))


def _inner(
    section: Section, step: int, places: Mapping[str, Place], tensor: str, name: str,
    rows: int = 0, scratch: bool = False, newest: bool = False,
) -> Placed:  # fmt: skip
    """The buffer `name` of `section.inner`, which holds rows of a tensor or serves the kernel that makes it."""
    calls = section.spans[name] if section.rolled is not None else None
    operand = section.overlaid[name][0] if name in section.overlaid else None
    return Placed(tensor, section.inner[name], places[name], step, step, None, operand, rows, calls, scratch, newest)


TENSOR, RING, NEWEST, SCRATCH = "tensor", "ring", "newest row", "scratch"


@dataclass(frozen=True)
class Live:
    """A live buffer. `tensor`: the one it holds, or that a kernel makes with this scratch; `rows`: of a ring."""

    kind: str
    tensor: str
    bytes: int
    rows: int = 0


@dataclass(frozen=True)
class LiveSet:
    """All live buffers at the peak of a step, the largest first. `overlap`: of the result and an operand."""

    parts: tuple[Live, ...]
    overlap: Overlap | None

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts) - (self.overlap.saved if self.overlap is not None else 0)


def live_set(cutter: Cutter, steps: Sequence[Section], step: int) -> LiveSet:
    """Live buffers at the peak of a step; those overlaid on an operand take no bytes of their own and are left out."""
    section = steps[step]
    start = sum(len(s.ops) for s in steps[:step])
    before = (n for n, (first, last) in cutter.life.items() if first < start <= last)
    parts = [Live(TENSOR, name, cutter.sizes[name]) for name in (*before, *section.results)]
    busiest = section.in_use.index(max(section.in_use))
    rings = section.rolled.rings if section.rolled is not None else {}
    kinds = {scratch_name(op.outputs[0]): (SCRATCH, op.outputs[0]) for op in section.ops}
    kinds |= {newest_name(n): (NEWEST, n) for n in (section.rolled.separate if section.rolled is not None else ())}
    for name, size in section.inner.items():
        first, last = section.spans[name]
        if first <= busiest <= last and name not in section.overlaid:
            kind, tensor = kinds.get(name, (RING, name))
            parts.append(Live(kind, tensor, size, rings.get(name, 0)))
    return LiveSet(tuple(sorted(parts, key=lambda part: -part.bytes)), section.overlap)
