# ruff: noqa: E501  (C on one line reads better here)
"""Drivers of peripherals by the facts of reference manuals (RM0090, FE310-G002), beside code by hand."""

from __future__ import annotations

from tests.drivers.silicon import BusError, Part


def dogkey(chip, v):
    if v != 0x51F15E:
        raise BusError("key")
    chip.state["open"] = 1


def dogw(at):
    def w(chip, v):
        if not chip.state.pop("open", 0):
            raise BusError(f"{at:#x} without key")
        chip.values[at] = v
        chip.sent.append(at)

    return w


DOGFE = Part(
    "FE310 WDOG",
    "e310x.svd",
    0x10000000,
    'fields: {WDOG.wdogkey.*: {wse: [self]}, "WDOG.wdogcfg.*": {plain: true}, "WDOG.wdogcfg.cmpip": {plain: false, volatile: true, back: "0"}}',
    """bfGroup Cfg { uint4 scale; bit rsten; bit zerocmp; bit enalways; bit encoreawake; bit cmpip; };
bfGroup Dog { bfGroup Cfg wdogcfg; uint32 wdogcount; uint32 wdogfeed; uint32 wdogkey; uint16 wdogcmp_value; };
make_device(Dog, wdog, 0x10000000);
static void unlock(void) { wdog->wdogkey = 0x51F15E; }
void start(int cmp) { unlock(); wdog->wdogcmp_value = cmp; unlock(); wdog->wdogcount = 0; unlock(); wdog->wdogcfg = (bfGroup Cfg){ .scale = 12, .rsten = 1, .enalways = 1 }; }
void feed(void) { wdog->wdogkey = 0x51F15E; wdog->wdogfeed = 0xD09F00D; }
int count(void) { return wdog->wdogcount; }""",
    """static void unlock(void) { R(0x1C) = 0x51F15E; }
void start(int cmp) { unlock(); R(0x20) = cmp & 0xFFFF; unlock(); R(8) = 0; unlock(); R(0) = 12 | 1 << 8 | 1 << 12; }
void feed(void) { R(0x1C) = 0x51F15E; R(0x18) = 0xD09F00D; }
int count(void) { return R(8); }""",
    (("start", 4000), ("feed",), ("feed",), ("count",)),
    writes={0x1C: dogkey, 0x20: dogw(0x20), 8: dogw(8), 0: dogw(0), 0x18: dogw(0x18)},
)


def fkey(chip, v):
    k = chip.state.get("k", 0)
    if (k, v) == (0, 0x45670123):
        chip.state["k"] = 1
    elif (k, v) == (1, 0xCDEF89AB):
        chip.state["k"] = 0
        chip.values[16] = chip.values.get(16, 1 << 31) & ~(1 << 31)
    else:
        raise BusError(f"bad key {v:#x}")


def fcr(chip, v):
    if chip.values.get(16, 1 << 31) >> 31 and not v >> 31:
        raise BusError("CR is locked")
    if chip.state.get("busy", 0):
        raise BusError("busy")
    if v >> 16 & 1:
        if not v & 2:
            raise BusError("start without SER")
        chip.state["busy"] = 2
        chip.sent.append(v)
    chip.values[16] = v & ~(1 << 16)


def fsr(chip):
    b = chip.state.get("busy", 0)
    if b:
        chip.state["busy"] = b - 1
        if b == 1:
            chip.values[12] = chip.values.get(12, 0) | 1 | 0x80
    return chip.values.get(12, 0) | (1 << 16 if b else 0)


FLASH = Part(
    "STM32 FLASH",
    "",
    0x40000000,
    'fields: {C.KEYR.KEY: {wse: [self]}, "C.CR.*": {plain: true}, C.CR.STRT: {back: "0", plain: false, volatile: true}, "C.ACR.*": {plain: true}}',
    """bfGroup Sr { bit EOP; bit OPERR; bit WRPERR; bit PGAERR; bit PGPERR; bit ERSERR; bit BSY; }; bfGroup Cr { bit PG; bit SER; bit MER; uint4 SNB; uint2 PSIZE; bit STRT; bit LOCK; };
bfGroup Fl { uint4 LATENCY; bit PRFTEN; bit ARTEN; uint32 KEY; bfGroup Sr SR; bfGroup Cr CR; };
make_device(Fl, fl, 0x40000000);
void speed(int ws) { fl->LATENCY = ws; fl->PRFTEN = 1; fl->ARTEN = 1; while (fl->LATENCY != ws) ; }
void unlock(void) { if (fl->CR.LOCK) { fl->KEY = 0x45670123; fl->KEY = 0xCDEF89AB; } }
int erase(int sector) { while (fl->SR.BSY) ; bfGroup Cr c = fl->CR; c.PSIZE = 2; c.SER = 1; c.SNB = sector; c.STRT = 0; fl->CR = c; fl->CR.STRT = 1; while (fl->SR.BSY) ; bfGroup Sr s = fl->SR; fl->CR.SER = 0; fl->SR = (bfGroup Sr){ .EOP = 1, .OPERR = 1, .WRPERR = 1, .PGAERR = 1, .PGPERR = 1, .ERSERR = 1 }; fl->CR.LOCK = 1; return s.WRPERR || s.ERSERR ? -1 : s.EOP; }
void flags(void) { fl->SR.PGPERR = 1; fl->SR.ERSERR = 1; }""",
    """void speed(int ws) { R(0) = (R(0) & ~0x30Fu) | (ws & 15) | 0x300; while ((R(0) & 15) != (unsigned)ws) ; }
void unlock(void) { if (R(16) >> 31) { R(4) = 0x45670123; R(4) = 0xCDEF89AB; } }
int erase(int sector) { while (R(12) >> 16 & 1) ; R(16) = (R(16) & ~0x1037Au) | 0x202 | (sector & 15) << 3; R(16) = (R(16) & ~0x10000u) | 1 << 16; while (R(12) >> 16 & 1) ; unsigned s = R(12); R(16) &= ~0x10002u; R(12) = 0xF3; R(16) |= 1u << 31; return s & 0x90 ? -1 : (int)(s & 1); }
void flags(void) { R(12) = 0x40; R(12) = 0x80; }""",
    (("speed", 7), ("unlock",), ("erase", 5), ("flags",), ("unlock",)),
    clears={12: 0xF3},
    reads={12: fsr, 16: lambda c: c.values.setdefault(16, 1 << 31)},
    writes={4: fkey, 16: fcr},
    text="ACR@0: LATENCY:0:4 PRFTEN:8:1 ARTEN:9:1 ARTRST:11:1\nKEYR@4: KEY:0:32:w\nSR@12: EOP:0:1:oneToClear OPERR:1:1:oneToClear WRPERR:4:1:oneToClear PGAERR:5:1:oneToClear PGPERR:6:1:oneToClear ERSERR:7:1:oneToClear BSY:16:1:r\nCR@16: PG:0:1 SER:1:1 MER:2:1 SNB:3:4 PSIZE:8:2 STRT:16:1 EOPIE:24:1 LOCK:31:1",
)


def sr1(chip):
    chip.state["sr1"] = 1
    return (
        chip.values.get(0x14, 0)
        | (0x1 if chip.state.get("sb") else 0)
        | (2 if chip.state.get("addr") else 0)
        | 0x80
        | (0x40 if chip.state.get("rx") else 0)
    )


def sr2(chip):
    if chip.state.get("addr") and chip.state.pop("sr1", 0):
        chip.state["addr"] = 0
        chip.state["rx"] = 2
    return 3


def i2dr_w(chip, v):
    if chip.state.pop("sb", 0):
        if not chip.state.get("sr1"):
            raise BusError("address without SR1")
        chip.state["addr"] = 1
    elif chip.state.get("addr"):
        raise BusError("data while ADDR is set")
    chip.sent.append(v)


def i2dr_r(chip):
    if not chip.state.get("rx"):
        raise BusError("nothing received")
    chip.state["rx"] -= 1
    return 0x60 + chip.state["rx"]


def i2cr1(chip, v):
    if v & 0x100:
        chip.state["sb"] = 1
    chip.values[0] = v & ~0x300


STI2C = Part(
    "STM32 I2C v1",
    "",
    0x40000000,
    'fields: {"C.CR?.*": {plain: true}, "C.CR1.ST*": {plain: false, volatile: true, back: "0"}, "C.DR.DR": {rse: [self], wse: [self]}, "C.CCR.*": {plain: true}}',
    """bfGroup S1 { bit SB; bit ADDR; bit BTF; bit RXNE; bit TXE; }; bfGroup S2 { bit MSL; bit BUSY; };
bfGroup Ccr { uint12 CCR; bit DUTY; bit FS; };
bfGroup I2c { bit CR1_PE; bit CR1_START; bit CR1_STOP; bit CR1_ACK; uint6 CR2_FREQ; bit CR2_ITEVTEN; uint8 DR; bfGroup S1 SR1; bfGroup S2 SR2; bfGroup Ccr CCR; uint6 TRISE; };
make_device(I2c, i2c, 0x40000000);
void open(int mhz, int ccr) { i2c->CR1_PE = 0; i2c->CR2_FREQ = mhz; i2c->CCR = (bfGroup Ccr){ .CCR = ccr, .FS = 1 }; i2c->TRISE = mhz + 1; i2c->CR1_PE = 1; }
int get2(int a) { i2c->CR1_ACK = 1; i2c->CR1_START = 1; for (;;) { bfGroup S1 s = i2c->SR1; if (s.SB) break; } i2c->DR = a << 1 | 1; for (;;) { bfGroup S1 s = i2c->SR1; if (s.ADDR) break; } bfGroup S2 s2 = i2c->SR2; (void)s2.BUSY; while (!i2c->SR1.RXNE) ; int x = i2c->DR; i2c->CR1_ACK = 0; i2c->CR1_STOP = 1; while (!i2c->SR1.RXNE) ; return x << 8 | i2c->DR; }""",
    """void open(int mhz, int ccr) { R(0) &= ~0x301u; R(4) = (R(4) & ~63u) | (mhz & 63); R(0x1C) = 1 << 15 | (ccr & 0xFFF); R(0x20) = (mhz + 1) & 63; R(0) = (R(0) & ~0x300u) | 1; }
int get2(int a) { R(0) = (R(0) & ~0x300u) | 0x400; R(0) = (R(0) & ~0x300u) | 0x100; while (!(R(0x14) & 1)) ; R(0x10) = (a << 1 | 1) & 0xFF; while (!(R(0x14) & 2)) ; (void)R(0x18); while (!(R(0x14) & 0x40)) ; int x = R(0x10) & 0xFF; R(0) &= ~0x700u; R(0) = (R(0) & ~0x300u) | 0x200; while (!(R(0x14) & 0x40)) ; return x << 8 | (R(0x10) & 0xFF); }""",
    (("open", 42, 35), ("get2", 0x50)),
    reads={0x14: sr1, 0x18: sr2, 0x10: i2dr_r},
    writes={0x10: i2dr_w, 0: i2cr1},
    locked=((0, 1, (0x1C, 0x20)),),
    text="CR1@0: PE:0:1 START:8:1 STOP:9:1 ACK:10:1\nCR2@4: FREQ:0:6 ITEVTEN:9:1\nDR@16: DR:0:8\nSR1@20: SB:0:1:r ADDR:1:1:r BTF:2:1:r RXNE:6:1:r TXE:7:1:r AF:10:1:zeroToClear\nSR2@24: MSL:0:1:r BUSY:1:1:r\nCCR@28: CCR:0:12 DUTY:14:1 FS:15:1\nTRISE@32: TRISE:0:6",
)

DMASVD = """<device><name>X</name><peripherals><peripheral><name>C</name><baseAddress>0x40000000</baseAddress><registers>
<register><name>LISR</name><addressOffset>0</addressOffset><access>read-only</access><fields><field><dim>2</dim><dimIncrement>6</dimIncrement><name>TCIF%s</name><bitOffset>5</bitOffset><bitWidth>1</bitWidth></field><field><name>TEIF0</name><bitOffset>3</bitOffset><bitWidth>1</bitWidth></field></fields></register>
<register><name>LIFCR</name><addressOffset>8</addressOffset><access>write-only</access><modifiedWriteValues>oneToClear</modifiedWriteValues><fields><field><dim>2</dim><dimIncrement>6</dimIncrement><name>CTCIF%s</name><bitOffset>5</bitOffset><bitWidth>1</bitWidth></field><field><name>CTEIF0</name><bitOffset>3</bitOffset><bitWidth>1</bitWidth></field></fields></register>
<cluster><dim>8</dim><dimIncrement>0x18</dimIncrement><name>S[%s]</name><addressOffset>0x10</addressOffset>
<register><name>CR</name><addressOffset>0</addressOffset><fields><field><name>EN</name><bitRange>[0:0]</bitRange></field><field><name>DIR</name><bitRange>[7:6]</bitRange></field><field><name>MINC</name><lsb>10</lsb><msb>10</msb></field><field><name>CHSEL</name><bitRange>[27:25]</bitRange></field></fields></register>
<register><name>NDTR</name><addressOffset>4</addressOffset><fields><field><name>NDT</name><bitRange>[15:0]</bitRange></field></fields></register>
<register><name>PAR</name><addressOffset>8</addressOffset></register>
<register><dim>2</dim><dimIncrement>4</dimIncrement><dimIndex>0,1</dimIndex><name>M%sAR</name><addressOffset>12</addressOffset></register>
<register><name>FCR</name><addressOffset>20</addressOffset><resetValue>0x21</resetValue><fields><field><name>FTH</name><bitRange>[1:0]</bitRange></field><field><name>DMDIS</name><bitRange>[2:2]</bitRange></field><field><name>FS</name><bitRange>[5:3]</bitRange><access>read-only</access></field></fields></register>
</cluster></registers></peripheral></peripherals></device>"""


def lock(chip_at):
    def w(chip, v):
        if chip.values.get(chip_at[0], 0) & 1:
            raise BusError(f"{chip_at[1]:#x} while EN")
        chip.values[chip_at[1]] = v

    return w


DMA1 = Part(
    "STM32 DMA",
    "",
    0x40000000,
    'fields: {"C.S*.*": {plain: true}, "C.S?_CR.EN": {plain: false, volatile: true, back: keep}}',
    """bfGroup Is { bit TCIF[2]; bit TEIF0; }; bfGroup Ic { bit CTCIF[2]; bit CTEIF0; };
bfGroup Cr { bit EN; uint2 DIR; bit MINC; uint3 CHSEL; }; bfGroup Fc { uint2 FTH; bit DMDIS; };
bfGroup St { bfGroup Cr CR; uint16 NDTR; uint32 PAR; uint32 M0AR; uint32 M1AR; bfGroup Fc FCR; };
bfGroup Dma { bfGroup Is LISR; bfGroup Ic LIFCR; bfGroup St S[8]; };
make_device(Dma, dma, 0x40000000);
void go(int n, int ch, int from, int to, int count) { bfGroup St *s = &dma->S[n]; s->CR.EN = 0; while (s->CR.EN) ; s->PAR = to; s->M0AR = from; s->NDTR = count; s->FCR = (bfGroup Fc){ .DMDIS = 1, .FTH = 3 }; s->CR = (bfGroup Cr){ .CHSEL = ch, .MINC = 1, .DIR = 1 }; s->CR.EN = 1; }
int done(void) { if (dma->LISR.TEIF0) { dma->LIFCR.CTEIF0 = 1; return -1; } if (dma->LISR.TCIF[1]) { dma->LIFCR = (bfGroup Ic){ .CTCIF[1] = 1 }; return 1; } return 0; }
void clear(int n) { dma->LIFCR.CTCIF[n] = 1; }
int left(int n) { return dma->S[n].NDTR; }""",
    """void go(int n, int ch, int from, int to, int count) { unsigned s = 0x10 + 0x18 * n; R(s) &= ~1u; while (R(s) & 1) ; R(s + 8) = to; R(s + 12) = from; R(s + 4) = count; R(s + 20) = 7; R(s) = (ch & 7) << 25 | 1 << 10 | 1 << 6; R(s) |= 1; }
int done(void) { if (R(0) & 8) { R(8) = 8; return -1; } if (R(0) >> 11 & 1) { R(8) = 1 << 11; return 1; } return 0; }
void clear(int n) { R(8) = 1 << (5 + 6 * n); }
int left(int n) { return R(0x14 + 0x18 * n) & 0xFFFF; }""",
    (("go", 3, 4, 0x1000, 0x2000, 16), ("done",), ("clear", 1), ("left", 3)),
    reads={0: lambda c: 0x800},
    locked=((0x58, 1, (0x60, 0x64, 0x5C, 0x6C)),),
    text=DMASVD,
)

CANSVD = """<device><name>X</name><peripherals><peripheral><name>C</name><baseAddress>0x40000000</baseAddress><registers>
<register><name>MCR</name><addressOffset>0</addressOffset><resetValue>0x10002</resetValue><fields><field><name>INRQ</name><bitOffset>0</bitOffset></field><field><name>SLEEP</name><bitOffset>1</bitOffset></field><field><name>NART</name><bitOffset>4</bitOffset></field><field><name>ABOM</name><bitOffset>6</bitOffset></field></fields></register>
<register><name>MSR</name><addressOffset>4</addressOffset><fields><field><name>INAK</name><bitOffset>0</bitOffset><access>read-only</access></field><field><name>ERRI</name><bitOffset>2</bitOffset><modifiedWriteValues>oneToClear</modifiedWriteValues></field></fields></register>
<register><name>TSR</name><addressOffset>8</addressOffset><resetValue>0x1C000000</resetValue><fields><field><name>RQCP0</name><bitOffset>0</bitOffset><modifiedWriteValues>oneToClear</modifiedWriteValues></field><field><name>TXOK0</name><bitOffset>1</bitOffset><modifiedWriteValues>oneToClear</modifiedWriteValues></field><field><name>ABRQ0</name><bitOffset>7</bitOffset><modifiedWriteValues>oneToSet</modifiedWriteValues></field><field><dim>3</dim><dimIncrement>1</dimIncrement><name>TME%s</name><bitOffset>26</bitOffset><access>read-only</access></field></fields></register>
<register><dim>2</dim><dimIncrement>4</dimIncrement><name>RF%sR</name><addressOffset>12</addressOffset><fields><field><name>FMP</name><bitOffset>0</bitOffset><bitWidth>2</bitWidth><access>read-only</access></field><field><name>FOVR</name><bitOffset>4</bitOffset><modifiedWriteValues>oneToClear</modifiedWriteValues></field><field><name>RFOM</name><bitOffset>5</bitOffset><modifiedWriteValues>oneToSet</modifiedWriteValues></field></fields></register>
<register><name>BTR</name><addressOffset>0x1C</addressOffset><fields><field><name>BRP</name><bitRange>[9:0]</bitRange></field><field><name>TS1</name><bitRange>[19:16]</bitRange></field><field><name>TS2</name><bitRange>[22:20]</bitRange></field></fields></register>
<cluster><dim>3</dim><dimIncrement>16</dimIncrement><name>TX%s</name><addressOffset>0x180</addressOffset>
<register><name>TIR</name><addressOffset>0</addressOffset><fields><field><name>TXRQ</name><bitOffset>0</bitOffset></field><field><name>RTR</name><bitOffset>1</bitOffset></field><field><name>IDE</name><bitOffset>2</bitOffset></field><field><name>STID</name><bitRange>[31:21]</bitRange></field></fields></register>
<register><name>TDTR</name><addressOffset>4</addressOffset><fields><field><name>DLC</name><bitRange>[3:0]</bitRange></field></fields></register>
<register><name>TDLR</name><addressOffset>8</addressOffset><fields><field><dim>4</dim><dimIncrement>8</dimIncrement><name>DATA%s</name><bitRange>[7:0]</bitRange></field></fields></register>
<register><name>TDHR</name><addressOffset>12</addressOffset></register></cluster>
<cluster><dim>2</dim><dimIncrement>16</dimIncrement><name>RX%s</name><addressOffset>0x1B0</addressOffset>
<register><name>RIR</name><addressOffset>0</addressOffset><access>read-only</access><fields><field><name>STID</name><bitRange>[31:21]</bitRange></field></fields></register>
<register><name>RDLR</name><addressOffset>8</addressOffset><access>read-only</access></register></cluster>
</registers></peripheral></peripherals></device>"""


def tir(chip, v):
    if v & 1 and not chip.values.get(0x184, 0):
        raise BusError("no length")
    chip.values[0x180] = v
    chip.sent.append(v)


def rfr(chip, v):
    if v & 0x20:
        chip.state["fifo"] = chip.state.get("fifo", 2) - 1
    if v & 0x10:
        chip.state["ovr"] = 0


CAN = Part(
    "STM32 bxCAN",
    "",
    0x40000000,
    'fields: {"C.MCR.*": {plain: true}, "C.BTR.*": {plain: true}, "C.TX*": {plain: true}}',
    """bfGroup Mcr { bit INRQ; bit SLEEP; bit NART; bit ABOM; }; bfGroup Tsr { bit RQCP0; bit TXOK0; bit ABRQ0; bit TME[3]; }; bfGroup Rf { uint2 FMP; bit FOVR; bit RFOM; };
bfGroup Tir { bit TXRQ; bit RTR; bit IDE; uint11 STID; }; bfGroup Tdl { uint8 DATA[4]; }; bfGroup Tx { bfGroup Tir TIR; uint4 TDTR; bfGroup Tdl TDLR; uint32 TDHR; }; bfGroup Rx { uint11 RIR_STID; uint32 RDLR; };
bfGroup Btr { uint10 BRP; uint4 TS1; uint3 TS2; };
bfGroup Can { bfGroup Mcr MCR; bit MSR_INAK; bit MSR_ERRI; bfGroup Tsr TSR; bfGroup Rf RF0R; bfGroup Btr BTR; bfGroup Tx TX[3]; bfGroup Rx RX[2]; };
make_device(Can, can, 0x40000000);
void open(int brp) { can->MCR.SLEEP = 0; can->MCR.INRQ = 1; while (!can->MSR_INAK) ; can->MCR.NART = 1; can->MCR.ABOM = 1; can->BTR = (bfGroup Btr){ .BRP = brp - 1, .TS1 = 10, .TS2 = 1 }; can->MCR.INRQ = 0; }
int send(int id, int n, int a, int b, int c, int d) { if (!can->TSR.TME[0]) return -1; bfGroup Tx *t = &can->TX[0]; t->TIR = (bfGroup Tir){ .STID = id }; t->TDTR = n; t->TDLR.DATA[0] = a; t->TDLR.DATA[1] = b; t->TDLR.DATA[2] = c; t->TDLR.DATA[3] = d; t->TDHR = 0; t->TIR.TXRQ = 1; return 0; }
int sent(void) { bfGroup Tsr s = can->TSR; if (s.RQCP0) can->TSR = (bfGroup Tsr){ .RQCP0 = 1, .TXOK0 = 1 }; return s.RQCP0 + 2 * s.TXOK0; }
int take(void) { if (!can->RF0R.FMP) return -1; int id = can->RX[0].RIR_STID; int v = can->RX[0].RDLR; can->RF0R.RFOM = 1; return id << 16 | (v & 0xFFFF); }
void errors(void) { can->MSR_ERRI = 1; can->RF0R.FOVR = 1; can->TSR.ABRQ0 = 1; }""",
    """void open(int brp) { R(0) &= ~2u; R(0) |= 1; while (!(R(4) & 1)) ; R(0) |= 0x50; R(0x1C) = ((brp - 1) & 0x3FF) | 10 << 16 | 1 << 20; R(0) &= ~1u; }
int send(int id, int n, int a, int b, int c, int d) { if (!(R(8) >> 26 & 1)) return -1; R(0x180) = (unsigned)id << 21; R(0x184) = (R(0x184) & 0) | (n & 15); R(0x188) = (a & 0xFF) | (b & 0xFF) << 8 | (c & 0xFF) << 16 | (unsigned)d << 24; R(0x18C) = 0; R(0x180) |= 1; return 0; }
int sent(void) { unsigned s = R(8); if (s & 1) R(8) = 3; return (s & 1) + 2 * (s >> 1 & 1); }
int take(void) { if (!(R(12) & 3)) return -1; int id = R(0x1B0) >> 21; int v = R(0x1B8); R(12) = 0x20; return id << 16 | (v & 0xFFFF); }
void errors(void) { R(4) = 4; R(12) = 0x10; R(8) = 0x80; }""",
    (("open", 6), ("send", 0x123, 4, 1, 2, 3, 4), ("sent",), ("sent",), ("take",), ("take",), ("take",), ("errors",)),
    clears={8: 3, 4: 4},
    reads={
        4: lambda c: c.values.get(0, 0) & 1,
        8: lambda c: c.values.setdefault(8, 0x1C000003),
        12: lambda c: c.state.get("fifo", 2) | 0x10,
        0x1B0: lambda c: 0x77 << 21,
        0x1B8: lambda c: 0xBEEF,
    },
    writes={0x180: tir, 12: rfr},
    text=CANSVD,
)

RTCSVD = "TR@0: SU:0:4 ST:4:3 MNU:8:4 MNT:12:3 HU:16:4 HT:20:2 PM:22:1\nDR@4: DU:0:4 DT:4:2 MU:8:4 MT:12:1 WDU:13:3 YU:16:4 YT:20:4\nCR@8: WUCKSEL:0:3 TSEDGE:3:1 BYPSHAD:5:1 FMT:6:1 ALRAE:8:1 WUTE:10:1 ALRAIE:12:1 WUTIE:14:1\nISR@12: ALRAWF:0:1:r WUTWF:2:1:r INITS:4:1:r RSF:5:1:zeroToClear INITF:6:1:r INIT:7:1 ALRAF:8:1:zeroToClear WUTF:10:1:zeroToClear\nPRER@16: S:0:15 A:16:7\nWUTR@20: WUT:0:16\nWPR@36: KEY:0:8:w"


def wpr(chip, v):
    chip.state["k"] = {(0, 0xCA): 1, (1, 0x53): 2}.get((chip.state.get("k", 0), v), 0)


def behind(at, keep=None):
    def w(chip, v):
        if chip.state.get("k", 0) != 2:
            raise BusError(f"{at:#x} locked")
        if at in (0, 4, 16) and not chip.values.get(12, 0) & 0x40:
            raise BusError("not in INIT")
        chip.values[at] = v

    return w


def isr_w(chip, v):
    if chip.state.get("k", 0) != 2 and (v ^ chip.values.get(12, 0)) & 0x80:
        raise BusError("INIT locked")
    old = chip.values.get(12, 0)
    new = (v & 0x80) | (old & v & 0x520)
    chip.values[12] = new | (0x40 if v & 0x80 else 0) | (0 if v & 0x80 else 0x20 if not v & 0x20 else 0)


def dr_r(chip):
    if not chip.state.pop("tr", 0):
        raise BusError("DR before TR")
    return chip.values.get(4, 0)


STRTC = Part(
    "STM32 RTC",
    "",
    0x40000000,
    'fields: {C.WPR.KEY: {wse: [self]}, "C.CR.*": {plain: true}, C.ISR.INIT: {plain: true}, "C.PRER.*": {plain: true}, "C.TR.*": {rse: ["C.DR.*"]}, "C.WUTR.*": {plain: true}}',
    """bfGroup Tr { uint4 SU; uint3 ST; uint4 MNU; uint3 MNT; uint4 HU; uint2 HT; bit PM; }; bfGroup Dr { uint4 DU; uint2 DT; uint4 MU; bit MT; uint3 WDU; uint4 YU; uint4 YT; };
bfGroup Isr { bit WUTWF; bit INITS; bit RSF; bit INITF; bit INIT; bit ALRAF; bit WUTF; }; bfGroup Cr { uint3 WUCKSEL; bit WUTE; bit WUTIE; bit BYPSHAD; };
bfGroup Rtc { bfGroup Tr TR; bfGroup Dr DR; bfGroup Cr CR; bfGroup Isr ISR; uint15 S; uint7 A; uint16 WUT; uint8 KEY; };
make_device(Rtc, rtc, 0x40000000);
static void unlock(void) { rtc->KEY = 0xCA; rtc->KEY = 0x53; }
static void lock(void) { rtc->KEY = 0xFF; }
void set(int h, int y) { unlock(); rtc->ISR.INIT = 1; while (!rtc->ISR.INITF) ; rtc->S = 255; rtc->A = 127; rtc->TR = (bfGroup Tr){ .HT = h / 10, .HU = h % 10 }; rtc->DR = (bfGroup Dr){ .YT = y / 10, .YU = y % 10, .WDU = 1, .MU = 1, .DU = 1 }; rtc->ISR.INIT = 0; lock(); }
int get(void) { rtc->ISR.RSF = 0; while (!rtc->ISR.RSF) ; bfGroup Tr t = rtc->TR; bfGroup Dr d = rtc->DR; return t.HT * 10 + t.HU + 100 * (d.YT * 10 + d.YU); }
void wake(int n) { unlock(); rtc->CR.WUTE = 0; while (!rtc->ISR.WUTWF) ; rtc->WUT = n; rtc->CR.WUCKSEL = 4; rtc->CR.WUTIE = 1; rtc->CR.WUTE = 1; lock(); }
bf_interrupt void isr(void) { if (rtc->ISR.WUTF) rtc->ISR.WUTF = 0; }""",
    """static void unlock(void) { R(36) = 0xCA; R(36) = 0x53; }
static void lock(void) { R(36) = 0xFF; }
void set(int h, int y) { unlock(); R(12) = (R(12) & 0) | 0x5A0; while (!(R(12) & 0x40)) ; R(16) = (R(16) & 0x8000) | 255 | 127 << 16; R(0) = (h / 10 & 3) << 20 | (h % 10) << 16; R(4) = y / 10 << 20 | y % 10 << 16 | 1 << 13 | 1 << 8 | 1; R(12) = (R(12) & 0) | 0x520; lock(); }
int get(void) { R(12) = (R(12) & 0x80) | 0x500; while (!(R(12) & 0x20)) ; unsigned t = R(0), d = R(4); return (t >> 20 & 3) * 10 + (t >> 16 & 15) + 100 * ((d >> 20 & 15) * 10 + (d >> 16 & 15)); }
void wake(int n) { unlock(); R(8) &= ~0x400u; while (!(R(12) & 4)) ; R(20) = n & 0xFFFF; R(8) = (R(8) & ~0x4007u) | 4 | 0x4000; R(8) |= 0x400; lock(); }
void isr(void) { if (R(12) & 0x400) R(12) = (R(12) & 0x80) | 0x120; }""",
    (("set", 17, 26), ("get",), ("wake", 100), ("isr",)),
    reads={
        12: lambda c: (
            c.values.get(12, 0) | 0x404 | (0x20 if c.state.setdefault("n", 0) % 2 else 0)
            if not c.state.update(n=c.state.get("n", 0) + 1)
            else 0
        ),
        0: lambda c: c.state.update(tr=1) or c.values.get(0, 0),
        4: dr_r,
    },
    writes={36: wpr, 0: behind(0), 4: behind(4), 16: behind(16), 8: behind(8), 20: behind(20), 12: isr_w},
    text=RTCSVD,
)

PARTS = (DOGFE, FLASH, STI2C, DMA1, CAN, STRTC)
