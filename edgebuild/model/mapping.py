"""`edgebuild map`: the temporal mapping of single layers, from a file of layers or a model.

`edgebuild inspect --sweep`: modelled cycles of a network for sizes of memory levels. Nothing is printed as C.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from ..base.errors import EdgebuildError, did_you_mean, fail
from ..base.levels import Engine
from ..base.options import parse_size
from ..base.request import ModelRequest
from ..base.target import Target
from ..base.text import by_reason
from . import ops
from .compile import graph_of, prepare
from .ir import Graph, Op
from .kernels import layer_of as kernel_layer
from .kernels.offload import called, in_one_line, refusal
from .plan.dma import levels
from .plan.dma.assembly import candidates, far_memories, far_spaces, search_of
from .plan.dma.residency import Residency
from .plan.hierarchy.mapper import NoMapping, best, dory, loma
from .plan.hierarchy.nest import Mapped, MappingCost, TiledLayer, layer_of, read_layers
from .plan.search import Planner, form_of


@dataclass(frozen=True)
class LayerMapping:
    """A layer, its mapping, and the processor time of the search. `cycles`: by the requested method.

    `engine`: the one that computes it; empty: the core. `why`: reason why no engine does, if the target has any.
    """

    name: str
    mapped: Mapped | None = None
    cost: MappingCost | None = None
    cycles: float = 0.0
    cpu_ms: float = 0.0
    layer: TiledLayer | None = None
    engine: str = ""
    why: str = ""
    picojoules: float | None = None  # None: the target states no energies, or the method makes no mapping


def search_method(text: str) -> tuple[str, int]:
    """Parse `exact`, `dory`, or `loma:N` into word and N (else 0). Raises EdgebuildError for any other text."""
    word, _, number = text.partition(":")
    if word in ("exact", "dory") and not number:
        return word, 0
    if word == "loma" and number.isdigit() and int(number):
        return word, int(number)
    raise fail(f"option 'search': '{text}' is not known", hints=["one of: exact, dory, loma:N with N from 1 upwards"])


def limited(room: Mapping[str, int], limits: str | None) -> dict[str, int]:
    """Bytes of spaces, limited by `--limit NAME=BYTES,...`. Raises EdgebuildError for other names or sizes."""
    left = dict(room)
    for text in (limits or "").split(",") if limits else ():
        name, _, size = text.partition("=")
        if name not in left:
            raise fail(
                f"option 'limit': no memory '{name}'{did_you_mean(name, left)}", hints=["known: " + ", ".join(left)]
            )
        left[name] = min(left[name], parse_size("limit", size))
    return left


def map_layers(
    source: Path, target: Target, method: str, limits: str | None, objective: str = "latency", scales: str = "file"
) -> list[LayerMapping]:
    """Map every layer by itself. Raises EdgebuildError if one does not fit, or the input is invalid.

    `scales`: as of a `ModelRequest`.
    """
    search, least = search_method(method), objective == "energy"
    if least:
        levels.check_energies(target, target.engines)
        if search[0] != "exact":
            hints = ["leave --search out; without --objective the energy of its mappings is printed"]
            raise fail(f"--objective energy: --search {method} is a rule that knows no energies", hints=hints)
    if source.suffix not in (".yaml", ".yml"):
        return _of_model(prepare(source, scales=scales), target, search, limits, least)
    if scales != "file":
        raise fail("option 'scales': a file of layers has no scales", file=str(source), hints=["leave it out"])
    levels.check_levels(target)
    if not source.is_file():
        raise fail("no such file", file=str(source))
    engine = next((e for e in target.engines if e.activations), None)
    hardware = levels.engine_hardware(target, engine) if engine else levels.core_hardware(target)
    room = limited(levels.rooms(target, engine), limits)
    rows = [layer_of(row, hardware) for row in read_layers(source)]
    rows = [replace(r, power=levels.power_of(target, engine, r.nest.mac_count, least)) for r in rows]
    return [_searched(layer, room, search, False, source) for layer in rows]


def _of_model(
    graph: Graph, target: Target, search: tuple[str, int], limits: str | None, least: bool
) -> list[LayerMapping]:
    """Map the ops of a model, without views."""
    if not target.engines:
        levels.check_levels(target)
    running = [op for op in graph.ops if not ops.SPECS[op.kind].view]
    if target.engines:
        return _on_engines(graph, running, target, search, limits, least)
    near, home = levels.nearest(target)
    room, store = limited(levels.rooms(target, None), limits), target.memory("weights")
    layers = (
        levels.layer_of_op(op, graph, target, form_of(target), (near, home, store), least=least) for op in running
    )
    return [_searched(layer, room, search, True, Path(graph.file)) for layer in layers]


def _on_engines(
    graph: Graph, running: Sequence[Op], target: Target, search: tuple[str, int], limits: str | None, least: bool
) -> list[LayerMapping]:
    """Map every op to its cheapest engine, or tell why none computes it. Raises EdgebuildError if none computes any."""
    rows = [_on_engine(op, graph, target, search, limits, least) for op in running]
    if not any(row.engine for row in rows):
        by_name = ({"node": row.name, "why": row.why} for row in rows)
        names = " or ".join(e.name for e in target.engines)
        raise fail(f"no layer runs on engine {names} of {target.name}", file=graph.file, hints=by_reason(by_name))
    return rows


def _on_engine(
    op: Op, graph: Graph, target: Target, search: tuple[str, int], limits: str | None, least: bool
) -> LayerMapping:
    offers, reasons = list[LayerMapping](), list[tuple[Engine, str]]()
    for engine in target.engines:
        if why := refusal(op, graph, engine):
            reasons.append((engine, why))
        elif engine.called:
            (kernel,) = called(kernel_layer(op, graph, replace(form_of(target), engines=(engine,))))
            power = levels.power_of(target, engine, ops.nest(op, graph).mac_count)
            cycles = kernel.estimate * form_of(target).cycles_per_instruction
            picojoules = power.picojoules(cycles, cycles, 0.0) if power else None
            offers.append(LayerMapping(op.name, cycles=cycles, engine=engine.name, picojoules=picojoules))
        elif engine.memories:
            levels.check_levels(target)
            room = limited({r.memory: r.bytes for r in levels.regions_of(engine)}, limits)
            spaces = levels.nearest(target)[1], target.memory("weights")
            form = replace(form_of(target), engine=engine)
            layer = levels.engine_layer(op, graph, target, engine, form, spaces, least=least)
            mapped = _searched(layer, room, search, False, Path(graph.file))
            offers.append(replace(mapped, engine=engine.name))
        else:
            reasons.append((engine, f"the target names no memories of {engine.name}"))
    if offers:
        return min(offers, key=lambda row: row.picojoules or 0.0 if least else row.cycles)
    return LayerMapping(op.name, why=in_one_line(reasons))


def _searched(
    layer: TiledLayer, room: Mapping[str, int], search: tuple[str, int], on_core: bool, source: Path
) -> LayerMapping:
    """Map the layer by a method. Raises EdgebuildError if it does not fit."""
    word, most = search
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
    cpu_ms, picojoules = (time.process_time() - began) * 1e3, counted.picojoules if counted else None
    return LayerMapping(layer.name, mapped, counted, cycles, cpu_ms, layer, picojoules=picojoules)


def too_small(reason: NoMapping, room: Mapping[str, int], source: Path) -> EdgebuildError:
    """The error for a layer whose smallest tile does not fit."""
    over = {s: n for s, n in reason.needed.items() if n > room[s]} or reason.needed
    needs = " and ".join(f"{n} B of {s}" for s, n in over.items())
    has = ", ".join(f"{s} has {room[s]} B" for s in over)
    text = f"does not fit: the smallest tile needs {needs or 'another alignment'}" + (f"; {has}" if has else "")
    return fail(text, file=str(source), node=reason.layer, hints=["use a target with more of it, or raise --limit"])


def row(mapping: LayerMapping) -> dict[str, Any]:
    """The JSON object of a layer."""
    row: dict[str, Any] = {"name": mapping.name} | ({"engine": mapping.engine} if mapping.engine else {})
    row |= {"energy_uj": mapping.picojoules / 1e6} if mapping.picojoules is not None else {}
    if mapping.mapped is None or mapping.cost is None:
        return {**row, "total_cycles": mapping.cycles, "cpu_ms": round(mapping.cpu_ms, 3)}
    moved = mapping.cost.operands
    return {
        **row,
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


def as_json(mappings: list[LayerMapping], target: Target, method: str, objective: str) -> str:
    data = {"target": target.name, "search": method, "objective": objective, "modelled": True}
    layers = [row(f) for f in mappings if not f.why]
    refused = [{"name": f.name, "why": f.why} for f in mappings if f.why]
    return json.dumps({**data, "layers": layers, **({"refused": refused} if refused else {})}, indent=1) + "\n"


def as_text(mappings: list[LayerMapping]) -> str:
    """A line for each layer; cycles are modelled, and so is energy if the target states it."""
    energies = [f.picojoules for f in mappings if f.picojoules is not None]

    def spent(picojoules: float | None) -> str:
        return f" {'' if picojoules is None else f'{picojoules / 1e6:,.3f}':>9}" if energies else ""

    columns = f"{'layer':24} {'compute':>12} {'total':>12}" + (f" {'uJ':>9}" if energies else "")
    lines = [f"{columns}  tile; operand@depth, *: two buffers (cycles {'and uJ ' if energies else ''}are modelled)"]
    for f in mappings:
        name, engine = f.name.split(";")[0][-24:], f"{f.engine}: " if f.engine else ""
        if f.why:
            lines.append(f"{name:24} {'':>12} {'':>12}{spent(None)}  core: {f.why}")
        elif f.mapped is None or f.cost is None or f.layer is None:
            lines.append(f"{name:24} {'':>12} {f.cycles:12,.0f}{spent(f.picojoules)}  {engine}".rstrip(" :"))
        else:
            extents, tile = f.layer.nest.extents, f.mapped.tile
            loops = " > ".join(f"{a} {extents[a]}/{tile[a]}" for a in f.mapped.order) or "whole"
            moves = " ".join(
                f"{m.operand.split(';')[0][-12:]}@{m.depth}{'*' if m.buffers == 2 else ''}" for m in f.mapped.moves
            )
            figures = f"{f.cost.compute:12,.0f} {f.cost.total:12,.0f}{spent(f.picojoules)}"
            lines.append(f"{name:24} {figures}  {engine}{loops}; {moves}")
    lines.append(f"{'total':24} {'':>12} {sum(f.cycles for f in mappings):12,.0f}{spent(sum(energies))}")
    return "\n".join(lines) + "\n"


SIZES = 5  # of each memory in a sweep, from the least to the most in a geometric series


def modelled(planner: Planner, earlier: Residency | None = None) -> tuple[float | None, Residency]:
    """Cycles of the fastest plan in the target's memories; constants may come to the first level through the second.

    `earlier`: an earlier search over the same network and rates, whose mappings are reused. Cycles None: nothing fits.
    """
    target, near = planner.target, levels.nearest(planner.target)[0]
    for spaces in far_spaces(planner):
        search = search_of(planner, levels.rooms(target, None)[near.name], spaces)
        if earlier is not None:
            search = replace(search, tiles=earlier.tiles, runs=earlier.runs)
        if cycles := [path.cycles for path in candidates(search, search.layerwise(), (0.0,))]:
            return min(cycles), search
    return None, search


def sizes_of(text: str, target: Target) -> dict[str, list[int]]:
    """Parse `L1=22K:400K,L2=256K:4M`: sizes of each memory in bytes, smallest first. Raises EdgebuildError."""
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
    """Cycles for every combination of sizes. More memory is never slower, as a plan need not use it."""
    levels.check_levels(target)
    graph = graph_of(request)
    times, earlier = dict[tuple[int, ...], float](), None
    for key in sorted(product(*sizes.values()), reverse=True):
        smaller = levels.resized(target, zip(sizes, key, strict=True))
        planner = Planner(graph, smaller, replace(request, map="auto", tile="off"))
        if not far_memories(planner):
            continue
        cycles, earlier = modelled(planner, earlier)
        if cycles is not None:
            times[key] = cycles
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


def sweep_json(
    sizes: Mapping[str, Sequence[int]], times: Mapping[tuple[int, ...], float]
) -> list[dict[str, dict[str, int] | float | None]]:
    """An object for each combination: bytes by memory, and modelled cycles; None if the network does not fit."""
    return [{"bytes": dict(zip(sizes, key, strict=True)), "cycles": times.get(key)} for key in product(*sizes.values())]
