"""The report's section on memory levels. All cycles are modelled; copies are those that the program starts."""

from __future__ import annotations

from typing import Any

from ..plan.moves import MovedLayer
from ..plan.search import Plan
from .storage import Weights


def hierarchy(plan: Plan, weights: Weights) -> dict[str, Any]:
    """Levels, the layers that run in tiles, and what their copies come to."""
    layers = [_layer(plan, s.ops[0].outputs[0]) for s in plan.steps]
    used = {**plan.layout.heights, plan.weights_memory: len(weights.blob)}
    moved = [row for row in layers if row["operands"]]
    keys = ("transfers", "bytes", "pieces")
    return {
        "modelled": True,
        "method": plan.request.map,
        "levels": [{"name": m.name, "bytes": m.size, "used_bytes": used.get(m.name, 0)} for m in plan.target.levels],
        "cycles": {
            "total": sum(row["cycles"] for row in layers),
            "compute": sum(row["compute_cycles"] for row in layers),
            "moved": sum(row["dma_cycles"] for row in layers),
            "bound": sum(row["compute_cycles"] for row in layers),
            "optimal": False,
        },
        "moved": {key: sum(o[key] for row in moved for o in row["operands"]) for key in keys},
        "layers": layers,
        "residency": [
            {"tensor": b.tensor, "level": b.place.memory, "first": b.first, "last": b.last}
            for b in plan.buffers
            if b.view_of is None
        ],
    }


def _layer(plan: Plan, result: str) -> dict[str, Any]:
    moved = plan.moved.get(result)
    if moved is None:
        op = next(s.ops[0] for s in plan.steps if s.ops[0].outputs[0] == result)
        why = "no tile fits: the core reaches its operands where they lie"
        row: dict[str, Any] = {"node": op.name, "engine": "cpu", "why": why, "loops": [], "operands": []}
        return row | {"compute_cycles": 0, "dma_cycles": 0, "cycles": 0, "calls": 1}
    extents = moved.layer.nest.extents
    counts = moved.mapped.counts(moved.layer)
    operands = _operands(plan, moved)
    found = moved.cost
    return {
        "node": moved.op.name,
        "engine": "cpu",
        "why": "tiles by DMA",
        "loops": [
            {"axis": a, "extent": extents[a], "tile": moved.mapped.tile[a], "count": counts[a]}
            for a in moved.mapped.order
        ],
        "operands": operands,
        "calls": len(moved.turns),
        "near_bytes": moved.near_bytes,
        "compute_cycles": found.compute,
        "dma_cycles": found.dma,
        "cycles": found.total,
    }


def _operands(plan: Plan, moved: MovedLayer) -> list[dict[str, Any]]:
    near = moved.layer.operands[0].space
    rows = []
    for i, (operand, move, cost) in enumerate(
        zip(moved.layer.operands, moved.mapped.moves, moved.cost.operands, strict=True)
    ):
        copies = [c for c in moved.copies if c.channel // 2 == i]
        far = plan.weights_memory if operand.packed else plan.places[plan.rolling.storage[operand.name]].memory
        ends = {"from": near, "to": far} if operand.result else {"from": far, "to": near}
        pieces = sum(c.rows * c.planes for c in copies)
        size = sum(c.total for c in copies)
        row: dict[str, Any] = {"tensor": operand.name, **ends, "depth": move.depth, "buffers": move.buffers}
        row |= {"tile_bytes": max((c.total for c in copies), default=0), "transfers": len(copies)}
        row |= {"bytes": size, "pieces": pieces, "cycles": cost.cycles}
        rows.append(row)
    return rows
