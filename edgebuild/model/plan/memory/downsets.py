"""Is there an order whose peak stays within a limit? Exact search over downsets.

Two things keep the number of sets small, both without loss:

*Commitment.* Let X be tasks that can run next within the limit, such that live(M + X) <= live(M)
and no part of X that is closed under predecessors ends lower than X. Then some order that
continues with X stays within the limit if any order does: take a good order from M on and move X
to its front. Where a part P of it has run, with Y the members of X in P, submodularity gives

    live(M + X + P) - live(M + P) <= live(M + X) - live(M + Y) <= 0,

and the same with the bytes that the next task adds. Only an in-place saving can be lost by
running a task earlier (`Flow.spoils`), so such sets are not committed to. This is the
hill-valley argument of Liu (1987) on sets instead of chains.

*Both ends.* The argument holds backward in time too. Tasks committed to from the end leave the
search, and the search runs from both ends in turns: whichever comes to an end first answers.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from edgebuild.model.plan.memory.flow import Flow, bits


@dataclass(frozen=True)
class OrderAnswer:
    """`order` within the limit; or None, and then no order has a peak below `next_limit`."""

    order: tuple[int, ...] | None
    next_limit: int = 0


class _State(NamedTuple):
    done: int  # the tasks that have run
    live: int  # bytes live
    ready: int  # the tasks that can run next


def decide(
    forward: Flow, backward: Flow, start: int, goal: int, limit: int, budget: int
) -> tuple[OrderAnswer | None, int]:
    """Search an order of the tasks in `goal` but not in `start` with no step above `limit` bytes.

    `start` and `goal` are downsets and `backward` is `forward.reversed()`. Returns the answer, or
    None when `budget` states were not enough, and the number of states that were used.
    """
    full = forward.all
    head = _committed(forward, start, goal, limit)
    start |= sum(1 << t for t in head)
    tail = _committed(backward, full & ~goal, full & ~start, limit)
    goal &= ~sum(1 << t for t in tail)
    from_start = _search(forward, start, goal, limit)
    from_end = _search(backward, full & ~goal, full & ~start, limit)
    for used in range(budget):
        try:
            next(from_end if used % 2 else from_start)
        except StopIteration as stop:
            answer: OrderAnswer = stop.value
            if answer.order is None:
                return answer, used
            middle = answer.order[::-1] if used % 2 else answer.order
            return OrderAnswer((*head, *middle, *reversed(tail))), used
    return None, budget


def _search(flow: Flow, start: int, goal: int, limit: int) -> Generator[None, None, OrderAnswer]:
    """Depth first, least live bytes first; yields once per state that it expands."""
    came_from: dict[int, tuple[int, tuple[int, ...]]] = {start: (start, ())}
    stack = [_State(start, flow.live(start), flow.ready(start) & goal)]
    next_limit = sum(s.size for s in flow.stores)
    while stack:
        state = stack.pop()
        if state.done == goal:
            return OrderAnswer(_path(came_from, start, goal))
        yield
        moves, blocked = _moves(flow, state, goal, limit)
        next_limit = min(next_limit, blocked or next_limit)
        for run in moves:
            then = _advance(flow, state, run, goal)
            if then.done not in came_from:
                came_from[then.done] = (state.done, run)
                stack.append(then)
    return OrderAnswer(None, next_limit)


def _committed(flow: Flow, done: int, goal: int, limit: int) -> list[int]:
    """The tasks that run from `done` on before there is a choice to make."""
    state, order = _State(done, flow.live(done), flow.ready(done) & goal), list[int]()
    while True:
        moves, blocked = _moves(flow, state, goal, limit)
        if len(moves) != 1 or blocked:
            return order
        order += moves[0]
        state = _advance(flow, state, moves[0], goal)


def _moves(flow: Flow, state: _State, goal: int, limit: int) -> tuple[list[tuple[int, ...]], int]:
    """Tasks to run next, the most promising last, and the least bytes of a step above the limit (0: none).

    One move if there is one to commit to, else every ready task that stays within the limit.
    """
    done, live, ready = state
    steps, blocked = list[tuple[int, int]](), 0
    for task in bits(ready):
        during, after = flow.step(done, live, task)
        if during > limit:
            blocked = min(blocked or during, during)
        elif after <= live and not flow.spoils[task] & goal & ~done:
            return [(task,)], 0
        else:
            steps.append((after, task))
    steps.sort()
    for after, task in steps:
        if run := _run(flow, state, task, after, goal, limit):
            return [run], 0
    return [(task,) for _, task in reversed(steps)], blocked


def _run(flow: Flow, state: _State, task: int, after: int, goal: int, limit: int) -> tuple[int, ...]:
    """A set to commit to that starts with `task`, which leaves `after` bytes live; () if none is found.

    It goes on with a task that became ready on the way if that is the only one, or does not raise the bytes. Parts of
    such a set that are closed under predecessors are the sets passed on the way, but for tasks that do not raise the
    bytes. So it is enough to end as low as any of those.
    """
    order, done, live = [task], state.done | 1 << task, after
    lowest = min(state.live, live)
    fresh = flow.ready_after(done, task) & goal
    while fresh:
        for follower in bits(fresh):
            during, after = flow.step(done, live, follower)
            if during <= limit and (after <= live or fresh == 1 << follower):
                break
        else:
            return ()
        order.append(follower)
        done, live = done | 1 << follower, after
        fresh = fresh & ~(1 << follower) | flow.ready_after(done, follower) & goal
        if live <= lowest and not any(flow.spoils[t] & goal & ~done for t in order):
            return tuple(order)
        lowest = min(lowest, live)
    return ()


def _advance(flow: Flow, state: _State, tasks: Sequence[int], goal: int) -> _State:
    done, live, ready = state
    for task in tasks:
        _, live = flow.step(done, live, task)
        done |= 1 << task
        ready = ready & ~(1 << task) | flow.ready_after(done, task) & goal
    return _State(done, live, ready)


def _path(came_from: dict[int, tuple[int, tuple[int, ...]]], start: int, goal: int) -> tuple[int, ...]:
    runs = list[tuple[int, ...]]()
    while goal != start:
        goal, run = came_from[goal]
        runs.append(run)
    return tuple(task for run in reversed(runs) for task in run)
