/* SPDX-License-Identifier: 0BSD
 * Work at the fastest clock, wait at the highest clock of the lowest voltage.
 */
#include "clock_config.h"

/* Set by the application's interrupts. */
volatile uint32_t work_is_waiting;
volatile eb_clock_fault last_fault;
volatile uint32_t checksum;

/* Replaces the weak function of clock_config.c: SYSCLK comes from the HSE or the HSI now, and the program goes on. */
void eb_clock_error(eb_clock_fault fault)
{
    last_fault = fault;
}

static void work(void)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < eb_clock_hz() / 1000u; ++i) {
        sum = sum * 31u + i;
    }
    checksum = sum;
}

int main(void)
{
    eb_clock_init();
    for (;;) {
        work_is_waiting = 0;
        eb_clock_switch(EB_CLOCK_216MHZ);
        work();
        eb_clock_switch(EB_CLOCK_144MHZ);
        while (work_is_waiting == 0u) {
        }
    }
}
