"""A run of ops by several rows at once: cores make neighbouring rows of a tensor at the same time.

Rows are made when the first of them is wanted, always the next `together`; the last time those that are left. So rows
r with equal r // together are made by one call of all cores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir import Op
from ..rolling import RollingGraph, rows_of, simulate


@dataclass(frozen=True)
class Batches:
    """`order`: numbers of ops, and behind them of fed storages, one for each call. `counts`: rows that each makes.

    `rings`, `kept`, `results`: as of a `Trace`.
    """

    run: tuple[Op, ...]
    order: tuple[int, ...]
    counts: tuple[int, ...]
    rings: dict[str, int]
    kept: dict[str, int]
    results: tuple[str, ...]

    def calls(self, number: int) -> int:
        return self.order.count(number)

    def of(self, every: Sequence[str], fed: Sequence[str]) -> Batches:
        """The same with some of the storages that were fed (`every`) there whole: nothing else changes by that."""
        ops, new = len(self.run), {name: len(self.run) + i for i, name in enumerate(fed)}
        number = {**{i: i for i in range(ops)}, **{ops + i: new[n] for i, n in enumerate(every) if n in new}}
        order = tuple(number[n] for n in self.order if n in number)
        taken = dict(zip(every, self.counts[ops:], strict=True))
        counts = (*self.counts[:ops], *(taken[n] for n in fed))
        rings = {n: rows for n, rows in self.rings.items() if n not in taken} | {n: self.rings[n] for n in fed}
        return replace(self, order=order, counts=counts, rings=rings)


def row_by_row(rolling: RollingGraph, run: Sequence[Op], fed: tuple[str, ...]) -> Batches:
    """The run by one row at a time."""
    trace = simulate(rolling, run, fed)
    order = tuple(event.op for event in trace.events)
    counted = Counter(order)
    counts = tuple(counted[i] for i in range(len(run) + len(fed)))
    return Batches(trace.run, order, counts, dict(trace.rings), dict(trace.kept), trace.results)


def batched(rolling: RollingGraph, single: Batches, fed: tuple[str, ...], together: int) -> Batches:
    """Execute a run by `together` rows at once, on demand of its results; reductions take up row after row.

    `single`: the run row by row.
    """
    if together == 1:
        return single
    run, counts = single.run, single.counts
    index = {op.outputs[0]: i for i, op in enumerate(run)} | {n: len(run) + i for i, n in enumerate(fed)}
    made, rings, kept = [0] * len(index), dict.fromkeys(single.rings, 0), dict.fromkeys(single.kept, 1)
    found: list[int] = []

    def more(number: int, together: int) -> None:
        made[number] = min(made[number] + together, counts[number])
        found.append(number)

    def pull(name: str, rows: int) -> None:
        number = index[name]
        while made[number] < rows:
            if number >= len(run):
                more(number, together)
                continue
            reduces = rolling.modes[name] == "reduce"
            first = made[number]
            past = first + 1 if reduces else min(first + together, counts[number])
            reads = []
            for _, root, ranges in rolling.needs[name]:
                low, high = ranges[first][0] if not reduces else first, ranges[past - 1][1] if not reduces else past
                if reduces and root not in rings:
                    low, high = 0, rows_of(rolling.graph, root)
                if root in index:
                    pull(root, high)
                reads.append((root, low))
            for root, low in reads:
                if root in index:
                    wanted = rings if root in rings else kept
                    wanted[root] = max(wanted[root], made[index[root]] - low)
            more(number, past - first)

    for name in sorted(single.results, key=lambda name: -index[name]):
        pull(name, counts[index[name]])
    return Batches(run, tuple(found), counts, rings, kept, single.results)
