/* SPDX-License-Identifier: MIT-0
 * eb_link.h on a machine with POSIX sockets: each device is a process. The environment names a folder for the sockets,
 * EB_LINK_FOLDER (default: this one), and the number of the device, EB_LINK_DEVICE.
 *
 * Device k listens on FOLDER/k.sock. A sender connects there, says who it is with one byte, and keeps the connection
 * for all that it sends. One that has broken is made anew for the next frame.
 */
#define _POSIX_C_SOURCE 200809L
#include "eb_link.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { DEVICES = 16, PATIENCE_MS = 2000 };

static int self = -1, listener = -1, out[DEVICES], in[DEVICES];

static struct sockaddr_un address_of(int device)
{
    const char *folder = getenv("EB_LINK_FOLDER");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/%d.sock", folder != NULL ? folder : ".", device);
    return address;
}

static int begin(void)
{
    if (self >= 0) {
        return EB_OK;
    }
    const char *number = getenv("EB_LINK_DEVICE");
    self = number != NULL ? atoi(number) : 0;
    for (int i = 0; i < DEVICES; ++i) {
        out[i] = in[i] = -1;
    }
    const struct sockaddr_un own = address_of(self);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)unlink(own.sun_path);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(listener, (const struct sockaddr *)&own, sizeof own) != 0 || listen(listener, DEVICES) != 0) {
        perror(own.sun_path);
        exit(1);
    }
    return EB_OK;
}

static void connect_to(int device)
{
    const struct sockaddr_un address = address_of(device);
    const uint8_t me = (uint8_t)self;
    for (int tries = 0; out[device] < 0 && tries < PATIENCE_MS / 10; ++tries) { /* it may not have started yet */
        const int file = socket(AF_UNIX, SOCK_STREAM, 0);
        (void)fcntl(file, F_SETFL, O_NONBLOCK); /* a device that accepts nobody must not hold us */
        if (connect(file, (const struct sockaddr *)&address, sizeof address) == 0 && write(file, &me, 1) == 1) {
            out[device] = file;
        } else {
            (void)close(file);
            (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        }
    }
}

int eb_link_send(uint8_t to, const void *from, uint32_t bytes)
{
    (void)begin();
    if (to >= DEVICES) {
        return EB_LINK_TIMEOUT; /* no broadcasts */
    }
    if (out[to] < 0) {
        connect_to(to);
    }
    const uint8_t *data = from;
    while (bytes != 0u && out[to] >= 0) {
        struct pollfd file = {.fd = out[to], .events = POLLOUT};
        const int ready = poll(&file, 1, PATIENCE_MS); /* one that lives and never reads must not hold us */
        const ssize_t n = ready > 0 ? write(out[to], data, bytes) : ready;
        if (n > 0) {
            data += n;
            bytes -= (uint32_t)n;
        } else if (ready == 0 || (errno != EINTR && errno != EAGAIN)) {
            (void)close(out[to]);
            out[to] = -1;
        }
    }
    return bytes == 0u ? EB_OK : EB_LINK_TIMEOUT;
}

/* Takes a connection; 0 if that fails. */
static int accept_one(void)
{
    const int file = accept(listener, NULL, NULL);
    struct pollfd its = {.fd = file, .events = POLLIN};
    uint8_t who = DEVICES;
    if (file >= 0 && poll(&its, 1, PATIENCE_MS) > 0 && read(file, &who, 1) == 1 && who < DEVICES) {
        if (in[who] >= 0) {
            (void)close(in[who]); /* it has started anew */
        }
        in[who] = file;
        return 1;
    }
    if (file >= 0) {
        (void)close(file);
    }
    return 0;
}

int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us)
{
    (void)begin();
    const uint32_t start = eb_link_time_us();
    uint8_t *data = to;
    while (from < DEVICES && bytes != 0u) {
        const uint32_t gone = eb_link_time_us() - start;
        struct pollfd files[2] = {{.fd = listener, .events = POLLIN}, {.fd = in[from], .events = POLLIN}};
        const int ready = poll(files, 2, gone < timeout_us ? (int)((timeout_us - gone + 999u) / 1000u) : 0);
        if (ready <= 0 || (files[0].revents != 0 && !accept_one())) {
            if (gone >= timeout_us) {
                return EB_LINK_TIMEOUT;
            }
        } else if (files[0].revents == 0) {
            const ssize_t n = read(in[from], data, bytes);
            if (n > 0) {
                data += n;
                bytes -= (uint32_t)n;
            } else if (n == 0 || errno != EINTR) {
                (void)close(in[from]);
                in[from] = -1;
            }
        }
    }
    return bytes == 0u ? EB_OK : EB_LINK_TIMEOUT;
}

uint32_t eb_link_time_us(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)now.tv_sec * 1000000u + (uint32_t)(now.tv_nsec / 1000);
}
