"""The networks that the digits sample trains, from PyTorch through `quantize` to figures of the compiled network."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgebuild.cli import main

TRAINING = Path(__file__).parents[2] / "sample_projects" / "digits" / "training" / "networks.py"
MAX_LOSS = 0.01  # share of the samples, or of the area under the curve, that int8 may lose


@pytest.mark.slow
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("name", ["keywords", "images", "machine", "gestures"])
def test_int8_loses_at_most_a_point(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for package in ("torch", "onnxscript", "sklearn"):
        pytest.importorskip(package)
    subprocess.run([sys.executable, str(TRAINING), str(tmp_path), name], check=True, capture_output=True)
    float_model, samples, labels = (str(tmp_path / f"{name}{end}") for end in (".onnx", "_samples.npz", "_labels.npy"))
    out = str(tmp_path / "int8.onnx")
    assert main(["quantize", float_model, "--data", samples, "--labels", labels, "-o", out]) == 0
    capsys.readouterr()
    judged = ["--reference", float_model, "--data", samples, "--labels", labels, "--json", "-"]
    assert main(["verify", out, "--target", "host", *judged]) == 0
    figures = json.loads(capsys.readouterr().out)
    kind = "auc" if name == "machine" else "accuracy"
    assert figures["equal"] and figures[f"reference_{kind}"] > 0.9
    assert figures[f"reference_{kind}"] - figures[kind] <= MAX_LOSS
