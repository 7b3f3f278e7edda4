"""`verify` as what is tried: its verdicts on right networks, and on such with one fault in what is printed.

A fault changes one number by little: an element of weights, bias, multipliers, shifts or tables, a zero point, or a
bound of a clamp. It counts where an output of one of verify's own vectors changes.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx

import edgebuild.model.verify as judge
from edgebuild.base.artifacts import Artifact
from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import Value, model_request
from edgebuild.base.target import load_target
from edgebuild.model.compile import emit, plan_model
from edgebuild.model.emit import code
from edgebuild.model.ir import Array
from edgebuild.model.ops.base import Kernel
from edgebuild.model.plan.search import Plan
from edgebuild.model.verify.harness import NAME
from edgebuild.model.verify.oracles import NoJudge
from edgebuild.model.verify.rounding import distance, limit
from edgebuild.model.verify.vectors import random_inputs

from .machine import PLAN_SECONDS, Failure, Machine, TooLong, at_most, report_of
from .networks import MAPS, TILE, WRITERS, drawn
from .others import Trouble

FORMS = ("tflite", "tflite_int16", "tflite_uint8", "qdq", "qoperator", "dynamic")
FAULTS = 2  # of a network
TRIES = 10  # draws for each, for many change no output
SLOTS = ("bias", "w", "multiplier", "shift", "table")  # constants of kernels
NUMBERS = ("x_zero", "y_zero", "low", "high")  # numbers that are arguments, or printed into a function


class Plain(Machine):
    """The host without sanitizers, whose compiler is quicker."""

    @property
    def flags(self) -> list[str]:
        return ["-std=c11", "-O0", "-w"]


@dataclass(frozen=True)
class Fault:
    """`op`: by name; `what`: a constant with an element's number, or a number; `by`: what is added."""

    op: str
    what: str
    at: int
    by: int

    def planted(self, kernel: Kernel) -> Kernel:
        if self.what in NUMBERS:
            add = {name: {n: int(v) + self.by if n == self.what else v for n, v in values.items()}
                   for name, values in (("scalars", kernel.scalars), ("shape", kernel.shape))}  # fmt: skip
            return replace(kernel, **add)  # type: ignore[arg-type]
        return replace(kernel, constants=tuple(
            replace(c, data=self._moved(c.data)) if c.name == self.what else c for c in kernel.constants))  # fmt: skip

    def _moved(self, data: Array) -> Array:
        """A copy with the fault; a part of the op that ends before the element stays as it is."""
        new = np.array(data, order="C")
        if self.at >= new.size:
            return new
        wide = int(new.flat[self.at]) + self.by
        low, high = np.iinfo(new.dtype).min, np.iinfo(new.dtype).max
        new.flat[self.at] = min(max(wide, int(low)), int(high))
        return new


def slots(op: str, kernel: Kernel) -> list[tuple[str, str, int]]:
    """Places of a kernel for a fault: the op, the name, and how many elements it has."""
    constants = [(op, c.name, c.data.size) for c in kernel.constants if c.name in SLOTS and c.data.dtype.kind in "iu"]
    numbers = [(op, n, 1) for n in NUMBERS if isinstance(kernel.scalars.get(n, kernel.shape.get(n)), int)]
    return [slot for slot in (*constants, *numbers) if slot[2]]


def fault(places: list[tuple[str, str, int]], random: Random) -> Fault:
    """A kind of place first: most numbers are weights."""
    what = random.choice(sorted({name for _, name, _ in places}))
    op, _, size = random.choice([place for place in places if place[1] == what])
    most = {"bias": 10, "w": 5, "multiplier": 26, "table": 3}.get(what, 0)
    return Fault(op, what, random.randrange(size), random.choice((-1, 1)) << random.randint(most // 2, most))


def printed(plan: Plan, planted: Fault | None = None) -> tuple[tuple[Artifact, ...], list[tuple[str, str, int]]]:
    """The products with a fault in them, and the places where one may be."""
    right, places = code.kernel_uses, dict[tuple[str, str], int]()

    def uses(*arguments: Any) -> list[code.Use]:
        calls = right(*arguments)
        for use in calls:
            for op, name, size in slots(use.op.name, use.kernel):  # parts of an op have its name, and other sizes
                places[op, name] = max(size, places.get((op, name), 0))
        return [replace(u, kernel=planted.planted(u.kernel)) if planted and u.op.name == planted.op else u
                for u in calls]  # fmt: skip

    with patch.object(code, "kernel_uses", uses):
        artifacts = emit(plan, "")
    return artifacts, [(op, name, size) for (op, name), size in places.items()]


def dynamic(model: onnx.ModelProto, random: Random) -> bytes:
    """The model as onnxruntime quantises its weights. Raises ValueError where there are none."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logging.getLogger().setLevel(logging.ERROR)  # it advises
    with tempfile.TemporaryDirectory() as folder:
        given, output = Path(folder, "given.onnx"), Path(folder, "made.onnx")
        onnx.save(model, given)
        weights = random.choice((QuantType.QInt8, QuantType.QUInt8))
        quantize_dynamic(given, output, weight_type=weights, per_channel=random.random() < 0.5)
        model = onnx.load(output)
    if not any(node.op_type.endswith(("Integer", "DynamicQuantizeLSTM")) for node in model.graph.node):
        raise ValueError("nothing in it is quantised")
    return bytes(model.SerializeToString())


def written(form: str, seed: int, place: Path) -> Path:
    """The network's file. Raises ValueError where the form cannot write it."""
    place.mkdir(parents=True, exist_ok=True)
    recipe = drawn("float" if form == "dynamic" else form, seed)
    data = WRITERS[recipe.form].write(recipe)
    if form == "dynamic":
        data = dynamic(onnx.load_from_string(data), Random(seed))
    file = place / f"judged_{form}_{seed}.{recipe.suffix}"
    file.write_bytes(data)
    return file


def random_options(random: Random) -> dict[str, Value]:
    """A way to compile; mostly one of tiling."""
    if random.random() < 0.2:
        return {"map": random.choice(MAPS)}
    return {"tile": random.choice(TILE)}


def verdicts(form: str, seed: int, folder: Path, scores: dict[str, int]) -> Iterator[Trouble]:
    """A drawn network and its faults."""
    place, random = folder / f"{form}_{seed}", Random(seed)
    try:
        file = written(form, seed, place)
    except ValueError:
        return
    troubles = list(judged(file, random_options(random), random, place, scores, FAULTS))
    yield from troubles
    if not troubles:
        shutil.rmtree(place)


def judged(
    file: Path, options: Mapping[str, Value], random: Random, place: Path, scores: dict[str, int], count: int
) -> Iterator[Trouble]:
    """Verdicts of `verify` on a file in one way to compile: equal, and of a fault that shows not equal.

    `scores` gets how many were right, had a fault that shows, and were called different then.
    """
    words = " ".join(f"--{name} {value}" for name, value in options.items())
    command = f"edgebuild verify {file} --target host {words}"
    try:
        with at_most(PLAN_SECONDS):
            plan = plan_model(model_request(file, NAME, "host", options), load_target("host"))
    except (EdgebuildError, TooLong):
        _count(scores, "judged_refused")
        return
    try:
        with patch.object(judge, "SANITIZERS", ()):
            artifacts, places = printed(plan)
            result = judge.verify(file, load_target("host"), artifacts)
            _count(scores, "judged")
            if result["equal"]:
                yield from _faults(file, plan, places, random, place, scores, count, command)
            else:
                yield Trouble("false_alarm", command, f"{result['differs']} {result['differences']}")
    except NoJudge:
        _count(scores, "judged_refused")
    except Exception:
        yield Trouble("traceback", command, traceback.format_exc())


def _faults(
    file: Path,
    plan: Plan,
    places: list[tuple[str, str, int]],
    random: Random,
    place: Path,
    scores: dict[str, int],
    count: int,
    command: str,
) -> Iterator[Trouble]:
    """Faults that `verify` calls equal, of `count` that show."""
    host, (artifacts, _), shown = Plain("host", place / "host"), printed(plan), 0
    vectors = random_inputs(file, report_of(artifacts), judge.VECTORS)
    right = host.run(artifacts, vectors, place / "right")
    for _ in range(count * TRIES if places else 0):
        if shown == count:
            return
        planted = fault(places, random)
        spoilt, _ = printed(plan, planted)
        if not _shows(host, spoilt, vectors, right, place):
            continue
        shown += 1
        try:
            caught = not judge.verify(file, load_target("host"), spoilt)["equal"]
        except EdgebuildError:  # the program ends
            caught = True
        _count(scores, "faults_caught" if caught else "faults_missed")
        if not caught:
            yield Trouble("missed", command, str(planted))


def _shows(
    host: Machine, artifacts: tuple[Artifact, ...], vectors: list[list[Array]], right: list[list[Array]], place: Path
) -> bool:
    try:
        outputs = host.run(artifacts, vectors, place / "spoilt")
    except Failure:
        return False  # it ends: nobody needs a judge
    pairs = [(a, b) for mine, theirs in zip(outputs, right, strict=True) for a, b in zip(mine, theirs, strict=True)]
    return any(distance(a, b) > limit(b) for a, b in pairs)


def _count(scores: dict[str, int], name: str) -> None:
    scores[name] = scores.get(name, 0) + 1
