/* SPDX-License-Identifier: 0BSD
 * Files and console of the machine that runs the simulator or debugger.
 *
 * Arm "Semihosting for AArch32 and AArch64" and the RISC-V semihosting specification define the calls;
 * src/semihost.c makes them, src/semihost_host.c offers the same on the build machine.
 */
#ifndef EB_SEMIHOST_H
#define EB_SEMIHOST_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { EB_READ = 1, EB_WRITE = 5 } eb_open_mode; /* fopen's "rb" and "wb" */

/* Writes a text to the console. */
void eb_print(const char *text);

/* Returns a handle, or -1. */
int eb_open(const char *path, eb_open_mode mode);

/* Both return the number of bytes that were moved. */
size_t eb_read(int file, void *to, size_t bytes);
size_t eb_write(int file, const void *from, size_t bytes);

void eb_close(int file);

#ifdef __cplusplus
}
#endif
#endif
