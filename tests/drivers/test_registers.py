# ruff: noqa: E501  (C on one line reads better here)
"""Register descriptions: vendors' files, round trips, and what is said about bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver
from edgebuild.driver.registers.regmap import read_rdl, write_rdl
from edgebuild.driver.registers.svd import read_svd, write_svd
from tests.conftest import ROOT
from tests.drivers.cases import svd
from tests.drivers.machine import build, link

PUBLIC = ROOT.parent / "shared" / "svd"  # vendors' files, where they are at hand
ADC = ROOT / "sample_projects" / "rp2040_fixed" / "rp2040_adc.svd"
# peripherals, and the least numbers of registers, fields and write effects: derived and dim elements come on top
FILES = {"rp2040": (35, 947, 4278, 254), "nrf52": (65, 716, 1786, 15), "e310x": (19, 102, 675, 0)}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.skipif(not PUBLIC.exists(), reason="the vendors' files are not at hand")
def test_vendors_files_load_completely_and_round_trip(name: str, tmp_path: Path) -> None:
    blocks, registers, fields, effects = FILES[name]
    map_ = read_svd(PUBLIC / f"{name}.svd")
    loaded = [r for b in map_.blocks for r in b.registers]
    assert len(map_.blocks) == blocks and len(loaded) >= registers
    assert sum(len(r.fields) for r in loaded) >= fields
    assert sum(bool(f.modified) for r in loaded for f in r.fields) >= effects
    assert bool(map_.mistakes) == (name == "e310x")  # it has fields that overlap or leave their register
    (tmp_path / "again.svd").write_text(write_svd(map_))
    assert read_svd(tmp_path / "again.svd") == map_


ARRAYS = """<device><name>X</name><size>32</size><peripherals>
<peripheral><name>A</name><baseAddress>0x40000000</baseAddress><registers>
 <cluster><dim>3</dim><dimIncrement>0x20</dimIncrement><name>CH[%s]</name><addressOffset>0x10</addressOffset>
  <register><name>CTRL</name><addressOffset>0</addressOffset><fields>
   <field><name>EN</name><bitRange>[0:0]</bitRange></field><field><dim>4</dim><dimIncrement>2</dimIncrement><dimIndex>A-D</dimIndex>
   <name>M%s</name><lsb>8</lsb><msb>9</msb></field></fields></register>
  <register derivedFrom="CTRL"><name>COPY</name><addressOffset>4</addressOffset></register></cluster>
</registers></peripheral>
<peripheral derivedFrom="A"><name>B</name><baseAddress>0x40001000</baseAddress></peripheral>
</peripherals></device>"""


def test_arrays_clusters_and_derivation(tmp_path: Path) -> None:
    file = tmp_path / "x.svd"
    file.write_text(ARRAYS)
    map_ = read_svd(file)
    a, b = map_.blocks
    assert a.registers == b.registers and b.base == 0x40001000
    assert [(r.full_name, r.offset) for r in a.registers][:3] == [
        ("CH0_CTRL", 0x10),
        ("CH0_COPY", 0x14),
        ("CH1_CTRL", 0x30),
    ]
    assert [(f.name, f.lsb) for f in a.registers[0].fields] == [
        ("EN", 0),
        ("MA", 8),
        ("MB", 10),
        ("MC", 12),
        ("MD", 14),
    ]
    (tmp_path / "again.svd").write_text(write_svd(map_))
    assert read_svd(tmp_path / "again.svd") == map_


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_dynamic_index_on_a_fixed_layout(tmp_path: Path) -> None:
    (tmp_path / "x.svd").write_text(ARRAYS)
    (tmp_path / "x.overlay.yaml").write_text('fields: {"A.*": {plain: true}}')
    source = """bfGroup Ch { bit EN; uint2 CTRL_MB; }; bfGroup A { bfGroup Ch ch[3]; }; make_device(A, a, 0x40000000);
    void t(int i) { a->ch[i].EN = 1; a->ch[i].CTRL_MB = 2; }"""
    with pytest.raises(EdgebuildError, match="fits more than one field"):  # EN of CTRL or of COPY
        build(tmp_path, source, layout=f"fixed:{tmp_path / 'x.svd'}")
    b = build(tmp_path, source.replace("EN", "CTRL_EN"), layout=f"fixed:{tmp_path / 'x.svd'}")
    b.call("t", 2)
    assert [(a.kind, a.offset) for a in b.model.trace] == [("r", 0x50), ("w", 0x50)]
    assert b.model.trace[1].fields["CH2_EN" if "CH2_EN" in b.model.trace[1].fields else "CH2_CTRL_EN"] == 1


BAD = {
    "overlapping fields": ("R@0: a:0:4 b:3:2", 'overlaps field "a"'.replace('"', "'")),
    "field wider than its register": ("R@0: a:0:1 b:30:4", "ends at bit 33"),
    "another width": ("R@0: a:0:2 b:4:1", "has 1 bits, and 2 in chip.svd"),
    "not there": ("R@0: a:0:1 bee:4:1", "'C.b' is not in chip.svd"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_files(what: str, tmp_path: Path) -> None:
    registers, expected = BAD[what]
    (tmp_path / "chip.svd").write_text(svd(registers))
    file = tmp_path / "x.c"
    file.write_text(
        "bfGroup C { bit a; bit b; };\nmake_device(C, c, 0x40000000);\nvoid t(void) { c->a = 1; c->b = 1; }\n"
    )
    with pytest.raises(EdgebuildError) as caught:
        compile_driver(DriverRequest((file,), "x", "pulpino", f"fixed:{tmp_path / 'chip.svd'}"))
    assert expected in str(caught.value) and caught.value.diagnostics[0].line


def test_not_xml(tmp_path: Path) -> None:
    (tmp_path / "x.svd").write_text("<device>\n<name>")
    with pytest.raises(EdgebuildError, match=r"x\.svd:2:\d+: error: not XML"):
        read_svd(tmp_path / "x.svd")


RDL = """addrmap top { default regwidth = 32; default sw = rw; default hw = r;
  addrmap { reg { field {} en[1] = 0; field { onwrite = woclr; hw = w; hwset; } irq[1] = 0; field {} mode[4:2] = 0; } ctrl @ 0x4;
            reg { field { sw = r; hw = w; onread = rclr; } data[8] = 0; } rx @ 0x8; } dev @ 0x40000000; };"""


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_systemrdl_says_what_is_plain(tmp_path: Path) -> None:
    """No overlay is needed: fields without properties are plain, the flag is written with its neutral value."""
    (tmp_path / "x.rdl").write_text(RDL)
    source = """bfGroup D { bit en; bit irq; uint3 mode; uint8 data; }; make_device(D, dev, 0x40000000);
    int t(void) { dev->en = 1; dev->mode = 5; return dev->data + dev->data * 16; }"""
    b = build(tmp_path, source, layout=f"fixed:{tmp_path / 'x.rdl'}")
    b.model.values.update(irq=1, data=3)
    assert b.call("t") == 3
    assert b.machine.trace == ["w en=1 irq=0 mode=5", "r data", "r data"]
    assert b.model.values["irq"] == 1
    (tmp_path / "again.rdl").write_text(write_rdl(read_rdl(tmp_path / "x.rdl")))
    assert [r.fields[0].name for r in read_rdl(tmp_path / "again.rdl").blocks[0].registers] == ["en", "data"]


@pytest.mark.needs("arm-none-eabi-gcc")
def test_rp2040_adc(tmp_path: Path) -> None:
    """A real file: plain fields beside write-one-to-clear flags and self-clearing triggers (Cortex-M)."""
    (tmp_path / "rp2040.svd").write_bytes(ADC.read_bytes())
    (tmp_path / "rp2040.overlay.yaml").write_text(
        'fields: {"ADC.FCS.[!OUELF]*": {plain: true}, "ADC.FCS.EN": {plain: true}}'
    )
    source = """bfGroup Fcs { bit EN; bit SHIFT; bit ERR; bit DREQ_EN; bit UNDER; bit OVER; uint4 THRESH; };
    bfGroup Adc { bfGroup Fcs FCS; }; make_device(Adc, adc, 0x4004C000);
    void setup(int n) { adc->FCS.EN = 1; adc->FCS.DREQ_EN = 1; adc->FCS.THRESH = n; }
    void clear(void) { adc->FCS.OVER = 1; }"""
    b = build(tmp_path, source, layout=f"fixed:{tmp_path / 'rp2040.svd'}", isa="cortex-m3")
    b.model.values.update(OVER=1, UNDER=1, SHIFT=1)
    b.call("setup", 3)
    assert [a.kind for a in b.model.trace] == ["r", "w"]
    written = b.model.trace[1].fields
    assert (written["EN"], written["DREQ_EN"], written["THRESH"], written["SHIFT"]) == (1, 1, 3, 1)
    assert written["OVER"] == written["UNDER"] == 0, "a flag would be cleared"
    b.call("clear")
    assert (b.model.values["OVER"], b.model.values["UNDER"]) == (0, 1)


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_overlay_says_what_is_ordered(tmp_path: Path) -> None:
    """`go` starts with what stands in R0: writes to there do not move across it, as they else would."""
    (tmp_path / "chip.svd").write_text(svd("R0@0: a:0:1 b:1:1\nR1@4: go:0:1"))
    source = """bfGroup C { bit a; bit b; bit go; }; make_device(C, c, 0x40000000);
    void t(void) { c->a = 1; c->go = 1; c->b = 1; }"""
    traces = []
    for target in ("", 'wse: [self, "C.R0.*"], '):
        (tmp_path / "chip.overlay.yaml").write_text(
            f'fields: {{"C.*": {{memory: true}}, C.R1.go: {{{target}plain: true}}}}\n'
        )
        b = build(tmp_path, source, layout=f"fixed:{tmp_path / 'chip.svd'}")
        b.call("t")
        traces.append([str(a) for a in b.model.trace if a.kind == "w"])
    assert traces == [["w go=1", "w a=1 b=1"], ["w a=1 b=0", "w go=1", "w a=1 b=1"]]
    (tmp_path / "chip.overlay.yaml").write_text("fields: {C.R1.go: {wse: [C.R0.c]}}\n")
    with pytest.raises(EdgebuildError, match=r"wse target 'C\.R0\.c' is not in chip\.svd; did you mean"):
        build(tmp_path, source, layout=f"fixed:{tmp_path / 'chip.svd'}")


def test_two_sources_share_a_header(tmp_path: Path) -> None:
    (tmp_path / "g.h").write_text(
        "#ifndef G_H\n#define G_H\n#include <edgebuild_bf.h>\nbfGroup G { bit a; bit b; };\n"
        "make_device(G, g, 0x40000000);\nstatic inline void on(const bfGroup G *p) { (void)p->a; }\n#endif\n"
    )
    for name in ("one", "two"):
        (tmp_path / f"{name}.c").write_text(f'#include "g.h"\nvoid {name}(void) {{ g->a = 1; g->b = 1; on(g); }}\n')
    artifacts, driver = compile_driver(DriverRequest((tmp_path / "one.c", tmp_path / "two.c"), "n", "pulpino"))
    text = artifacts[0].data.decode()
    assert set(driver.cdfg.functions) == {"on", "one", "two"}
    assert "#line 1 EB_FILE_two_c" in text and "edgebuild_bf.h" not in text
    assert {Path(f).name for f in driver.files} >= {"one.c", "two.c", "g.h"}
    for a in artifacts:
        (tmp_path / a.name).write_bytes(a.data)
    link(tmp_path, ["n.c"])


def test_a_wrong_register_is_the_matter_of_its_users(tmp_path: Path) -> None:
    """Vendors' files have slips. One in another peripheral, or in another register, does not count."""
    field = "<fields><field><name>EN</name><bitRange>[{}]</bitRange></field></fields>"
    file = tmp_path / "x.svd"
    file.write_text(
        "<device><name>X</name><peripherals>\n"
        + "".join(
            f"<peripheral><name>{p}</name><baseAddress>{base}</baseAddress><registers>"
            f"<register><name>A</name><addressOffset>0</addressOffset><access>read-writeonce</access>{field.format(bits)}</register>\n"
            f"<register><name>B</name><addressOffset>4</addressOffset>{field.format('1:1')}</register></registers></peripheral>\n"
            for p, base, bits in (("P", "0x40000000", "7:8"), ("Q", "0x40001000", "8:7"))
        )
        + "</peripherals></device>"
    )
    text = "bfGroup R {{ {} EN; }}; bfGroup G {{ bfGroup R {}; }}; make_device(G, g, {}); void t(void) {{ g->{}.EN = 1; }}\n"
    for kind, register, base, wrong in (
        ("bit", "B", "0x40000000", ""),
        ("uint2", "A", "0x40001000", ""),
        ("uint2", "A", "0x40000000", "[7:8]"),
    ):
        (tmp_path / "t.c").write_text(text.format(kind, register, base, register))
        request = DriverRequest((tmp_path / "t.c",), "n", "pulpino", f"fixed:{file}")
        if not wrong:
            compile_driver(request)
            continue
        with pytest.raises(EdgebuildError, match=r"bitRange '\[7:8\]' is not \[msb:lsb\]") as caught:
            compile_driver(request)
        assert caught.value.diagnostics[0].line == 2


def test_a_field_is_not_looked_for_in_other_registers(tmp_path: Path) -> None:
    """SSE is in SSPCR1. To take it from there for SSPCR0.SSE would write a register that the source does not name."""
    file = tmp_path / "c.svd"
    file.write_text(svd("SSPCR0@0: DSS:0:4\nSSPCR1@4: SSE:1:1"))
    text = "bfGroup R { bit SSE; }; bfGroup G { bfGroup R SSPCR0; }; make_device(G, g, 0x40000000);\n"
    (tmp_path / "t.c").write_text(text + "void t(void) { g->SSPCR0.SSE = 1; }\n")
    with pytest.raises(EdgebuildError, match=r"'C.SSPCR0.SSE' is not in c.svd; did you mean 'SSPCR1_SSE'"):
        compile_driver(DriverRequest((tmp_path / "t.c",), "n", "pulpino", f"fixed:{file}"))


def test_registers_that_count_from_1_are_an_array(tmp_path: Path) -> None:
    """CCR1 to CCR3 of a file without <dim> are CCR[0] to CCR[2]; others of that name at odd places are none."""
    file = tmp_path / "c.svd"
    file.write_text(
        svd("".join(f"CCR{i + 1}@{8 + 20 * i}: EN:0:1\nODD{i + 1}@{12 + 20 * i + i * i}: X:0:8\n" for i in range(3)))
    )
    text = "bfGroup R { bit EN; }; bfGroup G { bfGroup R CCR[3]; }; make_device(G, g, 0x40000000);\n"
    (tmp_path / "t.c").write_text(text + "void t(int i) { g->CCR[i].EN = 1; }\n")
    _, driver = compile_driver(DriverRequest((tmp_path / "t.c",), "n", "pulpino", f"fixed:{file}"))
    (sub,) = driver.layout.groups["G"].subs
    assert (sub.offset, sub.stride, sub.dims) == (8, 20, (3,))
    text = "bfGroup G { uint8 ODD[3]; }; make_device(G, g, 0x40000000); void t(int i) { g->ODD[i] = 1; }\n"
    (tmp_path / "t.c").write_text(text)
    with pytest.raises(EdgebuildError, match="ODD"):
        compile_driver(DriverRequest((tmp_path / "t.c",), "n", "pulpino", f"fixed:{file}"))
    file.write_text(svd("".join(f"ODD{i}@{4 * i}: X:0:8\n" for i in range(4))))  # from 0 on, names are numbers
    _, driver = compile_driver(DriverRequest((tmp_path / "t.c",), "n", "pulpino", f"fixed:{file}"))
    assert [(r.offset, r.stride, r.dims) for r in driver.layout.groups["G"].registers] == [(0, 4, (3,))]


@pytest.mark.parametrize("name", ["TI{}R", "F{}R1", "CH{}_CFG2"])
def test_numbers_inside_of_names_are_an_array(name: str, tmp_path: Path) -> None:
    """TI0R to TI2R of a file without <dim> are TIR[0] to TIR[2], as mailboxes of a CAN controller have them."""
    file = tmp_path / "c.svd"
    file.write_text(svd("".join(f"{name.format(i)}@{16 * i + 8}: EN:0:1\n" for i in range(3))))
    word = name.format("")
    text = f"bfGroup R {{ bit EN; }}; bfGroup G {{ bfGroup R {word}[3]; }}; make_device(G, g, 0x40000000);\n"
    (tmp_path / "t.c").write_text(text + f"void t(int i) {{ g->{word}[i].EN = 1; }}\n")
    _, driver = compile_driver(DriverRequest((tmp_path / "t.c",), "n", "pulpino", f"fixed:{file}"))
    (sub,) = driver.layout.groups["G"].subs
    assert (sub.offset, sub.stride, sub.dims) == (8, 16, (3,))


PATHS = """<device><name>X</name><peripherals>
<peripheral><name>A</name><baseAddress>0x40000000</baseAddress><registers>
  <register><dim>4</dim><dimIncrement>4</dimIncrement><dimIndex>a-d</dimIndex><name>CH%s</name><addressOffset>0</addressOffset>
    <fields><field><name>MODE</name><bitOffset>0</bitOffset><bitWidth>2</bitWidth><enumeratedValues><name>modes</name>
      <enumeratedValue><name>OFF</name><value>0</value></enumeratedValue>
      <enumeratedValue><name>ON</name><value>#11</value></enumeratedValue></enumeratedValues></field></fields></register>
  <register derivedFrom="CH%s"><name>LAST</name><addressOffset>0x20</addressOffset></register>
  <cluster><name>K</name><addressOffset>0x40</addressOffset>
    <register><name>R</name><addressOffset>0</addressOffset><size>16</size><fields>
      <field><name>F</name><bitRange>[9:4]</bitRange></field></fields></register></cluster>
  <register derivedFrom="K.R"><name>FLAT</name><addressOffset>0x60</addressOffset></register></registers></peripheral>
<peripheral derivedFrom="A"><name>B</name><baseAddress>0x40001000</baseAddress></peripheral>
<peripheral><name>C</name><baseAddress>0x40002000</baseAddress><registers>
  <register derivedFrom="B.K.R"><name>R</name><addressOffset>8</addressOffset></register>
  <register><name>S</name><addressOffset>12</addressOffset><fields><field derivedFrom="A.CH%s.MODE"><name>M</name>
    <bitOffset>6</bitOffset></field><field><name>N</name><bitOffset>0</bitOffset><bitWidth>2</bitWidth>
    <enumeratedValues derivedFrom="A.CH%s.MODE.modes"/></field></fields></register></registers></peripheral>
</peripherals></device>"""


def test_what_is_derived_from_elsewhere(tmp_path: Path) -> None:
    """By path: of another peripheral, of a cluster, of one that is derived itself; one register derived from an array."""
    (tmp_path / "x.svd").write_text(PATHS)
    map_ = read_svd(tmp_path / "x.svd")
    registers = {(b.name, *r.scope, r.name): r for b in map_.blocks for r in b.registers}
    assert [n for b, *n in registers if b == "A"] == [
        ["CHa"],
        ["CHb"],
        ["CHc"],
        ["CHd"],
        ["LAST"],
        ["K", "R"],
        ["FLAT"],
    ]
    for name in (("A", "FLAT"), ("B", "FLAT"), ("C", "R")):
        assert [(registers[name].bits, f.name, f.lsb, f.width) for f in registers[name].fields] == [(16, "F", 4, 6)]
    fields = [(f.name, f.lsb, f.width, f.values) for f in registers["C", "S"].fields]
    assert fields == [(n, lsb, 2, (("OFF", 0), ("ON", 3))) for n, lsb in (("M", 6), ("N", 0))]


@pytest.mark.parametrize("bits", ["msb0; reg { field {} a[0:3] = 0; }", "reg { field {} a[4:7] = 0; }"])
def test_systemrdl_that_counts_from_the_other_end_is_an_error(bits: str, tmp_path: Path) -> None:
    """peakrdl-regblock swaps the bits of such a field, and others place it at the register's other end."""
    (tmp_path / "x.rdl").write_text(f"addrmap d {{ default sw = rw; default hw = r;\n {bits} R @ 0; }};")
    with pytest.raises(EdgebuildError, match=r"'R' counts bits from the most significant one \(msb0\)") as caught:
        read_rdl(tmp_path / "x.rdl")
    assert caught.value.diagnostics[0].line == 2
