"""`--map auto`: which ops run tile by tile, which together row by row, and which tensors stay in the first level.

An order of ops is cut into sections. A section is one op in tiles, or a run of ops whose rows are streamed. A tensor
that one section makes and others read may stay in the first level until its last use. The cheapest cut is a path
over states: a position in the order, and the tensors that are held there. At most STATES states are kept at a position.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, combinations, pairwise

from ....base.levels import Engine
from ....base.target import Memory, Target
from ...ir import Op
from ...ops.base import Constant
from ..cuts import Cutter
from ..hierarchy.mapper import NoMapping
from ..hierarchy.nest import MappingCost, TiledLayer
from ..memory.problem import Place
from ..printed import MAX_PASSING, UncopiedOp
from .levels import channel_between, channel_to, constants_channel, layer_of_op, offer, whole_cycles
from .prefetch import passing_slots, staging_channel, step_constants
from .streamed import PlannedRun, Streamer
from .tiles import ALIGN, MAX_COPIES, MAX_CORES, MAX_OPERANDS, MappedOp, aligned, cheapest_tiles

MAX_RUN = 24  # ops of a run
STATES = 48  # that are kept at a position, the cheapest
ALIKE = 1.002  # times an op's cycles: mappings within it count as equally good
MAX_HELD = 2  # a tensor that stays may take at most 1/MAX_HELD of the first level


@dataclass(frozen=True, kw_only=True)
class PlannedUncopiedOp(UncopiedOp):
    """An op without copies, with the figures that the search uses."""

    cycles: MappingCost
    level1_bytes: int = 0
    copied: float = 0.0
    first_constants: tuple[float, int] = (0.0, 0)
    blocks: tuple[Constant, ...] = ()

    @staticmethod
    def of(layer: TiledLayer, whole: tuple[float, ...] = (), why: str = "") -> PlannedUncopiedOp:
        return PlannedUncopiedOp(cycles=MappingCost((), 1, layer.alone, 0.0, power=layer.power), whole=whole, why=why)


Moved = MappedOp | PlannedRun  # how a section runs whose data a DMA unit moves


@dataclass(frozen=True)
class Step:
    """A section of the order with the tensors that are held while it runs. `by`: how it runs."""

    start: int
    stop: int
    held: frozenset[str]  # storages
    by: Moved | PlannedUncopiedOp

    @property
    def cycles(self) -> float:
        return self.by.cycles.total


@dataclass(frozen=True)
class _State:
    score: float
    cycles: float
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Residency:
    """The search over an order of ops, with caches of layers, tiles and runs. `room`: bytes of the first level."""

    cutter: Cutter
    target: Target
    spaces: tuple[Memory, Memory, Memory]  # the first level, where activations lie, where weights lie
    room: int
    far: Mapping[str, int]  # bytes for activations of each memory behind the first level
    homes: Mapping[str, Memory] = field(default_factory=dict)  # of storages that lie behind the second level
    least: bool = False  # mappings of ops are to take the least energy, not the fewest cycles
    passing: int = 0  # bytes of the second level for tiles of activations on their way to and from the third
    layers: dict[object, TiledLayer] = field(default_factory=dict)
    tiles: dict[object, list[tuple[int, MappedOp | PlannedUncopiedOp]]] = field(default_factory=dict)
    runs: dict[object, PlannedRun | None] = field(default_factory=dict)

    @property
    def align(self) -> int:
        """Alignment in bytes of buffers that a DMA unit copies to or from."""
        return max(ALIGN, self.target.dma_align)

    @cached_property
    def sizes(self) -> dict[str, int]:
        return {name: aligned(size, self.align) for name, size in self.cutter.sizes.items()}

    @cached_property
    def streamer(self) -> Streamer:
        near, home, store = self.spaces
        activations = channel_to(self.target, near, home)
        constants = channel_between(self.target, near, store) or constants_channel(self.target, near, home)
        others = {name: channel_to(self.target, near, memory) for name, memory in self.homes.items()}
        return Streamer(self.cutter, activations, constants, self.room, self.target.cores, others, self.align)

    @cached_property
    def whole(self) -> dict[str, float]:
        """Cycles of every op in one call without waits; on one core if no tile of the op fits."""
        cycles, nothing = dict[str, float](), frozenset[str]()
        for at, op in enumerate(self.cutter.order):
            tiles, layer = self.tiled(at, nothing, self.room), self.layer(at, nothing)
            cycles[op.outputs[0]] = layer.alone if isinstance(tiles, PlannedUncopiedOp) else whole_cycles(layer)
        return cycles

    @property
    def open(self) -> bool:
        """Whether the core reaches operands where they lie."""
        return all(memory.access == "cpu" for memory in (*self.spaces[1:], *self.homes.values()))

    def possible(self, steps: Sequence[Step]) -> bool:
        """Whether the second level has room for the steps, and the core reaches the operands of ops without copies."""
        tiles = self.open or not any(isinstance(s.by, PlannedUncopiedOp) for s in steps)
        return tiles and all(self.fits_far(s.start, s.stop, s.held, self.staged_bytes(s)) for s in steps)

    def staged_bytes(self, step: Step) -> int:
        """Least bytes of the second level for tiles of activations and constants that pass through it in a step."""
        constants = step_constants(step.by.blocks, isinstance(step.by, MappedOp), 0, 0.0) if self.staged else None
        return self.slot_bytes(step.start, step.by) + (constants.least if constants is not None else 0)

    def slot_bytes(self, at: int, by: Moved | PlannedUncopiedOp) -> int:
        """Bytes of the slots of an op's tiles."""
        if not self.passed or not isinstance(by, MappedOp):
            return 0
        return sum(n * size for n, size in passing_slots(by, self.passed_by(self.cutter.order[at])).values())

    @cached_property
    def passed(self) -> frozenset[str]:
        """Storages of the third level whose tiles pass through the second."""
        near = self.spaces[0]
        return frozenset(n for n, m in self.homes.items() if channel_between(self.target, near, m) is None)

    def passed_by(self, op: Op) -> frozenset[str]:
        """Operands and results of an op whose tiles pass through the second level."""
        return self.names(op, self.passed)

    @cached_property
    def staged(self) -> bool:
        """Whether constants pass through the second level."""
        return staging_channel(self.target, *self.spaces) is not None

    def layerwise(self) -> tuple[Step, ...]:
        """Every op by itself, nothing held."""
        nothing = frozenset[str]()
        ops = range(len(self.cutter.order))
        return tuple(Step(at, at + 1, nothing, self.tiled(at, nothing, self.room)) for at in ops)

    def best(self, price: float, waits: float) -> tuple[Step, ...] | None:
        """The path of fewest cycles, where every byte of activations that is copied counts `price` cycles more.

        `waits`: share that counts of the cycles in which steps wait for constants; prefetching hides most. None: the
        second level has no room for any path.
        """
        end = len(self.cutter.order)
        states: list[dict[frozenset[str], _State]] = [{} for _ in range(end + 1)]
        states[0][frozenset()] = _State(0.0, 0.0, ())
        for at in range(end):
            # Sets of held tensors are too many to keep all; names break ties, so that the plan is reproducible.
            kept = sorted(states[at].items(), key=lambda item: (item[1].score, sorted(item[0])))[:STATES]
            for held, state in kept:
                for step in self.options(at, held):
                    staged = self.staged_bytes(step)
                    if staged and not self.fits_far(at, step.stop, step.held, staged):
                        continue
                    score = (
                        state.score + step.cycles + price * step.by.copied - (1 - waits) * step.by.first_constants[0]
                    )
                    after = frozenset(n for n in step.held if self.cutter.life[n][1] >= step.stop)
                    incumbent = states[step.stop].get(after)
                    if incumbent is None or score < incumbent.score:
                        states[step.stop][after] = _State(score, state.cycles + step.cycles, (*state.steps, step))
            states[at] = {}
        return min(states[end].values(), key=lambda s: s.score).steps if states[end] else None

    def options(self, at: int, held: frozenset[str]) -> Iterator[Step]:
        """Steps that can start at a position with these tensors in the first level."""
        y = self.cutter.order[at].outputs[0]
        for more in _subsets([y] if self.holdable(y, at + 1) else []):
            now = held | more
            room = self.room - sum(self.sizes[n] for n in now)
            if room > 0 and self.fits_far(at, at + 1, now):
                tiles = self.tiled(at, now, room)
                if not isinstance(tiles, PlannedUncopiedOp) or (
                    self.open and not self.names(self.cutter.order[at], now)
                ):
                    yield Step(at, at + 1, now, tiles)
        for stop in self.stops(at):
            results = [n for n in self.results(at, stop) if self.holdable(n, stop)]
            for more in _subsets(results[:2]):
                now = held | more
                room = self.room - sum(self.sizes[n] for n in now)
                run = self.run(at, stop, now, room) if room > 0 and self.fits_far(at, stop, now) else None
                if run is not None:
                    yield Step(at, stop, now, run)

    def results(self, start: int, stop: int) -> list[str]:
        outputs = (op.outputs[0] for op in self.cutter.order[start:stop])
        return [n for n in outputs if self.cutter.life[n][1] >= stop]

    def live(self, start: int, stop: int) -> set[str]:
        """Storages that live while a section runs."""
        before = (n for n, (first, last) in self.cutter.life.items() if first < start <= last)
        return {*before, *self.results(start, stop)}

    def holdable(self, name: str, stop: int) -> bool:
        """Whether a tensor may stay in the first level: a later op reads it, it is no output, and it is small."""
        last = self.cutter.life[name][1]
        return stop <= last < len(self.cutter.order) and self.sizes[name] <= self.room // MAX_HELD

    def fits_far(self, start: int, stop: int, held: frozenset[str], more: int = 0) -> bool:
        """Whether tensors behind the first level fit there while a section runs. `more`: bytes added in the second."""
        used = Counter({self.spaces[1].name: more})
        for name in self.live(start, stop) - held:
            used[self.homes.get(name, self.spaces[1]).name] += self.cutter.sizes[name]
        return all(used[memory] <= size for memory, size in self.far.items())

    def stops(self, start: int) -> list[int]:
        """Ends of runs of two ops or more that begin here."""
        return self._stops[start]

    @cached_property
    def _stops(self) -> list[list[int]]:
        from ..rolling import possible_starts

        stops: list[list[int]] = [[] for _ in self.cutter.order]
        for stop in range(2, len(self.cutter.order) + 1):
            low = max(0, stop - MAX_RUN)
            for start in possible_starts(self.cutter.rolling, self.cutter.order[low:stop]):
                if low + start <= stop - 2:
                    stops[low + start].append(stop)
        return stops

    def run(self, start: int, stop: int, held: frozenset[str], room: int) -> PlannedRun | None:
        """The fastest run within `room` bytes, by several rows at once or by rows that cores share; None: none fits."""
        touched = held & (streams := {*self.streamer.operands(start, stop), *self.results(start, stop)})
        if self.passed & (streams - held):
            return None
        best, together = None, min(self.target.cores, MAX_CORES)
        while together:
            candidate = self._run(start, stop, touched, together)
            if (
                candidate is not None
                and candidate.level1_bytes <= room
                and (best is None or candidate.cycles.total < best.cycles.total)
            ):
                best = candidate
            together //= 2
        return best

    def _run(self, start: int, stop: int, touched: frozenset[str], together: int) -> PlannedRun | None:
        here = frozenset((n, m.name) for n, m in self.homes.items())
        key = (start, stop, touched, together, here)
        if key not in self.runs:
            shorter = self.runs.get((start, stop - 1, touched, together, here), "unknown")
            too_long = shorter is None and stop - 1 in self._stops[start]
            shares = min(self.target.cores, MAX_CORES) // together
            self.runs[key] = None if too_long else self.streamer.run(start, stop, touched, together, shares)
        return self.runs[key]

    def names(self, op: Op, storages: Container[str]) -> frozenset[str]:
        """Names of an op's operands and results that lie in these storages."""
        storage = self.cutter.rolling.storage
        return frozenset(n for n in (*op.inputs, *op.outputs) if n in storage and storage[n] in storages)

    def layer(self, at: int, held: frozenset[str]) -> TiledLayer:
        """An op as a loop nest; its operands among `held` lie in the first level."""
        op, graph, form = self.cutter.order[at], self.cutter.graph, self.cutter.form
        names = self.names(op, held)
        if (key := (at, names)) not in self.layers:
            homes = self.homes_of(op)
            self.layers[key] = layer_of_op(op, graph, self.target, form, self.spaces, names, homes, self.least)
        return self.layers[key]

    def tiled(self, at: int, held: frozenset[str], room: int) -> MappedOp | PlannedUncopiedOp:
        """The best mapping of an op within `room` bytes beside its `held` operands; no copies if no tile fits."""
        op = self.cutter.order[at]
        homes = frozenset((name, memory.name) for name, memory in self.homes_of(op).items())
        names = self.names(op, held)
        mappings = self.tiles.setdefault((at, names, homes), [])
        room = min(room, self.passing) if self.passed_by(op) - names else room
        # A bound on cycles, or energy, within `room`: the score within more room.
        least = max((tiles.cycles.score for had, tiles in mappings if had >= room), default=0.0)
        for had, tiles in mappings:
            if had >= room >= tiles.level1_bytes:
                return tiles
            if room > had and tiles.cycles.score <= ALIKE * least:
                return tiles
        layer, cheapest = self.layer(at, held), None
        with suppress(NoMapping):
            self.check_operands(op, layer)
            cheapest = cheapest_tiles(op, self.cutter.graph, layer, self.cutter.form, room)
        fits = cheapest is not None and len(cheapest.copies) <= MAX_COPIES
        mappings.append((room, cheapest if cheapest is not None and fits else PlannedUncopiedOp.of(layer)))
        return mappings[-1][1]

    def check_operands(self, op: Op, layer: TiledLayer) -> None:
        """Raise NoMapping for more operands than there are channels for."""
        if len(layer.operands) > MAX_OPERANDS or len(self.passed_by(op)) > MAX_PASSING:
            raise NoMapping(layer.name, {})

    def homes_of(self, op: Op) -> dict[str, Memory]:
        """Memories of those operands and results of an op that do not lie in the second level."""
        return {name: self.homes[self.cutter.rolling.storage[name]] for name in self.names(op, self.homes)}


def _subsets(names: list[str]) -> Iterator[frozenset[str]]:
    return map(frozenset, chain.from_iterable(combinations(names, n) for n in range(len(names) + 1)))


# ---- Results that stay in an engine's scratchpad for the next op
#
# Tensors that stay lie at the two ends of the scratchpad alternately, the tiles of an op between operand and result.


def with_residents(search: Residency, runs: dict[str, MappedOp | PlannedUncopiedOp]) -> dict[str, Place]:
    """Places of results that stay in scratchpads because that saves cycles; updates `runs` for their ops.

    A result stays if its op and its only reader, the next op, then take fewer cycles on their engine.
    """
    order, graph, align, stay = search.cutter.order, search.cutter.graph, search.align, dict[int, Place]()
    for at, (op, reader) in enumerate(pairwise(order)):
        y, storage = op.outputs[0], search.cutter.rolling.storage
        both = [m for n in (op, reader) if isinstance(m := runs[n.outputs[0]], MappedOp) and m.regions]
        alone = list(graph.consumers.get(y, ())) == [reader] and y not in graph.outputs and storage[y] == y
        if len(both) < 2 or both[0].form != both[1].form or not alone:
            continue
        engine = both[0].form.engine
        assert engine is not None
        offset = engine.activations // align * align - search.sizes[y] if at % 2 else 0
        with_y = {**stay, at: Place(engine.memories[0], offset)}
        remade = [r for n, m in enumerate(both, at) if offset >= 0 and (r := _remade(search, n, m, engine, with_y))]
        if len(remade) == 2 and sum(m.cycles.total for m in remade) < sum(m.cycles.total for m in both):
            stay = with_y
            runs |= {m.op.outputs[0]: m for m in remade}
    return {order[at].outputs[0]: place for at, place in stay.items()}


def _remade(search: Residency, at: int, moved: MappedOp, engine: Engine, stay: Mapping[int, Place]) -> MappedOp | None:
    """The op with its tiles between tensors that stay, which `stay` has by number of their op; None: no room."""
    graph, target = search.cutter.graph, search.target
    here = {search.cutter.order[n].outputs[0]: stay[n] for n in (at - 1, at) if n in stay}
    sizes = {name: search.sizes[name] for name in here}
    below = sum(size for name, size in sizes.items() if here[name].offset == 0)
    room = engine.activations // search.align * search.align - sum(sizes.values())
    spaces = search.homes.get(moved.op.outputs[0], search.spaces[1]), search.spaces[2]
    if room <= 0:
        return None
    tiled = offer(moved.op, graph, target, engine, moved.form, spaces, frozenset(here), room)
    if isinstance(tiled, str):
        return None
    shift = [here[o.name].offset if o.held else 0 if o.packed else below for o in tiled.operands]
    return replace(tiled.shifted(shift), why=moved.why, whole=moved.whole)
