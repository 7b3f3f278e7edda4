"""Vectors that come with a model: right as it is, wrong after any change of what it computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.artifacts import publish
from edgebuild.base.programs import own
from edgebuild.base.request import model_request
from edgebuild.base.target import firmware_support, hal_dir, link_flags, load_target
from edgebuild.cli import main
from edgebuild.model.compile import compile_model
from tests.conftest import ROOT, run
from tests.importers.test_state import svdf

DIGITS = ROOT / "sample_projects" / "digits" / "digits.onnx"
MAIN = '#include "d.h"\nint main(void) { return d_selftest() == 0 ? 0 : 3; }\n'


def built(folder: Path, model: Path, **options: str) -> list[str]:
    """The command that builds the program on this machine; its sources are in the folder."""
    words = {"selftest": "on", "weights": "c", **options}
    publish(compile_model(model_request(model, "d", "host", words)), folder)
    (folder / "main.c").write_text(MAIN)
    return ["gcc", "-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Werror", "main.c", "d.c", "d_weights.c", "-o", "x"]


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("options", [{}, {"tile": "rolling", "objective": "ram"}, {"steps": "on"}], ids=str)
def test_the_vector_is_right_until_something_changes(options: dict[str, str], tmp_path: Path) -> None:
    command = built(tmp_path, DIGITS, **options)
    run(*command, cwd=tmp_path)
    run("./x", cwd=tmp_path)
    code = (tmp_path / "d.c").read_text()
    assert "/* x_zero */ -128" in code
    (tmp_path / "d.c").write_text(code.replace("/* x_zero */ -128", "/* x_zero */ -90"))
    run(*command, cwd=tmp_path)
    run("./x", cwd=tmp_path, status=3)


@pytest.mark.needs("gcc")
def test_states_begin_anew_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "cell.tflite").write_bytes(svdf("int8", "int8"))
    command = built(tmp_path, tmp_path / "cell.tflite")
    (tmp_path / "main.c").write_text(
        '#include "d.h"\nint main(void) { d_invoke(); return d_selftest() + d_selftest(); }\n'
    )
    run(*command, cwd=tmp_path)
    run("./x", cwd=tmp_path)


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_on_a_microcontroller_in_a_section_of_its_own(tmp_path: Path) -> None:
    target = load_target("microbit")
    publish(compile_model(model_request(DIGITS, "d", "microbit", {"selftest": "on"})), tmp_path)
    publish(firmware_support(target), tmp_path)
    (tmp_path / "main.c").write_text(MAIN)
    assert target.runner is not None
    hal, tools = [hal_dir() / s for s in (*target.startup, *target.runner.sources)], target.toolchain
    run(tools.compiler, *tools.cflags, "-I.", f"-I{hal_dir() / 'include'}", "main.c", "d.c", "d_weights.S", *hal,
        *link_flags(target, ("d_memory.ld",)), "-Wl,-Map=x.map", "-o", "x.elf", *tools.libs, cwd=tmp_path)  # fmt: skip
    assert ".rodata.edgebuild.d.selftest" in (tmp_path / "x.map").read_text()
    run(*own([word.replace("{elf}", "x.elf") for word in target.runner.command]), cwd=tmp_path)


@pytest.mark.parametrize(
    ("model", "words", "message"),
    [
        (DIGITS, ["--arena", "caller"], "option 'selftest': not with --arena caller"),
        (DIGITS, ["--stream-input", "rows"], "option 'selftest': not with --stream-input"),
        (None, [], "option 'selftest': 'x' is float32; vectors are for quantised models"),
    ],
)
def test_wrong_options(
    model: Path | None, words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if model is None:
        (model := tmp_path / "real.tflite").write_bytes(svdf("float32", "float32"))
    assert main(["model", str(model), "--target", "host", "-o", str(tmp_path), "-q", "--selftest", *words]) == 1
    assert message in capsys.readouterr().err
