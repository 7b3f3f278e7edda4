"""From a canonical graph to plans, one for every way to run it: schedule, sections, layout, check."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ...base.errors import EdgebuildError, fail
from ...base.levels import CACHE_LINE
from ...base.request import ModelRequest
from ...base.target import Memory, Target
from .. import ops
from ..ir import Graph
from ..ops.base import PORTABLE, Form, Wish
from .check.replay import replay
from .cuts import Cutter, untiled
from .memory.check import check_layout, check_schedule
from .memory.layout import layout
from .memory.problem import BufferMemory, DoesNotFit, Layout, Place, Schedule
from .memory.schedule import EFFORT, as_given, schedule
from .pareto import Point, around, point_of
from .printed import Moves
from .refusal import OtherWays, does_not_fit
from .rolling import RollingGraph, rows_of
from .section import COUPLED, Decoupled, Section, cost, instructions, with_kernels
from .storage import Placed, layout_problem, loosened, placed_buffers, storages, task_graph, view_starts
from .strips import in_strips
from .tiling.critical import Rectangle
from .tiling.explore import Evaluated, Limits, TilingOutcome, explore
from .ways import little_more

if TYPE_CHECKING:
    from ..energy.step_clocks import ClockSchedule

ALONE = 1.03  # of the instructions of every op whole, with every op by itself in as little memory as that allows
NEAR = 1.005  # of the cost of the fastest plan: what is equally fast, so that the one of less memory is taken
METHODS = {"fdt": frozenset(["fdt"]), "ffmt": frozenset(["ffmt"])}  # of cutting ops into parts, by --tile
LEAST_CODE, CODE_SHARE = 2048, 0.05  # what code of parts may take: bytes in any case, share of the constants
THOROUGH = 2_000_000  # ops of paths that are looked at, where the least is asked for at any price: a minute or two
QUICK = 60_000  # the same for --tile auto: a second or two, and all there are of small networks
EFFORT_OF_LAYOUT = 0.3  # of each layout, about 1.5 s of processor time; a plan is the best of many
EFFORT_OF_PARTS = 1000  # of scheduling: parts of one path are interchangeable and come one after the other already

Placement = tuple[tuple[Section, ...], Layout, dict[str, Place]]  # steps, loosened, and where their buffers lie


@dataclass(frozen=True)
class Plan:
    """All that code generation needs. `steps` run in order; views do not run."""

    name: str
    graph: Graph
    rolling: RollingGraph
    cutter: Cutter  # which knows all other ways to cut the same order of ops
    target: Target
    request: ModelRequest
    steps: tuple[Section, ...]
    places: Mapping[str, Place]  # of storages, and of what a step needs for itself
    buffers: tuple[Placed, ...]
    schedule: Schedule
    layout: Layout
    weights_memory: str
    untiled_bytes: int  # arena of the ops of the model run whole
    decoupled: Decoupled = field(default_factory=dict)
    cut: tuple[Section, ...] = ()  # the steps before kernels gave way to smaller ones; none: as they are
    untiled: tuple[Section, ...] = ()  # steps of `--tile off`
    clocks: ClockSchedule | None = None  # where least energy was asked for
    fused: TilingOutcome | None = None  # how ops were cut into parts

    @property
    def moves(self) -> dict[int, Moves]:
        """The steps whose data a DMA unit moves between memory levels."""
        return {i: s.moves for i, s in enumerate(self.steps) if isinstance(s.moves, Moves)}

    @property
    def arena_bytes(self) -> int:
        return self.layout.height

    def home(self, tensor: str) -> Memory:
        """The memory that a tensor lies in."""
        name = self.places[self.rolling.storage[tensor]].memory
        return self.target.memory_named(name)

    @property
    def form(self) -> Form:
        """The core and the wishes; a wish for little code where `--flash` brought one to some kernel."""
        return next((f for s in self.steps for f in s.forms if f.small), self.cutter.form)

    @property
    def tiled(self) -> bool:
        return any(s.run for s in self.steps) or bool(self.fused and self.fused.tilings)

    @property
    def extra_macs(self) -> int:
        """Multiply-accumulates that parts do again because they overlap."""
        return self.fused.extra_macs if self.fused else 0

    @cached_property
    def point(self) -> Point:
        """All that the plan takes, with the kernels that it had before some gave way to smaller ones."""
        return point_of(self.cutter, self.cut or self.steps)

    @cached_property
    def trade_off(self) -> tuple[Point, ...]:
        """The plan's `point`, and those of other cuts of its order of ops, the least memory first.

        Parts of ops run as they are: the graph of parts is one way of many already.
        """
        return around(self.cutter, self.point) if self.fused is None else (self.point,)

    @property
    def price(self) -> tuple[float, float]:
        """Instructions and cycles, estimated, as multiples of those of `--tile off`."""
        mine, off = self.cut or self.steps, self.untiled or self.steps
        return instructions(mine) / max(instructions(off), 1), cost(mine) / max(cost(off), 1)


def views_of(rolling: RollingGraph) -> dict[str, tuple[str, int]]:
    """Of every activation the storage whose bytes it is, and how many of them stand before it."""
    starts = view_starts(rolling.graph)
    return {name: (storage, starts.get(name, 0)) for name, storage in rolling.storage.items()}


def form_of(target: Target, request: ModelRequest | None = None) -> Form:
    """The instruction set and extensions that kernels may use, and the user's wishes."""
    core = target.words
    if request is None:
        return Form(core)
    wish = Wish(request.optimize, "" if request.backend == "edgebuild" else request.backend)
    measured = (word.rpartition("=") for word in request.choices)
    choice = frozenset((layer, variant) for layer, _, variant in measured)
    return Form(frozenset({PORTABLE}) if request.portable else core, wish, choice)


@dataclass(frozen=True)
class Planner:
    """The ways to run a graph on a target, each as a plan that was checked. They may raise EdgebuildError.

    `decoupled` says which ops that run whole gather their operands first, and how many channels or columns at once.
    """

    graph: Graph
    target: Target
    request: ModelRequest
    decoupled: Decoupled = field(default_factory=dict)
    _placed: dict[int, tuple[tuple[Section, ...], Placement]] = field(default_factory=dict, init=False)

    @cached_property
    def scheduled(self) -> tuple[Cutter, Schedule]:
        return _scheduled(self.graph, self.target, self.request, self.decoupled)

    @property
    def cutter(self) -> Cutter:
        return self.scheduled[0]

    @cached_property
    def memories(self) -> tuple[BufferMemory, ...]:
        return arena_memories(self.graph, self.target, self.request)

    @cached_property
    def room(self) -> int:
        """Bytes of all memories that activations may lie in."""
        return sum(m.capacity or 0 for m in self.memories)

    @cached_property
    def untiled_bytes(self) -> int:
        """The arena of every op by itself: of `alone`, if that fits."""
        steps = self._alone
        try:
            return self._place(self.cutter, steps)[1].height
        except DoesNotFit:
            return _place(self.cutter, steps, (BufferMemory("arena"),), self.request)[1].height

    def whole(self) -> Plan:
        """Every op whole, in place where that costs nothing."""
        steps = untiled(self.cutter)
        if self.request.map == "off" and self.request.stream_input is None:
            steps = self.cutter.alone(cost(steps), by_rows=False)
        return self._plan(*self.scheduled, steps)

    @cached_property
    def alone(self) -> tuple[tuple[Section, ...], ...]:
        """Steps of every op by itself: as fast as whole in less memory, in less memory still, and whole."""
        return self._by_itself(NEAR), self._alone, untiled(self.cutter)

    def alone_within(self) -> Plan:
        """Every op by itself, with the fastest kernels that fit."""
        return self.plan(self.cutter.alone_within(self.room))

    @cached_property
    def _alone(self) -> tuple[Section, ...]:
        return self._by_itself(ALONE)

    def _by_itself(self, more: float) -> tuple[Section, ...]:
        """Every op by itself, with at most so many times the cost of every op whole.

        It is whole, or by rows where its result so comes to lie over an operand.
        """
        steps = untiled(self.cutter)
        if self.request.map != "off" or self.request.stream_input is not None:
            return steps
        return self.cutter.alone(more * cost(steps), by_rows=True)

    def plan(self, steps: tuple[Section, ...]) -> Plan:
        """Of a cut of the order of ops into sections."""
        return self._plan(*self.scheduled, steps)

    def strips(self, budget: int, below: int | None = None, thorough: bool = True, fast: bool = False) -> Plan | None:
        """Rolled runs in strips of columns; None if these are of no use, or not `below` so many bytes.

        At most `budget` multiply-accumulates are done twice. `fast`: the fastest that fits; else that of least memory.
        """
        fused, cutter, order = self._in_strips(budget, thorough)
        if not fused.tilings:
            return None
        if self.decoupled:
            cutter = replace(cutter, decoupled=self.decoupled)
        if below is not None and cutter.least_peak >= below:
            return None
        for limit in (self.room, None) if fast else (None,):
            with contextlib.suppress(EdgebuildError):
                return self._plan(cutter, order, cutter.cut(limit), fused)
        return self._plan(cutter, order, cutter.cut(0), fused)

    def parts(
        self,
        methods: frozenset[str],
        budget: int,
        below: int | None = None,
        thorough: bool = True,
        ram: int | None = None,
    ) -> Plan:
        """Ops cut into parts, which run whole. Only what takes less than `below` is of use.

        `ram`: bytes that are enough; then with the fastest kernels, if these fit.
        """
        work = THOROUGH if thorough else QUICK
        fused = self._fused(methods, Limits(budget, self._code_of_parts, ram, below, self._deadline, work))
        cutter, order = _scheduled(fused.graph, self.target, self.request, self.decoupled, EFFORT_OF_PARTS)
        if ram is not None:
            with contextlib.suppress(EdgebuildError):
                return self._plan(cutter, order, untiled(cutter), fused)
        return self._plan(cutter, order, _frugal(cutter), fused)

    def _plan(
        self, cutter: Cutter, order: Schedule, steps: tuple[Section, ...], fused: TilingOutcome | None = None
    ) -> Plan:
        try:
            steps, placed, places = self._place(cutter, steps)
        except DoesNotFit as reason:
            taken = 0 if self.request.ram is not None else self._taken(reason.memory)
            raise does_not_fit(reason, cutter, loosened(cutter, steps), self._others, taken) from None
        peak = max(profile := cutter.profile(steps), default=0)
        if any(s.rolled for s in steps):
            order = Schedule((), profile, peak, peak, False, "rolling sections", ())
        replay(cutter.graph, steps, places, streamed=cutter.rolling.streamed, views=views_of(cutter.rolling))
        return Plan(
            name=self.request.name,
            graph=cutter.graph,
            rolling=cutter.rolling,
            cutter=cutter,
            target=self.target,
            request=self.request,
            steps=steps,
            places=places,
            buffers=placed_buffers(cutter, steps, places),
            schedule=replace(order, order=tuple(range(len(steps))), profile=profile, peak=peak),
            layout=placed,
            weights_memory=next(m.name for m in self.target.memories if "weights" in m.roles),
            untiled_bytes=self.untiled_bytes,
            decoupled=self.decoupled,
            untiled=self._alone,
            fused=fused,
        )

    def _place(self, cutter: Cutter, steps: tuple[Section, ...]) -> Placement:
        """Steps laid out in the target's memories, once: every op by itself is what each plan is compared with."""
        if id(steps) not in self._placed:
            self._placed[id(steps)] = steps, _place(cutter, steps, self.memories, self.request)
        return self._placed[id(steps)][1]

    @cached_property
    def _others(self) -> OtherWays:
        return OtherWays(self.cutter, " --tile auto" if self.request.tile == "off" else "")

    def _taken(self, memory: str) -> int:
        """Bytes of a memory that stack and states take."""
        size = next((m.size for m in self.target.memories if m.name == memory), 0)
        return size - next((m.capacity or 0 for m in self.memories if m.name == memory), size)

    @property
    def _deadline(self) -> float | None:
        return None if self.request.time_limit is None else time.monotonic() + self.request.time_limit

    def _in_strips(self, budget: int, thorough: bool) -> tuple[TilingOutcome, Cutter, Schedule]:
        """The graph with rolled runs cut into strips of columns."""

        def again(other: Graph) -> tuple[Cutter, Schedule]:
            return _scheduled_strips(other, self.target, self.request)

        return in_strips(self.graph, self.scheduled, again, budget, self._deadline, thorough)

    @property
    def _code_of_parts(self) -> int:
        """Bytes of flash that calls and kernels of parts may take."""
        return max(LEAST_CODE, round(constant_bytes(self.graph) * CODE_SHARE))

    def _fused(self, methods: frozenset[str], limits: Limits) -> TilingOutcome:
        """The graph with runs of ops cut into parts."""
        return explore(self.graph, self._evaluated, methods, limits)

    def _evaluated(self, candidate: Graph) -> Evaluated:
        """The graph itself, which every method starts from, or one with parts; scheduled and laid out."""
        return self._untiled if candidate is self.graph else self._evaluate(candidate)

    @cached_property
    def _untiled(self) -> Evaluated:
        return self._evaluate(self.graph)

    def _evaluate(self, candidate: Graph) -> Evaluated:
        cutter, _ = _scheduled(candidate, self.target, self.request, effort=EFFORT_OF_PARTS)
        steps = _frugal(cutter)
        _, placed, places = _place(cutter, steps, (BufferMemory("arena"),), self.request)
        sizes, lives = dict(cutter.sizes), dict(cutter.steps_of(steps))
        for step, section in enumerate(steps):
            sizes |= section.inner
            lives |= dict.fromkeys(section.inner, (step, step))
        pieces = tuple(Rectangle(n, p.offset, p.offset + sizes[n], *lives[n]) for n, p in places.items())
        profile, storage = cutter.profile(steps), cutter.rolling.storage
        return Evaluated(candidate, placed.height, cutter.order, storage, cutter.life, sizes, profile, pieces)


def _scheduled(
    graph: Graph, target: Target, request: ModelRequest, decoupled: Decoupled = COUPLED, effort: int | None = EFFORT
) -> tuple[Cutter, Schedule]:
    """The ops of a graph in an order of least memory; no effort: as they are."""
    rolling = RollingGraph(graph, storages(graph), streamed_input(graph, request))
    running = [op for op in graph.ops if not ops.SPECS[op.kind].view]
    tasks = task_graph(rolling, running)
    order = as_given(tasks) if effort is None else schedule(tasks, effort)
    check_schedule(tasks, order)
    cutter = Cutter(rolling, tuple(running[i] for i in order.order), form_of(target, request), decoupled=decoupled)
    return cutter, order


def _scheduled_strips(graph: Graph, target: Target, request: ModelRequest) -> tuple[Cutter, Schedule]:
    """Strip after strip, or in an order of least memory of whole ops: what takes less once it is rolled."""
    given, other = (_scheduled(graph, target, request, effort=effort) for effort in (None, EFFORT_OF_PARTS))
    return given if given[1].order == other[1].order else min(given, other, key=lambda found: found[0].least_peak)


def streamed_input(graph: Graph, request: ModelRequest) -> str | None:
    """The input that the application brings row by row, if that is asked for."""
    if request.stream_input is None:
        return None
    rows = rows_of(graph, graph.inputs[0])
    if graph.states:
        text = "cannot stream: the model keeps a state, which --stream-input does not know"
        raise fail(text, file=graph.file, hints=["leave --stream-input out"])
    if len(graph.inputs) != 1 or rows < 2:
        text = f"cannot stream: {len(graph.inputs)} inputs, the first has {rows} rows"
        hint = "--stream-input needs one input whose second dimension are the rows; NCHW files: transpose the input"
        raise fail(text, file=graph.file, hints=[hint])
    if request.arena == "caller" or request.tile in ("off", *METHODS):
        hint = "leave out --arena, and --tile or give --tile rolling or auto"
        raise fail("--stream-input needs --arena static and tiling", file=graph.file, hints=[hint])
    found = storages(graph)
    if any(found.get(name) == found[graph.inputs[0]] for name in graph.outputs):
        text = "cannot stream: an output is the input itself, so it has to be there whole"
        raise fail(text, file=graph.file, hints=["leave --stream-input out"])
    return graph.inputs[0]


def state_bytes(graph: Graph) -> int:
    """Of what lasts from one inference to the next."""
    return sum(graph.tensors[graph.inputs[s.read]].bytes for s in graph.states)


def constant_bytes(graph: Graph) -> int:
    return sum(t.bytes for t in graph.tensors.values() if t.constant)


def arena_memories(graph: Graph, target: Target, request: ModelRequest) -> tuple[BufferMemory, ...]:
    """Where activations may go, best first, less stack and states; `--ram` limits what the first may give."""
    stack, moves = target.firmware.stack if target.firmware is not None else 0, request.map != "off"
    taken = Counter({next((m.name for m in target.memories if "stack" in m.roles), ""): stack})
    taken[next((m.name for m in target.memories if "data" in m.roles), "")] += state_bytes(graph)
    taken[target.memory("weights").name] += constant_bytes(graph) if moves else 0
    memories = [
        BufferMemory(
            m.name, max(1, m.size - taken[m.name]), max(target.dma_align, CACHE_LINE * m.cached) if moves else 1
        )
        for m in target.memories
        if "arena" in m.roles and (m.access == "cpu" if request.map == "off" else m.level != 1)
    ]
    if request.ram is not None:
        return (BufferMemory(memories[0].name, min(request.ram, memories[0].capacity or request.ram)),)
    return tuple(memories[:1] if request.arena == "caller" else memories)


def _frugal(cutter: Cutter) -> tuple[Section, ...]:
    """Every op whole, with its fastest kernel within little more than the least peak that there is so."""
    least = [with_kernels(s, [cutter.choices.whole(s.ops[0])[-1]]) for s in untiled(cutter)]
    bound = little_more(max(cutter.profile(least), default=0))
    return tuple(cutter.fastest(s, at, bound) or s for at, s in enumerate(least))


def _place(
    cutter: Cutter, steps: tuple[Section, ...], memories: Sequence[BufferMemory], request: ModelRequest
) -> Placement:
    steps = loosened(cutter, steps)
    problem, inside = layout_problem(cutter, steps, memories)
    found = layout(problem, effort=EFFORT_OF_LAYOUT, time_limit=request.time_limit)
    check_layout(problem, found)
    places = {}
    for name, (group, offset) in inside.items():
        base = found.places[group]
        places[name] = Place(base.memory, base.offset + offset)
    return steps, found, places
