"""Good orders of any graph, and best ones of series-parallel graphs, in polynomial time.

The graph is taken apart into series and parallel compositions of smaller ones. In series, the
orders are concatenated. In parallel, each part is a fixed chain that rises to hills and falls to valleys, and the
chains are merged. From the start to the lowest valley of each, the segments run whose hill is lowest above their
beginning. The rest is the same backward from the end (Liu 1987 for trees; Kayaaslan et al. 2018, "Scheduling
series-parallel task graphs to minimize peak memory", who prove that the result is best for series-parallel graphs).

Their model gives every edge its own memory. Here parallel parts may share a storage: all branches of a fork read one
tensor, and the slices of a concatenation go to one. Its bytes then depend on how far the other parts have come. Such a
storage is left out while its parts are merged. Each part is also tried as the last to read, with all others taken to
their lowest valley before. The result is good, but not claimed to be best. A part that is neither a series nor a
parallel composition keeps the order of the task graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from heapq import heapify, heappop, heappush
from operator import or_
from typing import NamedTuple

from edgebuild.model.plan.memory.flow import Flow, bits, profile

DEEPEST, WORK = 100, 100_000  # parallel compositions in each other, which unrolled recurrences have; all their tasks


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


def cuts(flow: Flow, tasks: Sequence[int]) -> list[tuple[int, ...]]:
    """`tasks` (ascending) in as many parts as there are such that every task of one precedes all of the next."""
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


def order(flow: Flow, tasks: Sequence[int], deep: int | None = None) -> PartOrder:
    """An order of `tasks` (ascending), which have with any two all that must run between them.

    Parallel compositions are taken apart until they are `deep` in each other; not given: as WORK allows.
    """
    deep = min(DEEPEST, WORK // max(1, len(tasks))) if deep is None else deep
    if len(tasks) == 1:
        return PartOrder(tuple(tasks), True)
    if len(parts := cuts(flow, tasks)) > 1:
        orders = [order(flow, part, deep) for part in parts]
        return PartOrder(tuple(t for o in orders for t in o.tasks), all(o.best for o in orders))
    if len(parts := _components(flow, tasks)) == 1 or not deep:
        return PartOrder(tuple(tasks), False)
    orders = [order(flow, part, deep - 1) for part in parts]
    uses = Counter(number for part in parts for number in {n for t in part for n in flow.used[t]})
    shared = [flow.stores[number] for number, count in uses.items() if count > 1]
    chains = [_chain(flow, o.tasks, {n for t in o.tasks for n in flow.used[t] if uses[n] == 1}) for o in orders]
    candidates = [_merge(chains)]
    if readers := reduce(or_, (s.last for s in shared if not s.kept), 0):
        candidates += [_merge_with_last(chains, which, readers) for which in range(len(chains))]
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
    """The steps of a part as if there were none but those storages; others of it would be live throughout."""
    done = _done_before(flow, tasks)
    mine = Flow(flow.preds, flow.succs, tuple(flow.stores[number] for number in sorted(alone)), flow.pairs)
    before, steps = mine.live(done), list[_Step]()
    for task, (during, after) in zip(tasks, profile(mine, tasks, done), strict=True):
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
    merged = list[int]()
    while heap:
        _, which, index = heappop(heap)
        merged += queues[which][index][1]
        if index + 1 < len(queues[which]):
            heappush(heap, (queues[which][index + 1][0], which, index + 1))
    return merged


def _segments(chain: Sequence[_Step]) -> list[tuple[int, list[int]]]:
    """(height of the hill above the start, tasks) of each segment: it ends as soon as it is as low as it began."""
    segments, start = list[tuple[int, list[int]]](), 0
    for end, step in enumerate(chain, 1):
        if step.after <= chain[start].before:
            hill = max(s.during for s in chain[start:end]) - chain[start].before
            segments.append((hill, [s.task for s in chain[start:end]]))
            start = end
    return segments
