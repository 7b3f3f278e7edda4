/* The part of CMSIS-NN's interface that generated code uses, with the plainest possible kernels behind it: a stand-in
 * for tests. It is strict where the library is: parameters have to be in range, and the scratch is written all over. */
#ifndef STAND_IN_FOR_CMSIS_NN
#define STAND_IN_FOR_CMSIS_NN

#include <stddef.h>
#include <stdint.h>

typedef enum { ARM_CMSIS_NN_SUCCESS = 0, ARM_CMSIS_NN_ARG_ERROR = -1 } arm_cmsis_nn_status;
typedef struct { int32_t w, h; } cmsis_nn_tile;
typedef struct { int32_t n, h, w, c; } cmsis_nn_dims;
typedef struct { void *buf; int32_t size; } cmsis_nn_context;
typedef struct { int32_t min, max; } cmsis_nn_activation;
typedef struct { int32_t *multiplier, *shift; } cmsis_nn_per_channel_quant_params;
typedef struct {
    int32_t input_offset, output_offset;
    cmsis_nn_tile stride, padding, dilation;
    cmsis_nn_activation activation;
} cmsis_nn_conv_params;
typedef struct {
    int32_t input_offset, output_offset, ch_mult;
    cmsis_nn_tile stride, padding, dilation;
    cmsis_nn_activation activation;
} cmsis_nn_dw_conv_params;

static inline int32_t stand_in_requantize(int32_t sum, int32_t multiplier, int32_t shift)
{
    const int32_t left = shift > 0 ? shift : 0, right = left - shift;
    const int64_t product = (int64_t)(int32_t)((uint32_t)sum << left) * multiplier;
    const int32_t high = (int32_t)((product + (1 << 30)) >> 31);
    const int32_t mask = (int32_t)((UINT32_C(1) << right) - 1), rest = high & mask;
    return (high >> right) + (rest > (mask >> 1) + (high < 0));
}

/* Channel k reads input channels from `first` on, `channels` of them. */
static inline int32_t stand_in_sum(const cmsis_nn_conv_params *p, const cmsis_nn_dims *in, const int8_t *x,
                                   const cmsis_nn_dims *filter, const int8_t *w, int32_t tap_step, int32_t oy,
                                   int32_t ox, int32_t first, int32_t channels)
{
    int32_t sum = 0;
    for (int32_t fy = 0; fy < filter->h; ++fy) {
        for (int32_t fx = 0; fx < filter->w; ++fx, w += tap_step) {
            const int32_t iy = oy * p->stride.h - p->padding.h + fy * p->dilation.h;
            const int32_t ix = ox * p->stride.w - p->padding.w + fx * p->dilation.w;
            for (int32_t c = 0; iy >= 0 && iy < in->h && ix >= 0 && ix < in->w && c < channels; ++c) {
                sum += (x[(iy * in->w + ix) * in->c + first + c] + p->input_offset) * w[c];
            }
        }
    }
    return sum;
}

static inline arm_cmsis_nn_status stand_in_layer(const cmsis_nn_context *context, int32_t needed,
                                                 const cmsis_nn_conv_params *p,
                                                 const cmsis_nn_per_channel_quant_params *q, const cmsis_nn_dims *in,
                                                 const int8_t *x, const cmsis_nn_dims *filter, const int8_t *w,
                                                 const cmsis_nn_dims *sums, const int32_t *bias,
                                                 const cmsis_nn_dims *out, int8_t *y, int depthwise)
{
    if (in->n != 1 || out->n != 1 || sums->c != out->c || p->input_offset < -127 || p->input_offset > 128
        || (needed > 0 && (context->buf == NULL || context->size < needed))) {
        return ARM_CMSIS_NN_ARG_ERROR;
    }
    for (int32_t i = 0; i < needed; ++i) {
        ((int8_t *)context->buf)[i] = (int8_t)(i * 37);
    }
    for (int32_t oy = 0; oy < out->h; ++oy) {
        for (int32_t ox = 0; ox < out->w; ++ox) {
            for (int32_t k = 0; k < out->c; ++k) {
                const int32_t sum = bias[k] + (depthwise
                    ? stand_in_sum(p, in, x, filter, w + k, filter->c, oy, ox, k, 1)
                    : stand_in_sum(p, in, x, filter, w + k * filter->h * filter->w * filter->c, filter->c, oy, ox, 0,
                                   filter->c));
                const int32_t v = stand_in_requantize(sum, q->multiplier[k], q->shift[k]) + p->output_offset;
                *y++ = (int8_t)(v < p->activation.min ? p->activation.min
                                                      : v > p->activation.max ? p->activation.max : v);
            }
        }
    }
    return ARM_CMSIS_NN_SUCCESS;
}

static inline int32_t arm_convolve_wrapper_s8_get_buffer_size(const cmsis_nn_conv_params *p, const cmsis_nn_dims *in,
                                                              const cmsis_nn_dims *filter, const cmsis_nn_dims *out)
{
    (void)p;
    (void)out;
    return 4 * ((filter->h * filter->w * in->c + 3) / 4 * 4);
}

static inline int32_t arm_depthwise_conv_wrapper_s8_get_buffer_size(const cmsis_nn_dw_conv_params *p,
                                                                    const cmsis_nn_dims *in,
                                                                    const cmsis_nn_dims *filter,
                                                                    const cmsis_nn_dims *out)
{
    (void)p;
    (void)out;
#ifdef __ARM_FEATURE_DSP
    return 2 * in->c * filter->h * filter->w;
#else
    return 0 * in->c * filter->h;
#endif
}

static inline arm_cmsis_nn_status arm_convolve_wrapper_s8(
    const cmsis_nn_context *context, const cmsis_nn_conv_params *p, const cmsis_nn_per_channel_quant_params *q,
    const cmsis_nn_dims *in, const int8_t *x, const cmsis_nn_dims *filter, const int8_t *w, const cmsis_nn_dims *sums,
    const int32_t *bias, const cmsis_nn_dims *out, int8_t *y)
{
    const int32_t needed = arm_convolve_wrapper_s8_get_buffer_size(p, in, filter, out);
    return filter->n == out->c && filter->c == in->c
        ? stand_in_layer(context, needed, p, q, in, x, filter, w, sums, bias, out, y, 0) : ARM_CMSIS_NN_ARG_ERROR;
}

static inline arm_cmsis_nn_status arm_depthwise_conv_wrapper_s8(
    const cmsis_nn_context *context, const cmsis_nn_dw_conv_params *p, const cmsis_nn_per_channel_quant_params *q,
    const cmsis_nn_dims *in, const int8_t *x, const cmsis_nn_dims *filter, const int8_t *w, const cmsis_nn_dims *sums,
    const int32_t *bias, const cmsis_nn_dims *out, int8_t *y)
{
    const cmsis_nn_conv_params same = { p->input_offset, p->output_offset, p->stride, p->padding, p->dilation,
                                        p->activation };
    const int32_t needed = arm_depthwise_conv_wrapper_s8_get_buffer_size(p, in, filter, out);
    return filter->n == 1 && filter->c == out->c && in->c * p->ch_mult == out->c && p->ch_mult == 1
        ? stand_in_layer(context, needed, &same, q, in, x, filter, w, sums, bias, out, y, 1) : ARM_CMSIS_NN_ARG_ERROR;
}

#endif
