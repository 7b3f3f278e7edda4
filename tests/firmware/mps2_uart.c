/* SPDX-License-Identifier: 0BSD */
/* The CMSDK UART 0 of Arm's MPS2 boards: data, state, control and baud divider. */
#include "eb_serial.h"

#define UART ((volatile uint32_t *)0x40004000u)
enum { DATA, STATE, CONTROL, DIVIDER = 4 };

void eb_serial_begin(void)
{
    UART[DIVIDER] = 16u;
    UART[CONTROL] = 3u; /* sends and receives */
}

void eb_serial_put(uint8_t byte)
{
    while (UART[STATE] & 1u) {
    }
    UART[DATA] = byte;
}

int eb_serial_get(void)
{
    return UART[STATE] & 2u ? (int)(UART[DATA] & 0xFFu) : -1;
}
