"""Rolled runs in the first memory level: the DMA unit brings rows of operands before their use, and stores results.

All rows that a run keeps, its constants and its scratch lie in the first level while it runs. An operand from outside
is a ring there with one row more than the run needs: the next row is copied while the last one is used. A result is
a ring of at least two rows: the row before is stored while the next is made. Tensors that stay in the first level
are read and written where they lie. Nothing is computed twice, and no tensor between two ops of the run is moved.

Cores make neighbouring rows at the same time: the next `together` rows when the first of them is wanted, the last
time the remainder. Or each core makes some columns of a row. A row is contiguous, so part p begins p part widths after
the row's start. Where column c needs column c of the operands, a part of the op is the op of fewer
columns. Where it needs those under a window, a part is the op with other padding: none inside of the row, the op's own
at its start. At its end the padding is negative, for there the kernel counts columns from the row's start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ... import ops
from ...ir import Graph, Op, Same, Window, separable
from ...kernels import kernel_of
from ...ops.base import PER_ROW_CALL, Constant, Form, Kernel
from ..cuts import Cutter
from ..hierarchy.nest import Channel, MappingCost, OperandCost, copy_cycles
from ..printed import Share, Stream, StreamedRun
from ..rolling import Rolled, RollingGraph, row_bytes, rows_of, simulate
from ..section import Section, rings_of
from ..tiling.paths import part_of
from .tiles import ALIGN, HANDOVER, aligned


@dataclass(frozen=True)
class Batches:
    """The calls of a run by batches of rows. `order`: the number of each call; input storages follow the ops.

    `counts`: rows that each number makes. `rings`, `kept`, `results`: as of a `Trace`.
    """

    run: tuple[Op, ...]
    order: tuple[int, ...]
    counts: tuple[int, ...]
    rings: dict[str, int]
    kept: dict[str, int]
    results: tuple[str, ...]

    def calls(self, number: int) -> int:
        return self.order.count(number)

    def of(self, every: Sequence[str], inputs: Sequence[str]) -> Batches:
        """The batches with only `inputs` of the input storages `every` streamed, and the rest whole."""
        ops, new = len(self.run), {name: len(self.run) + i for i, name in enumerate(inputs)}
        number = {**{i: i for i in range(ops)}, **{ops + i: new[n] for i, n in enumerate(every) if n in new}}
        order = tuple(number[n] for n in self.order if n in number)
        input_rows = dict(zip(every, self.counts[ops:], strict=True))
        counts = (*self.counts[:ops], *(input_rows[n] for n in inputs))
        rings = {n: rows for n, rows in self.rings.items() if n not in input_rows} | {n: self.rings[n] for n in inputs}
        return replace(self, order=order, counts=counts, rings=rings)


def batched(
    rolling: RollingGraph, run: Sequence[Op], inputs: tuple[str, ...], together: int = 1, counts: Sequence[int] = ()
) -> Batches:
    """The run by `together` rows at once. `counts`: calls of each number by single rows; needed if `together` > 1."""
    trace = simulate(rolling, run, inputs, together, counts)
    order = tuple(event.op for event in trace.events)
    counted = Counter(order)
    counts = tuple(counts) or tuple(counted[i] for i in range(len(run) + len(inputs)))
    return Batches(trace.run, order, counts, dict(trace.rings), dict(trace.kept), trace.results)


COLUMNS = 2  # the dimension of N x H x W x C
WINDOWS = ("conv2d", "depthwise_conv2d", "avg_pool2d", "max_pool2d")
MAX_OWN = 256  # bytes of a constant that a part of a row has for itself, such as its table of sizes


def shared_row(op: Op, graph: Graph, form: Form, count: int) -> tuple[Share, ...] | None:
    """The kernels of at most `count` parts of a row, which share all large constants; None: one core makes the row."""
    y = graph.result(op)
    if len(y.shape) != 4 or min(count, y.shape[COLUMNS]) < 2 or (relation := _relation(op, graph)) is None:
        return None
    width = -(-y.shape[COLUMNS] // count)
    make = _same if isinstance(relation, Same) else _under_windows
    shares = tuple(make(op, graph, form, width))
    kernels = [share.kernel for share in shares]
    one = isinstance(relation, Same)
    if any(k.placed != one or k.counted for k in kernels):
        return None
    constants = {_content(c) for k in kernels for c in k.constants}
    own = constants - {_content(c) for c in kernels[0].constants}
    return shares if all(len(data) <= MAX_OWN for _, _, data in own) else None


def _content(constant: Constant) -> tuple[str, str, bytes]:
    return constant.name, str(constant.data.dtype), constant.data.tobytes()


def _relation(op: Op, graph: Graph) -> Same | Window | None:
    """How columns of the operands follow from those of the result; None: parts of a row cannot be made alone."""
    nest, y = ops.nest(op, graph), graph.result(op)
    axis, relations = nest.out[COLUMNS], list[Same | Window]()
    for dims, name in zip(nest.operands, op.inputs, strict=True):
        t = graph.tensors[name]
        along = [d for d in dims if d.axis == axis]
        if t.constant:
            if along:
                return None
            continue
        if len(dims) != 4 or along != [dims[COLUMNS]] or not isinstance(along[0], Same | Window):
            return None
        if isinstance(along[0], Same) and t.shape[COLUMNS] != y.shape[COLUMNS]:
            return None
        relations.append(along[0])
    if not relations or nest.out.count(axis) != 1 or not separable(nest, axis):
        return None
    windows = [relation for relation in relations if isinstance(relation, Window)]
    if windows and (len(relations) > 1 or op.kind not in WINDOWS):
        return None
    if windows and graph.tensors[op.inputs[0]].constant:
        return None
    return relations[0]


def _same(op: Op, graph: Graph, form: Form, width: int) -> Iterator[Share]:
    """Equal parts of `width` columns, and the remainder."""
    every = graph.result(op).shape[COLUMNS]
    whole, rest = divmod(every, width)
    for first, past, columns in ((0, whole, width), (whole, whole + 1, rest)):
        if columns:
            tensors = dict(graph.tensors)
            for name in (*op.inputs, *op.outputs):
                t = tensors[name]
                if not t.constant:
                    ranges = tuple((0, columns if d == COLUMNS else n) for d, n in enumerate(graph.tensors[name].shape))
                    tensors[name] = part_of(graph.tensors[name], ranges)
            part = replace(op)
            small = replace(graph, ops=(part,), tensors=tensors)
            yield Share(kernel_of(part, small, form), first, past, width, width)


def _under_windows(op: Op, graph: Graph, form: Form, width: int) -> Iterator[Share]:
    """Parts whose windows lie inside the row, which share a kernel, and parts with windows that reach beyond it."""
    (nest, x, y), pad = (ops.nest(op, graph), graph.operands(op)[0], graph.result(op)), op.attrs["pad"]
    relation = nest.operands[0][COLUMNS]
    assert isinstance(relation, Window)
    reach, every = (nest.extents[relation.tap] - 1) * relation.dilation, y.shape[COLUMNS]

    def part_kernel(columns: int, left: int) -> Kernel:
        right = (columns - 1) * relation.stride + reach + 1 - left - x.shape[COLUMNS]
        part = replace(op, attrs={**op.attrs, "pad": (pad[0], left, pad[2], right)})
        ranges = tuple((0, columns if d == COLUMNS else n) for d, n in enumerate(y.shape))
        small = replace(graph, ops=(part,), tensors={**graph.tensors, y.name: part_of(y, ranges)})
        return kernel_of(part, small, form)

    inside: Share | None = None
    for number in range(-(-every // width)):
        first, past = number * width, min((number + 1) * width, every)
        low = first * relation.stride - relation.pad
        high = (past - 1) * relation.stride - relation.pad + reach
        if low >= 0 and high < x.shape[COLUMNS] and past - first == width:
            before = relation.pad
            inside = inside or Share(part_kernel(width, 0), number, number, width, width * relation.stride, before)
            inside = replace(inside, past=number + 1)
            continue
        if inside is not None:
            yield inside
            inside = None
        yield Share(part_kernel(past - first, -low), number, number + 1, width)
    if inside is not None:
        yield inside


SCRATCH_SHARE = 4  # scratch of all cores takes at most 1/SCRATCH_SHARE of the first level
STREAMS = 2  # the first channel of rows


@dataclass(frozen=True, kw_only=True)
class PlannedRun(StreamedRun):
    """A rolled run in the first level, as a step of the schedule. Its constants, `constant_bytes`, lie first."""

    section: Section
    constant_bytes: int
    cycles: MappingCost  # operands are the streams; exposed are the copies of constants

    @property
    def copied(self) -> float:
        """Bytes of activations that are copied."""
        return sum(s.total for s in self.streams)

    @property
    def first_constants(self) -> tuple[float, int]:
        """Cycles that the run waits for its constants before its first call, and their bytes."""
        return self.cycles.exposed, self.constant_bytes

    def work_bytes(self, early: int) -> int:
        """Bytes of the first level, without `early` bytes of prefetched constants."""
        return self.level1_bytes - early

    def without_constants(self, graph: Graph, room: int) -> PlannedRun:
        return self

    def blocks_at(self, constants: int | None) -> list[tuple[Constant, int]]:
        """Blocks of constants that are fetched before the run, and their addresses."""
        return list(zip(self.blocks, self.block_at, strict=True))

    def placed(self, base: int, constants: int | None, held: Mapping[str, int]) -> PlannedRun:
        """The run with its bytes from `base` on; its constants from `constants` on, if they are fetched early."""
        first = base if constants is None else constants
        base = base if constants is None else base - self.constant_bytes
        return replace(
            self,
            cycles=replace(self.cycles, exposed=0),
            streams=tuple(replace(s, near=s.near + base) for s in self.streams),
            block_at=tuple(at + first for at in self.block_at),
            constants=tuple(tuple(tuple(at + first for at in part) for part in parts) for parts in self.constants),
            places={name: at + base for name, at in self.places.items()},
            scratch={name: at + base for name, at in self.scratch.items()},
        )


@dataclass(frozen=True)
class Streamer:
    """Makes runs of an order of ops."""

    cutter: Cutter
    home: Channel  # between the levels, for activations except `others`
    store: Channel  # for constants
    room: int
    cores: int
    others: Mapping[str, Channel] = field(default_factory=dict)  # by storage
    align: int = ALIGN  # of rings and constants in the first level
    _runs: dict[object, Batches] = field(default_factory=dict, init=False)
    _row_kernels: dict[object, tuple[Form, tuple[Share, ...], float]] = field(default_factory=dict, init=False)
    _blocks: dict[object, tuple[Constant, tuple[tuple[int, ...], ...]]] = field(default_factory=dict, init=False)

    def operands(self, start: int, stop: int) -> tuple[str, ...]:
        results = {op.outputs[0] for op in self.cutter.order[start:stop]}
        roots = (r for op in self.cutter.order[start:stop] for r, _ in self.cutter.rolling.operands[op.outputs[0]])
        return tuple(dict.fromkeys(r for r in roots if r not in results))

    def run(self, start: int, stop: int, held: frozenset[str], together: int = 1, shares: int = 1) -> PlannedRun | None:
        """Ops [start, stop) as a run; `held` tensors stay in the first level. None: it does not fit.

        Cores make `together` rows at once, each in `shares` parts where possible. Its places count from 0.
        """
        rolling, graph = self.cutter.rolling, self.cutter.graph
        inputs = tuple(name for name in self.operands(start, stop) if name not in held)
        trace = self._batched(start, stop, together).of(self.operands(start, stop), inputs)
        streams = self._streams(trace, inputs, held, together)
        rings = {n: rows for n, rows in trace.rings.items() if n not in inputs}
        rings |= {s.storage: s.slots for s in streams}
        results = trace.results
        operands = self.operands(start, stop)
        least = sum(rows * row_bytes(graph, name) for name, rows in rings.items())
        if least > self.room:
            return None
        rolled = Rolled(rolling, trace.run, rings, {}, results, operands, {}, trace.counts, inputs)
        chosen = [self._chosen(op, rolled, together, shares) for op in trace.run]
        parts = tuple(row_parts for _, row_parts, _ in chosen)
        formed = zip(trace.run, chosen, strict=True)
        blocks, inside = zip(*(self._block(op, form, row_parts) for op, (form, row_parts, _) in formed), strict=True)
        at, block_at = 0, []
        for block in blocks:
            block_at.append(at)
            at += aligned(block.data.nbytes, self.align)
        constant_bytes, places, scratch = at, dict[str, int](), dict[str, int]()
        for name, rows in rings.items():
            places[name] = at
            at += aligned(rows * row_bytes(graph, name), self.align)
        shared, sizes = at, [max(share.kernel.scratch for share in row_parts) for row_parts in parts]
        for op, size in zip(trace.run, sizes, strict=True):
            if size and rolling.modes[op.outputs[0]] != "reduce":
                scratch[op.outputs[0]] = shared
                at = max(at, shared + together * shares * aligned(size))
        for op, size in zip(trace.run, sizes, strict=True):
            if size and op.outputs[0] not in scratch:  # sums, which live from the first call to the last
                scratch[op.outputs[0]] = at
                at += aligned(size)
        if at > self.room or not self._copied(streams, blocks):
            return None
        streams = tuple(replace(s, near=places[s.storage]) for s in streams)
        inner = {n: rows for n, rows in rings.items() if all(s.storage != n for s in streams)}
        within_bytes = {n: aligned(rows * row_bytes(graph, n), self.align) for n, rows in inner.items()}
        spans = dict.fromkeys(inner, (0, len(trace.run) - 1))
        forms = tuple(form for form, _, _ in chosen)
        within = replace(rolled, rings=inner)
        section = Section(trace.run, within, results, forms, within_bytes, reads=operands, spans=spans)
        begins = zip(block_at, inside, strict=True)
        absolute = tuple(tuple(tuple(b + at for at in part) for part in offsets) for b, offsets in begins)
        calls_ = [trace.calls(number) for number in range(len(trace.run))]
        compute = sum(n * cycles for n, (_, _, cycles) in zip(calls_, chosen, strict=True))
        cost = self._cost(compute, sum(calls_), blocks, streams)
        held = held & {*operands, *results}
        return PlannedRun(
            section=section, ops=trace.run, rolled=rolled, counts=trace.counts[: len(trace.run)], parts=parts,
            streams=streams, held=held,
            blocks=blocks, block_at=tuple(block_at), constants=absolute, places={n: places[n] for n in inner},
            scratch=scratch, scratch_each=tuple(map(aligned, sizes)), level1_bytes=at, events=trace.order,
            together=together, shares=shares, constant_bytes=constant_bytes, cycles=cost,
        )  # fmt: skip

    def _batched(self, start: int, stop: int, together: int) -> Batches:
        """The batches of a run whose operands are all streamed."""
        key, rolling, inputs = (start, stop, together), self.cutter.rolling, self.operands(start, stop)
        if (start, stop, 1) not in self._runs:
            self._runs[start, stop, 1] = batched(rolling, self.cutter.order[start:stop], inputs)
        if key not in self._runs:
            single = self._runs[start, stop, 1]
            self._runs[key] = batched(rolling, single.run, inputs, together, single.counts)
        return self._runs[key]

    def channel(self, stream: Stream) -> Channel:
        return self.others.get(stream.storage, self.home)

    def _copied(self, streams: tuple[Stream, ...], blocks: tuple[Constant, ...]) -> bool:
        """Whether the channels can do all copies."""
        sizes = [(self.channel(s), size) for s in streams for size in (s.bytes, s.largest)]
        sizes += [(self.store, b.data.nbytes) for b in blocks]
        return all(size % c.align == 0 and (not c.largest or size <= c.largest) for c, size in sizes)

    def _streams(
        self, trace: Batches, inputs: tuple[str, ...], held: frozenset[str], together: int
    ) -> tuple[Stream, ...]:
        """Streams whose rings hold a whole number of copies, so that no copy wraps around a ring's end."""
        graph, needs, streams, channel = self.cutter.graph, self.cutter.rolling.needs, list[Stream](), STREAMS
        for name, count in zip(inputs, trace.counts[len(trace.run) :], strict=True):
            slots = min(aligned(trace.rings[name], together) + together, rows_of(graph, name))
            views = (view for op in trace.run for view, root in needs[op.outputs[0]] if root == name)
            if any(rows_of(graph, view) != rows_of(graph, name) for view in views):  # it has to be whole
                slots = rows_of(graph, name)
            size = row_bytes(graph, name)
            streams.append(Stream(name, True, channel, count, size, slots, together=together))
            channel += 2
        for name in trace.results:
            if name not in held:
                rows, whole = rows_of(graph, name), self.cutter.rolling.modes[name] == "reduce"
                slots = rows if whole else min(rows, aligned(max(2 * together, trace.kept[name]), together))
                size = row_bytes(graph, name)
                streams.append(Stream(name, False, channel, rows, size, slots, whole, 0, 1 if whole else together))
                channel += 2
        return tuple(streams)

    def _chosen(self, op: Op, rolled: Rolled, together: int, shares: int) -> tuple[Form, tuple[Share, ...], float]:
        """Form and fastest kernels for rows within the limit of scratch, and cycles of one call of all cores."""
        rolling, graph = self.cutter.rolling, self.cutter.graph
        key = (op.outputs[0], rings_of(rolling, rolled, op), together, shares)
        if key not in self._row_kernels:
            choices = self.cutter.choices.in_run(op, rolled)
            most = self.room // SCRATCH_SHARE // (together * shares)
            choice = next((c for c in choices if c.scratch <= most), choices[-1])
            form, work, parts = choice.form, choice.cost - PER_ROW_CALL, None
            if rolling.modes[op.outputs[0]] != "reduce":
                parts = shared_row(op, graph, form, shares)
            if parts is not None:
                column = self.cutter.choices.default_instructions(op, form) / graph.result(op).shape[COLUMNS]
                whole, work = work, max(share.kernel.cost or column * share.width for share in parts)
                parts = None if work >= whole else parts
                work = min(work, whole)
            cycles = form.cycles_per_instruction * (work + PER_ROW_CALL) + (HANDOVER if self.cores > 1 else 0)
            self._row_kernels[key] = form, parts or (Share(kernel_of(op, graph, form)),), cycles
        return self._row_kernels[key]

    def _block(self, op: Op, form: Form, parts: tuple[Share, ...]) -> tuple[Constant, tuple[tuple[int, ...], ...]]:
        """The constants of an op's kernels in one block, equal ones once, and the offsets for each part."""
        every = tuple(tuple(share.kernel.constants) for share in parts)
        key = (op.outputs[0], form, tuple(tuple((c.name, id(c.data)) for c in constants) for constants in every))
        if key not in self._blocks:
            data, places = bytearray(), dict[object, int]()
            for constant in (c for constants in every for c in constants):
                if _content(constant) not in places:
                    data += bytes(-len(data) % max(4, constant.data.itemsize))
                    places[_content(constant)] = len(data)
                    data += np.ascontiguousarray(constant.data).tobytes()
            data += bytes(-len(data) % self.store.align)
            block = Constant("run", np.frombuffer(bytes(data), np.uint8), "constants of an op")
            self._blocks[key] = block, tuple(tuple(places[_content(c)] for c in constants) for constants in every)
        return self._blocks[key]

    def _cost(self, compute: float, calls: int, blocks: Sequence[Constant], streams: Sequence[Stream]) -> MappingCost:
        constants = sum(copy_cycles(self.store, 1, b.data.nbytes, 1) for b in blocks if b.data.nbytes)
        each = [copy_cycles(self.channel(s), 1, s.largest, 1) for s in streams]
        costs = tuple(
            OperandCost(s.storage, 1, s.slots, s.largest, s.copies, s.total, s.copies, cycles * s.copies)
            for s, cycles in zip(streams, each, strict=True)
        )
        return MappingCost(costs, max(1, calls), compute, constants, sum(o.cycles for o in costs), sum(each))
