"""Is there a layout within a height? Walks (walk.py) take turns with constraint search by OR-Tools CP-SAT.

Walks are quicker on most problems. CP-SAT takes phases and buffers that may overlap, too, and proves that there is no
layout where walks prove nothing. For CP-SAT, buffers are rectangles, fixed in time and free in address, in a
two-dimensional no-overlap constraint. Left to itself CP-SAT fails on hard instances. What solves them is a fixed
search: always branch on the buffer that can lie lowest, at its lowest offset, ties broken by a static order. No single
order is good for all, and a good one needs few conflicts; so several take turns, which grow. One worker and
limits in deterministic time make the result a function of the input.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import count
from math import gcd
from typing import TYPE_CHECKING

from edgebuild.model.plan.memory.greedy import static_order
from edgebuild.model.plan.memory.sections import Sections
from edgebuild.model.plan.memory.walk import Walks, suits

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

ORDERS = ("TWA", "OAT", "TZ", "TO", "TAW", "A")  # see greedy.py for the letters
_TURN = 0.00021  # deterministic time per buffer
_GROWTH = 3.0  # of turns, once each order has had one
_UNIT = 4.0  # seconds of processor time that a unit of it takes, about


class Budget:
    """Deterministic time, and where wanted seconds, that searches may still use."""

    def __init__(self, effort: float, time_limit: float | None = None) -> None:
        self.left = effort
        self._deadline = None if time_limit is None else time.monotonic() + time_limit

    def seconds(self) -> float:
        return float("inf") if self._deadline is None else self._deadline - time.monotonic()

    def __bool__(self) -> bool:
        return self.left > 1e-9 and self.seconds() > 0


@dataclass(frozen=True)
class LayoutAnswer:
    """Offsets per buffer; None with `refuted` if no layout exists, else if none was found."""

    offsets: list[int] | None
    refuted: bool = False


def decide(sections: Sections, height: int, budget: Budget, share: float) -> LayoutAnswer:
    """A layout of at most `height` bytes, with `share` units of the budget to search it."""
    if height < sections.bound:
        return LayoutAnswer(None, refuted=True)
    walks = Walks(sections, height, ORDERS) if suits(sections) else None
    size, end = turn(sections), budget.left - share
    pause = max(budget.left - size * len(ORDERS), end)  # of the walks
    for number in count():
        while walks and budget and budget.left > pause:
            budget.left -= walks.search() * walks.seconds_per_step / _UNIT
            if walks.offsets is not None or walks.refuted:
                return LayoutAnswer(walks.offsets, walks.refuted)
        limit = min(size * _GROWTH ** (number // len(ORDERS)), budget.left - end)
        if not budget or limit <= 1e-9:
            break
        answer = _solve(sections, height, ORDERS[number % len(ORDERS)], limit, budget.seconds())
        budget.left -= limit
        if answer.offsets is not None or answer.refuted:
            return answer
        pause = max(budget.left - limit, end)
    return LayoutAnswer(None)


def turn(sections: Sections) -> float:
    """Deterministic time of the shortest turn."""
    return _TURN * len(sections.buffers)


def _solve(sections: Sections, height: int, letters: str, limit: float, seconds: float) -> LayoutAnswer:
    from ortools.sat.python import cp_model  # late: importing it takes longer than most layouts

    model, offsets, unit = _model(sections, height)
    order = [offsets[i] for i in static_order(sections, letters)]
    model.add_decision_strategy(order, cp_model.CHOOSE_LOWEST_MIN, cp_model.SELECT_MIN_VALUE)
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.search_branching = cp_model.FIXED_SEARCH
    parameters.num_workers, parameters.random_seed = 1, 1
    parameters.max_deterministic_time = limit
    if seconds < float("inf"):
        parameters.max_time_in_seconds = max(seconds, 0.01)
    parameters.cp_model_presolve = False  # the same search, up to four times slower per conflict
    parameters.symmetry_level = parameters.linearization_level = 0
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return LayoutAnswer([solver.value(at) * unit for at in offsets])
    return LayoutAnswer(None, refuted=status == cp_model.INFEASIBLE)


_Intervals = list["list[cp_model.IntervalVar]"]


def _model(sections: Sections, height: int) -> tuple[cp_model.CpModel, list[cp_model.IntVar], int]:
    """The decision model, the offsets in it, and their unit in bytes.

    All offsets are multiples of the common divisor of the alignments, so each size can be rounded up to it (not among
    phases, which begin anywhere within their buffer). Pushed down as far as they go, all buffers then lie at multiples
    of a unit that divides all sizes. This holds if every alignment divides the unit or is a multiple of it.
    """
    from ortools.sat.python import cp_model

    model, buffers = cp_model.CpModel(), sections.buffers
    phased = [e for b, mine in zip(buffers, sections.extents, strict=True) if b.phases for e in mine]
    common = 1 if phased else gcd(*(b.align for b in buffers))
    rounded = [-(-b.size // common) * common for b in buffers]
    unit = gcd(*rounded, *(n for e in phased for n in (e.offset, e.size)))
    if any(unit % b.align and b.align % unit for b in buffers):
        unit = gcd(unit, *(b.align for b in buffers))
    offsets, in_time, in_space = list[cp_model.IntVar](), _Intervals(), _Intervals()
    for b, size, extents in zip(buffers, rounded, sections.extents, strict=True):
        at = model.new_int_var(0, (height - b.size) // unit, "")
        if unit % b.align:  # then the alignment is a multiple of the unit
            model.add(at == b.align // unit * model.new_int_var(0, (height - b.size) // b.align, ""))
        offsets.append(at)
        sizes = [e.size for e in extents] if b.phases else [size]
        in_space.append(
            [
                model.new_fixed_size_interval_var(at + e.offset // unit, n // unit, "")
                for e, n in zip(extents, sizes, strict=True)
                if n  # a phase that takes nothing is in nobody's way
            ]
        )
        in_time.append(
            [
                model.new_fixed_size_interval_var(e.first, e.end - e.first, "")
                for e, n in zip(extents, sizes, strict=True)
                if n
            ]
        )
    for group in _groups(sections):
        model.add_no_overlap_2d([n for i in group for n in in_space[i]], [n for i in group for n in in_time[i]])
    alike = dict[tuple[object, ...], int]()
    for i, b in enumerate(buffers):  # of buffers that are alike, the first lies lowest
        key = (sections.extents[i], b.size, b.align, sections.conflicts[i] | {i})
        if key in alike and not b.phases:
            model.add(offsets[alike[key]] + rounded[i] // unit <= offsets[i])
        alike[key] = i
    return model, offsets, unit


def _groups(sections: Sections) -> list[list[int]]:
    """Sets of buffers that must not overlap, which together have every conflicting pair; mostly one set."""
    present = [i for i, b in enumerate(sections.buffers) if b.size]
    if not sections.may_overlap:
        return [present]
    groups, left = list[list[int]](), {(i, j) for i in present for j in sections.conflicts[i] if i < j}
    while left:
        group = list(min(left))
        wanted = {i for pair in left for i in pair}
        for i in sorted(present, key=lambda i: (i not in wanted, i)):
            if i not in group and all((i, j) not in sections.may_overlap for j in group):
                group.append(i)
        left -= {(i, j) for i in group for j in group}
        groups.append(sorted(group))
    return groups
