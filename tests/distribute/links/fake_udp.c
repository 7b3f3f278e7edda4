/* As much of lwIP's raw API as the port uses, over datagrams between processes. The first byte of one is the address
 * of its sender. */
#include <stdlib.h>
#include <string.h>

#include "lwip/pbuf.h"
#include "lwip/sys.h"
#include "lwip/udp.h"
#include "wire.h"

struct udp_pcb {
    udp_recv_fn receive;
    u16_t port;
};

static struct udp_pcb only;
const ip_addr_t ip_addr_any;

struct pbuf *pbuf_alloc(pbuf_layer layer, u16_t length, pbuf_type type)
{
    (void)layer;
    (void)type;
    struct pbuf *p = calloc(1, sizeof *p);
    p->payload = malloc(length);
    p->len = p->tot_len = length;
    return p;
}

u8_t pbuf_free(struct pbuf *p)
{
    free(p->payload);
    free(p);
    return 1;
}

err_t pbuf_take_at(struct pbuf *p, const void *data, u16_t length, u16_t offset)
{
    if (offset + length > p->tot_len) {
        return ERR_MEM;
    }
    memcpy((uint8_t *)p->payload + offset, data, length);
    return ERR_OK;
}

err_t pbuf_take(struct pbuf *p, const void *data, u16_t length)
{
    return pbuf_take_at(p, data, length, 0);
}

u16_t pbuf_copy_partial(const struct pbuf *p, void *to, u16_t length, u16_t offset)
{
    if (offset >= p->tot_len) {
        return 0;
    }
    const u16_t rest = (u16_t)(p->tot_len - offset), n = length < rest ? length : rest;
    memcpy(to, (const uint8_t *)p->payload + offset, n);
    return n;
}

struct udp_pcb *udp_new(void)
{
    wire_open(EB_LINK_DEVICE);
    return &only;
}

err_t udp_bind(struct udp_pcb *pcb, const ip_addr_t *address, u16_t port)
{
    (void)address;
    pcb->port = port;
    return ERR_OK;
}

void udp_recv(struct udp_pcb *pcb, udp_recv_fn receive, void *argument)
{
    (void)argument;
    pcb->receive = receive;
}

err_t udp_sendto(struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *address, u16_t port)
{
    (void)pcb;
    (void)port;
    uint8_t frame[2048] = {EB_LINK_DEVICE};
    memcpy(frame + 1, p->payload, p->tot_len);
    (void)wire_send((int)address->addr, frame, p->tot_len + 1u, 0); /* nobody learns that it got lost */
    return ERR_OK;
}

u32_t sys_now(void)
{
    return wire_time_us() / 1000u;
}

void eb_udp_address(uint8_t device, ip_addr_t *address);
void eb_udp_address(uint8_t device, ip_addr_t *address)
{
    address->addr = device;
}

void eb_udp_poll(void);
void eb_udp_poll(void)
{
    uint8_t frame[2048];
    const int n = wire_receive(frame, sizeof frame);
    if (n > 1) {
        const ip_addr_t sender = {frame[0]};
        struct pbuf *p = pbuf_alloc(PBUF_RAW, (u16_t)(n - 1), PBUF_POOL);
        (void)pbuf_take(p, frame + 1, (u16_t)(n - 1));
        only.receive(NULL, &only, p, &sender, only.port);
    }
}
