/* SPDX-License-Identifier: MIT-0
 * eb_link.h over SPI with a ready line for each device but the source, which is the controller (medium `kind: star`).
 * The user gives the functions of eb_spi.h, and the numbers EB_LINK_DEVICE and EB_LINK_SOURCE.
 *
 * Both sides exchange blocks of fixed size: a mark, how many bytes are in it, how many the other side may send in its
 * next block, then the bytes. A device prepares its block and raises its line; the controller starts the transfer. A
 * block without a mark is dropped; that what was in it is lost ends the inference with EB_LINK_CRC.
 */
#include "eb_link.h"
#include "eb_ring.h"
#include "eb_spi.h"

#ifndef EB_LINK_DEVICE
#error "EB_LINK_DEVICE is the number of this device"
#endif

#ifndef EB_LINK_SOURCE
#define EB_LINK_SOURCE 0
#endif
#ifndef EB_SPI_BLOCK
#define EB_SPI_BLOCK 64u
#endif
#ifndef EB_SPI_SEND_US
#define EB_SPI_SEND_US 1000000u /* the longest wait for a block to leave */
#endif

_Static_assert(EB_SPI_BLOCK > 3u && EB_SPI_BLOCK <= 258u, "the head of a block counts up to 255 bytes behind it");

enum { DEVICES = 16, MARK = 0xE5, HEAD = 3, PAYLOAD = EB_SPI_BLOCK - HEAD };

typedef struct {
    eb_ring in, out;
    uint32_t room; /* bytes that the next block to it may have */
} peer;

static peer peers[DEVICES];
static uint8_t block_out[EB_SPI_BLOCK], block_in[EB_SPI_BLOCK];

/* Fills the block that goes to a device. */
static void prepare(peer *p)
{
    const uint32_t free_here = eb_ring_room(&p->in), most = p->room < PAYLOAD ? p->room : PAYLOAD;
    const uint32_t offered = free_here > PAYLOAD ? free_here - PAYLOAD : 0u; /* a block may be on its way */
    block_out[0] = MARK;
    block_out[1] = (uint8_t)eb_ring_take(&p->out, block_out + HEAD, most);
    block_out[2] = (uint8_t)(offered < PAYLOAD ? offered : PAYLOAD);
    for (uint32_t i = HEAD + block_out[1]; i < EB_SPI_BLOCK; ++i) {
        block_out[i] = 0;
    }
}

/* Takes the block that has come. */
static void take(peer *p)
{
    if (block_in[0] == MARK && block_in[1] <= PAYLOAD && block_in[2] <= PAYLOAD) {
        if (eb_ring_put(&p->in, block_in + HEAD, block_in[1]) != block_in[1]) {
            eb_ring_lose(&p->in);
        }
        p->room = block_in[2];
    } else {
        eb_ring_lose(&p->in);
    }
}

#if EB_LINK_DEVICE == EB_LINK_SOURCE
/* Exchanges a block with a device that is ready. */
static void poll_peer(uint8_t device)
{
    if (device < DEVICES && eb_spi_ready(device)) {
        peer *const p = &peers[device];
        prepare(p);
        eb_spi_transfer(device, block_out, block_in, EB_SPI_BLOCK);
        take(p);
    }
}
#else
/* Keeps a block ready for the controller. */
static void poll_peer(uint8_t device)
{
    static int armed;
    peer *const p = &peers[device];
    if (armed && eb_spi_done()) {
        armed = 0;
        take(p);
    }
    if (!armed) {
        prepare(p);
        eb_spi_arm(block_out, block_in, EB_SPI_BLOCK);
        armed = 1;
    }
}
#endif

static int is_linked(uint8_t device)
{
    return device < DEVICES && (EB_LINK_DEVICE == EB_LINK_SOURCE || device == EB_LINK_SOURCE);
}

int eb_link_send(uint8_t to, const void *from, uint32_t bytes)
{
    const uint8_t *data = from;
    if (!is_linked(to)) {
        return EB_LINK_TIMEOUT; /* no broadcasts, and the source forwards */
    }
    for (uint32_t start = eb_spi_time_us(); bytes != 0u;) {
        const uint32_t n = eb_ring_put(&peers[to].out, data, bytes);
        data += n;
        bytes -= n;
        poll_peer(to);
        if (n != 0u) {
            start = eb_spi_time_us();
        } else if (eb_spi_time_us() - start > EB_SPI_SEND_US) {
            return EB_LINK_TIMEOUT;
        }
    }
#if EB_LINK_DEVICE == EB_LINK_SOURCE
    for (const uint32_t start = eb_spi_time_us(); eb_ring_count(&peers[to].out) != 0u;) {
        poll_peer(to); /* nobody else would start the transfer while this device computes */
        if (eb_spi_time_us() - start > EB_SPI_SEND_US) {
            peers[to].out.taken = peers[to].out.written; /* it is gone; nothing old is sent to it later */
            return EB_LINK_TIMEOUT;
        }
    }
#endif
    return EB_OK;
}

int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us)
{
    uint8_t *data = to;
    const uint32_t start = eb_spi_time_us();
    while (is_linked(from) && bytes != 0u) {
        poll_peer(from);
        uint32_t n;
        if (eb_ring_next(&peers[from].in, data, bytes, &n) != EB_OK) {
            return EB_LINK_CRC;
        }
        data += n;
        bytes -= n;
        if (n == 0u && eb_spi_time_us() - start >= timeout_us) {
            break;
        }
    }
    return bytes == 0u ? EB_OK : EB_LINK_TIMEOUT;
}

uint32_t eb_link_time_us(void)
{
    return eb_spi_time_us();
}
