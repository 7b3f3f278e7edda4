/* SPDX-License-Identifier: MIT-0
 * eb_dma.h for the Arm PrimeCell PL081 (technical reference manual DDI 0218, chapter 3). Both channels copy from memory to
 * memory. A copy of many pieces waits for all but the last of them; that one runs on.
 */
#include "eb_dma.h"

#ifndef EB_PL081_BASE
#define EB_PL081_BASE 0x50110000u /* AN521: DMA0, secure */
#endif

enum { CHANNELS = 2, LARGEST = 4095 }; /* items of a transfer */

#define REGISTER(offset) (*(volatile uint32_t *)(EB_PL081_BASE + (offset)))
#define CONFIGURATION REGISTER(0x030u)
#define CHANNEL(n, offset) REGISTER(0x100u + 0x20u * (uint32_t)(n) + (offset))
#define SOURCE 0x00u
#define DESTINATION 0x04u
#define NEXT 0x08u
#define CONTROL 0x0Cu
#define RUN 0x10u

#define ENABLED 1u
#define ACTIVE (1u << 17)
#define BOTH_ADVANCE (3u << 26)
#define WORDS (2u << 18 | 2u << 21)

static void finish(int32_t channel)
{
    while (CHANNEL(channel, RUN) & (ENABLED | ACTIVE)) {
    }
    __asm__ volatile("dsb" ::: "memory");
}

static void piece(int32_t channel, uintptr_t to, uintptr_t from, uint32_t bytes)
{
    const uint32_t words = ((to | from | bytes) & 3u) == 0;
    while (bytes) {
        const uint32_t items = words ? bytes / 4u : bytes, now = items < LARGEST ? items : LARGEST;
        finish(channel);
        CHANNEL(channel, SOURCE) = (uint32_t)from;
        CHANNEL(channel, DESTINATION) = (uint32_t)to;
        CHANNEL(channel, NEXT) = 0;
        CHANNEL(channel, CONTROL) = BOTH_ADVANCE | (words ? WORDS : 0u) | now;
        CHANNEL(channel, RUN) = ENABLED;
        const uint32_t done = words ? now * 4u : now;
        to += done;
        from += done;
        bytes -= done;
    }
}

void eb_dma_start(int32_t channel, const eb_copy *copy)
{
    const int32_t mine = channel % CHANNELS;
    __asm__ volatile("dsb" ::: "memory"); /* what the core wrote is there to be copied */
    CONFIGURATION = ENABLED;
    for (uint32_t plane = 0; plane < copy->planes; ++plane) {
        for (uint32_t row = 0; row < copy->rows; ++row) {
            const int32_t to = (int32_t)plane * copy->to_plane + (int32_t)row * copy->to_row;
            const int32_t from = (int32_t)plane * copy->from_plane + (int32_t)row * copy->from_row;
            piece(mine, (uintptr_t)copy->to + (uintptr_t)to, (uintptr_t)copy->from + (uintptr_t)from, copy->bytes);
        }
    }
}

void eb_dma_wait(int32_t channel)
{
    finish(channel % CHANNELS);
}
