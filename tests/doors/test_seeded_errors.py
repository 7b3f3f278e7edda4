"""Seeded errors: of each the first place that is printed is an existing file, and the line that is wrong.

A row is a call as both doors have it. `place` is FILE:LINE where another file than the build script is wrong.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT, run
from tests.doors.projects import DIGITS, MAIN_C, scons

DRIVER = """\
bfGroup Pad { bit dir; bit out; };
bfGroup Gpio { bfGroup Pad pads[8]; uint32 status; };
make_device(Gpio, gpio, 0x40000000);
void on(void) { gpio->pads[1].out = 1; }
"""
SPOILT = {  # file: (what stands in the driver, what is there instead, line)
    "syntax.bf.c": ("= 1;", "= ;", 4),
    "field.bf.c": ("].out", "].oot", 4),
    "group.bf.c": ("make_device(Gpio", "make_device(Gpoi", 3),
    "address.bf.c": ("0x40000000", "0x40000001", 3),
    "effect.bf.c": ("uint32 status", "uint32 rse(stat) status", 2),
    "include.bf.c": ("bfGroup Pad {", '#include "none.h"\nbfGroup Pad {', 1),
    "function.bf.c": ("= 1;", "= none(2);", 4),
}
FILES = {
    "main.c": MAIN_C,
    "led.bf.c": DRIVER,
    "empty.onnx": "",
    "text.onnx": "no model\n",
    "a|b.onnx": "",
    "pointer.onnx": "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
    "page.tflite": "<!DOCTYPE html><html>404</html>",
    "key.yaml": "description: a board\nmemorys: []\n",
    "syntax.yaml": "description: a board\nbase: [\n",
    "base.yaml": "description: a board\nbase: none\n",
    "cluster.yaml": "devices: 3\n",
    "fitted.yaml": "chip: x\nfrobs: 3\n",
    "chip.svd": "<device>\n<name>x\n</device>\n",
    **{file: DRIVER.replace(old, new) for file, (old, new, _) in SPOILT.items()},
}


class Call(NamedTuple):
    function: str
    name: str
    source: str = ""
    options: str = ""  # OPTION=value, with blanks between
    place: str = ""

    def cmake(self) -> str:
        word = {"add_model": " MODEL", "add_bf_driver": " SOURCES"}.get(self.function, "")
        return f"{self.function}({self.name}{word} {self.source} {self.options.replace('=', ' ')})"

    def scons(self) -> str:
        names = {"add_model": "Model", "add_bf_driver": "BfDriver", "add_clock_config": "ClockConfig",
                 "edgebuild_report": "EdgeBuildReport", "edgebuild_add_test": "EdgeBuildTest"}  # fmt: skip
        options = [f"{key}={value!r}" for key, value in (word.split("=", 1) for word in self.options.split())]
        own = self.function.startswith("add_")
        first = [repr(self.name), *([repr(self.source)] if self.source else [])] if own else [self.name]
        return f"env.{names[self.function]}({', '.join([*first, *options])})"


def model(name: str, options: str, source: str = "digits.onnx", place: str = "") -> Call:
    return Call("add_model", name, source, options, place)


def driver(name: str, options: str = "", source: str = "led.bf.c", place: str = "") -> Call:
    return Call("add_bf_driver", name, source, options, place)


def clock(name: str, options: str, target: str = "stm32f767") -> Call:
    return Call("add_clock_config", name, "", f"TARGET={target} {options}".strip())


VALUES = """RAM=16Q FLASH=x TILE=yes OBJECTIVE=fast WEIGHTS=d OPTIMIZE=most ARENA=heap BACKEND=tflm BACKEND=cmsis-nn
MAP=x LIMIT=L1 HSE=8Q QOS=x TIME_LIMIT=soon MAX_MAC_OVERHEAD=-1 STEPS=maybe MAX_SLICE=zero STREAM_INPUT=columns
SCALES=pow SHAPE=x=a BIND=x TARGET=mps2 TARGET=none.yaml"""
CONFIGURED = [
    *(model(f"v{i}", value) for i, value in enumerate(VALUES.split())),
    model("signal", ""),
    model("key", "TARGET=key.yaml", place="key.yaml:2"),
    model("syntax", "TARGET=syntax.yaml", place="syntax.yaml:3"),
    model("base", "TARGET=base.yaml", place="base.yaml:2"),
    driver("width", "REGISTER_WIDTH=7"),
    driver("tight", "LAYOUT=tight"),
    clock("c1", "SYSCLK=999MHz"),
    clock("c2", "HSE=8Q"),
    clock("c3", "SOURCE=lse"),
    clock("c4", "", "mps2-an386"),
    Call("edgebuild_add_test", "digits", "", "MAX_INSTRUCTIONS=9"),
    Call("edgebuild_add_test", "digits", "", "MAX_INSTRUCTIONS=9 NAME=other"),
]
FIRST = model("digits", "")
STOPPED = [  # where CMake reads no further
    model("m", "RAMM=3"),
    model("m", "", "none.onnx"),
    model("m", "", '"a|b.onnx"'),
    model("m", "CALIBRATION=none.yaml"),
    model("digits", "RAM=4K"),
    model("DIGITS", ""),
    driver("d", "", "none.bf.c"),
    driver("d", "INCLUDE_DIRS=none"),
    driver("d", "LAYOUT=fixed:none.svd"),
    Call("edgebuild_report", "app", "", "FLASH_BUDGET=16Q"),
    Call("edgebuild_report", "app", "", "FLASH=16K"),
    Call("edgebuild_add_test", "digits", "", "LABELS=main.c"),
    Call("edgebuild_add_test", "digits", "", "INPUTS=none.npy"),
    Call("edgebuild_add_test", "digits", "", "MAX_INSTRUCTIONS=many"),
]
BUILT = [
    Call("edgebuild_report", "app", "", "FLASH_BUDGET=100 RAM_BUDGET=10"),
    model("m0", "", "empty.onnx"),
    model("m1", "", "text.onnx"),
    model("m2", "", "pointer.onnx"),
    model("m3", "", "page.tflite"),
    model("m4", "OUTPUTS=none"),
    model("m5", "RAM=100 TILE=off TARGET=mps2-an386"),
    model("m6", "FLASH=100 TARGET=mps2-an386"),
    model("m7", "DEVICE=left"),
    model("m8", "CALIBRATION=fitted.yaml OBJECTIVE=energy QOS=50 TARGET=stm32f767", place="fitted.yaml:1"),
    driver("d0", "LAYOUT=fixed:chip.svd", place="chip.svd:3"),
    *(driver(f"d_{f.partition('.')[0]}", "", f, f"{f}:{line}") for f, (_, _, line) in SPOILT.items()),
    model("part", "CLUSTER=cluster.yaml DEVICE=a", place="cluster.yaml:1"),
]
CMAKE = """\
cmake_minimum_required(VERSION 3.20)
project(app LANGUAGES C)
find_package(EdgeBuild REQUIRED)
enable_testing()
add_model(digits MODEL digits.onnx)
add_executable(app main.c)
target_link_libraries(app PRIVATE digits)
"""
SCONS = """\
import edgebuild.doors
from SCons.Errors import StopError
env = Environment(tools=["default", "edgebuild"], toolpath=[str(edgebuild.doors.scons_toolpath())])
digits = env.Model("digits", "digits.onnx")
app = env.Program("app", ["main.c", digits])
def seeded(call):
    try:
        call()
    except StopError as error:
        print(error)
"""
PLACE = re.compile(r"^(?:scons: \*\*\* )?([^\n:]+):(\d+)(?::\d+)?: ", re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeded errors")
    shutil.copy(DIGITS / "digits.onnx", folder)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    os.mkfifo(folder / "pipe.onnx")
    return folder


def places(output: str, folder: Path) -> list[tuple[Path, int]]:
    return [(folder / m[1], int(m[2])) for m in PLACE.finditer(output)]


def right(calls: list[Call], script: Path, first: int) -> list[tuple[Path, int]]:
    words = [(call.place or f"{script.name}:{first + i}").split(":") for i, call in enumerate(calls)]
    return [(script.parent / file, int(line)) for file, line in words]


def configured(folder: Path, calls: list[Call], status: int = 1, tool: str = "Ninja") -> str:
    (folder / "CMakeLists.txt").write_text(CMAKE + "".join(f"{call.cmake()}\n" for call in calls))
    package = [f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}", f"-DEDGEBUILD_PYTHON={sys.executable}"]
    return run("cmake", "-G", tool, "-B", tool, *package, cwd=folder, status=status)


@pytest.mark.needs("cmake", "ninja", "gcc")
def test_cmake_names_all_wrong_calls(folder: Path) -> None:
    assert places(configured(folder, CONFIGURED), folder) == right(CONFIGURED, folder / "CMakeLists.txt", 8)


@pytest.mark.needs("cmake", "ninja", "make", "gcc")
@pytest.mark.parametrize("call", STOPPED, ids=lambda call: f"{call.function} {call.name} {call.options}")
def test_cmake_names_the_call_at_which_it_stops(call: Call, folder: Path) -> None:
    tool = "Unix Makefiles" if "|" in call.source else "Ninja"  # neither reads it
    assert places(configured(folder, [call], tool=tool), folder)[:1] == right([call], folder / "CMakeLists.txt", 8)


@pytest.mark.needs("cmake", "ninja", "make", "gcc")
@pytest.mark.parametrize(
    ("tool", "step"),
    [("Ninja", 10), pytest.param("Ninja", 1, marks=pytest.mark.slow),
     pytest.param("Unix Makefiles", 1, marks=pytest.mark.slow)],
)  # fmt: skip
def test_a_build_by_cmake_names_what_is_wrong(tool: str, step: int, folder: Path) -> None:
    """By day each tenth."""
    configured(folder, BUILT[::step], 0, tool)
    keep = ["-k", "0"] if tool == "Ninja" else ["-k"]
    output = run("cmake", "--build", tool, "--", *keep, cwd=folder, status=1 if tool == "Ninja" else 2)
    assert {*places(output, folder / tool)} == {*right(BUILT[::step], folder / "CMakeLists.txt", 8)}


@pytest.mark.needs("gcc")
def test_scons_names_what_is_wrong(folder: Path) -> None:
    """All wrong calls in one reading; files that are missing are seen in the build, which ends with the first."""
    calls = [c for c in (*CONFIGURED, *STOPPED) if "none" not in c.source + c.options or "TARGET" in c.options]
    calls = [*(c for c in calls if "|" not in c.source), model("m", "", "pipe.onnx")]  # only CMake refuses a `|`
    script = folder / "SConstruct"
    script.write_text(SCONS + "".join(f"seeded(lambda: {call.scons()})\n" for call in calls) + "Exit(0)\n")
    assert [p for p in places(scons(folder), folder) if p[0].is_file()] == right(calls, script, 11)


@pytest.mark.needs("gcc")
@pytest.mark.parametrize("step", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_a_build_by_scons_names_what_is_wrong(step: int, folder: Path) -> None:
    script = folder / "SConstruct"
    script.write_text(SCONS + "".join(f"{call.scons()}\n" for call in BUILT[::step]))
    assert {*places(scons(folder, "-k", status=2), folder)} == {*right(BUILT[::step], script, 11)}
