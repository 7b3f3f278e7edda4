"""Cut an order of ops into sections: ops that run whole, and runs that are rolled.

Sections are intervals of the order, so the best cut is a path: the least of the largest memory that
any section takes, and among all cuts within that (or within a given limit) the one with the fewest
calls. Both are found exactly, by dynamic programming over all intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType

from . import ops
from .axes import elementwise
from .errors import fail
from .ir import ITEM_BYTES, Graph, Op
from .ops.base import Form, Kernel
from .rolling import Rolled, RollingGraph, roll, row_bytes, rows_of

Decoupled = Mapping[str, tuple[int, bool]]  # by result: how many channels or columns, and whether at the low clock
COUPLED: Decoupled = MappingProxyType({})

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
    inner: Mapping[str, int]  # bytes of rings and scratch, which live in this step alone
    overlaps: tuple[Overlap, ...]

    @property
    def name(self) -> str:
        return self.ops[-1].name

    @property
    def calls(self) -> int:
        return len(self.rolled.events) if self.rolled else 1


def aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def scratch_name(output: str) -> str:
    return f"{output} (scratch)"


def shared_scratch(run: Sequence[Op]) -> str:
    """The scratch that the calls of a rolled run use one after the other."""
    return f"{run[0].outputs[0]} (scratch of rows)"


def kernel_of(op: Op, graph: Graph, form: Form) -> Kernel:
    make = ops.SPECS[op.kind].kernel
    assert make is not None, f"{op.kind} has no kernel"
    kernel = make(op, graph, form)
    if not kernel.others or form.rolled or form.granularity:
        return kernel
    wanted = layer_name(kernel, op, graph)
    return next((k for k in kernel.others if f"{wanted}={k.variant}" in form.features), kernel)



def whole_form(
    op: Op, features: frozenset[str], scratch_limit: int | None = None, decoupled: Decoupled = COUPLED
) -> Form:
    """The form of the kernel of an op that runs whole."""
    granularity, lfo = decoupled.get(op.outputs[0], (0, False))
    return Form(features, scratch_limit=scratch_limit, granularity=granularity, lfo=lfo)


def row_form(
    rolling: RollingGraph, rolled: Rolled, op: Op, features: frozenset[str], scratch_limit: int | None = None
) -> Form:
    """The form of the kernel that an op of a rolled run needs."""
    roots = [root for _, root, _ in rolling.needs[op.outputs[0]]]
    rings = [rolled.rings.get(rolled.inside.get(root, root), 0) for root in roots]
    kept = tuple(0 if n >= rows_of(rolling.graph, root) else n for n, root in zip(rings, roots, strict=True))
    return Form(features, kept, rows_of(rolling.graph, roots[0]), scratch_limit)


def narrows(graph: Graph, x: str, y: str) -> bool:
    """Elements do not grow, so writing result i never reaches operand i + 1."""
    return ITEM_BYTES[graph.tensors[y].dtype] <= ITEM_BYTES[graph.tensors[x].dtype]


@dataclass(frozen=True)
class Cutter:
    """All sections of an order of ops, and what they cost."""

    rolling: RollingGraph
    order: tuple[Op, ...]  # without views
    features: frozenset[str]
    scratch_limit: int | None = None  # of each kernel, bytes
    decoupled: Decoupled = field(default_factory=dict)

def layer_name(kernel: Kernel, op: Op, graph: Graph) -> str:
    """What layers of equal shape have in common, for choices of variants."""
    return f"{kernel.stem}@{'x'.join(map(str, graph.operands(op)[0].shape))}"
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
        """The op at this position as it is."""
        op = self.order[at]
        relation, y, storage = ops.nest(op, self.graph), op.outputs[0], self.rolling.storage
        reads = tuple(dict.fromkeys(storage[n] for n in op.inputs if n in storage))
        scratch = self.scratch(op, whole_form(op, self.features, self.scratch_limit, self.decoupled))
        overlaps = tuple(
            Overlap(storage[n], y, 0)
            for position, n in enumerate(op.inputs)
            if n in storage
            and self.life.get(storage[n], (0, -1))[1] == at
            and elementwise(relation, position)
            and narrows(self.graph, n, y)
        )
        inner = {scratch_name(y): aligned(scratch)} if scratch else {}
        return Section((op,), None, reads, (y,), inner, overlaps)

    def rolled(self, start: int, stop: int) -> Section | None:
        """The ops of an interval run row by row."""
        found = roll(self.rolling, self.order[start:stop])
        if found is None:
            return None
        inner = {name: aligned(n * row_bytes(self.graph, name)) for name, n in found.rings.items()}
        shared = 0  # sums of a reduction stay from call to call, all other scratch is free after each
        for op in found.ops:
            scratch = self.scratch(op, row_form(self.rolling, found, op, self.features, self.scratch_limit))
            if self.rolling.modes[op.outputs[0]] == "reduce":
                inner[scratch_name(op.outputs[0])] = aligned(scratch)
            else:
                shared = max(shared, aligned(scratch))
        if shared:
            inner[shared_scratch(found.ops)] = shared
        return Section(found.ops, found, found.operands, found.results, inner, self._overlaps(found, stop))

    def _overlaps(self, found: Rolled, stop: int) -> tuple[Overlap, ...]:
        """The overlap of a dying operand and a result that saves most; those that could save more were looked at."""
        dying = [n for n in found.operands if self.life[n][1] < stop]
        pairs = [(min(self.sizes[x], self.sizes[y]), x, y) for x in dying for y in found.results]
        best: Overlap | None = None
        for most, operand, result in sorted(pairs, key=lambda pair: -pair[0]):
            if best is not None and most <= self.saving(best):
                break
            overlap = Overlap(operand, result, aligned(found.shift(self.graph, operand, result)))
            best = overlap if best is None or self.saving(overlap) > self.saving(best) else best
        return () if best is None else (best,)

    def scratch(self, op: Op, form: Form) -> int:
        """Bytes of working memory that the op's kernel asks for in this form."""
        key = (op.outputs[0], form)
        if key not in self.known_scratch:
            self.known_scratch[key] = kernel_of(op, self.graph, form).scratch
        return self.known_scratch[key]

    @cached_property
    def known_scratch(self) -> dict[tuple[str, Form], int]:
        return {}

    def least(self, start: int, stop: int) -> int:
        """A bound of what any section of this interval takes: what is there before and after, best overlap and all."""
        inside = {op.outputs[0] for op in self.order[start:stop]}
        results = [self.sizes[n] for n in inside if self.life[n][1] >= stop]
        before = {n: last for n, (first, last) in self.life.items() if first < start <= last}
        dying = [self.sizes[n] for n, last in before.items() if last < stop]
        return sum(self.sizes[n] for n in before) + sum(results) - min(max(results, default=0), max(dying, default=0))

    def live(self, section: Section, start: int) -> int:
        """Bytes live while a section that starts at this position runs, with its best overlap."""
        resident = sum(self.sizes[n] for n, (first, last) in self.life.items() if first < start <= last)
        total = resident + sum(self.sizes[n] for n in section.results) + sum(section.inner.values())
        best = self.best_overlap(section)
        return total - (self.saving(best) if best is not None else 0)

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
    def intervals(self) -> dict[tuple[int, int], tuple[int, Section]]:
        """For every interval the section of least memory, and that memory."""
        found = {}
        wholes = untiled(self)
        # No cut is of use that takes more than all ops whole; a streamed input has no such cut.
        enough = max(self.profile(wholes)) if self.rolling.streamed is None else sum(self.sizes.values())
        for start, whole in enumerate(wholes):
            if self.rolling.streamed not in whole.reads:
                found[start, start + 1] = (self.live(whole, start), whole)
            for stop in range(start + 1, len(self.order) + 1):
                if self.least(start, stop) > enough:
                    continue
                section = self.rolled(start, stop)
                if section is None or self.rolling.streamed in section.reads:
                    continue
                cost = self.live(section, start)
                if (start, stop) not in found or cost < found[start, stop][0]:
                    found[start, stop] = (cost, section)
        return found

    def cut(self, limit: int | None = None) -> tuple[Section, ...]:
        """Sections of least peak, or with the fewest calls whose peak is at most `limit` if there are such."""
        least = self._best(lambda cost, section, before: max(before, cost), 0)[0]
        bound = max(limit or 0, least)
        return self._best(lambda cost, section, before: before + section.calls if cost <= bound else None, 0)[1]

    def _best(self, join: Callable[[int, Section, int], int | None], zero: int) -> tuple[int, tuple[Section, ...]]:
        """The path over the intervals with the least value of `join`; later ties keep the first found."""
        best: list[tuple[int, tuple[Section, ...]] | None] = [(zero, ())] + [None] * len(self.order)
        for (start, stop), (cost, section) in sorted(self.intervals.items(), key=lambda item: item[0]):
            before = best[start]
            value = join(cost, section, before[0]) if before is not None else None
            if before is not None and value is not None and (best[stop] is None or value < best[stop][0]):  # type: ignore[index]
                best[stop] = (value, (*before[1], section))
        found = best[-1]
        if found is None:
            raise fail(
                f"input '{self.rolling.streamed}' cannot be streamed: an op needs it whole",
                file=self.graph.file,
                hints=["leave --stream-input out"],
            )
        return found


def untiled(cutter: Cutter) -> tuple[Section, ...]:
    """Every op whole."""
    return tuple(cutter.whole(at) for at in range(len(cutter.order)))
