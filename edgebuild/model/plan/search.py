"""Make plans of a canonical graph: schedule ops, cut the schedule into sections, lay out the arena, replay."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ...base import progress
from ...base.errors import EdgebuildError, Refusal, fail
from ...base.levels import CACHE_LINE
from ...base.request import ModelRequest
from ...base.target import Memory, Target
from ...base.text import FILE, NAME
from .. import ops
from ..ir import Graph
from ..kernels import cycles_of
from ..ops.base import PORTABLE, Form, Wish
from .check.replay import replay
from .cuts import Cutter, little_more, sliced
from .kernel_selection import flash_of
from .memory.check import check_layout, check_schedule
from .memory.layout import layout
from .memory.problem import BufferMemory, DoesNotFit, Layout, Place, Schedule
from .memory.schedule import EFFORT, as_given, schedule
from .printed import Moves
from .rolling import RollingGraph, rows_of, with_rows
from .section import COUPLED, Decoupled, Section, cost, instructions, with_kernels
from .storage import (
    NEWEST,
    RING,
    SCRATCH,
    Live,
    Placed,
    array_memory,
    layout_problem,
    least_bytes,
    live_set,
    loosened,
    placed_buffers,
    task_graph,
)
from .tiling.explore import Evaluated, Limits, Rectangle, TilingChoice, TilingOutcome, explore
from .tiling.paths import Estimate, Tiling, part_ranges, paths, tiled

if TYPE_CHECKING:
    from ..energy.select import ClockSchedule

ALONE = 1.03  # cost limit when single ops are cut for least memory, as a multiple of the cost of every op whole
NEAR = 1.005  # times the cost of the fastest plan: plans within it count as equally fast, and the smallest is taken
METHODS = {"fdt": frozenset(["fdt"]), "ffmt": frozenset(["ffmt"])}  # methods of cutting ops into parts, by --tile
MIN_CODE, CODE_SHARE = 2048, 0.05  # limit on code of parts: the larger of these bytes and this share of constants
THOROUGH = 2_000_000  # ops of paths that a search for the least memory evaluates: a minute or two
QUICK = 60_000  # the same for --tile auto: a second or two, and all paths of a small network
EFFORT_OF_LAYOUT = 0.3  # of each layout, about 1.5 s of processor time; a plan is the best of many layouts
MANY_BUFFERS = 600  # buffers above which a layout gets less effort: each step takes longer, and greedy rules come close
EFFORT_OF_PARTS = 1000  # of scheduling: parts of one path are interchangeable and come one after the other already
STRIPS = (2, 3, 4)  # numbers of strips of columns that are tried for a run
STRIPS_PLANNED = {False: 4_000, True: 40_000}  # ops of graphs in strips that are planned anew, by `thorough`
WORTH = 32  # a step to more strips must save at least 1/WORTH of the peak
ROWS = 1  # the dimension that is rolled


@dataclass(frozen=True)
class Point:
    """Quantities of a plan."""

    peak_bytes: int
    instructions: int  # estimated
    cost: float  # instructions, each weighted by the pace of its kernel
    calls: int  # of kernels
    rolled: int  # ops that run row by row
    table_bytes: int  # of flash, for tables of the call order
    flash_bytes: int  # estimated: constants, code and these tables

    def undercuts(self, other: Point) -> bool:
        """Whether peak, cost and flash are no more than those of `other`, and one of them is less."""
        own, others = ((p.peak_bytes, p.cost, p.flash_bytes) for p in (self, other))
        return own != others and all(a <= b for a, b in zip(own, others, strict=True))


def point_of(cutter: Cutter, sections: tuple[Section, ...]) -> Point:
    tables = [s.calls for s in sections if s.rolled]
    return Point(
        least_bytes(cutter, sections),
        round(instructions(sections)),
        cost(sections),
        sum(s.calls for s in sections),
        sum(len(s.ops) for s in sections if s.rolled),
        sum(tables),
        flash_of(cutter.graph, sections, cutter.form),
    )


Placement = tuple[tuple[Section, ...], Layout, dict[str, Place]]  # steps as laid out, layout, place of each buffer


@dataclass(frozen=True)
class Plan:
    """All that code generation needs. `steps` run in order; views do not run."""

    name: str
    graph: Graph
    rolling: RollingGraph
    cutter: Cutter  # for other cuts of the same order of ops
    target: Target
    request: ModelRequest
    steps: tuple[Section, ...]
    places: Mapping[str, Place]  # of storages, and of each step's rings and scratch
    buffers: tuple[Placed, ...]
    schedule: Schedule
    layout: Layout
    weights_memory: str
    untiled_bytes: int  # arena with every op by itself
    lower_bound: int  # bytes: no layout of these sections is lower, whichever results overlap operands
    before_selection: tuple[Section, ...] = ()  # steps before kernels were selected for flash; empty: they were not
    single_op_steps: tuple[Section, ...] = ()  # steps of `--tile off`
    clocks: ClockSchedule | None = None  # for `--objective energy`
    tiling: TilingOutcome | None = None  # how ops were cut into parts or strips; None: they were not

    @property
    def moves(self) -> dict[int, Moves]:
        """The steps whose data a DMA unit moves between memory levels."""
        return {i: s.moves for i, s in enumerate(self.steps) if isinstance(s.moves, Moves)}

    @property
    def file(self) -> str:
        """The model's file name as printed in generated files."""
        return FILE if self.name == NAME else self.graph.file

    @property
    def arena_bytes(self) -> int:
        return self.layout.height

    @cached_property
    def homes(self) -> dict[str, str]:
        """Maps each storage that is made in the place of its reader's result to that result."""
        return {name: home for s in self.steps if s.rolled for name, home in s.rolled.inside.items()}

    @cached_property
    def results(self) -> dict[str, Placed]:
        """Maps each tensor to its first buffer that is neither scratch nor a separate newest row."""
        return {b.tensor: b for b in reversed(self.buffers) if not b.scratch and not b.newest}

    @cached_property
    def offset_names(self) -> dict[str, str]:
        """Unique name of the C constant of each tensor's offset, made of the input, or the op's kind and position."""
        prefix, graph = self.name.upper(), self.graph
        names = {n: f"{prefix}_IN" + (f"_{i}" if len(graph.inputs) > 1 else "") for i, n in enumerate(graph.inputs)}
        running = [op for section in self.steps for op in section.ops]
        names |= {op.outputs[0]: f"{prefix}_{op.kind.upper()}_{at}" for at, op in enumerate(running)}
        for b in self.buffers:
            if b.view_of:
                names[b.tensor] = names[b.view_of]
        return names

    def home(self, tensor: str) -> Memory:
        """The memory that a tensor lies in."""
        name = self.places[self.rolling.storage[tensor]].memory
        return self.target.memory_named(name)

    @property
    def form(self) -> Form:
        """The core and the wishes of kernels; with the wish for small code if `--flash` forced it on any kernel."""
        return next((f for s in self.steps for f in s.forms if f.small), self.cutter.form)

    @property
    def flash_bytes(self) -> int:
        """Bytes of constants, code, and tables of the call order. Estimated."""
        return flash_of(self.graph, self.steps, self.form)

    @property
    def tiled(self) -> bool:
        return any(s.run for s in self.steps) or bool(self.tiling and self.tiling.tilings)

    @property
    def extra_macs(self) -> int:
        """Multiply-accumulates that several parts repeat because their halos overlap."""
        return self.tiling.extra_macs if self.tiling else 0

    @cached_property
    def point(self) -> Point:
        """Quantities of the plan with its kernels before kernel selection, unless selection lowered the peak."""
        before = point_of(self.cutter, self.before_selection or self.steps)
        return before if before.peak_bytes <= self.schedule.peak else point_of(self.cutter, self.steps)

    @cached_property
    def trade_off(self) -> tuple[Point, ...]:
        """The plan's `point`, and those of other cuts of its order of ops that it does not undercut.

        The least memory comes first. If ops were cut into parts or strips, there is only the plan's own point.
        """
        own, others = self.point, () if self.tiling is not None else self.cutter.front
        points = [p for p in (point_of(self.cutter, sections) for sections in others) if not own.undercuts(p)]
        return tuple(sorted([own, *(p for p in points if p.peak_bytes != own.peak_bytes)], key=lambda p: p.peak_bytes))

    @property
    def price(self) -> tuple[float, float]:
        """Instructions and cycles, estimated, as multiples of those of `--tile off`."""
        cut, off = self.before_selection or self.steps, self.single_op_steps or self.steps
        return instructions(cut) / max(instructions(off), 1), cost(cut) / max(cost(off), 1)


def form_of(target: Target, request: ModelRequest | None = None) -> Form:
    """The instruction set and extensions that kernels may use, and the user's wishes."""
    core, called = target.words, tuple(e for e in target.engines if e.called)
    cycles_per_instruction = cycles_of(target, 1.0) or 1.0
    if request is None:
        return Form(core, engines=called, cycles_per_instruction=cycles_per_instruction)
    wish = Wish(request.optimize, "" if request.backend == "edgebuild" else request.backend)
    measured = (word.rpartition("=") for word in request.choices)
    choice = frozenset((layer, variant) for layer, _, variant in measured)
    if request.portable:
        return Form(frozenset({PORTABLE}), wish, choice, cycles_per_instruction=cycles_per_instruction)
    return Form(core, wish, choice, engines=called, cycles_per_instruction=cycles_per_instruction)


Orders = dict[Form, tuple[Cutter, Schedule]]


@dataclass(frozen=True)
class Planner:
    """Makes plans of a graph for a target, and checks each. Raises EdgebuildError if one does not fit.

    `decoupled`: ops that gather operands before they compute, with the channels or columns gathered at once.
    `orders`: schedules, shared by planners of the same graph whose requests differ only in limits.
    """

    graph: Graph
    target: Target
    request: ModelRequest
    decoupled: Decoupled = field(default_factory=dict)
    orders: Orders = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic, init=False, compare=False)
    _placed: dict[int, tuple[tuple[Section, ...], Placement]] = field(default_factory=dict, init=False)

    @cached_property
    def scheduled(self) -> tuple[Cutter, Schedule]:
        form = form_of(self.target, self.request)
        if form not in self.orders:
            self.orders[form] = _scheduled(
                self.graph, self.target, self.request, self.decoupled, deadline=self._deadline
            )
        return self.orders[form]

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
        """Arena bytes of every op by itself; in one unlimited memory if the target's do not hold it."""
        steps = self._alone
        try:
            return self._place(self.cutter, steps)[1].height
        except DoesNotFit:
            return _place(self.cutter, steps, (BufferMemory("arena"),), self._deadline)[1].height

    def whole(self) -> Plan:
        """Plan every op whole, in place where that costs nothing."""
        steps = self.cutter.untiled
        if self.request.map == "off" and self.request.stream_input is None:
            steps = self.cutter.whole_cuts.knee(cost(steps))
        return self._plan(*self.scheduled, steps)

    @cached_property
    def alone(self) -> tuple[tuple[Section, ...], ...]:
        """Three cuts into single ops: at most NEAR times the cost of whole ops, at most ALONE times, and whole."""
        return self._by_itself(NEAR), self._alone, self.cutter.untiled

    @cached_property
    def _alone(self) -> tuple[Section, ...]:
        return self._by_itself(ALONE)

    def _by_itself(self, more: float) -> tuple[Section, ...]:
        """Every op by itself in least memory, at most `more` times the cost of every op whole.

        An op runs whole, or by rows where that lets its result overlap an operand.
        """
        steps = self.cutter.untiled
        if self.request.map != "off" or self.request.stream_input is not None:
            return steps
        return self.cutter.single_cuts.knee(more * cost(steps))

    def plan(self, steps: tuple[Section, ...]) -> Plan:
        """Plan a cut of the order of ops into sections."""
        return self._plan(*self.scheduled, steps)

    def sliced(self, plan: Plan, limit: float) -> Plan:
        """The plan with whole ops that take longer than `limit` microseconds run by rows."""
        steps = sliced(plan.cutter, plan.steps, self.target, limit)
        return plan if steps == plan.steps else self._plan(plan.cutter, plan.schedule, steps, plan.tiling)

    def with_steps(self, plan: Plan, steps: tuple[Section, ...]) -> Plan:
        """The plan with `steps`, whose kernels need no more scratch; laid out again if that takes less memory."""
        least = min(plan.lower_bound, least_bytes(plan.cutter, steps))  # less scratch may lower the bound
        same = replace(plan, steps=steps, lower_bound=least)
        if all(new.inner == old.inner for new, old in zip(steps, plan.steps, strict=True)):
            return same
        with contextlib.suppress(EdgebuildError):
            other = self._plan(plan.cutter, plan.schedule, steps, plan.tiling)
            other = replace(other, before_selection=plan.before_selection)
            return other if other.arena_bytes <= plan.arena_bytes else same
        return same

    def strips(self, budget: int, below: int | None = None, thorough: bool = True, fast: bool = False) -> Plan | None:
        """Plan rolled runs in strips of columns; None if no strips help, or the peak is not below `below` bytes.

        At most `budget` multiply-accumulates are done twice. `fast`: take the fastest cut that fits, else the smallest.
        """
        tiling, cutter, order = in_strips(
            self.graph,
            self.scheduled,
            lambda graph: _scheduled_strips(graph, self.target, self.request, self._deadline),
            budget,
            self._deadline,
            thorough,
        )
        if not tiling.tilings:
            return None
        if self.decoupled:
            cutter = replace(cutter, decoupled=self.decoupled)
        if below is not None and cutter.least_peak >= below:
            return None
        for cut in (partial(cutter.cuts.within, self.room), cutter.cuts.tight) if fast else (cutter.cuts.tight,):
            with contextlib.suppress(EdgebuildError):
                return self._plan(cutter, order, cut(), tiling)
        return self._plan(cutter, order, cutter.cuts.within(0), tiling)

    def parts(
        self,
        methods: frozenset[str],
        budget: int,
        below: int | None = None,
        thorough: bool = True,
        ram: int | None = None,
    ) -> Plan:
        """Plan ops cut into parts, each of which runs whole. Plans of `below` bytes or more are of no use.

        `ram`: bytes at which the search stops; the plan then has the fastest kernels, if they fit.
        """
        work = THOROUGH if thorough else QUICK
        code = max(MIN_CODE, round(constant_bytes(self.graph) * CODE_SHARE))
        tiling = explore(self.graph, self._evaluated, methods, Limits(budget, code, ram, below, self._deadline, work))
        cutter, order = _scheduled(tiling.graph, self.target, self.request, self.decoupled, EFFORT_OF_PARTS)
        if ram is not None:
            with contextlib.suppress(EdgebuildError):
                return self._plan(cutter, order, cutter.untiled, tiling)
        return self._plan(cutter, order, _tight(cutter), tiling)

    def _plan(
        self, cutter: Cutter, order: Schedule, steps: tuple[Section, ...], tiling: TilingOutcome | None = None
    ) -> Plan:
        least = least_bytes(cutter, steps)
        fixed = len(self.memories) > 1 or any(s.overlap or s.overlaid for s in steps)  # then other layouts may be lower
        try:
            steps, placed, places = self._place(cutter, steps)
        except DoesNotFit as reason:
            used = 0 if self.request.ram is not None else self._used(reason.memory)
            words = partial(does_not_fit, reason, cutter, loosened(cutter, steps), self._alternatives, used)
            raise Refusal(words) from None
        peak = max(profile := cutter.profile(steps), default=0)
        if any(s.rolled for s in steps):
            order = Schedule((), profile, peak, peak, False, "rolling sections", ())
        replay(cutter.graph, steps, places, streamed=cutter.rolling.streamed, views=cutter.rolling.views)
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
            lower_bound=least if fixed else max(least, placed.bound),
            single_op_steps=self._alone,
            tiling=tiling,
        )

    def _place(self, cutter: Cutter, steps: tuple[Section, ...]) -> Placement:
        """Lay out steps in the target's memories. Cached: each plan is compared with every op by itself."""
        if id(steps) not in self._placed:
            self._placed[id(steps)] = steps, _place(cutter, steps, self.memories, self._deadline)
        return self._placed[id(steps)][1]

    @cached_property
    def _alternatives(self) -> Alternatives:
        return Alternatives(self.cutter, " --tile auto" if self.request.tile == "off" else "")

    def _used(self, memory: str) -> int:
        """Bytes of a memory that stack and states take."""
        size = next((m.size for m in self.target.memories if m.name == memory), 0)
        return size - next((m.capacity or 0 for m in self.memories if m.name == memory), size)

    @property
    def _deadline(self) -> float | None:
        """The end of all searches of this planner, in monotonic seconds; None: no limit."""
        return None if self.request.time_limit is None else self.began + self.request.time_limit

    def _evaluated(self, candidate: Graph) -> Evaluated:
        """Schedule and lay out a graph with parts, or the graph itself, from which every method starts."""
        return self._untiled if candidate is self.graph else self._evaluate(candidate)

    @cached_property
    def _untiled(self) -> Evaluated:
        return self._evaluate(self.graph)

    def _evaluate(self, candidate: Graph) -> Evaluated:
        cutter, _ = _scheduled(candidate, self.target, self.request, effort=EFFORT_OF_PARTS)
        steps = _tight(cutter)
        _, placed, places = _place(cutter, steps, (BufferMemory("arena"),), self._deadline)
        sizes, lives = dict(cutter.sizes), dict(cutter.steps_of(steps))
        for step, section in enumerate(steps):
            sizes |= section.inner
            lives |= dict.fromkeys(section.inner, (step, step))
        inner = {n: p for n, p in places.items() if n not in cutter.rolling.arrays}
        pieces = tuple(Rectangle(n, p.offset, p.offset + sizes[n], *lives[n]) for n, p in inner.items())
        live, alive = cutter.profile(steps), cutter.resident
        return Evaluated(candidate, placed.height, cutter.order, cutter.life, sizes, live, alive, pieces)


def _scheduled(
    graph: Graph,
    target: Target,
    request: ModelRequest,
    decoupled: Decoupled = COUPLED,
    effort: int | None = EFFORT,
    deadline: float | None = None,
) -> tuple[Cutter, Schedule]:
    """Schedule ops for least memory; `effort` None keeps their order. `deadline`: of the search of sections."""
    rolling = RollingGraph(graph, streamed_input(graph, request))
    running = [op for op in graph.ops if not ops.SPECS[op.kind].view]
    tasks = task_graph(rolling, running)
    order = as_given(tasks) if effort is None else schedule(tasks, effort)
    check_schedule(tasks, order)
    return Cutter(rolling, tuple(running[i] for i in order.order), form_of(target, request), decoupled, deadline), order


def _scheduled_strips(
    graph: Graph, target: Target, request: ModelRequest, deadline: float | None
) -> tuple[Cutter, Schedule]:
    """Schedule strip after strip, or for least memory of whole ops: whichever takes less once it is rolled."""
    given, other = (
        _scheduled(graph, target, request, effort=effort, deadline=deadline) for effort in (None, EFFORT_OF_PARTS)
    )
    return given if given[1].order == other[1].order else min(given, other, key=lambda each: each[0].least_peak)


def streamed_input(graph: Graph, request: ModelRequest) -> str | None:
    """The input that the application brings row by row, or None. Raises EdgebuildError if it cannot be streamed."""
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
    storage = RollingGraph(graph).storage
    if any(storage.get(name) == storage[graph.inputs[0]] for name in graph.outputs):
        text = "cannot stream: an output is the input itself, so it has to be there whole"
        raise fail(text, file=graph.file, hints=["leave --stream-input out"])
    return graph.inputs[0]


def state_bytes(graph: Graph) -> int:
    """Bytes of the model's states, which last from one inference to the next."""
    return sum(graph.tensors[graph.inputs[s.read]].bytes for s in graph.states)


def constant_bytes(graph: Graph) -> int:
    return sum(t.bytes for t in graph.tensors.values() if t.constant)


def arena_memories(graph: Graph, target: Target, request: ModelRequest) -> tuple[BufferMemory, ...]:
    """Memories for activations, best first, less stack and states; with `--ram` only the first, limited to that."""
    stack, moves = target.firmware.stack if target.firmware is not None else 0, request.map != "off"
    used = Counter({next((m.name for m in target.memories if "stack" in m.roles), ""): stack})
    used[next((m.name for m in target.memories if "data" in m.roles), "")] += state_bytes(graph)
    used[target.memory("weights").name] += constant_bytes(graph) if moves else 0
    memories = [
        BufferMemory(
            m.name, max(1, m.size - used[m.name]), max(target.dma_align, CACHE_LINE * m.cached) if moves else 1
        )
        for m in target.memories
        if "arena" in m.roles and (m.access == "cpu" if request.map == "off" else m.level != 1)
    ]
    if request.ram is not None:
        return (BufferMemory(memories[0].name, min(request.ram, memories[0].capacity or request.ram)),)
    return tuple(memories[:1] if request.arena == "caller" else memories)


def _tight(cutter: Cutter) -> tuple[Section, ...]:
    """Every op whole, with its fastest kernel within `little_more` than the least peak of whole ops."""
    least = [with_kernels(s, [cutter.choices.whole(s.ops[0])[-1]]) for s in cutter.untiled]
    bound = little_more(max(cutter.profile(least), default=0))
    return tuple(cutter.fastest(s, at, bound) or s for at, s in enumerate(least))


def _place(
    cutter: Cutter, steps: tuple[Section, ...], memories: Sequence[BufferMemory], deadline: float | None
) -> Placement:
    """The lower of two layouts: with all overlaps of the cut, and with fewer where chains of overlaps are long.

    Raises DoesNotFit if neither fits the memories.
    """
    options, reasons = list[Placement](), list[DoesNotFit]()
    left = None if deadline is None else max(0.0, deadline - time.monotonic())
    loose = loosened(cutter, steps)
    for option in (steps,) if loose is steps else (loose, steps):
        problem, inside = layout_problem(cutter, option, memories)
        effort = EFFORT_OF_LAYOUT * min(1.0, MANY_BUFFERS / max(len(problem.buffers), 1))
        try:
            placed = layout(problem, effort=effort, time_limit=left)
        except DoesNotFit as reason:
            reasons.append(reason)
            continue
        check_layout(problem, placed)
        outside = [array_memory(symbol) for symbol in cutter.rolling.arrays.values()]
        heights = {m: n for m, n in placed.heights.items() if m not in outside}
        bound = placed.bound - sum(placed.heights[name] for name in outside)
        placed = replace(placed, heights=heights, bound=bound)
        bases = {name: placed.places[group] for name, (group, _) in inside.items()}
        places = {n: Place(base.memory, base.offset + inside[n][1]) for n, base in bases.items()}
        options.append((option, placed, places))
    if not options:
        raise min(reasons, key=lambda reason: reason.needed)
    return min(options, key=lambda each: each[1].height)


def in_strips(
    graph: Graph,
    scheduled: tuple[Cutter, Schedule],
    schedule_again: Callable[[Graph], tuple[Cutter, Schedule]],
    budget: int,
    deadline: float | None,
    thorough: bool = True,
) -> tuple[TilingOutcome, Cutter, Schedule]:
    """The graph with rolled runs cut into strips of columns, each of which is rolled by itself, for least memory.

    Rings then have rows of a strip's width. Neighbouring strips compute their halo twice, at most `budget`
    multiply-accumulates. `scheduled`: the schedule of `graph`; `schedule_again` schedules a graph in strips. The search
    ends at `deadline` (monotonic seconds), or when it has planned STRIPS_PLANNED ops anew, with the best so far.
    The outcome has no tilings if none helps.
    """
    left, tried, chosen = STRIPS_PLANNED[thorough], 0, list[TilingChoice]()
    began, (cutter, order) = time.monotonic(), scheduled
    while True:
        options, spent = list[tuple[TilingChoice, Graph, Cutter, Schedule]](), sum(c.extra_macs for c in chosen)
        for choice in _around_the_peak(graph, cutter):
            if progress.stopped() or left <= 0 or (deadline is not None and time.monotonic() > deadline):
                break
            if choice.extra_macs <= budget - spent and choice.tiling is not None:
                other = tiled(graph, choice.tiling)
                options.append((choice, other, *schedule_again(other)))
                left -= len(options[-1][2].order)
        tried += len(options)
        best = min(options, key=lambda option: (option[2].least_peak, option[0].extra_macs), default=None)
        if best is None or best[2].least_peak > cutter.least_peak - cutter.least_peak // WORTH:
            break
        choice, graph, cutter, order = best
        chosen.append(choice)
        progress.say(f"{cutter.least_peak} B with {len(chosen)} runs in strips")
    outcome = TilingOutcome(graph, tuple(chosen), tried, tried, time.monotonic() - began)
    return outcome, cutter, order


def _around_the_peak(graph: Graph, cutter: Cutter) -> Iterator[TilingChoice]:
    """Strips of runs that begin with the section of the peak and could lower it.

    A run may be longer than that section, since a later op may have a smaller result.
    """
    sections = cutter.cuts.tight()
    profile = cutter.profile(sections)
    at = max(range(len(sections)), key=lambda i: profile[i], default=0)
    if not sections or sections[at].rolled is None:
        return
    start = sum(len(s.ops) for s in sections[:at])
    members = [op.outputs[0] for op in cutter.order[start:]]
    # Bytes live while all strips but the last are made: storages from before the run, and the whole result.
    before = sum(cutter.sizes[n] for n, (first, last) in cutter.life.items() if first < start <= last)
    seen = set()
    for path in paths(graph, members[0], frozenset(["ffmt"])):
        names = [op.outputs[0] for op in path.ops]
        key = (len(names), path.cut)
        if names != members[: len(names)] or len(names) < 2 or path.fan_in or ROWS in path.cut or key in seen:
            continue
        seen.add(key)
        if before + cutter.sizes[names[-1]] > cutter.least_peak - cutter.least_peak // WORTH:
            continue
        for tiling in (Tiling(path, (count,) * len(path.cut)) for count in STRIPS):
            if (ranges := part_ranges(graph, tiling)) is not None:
                extra = Estimate(graph, tiling, ranges).cost.extra_macs
                yield TilingChoice(start, start + len(names), 0, extra, tiling)


# ---- The error for a model that does not fit: by how much, where, and which options would help


@dataclass(frozen=True)
class Alternatives:
    """Options to suggest if a plan does not fit, computed once. `beside`: options that `--stream-input` needs, too."""

    cutter: Cutter
    beside: str

    @cached_property
    def peaks(self) -> dict[str, int]:
        """Peak of live bytes with each option that is possible."""
        rolled = max(self.cutter.profile(self.cutter.cuts.tight()), default=sum(self.cutter.sizes.values()))
        streamed = self._streamed()
        more = {} if streamed is None else {f"--stream-input rows{self.beside}": streamed}
        return {"--tile auto": rolled, **more}

    def _streamed(self) -> int | None:
        """Peak of live bytes if the application pushed rows of the input; None: it cannot."""
        graph = self.cutter.graph
        if len(graph.inputs) != 1 or rows_of(graph := with_rows(graph), graph.inputs[0]) < 2:
            return None
        same = {op.outputs[0]: op for op in graph.ops}
        order = tuple(same[op.outputs[0]] for op in self.cutter.order)
        streamed = Cutter(RollingGraph(graph, graph.inputs[0]), order, self.cutter.form)
        try:
            return max(streamed.profile(streamed.cuts.tight()), default=None)
        except EdgebuildError:
            return None


def does_not_fit(
    reason: DoesNotFit, cutter: Cutter, steps: Sequence[Section], alternatives: Alternatives, used: int
) -> EdgebuildError:
    """The error for a model that does not fit: memory, excess, node, live tensors, and options that would help.

    `used`: bytes of the memory that stack and states take.
    """
    graph, profile = cutter.graph, cutter.profile(steps)
    highest = max(range(len(steps)), key=lambda i: profile[i], default=None)
    op = steps[highest].ops[-1] if highest is not None else None  # inputs that are outputs need no step
    least = "at least " if reason.proven else ""
    text = f"does not fit: arena {least}{reason.needed} B, memory {reason.memory} has {reason.capacity} B"
    text += f" beside {used} B of stack and states" if used > 0 else ""
    hints = [live_words(cutter, steps, highest, reason.needed)] if highest is not None else []
    sizes = {f"{option} ({size} B)": size for option, size in alternatives.peaks.items()}
    if fitting := [option for option, size in sizes.items() if size <= reason.capacity]:
        hints.append(f"try: {', or '.join(fitting)}")
    else:
        over = reason.needed - reason.capacity
        hints.append(f"over by {over} B; {' and '.join(sizes)} do not fit either; use a target with more RAM")
    node, kind = (op.name, op.origin or op.kind) if op is not None else ("", "")
    return fail(text, file=graph.file, node=node, kind=kind, hints=hints)


def live_words(cutter: Cutter, steps: Sequence[Section], step: int, needed: int) -> str:
    """List the live buffers of a step, whose bytes add up to its need, and the bytes between them in the layout."""
    live = live_set(cutter, steps, step)
    parts = [_described(cutter, part) for part in live.parts]
    if (o := live.overlap) is not None:
        parts.append(f"less {o.saved} B as {_short(o.result)} is placed in the memory of {_short(o.operand)}")
    parts += [f"{needed - live.bytes} B between them"] if needed > live.bytes else []
    return f"live at this step: {', '.join(parts)}"


def _described(cutter: Cutter, part: Live) -> str:
    tensor = cutter.graph.tensors[part.tensor]
    if part.kind in (SCRATCH, NEWEST):
        return f"{part.kind} of {_short(part.tensor)} ({part.bytes} B)"
    rows = f"{part.rows} rows of " if part.kind == RING else ""
    return f"{_short(part.tensor)} ({part.bytes} B, {rows}{'x'.join(map(str, tensor.shape))})"


def _short(tensor: str) -> str:
    return tensor.split(";")[0]
