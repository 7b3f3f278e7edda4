/* SPDX-License-Identifier: 0BSD
 * Runs a network on the input vectors of input.bin and writes what came out.
 *
 * harness_model.h (generated) includes the model's header and defines
 *   MODEL_INPUTS, MODEL_OUTPUTS   lists of X(function, bytes)
 *   MODEL_INVOKE                  the run function
 *   MODEL_ARENAS                  list of X(name, "linker symbol", bytes), one per memory
 *   VECTORS                       number of input vectors
 * output.bin: for each vector the outputs, then the arenas. measured.txt: lines "name hexadecimal".
 */
#include <stdint.h>
#include <string.h>

#include "eb_counter.h"
#include "eb_dma.h"
#include "eb_semihost.h"
#include "harness_model.h"

#define PAINT 0xA5u

static int failed;

static void check(int condition, const char *text)
{
    if (!condition) {
        eb_print("harness: ");
        eb_print(text);
        eb_print("\n");
        failed = 1;
    }
}

static void report(int file, const char *name, uint64_t value)
{
    char text[18];
    for (int i = 0; i < 16; ++i) {
        text[i] = "0123456789abcdef"[value >> (60 - 4 * i) & 0xFu];
    }
    text[16] = '\n';
    (void)eb_write(file, name, strlen(name));
    (void)eb_write(file, " ", 1);
    (void)eb_write(file, text, 17);
}

#define X(name, symbol, bytes) extern uint8_t name[] __asm__(symbol);
MODEL_ARENAS
#undef X

static void paint_arenas(void)
{
#define X(name, symbol, bytes) memset(name, (int)PAINT, bytes);
    MODEL_ARENAS
#undef X
}

/* Bytes up to the last one that has changed. */
static uint32_t touched(const uint8_t *arena, uint32_t bytes)
{
    while (bytes != 0u && arena[bytes - 1u] == PAINT) {
        --bytes;
    }
    return bytes;
}

static uint32_t arenas_touched(void)
{
    uint32_t sum = 0;
#define X(name, symbol, bytes) sum += touched(name, bytes);
    MODEL_ARENAS
#undef X
    return sum;
}

#if __STDC_HOSTED__ /* the build machine's stack is not ours to paint */
static uint32_t stack_of_invoke(void)
{
    MODEL_INVOKE();
    return 0;
}
#else
extern uint8_t __stack_limit[];

/* Bytes of stack that the run function uses. Nothing but it writes below this function's stack pointer. */
__attribute__((noinline)) static uint32_t stack_of_invoke(void)
{
    volatile uint8_t *top;
#if defined(__riscv)
    __asm__ volatile("mv %0, sp" : "=r"(top));
#else
    __asm__ volatile("mov %0, sp" : "=r"(top));
#endif
    volatile uint8_t *p;
    for (p = __stack_limit; p < top; ++p) {
        *p = PAINT;
    }
    MODEL_INVOKE();
    for (p = __stack_limit; p < top && *p == PAINT; ++p) {
    }
    check(p != __stack_limit, "stack overflow");
    return (uint32_t)(top - p);
}
#endif

/* Ticks and cycles of an inference, both without the cost of reading the counters. */
static void measure_invoke(int measured)
{
    eb_counter_start();
    const uint64_t before = eb_counter_read();
    const uint64_t cycle_before = eb_cycles_read();
    const uint64_t cycle_start = eb_cycles_read();
    const uint64_t start = eb_counter_read();
    const uint64_t cycle_first = eb_cycles_read();
    MODEL_INVOKE();
    const uint64_t cycle_end = eb_cycles_read();
    const uint64_t end = eb_counter_read();
    eb_counter_stop();
    report(measured, "ticks", (end - start) - (start - before));
    report(measured, "cycles", (cycle_end - cycle_first) - (cycle_start - cycle_before));
}

/* A port whose DMA unit counts takes the place of this. */
__attribute__((weak)) int eb_dma_counted(uint64_t counts[3])
{
    (void)counts;
    return 0;
}

#if defined(MODEL_UNITS) /* memories and DMA units of a model of these */
#include "eb_dma_model.h"

static void set_up_units(void)
{
#define X(symbol, bytes, memory)                     \
    extern uint8_t part_##symbol[] __asm__(#symbol); \
    eb_dma_model_memory(part_##symbol, bytes, memory);
    MODEL_PARTS
#undef X
#define X(memories, align, largest) eb_dma_model_unit(memories, align, largest);
    MODEL_UNITS
#undef X
}
#else
static void set_up_units(void)
{
}
#endif

#if defined(MODEL_CACHED) /* arenas behind the cache of a model of a DMA unit */
#include "eb_dma_model.h"

static void set_up_caches(void)
{
#define X(symbol, bytes)                              \
    extern uint8_t cached_##symbol[] __asm__(#symbol); \
    eb_dma_model_cached(cached_##symbol, bytes);
    MODEL_CACHED
#undef X
}

/* So that the arenas are written to output.bin as they are in memory. */
static void look_past_caches(void)
{
#define X(symbol, bytes)                              \
    extern uint8_t cached_##symbol[] __asm__(#symbol); \
    eb_cache_invalidate(cached_##symbol, bytes);
    MODEL_CACHED
#undef X
}
#else
static void set_up_caches(void)
{
}

static void look_past_caches(void)
{
}
#endif

static void report_copies(int file)
{
    uint64_t counts[3];
    if (eb_dma_counted(counts)) {
        report(file, "copies", counts[0]);
        report(file, "copied_bytes", counts[1]);
        report(file, "pieces", counts[2]);
    }
}

static void read_inputs(int file)
{
#define X(function, bytes) check(eb_read(file, function(), bytes) == (bytes), "input.bin is too short");
    MODEL_INPUTS
#undef X
}

static void write_outputs(int file)
{
#define X(function, bytes) check(eb_write(file, function(), bytes) == (bytes), "cannot write output.bin");
    MODEL_OUTPUTS
#undef X
    look_past_caches();
#define X(name, symbol, bytes) check(eb_write(file, name, bytes) == (bytes), "cannot write output.bin");
    MODEL_ARENAS
#undef X
}

int main(void)
{
    const int input = eb_open("input.bin", EB_READ);
    const int output = eb_open("output.bin", EB_WRITE);
    const int measured = eb_open("measured.txt", EB_WRITE);
    check(input >= 0 && output >= 0 && measured >= 0, "cannot open the files");
    paint_arenas();
    set_up_units();
    set_up_caches();
    for (int vector = 0; vector < VECTORS && !failed; ++vector) {
        read_inputs(input);
        if (vector == 0) {
            measure_invoke(measured);
            report(measured, "arena_touched", arenas_touched());
        } else {
            MODEL_INVOKE();
        }
        write_outputs(output);
    }
    eb_close(output);
    eb_close(input);
    const int again = eb_open("input.bin", EB_READ); /* an inference writes over its inputs */
    read_inputs(again);
    eb_close(again);
    report(measured, "stack", stack_of_invoke()); /* last: its result does not count */
    report_copies(measured);
    eb_close(measured);
    return failed;
}
