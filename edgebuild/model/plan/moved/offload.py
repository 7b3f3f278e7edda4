"""Ops that an engine computes: from its scratchpads, between which and the memories of the core a DMA unit copies.

The scratchpads are one range of addresses, first that of activations, then that of weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ....base.errors import fail
from ....base.levels import Engine
from ....base.target import Memory, Target
from ...ir import Graph, Op
from ...ir.axes import Nest, Window
from ...kernels import offload
from ...kernels.unstated import PER_CALL
from ...ops.base import Form
from ..hierarchy.costs import compute_cycles
from ..hierarchy.mapper import NoMapping, best
from ..hierarchy.nest import Compute, TiledLayer
from ..printed import Region
from .copies import MOST_COPIES, MovedLayer
from .levels import layer_of_op, way_to
from .tiles import TRIES, tiles_of


@dataclass(frozen=True)
class Offer:
    """An op in tiles on an engine, or None, and why. `whole`: its cycles in one call, if nothing was copied."""

    moved: MovedLayer | None
    why: str
    whole: float = 0.0


def engines_of(target: Target) -> tuple[Engine, ...]:
    """The engines whose scratchpads programs can use."""
    return tuple(e for e in target.engines if e.memories)


def scratchpads(target: Target) -> frozenset[str]:
    """Names of the memories that belong to engines."""
    return frozenset(name for engine in engines_of(target) for name in engine.memories)


def regions_of(engine: Engine) -> tuple[Region, Region]:
    """Activations, then weights."""
    activations, weights = engine.memories
    return Region(activations, 0, engine.activations), Region(weights, engine.activations, engine.weights)


def letters(nest: Nest) -> dict[str, str]:
    """The letters of a layer by the axes of an op: channels are last in the result, columns and rows before them."""
    named = dict(zip(reversed(nest.out), ("K", "OX", "OY"), strict=False))
    taps = [d.tap for d in nest.operands[0] if isinstance(d, Window)]
    named |= dict(zip(reversed(taps), ("FX", "FY"), strict=False))
    rest = [a for a in nest.extents if a not in named and a not in nest.out]
    return named | dict(zip(rest, "C", strict=False))


def engine_layer(
    op: Op,
    graph: Graph,
    target: Target,
    engine: Engine,
    form: Form,
    spaces: tuple[Memory, Memory],
    held: frozenset[str] = frozenset(),
) -> TiledLayer:
    """An op as a nest between an engine's scratchpads and the memories of activations and of weights (`spaces`)."""
    near, store = (target.memory_named(name) for name in engine.memories)
    layer = layer_of_op(op, graph, target, form, (near, *spaces), held)
    operands = [
        replace(o, space=store.name, channel=way_to(target, store, spaces[1])) if o.packed else o
        for o in layer.operands
    ]
    named = letters(layer.nest)
    axes = {letter: axis for axis, letter in named.items()}

    def cycles(lengths: Mapping[str, Any]) -> Any:
        ones = dict.fromkeys(("K", "C", "OY", "OX", "FY", "FX"), 1)
        return engine.cycles({**ones, **{named[a]: n for a, n in lengths.items() if a in named}})

    rows = (axes["OY"], axes["FY"]) if "OY" in axes and "FY" in axes else None
    units = {axes[letter]: n for letter, n in engine.array.items() if letter in axes}
    compute = Compute(cycles, PER_CALL, rows)
    return replace(layer, operands=tuple(operands), compute=compute, units=units, cores=1, estimated=False)


def offer(op: Op, graph: Graph, target: Target, engine: Engine, form: Form, spaces: tuple[Memory, Memory]) -> Offer:
    """The op in the tiles that take least. `form`: of kernels of the core."""
    if why := offload.refusal(op, graph, engine):
        return Offer(None, why)
    form = replace(form, engine=engine)
    layer = engine_layer(op, graph, target, engine, form, spaces)
    found = _fitted(op, graph, layer, form, {r.memory: r.bytes for r in regions_of(engine)})
    if isinstance(found, str):
        return Offer(None, found)
    return Offer(found, "", compute_cycles(layer, {}) + layer.compute.call)


def in_tiles(
    op: Op, graph: Graph, target: Target, form: Form, spaces: tuple[Memory, Memory], held: frozenset[str], room: int
) -> MovedLayer | None:
    """The op on the engine of `form`, with tensors that are held and `room` bytes for tiles of the others."""
    assert form.engine is not None
    layer = engine_layer(op, graph, target, form.engine, form, spaces, held)
    activations, weights = regions_of(form.engine)
    found = _fitted(op, graph, layer, form, {activations.memory: room, weights.memory: weights.bytes})
    return None if isinstance(found, str) else found


def _fitted(op: Op, graph: Graph, layer: TiledLayer, form: Form, most: Mapping[str, int]) -> MovedLayer | str:
    """The tiles that take least of those whose kernels fit into `most` bytes; or why there are none."""
    assert form.engine is not None
    regions, room = regions_of(form.engine), dict(most)
    for _ in range(TRIES):
        try:
            mapped, _ = best(layer, room)
        except NoMapping as reason:
            over = ", ".join(f"{n} B of {s}, which has {room[s]} B" for s, n in reason.needed.items() if n > room[s])
            return f"its smallest tile needs {over or 'another alignment'}"
        moved = tiles_of(op, graph, layer, mapped, form, regions)
        over_by = {r.memory: used(moved, r) - most[r.memory] for r in regions}
        if all(n <= 0 for n in over_by.values()) and len(moved.copies) <= MOST_COPIES:
            return moved
        room = {name: n - max(over_by[name], n // 16 if over_by[name] > 0 else 0) for name, n in room.items()}
    return f"no tiles fit into the scratchpads of {form.engine.name}"


def used(moved: MovedLayer, region: Region) -> int:
    """Bytes of a scratchpad that the tiles of an op take."""
    mine = {i for i, o in enumerate(moved.layer.operands) if o.space == region.memory}
    ends = [c.near + (c.rows - 1) * c.near_row + (c.planes - 1) * c.near_plane + c.bytes
            for c in moved.copies if c.channel // 2 in mine]  # fmt: skip
    return max(ends, default=region.base) - region.base


def best_offer(op: Op, graph: Graph, target: Target, form: Form, spaces: tuple[Memory, Memory], cpu: float) -> Offer:
    """The offer of the engine that takes least, if that is less than the `cpu` cycles of the core."""
    offers = [offer(op, graph, target, engine, form, spaces) for engine in engines_of(target)]
    made = [o for o in offers if o.moved is not None]
    if not made:
        return Offer(None, "; ".join(dict.fromkeys(o.why for o in offers)))
    found = min(made, key=lambda o: o.moved.cost.total if o.moved else 0.0)
    assert found.moved is not None
    total = found.moved.cost.total
    if total >= cpu:
        return Offer(None, f"{found.moved.engine} would take {total:,.0f} cycles, the core {cpu:,.0f}")
    why = f"{total:,.0f} cycles, {cpu:,.0f} on the core"
    return Offer(replace(found.moved, why=why), why, found.whole)


def check_engines(target: Target) -> None:
    """Raise EdgebuildError for an engine whose scratchpads no DMA unit fills."""
    for engine in engines_of(target):
        for name in engine.memories:
            if not any(name in d.between for d in target.dma):
                text = f"no DMA of target {target.name} reaches {name}, a scratchpad of engine {engine.name}"
                raise fail(text, file=target.files[0], hints=["add it to `between` of one in `dma:`"])
