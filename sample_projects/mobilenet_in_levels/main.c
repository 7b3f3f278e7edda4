/* SPDX-License-Identifier: 0BSD
 * A network that is larger than the fast memories, run once on an image of noise. The exit status is 0 if the scores are
 * those that onnxruntime computes.
 */
#include "mobilenet.h"

static const int8_t expected[] = {-126, -126, -128, -117, -128, -125, -128, -98, -125, -128};

_Static_assert(sizeof expected == MOBILENET_OUTPUT_SIZE, "a score for each class");

int main(void)
{
    int8_t *const image = mobilenet_input();
    uint32_t noise = 1;
    for (int i = 0; i < MOBILENET_INPUT_SIZE; ++i) {
        noise = noise * 1664525u + 1013904223u;
        image[i] = (int8_t)((noise >> 24) - 128u);
    }
    mobilenet_invoke();
    int wrong = 0;
    for (int i = 0; i < MOBILENET_OUTPUT_SIZE; ++i) {
        wrong += mobilenet_output()[i] != expected[i];
    }
    return wrong;
}
