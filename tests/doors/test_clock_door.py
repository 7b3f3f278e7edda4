"""Clock configurations as inputs of both build systems: what is made, and when it is made again."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from edgebuild.base.request import CLOCK_OUTPUTS
from tests.clocks.trees import whole
from tests.conftest import ROOT, run

SAMPLE = ROOT / "sample_projects" / "clocks"
HERE = f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}"
SCONSTRUCT = """\
import edgebuild.build.scons
env = Environment(tools=["default", edgebuild.build.scons.generate])
target = {target!r}
SConscript("SConscript", ["env", "target"], variant_dir="build", duplicate=False)
"""
BOARD = """\
inherits: stm32f767
description: a board with a tree of its own
clocks: tree.yaml
"""


class Project:
    """The sample, in a folder with a space in its name, on a board whose clock tree is a file of the project."""

    def __init__(self, folder: Path, tool: str) -> None:
        self.folder, self.tool, self.products = folder, tool, folder / "build" / "edgebuild" / "clocks"
        shutil.copytree(SAMPLE, folder)
        self.tree = folder / "tree.yaml"
        self.tree.write_text(whole("stm32f767"))
        (folder / "board.yaml").write_text(BOARD)
        if tool == "scons":
            (folder / "SConstruct").write_text(SCONSTRUCT.format(target=str(folder / "board.yaml")))
        else:
            chain = ROOT / "edgebuild" / "build" / "cmake" / "toolchain-arm-none-eabi.cmake"
            arguments = [HERE, f"-DCMAKE_TOOLCHAIN_FILE={chain}", f"-DEDGEBUILD_TARGET={folder / 'board.yaml'}"]
            run("cmake", "-G", tool, "-B", "build", "-Werror=dev", *arguments, cwd=folder)

    def build(self, status: int = 0) -> str:
        command = [sys.executable, "-m", "SCons", "-Q"] if self.tool == "scons" else ["cmake", "--build", "build"]
        return run(*command, cwd=self.folder, status=status)

    def generated(self) -> dict[str, bytes]:
        return {name: (self.products / name).read_bytes() for name in CLOCK_OUTPUTS}


def nothing(output: str) -> bool:
    return "Generating" not in output and "clock_config.c" not in output and "clocks.elf" not in output


@pytest.mark.one_in(2)
@pytest.mark.needs("arm-none-eabi-gcc", "cmake", "ninja")
@pytest.mark.parametrize("tool", ["scons", "Ninja"])
def test_the_sample(tool: str, tmp_path: Path) -> None:
    """Built, not built again, built again when a fact changes, refused without damage when the fact is none."""
    project = Project(tmp_path / "sp ace", tool)
    output = project.build()
    assert output.count("Generating") == 1
    assert (project.folder / "build" / "clocks.elf").exists()
    before = project.generated()
    assert b"EB_CLOCK_144MHZ," in before["clock_config.h"] and b"EB_CLOCK_168MHZ" not in before["clock_config.h"]
    assert nothing(project.build())

    text = project.tree.read_text()
    project.tree.write_text(text + "# a comment\n")
    output = project.build()
    assert "Generating" in output and "clocks.elf" not in output, "the bytes are the same, so nothing is compiled"
    assert project.generated() == before
    assert nothing(project.build())

    project.tree.write_text(text.replace("144MHz, max_hz_overdrive: unknown", "120MHz, max_hz_overdrive: unknown"))
    assert "clocks.elf" in project.build()
    assert project.generated()["clock_config.c"] != before["clock_config.c"], "144 MHz now asks for more voltage"

    project.tree.write_text(text.replace("vos: 1", "vos: low"))
    after = project.generated()
    output = project.build(status=2 if tool == "scons" else 1)
    assert "tree.yaml:" in output and "expected a whole number, not 'low'" in output and "Traceback" not in output
    assert project.generated() == after


@pytest.mark.needs("arm-none-eabi-gcc", "cmake", "ninja")
def test_both_doors_and_the_command_make_the_same(tmp_path: Path) -> None:
    one, two = (Project(tmp_path / tool / "project", tool) for tool in ("scons", "Ninja"))
    for project in (one, two):
        project.build()
    requests = [(p.products / "clocks.req.json").read_bytes() for p in (one, two)]
    assert requests[0] == requests[1]
    assert one.generated() == two.generated()
    command = ["clock", "--target", "stm32f767", "--hse", "8MHz", "--sysclk", "144MHz,216MHz", "-o", tmp_path / "o"]
    run(sys.executable, "-m", "edgebuild", *command)
    assert {f.name: f.read_bytes() for f in (tmp_path / "o").iterdir()} == one.generated()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("env.ClockConfig('c', TARGET='stm32f767', SYSCLKS='1')", "unknown option SYSCLKS; did you mean 'SYSCLK'?"),
        ("env.ClockConfig('c', TARGET='stm32f768')", "ClockConfig('c'): error: unknown target 'stm32f768'"),
        (
            "env.ClockConfig('c', TARGET='stm32f767'); env.ClockConfig('d', TARGET='stm32f429')",
            "ClockConfig('d'): error: this environment has ClockConfig('c'), and both make clock_config.h",
        ),
    ],
)
def test_wrong_sconscripts(tmp_path: Path, call: str, message: str) -> None:
    (tmp_path / "SConstruct").write_text(
        f"import edgebuild.build.scons\nenv = Environment(tools=['default', edgebuild.build.scons.generate])\n{call}\n"
    )
    output = run(sys.executable, "-m", "SCons", "-Q", cwd=tmp_path, status=2)
    assert message in output
    assert f"{tmp_path / 'SConstruct'}:3: " in output


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("edgebuild_add_clock_config(c SYSCLKS 1)", "edgebuild_add_clock_config(c): unknown argument 'SYSCLKS'"),
        ("edgebuild_add_clock_config(c HSE)", "edgebuild_add_clock_config(c): no value given for HSE"),
        ("edgebuild_add_clock_config(c NAME a-b)", "the name must be a C identifier; give one with NAME"),
        ("edgebuild_add_clock_config(c)\nedgebuild_add_clock_config(d NAME c)", "the name is taken in this directory"),
    ],
)
@pytest.mark.needs("cmake", "ninja", "gcc")
def test_wrong_cmake_lists(tmp_path: Path, call: str, message: str) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.20)\nproject(p C)\nfind_package(EdgeBuild REQUIRED)\n{call}\n"
    )
    output = run("cmake", "-G", "Ninja", "-B", "build", HERE, cwd=tmp_path, status=1)
    assert message in " ".join(output.split())


@pytest.mark.needs("gcc")
def test_the_build_reports_a_clock_out_of_reach(tmp_path: Path) -> None:
    (tmp_path / "SConstruct").write_text(
        "import edgebuild.build.scons\nenv = Environment(tools=['default', edgebuild.build.scons.generate])\n"
        "env.ClockConfig('c', TARGET='stm32f767', HSE='8MHz', SYSCLK=['300MHz'])\n"
    )
    output = run(sys.executable, "-m", "SCons", "-Q", cwd=tmp_path, status=2)
    assert "no PLL setting gives 300 MHz from the HSE at 8 MHz" in output
    assert not (tmp_path / "edgebuild" / "c" / "clock_config.h").exists()


CALIBRATION = """\
device: stm32f767
placement: flash
measurements: "chip.csv"
timing:
  cycles_per_instruction: {cycles}
  flash_line_cycles: unknown
  sram_line_cycles: unknown
  error: {{rms_percent: 1, worst_percent: 2, measurements: 9}}
run: unknown
sleep: unknown
lfo_ma: unknown
stop_ma: unknown
"""


@pytest.mark.slow
@pytest.mark.needs("arm-none-eabi-gcc", "cmake", "ninja")
def test_a_calibration_is_an_input_of_a_model(tmp_path: Path) -> None:
    """Named from the build script's folder, in both doors; another calibration makes the model again."""
    times = []
    for tool in ("scons", "Ninja"):
        folder = tmp_path / tool / "project"
        folder.mkdir(parents=True)
        shutil.copy(ROOT / "sample_projects" / "digits" / "digits.onnx", folder)
        (folder / "chip.yaml").write_text(CALIBRATION.format(cycles=1.5))
        options = {"OBJECTIVE": "energy", "QOS": "60", "HSE": "8MHz", "CALIBRATION": "chip.yaml", "TARGET": "stm32f767"}
        if tool == "scons":
            words = "".join(f", {k}={v!r}" for k, v in options.items())
            (folder / "SConscript").write_text(f"Import('env')\nenv.Model('digits', 'digits.onnx'{words})\n")
            (folder / "SConstruct").write_text(SCONSTRUCT.format(target="stm32f767"))
            command = [sys.executable, "-m", "SCons", "-Q", "codegen"]
        else:
            words = "".join(f" {k} {v}" for k, v in options.items())
            (folder / "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.20)\nproject(p C ASM)\nfind_package(EdgeBuild REQUIRED)\n"
                f"edgebuild_add_model(digits MODEL digits.onnx{words})\n"
            )
            chain = ROOT / "edgebuild" / "build" / "cmake" / "toolchain-arm-none-eabi.cmake"
            arguments = [HERE, f"-DCMAKE_TOOLCHAIN_FILE={chain}", "-DEDGEBUILD_TARGET=stm32f767"]
            run("cmake", "-G", tool, "-B", "build", *arguments, cwd=folder)
            command = ["cmake", "--build", "build"]
        products = folder / "build" / "edgebuild" / "digits"
        durations = []
        for cycles in (1.5, 3.0):
            (folder / "chip.yaml").write_text(CALIBRATION.format(cycles=cycles))
            assert "Generating" in run(*command, cwd=folder)
            durations.append(json.loads((products / "digits_report.json").read_text())["energy"]["time_us"])
            assert "Generating" not in run(*command, cwd=folder)
        assert durations[1] > 1.5 * durations[0]
        times.append((durations, (products / "digits.req.json").read_bytes()))
    assert times[0] == times[1]
