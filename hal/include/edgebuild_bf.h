/* SPDX-License-Identifier: 0BSD
 * The driver dialect: groups of bit fields whose place in registers is chosen by `edgebuild driver`.
 *
 *     bfGroup Pad { bit dir; bit rse(self) in; bit out; uint2 type; };
 *     bfGroup Gpio { bfGroup Pad pads[32]; uint32 rse(self) status; };
 *     make_device(Gpio, gpio, 0x1A101000);
 *     void set(int pin, int value) { gpio->pads[pin].out = value != 0; }
 *
 * rse(f, ...): a read of the field changes f; wse(f, ...): a write of it does. A target is a field of the same group,
 * `group::field`, a whole group, or `self`.
 *
 * `edgebuild driver` puts this header in front of every source itself. Include it by hand so that other compilers
 * and editors take the source for the plain C or C++ that it then is. The field types are typedefs, not macros: a
 * field, a local variable or a group may be called `bit`.
 */
#ifndef EDGEBUILD_BF_H
#define EDGEBUILD_BF_H

/* Each width has the smallest unsigned type that holds it; a field is promoted and compared as that type. */
typedef unsigned char bit;
typedef unsigned char uint1; typedef unsigned char uint2; typedef unsigned char uint3; typedef unsigned char uint4;
typedef unsigned char uint5; typedef unsigned char uint6; typedef unsigned char uint7; typedef unsigned char uint8;
typedef unsigned short uint9; typedef unsigned short uint10; typedef unsigned short uint11; typedef unsigned short uint12;
typedef unsigned short uint13; typedef unsigned short uint14; typedef unsigned short uint15; typedef unsigned short uint16;
typedef unsigned int uint17; typedef unsigned int uint18; typedef unsigned int uint19; typedef unsigned int uint20;
typedef unsigned int uint21; typedef unsigned int uint22; typedef unsigned int uint23; typedef unsigned int uint24;
typedef unsigned int uint25; typedef unsigned int uint26; typedef unsigned int uint27; typedef unsigned int uint28;
typedef unsigned int uint29; typedef unsigned int uint30; typedef unsigned int uint31; typedef unsigned int uint32;
typedef unsigned long long uint33; typedef unsigned long long uint34; typedef unsigned long long uint35; typedef unsigned long long uint36;
typedef unsigned long long uint37; typedef unsigned long long uint38; typedef unsigned long long uint39; typedef unsigned long long uint40;
typedef unsigned long long uint41; typedef unsigned long long uint42; typedef unsigned long long uint43; typedef unsigned long long uint44;
typedef unsigned long long uint45; typedef unsigned long long uint46; typedef unsigned long long uint47; typedef unsigned long long uint48;
typedef unsigned long long uint49; typedef unsigned long long uint50; typedef unsigned long long uint51; typedef unsigned long long uint52;
typedef unsigned long long uint53; typedef unsigned long long uint54; typedef unsigned long long uint55; typedef unsigned long long uint56;
typedef unsigned long long uint57; typedef unsigned long long uint58; typedef unsigned long long uint59; typedef unsigned long long uint60;
typedef unsigned long long uint61; typedef unsigned long long uint62; typedef unsigned long long uint63; typedef unsigned long long uint64;

#define bfGroup struct

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
