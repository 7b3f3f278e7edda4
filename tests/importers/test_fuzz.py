"""Damaged files end in a diagnostic: no traceback, no hang, no memory without bound."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.conftest import ROOT
from tests.graphs import quantised, tiny_tflite
from tests.graphs.onnx_models import OnnxFile

COUNT = 300
SCRIPT = Path(__file__).with_name("fuzz.py")


def small_onnx() -> onnx.ModelProto:
    m = OnnxFile(np.random.default_rng(0))
    x = m.node("Conv", [m.input((1, 2, 6, 6)), m.normal(4, 2, 3, 3), m.normal(4)], (1, 4, 4, 4))
    x = m.node("MaxPool", [m.node("Relu", [x], (1, 4, 4, 4))], (1, 4, 2, 2), kernel_shape=[2, 2], strides=[2, 2])
    x = m.node("Flatten", [x], (1, 16))
    return m.model([m.node("Gemm", [x, m.normal(3, 16), m.normal(3)], (1, 3), transB=1)])


@pytest.mark.parametrize("form", ["tflite", "float.onnx", "int8.onnx"])
def test_damaged_files_are_refused_or_compiled(form: str, tmp_path: Path) -> None:
    model = tmp_path / f"model.{form}"
    if form == "tflite":
        model.write_bytes(tiny_tflite())
    else:
        onnx.save(small_onnx() if form == "float.onnx" else quantised(small_onnx()), model)
    (tmp_path / "damaged").mkdir()
    command = [sys.executable, "-P", SCRIPT, tmp_path / "damaged", model, str(COUNT)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout[-6000:]
