/* SPDX-License-Identifier: 0BSD
 * A device of a simulated cluster. The source runs the network on the input vectors of input.bin and writes to
 * output.bin, for each, the code that it returned (4 bytes) and the outputs. The others serve until the relay ends, and
 * write a byte with the code for each inference. stack.bin gets the most bytes of stack that a device used (4 bytes).
 *
 * harness_cluster.h (generated) includes the header of the device's part and defines
 *   NODE_ENTRY                  its function
 *   NODE_IS_SOURCE              1 or 0
 *   NODE_INPUTS, NODE_OUTPUTS   lists of X(function, bytes), of the source
 */
#include <stdint.h>

#include "eb_link.h"
#include "eb_semihost.h"
#include "harness_cluster.h"
#include "link_relay.h"

#define PAINT 0xA5u

#if __STDC_HOSTED__ /* the build machine's stack is not ours to paint */
static void paint_stack(void)
{
}

static uint32_t stack_used(void)
{
    return 0;
}
#else
extern uint8_t __stack_limit[], __stack_top[];

static void paint_stack(void)
{
    volatile uint8_t *top, *p;
#if defined(__riscv)
    __asm__ volatile("mv %0, sp" : "=r"(top));
#else
    __asm__ volatile("mov %0, sp" : "=r"(top));
#endif
    for (p = __stack_limit; p < top; ++p) {
        *p = PAINT;
    }
}

static uint32_t stack_used(void)
{
    const volatile uint8_t *p = __stack_limit;
    while (p < __stack_top && *p == PAINT) {
        ++p;
    }
    return (uint32_t)(__stack_top - p);
}
#endif

int main(void)
{
    int failed = 0;
    paint_stack();
    const int output = eb_open("output.bin", EB_WRITE);
#if NODE_IS_SOURCE
    const int input = eb_open("input.bin", EB_READ);
#define X(function, bytes) +(bytes)
    const uint32_t each = 0u NODE_INPUTS;
#undef X
    for (uint32_t runs = 0; each != 0u || runs == 0u; ++runs) { /* once without inputs: such a file never ends */
        int complete = 1;
#define X(function, bytes) complete &= eb_read(input, function(), bytes) == (bytes);
        NODE_INPUTS
#undef X
        if (!complete) {
            break;
        }
        const uint32_t code = (uint32_t)NODE_ENTRY();
        failed |= eb_write(output, &code, sizeof code) != sizeof code;
#define X(function, bytes) failed |= eb_write(output, function(), bytes) != (bytes);
        NODE_OUTPUTS
#undef X
    }
    eb_close(input);
#else
    while (!eb_relay_over) {
        const uint8_t code = (uint8_t)NODE_ENTRY();
        if (!eb_relay_over) {
            failed |= eb_write(output, &code, 1) != 1u;
        }
    }
#endif
    eb_close(output);
    const uint32_t used = stack_used();
    const int stack = eb_open("stack.bin", EB_WRITE);
    failed |= eb_write(stack, &used, sizeof used) != sizeof used;
    eb_close(stack);
    return failed;
}
