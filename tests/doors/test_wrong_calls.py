"""Wrong calls in build scripts end the configuration with the line of the call, in the spelling of the script."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.target import load_target
from edgebuild.build.check import check_core, in_scripts, line_of
from edgebuild.cli import main
from tests.conftest import ROOT, run
from tests.doors.projects import DIGITS, scons

HEAD = "cmake_minimum_required(VERSION 3.20)\nproject(app LANGUAGES C)\nfind_package(EdgeBuild REQUIRED)\n\n"
SCONS = """\
import edgebuild.doors
env = Environment(tools=["default", "edgebuild"], toolpath=[str(edgebuild.doors.scons_toolpath())])

"""


def configured(folder: Path, calls: str) -> list[str]:
    """Errors of a configuration, from their places on."""
    shutil.copy(DIGITS / "digits.onnx", folder)
    (folder / "CMakeLists.txt").write_text(f"{HEAD}{calls}\n")
    package = f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}"
    output = run("cmake", "-G", "Ninja", package, "-B", "b", cwd=folder, status=1)
    place = f"{folder / 'CMakeLists.txt'}:"
    return [text.removeprefix(place) for text in output.splitlines() if text.startswith(place)]


@pytest.mark.needs("cmake", "ninja", "gcc")
def test_cmake_names_the_lines_of_calls_with_wrong_values(tmp_path: Path) -> None:
    """All of them at once."""
    calls = """add_model(digits MODEL digits.onnx RAM "16\\\\Q")
add_model(
  second
  MODEL digits.onnx TILE yes)
add_model(third MODEL digits.onnx TARGET "mps2\\n")
add_model(signal MODEL digits.onnx)
add_model(right MODEL digits.onnx RAM 16K)
foreach(n a b)
  add_model(${n} MODEL digits.onnx QOS x)
endforeach()
add_clock_config(clk TARGET stm32f767 HSE 8Q)
add_clock_config(clk2 TARGET stm32f767 SYSCLK 1Hz)
add_model(lib MODEL digits.onnx BACKEND cmsis-nn)
add_model(folder MODEL b)"""
    assert configured(tmp_path, calls) == [
        "5: error: digits: option RAM: '16\\Q' is not a size",
        "6: error: second: option TILE: 'yes' is not known",
        "9: error: third: unknown target 'mps2\\u000a'",
        "10: error: signal: name: signal.h would hide the C library's <signal.h>",
        "13: error: a: option QOS: 'x' is not a number from 0 to 1e+12",
        "13: error: b: option QOS: 'x' is not a number from 0 to 1e+12",
        "15: error: clk: option HSE: '8Q' is not a frequency",
        "16: error: clk2: stm32f767: no PLL setting gives 1e-06 MHz from the HSE at 8 MHz",
        "17: error: lib: option BACKEND: cmsis-nn is not part of edgebuild",
        f"18: error: folder: {tmp_path / 'b'}: not a model that edgebuild reads: a folder",
    ]


@pytest.mark.needs("cmake", "ninja", "gcc")
@pytest.mark.parametrize(
    ("call", "line", "text"),
    [
        (
            "add_model(digits MODEL digits.onnx RAMM 3)",
            5,
            "unknown argument 'RAMM'; known are MODEL NAME TARGET ARENA B",
        ),
        ('add_model("a b" MODEL digits.onnx)', 5, "a target has a name of letters"),
        ("function(net n)\nadd_models(${n} ${ARGN})\nendfunction()\nnet(digits SHARE)", 6, "no value given for SHARE"),
        ("function(net)\n  add_models(${ARGV})\nendfunction()\n\nnet(digits MODELS x.onnx)", 6, "no such file: "),
        (
            "if(OFF)\nadd_model(a MODEL digits.onnx RAM 3K)\nelse()\nadd_model(a MODEL digits.onnx RAMM 3)\nendif()",
            8,
            "unknown argument 'RAMM'",
        ),
        ("foreach(n a b)\nadd_model(${n} MODEL ${n}.onnx)\nendforeach()", 6, "no such file: "),
        ("add_executable(a a.c)\nedgebuild_firmware(a)", 6, "no bare target"),
    ],
)
def test_cmake_names_the_line_of_a_call(call: str, line: int, text: str, tmp_path: Path) -> None:
    (first,) = configured(tmp_path, call)
    assert first.startswith(f"{line}: error: ") and text in first


@pytest.mark.needs("cmake", "ninja", "gcc")
def test_a_wrong_call_is_named_in_every_configuration(tmp_path: Path) -> None:
    """And right ones start no process where they are as they were."""
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    package = f"-DEdgeBuild_DIR={ROOT / 'edgebuild' / 'build' / 'cmake'}"
    script, python = tmp_path / "CMakeLists.txt", tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >>"{tmp_path}/log"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    configure = ["cmake", "-G", "Ninja", package, f"-DEDGEBUILD_PYTHON={python}", "-B", "b"]
    for _ in range(2):
        script.write_text(f"{HEAD}add_model(digits MODEL digits.onnx RAM 16Q)\n")
        assert "option RAM" in run(*configure, cwd=tmp_path, status=1)
    script.write_text(f"{HEAD}add_model(digits MODEL digits.onnx RAM 16K)\n")
    (tmp_path / "log").unlink()
    for _ in range(2):
        run(*configure, cwd=tmp_path)
    assert (tmp_path / "log").read_text().count("edgebuild.build.check") == 1


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("env.Model('signal', 'digits.onnx')", "Model('signal'): error: name: signal.h would hide the C library's"),
        ("env.Model('a b', 'digits.onnx')", "Model('a b'): error: name: 'a b' is not a C identifier"),
        (
            "env.ClockConfig('c', TARGET='stm32f767', SYSCLK='999MHz')",
            "ClockConfig('c'): error: stm32f767: no PLL setting",
        ),
        ("env.Model()", "Model: error: missing a required argument: 'name'"),
        ("env.Override({}).ClockConfig(3)", "ClockConfig: error: name must be a string"),
        ("env.Model('m', [])", "Model('m'): error: the model's file is missing"),
        ("env.Model('m', 3)", "Model('m'): error: the model's file is missing"),
        ("env.Model('m', ['digits.onnx', 'b.onnx'])", "Model('m'): error: 2 files, and a model has one"),
        (
            "env.EdgeBuildTest(env.Model('m', 'digits.onnx'), MIN_ACCURACY=1)",
            "EdgeBuildTest('m'): error: MIN_ACCURACY is that of LABELS",
        ),
        (
            "f = 'digits.onnx'; env.EdgeBuildTest(env.Model('m', f), INPUTS=f, LABELS=f, MIN_ACCURACY=1.5)",
            "EdgeBuildTest('m'): error: MIN_ACCURACY: '1.5' is no such number",
        ),
        (
            "env.BfDriver('d', 'digits.onnx', INCLUDE_DIRS='no')",
            "BfDriver('d'): error: INCLUDE_DIRS: no such folder: no",
        ),
        ("env.Model('folder', '.')", "Model('folder'): error: Tried to lookup Dir '.' as a File"),
    ],
)
def test_scons_names_the_line_of_the_call(call: str, text: str, tmp_path: Path) -> None:
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    (tmp_path / "SConstruct").write_text(f"{SCONS}{call}\n")
    output = scons(tmp_path, status=2)
    assert f"{tmp_path / 'SConstruct'}:4: {text}" in output
    assert str(ROOT / "edgebuild") not in output  # no line of the tool itself: editors would open it


@pytest.mark.parametrize(
    ("call", "file"),
    [
        ("env.Model('m', 'none.onnx')", "none.onnx"),
        ("env.BfDriver('d', 'none.bf.c')", "none.bf.c"),
        ("env.Model('m', 'digits.onnx', CALIBRATION='none.yaml')", "none.yaml"),
        ("env.BfDriver('d', 'SConstruct', LAYOUT='fixed:none.svd')", "none.svd"),
        ("env.EdgeBuildTarget('mps2-an386', LINKER_SCRIPT='none.ld'); env.Command('a', 'none.ld', '')", "none.ld"),
    ],
)
def test_scons_names_the_line_of_a_call_whose_file_is_missing(call: str, file: str, tmp_path: Path) -> None:
    """Unless a rule that comes later makes it."""
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    (tmp_path / "SConstruct").write_text(f"{SCONS}{call}\n")
    place = f"{tmp_path / 'SConstruct'}:4: {call[4 : call.index(',')]}): error: no such file: {file}"
    assert place in scons(tmp_path, status=2).splitlines()
    if file == "none.onnx":
        with (tmp_path / "SConstruct").open("a") as script:
            script.write("env.Command('none.onnx', 'digits.onnx', Copy('$TARGET', '$SOURCE'))\n")
        assert "Generating" in scons(tmp_path)


def test_errors_of_a_build_have_the_spelling_of_build_scripts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(DIGITS / "digits.onnx", tmp_path)
    request = '{"kind": "model", "name": "n", "options": {"ram": "100", "tile": "off"}, "output": ".", "schema": 1,'
    (tmp_path / "n.req.json").write_text(f'{request} "source": "digits.onnx", "target": "mps2-an386"}}')
    assert main(["run", str(tmp_path / "n.req.json")]) == 1
    errors = capsys.readouterr().err
    assert "--" not in errors and "TILE" in errors


def test_only_options_are_spelled_anew() -> None:
    text = "option 'max_mac_overhead' needs --tile auto; --orphan-handling and --max-mac-overhead; option 'x'"
    right = "option MAX_MAC_OVERHEAD needs TILE auto; --orphan-handling and MAX_MAC_OVERHEAD; option 'x'"
    assert in_scripts(text) == right


def test_the_line_of_a_call(tmp_path: Path) -> None:
    """Not that of a comment, with variables that of the call whose value it is, and of several that with its words."""
    (script := tmp_path / "s").write_text(
        '#[[\nadd_model(ab)]]  # add_model(ab)\nadd_model(ab)\nadd_model( "a.b" X)\nedgebuild_add_models(c+)\nnet(a)\n'
        "set(A one)\nset(B two)\nadd_model(${A} X)\nadd_model(${B} X)\nadd_model(${B}_${n} X)\n"
        "add_model(f RAM 1K)\nadd_model(f RAM 1K TILE auto)\nadd_model(f X)\n"
    )
    lines = {"ab": 3, "a.b": 4, "c+": 5, "a": 6, "one": 9, "two": 10, "two_x": 11, "d": 0}
    assert {name: line_of(str(script), name) for name in lines} == lines
    words = ["RAM;1K;TILE;auto", '{"ram": "1K"}', '"source": "X"', "RAM 1K"]
    assert [line_of(str(script), "f", words=w) for w in words] == [13, 12, 14, 12]
    assert line_of(str(tmp_path / "none"), "ab") == 0


@pytest.mark.parametrize(
    ("target", "flags", "is_wrong"),
    [
        ("mps2-an386", "-O2 -mcpu=cortex-m7", True),
        ("mps2-an386", "-mcpu=cortex-m7 -mcpu=cortex-m4+nofp -march=armv7e-m", False),
        ("mps2-an386", "-O2", False),
        ("riscv-virt", "-march=rv32imac_zicsr", False),
        ("riscv-virt", "-march=rv32gc", False),
        ("riscv-virt", "-march=rv32i -mabi=ilp32", True),
        ("riscv-virt", "-march=rv64gc", True),
        ("host", "-march=native", False),
    ],
)
def test_flags_that_name_another_core(target: str, flags: str, is_wrong: bool) -> None:
    try:
        check_core(load_target(target), flags)
    except EdgebuildError as error:
        assert is_wrong and f"target {target} is for -m" in str(error)
    else:
        assert not is_wrong


@pytest.mark.needs("cmake", "ninja", "gcc")
def test_both_doors_name_the_line_of_a_target_with_another_core(tmp_path: Path) -> None:
    calls = 'set(CMAKE_C_FLAGS "-mcpu=cortex-m7")\nadd_model(digits MODEL digits.onnx TARGET mps2-an386)'
    (first,) = configured(tmp_path, calls)
    message = "target mps2-an386 is for -mcpu=cortex-m4, and the flags of the compiler say -mcpu=cortex-m7"
    assert first == f"6: error: digits: {message}"
    call = "env.Append(CCFLAGS='-mcpu=cortex-m7')\nenv.Model('digits', 'digits.onnx', TARGET='mps2-an386')\n"
    (tmp_path / "SConstruct").write_text(SCONS + call)
    assert f"{tmp_path / 'SConstruct'}:5: Model('digits'): error: {message}" in scons(tmp_path, status=2)


def test_scons_names_the_line_of_a_board(tmp_path: Path) -> None:
    (tmp_path / "board.yaml").write_text("description: a board\nmemorys: []\n")
    (tmp_path / "SConstruct").write_text(f"{SCONS}env.Model('m', 'SConstruct', TARGET='board.yaml')\n")
    assert "scons: *** board.yaml:2:1: error: unknown key 'memorys'" in scons(tmp_path, status=2)
