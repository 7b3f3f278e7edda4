"""The bound of a program's stack: its frames are those that the compiler states, its chains those of the calls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgebuild.build.stack import Code
from edgebuild.cli import main
from tests.conftest import run
from tests.doors.projects import DIGITS

COMPILERS = {
    "arm-none-eabi-gcc": (("-mcpu=cortex-m4", "-mthumb"), ("-mcpu=cortex-m0", "-mthumb")),
    "riscv64-unknown-elf-gcc": (("-march=rv32imc", "-mabi=ilp32"), ("-march=rv32i", "-mabi=ilp32")),
    "gcc": ((),),
}
CASES = [(c, flags) for c, all_flags in COMPILERS.items() for flags in all_flags]
SOURCE = """\
#define KEEP __attribute__((noinline, noclone))
volatile int sink;
KEEP int leaf(int a) { return a * sink; }
KEEP int small(int a) { volatile int x[3]; x[0] = x[1] = a; return leaf(x[1]) + x[0]; }
KEEP int page(int a) { volatile char x[4000]; x[a] = 1; return small(x[sink]) + x[0]; }
KEEP int large(int a) { volatile char x[70000]; x[a] = 1; return page(x[sink]) + x[a]; }
KEEP int many(int a, int b, int c, int d, int e, int f) { return large(a) + small(b + c) + d * e + f; }
KEEP int table(int a)
{
    volatile int x[20];
    x[sink] = 0;
    switch (a) {
    case 0: sink = 2; return small(x[2]);
    case 1: return page(x[3]) + 1;
    case 2: sink = x[3]; break;
    case 3: x[3] = 4; break;
    case 4: return large(4) + x[5];
    case 5: x[1] = sink; break;
    case 6: sink = sink + 7; break;
    }
    return x[1];
}
KEEP double real(double x, float y) { double z = x * sink; leaf(3); return z * y + x; }
KEEP int last(int a) { return small(a + 1); }
int main(void) { return many(1, 2, 3, 4, 5, 6) + table(sink) + (int)real(1.5, 2.5f) + last(3); }
"""
UNBOUNDED = """\
volatile int sink;
int (*volatile pointer)(int);
__attribute__((noinline)) int again(int a) { return a ? again(a - 1) * sink + 1 : sink; }
__attribute__((noinline)) int through(int a) { return pointer(a) + 1; }
__attribute__((noinline)) int away(int a) { return pointer(a); }
__attribute__((noinline)) int sized(int a) { volatile char x[a]; x[sink] = 3; return x[0]; }
__attribute__((noinline)) int bounded(int a) { return a + sink; }
int main(void) { return again(3) + through(4) + away(4) + sized(sink) + bounded(2); }
"""


def program(folder: Path, text: str, *command: str) -> Code:
    (folder / "main.c").write_text(text)
    bare = [] if command[0] == "gcc" else ["-nostdlib", "-Wl,-e,main"]
    run(*command, "-fstack-usage", "main.c", "-o", "app", *bare, "-lgcc", cwd=folder)
    return Code(folder / "app")


def by_name(code: Code) -> dict[str, int]:
    return {code.names[start]: start for start in code.starts}


@pytest.mark.parametrize("level", ["-O2", "-O0", "-Os"])
@pytest.mark.parametrize(
    ("compiler", "flags"), [pytest.param(c, flags, marks=pytest.mark.needs(c)) for c, flags in CASES]
)
def test_frames_are_those_that_the_compiler_states(
    compiler: str, flags: tuple[str, ...], level: str, tmp_path: Path
) -> None:
    code = program(tmp_path, SOURCE, compiler, *flags, level)
    (usage,) = tmp_path.glob("*.su")
    stated = {}
    for row in usage.read_text().splitlines():
        place, size, _ = row.split("\t")
        stated[place.rpartition(":")[2]] = int(size)
    starts = by_name(code)
    frames = {name: code.function(starts[name]).frame + code.machine.return_bytes for name in stated}
    assert frames == stated and len(stated) == 9
    assert all(code.bound(starts[name]).reasons == () for name in stated)
    chain = ("many", "large", "page", "small", "leaf")
    assert code.bound(starts["many"]).bytes + code.machine.return_bytes == sum(stated[n] for n in chain)
    assert code.bound(code.entry or 0).bytes >= 70000 + 4000


@pytest.mark.parametrize(
    ("compiler", "flags"), [pytest.param(c, flags, marks=pytest.mark.needs(c)) for c, flags in CASES]
)
def test_what_has_no_bound(compiler: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    code = program(tmp_path, UNBOUNDED, compiler, *flags, "-O1")
    starts = by_name(code)
    reasons = {name: code.bound(starts[name]).reasons for name in ("again", "through", "away", "sized", "bounded")}
    assert reasons == {
        "again": ("'again' may call itself",),
        "through": ("'through' calls through a pointer",),
        "away": ("'away' calls through a pointer",),
        "sized": ("'sized' has a frame of unknown size",),
        "bounded": (),
    }
    assert len(code.bound(starts["main"]).reasons) == 4


@pytest.mark.needs("arm-none-eabi-gcc", "qemu-system-arm")
def test_what_a_model_needs_is_what_it_was_seen_to_use(tmp_path: Path) -> None:
    """The harness paints the stack and looks at what the inference wrote over."""
    model, result = DIGITS / "digits.onnx", tmp_path / "result.json"
    assert main(["verify", str(model), "--target", "mps2-an386", "--keep", str(tmp_path), "--json", str(result)]) == 0
    code = Code(tmp_path / "harness.elf")
    bound = code.bound(by_name(code)["model_invoke"])
    assert bound.reasons == () and bound.bytes == json.loads(result.read_text())["stack_bytes"]
