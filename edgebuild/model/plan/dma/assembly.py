"""The plan of `--map auto`: a path of the search made into places, copies and calls, with constants prefetched.

Constants are fetched under earlier steps as far as the first level has room and the DMA unit has time."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType

from ....base import progress
from ....base.errors import fail
from ....base.request import ModelRequest
from ....base.target import Memory, Target
from ....base.target import Memory as TargetMemory
from ...ir import Graph, Op
from ...kernels import kernel_of
from ...ops.base import Form
from ..check.replay import BrokenPlan, replay
from ..hierarchy.baselines import dory
from ..hierarchy.mapper import NoMapping
from ..hierarchy.nest import Channel, Mapped, TiledLayer
from ..memory.check import check_layout
from ..memory.layout import layout
from ..memory.problem import Buffer, BufferMemory, DoesNotFit, Layout, MemoryProblem, Place, Schedule
from ..printed import Copy, ReachedOp, Start
from ..search import Plan, Planner, form_of
from ..section import Section
from ..storage import layout_problem, placed_buffers
from . import levels
from .prefetch import (
    Fetch,
    Staging,
    StepConstants,
    coherence,
    first_copies,
    hidden_before,
    joined,
    schedule_stagings,
    staged_run,
    staged_tiles,
    staging_channel,
    step_constants,
    with_transfers,
)
from .residency import BareOp, Residency, Step
from .streamed import PlannedRun
from .tiles import ALIGN, MOST_COPIES, MOST_OPERANDS, MappedOp, aligned, cheapest_tiles, fitting_tiles


@dataclass(frozen=True)
class Prefetch:
    """The constants of step `step` are fetched from before step `first` on. `hidden`: cycles that this saves."""

    step: int
    first: int
    hidden: float


def prefetches(steps: Sequence[Step], sizes: Mapping[str, int], room: int) -> tuple[Prefetch, ...]:
    """Each step's constants as late as they need not be waited for; with too little time, as early as there is room.

    `sizes`: bytes of tensors that are held, `room`: of the first level.
    """
    load = [step.by.level1_bytes + sum(sizes[n] for n in step.held) for step in steps]
    slack, early = [max(0.0, step.by.slack) for step in steps], list[Prefetch]()
    for at, (cycles, size) in enumerate(step.by.first_constants for step in steps):
        first, hidden = hidden_before(at, cycles, aligned(size), slack, load, room)
        if hidden:
            load[first:at] = [used + aligned(size) for used in load[first:at]]
            early.append(Prefetch(at, first, hidden))
    return tuple(early)


EFFORT = 1.0  # of laying out the first level: about 5 s of processor time
AHEAD = 32  # channels of constants that come early, behind those of steps
AHEAD_CHANNELS = 8  # that these take in turn
LESS = 16  # the part of the second level that constants leave free, once more at every try to lay them out
TRIES = 6  # layouts with less and less room: of the second level for constants, and of the first


@dataclass(frozen=True)
class SearchPath:
    """A path of the search with the constants that come early. `bytes`: of activations, copied."""

    steps: tuple[Step, ...]
    early: tuple[Prefetch, ...]
    staged: float = 0.0  # cycles of waiting for constants on their way to the second level

    @property
    def cycles(self) -> float:
        return sum(s.cycles for s in self.steps) - sum(e.hidden for e in self.early) + self.staged

    @property
    def bytes(self) -> float:
        return sum(s.by.copied for s in self.steps)


def far_memories(planner: Planner) -> tuple[BufferMemory, ...]:
    """Where activations lie that do not stay in the first level: what a DMA unit reaches from there."""
    target = planner.target
    near, _ = levels.nearest(target)
    return tuple(
        m for m in planner.memories if levels.channel_between(target, near, target.memory_named(m.name)) is not None
    )


class OtherHomes(Exception):
    """The layout puts tensors into other memories than the search counted with."""

    def __init__(self, homes: Mapping[str, TargetMemory]) -> None:
        super().__init__(", ".join(homes))
        self.homes = homes


def other_homes(
    target: Target, first: str, placed: Layout, inside: Mapping[str, tuple[str, int]]
) -> dict[str, TargetMemory]:
    places = {name: placed.places[group].memory for name, (group, _) in inside.items() if group in placed.places}
    return {name: target.memory_named(memory) for name, memory in places.items() if memory != first}


def assembled(planner: Planner, search: Residency, path: SearchPath, earlier: int | None = None) -> Plan:
    """A path as a plan that was replayed. Raises DoesNotFit where a level has no layout.

    `earlier`: how many steps before their own constants come to the second level at most; None: any number.
    """
    room = levels.rooms(planner.target, None)[levels.nearest(planner.target)[0].name]
    return _Assembly(planner, search, path, room, earlier).plan()


def stage_plan(
    search: Residency,
    steps: Sequence[Step],
    early: Sequence[Prefetch],
    earlier: int | None = None,
    room: int | None = None,
) -> tuple[Staging, ...]:
    """How constants come to the second level; nothing where they need not. Raises DoesNotFit.

    `room`: bytes of that level; None: all that there is.
    """
    channel = staging_channel(search.target, *search.spaces)
    if channel is None:
        return ()
    home, cutter = search.spaces[1].name, search.cutter
    first, wants, live = {e.step: e.first for e in early}, list[StepConstants | None](), list[int]()
    for i, step in enumerate(steps):
        wants.append(step_constants(step.by.blocks, first.get(i, i), step.cycles))
        there = {n for n, (begin, last) in cutter.life.items() if begin < step.start <= last}
        there.update(search.results(step.start, step.stop))
        live.append(sum(cutter.sizes[n] for n in there - step.held if n not in search.homes))
    busy = [step.cycles for step in steps]
    return schedule_stagings(wants, busy, live, channel, search.far[home] if room is None else room, home, earlier)


@dataclass(frozen=True)
class _Assembly:
    """Places for what a path needs, and the plan. `room`: bytes of the first level; `earlier`: see `assembled`."""

    planner: Planner
    search: Residency
    path: SearchPath
    room: int
    earlier: int | None = None

    @property
    def align(self) -> int:
        """Bytes, of buffers that a DMA unit copies to or from."""
        return max(ALIGN, self.planner.target.dma_align)

    def plan(self) -> Plan:
        """Raises DoesNotFit where a level has no layout."""
        planner, cutter = self.planner, self.planner.cutter
        near = levels.nearest(planner.target)[0].name
        unplaced = [self._unplaced(i) for i in range(len(self.path.steps))]
        sections = [self._section(step) for step in self.path.steps]
        far, places, stages = self._far(sections)
        problem = self._near(unplaced)
        level = layout(problem, self.room, EFFORT)
        check_layout(problem, level)
        at = {name: place.offset for name, place in level.places.items()}
        places |= {n: Place(near, at[n]) for n in self._held()}
        moved, early = self._placed(unplaced, at, places)
        moved, early, staged = self._staged(moved, early, stages, far.places)
        for run in moved.values():
            if isinstance(run, PlannedRun):
                places |= {n: Place(near, offset) for n, offset in run.places.items()}
        steps = [self._final(i, section, moved.get(i)) for i, section in enumerate(sections)]
        heights = {**far.heights, near: level.height}
        order = [m.name for m in planner.target.memories if m.name in heights]
        joined = Layout(places, {n: heights[n] for n in order}, far.bound + level.bound, False, "levels")
        timed = with_transfers(steps, coherence(planner.target, cutter.rolling, steps, places), staged, early)
        replay(cutter.graph, timed, places, planner.target, level.height, views=cutter.rolling.views)
        profile = self._profile(unplaced)
        schedule = Schedule(tuple(range(len(steps))), profile, max(profile, default=0), max(profile, default=0), False,
                            "memory levels", ())  # fmt: skip
        return Plan(
            planner.request.name, cutter.graph, cutter.rolling, cutter, planner.target, planner.request, timed, places,
            placed_buffers(cutter, timed, places), schedule, joined,
            planner.target.memory("weights").name, planner.untiled_bytes,
        )  # fmt: skip

    def _unplaced(self, at: int) -> MappedOp | PlannedRun | None:
        """How a step runs, without its constants where these come early."""
        by = self.path.steps[at].by
        if isinstance(by, BareOp):
            return None
        early = any(e.step == at for e in self.path.early)
        return by.without_constants(self.planner.graph, self.room) if early else by

    def _section(self, step: Step) -> Section:
        """The step as it takes room in the second level: none but for an op that runs there."""
        if isinstance(step.by, PlannedRun):
            return replace(step.by.section, inner={}, spans={})
        whole = replace(self.planner.cutter.whole(step.start), overlap=None)
        return whole if isinstance(step.by, BareOp) else replace(whole, inner={}, spans={})

    def _final(self, at: int, section: Section, moved: MappedOp | PlannedRun | None) -> Section:
        step = self.path.steps[at]
        ops = self.planner.cutter.order[step.start : step.stop]
        whole = step.by.whole or tuple(self.search.whole[op.outputs[0]] for op in ops)
        if moved is None:
            return replace(section, moves=ReachedOp("", whole))
        return replace(moved.section if isinstance(moved, PlannedRun) else section, moves=replace(moved, whole=whole))

    def _held(self) -> dict[str, tuple[int, int]]:
        """First and last step of every tensor that stays in the first level."""
        lives: dict[str, tuple[int, int]] = {}
        for i, step in enumerate(self.path.steps):
            for name in sorted(step.held):
                lives[name] = (lives.get(name, (i, i))[0], i)
        return lives

    def _far(self, sections: Sequence[Section]) -> tuple[Layout, dict[str, Place], tuple[Staging, ...]]:
        """Layout of what is behind the first level, places of the tensors there, and how constants come there."""
        problem, inside = layout_problem(self.planner.cutter, sections, far_memories(self.planner))
        held, homes = self._held(), self.search.homes
        buffers = (b for b in problem.buffers if b.name not in held)
        fixed = tuple(replace(b, memories=(homes[b.name].name,)) if b.name in homes else b for b in buffers)
        whole = self.search.far[self.search.spaces[1].name]
        for tried in range(TRIES):
            room = whole - tried * whole // LESS
            stages = stage_plan(self.search, self.path.steps, self.path.early, self.earlier, room)
            together = replace(problem, buffers=(*fixed, *self._stage_buffers(sections, stages)))
            try:
                placed = layout(together)
                break
            except DoesNotFit:
                if not stages or tried == TRIES - 1:
                    raise
        check_layout(together, placed)
        strays = other_homes(self.planner.target, self.search.spaces[1].name, placed, inside)
        if more := {n: m for n, m in strays.items() if n not in homes}:
            raise OtherHomes(more)
        return placed, {n: placed.places[group] for n, (group, _) in inside.items() if group not in held}, stages

    def _stage_buffers(self, sections: Sequence[Section], stages: Sequence[Staging]) -> tuple[Buffer, ...]:
        begins = list(accumulate((section.callers for section in sections), initial=0))
        home = (self.search.spaces[1].name,)
        return tuple(
            Buffer(_stage(s.step), s.bytes, begins[s.first], begins[s.step + 1], self.align, home) for s in stages
        )

    def _staged(
        self,
        moved: Mapping[int, MappedOp | PlannedRun],
        early: Sequence[Fetch],
        stages: Sequence[Staging],
        places: Mapping[str, Place],
    ) -> tuple[dict[int, MappedOp | PlannedRun], list[Fetch], list[Fetch]]:
        """The steps with their constants fetched from the second level, and the copies that bring them there."""
        result, starts, fetches = dict(moved), dict[tuple[int, int], tuple[str, int]](), list[Fetch]()
        for s in stages:
            place, store, step = places[_stage(s.step)], self._stage_channel(), result[s.step]
            fetches += first_copies(s, step.blocks, place, store, len(fetches))
            change = staged_run(step, s, place) if isinstance(step, PlannedRun) else staged_tiles(step, s, place, store)
            result[s.step] = change
            for block, at in zip(step.blocks, joined(step.blocks)[1], strict=True):
                starts[s.step, id(block)] = place.memory, place.offset + at
        keys = ((f.start.step, id(f.start.block)) for f in early)
        out_of_stage = [_out_of_stage(f, *starts.get(key, ("", 0))) for f, key in zip(early, keys, strict=True)]
        return result, out_of_stage, fetches

    def _stage_channel(self) -> Channel:
        channel = staging_channel(self.planner.target, *self.search.spaces)
        assert channel is not None
        return channel

    def _near(self, unplaced: Sequence[MappedOp | PlannedRun | None]) -> MemoryProblem:
        buffers = [
            Buffer(n, self.search.sizes[n], first, last + 1, self.align) for n, (first, last) in self._held().items()
        ]
        for at, moved in enumerate(unplaced):
            if moved is not None and (size := self._work(at, moved)):
                buffers.append(Buffer(_work(at), size, at, at + 1, self.align))
        for e in self.path.early:
            buffers.append(Buffer(_constants(e.step), self._constant_bytes(e.step), e.first, e.step + 1, self.align))
        return MemoryProblem(tuple(buffers), (BufferMemory(levels.nearest(self.planner.target)[0].name, self.room),))

    def _work(self, at: int, moved: MappedOp | PlannedRun) -> int:
        return moved.work_bytes(self._constant_bytes(at) if any(e.step == at for e in self.path.early) else 0)

    def _constant_bytes(self, at: int) -> int:
        return -(-self.path.steps[at].by.first_constants[1] // self.align) * self.align

    def _placed(
        self, unplaced: Sequence[MappedOp | PlannedRun | None], at: Mapping[str, int], places: Mapping[str, Place]
    ) -> tuple[dict[int, MappedOp | PlannedRun], list[Fetch]]:
        """The steps with their bytes at their places, and the copies of constants that come early."""
        moved, fetches, views = dict[int, MappedOp | PlannedRun](), list[Fetch](), self.planner.cutter.rolling.views
        held = {name: places[root].offset + start for name, (root, start) in views.items() if root in places}
        first, hidden = ({e.step: e.first for e in self.path.early}, {e.step: e.hidden for e in self.path.early})
        for i, step in enumerate(unplaced):
            if step is None:
                continue
            constants, base = at[_constants(i)] if i in first else None, at.get(_work(i), 0)
            step = step.placed(base, constants, held)
            moved[i], waited = step, self.path.steps[i].by.first_constants[0] - hidden.get(i, 0.0)
            for block, near in step.blocks_at(constants) if i in first else ():
                if block.data.nbytes:
                    channel = AHEAD + len(fetches) % AHEAD_CHANNELS
                    copy = Copy(channel, True, "", 0, 0, near, block.data.nbytes)
                    fetches.append(Fetch(first[i], i, Start(copy, block, i, waited)))
                    waited = 0.0
        return moved, fetches

    def _profile(self, unplaced: Sequence[MappedOp | PlannedRun | None]) -> tuple[int, ...]:
        """Bytes live in both levels in every step."""
        cutter, profile, held = self.planner.cutter, list[int](), self._held()
        begins = accumulate((s.stop - s.start for s in self.path.steps), initial=0)
        for at, (step, moved, begin) in enumerate(zip(self.path.steps, unplaced, begins, strict=False)):
            live = {n for n, (first, last) in cutter.life.items() if first < begin <= last}
            live.update(self.search.results(step.start, step.stop))
            size = sum(cutter.sizes[n] for n in live - set(held)) + sum(self.search.sizes[n] for n in step.held)
            size += self._work(at, moved) if moved is not None else 0
            size += sum(self._constant_bytes(e.step) for e in self.path.early if e.first <= at <= e.step)
            profile.append(size)
        return tuple(profile)


def _work(at: int) -> str:
    return f"step {at}"


def _constants(at: int) -> str:
    return f"constants of step {at}"


def _stage(at: int) -> str:
    return f"stage of step {at}"


def _out_of_stage(fetch: Fetch, memory: str, at: int) -> Fetch:
    """The fetch with its constants out of the second level, if they come by way of that."""
    copy = replace(fetch.start.copy, stage=memory, far=at)
    return replace(fetch, start=replace(fetch.start, copy=copy))


PRICES = (16.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.1, 0.0)  # cycles that a copied byte of activations is held to cost
WAITS = (0.3, 1.0)  # the part that counts of waiting for constants, of which most come earlier
SLOWER = 1.02  # of the fastest plan: what one that moves fewer bytes may take


def auto_plan(graph: Graph, target: Target, request: ModelRequest) -> Plan:
    """The plan that moves fewest bytes of those that take little longer than the fastest, and no longer than by layers.

    Raises EdgebuildError where nothing fits.
    """
    planner = Planner(graph, target, request)
    near, _ = levels.nearest(target)
    room = whole = levels.rooms(target, None)[near.name]
    memories = far_memories(planner)
    homes = spilled(planner, memories)
    for _ in range(TRIES):
        search = search_of(planner, room, memories, homes)
        search.check_tiles()
        path = chosen(search)
        for kept in (path, replace(path, early=())):
            try:
                return assembled(planner, search, kept)
            except (DoesNotFit, NoMapping) as reason:
                progress.say(f"no layout of {room} B: {reason}")
            except OtherHomes as better:
                homes = {**homes, **better.homes}
                break
        else:
            room -= whole // 16
    raise fail(f"no layout of {near.name} was found", file=graph.file, hints=["use --map layer"])


def spilled(planner: Planner, memories: Sequence[BufferMemory]) -> dict[str, TargetMemory]:
    """The storages that the second level has no room for if every op runs by itself, and where they lie instead."""
    cutter = planner.cutter
    if len(memories) < 2:
        return {}
    steps = tuple(replace(cutter.whole(at), overlap=None) for at in range(len(cutter.order)))
    problem, inside = layout_problem(cutter, steps, memories)
    try:
        placed = layout(problem, effort=EFFORT)
    except DoesNotFit:
        return {}
    return other_homes(planner.target, memories[0].name, placed, inside)


def search_of(
    planner: Planner,
    room: int,
    memories: Sequence[BufferMemory] = (),
    homes: Mapping[str, TargetMemory] = MappingProxyType({}),
) -> Residency:
    """The search within `room` bytes of the first level; `homes`: of storages that the second has no room for."""
    target, memories = planner.target, memories or far_memories(planner)
    spaces = levels.nearest(target)[0], target.memory_named(memories[0].name), target.memory("weights")
    return Residency(planner.cutter, target, spaces, room, {m.name: m.capacity or 0 for m in memories}, homes)


def candidates(search: Residency) -> Iterator[SearchPath]:
    """Paths by the price of a byte and of a wait; layer by layer the last."""
    for waits in WAITS:
        for price in PRICES:
            steps = search.best(price, waits)
            if steps is not None:
                yield from _staged_path(search, steps, prefetches(steps, search.sizes, search.room))
    steps = search.layerwise()
    if search.possible(steps):
        yield from _staged_path(search, steps, ())
        yield from _staged_path(search, steps, prefetches(steps, search.sizes, search.room))


def _staged_path(search: Residency, steps: tuple[Step, ...], early: tuple[Prefetch, ...]) -> Iterator[SearchPath]:
    """The path, unless constants find no room on their way."""
    with suppress(DoesNotFit):
        staged = sum(s.waited for s in stage_plan(search, steps, early))
        yield SearchPath(steps, early, staged)


def chosen(search: Residency) -> SearchPath:
    """Fewest bytes of those that are hardly slower than the fastest, and not slower than layer by layer."""
    every = list(candidates(search))
    if not every:
        sizes = " and ".join(f"{name} has {size} B" for name, size in search.far.items())
        text = f"activations do not fit: {sizes} for them"
        raise fail(text, file=search.cutter.graph.file, hints=["use a target with more RAM"])
    layers = next((f.cycles for f in _staged_path(search, search.layerwise(), ())), 0.0)
    most = min(max(layers, min(f.cycles for f in every)), SLOWER * min(f.cycles for f in every))
    return min((f for f in every if f.cycles <= most), key=lambda f: (f.bytes, f.cycles))


# A plan whose ops run tile by tile between memory levels: the network level of `--map`.


def check_request(target: Target, request: ModelRequest) -> None:
    """Raise EdgebuildError for what does not go together with `--map`."""
    levels.check_levels(target)
    levels.check_engines(target)
    other = request.tile not in (None, "off") or request.objective == "energy"
    if other or request.arena == "caller" or request.stream_input or request.stream_output:
        raise fail("--map goes with --tile off and --arena static, not with --stream-... or --objective energy")
    (near, home), store = levels.nearest(target), target.memory("weights")
    if (room := levels.rooms(target, None).get(near.name, 0)) < 0:
        text = f"{near.name} has {near.size} B, and the stack in it takes {near.size - room} B"
        raise fail(text, file=target.files[0], hints=[f"a larger --limit {near.name}=BYTES"])
    by_second_level = staging_channel(target, near, home, store) is not None and not levels.engines_of(target)
    if levels.channel_between(target, near, store) is None and not by_second_level:
        text = f"no DMA of target {target.name} reaches both {near.name} and {store.name}, where weights lie"
        raise fail(text, file=target.files[0], hints=["`edgebuild map` tells what tiles would cost there"])


def reached(target: Target) -> Target:
    """The target with activations only where a DMA unit copies between them and the first level.

    Raises EdgebuildError where no memory is left for them.
    """
    near = levels.nearest(target)[0]
    memories = [
        m if levels.channel_between(target, near, m) else replace(m, roles=tuple(r for r in m.roles if r != "arena"))
        for m in target.memories
    ]
    if not any("arena" in m.roles and m.level != 1 for m in memories):
        text = f"no DMA of target {target.name} joins {near.name} with a memory that has the role 'arena'"
        raise fail(text, file=target.files[0], hints=["add one to `between` of a unit in `dma:`"])
    return replace(target, memories=tuple(memories))


@dataclass(frozen=True)
class _Decided:
    """An op as a loop nest, its tiles if some fit, and what it is where the core reaches its operands instead."""

    op: Op
    layer: TiledLayer
    tiles: MappedOp | None
    reached: ReachedOp


def layerwise_plan(plan: Plan, choose: Callable[[TiledLayer], Mapped] | None = None) -> Plan:
    """The plan with every op tile by tile that fits so, on the core or on an engine; the others reach the second level.

    `choose` maps a layer of the core; not given: the best mapping, or the rule that the request names.

    Raises EdgebuildError where an op does not fit and the core cannot reach its operands.
    """
    target = plan.target
    near, second = levels.nearest(target)
    decided = [_decided(plan, op, choose) for section in plan.steps for op in section.ops]
    if staging_channel(target, near, second, target.memory("weights")) is not None:
        return _through_second_level(plan, decided)
    mapped = _sound(plan, decided)
    heights = _heights(plan, near.name, [m for m in mapped.moves.values() if isinstance(m, MappedOp)])
    mapped = replace(mapped, layout=replace(plan.layout, heights=heights))
    return mapped if plan.request.map != "auto" else _checked(levels.with_residents(mapped))


def _decided(plan: Plan, op: Op, choose: Callable[[TiledLayer], Mapped] | None) -> _Decided:
    target, (y,) = plan.target, op.outputs
    form, near, store = form_of(target, plan.request), levels.nearest(target)[0], target.memory("weights")
    homes = {name: plan.home(name) for name in (*op.inputs, y) if name in plan.rolling.storage}
    spaces = near, homes[y], store
    layer = levels.layer_of_op(op, plan.graph, target, form, spaces, homes=homes)
    tiles = _by_core(plan, op, form, layer, spaces, choose)
    whole, why = layer.alone if tiles is None else levels.whole_cycles(layer), ""
    if levels.engines_of(target):
        cpu = layer.alone if tiles is None else tiles.cost.total
        offer = levels.best_offer(op, plan.graph, target, form, spaces[1:], cpu)
        tiles, whole, why = (offer.moved, offer.whole, offer.why) if offer.moved else (tiles, whole, offer.why)
    return _Decided(op, layer, tiles and replace(tiles, whole=(whole,), why=why or tiles.why), ReachedOp(why, (whole,)))


def _through_second_level(plan: Plan, decided: Sequence[_Decided]) -> Plan:
    """The same steps with constants that come by way of the second level; DORY's come under the layer before."""
    planner = Planner(plan.graph, plan.target, plan.request)
    search = search_of(planner, levels.rooms(plan.target, None)[levels.nearest(plan.target)[0].name])
    runs = {d.op.outputs[0]: d.tiles or BareOp.of(d.layer, d.reached.whole) for d in decided}
    order = enumerate(planner.cutter.order)
    steps = tuple(Step(at, at + 1, frozenset(), runs[op.outputs[0]]) for at, op in order)
    try:
        return assembled(planner, search, SearchPath(steps, ()), 1 if plan.request.map == "dory" else 0)
    except DoesNotFit as reason:
        hints = ["use --map auto, or a target with more of it"]
        text = f"does not fit: {reason}, also for constants on their way"
        raise fail(text, file=plan.graph.file, hints=hints) from None


def _heights(plan: Plan, near: str, moved: Iterable[MappedOp]) -> dict[str, int]:
    """Bytes of each memory: of the plan without moves, and of the largest op that has its tiles there."""
    heights = {**plan.layout.heights}
    for layer in moved:
        used = {r.memory: layer.used(r) for r in layer.regions} or {near: layer.level1_bytes}
        heights |= {name: max(heights.get(name, 0), size) for name, size in used.items()}
    heights.setdefault(near, 0)
    return {m.name: heights[m.name] for m in plan.target.memories if m.name in heights}


def _by_core(
    plan: Plan,
    op: Op,
    form: Form,
    layer: TiledLayer,
    spaces: tuple[Memory, Memory, Memory],
    choose: Callable[[TiledLayer], Mapped] | None,
) -> MappedOp | None:
    """The op in tiles in the first level, or None. Raises EdgebuildError if that is the only way and does not fit."""
    near, _, store = spaces
    if near.name in levels.scratchpads(plan.target):
        return None
    room = levels.rooms(plan.target, None)[near.name]
    if len(layer.operands) > MOST_OPERANDS:
        return None
    try:
        free = room - (-(-kernel_of(op, plan.graph, form).scratch // 8) * 8)
        mapped = choose(layer) if choose else None
        if plan.request.map == "dory":
            mapped = dory(layer, {near.name: max(1, free)}, True)[0]
        if mapped is not None:
            tiles = fitting_tiles(op, plan.graph, layer, form, room, mapped)
        else:
            tiles = cheapest_tiles(op, plan.graph, layer, form, room)
    except NoMapping as reason:
        roots = {plan.home(o.name) for o in layer.operands if not o.packed}
        if any(memory.access == "dma" for memory in (*roots, store)):
            raise levels.no_tile(op, plan.graph.file, near, room, layer, reason) from None
        return None
    return tiles if len(tiles.copies) <= MOST_COPIES else None


def _sound(plan: Plan, decided: Sequence[_Decided]) -> Plan:
    """The plan with these ops in tiles, without those whose result grows over an operand that later tiles want."""

    def tiled(without: Container[str]) -> Plan:
        moves = ((d.op.outputs[0] not in without and d.tiles) or d.reached for d in decided)
        steps = tuple(replace(s, moves=m) for s, m in zip(plan.steps, moves, strict=True))
        return _checked(replace(plan, steps=steps))

    try:
        return tiled(())
    except BrokenPlan:
        return tiled({s.overlap.result for s in plan.steps if s.overlap is not None})


def _checked(plan: Plan) -> Plan:
    """The plan with caches cleaned and invalidated, replayed."""
    steps = with_transfers(plan.steps, coherence(plan.target, plan.rolling, plan.steps, plan.places))
    replay(plan.graph, steps, plan.places, plan.target)
    return replace(plan, steps=steps)
