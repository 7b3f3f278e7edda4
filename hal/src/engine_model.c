/* SPDX-License-Identifier: MIT-0
 * eb_engine.h in portable C, for tests and for a beginning. EB_ENGINE is the engine's name in the target.
 */
#include "eb_engine.h"

#ifndef EB_ENGINE
#define EB_ENGINE digital
#endif
#define NAMED_(engine, pattern) eb_engine_##engine##_##pattern
#define NAMED(engine, pattern) NAMED_(engine, pattern)

void NAMED(EB_ENGINE, conv2d)(const eb_conv2d *job);
void NAMED(EB_ENGINE, depthwise)(const eb_depthwise *job);
void NAMED(EB_ENGINE, dense)(const eb_dense *job);
void NAMED(EB_ENGINE, add)(const eb_add *job);
void NAMED(EB_ENGINE, max_pool)(const eb_max_pool *job);
void NAMED(EB_ENGINE, avg_pool)(const eb_avg_pool *job);

/* TFLite's two roundings: halves up, then halves away from zero. */
static int32_t multiplied(int32_t sum, int32_t multiplier, int32_t exponent)
{
    const int32_t right = exponent < 0 ? -exponent : 0, left = exponent > 0 ? exponent : 0;
    const int64_t shifted = (int32_t)((uint32_t)sum << left);
    const int64_t high = (shifted * multiplier + (1 << 30)) >> 31, mask = ((int64_t)1 << right) - 1;
    return (int32_t)((high >> right) + ((high & mask) > (mask >> 1) + (high < 0)));
}

/* To the right, halves to even. */
static int32_t even(int32_t sum, int32_t shift)
{
    const int32_t down = sum >> shift;
    const uint32_t rest = (uint32_t)sum & ((1u << shift) - 1u), half = shift ? 1u << (shift - 1) : 1u;
    return down + (rest > half || (rest == half && (down & 1)));
}

/* Far beyond all results the value does not count. */
static int32_t in_32_bits(int64_t value)
{
    const int32_t most = 1 << 16;
    return (int32_t)(value < -most ? -most : value > most ? most : value);
}

/* sum * multiplier / 2^(31 - exponent), rounded once, halves to even; the exponent is 30 at most. */
static int32_t once(int32_t sum, int32_t multiplier, int32_t exponent)
{
    const int32_t shift = 31 - exponent;
    const int64_t product = (int64_t)sum * multiplier, half = (int64_t)1 << (shift - 1);
    const int64_t down = product >> shift, rest = product & (2 * half - 1);
    return in_32_bits(down + (rest > half || (rest == half && (down & 1))));
}

static int8_t clamped(int32_t value, int32_t low, int32_t high)
{
    return (int8_t)(value < low ? low : value > high ? high : value);
}

static int8_t result(const eb_conv2d *job, int32_t sum, int32_t k)
{
    const int32_t scaled = job->added        ? in_32_bits(((int64_t)sum * job->multiplier[k] + job->added[k]) >> job->shift)
                           : job->multiplier ? (job->to_even ? once : multiplied)(sum, job->multiplier[k], job->exponent[k])
                           : job->to_even    ? even(sum, job->shift)
                                             : sum >> job->shift;
    return clamped(job->y_zero + scaled, job->low, job->high);
}

/* `depth`: channels that go into a sum; the first of them, for output channel k, is k * step. */
static void convolve(const eb_conv2d *job, int32_t depth, int32_t step)
{
    int8_t *y = job->y;
    for (int32_t oy = 0; oy < job->out_height; ++oy) {
        for (int32_t ox = 0; ox < job->out_width; ++ox) {
            for (int32_t k = 0; k < job->out_channels; ++k) {
                int32_t sum = job->bias[k];
                for (int32_t fy = 0; fy < job->window_height; ++fy) {
                    for (int32_t fx = 0; fx < job->window_width; ++fx) {
                        const int32_t iy = oy * job->stride_y + fy - job->top, ix = ox * job->stride_x + fx - job->left;
                        const int outside = iy < 0 || iy >= job->height || ix < 0 || ix >= job->width;
                        const int8_t *const in =
                            outside ? job->x : job->x + (iy * job->width + ix) * job->channels + k * step;
                        const int8_t *const w =
                            job->weights + ((k * job->window_height + fy) * job->window_width + fx) * depth;
                        for (int32_t i = 0; i < depth; ++i) {
                            sum += (outside ? job->pad_value : in[i]) * w[i];
                        }
                    }
                }
                *y++ = result(job, sum, k);
            }
        }
    }
}

void NAMED(EB_ENGINE, conv2d)(const eb_conv2d *job)
{
    convolve(job, job->channels, 0);
}

void NAMED(EB_ENGINE, depthwise)(const eb_depthwise *job)
{
    convolve(job, 1, 1);
}

void NAMED(EB_ENGINE, dense)(const eb_dense *job)
{
    const eb_conv2d same = {
        .x = job->x, .y = job->y, .weights = job->weights, .bias = job->bias, .multiplier = job->multiplier,
        .exponent = job->exponent, .added = job->added, .shift = job->shift, .to_even = job->to_even, .y_zero = job->y_zero, .low = job->low, .high = job->high,
        .height = 1, .width = job->rows, .channels = job->channels, .out_height = 1, .out_width = job->rows,
        .out_channels = job->out_channels, .window_height = 1, .window_width = 1, .stride_y = 1, .stride_x = 1,
    };
    convolve(&same, job->channels, 0);
}

void NAMED(EB_ENGINE, add)(const eb_add *job)
{
    for (int32_t i = 0; i < job->elements; ++i) {
        const int64_t a = (int64_t)job->a[i] * job->a_factor, b = (int64_t)job->b[i] * job->b_factor;
        const int32_t sum = (int32_t)(a >> 8) + (int32_t)(b >> 8) + job->offset;
        job->y[i] = clamped(job->to_even ? even(sum, job->shift) : sum >> job->shift, job->low, job->high);
    }
}

/* The largest element under the window at (oy, ox), or the sum of all of them. */
static int32_t pooled(const eb_max_pool *job, int32_t oy, int32_t ox, int32_t channel, int sums)
{
    int32_t value = sums ? 0 : -128;
    for (int32_t fy = 0; fy < job->window_height; ++fy) {
        for (int32_t fx = 0; fx < job->window_width; ++fx) {
            const int32_t iy = oy * job->stride_y + fy - job->top, ix = ox * job->stride_x + fx - job->left;
            if (iy >= 0 && iy < job->height && ix >= 0 && ix < job->width) {
                const int32_t element = job->x[(iy * job->width + ix) * job->channels + channel];
                value = sums ? value + element : element > value ? element : value;
            }
        }
    }
    return value;
}

static void pool(const eb_max_pool *job, int sums)
{
    int8_t *y = job->y;
    for (int32_t oy = 0; oy < job->out_height; ++oy) {
        for (int32_t ox = 0; ox < job->out_width; ++ox) {
            for (int32_t k = 0; k < job->channels; ++k) {
                int32_t value = pooled(job, oy, ox, k, sums);
                if (sums) {
                    value = (value - (job->away && value < 0)) * job->factor + job->offset;
                    value = job->to_even ? even(value, job->shift) : value >> job->shift;
                }
                *y++ = clamped(value, job->low, job->high);
            }
        }
    }
}

void NAMED(EB_ENGINE, max_pool)(const eb_max_pool *job)
{
    pool(job, 0);
}

void NAMED(EB_ENGINE, avg_pool)(const eb_avg_pool *job)
{
    pool(job, 1);
}
