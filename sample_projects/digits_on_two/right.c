/* SPDX-License-Identifier: 0BSD
 * The other device: takes part in one inference after the other, until the source has been silent for a time.
 */
#include "digits_right.h"
#include "eb_link.h"

int main(void)
{
    int served = 0;
    for (int silent = 0; silent < 3; ++silent) {
        while (digits_right_serve() == EB_OK) {
            served = 1;
            silent = 0;
        }
    }
    return !served;
}
