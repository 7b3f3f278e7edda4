/* SPDX-License-Identifier: 0BSD
 * eb_engine.h for systolic.sv, which reads an eb_conv2d in memory.
 */
#include "eb_engine.h"

void eb_engine_systolic_conv2d(const eb_conv2d *job);
void eb_engine_systolic_dense(const eb_dense *job);

#define SYSTOLIC (*(volatile uint32_t *)0xF1000000u) /* write: a job's address; read: 1 while it is busy */

void eb_engine_systolic_conv2d(const eb_conv2d *job)
{
    __asm__ volatile("" ::: "memory");
    SYSTOLIC = (uint32_t)(uintptr_t)job;
    while (SYSTOLIC)
        ;
    __asm__ volatile(".word 0x500F" ::: "memory"); /* empties the data cache, past which the array has written */
}

/* Rows are pixels of an image of one row. */
void eb_engine_systolic_dense(const eb_dense *job)
{
    const eb_conv2d same = {
        .x = job->x, .y = job->y, .weights = job->weights, .bias = job->bias, .multiplier = job->multiplier,
        .exponent = job->exponent, .y_zero = job->y_zero, .low = job->low, .high = job->high, .height = 1,
        .width = job->rows, .channels = job->channels, .out_height = 1, .out_width = job->rows,
        .out_channels = job->out_channels, .window_height = 1, .window_width = 1, .stride_y = 1, .stride_x = 1,
    };
    eb_engine_systolic_conv2d(&same);
}
