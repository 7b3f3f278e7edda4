"""`edgebuild init` writes projects that build, run and stop in a debugger, and replaces nothing."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from edgebuild.base.target import load_target
from edgebuild.build.project import Project, files
from edgebuild.cli import main
from tests.conftest import ROOT, run
from tests.doors.projects import DIGITS, scons

CASES = [
    pytest.param("cmake", "mps2-an386", marks=pytest.mark.needs("cmake", "ninja", "arm-none-eabi-gcc", "qemu-system-arm", "gdb-multiarch")),  # noqa: E501
    pytest.param("scons", "riscv-virt", marks=pytest.mark.needs("riscv64-unknown-elf-gcc", "qemu-system-riscv32", "gdb-multiarch")),  # noqa: E501
    pytest.param("cmake", "host", marks=pytest.mark.needs("cmake", "ninja", "gcc")),
    pytest.param("scons", "stm32f767", marks=pytest.mark.needs("arm-none-eabi-gcc")),
]  # fmt: skip


BOARD = "inherits: mps2-an386\nmemories:\n  - {name: RAM, origin: 0x20000000, size: 16, roles: [arena, data, stack]}\n"


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("tool", "board"), CASES)
def test_it_builds_runs_and_stops_in_a_debugger(tool: str, board: str, tmp_path: Path) -> None:
    folder = tmp_path / "my app"
    assert main(["init", str(folder), "--board", board, "--build", tool, "--model", str(DIGITS / "digits.onnx")]) == 0
    tasks = {t["label"]: t for t in json.loads((folder / ".vscode" / "tasks.json").read_text())["tasks"]}
    launch = json.loads((folder / ".vscode" / "launch.json").read_text())["configurations"][0]
    assert launch["preLaunchTask"] in tasks and {"build", "size", "clean"} <= tasks.keys()
    json.loads((folder / ".vscode" / "settings.json").read_text())
    if tool == "scons":
        scons(folder)
        assert "is up to date" in scons(folder)
        output = scons(folder, "run") if "run" in tasks else ""
    else:
        run("sh", "-c", tasks["build"]["command"], cwd=folder)
        output = run("sh", "-c", tasks["run"]["command"], cwd=folder)
    assert ("my_app: the model has run" in output) == ("run" in tasks) == (board != "stm32f767")
    program = launch["program"].replace("${workspaceFolder}", str(folder))
    assert Path(program).is_file()
    if "debug server" not in tasks:
        return
    command = shlex.split(tasks["debug server"]["command"].partition("exec ")[2])
    with subprocess.Popen(command, cwd=folder) as server:
        try:
            steps = [
                f"target remote {launch['miDebuggerServerAddress']}",
                "break main",
                "continue",
                "backtrace",
                "kill",
            ]
            words = [word for step in steps for word in ("-ex", step)]
            output = run(launch["miDebuggerPath"], "-nx", "-batch", *words, program, cwd=folder)
        finally:
            server.kill()
    assert "Breakpoint 1, main () at " in output and "main.c:" in output


def test_nothing_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second run writes nothing, and what the user has changed stays."""
    command = ["init", str(tmp_path / "p"), "--board", "host"]
    assert main(command) == 0
    before = {f: f.read_bytes() for f in (tmp_path / "p").rglob("*") if f.is_file()}
    (tmp_path / "p" / "main.c").write_text("mine")
    (tmp_path / "p" / ".gitignore").unlink()
    capsys.readouterr()
    assert main(command) == 0
    output = capsys.readouterr().out
    assert f"{tmp_path / 'p' / 'main.c'} is there, and stays as it is" in output and "1 files in" in output
    after = {f: f.read_bytes() for f in (tmp_path / "p").rglob("*") if f.is_file()}
    assert after == {**before, tmp_path / "p" / "main.c": b"mine"}
    text = (tmp_path / "p" / "cmake" / "edgebuild-python.txt").read_text()
    assert text == f"{sys.executable}\n"


def test_what_is_no_project(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A board with little memory, and what is none: an error, and no folder."""
    (bad := tmp_path / "bad.onnx").write_bytes(b"no model")
    (board := tmp_path / "board.yaml").write_text(BOARD)
    wrong = (["--board", "none"], ["--board", str(board)], ["--board", "host", "--model", str(bad)])
    for arguments in wrong:
        assert main(["init", str(tmp_path / "p"), *arguments]) == 1
        assert "error: " in capsys.readouterr().err and not (tmp_path / "p").exists()


def test_the_sample_has_its_settings() -> None:
    sample = Project("digits", "mps2-an386", load_target("mps2-an386"), "cmake", "digits", "digits.onnx")
    settings = [a for a in files(sample) if a.name.startswith(".vscode")]
    assert len(settings) == 4 and all((DIGITS / a.name).read_bytes() == a.data for a in settings)


@pytest.mark.needs("cmake")
@pytest.mark.parametrize("sample", sorted(p.parent.name for p in (ROOT / "sample_projects").glob("*/CMakeLists.txt")))
def test_samples_have_presets(sample: str) -> None:
    """Their files are there, and CMake lists them."""
    folder = ROOT / "sample_projects" / sample
    output = run("cmake", "--list-presets", "-S", folder, cwd=folder)
    for preset in json.loads((folder / "CMakePresets.json").read_text())["configurePresets"]:
        assert f'"{preset["name"]}"' in output
        values = preset["cacheVariables"]
        for name in ("EdgeBuild_DIR", "CMAKE_TOOLCHAIN_FILE"):
            assert Path(values.get(name, "${sourceDir}").replace("${sourceDir}", str(folder))).exists()
        assert load_target(values.get("EDGEBUILD_TARGET", "host"))
