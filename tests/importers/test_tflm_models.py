"""TFLite Micro's own test models, most of them int16, against its interpreter: no difference at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebuild.model.formats import read_model
from edgebuild.model.passes.canonicalize import canonicalize
from tests.graphs import random_inputs
from tests.importers.test_signal import in_sequence
from tests.ops.test_tflm import in_table, interpreted

MODELS = Path(__file__).parents[3] / "shared" / "models" / "tflm-ops"


@pytest.mark.skipif(not MODELS.is_dir(), reason="the models are not part of the project")
def test_equals_the_interpreter(tmp_path: Path) -> None:
    files = sorted(MODELS.glob("*.tflite"))
    graphs = [canonicalize(read_model(file)) for file in files]
    inputs = in_table(
        [[v[: len(graph.ports_in)] for v in random_inputs(graph, 2, seed)] for seed, graph in enumerate(graphs)]
    )
    expected = interpreted([file.read_bytes() for file in files], inputs, tmp_path)
    for file, graph, vectors, rows in zip(files, graphs, inputs, expected, strict=True):
        for actual, results in zip(in_sequence(graph, vectors), rows, strict=True):
            for mine, want in zip(actual, results, strict=True):
                if want.dtype.kind == "f":
                    np.testing.assert_allclose(mine.ravel(), want.ravel(), rtol=1e-5, atol=1e-6, err_msg=file.name)
                else:
                    np.testing.assert_array_equal(mine.ravel(), want.ravel(), err_msg=file.name)
