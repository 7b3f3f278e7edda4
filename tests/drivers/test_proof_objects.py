# ruff: noqa: E501  (C and C++ on one line read better here)
"""The proof of drivers with objects in memory: structs, arrays, bit fields, and objects of classes with their ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.artifacts import Artifact
from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver

pytest.importorskip("z3")
from tests.drivers.cases import svd
from tests.drivers.test_proof import Compiled, verdicts
from tests.drivers.test_whole import VARIABLE_REGISTERS, VARIABLES, VARIABLES_IN_CPP

HEAD = """#include <stdint.h>
bfGroup Cr { bit EN; uint3 MODE; uint4 DIV; }; bfGroup Pin { bit dir; uint2 pull; uint5 mux; };
bfGroup D { bfGroup Cr CR; uint8 x; uint8 y; bfGroup Pin bf_stride(4) pin[8]; uint32 buf[4]; };
make_device(D, dev, 0x40000000); make_device(D, dev2, 0x40001000);
"""
C = (
    # the source, and a piece of the generated code with a fault for it
    ("static bfGroup D *const tab[2] = { (bfGroup D *)0x40000000, (bfGroup D *)0x40001000 }; int t(int i) { tab[i]->x = 2; return tab[i]->CR.DIV; }", "(tab[i]), 2", "(tab[!i]), 2"),
    ("struct drv { bfGroup D *hw[2]; bfGroup Pin *pins; int n; }; int t(struct drv *d) { d->hw[1]->x = 5; d->pins[d->n].dir = 1; return d->hw[0]->y; }", "(d->hw[1]), 5", "(d->hw[0]), 5"),
    ("int t(void) { union { uint32_t w; uint8_t b[4]; } u; u.b[1] = 7; u.w = dev->buf[0]; if (u.b[1] == 7) dev->buf[1] = 3; else dev->buf[1] = u.b[3]; return u.b[0]; }", "u.b[3])", "u.b[2])"),
    ("void t(void) { static uint8_t n; static const uint8_t tab[] = { 1, 2, 3 }; dev->x = tab[n++ % 3]; dev->y = n; }", "tab[n++ % 3]", "tab[n++ % 2]"),
    ("void put(const char *); void t(void) { put(\"on\"); dev->x = 1; }", '"on"', '"of"'),
    ("struct cfg { unsigned mode : 3, div : 4, en : 1; }; void t(struct cfg *c) { c->en ^= 1; dev->CR.MODE = c->mode; dev->CR.EN = c->en; }", "c->mode", "c->div"),
    ("void t(int n) { uint32_t tmp[4]; for (int i = 0; i < 4; i++) tmp[i] = dev->buf[i]; for (int i = 0; i < 4; i++) dev2->buf[i] = tmp[3 - i] + (uint32_t)n; }", "tmp[3 - i]", "tmp[2 - i]"),
    ("struct h { volatile int state; bfGroup D *hw; void (*done)(int); }; static struct h handle; static void cb(int v) { dev2->x = v; } void t(void) { struct h *h = &handle; h->hw = dev; h->done = cb; h->hw->x = 1; h->state = 2; h->hw->y = 3; h->done(4); }", "(h->hw), 3", "(h->hw), 2"),
    ("struct p { int a, b; }; static void add(const struct p *p, int *sum) { *sum += p->a + p->b; } void t(int v) { struct p one = { .b = 2, .a = v }, two = one; int sum = 3; two.b = dev->y; add(&one, &sum); add(&two, &sum); dev->x = sum; }", ".b = 2", ".b = 1"),
    ("void lock(void); static int state; void t(int v) { dev->x = v; state = 1; lock(); state = 2; }", "state = 1; ", ""),
    ("int left; void t(int v) { dev->x = v; left = v; }", "left = v; ", ""),
    ("struct q { int n; }; void lock(void); void t(struct q *p) { dev->x = 1; p->n = 3; lock(); }", "p->n = 3; ", ""),
    ("struct q { int n; }; void t(struct q *p) { dev->x = 1; p->n = 3; }", "p->n = 3; ", ""),
)  # fmt: skip
GUARD = """extern "C" { extern void lock(void); extern void unlock(void); }
class Lock { public: Lock() noexcept { lock(); } ~Lock() noexcept { unlock(); } Lock(const Lock &) = delete; };
struct Mask { explicit Mask(unsigned m = 7) : m_{m}, old(0) { old = dev->CR.MODE; dev->CR.MODE = m_; } ~Mask() { dev->CR.MODE = old; } unsigned m_; unsigned old; int twice() const { return (int)m_ * 2; } };
class Drv { public: explicit Drv(D *d) : hw(d) {} Drv(D *d, int k) : hw{d}, n{k} { hw->x = 1; } void on() { hw->CR.EN = 1; hw->CR.DIV = 3; } int read(int i) const { return hw->pin[i].mux + n; } D *const hw; int n = 5; };
"""
CPP = (
    ("void t() { Lock l; dev->x = 1; dev->y = 2; }", "Lock l; ", ""),
    ("void t(int v) { { Lock l; if (v) return; dev->x = 1; } dev->y = 2; }", "} HAL_WRITE_D_y(dev, 2);", "HAL_WRITE_D_y(dev, 2); }"),
    ("int t(int v) { for (int i = 0; i < v; i++) { Lock l; if (dev->x == i) break; if (i == 2) continue; dev->y = 2; } return dev->y; }", "Lock l; if (HAL_READ_D_x(dev) == i) break;", "if (HAL_READ_D_x(dev) == i) break; Lock l;"),
    ("void t() { Drv d(dev); d.on(); }", "Drv d(dev)", "Drv d(dev2)"),
    ("int t(int i) { Drv d{dev, 3}; d.on(); d.n = i; return d.read(1); }", "d.n = i; ", ""),
    ("int t(int i) { return Drv(dev).read(i); }", "n = 5", "n = 6"),
    ("int t(int i) { Mask m(3); dev->x = 2; return Mask().twice() + m.twice() + i; }", "m = 7", "m = 6"),
    ("void t() { Lock(); dev->x = 1; }", "Lock(); HAL_WRITE_D_x(dev, 1);", "HAL_WRITE_D_x(dev, 1); Lock();"),
    ("static int sum(const int &a, int &b) { b += a; return a + b; } int t(int i) { int k = dev->x; int r = sum(3, k); dev->y = k; return r + sum(i, k); }", "sum(3, k)", "sum(4, k)"),
    ("struct Cfg { unsigned div = 3; bool en{true}; unsigned char mode[2] = {1, 2}; }; static void apply(const Cfg &c) { dev->CR.DIV = c.div; dev->CR.EN = c.en; dev->CR.MODE = c.mode[1]; } void t() { Cfg c; c.div = 9; apply(c); Cfg e = c; e.en = false; apply(e); apply(Cfg{}); }", "{1, 2}", "{1, 3}"),
    ("struct R { R &on() { dev->x = 1; return *this; } R &off() { dev->y = 1; return *this; } }; void t() { R r; r.on().off().on(); }", "r.on().off().on()", "r.on().on().on()"),
    ("static void put(int v) { dev->x = v; } int t(int a) { int k = 2; auto add = [&k, a](int x) { k += x; put(k); return a + k; }; a = add(3); dev->y = 1; return add(a) + [=] { return k; }(); }", "k += x", "k += x + 1"),
    ("static void put(int v) { dev->x = v; } int t(int a) { auto twice = [=](int x) { put(x); put(a); }; a = 9; for (int i = 0; i < 3; i++) twice(a); return a; }", "put(x); put(a)", "put(a); put(x)"),
    ("extern \"C\" void save(int *); struct S { void on() { save(&n); dev->x = 1; } int n; int m; }; void t() { S s; s.on(); }", "save(&n)", "save(&m)"),
    ("struct S { int n; int at(int v) { auto f = [this](int x) { if (x > 3) return n; return x; }; dev->x = f(v); return f(9); } }; int t(int v) { S s{v}; return s.at(v + 1); }", "x > 3", "x > 4"),
    ("static int g(int q) { return dev->x + q; } int t(int v) { if (int k = g(v); k < 3) { switch (int m = g(k)) { case 1: dev->y = 1; [[fallthrough]]; case 2: dev->y = m; break; default: break; } } return 0; }", "g(v)", "g(1)"),
)  # fmt: skip


def compiled(folder: Path, name: str, source: str) -> Compiled:
    (folder / name).write_text(source)
    artifacts, driver = compile_driver(DriverRequest((folder / name,), "n", "pulpino"))
    return driver, artifacts


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", range(max(len(C), len(CPP))))
@pytest.mark.parametrize("cpp", [False, True], ids=["c", "c++"])
def test_objects_are_proved_and_their_faults_refuted(number: int, cpp: bool, tmp_path: Path) -> None:
    programs = CPP if cpp else C
    if number >= len(programs):
        pytest.skip("one more of the other language")
    source, old, new = programs[number]
    driver, artifacts = compiled(tmp_path, "t.bf.cpp" if cpp else "t.bf.c", HEAD + (GUARD if cpp else "") + source)
    assert [v for v in verdicts((driver, artifacts)) if v.what != "proved" or v.bounded] == []
    name = "n.cpp" if cpp else "n.c"
    text = next(a.data.decode() for a in artifacts if a.name == name)
    assert text.count(old) == 1
    wrong = tuple(Artifact(name, text.replace(old, new).encode()) if a.name == name else a for a in artifacts)
    assert "refuted" in {v.what for v in verdicts((driver, wrong))}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("cpp", [False, True], ids=["c", "c++"])
@pytest.mark.parametrize("silicon", [False, True], ids=["own", "silicon"])
@pytest.mark.parametrize(
    ("old", "new", "function"),
    [
        ("", "", ""),
        ("s.b = t.b + 1", "s.b = t.b", "several"),
        ("while (!s.a)", "while (s.a)", "wait"),
        ("{ .b = v }", "{ .b = v + 1 }", "literal"),
        ("q.a = 1", "s.a = 1", "copies"),
        ("next() + 2", "next() + 1", "direct"),
    ],
)
def test_variables_that_hold_a_register(
    old: str, new: str, function: str, silicon: bool, cpp: bool, tmp_path: Path
) -> None:
    """The fault is that of generated code from a source with another word."""
    sources = [VARIABLES_IN_CPP if cpp else VARIABLES] * 2
    sources[1] = sources[1].replace(old, new) if old else sources[1]
    assert not old or sources[0].count(old) == 1
    (tmp_path / "chip.svd").write_text(svd(VARIABLE_REGISTERS))
    layout = f"fixed:{tmp_path / 'chip.svd'}" if silicon else "optimize"
    name = "t.bf.cpp" if cpp else "t.bf.c"
    builds = []
    for source in sources:
        (tmp_path / name).write_text(source)
        builds.append(compile_driver(DriverRequest((tmp_path / name,), "n", "pulpino", layout)))
    artifacts, driver = builds[1][0], builds[0][1]
    wrong = {v.function: v.what for v in verdicts((driver, artifacts)) if v.what != "proved"}
    assert wrong == ({function: "refuted"} if function else {})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("bfGroup Cr s; if (dev->x) s = dev->CR; dev->CR = s;", "unknown"),
        ("switch (dev->x) { bfGroup Cr s; case 1: s = dev->CR; s.EN = 1; dev->CR = s; break; default: ; }", "proved"),
    ],
)
def test_variables_without_a_first_value(body: str, expected: str, tmp_path: Path) -> None:
    driver, artifacts = compiled(tmp_path, "t.bf.c", f"{HEAD}void t(void) {{ {body} }}")
    assert [v.what for v in verdicts((driver, artifacts))] == [expected]


def test_an_address_as_a_number_is_stored(tmp_path: Path) -> None:
    """As that of a buffer for a DMA unit; it ended in a traceback."""
    source = "bfGroup D { uint32 address; uint16 half; }; make_device(D, dma, 0x40000000);\n"
    source += "void t(char *p, char *q) { dma->address = (__UINTPTR_TYPE__)p; dma->half = (__UINTPTR_TYPE__)q; }"
    driver, artifacts = compiled(tmp_path, "t.bf.c", source)
    assert [v.what for v in verdicts((driver, artifacts))] == ["proved"]
    wrong = (Artifact(a.name, a.data.replace(b"TYPE__)p", b"TYPE__)q")) for a in artifacts)
    assert [v.what for v in verdicts((driver, tuple(wrong)))] == ["refuted"]
