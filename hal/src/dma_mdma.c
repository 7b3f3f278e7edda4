/* SPDX-License-Identifier: MIT-0
 * eb_dma.h for the MDMA of STM32H7 (reference manual RM0433, chapter 14). A channel runs by itself through blocks that
 * repeat, and through a list of such blocks. A copy that needs a longer list waits for all but its end.
 *
 * The MDMA reaches the tightly coupled memories by a bus of their own, all others by AXI. It reads lists by AXI only: they
 * lie in the section .bss.edgebuild.lists, which belongs into AXI SRAM; where it is elsewhere, blocks go one by one.
 */
#include "eb_dma.h"

#ifndef EB_MDMA_BASE
#define EB_MDMA_BASE 0x52000000u
#endif
#ifndef EB_RCC_BASE
#define EB_RCC_BASE 0x58024400u
#endif

enum { CHANNELS = 16, LIST = 7, BLOCK = 65536, REPEATS = 4096, STEP = 65535, BUFFER = 128, BEATS = 16 };

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))
#define RCC_AHB3ENR REGISTER(EB_RCC_BASE + 0x0D4u)
#define MDMAEN 1u
#define CHANNEL(n, offset) REGISTER(EB_MDMA_BASE + 0x40u + 0x40u * (uint32_t)(n) + (offset))
#define ISR 0x00u
#define IFCR 0x04u
#define CR 0x0Cu
#define TCR 0x10u
#define DCCMVAC REGISTER(0xE000EF68u) /* cleans a line of the data cache */

#define TEIF 1u
#define CTCIF (1u << 1)
#define ALL_FLAGS 0x1Fu
#define EN 1u
#define SWRQ (1u << 16)
#define BRSUM (1u << 18)
#define BRDUM (1u << 19)
#define SBUS (1u << 16)
#define DBUS (1u << 17)
#define BOTH_ADVANCE (2u | 2u << 2)
#define BY_SOFTWARE (1u << 30)
#define WHOLE_LIST (3u << 28)

/* What the MDMA loads at the end of a block: the channel's registers from TCR on, in their order. */
typedef struct {
    uint32_t tcr, bndtr, sar, dar, brur, lar, tbr, reserved, mar, mdr;
    uint32_t line[6]; /* to the end of a line of the cache */
} block;

__attribute__((section(".bss.edgebuild.lists"), aligned(32))) static block lists[CHANNELS][LIST];
static uint32_t started; /* channels whose end nobody has seen */

/* Called on a transfer error, with the channel's error status (CxESR). The weak default waits for ever. */
void eb_dma_failed(int32_t channel, uint32_t error);

__attribute__((weak)) void eb_dma_failed(int32_t channel, uint32_t error)
{
    (void)channel;
    (void)error;
    for (;;) {
    }
}

static uint32_t tightly_coupled(uint32_t address)
{
    return address < 0x00010000u || (address >= 0x20000000u && address < 0x20020000u); /* ITCM, DTCM */
}

static uint32_t size_of(int32_t step)
{
    return (uint32_t)(step < 0 ? -step : step);
}

static void finish(int32_t channel)
{
    if (started >> channel & 1u) {
        while (!(CHANNEL(channel, ISR) & (CTCIF | TEIF))) {
        }
        if (CHANNEL(channel, ISR) & TEIF) {
            eb_dma_failed(channel, CHANNEL(channel, 0x08u));
        }
        started &= ~(1u << channel);
    }
    __asm__ volatile("dsb" ::: "memory"); /* no read of what was copied comes before */
}

/* Repeated blocks of `bytes`; after each, the addresses go on by the gaps. */
static block blocks(uint32_t to, uint32_t from, uint32_t bytes, uint32_t count, int32_t to_gap, int32_t from_gap)
{
    const uint32_t gaps = count > 1 ? size_of(to_gap) | size_of(from_gap) : 0u;
    const uint32_t both = to | from | bytes | gaps, to_tcm = tightly_coupled(to), from_tcm = tightly_coupled(from);
    uint32_t size = both & 1u ? 0u : both & 2u ? 1u : both & 4u ? 2u : 3u;
    if (size == 3u && (to_tcm || from_tcm)) {
        size = 2u; /* their bus has 32 bits */
    }
    const uint32_t length = bytes < BUFFER ? bytes : BUFFER;
    uint32_t burst = 0; /* of 2^burst beats: shorter than a buffer, and the block ends with one */
    while ((2u << burst) <= BEATS && (2u << burst << size) < length && bytes % (2u << burst << size) == 0) {
        burst += 1;
    }
    block b = {0};
    b.tcr = BY_SOFTWARE | WHOLE_LIST | (length - 1u) << 18 | burst << 15 | burst << 12 | size * 0x550u | BOTH_ADVANCE;
    b.bndtr = bytes | (count - 1u) << 20;
    b.sar = from;
    b.dar = to;
    b.tbr = (to_tcm ? DBUS : 0u) | (from_tcm ? SBUS : 0u);
    if (count > 1) {
        b.bndtr |= (to_gap < 0 ? BRDUM : 0u) | (from_gap < 0 ? BRSUM : 0u);
        b.brur = size_of(to_gap) << 16 | size_of(from_gap);
    }
    return b;
}

/* Runs a list; its first block goes into the registers. */
static void run(int32_t channel, const block *first, uint32_t more)
{
    block *const list = lists[channel];
    for (uint32_t i = 0; i < more; ++i) {
        list[i].lar = i + 1 < more ? (uint32_t)(uintptr_t)(list + i + 1) : 0u;
    }
    __asm__ volatile("dsb" ::: "memory");
    for (uint32_t i = 0; i < more * 2u; ++i) {
        DCCMVAC = (uint32_t)(uintptr_t)list + 32u * i; /* does nothing where the cache is off */
    }
    const uint32_t values[10] = {first->tcr, first->bndtr, first->sar, first->dar, first->brur,
                                 more ? (uint32_t)(uintptr_t)list : 0u, first->tbr, 0, 0, 0};
    CHANNEL(channel, IFCR) = ALL_FLAGS;
    for (uint32_t i = 0; i < 10u; ++i) {
        if (i != 7u) {
            CHANNEL(channel, TCR + 4u * i) = values[i];
        }
    }
    __asm__ volatile("dsb" ::: "memory"); /* what the core wrote is there to be copied */
    started |= 1u << channel;
    CHANNEL(channel, CR) = EN;
    CHANNEL(channel, CR) = EN | SWRQ;
}

/* A list that grows; full, it runs, and the next one waits for it. */
typedef struct {
    block first;
    uint32_t count;
    int32_t channel;
} pending;

static void flush(pending *p)
{
    if (p->count) {
        run(p->channel, &p->first, p->count - 1u);
        p->count = 0;
    }
}

static void append(pending *p, block b)
{
    const uint32_t most = tightly_coupled((uint32_t)(uintptr_t)lists) ? 1u : LIST + 1u;
    if (p->count == most) {
        flush(p);
    }
    if (p->count == 0) {
        finish(p->channel); /* its list is read until the end */
        p->first = b;
    } else {
        lists[p->channel][p->count - 1u] = b;
    }
    p->count += 1;
}

/* Rows of a plane, by repeated blocks where the gaps between rows are as small as the registers ask for. */
static void plane(pending *p, uint32_t to, uint32_t from, uint32_t bytes, uint32_t rows, int32_t to_row, int32_t from_row)
{
    const int32_t to_gap = to_row - (int32_t)bytes, from_gap = from_row - (int32_t)bytes;
    const uint32_t repeats = bytes <= BLOCK && size_of(to_gap) <= STEP && size_of(from_gap) <= STEP ? REPEATS : 1u;
    for (uint32_t row = 0; row < rows;) {
        const uint32_t count = rows - row < repeats ? rows - row : repeats;
        for (uint32_t done = 0; done < bytes; done += BLOCK) {
            const uint32_t now = bytes - done < BLOCK ? bytes - done : BLOCK;
            append(p, blocks(to + done, from + done, now, count, to_gap, from_gap));
        }
        row += count;
        to += count * (uint32_t)to_row;
        from += count * (uint32_t)from_row;
    }
}

void eb_dma_start(int32_t channel, const eb_copy *copy)
{
    pending p = {.channel = channel % CHANNELS};
    if (!(RCC_AHB3ENR & MDMAEN)) {
        RCC_AHB3ENR |= MDMAEN;
        (void)RCC_AHB3ENR; /* the clock needs two cycles */
    }
    const uint32_t to = (uint32_t)(uintptr_t)copy->to, from = (uint32_t)(uintptr_t)copy->from;
    if (copy->bytes == 0 || copy->rows == 0) {
        return;
    }
    if (copy->rows == 1) { /* planes of one row are rows */
        plane(&p, to, from, copy->bytes, copy->planes, copy->to_plane, copy->from_plane);
    } else {
        for (uint32_t i = 0; i < copy->planes; ++i) {
            plane(&p, to + i * (uint32_t)copy->to_plane, from + i * (uint32_t)copy->from_plane, copy->bytes, copy->rows,
                  copy->to_row, copy->from_row);
        }
    }
    flush(&p);
}

void eb_dma_wait(int32_t channel)
{
    finish(channel % CHANNELS);
}
