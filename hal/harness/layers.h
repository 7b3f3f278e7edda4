/* SPDX-License-Identifier: 0BSD
 * Included before a model's source: the fences with which its steps begin call a counter.
 *
 * No function changes otherwise, so the compiler inlines what it inlines in the application. Fences within the steps'
 * own functions stay as they are; the name of the function is known when the file is compiled. With EB_ROWS those of
 * steps that go row by row call eb_row, before each call of a kernel.
 */
#ifndef EB_LAYERS_H
#define EB_LAYERS_H

#include <stdatomic.h>
#include <stdint.h>

void eb_layer(uint32_t line);
void eb_row(void);

#ifdef EB_ROWS
#define EB_IS_ROWS(function) (__builtin_strncmp(function, "model_rows_", 11) == 0)
#else
#define EB_IS_ROWS(function) 0
#endif

#define EB_IS_SCHEDULE(function) \
    (__builtin_strcmp(function, "model_invoke") == 0 || __builtin_strcmp(function, "model_step") == 0)

#undef atomic_signal_fence
#define atomic_signal_fence(order)                                \
    do {                                                          \
        if (EB_IS_SCHEDULE(__func__)) {                           \
            eb_layer(__LINE__);                                   \
        } else if (EB_IS_ROWS(__func__)) {                        \
            eb_row();                                             \
        }                                                         \
        __atomic_signal_fence(order);                             \
    } while (0)

#endif
