"""`verify`: build a test firmware around a compiled model, run it, compare with the oracle, measure."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from ...base.artifacts import Artifact
from ...base.errors import fail
from ...base.target import Flash, Target, hal_dir, load_target, target_names
from ..compile import prepare
from ..importers import Shapes
from ..ir import Graph
from . import flash as flashes
from .elf import ElfSizes, read_sizes
from .harness import NAME, SANITIZERS, Builder, folder_of, sources, write_sources
from .layers import layers
from .nudge import near_file
from .oracles import Array, Port, Reference, fit, reference
from .rounding import Rng, distance, limit, moves
from .run import Outcome, run_harness
from .stepwise import stepwise
from .traced import cycles
from .vectors import Given, random_inputs, split_vectors

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
    reading: tuple[Shapes, tuple[str, ...]] = ((), ()),
    flash_of: str | None = None,
) -> dict[str, Any]:
    """Does the firmware compute what the oracle computes, and what does it cost?

    `artifacts` are those of `compile_model` under the name "model" for this target. `inputs`: what `read_inputs`
    tells; by default seeded random ones.
    `keep`: a folder for the test program instead of a temporary one. `by_layer`: count for every step, too.
    `dma`: when the model of a DMA unit moves bytes: eager, lazy or random:SEED.
    `by_cycles`: model the cycles of the first invoke (see cycles.py).
    `flash_of`: a target whose flash the core waits for; by default this one's. `library`: the folder of CMSIS-NN where
    the model calls it. `reading`: the shapes and outputs with which it was read (see `read_model`).

    Returns `equal`, `max_abs_diff`, `output` (first vector), `compared` (names of tensors), `differences` (the largest
    of each), `differs` (names that differ by more than the format allows), `inputs_tried`, `instructions` (of the first
    invoke), `stack_bytes`, `arena_touched_bytes`, `layers` if wanted, and the sizes of `measure`. Build machine:
    sanitizers on, and None for what cannot be measured there.
    Raises MissingTool without compiler, simulator or oracle, EdgebuildError where the program does not build or run.
    """
    report = _report(artifacts)
    _check_runnable(target)
    vectors = split_vectors(inputs, report) if inputs is not None else random_inputs(model_path, report, VECTORS)
    expected = reference(model_path, vectors, report, reading[1])
    with folder_of(keep) as folder:
        write_sources(folder, target, artifacts, report, len(vectors))
        builder = Builder(target, folder, bool(report.get("needs_libm")), cmsis_nn=library)
        sizes = _sizes(builder, report)
        outcome = _run(builder, vectors, report, dma)
        flash = flashes.flash_of(flash_of) if flash_of else target.flash
        modelled = _modelled(folder / "minimal.elf", target, flash, flash_of or target.name) if by_cycles else {}
        counted = {"layers": layers(model_path, artifacts, report, builder, by_cycles, flash)} if by_layer else {}
    compared = _judged(model_path, vectors, expected, outcome, report, reading)
    return {
        "model": model_path.name,
        "target": target.name,
        **compared,
        "inputs_tried": len(vectors),
        "instructions": outcome.instructions,
        **modelled,
        "stack_bytes": outcome.stack_bytes,
        "arena_touched_bytes": outcome.arena_touched,
        "macs": report["macs"]["model"],
        **({"dma": outcome.dma} if outcome.dma else {}),
        **_figures(sizes, target.firmware is not None),
        **counted,
    }


def _modelled(elf: Path, target: Target, flash: Flash | None, board: str) -> dict[str, Any]:
    """Cycles of one inference, with those for which the core waits for the board's flash, and the models' names."""
    count, name = cycles(elf, target)
    if flash is None:
        return {"cycles": count, "cycles_model": name}
    waited = flashes.waited(elf, target, flash)
    return {
        "cycles": count + waited,
        "cycles_waited": waited,
        "cycles_model": f"{name.removesuffix('; no wait states')}; {flashes.in_words(board, flash)}",
    }


def _check_runnable(target: Target) -> None:
    if target.firmware is not None and target.runner is None:
        runnable = [name for name in target_names() if load_target(name).runner or name == "host"]
        raise fail(f"target {target.name} names no `runner:`, so nothing can run its programs",
                   hints=["can run: " + ", ".join(runnable)])  # fmt: skip


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
    report = _report(artifacts)
    with folder_of(keep) as folder:
        write_sources(folder, target, artifacts, report, 1)
        sizes = _sizes(Builder(target, folder, bool(report.get("needs_libm"))), report)
    return _figures(sizes, target.firmware is not None)


def _sizes(builder: Builder, report: dict[str, Any]) -> ElfSizes:
    elf = builder.program("minimal", [*sources(builder.target, report), hal_dir() / "harness/minimal.c"])
    return read_sizes(elf, NAME, allow_libm=builder.needs_libm)


def _figures(sizes: ElfSizes, bare: bool) -> dict[str, Any]:
    """A program of the build machine carries its C library, so its sizes say nothing of the model."""
    return {
        "flash_bytes": sizes.flash if bare else None,
        "code_bytes": sizes.flash - sizes.weights if bare else None,
        "weights_bytes": sizes.weights,
        "ram_bytes": sizes.ram if bare else None,
        "arena_bytes": sizes.arena,
        "forbidden_symbols": list(sizes.forbidden) if bare else [],
    }


def _judged(
    model: Path,
    vectors: list[list[Array]],
    expected: Reference,
    outcome: Outcome,
    report: dict[str, Any],
    reading: tuple[Shapes, tuple[str, ...]],
) -> dict[str, Any]:
    """The comparison; where it fails, again op by op for roundings to steps, and with what rounding does to floats."""
    compared = _compare(outcome, expected, report)
    if not compared["equal"] and expected.slack and not report.get("state_bytes"):
        graph = prepare(model, *reading)
        if exact := stepwise(graph, vectors, expected):
            nearest = stepwise(graph, vectors, expected, _seen(graph, outcome, exact, report)) or exact
            expected, compared = nearest, _compare(outcome, nearest, report)
    if not compared["equal"] and _real(compared["differs"], report):
        compared = _compare(outcome, expected, report, _moves(model, vectors, report, reading[1]))
    return compared


def _real(names: Sequence[str], report: dict[str, Any]) -> bool:
    """Whether any of these tensors holds real numbers, which rounding may move."""
    tensors = [*report["outputs"], *report["layout"]["buffers"]]
    return any(t["dtype"].startswith("float") for t in tensors if t["name"] in names)


def _moves(
    model: Path, vectors: list[list[Array]], report: dict[str, Any], outputs: tuple[str, ...]
) -> dict[str, float]:
    """By name of a tensor of real numbers: how far rounding alone may move it."""

    def run(near: list[list[Array]], rng: Rng | None) -> list[dict[str, Array]]:
        with tempfile.TemporaryDirectory() as folder:
            file = near_file(model, rng, Path(folder)) if rng else model
            found = reference(file, near, report, outputs)
        rows = zip(found.outputs, found.tensors, strict=True)
        return [{**tensors, **dict(zip(names, row, strict=True))} for row, tensors in rows]

    names = [port["name"] for port in report["outputs"]]
    return moves(vectors, run)


def _compare(
    outcome: Outcome, expected: Reference, report: dict[str, Any], moved: Mapping[str, float] = MappingProxyType({})
) -> dict[str, Any]:
    """All outputs of all vectors, and the intermediate results that still stand in the arena."""
    differences: dict[str, float] = {}
    differs = []
    for name, pairs in _pairs(outcome, expected, report).items():
        difference, is_equal = 0.0, True
        for mine, theirs in pairs:
            apart = distance(mine, theirs)
            allowed = limit(theirs, moved.get(name, 0.0)) if mine.dtype.kind == "f" else expected.slack
            is_equal = is_equal and apart <= allowed  # false for NaN
            difference = max(difference, apart)
        differences[name] = difference if difference % 1 else int(difference)
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


def _seen(graph: Graph, outcome: Outcome, expected: Reference, report: dict[str, Any]) -> list[dict[str, Array]]:
    """Per vector, what the firmware gave: outputs, and intermediate results that still stand in the arena."""
    standing = _pairs(outcome, expected, report)
    return [
        {**{name: pairs[v][0] for name, pairs in standing.items()}, **dict(zip(graph.outputs, row, strict=False))}
        for v, row in enumerate(outcome.outputs)
    ]


def _pairs(outcome: Outcome, expected: Reference, report: dict[str, Any]) -> dict[str, list[tuple[Array, Array]]]:
    """Tensor name -> (ours, the oracle's) per vector, in one layout and dtype."""
    pairs: dict[str, list[tuple[Array, Array]]] = {}
    for o, port in enumerate(report["outputs"]):
        pairs[port["name"]] = [
            (mine[o], _fitted(theirs[o], port)) for mine, theirs in zip(outcome.outputs, expected.outputs, strict=True)
        ]
    for buffer in _standing(report):
        at, dtype = buffer["offset"], np.dtype(buffer["dtype"])
        oracle = [fit(t[buffer["name"]], buffer["shape"]) for t in expected.tensors if buffer["name"] in t]
        known = [value for value in oracle if value is not None and value.dtype == dtype]
        if buffer["name"] in pairs or len(known) != len(outcome.arenas):
            continue  # a tile, or a tensor of our own making
        count = int(np.prod(buffer["shape"]))
        if buffer["bytes"] != count * dtype.itemsize:
            continue  # rows on demand: not the whole tensor
        dumps = [arenas[buffer["memory"]] for arenas in outcome.arenas]
        mine = [np.frombuffer(dump, dtype, count, at).reshape(buffer["shape"]) for dump in dumps]
        pairs[buffer["name"]] = list(zip(mine, known, strict=True))
    return pairs


def _standing(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Buffers of the arena that nothing has written over when the run function returns."""
    buffers: list[dict[str, Any]] = report["layout"]["buffers"]
    if not buffers:
        return []
    by_name = {b["name"]: b for b in buffers}
    end = max(b["last"] for b in buffers)

    def storage(b: dict[str, Any]) -> str:
        """The buffer whose bytes these are: views lead to what they view."""
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


def _report(artifacts: Sequence[Artifact]) -> dict[str, Any]:
    data = next(a.data for a in artifacts if a.name == f"{NAME}_report.json")
    report: dict[str, Any] = json.loads(data)
    return report
