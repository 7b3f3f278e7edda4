/* SPDX-License-Identifier: 0BSD */
/* A plugin of QEMU: what a program executed from one address of code to another, in steps that begin at each arrival at a
 * marked address. Of each step it writes to a file
 *
 *     step INSTRUCTION_LINES DATA_LINES RELOADS     lines that were not in their cache; see below
 *     HERE THERE COUNT                              how often the block HERE was followed by the block THERE
 *
 * and at the end of everything a line "block NUMBER BEGIN END" of each block.
 *
 * Caches have sets of lines, of which the one that was used longest ago is given up. A store neither brings nor keeps a
 * line. A reload is a load from the word that one of the last two instructions stored.
 * The declarations are those of QEMU's plugin API, version 1.
 * Arguments: from, to, mark (addresses), skip (BEGIN-END, code that belongs to no step, repeated), low, high (addresses
 * that are cached), line (bytes), icache, dcache (SETSxWAYS), out (file). */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t id;
struct tb;
struct insn;
__attribute__((visibility("default"))) int qemu_plugin_version = 1;
size_t qemu_plugin_tb_n_insns(const struct tb *);
struct insn *qemu_plugin_tb_get_insn(const struct tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct insn *);
size_t qemu_plugin_insn_size(const struct insn *);
unsigned qemu_plugin_mem_size_shift(uint32_t);
bool qemu_plugin_mem_is_store(uint32_t);
void qemu_plugin_register_vcpu_tb_trans_cb(id, void (*)(id, struct tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct tb *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct insn *, void (*)(unsigned, uint32_t, uint64_t, void *), int, int, void *);

enum { MOST_LINES = 1024, MOST_SKIPPED = 8, NO_REGISTERS = 0, ANY_ACCESS = 3, SLOTS = 1 << 16 };

struct cache {
    uint64_t line[MOST_LINES], used[MOST_LINES], now, misses, last;
    unsigned sets, ways;
};
struct block {
    struct block *next; /* of all blocks */
    uint64_t begin, end;
    unsigned number, instructions;
    bool skipped;
};
struct pair {
    unsigned here, there;
    uint64_t count;
};

static struct cache code, data;
static uint64_t from, to, mark, low, high = UINT64_MAX, line_bytes;
static uint64_t skipped[MOST_SKIPPED][2];
static unsigned skips;
static FILE *out;
static struct block *blocks;
static struct pair pairs[SLOTS];
static unsigned used;
static bool counting;
static const struct block *before;
static uint64_t executed_before, reloads, stored_word = UINT64_MAX, stored_at;

static void touch(struct cache *c, uint64_t address, bool store)
{
    const uint64_t line = address / line_bytes + 1;
    if (address < low || address >= high || line == c->last) {
        return;
    }
    const unsigned first = (unsigned)((line - 1) % c->sets) * c->ways;
    unsigned oldest = first;
    ++c->now;
    for (unsigned i = first; i < first + c->ways; ++i) {
        if (c->line[i] == line) {
            c->used[i] = c->now;
            c->last = c->sets == 1 ? line : 0;
            return;
        }
        oldest = c->used[i] < c->used[oldest] ? i : oldest;
    }
    if (!store) {
        c->last = c->sets == 1 ? line : 0;
        c->line[oldest] = line;
        c->used[oldest] = c->now;
        ++c->misses;
    }
}

static void count(unsigned here, unsigned there)
{
    unsigned slot = (here * 0x9E3779B1u ^ there * 0x85EBCA77u) % SLOTS;
    while (pairs[slot].count && (pairs[slot].here != here || pairs[slot].there != there)) {
        slot = (slot + 1) % SLOTS;
    }
    if (!pairs[slot].count && ++used == SLOTS) {
        abort(); /* a program with so many branches is none of ours */
    }
    pairs[slot].here = here;
    pairs[slot].there = there;
    ++pairs[slot].count;
}

static void end_step(void)
{
    fprintf(out, "step %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", code.misses, data.misses, reloads);
    for (unsigned i = 0; i < SLOTS; ++i) {
        if (pairs[i].count) {
            fprintf(out, "%u %u %" PRIu64 "\n", pairs[i].here, pairs[i].there, pairs[i].count);
        }
    }
    memset(pairs, 0, sizeof pairs);
    used = 0;
    code.misses = data.misses = reloads = 0;
}

static void end(void)
{
    end_step();
    for (struct block *b = blocks; b != NULL; b = b->next) {
        fprintf(out, "block %u %" PRIu64 " %" PRIu64 "\n", b->number, b->begin, b->end);
    }
    fclose(out);
    _Exit(0);
}

static void executed(unsigned cpu, void *which)
{
    (void)cpu;
    struct block *const b = which;
    counting = counting || b->begin == from;
    if (!counting) {
        return;
    }
    if (b->begin == mark && before != NULL) {
        count(before->number, b->number);
        end_step();
        before = NULL;
    }
    if (b->begin == to) {
        end();
    }
    executed_before += b->instructions;
    if (b->skipped) {
        return;
    }
    for (uint64_t at = b->begin / line_bytes * line_bytes; at < b->end; at += line_bytes) {
        touch(&code, at < b->begin ? b->begin : at, false);
    }
    if (before != NULL) {
        count(before->number, b->number);
    }
    before = b;
}

static void accessed(unsigned cpu, uint32_t info, uint64_t address, void *index)
{
    (void)cpu;
    if (!counting) {
        return;
    }
    const bool store = qemu_plugin_mem_is_store(info);
    const uint64_t bytes = (uint64_t)1 << qemu_plugin_mem_size_shift(info);
    const uint64_t now = executed_before + (uintptr_t)index; /* of an order that only differences are taken of */
    touch(&data, address, store);
    touch(&data, address + bytes - 1, store);
    if (store) {
        stored_word = address / 4;
        stored_at = now;
    } else if (address / 4 == stored_word && now - stored_at <= 2) {
        ++reloads;
    }
}

static void translated(id plugin, struct tb *tb)
{
    (void)plugin;
    const size_t count_of = qemu_plugin_tb_n_insns(tb);
    struct insn *const last = qemu_plugin_tb_get_insn(tb, count_of - 1);
    struct block *const b = calloc(1, sizeof *b);
    if (b == NULL) {
        abort();
    }
    b->begin = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
    b->end = qemu_plugin_insn_vaddr(last) + qemu_plugin_insn_size(last);
    b->instructions = (unsigned)count_of;
    b->number = blocks != NULL ? blocks->number + 1 : 0;
    b->next = blocks;
    for (unsigned i = 0; i < skips; ++i) {
        b->skipped = b->skipped || (b->begin >= skipped[i][0] && b->begin < skipped[i][1]);
    }
    blocks = b;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, NO_REGISTERS, b);
    for (size_t i = 0; i < count_of && !b->skipped; ++i) {
        /* `executed` has counted the whole block when its instructions run: places in it are below that */
        void *const index = (void *)(uintptr_t)(i - count_of);
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(tb, i), accessed, NO_REGISTERS, ANY_ACCESS, index);
    }
}

static bool has_shape(struct cache *c, const char *text)
{
    char *rest;
    c->sets = (unsigned)strtoul(text, &rest, 10);
    c->ways = *rest == 'x' ? (unsigned)strtoul(rest + 1, NULL, 10) : 0;
    return c->sets && c->ways && c->sets <= MOST_LINES && c->ways <= MOST_LINES / c->sets;
}

static bool is_set(const char *name, const char *value)
{
    char *rest;
    const uint64_t number = strtoull(value, &rest, 0);
    if (!strcmp(name, "skip") && *rest == '-' && skips < MOST_SKIPPED) {
        skipped[skips][0] = number;
        skipped[skips++][1] = strtoull(rest + 1, NULL, 0);
        return true;
    }
    if (!strcmp(name, "out")) {
        return (out = fopen(value, "w")) != NULL;
    }
    if (!strcmp(name, "icache") || !strcmp(name, "dcache")) {
        return has_shape(name[0] == 'i' ? &code : &data, value);
    }
    const struct { const char *name; uint64_t *to; } numbers[] = {
        {"from", &from}, {"to", &to}, {"mark", &mark}, {"low", &low}, {"high", &high}, {"line", &line_bytes},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; ++i) {
        if (!strcmp(name, numbers[i].name)) {
            *numbers[i].to = number;
            return true;
        }
    }
    return false;
}

__attribute__((visibility("default"))) int qemu_plugin_install(id plugin, const void *info, int count_of, char **arguments)
{
    (void)info;
    for (int i = 0; i < count_of; ++i) {
        char *const value = strchr(arguments[i], '=');
        if (value == NULL) {
            return 1;
        }
        *value = '\0';
        if (!is_set(arguments[i], value + 1)) {
            return 1;
        }
    }
    if (!line_bytes || !code.sets || !data.sets || !out) {
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
    return 0;
}
