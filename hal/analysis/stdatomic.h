/* SPDX-License-Identifier: 0BSD
 * <stdatomic.h> as the analysis of drivers sees it: functions in place of macros, so that operands stay where the source
 * has them. The compiler of the generated C uses its own header. Each of these is a barrier, as any unknown function.
 */
#ifndef EDGEBUILD_STDATOMIC_H
#define EDGEBUILD_STDATOMIC_H
#pragma clang diagnostic ignored "-Wint-conversion"
#pragma clang diagnostic ignored "-Wstrict-prototypes"
#pragma clang diagnostic ignored "-Wdeprecated-non-prototype"

typedef enum {
    memory_order_relaxed, memory_order_consume, memory_order_acquire, memory_order_release, memory_order_acq_rel,
    memory_order_seq_cst
} memory_order;

typedef _Atomic(_Bool) atomic_bool;
typedef _Atomic(char) atomic_char;
typedef _Atomic(signed char) atomic_schar;
typedef _Atomic(unsigned char) atomic_uchar;
typedef _Atomic(short) atomic_short;
typedef _Atomic(unsigned short) atomic_ushort;
typedef _Atomic(int) atomic_int;
typedef _Atomic(unsigned int) atomic_uint;
typedef _Atomic(long) atomic_long;
typedef _Atomic(unsigned long) atomic_ulong;
typedef _Atomic(long long) atomic_llong;
typedef _Atomic(unsigned long long) atomic_ullong;
typedef _Atomic(__UINT_LEAST8_TYPE__) atomic_uint_least8_t;
typedef _Atomic(__UINT_LEAST16_TYPE__) atomic_uint_least16_t;
typedef _Atomic(__UINT_LEAST32_TYPE__) atomic_uint_least32_t;
typedef _Atomic(__UINT_LEAST64_TYPE__) atomic_uint_least64_t;
typedef _Atomic(__INT_LEAST8_TYPE__) atomic_int_least8_t;
typedef _Atomic(__INT_LEAST16_TYPE__) atomic_int_least16_t;
typedef _Atomic(__INT_LEAST32_TYPE__) atomic_int_least32_t;
typedef _Atomic(__INT_LEAST64_TYPE__) atomic_int_least64_t;
typedef _Atomic(__UINT_FAST32_TYPE__) atomic_uint_fast32_t;
typedef _Atomic(__INT_FAST32_TYPE__) atomic_int_fast32_t;
typedef _Atomic(__INTPTR_TYPE__) atomic_intptr_t;
typedef _Atomic(__UINTPTR_TYPE__) atomic_uintptr_t;
typedef _Atomic(__SIZE_TYPE__) atomic_size_t;
typedef _Atomic(__PTRDIFF_TYPE__) atomic_ptrdiff_t;
typedef struct { _Atomic(_Bool) flag; } atomic_flag;

#define ATOMIC_FLAG_INIT { 0 }
#define ATOMIC_VAR_INIT(value) (value)
#define ATOMIC_BOOL_LOCK_FREE 2
#define ATOMIC_CHAR_LOCK_FREE 2
#define ATOMIC_SHORT_LOCK_FREE 2
#define ATOMIC_INT_LOCK_FREE 2
#define ATOMIC_LONG_LOCK_FREE 2
#define ATOMIC_LLONG_LOCK_FREE 1
#define ATOMIC_POINTER_LOCK_FREE 2

void atomic_init();
void atomic_thread_fence(memory_order);
void atomic_signal_fence(memory_order);
_Bool atomic_is_lock_free();
void atomic_store();
void atomic_store_explicit();
long long atomic_load();
long long atomic_load_explicit();
long long atomic_exchange();
long long atomic_exchange_explicit();
_Bool atomic_compare_exchange_strong();
_Bool atomic_compare_exchange_strong_explicit();
_Bool atomic_compare_exchange_weak();
_Bool atomic_compare_exchange_weak_explicit();
long long atomic_fetch_add();
long long atomic_fetch_add_explicit();
long long atomic_fetch_sub();
long long atomic_fetch_sub_explicit();
long long atomic_fetch_or();
long long atomic_fetch_or_explicit();
long long atomic_fetch_xor();
long long atomic_fetch_xor_explicit();
long long atomic_fetch_and();
long long atomic_fetch_and_explicit();
_Bool atomic_flag_test_and_set(volatile atomic_flag *);
_Bool atomic_flag_test_and_set_explicit(volatile atomic_flag *, memory_order);
void atomic_flag_clear(volatile atomic_flag *);
void atomic_flag_clear_explicit(volatile atomic_flag *, memory_order);

#endif
