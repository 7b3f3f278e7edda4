#define _GNU_SOURCE
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

int eb_relay_over; /* of hal/harness/node.c: the parent ends this process */

static int own = -1;
static uint32_t seed;
static uint8_t held[2048];
static int held_bytes;

static struct sockaddr_un address_of(int device)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s/%d.wire", getenv("EB_LINK_FOLDER"), device);
    return a;
}

void wire_open(int self)
{
    if (own >= 0) {
        return;
    }
    const struct sockaddr_un a = address_of(self);
    unlink(a.sun_path);
    own = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (bind(own, (const struct sockaddr *)&a, sizeof a) != 0) {
        perror(a.sun_path);
        exit(1);
    }
    seed = 12345u + (uint32_t)self;
}

static uint32_t next_random(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

static int send_now(int to, const void *data, uint32_t bytes)
{
    const struct sockaddr_un a = address_of(to);
    for (int tries = 0; tries < 5000; ++tries) { /* the other one's queue may be full for a while */
        if (sendto(own, data, bytes, MSG_DONTWAIT, (const struct sockaddr *)&a, sizeof a) == (ssize_t)bytes) {
            return 1;
        }
        if (errno != EAGAIN && errno != ENOBUFS) {
            return 0;
        }
        usleep(100);
    }
    return 0;
}

static int is_calm(void)
{
    char file[256];
    snprintf(file, sizeof file, "%s/calm", getenv("EB_LINK_FOLDER"));
    return access(file, F_OK) == 0;
}

int wire_send(int to, const void *data, uint32_t bytes, int harmless)
{
    const char *harm = getenv("EB_LINK_HARM");
    const uint32_t often = harm != NULL && !harmless ? (uint32_t)atoi(harm) : 0u;
    if (often != 0u && next_random() % often == 0u && !is_calm()) {
        switch (next_random() % 3u) {
        case 0:
            return 1; /* lost */
        case 1:
            (void)send_now(to, data, bytes); /* and once more below */
            break;
        default: /* the next one overtakes it */
            if (held_bytes == 0) {
                memcpy(held, data, bytes);
                held_bytes = (int)bytes;
                return 1;
            }
        }
    }
    const int sent = send_now(to, data, bytes);
    if (held_bytes != 0) {
        (void)send_now(to, held, (uint32_t)held_bytes);
        held_bytes = 0;
    }
    return sent;
}

int wire_receive(void *data, uint32_t most)
{
    struct pollfd p = {.fd = own, .events = POLLIN};
    if (poll(&p, 1, 1) <= 0) {
        return 0;
    }
    const ssize_t n = recv(own, data, most, MSG_DONTWAIT);
    return n > 0 ? (int)n : 0;
}

uint32_t wire_time_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)now.tv_sec * 1000000u + (uint32_t)(now.tv_nsec / 1000);
}
