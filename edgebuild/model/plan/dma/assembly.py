"""Make a plan of `--map` from a path of the search: places, copies and calls, with constants prefetched.

Constants are fetched during earlier steps as far as the first level has room and the DMA unit has time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType

from ....base import progress
from ....base.errors import EdgebuildError, fail
from ....base.request import ModelRequest
from ....base.target import Memory as TargetMemory
from ....base.target import Target
from ...ir import Graph
from ...kernels import kernel_of
from ..check.replay import BrokenPlan, replay
from ..hierarchy.mapper import NoMapping, dory
from ..hierarchy.nest import Mapped, TiledLayer
from ..memory.check import check_layout
from ..memory.layout import layout
from ..memory.problem import Buffer, BufferMemory, DoesNotFit, Layout, MemoryProblem, Place, Schedule
from ..printed import Copy, Region, Start
from ..search import Plan, Planner, live_words
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
    joined_blocks,
    passing_tiles,
    schedule_stagings,
    staged_tiles,
    staging_channel,
    step_constants,
    with_transfers,
)
from .residency import Moved, PlannedUncopiedOp, Residency, Step, with_residents
from .streamed import PlannedRun
from .tiles import MAX_COPIES, MappedOp, aligned, fitting


@dataclass(frozen=True)
class Prefetch:
    """The constants of step `step` are copied from before step `first` on. `hidden`: cycles of waiting saved."""

    step: int
    first: int
    hidden: float


def prefetches(steps: Sequence[Step], sizes: Mapping[str, int], room: int) -> tuple[Prefetch, ...]:
    """Prefetch each step's constants as late as no step waits for them; if time is short, as early as room allows.

    `sizes`: bytes of held tensors. `room`: bytes of the first level.
    """
    load = [step.by.level1_bytes + sum(sizes[n] for n in step.held) for step in steps]
    slack, early = [max(0.0, step.by.cycles.slack) for step in steps], list[Prefetch]()
    for at, (cycles, size) in enumerate(step.by.first_constants for step in steps):
        first, hidden = hidden_before(at, cycles, aligned(size), slack, load, room)
        if hidden:
            load[first:at] = [used + aligned(size) for used in load[first:at]]
            early.append(Prefetch(at, first, hidden))
    return tuple(early)


EFFORT = 1.0  # of laying out the first level: about 5 s of processor time
AHEAD = 32  # first channel of prefetched constants, after those of steps
AHEAD_CHANNELS = 8  # that these use in turn
LESS = 16  # each failed layout takes 1/LESS of the second level from the room of constants
TRIES = 6  # layouts with less and less room: in the second level for constants, and in the first


@dataclass(frozen=True)
class SearchPath:
    """A path of the search with its prefetches. `bytes`: of activations that are copied."""

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
    """Memories for activations behind the first level: those that a DMA unit joins with it."""
    target = planner.target
    near, _ = levels.nearest(target)
    return tuple(
        m for m in planner.memories if levels.channel_between(target, near, target.memory_named(m.name)) is not None
    )


@dataclass(frozen=True)
class FarSpaces:
    """Memories for activations behind the first level, and `homes` of storages for which the second has no room.

    `passing`: bytes of the second level for tiles on their way to and from the third.
    """

    memories: tuple[BufferMemory, ...]
    homes: Mapping[str, TargetMemory]
    passing: int = 0


def far_spaces(planner: Planner) -> Iterator[FarSpaces]:
    """Spaces to try: memories that a DMA unit joins with the first level; then also memories behind the second level.

    The latter need room for tiles in the second level. Engines do without: no copy to a scratchpad is staged.
    """
    target, direct = planner.target, far_memories(planner)
    yield FarSpaces(direct, spilled(planner, direct))
    (near, home), others = levels.nearest(target), [m for m in planner.memories if m not in direct]
    others = [m for m in others if levels.channel_through(target, near, home, target.memory_named(m.name))]
    if not others or levels.engines_of(target):
        return
    size = direct[0].capacity or 0
    for passing in (min(near.size, size // 2), min(2 * near.size, 3 * size // 4)):
        smaller = replace(direct[0], capacity=size - passing)
        if homes := spilled(planner, (smaller, *direct[1:], *others)):
            yield FarSpaces((*direct, *others), homes, passing)


def _fixed(
    planner: Planner,
    buffers: Iterable[Buffer],
    inside: Mapping[str, tuple[str, int]],
    memories: Sequence[BufferMemory],
    homes: Mapping[str, TargetMemory] = MappingProxyType({}),
) -> tuple[Buffer, ...]:
    """The buffers; those of `homes` must lie there, inputs and outputs in memories that the core reaches."""
    storage, graph = planner.cutter.rolling.storage, planner.graph
    ends = {inside[storage[n]][0] for n in (*graph.inputs, *graph.outputs) if storage.get(n) in inside}
    reached = tuple(m.name for m in memories if planner.target.memory_named(m.name).access == "cpu")
    fixed = (replace(b, memories=reached) if b.name in ends and len(reached) < len(memories) else b for b in buffers)
    return tuple(replace(b, memories=(homes[b.name].name,)) if b.name in homes else b for b in fixed)


class OtherHomes(Exception):
    """The layout puts tensors into other memories than the search assumed."""

    def __init__(self, homes: Mapping[str, TargetMemory]) -> None:
        super().__init__(", ".join(homes))
        self.homes = homes


def other_homes(
    target: Target, first: str, placed: Layout, inside: Mapping[str, tuple[str, int]]
) -> dict[str, TargetMemory]:
    places = {name: placed.places[group].memory for name, (group, _) in inside.items() if group in placed.places}
    return {name: target.memory_named(memory) for name, memory in places.items() if memory != first}


def assembled(
    planner: Planner,
    search: Residency,
    path: SearchPath,
    earlier: int | None = None,
    stay: Mapping[str, Place] = MappingProxyType({}),
) -> Plan:
    """Make and replay the plan of a path. Raises DoesNotFit if a level has no layout.

    `earlier`: most steps by which constants reach the second level before their own step; None: any number. `stay`:
    storages that stay in scratchpads of engines. Results overlap operands unless the replay refuses that.
    """
    room = levels.rooms(planner.target, None)[levels.nearest(planner.target)[0].name]
    try:
        return _Assembly(planner, search, path, room, stay, True, earlier).plan()
    except BrokenPlan:
        return _Assembly(planner, search, path, room, stay, False, earlier).plan()


def stage_plan(
    search: Residency,
    steps: Sequence[Step],
    early: Sequence[Prefetch],
    earlier: int | None = None,
    room: int | None = None,
) -> tuple[Staging, ...]:
    """Schedule copies of constants to the second level; empty if constants do not pass through it. Raises DoesNotFit.

    `room`: bytes of that level; None: all that it has.
    """
    channel = staging_channel(search.target, *search.spaces)
    if channel is None:
        return ()
    home, cutter = search.spaces[1].name, search.cutter
    first, wants, live = {e.step: e.first for e in early}, list[StepConstants | None](), list[int]()
    for i, step in enumerate(steps):
        in_turn = isinstance(step.by, MappedOp)
        wants.append(step_constants(step.by.blocks, in_turn, first.get(i, i), step.cycles))
        there, passing = search.live(step.start, step.stop) - step.held, search.slot_bytes(step.start, step.by)
        live.append(passing + sum(cutter.sizes[n] for n in there if n not in search.homes))
    busy = [step.cycles for step in steps]
    return schedule_stagings(wants, busy, live, channel, search.far[home] if room is None else room, home, earlier)


@dataclass(frozen=True)
class _Assembly:
    """Places the buffers of a path, and makes the plan. `room`: bytes of the first level.

    `stay`, `earlier`: see `assembled`. `over`: whether results may overlap operands that no later op reads.
    """

    planner: Planner
    search: Residency
    path: SearchPath
    room: int
    stay: Mapping[str, Place]
    over: bool
    earlier: int | None

    def plan(self) -> Plan:
        """The plan, after its replay. Raises DoesNotFit if a level has no layout."""
        planner, cutter = self.planner, self.planner.cutter
        near = levels.nearest(planner.target)[0].name
        unplaced = [self._unplaced(i) for i in range(len(self.path.steps))]
        sections = [self._section(step) for step in self.path.steps]
        far, places, stages = self._far(sections, unplaced)
        problem = self._near(unplaced)
        level = layout(problem, self.room, EFFORT)
        check_layout(problem, level)
        at = {name: place.offset for name, place in level.places.items()}
        places |= {n: Place(near, at[n]) for n in self._held()} | dict(self.stay)
        moved, early, staged = self._placed(unplaced, at, places, {s.step: s for s in stages}, far.places)
        for run in moved.values():
            if isinstance(run, PlannedRun):
                places |= {n: Place(near, offset) for n, offset in run.places.items()}
        steps = [self._final(i, section, moved.get(i)) for i, section in enumerate(sections)]
        heights = {**far.heights, near: level.height} | self._scratchpads(moved.values())
        order = [m.name for m in planner.target.memories if m.name in heights]
        joined = Layout(places, {n: heights[n] for n in order}, far.bound + level.bound, False, "levels")
        timed = with_transfers(steps, coherence(planner.target, cutter.rolling, steps, places), staged, early)
        replay(cutter.graph, timed, places, planner.target, level.height, views=cutter.rolling.views)
        profile = self._profile(unplaced)
        peak = max(profile, default=0)
        schedule = Schedule(tuple(range(len(steps))), profile, peak, peak, False, "memory levels", ())
        return Plan(
            planner.request.name, cutter.graph, cutter.rolling, cutter, planner.target, planner.request, timed, places,
            placed_buffers(cutter, timed, places), schedule, joined,
            planner.target.memory("weights").name, planner.untiled_bytes, min(peak, joined.bound),
        )  # fmt: skip

    def _unplaced(self, at: int) -> Moved | None:
        """How a step runs, without its constants if they are prefetched; None: without copies."""
        by = self.path.steps[at].by
        if isinstance(by, PlannedUncopiedOp):
            return None
        early = any(e.step == at for e in self.path.early)
        return by.without_constants(self.planner.graph, self.room) if early else by

    def _section(self, step: Step) -> Section:
        """The step as laid out in the second level: only an op that runs there has inner buffers in it."""
        if isinstance(step.by, PlannedRun):
            return replace(step.by.section, inner={}, spans={})
        whole, kept = self.planner.cutter.whole(step.start), {*self._held(), *self.stay, *self.search.homes}
        if not self.over or (whole.overlap and not kept.isdisjoint((whole.overlap.operand, whole.overlap.result))):
            whole = replace(whole, overlap=None)
        return whole if isinstance(step.by, PlannedUncopiedOp) else replace(whole, inner={}, spans={})

    def _final(self, at: int, section: Section, moved: Moved | None) -> Section:
        step = self.path.steps[at]
        ops = self.planner.cutter.order[step.start : step.stop]
        whole = step.by.whole or tuple(self.search.whole[op.outputs[0]] for op in ops)
        section = moved.section if isinstance(moved, PlannedRun) else section
        return replace(section, moves=replace(moved or step.by, whole=whole))

    def _held(self) -> dict[str, tuple[int, int]]:
        """First and last step of every tensor that stays in the first level."""
        lives: dict[str, tuple[int, int]] = {}
        for i, step in enumerate(self.path.steps):
            for name in sorted(step.held):
                lives[name] = (lives.get(name, (i, i))[0], i)
        return lives

    def _scratchpads(self, moved: Iterable[Moved]) -> dict[str, int]:
        """Bytes used of engines' memories: the most that tiles take, or all where a result stays."""
        sizes, full = Counter[str](), {place.memory for place in self.stay.values()}
        for m in (m for m in moved if isinstance(m, MappedOp)):
            for r in m.regions:
                sizes[r.memory] = r.bytes if r.memory in full else max(sizes[r.memory], m.used(r))
        return dict(sizes)

    def _far(
        self, sections: Sequence[Section], unplaced: Sequence[Moved | None]
    ) -> tuple[Layout, dict[str, Place], tuple[Staging, ...]]:
        """Layout of the memories behind the first level, places of the tensors there, and stagings of constants."""
        memories = tuple(m for m in self.planner.memories if m.name in self.search.far)
        problem, inside = layout_problem(self.planner.cutter, sections, memories)
        held, homes = {*self._held(), *self.stay}, self.search.homes
        buffers = (b for b in problem.buffers if b.name not in held)
        sizes = ((i, self.search.slot_bytes(self.path.steps[i].start, by)) for i, by in enumerate(unplaced) if by)
        slots = self._beside(sections, ((_of("slots", i), size, i, i) for i, size in sizes if size))
        fixed = _fixed(self.planner, buffers, inside, memories, homes) + slots
        whole = self.search.far[self.search.spaces[1].name]
        for tried in range(TRIES):
            room = whole - tried * whole // LESS
            stages = stage_plan(self.search, self.path.steps, self.path.early, self.earlier, room)
            staged = self._beside(sections, ((_of("stage", s.step), s.bytes, s.first, s.step) for s in stages))
            together = replace(problem, buffers=fixed + staged)
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

    def _beside(self, sections: Sequence[Section], wanted: Iterable[tuple[str, int, int, int]]) -> tuple[Buffer, ...]:
        """Buffers of the second level that bytes pass through. `wanted`: name, bytes, first and last step."""
        begins = list(accumulate((section.callers for section in sections), initial=0))
        home, align = (self.search.spaces[1].name,), self.search.align
        return tuple(Buffer(n, size, begins[first], begins[last + 1], align, home) for n, size, first, last in wanted)

    def _near(self, unplaced: Sequence[Moved | None]) -> MemoryProblem:
        align, sizes = self.search.align, self.search.sizes
        buffers = [Buffer(n, sizes[n], first, last + 1, align) for n, (first, last) in self._held().items()]
        for at, moved in enumerate(unplaced):
            if moved is not None and (size := self._work(at, moved)):
                buffers.append(Buffer(_work(at), size, at, at + 1, align))
        for e in self.path.early:
            size = self._constant_bytes(e.step)
            buffers.append(Buffer(_of("constants", e.step), size, e.first, e.step + 1, align))
        return MemoryProblem(tuple(buffers), (BufferMemory(levels.nearest(self.planner.target)[0].name, self.room),))

    def _work(self, at: int, moved: Moved) -> int:
        return moved.work_bytes(self._constant_bytes(at) if any(e.step == at for e in self.path.early) else 0)

    def _constant_bytes(self, at: int) -> int:
        return -(-self.path.steps[at].by.first_constants[1] // self.search.align) * self.search.align

    def _placed(
        self,
        unplaced: Sequence[Moved | None],
        at: Mapping[str, int],
        places: Mapping[str, Place],
        stages: Mapping[int, Staging],
        far: Mapping[str, Place],
    ) -> tuple[dict[int, Moved], list[Fetch], list[Fetch]]:
        """The placed steps, and the copies of constants before steps: to the first level, and to the second."""
        moved, early, staged = dict[int, Moved](), list[Fetch](), list[Fetch]()
        views, store = self.planner.cutter.rolling.views, staging_channel(self.planner.target, *self.search.spaces)
        held = {name: places[root].offset + start for name, (root, start) in views.items() if root in places}
        first, hidden = ({e.step: e.first for e in self.path.early}, {e.step: e.hidden for e in self.path.early})
        for i, step in enumerate(unplaced):
            if step is None:
                continue
            constants, base = at[_of("constants", i)] if i in first else None, at.get(_work(i), 0)
            step, memory, begins = step.placed(base, constants, held), "", (0,) * len(step.blocks)
            if isinstance(step, MappedOp) and (slots := far.get(_of("slots", i))) is not None:
                step = passing_tiles(step, self.search.passed_by(step.op), slots)
            if i in stages and store is not None:
                place = far[_of("stage", i)]
                memory, begins = place.memory, tuple(place.offset + n for n in joined_blocks(step.blocks)[1])
                staged += first_copies(stages[i], step.blocks, place, store, len(staged))
                if isinstance(step, MappedOp):
                    step = staged_tiles(step, stages[i], place, store)
                else:
                    step = replace(step, stage=Region(place.memory, place.offset, stages[i].bytes))
            waited = self.path.steps[i].by.first_constants[0] - hidden.get(i, 0.0)
            for (block, near), begin in zip(step.blocks_at(constants), begins, strict=False):
                if block.data.nbytes:
                    channel = AHEAD + len(early) % AHEAD_CHANNELS
                    copy = Copy(channel, True, "", 0, begin, near, block.data.nbytes, stage=memory)
                    early.append(Fetch(first.get(i, i), i, Start(copy, block, i, waited)))
                    waited = 0.0
            moved[i] = step
        return moved, early, staged

    def _profile(self, unplaced: Sequence[Moved | None]) -> tuple[int, ...]:
        """Bytes live in both levels in every step."""
        sizes, profile, held = self.planner.cutter.sizes, list[int](), set(self._held())
        for at, (step, moved) in enumerate(zip(self.path.steps, unplaced, strict=True)):
            size = sum(sizes[n] for n in self.search.live(step.start, step.stop) - held)
            size += sum(self.search.sizes[n] for n in step.held)
            size += self._work(at, moved) if moved is not None else 0
            size += sum(self._constant_bytes(e.step) for e in self.path.early if e.first <= at <= e.step)
            profile.append(size)
        return tuple(profile)


def _work(at: int) -> str:
    return f"step {at}"


def _of(what: str, at: int) -> str:
    return f"{what} of step {at}"


EARLIER = {"layer": 0, "dory": 1}  # by method: most steps by which constants come early to the second level
PRICES = (16.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.16, 0.1, 0.0)  # cycles added for each copied activation byte
WAITS = (0.3, 1.0)  # share of the waits for constants that counts in the search; prefetching hides most
SLOWER = 1.02  # times the cycles of the fastest plan: limit of a plan that copies fewer bytes


Choose = Callable[[TiledLayer], Mapped]  # a mapping of a layer of the core


def mapped_plan(graph: Graph, target: Target, request: ModelRequest, choose: Choose | None = None) -> Plan:
    """The plan of `--map`, after its replay.

    `auto` copies the fewest bytes among plans little slower than the fastest, and no slower than layer by layer. With
    engines, and by other methods, every op runs by itself; `choose` maps those of the core.

    Raises EdgebuildError if nothing fits.
    """
    planner, refused = Planner(graph, target, request), None
    for spaces in far_spaces(planner):
        try:
            return _plan_within(planner, spaces, choose)
        except EdgebuildError as reason:
            refused = refused or reason
    assert refused is not None
    raise refused


def _plan_within(planner: Planner, spaces: FarSpaces, choose: Choose | None) -> Plan:
    """The plan with activations in these memories. Raises EdgebuildError if nothing fits."""
    graph, target, request = planner.graph, planner.target, planner.request
    near, _ = levels.nearest(target)
    room = whole = levels.rooms(target, None)[near.name]
    jointly, homes = request.map == "auto" and not levels.engines_of(target), spaces.homes
    for _ in range(TRIES):
        search = search_of(planner, room, replace(spaces, homes=homes))
        path, stay = _layers(search, request, choose)
        path = smallest_quick_path(search, path.steps) if jointly else path
        for kept in (path, replace(path, early=())):
            try:
                return assembled(planner, search, kept, EARLIER.get(request.map), stay)
            except (DoesNotFit, NoMapping) as reason:
                if not jointly:
                    raise _does_not_fit(planner, reason) from None
                progress.say(f"no layout of {room} B: {reason}")
            except OtherHomes as better:
                homes = {**homes, **better.homes}
                break
        else:
            room -= whole // 16
    raise fail(f"no layout of {near.name} was found", file=graph.file, hints=["use --map layer"])


def _does_not_fit(planner: Planner, reason: DoesNotFit | NoMapping) -> EdgebuildError:
    """The error for a model that does not fit, with the live tensors at the op of the peak."""
    cutter, hints = planner.cutter, ["use --map auto, or a target with more of it"]
    text = f"does not fit: {reason}, for activations and for constants on their way"
    if not isinstance(reason, DoesNotFit) or not cutter.order:
        return fail(text, file=cutter.graph.file, hints=hints)
    profile = cutter.profile(cutter.untiled)
    at = profile.index(max(profile))
    op, hints = cutter.order[at], [live_words(cutter, cutter.untiled, at, max(profile)), *hints]
    return fail(text, file=cutter.graph.file, node=op.name, kind=op.origin or op.kind, hints=hints)


def spilled(planner: Planner, memories: Sequence[BufferMemory]) -> dict[str, TargetMemory]:
    """Storages for which the second level has no room if every op runs by itself, and their memories."""
    cutter = planner.cutter
    if len(memories) < 2:
        return {}
    steps = tuple(replace(cutter.whole(at), overlap=None) for at in range(len(cutter.order)))
    problem, inside = layout_problem(cutter, steps, memories)
    problem = replace(problem, buffers=_fixed(planner, problem.buffers, inside, memories))
    try:
        placed = layout(problem, effort=EFFORT)
    except DoesNotFit:
        return {}
    return other_homes(planner.target, memories[0].name, placed, inside)


def search_of(planner: Planner, room: int, far: FarSpaces | None = None) -> Residency:
    """The search within `room` bytes of the first level, with activations in these memories behind it."""
    target, far = planner.target, far or FarSpaces(far_memories(planner), {})
    spaces = levels.nearest(target)[0], target.memory_named(far.memories[0].name), target.memory("weights")
    least, sizes = planner.request.objective == "energy", {m.name: m.capacity or 0 for m in far.memories}
    return Residency(planner.cutter, target, spaces, room, sizes, far.homes, least, far.passing)


def candidates(search: Residency, layers: tuple[Step, ...], prices: Sequence[float] = PRICES) -> Iterator[SearchPath]:
    """Paths for each price of a copied byte and weight of a wait; the `layers` by themselves come last."""
    for waits in WAITS:
        for price in prices:
            steps = search.best(price, waits)
            if steps is not None:
                yield from staged_path(search, steps, prefetches(steps, search.sizes, search.room))
    if search.possible(layers):
        yield from staged_path(search, layers, ())
        yield from staged_path(search, layers, prefetches(layers, search.sizes, search.room))


def staged_path(search: Residency, steps: tuple[Step, ...], early: tuple[Prefetch, ...]) -> Iterator[SearchPath]:
    """The path with its waits for staged constants; nothing if these have no room in the second level."""
    with suppress(DoesNotFit):
        staged = sum(s.waited for s in stage_plan(search, steps, early))
        yield SearchPath(steps, early, staged)


def smallest_quick_path(search: Residency, layers: tuple[Step, ...]) -> SearchPath:
    """The path of fewest bytes, at most SLOWER times the fastest and no slower than layer by layer.

    Raises EdgebuildError if there is no path.
    """
    every = list(candidates(search, layers))
    if not every:
        sizes = " and ".join(f"{name} has {size} B" for name, size in search.far.items())
        text = f"activations do not fit: {sizes} for them"
        raise fail(text, file=search.cutter.graph.file, hints=["use a target with more RAM"])
    cycles = next((f.cycles for f in staged_path(search, layers, ())), 0.0)
    most = min(max(cycles, min(f.cycles for f in every)), SLOWER * min(f.cycles for f in every))
    return min((f for f in every if f.cycles <= most), key=lambda f: (f.bytes, f.cycles))


# A plan whose ops run tile by tile between memory levels: the network level of `--map`.


def check_request(target: Target, request: ModelRequest) -> None:
    """Raise EdgebuildError for options and targets that exclude `--map`."""
    levels.check_levels(target)
    levels.check_engines(target)
    other = request.tile not in (None, "off") or request.arena == "caller"
    if other or request.stream_input or request.stream_output:
        raise fail("--map goes with --tile off and --arena static, not with --stream-...")
    if request.objective == "energy":
        if request.map != "layer" or request.qos is not None:
            text = "--objective energy with memory levels goes with --map layer, and not with --qos"
            raise fail(text, hints=["clocks are not managed there: docs/memory-levels.md"])
        levels.check_energies(target, ())
        levels.check_energies(target, levels.engines_of(target))
    (near, home), store = levels.nearest(target), target.memory("weights")
    if (room := levels.rooms(target, None).get(near.name, 0)) < 0:
        text = f"{near.name} has {near.size} B, and the stack in it takes {near.size - room} B"
        raise fail(text, file=target.files[0], hints=[f"a larger --limit {near.name}=BYTES"])
    by_second_level = staging_channel(target, near, home, store) is not None and not levels.engines_of(target)
    if levels.channel_between(target, near, store) is None and not by_second_level:
        text = f"no DMA of target {target.name} reaches both {near.name} and {store.name}, where weights lie"
        raise fail(text, file=target.files[0], hints=["`edgebuild map` tells what tiles would cost there"])


def with_dma_memories(target: Target) -> Target:
    """The target with activations only in memories that DMA units join with the first level.

    Raises EdgebuildError if no memory is left for them.
    """
    near, home = levels.nearest(target)

    def joined_with(memory: TargetMemory) -> bool:
        if levels.channel_between(target, near, memory) is not None:
            return True
        through = memory != home and levels.channel_through(target, near, home, memory) is not None
        return through and "arena" in home.roles and not levels.engines_of(target)

    memories = [
        m if joined_with(m) else replace(m, roles=tuple(r for r in m.roles if r != "arena")) for m in target.memories
    ]
    if not any("arena" in m.roles and m.level != 1 for m in memories):
        text = f"no DMA of target {target.name} joins {near.name} with a memory that has the role 'arena'"
        raise fail(text, file=target.files[0], hints=["add one to `between` of a unit in `dma:`"])
    return replace(target, memories=tuple(memories))


def _layers(search: Residency, request: ModelRequest, choose: Choose | None) -> tuple[SearchPath, dict[str, Place]]:
    """Every op by itself, on the core or on an engine, with the results that stay in an engine's scratchpad.

    Raises EdgebuildError if an op does not fit and the core cannot reach its operands.
    """
    runs = {op.outputs[0]: _by_itself(search, at, request, choose) for at, op in enumerate(search.cutter.order)}
    stay = with_residents(search, runs) if request.map == "auto" else {}
    order = enumerate(search.cutter.order)
    return SearchPath(tuple(Step(at, at + 1, frozenset(), runs[op.outputs[0]]) for at, op in order), ()), stay


def _by_itself(
    search: Residency, at: int, request: ModelRequest, choose: Choose | None
) -> MappedOp | PlannedUncopiedOp:
    target, op, nothing = search.target, search.cutter.order[at], frozenset[str]()
    layer = search.layer(at, nothing)
    tiles = _by_core(search, at, request, choose)
    whole, why = layer.alone if tiles is None else levels.whole_cycles(layer), ""
    if levels.engines_of(target):
        cpu = PlannedUncopiedOp.of(layer).cycles if tiles is None else tiles.cycles
        spaces = search.homes_of(op).get(op.outputs[0], search.spaces[1]), search.spaces[2]
        offer = levels.best_offer(op, search.cutter.graph, target, search.cutter.form, spaces, cpu)
        if isinstance(offer, MappedOp):
            return offer
        why = offer
    if tiles is None:
        return PlannedUncopiedOp.of(layer, (whole,), why)
    return replace(tiles, whole=(whole,), why=why)


def _by_core(search: Residency, at: int, request: ModelRequest, choose: Choose | None) -> MappedOp | None:
    """The op in tiles in the first level; None: without copies. Raises EdgebuildError if neither is possible."""
    op, graph, form, nothing = search.cutter.order[at], search.cutter.graph, search.cutter.form, frozenset[str]()
    (near, home, store), layer, room = search.spaces, search.layer(at, nothing), search.room
    if near.name in levels.scratchpads(search.target):
        return None
    try:
        search.check_operands(op, layer)
        mapped = choose(layer) if choose else None
        if request.map == "dory":
            free = max(1, room - aligned(kernel_of(op, graph, form).scratch))
            mapped = dory(layer, {near.name: free}, True)[0]
        tiles = search.tiled(at, nothing, room) if mapped is None else None
        if not isinstance(tiles, MappedOp):
            tiles = fitting(op, graph, layer, form, room, mapped).build()
        if len(tiles.copies) > MAX_COPIES:
            raise NoMapping(layer.name, {})
    except NoMapping as reason:
        homes = search.homes_of(op)
        accesses = {homes.get(o.name, home).access for o in layer.operands if not o.packed}
        if "dma" in (*accesses, store.access):
            raise levels.no_tile(op, graph.file, near, room, layer, reason) from None
        return None
    return tiles
