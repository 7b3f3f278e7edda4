"""Registers as numbers, arrays by name and number, types of the source's own, and constants that fit no field."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver
from edgebuild.driver.registers.fixed import read_map
from tests.drivers.cases import svd
from tests.drivers.machine import build

TIMER = svd("CR@0: EN:0:1 URS:2:1 ARPE:7:1\nSR@4: UIF:0:1:zeroToClear CCIF:1:1:zeroToClear\nARR@8: L:0:16 H:16:16")
GROUPS = """bfGroup Cr { bit EN; bit URS; }; bfGroup Sr { bit UIF; bit CCIF; };
bfGroup T { bfGroup Cr CR; bfGroup Sr SR; uint32 ARR; }; make_device(T, t, 0x40000000);
"""


def compiled(folder: Path, source: str, description: str = "", overlay: str = "fields: {}") -> str:
    """The generated source and header."""
    (folder / "d.bf.c").write_text(source)
    layout = "optimize"
    if description:
        (folder / "chip.svd").write_text(description)
        (folder / "chip.overlay.yaml").write_text(overlay)
        layout = f"fixed:{folder / 'chip.svd'}"
    artifacts, _ = compile_driver(DriverRequest((folder / "d.bf.c",), "d", "mps2-an385", layout))
    return "\n".join(a.data.decode() for a in artifacts if a.name in ("d.c", "d_hal.h"))


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_numbers_of_registers(tmp_path: Path) -> None:
    (tmp_path / "chip.svd").write_text(TIMER)
    source = f"""{GROUPS}
    int get(void) {{ return bf_raw(t->CR); }}
    void clear(bfGroup T *p, int m) {{ bf_raw(p->SR) = ~m; }}
    void look(bfGroup Sr *s) {{ (void)*s; }} void all(void) {{ look(&t->SR); }}
    void zero(void) {{ t->CR = (bfGroup Cr){{0}}; }}
    void reload(int n) {{ t->ARR = n; }}"""
    bench = build(tmp_path, source, layout=f"fixed:{tmp_path / 'chip.svd'}")
    bench.model.values.update(EN=1, ARPE=1, UIF=1, CCIF=1)
    assert bench.call("get") == 0x81
    bench.call("clear", 0x40000000, 1)
    bench.call("all")
    bench.call("zero")
    bench.call("reload", 70000)
    seen = [(a.kind, a.offset, a.value) for a in bench.model.trace]
    assert seen == [("r", 0, 0x81), ("w", 4, 0xFFFFFFFE), ("r", 4, 2), ("w", 0, 0), ("w", 8, 70000)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("bf_raw(t->SR) |= 1;", "the number of a register is assigned, and not changed"),
        ("int x = bf_raw(t->SR) = 1; (void)x;", "an assignment of a whole register has no value"),
        ("t->SR = 1;", "incompatible type 'int'"),
    ],
)
def test_refused_uses_of_numbers(body: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(EdgebuildError, match=message):
        compiled(tmp_path, f"{GROUPS}void f(void) {{ {body} }}", TIMER)


def test_a_layout_of_our_own_has_no_numbers(tmp_path: Path) -> None:
    with pytest.raises(EdgebuildError, match="only a fixed layout says where its bits lie"):
        compiled(tmp_path, f"{GROUPS}int f(void) {{ return bf_raw(t->CR); }}")


def test_flags_as_a_number_are_not_changed_in_place(tmp_path: Path) -> None:
    source = "bfGroup T { uint16 SR; }; make_device(T, t, 0x40000000); void f(void) { t->SR &= ~1; }"
    with pytest.raises(EdgebuildError, match="'SR' is no stored value"):
        compiled(tmp_path, source, TIMER)


def test_a_register_is_a_number_or_has_fields(tmp_path: Path) -> None:
    source = "bfGroup T { uint32 ARR; uint16 L; }; make_device(T, t, 0x40000000); void f(void) { t->ARR = t->L; }"
    with pytest.raises(EdgebuildError, match="used as a number and by fields"):
        compiled(tmp_path, source, TIMER)


STREAMS = svd("S0CR@16: EN:0:1 DIR:6:2\nS1CR@40: EN:0:1 DIR:6:2 ACK:20:1\nS2CR@64: EN:0:1 DIR:6:2 ACK:20:1")


def test_elements_that_lack_a_field(tmp_path: Path) -> None:
    source = """bfGroup Cr { bit EN; uint2 DIR; }; bfGroup D { bfGroup Cr SCR[3]; }; make_device(D, d, 0x40000000);
    void f(int n) { d->SCR[n] = (bfGroup Cr){ .DIR = 1, .EN = 1 }; d->SCR[n].EN = 0; }"""
    text = compiled(tmp_path, source, STREAMS)
    assert "struct Cr SCR[3]; /* 0x10 */" in text and "r & 0xFFFFFFFEu" in text


PORT = svd(
    "MODER@0: " + " ".join(f"MODER{n}:{2 * n}:2" for n in range(16)) + "\n"
    "OTYPER@4: " + " ".join(f"OT{n}:{n}:1" for n in range(16)) + "\nIDR@8: "
    + " ".join(f"IDR{n}:{n}:1:r" for n in range(16))
)  # fmt: skip


def test_constant_elements_become_one_beside_a_variable_one(tmp_path: Path) -> None:
    source = """bfGroup G { uint2 MODER[16]; bit OTYPER[16]; uint16 IDR; }; make_device(G, g, 0x40000000);
    void pin(int n) { g->MODER[n] = 2; g->OTYPER[n] = 0; }
    void leds(void) { g->MODER[5] = 1; g->MODER[6] = 1; g->OTYPER[5] = 0; g->OTYPER[6] = 1; }
    int both(int n) { g->MODER[2] = 1; g->MODER[n] = 3; g->MODER[3] = 2; return g->IDR; }"""
    text = compiled(tmp_path, source, PORT)
    assert "HAL_WRITE_G_MODER_5_MODER_6(g, 1, 1)" in text.replace("MODER_6_MODER_5", "MODER_5_MODER_6")
    assert text.count("HAL_WRITE_G_MODER(g, (unsigned int)n, ") == 2 and "HAL_WRITE_G_MODER_2(g, 1)" in text


def test_a_wait_ends_a_sequence(tmp_path: Path) -> None:
    """Stores of one field with a wait between them may become one with neighbours; those without stay alone."""
    chip = svd("CR@0: EN:0:1 SER:1:1 SNB:3:4\nSR@4: BSY:0:1:r")
    source = """bfGroup F { bit EN; bit SER; uint4 SNB; bit BSY; }; make_device(F, f, 0x40000000);
    void erase(int n) { f->SER = 1; f->SNB = n; while (f->BSY) ; f->SER = 0; f->SNB = 0; }
    void change(int n) { f->EN = 0; f->SNB = n; f->EN = 1; }"""
    text = compiled(tmp_path, source, chip)
    assert text.count("HAL_WRITE_F_SNB_SER(") + text.count("HAL_WRITE_F_SER_SNB(") == 3  # two calls, one definition
    assert text.count("HAL_WRITE_F_EN(") == 3 and text.count("HAL_WRITE_F_SNB(") == 2


def test_a_part_of_a_register(tmp_path: Path) -> None:
    chip, source = svd("DR@12: DR:0:16"), "bfGroup S { uint8 DR; }; make_device(S, s, 0x40000000);"
    body = "void put(int b) { s->DR = b; } int get(void) { return s->DR; }"
    with pytest.raises(EdgebuildError, match=r"'DR' has 8 bits, and 16 in chip\.svd") as caught:
        compiled(tmp_path, source + body, chip)
    assert "the overlay says 'C.DR.DR: {bytes: true}'" in str(caught.value)
    text = compiled(tmp_path, source + body, chip, "fields: {C.DR.DR: {bytes: true, read: modify, write: modify}}")
    assert text.count("*(volatile unsigned char *)((__UINTPTR_TYPE__)group + 0xCu)") == 2


def test_types_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "cytypes.h").write_text("typedef unsigned long uint32;\ntypedef unsigned char uint8;\n")
    source = """#include "cytypes.h"
    bfGroup G { uint3 mode; uint32 n; }; make_device(G, g, 0x40000000);
    uint32 f(uint32 x) { uint3 m = g->mode; g->n = x; return m; }"""
    text = compiled(tmp_path, source)
    assert "typedef unsigned char uint3;" in text and "uint32;" not in text
    assert "typedef unsigned" not in text.partition("#endif\n")[0].partition('d_hal.h"')[0]


def test_derived_from_an_element_of_an_array(tmp_path: Path) -> None:
    array = """<register><dim>8</dim><dimIncrement>4</dimIncrement><dimIndex>0-7</dimIndex><name>P10%sPFS</name>
    <addressOffset>0</addressOffset><fields><field><name>PODR</name><bitRange>[0:0]</bitRange></field></fields></register>
    <register derivedFrom="P100PFS"><name>P108PFS</name><addressOffset>0x20</addressOffset></register>"""
    (tmp_path / "chip.svd").write_text(svd("X@64: A:0:1").replace("<registers>", f"<registers>{array}"))
    registers = {r.name: r for r in read_map(tmp_path / "chip.svd").blocks[0].registers}
    assert (registers["P108PFS"].offset, registers["P108PFS"].fields[0].name, len(registers)) == (0x20, "PODR", 10)


@pytest.mark.parametrize(
    "body",
    [
        "uint3 v = 9; (void)v;",
        "uint3 v; v = 8; (void)v;",
        "uint3 w[2] = {1, 8}; (void)w;",
        "take(9);",
        "if (g->k == 8) take(1);",
        "if (7 != g->b) take(1);",
        "if (g->a[1] == -1) take(1);",
        "switch (g->k) { case 1: take(1); break; case 12: take(2); }",
        "if (g->m == OTHER) take(1);",
        "switch (g->m) { case IN: break; case OTHER: take(1); }",
        "g->n = g->b ? 256 : 1;",
    ],
)
def test_constants_that_are_none_of_a_field(body: str, tmp_path: Path) -> None:
    head = """enum mode { IN, OUT }; enum other { OTHER = 3 };
    bfGroup G { uint2 bf_enum(mode) m; uint3 k; uint3 a[4]; bit b; uint8 n; }; make_device(G, g, 0x40000000);
    static void take(uint3 x) { g->k = x; } uint2 give(void) { return 3; }
    """
    compiled(tmp_path, head + "void f(void) { take(7); if (g->k == 7 || g->m == OUT) take(0); }")
    with pytest.raises(EdgebuildError, match=r"does not fit into|is no value of"):
        compiled(tmp_path, f"{head}void f(void) {{ {body} }}")
    with pytest.raises(EdgebuildError, match="4 does not fit into the 2 bits of 'give'"):
        compiled(tmp_path, head.replace("return 3", "return 4"))


TAIL = svd("DR@0: DATA:0:16 RESERVED:16:16\nIE@4: RX:0:1:oneToSet TX:1:1:oneToSet\nFC@8: OV:0:1:zeroToClear")
TAIL_GROUPS = """bfGroup Ie { bit RX; bit TX; }; bfGroup Fc { bit OV; };
bfGroup P { uint16 DR; bfGroup Ie IE; bfGroup Fc FC; }; make_device(P, p, 0x40000000);
"""


def test_bits_named_reserved_are_no_part_of_a_number(tmp_path: Path) -> None:
    assert "HAL_WRITE_P_DR" in compiled(tmp_path, f"{TAIL_GROUPS}void put(int v) {{ p->DR = v; }}", TAIL)
    source = TAIL_GROUPS.replace("uint16 DR", "uint8 DR") + "void put(int v) { p->DR = v; }"
    with pytest.raises(EdgebuildError, match=r"'C\.DR' is a register of 32 bits, and 'DR' has 8\n(.*\n)*.*use uint32"):
        compiled(tmp_path, source, TAIL)


def test_a_write_that_does_nothing_gets_a_warning(tmp_path: Path) -> None:
    """Of a constant, and where it is not one of several fields in a literal."""
    (tmp_path / "d.bf.c").write_text(f"""{TAIL_GROUPS}
    void quiet(int v) {{ p->IE.RX = 0; p->IE.TX = v; p->IE = (bfGroup Ie){{ .RX = 0, .TX = 1 }}; p->FC.OV = 1; }}""")
    (tmp_path / "chip.svd").write_text(TAIL)
    layout = f"fixed:{tmp_path / 'chip.svd'}"
    _, driver = compile_driver(DriverRequest((tmp_path / "d.bf.c",), "d", "mps2-an385", layout))
    assert [w.text for w in driver.warnings] == [
        "'C.IE.RX' is oneToSet: a write of 0 does nothing; if it stores, the overlay says 'C.IE.RX: {plain: true}'",
        "'C.FC.OV' is zeroToClear: a write of 1 does nothing; if it stores, the overlay says 'C.FC.OV: {plain: true}'",
    ]
