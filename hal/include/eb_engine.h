/* SPDX-License-Identifier: MIT-0
 * What generated code asks of an accelerator. A port to one is a function for each pattern that the target names:
 * void eb_engine_NAME_PATTERN(const eb_PATTERN *), which returns when the result is there. A pattern that the port lacks
 * is a name that the linker does not find. hal/src/engine_model.c is a port in portable C.
 *
 * Activations are stored row by row, channels last. What a window reaches outside of the input reads as `pad_value`;
 * engines with `padding: zero` are only given jobs where that is 0. A sum begins with the bias of its channel, in which
 * the zero point of the input is. It becomes a result in one of five ways; then y_zero is added, and the result is
 * clamped to [low, high]:
 *   multiplier is null   sum / 2^shift, rounded down; or if `to_even` is 1, to the nearest, halves to even;
 *   else                 what TFLite makes of sum * multiplier[k] / 2^31 * 2^exponent[k], which it rounds twice;
 *                        or if `to_even` is 1, the same product rounded once to the nearest, halves to even;
 *                        or if `added` is not null, (sum * multiplier[k] + added[k]) / 2^shift, in 64 bits, rounded down.
 *                        It is null but for engines with `rounding: [added]`.
 */
#ifndef EB_ENGINE_H
#define EB_ENGINE_H

#include <stdint.h>

typedef struct {
    const int8_t *x;       /* height, width, channels */
    int8_t *y;             /* out_height, out_width, out_channels */
    const int8_t *weights; /* out_channels, window_height, window_width, channels */
    const int32_t *bias, *multiplier;
    const int8_t *exponent;
    int32_t shift, to_even, pad_value, y_zero, low, high;
    int32_t height, width, channels, out_height, out_width, out_channels;
    int32_t window_height, window_width, stride_y, stride_x;
    int32_t top, left; /* rows and columns of padding in front of the input */
    const int32_t *added;
} eb_conv2d;

/* The same with a window for each channel: weights are out_channels, window_height, window_width. */
typedef eb_conv2d eb_depthwise;

typedef struct {
    const int8_t *x;       /* rows, channels */
    int8_t *y;             /* rows, out_channels */
    const int8_t *weights; /* out_channels, channels */
    const int32_t *bias, *multiplier;
    const int8_t *exponent;
    int32_t shift, to_even, y_zero, low, high;
    int32_t rows, channels, out_channels;
    const int32_t *added;
} eb_dense;

/* y[i] = (a[i] * a_factor >> 8) + (b[i] * b_factor >> 8) + offset, to the right by `shift`, clamped to [low, high]. All
 * shifts round down; if `to_even` is 1, the last one to the nearest, halves to even. The products have up to 39 bits, all
 * else has 32. y may be a or b. */
typedef struct {
    const int8_t *a, *b;
    int8_t *y;
    int32_t elements, a_factor, b_factor, offset, shift, to_even, low, high;
} eb_add;

/* The largest element under each window, clamped to [low, high]. What lies outside of the input does not count. */
typedef struct {
    const int8_t *x; /* height, width, channels */
    int8_t *y;       /* out_height, out_width, channels */
    int32_t height, width, channels, out_height, out_width;
    int32_t window_height, window_width, stride_y, stride_x;
    int32_t top, left; /* 0 in averages */
    int32_t low, high;
    int32_t factor, offset, shift, away, to_even; /* of averages */
} eb_max_pool;

/* The sum of the elements under each window, of which none lies outside of the input; less 1 if it is negative and
 * `away` is 1; times factor, plus offset, to the right by `shift` as in eb_add, clamped to [low, high]. Nothing leaves 32
 * bits. */
typedef eb_max_pool eb_avg_pool;

#endif
