"""Mistakes that users make: each message names the file or the option and says what would be right."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgebuild.cli import main
from tests.conftest import ROOT
from tests.fail.make_cases import small_onnx
from tests.graphs.tiny import tiny_tflite

MISTAKES = [  # command, and what its message has to say, line by line
    ("model t.tflit --target host", r"t.tflit: error: cannot read the model", "did you mean 't.tflite'"),
    ("model none/t.tflite --target host", "none/t.tflite: error", "there is no folder 'none'"),
    ("model t.tflite --target stm32f411re", "did you mean 'stm32f411'"),
    ("model t.tflite --target esp32", "unknown target 'esp32'", "among them esp32c3, esp32c6, "),
    ("model t.tflite --target cortex-m55", "only a parent of targets", "among them m85-model, mps3-an547, "),
    ("model t.tflite/x/m.onnx --target host", "Not a directory\n  't.tflite' is no folder"),
    ("export t.tflite --as zephyr --target host -o t.tflite", "t.tflite: error: cannot write it: it is not a folder"),
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
    ("model t.tflite --target host --json io.c/x.json", "io.c/x.json: error: cannot write it: io.c is not a folder"),
    ("verify t.tflite --target host --inputs x.npy", "x.npy: error: the inputs have 12 elements"),
    ("verify t.tflite --target host --max-instructions many", "--max-instructions: 'many' is no whole number"),
    ("verify t.tflite --target host --max-instructions 9", "are not counted on host\n  leave the limit out"),
    ("driver io.c --name io --target pulpino -o io", "io.c: error: there is no bfGroup in it", "explain E0303"),
    (
        "driver far.c --name io --target pulpino -o d",
        "far.c:1:10: error: 'far.h' file not found",
        "name its folder: -I DIR",
    ),
    ("inspect t.tflite --after nope", "unknown stage 'nope'\n  one of: import, ", "explain E0107"),
    ("model t.tflite --target host -o a;b --depfile d", "a path with a ';' cannot stand", "explain E0403"),
    ("map t.tflite --target mps2-an386", "has no memory levels\n  give its memories", "explain E0502"),
    ("model t.tflite --target host --cluster c.yaml --device z", "there is no device 'z'", "explain E0503"),
    ("group g.yaml --target host", "buffer 'b': no arena may lie in memory 'nope'", "explain E0504"),
    ("model flat.onnx --target host --stream-input rows", "flat.onnx: error: cannot stream", "explain E0505"),
    ("calibrate t.tflite --target stm32f411 --fit m.csv", "'time' is not measured", "explain E0506"),
    ("verify t.tflite --target stm32f411 --port m.csv --board-io io.c", "this is no serial line", "explain E0601"),
    ("tune t.tflite --target host", "the cache is off", "explain E0602"),
    ("size app --flash 1", "B over the budget\n  largest: ", "explain E0603"),
    ("inspect t.tflite --target gap8 --sweep L1", "'L1' has no sizes\n  write NAME=LEAST:MOST", "explain E0105"),
    ("inspect t.tflite --target gap8 --sweep L9=1K:2K", "no level 'L9'.*\n  levels: L1", "explain E0105"),
    ("driver io.c io.cpp --name g --target host", r"C and C\+\+ in one driver", "explain E0303"),
    ("model t.tflite --target latin.yaml", "not UTF-8", "explain E0402"),
    ("group latin.yaml --target host", "not UTF-8", "explain E0402"),
]
FILES = {
    "c.yaml": "devices: [{name: a, target: host, flash: 4K, ram: 8K}, {name: b, target: host, flash: 4K, ram: 8K}]\n"
    "source: a\nmedium: {kind: switch, bits_per_s: 3e6, message_us: 20}\n",
    "g.yaml": "share: exclusive\nmodels:\n  a: {file: t.tflite}\nbuffers:\n  b: {bytes: 4K, memory: nope}\n",
    "m.csv": "what,config,step,phase,value\ntime,hse,7,,5\n",
    "io.c": "int x;\n",
    "far.c": '#include "far.h"\n',
    "io.cpp": "int y;\n",
    "latin.yaml": "description: Gr\xf6\xdfe\n",
}


@pytest.mark.parametrize(("command", "texts"), [(command, texts) for command, *texts in MISTAKES])
def test_a_mistake(
    command: str, texts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "t.tflite").write_bytes(tiny_tflite())
    (tmp_path / "onnx.tflite").write_bytes((ROOT / "sample_projects/digits/digits.onnx").read_bytes())
    (tmp_path / "net.pth").write_bytes(b"PK\x03\x04")
    np.save(tmp_path / "x.npy", np.zeros((3, 4), np.float32))
    onnx.save(small_onnx(shape=(1, 1)), tmp_path / "flat.onnx")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="latin-1")
    shutil.copy(sys.executable, tmp_path / "app")
    monkeypatch.setenv("EDGEBUILD_CACHE", "")
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
