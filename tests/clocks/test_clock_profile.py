"""`edgebuild calibrate` from the firmware to the calibration that the energy objective takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import ModelRequest
from edgebuild.base.target import load_target
from edgebuild.cli import main
from edgebuild.clock.tree import load_clock_tree
from edgebuild.model.clocked import power_model, works
from edgebuild.model.compile import compile_model, plan_model
from edgebuild.model.energy.layer_cost import read_calibration, read_measurements, require_timing
from edgebuild.model.verify.tune import fitted, profile, profile_words
from tests.conftest import ROOT
from tests.graphs.tflite_models import File
from tests.graphs.tiny import Tiny, X

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
F767 = ModelRequest(DIGITS, "model", "stm32f767")
MARK = pytest.mark.needs("arm-none-eabi-gcc")


@MARK
@pytest.mark.needs("qemu-system-arm")
def test_in_a_simulator_it_says_that_nothing_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", str(DIGITS), "--target", "mps2-an500", "-o", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert main(["calibrate", str(DIGITS), "--target", "mps2-an500", "-o", str(tmp_path), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["ran_on"] == "mps2-an500"
    assert "ran on mps2-an500" in out and "DWT CYCCNT stands still" in out and "nothing was measured" in out
    assert main(["calibrate", str(DIGITS), "--target", "mps2-an500", "-o", str(tmp_path), "--fit", "x"]) == 1
    assert "no clock tree" in capsys.readouterr().err


@MARK
def test_from_the_chip_to_the_objective(tmp_path: Path) -> None:
    """The firmware runs on a core whose code takes 1.5 cycles per halfword; its lines are fitted, and the model that is
    built with the result is slower than by what is assumed."""
    pytest.importorskip("unicorn")
    from tests.clocks.chip import Chip

    program = profile(F767, tmp_path, "PB7", 0)
    assert "16 clocks" in profile_words(program) and "run it on the chip" in profile_words(program)
    model = power_model(load_target("stm32f767"), F767)
    chip = Chip(load_target("stm32f767"), model.plan, tmp_path / "profile.elf", 1.5)
    chip.run()
    (tmp_path / "profile.csv").write_bytes(chip.written)

    rows = read_measurements(tmp_path / "profile.csv")
    steps = 1 + max(m.step or 0 for m in rows)
    assert [(m.config, m.step) for m in rows] == [(c.name, s) for c in model.plan.configs for s in range(steps)]
    by_config = {c.name: [m.value for m in rows if m.config == c.name] for c in model.plan.configs}
    for values in by_config.values():
        assert values == pytest.approx(by_config["216MHZ"], rel=0.02), "this core's cycles do not depend on the clock"
    high = [value for address, value in chip.pins if address == 0x40020418]
    assert high == [1 << 7, 1 << 23] * (len(high) // 2), "up and down in turns"
    assert len(high) == 2 * (2 * steps + 1) * len(model.plan.configs), (
        "in each step of two inferences, and in the empty one"
    )

    text, figures = fitted(F767, tmp_path / "profile.csv", None, tmp_path)
    assert "cycles per instruction" in text and "written: " in text
    assert f"{figures['timing']['error']['rms_percent']:.1f}% rms" in text and figures["run"] is None
    calibration = read_calibration(tmp_path / "calibration.yaml", model.plan.tree)
    assert calibration.timing and calibration.timing.error.rms_percent < 60 and calibration.run is None

    request = ModelRequest(DIGITS, "digits", "stm32f767", objective="energy", qos=50.0)
    slow = ModelRequest(**{**vars(request), "calibration": tmp_path / "calibration.yaml"})
    one, two = (
        json.loads(next(a.data for a in compile_model(r) if a.name == "digits_report.json")) for r in (request, slow)
    )
    measured_us = sum(by_config["216MHZ"]) / 216
    fastest = [
        min(p["time_us"] for p in layer["points"] if p["config"] == "216MHZ") for layer in two["energy"]["layers"]
    ]
    assert sum(fastest) == pytest.approx(measured_us, rel=0.3)
    assert two["energy"]["basis"] == one["energy"]["basis"] == "modelled"
    assert two["energy"]["time_us"] != one["energy"]["time_us"]


class Pointwise(Tiny):
    """1x1 convolution whose weights of 36 KB do not stay in the 16 KB of the F767's data cache: decoupling pays."""

    def __init__(self) -> None:
        self.file = File()
        image = self.file.tensor("image", (1, 6, 6, 192), "int8", X)
        self.inputs = [image]
        self.output = self.convolution(image, self.values(192, 1, 1, 192), (1, 6, 6, 192))


@MARK
def test_phases_of_a_decoupled_step_are_measured_separately(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pytest.importorskip("unicorn")
    from tests.clocks.chip import Chip

    file = tmp_path_factory.mktemp("network") / "pointwise.tflite"
    file.write_bytes(Pointwise().pack())
    request = ModelRequest(file, "model", "stm32f767", objective="energy", qos=20.0)
    profile(request, tmp_path, None, 0)
    model = power_model(load_target("stm32f767"), request)
    chip = Chip(load_target("stm32f767"), model.plan, tmp_path / "profile.elf", 1.5)
    chip.run()
    (tmp_path / "profile.csv").write_bytes(chip.written)
    rows = [m for m in read_measurements(tmp_path / "profile.csv") if m.config == "216MHZ"]
    decoupled = {m.step for m in rows if m.phase == "access"}
    report = json.loads((tmp_path / "model_report.json").read_text())
    chosen = works(plan_model(request, load_target("stm32f767")), require_timing(model))
    assert decoupled == {i for i, w in enumerate(chosen) if w.g} and decoupled
    assert {m.step for m in rows if m.phase == "execute"} == decoupled
    assert len(rows) == len(report["schedule"]["steps"]) + len(decoupled)
    fitted(request, tmp_path / "profile.csv", None, tmp_path)


@MARK
@pytest.mark.parametrize("tile", ["rolling", "fdt"])
def test_tiled_steps_are_measured(tmp_path: Path, tile: str) -> None:
    """Runs that go row by row count as one step, and loops over parts as all their turns."""
    pytest.importorskip("unicorn")
    from tests.clocks.chip import Chip

    request = replace(F767, tile=tile)
    profile(request, tmp_path, None, 0)
    plan = power_model(load_target("stm32f767"), request).plan
    chip = Chip(load_target("stm32f767"), plan, tmp_path / "profile.elf", 1.5)
    chip.run()
    assert b"wrong" not in chip.written
    (tmp_path / "profile.csv").write_bytes(chip.written)
    rows = [m for m in read_measurements(tmp_path / "profile.csv") if m.config == "216MHZ"]
    report = json.loads((tmp_path / "model_report.json").read_text())
    assert [m.step for m in rows] == list(range(len(report["schedule"]["steps"])))
    assert all(m.value > 0 for m in rows) and report["tiling"]
    fitted(request, tmp_path / "profile.csv", None, tmp_path)


@MARK
def test_a_supply_log_gives_currents(tmp_path: Path) -> None:
    model = power_model(load_target("stm32f767"), F767)
    lines = ["ms,ma,pin"]
    for c in model.plan.configs:
        ma = 1.2 * model.run_mw(c) / 3.3
        lines += ["0,11,0", "1,40,1", *[f"2,{ma},1"] * 5, "3,30,1", "4,11,0"]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "m.csv").write_text("what,config,step,phase,value\nstop_ma,main,,,0.5\n")
    fitted(F767, tmp_path / "m.csv", tmp_path / "log.csv", tmp_path)
    calibration = read_calibration(tmp_path / "calibration.yaml", load_clock_tree("stm32f767"))
    assert calibration.run and calibration.run.factor == pytest.approx(1.2, rel=1e-3) and calibration.timing is None
    (tmp_path / "short.csv").write_text("\n".join(lines[:-9]) + "\n")
    with pytest.raises(EdgebuildError, match="the pin is high 15 times"):
        fitted(F767, tmp_path / "m.csv", tmp_path / "short.csv", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "riscv-virt"], "target riscv-virt has no cycle counter that is known here"),
        (["--target", "host"], "target host has no cycle counter"),
        (["--target", "stm32f767", "--pin", "LED"], "option 'pin': 'LED' is not a pin"),
        (["--target", "mps2-an500", "--pin", "PB0"], "where this target's ports are is unknown"),
        (["--target", "mps2-an500", "--supply-ms", "5"], "no clock tree"),
        (["--target", "stm32f767", "--supply-log", "l.csv"], "--supply-log goes with --fit"),
        (["--target", "stm32f767", "--fit", "nowhere.csv"], "cannot read the measurements: No such file"),
    ],
)
def test_what_is_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", str(DIGITS), "-o", str(tmp_path / "out"), *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
