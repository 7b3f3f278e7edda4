/* SPDX-License-Identifier: MIT-0
 * eb_link.h over CAN with flexible data rate: frames of up to 64 bytes. The user gives the three functions of
 * eb_can.h, and the number of this device as EB_LINK_DEVICE.
 *
 * The identifier says who sends and who shall receive: EB_CAN_BASE + 32 * receiver + sender. The first byte of a frame
 * counts the frames to this receiver, the second says how many bytes follow, and whether this is the first frame since
 * the sender started; the rest fills the frame up to a length that CAN has. What comes twice or too late is dropped. A
 * gap in the counts, or a queue that is full while nobody reads it, ends the inference with EB_LINK_CRC.
 */
#include "eb_can.h"
#include "eb_link.h"
#include "eb_ring.h"

#ifndef EB_CAN_BASE
#define EB_CAN_BASE 0x200u
#endif
#ifndef EB_CAN_SEND_US
#define EB_CAN_SEND_US 1000000u /* the longest wait for a free place to send from */
#endif

#ifndef EB_LINK_DEVICE
#error "EB_LINK_DEVICE is the number of this device"
#endif

enum { DEVICES = 16, ALL = 31, LONGEST = 64, HEAD = 2, FIRST = 0x80, MOST = 64, NOBODY = 255 };

typedef struct {
    eb_counts counts[2]; /* of frames to this device and to all */
    eb_ring in;
} peer;

static peer peers[DEVICES];
static uint8_t reading = NOBODY; /* the device for whose bytes this one waits */
static uint8_t sent[ALL + 1], begun[ALL + 1]; /* frames to each receiver, modulo 256; and whether there were any */

/* The least length of a frame that holds so many bytes (ISO 11898-1, DLC). */
static uint8_t length_of(uint32_t bytes)
{
    static const uint8_t lengths[] = {8, 12, 16, 20, 24, 32, 48, 64};
    uint32_t i = 0;
    while (lengths[i] < bytes) {
        ++i;
    }
    return bytes <= 8u ? (uint8_t)bytes : lengths[i];
}

/* Brings frames that have come to their queues. One that finds its queue full waits for the reader. If that waits for
 * another device, what is in the queue was left by an inference that has ended, and would hold up all others' frames for
 * ever. There may be so many frames for others that they never end. */
static void poll_frames(void)
{
    static uint8_t frame[LONGEST];
    static uint32_t id;
    static uint8_t length; /* of a frame that waits for room; 0: none */
    for (int most = MOST; most != 0 && (length != 0u || eb_can_receive(&id, frame, &length)); --most) {
        const uint32_t to = (id - EB_CAN_BASE) >> 5, from = (id - EB_CAN_BASE) & 31u, all = to == ALL;
        const uint32_t count = length >= HEAD ? frame[1] & 63u : 0u;
        if (from < DEVICES && (all || to == EB_LINK_DEVICE) && count + HEAD <= length) {
            peer *const p = &peers[from];
            const int is_full = eb_ring_room(&p->in) < count;
            if (is_full && (reading == from || reading == NOBODY)) {
                return;
            }
            const int is = eb_packet(&p->counts[all], frame[0], 0xFF, (frame[1] & FIRST) != 0);
            if (is == EB_PACKET_BEHIND_GAP) {
                eb_ring_lose(&p->in);
            }
            if (is != EB_PACKET_OLD) {
                if (is_full) {
                    eb_ring_forget(&p->in);
                }
                (void)eb_ring_put(&p->in, frame + HEAD, count);
            }
        }
        length = 0;
    }
}

int eb_link_send(uint8_t to, const void *from, uint32_t bytes)
{
    const uint8_t *data = from;
    const uint32_t receiver = to == EB_LINK_ALL ? (uint32_t)ALL : to;
    if (receiver != ALL && receiver >= DEVICES) {
        return EB_LINK_TIMEOUT;
    }
    while (bytes != 0u) {
        uint8_t frame[LONGEST] = {0};
        const uint32_t n = bytes < LONGEST - HEAD ? bytes : LONGEST - HEAD;
        frame[0] = sent[receiver];
        frame[1] = (uint8_t)(n | (begun[receiver] ? 0u : (uint32_t)FIRST));
        for (uint32_t i = 0; i < n; ++i) {
            frame[HEAD + i] = data[i];
        }
        const uint32_t start = eb_link_time_us();
        while (!eb_can_send(EB_CAN_BASE + 32u * receiver + EB_LINK_DEVICE, frame, length_of(n + HEAD))) {
            poll_frames();
            if (eb_link_time_us() - start > EB_CAN_SEND_US) {
                return EB_LINK_TIMEOUT;
            }
        }
        ++sent[receiver];
        begun[receiver] = 1;
        data += n;
        bytes -= n;
    }
    return EB_OK;
}

int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us)
{
    if (from >= DEVICES) {
        return EB_LINK_TIMEOUT;
    }
    reading = from;
    const int status = eb_ring_receive(&peers[from].in, to, bytes, timeout_us, poll_frames);
    reading = NOBODY;
    return status;
}

uint32_t eb_link_time_us(void)
{
    return eb_can_time_us();
}
