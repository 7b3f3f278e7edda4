/* SPDX-License-Identifier: 0BSD
 * Runs a network once and writes what every step of it took.
 *
 * The model is compiled with layers.h, so eb_layer is called as each step begins. harness_model.h is that of harness.c,
 * and defines LAYERS, the number of steps. layers.bin: a line of the model's source, the counter and the cycles for each
 * call, 32 bits each. A call with line 0 ends the network; EMPTY more show what a call takes.
 */
#include <stdint.h>

#include "eb_counter.h"
#include "eb_semihost.h"
#include "harness_model.h"
#include "layers.h"

#define EMPTY 64
#define MOST (LAYERS + 1 + EMPTY)

static uint32_t marks[MOST][3];
static uint32_t seen;

__attribute__((noinline)) void eb_layer(uint32_t line)
{
    if (seen < MOST) {
        marks[seen][0] = line;
        marks[seen][1] = (uint32_t)eb_counter_read();
        marks[seen][2] = (uint32_t)eb_cycles_read();
    }
    ++seen;
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
    eb_counter_start();
    MODEL_INVOKE();
    for (int n = 0; n <= EMPTY; ++n) {
        eb_layer(0);
    }
    eb_counter_stop();
    const uint32_t size = seen * (uint32_t)sizeof marks[0];
    if (seen > MOST || eb_write(output, marks, size) != size) {
        eb_print("layers: the number of steps is not the report's\n");
        return 1;
    }
    eb_close(output);
    return 0;
}
