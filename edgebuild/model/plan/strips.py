"""Rolling in two dimensions: a rolled run is cut into strips of columns, each of which is rolled by itself.

The rows that a run keeps are then as long as a strip is wide. What the windows of neighbouring strips share is computed
twice. So the number of strips is a choice between memory and work. Rows are rolled without doing anything twice; FFMT
(see `tiling`) pays for both dimensions. Parts, halos and the way back into one tensor are those of `tiling`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import accumulate

from ...base import progress
from ..ir import Graph
from .cuts import Cutter, untiled
from .memory.problem import Schedule
from .tiling.explore import TilingChoice, TilingOutcome
from .tiling.path_cost import Estimate, Tiling, cuts
from .tiling.paths import paths
from .tiling.transform import tiled

COUNTS = (2, 3, 4)
ROWS = 1  # the dimension that is rolled
QUICK, THOROUGH = 4_000, 40_000  # ops of graphs in strips that are planned anew, for `--tile auto` and for the least
WORTH = 32  # a step saves at least one part in so many of the peak


def in_strips(
    graph: Graph,
    scheduled: tuple[Cutter, Schedule],
    cut_again: Callable[[Graph], tuple[Cutter, Schedule]],
    budget: int,
    deadline: float | None,
    thorough: bool = True,
) -> tuple[TilingOutcome, Cutter, Schedule]:
    """The graph with runs in strips whose rolled plan takes least, with at most `budget` multiply-accumulates twice.

    `scheduled` is that of the graph, `cut_again` makes one of a graph in strips. The search ends at `deadline`
    (monotonic seconds), or when it has planned so many ops anew, with what it has. Outcome: no tilings where none
    helps.
    """
    left = THOROUGH if thorough else QUICK
    began, (cutter, order) = time.monotonic(), scheduled
    whole, tried = max(cutter.profile(untiled(cutter)), default=0), 0
    chosen: list[TilingChoice] = []
    while True:
        options: list[tuple[int, int, int, Graph, tuple[Cutter, Schedule], TilingChoice]] = []
        spent = sum(c.extra_macs for c in chosen)
        for choice in _around_the_peak(graph, cutter):
            if progress.stopped() or left <= 0 or (deadline is not None and time.monotonic() > deadline):
                break
            if choice.extra_macs <= budget - spent and choice.tiling is not None:
                other = tiled(graph, choice.tiling)
                there = cut_again(other)
                tried, left = tried + 1, left - len(there[0].order)
                options.append((there[0].least_peak, choice.extra_macs, len(options), other, there, choice))
        best = min(options, key=lambda option: option[:3], default=None)
        if best is None or best[0] > cutter.least_peak - cutter.least_peak // WORTH:
            break
        _, _, _, graph, (cutter, order), choice = best
        chosen.append(choice)
        progress.say(f"{cutter.least_peak} B with {len(chosen)} runs in strips")
    outcome = TilingOutcome(graph, tuple(chosen), whole, tried, tried, time.monotonic() - began)
    return outcome, cutter, order


def _around_the_peak(graph: Graph, cutter: Cutter) -> Iterator[TilingChoice]:
    """Strips of the runs that begin where the section of the peak does and could save something.

    They may be longer than the section: what follows it may be what makes the result small.
    """
    sections = cutter.cut()
    profile = cutter.profile(sections)
    at = max(range(len(sections)), key=lambda i: profile[i], default=0)
    section = sections[at] if sections else None
    if section is None or section.rolled is None:
        return
    start = list(accumulate((len(s.ops) for s in sections), initial=0))[at]
    members = [op.outputs[0] for op in cutter.order[start:]]
    seen = set()
    for path in paths(graph, members[0], frozenset(["ffmt"])):
        names = [op.outputs[0] for op in path.ops]
        key = (len(names), path.cut)
        if names != members[: len(names)] or len(names) < 2 or path.fan_in or ROWS in path.cut or key in seen:
            continue
        seen.add(key)
        if _at_least(cutter, start, names[-1]) > cutter.least_peak - cutter.least_peak // WORTH:
            continue
        for count in COUNTS:
            tiling = Tiling(path, (count,) * len(path.cut))
            found = cuts(graph, tiling)
            if found is not None:
                extra = Estimate(graph, tiling, found).cost.extra_macs
                yield TilingChoice(start, start + len(names), 0, extra, tiling)


def _at_least(cutter: Cutter, start: int, result: str) -> int:
    """Bytes live while all strips but the last are made: what was there before, and the whole result."""
    before = (cutter.sizes[n] for n, (first, last) in cutter.life.items() if first < start <= last)
    return sum(before) + cutter.sizes[result]
