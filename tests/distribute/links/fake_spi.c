/* An SPI with ready lines. A device that is armed sends its block as a datagram, which is also its line; the controller's
 * block is the answer. A harmed block has no mark. */
#include "eb_spi.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "wire.h"

enum { MOST = 256 };

static uint8_t waiting[16][MOST];
static int is_ready[16], armed;
static uint8_t *armed_in;
static uint32_t armed_bytes;
static uint32_t seed = 99;

static void harm(uint8_t *block)
{
    const char *often = getenv("EB_LINK_HARM");
    char file[256] = "";
    strcat(strcat(file, getenv("EB_LINK_FOLDER")), "/calm");
    seed = seed * 1664525u + 1013904223u;
    if (often != NULL && atoi(often) != 0 && (seed >> 8) % (uint32_t)atoi(often) == 0u && access(file, F_OK) != 0) {
        block[0] = 0;
    }
}

int eb_spi_ready(uint8_t device)
{
    uint8_t frame[MOST + 1];
    wire_open(EB_LINK_DEVICE);
    const int n = wire_receive(frame, sizeof frame);
    if (n > 1 && frame[0] < 16) {
        memcpy(waiting[frame[0]], frame + 1, (size_t)n - 1u);
        is_ready[frame[0]] = 1;
    }
    return is_ready[device];
}

void eb_spi_transfer(uint8_t device, const uint8_t *out, uint8_t *in, uint32_t bytes)
{
    uint8_t frame[MOST];
    memcpy(frame, out, bytes);
    harm(frame);
    memcpy(in, waiting[device], bytes);
    harm(in);
    is_ready[device] = 0;
    (void)wire_send(device, frame, bytes, 1);
}

void eb_spi_arm(const uint8_t *out, uint8_t *in, uint32_t bytes)
{
    uint8_t frame[MOST + 1];
    wire_open(EB_LINK_DEVICE);
    frame[0] = EB_LINK_DEVICE;
    memcpy(frame + 1, out, bytes);
    while (!wire_send(EB_LINK_SOURCE, frame, bytes + 1u, 1)) { /* the controller has not started yet */
    }
    armed = 1;
    armed_in = in;
    armed_bytes = bytes;
}

int eb_spi_done(void)
{
    uint8_t frame[MOST];
    if (armed && wire_receive(frame, sizeof frame) == (int)armed_bytes) {
        memcpy(armed_in, frame, armed_bytes);
        armed = 0;
    }
    return !armed;
}

uint32_t eb_spi_time_us(void)
{
    return wire_time_us();
}
