/* SPDX-License-Identifier: MIT-0
 * eb_link.h between two harts of RISC-V that share memory: device 0 is hart 0, device 1 is hart 1, both in one program.
 * A hart that waits sleeps (wfi) until the other one wakes it by the CLINT, or its time is over. Interrupts are not
 * taken; it is enough that they are pending.
 *
 * The program starts hart 1 in eb_hart_main(); see hal/startup/riscv.S.
 */
#include "eb_link.h"
#include "eb_ring.h"

#ifndef EB_CLINT
#define EB_CLINT 0x02000000u /* QEMU hw/riscv/virt.c, VIRT_CLINT */
#endif
#ifndef EB_MTIME_HZ
#define EB_MTIME_HZ 10000000u /* QEMU include/hw/intc/riscv_aclint.h */
#endif

#define WORD(address) (*(volatile uint32_t *)(uintptr_t)(address))
#define MSIP(hart) WORD(EB_CLINT + 4u * (hart))
#define MTIMECMP(hart) (EB_CLINT + 0x4000u + 8u * (hart))
#define MTIME (EB_CLINT + 0xBFF8u)

enum { SOFTWARE = 1 << 3, TIMER = 1 << 7 }; /* in mie */

static eb_ring to_hart[2]; /* written by the other one */

static uint32_t hart(void)
{
    uint32_t id;
    __asm__ volatile("csrr %0, mhartid" : "=r"(id));
    return id;
}

static uint64_t now(void)
{
    uint32_t low, high;
    do { /* once more if the low half wrapped in between */
        high = WORD(MTIME + 4u);
        low = WORD(MTIME);
    } while (high != WORD(MTIME + 4u));
    return (uint64_t)high << 32 | low;
}

static void wake(uint32_t other)
{
    EB_FENCE();
    MSIP(other) = 1u;
}

/* Sleeps until the other hart calls, or until a time. The caller looks again at what it waits for. */
static void sleep_until(uint64_t end)
{
    const uint32_t self = hart();
    WORD(MTIMECMP(self) + 4u) = 0xFFFFFFFFu; /* no wrong time in between */
    WORD(MTIMECMP(self)) = (uint32_t)end;
    WORD(MTIMECMP(self) + 4u) = (uint32_t)(end >> 32);
    __asm__ volatile("csrs mie, %0" : : "r"(SOFTWARE | TIMER));
    __asm__ volatile("wfi" : : : "memory");
}

/* The wait of a condition begins: a call that comes from now on is noticed. */
static void listen(void)
{
    MSIP(hart()) = 0u;
    EB_FENCE();
}

static uint64_t end_of(uint32_t timeout_us)
{
    return now() + (uint64_t)timeout_us * (EB_MTIME_HZ / 1000000u);
}

int eb_link_send(uint8_t to, const void *from, uint32_t bytes)
{
    const uint8_t *data = from;
    const uint32_t self = hart(), other = 1u - self;
    if (to != other && to != EB_LINK_ALL) {
        return EB_LINK_TIMEOUT;
    }
    for (uint64_t end = end_of(1000000u); bytes != 0u;) {
        listen();
        const uint32_t n = eb_ring_put(&to_hart[other], data, bytes);
        data += n;
        bytes -= n;
        if (n != 0u) {
            wake(other);
            end = end_of(1000000u); /* a second for each piece that goes on */
        } else if (now() >= end) {
            return EB_LINK_TIMEOUT;
        } else {
            sleep_until(end);
        }
    }
    return EB_OK;
}

int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us)
{
    uint8_t *data = to;
    const uint32_t self = hart(), other = 1u - self;
    if (from != other) {
        return EB_LINK_TIMEOUT;
    }
    const uint64_t end = end_of(timeout_us);
    while (bytes != 0u) {
        listen();
        const uint32_t n = eb_ring_take(&to_hart[self], data, bytes);
        data += n;
        bytes -= n;
        if (n != 0u) {
            wake(other);
        } else if (now() >= end) {
            return EB_LINK_TIMEOUT;
        } else {
            sleep_until(end);
        }
    }
    return EB_OK;
}

uint32_t eb_link_time_us(void)
{
    return (uint32_t)(now() / (EB_MTIME_HZ / 1000000u));
}
