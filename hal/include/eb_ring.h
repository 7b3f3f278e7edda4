/* SPDX-License-Identifier: MIT-0
 * A queue of bytes with one writer and one reader, who may be an interrupt or another core. Ports of eb_link.h use it.
 * The counts go on for ever and wrap; their difference is what is in the queue.
 */
#ifndef EB_RING_H
#define EB_RING_H

#include "eb_link.h"

#ifndef EB_LINK_RING
#define EB_LINK_RING 2048u /* bytes of a queue, a power of two */
#endif

typedef struct {
    volatile uint32_t written, taken;
    volatile uint8_t data[EB_LINK_RING];
} eb_ring;

#if defined(__GNUC__)
#define EB_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)
#else
#define EB_FENCE() ((void)0)
#endif

static inline uint32_t eb_ring_count(const eb_ring *r)
{
    return r->written - r->taken;
}

static inline uint32_t eb_ring_room(const eb_ring *r)
{
    return EB_LINK_RING - eb_ring_count(r);
}

/* Puts in what there is room for; returns how many bytes that is. */
static inline uint32_t eb_ring_put(eb_ring *r, const uint8_t *from, uint32_t bytes)
{
    const uint32_t room = eb_ring_room(r), n = bytes < room ? bytes : room, at = r->written;
    EB_FENCE(); /* what was read is free before it is written */
    for (uint32_t i = 0; i < n; ++i) {
        r->data[(at + i) & (EB_LINK_RING - 1u)] = from[i];
    }
    EB_FENCE(); /* the bytes are there before they count */
    r->written = at + n;
    return n;
}

/* Takes out at most so many bytes; returns how many. */
static inline uint32_t eb_ring_take(eb_ring *r, uint8_t *to, uint32_t bytes)
{
    const uint32_t count = eb_ring_count(r), n = bytes < count ? bytes : count, at = r->taken;
    EB_FENCE();
    for (uint32_t i = 0; i < n; ++i) {
        to[i] = r->data[(at + i) & (EB_LINK_RING - 1u)];
    }
    EB_FENCE(); /* the bytes are out before their places are free */
    r->taken = at + n;
    return n;
}

/* Takes out so many bytes, of which `poll` brings what has come: eb_link_receive of ports that do not sleep. */
static inline int eb_ring_receive(eb_ring *r, void *to, uint32_t bytes, uint32_t timeout_us, void (*poll)(void))
{
    uint8_t *data = to;
    const uint32_t start = eb_link_time_us();
    while (bytes != 0u) {
        poll();
        const uint32_t n = eb_ring_take(r, data, bytes);
        data += n;
        bytes -= n;
        if (n == 0u && eb_link_time_us() - start >= timeout_us) {
            return EB_LINK_TIMEOUT;
        }
    }
    return EB_OK;
}

#endif
