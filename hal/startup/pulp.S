/* SPDX-License-Identifier: 0BSD
 * Start-up of bare firmware on a PULP cluster, whose cores all begin here. Core 0 sets up memory and runs main. The others
 * wait for the event unit, in GAP8's encoding of its loads, and then call what core 0 hands out (src/cores_pulp.c). All
 * stacks lie in one memory: 1 KB for each of those, below the one of core 0. Traps end in eb_fault(mcause, mepc).
 */
#include "riscv.inc"

#define ELW(rd, offset, base) .insn i 0x03, 6, rd, base, offset /* sleeps until the event is there */

    .section .vectors, "ax", %progbits
    .global _start
    .type _start, %function
_start:
    la      t0, trap
    csrw    mtvec, t0
    csrr    s1, mhartid
    andi    s1, s1, 15          /* above: the number of the cluster */
    bnez    s1, 5f
    la      sp, __stack_top
    run_main
5:  la      sp, __stack_limit
    slli    t0, s1, 10
    add     sp, sp, t0
    li      s0, 0x00204000      /* the event unit, as each core sees its own part */
    li      t0, 0x50000         /* events: the barrier's, and the dispatcher's */
    sw      t0, 0x08(s0)
6:  ELW(t1, 0x80, s0)           /* the dispatcher: a function, then its data */
    ELW(a1, 0x80, s0)
    mv      a0, s1
    jalr    t1
    ELW(zero, 0x21C, s0)        /* the barrier: trigger, wait, clear */
    j       6b
    .size _start, . - _start
