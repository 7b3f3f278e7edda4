/* SPDX-License-Identifier: MIT-0
 * eb_dma.h on a PULP cluster such as GAP8's: its event unit wakes cores, MCHAN copies between L1 and L2, and the uDMA
 * copies between HyperRAM and L2. Registers: GreenWaves' gap_sdk (archi/eu, archi/dma/mchan_v6.h, GAP8.h) as of
 * 2020. The program has set up the pads and the timing of the HyperBus, and L3's addresses are its own less 0x80000000.
 */
#include "eb_dma.h"

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))
#define EVENTS 0x00204000u
#define MCHAN (EVENTS + 0x400u)
#define MCHAN_STATUS (EVENTS + 0x404u) /* low half: transfers under way; high half: numbers that are taken */
#define HYPERBUS 0x1A102180u

#define TEAM 0xFFu /* eight cores */

enum { CHANNELS = 64, QUEUE = 64, LONGEST = 0xFFFC, L1_TOP = 4, RUNNING = 0x10, PENDING = 0x20,
       RECEIVE = 0x00, SEND = 0x10 };

static uint64_t copies, bytes_copied, pieces;
static uint32_t feed(void);

/* ---- cores */

static void listen(void)
{
    REGISTER(EVENTS + 0x08u) = 0x50000u;       /* events: the barrier's, and the dispatcher's */
    REGISTER(EVENTS + 0x84u) = TEAM & ~1u;     /* for whom words of the dispatcher are */
    REGISTER(EVENTS + 0x200u) = TEAM;          /* barrier 0: who comes */
    REGISTER(EVENTS + 0x20Cu) = TEAM;          /* and who is woken */
}

void eb_cores_run(void (*function)(int core, const void *data), const void *data)
{
    static int listening;
    if (!listening) {
        listen();
        listening = 1;
    }
    __asm__ volatile("" ::: "memory");
    REGISTER(EVENTS + 0x80u) = (uint32_t)(uintptr_t)function;
    REGISTER(EVENTS + 0x80u) = (uint32_t)(uintptr_t)data;
    (void)feed();
    function(0, data);
    __asm__ volatile(".insn i 0x03, 6, x0, %0, 0x21C" : : "r"(EVENTS) : "memory"); /* the barrier: trigger, wait, clear */
}

/* ---- MCHAN. A copy has one of 16 numbers until it is waited for. */

static uint8_t numbers[CHANNELS]; /* of each channel's copy, plus 1 */

static void finish(uint32_t channel)
{
    if (numbers[channel] != 0) {
        const uint32_t bit = 1u << (numbers[channel] - 1u);
        while (REGISTER(MCHAN_STATUS) & bit) {
        }
        REGISTER(MCHAN_STATUS) = bit;
        numbers[channel] = 0;
    }
}

static void begin(uint32_t channel)
{
    static uint32_t other;
    finish(channel); /* a channel does its copies one after the other */
    while (REGISTER(MCHAN_STATUS) >> 16 == 0xFFFFu) {
        other = (other + 1u) % CHANNELS;
        finish(other);
    }
    numbers[channel] = (uint8_t)(REGISTER(MCHAN) + 1u);
}

/* Bytes in a row in L1, and in pieces of `piece` bytes that lie `step` bytes apart in L2. */
static void command(uint32_t near, uint32_t far, uint32_t bytes, uint32_t piece, uint32_t step, uint32_t brings)
{
    const uint32_t most = piece == bytes ? LONGEST : LONGEST / piece * piece;
    for (uint32_t done = 0; done < bytes; done += most) {
        const uint32_t now = bytes - done < most ? bytes - done : most;
        REGISTER(MCHAN) = now | brings << 16 | 1u << 17 | (uint32_t)(piece != bytes) << 18; /* 17: addresses rise */
        REGISTER(MCHAN) = near + done;
        REGISTER(MCHAN) = far + (piece == bytes ? done : done / piece * step);
        if (piece != bytes) {
            REGISTER(MCHAN) = piece | step << 16;
        }
    }
}

static void cluster_copy(uint32_t channel, const eb_copy *copy)
{
    const uint32_t to = (uint32_t)(uintptr_t)copy->to, from = (uint32_t)(uintptr_t)copy->from, brings = to >> 26 == L1_TOP;
    const int32_t near_row = brings ? copy->to_row : copy->from_row, far_row = brings ? copy->from_row : copy->to_row;
    const int32_t near_plane = brings ? copy->to_plane : copy->from_plane;
    const int32_t far_plane = brings ? copy->from_plane : copy->to_plane;
    /* Rows that follow each other in L1 are one command, those that do in L2 as well one piece. */
    const int joined = copy->rows > 1 && near_row == (int32_t)copy->bytes && far_row >= 0 && far_row < 0x8000 &&
                       (copy->bytes < 0x8000 || far_row == near_row);
    const uint32_t commands = joined ? 1u : copy->rows, piece = copy->bytes, bytes = joined ? piece * copy->rows : piece;
    begin(channel);
    for (uint32_t plane = 0; plane < copy->planes; ++plane) {
        for (uint32_t row = 0; row < commands; ++row) {
            const uint32_t near_at = plane * (uint32_t)near_plane + row * (uint32_t)near_row;
            const uint32_t far_at = plane * (uint32_t)far_plane + row * (uint32_t)far_row;
            command((brings ? to : from) + near_at, (brings ? from : to) + far_at, bytes,
                    far_row == near_row ? bytes : piece, (uint32_t)far_row, brings);
        }
    }
}

/* ---- HyperRAM. The uDMA holds two transfers; others wait here, and are handed on whenever it is called. */

typedef struct {
    uint32_t far, near, bytes, side; /* addresses in HyperRAM and in L2; RECEIVE or SEND */
} transfer;

static transfer queue[QUEUE];
static uint32_t asked, handed, last[CHANNELS]; /* transfers so far; those of a channel */

/* Transfers that are done. Those from HyperRAM wait for those to it, and the other way round. */
static uint32_t feed(void)
{
    static uint32_t side = RECEIVE;
    uint32_t state = REGISTER(HYPERBUS + side + 0x08u);
    while (!(state & PENDING) && handed != asked) {
        const transfer *const next = &queue[handed % QUEUE];
        if (next->side != side) {
            if (state & RUNNING) {
                break;
            }
            side = next->side;
        }
        handed += 1;
        REGISTER(HYPERBUS + 0x20u) = next->far & 0x7FFFFFFFu;
        REGISTER(HYPERBUS + side) = next->near;
        REGISTER(HYPERBUS + side + 0x04u) = next->bytes;
        REGISTER(HYPERBUS + side + 0x08u) = RUNNING;
        state = REGISTER(HYPERBUS + side + 0x08u);
    }
    return handed - (state & RUNNING ? 1u : 0u) - (state & PENDING ? 1u : 0u);
}

static void store_copy(uint32_t channel, const eb_copy *copy)
{
    const uint32_t sends = (uint32_t)(uintptr_t)copy->to >> 31;
    for (uint32_t row = 0; row < copy->rows * copy->planes; ++row) {
        const int32_t plane = (int32_t)(row / copy->rows), rest = (int32_t)(row % copy->rows);
        while (asked - feed() == QUEUE) {
        }
        const uint32_t to = (uint32_t)(uintptr_t)copy->to + (uint32_t)(plane * copy->to_plane + rest * copy->to_row);
        const uint32_t from = (uint32_t)(uintptr_t)copy->from + (uint32_t)(plane * copy->from_plane + rest * copy->from_row);
        const uint32_t bytes = (copy->bytes + 3u) & ~3u; /* whole words: what generated code brings has room for them */
        queue[asked++ % QUEUE] = sends ? (transfer){to, from, bytes, SEND} : (transfer){from, to, bytes, RECEIVE};
    }
    last[channel] = asked;
    (void)feed();
}

void eb_dma_start(int32_t channel, const eb_copy *copy)
{
    __asm__ volatile("" ::: "memory");
    if (((uint32_t)(uintptr_t)copy->from | (uint32_t)(uintptr_t)copy->to) >> 31) {
        store_copy((uint32_t)channel, copy);
    } else {
        cluster_copy((uint32_t)channel, copy);
        (void)feed();
    }
    copies += 1;
    bytes_copied += (uint64_t)copy->bytes * copy->rows * copy->planes;
    pieces += copy->rows * copy->planes;
}

void eb_dma_wait(int32_t channel)
{
    finish((uint32_t)channel);
    while ((int32_t)(feed() - last[channel]) < 0) {
    }
    __asm__ volatile("" ::: "memory");
}

int eb_dma_counted(uint64_t counts[3])
{
    counts[0] = copies;
    counts[1] = bytes_copied;
    counts[2] = pieces;
    return 1;
}
