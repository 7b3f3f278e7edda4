# ruff: noqa: E501  (C on one line reads better here)
"""More idioms of chips of other families: settings beside flags, buffers that one bit loads, signatures, bit bands."""

from __future__ import annotations

from tests.drivers.held_chips import RO, WO, cluster, device, many
from tests.drivers.held_exact2 import register
from tests.drivers.silicon import BusError, Part, toggled

# ---- i.MX RT1060 LPUART, CCM_ANALOG and FlexPWM (IMXRT1060RM): flags beside settings, PLL by set and clear, buffers


IMX_FLAGS = 0xC01FC000


def stat(chip, v):
    old = chip.values.get(0x14, 0x00080000)
    chip.values[0x14] = (v & 0x3E000000) | (old & ~v & IMX_FLAGS)
    chip.sent.append(v)


def pll(clear):
    def w(chip, v):
        old = chip.values.get(0x100, 0x13042)
        chip.values[0x100] = old & ~v if clear else old | v

    return w


def mctrl(chip, v):
    chip.values[0x388] = (chip.values.get(0x388, 0) | v & 15) & ~(v >> 4 & 15) & 15 | v & 0xFF00
    chip.sent.append(v)


IMXRT = Part(
    "i.MX RT",
    "",
    0x40000000,
    'fields: {"C.STAT.LBKDE": {plain: true}, "C.STAT.R[XW]?*": {plain: true}, "C.STAT.RXEDGIF": {plain: false}, "C.STAT.MSBF": {plain: true}, "C.STAT.BRK13": {plain: true}, "C.PLL_ARM_*.*": {back: "0"}, "C.SM*.*": {plain: true}, "C.MCTRL.*LDOK": {back: "0"}, "C.MCTRL.RUN": {plain: true}, "C.MCTRL.IPOL": {plain: true}}',
    """bfGroup Stat { bit OR; bit FE; bit RDRF; bit TDRE; bit RXINV; bit MSBF; bit RXEDGIF; }; bfGroup Pll { uint7 DIV_SELECT; bit POWERDOWN; bit ENABLE; bit BYPASS; bit LOCK; };
bfGroup Sm { uint16 INIT; bit CTRL_DBLEN; uint3 CTRL_PRSC; bit CTRL_FULL; uint16 VAL0; uint16 VAL1; }; bfGroup M { uint4 LDOK; uint4 CLDOK; uint4 RUN; };
bfGroup Rt { bfGroup Stat STAT; bfGroup Pll PLL_ARM; bfGroup Pll PLL_ARM_SET; bfGroup Pll PLL_ARM_CLR; bfGroup Sm SM[4]; bfGroup M MCTRL; };
make_device(Rt, rt, 0x40000000);
void lines(int first) { rt->STAT.MSBF = first; rt->STAT.RXINV = 1; }
int wrong(void) { bfGroup Stat s = rt->STAT; if (s.OR) rt->STAT.OR = 1; return s.FE; }
void both(void) { rt->STAT = (bfGroup Stat){ .OR = 1, .FE = 1, .RXEDGIF = 1 }; }
void fast(int div) { rt->PLL_ARM_SET.BYPASS = 1; rt->PLL_ARM_CLR = (bfGroup Pll){ .DIV_SELECT = 0x7F, .POWERDOWN = 1 }; rt->PLL_ARM_SET.DIV_SELECT = div; rt->PLL_ARM_SET.ENABLE = 1; while (!rt->PLL_ARM.LOCK) ; rt->PLL_ARM_CLR.BYPASS = 1; }
void pwm(int n, int top, int half) { rt->MCTRL.CLDOK = 1 << n; rt->SM[n].CTRL_FULL = 1; rt->SM[n].CTRL_PRSC = 2; rt->SM[n].INIT = -top; rt->SM[n].VAL1 = top; rt->SM[n].VAL0 = half; rt->MCTRL.LDOK = 1 << n; rt->MCTRL.RUN = 15; }""",
    """void lines(int first) { R(20) = (R(20) & 0x0E000000) | (first & 1) << 29 | 1 << 28; }
int wrong(void) { unsigned s = R(20); if (s & 1 << 19) R(20) = (R(20) & 0x3E000000) | 1 << 19; return s >> 17 & 1; }
void both(void) { R(20) = 0x400A0000; }
void fast(int div) { R(0x104) = 0x10000; R(0x108) = 0x107F; R(0x104) = div & 127; R(0x104) = 0x2000; while (!(R(0x100) >> 31)) ; R(0x108) = 0x10000; }
void pwm(int n, int top, int half) { unsigned s = 0x200 + 0x60 * n; R16(0x388) = (R16(0x388) & 0xFF00) | (16 << n & 0xF0); R16(s + 6) = (R16(s + 6) & ~0x470u) | 0x420; R16(s + 2) = -top; R16(s + 14) = top; R16(s + 10) = half; R16(0x388) = (R16(0x388) & 0xFF00) | (1 << n & 15); R16(0x388) = (R16(0x388) & 0xF000) | 0xF00; }""",
    (("lines", 1), ("wrong",), ("both",), ("fast", 88), ("pwm", 2, 1000, 500)),
    reads={
        20: lambda c: c.values.setdefault(20, 0x00880000),
        0x100: lambda c: (
            c.values.get(0x100, 0x13042) | (1 << 31 if c.state.setdefault("n", 0) else c.state.update(n=1) or 0)
        ),
    },
    writes={20: stat, 0x104: pll(False), 0x108: pll(True), 0x388: mctrl},
    sizes={0x388: 2, **{0x200 + 0x60 * i + o: 2 for i in range(4) for o in (2, 6, 10, 14)}},
    text=device(
        register(
            "STAT",
            20,
            32,
            "MA2F:14:1:oneToClear MA1F:15:1:oneToClear PF:16:1:oneToClear FE:17:1:oneToClear NF:18:1:oneToClear OR:19:1:oneToClear IDLE:20:1:oneToClear LBKDE:25:1 BRK13:26:1 RWUID:27:1 RXINV:28:1 MSBF:29:1 RXEDGIF:30:1:oneToClear LBKDIF:31:1:oneToClear",
        ).replace(
            "</fields>",
            "".join(
                f"<field><name>{n}</name><bitRange>[{b}:{b}]</bitRange>{RO}</field>"
                for n, b in (("RDRF", 21), ("TC", 22), ("TDRE", 23), ("RAF", 24))
            )
            + "</fields>",
        ),
        *(
            register(
                f"PLL_ARM{word}",
                0x100 + at,
                32,
                "DIV_SELECT:0:7 POWERDOWN:12:1 ENABLE:13:1 BYPASS_CLK_SRC:14:2 BYPASS:16:1",
            ).replace("</fields>", f"<field><name>LOCK</name><lsb>31</lsb><msb>31</msb>{RO}</field></fields>")
            for word, at in (("", 0), ("_SET", 4), ("_CLR", 8), ("_TOG", 12))
        ),
        many(
            4,
            0x60,
            cluster(
                "SM%s",
                0x200,
                register("CNT", 0, 16, "CNT:0:16", RO),
                register("INIT", 2, 16, "INIT:0:16"),
                register("CTRL", 6, 16, "DBLEN:0:1 DBLX:1:1 LDMOD:2:1 PRSC:4:3 FULL:10:1 HALF:11:1"),
                register("VAL0", 10, 16, "VAL0:0:16"),
                register("VAL1", 14, 16, "VAL1:0:16"),
            ),
        ),
        register("MCTRL", 0x388, 16, "LDOK:0:4 CLDOK:4:4 RUN:8:4 IPOL:12:4"),
    ),
)

# ---- ESP32 GPIO, LEDC and RTC watchdog (technical reference manual): buffers, a write protection, clears by 1


def protect(chip, v):
    chip.state["key"] = v


def rtc(at):
    def w(chip, v):
        if chip.state.get("key") != 0x50D83AA1:
            raise BusError("the watchdog is protected")
        chip.values[at] = v

    return w


ESP32 = Part(
    "ESP32",
    "",
    0x40000000,
    'fields: {"C.FUNC*.*": {plain: true}, "C.CH*": {plain: true}, "C.CH*_CONF0.PARA_UP": {plain: false, wse: [self], back: "0"}, "C.WDTCONFIG*": {plain: true}, "C.WDTFEED.*": {wse: [self], back: "0"}, "C.INT_CLR.*": {back: "0"}}',
    """bfGroup Sel { uint9 OUT_SEL; bit INV_SEL; bit OEN_SEL; }; bfGroup Conf { uint2 TIMER_SEL; bit SIG_OUT_EN; bit IDLE_LV; bit PARA_UP; };
bfGroup Int { bit OVF_TIMER0; bit DUTY_CHNG_END_CH0; }; bfGroup Ch { bfGroup Conf CONF0; uint14 HPOINT; uint19 DUTY; }; bfGroup Wd { uint3 STG1; uint3 STG0; bit EN; };
bfGroup Esp { uint32 OUT_W1TS; uint32 OUT_W1TC; bfGroup Sel FUNC_OUT_SEL_CFG[40]; bfGroup Ch CH[8]; bfGroup Int INT_ENA; bfGroup Int INT_ST; bfGroup Int INT_CLR; bfGroup Wd WDTCONFIG0; uint32 WDTCONFIG1; bit WDTFEED; uint32 WDTWPROTECT; };
make_device(Esp, esp, 0x40000000);
void pin(int n, int signal) { esp->FUNC_OUT_SEL_CFG[n].OUT_SEL = signal; esp->FUNC_OUT_SEL_CFG[n].OEN_SEL = 1; esp->OUT_W1TS = 1u << n; esp->OUT_W1TC = 2; }
void duty(int n, int d) { bfGroup Ch *c = &esp->CH[n]; c->CONF0.TIMER_SEL = 1; c->CONF0.SIG_OUT_EN = 1; c->HPOINT = 0; c->DUTY = d << 4; c->CONF0.PARA_UP = 1; }
int irq(void) { bfGroup Int i = esp->INT_ST; if (i.OVF_TIMER0) esp->INT_CLR.OVF_TIMER0 = 1; if (i.DUTY_CHNG_END_CH0) esp->INT_CLR = (bfGroup Int){ .DUTY_CHNG_END_CH0 = 1 }; return i.OVF_TIMER0; }
void guard(int ms) { esp->WDTWPROTECT = 0x50D83AA1; esp->WDTCONFIG0.STG0 = 3; esp->WDTCONFIG1 = ms; esp->WDTCONFIG0.EN = 1; esp->WDTFEED = 1; esp->WDTWPROTECT = 0; }""",
    """void pin(int n, int signal) { R(0x530 + 4 * n) = (R(0x530 + 4 * n) & ~0x5FFu) | (signal & 511) | 0x400; R(8) = 1u << n; R(12) = 2; }
void duty(int n, int d) { unsigned c = 0x600 + 20 * n; R(c) = (R(c) & 8) | 5; R(c + 4) = 0; R(c + 8) = d << 4 & 0x7FFFF; R(c) = (R(c) & 15) | 16; }
int irq(void) { unsigned i = R(0x704); if (i & 1) R(0x70C) = 1; if (i & 16) R(0x70C) = 16; return i & 1; }
void guard(int ms) { R(0x7A4) = 0x50D83AA1; R(0x78C) = (R(0x78C) & ~(7u << 28)) | 3 << 28; R(0x790) = ms; R(0x78C) |= 1u << 31; R(0x7A0) = 1u << 31; R(0x7A4) = 0; }""",
    (("pin", 18, 79), ("duty", 5, 0x3FF), ("irq",), ("irq",), ("guard", 1000)),
    reads={0x704: toggled(0x11, 0x10), 0x664: lambda c: c.values.get(0x664, 0) & ~16},
    writes={0x7A4: protect, 0x78C: rtc(0x78C), 0x790: rtc(0x790), 0x7A0: rtc(0x7A0)},
    text=device(
        register("OUT_W1TS", 8, 32, "OUT_DATA_W1TS:0:32", WO),
        register("OUT_W1TC", 12, 32, "OUT_DATA_W1TC:0:32", WO),
        many(
            40,
            4,
            register("FUNC%s_OUT_SEL_CFG", 0x530, 32, "OUT_SEL:0:9 INV_SEL:9:1 OEN_SEL:10:1 OEN_INV_SEL:11:1"),
            "0-39",
        ),
        many(8, 20, register("CH%s_CONF0", 0x600, 32, "TIMER_SEL:0:2 SIG_OUT_EN:2:1 IDLE_LV:3:1 PARA_UP:4:1")),
        many(8, 20, register("CH%s_HPOINT", 0x604, 32, "HPOINT:0:14")),
        many(8, 20, register("CH%s_DUTY", 0x608, 32, "DUTY:0:19")),
        register("INT_ST", 0x704, 32, "OVF_TIMER0:0:1 DUTY_CHNG_END_CH0:4:1", RO),
        register("INT_ENA", 0x708, 32, "OVF_TIMER0:0:1 DUTY_CHNG_END_CH0:4:1"),
        register("INT_CLR", 0x70C, 32, "OVF_TIMER0:0:1 DUTY_CHNG_END_CH0:4:1", WO),
        register("WDTCONFIG0", 0x78C, 32, "STG1:25:3 STG0:28:3 EN:31:1"),
        register("WDTCONFIG1", 0x790, 32, "STG0_HOLD:0:32"),
        register("WDTFEED", 0x7A0, 32, "WDT_FEED:31:1", WO),
        register("WDTWPROTECT", 0x7A4, 32, "WDT_WKEY:0:32"),
    ),
)

# ---- CH583 (WCH) and GD32: safe access by two bytes, flags that a 0 clears, an interrupt controller of bits


def signature(chip, v):
    chip.sent.append(v)


def safe(at):
    def w(chip, v):
        if chip.sent[-2:] != [0x57, 0xA8]:
            raise BusError(f"{at:#x} without the signature")
        chip.values[at] = v

    return w


WCH = Part(
    "WCH and GD32",
    "",
    0x40000000,
    'fields: {"C.R16_CLK_SYS_CFG.*": {plain: true}, "C.R8_HFCK_PWR_CTRL.*": {plain: true}, "C.IENR*.*": {back: "0"}, "C.IRER*.*": {back: "0"}, "C.CTL0.*": {plain: true}}',
    """bfGroup Sys { uint5 CLK_PLL_DIV; uint2 CLK_SYS_MOD; }; bfGroup Stat { bit PERR; bit ORERR; bit RBNE; bit TC; bit TBE; bit LBDF; bit CTSF; };
bfGroup Wch { bfGroup Sys R16_CLK_SYS_CFG; bit CLK_XT32M_PON; bit CLK_PLL_PON; uint8 R8_SAFE_ACCESS_SIG; uint32 IENR[4]; uint32 IRER[4]; bfGroup Stat STAT0; bit CTL0_UEN; bit CTL0_REN; };
make_device(Wch, w, 0x40000000);
static void open(void) { w->R8_SAFE_ACCESS_SIG = 0x57; w->R8_SAFE_ACCESS_SIG = 0xA8; }
void clock(int div) { open(); w->CLK_PLL_PON = 1; w->CLK_XT32M_PON = 1; open(); w->R16_CLK_SYS_CFG = (bfGroup Sys){ .CLK_PLL_DIV = div, .CLK_SYS_MOD = 1 }; w->R8_SAFE_ACCESS_SIG = 0; }
void enable(int irq) { w->IENR[irq >> 5] = 1u << (irq & 31); }
void disable(int irq) { w->IRER[irq >> 5] = 1u << (irq & 31); }
int poll(void) { bfGroup Stat s = w->STAT0; if (s.TC) w->STAT0.TC = 0; if (s.LBDF) w->STAT0 = (bfGroup Stat){ .LBDF = 0, .TC = 1, .RBNE = 1, .CTSF = 1 }; return s.RBNE; }
void on(void) { w->CTL0_REN = 1; w->CTL0_UEN = 1; }""",
    """static void open(void) { R8(0x40) = 0x57; R8(0x40) = 0xA8; }
void clock(int div) { open(); R8(10) |= 0x14; open(); R16(8) = (div & 31) | 0x40; R8(0x40) = 0; }
void enable(int irq) { R(0x100 + 4 * (irq >> 5)) = 1u << (irq & 31); }
void disable(int irq) { R(0x180 + 4 * (irq >> 5)) = 1u << (irq & 31); }
int poll(void) { unsigned s = R(0x200); if (s & 64) R(0x200) = 0x320; if (s & 256) R(0x200) = 0x260; return s >> 5 & 1; }
void on(void) { R(0x20C) |= 0x2004; }""",
    (("clock", 6), ("enable", 37), ("disable", 70), ("poll",), ("poll",), ("on",)),
    reads={0x200: toggled(0xC0, 0x1A0)},
    writes={0x40: signature, 8: safe(8), 10: safe(10), 0x200: lambda c, v: c.sent.append(v)},
    sizes={8: 2, 10: 1, 0x40: 1},
    text=device(
        register("R16_CLK_SYS_CFG", 8, 16, "RB_CLK_PLL_DIV:0:5 RB_CLK_SYS_MOD:6:2".replace("RB_", "")),
        register("R8_HFCK_PWR_CTRL", 10, 8, "CLK_XT32M_PON:2:1 CLK_XT32M_KEEP:3:1 CLK_PLL_PON:4:1"),
        register("R8_SAFE_ACCESS_SIG", 0x40, 8, "SAFE_ACC_MODE:0:8", WO),
        many(4, 4, register("IENR%s", 0x100, 32, "INTEN:0:32", WO), "1,2,3,4"),
        many(4, 4, register("IRER%s", 0x180, 32, "INTRST:0:32", WO), "1,2,3,4"),
        register(
            "STAT0", 0x200, 32, "RBNE:5:1:zeroToClear TC:6:1:zeroToClear LBDF:8:1:zeroToClear CTSF:9:1:zeroToClear"
        ).replace(
            "</fields>",
            "".join(
                f"<field><name>{n}</name><bitRange>[{b}:{b}]</bitRange>{RO}</field>"
                for n, b in (("PERR", 0), ("FERR", 1), ("NERR", 2), ("ORERR", 3), ("IDLEF", 4), ("TBE", 7))
            )
            + "</fields>",
        ),
        register("CTL0", 0x20C, 32, "SBKCMD:0:1 RWU:1:1 REN:2:1 TEN:3:1 UEN:13:1"),
    ),
)

# ---- nRF53 and a Cortex-M3's bit band: channels of events, one word for each bit

NRF53 = Part(
    "nRF53 and bit band",
    "",
    0x40000000,
    'fields: {"C.SUBSCRIBE*": {plain: true}, "C.PUBLISH*": {plain: true}, "C.PSEL*": {plain: true}, "C.CHENSET.*": {back: "0"}, "C.BAND*": {plain: true}}',
    """bfGroup Ev { uint8 CHIDX; bit EN; }; bfGroup Off { uint8 CHIDX; bit EN; }; bfGroup End { uint8 CHIDX; bit EN; }; bfGroup Sub { bfGroup Ev EN; bfGroup Off DIS; }; bfGroup Task { uint32 EN; uint32 DIS; }; bfGroup Sel { uint5 PIN; bit PORT; bit CONNECT; }; bfGroup Psel { bfGroup Sel SCL; bfGroup Sel SDA; };
bfGroup Cs { bit CH0; bit CH1; bit CH2; bit CH31; };
bfGroup N { bfGroup Task TASKS_CHG[6]; bfGroup Sub SUBSCRIBE_CHG[6]; bfGroup End PUBLISH_END; bfGroup Cs CHENSET; bfGroup Psel PSEL; bit BAND[32]; };
make_device(N, n, 0x40000000);
void wire(int g, int c) { n->SUBSCRIBE_CHG[g].EN = (bfGroup Ev){ .CHIDX = c, .EN = 1 }; n->SUBSCRIBE_CHG[g].DIS.CHIDX = c + 1; n->SUBSCRIBE_CHG[g].DIS.EN = 1; n->PUBLISH_END.EN = 0; n->CHENSET.CH2 = 1; n->CHENSET = (bfGroup Cs){ .CH0 = 1, .CH31 = 1 }; n->TASKS_CHG[g].EN = 1; }
void pins(int scl, int sda) { n->PSEL.SCL = (bfGroup Sel){ .PIN = scl, .PORT = scl >> 5, .CONNECT = 0 }; n->PSEL.SDA.PIN = sda; n->PSEL.SDA.CONNECT = 0; }
int band(int i) { n->BAND[i] = 1; n->BAND[3] = 0; return n->BAND[i]; }""",
    """void wire(int g, int c) { R(0x80 + 8 * g) = (c & 255) | 1u << 31; R(0x84 + 8 * g) = ((c + 1) & 255) | 1u << 31; R(0x180) &= ~(1u << 31); R(0x504) = 4; R(0x504) = 0x80000001; R(8 * g) = 1; }
void pins(int scl, int sda) { R(0x508) = 0x7FFFFFC0 | (scl & 63); R(0x50C) = (R(0x50C) & ~0x8000001Fu) | (sda & 31); }
int band(int i) { R(0x800 + 4 * i) = 1; R(0x80C) = 0; return R(0x800 + 4 * i) & 1; }""",
    (("wire", 4, 17), ("pins", 37, 6), ("band", 20)),
    text=device(
        many(
            6,
            8,
            cluster(
                "TASKS_CHG[%s]",
                0,
                register("EN", 0, 32, "EN:0:1", WO).replace("<bitWidth>1<", "<bitWidth>32<"),
                register("DIS", 4, 32, "DIS:0:32", WO),
            ),
        ),
        many(
            6,
            8,
            cluster(
                "SUBSCRIBE_CHG[%s]",
                0x80,
                register("EN", 0, 32, "CHIDX:0:8 EN:31:1"),
                register("DIS", 4, 32, "CHIDX:0:8 EN:31:1"),
            ),
        ),
        register("PUBLISH_END", 0x180, 32, "CHIDX:0:8 EN:31:1"),
        register("CHENSET", 0x504, 32, "")
        .replace(
            "<fields>",
            "<fields><field><dim>32</dim><dimIncrement>1</dimIncrement><name>CH[%s]</name><bitOffset>0</bitOffset><bitWidth>1</bitWidth><modifiedWriteValues>oneToSet</modifiedWriteValues></field>",
        )
        .replace("CH[%s]", "CH%s"),
        cluster(
            "PSEL",
            0x508,
            register("SCL", 0, 32, "PIN:0:5 PORT:5:1 CONNECT:31:1", "<resetValue>0xFFFFFFFF</resetValue>"),
            register("SDA", 4, 32, "PIN:0:5 PORT:5:1 CONNECT:31:1", "<resetValue>0xFFFFFFFF</resetValue>"),
        ),
        many(32, 4, register("BAND[%s]", 0x800, 32, "BIT:0:1")),
    ),
)
PARTS = (IMXRT, ESP32, WCH, NRF53)
