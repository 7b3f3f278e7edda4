/* SPDX-License-Identifier: 0BSD
 * Start-up of bare RISC-V firmware in machine mode: stack, memories, main; traps end in eb_fault(mcause, mepc).
 * Symbols that begin with __ come from link/firmware.ld.
 *
 * Hart 0 runs main. Others sleep until it calls them by a software interrupt, and then run eb_hart_main on the 4096
 * bytes of eb_hart_stack, if the program has these.
 */
    .section .vectors, "ax", %progbits
    .global _start
    .type _start, %function
_start:
    csrr    t0, mhartid
    bnez    t0, other
    la      sp, __stack_top
    la      t0, trap
    csrw    mtvec, t0
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

    .balign 4
    .type trap, %function
trap:
    csrr    a0, mcause
    csrr    a1, mepc
    la      sp, __stack_top     /* after an overflow there is no stack to report from */
    call    eb_fault
    .size trap, . - trap

    .text
    .weak eb_hart_main
    .weak eb_hart_stack
    .weak eb_exit
    .weak eb_fault
    .type eb_exit, %function
    .type eb_fault, %function
eb_exit:
eb_fault:
    j       eb_fault
