# ruff: noqa: E501  (C on one line reads better here)
"""Idioms of six more families: keys beside what they guard, triples of enable, disable and mask, ports that toggle."""

from __future__ import annotations

from tests.drivers.held_chips import RO, WO, cluster, device, many
from tests.drivers.held_exact2 import register
from tests.drivers.silicon import BusError, Part, toggled


def acting(at, kind, source=None):
    """A write sets, clears or toggles the bits of another register."""

    def w(chip, v):
        old = chip.values.get(at, 0)
        chip.values[at] = {"set": old | v, "clear": old & ~v, "toggle": old ^ v}[kind]
        chip.sent.append(v)

    return w


def with_key(at, shift, width, key, keep):
    """A register that takes a write with its key alone, and reads without it."""

    def w(chip, v):
        if v >> shift & ((1 << width) - 1) != key:
            raise BusError(f"{at:#x} is written without its key")
        chip.values[at] = v & keep

    return w


# ---- Infineon XMC4500 USIC and PORT (reference manual, chapters 18 and 26): one register in three protocols, a bit that
# lets another one be written, outputs that toggle where both halves are set


def usic_mode(chip, v):
    if v & 1 and not v & 2:
        raise BusError("MODEN without BPMODEN")
    chip.values[12] = v & 1


def omr(chip, v):
    s, r = v & 0xFFFF, v >> 16
    chip.values[0x100] = (chip.values.get(0x100, 0) | s & ~r) & ~(r & ~s) ^ (s & r)


def psr(chip, v):
    chip.values[0x48] = chip.values.get(0x48, 0x2000) & ~v
    chip.sent.append(v)


XMC = Part(
    "XMC4500 USIC and PORT",
    "",
    0x40000000,
    'fields: {"C.FDR.*": {plain: true}, "C.BRG.*": {plain: true}, "C.PCR*": {plain: true}, "C.CCR.*": {plain: true}, "C.TBUF*.*": {wse: [self]}, "C.IOCR*.*": {plain: true}, "C.PSCR.*": {back: "0"}}',
    """enum Mode { OFF, SSC, ASC };
bfGroup Ks { bit MODEN; bit BPMODEN; }; bfGroup Fdr { uint10 STEP; uint2 DM; }; bfGroup Asc { bit SMD; bit STPB; uint5 SP; uint3 PL; }; bfGroup Ssc { bit MSLSEN; bit SELCTR; uint2 SELO; };
bfGroup Io { uint5 PC0; uint5 PC1; uint5 PC2; uint5 PC3; }; bfGroup Omr { bit PS[16]; bit PR[16]; };
bfGroup Usic { bfGroup Ks KSCFG; bfGroup Fdr FDR; uint10 BRG_PDIV; bfGroup Asc PCR_ASCMode; bfGroup Ssc PCR_SSCMode; uint4 CCR_MODE; bit TBIF; bit PSCR_CTBIF; bit PSCR_CTSIF; uint16 TBUF[32]; bfGroup Io IOCR0; bfGroup Io IOCR4; bfGroup Omr OMR; };
make_device(Usic, u, 0x40000000);
void open(int step, int pdiv) { u->KSCFG = (bfGroup Ks){ .MODEN = 1, .BPMODEN = 1 }; u->CCR_MODE = 0; u->FDR.STEP = step; u->FDR.DM = 2; u->BRG_PDIV = pdiv; u->PCR_ASCMode.SMD = 1; u->PCR_ASCMode.STPB = 1; u->PCR_ASCMode.SP = 9; u->CCR_MODE = 2; }
void master(void) { u->CCR_MODE = 0; u->PCR_SSCMode.MSLSEN = 1; u->PCR_SSCMode.SELO = 2; u->CCR_MODE = 1; }
void put(int c) { u->TBUF[0] = c; while (!u->TBIF) ; u->PSCR_CTBIF = 1; u->PSCR_CTSIF = 1; }
void last(int c) { u->TBUF[31] = c; u->TBUF[31] = c; }
void pins(void) { u->IOCR0.PC1 = 0x10; u->IOCR0.PC3 = 0x12; u->IOCR4.PC0 = 2; }
void toggle(void) { u->OMR = (bfGroup Omr){ .PS[5] = 1, .PR[5] = 1 }; }""",
    """void open(int step, int pdiv) { R(12) = 3; R(0x40) &= ~15u; R(16) = step | 2 << 14; R(20) = (R(20) & ~(1023u << 16)) | pdiv << 16; R(0x3C) = (R(0x3C) & ~0x1F03u) | 3 | 9 << 8; R(0x40) = (R(0x40) & ~15u) | 2; }
void master(void) { R(0x40) &= ~15u; R(0x3C) = (R(0x3C) & ~0x30001u) | 1 | 2 << 16; R(0x40) = (R(0x40) & ~15u) | 1; }
void put(int c) { R(0x80) = c & 0xFFFF; while (!(R(0x48) & 0x2000)) ; R(0x4C) = 0x2000; R(0x4C) = 0x1000; }
void last(int c) { R(0xFC) = c & 0xFFFF; R(0xFC) = c & 0xFFFF; }
void pins(void) { R(0x110) = (R(0x110) & ~0xF800F800u) | 0x10 << 11 | 0x12u << 27; R(0x114) = (R(0x114) & ~0xF8u) | 2 << 3; }
void toggle(void) { R(0x104) = 0x200020; }""",
    (("open", 700, 33), ("put", 0x41), ("master",), ("put", 0x42), ("last", 7), ("pins",), ("toggle",), ("toggle",)),
    reads={0x48: toggled(0, 0x2000)},
    writes={12: usic_mode, 0x104: omr, 0x4C: psr},
    locked=((0x40, 15, (16, 20, 0x3C)),),
    text=device(
        register("KSCFG", 12, 32, "MODEN:0:1 NOMCFG:4:2").replace(
            "</fields>", f"<field><name>BPMODEN</name><bitRange>[1:1]</bitRange>{WO}</field></fields>"
        ),
        register("FDR", 16, 32, "STEP:0:10 DM:14:2").replace(
            "</fields>", f"<field><name>RESULT</name><bitRange>[25:16]</bitRange>{RO}</field></fields>"
        ),
        register("BRG", 20, 32, "CLKSEL:0:2 PCTQ:8:2 DCTQ:10:5 PDIV:16:10"),
        register("PCR", 0x3C, 32, " ".join(f"CTR{i}:{i}:1" for i in range(32))),
        register(
            "PCR_ASCMode",
            0x3C,
            32,
            "SMD:0:1 STPB:1:1 IDM:2:1 SP:8:5 PL:13:3 MCLK:31:1",
            "<alternateRegister>PCR</alternateRegister>",
        ),
        register(
            "PCR_SSCMode",
            0x3C,
            32,
            "MSLSEN:0:1 SELCTR:1:1 SELO:16:2 MCLK:31:1",
            "<alternateRegister>PCR</alternateRegister>",
        ),
        register("CCR", 0x40, 32, "MODE:0:4 HPCEN:6:2 PM:8:2 TBIEN:13:1"),
        register("PSR", 0x48, 32, "TSIF:12:1 TBIF:13:1", RO),
        register("PSCR", 0x4C, 32, "CTSIF:12:1 CTBIF:13:1", WO),
        many(32, 4, register("TBUF[%s]", 0x80, 32, "TDATA:0:16")),
        register("IOCR0", 0x110, 32, "PC0:3:5 PC1:11:5 PC2:19:5 PC3:27:5"),
        register("IOCR4", 0x114, 32, "PC0:3:5 PC1:11:5 PC2:19:5 PC3:27:5"),
        register("OMR", 0x104, 32, " ".join(f"PS{i}:{i}:1 PR{i}:{i + 16}:1" for i in range(16)), WO),
    ),
)

# ---- Microchip PIC32MX ports and oscillator (61120, 61112): SET, CLR and INV of every register, an unlock sequence


def syskey(chip, v):
    chip.state["key"] = (
        (chip.state.get("key", 0) << 1 | 1)
        if v in (0xAA996655, 0x556699AA) and v == (0x556699AA if chip.state.get("key") else 0xAA996655)
        else 0
    )


def osccon(chip, v):
    if chip.state.get("key") != 3:
        raise BusError("OSCCON is locked")
    chip.values[0x200] = v


PIC32 = Part(
    "PIC32MX",
    "",
    0x40000000,
    'fields: {"C.*SET.*": {back: "0"}, "C.*CLR.*": {back: "0"}, "C.*INV.*": {back: "0"}, "C.LATB.*": {plain: true}, "C.OSCCON.*": {plain: true}, "C.OSCCON.OSWEN": {plain: false, volatile: true, back: "0"}, C.SYSKEY.*: {wse: [self]}}',
    """bfGroup Lat { bit B0; bit B5; bit B15; }; bfGroup Osc { bit OSWEN; uint3 NOSC; uint3 COSC; };
bfGroup Pic { bfGroup Lat LATB; bfGroup Lat LATBCLR; bfGroup Lat LATBSET; bfGroup Lat LATBINV; bfGroup Lat TRISBCLR; bfGroup Osc OSCCON; uint32 SYSKEY; };
make_device(Pic, pic, 0x40000000);
void out(void) { pic->TRISBCLR.B5 = 1; pic->TRISBCLR = (bfGroup Lat){ .B0 = 1, .B15 = 1 }; }
void blink(void) { pic->LATBINV.B5 = 1; pic->LATBSET.B0 = 1; pic->LATBCLR.B15 = 1; }
void all(int a, int b) { pic->LATB.B0 = a; pic->LATB.B5 = b; }
void clock(int n) { pic->SYSKEY = 0; pic->SYSKEY = 0xAA996655; pic->SYSKEY = 0x556699AA; pic->OSCCON.NOSC = n; pic->OSCCON.OSWEN = 1; pic->SYSKEY = 0; while (pic->OSCCON.OSWEN) ; }""",
    """void out(void) { R(0x44) = 32; R(0x44) = 0x8001; }
void blink(void) { R(0x2C) = 32; R(0x28) = 1; R(0x24) = 0x8000; }
void all(int a, int b) { R(0x20) = (R(0x20) & ~0x21u) | (a & 1) | (b & 1) << 5; }
void clock(int n) { R(0x230) = 0; R(0x230) = 0xAA996655; R(0x230) = 0x556699AA; R(0x200) = (R(0x200) & ~0x7701u) | n << 8; R(0x200) = (R(0x200) & ~0x7001u) | 1; R(0x230) = 0; while (R(0x200) & 1) ; }""",
    (("out",), ("blink",), ("blink",), ("all", 0, 1), ("clock", 3)),
    reads={
        0x200: lambda c: (
            c.values.get(0x200, 0x3200) & (~1 if c.state.setdefault("n", 0) > 1 else ~0)
            if not c.state.update(n=c.state.get("n", 0) + 1)
            else 0
        )
    },
    writes={
        0x24: acting(0x20, "clear"),
        0x28: acting(0x20, "set"),
        0x2C: acting(0x20, "toggle"),
        0x44: acting(0x40, "clear"),
        0x230: syskey,
        0x200: osccon,
    },
    text=device(
        *(
            register(f"{n}{word}", at + 4 * i, 32, "B0:0:1 B5:5:1 B15:15:1")
            for n, at in (("LATB", 0x20), ("TRISB", 0x40))
            for i, word in enumerate(("", "CLR", "SET", "INV"))
        ),
        register("OSCCON", 0x200, 32, "OSWEN:0:1 SLPEN:4:1 NOSC:8:3 PBDIV:19:2").replace(
            "</fields>", f"<field><name>COSC</name><bitRange>[14:12]</bitRange>{RO}</field></fields>"
        ),
        register("SYSKEY", 0x230, 32, "SYSKEY:0:32", WO),
    ),
)

# ---- TI MSPM0 GPIO (SLAU846): keys in the upper byte of what they guard, interrupts as IIDX, IMASK, RIS, MIS, ISET, ICLR


def reset_control(chip, v):
    if v >> 24 != 0xB1:
        raise BusError("RSTCTL without its key")
    chip.sent.append(v & 3)


def powered(at):
    def w(chip, v):
        if not chip.values.get(0x800):
            raise BusError("GPIO has no power")
        chip.values[at] = v

    return w


def take_first(chip):
    n = next((i for i in range(32) if chip.values.get(0x1030, 0x30) >> i & 1), None)
    chip.values[0x1030] = chip.values.get(0x1030, 0x30) & ~(1 << n) if n is not None else 0
    return 0 if n is None else n + 1


MSPM0 = Part(
    "MSPM0 GPIO",
    "",
    0x40000000,
    'fields: {"C.CPU_INT_IMASK.*": {plain: true}, "C.CPU_INT_ICLR.*": {back: "0"}, "C.DOE*.*": {back: "0"}, "C.DOUT*.*": {back: "0"}, "C.CPU_INT_IIDX.*": {rse: [self]}, "C.POLARITY15_0.*": {plain: true}}',
    """bfGroup Pw { uint8 KEY; bit ENABLE; }; bfGroup Rst { uint8 KEY; bit RESETSTKYCLR; bit RESETASSERT; }; bfGroup Pins { bit DIO0; bit DIO4; bit DIO5; }; bfGroup Pol { uint2 DIO4; uint2 DIO5; };
bfGroup Cpu { uint8 IIDX; bfGroup Pins IMASK; bfGroup Pins ICLR; };
bfGroup Gpio { bfGroup Pw GPRCM_PWREN; bfGroup Rst GPRCM_RSTCTL; bfGroup Cpu CPU_INT; bfGroup Pins DOESET31_0; bfGroup Pins DOUTSET31_0; bfGroup Pins DOUTTGL31_0; bfGroup Pol POLARITY15_0; };
make_device(Gpio, g, 0x40000000);
void open(void) { g->GPRCM_RSTCTL = (bfGroup Rst){ .KEY = 0xB1, .RESETSTKYCLR = 1, .RESETASSERT = 1 }; g->GPRCM_PWREN = (bfGroup Pw){ .KEY = 0x26, .ENABLE = 1 }; g->DOUTSET31_0.DIO0 = 1; g->DOESET31_0.DIO0 = 1; g->POLARITY15_0.DIO4 = 1; g->POLARITY15_0.DIO5 = 2; g->CPU_INT.ICLR = (bfGroup Pins){ .DIO4 = 1, .DIO5 = 1 }; g->CPU_INT.IMASK.DIO4 = 1; g->CPU_INT.IMASK.DIO5 = 1; }
void toggle(void) { g->DOUTTGL31_0.DIO0 = 1; g->DOUTTGL31_0.DIO0 = 1; g->DOUTTGL31_0.DIO4 = 1; }
int irq(void) { int sum = 0; for (int i = g->CPU_INT.IIDX; i; i = g->CPU_INT.IIDX) sum = sum * 10 + i; return sum; }
void off(void) { g->GPRCM_PWREN = (bfGroup Pw){ .KEY = 0x26 }; }""",
    """void open(void) { R(0x804) = 0xB1000003; R(0x800) = 0x26000001; R(0x1290) = 1; R(0x12D0) = 1; R(0x1390) = (R(0x1390) & ~0xF00u) | 0x900; R(0x1048) = 0x30; R(0x1028) |= 0x30; }
void toggle(void) { R(0x12B0) = 1; R(0x12B0) = 1; R(0x12B0) = 16; }
int irq(void) { int sum = 0; for (int i = R(0x1020) & 255; i; i = R(0x1020) & 255) sum = sum * 10 + i; return sum; }
void off(void) { R(0x800) = 0x26000000; }""",
    (("open",), ("toggle",), ("irq",), ("off",)),
    reads={0x1020: take_first},
    writes={
        0x800: with_key(0x800, 24, 8, 0x26, 1),
        0x804: reset_control,
        0x1290: acting(0x1280, "set"),
        0x12D0: acting(0x12C0, "set"),
        0x12B0: acting(0x1280, "toggle"),
        0x1390: powered(0x1390),
        0x1028: powered(0x1028),
    },
    text=device(
        cluster(
            "GPRCM",
            0x800,
            register("PWREN", 0, 32, "ENABLE:0:1").replace(
                "</fields>", f"<field><name>KEY</name><bitRange>[31:24]</bitRange>{WO}</field></fields>"
            ),
            register("RSTCTL", 4, 32, "RESETASSERT:0:1 RESETSTKYCLR:1:1 KEY:24:8", WO),
        ),
        cluster(
            "CPU_INT",
            0x1020,
            register("IIDX", 0, 32, "STAT:0:8", RO),
            *(
                register(n, at, 32, "DIO0:0:1 DIO4:4:1 DIO5:5:1", more)
                for n, at, more in (
                    ("IMASK", 8, ""),
                    ("RIS", 16, RO),
                    ("MIS", 24, RO),
                    ("ISET", 32, WO),
                    ("ICLR", 40, WO),
                )
            ),
        ),
        *(
            register(n, at, 32, "DIO0:0:1 DIO4:4:1 DIO5:5:1")
            for n, at in (
                ("DOUT31_0", 0x1280),
                ("DOUTSET31_0", 0x1290),
                ("DOUTCLR31_0", 0x12A0),
                ("DOUTTGL31_0", 0x12B0),
                ("DOE31_0", 0x12C0),
                ("DOESET31_0", 0x12D0),
                ("DOECLR31_0", 0x12E0),
            )
        ),
        register("POLARITY15_0", 0x1390, 32, " ".join(f"DIO{i}:{2 * i}:2" for i in range(16))),
    ),
    span=0x2000,
)

# ---- Renesas RA4M1 (R01UH0887): a key in the upper half, two steps to one bit, pins of 32 bits, a clock that takes time


def prcr(chip, v):
    if v >> 8 != 0xA5:
        raise BusError("PRCR without its key")
    chip.values[0x3FE] = v & 0xFF


def pwpr(chip, v):
    if v & 0x40 and chip.values.get(0xD03, 0x80) & 0x80:
        raise BusError("PFSWE while B0WI is 1")
    chip.values[0xD03] = v & 0xC0


def guarded(at, register, bit):
    def w(chip, v):
        if not chip.values.get(register, 0) & bit:
            raise BusError(f"{at:#x} is protected")
        chip.values[at] = v

    return w


RA = Part(
    "Renesas RA",
    "",
    0x40000000,
    'fields: {"C.SCKDIVCR.*": {plain: true}, "C.HOCOCR.*": {wse: [self]}, "C.P*PFS.*": {plain: true}, "C.P*PFS.PIDR": {volatile: true}, "C.WDTRR.*": {wse: [self]}, "C.PRCR.*": {wse: [self]}}',
    """bfGroup Pr { bit PRC0; bit PRC1; uint8 PRKEY; }; bfGroup Pw { bit B0WI; bit PFSWE; }; bfGroup Sck { uint3 PCKB; uint3 PCKA; uint3 ICK; }; bfGroup Pfs { bit PODR; bit PIDR; bit PDR; bit PMR; uint5 PSEL; };
bfGroup Ra { bfGroup Pr PRCR; bfGroup Pw PWPR; bfGroup Sck SCKDIVCR; bit HOCOCR_HCSTP; bit HOCOSF; bfGroup Pfs P10PFS[8]; uint8 WDTRR; };
make_device(Ra, ra, 0x40000000);
void clock(int div) { ra->PRCR = (bfGroup Pr){ .PRKEY = 0xA5, .PRC0 = 1 }; ra->HOCOCR_HCSTP = 0; while (!ra->HOCOSF) ; ra->SCKDIVCR.ICK = div; ra->SCKDIVCR.PCKA = div; ra->SCKDIVCR.PCKB = div + 1; ra->PRCR = (bfGroup Pr){ .PRKEY = 0xA5 }; }
static void pfs(int on) { ra->PWPR = (bfGroup Pw){ .B0WI = 0, .PFSWE = 0 }; if (on) ra->PWPR = (bfGroup Pw){ .B0WI = 0, .PFSWE = 1 }; else ra->PWPR = (bfGroup Pw){ .B0WI = 1 }; }
void pin(int n, int f) { pfs(1); ra->P10PFS[n].PMR = 0; ra->P10PFS[n].PSEL = f; ra->P10PFS[n].PMR = 1; pfs(0); }
int level(int n) { return ra->P10PFS[n].PIDR; }
void kick(void) { ra->WDTRR = 0; ra->WDTRR = 0xFF; }""",
    """void clock(int div) { R16(0x3FE) = 0xA501; R8(0x36) = 0; while (!(R8(0x3C) & 1)) ; R(0x20) = (R(0x20) & ~0x07007700u) | (div & 7) << 24 | (div & 7) << 12 | ((div + 1) & 7) << 8; R16(0x3FE) = 0xA500; }
static void pfs(int on) { R8(0xD03) = 0; R8(0xD03) = on ? 0x40 : 0x80; }
void pin(int n, int f) { pfs(1); R(0x800 + 4 * n) &= ~0x10000u; R(0x800 + 4 * n) = (R(0x800 + 4 * n) & ~(31u << 24)) | f << 24; R(0x800 + 4 * n) |= 0x10000; pfs(0); }
int level(int n) { return R(0x800 + 4 * n) >> 1 & 1; }
void kick(void) { R8(0xD10) = 0; R8(0xD10) = 0xFF; }""",
    (("clock", 1), ("pin", 3, 4), ("level", 3), ("kick",)),
    reads={0x3C: toggled(0, 1)},
    writes={
        0x3FE: prcr,
        0xD03: pwpr,
        0x20: guarded(0x20, 0x3FE, 1),
        0x36: guarded(0x36, 0x3FE, 1),
        **{0x800 + 4 * i: guarded(0x800 + 4 * i, 0xD03, 0x40) for i in range(8)},
    },
    sizes={0x3FE: 2, 0x36: 1, 0x3C: 1, 0xD03: 1, 0xD10: 1},
    text=device(
        register("SCKDIVCR", 0x20, 32, "PCKD:0:3 PCKC:4:3 PCKB:8:3 PCKA:12:3 BCK:16:3 ICK:24:3 FCK:28:3"),
        register("HOCOCR", 0x36, 8, "HCSTP:0:1"),
        register("OSCSF", 0x3C, 8, "HOCOSF:0:1 MOSCSF:3:1 PLLSF:5:1", RO),
        register("PRCR", 0x3FE, 16, "PRC0:0:1 PRC1:1:1 PRC3:3:1").replace(
            "</fields>", f"<field><name>PRKEY</name><bitRange>[15:8]</bitRange>{WO}</field></fields>"
        ),
        register("PWPR", 0xD03, 8, "PFSWE:6:1 B0WI:7:1", "<resetValue>0x80</resetValue>"),
        register("WDTRR", 0xD10, 8, "WDTRR:0:8"),
        many(
            8,
            4,
            register("P10%sPFS", 0x800, 32, "PODR:0:1 PDR:2:1 PCR:4:1 PMR:16:1 PSEL:24:5").replace(
                "</fields>", f"<field><name>PIDR</name><bitRange>[1:1]</bitRange>{RO}</field></fields>"
            ),
        ),
    ),
)

# ---- Microchip SAM E70 PMC, PIO and TWIHS (DS60001527): keys, write protection, enable, disable and status triples


def mor(chip, v):
    if v >> 16 & 255 != 0x37:
        raise BusError("CKGR_MOR without its key")
    chip.values[0x20] = v & ~0xFF0000


def wpmr(chip, v):
    if v >> 8 != 0x50494F:
        raise BusError("WPMR without its key")
    chip.state["open"] = int(not v & 1)


def pio(at, kind):
    def w(chip, v):
        if not chip.state.get("open"):
            raise BusError("PIO is protected")
        acting(at, kind)(chip, v)

    return w


SAM = Part(
    "SAM E70",
    "",
    0x40000000,
    'fields: {"C.CKGR_MOR.*": {plain: true}, "C.CKGR_MOR.KEY": {plain: false, back: never}, "C.PMC_MCKR.*": {plain: true}, "C.PIO_*": {wse: [self], back: "0"}, "C.TWIHS_I?R.*": {back: "0"}, "C.TWIHS_SR.*": {rse: [self]}}',
    """bfGroup Mor { bit MOSCXTEN; bit MOSCRCEN; uint8 MOSCXTST; uint8 KEY; bit MOSCSEL; }; bfGroup Mck { uint2 CSS; uint3 PRES; uint2 MDIV; }; bfGroup Wp { bit WPEN; uint24 WPKEY; }; bfGroup P { bit P0; bit P7; };
bfGroup I { bit TXCOMP; bit RXRDY; bit TXRDY; bit NACK; };
bfGroup Sam { bfGroup Mor CKGR_MOR; bfGroup Mck PMC_MCKR; bit MOSCXTS; bit MCKRDY; bfGroup P PIO_PER; bfGroup P PIO_OER; bfGroup P PIO_SODR; bfGroup P PIO_CODR; bfGroup P PIO_ODSR; bfGroup Wp PIO_WPMR; bfGroup I TWIHS_IER; bfGroup I TWIHS_IDR; bfGroup I TWIHS_IMR; bfGroup I TWIHS_SR; };
make_device(Sam, sam, 0x40000000);
void clock(int start) { bfGroup Mor m = sam->CKGR_MOR; m.KEY = 0x37; m.MOSCXTEN = 1; m.MOSCXTST = start; sam->CKGR_MOR = m; while (!sam->MOSCXTS) ; m.MOSCSEL = 1; sam->CKGR_MOR = m; sam->PMC_MCKR.PRES = 2; while (!sam->MCKRDY) ; sam->PMC_MCKR.CSS = 1; while (!sam->MCKRDY) ; }
void pins(void) { sam->PIO_WPMR = (bfGroup Wp){ .WPKEY = 0x50494F }; sam->PIO_PER.P7 = 1; sam->PIO_OER = (bfGroup P){ .P0 = 1, .P7 = 1 }; sam->PIO_SODR.P7 = 1; sam->PIO_CODR.P0 = 1; sam->PIO_WPMR = (bfGroup Wp){ .WPEN = 1, .WPKEY = 0x50494F }; }
void irqs(void) { sam->TWIHS_IER = (bfGroup I){ .RXRDY = 1, .NACK = 1 }; sam->TWIHS_IDR.TXRDY = 1; }
int isr(void) { bfGroup I s = sam->TWIHS_SR; bfGroup I m = sam->TWIHS_IMR; return (s.NACK & m.NACK) * 4 + (s.RXRDY & m.RXRDY) * 2 + s.TXCOMP; }""",
    """void clock(int start) { unsigned m = (R(0x20) & ~0xFFFF01u) | 0x370001 | start << 8; R(0x20) = m; while (!(R(0x68) & 1)) ; R(0x20) = m | 1 << 24; R(0x30) = (R(0x30) & ~0x70u) | 0x20; while (!(R(0x68) & 8)) ; R(0x30) = (R(0x30) & ~3u) | 1; while (!(R(0x68) & 8)) ; }
void pins(void) { R(0x1E4) = 0x50494F00; R(0x100) = 0x80; R(0x110) = 0x81; R(0x130) = 0x80; R(0x134) = 1; R(0x1E4) = 0x50494F01; }
void irqs(void) { R(0x224) = 0x102; R(0x228) = 4; }
int isr(void) { unsigned s = R(0x220), m = R(0x22C), b = s & m; return (b >> 8 & 1) * 4 + (b >> 1 & 1) * 2 + (s & 1); }""",
    (("clock", 8), ("pins",), ("irqs",), ("isr",), ("isr",)),
    reads={0x68: toggled(0, 1, 0, 8, 8), 0x220: toggled(0x103, 0x001)},
    writes={
        0x20: mor,
        0x100: pio(0x108, "set"),
        0x110: pio(0x118, "set"),
        0x130: pio(0x138, "set"),
        0x134: pio(0x138, "clear"),
        0x1E4: wpmr,
        0x224: acting(0x22C, "set"),
        0x228: acting(0x22C, "clear"),
    },
    text=device(
        register(
            "CKGR_MOR",
            0x20,
            32,
            "MOSCXTEN:0:1 MOSCXTBY:1:1 WAITMODE:2:1 MOSCRCEN:3:1 MOSCRCF:4:3 MOSCXTST:8:8 KEY:16:8 MOSCSEL:24:1 CFDEN:25:1",
            "<resetValue>0x8</resetValue>",
        ),
        register("PMC_MCKR", 0x30, 32, "CSS:0:2 PRES:4:3 MDIV:8:2"),
        register("PMC_SR", 0x68, 32, "MOSCXTS:0:1 LOCKA:1:1 MCKRDY:3:1", RO),
        *(
            register(f"PIO_{n}", at, 32, "P0:0:1 P7:7:1", more)
            for n, at, more in (
                ("PER", 0x100, WO),
                ("PDR", 0x104, WO),
                ("PSR", 0x108, RO),
                ("OER", 0x110, WO),
                ("ODR", 0x114, WO),
                ("OSR", 0x118, RO),
                ("SODR", 0x130, WO),
                ("CODR", 0x134, WO),
                ("ODSR", 0x138, ""),
            )
        ),
        register("PIO_WPMR", 0x1E4, 32, "WPEN:0:1 WPKEY:8:24"),
        *(
            register(f"TWIHS_{n}", at, 32, "TXCOMP:0:1 RXRDY:1:1 TXRDY:2:1 NACK:8:1", more)
            for n, at, more in (("SR", 0x220, RO), ("IER", 0x224, WO), ("IDR", 0x228, WO), ("IMR", 0x22C, RO))
        ),
    ),
)

# ---- NXP LPC55S69 GPIO, SYSCON and USART FIFO (UM11126): a byte a pin, arrays that set, clear and invert, W1C in a status


def byte_pin(n):
    def w(chip, v):
        chip.values[0x100] = chip.values.get(0x100, 0) & ~(1 << n) | (v & 1) << n

    return w


def fifo(chip, v):
    chip.sent.append(v)
    chip.values[0x404] = chip.values.get(0x404, 3) & ~(v & 3)


LPC55 = Part(
    "LPC55 GPIO",
    "",
    0x40000000,
    'fields: {"C.B*.*": {plain: true}, "C.FIFOCFG.*": {plain: true}, "C.FIFOCFG.EMPTY?X": {back: "0", plain: false}, "C.*SET?.*": {back: "0"}, "C.*CLR?.*": {back: "0"}, "C.*NOT?.*": {back: "0"}, "C.FIFOWR.*": {wse: [self]}}',
    """bfGroup Ctl { bit GPIO0; bit FC0; bit DMA; }; bfGroup Cfg { bit ENABLETX; bit ENABLERX; bit EMPTYTX; bit EMPTYRX; }; bfGroup St { bit TXERR; bit RXERR; bit TXEMPTY; bit TXNOTFULL; bit RXNOTEMPTY; };
bfGroup Lpc { bit B_PBYTE[32]; uint32 DIR[2]; uint32 SET[2]; uint32 CLR[2]; uint32 NOT[2]; uint32 DIRSET[2]; bfGroup Ctl AHBCLKCTRLSET1; bfGroup Ctl AHBCLKCTRLCLR1; bfGroup Ctl PRESETCTRLCLR1; bfGroup Cfg FIFOCFG; bfGroup St FIFOSTAT; uint9 FIFOWR_TXDATA; };
make_device(Lpc, lpc, 0x40000000);
void open(void) { lpc->AHBCLKCTRLSET1 = (bfGroup Ctl){ .GPIO0 = 1, .FC0 = 1 }; lpc->PRESETCTRLCLR1.FC0 = 1; lpc->AHBCLKCTRLCLR1.DMA = 1; lpc->DIRSET[1] = 1 << 4; lpc->FIFOCFG.ENABLETX = 1; lpc->FIFOCFG.ENABLERX = 1; lpc->FIFOCFG.EMPTYTX = 1; lpc->FIFOCFG.EMPTYRX = 1; lpc->FIFOSTAT = (bfGroup St){ .TXERR = 1, .RXERR = 1 }; }
void pin(int n, int v) { lpc->B_PBYTE[n] = v; }
void port(int p, unsigned s, unsigned c, unsigned t) { lpc->SET[p] = s; lpc->CLR[p] = c; lpc->NOT[p] = t; lpc->NOT[p] = t; }
int put(int c) { while (!lpc->FIFOSTAT.TXNOTFULL) ; lpc->FIFOWR_TXDATA = c; bfGroup St s = lpc->FIFOSTAT; if (s.TXERR) { lpc->FIFOSTAT.TXERR = 1; return -1; } return s.TXEMPTY; }""",
    """void open(void) { R(0x304) = 0x801; R(0x314) = 0x800; R(0x308) = 4; R(0x184) = 16; R(0x400) = (R(0x400) & ~0x30003u) | 3; R(0x400) = (R(0x400) & ~0x30000u) | 1 << 16; R(0x400) = (R(0x400) & ~0x30000u) | 1 << 17; R(0x404) = 3; }
void pin(int n, int v) { R8(n) = v & 1; }
void port(int p, unsigned s, unsigned c, unsigned t) { R(0x120 + 4 * p) = s; R(0x130 + 4 * p) = c; R(0x140 + 4 * p) = t; R(0x140 + 4 * p) = t; }
int put(int c) { while (!(R(0x404) & 32)) ; R(0x420) = c & 511; unsigned s = R(0x404); if (s & 1) { R(0x404) = 1; return -1; } return s >> 4 & 1; }""",
    (("open",), ("pin", 5, 1), ("pin", 31, 0), ("port", 1, 0xF0, 0x0F, 3), ("put", 0x31), ("put", 0x132)),
    reads={0x404: toggled(0, 32, 16, 33, 1)},
    writes={
        **{n: byte_pin(n) for n in range(32)},
        0x404: fifo,
        0x304: acting(0x300, "set"),
        0x308: acting(0x300, "clear"),
        0x314: acting(0x310, "clear"),
        0x184: acting(0x114, "set"),
        0x124: acting(0x104, "set"),
        0x134: acting(0x104, "clear"),
        0x144: acting(0x104, "toggle"),
    },
    sizes=dict.fromkeys(range(32), 1),
    text=device(
        many(32, 1, register("B_%s", 0, 8, "PBYTE:0:1")),
        *(
            many(2, 4, register(f"{n}[%s]", at, 32, f"{n}P:0:32", more))
            for n, at, more in (
                ("DIR", 0x110, ""),
                ("SET", 0x120, ""),
                ("CLR", 0x130, WO),
                ("NOT", 0x140, WO),
                ("DIRSET", 0x180, WO),
            )
        ),
        *(
            register(n, at, 32, "GPIO0:0:1 DMA:2:1 FC0:11:1")
            for n, at in (
                ("AHBCLKCTRL1", 0x300),
                ("AHBCLKCTRLSET1", 0x304),
                ("AHBCLKCTRLCLR1", 0x308),
                ("PRESETCTRLSET1", 0x310),
                ("PRESETCTRLCLR1", 0x314),
            )
        ),
        register("FIFOCFG", 0x400, 32, "ENABLETX:0:1 ENABLERX:1:1 DMATX:12:1 EMPTYTX:16:1 EMPTYRX:17:1"),
        register("FIFOSTAT", 0x404, 32, "TXERR:0:1:oneToClear RXERR:1:1:oneToClear").replace(
            "</fields>",
            "".join(
                f"<field><name>{n}</name><bitRange>[{b}:{b}]</bitRange>{RO}</field>"
                for n, b in (("TXEMPTY", 4), ("TXNOTFULL", 5), ("RXNOTEMPTY", 6))
            )
            + "</fields>",
        ),
        register("FIFOWR", 0x420, 32, "TXDATA:0:9", WO),
    ),
)

PARTS = (XMC, PIC32, MSPM0, RA, SAM, LPC55)
