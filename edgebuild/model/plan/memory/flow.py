"""A task graph as bit sets, in either direction of time.

Executed tasks form a set that is closed under predecessors, a *downset*. What is live between
two steps depends on that set alone:

    live(M) = sum of size(s) over all s with  (first(s) meets M)  and not  (last(s) inside M)

Forward, `first` are the writers of a storage and `last` all of its users; backward it is the
other way round, and the bytes live during a step are the same. So every algorithm on a Flow
also runs from the end. `live` is submodular: the later a task runs, the less it adds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property, reduce
from operator import or_

from edgebuild.model.plan.memory.problem import TaskGraph

from ....base.dataclass import dataclass


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
    """Bytes that a task adds and frees: (bytes, the other tasks that must not have run, or must have run)."""

    born: list[tuple[int, int]] = field(default_factory=list)
    freed: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Flow:
    """Per task (index = position in the task graph): its neighbours as bit sets, and what it holds."""

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
        for task in _topological(self.preds):
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
        """Bytes live while `task` runs that no order avoids."""
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
        """The same graph with time running backward."""
        stores = tuple(Store(s.name, s.size, s.last, s.first, s.kept, s.initial) for s in self.stores)
        pairs = tuple(tuple(Pair(p.read, p.written, p.saved, p.waiting, p.done) for p in ps) for ps in self.pairs)
        return Flow(self.succs, self.preds, stores, pairs)


def bits(mask: int) -> Iterator[int]:
    """The members of a bit set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _topological(preds: Sequence[int]) -> Iterator[int]:
    """The indices in an order that respects `preds`, which runs either up or down."""
    ascending = all(not p >> t for t, p in enumerate(preds))
    yield from range(len(preds)) if ascending else reversed(range(len(preds)))


def _matching(pairs: tuple[Pair, ...]) -> tuple[Pair, ...]:
    if len(pairs) < 2:
        return pairs
    head, rest = pairs[0], pairs[1:]
    free = tuple(p for p in rest if p.read != head.read and p.written != head.written)
    first, left = (head, *_matching(free)), _matching(rest)
    return first if sum(p.saved for p in first) >= sum(p.saved for p in left) else left


def flow_of(graph: TaskGraph) -> Flow:
    """The graph forward in time; see TaskGraph for what depends on what."""
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
