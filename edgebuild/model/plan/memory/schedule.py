"""Orders of least peak memory.

The graph is cut where all that is before must run before all that is after; every order passes
these cuts, so the parts are independent. The order given is kept wherever it is good enough;
then come hill-valley merging (`hillvalley`) and, where that is not proven best, exact search
(`downsets`) within a budget of states: the result is a function of the graph alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgebuild.model.plan.memory import cutbound, hillvalley
from edgebuild.model.plan.memory.downsets import decide
from edgebuild.model.plan.memory.flow import Flow, flow_of, profile
from edgebuild.model.plan.memory.problem import Schedule, TaskGraph

EFFORT = 50_000
BITS = 20_000_000  # of all states together: one has a bit for each task, and takes as long as it is large


@dataclass(frozen=True)
class _Found:
    """An order of a part, its peak, and how it was found; no order of the part peaks below `bound`."""

    order: tuple[int, ...]
    peak: int
    bound: int
    method: str
    used: int = 0  # states of the search


def schedule(graph: TaskGraph, effort: int = EFFORT) -> Schedule:
    """An order of `graph` of least peak memory, or the best found within `effort` states.

    The order given is returned unchanged if it is optimal. `bound` is proven in any case.
    """
    flow, indices = flow_of(graph), range(len(graph.tasks))
    parts = hillvalley.cuts(flow, indices)
    bound = max(map(flow.least, indices), default=0)
    starts, steps = [(1 << part[0]) - 1 for part in parts], profile(flow, indices)
    given = [_Found(part, max(steps[t][0] for t in part), 0, "given order") for part in parts]
    effort = min(effort, BITS // max(1, len(indices)))
    best = list(given)
    # The part with the highest peak first: what it cannot avoid, the others need not go below.
    for i in sorted(range(len(parts)), key=lambda i: -given[i].peak):
        if given[i].peak > bound:
            best[i] = _improve(flow, starts[i], given[i], bound, effort)
            bound, effort = max(bound, best[i].bound), effort - best[i].used
    peak = max((found.peak for found in best), default=0)
    chosen = [old if old.peak <= peak else new for old, new in zip(given, best, strict=True)]
    methods = dict.fromkeys(found.method for found in chosen if found.method != "given order")
    return _result(flow, [t for found in chosen for t in found.order], bound, " and ".join(methods) or "given order")


def as_given(graph: TaskGraph) -> Schedule:
    """The order in which the tasks are given."""
    flow, indices = flow_of(graph), range(len(graph.tasks))
    return _result(flow, list(indices), max(map(flow.least, indices), default=0), "given order")


def _improve(flow: Flow, start: int, given: _Found, bound: int, budget: int) -> _Found:
    """The best order of a part that starts after the tasks in `start`, whose peak need not go below `bound`."""
    merged = hillvalley.order(flow, given.order)
    best, peak = given, _peak(flow, start, merged.tasks)
    if peak < best.peak:
        best = _Found(merged.tasks, peak, bound, "hill-valley merging")
    if merged.best:
        return _Found(best.order, best.peak, max(bound, best.peak), best.method)
    backward, tasks = flow.reversed(), sum(1 << t for t in given.order)
    bound = min(max(cutbound.bound(flow, tasks, bound), cutbound.bound(backward, tasks, bound)), best.peak)
    limit, untried, left = bound, bound, budget
    while bound < best.peak and left > 0:
        # A limit that is too hard to decide leaves half of the budget for easier, higher ones.
        answer, used = decide(
            flow, backward, start, start | tasks, limit, left if limit == best.peak - 1 else -(-left // 2)
        )
        left -= used
        if answer is None:
            untried = limit + 1
        elif answer.order is None:
            bound = min(answer.next_limit, best.peak)
        else:
            best = _Found(answer.order, _peak(flow, start, answer.order), bound, "exact search")
        limit = min((max(bound, untried) + best.peak) // 2, best.peak - 1)
    return _Found(best.order, best.peak, bound, best.method, budget - left)


def _peak(flow: Flow, start: int, order: Sequence[int]) -> int:
    return max(during for during, _ in profile(flow, order, start))


def _result(flow: Flow, order: list[int], bound: int, method: str) -> Schedule:
    steps, done, pairs = tuple(during for during, _ in profile(flow, order)), 0, list[tuple[str, str]]()
    for task in order:
        pairs += [(pair.read, pair.written) for pair in flow.in_place(done, task)]
        done |= 1 << task
    peak = max(steps, default=0)
    return Schedule(tuple(order), steps, peak, min(bound, peak), bound >= peak, method, tuple(pairs))
