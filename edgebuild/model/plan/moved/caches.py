"""Caches between the core and the DMA unit: when the core's copy of a memory is written back, and when it is dropped.

A DMA unit goes past the core's cache. So what the core writes is cleaned at once: a DMA unit then finds it, and nothing
is written back later over what a DMA unit has brought. What a DMA unit wrote is invalidated before the core reads it.
Buffers in cached memories take whole lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....base.levels import CACHE_LINE
from ....base.target import Target
from ..memory.problem import Place
from ..printed import CLEAN, INVALIDATE, NO_CACHE, CacheStep, Coherence, scratch_name
from ..rolling import RollingGraph
from ..section import Section


def coherence(
    target: Target,
    rolling: RollingGraph,
    steps: Sequence[Section],
    places: Mapping[str, Place],
    moved: Mapping[str, object],
) -> Coherence:
    """The steps that keep core and DMA unit in agreement; `moved`: the steps whose data a DMA unit moves."""
    if not moved:
        return NO_CACHE
    cached = frozenset(m.name for m in target.memories if m.cached)
    found, by_dma = list[CacheStep](), set[str]()

    def add(step: int, kind: str, name: str, size: int) -> None:
        found.append(CacheStep(step, kind, name, places[name], size))

    def bytes_of(names: Sequence[str]) -> dict[str, int]:
        here = [n for n in dict.fromkeys(names) if n in places and places[n].memory in cached]
        return {n: rolling.graph.tensors[n].bytes for n in here}

    roots = [rolling.storage[n] for n in rolling.graph.inputs if n in rolling.storage]
    for name, size in bytes_of(roots).items():
        add(0, CLEAN, name, size)
    for step, section in enumerate(steps):
        results = bytes_of(section.results)
        if section.ops[0].outputs[0] in moved:
            by_dma.update(results)
            continue
        for name, size in bytes_of([root for op in section.ops for root, _ in rolling.operands[op.outputs[0]]]).items():
            if name in by_dma:
                add(step, INVALIDATE, name, size)
                by_dma.remove(name)
        for name, size in results.items():
            add(step + 1, CLEAN, name, size)
            by_dma.discard(name)
        for name in (scratch_name(op.outputs[0]) for op in section.ops):
            if name in section.inner and places[name].memory in cached:
                add(step + 1, CLEAN, name, section.inner[name])
    for name, size in bytes_of([rolling.storage[n] for n in rolling.graph.outputs]).items():
        if name in by_dma:
            add(len(steps), INVALIDATE, name, size)
    return Coherence(cached, CACHE_LINE, tuple(found)) if cached else NO_CACHE
