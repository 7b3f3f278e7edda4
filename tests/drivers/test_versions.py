"""`edgebuild prove`: two versions of a driver in plain C, or in the dialect, function by function."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgebuild.cli import main

pytest.importorskip("z3")

HEAD = """#include <stdint.h>
typedef struct { volatile uint32_t SR, DR, BRR, CR1, CR2; } Uart;
typedef struct { uint32_t baud; uint8_t parity, bits; } Config;
#define U ((Uart *)0x40011000UL)
#define REG(a) (*(volatile uint32_t *)(a))
static inline void set_bits(volatile uint32_t *r, uint32_t m) { *r |= m; }
void other(int);
"""
ROW = "<register><name>{}</name><addressOffset>{}</addressOffset></register>"
CHIP = (
    "<device><name>CHIP</name><peripherals><peripheral><name>UART</name><baseAddress>0x40011000</baseAddress><registers>"
    + "".join(ROW.format(name, 4 * i) for i, name in enumerate(("SR", "DR", "BRR", "CR1", "CR2")))
    + "</registers></peripheral></peripherals></device>"
)
NAMELESS = """typedef struct { volatile uint32_t A, B;
                 union { volatile uint32_t C; struct { volatile uint16_t L, H; }; }; } N;
typedef union { struct { uint16_t low, high; }; uint32_t word; } Halves;
"""
DIALECT = "bfGroup G { uint32 CR1; uint32 CR2; };\nmake_device(G, dev, 0x40011000);\n"
SAME = (
    ("void f(void) { U->CR1 |= 1u << 13; }", "void f(void) { set_bits(&U->CR1, 0x2000); }"),
    ("void f(int n) { REG(0x4001100C) = n; }", "void f(int n) { Uart *u = U; u->CR1 = n; }"),
    ("void f(Uart *u, char c) { while (!(u->SR & 0x80)) ; u->DR = c; }",
     "static int no(Uart *p) { return !(p->SR & 128); }\nvoid f(Uart *u, char c) { do ; while (no(u)); u->DR = c; }"),
    ("void f(const char *s, int n) { for (int i = 0; i < n; i++) { while (!(U->SR & 1)) ; U->DR = s[i]; } }",
     "void f(const char *s, int n) { int k = 0; while (k < n) { while ((U->SR & 1) == 0) { } U->DR = s[k]; k++; } }"),
    ("int f(int n) { while (!(U->SR & 1)) { if (--n < 0) return -1; } return U->DR; }",
     "int f(int k) { for (;;) { if (U->SR & 1) return U->DR; if (--k < 0) return -1; } }"),
    ("void f(int m) { switch (m) { case 0: U->CR1 = 1; break; case 1: U->CR1 = 2; break; default: U->CR1 = 7; } }",
     "static const uint32_t words[] = {1, 2};\nvoid f(int m) { U->CR1 = m == 0 || m == 1 ? words[m] : 7; }"),
    ("void f(const Config *c) { int v = 0; if (c->parity) v |= 0x400; if (c->bits == 9) v |= 0x1000; U->CR1 = v; }",
     "void f(const Config *c) { U->CR1 = (c->parity ? 0x400u : 0) + (c->bits == 9 ? 0x1000u : 0); }"),
    ("void f(uint8_t *b) { *b++ += 1; *b = 2; }", "void f(uint8_t *b) { b[0] = b[0] + 1; b[1] = 2; }"),
    ("static const uint32_t mask = 0x30;\nvoid f(void) { U->CR2 = mask; }", "void f(void) { U->CR2 = 0x30; }"),
    (NAMELESS + "void f(N *p) { p->H = 1; p->C = 2; }",
     "void f(char *p) { *(volatile uint16_t *)(p + 10) = 1; REG(p + 8) = 2; }"),
    ("_Noreturn void die(int);\nint f(int n) { if (n < 3) die(n); return U->DR; }",
     "_Noreturn void die(int);\nint f(int n) { if (n < 3) { die(n); U->CR1 = 1; } return U->DR; }"),
    ("void f(unsigned a, unsigned b) { if (a / b == U->SR && b % a == U->SR) U->BRR = a * 8 / b; }",
     "void f(unsigned a, unsigned b) { if (U->SR != a / b || U->SR != b % a) return; U->BRR = (a << 3) / b; }"),
)  # fmt: skip
CHAIN = "".join(f"if (n & {1 << i}) U->DR = {i}; " for i in range(11))  # 2048 paths
OTHER = (  # with what is said of the difference
    (f"void f(int n) {{ {CHAIN}}}", f"void f(int n) {{ {CHAIN}U->SR = 0; }}", "stores 0x0 to UART.SR"),
    ("void f(void) { U->CR1 = 1; }", "void f(void) { U->CR1 = 3; }", "stores 0x1 to UART.CR1 (4 bytes at 0x4001100c)"),
    ("void f(void) { U->CR1 = 1; }", "void f(void) { U->CR2 = 1; }", "stores 0x1 to UART.CR2"),
    ("void f(void) { U->CR1 = 1; }", "void f(void) { *(volatile uint8_t *)&U->CR1 = 1; }", "(1 bytes at"),
    ("void f(void) { U->CR1 = 1; U->CR2 = 2; }", "void f(void) { U->CR2 = 2; U->CR1 = 1; }", "stores 0x2 to UART.CR2"),
    ("void f(void) { U->CR1 |= 1; U->CR1 |= 2; }", "void f(void) { U->CR1 |= 3; }", "UART.CR1"),
    ("int f(void) { return U->DR; }", "int f(void) { (void)U->DR; return U->DR; }", "reads UART.DR"),
    ("int f(void) { return U->DR & 0xFF; }", "int f(void) { return U->DR & 0x7F; }", "the value that it returns"),
    ("void f(int n) { U->CR1 = n; }", "void f(int n) { U->CR1 = n == 77 ? 78 : n; }", "stores 0x4d to UART.CR1"),
    ("void f(void) { U->CR1 = 1; while (1) ; }", "void f(void) { U->CR1 = 2; while (1) ; }", "stores 0x2"),
    ("void f(int m) { U->CR1 = 4; while (!(U->SR & m)) ; }",
     "void f(int m) { U->CR1 = m ? 4 : 5; while (!(U->SR & m)) ; }", "stores 0x5"),
    ("void f(void) { while (!(U->SR & 1)) ; }", "void f(void) { while (!(U->SR & 2)) ; }", "waits while"),
    ("void f(void) { while (!(U->SR & 1)) ; }", "void f(void) { if (!(U->SR & 1)) { } }", "waits while"),
    ("void f(void) { for (int i = 0; i < 100000; i++) U->DR = i; }",
     "void f(void) { for (int i = 0; i < 100000; i++) U->DR = i == 3 ? 4 : i; }", "stores 0x3 to UART.DR"),
    ("typedef volatile int vi; void f(void) { *(vi *)64 = 1; *(vi *)64 = 2; }",
     "typedef volatile int vi; void f(void) { *(vi *)64 = 2; }", "stores 0x1 to *0x40"),
    ("void f(char n) { U->DR = n; }", "void f(int n) { U->DR = n; }", "its parameters have [1] bytes, and [4]"),
    ("void f(void) { for (;;) U->DR = U->SR; }", "void f(void) { for (;;) U->DR = U->SR & 7; }", "to UART.DR"),
    ("void w(int) __attribute__((weak));\nvoid w(int n) { }\nvoid f(void) { w(1); }",  # the linker may have another
     "void w(int) __attribute__((weak));\nvoid w(int n) { }\nvoid f(void) { w(2); }", "calls w(0x1)"),
    ("void f(void) { U->CR1 = 1; other(1); }", "void f(void) { other(1); U->CR1 = 1; }", "calls other(0x1)"),
    ("void f(uint8_t *b) { *b++ += 1; *b = 2; }", "void f(uint8_t *b) { *b += 1; b += 2; *b = 2; }", "an object"),
    ("void f(void) { U->CR1 = 1; }", "void g(void) { U->CR1 = 1; }", "only old.c has this function"),
    (NAMELESS + "void f(N *p) { p->C = 1; }", NAMELESS + "void f(N *p) { p->A = 1; }", "p->C (4 bytes at 0x8)"),
    ("static const uint8_t t[] = {1, 2};\nvoid f(int i) { U->CR1 = t[i & 1]; }",
     "static const uint8_t t[] = {1, 3};\nvoid f(int i) { U->CR1 = t[i & 1]; }", "stores 0x3"),
)  # fmt: skip
OPEN = (
    ("int f(void) { Config c = *(volatile Config *)64; return c.baud; }",
     "int f(void) { Config c = *(volatile Config *)64; c = *(volatile Config *)64; return c.baud; }",
     "volatile struct"),
    (NAMELESS + "void f(Halves *h) { h->high = 1; U->CR1 = h->word; }",
     NAMELESS + "void f(Halves *h) { int w = h->word; h->high = 1; U->CR1 = w; }", "left open"),
    ("int f(int n) { return U->DR / n; }", "int f(int n) { return U->DR / (n + 1); }", "left open"),
    ("int f(float x) { return (unsigned)x; }", "int f(float x) { return (int)x; }", "left open"),
    ("float f(void) { return U->DR * 0.5f; }", "float f(void) { return U->DR / 2.0f; }", "left open"),
    ("void f(void) { U->CR1 = U->SR | U->DR; }", "void f(void) { int s = U->SR; U->CR1 = s | U->DR; }", "order"),
    ("void f(void) { while (!(U->SR & 1)) ; }", "void f(void) { if (!(U->SR & 1)) while (!(U->SR & 1)) ; }", "waits"),
    ("int on; void f(void) { on = 1; U->CR1 = 1; }", "int on; void f(void) { U->CR1 = 1; on = 1; }", "interrupt"),
    ("void f(void) { U->CR1 = 1; for (volatile int i = 0; i < 9; i++) ; U->CR1 = 2; }",
     "void f(void) { U->CR1 = 1; U->CR1 = 2; }", "volatile variable 'i'"),
    ("void f(int n) { int s = 0; while (U->SR) s++; U->CR1 = s == 1000001; }",
     "void f(int n) { int s = 0; while (U->SR) s++; U->CR1 = 0; }", "turns"),
)  # fmt: skip


def proved(folder: Path, old: str, new: str, *options: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """The exit status, and (verdict, why) of each function."""
    (folder / "chip.svd").write_text(CHIP)
    for name, text in (("old.c", old), ("new.c", new)):
        (folder / name).write_text(text if "bfGroup" in text else HEAD + text)
    files = [str(folder / n) for n in ("old.c", "new.c")]
    status = main(["prove", *files, "--svd", str(folder / "chip.svd"), "--json", str(folder / "j"), *options])
    rows = json.loads((folder / "j").read_text())["functions"]
    return status, {r["function"]: (r["verdict"], r.get("why", "") + str(r.get("inputs", ""))) for r in rows}


@pytest.mark.parametrize(("old", "new"), SAME)
def test_versions_that_do_the_same_are_proved(old: str, new: str, tmp_path: Path) -> None:
    assert proved(tmp_path, old, new, "--strict") == (0, {"set_bits": ("proved", ""), "f": ("proved", "")})


@pytest.mark.parametrize(("old", "new", "text"), OTHER)
def test_the_first_access_that_differs_is_named(old: str, new: str, text: str, tmp_path: Path) -> None:
    status, rows = proved(tmp_path, old, new)
    verdict, why = rows["f"]
    assert (status, verdict) == (1, "different")
    assert text in why


@pytest.mark.parametrize(("old", "new", "text"), OPEN)
def test_what_is_left_open_is_no_proof(old: str, new: str, text: str, tmp_path: Path) -> None:
    status, rows = proved(tmp_path, old, new)
    assert (status, rows["f"][0]) == (0, "unknown")
    assert text in rows["f"][1]
    assert proved(tmp_path, old, new, "--strict")[0] == 1


def test_an_input_shows_the_difference(tmp_path: Path) -> None:
    old, new = "int f(int n) { return U->SR + n; }", "int f(int n) { return U->SR == 9 && n == 5 ? 0 : U->SR + n; }"
    assert "'n': " in proved(tmp_path, old, new)[1]["f"][1]
    old, new = (
        "void f(int n) { U->CR1 = U->SR & 4 ? n : 0; }",
        "void f(int n) { U->CR1 = U->SR & 4 && n != 99 ? n : 0; }",
    )
    assert "{'n': '0x63', 'read 1, of UART.SR': '0x" in proved(tmp_path, old, new)[1]["f"][1]


def test_a_source_in_the_dialect_beside_plain_c(tmp_path: Path) -> None:
    source = DIALECT + "void f(unsigned n) { dev->CR1 = n; dev->CR2 = 1; }\nvoid g(void) { dev->CR2 = 3; }\n"
    plain = "void f(unsigned n) { U->CR1 = n; U->CR2 = 1; }\nvoid g(void) { U->CR2 = 2; }\n"
    status, rows = proved(tmp_path, plain, source)
    assert (status, rows["f"][0], rows["g"][0]) == (1, "proved", "different")
    assert proved(tmp_path, plain, source, "--function", "f")[0] == 0


def test_variables_that_a_chosen_function_uses_begin_alike(tmp_path: Path) -> None:
    old = "static const Config rows[] = {{1, 2, 3}}, *const all = rows;\nint n = 1;\nvoid h(void) { n++; }\n"
    old += "static int g(int i) { static int m = 5; return all[i].bits + m++; }\nvoid f(int i) { U->CR1 = g(i); }\n"
    new = old.replace("2, 3", "2, 4").replace("m = 5", "m = 6").replace("n = 1", "n = 2")
    status, rows = proved(tmp_path, old, new, "--function", "f")
    assert (status, rows.keys()) == (1, {"f", "rows", "g: m"})


def test_wrong_input_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = tmp_path / "good.c"
    good.write_text("void f(void) { }\n")
    (tmp_path / "bad.c").write_text("void f(void) { x; }\n")
    assert main(["prove", str(good), str(tmp_path / "bad.c")]) == 1
    assert "bad.c:1:16: error" in capsys.readouterr().err
    assert main(["prove", str(good), str(good), "--function", "ff"]) == 1
    assert "no function 'ff'" in capsys.readouterr().err


def test_a_difference_is_shown_when_the_proof_has_spent_its_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgebuild.driver.prove import hardware, versions

    class Exhausted(versions.Prover):
        def all(self, names: list[str]) -> list[versions.Verdict]:
            verdicts = super().all(names)
            hardware.EFFORT.spent = hardware.EFFORT.limit
            return verdicts

    monkeypatch.setattr(versions, "Prover", Exhausted)
    for name, value in (("a.c", 1), ("b.c", 3)):
        (tmp_path / name).write_text(f"{HEAD}void f(void) {{ U->CR1 = {value}; }}\n")
    assert main(["prove", str(tmp_path / "a.c"), str(tmp_path / "b.c")]) == 1
    assert "f: different: a.c stores 0x1" in capsys.readouterr().out
