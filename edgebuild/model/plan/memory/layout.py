"""Offsets of least height.

Buffers that share no moment of time are independent; within each component several greedy rules
run first, and most networks need no more. A component above its bound is searched exactly, at
the bound first and then by bisection (never ask the solver to minimise: decide). With several
memories, buffers that do not fit into the preferred one are moved to the next."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ....base.artifacts import write_atomic
from ....base.errors import fail
from ....base.inputs import check_replaced, read_text
from . import exact
from .check import check_layout
from .exact import Sections, best, height, split
from .problem import Buffer, BufferMemory, DoesNotFit, Layout, MemoryProblem, Place

EFFORT = 6.0  # deterministic time of the exact search, about 30 s of processor time
_MIN_SHARE = 1.0  # of that time, for one height
_MANY_BUFFERS = 600  # buffers above which windows of them are searched first


@dataclass(frozen=True)
class _Stack:
    """The layout of one memory."""

    offsets: Mapping[str, int]
    height: int
    bound: int
    methods: tuple[str, ...]


@dataclass(frozen=True)
class _Offsets:
    """The layout of one component: offsets in the order of its buffers."""

    offsets: list[int]
    method: str
    bound: int


def layout(
    problem: MemoryProblem, capacity: int | None = None, effort: float = EFFORT, time_limit: float | None = None
) -> Layout:
    """A layout of least height, or the best found within `effort` units of deterministic time.

    With `capacity` (bytes, of the first memory) a layout within it is enough and the search ends
    there. `time_limit` in seconds stops the search early, and only then does the result depend
    on the machine. Raises DoesNotFit if the buffers exceed the capacities.
    """
    budget = exact.Budget(effort, time_limit)
    first, *others = problem.memories
    if capacity is not None:
        first = BufferMemory(first.name, capacity if first.capacity is None else min(capacity, first.capacity))
    waiting, stacks, spilled = list(problem.buffers), dict[str, _Stack](), False
    for memory in (first, *others):
        allowed = [b for b in waiting if not b.memories or memory.name in b.memories]
        later = frozenset(m.name for m in problem.memories if m.name not in stacks and m.name != memory.name)
        enough = memory is first and capacity is not None
        stacks[memory.name], moved = _fill(memory, allowed, later, problem, budget, enough)
        placed = {b.name for b in allowed} - {b.name for b in moved}
        waiting = [b for b in waiting if b.name not in placed]
        spilled = spilled or bool(moved)
    places = {name: Place(memory, at) for memory, s in stacks.items() for name, at in s.offsets.items()}
    heights = {name: s.height for name, s in stacks.items()}
    bound = sum(s.bound for s in stacks.values())
    methods = dict.fromkeys(method for s in stacks.values() for method in s.methods)
    optimal = not spilled and bound == sum(heights.values())
    return Layout(
        {b.name: places[b.name] for b in problem.buffers}, heights, bound, optimal, " and ".join(methods) or "none"
    )


def _fill(
    memory: BufferMemory,
    buffers: Sequence[Buffer],
    later: frozenset[str],
    problem: MemoryProblem,
    budget: exact.Budget,
    enough: bool,
) -> tuple[_Stack, list[Buffer]]:
    """Lay out as many of `buffers` as fit into `memory`; the rest, which may lie in `later` memories, is returned.

    While it is too high, one buffer at a time leaves: the one that takes most off the sections
    that are too high, and among equals the smallest.
    """
    stay, moved = list(buffers), list[Buffer]()
    while True:
        parts = split(stay)
        movable = [b for b in stay if (later & set(b.memories) if b.memories else later)]
        bound, capacity = max((part.bound for part in parts), default=0), memory.capacity
        if capacity is None or bound <= capacity:
            stack = _stack(parts, capacity, enough, budget)
            if capacity is None or stack.height <= capacity:
                return stack, moved
            bound = stack.bound
        needed = stack.height if bound <= capacity else bound
        if not movable:
            tightest = max(parts, key=lambda part: max(part.sums))
            live = tightest.live[tightest.sums.index(max(tightest.sums))]
            names = tuple(tightest.buffers[i].name for i in live)
            raise DoesNotFit(memory.name, needed, capacity, names, proven=bound > capacity)
        moved.append(_to_move(parts, capacity, movable))
        stay.remove(moved[-1])


def _to_move(parts: Sequence[Sections], capacity: int, movable: Sequence[Buffer]) -> Buffer:
    """The movable buffer that takes most off the sections above the capacity, or else off the highest ones."""
    limit = min(capacity, max(max(part.sums) for part in parts) - 1)
    gains = dict.fromkeys(movable, 0)
    for part in parts:
        for live, total in zip(part.live, part.sums, strict=True):
            for b in (part.buffers[i] for i in live if total > limit):
                if b in gains:
                    gains[b] += min(b.size, total - limit)
    return max(movable, key=lambda b: (gains[b], -b.size))


def _stack(parts: Sequence[Sections], capacity: int | None, enough: bool, budget: exact.Budget) -> _Stack:
    """The layout of one memory whose components are `parts`; with `enough`, to meet the capacity will do."""
    bound = max((part.bound for part in parts), default=0)
    offsets, methods, ends = dict[str, int](), dict[str, None](), [0]
    # The component with the highest bound comes first: no other component needs to go below its height.
    for part in sorted(parts, key=lambda part: -part.bound):
        placed = _lay_out(part, max(bound, *ends), capacity, enough, budget)
        ends.append(height(part, placed.offsets))
        bound = max(bound, placed.bound)
        methods[placed.method] = None
        offsets.update((b.name, at) for b, at in zip(part.buffers, placed.offsets, strict=True))
    return _Stack(offsets, max(ends), bound, tuple(methods))


def _lay_out(part: Sections, least: int, capacity: int | None, enough: bool, budget: exact.Budget) -> _Offsets:
    """Lay out one component; the search ends at `least` bytes. With `enough`, it gives up above the capacity."""
    target = max(least, capacity) if enough and capacity is not None else least
    lowest = _Offsets(best(part, target), "greedy", part.bound)
    if least < target < height(part, lowest.offsets) and budget:  # a short try: tight problems may be easier
        answer = exact.decide(part, least, budget, min(exact.turn(part) / 4, budget.left))
        if answer.offsets is not None:
            return _Offsets(answer.offsets, "exact search", lowest.bound)
    low, limit, share = target, target, budget.left * (1.0 if enough else 0.3)
    while low < height(part, lowest.offsets) and budget:
        # A layout of many buffers is repaired window by window first; all are searched at once only if time allows.
        many = len(part.buffers) > _MANY_BUFFERS
        answer = exact.repaired(part, lowest.offsets, limit, budget) if many else exact.LayoutAnswer(None)
        if answer.offsets is None and not answer.refuted and (not many or budget.left >= exact.turn(part)):
            answer = exact.decide(part, limit, budget, share)
        if answer.offsets is not None:
            lowest = _Offsets(answer.offsets, "exact search", lowest.bound)
        else:
            low = limit + 1
            if answer.refuted and limit >= lowest.bound:
                lowest = _Offsets(lowest.offsets, lowest.method, limit + 1)
            if enough:
                break
        high = height(part, lowest.offsets)
        limit = capacity if capacity is not None and low <= capacity < high else (low + high) // 2
        limit, share = min(limit, high - 1), max(budget.left / 3, _MIN_SHARE)
    return lowest


# Layout problems as CSV files: columns id, lower, upper, size, and offset in a solution.

_COLUMNS = ("id", "lower", "upper", "size")


def read(path: Path) -> MemoryProblem:
    """The problem in a CSV file; further columns are ignored. Raises EdgebuildError."""
    try:
        rows = csv.reader(read_text(path, "cannot be read").splitlines(), strict=True)
        header = [name.strip() for name in next(rows, [])]
        if missing := [name for name in _COLUMNS if name not in header]:
            raise fail(f"no column {missing[0]!r}", file=str(path), line=1, hints=[f"expected: {','.join(_COLUMNS)}"])
        buffers = dict[str, Buffer]()
        for cells in rows:
            if any(cell.strip() for cell in cells):
                buffer = _buffer(dict(zip(header, cells, strict=False)), path, rows.line_num)
                if buffer.name in buffers:
                    raise fail(f"a second buffer {buffer.name!r}", file=str(path), line=rows.line_num)
                buffers[buffer.name] = buffer
    except csv.Error as error:
        raise fail(str(error), file=str(path), line=rows.line_num) from None
    return MemoryProblem(tuple(buffers.values()))


def _buffer(row: dict[str, str], path: Path, line: int) -> Buffer:
    numbers = list[int]()
    for column in _COLUMNS[1:]:
        text = row.get(column, "").strip()
        try:
            numbers.append(int(text))
        except ValueError:
            what = f"{column} is {text!r}, not a whole number" if text else f"no value for {column}"
            raise fail(what, file=str(path), line=line) from None
    lower, upper, size = numbers
    if lower >= upper:
        raise fail(f"upper {upper} is not above lower {lower}: live is [lower, upper)", file=str(path), line=line)
    if size < 0:
        raise fail(f"size {size} is negative", file=str(path), line=line)
    if not (name := row.get("id", "").strip()):
        raise fail("no value for id", file=str(path), line=line)
    return Buffer(name, size, lower, upper)


def text_of(problem: MemoryProblem, result: Layout) -> str:
    """The problem and its offsets as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*_COLUMNS, "offset"))
    for b in problem.buffers:
        writer.writerow((b.name, b.lower, b.upper, b.size, result.places[b.name].offset))
    return out.getvalue()


def solve_file(
    path: Path, capacity: int | None = None, out: Path | None = None, time_limit: float | None = None
) -> Layout | None:
    """Lay out the buffers of a CSV file, and write the offsets to `out`.

    With `capacity` (bytes) it is decided whether they fit. Prints why and returns None if they do not, or the search
    ends without a layout. Raises EdgebuildError for an invalid file.
    """
    problem = read(path)
    check_replaced([out] if out else [], [path])
    try:
        result = layout(problem, capacity, time_limit=time_limit)
    except DoesNotFit as error:
        why = "which is proven to be impossible" if error.proven else "and none was found; it may exist"
        proof = f"at least {error.needed} B are needed" if error.proven else f"the best found takes {error.needed} B"
        live = ", ".join(error.buffers[:8]) + (", ..." if len(error.buffers) > 8 else "")
        finding = fail(
            f"no layout within {capacity} B, {why}: {proof}", file=str(path), hints=[f"most are live with {live}"]
        )
        print(finding, file=sys.stderr)
        return None
    check_layout(problem, result)
    if out is not None:
        write_atomic(out, text_of(problem, result).encode())
    return result


def words(result: Layout) -> str:
    """How good a layout is, in four lines."""
    gap = 100 * (result.height - result.bound) / result.bound if result.bound else 0.0
    proof = "optimal" if result.optimal else f"gap {gap:.2f} %"
    return f"height {result.height} B\nbound {result.bound} B\n{proof}\nmethod {result.method}\n"
