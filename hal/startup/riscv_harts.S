/* SPDX-License-Identifier: 0BSD
 * Start-up of bare RISC-V firmware whose harts all begin here, in machine mode. Hart 0 sets up memory and runs main; the
 * others sleep until they are woken, and go to eb_hart(number) on stacks of their own (src/cores_harts.c).
 * Traps end in eb_fault(mcause, mepc).
 */
#include "eb_harts.h"
#include "riscv.inc"

    .section .vectors, "ax", %progbits
    .global _start
    .type _start, %function
_start:
    la      t0, trap
    csrw    mtvec, t0
    csrr    a0, mhartid
    bnez    a0, 5f
    la      sp, __stack_top
    run_main
5:  li      t0, 8               /* no stack before memory is set up: hart 0 wakes who is wanted afterwards */
    csrs    mie, t0
6:  wfi
    csrr    t1, mip
    and     t1, t1, t0
    beqz    t1, 6b
    la      sp, eb_hart_stacks  /* hart n takes the n-th stack, from its end downwards */
    li      t0, EB_HART_STACK
    mul     t0, t0, a0
    add     sp, sp, t0
    call    eb_hart
    .size _start, . - _start
