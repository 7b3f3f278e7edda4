# ruff: noqa: E501  (C on one line reads better here)
"""Accesses that macros hide, wholly or in part: the statement is printed without them, and nothing else changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver
from tests.drivers.machine import ARM, build

HEAD = """#include <stdint.h>
bfGroup C { bit a; bit b; uint8 d; }; bfGroup D { bfGroup C R; uint8 x; }; bfGroup A { uint8 v[8]; };
make_device(D, dev, 0x40000000); make_device(A, arr, 0x40001000);
typedef struct { bfGroup D *Instance; int State; } Handle;
static inline void nothing(void) {}
"""
PROGRAMS = (
    # what stands in front of the function, and its body
    ("#define ON() (dev->R.a = 1)", "ON(); return 3;"),
    ("#define ON dev->R.a = 1", "ON; return 3;"),
    ("#define ON() dev->R.a = 1;", "ON() return 3;"),
    ("#define ON() dev->R.a = 1;", "if (n) ON() else nothing(); return 3;"),
    ("#define ON(h) ((h)->Instance->R.a = 1U)", "Handle h = { dev, 0 }; ON(&h); return 3;"),
    ("#define ON(h) do { if ((h)->R.a) return 3; else (h)->R.a = 1; } while (0U)", "ON(dev); return 3;"),
    ("#define THEN_ON nothing(); else dev->R.a = 1", "if (!n) THEN_ON; return 3;"),
    ("#define ELSE_ON else dev->R.a = 1", "if (!n) nothing(); ELSE_ON; return 3;"),
    ("#define BEGIN { dev->R.a = 1;\n#define END nothing(); }", "if (n) BEGIN END return 3;"),
    ("#define X dev->x\n#define PX(h) h->x", "return X + PX(dev) + 3;"),
    ("#define X dev->x", "while (X) nothing(); for (; X; ) nothing(); do nothing(); while (X); switch (X) { case 0: return 3; } return 1;"),
    ("#define X dev->x", "switch (n) { case 1: X = 1; /* fall through */ case 2: X = 2; __attribute__((fallthrough)); default: return 3; }"),
    ("#define X dev->x", "bf_critical { X = 1; } return 3;"),
    ("#define WHOLE (bfGroup C){ .a = 1, .d = 7 }", "dev->R = WHOLE; return 3;"),
    ("#define WHOLE(x) ((bfGroup C){ .a = 1, .d = (x) })", "dev->R = WHOLE(n + 6); return 3;"),
    ("#define FIELDS .a = 1, .d = 7", "dev->R = (bfGroup C){ FIELDS }; return 3;"),
    ("#define STATE(h) bfGroup C s = (h)->R", "STATE(dev); return s.a + s.b + 3;"),
    ("#define REG dev->R\n#define DEV dev\n#define a_bit a", "DEV->R.a = 1; return REG.b + DEV->R.a_bit + 2;"),
    ("#define REG dev->R.a", "REG = 1; return 3;"),
    ("#define a dev->R.a", "a = 1; return 3;"),  # a macro that is called as a part of what it stands for
    ("#define ELEM [3]\n#define THREE 3", "arr->v ELEM = 1; arr->v[THREE] = 2; return 3;"),
    ("#define ID(x) x", "dev->R.a = ID(1); dev->x = ID(n) + 2; if (dev->x == ID(3)) dev->R.b = ID(dev->R.a); return ID(dev->x) ? 3 : ID(3);"),
    ("#define MINUS --\n#define NOT !", "dev->R.a MINUS; return NOT dev->R.b + 2;"),
    ("#define ON() (dev->R.a = 1)\n#define RAM __attribute__((noinline, used))", "ON(); return 3; } RAM void other(void) { ON();"),
    ("#define ON() (dev->R.a = 1)", 'ON(); const char *s = "\\x01\\"\\n"; union { uint32_t w; uint8_t c[4]; } u = { .w = (uint32_t)s[0] }; return u.c[0] + 2;'),
    ("#define ON() do { __asm__ volatile(\"nop\"); dev->R.a = 1; } while (0)", "ON(); return 3;"),
)  # fmt: skip


@pytest.mark.needs("riscv64-unknown-elf-gcc", "arm-none-eabi-gcc")
@pytest.mark.parametrize("program", PROGRAMS, ids=[f"{n:02}" for n in range(len(PROGRAMS))])
def test_accesses_out_of_macros(program: tuple[str, str], tmp_path: Path) -> None:
    """The accesses are those of the text that gcc's preprocessor makes of it."""
    before, body = program
    source = f"{HEAD}{before}\nint t(int n)\n{{\n    {body}\n}}\n"
    plain = subprocess.run(["gcc", "-E", "-P", "-"], input=source, capture_output=True, text=True, check=True)
    (tmp_path / "plain").mkdir()
    expected = build(tmp_path / "plain", plain.stdout)
    bench = build(tmp_path, source)
    assert (expected.call("t", 1), bench.call("t", 1)) == (3, 3)
    assert bench.machine.trace == expected.machine.trace
    strict = [
        *ARM,
        "-std=c11",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Wno-unused-function",
        "-Wno-unused-parameter",
        "-Werror",
        "-c",
        "case.c",
    ]
    done = subprocess.run([*strict, "-o", "strict.o"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert not done.stderr


def test_other_statements_stay_as_they_were_written(tmp_path: Path) -> None:
    source = "#define ON() (dev->x = 1)\nbf_interrupt void t_isr(void)\n{\n    ON(); /* on */\n    if (0x1F)   nothing( );\n}\n"
    (tmp_path / "t.bf.c").write_text(HEAD + source)
    artifacts, _ = compile_driver(DriverRequest((tmp_path / "t.bf.c",), "n", "pulpino"))
    text = next(a.data.decode() for a in artifacts if a.name == "n.c")
    assert text.endswith(source.replace("    ON(); ", "    (HAL_WRITE_D_x(dev, 1)); "))
