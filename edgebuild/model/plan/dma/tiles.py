"""Ops in tiles: kernels and constants of a mapping's tiles, their places, and the copies in order.

Every operand and the result have one or two buffers in the first level. Double buffers are filled ahead: when a tile
comes into use, the copy of the next is started. A call waits for the copies that it needs, and until the buffer of its
result has been stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from ...ir import Graph, Op, Same, Window
from ...kernels import kernel_of
from ...ops.base import Constant, Form, Kernel, Ranges
from ..hierarchy.mapper import NoMapping, best, best_of, dory
from ..hierarchy.nest import Mapped, MappingCost, Operand, Range, TiledLayer, cost, parts_of
from ..printed import Copy, CoreWork, Operation, Region, TiledOp, Wait
from ..tiling.paths import even, graph_of_part, one_part

# A tile shared by cores: each computes a part of it, on operands that all of them see.
#
# A part takes its operands as pointers, so each has to be contiguous. Tiles are cut into even parts along the axis that
# makes most parts. Where that makes fewer parts than there are cores, parts are cut again.

HANDOVER = 100  # cycles to wake cores and to wait for them; an estimate that nothing here can measure
MAX_CORES = 16  # cores: EB_CORES_MOST of hal/include/eb_dma.h

Parts = tuple[Mapping[str, Range], ...]


def shared(layer: TiledLayer, turn: Mapping[str, Range], buffers: Sequence[Ranges], cores: int) -> Parts:
    """The parts of a turn, at most `cores`. `buffers`: ranges that each operand's buffer holds in this turn."""
    whole = {**turn, **{a: (0, layer.nest.extents[a]) for a in layer.core_axes if a not in turn}}
    parts: Parts = (whole,)
    for _ in layer.core_axes:
        each = cores // len(parts)
        if each < 2:
            break
        options = [_cut(layer, parts, axis, each, buffers) for axis in layer.core_axes]
        better = max(options, key=len, default=parts)
        if len(better) <= len(parts):
            break
        parts = better
    return parts if len(parts) > 1 else (turn,)  # an axis that is not cut needs all of an operand, unread ends as well


def _cut(layer: TiledLayer, parts: Parts, axis: str, count: int, buffers: Sequence[Ranges]) -> Parts:
    pieces = list[Mapping[str, Range]]()
    for part in parts:
        first, past = part[axis]
        cuts = [{**part, axis: (first + a, first + b)} for a, b in even(past - first, min(count, past - first))]
        sound = all(_contiguous(layer, cut, buffers) for cut in cuts)
        pieces += cuts if sound else [part]
    return tuple(pieces)


def _contiguous(layer: TiledLayer, part: Mapping[str, Range], buffers: Sequence[Ranges]) -> bool:
    """Whether each operand of a part is contiguous in its buffer, and none is empty."""
    for operand, held in zip(layer.operands, buffers, strict=True):
        merged = True
        for (first, past), (begin, end) in zip(reversed(layer.region(operand, part)), reversed(held), strict=True):
            if past <= first or (not merged and past - first > 1 and not operand.packed):
                return False
            merged = merged and (first, past) == (begin, end)
    return True


def busiest(layer: TiledLayer, cores: int) -> Callable[[Mapping[str, Any]], Any]:
    """The share of a tile's work on the busiest core, as a function of the lengths of its axes (numbers or arrays).

    The search, which has no buffers, assumes the best cut along one axis.
    """

    def share(lengths: Mapping[str, Any]) -> Any:
        least: Any = 1.0
        for axis in layer.core_axes if cores > 1 else ():
            n = lengths[axis]
            cut = 1.0
            for operand in layer.operands:
                cut = cut * (operand.packed or _outermost(layer, operand, axis, lengths))
            part = -(-n // cores) / n
            least = np.minimum(least, part * cut + (1 - cut))
        return least

    return share


def _outermost(layer: TiledLayer, operand: Operand, axis: str, lengths: Mapping[str, Any]) -> Any:
    """1.0 where all dimensions around an axis have one index, so that a cut leaves pieces contiguous; else 0.0."""
    outermost: Any = 1.0
    if axis not in operand.axes:
        return outermost
    for dim, size in zip(operand.dims, operand.sizes, strict=True):
        if dim.axis == axis:
            return outermost
        if isinstance(dim, Same):
            outermost = outermost * (lengths[dim.axis] == 1)
        elif isinstance(dim, Window):
            outermost = outermost * ((lengths[dim.axis] == 1) * (layer.nest.extents[dim.tap] == 1))
        else:
            outermost = outermost * (size == 1)
    return outermost


ALIGN = 8  # bytes, of buffers in the first level
WEIGHTS = "weights"
MAX_OPERANDS = 16  # of an op: two channels each, and a mask of channels has 32 bits
MAX_COPIES = 65535  # of an op: the tables count them in 16 bits


@dataclass(frozen=True, kw_only=True)
class MappedOp(TiledOp):
    """An op that runs tile by tile, with the mapping of its tiles and their cost. Held operands are read in place."""

    layer: TiledLayer
    mapped: Mapped
    cycles: MappingCost
    level1_bytes: int

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands of the layer; the result is the last."""
        return self.layer.operands

    @property
    def loops(self) -> list[dict[str, Any]]:
        """Loops over tiles, the outermost first: an axis and its extent, cut into `count` tiles of at most `tile`."""
        counts, extents = self.mapped.counts(self.layer), self.layer.nest.extents
        order, tile = self.mapped.order, self.mapped.tile
        return [{"axis": a, "extent": extents[a], "tile": tile[a], "count": counts[a]} for a in order]

    @property
    def engine(self) -> str:
        """Name of the engine that computes the op, or `cpu`."""
        return self.form.engine.name if self.form.engine is not None else "cpu"

    @property
    def at_operands(self) -> tuple[int, ...]:
        """The operand of each offset in `CoreWork.at`; the offsets after these are of constants."""
        return tuple(i for i, o in enumerate(self.operands) if not o.packed)

    def region(self, near: int) -> Region | None:
        """The scratchpad that an address belongs to."""
        return max((r for r in self.regions if r.base <= near), key=lambda r: r.base, default=None)

    def used(self, region: Region) -> int:
        """Bytes of a scratchpad that the tiles take."""
        copies = [c for c in self.copies if self.operands[c.channel // 2].space == region.memory]
        ends = (c.near + (c.rows - 1) * c.near_row + (c.planes - 1) * c.near_plane + c.bytes for c in copies)
        return max(ends, default=region.base) - region.base

    @property
    def copied(self) -> float:
        """Bytes of activations that are copied."""
        return sum(m.bytes for m, o in zip(self.cycles.operands, self.operands, strict=True) if not o.packed)

    @property
    def first_constants(self) -> tuple[float, int]:
        """Cycles that the op waits for its constants before its first call, and their bytes."""
        packed = next((i for i, o in enumerate(self.operands) if o.packed), None)
        if packed is None or len(self.blocks) != 1 or self.mapped.moves[packed].depth or self.operands[packed].held:
            return 0.0, 0
        size = self.blocks[0].data.nbytes
        one = parts_of(self.layer.operands[packed].channel, size) <= 1
        return (self.cycles.operands[packed].cycles, size) if one else (0.0, 0)

    def work_bytes(self, early: int) -> int:
        """Bytes of the first level, 0 on an engine. `early`: of prefetched constants, which are not among them."""
        return 0 if self.regions else self.level1_bytes

    def without_constants(self, graph: Graph, room: int) -> MappedOp:
        """The op with its constants in the first level already. Raises NoMapping if it no longer fits."""
        operands = tuple(replace(o, held=o.held or o.packed) for o in self.layer.operands)
        layer = replace(self.layer, operands=operands)
        return fitting(self.op, graph, layer, self.form, room, self.mapped).build()

    def placed(self, base: int, constants: int | None, held: Mapping[str, int]) -> MappedOp:
        """The op with its buffers from `base` on, prefetched constants at `constants`, held tensors at their addresses.

        Buffers in the scratchpads of an engine have their places already.
        """
        if self.regions:
            return self
        at = [(constants or 0 if o.packed else held[o.name]) if o.held else base for o in self.operands]
        return replace(self.shifted(at), scratch=self.scratch + base)

    def blocks_at(self, constants: int | None) -> list[tuple[Constant, int]]:
        """Blocks of prefetched constants, and their address; none if `constants` is None."""
        return [(block, constants) for block in self.blocks] if constants is not None else []

    def shifted(self, by: Sequence[int]) -> MappedOp:
        """The op with the buffers of operand i moved up by `by[i]` bytes."""
        packed = next((i for i, o in enumerate(self.operands) if o.packed), None)
        width = max(len(c.at) for c in self.calls)
        owners = (*self.at_operands, *[packed] * (width - len(self.at_operands)))
        shift = [by[i] if i is not None else 0 for i in owners]
        script = (tuple(_shifted(c, shift) for c in o) if isinstance(o, tuple) else o for o in self.script)
        copies = (replace(c, near=c.near + by[c.channel // 2]) for c in self.copies)
        return replace(self, script=tuple(script)).with_copies(copies)


def _shifted(call: CoreWork, shift: Sequence[int]) -> CoreWork:
    return replace(call, at=tuple(a + s for a, s in zip(call.at, shift, strict=False)))


def tile_kernel(op: Op, graph: Graph, turn: Mapping[str, Range], form: Form, kernels: dict[object, Kernel]) -> Kernel:
    """The kernel of an op's tile with the constants of that tile. `kernels`: cache for equal tiles."""
    part, wanted, out = one_part(graph, op, turn)
    sizes = tuple(tuple(past - first for first, past in r) for r in (*wanted, out))
    constant = tuple(r for r, n in zip(wanted, op.inputs, strict=True) if graph.tensors[n].constant)
    key = (sizes, constant, repr(sorted(part.attrs.items())))
    if key not in kernels:
        kernels[key] = kernel_of(*graph_of_part(op, graph, turn), replace(form, tile=True))
    return kernels[key]


def offsets(loops: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Far and near offsets of all pieces of nested loops (count, far step, near step), the innermost loop first."""
    if not loops:
        yield 0, 0
        return
    n, far, near = loops[-1]
    for i in range(n):
        for more in offsets(loops[:-1]):
            yield i * far + more[0], i * near + more[1]


def instances(mapped: Mapped, turns: Sequence[Mapping[str, Range]], depth: int) -> list[int]:
    """For each turn the number of the tile in use, from 0, of an operand that is copied inside `depth` loops."""
    numbers, last, number = [], None, -1
    for turn in turns:
        now = tuple(turn[a] for a in mapped.order[:depth])
        number += now != last
        last = now
        numbers.append(number)
    return numbers


ALIKE = 1.005  # times the least cycles: of mappings within it, the one of fewest copies is taken
UNITS = ((16, 16), (8, 8), (3, 16), (2, 32))  # multiples of pixels and channels for tiles, if kernels are slow
CHANNELS = 4  # that a core's kernel computes at once, where cores share channels
POOR = 1.1  # times a core's even share of the op's cycles: kernels that take more are slow
Unit = tuple[int, int]
TRIES = 6  # searches with less room, until the kernels of the tiles fit


def fitting(
    op: Op, graph: Graph, layer: TiledLayer, form: Form, room: int,
    mapped: Mapped | None = None, than: Sequence[Tiles] = (), unit: Unit | None = None,
) -> Tiles:  # fmt: skip
    """Tiles that fit into `room` bytes with the constants and scratch that their kernels really have.

    Raises NoMapping if none do, or if the search promises no less than one of `than` takes with its kernels: tiles
    never take less with their kernels than the search promises.
    """
    space = layer.operands[-1].space
    allowed, tiles = room, None
    for _ in range(TRIES):
        chosen, promised = (mapped, 0.0) if mapped else _promised(layer, {space: allowed}, unit)
        alike = (replace(other.mapped, examined=chosen.examined) == chosen for other in than)
        if any(promised >= ALIKE * other.figures.score for other in than) or any(alike):
            raise NoMapping(layer.name, {})
        tiles = Tiles(op, graph, layer, chosen, form)
        if tiles.level1_bytes <= room:
            return tiles
        allowed -= min(max(tiles.level1_bytes - room, room // 16), allowed // 2)
        mapped = None
    assert tiles is not None
    raise NoMapping(layer.name, {space: tiles.level1_bytes})


def _promised(layer: TiledLayer, room: Mapping[str, int], unit: Unit | None) -> tuple[Mapped, float]:
    """The best mapping and its score. `unit`: tiles have multiples of so many pixels per axis, and channels."""
    if unit is None:
        mapped, figures = best(layer, room)
    else:
        pixels, channels = unit
        sizes = ((layer.nest.extents[a], channels if a == layer.nest.out[-1] else pixels) for a in layer.axes)
        mapped, figures = best_of(layer, room, tuple((*range(step, n, step), n) for n, step in sizes))
    return mapped, figures.score


def cheapest_tiles(op: Op, graph: Graph, layer: TiledLayer, form: Form, room: int) -> MappedOp:
    """The op in the tiles whose kernels take least, of several good mappings. Raises NoMapping if no tile fits.

    The search counts all work alike. In kernels, borders, short rows and few channels cost more. So mappings that cut
    fewer axes, and that of DORY's rule, are evaluated with their kernels, too. If kernels are slow, so are mappings
    of larger tiles. Of those that take nearly the same, the one of fewest copies is taken, since tables of copies are
    flash; but none that takes more than DORY's.
    """
    tried, refused = list[Tiles](), list[NoMapping]()

    def attempt(cut: TiledLayer, mapped: Mapped | None = None, unit: Unit | None = None) -> None:
        try:
            tried.append(fitting(op, graph, cut, form, room, mapped, tried, unit))
        except NoMapping as reason:
            refused.append(reason)

    attempt(layer)
    rule = None
    if layer.estimated and layer.axes:
        with suppress(NoMapping):
            near = {layer.operands[-1].space: max(1, room - kernel_of(op, graph, form).scratch)}
            rule = dory(layer, near, True)[0] if all(not o.held for o in layer.operands) else None
        if rule:
            attempt(layer, rule)
        fewer = [layer.along(*axes) for n in range(1, len(layer.axes)) for axes in combinations(layer.axes, n)]
        for cut in fewer:
            attempt(cut)
        shared = ((1, CHANNELS * layer.cores),) if layer.cores > 1 else ()
        even_share = (layer.alone - layer.compute.call) / layer.cores
        for unit in (*shared, *UNITS):
            for cut in (layer, *(fewer if unit in shared else ())):
                if all(m.figures.compute > POOR * even_share for m in tried):
                    attempt(cut, None, unit)
    if not tried:
        raise refused[0]
    most = min([ALIKE * min(m.figures.score for m in tried), *(m.figures.score for m in tried if m.mapped is rule)])
    alike = [m for m in tried if m.figures.score <= most]
    return min(alike, key=lambda m: (sum(o.transfers for o in m.figures.operands), m.figures.score)).build()


class Tiles:
    """The tiles of an op, with their kernels and constants; `build` adds their copies."""

    def __init__(
        self, op: Op, graph: Graph, layer: TiledLayer, mapped: Mapped, form: Form, regions: tuple[Region, ...] = ()
    ) -> None:
        self.op, self.graph, self.layer, self.mapped, self.form = op, graph, layer, mapped, form
        self.regions = regions
        self.turns = list(mapped.turns(layer))
        self.kernel_cache: dict[object, Kernel] = graph.kernels.setdefault(("tiles", op.outputs[0], form), {})
        self.contents = dict[int, object]()  # by identity of constants: their types and bytes
        self.packed = next((i for i, o in enumerate(layer.operands) if o.packed), None)
        self.measure()

    def measure(self) -> None:
        """Compute parts, their kernels and constants, starts of buffers, bytes of the first level, and cycles."""
        layer, mapped = self.layer, self.mapped
        self.parts = [self.shares(turn) for turn in self.turns]
        self.kernels = [[self.kernel(part) for part in parts] for parts in self.parts]
        self.instances = [instances(mapped, self.turns, m.depth) for m in mapped.moves]
        self.blocks = self.constant_blocks()
        sizes = []
        for i, operand in enumerate(layer.operands):
            if operand.held:
                sizes.append(0)
            elif operand.name == WEIGHTS and operand.packed:
                sizes.append(max((b.data.nbytes for b, _ in self.blocks), default=0))
            else:
                regions = (self.region(i, turn) for turn in self.turns)
                sizes.append(max(prod(past - first for first, past in r) * operand.item for r in regions))
        self.starts, free = list[list[int]](), {r.memory: r.base for r in self.regions}
        for size, move, operand in zip(sizes, mapped.moves, layer.operands, strict=True):
            step, at = -(-size // layer.align) * layer.align, free.get(operand.space, 0)
            self.starts.append([0 if operand.held else at + b * step for b in range(move.buffers)])
            free[operand.space] = at + step * move.buffers
        self.scratch = max(free.values(), default=0)
        self.scratch_each = aligned(max((k.scratch for row in self.kernels for k in row), default=0))
        self.level1_bytes = self.scratch + self.scratch_each * max(map(len, self.kernels))
        self.figures = cost(layer, mapped)
        self.promised = self.figures.compute
        if layer.estimated and all(k.estimate for row in self.kernels for k in row):
            work = self.form.cycles_per_instruction * sum(max(k.cost for k in row) for row in self.kernels)
            self.figures = replace(self.figures, compute=work + layer.compute.call * len(self.turns))

    def build(self) -> MappedOp:
        kernels, numbers = dict[object, tuple[int, Kernel]](), dict[int, int]()  # by function, and by identity
        for kernel in (k for row in self.kernels for k in row):
            types = tuple(str(c.data.dtype) for c in kernel.constants)
            key = (kernel.template, tuple(sorted(kernel.shape.items())), types, tuple(kernel.scalars.items()))
            numbers[id(kernel)] = kernels.setdefault(key, (len(kernels), kernel))[0]
        moved = MappedOp(
            self.op, tuple(k for _, k in kernels.values()), tuple(b for b, _ in self.blocks), tuple(self.run(numbers)),
            self.scratch, self.scratch_each, self.form, self.regions,
            layer=self.layer, mapped=self.mapped, cycles=self.figures, level1_bytes=self.level1_bytes,
        )  # fmt: skip
        pending = set[int]()
        for o in moved.script:
            if isinstance(o, Copy):
                pending.add(o.channel)
            elif isinstance(o, Wait):
                pending.discard(o.channel)
        return replace(moved, script=(*moved.script, *map(Wait, sorted(pending))))

    def region(self, operand: int, turn: Mapping[str, Range]) -> Ranges:
        """Ranges of an operand that its buffer holds in a turn."""
        outer = self.mapped.order[: self.mapped.moves[operand].depth]
        return self.layer.region(self.layer.operands[operand], {a: turn[a] for a in outer})

    def shares(self, turn: Mapping[str, Range]) -> Parts:
        """The parts of a turn that cores make."""
        buffers = [self.region(i, turn) for i in range(len(self.layer.operands))]
        return shared(self.layer, turn, buffers, self.layer.cores)

    def kernel(self, turn: Mapping[str, Range]) -> Kernel:
        key = ("at", *sorted(turn.items()))
        if key not in self.kernel_cache:
            self.kernel_cache[key] = tile_kernel(self.op, self.graph, turn, self.form, self.kernel_cache)
        return self.kernel_cache[key]

    def content(self, constant: Constant) -> object:
        """Type and bytes of a constant, cached by its identity: `kernel_cache` keeps constants alive."""
        if id(constant) not in self.contents:
            data = str(constant.data.dtype), np.ascontiguousarray(constant.data).tobytes()
            self.contents[id(constant)] = data
        return self.contents[id(constant)]

    def constant_blocks(self) -> list[tuple[Constant, dict[object, int]]]:
        """Blocks of constants that are fetched together, and offsets of constants in each."""
        if self.packed is None:
            return []
        blocks: list[tuple[bytearray, dict[object, int]]] = []
        for instance, row in zip(self.instances[self.packed], self.kernels, strict=True):
            if instance == len(blocks):
                blocks.append((bytearray(), {}))
            data, where = blocks[instance]
            for constant in (c for kernel in row for c in kernel.constants):
                if (key := self.content(constant)) not in where:
                    data += bytes(-len(data) % max(4, constant.data.itemsize))
                    where[key] = len(data)
                    data += np.ascontiguousarray(constant.data).tobytes()
        align = self.layer.operands[self.packed].channel.align
        whole = [(bytes(d) + bytes(-len(d) % align), where) for d, where in blocks]
        return [(Constant("tile", np.frombuffer(d, np.uint8), "constants of tiles"), where) for d, where in whole]

    def run(self, numbers: Mapping[int, int]) -> Iterator[Operation]:
        """The script without its last waits. `numbers`: of kernels, by their identity."""
        moves, operands, result = self.mapped.moves, self.layer.operands, len(self.layer.operands) - 1
        for t, turn in enumerate(self.turns):
            here = [each[t] for each in self.instances]
            new = [t == 0 or n != each[t - 1] for n, each in zip(here, self.instances, strict=True)]
            for ahead in (0, 1):
                for i, operand in enumerate(operands):
                    number = here[i] + ahead
                    due = moves[i].buffers == 2 if ahead else moves[i].buffers == 1 or number == 0
                    if new[i] and not operand.result and not operand.held and due and number <= self.instances[i][-1]:
                        yield from self.fetch(i, number)
            for i, operand in enumerate(operands):
                if new[i] and not operand.held and (not operand.result or here[i] >= moves[i].buffers):
                    yield Wait(self.channel(i, here[i]))
            calls = []
            for part, kernel in zip(self.parts[t], self.kernels[t], strict=True):
                at = [self.place(i, turn, part, here[i]) for i, o in enumerate(operands) if not o.packed]
                if self.packed is not None:
                    base, inside = self.near(self.packed, here[self.packed]), self.blocks[here[self.packed]][1]
                    at += [base + inside[self.content(c)] for c in kernel.constants]
                calls.append(CoreWork(numbers[id(kernel)], tuple(at), part))
            yield tuple(calls)
            last = t + 1 == len(self.turns) or self.instances[result][t + 1] != here[result]
            if last and not operands[result].held:
                yield from self.move(result, here[result], self.region(result, turn))

    def channel(self, operand: int, number: int) -> int:
        return 2 * operand + number % self.mapped.moves[operand].buffers

    def near(self, operand: int, number: int) -> int:
        """Offset of the buffer that holds tile `number` of an operand."""
        return self.starts[operand][number % self.mapped.moves[operand].buffers]

    def place(self, operand: int, turn: Mapping[str, Range], part: Mapping[str, Range], number: int) -> int:
        """Offset of the part of a buffer that a call uses; the part is contiguous."""
        o, held = self.layer.operands[operand], self.region(operand, turn)
        at, size = self.near(operand, number), o.item
        for (first, past), (begin, _) in zip(reversed(held), reversed(self.layer.region(o, part)), strict=True):
            at += (begin - first) * size
            size *= past - first
        return at

    def fetch(self, operand: int, number: int) -> Iterator[Copy]:
        o, channel, near = self.layer.operands[operand], self.channel(operand, number), self.near(operand, number)
        if not o.packed:
            return self.move(operand, number, self.region(operand, self.turns[self.instances[operand].index(number)]))
        parts = o.channel.cut(self.blocks[number][0].data.nbytes)
        return (Copy(channel, True, "", number, first, near + first, part) for first, part in parts)

    def move(self, operand: int, number: int, region: Ranges) -> Iterator[Copy]:
        """The copies of a tile: one, or several if it has more than two dimensions of pieces."""
        o, near = self.layer.operands[operand], self.near(operand, number)
        far, piece, loops = (
            0,
            o.item,
            list[tuple[int, int, int]](),
        )  # of the loops: count, step far and near, inmost first
        merged, dense, step = True, o.item, o.item
        for (first, past), size in zip(reversed(region), reversed(o.sizes), strict=True):
            n = past - first
            far += first * step
            if merged:
                piece *= n
            elif n > 1:
                loops.append((n, step, dense))
            merged, dense, step = merged and n == size, dense * n, step * size
        (rows, far_row, near_row), (planes, far_plane, near_plane) = [*loops, (1, 0, 0), (1, 0, 0)][:2]
        for far_more, near_more in offsets(loops[2:]):
            yield Copy(self.channel(operand, number), not o.result, o.name, 0, far + far_more, near + near_more, piece,
                       rows, planes, far_row, far_plane, near_row, near_plane)  # fmt: skip


def aligned(size: int, align: int = ALIGN) -> int:
    return -(-size // align) * align
