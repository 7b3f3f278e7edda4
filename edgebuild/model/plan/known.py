"""Sections that are known while longer runs are looked for, and what a longer run has to better."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from .ways import Interval

NEVER = 2**62


class Known:
    """Sections found so far: all ops whole, and rolled runs in the order of their ends."""

    def __init__(self, wholes: Iterable[Interval]) -> None:
        self.starting: dict[int, list[Interval]] = defaultdict(list)
        self._ending: dict[int, list[Interval]] = defaultdict(list)
        self._reached = [0]
        for i in wholes:
            self.add(i)

    def add(self, i: Interval) -> None:
        self.starting[i.start].append(i)
        self._ending[i.stop].append(i)

    def reached(self, at: int) -> int:
        """The least of the largest live bytes of any cut of the ops before a position whose sections are known."""
        for stop in range(len(self._reached), at + 1):
            ways = (max(i.live, self._reached[i.start]) for i in self._ending[stop])
            self._reached.append(min(ways, default=NEVER))
        return self._reached[at]


class Shorter:
    """Known sections in a row that end at one position."""

    def __init__(self, known: Known, stop: int) -> None:
        self.known, self.stop = known, stop
        self._costs: dict[int, list[float]] = {}  # by bytes, for positions before the end

    def cost(self, start: int, bound: int) -> float:
        """The least cost of those that begin here, each of which takes at most so many bytes."""
        costs = self._costs.setdefault(bound, [0.0])
        while len(costs) < self.stop - start:
            costs.append(self._cost(self.stop - len(costs), bound, costs))
        return self._cost(start, bound, costs)  # not kept: a run may be found that begins here

    def _cost(self, start: int, bound: int, costs: list[float]) -> float:
        fit = (i for i in self.known.starting[start] if i.stop <= self.stop and i.live <= bound)
        return min((i.cost(bound) + costs[self.stop - i.stop] for i in fit), default=inf)
