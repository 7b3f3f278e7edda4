"""`verify`: build a test firmware around a compiled model, run it, compare with the oracle, measure."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ...base.artifacts import Artifact
from ...base.errors import EdgebuildError, fail
from ...base.inputs import read_part
from ...base.target import Flash, Target, hal_dir, load_target, target_names
from .. import ops
from ..compile import prepare
from ..formats.text import GRAPH_TEXT, is_graph_text
from ..ir import Array, Graph
from . import harness as flashes
from .execution import cycles, layers
from .harness import (
    NAME,
    SANITIZERS,
    Builder,
    ElfSizes,
    Outcome,
    folder_of,
    read_sizes,
    run_harness,
    sources,
    write_sources,
)
from .oracles import Port, Reading, Reference, fit, judge_of_open_c, reference
from .recording import Plot, Round, Seen, directed_rounds, record, source_of
from .rounding import Rng, distance, limit, moves
from .stepwise import judged, rounds_to_steps, stepwise
from .vectors import Given, accuracy, random_inputs, read_labels, scale_loss, split_vectors

VECTORS = 5


def verify(
    model_path: Path,
    target: Target,
    artifacts: Sequence[Artifact],
    inputs: Given | None = None,
    keep: Path | None = None,
    by_layer: bool = False,
    by_cycles: bool = False,
    library: Path | None = None,
    dma: str | None = None,
    reading: Reading = ((), ()),
    flash_of: str | None = None,
    labels: Path | None = None,
    every: bool = False,
) -> dict[str, Any]:
    """Run the compiled model on `target`, compare its outputs with the oracle's, and measure sizes and instructions.

    `artifacts`: files that `compile_model` made under the name "model" for this target. `inputs`: vectors from
    `read_inputs`; default: random ones. `keep`: a folder for the test program. `by_layer`: count each step, too.
    `dma`: when the simulated DMA unit moves bytes: eager, lazy or random:SEED. `by_cycles`: model the cycles of the
    first invoke. `flash_of`: the target whose flash wait states count; default: this one. `library`: the folder of
    CMSIS-NN, if the model calls it. `reading`: shapes and outputs with which the model was read. `labels`: a file of
    classes. `every`: record the results of all ops, also of a float model.

    Returns `equal`, `max_abs_diff`, `output` (first vector), `compared` (names of tensors), `differences` (the largest
    of each), `differs` (names that differ by more than the format allows), `unseen` (results that were checked only
    through later results), `inputs_tried`, `instructions` (of the first invoke), `stack_bytes`, `arena_touched_bytes`,
    `layers` and figures of `accuracy` if wanted, and the sizes of `measure`.
    On the build machine sanitizers are on, and figures that cannot be measured there are None. Raises MissingTool
    without compiler, simulator or oracle, EdgebuildError if the program fails or `every` result cannot be recorded.
    """
    report = report_of(artifacts)
    _check_runnable(target)
    _check_judged(model_path)
    vectors = split_vectors(inputs, report) if inputs is not None else random_inputs(model_path, report, VECTORS)
    expected = reference(model_path, vectors, report, reading)
    with folder_of(keep) as folder:
        write_sources(folder, target, artifacts, report, len(vectors))
        builder = Builder(target, folder, bool(report.get("needs_libm")), cmsis_nn=library)
        outcome = _run(builder, vectors, report, dma)
        sizes = _sizes(builder, report) if target.firmware else read_sizes(folder / "harness.elf", NAME, True)
        flash = flashes.flash_of(flash_of) if flash_of else target.flash
        timed = _timed(folder / "harness.elf", target, outcome, flash, flash_of or target.name, by_cycles)
        recording = _recorded(model_path, reading, vectors, artifacts, report, builder, every)
        steps = layers(vectors[0], artifacts, report, builder, by_cycles, flash) if by_layer else None
    compared = _judged(model_path, vectors, expected, outcome, report, reading, recording)
    return {
        "model": model_path.name,
        "target": target.name,
        **compared,
        **({"notes": list(expected.notes)} if expected.notes else {}),
        **_labelled(vectors, outcome, report, labels),
        "inputs_tried": len(vectors),
        **outcome.costs,
        **timed,
        "macs": report["macs"]["model"],
        **(_by_engine(report) | scale_loss(model_path, recording.plot.graph, vectors, reading)),
        **(_figures(sizes, target.firmware is not None) | ({"layers": steps} if by_layer else {})),
    }


def _by_engine(report: dict[str, Any]) -> dict[str, Any]:
    """Layers and MACs of each engine, and the nodes that run on the core, each with the reason."""
    rows = report.get("engines")
    if rows is None:
        return {}
    names = dict.fromkeys(row["engine"] for row in rows if not row["why"])
    of_engine = {name: [row for row in rows if row["engine"] == name] for name in names}
    engines = [{"name": n, "layers": len(each), "macs": sum(r["macs"] for r in each)} for n, each in of_engine.items()]
    return {"engines": engines, "core": [{"node": r["node"], "why": r["why"]} for r in rows if r["why"]]}


def _timed(
    elf: Path, target: Target, outcome: Outcome, flash: Flash | None, board: str, by_cycles: bool
) -> dict[str, Any]:
    """Cycles of one inference and their source: counted if the runner counts cycles, else modelled if `by_cycles`."""
    if outcome.cycles is not None and target.runner is not None:
        return {"cycles": outcome.cycles, "cycles_model": target.runner.cycles}
    return _modelled(elf, target, flash, board) if by_cycles else {}


def _modelled(elf: Path, target: Target, flash: Flash | None, board: str) -> dict[str, Any]:
    """Modelled cycles of one inference, how many of them are waits for the board's flash, and the models' names."""
    with tempfile.TemporaryDirectory(prefix="edgebuild-cycles-") as place:  # keeps results of the first run intact
        for file in (elf, elf.parent / "input.bin"):
            shutil.copy(file, place)
        count, waited, name = cycles(Path(place) / elf.name, target, flash, harness=True)
    if flash is None:
        return {"cycles": count, "cycles_model": name}
    return {
        "cycles": count,
        "cycles_waited": waited,
        "cycles_model": f"{name.removesuffix('; no wait states')}; {flashes.in_words(board, flash)}",
    }


def _check_judged(model: Path) -> None:
    if model.is_file() and is_graph_text(read_part(model, "cannot read the model", 0, len(GRAPH_TEXT))):
        hints = ["verify the model's own file, which an interpreter reads"]
        raise fail("the text of a graph: nothing else knows what it computes", file=str(model), hints=hints)


def _check_runnable(target: Target) -> None:
    if target.firmware is not None and target.runner is None:
        runnable = [t for t in map(load_target, target_names()) if t.runner or t.name == "host"]
        alike = [t.name for t in runnable if (t.core.isa, t.core.features) == (target.core.isa, target.core.features)]
        hints = [f"with the same processor: --target {' or '.join(alike)}"] if alike else []
        raise fail(f"target {target.name} names no `runner:`, so nothing can run its programs",
                   hints=[*hints, "can run: " + ", ".join(t.name for t in runnable)])  # fmt: skip


def _run(builder: Builder, vectors: list[list[Array]], report: dict[str, Any], dma: str | None) -> Outcome:
    """Build the test program and run it; on the build machine with sanitizers."""
    target = builder.target
    harness = replace(builder, extra=() if target.firmware is not None else SANITIZERS)
    io = target.runner.sources if target.runner else ("src/semihost_host.c",)
    hal = [hal_dir() / name for name in ("harness/harness.c", "src/counter.c", *io)]
    elf = harness.program("harness", [*sources(target, report), *hal])
    return run_harness(elf, target, vectors, report, {"EB_DMA": dma} if dma else {})


def measure(target: Target, artifacts: Sequence[Artifact], keep: Path | None = None) -> dict[str, Any]:
    """Link the smallest program with the model in it and read its sizes; needs the compiler, runs nothing.

    `flash_bytes` (code, constants, image of the data), `code_bytes` (the same without the weights), `ram_bytes`
    (data, bss and arena, no stack), `arena_bytes`, `weights_bytes`, `forbidden_symbols` (heap, libm, soft double).
    """
    report = report_of(artifacts)
    with folder_of(keep) as folder:
        write_sources(folder, target, artifacts, report, 1)
        sizes = _sizes(Builder(target, folder, bool(report.get("needs_libm"))), report)
    return _figures(sizes, target.firmware is not None)


def _sizes(builder: Builder, report: dict[str, Any]) -> ElfSizes:
    elf = builder.program("minimal", [*sources(builder.target, report), hal_dir() / "harness/minimal.c"])
    return read_sizes(elf, NAME, allow_libm=builder.needs_libm)


def _figures(sizes: ElfSizes, bare: bool) -> dict[str, Any]:
    """Sizes in bytes as the report has them. On the build machine most are None: they would count its C library."""
    return {
        "flash_bytes": sizes.flash if bare else None,
        "code_bytes": sizes.flash - sizes.weights if bare else None,
        "weights_bytes": sizes.weights,
        "ram_bytes": sizes.ram if bare else None,
        "arena_bytes": sizes.arena,
        "forbidden_symbols": list(sizes.forbidden) if bare else [],
    }


@dataclass(frozen=True)
class Recording:
    """Operands and results of a model's steps. `seen` is empty if the steps cannot be recorded."""

    plot: Plot
    rounds: Sequence[Round] = ()
    seen: Sequence[Seen] = ()


def _recorded(
    model: Path,
    reading: Reading,
    vectors: list[list[Array]],
    artifacts: Sequence[Artifact],
    report: dict[str, Any],
    builder: Builder,
    every: bool,
) -> Recording:
    """Run the model again and record every step, if its results are quantised or `every` is set.

    Steps of quantised models also run on directed operands.
    Raises EdgebuildError if `every` is set and steps cannot be recorded.
    """
    graph = prepare(model, *reading, scales=report["model"]["format"])
    hidden = frozenset(m.name for m in builder.target.memories if m.access == "dma")
    plot = Plot(graph, report, source_of(artifacts), hidden)
    ports = [port["name"] for port in report["inputs"]]
    stepped = rounds_to_steps(graph)
    if not (stepped or every) or not plot.steps:
        return Recording(plot)
    if report["stream_rows"] or not all(map(plot.is_whole, ports)):
        if not every:
            return Recording(plot)
        raise fail("results cannot be recorded of input that comes by rows", hints=["leave --stream-input out"])
    empty = [dict[str, Array]() for _ in plot.steps[1:]]
    rounds = [Round([dict(zip(ports, row, strict=True)), *empty], directed=False) for row in vectors]
    rounds += directed_rounds(plot, rounds[0]) if stepped else []
    return Recording(plot, rounds, record(plot, rounds, builder))


def _judged(
    model: Path,
    vectors: list[list[Array]],
    expected: Reference,
    outcome: Outcome,
    report: dict[str, Any],
    reading: Reading,
    recording: Recording,
) -> dict[str, Any]:
    """Compare results: of quantised models op by op, of float models within what rounding can change."""
    graph = recording.plot.graph
    expected = judge_of_open_c(model, graph, vectors, expected)
    compared = _compare(outcome, expected, report, recording)
    if not rounds_to_steps(graph):
        if not compared["equal"] and _real(compared["differs"], report):
            compared = _compare(outcome, expected, report, recording, _moves(model, vectors, report, reading))
        if not recording.seen:
            return compared | {"judge": expected.judge}
        compared = _by_steps(compared, outcome, recording)
        unseen = _unseen(graph, compared["compared"])
        return compared | {"unseen": unseen, "judge": f"{expected.judge}, and each op by its meaning in numpy"}
    if expected.slack and not report.get("state_bytes"):
        compared = _of_steps(compared, vectors, expected, outcome, report, recording)
    if recording.seen:
        compared = _by_steps(compared, outcome, recording)
    unseen = _unseen(graph, compared["compared"])
    compared |= {"unseen": unseen}
    each = "each op by exact arithmetic" if graph.arithmetic.rounds_once else "each op by its meaning in numpy"
    return compared | {"judge": f"{expected.judge}, and {each}" if recording.seen else expected.judge}


def _unseen(graph: Graph, compared: Sequence[str]) -> list[str]:
    """Results that were checked only through later results, such as those of tiled or streamed models."""
    computed = [op.outputs[0] for op in graph.ops if not ops.SPECS[op.kind].view]
    return [n for n in computed if n not in {*compared, *graph.outputs}]


def _of_steps(
    compared: dict[str, Any],
    vectors: list[list[Array]],
    expected: Reference,
    outcome: Outcome,
    report: dict[str, Any],
    recording: Recording,
) -> dict[str, Any]:
    """Compare a model whose oracle may be one step off: each op's numpy meaning must be within a step of the oracle.

    Without a recording, for which `_by_steps` checks each op, the results must be those of all ops' meanings in turn.
    """
    graph = recording.plot.graph
    if recording.seen and compared["equal"]:
        return compared | {"differences": dict.fromkeys(compared["differences"], 0), "max_abs_diff": 0}
    pairs = _pairs(outcome, expected, report, recording)
    seen = [
        {**{name: values[v][0] for name, values in pairs.items()}, **dict(zip(graph.outputs, row, strict=False))}
        for v, row in enumerate(outcome.outputs)
    ]
    exact = stepwise(graph, vectors, expected, seen)
    if exact is None:
        return compared
    if not recording.seen:
        return _compare(outcome, exact, report, recording)
    same = {"equal": True, "differs": [], "differences": dict.fromkeys(compared["differences"], 0), "max_abs_diff": 0}
    return compared | same


def _by_steps(compared: dict[str, Any], outcome: Outcome, recording: Recording) -> dict[str, Any]:
    """Add the verdict on the recorded steps. The recording's outputs must equal those of the program without fences."""
    judgement = judged(recording.plot, recording.rounds, recording.seen)
    wrong = judgement.wrong
    differences = dict.fromkeys(judgement.names, 0.0) | compared["differences"]
    differs = dict.fromkeys(compared["differs"])
    for w in wrong:
        differs[w.tensor], differences[w.tensor] = None, max(differences.get(w.tensor, 0.0), w.difference)
    for row, seen in zip(outcome.outputs, recording.seen, strict=False):
        for name, computed in zip(recording.plot.graph.ports_out, row, strict=True):
            again = seen.read(name)
            far = 0.0 if again is None else distance(computed, again.reshape(computed.shape))
            differences[name] = max(differences.get(name, 0.0), far)
            differs |= {name: None} if far else {}
    numbered = [{"op": w.op, "index": list(w.index), "tensor": w.tensor, "value": w.value, "right": w.right}
                for w in wrong]  # fmt: skip
    names = list(dict.fromkeys([*compared["compared"], *judgement.names]))
    first = {w["tensor"]: w for w in reversed(numbered)}
    results = [
        {
            "op": op.name,
            "kind": op.kind,
            "tensor": (tensor := op.outputs[0]),
            "seen": tensor in names,
            "equal": tensor not in differs,
            "difference": _number(differences.get(tensor, 0)),
            "first": first.get(tensor),
        }
        for op in recording.plot.graph.ops
        if not ops.SPECS[op.kind].view
    ]
    return {
        **compared,
        "equal": not differs,
        "max_abs_diff": _number(max(differences.values(), default=0)),
        "compared": names,
        "differences": {name: _number(far) for name, far in differences.items()},
        "differs": list(differs),
        "first_difference": numbered[0] if wrong else None,
        "results": results,
        "directed": sum(r.directed for r in recording.rounds),
        "bounds_reached": [judgement.reached, judgement.bounds],
    }


def _number(value: float) -> float:
    """`value`, as an int if it is whole."""
    return value if value % 1 else int(value)


def _real(names: Sequence[str], report: dict[str, Any]) -> bool:
    """Whether any of these tensors is of floats, which rounding may change."""
    tensors = [*report["outputs"], *report["layout"]["buffers"]]
    return any(t["dtype"].startswith("float") for t in tensors if t["name"] in names)


def _moves(model: Path, vectors: list[list[Array]], report: dict[str, Any], reading: Reading) -> dict[str, float]:
    """How far rounding alone may move each float tensor; empty if the oracle cannot run the moved copies."""

    def run(near: list[list[Array]], rng: Rng | None) -> list[dict[str, Array]]:
        oracle = reference(model, near, report, reading, rng)
        rows = zip(oracle.outputs, oracle.tensors, strict=True)
        return [{**tensors, **dict(zip(names, row, strict=True))} for row, tensors in rows]

    names = [port["name"] for port in report["outputs"]]
    try:
        return moves(vectors, run)
    except EdgebuildError:  # the oracle cannot run a moved copy of the model
        return {}


def _compare(
    outcome: Outcome,
    expected: Reference,
    report: dict[str, Any],
    recording: Recording,
    moved: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, Any]:
    """Compare all outputs of all vectors, and the intermediate results that were recorded or are still in the arena."""
    differences: dict[str, float] = {}
    differs = []
    for name, pairs in _pairs(outcome, expected, report, recording).items():
        difference, is_equal = 0.0, True
        for measured, oracle in pairs:
            deviation = distance(measured, oracle)
            allowed = limit(oracle, moved.get(name, 0.0)) if measured.dtype.kind == "f" else expected.slack
            is_equal = is_equal and deviation <= allowed  # false for NaN
            difference = max(difference, deviation)
        differences[name] = _number(difference)
        differs += [] if is_equal else [name]
    output = np.concatenate([x.ravel() for x in outcome.outputs[0]])
    return {
        "equal": not differs,
        "max_abs_diff": max(differences.values(), default=0),
        "output": output.tolist(),
        "compared": list(differences),
        "differences": differences,
        "differs": differs,
    }


def _pairs(
    outcome: Outcome, expected: Reference, report: dict[str, Any], recording: Recording
) -> dict[str, list[tuple[Array, Array]]]:
    """Tensor name -> (firmware's value, oracle's value) per vector, in one layout and dtype."""
    pairs: dict[str, list[tuple[Array, Array]]] = {}
    for o, port in enumerate(report["outputs"]):
        pairs[port["name"]] = [
            (measured[o], _fitted(theirs[o], port))
            for measured, theirs in zip(outcome.outputs, expected.outputs, strict=True)
        ]
    exact = expected.judge == "TFLite Micro"  # LiteRT rounds some integers to a neighbouring step
    for name in expected.tensors[0] if recording.seen and exact else ():
        values = [(seen.read(name), row[name]) for seen, row in zip(recording.seen, expected.tensors, strict=False)]
        both = [(measured, fit(theirs, measured.shape)) for measured, theirs in values if measured is not None]
        same = [
            (measured, theirs) for measured, theirs in both if theirs is not None and theirs.dtype == measured.dtype
        ]
        if name not in pairs and len(same) == len(expected.tensors):
            pairs[name] = same
    for buffer in _intact_buffers(report):
        at, dtype = buffer["offset"], np.dtype(buffer["dtype"])
        oracle = [fit(t[buffer["name"]], buffer["shape"]) for t in expected.tensors if buffer["name"] in t]
        theirs = [value for value in oracle if value is not None and value.dtype == dtype]
        if buffer["name"] in pairs or len(theirs) != len(outcome.arenas):
            continue  # a tile, or a tensor that only the compiler's graph has
        count = int(np.prod(buffer["shape"]))
        if buffer["bytes"] != count * dtype.itemsize:
            continue  # a ring: it holds only a few rows of the tensor
        dumps = [arenas[buffer["memory"]] for arenas in outcome.arenas]
        measured = [np.frombuffer(dump, dtype, count, at).reshape(buffer["shape"]) for dump in dumps]
        pairs[buffer["name"]] = list(zip(measured, theirs, strict=True))
    return pairs


def _intact_buffers(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Buffers of the arena whose values are still intact when the run function returns."""
    buffers: list[dict[str, Any]] = report["layout"]["buffers"]
    if not buffers:
        return []
    by_name = {b["name"]: b for b in buffers}
    end = max(b["last"] for b in buffers)

    def storage(b: dict[str, Any]) -> str:
        """Name of the buffer that owns the bytes of `b`, which may be a view."""
        viewed = b.get("view_of")
        return storage(by_name[viewed]) if viewed in by_name else str(b["name"])

    def spoils(later: dict[str, Any], b: dict[str, Any]) -> bool:
        overlaps = later["offset"] < b["offset"] + b["bytes"] and b["offset"] < later["offset"] + later["bytes"]
        shares = overlaps and later["memory"] == b["memory"]
        return shares and later["first"] >= b["first"] and storage(later) != storage(b)

    values = (b for b in buffers if not b.keys() & {"scratch_of", "newest_of"})
    return [b for b in values if b["last"] == end and not any(spoils(later, b) for later in buffers)]


def _fitted(value: Array, port: Port) -> Array:
    fitted = fit(value, port["shape"])
    if fitted is None:
        raise fail(f"output '{port['name']}' has shape {port['shape']}, the oracle's is {list(value.shape)}")
    return fitted


def _labelled(
    vectors: list[list[Array]], outcome: Outcome, report: dict[str, Any], labels: Path | None
) -> dict[str, Any]:
    """Accuracy of the first output over all vectors, if there are labels."""
    if labels is None:
        return {}
    first = real_values(np.stack([row[0] for row in outcome.outputs]), report["outputs"][0])
    ports = report["inputs"]
    inputs = real_values(np.stack([v[0] for v in vectors]), ports[0]) if len(ports) == 1 else None
    return accuracy(inputs, first, read_labels(labels), labels)


def real_values(values: Array, port: Port) -> Array:
    """Dequantised values of an input or an output; `values` themselves if the port has no scale."""
    return (values.astype(np.float64) - port["zero_point"]) * port["scale"] if port.get("scale") else values


def outputs_on_target(
    target: Target, artifacts: Sequence[Artifact], vectors: list[list[Array]], library: Path | None = None
) -> list[list[Array]]:
    """Per vector, the outputs that the firmware computes. Parameters and errors are as for `verify`."""
    report = report_of(artifacts)
    _check_runnable(target)
    with folder_of(None) as folder:
        write_sources(folder, target, artifacts, report, len(vectors))
        return _run(
            Builder(target, folder, bool(report.get("needs_libm")), cmsis_nn=library), vectors, report, None
        ).outputs


def report_of(artifacts: Sequence[Artifact]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(next(a.data for a in artifacts if a.name.endswith("_report.json")))
    return report
