# ruff: noqa: E501  (C on one line reads better here)
"""Drivers whose accesses are compared one by one with code by hand: kind, address, value and order.

The files are vendors' (RP2040, nRF52832, FE310); the models hold what their manuals say of keys, FIFOs and flags.
"""

from __future__ import annotations

from tests.drivers.silicon import BusError, Part, pop, push, started, toggled


def claim(chip):  # a read takes the lock, a write gives it back
    held = chip.state.get("lock", 0)
    chip.state["lock"] = 1
    return 0 if held else 1 << 5


def release(chip, v):
    if not chip.state.pop("lock", 0):
        raise BusError("released twice")


def divided(chip):
    if chip.state.pop("wait", 0):
        raise BusError("the quotient too early")
    chip.values[0x78] = 1
    return chip.values.get(0x60, 0) // max(1, chip.values.get(0x64, 1))


def divide(chip, v):
    chip.values[0x64] = v
    chip.state["wait"] = 2


def dividing(chip):
    left = chip.state.get("wait", 0)
    chip.state["wait"] = max(0, left - 1)
    return 0 if left else 3


SIO = Part(
    "RP2040 SIO",
    "rp2040.svd",
    0xD0000000,
    'fields: {"SIO.GPIO_O*.*": {plain: true}, "SIO.GPIO_O*_SET.*": {access: w, plain: false}, "SIO.GPIO_O*_CLR.*": {access: w, plain: false}, "SIO.FIFO_RD.*": {rse: [self, "SIO.FIFO_ST.VLD"]}, "SIO.SPINLOCK4.*": {rse: [self], wse: [self], access: rw}, "SIO.DIV_UDIVISOR.*": {wse: ["SIO.DIV_CSR.*", "SIO.DIV_QUOTIENT.*", "SIO.DIV_REMAINDER.*"]}, "SIO.DIV_QUOTIENT.*": {rse: ["SIO.DIV_CSR.*"]}, "SIO.INTERP0_POP*.*": {rse: ["SIO.INTERP0_ACCUM?.*"]}}',
    """bfGroup Fifo { bit ROE; bit WOF; bit RDY; bit VLD; }; bfGroup Csr { bit DIRTY; bit READY; };
bfGroup Sio { uint30 GPIO_IN; uint30 GPIO_OUT; uint30 GPIO_OUT_SET; uint30 GPIO_OUT_CLR; uint30 GPIO_OE_SET; bfGroup Fifo FIFO_ST; uint32 FIFO_WR; uint32 FIFO_RD; uint32 SPINLOCK4;
 uint32 DIV_UDIVIDEND; uint32 DIV_UDIVISOR; uint32 DIV_QUOTIENT; uint32 DIV_REMAINDER; bfGroup Csr DIV_CSR; uint32 INTERP0_ACCUM0; uint32 INTERP0_BASE0; uint32 INTERP0_POP_LANE0; uint32 INTERP0_PEEK_LANE0; };
make_device(Sio, sio, 0xD0000000);
void pulse(int pin) { sio->GPIO_OE_SET = 1u << pin; sio->GPIO_OUT_SET = 1u << pin; sio->GPIO_OUT_CLR = 1u << pin; sio->GPIO_OUT_SET = 1u << pin; }
void port(int v) { sio->GPIO_OUT = v; sio->GPIO_OUT = v + 1; }
void post(unsigned v) { while (!sio->FIFO_ST.RDY) ; sio->FIFO_WR = v; sio->FIFO_WR = v + 1; }
int take(void) { int n = 0; while (sio->FIFO_ST.VLD) { (void)sio->FIFO_RD; n++; } return n; }
int faults(void) { bfGroup Fifo f = sio->FIFO_ST; if (f.ROE || f.WOF) sio->FIFO_ST = (bfGroup Fifo){ .ROE = 1, .WOF = 1 }; return f.ROE + 2 * f.WOF; }
void onlyroe(void) { sio->FIFO_ST.ROE = 1; sio->FIFO_ST.WOF = 1; }
int lock(void) { if (!sio->SPINLOCK4) return 0; sio->SPINLOCK4 = 1; return 1; }
int locktwice(void) { int a = sio->SPINLOCK4 != 0, b = sio->SPINLOCK4 != 0; sio->SPINLOCK4 = 0; return a + 2 * b; }
int divide(unsigned a, unsigned b) { sio->DIV_UDIVIDEND = a; sio->DIV_UDIVISOR = b; while (!sio->DIV_CSR.READY) ; unsigned r = sio->DIV_REMAINDER; return (int)(sio->DIV_QUOTIENT * 16 + r); }
int step(int b) { sio->INTERP0_ACCUM0 = b; sio->INTERP0_BASE0 = b; int x = sio->INTERP0_POP_LANE0; x += sio->INTERP0_POP_LANE0; return x + sio->INTERP0_PEEK_LANE0 + sio->INTERP0_ACCUM0; }""",
    """void pulse(int pin) { R(0x24) = 1u << pin; R(0x14) = 1u << pin; R(0x18) = 1u << pin; R(0x14) = 1u << pin; }
void port(int v) { R(0x10) = v; R(0x10) = v + 1; }
void post(unsigned v) { while (!(R(0x50) & 2)) ; R(0x54) = v; R(0x54) = v + 1; }
int take(void) { int n = 0; while (R(0x50) & 1) { (void)R(0x58); n++; } return n; }
int faults(void) { unsigned f = R(0x50); if (f & 12) R(0x50) = 12; return (f >> 3 & 1) + 2 * (f >> 2 & 1); }
void onlyroe(void) { R(0x50) = 8; R(0x50) = 4; }
int lock(void) { if (!R(0x110)) return 0; R(0x110) = 1; return 1; }
int locktwice(void) { int a = R(0x110) != 0, b = R(0x110) != 0; R(0x110) = 0; return a + 2 * b; }
int divide(unsigned a, unsigned b) { R(0x60) = a; R(0x64) = b; while (!(R(0x78) & 1)) ; unsigned r = R(0x74); return (int)(R(0x70) * 16 + r); }
int step(int b) { R(0x80) = b; R(0x88) = b; int x = R(0x94); x += R(0x94); unsigned y = R(0xA0); return x + y + R(0x80); }""",
    (
        ("pulse", 5),
        ("port", 3),
        ("post", 7),
        ("take",),
        ("faults",),
        ("faults",),
        ("onlyroe",),
        ("lock",),
        ("locktwice",),
        ("divide", 100, 7),
        ("step", 3),
    ),
    clears={0x50: 12},
    reads={
        0x50: lambda c: (
            c.values.setdefault(0x50, 8) & 12
            | (2 if c.state.setdefault("n", 0) & 1 else 0)
            | (1 if 1 < c.state["n"] < 4 else 0)
            if not c.state.update(n=c.state.get("n", 0) + 1)
            else 0
        ),
        0x58: pop,
        0x110: claim,
        0x78: dividing,
        0x70: divided,
        0x74: lambda c: c.values.get(0x60, 0) % max(1, c.values.get(0x64, 1)),
        0x94: lambda c: c.state.update(p=c.state.get("p", 0) + 3) or c.state["p"],
        0xA0: lambda c: c.state["p"],
    },
    writes={0x54: push, 0x64: divide, 0x110: release},
)


def sie(chip, v):
    if v & 0x2000:
        chip.sent.append(v)
    chip.values[0x4C] = v & ~0x3011


USB = Part(
    "RP2040 USBCTRL",
    "rp2040.svd",
    0x50110000,
    'fields: {"USBCTRL_REGS.ADDR_ENDP*.*": {plain: true}, "USBCTRL_REGS.MAIN_CTRL.*": {plain: true}, "USBCTRL_REGS.SIE_CTRL.*": {plain: true}, "USBCTRL_REGS.SIE_CTRL.RESUME": {plain: false, back: "0"}, "USBCTRL_REGS.SIE_CTRL.RESET_BUS": {plain: false, back: "0"}, "USBCTRL_REGS.SIE_CTRL.STOP_TRANS": {plain: false, back: "0"}, "USBCTRL_REGS.SIE_CTRL.START_TRANS": {plain: false, back: "0"}, "USBCTRL_REGS.BUFF_STATUS.*": {access: rw, back: "0"}, "USBCTRL_REGS.USB_*.*": {plain: true}, "USBCTRL_REGS.INTE.*": {plain: true}, "USBCTRL_REGS.NAK_POLL.*": {plain: true}}',
    """bfGroup Endp { bit INTEP_PREAMBLE; bit INTEP_DIR; uint4 ENDPOINT; uint7 ADDRESS; };
bfGroup Sie { bit EP0_INT_1BUF; bit PULLUP_EN; bit PULLDOWN_EN; bit RESET_BUS; bit RESUME; bit STOP_TRANS; bit START_TRANS; };
bfGroup Status { bit BUS_RESET; bit SETUP_REC; bit ACK_REC; bit STALL_REC; bit CONNECTED; };
bfGroup Buff { bit EP0_IN; bit EP0_OUT; bit EP1_IN; bit EP1_OUT; };
bfGroup Mux { bit SOFTCON; bit TO_PHY; }; bfGroup Pwr { bit VBUS_DETECT; bit VBUS_DETECT_OVERRIDE_EN; };
bfGroup Enables { bit BUFF_STATUS; bit BUS_RESET; bit SETUP_REQ; }; bfGroup Nak { uint10 DELAY_FS; uint10 DELAY_LS; };
bfGroup Usb { uint7 ADDR_ENDP_ADDRESS; bfGroup Endp ADDR_ENDP1; bfGroup Endp ADDR_ENDP2; bit CONTROLLER_EN; bit HOST_NDEVICE; bfGroup Sie SIE_CTRL; bfGroup Status SIE_STATUS; bfGroup Buff BUFF_STATUS; bfGroup Mux USB_MUXING; bfGroup Pwr USB_PWR; bfGroup Enables INTE; bfGroup Enables INTS; bfGroup Nak NAK_POLL; };
make_device(Usb, usb, 0x50110000);
void open(void) { usb->USB_MUXING = (bfGroup Mux){ .TO_PHY = 1, .SOFTCON = 1 }; usb->USB_PWR = (bfGroup Pwr){ .VBUS_DETECT = 1, .VBUS_DETECT_OVERRIDE_EN = 1 }; usb->CONTROLLER_EN = 1; usb->HOST_NDEVICE = 0; usb->SIE_CTRL = (bfGroup Sie){ .EP0_INT_1BUF = 1 }; usb->INTE = (bfGroup Enables){ .BUFF_STATUS = 1, .BUS_RESET = 1, .SETUP_REQ = 1 }; usb->SIE_CTRL.PULLUP_EN = 1; }
int isr(void) { int n = 0; bfGroup Enables s = usb->INTS; if (s.SETUP_REQ) { usb->SIE_STATUS.SETUP_REC = 1; n += 1; } if (s.BUFF_STATUS) { bfGroup Buff b = usb->BUFF_STATUS; usb->BUFF_STATUS = b; n += 2 + 8 * b.EP1_OUT; } if (s.BUS_RESET) { usb->SIE_STATUS.BUS_RESET = 1; usb->ADDR_ENDP_ADDRESS = 0; n += 4; } return n; }
void wake(void) { usb->SIE_CTRL.RESUME = 1; }
void bus(void) { usb->SIE_CTRL.RESET_BUS = 1; usb->SIE_CTRL.PULLDOWN_EN = 1; usb->SIE_CTRL.STOP_TRANS = 1; }
void acked(void) { usb->SIE_STATUS.ACK_REC = 1; usb->SIE_STATUS.STALL_REC = 1; }
static void host(bfGroup Endp *e, int a, int n) { e->ADDRESS = a; e->ENDPOINT = n; e->INTEP_DIR = n >> 3; }
void poll(int a) { host(&usb->ADDR_ENDP1, a, 2); host(&usb->ADDR_ENDP2, a, 9); usb->NAK_POLL.DELAY_FS = a; }""",
    """void open(void) { R(0x74) = 9; R(0x78) = 12; R(0x40) = (R(0x40) & ~3u) | 1; R(0x4C) = 1 << 29; R(0x90) = 0x11010; R(0x4C) = (R(0x4C) & ~0x3011u) | 0x10000; }
int isr(void) { int n = 0; unsigned s = R(0x98); if (s & 0x10000) { R(0x50) = 1 << 17; n += 1; } if (s & 0x10) { unsigned b = R(0x58); R(0x58) = b & 15; n += 2 + 8 * (b >> 3 & 1); } if (s & 0x1000) { R(0x50) = 1 << 19; R(0) = R(0) & ~0x7Fu; n += 4; } return n; }
void wake(void) { R(0x4C) = (R(0x4C) & ~0x3011u) | 0x1000; }
void bus(void) { R(0x4C) = (R(0x4C) & ~0x3011u) | 0x2000; R(0x4C) = (R(0x4C) & ~0x3011u) | 0x8000; R(0x4C) = (R(0x4C) & ~0x3011u) | 0x10; }
void acked(void) { R(0x50) = 0x40000000; R(0x50) = 0x20000000; }
void poll(int a) { R(4) = (R(4) & ~0x020F007Fu) | (a & 127) | 2 << 16; R(8) = (R(8) & ~0x020F007Fu) | (a & 127) | 9 << 16 | 1 << 25; R(0x6C) = (R(0x6C) & ~0x3FF0000u) | (a & 0x3FF) << 16; }""",
    (("open",), ("isr",), ("isr",), ("wake",), ("bus",), ("acked",), ("poll", 5)),
    clears={0x50: 0xFF0E0010, 0x58: 0xFFFFFFFF},
    reads={0x98: toggled(0x11000, 0x11010), 0x58: lambda c: 0xC9},
    writes={0x4C: sie},
)

XIP = Part(
    "RP2040 XIP",
    "rp2040.svd",
    0x14000000,
    'fields: {"XIP_CTRL.CTRL.*": {plain: true}, "XIP_CTRL.FLUSH.*": {wse: ["XIP_CTRL.STAT.FLUSH_READY"]}, "XIP_CTRL.STREAM_FIFO.*": {rse: [self, "XIP_CTRL.STREAM_CTR.*", "XIP_CTRL.STAT.*"]}}',
    """bfGroup Ctl { bit POWER_DOWN; bit ERR_BADWRITE; bit EN; }; bfGroup Stat { bit FIFO_FULL; bit FIFO_EMPTY; bit FLUSH_READY; };
bfGroup Xip { bfGroup Ctl CTRL; bit FLUSH; bfGroup Stat STAT; uint32 CTR_HIT; uint32 CTR_ACC; uint30 STREAM_ADDR; uint22 STREAM_CTR; uint32 STREAM_FIFO; };
make_device(Xip, xip, 0x14000000);
void flush(void) { xip->FLUSH = 1; while (!xip->STAT.FLUSH_READY) ; }
void strobe(void) { xip->CTRL.EN = 0; xip->FLUSH = 1; (void)xip->FLUSH; xip->CTRL.EN = 1; xip->CTRL.ERR_BADWRITE = 1; }
void zero(void) { xip->CTR_HIT = 0xFFFFFFFF; xip->CTR_ACC = 0xFFFFFFFF; }
int rate(void) { return (int)(xip->CTR_HIT * 100 / xip->CTR_ACC); }
int stream(int from, int n) { int sum = 0; while (!xip->STAT.FIFO_EMPTY) (void)xip->STREAM_FIFO; xip->STREAM_ADDR = from >> 2; xip->STREAM_CTR = n; while (n--) { while (xip->STAT.FIFO_EMPTY) ; sum += xip->STREAM_FIFO; } return sum; }""",
    """void flush(void) { R(4) = 1; while (!(R(8) & 1)) ; }
void strobe(void) { R(0) &= ~1u; R(4) = 1; (void)R(4); R(0) |= 1; R(0) |= 2; }
void zero(void) { R(12) = 0xFFFFFFFF; R(16) = 0xFFFFFFFF; }
int rate(void) { unsigned a = R(12); return (int)(a * 100 / R(16)); }
int stream(int from, int n) { int sum = 0; while (!(R(8) & 2)) (void)R(0x1C); R(0x14) = from >> 2 << 2; R(0x18) = n; while (n--) { while (R(8) & 2) ; sum += R(0x1C); } return sum; }""",
    (("flush",), ("strobe",), ("rate",), ("zero",), ("stream", 0x1000, 3)),
    clears={12: 0xFFFFFFFF, 16: 0xFFFFFFFF},
    reads={
        8: toggled(0, 3, 0, 3, 2, 0, 0, 2, 0),
        0x1C: toggled(5, 6, 7),
        12: lambda c: c.values.setdefault(12, 90),
        16: lambda c: c.values.setdefault(16, 100),
    },
)


def password(at):
    def w(chip, v):
        if v >> 16 != 0x9696:
            raise BusError("no password")
        chip.values[at] = v

    return w


ROSC = Part(
    "RP2040 ROSC",
    "rp2040.svd",
    0x40060000,
    'fields: {"ROSC.CTRL.*": {plain: true}, "ROSC.DIV.*": {plain: true}, "ROSC.FREQ?.*": {plain: true}, "ROSC.PHASE.*": {plain: true}, "ROSC.COUNT.*": {volatile: true}}',
    """bfGroup Freq { uint16 PASSWD; uint3 DS3; uint3 DS2; uint3 DS1; uint3 DS0; }; bfGroup Ctl { uint12 ENABLE; uint12 FREQ_RANGE; }; bfGroup Stat { bit STABLE; bit BADWRITE; bit ENABLED; };
bfGroup Freqb { uint16 PASSWD; uint3 DS7; uint3 DS6; uint3 DS5; uint3 DS4; };
bfGroup Rosc { bfGroup Ctl CTRL; bfGroup Freq FREQA; bfGroup Freqb FREQB; uint12 DIV; bfGroup Stat STATUS; bit RANDOMBIT; uint8 COUNT; };
make_device(Rosc, rosc, 0x40060000);
void strong(int n) { rosc->FREQA = (bfGroup Freq){ .PASSWD = 0x9696, .DS0 = n, .DS1 = n, .DS2 = n, .DS3 = n }; rosc->FREQB.PASSWD = 0x9696; rosc->FREQB.DS7 = n; rosc->FREQB.DS6 = n; }
void one(int n) { bfGroup Freq f = rosc->FREQA; f.DS2 = n; rosc->FREQA = f; }
int start(void) { rosc->STATUS.BADWRITE = 1; rosc->CTRL.FREQ_RANGE = 0xFA4; rosc->CTRL.ENABLE = 0xFAB; rosc->DIV = 0xAA0 + 16; while (!rosc->STATUS.STABLE) ; return rosc->STATUS.BADWRITE; }
unsigned random(int n) { unsigned v = 0; for (int i = 0; i < n; i++) v = v << 1 | rosc->RANDOMBIT; return v; }
int two(void) { return rosc->RANDOMBIT << 1 | rosc->RANDOMBIT; }
void wait(int n) { rosc->COUNT = n; while (rosc->COUNT) ; }""",
    """void strong(int n) { unsigned d = n & 7; R(4) = 0x96960000 | d | d << 4 | d << 8 | d << 12; R(8) = (R(8) & ~0xFFFF7700u) | 0x96960000 | d << 12 | d << 8; }
void one(int n) { unsigned f = R(4); R(4) = ((f & ~0x700u) | (n & 7) << 8) & 0xFFFF7777; }
int start(void) { R(0x18) = 1 << 24; R(0) = 0xFABFA4; R(0x10) = 0xAB0; unsigned s; do s = R(0x18); while (!(s >> 31)); return s >> 24 & 1; }
unsigned random(int n) { unsigned v = 0; for (int i = 0; i < n; i++) v = v << 1 | (R(0x1C) & 1); return v; }
int two(void) { int a = R(0x1C) & 1; return a << 1 | (R(0x1C) & 1); }
void wait(int n) { R(0x20) = n & 255; while (R(0x20) & 255) ; }""",
    (("strong", 5), ("one", 2), ("start",), ("random", 5), ("two",), ("wait", 40)),
    clears={0x18: 1 << 24},
    reads={0x18: toggled(0, 1 << 31), 0x1C: toggled(1, 0, 1, 1, 0, 1), 0x20: toggled(2, 1, 0)},
    writes={4: password(4), 8: password(8)},
)


def reload(n):
    def w(chip, v):
        if v != 0x6E524635:
            raise BusError("the wrong word")
        chip.sent.append(n)

    return w


WDT = Part(
    "nRF52 WDT",
    "nrf52.svd",
    0x40010000,
    'fields: {"WDT.RREN.*": {plain: true}, "WDT.CONFIG.*": {plain: true}, "WDT.CRV.*": {plain: true}, "WDT.RR?.*": {wse: ["WDT.REQSTATUS.*"]}, "WDT.TASKS_START.*": {wse: ["WDT.RUNSTATUS.*"]}}',
    """bfGroup Req { bit RR0; bit RR1; bit RR2; bit RR3; }; bfGroup Cfg { bit SLEEP; bit HALT; };
bfGroup Wdt { uint32 TASKS_START; uint32 EVENTS_TIMEOUT; bit INTENSET_TIMEOUT; bit RUNSTATUS; bfGroup Req REQSTATUS; uint32 CRV; bfGroup Req RREN; bfGroup Cfg CONFIG; uint32 RR[8]; };
make_device(Wdt, wdt, 0x40010000);
int start(int s) { if (wdt->RUNSTATUS) return -1; wdt->CONFIG.SLEEP = 1; wdt->CONFIG.HALT = 0; wdt->CRV = s * 32768 - 1; wdt->RREN.RR0 = 1; wdt->RREN.RR2 = 1; wdt->INTENSET_TIMEOUT = 1; wdt->TASKS_START = 1; return 0; }
void feed(int n) { wdt->RR[n] = 0x6E524635; }
void all(void) { wdt->RR[0] = 0x6E524635; wdt->RR[2] = 0x6E524635; wdt->RR[0] = 0x6E524635; }
int missing(void) { return wdt->REQSTATUS.RR0 + 2 * wdt->REQSTATUS.RR2; }
int late(void) { if (wdt->EVENTS_TIMEOUT) { wdt->EVENTS_TIMEOUT = 0; (void)wdt->EVENTS_TIMEOUT; return 1; } return 0; }""",
    """int start(int s) { if (R(0x400) & 1) return -1; R(0x50C) = 1; R(0x504) = s * 32768 - 1; R(0x508) |= 5; R(0x304) = 1; R(0) = 1; return 0; }
void feed(int n) { R(0x600 + 4 * n) = 0x6E524635; }
void all(void) { R(0x600) = 0x6E524635; R(0x608) = 0x6E524635; R(0x600) = 0x6E524635; }
int missing(void) { unsigned q = R(0x404); return (q & 1) + 2 * (q >> 2 & 1); }
int late(void) { if (R(0x100)) { R(0x100) = 0; (void)R(0x100); return 1; } return 0; }""",
    (("start", 2), ("start", 2), ("feed", 1), ("all",), ("missing",), ("late",), ("late",)),
    reads={0x404: lambda c: 5 - len(c.sent) % 2, 0x100: lambda c: c.values.setdefault(0x100, 1)},
    writes={0: started(0x400), **{0x600 + 4 * n: reload(n) for n in range(8)}},
    locked=((0x400, 1, (0x504, 0x508, 0x50C)),),
)


def erase(chip, v):
    if chip.values.get(0x504, 0) != 2:
        raise BusError("not enabled")
    chip.sent.append(v)
    chip.state["busy"] = 2


def nv_ready(chip):
    chip.state["busy"] = max(0, chip.state.get("busy", 0) - 1)
    return int(not chip.state["busy"])


NVMC = Part(
    "nRF52 NVMC",
    "nrf52.svd",
    0x4001E000,
    'fields: {"NVMC.CONFIG.WEN": {plain: true}, "NVMC.ERASE*.*": {wse: ["NVMC.READY.*"], access: w}, "NVMC.ICACHECNF.*": {plain: true}}',
    """bfGroup Cache { bit CACHEEN; bit CACHEPROFEN; };
bfGroup Nvmc { bit READY; uint2 CONFIG_WEN; uint32 ERASEPAGE; uint32 ERASEPCR1; bit ERASEALL; bfGroup Cache ICACHECNF; uint32 IHIT; uint32 IMISS; };
make_device(Nvmc, nvmc, 0x4001E000);
static void ready(void) { while (!nvmc->READY) ; }
void page(unsigned a, int n) { nvmc->CONFIG_WEN = 2; for (int i = 0; i < n; i++) { ready(); nvmc->ERASEPAGE = a + 4096 * i; } ready(); nvmc->CONFIG_WEN = 0; ready(); }
void both(unsigned a) { nvmc->CONFIG_WEN = 2; nvmc->ERASEPAGE = a; nvmc->ERASEPCR1 = a; nvmc->CONFIG_WEN = 0; }
void whole(void) { nvmc->CONFIG_WEN = 2; nvmc->ERASEALL = 1; ready(); nvmc->CONFIG_WEN = 0; }
int profile(void) { nvmc->IHIT = 0; nvmc->IMISS = 0; nvmc->ICACHECNF = (bfGroup Cache){ .CACHEEN = 1, .CACHEPROFEN = 1 }; int a = nvmc->IHIT; int b = nvmc->IMISS; nvmc->ICACHECNF.CACHEPROFEN = 0; return a * 100 + b; }""",
    """static void ready(void) { while (!(R(0x400) & 1)) ; }
void page(unsigned a, int n) { R(0x504) = 2; for (int i = 0; i < n; i++) { ready(); R(0x508) = a + 4096 * i; } ready(); R(0x504) = 0; ready(); }
void both(unsigned a) { R(0x504) = 2; R(0x508) = a; R(0x508) = a; R(0x504) = 0; }
void whole(void) { R(0x504) = 2; R(0x50C) = 1; ready(); R(0x504) = 0; }
int profile(void) { R(0x548) = 0; R(0x54C) = 0; R(0x540) = 0x101; int a = R(0x548); int b = R(0x54C); R(0x540) &= ~0x100u; return a * 100 + b; }""",
    (("page", 0x8000, 3), ("both", 0x9000), ("whole",), ("profile",)),
    reads={0x400: nv_ready, 0x548: toggled(12, 13), 0x54C: toggled(4, 5)},
    writes={0x508: erase, 0x50C: erase},
)

QDEC = Part(
    "nRF52 QDEC",
    "nrf52.svd",
    0x40012000,
    'fields: {"QDEC.ENABLE.*": {plain: true}, "QDEC.*PER.*": {plain: true}, "QDEC.LED*.*": {plain: true}, "QDEC.DBFEN.*": {plain: true}, "QDEC.PSEL_*.*": {plain: true}, "QDEC.SHORTS.*": {plain: true}, "QDEC.INTEN???.*": {back: "0"}, "QDEC.TASKS_R*.*": {wse: ["QDEC.ACC.*", "QDEC.ACCREAD.*", "QDEC.ACCDBL*.*"]}, "QDEC.SAMPLEPER.*": {plain: true}}',
    """bfGroup Pin { uint5 PIN; bit CONNECT; }; bfGroup Psel { bfGroup Pin LED; bfGroup Pin A; bfGroup Pin B; }; bfGroup Shorts { bit REPORTRDY_READCLRACC; bit DBLRDY_STOP; };
bfGroup Qdec { uint32 TASKS_START; uint32 TASKS_STOP; uint32 TASKS_READCLRACC; uint32 EVENTS_REPORTRDY; uint32 EVENTS_ACCOF; bfGroup Shorts SHORTS; bit INTENSET_REPORTRDY; bit INTENSET_ACCOF; bit INTENCLR_ACCOF; bit ENABLE; bit LEDPOL; uint4 SAMPLEPER; uint32 SAMPLE; uint4 REPORTPER; uint32 ACC; uint32 ACCREAD; bfGroup Psel PSEL; bit DBFEN; uint9 LEDPRE; uint4 ACCDBLREAD; };
make_device(Qdec, qdec, 0x40012000);
static void pin(bfGroup Pin *p, int n) { p->PIN = n; p->CONNECT = n < 0; }
void open(int a, int b) { qdec->ENABLE = 0; pin(&qdec->PSEL.A, a); pin(&qdec->PSEL.B, b); qdec->PSEL.LED = (bfGroup Pin){ .CONNECT = 1 }; qdec->SAMPLEPER = 3; qdec->REPORTPER = 1; qdec->DBFEN = 1; qdec->LEDPRE = 100; qdec->LEDPOL = 1; qdec->SHORTS.REPORTRDY_READCLRACC = 1; qdec->INTENSET_REPORTRDY = 1; qdec->INTENSET_ACCOF = 1; qdec->INTENCLR_ACCOF = 1; qdec->ENABLE = 1; qdec->TASKS_START = 1; }
int take(void) { qdec->TASKS_READCLRACC = 1; int a = (int)qdec->ACCREAD; qdec->TASKS_READCLRACC = 1; return a * 16 + (int)qdec->ACCREAD + qdec->ACCDBLREAD; }
int look(void) { return (int)(qdec->ACC + qdec->ACC + qdec->SAMPLE); }
int isr(void) { int n = 0; if (qdec->EVENTS_REPORTRDY) { qdec->EVENTS_REPORTRDY = 0; n = (int)qdec->ACCREAD; } if (qdec->EVENTS_ACCOF) { qdec->EVENTS_ACCOF = 0; n = -1; } return n; }
void stop(void) { qdec->TASKS_STOP = 1; qdec->TASKS_STOP = 1; qdec->ENABLE = 0; }""",
    """static void pin(unsigned p, int n) { R(p) = 0x7FFFFFE0 | (n & 31) | (unsigned)(n < 0) << 31; }
void open(int a, int b) { R(0x500) = 0; pin(0x520, a); pin(0x524, b); R(0x51C) = 0xFFFFFFFF; R(0x508) = 3; R(0x510) = 1; R(0x528) = 1; R(0x540) = 100; R(0x504) = 1; R(0x200) |= 1; R(0x304) = 2; R(0x304) = 4; R(0x308) = 4; R(0x500) = 1; R(0) = 1; }
int take(void) { R(8) = 1; int a = (int)R(0x518); R(8) = 1; int b = (int)R(0x518); return a * 16 + b + (R(0x548) & 15); }
int look(void) { unsigned a = R(0x514); a += R(0x514); return (int)(a + R(0x50C)); }
int isr(void) { int n = 0; if (R(0x104)) { R(0x104) = 0; n = (int)R(0x518); } if (R(0x108)) { R(0x108) = 0; n = -1; } return n; }
void stop(void) { R(4) = 1; R(4) = 1; R(0x500) = 0; }""",
    (("open", 3, 4), ("take",), ("look",), ("isr",), ("isr",), ("stop",)),
    reads={
        0x518: toggled(7, 9, 2),
        0x514: toggled(1, 2),
        0x50C: toggled(3, 4),
        0x548: lambda c: 6,
        0x104: lambda c: c.values.setdefault(0x104, 1),
        0x108: lambda c: c.values.setdefault(0x108, 1),
    },
)


def capture(n):
    def w(chip, v):
        if v != 1:
            raise BusError("a task takes 1")
        chip.values[0x540 + 4 * n] = chip.state.setdefault("t", 100)
        chip.state["t"] += 7

    return w


TIMER = Part(
    "nRF52 TIMER",
    "nrf52.svd",
    0x40008000,
    'fields: {"TIMER0.MODE.*": {plain: true}, "TIMER0.BITMODE.*": {plain: true}, "TIMER0.PRESCALER.*": {plain: true}, "TIMER0.SHORTS.*": {plain: true}, "TIMER0.INTEN???.*": {back: "0"}, "TIMER0.TASKS_CAPTURE*.*": {wse: ["TIMER0.CC*.*"]}}',
    """bfGroup Shorts { bit COMPARE0_CLEAR; bit COMPARE1_STOP; };
bfGroup Ints { bit COMPARE0; bit COMPARE1; bit COMPARE5; };
bfGroup Timer { uint32 TASKS_START; uint32 TASKS_STOP; uint32 TASKS_CLEAR; uint32 TASKS_CAPTURE[6]; uint32 EVENTS_COMPARE[6]; bfGroup Shorts SHORTS; bfGroup Ints INTENSET; bfGroup Ints INTENCLR; uint2 MODE; uint2 BITMODE; uint4 PRESCALER; uint32 CC[6]; };
make_device(Timer, t0, 0x40008000);
void open(int pre) { t0->TASKS_STOP = 1; t0->TASKS_CLEAR = 1; t0->MODE = 0; t0->BITMODE = 3; t0->PRESCALER = pre; t0->SHORTS.COMPARE0_CLEAR = 1; t0->SHORTS.COMPARE1_STOP = 1; t0->CC[0] = 1000; t0->CC[1] = 5000; t0->INTENSET = (bfGroup Ints){ .COMPARE0 = 1, .COMPARE5 = 1 }; t0->INTENCLR.COMPARE1 = 1; t0->TASKS_START = 1; }
unsigned now(int n) { t0->TASKS_CAPTURE[n] = 1; return t0->CC[n]; }
unsigned lap(void) { t0->TASKS_CAPTURE[2] = 1; unsigned a = t0->CC[2]; t0->TASKS_CAPTURE[2] = 1; return t0->CC[2] - a; }
void ack(int n) { t0->EVENTS_COMPARE[n] = 0; (void)t0->EVENTS_COMPARE[n]; }
int any(void) { for (int i = 0; i < 6; i++) if (t0->EVENTS_COMPARE[i]) { t0->EVENTS_COMPARE[i] = 0; return i; } return -1; }""",
    """void open(int pre) { R(4) = 1; R(12) = 1; R(0x504) = 0; R(0x508) = 3; R(0x510) = pre & 15; R(0x200) |= 0x201; R(0x540) = 1000; R(0x544) = 5000; R(0x304) = 0x210000; R(0x308) = 0x20000; R(0) = 1; }
unsigned now(int n) { R(0x40 + 4 * n) = 1; return R(0x540 + 4 * n); }
unsigned lap(void) { R(0x48) = 1; unsigned a = R(0x548); R(0x48) = 1; return R(0x548) - a; }
void ack(int n) { R(0x140 + 4 * n) = 0; (void)R(0x140 + 4 * n); }
int any(void) { for (int i = 0; i < 6; i++) if (R(0x140 + 4 * i)) { R(0x140 + 4 * i) = 0; return i; } return -1; }""",
    (("open", 4), ("now", 3), ("lap",), ("ack", 2), ("any",), ("any",)),
    reads={0x14C: lambda c: c.values.setdefault(0x14C, 1)},
    writes={0x40 + 4 * n: capture(n) for n in range(6)},
)

PARTS = (SIO, USB, XIP, ROSC, WDT, NVMC, QDEC, TIMER)
