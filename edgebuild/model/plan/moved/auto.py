"""The plan of `--map auto`: the search over sections and tensors that stay, made into places, copies and calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType

from ....base import progress
from ....base.errors import fail
from ....base.request import ModelRequest
from ....base.target import Memory as TargetMemory
from ....base.target import Target
from ...ir import Graph
from ..check.replay import replay
from ..hierarchy.mapper import NoMapping
from ..memory.check import check_layout
from ..memory.layout import layout
from ..memory.problem import Buffer, BufferMemory, DoesNotFit, Layout, MemoryProblem, Place, Schedule
from ..search import Plan, Planner
from ..section import Section
from ..storage import layout_problem, placed_buffers, view_starts
from .ahead import Early, early
from .caches import coherence
from .copies import ALIGN, WEIGHTS, MovedLayer
from .feeding import Ahead, FedRun
from .levels import channel_between, nearest, rooms
from .residency import Residency, Step
from .tiles import moved_layer

PRICES = (16.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.1, 0.0)  # cycles that a copied byte of activations is held to cost
WAITS = (0.3, 1.0)  # the part that counts of waiting for constants, of which most come earlier
SLOWER = 1.02  # of the fastest plan: what one that moves fewer bytes may take
TRIES = 6  # layouts with less and less room
EFFORT = 1.0  # of laying out the first level: about 5 s of processor time
AHEAD = 32  # channels of constants that come early, behind those of steps
AHEAD_CHANNELS = 8  # that these take in turn


@dataclass(frozen=True)
class Found:
    """A path of the search with the constants that come early. `bytes`: of activations, copied."""

    steps: tuple[Step, ...]
    early: tuple[Early, ...]

    @property
    def cycles(self) -> float:
        return sum(s.cycles for s in self.steps) - sum(e.hidden for e in self.early)

    @property
    def bytes(self) -> float:
        return sum(s.moved for s in self.steps)


def auto_plan(graph: Graph, target: Target, request: ModelRequest) -> Plan:
    """The plan that moves fewest bytes of those that take little longer than the fastest, and no longer than by layers.

    Raises EdgebuildError where nothing fits.
    """
    planner = Planner(graph, target, request)
    near, _ = nearest(target)
    room = whole = rooms(target, None)[near.name]
    memories = far_memories(planner)
    homes = spilled(planner, memories)
    for _ in range(TRIES):
        search = search_of(planner, room, memories, homes)
        search.check_tiles()
        found = chosen(search)
        for kept in (found, replace(found, early=())):
            try:
                return assembled(planner, search, kept)
            except (DoesNotFit, NoMapping) as reason:
                progress.say(f"no layout of {room} B: {reason}")
            except Elsewhere as better:
                homes = {**homes, **better.homes}
                break
        else:
            room -= whole // 16
    raise fail(f"no layout of {near.name} was found", file=graph.file, hints=["use --map layer"])


def _memory(target: Target, name: str) -> TargetMemory:
    return next(m for m in target.memories if m.name == name)


def far_memories(planner: Planner) -> tuple[BufferMemory, ...]:
    """Where activations lie that do not stay in the first level: what a DMA unit reaches from there."""
    target = planner.target
    near, _ = nearest(target)
    return tuple(m for m in planner.memories if channel_between(target, near, _memory(target, m.name)) is not None)


class Elsewhere(Exception):
    """The layout puts tensors into other memories than the search counted with."""

    def __init__(self, homes: Mapping[str, TargetMemory]) -> None:
        super().__init__(", ".join(homes))
        self.homes = homes


def spilled(planner: Planner, memories: Sequence[BufferMemory]) -> dict[str, TargetMemory]:
    """The storages that the second level has no room for if every op runs by itself, and where they lie instead."""
    cutter = planner.cutter
    if len(memories) < 2:
        return {}
    steps = tuple(replace(cutter.whole(at), overlaps=()) for at in range(len(cutter.order)))
    problem, inside = layout_problem(cutter, steps, memories)
    try:
        found = layout(problem, effort=EFFORT)
    except DoesNotFit:
        return {}
    return _elsewhere(planner.target, memories[0].name, found, inside)


def _elsewhere(
    target: Target, first: str, found: Layout, inside: Mapping[str, tuple[str, int]]
) -> dict[str, TargetMemory]:
    places = {name: found.places[group].memory for name, (group, _) in inside.items() if group in found.places}
    return {name: _memory(target, memory) for name, memory in places.items() if memory != first}


def search_of(
    planner: Planner,
    room: int,
    memories: Sequence[BufferMemory] = (),
    homes: Mapping[str, TargetMemory] = MappingProxyType({}),
) -> Residency:
    """The search within `room` bytes of the first level; `homes`: of storages that the second has no room for."""
    target, memories = planner.target, memories or far_memories(planner)
    spaces = nearest(target)[0], _memory(target, memories[0].name), target.memory("weights")
    return Residency(planner.cutter, target, spaces, room, {m.name: m.capacity or 0 for m in memories}, homes)


def candidates(search: Residency) -> Iterator[Found]:
    """Paths by the price of a byte and of a wait; layer by layer the last."""
    for waits in WAITS:
        for price in PRICES:
            steps = search.best(price, waits)
            if steps is not None:
                yield Found(steps, early(steps, search.sizes, search.room))
    steps = search.layerwise()
    if search.possible(steps):
        yield Found(steps, ())
        yield Found(steps, early(steps, search.sizes, search.room))


def chosen(search: Residency) -> Found:
    """Fewest bytes of those that are hardly slower than the fastest, and not slower than layer by layer."""
    every = list(candidates(search))
    if not every:
        sizes = " and ".join(f"{name} has {size} B" for name, size in search.far.items())
        text = f"activations do not fit: {sizes} for them"
        raise fail(text, file=search.cutter.graph.file, hints=["use a target with more RAM"])
    layers = sum(s.cycles for s in search.layerwise())
    most = min(max(layers, min(f.cycles for f in every)), SLOWER * min(f.cycles for f in every))
    return min((f for f in every if f.cycles <= most), key=lambda f: (f.bytes, f.cycles))


def assembled(planner: Planner, search: Residency, found: Found) -> Plan:
    """A path as a plan that was replayed. Raises DoesNotFit where the first level has no layout."""
    room = rooms(planner.target, None)[nearest(planner.target)[0].name]
    return _Assembly(planner, search, found, room).plan()


@dataclass(frozen=True)
class _Assembly:
    """Places for what a path needs, and the plan. `room`: bytes of the first level."""

    planner: Planner
    search: Residency
    found: Found
    room: int

    def plan(self) -> Plan:
        """Raises DoesNotFit where the first level has no layout."""
        planner, cutter = self.planner, self.planner.cutter
        near = nearest(planner.target)[0].name
        made = [self._made(i) for i in range(len(self.found.steps))]
        sections = [self._section(step) for step in self.found.steps]
        far, places = self._far(sections)
        problem = self._near(made)
        level = layout(problem, self.room, EFFORT)
        check_layout(problem, level)
        at = {name: place.offset for name, place in level.places.items()}
        places |= {n: Place(near, at[n]) for n in self._held()}
        moved, ahead = self._placed(made, at, places)
        for run in moved.values():
            if isinstance(run, FedRun):
                places |= {n: Place(near, offset) for n, offset in run.places.items()}
        steps = tuple(self._final(section, moved) for section in sections)
        heights = {**far.heights, near: level.height}
        order = [m.name for m in planner.target.memories if m.name in heights]
        joined = Layout(places, {n: heights[n] for n in order}, far.bound + level.bound, False, "levels")
        caches = coherence(planner.target, cutter.rolling, steps, places, moved)
        replay(cutter.rolling, steps, places, moved, level.height, ahead, caches)
        profile = self._profile(made)
        schedule = Schedule(tuple(range(len(steps))), profile, max(profile, default=0), max(profile, default=0), False,
                            "memory levels", ())  # fmt: skip
        return Plan(
            planner.request.name, cutter.graph, cutter.rolling, cutter, planner.target, planner.request, steps, places,
            placed_buffers(cutter, steps, places), schedule, joined,
            planner.target.memory("weights").name, planner.untiled_bytes, moved=moved, ahead=ahead, caches=caches,
            whole_cycles=self.search.whole,
        )  # fmt: skip

    def _made(self, at: int) -> MovedLayer | FedRun | None:
        """How a step runs, without its constants where these come early."""
        step = self.found.steps[at]
        if isinstance(step.by, FedRun):
            return step.by
        if step.by.moved is None or all(e.step != at for e in self.found.early):
            return step.by.moved
        moved = step.by.moved
        operands = tuple(replace(o, held=o.held or o.packed) for o in moved.layer.operands)
        layer = replace(moved.layer, operands=operands)
        return moved_layer(moved.op, self.planner.graph, layer, moved.form, self.room, moved.mapped)

    def _section(self, step: Step) -> Section:
        """The step as it takes room in the second level: none but for an op that runs there."""
        if isinstance(step.by, FedRun):
            return replace(step.by.section, inner={}, spans={})
        whole = replace(self.planner.cutter.whole(step.start), overlaps=())
        return whole if step.by.moved is None else replace(whole, inner={}, spans={})

    def _final(self, section: Section, moved: Mapping[str, MovedLayer | FedRun]) -> Section:
        run = moved.get(section.ops[0].outputs[0])
        return run.section if isinstance(run, FedRun) else section

    def _held(self) -> dict[str, tuple[int, int]]:
        """First and last step of every tensor that stays in the first level."""
        found: dict[str, tuple[int, int]] = {}
        for i, step in enumerate(self.found.steps):
            for name in sorted(step.held):
                found[name] = (found.get(name, (i, i))[0], i)
        return found

    def _far(self, sections: Sequence[Section]) -> tuple[Layout, dict[str, Place]]:
        """Layout of what is behind the first level, and places of the tensors there."""
        problem, inside = layout_problem(self.planner.cutter, sections, far_memories(self.planner))
        held, homes = self._held(), self.search.homes
        buffers = (b for b in problem.buffers if b.name not in held)
        fixed = (replace(b, memories=(homes[b.name].name,)) if b.name in homes else b for b in buffers)
        problem = replace(problem, buffers=tuple(fixed))
        found = layout(problem)
        check_layout(problem, found)
        strays = _elsewhere(self.planner.target, self.search.spaces[1].name, found, inside)
        if more := {n: m for n, m in strays.items() if n not in homes}:
            raise Elsewhere(more)
        return found, {n: found.places[group] for n, (group, _) in inside.items() if group not in held}

    def _near(self, made: Sequence[MovedLayer | FedRun | None]) -> MemoryProblem:
        buffers = [Buffer(n, self.search.sizes[n], first, last + 1, ALIGN) for n, (first, last) in self._held().items()]
        for at, moved in enumerate(made):
            if moved is not None and (size := self._work(at, moved)):
                buffers.append(Buffer(_work(at), size, at, at + 1, ALIGN))
        for e in self.found.early:
            buffers.append(Buffer(_constants(e.step), self._constant_bytes(e.step), e.first, e.step + 1, ALIGN))
        return MemoryProblem(tuple(buffers), (BufferMemory(nearest(self.planner.target)[0].name, self.room),))

    def _work(self, at: int, moved: MovedLayer | FedRun) -> int:
        early_ = any(e.step == at for e in self.found.early) and isinstance(moved, FedRun)
        return moved.near_bytes - (self._constant_bytes(at) if early_ else 0)

    def _constant_bytes(self, at: int) -> int:
        return -(-self.found.steps[at].constants[1] // ALIGN) * ALIGN

    def _placed(
        self, made: Sequence[MovedLayer | FedRun | None], at: Mapping[str, int], places: Mapping[str, Place]
    ) -> tuple[dict[str, MovedLayer | FedRun], tuple[Ahead, ...]]:
        """The steps with their bytes at their places, and the copies of constants that come early."""
        moved, ahead = dict[str, MovedLayer | FedRun](), list[Ahead]()
        first, hidden = ({e.step: e.first for e in self.found.early}, {e.step: e.hidden for e in self.found.early})
        for i, step in enumerate(made):
            if step is None:
                continue
            constants = at[_constants(i)] if i in first else None
            base = at.get(_work(i), 0)
            if isinstance(step, FedRun):
                step = step.placed(base, constants)
                blocks = [*zip(step.blocks, step.block_at, strict=True)]
                moved[step.ops[0].outputs[0]] = step
            else:
                step = step.placed(base, self._operands(step, places, constants))
                blocks = [(b, constants or 0) for b in step.blocks]
                moved[step.op.outputs[0]] = step
            for block, near in blocks if i in first else ():
                if block.data.nbytes:
                    channel = AHEAD + len(ahead) % AHEAD_CHANNELS
                    early_ = all(a.step != i for a in ahead)
                    waited = self.found.steps[i].constants[0] - hidden[i] if early_ else 0.0
                    ahead.append(Ahead(first[i], i, channel, block, near, waited))
        return moved, tuple(ahead)

    def _operands(self, step: MovedLayer, places: Mapping[str, Place], constants: int | None) -> dict[int, int]:
        """Where operands that are held begin, by number."""
        found, cutter = {}, self.planner.cutter
        starts = view_starts(cutter.graph)
        for i, operand in enumerate(step.layer.operands):
            if operand.held and operand.name == WEIGHTS and operand.packed:
                found[i] = constants or 0
            elif operand.held:
                found[i] = places[cutter.rolling.storage[operand.name]].offset + starts.get(operand.name, 0)
        return found

    def _profile(self, made: Sequence[MovedLayer | FedRun | None]) -> tuple[int, ...]:
        """Bytes live in both levels in every step."""
        cutter, found, held = self.planner.cutter, list[int](), self._held()
        begins = accumulate((s.stop - s.start for s in self.found.steps), initial=0)
        for at, (step, moved, begin) in enumerate(zip(self.found.steps, made, begins, strict=False)):
            live = {n for n, (first, last) in cutter.life.items() if first < begin <= last}
            live.update(self.search.results(step.start, step.stop))
            size = sum(cutter.sizes[n] for n in live - set(held)) + sum(self.search.sizes[n] for n in step.held)
            size += self._work(at, moved) if moved is not None else 0
            size += sum(self._constant_bytes(e.step) for e in self.found.early if e.first <= at <= e.step)
            found.append(size)
        return tuple(found)


def _work(at: int) -> str:
    return f"step {at}"


def _constants(at: int) -> str:
    return f"constants of step {at}"
