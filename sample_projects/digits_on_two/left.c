/* SPDX-License-Identifier: 0BSD
 * The source: shows the network ten images and prints what it takes them for. The exit status is the number of wrong
 * answers.
 */
#include <stdio.h>
#include <string.h>

#include "digits_left.h"
#include "eb_link.h"
#include "images.h"

int main(void)
{
    int wrong = 0;
    for (int label = 0; label < 10; ++label) {
        memcpy(digits_left_input(), digits_images[label], DIGITS_LEFT_INPUT_SIZE);
        const int code = digits_left_invoke();
        const int8_t *score = digits_left_output();
        int best = 0;
        for (int i = 1; i < DIGITS_LEFT_OUTPUT_SIZE; ++i) {
            best = score[i] > score[best] ? i : best;
        }
        if (code == EB_OK) {
            printf("digit %d: seen %d\n", label, best);
        } else {
            printf("digit %d: code %d\n", label, code);
        }
        wrong += code != EB_OK || best != label;
    }
    return wrong;
}
