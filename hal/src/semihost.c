/* SPDX-License-Identifier: 0BSD
 * Semihosting for Arm M profile and RISC-V, without a C library.
 */
#include "eb_semihost.h"

#include <stdint.h>
#include <string.h>

#include "eb_firmware.h"

enum {
    SYS_OPEN = 0x01,
    SYS_CLOSE = 0x02,
    SYS_WRITE0 = 0x04,
    SYS_WRITE = 0x05,
    SYS_READ = 0x06,
    SYS_EXIT_EXTENDED = 0x20,
    ADP_STOPPED_APPLICATION_EXIT = 0x20026,
};

/* A machine without a debugger, such as a core's RTL, has a port of three words at this address in place of a trap: the
 * number of the call; its block, and then its result; and the bytes that it read, one after the other. */
#if defined(EB_SEMIHOST_PORT)
static intptr_t call(intptr_t operation, const void *block)
{
    volatile uintptr_t *const port = (volatile uintptr_t *)EB_SEMIHOST_PORT;
    port[0] = (uintptr_t)operation;
    port[1] = (uintptr_t)block;
    return (intptr_t)port[1];
}
#else
/* RISC-V: the three instructions must be uncompressed and must not cross a page. */
#if defined(__riscv)
#define FIRST "a0"
#define SECOND "a1"
#define TRAP                    \
    ".balign 16\n\t"            \
    ".option push\n\t"          \
    ".option norvc\n\t"         \
    "slli x0, x0, 0x1f\n\t"     \
    "ebreak\n\t"                \
    "srai x0, x0, 7\n\t"        \
    ".option pop"
#else
#define FIRST "r0"
#define SECOND "r1"
#define TRAP "bkpt 0xAB"
#endif

static intptr_t call(intptr_t operation, const void *block)
{
    register intptr_t first __asm__(FIRST) = operation;
    register const void *second __asm__(SECOND) = block;
    __asm__ volatile(TRAP : "+r"(first) : "r"(second) : "memory");
    return first;
}
#endif

void eb_print(const char *text)
{
    (void)call(SYS_WRITE0, text);
}

int eb_open(const char *path, eb_open_mode mode)
{
    const uintptr_t block[3] = {(uintptr_t)path, (uintptr_t)mode, strlen(path)};
    return (int)call(SYS_OPEN, block);
}

/* SYS_READ and SYS_WRITE return the number of bytes that were *not* moved. */
size_t eb_read(int file, void *to, size_t bytes)
{
    const uintptr_t block[3] = {(uintptr_t)file, (uintptr_t)to, bytes};
    const size_t moved = bytes - (size_t)call(SYS_READ, block);
#if defined(EB_SEMIHOST_PORT) /* the core copies them itself: its cache may hold what stood there before */
    for (size_t i = 0; i < moved; ++i) {
        ((uint8_t *)to)[i] = (uint8_t)((volatile uintptr_t *)EB_SEMIHOST_PORT)[2];
    }
#endif
    return moved;
}

size_t eb_write(int file, const void *from, size_t bytes)
{
    const uintptr_t block[3] = {(uintptr_t)file, (uintptr_t)from, bytes};
    return bytes - (size_t)call(SYS_WRITE, block);
}

void eb_close(int file)
{
    const uintptr_t block[1] = {(uintptr_t)file};
    (void)call(SYS_CLOSE, block);
}

void eb_exit(int status)
{
    const uintptr_t block[2] = {ADP_STOPPED_APPLICATION_EXIT, (uintptr_t)status};
    for (;;) {
        (void)call(SYS_EXIT_EXTENDED, block);
    }
}

static void print_hex(const char *label, uint32_t value)
{
    char text[9];
    for (int i = 0; i < 8; ++i) {
        text[i] = "0123456789abcdef"[value >> (28 - 4 * i) & 0xFu];
    }
    text[8] = '\0';
    eb_print(label);
    eb_print(text);
}

void eb_fault(uint32_t cause, uint32_t pc)
{
    print_hex("fault: cause 0x", cause);
    print_hex(" at pc 0x", pc);
    eb_print("\n");
    eb_exit(125);
}
