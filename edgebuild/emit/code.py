"""The model's C: one function for each distinct kernel, and the invoke function, which is the schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import ops
from ..explore import Plan
from ..ir import Tensor
from ..ops.base import C_TYPES
from ..rolling import rows_of
from .clocked import header_view
from .environment import render
from .names import access_functions, at_macro, comment, first_memory, literal, offset_names, shape_text
from .program import Program, Roll, address
from .storage import arenas


@dataclass(frozen=True)
class Port:
    """An input or output as the header shows it."""

    label: str
    function: str
    macro: str
    type: str
    tensor: Tensor
    at: str
    shape: str
    scale: str | None
    zero: int | None


def _ports(plan: Plan, names: Iterable[str]) -> list[Port]:
    functions, found = access_functions(plan), []
    for name in names:
        t = plan.graph.tensors[name]
        scale, zero = (literal(float(t.quant.scale[0])), t.quant.zero_point[0]) if t.quant else (None, None)
        macro, shape = functions[name].upper(), "x".join(map(str, t.shape)) or "1"
        at = address(plan, t)
        found.append(Port(comment(name), functions[name], macro, C_TYPES[t.dtype], t, at, shape, scale, zero))
    return found


def _frame(plan: Plan) -> dict[str, Any]:
    """What both header and source show."""
    caller = plan.request.arena == "caller"
    return {
        "name": plan.name,
        "prefix": plan.name.upper(),
        "file": comment(plan.graph.file),
        "target": plan.target.name,
        "caller": caller,
        "argument": "void *arena" if caller else "void",
        "arena_bytes": plan.arena_bytes,
        "inputs": _ports(plan, plan.graph.inputs),
        "outputs": _ports(plan, plan.graph.outputs),
        "macs": ops.macs(plan.graph),
        "clocks": header_view(plan),
        "stream": plan.rolling.streamed is not None,
        "stream_rows": rows_of(plan.graph, plan.graph.inputs[0]) if plan.rolling.streamed else 0,
    }


def header(p: Program) -> str:
    return render("model.h.j2", **_frame(p.plan))


def source(p: Program) -> str:
    plan = p.plan
    found = arenas(plan) or {first_memory(plan): ("arena", plan.arena_bytes)}
    macros = [(at_macro(plan, memory), symbol, size) for memory, (symbol, size) in found.items()]
    body = "".join(f.text for f in p.functions)
    return render(
        "model.c.j2",
        functions=p.functions,
        steps=[(step, isinstance(step, Roll)) for step in p.steps],
        helpers=p.helpers,
        arenas=macros,
        offsets=_offsets(plan, {memory: size for memory, (_, size) in found.items()}),
        uses_memcpy="memcpy(" in body or plan.rolling.streamed is not None,
        uses_weights=bool(p.weights.offsets),
        weights_bytes=len(p.weights.blob),
        switch_points=plan.clocks.switch_points if plan.clocks else (),
        returns_to=plan.clocks.returns_to if plan.clocks else None,
        peak=plan.schedule.profile.index(plan.schedule.peak) if plan.steps else 0,
        **_frame(plan),
    )


def _offsets(plan: Plan, sizes: Mapping[str, int]) -> list[dict[str, Any]]:
    """Rows of the table of offsets: one for each tensor that is not a view."""
    names, rows = offset_names(plan), []
    for b in plan.buffers:
        if b.view_of is None:
            kept = f", ring of {b.rows}" if b.rows else ""
            note = f"{shape_text(plan.graph.tensors[b.tensor])}{kept}, steps {b.first} to {b.last}: {comment(b.tensor)}"
            note += f", over {comment(b.overlaps)}" if b.overlaps else ""
            rows.append({"name": names[b.tensor], "offset": b.place.offset, "bytes": b.bytes, "note": note})
            rows[-1]["arena"] = sizes[b.place.memory]
    return rows


def clock_header(plan: Plan) -> str:
    return render("clock.h.j2", **_frame(plan))
