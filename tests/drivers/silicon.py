# ruff: noqa: E501  (C on one line reads better here)
"""Drivers of real peripherals beside code by hand, on models that raise where the silicon would misbehave.

Facts are from the register descriptions beside the checkout and, for the STM32 parts, from RM0431 (sections GPIO, IWDG,
USART), of which the few registers that are used are written down here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

from edgebuild.driver.registers.fixed import read_map
from tests.conftest import ROOT
from tests.drivers.cases import svd
from tests.drivers.machine import BusError, Machine, build, link

SHARED = ROOT.parent / "shared" / "svd"
ON_READ = Callable[["Chip"], int]
ON_WRITE = Callable[["Chip", int], None]


@dataclass
class Chip:
    """The registers of one peripheral. `reads` and `writes` are what single registers do instead of keeping a value.

    `locked`: (register, mask, registers that must not be written while a bit of the mask is set).
    """

    base: int
    values: dict[int, int]
    clears: dict[int, int]  # flags that a 1 clears
    reads: dict[int, ON_READ]
    writes: dict[int, ON_WRITE]
    locked: tuple[tuple[int, int, tuple[int, ...]], ...]
    trace: list[tuple[str, int, int]] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)  # into a FIFO
    state: dict[str, int] = field(default_factory=dict)
    span: int = 0x1000  # bytes of its addresses
    sizes: dict[int, int] = field(default_factory=dict)  # of registers that have no 4 bytes

    @property
    def block(self) -> SimpleNamespace:
        return SimpleNamespace(base=self.base)

    def read(self, offset: int, size: int) -> int:
        if size != self.sizes.get(offset, 4) or offset % size:
            raise BusError(f"read of {size} bytes at {offset:#x}")
        value = self.reads[offset](self) if offset in self.reads else self.values.get(offset, 0)
        self.trace.append(("r", offset, value))
        return value

    def write(self, offset: int, size: int, value: int) -> None:
        if size != self.sizes.get(offset, 4) or offset % size:
            raise BusError(f"write of {size} bytes at {offset:#x}")
        self.trace.append(("w", offset, value))
        for register, mask, others in self.locked:
            if offset in others and self.values.get(register, 0) & mask:
                raise BusError(f"{offset:#x} is written while {register:#x} has {mask:#x}")
        if offset in self.writes:
            self.writes[offset](self, value)
            return
        clear = self.clears.get(offset, 0)
        self.values[offset] = (value & ~clear) | (self.values.get(offset, 0) & clear & ~value)


@dataclass(frozen=True)
class Part:
    name: str
    file: str  # of ../shared/svd, or "" for `text`
    base: int
    overlay: str
    source: str
    hand: str  # the same functions with R(offset)
    calls: tuple[tuple[object, ...], ...]  # (function, arguments...)
    clears: dict[int, int] = field(default_factory=dict)
    reads: dict[int, ON_READ] = field(default_factory=dict)
    writes: dict[int, ON_WRITE] = field(default_factory=dict)
    locked: tuple[tuple[int, int, tuple[int, ...]], ...] = ()
    text: str = ""  # as `svd` takes it, or a description as it is
    span: int = 0x1000
    sizes: dict[int, int] = field(default_factory=dict)

    @property
    def present(self) -> bool:
        return not self.file or (SHARED / self.file).is_file()


def toggled(*values: int) -> ON_READ:
    """A status that changes from read to read."""

    def read(chip: Chip) -> int:
        at = chip.state.get("status", 0)
        chip.state["status"] = at + 1
        return values[at % len(values)]

    return read


def push(chip: Chip, value: int) -> None:
    if len(chip.sent) - chip.state.get("popped", 0) > 15:
        raise BusError("the FIFO is full")
    chip.sent.append(value)


def pop(chip: Chip) -> int:
    popped = chip.state.get("popped", 0)
    if popped >= len(chip.sent):
        raise BusError("the FIFO is empty")
    chip.state["popped"] = popped + 1
    return 0x40 + popped


def keyed(chip: Chip, value: int) -> None:
    if value not in (0x5555, 0xAAAA, 0xCCCC):
        raise BusError(f"key {value:#x}")
    chip.state["open"] = int(value == 0x5555)
    chip.sent.append(value)


def behind_key(offset: int) -> ON_WRITE:
    def write(chip: Chip, value: int) -> None:
        if not chip.state.get("open"):
            raise BusError("written without the key")
        chip.values[offset] = value

    return write


def set_reset(chip: Chip, value: int) -> None:
    odr = chip.values.get(0x14, 0)
    chip.values[0x14] = (odr | value & 0xFFFF) & ~(value >> 16 & ~value & 0xFFFF)


def started(done: int) -> ON_WRITE:
    def write(chip: Chip, value: int) -> None:
        if value != 1:
            raise BusError(f"a task is started with {value:#x}")
        chip.values[done] = 1

    return write


def once(chip: Chip, value: int) -> None:
    """RP2040's ADC: a conversion begins with START_ONCE, which clears itself; 1 clears the error."""
    if value & 4 and not chip.values.get(0, 0) & 1 and not value & 1:
        raise BusError("a conversion without EN")
    chip.values[0] = (value & ~(4 | 1 << 10)) | 1 << 8 | (chip.values.get(0, 0) & ~value & 1 << 10)


def triggered(chip: Chip, value: int) -> None:
    if not chip.values.get(8):
        raise BusError("started without a length")
    chip.values[12] = (value & ~(3 << 29)) | (chip.values.get(12, 0) & ~value & 3 << 29)


I2C = Part(
    "RP2040 I2C",
    "rp2040.svd",
    0x40044000,
    'fields: {"I2C0.IC_SDA_HOLD.*": {plain: true}}',
    """bfGroup En { bit ENABLE; bit ABORT; bit TX_CMD_BLOCK; }; bfGroup Tar { uint10 IC_TAR; bit SPECIAL; bit GC_OR_START; };
    bfGroup Con { bit MASTER_MODE; uint2 SPEED; bit IC_10BITADDR_SLAVE; bit IC_10BITADDR_MASTER; bit IC_RESTART_EN; bit IC_SLAVE_DISABLE; bit TX_EMPTY_CTRL; };
    bfGroup Cmd { uint8 DAT; bit CMD; bit STOP; bit RESTART; }; bfGroup St { bit TFNF; bit TFE; bit RFNE; };
    bfGroup I2c { bfGroup Con IC_CON; bfGroup Tar IC_TAR; bfGroup Cmd IC_DATA_CMD; uint16 IC_SS_SCL_HCNT; uint16 IC_SS_SCL_LCNT; bfGroup En IC_ENABLE;
        bfGroup St IC_STATUS; uint16 IC_SDA_TX_HOLD; uint8 IC_FS_SPKLEN; uint5 RXFLR; };
    make_device(I2c, i2c, 0x40044000);
    void open(int h, int l) { i2c->IC_ENABLE = (bfGroup En){ .ENABLE = 0 };
        i2c->IC_CON = (bfGroup Con){ .MASTER_MODE = 1, .SPEED = 1, .IC_RESTART_EN = 1, .IC_SLAVE_DISABLE = 1, .TX_EMPTY_CTRL = 1, .IC_10BITADDR_SLAVE = 0 };
        i2c->IC_SS_SCL_HCNT = h; i2c->IC_SS_SCL_LCNT = l; i2c->IC_FS_SPKLEN = 7; i2c->IC_SDA_TX_HOLD = 3; i2c->IC_ENABLE = (bfGroup En){ .ENABLE = 1 }; }
    void start(int a) { i2c->IC_ENABLE = (bfGroup En){}; i2c->IC_TAR = (bfGroup Tar){ .IC_TAR = a }; i2c->IC_ENABLE = (bfGroup En){ .ENABLE = 1 }; }
    int get(int n) { int sum = 0; for (int i = 0; i < n; i++) { while (!i2c->IC_STATUS.TFNF) ;
        i2c->IC_DATA_CMD = (bfGroup Cmd){ .CMD = 1, .STOP = i == n - 1 }; while (!i2c->RXFLR) ; sum += i2c->IC_DATA_CMD.DAT; } return sum; }""",
    """void open(int h, int l) { R(0x6C) = 0; R(0) = 0x163; R(0x14) = h; R(0x18) = l; R(0xA0) = 7; R(0x7C) = (R(0x7C) & ~0xFFFFu) | 3; R(0x6C) = 1; }
    void start(int a) { R(0x6C) = 0; R(4) = a; R(0x6C) = 1; }
    int get(int n) { int sum = 0; for (int i = 0; i < n; i++) { while (!(R(0x70) & 2)) ; R(0x10) = 0x100 | (i == n - 1) << 9; while (!R(0x78)) ; sum += R(0x10) & 0xFF; } return sum; }""",
    (("open", 40, 47), ("start", 0x50), ("get", 24)),
    reads={0x70: toggled(0, 2), 0x78: lambda c: len(c.sent) - c.state.get("popped", 0), 0x10: pop},
    writes={0x10: push},
    locked=((0x6C, 1, (0, 4, 0x14, 0x18, 0xA0, 0x7C)),),
)
UART = Part(
    "RP2040 UART",
    "rp2040.svd",
    0x40034000,
    'fields: {"UART0.UARTCR.*": {plain: true}, "UART0.UARTLCR_H.*": {plain: true}}',
    """bfGroup Cr { bit UARTEN; bit TXE; bit RXE; }; bfGroup Lcr { uint2 WLEN; bit FEN; bit PEN; bit EPS; };
    bfGroup Fr { bit TXFF; bit RXFE; bit BUSY; }; bfGroup Dr { uint8 DATA; bit OE; bit BE; bit PE; bit FE; };
    bfGroup Uart { bfGroup Cr UARTCR; bfGroup Lcr UARTLCR_H; bfGroup Fr UARTFR; bfGroup Dr UARTDR; uint16 BAUD_DIVINT; uint6 BAUD_DIVFRAC; };
    make_device(Uart, uart, 0x40034000);
    void open(int i, int f) { uart->UARTCR.UARTEN = 0; uart->BAUD_DIVINT = i; uart->BAUD_DIVFRAC = f;
        uart->UARTLCR_H = (bfGroup Lcr){ .WLEN = 3, .FEN = 1 }; uart->UARTCR.TXE = 1; uart->UARTCR.RXE = 1; uart->UARTCR.UARTEN = 1; }
    void put(int c) { while (uart->UARTFR.TXFF) ; uart->UARTDR = (bfGroup Dr){ .DATA = c }; }
    int get(void) { if (uart->UARTFR.RXFE) return -1; bfGroup Dr d = uart->UARTDR; return d.OE || d.BE || d.PE || d.FE ? -2 : d.DATA; }""",
    """void open(int i, int f) { R(0x30) &= ~1u; R(0x24) = i; R(0x28) = f; R(0x2C) = 0x70; R(0x30) |= 0x300; R(0x30) |= 1; }
    void put(int c) { while (R(0x18) & 0x20) ; R(0) = c & 0xFF; }
    int get(void) { if (R(0x18) & 0x10) return -1; unsigned d = R(0); return d & 0xF00 ? -2 : (int)(d & 0xFF); }""",
    (("open", 67, 52), ("put", 0x41), ("put", 0x42), ("get",), ("get",)),
    reads={0x18: toggled(0x20, 0), 0: pop},
    writes={0: push},
    locked=((0x30, 1, (0x24, 0x28, 0x2C)),),
)
SPI = Part(
    "RP2040 SPI",
    "rp2040.svd",
    0x4003C000,
    'fields: {"SPI0.SSPCR?.*": {plain: true}}',
    """bfGroup Cr0 { uint4 DSS; uint2 FRF; bit SPO; bit SPH; uint8 SCR; }; bfGroup Cr1 { bit LBM; bit SSE; bit MS; bit SOD; };
    bfGroup Sr { bit TNF; bit RNE; bit BSY; }; bfGroup Spi { bfGroup Cr0 SSPCR0; bfGroup Cr1 SSPCR1; bfGroup Sr SSPSR; uint16 DATA; uint8 CPSDVSR; };
    make_device(Spi, spi, 0x4003C000);
    void open(int m) { spi->SSPCR1 = (bfGroup Cr1){}; spi->CPSDVSR = 2; spi->SSPCR0.DSS = 7; spi->SSPCR0.SPO = m >> 1; spi->SSPCR0.SPH = m; spi->SSPCR0.SCR = 5; spi->SSPCR1.SSE = 1; }
    int swap(int v) { while (!spi->SSPSR.TNF) ; spi->DATA = v; while (!spi->SSPSR.RNE) ; return spi->DATA; }""",
    """void open(int m) { R(4) = 0; R(16) = 2; R(0) = (R(0) & 0x30) | 7 | (m >> 1 & 1) << 6 | (m & 1) << 7 | 5 << 8; R(4) |= 2; }
    int swap(int v) { while (!(R(12) & 2)) ; R(8) = v; while (!(R(12) & 4)) ; return R(8); }""",
    (("open", 3), ("swap", 0x5A), ("swap", 0xA5)),
    reads={12: toggled(0, 2, 2, 6), 8: pop},
    writes={8: push},
    locked=((4, 2, (0, 16)),),
)
ADC = Part(
    "RP2040 ADC",
    "rp2040.svd",
    0x4004C000,
    'fields: {ADC.CS.EN: {plain: true}, ADC.CS.AINSEL: {plain: true}, ADC.CS.TS_EN: {plain: true}, ADC.CS.START_ONCE: {back: "0"}}',
    """bfGroup Cs { bit EN; bit TS_EN; bit START_ONCE; bit READY; bit ERR_STICKY; uint3 AINSEL; }; bfGroup Adc { bfGroup Cs CS; uint12 RESULT; };
    make_device(Adc, adc, 0x4004C000);
    void open(void) { adc->CS = (bfGroup Cs){ .EN = 1, .TS_EN = 1 }; while (!adc->CS.READY) ; }
    int sample(int n) { bfGroup Cs c = adc->CS; c.AINSEL = n; c.START_ONCE = 1; c.ERR_STICKY = 0; adc->CS = c; while (!adc->CS.READY) ; return adc->RESULT; }
    void clear(void) { adc->CS.ERR_STICKY = 1; }""",
    """void open(void) { R(0) = 3; while (!(R(0) & 0x100)) ; }
    int sample(int n) { R(0) = (R(0) & ~0x7400u) | n << 12 | 4; while (!(R(0) & 0x100)) ; return R(4) & 0xFFF; }
    void clear(void) { R(0) = R(0) | 0x400; }""",
    (("open",), ("sample", 3), ("clear",)),
    reads={4: lambda c: 0x123},
    writes={0: once},
)
DMA = Part(
    "RP2040 DMA",
    "rp2040.svd",
    0x50000000,
    "fields: {DMA.CH0_CTRL_TRIG.TREQ_SEL: {plain: true}}",
    """bfGroup Ctrl { bit EN; uint2 DATA_SIZE; bit INCR_READ; bit INCR_WRITE; uint4 RING_SIZE; uint4 CHAIN_TO; uint6 TREQ_SEL; bit BUSY; bit WRITE_ERROR; bit READ_ERROR; };
    bfGroup Dma { uint32 CH0_READ_ADDR; uint32 CH0_WRITE_ADDR; uint32 CH0_TRANS_COUNT; bfGroup Ctrl CH0_CTRL_TRIG; };
    make_device(Dma, dma, 0x50000000);
    void copy(int from, int to, int n) { dma->CH0_READ_ADDR = from; dma->CH0_WRITE_ADDR = to; dma->CH0_TRANS_COUNT = n;
        dma->CH0_CTRL_TRIG = (bfGroup Ctrl){ .EN = 1, .DATA_SIZE = 2, .INCR_READ = 1, .INCR_WRITE = 1, .TREQ_SEL = 0x3F, .WRITE_ERROR = 1, .READ_ERROR = 1 };
        while (dma->CH0_CTRL_TRIG.BUSY) ; }""",
    "void copy(int from, int to, int n) { R(0) = from; R(4) = to; R(8) = n; R(12) = 0x601F8039; while (R(12) & 1 << 24) ; }",
    (("copy", 0x100, 0x200, 8),),
    writes={12: triggered},
)
UARTE = Part(
    "nRF52 UARTE",
    "nrf52.svd",
    0x40002000,
    "fields: {}",
    """bfGroup Uarte { uint32 TASKS_STARTTX; uint32 EVENTS_ENDTX; uint4 ENABLE; uint32 BAUDRATE; uint32 TXD_PTR; uint8 TXD_MAXCNT; };
    make_device(Uarte, u, 0x40002000);
    void open(void) { u->ENABLE = 0; u->BAUDRATE = 0x01D60000; u->ENABLE = 8; }
    void send(int at, int n) { u->TXD_PTR = at; u->TXD_MAXCNT = n; u->EVENTS_ENDTX = 0; u->TASKS_STARTTX = 1; while (!u->EVENTS_ENDTX) ; }""",
    """void open(void) { R(0x500) = 0; R(0x524) = 0x01D60000; R(0x500) = 8; }
    void send(int at, int n) { R(0x544) = at; R(0x548) = n; R(0x120) = 0; R(8) = 1; while (!R(0x120)) ; }""",
    (("open",), ("send", 0x20000000, 12), ("send", 0x20000100, 3)),
    writes={8: started(0x120)},
    locked=((0x500, 8, (0x524,)),),
)
TWIM = Part(
    "nRF52 TWIM",
    "nrf52.svd",
    0x40003000,
    "fields: {}",
    """bfGroup Err { bit OVERRUN; bit ANACK; bit DNACK; }; bfGroup Shorts { bit LASTTX_STARTRX; bit LASTTX_STOP; bit LASTRX_STOP; };
    bfGroup Twim { uint32 TASKS_STARTTX; uint32 EVENTS_STOPPED; bfGroup Shorts SHORTS; bfGroup Err ERRORSRC; uint4 ENABLE; uint32 FREQUENCY; uint32 TXD_PTR; uint8 TXD_MAXCNT; uint7 ADDRESS; };
    make_device(Twim, t, 0x40003000);
    void open(void) { t->ENABLE = 0; t->FREQUENCY = 0x01980000; t->SHORTS = (bfGroup Shorts){ .LASTTX_STOP = 1 }; t->ENABLE = 6; }
    int send(int a, int at, int n) { t->ADDRESS = a; t->TXD_PTR = at; t->TXD_MAXCNT = n; t->ERRORSRC = (bfGroup Err){ .OVERRUN = 1, .ANACK = 1, .DNACK = 1 };
        t->EVENTS_STOPPED = 0; t->TASKS_STARTTX = 1; while (!t->EVENTS_STOPPED) ; bfGroup Err e = t->ERRORSRC; return e.ANACK + 2 * e.DNACK; }""",
    """void open(void) { R(0x500) = 0; R(0x524) = 0x01980000; R(0x200) = 0x200; R(0x500) = 6; }
    int send(int a, int at, int n) { R(0x588) = a; R(0x544) = at; R(0x548) = n; R(0x4C4) = 7; R(0x104) = 0; R(8) = 1; while (!R(0x104)) ; unsigned e = R(0x4C4); return (e >> 1 & 1) + 2 * (e >> 2 & 1); }""",
    (("open",), ("send", 0x50, 0x20000000, 12)),
    clears={0x4C4: 7},
    writes={8: started(0x104)},
    locked=((0x500, 6, (0x524,)),),
)
FE_UART = Part(
    "FE310 UART",
    "e310x.svd",
    0x10013000,
    'fields: {"UART0.?xctrl.*": {plain: true}, UART0.div.value: {plain: true}}',
    """bfGroup Data { uint8 data; bit full; }; bfGroup Got { uint8 data; bit empty; }; bfGroup Tx { bit enable; bit nstop; uint3 counter; }; bfGroup Rx { bit enable; uint3 counter; };
    bfGroup Uart { bfGroup Data txdata; bfGroup Got rxdata; bfGroup Tx txctrl; bfGroup Rx rxctrl; uint16 div_value; };
    make_device(Uart, u, 0x10013000);
    void open(int d) { u->div_value = d; u->txctrl = (bfGroup Tx){ .enable = 1, .counter = 1 }; u->rxctrl = (bfGroup Rx){ .enable = 1 }; }
    void put(int c) { while (u->txdata.full) ; u->txdata = (bfGroup Data){ .data = c }; }
    int get(void) { bfGroup Got g = u->rxdata; return g.empty ? -1 : g.data; }""",
    """void open(int d) { R(0x18) = d & 0xFFFF; R(8) = 0x10001; R(12) = 1; }
    void put(int c) { while (R(0) >> 31) ; R(0) = c & 0xFF; }
    int get(void) { unsigned g = R(4); return g >> 31 ? -1 : (int)(g & 0xFF); }""",
    (("open", 138), ("put", 0x55), ("get",)),
    reads={0: toggled(1 << 31, 0), 4: pop},
    writes={0: push},
)
FE_GPIO = Part(
    "FE310 GPIO",
    "e310x.svd",
    0x10012000,
    'fields: {"GPIO0.*": {plain: true}, "GPIO0.value.*": {volatile: true, access: r}}',
    """bfGroup Pins { bit pin[32]; }; bfGroup Gpio { bfGroup Pins output_en; bfGroup Pins iof_en; bfGroup Pins port; bfGroup Pins value; };
    make_device(Gpio, g, 0x10012000);
    void open(void) { g->iof_en.pin[5] = 0; g->iof_en.pin[6] = 0; g->output_en.pin[5] = 1; g->output_en.pin[6] = 1; }
    void both(int a, int b) { g->port.pin[5] = a; g->port.pin[6] = b; }
    void toggle(void) { g->port.pin[5] ^= 1; }
    int look(void) { return g->value.pin[1] + 2 * g->value.pin[9]; }""",
    """void open(void) { R(0x38) &= ~0x60u; R(8) |= 0x60; }
    void both(int a, int b) { R(12) = (R(12) & ~0x60u) | (a & 1) << 5 | (b & 1) << 6; }
    void toggle(void) { R(12) ^= 0x20; }
    int look(void) { unsigned v = R(0); return (v >> 1 & 1) + 2 * (v >> 9 & 1); }""",
    (("open",), ("both", 1, 0), ("toggle",), ("look",)),
    reads={0: lambda c: 0x202},
)
STM_GPIO = Part(
    "STM32 GPIO",
    "",
    0x40000000,
    'fields: {"C.MODER.*": {plain: true}, "C.OSPEEDR.*": {plain: true}}',
    """bfGroup Bsrr { uint16 BS; uint16 BR; }; bfGroup Gpio { bfGroup Bsrr BSRR; uint2 MODER_M5; uint2 MODER_M6; uint2 OSPEEDR_S5; uint2 OSPEEDR_S6; uint16 ID; };
    make_device(Gpio, g, 0x40000000);
    void open(void) { g->MODER_M5 = 1; g->MODER_M6 = 1; g->OSPEEDR_S5 = 2; g->OSPEEDR_S6 = 3; }
    void pins(int s, int r) { g->BSRR = (bfGroup Bsrr){ .BS = s, .BR = r }; }
    int look(void) { return g->ID; }""",
    """void open(void) { R(0) = (R(0) & ~0x3C00u) | 0x1400; R(8) = (R(8) & ~0x3C00u) | 0x3800; }
    void pins(int s, int r) { R(0x18) = s | r << 16; }
    int look(void) { return R(0x10) & 0xFFFF; }""",
    (("open",), ("pins", 0x60, 1), ("pins", 0, 0x40), ("look",)),
    reads={0x10: lambda c: c.values.get(0x14, 0)},
    writes={0x18: set_reset},
    text="MODER@0: M5:10:2 M6:12:2 M7:14:2\nOSPEEDR@8: S5:10:2 S6:12:2 S7:14:2\nIDR@16: ID:0:16:r\nODR@20: OD:0:16\nBSRR@24: BS:0:16:w BR:16:16:w",
)
IWDG = Part(
    "STM32 IWDG",
    "",
    0x40000000,
    "fields: {C.KR.KEY: {wse: [self]}}",
    """bfGroup Iwdg { uint16 KEY; uint3 PR; uint12 RL; bit PVU; bit RVU; }; make_device(Iwdg, w, 0x40000000);
    void open(int p, int r) { w->KEY = 0xCCCC; w->KEY = 0x5555; w->PR = p; w->RL = r; while (w->PVU || w->RVU) ; w->KEY = 0xAAAA; }
    void kick(void) { w->KEY = 0xAAAA; }""",
    """void open(int p, int r) { R(0) = 0xCCCC; R(0) = 0x5555; R(4) = p; R(8) = r; while (R(12) & 3) ; R(0) = 0xAAAA; }
    void kick(void) { R(0) = 0xAAAA; }""",
    (("open", 4, 0xFFF), ("kick",), ("kick",)),
    reads={12: toggled(3, 1, 0)},
    writes={0: keyed, 4: behind_key(4), 8: behind_key(8)},
    text="KR@0: KEY:0:16:w\nPR@4: PR:0:3\nRLR@8: RL:0:12\nSR@12: PVU:0:1:r RVU:1:1:r",
)
USART = Part(
    "STM32 USART",
    "",
    0x40000000,
    'fields: {"C.CR1.*": {plain: true}}',
    """bfGroup Icr { bit ORECF; bit TCCF; bit FECF; }; bfGroup Isr { bit RXNE; bit TXE; bit TC; bit ORE; };
    bfGroup Usart { bit CR1_UE; bit CR1_RE; bit CR1_TE; bit CR1_PCE; uint16 BRR; bfGroup Isr ISR; bfGroup Icr ICR; uint9 RDR; uint9 TDR; };
    make_device(Usart, u, 0x40000000);
    void open(int b) { u->CR1_UE = 0; u->BRR = b; u->CR1_TE = 1; u->CR1_RE = 1; u->CR1_PCE = 0; u->CR1_UE = 1; }
    void put(int c) { while (!u->ISR.TXE) ; u->TDR = c; }
    int get(void) { bfGroup Isr s = u->ISR; if (s.ORE) u->ICR = (bfGroup Icr){ .ORECF = 1, .FECF = 1 }; return s.RXNE ? u->RDR : -1; }""",
    """void open(int b) { R(0) &= ~1u; R(12) = b; R(0) = (R(0) & ~0x400u) | 12; R(0) |= 1; }
    void put(int c) { while (!(R(0x1C) & 0x80)) ; R(0x28) = c & 0x1FF; }
    int get(void) { unsigned s = R(0x1C); if (s & 8) R(0x20) = 10; return s & 0x20 ? (int)(R(0x24) & 0x1FF) : -1; }""",
    (("open", 139), ("put", 0x31), ("get",)),
    reads={0x1C: toggled(0, 0x80, 0xA8), 0x24: pop},
    writes={0x28: push},
    locked=((0, 1, (12,)),),
    text="CR1@0: UE:0:1 RE:2:1 TE:3:1 PCE:10:1 M:12:1\nBRR@12: BRR:0:16\nISR@28: ORE:3:1:r RXNE:5:1:r TC:6:1:r TXE:7:1:r\n"
    "ICR@32: FECF:1:1:w:oneToClear ORECF:3:1:w:oneToClear TCCF:6:1:w:oneToClear\nRDR@36: RDR:0:9:r\nTDR@40: TDR:0:9",
)
PARTS = (I2C, UART, SPI, ADC, DMA, UARTE, TWIM, FE_UART, FE_GPIO, STM_GPIO, IWDG, USART)


@dataclass(frozen=True)
class Run:
    """Record of a program: (result, accesses) of each call, and what the chip holds at the end."""

    calls: tuple[tuple[int, int], ...]
    values: dict[int, int]
    sent: list[int]
    trace: list[tuple[str, int, int]]  # (kind, offset, value) of each access

    @property
    def accesses(self) -> int:
        return sum(n for _, n in self.calls)


def chip(part: Part, resets: dict[int, int]) -> Chip:
    return Chip(
        part.base,
        dict(resets),
        dict(part.clears),
        part.reads,
        part.writes,
        part.locked,
        span=part.span,
        sizes=part.sizes,
    )


def run(part: Part, elf: Path, resets: dict[int, int]) -> Run:
    """Raises BusError where the chip would misbehave."""
    silicon = chip(part, resets)
    machine = Machine(elf, {"chip": silicon})  # type: ignore[dict-item]
    results = []
    for function, *arguments in part.calls:
        before = len(silicon.trace)
        value = machine.call(str(function), *(a for a in arguments if isinstance(a, int)))
        void = f"void {function}(" in part.hand
        results.append((0 if void else value, len(silicon.trace) - before))
    return Run(tuple(results), silicon.values, silicon.sent, silicon.trace)


@cache
def cut(name: str, base: int) -> bytes:
    """A vendor's file with the peripherals at one address only, and those that they are derived from: the whole of it
    takes seconds to read (`test_registers` does that)."""
    tree = ElementTree.parse(SHARED / name)
    parent = tree.find("peripherals")
    assert parent is not None
    here = [p for p in parent if int(p.findtext("baseAddress", "0"), 0) == base]
    needed = {p.findtext("name") for p in here} | {p.get("derivedFrom") for p in here}
    for p in list(parent):
        if p.findtext("name") not in needed:
            parent.remove(p)
    return ElementTree.tostring(tree.getroot())


def compare(part: Part, folder: Path, cpp: bool = False) -> tuple[Run, Run]:
    """(by hand, generated); `cpp`: the driver as C++, with C's names for the linker."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "chip.svd"
    text = part.text if part.text.startswith("<") else svd(part.text)
    file.write_bytes(cut(part.file, part.base) if part.file else text.encode())
    (folder / "chip.overlay.yaml").write_text(part.overlay)
    block = next(b for b in read_map(file).blocks if b.base == part.base)
    resets = {r.offset: r.reset for r in block.registers if r.reset}
    source = f'extern "C" {{\n{part.source}\n}}\n' if cpp else part.source
    build(folder, source, layout=f"fixed:{file}", cpp=cpp)
    head = "".join(
        f"#define {name}(offset) (*(volatile unsigned {type_} *)({part.base:#x}u + (offset)))\n"
        for name, type_ in (("R", "int"), ("R16", "short"), ("R8", "char"))
    )
    (folder / "hand.c").write_text(head + part.hand)
    hand = link(folder, ["hand.c"], output="hand.elf")
    return run(part, hand, resets), run(part, folder / "case.elf", resets)
