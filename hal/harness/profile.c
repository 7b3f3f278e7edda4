/* SPDX-License-Identifier: 0BSD
 * Runs a network in every clock configuration and writes the cycles of its steps, for `edgebuild calibrate --fit`.
 *
 * The model is compiled with layers.h, so eb_layer is called as each step begins; EB_ACCESS and EB_COMPUTE, around the
 * gathering of decoupled layers, are eb_profile_access and eb_profile_compute. harness_model.h (generated) is that of
 * harness.c, and defines
 *   STEPS               number of steps
 *   PROFILE_CONFIGS     list of X(name), the configurations of clock_config.h; not defined: clocks stay as they are
 *   PROFILE_SUPPLY_MS   0: a pin is high within each step; otherwise the pin is high for so long in each configuration,
 *                       while the network runs again and again and the supply's current can be recorded
 *   PROFILE_GPIO        address of the pin's port, and PROFILE_GPIO_ENABLE, _PORT, _PIN; not defined: there is no pin
 * The caches are on, as they are in use. Lines go to the file profile.csv of the debugger by semihosting, unless the
 * application has an eb_profile_write of its own.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "eb_semihost.h"
#include "harness_model.h"
#include "layers.h"
#ifdef PROFILE_CONFIGS
#include "clock_config.h"
#endif

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define DEMCR REGISTER(0xE000EDFCu)
#define DWT_CTRL REGISTER(0xE0001000u)
#define DWT_CYCCNT REGISTER(0xE0001004u)
#define DWT_LAR REGISTER(0xE0001FB0u)

enum { EXECUTE, ACCESS, PHASES };

#define MOST STEPS

typedef struct {
    uint32_t line;
    uint32_t cycles[PHASES];
} mark;

static mark marks[MOST];
static uint32_t seen;
static uint32_t phase;
static uint32_t last; /* the counter when the phase began */
static uint32_t overhead;
static int wrong;

void eb_profile_write(const char *line);
void eb_profile_access(void);
void eb_profile_compute(void);

static void counter_on(void)
{
    DEMCR |= 1u << 24;
    DWT_LAR = 0xC5ACCE55u;
    DWT_CYCCNT = 0u;
    DWT_CTRL |= 1u;
}

static void caches_on(void)
{
#if __ARM_ARCH >= 7
    const uint32_t levels = REGISTER(0xE000ED78u); /* CLIDR */
    if ((levels & 1u) != 0u) {
        REGISTER(0xE000EF50u) = 0u; /* ICIALLU */
    }
    if ((levels & 2u) != 0u) {
        REGISTER(0xE000ED84u) = 0u; /* CSSELR: data, first level */
        __asm__ volatile("dsb" ::: "memory");
        const uint32_t size = REGISTER(0xE000ED80u); /* CCSIDR */
        for (uint32_t set = 0; set <= (size >> 13 & 0x7FFFu); ++set) {
            for (uint32_t way = 0; way < 4u; ++way) {
                REGISTER(0xE000EF60u) = set << 5 | way << 30; /* DCISW */
            }
        }
    }
    __asm__ volatile("dsb\n\tisb" ::: "memory");
    REGISTER(0xE000ED14u) |= (levels & 1u) << 17 | (levels & 2u) << 15; /* CCR: IC, DC */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
}

static void pin_on(void)
{
#ifdef PROFILE_GPIO
    REGISTER(PROFILE_GPIO_ENABLE) |= 1u << PROFILE_GPIO_PORT;
    (void)REGISTER(PROFILE_GPIO_ENABLE);
    REGISTER(PROFILE_GPIO) = (REGISTER(PROFILE_GPIO) & ~(3u << 2 * PROFILE_GPIO_PIN)) | 1u << 2 * PROFILE_GPIO_PIN;
#endif
}

static void pin(uint32_t level)
{
#ifdef PROFILE_GPIO
    REGISTER(PROFILE_GPIO + 0x18u) = 1u << (PROFILE_GPIO_PIN + (level != 0u ? 0 : 16)); /* BSRR */
#else
    (void)level;
#endif
}

static void change_phase(uint32_t to)
{
    const uint32_t now = DWT_CYCCNT;
    if (seen != 0u && seen <= MOST) {
        marks[seen - 1u].cycles[phase] += now - last - overhead;
    }
    phase = to;
    last = DWT_CYCCNT;
}

void eb_profile_access(void)
{
    change_phase(ACCESS);
}

void eb_profile_compute(void)
{
    change_phase(EXECUTE);
}

static void ends(void)
{
    change_phase(EXECUTE);
    if (PROFILE_SUPPLY_MS == 0 && seen != 0u) {
        pin(0u);
    }
}

__attribute__((noinline)) void eb_layer(uint32_t line)
{
    ends();
    if (seen < MOST) {
        marks[seen].line = line;
    }
    ++seen;
    if (PROFILE_SUPPLY_MS == 0) {
        pin(1u);
    }
    last = DWT_CYCCNT;
}

static void begin(void)
{
    memset(marks, 0, sizeof marks);
    seen = 0;
    phase = EXECUTE;
}

static void invoke(void)
{
    begin();
    MODEL_INVOKE();
    ends();
}

/* What the counting itself takes. */
static void weigh(void)
{
    overhead = 0;
    begin();
    eb_layer(1);
    ends();
    overhead = marks[0].cycles[EXECUTE];
}

static char *text(char *to, const char *from)
{
    while (*from != '\0') {
        *to++ = *from++;
    }
    return to;
}

static char *number(char *to, uint32_t value)
{
    char digits[10];
    uint32_t count = 0;
    do {
        digits[count++] = (char)('0' + value % 10u);
        value /= 10u;
    } while (value != 0u);
    while (count != 0u) {
        *to++ = digits[--count];
    }
    return to;
}

static void write_rows(const char *config)
{
    static const char *const names[PHASES] = {"execute", "access"};
    for (uint32_t i = 0; i < seen && i < MOST; ++i) {
        const int decoupled = marks[i].cycles[ACCESS] != 0u;
        for (uint32_t p = 0; p <= (uint32_t)decoupled; ++p) {
            char line[80];
            char *to = text(text(text(line, "cycles,"), config), ",");
            to = text(number(to, i), ",");
            to = text(text(to, decoupled ? names[p] : ""), ",");
            to = text(number(to, marks[i].cycles[p]), "\n");
            *to = '\0';
            eb_profile_write(line);
        }
    }
    wrong |= seen != STEPS;
}

#ifdef PROFILE_CONFIGS
/* Waits, or runs the network, for a time; at most 2^32 cycles. */
static void spend(uint32_t ms, int run)
{
    const uint32_t wait = eb_clock_hz() / 1000u * ms;
    const uint32_t start = DWT_CYCCNT;
    while (DWT_CYCCNT - start < wait) {
        if (run) {
            invoke();
        }
    }
}
#endif

static void profile(const char *config)
{
    weigh();
    invoke(); /* so that the caches hold what they hold when inferences follow each other */
    invoke();
    write_rows(config);
}

static int counter_runs(void)
{
    const uint32_t before = DWT_CYCCNT;
    for (volatile uint32_t i = 0; i < 100u; ++i) {
    }
    return DWT_CYCCNT != before;
}

static void fill_inputs(void)
{
    uint32_t state = 1;
#define X(function, bytes)                              \
    for (uint32_t i = 0; i < (bytes); ++i) {            \
        state = state * 1664525u + 1013904223u;         \
        ((uint8_t *)function())[i] = (uint8_t)(state >> 24); \
    }
    MODEL_INPUTS
#undef X
}

static int output = -1;

__attribute__((weak)) void eb_profile_write(const char *line)
{
    const size_t size = strlen(line);
    wrong |= eb_write(output, line, size) != size;
}

int main(void)
{
    output = eb_open("profile.csv", EB_WRITE);
    caches_on();
    counter_on();
    pin_on();
    fill_inputs();
    eb_profile_write("what,config,step,phase,value\n");
    if (!counter_runs()) {
        eb_profile_write("# no cycle counter: DWT CYCCNT stands still, as in a simulator; nothing was measured\n");
        invoke();
    } else {
#ifdef PROFILE_CONFIGS
#define X(name) {EB_CLOCK_##name, #name},
        static const struct {
            eb_clock_config config;
            const char *name;
        } configs[] = {PROFILE_CONFIGS};
#undef X
        eb_clock_init();
        for (size_t i = 0; i < sizeof configs / sizeof *configs; ++i) {
            eb_clock_switch(configs[i].config);
            profile(configs[i].name);
        }
        for (size_t i = 0; PROFILE_SUPPLY_MS != 0 && i < sizeof configs / sizeof *configs; ++i) {
            eb_clock_switch(configs[i].config);
            spend(PROFILE_SUPPLY_MS / 4u, 0);
            pin(1u);
            spend(PROFILE_SUPPLY_MS, 1);
            pin(0u);
        }
#else
        profile("");
#endif
    }
    if (wrong) {
        eb_profile_write("# the number of steps is not the report's: these figures are wrong\n");
    }
    eb_close(output);
    return wrong;
}
