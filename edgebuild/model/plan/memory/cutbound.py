"""Lower bounds of the peak by minimum cuts.

The live bytes of a step are the value of a cut through the graph (`flow.py`), with what is done on one side. So the
least that can be live while a task runs is a minimum cut.

A storage that several tasks read is freed by one of them, and when that one runs, all others
have run and have left results behind. So the peak is at least the smallest over the readers j
of the least that is live during j when j is the last. This is what makes a fork with a shared
tensor costly, and no bound that looks at one task at a time sees it. Backward in time the same
holds of the storages that several tasks write.
"""

from __future__ import annotations

from collections import defaultdict, deque

from edgebuild.model.plan.memory.flow import Flow, bits

_SOURCE, _SINK = -1, -2  # nodes >= 0: tasks, then two nodes per storage
WORK = 5_000_000  # tasks that all searches of augmenting paths may visit: a second or two
_Capacities = dict[int, dict[int, int]]


def bound(flow: Flow, tasks: int, floor: int) -> int:
    """A lower bound of the peak from the storages that several of `tasks` free; at least `floor`."""
    paths = WORK // max(1, len(flow.preds))
    for store in flow.stores:
        lasts = [t for t in bits(store.last & tasks) if not flow.descendants[t] & store.last]
        if len(lasts) < 2 or store.kept or store.last & ~tasks & ~flow.ancestors[lasts[0]]:
            continue
        least = list[int]()
        for task in lasts:
            live, used = least_during(flow, task, store.last, paths)
            least, paths = [*least, live], paths - used
            if live <= floor:
                break
        floor = max(floor, min(least))
    return floor


def least_during(flow: Flow, task: int, done: int, paths: int) -> tuple[int, int]:
    """The least bytes live while `task` runs, over all orders in which the tasks `done` run before it.

    A lower bound of that if it takes more than so many augmenting `paths`. Also returned: how many it took.
    """
    bit = 1 << task
    for t in bits(done | bit):
        done |= flow.ancestors[t]
    done &= ~bit
    waiting = flow.descendants[task] | bit
    held, capacity, infinite = 0, defaultdict[int, dict[int, int]](dict), sum(s.size for s in flow.stores) + 1
    undecided = flow.all & ~done & ~waiting
    for t in bits(undecided):
        for p in bits(flow.preds[t] & undecided):
            capacity[t][p] = infinite
    for number, s in enumerate(flow.stores):
        born, stays = s.initial or bool(s.first & (done | bit)), s.kept or bool(s.last & waiting)
        begins, ends = s.first & undecided, s.last & undecided
        if born and stays:
            held += s.size
        elif (born or begins) and (stays or ends):
            node = len(flow.preds) + 2 * number
            tail, head = _SOURCE if born else node, _SINK if stays else node + 1
            capacity[tail][head] = s.size
            for t in bits(0 if born else begins):
                capacity[t][tail] = infinite
            for t in bits(0 if stays else ends):
                capacity[head][t] = infinite
    saved = sum(p.saved for p in flow.pairs[task] if not p.done & waiting & ~bit and not p.waiting & done)
    value, used = _flow(capacity, paths)
    return held + value - saved, used


def _flow(capacity: _Capacities, most: int) -> tuple[int, int]:
    """A flow by at most so many shortest augmenting paths (Edmonds and Karp 1972), a largest one if these are enough.

    No cut is smaller. Also returned: the paths used. `capacity` becomes the residual graph.
    """
    total, used = 0, 0
    while used < most and (path := _shortest_path(capacity)):
        used += 1
        amount = min(capacity[a][b] for a, b in path)
        total += amount
        for a, b in path:
            capacity[a][b] -= amount
            back = capacity.setdefault(b, {})
            back[a] = back.get(a, 0) + amount
    return total, used


def _shortest_path(capacity: _Capacities) -> list[tuple[int, int]]:
    came_from, queue = {_SOURCE: _SOURCE}, deque([_SOURCE])
    while queue and _SINK not in came_from:
        node = queue.popleft()
        for neighbour, left in capacity.get(node, {}).items():
            if left and neighbour not in came_from:
                came_from[neighbour] = node
                queue.append(neighbour)
    path, node = list[tuple[int, int]](), _SINK
    while node in came_from and node != _SOURCE:
        path.append((came_from[node], node))
        node = came_from[node]
    return path
