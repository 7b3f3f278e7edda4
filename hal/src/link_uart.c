/* SPDX-License-Identifier: MIT-0
 * eb_link.h over the UARTs of Arm's Cortex-M System Design Kit (CMSDK), one for each device that this one talks to.
 * EB_LINK_UARTS lists them: X(device, address).
 *
 * These UARTs have no line that stops the sender, and hold one byte. With EB_LINK_UART_INTERRUPTS the program's handlers
 * of their receive interrupts call eb_link_uart_received(), and what comes goes into a queue; it must hold what can come
 * while the core computes (EB_LINK_RING, eb_ring.h). Without, the port looks only while it sends or receives, which does
 * in QEMU, where a full UART stops the sender. The time is that of the CMSDK timer.
 */
#include "eb_link.h"
#include "eb_ring.h"

#ifndef EB_LINK_CLOCK_HZ
#define EB_LINK_CLOCK_HZ 25000000u /* of UARTs and timer: MPS2, application notes AN385 and AN386 */
#endif
#ifndef EB_LINK_BAUD
#define EB_LINK_BAUD 1000000u
#endif
#ifndef EB_LINK_TIMER
#define EB_LINK_TIMER 0x40000000u
#endif
#ifndef EB_LINK_UARTS /* UART0 of MPS2 */
#define EB_LINK_UARTS X(EB_LINK_PEER, 0x40004000u)
#endif
#ifndef EB_LINK_PEER
#define EB_LINK_PEER 1u
#endif
#ifndef EB_LINK_UART_INTERRUPTS
#define EB_LINK_UART_INTERRUPTS 0
#endif
#ifndef EB_LINK_UART_READ /* takes the byte that a UART holds */
#define EB_LINK_UART_READ(port) ((port)->data)
#endif
#ifndef EB_LINK_SEND_US
#define EB_LINK_SEND_US 1000000u /* the longest wait for one byte to leave */
#endif

enum { FULL_OUT = 1, FULL_IN = 2, OVERRUN_IN = 8 }; /* in state; the last one goes away when it is written */
enum { SEND_ON = 1, RECEIVE_ON = 2, RECEIVE_INTERRUPT = EB_LINK_UART_INTERRUPTS ? 8 : 0 }; /* in control */

typedef struct {
    volatile uint32_t data, state, control, interrupt, divider;
} uart;

typedef struct {
    uint8_t device;
    uart *port;
    eb_ring in;
} peer;

#define UART(address) ((uart *)(uintptr_t)(address))
#define X(number, address) {.device = (number), .port = UART(address)},
static peer peers[] = {EB_LINK_UARTS};
#undef X
enum { PEERS = sizeof peers / sizeof peers[0] };

void eb_link_uart_received(void);

/* Takes what has come; leaves it in the UART while the queue is full. */
void eb_link_uart_received(void)
{
    for (uint32_t i = 0; i < PEERS; ++i) {
        uart *const port = peers[i].port;
        port->interrupt = RECEIVE_ON;
        while ((port->state & FULL_IN) != 0u) {
            if ((port->state & OVERRUN_IN) != 0u) {
                port->state = OVERRUN_IN;
                eb_ring_lose(&peers[i].in);
            }
            if (eb_ring_room(&peers[i].in) == 0u) {
                port->control = SEND_ON | RECEIVE_ON; /* no interrupt until there is room */
                break;
            }
            const uint8_t byte = (uint8_t)EB_LINK_UART_READ(port);
            (void)eb_ring_put(&peers[i].in, &byte, 1);
        }
    }
}

static void look(void)
{
    if (!EB_LINK_UART_INTERRUPTS) {
        eb_link_uart_received();
    }
}

static void begin(void)
{
    static int begun;
    if (begun) {
        return;
    }
    begun = 1;
    volatile uint32_t *const timer = (volatile uint32_t *)(uintptr_t)EB_LINK_TIMER; /* control, value, reload */
    timer[2] = 0xFFFFFFFFu;
    timer[1] = 0xFFFFFFFFu;
    timer[0] = 1u;
    for (uint32_t i = 0; i < PEERS; ++i) {
        peers[i].port->divider = EB_LINK_CLOCK_HZ / EB_LINK_BAUD;
        peers[i].port->control = SEND_ON | RECEIVE_ON | RECEIVE_INTERRUPT;
    }
}

static peer *find(uint8_t device)
{
    for (uint32_t i = 0; i < PEERS; ++i) {
        if (peers[i].device == device) {
            return &peers[i];
        }
    }
    return 0;
}

uint32_t eb_link_time_us(void)
{
    static uint32_t last, us, rest; /* ticks that are no microsecond yet */
    begin();
    const uint32_t ticks = ~((volatile uint32_t *)(uintptr_t)EB_LINK_TIMER)[1]; /* it counts down */
    const uint64_t more = (uint64_t)(ticks - last) + rest;
    last = ticks;
    us += (uint32_t)(more / (EB_LINK_CLOCK_HZ / 1000000u));
    rest = (uint32_t)(more % (EB_LINK_CLOCK_HZ / 1000000u));
    return us;
}

static int send(const peer *p, const uint8_t *data, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; ++i) {
        const uint32_t start = eb_link_time_us();
        while ((p->port->state & FULL_OUT) != 0u) {
            look();
            if (eb_link_time_us() - start > EB_LINK_SEND_US) {
                return EB_LINK_TIMEOUT;
            }
        }
        p->port->data = data[i];
    }
    return EB_OK;
}

int eb_link_send(uint8_t to, const void *from, uint32_t bytes)
{
    begin();
    int status = EB_LINK_TIMEOUT;
    for (uint32_t i = 0; i < PEERS; ++i) {
        if (peers[i].device == to || to == EB_LINK_ALL) {
            status = send(&peers[i], from, bytes);
        }
    }
    return status;
}

int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us)
{
    begin();
    peer *const p = find(from);
    uint8_t *data = to;
    const uint32_t start = eb_link_time_us();
    while (p != 0 && bytes != 0u) {
        look();
        uint32_t n;
        if (eb_ring_next(&p->in, data, bytes, &n) != EB_OK) {
            return EB_LINK_CRC;
        }
        data += n;
        bytes -= n;
        if (n != 0u) {
            p->port->control = SEND_ON | RECEIVE_ON | RECEIVE_INTERRUPT; /* there is room again */
        } else if (eb_link_time_us() - start >= timeout_us) {
            break;
        }
    }
    return bytes == 0u ? EB_OK : EB_LINK_TIMEOUT;
}
