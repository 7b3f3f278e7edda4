"""Which of the ways to run a network is taken.

* `--objective ram`: of every op by itself, rolling, strips, and each method of cutting ops, what takes least.
* `--tile auto`: the least memory that costs at most KNEE more instructions than every op whole. A byte less of it may
  cost no more than FLASH_FOR_RAM bytes of flash.
* `--ram BYTES`, or a model that does not fit as it is: the fastest that fits.
* `--tile off`, `rolling`, `fdt`, `ffmt`: that way alone.

If one way fails for a reason that is not the user's, the others are tried, and a warning says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf

from ...base import progress
from ...base.errors import Diagnostic, EdgebuildError, fail
from ...base.request import ModelRequest
from ...base.target import Target
from .. import ops
from ..ir import Graph
from ..kernels import kernel_of
from ..kernels.code_bytes import OF_CALL, code_bytes
from ..ops.base import Kernel
from . import thrift
from .check import interpret
from .cuts import untiled
from .fed_input import with_rows
from .search import METHODS, THOROUGH, Plan, Planner
from .section import COUPLED, Decoupled, cost

MACS_TWICE = 10.0  # percent that a method of cutting, or the least memory at any price, may compute twice if not said
EVERY_METHOD = frozenset(["fdt", "ffmt", "both"])
KNEE = 1.1  # of the instructions of every op whole: the most that --tile auto gives for memory
FLASH_FOR_RAM = 4  # chips have four to eight times as much flash as RAM
QUICK = 60_000  # ops of paths that --tile auto looks at: a second or two, and all there are of small networks
CHECK = "EDGEBUILD_CHECK"  # environment, "all": plans of large models, too, are run on values before they are printed
Order = Callable[[Plan], tuple[float, float]]
STRICT = "EDGEBUILD_STRICT"  # environment: failures of ours end the compilation, as they have to in tests


def plan(graph: Graph, target: Target, request: ModelRequest, decoupled: Decoupled = COUPLED) -> Plan:
    """The plan of a canonical graph that a request asks for. Raises EdgebuildError if it does not fit the target.

    `decoupled` says which ops that run whole gather their operands first, and how many channels or columns at once.
    """
    graph = with_rows(graph) if request.stream_input else graph
    planner = Planner(graph, target, request, decoupled)
    choice = _Choice(planner, int(ops.macs(graph) * mac_overhead(request) / 100))
    found = choice.made()
    if found is not None and request.map == "off":
        found = _thrifty(found)
    if found is not None and (interpret.small(found.graph) or os.environ.get(CHECK) == "all"):
        found = choice.attempt("the plan that was chosen", partial(_interpreted, graph, found))
    if found is None and choice.bug is not None and request.stream_input is None:
        found = choice.attempt("every op whole", planner.whole)
    if found is None:
        raise choice.bug or choice.refusal  # type: ignore[misc]
    return found


def mac_overhead(request: ModelRequest) -> float:
    """Percent of the MACs that may be computed twice. Default: none, unless a method that needs it is asked for."""
    if request.max_mac_overhead is not None:
        return request.max_mac_overhead
    return MACS_TWICE if request.tile in METHODS or _at_any_price(request) else 0.0


def _at_any_price(request: ModelRequest) -> bool:
    return request.objective == "ram" and request.tile in (None, "auto") and request.stream_input is None


@dataclass
class _Choice:
    """The ways of a planner tried one after the other. `twice`: multiply-accumulates that may be done twice."""

    planner: Planner
    twice: int
    refusal: EdgebuildError | None = None  # of the first way that does not fit
    bug: Exception | None = None  # the first of ours

    def attempt(self, way: str, make: Callable[[], Plan | None]) -> Plan | None:
        """The plan that a way makes; None if there is none, whatever the reason."""
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

    def made(self) -> Plan | None:
        """The plan that is asked for."""
        planner, request = self.planner, self.planner.request
        if request.tile == "off":
            return self.attempt("every op by itself", planner.alone) or self.attempt("every op whole", planner.whole)
        if request.tile in METHODS:
            return self.attempt(f"--tile {request.tile}", partial(planner.parts, METHODS[request.tile], self.twice))
        if _at_any_price(request):
            return self.least()
        if request.ram is None and request.tile == "auto" and request.objective != "ram":
            return self.knee() or next(self.fitting(), None)
        return next(self.fitting(), None)

    def fitting(self) -> Iterator[Plan]:
        """Plans that fit, the fastest first."""
        planner, request = self.planner, self.planner.request
        limits: list[int | None] = [planner.room, planner.room - planner.room // 16, None]
        if request.tile is None and request.stream_input is None:
            yield from self._each("every op by itself, with its fastest kernel", planner.fastest)
        elif request.objective == "ram" or (request.ram is None and request.tile != "auto"):
            limits = [None]  # the least
        for limit in limits:
            yield from self._each("rolling", partial(self._rolled, limit))
        if request.tile != "rolling" and request.stream_input is None:
            yield from self._each("strips", partial(planner.strips, self.twice))
            yield from self._each("parts of ops", partial(planner.parts, EVERY_METHOD, self.twice))

    def least(self) -> Plan | None:
        """The plan of least memory of all that there are."""
        planner = self.planner
        found = [*self._each("every op whole", planner.whole), *self._each("every op by itself", planner.alone)]
        for limit in (0, None):
            found += self._each("rolling", partial(self._rolled, limit))
        for name, methods in METHODS.items():
            found += self._each(f"--tile {name}", partial(planner.parts, methods, self.twice))
        if planner.request.max_mac_overhead is None and (best := self._less(found)) is not None:
            # A search that may compute nothing twice can end lower than one that may.
            found = [best, *self._each("--tile auto", _Choice(planner, 0).knee)]
            return min(found, key=_order)
        return self._less(found)

    def knee(self) -> Plan | None:
        """The plan of least memory that is worth its flash, within KNEE of the instructions of every op whole.

        It never takes more memory than every op by itself, if that keeps to the limit.
        """
        planner = self.planner
        most = KNEE * cost(untiled(planner.cutter))
        rolling = self._each("rolling", lambda: planner.rolled(planner.cutter.knee(most)))
        if planner.request.stream_input is not None:  # no other way takes rows as they come
            return next(rolling, None)
        found = [*self._each("every op whole", planner.whole), *self._each("every op by itself", planner.alone)]
        found += rolling
        quick = [p for p in found if cost(p.steps) <= most]
        small = [p for p in quick if p.arena_bytes <= planner.untiled_bytes]
        return self._less(small or quick or found, most, _worth)

    def _rolled(self, limit: int | None) -> Plan:
        return self.planner.rolled(self.planner.cutter.cut(limit))

    def _less(self, found: Iterable[Plan], most: float = inf, order: Order | None = None) -> Plan | None:
        """The least of what was found, and of strips and parts by all methods that execute at most so much.

        `order` says what is less; not given: what takes less memory.
        """
        order = order or _order
        best = min(found, key=order, default=None)
        below = best.arena_bytes if best is not None else None
        for other in self._each("strips", partial(self.planner.strips, self.twice, below)):
            best = min((p for p in (other, best) if p and cost(p.steps) <= most), key=order, default=best)
        below, work = best.arena_bytes if best is not None else None, QUICK if most < inf else THOROUGH
        for other in self._each("parts of ops", partial(self.planner.parts, EVERY_METHOD, self.twice, below, work)):
            best = min((p for p in (other, best) if p and cost(p.steps) <= most), key=order, default=best)
        return best

    def _each(self, way: str, make: Callable[[], Plan | None]) -> Iterator[Plan]:
        progress.say(f"looking at {way}")
        found = self.attempt(way, make)
        if found is not None:
            yield found


def _order(found: Plan) -> tuple[int, float]:
    return found.arena_bytes, cost(found.steps)


def _worth(found: Plan) -> tuple[float, float]:
    """Memory, with flash at its price."""
    return found.arena_bytes + flash(found) / FLASH_FOR_RAM, cost(found.steps)


def code(found: Plan) -> int:
    """Bytes of code of a plan, roughly: kernels, and a call for each op."""
    kernels = _kernels(found)
    return code_bytes(kernels, found.graph.arithmetic, found.form) + OF_CALL * len(kernels)


def flash(found: Plan) -> int:
    """Bytes of flash, roughly: of kernels, and of the orders and calls of rows."""
    kernels = _kernels(found)
    tables = sum(section.calls for section in found.steps if section.rolled)
    return thrift.flash(found.graph, kernels, found.form) + tables + OF_CALL * len(kernels)


def _thrifty(found: Plan) -> Plan:
    """The plan with less code where that costs little, unless kernels were measured; within `--flash`."""
    form, room = found.cutter.form, found.request.flash
    found = replace(found, steps=thrift.thrifty(found.graph, found.steps, form))
    if room is None or (taken := flash(found)) <= room:
        return found
    beside = taken - thrift.flash(found.graph, _kernels(found), found.form)
    least = replace(found, steps=thrift.within(found.graph, found.steps, form, room - beside))
    if (taken := flash(least)) > room:
        text = f"does not fit: constants and code take about {taken} B at least, --flash gives {room} B"
        raise fail(text, file=found.graph.file, hints=[f"over by {taken - room} B"])
    return least


def _kernels(found: Plan) -> list[Kernel]:
    formed = [pair for section in found.steps for pair in zip(section.ops, section.forms, strict=True)]
    return [kernel_of(op, found.graph, form) for op, form in formed]


def _interpreted(model: Graph, found: Plan) -> Plan:
    interpret.interpret(model, found.rolling, found.steps, found.places)
    return found


def is_strict() -> bool:
    return bool(os.environ.get(STRICT))


def warn_of(bug: Exception, way: str, file: str) -> None:
    """Say that a way failed, and that it should not have."""
    words = " ".join(str(bug).split())[:200]
    text = f"internal failure of '{way}': {type(bug).__name__}{': ' if words else ''}{words}"
    hints = (
        "the next best way is taken; the result is right, but may take more memory or time than it has to",
        "please report this with the model: it is a mistake of edgebuild",
    )
    progress.warn(Diagnostic(text, file, hints=hints, severity="warning"))
