"""The part of `replay` for ops whose tiles are copied: starts and waits, and bytes that are under way.

From the start of a copy to the wait for it, its destination holds nothing and may not be touched, and its source may
not be written. What calls read is derived from the op's index relation, and compared byte by byte with what the copies
brought. The tables of copies and turns are only what is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from ....base.target import Target
from ...ir import ITEM_BYTES, Array
from ...ops.base import Kernel, Ranges
from ..memory.problem import Place
from ..printed import Copy, CoreWork, Region, TileMoves, Turn
from .cached import BrokenPlan as BrokenPlan
from .cached import CachedMemory
from .part_kernels import PartKernels, same_function
from .relations import Relations

NOTHING = -1
BYTE = 1 << 62  # marks owners of single bytes
CONSTANT = 1 << 61
Ends = tuple[int, int]  # the first and the last of some addresses


def meet(one: Array, other: Array) -> bool:
    """Whether two sets of addresses have one in common."""
    return bool(one.size and other.size and _near(_ends(one), _ends(other)) and np.isin(one, other).any())


def _ends(addresses: Array) -> Ends:
    return (int(addresses.min()), int(addresses.max())) if addresses.size else (1, 0)


def _near(one: Ends, other: Ends) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


@dataclass
class _Side:
    """Bytes of a memory that a copy reads or writes; the first level is "", the store of constants has none."""

    memory: str | None
    at: Array
    ends: Ends

    def meets(self, other: _Side) -> bool:
        same = self.memory is not None and self.memory == other.memory
        return same and _near(self.ends, other.ends) and meet(self.at, other.at)


@dataclass
class _Pending:
    copy: Copy
    source: _Side
    target: _Side
    owners: Array
    values: Array | None  # of constants


@dataclass
class Called:
    """Addresses that a call reads, writes and works on, and the owners of what it makes."""

    read: list[Array]
    written: Array
    made: Array
    scratch: Array


class Near:
    """The first level: whose each byte is, the values of constants, and the copies that are under way.

    `others`: values of constants in memories that they come by way of.
    """

    def __init__(self, size: int) -> None:
        self.owners = np.full(size, NOTHING, np.int64)
        self.values = np.zeros(size, np.uint8)
        self.others: dict[str, Array] = {}
        self.pending: list[_Pending] = []


class Transfers:
    """Runs the copies and calls of ops, with each byte tagged with its owner."""

    def __init__(
        self,
        level: Near,
        far: Mapping[str, Array],
        owner: Callable[[str, int], int],
        relations: Relations,
        places: Mapping[str, Place],
        cached: Mapping[str, CachedMemory] = MappingProxyType({}),
        target: Target | None = None,
    ) -> None:
        self.target = target
        self.far, self.owner, self.relations, self.places = far, owner, relations, places
        self.cached = cached
        self.graph, self.views = relations.graph, relations.views
        self.name = "constants that come early"
        self.regions: tuple[Region, ...] = ()  # of the engine whose op it is
        self.level, self.near, self.values = level, level.owners, level.values

    def run(self, moved: TileMoves) -> None:
        """Raise BrokenPlan unless every call finds its operands and the whole result arrives."""
        self.moved, self.name, started = moved, moved.op.name, 0
        self.regions = moved.regions
        self.parts = PartKernels(moved.op, self.graph, moved.form)
        for turn in moved.turns:
            for channel in turn.arrived:
                self.wait(channel)
            for copy in moved.copies[started : turn.fetched]:
                self.start(copy, self.block(copy))
            for channel in turn.waits:
                self.wait(channel)
            called = max(turn.fetched, turn.staged)
            for copy in moved.copies[turn.fetched : called]:
                self.start(copy, self.block(copy))
            self.turn(turn)
            for copy in moved.copies[called : turn.stored]:
                self.start(copy, self.block(copy))
            started = turn.stored
        for channel in moved.last_waits:
            self.wait(channel)
        if started != len(moved.copies):
            raise BrokenPlan(f"{self.name} leaves copies that nobody waits for")
        self.complete(moved.op.outputs[0], {c.channel for c in moved.copies}, moved.held)

    def block(self, copy: Copy) -> Array:
        data = b"" if copy.tensor else self.moved.blocks[copy.block].data.tobytes()
        return np.frombuffer(data, np.uint8)

    def complete(self, y: str, channels: set[int], held: bool) -> None:
        """Raise BrokenPlan unless all copies of these channels are done and the result is where others look for it."""
        if any(p.copy.channel in channels for p in self.level.pending):
            raise BrokenPlan(f"{self.name} leaves copies that nobody waits for")
        there = self.near if held else self.far[self.places[self.views[y].storage].memory]
        if not np.array_equal(there[self.at_far(y, self.all_of(y))], self.bytes_of(y)):
            raise BrokenPlan(f"{self.name} does not leave its whole result")

    def all_of(self, tensor: str) -> Array:
        return np.arange(self.graph.tensors[tensor].bytes)

    def bytes_of(self, tensor: str) -> Array:
        """Owners of the single bytes of a tensor."""
        view = self.views[tensor]
        return self.all_of(tensor) + view.start + (self.owner(view.storage, 0) | BYTE)

    def at_far(self, tensor: str, offsets: Array) -> Array:
        return offsets + self.at(tensor)

    def at(self, tensor: str) -> int:
        """Where a tensor begins in its memory."""
        view = self.views[tensor]
        return self.places[view.storage].offset + view.start

    def start(self, copy: Copy, data: Array) -> None:
        """Begin a copy; `data`: the block of constants that it is of."""
        grid = np.arange(copy.bytes), np.arange(copy.rows)[:, None], np.arange(copy.planes)[:, None, None]
        far = (copy.far + grid[0] + grid[1] * copy.far_row + grid[2] * copy.far_plane).ravel()
        near = (copy.near + grid[0] + grid[1] * copy.near_row + grid[2] * copy.near_plane).ravel()
        if near.min() < 0 or near.max() >= len(self.near if not copy.into else self.far[copy.stage]):
            raise BrokenPlan(f"{self.name}: a copy leaves the {'second' if copy.into else 'first'} level")
        if not copy.into:
            self.check_scratchpad(near, 0 if copy.tensor else 1)
        self.check_far(copy, far, data)
        source, target = self.sides(copy, far, near)
        self.check_unit(copy, far, near)
        for other in self.level.pending:
            if any(one.meets(its) for one, its in ((target, other.target), (target, other.source),
                                                   (source, other.target))):  # fmt: skip
                where = "the first level" if "" in (source.memory, target.memory) else copy.stage
                raise BrokenPlan(
                    f"{self.name}: two copies under way meet in {where} or at {copy.tensor or 'constants'}"
                )
        owners, values = self.taken(copy, source, far, data)
        self.level.pending.append(_Pending(copy, source, target, owners, values))
        self.array(target)[target.at] = NOTHING
        if target.memory and (cached := self.cached.get(target.memory)) is not None:
            cached.store(target.at)

    def check_unit(self, copy: Copy, far: Array, near: Array) -> None:
        """Raise BrokenPlan unless a DMA unit of the target joins both memories, and its limits are kept."""
        if self.target is None:
            return
        region = None if copy.into else next((r for r in reversed(self.regions) if r.base <= near.min()), None)
        here = copy.stage if copy.into else region.memory if region else self.target.levels[0].name
        store = copy.stage if copy.stage and not copy.into else self.target.memory("weights").name
        there = self.memory(copy) if copy.tensor else store
        unit = next((d for d in self.target.dma if here in d.between and there in d.between), None)
        if unit is None:
            raise BrokenPlan(f"{self.name}: no DMA unit joins {here} and {there}")
        if unit.largest and copy.bytes * copy.rows * copy.planes > unit.largest:
            raise BrokenPlan(f"{self.name}: a copy of more than {unit.largest} B by {unit.name}")
        shift = self.at(copy.tensor) if copy.tensor else 0
        first = near[:: copy.bytes] - (region.base if region else 0), far[:: copy.bytes] + shift
        if any(np.any(at % unit.align) for at in (*first, np.array(copy.bytes))):
            text = f"{self.name}: a piece of {copy.tensor or 'constants'} is not aligned to {unit.align} B"
            raise BrokenPlan(f"{text}, as {unit.name} asks for")

    def check_far(self, copy: Copy, far: Array, data: Array) -> None:
        """Raise BrokenPlan where a copy leaves its tensor, its constants, or the memory that these come by way of."""
        if copy.stage and not copy.into:
            size = len(self.far[copy.stage])
        else:
            size = self.graph.tensors[copy.tensor].bytes if copy.tensor else data.nbytes
        if far.min() < 0 or far.max() >= size:
            raise BrokenPlan(f"{self.name}: a copy leaves {copy.tensor or 'its constants'}")

    def sides(self, copy: Copy, far: Array, near: Array) -> tuple[_Side, _Side]:
        """The bytes that a copy reads, and those that it writes."""
        if copy.tensor:
            far = self.at_far(copy.tensor, far)
            there = _Side(self.memory(copy), far, _ends(far))
        else:
            there = _Side(None if copy.into or not copy.stage else copy.stage, far, _ends(far))
        here = _Side(copy.stage if copy.into else "", near, _ends(near))
        return (there, here) if copy.fetch else (here, there)

    def array(self, side: _Side) -> Array:
        """Owners of the bytes of the memory that a side is in."""
        return self.far[side.memory] if side.memory else self.near

    def check_scratchpad(self, near: Array, number: int) -> None:
        """Raise BrokenPlan unless all addresses are in one scratchpad: that of activations is 0, that of weights 1."""
        if not self.regions or not near.size:
            return
        region = self.regions[number]
        if near.min() < region.base or near.max() >= region.base + region.bytes:
            raise BrokenPlan(f"{self.name} leaves the scratchpad {region.memory}")

    def memory(self, copy: Copy) -> str:
        return self.places[self.views[copy.tensor].storage].memory

    def taken(self, copy: Copy, source: _Side, far: Array, data: Array) -> tuple[Array, Array | None]:
        """Owners of what a copy takes with it, and values of constants. Raises BrokenPlan where it does not find it."""
        if copy.tensor and copy.fetch:
            root = self.views[copy.tensor].storage
            offsets = far + self.views[copy.tensor].start
            if not np.array_equal(self.array(source)[source.at], self.owner(root, 0) + offsets):
                raise BrokenPlan(f"{self.name} fetches bytes of {copy.tensor} that are not there any more")
            return offsets + (self.owner(root, 0) | BYTE), None
        if copy.tensor:
            return self.near[source.at].copy(), None
        if source.memory is None:
            return far | CONSTANT, data[far]
        owners = self.array(source)[source.at].copy()
        if np.any(owners < 0) or not np.all(owners & CONSTANT):
            raise BrokenPlan(f"{self.name} fetches constants from {source.memory} that are not there")
        return owners, self.others(source.memory)[source.at].copy()

    def others(self, memory: str) -> Array:
        """Values of constants in a memory that they come by way of."""
        return self.level.others.setdefault(memory, np.zeros(len(self.far[memory]), np.uint8))

    def wait(self, channel: int) -> None:
        mine = [p for p in self.level.pending if p.copy.channel == channel]
        self.level.pending[:] = [p for p in self.level.pending if p.copy.channel != channel]
        for p in mine:
            if not p.copy.fetch and not np.array_equal(self.near[p.source.at], p.owners):
                raise BrokenPlan(f"{self.name}: a tile of {p.copy.tensor} is written while it is stored")
            if p.copy.stage and not p.copy.into and not np.array_equal(self.array(p.source)[p.source.at], p.owners):
                raise BrokenPlan(f"{self.name}: constants are written while they are copied")
            if not np.all(self.array(p.target)[p.target.at] == NOTHING):
                raise BrokenPlan(f"{self.name}: somebody writes where a copy goes")
            self.array(p.target)[p.target.at] = p.owners
            if p.values is not None:
                held = self.values if not p.target.memory else self.others(p.target.memory)
                held[p.target.at] = p.values

    def turn(self, turn: Turn) -> None:
        """The calls of all cores at once: none may write what another one reads or writes."""
        found = [self.call(call, core) for core, call in enumerate(turn.calls)]
        self.apart(found)
        for call in found:
            self.near[call.scratch] = NOTHING
            self.near[call.written] = call.made

    def call(self, call: CoreWork, core: int) -> Called:
        op, parts = self.moved.op, self.parts
        at, read = iter(call.at), list[Array]()
        out, needed = parts.made(call.ranges), parts.needed(call.ranges)
        for name, ranges in zip(op.inputs, needed, strict=True):
            if not self.graph.tensors[name].constant:
                read.append(self.find(next(at), self.part(name, ranges), name))
        made = self.part(op.outputs[0], out)
        written = next(at) + np.arange(len(made))
        self.check_scratchpad(written, 0)
        kernel = parts.kernel(out, needed)
        if not same_function(self.moved.kernels[call.kernel], kernel):
            raise BrokenPlan(f"{op.name} calls the kernel of another part")
        read += self.constants(kernel, at)
        scratch = self.moved.scratch + core * self.moved.scratch_each + np.arange(kernel.scratch)
        return Called(read, written, made, scratch)

    def constants(self, kernel: Kernel, at: Iterator[int]) -> list[Array]:
        """Places of a kernel's constants. Raises BrokenPlan where they are not what stands there."""
        read = []
        for constant, place in zip(kernel.constants, at, strict=True):
            data = np.frombuffer(np.ascontiguousarray(constant.data).tobytes(), np.uint8)
            held = place + np.arange(len(data))
            self.check_scratchpad(held, 1)
            read.append(held)
            inside = held.size == 0 or held[-1] < len(self.near)
            if not inside or not np.array_equal(self.values[held], data) or not np.all(self.near[held] & CONSTANT):
                raise BrokenPlan(f"{self.name} does not find its {constant.name} in the first level")
        return read

    def apart(self, found: Sequence[Called]) -> None:
        """Raise BrokenPlan if a call of several at once writes what one of them touches."""
        touched = [(array, _ends(array)) for call in found for array in call.read]
        for call in found:
            scratch, written = (call.scratch, _ends(call.scratch)), (call.written, _ends(call.written))
            self.spoil([scratch], touched)
            self.spoil([written], [*touched, scratch])
            touched += [scratch, written]

    def spoil(self, mine: Sequence[tuple[Array, Ends]], read: Sequence[tuple[Array, Ends]]) -> None:
        """Raise BrokenPlan if a call writes outside of the level, what others touch, or what is under way."""
        for array, ends in mine:
            if array.size and ends[1] >= len(self.near):
                raise BrokenPlan(f"{self.name} writes outside of the first level")
            if any(_near(ends, its) and meet(array, other) for other, its in read):
                raise BrokenPlan(f"{self.name} writes over what it reads in the first level")
            level_side = _Side("", array, ends)
            if any(level_side.meets(p.source) or level_side.meets(p.target) for p in self.level.pending):
                raise BrokenPlan(f"{self.name} writes bytes that are being copied")

    def part(self, tensor: str, ranges: Ranges) -> Array:
        """Owners of the bytes of a part of a tensor."""
        t = self.graph.tensors[tensor]
        return self.bytes_of(tensor).reshape(*t.shape, ITEM_BYTES[t.dtype])[tuple(slice(*r) for r in ranges)].ravel()

    def find(self, place: int, wanted: Array, name: str) -> Array:
        held = place + np.arange(len(wanted))
        if held[-1] >= len(self.near) or not np.array_equal(self.near[held], wanted):
            raise BrokenPlan(f"{self.name} does not find its part of {name} in the first level")
        return held
