# ruff: noqa: E501  (C on one line reads better here)
"""Nine drivers of parts whose descriptions say nothing of flags, beside code by hand, with the ready overlays alone.

Registers are those of RM0383 (STM32F411) and, of USB, RM0008 (STM32F103); the descriptions have ST's names and kinds of
access, and no effects. Models raise where the silicon would lose a flag.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.base.request import DriverRequest
from edgebuild.driver.pipeline import compile_driver, template
from tests.drivers.cases import svd
from tests.drivers.machine import BusError
from tests.drivers.silicon import ON_WRITE, Chip, Part, compare, toggled


def described(block: str, base: int, registers: str, device: str = "STM32F411") -> str:
    text = svd(registers).replace("<name>X<", f"<name>{device}<").replace("<name>C<", f"<name>{block}<")
    return text.replace("0x40000000", f"{base:#x}")


def rc_w0(offset: int, mask: int, meant: int) -> ON_WRITE:
    """Flags that a 0 clears; `meant`: those that a driver may clear."""

    def write(chip: Chip, value: int) -> None:
        if ~value & mask & ~meant:
            raise BusError(f"flags {~value & mask & ~meant:#x} are lost")
        chip.values[offset] = chip.values.get(offset, 0) & (value | ~mask)

    return write


def endpoint(chip: Chip, value: int) -> None:
    """EPnR: toggles must get 0, and CTR_TX a 1."""
    if value & 0x7070 or not value & 0x80:
        raise BusError(f"EP0R gets {value:#x}")
    chip.values[0] = value & 0x8F0F | chip.values.get(0, 0) & 0x7070


def started_once(chip: Chip, value: int) -> None:
    chip.values[0] = value & ~0x300  # START and STOP clear themselves


def erased(chip: Chip, value: int) -> None:
    chip.values[16] = value & ~0x10000  # STRT clears itself


CR1 = "bfGroup Cr1 { bit RE; bit TE; bit RXNEIE; bit UE; };"
USART = Part(
    "USART", "", 0x40011000, "fields: {}",
    f"""bfGroup Sr {{ bit ORE; bit RXNE; bit TC; bit TXE; }}; {CR1} bfGroup Usart {{ bfGroup Sr SR; uint9 DR; uint16 BRR; bfGroup Cr1 CR1; }};
    make_device(Usart, u, 0x40011000);
    void open(int d) {{ u->CR1.UE = 0; u->BRR = d; u->CR1.RE = 1; u->CR1.TE = 1; u->CR1.RXNEIE = 1; u->CR1.UE = 1; }}
    void put(int c) {{ while (!u->SR.TXE) ; u->DR = c; }}
    void done(void) {{ u->SR.TC = 0; }}
    int get(void) {{ bfGroup Sr s = u->SR; return s.RXNE ? u->DR : -1; }}""",
    """void open(int d) { R(12) &= ~0x2000u; R(8) = d; R(12) |= 0x2C; R(12) |= 0x2000; }
    void put(int c) { while (!(R(0) & 0x80)) ; R(4) = c; }
    void done(void) { R(0) = ~0x40u; }
    int get(void) { return R(0) & 0x20 ? (int)(R(4) & 0x1FF) : -1; }""",
    (("open", 69), ("put", 65), ("done",), ("get",)),
    reads={0: toggled(0x40, 0xC0, 0xE0)},
    writes={0: rc_w0(0, 0x360, 0x40)},
    text=described("USART1", 0x40011000, "SR@0: CTS:9:1 LBD:8:1 TXE:7:1:r TC:6:1 RXNE:5:1 IDLE:4:1:r ORE:3:1:r\nDR@4: DR:0:9\nBRR@8: DIV_Mantissa:4:12 DIV_Fraction:0:4\nCR1@12: UE:13:1 M:12:1 RXNEIE:5:1 TE:3:1 RE:2:1"),
)  # fmt: skip
SPI = Part(
    "SPI of 8 bits", "", 0x40013000, "fields: {}",
    """bfGroup Spi { uint3 BR; bit MSTR; bit SPE; uint4 DS; bit FRXTH; bit TXE; bit RXNE; bit CRCERR; uint8 DR; };
    make_device(Spi, s, 0x40013000);
    void open(int br) { s->BR = br; s->MSTR = 1; s->DS = 7; s->FRXTH = 1; s->SPE = 1; }
    int byte(int b) { while (!s->TXE) ; s->DR = b; while (!s->RXNE) ; return s->DR; }
    void again(void) { s->CRCERR = 0; }""",
    """void open(int br) { R(0) = (R(0) & ~0x38u) | (br & 7) << 3 | 4; R(4) = (R(4) & ~0xF00u) | 0x1700; R(0) |= 0x40; }
    int byte(int b) { while (!(R(8) & 2)) ; R8(12) = b; while (!(R(8) & 1)) ; return R8(12); }
    void again(void) { R(8) = ~0x10u; }""",
    (("open", 3), ("byte", 0x155), ("again",)),
    reads={8: toggled(0, 2, 0, 1)},
    writes={8: rc_w0(8, 0x10, 0x10)},
    sizes={12: 1},
    text=described("SPI1", 0x40013000, "CR1@0: BR:3:3 MSTR:2:1 SPE:6:1\nCR2@4: DS:8:4 FRXTH:12:1\nSR@8: TXE:1:1:r RXNE:0:1:r CRCERR:4:1 BSY:7:1:r\nDR@12: DR:0:16", "STM32F767"),
)  # fmt: skip
I2C = Part(
    "I2C", "", 0x40005400, "fields: {}",
    """bfGroup Cr1 { bit PE; bit START; bit STOP; }; bfGroup Sr1 { bit SB; bit ADDR; bit AF; }; bfGroup Sr2 { bit BUSY; };
    bfGroup I2c { bfGroup Cr1 CR1; bfGroup Sr1 SR1; bfGroup Sr2 SR2; uint8 DR; };
    make_device(I2c, i, 0x40005400);
    int begin(int a) { i->CR1.START = 1; while (!i->SR1.SB) ; i->DR = a << 1; while (!i->SR1.ADDR) ; (void)i->SR2; return 0; }
    void failed(void) { i->SR1.AF = 0; i->CR1.STOP = 1; }""",
    """int begin(int a) { R(0) |= 0x100; while (!(R(20) & 1)) ; R(16) = (a << 1) & 0xFF; while (!(R(20) & 2)) ; (void)R(24); return 0; }
    void failed(void) { R(20) = ~0x400u; R(0) |= 0x200; }""",
    (("begin", 0x21), ("failed",)),
    reads={20: toggled(0, 1, 0, 2)},
    writes={0: started_once, 20: rc_w0(20, 0xDF00, 0x400)},
    text=described("I2C1", 0x40005400, "CR1@0: PE:0:1 START:8:1 STOP:9:1\nDR@16: DR:0:8\nSR1@20: SB:0:1:r ADDR:1:1:r BERR:8:1 ARLO:9:1 AF:10:1 OVR:11:1 PECERR:12:1 TIMEOUT:14:1 SMBALERT:15:1\nSR2@24: BUSY:1:1:r"),
)  # fmt: skip
ADC = Part(
    "ADC", "", 0x40012000, "fields: {}",
    """bfGroup Adc { bit EOC; bit OVR; bit STRT; bit ADON; bit EOCS; bit SWSTART; uint5 SQ1; uint16 DR; };
    make_device(Adc, a, 0x40012000);
    int convert(int c) { a->SQ1 = c; a->EOC = 0; a->SWSTART = 1; while (!a->EOC) ; return a->DR; }
    void overrun(void) { a->OVR = 0; }""",
    """int convert(int c) { R(52) = (R(52) & ~31u) | (c & 31); R(0) = ~2u; R(8) |= 1u << 30; while (!(R(0) & 2)) ; return R(76) & 0xFFFF; }
    void overrun(void) { R(0) = ~0x20u; }""",
    (("convert", 3), ("overrun",)),
    reads={0: toggled(0, 2), 76: lambda chip: 0x123},
    writes={0: rc_w0(0, 0x3F, 0x22)},
    text=described("ADC1", 0x40012000, "SR@0: OVR:5:1 STRT:4:1 JSTRT:3:1 JEOC:2:1 EOC:1:1 AWD:0:1\nCR2@8: ADON:0:1 EOCS:10:1 SWSTART:30:1\nSQR3@52: SQ1:0:5 SQ2:5:5\nDR@76: DATA:0:16:r"),
)  # fmt: skip
TIM = Part(
    "TIM2", "", 0x40000000, "fields: {}",
    """bfGroup Tim { bit CEN; bit URS; bit UIE; uint16 SR; bit UG; uint16 PSC; uint32 ARR; uint32 CNT; };
    make_device(Tim, t, 0x40000000);
    void open(int p, int n) { t->CEN = 0; t->PSC = p; t->ARR = n; t->UG = 1; t->UIE = 1; t->CEN = 1; }
    int now(void) { return t->CNT; }
    void done(void) { if (t->SR & 1) t->SR = ~1; }""",
    """void open(int p, int n) { R(0) &= ~1u; R(40) = p & 0xFFFF; R(44) = n; R(20) = 1; R(12) |= 1; R(0) |= 1; }
    int now(void) { return R(36); }
    void done(void) { if (R(16) & 1) R(16) = 0xFFFE; }""",
    (("open", 83, 70000), ("now",), ("done",)),
    reads={16: lambda chip: 3},
    writes={16: rc_w0(16, 0x1E5F, 1)},
    text=described("TIM2", 0x40000000, "CR1@0: CEN:0:1 URS:2:1\nDIER@12: UIE:0:1 CC1IE:1:1\nSR@16: UIF:0:1 CC1IF:1:1 CC2IF:2:1 TIF:6:1 CC1OF:9:1\nEGR@20: UG:0:1:w CC1G:1:1:w\nCNT@36: CNT_L:0:16 CNT_H:16:16\nPSC@40: PSC:0:16\nARR@44: ARR_L:0:16 ARR_H:16:16"),
)  # fmt: skip
FLASH = Part(
    "FLASH", "", 0x40023C00, "fields: {}",
    """bfGroup Flash { uint32 KEYR; bit EOP; bit WRPERR; bit BSY; bit SER; uint4 SNB; uint2 PSIZE; bit STRT; bit LOCK; };
    make_device(Flash, f, 0x40023C00);
    void unlock(void) { f->KEYR = 0x45670123; f->KEYR = 0xCDEF89AB; }
    int erase(int n) { while (f->BSY) ; f->PSIZE = 2; f->SER = 1; f->SNB = n; f->STRT = 1; while (f->BSY) ; f->SER = 0; f->SNB = 0; f->EOP = 1; return f->WRPERR; }""",
    """void unlock(void) { R(4) = 0x45670123; R(4) = 0xCDEF89AB; }
    int erase(int n) { while (R(12) & 0x10000) ; R(16) = (R(16) & ~0x37Au) | 0x202 | (n & 15) << 3; R(16) |= 0x10000; while (R(12) & 0x10000) ; R(16) &= ~0x7Au; R(12) = 1; return R(12) >> 4 & 1; }""",
    (("unlock",), ("erase", 5)),
    clears={12: 0xF3},
    reads={12: toggled(0x10000, 0, 0x10000, 0, 0)},
    writes={16: erased},
    text=described("FLASH", 0x40023C00, "KEYR@4: KEY:0:32:w\nSR@12: EOP:0:1 OPERR:1:1 WRPERR:4:1 PGAERR:5:1 PGPERR:6:1 PGSERR:7:1 BSY:16:1:r\nCR@16: PG:0:1 SER:1:1 MER:2:1 SNB:3:4 PSIZE:8:2 STRT:16:1 LOCK:31:1"),
)  # fmt: skip
WWDG = Part(
    "WWDG", "", 0x40002C00, "fields: {}",
    """bfGroup Cr { uint7 T; bit WDGA; }; bfGroup Wwdg { bfGroup Cr CR; uint7 W; bit EWI; bit EWIF; };
    make_device(Wwdg, w, 0x40002C00);
    void open(int n) { w->W = n; w->EWI = 1; w->CR = (bfGroup Cr){ .T = 0x7F, .WDGA = 1 }; }
    void kick(void) { w->CR.T = 0x60; }
    void early(void) { w->EWIF = 0; }""",
    """void open(int n) { R(4) = (R(4) & ~0x7Fu) | (n & 0x7F); R(4) |= 0x200; R(0) = 0xFF; }
    void kick(void) { R(0) = 0x60; }
    void early(void) { R(8) = 0; }""",
    (("open", 0x50), ("kick",), ("early",)),
    text=described("WWDG", 0x40002C00, "CR@0: T:0:7 WDGA:7:1\nCFR@4: W:0:7 EWI:9:1\nSR@8: EWIF:0:1"),
)  # fmt: skip
PINS = " ".join(f"MODER{n}:{2 * n}:2" for n in range(16))
GPIO = Part(
    "GPIO", "", 0x40020000, "fields: {}",
    """bfGroup Gpio { uint2 MODER[16]; bit OTYPER[16]; uint16 IDR; uint32 BSRR; };
    make_device(Gpio, g, 0x40020000);
    void pin(int n, int m) { g->MODER[n] = m; }
    void leds(void) { g->MODER[5] = 1; g->MODER[6] = 1; g->OTYPER[5] = 0; g->OTYPER[6] = 0; }
    void set(int m) { g->BSRR = m; }
    int port(void) { return g->IDR; }""",
    """void pin(int n, int m) { R(0) = (R(0) & ~(3u << 2 * n)) | (m & 3) << 2 * n; }
    void leds(void) { R(0) = (R(0) & ~0x3C00u) | 0x1400; R(4) &= ~0x60u; }
    void set(int m) { R(24) = m; }
    int port(void) { return R(16) & 0xFFFF; }""",
    (("pin", 3, 2), ("leds",), ("set", 0x60), ("port",)),
    text=described("GPIOA", 0x40020000, f"MODER@0: {PINS}\nOTYPER@4: " + " ".join(f"OT{n}:{n}:1" for n in range(16)) + "\nIDR@16: " + " ".join(f"IDR{n}:{n}:1:r" for n in range(16)) + "\nBSRR@24: " + " ".join(f"BS{n}:{n}:1:w BR{n}:{n + 16}:1:w" for n in range(16))),
)  # fmt: skip
USB = Part(
    "USB", "", 0x40005C00, "fields: {}",
    """bfGroup Usb { bit EP0R_CTR_RX; uint2 EP0R_EP_TYPE; bit RESET; };
    make_device(Usb, u, 0x40005C00);
    void received(void) { u->EP0R_CTR_RX = 0; }
    void control(void) { u->EP0R_EP_TYPE = 1; }
    void reset_(void) { u->RESET = 0; }""",
    """void received(void) { R(0) = (R(0) & 0x70F) | 0x80; }
    void control(void) { R(0) = (R(0) & 0x10F) | 0x8280; }
    void reset_(void) { R(68) = ~0x400u; }""",
    (("received",), ("control",), ("reset_",)),
    writes={0: endpoint, 68: rc_w0(68, 0x7F00, 0x400)},
    text=described("USB", 0x40005C00, "EP0R@0: EA:0:4 STAT_TX:4:2 DTOG_TX:6:1 CTR_TX:7:1 EP_KIND:8:1 EP_TYPE:9:2 SETUP:11:1 STAT_RX:12:2 DTOG_RX:14:1 CTR_RX:15:1\nISTR@68: EP_ID:0:4 DIR:4:1 ESOF:8:1 SOF:9:1 RESET:10:1 SUSP:11:1 WKUP:12:1 ERR:13:1 PMAOVR:14:1 CTR:15:1", "STM32F103xx"),
)  # fmt: skip
PARTS = (USART, SPI, I2C, ADC, TIM, FLASH, WWDG, GPIO, USB)


@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.name.replace(" ", "_"))
def test_as_good_as_by_hand(part: Part, tmp_path: Path) -> None:
    hand, generated = compare(part, tmp_path)
    assert [v for v, _ in generated.calls] == [v for v, _ in hand.calls]
    assert (generated.values, generated.sent) == (hand.values, hand.sent)
    for (_, by_hand), (_, now) in zip(hand.calls, generated.calls, strict=True):
        assert now <= by_hand, (hand.trace, generated.trace)


def request(part: Part, folder: Path, device: str = "") -> DriverRequest:
    text = part.text.replace("<name>STM32F411<", f"<name>{device}<") if device else part.text
    (folder / "chip.svd").write_text(text)
    (folder / "d.bf.c").write_text(part.source)
    return DriverRequest((folder / "d.bf.c",), "d", "mps2-an386", f"fixed:{folder / 'chip.svd'}")


@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.name.replace(" ", "_"))
def test_settings_give_no_warning(part: Part, tmp_path: Path) -> None:
    """The one of I2C is about START and STOP, which the part clears by itself."""
    _, driver = compile_driver(request(part, tmp_path))
    assert len(driver.warnings) == (part is I2C), [w.text for w in driver.warnings]


@pytest.mark.parametrize("part", [USART, I2C, ADC, FLASH], ids=lambda p: p.name)
def test_flags_of_an_unknown_part_are_not_destroyed(part: Part, tmp_path: Path) -> None:
    with pytest.raises(EdgebuildError, match="may destroy it: it looks like a flag"):
        compile_driver(request(part, tmp_path, "Z80"))


def test_template_says_what_is_assumed(tmp_path: Path) -> None:
    text = template(request(USART, tmp_path, "Z80"))
    assert "\n  USART1.SR.LBD: {write: modify}  # read-write, bit 8; not used; assumed: it looks like a flag" in text
    assert "\n  # USART1.CR1.UE: {plain: true}  # read-write, bit 13; written at line" in text
    (tmp_path / "chip.overlay.yaml").write_text(text.replace("write: modify", "write: zeroToClear"))
    _, driver = compile_driver(request(USART, tmp_path, "Z80"))
    assert not driver.warnings
