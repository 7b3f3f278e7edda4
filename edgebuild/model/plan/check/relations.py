"""Bytes that calls read and write, by the index relations alone: the side of `replay` that no planner touches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod

import numpy as np

from ....base.dataclass import dataclass
from ... import ops
from ...ir import ITEM_BYTES, Array, Graph, Op
from ...ir.axes import Nest, Same, Spread, Window, elementwise, input_range
from ...kernels import kernel_of
from ...ops.base import PIXELS, SAME, Form
from ..memory.problem import Place
from ..printed import RolledCalls, Step, newest_name
from .machine import BrokenPlan


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
    def numbers(self) -> dict[str, int]:
        """By tensor the number that tags its bytes."""
        return {name: number for number, name in enumerate(self.graph.tensors)}

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

    def check_count(self, callee: Callee, count: int) -> None:
        """Raise BrokenPlan for rows that the op does not have, or sums without some."""
        wanted = self.calls(callee)
        if count > wanted or (callee.reduces and count < wanted):
            raise BrokenPlan(f"{callee.op.name} is called {count} times, not {wanted}")

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

    def row_bytes(self, tensor: str) -> int:
        return self.graph.tensors[tensor].bytes // self.rows(tensor)

    def finds_rings(self, callee: Callee, rolled: RolledCalls) -> bool:
        """Whether a kernel looks for rows of its operands in rings of as many rows as they have in the run."""
        storages = [self.views[callee.op.inputs[position]].storage for position in callee.operands]
        rows = [rolled.rings.get(rolled.inside.get(name, name), 0) for name in storages]
        wanted = tuple(n if n < self.rows(name) else 0 for n, name in zip(rows, storages, strict=True))
        apart = tuple(name in rolled.separate for name in storages)
        return callee.form.rings == wanted and callee.form.apart == (apart if any(apart) else ())


def follows(relation: Nest, position: int) -> bool:
    """Whether rows of the result need only some rows of this operand."""
    dims = relation.operands[position]
    along = dims[1] if len(dims) > 1 and len(relation.out) > 1 else None
    return isinstance(along, Same | Window | Spread) and along.axis == relation.out[1]


@dataclass(frozen=True)
class Addresses:
    """Where the bytes of all storages lie while a section runs, as printed: in rings, and inside of others.

    `kept`: of rings whose newest row is apart, how many rows were put among the others.
    """

    graph: Graph
    places: Mapping[str, Place]
    rings: Mapping[str, int]
    inside: Mapping[str, str]
    kept: dict[str, int]

    @staticmethod
    def of(graph: Graph, section: Step | None, places: Mapping[str, Place]) -> Addresses:
        if section is None or section.rolled is None:
            return Addresses(graph, places, {}, {}, {})
        rolled = section.rolled
        return Addresses(graph, places, rolled.rings, rolled.inside, dict.fromkeys(rolled.separate, 0))

    def row_bytes(self, storage: str) -> int:
        return Relations(self.graph).row_bytes(storage)

    def of_bytes(self, stored: Stored) -> tuple[str, Array]:
        """Memory, and the address of every byte, of what lies in one place."""
        ((memory, at, _),) = self.pieces(stored)
        return memory, at

    def pieces(self, stored: Stored) -> list[tuple[str, Array, Array]]:
        """For each place: its memory, the addresses, and which bytes of the storage stand there."""
        every, home = np.arange(stored.first, stored.past), self.inside.get(stored.storage, stored.storage)
        at, size = every, self.row_bytes(home)
        if home != stored.storage:
            row, rest = np.divmod(at, self.row_bytes(stored.storage))
            at = row * size + rest
        apart = at >= self.kept.get(home, 2**31) * size
        if home in self.rings:
            at = np.where(apart, at % size, at % (self.rings[home] * size))
        found = [(home, ~apart)] if not apart.any() else [(newest_name(home), apart), (home, ~apart)]
        places = [(self.places[name], here) for name, here in found if here.any() or len(found) == 1]
        return [(p.memory, at[here] + p.offset, every[here]) for p, here in places]

    def keep(self, name: str) -> tuple[Stored, tuple[str, Array], tuple[str, Array]]:
        """Put the newest row of a ring among the others: the row, where it stood, and where it stands now."""
        row, size = self.kept[name], self.row_bytes(name)
        stored = Stored(name, row * size, (row + 1) * size)
        before = self.of_bytes(stored)
        self.kept[name] += 1
        return stored, before, self.of_bytes(stored)


def kept_by(section: Step, number: int) -> str | None:
    """The ring whose newest row a call puts among the others, if the number is of such a call."""
    at = number - len(section.ops) - 1
    return section.rolled.separate[at] if section.rolled is not None and at >= 0 else None


def calls_of(relations: Relations, section: Step) -> list[tuple[int, int | None]]:
    """The calls of a section in order: number of the op, and row.

    One past the last op the application brings a row. Behind that are the numbers of `kept_by`.

    Of a rolled run only the order of the numbers counts, as in the table that is printed. Each op is called for one row
    after the other, as far as somebody reads them. The row of an op that runs whole is None.
    """
    if section.rolled is None:
        return [(0, None)]
    made, found = [0] * (len(section.ops) + 1 + len(section.rolled.separate)), list[tuple[int, int | None]]()
    for number in section.rolled.numbers:
        found.append((number, made[number]))
        made[number] += 1
    for op, form, count in zip(section.ops, section.forms, made, strict=False):
        relations.check_count(Callee.of(relations.graph, op, form), count)
    return found
