/* SPDX-License-Identifier: 0BSD
 * Start-up of bare RISC-V firmware in machine mode: stack, memories, main; traps end in eb_fault(mcause, mepc).
 *
 * Hart 0 runs main. Others sleep until it calls them by a software interrupt, and then run eb_hart_main on the 4096
 * bytes of eb_hart_stack, if the program has these.
 */
#include "riscv.inc"

    .section .vectors, "ax", %progbits
    .global _start
    .type _start, %function
_start:
    csrr    t0, mhartid
    bnez    t0, other
    la      sp, __stack_top
    la      t0, trap
    csrw    mtvec, t0
#ifdef __riscv_flen
    li      t0, 0x2000          /* mstatus.FS: the floating-point unit is on */
    csrs    mstatus, t0
#endif
    run_main
other:
    li      t0, 8               /* machine software interrupt, in mie and mip */
    csrw    mie, t0
5:  wfi
    csrr    t1, mip
    and     t1, t1, t0
    beqz    t1, 5b
    la      sp, eb_hart_stack
    li      t0, 4096
    add     sp, sp, t0
    la      t0, trap
    csrw    mtvec, t0
    call    eb_hart_main
6:  wfi
    j       6b
    .size _start, . - _start

    .weak eb_hart_main
    .weak eb_hart_stack
