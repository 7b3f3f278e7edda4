/* Device number NODE over the port PORT_UDP, PORT_CAN, PORT_SPI or PORT_UART, with a model of the hardware that it needs;
 * over none of them, bytes as they are sent. */
#include "node.h"

#include <string.h>

#include "medium.h"

#define EB_LINK_DEVICE NODE
#define EB_LINK_SOURCE 0

#if defined(PORT_UDP)
#include "link_udp.c"

struct udp_pcb {
    int unused;
};

static struct udp_pcb only;
static struct pbuf buffer;
static uint8_t payload[PACKET + 64];
const ip_addr_t ip_addr_any;

struct pbuf *pbuf_alloc(pbuf_layer layer, u16_t length, pbuf_type type)
{
    (void)layer;
    (void)type;
    buffer.payload = payload;
    buffer.len = buffer.tot_len = length;
    return &buffer;
}

u8_t pbuf_free(struct pbuf *p)
{
    (void)p;
    return 1;
}

err_t pbuf_take_at(struct pbuf *p, const void *data, u16_t length, u16_t offset)
{
    memcpy((uint8_t *)p->payload + offset, data, length);
    return ERR_OK;
}

err_t pbuf_take(struct pbuf *p, const void *data, u16_t length)
{
    return pbuf_take_at(p, data, length, 0);
}

u16_t pbuf_copy_partial(const struct pbuf *p, void *to, u16_t length, u16_t offset)
{
    const u16_t rest = offset < p->tot_len ? (u16_t)(p->tot_len - offset) : 0, n = length < rest ? length : rest;
    memcpy(to, (const uint8_t *)p->payload + offset, n);
    return n;
}

struct udp_pcb *udp_new(void)
{
    return &only;
}

err_t udp_bind(struct udp_pcb *pcb, const ip_addr_t *address, u16_t port)
{
    (void)pcb;
    (void)address;
    (void)port;
    return ERR_OK;
}

void udp_recv(struct udp_pcb *pcb, udp_recv_fn receive, void *argument)
{
    (void)pcb;
    (void)receive;
    (void)argument;
}

err_t udp_sendto(struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *address, u16_t port)
{
    (void)pcb;
    (void)port;
    medium_send(NODE, (uint8_t)address->addr, p->payload, p->tot_len);
    return ERR_OK;
}

u32_t sys_now(void)
{
    return medium_time() / 1000u;
}

void eb_udp_address(uint8_t device, ip_addr_t *address)
{
    address->addr = device;
}

void eb_udp_poll(void)
{
    const uint8_t *data;
    uint8_t sender;
    uint32_t bytes;
    int lost;
    if (NODE == RECEIVER && medium_next(-1, &sender, &data, &bytes, &lost)) {
        const ip_addr_t address = {sender};
        struct pbuf *p = pbuf_alloc(PBUF_RAW, (u16_t)bytes, PBUF_POOL);
        (void)pbuf_take(p, data, (u16_t)bytes);
        received(NULL, &only, p, &address, EB_UDP_PORT);
    } else {
        medium_idle();
    }
}

static void reset(void)
{
    memset(peers, 0, sizeof peers);
    memset(sent, 0, sizeof sent);
    memset(begun, 0, sizeof begun);
}

#elif defined(PORT_CAN)
#include "link_can.c"

static int left_over; /* frames that the poll of the port has not taken are none of ours */

int eb_can_send(uint32_t id, const uint8_t *data, uint8_t bytes)
{
    uint8_t frame[68];
    const uint32_t to = (id - EB_CAN_BASE) >> 5;
    memcpy(frame, &id, 4);
    memcpy(frame + 4, data, bytes);
    medium_send(NODE, to == ALL ? RECEIVER : (uint8_t)to, frame, bytes + 4u);
    return 1;
}

int eb_can_receive(uint32_t *id, uint8_t *data, uint8_t *bytes)
{
    const uint8_t *packet;
    uint8_t sender;
    uint32_t n;
    int lost;
    if (NODE != RECEIVER || left_over || !medium_next(-1, &sender, &packet, &n, &lost)) {
        medium_idle();
        return 0;
    }
    n = n > 68u ? 68u : n;
    memcpy(id, packet, 4);
    *id = (*id & ~31u) | sender; /* the medium may have confused them */
    memcpy(data, packet + 4, n < 4u ? 0u : n - 4u);
    *bytes = (uint8_t)(n < 4u ? 0u : n - 4u);
    return 1;
}

uint32_t eb_can_time_us(void)
{
    return medium_time();
}

static void reset(void)
{
    memset(peers, 0, sizeof peers);
    memset(sent, 0, sizeof sent);
    memset(begun, 0, sizeof begun);
    left_over = 1; /* a frame that waits for room is of the stream before */
    for (uint32_t i = 0; i < DEVICES; ++i) {
        reading = (uint8_t)i;
        poll_frames();
    }
    memset(peers, 0, sizeof peers);
    reading = NOBODY;
    left_over = 0;
}

#elif defined(PORT_SPI)
#include "link_spi.c"

static uint8_t *armed_in;
static uint32_t armed_bytes;

int eb_spi_ready(uint8_t device)
{
    return device == RECEIVER;
}

void eb_spi_transfer(uint8_t device, const uint8_t *out, uint8_t *in, uint32_t bytes)
{
    medium_send(NODE, device, out, bytes);
    memset(in, 0, bytes);
    in[0] = MARK;
    in[2] = PAYLOAD;
}

void eb_spi_arm(const uint8_t *out, uint8_t *in, uint32_t bytes)
{
    (void)out;
    armed_in = in;
    armed_bytes = bytes;
}

int eb_spi_done(void)
{
    const uint8_t *data;
    uint8_t sender;
    uint32_t bytes;
    int lost;
    if (armed_in != NULL && !medium_next(-1, &sender, &data, &bytes, &lost)) {
        medium_idle();
        return 0;
    }
    if (armed_in == NULL) {
        return 1;
    }
    memset(armed_in, 0, armed_bytes);
    memcpy(armed_in, data, bytes < armed_bytes ? bytes : armed_bytes);
    armed_in = NULL;
    return 1;
}

uint32_t eb_spi_time_us(void)
{
    return medium_time();
}

static void reset(void)
{
    memset(peers, 0, sizeof peers);
    armed_in = NODE == RECEIVER ? block_in : NULL;
    armed_bytes = EB_SPI_BLOCK;
}

#elif defined(PORT_UART) && NODE == RECEIVER
enum { LINES = 2 };

static uint32_t lines[LINES][5], timer_[3];
static uintptr_t clock_ticks(void);
static uint32_t taken(const void *port);

#define EB_LINK_UARTS X(0, lines[0]) X(2, lines[1])
#define EB_LINK_TIMER clock_ticks()
#define EB_LINK_UART_READ(port) taken(port)
#include "link_uart.c"

static const uint8_t *rest[LINES];
static uint32_t rest_bytes[LINES];
static uint8_t held[LINES];

/* The next byte of a line is in its UART, if there is one. */
static void refill(int line)
{
    uint32_t *const registers = lines[line];
    int lost = 0;
    uint8_t sender;
    registers[1] = 0;
    if (rest_bytes[line] == 0u && !medium_next(2 * line, &sender, &rest[line], &rest_bytes[line], &lost)) {
        rest_bytes[line] = 0;
        return;
    }
    if (rest_bytes[line] != 0u) {
        held[line] = *rest[line]++;
        --rest_bytes[line];
        registers[1] = FULL_IN | (lost ? OVERRUN_IN : 0u);
    }
}

static uint32_t taken(const void *port)
{
    const int line = port == (const void *)lines[1];
    const uint8_t byte = held[line];
    refill(line);
    return byte;
}

static uintptr_t clock_ticks(void)
{
    medium_idle();
    timer_[1] = ~(medium_time() * (EB_LINK_CLOCK_HZ / 1000000u));
    for (int line = 0; line < LINES; ++line) {
        if ((lines[line][1] & FULL_IN) == 0u) {
            refill(line);
        }
    }
    return (uintptr_t)timer_;
}

static void reset(void)
{
    memset(lines, 0, sizeof lines);
    memset(rest_bytes, 0, sizeof rest_bytes);
    for (uint32_t i = 0; i < PEERS; ++i) {
        memset(&peers[i].in, 0, sizeof peers[i].in);
    }
}

#else /* bytes as they are sent */
static const uint8_t *rest[DEVICES_HERE];
static uint32_t rest_bytes[DEVICES_HERE];

int eb_link_send(uint8_t to, const void *from, uint32_t bytes)
{
    medium_send(NODE, to, from, bytes);
    return EB_OK;
}

int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us)
{
    uint8_t *data = to;
    const uint32_t begin = medium_time();
    while (bytes != 0u) {
        uint8_t sender;
        int lost = 0;
        if (rest_bytes[from] == 0u && !medium_next(from, &sender, &rest[from], &rest_bytes[from], &lost)) {
            rest_bytes[from] = 0;
            medium_idle();
            if (medium_time() - begin >= timeout_us) {
                return EB_LINK_TIMEOUT;
            }
        }
        if (lost) {
            return EB_LINK_CRC;
        }
        const uint32_t n = bytes < rest_bytes[from] ? bytes : rest_bytes[from];
        if (n != 0u) {
            memcpy(data, rest[from], n);
        }
        data += n;
        rest[from] += n;
        rest_bytes[from] -= n;
        bytes -= n;
    }
    return EB_OK;
}

uint32_t eb_link_time_us(void)
{
    return medium_time();
}

static void reset(void)
{
    memset(rest_bytes, 0, sizeof rest_bytes);
}
#endif

int OWN(watched_send)(uint8_t to, const void *from, uint32_t bytes);
int OWN(watched_send)(uint8_t to, const void *from, uint32_t bytes)
{
    medium_watch(NODE, from, bytes);
    return eb_link_send(to, from, bytes);
}

#define NODE_OF_(number) node##number
#define NODE_OF(number) NODE_OF_(number)
const node NODE_OF(NODE) = {reset, eb_cluster_begin, eb_cluster_send, eb_cluster_receive, eb_link_send};
