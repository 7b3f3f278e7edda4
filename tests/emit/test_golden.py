"""The text that is generated: one small model in full, and that it is a function of the inputs alone."""

from __future__ import annotations

import difflib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.model.compile import compile_model
from tests.conftest import ROOT
from tests.graphs import tiny_tflite

GOLDEN = Path(__file__).with_name("golden")
DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"


@pytest.mark.parametrize("suffix", [".c", ".h", "_weights.S", "_memory.ld"])
def test_golden(suffix: str, tmp_path: Path, update_golden: bool) -> None:
    """To accept a change: pytest tests/emit --update-golden"""
    model = tmp_path / "tiny.tflite"
    model.write_bytes(tiny_tflite())
    files = {a.name: a.data for a in compile_model(ModelRequest(model, "tiny", "microbit"))}
    have, golden = files[f"tiny{suffix}"].decode(), GOLDEN / f"tiny{suffix}"
    if update_golden:
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(have)
    want = golden.read_text()
    assert have == want, "".join(difflib.unified_diff(want.splitlines(True), have.splitlines(True), "golden", "now"))


VARIANTS: dict[str, tuple[str, dict[str, str]]] = {  # file: target and options
    "whole_m4": ("mps2-an386", {}),
    "whole_m55": ("mps3-an547", {}),
    "whole_rv32": ("riscv-virt", {}),
    "rolled_host": ("host", {"tile": "rolling"}),
    "rolled_m55": ("mps3-an547", {"tile": "rolling"}),
    "streamed_m4": ("mps2-an386", {"stream_input": "rows"}),
    "caller_m3": ("mps2-an385", {"arena": "caller"}),
    "shared_rv32": ("riscv-virt", {"optimize": "size"}),
    "parts_host": ("host", {"tile": "ffmt"}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_golden_forms(name: str, tmp_path: Path, update_golden: bool) -> None:
    """The source of the same model for other cores and in other forms, so that a review shows what a change does."""
    model = tmp_path / "tiny.tflite"
    model.write_bytes(tiny_tflite())
    target, options = VARIANTS[name]
    have = compile_model(ModelRequest(model, "tiny", target, **options))[0].data.decode()  # type: ignore[arg-type]
    golden = GOLDEN / f"{name}.c"
    if update_golden:
        golden.write_text(have)
    want = golden.read_text()
    assert have == want, "".join(difflib.unified_diff(want.splitlines(True), have.splitlines(True), "golden", "now"))


def command(model: Path, output: Path, cwd: Path, **environment: str) -> dict[str, bytes]:
    """The files of `edgebuild model` run in another process."""
    words = ["-P", "-m", "edgebuild", "model", str(model), "--target", "mps2-an386", "--name", "n", "-o", str(output)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, *words], cwd=cwd, env=env, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return {file.name: file.read_bytes() for file in sorted(output.iterdir())}


def test_bytes_depend_on_nothing_but_the_inputs(tmp_path: Path) -> None:
    """Not on the working directory, the place of the model, the hash seed, the locale, or the time."""
    elsewhere = tmp_path / "an other folder"
    elsewhere.mkdir()
    copy = elsewhere / "digits.onnx"
    copy.write_bytes(DIGITS.read_bytes())
    first = command(DIGITS, tmp_path / "a", ROOT, PYTHONHASHSEED="1", LANG="C")
    second = command(
        Path(copy.name), tmp_path / "b", elsewhere, PYTHONHASHSEED="2", LANG="tr_TR.UTF-8", TZ="Asia/Tokyo"
    )
    assert first == second
    for name, data in first.items():
        for path in (ROOT, tmp_path, Path.home()):
            assert len(path.parts) < 2 or f"{path}/".encode() not in data, name
        assert b"\r" not in data or name.endswith(".bin")
