"""Memories whose every byte is tagged with its owner: copies, waits, caches and calls, as hardware would do them.

From the start of a copy to the wait for it, its destination holds nothing and may not be touched. Its source may
not be written. The cache behaves at its worst. It holds all lines, so the core never sees bytes that a DMA unit wrote
until the lines are invalidated. It writes nothing back until lines are cleaned, but might do so at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from ....base.levels import CACHE_LINE
from ....base.target import Target
from ... import ops
from ...ir import ITEM_BYTES, Array, Graph, Nest, Op, Same, Spread, Window, elementwise, input_range
from ...kernels import kernel_of
from ...ops.base import PIXELS, SAME, Form
from ..memory.problem import Place
from ..printed import CLEAN, CacheOp, RolledCalls, Wait, newest_name

NOTHING = -1
STALE = -(1 << 40)  # tag of cached bytes that a DMA unit has overwritten: neither an owner nor NOTHING
CONSTANT = 1 << 61  # marks bytes of constants, which have values as well
STORE = ""  # the memory of constants, which is read-only


class BrokenPlan(Exception):
    """A plan that would compute something else than its graph. Always a bug of the planner."""


@dataclass(frozen=True, eq=False)
class Bytes:
    """Addresses in a memory (`at`), and the owner that each byte there must have; for constants, its value.

    `operand`: the position of the operand that they belong to; -1: none.
    """

    memory: str
    at: Array
    owners: Array
    what: str = ""
    values: Array | None = None
    operand: int = -1

    @cached_property
    def ends(self) -> tuple[int, int]:
        return (int(self.at.min()), int(self.at.max())) if self.at.size else (1, 0)

    def meets(self, other: Bytes) -> bool:
        """Whether both have an address in common."""
        if self.memory != other.memory or self.memory == STORE or not (self.at.size and other.at.size):
            return False
        near = self.ends[0] <= other.ends[1] and other.ends[0] <= self.ends[1]
        return near and bool(np.isin(self.at, other.at).any())


def never(operand: int, at: Array, there: Array) -> bool:
    return False


@dataclass(frozen=True, eq=False)
class Call:
    """A call: bytes that it reads, writes, and uses as scratch. `sums`: the scratch holds sums of earlier calls.

    `spares`: whether it may write at addresses (second argument) over an operand at others (third argument).
    """

    name: str
    reads: Sequence[Bytes]
    writes: Sequence[Bytes]
    scratch: Bytes | None = None
    sums: bool = False
    spares: Callable[[int, Array, Array], bool] = never


@dataclass(frozen=True, eq=False)
class Move:
    """Begin a copy by a channel, in pieces of `piece` bytes. `name`: of the step."""

    name: str
    channel: int
    source: Bytes
    target: Bytes
    piece: int


@dataclass(frozen=True, eq=False)
class Complete:
    """A step is done: none of its copies is under way, and its results are where later steps read them."""

    name: str
    channels: frozenset[int]
    results: Sequence[Bytes]


Operation = Move | Wait | CacheOp | Complete | Sequence[Call]  # calls of all cores at once


@dataclass
class Machine:
    """Memories of tagged bytes. `sizes`: bytes of each. The core sees those of `cached` through a cache."""

    sizes: Mapping[str, int]
    target: Target | None = None
    cached: frozenset[str] = frozenset()
    pending: list[tuple[Move, Array, Array | None]] = field(default_factory=list)  # with owners and values on their way

    def __post_init__(self) -> None:
        self.seen = {name: np.full(size, NOTHING, np.int64) for name, size in self.sizes.items()}  # by the core
        self.there = {n: bytes_.copy() if n in self.cached else bytes_ for n, bytes_ in self.seen.items()}
        self.dirty = {name: np.zeros(self.sizes[name], bool) for name in self.cached}
        self.values = {name: np.zeros(size, np.uint8) for name, size in self.sizes.items()}  # of constants

    def do(self, operation: Operation) -> None:
        """Do an operation. Raises BrokenPlan if it reads wrong bytes, or writes where it must not."""
        if isinstance(operation, Move):
            self.start(operation)
        elif isinstance(operation, Wait):
            self.wait(operation.channel)
        elif isinstance(operation, CacheOp):
            self.cache(operation)
        elif isinstance(operation, Complete):
            self.complete(operation)
        else:
            self.calls(operation)

    def holds(self, part: Bytes, memories: Mapping[str, Array]) -> bool:
        """Whether bytes are where they belong."""
        held = memories[part.memory]
        if part.at.size and not 0 <= part.ends[0] <= part.ends[1] < len(held):
            return False
        if part.values is None:
            return np.array_equal(held[part.at], part.owners)
        values = self.values[part.memory][part.at]
        return bool(np.all(held[part.at] >= CONSTANT)) and np.array_equal(values, part.values)

    def write(self, part: Bytes) -> None:
        """Let the core write."""
        self.seen[part.memory][part.at] = part.owners
        if part.memory in self.cached:
            self.dirty[part.memory][part.at] = True

    def calls(self, calls: Sequence[Call]) -> None:
        """Calls of all cores at once: none may write bytes that another one reads or writes."""
        for call in calls:
            for part in call.reads:
                if not self.holds(part, self.seen):
                    raise BrokenPlan(f"{call.name} does not find {part.what} in {part.memory}")
            if call.sums and call.scratch is not None and not self.holds(call.scratch, self.seen):
                raise BrokenPlan(f"{call.name} finds its sums spoilt")
        touched = [(call, part) for call in calls for part in call.reads]
        for call in calls:
            for part in (*([call.scratch] if call.scratch is not None else ()), *call.writes):
                self.check_write(call, part, touched)
                touched.append((call, part))
        for call in calls:
            for part in (*([call.scratch] if call.scratch is not None else ()), *call.writes):
                self.write(part)

    def check_write(self, call: Call, part: Bytes, touched: Sequence[tuple[Call, Bytes]]) -> None:
        """Raise BrokenPlan if a call writes outside a memory, or bytes that calls use or copies move."""
        if part.at.size and not 0 <= part.ends[0] <= part.ends[1] < self.sizes[part.memory]:
            raise BrokenPlan(f"{call.name} writes outside of {part.memory}")
        for other, held in touched:
            if part.meets(held) and not (
                other is call and held.operand >= 0 and call.spares(held.operand, part.at, held.at)
            ):
                raise BrokenPlan(f"{call.name} writes {part.what} over {held.what} that it reads or works on")
        if any(part.meets(m.source) or part.meets(m.target) for m, _, _ in self.pending):
            raise BrokenPlan(f"{call.name} writes bytes that are being copied")

    def start(self, move: Move) -> None:
        source, target = move.source, move.target
        for side in (source, target):
            if (
                side.at.size
                and side.memory != STORE
                and not 0 <= side.ends[0] <= side.ends[1] < self.sizes[side.memory]
            ):
                raise BrokenPlan(f"{move.name}: a copy leaves {side.memory}")
        self.check_unit(move)
        for other, _, _ in self.pending:
            if target.meets(other.target) or target.meets(other.source) or source.meets(other.target):
                raise BrokenPlan(f"{move.name}: two copies under way meet at {source.what} or {other.source.what}")
        if source.memory == STORE:
            owners, values = source.at | CONSTANT, source.values
        else:
            owners = self.there[source.memory][source.at].copy()
            values = self.values[source.memory][source.at].copy()
        self.pending.append((move, owners, values))
        self.there[target.memory][target.at] = NOTHING
        if target.memory in self.cached:
            lines = np.unique(target.at // CACHE_LINE)
            if any(self.dirty[target.memory][n * CACHE_LINE : (n + 1) * CACHE_LINE].any() for n in lines):
                raise BrokenPlan(f"{move.name}: the DMA unit writes bytes whose lines the cache may write back")
            self.seen[target.memory][target.at] = STALE

    def check_unit(self, move: Move) -> None:
        """Raise BrokenPlan unless a DMA unit of the target joins both memories, and its limits are kept."""
        if self.target is None:
            return
        ends = [side.memory or self.target.memory("weights").name for side in (move.source, move.target)]
        unit = next((d for d in self.target.dma if set(ends) <= set(d.between)), None)
        if unit is None:
            raise BrokenPlan(f"{move.name}: no DMA unit joins {' and '.join(ends)}")
        if unit.largest and len(move.source.at) > unit.largest:
            raise BrokenPlan(f"{move.name}: a copy of more than {unit.largest} B by {unit.name}")
        pieces = (move.source.at[:: move.piece], move.target.at[:: move.piece], np.array(move.piece))
        if any(np.any(at % unit.align) for at in pieces):
            text = f"{move.name}: a piece of {move.source.what} is not aligned to {unit.align} B"
            raise BrokenPlan(f"{text}, as {unit.name} asks for")

    def wait(self, channel: int) -> None:
        awaited = [each for each in self.pending if each[0].channel == channel]
        self.pending[:] = [each for each in self.pending if each[0].channel != channel]
        for move, owners, values in awaited:
            source, target = move.source, move.target
            if source.memory != STORE and not np.array_equal(self.there[source.memory][source.at], owners):
                raise BrokenPlan(f"{move.name}: {source.what} is written while it is copied")
            if not np.all(self.there[target.memory][target.at] == NOTHING):
                raise BrokenPlan(f"{move.name}: somebody writes where a copy goes")
            self.there[target.memory][target.at] = owners
            if values is not None:
                self.values[target.memory][target.at] = values

    def complete(self, step: Complete) -> None:
        if any(move.channel in step.channels for move, _, _ in self.pending):
            raise BrokenPlan(f"{step.name} leaves copies that nobody waits for")
        for part in step.results:
            if not self.holds(part, self.there):
                raise BrokenPlan(f"{step.name} does not leave its whole result")

    def cache(self, op: CacheOp) -> None:
        """Clean or invalidate all lines that a range touches."""
        memory = op.place.memory
        if memory not in self.cached:
            return
        first = op.place.offset // CACHE_LINE * CACHE_LINE
        past = -(-(op.place.offset + op.bytes) // CACHE_LINE) * CACHE_LINE
        seen, there, dirty = (states[memory][first:past] for states in (self.seen, self.there, self.dirty))
        if op.kind == CLEAN:
            for at in range(0, past - first, CACHE_LINE):
                line = slice(at, at + CACHE_LINE)
                there[line] = seen[line] if dirty[line].any() else there[line]
        elif dirty.any():
            raise BrokenPlan(f"what the core wrote beside {op.what} is lost")
        else:
            seen[:] = there
        dirty[:] = False


# Bytes that calls read and write, by the index relations alone: the side of `replay` that no planner touches.


@dataclass(frozen=True)
class Stored:
    """Bytes [first, past) of a storage."""

    storage: str
    first: int
    past: int


@dataclass(frozen=True)
class View:
    """The offset in bytes at which a tensor begins in its storage."""

    storage: str
    start: int


@dataclass(frozen=True)
class Callee:
    """An op with its kernel's form, and the facts of its index relation and kernel that hold for every call.

    `operands`: positions of activations; `in_place`: of those that it reads element by element, and whose elements are
    not smaller than the result's. `over`: how the kernel works over its first operand, if its form requires that.
    `reduces`: in a rolled run, calls add up rows of the operand, and the last one makes the result.
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
        over = kernel.in_place if form.in_place and not form.rolled else ""
        return Callee(op, form, relation, operands, in_place, over, reduces, kernel.scratch)

    def spares(self, graph: Graph, position: int, at: Array, there: Array) -> bool:
        """Whether a call that writes addresses `at` destroys nothing that it still reads of the operand at `there`."""
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
        """The number that tags each tensor's bytes."""
        return {name: number for number, name in enumerate(self.graph.tensors)}

    @cached_property
    def views(self) -> dict[str, View]:
        """The storage of every activation."""
        views = {t.name: View(t.name, 0) for t in self.graph.tensors.values() if not t.constant}
        for op in self.graph.ops:
            spec = ops.SPECS[op.kind]
            if spec.view:
                of = views[op.inputs[0]]
                views[op.outputs[0]] = View(of.storage, of.start + spec.start(op, self.graph))
        return views

    def rows(self, tensor: str) -> int:
        shape = self.graph.tensors[tensor].shape
        return shape[1] if len(shape) > 1 else 1

    def calls(self, callee: Callee) -> int:
        """How often a rolled op is called."""
        return callee.form.rows if callee.reduces else self.rows(callee.op.outputs[0])

    def check_count(self, callee: Callee, count: int) -> None:
        """Raise BrokenPlan for more calls than the op has rows, or a reduction with fewer."""
        wanted = self.calls(callee)
        if count > wanted or (callee.reduces and count < wanted):
            raise BrokenPlan(f"{callee.op.name} is called {count} times, not {wanted}")

    def needed(self, callee: Callee, position: int, row: int | None) -> Stored:
        """The bytes of an operand that the result, or a row of it, needs; for a reduction, row `row` of the operand."""
        tensor, relation = callee.op.inputs[position], callee.relation
        if row is not None and callee.reduces:
            return self.part(tensor, row, row + 1, callee.form.rows)
        if row is None or not follows(relation, position):
            return self.part(tensor, 0, self.rows(tensor))
        return self.part(tensor, *input_range(relation, position, 1, row, row + 1))

    def result(self, callee: Callee, row: int | None) -> Stored:
        """The bytes of the result, or of a row of it; for a reduction always the whole result."""
        y = callee.op.outputs[0]
        return self.part(y, 0, self.rows(y)) if row is None or callee.reduces else self.part(y, row, row + 1)

    def part(self, tensor: str, first: int, past: int, count: int | None = None) -> Stored:
        """The bytes of the rows [first, past) of a tensor. `count`: rows to divide it into; None: its own."""
        size, view = self.graph.tensors[tensor].bytes // (count or self.rows(tensor)), self.views[tensor]
        return Stored(view.storage, view.start + first * size, view.start + past * size)

    def row_bytes(self, tensor: str) -> int:
        return self.graph.tensors[tensor].bytes // self.rows(tensor)

    def finds_rings(self, callee: Callee, rolled: RolledCalls) -> bool:
        """Whether a kernel's form has the sizes of its operands' rings, and the separate rows, of the run."""
        storages = [self.views[callee.op.inputs[position]].storage for position in callee.operands]
        rows = [rolled.rings.get(rolled.inside.get(name, name), 0) for name in storages]
        wanted = tuple(n if n < self.rows(name) else 0 for n, name in zip(rows, storages, strict=True))
        separate = tuple(name in rolled.separate for name in storages)
        return callee.form.rings == wanted and callee.form.separate == (separate if any(separate) else ())


def follows(relation: Nest, position: int) -> bool:
    """Whether rows of the result need only some rows of this operand."""
    dims = relation.operands[position]
    along = dims[1] if len(dims) > 1 and len(relation.out) > 1 else None
    return isinstance(along, Same | Window | Spread) and along.axis == relation.out[1]


@dataclass(frozen=True)
class Addresses:
    """Where the bytes of all storages lie while a section runs, as printed: in rings, and inside of others.

    `kept`: for rings with a separate newest row, the number of rows copied into the ring so far.
    """

    graph: Graph
    places: Mapping[str, Place]
    rings: Mapping[str, int]
    inside: Mapping[str, str]
    kept: dict[str, int]

    @staticmethod
    def of(graph: Graph, rolled: RolledCalls | None, places: Mapping[str, Place]) -> Addresses:
        if rolled is None:
            return Addresses(graph, places, {}, {}, {})
        return Addresses(graph, places, rolled.rings, rolled.inside, dict.fromkeys(rolled.separate, 0))

    def row_bytes(self, storage: str) -> int:
        return Relations(self.graph).row_bytes(storage)

    def pieces(self, stored: Stored) -> list[tuple[str, Array, Array]]:
        """For each place: its memory, the addresses, and which bytes of the storage lie there."""
        every, home = np.arange(stored.first, stored.past), self.inside.get(stored.storage, stored.storage)
        at, size = every, self.row_bytes(home)
        if home != stored.storage:
            row, rest = np.divmod(at, self.row_bytes(stored.storage))
            at = row * size + rest
        newest = at >= self.kept.get(home, 2**31) * size
        if home in self.rings:
            at = np.where(newest, at % size, at % (self.rings[home] * size))
        parts = [(home, ~newest)] if not newest.any() else [(newest_name(home), newest), (home, ~newest)]
        places = [(self.places[name], here) for name, here in parts if here.any() or len(parts) == 1]
        return [(p.memory, at[here] + p.offset, every[here]) for p, here in places]

    def keep(self, name: str) -> tuple[Stored, tuple[str, Array], tuple[str, Array]]:
        """Copy the newest row into its ring: returns the row, its addresses before, and its addresses now."""
        row, size = self.kept[name], self.row_bytes(name)
        stored = Stored(name, row * size, (row + 1) * size)
        ((memory, at, _),) = self.pieces(stored)
        self.kept[name] += 1
        ((home, there, _),) = self.pieces(stored)
        return stored, (memory, at), (home, there)
