"""Mistakes that users make: each message names the file or the option and says what would be right."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from edgebuild.cli import main
from tests.conftest import ROOT
from tests.graphs.tiny import tiny_tflite

MISTAKES = [  # command, and what its message has to say, line by line
    ("model t.tflit --target host", r"t.tflit: error: cannot read the model", "did you mean 't.tflite'"),
    ("model none/t.tflite --target host", "none/t.tflite: error", "there is no folder 'none'"),
    ("model t.tflite --target stm32f411re", "did you mean 'stm32f411'"),
    ("model t.tflite --target esp32", "unknown target 'esp32'", "among them esp32c3, esp32c6, "),
    ("model t.tflite/x/m.onnx --target host", "Not a directory\n  't.tflite' is no folder"),
    ("export t.tflite --as zephyr --target host -o t.tflite", "cannot write it: Not a directory\n  't.tflite' is no"),
    ("explain E9999", "no error has the code E9999", "codes: E0101, "),
    ("model t.tflite --target host --outputs poool", "no operator writes 'poool'; did you mean 'pool'"),
    ("model t.tflite --target host --shape x=1,2", "option 'shape'", "leave it out"),
    ("model t.tflite --target host --bind x=1", "option 'bind'", "leave it out"),
    ("model onnx.tflite --target host", "onnx.tflite: error", "another suffix, as .onnx"),
    ("model net.pth --target host", "net.pth: error: .*PyTorch", "torch.onnx.export"),
    ("quantize net.pth --data x.npy -o q.onnx", "net.pth: error: .*PyTorch", "torch.onnx.export"),
    ("quantize t.tflite --data x.npy -o q.tflite", "--output: 'q.tflite' is written as .onnx"),
    ("inspect t.tflite --picture p.png", "--picture: 'p.png' is written as .svg"),
    ("report t.tflite --target host -o p.pdf", "--output: 'p.pdf' is written as .html"),
    ("verify t.tflite --target host --inputs x.npy", "x.npy: error: the inputs have 12 elements"),
    ("verify t.tflite --target host --max-instructions many", "--max-instructions: 'many' is no whole number"),
]


@pytest.mark.parametrize(("command", "texts"), [(command, texts) for command, *texts in MISTAKES])
def test_a_mistake(
    command: str, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.tflite").write_bytes(tiny_tflite())
    (tmp_path / "onnx.tflite").write_bytes((ROOT / "sample_projects/digits/digits.onnx").read_bytes())
    (tmp_path / "net.pth").write_bytes(b"PK\x03\x04")
    np.save(tmp_path / "x.npy", np.zeros((3, 4), np.float32))
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    try:
        status = main(shlex.split(command))
    except SystemExit as end:
        status = int(end.code or 0)
    message = capsys.readouterr().err
    assert status in (1, 2) and "Traceback" not in message and "fails here" not in message
    for text in texts:
        assert re.search(text, message), message
    assert sorted(tmp_path.rglob("*")) == before
