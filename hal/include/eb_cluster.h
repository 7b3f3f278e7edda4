/* SPDX-License-Identifier: MIT-0
 * Messages of an inference that runs on several devices. Generated code calls these functions.
 *
 * A frame, numbers in little endian: "EBD2", hash of the plan (4), number of the inference (4), number of the message
 * (2), sender (1), kind (1), bytes of data (4), CRC-32 of these 20 bytes (4). A message goes on with the data and the
 * CRC-32 of those 20 bytes and the data, so that the data of one frame is never taken for those of another.
 *
 * The source begins an inference with a START to each device and waits for its READY. When all are ready, each gets a
 * GO, for which it listens to the source alone: so all begin to wait for each other at once, and one that was late with
 * an inference before makes nobody late with this one. Frames of another inference are dropped, so nothing late is
 * taken for something new. A repeated frame is dropped, too, and one of another sender. What is lost or damaged ends the
 * inference with a code. What nobody has read of it is dropped when the next one begins, which works, or the one behind
 * it if the medium lost the end of what it sent.
 *
 * A source that has started anew counts from 1 again, and frames of the inference that it was in may still be on their
 * way. So a READY says for which inference the device last had a GO. If that is not over for the source, its
 * inference ends with EB_LINK_ORDER, and it counts on from there.
 */
#ifndef EB_CLUSTER_H
#define EB_CLUSTER_H

#include "eb_link.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    uint32_t plan;       /* devices of one plan work together, others do not */
    uint32_t timeout_us; /* the longest wait for a message */
    uint16_t peers;      /* bit k: device k takes part */
    uint8_t self, source;
    uint32_t inference; /* the present one */
    uint32_t pending;   /* one that the source has begun while this device was busy with another; or 0 */
    uint32_t gone;      /* the last one for which this device had a GO, or data behind a lost one */
    uint32_t broken;    /* not 0: the last one ended with a code, and what nobody has read of it may lie in queues */
} eb_cluster;

/* The source: begins an inference on all devices. Others: waits until the source does. Returns a code of eb_link.h. */
int eb_cluster_begin(eb_cluster *cluster);

/* Both: `count` elements of `item` bytes, of which the low `wire` bytes are sent (the rest is the sign).
 * Messages from one device to another are received in the order of their numbers. */
int eb_cluster_send(eb_cluster *cluster, uint16_t message, uint8_t to, const void *x, uint32_t count, uint32_t item,
                    uint32_t wire);
int eb_cluster_receive(eb_cluster *cluster, uint16_t message, uint8_t from, void *y, uint32_t count, uint32_t item,
                       uint32_t wire);

#ifdef __cplusplus
}
#endif
#endif
