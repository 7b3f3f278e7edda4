/* SPDX-License-Identifier: 0BSD
 * What start-up code and programs agree on.
 */
#ifndef EB_FIRMWARE_H
#define EB_FIRMWARE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

int main(void);

/* Called with what main() returned. The weak default waits for ever; src/semihost.c ends the simulator. */
__attribute__((noreturn)) void eb_exit(int status);

/* Called on a fault or an interrupt that nobody handles. `cause` is the exception number (Arm) or mcause (RISC-V);
 * `pc` is 0 where it is not known. Weak default as above. */
__attribute__((noreturn)) void eb_fault(uint32_t cause, uint32_t pc);

#ifdef __cplusplus
}
#endif
#endif
