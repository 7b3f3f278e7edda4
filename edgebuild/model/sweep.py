"""`edgebuild inspect --sweep`: modelled cycles of a network for sizes of memory levels. Nothing is printed as C."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from ..base.errors import did_you_mean, fail
from ..base.options import parse_size
from ..base.request import ModelRequest
from ..base.target import Target
from .compile import graph_of
from .plan.dma.assembly import WAITS, far_memories, prefetches, search_of, spilled, stage_plan
from .plan.dma.levels import channel_through, check_levels, nearest, resized, rooms
from .plan.dma.residency import Residency, Step
from .plan.memory.problem import BufferMemory, DoesNotFit
from .plan.search import Planner

SIZES = 5  # of each memory, from the least to the most, each so many times the one before


@dataclass(frozen=True)
class Modelled:
    """Cycles of the best plan that was found. `compute`: of every op in one call that waits for nothing."""

    cycles: float
    compute: float


def modelled(planner: Planner, earlier: Residency | None = None) -> tuple[Modelled | None, Residency]:
    """The fastest plan in the target's memories; constants may come to the first level by way of the second.

    `earlier`: an earlier search over the same network and rates, whose mappings can be used again. None: nothing fits.
    """
    target = planner.target
    memories, near = levels_behind(planner), nearest(target)[0]
    search = search_of(planner, rooms(target, None)[near.name], memories, spilled(planner, memories))
    if earlier is not None:
        search = replace(search, tiles=earlier.tiles, runs=earlier.runs)
    figures = [_cycles(search, steps) for waits in WAITS if (steps := search.best(0.0, waits)) is not None]
    layers = search.layerwise()
    if search.possible(layers):
        figures.append(_cycles(search, layers))
    fitting = [cycles for cycles in figures if cycles is not None]
    return (Modelled(min(fitting), sum(search.whole.values())) if fitting else None), search


def levels_behind(planner: Planner) -> tuple[BufferMemory, ...]:
    """Where activations lie: also in memories that tiles reach by way of the second level.

    Of that, tiles on their way take as much as the first level has, where some network would need it.
    """
    target, direct = planner.target, far_memories(planner)
    near, stage = nearest(target)
    by_name = {m.name: m for m in target.memories}
    others = [m for m in planner.memories if m not in direct and channel_through(target, near, stage, by_name[m.name])]
    if not others or sum(planner.cutter.sizes.values()) <= (direct[0].capacity or 0):
        return direct
    first = replace(direct[0], capacity=max(1, (direct[0].capacity or 0) - near.size))
    return (first, *direct[1:], *others)


def _cycles(search: Residency, steps: Sequence[Step]) -> float | None:
    """Cycles of a path with its constants early; None where constants find no room on their way."""
    before = prefetches(steps, search.sizes, search.room)
    try:
        staged = stage_plan(search, steps, before)
    except DoesNotFit:
        return None
    return sum(s.cycles for s in steps) - sum(e.hidden for e in before) + sum(s.waited for s in staged)


def sizes_of(text: str, target: Target) -> dict[str, list[int]]:
    """`L1=22K:400K,L2=256K:4M`: sizes of each memory, smallest first. Raises EdgebuildError."""
    names, sizes = [m.name for m in target.levels], dict[str, list[int]]()
    for word in text.split(","):
        name, _, span = word.partition("=")
        low, _, high = span.partition(":")
        if name not in names:
            hints = [f"levels: {', '.join(names)}" if names else "docs/memory-levels.md says how a target has some"]
            raise fail(
                f"option 'sweep': no level '{name}'{did_you_mean(name, names)}", file=target.files[0], hints=hints
            )
        if not low:
            raise fail(f"option 'sweep': '{word}' has no sizes", hints=["write NAME=LEAST:MOST, as L1=22K:400K"])
        first, last = parse_size("sweep", low), parse_size("sweep", high or low)
        if not 0 < first <= last:
            raise fail(f"option 'sweep': '{word}' does not go upwards", hints=["write NAME=LEAST:MOST, as L1=22K:400K"])
        ratio = (last / first) ** (1 / (SIZES - 1))
        sizes[name] = sorted({round(first * ratio**i) // 64 * 64 for i in range(1, SIZES - 1)} | {first, last})
    return sizes


def sweep(request: ModelRequest, target: Target, sizes: Mapping[str, Sequence[int]]) -> dict[tuple[int, ...], float]:
    """Cycles for every combination of sizes; more memory is never slower, for it need not be used."""
    check_levels(target)
    graph = graph_of(request)
    times, earlier = dict[tuple[int, ...], float](), None
    for key in sorted(product(*sizes.values()), reverse=True):
        smaller = resized(target, zip(sizes, key, strict=True))
        planner = Planner(graph, smaller, replace(request, map="auto", tile="off"))
        if not far_memories(planner):
            continue
        figures, earlier = modelled(planner, earlier)
        if figures is not None:
            times[key] = figures.cycles
    for key in sorted(times):
        times[key] = min(v for other, v in times.items() if all(a <= b for a, b in zip(other, key, strict=True)))
    return times


def sweep_words(sizes: Mapping[str, Sequence[int]], times: Mapping[tuple[int, ...], float]) -> str:
    """A line for each combination; cycles are modelled."""
    lines = [" ".join(f"{name:>10}" for name in sizes) + f" {'cycles':>16}  (modelled)"]
    for key in product(*sizes.values()):
        cycles = f"{times[key]:16,.0f}" if key in times else f"{'does not fit':>16}"
        lines.append(" ".join(f"{size:>10,}" for size in key) + " " + cycles)
    return "\n".join(lines) + "\n"


def as_json(
    sizes: Mapping[str, Sequence[int]], times: Mapping[tuple[int, ...], float]
) -> list[dict[str, dict[str, int] | float | None]]:
    """An object for each combination: bytes by memory, and modelled cycles, None where the network does not fit."""
    return [{"bytes": dict(zip(sizes, key, strict=True)), "cycles": times.get(key)} for key in product(*sizes.values())]
