"""Plan to artifacts: everything that a model becomes."""

from __future__ import annotations

from dataclasses import replace

from ...base.artifacts import Artifact
from ...base.errors import fail
from ..plan.search import Plan
from . import code, report, weights_file
from .program import Program
from .program import program as make_program


def emit(plan: Plan, sha256: str) -> tuple[Artifact, ...]:
    """The generated files of a model, in the order of `request.model_outputs`.

    `sha256` is that of the model file, for the report and the note.
    """
    program = make_program(plan)
    if plan.request.set_weights:
        program = replace(program, weights=_replaceable(program))
    texts = {
        ".c": code.source(program),
        ".h": code.header(program),
        "_arena.h": code.arena_header(plan),
        "_weights.S": weights_file.assembly(plan, program.weights, sha256),
        "_weights.c": weights_file.portable(plan, program.weights, sha256),
        "_memory.ld": weights_file.fragment(plan),
        "_check.ld": weights_file.check(plan),
        "_clock.h": code.clock_header(plan),
        "_report.json": report.report(plan, program.weights, sha256),
    }
    files = {plan.name + suffix: text.encode() for suffix, text in texts.items()}
    files[f"{plan.name}_weights.bin"] = program.weights.blob
    return tuple(Artifact(plan.name + suffix, files[plan.name + suffix]) for suffix in plan.request.SUFFIXES)


def _replaceable(program: Program) -> weights_file.Weights:
    """Weights that the program tells from those of another, whatever the model's file is called.

    Raises EdgebuildError where none can be replaced.
    """
    plan, weights = program.plan, program.weights
    file, hints = plan.graph.file, ["leave --set-weights out"]
    if not weights.offsets:
        raise fail("option 'set_weights': the model has no weights", file=file, hints=hints)
    if plan.request.device is not None or plan.moves:  # a copy of weights may outlast the inference that made it
        raise fail("option 'set_weights': neither with --cluster nor with --map", file=file, hints=hints)
    nameless = replace(program, plan=replace(plan, graph=replace(plan.graph, file="")))
    return weights_file.bound_to(weights, code.source(nameless))
