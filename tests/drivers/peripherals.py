# ruff: noqa: E501  (C on one line reads better here)
"""Drivers of common peripherals as firmware has them: handlers, state machines, timeouts, key sequences, helpers."""

from __future__ import annotations

from tests.drivers.cases import Case

DEVICE = "make_device(P, p, 0x40000000);\n"

UART = Case(
    1,
    "UART with an interrupt",
    """bfGroup Sr { bit PE; bit FE; bit ORE; bit RXNE; bit TC; bit TXE; };
bfGroup Cr { bit RXNEIE; bit TCIE; bit TXEIE; bit RE; bit TE; bit UE; };
bfGroup P { bfGroup Sr SR; uint9 DR; uint16 BRR; bfGroup Cr CR1; };
"""
    + DEVICE
    + """struct ring { unsigned char data[32]; volatile unsigned head, tail; };
static struct ring rx, tx;
static volatile unsigned errors;
static int put(struct ring *r, unsigned char c)
{
    unsigned next = (r->head + 1) & 31;
    if (next == r->tail) return 0;
    r->data[r->head] = c;
    r->head = next;
    return 1;
}
static int get(struct ring *r)
{
    if (r->head == r->tail) return -1;
    unsigned char c = r->data[r->tail];
    r->tail = (r->tail + 1) & 31;
    return c;
}
void uart_open(unsigned clock, unsigned baud)
{
    p->BRR = (clock + baud / 2) / baud;
    p->CR1 = (bfGroup Cr){ .UE = 1, .TE = 1, .RE = 1, .RXNEIE = 1 };
}
int uart_write(const unsigned char *data, int n)
{
    int sent = 0;
    while (sent < n && put(&tx, data[sent])) sent++;
    p->CR1.TXEIE = 1;
    return sent;
}
int uart_read(void) { return get(&rx); }
void uart_flush(void) { while (!p->SR.TC) ; }
void uart_puts(const char *s)
{
    while (*s) {
        while (!p->SR.TXE) ;
        p->DR = *s++;
    }
}
bf_interrupt void uart_isr(void)
{
    bfGroup Sr s = p->SR;
    if (s.ORE || s.FE || s.PE) { errors++; (void)p->DR; return; }
    if (s.RXNE) put(&rx, p->DR);
    if (s.TXE) {
        int c = get(&tx);
        if (c < 0) p->CR1.TXEIE = 0;
        else p->DR = c;
    }
}
""",
    registers="SR@0x0: PE:0:1:r FE:1:1:r ORE:3:1:r RXNE:5:1:r TC:6:1:r TXE:7:1:r\nDR@0x4: DR:0:9\nBRR@0x8: V:0:16\n"
    "CR1@0xc: RE:2:1 TE:3:1 RXNEIE:5:1 TCIE:6:1 TXEIE:7:1 UE:13:1",
    overlay="fields: {'C.CR1.*': {plain: true, shared: true}, 'C.DR.*': {rse: [self], wse: [self]}}",
)

SPI = Case(
    2,
    "SPI with transfers and a timeout",
    """enum spi_error { SPI_OK, SPI_TIMEOUT, SPI_OVERRUN };
bfGroup Cr { bit CPHA; bit CPOL; bit MSTR; uint3 BR; bit SPE; bit DFF; }; bfGroup Sr { bit RXNE; bit TXE; bit OVR; bit BSY; };
bfGroup P { bfGroup Cr CR1; bfGroup Sr SR; uint16 DR; };
"""
    + DEVICE
    + """void board_select(int chip, int on);
void spi_open(int mode, int divider)
{
    p->CR1.SPE = 0;
    p->CR1 = (bfGroup Cr){ .CPHA = mode & 1, .CPOL = mode >> 1, .MSTR = 1, .BR = divider };
    p->CR1.SPE = 1;
}
static enum spi_error one(unsigned out, unsigned short *in)
{
    unsigned left = 1000;
    while (!p->SR.TXE) if (!left--) return SPI_TIMEOUT;
    p->DR = out;
    left = 1000;
    while (!p->SR.RXNE) if (!left--) return SPI_TIMEOUT;
    *in = p->DR;
    return p->SR.OVR ? SPI_OVERRUN : SPI_OK;
}
enum spi_error spi_transfer(int chip, const unsigned short *out, unsigned short *in, int n)
{
    enum spi_error e = SPI_OK;
    board_select(chip, 1);
    for (int i = 0; i < n && e == SPI_OK; i++)
        e = one(out ? out[i] : 0xFFFF, &in[i]);
    while (p->SR.BSY) ;
    board_select(chip, 0);
    return e;
}
void spi_close(void) { while (p->SR.BSY) ; p->CR1.SPE = 0; }
""",
    registers="CR1@0x0: CPHA:0:1 CPOL:1:1 MSTR:2:1 BR:3:3 SPE:6:1 DFF:11:1\nSR@0x8: RXNE:0:1:r TXE:1:1:r OVR:6:1:r BSY:7:1:r\nDR@0xc: DR:0:16",
    overlay="fields: {'C.CR1.*': {plain: true}, 'C.DR.*': {rse: [self], wse: [self]}}",
)

I2C = Case(
    3,
    "I2C as a state machine",
    """bfGroup Cr { bit PE; bit START; bit STOP; bit ACK; bit ITEVTEN; }; bfGroup Sr { bit SB; bit ADDR; bit BTF; bit RXNE; bit TXE; bit AF; };
bfGroup P { bfGroup Cr CR1; uint8 DR; bfGroup Sr SR1; bit BUSY; };
"""
    + DEVICE
    + """enum state { IDLE, STARTED, ADDRESSED, SENDING, RECEIVING, DONE, FAILED };
static volatile enum state state;
static unsigned char address, *buffer;
static volatile int left;
int i2c_begin(unsigned a, unsigned char *data, int n)
{
    if (state != IDLE && state != DONE && state != FAILED) return -1;
    if (p->BUSY) return -2;
    address = a; buffer = data; left = n;
    state = STARTED;
    p->CR1.ACK = 1;
    p->CR1.START = 1;
    return 0;
}
bf_interrupt void i2c_event(void)
{
    bfGroup Sr s = p->SR1;
    if (s.AF) { p->SR1.AF = 0; p->CR1.STOP = 1; state = FAILED; return; }
    switch (state) {
    case STARTED:
        if (s.SB) { p->DR = address; state = ADDRESSED; }
        break;
    case ADDRESSED:
        if (!s.ADDR) break;
        if (address & 1) { state = RECEIVING; break; }
        state = SENDING;
        /* fall through */
    case SENDING:
        if (left > 0) { left--; p->DR = *buffer++; }
        else { p->CR1.STOP = 1; state = DONE; }
        break;
    case RECEIVING:
        if (left == 2) p->CR1.ACK = 0;
        if (s.RXNE && left > 0) { left--; *buffer++ = p->DR; }
        if (!left) { p->CR1.STOP = 1; state = DONE; }
        break;
    default:
        p->CR1.ITEVTEN = 0;
    }
}
int i2c_wait(void)
{
    while (state != DONE && state != FAILED) ;
    return state == DONE ? 0 : -1;
}
void i2c_open(void) { p->CR1 = (bfGroup Cr){ .PE = 1, .ITEVTEN = 1 }; state = IDLE; }
""",
    registers="CR1@0x0: PE:0:1 ITEVTEN:1:1 START:8:1 STOP:9:1 ACK:10:1\nDR@0x10: DR:0:8\n"
    "SR1@0x14: SB:0:1:r ADDR:1:1:r BTF:2:1:r RXNE:6:1:r TXE:7:1:r AF:10:1:zeroToClear\nSR2@0x18: BUSY:1:1:r",
    overlay="fields: {'C.CR1.*': {plain: true, shared: true}, 'C.DR.*': {rse: [self], wse: [self]}}",
)

ADC = Case(
    4,
    "ADC with a mean",
    """bfGroup Sr { bit AWD; bit EOC; bit STRT; }; bfGroup Cr { bit ADON; bit CONT; bit DMA; bit SWSTART; };
bfGroup P { bfGroup Sr SR; bfGroup Cr CR2; uint5 bf_stride(4) SQ[4]; uint16 DATA; uint12 HIGH; uint12 LOW; };
"""
    + DEVICE
    + """static const unsigned char pins[4] = { 0, 3, 5, 17 };
static int converted(void)
{
    p->CR2.SWSTART = 1;
    while (!p->SR.EOC) ;
    return p->DATA;
}
void adc_open(void)
{
    p->CR2.ADON = 1;
    for (int i = 0; i < 4; i++) p->SQ[i] = pins[i];
}
int adc_mean(int n)
{
    unsigned long sum = 0;
    for (int i = 0; i < (1 << n); i++) sum += converted();
    return sum >> n;
}
int adc_two(int *a, int *b) { *a = converted(); *b = converted(); return *a - *b; }
int adc_least(int n)
{
    int least = 0xFFFF;
    while (n-- > 0) { int x = converted(); if (x < least) least = x; }
    return least;
}
int adc_watch(unsigned low, unsigned high)
{
    if (low > high) return -1;
    p->LOW = low; p->HIGH = high;
    p->SR.AWD = 0;
    return p->SR.AWD;
}
""",
    registers="SR@0x0: AWD:0:1:zeroToClear EOC:1:1:zeroToClear STRT:4:1:zeroToClear\n"
    "CR2@0x8: ADON:0:1 CONT:1:1 DMA:8:1 SWSTART:30:1\nHIGH@0x24: V:0:12\nLOW@0x28: V:0:12\n"
    "SQ_0@0x30: SQ:0:5\nSQ_1@0x34: SQ:0:5\nSQ_2@0x38: SQ:0:5\nSQ_3@0x3c: SQ:0:5\nDATA@0x4c: DATA:0:16:r",
    overlay="fields: {'C.CR2.[ACD]*': {plain: true}, 'C.CR2.SWSTART': {plain: true, back: '0'}, 'C.DATA.*': {rse: [self]}}",
)

FLASH = Case(
    5,
    "flash with keys and polls",
    """bfGroup Cr { bit PG; bit SER; uint4 SNB; bit STRT; bit LOCK; }; bfGroup Sr { bit EOP; bit WRPERR; bit BSY; };
bfGroup P { uint32 KEYR; bfGroup Sr SR; bfGroup Cr CR; };
"""
    + DEVICE
    + """static void wait_ready(void) { while (p->SR.BSY) ; }
static int failed(void)
{
    bfGroup Sr s = p->SR;
    return s.WRPERR;
}
void flash_unlock(void)
{
    if (p->CR.LOCK) { p->KEYR = 0x45670123u; p->KEYR = 0xCDEF89ABu; }
}
int flash_erase(unsigned first, unsigned last)
{
    int wrong = 0;
    flash_unlock();
    wait_ready();
    for (unsigned s = first; s <= last && !wrong; s++) {
        p->CR.SER = 1;
        p->CR.SNB = s;
        p->CR.STRT = 1;
        wait_ready();
        p->SR.EOP = 1;
        wrong = failed();
        p->CR.SER = 0;
    }
    p->CR.SNB = 0;
    p->CR.LOCK = 1;
    return wrong;
}
int flash_program(volatile unsigned *to, const unsigned *from, unsigned words)
{
    flash_unlock();
    wait_ready();
    p->CR.PG = 1;
    for (unsigned i = 0; i < words; i++) {
        to[i] = from[i];
        wait_ready();
        if (p->SR.WRPERR) { p->SR.WRPERR = 1; p->CR.PG = 0; p->CR.LOCK = 1; return -1; }
    }
    p->CR.PG = 0;
    p->CR.LOCK = 1;
    return 0;
}
""",
    registers="KEYR@0x4: V:0:32:w\nSR@0xc: EOP:0:1:oneToClear WRPERR:4:1:oneToClear BSY:16:1:r\n"
    "CR@0x10: PG:0:1 SER:1:1 SNB:3:4 STRT:16:1 LOCK:31:1",
    overlay="fields: {'C.CR.[PS]*': {plain: true}, 'C.CR.STRT': {plain: true, back: '0'}, 'C.CR.LOCK': {volatile: true, back: '0'}}",
)

TIMER = Case(
    6,
    "timer with capture and a long count",
    """bfGroup Cr { bit CEN; bit UDIS; bit OPM; bit DIR; }; bfGroup Sr { bit UIF; bit CC1IF; };
bfGroup P { bfGroup Cr CR1; bit UIE; bit CC1IE; bfGroup Sr SR; bit UG; uint16 CNT; uint16 PSC; uint16 ARR; uint16 CCR[2]; };
"""
    + DEVICE
    + """static volatile unsigned long long ticks;
static unsigned last, period;
void timer_open(unsigned hz, unsigned rate)
{
    unsigned divider = 1, reload = hz / rate;
    while (reload > 0x10000) { divider *= 2; reload /= 2; }
    p->CR1.CEN = 0;
    p->PSC = divider - 1;
    p->ARR = reload - 1;
    p->UG = 1;
    p->SR.UIF = 0;
    p->UIE = 1;
    p->CR1.CEN = 1;
}
bf_interrupt void timer_isr(void)
{
    if (p->SR.UIF) { p->SR.UIF = 0; ticks++; }
    if (p->SR.CC1IF) { unsigned now = p->CCR[0]; period = (now - last) & 0xFFFF; last = now; }
}
unsigned long long timer_now(void)
{
    unsigned long long high; unsigned low;
    do { high = ticks; low = p->CNT; } while (high != ticks);
    return high << 16 | low;
}
void timer_delay(unsigned n)
{
    unsigned start = p->CNT;
    while (((p->CNT - start) & 0xFFFF) < n) ;
}
void timer_duty(int channel, unsigned percent)
{
    if (channel < 0 || channel > 1) return;
    p->CCR[channel] = p->ARR * percent / 100;
}
""",
    registers="CR1@0x0: CEN:0:1 UDIS:1:1 OPM:3:1 DIR:4:1\nDIER@0xc: UIE:0:1 CC1IE:1:1\nSR@0x10: UIF:0:1:zeroToClear CC1IF:1:1:zeroToClear\n"
    "EGR@0x14: UG:0:1:w\nCNT@0x24: V:0:16\nPSC@0x28: V:0:16\nARR@0x2c: V:0:16\nCCR_0@0x34: CCR:0:16\nCCR_1@0x38: CCR:0:16",
    overlay="fields: {'C.CR1.*': {plain: true}, 'C.DIER.*': {plain: true}}",
)

WATCHDOG = Case(
    7,
    "watchdogs",
    """bfGroup Sr { bit PVU; bit RVU; }; bfGroup W { uint7 T; bit WDGA; };
bfGroup P { uint16 wse(self) KR; uint3 PR; uint12 RLR; bfGroup Sr SR; bfGroup W WCR; };
"""
    + DEVICE
    + """int watchdog_open(unsigned milliseconds)
{
    unsigned scale = 0, reload = milliseconds * 32 / 4;
    while (reload > 0xFFF && scale < 6) { scale++; reload >>= 1; }
    if (reload > 0xFFF) return -1;
    p->KR = 0x5555;
    p->PR = scale;
    p->RLR = reload;
    while (p->SR.PVU || p->SR.RVU) ;
    p->KR = 0xAAAA;
    p->KR = 0xCCCC;
    return 0;
}
void watchdog_feed(void) { p->KR = 0xAAAA; }
int watchdog_try(unsigned n) { while (n) { if (!p->SR.RVU) { p->KR = 0xAAAA; return 1; } --n; } return 0; }
void window_feed(unsigned count) { p->WCR = (bfGroup W){ .WDGA = 1, .T = count | 0x40 }; }
""",
)

GPIO = Case(
    8,
    "GPIO with modes and alternate functions",
    """bfGroup P { uint2 MODE[16]; bit OT[16]; uint2 PUPD[16]; bit ro IDR[16]; bit ODR[16]; uint4 AF[16]; };
"""
    + DEVICE
    + """enum mode { INPUT, OUTPUT, ALTERNATE, ANALOG };
void pin_mode(unsigned pin, enum mode mode) { if (pin < 16) p->MODE[pin] = mode; }
void pin_alternate(unsigned pin, unsigned function)
{
    if (pin > 15) return;
    p->AF[pin] = function;
    p->MODE[pin] = ALTERNATE;
}
void pin_set(unsigned pin, int on) { if (pin < 16) p->ODR[pin] = on; }
int pin_get(unsigned pin) { return pin < 16 ? p->IDR[pin] : -1; }
void pin_toggle(unsigned pin) { if (pin < 16) p->ODR[pin] = !p->ODR[pin]; }
void leds(void)
{
    p->MODE[5] = OUTPUT; p->MODE[6] = OUTPUT; p->MODE[7] = OUTPUT;
    p->ODR[5] = 1; p->ODR[6] = 0; p->ODR[7] = 1;
    p->OT[5] = 0; p->PUPD[5] = 1;
}
unsigned nibble(void)
{
    unsigned n = 0;
    for (unsigned i = 0; i < 4; i++) n |= p->IDR[i] << i;
    return n;
}
void walk(unsigned turns)
{
    for (unsigned t = 0; t < turns; t++)
        for (unsigned i = 8; i < 12; i++) { p->ODR[i] = 1; for (volatile int d = 0; d < 10; d++) ; p->ODR[i] = 0; }
}
""",
)

USB = Case(
    9,
    "USB endpoints that toggle",
    """bfGroup Ep { uint4 EA; uint2 STAT_TX; bit DTOG_TX; bit CTR_TX; uint2 EP_TYPE; uint2 STAT_RX; bit DTOG_RX; bit CTR_RX; };
bfGroup P { bfGroup Ep EP0R; bfGroup Ep EP1R; };
"""
    + DEVICE
    + """enum { DISABLED, STALL, NAK, VALID };
static volatile int sent, received;
void usb_status(unsigned wanted)
{
    bfGroup Ep e = p->EP0R;
    e.STAT_RX = e.STAT_RX ^ wanted;
    e.STAT_TX = 0; e.DTOG_TX = 0; e.DTOG_RX = 0; e.CTR_RX = 1; e.CTR_TX = 1;
    p->EP0R = e;
}
bf_interrupt void usb_isr(void)
{
    bfGroup Ep e = p->EP0R;
    if (e.CTR_RX) { p->EP0R.CTR_RX = 0; received++; }
    if (e.CTR_TX) { p->EP0R.CTR_TX = 0; sent++; }
}
int usb_busy(int n) { int i; for (i = 0; i < n; i++) if (p->EP1R.STAT_TX != VALID) break; return i < n; }
""",
    registers="".join(
        f"EP{i}R@{4 * i}: EA:0:4 STAT_TX:4:2:oneToToggle DTOG_TX:6:1:oneToToggle CTR_TX:7:1:zeroToClear EP_TYPE:9:2 "
        "STAT_RX:12:2:oneToToggle DTOG_RX:14:1:oneToToggle CTR_RX:15:1:zeroToClear\n"
        for i in (0, 1)
    ),
    overlay="fields: {'C.EP*R.E*': {plain: true}}",
)

DMA = Case(
    10,
    "DMA channels",
    """bfGroup Ch { bit EN; bit TCIE; bit MINC; uint2 SIZE; uint16 COUNT; uint32 FROM; uint32 TO; };
bfGroup P { uint8 w1c FLAGS; bfGroup Ch ch[4]; };
"""
    + DEVICE
    + """static void (*done[4])(int);
int dma_start(int n, const void *from, void *to, unsigned count, void (*f)(int))
{
    if (n < 0 || n > 3) return -1;
    bfGroup Ch *c = &p->ch[n];
    c->EN = 0;
    done[n] = f;
    c->FROM = (__UINTPTR_TYPE__)from;
    c->TO = (__UINTPTR_TYPE__)to;
    c->COUNT = count;
    c->SIZE = 2; c->MINC = 1; c->TCIE = 1;
    c->EN = 1;
    return 0;
}
void dma_stop(void) { for (int i = 0; i < 4; i++) p->ch[i].EN = 0; p->FLAGS = 0xFF; }
bf_interrupt void dma_isr(void)
{
    unsigned flags = p->FLAGS;
    p->FLAGS = flags;
    for (int i = 0; i < 4; i++)
        if (flags >> i & 1 && done[i]) done[i](i);
}
unsigned dma_left(const bfGroup Ch *c) { return c->COUNT; }
""",
)

RTC = Case(
    11,
    "RTC in BCD",
    """bfGroup T { uint4 SU; uint3 ST; uint4 MU; uint3 MT; uint4 HU; uint2 HT; };
bfGroup P { bfGroup T TR; bit INIT; bit INITF; bit RSF; uint8 WPR; };
"""
    + DEVICE
    + """struct time { unsigned char h, m, s; };
static void unlock(void) { p->WPR = 0xCA; p->WPR = 0x53; }
int rtc_set(const struct time *t)
{
    unlock();
    p->INIT = 1;
    for (int i = 0; !p->INITF; i++) if (i > 10000) { p->WPR = 0xFF; return -1; }
    p->TR = (bfGroup T){ .SU = t->s % 10, .ST = t->s / 10, .MU = t->m % 10, .MT = t->m / 10, .HU = t->h % 10, .HT = t->h / 10 };
    p->INIT = 0;
    p->WPR = 0xFF;
    return 0;
}
void rtc_get(struct time *t)
{
    p->RSF = 0;
    while (!p->RSF) ;
    bfGroup T r = p->TR;
    t->s = r.ST * 10 + r.SU; t->m = r.MT * 10 + r.MU; t->h = r.HT * 10 + r.HU;
}
""",
    registers="TR@0x0: SU:0:4 ST:4:3 MU:8:4 MT:12:3 HU:16:4 HT:20:2\nISR@0xc: RSF:5:1:zeroToClear INITF:6:1:r INIT:7:1\nWPR@0x24: WPR:0:8:w",
    overlay="fields: {'C.ISR.INIT': {plain: true}, 'C.WPR.*': {wse: [self]}}",
)

CAN = Case(
    12,
    "CAN mailboxes",
    """bfGroup Mb { bit TXRQ; bit RTR; bit IDE; uint11 ID; uint4 DLC; uint8 DATA[8]; }; bfGroup Rf { uint2 FMP; bit w1c FULL; bit w1c FOVR; bit w1s RFOM; };
bfGroup P { bit INRQ; bit ro INAK; bfGroup Mb mb[3]; bfGroup Rf RF; uint11 RID; uint4 RLEN; uint8 RDATA[8]; };
"""
    + DEVICE
    + """int can_open(void)
{
    int tries = 0;
    p->INRQ = 1;
    while (!p->INAK) if (++tries == 100) return -1;
    p->INRQ = 0;
    return tries;
}
int can_send(unsigned id, const unsigned char *data, unsigned n)
{
    for (int m = 0; m < 3; m++) {
        bfGroup Mb *b = &p->mb[m];
        if (b->TXRQ) continue;
        b->ID = id; b->IDE = 0; b->RTR = 0; b->DLC = n;
        for (unsigned i = 0; i < n && i < 8; i++) b->DATA[i] = data[i];
        b->TXRQ = 1;
        return m;
    }
    return -1;
}
int can_receive(unsigned *id, unsigned char *data)
{
    if (!p->RF.FMP) return -1;
    *id = p->RID;
    int n = p->RLEN;
    for (int i = 0; i < n && i < 8; i++) data[i] = p->RDATA[i];
    p->RF.RFOM = 1;
    return n;
}
""",
)

CRC = Case(
    13,
    "CRC and random numbers",
    """bfGroup P { uint32 wse(P::Crc) DR; uint32 ro Crc; bit w1s RESET; bit RNGEN; bit rc SEIS; bit ro DRDY; uint32 rse(self) ro RND; };
"""
    + DEVICE
    + """unsigned crc(const unsigned *data, unsigned n)
{
    p->RESET = 1;
    for (; n; n--) p->DR = *data++;
    return p->Crc;
}
unsigned crc_bytes(const unsigned char *data, int n)
{
    unsigned word = 0; int i = 0;
    p->RESET = 1;
again:
    if (i < n) {
        word = word << 8 | data[i++];
        if (!(i & 3)) p->DR = word;
        goto again;
    }
    return p->Crc ^ word;
}
int random_word(unsigned *out)
{
    p->RNGEN = 1;
    while (!p->DRDY) if (p->SEIS) { p->RNGEN = 0; return -1; }
    *out = p->RND;
    return 0;
}
unsigned random_below(unsigned n)
{
    unsigned x;
    do { while (random_word(&x)) ; } while (x >= 0xFFFFFFFFu / n * n);
    return x % n;
}
""",
)

LCD = Case(
    14,
    "display with commands and a frame buffer",
    """bfGroup P { bit RS; bit RW; bit E; uint8 DATA; bit ro BUSY; uint7 CONTRAST; };
"""
    + DEVICE
    + """void delay(int us);
static unsigned char frame[2][16];
static void byte(int rs, unsigned c)
{
    int n = 0;
    while (p->BUSY && n < 500) n++;
    p->RS = rs;
    p->DATA = c;
    p->E = 1;
    delay(1);
    p->E = 0;
}
void lcd_open(void)
{
    static const unsigned char init[] = { 0x38, 0x0C, 0x01, 0x06 };
    delay(15000);
    for (unsigned i = 0; i < sizeof init; i++) byte(0, init[i]);
    p->CONTRAST = 64;
}
void lcd_put(int row, int column, char c)
{
    if (row < 0 || row > 1 || column < 0 || column > 15) return;
    if (frame[row][column] == (unsigned char)c) return;
    frame[row][column] = c;
    byte(0, 0x80 | row << 6 | column);
    byte(1, c);
}
int lcd_number(int row, unsigned n)
{
    char text[11]; int at = 10;
    text[at] = 0;
    do { text[--at] = '0' + n % 10; n /= 10; } while (n && at);
    for (int i = at; text[i]; i++) lcd_put(row, i - at, text[i]);
    return 10 - at;
}
""",
)

PERIPHERALS = (UART, SPI, I2C, ADC, FLASH, TIMER, WATCHDOG, GPIO, USB, DMA, RTC, CAN, CRC, LCD)
