/* SPDX-License-Identifier: 0BSD
 * The string functions of src/mem.c, for toolchains that come without a C library.
 */
#ifndef EB_STRING_H
#define EB_STRING_H

#if __STDC_HOSTED__ /* there is a C library: take its header */
#include_next <string.h>
#else

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void *memcpy(void *__restrict to, const void *__restrict from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
int memcmp(const void *left, const void *right, size_t bytes);
size_t strlen(const char *text);

#ifdef __cplusplus
}
#endif
#endif
#endif
