"""`edgebuild adopt`: C with masks becomes the dialect, with a proof; what stays C is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edgebuild.cli import main

if TYPE_CHECKING:
    from edgebuild.driver.prove.versions import Comparison, Words
    from edgebuild.driver.source.lowering import Program

pytest.importorskip("z3")

FIELD = "<field><name>{}</name><bitOffset>{}</bitOffset><bitWidth>{}</bitWidth></field>"
REGISTER = (
    "<register><name>{}</name><addressOffset>{:#x}</addressOffset><access>{}</access><fields>{}</fields></register>"
)
PERIPHERAL = (
    "<peripheral><name>{}</name><groupName>{}</groupName><baseAddress>{:#x}</baseAddress><registers>{}</registers>"
    "</peripheral>"
)
UART = (
    ("SR", 0, "read-write", (("PE", 0, 1), ("TXE", 7, 1))),
    ("DR", 4, "read-write", (("DR", 0, 9),)),
    ("BRR", 8, "read-write", (("FRACTION", 0, 4), ("MANTISSA", 4, 12))),
    ("CR1", 12, "read-write", (("RE", 2, 1), ("TE", 3, 1), ("M", 12, 1), ("UE", 13, 1))),
    ("CR2", 16, "read-write", (("CLKEN", 11, 1), ("STOP", 12, 2), ("8BIT", 14, 1))),
    ("CR3", 20, "read-write", (("MODE", 0, 3),)),  # the other bits belong to no field: a store puts zeros there
    ("KR", 24, "write-only", (("KEY", 0, 16),)),
    *((f"CCR{i + 1}", 0x20 + 0x14 * i, "read-write", (("EN", 0, 1), ("PL", 4, 2))) for i in range(3)),
    *((f"S{i}CR", 0x60 + 0x18 * i, "read-write", (("EN", 0, 1),)) for i in range(3)),
)
ROWS = "".join(REGISTER.format(n, at, how, "".join(FIELD.format(*f) for f in fields)) for n, at, how, fields in UART)
CHIP = (
    "<device><name>CHIP</name><size>32</size><resetValue>0</resetValue><peripherals>"
    + "".join(
        PERIPHERAL.format(f"{n}{i}", "UART", 0x40010000 + 0x400 * i, ROWS) for i, n in ((1, "UART"), (2, "LPUART"))
    )
    + "</peripherals></device>"
)
OVERLAY = "fields:\n  '*': {plain: true}\n"
STRUCTS = """/* A driver with structs. */
#include <stdint.h>
typedef struct { volatile uint32_t SR, DR, BRR, CR1, CR2, CR3, KR; } UART_TypeDef;
struct handle { UART_TypeDef *Instance; volatile unsigned sent; };
#define UART1 ((UART_TypeDef *)0x40010400UL)
#define UART_CR1_RE (1UL << 2)
#define UART_CR1_TE (1UL << 3)
#define UART_CR1_UE (1UL << 13)
#define UART_CR2_STOP_Pos 12U
#define UART_CR2_STOP (3UL << UART_CR2_STOP_Pos)
#define UART_SR_TXE (1UL << 7)
#define SET_BIT(REG, BIT) ((REG) |= (BIT))
#define READ_BIT(REG, BIT) ((REG) & (BIT))
#define MODIFY_REG(REG, CLEAR, SET) ((REG) = (((REG) & (~(CLEAR))) | (SET)))
int later(void);
"""
ADDRESSES = """#include <stdint.h>
#define MMIO32(address) (*(volatile uint32_t *)(address))
#define MMIO8(address) (*(volatile uint8_t *)(address))
#define UART1 0x40010400UL
#define UART_SR(base) MMIO32((base) + 0x00)
#define UART_DR(base) MMIO32((base) + 0x04)
#define UART_CR1(base) MMIO32((base) + 0x0c)
#define UART_CR2(base) MMIO32((base) + 0x10)
#define UART_KR(base) MMIO32((base) + 0x18)
#define UART_CCR(base, channel) MMIO32((base) + 0x20 + (0x14 * ((channel) - 1)))
#define UART_SCR(base, stream) MMIO32((base) + 0x60 + ((stream) * 24))
#define UART1_CR1 UART_CR1(UART1)
#define UART_CR1_UE (1 << 13)
#define UART_CR1_M (1 << 12)
"""
CALLS = (
    STRUCTS
    + """#undef UART1
#define UART1 0x40010400UL
#define UART_SR_OFFSET 0
#define UART_DR_REG 4
static inline uint32_t read32(uintptr_t at) { return *(volatile uint32_t *)at; }
static inline void write32(uint32_t data, uintptr_t at) { *(volatile uint32_t *)at = data; }
static inline void set_bits(volatile uint32_t *at, int mask) { *(volatile uint32_t *)((uintptr_t)at + 0x2000) = mask; }
"""
)
CASES = (  # the C, and what comes of it
    (STRUCTS, "void f(UART_TypeDef *u) { u->CR1 |= UART_CR1_UE; }", "UART_AT(u)->CR1.UE = 1;"),
    (ADDRESSES, "void f(uint32_t u, uint8_t n) { UART_CCR(u, n) |= 1; }", "UART_AT(u)->CCR[(n) - 1].EN = 1;"),
    (ADDRESSES, "void f(uint32_t u, uint8_t n) { UART_CCR(u, n + 1) |= 1; }", "UART_AT(u)->CCR[n].EN = 1;"),
    (ADDRESSES, "void f(int n) { UART_SCR(UART1, n) &= ~1U; }", "held = uart1->SCR[n];"),
    (ADDRESSES, "int f(uint32_t u, int n) { return UART_CCR(u, n); }", "return UART_AT(u)->CCR[n - 1];"),
    (ADDRESSES, "void f(uint32_t u, int n) { UART_CCR(u, (n) & (3)) |= 1; }", "->CCR[((n) & (3)) - 1].EN = 1;"),
    (ADDRESSES, "void f(uint32_t u, int n, int v) { UART_SCR(u, n) = v; UART_CCR(u, n) = v; }", "->SCR[n] = v;"),
    (STRUCTS + "typedef struct { volatile uint32_t SR, pad[7]; struct { volatile uint32_t CnR, r[4]; } c[3]; } UART;\n",
     "void f(UART *p, int n) { p->SR = 0; p->c[n].CnR |= 1; }", "UART_AT(p)->CCR[n].EN = 1;"),
    (STRUCTS, "void f(void) { SET_BIT(UART1->CR1, UART_CR1_UE); /* on */ }", "uart1->CR1.UE = 1; /* on */"),
    (STRUCTS, "void f(UART_TypeDef *u, int n) { u->CR2 = (u->CR2 & ~UART_CR2_STOP) | ((n & 3u) << 12); }",
     "UART_AT(u)->CR2.STOP = (n & 3u);"),
    (STRUCTS, "void f(UART_TypeDef *u) { MODIFY_REG(u->CR2, UART_CR2_STOP, 2UL << UART_CR2_STOP_Pos); }",
     "UART_AT(u)->CR2.STOP = 2;"),
    (STRUCTS, "void f(UART_TypeDef *u) { MODIFY_REG(u->CR3, 7, 5); }",
     "{\n    bfGroup Uart_CR3 held = UART_AT(u)->CR3;"),
    (STRUCTS, "int f(UART_TypeDef *u) { return READ_BIT(u->SR, UART_SR_TXE) == UART_SR_TXE; }",
     "return UART_AT(u)->SR.TXE == 1;"),
    (STRUCTS, "void f(struct handle *h) { while (!(h->Instance->SR & UART_SR_TXE)) ; h->Instance->DR = h->sent++; }",
     "while (!(UART_AT(h->Instance)->SR.TXE)) ; UART_AT(h->Instance)->DR = h->sent++;"),
    (STRUCTS, "int f(UART_TypeDef *u) { return u->BRR >> 4 & 0xFFF; }", "return UART_AT(u)->BRR >> 4 & 0xFFF;"),
    (STRUCTS, "int f(UART_TypeDef *u) { return (u->BRR & 0xFFF0) >> 4; }", "return UART_AT(u)->BRR.MANTISSA;"),
    (STRUCTS, "void f(void) { UART1->CR1 = UART_CR1_UE | UART_CR1_TE; }",
     "uart1->CR1 = (bfGroup Uart_CR1){ .TE = 1, .UE = 1 };"),
    (STRUCTS, "void f(int n) { UART1->BRR = n / 3; }", "uart1->BRR = n / 3;"),
    (STRUCTS, "void f(void) { (void)UART1->DR; UART1->SR; }", "(void)uart1->DR; (void)uart1->SR;"),
    (STRUCTS, "void f(int m) { if (m) UART1->CR1 |= UART_CR1_TE | UART_CR1_RE; else UART1->DR++; }",
     "} else uart1->DR = uart1->DR + 1;"),
    (STRUCTS, "static int g(UART_TypeDef *u) { uint32_t a = 1, b = u->DR; return a + b; }\nint f(void) { g(UART1); }",
     "uint32_t a = 1, b = UART_AT(u)->DR;"),
    (STRUCTS, "void f(UART_TypeDef *u) { for (int i = 0; i < 3; i++) { switch (u->SR & 1) { case 1: u->DR = i; } } }",
     "switch (UART_AT(u)->SR.PE) { case 1: UART_AT(u)->DR = i; }"),
    (ADDRESSES, "void f(uint32_t uart) { UART_CR1(uart) &= ~(UART_CR1_UE | UART_CR1_M); }",
     "UART_AT(uart)->CR1.M = 0;\nUART_AT(uart)->CR1.UE = 0; }"),
    (ADDRESSES, "void f(uint32_t uart, uint32_t mask) { UART_CR1(uart) |= mask | 4; }",
     "UART_AT(uart)->CR1 = UART_AT(uart)->CR1 | (mask | 4);"),
    (ADDRESSES, "void f(void) { UART1_CR1 |= UART_CR1_UE; }", "uart1->CR1.UE = 1;"),
    (ADDRESSES, "void f(void) { UART1_CR1 |= UART_CR1_UE /* on */ | // and\n  UART_CR1_M; /* last */ }",
     "uart1->CR1.M = 1;\nuart1->CR1.UE = 1 /* on */ /* and */; /* last */ }"),
    (ADDRESSES, "void f(int u) {if (UART_SR(u) & 1) if (UART_SR(u) & 128) UART_CR1(u) |= 8192; else UART_CR1(u) = 7; }",
     "    held.UE = 1;\n    UART_AT(u)->CR1 = held;\n} else bf_raw(UART_AT(u)->CR1) = 7; }"),
    (ADDRESSES, "#ifdef OTHER\nvoid f(void) { UART1_CR1 = 1; }\n#else\nvoid f(void) { UART1_CR1 = 1 << 13; }\n#endif",
     "void f(void) { UART1_CR1 = 1; }\n#else\nvoid f(void) { uart1->CR1 = (bfGroup Uart_CR1){ .UE = 1 }; }\n"),
    (ADDRESSES, "#define DR UART_DR(UART1)\n#define UE 13\nvoid f(void) { DR = 1; UART1_CR1 |= 1 << UE; }",
     "{ uart1->DR_ = 1; uart1->CR1.UE_ = 1; }"),  # names of macros
    (STRUCTS + "#define ID(x) x\n#define CAT(a, b) a##b\n",
     "void f(UART_TypeDef *u) { u->CAT(D, R) = ID(8); u->DR = ID(u->BRR); }",
     "{ UART_AT(u)->DR = ID(8); UART_AT(u)->DR = UART_AT(u)->BRR; }"),
    (STRUCTS, "UART_TypeDef *g(int);\nvoid f(int n) { if (g(n)->SR & UART_SR_TXE) g(0)->DR = 3; }",
     "{ if (UART_AT(g(n))->SR.TXE) UART_AT(g(0))->DR = 3; }"),
    (CALLS, "void f(void) { while (!(read32(UART1 + UART_SR_OFFSET) & 128)) ; write32(1 << 13, UART1 + 12); }",
     "while (!(uart1->SR.TXE)) ; uart1->CR1 = (bfGroup Uart_CR1){ .UE = 1 }; }"),
    (CALLS, "void f(uint32_t u, int n) { write32(read32(u + UART_DR_REG) + n, u + UART_DR_REG); }",
     "{ UART_AT(u)->DR = UART_AT(u)->DR + n; }"),
    (CALLS + "UART_TypeDef *g(int);\n#define U ((UART_TypeDef *)UART1)\n",
     "void f(int n) { set_bits(&g(n)->DR, n); set_bits(&U->CR1, 4); }",
     "UART_AT((char *)(g(n)) + 0x2000)->DR = n; UART_AT(0x40012400)->CR1 = (bfGroup Uart_CR1){ .RE = 1 }; }"),
    (STRUCTS + "int at(int);\n#define ASSERT(x) ((x) ? 0 : at(__LINE__))\n",  # the line is another there
     "void f(UART_TypeDef *u) { ASSERT(u); u->CR1 |= UART_CR1_UE; }", "{ ASSERT(u); UART_AT(u)->CR1.UE = 1; }"),
)  # fmt: skip
# Two changes of one register are two accesses: as fields they would become one.
TWICE = (
    STRUCTS
    + "void f(UART_TypeDef *u)\n{\n\tu->CR1 |= UART_CR1_UE;\n\tu->CR1 &= ~UART_CR1_RE;\n\tu->CR2 |= 0x1000;\n}\n"
)
HELD = """
	{
		bfGroup Uart_CR1 held = UART_AT(u)->CR1;
		held.UE = 1;
		UART_AT(u)->CR1 = held;
	}
	{
		bfGroup Uart_CR1 held = UART_AT(u)->CR1;
		held.RE = 0;
		UART_AT(u)->CR1 = held;
	}
	UART_AT(u)->CR2.STOP |= 1;
}
"""
STAYS = (
    ("void f(uint32_t uart, int n) { UART_DR(uart + n * n) = 0; }", "the address is computed"),
    ("void f(uint32_t uart, int n, int m) { UART_SCR(uart + 24 * m, n) = 0; }", "the address is computed"),
    ("void f(uint32_t uart, int n) { UART_DR(uart + 4 * n) = 0; }",
     "the description has no such register at 'uart' + 0x4 + 4 * 'n', which is computed at run time"),
    ("void f(uint32_t uart, int n) { UART_SCR(uart, n + 1) = 0; }", "the description has no such register"),
    ("void f(uint32_t uart, int n) { UART_SCR(uart + 4, 2 * n) = 0; }", "the description has no such register"),
    ("int g(void);\nvoid f(uint32_t uart) { UART_SCR(uart, g()) |= 1; }",
     "the address is what a call or an assignment gives"),
    ("void f(void) { MMIO32(0x90000004) = 3; }", "the description has no such register at 0x90000004"),
    ("uint32_t g(void);\nvoid f(void) { UART_DR(g()) -= 3; }", "the address is what a call or an assignment gives"),
    ('void f(void) { __asm__ volatile("" : "=r"(UART1_CR1)); }', "it stands in inline assembly"),
    ("#define BOTH(u) do { UART_DR(u) = 1; UART_CR2(u) = 2; } while (0)\nvoid f(uint32_t uart) { BOTH(uart); }",
     "it comes out of a macro"),
    ("int f(uint32_t uart) { return UART_DR(uart)++; }", "it is changed, and the value is used"),
    ("void g(volatile uint32_t *);\nvoid f(uint32_t uart) { g(&UART_DR(uart)); }", "its address is taken"),
)  # fmt: skip


def adopted(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    (tmp_path / "chip.svd").write_text(CHIP)
    (tmp_path / "driver.c").write_text(text + "\n")
    arguments = ["--svd", str(tmp_path / "chip.svd"), "-o", str(tmp_path / "out"), *options]
    status = main(["adopt", str(tmp_path / "driver.c"), *arguments])
    file, streams = tmp_path / "out" / "driver.bf.c", capsys.readouterr()
    return status, file.read_text() if file.exists() else "", streams.out + streams.err


@pytest.mark.parametrize(("head", "text", "result"), CASES)
def test_styles_of_c_become_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], head: str, text: str, result: str
) -> None:
    status, source, printed = adopted(tmp_path, head + text, capsys)
    assert (status, result in source) == (0, True), printed + source
    assert " stays C" not in printed
    assert set(head.splitlines()) <= set(source.splitlines())


def test_changes_of_one_register_stay_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, source, printed = adopted(tmp_path, TWICE, capsys)
    assert (status, source.endswith(HELD + "\n")) == (0, True), source
    assert "1 of 1 functions with registers, 3 accesses, all proved" in printed


def test_a_macro_of_a_header_has_no_device_of_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = STRUCTS + "void f(void) { UART1->DR = 1; }"
    assert "{ uart1_device->DR = 1; }" in adopted(tmp_path, text, capsys, "-D", "uart1=5")[1]


def test_a_function_is_proved_again_only_if_its_code_or_what_it_calls_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgebuild.driver import adopt

    compare, rounds = adopt.compare_programs, list[tuple[str, ...]]()

    def noted(old: Program, new: Program, words: Words, only: tuple[str, ...], *rest: Any) -> list[Comparison]:
        rounds.append(only)
        rows = compare(old, new, words, only, *rest)
        return [replace(r, verdict="proved") if r.function == "calls" else r for r in rows]

    monkeypatch.setattr(adopt, "compare_programs", noted)
    text = TWICE.replace("void f", "static void f") + "void calls(UART_TypeDef *u) { u->DR = 1; f(u); }\n"
    status, _, printed = adopted(tmp_path, text + "void other(UART_TypeDef *u) { u->DR = 2; }", capsys)
    assert (status, rounds) == (0, [("f", "calls", "other"), ("f", "calls")]), printed


def test_many_branches_in_a_row_are_proved_within_the_steps_of_a_function(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgebuild.driver import adopt

    branches = "".join(f" if (n & {1 << i}) u->DR = {i};" for i in range(11))  # 2048 paths
    text = f"{STRUCTS}void many(UART_TypeDef *u, unsigned n) {{{branches} }}\n"
    text += "void calls(UART_TypeDef *u) { u->DR = 9; many(u, u->DR); }\n"
    text += "void tests(UART_TypeDef *u, unsigned n) { if (n) u->DR = 1; if (u->DR) many(u, n); }"
    status, _, printed = adopted(tmp_path, text, capsys)
    assert status == 0 and "3 of 3 functions" in printed, printed
    monkeypatch.setattr(adopt, "BUDGET", 20_000)
    assert "many: stays C: unknown: the proof is not at its end" in adopted(tmp_path, text, capsys)[2]


@pytest.mark.parametrize(("text", "why"), STAYS)
def test_what_stays_c_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str) -> None:
    more = "\nvoid other(uint32_t uart) { UART_DR(uart) = 3; }"
    status, source, printed = adopted(tmp_path, ADDRESSES + text + more, capsys)
    assert status == 0, printed
    line = ADDRESSES.count("\n") + text.count("\n") + 1
    assert printed.count(": stays C: ") == 1
    assert f"driver.c:{line}: f: stays C: {why}" in printed
    assert text in source and "UART_AT(uart)->DR = 3" in source


PLAIN = "<register><name>{}</name><addressOffset>{:#x}</addressOffset></register>"
CHANNELS = "<cluster><dim>2</dim><dimIncrement>8</dimIncrement><name>CHG[%s]</name><addressOffset>0</addressOffset>"
CHANNELS += f"{PLAIN.format('EN', 0)}{PLAIN.format('DIS', 4)}</cluster>"
KINDS = (
    ("I2S", "I2S", 0x40001000, PLAIN.format("CTRL", 0)),
    ("TWI0", "TWI", 0x40002000, PLAIN.format("TASKS_GO", 0) + PLAIN.format("ENABLE", 4)),
    ("BLOCK", "BLOCK", 0x40003000, PLAIN.format("CONFIG", 8)),
    ("CLOCK", "CLOCK", 0x40003000, PLAIN.format("RUN", 0)),
    ("PPI", "PPI", 0x40004000, CHANNELS),
    ("SPI0", "SPI", 0x40005000, PLAIN.format("CTL0", 0).replace("</name>", "</name><size>16</size>")),
    ("GPIOA", "GPIO", 0x40006000, PLAIN.format("CTL0", 0)),
    ("UARTX", "UARTX", 0x40008000,
     f"<cluster><name>PSEL</name><addressOffset>4</addressOffset>{PLAIN.format('RXD', 0)}</cluster>"
     + PLAIN.format("RXD", 8).replace("</reg", f"<fields>{FIELD.format('RXD', 0, 8)}</fields></reg")),
    ("DMA1", "DMA", 0x40007000, PLAIN.format("LISR", 0) + PLAIN.format("S0CR", 0x10)),
)  # fmt: skip
MIXED = """#include <stdint.h>
#define MMIO32(address) (*(volatile uint32_t *)(address))
int Clock, clock;
#define GPIO_P_DOUT(port) MMIO32(port)
void gpio(uint32_t port) { GPIO_P_DOUT(port) = 1; }
#define I2C_ENABLE(bus) MMIO32((bus) + 4)
#define I2C_TASK_GO(bus) MMIO32((bus) + 0)
void i2c(uint32_t bus) { I2C_ENABLE(bus) = 1; I2C_TASK_GO(bus) = 1; }
#define CLOCK_RUN MMIO32(0x40003000UL)
void run(void) { CLOCK_RUN = 1; }
#define PPI_EN(n) MMIO32(0x40004000UL + 8 * (n))
void ppi(int n) { PPI_EN(n) = 1; }
#define SPI_CTL0(spi) MMIO32(spi)
void spi(uint32_t periph) { SPI_CTL0(periph) = 1; }
typedef struct { volatile uint32_t CR; } DMA_Stream_TypeDef;
void dma(DMA_Stream_TypeDef *stream) { stream->CR = 1; }
typedef struct { volatile uint32_t R; union { struct { volatile uint32_t RXD; } PSEL; volatile uint32_t PSELRXD; };
                 volatile uint32_t RXD; } UARTX_Type;
void rx(UARTX_Type *u) { u->PSEL.RXD = u->RXD; u->PSELRXD = 1; }
"""


def test_the_peripheral_is_that_of_the_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No I2S by the I of GPIO; one of two at an address; I2C_TASK is of the kind that I2C is.

    No GPIO by a CTL0 like that of the SPI, which a patch makes wider; no DMA1 for its stream, whose names are others.
    """
    peripherals = "".join(PERIPHERAL.format(*kind) for kind in KINDS)
    (tmp_path / "kinds.svd").write_text(CHIP[: CHIP.index("<peripheral>")] + peripherals + "</peripherals></device>")
    status, source, errors = adopted(tmp_path, MIXED, capsys, "--svd", str(tmp_path / "kinds.svd"))
    assert status == 0 and source, errors
    assert "gpio: stays C: the description has no such register" in errors
    assert "SPI_AT(periph)->CTL0 = 1" in source
    patch = "_svd: ../kinds.svd\nSPI0:\n  _modify:\n    CTL0:\n      size: 32\n"
    assert (tmp_path / "out" / "driver.yaml").read_text() == patch
    assert "dma: stays C: the description has no such register" in errors
    assert "GPIO_P_DOUT(port) = 1; }" in source and "I2S" not in source.upper()
    assert "{ UARTX_AT(u)->PSEL_RXD = UARTX_AT(u)->RXD; UARTX_AT(u)->PSEL_RXD = 1; }" in source
    for text in ("TWI_AT(bus)->TASKS_GO = 1;", "clock_device->RUN = 1;", "ppi_device->CHG_EN[n] = 1;"):
        assert text in source, source


def test_only_the_access_in_a_macro_of_statements_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "#define CLEAR(u) do { volatile uint32_t t; t = (u)->SR; t = (u)->DR; } while (0)\n"
    text += "void f(UART_TypeDef *u) { CLEAR(u); u->CR1 |= UART_CR1_UE; }"
    status, source, printed = adopted(tmp_path, STRUCTS + text, capsys)
    assert (status, "{ CLEAR(u); UART_AT(u)->CR1.UE = 1; }" in source) == (0, True), source + printed
    assert printed.count("f: stays C: it comes out of a macro that is no expression") == 1
    assert "0 of 1 functions with registers, 1 accesses, all proved" in printed


def test_a_driver_without_registers_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "volatile int ticks;\nstruct s { volatile int n[4]; } v;\nvoid f(int i) { ticks++; v.n[i] = 2; }"
    status, source, printed = adopted(tmp_path, text, capsys)
    assert (status, source) == (1, "")
    assert "driver.c: error: no function can be adopted" in printed and "it accesses no registers" in printed


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("d.cpp", b"void f();", "only C that is not in the dialect yet can be adopted"),
        ("d.c", b"bfGroup G { bit a; };", "only C that is not in the dialect yet can be adopted"),
        ("d.c", b"/* \xb5s */", "UTF-8"),
        ("d.c", b"void f(void) { x = 1; }", "undeclared identifier 'x'"),
    ],
)
def test_what_is_no_driver_in_c_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: bytes, why: str
) -> None:
    (tmp_path / "chip.svd").write_text(CHIP)
    (tmp_path / name).write_bytes(text)
    arguments = ["--svd", str(tmp_path / "chip.svd"), "-o", str(tmp_path / "out.c")]
    assert main(["adopt", str(tmp_path / name), *arguments]) == 1
    assert why in capsys.readouterr().err and not (tmp_path / "out.c").exists()


def test_a_wrong_field_is_never_adopted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proof is over what the generator makes of the text: a mistake in the conversion shows there."""
    from edgebuild.driver import adopt

    right = adopt.bits_of
    monkeypatch.setattr("edgebuild.driver.adopt.bits_of", lambda f: right(f) << 1)
    text = (
        STRUCTS
        + "void f(UART_TypeDef *u) { u->CR1 |= 1 << 13; }\nint g(UART_TypeDef *u) { return (u->SR & 256) != 0; }"
    )
    _, source, printed = adopted(tmp_path, text, capsys, "--json", "-")
    report = json.loads(printed)
    assert [f["form"] for f in report["functions"]] == ["numbers", "fields"] and report["adopted"] == 2
    assert "CR1 = UART_AT(u)->CR1 | (1 << 13)" in source and "return (UART_AT(u)->SR & 256) != 0" in source
