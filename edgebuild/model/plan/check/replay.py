"""The check of a plan: run it, with each byte tagged with its owner.

Every plan is checked. Each byte that a call needs must be in memory when it is read. No call may write over bytes that
it reads, unless the op goes element by element. A kernel's scratch destroys the bytes there. `Operations` lists the
operations of each step, and `machine` applies them to the bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from ....base.target import Target
from ... import ops
from ...ir import ITEM_BYTES, Array, Graph, Op, Quant, Tensor, Window, input_range
from ...kernels import kernel_of
from ...ops.base import Constant, Form, Kernel, Ranges
from .. import printed
from ..memory.problem import Place
from .machine import (
    NOTHING,
    STORE,
    Addresses,
    Bytes,
    Call,
    Callee,
    Complete,
    Machine,
    Move,
    Operation,
    Relations,
    Stored,
    View,
    never,
)
from .machine import BrokenPlan as BrokenPlan

# The operations of each step, from the tables that are printed: copies, waits, and calls with the bytes they touch.
#
# From the planner it takes the order of calls, the places, and the sizes of rings and tiles. Which bytes a call reads
# and writes, and which kernel it must have, follows from the index relations of the op.

COLUMNS = 2  # the dimension of N x H x W x C


@dataclass(frozen=True)
class Operations:
    """Lists operations of steps. `level`: the first memory level, of `room` bytes. `streamed`: input pushed by rows."""

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
        """A part of a storage, as bytes in each place that holds any of it."""
        what, owner = f"bytes {stored.first} to {stored.past} of {stored.storage}", self.owner(stored.storage)
        pieces = addresses.pieces(stored)
        return [Bytes(memory, at, owner + which, what, operand=operand) for memory, at, which in pieces]

    def of_tensor(self, tensor: str) -> list[Bytes]:
        """A whole tensor, where it lies between steps."""
        everywhere = Addresses.of(self.graph, None, self.places)
        return self.bytes_in(everywhere, self.relations.part(tensor, 0, self.relations.rows(tensor)))

    def step(self, section: printed.Step) -> Iterator[Operation]:
        """All operations of a step, with the transfers before and after it."""
        yield from self.transfers(section.before)
        if isinstance(section.moves, printed.TiledOp):
            yield from _Tiles(self, section.moves).operations()
        else:
            yield from _Calls(self, section).operations()
        yield from self.transfers(section.after)

    def transfers(self, between: Sequence[printed.Transfer]) -> Iterator[printed.Wait | printed.CacheOp | Move]:
        for t in between:
            yield self.move("constants between steps", t.copy, t.block) if isinstance(t, printed.Start) else t

    def move(
        self, name: str, copy: printed.Copy, block: Constant | None = None, moved: printed.TiledOp | None = None
    ) -> Move:
        """A copy with its bytes on both sides. `block`: constants that it copies. Raises BrokenPlan outside these."""
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
            elif block is not None:
                values = np.frombuffer(block.data.tobytes(), np.uint8)[far]
        there, inside = Bytes(memory, far, NOWHERE, what, values), Bytes(*here, NOWHERE, what)
        return Move(name, copy.channel, *((there, inside) if copy.fetch else (inside, there)), copy.bytes)

    def near(self, name: str, at: Array, constants: bool, moved: printed.TiledOp | None) -> tuple[str, Array]:
        """Memory and addresses of offsets in the first level or an engine's scratchpad. Raises BrokenPlan outside."""
        memory, size = self.level, self.room
        if moved is not None and moved.regions:
            region = moved.regions[int(constants)]
            memory, size, at = region.memory, region.bytes, at - region.base
        if at.size and (at.min() < 0 or at.max() >= size):
            raise BrokenPlan(f"{name} leaves {memory}")
        return memory, at

    def data(
        self, name: str, kernel: Kernel, at: Sequence[int], moved: printed.TiledOp | None = None
    ) -> Iterator[Bytes]:
        """A kernel's constants, which must lie at these offsets."""
        for constant, place in zip(kernel.constants, at, strict=True):
            values = np.frombuffer(np.ascontiguousarray(constant.data).tobytes(), np.uint8)
            memory, there = self.near(name, place + np.arange(len(values)), True, moved)
            yield Bytes(memory, there, NOWHERE, f"its {constant.name}", values)


class _Tiles:
    """An op that runs tile by tile."""

    def __init__(self, every: Operations, moved: printed.TiledOp) -> None:
        self.every, self.moved, self.name, self.graph = every, moved, moved.op.name, every.graph
        self.parts = PartKernels(moved.op, self.graph, moved.form)

    def operations(self) -> Iterator[Operation]:
        moved = self.moved
        for o in moved.script:
            if isinstance(o, tuple):
                yield [self.call(work, core) for core, work in enumerate(o)]
            elif isinstance(o, printed.Copy):
                yield self.every.move(self.name, o, None if o.tensor else moved.blocks[o.block], moved)
            else:
                yield o
        channels = frozenset(c.channel for c in moved.copies)
        yield Complete(self.name, channels, self.every.of_tensor(moved.op.outputs[0]))

    def call(self, work: printed.CoreWork, core: int) -> Call:
        op, parts, moved, reads = self.moved.op, self.parts, self.moved, list[Bytes]()
        places = iter(work.at)
        out, needed = parts.result(work.ranges), parts.needed(work.ranges)
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
        """A part of a tensor, contiguous from `place` on."""
        t, view = self.graph.tensors[tensor], self.every.relations.views[tensor]
        which = np.arange(t.bytes).reshape(*t.shape, ITEM_BYTES[t.dtype])[tuple(slice(*r) for r in ranges)].ravel()
        memory, at = self.every.near(self.name, place + np.arange(len(which)), False, self.moved)
        return Bytes(memory, at, self.every.owner(view.storage) + view.start + which, f"its part of {tensor}")


class _Calls:
    """The calls of a step whose ops run whole or row by row.

    Either the core uses operands where they lie, or the step is a `run` in the first level: cores share rows and parts
    of them, and rows are copied to rings and from there.
    """

    def __init__(self, every: Operations, section: printed.Step) -> None:
        self.every, self.section, self.name = every, section, section.name
        self.graph, self.relations = every.graph, every.relations
        self.run = section.moves if isinstance(section.moves, printed.StreamedRun) else None
        self.rolled, places = section.rolled, dict(every.places)
        if self.run is not None:
            near = {**self.run.places, **{s.storage: s.near for s in self.run.streams}}
            self.rolled, places = self.run.rolled, places | {n: Place(every.level, at) for n, at in near.items()}
        self.addresses = Addresses.of(self.graph, self.rolled, places)
        self.callees = [Callee.of(self.graph, op, form) for op, form in zip(section.ops, section.forms, strict=True)]
        self.kernels = dict[tuple[int, int], Kernel]()

    def operations(self) -> Iterator[Operation]:
        for callee in self.callees:
            if self.rolled is not None and not self.relations.finds_rings(callee, self.rolled):
                raise BrokenPlan(f"{callee.op.name} looks for rows in rings of other sizes")
        yield from self.where_they_lie() if self.run is None else self.in_first_level(self.run)

    def where_they_lie(self) -> Iterator[Sequence[Call]]:
        """The calls of an op that runs whole, or of a run: one past the last op the application brings a row.

        Only the order of a run's numbers counts, as in the table that is printed: each op is called for one row
        after the other, as far as rows are read.
        """
        every, rolled, ops_count = self.every, self.rolled, len(self.callees)
        if rolled is None:
            yield [self.call(0, None)]
            return
        counted, rows = Counter(rolled.numbers), Counter[int]()
        for number, callee in enumerate(self.callees):
            self.relations.check_count(callee, counted[number])
        for number in rolled.numbers:
            row, rows[number] = rows[number], rows[number] + 1
            if number < ops_count:
                yield [self.call(number, row)]
            elif number > ops_count:
                ring = rolled.separate[number - ops_count - 1]
                stored, before, (memory, at) = self.addresses.keep(ring)
                owners = every.owner(ring) + np.arange(stored.first, stored.past)
                what = f"the newest row of {ring}"
                yield [Call("the run", [Bytes(*before, owners, what)], [Bytes(memory, at, owners, what)])]
            elif every.streamed is not None:
                part = self.relations.part(every.streamed, row, row + 1)
                yield [Call("the application", (), every.bytes_in(self.addresses, part))]

    def in_first_level(self, run: printed.StreamedRun) -> Iterator[Operation]:
        streams = {s.storage: s for s in run.outputs}
        yield from (self.copy(stream, 0) for stream in run.inputs)
        batches, counts = [0] * (len(run.ops) + len(run.inputs)), [0] * len(run.ops)
        for number in run.events:
            batch, batches[number] = batches[number], batches[number] + 1
            if number >= len(run.ops):
                stream = run.inputs[number - len(run.ops)]
                if batch + 1 < stream.copies:
                    yield self.copy(stream, batch + 1)
                yield printed.Wait(stream.channel + batch % 2)
                continue
            callee = self.callees[number]
            result = streams.get(callee.op.outputs[0])
            if result is not None and not result.whole and batch > 1:
                yield printed.Wait(result.channel + batch % 2)
            together = 1 if callee.reduces else run.together
            rows = range(batch * together, min((batch + 1) * together, run.counts[number]))
            counts[number] += len(rows)
            yield [c for first, row in enumerate(rows) for c in self.row_calls(run, number, first * run.shares, row)]
            if result is not None and (not result.whole or counts[number] == self.relations.calls(callee)):
                yield self.copy(result, batch)
        for callee, count in zip(self.callees, counts, strict=True):
            self.relations.check_count(callee, count)
        channels = frozenset(s.channel + odd for s in run.streams for odd in (0, 1))
        yield from map(printed.Wait, sorted(channels))
        results = [part for name in self.section.results for part in self.every.of_tensor(name)]
        yield Complete(self.name, channels, results)

    def copy(self, stream: printed.Stream, number: int) -> Move:
        """A copy of rows, or of all rows if they are made at once."""
        row, channel = number * stream.together, stream.channel + number % 2
        size = min(stream.together, stream.rows - row) * stream.bytes
        near = stream.near + row % stream.slots * stream.bytes
        copy = printed.Copy(channel, stream.fetched, stream.storage, 0, row * stream.bytes, near, size)
        if stream.whole:
            copy = printed.Copy(stream.channel, False, stream.storage, 0, 0, stream.near, stream.total)
        return self.every.move(self.name, copy)

    def row_calls(self, run: printed.StreamedRun, number: int, core: int, row: int) -> Iterator[Call]:
        """The calls of the cores, from number `core` on, that make a row."""
        shares = zip(run.parts[number], run.constants[number], strict=True)
        parts = [(share, part, places) for share, places in shares for part in range(share.first, share.past)]
        if [part for _, part, _ in parts] != list(range(len(parts))) or len(parts) > max(1, run.shares):
            raise BrokenPlan(f"{run.ops[number].name} has no core for each part of a row")
        for share, part, places in parts:
            columns = self.columns(number, share, part)
            if (number, part) not in self.kernels:
                self.kernels[number, part] = self.kernel(number, share, part, columns)
            kernel = self.kernels[number, part]
            call = self.call(number, row, kernel.scratch, core + part, columns)
            reads = (*call.reads, *self.every.data(self.name, kernel, places))
            yield replace(call, reads=reads, spares=never)

    def call(
        self, number: int, row: int | None, work: int | None = None, core: int = 0,
        columns: tuple[int, int] | None = None,
    ) -> Call:  # fmt: skip
        """One call of a kernel; `row` None: of an op that runs whole. Sums must lie where earlier calls left them.

        `work`: bytes of scratch; None: those of the op's kernel. `columns`: of the row; None: all.
        """
        callee, relations = self.callees[number], self.relations
        reduces, reads, writes = row is not None and callee.reduces, list[Bytes](), list[Bytes]()
        for i in callee.operands:
            reads += self.every.bytes_in(self.addresses, relations.needed(callee, i, row), i)
        if not reduces or row == relations.calls(callee) - 1:
            result = relations.result(callee, row)
            if columns is not None:
                size = (result.past - result.first) // self.graph.result(callee.op).shape[COLUMNS]
                low, high = (result.first + column * size for column in columns)
                result = Stored(result.storage, low, high)
            writes = self.every.bytes_in(self.addresses, result)

        def spares(operand: int, at: Array, there: Array) -> bool:
            return callee.spares(self.graph, operand, at, there)

        scratch = self.scratch(callee.op, callee.scratch if work is None else work, core)
        return Call(callee.op.name, reads, writes, scratch, reduces and bool(row), spares)

    def scratch(self, op: Op, size: int, core: int) -> Bytes | None:
        if not size:
            return None
        name, mark = printed.scratch_name(op.outputs[0]), NOTHING - 1 - self.relations.numbers[op.outputs[0]]
        if self.run is not None:
            each = self.run.scratch_each[self.run.ops.index(op)]
            at = self.run.scratch[op.outputs[0]] + core * each + np.arange(size)
            return _scratch(*self.every.near(self.name, at, False, None), mark)
        if size > self.section.inner.get(name, 0):
            raise BrokenPlan(f"{op.name} works on {size} B, of which it has {self.section.inner.get(name, 0)}")
        place = self.every.places[name]
        return _scratch(place.memory, place.offset + np.arange(size), mark)

    def columns(self, number: int, share: printed.Share, part: int) -> tuple[int, int] | None:
        """The columns of the result that a part makes; None: the whole row."""
        if not share.width:
            return None
        every = self.graph.result(self.callees[number].op).shape[COLUMNS]
        low, high = part * share.width, min((part + 1) * share.width, every)
        if low >= high:
            raise BrokenPlan(f"part {part} of a row of {self.callees[number].op.name} begins behind its end")
        return low, high

    def kernel(self, number: int, share: printed.Share, part: int, columns: tuple[int, int] | None) -> Kernel:
        """The kernel that the part must have, with its constants. Raises BrokenPlan if its own is another."""
        op, form = self.callees[number].op, self.callees[number].form
        if columns is None:
            wanted = kernel_of(op, self.graph, form)
        else:
            wanted = kernel_of_columns(op, self.graph, form, *columns, part * share.step - share.before)
        if not same_function(share.kernel, wanted):
            raise BrokenPlan(f"part {part} of a row of {op.name} has the kernel of another one")
        return wanted


def _scratch(memory: str, at: Array, mark: int) -> Bytes:
    return Bytes(memory, at, np.full(len(at), mark), "what it works on")


NOWHERE = np.zeros(0, np.int64)


class PartKernels:
    """Ranges that parts of an op make and need, and their kernels. Equal parts have one kernel, which is made once."""

    def __init__(self, op: Op, graph: Graph, form: Form) -> None:
        self.op, self.graph, self.form, self.nest = op, graph, replace(form, tile=True), ops.nest(op, graph)
        self.kernels: dict[object, Kernel] = {}

    def result(self, part: Mapping[str, tuple[int, int]]) -> Ranges:
        """Ranges of the result; axes without a range are whole."""
        shape = self.graph.result(self.op).shape
        return tuple(part.get(axis, (0, size)) for axis, size in zip(self.nest.out, shape, strict=True))

    def needed(self, part: Mapping[str, tuple[int, int]]) -> list[Ranges]:
        """Ranges of every operand."""
        return [
            tuple(
                (0, size) if (along := part.get(dim.axis)) is None else self._range(position, at, along)
                for at, (dim, size) in enumerate(zip(self.nest.operands[position], t.shape, strict=True))
            )
            for position, t in enumerate(self.graph.operands(self.op))
        ]

    def _range(self, position: int, dim: int, along: tuple[int, int]) -> tuple[int, int]:
        """Indices of an operand's dimension; those of an axis that is summed over are the axis itself."""
        axis = self.nest.operands[position][dim].axis
        return input_range(self.nest, position, dim, *along) if axis in self.nest.out else along

    def kernel(self, out: Ranges, needed: Sequence[Ranges]) -> Kernel:
        """The kernel of a part with its constants."""
        attrs = ops.SPECS[self.op.kind].part(self.op, self.graph, out, needed[0])
        operands = self.graph.operands(self.op)
        constant = tuple(ranges for ranges, t in zip(needed, operands, strict=True) if t.constant)
        sizes = tuple(tuple(past - first for first, past in ranges) for ranges in (*needed, out))
        key = sizes, constant, repr(sorted(attrs.items()))
        if key not in self.kernels:
            tensors, names = dict(self.graph.tensors), dict[tuple[str, Ranges], str]()
            for t, ranges in zip(operands, needed, strict=True):
                first = t.name not in names.values()  # an op may read two parts of one tensor
                name = names.setdefault((t.name, ranges), t.name if first else f"{t.name}:{len(names)}")
                tensors[name] = replace(_part(t, ranges), name=name)
            y = self.graph.result(self.op)
            tensors[y.name] = _part(y, out)
            inputs = tuple(names[t.name, ranges] for t, ranges in zip(operands, needed, strict=True))
            small = replace(self.op, inputs=inputs, attrs=attrs)
            self.kernels[key] = kernel_of(small, replace(self.graph, ops=(), tensors=tensors), self.form)
        return self.kernels[key]


def _part(t: Tensor, ranges: Ranges) -> Tensor:
    """A tensor's elements within these ranges, with their scales."""
    cut, quant = tuple(slice(*r) for r in ranges), t.quant
    if quant is not None and quant.axis is not None and len(quant.scale) > 1:
        channels = cut[quant.axis]
        quant = Quant(quant.scale[channels], quant.zero_point[channels], quant.axis)
    shape = tuple(past - first for first, past in ranges)
    return replace(t, shape=shape, quant=quant, data=None if t.data is None else t.data[cut])


def same_function(one: Kernel, other: Kernel) -> bool:
    """Whether calls of both kernels compute the same if they have the same constants."""
    first, second = (
        (k.template, dict(k.shape), list(k.scalars.items()), [str(c.data.dtype) for c in k.constants])
        for k in (one, other)
    )
    return first == second


def kernel_of_columns(op: Op, graph: Graph, form: Form, low: int, high: int, begin: int) -> Kernel:
    """The kernel that makes the columns [low, high) of a row, and is given operands from their column `begin` on.

    Raises BrokenPlan where none could: it begins elsewhere than its columns, or a window leaves the row at its end.
    """
    nest, tensors, y, attrs = ops.nest(op, graph), dict(graph.tensors), graph.result(op), op.attrs
    tensors[y.name] = _part(y, _columns(y, high - low))
    for dims, t in zip(nest.operands, graph.operands(op), strict=True):
        if t.constant:
            continue
        relation = dims[COLUMNS]
        if isinstance(relation, Window):
            reach = (nest.extents[relation.tap] - 1) * relation.dilation
            left = relation.pad - low * relation.stride + begin
            right = (high - low - 1) * relation.stride + reach + 1 - left - t.shape[COLUMNS]
            inside = left == 0 and begin + (high - low - 1) * relation.stride + reach < t.shape[COLUMNS]
            if begin and not inside:
                raise BrokenPlan(f"{op.name}: columns {low} to {high} are not made from column {begin} on")
            top, _, below, _ = op.attrs["pad"]
            attrs = {**attrs, "pad": (top, left, below, right)}
        elif begin != low:
            raise BrokenPlan(f"{op.name}: column {low} is made from column {begin}")
        else:
            tensors[t.name] = _part(t, _columns(t, high - low))
    return kernel_of(replace(op, attrs=attrs), replace(graph, ops=(), tensors=tensors), form)


def _columns(t: Tensor, count: int) -> Ranges:
    return tuple((0, count if dim == COLUMNS else size) for dim, size in enumerate(t.shape))


def replay(
    graph: Graph,
    steps: Sequence[printed.Step],
    places: Mapping[str, Place],
    target: Target | None = None,
    level1_bytes: int | None = None,
    streamed: str | None = None,
    views: Mapping[str, tuple[str, int]] = MappingProxyType({}),
) -> None:
    """Raise BrokenPlan unless every call reads the right bytes, and all outputs are in memory at the end.

    `target`: gives memories and DMA units to steps that copy data. `level1_bytes`: bytes of its first level that the
    plan uses; None: all. `streamed`: the input whose rows the application brings. `views`: the storage of every
    activation and its offset there in bytes, as they are printed.
    """
    relations, moves = Relations(graph), any(isinstance(s.moves, printed.Moves) for s in steps)
    for name, (storage, start) in views.items():
        if (view := relations.views[name]) != View(storage, start):
            raise BrokenPlan(f"{name} begins {view.start} B behind {view.storage}, not {start} B behind {storage}")
    sizes, level, cached = _sizes(graph, steps, places), "", frozenset[str]()
    if moves:
        assert target is not None
        level, cached = target.levels[0].name, frozenset(m.name for m in target.memories if m.cached)
        sizes |= {name: target.memory_named(name).size for e in target.engines for name in e.memories}
        sizes[level] = min(target.levels[0].size, level1_bytes or target.levels[0].size)
    machine = Machine(sizes, target, cached & set(sizes))
    operations = Operations(relations, places, level, sizes.get(level, 0), streamed)
    for name in dict.fromkeys(relations.views[n].storage for n in graph.inputs):
        for part in operations.of_tensor(name) if name != streamed else ():
            machine.write(part)
    for section in steps:
        for operation in operations.step(section):
            machine.do(operation)
    if machine.pending:
        raise BrokenPlan("a copy of constants that nobody waits for")
    for name in graph.outputs:
        if not all(machine.holds(part, machine.seen) for part in operations.of_tensor(name)):
            raise BrokenPlan(f"output {name} does not stand at the end")


def _sizes(graph: Graph, steps: Sequence[printed.Step], places: Mapping[str, Place]) -> dict[str, int]:
    """Sizes in bytes, with room to spare, of the memories that hold tensors or staged constants."""
    copies = [t.copy for s in steps for t in s.before if isinstance(t, printed.Start)]
    copies += [c for s in steps if isinstance(s.moves, printed.TiledOp) for c in s.moves.copies]
    staged = [c for c in copies if c.into]
    ends = [*(p.offset for p in places.values()), *(c.near + c.total for c in staged)]
    inner = max((size for s in steps for size in s.inner.values()), default=0)  # scratch may exceed all tensors
    size = max(ends, default=0) + max(4 * max((t.bytes for t in graph.tensors.values()), default=0), inner)
    return dict.fromkeys({*(p.memory for p in places.values()), *(c.stage for c in staged)}, size)
