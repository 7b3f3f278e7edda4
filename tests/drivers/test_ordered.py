"""Fixed layouts: what the order of stores means to silicon survives, whatever an overlay says of plain fields."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from tests.drivers.cases import svd
from tests.drivers.machine import Bench, build

SVD = svd(
    "CR@0: en:0:1 tx:1:1 rx:2:1 len:3:2 par:5:1\nDIV@4: div:0:16 frac:16:6\nKEY@8: key:0:16:w\n"
    "ADDR@12: addr:0:10\nCMD@16: go:0:1 stop:1:1\nST@20: busy:0:1:r err:1:1:oneToClear"
)
HEAD = """bfGroup C { bit en; bit tx; bit rx; uint2 len; bit par; uint16 div; uint6 frac; uint16 key; uint10 addr;
bit go; bit stop; bit busy; bit err; };
make_device(C, c, 0x40000000);
"""
# (body, the stores that must be seen in this order, as far as fields are concerned that are named)
SEQUENCES = {
    "off, divider, on": ("c->en = 0; c->div = 7; c->en = 1;", "en=0 div=7 en=1"),
    "off, two dividers, on": ("c->en = 0; c->div = 7; c->frac = 3; c->en = 1;", "en=0 div=7,frac=3 en=1"),
    "off, same register, on": ("c->en = 0; c->len = 3; c->par = 1; c->en = 1;", "en=0 len=3,par=1 en=1"),
    "on, off": ("c->en = 1; c->en = 0;", "en=1 en=0"),
    "off, on": ("c->en = 0; c->en = 1;", "en=0 en=1"),
    "pulse": ("c->go = 0; c->go = 1; c->go = 0;", "go=0 go=1 go=0"),
    "same value twice": ("c->en = 1; c->en = 1;", "en=1 en=1"),
    "two keys": ("c->key = 0x5555; c->div = 9; c->key = 0xCCCC;", "key=5555 div=9 key=cccc"),
    "two keys, nothing between": ("c->key = 0x5555; c->key = 0xAAAA;", "key=5555 key=aaaa"),
    "key, then register": ("c->key = 0x5555; c->div = 9;", "key=5555 div=9"),
    "parts one after the other": ("c->en = 1; c->addr = 5; c->tx = 1;", "en=1 addr=5 tx=1"),
    "transmitter before enable": ("c->tx = 1; c->rx = 1; c->en = 1;", "tx=1,rx=1,en=1"),
    "wait until idle": ("c->en = 0; while (c->busy) ; c->div = 2; c->en = 1;", "en=0 div=2 en=1"),
    "address before command": ("c->addr = 0x55; c->go = 1;", "addr=55 go=1"),
    "command between addresses": ("c->addr = 1; c->go = 1; c->addr = 2;", "addr=1 go=1 addr=2"),
    "off in a branch": ("if (c->en) c->en = 0; c->len = 2; c->en = 1;", "en=0 len=2 en=1"),
    "helper turns it off": ("off(); c->len = 2; c->en = 1;", "en=0 len=2,en=1"),
    "through a pointer": ("bfGroup C *p = c; p->en = 0; p->len = 2; p->en = 1;", "en=0 len=2 en=1"),
    "flag, then start": ("c->err = 1; c->go = 1;", "err=1 go=1"),
    "read between": ("c->len = 1; (void)c->busy; c->par = 1;", "len=1 par=1"),
}


def bench(folder: Path, body: str, words: str = "plain: true") -> Bench:
    (folder / "chip.svd").write_text(SVD)
    (folder / "chip.overlay.yaml").write_text(f'fields: {{"C.*.[!e]*": {{{words}}}, "C.*.en": {{{words}}}}}')
    source = f"{HEAD}static void off(void) {{ c->en = 0; }}\nvoid t(void) {{ {body} }}"
    b = build(folder, source, layout=f"fixed:{folder / 'chip.svd'}")
    b.model.values["en"] = 1
    b.call("t")
    return b


def stores(b: Bench) -> list[dict[str, int]]:
    return [a.fields for a in b.model.trace if a.kind == "w"]


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_survive(name: str, tmp_path: Path) -> None:
    body, expected = SEQUENCES[name]
    seen = stores(bench(tmp_path, body))
    wanted = [dict(p.split("=") for p in word.split(",")) for word in expected.split()]
    assert len(seen) == len(wanted), seen
    for fields, want in zip(seen, wanted, strict=True):
        assert want.items() <= {k: f"{v:x}" for k, v in fields.items()}.items(), seen


def test_there_are_20() -> None:
    assert len(SEQUENCES) == 20


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_memory_is_free_and_the_report_says_so(tmp_path: Path) -> None:
    b = bench(tmp_path, "c->len = 0; c->div = 7; c->len = 1;", "memory: true")
    assert [f.get("len") for f in stores(b)] == [None, 1]
    report = b.files["case_report.txt"].decode()
    assert "len: overwritten by the store at line" in report and "dropped" in report


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_a_read_of_the_same_register_serves_the_write(tmp_path: Path) -> None:
    b = bench(tmp_path, "c->len ^= 1;")
    assert [a.kind for a in b.model.trace] == ["r", "w"]


def test_independent_fields_may_change_their_order(tmp_path: Path) -> None:
    (tmp_path / "i").mkdir()
    assert len(stores(bench(tmp_path, "c->len = 1; c->div = 7; c->par = 1;"))) == 3
    assert (
        len(stores(bench(tmp_path / "i", "c->len = 1; c->div = 7; c->par = 1;", "plain: true, independent: true"))) == 2
    )


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_a_read_moves_over_a_call_that_writes_another_field(tmp_path: Path) -> None:
    """On a layout of our own, where the two are read together often enough to share a register."""
    more = "".join(f"int r{i}(void) {{ return t->mode + t->scale; }}\n" for i in range(4))
    source = f"""bfGroup U {{ uint4 mode; uint4 scale; uint4 other; }}; make_device(U, t, 0x40000000);
    static void kick(void) {{ t->other = 3; }}
    int f(void) {{ int m = t->mode; kick(); return m + t->scale; }}
    {more}"""
    b = build(tmp_path, source)
    b.model.values.update(mode=4, scale=5)
    assert b.call("f") == 9 and [a.kind for a in b.model.trace] == ["r", "w"]


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize(
    ("body", "reads"),
    [
        ("int a = c->busy, b = c->err, d = c->err; return a + b + d;", 2),
        ("int a = c->busy, d = 0; if (a) d = c->err; else d = c->err; return a + d;", 2),
        ("int a = c->busy, b = c->err, d = c->busy; return a + b + d;", 2),
        ("int a = c->busy; int b = c->err; return a + b;", 1),
    ],
)
def test_each_read_of_a_status_counts_behind_one_of_its_neighbour(body: str, reads: int, tmp_path: Path) -> None:
    """The second read of a field that is not the first of its region has no earlier load to share."""
    (tmp_path / "chip.svd").write_text(SVD)
    b = build(tmp_path, f"{HEAD}int t(void) {{ {body} }}", layout=f"fixed:{tmp_path / 'chip.svd'}")
    b.model.sequences["busy"] = [0, 0]
    b.call("t")
    assert [a.kind for a in b.model.trace] == ["r"] * reads


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_an_unused_pointer_to_a_group_may_be_named(tmp_path: Path) -> None:
    b = build(tmp_path, HEAD + "void t(bfGroup C *p) { (void)p; c->div = 1; }")
    b.call("t", 0)
    assert len(b.model.trace) == 1


PAIR = svd("INTEN@0: A:0:1 B:1:1\nINTENSET@4: A:0:1 B:1:1\nINTENCLR@8: A:0:1 B:1:1\nOFFSET@12: A:0:1 B:1:1")
PAIRED = """bfGroup I { bit A; bit B; };
bfGroup P { bfGroup I INTEN; bfGroup I INTENSET; bfGroup I INTENCLR; bfGroup I OFFSET; };
make_device(P, p, 0x40000000);
"""


def paired(folder: Path, body: str, overlay: str = "fields: {}") -> list[tuple[str, int, int]]:
    (folder / "chip.svd").write_text(PAIR)
    (folder / "chip.overlay.yaml").write_text(overlay)
    b = build(folder, f"{PAIRED}void t(void) {{ {body} }}", layout=f"fixed:{folder / 'chip.svd'}")
    b.call("t")
    return [(a.kind, a.offset, a.value) for a in b.model.trace]


@pytest.mark.parametrize("name", ["INTENSET", "INTENCLR"])
def test_registers_that_set_and_clear_are_never_written_back(name: str, tmp_path: Path) -> None:
    """A read gives what is set: written back to INTENCLR, it clears all. No file says so of these two."""
    with pytest.raises(EdgebuildError, match=f"no value is harmless there.*P?{name}.B: .back: .0"):
        paired(tmp_path, f"p->{name}.A = 1;")


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_registers_that_set_and_clear_by_overlay_and_as_a_whole(tmp_path: Path) -> None:
    overlay = 'fields: {"C.INTEN???.*": {back: "0"}}'
    stores = [("w", 8, 1), ("w", 4, 2)]
    assert paired(tmp_path, "p->INTENCLR.A = 1; p->INTENSET.B = 1;", overlay) == stores
    whole = "p->INTENCLR = (bfGroup I){ .A = 1 }; p->INTENSET = (bfGroup I){ .B = 1 };"
    assert paired(tmp_path, whole) == stores
    assert paired(tmp_path, "p->OFFSET.A = 1;") == [("r", 12, 0), ("w", 12, 1)]
    assert paired(tmp_path, "p->INTEN.B = 1;") == [("r", 0, 0), ("w", 0, 2)]


FLAGS = svd("SR@0: EN:0:1 A:1:1:oneToClear B:2:1:oneToClear C:3:1:zeroToClear GO:4:1 R:5:1:r MODE:8:2")


@pytest.mark.needs("riscv64-unknown-elf-gcc")
def test_a_register_that_is_stored_back_touches_no_flag_that_the_source_does_not_name(tmp_path: Path) -> None:
    (tmp_path / "chip.svd").write_text(FLAGS)
    (tmp_path / "chip.overlay.yaml").write_text('fields: {C.SR.GO: {back: "0"}}')
    source = """bfGroup S { bit EN; bit A; }; bfGroup F { bfGroup S SR; }; make_device(F, f, 0x40000000);
    void t(void) { bfGroup S s = f->SR; s.EN = 0; f->SR = s; }"""
    b = build(tmp_path, source, layout=f"fixed:{tmp_path / 'chip.svd'}")
    b.model.values.update(EN=1, A=1, B=1, C=1, GO=1, R=1, MODE=3)
    b.call("t")
    assert [(a.kind, a.value) for a in b.model.trace] == [("r", 0x33F), ("w", 0x32A)]


LATCH = (
    "LAT@0: A:0:1 B:1:1 C:2:6\nLATCLR@4: A:0:1 B:1:1 C:2:6\nLATSET@8: A:0:1 B:1:1 C:2:6\nST@12: A:0:1:r B:1:1:r C:2:6:r"
)
ALIKE = """bfGroup L { bit A; bit B; }; bfGroup S { bfGroup L LAT; bfGroup L LATCLR; bfGroup L LATSET; bfGroup L ST; };
make_device(S, s, 0x40000000);
"""


def test_one_group_type_for_registers_of_several_kinds(tmp_path: Path) -> None:
    """A write of LATSET says nothing about LAT, though both have the fields of one group."""
    overlay = 'fields: {"C.LAT.*": {plain: true}, "C.LATCLR.*": {back: "0"}, "C.LATSET.*": {back: "0"}}'
    (tmp_path / "chip.svd").write_text(svd(LATCH))
    (tmp_path / "chip.overlay.yaml").write_text(overlay)
    source = (
        ALIKE
        + """void both(int a, int b) { s->LAT.A = a; s->LAT.B = b; }
        void acts(void) { s->LATSET.A = 1; s->LATSET.B = 1; s->LATSET.B = 1; }
        int flags(void) { return s->LAT.A + 2 * s->LAT.B + 4 * s->LAT.A + 8 * s->ST.A + 16 * s->ST.A; }"""
    )
    bench = build(tmp_path, source, layout=f"fixed:{tmp_path / 'chip.svd'}")
    model = bench.machine.models["s"]
    bench.call("both", 1, 1)
    assert [str(a) for a in model.trace] == ["r A B C", "w A=1 B=1 C=0"]
    model.trace.clear()
    bench.call("acts")
    assert [(a.kind, a.offset, a.value) for a in model.trace] == [("w", 8, 1), ("w", 8, 2), ("w", 8, 2)]
    model.trace.clear()
    bench.call("flags")
    assert [a.offset for a in model.trace] == [0, 12, 12], "a plain field is read once, a status each time"
