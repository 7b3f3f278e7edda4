/* SPDX-License-Identifier: 0BSD */
#include "eb_counter.h"

#if defined(__riscv)

static uint64_t origin;

/* The halves of a counter are read one after the other: once more if the low one wrapped in between. */
#define READ(counter)                                            \
    uint32_t low, high, again;                                   \
    do {                                                         \
        __asm__ volatile("csrr %0, " counter "h" : "=r"(high));  \
        __asm__ volatile("csrr %0, " counter : "=r"(low));       \
        __asm__ volatile("csrr %0, " counter "h" : "=r"(again)); \
    } while (high != again);                                     \
    return (uint64_t)high << 32 | low

static uint64_t instret(void)
{
    READ("minstret");
}

uint64_t eb_cycles_read(void)
{
    READ("mcycle");
}

void eb_counter_start(void)
{
    origin = instret();
}

uint64_t eb_counter_read(void)
{
    return instret() - origin;
}

void eb_counter_stop(void)
{
}

#elif defined(__arm__)

#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)
#define RELOAD 0xFFFFFFu /* the timer has 24 bits and counts down */

static volatile uint32_t wraps;

void SysTick_Handler(void);
void SysTick_Handler(void)
{
    wraps = wraps + 1u;
}

void eb_counter_start(void)
{
    SYST_CSR = 0u;
    wraps = 0u;
    SYST_RVR = RELOAD;
    SYST_CVR = 0u;
    SYST_CSR = 7u; /* processor clock, interrupt, enable */
}

uint64_t eb_counter_read(void)
{
    uint32_t before, now;
    do {
        before = wraps;
        now = SYST_CVR;
    } while (before != wraps);
    const uint32_t since_wrap = now == 0u ? 0u : RELOAD + 1u - now; /* it wraps on reaching 0 and reloads a tick later */
    return (uint64_t)before * (RELOAD + 1u) + since_wrap;
}

void eb_counter_stop(void)
{
    SYST_CSR = 0u;
}

#else

void eb_counter_start(void)
{
}

uint64_t eb_counter_read(void)
{
    return 0;
}

void eb_counter_stop(void)
{
}

#endif
