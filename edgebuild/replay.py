"""The check of a plan: run it on bytes that know whose they are.

Short and naive on purpose, and always run. It shares nothing with the planner but the order of
calls: every call must find in memory exactly the rows that it reads, and may not write over a row
that it is reading, unless the op goes element by element. A kernel's scratch spoils what lies there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from . import ops
from .axes import elementwise
from .ir import Op
from .memory.problem import Place
from .rolling import RollingGraph, row_bytes, rows_of
from .sections import Section, scratch_name

Slice = tuple[str, slice]  # memory, bytes


class BrokenPlan(Exception):
    """A plan that would compute something else than its graph. Always a bug of the planner."""


class _Memory:
    """Who owns each byte of the memories: (storage, row) as a number."""

    def __init__(self, rolling: RollingGraph, steps: Sequence[Section], places: Mapping[str, Place]) -> None:
        self.rolling, self.places = rolling, places
        self.rings = {n: rows for s in steps if s.rolled for n, rows in s.rolled.rings.items()}
        self.inside = {n: home for s in steps if s.rolled for n, home in s.rolled.inside.items()}
        self.numbers = {name: index for index, name in enumerate(rolling.storage)}
        size = max((p.offset for p in places.values()), default=0)
        size += max((t.bytes for t in rolling.graph.tensors.values()), default=0)
        self.bytes = {p.memory: np.full(size, -1, np.int64) for p in places.values()}

    def where(self, storage: str, row: int) -> Slice:
        home = self.inside.get(storage, storage)
        count, size = self.rings.get(home, 0), row_bytes(self.rolling.graph, home)
        place = self.places[home]
        start = place.offset + (row % count if count else row) * size
        return place.memory, slice(start, start + row_bytes(self.rolling.graph, storage))

    def owner(self, storage: str, row: int) -> int:
        return self.numbers[storage] << 32 | row

    def write(self, storage: str, row: int) -> None:
        memory, at = self.where(storage, row)
        self.bytes[memory][at] = self.owner(storage, row)

    def scratch_owner(self, op: Op) -> int:
        return -2 - self.numbers[op.outputs[0]]

    def scratch(self, section: Section, op: Op) -> Slice | None:
        """Where an op's kernel keeps what it works on."""
        name = scratch_name(op.outputs[0])
        if name not in section.inner:
            return None
        place = self.places[name]
        return place.memory, slice(place.offset, place.offset + section.inner[name])

    def holds_scratch(self, section: Section, op: Op) -> bool:
        found = self.scratch(section, op)
        return found is None or bool(np.all(self.bytes[found[0]][found[1]] == self.scratch_owner(op)))

    def holds(self, storage: str, row: int) -> bool:
        memory, at = self.where(storage, row)
        return bool(np.all(self.bytes[memory][at] == self.owner(storage, row)))


def replay(rolling: RollingGraph, steps: Sequence[Section], places: Mapping[str, Place]) -> None:
    """Raise BrokenPlan unless every read of every call finds its rows."""
    memory = _Memory(rolling, steps, places)
    for name in dict.fromkeys(rolling.storage[n] for n in rolling.graph.inputs):
        if name != rolling.streamed:
            _write_whole(memory, name)
    for section in steps:
        if section.rolled is None:
            (op,) = section.ops
            reads = [(root, row) for root in section.reads for row in range(rows_of(rolling.graph, root))]
            writes = [(op.outputs[0], row) for row in range(rows_of(rolling.graph, op.outputs[0]))]
            _call(memory, op, reads, writes, memory.scratch(section, op), whole=True)
            continue
        for event in section.rolled.events:
            reads = [(root, row) for root, first, past in event.reads for row in range(first, past)]
            name, first, past = event.writes or ("", 0, 0)
            if event.op == len(section.ops):
                memory.write(name, first)
                continue
            op, writes = section.ops[event.op], [(name, row) for row in range(first, past)]
            if rolling.modes[op.outputs[0]] == "reduce" and event.row and not memory.holds_scratch(section, op):
                raise BrokenPlan(f"{op.name} finds its sums of row {event.row} spoilt")
            _call(memory, op, reads, writes, memory.scratch(section, op), whole=False)
    for name in rolling.graph.outputs:
        root = rolling.storage[name]
        if not all(memory.holds(root, row) for row in range(rows_of(rolling.graph, root))):
            raise BrokenPlan(f"output {name} does not stand at the end")


def _write_whole(memory: _Memory, name: str) -> None:
    for row in range(rows_of(memory.rolling.graph, name)):
        memory.write(name, row)


def _call(
    memory: _Memory,
    op: Op,
    reads: Sequence[tuple[str, int]],
    writes: Sequence[tuple[str, int]],
    scratch: Slice | None,
    whole: bool,
) -> None:
    for name, row in reads:
        if not memory.holds(name, row):
            raise BrokenPlan(f"{op.name} reads row {row} of {name}, which is not there any more")
    in_place = _in_place(memory.rolling, op)
    sources = [(other, other_row, *memory.where(other, other_row)) for other, other_row in reads]
    for name, row in writes:
        target, at = memory.where(name, row)
        for other, other_row, source, there in sources:
            clash = _meet((target, at), (source, there))
            if clash and not (other in in_place and (whole or at.start <= there.start)):
                raise BrokenPlan(f"{op.name} writes row {row} of {name} over row {other_row} of {other} that it reads")
    for name, row in (*reads, *writes) if scratch is not None else ():
        if _meet(memory.where(name, row), scratch):
            raise BrokenPlan(f"the scratch of {op.name} lies over row {row} of {name} that it reads or writes")
    if scratch is not None:
        memory.bytes[scratch[0]][scratch[1]] = memory.scratch_owner(op)
    for name, row in writes:
        memory.write(name, row)


def _meet(one: Slice, other: Slice | None) -> bool:
    return other is not None and one[0] == other[0] and one[1].start < other[1].stop and other[1].start < one[1].stop


def _in_place(rolling: RollingGraph, op: Op) -> set[str]:
    """Operands that the op reads element by element."""
    relation = ops.nest(op, rolling.graph)
    return {rolling.storage[n] for i, n in enumerate(op.inputs) if n in rolling.storage and elementwise(relation, i)}
