/* A link on which something always comes at once: noise, or the same frame again and again. No call may wait for ever.
 * Arguments: role (0 source, 1 device, 2 device in the middle of inference 5), what comes (noise, START of inference 5,
 * READY or DATA of inference 4, DATA of a foreign plan, stranger: what is waited for, by another device). The exit status is the code.
 */
#include "eb_cluster.h"
#include "eb_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 100000 }; /* calls: far more than the time allows */

static uint8_t frame[256];
static uint32_t frame_bytes, at, now;
static int calls, recording;

int eb_link_send(uint8_t to, const void *from, uint32_t bytes)
{
    (void)to;
    if (recording) {
        memcpy(frame + frame_bytes, from, bytes);
        frame_bytes += bytes;
    }
    return EB_OK;
}

int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us)
{
    uint8_t *data = to;
    (void)from;
    (void)timeout_us;
    if (++calls == MOST) {
        fputs("it waits for ever\n", stderr);
        exit(99);
    }
    for (uint32_t i = 0; i < bytes; ++i) {
        data[i] = frame_bytes != 0u ? frame[at] : (uint8_t)rand();
        at = at + 1u < frame_bytes ? at + 1u : 0u;
    }
    return EB_OK;
}

uint32_t eb_link_time_us(void)
{
    return now += 10u;
}

/* Takes down the frame that a device sends. */
static void record(const char *what, uint8_t self)
{
    eb_cluster other = {.plan = 7, .self = self, .source = (uint8_t)!self, .peers = 3, .timeout_us = 1000, .inference = 5};
    uint8_t x[4] = {1, 2, 3, 4};
    recording = 1;
    if (strcmp(what, "DATA") == 0) {
        other.inference = 4; /* the one before */
        (void)eb_cluster_send(&other, 3, 0, x, 4, 1, 1);
    } else if (strcmp(what, "READY") == 0) {
        other.inference = 0;
        other.pending = 4;
        (void)eb_cluster_begin(&other);
    } else if (strcmp(what, "START") == 0) {
        other.source = self;
        other.inference = 4;
        other.timeout_us = 0; /* it gives up at once */
        (void)eb_cluster_begin(&other); /* number 5 */
        frame_bytes = 24; /* it tries more than once */
    } else if (strcmp(what, "stranger") == 0) {
        other.self = 2;
        (void)eb_cluster_send(&other, 3, 0, x, 4, 1, 1);
    } else if (strcmp(what, "foreign") == 0) {
        other.plan = 8;
        (void)eb_cluster_send(&other, 3, 0, x, 4, 1, 1);
    }
    recording = 0;
    calls = 0;
    at = 0;
}

int main(int argc, char **argv)
{
    const int role = argc > 2 ? atoi(argv[1]) : 0;
    record(argc > 2 ? argv[2] : "noise", role == 0);
    eb_cluster c = {.plan = 7, .self = role != 0, .source = 0, .peers = 3, .timeout_us = 1000, .inference = 5};
    uint8_t y[4];
    return role == 2 ? eb_cluster_receive(&c, 3, 0, y, 4, 1, 1) : eb_cluster_begin(&c);
}
