/* SPDX-License-Identifier: 0BSD
 * eb_link.h over the UART of an nRF51 (Reference Manual v3.0, chapters 14, 18 and 29), joined crosswise with that of the
 * other board: pins of the edge connector 0 (TXD), 1 (RXD), 2 (RTS) and 16 (CTS). The receiver's RTS stops the sender,
 * so nothing is lost while a core computes.
 */
#include "eb_link.h"

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))
#define UART(offset) REGISTER(0x40002000u + (offset))
#define TIMER(offset) REGISTER(0x40008000u + (offset))

enum { TXD_PIN = 3, RXD_PIN = 2, RTS_PIN = 1, CTS_PIN = 16, SEND_US = 1000000 };

static void begin(void)
{
    static int begun;
    if (begun) {
        return;
    }
    begun = 1;
    REGISTER(0x40000000u) = 1; /* HFCLKSTART: the crystal, for the baud rate */
    TIMER(0x508) = 3;          /* BITMODE: 32 bits */
    TIMER(0x510) = 4;          /* PRESCALER: 16 MHz / 2^4 */
    TIMER(0x000) = 1;          /* START */
    REGISTER(0x50000508u) = 1u << TXD_PIN | 1u << RTS_PIN; /* OUTSET: idle is high */
    REGISTER(0x50000518u) = 1u << TXD_PIN | 1u << RTS_PIN; /* DIRSET */
    UART(0x508) = RTS_PIN;
    UART(0x50C) = TXD_PIN;
    UART(0x510) = CTS_PIN;
    UART(0x514) = RXD_PIN;
    UART(0x524) = 0x10000000u; /* BAUDRATE: 1 Mbit/s */
    UART(0x56C) = 1;           /* CONFIG: RTS and CTS */
    UART(0x500) = 4;           /* ENABLE */
    UART(0x000) = 1;           /* STARTRX */
    UART(0x008) = 1;           /* STARTTX */
}

uint32_t eb_link_time_us(void)
{
    begin();
    TIMER(0x040) = 1; /* CAPTURE[0] */
    return TIMER(0x540);
}

int eb_link_send(uint8_t to, const void *from, uint32_t bytes)
{
    const uint8_t *data = from;
    (void)to; /* there is but one */
    begin();
    for (uint32_t i = 0; i < bytes; ++i) {
        UART(0x11C) = 0; /* TXDRDY */
        UART(0x51C) = data[i];
        const uint32_t start = eb_link_time_us();
        while (UART(0x11C) == 0u) {
            if (eb_link_time_us() - start > SEND_US) {
                return EB_LINK_TIMEOUT;
            }
        }
    }
    return EB_OK;
}

int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us)
{
    uint8_t *data = to;
    (void)from;
    const uint32_t start = eb_link_time_us();
    for (uint32_t i = 0; i < bytes; ++i) {
        while (UART(0x108) == 0u) { /* RXDRDY */
            if (eb_link_time_us() - start >= timeout_us) {
                return EB_LINK_TIMEOUT;
            }
        }
        UART(0x108) = 0;
        data[i] = (uint8_t)UART(0x518);
    }
    return EB_OK;
}
