/* SPDX-License-Identifier: MIT-0
 * eb_link.h for simulation: a relay on the machine that runs the simulator plays the medium and keeps the time. Two
 * named pipes in the program's folder lead to it. Works by semihosting, and on the build machine by stdio.
 *
 * A request, words in little endian: operation and device, bytes, timeout in microseconds, ticks of the counter that
 * this program has computed since the last request. SEND is followed by the bytes. The relay answers RECEIVE with a
 * word (0: the bytes follow; 1: timeout; 2: the test is over) and TIME with the time.
 */
#include "eb_counter.h"
#include "eb_link.h"
#include "eb_semihost.h"
#include "link_relay.h"

enum { SEND = 0, RECEIVE = 1, TIME = 2 };

int eb_relay_over;

static int to_relay = -1, from_relay = -1;
static uint64_t resumed; /* the counter when the last request was answered */

static void write_all(const void *data, uint32_t bytes)
{
    const uint8_t *const from = data;
    for (size_t done = 0, n = 1; done < bytes && !eb_relay_over; done += n) {
        n = eb_write(to_relay, from + done, bytes - done);
        eb_relay_over = n == 0u; /* the relay is gone */
    }
}

static void read_all(void *data, uint32_t bytes)
{
    uint8_t *const to = data;
    for (size_t done = 0, n = 1; done < bytes && !eb_relay_over; done += n) {
        n = eb_read(from_relay, to + done, bytes - done);
        eb_relay_over = n == 0u;
    }
}

static void request(uint32_t operation, uint8_t device, uint32_t bytes, uint32_t timeout_us)
{
    if (to_relay < 0) {
        to_relay = eb_open("to_relay", EB_WRITE);
        from_relay = eb_open("from_relay", EB_READ);
        eb_counter_start();
        resumed = eb_counter_read();
    }
    uint32_t words[4] = {operation | (uint32_t)device << 8, bytes, timeout_us, (uint32_t)(eb_counter_read() - resumed)};
    write_all(words, sizeof words);
}

int eb_link_send(uint8_t to, const void *from, uint32_t bytes)
{
    request(SEND, to, bytes, 0);
    write_all(from, bytes);
    resumed = eb_counter_read();
    return EB_OK;
}

int eb_link_receive(uint8_t from, void *to, uint32_t bytes, uint32_t timeout_us)
{
    uint32_t status = 2;
    request(RECEIVE, from, bytes, timeout_us);
    read_all(&status, sizeof status);
    if (status == 0u) {
        read_all(to, bytes);
    } else if (status == 2u) {
        eb_relay_over = 1;
    }
    resumed = eb_counter_read();
    return status == 0u && !eb_relay_over ? EB_OK : EB_LINK_TIMEOUT;
}

uint32_t eb_link_time_us(void)
{
    uint32_t now = 0;
    request(TIME, 0, 0, 0);
    read_all(&now, sizeof now);
    resumed = eb_counter_read();
    return now;
}
