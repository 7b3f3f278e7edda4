"""Which of the plans of a network is taken: one rule for all options.

Of the plans that keep to the limits of a command, the one of least memory is taken; among equals the fastest, then the
one of least flash. Where speed is asked for, the limit is NEAR of the fastest plan that fits; that of `--tile auto` is
KNEE of every op whole. In both, flash counts at its price. So a plan that takes less of one quantity than another, and
no more of any, always comes before it.

`--objective ram` and `--tile auto` look at every op by itself, rolling, strips, and methods of cutting ops;
`--tile rolling`, `fdt` and `ffmt` at that way alone, beside every op by itself.

If one way fails for a reason that is not the user's, the others are tried, and a warning says so.
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
from . import thrift
from .check import interpret
from .cuts import untiled
from .fed_input import with_rows
from .flash_bytes import flash
from .search import METHODS, NEAR, Plan, Planner
from .section import COUPLED, Decoupled, Section, cost, instructions

MACS_TWICE = 10.0  # percent that a method of cutting, or the least memory at any price, may compute twice if not said
EVERY_METHOD = frozenset(["fdt", "ffmt", "both"])
# Of every op whole, estimated: the most that --tile auto gives for memory, so that it is 10 % when it is counted. On
# Cortex-M4 and M55 estimates of rows were up to 4 % too low, on one network 8 % (`edgebuild verify --cycles`).
KNEE = 1.07
FLASH_FOR_RAM = 4  # chips have four to eight times as much flash as RAM
LAID_OUT = 8  # cuts that are laid out to find the least: mostly it is the first
CHECK = "EDGEBUILD_CHECK"  # environment, "all": plans of large models, too, are run on values before they are printed
Rank = tuple[float, float, int]


def plan(graph: Graph, target: Target, request: ModelRequest, decoupled: Decoupled = COUPLED) -> Plan:
    """The plan of a canonical graph that a request asks for. Raises EdgebuildError if it does not fit the target.

    `decoupled` says which ops that run whole gather their operands first, and how many channels or columns at once.
    """
    graph = with_rows(graph) if request.stream_input else graph
    planner = Planner(graph, target, request, decoupled)
    choice = _Choice(planner, int(ops.macs(graph) * mac_overhead(request) / 100))
    taken = choice.taken()
    if taken is not None and request.map == "off":
        taken = _thrifty(replace(taken, cut=taken.steps), choice.most)
    if taken is not None and (interpret.small(taken.graph) or os.environ.get(CHECK) == "all"):
        taken = choice.attempt("the plan that was chosen", partial(_interpreted, graph, taken))
    if taken is None and choice.bug is not None and request.stream_input is None:
        taken = choice.attempt("every op whole", planner.whole)
    if taken is None:
        raise choice.bug or choice.refusal  # type: ignore[misc]
    return taken


def mac_overhead(request: ModelRequest) -> float:
    """Percent of the MACs that may be computed twice. Default: none, unless a method that needs it is asked for."""
    if request.max_mac_overhead is not None:
        return request.max_mac_overhead
    return MACS_TWICE if request.tile in METHODS or _at_any_price(request) else 0.0


def _at_any_price(request: ModelRequest) -> bool:
    return request.objective == "ram" and request.tile in (None, "auto") and request.stream_input is None


@dataclass(frozen=True)
class _Cut:
    """Sections of the order of ops, which may not be laid out yet. `bytes`: what the arena takes at least."""

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
        return thrift.flash_of(self.planner.graph, self.steps, self.planner.cutter.form)


@dataclass(frozen=True)
class _Goal:
    """Limits of cost, instructions, and bytes of the arena. `price`: of a byte of flash, in bytes of the arena."""

    cost: float = inf
    instructions: float = inf
    arena: float = inf
    price: float = 0.0

    def rank(self, found: Plan) -> Rank | None:
        """The plan for which this is least is taken; None if it does not keep to the limits."""
        if not self.keeps(found.steps, found.arena_bytes):
            return None
        spent, taken = cost(found.steps), flash(found)
        return found.arena_bytes + self.price * taken, spent, taken

    def at_least(self, cut: _Cut) -> Rank:
        """A bound of the rank of a cut that is not laid out."""
        return cut.bytes + (self.price * cut.flash if self.price else 0), cut.cost, 0

    def keeps(self, steps: Sequence[Section], arena: int) -> bool:
        return arena <= self.arena and cost(steps) <= self.cost and instructions(steps) <= self.instructions


AT_ANY_PRICE, WORTH_ITS_FLASH = _Goal(), _Goal(price=1 / FLASH_FOR_RAM)


@dataclass
class _Choice:
    """The plans of a planner. `twice`: multiply-accumulates that may be done twice."""

    planner: Planner
    twice: int
    most: float = inf  # cost that the plan may have once kernels have given way to smaller ones
    refusal: EdgebuildError | None = None  # of the first way that does not fit
    bug: Exception | None = None  # the first of ours
    placed: dict[int, Plan | None] = field(default_factory=dict)  # cuts that were laid out, by identity of the steps

    def attempt(self, way: str, make: Callable[[], Plan | None]) -> Plan | None:
        """The plan that a way makes; None if there is none, whatever the reason."""
        progress.say(f"looking at {way}")
        try:
            return make()
        except EdgebuildError as reason:
            self.refusal = self.refusal or reason
        except Exception as bug:
            if is_strict():
                raise
            self.bug = self.bug or bug
            warn_of(bug, way, self.planner.graph.file)
        return None

    def taken(self) -> Plan | None:
        """The plan that is asked for."""
        request = self.planner.request
        small = request.objective == "ram" or request.ram is None
        if _at_any_price(request):
            return self.smallest()
        if request.tile == "off":
            return self.least(self.alone, (), AT_ANY_PRICE) or self.attempt("less scratch", self.planner.alone_within)
        if request.tile in METHODS:
            return self.by_method(METHODS[request.tile], small)
        if request.tile == "rolling" or (request.tile is None and self.streamed):
            return self.least(self.smallest_cuts, (), AT_ANY_PRICE) if small else self.fast(self.cuts, ())
        if request.tile is None and (found := self.fast(self.alone, ())) is not None:
            return found
        if request.tile == "auto" and small and (found := self.knee()) is not None:
            self.most = self.knee_goal.cost
            return found
        return self.fast_of_all()

    # ---- The rule

    def least(self, cuts: Iterable[_Cut], plans: Iterable[Plan | None], goal: _Goal) -> Plan | None:
        """The plan that the rule takes; None if none keeps to the limits.

        Cuts are laid out in the order of what they take at least, until no other can come before.
        """
        ranked = [(rank, found) for found in plans if found and (rank := goal.rank(found)) is not None]
        best = min(ranked, key=lambda each: each[0], default=None)
        waiting = {(cut.bytes, cut.cost): cut for cut in cuts if goal.keeps(cut.steps, cut.bytes)}
        for number, cut in enumerate(sorted(waiting.values(), key=goal.at_least)):
            if best is not None and (number >= LAID_OUT or goal.at_least(cut) >= best[0]):
                break
            found = self.place(cut)
            if found is not None and (rank := goal.rank(found)) is not None and (best is None or rank < best[0]):
                best = rank, found
        return best[1] if best is not None else None

    def fast(self, cuts: Sequence[_Cut], plans: Sequence[Plan]) -> Plan | None:
        """The plan that the rule takes where speed is asked for; None if none fits."""
        within = [cut for cut in cuts if cut.bytes <= self.planner.room] or sorted(cuts, key=lambda cut: cut.bytes)[:1]
        quick = sorted(within, key=lambda cut: (cut.cost, cut.bytes))
        first = next((found for cut in quick if (found := self.place(cut)) is not None), None)
        costs = [cost(found.steps) for found in (first, *plans) if found is not None]
        if not costs:
            return None
        goal = replace(WORTH_ITS_FLASH, cost=NEAR * min(costs))
        near = [] if cuts is self.alone else [self.cut(self.planner.cutter.knee(goal.cost))]
        return self.least([*within, *near], plans, goal)

    # ---- Where plans come from

    @property
    def streamed(self) -> bool:
        """Whether the application brings rows of the input: only rolled runs take these."""
        return self.planner.request.stream_input is not None

    @cached_property
    def alone(self) -> list[_Cut]:
        """Every op by itself."""
        return [] if self.streamed else [self.cut(steps) for steps in self.planner.alone]

    @cached_property
    def cuts(self) -> list[_Cut]:
        """The fastest cuts within many limits of memory, that of the request among them; and every op by itself."""
        cutter, room = self.planner.cutter, self.planner.room
        limits = [cutter.cut(room), cutter.cut(room - room // 16)]
        return [*self.alone, *map(self.cut, (*limits, *cutter.front))]

    @property
    def smallest_cuts(self) -> list[_Cut]:
        """Those of least memory. Only `--objective ram` asks for the least where little more is noticeably faster."""
        cutter, objective = self.planner.cutter, self.planner.request.objective
        least = [cutter.cut(0)] if objective == "ram" else []
        return [*self.alone, *map(self.cut, (cutter.cut(), *least))]

    def cut(self, steps: tuple[Section, ...]) -> _Cut:
        return _Cut(steps, max(self.planner.cutter.profile(steps), default=0), self.planner)

    def place(self, cut: _Cut) -> Plan | None:
        if id(cut.steps) not in self.placed:
            self.placed[id(cut.steps)] = self.attempt(cut.name, partial(self.planner.plan, cut.steps))
        return self.placed[id(cut.steps)]

    def by_method(self, methods: frozenset[str], small: bool) -> Plan | None:
        """By one method of cutting ops, or every op by itself."""
        ram = None if small else self.planner.request.ram
        way = partial(self.planner.parts, methods, self.twice, ram=ram)
        plans = [found] if (found := self.attempt(f"--tile {self.planner.request.tile}", way)) is not None else []
        return self.least(self.alone, plans, AT_ANY_PRICE) if small else self.fast(self.alone, plans)

    def smallest(self) -> Plan | None:
        """The plan of least memory of all that there are."""
        found = [self.least(self.smallest_cuts, (), AT_ANY_PRICE)]
        for name, methods in METHODS.items():
            found.append(self.attempt(f"--tile {name}", partial(self.planner.parts, methods, self.twice)))
        plans = self.improved(self.least((), found, AT_ANY_PRICE), AT_ANY_PRICE, thorough=True)
        if self.planner.request.max_mac_overhead is not None or not plans:
            return self.least((), plans, AT_ANY_PRICE)
        # A search that may compute nothing twice can end lower than one that may.
        lower = self.attempt("--tile auto", _Choice(self.planner, 0).knee)
        return self.least((), [*plans, lower], AT_ANY_PRICE)

    @cached_property
    def knee_goal(self) -> _Goal:
        """Within KNEE of every op whole, no more memory than every op by itself, and worth its flash."""
        whole = untiled(self.planner.cutter)
        arena = inf if self.streamed else self.planner.untiled_bytes
        return replace(WORTH_ITS_FLASH, cost=KNEE * cost(whole), instructions=KNEE * instructions(whole), arena=arena)

    @cached_property
    def knee_plans(self) -> list[Plan]:
        cuts = [*self.cuts, self.cut(self.planner.cutter.knee(self.knee_goal.cost))]
        return self.improved(self.least(cuts, (), self.knee_goal), self.knee_goal, thorough=False)

    def knee(self) -> Plan | None:
        """The plan of `--tile auto`."""
        return self.least((), self.knee_plans, self.knee_goal)

    def fast_of_all(self) -> Plan | None:
        """A fast one of all plans that fit: where no cut does, in strips or parts that take as little as is asked."""
        found = self.fast(self.cuts, self.knee_plans)
        if found is not None or self.streamed:
            return found
        planner, room = self.planner, self.planner.request.ram
        found = self.attempt("strips", partial(planner.strips, self.twice, fast=room is not None))
        return found or self.attempt("parts of ops", partial(planner.parts, EVERY_METHOD, self.twice, ram=room))

    def improved(self, best: Plan | None, goal: _Goal, thorough: bool) -> list[Plan]:
        """The plan, if there is one, and those in strips and in parts, each of less memory than those before."""
        plans, planner = [best] if best is not None else [], self.planner
        if self.streamed:
            return plans
        for way, make in (("strips", planner.strips), ("parts of ops", partial(planner.parts, EVERY_METHOD))):
            below = best.arena_bytes if best is not None else None
            found = self.attempt(way, partial(make, self.twice, below=below, thorough=thorough))
            plans += [found] if found is not None else []
            best = self.least((), plans, goal) or best
        return plans


def _thrifty(found: Plan, most: float) -> Plan:
    """The plan with less code where that costs little, unless kernels were measured; within `--flash`.

    `most`: the cost that it may have.
    """
    form, room = found.cutter.form, found.request.flash
    found = replace(found, steps=thrift.thrifty(found.graph, found.steps, form, most))
    if room is None or (taken := flash(found)) <= room:
        return found
    beside = taken - thrift.flash(found.graph, thrift.kernels_of(found.graph, found.steps), found.form)
    least = replace(found, steps=thrift.within(found.graph, found.steps, form, room - beside))
    if (taken := flash(least)) > room:
        text = f"does not fit: constants and code take about {taken} B at least, --flash gives {room} B"
        raise fail(text, file=found.graph.file, hints=[f"over by {taken - room} B"])
    return least


def _interpreted(model: Graph, found: Plan) -> Plan:
    interpret.interpret(model, found.graph, found.steps, found.places, found.rolling.streamed)
    return found


def warn_of(bug: Exception, way: str, file: str) -> None:
    """Say that a way failed, and that it should not have."""
    words = " ".join(str(bug).split())[:200]
    text = f"internal failure of '{way}': {type(bug).__name__}{': ' if words else ''}{words}"
    hints = (
        "the next best way is taken; the result is right, but may take more memory or time than it has to",
        "please report this with the model: it is a mistake of edgebuild",
    )
    progress.warn(Diagnostic(text, file, hints=hints, severity="warning"))
