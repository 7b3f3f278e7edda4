/* SPDX-License-Identifier: 0BSD
 * Start-up of bare Arm M-profile firmware: vector table, reset, fault handlers.
 *
 * The table ends with SysTick; a program with peripheral interrupts brings its own start-up.
 * Symbols that begin with __ come from link/firmware.ld.
 */
#include <stdint.h>

#include "eb_firmware.h"

extern uint32_t __data_start[], __data_end[], __data_load[], __bss_start[], __bss_end[];
extern uint32_t __stack_limit[], __stack_top[];

#define SCB_VTOR (*(volatile uint32_t *)0xE000ED08u)
#define SCB_CPACR (*(volatile uint32_t *)0xE000ED88u)

void Reset_Handler(void);
void NMI_Handler(void);
void SVC_Handler(void);
void DebugMon_Handler(void);
void PendSV_Handler(void);
void SysTick_Handler(void);
void eb_unexpected(uint32_t exception, const uint32_t *frame);
void eb_no_handler(void);

typedef union {
    void (*handler)(void);
    uint32_t *stack;
} vector;

/* Whatever nobody handles. The stack pointer is reset first: after an overflow there is no stack to report from. */
__attribute__((naked)) void eb_no_handler(void)
{
    __asm__ volatile("mrs r0, ipsr\n\t"
                     "mrs r1, msp\n\t"
                     "ldr r2, =__stack_top\n\t"
                     "mov sp, r2\n\t"
                     "ldr r2, =eb_unexpected\n\t"
                     "bx  r2\n\t"
                     ".ltorg");
}

__attribute__((used)) void eb_unexpected(uint32_t exception, const uint32_t *frame)
{
    const uintptr_t at = (uintptr_t)frame;
    const int is_whole = at >= (uintptr_t)__stack_limit && at + 32u <= (uintptr_t)__stack_top;
    eb_fault(exception, is_whole ? frame[6] : 0u); /* the stacked program counter */
}

__attribute__((weak, noreturn)) void eb_fault(uint32_t cause, uint32_t pc)
{
    (void)cause;
    (void)pc;
    for (;;) {
    }
}

__attribute__((weak, noreturn)) void eb_exit(int status)
{
    (void)status;
    for (;;) {
    }
}

#define DEFAULTS_TO_UNEXPECTED __attribute__((weak, alias("eb_no_handler")))
DEFAULTS_TO_UNEXPECTED void NMI_Handler(void);
DEFAULTS_TO_UNEXPECTED void SVC_Handler(void);
DEFAULTS_TO_UNEXPECTED void DebugMon_Handler(void);
DEFAULTS_TO_UNEXPECTED void PendSV_Handler(void);
DEFAULTS_TO_UNEXPECTED void SysTick_Handler(void);

/* The core reserves these entries; the boot ROMs of some chips read them, and <target>_regions.ld has their values. */
extern uint32_t __vector_7[] __attribute__((weak)), __vector_8[] __attribute__((weak));
extern uint32_t __vector_9[] __attribute__((weak)), __vector_10[] __attribute__((weak));

__attribute__((section(".vectors"), used)) static const vector vectors[16] = {
    {.stack = __stack_top},
    {.handler = Reset_Handler},
    {.handler = NMI_Handler},
    {.handler = eb_no_handler}, /* HardFault */
    {.handler = eb_no_handler}, /* MemManage */
    {.handler = eb_no_handler}, /* BusFault */
    {.handler = eb_no_handler}, /* UsageFault */
#if __ARM_ARCH >= 8 && !defined(__ARM_ARCH_8M_BASE__)
    {.handler = eb_no_handler}, /* SecureFault */
#else
    {.stack = __vector_7},
#endif
    {.stack = __vector_8},
    {.stack = __vector_9},
    {.stack = __vector_10},
    {.handler = SVC_Handler},
    {.handler = DebugMon_Handler},
    {.stack = 0},
    {.handler = PendSV_Handler},
    {.handler = SysTick_Handler},
};

/* Apart from the reset handler: here the compiler may use the registers that the reset handler switches on. */
__attribute__((noinline, noreturn)) static void start(void)
{
    const uint32_t *from = __data_load;
    for (uint32_t *to = __data_start; to != __data_end; ++to) {
        *to = *from++;
    }
    for (uint32_t *to = __bss_start; to != __bss_end; ++to) {
        *to = 0u;
    }
    eb_exit(main());
}

__attribute__((noreturn)) void Reset_Handler(void)
{
#if __ARM_ARCH >= 7
    SCB_VTOR = (uint32_t)(uintptr_t)vectors;
#endif
#if defined(__ARM_FP) || defined(__ARM_FEATURE_MVE)
    SCB_CPACR |= 0xFu << 20; /* full access to CP10 and CP11 */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
#endif
    start();
}
