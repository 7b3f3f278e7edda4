/* SPDX-License-Identifier: 0BSD
 * The smallest program with the network in it: what it links is what a network costs in flash and RAM.
 */
#include "harness_model.h"

int main(void)
{
    int sum = 0;
#define X(function, bytes) *function() = 1;
    MODEL_INPUTS
#undef X
    MODEL_INVOKE();
#define X(function, bytes) sum += *function() > 0;
    MODEL_OUTPUTS
#undef X
    return sum;
}
