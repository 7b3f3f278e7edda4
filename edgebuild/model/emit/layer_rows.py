"""Rows of the report for each op: calls, work, constants and estimates. Each column adds up to its total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from .. import ops
from ..ir import Op
from ..kernels import kernel_of
from ..kernels.core_cycles import cycles_of
from ..ops.base import Constant
from ..plan.printed import Moves, StreamedRun
from ..plan.search import Plan
from .addresses import fetched
from .weights_file import HEADER, Weights


def layer_rows(plan: Plan) -> list[dict[str, Any]]:
    """Ops in the order of steps. Constants that ops share count at the first of them.

    Instructions and cycles are estimates; cycles only where the core has a figure, energy where clocks were chosen.
    """
    rows, sizes = list[dict[str, Any]](), _constant_bytes(plan)
    energy = {y["name"]: y["energy_uj"] for y in _energies(plan)}
    for step, section in enumerate(plan.steps):
        costs = list[float]()
        for op, form, calls in zip(section.ops, section.forms, section.calls_of, strict=True):
            kernel = kernel_of(op, plan.graph, form)
            touched = plan.graph.operands(op)
            row: dict[str, Any] = {
                "name": op.name,
                "kind": op.kind,
                "step": step,
                "kernel": kernel.variant,
                "calls": calls,
                "macs": ops.nest(op, plan.graph).mac_count,
                "read_bytes": sum(t.bytes for t in touched if not t.constant),
                "written_bytes": plan.graph.result(op).bytes,
                "weights_bytes": sizes[op.outputs[0]],
                "estimated_instructions": round(calls * kernel.estimate),
            }
            costs.append(calls * kernel.cost)
            if (cycles := cycles_of(plan.target, costs[-1])) is not None:
                row["estimated_cycles"] = round(cycles)
            rows.append(row)
        if section.name in energy:
            _share_energy(rows[-len(section.ops) :], costs, energy[section.name])
    return rows


def totals(rows: list[dict[str, Any]], plan: Plan, weights: Weights) -> dict[str, Any]:
    """Sums of the columns; what the weights file has besides is its header, and padding between constants."""
    keys = ("calls", "macs", "weights_bytes", "estimated_instructions")
    sums = {key: sum(row[key] for row in rows) for key in keys}
    if rows and "estimated_cycles" in rows[0]:
        sums["estimated_cycles"] = sum(row["estimated_cycles"] for row in rows)
        if plan.target.clock_hz:
            sums["estimated_time_us"] = round(sums["estimated_cycles"] / plan.target.clock_hz * 1e6, 3)
    header = HEADER if weights.offsets else 0
    return {**sums, "padding_bytes": weights.linked_bytes - header - sums["weights_bytes"]}


def _energies(plan: Plan) -> list[dict[str, Any]]:
    if plan.clocks is None:
        return []
    chosen = zip(plan.clocks.problem.layers, plan.clocks.selection.points, strict=True)
    return [{"name": layer.name, "energy_uj": point.energy_uj} for layer, point in chosen]


def _share_energy(rows: list[dict[str, Any]], costs: list[float], energy: float) -> None:
    """A step has one clock, so its energy is shared among its ops by their cost."""
    total = sum(costs)
    for row, cost in zip(rows, costs, strict=True):
        row["energy_uj"] = energy * (cost / total if total else 1 / len(rows))


def _constant_bytes(plan: Plan) -> Counter[str]:
    """By result of each op: bytes of the constants that no op before it has."""
    sizes, packed = Counter[str](), set[tuple[str, bytes]]()
    for op, constant in _constants(plan):
        key = str(constant.data.dtype), constant.data.tobytes()
        if key not in packed:
            packed.add(key)
            sizes[op.outputs[0]] += constant.data.nbytes
    return sizes


def _constants(plan: Plan) -> Iterator[tuple[Op, Constant]]:
    for step, section in enumerate(plan.steps):
        moved = section.moves
        if isinstance(moved, Moves):
            blocks = fetched(plan, step, moved)
            owners = moved.ops if isinstance(moved, StreamedRun) and len(blocks) == len(moved.ops) else ()
            for number, block in enumerate(blocks):
                if block.data.nbytes:
                    yield (owners[number] if owners else section.ops[0]), block
        else:
            for op, form in zip(section.ops, section.forms, strict=True):
                for constant in kernel_of(op, plan.graph, form).constants:
                    yield op, constant
