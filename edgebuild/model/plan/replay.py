"""The check of a plan: run it on bytes that know whose they are.

Short and naive on purpose, and always run. Of the planner it takes the order of the calls, the places and the rings,
which are printed, and nothing else. Which bytes a call needs follows from the op's index relation (`axes`): each must
be in memory when it is read, and no call may write over what it is reading, unless the op goes element by element. A
kernel's scratch spoils what lies there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType

import numpy as np

from .. import ops
from ..axes import Nest, Same, Spread, Window, elementwise, input_range
from ..ir import ITEM_BYTES, Array, Graph, Op
from ..kernels import kernel_of
from ..ops.base import PIXELS, SAME, Form
from .memory.problem import Place
from .moves import MovedLayer
from .rolling import RollingGraph
from .section import Section, scratch_name
from .transfers import BrokenPlan as BrokenPlan
from .transfers import Transfers


@dataclass(frozen=True)
class Stored:
    """Bytes [first, past) of a storage."""

    storage: str
    first: int
    past: int


@dataclass(frozen=True)
class View:
    """Where a tensor begins in the storage that it is a part of."""

    storage: str
    start: int


@dataclass(frozen=True)
class Addresses:
    """Where the bytes of all storages lie while a section runs, as printed: in rings, and inside of others."""

    graph: Graph
    places: Mapping[str, Place]
    rings: Mapping[str, int]
    inside: Mapping[str, str]

    @staticmethod
    def of(graph: Graph, section: Section, places: Mapping[str, Place]) -> Addresses:
        rolled = section.rolled
        return Addresses(graph, places, rolled.rings if rolled else {}, rolled.inside if rolled else {})

    def row_bytes(self, storage: str) -> int:
        t = self.graph.tensors[storage]
        return t.bytes // (t.shape[1] if len(t.shape) > 1 else 1)

    def of_bytes(self, stored: Stored) -> tuple[str, Array]:
        """Memory, and the address of every byte."""
        at, home = np.arange(stored.first, stored.past), self.inside.get(stored.storage, stored.storage)
        size = self.row_bytes(home)
        if home != stored.storage:
            row, rest = np.divmod(at, self.row_bytes(stored.storage))
            at = row * size + rest
        if home in self.rings:
            at = at % (self.rings[home] * size)
        place = self.places[home]
        return place.memory, at + place.offset


@dataclass(frozen=True)
class Callee:
    """An op with its kernel's form, and what its index relation and its kernel say about every call.

    `operands`: positions of activations; `in_place`: of those that it reads element by element, and whose elements are
    not smaller than the result's. `over`: how the kernel works over its first operand, where its form asks for that.
    `reduces`: in a rolled run calls take up the operand, and the last makes the result.
    """

    op: Op
    form: Form
    relation: Nest
    operands: tuple[int, ...]
    in_place: frozenset[int]
    over: str
    reduces: bool
    scratch: int

    @staticmethod
    def of(graph: Graph, op: Op, form: Form) -> Callee:
        relation, spec = ops.nest(op, graph), ops.SPECS[op.kind]
        item = ITEM_BYTES[graph.result(op).dtype]
        operands = tuple(i for i, t in enumerate(graph.operands(op)) if not t.constant)
        wide = (i for i in operands if ITEM_BYTES[graph.operands(op)[i].dtype] >= item)
        in_place = frozenset(i for i in wide if elementwise(relation, i))
        reduces, kernel = spec.rows(op, graph) == "reduce", kernel_of(op, graph, form)
        over = kernel.in_place if form.over and not form.rolled else ""
        return Callee(op, form, relation, operands, in_place, over, reduces, kernel.scratch)

    def spares(self, graph: Graph, position: int, at: Array, there: Array) -> bool:
        """Whether a call that writes the addresses `at` finds all of the operand that lies at `there`."""
        if position in self.in_place and at.min() <= there.min(initial=2**62):
            return True
        if self.over == SAME and position == 0:
            return np.array_equal(at, there)
        if self.over == PIXELS and position == 0:
            pixels = prod(graph.result(self.op).shape[:-1])
            ends = [np.reshape(one, (pixels, -1))[:, -1] for one in (at, there) if one.size % pixels == 0]
            return len(ends) == 2 and bool(np.all(ends[0] <= ends[1]))
        return False


@dataclass(frozen=True)
class Relations:
    """Rows that calls need and make, by the ops' index relations alone."""

    graph: Graph

    @cached_property
    def views(self) -> dict[str, View]:
        """The storage of every activation."""
        found = {t.name: View(t.name, 0) for t in self.graph.tensors.values() if not t.constant}
        for op in self.graph.ops:
            spec = ops.SPECS[op.kind]
            if spec.view:
                of = found[op.inputs[0]]
                found[op.outputs[0]] = View(of.storage, of.start + spec.start(op, self.graph))
        return found

    def rows(self, tensor: str) -> int:
        shape = self.graph.tensors[tensor].shape
        return shape[1] if len(shape) > 1 else 1

    def calls(self, callee: Callee) -> int:
        """How often a rolled op is called."""
        return callee.form.rows if callee.reduces else self.rows(callee.op.outputs[0])

    def needed(self, callee: Callee, position: int, row: int | None) -> Stored:
        """The bytes of an operand that the result needs, or one row of it; a reduction takes it up in pieces."""
        tensor, relation = callee.op.inputs[position], callee.relation
        if row is not None and callee.reduces:
            return self.part(tensor, row, row + 1, callee.form.rows)
        if row is None or not follows(relation, position):
            return self.part(tensor, 0, self.rows(tensor))
        return self.part(tensor, *input_range(relation, position, 1, row, row + 1))

    def made(self, callee: Callee, row: int | None) -> Stored:
        """The bytes of the result, or of a row of it, which a reduction has none of."""
        y = callee.op.outputs[0]
        return self.part(y, 0, self.rows(y)) if row is None or callee.reduces else self.part(y, row, row + 1)

    def part(self, tensor: str, first: int, past: int, count: int | None = None) -> Stored:
        """The bytes of the rows [first, past) of a tensor, or of others than its own of which it has so many."""
        size, view = self.graph.tensors[tensor].bytes // (count or self.rows(tensor)), self.views[tensor]
        return Stored(view.storage, view.start + first * size, view.start + past * size)


def follows(relation: Nest, position: int) -> bool:
    """Whether rows of the result need only some rows of this operand."""
    dims = relation.operands[position]
    along = dims[1] if len(dims) > 1 and len(relation.out) > 1 else None
    return isinstance(along, Same | Window | Spread) and along.axis == relation.out[1]


class _Memory:
    """Whose each byte of the memories is: storage and number of the byte as one number, or a kernel's scratch."""

    def __init__(self, graph: Graph, places: Mapping[str, Place]) -> None:
        self.numbers = {name: index for index, name in enumerate(graph.tensors)}
        size = max((p.offset for p in places.values()), default=0)
        size += 4 * max((t.bytes for t in graph.tensors.values()), default=0)
        self.bytes = {p.memory: np.full(size, -1, np.int64) for p in places.values()}

    def owner(self, storage: str, byte: int) -> int:
        return self.numbers[storage] << 32 | byte

    def owners(self, stored: Stored) -> Array:
        return self.owner(stored.storage, 0) + np.arange(stored.first, stored.past)

    def write(self, stored: Stored, addresses: Addresses) -> None:
        memory, at = addresses.of_bytes(stored)
        self.bytes[memory][at] = self.owners(stored)

    def holds(self, stored: Stored, addresses: Addresses) -> bool:
        memory, at = addresses.of_bytes(stored)
        return bool(np.all(self.bytes[memory][at] == self.owners(stored)))


def replay(
    rolling: RollingGraph,
    steps: Sequence[Section],
    places: Mapping[str, Place],
    moved: Mapping[str, MovedLayer] = MappingProxyType({}),
) -> None:
    """Raise BrokenPlan unless every read of every call finds its bytes, and all outputs stand at the end."""
    _Replay(rolling, places, moved).run(steps)


class _Replay:
    def __init__(self, rolling: RollingGraph, places: Mapping[str, Place], moved: Mapping[str, MovedLayer]) -> None:
        self.rolling, self.graph, self.streamed = rolling, rolling.graph, rolling.streamed
        self.places, self.moved = places, moved
        self.relations, self.memory = Relations(self.graph), _Memory(self.graph, places)
        self.everywhere = Addresses(self.graph, places, {}, {})

    def run(self, steps: Sequence[Section]) -> None:
        views = self.relations.views
        for name in dict.fromkeys(views[n].storage for n in self.graph.inputs):
            if name != self.streamed:
                self.memory.write(Stored(name, 0, self.graph.tensors[name].bytes), self.everywhere)
        for section in steps:
            if (tiles := self.moved.get(section.ops[0].outputs[0])) is not None:
                Transfers(self.memory.bytes, self.memory.owner, self.rolling, self.places).run(tiles)
                self.memory.write(Stored(tiles.op.outputs[0], 0, self.graph.result(tiles.op).bytes), self.everywhere)
                continue
            addresses = Addresses.of(self.graph, section, self.places)
            callees = [Callee.of(self.graph, op, form) for op, form in zip(section.ops, section.forms, strict=True)]
            for number, row in calls_of(self.relations, section):
                if number < len(section.ops):
                    self.call(callees[number], section, addresses, row)
                elif self.streamed is not None and row is not None:
                    self.memory.write(self.relations.part(self.streamed, row, row + 1), addresses)
        for name in self.graph.outputs:
            if not self.memory.holds(self.relations.part(name, 0, self.relations.rows(name)), self.everywhere):
                raise BrokenPlan(f"output {name} does not stand at the end")

    def call(self, callee: Callee, section: Section, addresses: Addresses, row: int | None) -> None:
        """One call of a kernel; `row` None: of an op that runs whole."""
        op, y = callee.op, callee.op.outputs[0]
        reads = [self.relations.needed(callee, position, row) for position in callee.operands]
        for read in reads:
            if not self.memory.holds(read, addresses):
                what = f"bytes {read.first} to {read.past} of {read.storage}"
                raise BrokenPlan(f"{op.name} reads {what}, which are not there")
        reduces, writes = row is not None and callee.reduces, self.relations.made(callee, row)
        if callee.scratch:
            self.scratch(callee, section, addresses, row if reduces else None, (*reads, writes))
        if reduces and row != self.relations.calls(callee) - 1:
            return
        target, at = addresses.of_bytes(writes)
        for read, position in zip(reads, callee.operands, strict=True):
            memory, there = addresses.of_bytes(read)
            if memory == target and _meet(at, there) and not callee.spares(self.graph, position, at, there):
                raise BrokenPlan(f"{op.name} writes {y} over {read.storage} that it reads")
        self.memory.write(writes, addresses)

    def scratch(
        self, callee: Callee, section: Section, addresses: Addresses, row: int | None, others: Sequence[Stored]
    ) -> None:
        """Spoil what lies where a kernel works; sums of a reduction must still stand there in its later calls."""
        op, size, name = callee.op, callee.scratch, scratch_name(callee.op.outputs[0])
        if size > section.inner.get(name, 0):
            raise BrokenPlan(f"{op.name} works on {size} B, of which it has {section.inner.get(name, 0)}")
        place, owner = self.places[name], -2 - self.memory.numbers[op.outputs[0]]
        mine = self.memory.bytes[place.memory][place.offset : place.offset + size]
        if row and not np.all(mine == owner):
            raise BrokenPlan(f"{op.name} finds its sums of row {row} spoilt")
        for other in others:
            memory, at = addresses.of_bytes(other)
            if memory == place.memory and np.any((at >= place.offset) & (at < place.offset + size)):
                raise BrokenPlan(f"the scratch of {op.name} lies over {other.storage} that it reads or writes")
        mine[:] = owner


def _meet(one: Array, other: Array) -> bool:
    near = one.size and other.size and one.min() <= other.max() and other.min() <= one.max()
    return bool(near and np.isin(one, other).any())


def calls_of(relations: Relations, section: Section) -> list[tuple[int, int | None]]:
    """The calls of a section in order: number of the op (one past the last: the application brings a row), and row.

    Of a rolled run only the order of the numbers counts, as in the table that is printed. Each op is called for one row
    after the other, as far as somebody reads them. The row of an op that runs whole is None.
    """
    if section.rolled is None:
        return [(0, None)]
    made, found = [0] * (len(section.ops) + 1), list[tuple[int, int | None]]()
    for event in section.rolled.events:
        found.append((event.op, made[event.op]))
        made[event.op] += 1
    for op, form, count in zip(section.ops, section.forms, made, strict=False):
        callee = Callee.of(relations.graph, op, form)
        if count > relations.calls(callee) or (callee.reduces and count < relations.calls(callee)):
            raise BrokenPlan(f"{op.name} is called {count} times, not {relations.calls(callee)}")
    return found
