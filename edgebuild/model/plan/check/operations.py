"""The operations of each step, from the tables that are printed: copies, waits, and calls with the bytes they touch.

Of the planner it takes the order of calls, the places and the sizes of rings and tiles. Which bytes a call reads and
writes, and which kernel it must have, follows from the index relations of the op.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...ir import ITEM_BYTES, Array, Graph
from ...kernels import kernel_of
from ...ops.base import Constant, Kernel, Ranges
from ..memory.problem import Place
from ..printed import (
    CONSTANTS,
    CacheOp,
    Copy,
    CoreWork,
    RolledCalls,
    Share,
    Start,
    Step,
    Stream,
    StreamedRun,
    TiledOp,
    Transfer,
    Wait,
    scratch_name,
)
from .machine import NOTHING, STORE, BrokenPlan, Bytes, Call, Complete, Move, Operation
from .part_kernels import COLUMNS, PartKernels, kernel_of_columns, same_function
from .relations import Addresses, Callee, Relations, Stored, calls_of, kept_by


@dataclass(frozen=True)
class Operations:
    """`level`: the first memory level, of `room` bytes. `streamed`: the input whose rows the application brings."""

    relations: Relations
    places: Mapping[str, Place]
    level: str
    room: int
    streamed: str | None = None

    @property
    def graph(self) -> Graph:
        return self.relations.graph

    def owner(self, storage: str) -> int:
        return self.relations.numbers[storage] << 32

    def bytes_in(self, addresses: Addresses, stored: Stored, operand: int = -1) -> list[Bytes]:
        """A part of a storage, for each place that holds some of it."""
        what, owner = f"bytes {stored.first} to {stored.past} of {stored.storage}", self.owner(stored.storage)
        pieces = addresses.pieces(stored)
        return [Bytes(memory, at, owner + which, what, operand=operand) for memory, at, which in pieces]

    def of_tensor(self, tensor: str) -> list[Bytes]:
        """A whole tensor, where it lies between steps."""
        everywhere = Addresses.of(self.graph, None, self.places)
        return self.bytes_in(everywhere, self.relations.part(tensor, 0, self.relations.rows(tensor)))

    def step(self, section: Step) -> Iterator[Operation]:
        """All that a step does, with what stands before and behind it."""
        yield from self.transfers(section.before)
        if isinstance(section.moves, TiledOp):
            yield from _Tiles(self, section.moves).operations()
        elif isinstance(section.moves, StreamedRun):
            yield from _Rows(self, section, section.moves).operations()
        else:
            yield from self.core(section)
        yield from self.transfers(section.after)

    def transfers(self, between: Sequence[Transfer]) -> Iterator[Wait | CacheOp | Move]:
        for t in between:
            yield self.move("constants between steps", t.copy, t.block) if isinstance(t, Start) else t

    def move(self, name: str, copy: Copy, block: Constant | None = None, moved: TiledOp | None = None) -> Move:
        """A copy with its bytes on both sides; `block`: the constants that it is of."""
        grid = np.arange(copy.bytes), np.arange(copy.rows)[:, None], np.arange(copy.planes)[:, None, None]
        far = (copy.far + grid[0] + grid[1] * copy.far_row + grid[2] * copy.far_plane).ravel()
        near = (copy.near + grid[0] + grid[1] * copy.near_row + grid[2] * copy.near_plane).ravel()
        memory, what, values = STORE, copy.tensor or "constants", None
        here: tuple[str, Array] = (copy.stage, near) if copy.into else self.near(name, near, not copy.tensor, moved)
        if copy.stage and not copy.into:
            memory = copy.stage
        else:
            size = self.graph.tensors[copy.tensor].bytes if copy.tensor else block.data.nbytes if block else 0
            if not far.size or far.min() < 0 or far.max() >= size:
                raise BrokenPlan(f"{name}: a copy leaves {copy.tensor or 'its constants'}")
        if copy.tensor:
            view = self.relations.views[copy.tensor]
            memory, far = self.places[view.storage].memory, far + self.places[view.storage].offset + view.start
        elif memory == STORE and block is not None:
            values = np.frombuffer(block.data.tobytes(), np.uint8)[far]
        there, inside = Bytes(memory, far, NOWHERE, what, values), Bytes(*here, NOWHERE, what)
        return Move(name, copy.channel, *((there, inside) if copy.fetch else (inside, there)), copy.bytes)

    def near(self, name: str, at: Array, constants: bool, moved: TiledOp | None) -> tuple[str, Array]:
        """Memory and addresses of places in the first level, or in one of the scratchpads of an engine."""
        memory, size = self.level, self.room
        if moved is not None and moved.regions:
            region = moved.regions[int(constants)]
            memory, size, at = region.memory, region.bytes, at - region.base
        if at.size and (at.min() < 0 or at.max() >= size):
            raise BrokenPlan(f"{name} leaves {memory}")
        return memory, at

    def data(self, name: str, kernel: Kernel, at: Sequence[int], moved: TiledOp | None = None) -> Iterator[Bytes]:
        """A kernel's constants, which must stand at these places."""
        for constant, place in zip(kernel.constants, at, strict=True):
            values = np.frombuffer(np.ascontiguousarray(constant.data).tobytes(), np.uint8)
            memory, there = self.near(name, place + np.arange(len(values)), True, moved)
            yield Bytes(memory, there, NOWHERE, f"its {constant.name}", values)

    def core(self, section: Step) -> Iterator[Operation]:
        """The calls of a step whose operands the core reaches where they lie."""
        addresses = Addresses.of(self.graph, section, self.places)
        callees = [Callee.of(self.graph, op, form) for op, form in zip(section.ops, section.forms, strict=True)]
        if section.rolled is not None:
            self.check_rings(callees, section.rolled)
        for number, row in calls_of(self.relations, section):
            if number < len(section.ops):
                yield [self.call(callees[number], section, addresses, row)]
            elif (ring := kept_by(section, number)) is not None:
                stored, before, (memory, at) = addresses.keep(ring)
                owners = self.owner(ring) + np.arange(stored.first, stored.past)
                what = f"the newest row of {ring}"
                yield [Call("the run", [Bytes(*before, owners, what)], [Bytes(memory, at, owners, what)])]
            elif self.streamed is not None and row is not None:
                part = self.relations.part(self.streamed, row, row + 1)
                yield [Call("the application", (), self.bytes_in(addresses, part))]

    def check_rings(self, callees: Sequence[Callee], rolled: RolledCalls) -> None:
        for callee in callees:
            if not self.relations.finds_rings(callee, rolled):
                raise BrokenPlan(f"{callee.op.name} looks for rows in rings of other sizes")

    def call(self, callee: Callee, section: Step, addresses: Addresses, row: int | None) -> Call:
        """One call of a kernel; `row` None: of an op that runs whole."""
        op, relations, reduces = callee.op, self.relations, row is not None and callee.reduces
        reads = [b for i in callee.operands for b in self.bytes_in(addresses, relations.needed(callee, i, row), i)]
        writes, scratch, name = list[Bytes](), None, scratch_name(op.outputs[0])
        if callee.scratch:
            if callee.scratch > section.inner.get(name, 0):
                raise BrokenPlan(f"{op.name} works on {callee.scratch} B, of which it has {section.inner.get(name, 0)}")
            place, mark = self.places[name], np.full(callee.scratch, -2 - relations.numbers[op.outputs[0]])
            scratch = Bytes(place.memory, place.offset + np.arange(callee.scratch), mark, "what it works on")
        if not reduces or row == relations.calls(callee) - 1:
            writes = self.bytes_in(addresses, relations.made(callee, row))

        def spares(operand: int, at: Array, there: Array) -> bool:
            return callee.spares(self.graph, operand, at, there)

        return Call(op.name, reads, writes, scratch, reduces and bool(row), spares)


class _Tiles:
    """An op that runs tile by tile."""

    def __init__(self, every: Operations, moved: TiledOp) -> None:
        self.every, self.moved, self.name, self.graph = every, moved, moved.op.name, every.graph
        self.parts = PartKernels(moved.op, self.graph, moved.form)

    def operations(self) -> Iterator[Operation]:
        moved, started = self.moved, 0
        for turn in moved.turns:
            called = max(turn.fetched, turn.staged)
            yield from map(Wait, turn.arrived)
            yield from self.starts(started, turn.fetched)
            yield from map(Wait, turn.waits)
            yield from self.starts(turn.fetched, called)
            yield [self.call(work, core) for core, work in enumerate(turn.calls)]
            yield from self.starts(called, turn.stored)
            started = turn.stored
        yield from map(Wait, moved.last_waits)
        if started != len(moved.copies):
            raise BrokenPlan(f"{self.name} leaves copies that nobody begins")
        channels = frozenset(c.channel for c in moved.copies)
        yield Complete(self.name, channels, self.every.of_tensor(moved.op.outputs[0]))

    def starts(self, first: int, past: int) -> Iterator[Move]:
        for copy in self.moved.copies[first:past]:
            block = None if copy.tensor else self.moved.blocks[copy.block]
            yield self.every.move(self.name, copy, block, self.moved)

    def call(self, work: CoreWork, core: int) -> Call:
        op, parts, moved, reads = self.moved.op, self.parts, self.moved, list[Bytes]()
        places = iter(work.at)
        out, needed = parts.made(work.ranges), parts.needed(work.ranges)
        for name, ranges in zip(op.inputs, needed, strict=True):
            if not self.graph.tensors[name].constant:
                reads.append(self.part(next(places), name, ranges))
        writes = [self.part(next(places), op.outputs[0], out)]
        kernel = parts.kernel(out, needed)
        if not same_function(moved.kernels[work.kernel], kernel):
            raise BrokenPlan(f"{op.name} calls the kernel of another part")
        reads += self.every.data(self.name, kernel, tuple(places), moved)
        at = moved.scratch + core * moved.scratch_each + np.arange(kernel.scratch)
        return Call(self.name, reads, writes, _scratch(*self.every.near(self.name, at, False, moved), NOTHING))

    def part(self, place: int, tensor: str, ranges: Ranges) -> Bytes:
        """A part of a tensor, one byte behind the other."""
        t, view = self.graph.tensors[tensor], self.every.relations.views[tensor]
        which = np.arange(t.bytes).reshape(*t.shape, ITEM_BYTES[t.dtype])[tuple(slice(*r) for r in ranges)].ravel()
        memory, at = self.every.near(self.name, place + np.arange(len(which)), False, self.moved)
        return Bytes(memory, at, self.every.owner(view.storage) + view.start + which, f"its part of {tensor}")


class _Rows:
    """A run whose rows are copied to rings in the first level, and from there."""

    def __init__(self, every: Operations, section: Step, run: StreamedRun) -> None:
        self.every, self.section, self.run, self.name = every, section, run, section.name
        self.graph, self.relations = every.graph, every.relations
        self.kernels = dict[tuple[int, int], Kernel]()

    def operations(self) -> Iterator[Operation]:
        run, relations = self.run, self.relations
        callees = [Callee.of(self.graph, op, form) for op, form in zip(run.ops, self.section.forms, strict=True)]
        self.every.check_rings(callees, run.seen)
        drained = {s.storage: s for s in run.drained}
        yield from self.constants()
        yield from (self.copy(fed, 0) for fed in run.fed)
        yield Wait(CONSTANTS)
        rows, made = [0] * (len(run.ops) + len(run.fed)), [0] * len(run.ops)
        for number in run.events:
            call, rows[number] = rows[number], rows[number] + 1
            if number >= len(run.ops):
                stream = run.fed[number - len(run.ops)]
                if call + 1 < stream.copies:
                    yield self.copy(stream, call + 1)
                yield Wait(stream.channel + call % 2)
                continue
            callee = callees[number]
            result = drained.get(callee.op.outputs[0])
            if result is not None and not result.whole and call > 1:
                yield Wait(result.channel + call % 2)
            here = self.rows(callee, number, call)
            made[number] += len(here)
            last = made[number] == relations.calls(callee)
            yield [c for at, row in enumerate(here) for c in self.row_calls(callee, number, at, row, last)]
            if result is not None and (last or not result.whole):
                yield self.copy(result, call)
        for callee, count in zip(callees, made, strict=True):
            relations.check_count(callee, count)
        channels = frozenset(s.channel + odd for s in run.streams for odd in (0, 1))
        yield from map(Wait, sorted(channels))
        results = [part for name in self.section.results for part in self.every.of_tensor(name)]
        yield Complete(self.name, channels, results)

    def constants(self) -> Iterator[Move]:
        run = self.run
        far, stage = run.stage_at or (0,) * len(run.blocks), run.stage.memory if run.stage is not None else ""
        for block, near, at in zip(run.blocks, run.block_at, far, strict=True):
            if block.data.nbytes and not run.prefetched:
                copy = Copy(CONSTANTS, True, "", 0, at, near, block.data.nbytes, stage=stage)
                yield self.every.move(self.name, copy, block)

    def copy(self, stream: Stream, number: int) -> Move:
        """A copy of rows, or of all rows if they are made at once."""
        row, channel = number * stream.together, stream.channel + number % 2
        size = min(stream.together, stream.rows - row) * stream.bytes
        near = stream.near + row % stream.slots * stream.bytes
        copy = Copy(channel, stream.fed, stream.storage, 0, row * stream.bytes, near, size)
        if stream.whole:
            copy = Copy(stream.channel, False, stream.storage, 0, 0, stream.near, stream.total)
        return self.every.move(self.name, copy)

    def rows(self, callee: Callee, number: int, call: int) -> range:
        """The rows that cores make in a call of an op; a reduction takes up one."""
        together = 1 if callee.reduces else self.run.together
        return range(call * together, min((call + 1) * together, self.run.counts[number]))

    def row_calls(self, callee: Callee, number: int, at: int, row: int, last: bool) -> Iterator[Call]:
        """The calls of the cores that make a row."""
        run = self.run
        parts = [(share, part) for share in run.parts[number] for part in range(share.first, share.past)]
        if [part for _, part in parts] != list(range(len(parts))) or len(parts) > max(1, run.shares):
            raise BrokenPlan(f"{callee.op.name} has no core for each part of a row")
        for share, part in parts:
            yield self.call(callee, number, at * run.shares + part, row, last, share, part)

    def call(self, callee: Callee, number: int, core: int, row: int, last: bool, share: Share, part: int) -> Call:
        """A core's call, which may read all of the rows; sums must still stand where earlier calls left them."""
        run, op, relations = self.run, callee.op, self.relations
        columns = self.columns(callee, share, part)
        if (number, part) not in self.kernels:
            self.kernels[number, part] = self.kernel(callee, share, part, columns)
        kernel = self.kernels[number, part]
        reads = [self.found(relations.needed(callee, position, row)) for position in callee.operands]
        reads += self.every.data(self.name, kernel, run.constants[number])
        scratch, writes = None, list[Bytes]()
        if kernel.scratch:
            at = run.scratch[op.outputs[0]] + core * run.scratch_each[number] + np.arange(kernel.scratch)
            scratch = _scratch(*self.every.near(self.name, at, False, None), NOTHING - 1 - number)
        if last or not callee.reduces:
            made = relations.made(callee, row)
            if columns is not None:
                size = (made.past - made.first) // self.graph.result(op).shape[COLUMNS]
                low, high = (made.first + column * size for column in columns)
                made = Stored(made.storage, low, high)
            writes = [self.found(made)]
        return Call(op.name, reads, writes, scratch, callee.reduces and row > 0)

    def columns(self, callee: Callee, share: Share, part: int) -> tuple[int, int] | None:
        """The columns of the result that a part makes; None: the whole row."""
        if not share.width:
            return None
        every = self.graph.result(callee.op).shape[COLUMNS]
        low, high = part * share.width, min((part + 1) * share.width, every)
        if low >= high:
            raise BrokenPlan(f"part {part} of a row of {callee.op.name} begins behind its end")
        return low, high

    def kernel(self, callee: Callee, share: Share, part: int, columns: tuple[int, int] | None) -> Kernel:
        """The kernel that the part must have, with its constants. Raises BrokenPlan if its own is another."""
        if columns is None:
            wanted = kernel_of(callee.op, self.graph, callee.form)
        else:
            begin = part * share.step - share.before
            wanted = kernel_of_columns(callee.op, self.graph, callee.form, *columns, begin)
        if not same_function(share.kernel, wanted):
            raise BrokenPlan(f"part {part} of a row of {callee.op.name} has the kernel of another one")
        return wanted

    def found(self, stored: Stored) -> Bytes:
        """Bytes of a storage in the first level: in the ring of the run, or whole."""
        run, which = self.run, np.arange(stored.first, stored.past)
        ring = next((s.near for s in run.streams if s.storage == stored.storage), run.places.get(stored.storage))
        if ring is None:
            at = which + self.every.places[stored.storage].offset
        else:
            at = ring + which % (run.seen.rings[stored.storage] * self.relations.row_bytes(stored.storage))
        memory, at = self.every.near(self.name, at, False, None)
        what = f"bytes {stored.first} to {stored.past} of {stored.storage}"
        return Bytes(memory, at, self.every.owner(stored.storage) + which, what)


def _scratch(memory: str, at: Array, mark: int) -> Bytes:
    return Bytes(memory, at, np.full(len(at), mark), "what it works on")


NOWHERE = np.zeros(0, np.int64)
