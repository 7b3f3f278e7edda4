/* The medium between the devices of the streams: packets that devices 0 and 2 sent to device 1, and the time. */
#ifndef MEDIUM_H
#define MEDIUM_H

#include <stdint.h>

#include "eb_cluster.h"

#define RECEIVER 1

enum { DEVICES_HERE = 3, PACKET = 1100 };

typedef struct {
    void (*reset)(void);
    int (*begin)(eb_cluster *c);
    int (*send)(eb_cluster *c, uint16_t message, uint8_t to, const void *x, uint32_t count, uint32_t item,
                uint32_t wire);
    int (*receive)(eb_cluster *c, uint16_t message, uint8_t from, void *y, uint32_t count, uint32_t item,
                   uint32_t wire);
    int (*link_send)(uint8_t to, const void *from, uint32_t bytes);
} node;

extern const node node0, node1, node2;

/* A device sends a packet. */
void medium_send(uint8_t sender, uint8_t to, const void *data, uint32_t bytes);
/* The receiver's cluster.c sends bytes: what they let others send arrives from now on. */
void medium_watch(uint8_t sender, const void *data, uint32_t bytes);
/* The next packet, or the next of one sender (-1: of any); 0: none. `lost`: the medium tells that others were lost
 * before it. */
int medium_next(int from, uint8_t *sender, const uint8_t **data, uint32_t *bytes, int *lost);
uint32_t medium_time(void);
/* Time passes while nothing comes. */
void medium_idle(void);

#endif
