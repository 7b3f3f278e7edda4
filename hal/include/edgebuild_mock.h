/* A model of registers for the host: reset values, and what reads and writes do by a register description.
 *
 * Mocks for unit tests and SystemC targets have this text. Each field has a value of its own. A hook sees every access
 * and may change values, as hardware does; a script says what the next reads of a field find.
 */
#ifndef EDGEBUILD_MOCK_H
#define EDGEBUILD_MOCK_H

#if defined(__cplusplus) && defined(__GNUC__) && !defined(EDGEBUILD_ANALYSIS)
#pragma GCC system_header /* what follows is C, with casts that warnings for C++ name */
#endif

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef EB_MOCK_LOG
#define EB_MOCK_LOG 4096u /* accesses that a device keeps; the oldest are overwritten */
#endif

/* What a write of a field does, and what a read does besides. */
enum eb_mock_write {
    EB_MOCK_STORE, EB_MOCK_ONE_CLEARS, EB_MOCK_ONE_SETS, EB_MOCK_ONE_TOGGLES, EB_MOCK_ZERO_CLEARS, EB_MOCK_ZERO_SETS,
    EB_MOCK_ZERO_TOGGLES, EB_MOCK_CLEARS, EB_MOCK_SETS
};
enum eb_mock_read { EB_MOCK_KEEPS, EB_MOCK_READ_CLEARS, EB_MOCK_READ_SETS };

typedef struct {
    const char *name;
    uint32_t offset;            /* of its register, in bytes from the base of the device */
    unsigned bits, lsb, width;  /* of the register; of the field in it */
    uint64_t reset;
    int readable, writable;
    enum eb_mock_write on_write;
    enum eb_mock_read on_read;
} eb_mock_field;

typedef struct {
    char kind; /* 'r', 'w', or '!' for an access that no register takes */
    unsigned size;
    uint32_t offset;
    uint64_t value;
} eb_mock_access;

/* Values that the next reads of a field find. */
typedef struct {
    const uint64_t *next;
    size_t left;
} eb_mock_pending;

typedef struct eb_mock_device eb_mock_device;

/* `before`: a read is about to be made; else the access is done. */
typedef void (*eb_mock_hook)(eb_mock_device *device, const eb_mock_access *access, int before, void *context);

struct eb_mock_device {
    const char *name;
    uint64_t base;
    uint32_t bytes;
    int parts; /* whether the bus takes a part of a register */
    const eb_mock_field *fields;
    size_t count;
    uint64_t *values;         /* of each field */
    eb_mock_pending *scripts; /* of each field */
    eb_mock_hook hook;
    void *context;
    size_t accesses; /* since the last reset */
    eb_mock_access log[EB_MOCK_LOG];
};

static inline uint64_t eb_mock_ones(unsigned width)
{
    return width < 64u ? ((uint64_t)1 << width) - 1u : ~(uint64_t)0;
}

/* Reset values in all fields; no script, and an empty log. The hook stays. */
static inline void eb_mock_reset(eb_mock_device *d)
{
    for (size_t i = 0; i < d->count; i++) {
        d->values[i] = d->fields[i].reset;
        d->scripts[i].left = 0;
    }
    d->accesses = 0;
}

/* The next reads of a field find these values; after the last one the field keeps it. */
static inline void eb_mock_script(eb_mock_device *d, size_t field, const uint64_t *values, size_t count)
{
    d->scripts[field].next = values;
    d->scripts[field].left = count;
}

/* The access with this number since the last reset, if the log still has it; else NULL. */
static inline const eb_mock_access *eb_mock_logged(const eb_mock_device *d, size_t number)
{
    int kept = number < d->accesses && d->accesses - number <= EB_MOCK_LOG;
    return kept ? &d->log[number % EB_MOCK_LOG] : NULL;
}

static inline void eb_mock_note(eb_mock_device *d, char kind, uint32_t offset, unsigned size, uint64_t value)
{
    eb_mock_access *a = &d->log[d->accesses++ % EB_MOCK_LOG];
    a->kind = kind;
    a->offset = offset;
    a->size = size;
    a->value = value;
    if (d->hook)
        d->hook(d, a, 0, d->context);
}

/* Whether some register takes an access of this width here. */
static inline int eb_mock_takes(const eb_mock_device *d, uint32_t offset, unsigned size)
{
    for (size_t i = 0; i < d->count; i++) {
        const eb_mock_field *f = &d->fields[i];
        uint32_t bytes = f->bits / 8u;
        int inside = offset >= f->offset && offset + size <= f->offset + bytes;
        if (inside && offset % size == 0u && (d->parts || size == (bytes > 4u ? 4u : bytes)))
            return 1;
    }
    return 0;
}

/* Bits of a field in an access: how far they are shifted, and which of them it has. */
static inline uint64_t eb_mock_window(const eb_mock_field *f, uint32_t offset, unsigned size, int *shift)
{
    *shift = (int)f->lsb + 8 * ((int)f->offset - (int)offset);
    if (*shift >= (int)(8u * size) || *shift + (int)f->width <= 0)
        return 0;
    uint64_t all = eb_mock_ones(8u * size);
    return (*shift >= 0 ? all >> *shift : *shift > -64 ? all << -*shift : 0) & eb_mock_ones(f->width);
}

/* A byte as a read would find it, without its effects. */
static inline unsigned char eb_mock_peek(const eb_mock_device *d, uint32_t offset)
{
    uint64_t result = 0;
    for (size_t i = 0; i < d->count; i++) {
        int shift;
        uint64_t mask = eb_mock_window(&d->fields[i], offset, 1, &shift);
        if (mask && d->fields[i].readable)
            result |= shift >= 0 ? (d->values[i] & mask) << shift : (d->values[i] & mask) >> -shift;
    }
    return (unsigned char)result;
}

static inline uint64_t eb_mock_read(eb_mock_device *d, uint32_t offset, unsigned size)
{
    uint64_t result = 0;
    eb_mock_access a = { 'r', size, offset, 0 };
    if (d->hook)
        d->hook(d, &a, 1, d->context);
    for (size_t i = 0; i < d->count; i++) {
        const eb_mock_field *f = &d->fields[i];
        int shift;
        uint64_t mask = eb_mock_window(f, offset, size, &shift);
        if (!mask || !f->readable)
            continue;
        if (d->scripts[i].left) {
            d->values[i] = *d->scripts[i].next++ & eb_mock_ones(f->width);
            d->scripts[i].left--;
        }
        uint64_t value = d->values[i] & mask;
        result |= shift >= 0 ? value << shift : value >> -shift;
        if (f->on_read == EB_MOCK_READ_CLEARS)
            d->values[i] = 0;
        else if (f->on_read == EB_MOCK_READ_SETS)
            d->values[i] = eb_mock_ones(f->width);
    }
    eb_mock_note(d, 'r', offset, size, result);
    return result;
}

static inline uint64_t eb_mock_written(const eb_mock_field *f, uint64_t old, uint64_t value, uint64_t mask)
{
    uint64_t ones = value & mask, zeros = ~value & mask;
    switch (f->on_write) {
    case EB_MOCK_ONE_CLEARS: return old & ~ones;
    case EB_MOCK_ONE_SETS: return old | ones;
    case EB_MOCK_ONE_TOGGLES: return old ^ ones;
    case EB_MOCK_ZERO_CLEARS: return old & ~zeros;
    case EB_MOCK_ZERO_SETS: return old | zeros;
    case EB_MOCK_ZERO_TOGGLES: return old ^ zeros;
    case EB_MOCK_CLEARS: return old & ~mask;
    case EB_MOCK_SETS: return old | mask;
    default: return (old & ~mask) | ones;
    }
}

static inline void eb_mock_write(eb_mock_device *d, uint32_t offset, unsigned size, uint64_t value)
{
    for (size_t i = 0; i < d->count; i++) {
        const eb_mock_field *f = &d->fields[i];
        int shift;
        uint64_t mask = eb_mock_window(f, offset, size, &shift);
        if (mask && f->writable)
            d->values[i] = eb_mock_written(f, d->values[i], shift >= 0 ? value >> shift : value << -shift, mask);
    }
    eb_mock_note(d, 'w', offset, size, value & eb_mock_ones(8u * size));
}

/* The device of an address. Ends the program where no register takes the access: the driver is wrong. */
static inline eb_mock_device *eb_mock_at(eb_mock_device *const *devices, size_t count, uint64_t address, unsigned size)
{
    for (size_t i = 0; i < count; i++) {
        eb_mock_device *d = devices[i];
        if (address >= d->base && address - d->base < d->bytes && eb_mock_takes(d, (uint32_t)(address - d->base), size))
            return d;
    }
    fprintf(stderr, "mock: no register takes %u bytes at 0x%llx\n", size, (unsigned long long)address);
    abort();
}

/* The functions through which a driver accesses its devices, and the one that a test begins with. */
#define EB_MOCK_FUNCTIONS(mock, devices, count) \
    uint64_t mock##_read(uint64_t address, unsigned size) \
    { \
        eb_mock_device *d = eb_mock_at(devices, count, address, size); \
        return eb_mock_read(d, (uint32_t)(address - d->base), size); \
    } \
    void mock##_write(uint64_t address, unsigned size, uint64_t value) \
    { \
        eb_mock_device *d = eb_mock_at(devices, count, address, size); \
        eb_mock_write(d, (uint32_t)(address - d->base), size, value); \
    } \
    void mock##_reset(void) \
    { \
        for (size_t i = 0; i < count; i++) \
            eb_mock_reset(devices[i]); \
    }

#endif
