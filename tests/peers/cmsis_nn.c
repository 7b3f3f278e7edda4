/* Runs the layers of `layers.h` one after another with CMSIS-NN, for its cycles: values are random, results not kept.
 *
 * `layers.h` has a macro LAYERS with a call of one of the functions below for each layer, and WEIGHTS, ACTIVATION,
 * SCRATCH and CHANNELS: how many the largest layer has. `weights.bin` and `values.bin` are random bytes. All layers read
 * the same weights, so a simulated cache must be smaller than they are.
 */
#include "arm_nnfunctions.h"
#include "layers.h"

enum { ZERO = 3, LOW = -128, HIGH = 127, FACTOR = 1518500250, RIGHT = -8 }; /* random sums then seldom clamp */

#define TEXT(x) #x
#define NUMBER(x) TEXT(x)
#define REPEATED(name, value) name ": .rept " NUMBER(CHANNELS) "\n.word " value "\n.endr\n"
__asm__(".section .rodata.weights,\"a\"\n.balign 16\nweights: .incbin \"weights.bin\"\n.previous\n"
        ".section .data.values,\"aw\"\n.balign 16\nvalues: .incbin \"values.bin\"\n.balign 4\n"
        REPEATED("multiplier", "1518500250") REPEATED("shift", "-8") ".previous");
extern const int8_t weights[WEIGHTS];
extern int8_t values[3][ACTIVATION]; /* input, output, and what an addition reads, too */
extern int32_t multiplier[CHANNELS], shift[CHANNELS];
static const int32_t bias[CHANNELS];
static int32_t scratch[SCRATCH / 4];
static int8_t *x = values[0], *y = values[1];
static int failed;

static void done(arm_cmsis_nn_status status)
{
    int8_t *input = x;
    failed |= status != ARM_CMSIS_NN_SUCCESS;
    x = y;
    y = input;
}

static cmsis_nn_context space(int32_t size)
{
    cmsis_nn_context context = { scratch, size };
    failed |= size > (int32_t)sizeof scratch;
    return context;
}

static cmsis_nn_dims dims(int n, int h, int w, int c)
{
    cmsis_nn_dims shape = { n, h, w, c };
    return shape;
}

static void conv(int h, int w, int c, int oh, int ow, int k, int fh, int fw, int sy, int sx, int py, int px)
{
    const cmsis_nn_conv_params layer = { ZERO, -ZERO, { sx, sy }, { px, py }, { 1, 1 }, { LOW, HIGH } };
    const cmsis_nn_per_channel_quant_params factors = { multiplier, shift };
    const cmsis_nn_dims in = dims(1, h, w, c), out = dims(1, oh, ow, k), filter = dims(k, fh, fw, c);
    const cmsis_nn_dims sums = dims(1, 1, 1, k);
    const cmsis_nn_context context = space(arm_convolve_wrapper_s8_get_buffer_size(&layer, &in, &filter, &out));
    done(arm_convolve_wrapper_s8(&context, &layer, &factors, &in, x, &filter, weights, &sums, bias, &out, y));
}

static void depthwise(int h, int w, int c, int oh, int ow, int fh, int fw, int sy, int sx, int py, int px)
{
    const cmsis_nn_dw_conv_params layer = { ZERO, -ZERO, 1, { sx, sy }, { px, py }, { 1, 1 }, { LOW, HIGH } };
    const cmsis_nn_per_channel_quant_params factors = { multiplier, shift };
    const cmsis_nn_dims in = dims(1, h, w, c), out = dims(1, oh, ow, c), filter = dims(1, fh, fw, c);
    const cmsis_nn_dims sums = dims(1, 1, 1, c);
    const cmsis_nn_context context = space(arm_depthwise_conv_wrapper_s8_get_buffer_size(&layer, &in, &filter, &out));
    done(arm_depthwise_conv_wrapper_s8(&context, &layer, &factors, &in, x, &filter, weights, &sums, bias, &out, y));
}

static void dense(int taps, int k)
{
    const cmsis_nn_fc_params layer = { ZERO, 0, -ZERO, { LOW, HIGH } };
    const cmsis_nn_per_tensor_quant_params factor = { FACTOR, RIGHT };
    const cmsis_nn_dims in = dims(1, 1, 1, taps), out = dims(1, 1, 1, k), filter = dims(taps, 1, 1, k);
    const cmsis_nn_dims sums = dims(1, 1, 1, k);
    const cmsis_nn_context context = space(arm_fully_connected_s8_get_buffer_size(&filter));
    done(arm_fully_connected_s8(&context, &layer, &factor, &in, x, &filter, weights, &sums, bias, &out, y));
}

static void average(int h, int w, int c, int oh, int ow, int fh, int fw)
{
    const cmsis_nn_pool_params layer = { { fw, fh }, { 0, 0 }, { LOW, HIGH } };
    const cmsis_nn_dims in = dims(1, h, w, c), out = dims(1, oh, ow, c), filter = dims(1, fh, fw, 1);
    const cmsis_nn_context context = space(arm_avgpool_s8_get_buffer_size(ow, c));
    done(arm_avgpool_s8(&context, &layer, &in, x, &filter, &out, y));
}

static void add(int size)
{
    done(arm_elementwise_add_s8(x, values[2], ZERO, FACTOR, 0, ZERO, FACTOR, 0, 20, y, -ZERO, FACTOR, -19, LOW, HIGH,
                                size));
}

static void softmax(int size)
{
    arm_softmax_s8(x, 1, size, FACTOR, 23, -248, y);
    done(ARM_CMSIS_NN_SUCCESS);
}

int main(void)
{
    LAYERS
    (void)conv, (void)depthwise, (void)dense, (void)average, (void)add, (void)softmax;
    return failed;
}
