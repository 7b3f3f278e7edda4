# ruff: noqa: E501  (C on one line reads better here)
"""The proof compares what the bus sees, and calls nothing proved that it does not follow to the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edgebuild.base.artifacts import Artifact
from edgebuild.cli import main
from tests.drivers.cases import Case

pytest.importorskip("z3")
from edgebuild.driver.prove import hardware
from tests.drivers.peripherals import PERIPHERALS
from tests.drivers.test_proof import Compiled, compiled, verdicts

HEAD = """bfGroup C { bit en; uint3 mode; };
bfGroup D { bfGroup C c; uint8 d; uint16 h; uint8 rse(self) wse(self) fifo; bit ro ready; bit w1c done; uint8 ch[4]; };
make_device(D, d, 0x40000000); make_device(D, e, 0x40001000);
"""


def changed(build: Compiled, file: str, old: str, new: str) -> Compiled:
    driver, artifacts = build
    text = next(a.data.decode() for a in artifacts if a.name == file)
    assert old in text, text[text.index("make_device") if "make_device" in text else 0 :]
    return driver, tuple(
        Artifact(a.name, text.replace(old, new, 1).encode()) if a.name == file else a for a in artifacts
    )


def kinds(build: Compiled) -> set[str]:
    return {v.what for v in verdicts(build)}


STORE = "*(volatile unsigned char *)((__UINTPTR_TYPE__)group{at}) = (unsigned char)value;"
WIDTHS = [  # what the generated code does in place of a store of one byte
    "*(volatile unsigned int *)((__UINTPTR_TYPE__)group{at}) = value;",
    "*(volatile unsigned short *)((__UINTPTR_TYPE__)group{at}) = (unsigned short)value;",
    "*(volatile unsigned long long *)((__UINTPTR_TYPE__)group{at}) = value;",
    "*(volatile unsigned char *)((__UINTPTR_TYPE__)group{at} + 1u) = (unsigned char)value;",
    "*(volatile unsigned char *)((__UINTPTR_TYPE__)group{at} + 0x1000u) = (unsigned char)value;",
    "*(volatile unsigned char *)((__UINTPTR_TYPE__)(group + 1){at}) = (unsigned char)value;",
    "*(unsigned char *)((__UINTPTR_TYPE__)group{at}) = (unsigned char)value;",
    "{store} {store}",
    "(void)*(volatile unsigned char *)((__UINTPTR_TYPE__)group{at}); {store}",
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    source = HEAD + "".join(f"void t_{f.replace('.', '_')}(int v) {{ d->{f} = v; }}\n" for f in ("d", "done", "c.en"))
    build = compiled(Case(0, "width", source, target="riscv-virt"), tmp_path_factory.mktemp("stores"))
    assert kinds(build) == {"proved"}
    return build


@pytest.mark.parametrize("wrong", WIDTHS)
@pytest.mark.parametrize("field", ["d", "done", "c_en"])
def test_a_store_of_another_width_or_address_is_no_proof(field: str, wrong: str, stores: Compiled) -> None:
    header = next(a.data.decode() for a in stores[1] if a.name == "case_hal.h")
    at = header.split(f"HAL_WRITE_D_{field}(")[1].split("__UINTPTR_TYPE__)group")[1].partition(")")[0]
    store = STORE.format(at=at)
    text = header[header.index(f"HAL_WRITE_D_{field}(") :]
    wrong = text.replace(store, wrong.format(at=at, store=store), 1)
    assert wrong != text
    results = verdicts(changed(stores, "case_hal.h", text, wrong), frozenset({f"t_{field}"}))
    assert [v.what for v in results if v.what == "proved"] == []


SILICON = """bfGroup A { bit X; uint4 Y; }; bfGroup S { bit BUSY; uint4 LEVEL; }; bfGroup D { bfGroup A CR; bfGroup S SR; uint8 DR; };
make_device(D, d, 0x40000000);
int t(void) { int n = d->SR.LEVEL; d->CR.Y = n; return n + d->DR; }"""
REGISTERS = "CR@0: X:0:1 Y:4:4\nSR@4: BUSY:0:1:r LEVEL:4:4:r\nDR@8: DR:0:8"
READ = "unsigned int r = *(volatile unsigned int *)((__UINTPTR_TYPE__)group + {at}u);"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("*(volatile unsigned int *)((__UINTPTR_TYPE__)group) =", "*(volatile unsigned short *)((__UINTPTR_TYPE__)group) ="),
        ("*(volatile unsigned int *)((__UINTPTR_TYPE__)group) =", "*(volatile unsigned char *)((__UINTPTR_TYPE__)group) ="),
        (READ.format(at=4), READ.format(at=4) + " (void)*(volatile unsigned int *)((__UINTPTR_TYPE__)group + 4u);"),
        (READ.format(at=8), READ.format(at=8) + " r = *(volatile unsigned int *)((__UINTPTR_TYPE__)group + 8u);"),
        (READ.format(at=8), "unsigned int r = *(volatile unsigned char *)((__UINTPTR_TYPE__)group + 8u);"),
        (READ.format(at=8), "unsigned int r = *(volatile unsigned int *)((__UINTPTR_TYPE__)group + 0xCu);"),
    ],
)  # fmt: skip
def test_silicon_is_accessed_as_it_is_described(old: str, new: str, tmp_path: Path) -> None:
    build = compiled(Case(0, "silicon", SILICON, registers=REGISTERS), tmp_path)
    assert kinds(build) == {"proved"}
    assert kinds(changed(build, "case_hal.h", old, new)) == {"refuted"}


LOOP = "int t(int n) { int s = 0; for (int i = 0; i < n; i++) { while (!d->ready) ; s += d->fifo; } return s; }"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return s;", "return s + (n == 1000000);"),
        ("!HAL_READ_D_ready(d)", "!HAL_READ_D_ready(d) || n == 77"),
        ("s += ", "s += (i == 70000) + "),
        ("i < n", "i < n && i != 12345"),
    ],
)
def test_what_needs_many_turns_is_not_proved(old: str, new: str, tmp_path: Path) -> None:
    build = compiled(Case(0, "turns", HEAD + LOOP), tmp_path)
    assert kinds(build) == {"proved"}
    results = verdicts(changed(build, "case.c", old, new))
    assert [v.what for v in results] != ["proved"]
    assert all(v.what == "refuted" or "turns of a loop" in v.why for v in results)


def test_too_much_effort_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = compiled(Case(0, "effort", HEAD + LOOP), tmp_path)
    monkeypatch.setattr(hardware, "LIMIT", 2000)
    assert [(v.what, "not at its end" in v.why) for v in verdicts(build)] == [("unknown", True)]


OTHERS = {  # a function, and what is wrong in its generated code
    "assembly": ('void t(void) { d->d = 1; __asm__ volatile("dsb" ::: "memory"); d->h = 2; }', '"dsb"', '"isb"'),
    "assembly of a macro": ('#define B "dsb"\nvoid t(void) { d->d = 1; __asm__ volatile(B ::: "memory"); d->h = 2; }', 'B "dsb"', 'B "isb"'),
    "an operand": ('int t(int x) { int y; __asm__("mov %0, %1" : "=r"(y) : "r"(x)); d->d = y; return y; }', '"r"(x)', '"r"(x + 1)'),
    "what assembly changes": ('int t(int x) { int y = 1, z = 1; __asm__("mov %0, %1" : "=r"(y) : "r"(x)); d->d = y; return z; }', "return z", "return y"),
    "a pointer": ("void t(void (*f)(int), void (*g)(int)) { d->d = 1; f(3); }", "f(3)", "g(3)"),
    "a table of pointers": ("void a(int); void b(int); static void (*const of[2])(int) = { a, b }; void t(int n) { d->d = n; of[n & 1](3); }", "{ a, b }", "{ b, a }"),
    "bytes of a word": ("int t(unsigned *p, unsigned w) { unsigned char *q = (unsigned char *)p; *p = w; int x = q[1]; d->d = x; return x; }", "*p = w; int x = q[1];", "int x = q[1]; *p = w;"),
    "a byte that a word has": ("int t(unsigned *p) { unsigned char *q = (unsigned char *)p; q[0] = 1; int x = *p; q[0] = 2; d->d = x; return x; }", "q[0] = 1", "q[0] = 3"),
    "a bit field and its word": ("struct b { unsigned a:3, b:5; }; int t(struct b *p) { unsigned *w = (unsigned *)p; p->a = 1; unsigned x = *w; d->d = x; return x; }", "p->a = 1; unsigned x = *w;", "unsigned x = *w; p->a = 1;"),
    "a shift too far": ("unsigned t(unsigned n, unsigned x) { d->h = x << n; return x >> n; }", "x >> n", "x >> (n & 31)"),
    "a shift to nothing": ("unsigned t(unsigned x) { d->h = 0; return 0; }", "return 0", "return x << 32"),
    "a division by zero": ("int t(int n, int x) { d->h = n; return x / n; }", "x / n", "(n ? x / n : -1)"),
    "a static variable": ("int t(void) { static int n = 5; d->fifo = n; return n++; }", "n = 5", "n = 6"),
    "a table": ("static const unsigned char k[3] = { 1, 2, 3 }; int t(int i) { d->fifo = k[i]; return 0; }", "2, 3 }", "2, 4 }"),
    "a struct": ("struct s { int a, b; }; static struct s k = { .a = 1, .b = 2 }; int t(void) { d->fifo = k.a; return k.b; }", ".b = 2", ".b = 3"),
    "characters": ('void f(char *); void t(void) { char s[] = "ab"; d->d = 1; f(s); }', '"ab"', '"ac"'),
    "a macro": ("#define N 4\nvoid t(void) { for (int i = 0; i < N; i++) d->fifo = i; }", "N 4", "N 5"),
    "a volatile variable": ("volatile int g, h; void t(void) { g = 1; h = 2; d->fifo = 1; }", "g = 1; h = 2;", "h = 2; g = 1;"),
    "a load of a volatile variable": ("volatile int g; int t(void) { int a = g; d->fifo = a; g = 1; return g; }", "g = 1;", ""),
    "a type": ("volatile int g; int t(void) { d->fifo = g; return g; }", "volatile int", "int"),
    "a local array": ("int f(unsigned char *, int); int t(void) { unsigned char b[8]; d->d = 1; return f(b, 3); }", "b[8]", "b[4]"),
    "an array of a length": ("int f(int *); int t(int n) { int b[n]; d->d = 1; return f(b); }", "b[n]", "b[n + 1]"),
    "a result": ("int t(void) { d->d = 1; return 7; }", "return 7;", ""),
    "a device": ("void t(int n) { d->d = n; }", "0x40000000", "0x40000004"),
    "another device": ("void t(int n) { d->d = n; }", "_d(d, ", "_d(e, "),
    "an address": ("void t(int n) { bfGroup D *p = d; p->d = n; }", "*p = d", "*p = d + 1"),
    "an access by hand": ("void t(void) { d->d = 1; *(volatile unsigned *)0x50000000 = 3; }", "0x50000000", "0x50000004"),
    "a lost store": ("void f(void); void t(int a) { d->h = a; f(); d->h = 0; }", "HAL_WRITE_D_h(d, (unsigned int)a);", ""),
    "a value before a loop": ("void t(int n) { d->h = 5; for (int i = 0; i < n; i++) d->fifo = i; d->h = 0; }", "_h(d, 5)", "_h(d, 6)"),
    "a plain read": ("int t(void) { return d->h; }", "return HAL", "(void)HAL_READ_D_h(d); return HAL"),
    "a section": ("void t(int a) { bf_critical { d->d = a; d->h = a; } }", "bf_critical {", "{"),
    "a function more": ("void t(void) { d->d = 1; }", "void t(void) {", "__attribute__((constructor)) static void z(void) { *(volatile int *)0x40000000 = 1; } void t(void) {"),
    "a call in itself": ("int t(int n) { if (n <= 0) return 0; d->fifo = n; return n + t(n - 1); }", "t(n - 1)", "t(n - 2)"),
    "a jump back": ("int t(int n) { int i = 0;\nagain: d->fifo = i; if (++i < n) goto again; return i; }", "(unsigned int)i", "(unsigned int)(i + (i == 99999))"),
    "what a function calls": ("static void w(int n) { while (n--) d->fifo = n; } void t(int a) { w(a); d->d = 1; w(3); }", "w(3)", "w(4)"),
    "a call that waits": ("static void w(int n) { while (n--) d->fifo = n; } void t(int a) { w(a); d->d = 1; w(3); }", "while (n--)", "while (--n)"),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_not_alike_is_not_proved(what: str, tmp_path: Path) -> None:
    source, old, new = OTHERS[what]
    build = compiled(Case(0, what, HEAD + source), tmp_path)
    assert kinds(build) == {"proved"}
    wrong = verdicts(changed(build, "case.c", old, new))
    assert any(v.what != "proved" for v in wrong)
    names = {v.function for v in wrong} - set(build[0].cdfg.functions)  # a variable, a macro, a new function
    assert names or all(v.what != "proved" for v in wrong if v.function == "t")


@pytest.mark.parametrize("case", PERIPHERALS, ids=lambda c: c.title.replace(" ", "_"))
def test_drivers_of_peripherals_are_proved(case: Case, tmp_path: Path) -> None:
    """With all of their loops, jumps and handlers, for any number of turns."""
    build = compiled(replace(case, target="mps2-an385"), tmp_path)
    assert [v for v in verdicts(build) if v.what != "proved"] == []


VIRTUAL = HEAD + "struct s { int a, b; }; int f(struct s); int t(void) { d->d = 1; return f((struct s){ 1, 2 }); }"


@pytest.mark.parametrize(("strict", "status"), [([], 0), (["strict"], 1)])
def test_strict_fails_on_what_is_unknown(
    strict: list[str], status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.bf.c").write_text(VIRTUAL)
    words = ["driver", str(tmp_path / "x.bf.c"), "--name", "x", "--target", "pulpino", "-o", str(tmp_path / "out")]
    assert main([words[0], "--prove", *strict, *words[1:]]) == status
    assert "0 proved, 0 refuted, 1 unknown" in capsys.readouterr().out
    assert (tmp_path / "out" / "x.c").exists() == (not status)
