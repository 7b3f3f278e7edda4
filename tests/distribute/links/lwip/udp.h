#ifndef FAKE_UDP_H
#define FAKE_UDP_H
#include "lwip/pbuf.h"
typedef struct {
    u32_t addr;
} ip_addr_t;
extern const ip_addr_t ip_addr_any;
#define IP_ADDR_ANY (&ip_addr_any)
#define ip_addr_cmp(a, b) ((a)->addr == (b)->addr)
struct udp_pcb;
typedef void (*udp_recv_fn)(void *argument, struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *address, u16_t port);
struct udp_pcb *udp_new(void);
err_t udp_bind(struct udp_pcb *pcb, const ip_addr_t *address, u16_t port);
void udp_recv(struct udp_pcb *pcb, udp_recv_fn receive, void *argument);
err_t udp_sendto(struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *address, u16_t port);
#endif
