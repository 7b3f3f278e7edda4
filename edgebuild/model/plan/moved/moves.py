"""Ops whose operands move by DMA: which copies are started when, which call waits for what, and where tiles lie.

Every operand and the result have one or two buffers in the first level. Double buffers are filled ahead: when a tile is
taken into use, the copy of the next is started. A call waits for the copies that it needs, and for a result's buffer to
have been stored. The `replay` of a plan runs exactly these events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from ...ir import Graph, Op
from ...kernels import kernel_of
from ...ops.base import Constant, Form, Kernel, Ranges
from ..hierarchy.baselines import dory
from ..hierarchy.costs import Cost, cost
from ..hierarchy.nest import Layer, Mapped, Range
from ..hierarchy.search import NoMapping, best
from .cores import Parts, shared
from .parts import instances, offsets, tile_kernel

ALIGN = 8  # bytes, of buffers in the first level
WEIGHTS = "weights"
MOST_OPERANDS = 16  # of an op: two channels each, and a mask of channels has 32 bits
MOST_COPIES = 65535  # of an op: the tables count them in 16 bits
TRIES = 6  # searches with less room, until the kernels of the tiles fit


@dataclass(frozen=True)
class Copy:
    """A copy between a tensor, or a block of constants, and the first level: planes x rows pieces of `bytes`.

    `far` counts from the tensor's or the block's first byte, `near` from that of the layer's buffers. Steps in bytes.
    """

    channel: int
    fetch: bool
    tensor: str  # empty: constants
    block: int
    far: int
    near: int
    bytes: int
    rows: int = 1
    planes: int = 1
    far_row: int = 0
    far_plane: int = 0
    near_row: int = 0
    near_plane: int = 0

    @property
    def total(self) -> int:
        return self.bytes * self.rows * self.planes


@dataclass(frozen=True)
class Call:
    """The work of a core in a turn: number of the kernel, and the ranges of the result that it makes.

    `at`: where each operand that is an activation, the result, and each constant of the kernel lie, from the first byte
    of the layer's buffers.
    """

    kernel: int
    at: tuple[int, ...]
    ranges: Mapping[str, Range]


@dataclass(frozen=True)
class Turn:
    """Copies up to number `fetched` are started, `waits` (channels) awaited, calls made, then copies up to `stored`.

    Each core makes one of the calls.
    """

    fetched: int
    waits: tuple[int, ...]
    calls: tuple[Call, ...]
    stored: int


@dataclass(frozen=True)
class Region:
    """A memory that tiles lie in: its part of the addresses `near`, from `base` on."""

    memory: str
    base: int
    bytes: int


@dataclass(frozen=True)
class MovedLayer:
    """An op that runs tile by tile. `blocks` are runs of constants that are fetched together.

    Operands that are held are read where they lie. Until all is `placed`, places in a turn count from where their
    operand begins.
    """

    op: Op
    layer: Layer
    mapped: Mapped
    cost: Cost
    kernels: tuple[Kernel, ...]
    blocks: tuple[Constant, ...]
    copies: tuple[Copy, ...]
    turns: tuple[Turn, ...]
    near_bytes: int
    scratch: int  # where the scratch of the first core's kernels lies; that of the others behind it
    scratch_each: int  # bytes of a core's
    form: Form  # of the kernels
    last_waits: tuple[int, ...]  # channels to wait for at the end
    regions: tuple[Region, ...] = ()  # the scratchpads of an engine; none: all lies in the first level
    why: str = "tiles by DMA"

    @property
    def engine(self) -> str:
        """Name of the engine that computes the op, or `cpu`."""
        return self.form.engine.name if self.form.engine is not None else "cpu"

    def region(self, near: int) -> Region | None:
        """The scratchpad that an address belongs to."""
        return max((r for r in self.regions if r.base <= near), key=lambda r: r.base, default=None)

    @property
    def at_operands(self) -> tuple[int, ...]:
        """The operand that each place of a turn belongs to; those behind them are of constants."""
        return tuple(i for i, o in enumerate(self.layer.operands) if not o.packed)

    def placed(self, base: int, held: Mapping[int, int]) -> MovedLayer:
        """The same with its buffers from `base` on, and operands that are held (by number) where they lie."""
        packed = next((i for i, o in enumerate(self.layer.operands) if o.packed), -1)
        width = max(len(c.at) for t in self.turns for c in t.calls)
        owners = (*self.at_operands, *[packed] * (width - len(self.at_operands)))
        shift = [held.get(i, base) for i in owners]
        turns = [replace(t, calls=tuple(_shifted(c, shift) for c in t.calls)) for t in self.turns]
        copies = [replace(c, near=c.near + base) for c in self.copies]
        return replace(self, copies=tuple(copies), turns=tuple(turns), scratch=self.scratch + base)


def moved_layer(op: Op, graph: Graph, layer: Layer, form: Form, room: int, mapped: Mapped | None = None) -> MovedLayer:
    """The op in tiles that fit into `room` bytes with the constants and scratch that their kernels really have.

    Raises NoMapping where no tile fits.
    """
    space = layer.operands[-1].space
    allowed, found = room, None
    for _ in range(TRIES):
        chosen = mapped or best(layer, {space: allowed})[0]
        found = _Tiles(op, graph, layer, chosen, form).build()
        if found.near_bytes <= room:
            return found
        allowed -= max(found.near_bytes - room, room // 16)
        mapped = None
    assert found is not None
    raise NoMapping(layer.name, {space: found.near_bytes})


def cheapest_layer(op: Op, graph: Graph, layer: Layer, form: Form, room: int) -> MovedLayer:
    """The op in the tiles whose kernels take least, of several good mappings. Raises NoMapping where no tile fits.

    The search holds all work for equal. Kernels do not: borders and short rows cost more. So mappings that cut one
    axis, and the one of DORY's rule, are made into kernels as well.
    """
    found = [moved_layer(op, graph, layer, form, room)]
    if layer.estimated and layer.axes:
        with suppress(NoMapping):
            near = {layer.operands[-1].space: max(1, room - kernel_of(op, graph, form).scratch)}
            mapped = dory(layer, near, True)[0] if all(not o.held for o in layer.operands) else None
            found += [moved_layer(op, graph, layer, form, room, mapped)] if mapped else []
        for axis in layer.axes if len(layer.axes) > 1 else ():
            with suppress(NoMapping):
                found.append(moved_layer(op, graph, replace(layer, axes=(axis,)), form, room))
    return min((m for m in found), key=lambda m: (m.cost.total, len(m.copies)))


def tiles_of(op: Op, graph: Graph, layer: Layer, mapped: Mapped, form: Form, regions: tuple[Region, ...]) -> MovedLayer:
    """The op in the tiles of a mapping, with its operands in the scratchpads of an engine."""
    return _Tiles(op, graph, layer, mapped, form, regions).build()


class _Tiles:
    """The tiles of an op, with their kernels and copies, as they are made."""

    def __init__(
        self, op: Op, graph: Graph, layer: Layer, mapped: Mapped, form: Form, regions: tuple[Region, ...] = ()
    ) -> None:
        self.op, self.graph, self.layer, self.mapped, self.form = op, graph, layer, mapped, form
        self.regions = regions
        self.turns = list(mapped.turns(layer))
        self.known: dict[object, Kernel] = graph.kernels.setdefault(("tiles", op.outputs[0], form), {})
        self.kernels: dict[object, int] = {}
        self.numbers, self.contents = dict[int, int](), dict[int, int]()  # by identity of kernels, and of constants
        self.same: dict[object, int] = {}
        self.chosen: list[Kernel] = []
        self.copies: list[Copy] = []

    def build(self) -> MovedLayer:
        layer, mapped = self.layer, self.mapped
        self.parts = [self.shares(turn) for turn in self.turns]
        made = [[self.kernel(part) for part in parts] for parts in self.parts]
        self.instances = [instances(mapped, self.turns, m.depth) for m in mapped.moves]
        blocks = self.blocks(made)
        sizes = []
        for i, operand in enumerate(layer.operands):
            if operand.held:
                sizes.append(0)
            elif operand.name == WEIGHTS and operand.packed:
                sizes.append(max((b.data.nbytes for b, _ in blocks), default=0))
            else:
                sizes.append(max(_bytes(layer, i, self.region(i, turn)) for turn in self.turns))
        starts, free = list[list[int]](), {r.memory: r.base for r in self.regions}
        for size, move, operand in zip(sizes, mapped.moves, layer.operands, strict=True):
            step, at = -(-size // ALIGN) * ALIGN, free.get(operand.space, 0)
            starts.append([0 if operand.held else at + b * step for b in range(move.buffers)])
            free[operand.space] = at + step * move.buffers
        at = max(free.values(), default=0)
        turns = list(self.run(starts, blocks, made))
        scratch = _aligned(max((k.scratch for row in made for k in row), default=0))
        figures = cost(layer, mapped)
        if layer.estimated and all(k.estimate for row in made for k in row):
            work = sum(max(k.estimate for k in row) for row in made) + layer.compute.call * len(turns)
            figures = replace(figures, compute=work)
        return MovedLayer(
            self.op, layer, mapped, figures, tuple(self.chosen), tuple(b for b, _ in blocks),
            tuple(self.copies), tuple(turns), at + scratch * max(map(len, made)), at, scratch, self.form,
            tuple(sorted({c.channel for c in self.copies})), self.regions,
        )  # fmt: skip

    def region(self, operand: int, turn: Mapping[str, Range]) -> Ranges:
        """Content of the buffer of an operand in a turn."""
        outer = self.mapped.order[: self.mapped.moves[operand].depth]
        return self.layer.region(self.layer.operands[operand], {a: turn[a] for a in outer})

    def shares(self, turn: Mapping[str, Range]) -> Parts:
        """The parts of a turn that cores make."""
        buffers = [self.region(i, turn) for i in range(len(self.layer.operands))]
        return shared(self.layer, turn, buffers, self.layer.cores)

    def kernel(self, turn: Mapping[str, Range]) -> Kernel:
        return tile_kernel(self.op, self.graph, turn, self.form, self.known)

    def number(self, kernel: Kernel) -> int:
        """Equal kernels have one number. Kernels stay known, so that their identity stands for them."""
        if id(kernel) not in self.numbers:
            self.numbers[id(kernel)] = self._number(kernel)
        return self.numbers[id(kernel)]

    def _number(self, kernel: Kernel) -> int:
        types = tuple(str(c.data.dtype) for c in kernel.constants)
        key = (kernel.template, tuple(sorted(kernel.shape.items())), types, tuple(kernel.scalars.items()))
        if key not in self.kernels:
            self.kernels[key] = len(self.chosen)
            self.chosen.append(kernel)
        return self.kernels[key]

    def content(self, constant: Constant) -> object:
        """Type and bytes of a constant."""
        if id(constant) not in self.contents:
            found = str(constant.data.dtype), np.ascontiguousarray(constant.data).tobytes()
            self.contents[id(constant)] = self.same.setdefault(found, len(self.same))
        return self.contents[id(constant)]

    def blocks(self, made: Sequence[Sequence[Kernel]]) -> list[tuple[Constant, dict[object, int]]]:
        """Constants that are fetched at a time, and where each lies in the buffer."""
        weights = [i for i, o in enumerate(self.layer.operands) if o.packed]
        if not weights:
            return []
        found: list[tuple[bytearray, dict[object, int]]] = []
        for instance, row in zip(self.instances[weights[0]], made, strict=True):
            if instance == len(found):
                found.append((bytearray(), {}))
            data, where = found[instance]
            for constant in (c for kernel in row for c in kernel.constants):
                if (key := self.content(constant)) not in where:
                    data += bytes(-len(data) % max(4, constant.data.itemsize))
                    where[key] = len(data)
                    data += np.ascontiguousarray(constant.data).tobytes()
        return [(Constant("tile", np.frombuffer(bytes(d), np.uint8), "constants of tiles"), w) for d, w in found]

    def run(
        self,
        starts: Sequence[Sequence[int]],
        blocks: Sequence[tuple[Constant, dict[object, int]]],
        made: Sequence[Sequence[Kernel]],
    ) -> Iterator[Turn]:
        """The turns; appends their copies."""
        moves, operands = self.mapped.moves, self.layer.operands
        for t, turn in enumerate(self.turns):
            new = [t == 0 or self.instances[i][t] != self.instances[i][t - 1] for i in range(len(operands))]
            waits = []
            for ahead in (0, 1):
                for i, operand in enumerate(operands):
                    number = self.instances[i][t] + ahead
                    due = moves[i].buffers == 2 if ahead else moves[i].buffers == 1 or number == 0
                    if new[i] and not operand.result and not operand.held and due and number <= self.instances[i][-1]:
                        self.fetch(i, number, starts[i][number % moves[i].buffers], blocks)
            fetched = len(self.copies)
            for i, operand in enumerate(operands):
                number = self.instances[i][t]
                if new[i] and not operand.held and (not operand.result or number >= moves[i].buffers):
                    waits.append(self.channel(i, number))
            calls = []
            for part, kernel in zip(self.parts[t], made[t], strict=True):
                at = [self.place(i, turn, part, starts[i][self.instances[i][t] % moves[i].buffers])
                      for i, o in enumerate(operands) if not o.packed]  # fmt: skip
                at += self.constants(t, starts, blocks, kernel)
                calls.append(Call(self.number(kernel), tuple(at), part))
            result = len(operands) - 1
            last = t + 1 == len(self.turns) or self.instances[result][t + 1] != self.instances[result][t]
            if last and not operands[result].held:
                number = self.instances[result][t]
                near = starts[result][number % moves[result].buffers]
                self.move(result, number, self.region(result, turn), near)
            yield Turn(fetched, tuple(waits), tuple(calls), len(self.copies))

    def channel(self, operand: int, number: int) -> int:
        return 2 * operand + number % self.mapped.moves[operand].buffers

    def place(self, operand: int, turn: Mapping[str, Range], part: Mapping[str, Range], start: int) -> int:
        """Where a call finds its part of a buffer: contiguous, as the search asked for."""
        o, held = self.layer.operands[operand], self.region(operand, turn)
        at, size = 0, o.item
        for (first, past), (begin, _) in zip(reversed(held), reversed(self.layer.region(o, part)), strict=True):
            at += (begin - first) * size
            size *= past - first
        return start + at

    def constants(
        self,
        t: int,
        starts: Sequence[Sequence[int]],
        blocks: Sequence[tuple[Constant, dict[object, int]]],
        kernel: Kernel,
    ) -> list[int]:
        for i, operand in enumerate(self.layer.operands):
            if operand.packed:
                number = self.instances[i][t]
                base = starts[i][number % self.mapped.moves[i].buffers]
                return [base + blocks[number][1][self.content(c)] for c in kernel.constants]
        return []

    def fetch(self, operand: int, number: int, near: int, blocks: Sequence[tuple[Constant, dict[object, int]]]) -> None:
        if self.layer.operands[operand].packed:
            size = blocks[number][0].data.nbytes
            if size:
                self.copies.append(Copy(self.channel(operand, number), True, "", number, 0, near, size))
            return
        turn = self.turns[self.instances[operand].index(number)]
        self.move(operand, number, self.region(operand, turn), near)

    def move(self, operand: int, number: int, region: Ranges, near: int) -> None:
        """The copies of a tile: one, or several if it has more than two dimensions of pieces."""
        o = self.layer.operands[operand]
        sizes, steps = list(o.sizes), [o.item] if o.sizes else []
        for size in reversed(sizes[1:]):
            steps.insert(0, steps[0] * size)
        far = sum(first * step for (first, _), step in zip(region, steps, strict=True))
        piece, loops = o.item, list[tuple[int, int, int]]()  # of the loops: count, step far and near, inmost first
        merged, dense = True, o.item
        for (first, past), size, step in zip(reversed(region), reversed(sizes), reversed(steps), strict=True):
            n = past - first
            if merged:
                piece *= n
            elif n > 1:
                loops.append((n, step, dense))
            merged, dense = merged and n == size, dense * n
        inner = [*loops, (1, 0, 0), (1, 0, 0)][:2]
        for far_more, near_more in offsets(loops[2:]):
            (rows, far_row, near_row), (planes, far_plane, near_plane) = inner
            self.copies.append(
                Copy(self.channel(operand, number), not o.result, o.name, 0, far + far_more, near + near_more, piece,
                     rows, planes, far_row, far_plane, near_row, near_plane)
            )  # fmt: skip


def _shifted(call: Call, shift: Sequence[int]) -> Call:
    return replace(call, at=tuple(a + s for a, s in zip(call.at, shift, strict=False)))


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def _bytes(layer: Layer, operand: int, region: Ranges) -> int:
    return prod(past - first for first, past in region) * layer.operands[operand].item
