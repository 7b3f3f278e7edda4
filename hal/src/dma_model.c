/* SPDX-License-Identifier: MIT-0
 * eb_dma.h as a model that catches wrong programs, for the build machine.
 *
 * From start to wait nobody may touch the destination, nor write the source. So the destination is poisoned for
 * AddressSanitizer and holds garbage, and the source is compared when the copy is waited for. Copies that meet each
 * other are errors, and so are copies that nobody waited for, or that no DMA unit of the target can do. EB_DMA in the
 * environment says when bytes arrive: `eager` (at once), `lazy` (at the wait), or `random:SEED`. EB_DMA_COUNT names a
 * file for the number of copies, bytes and pieces. Cores take turns: from the first to the last, the other way round,
 * or in a random order.
 */
#include "eb_dma.h"
#include "eb_dma_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define __asan_poison_memory_region(at, size) ((void)(at), (void)(size))
#define __asan_unpoison_memory_region(at, size) ((void)(at), (void)(size))
#endif

enum { CHANNELS = 64, PENDING = 4096, GARBAGE = 0xA5 };

typedef struct {
    const eb_copy *copy;
    int32_t channel;
    uint32_t size, done; /* bytes, and pieces that have arrived */
    uint8_t *taken;      /* what the source held at the start */
} transfer;

static transfer pending[PENDING];
static uint32_t waiting;
static uint64_t copies, bytes, pieces, random_state;
static int mode; /* 0 not known, 1 eager, 2 lazy, 3 random */

/* Bytes behind a cache: what is in memory, and what the core was given, or gave back, last. */
typedef struct {
    uint8_t *core, *memory, *given;
    uint32_t bytes;
} cached;

enum { REGIONS = 256, LINE = 32 };
static cached regions[REGIONS];
static uint32_t region_count;

/* Parts of memories, and what the DMA units between memories can do. */
typedef struct {
    const uint8_t *from;
    uint32_t bytes, memory;
} part;

typedef struct {
    uint32_t memories, align, largest;
} unit;

enum { PARTS = 512, UNITS = 16 };
static part parts[PARTS];
static unit units[UNITS];
static uint32_t part_count, unit_count;

static void wrong(const char *what, int32_t channel)
{
    fprintf(stderr, "DMA model: %s (channel %d, after %llu copies)\n", what, (int)channel, (unsigned long long)copies);
    abort();
}

static uint32_t piece_count(const eb_copy *c)
{
    return c->rows * c->planes;
}

static uint8_t *to_piece(const eb_copy *c, uint32_t i)
{
    return (uint8_t *)c->to + (int32_t)(i / c->rows) * c->to_plane + (int32_t)(i % c->rows) * c->to_row;
}

static const uint8_t *from_piece(const eb_copy *c, uint32_t i)
{
    return (const uint8_t *)c->from + (int32_t)(i / c->rows) * c->from_plane + (int32_t)(i % c->rows) * c->from_row;
}

static cached *cached_at(const uint8_t *at)
{
    for (uint32_t i = 0; i < region_count; ++i) {
        if (at >= regions[i].core && at < regions[i].core + regions[i].bytes) {
            return &regions[i];
        }
    }
    return NULL;
}

/* Where a DMA unit finds what the core knows at an address. */
static uint8_t *in_memory(const uint8_t *at)
{
    cached *const c = cached_at(at);
    return c ? c->memory + (at - c->core) : (uint8_t *)(uintptr_t)at;
}

/* The core has changed something in the lines of these bytes, and the cache may write it back at any time. */
__attribute__((no_sanitize_address)) static int is_changed(const uint8_t *at, uint32_t n)
{
    cached *const c = cached_at(at);
    if (!c || !n) {
        return 0;
    }
    const uint32_t first = (uint32_t)(at - c->core) / LINE * LINE;
    for (uint32_t i = first; i < (uint32_t)(at - c->core) + n || i % LINE; ++i) {
        if (i < c->bytes && c->core[i] != c->given[i]) {
            return 1;
        }
    }
    return 0;
}

static int meet(const uint8_t *a, uint32_t n, const uint8_t *b, uint32_t m)
{
    return a < b + m && b < a + n;
}

static void finish(void)
{
    if (waiting) {
        wrong("a copy that nobody waited for", pending[0].channel);
    }
    const char *const file = getenv("EB_DMA_COUNT");
    FILE *const f = file ? fopen(file, "w") : NULL;
    if (f) {
        fprintf(f, "%llu %llu %llu\n", (unsigned long long)copies, (unsigned long long)bytes, (unsigned long long)pieces);
        fclose(f);
    }
}

static void begin(void)
{
    const char *const word = getenv("EB_DMA");
    mode = !word || strcmp(word, "lazy") == 0 ? 2 : strcmp(word, "eager") == 0 ? 1 : 3;
    random_state = mode == 3 ? strtoull(word + strcspn(word, ":") + (strchr(word, ':') != NULL), NULL, 0) * 2 + 1 : 1;
    atexit(finish);
}

static uint32_t chance(uint32_t below)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % below;
}

/* Both ends of all copies under way are apart, but for two that only read. */
static void check_apart(const eb_copy *c, int32_t channel)
{
    for (uint32_t t = 0; t < waiting; ++t) {
        const eb_copy *const o = pending[t].copy;
        for (uint32_t i = 0; i < piece_count(c); ++i) {
            for (uint32_t j = 0; j < piece_count(o); ++j) {
                if (meet(to_piece(c, i), c->bytes, to_piece(o, j), o->bytes) ||
                    meet(to_piece(c, i), c->bytes, from_piece(o, j), o->bytes) ||
                    meet(from_piece(c, i), c->bytes, to_piece(o, j), o->bytes)) {
                    wrong("a copy meets one that is under way", channel);
                }
            }
        }
    }
}

/* The memory that a piece is in, as a mask; 0: in none, or not in one alone. */
static uint32_t memory_of(const uint8_t *at, uint32_t n)
{
    for (uint32_t i = 0; i < part_count; ++i) {
        if (at >= parts[i].from && at + n <= parts[i].from + parts[i].bytes) {
            return 1u << parts[i].memory;
        }
    }
    return 0;
}

static int can_copy(const unit *u, const eb_copy *c)
{
    if (u->largest && (uint64_t)c->bytes * piece_count(c) > u->largest) {
        return 0;
    }
    for (uint32_t i = 0; i < piece_count(c); ++i) {
        const uint8_t *const to = to_piece(c, i), *const from = from_piece(c, i);
        const uint32_t ends = memory_of(to, c->bytes) | memory_of(from, c->bytes);
        if (!memory_of(to, c->bytes) || !memory_of(from, c->bytes) || (ends & ~u->memories) ||
            ((uintptr_t)to | (uintptr_t)from | c->bytes) % u->align) {
            return 0;
        }
    }
    return 1;
}

static void check_unit(const eb_copy *c, int32_t channel)
{
    uint32_t able = unit_count == 0;
    for (uint32_t i = 0; i < unit_count; ++i) {
        able |= (uint32_t)can_copy(&units[i], c);
    }
    if (!able) {
        wrong("no DMA unit can do a copy: its memories, its alignment or its size", channel);
    }
}

/* Pieces arrive, as if nobody's accesses were checked. */
static void arrive(transfer *t, uint32_t until)
{
    for (; t->done < until; ++t->done) {
        uint8_t *const to = to_piece(t->copy, t->done);
        __asan_unpoison_memory_region(to, t->copy->bytes);
        memcpy(in_memory(to), t->taken + (size_t)t->done * t->copy->bytes, t->copy->bytes);
    }
    for (uint32_t i = 0; i < piece_count(t->copy); ++i) {
        __asan_poison_memory_region(to_piece(t->copy, i), t->copy->bytes);
    }
}

static void some_arrive(void)
{
    for (uint32_t t = 0; mode == 3 && t < waiting; ++t) {
        const uint32_t left = piece_count(pending[t].copy) - pending[t].done;
        arrive(&pending[t], pending[t].done + chance(left + 1));
    }
}

void eb_dma_start(int32_t channel, const eb_copy *copy)
{
    if (!mode) {
        begin();
    }
    if (channel < 0 || channel >= CHANNELS || waiting == PENDING) {
        wrong("no such channel, or too many copies under way", channel);
    }
    check_unit(copy, channel);
    check_apart(copy, channel);
    transfer *const t = &pending[waiting++];
    *t = (transfer){copy, channel, copy->bytes * piece_count(copy), 0, NULL};
    t->taken = malloc(t->size ? t->size : 1);
    for (uint32_t i = 0; i < piece_count(copy); ++i) {
        memcpy(t->taken + (size_t)i * copy->bytes, in_memory(from_piece(copy, i)), copy->bytes);
    }
    for (uint32_t i = 0; i < piece_count(copy); ++i) {
        cached *const c = cached_at(to_piece(copy, i));
        if (is_changed(to_piece(copy, i), copy->bytes)) {
            wrong("a copy goes to lines that the cache may write back", channel);
        }
        memset(to_piece(copy, i), GARBAGE, copy->bytes);
        if (c) { /* of what the cache holds nothing is known but that it is old */
            memset(c->given + (to_piece(copy, i) - c->core), GARBAGE, copy->bytes);
            memset(in_memory(to_piece(copy, i)), GARBAGE, copy->bytes);
        }
        __asan_poison_memory_region(to_piece(copy, i), copy->bytes);
    }
    copies += 1;
    bytes += t->size;
    pieces += piece_count(copy);
    if (mode == 1) {
        arrive(t, piece_count(copy));
    }
    some_arrive();
}

void eb_dma_wait(int32_t channel)
{
    uint32_t kept = 0;
    some_arrive();
    for (uint32_t k = 0; k < waiting; ++k) {
        transfer *const t = &pending[k];
        if (t->channel != channel) {
            pending[kept++] = *t;
            continue;
        }
        arrive(t, piece_count(t->copy));
        for (uint32_t i = 0; i < piece_count(t->copy); ++i) {
            __asan_unpoison_memory_region(to_piece(t->copy, i), t->copy->bytes);
            const uint8_t *const from = from_piece(t->copy, i);
            if (memcmp(t->taken + (size_t)i * t->copy->bytes, in_memory(from), t->copy->bytes) != 0 ||
                is_changed(from, t->copy->bytes)) {
                wrong("the source of a copy was written before the wait", channel);
            }
        }
        free(t->taken);
    }
    waiting = kept;
}

void eb_cores_run(void (*function)(int core, const void *data), const void *data)
{
    int order[EB_CORES_MOST];
    if (!mode) {
        begin();
    }
    for (int i = 0; i < EB_CORES_MOST; ++i) {
        order[i] = mode == 1 ? i : EB_CORES_MOST - 1 - i;
    }
    for (int i = EB_CORES_MOST - 1; mode == 3 && i > 0; --i) {
        const uint32_t other = chance((uint32_t)i + 1);
        const int core = order[i];
        order[i] = order[other];
        order[other] = core;
    }
    for (int i = 0; i < EB_CORES_MOST; ++i) {
        some_arrive();
        function(order[i], data);
    }
}

void eb_dma_model_cached(void *from, uint32_t bytes_)
{
    if (region_count == REGIONS || (uintptr_t)from % LINE) {
        wrong("too many cached regions, or one that begins inside of a line", 0);
    }
    cached *const c = &regions[region_count++];
    *c = (cached){from, malloc(bytes_ + 1u), malloc(bytes_ + 1u), bytes_};
    memcpy(c->memory, from, bytes_);
    memcpy(c->given, from, bytes_);
}

void eb_dma_model_memory(const void *from, uint32_t bytes_, uint32_t memory)
{
    if (part_count == PARTS || memory > 31) {
        wrong("too many parts of memories, or too many memories", 0);
    }
    parts[part_count++] = (part){from, bytes_, memory};
}

void eb_dma_model_unit(uint32_t memories, uint32_t align, uint32_t largest)
{
    if (unit_count == UNITS || !align) {
        wrong("too many DMA units, or an alignment of nothing", 0);
    }
    units[unit_count++] = (unit){memories, align, largest};
}

/* Lines are cleaned or invalidated whole. */
static void keep(const uint8_t *from, uint32_t n, int clean)
{
    cached *const c = cached_at(from);
    if (!c || !n) {
        return;
    }
    const uint32_t at = (uint32_t)(from - c->core);
    for (uint32_t first = at / LINE * LINE; first < at + n; first += LINE) {
        const uint32_t size = first + LINE <= c->bytes ? LINE : c->bytes - first;
        if (clean && is_changed(c->core + first, size)) {
            memcpy(c->memory + first, c->core + first, size);
        } else if (!clean) {
            memcpy(c->core + first, c->memory + first, size);
        }
        memcpy(c->given + first, c->core + first, size);
    }
}

void eb_cache_clean(const void *from, uint32_t bytes_)
{
    keep(from, bytes_, 1);
}

void eb_cache_invalidate(void *from, uint32_t bytes_)
{
    if (is_changed(from, bytes_)) {
        wrong("what the core wrote is lost", 0);
    }
    keep(from, bytes_, 0);
}
