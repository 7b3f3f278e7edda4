/* SPDX-License-Identifier: 0BSD
 * A serial line of a board, over which src/serial_files.c moves files for `edgebuild verify --port`. The application
 * brings these three functions: eight data bits, no parity, one stop bit.
 */
#ifndef EB_SERIAL_H
#define EB_SERIAL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets clocks, pins and the UART. Called once, before the others. */
void eb_serial_begin(void);

/* Sends a byte; waits until there is room for it. */
void eb_serial_put(uint8_t byte);

/* The next received byte, or -1 if there is none yet. */
int eb_serial_get(void);

#ifdef __cplusplus
}
#endif
#endif
