/* A source dies in an inference of which a device has had data, starts anew and counts from 1 again: it must not take
 * the device for one that knows nothing. Two ends of a link in one program; the exit status is the line of a mistake.
 */
#include "eb_cluster.h"
#include "eb_link.h"

#include <string.h>

#define CHECK(what)          \
    do {                     \
        if (!(what)) {       \
            return __LINE__; \
        }                    \
    } while (0)

static uint8_t queue[2][4096]; /* to each end */
static uint32_t written[2], taken[2], now;
static int self;

int eb_link_send(uint8_t to, const void *from, uint32_t bytes)
{
    memcpy(queue[to] + written[to], from, bytes);
    written[to] += bytes;
    return EB_OK;
}

int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us)
{
    (void)from;
    if (written[self] - taken[self] < bytes) {
        now += timeout_us;
        return EB_LINK_TIMEOUT;
    }
    memcpy(to, queue[self] + taken[self], bytes);
    taken[self] += bytes;
    return EB_OK;
}

uint32_t eb_link_time_us(void)
{
    return now;
}

int main(void)
{
    const eb_cluster new = {.plan = 7, .self = 0, .source = 0, .peers = 3, .timeout_us = 100};
    eb_cluster source = new;
    eb_cluster device = {.plan = 7, .self = 1, .source = 0, .peers = 3, .timeout_us = 100};
    uint8_t x[4] = {1, 2, 3, 4}, y[4];

    CHECK(eb_cluster_begin(&source) == EB_LINK_TIMEOUT); /* nobody answers yet: inference 1 */
    self = 1;
    CHECK(eb_cluster_begin(&device) == EB_OK && device.inference == 1);
    CHECK(eb_cluster_send(&source, 0, 1, x, 4, 1, 1) == EB_OK);
    CHECK(eb_cluster_receive(&device, 0, 0, y, 4, 1, 1) == EB_OK && memcmp(x, y, 4) == 0);

    source = new; /* it dies, and what was on its way to it is lost */
    written[0] = taken[0] = 0;
    self = 0;
    CHECK(eb_cluster_begin(&source) == EB_LINK_TIMEOUT && source.inference == 1); /* the same number again */
    self = 1;
    CHECK(eb_cluster_receive(&device, 1, 0, y, 4, 1, 1) != EB_OK); /* it is still in the old one, and says so */
    written[1] = taken[1] = 0;
    source = new;
    self = 0;
    CHECK(eb_cluster_begin(&source) == EB_LINK_ORDER);
    written[0] = taken[0] = written[1] = taken[1] = 0;
    CHECK(eb_cluster_begin(&source) == EB_LINK_TIMEOUT && source.inference == 2);
    self = 1;
    CHECK(eb_cluster_begin(&device) == EB_OK && device.inference == 2);
    self = 0;
    --source.inference;
    CHECK(eb_cluster_begin(&source) == EB_OK && source.inference == 2); /* nothing of this one has been used */
    return 0;
}
