/* SPDX-License-Identifier: 0BSD
 * The other device: takes part in one inference after the other.
 */
#include "autoencoder_right.h"

int main(void)
{
    for (;;) {
        (void)autoencoder_right_serve(); /* after a code the next call works */
    }
}
