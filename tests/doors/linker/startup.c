/* Start-up as a vendor's project brings it. The symbols of its linker script come as macros. */
#include <stdint.h>

#include "eb_firmware.h"

extern uint32_t DATA_LOAD[], DATA_START[], DATA_END[], BSS_START[], BSS_END[], STACK_TOP[], HEAP_START[];

static char *heap;

void Reset_Handler(void);
void *_sbrk(int bytes);
void *sbrk(intptr_t bytes);

void *_sbrk(int bytes) /* what malloc of newlib asks for memory */
{
    char *const old = heap;
    if (old + bytes > (char *)STACK_TOP - 2048 && old < (char *)STACK_TOP) {
        return (void *)-1;
    }
    heap += bytes;
    return old;
}

void *sbrk(intptr_t bytes) /* that of picolibc */
{
    return _sbrk((int)bytes);
}

/* Memory holds anything after power-up. QEMU's is zero, which would hide what start-up forgets. */
static void spoil(uintptr_t from, uintptr_t bytes)
{
    const uintptr_t stack = (uintptr_t)__builtin_frame_address(0) - 256u;
    for (uintptr_t at = from; at < from + bytes; at += 4u) {
        if (at < stack || at >= (uintptr_t)STACK_TOP) {
            *(volatile uint32_t *)at = 0xA5A5A5A5u;
        }
    }
}

static void start(void)
{
    static const uintptr_t banks[][2] = {RAM};
    for (unsigned i = 0; i < sizeof banks / sizeof banks[0]; ++i) {
        spoil(banks[i][0], banks[i][1]);
    }
    for (uint32_t *to = DATA_START, *from = DATA_LOAD; to < DATA_END; ++to, ++from) {
        *to = *from;
    }
    for (uint32_t *to = BSS_START; to < BSS_END; ++to) {
        *to = 0;
    }
    heap = (char *)HEAP_START;
    eb_exit(main());
}

#if defined(__riscv)
void trap(void);

__attribute__((aligned(4))) void trap(void)
{
    eb_fault(3, 0);
}

__attribute__((naked, used, section(".text.metal.init.enter"))) void _enter(void)
{
    __asm__ volatile(".option push\n\t.option norelax\n\tla gp, __global_pointer$\n\t.option pop\n\t"
                     ".option arch, +zicsr\n\t"
                     "la sp, metal_segment_stack_end\n\tla t0, trap\n\tcsrw mtvec, t0\n\tj Reset_Handler");
}

void Reset_Handler(void)
{
    start();
}
#else
void Reset_Handler(void)
{
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: the floating-point unit */
    start();
}

static void fault(void)
{
    eb_fault(3, 0);
}

__attribute__((section(".isr_vector"), used)) static const void *const vectors[16] = {
    STACK_TOP, Reset_Handler, fault, fault, fault, fault, fault,
};
#endif
