# ruff: noqa: E501  (C on one line reads better here)
"""Groups inside of groups on silicon: each access goes to its address, whatever C thinks of the structs around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.driver.registers.svd import read_svd
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


def field(name: str, lsb: int, width: int, *, dim: int = 1, step: int = 0, modified: str = "") -> str:
    array = f"<dim>{dim}</dim><dimIncrement>{step}</dimIncrement>" if dim > 1 else ""
    effect = f"<modifiedWriteValues>{modified}</modifiedWriteValues>" if modified else ""
    word = name + ("%s" if dim > 1 else "")
    return f"<field>{array}<name>{word}</name><bitOffset>{lsb}</bitOffset><bitWidth>{width}</bitWidth>{effect}</field>"


def one_register(folder: Path, fields: str, reset: int, source: str, overlay: str) -> Bench:
    register = f"<register><name>R</name><addressOffset>0</addressOffset><resetValue>{reset}</resetValue><fields>{fields}</fields></register>"
    peripheral = (
        f"<peripheral><name>C</name><baseAddress>0x40000000</baseAddress><registers>{register}</registers></peripheral>"
    )
    (folder / "chip.svd").write_text(f"<device><name>X</name><peripherals>{peripheral}</peripherals></device>")
    (folder / "chip.overlay.yaml").write_text(overlay)
    return build(folder, source + "\n", layout=f"fixed:{folder / 'chip.svd'}")


DEVICE = "make_device(C, c, 0x40000000);\n"
PLAIN = 'fields: {"C.R.[MPABK]*": {plain: true}}'
M4 = field("M", 0, 2, dim=4, step=2)
PACKED = {  # arrays in one register: fields, value after reset, source, argument, (result, bus)
    "the other elements stay": (field("P", 0, 1, dim=32, step=1), 0xF0, "bfGroup C { bit P[32]; };" + DEVICE + "int t(int n) { c->P[n] = 1; c->P[n + 1] = 0; return c->P[n]; }", 3, 1, "r f0, w f8, r f8, w e8, r e8"),
    "so do the neighbours, and flags": (M4 + field("ER", 8, 1, modified="oneToClear") + field("K", 9, 1), 0x1A5, "bfGroup C { uint2 M[4]; bit ER; bit K; };" + DEVICE + "int t(int n) { c->M[n] = 2; c->K = 1; c->ER = 1; return c->M[n + 1]; }", 1, 2, "r 1a5, w a9, r 1a9, w 2a9, r 3a9, w 3a9, r 2a9"),
    "flags that a 0 clears": (field("F", 0, 1, dim=8, step=1, modified="zeroToClear") + field("K", 9, 1), 0xFF, "bfGroup C { bit F[8]; bit K; };" + DEVICE + "int t(int n) { c->F[n] = 0; c->K = 1; return 0; }", 2, 0, "r ff, w fb, w 2ff"),
    "flags that a 1 sets": (field("F", 0, 1, dim=8, step=1, modified="oneToSet") + field("K", 9, 1), 0x200, "bfGroup C { bit F[8]; bit K; };" + DEVICE + "int t(int n) { c->F[n] = 1; c->K = 0; return 0; }", 2, 0, "r 200, w 204, w 0"),
    "whole registers": (M4 + field("K", 9, 1), 3, "bfGroup R { uint2 M[4]; bit K; }; bfGroup C { bfGroup R R; };" + DEVICE + "int t(int n) { c->R = (bfGroup R){ .M[1] = 3, .M[3] = 1, .K = 1 }; bfGroup R r = c->R; r.M[2] = 1; c->R = r; c->R.K = 0; return c->R.M[n] + 8 * r.M[1]; }", 2, 25, "w 24f, r 24f, w 25f, r 25f, w 5f, r 5f"),
    "two arrays": (field("A", 0, 3, dim=4, step=8) + field("B", 3, 2, dim=4, step=8), 0x1F1F1F1F, "bfGroup C { uint3 A[4]; uint2 B[4]; };" + DEVICE + "int t(int n) { c->A[n] = 5; c->B[n] = 2; return c->A[n] + c->B[n]; }", 2, 7, "r 1f1f1f1f, w 1f151f1f, r 1f151f1f"),
}  # fmt: skip


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("what", PACKED)
def test_arrays_in_one_register(what: str, tmp_path: Path) -> None:
    fields, reset, source, n, result, bus = PACKED[what]
    b = one_register(tmp_path, fields, reset, source, PLAIN)
    assert b.call("t", n) == result
    assert ", ".join(f"{a.kind} {a.value:x}" for a in b.model.trace) == bus
    exported = {
        f.name: f.lsb for block in read_svd(tmp_path / "case.svd").blocks for r in block.registers for f in r.fields
    }
    if "M[4]" in source:
        assert [exported[n] for n in exported if n.startswith(("M_", "R_M_"))] == [0, 2, 4, 6]


ARRAYS = """addrmap chip { addrmap c_t { default regwidth = 32;
    reg { field {} V[8] = 3; } DATA[4] @ 0 += 4;
    reg { field {} EN[1] = 0; field {} MODE[2:1] = 0; } CFG[3] @ 0x20 += 8;
    reg { field {} A[16] = 0; } M[2][3] @ 0x40 += 4;
    regfile { reg { field {} X[1] = 0; } R @ 0; reg { field {} Y[4] = 0; } T[2] @ 8 += 4; } CH[2] @ 0x80 += 0x20;
}; c_t C @ 0x40000000; };"""
DIMS = """<device><name>X</name><peripherals><peripheral><name>C</name><baseAddress>0x40000000</baseAddress><registers>
<register><dim>4</dim><dimIncrement>4</dimIncrement><name>DATA[%s]</name><addressOffset>0</addressOffset><fields><field><name>V</name><bitRange>[7:0]</bitRange></field></fields></register>
<register><dim>3</dim><dimIncrement>8</dimIncrement><dimIndex>A,B,C</dimIndex><name>CFG%s</name><addressOffset>0x20</addressOffset><fields><field><name>EN</name><bitRange>[0:0]</bitRange></field><field><name>MODE</name><bitRange>[2:1]</bitRange></field></fields></register>
<register><dim>3</dim><dimIncrement>4</dimIncrement><dimIndex>1-3</dimIndex><name>CCR%s</name><addressOffset>0x40</addressOffset></register>
</registers></peripheral></peripherals></device>"""
REGISTERS = {  # arrays of single registers: file, members, body, argument, places of its writes
    "rdl, a field alone": (ARRAYS, "uint8 DATA[4];", "c->DATA[n] = 5; c->DATA[3] = 1;", 1, [4, 12]),
    "rdl, by field": (ARRAYS, "bit CFG_EN[3]; uint2 CFG_MODE[3];", "c->CFG_EN[n] = 1; c->CFG_MODE[2] = 1;", 1, [0x28, 0x30]),
    "rdl, two dimensions": (ARRAYS, "uint16 M[2][3];", "c->M[1][n] = 7; c->M[n][2] = 9;", 1, [0x50, 0x54]),
    "rdl, an array in an array": (ARRAYS, "bfGroup Ch CH[2];", "c->CH[n].T[n] = 7; c->CH[0].R_X = 1;", 1, [0xAC, 0x80]),
    "rdl, whole registers": (ARRAYS, "bfGroup Cfg CFG[3];", "c->CFG[n] = (bfGroup Cfg){ .EN = 1 };", 2, [0x30]),
    "svd, brackets": (DIMS, "uint8 DATA[4];", "c->DATA[n] = 5; c->DATA[3] = 1;", 1, [4, 12]),
    "svd, letters": (DIMS, "bfGroup Cfg CFG[3];", "c->CFG[n].EN = 1; c->CFG[0].MODE = 2;", 1, [0x28, 0x20]),
    "svd, letters by name": (DIMS, "bfGroup Cfg CFGB; bfGroup Cfg CFGC;", "c->CFGB.EN = 1; c->CFGC.EN = n;", 1, [0x28, 0x30]),
    "svd, from 1": (DIMS, "uint32 CCR[3];", "c->CCR[n] = 1; c->CCR[0] = 2;", 2, [0x48, 0x40]),
    "svd, from 1 by name": (DIMS, "uint32 CCR1; uint32 CCR3;", "c->CCR1 = 1; c->CCR3 = n;", 2, [0x40, 0x48]),
}  # fmt: skip


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("what", REGISTERS)
def test_arrays_of_registers(what: str, tmp_path: Path) -> None:
    text, members, body, n, expected = REGISTERS[what]
    file = tmp_path / ("chip.svd" if text is DIMS else "chip.rdl")
    file.write_text(text)
    (tmp_path / "chip.overlay.yaml").write_text('fields: {"C.*": {plain: true}}')
    used = {"Cfg": "bfGroup Cfg { bit EN; uint2 MODE; };\n", "Ch": "bfGroup Ch { bit R_X; uint4 T[2]; };\n"}
    groups = "".join(text for name, text in used.items() if f"bfGroup {name} " in members)
    b = build(
        tmp_path, f"{groups}bfGroup C {{ {members} }};\n{DEVICE}void t(int n) {{ {body} }}\n", layout=f"fixed:{file}"
    )
    b.call("t", n)
    assert places(b) == expected


def test_an_array_longer_than_the_registers(tmp_path: Path) -> None:
    """`CCR[3]` is none of CCR1 to CCR3, although the name is there."""
    (tmp_path / "chip.svd").write_text(DIMS)
    with pytest.raises(EdgebuildError, match="is not in chip"):
        build(
            tmp_path,
            f"bfGroup C {{ uint32 CCR[4]; }};\n{DEVICE}void t(int n) {{ c->CCR[n] = 1; }}",
            layout=f"fixed:{tmp_path / 'chip.svd'}",
        )


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("cpp", [False, True], ids=["c", "c++"])
def test_groups_that_nothing_uses(cpp: bool, tmp_path: Path) -> None:
    """A group for another chip of the family holds groups of this one, once or as an array."""
    other = "bfGroup Other { bfGroup Slice S; uint8 x; }; bfGroup Most { bfGroup Slice S[9]; bfGroup Other O[2]; };\n"
    body = "void t(int n) { level(&pwm->CH[n].CC, 1, 2); on(&pwm->CH[n].CSR); }"
    b = bench(tmp_path, SLICES, SLICE + other + body, cpp)
    b.call("t", 2)
    assert places(b) == [40 + 12, 40]


def test_a_pointer_to_a_group_that_no_device_has(tmp_path: Path) -> None:
    source = SLICE + "bfGroup Other { bfGroup Slice S; };\nvoid t(bfGroup Other *o) { on(&o->S.CSR); }"
    with pytest.raises(EdgebuildError, match="no device has a group 'Other'"):
        bench(tmp_path, SLICES, source)
