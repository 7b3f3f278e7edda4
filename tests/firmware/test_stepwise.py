"""A deep quantised network op by op: its own steps are allowed, a wrong op is not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from edgebuild.base.request import model_request
from edgebuild.model.compile import compile_model, prepare
from edgebuild.model.verify.oracles import random_inputs, reference
from edgebuild.model.verify.stepwise import stepwise
from tests.zoo.builders import ZOO, quantized


def test_every_op_is_compared_with_the_oracle(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(quantized(ZOO["ds_cnn"]()).SerializeToString())
    report = json.loads(compile_model(model_request(model, "model", "host", {"tile": "off"}))[-1].data)
    vectors = random_inputs(model, report, 2)
    expected, graph = reference(model, vectors, report), prepare(model)
    own = stepwise(graph, vectors, expected)
    assert own is not None and own.slack == 0
    for mine, theirs in zip(own.outputs, expected.outputs, strict=True):
        assert np.abs(mine[0].astype(int) - theirs[0].reshape(mine[0].shape).astype(int)).max() < 20
    checked = 0
    for op in graph.ops:
        name, *marks = op.outputs[0].split("@")
        if marks in ([], ["nhwc"]) and name in expected.tensors[1] and expected.tensors[1][name].dtype == np.int8:
            right = expected.tensors[1][name]
            expected.tensors[1][name] = np.where(right < 0, right + 3, right - 3).astype(np.int8)
            assert stepwise(graph, vectors, expected) is None, name
            expected.tensors[1][name] = right
            checked += 1
    assert checked >= 9  # all nine convolutions
