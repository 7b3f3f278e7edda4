/* SPDX-License-Identifier: MIT-0
 * What hal/src/link_spi.c needs of an SPI and its lines. The source is the controller; each other device has a select
 * line and a ready line, which it raises when it waits for a block.
 */
#ifndef EB_SPI_H
#define EB_SPI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The controller: whether a device has raised its ready line, and a transfer of so many bytes in both directions. */
int eb_spi_ready(uint8_t device);
void eb_spi_transfer(uint8_t device, const uint8_t *out, uint8_t *in, uint32_t bytes);

/* The others: be ready for a transfer of so many bytes (and raise the line); whether it is over (and lower the line). */
void eb_spi_arm(const uint8_t *out, uint8_t *in, uint32_t bytes);
int eb_spi_done(void);

/* A clock that goes on at a steady rate and may wrap. */
uint32_t eb_spi_time_us(void);

#ifdef __cplusplus
}
#endif
#endif
