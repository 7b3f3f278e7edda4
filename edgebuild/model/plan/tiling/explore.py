"""The exploration: which paths to cut, and into how many parts (Stahl 2024, figure 4.1).

The search takes critical buffers of the layout, the largest first, and estimates paths around them. The set of
disjoint paths of least memory is chosen among all estimates at once. The choice is exact: a shortest path over the
schedule. Only chosen sets are scheduled and laid out. This is repeated on the tiled graph until nothing improves.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ....base import progress
from ...ir import Graph, Op
from .paths import Estimate, Tiling, counts, overlap, part_ranges, paths, result_bytes, tiled

UNLIMITED = 1 << 40
TRIES = 6  # choices that are scheduled and laid out in a round, best estimate first
ABOVE = 16  # estimates up to 1/ABOVE above the arena are tried: some layouts take that much less


@dataclass(frozen=True)
class Rectangle:
    """Bytes [offset, past) taken by a buffer during the steps `first` to `last`, both inclusive."""

    name: str
    offset: int
    past: int
    first: int
    last: int


def critical(pieces: Sequence[Rectangle]) -> tuple[str, ...]:
    """Buffers of all chains that reach from the top to zero, each standing on the next; the largest first.

    Two buffers touch if one ends where the other begins while both are live (Stahl 2024, section 4.3.3). If no
    chain reaches zero, because of gaps, all buffers that are live together with a highest one count.
    """
    height = max((p.past for p in pieces), default=0)
    reached: dict[Rectangle, bool] = {}
    ends: dict[int, list[Rectangle]] = {}
    for piece in pieces:
        ends.setdefault(piece.past, []).append(piece)

    def rests(piece: Rectangle) -> bool:
        """Whether a chain from here reaches zero; marks all pieces on the way."""
        if piece not in reached:
            reached[piece] = False
            below = [rests(p) for p in ends.get(piece.offset, ()) if _meet(p, piece)]
            reached[piece] = piece.offset == 0 or any(below)
        return reached[piece]

    tops = [p for p in pieces if p.past == height]
    complete = [rests(p) for p in tops]
    if not any(complete):
        reached = {p: True for p in pieces if any(_meet(p, top) for top in tops)}
    sizes = {p.name: p.past - p.offset for p, rests_on in reached.items() if rests_on}
    return tuple(sorted(sizes, key=lambda name: (-sizes[name], name)))


def _meet(a: Rectangle, b: Rectangle) -> bool:
    return a.first <= b.last and b.first <= a.last


@dataclass(frozen=True)
class Evaluated:
    """A graph, scheduled and laid out. `order`: the ops that run; `life`: positions in it of first write and last read
    of every storage (-1: an input; the number of ops: an output); `live`: bytes live at every position; `alive`: of
    those the bytes of results that were made before."""

    graph: Graph
    arena: int
    order: tuple[Op, ...]
    life: Mapping[str, tuple[int, int]]
    sizes: Mapping[str, int]
    live: tuple[int, ...]
    alive: Sequence[int]
    pieces: tuple[Rectangle, ...]

    @cached_property
    def position(self) -> dict[str, int]:
        """Position in the order at which each result is made."""
        return {op.outputs[0]: i for i, op in enumerate(self.order)}


Evaluate = Callable[[Graph], Evaluated]


@dataclass(frozen=True)
class Limits:
    """Limits of a search, which ends at an arena of `ram` bytes or at `deadline` (monotonic seconds).

    At most `extra_macs` are done again. `code`: bytes of flash that calls and kernels of parts may take, unless `ram`
    needs more.
    """

    extra_macs: int
    code: int
    ram: int | None = None
    below: int | None = None  # only an arena of fewer bytes is of use
    deadline: float | None = None
    work: int = UNLIMITED  # ops of all paths together that may be examined

    @property
    def over(self) -> bool:
        return progress.stopped() or (self.deadline is not None and time.monotonic() > self.deadline)


@dataclass(frozen=True)
class TilingChoice:
    """An op that runs whole, or a tiling: the positions [start, stop) of the order, and its memory and work."""

    start: int
    stop: int
    bytes: int
    extra_macs: int = 0
    tiling: Tiling | None = None
    code: int = 0  # bytes of flash, estimated
    saved: int = 0  # bytes by which the tensors between the ops become smaller

    @property
    def weight(self) -> tuple[int, int, int]:
        """Order of choices once the bytes fit: work done twice, code, ops that are cut."""
        return max(0, self.extra_macs), self.code, self.stop - self.start if self.tiling else 0


@dataclass(frozen=True)
class TilingOutcome:
    """The best graph, the tilings that made it, and the numbers of tilings estimated and graphs evaluated."""

    graph: Graph
    tilings: tuple[TilingChoice, ...]
    estimated: int
    evaluated: int
    seconds: float

    @property
    def extra_macs(self) -> int:
        """Multiply-accumulates done again; negative if parts leave out elements that are never read."""
        return sum(c.extra_macs for c in self.tilings)


@dataclass
class _Search:
    """One exploration. `best` is valid at any time, so it may be interrupted."""

    evaluate: Evaluate
    methods: frozenset[str]
    limits: Limits
    best: Evaluated
    tilings: tuple[TilingChoice, ...] = ()
    estimated: int = 0
    evaluated: int = 0
    work: int = 0  # ops of the paths examined
    parts: set[str] = field(default_factory=set)  # results of parts, which are not cut again
    looked_at: set[tuple[object, ...]] = field(default_factory=set)  # tilings examined in this round

    def run(self) -> None:
        while self.best.order and not self.enough and not self.limits.over and self.improve():
            pass

    @property
    def spent(self) -> int:
        """Multiply-accumulates done again until now."""
        return sum(c.extra_macs for c in self.tilings)

    @property
    def enough(self) -> bool:
        return self.limits.ram is not None and self.best.arena <= self.limits.ram

    def improve(self) -> bool:
        """One round: the best set of tilings of the present graph. False if none makes the arena smaller."""
        base, before, graph = self.best, self.tilings, self.best.graph
        self.looked_at = set()
        left = replace(
            self.limits,
            extra_macs=self.limits.extra_macs - self.spent,
            code=self.limits.code - sum(c.code for c in self.tilings),
        )
        choices = [TilingChoice(i, i + 1, live) for i, live in enumerate(base.live)]
        roof = base.arena if self.limits.below is None else min(base.arena, self.limits.below)
        looked_at: set[str] = set()
        if roof < base.arena and not self.reachable(base, graph, roof, left, choices, looked_at):
            return False
        wanted = [name for name in critical(base.pieces) if name in base.life and name not in looked_at]
        while wanted and not self.limits.over:
            looked_at.update(wanted)
            for name in wanted:
                choices += self.around(base, graph, name, roof, left)
            level, plan = least(choices, len(base.order), left)
            top = [c for c in plan if c.bytes == level and c.tiling is None]  # ops at the peak are to be tiled next
            wanted = [n for n in _live_at(base, top) if n not in looked_at]
        kept: tuple[TilingChoice, ...] | None = None
        for chosen in itertools.islice(self.plans(choices, len(base.order), roof, left), TRIES):
            estimate = max(c.bytes for c in chosen)
            if self.limits.over or self.enough or (kept and estimate > self.best.arena + self.best.arena // ABOVE):
                break
            as_good = kept is not None and weight(chosen) < weight(kept)
            if self.try_out(base, before, chosen, self.best.arena if as_good else self.best.arena - 1):
                kept = chosen
        return kept is not None

    def reachable(
        self, base: Evaluated, graph: Graph, roof: int, left: Limits, choices: list[TilingChoice], looked_at: set[str]
    ) -> bool:
        """Whether every step of `roof` bytes or more has tilings that take less; adds these to `choices`.

        The highest step comes first: mostly it shows that there is no such plan.
        """
        high = [c for c in choices if c.tiling is None and c.bytes >= roof]
        for step in sorted(high, key=lambda c: -c.bytes):
            for name in _live_at(base, [step]):
                if name not in looked_at:
                    looked_at.add(name)
                    choices += self.around(base, graph, name, roof, left)
            if not any(c.tiling is not None and c.start <= step.start < c.stop for c in choices):
                return False
        return True

    def plans(
        self, choices: Sequence[TilingChoice], count: int, roof: int, left: Limits
    ) -> Iterator[tuple[TilingChoice, ...]]:
        """Plans to try, the best estimate first: those within `ram` if it is given, then those of least memory."""
        if left.ram is not None:
            freely = replace(left, code=UNLIMITED)
            for limits in (left, freely):
                level, plan = least(choices, count, limits)
                if level <= left.ram or limits is freely:
                    yield within(choices, count, max(level, left.ram)) or plan
        first, _ = least(choices, count, left)
        for level in sorted({c.bytes for c in choices if first <= c.bytes < roof}):
            option = within(choices, count, level)
            if option is not None and affordable(option, left):
                yield option

    def around(self, base: Evaluated, graph: Graph, name: str, roof: int, left: Limits) -> list[TilingChoice]:
        """All tilings of paths around a critical buffer whose ops follow each other in the schedule.

        Without those that take `roof` bytes or more, or more multiply-accumulates than are `left`.
        """
        choices, position = [], base.position
        for path in paths(graph, name, self.methods):
            if self.parts and not self.parts.isdisjoint(op.outputs[0] for op in path.ops):
                continue
            at = [position[op.outputs[0]] for op in path.ops if op.outputs[0] in position]
            if at != list(range(at[0], at[0] + len(at))):
                continue
            self.work += 1
            if self.work > self.limits.work:
                break
            alive = base.alive[at[0]]
            if alive + result_bytes(graph, path) >= roof or (left.extra_macs <= 0 and overlap(graph, path)):
                continue
            for n in counts(graph, path):
                tiling = Tiling(path, n)
                key = (path.ops[0].outputs[0], path.ops[-1].outputs[0], path.operands, path.cut, path.fan_in, n)
                if key in self.looked_at or self.limits.over:
                    continue
                self.looked_at.add(key)
                self.work += len(path.ops)
                ranges = part_ranges(graph, tiling)
                if ranges is None:
                    continue
                self.estimated += 1
                estimate = Estimate(graph, tiling, ranges)
                cost = estimate.cost
                if cost.extra_macs > left.extra_macs:
                    break  # more parts overlap more
                if alive + cost.bytes < roof:
                    choice = TilingChoice(at[0], at[-1] + 1, alive + cost.bytes, cost.extra_macs, tiling, cost.code)
                    choices.append(replace(choice, saved=estimate.saved))
        return choices

    def try_out(
        self, base: Evaluated, before: tuple[TilingChoice, ...], plan: Iterable[TilingChoice], most: int
    ) -> bool:
        """Schedule and lay out the graph with these tilings and those before; keep it if the arena is within `most`."""
        graph, tilings = base.graph, tuple(c for c in plan if c.tiling is not None)
        for choice in tilings:
            graph = tiled(graph, choice.tiling) if choice.tiling else graph
        self.evaluated += 1
        result = self.evaluate(graph)
        if result.arena > most:
            return False
        self.best, self.tilings = result, (*before, *tilings)
        self.parts |= graph.tensors.keys() - base.graph.tensors.keys()
        progress.say(f"{result.arena} B with {len(self.tilings)} paths, {self.spent} MACs done twice")
        return True


def explore(graph: Graph, evaluate: Evaluate, methods: frozenset[str], limits: Limits) -> TilingOutcome:
    """The graph tiled by `methods` ("fdt", "ffmt", "both") so that its arena is least, or within `limits.ram`.

    If the user or the deadline interrupts the search, it is the best graph so far.
    """
    began = time.monotonic()
    search = _Search(evaluate, methods, limits, evaluate(graph))
    search.run()
    seconds = time.monotonic() - began
    return TilingOutcome(search.best.graph, search.tilings, search.estimated, search.evaluated, seconds)


def affordable(plan: Iterable[TilingChoice], limits: Limits) -> bool:
    """Whether a plan stays within the limits of multiply-accumulates done again and of code."""
    chosen = tuple(plan)
    return sum(c.extra_macs for c in chosen) <= limits.extra_macs and sum(c.code for c in chosen) <= limits.code


def weight(plan: Iterable[TilingChoice]) -> tuple[int, int, int]:
    """The weights of all choices together."""
    work, code, cut = map(sum, zip(*(c.weight for c in plan), strict=True))
    return work, code, cut


def least(choices: Sequence[TilingChoice], count: int, limits: Limits) -> tuple[int, tuple[TilingChoice, ...]]:
    """The least bytes for which the lightest plan of all `count` positions is affordable, and that plan."""
    levels = sorted({c.bytes for c in choices})
    low, high = 0, len(levels) - 1
    while low < high:
        middle = (low + high) // 2
        plan = within(choices, count, levels[middle])
        if plan is not None and affordable(plan, limits):
            high = middle
        else:
            low = middle + 1
    plan = within(choices, count, levels[low])
    assert plan is not None
    return levels[low], plan


def within(choices: Sequence[TilingChoice], count: int, level: int) -> tuple[TilingChoice, ...] | None:
    """The plan of least weight that takes at most `level` bytes anywhere; None if there is none."""
    best: dict[int, tuple[tuple[int, ...], TilingChoice | None]] = {0: ((0, 0, 0), None)}
    for c in sorted((c for c in choices if c.bytes <= level), key=lambda c: c.start):
        if c.start in best:
            weight = tuple(a + b for a, b in zip(best[c.start][0], c.weight, strict=True))
            if c.stop not in best or weight < best[c.stop][0]:
                best[c.stop] = weight, c
    if count not in best:
        return None
    plan, last = list[TilingChoice](), best[count][1]
    while last is not None:
        plan.append(last)
        last = best[last.start][1]
    return tuple(reversed(plan))


def _live_at(base: Evaluated, choices: Iterable[TilingChoice]) -> list[str]:
    """Storages live while these run, the largest first."""
    names = {n for c in choices for n, (first, last) in base.life.items() if first <= c.start <= last}
    return sorted(names, key=lambda n: (-base.sizes[n], n))
