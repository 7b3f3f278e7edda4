"""The samples of accelerators: short, complete, and bit for bit right on RTL where a simulator can be built."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import measure, verify
from tests.bench_engines import CORES, prepared, target_of
from tests.bench_rtl import FOLDER
from tests.hierarchy.test_engines import residual_file

LINES = 40  # of YAML: what a user writes in an afternoon


def compiled(sample: str, folder: Path) -> tuple[Path, ModelRequest]:
    residual_file(folder / "net.tflite")
    return target_of(sample), ModelRequest(folder / "net.tflite", "model", str(target_of(sample)), tile="off")


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("sample", CORES)
def test_a_sample_links(sample: str, tmp_path: Path) -> None:
    """Its port has every pattern that the target names; one that it lacks is an error that names the function."""
    file, request = compiled(sample, tmp_path)
    assert len(file.read_text().splitlines()) <= LINES
    assert measure(load_target(str(file)), compile_model(request))["flash_bytes"] > 0
    more = file.read_text().replace("patterns: [", "patterns: [depthwise, ")
    (tmp_path / "more.yaml").write_text(re.sub("    cycles: .*", "    cycles: K", more))
    shutil.copy(file.parent / "port.c", tmp_path)
    request = ModelRequest(request.source, "model", str(tmp_path / "more.yaml"), tile="off")
    with pytest.raises(EdgebuildError) as caught:
        measure(load_target(request.target), compile_model(request))
    assert f"eb_engine_{sample}_depthwise" in str(caught.value)


@pytest.mark.slow
@pytest.mark.needs("riscv64-unknown-elf-gcc", "verilator")
@pytest.mark.parametrize("sample", CORES)
def test_a_sample_runs_on_its_rtl(sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not FOLDER.is_dir():
        pytest.skip("the RTL of the core is not at hand: ./sconsw bench-engines downloads it")
    file, request = compiled(sample, tmp_path)
    monkeypatch.setenv("PATH", f"{prepared(sample)}{os.pathsep}{os.environ['PATH']}")
    run = verify(request.source, load_target(str(file)), compile_model(request))
    assert run["equal"]
    assert [(e["name"], e["layers"]) for e in run["engines"]] == [(sample, 3)]
