"""Copies of constants and cache operations between steps, and copies of tiles through the second level.

If no DMA unit joins their store with the first level, constants pass through the second. All constants of a step lie
there at once, from before an earlier step on, if there is room and time. If they do not fit at once, they come block by
block into slots while the step runs.

A DMA unit bypasses the core's cache. So lines that the core writes are cleaned at once: a DMA unit then reads the new
bytes, and no later write-back destroys what a DMA unit has written. Lines that a DMA unit wrote are invalidated before
the core reads them. Buffers in cached memories take whole lines.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np

from ....base.target import Memory, Target
from ...ops.base import Constant
from .. import printed
from ..hierarchy.nest import Channel, copy_cycles, parts_of
from ..memory.problem import DoesNotFit, Place
from ..rolling import RollingGraph
from ..section import Section
from .levels import channel_between
from .tiles import ALIGN, MappedOp, aligned


def hidden_before(
    until: int, cycles: float, size: int, slack: list[float], load: Sequence[int], room: int, least: int = 0
) -> tuple[int, float]:
    """The step before which a copy of `cycles` begins, and how many of its cycles are hidden behind earlier steps.

    It begins as late as it can be done before step `until`. If time is short, it begins as early as `room` has `size`
    bytes more than the `load` of each step, but not before step `least`. The cycles it uses are taken off `slack`.
    """
    first, time = until, 0.0
    while first > least and time < cycles and load[first - 1] + size <= room:
        first -= 1
        time += slack[first]
    hidden = left = min(cycles, time)
    for step in range(first, until):
        used = min(left, slack[step])
        slack[step], left = slack[step] - used, left - used
    return first, hidden


@dataclass(frozen=True)
class StepConstants:
    """Constants of a step: bytes of its blocks in the order of use, and of all different ones together.

    `until`: the step before which their copies to the first level begin. `cycles`: of the step.
    """

    blocks: tuple[int, ...]
    bytes: int
    until: int
    cycles: float

    @property
    def slot(self) -> int:
        return aligned(max(self.blocks, default=0))

    @property
    def least(self) -> int:
        """Least bytes of the second level that they need: all at once, or slots."""
        whole = aligned(self.bytes)
        return whole if len(self.blocks) <= printed.SLOTS else min(whole, printed.SLOTS * self.slot)


@dataclass(frozen=True)
class Staging:
    """Copies of a step's constants to the second level, where they take `bytes` from step `first` to step `step`.

    `slots`: number of slots that blocks use in turn; 0: all lie there at once. `waited`: cycles that the step waits.
    """

    step: int
    first: int
    until: int
    slots: int
    bytes: int
    waited: float


def staging_channel(target: Target, near: Memory, home: Memory, store: Memory) -> Channel | None:
    """The channel from the store to the second level if constants have to pass through it; else None."""
    if channel_between(target, near, store) is not None or channel_between(target, near, home) is None:
        return None
    return channel_between(target, home, store)


def step_constants(blocks: Sequence[Constant], in_turn: bool, until: int, cycles: float) -> StepConstants | None:
    """The constants of a step with these blocks, used `in_turn`, or all from its start; None if they are empty."""
    whole, sizes = joined_blocks(blocks)[0].data.nbytes, tuple(b.data.nbytes for b in blocks)
    return StepConstants(sizes if in_turn else (whole,), whole, until, cycles) if whole else None


def joined_blocks(blocks: Sequence[Constant]) -> tuple[Constant, tuple[int, ...]]:
    """The blocks concatenated, equal ones once, and the offset of each block."""
    data, begins, starts = bytearray(), dict[bytes, int](), list[int]()
    for block in blocks:
        content = block.data.tobytes()
        if content not in begins:
            data += bytes(-len(data) % ALIGN)
            begins[content] = len(data)
            data += content
        starts.append(begins[content])
    return Constant("stage", np.frombuffer(bytes(data), np.uint8), "constants of a step"), tuple(starts)


def copied(channel: Channel, size: int) -> float:
    """Cycles of copying `size` bytes, in as many copies as the channel needs."""
    return copy_cycles(channel, parts_of(channel, size), size, parts_of(channel, size)) if size else 0.0


def schedule_stagings(
    steps: Sequence[StepConstants | None],
    busy: Sequence[float],
    live: Sequence[int],
    channel: Channel,
    room: int,
    memory: str,
    earlier: int | None = None,
) -> tuple[Staging, ...]:
    """Stage each step's constants as late as it need not wait for them, or as early as room allows.

    `busy`: cycles of each step, in which the DMA unit of the store has time. `live`: bytes of activations in the second
    level in each step; `room`: bytes of that level. `earlier`: most steps by which constants come before their own.

    Raises DoesNotFit if a step's constants do not fit even block by block.
    """
    load, slack, stagings = list(live), list(busy), list[Staging]()
    for at, step in enumerate(steps):
        if step is None:
            continue
        inside, slots, need, cycles = 0.0, 0, aligned(step.bytes), copied(channel, step.bytes)
        if max(load[step.until : at + 1]) + need > room:
            slots, need = printed.SLOTS, printed.SLOTS * step.slot
            if len(step.blocks) <= printed.SLOTS or max(load[step.until : at + 1]) + need > room:
                most = max(load[step.until : at + 1]) + min(need, aligned(step.bytes))
                raise DoesNotFit(memory, most, room, (f"constants of step {at}",), False)
            cycles = sum(copied(channel, size) for size in step.blocks[: printed.SLOTS])
            rest = sum(copied(channel, size) for size in step.blocks[printed.SLOTS :])
            inside = max(0.0, rest - step.cycles)
            slack[at] = max(0.0, slack[at] - rest)
        least = 0 if earlier is None else max(0, step.until - earlier)
        first, hidden = hidden_before(step.until, cycles, need, slack, load, room, least)
        for i in range(first, at + 1):
            load[i] += need
        stagings.append(Staging(at, first, step.until, slots, need, cycles - hidden + inside))
    return tuple(stagings)


@dataclass(frozen=True)
class Fetch:
    """A copy of constants that begins before step `first`, and is awaited before step `until`."""

    first: int
    until: int
    start: printed.Start


def first_copies(
    staging: Staging, blocks: Sequence[Constant], place: Place, store: Channel, started: int
) -> tuple[Fetch, ...]:
    """Copies to the second level before steps: of all constants, or of the first blocks, one for each slot.

    `started`: number of such copies so far, since channels are used in turn.
    """
    if staging.slots:
        each = staging.bytes // staging.slots
        parts = [(block, place.offset + i * each) for i, block in enumerate(blocks[: staging.slots])]
    else:
        parts = [(joined_blocks(blocks)[0], place.offset)]
    fetches = list[Fetch]()
    for block, at in parts:
        for offset, size in store.cut(block.data.nbytes):
            channel, waited = (
                printed.STORE + (started + len(fetches)) % printed.STORE_CHANNELS,
                0.0 if fetches else staging.waited,
            )
            copy = printed.Copy(channel, True, "", 0, offset, at + offset, size, stage=place.memory, into=True)
            fetches.append(Fetch(staging.first, staging.until, printed.Start(copy, block, staging.step, waited)))
    return tuple(fetches)


def staged_tiles(moved: MappedOp, staging: Staging, place: Place, store: Channel) -> MappedOp:
    """The op with its constants fetched from the second level, to which they come block by block if it has slots."""
    moved = replace(moved, stage=printed.Region(place.memory, place.offset, staging.bytes))
    if not staging.slots:
        starts = joined_blocks(moved.blocks)[1]
        return moved.with_copies(
            c if c.tensor else replace(c, stage=place.memory, far=place.offset + starts[c.block] + c.far)
            for c in moved.copies
        )
    return _block_by_block(moved, staging, place, store)


def _block_by_block(moved: MappedOp, staging: Staging, place: Place, store: Channel) -> MappedOp:
    """The op with copies in its script that bring its blocks to the slots in turn."""
    slots, script, free = staging.slots, list[printed.Operation](), list[printed.Copy]()
    to_level1 = dict[int, int]()  # by channel: the block that is under way from its slot

    def slot(block: int) -> int:
        return place.offset + block % slots * (staging.bytes // slots)

    for o in moved.script:
        if isinstance(o, printed.Wait):
            n = to_level1.pop(o.channel, len(moved.blocks)) + slots  # the block that comes into the slot that is free
            cuts = store.cut(moved.blocks[n].data.nbytes) if n < len(moved.blocks) else ()
            copy = printed.Copy(printed.PARTS + n % slots, True, "", n, 0, 0, 0, stage=place.memory, into=True)
            free += [replace(copy, far=at, near=slot(n) + at, bytes=size) for at, size in cuts]
            script.append(o)
            continue
        script, free = [*script, *free], []
        if isinstance(o, printed.Copy) and not o.tensor:
            n = o.block
            if n >= slots and to_level1.get(o.channel) != n:
                script.append(printed.Wait(printed.PARTS + n % slots))
            to_level1[o.channel] = n
            o = replace(o, stage=place.memory, far=slot(n) + o.far)
        script.append(o)
    return replace(moved, script=tuple(script))


# Tiles of activations that lie in the third level pass through slots of the second, as many as they have buffers.
#
# A tile is brought to its slot when the copies of the one before it to the first level have begun. It is stored to the
# third level when the next one is made.


def _tiles(script: Sequence[printed.Operation], operand: int) -> list[dict[int, printed.Copy]]:
    """The copies of each tile of an operand, in order, by their positions in the script."""
    tiles, last = list[dict[int, printed.Copy]](), None
    for k, o in enumerate(script):
        if isinstance(o, printed.Copy) and o.channel // 2 == operand:
            tiles += [{}] if o.channel != last else []
            tiles[-1][k], last = o, o.channel
        else:
            last = None
    return tiles


def passing_slots(moved: MappedOp, names: Collection[str]) -> dict[int, tuple[int, int]]:
    """By operand: number of slots, and bytes of each, for operands among `names` that are copied."""
    slots, align = dict[int, tuple[int, int]](), moved.layer.align
    for i, operand in enumerate(moved.operands):
        if operand.name in names and not operand.held and not operand.packed:
            sizes = (sum(aligned(c.total, align) for c in tile.values()) for tile in _tiles(moved.script, i))
            slots[i] = moved.mapped.moves[i].buffers, max(sizes)
    return slots


def passing_tiles(moved: MappedOp, names: Collection[str], place: Place) -> MappedOp:
    """The op with tiles of operands among `names` copied through slots, which begin at `place`."""
    at, script, before = place.offset, list(moved.script), defaultdict[int, list[printed.Operation]](list)
    for number, (i, (slots, size)) in enumerate(passing_slots(moved, names).items()):
        tiles, beyond = _tiles(moved.script, i), list[list[printed.Copy]]()
        wait = printed.Wait(printed.PASSING + number)
        for n, tile in enumerate(tiles):
            slot = Place(place.memory, at + n % slots * size)
            beyond.append(_copies_through_slot(script, tile, wait.channel, slot, moved.layer.align))
        at += slots * size
        begins, ends = [min(tile) for tile in tiles], [_waited(script, max(tile)) for tile in tiles]
        for n, begin in enumerate(begins):
            if not moved.operands[i].result:
                before[ends[n - 1] if n and ends[n - 1] < begin else 0] += beyond[n]
                before[begin].append(wait)
            elif n and slots == 1:
                before[ends[n - 1]] += beyond[n - 1]
                before[begin].append(wait)
            elif n:
                store = tiles[n - 1][begins[n - 1]].channel
                before[begin] += [wait, printed.Wait(store), *beyond[n - 1]]
        if moved.operands[i].result:
            before[len(script)] += [*beyond[-1], wait]
    parts = ((*before[k], *script[k : k + 1]) for k in range(len(script) + 1))
    region = printed.Region(place.memory, place.offset, at - place.offset)
    return replace(moved, script=tuple(chain.from_iterable(parts)), slots=region)


def _waited(script: Sequence[printed.Operation], after: int) -> int:
    """The position behind the first waits in the script that follow position `after`."""
    waits = (isinstance(o, printed.Wait) for o in script)
    ends = (k for k, (one, more) in enumerate(pairwise((*waits, False)), 1) if one and not more and k > after)
    return next(ends)


def _copies_through_slot(
    script: list[printed.Operation], tile: Mapping[int, printed.Copy], channel: int, slot: Place, align: int
) -> list[printed.Copy]:
    """The copies of a tile between its slot and the third level; in `script`, redirects the others to the slot."""
    beyond, at = list[printed.Copy](), slot.offset
    for k, c in tile.items():
        packed = replace(c, channel=channel, near=at, near_row=c.bytes, near_plane=c.bytes * c.rows)
        beyond.append(replace(packed, stage=slot.memory, into=True))
        far = replace(c, far=at, bytes=c.total, rows=1, planes=1, far_row=0, far_plane=0, near_row=0, near_plane=0)
        script[k] = replace(far, stage=slot.memory)
        at += aligned(c.total, align)
    return beyond


def coherence(
    target: Target, rolling: RollingGraph, steps: Sequence[Section], places: Mapping[str, Place]
) -> dict[int, list[printed.CacheOp]]:
    """Cache operations that keep core and DMA unit coherent, by the step before which they run."""
    cached = {m.name for m in target.memories if m.cached}
    operations, by_dma = dict[int, list[printed.CacheOp]](), set[str]()
    if not any(isinstance(section.moves, printed.Moves) for section in steps):
        return operations

    def add(step: int, kind: str, name: str, size: int) -> None:
        operations.setdefault(step, []).append(printed.CacheOp(kind, name, places[name], size))

    def bytes_of(names: Sequence[str]) -> dict[str, int]:
        here = [n for n in dict.fromkeys(names) if n in places and places[n].memory in cached]
        return {n: rolling.graph.tensors[n].bytes for n in here}

    roots = [rolling.storage[n] for n in rolling.graph.inputs if n in rolling.storage]
    for name, size in bytes_of(roots).items():
        add(0, printed.CLEAN, name, size)
    for step, section in enumerate(steps):
        results = bytes_of(section.results)
        if isinstance(section.moves, printed.Moves):
            by_dma.update(results)
            continue
        for name, size in bytes_of([root for op in section.ops for root, _ in rolling.operands[op.outputs[0]]]).items():
            if name in by_dma:
                add(step, printed.INVALIDATE, name, size)
                by_dma.remove(name)
        for name, size in results.items():
            add(step + 1, printed.CLEAN, name, size)
            by_dma.discard(name)
        for name in (printed.scratch_name(op.outputs[0]) for op in section.ops):
            if name in section.inner and places[name].memory in cached:
                add(step + 1, printed.CLEAN, name, section.inner[name])
    for name, size in bytes_of([rolling.storage[n] for n in rolling.graph.outputs]).items():
        if name in by_dma:
            add(len(steps), printed.INVALIDATE, name, size)
    return operations


def with_transfers(
    steps: Sequence[Section],
    caches: Mapping[int, Sequence[printed.CacheOp]],
    staged: Sequence[Fetch] = (),
    early: Sequence[Fetch] = (),
) -> tuple[Section, ...]:
    """The steps with cache operations, copies and waits before each step and after the last.

    `staged`: copies to the second level; `early`: copies to the first, which may come from the second.
    """
    between: list[list[printed.Transfer]] = [list(caches.get(step, ())) for step in range(len(steps) + 1)]

    def start(fetch: Fetch) -> None:
        between[fetch.first].append(fetch.start)

    def wait(fetch: Fetch) -> None:
        """Add one wait for all copies of a channel."""
        channel, before = fetch.start.copy.channel, between[fetch.until]
        of_channel = (t for t in reversed(before) if (isinstance(t, printed.Wait) and t.channel == channel)
                or (isinstance(t, printed.Start) and t.copy.channel == channel))  # fmt: skip
        if not isinstance(next(of_channel, None), printed.Wait):
            before.append(printed.Wait(channel))

    for fetch in (f for f in staged if f.first < f.until):
        wait(fetch)
    for fetch in staged:
        start(fetch)
    for fetch in (f for f in staged if f.first == f.until):
        wait(fetch)
    for fetch in early:
        start(fetch)
    for fetch in early:
        wait(fetch)
    *before, end = map(tuple, between)
    return tuple(
        replace(s, before=b, after=end if i + 1 == len(steps) else ())
        for i, (s, b) in enumerate(zip(steps, before, strict=True))
    )
