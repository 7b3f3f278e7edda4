"""TFLite Micro's own test models, most of them int16, against its interpreter: no difference at all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.model import ops
from edgebuild.model.importers import read_model
from edgebuild.model.passes.canonicalize import canonicalize
from tests.graphs import random_inputs
from tests.ops.test_tflm import in_table, interpreted

MODELS = Path(__file__).parents[3] / "shared" / "models" / "tflm-ops"
REFUSED = {"examples-micro_speech-models-audio_preprocessor_int8.tflite": "is uint32"}  # custom operators for signals


@pytest.mark.skipif(not MODELS.is_dir(), reason="the models are not part of the project")
def test_equals_the_interpreter(tmp_path: Path) -> None:
    files = [f for f in sorted(MODELS.glob("*.tflite")) if f.name not in REFUSED]
    graphs = [canonicalize(read_model(file)) for file in files]
    inputs = in_table([random_inputs(graph, 2, seed) for seed, graph in enumerate(graphs)])
    expected = interpreted([file.read_bytes() for file in files], inputs, tmp_path)
    for file, graph, vectors, rows in zip(files, graphs, inputs, expected, strict=True):
        for vector, results in zip(vectors, rows, strict=True):
            values = ops.run(graph, *vector)
            for name, want in zip(graph.outputs, results, strict=True):
                actual = values[name].ravel()
                if want.dtype.kind == "f":
                    np.testing.assert_allclose(actual, want.ravel(), rtol=1e-5, atol=1e-6, err_msg=file.name)
                else:
                    np.testing.assert_array_equal(actual, want.ravel(), err_msg=file.name)


@pytest.mark.skipif(not MODELS.is_dir(), reason="the models are not part of the project")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name: str) -> None:
    with pytest.raises(EdgebuildError, match=REFUSED[name]):
        read_model(MODELS / name)
