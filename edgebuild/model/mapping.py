"""`edgebuild map`: the temporal mapping of layers alone, from a file of layers or a model."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base.dataclass import dataclass
from ..base.errors import EdgebuildError, did_you_mean, fail
from ..base.levels import Engine
from ..base.options import parse_size
from ..base.target import Memory, Target
from . import ops
from .compile import prepare
from .ir import Graph, Op
from .kernels.offload import refusal
from .plan.dma.engines import engine_layer, engines_of, regions_of
from .plan.dma.levels import check_levels, core_hardware, engine_hardware, layer_of_op, rooms
from .plan.hierarchy.baselines import dory, loma
from .plan.hierarchy.costs import MappingCost
from .plan.hierarchy.files import layer_of, read_layers
from .plan.hierarchy.mapper import NoMapping, best
from .plan.hierarchy.nest import Mapped, TiledLayer
from .plan.search import form_of


@dataclass(frozen=True)
class LayerMapping:
    """A layer, how it is mapped, and the processor time that this took. `cycles`: of the method that was asked for."""

    layer: TiledLayer
    mapped: Mapped | None
    cost: MappingCost | None
    cycles: float
    cpu_ms: float


def search_method(text: str) -> tuple[str, int]:
    """`exact`, `dory`, or `loma:N`. Raises EdgebuildError."""
    word, _, number = text.partition(":")
    if word in ("exact", "dory") and not number:
        return word, 0
    if word == "loma" and number.isdigit() and int(number):
        return word, int(number)
    raise fail(f"option 'search': '{text}' is not known", hints=["one of: exact, dory, loma:N with N from 1 upwards"])


def limited(room: Mapping[str, int], limits: str | None) -> dict[str, int]:
    """The spaces with those of `--limit NAME=BYTES,...` made smaller. Raises EdgebuildError."""
    left = dict(room)
    for text in (limits or "").split(",") if limits else ():
        name, _, size = text.partition("=")
        if name not in left:
            raise fail(
                f"option 'limit': no memory '{name}'{did_you_mean(name, left)}",
                hints=["known: " + ", ".join(left)],
            )
        left[name] = min(left[name], parse_size("limit", size))
    return left


def layers_to_map(source: Path, target: Target) -> list[TiledLayer]:
    """The layers of a YAML file, or the ops of a model that compute something."""
    check_levels(target)
    if source.suffix in (".yaml", ".yml"):
        if not source.is_file():
            raise fail("no such file", file=str(source))
        engine = target.engines[0] if target.engines else None
        hardware = engine_hardware(target, engine) if engine else core_hardware(target)
        return [layer_of(row, hardware) for row in read_layers(source)]
    graph = prepare(source)
    near, home = target.levels[:2]
    store = target.memory("weights")
    running = [op for op in graph.ops if not ops.SPECS[op.kind].view]
    if engines_of(target):
        return offloaded(graph, running, target, (home, store))
    return [layer_of_op(op, graph, target, form_of(target), (near, home, store)) for op in running]


def offloaded(graph: Graph, running: Sequence[Op], target: Target, spaces: tuple[Memory, Memory]) -> list[TiledLayer]:
    """The ops that the first engine computes. Raises EdgebuildError if it computes none."""
    engine = engines_of(target)[0]
    form = replace(form_of(target), engine=engine)
    why = [refusal(op, graph, engine) for op in running]
    mine = [op for op, refused in zip(running, why, strict=True) if not refused]
    if not mine:
        hints = [f"{op.name}: {reason}" for op, reason in zip(running[:3], why, strict=False)]
        raise fail(f"no layer runs on engine {engine.name} of {target.name}", file=graph.file, hints=hints)
    return [engine_layer(op, graph, target, engine, form, spaces) for op in mine]


def room_of(target: Target, engine: Engine | None, model: bool) -> dict[str, int]:
    """Bytes of each space: of layers of a file by the engine's words, of those of a model by its memories."""
    if model and engines_of(target):
        return {r.memory: r.bytes for r in regions_of(engines_of(target)[0])}
    return rooms(target, engine)


def map_layers(source: Path, target: Target, method: str, limits: str | None) -> list[LayerMapping]:
    """Map every layer by itself. Raises EdgebuildError where one does not fit, or the input is wrong."""
    word, most = search_method(method)
    layers = layers_to_map(source, target)
    is_model = source.suffix not in (".yaml", ".yml")
    engine = target.engines[0] if target.engines and not is_model else None
    on_core = engine is None and not engines_of(target)
    room = limited(room_of(target, engine, is_model), limits)
    rows = []
    for layer in layers:
        began = time.process_time()
        try:
            mapped, counted = None, None
            if word == "loma":
                cycles = loma(layer, room, most)
            else:
                mapped, counted = best(layer, room) if word == "exact" else dory(layer, room, on_core)
                cycles = counted.total
        except NoMapping as reason:
            raise too_small(reason, room, source) from None
        rows.append(LayerMapping(layer, mapped, counted, cycles, (time.process_time() - began) * 1e3))
    return rows


def too_small(reason: NoMapping, room: Mapping[str, int], source: Path) -> EdgebuildError:
    """Which layer, and what its smallest tile needs."""
    over = {s: n for s, n in reason.needed.items() if n > room[s]} or reason.needed
    needs = " and ".join(f"{n} B of {s}" for s, n in over.items())
    has = ", ".join(f"{s} has {room[s]} B" for s in over)
    text = f"does not fit: the smallest tile needs {needs or 'another alignment'}" + (f"; {has}" if has else "")
    return fail(text, file=str(source), node=reason.layer, hints=["use a target with more of it, or raise --limit"])


def row(mapping: LayerMapping) -> dict[str, Any]:
    """A layer of the JSON."""
    if mapping.mapped is None or mapping.cost is None:
        return {"name": mapping.layer.name, "total_cycles": mapping.cycles, "cpu_ms": round(mapping.cpu_ms, 3)}
    moved = mapping.cost.operands
    return {
        "name": mapping.layer.name,
        "tile": dict(mapping.mapped.tile),
        "order": list(mapping.mapped.order),
        "depth": {m.operand: m.depth for m in moved},
        "buffers": {m.operand: m.buffers for m in moved},
        "transfers": {m.operand: m.transfers for m in moved},
        "bytes": {m.operand: m.bytes for m in moved},
        "pieces": {m.operand: m.pieces for m in moved},
        "dma_cycles": {m.operand: m.cycles for m in moved},
        "tile_bytes": {m.operand: m.tile_bytes for m in moved},
        "calls": mapping.cost.calls,
        "compute_cycles": mapping.cost.compute,
        "total_cycles": mapping.cost.total,
        "examined": mapping.mapped.examined,
        "cpu_ms": round(mapping.cpu_ms, 3),
    }


def as_json(mappings: list[LayerMapping], target: Target, method: str) -> str:
    data = {"target": target.name, "search": method, "modelled": True, "layers": [row(f) for f in mappings]}
    return json.dumps(data, indent=1) + "\n"


def as_text(mappings: list[LayerMapping]) -> str:
    """A line for each layer; cycles are modelled."""
    lines = [f"{'layer':24} {'compute':>12} {'total':>12}  tile; operand@depth, *: two buffers (cycles are modelled)"]
    for f in mappings:
        name = f.layer.name.split(";")[0][-24:]
        if f.mapped is None or f.cost is None:
            lines.append(f"{name:24} {'':>12} {f.cycles:12,.0f}")
            continue
        loops = " > ".join(f"{a} {f.layer.nest.extents[a]}/{f.mapped.tile[a]}" for a in f.mapped.order) or "whole"
        moves = " ".join(
            f"{m.operand.split(';')[0][-12:]}@{m.depth}{'*' if m.buffers == 2 else ''}" for m in f.mapped.moves
        )
        lines.append(f"{name:24} {f.cost.compute:12,.0f} {f.cost.total:12,.0f}  {loops}; {moves}")
    lines.append(f"{'total':24} {'':>12} {sum(f.cycles for f in mappings):12,.0f}")
    return "\n".join(lines) + "\n"
