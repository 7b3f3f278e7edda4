/* SPDX-License-Identifier: 0BSD
 * eb_engine.h for cfu.v: rows under a window are runs of bytes, which the unit takes four at a time.
 */
#include "eb_engine.h"

void eb_engine_cfu_conv2d(const eb_conv2d *job);
void eb_engine_cfu_dense(const eb_dense *job);

#define CFU(function, a, b) \
    ({ int32_t sum_; __asm__ volatile(".insn r CUSTOM_0, " #function ", 0, %0, %1, %2" : "=r"(sum_) : "r"(a), "r"(b)); sum_; })

/* Up to four bytes in one word, as they lie in memory. */
static uint32_t bytes(const int8_t *from, int32_t n)
{
    uint32_t word = 0;
    for (int32_t i = 0; i < n; ++i) {
        word |= (uint32_t)(uint8_t)from[i] << 8 * i;
    }
    return word;
}

static void dot(const int8_t *x, const int8_t *w, int32_t n)
{
    if ((((uintptr_t)x | (uintptr_t)w) & 3u) == 0) {
        const uint32_t *a = (const void *)x, *b = (const void *)w;
        for (; n >= 16; n -= 16, a += 4, b += 4) {
            CFU(1, a[0], b[0]), CFU(1, a[1], b[1]), CFU(1, a[2], b[2]), CFU(1, a[3], b[3]);
        }
        for (; n >= 4; n -= 4) {
            CFU(1, *a++, *b++);
        }
        x = (const void *)a, w = (const void *)b;
    }
    for (; n > 0; n -= 4, x += 4, w += 4) {
        CFU(1, bytes(x, n < 4 ? n : 4), bytes(w, n < 4 ? n : 4));
    }
}

/* TFLite's two roundings: halves up, then halves away from zero. */
static int32_t scaled(int32_t sum, int32_t multiplier, int32_t exponent)
{
    const int32_t right = exponent < 0 ? -exponent : 0, mask = (int32_t)((1u << right) - 1u);
    const int64_t left = (int32_t)((uint32_t)sum << (exponent > 0 ? exponent : 0));
    const int32_t high = (int32_t)((left * multiplier + (1 << 30)) >> 31);
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0));
}

/* The channels under tap number `tap` of the window at (oy, ox), or null in the padding. */
static const int8_t *under(const eb_conv2d *job, int32_t oy, int32_t ox, int32_t tap)
{
    const int32_t iy = oy * job->stride_y - job->top + tap / job->window_width;
    const int32_t ix = ox * job->stride_x - job->left + tap % job->window_width;
    const int inside = iy >= 0 && iy < job->height && ix >= 0 && ix < job->width;
    return inside ? job->x + (iy * job->width + ix) * job->channels : 0;
}

static int8_t line[4096] __attribute__((aligned(4)));

/* The sums of a pixel: of its window in one line, or tap by tap where the line is too short for it. */
static void pixel(const eb_conv2d *job, int32_t oy, int32_t ox, int8_t *y)
{
    const int32_t c = job->channels, taps = job->window_height * job->window_width, all = taps * c;
    const int8_t *const first = under(job, oy, ox, 0), *x = taps == 1 && first ? first : all <= (int32_t)sizeof line ? line : 0;
    for (int32_t tap = 0; x == line && tap < taps; ++tap) {
        const int8_t *const from = under(job, oy, ox, tap);
        for (int32_t i = 0; i < c; ++i) {
            line[tap * c + i] = from ? from[i] : (int8_t)job->pad_value;
        }
    }
    for (int32_t k = 0; k < job->out_channels; ++k) {
        const int8_t *const w = job->weights + k * all;
        CFU(0, job->bias[k], 0);
        if (x) {
            dot(x, w, all);
        }
        for (int32_t tap = 0; !x && tap < taps; ++tap) {
            const int8_t *const from = under(job, oy, ox, tap);
            for (int32_t i = 0; i < c; ++i) {
                CFU(1, (uint8_t)(from ? from[i] : job->pad_value), w[tap * c + i]);
            }
        }
        const int32_t value = job->y_zero + scaled(CFU(1, 0, 0), job->multiplier[k], job->exponent[k]);
        y[k] = (int8_t)(value < job->low ? job->low : value > job->high ? job->high : value);
    }
}

void eb_engine_cfu_conv2d(const eb_conv2d *job)
{
    __asm__ volatile("csrw 0xbc0, %0" : : "r"(1u << 31)); /* the core lets programs reach the unit */
    for (int32_t p = 0; p < job->out_height * job->out_width; ++p) {
        pixel(job, p / job->out_width, p % job->out_width, job->y + p * job->out_channels);
    }
}

void eb_engine_cfu_dense(const eb_dense *job)
{
    const eb_conv2d same = {
        .x = job->x, .y = job->y, .weights = job->weights, .bias = job->bias, .multiplier = job->multiplier,
        .exponent = job->exponent, .y_zero = job->y_zero, .low = job->low, .high = job->high, .height = 1,
        .width = job->rows, .channels = job->channels, .out_height = 1, .out_width = job->rows,
        .out_channels = job->out_channels, .window_height = 1, .window_width = 1, .stride_y = 1, .stride_x = 1,
    };
    eb_engine_cfu_conv2d(&same);
}
