"""The ready overlays of hal/overlays: every file reads, says something of each pattern, and is for parts of its own."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from edgebuild.base.facts import read_facts
from edgebuild.base.target import hal_dir
from edgebuild.driver.registers import overlay as ready
from edgebuild.driver.registers.overlay import Overlay, Words, overlays_of, ready_overlays
from edgebuild.driver.registers.regmap import RegisterMap

FILES = sorted((hal_dir() / "overlays").glob("*.yaml"))


@cache
def read(file: Path) -> Overlay:
    return read_facts(Overlay, file)


@pytest.fixture(autouse=True)
def each_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read once for all tests, which takes a second less."""
    monkeypatch.setattr(ready, "read_facts", lambda _, path: read(path))


def layers(device: str) -> list[Overlay]:
    """The ready overlays for the description of a device."""
    return list(overlays_of(RegisterMap(device, ()), Overlay(), Path("chip.overlay.yaml"))[:-1])


def names_of(part: str) -> tuple[str, ...]:
    """Devices that a pattern is for."""
    return (part.replace("*", ""), part.replace("*", "0"), part.replace("*", "9X"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_a_ready_overlay_says_something_of_each_pattern(file: Path) -> None:
    overlay = read(file)
    assert overlay.fields and ready_overlays([file.stem], file)[-1] == overlay
    for pattern, words in overlay.fields.items():
        assert words != Words(), f"{pattern} says nothing"
        assert re.fullmatch(r"[^.]+\.[^.]+\.[^.]+", pattern), f"{pattern} is no PERIPHERAL.REGISTER.FIELD"
        assert not (words.volatile and words.stored) and not (words.write and words.stored), pattern
    keys = re.findall(r'^  "([^"]+)":', file.read_text(), re.M)
    assert keys == list(overlay.fields), "a pattern is there twice, or without quotes"


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_a_ready_overlay_names_what_confirms_it(file: Path) -> None:
    """A document, and a source outside of this project by its repository, commit and date."""
    assert re.search(r"[\w-]+/[\w-]+ [0-9a-f]{7} \d{4}-\d\d-\d\d", read(file).source), read(file).source


def test_a_part_has_one_ready_overlay() -> None:
    """Names of parts are read from the text alone, so that a description costs one small file."""
    assert FILES
    for file in FILES:
        for part in read(file).parts:
            for name in names_of(part):
                assert fnmatchcase(name, part)
                assert layers(name) == ready_overlays([file.stem], file), name


@pytest.mark.parametrize(
    ("device", "file"),
    [
        ("STM32F103", "stm32"), ("STM32F405", "stm32"), ("STM32L152", "stm32"), ("STM32L0x3", "stm32-crc"),
        ("STM32H743x", "stm32-crc"), ("STM32U575", "stm32-crc"), ("STM32F7x9", "stm32-fifo"),
        ("STM32WB55_CM4", "stm32-fifo"), ("STM32WB05", ""), ("STM32WBA52", ""), ("ESP32-C3", "esp32"),
        ("nrf52840", "nrf52"), ("ATSAMD21G18A", "samd21"), ("GD32VF103", "gd32f1"), ("RP2040", "rp2040"),
    ],
)  # fmt: skip
def test_the_description_of_a_vendor_finds_its_overlay(device: str, file: str) -> None:
    assert layers(device) == ready_overlays([file] if file else [], Path(file))


def test_widths_that_only_some_parts_take() -> None:
    """CRC of F1 and F4 takes words, that of F3 bytes; only SPI with FIFOs does; what is read of CRC is not taken."""

    def of(file: str, name: str) -> Words:
        words = Words()
        for layer in ready_overlays([file], Path(file)):
            words = layer.of(name).over(words)
        return words

    assert [of(f, "CRC.DR.DR") for f in ("stm32", "stm32-crc")] == [
        Words(write="modify"),
        Words(write="modify", bytes=True),
    ]
    assert [of(f, "SPI1.DR.DR").bytes for f in ("stm32", "stm32-crc", "stm32-fifo")] == [None, None, True]
    triggers = ("RTC.CTRL.LOAD", "PIO1.CTRL.SM_RESTART", "PWM.CH3_CSR.PH_ADV", "USBCTRL_REGS.SIE_CTRL.STOP_TRANS")
    assert {of("rp2040", name) for name in triggers} == {Words(back="0")}  # they clear themselves
    assert of("stm32-fifo", "SPI1.DR.DR") == Words(read="modify", write="modify", bytes=True)
