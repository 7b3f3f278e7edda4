"""Is there a layout within a height? Walks take turns with constraint search by OR-Tools CP-SAT.

Walks are quicker on most problems. CP-SAT handles phases, too, and proves that there is no layout where walks prove
nothing. For CP-SAT, buffers are rectangles, fixed in time and free in address, in a
two-dimensional no-overlap constraint. With its own search CP-SAT fails on hard instances. A fixed search solves them:
always branch on the buffer that can lie lowest, at its lowest offset, ties broken by a static order. No single
order is good for all, and a good one needs few conflicts; so several orders take turns of growing length. One worker
and limits in deterministic time make the result a function of the input."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from itertools import count
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ....base.cache import remember, remembered
from .problem import Buffer, aligned

# A layout problem of one memory, reduced to the buffers that are live together.
#
# Only the order of the times matters, and of all moments only those at which a live set is maximal:
# the *sections*. A buffer spans a run of sections, with one extent or, in phases, several; two
# conflict if they share a section.


@dataclass(frozen=True)
class Extent:
    """Bytes of a buffer in sections [first, end): `size` from `offset` on, counted from its own start."""

    first: int
    end: int
    offset: int
    size: int


@dataclass(frozen=True)
class Sections:
    """Buffers of one memory, with no moment between the first and the last at which nothing is live."""

    buffers: tuple[Buffer, ...]
    spans: tuple[tuple[int, int], ...]  # first section of each buffer, and the one after its last
    extents: tuple[tuple[Extent, ...], ...]  # of each buffer, one after the other over its span
    live: tuple[tuple[int, ...], ...]  # the buffers of each section, by index

    @cached_property
    def conflicts(self) -> tuple[frozenset[int], ...]:
        """Per buffer those with which it may share no bytes."""
        with_whom = [set[int]() for _ in self.buffers]
        for section in self.live:
            for i in section:
                with_whom[i].update(section)
        return tuple(
            frozenset(j for j in others if j != i and self.buffers[j].size) if self.buffers[i].size else frozenset()
            for i, others in enumerate(with_whom)
        )

    @cached_property
    def sums(self) -> tuple[int, ...]:
        """Per section the least height of its buffers alone."""
        return tuple(self._least(number, section) for number, section in enumerate(self.live))

    def size_in(self, i: int, section: int) -> int:
        """Bytes that a buffer takes in one of its sections."""
        return self.extents[i][bisect_right(self.extents[i], section, key=lambda e: e.first) - 1].size

    def blocked(self, i: int, j: int, at: int) -> list[tuple[int, int]]:
        """Open intervals in which buffer i cannot start if buffer j is at offset `at`."""
        if not self.buffers[i].phases and not self.buffers[j].phases:
            return [(at - self.buffers[i].size, at + self.buffers[j].size)]
        return [
            (at + b.offset - a.offset - a.size, at + b.offset + b.size - a.offset)
            for a in self.extents[i]
            for b in self.extents[j]
            if a.first < b.end and b.first < a.end and a.size and b.size
        ]

    @property
    def bound(self) -> int:
        return max((*self.sums, *(b.size for b in self.buffers)), default=0)

    def _least(self, number: int, section: Sequence[int]) -> int:
        """Bytes of the buffers of a section, stacked at aligned offsets.

        With all alignments multiples of g, every buffer but the topmost takes a multiple of g.
        """
        if any(self.buffers[i].phases for i in section):
            return sum(self.size_in(i, number) for i in section)
        unit = gcd(*(self.buffers[i].align for i in section))
        rounded = [-(-self.buffers[i].size // unit) * unit for i in section]
        return sum(rounded) - max(r - self.buffers[i].size for i, r in zip(section, rounded, strict=True))


def split(buffers: Sequence[Buffer]) -> list[Sections]:
    """The buffers in components that share no moment of time, and each in sections."""
    components, end = list[list[Buffer]](), None
    for b in sorted(buffers, key=lambda b: (b.lower, b.upper)):
        if end is None or b.lower >= end:
            components.append([])
        components[-1].append(b)
        end = max(b.upper, end or b.upper)
    return list(map(_sections, components))


def _sections(buffers: list[Buffer]) -> Sections:
    parts = [(i, phase) for i, b in enumerate(buffers) for phase in b.extents]
    events = sorted(event for n, (_, phase) in enumerate(parts) for event in ((phase.lower, 1, n), (phase.upper, 0, n)))
    live, now, first, end = list[tuple[int, ...]](), set[int](), dict[int, int](), dict[int, int]()
    grown = False
    for _, begins, n in events:
        if begins:
            now.add(n)
            first[n], grown = len(live), True
        else:
            if grown:
                live.append(tuple(sorted(parts[m][0] for m in now)))
                grown = False
            now.remove(n)
            end[n] = len(live)
    extents: list[list[Extent]] = [[] for _ in buffers]
    for n, (i, phase) in enumerate(parts):
        extents[i].append(Extent(first[n], end[n], phase.offset, phase.size))
    spans = tuple((parts[0].first, parts[-1].end) for parts in extents)
    return Sections(tuple(buffers), spans, tuple(map(tuple, extents)), tuple(live))


# Layouts by one pass over the buffers: fast, and on most networks already optimal.

Key = Callable[[Sections, int], int]

# Measures of how hard a buffer is to place; the letters name the orders in which buffers are placed.
_KEYS: dict[str, Key] = {
    "T": lambda s, i: max(s.sums[slice(*s.spans[i])]),  # the tightest section that it crosses
    "O": lambda s, i: len(s.conflicts[i]),  # the number of buffers that it conflicts with
    "W": lambda s, i: s.spans[i][1] - s.spans[i][0],  # its width in sections
    "Z": lambda s, i: s.buffers[i].size,
    "A": lambda s, i: s.buffers[i].size * (s.spans[i][1] - s.spans[i][0]),  # its area
    "L": lambda s, i: -s.spans[i][0],  # how early it begins
}
GREEDY_ORDERS = ("Z", "A", "TA", "TZ", "W", "OZ", "L", "TO", "AT")


def static_order(sections: Sections, letters: str) -> list[int]:
    """The buffers, hardest first by the first letter, ties broken by the next ones and then as given."""
    keys = [_KEYS[letter] for letter in letters]
    return sorted(range(len(sections.buffers)), key=lambda i: (*(-key(sections, i) for key in keys), i))


def layouts(sections: Sections) -> Iterator[list[int]]:
    """Offsets per buffer, by several rules in several orders."""
    for letters in GREEDY_ORDERS:
        order = static_order(sections, letters)
        yield _first_fit(sections, order)
        yield _lowest_first(sections, order)
        yield _first_fit(sections, order, best=True)


def best(sections: Sections, enough: int) -> list[int]:
    """The lowest of the layouts, or the first of at most `enough` bytes."""
    lowest = list[int]()
    for offsets in layouts(sections):
        if not lowest or height(sections, offsets) < height(sections, lowest):
            lowest = offsets
        if height(sections, lowest) <= enough:
            break
    return lowest


def height(sections: Sections, offsets: Sequence[int]) -> int:
    return max((at + b.size for at, b in zip(offsets, sections.buffers, strict=True)), default=0)


def _first_fit(sections: Sections, order: Sequence[int], best: bool = False) -> list[int]:
    """Every buffer, in `order`, at the lowest gap that it fits into, or with `best` at the smallest."""
    offsets = [-1] * len(order)
    for i in order:
        b = sections.buffers[i]
        at, gaps = 0, list[tuple[int, int]]()  # (size of the gap, offset)
        placed = [j for j in sections.conflicts[i] if offsets[j] >= 0]
        for start, end in sorted(blocked for j in placed for blocked in sections.blocked(i, j, offsets[j])):
            if at <= start:
                gaps.append((start - at, at))
                if not best:
                    break
            at = max(at, aligned(end, b.align))
        offsets[i] = min(gaps, default=(0, at))[1]
    return offsets


def _lowest_first(sections: Sections, order: Sequence[int]) -> list[int]:
    """Always the buffer that can lie lowest on top of those placed; `order` breaks ties."""
    lowest, left = [0] * len(order), set(order)
    rank = {i: number for number, i in enumerate(order)}
    heap = [(0, number) for number in range(len(order))]  # a buffer that was raised is in it once more
    while heap:
        at, number = heappop(heap)
        if (i := order[number]) not in left or at < lowest[i]:
            continue
        left.remove(i)
        for j in sections.conflicts[i] & left:
            end = max((end for _, end in sections.blocked(j, i, at)), default=0)
            if (end := aligned(end, sections.buffers[j].align)) > lowest[j]:
                lowest[j] = end
                heappush(heap, (end, rank[j]))
    return lowest


if TYPE_CHECKING:
    from ortools.sat.python import cp_model

ORDERS = ("TWA", "OAT", "TZ", "TO", "TAW", "A")  # `_KEYS` has the letters
_TURN = 0.00021  # deterministic time of the shortest turn, per buffer
_REACHES = (4, 16, 64)  # sections on either side of a buffer, whose buffers are placed anew with it
_GROWTH = 3.0  # of turns, once each order has had one
_UNIT = 4.0  # seconds of processor time per unit of deterministic time, about


class Budget:
    """Deterministic time, and with a time limit seconds, that searches may still use."""

    def __init__(self, effort: float, time_limit: float | None = None) -> None:
        self.left = effort
        self._deadline = None if time_limit is None else time.monotonic() + time_limit

    def seconds(self) -> float:
        return float("inf") if self._deadline is None else self._deadline - time.monotonic()

    def __bool__(self) -> bool:
        return self.left > 1e-9 and self.seconds() > 0


@dataclass(frozen=True)
class LayoutAnswer:
    """Offsets per buffer. None with `refuted`: no layout exists; None without: the search ended first."""

    offsets: list[int] | None
    refuted: bool = False


def decide(sections: Sections, height: int, budget: Budget, share: float) -> LayoutAnswer:
    """A layout of at most `height` bytes, with `share` units of the budget to search it.

    Answers that took long are cached for later compilations. The cache key has sizes and lifetimes, and no names, so
    it serves a model with other weights, under another name, or in another file.
    """
    if height < sections.bound:
        return LayoutAnswer(None, refuted=True)
    if budget.seconds() < float("inf"):  # the answer depends on the machine
        return _search(sections, height, budget, share)
    question = _question(sections, height, budget.left, share)
    kept = _checked(remembered(question), sections, height)
    if kept is not None:
        answer, budget.left = kept
        return answer
    before = budget.left
    answer = _search(sections, height, budget, share)
    if before - budget.left >= turn(sections):  # a shorter search takes no longer than the cache
        offsets = None if answer.offsets is None else [int(at) for at in answer.offsets]
        remember(question, {"offsets": offsets, "refuted": bool(answer.refuted), "left": float(budget.left)})
    return answer


def _question(sections: Sections, height: int, left: float, share: float) -> str:
    buffers = [(b.size, b.lower, b.upper, b.align, bool(b.phases)) for b in sections.buffers]
    extents = [[(e.first, e.end, e.offset, e.size) for e in parts] for parts in sections.extents]
    asked = (buffers, sections.spans, extents, sections.live, height, left, share)
    return f"layout {asked}"


def _checked(kept: Any, sections: Sections, height: int) -> tuple[LayoutAnswer, float] | None:
    """A cached answer, and the budget left after it; None if it does not answer this question."""
    match kept:
        case {"offsets": None, "refuted": bool(refuted), "left": float(left)}:
            return LayoutAnswer(None, refuted), left
        case {"offsets": [*offsets], "refuted": False, "left": float(left)}:
            if len(offsets) == len(sections.buffers) and all(type(at) is int for at in offsets):
                return (LayoutAnswer(offsets), left) if _fits(offsets, sections, height) else None
    return None


def _fits(offsets: list[int], sections: Sections, height: int) -> bool:
    """Whether each buffer lies within the height, at its alignment, and over none that it conflicts with."""
    rows = zip(offsets, sections.buffers, strict=True)
    if not all(0 <= at <= height - b.size and at % b.align == 0 for at, b in rows):
        return False
    pairs = ((i, j) for i, others in enumerate(sections.conflicts) for j in others if i < j)
    return not any(low < offsets[i] < high for i, j in pairs for low, high in sections.blocked(i, j, offsets[j]))


def _search(sections: Sections, height: int, budget: Budget, share: float) -> LayoutAnswer:
    # Walks and turns of CP-SAT alternate and take about the same time: neither is better on all problems.
    walks = Walks(sections, height, ORDERS) if suits(sections) else None
    size, end = turn(sections), budget.left - share
    pause = max(budget.left - size * len(ORDERS), end)  # of the walks
    for number in count():
        while walks and budget and budget.left > pause:
            seconds = 6e-5 + 1e-8 * sum(map(len, sections.live))  # of processor time for a step, about
            budget.left -= walks.search() * seconds / _UNIT
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


def repaired(sections: Sections, offsets: Sequence[int], height: int, budget: Budget) -> LayoutAnswer:
    """The layout with some buffers moved, so that none ends above a height.

    Around each buffer that ends above, those that live within a window of sections are placed anew beside all others.
    So the time grows with the number of windows, and that of each does not depend on the problem's size. If the buffers
    of a window have no layout even by themselves, the height is refuted.
    """
    placed = list(offsets)
    above = [i for i, b in enumerate(sections.buffers) if placed[i] + b.size > height]
    for i in sorted(above, key=lambda i: sections.spans[i]):
        answer = LayoutAnswer(None)
        for reach in _REACHES:
            if placed[i] + sections.buffers[i].size <= height:
                break
            answer = _with_moved(sections, placed, height, i, reach, budget)
            placed = answer.offsets or placed
        else:
            if placed[i] + sections.buffers[i].size > height:
                return answer
    return LayoutAnswer(placed)


def _with_moved(sections: Sections, placed: list[int], height: int, i: int, reach: int, budget: Budget) -> LayoutAnswer:
    """The layout with buffer i, and those that live within `reach` sections around it, moved to end within `height`."""
    spans, buffers = sections.spans, sections.buffers
    first, end = max(spans[i][0] - reach, 0), spans[i][1] + reach
    near = {j for live in sections.live[first:end] for j in live}
    above = {j for j in near if placed[j] + buffers[j].size > height}
    free = above | {j for j in near if first <= spans[j][0] and spans[j][1] <= end}
    window = sorted(free.union(*(sections.conflicts[j] for j in free)))
    fixed = {n: placed[j] for n, j in enumerate(window) if j not in free}
    if all(at + buffers[window[n]].size <= height for n, at in fixed.items()):
        answer = _part(sections, window, height, budget, fixed)
        if answer.offsets is not None:
            moved = dict(zip(window, answer.offsets, strict=True))
            return LayoutAnswer([moved.get(j, at) for j, at in enumerate(placed)])
    return LayoutAnswer(None, refuted=_part(sections, sorted(free), height, budget, {}).refuted)


def _part(
    sections: Sections, window: Sequence[int], height: int, budget: Budget, fixed: Mapping[int, int]
) -> LayoutAnswer:
    """A layout of some of the buffers, in the order of `window`. `fixed`: offsets of those that stay, by position."""
    part = _sections([sections.buffers[j] for j in window])
    if height < part.bound or budget.seconds() <= 0:
        return LayoutAnswer(None, refuted=height < part.bound)
    return _solve(part, height, ORDERS[0], turn(part), budget.seconds(), fixed)


def turn(sections: Sections) -> float:
    """Deterministic time of the shortest turn."""
    return _TURN * len(sections.buffers)


def _solve(
    sections: Sections, height: int, letters: str, limit: float, seconds: float, fixed: Mapping[int, int] | None = None
) -> LayoutAnswer:
    """A turn of constraint search. `fixed`: offsets of buffers that stay where they are, by index."""
    from ortools.sat.python import cp_model  # late: importing it takes longer than most layouts

    model, offsets, unit = _model(sections, height, fixed or {})
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
    parameters.catch_sigint_signal = False  # or it would swallow an interrupt, and leave Python no handler
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return LayoutAnswer([solver.value(at) * unit for at in offsets])
    return LayoutAnswer(None, refuted=status == cp_model.INFEASIBLE)


_Intervals = list["list[cp_model.IntervalVar]"]


def _model(
    sections: Sections, height: int, fixed: Mapping[int, int]
) -> tuple[cp_model.CpModel, list[cp_model.IntVar], int]:
    """The decision model, the offsets in it, and their unit in bytes.

    All offsets are multiples of the common divisor of the alignments, so each size can be rounded up to it. Phases
    cannot, as they begin anywhere within their buffer. Pushed down as far as they go, all buffers then lie at multiples
    of a unit that divides all sizes. This holds if every alignment divides the unit or is a multiple of it.
    """
    from ortools.sat.python import cp_model

    model, buffers = cp_model.CpModel(), sections.buffers
    phased = [e for b, parts in zip(buffers, sections.extents, strict=True) if b.phases for e in parts]
    common = 1 if phased else gcd(*(b.align for b in buffers))
    rounded = [-(-b.size // common) * common for b in buffers]
    unit = gcd(*rounded, *(n for e in phased for n in (e.offset, e.size)), *fixed.values()) or 1
    if any(unit % b.align and b.align % unit for b in buffers):
        unit = gcd(unit, *(b.align for b in buffers))
    offsets, in_time, in_space = list[cp_model.IntVar](), _Intervals(), _Intervals()
    for i, (b, size, extents) in enumerate(zip(buffers, rounded, sections.extents, strict=True)):
        low, high = (fixed[i] // unit,) * 2 if i in fixed else (0, (height - b.size) // unit)
        at = model.new_int_var(low, high, "")
        if unit % b.align:  # then the alignment is a multiple of the unit
            model.add(at == b.align // unit * model.new_int_var(0, (height - b.size) // b.align, ""))
        offsets.append(at)
        sizes = [e.size for e in extents] if b.phases else [size]
        in_space.append(
            [
                model.new_fixed_size_interval_var(at + e.offset // unit, n // unit, "")
                for e, n in zip(extents, sizes, strict=True)
                if n  # an empty phase conflicts with nothing
            ]
        )
        in_time.append(
            [
                model.new_fixed_size_interval_var(e.first, e.end - e.first, "")
                for e, n in zip(extents, sizes, strict=True)
                if n
            ]
        )
    present = [i for i, b in enumerate(buffers) if b.size]
    model.add_no_overlap_2d([n for i in present for n in in_space[i]], [n for i in present for n in in_time[i]])
    alike = dict[tuple[object, ...], int]()
    for i, b in enumerate(buffers):  # of buffers that are alike, the first lies lowest
        key = (sections.extents[i], b.size, b.align, sections.conflicts[i] | {i})
        if key in alike and not b.phases and not fixed:
            model.add(offsets[alike[key]] + rounded[i] // unit <= offsets[i])
        alike[key] = i
    return model, offsets, unit


# ---- Walks: depth-first search that places buffers from the bottom up, with restarts
#
# A step places the buffer that can lie lowest on placed ones, and if that fails requires that it lies higher (Moffitt,
# "MiniMalloc", ASPLOS 2023: such layouts are enough). Three techniques make a step worth its time:
#
# * Who is first in a section? Above what is placed, a section still needs the bytes of all that wait. A buffer that can
#   only begin higher than that leaves is not its first, so it lies on top of one that may be ("not first", as for jobs
#   on one machine: Carlier and Pinson 1989). A section without a first has failed, and so has one in which those that
#   lie above some offset do not fit above it (Jackson's schedule).
# * Who is to blame? A failed section names the buffers placed in it and under it. The search jumps back to the last one
#   (Prosser 1993). Reasons by way of other sections are left out, so a search that has jumped proves nothing.
# * Buffers of sections that fail gain weight (Boussemart et al. 2004), and the next search places those first.
#
# It counts steps, never seconds, so the result is a function of the input.

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Floats = npt.NDArray[np.float64]

_NEVER = 1 << 60  # higher than any offset
_STEPS = 3  # of one search, per buffer
_FADE = 0.9  # of all weights, after each search
_CLASSES = 8  # of weights; the order decides only within a class
_ROUNDS = 2  # of the reasoning about sections, after each step


def suits(sections: Sections) -> bool:
    """Whether each buffer takes the same bytes all its life."""
    return not any(b.phases for b in sections.buffers)


@dataclass
class _State:
    """Bounds of the buffers that wait, given those placed; one entry per buffer or section."""

    support: _Ints  # offset at which a buffer lies on placed ones
    low: _Ints  # offset below which it cannot lie
    waits: _Bools
    rest: _Ints  # bytes per section of the buffers that wait

    def copy(self) -> _State:
        return _State(self.support.copy(), self.low.copy(), self.waits.copy(), self.rest.copy())


@dataclass
class Walks:
    """Searches for a layout of `sections` of at most `height` bytes. Later ones learn from earlier ones."""

    sections: Sections
    height: int
    orders: tuple[str, ...]  # letters of `_KEYS`
    offsets: list[int] | None = None  # the layout, once a search succeeds
    refuted: bool = False
    _done: int = 0
    _weights: _Floats = field(init=False)

    def __post_init__(self) -> None:
        self._weights = np.zeros(len(self.sections.buffers))

    def search(self) -> int:
        """Run one more search. Returns the number of its steps."""
        limit = _STEPS * len(self.sections.buffers)
        steps = _Walk(self, self._order()).run(limit)
        self._weights *= _FADE
        self._done += 1
        return steps

    def _order(self) -> _Ints:
        """The rank of each buffer: at first by an order alone, later by weights before the order, or by both mixed."""
        letters, turn = self.orders[self._done % len(self.orders)], self._done // len(self.orders)
        count, most = len(self._weights), self._weights.max(initial=0.0)
        rank = np.empty(count, np.int64)
        rank[static_order(self.sections, letters)] = np.arange(count)
        if not turn or not most:
            return rank
        weights = self._weights / most
        after = np.lexsort((rank, -np.floor(weights * _CLASSES)))
        rank[after if turn % 2 else np.argsort(rank / count - weights, kind="stable")] = np.arange(count)
        return rank

    # Constants of a search. "Members" are all (section, buffer) pairs, in the order of the sections.

    @cached_property
    def sizes(self) -> _Ints:
        return np.array([b.size for b in self.sections.buffers], np.int64)

    @cached_property
    def aligns(self) -> _Ints:
        return np.array([b.align for b in self.sections.buffers], np.int64)

    @cached_property
    def conflicts(self) -> _Bools:
        table = np.zeros((len(self.sections.buffers),) * 2, np.bool_)
        for i, others in enumerate(self.sections.conflicts):
            table[i, list(others)] = True
        return table

    @cached_property
    def twins(self) -> tuple[_Ints, _Ints]:
        """Pairs of interchangeable buffers: the later one, and the one before, which has to be placed first."""
        last, pairs = dict[tuple[object, ...], int](), list[tuple[int, int]]()
        for i, b in enumerate(self.sections.buffers):
            key = (self.sections.spans[i], b.size, b.align)
            if b.size and key in last:
                pairs.append((i, last[key]))
            last[key] = i
        both = np.array(pairs, np.int64).reshape(-1, 2)
        return both[:, 0], both[:, 1]

    @cached_property
    def _members(self) -> _Ints:
        return np.array([i for section in self.sections.live for i in section], np.int64)

    @cached_property
    def _section_of(self) -> _Ints:
        return np.repeat(np.arange(len(self.sections.live)), [len(section) for section in self.sections.live])

    @cached_property
    def _starts(self) -> _Ints:
        return np.searchsorted(self._section_of, np.arange(len(self.sections.live)))

    @cached_property
    def _by_buffer(self) -> tuple[_Ints, _Ints]:
        """The sections of all buffers, one buffer after the other, and where each buffer begins."""
        order = np.argsort(self._members, kind="stable")
        return order, np.searchsorted(self._members[order], np.arange(len(self.sections.buffers)))

    @cached_property
    def _member_sizes(self) -> _Ints:
        return self.sizes[self._members]

    @cached_property
    def at_first(self) -> _State:
        count = len(self.sections.buffers)
        rest = np.add.reduceat(self._member_sizes, self._starts)
        return _State(np.zeros(count, np.int64), np.zeros(count, np.int64), np.ones(count, np.bool_), rest)

    def aligned(self, offsets: Any) -> _Ints:
        """Per buffer its lowest aligned offset that is not below the one given."""
        return np.asarray(-(-offsets // self.aligns) * self.aligns)

    def tighten(self, state: _State, rounds: int = _ROUNDS) -> _Ints | None:
        """Raise buffers that cannot be first in a section. Returns the buffers of a failed section, or one, or None."""
        order, begins = self._by_buffer
        for _ in range(rounds):
            low = np.where(state.waits, state.low, _NEVER).take(self._members)
            first = low <= (self.height - state.rest).take(self._section_of)
            least = np.minimum.reduceat(np.where(first, low + self._member_sizes, _NEVER), self._starts)
            failed = (least == _NEVER) & (state.rest > 0)
            if failed.any():
                return np.array(self.sections.live[int(failed.argmax())], np.int64)
            raised = np.maximum.reduceat(np.where(first, 0, least.take(self._section_of)).take(order), begins)
            changed = (raised > state.low) & state.waits
            if not changed.any():
                break
            state.low[changed] = self.aligned(raised)[changed]
            over = changed & (state.low + self.sizes > self.height)
            if over.any():
                return np.flatnonzero(over)[:1]
        return self._overfull(state)

    def _overfull(self, state: _State) -> _Ints | None:
        """Buffers of a section that cannot all lie above the lowest of them; none if their keys exceed 63 bits."""
        bits = self._bits
        if 2 * bits + len(self.sections.live).bit_length() > 63:
            return None
        waiting = state.waits.take(self._members)
        keys = (self._keys - (state.low << bits).take(self._members))[waiting]
        keys.sort()  # section after section, in each the highest first
        section, low = keys >> 2 * bits, ~(keys >> bits) & (1 << bits) - 1
        below = state.rest.cumsum() - state.rest  # bytes that wait in the sections before
        over = low + (keys & (1 << bits) - 1).cumsum() - below.take(section) > self.height
        if not over.any():
            return None
        first = int(over.argmax())
        members = np.array(self.sections.live[int(section[first])], np.int64)
        return members[state.waits[members] & (state.low[members] >= low[first])]

    @property
    def _bits(self) -> int:
        """Bits that an offset takes."""
        return (self.height + 1).bit_length()

    @cached_property
    def _keys(self) -> _Ints:
        """Sort key per member: its section, all ones from which its offset is subtracted, and its size."""
        bits = self._bits
        return np.asarray((self._section_of << 2 * bits) + (((1 << bits) - 1) << bits) + self._member_sizes)


class _Walk:
    """One depth-first search, with jumps back."""

    def __init__(self, walks: Walks, rank: _Ints) -> None:
        self.all, self.rank = walks, rank
        count = len(rank)
        self.state = walks.at_first.copy()
        self.stack: list[tuple[int, _State]] = []  # placed buffers, and the state before each
        self.tops = np.full(count, -1, np.int64)  # where placed buffers end
        self.why_higher = np.zeros((count, count), np.bool_)  # per buffer: those that keep it above its support
        self.jumped = False

    def run(self, limit: int) -> int:
        """Search for at most `limit` steps. Returns their number."""
        if self.all.tighten(self.state, rounds=len(self.rank)) is not None:
            self.all.refuted = True
            return 1
        for step in range(1, limit + 1):
            i = self._lowest()
            if i is None:
                blame = ~self.state.waits
            else:
                failed = self._place(i)
                if failed is None and len(self.stack) == len(self.rank):
                    self.all.offsets = self.state.low.tolist()
                    return step
                if failed is None:
                    continue
                blame = self._blamed(failed)
            if not self._back(blame):
                self.all.refuted = not self.jumped
                return step
        return limit

    def _lowest(self) -> int | None:
        """The buffer that can lie lowest on its support, the first by rank among equals."""
        state, (twins, others) = self.state, self.all.twins
        able = state.waits & (state.support == state.low)
        able[twins] &= ~state.waits[others]
        waiting = np.flatnonzero(able)
        if not len(waiting):
            return None
        lowest = waiting[state.support[waiting] == state.support[waiting].min()]
        return int(lowest[self.rank[lowest].argmin()])

    def _place(self, i: int) -> _Ints | None:
        """Place a buffer on its support. Returns the buffers that fail by that, or None."""
        self.stack.append((i, self.state))
        self.state = state = self.state.copy()
        first, end = self.all.sections.spans[i]
        state.waits[i] = False
        self.tops[i] = state.low[i] + self.all.sizes[i]
        above = self.all.conflicts[i] & state.waits
        np.maximum(state.support, self.all.aligned(self.tops[i]), out=state.support, where=above)
        np.maximum(state.low, state.support, out=state.low, where=above)
        state.rest[first:end] -= self.all.sizes[i]
        return self.all.tighten(state)

    def _blamed(self, failed: _Ints) -> _Bools:
        """Placed buffers in a failed section, right under its waiting ones, or that keep one of these higher."""
        state, blamed = self.state, np.zeros(len(self.rank), np.bool_)
        blamed[failed] = True
        waiting = failed[state.waits[failed]]
        self.all._weights[waiting] += 1.0 if len(failed) > 1 else 3.0
        blamed |= self._under(waiting).any(axis=0)
        blamed |= self.why_higher[waiting[state.low[waiting] > state.support[waiting]]].any(axis=0)
        return blamed & ~state.waits

    def _under(self, buffers: _Ints) -> _Bools:
        """Per buffer those placed whose tops it would lie on."""
        gap = self.state.support[buffers][:, None] - self.tops
        touches = (gap >= 0) & (gap < self.all.aligns[buffers][:, None])
        return self.all.conflicts[buffers] & touches & ~self.state.waits

    def _back(self, blame: _Bools) -> bool:
        """Undo steps up to one that is to blame and has another choice; False if there is none."""
        while True:
            while self.stack and not blame[self.stack[-1][0]]:
                self.stack.pop()
                self.jumped = True
            if not self.stack:
                return False
            i, self.state = self.stack.pop()
            blame[i] = False
            blame |= self._under(np.array([i]))[0]
            self.why_higher[i] = blame
            failed = self._lift(i)
            if failed is None:
                return True
            blame = blame | self._blamed(failed)

    def _lift(self, i: int) -> _Ints | None:
        """Raise buffer i from its support onto the lowest waiting buffer. Returns the buffers that fail by that."""
        state = self.state
        others = self.all.conflicts[i] & state.waits
        least = (state.low + self.all.sizes)[others].min(initial=_NEVER)
        state.low[i] = self.all.aligned(np.maximum(least, state.low[i] + 1))[i]
        if state.low[i] + self.all.sizes[i] > self.all.height:
            return np.array([i])
        return self.all.tighten(state)
