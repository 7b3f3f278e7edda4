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
 * What a register does by itself stands between the type and the name, too: ro and wo (read, write only), w1c, w1s and
 * w0c (a write of 1, 0 clears or sets), rc (a read clears), reset(0x3); bf_enum(Mode) names the values, bf_stride(16) the
 * bytes from one element of an array to the next. All have a long form: bf_ro, bf_reset(0x3), ...
 *
 *     uart->CONTROL = (bfGroup Control){ .enable = 1, .parity = p };      one store; what is not named has its reset value
 *     bfGroup Status s = uart->STATUS;                                    one load; then s.full, s.error
 *
 * `edgebuild driver` puts this header in front of every source itself. Include it by hand so that other compilers
 * and editors take the source for the plain C or C++ that it then is. The field types are typedefs, not macros: a
 * field, a local variable or a group may be called `bit`.
 */
#ifndef EDGEBUILD_BF_H
#define EDGEBUILD_BF_H

#include "edgebuild_types.h"
#include "edgebuild_words.h"

/* The short forms. The generator knows them inside of groups, and leaves them alone elsewhere; other compilers and
 * editors know them where EDGEBUILD_SHORT_WORDS is defined, since words like `reset` are used for other things, too. */
#if defined(EDGEBUILD_SHORT_WORDS) && !defined(EDGEBUILD_ANALYSIS)
#define ro
#define wo
#define w1c
#define w1s
#define w0c
#define rc
#define reset(value)
#endif

#endif
