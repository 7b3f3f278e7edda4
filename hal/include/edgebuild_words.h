/* SPDX-License-Identifier: 0BSD
 * The words of the driver dialect, as plain C. Generated headers begin with this text. */
#ifndef EDGEBUILD_WORDS_H
#define EDGEBUILD_WORDS_H

#if defined(__cplusplus) && defined(__GNUC__) && !defined(EDGEBUILD_ANALYSIS)
#pragma GCC system_header /* what follows is C, with casts that warnings for C++ name */
#endif

#define bfGroup struct

#ifdef EDGEBUILD_ANALYSIS
#define EDGEBUILD_SAYS_(text) __attribute__((annotate("edgebuild:" text)))
#else
#define EDGEBUILD_SAYS_(text)
#endif
#define bf_ro EDGEBUILD_SAYS_("kind:ro")
#define bf_wo EDGEBUILD_SAYS_("kind:wo")
#define bf_w1c EDGEBUILD_SAYS_("kind:w1c")
#define bf_w1s EDGEBUILD_SAYS_("kind:w1s")
#define bf_w0c EDGEBUILD_SAYS_("kind:w0c")
#define bf_rc EDGEBUILD_SAYS_("kind:rc")
#define bf_reset(value) EDGEBUILD_SAYS_("reset:" #value)
#define bf_enum(name) EDGEBUILD_SAYS_("enum:" #name)
#define bf_stride(bytes) EDGEBUILD_SAYS_("stride:" #bytes)
#define bf_shared EDGEBUILD_SAYS_("shared:")

/* A function that an interrupt calls; with a name, one that the register description knows. */
#define bf_interrupt EDGEBUILD_SAYS_("interrupt:")
#define bf_interrupt_of(name) EDGEBUILD_SAYS_("interrupt:" #name)

/* `bf_critical { ... }`: no interrupt is taken inside. It nests, and must not be left by return, break or goto. */
#define bf_critical \
    for (unsigned long bf_state_ = bf_critical_enter(), bf_once_ = 1; bf_once_; bf_once_ = 0, bf_critical_leave(bf_state_))
#if defined(__GNUC__) && defined(__riscv)
#if defined(__riscv_zicsr) || defined(__clang__)
#define EDGEBUILD_CSR_(text) text
#else /* every core with interrupts has these instructions, whatever -march says */
#define EDGEBUILD_CSR_(text) ".option push\n\t.option arch, +zicsr\n\t" text "\n\t.option pop"
#endif
static inline unsigned long bf_critical_enter(void)
{
    unsigned long state;
    __asm__ volatile(EDGEBUILD_CSR_("csrrci %0, mstatus, 8") : "=r"(state) : : "memory");
    return state;
}
static inline void bf_critical_leave(unsigned long state)
{
    __asm__ volatile(EDGEBUILD_CSR_("csrs mstatus, %0") : : "r"(state & 8) : "memory");
}
#elif defined(__GNUC__) && defined(__ARM_ARCH) && __ARM_ARCH_PROFILE == 'M'
static inline unsigned long bf_critical_enter(void)
{
    unsigned long state;
    __asm__ volatile("mrs %0, primask\n\tcpsid i" : "=r"(state) : : "memory");
    return state;
}
static inline void bf_critical_leave(unsigned long state)
{
    __asm__ volatile("msr primask, %0" : : "r"(state) : "memory");
}
#else /* a host has no interrupts */
static inline unsigned long bf_critical_enter(void) { return 0; }
static inline void bf_critical_leave(unsigned long state) { (void)state; }
#endif

/* A whole register in one store, for editors that do not know the other form. */
#define bf_write(place, ...) ((place) = (__typeof__(place)){ __VA_ARGS__ })

/* A whole register as a number, to be read in one load or written in one store. */
#define bf_raw(place) (*(unsigned int *)&(place))

#ifdef __clang__
#define rse(...) __attribute__((annotate("edgebuild:rse:" #__VA_ARGS__)))
#define wse(...) __attribute__((annotate("edgebuild:wse:" #__VA_ARGS__)))
#define EDGEBUILD_DEVICE_ __attribute__((annotate("edgebuild:device"), unused))
#else
#define rse(...)
#define wse(...)
#ifdef __GNUC__
#define EDGEBUILD_DEVICE_ __attribute__((unused))
#else
#define EDGEBUILD_DEVICE_
#endif
#endif

#ifdef __UINTPTR_TYPE__
#define EDGEBUILD_ADDRESS_(address) ((__UINTPTR_TYPE__)(address))
#else
#define EDGEBUILD_ADDRESS_(address) (address)
#endif

#ifdef EDGEBUILD_ANALYSIS /* lets the generator read the address as a number */
#define EDGEBUILD_NUMBER_(name, address) enum : unsigned long long { edgebuild_address_##name = (address) };
#else
#define EDGEBUILD_NUMBER_(name, address)
#endif

/* A device: a constant pointer to its top group. */
#define make_device(group, name, address) \
    EDGEBUILD_NUMBER_(name, address) \
    static bfGroup group *const name EDGEBUILD_DEVICE_ = (bfGroup group *)EDGEBUILD_ADDRESS_(address)

#endif
