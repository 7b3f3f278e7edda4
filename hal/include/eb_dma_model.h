/* SPDX-License-Identifier: MIT-0
 * What tests tell src/dma_model.c beside eb_dma.h.
 */
#ifndef EB_DMA_MODEL_H
#define EB_DMA_MODEL_H

#include <stdint.h>

/* From now on a write-back cache lies between the core and these bytes: what a DMA unit reads and writes there is another
 * memory, which the core sees only by way of eb_cache_clean and eb_cache_invalidate. */
void eb_dma_model_cached(void *from, uint32_t bytes);

#endif
