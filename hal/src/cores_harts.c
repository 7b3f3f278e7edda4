/* SPDX-License-Identifier: MIT-0
 * eb_dma.h on RISC-V harts: hart 0 controls, EB_HART_WORKERS harts compute, and one more is the DMA unit, which copies
 * beside them. Work is handed over by software interrupts. They stay disabled in mstatus, so they wake from wfi and do
 * not trap. A hart that waits sleeps: in a simulator, harts that spin take the time of those that work.
 */
#include "eb_dma.h"
#include "eb_harts.h"

#include <string.h>

enum { QUEUE = 256, CHANNELS = 64 };

#define SOFTWARE 8u /* bit of mie and mip */
#define FENCE() __asm__ volatile("fence rw, rw" ::: "memory")

uint8_t eb_hart_stacks[EB_HART_DMA * EB_HART_STACK] __attribute__((aligned(16)));
__attribute__((noreturn)) void eb_hart(int hart);

static volatile uint32_t *interrupt(int hart)
{
    return (volatile uint32_t *)(uintptr_t)(EB_HART_CLINT + 4 * hart);
}

static void wake(int hart)
{
    __asm__ volatile("fence rw, ow" ::: "memory"); /* what was written before is seen by whoever wakes */
    *interrupt(hart) = 1;
}

/* Sleeps until somebody wakes this hart. What it waits for is looked at again afterwards. */
static void sleep(int hart)
{
    __asm__ volatile("csrs mie, %0\n\twfi" ::"r"(SOFTWARE) : "memory");
    *interrupt(hart) = 0;
    __asm__ volatile("fence iorw, iorw" ::: "memory");
}

/* ---- workers */

static void (*work)(int core, const void *data);
static const void *work_data;
static volatile uint32_t wanted, done[EB_HART_WORKERS]; /* rounds */

__attribute__((noreturn)) static void compute(int hart)
{
    const int core = hart - 1;
    for (;;) {
        const uint32_t round = wanted;
        if (round == done[core]) {
            sleep(hart);
            continue;
        }
        FENCE();
        work(core, work_data);
        FENCE();
        done[core] = round;
        wake(0);
    }
}

void eb_cores_run(void (*function)(int core, const void *data), const void *data)
{
    work = function;
    work_data = data;
    FENCE();
    const uint32_t round = wanted + 1u;
    wanted = round;
    for (int core = 0; core < EB_HART_WORKERS; ++core) {
        wake(core + 1);
    }
    for (int core = 0; core < EB_HART_WORKERS; ++core) {
        while (done[core] != round) {
            sleep(0);
        }
    }
    FENCE();
}

/* ---- the DMA unit */

typedef struct {
    const eb_copy *copy;
    int32_t channel;
} request;

static request queue[QUEUE];
static volatile uint32_t asked, taken;                /* numbers of requests; taken: they are done */
static uint32_t last[CHANNELS];                       /* request of each channel */
static uint64_t copies, bytes, pieces;

static void copy_all(const eb_copy *copy)
{
    for (uint32_t plane = 0; plane < copy->planes; ++plane) {
        uint8_t *to = (uint8_t *)copy->to + (int32_t)plane * copy->to_plane;
        const uint8_t *from = (const uint8_t *)copy->from + (int32_t)plane * copy->from_plane;
        for (uint32_t row = 0; row < copy->rows; ++row) {
            memcpy(to, from, copy->bytes);
            to += copy->to_row;
            from += copy->from_row;
        }
    }
    copies += 1;
    bytes += (uint64_t)copy->bytes * copy->rows * copy->planes;
    pieces += copy->rows * copy->planes;
}

__attribute__((noreturn)) static void move(void)
{
    for (;;) {
        if (taken == asked) {
            sleep(EB_HART_DMA);
            continue;
        }
        FENCE();
        copy_all(queue[taken % QUEUE].copy);
        FENCE();
        taken = taken + 1u;
        wake(0);
    }
}

void eb_dma_start(int32_t channel, const eb_copy *copy)
{
    while (asked - taken == QUEUE) {
        sleep(0);
    }
    queue[asked % QUEUE] = (request){copy, channel};
    FENCE();
    asked = asked + 1u;
    last[channel] = asked;
    wake(EB_HART_DMA);
}

void eb_dma_wait(int32_t channel)
{
    while ((int32_t)(taken - last[channel]) < 0) {
        sleep(0);
    }
    FENCE();
}

int eb_dma_counted(uint64_t counts[3])
{
    counts[0] = copies;
    counts[1] = bytes;
    counts[2] = pieces;
    return 1;
}

void eb_hart(int hart)
{
    if (hart == EB_HART_DMA) {
        move();
    }
    compute(hart);
}
