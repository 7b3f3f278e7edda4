/* Driver of a DIANA-like accelerator: eb_engine.h for its layers, eb_dma.h for the unit that fills its scratchpads.
 * The core writes registers and polls. The unit makes one copy at a time, so a channel is as good as another. */
#include "diana.bf.h"
#include "eb_dma.h"
#include "eb_engine.h"

void eb_engine_digital_conv2d(const eb_conv2d *job);
void eb_engine_digital_depthwise(const eb_depthwise *job);
void eb_engine_digital_dense(const eb_dense *job);
void eb_engine_digital_add(const eb_add *job);

static void idle(void)
{
    while (mover->busy)
        ;
}

void eb_dma_start(int32_t channel, const eb_copy *copy)
{
    (void)channel;
    idle();
    mover->to = (uint32_t)(uintptr_t)copy->to;
    mover->from = (uint32_t)(uintptr_t)copy->from;
    mover->bytes = copy->bytes;
    mover->rows = (uint16_t)copy->rows;
    mover->planes = (uint16_t)copy->planes;
    mover->toRow = (uint32_t)copy->to_row;
    mover->fromRow = (uint32_t)copy->from_row;
    mover->toPlane = (uint32_t)copy->to_plane;
    mover->fromPlane = (uint32_t)copy->from_plane;
    mover->start = 1;
}

void eb_dma_wait(int32_t channel)
{
    (void)channel;
    idle();
}

static void run(const eb_conv2d *job, int32_t depthwise)
{
    digital->depthwise = (uint8_t)depthwise;
    digital->adds = 0;
    digital->input = (uint32_t)(uintptr_t)job->x;
    digital->output = (uint32_t)(uintptr_t)job->y;
    digital->weights = (uint32_t)(uintptr_t)job->weights;
    digital->bias = (uint32_t)(uintptr_t)job->bias;
    digital->height = (uint16_t)job->height;
    digital->width = (uint16_t)job->width;
    digital->channels = (uint16_t)job->channels;
    digital->outHeight = (uint16_t)job->out_height;
    digital->outWidth = (uint16_t)job->out_width;
    digital->outChannels = (uint16_t)job->out_channels;
    digital->windowHeight = (uint8_t)job->window_height;
    digital->windowWidth = (uint8_t)job->window_width;
    digital->strideY = (uint8_t)job->stride_y;
    digital->strideX = (uint8_t)job->stride_x;
    digital->top = (uint8_t)job->top;
    digital->left = (uint8_t)job->left;
    digital->shift = (uint8_t)job->shift;
    digital->even = (uint8_t)job->to_even;
    digital->zero = (uint8_t)job->y_zero;
    digital->low = (uint8_t)job->low;
    digital->high = (uint8_t)job->high;
    digital->start = 1;
    while (digital->busy)
        ;
}

void eb_engine_digital_conv2d(const eb_conv2d *job)
{
    run(job, 0);
}

void eb_engine_digital_depthwise(const eb_depthwise *job)
{
    run(job, 1);
}

/* Rows are pixels of an image of one row. */
void eb_engine_digital_dense(const eb_dense *job)
{
    eb_conv2d same;
    same.x = job->x;
    same.y = job->y;
    same.weights = job->weights;
    same.bias = job->bias;
    same.shift = job->shift;
    same.to_even = job->to_even;
    same.y_zero = job->y_zero;
    same.low = job->low;
    same.high = job->high;
    same.height = 1;
    same.width = job->rows;
    same.channels = job->channels;
    same.out_height = 1;
    same.out_width = job->rows;
    same.out_channels = job->out_channels;
    same.window_height = 1;
    same.window_width = 1;
    same.stride_y = 1;
    same.stride_x = 1;
    same.top = 0;
    same.left = 0;
    run(&same, 0);
}

void eb_engine_digital_add(const eb_add *job)
{
    digital->input = (uint32_t)(uintptr_t)job->a;
    digital->weights = (uint32_t)(uintptr_t)job->b;
    digital->output = (uint32_t)(uintptr_t)job->y;
    digital->elements = (uint32_t)job->elements;
    digital->aFactor = (uint32_t)job->a_factor;
    digital->bFactor = (uint32_t)job->b_factor;
    digital->offset = (uint32_t)job->offset;
    digital->shift = (uint8_t)job->shift;
    digital->even = (uint8_t)job->to_even;
    digital->low = (uint8_t)job->low;
    digital->high = (uint8_t)job->high;
    digital->adds = 1;
    digital->start = 1;
    while (digital->busy)
        ;
}
