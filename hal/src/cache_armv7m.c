/* SPDX-License-Identifier: MIT-0
 * The caches of eb_dma.h for Armv7-M: maintenance by address (DDI 0403, B3.2.1). Harmless while the data cache is off.
 */
#include "eb_dma.h"

enum { LINE = 32 };

#define DCIMVAC (*(volatile uint32_t *)0xE000EF5Cu)
#define DCCMVAC (*(volatile uint32_t *)0xE000EF68u)
#define BARRIER() __asm__ volatile("dsb\n\tisb" ::: "memory")

void eb_cache_clean(const void *from, uint32_t bytes)
{
    BARRIER();
    for (uintptr_t at = (uintptr_t)from / LINE * LINE; at < (uintptr_t)from + bytes; at += LINE) {
        DCCMVAC = (uint32_t)at;
    }
    BARRIER();
}

void eb_cache_invalidate(void *from, uint32_t bytes)
{
    BARRIER();
    for (uintptr_t at = (uintptr_t)from / LINE * LINE; at < (uintptr_t)from + bytes; at += LINE) {
        DCIMVAC = (uint32_t)at;
    }
    BARRIER();
}
