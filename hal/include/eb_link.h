/* SPDX-License-Identifier: MIT-0
 * The medium between the devices of a cluster. A port to a real medium is these three functions; hal/src/cluster.c
 * makes messages of them. hal/src/link_relay.c is a port for simulation.
 *
 * A link carries bytes. Those from one device to another arrive in the order in which they are sent, or not at all; a
 * port need not notice that some are lost, repeated or damaged. One that notices says so at that place.
 */
#ifndef EB_LINK_H
#define EB_LINK_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EB_LINK_ALL 255u /* to all devices at once, where the medium can do that */

enum {
    EB_OK = 0,
    EB_LINK_TIMEOUT = 1, /* a device did not send in time */
    EB_LINK_CRC = 2,     /* what came was damaged */
    EB_LINK_PLAN = 3,    /* the other device has firmware of another plan */
    EB_LINK_ORDER = 4    /* a message is missing, or the source has begun anew */
};

/* Sends bytes to a device, or to all; returns when `from` may be changed. EB_OK or EB_LINK_TIMEOUT. */
int eb_link_send(uint8_t to, const void *from, uint32_t bytes);

/* Receives so many bytes that a device sent. EB_LINK_TIMEOUT if they did not come within the time; it is not known then
 * how many of them came. EB_LINK_CRC if others were lost before or among them: the next call goes on behind the loss. */
int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us);

/* A clock that goes on at a steady rate and may wrap. */
uint32_t eb_link_time_us(void);

#ifdef __cplusplus
}
#endif
#endif
