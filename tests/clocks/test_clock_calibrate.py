"""Calibration: known constants are found again from what a chip with them would show, and bad files are refused."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.cli import main
from edgebuild.clock.configs import PowerModel, clock_plan
from edgebuild.clock.tree import ClockTree, load_clock_tree
from edgebuild.model.energy.layer_cost import (
    COLUMNS,
    CodeStretch,
    Measurement,
    Work,
    calibrated,
    calibration_text,
    calibration_words,
    fit,
    layer_points,
    point,
    read_calibration,
    read_measurements,
    require_timing,
)

TREE = load_clock_tree("stm32f767")
CONSTANTS = {"cycles_per_instruction": 1.37, "flash_line_cycles": 7.5, "sram_line_cycles": 17.0}


def model_of(tree: ClockTree) -> PowerModel:
    return PowerModel(clock_plan(tree, 8_000_000), "flash")


MODEL = model_of(TREE)


def steps(seed: int, count: int = 12) -> list[Work]:
    """Steps of all kinds: some wait for flash, some for RAM, some are decoupled."""
    rng = random.Random(seed)
    works = []
    for k in range(count):
        instructions = rng.uniform(5e4, 5e6)
        execute = CodeStretch(
            instructions, rng.choice([0, 0.002, 0.02]) * instructions, rng.uniform(0, 0.01) * instructions
        )
        access = CodeStretch(instructions / 9, sram_lines=instructions / 200) if k % 3 == 0 else None
        works.append(Work(f"step{k}", 8 if access else 0, execute, access, 4 if access else 0))
    return works


def chip(works: Sequence[Work], seed: int, noise: float) -> list[Measurement]:
    """Measurements of a chip with CONSTANTS, 1.1 times the sheet's current, and 4 mA more."""
    rng = random.Random(seed)
    assert TREE.timing
    timing = replace(TREE.timing, **CONSTANTS)
    rows = []
    for c in MODEL.plan.configs:
        for k, w in enumerate(works):
            for name, phase in (("execute", w.execute), ("access", w.access)) if w.access else (("", w.execute),):
                assert phase
                cycles = phase.cycles(timing, c.wait_states or 0) * rng.gauss(1, noise)
                rows.append(Measurement("cycles", c.name, k, name, cycles, len(rows) + 2))
        run, sleep = MODEL.run_mw(c) / 3.3 * 1.1 + 4, MODEL.sleep_mw(c) / 3.3 * 0.9
        rows.append(Measurement("run_ma", c.name, None, "", run * rng.gauss(1, noise), len(rows) + 2))
        rows.append(Measurement("sleep_ma", c.name, None, "", sleep * rng.gauss(1, noise), len(rows) + 2))
    rows.append(Measurement("stop_ma", "low_power", None, "", 0.4, len(rows) + 2))
    rows.append(Measurement("lfo_ma", "216MHZ", None, "", 21.0, len(rows) + 2))
    return rows


@pytest.mark.parametrize(("noise", "near"), [(0.0, 1e-3), (0.01, 0.04), (0.03, 0.12)])
@pytest.mark.parametrize("seed", range(5))
def test_the_constants_of_a_chip_are_recovered(seed: int, noise: float, near: float) -> None:
    works = steps(seed)
    calibration = fit(chip(works, seed, noise), works, MODEL, "chip.csv")
    assert calibration.timing and calibration.run and calibration.sleep
    assert calibration.timing.constants == pytest.approx(tuple(CONSTANTS.values()), rel=near)
    assert calibration.run.factor == pytest.approx(1.1, rel=max(near, 1e-3))
    assert calibration.run.of(90) == pytest.approx(1.1 * 90 + 4, rel=max(noise, 1e-3))
    assert calibration.sleep.of(20) == pytest.approx(18, rel=max(2 * noise, 1e-3))
    assert calibration.timing.error.rms_percent == pytest.approx(100 * noise, rel=0.25, abs=0.05)


def test_a_tree_with_a_calibration_predicts_the_chip(tmp_path: Path) -> None:
    works = steps(7)
    (tmp_path / "c.yaml").write_text(calibration_text(fit(chip(works, 7, 0.0), works, MODEL, "chip.csv")))
    tree = calibrated(TREE, read_calibration(tmp_path / "c.yaml", TREE))
    model, fast = model_of(tree), MODEL.plan.config("216MHZ")
    assert model.run_mw(fast) / 3.3 == pytest.approx(1.1 * 90 + 4, rel=1e-3)
    assert model.lfo_mw(fast) / 3.3 == pytest.approx(21)
    modes = {m.name: m.power_mw / 3.3 for m in model.idle_modes(fast)}
    assert modes["stop_low_power"] == pytest.approx(0.4) and modes["stop_main"] == pytest.approx(0.45)
    assert modes["gated"] == pytest.approx(0.9 * 24, rel=1e-3)
    expected = works[1].execute.cycles(replace(require_timing(MODEL), **CONSTANTS), 7) / 216
    assert point(works[1], fast, model).time_us == pytest.approx(expected, rel=1e-3)
    assert "fitted to chip.csv" in require_timing(model).source and tree.power and "fitted" in tree.power.of


def test_the_table_shows_fitted_currents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    works = steps(7)
    (tmp_path / "c.yaml").write_text(calibration_text(fit(chip(works, 7, 0.0), works, MODEL, "chip.csv")))
    command = ["clock", "--target", "stm32f767", "-o", str(tmp_path), "--calibration", str(tmp_path / "c.yaml")]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "103.0" in out and "fitted to chip.csv" in out and "Currents: modelled" in out


def test_what_was_not_measured_stays(tmp_path: Path) -> None:
    works = [replace(w, execute=replace(w.execute, sram_lines=0.0), access=None) for w in steps(3)]
    rows = [m for m in chip(works, 3, 0.0) if m.what == "cycles"]
    result = fit(rows, works, MODEL, "chip.csv")
    assert result.timing and result.timing.sram_line_cycles is None and result.run is None and result.stop_ma is None
    assert result.timing.constants[:2] == pytest.approx((1.37, 7.5), rel=1e-3)
    (tmp_path / "c.yaml").write_text(calibration_text(result))
    assert read_calibration(tmp_path / "c.yaml", TREE) == result
    tree = calibrated(TREE, result)
    assert tree.power == TREE.power
    assert tree.timing and TREE.timing and tree.timing.sram_line_cycles == TREE.timing.sram_line_cycles


def test_no_constant_is_negative() -> None:
    works = [Work("a", 0, CodeStretch(1e5, 100)), Work("b", 0, CodeStretch(1e5, 0))]
    rows = [Measurement("cycles", "216MHZ", 0, "", 9e4, 2), Measurement("cycles", "216MHZ", 1, "", 1e5, 3)]
    result = fit(rows, works, MODEL, "m.csv")
    assert result.timing and result.timing.flash_line_cycles == 0 and (result.timing.cycles_per_instruction or 0) > 0.9


def test_times_serve_as_well_as_cycles() -> None:
    works = steps(1)
    rows = [m for m in chip(works, 1, 0.0) if m.what == "cycles"]
    hz = {c.name: c.sysclk_hz for c in MODEL.plan.configs}
    times = [replace(m, what="us", value=m.value / hz[m.config] * 1e6) for m in rows]
    assert fit(times, works, MODEL, "m").timing == fit(rows, works, MODEL, "m").timing


def test_words_say_what_is_better_now() -> None:
    works = steps(2)
    rows = chip(works, 2, 0.01)
    text = calibration_words(fit(rows, works, MODEL, "chip.csv"), MODEL, works, rows)
    assert (
        "cycles per instruction" in text
        and "% -> 1.0% rms" in text
        and "measured" not in text.replace("measurements", "")
    )


# ---- files


def csv_text(*rows: str) -> str:
    return "\n".join([",".join(COLUMNS), *rows]) + "\n"


def test_both_forms_of_a_file_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("# from the chip\n" + csv_text("cycles,216MHZ,3,access,1200", "run_ma,8MHZ,,,9.5"))
    rows = [
        {"what": "cycles", "config": "216MHZ", "step": 3, "phase": "access", "value": 1200},
        {"what": "run_ma", "config": "8MHZ", "value": 9.5},
    ]
    (tmp_path / "m.json").write_text(json.dumps(rows))
    one, two = read_measurements(tmp_path / "m.csv"), read_measurements(tmp_path / "m.json")
    assert [replace(m, line=0) for m in one] == [replace(m, line=0) for m in two]
    assert [m.line for m in one] == [3, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("what,config,value\n", r"m.csv:1: error: the first line is not the header"),
        (csv_text("cycles,216MHZ,3,,1200", "cycles,216MHZ,3,1200"), r"m.csv:3: error: 4 columns, not 5"),
        (csv_text("cycle,216MHZ,3,,1200"), r"m.csv:2: error: 'cycle' is not measured; did you mean 'cycles'"),
        (csv_text("cycles,216MHZ,,,1200"), r"m.csv:2: error: the number of a step is missing"),
        (csv_text("run_ma,216MHZ,1,,90"), r"m.csv:2: error: run_ma is not of a step"),
        (csv_text("cycles,216MHZ,1,gather,90"), r"m.csv:2: error: phase 'gather'"),
        (csv_text("cycles,216MHZ,1,,0"), r"m.csv:2: error: '0' is not a number above 0"),
        (csv_text("cycles,216MHZ,1,,nan"), r"m.csv:2: error: 'nan' is not a number above 0"),
        (csv_text(), r"m.csv: error: there are no measurements"),
        ("", r"m.csv: error: there are no measurements"),
    ],
)
def test_wrong_files(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.csv").write_text(text)
    with pytest.raises(EdgebuildError, match=message):
        read_measurements(Path("m.csv"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Measurement("cycles", "217MHZ", 0, "", 1.0, 5), "m.csv:5: error: there is no configuration '217MHZ'; did you"),
        (Measurement("cycles", "216MHZ", 99, "", 1.0, 5), "m.csv:5: error: the model has no step 99: its steps are 0"),
        (Measurement("cycles", "216MHZ", 1, "access", 1.0, 5), "m.csv:5: error: step 1 is not decoupled"),
        (Measurement("stop_ma", "deep", None, "", 1.0, 5), "m.csv:5: error: stm32f767 has no stop mode 'deep'"),
    ],
)
def test_measurements_of_what_is_not_there(row: Measurement, message: str) -> None:
    with pytest.raises(EdgebuildError, match=message):
        fit([row], steps(0), MODEL, "m.csv")


def test_currents_that_fall_with_the_clock_are_refused() -> None:
    rows = [Measurement("run_ma", "8MHZ", None, "", 90.0, 2), Measurement("run_ma", "216MHZ", None, "", 10.0, 3)]
    with pytest.raises(EdgebuildError, match=r"m.csv:2: error: the measured currents fall where the sheet's rise"):
        fit(rows, steps(0), MODEL, "m.csv")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("device: stm32f767", "device: stm32f429", r"c.yaml: error: this is a calibration of stm32f429, not of"),
        ("placement: flash", "placement: flsh", r"c.yaml: error: .* has no placement 'flsh'; did you mean 'flash'"),
        ("flash_line_cycles: 7.5", "flash_line_cycles: many", r"c.yaml:7:\d+: error: expected a number, not 'many'"),
        ("flash_line_cycles: 7.5", "flash_line_cycles: -1", r"c.yaml:6:\d+: error: cycles and errors are not negative"),
        ("flash_line_cycles: 7.5", "flash_lines: 7.5", r"c.yaml:7:\d+: error: unknown key 'flash_lines'; did you mean"),
        ("{low_power: 0.4}", "{low_power: 0}", r"c.yaml:2:\d+: error: a current is above 0"),
        ("timing:", "timing: [", r"c.yaml:\d+:\d+: error: not YAML"),
    ],
)
def test_wrong_calibrations(old: str, new: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    works = steps(7)
    text = calibration_text(fit(chip(works, 7, 0.0), works, MODEL, "chip.csv"))
    assert old in text
    Path("c.yaml").write_text(text.replace(old, new))
    with pytest.raises(EdgebuildError, match=message):
        read_calibration(Path("c.yaml"), TREE)


def test_points_of_layers_follow_the_calibration() -> None:
    works = steps(5)
    tree = calibrated(TREE, fit(chip(works, 5, 0.0), works, MODEL, "chip.csv"))
    before, after = (layer_points("l", works[:1], m) for m in (MODEL, model_of(tree)))
    assert min(p.time_us for p in after.points) > 1.2 * min(p.time_us for p in before.points)
