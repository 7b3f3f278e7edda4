/* SPDX-License-Identifier: 0BSD
 * Runs a network by a script, which says what of the arenas is written to a file between its steps, and what is put there.
 *
 * The model is compiled with layers.h and EB_ROWS, so eb_layer is called as each step begins, and eb_row before each call
 * of a step that goes row by row. harness_model.h is that of harness.c, and defines ROUNDS, the number of inferences.
 * script.bin: commands of four words of 32 bits: what, number of the arena, offset, bytes. PUT is followed by the bytes.
 * GO_ON ends what is done at a time; one more ends the inference. trace.bin: the bytes of every TAKE, in order.
 */
#include <stdint.h>

#include "eb_semihost.h"
#include "harness_model.h"
#include "layers.h"

enum { GO_ON, TAKE, PUT };

#define X(name, symbol, bytes) extern uint8_t name[] __asm__(symbol);
MODEL_ARENAS
#undef X

static const struct {
    uint8_t *first;
    uint32_t size;
} arenas[] = {
#define X(name, symbol, bytes) {name, bytes},
    MODEL_ARENAS
#undef X
};

static int script, trace, failed;

static void follow(void)
{
    while (!failed) {
        uint32_t word[4];
        if (eb_read(script, word, sizeof word) != sizeof word) {
            failed = 1;
            return;
        }
        if (word[0] == GO_ON) {
            return;
        }
        const uint32_t n = word[1], offset = word[2], bytes = word[3];
        if (n >= sizeof arenas / sizeof arenas[0] || offset > arenas[n].size || bytes > arenas[n].size - offset) {
            failed = 1;
            return;
        }
        uint8_t *const at = arenas[n].first + offset;
        failed = (word[0] == TAKE ? eb_write(trace, at, bytes) : eb_read(script, at, bytes)) != bytes;
    }
}

__attribute__((noinline)) void eb_layer(uint32_t line)
{
    (void)line;
    follow();
}

__attribute__((noinline)) void eb_row(void)
{
    follow();
}

int main(void)
{
    uint32_t more;
    script = eb_open("script.bin", EB_READ);
    trace = eb_open("trace.bin", EB_WRITE);
    failed = script < 0 || trace < 0;
    for (int round = 0; round < ROUNDS && !failed; ++round) {
        MODEL_INVOKE();
        follow();
    }
    failed |= eb_read(script, &more, sizeof more) != 0u;
    if (failed) {
        eb_print("trace: the steps are not those of the report\n");
    }
    eb_close(trace);
    return failed;
}
