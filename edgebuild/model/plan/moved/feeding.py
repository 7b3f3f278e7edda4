"""Rolled runs in the first memory level: the DMA feeds rows of operands ahead of their use and drains rows of results.

All rows that a run keeps, its constants and its scratch lie in the first level while it runs. An operand from outside
is a ring there with one row more than the run wants: the next row is under way while the last one is used. A result is
a ring of at least two rows: the one before is stored while the next is made. Tensors that stay in the first level
are read and written where they lie. Nothing is computed twice, and no tensor between two ops of the run is moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ...ir import Op
from ...kernels import kernel_of
from ...kernels.unstated import PER_ROW_CALL
from ...ops.base import Constant, Form, Kernel
from ..cuts import Cutter
from ..hierarchy.costs import copy_cycles
from ..hierarchy.nest import Channel
from ..printed import RowMoves, Share, Stream
from ..rolling import Rolled, calls, row_bytes, rows_of
from ..section import Section, rings_of
from .batches import Batches, batched, row_by_row
from .cores import HANDOVER
from .shares import COLUMNS, shared_row

ALIGN = 8  # bytes, of buffers in the first level
SCRATCH_SHARE = 4  # the part of the first level that a kernel may work on
STREAMS = 2  # the first channel of rows


@dataclass(frozen=True)
class RunCost:
    """Modelled cycles of a run. `constants`: of their copies, which the run waits for at its start."""

    compute: float
    constants: float
    beside: float  # copies of rows
    ends: float  # of which run before the first call and after the last
    calls: int
    each: Mapping[str, float]  # of the largest copy of each stream

    @property
    def total(self) -> float:
        return self.constants + max(self.compute + self.ends, self.beside + self.compute / max(1, self.calls))

    @property
    def slack(self) -> float:
        """Cycles in which the core computes and no copy runs."""
        return self.total - self.constants - self.beside


@dataclass(frozen=True, kw_only=True)
class FedRun(RowMoves):
    """A rolled run in the first level, with what it costs. `constant_bytes` come first there."""

    section: Section
    seen: Rolled
    constant_bytes: int
    cost: RunCost

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Of the first part of a row: all have its constants."""
        return tuple(parts[0].kernel for parts in self.parts)

    def placed(self, base: int, constants: int | None) -> FedRun:
        """The same with its bytes from `base` on; its constants from `constants` on, if they are fetched early."""
        first = base if constants is None else constants
        base = base if constants is None else base - self.constant_bytes
        return replace(
            self,
            prefetched=constants is not None,
            cost=self.cost if constants is None else replace(self.cost, constants=0.0),
            streams=tuple(replace(s, near=s.near + base) for s in self.streams),
            block_at=tuple(at + first for at in self.block_at),
            constants=tuple(tuple(at + first for at in row) for row in self.constants),
            places={name: at + base for name, at in self.places.items()},
            scratch={name: at + base for name, at in self.scratch.items()},
        )


@dataclass(frozen=True)
class Feeder:
    """Makes runs of an order of ops. `rate`: cycles of one call's work by op; None where kernels' estimates count."""

    cutter: Cutter
    home: Channel  # between the levels, for activations; those of `others` come another way
    store: Channel  # for constants
    room: int
    cores: int
    rates: Mapping[str, float | None]  # by result: cycles of the whole op, where the target states its rates
    others: Mapping[str, Channel] = field(default_factory=dict)  # by storage
    align: int = ALIGN  # of rings and constants in the first level

    def operands(self, start: int, stop: int) -> tuple[str, ...]:
        made = {op.outputs[0] for op in self.cutter.order[start:stop]}
        roots = (r for op in self.cutter.order[start:stop] for r, _ in self.cutter.rolling.operands[op.outputs[0]])
        return tuple(dict.fromkeys(r for r in roots if r not in made))

    def run(self, start: int, stop: int, held: frozenset[str], together: int = 1, shares: int = 1) -> FedRun | None:
        """The interval as a run of which the `held` tensors stay in the first level; None: it does not fit.

        Cores make `together` rows at once, each in `shares` parts where that can be. Its places count from 0.
        """
        rolling, graph = self.cutter.rolling, self.cutter.graph
        fed = tuple(name for name in self.operands(start, stop) if name not in held)
        trace = self._batched(start, stop, together).of(self.operands(start, stop), fed)
        streams = self._streams(trace, fed, held, together)
        rings = {n: rows for n, rows in trace.rings.items() if n not in fed}
        rings |= {s.storage: s.slots for s in streams}
        results = trace.results
        operands = self.operands(start, stop)
        least = sum(rows * row_bytes(graph, name) for name, rows in rings.items())
        if least > self.room:
            return None
        seen = Rolled(rolling, trace.run, rings, {}, results, operands, {}, trace.counts, fed)
        chosen = [self._chosen(op, seen, together, shares) for op in trace.run]
        parts = tuple(found for _, found, _ in chosen)
        formed = zip(trace.run, chosen, strict=True)
        blocks, inside = zip(*(self._block(op, form, found) for op, (form, found, _) in formed), strict=True)
        at, block_at = 0, []
        for block in blocks:
            block_at.append(at)
            at += self._aligned(block.data.nbytes)
        constant_bytes, places, scratch = at, dict[str, int](), dict[str, int]()
        for name, rows in rings.items():
            places[name] = at
            at += self._aligned(rows * row_bytes(graph, name))
        shared, sizes = at, [max(share.kernel.scratch for share in found) for found in parts]
        for op, size in zip(trace.run, sizes, strict=True):
            if size and rolling.modes[op.outputs[0]] != "reduce":
                scratch[op.outputs[0]] = shared
                at = max(at, shared + together * shares * _aligned(size))
        for op, size in zip(trace.run, sizes, strict=True):
            if size and op.outputs[0] not in scratch:  # sums, which stand from the first call to the last
                scratch[op.outputs[0]] = at
                at += _aligned(size)
        if at > self.room or not self._copied(streams, blocks):
            return None
        streams = tuple(replace(s, near=places[s.storage]) for s in streams)
        inner = {n: rows for n, rows in rings.items() if all(s.storage != n for s in streams)}
        within_bytes = {n: self._aligned(rows * row_bytes(graph, n)) for n, rows in inner.items()}
        spans = dict.fromkeys(inner, (0, len(trace.run) - 1))
        forms = tuple(form for form, _, _ in chosen)
        within = replace(seen, rings=inner)
        section = Section(trace.run, within, operands, results, forms, within_bytes, spans)
        absolute = tuple(tuple(b + offset for offset in offsets) for b, offsets in zip(block_at, inside, strict=True))
        calls_ = [trace.calls(number) for number in range(len(trace.run))]
        compute = sum(n * cycles for n, (_, _, cycles) in zip(calls_, chosen, strict=True))
        cost = self._cost(compute, sum(calls_), blocks, streams)
        held = held & {*operands, *results}
        return FedRun(
            section=section, seen=seen, counts=trace.counts[: len(trace.run)], parts=parts, streams=streams, held=held,
            blocks=blocks, block_at=tuple(block_at), constants=absolute, places={n: places[n] for n in inner},
            scratch=scratch, scratch_each=tuple(map(_aligned, sizes)), near_bytes=at, events=trace.order,
            together=together, shares=shares, prefetched=False, stage="", stage_at=(), constant_bytes=constant_bytes,
            cost=cost,
        )  # fmt: skip

    def _batched(self, start: int, stop: int, together: int) -> Batches:
        """The run with all of its operands fed."""
        key, rolling, fed = (start, stop, together), self.cutter.rolling, self.operands(start, stop)
        if (start, stop, 1) not in self._runs:
            self._runs[start, stop, 1] = row_by_row(rolling, self.cutter.order[start:stop], fed)
        if key not in self._runs:
            self._runs[key] = batched(rolling, self._runs[start, stop, 1], fed, together)
        return self._runs[key]

    @cached_property
    def _runs(self) -> dict[tuple[int, int, int], Batches]:
        return {}

    def way(self, stream: Stream) -> Channel:
        return self.others.get(stream.storage, self.home)

    def _aligned(self, size: int) -> int:
        return -(-size // self.align) * self.align

    def _copied(self, streams: tuple[Stream, ...], blocks: tuple[Constant, ...]) -> bool:
        """Whether the channels can do all copies."""
        sizes = [(self.way(s), s.total if s.whole else size) for s in streams for size in (s.bytes, s.most)]
        sizes += [(self.store, b.data.nbytes) for b in blocks]
        return all(size % c.align == 0 and (not c.largest or size <= c.largest) for c, size in sizes)

    def _streams(self, trace: Batches, fed: tuple[str, ...], held: frozenset[str], together: int) -> tuple[Stream, ...]:
        """Rings of whole copies, so that none is cut in two by a ring's end."""
        graph, found, channel = self.cutter.graph, list[Stream](), STREAMS
        for name, taken in zip(fed, trace.counts[len(trace.run) :], strict=True):
            slots = min(_multiple(trace.rings[name], together) + together, rows_of(graph, name))
            if self._read_otherwise(trace, name):
                slots = rows_of(graph, name)
            size = row_bytes(graph, name)
            found.append(Stream(name, True, channel, taken, size, slots, together=together))
            channel += 2
        for name in trace.results:
            if name not in held:
                rows, whole = rows_of(graph, name), self.cutter.rolling.modes[name] == "reduce"
                slots = rows if whole else min(rows, _multiple(max(2 * together, trace.kept[name]), together))
                size = row_bytes(graph, name)
                found.append(Stream(name, False, channel, rows, size, slots, whole, 0, 1 if whole else together))
                channel += 2
        return tuple(found)

    def _read_otherwise(self, trace: Batches, storage: str) -> bool:
        """Whether somebody reads a view whose rows are not those of the storage: it has to be there whole."""
        graph, needs = self.cutter.graph, self.cutter.rolling.needs
        views = (name for op in trace.run for name, root, _ in needs[op.outputs[0]] if root == storage)
        return any(rows_of(graph, name) != rows_of(graph, storage) for name in views)

    def _chosen(self, op: Op, seen: Rolled, together: int, shares: int) -> tuple[Form, tuple[Share, ...], float]:
        """The fastest kernels for rows that work on little, and the cycles of a call of all cores."""
        rolling, graph = self.cutter.rolling, self.cutter.graph
        key = (op.outputs[0], rings_of(rolling, seen, op), together, shares)
        if key not in self._known:
            choices = self.cutter.choices.in_run(op, seen)
            most = self.room // SCRATCH_SHARE // (together * shares)
            choice = next((c for c in choices if c.scratch <= most), choices[-1])
            form, work, parts = choice.form, choice.instructions - PER_ROW_CALL, None
            if rolling.modes[op.outputs[0]] != "reduce":
                parts = shared_row(op, graph, form, shares)
            if parts is not None:
                whole, work = work, max(share.kernel.estimate for share in parts)
                parts = None if work >= whole else parts
                work = min(work, whole)
            rate = self.rates[op.outputs[0]]
            if rate is not None:
                work = rate / calls(rolling, op) * self.cores  # it is that of all cores together
                work *= parts[0].width / graph.result(op).shape[COLUMNS] if parts is not None else 1
            call = PER_ROW_CALL + (HANDOVER if self.cores > 1 else 0)
            self._known[key] = form, parts or (Share(kernel_of(op, graph, form)),), work + call
        return self._known[key]

    @cached_property
    def _known(self) -> dict[object, tuple[Form, tuple[Share, ...], float]]:
        return {}

    def _block(self, op: Op, form: Form, parts: tuple[Share, ...]) -> tuple[Constant, tuple[int, ...]]:
        """The constants of an op's kernels one after the other, and where each begins."""
        kernel = parts[0].kernel
        key = (op.outputs[0], form, tuple((c.name, id(c.data)) for c in kernel.constants))
        if key not in self._blocks:
            data, offsets = bytearray(), list[int]()
            for constant in kernel.constants:
                data += bytes(-len(data) % max(4, constant.data.itemsize))
                offsets.append(len(data))
                data += np.ascontiguousarray(constant.data).tobytes()
            data += bytes(-len(data) % self.store.align)
            block = Constant("run", np.frombuffer(bytes(data), np.uint8), "constants of an op")
            self._blocks[key] = block, tuple(offsets)
        return self._blocks[key]

    @cached_property
    def _blocks(self) -> dict[object, tuple[Constant, tuple[int, ...]]]:
        return {}

    def _cost(self, compute: float, count: int, blocks: tuple[Constant, ...], streams: tuple[Stream, ...]) -> RunCost:
        constants = sum(copy_cycles(self.store, 1, b.data.nbytes, 1) for b in blocks if b.data.nbytes)
        each = {s.storage: copy_cycles(self.way(s), 1, s.total if s.whole else s.most, 1) for s in streams}
        beside = sum(each[s.storage] * s.copies for s in streams)
        return RunCost(compute, constants, beside, sum(each.values()), count, each)


def _multiple(rows: int, together: int) -> int:
    return -(-rows // together) * together


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
