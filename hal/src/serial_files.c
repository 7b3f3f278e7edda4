/* SPDX-License-Identifier: 0BSD
 * The functions of eb_semihost.h over a serial line: the board asks, and `edgebuild verify --port` answers.
 *
 * A message either way: 0xEB, a letter, the number of bytes that follow (32 bits, lowest byte first), these bytes, and
 * the CRC-16/CCITT of all but the first byte (highest byte first). Letters: H, the program's number; P, a text; O, a
 * mode and a path; R, a file and how many bytes; W, a file and bytes; C, a file; X, the exit status. Numbers have 32
 * bits. The answer has the letter of its question, and the bytes of R, else a number.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "eb_firmware.h"
#include "eb_semihost.h"
#include "eb_serial.h"
#include "harness_model.h"

enum { BEGIN = 0xEB, CHUNK = 1024 };

static uint16_t crc;
static char question; /* the letter of the last one */

static void sum(uint8_t byte)
{
    crc = (uint16_t)(crc ^ byte << 8);
    for (int i = 0; i < 8; ++i) {
        crc = (uint16_t)(crc & 0x8000u ? crc << 1 ^ 0x1021u : crc << 1);
    }
}

static void put(uint8_t byte)
{
    sum(byte);
    eb_serial_put(byte);
}

static void put_all(const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; ++i) {
        put(((const uint8_t *)from)[i]);
    }
}

static void put_number(uint32_t value)
{
    for (int i = 0; i < 4; ++i) {
        put((uint8_t)(value >> 8 * i));
    }
}

static void begin(char letter, size_t bytes)
{
    eb_serial_put(BEGIN);
    crc = 0xFFFFu;
    question = letter;
    put((uint8_t)letter);
    put_number((uint32_t)bytes);
}

static void end(void)
{
    const uint16_t whole = crc;
    eb_serial_put((uint8_t)(whole >> 8));
    eb_serial_put((uint8_t)whole);
}

/* The next byte; -1 if none comes for a while and the caller will not wait. */
static int get(int waits)
{
    for (uint32_t tries = 0; waits || tries < 3000000u; ++tries) {
        const int byte = eb_serial_get();
        if (byte >= 0) {
            sum((uint8_t)byte);
            return byte;
        }
    }
    return -1;
}

static uint32_t get_number(void)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
        value |= (uint32_t)get(1) << 8 * i;
    }
    return value;
}

/* Bytes of the answer, which are written to `to`; -1 if none came. A line that loses bytes is the host's to notice. The
 * answers to questions before the last are dropped: a host that is slow to listen answers several greetings. */
static int32_t answer(void *to, size_t most, int waits)
{
    for (;;) {
        int byte;
        do {
            byte = get(waits);
            if (byte < 0) {
                return -1;
            }
        } while (byte != BEGIN);
        const int is_last = get(1) == question;
        const uint32_t bytes = get_number();
        for (uint32_t i = 0; i < bytes; ++i) {
            const int next = get(1);
            if (is_last && i < most) {
                ((uint8_t *)to)[i] = (uint8_t)next;
            }
        }
        (void)get(1);
        (void)get(1);
        if (is_last) {
            return (int32_t)(bytes < most ? bytes : most);
        }
    }
}

static void hello(void)
{
    static int begun;
    if (begun) {
        return;
    }
    begun = 1;
    eb_serial_begin();
    uint32_t ignored;
    do { /* until the host listens */
        begin('H', 4);
        put_number(EB_PROGRAM);
        end();
    } while (answer(&ignored, sizeof ignored, 0) < 0);
}

static uint32_t result(void)
{
    uint32_t value = 0;
    end();
    (void)answer(&value, sizeof value, 1);
    return value;
}

void eb_print(const char *text)
{
    hello();
    begin('P', strlen(text));
    put_all(text, strlen(text));
    (void)result();
}

int eb_open(const char *path, eb_open_mode mode)
{
    hello();
    begin('O', 1 + strlen(path));
    put((uint8_t)mode);
    put_all(path, strlen(path));
    return (int)result();
}

size_t eb_read(int file, void *to, size_t bytes)
{
    size_t moved = 0;
    while (moved < bytes) {
        const size_t rest = bytes - moved < CHUNK ? bytes - moved : CHUNK;
        begin('R', 8);
        put_number((uint32_t)file);
        put_number((uint32_t)rest);
        end();
        const int32_t n = answer((uint8_t *)to + moved, rest, 1);
        if (n <= 0) {
            break;
        }
        moved += (size_t)n;
    }
    return moved;
}

size_t eb_write(int file, const void *from, size_t bytes)
{
    size_t moved = 0;
    while (moved < bytes) {
        const size_t rest = bytes - moved < CHUNK ? bytes - moved : CHUNK;
        begin('W', 4 + rest);
        put_number((uint32_t)file);
        put_all((const uint8_t *)from + moved, rest);
        const uint32_t n = result();
        if (n == 0u) {
            break;
        }
        moved += n;
    }
    return moved;
}

void eb_close(int file)
{
    begin('C', 4);
    put_number((uint32_t)file);
    (void)result();
}

void eb_exit(int status)
{
    hello();
    begin('X', 4);
    put_number((uint32_t)status);
    end();
    for (;;) {
    }
}

void eb_fault(uint32_t cause, uint32_t pc)
{
    char text[] = "fault: cause 0x00000000 at pc 0x00000000\n";
    for (int i = 0; i < 8; ++i) {
        text[15 + i] = "0123456789abcdef"[cause >> (28 - 4 * i) & 0xFu];
        text[32 + i] = "0123456789abcdef"[pc >> (28 - 4 * i) & 0xFu];
    }
    eb_print(text);
    eb_exit(125);
}
