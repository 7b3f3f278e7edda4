"""The pipelines of models, each a short function from request to artifacts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..base import progress
from ..base.artifacts import Artifact
from ..base.errors import Diagnostic, EdgebuildError, did_you_mean, fail, is_strict
from ..base.request import ModelRequest
from ..base.target import Memory, Target, load_target
from . import ops
from .emit import code, weights_file
from .emit.code import Program
from .emit.code import program as program_of
from .emit.report import report
from .formats import read_model
from .formats.format import Bound, Shapes
from .interface_of import with_arrays
from .ir import Graph, dump, verify
from .passes.canonicalize import STAGES, canonicalize, stages
from .passes.constants import remove_constants
from .passes.powers import FORMAT, powers_of_two
from .plan.choose import check_self_test, check_steps, interpreted, interprets, plan, warn_of
from .plan.search import Plan
from .program_size import program_bytes

SCALARS = 64  # bytes: constants of few elements may become arguments of their kernels


def compile_model(request: ModelRequest) -> tuple[Artifact, ...]:
    """All generated files of a model. Raises EdgebuildError if the model or the request is invalid."""
    if request.cluster is not None or request.device is not None:
        hints = ["`edgebuild model` and builds make the part of a device, `edgebuild distribute` those of all"]
        raise fail("options 'cluster' and 'device': not for this", file=str(request.cluster or ""), hints=hints)
    target = load_target(request.target)
    for text in request.ineffective_options:
        progress.warn(Diagnostic(text, str(request.source), severity="warning"))
    decided = plan_model(request, target)
    digest = hashlib.sha256(request.source.read_bytes()).hexdigest()
    try:
        artifacts = emit(decided, digest)
    except EdgebuildError:
        raise
    except Exception as bug:
        if is_strict() or not decided.tiled or request.stream_input is not None:
            raise
        warn_of(bug, "printing the tiled plan", decided.graph.file)
        decided = plan_model(replace(request, tile="off"), target)
        artifacts = emit(decided, digest)
    check_weights(decided, len(next(a.data for a in artifacts if a.name.endswith("_weights.bin"))), target)
    if target.firmware is not None:
        written = next(a.data for a in artifacts if a.name.endswith("_report.json"))
        warn_of_code(decided, json.loads(written)["rom"], target)
    return artifacts


def emit(plan: Plan, sha256: str) -> tuple[Artifact, ...]:
    """The generated files of a model, in the order of `request.model_outputs`.

    `sha256`: of the model file, for the report and the note.
    """
    program = program_of(plan)
    if plan.request.set_weights:
        program = replace(program, weights=_replaceable(program))
    texts = {
        ".c": (source := code.source(program)),
        ".h": code.header(program),
        "_arena.h": code.arena_header(plan),
        "_weights.S": weights_file.assembly(plan, program.weights, sha256),
        "_weights.c": weights_file.portable(plan, program.weights, sha256),
        "_memory.ld": weights_file.fragment(plan),
        "_check.ld": weights_file.check(plan),
        "_clock.h": code.clock_header(plan),
        "_report.json": report(program, sha256, program_bytes(source, plan.target)),
    }
    files = {plan.name + suffix: text.encode() for suffix, text in texts.items()}
    files[f"{plan.name}_weights.bin"] = program.weights.blob
    return tuple(Artifact(plan.name + suffix, files[plan.name + suffix]) for suffix in plan.request.SUFFIXES)


def _report(plan: Plan) -> str:
    program = program_of(plan)
    return report(program, "", program_bytes(code.source(program), plan.target))


def _replaceable(program: Program) -> weights_file.Weights:
    """The weights with a hash of the C, so that it accepts no other program's; the model's file name does not count.

    Raises EdgebuildError if weights cannot be replaced.
    """
    plan, weights = program.plan, program.weights
    file, hints = plan.graph.file, ["leave --set-weights out"]
    if not weights.offsets:
        raise fail("option 'set_weights': the model has no weights", file=file, hints=hints)
    if plan.request.device is not None or plan.moves:  # a copy of weights may outlast the inference that made it
        raise fail("option 'set_weights': neither with --cluster nor with --map", file=file, hints=hints)
    nameless = replace(program, plan=replace(plan, graph=replace(plan.graph, file="")))
    return weights_file.bound_to(weights, code.source(nameless))


def plan_model(request: ModelRequest, target: Target) -> Plan:
    if request.flash is not None and (request.map != "off" or request.objective == "energy"):
        raise fail("option 'flash': not with --map, nor with --objective energy", hints=["leave one of them out"])
    if request.map != "off":
        return _mapped_plan(request, target)
    if (store := target.memory("weights")).access == "dma":
        text = f"weights lie in {store.name} of target {target.name}, which only its DMA unit reaches"
        raise fail(text, file=target.files[0], hints=["give --map auto, layer or dory"])
    choose = _clocked_plan if request.objective == "energy" else plan
    graph = with_arrays(graph_of(request), request)
    check_constants(graph, target)
    return choose(graph, target, request)


def _clocked_plan(graph: Graph, target: Target, request: ModelRequest) -> Plan:
    from .clocked import clocked_plan  # late: few requests need clocks

    return clocked_plan(graph, target, request)


def _mapped_plan(request: ModelRequest, target: Target) -> Plan:
    """The plan of ops whose operands move between the target's memory levels."""
    from .plan.dma.assembly import check_request, mapped_plan, with_dma_memories  # late: few targets have levels
    from .plan.dma.levels import limited

    target = with_dma_memories(limited(target, request.limit))
    check_request(target, request)
    check_steps(request, target)
    graph = with_arrays(graph_of(request), request)
    check_self_test(request, graph)
    chosen = mapped_plan(graph, target, replace(request, tile="off"))
    return interpreted(graph, chosen) if interprets(graph) else chosen


def graph_of(request: ModelRequest) -> Graph:
    """The canonical graph of a request; see `prepare`."""
    return prepare(request.source, request.shape, request.outputs, request.bind, request.scales)


def prepare(
    source: Path, shapes: Shapes = (), outputs: tuple[str, ...] = (), bound: Bound = (), scales: str = "file"
) -> Graph:
    """Model file to canonical graph, without the channels that never vary. See `read_model` for the options."""
    graph = read_model(source, shapes, outputs, bound)
    verify(graph, ops.result_shape)
    graph = remove_constants(canonicalize(graph))
    if scales != FORMAT:
        return graph
    graph = powers_of_two(graph)
    verify(graph, ops.result_shape)
    return graph


def check_constants(graph: Graph, target: Target) -> None:
    """Raise EdgebuildError, before any search, if the constants cannot fit the memory of the weights.

    A lower bound: each different int8 or float32 constant counts once; kernels may store others in fewer bytes.
    """
    read = {n: graph.tensors[n] for op in graph.ops for n in op.inputs}
    kept = {t.data.tobytes() for t in read.values() if t.data is not None and t.dtype in ("int8", "float32")}
    memory = next(m for m in target.memories if "weights" in m.roles)
    _check_size(sum(len(data) for data in kept if len(data) > SCALARS), memory, target, graph.file, "at least ")


def check_weights(decided: Plan, size: int, target: Target) -> None:
    memory = target.memory_named(decided.weights_memory)
    _check_size(size, memory, target, decided.graph.file)


def warn_of_code(decided: Plan, rom: Mapping[str, Any], target: Target) -> None:
    """Warn if code may not fit its memory, with the weights that lie there. `rom`: that of the report.

    Code is estimated for the compiler flags of the target, so only the link can refuse it.
    """
    memory, size = target.memory("code"), rom["estimated_code_bytes"]
    weights = rom["weights_bytes"] if decided.weights_memory == memory.name else 0
    if size + weights > memory.size:
        beside = f" and weights {weights} B" if weights else ""
        text = f"may not fit: code about {size} B{beside}, memory {memory.name} of {target.name} has {memory.size} B"
        hint = f"over by about {size + weights - memory.size} B; use --optimize size or a target with more flash"
        progress.warn(Diagnostic(text, decided.graph.file, hints=(hint,), severity="warning"))


def _check_size(size: int, memory: Memory, target: Target, file: str, least: str = "") -> None:
    if size > memory.size:
        text = f"does not fit: weights {least}{size} B, memory {memory.name} of {target.name} has {memory.size} B"
        hint = f"over by {size - memory.size} B; use a target with more flash or a smaller model"
        raise fail(text, file=file, hints=[hint])


def graphs(request: ModelRequest) -> Iterator[tuple[str, Graph]]:
    """The graph after each stage, by name: `import`, the stages of the canonicaliser, `constants`."""
    graph = read_model(request.source, request.shape, request.outputs, request.bind)
    yield "import", graph
    yield from stages(graph)
    yield "constants", remove_constants(canonicalize(graph))


def graph_after(request: ModelRequest, after: str) -> Graph:
    """The graph after a stage; see `graphs`. Raises EdgebuildError for an unlisted stage."""
    names = ["import", *(name for name, _ in STAGES), "constants"]
    if after not in names:
        raise fail(f"unknown stage '{after}'{did_you_mean(after, names)}", hints=[f"one of: {', '.join(names)}, plan"])
    return next(graph for name, graph in graphs(request) if name == after)


def inspect(request: ModelRequest, after: str) -> str:
    """The model as text after a stage; see `graphs`."""
    return dump(graph_after(request, after))


def drawn_graph(request: ModelRequest, after: str) -> bytes:
    """The graph after a stage, or as it is planned, as an ONNX file to look at; see `views.drawing`."""
    from .views.drawing import onnx_file

    if after != "plan":
        return onnx_file(graph_after(request, after))
    decided = plan_model(request, load_target(request.target))
    return onnx_file(decided.graph, json.loads(_report(decided)))


def inspect_stages(request: ModelRequest) -> str:
    """The model as it is read, and then the lines that each stage removes (-) and adds (+)."""
    from difflib import unified_diff  # late: compilations show no difference

    before, lines = list[str](), list[str]()
    for name, graph in graphs(request):
        after = [re.sub(r"^ +\d+ ", "    ", line) for line in dump(graph).splitlines()]  # numbers of ops change
        changed = [line for line in [*unified_diff(before, after, lineterm="", n=0)][2:] if line[0] != "@"]
        lines += [f"after {name}:", *((changed or ["  no change"]) if before else after)]
        before = after
    return "\n".join(lines) + "\n"


def inspect_plan(
    request: ModelRequest, tiling: bool, scale: int | None = None, energy: bool = False
) -> tuple[str, str, str, str]:
    """The plan as text, its picture, the picture of its trade-offs, and its report.

    With `tiling` or `energy` the text is in words. `scale`: see `memory_picture`.
    """
    from .emit.pictures import clock_picture
    from .emit.report import steps, tiling_words, trade_rows
    from .views.drawing import memory_picture, trade_picture

    decided = plan_model(request, load_target(request.target))
    if energy:
        text = code.energy_words(decided)
    else:
        text = tiling_words(decided) if tiling else dump(decided.graph) + steps(decided)
    written = _report(decided)
    drawn = clock_picture(decided.clocks) if decided.clocks and energy else memory_picture(json.loads(written), scale)
    return text, drawn.svg(), trade_picture(trade_rows(decided), decided.graph.file).svg(), written
