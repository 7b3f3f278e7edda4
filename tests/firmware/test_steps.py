"""Inferences step by step: the same results, what a step takes at most, and what stepping costs, in QEMU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgebuild.base.artifacts import publish
from edgebuild.base.programs import own
from edgebuild.base.request import model_request
from edgebuild.base.target import firmware_support, hal_dir, link_flags, load_target
from edgebuild.cli import main
from edgebuild.model.compile import compile_model
from edgebuild.model.verify import verify
from tests.conftest import ROOT, run
from tests.importers.test_state import svdf

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
CHIP = ["arm-none-eabi-gcc", "qemu-system-arm"]
CLOCK = 64_000_000
BOARD = "inherits: {name}\ndescription: a board that states its clock\nclock_hz: 64MHz\n"
# Rows of the result: instructions of the plain inference, of all steps and of the longest; steps; calls of the hook.
MAIN = """\
#include "eb_counter.h"
#include "eb_semihost.h"
#include "plain.h"
#include "stepped.h"

static uint32_t hooks;
void stepped_on_step(int32_t step)
{
    hooks += step >= 0;
}

static void fill(int8_t *input, uint32_t seed)
{
    for (uint32_t i = 0; i < PLAIN_INPUT_SIZE; ++i) {
        input[i] = (int8_t)(i * 37u + seed * 11u);
    }
}

int main(void)
{
    const int out = eb_open("out.bin", EB_WRITE);
    eb_counter_start();
    for (uint32_t seed = 0; seed < 3; ++seed) {
        uint32_t row[5] = {0};
        fill(plain_input(), seed);
        uint64_t before = eb_counter_read();
        plain_invoke();
        row[0] = (uint32_t)(eb_counter_read() - before);
        fill(stepped_input(), seed);
        hooks = 0;
        before = eb_counter_read();
        for (int more = 1; more != 0; ++row[3]) {
            more = stepped_step();
            const uint64_t now = eb_counter_read();
            row[2] = now - before > row[2] ? (uint32_t)(now - before) : row[2];
            before = now;
        }
        row[4] = hooks;
        for (uint32_t i = 0; i < PLAIN_OUTPUT_SIZE; ++i) {
            if (plain_output()[i] != stepped_output()[i]) {
                return 1;
            }
        }
        fill(stepped_input(), seed);
        before = eb_counter_read();
        (void)stepped_step(); /* the rest is for the other function */
        stepped_invoke();
        row[1] = (uint32_t)(eb_counter_read() - before);
        for (uint32_t i = 0; i < PLAIN_OUTPUT_SIZE; ++i) {
            if (plain_output()[i] != stepped_output()[i]) {
                return 1;
            }
        }
        eb_write(out, row, sizeof row);
    }
    eb_close(out);
    return 0;
}
"""


def measured(folder: Path, target_name: str, model: Path, **options: str) -> tuple[np.ndarray, dict[str, Any]]:
    """Rows that MAIN writes, a row for each input, and the report of the model in steps."""
    board = folder / "board.yaml"
    board.write_text(BOARD.format(name=target_name))
    target, plain = load_target(str(board)), {k: v for k, v in options.items() if k not in ("steps", "max_slice")}
    for name, chosen in (("plain", plain), ("stepped", options)):
        publish(compile_model(model_request(model, name, str(board), chosen)), folder)
    publish(firmware_support(target), folder)
    (folder / "main.c").write_text(MAIN)
    assert (target.runner is not None and target.runner.tick_hz is not None) or target_name == "riscv-virt"
    hal = [hal_dir() / s for s in (*target.startup, *target.runner.sources, "src/counter.c")]
    models = [f"{name}{suffix}" for name in ("plain", "stepped") for suffix in (".c", "_weights.S")]
    tools = target.toolchain
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Werror", "-DEDGEBUILD_ON_STEP"]
    linked = link_flags(target, ("plain_memory.ld", "stepped_memory.ld"))
    run(tools.compiler, *tools.cflags, *warnings, "-I.", f"-I{hal_dir() / 'include'}", "main.c", *models, *hal,
        *linked, "-o", "x.elf", *tools.libs, cwd=folder)  # fmt: skip
    run(*own([word.replace("{elf}", "x.elf") for word in target.runner.command]), cwd=folder)
    rows = np.frombuffer((folder / "out.bin").read_bytes(), "<u4").reshape(-1, 5).astype(float)
    rows[:, :3] *= 1e9 / target.runner.tick_hz if target.runner.tick_hz else 1.0
    return rows, json.loads((folder / "stepped_report.json").read_text())


CASES = [
    pytest.param("microbit", {"tile": "auto", "ram": "2K"}, marks=pytest.mark.needs(*CHIP)),
    pytest.param("mps2-an386", {"tile": "off"}, marks=pytest.mark.needs(*CHIP)),
    pytest.param("riscv-virt", {"tile": "rolling", "objective": "ram"},
                 marks=pytest.mark.needs("riscv64-unknown-elf-gcc", "qemu-system-riscv32")),
]  # fmt: skip


@pytest.mark.parametrize(("target", "options"), CASES)
def test_steps_make_what_an_inference_makes_and_cost_next_to_nothing(
    target: str, options: dict[str, str], tmp_path: Path
) -> None:
    """One call for each step of the schedule, and for each the hook; at most 1 % more instructions, hook included."""
    rows, report = measured(tmp_path, target, DIGITS, steps="on", **options)
    count = len(report["schedule"]["steps"])
    assert (rows[:, 3] == count).all() and (rows[:, 4] == count).all()
    assert (rows[:, 1] <= 1.01 * rows[:, 0] + 100).all(), rows


@pytest.mark.parametrize(("target", "options"), CASES)
def test_no_slice_is_longer_than_its_limit(target: str, options: dict[str, str], tmp_path: Path) -> None:
    """Of whole ops and of rolled runs; results are the same. An instruction takes a cycle or more."""
    limit = {"microbit": 1500, "mps2-an386": 310, "riscv-virt": 760}[target]
    rows, report = measured(tmp_path, target, DIGITS, max_slice=str(limit), **options)
    assert (rows[:, 3] > len(report["schedule"]["steps"])).all()
    assert (rows[:, 2] <= limit * CLOCK / 1e6 + 100).all(), rows
    assert report["slices"]["longest_us"] <= report["slices"]["limit_us"] == limit


def test_a_row_is_the_shortest_slice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command names the step that stays longer."""
    (tmp_path / "board.yaml").write_text(BOARD.format(name="mps2-an386"))
    words = ["--target", str(tmp_path / "board.yaml"), "-o", str(tmp_path), "--name", "d"]
    assert main(["model", str(DIGITS), *words, "--max-slice", "100"]) == 0
    assert "modelled: 7 head; it is longer than 100 us, for it cannot be cut further" in capsys.readouterr().out


@pytest.mark.needs("gcc")
@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", [{"max_slice": "5"}, {"steps": "on"}])
def test_states_and_parts_go_step_by_step(options: dict[str, str], tmp_path: Path) -> None:
    """Under the sanitizers: a cell that keeps its state, and ops cut into parts, whose calls are no loops then."""
    (tmp_path / "board.yaml").write_text(BOARD.format(name="host"))
    (tmp_path / "cell.tflite").write_bytes(svdf("int8", "int8"))
    target = load_target(str(tmp_path / "board.yaml"))
    for model, more in ((tmp_path / "cell.tflite", {}), (DIGITS, {"tile": "fdt", "objective": "ram"})):
        request = model_request(model, "model", str(tmp_path / "board.yaml"), {**options, **more})
        assert verify(model, target, compile_model(request))["equal"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "--arena", "caller"], "option 'steps': not with --arena caller"),
        (["--steps", "--stream-input", "rows"], "option 'steps': not with --stream-input"),
        (["--max-slice", "100"], "option 'max_slice': target mps2-an386 states no clock"),
        (["--max-slice", "0", "--target", "stm32f411"], "option 'max_slice': 0 us is no time for anything"),
        (["--max-slice", "-4"], "option 'max_slice': '-4' is not a number"),
    ],
)
def test_wrong_options(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = [] if "--target" in words else ["--target", "mps2-an386"]
    assert main(["model", str(DIGITS), *target, "-o", str(tmp_path), "-q", *words]) == 1
    assert message in capsys.readouterr().err
