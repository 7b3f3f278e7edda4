"""Clocks that a chip cannot have, budgets that no plan keeps, and facts or measurements that are missing or wrong."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fail.registry import case
from tests.graphs import tiny_tflite

CLOCK = "clock --target stm32f767 -o out"
ENERGY = "model tiny.tflite --name n --target {} --objective energy -o out"
CALIBRATION = """\
device: stm32f767
placement: flash
measurements: "chip.csv"
timing:
  cycles_per_instruction: 1.25
  flash_line_cycles: ten
  sram_line_cycles: unknown
  error: {rms_percent: 3, worst_percent: 7, measurements: 80}
run: unknown
sleep: unknown
lfo_ma: unknown
stop_ma: unknown
"""
MEASUREMENTS = "what,config,step,phase,value\ncycles,216MHZ,0,,12000\ncycles,215MHZ,0,,12000\n"


def energy(folder: Path, target: str = "stm32f767") -> str:
    (folder / "tiny.tflite").write_bytes(tiny_tflite())
    return ENERGY.format(target)


@case
def clock_illegal_hse(folder: Path) -> tuple[str, str]:
    expected = r"error: stm32f767: an HSE of 60 MHz is not possible\n.*from 4 MHz to 26 MHz\n.*from 1 MHz to 50 MHz"
    return f"{CLOCK} --hse 60MHz", expected


@case
def clock_unknown_sysclk(folder: Path) -> tuple[str, str]:
    expected = r"no PLL setting gives 300 MHz from the HSE at 8 MHz: SYSCLK would be 300 MHz, above 216\n.*nearest: "
    return f"{CLOCK} --sysclk 216MHz,300MHz", expected


@case
def clock_no_frequency(folder: Path) -> tuple[str, str]:
    return f"{CLOCK} --sysclk fast", r"error: option 'sysclk': 'fast' is not a frequency\n.*8MHz"


@case
def clock_request_with_a_source(folder: Path) -> tuple[str, str]:
    request = {"kind": "clock", "name": "c", "options": {}, "output": "out", "schema": 1, "source": "c.yaml",
               "target": "stm32f767"}  # fmt: skip
    (folder / "c.req.json").write_text(json.dumps(request))
    return "run c.req.json", r"c\.req\.json: error: member 'source' must be there and be an empty list"


@case
def energy_impossible_budget(folder: Path) -> tuple[str, str]:
    expected = r"tiny\.tflite: error: the fastest plan takes 0\.\d+ ms; the budget is 0\.001\n.*give at least 0\.\d+ ms"
    return f"{energy(folder)} --qos 0.001", expected


@case
def energy_without_a_budget(folder: Path) -> tuple[str, str]:
    return energy(folder), r"tiny\.tflite: error: --objective energy needs --qos MS"


@case
def energy_illegal_hse(folder: Path) -> tuple[str, str]:
    return f"{energy(folder)} --qos 9 --hse 0.5MHz", r"error: stm32f767: an HSE of 0\.5 MHz is not possible"


@case
def energy_without_a_clock_tree(folder: Path) -> tuple[str, str]:
    return f"{energy(folder, 'mps2-an500')} --qos 9", r"error: --objective energy: target mps2-an500 has no clock tree"


@case
def energy_without_currents(folder: Path) -> tuple[str, str]:
    expected = r"error: stm32l4x6: currents are unknown, so energy cannot be modelled; choose another objective"
    return f"{energy(folder, 'stm32l476')} --qos 9", expected


@case
def energy_malformed_calibration(folder: Path) -> tuple[str, str]:
    (folder / "c.yaml").write_text(CALIBRATION)
    return f"{energy(folder)} --qos 9 --calibration c.yaml", r"c\.yaml:6:22: error: expected a number, not 'ten'"


@case
def energy_calibration_of_another_chip(folder: Path) -> tuple[str, str]:
    (folder / "c.yaml").write_text(CALIBRATION.replace("ten", "10"))
    expected = r"c\.yaml: error: this is a calibration of stm32f767, not of stm32f429"
    return f"{energy(folder, 'stm32f429')} --qos 9 --calibration c.yaml", expected


@case
def calibrate_unknown_clock(folder: Path) -> tuple[str, str]:
    (folder / "tiny.tflite").write_bytes(tiny_tflite())
    (folder / "chip.csv").write_text(MEASUREMENTS)
    expected = r"chip\.csv:3: error: there is no configuration '215MHZ'; did you mean '216MHZ'\?\n.*at this HSE: 8MHZ"
    return "calibrate tiny.tflite --target stm32f767 --fit chip.csv -o out", expected


@case
def calibrate_without_a_step(folder: Path) -> tuple[str, str]:
    (folder / "tiny.tflite").write_bytes(tiny_tflite())
    (folder / "chip.csv").write_text(MEASUREMENTS.replace("216MHZ,0", "216MHZ,"))
    expected = r"chip\.csv:2: error: the number of a step is missing"
    return "calibrate tiny.tflite --target stm32f767 --fit chip.csv -o out", expected
