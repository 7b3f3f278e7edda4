"""Trained models from beside the checkout, where they are, against TFLite Micro: int8 without any difference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgebuild.model import ops
from edgebuild.model.formats import read_model
from edgebuild.model.passes.canonicalize import canonicalize
from tests.conftest import ROOT
from tests.graphs import random_inputs
from tests.ops.test_tflm import interpreted

MODELS = sorted((ROOT.parent / "shared" / "models").glob("*.tflite"))


@pytest.mark.skipif(not MODELS, reason="no models in ../shared/models")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.stem)
def test_outputs_equal(model: Path, tmp_path: Path) -> None:
    graph = canonicalize(read_model(model))
    inputs = [[x if x.dtype == np.int8 else abs(x) for x in vector] for vector in random_inputs(graph, 2)]  # indices
    (wanted,) = interpreted([model.read_bytes()], [inputs], tmp_path)
    for vector, (want, *_) in zip(inputs, wanted, strict=True):
        have = ops.run(graph, *vector)[graph.outputs[0]].ravel()
        if want.dtype == np.float32:
            np.testing.assert_allclose(have, want.ravel(), rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(have, want.ravel())
