/* SPDX-License-Identifier: MIT-0
 * eb_link.h over UDP, with the raw API of lwIP. EB_LINK_DEVICE is the number of this device. The user gives
 *   void eb_udp_address(uint8_t device, ip_addr_t *address);  addresses of the devices
 *   void eb_udp_poll(void);                                   brings what has come to lwIP, runs its timers
 * and initialises lwIP and its interface before.
 *
 * A datagram has a mark, the number of its sender, a count, then bytes; the first one since its start has a mark of its
 * own. What comes twice or too late is dropped, and so is what comes from another address or port than that of the
 * device whose number it has. A gap in the counts, or a queue that is full, ends the inference with EB_LINK_CRC.
 */
#include "eb_link.h"
#include "eb_ring.h"

#include "lwip/pbuf.h"
#include "lwip/sys.h"
#include "lwip/udp.h"

#ifndef EB_UDP_PORT
#define EB_UDP_PORT 17713 /* "EB", not registered */
#endif

#ifndef EB_LINK_DEVICE
#error "EB_LINK_DEVICE is the number of this device"
#endif

enum { DEVICES = 16, HEAD = 4, LONGEST = 1024, MARK = 0xEB, FIRST = 0xEC };

void eb_udp_address(uint8_t device, ip_addr_t *address);
void eb_udp_poll(void);

typedef struct {
    eb_counts counts;
    eb_ring in;
} peer;

static peer peers[DEVICES];
static uint16_t sent[DEVICES];
static uint8_t begun[DEVICES];
static struct udp_pcb *socket_;

static int is_of(uint8_t device, const ip_addr_t *address, u16_t port)
{
    ip_addr_t its;
    eb_udp_address(device, &its);
    return port == EB_UDP_PORT && ip_addr_cmp(&its, address);
}

static void received(void *argument, struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *address, u16_t port)
{
    (void)argument;
    (void)pcb;
    uint8_t head[HEAD];
    if (p == NULL) {
        return;
    }
    if (pbuf_copy_partial(p, head, HEAD, 0) == HEAD && (head[0] == MARK || head[0] == FIRST) && head[1] < DEVICES &&
        is_of(head[1], address, port)) {
        peer *const from = &peers[head[1]];
        const uint32_t bytes = (uint32_t)p->tot_len - HEAD, number = head[2] | (uint32_t)head[3] << 8;
        const int is = bytes <= LONGEST ? eb_packet(&from->counts, number, 0xFFFF, head[0] == FIRST) : EB_PACKET_OLD;
        if (is != EB_PACKET_OLD) {
            uint8_t piece[64];
            if (is == EB_PACKET_BEHIND_GAP) {
                eb_ring_lose(&from->in);
            }
            if (bytes > eb_ring_room(&from->in)) {
                eb_ring_forget(&from->in);
            }
            for (uint32_t at = 0; at < bytes; at += sizeof piece) {
                const uint32_t rest = bytes - at, n = rest < sizeof piece ? rest : (uint32_t)sizeof piece;
                (void)pbuf_copy_partial(p, piece, (u16_t)n, (u16_t)(HEAD + at));
                (void)eb_ring_put(&from->in, piece, n);
            }
        }
    }
    (void)pbuf_free(p);
}

static int begin(void)
{
    if (socket_ == NULL) {
        socket_ = udp_new();
        if (socket_ != NULL && udp_bind(socket_, IP_ADDR_ANY, EB_UDP_PORT) == ERR_OK) {
            udp_recv(socket_, received, NULL);
        }
    }
    return socket_ != NULL;
}

static int send_one(uint8_t to, const uint8_t *data, uint32_t bytes)
{
    ip_addr_t address;
    struct pbuf *const p = pbuf_alloc(PBUF_TRANSPORT, (u16_t)(bytes + HEAD), PBUF_RAM);
    if (p == NULL) {
        return EB_LINK_TIMEOUT;
    }
    const uint8_t head[HEAD] = {begun[to] ? MARK : FIRST, EB_LINK_DEVICE, (uint8_t)sent[to], (uint8_t)(sent[to] >> 8)};
    eb_udp_address(to, &address);
    const int ok = pbuf_take(p, head, HEAD) == ERR_OK && pbuf_take_at(p, data, (u16_t)bytes, HEAD) == ERR_OK &&
                   udp_sendto(socket_, p, &address, EB_UDP_PORT) == ERR_OK;
    ++sent[to];
    begun[to] = 1;
    (void)pbuf_free(p);
    eb_udp_poll();
    return ok ? EB_OK : EB_LINK_TIMEOUT;
}

int eb_link_send(uint8_t to, const void *from, uint32_t bytes)
{
    const uint8_t *data = from;
    if (to >= DEVICES || !begin()) {
        return EB_LINK_TIMEOUT; /* no broadcasts */
    }
    int status = EB_OK;
    while (bytes != 0u && status == EB_OK) {
        const uint32_t n = bytes < LONGEST ? bytes : LONGEST;
        status = send_one(to, data, n);
        data += n;
        bytes -= n;
    }
    return status;
}

int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us)
{
    return from < DEVICES && begin() ? eb_ring_receive(&peers[from].in, to, bytes, timeout_us, eb_udp_poll) : EB_LINK_TIMEOUT;
}

/* A clock of milliseconds does for the time limits of messages. */
uint32_t eb_link_time_us(void)
{
    return (uint32_t)sys_now() * 1000u;
}
