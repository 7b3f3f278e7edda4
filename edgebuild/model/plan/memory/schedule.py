"""Orders of least peak memory.

The graph is cut at positions where every task before must run before every task after; every order
passes these cuts, so the parts are independent. The order given is kept wherever it is good enough;
then come hill-valley merging (`merged`) and, where that is not proven best, exact search (`decide`) within a budget of
states: the result is a function of the graph alone. `cut_bound` proves that a peak cannot be avoided."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from heapq import heapify, heappop, heappush
from operator import or_
from typing import NamedTuple

from .problem import Schedule, TaskGraph

# A task graph as bit sets, in either direction of time.
#
# Executed tasks form a set that is closed under predecessors, a *downset*. The bytes live between
# two steps depend on that set alone:
#
#     live(M) = sum of size(s) over all s with  (first(s) meets M)  and not  (last(s) inside M)
#
# Forward, `first` are the writers of a storage and `last` all of its users; backward it is the
# other way round, and the bytes live during a step are the same. So every algorithm on a Flow
# also runs from the end. `live` is submodular: the later a task runs, the less it adds.


@dataclass(frozen=True)
class Store:
    """A storage in one direction of time: born with any task of `first`, dead after all of `last`."""

    name: str
    size: int
    first: int
    last: int
    initial: bool  # live before all tasks
    kept: bool  # live after all tasks


@dataclass(frozen=True)
class Pair:
    """An in-place pair of a task: it saves bytes if all of `done` has run and none of `waiting` has."""

    read: str
    written: str
    saved: int
    done: int
    waiting: int


@dataclass(frozen=True)
class _Cost:
    """Bytes that a task adds if none of the given other tasks has run, and frees if all of them have."""

    born: list[tuple[int, int]] = field(default_factory=list)
    freed: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Flow:
    """A task graph: per task (index = position in the graph) its neighbours as bit sets and its in-place pairs."""

    preds: tuple[int, ...]
    succs: tuple[int, ...]
    stores: tuple[Store, ...]
    pairs: tuple[tuple[Pair, ...], ...]

    @cached_property
    def all(self) -> int:
        return (1 << len(self.preds)) - 1

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Per task all tasks that must run before it."""
        before = dict[int, int]()
        ascending = all(not p >> t for t, p in enumerate(self.preds))
        for task in sorted(range(len(self.preds)), reverse=not ascending):
            before[task] = self.preds[task]
            for pred in bits(self.preds[task]):
                before[task] |= before[pred]
        return tuple(before[t] for t in range(len(self.preds)))

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """Per task all tasks that must run after it."""
        return self.reversed().ancestors

    @cached_property
    def used(self) -> tuple[tuple[int, ...], ...]:
        """Per task the numbers of the storages that it uses."""
        numbers: list[list[int]] = [[] for _ in self.preds]
        for number, s in enumerate(self.stores):
            for task in bits(s.first | s.last):
                numbers[task].append(number)
        return tuple(map(tuple, numbers))

    @cached_property
    def _costs(self) -> dict[int, _Cost]:
        costs = defaultdict[int, _Cost](_Cost)
        for s in self.stores:
            for task in bits(0 if s.initial else s.first):
                costs[task].born.append((s.size, s.first & ~(1 << task)))
            for task in bits(0 if s.kept else s.last):
                costs[task].freed.append((s.size, s.last & ~(1 << task)))
        return costs

    @cached_property
    def spoils(self) -> tuple[int, ...]:
        """Per task the other tasks that can lose an in-place saving when this one runs before them."""
        spoilt = [0] * len(self.preds)
        for task, pairs in enumerate(self.pairs):
            for other in bits(reduce(or_, (p.waiting for p in pairs), 0)):
                spoilt[other] |= 1 << task
        return tuple(spoilt)

    def live(self, done: int) -> int:
        """Bytes live between two steps, when the tasks in `done` have run."""
        return sum(s.size for s in self.stores
                   if (s.initial or s.first & done) and (s.kept or s.last & ~done))  # fmt: skip

    def step(self, done: int, live: int, task: int) -> tuple[int, int]:
        """(bytes live while `task` runs after `done`, bytes live after it)."""
        cost = self._costs[task]
        during = live
        for size, others in cost.born:
            if not others & done:
                during += size
        after = during
        for size, others in cost.freed:
            if not others & ~done:
                after -= size
        if self.pairs[task]:
            during -= sum(p.saved for p in self.in_place(done, task))
        return during, after

    def least(self, task: int) -> int:
        """Lower bound on the bytes live while `task` runs, in any order."""
        before, after = self.ancestors[task] | 1 << task, self.descendants[task] | 1 << task
        pairs = tuple(p for p in self.pairs[task] if not p.done & after and not p.waiting & before)
        return self._held[task] - sum(p.saved for p in _matching(pairs))

    @cached_property
    def _held(self) -> list[int]:
        """Per task the bytes of all storages that every order has live while it runs."""
        held = [0] * len(self.preds)
        for s in self.stores:
            born = self.all if s.initial else reduce(or_, (1 << t | self.descendants[t] for t in bits(s.first)), 0)
            wanted = self.all if s.kept else reduce(or_, (1 << t | self.ancestors[t] for t in bits(s.last)), 0)
            for task in bits(born & wanted):
                held[task] += s.size
        return held

    def in_place(self, done: int, task: int) -> tuple[Pair, ...]:
        """The pairs that save most when `task` runs after `done`, each storage in one of them at most."""
        return _matching(tuple(p for p in self.pairs[task] if not p.done & ~done and not p.waiting & done))

    def ready_after(self, done: int, task: int) -> int:
        """The tasks that `task` makes ready, as the last of `done`."""
        ready = 0
        for follower in bits(self.succs[task]):
            if not self.preds[follower] & ~done:
                ready |= 1 << follower
        return ready

    def ready(self, done: int) -> int:
        """The tasks not in `done` all of whose predecessors are."""
        return sum(1 << t for t in bits(self.all & ~done) if not self.preds[t] & ~done)

    def reversed(self) -> Flow:
        """The graph with time running backward."""
        stores = tuple(Store(s.name, s.size, s.last, s.first, s.kept, s.initial) for s in self.stores)
        pairs = tuple(tuple(Pair(p.read, p.written, p.saved, p.waiting, p.done) for p in ps) for ps in self.pairs)
        return Flow(self.succs, self.preds, stores, pairs)


def bits(mask: int) -> Iterator[int]:
    """The members of a bit set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _matching(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    if len(pairs) < 2:
        return pairs
    head, rest = pairs[0], pairs[1:]
    free = tuple(p for p in rest if p.read != head.read and p.written != head.written)
    first, left = (head, *_matching(free)), _matching(rest)
    return first if sum(p.saved for p in first) >= sum(p.saved for p in left) else left


def flow_of(graph: TaskGraph) -> Flow:
    """The graph forward in time; see TaskGraph for its dependencies."""
    n = len(graph.tasks)
    writers, users = dict.fromkeys(graph.sizes, 0), dict.fromkeys(graph.sizes, 0)
    readers = dict.fromkeys(graph.sizes, 0)
    preds = [0] * n
    for t, task in enumerate(graph.tasks):
        for s in task.reads:
            preds[t] |= writers[s]
        for s in task.writes:
            preds[t] |= readers[s]
        for s in task.reads:
            readers[s] |= 1 << t
            users[s] |= 1 << t
        for s in task.writes:
            writers[s] |= 1 << t
            users[s] |= 1 << t
    kept = {s for s in graph.sizes if s in graph.outputs or not users[s]}
    stores = tuple(Store(s, size, writers[s], users[s], s in graph.inputs, s in kept)
                   for s, size in graph.sizes.items() if users[s] or s in graph.inputs)  # fmt: skip
    pairs = tuple(
        tuple(Pair(r, w, min(graph.sizes[r], graph.sizes[w]), users[r] & ~(1 << t), 0)
              for r, w in dict.fromkeys(task.in_place)
              if r != w and r not in kept and writers[w] == 1 << t and w not in graph.inputs)
        for t, task in enumerate(graph.tasks))  # fmt: skip
    succs = [0] * n
    for t, before in enumerate(preds):
        for pred in bits(before):
            succs[pred] |= 1 << t
    return Flow(tuple(preds), tuple(succs), stores, pairs)


def profile(flow: Flow, order: Sequence[int], done: int = 0) -> list[tuple[int, int]]:
    """(bytes live during, bytes live after) each step of `order`, which starts after the tasks in `done`."""
    steps, live = [], flow.live(done)
    for task in order:
        during, live = flow.step(done, live, task)
        steps.append((during, live))
        done |= 1 << task
    return steps


EFFORT = 50_000  # states of the exact search
BITS = 20_000_000  # of all states together: a state has a bit for each task, and its time grows with them
CUTS = 1 << 18  # readers of a storage times tasks of the graph: this product takes about two seconds
DEEPEST, WORK = 100, 100_000  # nested parallel compositions, of which unrolled recurrences have many; all their tasks


@dataclass(frozen=True)
class _Order:
    """An order of a part, its peak, and the method that made it; no order of the part peaks below `bound`."""

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
    parts = series(flow, indices)
    bound = max(map(flow.least, indices), default=0)
    starts, steps = [(1 << part[0]) - 1 for part in parts], profile(flow, indices)
    given = [_Order(part, max(steps[t][0] for t in part), 0, "given order") for part in parts]
    effort = min(effort, BITS // max(1, len(indices)))
    best = list(given)
    # The part with the highest peak comes first: no other part needs to go below its bound.
    for i in sorted(range(len(parts)), key=lambda i: -given[i].peak):
        if given[i].peak > bound:
            best[i] = _improve(flow, starts[i], given[i], bound, effort)
            bound, effort = max(bound, best[i].bound), effort - best[i].used
    peak = max((part.peak for part in best), default=0)
    chosen = [old if old.peak <= peak else new for old, new in zip(given, best, strict=True)]
    methods = dict.fromkeys(part.method for part in chosen if part.method != "given order")
    return _result(flow, [t for part in chosen for t in part.order], bound, " and ".join(methods) or "given order")


def as_given(graph: TaskGraph) -> Schedule:
    """The order in which the tasks are given."""
    flow, indices = flow_of(graph), range(len(graph.tasks))
    return _result(flow, list(indices), max(map(flow.least, indices), default=0), "given order")


def _improve(flow: Flow, start: int, given: _Order, bound: int, budget: int) -> _Order:
    """The best order of a part that starts after the tasks in `start`, whose peak need not go below `bound`."""
    valleys = merged(flow, given.order)
    best, peak = given, _peak(flow, start, valleys.tasks)
    if peak < best.peak:
        best = _Order(valleys.tasks, peak, bound, "hill-valley merging")
    if valleys.best:
        return _Order(best.order, best.peak, max(bound, best.peak), best.method)
    backward, tasks = flow.reversed(), sum(1 << t for t in given.order)
    bound = min(max(cut_bound(flow, tasks, bound), cut_bound(backward, tasks, bound)), best.peak)
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
            best = _Order(answer.order, _peak(flow, start, answer.order), bound, "exact search")
        limit = min((max(bound, untried) + best.peak) // 2, best.peak - 1)
    return _Order(best.order, best.peak, bound, best.method, budget - left)


def _peak(flow: Flow, start: int, order: Sequence[int]) -> int:
    return max(during for during, _ in profile(flow, order, start))


def _result(flow: Flow, order: list[int], bound: int, method: str) -> Schedule:
    steps, done, pairs = tuple(during for during, _ in profile(flow, order)), 0, list[tuple[str, str]]()
    for task in order:
        pairs += [(pair.read, pair.written) for pair in flow.in_place(done, task)]
        done |= 1 << task
    peak = max(steps, default=0)
    return Schedule(tuple(order), steps, peak, min(bound, peak), bound >= peak, method, tuple(pairs))


# ---- Hill-valley merging: good orders of any graph, and best ones of series-parallel graphs, in polynomial time
#
# The graph is decomposed into series and parallel compositions of smaller ones. In series, the orders are
# concatenated. In parallel, each part is a fixed chain that rises to hills and falls to valleys, and the chains are
# merged. From the start to the lowest valley of each, the segments run whose hill is lowest above their beginning. The
# rest is the same backward from the end (Liu 1987 for trees; Kayaaslan et al. 2018, "Scheduling series-parallel task
# graphs to minimize peak memory", who prove that the result is best for series-parallel graphs).
#
# Their model gives every edge its own memory. Here parallel parts may share a storage: all branches of a fork read one
# tensor, and the slices of a concatenation go to one. Its bytes then depend on how far the other parts have come. Such
# a storage is left out while its parts are merged. Each part is also tried as the last to read, with all others taken
# to their lowest valley before. The result is good, but not claimed to be best. A part that is neither a series nor a
# parallel composition keeps the order of the task graph.


@dataclass(frozen=True)
class PartOrder:
    """An order of a part of the graph; `best` if it is proven that no other has a lower peak."""

    tasks: tuple[int, ...]
    best: bool


class _Step(NamedTuple):
    task: int
    before: int  # bytes live before the step, while it runs, and after it
    during: int
    after: int


def series(flow: Flow, tasks: Sequence[int]) -> list[tuple[int, ...]]:
    """Split `tasks` (ascending) into the most parts such that every task of a part precedes all of the next."""
    members = sum(1 << t for t in tasks)
    parts, part, common = list[tuple[int, ...]](), list[int](), members
    for t in reversed(tasks):
        part.append(t)
        common &= flow.ancestors[t]
        before = members & ((1 << t) - 1)
        if common & before == before:
            parts.append(tuple(reversed(part)))
            part, common = [], members
    return parts[::-1]


def merged(flow: Flow, tasks: Sequence[int], deep: int | None = None) -> PartOrder:
    """An order of `tasks` by hill-valley merging. They are ascending, with all tasks that must run between any two.

    Parallel compositions are split down to `deep` levels; None: as deep as WORK allows.
    """
    deep = min(DEEPEST, WORK // max(1, len(tasks))) if deep is None else deep
    if len(tasks) == 1:
        return PartOrder(tuple(tasks), True)
    if len(parts := series(flow, tasks)) > 1:
        orders = [merged(flow, part, deep) for part in parts]
        return PartOrder(tuple(t for o in orders for t in o.tasks), all(o.best for o in orders))
    if len(parts := _components(flow, tasks)) == 1 or not deep:
        return PartOrder(tuple(tasks), False)
    orders = [merged(flow, part, deep - 1) for part in parts]
    uses = Counter(number for part in parts for number in {n for t in part for n in flow.used[t]})
    shared = [flow.stores[number] for number, count in uses.items() if count > 1]
    chains = [_chain(flow, o.tasks, {n for t in o.tasks for n in flow.used[t] if uses[n] == 1}) for o in orders]
    candidates = [_merge(chains)]
    if readers := reduce(or_, (s.last for s in shared if not s.kept), 0):
        candidates += [_merge_with_last(chains, which, readers) for which in range(len(chains))[: WORK // len(tasks)]]
    done = _done_before(flow, tasks)
    tried = [max(during for during, _ in profile(flow, candidate, done)) for candidate in candidates]
    return PartOrder(candidates[tried.index(min(tried))], not shared and all(o.best for o in orders))


def _components(flow: Flow, tasks: Sequence[int]) -> list[tuple[int, ...]]:
    """`tasks` in parts with no dependency between them, each ascending."""
    left, parts = sum(1 << t for t in tasks), list[tuple[int, ...]]()
    while left:
        part, new = 0, left & -left
        while new:
            part |= new
            new = reduce(or_, (flow.preds[t] | flow.succs[t] for t in bits(new))) & left & ~part
        parts.append(tuple(bits(part)))
        left &= ~part
    return parts


def _chain(flow: Flow, tasks: Sequence[int], alone: set[int]) -> list[_Step]:
    """The steps of a part, with the bytes of storages that it uses `alone`; shared ones are left out."""
    done = _done_before(flow, tasks)
    part = Flow(flow.preds, flow.succs, tuple(flow.stores[number] for number in sorted(alone)), flow.pairs)
    before, steps = part.live(done), list[_Step]()
    for task, (during, after) in zip(tasks, profile(part, tasks, done), strict=True):
        steps.append(_Step(task, before, during, after))
        before = after
    return steps


def _done_before(flow: Flow, tasks: Sequence[int]) -> int:
    return reduce(or_, (flow.ancestors[t] for t in tasks)) & ~sum(1 << t for t in tasks)


def _merge_with_last(chains: Sequence[list[_Step]], last: int, readers: int) -> tuple[int, ...]:
    """The chains merged in two phases: before chain `last` reads as the last of `readers`, and from there on."""
    early, late = list[list[_Step]](), list[list[_Step]]()
    for which, chain in enumerate(chains):
        reads = max((i for i, step in enumerate(chain) if readers >> step.task & 1), default=-1)
        if which == last:
            end = max(reads, 0)
        else:
            end = min(range(reads + 1, len(chain) + 1), key=lambda i: chain[i - 1].after if i else chain[0].before)
        early.append(chain[:end])
        late.append(chain[end:])
    return (*_merge(early), *_merge(late))


def _merge(chains: Sequence[list[_Step]]) -> tuple[int, ...]:
    """The tasks of chains that share no memory, in an order of least peak."""
    falling, rising = list[list[_Step]](), list[list[_Step]]()
    for chain in filter(None, chains):
        levels = [chain[0].before, *(step.after for step in chain)]
        lowest = levels.index(min(levels))
        falling.append(chain[:lowest])
        rising.append([_Step(s.task, s.after, s.during, s.before) for s in reversed(chain[lowest:])])
    return (*_descend(falling), *reversed(_descend(rising)))


def _descend(chains: Sequence[list[_Step]]) -> list[int]:
    """Merge chains that end at their lowest level: next comes the segment with the lowest hill above its start."""
    queues = [_segments(chain) for chain in chains]
    heap = [(queue[0][0], which, 0) for which, queue in enumerate(queues) if queue]
    heapify(heap)
    tasks = list[int]()
    while heap:
        _, which, index = heappop(heap)
        tasks += queues[which][index][1]
        if index + 1 < len(queues[which]):
            heappush(heap, (queues[which][index + 1][0], which, index + 1))
    return tasks


def _segments(chain: Sequence[_Step]) -> list[tuple[int, list[int]]]:
    """(height of the hill above the start, tasks) of each segment: it ends as soon as it is as low as it began."""
    segments, start = list[tuple[int, list[int]]](), 0
    for end, step in enumerate(chain, 1):
        if step.after <= chain[start].before:
            hill = max(s.during for s in chain[start:end]) - chain[start].before
            segments.append((hill, [s.task for s in chain[start:end]]))
            start = end
    return segments


# ---- Is there an order whose peak stays within a limit? Exact search over downsets
#
# Two things keep the number of sets small, both without loss:
#
# *Commitment.* Let X be tasks that can run next within the limit, such that live(M + X) <= live(M) and no part of X
# that is closed under predecessors ends lower than X. Then some order that continues with X stays within the limit if
# any order does: take a good order from M on and move X to its front. Where a part P of it has run, with Y the members
# of X in P, submodularity gives
#
#     live(M + X + P) - live(M + P) <= live(M + X) - live(M + Y) <= 0,
#
# and the same with the bytes that the next task adds. Only an in-place saving can be lost by running a task earlier
# (`Flow.spoils`), so such sets are not committed to. This is the hill-valley argument of Liu (1987) on sets instead of
# chains.
#
# *Both ends.* The argument holds backward in time too. Tasks committed to from the end leave the search, and the search
# runs from both ends in turns: whichever finishes first answers.


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
            runs = list[tuple[int, ...]]()
            while goal != start:
                goal, run = came_from[goal]
                runs.append(run)
            return OrderAnswer(tuple(task for run in reversed(runs) for task in run))
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


# ---- Lower bounds of the peak by minimum cuts
#
# The live bytes of a step are the value of a cut through the graph, with executed tasks on one side. So the
# least that can be live while a task runs is a minimum cut.
#
# A storage that several tasks read is freed by one of them, and when that one runs, all others have run and have left
# results behind. So the peak is at least the smallest over the readers j of the least that is live during j when j is
# the last. This is what makes a fork with a shared tensor costly, and no bound that looks at one task at a time sees
# it. Backward in time the same holds of the storages that several tasks write.


def cut_bound(flow: Flow, tasks: int, floor: int) -> int:
    """A lower bound of the peak from the storages that several of `tasks` free; at least `floor`.

    A storage with a great many readers in a large graph is left out: each reader takes a cut through the graph.
    """
    for store in flow.stores:
        lasts = [t for t in bits(store.last & tasks) if not flow.descendants[t] & store.last]
        if len(lasts) < 2 or store.kept or store.last & ~tasks & ~flow.ancestors[lasts[0]]:
            continue
        if len(lasts) * len(flow.preds) > CUTS:
            continue
        least = list[int]()
        for task in lasts:
            least.append(least_during(flow, task, store.last))
            if least[-1] <= floor:
                break
        floor = max(floor, min(least))
    return floor


def least_during(flow: Flow, task: int, done: int) -> int:
    """The least bytes live while `task` runs, over all orders in which the tasks `done` run before it."""
    from ortools.graph.python.max_flow import SimpleMaxFlow  # late: few graphs need it

    bit = 1 << task
    for t in bits(done | bit):
        done |= flow.ancestors[t]
    done &= ~bit
    waiting = flow.descendants[task] | bit
    held, network, infinite = 0, SimpleMaxFlow(), sum(s.size for s in flow.stores) + 1
    source, sink, undecided = 0, 1, flow.all & ~done & ~waiting  # nodes: these, tasks, then two for each storage
    for t in bits(undecided):
        for p in bits(flow.preds[t] & undecided):
            network.add_arc_with_capacity(2 + t, 2 + p, infinite)
    for number, s in enumerate(flow.stores):
        born, stays = s.initial or bool(s.first & (done | bit)), s.kept or bool(s.last & waiting)
        begins, ends = s.first & undecided, s.last & undecided
        if born and stays:
            held += s.size
        elif (born or begins) and (stays or ends):
            node = 2 + len(flow.preds) + 2 * number
            tail, head = source if born else node, sink if stays else node + 1
            network.add_arc_with_capacity(tail, head, s.size)
            for t in bits(0 if born else begins):
                network.add_arc_with_capacity(2 + t, tail, infinite)
            for t in bits(0 if stays else ends):
                network.add_arc_with_capacity(head, 2 + t, infinite)
    saved = sum(p.saved for p in flow.pairs[task] if not p.done & waiting & ~bit and not p.waiting & done)
    network.solve(source, sink)
    return held + network.optimal_flow() - saved
