/* SPDX-License-Identifier: MIT-0
 * Simulation of a cluster: see src/link_relay.c.
 */
#ifndef LINK_RELAY_H
#define LINK_RELAY_H

extern int eb_relay_over; /* the relay has ended: nothing will ever come any more */

#endif
