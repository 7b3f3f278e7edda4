# ruff: noqa: E501  (C on one line reads better here)
"""Groups inside of groups on silicon: each access goes to its address, whatever C thinks of the structs around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from tests.drivers.cases import svd
from tests.drivers.machine import Bench, build

SLICES = "\n".join(f"CH{i}_CSR@{20 * i}: EN:0:1\nCH{i}_DIV@{20 * i + 4}: INT:4:8\nCH{i}_CC@{20 * i + 12}: A:0:16 B:16:16\nCH{i}_TOP@{20 * i + 16}: T:0:16" for i in range(4))  # fmt: skip
SLICE = """bfGroup Csr { bit EN; }; bfGroup Cc { uint16 A; uint16 B; };
bfGroup Slice { bfGroup Csr CSR; uint8 DIV_INT; bfGroup Cc CC; uint16 TOP; };
bfGroup Pwm { bfGroup Slice CH[4]; };
make_device(Pwm, pwm, 0x40000000);
static void level(bfGroup Cc *c, int a, int b) { c->A = a; c->B = b; }
static void on(bfGroup Csr *c) { c->EN = 1; }
"""


def bench(folder: Path, registers: str, source: str, cpp: bool = False) -> Bench:
    (folder / "chip.svd").write_text(svd(registers))
    (folder / "chip.overlay.yaml").write_text('fields: {"C.*": {plain: true}}')
    source = source.replace("void t(", 'extern "C" void t(') if cpp else source
    return build(folder, source, layout=f"fixed:{folder / 'chip.svd'}", cpp=cpp)


def places(b: Bench) -> list[int]:
    return [a.offset for a in b.model.trace if a.kind == "w"]


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("cpp", [False, True], ids=["c", "c++"])
def test_groups_inside_of_an_array_of_groups(cpp: bool, tmp_path: Path) -> None:
    body = "void t(int n) { bfGroup Slice *s = &pwm->CH[n]; level(&s->CC, 1, 2); s->TOP = 7; s->DIV_INT = 3; on(&s->CSR); pwm->CH[n].CC.A = 5; }"
    b = bench(tmp_path, SLICES, SLICE + body, cpp)
    b.call("t", 3)
    assert places(b) == [60 + 12, 60 + 16, 60 + 4, 60, 60 + 12]


INTERLEAVED = "A_DR@0: D:0:8\nB_SR@4: S:0:8\nA_CR@8: E:0:1\nB_CR@12: E:0:1"


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("cpp", [False, True], ids=["c", "c++"])
def test_groups_whose_registers_interleave(cpp: bool, tmp_path: Path) -> None:
    source = """bfGroup A { uint8 DR_D; bit CR_E; }; bfGroup B { uint8 SR_S; bit CR_E; }; bfGroup C { bfGroup A A; bfGroup B B; };
    make_device(C, c, 0x40000000);
    static void f(bfGroup A *a) { a->DR_D = 1; a->CR_E = 1; }
    static void g(bfGroup B *b) { b->SR_S = 1; b->CR_E = 1; }
    void t(void) { f(&c->A); g(&c->B); }"""
    b = bench(tmp_path, INTERLEAVED, source, cpp)
    b.call("t")
    assert places(b) == [0, 8, 4, 12]


ROWS = "CH0_DR@0: D:0:8\nCH1_DR@4: D:0:8\nCH0_CR@16: E:0:1\nCH1_CR@20: E:0:1"


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_elements_whose_registers_interleave(tmp_path: Path) -> None:
    source = "bfGroup Ch { uint8 DR_D; bit CR_E; }; bfGroup C { bfGroup Ch CH[2]; }; make_device(C, c, 0x40000000);\nvoid t(int i) { c->CH[i].DR_D = 3; c->CH[i].CR_E = 1; }"
    b = bench(tmp_path, ROWS, source)
    b.call("t", 1)
    assert places(b) == [4, 20]


def test_groups_beyond_the_distance_of_the_elements(tmp_path: Path) -> None:
    source = """bfGroup Cr { bit E; }; bfGroup Ch { uint8 DR_D; bfGroup Cr CR; }; bfGroup C { bfGroup Ch CH[2]; }; make_device(C, c, 0x40000000);
    static void on(bfGroup Cr *x) { x->E = 1; }
    void t(int i) { on(&c->CH[i].CR); }"""
    with pytest.raises(EdgebuildError, match="lie beyond the 4 bytes from one element to the next"):
        bench(tmp_path, ROWS, source)
