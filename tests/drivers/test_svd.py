"""Idioms of vendors' SVD files: what is derived, sizes, enumerations, writes that act, and files that are wrong."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver
from edgebuild.driver.registers.fixed import read_map
from tests.drivers.cases import svd
from tests.drivers.machine import Bench, build

PLAIN = 'fields: {"*": {plain: true}}'
PAIR = "bfGroup P { bit A; bit B; }; bfGroup S { bfGroup P R; }; make_device(S, s, 0x40000000);\n"


def field(name: str, lsb: int, width: int, inside: str = "") -> str:
    place = f"<bitOffset>{lsb}</bitOffset><bitWidth>{width}</bitWidth>"
    return f"<field><name>{name}</name>{place}{inside}</field>"


def register(name: str, offset: int, fields: str, inside: str = "") -> str:
    place = f"<addressOffset>{offset}</addressOffset>"
    return f"<register><name>{name}</name>{place}{inside}<fields>{fields}</fields></register>"


def peripheral(name: str, base: int, registers: str = "", origin: str = "") -> str:
    derived = f' derivedFrom="{origin}"' if origin else ""
    inside = f"<registers>{registers}</registers>" if registers else ""
    return f"<peripheral{derived}><name>{name}</name><baseAddress>{base:#x}</baseAddress>{inside}</peripheral>"


def device(*peripherals: str) -> str:
    return f"<device><name>X</name><peripherals>{''.join(peripherals)}</peripherals></device>"


def chip(*registers: str) -> str:
    return device(peripheral("C", 0x4000_0000, "".join(registers)))


def bench_of(folder: Path, description: str, source: str, overlay: str = "fields: {}") -> Bench:
    (folder / "chip.svd").write_text(description)
    (folder / "chip.overlay.yaml").write_text(overlay)
    return build(folder, source, layout=f"fixed:{folder / 'chip.svd'}")


def accesses(bench: Bench, name: str = "s") -> list[tuple[str, int, int, int]]:
    return [(a.kind, a.offset, a.size, a.value) for a in bench.machine.models[name].trace]


FAMILIES = [
    ("LAT", "LATINV"),
    ("LAT", "LATTOG"),
    ("", "OUT_TOGGLE OUT_SET"),
    ("", "OUTTGL OUTCLR"),
    ("", "NOT0 SET0"),
    ("", "OUT_W1TS OUT_W1TC"),
    ("", "IER IDR"),
    ("", "DOUTXOR31_0 DOUTSET31_0"),
]


@pytest.mark.parametrize(("plain", "acting"), FAMILIES)
def test_registers_in_which_a_1_acts_are_not_written_back(plain: str, acting: str, tmp_path: Path) -> None:
    names = [*plain.split(), *acting.split()]
    fields = field("A", 0, 1) + field("B", 1, 1)
    text = chip(*(register(n, 4 * i, fields) for i, n in enumerate(names)))
    name = acting.split()[0]
    source = PAIR.replace("bfGroup P R;", f"bfGroup P {name};") + f"void f(void) {{ s->{name}.A = 1; }}"
    with pytest.raises(EdgebuildError, match=rf"the overlay says 'C\.{name}\.B: {{back: \"0\"}}'"):
        bench_of(tmp_path, text, source)
    bench = bench_of(tmp_path, text, source, f'fields: {{"C.{name}.*": {{back: "0"}}}}')
    bench.call("f")
    assert accesses(bench) == [("w", 4 * names.index(name), 4, 1)]


@pytest.mark.parametrize(
    ("values", "kinds"), [("Set=1", "w"), ("Clear=1", "w"), ("Set=1 None=0", "rw"), ("On=1", "rw")]
)
def test_the_one_value_to_write_says_what_a_write_does(values: str, kinds: str, tmp_path: Path) -> None:
    """nRF's INTENSET has Disabled and Enabled to read, and only a Set to write."""
    rows = "".join(
        f"<enumeratedValue><name>{name}</name><value>{value}</value></enumeratedValue>"
        for name, value in (v.split("=") for v in values.split())
    )
    both = "".join(
        f"<enumeratedValues><usage>{usage}</usage>{text}</enumeratedValues>"
        for usage, text in (("read", rows.replace("<name>", "<name>Is")), ("write", rows))
    )
    text = chip(register("R", 0, field("A", 0, 1, both) + field("B", 1, 1, both)))
    bench = bench_of(tmp_path, text, PAIR + "void f(void) { s->R.A = 1; }")
    bench.call("f")
    assert "".join(kind for kind, *_ in accesses(bench)) == kinds


@pytest.mark.parametrize("names", ["TIMESET TIME", "OFFSET ON", "SETINV"])
def test_a_name_alone_says_nothing(names: str, tmp_path: Path) -> None:
    fields = field("A", 0, 1) + field("B", 1, 1)
    text = chip(*(register(n, 4 * i, fields) for i, n in enumerate(names.split())))
    name = names.split()[0]
    source = PAIR.replace("bfGroup P R;", f"bfGroup P {name};") + f"void f(void) {{ s->{name}.A = 1; }}"
    bench = bench_of(tmp_path, text, source)
    bench.call("f")
    assert [kind for kind, *_ in accesses(bench)] == ["r", "w"]


@pytest.mark.parametrize("access", ["read-writeOnce", "writeOnce", "read-writeonce"])
def test_what_can_be_written_once_is_not_written_back(access: str, tmp_path: Path) -> None:
    text = chip(register("R", 0, field("A", 0, 1) + field("B", 1, 1, f"<access>{access}</access>")))
    with pytest.raises(EdgebuildError, match=r"a write of 'R_A' also writes 'R_B', and no value is harmless"):
        bench_of(tmp_path, text, PAIR + "void f(void) { s->R.A = 1; }")
    bench = bench_of(tmp_path, text, PAIR + "void f(void) { s->R = (bfGroup P){ .A = 1, .B = 1 }; }")
    bench.call("f")
    assert accesses(bench) == [("w", 0, 4, 3)]


def test_written_once_in_systemrdl(tmp_path: Path) -> None:
    text = (
        "addrmap C { reg { field { sw = rw1; hw = r; } B[1:1] = 0; field { sw = rw; hw = r; } A[0:0] = 0; } R @ 0; };"
    )
    (tmp_path / "chip.rdl").write_text(text)
    with pytest.raises(EdgebuildError, match=r"a write of 'R_A' also writes 'R_B', and no value is harmless"):
        build(tmp_path, PAIR + "void f(void) { s->R.A = 1; }", layout=f"fixed:{tmp_path / 'chip.rdl'}")


@pytest.mark.parametrize(("bits", "size"), [(8, 1), (12, 2), (16, 2), (24, 4), (32, 4)])
def test_sizes_of_accesses(bits: int, size: int, tmp_path: Path) -> None:
    text = chip(register("R", 4, field("A", 0, 1) + field("B", bits - 1, 1), f"<size>{bits}</size>"))
    bench = bench_of(tmp_path, text, PAIR + "void f(void) { s->R.A = 1; s->R.B = 1; }", PLAIN)
    bench.machine.models["s"].word_only = False
    bench.call("f")
    assert accesses(bench) == [("w", 4, size, 1 | 1 << (bits - 1))]


def test_a_register_of_40_bits_takes_two_accesses(tmp_path: Path) -> None:
    text = chip(register("R", 8, field("A", 0, 1) + field("B", 39, 1), "<size>40</size>"))
    bench = bench_of(tmp_path, text, PAIR + "void f(void) { s->R.A = 1; s->R.B = 1; }", PLAIN)
    bench.call("f")
    assert accesses(bench) == [("w", 8, 4, 1), ("w", 12, 4, 128)]


@pytest.mark.parametrize(
    "fields", ["RESERVED:1:31 A:0:1 B:31:1", "A:0:1 _reserved_0:0:2 B:31:1", "A:0:1 RSVD:1:31 B:31:1"]
)
def test_reserved_bits_that_lie_on_fields_are_none(fields: str, tmp_path: Path) -> None:
    """As in the PCON of LPC17xx: the register could not be used. Reserved bits are stored as after reset."""
    parts = (f.split(":") for f in fields.split())
    text = chip(register("R", 0, "".join(field(n, int(lsb), int(width)) for n, lsb, width in parts)))
    bench = bench_of(tmp_path, text, PAIR + "void f(void) { s->R.A = 1; s->R.B = 1; }", PLAIN)
    bench.call("f")
    assert accesses(bench) == [("w", 0, 4, 1 | 1 << 31)]


def test_words_of_vendors_for_access_and_for_bits_that_do_not_count(tmp_path: Path) -> None:
    rows = (
        "<enumeratedValues><enumeratedValue><name>ANY</name><value>0bx01</value></enumeratedValue></enumeratedValues>"
    )
    fields = field("A", 0, 1, "<access>write</access>") + field("B", 1, 1, f"<access>read</access>{rows}")
    bench = bench_of(tmp_path, chip(register("R", 0, fields)), PAIR + "void f(void) { s->R.A = 1; }")
    bench.call("f")
    assert accesses(bench) == [("w", 0, 4, 1)]


@pytest.mark.parametrize(
    ("encoding", "written"),
    [
        ("utf-8", "utf-8-sig"),
        ("utf-8", "latin-1"),
        ("ISO-8859-1", "latin-1"),
        ("GB2312", "gb2312"),
        ("utf-16", "utf-16"),
    ],
)
def test_encodings(encoding: str, written: str, tmp_path: Path) -> None:
    """Descriptions may hold any bytes: vendors write one encoding and name another."""
    described = f"<description>{'±' if written == 'gb2312' else '°'}</description>"
    text = chip(register("R", 4, field("A", 0, 1), described))
    (tmp_path / "chip.svd").write_bytes(f'<?xml version="1.0" encoding="{encoding}"?>\r\n{text}'.encode(written))
    (first,) = read_map(tmp_path / "chip.svd").blocks[0].registers
    assert (first.name, first.offset, first.fields[0].name) == ("R", 4, "A")
    (tmp_path / "chip.svd").write_bytes(f'<?xml version="1.0" encoding="utf-9"?>\n{text}'.encode())
    with pytest.raises(EdgebuildError, match=r"chip\.svd:1: error: encoding 'utf-9' is not known"):
        read_map(tmp_path / "chip.svd")


@pytest.mark.parametrize(("a", "b"), [("EN", "MODE"), ("EN", "EN")])
def test_registers_of_one_name_in_clusters_of_a_cluster(a: str, b: str, tmp_path: Path) -> None:
    """CH[i].A.CTRL and CH[i].B.CTRL are two registers: the second one's field was looked for in the first one."""
    ctrl = register("CTRL", 0, field("EN", 0, 1) + field("MODE", 4, 1))
    places = {"A": 0, "B": 16}
    inner = "".join(
        f"<cluster><name>{n}</name><addressOffset>{at}</addressOffset>{ctrl}</cluster>" for n, at in places.items()
    )
    outer = f"<dim>3</dim><dimIncrement>32</dimIncrement><name>CH[%s]</name><addressOffset>0</addressOffset>{inner}"
    source = f"bfGroup P {{ bit A_CTRL_{a}; bit B_CTRL_{b}; }}; bfGroup S {{ bfGroup P CH[3]; }};"
    source += f"make_device(S, s, 0x40000000); void f(int i) {{ s->CH[i].A_CTRL_{a} = 1; s->CH[i].B_CTRL_{b} = 1; }}"
    bench = bench_of(tmp_path, chip(f"<cluster>{outer}</cluster>"), source)
    bench.call("f", 2)
    bits = {"EN": 1, "MODE": 16}
    assert [w for w in accesses(bench) if w[0] == "w"] == [("w", 64, 4, bits[a]), ("w", 80, 4, bits[b])]


WRONG = {
    "size": (("<size>128</size>", 0, 1), "register 'R' has 128 bits; 1 to 64 can be accessed"),
    "nothing": (("<size>0</size>", 0, 1), "register 'R' has 0 bits"),
    "place": (("", 2, 1), "register 'R' lies at 0x2, where none of 32 bits can be accessed"),
    "far": (("", 1 << 40, 1), "register 'R' lies at 0x10000000000, beyond 32 bits"),
    "negative": (("<resetValue>-1</resetValue>", 0, 1), "<resetValue> '-1' is not a number"),
    "underscore": (("<resetValue>0x1_0</resetValue>", 0, 1), "<resetValue> '0x1_0' is not a number"),
    "width": (("", 0, 10**12), "field 'A' ends at bit 999999999999, and register 'R' has 32"),
    "many": (("<dim>99999999999</dim><dimIncrement>4</dimIncrement>", 0, 1), "<dim> 99999999999 is more than 65536"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_registers(what: str, tmp_path: Path) -> None:
    (inside, offset, width), message = WRONG[what]
    text = chip(register("R", offset, field("A", 0, width), inside))
    source = (
        "bfGroup P { bit A; }; bfGroup S { bfGroup P R; }; make_device(S, s, 0x40000000); void f(void) { s->R.A = 1; }"
    )
    with pytest.raises(EdgebuildError, match=re.escape(message)) as caught:
        bench_of(tmp_path, text, source)
    assert re.search(r"chip\.svd:1:\d+: ", str(caught.value))


@pytest.mark.parametrize(("text", "value"), [("+0X1C", 28), ("#1x1", 5), ("0b110", 6), ("010", 10), (" 2k ", 2048)])
def test_numbers_as_the_format_writes_them(text: str, value: int, tmp_path: Path) -> None:
    (tmp_path / "chip.svd").write_text(chip(register("R", 0, "", f"<resetValue>{text}</resetValue>")))
    (block,) = read_map(tmp_path / "chip.svd").blocks
    assert block.registers[0].reset == value


def test_arrays_in_arrays_end_somewhere(tmp_path: Path) -> None:
    place = "<dim>60000</dim><dimIncrement>4</dimIncrement><name>K%s</name><addressOffset>0</addressOffset>"
    inner = register("R%s", 0, field("A", 0, 1), "<dim>60000</dim><dimIncrement>4</dimIncrement>")
    (tmp_path / "chip.svd").write_text(chip(f"<cluster>{place}{inner}</cluster>"))
    with pytest.raises(EdgebuildError, match="C has more than 65536 registers"):
        read_map(tmp_path / "chip.svd")


def test_a_buffer_of_too_many_registers_is_no_reason_to_refuse_the_rest(tmp_path: Path) -> None:
    """Nordic's nrf9220_flpr.svd has one of 16 MB."""
    many = register("DATA[%s]", 16, "", "<dim>16777216</dim><dimIncrement>1</dimIncrement>")
    (tmp_path / "chip.svd").write_text(chip(many + register("R", 0, field("A", 0, 1))))
    (block,) = read_map(tmp_path / "chip.svd").blocks
    assert {r.name for r in block.registers} == {"DATA", "R"}


ORIGINS = [
    ("<bitOffset>4</bitOffset><bitWidth>3</bitWidth>", "<bitRange>[9:7]</bitRange>"),
    ("<bitRange>[6:4]</bitRange>", "<bitOffset>7</bitOffset>"),
    ("<lsb>4</lsb><msb>6</msb>", "<bitOffset>7</bitOffset>"),
    ("<bitRange>[6:4]</bitRange>", "<lsb>7</lsb><msb>9</msb>"),
    ("<bitRange>[5:4]</bitRange>", "<bitOffset>7</bitOffset><bitWidth>3</bitWidth>"),
]


@pytest.mark.parametrize(("origin", "own"), ORIGINS)
def test_a_derived_field_gives_its_place_in_another_form(origin: str, own: str, tmp_path: Path) -> None:
    fields = f'<field><name>A</name>{origin}</field><field derivedFrom="A"><name>B</name>{own}</field>'
    (tmp_path / "chip.svd").write_text(chip(register("R", 0, fields)))
    derived = read_map(tmp_path / "chip.svd").blocks[0].registers[0].fields[1]
    assert (derived.name, derived.lsb, derived.width) == ("B", 7, 3)


def test_a_derived_peripheral_has_registers_besides(tmp_path: Path) -> None:
    origin = register("R", 0, field("A", 0, 1)) + register("Q", 4, field("C", 0, 1))
    own = register("R", 8, field("A", 4, 1)) + register("T", 12, field("D", 0, 1))
    text = device(peripheral("U2", 0x4000_2000, origin="U1"), peripheral("U1", 0x4000_1000, own, "U0"),
                  peripheral("U0", 0x4000_0000, origin))  # fmt: skip
    (tmp_path / "chip.svd").write_text(text)
    blocks = {
        b.name: [(r.name, r.offset, r.fields[0].lsb) for r in b.registers]
        for b in read_map(tmp_path / "chip.svd").blocks
    }
    assert blocks["U2"] == blocks["U1"] == [("R", 8, 4), ("T", 12, 0), ("Q", 4, 0)]
    assert blocks["U0"] == [("R", 0, 0), ("Q", 4, 0)]


@pytest.mark.parametrize("holder", ["peripherals", "registers", "fields"])
def test_a_list_in_two_pieces_is_one(holder: str, tmp_path: Path) -> None:
    registers = register("R", 0, field("A", 0, 1) + field("B", 1, 1)) + register("Q", 4, field("C", 0, 1))
    one = device(peripheral("C", 0x4000_0000, registers), peripheral("D", 0x4000_1000, registers))
    item = {"peripherals": "peripheral", "registers": "register", "fields": "field"}[holder]
    two = one.replace(f"</{item}><{item}", f"</{item}></{holder}><{holder}><{item}")
    (tmp_path / "one.svd").write_text(one)
    (tmp_path / "two.svd").write_text(two)
    assert two != one
    assert read_map(tmp_path / "two.svd").blocks == read_map(tmp_path / "one.svd").blocks


def test_what_is_derived_from_itself(tmp_path: Path) -> None:
    text = device(peripheral("U0", 0x4000_0000, origin="U1"), peripheral("U1", 0x4000_1000, origin="U0"))
    (tmp_path / "chip.svd").write_text(text)
    with pytest.raises(EdgebuildError, match=r"derivedFrom 'U\d': it is derived from itself"):
        read_map(tmp_path / "chip.svd")


def test_an_overlay_of_one_of_two_devices(tmp_path: Path) -> None:
    text = device(peripheral("U0", 0x4000_0000, register("R", 0, field("A", 0, 1) + field("B", 1, 1))),
                  peripheral("U1", 0x4000_1000, origin="U0"))  # fmt: skip
    source = PAIR + "make_device(S, t, 0x40001000); void f(bfGroup S *x) { x->R.A = 1; } void g(void) { f(s); f(t); }"
    with pytest.raises(EdgebuildError, match=r"what is known of 'U1\.R\.A' and of 'U0\.R\.A' differs"):
        bench_of(tmp_path, text, source, "fields: {U0.R.A: {plain: true}}")


def enumeration(name: str, inside: str, origin: str = "") -> str:
    derived = f' derivedFrom="{origin}"' if origin else ""
    named = f"<name>{name}</name>" if name else ""
    rows = (w.split("=") for w in inside.split())
    values = (f"<enumeratedValue><name>{n}</name><value>{v}</value></enumeratedValue>" for n, v in rows)
    return f"<enumeratedValues{derived}>{named}{''.join(values)}</enumeratedValues>"


def test_enumerations_go_into_the_header(tmp_path: Path) -> None:
    """Wildcards, values that do not fit, names of other macros, and equal names of enumerations in two registers."""
    first = field("A", 0, 2, enumeration("MODE", "OFF=0 ON=0b01 ANY=#1x On=2 MASK=3 HIGH=4"))
    second = field("A", 0, 2, enumeration("MODE", "SLOW=0 FAST=#11"))
    near, far = enumeration("", "", "MODE"), enumeration("", "", "C.R.A.MODE")
    text = chip(register("R", 0, first + field("B", 2, 2, near)), register("Q", 4, second + field("B", 2, 2, near)),
                register("T", 8, field("A", 0, 2) + field("B", 2, 2, far)))  # fmt: skip
    source = """bfGroup P { uint2 A; uint2 B; }; bfGroup S { bfGroup P R; bfGroup P Q; bfGroup P T; };
        make_device(S, s, 0x40000000); void f(void) { s->R.A = 1; s->R.B = 1; s->Q.A = 1; s->Q.B = 1; s->T.B = 1; }"""
    bench_of(tmp_path, text, source)
    facts = "OFFSET|SHIFT|WIDTH|MASK"
    values = re.findall(rf"#define CASE_S_(\w_\w_(?!(?:{facts}) )\w+) (\d+)u", (tmp_path / "case_regs.h").read_text())
    modes = [("OFF", "0"), ("ON", "1"), ("ON_2", "2"), ("MASK_VALUE", "3")]
    speeds = [("SLOW", "0"), ("FAST", "3")]
    wanted = [*modes, *modes, *speeds, *speeds, *modes]
    places = ["R_A"] * 4 + ["R_B"] * 4 + ["Q_A"] * 2 + ["Q_B"] * 2 + ["T_B"] * 4
    assert values == [(f"{p}_{n}", v) for p, (n, v) in zip(places, wanted, strict=True)]
    check = '#include "case_regs.h"\n_Static_assert(CASE_S_R_A_MASK == 3 && CASE_S_Q_B_FAST == 3, "");\nint x;\n'
    (tmp_path / "check.c").write_text(check)
    subprocess.run(["gcc", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "check.c"], cwd=tmp_path, check=True)


@pytest.mark.parametrize(("there", "stored"), [("A:4 B:1", 0x12), ("A:0 B:1 C:2", 7), ("A:0 B:1", 3)])
def test_a_variable_goes_to_a_register_of_another_form(there: str, stored: int, tmp_path: Path) -> None:
    """Field by field, and what the other register has besides is as after reset."""
    fields = "".join(field(n, int(lsb), 1) for n, lsb in (w.split(":") for w in there.split()))
    text = chip(register("R", 0, field("A", 0, 1) + field("B", 1, 1) + field("K", 5, 1)),
                register("Q", 8, fields, "<resetValue>4</resetValue>" if "C" in there else ""))  # fmt: skip
    source = PAIR.replace("bfGroup P R;", "bfGroup P R; bfGroup P Q;")
    bench = bench_of(tmp_path, text, source + "void f(int x) { bfGroup P p = s->R; p.A = x; s->Q = p; }")
    bench.machine.models["s"].values.update(A=0, B=1, K=1)
    bench.call("f", 1)
    assert accesses(bench) == [("r", 0, 4, 0x22), ("w", 8, 4, stored)]


ALIASED = """bfGroup P { bit A; bit B; uint4 N; }; bfGroup C { bfGroup P R; uint32 W; };
bfGroup Ps { bit A; bit B; uint4 N; }; bfGroup Cs { bfGroup Ps R; uint32 W; };
make_device(C, c, 0x40000000); make_device(Cs, set, 0x40002000);
void f(int n) { c->R.N = n; set->R.A = 1; set->R.B = 1; set->R = (bfGroup Ps){ .A = 1, .N = 2 }; set->W = 0x100; }"""


def test_aliases_that_set_bits(tmp_path: Path) -> None:
    fields = field("A", 0, 1) + field("B", 1, 1) + field("N", 4, 4) + field("Z", 8, 8)
    text = chip(register("R", 0, fields, "<resetValue>0x5500</resetValue>"), register("W", 4, field("W", 0, 32)))
    overlay = f"{PLAIN}\naliases: {{C_SET: {{of: C, address: 0x40002000, write: oneToSet}}}}"
    bench = bench_of(tmp_path, text, ALIASED, overlay.replace('"*"', '"C.*"'))
    bench.call("f", 9)
    assert accesses(bench, "c") == [("r", 0, 4, 0x5500), ("w", 0, 4, 0x5590)]
    assert accesses(bench, "set") == [("w", 0, 4, 1), ("w", 0, 4, 2), ("w", 0, 4, 0x21), ("w", 4, 4, 0x100)]


@pytest.mark.parametrize(
    ("alias", "message"),
    [
        ("{of: D, address: 0x40002000, write: oneToSet}", "alias 'X': there is no peripheral 'D'"),
        ("{of: C, address: 0x40002000, write: modify}", "write: 'modify' is none of oneToClear"),
        ("{of: C, write: oneToSet}", "address"),
    ],
)
def test_wrong_aliases(alias: str, message: str, tmp_path: Path) -> None:
    text = chip(register("R", 0, field("A", 0, 1) + field("B", 1, 1)))
    with pytest.raises(EdgebuildError, match=re.escape(message)) as caught:
        bench_of(tmp_path, text, PAIR + "void f(void) { s->R.A = 1; }", f"aliases: {{X: {alias}}}")
    assert "chip.overlay.yaml" in str(caught.value)


ELSEWHERE = """bfGroup R { uint4 F; uint4 G; }; bfGroup D { bfGroup R R; };
make_device(D, d, 0x50000000);
void t(int v) { d->R = (bfGroup R){ .F = 11, .G = 3 }; d->R.F = 10; d->R.F = 12; d->R.F = v; d->R.G = 4; }
"""


def _elsewhere(folder: Path, overlay: str, source: str = ELSEWHERE) -> DriverRequest:
    limits = "<writeConstraint><range><minimum>1</minimum><maximum>10</maximum></range></writeConstraint></field>"
    values = "<enumeratedValues><enumeratedValue><name>three</name><value>3</value></enumeratedValue>"
    only = f"{values}</enumeratedValues><writeConstraint><useEnumeratedValues>true</useEnumeratedValues>"
    text = svd("R@0: F:0:4 G:4:4").replace("</field>", limits, 1)
    end = text.rindex("</field>")
    (folder / "chip.svd").write_text(f"{text[:end]}{only}</writeConstraint>{text[end:]}")
    if overlay:
        (folder / "chip.overlay.yaml").write_text(overlay)
    (folder / "a.bf.c").write_text(source)
    return DriverRequest((folder / "a.bf.c",), "a", "pulpino", f"fixed:{folder / 'chip.svd'}")


@pytest.mark.parametrize(
    ("overlay", "expected"),
    [
        ("", r"a.bf.c:2:1: error: device 'd' is at 0x50000000, and C of chip.svd at 0x40000000"),
        ("devices: {e: C}", "devices: the source has no device 'e'"),
        ("devices: {d: B}", "devices: there is no peripheral 'B'"),
    ],
)
def test_a_device_that_lies_elsewhere(overlay: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(EdgebuildError, match=expected):
        compile_driver(_elsewhere(tmp_path, overlay))


def test_values_that_a_register_does_not_take(tmp_path: Path) -> None:
    """At the address of the source, since the overlay names the peripheral."""
    artifacts, driver = compile_driver(_elsewhere(tmp_path, f"{PLAIN}\ndevices: {{d: C}}"))
    warnings = [(w.line, w.text) for w in driver.warnings]
    ends = "by its description, and {} is written"
    assert warnings == [
        (3, f"'C.R.F' takes 1 to 10 {ends.format(11)}"),
        (3, f"'C.R.F' takes 1 to 10 {ends.format(12)}"),
        (3, f"'C.R.G' takes 3 {ends.format(4)}"),
    ]
    assert b"0x50000000" in next(a.data for a in artifacts if a.name == "a.c")
