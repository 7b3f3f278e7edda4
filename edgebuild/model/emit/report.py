"""The report: all that was decided about a model, as JSON without times or paths."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .. import ops
from ..ir import Graph, Tensor
from ..plan.printed import SLOTS, ReachedOp, Start, StreamedRun, TiledOp, newest_name
from ..plan.rolling import rows_of
from ..plan.search import Plan, state_bytes
from ..plan.section import scratch_name
from .engine_rows import engine_rows
from .layer_rows import layer_rows, totals
from .level1 import starts
from .names import access_functions
from .trade import trade_rows
from .weights_file import HEADER, Weights

if TYPE_CHECKING:
    from ..energy.step_clocks import ClockSchedule

SCHEMA = 2
NO_TILE = "no tile fits: the core reaches its operands where they lie"


def report(plan: Plan, weights: Weights, sha256: str) -> str:
    graph, arena = plan.graph, plan.arena_bytes
    functions = access_functions(plan)
    macs, layers = ops.macs(graph), layer_rows(plan)
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "model": {
            "name": plan.name,
            "file": graph.file,
            "sha256": sha256,
            "format": graph.format or graph.arithmetic,
        },
        "target": plan.target.name,
        "clock_hz": plan.target.clock_hz,
        "inputs": [_surface(graph.tensors[n], functions[n]) for n in graph.ports_in],
        "outputs": [_surface(graph.tensors[n], functions[n]) for n in graph.ports_out],
        "ram": {
            "arena_bytes": arena,
            "untiled_arena_bytes": plan.untiled_bytes,
            "peak_bytes": plan.schedule.peak,
            "lower_bound_bytes": min(plan.schedule.bound, plan.layout.bound),
            "by_memory": {m: height for m, height in plan.layout.heights.items() if height},
        },
        "rom": _rom(plan, weights),
        "macs": {"model": macs + graph.removed_macs - plan.extra_macs, "generated": macs},
        "constant_channels": _constant_channels(graph),
        "schedule": {
            "method": plan.schedule.method,
            "optimal": plan.schedule.optimal,
            "bound_bytes": plan.schedule.bound,
            "order": [section.name for section in plan.steps],
            "steps": [_step(plan, i) for i in range(len(plan.steps))],
        },
        "layout": {
            "method": plan.layout.method,
            "optimal": plan.layout.optimal,
            "bound_bytes": plan.layout.bound,
            "buffers": _buffers(plan),
        },
        "tiling": [_tiling(plan, i) for i, section in enumerate(plan.steps) if section.run] + _fused(plan),
        "layers": layers,
        "totals": totals(layers, plan, weights),
        "state_bytes": state_bytes(graph),
        "needs_libm": False,
        "arena": plan.request.arena,
        "stream_rows": rows_of(graph, graph.inputs[0]) if plan.rolling.streamed else 0,
    }
    if plan.tiled or (plan.request.tile == "auto" and plan.clocks is None):
        data["trade_off"] = trade_rows(plan)
        data["price"] = dict(zip(("instructions", "cycles"), (round(more - 1, 4) for more in plan.price), strict=True))
    if plan.moves or any(isinstance(s.moves, ReachedOp) and s.moves.why for s in plan.steps):
        data["hierarchy"] = _levels(plan, weights)
    if plan.target.engines:
        data["engines"] = engine_rows(plan)
    if plan.clocks is not None:
        data["energy"] = _energy(plan.clocks)
    return json.dumps(data, indent=1, sort_keys=True) + "\n"


def _energy(clocks: ClockSchedule) -> dict[str, Any]:
    from ..energy.compare import budget_row, iso_latency, section  # late: few plans have clocks

    data: dict[str, Any] = {
        **section(clocks.problem, clocks.selection),
        "hse_hz": clocks.clocks.hse_hz,
        "sources": clocks.sources,
        "iso_latency": [iso_latency(c) for c in clocks.comparisons],
    }
    if clocks.others:
        data["budgets"] = [budget_row(*each) for each in clocks.budgets]
    return data


def _rom(plan: Plan, weights: Weights) -> dict[str, Any]:
    tensors = {t.name: t.bytes for op in plan.graph.ops for t in plan.graph.operands(op) if t.constant}
    return {
        "weights_bytes": weights.linked_bytes,
        "header_bytes": HEADER if weights.offsets else 0,
        "tensors_bytes": sum(tensors.values()),
        "estimated_code_bytes": plan.code_bytes,
        "memory": plan.weights_memory,
    }


def _step(plan: Plan, step: int) -> dict[str, Any]:
    section = plan.steps[step]
    macs = sum(ops.nest(op, plan.graph).mac_count for op in section.ops)
    kinds = [op.kind for op in section.ops]
    return {
        "ops": [op.name for op in section.ops],
        "kinds": kinds,
        "live_bytes": plan.schedule.profile[step],
        "macs": macs,
        "calls": section.calls,
    }


def _tiling(plan: Plan, step: int) -> dict[str, Any]:
    """A rolled run: nothing is computed twice, so no extra MACs."""
    section = plan.steps[step]
    assert section.rolled is not None
    rings = section.rolled.rings
    whole = sum(plan.graph.tensors[name].bytes for name in (*rings, *section.rolled.inside))
    return {
        "kind": "rolling",
        "ops": [op.name for op in section.ops],
        "parts": section.calls,
        "saved_bytes": whole
        - sum(section.inner[name] for name in (*rings, *map(newest_name, section.rolled.separate))),
        "extra_macs": 0,
    }


def _fused(plan: Plan) -> list[dict[str, Any]]:
    """Paths whose ops are cut into parts."""
    found = []
    for choice in plan.fused.tilings if plan.fused else ():
        assert choice.tiling is not None
        path = choice.tiling.path
        row: dict[str, Any] = {"kind": path.method, "ops": [op.name for op in path.ops]}
        row |= {"parts": choice.tiling.parts, "saved_bytes": choice.saved, "extra_macs": choice.extra_macs}
        found.append(row)
    return found


def _constant_channels(graph: Graph) -> dict[str, Any]:
    """Channels that never vary, those of them that are not computed, and the multiply-accumulates that this saves."""
    rows = [(r.tensor, r.constant, r.channels, r.total) for r in graph.removed]
    keys = ("name", "constant", "removed", "channels")
    return {"macs": graph.removed_macs, "tensors": [dict(zip(keys, row, strict=True)) for row in rows]}


def _buffers(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    for b in plan.buffers:
        t = plan.graph.tensors[b.tensor]
        name = scratch_name(b.tensor) if b.scratch else newest_name(b.tensor) if b.newest else b.tensor
        row: dict[str, Any] = {"name": name, "bytes": b.bytes, "memory": b.place.memory, "offset": b.place.offset}
        row |= {"first": b.first, "last": b.last}
        row |= {"scratch_of": b.tensor} if b.scratch else {"dtype": t.dtype, "shape": list(t.shape)}
        row |= {"newest_of": b.tensor} if b.newest else {}
        row |= {"view_of": b.view_of} if b.view_of else {}
        row |= {"overlaps": b.overlaps} if b.overlaps else {}
        row |= {"rows": b.rows} if b.rows else {}
        row |= {"calls": list(b.calls)} if b.calls else {}
        rows.append(row)
    return rows


def _surface(t: Tensor, function: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": t.name,
        "function": function,
        "dtype": t.dtype,
        "shape": list(t.shape),
        "bytes": t.bytes,
    }
    if t.quant is not None:
        row |= {"scale": t.quant.scale[0], "zero_point": t.quant.zero_point[0]}
    return row


def _levels(plan: Plan, weights: Weights) -> dict[str, Any]:
    """Levels, the steps that run in the first of them, and what their copies come to."""
    layers = [_level_step(plan, i) for i in range(len(plan.steps))]
    near = {name for engine in plan.target.engines for name in engine.memories}
    levels = [*plan.target.levels, *(m for m in plan.target.memories if m.name in near and not m.level)]
    heights = Counter(plan.layout.heights)
    heights[plan.weights_memory] += weights.linked_bytes
    moved = [row for row in layers if row["operands"]]
    keys = ("transfers", "bytes", "pieces")
    total = sum(row["cycles"] for row in layers)
    alone = sum(cycles for section in plan.steps if section.moves is not None for cycles in section.moves.whole)
    bound = min(total, alone)  # kernels may like tiles better
    return {
        "modelled": True,
        "method": plan.request.map,
        "levels": [{"name": m.name, "bytes": m.size, "used_bytes": heights[m.name]} for m in levels],
        "cycles": {
            "total": total,
            "compute": sum(row["compute_cycles"] for row in layers),
            "moved": sum(row["dma_cycles"] for row in layers),
            "bound": bound,
            "gap_percent": round(100 * (total / bound - 1), 3) if bound else 0.0,
            "optimal": total <= bound,
        },
        "moved": {key: sum(o[key] for row in moved for o in row["operands"]) for key in keys},
        "activation_bytes": sum(o["bytes"] for row in moved for o in row["operands"] if o["tensor"] != "weights"),
        "layers": layers,
        "residency": [
            {"tensor": b.tensor, "level": b.place.memory, "first": b.first, "last": b.last}
            for b in plan.buffers
            if b.view_of is None
        ],
    }


def _level_step(plan: Plan, step: int) -> dict[str, Any]:
    section = plan.steps[step]
    moved = section.moves
    if isinstance(moved, StreamedRun):
        row = _run(plan, section.name, moved)
    elif isinstance(moved, TiledOp):
        row = _layer(plan, moved)
    else:
        assert moved is not None
        row = {"node": section.name, "engine": "cpu", "why": moved.why or NO_TILE, "loops": [], "operands": []}
        return row | {"compute_cycles": moved.whole[0], "dma_cycles": 0, "cycles": moved.whole[0], "calls": 1}
    inside = [c.total for c in moved.copies if c.into] if isinstance(moved, TiledOp) else []
    early, waited = list[dict[str, Any]](), 0.0
    for into in (False, True):
        mine = [(first, s) for first, s in starts(plan) if s.step == step and s.copy.into == into]
        if mine:
            cycles = sum(s.waited for _, s in mine)
            early.append(_fetched(plan, step, mine, inside if into else [], cycles))
            waited += cycles
    return row | {"operands": row["operands"] + early, "cycles": row["cycles"] + waited}


def _fetched(
    plan: Plan, step: int, mine: Sequence[tuple[int, Start]], inside: Sequence[int], cycles: float
) -> dict[str, Any]:
    """The copies of a step's constants that begin between steps, and those to the same place `inside` of it."""
    first, copy = mine[0][0], mine[0][1].copy
    ends = (
        (plan.weights_memory, copy.stage)
        if copy.into
        else (copy.stage or plan.weights_memory, plan.target.levels[0].name)
    )
    sizes = [*(s.copy.bytes for _, s in mine), *inside]
    row = _operand("weights", *ends, 0, SLOTS if inside else 1, sizes, len(sizes), cycles)
    return row | {"ahead": plan.steps[first].name} if first < step or not copy.into else row


def _operand(
    tensor: str, source: str, target: str, depth: int, buffers: int, sizes: Sequence[int], pieces: int, cycles: float
) -> dict[str, Any]:
    """Copies of a tensor, or of constants; `sizes`: bytes of each."""
    row: dict[str, Any] = {"tensor": tensor, "from": source, "to": target, "depth": depth, "buffers": buffers}
    row |= {"tile_bytes": max(sizes, default=0), "transfers": len(sizes), "bytes": sum(sizes), "pieces": pieces}
    return row | {"cycles": cycles}


def _run(plan: Plan, name: str, run: StreamedRun) -> dict[str, Any]:
    """A run in the first level."""
    near, operands = plan.target.levels[0].name, list[dict[str, Any]]()
    for s in run.streams:
        far = plan.places[s.storage].memory
        ends = (far, near) if s.fetched else (near, far)
        sizes = [s.total] if s.whole else [s.most] * (s.copies - 1) + [s.total - s.most * (s.copies - 1)]
        cycles = run.cycles.each[s.storage] * s.copies
        operands.append(_operand(s.storage, *ends, 1, s.slots, sizes, s.copies, cycles))
    blocks = [b.data.nbytes for b in run.blocks if b.data.nbytes]
    if blocks and not run.prefetched:
        far = run.stage.memory if run.stage is not None else plan.weights_memory
        operands.append(_operand("weights", far, near, 0, 1, blocks, len(blocks), run.cycles.constants))
    return {
        "node": name,
        "nodes": [op.name for op in run.ops],
        "engine": "cpu",
        "why": "a run by rows, which the DMA feeds and drains",
        "loops": [],
        "operands": operands,
        "calls": run.cycles.calls,
        "near_bytes": run.level1_bytes,
        "compute_cycles": run.cycles.compute,
        "dma_cycles": run.cycles.beside + run.cycles.constants,
        "cycles": run.cycles.total,
    }


def _layer(plan: Plan, moved: TiledOp) -> dict[str, Any]:
    return {
        "node": moved.op.name,
        "engine": moved.engine,
        "why": moved.why,
        "loops": [asdict(loop) for loop in moved.loops],
        "operands": [_tiles(plan, moved, i) for i, operand in enumerate(moved.operands) if not operand.held],
        "calls": len(moved.turns),
        "near_bytes": sum(moved.used(r) for r in moved.regions) or moved.level1_bytes,
        "compute_cycles": moved.cycles.compute,
        "dma_cycles": moved.cycles.dma,
        "cycles": moved.cycles.total,
    }


def _tiles(plan: Plan, moved: TiledOp, number: int) -> dict[str, Any]:
    """The copies of an operand."""
    o, copies = moved.operands[number], [c for c in moved.copies if c.channel // 2 == number]
    stage = next((c.stage for c in copies if c.stage), "")
    far = stage or plan.weights_memory if o.packed else plan.places[plan.rolling.storage[o.name]].memory
    ends = (o.space, far) if o.result else (far, o.space)
    pieces = sum(c.rows * c.planes for c in copies)
    return _operand(o.name, *ends, o.depth, o.buffers, [c.total for c in copies], pieces, o.cycles)
