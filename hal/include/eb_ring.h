/* SPDX-License-Identifier: MIT-0
 * A queue of bytes with one writer and one reader, who may be an interrupt or another core, and the counts of packets
 * that a sender numbers. Ports of eb_link.h use them.
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
    volatile uint32_t losses, lost_at; /* how often bytes were lost, and where that was last: a value of `written` */
    uint32_t seen;                     /* losses that the reader knows of */
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

/* The writer: bytes are lost that should come next. */
static inline void eb_ring_lose(eb_ring *r)
{
    r->lost_at = r->written;
    EB_FENCE(); /* the place is there before it counts */
    r->losses = r->losses + 1u;
}

/* The reader, who may also write: forgets what nobody takes, and says so at its place. */
static inline void eb_ring_forget(eb_ring *r)
{
    r->taken = r->written;
    eb_ring_lose(r);
}

/* Takes out at most so many bytes, `taken`, that were sent in a row. EB_LINK_CRC once behind each loss. */
static inline int eb_ring_next(eb_ring *r, uint8_t *to, uint32_t bytes, uint32_t *taken)
{
    const uint32_t losses = r->losses;
    EB_FENCE();
    const uint32_t before = r->lost_at - r->taken; /* bytes; of a loss that the reader has passed, more than a queue */
    *taken = 0;
    if (losses != r->seen && (before == 0u || before > EB_LINK_RING)) {
        r->seen = losses;
        return EB_LINK_CRC;
    }
    *taken = eb_ring_take(r, to, losses != r->seen && before < bytes ? before : bytes);
    return EB_OK;
}

/* Takes out so many bytes, of which `poll` brings what has come: eb_link_receive of ports that do not sleep. */
static inline int eb_ring_receive(eb_ring *r, void *to, uint32_t bytes, uint32_t timeout_us, void (*poll)(void))
{
    uint8_t *data = to;
    const uint32_t start = eb_link_time_us();
    while (bytes != 0u) {
        poll();
        uint32_t n;
        if (eb_ring_next(r, data, bytes, &n) != EB_OK) {
            return EB_LINK_CRC;
        }
        data += n;
        bytes -= n;
        if (n == 0u && eb_link_time_us() - start >= timeout_us) {
            return EB_LINK_TIMEOUT;
        }
    }
    return EB_OK;
}

#define EB_LINK_LATE 8u /* a packet that lies up to so many behind the expected one has come twice or too late */

typedef struct {
    uint16_t next;  /* the number of the expected packet */
    uint16_t moved; /* of the one behind a late one: two in a row are no accident, their sender counts from there */
    uint8_t known;  /* whether one has come at all */
} eb_counts;

enum { EB_PACKET_OLD, EB_PACKET_NEXT, EB_PACKET_BEHIND_GAP };

/* What a packet is by its number, of which `mask` has the bits. `first`: its sender says that it has just started. No
 * number, not even a wrong one, keeps more than one right packet away. */
static inline int eb_packet(eb_counts *c, uint32_t number, uint32_t mask, int first)
{
    const uint32_t behind = (c->next - number) & mask;
    const uint16_t after = (uint16_t)((number + 1u) & mask);
    if (c->known && !first && behind != 0u && behind <= EB_LINK_LATE && number != c->moved) {
        c->moved = after;
        return EB_PACKET_OLD;
    }
    const int gap = c->known && behind != 0u;
    c->next = c->moved = after;
    c->known = 1;
    return gap ? EB_PACKET_BEHIND_GAP : EB_PACKET_NEXT;
}

#endif
