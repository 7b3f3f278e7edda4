"""The report: all that was decided about a model, as JSON without times or paths."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .. import ops
from ..ir import Graph, Tensor
from ..plan.printed import newest_name
from ..plan.rolling import rows_of
from ..plan.search import Plan, state_bytes
from ..plan.section import scratch_name
from .levels_report import hierarchy
from .names import access_functions
from .trade import trade_rows
from .weights_file import HEADER, Weights

if TYPE_CHECKING:
    from ..energy.step_clocks import ClockSchedule

SCHEMA = 1


def report(plan: Plan, weights: Weights, sha256: str) -> str:
    graph, arena = plan.graph, plan.arena_bytes
    functions = access_functions(plan)
    macs = ops.macs(graph)
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "model": {"name": plan.name, "file": graph.file, "sha256": sha256, "format": graph.format or graph.arithmetic},
        "target": plan.target.name,
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
        "state_bytes": state_bytes(graph),
        "needs_libm": False,
        "arena": plan.request.arena,
        "stream_rows": rows_of(graph, graph.inputs[0]) if plan.rolling.streamed else 0,
    }
    if plan.tiled or (plan.request.tile == "auto" and plan.clocks is None):
        data["trade_off"] = trade_rows(plan)
        data["price"] = dict(zip(("instructions", "cycles"), (round(more - 1, 4) for more in plan.price), strict=True))
    if plan.moved or plan.why:
        data["hierarchy"] = hierarchy(plan, weights)
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
