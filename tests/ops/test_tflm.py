"""The numpy meaning of every TFLite operator against TFLite Micro's interpreter: no difference at all."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from edgebuild.model import ops
from edgebuild.model.formats.tflite.tflite_reader import read_tflite
from edgebuild.model.passes.canonicalize import canonicalize
from edgebuild.model.verify.oracles import ZEROED
from tests.conftest import by_day
from tests.graphs import APPROXIMATE, OPERATORS, described, examples, random_inputs, tflite_files
from tests.graphs.tflite_models import Draft

FILES_PER_OPERATOR, VECTORS = 12, 4
BY_ELEMENT = [f"{name} int16" for name in ("ADD", "SUB", "MUL", "SQUARED_DIFFERENCE", "LEAKY_RELU", "ABS", "QUANTIZE")]
BY_ELEMENT += ["SUB", "SQUARED_DIFFERENCE"]
SCRIPT = Path(__file__).with_name("tflm_batch.py")


@cache
def interpreter() -> subprocess.Popen[str]:
    """The process that forks one for each model: it loads the interpreter once."""
    return subprocess.Popen(
        [sys.executable, "-P", SCRIPT], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={**os.environ, **ZEROED},
    )  # fmt: skip


def interpreted(files: list[bytes], inputs: list[list[list[np.ndarray]]], folder: Path) -> list[list[list[np.ndarray]]]:
    """The interpreter's outputs for each file and vector."""
    for i, (data, vectors) in enumerate(zip(files, inputs, strict=True)):
        (folder / f"{i}.tflite").write_bytes(data)
        arrays = {f"v{v}_i{k}": x for v, vector in enumerate(vectors) for k, x in enumerate(vector)}
        np.savez(folder / f"{i}.npz", **arrays)
    process = interpreter()
    assert process.stdin is not None and process.stdout is not None
    print(folder, file=process.stdin, flush=True)
    assert process.stdout.readline(), "the process that forks others has ended"
    results = []
    for i, vectors in enumerate(inputs):
        log = folder / f"{i}.txt"
        assert (folder / f"{i}.out.npz").exists(), f"{i}: the interpreter has no result\n{log.read_text()[-4000:]}"
        with np.load(folder / f"{i}.out.npz") as file:
            count = len([name for name in file.files if name.startswith("v0_o")])
            results.append([[file[f"v{v}_o{o}"] for o in range(count)] for v in range(len(vectors))])
    return results


def in_table(inputs: list[list[list[np.ndarray]]]) -> list[list[list[np.ndarray]]]:
    """int32 inputs without negative numbers: TFLM does not check indices."""
    return [[[abs(x) if x.dtype == np.int32 else x for x in v] for v in vectors] for vectors in inputs]


@pytest.mark.parametrize("operator", OPERATORS)
def test_reference_equals_tflm(operator: str, tmp_path: Path) -> None:
    check(operator, examples(tflite_files(operator), FILES_PER_OPERATOR), tmp_path)


@pytest.mark.parametrize("operator", BY_ELEMENT)
def test_rare_values(operator: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a million results: where bits are lost on the way, one in some ten thousand is another."""
    monkeypatch.setattr(Draft, "shape", lambda self, most=5: (1, 8000))
    check(operator, examples(tflite_files(operator), 8), tmp_path)


def check(operator: str, files: list[bytes], tmp_path: Path) -> None:
    files = by_day(files)
    graphs = [read_tflite(data, "random.tflite") for data in files]
    inputs = in_table([random_inputs(graph, VECTORS, seed) for seed, graph in enumerate(graphs)])
    expected = interpreted(files, inputs, tmp_path)
    for graph, vectors, rows in zip(graphs, inputs, expected, strict=True):
        canonical = canonicalize(graph)
        for vector, want in zip(vectors, rows, strict=True):
            for form in (graph, canonical):
                values = ops.run(form, *vector)
                for name, y in zip(form.outputs, want, strict=True):
                    compare(operator, values[name].ravel(), y.ravel(), described(form))


def compare(operator: str, actual: np.ndarray, want: np.ndarray, text: str) -> None:
    """Equal; real functions to 1e-5, because their last bits are those of a library."""
    if operator in APPROXIMATE:
        np.testing.assert_allclose(actual, want, rtol=1e-5, atol=1e-6, err_msg=text)
    else:
        np.testing.assert_array_equal(actual, want, err_msg=text)
