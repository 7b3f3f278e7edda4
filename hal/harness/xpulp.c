/* SPDX-License-Identifier: 0BSD */
/* Runs a program for RV32IMC cores with the XpulpV2 instructions, and counts its instructions and cycles.
 *
 *     xpulp corev|gap8 PROGRAM.elf [CORES [DEVICES]]
 *
 * The word says how the core encodes XpulpV2: `corev` as CV32E40P 1.x, `gap8` as RI5CY. An instruction that the core
 * lacks ends the run with status 125, as do an access outside of memory and a loop that breaks the rules of CV32E40P.
 * Results and cycles were compared with the RTL of CV32E40P: tests/figures/rtl.yaml.
 *
 * DEVICES: an address from which on a megabyte is registers without function. Then the end of the program prints how many
 * instructions the first core ran, and how many accesses there were to those registers.
 *
 * At PORT the program finds semihosting, as in hal/src/semihost.c with EB_SEMIHOST_PORT. Memories answer in the next
 * cycle, also where a cache of instructions would miss.
 *
 * Several cores all begin at the entry, as those of a PULP cluster. The one whose time is the least goes on; at a bank of
 * L1 where another was in the same cycle, a core waits. Two DMA units copy beside them, with the registers of
 * hal/src/cores_pulp.c and the rates of hal/targets/gap8.yaml. A copy's bytes move when it is asked for. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 0xF0000000u
#define EVENTS 0x00204000u /* the event unit and MCHAN, as a core of a PULP cluster sees its own */
#define HYPERBUS 0x1A102180u
enum { CORES_MOST = 16, PUSHES = 8, TRANSFERS = 16 };

/* Cycles beyond one, as in hal/cycles/cv32e40p.yaml. */
enum { LATE_LOAD = 1, HIGH_PRODUCT = 4, TAKEN = 2, JUMP = 1, STRADDLED = 1, SECOND_WORD = 1 };

enum { LOADS = 1, STORES = 2, BRANCHES = 4, INCREMENTS = 8, READS_RD = 16 }; /* what an instruction is or does */

enum op {
    NONE, LUI, AUIPC, JAL, JALR, BEQ, BNE, BLT, BGE, BLTU, BGEU, BEQI, BNEI, LB, LH, LW, LBU, LHU, SB, SH, SW,
    ADD, SUB, SLL, SLT, SLTU, XOR, SRL, SRA, OR, AND, MUL, MULH, MULHSU, MULHU, DIV, DIVU, REM, REMU, FENCE, CSR,
    ABS, SLE, SLEU, MIN, MINU, MAX, MAXU, EXTHS, EXTHZ, EXTBS, EXTBZ, CLIP, CLIPU, ROR, FF1, FL1, CLB, CNT,
    EXTRACT, EXTRACTU, INSERT, BCLR, BSET, ADDN, MULN, MAC, MSU, STARTI, START, ENDI, END, COUNT, SETUP, SIMD
};

struct instruction {
    uint8_t op, length, rd, rs1, rs2, rs3, kind; /* rs2, rs3: 0 where there is an immediate */
    bool immediate;
    int32_t imm;
    uint32_t reads; /* registers */
    uint32_t word;
};

struct memory {
    uint32_t origin, size;
    bool far; /* no core reaches it */
    uint8_t *bytes;
    struct instruction *decoded;
};
static struct memory memories[] = {{0x10000000, 64u << 10, false, 0, 0}, {0x1C000000, 512u << 10, false, 0, 0},
                                   {0x20000000, 8u << 20, false, 0, 0}, {0x40000000, 8u << 20, false, 0, 0},
                                   {0x80000000, 8u << 20, true, 0, 0}};
static struct memory registers = {0, 1u << 20, false, 0, 0}; /* where there are DEVICES */
static uint64_t accesses_of_registers;
static struct memory *by_top[64]; /* six bits of the address */

struct core {
    uint32_t x[32], pc, before; /* `before`: the register that the last load brings */
    uint64_t cycles, instructions;
    struct { uint32_t start, end, count; } loops[2];
    bool asleep;
    unsigned popped; /* words of the dispatcher */
    enum { ELSEWHERE, AT_BARRIER, RELEASED } barrier;
};
static struct core cores[CORES_MOST], *me = cores;
static unsigned count_of_cores = 1;
static bool gap8, inhibited[2];

static const char *program;
static int status = 1; /* of a run that fails; 125 from the first instruction on */

static _Noreturn void fail(const char *what)
{
    fflush(stdout);
    fprintf(stderr, "%s: error: %s at pc 0x%08" PRIx32 "\n", program, what, me->pc);
    exit(status);
}

static uint8_t *in_memory(uint32_t address, uint32_t bytes, bool by_dma)
{
    const struct memory *const m = by_top[address >> 26];
    if (m == NULL || address - m->origin > m->size - bytes || bytes > m->size || (m->far && !by_dma)) {
        fail("no memory at the address");
    }
    accesses_of_registers += m == &registers;
    return m->bytes + (address - m->origin);
}

static uint8_t *at(uint32_t address, uint32_t bytes)
{
    return in_memory(address, bytes, false);
}

static uint32_t word_at(uint32_t address)
{
    uint32_t value;
    memcpy(&value, at(address, 4), 4);
    return value;
}

/* ---- semihosting */

static FILE *files[64];
static unsigned opened;
static uint8_t *bytes_read;
static size_t left, next;
static uint32_t operation, result;

static FILE *file(uint32_t handle)
{
    if (handle - 1 >= opened || files[handle - 1] == NULL) {
        fail("no such file");
    }
    return files[handle - 1];
}

/* For who runs the simulator, and asked by a variable of the environment: a line for each core. */
static void write_counts(void)
{
    const char *const path = getenv("XPULP_COUNTS");
    FILE *const f = path != NULL ? fopen(path, "wb") : NULL;
    for (unsigned n = 0; f != NULL && n < count_of_cores; ++n) {
        fprintf(f, "%" PRIu64 " %" PRIu64 "\n", cores[n].instructions, cores[n].cycles);
    }
    if (f != NULL) {
        fclose(f);
    }
}

static uint32_t call(uint32_t block)
{
    switch (operation) {
    case 0x01: {
        FILE *const f = fopen((char *)at(word_at(block), 1), word_at(block + 4) == 1 ? "rb" : "wb");
        if (f == NULL || opened == sizeof files / sizeof files[0]) {
            return UINT32_MAX;
        }
        files[opened++] = f;
        return opened;
    }
    case 0x02:
        fclose(file(word_at(block)));
        files[word_at(block) - 1] = NULL;
        return 0;
    case 0x04:
        fputs((char *)at(block, 1), stdout);
        return 0;
    case 0x05: {
        const uint32_t n = word_at(block + 8);
        return n - (uint32_t)fwrite(at(word_at(block + 4), n), 1, n, file(word_at(block)));
    }
    case 0x06: {
        const uint32_t n = word_at(block + 8);
        bytes_read = realloc(bytes_read, n + 1);
        next = 0;
        left = bytes_read != NULL ? fread(bytes_read, 1, n, file(word_at(block))) : 0;
        return n - (uint32_t)left;
    }
    case 0x20:
        if (registers.bytes != NULL) {
            printf("%" PRIu64 " %" PRIu64 "\n", cores[0].instructions, accesses_of_registers);
        }
        fflush(stdout);
        write_counts();
        exit((int)word_at(block + 4));
    default:
        fail("no such call");
    }
}

/* ---- what cores of a cluster share: the event unit, and DMA units */

enum { EVENT = 4 }; /* cycles from the event to the core that waits for it; an estimate */

/* Banks of the cluster's memory, a word wide and two for a core, answer one core in a cycle. */
enum { BANKS = 16, CLUSTER_TOP = 0x10000000 >> 26 };
static uint64_t bank_free[BANKS];

static void at_bank(uint32_t address)
{
    if (address >> 26 == CLUSTER_TOP && count_of_cores > 1) {
        uint64_t *const free = &bank_free[address / 4 % BANKS];
        me->cycles = me->cycles > *free ? me->cycles : *free;
        *free = me->cycles + 1;
    }
}

static uint32_t pushes[PUSHES];
static uint64_t push_times[PUSHES];
static unsigned pushed;
static bool woken; /* a core, by the one that goes on */
static uint64_t barrier_time;

/* A word of the dispatcher, which each core but the first takes in order. False: the core sleeps until there is one. */
static bool popped(uint32_t *value)
{
    if (me->popped == pushed) {
        return false;
    }
    const unsigned n = me->popped++ % PUSHES;
    me->cycles = (me->cycles > push_times[n] ? me->cycles : push_times[n]) + EVENT;
    *value = pushes[n];
    return true;
}

static void push(uint32_t value)
{
    for (unsigned n = 1; n < count_of_cores; ++n) {
        if (pushed - cores[n].popped == PUSHES) {
            fail("more words for the dispatcher than it holds");
        }
        cores[n].asleep = false;
    }
    woken = true;
    pushes[pushed % PUSHES] = value;
    push_times[pushed++ % PUSHES] = me->cycles;
}

/* The barrier of all cores. False: the core sleeps until the last one comes. */
static bool passed(void)
{
    if (me->barrier == RELEASED) {
        me->barrier = ELSEWHERE;
        return true;
    }
    me->barrier = AT_BARRIER;
    barrier_time = barrier_time > me->cycles ? barrier_time : me->cycles;
    for (unsigned n = 0; n < count_of_cores; ++n) {
        if (cores[n].barrier != AT_BARRIER) {
            return false;
        }
    }
    for (unsigned n = 0; n < count_of_cores; ++n) {
        cores[n].barrier = RELEASED;
        cores[n].asleep = false;
        cores[n].cycles = barrier_time + EVENT;
    }
    barrier_time = 0;
    woken = true;
    return passed();
}

/* Cycles of a DMA unit's copy, one after the other: hal/targets/gap8.yaml. */
struct unit {
    uint32_t start, piece, bytes_per_cycle;
    uint64_t free;
};
static struct unit cluster = {50, 2, 8, 0}, io = {200, 50, 2, 0};

static uint64_t copied(struct unit *unit, uint32_t to, uint32_t from, uint32_t bytes, uint32_t piece, uint32_t stride,
                       bool strided_from)
{
    uint32_t pieces = 0;
    for (uint32_t done = 0; done < bytes; done += piece, ++pieces) {
        const uint32_t n = bytes - done < piece ? bytes - done : piece, far = pieces * stride;
        memcpy(in_memory(to + (strided_from ? done : far), n, true),
               in_memory(from + (strided_from ? far : done), n, true), n);
    }
    const uint64_t begin = unit->free > me->cycles ? unit->free : me->cycles;
    unit->free = begin + unit->start + pieces * unit->piece + (bytes + unit->bytes_per_cycle - 1) / unit->bytes_per_cycle;
    return unit->free;
}

/* MCHAN: a command of three words, or four where its end outside of the cluster has rows. Transfers count by number. */
static uint32_t command[4], words_of_command, transfer, allocated;
static uint64_t transfer_ends[TRANSFERS];

static void mchan(uint32_t word)
{
    command[words_of_command++] = word;
    const bool rows = command[0] >> 18 & 1;
    if (words_of_command < (rows ? 4u : 3u)) {
        return;
    }
    words_of_command = 0;
    const uint32_t bytes = command[0] & 0xFFFF, near = command[1], far = command[2];
    const uint32_t piece = rows ? command[3] & 0x7FFF : bytes, stride = rows ? command[3] >> 16 & 0x7FFF : 0;
    const bool brings = command[0] >> 16 & 1;
    if (near >> 26 != CLUSTER_TOP || bytes == 0 || piece == 0) {
        fail("a copy that does not begin or end in the cluster's memory, or of no bytes");
    }
    transfer_ends[transfer] = copied(&cluster, brings ? near : far, brings ? far : near, bytes, piece, stride, brings);
}

/* The uDMA: registers of copies from the HyperRAM, of those to it, and the place there; a queue of two copies a way. */
static uint32_t hyperbus[9];
static uint64_t hyperbus_ends[2][2];

static bool has_devices(uint32_t address)
{
    return address - EVENTS < 0x800 || address - HYPERBUS < sizeof hyperbus;
}

/* False: the core waits for an event, and the load is tried again when there was one. */
static bool device_load(uint32_t address, uint32_t *value)
{
    *value = 0;
    switch (address) {
    case EVENTS + 0x80: return popped(value);
    case EVENTS + 0x21C: return passed();
    case EVENTS + 0x400:
        for (transfer = 0; transfer < TRANSFERS && allocated >> transfer & 1; ++transfer) {
        }
        if (transfer == TRANSFERS) {
            fail("no number is left for a transfer");
        }
        allocated |= 1u << transfer;
        transfer_ends[transfer] = 0;
        *value = transfer;
        return true;
    case EVENTS + 0x404:
        for (unsigned n = 0; n < TRANSFERS; ++n) {
            *value |= (uint32_t)(transfer_ends[n] > me->cycles) << n;
        }
        *value |= allocated << 16;
        return true;
    case HYPERBUS + 0x08: case HYPERBUS + 0x18: {
        const uint64_t *const ends = hyperbus_ends[address - HYPERBUS == 0x18];
        *value = (ends[1] > me->cycles ? 0x10u : 0) | (ends[0] > me->cycles ? 0x20u : 0);
        return true;
    }
    default: fail("a register that the simulator lacks");
    }
}

static void device_store(uint32_t address, uint32_t value)
{
    if (address - HYPERBUS < sizeof hyperbus) {
        hyperbus[(address - HYPERBUS) / 4] = value;
        if ((address == HYPERBUS + 0x08 || address == HYPERBUS + 0x18) && value & 0x10) {
            const bool sends = address == HYPERBUS + 0x18;
            const uint32_t near = hyperbus[4 * sends], bytes = hyperbus[4 * sends + 1], far = 0x80000000u + hyperbus[8];
            uint64_t *const ends = hyperbus_ends[sends];
            if (ends[0] > me->cycles || hyperbus_ends[!sends][1] > me->cycles) {
                fail("three copies of the HyperRAM at a time, or both ways at once");
            }
            if ((near | far | bytes) % 4 != 0) {
                fail("a copy of the HyperRAM that is not of whole words");
            }
            ends[0] = ends[1];
            ends[1] = copied(&io, sends ? far : near, sends ? near : far, bytes, bytes, 0, true);
        }
        return;
    }
    switch (address) {
    case EVENTS + 0x08: case EVENTS + 0x84: case EVENTS + 0x200: case EVENTS + 0x20C: return; /* masks: all cores */
    case EVENTS + 0x80: push(value); return;
    case EVENTS + 0x400: mchan(value); return;
    case EVENTS + 0x404: allocated &= ~value; return;
    default: fail("a register that the simulator lacks");
    }
}

static uint32_t load(uint32_t address, unsigned bytes)
{
    if (address >= PORT) {
        if (address == PORT + 8) {
            return left > 0 ? --left, bytes_read[next++] : 0;
        }
        return result;
    }
    uint32_t value = 0;
    at_bank(address);
    memcpy(&value, at(address, bytes), bytes);
    me->cycles += address % 4 + bytes > 4 ? SECOND_WORD : 0;
    return value;
}

static void store(uint32_t address, uint32_t value, unsigned bytes)
{
    if (address >= PORT) {
        if (address == PORT) {
            operation = value;
        } else {
            result = call(value);
        }
        return;
    }
    if (has_devices(address)) {
        device_store(address, value);
        return;
    }
    at_bank(address);
    memcpy(at(address, bytes), &value, bytes);
    me->cycles += address % 4 + bytes > 4 ? SECOND_WORD : 0;
}

/* ---- decoding */

static int32_t bits(uint32_t word, unsigned high, unsigned low)
{
    return (int32_t)(word >> low & (UINT32_MAX >> (31 - (high - low))));
}

static int32_t sign(uint32_t value, unsigned width)
{
    return (int32_t)(value << (32 - width)) >> (32 - width);
}

static uint32_t i_type(uint32_t imm, uint32_t rs1, uint32_t f3, uint32_t rd, uint32_t opcode)
{
    return imm << 20 | rs1 << 15 | f3 << 12 | rd << 7 | opcode;
}

static uint32_t s_type(uint32_t imm, uint32_t rs2, uint32_t rs1, uint32_t f3)
{
    return (imm >> 5) << 25 | rs2 << 20 | rs1 << 15 | f3 << 12 | (imm & 31) << 7 | 0x23;
}

static uint32_t j_type(int32_t offset, uint32_t rd)
{
    const uint32_t o = (uint32_t)offset;
    return (o >> 20 & 1) << 31 | (o >> 1 & 1023) << 21 | (o >> 11 & 1) << 20 | (o >> 12 & 255) << 12 | rd << 7 | 0x6F;
}

static uint32_t b_type(int32_t offset, uint32_t rs1, uint32_t f3)
{
    const uint32_t o = (uint32_t)offset;
    return (o >> 12 & 1) << 31 | (o >> 5 & 63) << 25 | rs1 << 15 | f3 << 12 | (o >> 1 & 15) << 8 | (o >> 11 & 1) << 7 | 0x63;
}

/* The instruction of four bytes that a compressed one stands for; 0: none. */
static uint32_t expanded(uint32_t c)
{
    const uint32_t rd = (uint32_t)bits(c, 11, 7), rs2 = (uint32_t)bits(c, 6, 2);
    const uint32_t low = 8 + (uint32_t)bits(c, 4, 2), high = 8 + (uint32_t)bits(c, 9, 7); /* x8 to x15 */
    const int32_t imm6 = sign((uint32_t)(bits(c, 12, 12) << 5 | bits(c, 6, 2)), 6);
    const uint32_t word_offset = (uint32_t)(bits(c, 12, 10) << 3 | bits(c, 6, 6) << 2 | bits(c, 5, 5) << 6);
    const int32_t jump = sign((uint32_t)(bits(c, 12, 12) << 11 | bits(c, 11, 11) << 4 | bits(c, 10, 9) << 8 |
                                         bits(c, 8, 8) << 10 | bits(c, 7, 7) << 6 | bits(c, 6, 6) << 7 |
                                         bits(c, 5, 3) << 1 | bits(c, 2, 2) << 5), 12);
    const int32_t branch = sign((uint32_t)(bits(c, 12, 12) << 8 | bits(c, 11, 10) << 3 | bits(c, 6, 5) << 6 |
                                           bits(c, 4, 3) << 1 | bits(c, 2, 2) << 5), 9);
    switch (c & 3u ? (c & 3u) << 3 | (uint32_t)bits(c, 15, 13) : (uint32_t)bits(c, 15, 13)) {
    case 0: {
        const uint32_t n = (uint32_t)(bits(c, 12, 11) << 4 | bits(c, 10, 7) << 6 | bits(c, 6, 6) << 2 | bits(c, 5, 5) << 3);
        return n ? i_type(n, 2, 0, low, 0x13) : 0;
    }
    case 2: return i_type(word_offset, high, 2, low, 0x03);
    case 6: return s_type(word_offset, low, high, 2);
    case 8: return i_type((uint32_t)imm6, rd, 0, rd, 0x13);
    case 9: return j_type(jump, 1);
    case 10: return i_type((uint32_t)imm6, 0, 0, rd, 0x13);
    case 11:
        if (rd == 2) {
            const int32_t n = sign((uint32_t)(bits(c, 12, 12) << 9 | bits(c, 6, 6) << 4 | bits(c, 5, 5) << 6 |
                                              bits(c, 4, 3) << 7 | bits(c, 2, 2) << 5), 10);
            return i_type((uint32_t)n, 2, 0, 2, 0x13);
        }
        return (uint32_t)imm6 << 12 | rd << 7 | 0x37;
    case 12: {
        static const uint32_t kinds[4] = {0x40000000u, 0x4000, 0x6000, 0x7000}; /* sub, xor, or, and */
        switch (bits(c, 11, 10)) {
        case 0: return i_type(rs2, high, 5, high, 0x13);
        case 1: return i_type(0x400 | rs2, high, 5, high, 0x13);
        case 2: return i_type((uint32_t)imm6, high, 7, high, 0x13);
        default: return kinds[bits(c, 6, 5)] | low << 20 | high << 15 | high << 7 | 0x33;
        }
    }
    case 13: return j_type(jump, 0);
    case 14: return b_type(branch, high, 0);
    case 15: return b_type(branch, high, 1);
    case 16: return i_type(rs2, rd, 1, rd, 0x13);
    case 18: return i_type((uint32_t)(bits(c, 12, 12) << 5 | bits(c, 6, 4) << 2 | bits(c, 3, 2) << 6), 2, 2, rd, 0x03);
    case 20:
        if (rs2 != 0) {
            return (bits(c, 12, 12) ? rd << 15 : 0u) | rs2 << 20 | rd << 7 | 0x33;
        }
        return rd != 0 ? i_type(0, rd, 0, bits(c, 12, 12) ? 1 : 0, 0x67) : 0;
    case 22: return s_type((uint32_t)(bits(c, 12, 9) << 2 | bits(c, 8, 7) << 6), rs2, 2, 2);
    default: return 0;
    }
}

static void set(struct instruction *i, enum op op, unsigned kind)
{
    i->op = op;
    i->kind = (uint8_t)kind;
}

static void with(struct instruction *i, enum op op, int32_t imm) /* an immediate in place of rs2 */
{
    i->op = op;
    i->imm = imm;
    i->rs2 = 0;
    i->immediate = true;
}

/* Loads and stores with increment (`kind` has INCREMENTS), or with an address of two registers. */
static void accesses(struct instruction *i, unsigned code, bool stores, unsigned kind)
{
    static const uint8_t loads_of[8] = {LB, LH, LW, NONE, LBU, LHU, NONE, NONE}, stores_of[8] = {SB, SH, SW};
    set(i, stores ? stores_of[code & 7] : loads_of[code & 7], kind | (stores ? STORES : LOADS));
}

static void alu_of_corev(struct instruction *i)
{
    const unsigned f7 = i->word >> 25;
    static const uint8_t single[128] = {
        [0x18] = EXTRACT, [0x19] = EXTRACTU, [0x1A] = INSERT, [0x1C] = BCLR, [0x1D] = BSET, [0x20] = ROR, [0x21] = FF1,
        [0x22] = FL1, [0x23] = CLB, [0x24] = CNT, [0x28] = ABS, [0x29] = SLE, [0x2A] = SLEU, [0x2B] = MIN, [0x2C] = MINU,
        [0x2D] = MAX, [0x2E] = MAXU, [0x30] = EXTHS, [0x31] = EXTHZ, [0x32] = EXTBS, [0x33] = EXTBZ, [0x3A] = CLIP,
        [0x3B] = CLIPU, [0x48] = MAC, [0x49] = MSU,
    };
    if (f7 < 0x10) { /* loads: bit 2 without increment, bit 3 unsigned */
        accesses(i, (f7 & 3) | (f7 & 8 ? 4 : 0), false, f7 & 4 ? 0 : INCREMENTS);
    } else if (f7 < 0x18) {
        i->rs3 = i->rd;
        i->rd = 0;
        accesses(i, f7 & 3, true, f7 & 4 ? 0 : INCREMENTS);
    } else if (f7 == 0x38 || f7 == 0x39) {
        with(i, f7 == 0x38 ? CLIP : CLIPU, i->rs2);
    } else if (f7 >= 0x40 && f7 < 0x48) { /* add or subtract, round, unsigned; the shift in a register */
        set(i, ADDN, READS_RD);
        i->imm = (f7 & 4 ? 4 : 0) | (f7 & 3);
    } else {
        set(i, single[f7], single[f7] == MAC || single[f7] == MSU || single[f7] == INSERT ? READS_RD : 0);
    }
}

/* Of both encodings: what the two upper bits and f3 of opcode 0x5B say. `round`, `high`, `is_signed`, `sum`: of 16 bits. */
static void products(struct instruction *i, bool is_signed, bool high, bool round, bool sum)
{
    set(i, MULN, sum ? READS_RD : 0);
    i->imm = bits(i->word, 29, 25) | is_signed << 5 | high << 6 | round << 7 | sum << 8;
}

static void sums(struct instruction *i, bool minus, bool is_unsigned, bool round)
{
    set(i, ADDN, 0);
    i->imm = (minus ? 4 : 0) | (round ? 2 : 0) | (is_unsigned ? 1 : 0) | 8 | bits(i->word, 29, 25) << 4;
}

static void manipulates(struct instruction *i, enum op op)
{
    with(i, op, bits(i->word, 29, 20)); /* width - 1 above, place below */
    i->kind = op == INSERT ? READS_RD : 0;
}

static void ternary_of_corev(struct instruction *i)
{
    const unsigned top = i->word >> 30, f3 = (unsigned)bits(i->word, 14, 12);
    switch (f3) {
    case 0: manipulates(i, top == 0 ? EXTRACT : top == 1 ? EXTRACTU : top == 2 ? INSERT : NONE); break;
    case 1: manipulates(i, top == 0 ? BCLR : top == 1 ? BSET : NONE); break;
    case 2: case 3: sums(i, f3 == 3, top & 1, top & 2); break;
    default: products(i, !(f3 & 1), top & 1, top & 2, f3 & 2);
    }
}

static void ternary_of_gap8(struct instruction *i)
{
    const unsigned top = i->word >> 30, f3 = (unsigned)bits(i->word, 14, 12);
    if ((f3 & 2) == 0) {
        products(i, top & 2, top & 1, f3 & 4, f3 & 1);
    } else if (top & 1) { /* the shift in a register */
        set(i, ADDN, READS_RD);
        i->imm = (f3 & 1 ? 4 : 0) | (f3 & 4 ? 2 : 0) | (top & 2 ? 1 : 0);
    } else {
        sums(i, f3 & 1, top & 2, f3 & 4);
    }
}

static bool alu_of_gap8(struct instruction *i) /* opcode 0x33, beside those of RV32IM */
{
    const unsigned f7 = i->word >> 25, f3 = (unsigned)bits(i->word, 14, 12);
    static const uint8_t compares[8] = {ABS, NONE, SLE, SLEU, MIN, MINU, MAX, MAXU};
    static const uint8_t counts[8] = {FF1, FL1, CLB, CNT, EXTHS, EXTHZ, EXTBS, EXTBZ};
    static const uint8_t fields[8] = {EXTRACT, EXTRACTU, INSERT, BCLR, BSET, NONE, NONE, NONE};
    if (f7 >= 0x60) {
        manipulates(i, fields[f3]);
    } else if (f7 == 0x40) {
        set(i, fields[f3], fields[f3] == INSERT ? READS_RD : 0);
    } else if (f7 == 0x02) {
        set(i, compares[f3], 0);
    } else if (f7 == 0x04) {
        set(i, f3 == 5 ? ROR : NONE, 0);
    } else if (f7 == 0x08) {
        set(i, counts[f3], 0);
    } else if (f7 == 0x0A && (f3 & 3) != 0 && (f3 & 3) != 3) {
        const enum op op = (f3 & 3) == 1 ? CLIP : CLIPU;
        if (f3 & 4) {
            set(i, op, 0);
        } else {
            with(i, op, i->rs2);
        }
    } else if (f7 == 0x21 && f3 < 2) {
        set(i, f3 == 0 ? MAC : MSU, READS_RD);
    } else {
        return false;
    }
    return true;
}

enum lanes { /* of SIMD, by the upper five bits in CV32E40P */
    V_ADD, V_SUB, V_AVG, V_AVGU, V_MIN, V_MINU, V_MAX, V_MAXU, V_SRL, V_SRA, V_SLL, V_OR, V_XOR, V_AND, V_ABS,
    V_DOTUP = 16, V_DOTUSP, V_DOTSP, V_SDOTUP, V_SDOTUSP, V_SDOTSP, V_ELEMENT = 23, V_SHUFFLE, V_SHUFFLE1, V_SHUFFLE2I,
    V_SHUFFLE3, V_SHUFFLE2, V_PACK = 30, V_PACKB, V_NONE = 63
};

static void simd(struct instruction *i)
{
    static const uint8_t of_gap8[32] = {
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, V_ABS, V_NONE, V_DOTUP, V_DOTUSP, V_NONE, V_DOTSP, V_SDOTUP, V_SDOTUSP,
        V_NONE, V_SDOTSP, V_SHUFFLE, V_SHUFFLE2, V_PACK, V_PACKB, V_PACKB, V_NONE, V_NONE, V_NONE,
    };
    const unsigned f5 = i->word >> 27, f3 = (unsigned)bits(i->word, 14, 12);
    unsigned lanes = gap8 ? of_gap8[f5] : f5;
    bool high = bits(i->word, 25, 25);
    if (lanes == V_PACKB) {
        high = gap8 ? f5 == 27 : high;
    }
    if (bits(i->word, 26, 26) || f3 == 2 || f3 == 3 || lanes == 15 || lanes == 22 || lanes == 29 || lanes == V_NONE) {
        return; /* comparisons and complex products are not part of this simulator */
    }
    i->op = SIMD;
    const bool element_of = lanes == V_ELEMENT; /* f3: extract .h, .b, extractu .h, .b, insert .h, .b */
    if (element_of && f3 > 5 && f3 != 6 && f3 != 7) {
        i->op = NONE;
    }
    i->kind = (lanes >= V_SDOTUP && lanes <= V_SDOTSP) || lanes == V_SHUFFLE2 || lanes == V_PACKB ||
                      (element_of && (f3 == 4 || f3 == 5))
                  ? READS_RD
                  : 0;
    const int32_t six = bits(i->word, 24, 20) << 1 | bits(i->word, 25, 25);
    const bool zero = lanes == V_AVGU || lanes == V_MINU || lanes == V_MAXU || lanes == V_DOTUP || lanes == V_SDOTUP ||
                      lanes >= V_ELEMENT || (lanes >= V_SRL && lanes <= V_SLL);
    i->imm = (int32_t)(lanes | f3 << 8 | (uint32_t)high << 11) | (zero ? six : sign((uint32_t)six, 6)) * 4096;
    if (f3 >= 6 || element_of) {
        i->rs2 = 0;
        i->immediate = true;
    }
}

static void loops_of_corev(struct instruction *i)
{
    static const uint8_t kinds[8] = {STARTI, START, ENDI, END, COUNT, COUNT, SETUP, SETUP};
    const unsigned f4 = (unsigned)bits(i->word, 11, 8);
    i->op = f4 < 8 ? kinds[f4] : NONE;
    i->rd = (uint8_t)bits(i->word, 7, 7);
    i->rs2 = 0;
    i->immediate = f4 == 4 || f4 == 6; /* the number of turns */
    i->imm = bits(i->word, 31, 20);
    if (f4 == 6) {
        i->rs3 = i->rs1; /* a number, not a register */
        i->rs1 = 0;
    }
}

static void loops_of_gap8(struct instruction *i)
{
    static const uint8_t kinds[8] = {STARTI, ENDI, COUNT, COUNT, SETUP, SETUP, NONE, NONE};
    const unsigned f3 = (unsigned)bits(i->word, 14, 12);
    i->op = kinds[f3];
    i->rd = (uint8_t)bits(i->word, 7, 7);
    i->rs2 = 0;
    i->immediate = f3 == 3 || f3 == 5;
    i->imm = bits(i->word, 31, 20);
    if (f3 == 5) {
        fail("lp.setupi is not part of this simulator");
    }
}

static struct instruction decode(uint32_t word)
{
    struct instruction i = {.op = NONE, .length = 4, .word = word};
    if ((word & 3) != 3) {
        i.length = 2;
        i.word = word = expanded(word & 0xFFFF);
    }
    const unsigned opcode = word & 127, f3 = (unsigned)bits(word, 14, 12), f7 = word >> 25;
    i.rd = (uint8_t)bits(word, 11, 7);
    i.rs1 = (uint8_t)bits(word, 19, 15);
    i.rs2 = (uint8_t)bits(word, 24, 20);
    const int32_t imm = (int32_t)word >> 20, store_imm = sign((uint32_t)(bits(word, 31, 25) << 5 | bits(word, 11, 7)), 12);
    const int32_t offset = sign((uint32_t)(bits(word, 31, 31) << 12 | bits(word, 7, 7) << 11 | bits(word, 30, 25) << 5 |
                                           bits(word, 11, 8) << 1), 13);
    static const uint8_t sums_of[8] = {ADD, SLL, SLT, SLTU, XOR, SRL, OR, AND};
    static const uint8_t branches_of[8] = {BEQ, BNE, NONE, NONE, BLT, BGE, BLTU, BGEU};
    switch (opcode) {
    case 0x37: case 0x17:
        with(&i, opcode == 0x37 ? LUI : AUIPC, (int32_t)(word & 0xFFFFF000u));
        i.rs1 = 0;
        break;
    case 0x6F:
        with(&i, JAL, sign((uint32_t)(bits(word, 31, 31) << 20 | bits(word, 19, 12) << 12 | bits(word, 20, 20) << 11 |
                                      bits(word, 30, 21) << 1), 21));
        i.rs1 = 0;
        break;
    case 0x67: with(&i, JALR, imm); break;
    case 0x63:
        set(&i, branches_of[f3], BRANCHES);
        i.rd = 0;
        i.imm = offset;
        if (gap8 && (f3 == 2 || f3 == 3)) {
            i.op = f3 == 2 ? BEQI : BNEI;
            i.rs3 = i.rs2;
            i.rs2 = 0;
        }
        break;
    case 0x03: case 0x0B:
        if (opcode == 0x0B && !gap8 && f3 >= 6) {
            set(&i, f3 == 6 ? BEQI : BNEI, BRANCHES);
            i.rs3 = i.rs2;
            i.rs2 = i.rd = 0;
            i.imm = offset;
        } else if (gap8 && f3 == 7) { /* an address of two registers */
            static const uint8_t codes[8] = {0, 1, 2, 7, 4, 5, 7, 7};
            accesses(&i, codes[f7 >> 3 & 7], false, opcode == 0x0B ? INCREMENTS : 0);
        } else {
            const bool event = opcode == 0x03 && gap8 && f3 == 6; /* p.elw, which waits for the event unit */
            accesses(&i, event ? 2 : f3, false, opcode == 0x0B ? INCREMENTS : 0);
            with(&i, i.op, imm);
        }
        break;
    case 0x23:
        accesses(&i, f3 & 3, true, 0);
        if (gap8 && f3 >= 4) {
            i.rs3 = i.rd;
        } else {
            i.immediate = true;
            i.imm = store_imm;
        }
        i.rd = 0;
        break;
    case 0x2B:
        if (f3 < 3 || (gap8 && f3 < 7)) {
            accesses(&i, f3 & 3, true, INCREMENTS);
            if (f3 < 3) {
                i.immediate = true;
                i.imm = store_imm;
            } else {
                i.rs3 = i.rd;
            }
            i.rd = 0;
        } else if (!gap8 && f3 == 3) {
            alu_of_corev(&i);
        } else if (!gap8 && f3 == 4) {
            loops_of_corev(&i);
        }
        break;
    case 0x13:
        with(&i, f3 == 5 && f7 == 0x20 ? SRA : sums_of[f3], f3 == 1 || f3 == 5 ? imm & 31 : imm);
        break;
    case 0x33:
        if (f7 == 0x01) {
            set(&i, MUL + f3, 0);
        } else if (f7 == 0x20) {
            set(&i, f3 == 0 ? SUB : f3 == 5 ? SRA : NONE, 0);
        } else if (f7 == 0) {
            set(&i, sums_of[f3], 0);
        } else if (!gap8 || !alu_of_gap8(&i)) {
            i.op = NONE;
        }
        break;
    case 0x5B: (gap8 ? ternary_of_gap8 : ternary_of_corev)(&i); break;
    case 0x7B: (gap8 ? loops_of_gap8 : simd)(&i); break;
    case 0x57:
        if (gap8) {
            simd(&i);
        }
        break;
    case 0x0F: set(&i, FENCE, 0); i.rd = i.rs1 = i.rs2 = 0; break;
    case 0x73: with(&i, f3 != 0 ? CSR : NONE, (int32_t)(word >> 20)); i.rs1 = f3 & 4 ? 0 : i.rs1; break;
    default: break;
    }
    const bool loop = i.op >= STARTI && i.op <= SETUP;
    i.reads = 1u << i.rs1 | 1u << i.rs2 | (i.op >= BEQI && i.op <= BNEI ? 0 : i.op == SETUP && i.immediate ? 0 : 1u << i.rs3);
    i.reads |= i.kind & READS_RD && !loop ? 1u << i.rd : 0;
    i.reads &= ~1u;
    return i;
}

/* ---- executing */

static uint32_t csr(uint32_t number, uint32_t value, bool write)
{
    switch (number) {
    case 0xB00: case 0xC00: return (uint32_t)me->cycles;
    case 0xB80: case 0xC80: return (uint32_t)(me->cycles >> 32);
    case 0xB02: case 0xC02: return (uint32_t)me->instructions;
    case 0xB82: case 0xC82: return (uint32_t)(me->instructions >> 32);
    case 0x320: /* mcountinhibit */
        if (write) {
            inhibited[0] = value & 1;
            inhibited[1] = value & 4;
        }
        return 0;
    case 0xF14: return (uint32_t)(me - cores); /* mhartid */
    default: return 0;
    }
}

static uint32_t field(const struct instruction *i, uint32_t a, uint32_t old, int32_t place_and_width)
{
    const unsigned place = (unsigned)place_and_width & 31, most = (unsigned)place_and_width >> 5 & 31;
    const unsigned last = place + most < 31 ? place + most : 31;
    const uint32_t mask = UINT32_MAX >> (31 - (last - place)) << place;
    switch (i->op) {
    case EXTRACT: return (uint32_t)((int32_t)(a << (31 - last)) >> (31 - last + place));
    case EXTRACTU: return (a & mask) >> place;
    case INSERT: return (old & ~mask) | (a << place & mask);
    case BCLR: return a & ~mask;
    default: return a | mask;
    }
}

static uint32_t counted(enum op op, uint32_t a)
{
    unsigned n = 0;
    switch (op) {
    case CNT:
        for (; a != 0; a &= a - 1) {
            ++n;
        }
        return n;
    case FF1: return a != 0 ? (uint32_t)__builtin_ctz(a) : 32;
    case FL1: return a != 0 ? 31 - (uint32_t)__builtin_clz(a) : 32;
    default: return a != 0 ? (uint32_t)__builtin_clrsb((int)a) : 0;
    }
}

static int32_t lane(uint32_t word, unsigned n, unsigned width, bool is_signed)
{
    const uint32_t value = word >> n * width & (UINT32_MAX >> (32 - width));
    return is_signed ? sign(value, width) : (int32_t)value;
}

static uint32_t each(unsigned kind, int32_t a, int32_t b, uint32_t ua, uint32_t ub, unsigned width)
{
    switch (kind) {
    case V_ADD: return (uint32_t)(a + b);
    case V_SUB: return (uint32_t)(a - b);
    case V_AVG: return (uint32_t)(sign((uint32_t)(a + b), width) >> 1);
    case V_AVGU: return ((ua + ub) & (UINT32_MAX >> (32 - width))) >> 1;
    case V_MIN: return (uint32_t)(a < b ? a : b);
    case V_MINU: return ua < ub ? ua : ub;
    case V_MAX: return (uint32_t)(a > b ? a : b);
    case V_MAXU: return ua > ub ? ua : ub;
    case V_SRL: return ua >> (ub & (width - 1));
    case V_SRA: return (uint32_t)(a >> (ub & (width - 1)));
    case V_SLL: return ua << (ub & (width - 1));
    case V_OR: return ua | ub;
    case V_XOR: return ua ^ ub;
    case V_AND: return ua & ub;
    default: return (uint32_t)(a < 0 ? -a : a);
    }
}

static uint32_t vectors(const struct instruction *i, uint32_t a, uint32_t b, uint32_t old)
{
    const unsigned kind = (unsigned)i->imm & 63, f3 = (unsigned)i->imm >> 8 & 7, width = f3 & 1 ? 8 : 16, n = 32 / width;
    const bool high = (unsigned)i->imm >> 11 & 1;
    const int32_t six = i->imm >> 12;
    const uint32_t mask = UINT32_MAX >> (32 - width), index = (uint32_t)six & 63;
    uint32_t made = 0;
    if (kind == V_ELEMENT) { /* the place is in bits 25 and 20 */
        const unsigned place = (width == 16 ? index & 1 : (index & 1) | (index & 2)) * width;
        if (f3 == 4 || f3 == 5) {
            return (old & ~(mask << place)) | (a & mask) << place;
        }
        return f3 < 2 ? (uint32_t)sign(a >> place & mask, width) : a >> place & mask;
    }
    if (f3 >= 6 && kind < V_SHUFFLE) {
        b = 0;
        for (unsigned l = 0; l < n; ++l) {
            b |= ((uint32_t)six & mask) << l * width;
        }
    } else if (f3 >= 4) {
        b = (b & mask) * (width == 8 ? 0x01010101u : 0x00010001u);
    }
    if (kind >= V_DOTUP && kind <= V_SDOTSP) {
        const unsigned type = (kind - V_DOTUP) % 3; /* up, usp, sp */
        made = kind >= V_SDOTUP ? old : 0;
        for (unsigned l = 0; l < n; ++l) {
            made += (uint32_t)lane(a, l, width, type == 2) * (uint32_t)lane(b, l, width, type != 0);
        }
        return made;
    }
    switch (kind) {
    case V_PACK: return a << 16 | (b & 0xFFFF) | 0u * high;
    case V_PACKB:
        return high ? (old & 0xFFFF) | (a & 255) << 24 | (b & 255) << 16 : (old & 0xFFFF0000u) | (a & 255) << 8 | (b & 255);
    case V_SHUFFLE: case V_SHUFFLE2:
        for (unsigned l = 0; l < n; ++l) {
            const uint32_t pick = b >> l * width;
            const uint32_t from = kind == V_SHUFFLE || (width == 8 ? pick & 4 : pick & 2) ? a : old;
            made |= (from >> (pick & (n - 1)) * width & mask) << l * width;
        }
        return made;
    default:
        for (unsigned l = 0; l < n; ++l) {
            made |= (each(kind, lane(a, l, width, true), lane(b, l, width, true), (uint32_t)lane(a, l, width, false),
                          (uint32_t)lane(b, l, width, false), width) & mask) << l * width;
        }
        return made;
    }
}

static uint32_t sixteen(int32_t how, uint32_t a, uint32_t b, uint32_t old)
{
    const unsigned shift = (unsigned)how & 31, from = how >> 6 & 1 ? 16 : 0;
    const bool is_signed = how >> 5 & 1;
    uint32_t made = (uint32_t)lane(a >> from, 0, 16, is_signed) * (uint32_t)lane(b >> from, 0, 16, is_signed);
    made += how >> 8 & 1 ? old : 0;
    made += how >> 7 & 1 && shift ? 1u << (shift - 1) : 0;
    return is_signed ? (uint32_t)((int32_t)made >> shift) : made >> shift;
}

static uint32_t shifted_sum(const struct instruction *i, uint32_t a, uint32_t b, uint32_t old)
{
    const bool fixed = i->imm & 8; /* rs1 and rs2 by a number, or rd and rs1 by rs2 */
    const unsigned shift = fixed ? (unsigned)i->imm >> 4 : b & 31;
    const uint32_t left_one = fixed ? a : old, right_one = fixed ? b : a;
    uint32_t made = i->imm & 4 ? left_one - right_one : left_one + right_one;
    made += i->imm & 2 && shift ? 1u << (shift - 1) : 0;
    return i->imm & 1 ? made >> shift : (uint32_t)((int32_t)made >> shift);
}

static uint32_t clipped(const struct instruction *i, uint32_t a, uint32_t b)
{
    const uint32_t bound = i->immediate ? (i->imm > 0 ? (1u << (i->imm - 1)) - 1 : 0) : b & 0x7FFFFFFF;
    const int32_t high = (int32_t)bound, low = i->op == CLIPU ? 0 : -high - 1;
    return (uint32_t)((int32_t)a < low ? low : (int32_t)a > high ? high : (int32_t)a);
}

static uint32_t quotient(enum op op, uint32_t a, uint32_t b)
{
    const bool is_signed = op == DIV || op == REM;
    /* The divider takes a cycle for each bit by which the divisor is shifted up. */
    const uint32_t size = is_signed && (int32_t)b < 0 ? ~b : b;
    me->cycles += 3 + (uint32_t)(size != 0 ? __builtin_clz(size) : 32) - (is_signed && size != 0 ? 1 : 0);
    if (b == 0) {
        return op == DIV || op == DIVU ? UINT32_MAX : a;
    }
    if (is_signed && a == 0x80000000u && b == UINT32_MAX) {
        return op == DIV ? a : 0;
    }
    switch (op) {
    case DIV: return (uint32_t)((int32_t)a / (int32_t)b);
    case DIVU: return a / b;
    case REM: return (uint32_t)((int32_t)a % (int32_t)b);
    default: return a % b;
    }
}

static uint32_t computed(const struct instruction *i, uint32_t a, uint32_t b, uint32_t old)
{
    switch ((enum op)i->op) {
    case LUI: return b;
    case AUIPC: return me->pc + b;
    case ADD: return a + b;
    case SUB: return a - b;
    case SLL: return a << (b & 31);
    case SLT: return (int32_t)a < (int32_t)b;
    case SLTU: return a < b;
    case XOR: return a ^ b;
    case SRL: return a >> (b & 31);
    case SRA: return (uint32_t)((int32_t)a >> (b & 31));
    case OR: return a | b;
    case AND: return a & b;
    case MUL: return a * b;
    case MULH: me->cycles += HIGH_PRODUCT; return (uint32_t)((int64_t)(int32_t)a * (int32_t)b >> 32);
    case MULHSU: me->cycles += HIGH_PRODUCT; return (uint32_t)((int64_t)(int32_t)a * (int64_t)b >> 32);
    case MULHU: me->cycles += HIGH_PRODUCT; return (uint32_t)((uint64_t)a * b >> 32);
    case DIV: case DIVU: case REM: case REMU: return quotient(i->op, a, b);
    case ABS: return (int32_t)a < 0 ? 0 - a : a;
    case SLE: return (int32_t)a <= (int32_t)b;
    case SLEU: return a <= b;
    case MIN: return (int32_t)a < (int32_t)b ? a : b;
    case MINU: return a < b ? a : b;
    case MAX: return (int32_t)a > (int32_t)b ? a : b;
    case MAXU: return a > b ? a : b;
    case EXTHS: return (uint32_t)sign(a, 16);
    case EXTHZ: return a & 0xFFFF;
    case EXTBS: return (uint32_t)sign(a, 8);
    case EXTBZ: return a & 0xFF;
    case CLIP: case CLIPU: return clipped(i, a, b);
    case ROR: return b & 31 ? a >> (b & 31) | a << (32 - (b & 31)) : a;
    case FF1: case FL1: case CLB: case CNT: return counted(i->op, a);
    case EXTRACT: case EXTRACTU: case INSERT: case BCLR: case BSET:
        return field(i, a, old, i->immediate ? i->imm : (int32_t)b);
    case ADDN: return shifted_sum(i, a, b, old);
    case MULN: return sixteen(i->imm, a, b, old);
    case MAC: return old + a * b;
    case MSU: return old - a * b;
    case SIMD: return vectors(i, a, b, old);
    default: fail("an instruction that the core lacks");
    }
}

static bool taken(const struct instruction *i, uint32_t a, uint32_t b)
{
    switch ((enum op)i->op) {
    case BEQ: return a == b;
    case BNE: return a != b;
    case BLT: return (int32_t)a < (int32_t)b;
    case BGE: return (int32_t)a >= (int32_t)b;
    case BLTU: return a < b;
    case BGEU: return a >= b;
    case BEQI: return (int32_t)a == sign(i->rs3, 5);
    default: return (int32_t)a != sign(i->rs3, 5);
    }
}

static void set_loop(const struct instruction *i, uint32_t a)
{
    const unsigned n = i->rd & 1, step = gap8 ? 2 : 4, past = gap8 ? 4 : 0; /* RI5CY: the end is the last instruction */
    switch ((enum op)i->op) {
    case STARTI: me->loops[n].start = me->pc + step * (uint32_t)i->imm; break;
    case START: me->loops[n].start = a; break;
    case ENDI: me->loops[n].end = me->pc + step * (uint32_t)i->imm + past; break;
    case END: me->loops[n].end = a; break;
    case COUNT: me->loops[n].count = i->immediate ? (uint32_t)i->imm : a; break;
    default:
        me->loops[n].start = me->pc + 4;
        me->loops[n].end = me->pc + step * (uint32_t)i->imm + past;
        me->loops[n].count = i->immediate ? i->rs3 : a;
        break;
    }
    if (me->pc % 4 || me->loops[n].start % 4 || me->loops[n].end % 4) {
        fail("a hardware loop does not lie on words");
    }
}

/* Behind an instruction of four bytes: to the beginning of a loop that ends here and has turns left. */
static uint32_t behind(uint32_t next_pc)
{
    for (unsigned n = 0; n < 2; ++n) {
        if (me->loops[n].count != 0 && next_pc == me->loops[n].end) {
            if (me->loops[n].end - me->loops[n].start < 12 || (n == 1 && me->loops[1].end < me->loops[0].end + 8 && me->loops[0].end > me->loops[1].start && me->loops[0].end <= me->loops[1].end)) {
                fail("a hardware loop of fewer than three instructions, or whose end is that of its inner one");
            }
            if (--me->loops[n].count != 0) {
                return me->loops[n].start;
            }
        }
    }
    return next_pc;
}

static void go(uint32_t target)
{
    me->pc = target;
    const uint8_t *const there = at(me->pc, 2);
    me->cycles += me->pc % 4 && (*there & 3) == 3 ? STRADDLED : 0;
}

/* False: the core waits for an event first. */
static bool accessed(const struct instruction *i, uint32_t a, uint32_t *loaded)
{
    static const uint8_t sizes[] = {1, 2, 4, 1, 2, 1, 2, 4};
    const uint32_t offset = i->immediate ? (uint32_t)i->imm : me->x[i->kind & STORES ? i->rs3 : i->rs2];
    const uint32_t address = i->kind & INCREMENTS ? a : a + offset;
    const unsigned bytes = sizes[i->op - LB];
    if (i->kind & STORES) {
        store(address, me->x[i->rs2], bytes);
    } else if (has_devices(address)) {
        if (!device_load(address, loaded)) {
            return false;
        }
    } else {
        const uint32_t value = load(address, bytes);
        *loaded = i->op == LB ? (uint32_t)sign(value, 8) : i->op == LH ? (uint32_t)sign(value, 16) : value;
    }
    if (i->kind & INCREMENTS && i->rs1 != 0) {
        me->x[i->rs1] = a + offset;
    }
    return true;
}

static void step(void)
{
    (void)at(me->pc, 2);
    const struct memory *const m = by_top[me->pc >> 26];
    struct instruction *const i = &m->decoded[(me->pc - m->origin) / 2];
    if (i->length == 0) {
        uint32_t word;
        memcpy(&word, at(me->pc, 2), 4);
        *i = decode(word);
    }
    const uint32_t a = me->x[i->rs1], b = i->immediate ? (uint32_t)i->imm : me->x[i->rs2], next_pc = me->pc + i->length;
    const unsigned time = 1 + (i->reads >> me->before & 1 ? LATE_LOAD : 0);
    me->cycles += time;
    ++me->instructions;
    me->before = 0;
    if (i->kind & (LOADS | STORES) && i->op != NONE) {
        uint32_t loaded = 0;
        if (!accessed(i, a, &loaded)) {
            me->asleep = true; /* and tries again afterwards */
            me->cycles -= time;
            --me->instructions;
            return;
        }
        if (i->kind & LOADS && i->rd != 0) {
            me->x[i->rd] = loaded;
            me->before = i->rd;
        }
    } else if (i->kind & BRANCHES && i->op != NONE) {
        if (taken(i, a, me->x[i->rs2])) {
            me->cycles += TAKEN;
            go(me->pc + (uint32_t)i->imm);
            return;
        }
    } else if (i->op == JAL || i->op == JALR) {
        const uint32_t target = i->op == JAL ? me->pc + (uint32_t)i->imm : (a + (uint32_t)i->imm) & ~1u;
        me->cycles += JUMP;
        if (i->rd != 0) {
            me->x[i->rd] = next_pc;
        }
        go(target);
        return;
    } else if (i->op >= STARTI && i->op <= SETUP) {
        set_loop(i, a);
    } else if (i->op == CSR) {
        const uint32_t old = csr((uint32_t)i->imm, i->word >> 14 & 1 ? i->word >> 15 & 31 : a, (i->word >> 12 & 3) == 1);
        me->x[i->rd] = i->rd != 0 ? old : 0;
    } else if (i->op != FENCE) {
        const uint32_t made = computed(i, a, b, me->x[i->rd]);
        me->x[i->rd] = i->rd != 0 ? made : 0;
    }
    me->pc = i->length == 4 && (me->loops[0].count | me->loops[1].count) ? behind(next_pc) : next_pc;
}

static void read_program(const char *path)
{
    FILE *const f = fopen(path, "rb");
    uint8_t head[52], segment[32];
    uint32_t from, bytes, address, type, places;
    uint16_t size, count;
    if (f == NULL || fread(head, 1, sizeof head, f) != sizeof head || memcmp(head, "\177ELF\1\1", 6) != 0 ||
        head[18] != 243 || head[19] != 0) {
        fprintf(stderr, "%s: error: it is no program of a RISC-V core of 32 bits\n", path);
        exit(1);
    }
    memcpy(&me->pc, head + 24, 4);
    memcpy(&places, head + 28, 4);
    memcpy(&size, head + 42, 2);
    memcpy(&count, head + 44, 2);
    for (unsigned n = 0; n < count; ++n) {
        if (fseek(f, (long)(places + n * size), SEEK_SET) != 0 || fread(segment, 1, sizeof segment, f) != sizeof segment) {
            fail("a program header that is not there");
        }
        memcpy(&type, segment, 4);
        memcpy(&from, segment + 4, 4);
        memcpy(&address, segment + 12, 4);
        memcpy(&bytes, segment + 16, 4);
        if (type == 1 && bytes != 0) {
            if (fseek(f, (long)from, SEEK_SET) != 0 || fread(in_memory(address, bytes, true), 1, bytes, f) != bytes) {
                fail("a segment that is not there");
            }
        }
    }
    fclose(f);
}

int main(int count, char **arguments)
{
    const long wanted = count >= 4 ? strtol(arguments[3], NULL, 10) : 1;
    if (count < 3 || count > 5 || (strcmp(arguments[1], "corev") != 0 && strcmp(arguments[1], "gap8") != 0) ||
        wanted < 1 || wanted > CORES_MOST) {
        fputs("usage: xpulp corev|gap8 PROGRAM.elf [CORES [DEVICES]]\n", stderr);
        return 2;
    }
    gap8 = strcmp(arguments[1], "gap8") == 0;
    count_of_cores = (unsigned)wanted;
    for (size_t n = 0; n < sizeof memories / sizeof memories[0]; ++n) {
        struct memory *const m = &memories[n];
        m->bytes = calloc(m->size + 8, 1);
        m->decoded = m->far ? NULL : calloc(m->size / 2, sizeof *m->decoded);
        if (m->bytes == NULL || (!m->far && m->decoded == NULL)) {
            fail("too little memory for the simulator");
        }
        by_top[m->origin >> 26] = m;
    }
    if (count == 5) {
        registers.origin = (uint32_t)strtoul(arguments[4], NULL, 0);
        registers.bytes = calloc(registers.size + 8, 1);
        registers.decoded = calloc(registers.size / 2, sizeof *registers.decoded);
        if (registers.bytes == NULL || registers.decoded == NULL) {
            fail("too little memory for the simulator");
        }
        by_top[registers.origin >> 26] = &registers;
    }
    read_program(program = arguments[2]);
    status = 125;
    for (unsigned n = 1; n < count_of_cores; ++n) {
        cores[n].pc = cores[0].pc;
    }
    for (;;) {
        const struct core *others = NULL; /* the first of those that are awake, but for the one that goes on */
        me = NULL;
        for (unsigned n = 0; n < count_of_cores; ++n) {
            struct core *const core = &cores[n];
            if (core->asleep) {
                continue;
            }
            if (me == NULL || core->cycles < me->cycles) {
                others = me;
                me = core;
            } else if (others == NULL || core->cycles < others->cycles) {
                others = core;
            }
        }
        if (me == NULL) {
            me = cores;
            fail("all cores wait");
        }
        for (woken = false; !me->asleep && !woken && (others == NULL || me->cycles <= others->cycles);) {
            step();
        }
    }
}
