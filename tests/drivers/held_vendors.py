# ruff: noqa: E501  (C on one line reads better here)
"""Drivers of peripherals in vendors' files that the generator was not made with, beside code by hand."""

from __future__ import annotations

from tests.drivers.silicon import BusError, Part, pop, push, started, toggled


def latch(chip):  # TIMELR latches TIMEHR
    chip.state["t"] = chip.state.get("t", 0xFFFFFFF0) + 0x20
    chip.values[8] = chip.state["t"] >> 32
    return chip.state["t"] & 0xFFFFFFFF


TIMER = Part(
    "RP2040 TIMER",
    "rp2040.svd",
    0x40054000,
    'fields: {"TIMER.INTE.*": {plain: true}, "TIMER.ALARM?.*": {plain: true}, "TIMER.TIMELR.*": {rse: [self, "TIMER.TIMEHR.*"]}}',
    """bfGroup Ints { bit ALARM_0; bit ALARM_1; bit ALARM_2; bit ALARM_3; }; bfGroup Enables { bit ALARM_0; bit ALARM_1; bit ALARM_2; bit ALARM_3; };
bfGroup Timer { uint32 TIMELR; uint32 TIMEHR; uint32 TIMERAWL; uint32 ALARM[4]; uint4 ARMED; bfGroup Ints INTR; bfGroup Enables INTE; bfGroup Ints INTS; bit PAUSE; };
make_device(Timer, tm, 0x40054000);
static volatile int hits;
unsigned long long now(void) { unsigned long long low = tm->TIMELR; return low | (unsigned long long)tm->TIMEHR << 32; }
int lo(void) { return (int)now(); }
int hi(void) { return (int)(now() >> 32); }
void arm(int n, int us) { if (n == 0) tm->INTE.ALARM_0 = 1; tm->ALARM[n] = tm->TIMERAWL + us; }
void on(void) { tm->INTE.ALARM_1 = 1; tm->INTE.ALARM_2 = 1; }
void off(int n) { tm->ARMED = 1 << n; }
bf_interrupt void isr(void) { if (tm->INTS.ALARM_2) { tm->INTR = (bfGroup Ints){ .ALARM_2 = 1 }; hits = hits + 1; } if (tm->INTS.ALARM_1) tm->INTR.ALARM_1 = 1; }
void wait(int us) { unsigned end = tm->TIMERAWL + us; while ((int)(tm->TIMERAWL - end) < 0) ; }""",
    """static volatile int hits;
unsigned long long now(void) { unsigned long long low = R(12); return low | (unsigned long long)R(8) << 32; }
int lo(void) { return (int)now(); }
int hi(void) { return (int)(now() >> 32); }
void arm(int n, int us) { if (n == 0) R(0x38) |= 1; R(0x10 + 4 * n) = R(0x28) + us; }
void on(void) { R(0x38) |= 6; }
void off(int n) { R(0x20) = 1 << n; }
void isr(void) { if (R(0x40) & 4) { R(0x34) = 4; hits = hits + 1; } if (R(0x40) & 2) R(0x34) = 2; }
void wait(int us) { unsigned end = R(0x28) + us; while ((int)(R(0x28) - end) < 0) ; }""",
    (("lo",), ("hi",), ("arm", 0, 50), ("arm", 3, 70), ("on",), ("off", 3), ("isr",), ("isr",), ("wait", 3)),
    clears={0x20: 15, 0x34: 15},
    reads={
        12: latch,
        0x28: lambda c: (c.state.setdefault("raw", 5) and c.state.update(raw=c.state["raw"] + 1)) or c.state["raw"],
        0x40: toggled(2, 6, 4, 0),
    },
)


def phase(base):
    def w(chip, v):
        if v & 0xC0 and not (chip.values.get(base, 0) & 1 and v & 1):
            raise BusError("phase without EN")
        chip.values[base] = v & ~0xC0

    return w


PWM = Part(
    "RP2040 PWM",
    "rp2040.svd",
    0x40050000,
    'fields: {"PWM.CH*_CSR.[!P]*": {plain: true}, "PWM.CH*_CSR.PH_CORRECT": {plain: true}, "PWM.CH*_CSR.PH_???": {back: "0"}, "PWM.CH*_CSR.PH_CORRECT": {back: keep, plain: true}, "PWM.CH*_CC.*": {plain: true}, "PWM.CH*_DIV.*": {plain: true}, "PWM.EN.*": {plain: true}, "PWM.INTE.*": {plain: true}}',
    """bfGroup Csr { bit EN; bit PH_CORRECT; bit A_INV; bit B_INV; uint2 DIVMODE; bit PH_RET; bit PH_ADV; };
bfGroup Div { uint4 FRAC; uint8 INT; }; bfGroup Cc { uint16 A; uint16 B; };
bfGroup Slice { bfGroup Csr CSR; bfGroup Div DIV; uint16 CTR; bfGroup Cc CC; uint16 TOP; };
bfGroup Pwm { bfGroup Slice CH[8]; bit EN_CH0; bit EN_CH3; uint1 INTR_CH3; bit INTE_CH3; };
make_device(Pwm, pwm, 0x40050000);
static void level(bfGroup Slice *s, int a, int b) { s->CC.A = a; s->CC.B = b; }
void init(int n, int top, int div) { bfGroup Slice *s = &pwm->CH[n]; s->CSR = (bfGroup Csr){ .EN = 0, .A_INV = 1 }; s->CTR = 0; s->TOP = top; s->DIV = (bfGroup Div){ .INT = div >> 4, .FRAC = div }; level(s, 0, 0); s->CSR.EN = 1; }
void set(int n, int a, int b) { level(&pwm->CH[n], a, b); }
void only_b(int n, int b) { pwm->CH[n].CC.B = b; }
void advance(int n) { pwm->CH[n].CSR.PH_ADV = 1; while (pwm->CH[n].CSR.PH_ADV) ; }
int irq(void) { int f = pwm->INTR_CH3; if (f) pwm->INTR_CH3 = 1; return f; }
void all(void) { pwm->EN_CH0 = 1; pwm->EN_CH3 = 1; pwm->INTE_CH3 = 1; }
int counter(int n) { return pwm->CH[n].CTR; }""",
    """static void level(unsigned s, int a, int b) { R(s + 12) = (a & 0xFFFF) | (unsigned)b << 16; }
void init(int n, int top, int div) { unsigned s = n * 20; R(s) = 4; R(s + 8) = 0; R(s + 16) = top & 0xFFFF; R(s + 4) = div & 0xFFF; level(s, 0, 0); R(s) |= 1; }
void set(int n, int a, int b) { level(n * 20, a, b); }
void only_b(int n, int b) { R(n * 20 + 12) = (R(n * 20 + 12) & 0xFFFF) | (unsigned)b << 16; }
void advance(int n) { R(n * 20) |= 0x80; while (R(n * 20) & 0x80) ; }
int irq(void) { int f = R(0xA4) >> 3 & 1; if (f) R(0xA4) = 8; return f; }
void all(void) { R(0xA0) |= 9; R(0xAC - 4) |= 8; }
int counter(int n) { return R(n * 20 + 8) & 0xFFFF; }""",
    (
        ("init", 3, 999, 0x123),
        ("set", 3, 100, 200),
        ("only_b", 3, 7),
        ("advance", 3),
        ("irq",),
        ("irq",),
        ("all",),
        ("counter", 3),
    ),
    clears={0xA4: 255},
    reads={60 + 8: lambda c: 77},
    writes={60: phase(60)},
)

IO = Part(
    "RP2040 IO_BANK0",
    "rp2040.svd",
    0x40014000,
    'fields: {"IO_BANK0.GPIO*_CTRL.*": {plain: true}, "IO_BANK0.PROC0_INTE*.*": {plain: true}}',
    """bfGroup Ctrl { uint5 FUNCSEL; uint2 OUTOVER; uint2 OEOVER; uint2 INOVER; uint2 IRQOVER; }; bfGroup Stat { bit INFROMPAD; bit IRQTOPROC; };
bfGroup Pin { bfGroup Stat STATUS; bfGroup Ctrl CTRL; };
bfGroup Edges { bit GPIO0_EDGE_HIGH; bit GPIO0_EDGE_LOW; bit GPIO3_EDGE_HIGH; bit GPIO0_LEVEL_LOW; };
bfGroup Enables { bit GPIO0_EDGE_HIGH; bit GPIO3_EDGE_HIGH; };
bfGroup Io { bfGroup Pin GPIO[30]; bfGroup Edges INTR0; bfGroup Enables PROC0_INTE0; };
make_device(Io, io, 0x40014000);
void func(int n, int f) { io->GPIO[n].CTRL = (bfGroup Ctrl){ .FUNCSEL = f }; }
void invert(int n) { io->GPIO[n].CTRL.OUTOVER = 1; io->GPIO[n].CTRL.INOVER = 1; }
int level(int n) { return io->GPIO[n].STATUS.INFROMPAD; }
void watch(void) { io->INTR0.GPIO0_EDGE_HIGH = 1; io->PROC0_INTE0.GPIO0_EDGE_HIGH = 1; io->PROC0_INTE0.GPIO3_EDGE_HIGH = 1; }
int edges(void) { bfGroup Edges e = io->INTR0; io->INTR0 = (bfGroup Edges){ .GPIO0_EDGE_HIGH = e.GPIO0_EDGE_HIGH, .GPIO0_EDGE_LOW = e.GPIO0_EDGE_LOW, .GPIO3_EDGE_HIGH = e.GPIO3_EDGE_HIGH }; return e.GPIO0_EDGE_HIGH + 2 * e.GPIO0_EDGE_LOW + 4 * e.GPIO3_EDGE_HIGH + 8 * e.GPIO0_LEVEL_LOW; }""",
    """void func(int n, int f) { R(n * 8 + 4) = f & 31; }
void invert(int n) { R(n * 8 + 4) = (R(n * 8 + 4) & ~0x30300u) | 0x10100; }
int level(int n) { return R(n * 8) >> 17 & 1; }
void watch(void) { R(0xF0) = 8; R(0x100) |= 0x8008; }
int edges(void) { unsigned e = R(0xF0); R(0xF0) = e & 0x800C; return (e >> 3 & 1) + 2 * (e >> 2 & 1) + 4 * (e >> 15 & 1) + 8 * (e & 1); }""",
    (("func", 5, 3), ("invert", 5), ("level", 5), ("watch",), ("edges",), ("edges",)),
    clears={0xF0: 0xCCCCCCCC},
    reads={40: lambda c: 1 << 17, 0xF0: lambda c: c.values.setdefault(0xF0, 0x800D)},
)


def fstat(chip):
    n = chip.state.get("f", 0)
    chip.state["f"] = n + 1
    return (0xF << 16 if n % 3 == 0 else 0) | (0xF if n % 3 == 1 else 0)


PIO = Part(
    "RP2040 PIO",
    "rp2040.svd",
    0x50200000,
    'fields: {"PIO0.CTRL.SM_ENABLE": {plain: true}, "PIO0.CTRL.*RESTART": {back: "0"}, "PIO0.SM?_*.*": {plain: true}}',
    """bfGroup Ctl { uint4 SM_ENABLE; uint4 SM_RESTART; uint4 CLKDIV_RESTART; }; bfGroup Fst { uint4 RXFULL; uint4 RXEMPTY; uint4 TXFULL; uint4 TXEMPTY; };
bfGroup Shift { bit FJOIN_RX; bit FJOIN_TX; uint5 PULL_THRESH; uint5 PUSH_THRESH; bit AUTOPULL; bit AUTOPUSH; bit OUT_SHIFTDIR; bit IN_SHIFTDIR; };
bfGroup Sm { uint16 CLKDIV_INT; uint8 CLKDIV_FRAC; bfGroup Shift SHIFTCTRL; uint16 INSTR; };
bfGroup Pio { bfGroup Ctl CTRL; bfGroup Fst FSTAT; uint32 TXF[4]; uint32 RXF[4]; uint16 INSTR_MEM[32]; uint8 IRQ; uint8 IRQ_FORCE; bfGroup Sm SM0; bfGroup Sm SM1; };
make_device(Pio, pio, 0x50200000);
void load(int at, int n, int first) { for (int i = 0; i < n; i++) pio->INSTR_MEM[at + i] = first + i; }
static void init(bfGroup Sm *s, int div) { s->CLKDIV_INT = div >> 8; s->CLKDIV_FRAC = div; s->SHIFTCTRL.AUTOPULL = 1; s->SHIFTCTRL.PULL_THRESH = 24; s->SHIFTCTRL.OUT_SHIFTDIR = 0; }
void open(int div) { init(&pio->SM0, div); pio->CTRL.SM_RESTART = 1; pio->CTRL.SM_ENABLE = 1; }
void put(int sm, unsigned v) { while (pio->FSTAT.TXFULL & 1 << sm) ; pio->TXF[sm] = v; }
unsigned get(int sm) { while (pio->FSTAT.RXEMPTY & 1 << sm) ; return pio->RXF[sm]; }
void drain(void) { (void)pio->RXF[0]; (void)pio->RXF[0]; pio->TXF[1] = 1; pio->TXF[1] = 2; pio->IRQ = 3; pio->IRQ_FORCE = 1; }
void exec(int i) { pio->SM1.INSTR = i; pio->SM1.INSTR = i; }""",
    """void load(int at, int n, int first) { for (int i = 0; i < n; i++) R(0x48 + 4 * (at + i)) = first + i; }
void open(int div) { R(0xC8) = (div >> 8 & 0xFFFF) << 16 | (div & 0xFF) << 8; R(0xD0) = (R(0xD0) & ~(0x3E000000u | 1 << 17 | 1 << 19)) | 24 << 25 | 1 << 17; R(0) = (R(0) & 0xF) | 0x10; R(0) = (R(0) & 0x0) | 1; }
void put(int sm, unsigned v) { while (R(4) & 1u << (16 + sm)) ; R(0x10 + 4 * sm) = v; }
unsigned get(int sm) { while (R(4) & 1u << (8 + sm)) ; return R(0x20 + 4 * sm); }
void drain(void) { (void)R(0x20); (void)R(0x20); R(0x14) = 1; R(0x14) = 2; R(0x30) = 3; R(0x34) = 1; }
void exec(int i) { R(0xF0) = i; R(0xF0) = i; }""",
    (
        ("load", 4, 5, 0x100),
        ("open", 0x1280),
        ("put", 2, 99),
        ("get", 1),
        ("put", 0, 5),
        ("put", 1, 6),
        ("drain",),
        ("exec", 7),
    ),
    reads={4: fstat, 0x20: pop, 0x24: pop, 0x28: pop, 0x2C: pop},
    writes={0x10: push, 0x14: push, 0x18: push},
    clears={0x30: 255},
)


def trig(chip, v):
    if v >> 31:
        raise BusError("reset!")
    chip.values[0] = v


DOG = Part(
    "RP2040 WATCHDOG",
    "rp2040.svd",
    0x40058000,
    'fields: {"WATCHDOG.CTRL.[EP]*": {plain: true}, WATCHDOG.CTRL.TRIGGER: {back: "0"}, "WATCHDOG.TICK.C[Y]*": {plain: true}, "WATCHDOG.TICK.ENABLE": {plain: true}}',
    """bfGroup Dc { bit TRIGGER; bit ENABLE; bit PAUSE_DBG0; bit PAUSE_DBG1; bit PAUSE_JTAG; uint24 TIME; };
bfGroup Dog { bfGroup Dc CTRL; uint24 LOAD; bit REASON_TIMER; bit FORCE; uint32 SCRATCH[8]; uint9 CYCLES; bit TICK_ENABLE; bit RUNNING; };
make_device(Dog, dog, 0x40058000);
void start(int ms, int pause) { dog->CTRL.ENABLE = 0; dog->CTRL.PAUSE_DBG0 = pause; dog->CTRL.PAUSE_DBG1 = pause; dog->CTRL.PAUSE_JTAG = pause; dog->LOAD = ms * 2000; dog->CTRL.ENABLE = 1; }
void kick(void) { dog->LOAD = 0xFFFFFF; }
int why(void) { return dog->REASON_TIMER || dog->FORCE; }
void tick(int n) { dog->CYCLES = n; dog->TICK_ENABLE = 1; while (!dog->RUNNING) ; }
void save(int n, int v) { dog->SCRATCH[n] = v; }
int left(void) { return dog->CTRL.TIME; }""",
    """void start(int ms, int pause) { R(0) &= ~(1u << 30 | 1u << 31); R(0) = (R(0) & ~(7u << 24 | 1u << 31)) | (pause & 1) * (7u << 24); R(4) = (ms * 2000) & 0xFFFFFF; R(0) = (R(0) & 0x7FFFFFFF) | 1 << 30; }
void kick(void) { R(4) = 0xFFFFFF; }
int why(void) { if (R(8) & 1) return 1; return R(8) >> 1 & 1; }
void tick(int n) { R(0x2C) = (n & 0x1FF) | 0x200; while (!(R(0x2C) & 0x400)) ; }
void save(int n, int v) { R(12 + 4 * n) = v; }
int left(void) { return R(0) & 0xFFFFFF; }""",
    (("start", 100, 0), ("kick",), ("why",), ("tick", 12), ("save", 4, 0xB007C0D), ("left",)),
    writes={0: trig},
    reads={8: lambda c: 2, 0x2C: lambda c: c.values.get(0x2C, 0x200) | (0x400 if c.values.get(0x2C, 0) & 0x200 else 0)},
)


def rtc0(chip):
    chip.state["latched"] = 1
    return 0x010C1E0A


def rtc1(chip):
    if not chip.state.pop("latched", 0):
        raise BusError("RTC_1 before RTC_0")
    return 0x7E8B1F


RTC = Part(
    "RP2040 RTC",
    "rp2040.svd",
    0x4005C000,
    'fields: {"RTC.CTRL.RTC_ENABLE": {plain: true}, "RTC.CTRL.LOAD": {back: "0"}, "RTC.CTRL.FORCE*": {plain: true}, "RTC.SETUP_?.*": {plain: true}, "RTC.IRQ_SETUP_?.[!M]*": {plain: true}, "RTC.IRQ_SETUP_?.MATCH_ENA": {plain: true},"RTC.IRQ_SETUP_?.M[IO]*": {plain: true}}',
    """bfGroup Date { uint12 YEAR; uint4 MONTH; uint5 DAY; }; bfGroup Time { uint3 DOTW; uint5 HOUR; uint6 MIN; uint6 SEC; };
bfGroup Rc { bit RTC_ENABLE; bit RTC_ACTIVE; bit LOAD; }; bfGroup Al { bit MATCH_ENA; bit MATCH_ACTIVE; bit DAY_ENA; uint5 DAY; bit MONTH_ENA; uint4 MONTH; };
bfGroup Al1 { bit HOUR_ENA; uint5 HOUR; bit MIN_ENA; uint6 MIN; };
bfGroup Rtc { uint16 CLKDIV_M1; bfGroup Date SETUP_0; bfGroup Time SETUP_1; bfGroup Rc CTRL; bfGroup Date RTC_1; bfGroup Time RTC_0; bfGroup Al IRQ_SETUP_0; bfGroup Al1 IRQ_SETUP_1; bit INTE_RTC; };
make_device(Rtc, rtc, 0x4005C000);
void set(int y, int h) { rtc->CTRL.RTC_ENABLE = 0; while (rtc->CTRL.RTC_ACTIVE) ; rtc->SETUP_0 = (bfGroup Date){ .YEAR = y, .MONTH = 11, .DAY = 31 }; rtc->SETUP_1 = (bfGroup Time){ .HOUR = h, .MIN = 30 }; rtc->CTRL.LOAD = 1; rtc->CTRL.RTC_ENABLE = 1; while (!rtc->CTRL.RTC_ACTIVE) ; }
int get(void) { bfGroup Time t = rtc->RTC_0; bfGroup Date d = rtc->RTC_1; return t.HOUR + 100 * t.MIN + 10000 * d.DAY + 1000000 * (d.YEAR & 15); }
int fields(void) { int h = rtc->RTC_0.HOUR; int d = rtc->RTC_1.DAY; return h * 32 + d; }
void alarm(int h, int m, int d) { rtc->IRQ_SETUP_0.MATCH_ENA = 0; while (rtc->IRQ_SETUP_0.MATCH_ACTIVE) ; rtc->IRQ_SETUP_0.DAY = d; rtc->IRQ_SETUP_0.DAY_ENA = 1; rtc->IRQ_SETUP_1.HOUR = h; rtc->IRQ_SETUP_1.HOUR_ENA = 1; rtc->IRQ_SETUP_1.MIN = m; rtc->IRQ_SETUP_1.MIN_ENA = 1; rtc->INTE_RTC = 1; rtc->IRQ_SETUP_0.MATCH_ENA = 1; }""",
    """void set(int y, int h) { R(12) &= ~0x11u; while (R(12) & 2) ; R(4) = y << 12 | 11 << 8 | 31; R(8) = h << 16 | 30 << 8; R(12) |= 0x10; R(12) = (R(12) & ~0x10u) | 1; while (!(R(12) & 2)) ; }
int get(void) { unsigned t = R(0x1C), d = R(0x18); return (t >> 16 & 31) + 100 * (t >> 8 & 63) + 10000 * (d & 31) + 1000000 * (d >> 12 & 15); }
int fields(void) { int h = R(0x1C) >> 16 & 31; int d = R(0x18) & 31; return h * 32 + d; }
void alarm(int h, int m, int d) { R(0x10) &= ~(1u << 28); while (R(0x10) >> 29 & 1) ; R(0x10) = (R(0x10) & ~0x100001Fu) | d | 1 << 24; R(0x14) = (R(0x14) & ~0x601F3F00u) | h << 16 | 1 << 30 | m << 8 | 1 << 29; R(0x24) |= 1; R(0x10) |= 1 << 28; }""",
    (("set", 2026, 14), ("get",), ("fields",), ("alarm", 7, 45, 3)),
    reads={0x1C: rtc0, 0x18: rtc1, 12: lambda c: (c.values.get(12, 0) & ~2) | (c.values.get(12, 0) & 1) << 1},
    writes={12: lambda c, v: c.values.__setitem__(12, v & ~0x10) if not (v & 0x10 and v & 1) else None},
    locked=((12, 1, (4, 8)), (0x10, 1 << 28, (0x14,))),
)


def setreg(at, clear=False):
    def w(chip, v):
        chip.values[at] = chip.values.get(at, 0) & ~v if clear else chip.values.get(at, 0) | v

    return w


GPIOTE = Part(
    "nRF52 GPIOTE",
    "nrf52.svd",
    0x40006000,
    'fields: {"GPIOTE.CONFIG*.*": {plain: true}, "GPIOTE.INTENSET.*": {back: "0"}, "GPIOTE.INTENCLR.*": {back: "0"}}',
    """bfGroup Cfg { uint2 MODE; uint5 PSEL; uint2 POLARITY; bit OUTINIT; };
bfGroup Ints { bit IN0; bit IN1; bit PORT; };
bfGroup Te { uint32 TASKS_OUT[8]; uint32 TASKS_SET[8]; uint32 TASKS_CLR[8]; uint32 EVENTS_IN[8]; uint32 EVENTS_PORT; bfGroup Ints INTENSET; bit INTENCLR_IN1; bfGroup Cfg CONFIG[8]; };
make_device(Te, te, 0x40006000);
static volatile int seen;
void input(int ch, int pin, int pol) { te->CONFIG[ch] = (bfGroup Cfg){ .MODE = 1, .PSEL = pin, .POLARITY = pol }; te->EVENTS_IN[ch] = 0; }
void output(int ch, int pin) { te->CONFIG[ch].MODE = 3; te->CONFIG[ch].PSEL = pin; te->CONFIG[ch].OUTINIT = 1; }
void on(void) { te->INTENSET = (bfGroup Ints){ .IN0 = 1, .IN1 = 1, .PORT = 1 }; te->INTENCLR_IN1 = 1; }
void pulse(int ch) { te->TASKS_SET[ch] = 1; te->TASKS_CLR[ch] = 1; te->TASKS_OUT[ch] = 1; te->TASKS_OUT[ch] = 1; }
bf_interrupt_of(GPIOTE) void isr(void) { for (int i = 0; i < 8; i++) if (te->EVENTS_IN[i]) { te->EVENTS_IN[i] = 0; (void)te->EVENTS_IN[i]; seen |= 1 << i; } if (te->EVENTS_PORT) te->EVENTS_PORT = 0; }
int look(void) { return seen; }""",
    """static volatile int seen;
void input(int ch, int pin, int pol) { R(0x510 + 4 * ch) = 1 | (pin & 31) << 8 | (pol & 3) << 16; R(0x100 + 4 * ch) = 0; }
void output(int ch, int pin) { R(0x510 + 4 * ch) = (R(0x510 + 4 * ch) & ~0x101F03u) | 3 | (pin & 31) << 8 | 1 << 20; }
void on(void) { R(0x304) = 0x80000003; R(0x308) = 2; }
void pulse(int ch) { R(0x30 + 4 * ch) = 1; R(0x60 + 4 * ch) = 1; R(4 * ch) = 1; R(4 * ch) = 1; }
void isr(void) { for (int i = 0; i < 8; i++) if (R(0x100 + 4 * i)) { R(0x100 + 4 * i) = 0; (void)R(0x100 + 4 * i); seen |= 1 << i; } if (R(0x17C)) R(0x17C) = 0; }
int look(void) { return seen; }""",
    (("input", 2, 13, 1), ("output", 5, 17), ("on",), ("pulse", 5), ("isr",), ("look",)),
    reads={0x108: toggled(1, 0), 0x17C: lambda c: 1},
    writes={0x304: setreg(0x300), 0x308: setreg(0x300, True)},
)

SAADC = Part(
    "nRF52 SAADC",
    "nrf52.svd",
    0x40007000,
    'fields: {"SAADC.CH*_CONFIG.*": {plain: true}, "SAADC.CH*_LIMIT.*": {plain: true}}',
    """bfGroup Cf { uint2 RESP; uint2 RESN; uint3 GAIN; bit REFSEL; uint3 TACQ; bit MODE; bit BURST; }; bfGroup Lim { uint16 LOW; uint16 HIGH; };
bfGroup Ch { uint5 PSELP; uint5 PSELN; bfGroup Cf CONFIG; bfGroup Lim LIMIT; }; bfGroup Ev { uint32 LIMITH; uint32 LIMITL; };
bfGroup Adc { uint32 TASKS_START; uint32 TASKS_SAMPLE; uint32 TASKS_STOP; uint32 EVENTS_STARTED; uint32 EVENTS_END; uint32 EVENTS_STOPPED; bfGroup Ev EVENTS_CH[8]; bit ENABLE; bfGroup Ch CH[8]; uint3 RESOLUTION; uint4 OVERSAMPLE; uint32 RESULT_PTR; uint15 RESULT_MAXCNT; uint15 RESULT_AMOUNT; };
make_device(Adc, adc, 0x40007000);
void init(int res) { adc->ENABLE = 1; adc->RESOLUTION = res; adc->OVERSAMPLE = 0; }
void channel(int n, int pin, int gain) { bfGroup Ch *c = &adc->CH[n]; c->CONFIG = (bfGroup Cf){ .GAIN = gain, .TACQ = 2, .REFSEL = 0, .MODE = 0 }; c->PSELN = 0; c->PSELP = pin + 1; c->LIMIT.LOW = 0x8000; c->LIMIT.HIGH = 0x7FFF; }
void burst(int n) { adc->CH[n].CONFIG.BURST = 1; adc->CH[n].CONFIG.TACQ = 5; }
int sample(int at) { adc->RESULT_PTR = at; adc->RESULT_MAXCNT = 1; adc->EVENTS_STARTED = 0; adc->TASKS_START = 1; while (!adc->EVENTS_STARTED) ; adc->EVENTS_END = 0; adc->TASKS_SAMPLE = 1; while (!adc->EVENTS_END) ; adc->EVENTS_STOPPED = 0; adc->TASKS_STOP = 1; while (!adc->EVENTS_STOPPED) ; return adc->RESULT_AMOUNT; }
int limits(void) { int m = 0; for (int i = 0; i < 8; i++) { if (adc->EVENTS_CH[i].LIMITH) { adc->EVENTS_CH[i].LIMITH = 0; m |= 1 << i; } if (adc->EVENTS_CH[i].LIMITL) { adc->EVENTS_CH[i].LIMITL = 0; m |= 256 << i; } } return m; }""",
    """void init(int res) { R(0x500) = 1; R(0x5F0) = res & 7; R(0x5F4) = 0; }
void channel(int n, int pin, int gain) { unsigned c = 0x510 + 16 * n; R(c + 8) = (gain & 7) << 8 | 2 << 16; R(c + 4) = 0; R(c) = (pin + 1) & 31; R(c + 12) = 0x7FFF8000; }
void burst(int n) { R(0x518 + 16 * n) = (R(0x518 + 16 * n) & ~0x1070000u) | 1 << 24 | 5 << 16; }
int sample(int at) { R(0x62C) = at; R(0x630) = 1; R(0x100) = 0; R(0) = 1; while (!R(0x100)) ; R(0x104) = 0; R(4) = 1; while (!R(0x104)) ; R(0x114) = 0; R(8) = 1; while (!R(0x114)) ; return R(0x634) & 0x7FFF; }
int limits(void) { int m = 0; for (int i = 0; i < 8; i++) { if (R(0x118 + 8 * i)) { R(0x118 + 8 * i) = 0; m |= 1 << i; } if (R(0x11C + 8 * i)) { R(0x11C + 8 * i) = 0; m |= 256 << i; } } return m; }""",
    (("init", 2), ("channel", 3, 4, 5), ("burst", 3), ("sample", 0x20000000), ("limits",)),
    reads={0x634: lambda c: 1, 0x128: lambda c: c.values.setdefault(0x128, 1)},
    writes={0: started(0x100), 4: started(0x104), 8: started(0x114)},
)

P0 = Part(
    "nRF52 P0",
    "nrf52.svd",
    0x50000000,
    'fields: {"P0.PIN_CNF*.*": {plain: true}, "P0.LATCH.*": {access: rw}}',
    """bfGroup Cnf { bit DIR; bit INPUT; uint2 PULL; uint3 DRIVE; uint2 SENSE; }; bfGroup Pins { bit PIN[32]; };
bfGroup Port { bfGroup Pins OUT; bfGroup Pins OUTSET; bfGroup Pins OUTCLR; bfGroup Pins IN; bfGroup Pins DIRSET; bfGroup Cnf PIN_CNF[32]; };
make_device(Port, p0, 0x50000000);
void out(int n) { p0->PIN_CNF[n] = (bfGroup Cnf){ .DIR = 1, .INPUT = 1 }; }
void in(int n, int pull) { bfGroup Cnf c = p0->PIN_CNF[n]; c.PULL = pull; c.INPUT = 0; c.SENSE = 2; p0->PIN_CNF[n] = c; }
void high(int n) { p0->OUTSET.PIN[n] = 1; }
void two(void) { p0->OUTSET.PIN[3] = 1; p0->OUTSET.PIN[4] = 1; p0->OUTCLR.PIN[5] = 1; }
int look(int n) { return p0->IN.PIN[n]; }
void mode(int n) { p0->PIN_CNF[n].PULL = 3; p0->PIN_CNF[n].DRIVE = 6; }""",
    """void out(int n) { R(0x700 + 4 * n) = 3; }
void in(int n, int pull) { unsigned c = R(0x700 + 4 * n); R(0x700 + 4 * n) = (c & ~0x3000Eu) | (pull & 3) << 2 | 2 << 16; }
void high(int n) { R(0x508) = 1u << n; }
void two(void) { R(0x508) = 0x8; R(0x508) = 0x10; R(0x50C) = 0x20; }
int look(int n) { return R(0x510) >> n & 1; }
void mode(int n) { R(0x700 + 4 * n) = (R(0x700 + 4 * n) & ~0x70Cu) | 3 << 2 | 6 << 8; }""",
    (("out", 7), ("in", 9, 3), ("high", 31), ("two",), ("look", 4), ("mode", 7)),
    reads={0x510: lambda c: 0x10},
    writes={0x508: setreg(0x504), 0x50C: setreg(0x504, True)},
)

PLIC = Part(
    "FE310 PLIC",
    "e310x.svd",
    0x0C000000,
    'fields: {"PLIC.claim.*": {rse: [self], wse: [self]}, "PLIC.priority*": {plain: true}, "PLIC.enable*": {plain: true}}',
    """bfGroup Plic { uint32 priority[52]; uint32 pending[2]; uint32 enable[2]; uint3 threshold; uint32 claim; };
make_device(Plic, plic, 0x0C000000);
void enable(int irq, int prio) { plic->priority[irq] = prio; plic->enable[irq / 32] |= 1u << irq % 32; }
void threshold(int t) { plic->threshold = t; }
bf_interrupt int handle(void) { int n = plic->claim; plic->claim = n; return n; }
int pending(int irq) { return plic->pending[irq / 32] >> irq % 32 & 1; }""",
    """void enable(int irq, int prio) { R(4 * irq) = prio; R(0x2000 + 4 * (irq / 32)) |= 1u << irq % 32; }
void threshold(int t) { R(0x200000) = t & 7; }
int handle(void) { int n = R(0x200004); R(0x200004) = n; return n; }
int pending(int irq) { return R(0x1000 + 4 * (irq / 32)) >> irq % 32 & 1; }""",
    (("enable", 40, 5), ("enable", 3, 1), ("threshold", 9), ("handle",), ("pending", 33)),
    reads={0x200004: lambda c: 40, 0x1004: lambda c: 2},
    span=0x400000,
)

QSPI = Part(
    "FE310 QSPI",
    "e310x.svd",
    0x10014000,
    'fields: {"QSPI0.fmt.*": {plain: true}, "QSPI0.mode.*": {plain: true}, "QSPI0.delay?.*": {plain: true}, "QSPI0.ie.*": {plain: true}}',
    """bfGroup Tx { uint8 data; bit full; }; bfGroup Rx { uint8 data; bit empty; }; bfGroup Fmt { uint2 protocol; bit endian; bit direction; uint4 length; };
bfGroup Q { uint12 div_value; bit polarity; bit phase; uint32 csid; uint32 csmode; bfGroup Fmt fmt; bfGroup Tx txdata; bfGroup Rx rxdata; bit ie_txwm; bit ie_rxwm; bit ip_rxwm; uint3 rxmark_value; };
make_device(Q, q, 0x10014000);
void open(int d, int m) { q->div_value = d; q->polarity = m >> 1; q->phase = m; q->fmt = (bfGroup Fmt){ .length = 8 }; q->csmode = 2; q->rxmark_value = 3; q->ie_rxwm = 1; q->ie_txwm = 0; }
int swap(int v) { while (q->txdata.full) ; q->txdata = (bfGroup Tx){ .data = v }; for (;;) { bfGroup Rx r = q->rxdata; if (!r.empty) return r.data; } }
void send(const unsigned char *p, int n) { q->csmode = 2; q->fmt.direction = 1; for (int i = 0; i < n; i++) { while (q->txdata.full) ; q->txdata = (bfGroup Tx){ .data = p[i] }; } q->fmt.direction = 0; q->csmode = 0; }
static const unsigned char text[] = "abc";
void hello(void) { send(text, 3); }""",
    """void open(int d, int m) { R(0) = d & 0xFFF; R(4) = (m >> 1 & 1) << 1 | (m & 1); R(0x40) = 8 << 16; R(0x18) = 2; R(0x54) = 3; R(0x70) = 2; }
int swap(int v) { while (R(0x48) >> 31) ; R(0x48) = v & 0xFF; for (;;) { unsigned r = R(0x4C); if (!(r >> 31)) return r & 0xFF; } }
void send(const unsigned char *p, int n) { R(0x18) = 2; R(0x40) |= 8; for (int i = 0; i < n; i++) { while (R(0x48) >> 31) ; R(0x48) = p[i]; } R(0x40) &= ~8u; R(0x18) = 0; }
static const unsigned char text[] = "abc";
void hello(void) { send(text, 3); }""",
    (("open", 3, 3), ("swap", 0x5A), ("hello",)),
    reads={0x48: toggled(1 << 31, 0), 0x4C: toggled(1 << 31, 0xA7)},
    writes={0x48: push},
)


PARTS = (TIMER, PWM, IO, PIO, DOG, RTC, GPIOTE, SAADC, P0, PLIC, QSPI)
