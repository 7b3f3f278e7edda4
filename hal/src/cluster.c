/* SPDX-License-Identifier: MIT-0 */
#include "eb_cluster.h"

enum { HEAD = 24, TAIL = 4, PIECE = 48, TRIES = 4, KNOWN = 0x8000, COUNT = 0x7FFF };
enum { DATA = 0, START = 1, READY = 2, GO = 3 };

static const uint8_t magic[4] = {'E', 'B', 'D', '2'};

typedef struct {
    uint32_t plan, inference, length;
    uint32_t crc; /* with which that of the data goes on */
    uint16_t message;
    uint8_t kind;
} head;

static void put(uint8_t *to, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; ++i) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

static uint32_t get(const uint8_t *from, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; ++i) {
        value |= (uint32_t)from[i] << (8 * i);
    }
    return value;
}

/* CRC-32 (IEEE 802.3), four bits at a time. */
static uint32_t crc_of(uint32_t crc, const uint8_t *data, uint32_t bytes)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    for (uint32_t i = 0; i < bytes; ++i) {
        crc ^= data[i];
        crc = crc >> 4 ^ table[crc & 15u];
        crc = crc >> 4 ^ table[crc & 15u];
    }
    return crc;
}

static uint32_t left(uint32_t begin, uint32_t limit)
{
    const uint32_t gone = eb_link_time_us() - begin;
    return gone < limit ? limit - gone : 0u;
}

/* Sends a head. Returns the status; `crc` gets the checksum with which that of the data goes on. */
static int send_head(const eb_cluster *c, uint8_t to, uint8_t kind, uint16_t message, uint32_t length, uint32_t *crc)
{
    uint8_t h[HEAD];
    for (int i = 0; i < 4; ++i) {
        h[i] = magic[i];
    }
    put(h + 4, c->plan, 4);
    put(h + 8, c->inference, 4);
    put(h + 12, message, 2);
    h[14] = c->self;
    h[15] = kind;
    put(h + 16, length, 4);
    *crc = crc_of(~0u, h, 20);
    put(h + 20, ~*crc, 4);
    return eb_link_send(to, h, HEAD);
}

/* Sends a frame without data. */
static int send_word(const eb_cluster *c, uint8_t to, uint8_t kind, uint16_t message)
{
    uint32_t crc;
    return send_head(c, to, kind, message, 0, &crc);
}

static int is_head(const uint8_t *h)
{
    return get(h, 4) == get(magic, 4) && get(h + 20, 4) == (uint32_t)~crc_of(~0u, h, 20);
}

/* The first place behind h[0] where a frame may begin. */
static uint32_t next_start(const uint8_t *h)
{
    for (uint32_t at = 1; at < HEAD; ++at) {
        uint32_t same = 0;
        while (same < 4u && at + same < HEAD && h[at + same] == magic[same]) {
            ++same;
        }
        if (same == 4u || at + same == HEAD) {
            return at;
        }
    }
    return HEAD;
}

/* Drops the data of a frame. Behind bytes that the port knows to be lost, nothing of the frame is left. */
static void skip(uint8_t from, const head *h, uint32_t begin, uint32_t limit, int *damaged)
{
    uint8_t piece[PIECE];
    for (uint32_t rest = h->kind == DATA ? h->length + TAIL : 0u; rest != 0u;) {
        const uint32_t n = rest < PIECE ? rest : PIECE;
        const int status = eb_link_receive(from, piece, n, left(begin, limit));
        if (status != EB_OK) {
            *damaged |= status == EB_LINK_CRC;
            return;
        }
        rest -= n;
    }
}

static void read_head(const uint8_t *h, head *to)
{
    to->plan = get(h + 4, 4);
    to->inference = get(h + 8, 4);
    to->message = (uint16_t)get(h + 12, 2);
    to->kind = h[15];
    to->length = get(h + 16, 4);
    to->crc = ~get(h + 20, 4);
}

/* The next head of a frame that a device sent. What lies before it and is none is dropped, and so are frames of another
 * sender; `damaged` is set then. */
static int receive_head(uint8_t from, head *next, uint32_t begin, uint32_t limit, int *damaged)
{
    uint8_t h[HEAD];
    uint32_t have = 0;
    for (;;) {
        const int status = eb_link_receive(from, h + have, HEAD - have, left(begin, limit));
        uint32_t start = HEAD; /* of the bytes to keep */
        if (status == EB_OK && is_head(h)) {
            read_head(h, next);
            if (h[14] == from) {
                return EB_OK;
            }
            skip(from, next, begin, limit, damaged);
        } else if (status == EB_OK) {
            start = next_start(h);
        } else if (status != EB_LINK_CRC) { /* else what we have is not the beginning of what comes */
            return *damaged ? EB_LINK_CRC : EB_LINK_TIMEOUT;
        }
        *damaged = 1;
        if (left(begin, limit) == 0u) { /* a link that never falls silent must not hold us */
            return EB_LINK_CRC;
        }
        have = HEAD - start;
        for (uint32_t i = 0; i < have; ++i) {
            h[i] = h[start + i];
        }
    }
}

/* Tells the source that this device is ready, and which inference was the last to go: KNOWN and its number's end. */
static int send_ready(const eb_cluster *c)
{
    return send_word(c, c->source, READY, (uint16_t)(c->gone != 0u ? KNOWN | (c->gone & COUNT) : 0u));
}

/* Whether a device has had the GO of the present inference, or of one to come: then this source has started anew. It
 * goes on behind that inference, so that nothing of it is taken for something new. */
static int is_used(eb_cluster *c, const head *h)
{
    const uint32_t ahead = (h->message - c->inference) & COUNT;
    if ((h->message & KNOWN) == 0 || ahead > COUNT / 2) {
        return 0;
    }
    c->inference += ahead;
    return 1;
}

/* Waits until a device is ready for the present inference; asks again if nothing comes. */
static int await_ready(eb_cluster *c, uint8_t device)
{
    int damaged = 0, tries = 1;
    uint32_t begin = eb_link_time_us();
    for (;;) {
        head h;
        const uint32_t limit = c->timeout_us / 2u;
        int status = receive_head(device, &h, begin, limit, &damaged);
        if (status == EB_OK) {
            if (h.plan != c->plan) {
                skip(device, &h, begin, limit, &damaged);
                return EB_LINK_PLAN;
            }
            if (h.kind == READY && h.inference == c->inference) {
                return is_used(c, &h) ? EB_LINK_ORDER : EB_OK;
            }
            skip(device, &h, begin, limit, &damaged);
            if (left(begin, limit) != 0u) {
                continue;
            }
            status = EB_LINK_TIMEOUT; /* what is not ours goes on coming */
        }
        if (tries++ == TRIES) {
            return status;
        }
        status = send_word(c, device, START, 0);
        if (status != EB_OK) {
            return status;
        }
        begin = eb_link_time_us();
    }
}

static int tell_all(const eb_cluster *c, uint8_t kind)
{
    for (uint8_t device = 0; device < 16u; ++device) {
        if (device != c->self && (c->peers >> device & 1u)) {
            const int status = send_word(c, device, kind, 0);
            if (status != EB_OK) {
                return status;
            }
        }
    }
    return EB_OK;
}

/* Drops what other devices sent in an inference that ended with a code. They send nothing in the next one before the
 * source has heard that this device is ready. */
static void drop_rest(eb_cluster *c)
{
    uint8_t piece[PIECE];
    const uint32_t begin = eb_link_time_us();
    for (uint8_t device = 0; device < 16u && c->broken != 0u; ++device) {
        int status = EB_OK;
        if (device == c->self || device == c->source || (c->peers >> device & 1u) == 0u) {
            continue;
        }
        do {
            status = eb_link_receive(device, piece, PIECE, 0);
        } while (status != EB_LINK_TIMEOUT && left(begin, c->timeout_us) != 0u);
    }
    c->broken = 0;
}

/* Takes down that an inference ended with a code. */
static int ended(eb_cluster *c, int status)
{
    c->broken |= status != EB_OK;
    return status;
}

static int begin_all(eb_cluster *c)
{
    drop_rest(c);
    c->inference += c->inference != UINT32_MAX ? 1u : 2u; /* 0 is none */
    const int status = tell_all(c, START);
    if (status != EB_OK) {
        return status;
    }
    for (uint8_t device = 0; device < 16u; ++device) {
        if (device != c->self && (c->peers >> device & 1u)) {
            const int answer = await_ready(c, device);
            if (answer != EB_OK) {
                return answer;
            }
        }
    }
    c->gone = c->inference;
    return tell_all(c, GO);
}

static int begin_this(eb_cluster *c)
{
    int damaged = 0;
    for (const uint32_t begin = eb_link_time_us(); c->pending == 0u;) {
        head h;
        const int status = receive_head(c->source, &h, begin, c->timeout_us, &damaged);
        if (status != EB_OK) {
            return status;
        }
        skip(c->source, &h, begin, c->timeout_us, &damaged);
        if (h.plan != c->plan) {
            (void)send_word(c, c->source, READY, 0); /* so that the source learns of it */
            return EB_LINK_PLAN;
        }
        if (h.kind == START && h.inference == c->gone) { /* it comes once more, or from a source that has started anew */
            c->inference = h.inference;
            (void)send_ready(c);
        } else if (h.kind == START) {
            c->pending = h.inference;
        }
        if (c->pending == 0u && left(begin, c->timeout_us) == 0u) {
            return EB_LINK_TIMEOUT;
        }
    }
    c->inference = c->pending;
    c->pending = 0;
    drop_rest(c);
    return send_ready(c);
}

int eb_cluster_begin(eb_cluster *c)
{
    return ended(c, c->self == c->source ? begin_all(c) : begin_this(c));
}

int eb_cluster_send(eb_cluster *c, uint16_t message, uint8_t to, const void *x, uint32_t count, uint32_t item,
                    uint32_t wire)
{
    const uint8_t *from = x;
    uint32_t crc;
    int status = send_head(c, to, DATA, message, count * wire, &crc);
    if (wire == item) {
        crc = crc_of(crc, from, count * item);
        status = status != EB_OK ? status : eb_link_send(to, from, count * item);
    } else {
        uint8_t piece[PIECE];
        for (uint32_t done = 0; done < count && status == EB_OK;) {
            uint32_t n = 0;
            for (; n + wire <= PIECE && done < count; ++done) {
                for (uint32_t i = 0; i < wire; ++i) {
                    piece[n++] = from[done * item + i];
                }
            }
            crc = crc_of(crc, piece, n);
            status = eb_link_send(to, piece, n);
        }
    }
    uint8_t end[TAIL];
    put(end, ~crc, TAIL);
    return ended(c, status != EB_OK ? status : eb_link_send(to, end, TAIL));
}

/* The data of a frame, and whether the CRC of its head and the data is right. */
static int receive_data(const eb_cluster *c, uint8_t from, uint32_t crc, void *y, uint32_t count, uint32_t item,
                        uint32_t wire, uint32_t begin)
{
    uint8_t *to = y, end[TAIL];
    int status = EB_OK;
    if (wire == item) {
        status = eb_link_receive(from, to, count * item, left(begin, c->timeout_us));
        crc = crc_of(crc, to, count * item);
    } else {
        uint8_t piece[PIECE];
        for (uint32_t done = 0; done < count && status == EB_OK;) {
            const uint32_t most = PIECE / wire, n = count - done < most ? count - done : most;
            status = eb_link_receive(from, piece, n * wire, left(begin, c->timeout_us));
            crc = crc_of(crc, piece, n * wire);
            for (uint32_t k = 0; k < n; ++k, ++done) {
                const uint8_t sign = piece[k * wire + wire - 1u] & 0x80u ? 0xFFu : 0u;
                for (uint32_t i = 0; i < item; ++i) {
                    to[done * item + i] = i < wire ? piece[k * wire + i] : sign;
                }
            }
        }
    }
    if (status == EB_OK) {
        status = eb_link_receive(from, end, TAIL, left(begin, c->timeout_us));
    }
    if (status != EB_OK) {
        return status;
    }
    return get(end, TAIL) == (uint32_t)~crc ? EB_OK : EB_LINK_CRC;
}

/* How long a device waits for a GO: the source may wait for another one that is busy with an inference before. */
static uint32_t patience(const eb_cluster *c)
{
    return c->timeout_us < UINT32_MAX / 8u ? 3u * c->timeout_us : c->timeout_us;
}

/* Takes a START that comes in an inference. One of this inference comes once more, or from a source that has started
 * anew: either has to hear that this device is ready, and what it knows. */
static int started(eb_cluster *c, const head *h)
{
    if ((int32_t)(h->inference - c->inference) > 0) {
        c->pending = h->inference;
        return EB_LINK_ORDER;
    }
    return h->inference == c->inference ? send_ready(c) : EB_OK;
}

/* Waits for the GO of the present inference, before anything that others than the source send. */
static int await_go(eb_cluster *c)
{
    const uint32_t begin = eb_link_time_us(), limit = patience(c);
    int damaged = 0;
    while (c->gone != c->inference) {
        head h;
        int status = receive_head(c->source, &h, begin, limit, &damaged);
        if (status != EB_OK) {
            return status;
        }
        skip(c->source, &h, begin, limit, &damaged);
        if (h.plan != c->plan) {
            return EB_LINK_PLAN;
        }
        if (h.kind == START) {
            status = started(c, &h);
        } else if (h.kind == GO && h.inference == c->inference) {
            c->gone = c->inference;
            return EB_OK;
        } else if (h.kind == DATA && h.inference == c->inference) { /* the GO before it was lost */
            return damaged ? EB_LINK_CRC : EB_LINK_ORDER;
        }
        if (status != EB_OK) {
            return status;
        }
        if (left(begin, limit) == 0u) {
            return damaged ? EB_LINK_CRC : EB_LINK_TIMEOUT;
        }
    }
    return EB_OK;
}

static int receive(eb_cluster *c, uint16_t message, uint8_t from, void *y, uint32_t count, uint32_t item, uint32_t wire)
{
    if (from != c->source) {
        const int told = await_go(c);
        if (told != EB_OK) {
            return told;
        }
    }
    uint32_t begin = eb_link_time_us(), limit = c->gone == c->inference ? c->timeout_us : patience(c);
    int damaged = 0;
    for (;;) {
        head h;
        const int status = receive_head(from, &h, begin, limit, &damaged);
        if (status != EB_OK) {
            return status;
        }
        const int mine = h.plan == c->plan && h.inference == c->inference;
        if (mine && h.kind == DATA && h.message == message && h.length == count * wire) {
            c->gone = c->inference;
            return receive_data(c, from, h.crc, y, count, item, wire, begin);
        }
        skip(from, &h, begin, limit, &damaged);
        if (h.plan != c->plan) {
            return EB_LINK_PLAN;
        }
        if (h.kind == START && from == c->source) {
            const int answer = started(c, &h);
            if (answer != EB_OK) {
                return answer;
            }
        } else if (mine && h.kind == GO && from == c->source && c->gone != c->inference) {
            c->gone = c->inference;
            begin = eb_link_time_us();
            limit = c->timeout_us;
        } else if (mine && h.kind == DATA && h.message > message) {
            return damaged ? EB_LINK_CRC : EB_LINK_ORDER;
        }
        if (left(begin, limit) == 0u) {
            return damaged ? EB_LINK_CRC : EB_LINK_TIMEOUT;
        }
    }
}

int eb_cluster_receive(eb_cluster *c, uint16_t message, uint8_t from, void *y, uint32_t count, uint32_t item,
                       uint32_t wire)
{
    return ended(c, receive(c, message, from, y, count, item, wire));
}
