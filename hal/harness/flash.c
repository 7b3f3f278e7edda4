/* SPDX-License-Identifier: 0BSD */
/* A plugin of QEMU: lines that a core fetches from flash, through a small cache of instructions and one of data, each with
 * the line that was used longest ago given up first. It counts from one address of code to another and writes
 * "instructions data\n", the misses of each, to a file: at the end, and before that at each arrival at a marked address.
 * The declarations are those of QEMU's plugin API, version 1.
 * Arguments: from, to, mark, flash, end (addresses), line (bytes), code, data (lines), out (file). */
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
void qemu_plugin_register_vcpu_tb_trans_cb(id, void (*)(id, struct tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct insn *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct insn *, void (*)(unsigned, uint32_t, uint64_t, void *), int, int, void *);

enum { MOST = 1024, NO_REGISTERS = 0, ANY_ACCESS = 3 };
struct cache {
    uint64_t line[MOST], used[MOST], now, misses, last;
    unsigned lines;
};
static struct cache code, data;
static uint64_t from, to, mark, flash, flash_end, line_bytes;
static FILE *out;
static bool counting;

static void report(void)
{
    if (counting) {
        fprintf(out, "%" PRIu64 " %" PRIu64 "\n", code.misses, data.misses);
    }
}

static void touch(struct cache *c, uint64_t address)
{
    const uint64_t line = address / line_bytes + 1;
    if (!counting || address < flash || address >= flash_end || line == c->last) {
        return;
    }
    unsigned oldest = 0;
    c->last = line;
    ++c->now;
    for (unsigned i = 0; i < c->lines; ++i) {
        if (c->line[i] == line) {
            c->used[i] = c->now;
            return;
        }
        oldest = c->used[i] < c->used[oldest] ? i : oldest;
    }
    c->line[oldest] = line;
    c->used[oldest] = c->now;
    ++c->misses;
}

static void executed(unsigned cpu, void *place)
{
    (void)cpu;
    const uint64_t address = (uint64_t)(uintptr_t)place >> 3, size = (uintptr_t)place & 7;
    if (address == from) {
        counting = true;
    } else if (address == mark) {
        report();
    } else if (address == to && counting) {
        report();
        fclose(out);
        _Exit(0);
    }
    touch(&code, address);
    touch(&code, address + size - 1);
}

static void accessed(unsigned cpu, uint32_t info, uint64_t address, void *unused)
{
    (void)cpu;
    (void)unused;
    touch(&data, address);
    touch(&data, address + ((uint64_t)1 << qemu_plugin_mem_size_shift(info)) - 1);
}

static void translated(id plugin, struct tb *tb)
{
    (void)plugin;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); ++i) {
        struct insn *const one = qemu_plugin_tb_get_insn(tb, i);
        const uint64_t place = qemu_plugin_insn_vaddr(one) << 3 | qemu_plugin_insn_size(one);
        qemu_plugin_register_vcpu_insn_exec_cb(one, executed, NO_REGISTERS, (void *)(uintptr_t)place);
        qemu_plugin_register_vcpu_mem_cb(one, accessed, NO_REGISTERS, ANY_ACCESS, NULL);
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(id plugin, const void *info, int count, char **arguments)
{
    (void)info;
    for (int i = 0; i < count; ++i) {
        const char *const value = strchr(arguments[i], '=');
        const uint64_t number = value ? strtoull(value + 1, NULL, 0) : 0;
        switch (value ? arguments[i][0] << 8 | arguments[i][1] : 0) {
        case 'f' << 8 | 'r': from = number; break;
        case 't' << 8 | 'o': to = number; break;
        case 'f' << 8 | 'l': flash = number; break;
        case 'e' << 8 | 'n': flash_end = number; break;
        case 'l' << 8 | 'i': line_bytes = number; break;
        case 'c' << 8 | 'o': code.lines = (unsigned)number; break;
        case 'd' << 8 | 'a': data.lines = (unsigned)number; break;
        case 'm' << 8 | 'a': mark = number; break;
        case 'o' << 8 | 'u': out = fopen(value + 1, "w"); break;
        default: return 1;
        }
    }
    if (!line_bytes || !code.lines || !data.lines || code.lines > MOST || data.lines > MOST || !out) {
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, translated);
    return 0;
}
