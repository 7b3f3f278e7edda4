/* SPDX-License-Identifier: MIT-0
 * Roles of harts on targets where the first one controls, the next ones compute, and the last one is the DMA unit.
 * Read by C and by start-up code.
 */
#ifndef EB_HARTS_H
#define EB_HARTS_H

#define EB_HART_WORKERS 8
#define EB_HART_DMA (EB_HART_WORKERS + 1)
#define EB_HART_STACK 4096 /* bytes for each hart but the first */
#define EB_HART_CLINT 0x02000000 /* software interrupt of hart n: the word at 4 n (SiFive FU540-C000 manual, chapter 9) */

#endif
