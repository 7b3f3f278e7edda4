/* Start-up as a vendor's project brings it. The symbols of its linker script come as macros. */
#include <stdint.h>

#include "eb_firmware.h"

extern uint32_t DATA_LOAD[], DATA_START[], DATA_END[], BSS_START[], BSS_END[], STACK_TOP[], HEAP_START[];

static char *heap = (char *)HEAP_START;

void Reset_Handler(void);
void *_sbrk(int bytes);

void *_sbrk(int bytes) /* what malloc of newlib asks for memory */
{
    char *const old = heap;
    if (old + bytes > (char *)STACK_TOP - 2048) {
        return (void *)-1;
    }
    heap += bytes;
    return old;
}

void Reset_Handler(void)
{
    *(volatile uint32_t *)0xE000ED88u |= 0xFu << 20; /* CPACR: the floating-point unit */
    for (uint32_t *to = DATA_START, *from = DATA_LOAD; to < DATA_END; ++to, ++from) {
        *to = *from;
    }
    for (uint32_t *to = BSS_START; to < BSS_END; ++to) {
        *to = 0;
    }
    eb_exit(main());
}

static void fault(void)
{
    eb_fault(3, 0);
}

__attribute__((section(".isr_vector"), used)) static const void *const vectors[16] = {
    STACK_TOP, Reset_Handler, fault, fault, fault, fault, fault,
};
