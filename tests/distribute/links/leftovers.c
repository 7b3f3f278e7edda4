/* What lies in the queues of a device whose inference has ended with a code: the next inference must work. The device has
 * number 1, the source 0, another device 2. The exit status is the line of a mistake.
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

enum { HEAD = 24, START = 1, READY = 2, GO = 3, KNOWN = 0x8000, TIMEOUT_US = 100 };

static uint8_t queue[3][4096]; /* of each sender to device 1 */
static uint32_t written[3], taken[3], now, answers;
static uint8_t answer[HEAD]; /* the last of device 1 to the source, of `answers` */
static uint8_t speaker = 1;

static void put(uint8_t sender, const void *from, uint32_t bytes)
{
    memcpy(queue[sender] + written[sender], from, bytes);
    written[sender] += bytes;
}

int eb_link_send(uint8_t to, const void *from, uint32_t bytes)
{
    if (speaker != 1) {
        put(speaker, from, bytes);
    } else if (to == 0 && bytes == HEAD) {
        ++answers;
        memcpy(answer, from, bytes);
    }
    return EB_OK;
}

int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us)
{
    const uint32_t here = written[from] - taken[from], n = here < bytes ? here : bytes;
    memcpy(to, queue[from] + taken[from], n);
    taken[from] += n;
    now += n < bytes ? timeout_us : 0u;
    return n < bytes ? EB_LINK_TIMEOUT : EB_OK;
}

uint32_t eb_link_time_us(void)
{
    return now;
}

static void word(uint8_t kind, uint8_t inference)
{
    uint8_t h[HEAD] = {'E', 'B', 'D', '2', 7, 0, 0, 0, inference};
    uint32_t crc = ~0u;
    h[15] = kind;
    for (uint32_t bit = 0; bit < 160u; ++bit) { /* CRC-32 of IEEE 802.3 */
        crc = crc >> 1 ^ (((h[bit / 8u] >> bit % 8u) ^ crc) & 1u ? 0xEDB88320u : 0u);
    }
    for (uint32_t i = 0; i < 4u; ++i) {
        h[20u + i] = (uint8_t)(~crc >> 8u * i);
    }
    put(0, h, HEAD);
}

static void data(uint8_t sender, uint32_t inference, uint8_t value)
{
    const eb_cluster common = {.plan = 7, .self = sender, .peers = 7, .timeout_us = TIMEOUT_US, .inference = inference};
    const uint8_t x[4] = {value, 2, 3, 4};
    eb_cluster c = common;
    speaker = sender;
    (void)eb_cluster_send(&c, sender, 1, x, 4, 1, 1);
    speaker = 1;
}

static int known(void)
{
    return answer[15] == READY ? answer[12] | answer[13] << 8 : -1;
}

static eb_cluster device = {.plan = 7, .self = 1, .source = 0, .peers = 7, .timeout_us = TIMEOUT_US};
static uint8_t y[4];

static int received(uint8_t from)
{
    return eb_cluster_receive(&device, from, from, y, 4, 1, 1);
}

int main(void)
{
    word(START, 1); /* the end of what device 2 sends is lost, and the source sends nothing */
    word(GO, 1);
    data(2, 1, 1);
    written[2] -= 5u;
    CHECK(eb_cluster_begin(&device) == EB_OK && received(0) == EB_LINK_TIMEOUT);
    word(START, 2);
    CHECK(eb_cluster_begin(&device) == EB_OK && device.inference == 2 && known() == (KNOWN | 1));
    word(GO, 2);
    data(2, 2, 2);
    CHECK(received(2) == EB_OK && y[0] == 2);

    for (uint32_t k = 0; k < 6u; ++k) { /* a START comes again and again, behind the GO, and data are damaged */
        word(START, 3);
        if (k == 0u) {
            word(GO, 3);
            data(2, 3, 3);
            queue[2][written[2] - 1u] ^= 1u;
            CHECK(eb_cluster_begin(&device) == EB_OK && received(2) == EB_LINK_CRC);
        }
    }
    word(START, 4);
    answers = 0;
    CHECK(eb_cluster_begin(&device) == EB_OK && device.inference == 4 && known() == (KNOWN | 3) && answers == 6);
    word(GO, 4);
    data(2, 4, 4);
    CHECK(received(2) == EB_OK && y[0] == 4);

    word(START, 5);
    answers = 0;
    CHECK(eb_cluster_begin(&device) == EB_OK && answers == 1);
    word(START, 5); /* its READY was lost */
    word(GO, 5);
    data(2, 5, 5);
    CHECK(received(2) == EB_OK && y[0] == 5 && answers == 2 && known() == (KNOWN | 4));
    word(START, 5); /* of a source that has started anew, in the midst of an inference that goes on */
    data(0, 5, 6);
    CHECK(received(0) == EB_OK && y[0] == 6 && answers == 3 && known() == (KNOWN | 5));

    word(START, 6);
    word(GO, 6);
    word(START, 7); /* the source has given up */
    CHECK(eb_cluster_begin(&device) == EB_OK && received(0) == EB_LINK_ORDER);
    CHECK(eb_cluster_begin(&device) == EB_OK && device.inference == 7 && known() == (KNOWN | 6));
    return 0;
}
