"""Chips that ship: where their figures are from, and that a program links into their memories."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target, target_names
from edgebuild.build.size import Linked, as_json, program_sizes
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import measure

DIGITS = Path(__file__).parents[2] / "sample_projects/digits/digits.onnx"
CHIPS = {name: chip for name in target_names() if (chip := load_target(name)).clock_hz}
FAMILIES = """
    stm32f0 stm32f1 stm32f2 stm32f3 stm32f4 stm32f7 stm32h5 stm32h7 stm32l0 stm32l1 stm32l4 stm32l5 stm32g0 stm32g4
    stm32u0 stm32u5 stm32wb stm32wl stm32c0 stm32n6 nrf51 nrf52 nrf53 nrf54 nrf91 rp2040 rp2350 samd21 samd51 mk lpc
    mimxrt mcx ra4 ra6 ra8 efr32 apollo esp32c3 esp32c6 esp32h2 esp32p4 gd32v ch32v fe310 bl""".split()  # noqa: SIM905
DOCUMENT = ("datasheet", "data sheet", "manual", "specification", "DS1", "DS5", "DS6", "DS8", "DS9")
ONE_OF_EACH = {chip.toolchain.arch: name for name, chip in CHIPS.items()}


def test_there_are_chips_of_many_vendors() -> None:
    assert len(CHIPS) >= 100
    assert not [family for family in FAMILIES if not any(name.startswith(family) for name in CHIPS)]


@pytest.mark.parametrize("name", CHIPS)
def test_a_chip_names_the_document_of_its_memories(name: str) -> None:
    chip = CHIPS[name]
    assert any(word in chip.source for word in DOCUMENT)
    assert 1_000_000 <= chip.clock_hz <= 1_000_000_000
    assert chip.firmware is not None
    assert chip.firmware.stack <= chip.memory("stack").size // 4


@pytest.mark.parametrize("name", sorted(ONE_OF_EACH.values()))
def test_a_program_for_a_chip_of_each_core_links_into_its_memories(name: str, tmp_path: Path) -> None:
    chip = CHIPS[name]
    if shutil.which(chip.toolchain.compiler) is None:
        pytest.skip(f"not installed: {chip.toolchain.compiler}")
    measured = measure(chip, compile_model(ModelRequest(DIGITS, "model", name)), tmp_path)
    assert measured["arena_bytes"] > 0
    used = as_json(program_sizes(Linked(tmp_path / "minimal.elf", memories=chip.memories)))["memories"]
    for memory in chip.memories:
        assert used.get(memory.name, 0) <= memory.size
    assert used[chip.memory("code").name] > 0
