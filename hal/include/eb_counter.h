/* SPDX-License-Identifier: 0BSD
 * A counter of executed instructions, and one of cycles.
 *
 * RISC-V: `minstret`, exact. Arm M profile: SysTick at the processor's clock; under QEMU with `-icount shift=0` one
 * instruction takes one nanosecond of virtual time, so a tick is 1e9 / clock instructions (40 on the MPS2 boards).
 * On silicon SysTick counts cycles instead. Build machine: there is none, the count stays 0.
 */
#ifndef EB_COUNTER_H
#define EB_COUNTER_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts counting at zero. On Arm this takes the SysTick timer and its interrupt. */
void eb_counter_start(void);

/* Ticks since the start; 64 bits, so it does not wrap. */
uint64_t eb_counter_read(void);

/* The core's cycles, from any origin. RISC-V: `mcycle`, which under QEMU counts instructions. Elsewhere 0. */
#if defined(__riscv)
uint64_t eb_cycles_read(void);
#else
static inline uint64_t eb_cycles_read(void)
{
    return 0;
}
#endif

/* Ends counting: no interrupt comes any more, and what is read afterwards means nothing. */
void eb_counter_stop(void);

#ifdef __cplusplus
}
#endif
#endif
