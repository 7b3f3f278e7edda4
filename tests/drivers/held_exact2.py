# ruff: noqa: E501  (C on one line reads better here)
"""More drivers whose accesses are compared one by one, of vendors' files and by the facts of reference manuals."""

from __future__ import annotations

from tests.drivers.silicon import BusError, Part, pop, push, toggled


def only_one(chip, v):
    if v != 1:
        raise BusError("a task takes 1")
    chip.sent.append(v)


TWI = Part(
    "nRF52 TWI",
    "nrf52.svd",
    0x40003000,
    'fields: {"TWI0.ENABLE.*": {plain: true}, "TWI0.SHORTS.*": {plain: true}, "TWI0.PSEL*.*": {plain: true}, "TWI0.ADDRESS.*": {plain: true}, "TWI0.TXD.*": {wse: [self]}}',
    """bfGroup Err { bit OVERRUN; bit ANACK; bit DNACK; }; bfGroup Shorts { bit BB_SUSPEND; bit BB_STOP; };
bfGroup Twi { uint32 TASKS_STARTRX; uint32 TASKS_STARTTX; uint32 TASKS_STOP; uint32 TASKS_RESUME; uint32 EVENTS_STOPPED; uint32 EVENTS_RXDREADY; uint32 EVENTS_TXDSENT; uint32 EVENTS_ERROR; bfGroup Shorts SHORTS; bfGroup Err ERRORSRC; uint4 ENABLE; uint32 PSELSCL; uint32 PSELSDA; uint8 RXD; uint8 TXD; uint32 FREQUENCY; uint7 ADDRESS; };
make_device(Twi, twi, 0x40003000);
void open(int scl, int sda) { twi->ENABLE = 0; twi->PSELSCL = scl; twi->PSELSDA = sda; twi->FREQUENCY = 0x06680000; twi->ENABLE = 5; }
static int failed(void) { if (!twi->EVENTS_ERROR) return 0; twi->EVENTS_ERROR = 0; bfGroup Err e = twi->ERRORSRC; twi->ERRORSRC = e; return e.ANACK ? -1 : e.DNACK ? -2 : -3; }
int put(int a, int x, int y) { twi->ADDRESS = a; twi->SHORTS.BB_STOP = 0; twi->SHORTS.BB_SUSPEND = 0; twi->TASKS_STARTTX = 1; twi->TXD = x; while (!twi->EVENTS_TXDSENT) { int f = failed(); if (f) return f; } twi->EVENTS_TXDSENT = 0; twi->TXD = y; while (!twi->EVENTS_TXDSENT) ; twi->EVENTS_TXDSENT = 0; twi->TASKS_STOP = 1; return 0; }
int get2(int a) { twi->ADDRESS = a; twi->SHORTS = (bfGroup Shorts){ .BB_SUSPEND = 1 }; twi->TASKS_STARTRX = 1; while (!twi->EVENTS_RXDREADY) ; twi->EVENTS_RXDREADY = 0; int v = twi->RXD; twi->SHORTS = (bfGroup Shorts){ .BB_STOP = 1 }; twi->TASKS_RESUME = 1; while (!twi->EVENTS_RXDREADY) ; twi->EVENTS_RXDREADY = 0; return v << 8 | twi->RXD; }
void clear(void) { twi->ERRORSRC = (bfGroup Err){ .OVERRUN = 1, .ANACK = 1, .DNACK = 1 }; }""",
    """void open(int scl, int sda) { R(0x500) = 0; R(0x508) = scl; R(0x50C) = sda; R(0x524) = 0x06680000; R(0x500) = 5; }
static int failed(void) { if (!R(0x124)) return 0; R(0x124) = 0; unsigned e = R(0x4C4); R(0x4C4) = e; return e & 2 ? -1 : e & 4 ? -2 : -3; }
int put(int a, int x, int y) { R(0x588) = a; R(0x200) = 0; R(8) = 1; R(0x51C) = x & 255; while (!R(0x11C)) { int f = failed(); if (f) return f; } R(0x11C) = 0; R(0x51C) = y & 255; while (!R(0x11C)) ; R(0x11C) = 0; R(0x14) = 1; return 0; }
int get2(int a) { R(0x588) = a; R(0x200) = 1; R(0) = 1; while (!R(0x108)) ; R(0x108) = 0; int v = R(0x518) & 255; R(0x200) = 2; R(0x20) = 1; while (!R(0x108)) ; R(0x108) = 0; return v << 8 | (R(0x518) & 255); }
void clear(void) { R(0x4C4) = 7; }""",
    (("open", 26, 27), ("put", 0x50, 1, 2), ("get2", 0x50), ("put", 0x51, 3, 4), ("clear",)),
    clears={0x4C4: 7},
    reads={
        0x11C: toggled(0, 1, 0, 1, 0, 0, 0),
        0x124: toggled(0, 0, 1),
        0x4C4: lambda c: c.values.setdefault(0x4C4, 4),
        0x108: toggled(0, 0, 1, 1),
        0x518: toggled(0xAB, 0xCD),
    },
    writes={0: only_one, 8: only_one, 0x14: only_one, 0x20: only_one},
)


def chen(clear):
    def w(chip, v):
        old = chip.values.get(0x500, 0)
        chip.values[0x500] = old & ~v if clear else old | v
        chip.sent.append(v)

    return w


PPI = Part(
    "nRF52 PPI",
    "nrf52.svd",
    0x4001F000,
    'fields: {"PPI.CH*_?EP.*": {plain: true}, "PPI.CHG*.*": {plain: true}, "PPI.FORK*.*": {plain: true}}',
    """bfGroup Ch { uint32 EEP; uint32 TEP; }; bfGroup Set { bit CH0; bit CH3; bit CH5; }; bfGroup Task { uint32 EN; uint32 DIS; }; bfGroup Fork { uint32 TEP; };
bfGroup Ppi { bfGroup Task TASKS_CHG[6]; bfGroup Set CHEN; bfGroup Set CHENSET; bfGroup Set CHENCLR; bfGroup Ch CH[20]; bfGroup Set CHG0; bfGroup Fork FORK[32]; };
make_device(Ppi, ppi, 0x4001F000);
static void wire(bfGroup Ch *c, unsigned e, unsigned t) { c->EEP = e; c->TEP = t; }
void set(int n, unsigned e, unsigned t) { wire(&ppi->CH[n], e, t); }
void on(void) { ppi->CHENSET.CH3 = 1; ppi->CHENSET = (bfGroup Set){ .CH0 = 1, .CH5 = 1 }; ppi->CHENCLR.CH0 = 1; }
int which(void) { bfGroup Set s = ppi->CHEN; return s.CH0 + 2 * s.CH3 + 4 * s.CH5; }
void group(int n) { ppi->CHG0 = (bfGroup Set){ .CH3 = 1 }; ppi->CHG0.CH5 = 1; ppi->TASKS_CHG[0].DIS = 1; ppi->TASKS_CHG[n].EN = 1; }
void fork(int n, unsigned t) { ppi->FORK[n].TEP = t; }""",
    """void set(int n, unsigned e, unsigned t) { R(0x510 + 8 * n) = e; R(0x514 + 8 * n) = t; }
void on(void) { R(0x504) = 8; R(0x504) = 0x21; R(0x508) = 1; }
int which(void) { unsigned s = R(0x500); return (s & 1) + 2 * (s >> 3 & 1) + 4 * (s >> 5 & 1); }
void group(int n) { R(0x800) = 8; R(0x800) |= 0x20; R(4) = 1; R(8 * n) = 1; }
void fork(int n, unsigned t) { R(0x910 + 4 * n) = t; }""",
    (("set", 3, 0x40001100, 0x40002000), ("on",), ("which",), ("group", 2), ("fork", 31, 99)),
    writes={0x504: chen(False), 0x508: chen(True), 4: only_one, 16: only_one},
)


def command(chip, v):
    if v & 0x10 and v & 0x20:
        raise BusError("read and write at once")
    chip.sent.append(v)
    chip.state["tip"] = 2


def status(chip):
    tip = chip.state.get("tip", 0)
    chip.state["tip"] = max(0, tip - 1)
    return (2 if tip else 1) | (0x80 if chip.sent[-1:] == [0x68] else 0)


FEI2C = Part(
    "FE310 I2C",
    "e310x.svd",
    0x10016000,
    'fields: {"I2C0.cr.*": {wse: [self, "I2C0.sr.*"], back: "0"}, "I2C0.prer*.*": {plain: true}, "I2C0.ctr.*": {plain: true}, "I2C0.txr_rxr.*": {plain: false}}',
    """bfGroup Cr { bit sta; bit sto; bit rd; bit wr; bit ack; bit iack; }; bfGroup Sr { bit rx_ack; bit busy; bit al; bit tip; };
bfGroup I2c { uint8 prer_lo_value; uint8 prer_hi_value; bit ctr_en; bit ctr_ien; uint8 txr_rxr; bfGroup Cr cr; bfGroup Sr sr; };
make_device(I2c, i2c, 0x10016000);
void open(int p) { i2c->ctr_en = 0; i2c->prer_lo_value = p; i2c->prer_hi_value = p >> 8; i2c->ctr_en = 1; }
static int wait(void) { for (;;) { bfGroup Sr s = i2c->sr; if (!s.tip) return s.rx_ack; } }
int put(int a, int v) { i2c->txr_rxr = a << 1; i2c->cr = (bfGroup Cr){ .sta = 1, .wr = 1 }; if (wait()) return -1; i2c->txr_rxr = v; i2c->cr = (bfGroup Cr){ .wr = 1, .sto = 1 }; wait(); return 0; }
int get(void) { i2c->cr = (bfGroup Cr){ .rd = 1, .ack = 1, .sto = 1 }; while (i2c->sr.tip) ; return i2c->txr_rxr; }
void ack(void) { i2c->cr.iack = 1; i2c->cr.iack = 1; }""",
    """void open(int p) { R(8) &= ~0x80u; R(0) = p & 255; R(4) = p >> 8 & 255; R(8) |= 0x80; }
static int wait(void) { for (;;) { unsigned s = R(16); if (!(s & 2)) return s >> 7 & 1; } }
int put(int a, int v) { R(12) = a << 1 & 255; R(16) = 0x90; if (wait()) return -1; R(12) = v & 255; R(16) = 0x50; wait(); return 0; }
int get(void) { R(16) = 0x68; while (R(16) & 2) ; return R(12) & 255; }
void ack(void) { R(16) = 1; R(16) = 1; }""",
    (("open", 0x123), ("put", 0x50, 7), ("get",), ("ack",), ("put", 1, 2)),
    reads={16: status},
    writes={16: command},
)

FEPWM = Part(
    "FE310 PWM",  # the vendor's file has a field of 11 bits beyond the register's end
    "",
    0x40000000,
    'fields: {"C.cfg.*": {plain: true}, "C.cfg.cmp?ip": {plain: false, volatile: true}, "C.cmp?.*": {plain: true}}',
    """bfGroup Cfg { bit cmp0ip; bit cmp1ip; bit cmp1gang; bit cmp1center; bit enoneshot; bit enalways; bit deglitch; bit zerocmp; bit sticky; uint4 scale; };
bfGroup Pwm { bfGroup Cfg cfg; uint32 count; uint32 pwms; uint16 cmp[4]; };
make_device(Pwm, pwm, 0x40000000);
void open(int scale, int top) { pwm->cfg.enalways = 0; pwm->cfg.scale = scale; pwm->cfg.zerocmp = 1; pwm->count = 0; pwm->cmp[0] = top; pwm->cmp[1] = top / 2; pwm->cfg.enalways = 1; }
void level(int n, int v) { pwm->cmp[n] = v; }
int ticked(void) { if (!pwm->cfg.cmp0ip) return 0; pwm->cfg.cmp0ip = 0; return 1; }
void shot(void) { pwm->cfg.sticky = 1; pwm->cfg.deglitch = 1; pwm->cfg.cmp1center = 1; pwm->cfg.enoneshot = 1; while (pwm->cfg.enoneshot) ; }
int now(void) { return (int)(pwm->pwms + pwm->count + pwm->pwms); }""",
    """void open(int scale, int top) { R(0) &= ~0x1000u; R(0) = (R(0) & ~0xFu) | (scale & 15) | 0x200; R(8) = 0; R(0x20) = top & 0xFFFF; R(0x24) = top / 2 & 0xFFFF; R(0) |= 0x1000; }
void level(int n, int v) { R(0x20 + 4 * n) = v & 0xFFFF; }
int ticked(void) { unsigned c = R(0); if (!(c >> 28 & 1)) return 0; R(0) = c & ~0x10000000u; return 1; }
void shot(void) { R(0) |= 0x22500; while (R(0) >> 13 & 1) ; }
int now(void) { unsigned a = R(16); a += R(8); return (int)(a + R(16)); }""",
    (("open", 3, 1000), ("level", 2, 5), ("ticked",), ("ticked",), ("shot",), ("now",)),
    reads={
        0: lambda c: (
            (c.values.get(0, 0) & ~0x2000 if c.state.setdefault("k", 0) > 9 else c.values.get(0, 0))
            if not c.state.update(k=c.state.get("k", 0) + 1)
            else 0
        ),
        16: toggled(3, 4),
    },
    text="cfg@0: scale:0:4 sticky:8:1 zerocmp:9:1 deglitch:10:1 enalways:12:1 enoneshot:13:1 cmp0center:16:1 cmp1center:17:1 cmp0gang:24:1 cmp1gang:25:1 cmp0ip:28:1 cmp1ip:29:1 cmp2ip:30:1 cmp3ip:31:1\ncount@8: count:0:32\npwms@16: pwms:0:32\ncmp0@32: v:0:16\ncmp1@36: v:0:16\ncmp2@40: v:0:16\ncmp3@44: v:0:16",
)

CLINT = Part(
    "FE310 CLINT",
    "e310x.svd",
    0x02000000,
    'fields: {"CLINT.mtimecmp*.*": {wse: ["CLINT.msip.*"]}}',
    """bfGroup Clint { uint32 msip; uint32 mtimecmp; uint32 mtimecmph; uint32 mtime; uint32 mtimeh; };
make_device(Clint, clint, 0x02000000);
unsigned long long now(void) { for (;;) { unsigned h = clint->mtimeh; unsigned l = clint->mtime; if (h == clint->mtimeh) return (unsigned long long)h << 32 | l; } }
int low(void) { return (int)now(); }
int high(void) { return (int)(now() >> 32); }
void at(unsigned long long t) { clint->mtimecmph = 0xFFFFFFFF; clint->mtimecmp = (unsigned)t; clint->mtimecmph = (unsigned)(t >> 32); }
void in(int n) { at(now() + n); }
void soft(void) { clint->msip = 1; while (!clint->msip) ; clint->msip = 0; (void)clint->msip; }""",
    """unsigned long long now(void) { for (;;) { unsigned h = R(0xBFFC); unsigned l = R(0xBFF8); if (h == R(0xBFFC)) return (unsigned long long)h << 32 | l; } }
int low(void) { return (int)now(); }
int high(void) { return (int)(now() >> 32); }
void at(unsigned long long t) { R(0x4004) = 0xFFFFFFFF; R(0x4000) = (unsigned)t; R(0x4004) = (unsigned)(t >> 32); }
void in(int n) { at(now() + n); }
void soft(void) { R(0) = 1; while (!R(0)) ; R(0) = 0; (void)R(0); }""",
    (("low",), ("high",), ("in", 50), ("soft",)),
    reads={0xBFFC: toggled(1, 2, 2, 2, 2, 2), 0xBFF8: toggled(0xFFFFFFFF, 3, 4)},
    span=0x10000,
)


def pmukey(chip, v):
    if v != 0x51F15E:
        raise BusError("key")
    chip.state["open"] = 1


def pmu(at):
    def w(chip, v):
        if not chip.state.pop("open", 0):
            raise BusError(f"{at:#x} without the key")
        chip.values[at] = v

    return w


PMU = Part(
    "FE310 PMU",
    "e310x.svd",
    0x10000000,
    'fields: {PMU.pmukey.*: {wse: [self]}, "PMU.pmuie.*": {plain: true}, "PMU.pmuwake*.*": {plain: true}, "PMU.pmusleep.*": {wse: [self]}}',
    """bfGroup Pm { bit isolate; bit hfclkrst; bit corerst; bit pmu_out_1_en; bit pmu_out_0_en; uint4 delay; }; bfGroup Ie { bit awakeup; bit dwakeup; bit rtc; };
bfGroup Pmu { bfGroup Pm pmuwakepm[8]; bfGroup Ie pmuie; uint2 resetcause; uint2 wakeupcause; bit sleep; uint32 pmukey; };
make_device(Pmu, pmu, 0x10000000);
static void open(void) { pmu->pmukey = 0x51F15E; }
void step(int n, int d) { open(); pmu->pmuwakepm[n] = (bfGroup Pm){ .delay = d, .pmu_out_0_en = 1, .corerst = 1 }; }
void wake(void) { open(); pmu->pmuie.rtc = 1; pmu->pmukey = 0x51F15E; pmu->pmuie.dwakeup = 1; open(); pmu->sleep = 1; }
int why(void) { return pmu->resetcause * 4 + pmu->wakeupcause; }""",
    """static void open(void) { R(0x14C) = 0x51F15E; }
void step(int n, int d) { open(); R(0x100 + 4 * n) = (d & 15) | 0x90; }
void wake(void) { unsigned e; open(); e = R(0x140); R(0x140) = e | 2; open(); e = R(0x140); R(0x140) = e | 4; open(); R(0x148) = 1; }
int why(void) { unsigned c = R(0x144); return (int)((c >> 8 & 3) * 4 + (c & 3)); }""",
    (("step", 3, 7), ("wake",), ("why",)),
    reads={0x144: lambda c: 0x203},
    writes={
        0x14C: pmukey,
        0x140: pmu(0x140),
        0x148: pmu(0x148),
        **{0x100 + 4 * n: pmu(0x100 + 4 * n) for n in range(8)},
    },
)


def adcr(chip, v):
    old = chip.values.get(8, 0x20000000)
    if v >> 31 and old & 1:
        raise BusError("calibration while enabled")
    if v & 5 and old >> 31:
        raise BusError("enabled while calibrating")
    if old & 5 == 5 and not v & 1 and not v & 2:
        raise BusError("ADEN cannot be cleared by software")
    chip.state["cal"] = 3 if v >> 31 else 0
    chip.values[8] = v
    chip.sent.append(v)


def adcr_read(chip):
    if chip.state.get("cal"):
        chip.state["cal"] -= 1
        if not chip.state["cal"]:
            chip.values[8] &= 0x7FFFFFFF
    return chip.values.setdefault(8, 0x20000000)


ADC = Part(
    "STM32 ADC",  # RM0351: rs bits of CR, flags that a 1 clears, calibration
    "",
    0x40000000,
    'fields: {"C.CR.*": {plain: true}, "C.CR.AD*": {plain: false, volatile: true, back: "0"}, "C.CR.JADSTART": {plain: false, volatile: true, back: "0"}, "C.CR.ADVREGEN": {plain: true, back: keep}, "C.CR.ADCALDIF": {plain: true, back: keep}, "C.CFGR.*": {plain: true}, "C.SQR1.*": {plain: true}, "C.SMPR1.*": {plain: true}, "C.DR.*": {rse: [self, "C.ISR.EOC"]}}',
    """bfGroup Isr { bit ADRDY; bit EOC; bit EOS; bit OVR; }; bfGroup Cr { bit ADEN; bit ADDIS; bit ADSTART; bit ADVREGEN; bit DEEPPWD; bit ADCALDIF; bit ADCAL; };
bfGroup Cfgr { bit DMAEN; bit CONT; uint2 RES; bit OVRMOD; }; bfGroup Sqr { uint4 L; uint5 SQ1; uint5 SQ2; };
bfGroup Adc { bfGroup Isr ISR; bit EOCIE; bit OVRIE; bfGroup Cr CR; bfGroup Cfgr CFGR; uint3 SMP0; uint3 SMP1; bfGroup Sqr SQR1; uint16 DR; };
make_device(Adc, adc, 0x40000000);
void wakeup(void) { adc->CR.DEEPPWD = 0; adc->CR.ADVREGEN = 1; }
void calibrate(int dif) { adc->CR.ADCALDIF = dif; adc->CR.ADCAL = 1; while (adc->CR.ADCAL) ; }
void enable(void) { adc->ISR.ADRDY = 1; adc->CR.ADEN = 1; while (!adc->ISR.ADRDY) ; adc->ISR.ADRDY = 1; }
void setup(int a, int b) { adc->CFGR.CONT = 0; adc->CFGR.RES = 2; adc->CFGR.OVRMOD = 1; adc->SMP0 = 5; adc->SMP1 = 6; adc->SQR1.L = 1; adc->SQR1.SQ1 = a; adc->SQR1.SQ2 = b; adc->OVRIE = 1; }
int convert(void) { int sum = 0; adc->CR.ADSTART = 1; for (int i = 0; i < 2; i++) { while (!adc->ISR.EOC) ; sum = sum * 1000 + adc->DR; } if (adc->ISR.OVR) adc->ISR = (bfGroup Isr){ .OVR = 1, .EOS = 1 }; return sum; }
void stop(void) { adc->CR.ADDIS = 1; while (adc->CR.ADEN) ; }""",
    """void wakeup(void) { R(8) = (R(8) & ~(0x80000007u | 8 | 0x20000000)) | 0x10000000; }
void calibrate(int dif) { unsigned c = R(8); R(8) = (c & ~0xC000000Fu) | (unsigned)(dif & 1) << 30; c = R(8); R(8) = (c & ~0x8000000Fu) | 0x80000000; while (R(8) >> 31) ; }
void enable(void) { R(0) = 1; R(8) = (R(8) & ~0x8000000Fu) | 1; while (!(R(0) & 1)) ; R(0) = 1; }
void setup(int a, int b) { R(12) = (R(12) & ~0x2018u) | 0x1010; R(20) = (R(20) & 0xFFFFFFC0) | 5 | 6 << 3; R(48) = 1 | (a & 31) << 6 | (b & 31) << 12; R(4) |= 0x10; }
int convert(void) { int sum = 0; R(8) = (R(8) & ~0x8000000Fu) | 4; for (int i = 0; i < 2; i++) { while (!(R(0) & 4)) ; sum = sum * 1000 + (R(64) & 0xFFFF); } if (R(0) & 0x10) R(0) = 0x18; return sum; }
void stop(void) { R(8) = (R(8) & ~0x8000000Fu) | 2; while (R(8) & 1) ; }""",
    (("wakeup",), ("calibrate", 1), ("enable",), ("setup", 3, 4), ("convert",), ("stop",)),
    clears={0: 0x1F},
    reads={0: toggled(0, 1, 0, 4, 4, 0x14), 8: adcr_read, 64: toggled(500, 600)},
    writes={8: adcr},
    text="ISR@0: ADRDY:0:1:oneToClear EOSMP:1:1:oneToClear EOC:2:1:oneToClear EOS:3:1:oneToClear OVR:4:1:oneToClear\nIER@4: ADRDYIE:0:1 EOCIE:2:1 OVRIE:4:1\nCR@8: ADEN:0:1 ADDIS:1:1 ADSTART:2:1 JADSTART:3:1 ADVREGEN:28:1 DEEPPWD:29:1 ADCALDIF:30:1 ADCAL:31:1\nCFGR@12: DMAEN:0:1 RES:3:2 OVRMOD:12:1 CONT:13:1\nSMPR1@20: SMP0:0:3 SMP1:3:3 SMP2:6:3\nSQR1@48: L:0:4 SQ1:6:5 SQ2:12:5\nDR@64: DR:0:16:r",
)


def tim_sr(chip, v):
    chip.values[16] = chip.values.get(16, 0) & v  # rc_w0
    chip.sent.append(v)


TIM = Part(
    "STM32 TIM",  # RM0090: flags that a 0 clears, events that read as 0, preloaded registers
    "",
    0x40000000,
    'fields: {"C.CR?.*": {plain: true}, "C.DIER.*": {plain: true}, "C.CCMR1.*": {plain: true}, "C.CCER.*": {plain: true}, "C.EGR.*": {access: w, back: "0"}, "C.PSC.*": {plain: true}, "C.ARR.*": {plain: true}, "C.CCR*": {plain: true}}',
    """bfGroup Cr1 { bit CEN; bit UDIS; bit OPM; bit ARPE; }; bfGroup Sr { bit UIF; bit CC1IF; bit CC2IF; bit CC1OF; }; bfGroup Eg { bit UG; bit CC1G; };
bfGroup Ccmr { uint2 CC1S; bit OC1PE; uint3 OC1M; };
bfGroup Tim { bfGroup Cr1 CR1; bit UIE; bit CC1IE; bfGroup Sr SR; bfGroup Eg EGR; bfGroup Ccmr CCMR1; bit CC1E; bit CC1P; uint16 CNT; uint16 PSC; uint16 ARR; uint16 CCR[4]; };
make_device(Tim, tim, 0x40000000);
void open(int psc, int top) { tim->CR1.CEN = 0; tim->CR1.ARPE = 1; tim->CR1.OPM = 0; tim->PSC = psc; tim->ARR = top; tim->CCMR1.OC1M = 6; tim->CCMR1.OC1PE = 1; tim->CC1E = 1; tim->EGR.UG = 1; tim->SR.UIF = 0; tim->UIE = 1; tim->CR1.CEN = 1; }
bf_interrupt void isr(void) { bfGroup Sr s = tim->SR; if (s.UIF) tim->SR.UIF = 0; if (s.CC1IF) { tim->SR = (bfGroup Sr){ .CC1IF = 0, .UIF = 1, .CC2IF = 1, .CC1OF = 0 }; } }
void both(void) { tim->SR.CC1IF = 0; tim->SR.CC1OF = 0; }
void duty(int n, int v) { tim->CCR[n] = v; }
int measure(void) { int a = tim->CNT; int b = tim->CNT; tim->EGR = (bfGroup Eg){ .CC1G = 1, .UG = 1 }; return b - a; }""",
    """void open(int psc, int top) { R(0) &= ~1u; R(0) = (R(0) & ~8u) | 0x80; R(40) = psc & 0xFFFF; R(44) = top & 0xFFFF; R(24) = (R(24) & ~0x78u) | 0x68; R(32) |= 1; R(20) = 1; R(16) = 0x207 & ~1; R(12) |= 1; R(0) |= 1; }
void isr(void) { unsigned s = R(16); if (s & 1) R(16) = 0x206; if (s & 2) R(16) = 0x5; }
void both(void) { R(16) = 0x205; R(16) = 0x7; }
void duty(int n, int v) { R(52 + 4 * n) = v & 0xFFFF; }
int measure(void) { int a = R(36) & 0xFFFF; int b = R(36) & 0xFFFF; R(20) = 3; return b - a; }""",
    (("open", 9, 999), ("isr",), ("both",), ("duty", 3, 5), ("measure",)),
    reads={16: lambda c: c.values.setdefault(16, 0x3), 36: toggled(5, 9)},
    writes={16: tim_sr, 20: lambda c, v: c.sent.append(v) or c.values.update({16: 3})},
    text="CR1@0: CEN:0:1 UDIS:1:1 OPM:3:1 ARPE:7:1\nDIER@12: UIE:0:1 CC1IE:1:1\nSR@16: UIF:0:1:zeroToClear CC1IF:1:1:zeroToClear CC2IF:2:1:zeroToClear CC1OF:9:1:zeroToClear\nEGR@20: UG:0:1 CC1G:1:1\nCCMR1@24: CC1S:0:2 OC1PE:3:1 OC1M:4:3 OC2M:12:3\nCCER@32: CC1E:0:1 CC1P:1:1 CC2E:4:1\nCNT@36: CNT:0:16\nPSC@40: PSC:0:16\nARR@44: ARR:0:16\nCCR1@52: CCR:0:16\nCCR2@56: CCR:0:16\nCCR3@60: CCR:0:16\nCCR4@64: CCR:0:16",
)


def epr(chip, v):  # STAT bits toggle, CTR bits are cleared by a 0, the rest is stored
    old = chip.values.get(0, 0)
    stat = (old ^ v) & 0x7070
    ctr = old & v & 0x8080
    chip.values[0] = stat | ctr | v & 0x070F
    chip.sent.append(v)


USBEP = Part(
    "STM32 USB endpoint",  # RM0091: one register with toggles, flags that a 0 clears and plain bits
    "",
    0x40000000,
    'fields: {"C.EP0R.EA": {plain: true}, "C.EP0R.EP_TYPE": {plain: true}, "C.EP0R.EP_KIND": {plain: true}, "C.EP0R.STAT_?X": {back: "0", wse: [self]}, "C.EP0R.DTOG_?X": {back: "0", wse: [self]}}',
    """bfGroup Ep { uint4 EA; uint2 STAT_TX; bit DTOG_TX; bit CTR_TX; bit EP_KIND; uint2 EP_TYPE; bit SETUP; uint2 STAT_RX; bit DTOG_RX; bit CTR_RX; };
bfGroup Usb { bfGroup Ep EP0R; };
make_device(Usb, usb, 0x40000000);
void open(void) { usb->EP0R = (bfGroup Ep){ .EP_TYPE = 1, .STAT_RX = 3, .STAT_TX = 2, .CTR_RX = 0, .CTR_TX = 0 }; }
void rx_done(void) { usb->EP0R.CTR_RX = 0; }
int arm(int want) { bfGroup Ep e = usb->EP0R; usb->EP0R = (bfGroup Ep){ .EA = e.EA, .EP_TYPE = e.EP_TYPE, .EP_KIND = e.EP_KIND, .STAT_RX = e.STAT_RX ^ want }; return e.SETUP; }
void valid(void) { int s = usb->EP0R.STAT_TX; usb->EP0R.STAT_TX = s ^ 3; }
void kind(int k) { usb->EP0R.EP_KIND = k; usb->EP0R.EA = 2; }""",
    """void open(void) { R(0) = 0x3220; }
void rx_done(void) { R(0) = (R(0) & 0x070F) | 0x80; }
int arm(int want) { unsigned e = R(0); R(0) = (e & 0x70F & ~0x800u) | 0x8080 | ((e >> 12 & 3) ^ (want & 3)) << 12; return e >> 11 & 1; }
void valid(void) { unsigned s = R(0); R(0) = (s & 0x70F) | 0x8080 | ((s >> 4 & 3) ^ 3) << 4; }
void kind(int k) { R(0) = (R(0) & 0x600) | 0x8080 | (k & 1) << 8 | 2; }""",
    (("open",), ("rx_done",), ("arm", 3), ("valid",), ("kind", 1)),
    writes={0: epr},
    reads={0: lambda c: c.values.get(0, 0) | 0x8800},
    text="EP0R@0: EA:0:4 STAT_TX:4:2 DTOG_TX:6:1 CTR_TX:7:1:zeroToClear EP_KIND:8:1 EP_TYPE:9:2 SETUP:11:1:r STAT_RX:12:2 DTOG_RX:14:1 CTR_RX:15:1:zeroToClear",
)


def register(name: str, offset: int, size: int, fields: str, more: str = "") -> str:
    rows = []
    for word in fields.split():
        field, lsb, width, *modified = word.split(":")
        does = f"<modifiedWriteValues>{modified[0]}</modifiedWriteValues>" if modified else ""
        rows.append(
            f"<field><name>{field}</name><bitOffset>{lsb}</bitOffset><bitWidth>{width}</bitWidth>{does}</field>"
        )
    return f"<register><name>{name}</name><addressOffset>{offset}</addressOffset><size>{size}</size>{more}<fields>{''.join(rows)}</fields></register>"


def synced(at):
    def w(chip, v):
        if chip.state.get("sync"):
            raise BusError(f"{at:#x} while it synchronises")
        chip.values[at] = v
        chip.state["sync"] = 2

    return w


def syncing(chip):
    chip.state["sync"] = max(0, chip.state.get("sync", 0) - 1)
    return 2 if chip.state["sync"] else 0


SERCOM = Part(
    "SAM SERCOM",  # registers of 8, 16 and 32 bits side by side, which take accesses of their own size alone
    "",
    0x40000000,
    'fields: {"C.CTRL?.*": {plain: true}, "C.BAUD.*": {plain: true}, "C.INTEN*.*": {back: "0"}, "C.DATA.*": {rse: [self, "C.INTFLAG.*"], wse: [self]}, "C.DBGCTRL.*": {plain: true}, "C.INTFLAG.[DR]*": {access: r}}',
    """bfGroup Fl { bit DRE; bit TXC; bit RXC; bit ERROR; }; bfGroup St { bit PERR; bit FERR; bit BUFOVF; }; bfGroup Ca { bit SWRST; bit ENABLE; uint3 MODE; uint2 RXPO; bit DORD; };
bfGroup Ser { bfGroup Ca CTRLA; uint3 CHSIZE; bit SBMODE; bit TXEN; bit RXEN; uint16 BAUD; uint8 RXPL; bfGroup Fl INTENCLR; bfGroup Fl INTENSET; bfGroup Fl INTFLAG; bfGroup St STATUS; bit SYNCBUSY_ENABLE; uint9 DATA; bit DBGSTOP; };
make_device(Ser, ser, 0x40000000);
static void sync(void) { while (ser->SYNCBUSY_ENABLE) ; }
void open(int baud) { ser->CTRLA.ENABLE = 0; sync(); ser->CTRLA.MODE = 1; ser->CTRLA.RXPO = 2; ser->CTRLA.DORD = 1; sync(); ser->CHSIZE = 0; ser->SBMODE = 0; ser->TXEN = 1; ser->RXEN = 1; sync(); ser->BAUD = baud; ser->RXPL = 5; ser->DBGSTOP = 1; ser->INTENSET.RXC = 1; ser->INTENCLR = (bfGroup Fl){ .DRE = 1, .TXC = 1 }; ser->CTRLA.ENABLE = 1; sync(); }
void put(int c) { while (!ser->INTFLAG.DRE) ; ser->DATA = c; ser->DATA = c + 1; }
int get(void) { bfGroup St s = ser->STATUS; if (s.BUFOVF) ser->STATUS = (bfGroup St){ .BUFOVF = 1 }; bfGroup Fl f = ser->INTFLAG; if (f.ERROR) ser->INTFLAG.ERROR = 1; return f.RXC ? ser->DATA : -1; }""",
    """static void sync(void) { while (R(28) & 2) ; }
void open(int baud) { R(0) &= ~2u; sync(); R(0) = (R(0) & ~0x4030001Cu) | 0x40200004; sync(); R(4) = 0x30000; sync(); R16(12) = baud; R8(14) = 5; R8(48) = 1; R8(22) = 4; R8(20) = 3; R(0) |= 2; sync(); }
void put(int c) { while (!(R8(24) & 1)) ; R16(40) = c & 0x1FF; R16(40) = (c + 1) & 0x1FF; }
int get(void) { unsigned s = R16(26); if (s & 4) R16(26) = 4; unsigned f = R8(24); if (f & 0x80) R8(24) = 0x80; return f & 4 ? (int)(R16(40) & 0x1FF) : -1; }""",
    (("open", 0xF62B), ("put", 0x1FF), ("get",), ("get",)),
    clears={24: 0x82, 26: 7},
    reads={24: toggled(0, 1, 0x84, 0), 26: lambda c: c.values.setdefault(26, 4), 28: syncing, 40: pop},
    writes={0: synced(0), 4: synced(4), 40: push},
    sizes={12: 2, 14: 1, 20: 1, 22: 1, 24: 1, 26: 2, 40: 2, 48: 1},
    text="<device><name>X</name><peripherals><peripheral><name>C</name><baseAddress>0x40000000</baseAddress><registers>"
    + register("CTRLA", 0, 32, "SWRST:0:1 ENABLE:1:1 MODE:2:3 TXPO:16:2 RXPO:20:2 DORD:30:1")
    + register("CTRLB", 4, 32, "CHSIZE:0:3 SBMODE:6:1 TXEN:16:1 RXEN:17:1")
    + register("BAUD", 12, 16, "BAUD:0:16")
    + register("RXPL", 14, 8, "RXPL:0:8")
    + register("INTENCLR", 20, 8, "DRE:0:1 TXC:1:1 RXC:2:1 ERROR:7:1")
    + register("INTENSET", 22, 8, "DRE:0:1 TXC:1:1 RXC:2:1 ERROR:7:1")
    + register("INTFLAG", 24, 8, "DRE:0:1 TXC:1:1:oneToClear RXC:2:1 ERROR:7:1:oneToClear")
    + register("STATUS", 26, 16, "PERR:0:1:oneToClear FERR:1:1:oneToClear BUFOVF:2:1:oneToClear CTS:3:1")
    + register("SYNCBUSY", 28, 32, "SWRST:0:1 ENABLE:1:1", "<access>read-only</access>")
    + register("DATA", 40, 16, "DATA:0:9")
    + register("DBGCTRL", 48, 8, "DBGSTOP:0:1")
    + "</registers></peripheral></peripherals></device>",
)
PARTS = (TWI, PPI, FEI2C, FEPWM, CLINT, PMU, ADC, TIM, USBEP, SERCOM)
