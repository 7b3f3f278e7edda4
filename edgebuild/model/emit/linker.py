"""Linker scripts of a model: one puts weights and arenas into the memories of the plan, one checks other scripts."""

from __future__ import annotations

from ...base.target import LISTS
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


def check(plan: Plan) -> str:
    """Assertions that somebody's linker script places arenas, state and a DMA unit's lists; empty but for a comment on
    the host.
    """
    lists = [".bss.edgebuild.lists"] if any(LISTS in m.roles for m in plan.target.memories) else []
    return render(
        "check.ld.j2",
        name=plan.name,
        file=comment(plan.graph.file),
        used=plan.target.core.isa != "native",  # where linkers know no scripts
        sections=[*(section for _, _, _, section in sections(plan)), f".bss.edgebuild.{plan.name}.state", *lists],
    )
