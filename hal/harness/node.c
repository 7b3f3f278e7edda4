/* SPDX-License-Identifier: 0BSD
 * A device of a simulated cluster. The source runs the network on the input vectors of input.bin and writes to
 * output.bin, for each, the code that it returned (4 bytes) and the outputs. The others serve until the relay ends, and
 * write a byte with the code for each inference.
 *
 * harness_cluster.h (generated) includes the header of the device's part and defines
 *   NODE_ENTRY                  its function
 *   NODE_IS_SOURCE              1 or 0
 *   NODE_INPUTS, NODE_OUTPUTS   lists of X(function, bytes), of the source
 */
#include <stdint.h>

#include "eb_link.h"
#include "eb_semihost.h"
#include "harness_cluster.h"
#include "link_relay.h"

int main(void)
{
    int failed = 0;
    const int output = eb_open("output.bin", EB_WRITE);
#if NODE_IS_SOURCE
    const int input = eb_open("input.bin", EB_READ);
    for (;;) {
        int complete = 1;
#define X(function, bytes) complete &= eb_read(input, function(), bytes) == (bytes);
        NODE_INPUTS
#undef X
        if (!complete) {
            break;
        }
        const uint32_t code = (uint32_t)NODE_ENTRY();
        failed |= eb_write(output, &code, sizeof code) != sizeof code;
#define X(function, bytes) failed |= eb_write(output, function(), bytes) != (bytes);
        NODE_OUTPUTS
#undef X
    }
    eb_close(input);
#else
    while (!eb_relay_over) {
        const uint8_t code = (uint8_t)NODE_ENTRY();
        if (!eb_relay_over) {
            failed |= eb_write(output, &code, 1) != 1u;
        }
    }
#endif
    eb_close(output);
    return failed;
}
