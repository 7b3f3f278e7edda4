"""The check of a plan: run it, with each byte tagged with its owner.

Short and naive on purpose, and always run. Of the planner it takes the order of the calls, the places and the rings,
which are printed, and nothing else. Which bytes a call needs follows from the op's index relation (`axes`). Each must
be in memory when it is read. No call may write over what it is reading, unless the op goes element by element. A
kernel's scratch spoils what lies there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from ....base.target import Target
from ...ir import Array, Graph
from ..memory.problem import Place
from ..printed import NO_CACHE, Ahead, Coherence, RowMoves, Staged, Step, TileMoves, newest_name, scratch_name
from .cached import CachedMemory
from .feeds import Feeds
from .relations import Callee, Relations, Stored, View
from .tile_copies import BrokenPlan as BrokenPlan
from .tile_copies import Near


@dataclass(frozen=True)
class Addresses:
    """Where the bytes of all storages lie while a section runs, as printed: in rings, and inside of others.

    `kept`: of rings whose newest row is apart, how many rows were put among the others.
    """

    graph: Graph
    places: Mapping[str, Place]
    rings: Mapping[str, int]
    inside: Mapping[str, str]
    kept: dict[str, int]

    @staticmethod
    def of(graph: Graph, section: Step | None, places: Mapping[str, Place]) -> Addresses:
        if section is None or section.rolled is None:
            return Addresses(graph, places, {}, {}, {})
        rolled = section.rolled
        return Addresses(graph, places, rolled.rings, rolled.inside, dict.fromkeys(rolled.separate, 0))

    def row_bytes(self, storage: str) -> int:
        return Relations(self.graph).row_bytes(storage)

    def of_bytes(self, stored: Stored) -> tuple[str, Array]:
        """Memory, and the address of every byte, of what lies in one place."""
        ((memory, at, _),) = self.pieces(stored)
        return memory, at

    def pieces(self, stored: Stored) -> list[tuple[str, Array, Array]]:
        """For each place: its memory, the addresses, and which bytes of the storage stand there."""
        every, home = np.arange(stored.first, stored.past), self.inside.get(stored.storage, stored.storage)
        at, size = every, self.row_bytes(home)
        if home != stored.storage:
            row, rest = np.divmod(at, self.row_bytes(stored.storage))
            at = row * size + rest
        apart = at >= self.kept.get(home, 2**31) * size
        if home in self.rings:
            at = np.where(apart, at % size, at % (self.rings[home] * size))
        found = [(home, ~apart)] if not apart.any() else [(newest_name(home), apart), (home, ~apart)]
        places = [(self.places[name], here) for name, here in found if here.any() or len(found) == 1]
        return [(p.memory, at[here] + p.offset, every[here]) for p, here in places]

    def keep(self, name: str) -> tuple[Stored, tuple[str, Array], tuple[str, Array]]:
        """Put the newest row of a ring among the others: the row, where it stood, and where it stands now."""
        row, size = self.kept[name], self.row_bytes(name)
        stored = Stored(name, row * size, (row + 1) * size)
        before = self.of_bytes(stored)
        self.kept[name] += 1
        return stored, before, self.of_bytes(stored)


class _Memory:
    """Whose each byte of the memories is: storage and number of the byte as one number, or a kernel's scratch."""

    def __init__(self, graph: Graph, places: Mapping[str, Place], staged: Sequence[Staged]) -> None:
        self.numbers = {name: index for index, name in enumerate(graph.tensors)}
        every = (*places.values(), *(s.at for s in staged))
        size = max((p.offset for p in every), default=0)
        size += 4 * max((t.bytes for t in graph.tensors.values()), default=0) + max((s.room for s in staged), default=0)
        self.bytes = {p.memory: np.full(size, -1, np.int64) for p in every}
        self.cached: Mapping[str, CachedMemory] = {}

    def owner(self, storage: str, byte: int) -> int:
        return self.numbers[storage] << 32 | byte

    def owners(self, stored: Stored) -> Array:
        return self.owner(stored.storage, 0) + np.arange(stored.first, stored.past)

    def write(self, stored: Stored, addresses: Addresses) -> None:
        """Let the core write."""
        for memory, at, which in addresses.pieces(stored):
            self.bytes[memory][at] = self.owner(stored.storage, 0) + which
            if memory in self.cached:
                self.cached[memory].written(at)

    def moved(self, stored: Stored, addresses: Addresses) -> None:
        """Take up what a DMA unit wrote."""
        memory, at = addresses.of_bytes(stored)
        there = self.cached[memory].there if memory in self.cached else self.bytes[memory]
        there[at] = self.owners(stored)

    def holds(self, stored: Stored, addresses: Addresses) -> bool:
        owner, pieces = self.owner(stored.storage, 0), addresses.pieces(stored)
        return all(bool(np.all(self.bytes[memory][at] == owner + which)) for memory, at, which in pieces)


def replay(
    graph: Graph,
    steps: Sequence[Step],
    places: Mapping[str, Place],
    moved: Mapping[str, TileMoves | RowMoves] = MappingProxyType({}),
    near_bytes: int | None = None,
    ahead: Sequence[Ahead] = (),
    caches: Coherence = NO_CACHE,
    staged: Sequence[Staged] = (),
    target: Target | None = None,
    streamed: str | None = None,
    views: Mapping[str, tuple[str, int]] = MappingProxyType({}),
) -> None:
    """Raise BrokenPlan unless every read of every call finds its bytes, and all outputs stand at the end.

    `near_bytes`: of the first level, which `moved` steps share; None: what they need. `ahead`: copies of constants;
    `staged`: those to the second level, by way of which they come. `target`: whose DMA units can do all copies.
    `streamed`: the input whose rows the application brings. `views`: the storage of every activation and the bytes
    before it there, as they are printed.
    """
    checked = _Replay(graph, places, moved, near_bytes, caches, staged, target, streamed)
    for name, (storage, start) in views.items():
        if (view := checked.relations.views[name]) != View(storage, start):
            raise BrokenPlan(f"{name} begins {view.start} B behind {view.storage}, not {start} B behind {storage}")
    checked.run(steps, ahead, staged)


class _Replay:
    def __init__(
        self,
        graph: Graph,
        places: Mapping[str, Place],
        moved: Mapping[str, TileMoves | RowMoves],
        near_bytes: int | None,
        caches: Coherence,
        staged: Sequence[Staged],
        target: Target | None,
        streamed: str | None,
    ) -> None:
        self.target, self.graph, self.streamed = target, graph, streamed
        self.places, self.moved = places, moved
        self.relations, self.memory = Relations(self.graph), _Memory(self.graph, places, staged)
        self.everywhere = Addresses.of(self.graph, None, places)
        self.caches, views = caches, self.memory.bytes
        self.cached = {n: CachedMemory(views[n], caches.line) for n in caches.memories if n in views}
        self.memory.cached = self.cached
        self.near = Near(max((m.near_bytes for m in moved.values()), default=0) if near_bytes is None else near_bytes)

    def fits(self) -> None:
        """Raise BrokenPlan where the first level is smaller than what the steps take of it."""
        if self.target is None or not self.moved:
            return
        level = self.target.levels[0]
        most = max((m.near_bytes for m in self.moved.values() if isinstance(m, RowMoves) or not m.regions), default=0)
        if most > level.size:
            raise BrokenPlan(f"steps take {most} B of {level.name}, which has {level.size} B")

    def run(self, steps: Sequence[Step], ahead: Sequence[Ahead], staged: Sequence[Staged]) -> None:
        self.fits()
        views = self.relations.views
        for name in dict.fromkeys(views[n].storage for n in self.graph.inputs):
            if name != self.streamed:
                self.memory.write(Stored(name, 0, self.graph.tensors[name].bytes), self.everywhere)
        there = self.memory.bytes | {name: cached.there for name, cached in self.cached.items()}
        feeds = Feeds(self.near, there, self.memory.owner, self.relations, self.places, self.cached, self.target)
        for step, section in enumerate(steps):
            self.keep(step)
            feeds.between(step, ahead, staged)
            if (moved := self.moved.get(section.ops[0].outputs[0])) is not None:
                if isinstance(moved, RowMoves):
                    feeds.run_rows(moved)
                else:
                    feeds.run(moved)
                for name in section.results:
                    self.memory.moved(Stored(name, 0, self.graph.tensors[name].bytes), self.everywhere)
                continue
            addresses = Addresses.of(self.graph, section, self.places)
            callees = [Callee.of(self.graph, op, form) for op, form in zip(section.ops, section.forms, strict=True)]
            for callee in callees:
                if section.rolled is not None and not self.relations.finds_rings(callee, section.rolled):
                    raise BrokenPlan(f"{callee.op.name} looks for rows in rings of other sizes")
            for number, row in calls_of(self.relations, section):
                if number < len(section.ops):
                    self.call(callees[number], section, addresses, row)
                elif (ring := kept_by(section, number)) is not None:
                    self.put_among(ring, addresses)
                elif self.streamed is not None and row is not None:
                    self.memory.write(self.relations.part(self.streamed, row, row + 1), addresses)
        if self.near.pending:
            raise BrokenPlan("a copy of constants that nobody waits for")
        self.keep(len(steps))
        for name in self.graph.outputs:
            if not self.memory.holds(self.relations.part(name, 0, self.relations.rows(name)), self.everywhere):
                raise BrokenPlan(f"output {name} does not stand at the end")

    def keep(self, step: int) -> None:
        """The cleaning and invalidating before a step."""
        for kept in (k for k in self.caches.steps if k.step == step and k.place.memory in self.cached):
            self.cached[kept.place.memory].keep(kept)

    def put_among(self, name: str, addresses: Addresses) -> None:
        """The copy of the newest row of a ring, which stands apart."""
        stored, before, (memory, at) = addresses.keep(name)
        if not np.array_equal(self.memory.bytes[before[0]][before[1]], self.memory.owners(stored)):
            raise BrokenPlan(f"the newest row of {name} does not stand where it is copied from")
        if memory == before[0] and _meet(at, before[1]):
            raise BrokenPlan(f"the newest row of {name} is copied over itself")
        self.memory.write(stored, addresses)

    def call(self, callee: Callee, section: Step, addresses: Addresses, row: int | None) -> None:
        """One call of a kernel; `row` None: of an op that runs whole."""
        op, y = callee.op, callee.op.outputs[0]
        reads = [self.relations.needed(callee, position, row) for position in callee.operands]
        for read in reads:
            if not self.memory.holds(read, addresses):
                what = f"bytes {read.first} to {read.past} of {read.storage}"
                raise BrokenPlan(f"{op.name} reads {what}, which are not there")
        reduces, writes = row is not None and callee.reduces, self.relations.made(callee, row)
        if callee.scratch:
            self.scratch(callee, section, addresses, row if reduces else None, (*reads, writes))
        if reduces and row != self.relations.calls(callee) - 1:
            return
        target, at = addresses.of_bytes(writes)
        for read, position in zip(reads, callee.operands, strict=True):
            for memory, there, _ in addresses.pieces(read):
                if memory == target and _meet(at, there) and not callee.spares(self.graph, position, at, there):
                    raise BrokenPlan(f"{op.name} writes {y} over {read.storage} that it reads")
        self.memory.write(writes, addresses)

    def scratch(
        self, callee: Callee, section: Step, addresses: Addresses, row: int | None, others: Sequence[Stored]
    ) -> None:
        """Spoil what lies where a kernel works; sums of a reduction must still stand there in its later calls."""
        op, size, name = callee.op, callee.scratch, scratch_name(callee.op.outputs[0])
        if size > section.inner.get(name, 0):
            raise BrokenPlan(f"{op.name} works on {size} B, of which it has {section.inner.get(name, 0)}")
        place, owner = self.places[name], -2 - self.memory.numbers[op.outputs[0]]
        mine = self.memory.bytes[place.memory][place.offset : place.offset + size]
        if row and not np.all(mine == owner):
            raise BrokenPlan(f"{op.name} finds its sums of row {row} spoilt")
        for touched, (memory, at, _) in ((o, piece) for o in others for piece in addresses.pieces(o)):
            if memory == place.memory and np.any((at >= place.offset) & (at < place.offset + size)):
                raise BrokenPlan(f"the scratch of {op.name} lies over {touched.storage} that it reads or writes")
        mine[:] = owner
        if place.memory in self.cached:
            self.cached[place.memory].written(np.arange(place.offset, place.offset + size))


def _meet(one: Array, other: Array) -> bool:
    near = one.size and other.size and one.min() <= other.max() and other.min() <= one.max()
    return bool(near and np.isin(one, other).any())


def kept_by(section: Step, number: int) -> str | None:
    """The ring whose newest row a call puts among the others, if the number is of such a call."""
    at = number - len(section.ops) - 1
    return section.rolled.separate[at] if section.rolled is not None and at >= 0 else None


def calls_of(relations: Relations, section: Step) -> list[tuple[int, int | None]]:
    """The calls of a section in order: number of the op, and row.

    One past the last op the application brings a row. Behind that are the numbers of `kept_by`.

    Of a rolled run only the order of the numbers counts, as in the table that is printed. Each op is called for one row
    after the other, as far as somebody reads them. The row of an op that runs whole is None.
    """
    if section.rolled is None:
        return [(0, None)]
    made, found = [0] * (len(section.ops) + 1 + len(section.rolled.separate)), list[tuple[int, int | None]]()
    for number in section.rolled.numbers:
        found.append((number, made[number]))
        made[number] += 1
    for op, form, count in zip(section.ops, section.forms, made, strict=False):
        callee = Callee.of(relations.graph, op, form)
        if count > relations.calls(callee) or (callee.reduces and count < relations.calls(callee)):
            raise BrokenPlan(f"{op.name} is called {count} times, not {relations.calls(callee)}")
    return found
