"""The text that is generated: four sources in full, hashes of the others, and that it depends on the inputs alone.

The four show most: C for any processor, assembly for DSP, vectors row by row, and a driver. A change of another source
fails, too; `git stash` and `edgebuild model` before and after show its lines.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from edgebuild.base.artifacts import Artifact
from edgebuild.base.request import ClockRequest, DriverRequest, ModelRequest
from edgebuild.base.target import hal_dir
from edgebuild.clock.emit import clock_files, requested_plan
from edgebuild.driver.pipeline import compile_driver
from edgebuild.model.compile import compile_model
from tests.conftest import ROOT
from tests.graphs import tiny_tflite

GOLDEN = Path(__file__).with_name("golden")
HASHES = GOLDEN / "hashes.json"
SHOWN = ("tiny.c", "whole_m4.c", "rolled_m55.c", "gpio.c")
DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"


def same_as_golden(have: bytes, name: str, update: bool) -> None:
    """To accept a change: pytest tests/emit -n 0 --update-golden"""
    golden = GOLDEN / name
    if name not in SHOWN:
        return same_hash(have, name, update)
    if update:
        golden.write_bytes(have)
    now, want = have.decode().splitlines(True), golden.read_text().splitlines(True)
    assert now == want, "".join(difflib.unified_diff(want, now, "golden", "now"))


def same_hash(have: bytes, name: str, update: bool) -> None:
    hashes = json.loads(HASHES.read_text())
    now = hashlib.sha256(have).hexdigest()
    if update:
        HASHES.write_text(json.dumps({**hashes, name: now}, indent=1, sort_keys=True) + "\n")
    else:
        assert now == hashes.get(name), f"{name} is another; if that is meant: pytest tests/emit -n 0 --update-golden"


def named(files: Iterable[Artifact], name: str) -> bytes:
    return next(f.data for f in files if f.name == name)


@pytest.mark.parametrize("suffix", [".c", ".h", "_weights.S", "_memory.ld", "_check.ld"])
def test_golden(suffix: str, tmp_path: Path, update_golden: bool) -> None:
    model = tmp_path / "tiny.tflite"
    model.write_bytes(tiny_tflite())
    files = compile_model(ModelRequest(model, "tiny", "microbit"))
    same_as_golden(named(files, f"tiny{suffix}"), f"tiny{suffix}", update_golden)


VARIANTS: dict[str, tuple[str, dict[str, object]]] = {  # file: target and options
    "whole_m4": ("mps2-an386", {}),
    "whole_m55": ("mps3-an547", {}),
    "whole_rv32": ("riscv-virt", {}),
    "rolled_host": ("host", {"tile": "rolling"}),
    "rolled_m55": ("mps3-an547", {"tile": "rolling"}),
    "streamed_m4": ("mps2-an386", {"stream_input": "rows"}),
    "caller_m3": ("mps2-an385", {"arena": "caller"}),
    "shared_rv32": ("riscv-virt", {"optimize": "size"}),
    "parts_host": ("host", {"tile": "ffmt"}),
    "energy_f767": ("stm32f767", {"objective": "energy", "qos": 1.0}),
    "moved_h743": ("stm32h743", {"map": "auto"}),
}
SCHEDULES = {"energy_f767", "moved_h743"}  # their kernels are those of `whole_m4`, and stand behind this line
KERNELS = b"/* What the kernels share stands at the end. */\n"


@pytest.mark.parametrize("name", VARIANTS)
def test_golden_forms(name: str, tmp_path: Path, update_golden: bool) -> None:
    """The source of the same model for other cores and in other forms, so that a review shows what a change does."""
    model = tmp_path / "tiny.tflite"
    model.write_bytes(tiny_tflite())
    target, options = VARIANTS[name]
    files = compile_model(ModelRequest(model, "tiny", target, **options))  # type: ignore[arg-type]
    have, line, _ = named(files, "tiny.c").partition(KERNELS)
    assert line
    same_as_golden(have if name in SCHEDULES else named(files, "tiny.c"), f"{name}.c", update_golden)


@pytest.mark.parametrize("name", ["gpio.c", "gpio_hal.h", "gpio_systemc.h"])
def test_golden_driver(name: str, update_golden: bool) -> None:
    source = hal_dir() / "drivers" / "pulpino_gpio.bf.c"
    files, _ = compile_driver(DriverRequest((source,), "gpio", "pulpino"))
    same_as_golden(named(files, name), name, update_golden)


@pytest.mark.parametrize("name", ["clock_config.c", "clock_config.h"])
def test_golden_clocks(name: str, update_golden: bool) -> None:
    plan = requested_plan(ClockRequest("clocks", "stm32f767", hse=8_000_000, sysclk=(144_000_000, 216_000_000)))
    same_as_golden(named(clock_files(plan), name), name, update_golden)


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
