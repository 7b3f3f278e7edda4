"""Choose the plan: one rule for all options.

Of the plans that keep to the limits of a command, the one of least memory is taken; among equals the fastest, then the
one of least flash. If speed is requested, the limit is NEAR times the cost of the fastest plan that fits. With
`--tile auto` it is KNEE times the cost of every op whole. In both, flash counts at its price. So a plan that takes less
of one quantity than another, and no more of any, always comes before it.

`--objective ram` and `--tile auto` try every op by itself, rolling, strips, and methods of cutting ops;
`--tile rolling`, `fdt` and `ffmt` try that option and every op by itself.
If an option fails by an internal error, the others are tried, and a warning says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import inf

from ...base import progress
from ...base.errors import Diagnostic, EdgebuildError, fail, is_strict
from ...base.request import ModelRequest
from ...base.target import Target
from .. import ops
from ..ir import Graph
from . import kernel_selection
from .check import interpret
from .rolling import with_output_rows, with_rows
from .search import METHODS, NEAR, Orders, Plan, Planner
from .section import COUPLED, Decoupled, Section, cost, instructions
from .storage import least_bytes

MACS_TWICE = 10.0  # default percent that a method of cutting, or the least memory at any price, may compute twice
EVERY_METHOD = frozenset(["fdt", "ffmt", "both"])
# Cost limit of --tile auto as a multiple of every op whole, estimated, so that it is 10 % when it is counted. On
# Cortex-M4 and M55 estimates of rows were up to 4 % too low, on one network 8 % (`edgebuild verify --cycles`).
KNEE = 1.07
FLASH_FOR_RAM = 4  # chips have four to eight times as much flash as RAM
LAID_OUT = 8  # cuts that are laid out at most to find the smallest arena: mostly the first has it
CHECK = "EDGEBUILD_CHECK"  # environment, "all": plans of large models, too, are run on values before they are printed
Rank = tuple[float, float, int]  # bytes of the arena with priced flash, cost, bytes of flash


def plan(
    graph: Graph, target: Target, request: ModelRequest, decoupled: Decoupled = COUPLED, orders: Orders | None = None
) -> Plan:
    """The plan of a canonical graph that a request asks for. Raises EdgebuildError if it does not fit the target.

    `decoupled`, `orders`: see `Planner`.
    """
    check_steps(request, target)
    check_self_test(request, graph)
    graph = with_rows(graph) if request.stream_input else graph
    if request.stream_output:
        if request.arena != "static" or graph.link or request.tile in ("off", *METHODS):
            hint = "leave out --arena and --cluster, and --tile or give --tile rolling or auto"
            raise fail("--stream-output needs --arena static, one device and rolling", file=graph.file, hints=[hint])
        graph = with_output_rows(graph, request.name)
    planner = Planner(graph, target, request, decoupled, {} if orders is None else orders)
    choice = _Choice(planner, int(ops.macs(graph) * mac_overhead(request) / 100))
    chosen = choice.plan()
    if chosen is not None and request.map == "off":
        chosen = choice.with_less_code(replace(chosen, before_selection=chosen.steps))
    if chosen is not None and request.max_slice is not None:
        chosen = planner.sliced(chosen, request.max_slice)
    if chosen is not None and interprets(chosen.graph):
        chosen = choice.attempt("the plan that was chosen", partial(interpreted, graph, chosen))
    if chosen is None and choice.bug is not None and request.stream_input is None:
        chosen = choice.attempt("every op whole", planner.whole)
    if chosen is None:
        raise choice.bug or choice.refusal  # type: ignore[misc]
    return chosen


def check_steps(request: ModelRequest, target: Target) -> None:
    """Raise EdgebuildError for options that exclude `--steps` or `--max-slice`, and for slices without a clock."""
    if not request.stepwise:
        return
    is_cut = request.max_slice is not None
    option = "max_slice" if is_cut else "steps"
    _check_alone(request, option)
    for other, is_there in (("map", request.map != "off"), ("objective energy", request.objective == "energy")):
        if is_cut and is_there:
            raise fail(f"option '{option}': not with --{other}", hints=["leave one of them out"])
    if request.max_slice is not None and not target.clock_hz:
        hints = ["add clock_hz to its YAML, or give --steps alone"]
        raise fail(f"option 'max_slice': target {target.name} states no clock", hints=hints)
    if request.max_slice == 0:
        raise fail("option 'max_slice': 0 us is no time for anything", hints=["write microseconds, as 2000"])


def _check_alone(request: ModelRequest, option: str, file: str = "") -> None:
    """Refuse options that leave arena, input or ops to the application or to other devices."""
    others = {
        "--arena caller": request.arena == "caller",
        "--stream-input": request.stream_input is not None,
        "--cluster": request.device is not None,
    }
    if other := next((name for name, is_there in others.items() if is_there), ""):
        raise fail(f"option '{option}': not with {other}", file=file, hints=["leave one of them out"])


def check_self_test(request: ModelRequest, graph: Graph) -> None:
    """Raise EdgebuildError where test vectors are impossible: float results, or no arena with the whole input."""
    if not request.selftest:
        return
    _check_alone(request, "selftest", graph.file)
    if request.stream_output:
        raise fail("option 'selftest': not with --stream-output", file=graph.file, hints=["leave one of them out"])
    ports = [graph.tensors[n] for n in (*graph.ports_in, *graph.ports_out)]
    if wide := next((t for t in ports if t.dtype not in ("int8", "uint8", "int16", "bool")), None):
        text = f"option 'selftest': '{wide.name}' is {wide.dtype}; vectors are for quantised models"
        raise fail(text, file=graph.file, hints=["quantise it: `edgebuild quantize`"])


def mac_overhead(request: ModelRequest) -> float:
    """Percent of the MACs that may be computed twice. Default: none, unless a method that needs it is asked for."""
    if request.max_mac_overhead is not None:
        return request.max_mac_overhead
    return MACS_TWICE if request.tile in METHODS or _at_any_price(request) else 0.0


def _at_any_price(request: ModelRequest) -> bool:
    return request.objective == "ram" and request.tile in (None, "auto") and request.stream_input is None


@dataclass(frozen=True)
class _Cut:
    """A cut of the order of ops that may not be laid out yet. `bytes`: lower bound on its arena."""

    steps: tuple[Section, ...]
    bytes: int
    planner: Planner

    @property
    def name(self) -> str:
        return "rolling" if any(s.run for s in self.steps) else "every op by itself"

    @cached_property
    def cost(self) -> float:
        return cost(self.steps)

    @cached_property
    def flash(self) -> int:
        return kernel_selection.flash_of(self.planner.graph, self.steps, self.planner.cutter.form)


Candidate = _Cut | Plan


@dataclass(frozen=True)
class _Goal:
    """Limits of cost, instructions, and bytes of the arena. `price`: of a byte of flash, in bytes of the arena."""

    cost: float = inf
    instructions: float = inf
    arena: float = inf
    price: float = 0.0

    def rank(self, plan: Plan) -> Rank | None:
        """Sort key of a plan: the least is chosen. None if the plan exceeds a limit."""
        if not self.keeps(plan.steps, plan.arena_bytes):
            return None
        flash = plan.flash_bytes
        return plan.arena_bytes + self.price * flash, cost(plan.steps), flash

    def at_least(self, cut: _Cut) -> Rank:
        """Lower bound on the rank of a cut that is not laid out."""
        return cut.bytes + (self.price * cut.flash if self.price else 0), cut.cost, 0

    def keeps(self, steps: Sequence[Section], arena: int) -> bool:
        return arena <= self.arena and cost(steps) <= self.cost and instructions(steps) <= self.instructions


SMALLEST, WORTH_ITS_FLASH = _Goal(), _Goal(price=1 / FLASH_FOR_RAM)


@dataclass(frozen=True)
class _Try:
    """Candidates, and the goal that limits and ranks them; None: the least memory near the fastest.

    `between`: once the cost of the fastest is clear, the cut of least memory near it is a candidate, too.
    """

    candidates: Callable[[], Iterable[Candidate | None]]
    goal: _Goal | None = SMALLEST
    between: bool = False


@dataclass
class _Choice:
    """Chooses one of a planner's plans. `twice`: multiply-accumulates that may be done twice."""

    planner: Planner
    twice: int
    most: float = inf  # cost that the plan may have once kernels have given way to smaller ones
    refusal: EdgebuildError | None = None  # of the first plan that does not fit
    bug: Exception | None = None  # the first internal error
    placed: dict[int, Plan | None] = field(default_factory=dict)  # cuts that were laid out, by identity of the steps

    def attempt(self, name: str, make: Callable[[], Plan | None]) -> Plan | None:
        """The plan that `make` returns; None if it returns none, or raises: `refusal` or `bug` then keep the reason."""
        progress.say(f"looking at {name}")
        try:
            return make()
        except EdgebuildError as reason:
            self.refusal = self.refusal or reason
        except Exception as bug:
            if is_strict():
                raise
            self.bug = self.bug or bug
            warn_of(bug, name, self.planner.graph.file)
        return None

    def plan(self) -> Plan | None:
        """The plan of the first try that has one; None if no try has."""
        for each in self.tries():
            if (plan := self.of(each)) is not None:
                return plan
        return None

    def tries(self) -> Iterable[_Try]:
        """The tries of a request in order; later ones are for a model that does not fit otherwise."""
        request = self.planner.request
        small = request.objective == "ram" or request.ram is None
        if _at_any_price(request):
            yield _Try(self.smallest_plans)
        elif request.tile == "off":
            yield _Try(lambda: [*self.alone, *self.no_slower([])])
            yield _Try(lambda: [self.alone_within])
        elif request.tile in METHODS:
            yield _Try(
                partial(self.one_method, request.tile, None if small else request.ram), SMALLEST if small else None
            )
        elif request.tile == "rolling" or (request.tile is None and self.by_rows):
            yield _Try(lambda: self.smallest_cuts) if small else _Try(lambda: self.cuts, None, between=True)
        else:
            if request.tile is None:
                yield _Try(lambda: self.alone, None)
            elif small:
                self.most = self.knee_goal.cost
                yield _Try(lambda: self.knee_plans, self.knee_goal)
                self.most = inf
            yield _Try(lambda: [*self.cuts, *self.knee_plans], None, between=True)
            if not self.streamed:
                fast = request.ram is not None
                yield _Try(lambda: [self.attempt("strips", partial(self.planner.strips, self.twice, fast=fast))])
                yield _Try(lambda: self.parts(EVERY_METHOD, "parts of ops", request.ram), None)

    # ---- The rule

    def of(self, each: _Try) -> Plan | None:
        """The plan of a try; None if no candidate is admissible."""
        candidates = [c for c in each.candidates() if c is not None]
        return self.best(candidates, each.goal) if each.goal is not None else self.fast(candidates, each.between)

    def best(self, candidates: Iterable[Candidate], goal: _Goal) -> Plan | None:
        """The plan of the least rank; None if none keeps to the limits.

        Cuts are laid out in the order of their lower bounds, until no other can come before the best plan.
        """
        candidates = list(candidates)
        ranked = [(rank, c) for c in candidates if isinstance(c, Plan) and (rank := goal.rank(c)) is not None]
        best = min(ranked, key=lambda each: each[0], default=None)
        cuts = {(c.bytes, c.cost): c for c in candidates if isinstance(c, _Cut) and goal.keeps(c.steps, c.bytes)}
        for number, cut in enumerate(sorted(cuts.values(), key=goal.at_least)):
            if best is not None and (number >= LAID_OUT or goal.at_least(cut) >= best[0]):
                break
            plan = self.place(cut)
            if plan is not None and (rank := goal.rank(plan)) is not None and (best is None or rank < best[0]):
                best = rank, plan
        return best[1] if best is not None else None

    def fast(self, candidates: Sequence[Candidate], between: bool) -> Plan | None:
        """The plan of least memory near the fastest plan that fits; None if none fits."""
        plans, cuts = [c for c in candidates if isinstance(c, Plan)], [c for c in candidates if isinstance(c, _Cut)]
        within = [cut for cut in cuts if cut.bytes <= self.planner.room] or sorted(cuts, key=lambda cut: cut.bytes)[:1]
        quick = sorted(within, key=lambda cut: (cut.cost, cut.bytes))
        first = next((plan for cut in quick if (plan := self.place(cut)) is not None), None)
        costs = [cost(plan.steps) for plan in (first, *plans) if plan is not None]
        if not costs:
            return None
        goal = replace(WORTH_ITS_FLASH, cost=NEAR * min(costs))
        near = [self.cut(self.planner.cutter.cuts.knee(goal.cost))] if between else []
        return self.best([*within, *near, *plans], goal)

    # ---- Candidates

    @property
    def streamed(self) -> bool:
        """Whether the application brings rows of the input: only rolled runs take these."""
        return self.planner.request.stream_input is not None

    @property
    def by_rows(self) -> bool:
        """Whether the input or the output is streamed by rows, so that runs are rolled by default."""
        return self.streamed or self.planner.request.stream_output is not None

    @cached_property
    def alone(self) -> list[_Cut]:
        """Every op by itself."""
        return [] if self.streamed else [self.cut(steps) for steps in self.planner.alone]

    @cached_property
    def alone_within(self) -> _Cut:
        """Every op by itself, with the fastest kernels that fit."""
        return self.cut(self.planner.cutter.single_cuts.within(self.planner.room))

    @cached_property
    def cuts(self) -> list[_Cut]:
        """The fastest cuts within many limits of memory, that of the request among them; and every op by itself."""
        cutter, room = self.planner.cutter, self.planner.room
        limits = [cutter.cuts.within(room), cutter.cuts.within(room - room // 16)]
        return [*self.alone, *map(self.cut, (*limits, *cutter.front))]

    @property
    def smallest_cuts(self) -> list[_Cut]:
        """Cuts of least memory. Only `--objective ram` takes the least even if little more is noticeably faster."""
        cuts = self.planner.cutter.cuts
        least = [cuts.within(0)] if self.planner.request.objective == "ram" else []
        return [*self.alone, *map(self.cut, (cuts.tight(), *least))]

    def cut(self, steps: tuple[Section, ...]) -> _Cut:
        return _Cut(steps, least_bytes(self.planner.cutter, steps), self.planner)

    def place(self, cut: _Cut) -> Plan | None:
        if id(cut.steps) not in self.placed:
            self.placed[id(cut.steps)] = self.attempt(cut.name, partial(self.planner.plan, cut.steps))
        return self.placed[id(cut.steps)]

    def parts(self, methods: frozenset[str], name: str, ram: int | None = None) -> list[Plan | None]:
        """Plans of ops cut into parts: of the least memory and, given `ram`, cut only until that many bytes suffice.

        Ops that are cut further can be faster, too, so the search that ends within `ram` is not enough.
        """
        limits = (None,) if ram is None else (ram, None)
        return [self.attempt(name, partial(self.planner.parts, methods, self.twice, ram=limit)) for limit in limits]

    def one_method(self, name: str, ram: int | None) -> list[Candidate]:
        """Ops cut by one method, and every op by itself: as `--tile off` has it, and no slower than the method."""
        plans = [plan for plan in self.parts(METHODS[name], f"--tile {name}", ram) if plan is not None]
        return [*self.alone, self.alone_within, *self.no_slower(plans), *plans]

    def no_slower(self, plans: Sequence[Plan]) -> list[_Cut]:
        """Cuts into single ops, no slower than each of these plans: of least memory, and fastest within its arena.

        The best plan of single ops is one of these plans, since its layout may take more bytes than its tensors.
        """
        singles, cuts = self.planner.cutter.single_cuts, list[_Cut]()
        alone = self.best(self.alone, SMALLEST) if self.planner.request.map == "off" else None
        for plan in filter(None, (*plans, alone)):
            most = cost(plan.steps)
            near = map(self.cut, (singles.knee(most), singles.within(plan.arena_bytes)))
            cuts += [cut for cut in near if cut.cost <= most]
        return cuts

    def smallest_plans(self) -> list[Plan | None]:
        """The plan of least memory of each kind."""
        plans = [self.best(self.smallest_cuts, SMALLEST)]
        plans += [plan for name, methods in METHODS.items() for plan in self.parts(methods, f"--tile {name}")]
        plans = [*self.improved(self.best(filter(None, plans), SMALLEST), SMALLEST, thorough=True)]
        if self.planner.request.max_mac_overhead is None and plans:
            # A search that may compute nothing twice can end lower than one that may.
            lower = _Choice(self.planner, 0)
            plans.append(self.attempt("--tile auto", lambda: lower.best(lower.knee_plans, lower.knee_goal)))
        return plans

    @cached_property
    def knee_goal(self) -> _Goal:
        """At most KNEE times the cost of every op whole, no more memory than every op by itself, flash at its price."""
        whole = self.planner.cutter.untiled
        arena = inf if self.streamed else self.planner.untiled_bytes
        return replace(WORTH_ITS_FLASH, cost=KNEE * cost(whole), instructions=KNEE * instructions(whole), arena=arena)

    @cached_property
    def knee_plans(self) -> list[Plan]:
        """The plans of `--tile auto`."""
        cuts = [*self.cuts, self.cut(self.planner.cutter.cuts.knee(self.knee_goal.cost))]
        return self.improved(self.best(cuts, self.knee_goal), self.knee_goal, thorough=False)

    def improved(self, best: Plan | None, goal: _Goal, thorough: bool) -> list[Plan]:
        """The plan `best`, if any, and plans in strips and in parts, each of less memory than those before."""
        plans, planner = [best] if best is not None else [], self.planner
        if self.streamed:
            return plans
        for name, make in (("strips", planner.strips), ("parts of ops", partial(planner.parts, EVERY_METHOD))):
            below = best.arena_bytes if best is not None else None
            plan = self.attempt(name, partial(make, self.twice, below=below, thorough=thorough))
            plans += [plan] if plan is not None else []
            best = self.best(plans, goal) or best
        return plans

    # ---- After the choice

    def with_less_code(self, plan: Plan) -> Plan:
        """The plan with less code where that costs little, and within `--flash`; measured kernels stay.

        Kernels without scratch may leave room, so the plan is laid out again. Raises EdgebuildError beyond `--flash`.
        """
        graph, form, room = plan.graph, plan.cutter.form, plan.request.flash
        less = replace(plan, steps=kernel_selection.with_less_code(graph, plan.steps, form, self.most))
        if room is not None and (flash := less.flash_bytes) > room:
            calls = flash - kernel_selection.flash(graph, kernel_selection.kernels_of(graph, less.steps), less.form)
            less = replace(less, steps=kernel_selection.within_flash(graph, less.steps, form, room - calls))
            if (flash := less.flash_bytes) > room:
                text = f"does not fit: constants and code take about {flash} B at least, --flash gives {room} B"
                raise fail(text, file=graph.file, hints=[f"over by {flash - room} B"])
        return self.planner.with_steps(plan, less.steps)


def interprets(graph: Graph) -> bool:
    """Whether plans of this graph are checked by running them on values."""
    return interpret.small(graph) or os.environ.get(CHECK) == "all"


def interpreted(model: Graph, plan: Plan) -> Plan:
    """The plan, after a run of its kernels on values. Raises BrokenPlan if results differ from the model's."""
    interpret.interpret(model, plan.graph, plan.steps)
    return plan


def warn_of(bug: Exception, name: str, file: str) -> None:
    """Warn that an option failed by an internal error."""
    words = " ".join(str(bug).split())[:200]
    text = f"internal failure of '{name}': {type(bug).__name__}{': ' if words else ''}{words}"
    hints = (
        "the next best way is taken; the result is right, but may take more memory or time than it has to",
        "please report this with the model: it is a mistake of edgebuild",
    )
    progress.warn(Diagnostic(text, file, hints=hints, severity="warning"))
