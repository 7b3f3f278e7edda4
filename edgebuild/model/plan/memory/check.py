"""Proofs that a layout or a schedule is valid: naive on purpose, and sharing nothing with the solvers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal

from .problem import Buffer, Layout, MemoryProblem, Schedule, TaskGraph


class CheckFailed(AssertionError):
    """The result of a solver is invalid. `verdict` names the broken rule."""

    def __init__(self, verdict: str, text: str) -> None:
        self.verdict = verdict
        super().__init__(f"{verdict}: {text}")


def _require(condition: bool, verdict: str, text: str) -> None:
    if not condition:
        raise CheckFailed(verdict, text)


def check_layout(problem: MemoryProblem, layout: Layout) -> None:
    """Raise CheckFailed unless every buffer has its place and no two live buffers share bytes."""
    capacity = {m.name: m.capacity for m in problem.memories}
    ends = dict.fromkeys(capacity, 0)
    _require(set(layout.places) == {b.name for b in problem.buffers}, "missing-place", "not the buffers of the problem")
    for b in problem.buffers:
        place = layout.places[b.name]
        _require(place.memory in (b.memories or capacity), "wrong-memory", f"{b.name} lies in {place.memory}")
        _require(place.offset >= 0, "negative-offset", f"{b.name} at {place.offset}")
        _require(place.offset % b.align == 0, "misaligned", f"{b.name} at {place.offset}, alignment {b.align}")
        ends[place.memory] = max(ends[place.memory], place.offset + b.size)
    extents = {b.name: b.extents for b in problem.buffers}
    for a, b in _together(problem.buffers):
        p, q = layout.places[a.name], layout.places[b.name]
        for i, j in product(extents[a.name], extents[b.name]) if p.memory == q.memory else ():
            start, other = p.offset + i.offset, q.offset + j.offset
            clear = start + i.size <= other or other + j.size <= start or not i.size or not j.size
            if not clear and i.lower < j.upper and j.lower < i.upper:
                raise CheckFailed("overlap", f"{a.name} at {p.offset} and {b.name} at {q.offset} are both live")
    _require(dict(layout.heights) == ends, "wrong-height", f"heights {dict(layout.heights)}, buffers end at {ends}")
    for name, limit in capacity.items():
        _require(limit is None or ends[name] <= limit, "over-capacity", f"{name}: {ends[name]} B of {limit} B")
    _require(layout.bound <= layout.height, "wrong-bound", f"bound {layout.bound}, height {layout.height}")


def _together(buffers: Sequence[Buffer]) -> Iterator[tuple[Buffer, Buffer]]:
    """All pairs of buffers whose lifetimes meet."""
    alive = list[Buffer]()
    for b in sorted(buffers, key=lambda b: b.lower):
        alive = [a for a in alive if a.upper > b.lower]
        yield from ((a, b) for a in alive)
        alive.append(b)


def check_schedule(graph: TaskGraph, schedule: Schedule) -> None:
    """Raise CheckFailed unless the order respects every dependency and its bytes are as stated."""
    n = len(graph.tasks)
    _require(sorted(schedule.order) == list(range(n)), "not-a-permutation", f"{schedule.order}")
    step_of = {task: step for step, task in enumerate(schedule.order)}
    readers, writers = _users(graph, "reads"), _users(graph, "writes")
    for storage in graph.sizes:
        for reader, writer in product(readers[storage], writers[storage]):
            first, then = sorted((reader, writer))
            text = f"{graph.tasks[then].name} runs before {graph.tasks[first].name}"
            _require(first == then or step_of[first] < step_of[then], "broken-dependency", text)
    uses = {s: [step_of[task] for task in readers[s] + writers[s]] for s in graph.sizes}
    lives = {s: _lifetime(graph, s, uses[s]) for s in graph.sizes}
    saved = [0] * n
    allowed = dict[tuple[str, str], list[int]]()
    for step, task in enumerate(schedule.order):
        for pair in graph.tasks[task].in_place:
            allowed.setdefault(pair, []).append(step)
    for pair in schedule.in_place:
        read, written = pair
        at = allowed.get(pair, [])
        step = lives[read][1]
        good = at == [step] and lives[written][0] == step and len(writers[written]) == 1
        _require(good and written not in graph.inputs, "wrong-in-place", f"{pair}")
        saved[step] += min(graph.sizes[read], graph.sizes[written])
    used = [s for pair in schedule.in_place for s in pair]
    twice = {(p[0], "read") for p in schedule.in_place} | {(p[1], "written") for p in schedule.in_place}
    _require(len(twice) == len(used), "wrong-in-place", "a storage is read, or written, by two pairs")
    live = [0] * n
    for storage, (a, b) in lives.items():
        for moment in range(a, min(b, n - 1) + 1):
            live[moment] += graph.sizes[storage]
    profile = tuple(total - less for total, less in zip(live, saved, strict=True))
    _require(schedule.profile == profile, "wrong-profile", f"{schedule.profile}, should be {profile}")
    _require(schedule.peak == max(profile, default=0), "wrong-peak", f"{schedule.peak}")
    _require(schedule.bound <= schedule.peak, "wrong-bound", f"bound {schedule.bound}, peak {schedule.peak}")
    _require(not schedule.optimal or schedule.bound == schedule.peak, "not-optimal", f"bound {schedule.bound}")


def _users(graph: TaskGraph, how: Literal["reads", "writes"]) -> dict[str, list[int]]:
    """For each storage the tasks that read it, or write it."""
    users: dict[str, list[int]] = {s: [] for s in graph.sizes}
    for number, task in enumerate(graph.tasks):
        for storage in dict.fromkeys(getattr(task, how)):
            users[storage].append(number)
    return users


def _lifetime(graph: TaskGraph, storage: str, uses: list[int]) -> tuple[int, int]:
    """First and last step at which the storage is live, both inclusive; (0, -1) for one never used."""
    forever = storage in graph.outputs or (storage in graph.inputs and not uses)
    first = 0 if storage in graph.inputs else min(uses, default=0)
    return first, len(graph.tasks) if forever else max(uses, default=-1)
