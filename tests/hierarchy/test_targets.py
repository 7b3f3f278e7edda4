"""Tiles that move on simulated targets: by the core, and by QEMU's PL081."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgebuild.base.target import load_target
from edgebuild.cli import main
from tests.conftest import ROOT

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_tiles_by_a_pl081(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plan's cycles of computing are near those of the core's table, by what QEMU ran."""
    options = ["--target", "mps2-an521", "--map", "layer", "--cycles", "--keep", str(tmp_path / "k"), "--json", "-"]
    assert main(["verify", str(DIGITS), *options]) == 0
    verdict = json.loads(capsys.readouterr().out)
    planned = json.loads((tmp_path / "k" / "model_report.json").read_text())["hierarchy"]["cycles"]["compute"]
    assert verdict["equal"] and planned == pytest.approx(verdict["cycles"], rel=0.15)


def at_once(folder: Path) -> str:
    """`pulp-cluster` without -icount: the harts run at once, on threads of the build machine."""
    runner = load_target("pulp-cluster").runner
    assert runner is not None
    command = [word for word in runner.command if word not in ("-icount", "shift=0")]
    file = folder / "at_once.yaml"
    file.write_text(f"inherits: pulp-cluster\ndescription: harts at once\nrunner: {{command: {json.dumps(command)}}}\n")
    return str(file)


@pytest.mark.one_in(6)
@pytest.mark.needs("riscv64-unknown-elf-gcc", "qemu-system-riscv32")
@pytest.mark.parametrize("method", ["layer", "dory", "auto"])
@pytest.mark.parametrize("counted", [True, False])
def test_cores_and_a_dma_unit_beside_them(
    method: str, counted: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight harts compute and one copies; the copies are those of the report."""
    options = ["--target", "pulp-cluster" if counted else at_once(tmp_path), "--map", method]
    assert main(["verify", str(DIGITS), *options, "--keep", str(tmp_path / "k"), "--json", "-"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    report = json.loads((tmp_path / "k" / "model_report.json").read_text())
    assert verdict["equal"] and verdict["dma"] == report["hierarchy"]["moved"]
    assert verdict["dma"]["transfers"] > 0 and "eb_cores_run" in (tmp_path / "k" / "model.c").read_text()


@pytest.mark.one_in(4)
@pytest.mark.needs("riscv64-unknown-elf-gcc", "qemu-system-riscv32")
@pytest.mark.parametrize("method", ["layer", "dory", "auto"])
def test_activations_in_the_third_level(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """L2 has no room for some tensors, which lie in L3 and move from there by DMA."""
    options = ["--target", "pulp-cluster", "--map", method, "--limit", "L1=2K,L2=768", "--keep", str(tmp_path / "k")]
    assert main(["verify", str(DIGITS), *options, "--json", "-"]) == 0
    verdict = json.loads(capsys.readouterr().out)
    report = json.loads((tmp_path / "k" / "model_report.json").read_text())["hierarchy"]
    assert verdict["equal"] and verdict["dma"] == report["moved"]
    assert {row["level"] for row in report["residency"]} >= {"L2", "L3"}
    operands = [o for row in report["layers"] for o in row["operands"] if o["tensor"] != "weights"]
    assert any("L3" in (o["from"], o["to"]) for o in operands)


@pytest.mark.one_in(2)
@pytest.mark.needs("gcc")
@pytest.mark.parametrize("rule", ["layer", "dory"])
def test_what_was_copied_is_what_the_report_says(rule: str, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "small.yaml"
    target.write_text("inherits: host\ndescription: s\nmemories: {L1: {origin: 2G, size: 2K, roles: [], level: 1}}\n")
    options = ["--target", str(target), "--map", rule]
    assert (
        main(["verify", str(DIGITS), *options, "--dma", "random:3", "--keep", str(tmp_path / "k"), "--json", "-"]) == 0
    )
    counted = json.loads(capsys.readouterr().out)["dma"]
    section = json.loads((tmp_path / "k" / "model_report.json").read_text())["hierarchy"]
    assert counted == section["moved"]
    assert sum(row["calls"] for row in section["layers"]) > len(section["layers"])
    rows = [o for row in section["layers"] for o in row["operands"]]
    assert counted["bytes"] == sum(o["bytes"] for o in rows)
    assert section["cycles"]["total"] == pytest.approx(sum(row["cycles"] for row in section["layers"]))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--target", "microbit", "--map", "layer"], "has no memory levels"),
        (["--target", "host", "--map", "layer", "--tile", "rolling"], "--map goes with"),
        (["--target", "host", "--map", "layer", "--arena", "caller"], "--map goes with"),
        (["--target", "host", "--map", "layer", "--objective", "energy"], "states no `energy:` of memory L1"),
    ],
)
def test_what_does_not_go_together(options: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(DIGITS), *options]) == 1
    assert text in capsys.readouterr().err
