/* SPDX-License-Identifier: 0BSD
 * Start-up of bare RISC-V firmware whose harts all begin here, in machine mode. Hart 0 sets up memory and runs main; the
 * others sleep until they are woken, and go to eb_hart(number) on stacks of their own (src/cores_harts.c).
 * Traps end in eb_fault(mcause, mepc). Symbols that begin with __ come from link/firmware.ld.
 */
#include "eb_harts.h"

    .section .vectors, "ax", %progbits
    .global _start
    .type _start, %function
_start:
    la      t0, trap
    csrw    mtvec, t0
    csrr    a0, mhartid
    bnez    a0, 5f
    la      sp, __stack_top
    la      a0, __data_load
    la      a1, __data_start
    la      a2, __data_end
    beq     a1, a2, 2f
1:  lw      t0, 0(a0)
    sw      t0, 0(a1)
    addi    a0, a0, 4
    addi    a1, a1, 4
    bne     a1, a2, 1b
2:  la      a1, __bss_start
    la      a2, __bss_end
    beq     a1, a2, 4f
3:  sw      zero, 0(a1)
    addi    a1, a1, 4
    bne     a1, a2, 3b
4:  call    main
    call    eb_exit
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

    .balign 4
    .type trap, %function
trap:
    csrr    a0, mcause
    csrr    a1, mepc
    la      sp, __stack_top     /* after an overflow there is no stack to report from */
    call    eb_fault
    .size trap, . - trap

    .text
    .weak eb_exit
    .weak eb_fault
    .type eb_exit, %function
    .type eb_fault, %function
eb_exit:
eb_fault:
    j       eb_fault
