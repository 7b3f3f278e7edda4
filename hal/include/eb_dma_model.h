/* SPDX-License-Identifier: MIT-0
 * What tests tell src/dma_model.c beside eb_dma.h.
 */
#ifndef EB_DMA_MODEL_H
#define EB_DMA_MODEL_H

#include <stdint.h>

/* From now on a write-back cache lies between the core and these bytes: what a DMA unit reads and writes there is another
 * memory, which the core sees only by way of eb_cache_clean and eb_cache_invalidate. */
void eb_dma_model_cached(void *from, uint32_t bytes);

/* These bytes are part of memory number `memory`, up to 31. */
void eb_dma_model_memory(const void *from, uint32_t bytes, uint32_t memory);

/* A DMA unit copies between the memories of a mask: pieces and addresses that are multiples of `align`, and at most
 * `largest` bytes at once (0: any number). Once there is a unit, copies that none can do are errors. */
void eb_dma_model_unit(uint32_t memories, uint32_t align, uint32_t largest);

#endif
