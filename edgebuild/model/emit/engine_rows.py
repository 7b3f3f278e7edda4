"""Which ops run on an engine, and what stands against it for the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import ops
from ..ir import Op
from ..kernels import kernel_of
from ..kernels.offload import engine_call, in_one_line, refusal
from ..ops.base import Kernel
from ..plan.printed import ReachedOp, StreamedRun, TiledOp
from ..plan.search import Plan
from ..plan.section import Section

CORE = "cpu"


def engine_rows(plan: Plan) -> list[dict[str, Any]]:
    """A row for each op in the order of the plan: its MACs, who computes it, and why no engine does."""
    rows = []
    for section in plan.steps:
        for op, kernels in _kernels(plan, section):
            engine = next((k.variant for k in kernels if engine_call(k)), CORE)
            macs = ops.nest(op, plan.graph).mac_count
            why = "" if engine != CORE else _why(plan, section, op)
            rows.append({"node": op.name, "kind": op.kind, "macs": macs, "engine": engine, "why": why})
    return rows


def _kernels(plan: Plan, section: Section) -> Iterator[tuple[Op, tuple[Kernel, ...]]]:
    moved = section.moves
    if isinstance(moved, StreamedRun):
        yield from ((op, tuple(s.kernel for s in parts)) for op, parts in zip(moved.ops, moved.parts, strict=True))
    elif isinstance(moved, TiledOp):
        yield moved.op, tuple(moved.kernels)
    else:
        for op, form in zip(section.ops, section.forms, strict=True):
            yield op, (kernel_of(op, plan.graph, form),)


def _why(plan: Plan, section: Section, op: Op) -> str:
    if isinstance(section.moves, TiledOp | ReachedOp) and section.moves.why:
        return section.moves.why
    refused = [(e, refusal(op, plan.graph, e)) for e in plan.target.engines]
    if all(why for _, why in refused):
        return in_one_line(refused)
    if section.rolled is not None:
        return "it runs by rows, whose operands lie in rings"
    if not any(e.called or e.memories for e in plan.target.engines):
        return "the target names no memories of its engine"
    with_levels = all(not e.called for e in plan.target.engines)
    return "engines with scratchpads need --map" if with_levels and not plan.moves else "the core takes fewer cycles"
