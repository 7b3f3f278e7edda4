"""Places for what a path of `--map auto` needs, made into copies, calls and a plan that was replayed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from ....base.target import Memory as TargetMemory
from ....base.target import Target
from ..check.replay import replay
from ..hierarchy.nest import Channel
from ..memory.check import check_layout
from ..memory.layout import layout
from ..memory.problem import Buffer, BufferMemory, DoesNotFit, Layout, MemoryProblem, Place, Schedule
from ..printed import Ahead, Staged
from ..search import Plan, Planner, views_of
from ..section import Section
from ..storage import layout_problem, placed_buffers, view_starts
from .ahead import Early
from .caches import coherence
from .copies import ALIGN, WEIGHTS, MovedLayer
from .feeding import FedRun
from .levels import channel_between, nearest, rooms
from .residency import Residency, Step
from .staging import (
    Staging,
    Wanted,
    first_copies,
    joined,
    layer_by_way,
    run_by_way,
    stage_of,
    stagings,
    wanted,
)
from .tiles import moved_layer

EFFORT = 1.0  # of laying out the first level: about 5 s of processor time
AHEAD = 32  # channels of constants that come early, behind those of steps
AHEAD_CHANNELS = 8  # that these take in turn
LESS = 16  # the part of the second level that constants leave free, once more at every try to lay them out
TRIES = 6  # layouts of the second level with less and less room for constants


@dataclass(frozen=True)
class Found:
    """A path of the search with the constants that come early. `bytes`: of activations, copied."""

    steps: tuple[Step, ...]
    early: tuple[Early, ...]
    staged: float = 0.0  # cycles of waiting for constants on their way to the second level

    @property
    def cycles(self) -> float:
        return sum(s.cycles for s in self.steps) - sum(e.hidden for e in self.early) + self.staged

    @property
    def bytes(self) -> float:
        return sum(s.moved for s in self.steps)


def far_memories(planner: Planner) -> tuple[BufferMemory, ...]:
    """Where activations lie that do not stay in the first level: what a DMA unit reaches from there."""
    target = planner.target
    near, _ = nearest(target)
    return tuple(m for m in planner.memories if channel_between(target, near, target.memory_named(m.name)) is not None)


class Elsewhere(Exception):
    """The layout puts tensors into other memories than the search counted with."""

    def __init__(self, homes: Mapping[str, TargetMemory]) -> None:
        super().__init__(", ".join(homes))
        self.homes = homes


def elsewhere(
    target: Target, first: str, found: Layout, inside: Mapping[str, tuple[str, int]]
) -> dict[str, TargetMemory]:
    places = {name: found.places[group].memory for name, (group, _) in inside.items() if group in found.places}
    return {name: target.memory_named(memory) for name, memory in places.items() if memory != first}


def assembled(planner: Planner, search: Residency, found: Found, earlier: int | None = None) -> Plan:
    """A path as a plan that was replayed. Raises DoesNotFit where a level has no layout.

    `earlier`: how many steps before their own constants come to the second level at most; None: any number.
    """
    room = rooms(planner.target, None)[nearest(planner.target)[0].name]
    return _Assembly(planner, search, found, room, earlier).plan()


def stage_plan(
    search: Residency,
    steps: Sequence[Step],
    early: Sequence[Early],
    earlier: int | None = None,
    room: int | None = None,
) -> tuple[Staging, ...]:
    """How constants come to the second level; nothing where they need not. Raises DoesNotFit.

    `room`: bytes of that level; None: all that there is.
    """
    way = stage_of(search.target, *search.spaces)
    if way is None:
        return ()
    home, cutter = search.spaces[1].name, search.cutter
    first, wants, live = {e.step: e.first for e in early}, list[Wanted | None](), list[int]()
    for i, step in enumerate(steps):
        wants.append(wanted(step.blocks, first.get(i, i), step.cycles))
        there = {n for n, (begin, last) in cutter.life.items() if begin < step.start <= last}
        there.update(search.results(step.start, step.stop))
        live.append(sum(cutter.sizes[n] for n in there - step.held if n not in search.homes))
    busy = [step.cycles for step in steps]
    return stagings(wants, busy, live, way, search.far[home] if room is None else room, home, earlier)


@dataclass(frozen=True)
class _Assembly:
    """Places for what a path needs, and the plan. `room`: bytes of the first level; `earlier`: see `assembled`."""

    planner: Planner
    search: Residency
    found: Found
    room: int
    earlier: int | None = None

    @property
    def align(self) -> int:
        """Bytes, of buffers that a DMA unit copies to or from."""
        return max(ALIGN, self.planner.target.dma_align)

    def plan(self) -> Plan:
        """Raises DoesNotFit where a level has no layout."""
        planner, cutter = self.planner, self.planner.cutter
        near = nearest(planner.target)[0].name
        made = [self._made(i) for i in range(len(self.found.steps))]
        sections = [self._section(step) for step in self.found.steps]
        far, places, plan = self._far(sections)
        problem = self._near(made)
        level = layout(problem, self.room, EFFORT)
        check_layout(problem, level)
        at = {name: place.offset for name, place in level.places.items()}
        places |= {n: Place(near, at[n]) for n in self._held()}
        moved, ahead = self._placed(made, at, places)
        moved, ahead, staged = self._staged(moved, ahead, plan, far.places)
        for run in moved.values():
            if isinstance(run, FedRun):
                places |= {n: Place(near, offset) for n, offset in run.places.items()}
        steps = tuple(self._final(section, moved) for section in sections)
        heights = {**far.heights, near: level.height}
        order = [m.name for m in planner.target.memories if m.name in heights]
        joined = Layout(places, {n: heights[n] for n in order}, far.bound + level.bound, False, "levels")
        caches = coherence(planner.target, cutter.rolling, steps, places, moved)
        views = views_of(cutter.rolling)
        replay(cutter.graph, steps, places, moved, level.height, ahead, caches, staged, planner.target, views=views)
        profile = self._profile(made)
        schedule = Schedule(tuple(range(len(steps))), profile, max(profile, default=0), max(profile, default=0), False,
                            "memory levels", ())  # fmt: skip
        return Plan(
            planner.request.name, cutter.graph, cutter.rolling, cutter, planner.target, planner.request, steps, places,
            placed_buffers(cutter, steps, places), schedule, joined,
            planner.target.memory("weights").name, planner.untiled_bytes, moved=moved, ahead=ahead, caches=caches,
            whole_cycles=self.search.whole, staged=staged,
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
        whole = replace(self.planner.cutter.whole(step.start), overlap=None)
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

    def _far(self, sections: Sequence[Section]) -> tuple[Layout, dict[str, Place], tuple[Staging, ...]]:
        """Layout of what is behind the first level, places of the tensors there, and how constants come there."""
        problem, inside = layout_problem(self.planner.cutter, sections, far_memories(self.planner))
        held, homes = self._held(), self.search.homes
        buffers = (b for b in problem.buffers if b.name not in held)
        fixed = tuple(replace(b, memories=(homes[b.name].name,)) if b.name in homes else b for b in buffers)
        whole = self.search.far[self.search.spaces[1].name]
        for tried in range(TRIES):
            room = whole - tried * whole // LESS
            stages = stage_plan(self.search, self.found.steps, self.found.early, self.earlier, room)
            together = replace(problem, buffers=(*fixed, *self._stage_buffers(sections, stages)))
            try:
                found = layout(together)
                break
            except DoesNotFit:
                if not stages or tried == TRIES - 1:
                    raise
        check_layout(together, found)
        strays = elsewhere(self.planner.target, self.search.spaces[1].name, found, inside)
        if more := {n: m for n, m in strays.items() if n not in homes}:
            raise Elsewhere(more)
        return found, {n: found.places[group] for n, (group, _) in inside.items() if group not in held}, stages

    def _stage_buffers(self, sections: Sequence[Section], stages: Sequence[Staging]) -> tuple[Buffer, ...]:
        begins = list(accumulate((section.callers for section in sections), initial=0))
        home = (self.search.spaces[1].name,)
        return tuple(
            Buffer(_stage(s.step), s.bytes, begins[s.first], begins[s.step + 1], self.align, home) for s in stages
        )

    def _staged(
        self,
        moved: Mapping[str, MovedLayer | FedRun],
        ahead: Sequence[Ahead],
        stages: Sequence[Staging],
        places: Mapping[str, Place],
    ) -> tuple[dict[str, MovedLayer | FedRun], tuple[Ahead, ...], tuple[Staged, ...]]:
        """The steps with their constants fetched from the second level, and the copies that bring them there."""
        result, copies, found = dict(moved), dict[int, list[Ahead]](), list[Staged]()
        for a in ahead:
            copies.setdefault(a.step, []).append(a)
        for s in stages:
            place, way = places[_stage(s.step)], self._way()
            name = self.planner.cutter.order[self.found.steps[s.step].start].outputs[0]
            step = result[name]
            found += first_copies(s, step.blocks, place, way, len(found))
            result[name] = run_by_way(step, place) if isinstance(step, FedRun) else layer_by_way(step, s, place, way)
            starts = {id(b): place.offset + at for b, at in zip(step.blocks, joined(step.blocks)[1], strict=True)}
            early = copies.get(s.step, [])
            copies[s.step] = [replace(a, stage=place.memory, far=starts[id(a.block)]) for a in early]
        order = {id(a.block): i for i, a in enumerate(ahead)}
        every = sorted((a for mine in copies.values() for a in mine), key=lambda a: order[id(a.block)])
        return result, tuple(every), tuple(found)

    def _way(self) -> Channel:
        way = stage_of(self.planner.target, *self.search.spaces)
        assert way is not None
        return way

    def _near(self, made: Sequence[MovedLayer | FedRun | None]) -> MemoryProblem:
        buffers = [
            Buffer(n, self.search.sizes[n], first, last + 1, self.align) for n, (first, last) in self._held().items()
        ]
        for at, moved in enumerate(made):
            if moved is not None and (size := self._work(at, moved)):
                buffers.append(Buffer(_work(at), size, at, at + 1, self.align))
        for e in self.found.early:
            buffers.append(Buffer(_constants(e.step), self._constant_bytes(e.step), e.first, e.step + 1, self.align))
        return MemoryProblem(tuple(buffers), (BufferMemory(nearest(self.planner.target)[0].name, self.room),))

    def _work(self, at: int, moved: MovedLayer | FedRun) -> int:
        early_ = any(e.step == at for e in self.found.early) and isinstance(moved, FedRun)
        return moved.near_bytes - (self._constant_bytes(at) if early_ else 0)

    def _constant_bytes(self, at: int) -> int:
        return -(-self.found.steps[at].constants[1] // self.align) * self.align

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


def _stage(at: int) -> str:
    return f"stage of step {at}"
