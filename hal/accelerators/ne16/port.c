/* SPDX-License-Identifier: 0BSD
 * eb_engine.h for ne16.sv, which reads an eb_conv2d or an eb_depthwise in memory.
 */
#include "eb_engine.h"

void eb_engine_ne16_conv2d(const eb_conv2d *job);
void eb_engine_ne16_depthwise(const eb_depthwise *job);
void eb_engine_ne16_dense(const eb_dense *job);

/* Write the address of a convolution to the first word, of a depthwise one to the second; both read 1 while it is busy. */
#define NE16 ((volatile uint32_t *)0xF1000000u)

static void run(const void *job, int each)
{
    __asm__ volatile("" ::: "memory");
    NE16[each] = (uint32_t)(uintptr_t)job;
    while (NE16[each])
        ;
    __asm__ volatile(".word 0x500F" ::: "memory"); /* empties the data cache, past which the engine has written */
}

void eb_engine_ne16_conv2d(const eb_conv2d *job)
{
    run(job, 0);
}

void eb_engine_ne16_depthwise(const eb_depthwise *job)
{
    run(job, 1);
}

/* Rows are pixels of an image of one row. */
void eb_engine_ne16_dense(const eb_dense *job)
{
    const eb_conv2d same = {
        .x = job->x, .y = job->y, .weights = job->weights, .bias = job->bias, .multiplier = job->multiplier,
        .exponent = job->exponent, .added = job->added, .shift = job->shift, .y_zero = job->y_zero, .low = job->low,
        .high = job->high, .height = 1, .width = job->rows, .channels = job->channels, .out_height = 1, .out_width = job->rows,
        .out_channels = job->out_channels, .window_height = 1, .window_width = 1, .stride_y = 1, .stride_x = 1,
    };
    run(&same, 0);
}
