"""Memories whose every byte is tagged with its owner: copies, waits, caches and calls, as hardware would do them.

From the start of a copy to the wait for it, its destination holds nothing and may not be touched, and its source may
not be written. Of caches the worst is assumed. It has all lines, so the core never sees what a DMA unit wrote until the
lines are invalidated. It writes nothing back until it is told to, but might do so at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property

import numpy as np

from ....base.dataclass import dataclass
from ....base.levels import CACHE_LINE
from ....base.target import Target
from ...ir import Array
from ..printed import CLEAN, CacheOp, Wait

NOTHING = -1
STALE = -(1 << 40)  # what the core sees of bytes that a DMA unit wrote: no owner, and not nothing
CONSTANT = 1 << 61  # marks bytes of constants, which have values as well
STORE = ""  # the memory of constants, which nobody writes


class BrokenPlan(Exception):
    """A plan that would compute something else than its graph. Always a bug of the planner."""


@dataclass(frozen=True, eq=False)
class Bytes:
    """Addresses in a memory and whose bytes belong there; or, of constants, the `values` that do.

    `operand`: the position of the operand that they are of.
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
    """A call: bytes that it reads, writes and works on. `sums`: it finds there what earlier calls left.

    `spares`: whether it may write addresses over an operand that lies at others.
    """

    name: str
    reads: Sequence[Bytes]
    writes: Sequence[Bytes]
    scratch: Bytes | None = None
    sums: bool = False
    spares: Callable[[int, Array, Array], bool] = never


@dataclass(frozen=True, eq=False)
class Move:
    """Begin a copy by a channel, in pieces of so many bytes. `name`: of the step."""

    name: str
    channel: int
    source: Bytes
    target: Bytes
    piece: int


@dataclass(frozen=True, eq=False)
class Complete:
    """A step is done: none of its copies is under way, and its results are where others look for them."""

    name: str
    channels: frozenset[int]
    results: Sequence[Bytes]


Operation = Move | Wait | CacheOp | Complete | Sequence[Call]  # calls of all cores at once


@dataclass
class Machine:
    """`sizes`: of the memories. Those of `cached` are seen by the core through a cache."""

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
        """Raise BrokenPlan if the operation would find or do something wrong."""
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
        """Calls of all cores at once: none may write what another one reads or writes."""
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
        """Raise BrokenPlan if a call writes outside of a memory, what others touch, or what is under way."""
        if part.at.size and not 0 <= part.ends[0] <= part.ends[1] < self.sizes[part.memory]:
            raise BrokenPlan(f"{call.name} writes outside of {part.memory}")
        for other, its in touched:
            if part.meets(its) and not (
                other is call and its.operand >= 0 and call.spares(its.operand, part.at, its.at)
            ):
                raise BrokenPlan(f"{call.name} writes {part.what} over {its.what} that it reads or works on")
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
        mine = [each for each in self.pending if each[0].channel == channel]
        self.pending[:] = [each for each in self.pending if each[0].channel != channel]
        for move, owners, values in mine:
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
        seen, there, dirty = (found[memory][first:past] for found in (self.seen, self.there, self.dirty))
        if op.kind == CLEAN:
            for at in range(0, past - first, CACHE_LINE):
                line = slice(at, at + CACHE_LINE)
                there[line] = seen[line] if dirty[line].any() else there[line]
        elif dirty.any():
            raise BrokenPlan(f"what the core wrote beside {op.what} is lost")
        else:
            seen[:] = there
        dirty[:] = False
