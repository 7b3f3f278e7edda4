"""The linker script fragment that puts weights and arenas into the memories of the plan."""

from __future__ import annotations

from ...base.templates import render
from ..plan.search import Plan
from .names import comment
from .weights_file import sections


def fragment(plan: Plan) -> str:
    """Empty but for a comment where the target has no firmware to link."""
    return render(
        "memory.ld.j2",
        name=plan.name,
        file=comment(plan.graph.file),
        used=plan.target.firmware is not None,
        weights_memory=plan.weights_memory,
        arenas=sections(plan),
    )
