/* Streams for a receiver of hal/src/cluster.c: true frames of several messages and inferences, of which a medium loses,
 * repeats, joins, swaps, damages and cuts some. Arguments: first seed, count, 1 to describe each fault.
 *
 * Every payload that is accepted must be the one that its sender sent in this inference with this number, and when the
 * medium has fallen silent, the second inference from then on must be right. Prints one line of JSON. The exit status is 1
 * if a payload was wrong, or a receiver did not recover.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "medium.h"

enum { MESSAGES = 4, INFERENCES = 5, HARMED = 3, POOL = 1024, LONGEST = 192, TIMEOUT_US = 20000, IDLE_US = 2500 };
enum { BUSY = 128 }; /* looks for packets that take no time: a receiver takes out what has come long ago */
enum { ENDLESS = 1 << 20 }; /* looks at the clock in one stream: more than any wait takes */
enum { HEAD = 24, START = 1, READY = 2, GO = 3, KNOWN = 0x8000 };

typedef struct {
    uint32_t bytes;
    uint8_t sender, lost, stage;
    uint8_t data[PACKET];
} packet;

typedef struct {
    uint16_t number;
    uint8_t sender;
    uint32_t count, item, wire;
    uint8_t truth[INFERENCES][LONGEST];
} message;

static packet pool[POOL], *order[POOL], *undelivered[POOL];
static uint32_t pooled, ordered, waiting, released, stage, now, looks, silent;
static uint64_t state, stream;
static int recording;
static uint32_t receiver_is_source;
static uint32_t inferences[INFERENCES], plan, messages;
static message sent[MESSAGES];
static uint8_t magic[4];
static const node *const nodes[DEVICES_HERE] = {&node0, &node1, &node2};
static uint64_t accepted, wrong, stuck, codes[5];
static int verbose;

static uint32_t any(void)
{
    state += 0x9E3779B97F4A7C15u; /* splitmix64 (Steele, Lea and Flood 2014) */
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)((z ^ z >> 31) >> 16);
}

static uint32_t below(uint32_t limit)
{
    return limit < 2u ? 0u : any() % limit;
}

/* ---- the medium */

void medium_send(uint8_t sender, uint8_t to, const void *data, uint32_t bytes)
{
    if (!recording || to != RECEIVER || pooled == POOL || bytes > PACKET) {
        return;
    }
    packet *const p = &pool[pooled++];
    p->sender = sender;
    p->lost = 0;
    p->stage = (uint8_t)stage;
    p->bytes = bytes;
    memcpy(p->data, data, bytes);
    order[ordered++] = p;
}

static void release(uint32_t to)
{
    released = released < to ? to : released;
}

void medium_watch(uint8_t sender, const void *data, uint32_t bytes)
{
    uint8_t head[HEAD];
    uint32_t number;
    if (sender != RECEIVER || bytes != HEAD) {
        return;
    }
    memcpy(head, data, HEAD);
    number = head[8] | (uint32_t)head[9] << 8 | (uint32_t)head[10] << 16 | (uint32_t)head[11] << 24;
    for (uint32_t i = 0; i < INFERENCES; ++i) {
        if (inferences[i] == number) {
            release(2u * i + (head[15] != START)); /* a READY or a GO lets others send data */
        }
    }
}

int medium_next(int from, uint8_t *sender, const uint8_t **data, uint32_t *bytes, int *lost)
{
    for (uint32_t i = 0; i < waiting; ++i) {
        packet *const p = undelivered[i];
        if (p->stage <= released && (from < 0 || from == p->sender)) {
            memmove(undelivered + i, undelivered + i + 1, (--waiting - i) * sizeof *undelivered);
            *sender = p->sender;
            *data = p->data;
            *bytes = p->bytes;
            *lost = p->lost;
            silent = 0;
            return 1;
        }
    }
    return 0;
}

void medium_idle(void)
{
    now += ++silent > BUSY ? IDLE_US : 0u;
}

uint32_t medium_time(void)
{
    if (++looks == ENDLESS) {
        fprintf(stderr, "stream %llu: it waits for ever\n", (unsigned long long)stream);
        exit(2);
    }
    return ++now;
}

/* ---- what is sent */

static void put(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; ++i) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

/* CRC-32 of IEEE 802.3, bit by bit. */
static uint32_t crc_of(const uint8_t *data, uint32_t bytes)
{
    uint32_t crc = ~0u;
    for (uint32_t i = 0; i < bytes; ++i) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; ++bit) {
            crc = crc >> 1 ^ (crc & 1u ? 0xEDB88320u : 0u);
        }
    }
    return ~crc;
}

static void send_word(uint8_t sender, uint8_t kind, uint32_t inference, uint16_t number)
{
    uint8_t h[HEAD] = {magic[0], magic[1], magic[2], magic[3]};
    put(h + 4, plan);
    put(h + 8, inference);
    h[12] = (uint8_t)number;
    h[13] = (uint8_t)(number >> 8);
    h[14] = sender;
    h[15] = kind;
    put(h + 20, crc_of(h, 20));
    (void)nodes[sender]->link_send(RECEIVER, h, HEAD);
}

/* All that the other devices send in an inference. */
static void send_inference(uint32_t i)
{
    stage = 2u * i;
    recording = 1;
    if (receiver_is_source) {
        send_word(0, READY, inferences[i], below(2) ? 0 : KNOWN | ((inferences[i] - 1u) & 0x7FFFu));
        send_word(2, READY, inferences[i], 0);
    } else {
        send_word(0, START, inferences[i], 0);
        stage = 2u * i + 1u;
        send_word(0, GO, inferences[i], 0);
    }
    stage = 2u * i + 1u;
    for (uint32_t m = 0; m < messages; ++m) {
        const message *const it = &sent[m];
        eb_cluster c = {.plan = plan, .timeout_us = TIMEOUT_US, .peers = 7, .self = it->sender, .source = RECEIVER};
        c.inference = inferences[i];
        (void)nodes[it->sender]->send(&c, it->number, RECEIVER, it->truth[i], it->count, it->item, it->wire);
    }
    recording = 0;
}

/* The payloads of a message; `i` of a message with fewer bytes on the wire than in memory are sums, with their signs. */
static void draw_payloads(message *it)
{
    const uint32_t bytes = it->count * it->item, manner = below(8);
    for (uint32_t i = 0; i < INFERENCES; ++i) {
        const uint8_t fill = (uint8_t)any();
        for (uint32_t k = 0; k < bytes; ++k) {
            it->truth[i][k] = manner == 0u ? fill : manner == 1u && i != 0u ? it->truth[i - 1u][k] : (uint8_t)any();
        }
        it->truth[i][below(bytes)] ^= (uint8_t)(1u + below(255));
        for (uint32_t k = 0; it->wire < it->item && k < it->count; ++k) {
            uint8_t *const value = it->truth[i] + k * it->item;
            memset(value + it->wire, value[it->wire - 1u] & 0x80u ? 0xFF : 0, it->item - it->wire);
        }
    }
}

static void draw(void)
{
    static const uint32_t firsts[] = {1, 0x7FFE, 0xFFFE, 0x7FFFFFFE, 0xFFFFFFFD};
    const uint32_t length = 4u * (1u + below(24)), base = below(3) ? below(8) : below(65000);
    uint32_t number = base; /* of the message before */
    plan = any();
    messages = 1u + below(MESSAGES);
    inferences[0] = below(2) ? firsts[below(5)] : any();
    for (uint32_t i = 0; i < INFERENCES; ++i) {
        const uint32_t before = i != 0u ? inferences[i - 1u] : inferences[0] - 1u;
        inferences[i] = before + 1u != 0u ? before + 1u : 1u;
    }
    for (uint32_t m = 0; m < messages; ++m) {
        message *const it = &sent[m];
        const uint32_t bytes = below(4) ? length : 1u + below(LONGEST), kind = below(6);
        const int is_twin = SENDERS > 1 && m % 2u == 1u && below(2); /* the same number, of another device */
        number += is_twin ? 0u : 1u + below(3) / 2u;
        it->number = (uint16_t)number;
        it->sender = SENDERS > 1 && (is_twin ? sent[m - 1u].sender == 0 : below(2)) ? 2 : 0;
        it->item = kind < 2u ? 4u : 1u;
        it->wire = kind == 0u ? 3u : it->item;
        it->count = (bytes + it->item - 1u) / it->item;
        draw_payloads(it);
    }
}

/* ---- what the medium does */

static packet *copy_of(const packet *p)
{
    if (pooled == POOL) {
        return NULL;
    }
    pool[pooled] = *p;
    return &pool[pooled++];
}

static void take_out(uint32_t at, uint32_t count)
{
    if (at + count < ordered && below(2)) {
        order[at + count]->lost = 1;
    }
    memmove(order + at, order + at + count, (ordered - at - count) * sizeof *order);
    ordered -= count;
}

static void put_in(uint32_t at, packet *p)
{
    if (p != NULL && ordered < POOL) {
        memmove(order + at + 1, order + at, (ordered - at) * sizeof *order);
        order[at] = p;
        ++ordered;
    }
}

/* Bytes are lost from the middle of a packet on to the middle of another. */
static void lose_bytes(uint32_t at)
{
    packet *const p = order[at];
    uint32_t rest = 1u + below(below(2) ? 8u : 300u), from = below(p->bytes);
    for (uint32_t k = at; k < ordered && rest != 0u; ++k, from = 0) {
        packet *const it = order[k];
        const uint32_t n = rest < it->bytes - from ? rest : it->bytes - from;
        memmove(it->data + from, it->data + from + n, it->bytes - from - n);
        it->bytes -= n;
        rest -= n;
    }
}

static void harm(void)
{
    const uint32_t at = below(ordered), other = below(ordered);
    packet *const p = order[at], *q;
    switch (below(14)) {
    case 0: /* a burst is lost */
    case 1:
        take_out(at, 1u + below(ordered - at < 6u ? ordered - at : 6u));
        break;
    case 2:
        lose_bytes(at);
        break;
    case 3: /* two are swapped */
        order[at] = order[other];
        order[other] = p;
        break;
    case 4: /* some come once more */
        for (uint32_t k = 0, n = 1u + below(5); k < n && at + k < ordered; ++k) {
            put_in(other + k < ordered ? other + k : ordered, copy_of(order[at + k]));
        }
        break;
    case 5: /* one is late or early */
        take_out(at, 1);
        put_in(below(ordered + 1u), p);
        break;
    case 6: /* bits are wrong */
        for (uint32_t k = 0, n = 1u + below(3); k < n && p->bytes != 0u; ++k) {
            const uint32_t where = p->bytes >= HEAD && below(2) ? 8u + below(8) : below(p->bytes); /* often in a head */
            p->data[where] ^= (uint8_t)(1u << below(8));
        }
        break;
    case 7: /* a burst of bytes is wrong */
        for (uint32_t k = below(p->bytes), n = 1u + below(8); n != 0u && k < p->bytes; ++k, --n) {
            p->data[k] = (uint8_t)any();
        }
        break;
    case 8: /* one is cut short */
        p->bytes = below(p->bytes);
        break;
    case 9: /* noise comes between */
        q = copy_of(p);
        if (q != NULL) {
            q->bytes = 1u + below(60);
            for (uint32_t k = 0; k < q->bytes; ++k) {
                q->data[k] = (uint8_t)any();
            }
            put_in(other, q);
        }
        break;
    case 10: /* the end of one is that of another */
        q = order[other];
        for (uint32_t k = below(p->bytes); k < p->bytes && k < q->bytes; ++k) {
            p->data[k] = q->data[k];
        }
        break;
    case 11: /* one comes from another device */
        for (uint32_t k = at, n = below(2) ? 3u : 1u + below(4); n != 0u && k < ordered; ++k, --n) {
            order[k]->sender ^= 2;
        }
        break;
    case 12: { /* a whole frame of the same plan, inference and number, but of another length */
        const message *const it = &sent[below(messages)];
        eb_cluster c = {.plan = plan, .peers = 7, .self = it->sender, .source = RECEIVER};
        const uint32_t from = ordered, i = below(HARMED), count = 1u + below(LONGEST / it->item);
        c.inference = inferences[i];
        stage = 2u * i + 1u;
        recording = 1;
        (void)nodes[it->sender]->send(&c, it->number, RECEIVER, it->truth[i], count, it->item, it->wire);
        recording = 0;
        for (uint32_t k = 0; from + k < ordered && count != it->count; ++k) { /* in front of what it was behind */
            packet *const moved = order[from + k];
            memmove(order + at + k + 1u, order + at + k, (from - at) * sizeof *order);
            order[at + k] = moved;
        }
        break;
    }
    default: /* what is in front is another number, such as a count of the port */
        if (p->bytes > 8u) {
            p->data[below(8)] = (uint8_t)any();
        }
    }
}

/* ---- the receiver */

static void report(const char *what, uint32_t inference, uint32_t number)
{
    if (verbose) {
        fprintf(stderr, "stream %llu: inference %u, message %u: %s\n", (unsigned long long)stream, (unsigned)inference,
                (unsigned)number, what);
    }
}

static void judge(uint32_t inference, const message *it, const uint8_t *y)
{
    for (uint32_t i = 0; i < INFERENCES; ++i) {
        if (inferences[i] == inference && memcmp(y, it->truth[i], it->count * it->item) == 0) {
            ++accepted;
            return;
        }
    }
    ++wrong;
    report("a wrong payload", inference, it->number);
}

/* One inference of the receiver, to its end or to a code. */
static int receive(eb_cluster *c)
{
    static uint8_t room[LONGEST];
    int status = nodes[RECEIVER]->begin(c);
    for (uint32_t m = 0; m < messages && status == EB_OK; ++m) {
        const message *const it = &sent[m];
        uint8_t *const y = room + LONGEST - it->count * it->item; /* what is behind it is seen by a sanitizer */
        status = nodes[RECEIVER]->receive(c, it->number, it->sender, y, it->count, it->item, it->wire);
        if (status == EB_OK) {
            judge(c->inference, it, y);
        }
    }
    ++codes[status];
    return status;
}

static void deliver(void)
{
    memcpy(undelivered + waiting, order, ordered * sizeof *order);
    waiting += ordered;
    ordered = 0;
}

static void run(void)
{
    pooled = ordered = waiting = released = looks = 0;
    now = any();
    for (int k = 0; k < DEVICES_HERE; ++k) {
        nodes[k]->reset();
    }
    receiver_is_source = SENDERS > 1 && below(4) == 0u;
    draw();
    for (uint32_t i = 0; i < HARMED; ++i) {
        send_inference(i);
    }
    for (uint32_t k = below(5); k != 0u && ordered != 0u; --k) {
        harm();
    }
    deliver();
    eb_cluster c = {.plan = plan, .timeout_us = TIMEOUT_US, .peers = 7, .self = RECEIVER};
    c.source = receiver_is_source ? RECEIVER : 0;
    c.inference = receiver_is_source ? inferences[0] - 1u : 0u;
    for (uint32_t k = 0; k < HARMED; ++k) {
        release(2u * k - (receiver_is_source && k != 0u)); /* with it comes what is late of those before */
        (void)receive(&c);
    }
    int last = EB_OK;
    for (uint32_t i = HARMED; i < INFERENCES; ++i) {
        release(2u * i - 1u); /* what is late comes now */
        for (int quiet = 0; !receiver_is_source && quiet < 2;) {
            quiet = receive(&c) == EB_LINK_TIMEOUT ? quiet + 1 : 0;
        }
        send_inference(i);
        deliver();
        release(2u * i - receiver_is_source);
        if (receiver_is_source) {
            c.inference = inferences[i] - 1u;
        }
        last = receive(&c);
        while (last == EB_OK && !receiver_is_source && c.inference != inferences[i]) {
            last = receive(&c); /* that was an older one, all of which has come again */
        }
    }
    if (last != EB_OK) {
        ++stuck;
        report("not recovered", c.inference, (uint32_t)last);
    }
}

int main(int argc, char **argv)
{
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    const uint8_t nothing[4] = {0};
    verbose = argc > 3 && atoi(argv[3]) != 0;
    eb_cluster c = {.plan = 1, .timeout_us = 1, .self = 0};
    recording = 1; /* how a frame begins */
    node0.reset();
    (void)node0.send(&c, 0, RECEIVER, nothing, 4, 1, 1);
    for (uint32_t k = 0; k < pooled; ++k) {
        for (uint32_t at = 0; at + 4u <= pool[k].bytes && magic[0] == 0; ++at) {
            if (memcmp(pool[k].data + at, "EBD", 3) == 0) {
                memcpy(magic, pool[k].data + at, 4);
            }
        }
    }
    recording = 0;
    for (stream = first; stream < first + count; ++stream) {
        state = stream * 0xD1342543DE82EF95u;
        run();
    }
    printf("{\"streams\": %llu, \"accepted\": %llu, \"wrong\": %llu, \"not_recovered\": %llu, \"codes\": [",
           (unsigned long long)count, (unsigned long long)accepted, (unsigned long long)wrong,
           (unsigned long long)stuck);
    for (int k = 0; k < 5; ++k) {
        printf("%s%llu", k != 0 ? ", " : "", (unsigned long long)codes[k]);
    }
    printf("]}\n");
    return wrong != 0u || stuck != 0u;
}
