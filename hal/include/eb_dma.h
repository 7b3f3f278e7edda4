/* SPDX-License-Identifier: MIT-0
 * What generated code asks of a DMA unit. A port to a chip is these functions; hal/src/dma_copy.c is one without a DMA.
 */
#ifndef EB_DMA_H
#define EB_DMA_H

#include <stdint.h>

/* Planes of rows of pieces of `bytes`. Steps are in bytes, from one piece or plane to the next, on both sides. */
typedef struct {
    void *to;
    const void *from;
    uint32_t bytes, rows, planes;
    int32_t to_row, from_row, to_plane, from_plane;
} eb_copy;

/* Begins a copy; may return before it is done. A channel does its copies one after the other. The copy itself is read
 * until it is done. Channels from EB_DMA_STORE on copy between the second level and what lies behind it, for chips on
 * which another DMA unit does that; those below have an end in the first level. */
enum { EB_DMA_STORE = 40 };
void eb_dma_start(int32_t channel, const eb_copy *copy);

/* What hal/src/dma_copy.c calls for each piece, and what only copies there. One of your own may decrypt weights that lie
 * encrypted in flash. */
void eb_dma_piece(void *to, const void *from, uint32_t bytes);

/* Returns when all copies of the channel are done, and what they wrote can be read. */
void eb_dma_wait(int32_t channel);

/* Calls the function on every core, with the core's number from 0 on, and returns when all have come back. Cores see what
 * was written before; the caller sees what they wrote. There are at least as many cores as the target says, and
 * EB_CORES_MOST at most; cores without work come back at once. */
void eb_cores_run(void (*function)(int core, const void *data), const void *data);
enum { EB_CORES_MOST = 16 };

/* A DMA unit goes past the core's cache. Clean: what the core wrote in these bytes is in memory. Invalidate: the core
 * reads them from memory. Whole lines are meant; no others lie in the lines of such bytes. */
void eb_cache_clean(const void *from, uint32_t bytes);
void eb_cache_invalidate(void *from, uint32_t bytes);

/* Copies, bytes and pieces so far, for tests; 0: nobody counts. */
int eb_dma_counted(uint64_t counts[3]);

#endif
