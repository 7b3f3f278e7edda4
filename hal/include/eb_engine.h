/* SPDX-License-Identifier: MIT-0
 * What generated code asks of an accelerator. A port to one is a function for each pattern that the target names:
 * void eb_engine_NAME_PATTERN(const eb_PATTERN *), which returns when the result is there. hal/src/engine_model.c is one in
 * portable C.
 *
 * Activations are stored row by row, channels last. What a window reaches outside of the input is 0. A sum begins with the
 * bias of its channel. It becomes a result in one of three ways; then y_zero is added, and the result is clamped to
 * [low, high]:
 *   multiplier is null   sum / 2^shift, rounded down; or if `to_even` is 1, to the nearest, halves to even;
 *   else                 what TFLite makes of sum * multiplier[k] / 2^31 * 2^exponent[k].
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
    int32_t shift, to_even, y_zero, low, high;
    int32_t height, width, channels, out_height, out_width, out_channels;
    int32_t window_height, window_width, stride_y, stride_x;
    int32_t top, left; /* rows and columns of padding in front of the input */
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
} eb_dense;

#endif
