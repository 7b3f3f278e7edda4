# ruff: noqa: E501  (C on one line reads better here)
"""Idioms of chips of other families, compared access by access: views that a mode bit selects, passwords, flags among
plain bits, set, clear and toggle registers, registers of 8 and 16 bits, buffers that one bit loads, bit-band aliases.

The facts are from the reference manuals that each part names; the descriptions have the form of the vendors' files.
"""

from __future__ import annotations

from tests.drivers.held_exact2 import register
from tests.drivers.silicon import BusError, Part, toggled


def device(*registers: str, more: str = "") -> str:
    """A description with one peripheral; `more`: further elements of it."""
    inside = "".join(registers)
    return (
        f"<device><name>X</name><peripherals><peripheral><name>C</name>{more}<baseAddress>0x40000000</baseAddress>"
        f"<registers>{inside}</registers></peripheral></peripherals></device>"
    )


def many(count: int, step: int, one: str, index: str = "") -> str:
    """The register or cluster as an array."""
    tag = "register" if one.startswith("<register>") else "cluster"
    index = f"<dimIndex>{index}</dimIndex>" if index else ""
    return one.replace(f"<{tag}>", f"<{tag}><dim>{count}</dim><dimIncrement>{step}</dimIncrement>{index}", 1)


def cluster(name: str, offset: int, *inside: str, more: str = "") -> str:
    return f"<cluster>{more}<name>{name}</name><addressOffset>{offset}</addressOffset>{''.join(inside)}</cluster>"


RO, WO = "<access>read-only</access>", "<access>write-only</access>"


# ---- SAMD51 TC (60001507, chapter 48): one block in three modes, commands by set and clear, synchronisation


def tc_count(chip, v):
    if chip.values.get(0, 0) & 0xC:
        raise BusError("the 8 bits are written in another mode")
    chip.values[0x14] = v


def tc_command(chip, v):
    chip.sent.append(v)
    if v >> 5 == 4:  # READSYNC
        chip.state["count"] = 77


TC = Part(
    "SAMD51 TC",
    "",
    0x40000000,
    'fields: {"C.COUNT*_CTRLA.*": {plain: true}, "C.COUNT*_CTRLB???.*": {back: "0"}, "C.COUNT*_PER.*": {plain: true}, "C.COUNT*_CC*.*": {plain: true}, "C.COUNT*_INTEN*.*": {back: "0"}}',
    """bfGroup A { bit SWRST; bit ENABLE; uint2 MODE; uint2 PRESCSYNC; bit RUNSTDBY; uint3 PRESCALER; }; bfGroup B { bit DIR; bit ONESHOT; uint3 CMD; };
bfGroup F { bit OVF; bit ERR; bit MC0; bit MC1; }; bfGroup S { bit SWRST; bit ENABLE; bit CTRLB; bit COUNT; };
bfGroup Mode8 { bfGroup A CTRLA; bfGroup B CTRLBCLR; bfGroup B CTRLBSET; bfGroup F INTENCLR; bfGroup F INTENSET; bfGroup F INTFLAG; bfGroup S SYNCBUSY; uint8 COUNT; uint8 PER; uint8 CC[2]; };
bfGroup Mode16 { bfGroup A CTRLA; bfGroup B CTRLBSET; bfGroup S SYNCBUSY; uint16 COUNT; uint16 CC[2]; };
bfGroup Tc { bfGroup Mode8 COUNT8; bfGroup Mode16 COUNT16; };
make_device(Tc, tc, 0x40000000);
void open8(int per, int a) { tc->COUNT8.CTRLA.ENABLE = 0; while (tc->COUNT8.SYNCBUSY.ENABLE) ; tc->COUNT8.CTRLA.MODE = 1; tc->COUNT8.CTRLA.PRESCALER = 5; tc->COUNT8.PER = per; tc->COUNT8.CC[1] = a; tc->COUNT8.INTENCLR = (bfGroup F){ .ERR = 1 }; tc->COUNT8.INTENSET.OVF = 1; tc->COUNT8.CTRLBSET.ONESHOT = 1; tc->COUNT8.CTRLBCLR.DIR = 1; tc->COUNT8.CTRLA.ENABLE = 1; }
int count16(void) { tc->COUNT16.CTRLBSET = (bfGroup B){ .CMD = 4 }; while (tc->COUNT16.SYNCBUSY.CTRLB) ; return tc->COUNT16.COUNT; }
void compare(int n, int v) { tc->COUNT16.CC[n] = v; }
int over(void) { bfGroup F f = tc->COUNT8.INTFLAG; if (f.OVF) tc->COUNT8.INTFLAG.OVF = 1; if (f.MC0) tc->COUNT8.INTFLAG = (bfGroup F){ .MC0 = 1, .MC1 = 1 }; return f.ERR; }""",
    """void open8(int per, int a) { R(0) &= ~2u; while (R(16) & 2) ; R(0) = (R(0) & ~0x70Cu) | 4 | 5 << 8; R8(0x1B) = per; R8(0x1D) = a; R8(8) = 2; R8(9) = 1; R8(5) = 4; R8(4) = 1; R(0) |= 2; }
int count16(void) { R8(5) = 4 << 5; while (R(16) & 4) ; return R16(0x14); }
void compare(int n, int v) { R16(0x1C + 2 * n) = v; }
int over(void) { unsigned f = R8(10); if (f & 1) R8(10) = 1; if (f & 16) R8(10) = 48; return f >> 1 & 1; }""",
    (("open8", 200, 99), ("count16",), ("compare", 1, 0x1234), ("over",), ("over",)),
    clears={10: 0x33},
    reads={16: toggled(2, 0, 4, 0), 20: lambda c: c.state["count"], 10: toggled(0x11, 0x02)},
    writes={5: tc_command},
    sizes={4: 1, 5: 1, 8: 1, 9: 1, 10: 1, 0x14: 2, 0x1B: 1, 0x1C: 2, 0x1D: 1, 0x1E: 2},
    text=device(
        *(
            cluster(
                mode,
                0,
                register("CTRLA", 0, 32, "SWRST:0:1 ENABLE:1:1 MODE:2:2 PRESCSYNC:4:2 RUNSTDBY:6:1 PRESCALER:8:3"),
                register("CTRLBCLR", 4, 8, "DIR:0:1 LUPD:1:1 ONESHOT:2:1 CMD:5:3"),
                register("CTRLBSET", 5, 8, "DIR:0:1 LUPD:1:1 ONESHOT:2:1 CMD:5:3"),
                register("INTENCLR", 8, 8, "OVF:0:1 ERR:1:1 MC0:4:1 MC1:5:1"),
                register("INTENSET", 9, 8, "OVF:0:1 ERR:1:1 MC0:4:1 MC1:5:1"),
                register(
                    "INTFLAG", 10, 8, "OVF:0:1:oneToClear ERR:1:1:oneToClear MC0:4:1:oneToClear MC1:5:1:oneToClear"
                ),
                register("SYNCBUSY", 16, 32, "SWRST:0:1 ENABLE:1:1 CTRLB:2:1 STATUS:3:1 COUNT:4:1", RO),
                register("COUNT", 0x14, bits, f"COUNT:0:{bits}"),
                *([register("PER", 0x1B, 8, "PER:0:8")] if bits == 8 else []),
                many(2, bits // 8, register("CC[%s]", 0x1C, bits, f"CC:0:{bits}")),
                more=more,
            )
            for mode, bits, more in (("COUNT8", 8, ""), ("COUNT16", 16, "<alternateCluster>COUNT8</alternateCluster>"))
        )
    ),
)

# ---- SAMD21 PORT (DS40001882, chapter 23): three registers for one, pins of 8 bits, one write for many pins

PORT = Part(
    "SAMD21 PORT",
    "",
    0x40000000,
    'fields: {"C.PINCFG*.*": {plain: true}, "C.PMUX*.*": {plain: true}, "C.DIR.*": {plain: true}, "C.OUT.*": {plain: true}, "C.*SET.*": {back: "0"}, "C.*CLR.*": {back: "0"}, "C.*TGL.*": {back: "0"}}',
    """bfGroup Cfg { bit PMUXEN; bit INEN; bit PULLEN; bit DRVSTR; }; bfGroup Mux { uint4 PMUXE; uint4 PMUXO; };
bfGroup Wr { uint16 PINMASK; bit PMUXEN; bit INEN; bit PULLEN; uint4 PMUX; bit WRPMUX; bit WRPINCFG; bit HWSEL; };
bfGroup Port { uint32 DIR; uint32 DIRCLR; uint32 DIRSET; uint32 OUT; uint32 OUTCLR; uint32 OUTSET; uint32 OUTTGL; uint32 IN; bfGroup Wr WRCONFIG; bfGroup Mux PMUX0_[16]; bfGroup Cfg PINCFG0_[32]; };
make_device(Port, port, 0x40000000);
void output(int pin) { port->DIRSET = 1u << pin; port->OUTCLR = 1u << pin; port->PINCFG0_[pin].INEN = 1; port->PINCFG0_[pin].PULLEN = 0; }
void mux(int pin, int f) { if (pin & 1) port->PMUX0_[pin >> 1].PMUXO = f; else port->PMUX0_[pin >> 1].PMUXE = f; port->PINCFG0_[pin].PMUXEN = 1; }
void mux8(void) { port->PMUX0_[4].PMUXE = 2; port->PMUX0_[4].PMUXO = 3; port->PINCFG0_[8] = (bfGroup Cfg){ .PMUXEN = 1, .DRVSTR = 1 }; }
void toggle(unsigned m) { port->OUTTGL = m; port->OUTTGL = m; }
void many(int mask) { port->WRCONFIG = (bfGroup Wr){ .PINMASK = mask, .INEN = 1, .WRPINCFG = 1, .HWSEL = 1 }; }
int look(int pin) { return port->IN >> pin & 1; }""",
    """void output(int pin) { R(8) = 1u << pin; R(20) = 1u << pin; R8(0x40 + pin) = (R8(0x40 + pin) & ~6u) | 2; }
void mux(int pin, int f) { if (pin & 1) R8(0x30 + (pin >> 1)) = (R8(0x30 + (pin >> 1)) & 15) | (f & 15) << 4; else R8(0x30 + (pin >> 1)) = (R8(0x30 + (pin >> 1)) & 0xF0) | (f & 15); R8(0x40 + pin) |= 1; }
void mux8(void) { R8(0x34) = 0x32; R8(0x48) = 0x41; }
void toggle(unsigned m) { R(28) = m; R(28) = m; }
void many(int mask) { R(40) = (mask & 0xFFFF) | 1 << 17 | 1 << 30 | 1u << 31; }
int look(int pin) { return R(32) >> pin & 1; }""",
    (("output", 17), ("mux", 9, 3), ("mux", 8, 2), ("mux8",), ("toggle", 0x80), ("many", 0xF0F0), ("look", 5)),
    reads={32: lambda c: 0x20},
    sizes={**{0x30 + i: 1 for i in range(16)}, **{0x40 + i: 1 for i in range(32)}},
    text=device(
        *(
            register(name, 4 * i, 32, f"{name}:0:32", RO if name == "IN" else "")
            for i, name in enumerate(("DIR", "DIRCLR", "DIRSET", "DIRTGL", "OUT", "OUTCLR", "OUTSET", "OUTTGL", "IN"))
        ),
        register(
            "WRCONFIG",
            40,
            32,
            "PINMASK:0:16 PMUXEN:16:1 INEN:17:1 PULLEN:18:1 DRVSTR:22:1 PMUX:24:4 WRPMUX:28:1 WRPINCFG:30:1 HWSEL:31:1",
            WO,
        ),
        many(16, 1, register("PMUX0_%s", 0x30, 8, "PMUXE:0:4 PMUXO:4:4"), "0-15"),
        many(32, 1, register("PINCFG0_%s", 0x40, 8, "PMUXEN:0:1 INEN:1:1 PULLEN:2:1 DRVSTR:6:1"), "0-31"),
    ),
)

# ---- LPC176x UART (UM10360, chapter 14): two registers at each address, and two more behind DLAB


def lpc_first(chip, v):
    chip.sent.append(("DLL" if chip.values.get(12, 0) & 0x80 else "THR", v))


def lpc_second(chip, v):
    chip.sent.append(("DLM" if chip.values.get(12, 0) & 0x80 else "IER", v))


LPC = Part(
    "LPC UART",
    "",
    0x40000000,
    'fields: {"C.LCR.*": {plain: true}, "C.IER.*": {plain: true}, "C.DL?.*": {plain: true}, "C.RBR.*": {rse: [self, "C.LSR.*"]}, "C.LSR.[OPFB]?": {rse: [self]}, "C.IIR.INTID": {rse: [self]}}',
    """bfGroup Lcr { uint2 WLS; bit SBS; bit PE; uint2 PS; bit BC; bit DLAB; }; bfGroup Fcr { bit FIFOEN; bit RXFIFORES; bit TXFIFORES; uint2 RXTRIGLVL; };
bfGroup Lsr { bit RDR; bit OE; bit PE; bit FE; bit BI; bit THRE; }; bfGroup Iir { bit INTSTATUS; uint3 INTID; }; bfGroup Ier { bit RBRIE; bit THREIE; bit RXIE; };
bfGroup Uart { uint8 RBR; uint8 THR; uint8 DLLSB; uint8 DLMSB; bfGroup Ier IER; bfGroup Iir IIR; bfGroup Fcr FCR; bfGroup Lcr LCR; bfGroup Lsr LSR; };
make_device(Uart, uart, 0x40000000);
void open(int div) { uart->LCR = (bfGroup Lcr){ .WLS = 3, .DLAB = 1 }; uart->DLLSB = div; uart->DLMSB = div >> 8; uart->LCR.DLAB = 0; uart->FCR = (bfGroup Fcr){ .FIFOEN = 1, .RXFIFORES = 1, .TXFIFORES = 1 }; uart->IER.RBRIE = 1; uart->IER.RXIE = 1; }
void put(int c) { for (;;) { bfGroup Lsr s = uart->LSR; if (s.THRE) break; } uart->THR = c; uart->THR = 10; }
int get(void) { bfGroup Lsr s = uart->LSR; if (s.OE) return -2; return s.RDR ? uart->RBR : -1; }
int cause(void) { bfGroup Iir i = uart->IIR; return i.INTSTATUS ? -1 : i.INTID; }""",
    """void open(int div) { R(12) = 0x83; R(0) = div & 255; R(4) = div >> 8 & 255; R(12) &= ~0x80u; R(8) = 7; R(4) = (R(4) & ~5u) | 5; }
void put(int c) { while (!(R(20) & 0x20)) ; R(0) = c & 255; R(0) = 10; }
int get(void) { unsigned s = R(20); if (s & 2) return -2; return s & 1 ? (int)(R(0) & 255) : -1; }
int cause(void) { unsigned i = R(8); return i & 1 ? -1 : (int)(i >> 1 & 7); }""",
    (("open", 0x1A2), ("put", 65), ("get",), ("get",), ("get",), ("cause",), ("cause",)),
    reads={20: toggled(0, 0x60, 0x61, 0x60, 3), 0: lambda c: 0x55, 8: toggled(0xC4, 0xC1), 4: lambda c: 0},
    writes={0: lpc_first, 4: lpc_second, 8: lambda c, v: c.sent.append(v)},
    text=device(
        register("RBR", 0, 32, "RBR:0:8", RO),
        register("THR", 0, 32, "THR:0:8", WO + "<alternateRegister>RBR</alternateRegister>"),
        register("DLL", 0, 32, "DLLSB:0:8", "<alternateRegister>RBR</alternateRegister>"),
        register("DLM", 4, 32, "DLMSB:0:8"),
        register("IER", 4, 32, "RBRIE:0:1 THREIE:1:1 RXIE:2:1", "<alternateRegister>DLM</alternateRegister>"),
        register("IIR", 8, 32, "INTSTATUS:0:1 INTID:1:3 FIFOENABLE:6:2", RO),
        register(
            "FCR",
            8,
            32,
            "FIFOEN:0:1 RXFIFORES:1:1 TXFIFORES:2:1 RXTRIGLVL:6:2",
            WO + "<alternateRegister>IIR</alternateRegister>",
        ),
        register("LCR", 12, 32, "WLS:0:2 SBS:2:1 PE:3:1 PS:4:2 BC:6:1 DLAB:7:1"),
        register("LSR", 20, 32, "RDR:0:1 OE:1:1 PE:2:1 FE:3:1 BI:4:1 THRE:5:1 TEMT:6:1", RO),
    ),
)

# ---- MSP432P4 WDT_A and CS (SLAU356, chapters 17 and 6): 16 bits with a password that reads as something else


def password(chip, v):
    if v >> 8 != 0x5A:
        raise BusError("the watchdog's password")
    chip.values[0] = 0x6900 | v & 0xF7


def cs(at):
    def w(chip, v):
        if chip.values.get(16, 0) != 0x695A:
            raise BusError("CS is locked")
        chip.values[at] = v

    return w


WDT = Part(
    "MSP432 WDT and CS",
    "",
    0x40000000,
    'fields: {"C.WDTCTL.*": {plain: true}, "C.WDTCTL.WDTPW": {access: w, back: never, plain: false}, "C.CSCTL?.*": {plain: true}}',
    """bfGroup W { uint3 WDTIS; bit WDTCNTCL; bit WDTTMSEL; uint2 WDTSSEL; bit WDTHOLD; uint8 WDTPW; };
bfGroup C0 { uint10 DCOTUNE; uint3 DCORSEL; bit DCOEN; }; bfGroup C1 { uint3 SELM; uint3 SELS; uint3 DIVM; };
bfGroup Sys { bfGroup W WDTCTL; uint16 CSKEY; bfGroup C0 CSCTL0; bfGroup C1 CSCTL1; };
make_device(Sys, sys, 0x40000000);
void hold(void) { sys->WDTCTL = (bfGroup W){ .WDTPW = 0x5A, .WDTHOLD = 1 }; }
void kick(void) { bfGroup W w = sys->WDTCTL; w.WDTPW = 0x5A; w.WDTCNTCL = 1; sys->WDTCTL = w; }
void clock(int range) { sys->CSKEY = 0x695A; sys->CSCTL0.DCORSEL = range; sys->CSCTL0.DCOTUNE = 0; sys->CSCTL1.SELM = 3; sys->CSCTL1.DIVM = 1; sys->CSKEY = 0; }""",
    """void hold(void) { R16(0) = 0x5A84; }
void kick(void) { unsigned w = R16(0); R16(0) = (w & 0xFF) | 0x5A08; }
void clock(int range) { R(16) = 0x695A; R(20) = (R(20) & ~0x703FFu) | (range & 7) << 16; R(24) = (R(24) & ~0x70007u) | 3 | 1 << 16; R(16) = 0; }""",
    (("hold",), ("kick",), ("clock", 3)),
    reads={0: lambda c: c.values.get(0, 0x6904)},
    writes={0: password, 20: cs(20), 24: cs(24)},
    sizes={0: 2},
    text=device(
        register(
            "WDTCTL",
            0,
            16,
            "WDTIS:0:3 WDTCNTCL:3:1 WDTTMSEL:4:1 WDTSSEL:5:2 WDTHOLD:7:1 WDTPW:8:8",
            "<resetValue>0x6904</resetValue>",
        ),
        register("CSKEY", 16, 32, "CSKEY:0:16"),
        register("CSCTL0", 20, 32, "DCOTUNE:0:10 DCORSEL:16:3 DCORES:22:1 DCOEN:23:1"),
        register("CSCTL1", 24, 32, "SELM:0:3 SELS:4:3 SELA:8:3 DIVM:16:3"),
    ),
)

# ---- Kinetis K22 PORT, UART and WDOG (K22P121M120SF7RM): a flag that a 1 clears among bits that stay, 8 bits, a key


def unlock(chip, v):
    step = chip.state.get("unlock", 0)
    chip.state["unlock"] = 1 if v == 0xC520 else 2 if step == 1 and v == 0xD928 else 0
    if not chip.state["unlock"]:
        raise BusError(f"the watchdog's key {v:#x}")


def stctrl(chip, v):
    if chip.state.get("unlock") != 2:
        raise BusError("the watchdog is locked")
    chip.values[0x100] = v


def pcr(at):
    def w(chip, v):
        old = chip.values.get(at, 0x01000000)
        chip.values[at] = (v & ~0x01000000) | (old & ~v & 0x01000000)

    return w


KINETIS = Part(
    "Kinetis PORT, UART and WDOG",
    "",
    0x40000000,
    'fields: {"C.PCR*.*": {plain: true}, "C.PCR*.ISF": {plain: false}, "C.UART_C2.*": {plain: true}, "C.UART_S1.*": {rse: [self]}, "C.UART_D.*": {rse: [self, "C.UART_S1.*"]}, "C.STCTRLH.*": {plain: true}}',
    """bfGroup Pcr { bit PS; bit PE; bit DSE; uint3 MUX; uint4 IRQC; bit ISF; }; bfGroup S1 { bit PF; bit FE; bit NF; bit OR; bit IDLE; bit RDRF; bit TC; bit TDRE; };
bfGroup St { bit WDOGEN; bit CLKSRC; bit ALLOWUPDATE; };
bfGroup K { bfGroup Pcr PCR[8]; uint32 ISFR; bit UART_C2_RE; bit UART_C2_TE; bfGroup S1 UART_S1; uint8 UART_D; uint16 UNLOCK; bfGroup St STCTRLH; };
make_device(K, k, 0x40000000);
void mux(int pin, int f) { bfGroup Pcr *p = &k->PCR[pin]; p->MUX = f; p->PE = 1; p->PS = 0; }
void edge(int pin) { k->PCR[pin].ISF = 1; k->PCR[pin].IRQC = 9; }
unsigned pending(void) { unsigned f = k->ISFR; k->ISFR = f; return f; }
void on(void) { k->UART_C2_RE = 1; k->UART_C2_TE = 1; }
int get(void) { bfGroup S1 s = k->UART_S1; if (!s.RDRF) return -1; int c = k->UART_D; return s.OR ? -2 : c; }
void off(void) { bf_critical { k->UNLOCK = 0xC520; k->UNLOCK = 0xD928; } k->STCTRLH.WDOGEN = 0; k->STCTRLH.ALLOWUPDATE = 1; }""",
    """void mux(int pin, int f) { R(4 * pin) = (R(4 * pin) & ~0x01000703u) | (f & 7) << 8 | 2; }
void edge(int pin) { R(4 * pin) |= 0x01000000; R(4 * pin) = (R(4 * pin) & ~0x010F0000u) | 9 << 16; }
unsigned pending(void) { unsigned f = R(0x80); R(0x80) = f; return f; }
void on(void) { R8(0xA3) |= 12; }
int get(void) { unsigned s = R8(0xA4); if (!(s & 0x20)) return -1; int c = R8(0xA7); return s & 8 ? -2 : c; }
void off(void) { R16(0x10E) = 0xC520; R16(0x10E) = 0xD928; R16(0x100) = (R16(0x100) & ~0x11u) | 0x10; }""",
    (("mux", 3, 4), ("edge", 3), ("pending",), ("on",), ("get",), ("get",), ("get",), ("off",)),
    clears={0x80: 0xFFFFFFFF},
    reads={
        0x80: lambda c: c.values.setdefault(0x80, 0x88),
        0xA4: toggled(0x80, 0xA0, 0x28),
        0xA7: lambda c: 0x41,
        12: lambda c: c.values.setdefault(12, 0x01000001),
    },
    writes={**{4 * i: pcr(4 * i) for i in range(8)}, 0x10E: unlock, 0x100: stctrl},
    sizes={0xA3: 1, 0xA4: 1, 0xA7: 1, 0x100: 2, 0x10E: 2},
    text=device(
        many(
            8,
            4,
            register("PCR%s", 0, 32, "PS:0:1 PE:1:1 PFE:4:1 DSE:6:1 MUX:8:3 LK:15:1 IRQC:16:4 ISF:24:1:oneToClear"),
        ),
        register("ISFR", 0x80, 32, "ISF:0:32:oneToClear"),
        register("UART_C2", 0xA3, 8, "SBK:0:1 RWU:1:1 RE:2:1 TE:3:1 RIE:5:1 TIE:7:1"),
        register("UART_S1", 0xA4, 8, "PF:0:1 FE:1:1 NF:2:1 OR:3:1 IDLE:4:1 RDRF:5:1 TC:6:1 TDRE:7:1", RO),
        register("UART_D", 0xA7, 8, "RT:0:8"),
        register("STCTRLH", 0x100, 16, "WDOGEN:0:1 CLKSRC:1:1 ALLOWUPDATE:4:1"),
        register("UNLOCK", 0x10E, 16, "WDOGUNLOCK:0:16", WO),
    ),
)

# ---- Kinetis and i.MX eDMA (IMXRT1060RM, chapter 6): descriptors of 32 and 16 bits, commands by channel number


def of_channel(what):
    def w(chip, v):
        chip.sent.append((what, v))

    return w


EDMA = Part(
    "eDMA",
    "",
    0x40000000,
    'fields: {"C.TCD*": {plain: true}, "C.?ERQ.*": {wse: [self], back: "0"}, "C.CINT.*": {wse: [self], back: "0"}}',
    """bfGroup Attr { uint3 DSIZE; uint5 DMOD; uint3 SSIZE; uint5 SMOD; }; bfGroup Csr { bit START; bit INTMAJOR; bit INTHALF; bit DREQ; bit ACTIVE; bit DONE; };
bfGroup Tcd { uint32 SADDR; uint16 SOFF; bfGroup Attr ATTR; uint32 NBYTES_MLNO; uint32 SLAST; uint32 DADDR; uint16 DOFF; uint15 CITER_ELINKNO_CITER; uint32 DLASTSGA; bfGroup Csr CSR; uint15 BITER_ELINKNO_BITER; };
bfGroup Ch { uint5 CERQ; bit CAER; bit NOP; };
bfGroup Dma { bfGroup Ch CERQ; uint5 SERQ; uint5 CINT; uint32 INT; bfGroup Tcd TCD[16]; };
make_device(Dma, dma, 0x40000000);
void copy(int n, unsigned from, unsigned to, int bytes) { bfGroup Tcd *t = &dma->TCD[n]; dma->CERQ = (bfGroup Ch){ .CERQ = n }; t->SADDR = from; t->SOFF = 4; t->ATTR = (bfGroup Attr){ .DSIZE = 2, .SSIZE = 2 }; t->NBYTES_MLNO = bytes; t->SLAST = 0; t->DADDR = to; t->DOFF = 4; t->CITER_ELINKNO_CITER = 1; t->BITER_ELINKNO_BITER = 1; t->DLASTSGA = 0; t->CSR = (bfGroup Csr){ .DREQ = 1, .INTMAJOR = 1 }; dma->SERQ = n; }
int done(int n) { if (!dma->TCD[n].CSR.DONE) return 0; dma->TCD[n].CSR.DONE = 0; dma->CINT = n; return 1; }
void stop(void) { dma->CERQ = (bfGroup Ch){ .CAER = 1 }; }""",
    """void copy(int n, unsigned from, unsigned to, int bytes) { unsigned t = 0x1000 + 32 * n; R8(0x1A) = n & 31; R(t) = from; R16(t + 4) = 4; R16(t + 6) = 0x202; R(t + 8) = bytes; R(t + 12) = 0; R(t + 16) = to; R16(t + 20) = 4; R16(t + 22) = (R16(t + 22) & 0x8000) | 1; R16(t + 30) = (R16(t + 30) & 0x8000) | 1; R(t + 24) = 0; R16(t + 28) = 10; R8(0x1B) = n & 31; }
int done(int n) { unsigned t = 0x1000 + 32 * n; unsigned c = R16(t + 28); if (!(c & 0x80)) return 0; R16(t + 28) = c & ~0x80u; R8(0x1F) = n & 31; return 1; }
void stop(void) { R8(0x1A) = 0x40; }""",
    (("copy", 3, 0x20000000, 0x20001000, 64), ("done", 3), ("done", 3), ("stop",)),
    reads={0x107C: toggled(0x08, 0x8A)},
    writes={0x1A: of_channel("CERQ"), 0x1B: of_channel("SERQ"), 0x1F: of_channel("CINT")},
    span=0x2000,
    sizes={0x1A: 1, 0x1B: 1, 0x1F: 1, **{0x1000 + 32 * i + o: 2 for i in range(16) for o in (4, 6, 20, 22, 28, 30)}},
    text=device(
        register("CERQ", 0x1A, 8, "CERQ:0:5 CAER:6:1 NOP:7:1", WO),
        register("SERQ", 0x1B, 8, "SERQ:0:5 SAER:6:1 NOP:7:1", WO),
        register("CINT", 0x1F, 8, "CINT:0:5 CAIR:6:1 NOP:7:1", WO),
        register("INT", 0x24, 32, "INT:0:32:oneToClear"),
        *(
            many(16, 32, register(f"TCD%s_{name}", 0x1000 + at, bits, fields, more))
            for name, at, bits, fields, more in (
                ("SADDR", 0, 32, "SADDR:0:32", ""),
                ("SOFF", 4, 16, "SOFF:0:16", ""),
                ("ATTR", 6, 16, "DSIZE:0:3 DMOD:3:5 SSIZE:8:3 SMOD:11:5", ""),
                ("NBYTES_MLNO", 8, 32, "NBYTES:0:32", "<alternateGroup>TCD_NBYTES</alternateGroup>"),
                (
                    "NBYTES_MLOFFNO",
                    8,
                    32,
                    "NBYTES:0:30 DMLOE:30:1 SMLOE:31:1",
                    "<alternateGroup>TCD_NBYTES</alternateGroup>",
                ),
                ("SLAST", 12, 32, "SLAST:0:32", ""),
                ("DADDR", 16, 32, "DADDR:0:32", ""),
                ("DOFF", 20, 16, "DOFF:0:16", ""),
                ("CITER_ELINKNO", 22, 16, "CITER:0:15 ELINK:15:1", "<alternateGroup>TCD_CITER</alternateGroup>"),
                ("DLASTSGA", 24, 32, "DLASTSGA:0:32", ""),
                ("CSR", 28, 16, "START:0:1 INTMAJOR:1:1 INTHALF:2:1 DREQ:3:1 ACTIVE:6:1 DONE:7:1", ""),
                ("BITER_ELINKNO", 30, 16, "BITER:0:15 ELINK:15:1", "<alternateGroup>TCD_BITER</alternateGroup>"),
            )
        ),
    ),
)

PARTS = (TC, PORT, LPC, WDT, KINETIS, EDMA)
