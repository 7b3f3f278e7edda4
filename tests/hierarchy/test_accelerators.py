"""The samples of accelerators: short, complete, and bit for bit right on RTL where a simulator can be built."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import onnx
import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.cli import main
from edgebuild.model.compile import compile_model
from edgebuild.model.mapping import map_layers
from edgebuild.model.verify import measure, verify
from tests.bench_engines import CORES, prepared, target_of
from tests.bench_rtl import FOLDER
from tests.hierarchy.layers27 import FILE
from tests.hierarchy.test_engines import residual_file
from tests.importers.test_integers import NETWORKS

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
    more = file.read_text().replace("patterns: [", "patterns: [add, ")
    (tmp_path / "more.yaml").write_text(re.sub("    cycles: .*", "    cycles: K", more))
    shutil.copy(file.parent / "port.c", tmp_path)
    request = ModelRequest(request.source, "model", str(tmp_path / "more.yaml"), tile="off")
    with pytest.raises(EdgebuildError) as caught:
        measure(load_target(request.target), compile_model(request))
    assert f"eb_engine_{sample}_add" in str(caught.value)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("name", "macs"),
    [
        ("residual", 16368),
        ("NEMO", 10440),  # but for the last layer, whose sums are the result
        ("NEMO, quotients by 2^k - 1", 10440),  # terms of more than 32 bits: the bias has a part of them
        ("floors", 9072),
    ],
)
def test_numbers_that_are_added_to_products(name: str, macs: int, tmp_path: Path) -> None:
    """NEMO's and quantlib's layers run on an engine that adds to products, and on no other."""
    onnx.save(NETWORKS[name](), tmp_path / "net.onnx")
    for adds in (True, False):
        text = MINE.replace("shift", "multiply").replace("even", "added" if adds else "even").replace(", PORT", "")
        (tmp_path / "mine.yaml").write_text(text.replace("[conv2d", "[depthwise, conv2d").replace("zero", "value"))
        request = ModelRequest(tmp_path / "net.onnx", "model", str(tmp_path / "mine.yaml"), tile="off")
        run = verify(request.source, load_target(request.target), compile_model(request))
        assert run["equal"]
        assert sum(engine["macs"] for engine in run["engines"]) == (macs if adds else 0)


@pytest.mark.slow
@pytest.mark.needs("riscv64-unknown-elf-gcc", "verilator")
@pytest.mark.parametrize("sample", CORES)
def test_a_sample_runs_on_its_rtl(sample: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every layer that it takes, even where the core is faster; the cycles are about those of its formulas."""
    if not FOLDER.is_dir():
        pytest.skip("the RTL of the core is not at hand: ./sconsw bench-engines downloads it")
    file, request = compiled(sample, tmp_path)
    monkeypatch.setenv("PATH", f"{prepared(sample)}{os.pathsep}{os.environ['PATH']}")
    faster = tmp_path / "faster.yaml"
    faster.write_text(file.read_text().replace('"K * OX', '"0.3 * K * OX'))  # on images that are so small
    shutil.copy(file.parent / "port.c", tmp_path)
    request = ModelRequest(request.source, "model", str(faster), tile="off")
    run = verify(request.source, load_target(str(faster)), compile_model(request), by_layer=True)
    assert run["equal"]
    mapped = map_layers(request.source, load_target(str(file)), "exact", None)
    pairs = [(each.cycles, row["cycles"]) for each, row in zip(mapped, run["layers"], strict=True) if each.engine]
    assert [(e["name"], e["layers"]) for e in run["engines"]] == [(sample, len(pairs))]
    assert len(pairs) == 3 + (sample == "ne16")  # which takes the depthwise one
    for formula, counted in pairs:
        assert abs(formula - counted) < counted * 0.25 + 200, pairs  # a call and its end take up to 200


MINE = """inherits: host
description: x
engines:
  mine: {patterns: [conv2d, dense], requantise: shift, rounding: [down, even], padding: zero, cycles: C * FY, PORT}
"""


def test_a_port_that_is_not_there(tmp_path: Path) -> None:
    """It is no reason to run a model of the engine instead."""
    (tmp_path / "mine.yaml").write_text(MINE.replace("PORT", "port: mine.c"))
    with pytest.raises(EdgebuildError) as caught:
        load_target(str(tmp_path / "mine.yaml"))
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.line, diagnostic.text) == (4, "no such file: mine.c")
    (tmp_path / "mine.c").write_text("")
    assert load_target(str(tmp_path / "mine.yaml")).engines[0].port == str(tmp_path / "mine.c")


def test_map_with_powers_of_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows what an engine takes that shifts, as `verify` then runs it; files of layers have no scales."""
    residual_file(tmp_path / "net.tflite")
    (tmp_path / "mine.yaml").write_text(MINE.replace(", PORT", ""))
    options = ["--target", str(tmp_path / "mine.yaml"), "--scales", "power-of-two"]
    assert main(["map", str(tmp_path / "net.tflite"), *options]) == 0
    assert len(re.findall(r"\d  mine$", capsys.readouterr().out, re.MULTILINE)) == 3
    assert main(["map", str(FILE), *options]) == 1
    assert "a file of layers has no scales" in capsys.readouterr().err
    artifacts = compile_model(ModelRequest(tmp_path / "net.tflite", "model", str(tmp_path / "mine.yaml"), map="layer"))
    report = json.loads(next(a.data for a in artifacts if a.name.endswith("_report.json")))
    assert all("mine" in row["why"] or "no powers of two" in row["why"] for row in report["engines"])  # not the tiles
    (tmp_path / "mine.yaml").write_text(MINE.replace(", PORT", ", largest: {K: 2}"))
    assert main(["map", str(tmp_path / "net.tflite"), *options]) == 1
    assert len(re.findall(r"(y and 1 more|y#\d+): K is \d+, and at most 2 in mine\n", capsys.readouterr().err)) == 2
