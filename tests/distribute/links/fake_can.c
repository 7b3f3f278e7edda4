/* A CAN controller: frames go to all other devices; the first bytes of a datagram are the identifier. */
#include "eb_can.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire.h"

int eb_can_send(uint32_t id, const uint8_t *data, uint8_t bytes)
{
    static const char lengths[65] = {1, 1, 1, 1, 1, 1, 1, 1, 1, [12] = 1, [16] = 1, [20] = 1, [24] = 1, [32] = 1,
                                     [48] = 1, [64] = 1};
    if (bytes > 64 || !lengths[bytes]) {
        fprintf(stderr, "no length of CAN FD: %d\n", bytes);
        exit(1);
    }
    uint8_t frame[68];
    memcpy(frame, &id, 4);
    memcpy(frame + 4, data, bytes);
    wire_open(EB_LINK_DEVICE);
    for (int to = 0; to < DEVICES; ++to) {
        if (to != EB_LINK_DEVICE) {
            (void)wire_send(to, frame, bytes + 4u, 0);
        }
    }
    return 1;
}

int eb_can_receive(uint32_t *id, uint8_t *data, uint8_t *bytes)
{
    uint8_t frame[68];
    wire_open(EB_LINK_DEVICE);
    const int n = wire_receive(frame, sizeof frame);
    if (n < 4) {
        return 0;
    }
    memcpy(id, frame, 4);
    memcpy(data, frame + 4, (size_t)n - 4u);
    *bytes = (uint8_t)(n - 4);
    return 1;
}

uint32_t eb_can_time_us(void)
{
    return wire_time_us();
}
