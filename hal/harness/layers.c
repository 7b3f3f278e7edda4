/* SPDX-License-Identifier: 0BSD
 * Runs a network once and writes what every step of it took.
 *
 * The model alone is compiled with -finstrument-functions, so the two functions below see each of its functions come
 * and go. harness_model.h is that of harness.c, and defines LAYERS, the number of steps. layers.bin: ticks of each step,
 * then those of a step that does nothing and of one that calls EMPTY functions that do nothing, 32 bits each.
 */
#include <stdint.h>

#include "eb_counter.h"
#include "eb_semihost.h"
#include "harness_model.h"

#define EMPTY 64

static uint32_t ticks[LAYERS + 2];
static uint32_t steps; /* seen */
static uint32_t depth; /* 1: within a function that the application calls, 2: within a step */
static uint32_t start;

__attribute__((noinline)) void __cyg_profile_func_enter(void *function, void *caller);
void __cyg_profile_func_enter(void *function, void *caller)
{
    (void)function;
    (void)caller;
    if (++depth == 2u) {
        start = (uint32_t)eb_counter_read();
    }
}

__attribute__((noinline)) void __cyg_profile_func_exit(void *function, void *caller);
void __cyg_profile_func_exit(void *function, void *caller)
{
    (void)function;
    (void)caller;
    if (depth-- == 2u) {
        const uint32_t end = (uint32_t)eb_counter_read();
        if (steps < LAYERS + 2u) {
            ticks[steps] = end - start;
        }
        ++steps;
    }
}

int main(void)
{
    const int input = eb_open("input.bin", EB_READ);
    const int output = eb_open("layers.bin", EB_WRITE);
#define X(function, bytes)                                \
    if (eb_read(input, function(), bytes) != (bytes)) { \
        eb_print("layers: input.bin is too short\n");     \
        return 1;                                         \
    }
    MODEL_INPUTS
#undef X
    steps = 0;
    depth = 0;
    eb_counter_start();
    MODEL_INVOKE();
    const int complete = steps == LAYERS;
    steps = LAYERS;
    depth = 1;
    for (int n = 0; n <= EMPTY; n += EMPTY) { /* what the counting itself takes */
        __cyg_profile_func_enter(0, 0);
        for (int i = 0; i < n; ++i) {
            __cyg_profile_func_enter(0, 0);
            __cyg_profile_func_exit(0, 0);
        }
        __cyg_profile_func_exit(0, 0);
    }
    eb_counter_stop();
    if (!complete || eb_write(output, ticks, sizeof ticks) != sizeof ticks) {
        eb_print("layers: the number of steps is not the report's\n");
        return 1;
    }
    eb_close(output);
    return 0;
}
