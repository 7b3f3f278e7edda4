"""Plan to artifacts: everything that a model becomes."""

from __future__ import annotations

from ...base.artifacts import Artifact
from ..plan.search import Plan
from . import code, report, weights_file
from .program import program as make_program


def emit(plan: Plan, sha256: str) -> tuple[Artifact, ...]:
    """The generated files of a model, in the order of `request.model_outputs`.

    `sha256` is that of the model file, for the report.
    """
    program = make_program(plan)
    texts = {
        ".c": code.source(program),
        ".h": code.header(program),
        "_arena.h": code.arena_header(plan),
        "_weights.S": weights_file.assembly(plan, program.weights),
        "_weights.c": weights_file.portable(plan, program.weights),
        "_memory.ld": weights_file.fragment(plan),
        "_check.ld": weights_file.check(plan),
        "_clock.h": code.clock_header(plan),
        "_report.json": report.report(plan, program.weights, sha256),
    }
    files = {plan.name + suffix: text.encode() for suffix, text in texts.items()}
    files[f"{plan.name}_weights.bin"] = program.weights.blob
    return tuple(Artifact(plan.name + suffix, files[plan.name + suffix]) for suffix in plan.request.SUFFIXES)
