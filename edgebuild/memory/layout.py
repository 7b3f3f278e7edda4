"""Offsets of least height.

Buffers that share no moment of time are independent; within each component several greedy rules
run first, and most networks need no more. What stays above the bound is searched exactly, at
the bound first and then by bisection (never ask the solver to minimise: decide). With several
memories, buffers that do not fit into the preferred one are moved to the next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgebuild.memory import exact, greedy
from edgebuild.memory.problem import Buffer, DoesNotFit, Layout, Memory, Place, Problem
from edgebuild.memory.sections import Sections, split

EFFORT = 1.0  # deterministic time of the exact search, about 20 s of processor time


@dataclass(frozen=True)
class _Stack:
    """The layout of one memory."""

    offsets: Mapping[str, int]
    height: int
    bound: int
    method: str


def layout(
    problem: Problem, capacity: int | None = None, effort: float = EFFORT, time_limit: float | None = None
) -> Layout:
    """A layout of least height, or the best found within `effort` units of deterministic time.

    With `capacity` (bytes, of the first memory) a layout within it is enough and the search ends
    there. `time_limit` in seconds stops the search early, and only then does the result depend
    on the machine. Raises DoesNotFit.
    """
    budget = exact.Budget(effort, time_limit)
    limits = {m.name: m.capacity for m in problem.memories}
    if capacity is not None:
        first = problem.memories[0]
        limits[first.name] = capacity if first.capacity is None else min(capacity, first.capacity)
    memories = [Memory(name, limit) for name, limit in limits.items()]
    waiting, spilled = list(problem.buffers), False
    stacks = dict[str, _Stack]()
    for memory in memories:
        mine = [b for b in waiting if memory.name in (b.memories or limits)]
        later = memories[memories.index(memory) + 1 :]
        goal = capacity is not None and memory is memories[0]
        stacks[memory.name], moved = _fill(memory, mine, later, problem, budget, goal)
        spilled |= bool(moved)
        waiting = [b for b in waiting if b not in mine or b in moved]
    places = {name: Place(memory, at) for memory, s in stacks.items() for name, at in s.offsets.items()}
    ordered = {b.name: places[b.name] for b in problem.buffers}
    heights = {name: s.height for name, s in stacks.items()}
    bound = sum(s.bound for s in stacks.values())
    methods = dict.fromkeys(s.method for s in stacks.values() if s.offsets)
    optimal = not spilled and bound == sum(heights.values())
    return Layout(ordered, heights, bound, optimal, " and ".join(methods) or "empty")


def _fill(
    memory: Memory, buffers: Sequence[Buffer], later: Sequence[Memory], problem: Problem, budget: exact.Budget, goal: bool
) -> tuple[_Stack, list[Buffer]]:
    """Lay out as many of `buffers` as fit into `memory`; the others, which may lie in `later` ones, are returned.

    As long as it is too high, the buffer leaves that occupies most of the sections that are too
    high (bytes times sections): it makes room with the fewest buffers moved.
    """
    stay, moved = list(buffers), list[Buffer]()
    names = {m.name for m in later}
    while True:
        parts = split(stay, problem.may_overlap)
        bound = max((p.bound for p in parts), default=0)
        if memory.capacity is None or bound <= memory.capacity:
            stack = _stack(parts, memory.capacity, goal, budget)
            if memory.capacity is None or stack.height <= memory.capacity:
                return stack, moved
            excess, proven = stack.height, False
        else:
            excess, proven = bound, True
        assert memory.capacity is not None
        movable = [b for b in stay if names and (not b.memories or names & set(b.memories))]
        out = _to_move(parts, memory.capacity, movable, proven)
        if out is None:
            raise _does_not_fit(memory, parts, excess, proven)
        stay.remove(out)
        moved.append(out)


def _stack(parts: Sequence[Sections], capacity: int | None, goal: bool, budget: exact.Budget) -> _Stack:
    """The layout of one memory whose components are `parts`; with `goal`, within the capacity is enough."""
    bound = max((p.bound for p in parts), default=0)
    target = max(bound, capacity) if goal and capacity is not None else bound
    offsets, methods = dict[str, int](), dict[str, None]()
    height = 0
    for part in sorted(parts, key=lambda p: -p.bound):
        found, method, refuted = _lay_out(part, max(target, height), budget)
        height = max(height, greedy.height(part, found))
        bound = max(bound, refuted)
        methods[method] = None
        offsets.update((b.name, at) for b, at in zip(part.buffers, found, strict=True))
    return _Stack(offsets, height, bound, " and ".join(methods))


def _lay_out(part: Sections, target: int, budget: exact.Budget) -> tuple[list[int], str, int]:
    """(offsets, method, proven lower bound) of one component; no need to go below `target`."""
    best = list[int]()
    for offsets in greedy.layouts(part):
        if not best or greedy.height(part, offsets) < greedy.height(part, best):
            best = offsets
        if greedy.height(part, best) <= target:
            return best, "greedy", part.bound
    method, bound, low, high = "greedy", part.bound, target, greedy.height(part, best)
    share, limit = budget.left * 0.5, low
    ...
    return best, method, bound
