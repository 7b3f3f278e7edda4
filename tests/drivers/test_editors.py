# ruff: noqa: E501  (C on one line reads better here)
"""Editors: sources of drivers are plain C and C++ to clang, and mistakes are told where they stand."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest
from edgebuild.base.target import hal_dir
from edgebuild.driver.pipeline import compile_driver
from tests.conftest import ROOT
from tests.drivers.more_cases import CASES
from tests.drivers.test_cases import in_cpp
from tests.drivers.test_cpp import CLASS, REGISTERS

SAMPLES = sorted([*(ROOT / "hal" / "drivers").glob("*.bf.c"), *(ROOT / "sample_projects").rglob("*.bf.c")])


def plain(file: Path, *, cpp: bool) -> str:
    """Errors of clang, as an editor asks it."""
    language = ["-x", "c++", "-std=gnu++17", "-Wno-c++11-narrowing"] if cpp else ["-x", "c", "-std=gnu11"]
    support = hal_dir() / "include"
    command = ["clang", "--target=riscv32-unknown-elf", "-ffreestanding", "-fsyntax-only", *language]
    words = ["-DEDGEBUILD_SHORT_WORDS", "-include", str(support / "edgebuild_bf.h"), "-I", str(support), "-w"]
    done = subprocess.run([*command, *words, str(file)], capture_output=True, text=True, check=False)
    return done.stderr


@pytest.mark.needs("clang")
@pytest.mark.parametrize("file", SAMPLES, ids=lambda f: f.name)
def test_samples_have_no_errors(file: Path) -> None:
    assert plain(file, cpp=False) == ""


@pytest.mark.needs("clang")
@pytest.mark.parametrize("cpp", [False, True], ids=["c", "c++"])
def test_cases_have_no_errors(cpp: bool, tmp_path: Path) -> None:
    """Cases whose error is one of C itself are left out."""
    for case in CASES:
        case = in_cpp(case) if cpp else case
        for name, text in case.headers.items():
            (tmp_path / name).write_text(text)
        file = tmp_path / f"case{case.number}.bf.{'cpp' if cpp else 'c'}"
        file.write_text(case.source)
        assert plain(file, cpp=cpp) == "", case.title


@pytest.mark.needs("clang")
def test_a_class_has_no_errors(tmp_path: Path) -> None:
    (tmp_path / "class.bf.cpp").write_text(re.sub("#include <.*>", "", REGISTERS + CLASS))
    assert plain(tmp_path / "class.bf.cpp", cpp=True) == ""


DRIVER = """bfGroup Control { bit enable; uint2 parity; uint8 rse(self) data; };
bfGroup Uart { bfGroup Control control; uint16 divider; bit ro full; bit w1c done; uint4 level[4]; };
make_device(Uart, uart, 0x40000000);
#define SET(field, value) (uart->field = (value))
static int half(int x) { return x / 2; }
void open(int divider)
{
    SET(divider, half(divider));
    uart->control.enable = 1;
    for (int i = 0; i < 4; i++)
        uart->level[i] = i;
    while (uart->full)
        ;
}
"""
SEEDED = [  # (what stands there, what is put in its place): each line of the source that has it is broken
    ("enable;", "enabled;"), ("uint2 parity", "uint2 parity[0]"), ("rse(self)", "rse(selves)"), ("uint8 rse", "uint65 rse"),
    ("uint16 divider", "float divider"), ("bit ro full", "bit ro w1c reset(2) full"), ("w1c done", "w1c done : 1"),
    ("level[4]", "level[]"), ("make_device(Uart", "make_device(Uarts"), ("0x40000000", "nowhere"),
    ("(uart->field", "(uart->fields"), ("SET(divider, half(divider))", "SET(dividers, 1)"), ("half(divider)", "third(divider)"),
    ("return x / 2;", "return y / 2;"), ("int x)", "it x)"), ("enable = 1", "enable == 1 = 2"), ("enable = 1;", "enable = 1"),
    ("int i = 0", "int i = j"), ("level[i]", "level[9]"), ("level[i] = i", "level = i"), ("= i;", "= &uart->full;"),
    ("(uart->full)", "(uart->ful)"), ("(uart->full)", "(uart->full"), ("uart->control.enable", "uart->control->enable"),
    ("uart->control.enable = 1", "uart->full = 1"), ("uart->control.enable = 1", "uart->done |= 1"),
    ("uart->control.enable = 1", "uart->control = 1"), ("uart->control.enable = 1", "int *p = &uart->divider"),
    ("bfGroup Control {", "bfGroup {"), ("static int half", "bf_interrupt_of() int"),
]  # fmt: skip


# Where C itself tells it: at the first use of an incomplete type or of a macro, and behind what is missing.
REPORTED_AT = {"make_device(Uarts": 8, "(uart->fields": 8, "(uart->full": 13}


@pytest.mark.parametrize("old,new", SEEDED, ids=range(len(SEEDED)))
def test_mistakes_point_into_the_source(old: str, new: str, tmp_path: Path) -> None:
    broken = DRIVER.replace(old, new, 1)
    assert broken != DRIVER
    (tmp_path / "uart.bf.c").write_text(broken)
    with pytest.raises(EdgebuildError) as caught:
        compile_driver(DriverRequest((tmp_path / "uart.bf.c",), "uart", "mps2-an385"))
    first = caught.value.diagnostics[0]
    assert first.file == str(tmp_path / "uart.bf.c") and first.line and first.column
    line = broken[: broken.index(new)].count("\n") + 1
    words = set(re.findall(r"[a-z]\w+", old)) - {"uart", "bit", "int"}
    users = {n for n, text in enumerate(broken.split("\n"), 1) if words & set(re.findall(r"\w+", text))}
    assert first.line in {line, *users, REPORTED_AT.get(new)}, (first.line, first.text)


def test_there_are_30() -> None:
    assert len(SEEDED) == 30
