/* SPDX-License-Identifier: 0BSD
 * eb_engine.h for cfu.v: rows under a window are runs of bytes, which the unit takes four at a time.
 */
#include "eb_engine.h"

void eb_engine_cfu_conv2d(const eb_conv2d *job);
void eb_engine_cfu_dense(const eb_dense *job);

#define CFU(function, a, b) \
    ({ int32_t sum_; __asm__ volatile(".insn r CUSTOM_0, " #function ", 0, %0, %1, %2" : "=r"(sum_) : "r"(a), "r"(b)); sum_; })

/* TFLite's two roundings: halves up, then halves away from zero. */
static int32_t scaled(int32_t sum, int32_t multiplier, int32_t exponent)
{
    const int32_t right = exponent < 0 ? -exponent : 0, mask = (int32_t)((1u << right) - 1u);
    const int64_t left = (int32_t)((uint32_t)sum << (exponent > 0 ? exponent : 0));
    const int32_t high = (int32_t)((left * multiplier + (1 << 30)) >> 31);
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0));
}

enum { ROOM = 2048 };
static uint32_t room[ROOM]; /* a window, or four copies of it */

/* The channels of the input at (iy, ix), or null in the padding. */
static const int8_t *at(const eb_conv2d *job, int32_t iy, int32_t ix)
{
    const int inside = iy >= 0 && iy < job->height && ix >= 0 && ix < job->width;
    return inside ? job->x + (iy * job->width + ix) * job->channels : 0;
}

/* Puts the window whose first tap is (iy, ix) behind the first word of `room`, and three bytes of 0 behind it. */
static void gather(const eb_conv2d *job, int32_t iy, int32_t ix)
{
    const int32_t c = job->channels, pad_value = job->pad_value;
    int8_t *to = (int8_t *)(room + 1);
    for (int32_t fy = 0; fy < job->window_height; ++fy) {
        for (int32_t fx = 0; fx < job->window_width; ++fx) {
            const int8_t *const from = at(job, iy + fy, ix + fx);
            for (int32_t i = 0; i < c; ++i) {
                *to++ = from ? from[i] : (int8_t)pad_value;
            }
        }
    }
    to[0] = to[1] = to[2] = 0;
}

/* Products of the words from a to `end`; words come some instructions ahead of their products, which wait for them. */
static void dot(const uint32_t *a, const uint32_t *b, const uint32_t *end)
{
    for (; end - a >= 4; a += 4, b += 4) {
        const uint32_t a0 = a[0], b0 = b[0], a1 = a[1], b1 = b[1], a2 = a[2], b2 = b[2], a3 = a[3], b3 = b[3];
        CFU(1, a0, b0), CFU(1, a1, b1), CFU(1, a2, b2), CFU(1, a3, b3);
    }
    while (a != end) {
        CFU(1, *a++, *b++);
    }
}

/* Products of a window that has no room, byte by byte. */
static void large(const eb_conv2d *job, int32_t iy, int32_t ix, const int8_t *w)
{
    for (int32_t tap = 0; tap < job->window_height * job->window_width; ++tap) {
        const int8_t *const from = at(job, iy + tap / job->window_width, ix + tap % job->window_width);
        for (int32_t i = 0; i < job->channels; ++i) {
            CFU(1, (uint8_t)(from ? from[i] : job->pad_value), *w++);
        }
    }
}

/* A pixel. Weights of a channel may begin within a word. Then a copy of the window that does so, too, lies in `room`, and
 * bytes of other channels meet zeros. */
static void pixel(const eb_conv2d *job, int32_t oy, int32_t ox, int8_t *y)
{
    const int32_t iy = oy * job->stride_y - job->top, ix = ox * job->stride_x - job->left;
    const int32_t taps = job->window_height * job->window_width, all = taps * job->channels, words = (all + 6) / 4;
    const int32_t channels = job->out_channels, y_zero = job->y_zero, low = job->low, high = job->high;
    const int32_t *const bias = job->bias, *const multiplier = job->multiplier;
    const int8_t *const exponent = job->exponent, *w = job->weights, *const first = at(job, iy, ix);
    const int whole = (((uintptr_t)w | (uint32_t)all) & 3u) == 0;
    const int direct = whole && taps == 1 && first && ((uintptr_t)first & 3u) == 0;
    const int fits = direct || (whole ? words : 4 * words) < ROOM;
    if (fits && !direct) {
        gather(job, iy, ix);
    }
    for (int32_t n = 1; fits && !whole && n < 4; ++n) {
        for (int32_t i = 0; i < words; ++i) {
            room[n * words + i + 1] = room[i + 1] << 8 * n | (i ? room[i] >> (32 - 8 * n) : 0);
        }
    }
    for (int32_t k = 0; k < channels; ++k, w += all) {
        const uint32_t within = whole ? 0 : (uintptr_t)w & 3u;
        const uint32_t *const x = direct ? (const void *)first : room + 1 + within * (uint32_t)words;
        CFU(0, bias[k], 0);
        if (fits) {
            dot(x, (const void *)(w - within), x + (within + (uint32_t)all + 3u) / 4u);
        } else {
            large(job, iy, ix, w);
        }
        const int32_t value = y_zero + scaled(CFU(1, 0, 0), multiplier[k], exponent[k]);
        y[k] = (int8_t)(value < low ? low : value > high ? high : value);
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
