/* SPDX-License-Identifier: MIT-0
 * eb_dma.h without a DMA unit: the core copies. Weak, so that a port of your own takes its place.
 */
#include "eb_dma.h"

#include <string.h>

__attribute__((weak)) void eb_dma_piece(void *to, const void *from, uint32_t bytes)
{
    memcpy(to, from, bytes);
}

__attribute__((weak)) void eb_dma_start(int32_t channel, const eb_copy *copy)
{
    (void)channel;
    for (uint32_t plane = 0; plane < copy->planes; ++plane) {
        uint8_t *to = (uint8_t *)copy->to + (int32_t)plane * copy->to_plane;
        const uint8_t *from = (const uint8_t *)copy->from + (int32_t)plane * copy->from_plane;
        for (uint32_t row = 0; row < copy->rows; ++row) {
            eb_dma_piece(to, from, copy->bytes);
            to += copy->to_row;
            from += copy->from_row;
        }
    }
}

__attribute__((weak)) void eb_dma_wait(int32_t channel)
{
    (void)channel;
}

__attribute__((weak)) void eb_cores_run(void (*function)(int core, const void *data), const void *data)
{
    for (int core = 0; core < EB_CORES_MOST; ++core) {
        function(core, data);
    }
}

__attribute__((weak)) void eb_cache_clean(const void *from, uint32_t bytes)
{
    (void)from;
    (void)bytes;
}

__attribute__((weak)) void eb_cache_invalidate(void *from, uint32_t bytes)
{
    (void)from;
    (void)bytes;
}
