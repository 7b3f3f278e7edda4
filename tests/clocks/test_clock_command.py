"""`edgebuild clock`, as a user calls it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from edgebuild.cli import main
from tests.conftest import ROOT

STRICT = ("-std=c11", "-ffreestanding", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wcast-qual",
          "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wundef", "-Werror")  # fmt: skip


def files(folder: Path) -> dict[str, bytes]:
    return {f.name: f.read_bytes() for f in sorted(folder.iterdir())}


def test_it_prints_the_table_and_writes_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clock", "--target", "stm32f767", "-o", str(tmp_path), "--hse", "50000000"]) == 0
    out = capsys.readouterr().out
    assert "144MHZ" in out and "modelled" in out
    assert list(files(tmp_path)) == ["clock_config.c", "clock_config.h"]
    header = (tmp_path / "clock_config.h").read_text()
    for frequency in (144, 180, 216):
        assert f"EB_CLOCK_{frequency}MHZ," in header
    for function in ("init(void)", "switch(eb_clock_config to)", "lfo(void)", "hfo(void)"):
        assert f"void eb_clock_{function};" in header
    assert max(map(len, (header + (tmp_path / "clock_config.c").read_text()).splitlines())) <= 125


def test_the_same_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert main(["clock", "--target", "stm32f429", "-o", str(tmp_path / name)]) == 0
    assert files(tmp_path / "a") == files(tmp_path / "b")


@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.parametrize("hse", ["1MHz", "8MHz", "50MHz"])
@pytest.mark.parametrize("target", ["stm32f767", "stm32f429", "stm32f411"])
def test_no_warnings(target: str, hse: str, tmp_path: Path) -> None:
    assert main(["clock", "--target", target, "-o", str(tmp_path), "--hse", hse]) == 0
    for flags in (["-O2"], ["-Os", "-DEB_CLOCK_HSE_BYPASS=0", "-DEB_CLOCK_INITIAL=((eb_clock_config)0)"]):
        command = [
            "arm-none-eabi-gcc",
            "-mcpu=cortex-m4",
            "-mthumb",
            *STRICT,
            *flags,
            "-c",
            "clock_config.c",
            "-o",
            "c.o",
        ]
        subprocess.run(command, cwd=tmp_path, check=True)


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["--hse", "50000000", "--explain", "50,75,2"], 0, "illegal: VCO would be 75 MHz, below 100"),
        (["--hse", "50MHz", "--explain", "25,216,2"], 0, "legal: SYSCLK 216 MHz"),
        (["--explain", "25,216"], 1, "'25,216' is not M,N,P"),
        (["--hse", "60MHz"], 1, "an HSE of 60 MHz is not possible"),
        (["--hse", "fast"], 1, "'fast' is not a frequency"),
        (["--sysclk", "300M"], 1, "no PLL setting gives 300 MHz"),
    ],
)
def test_what_it_says(
    arguments: list[str], status: int, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["clock", "--target", "stm32f767", "-o", str(tmp_path), *arguments]) == status
    captured = capsys.readouterr()
    assert text in captured.out + captured.err
    assert not files(tmp_path)


def test_a_target_without_a_clock_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clock", "--target", "mps2-an386", "-o", str(tmp_path)]) == 1
    assert "has no clock tree" in capsys.readouterr().err


def test_the_depfile_names_the_facts_of_the_user(tmp_path: Path) -> None:
    """Those that ship are of edgebuild's code, for which one file stands."""
    own = tmp_path / "own.yaml"
    own.write_text("inherits: stm32f411\ndescription: a board\n")
    assert main(["clock", "--target", str(own), "-o", str(tmp_path / "o"), "--depfile", str(tmp_path / "d")]) == 0
    text = (tmp_path / "d").read_text()
    assert str(own) in text and "edgebuild.code" in text and "stm32f411.yaml" not in text


def test_a_chip_without_currents_can_still_be_built_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its table has question marks, and objectives but energy need no currents."""
    assert main(["clock", "--target", "stm32l476", "-o", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "80MHZ" in out and "?" in out
    digits = ROOT / "sample_projects" / "digits" / "digits.onnx"
    for objective in ("latency", "ram"):
        command = ["model", str(digits), "--target", "stm32l476", "--objective", objective, "-o", str(tmp_path), "-q"]
        assert main(command) == 0


def test_an_oscillator_that_the_chip_does_not_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clock", "--target", "stm32f103c8", "-o", str(tmp_path / "out"), "--source", "msi"]) == 1
    assert "the frequency of the MSI is unknown" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "row", "cells"),
    [
        ("stm32h743", "400MHZ", {"from": "PLL", "APB1": "100", "APB2": "100"}),  # RM0433: behind an AHB of 200 MHz
        ("esp32c3", "160MHZ", {"APB1": "80"}),  # its manual: APB_CLK is at most 80 MHz
        ("fe310-g002", "14400KHZ", {"from": "HSI"}),
        ("fe310-g002", "16MHZ", {"from": "HSE", "APB1": "16"}),
    ],
)
def test_sources_and_bus_clocks_of_the_table(
    target: str, row: str, cells: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["clock", "--target", target, "-o", str(tmp_path)]) == 0
    _, heads, *lines = (re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines())
    values = dict(zip(heads, next(line for line in lines if line[0] == row), strict=True))
    assert {name: values[name] for name in cells} == cells
