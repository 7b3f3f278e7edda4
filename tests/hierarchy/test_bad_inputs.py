"""Targets and options that no plan of tiles can serve: what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.cli import main
from tests.conftest import ROOT

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
L1 = "L1: {{origin: 2G, size: {size}, roles: [], level: 1}}"
RAM = "RAM: {origin: 1G, size: 1G, roles: [arena, data, stack], level: 2, access: dma}"


def target(folder: Path, memories: str = "", dma: str = "", ram: str = RAM) -> str:
    text = f"inherits: host\ndescription: x\nmemories: {{{', '.join(filter(None, (ram, memories)))}}}\n"
    file = folder / "bad.yaml"
    file.write_text(text + (f"dma: {{copier: {{between: [ROM, RAM, L1], {dma}}}}}\n" if dma else ""))
    return str(file)


def errors_of(capsys: pytest.CaptureFixture[str], method: str, chip: str) -> str:
    assert main(["model", str(DIGITS), "--name", "n", "--target", chip, "--map", method, "-o", "out"]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("method", ["layer", "dory", "auto"])
def test_a_first_level_below_the_smallest_tile(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The node, how much it needs, and a remedy."""
    text = errors_of(capsys, method, target(tmp_path, L1.format(size=16)))
    assert (
        "digits.onnx" in text and "smallest tile needs" in text and "L1, which has 16 B" in text and "over by" in text
    )


def test_a_second_level_below_what_is_live(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The node, what lives there, and a remedy."""
    text = errors_of(capsys, "layer", target(tmp_path, ram=RAM.replace("size: 1G", "size: 512")))
    assert "node '" in text and "does not fit: memory RAM has 512 B" in text and "live at this step: " in text


def test_mappings_go_to_the_memory_that_a_unit_joins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A memory before it has a unit of its own, which does not reach the first level."""
    other, far = "OTHER: {origin: 3G, size: 64K, roles: [], level: 2}", RAM.replace("level: 2", "level: 3")
    chip = target(tmp_path, ram=f"{other}, {far}", dma="channels: 16}, other: {between: [OTHER, RAM]")
    assert main(["map", str(DIGITS), "--target", chip]) == 0
    assert "total" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["layer", "auto"])
def test_an_alignment_that_no_tile_meets(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = errors_of(capsys, method, target(tmp_path, dma="channels: 16, align: 4096"))
    assert "multiples of 4096 B" in text and "align" in text


@pytest.mark.parametrize(
    ("dma", "wanted"),
    [("align: 12", "align 12: a power of two"), ("align: 16, largest: 8", "copies at most 8 B"),
     ("align: 8K", "align 8192")],
)  # fmt: skip
def test_units_that_cannot_be(dma: str, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No power of two, less than it copies at a time, a memory that does not begin at a multiple."""
    ram = RAM.replace("1G, size: 1G", "0x40001000, size: 1M")
    text = errors_of(capsys, "layer", target(tmp_path, dma=dma, ram=ram))
    assert "bad.yaml" in text and wanted in text


def test_weights_larger_than_their_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rom = "ROM: {origin: 0, size: 4K, roles: [code, weights], level: 3, bytes_per_cycle: 2}"
    text = errors_of(capsys, "layer", target(tmp_path, rom, ram=""))
    assert "weights" in text and "memory ROM of bad has 4096 B" in text and "over by" in text


def test_an_engine_with_one_scratchpad_for_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.yaml"
    text = (ROOT / "hal" / "targets" / "diana.yaml").read_text()
    assert "memories: [ACT, WGT]" in text
    file.write_text(text.replace("memories: [ACT, WGT]", "memories: [ACT, ACT]"))
    text = errors_of(capsys, "layer", str(file))
    assert "bad.yaml" in text and "names ACT for activations and for weights" in text


def test_levels_that_overlap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = errors_of(
        capsys, "layer", target(tmp_path, "L1: {origin: 0x40000100, size: 1K, roles: [], level: 1}", ram="")
    )
    assert "bad.yaml" in text and "begins inside of" in text


def test_limits_of_memories_that_are_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--target", "host", "--map", "layer", "--limit", "L9=4K", "-o", "out"]
    assert main(["model", str(DIGITS), "--name", "n", *options]) == 1
    assert "no memory 'L9'" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["layer", "auto"])
def test_limits_below_the_stack(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--target", "stm32h743", "--map", method, "--limit", "DTCM=2K", "-o", "out"]
    assert main(["model", str(DIGITS), "--name", "n", *options]) == 1
    assert "DTCM has 2048 B, and the stack in it takes 4096 B" in capsys.readouterr().err


def test_weights_that_no_dma_reaches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither at once nor by way of the second level."""
    file = target(tmp_path, "EXT: {origin: 3G, size: 64K, roles: [], level: 4}", ram="")
    units = "dma: {copier: {between: [RAM, L1]}, io: {between: [ROM, EXT]}}"
    Path(file).write_text(Path(file).read_text() + units + "\n")
    text = errors_of(capsys, "layer", file)
    assert "bad.yaml" in text and "no DMA of target bad reaches both L1 and ROM" in text
