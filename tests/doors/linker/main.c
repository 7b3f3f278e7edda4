/* Ten inferences beside 24 KB of heap: the status is the number of wrong answers, 100 more if the heap was written to. */
#include <stdlib.h>
#include <string.h>

#include "digits.h"
#include "images.h"

enum { BYTES = 24 * 1024 };

static unsigned char *heap;

static int answer(const int8_t *image)
{
    memcpy(digits_input(), image, DIGITS_INPUT_SIZE);
    memset(heap, 0xA5, BYTES); /* between writing the input and reading it */
    digits_invoke();
    const int8_t *score = digits_output();
    int best = 0;
    for (int i = 1; i < DIGITS_OUTPUT_SIZE; ++i) {
        best = score[i] > score[best] ? i : best;
    }
    return best;
}

int main(void)
{
    heap = malloc(BYTES);
    if (heap == NULL) {
        return 200;
    }
    int wrong = 0;
    for (int digit = 0; digit < 10; ++digit) {
        wrong += answer(digits_images[digit]) != digit;
        for (int i = 0; i < BYTES; ++i) {
            if (heap[i] != 0xA5) {
                return 100 + digit;
            }
        }
    }
    return wrong;
}
