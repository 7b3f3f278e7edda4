/* SPDX-License-Identifier: 0BSD
 * The functions that compilers call on their own, for programs without a C library. All are weak: a program's own win.
 *
 * memcpy and memset move words where both ends allow it; that is where a network spends its time in them.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Without this the compiler may turn the loop of memcpy into a call of memcpy. */
#if defined(__clang__)
#define OWN_LOOP __attribute__((weak, no_builtin))
#else
#define OWN_LOOP __attribute__((weak, optimize("no-tree-loop-distribute-patterns")))
#endif

typedef uint32_t __attribute__((may_alias)) word;

OWN_LOOP void *memcpy(void *restrict to, const void *restrict from, size_t bytes)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    if ((((uintptr_t)out ^ (uintptr_t)in) & 3u) == 0u) {
        for (; bytes != 0u && ((uintptr_t)out & 3u) != 0u; --bytes) {
            *out++ = *in++;
        }
        for (; bytes >= 16u; bytes -= 16u, out += 16, in += 16) {
            const word a = ((const word *)(const void *)in)[0], b = ((const word *)(const void *)in)[1];
            const word c = ((const word *)(const void *)in)[2], d = ((const word *)(const void *)in)[3];
            ((word *)(void *)out)[0] = a;
            ((word *)(void *)out)[1] = b;
            ((word *)(void *)out)[2] = c;
            ((word *)(void *)out)[3] = d;
        }
        for (; bytes >= 4u; bytes -= 4u, out += 4, in += 4) {
            *(word *)(void *)out = *(const word *)(const void *)in;
        }
    }
    for (; bytes != 0u; --bytes) {
        *out++ = *in++;
    }
    return to;
}

OWN_LOOP void *memmove(void *to, const void *from, size_t bytes)
{
    uint8_t *out = to;
    const uint8_t *in = from;
    if ((uintptr_t)out <= (uintptr_t)in) {
        for (size_t i = 0; i < bytes; ++i) {
            out[i] = in[i];
        }
    } else {
        for (size_t i = bytes; i != 0u; --i) {
            out[i - 1u] = in[i - 1u];
        }
    }
    return to;
}

OWN_LOOP void *memset(void *to, int value, size_t bytes)
{
    uint8_t *out = to;
    const uint8_t byte = (uint8_t)value;
    for (; bytes != 0u && ((uintptr_t)out & 3u) != 0u; --bytes) {
        *out++ = byte;
    }
    const word four = 0x01010101u * byte;
    for (; bytes >= 4u; bytes -= 4u, out += 4) {
        *(word *)(void *)out = four;
    }
    for (; bytes != 0u; --bytes) {
        *out++ = byte;
    }
    return to;
}

OWN_LOOP int memcmp(const void *left, const void *right, size_t bytes)
{
    const uint8_t *a = left;
    const uint8_t *b = right;
    for (size_t i = 0; i < bytes; ++i) {
        if (a[i] != b[i]) {
            return (int)a[i] - (int)b[i];
        }
    }
    return 0;
}

OWN_LOOP size_t strlen(const char *text)
{
    size_t length = 0;
    while (text[length] != '\0') {
        ++length;
    }
    return length;
}
