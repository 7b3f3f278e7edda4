/* SPDX-License-Identifier: MIT-0
 * What hal/src/link_can.c needs of a CAN controller.
 */
#ifndef EB_CAN_H
#define EB_CAN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Puts a frame of 1 to 64 bytes, of a length that CAN FD has, into a place to send from. 0: none is free. */
int eb_can_send(uint32_t id, const uint8_t *data, uint8_t bytes);

/* Takes the next frame that has come; 0: there is none. */
int eb_can_receive(uint32_t *id, uint8_t *data, uint8_t *bytes);

/* A clock that goes on at a steady rate and may wrap. */
uint32_t eb_can_time_us(void);

#ifdef __cplusplus
}
#endif
#endif
