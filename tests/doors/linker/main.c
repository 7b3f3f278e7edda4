/* Ten inferences of two models beside 24 KB of heap: the status is the number of wrong answers, 50 if variables had wrong
 * first values, 100 more if the heap was written to. */
#include <stdlib.h>
#include <string.h>

#include "digits.h"
#include "images.h"
#include "rows.h"

enum { BYTES = 24 * 1024 };

static unsigned char *heap;
static volatile uint8_t bytes[5] = {1, 2, 3, 4, 5};
static volatile uint16_t zeros[7];
static volatile uint32_t word = 0xC0FFEEu;
static const volatile uint8_t constants[3] = {7, 8, 9};

static int variables_are_wrong(void)
{
    unsigned sum = 0;
    for (int i = 0; i < 7; ++i) {
        sum += zeros[i];
    }
    return sum != 0 || word != 0xC0FFEEu || bytes[0] != 1 || bytes[4] != 5 || constants[2] != 9;
}

static int best_of(const int8_t *score)
{
    int best = 0;
    for (int i = 1; i < DIGITS_OUTPUT_SIZE; ++i) {
        best = score[i] > score[best] ? i : best;
    }
    return best;
}

static int answer(const int8_t *image)
{
    memcpy(digits_input(), image, DIGITS_INPUT_SIZE);
    memset(heap, 0xA5, BYTES); /* between writing the input and reading it */
    digits_invoke();
    return best_of(digits_output());
}

static int answer_by_rows(const int8_t *image)
{
    int is_there = 0;
    for (int row = 0; row < ROWS_INPUT_ROWS; ++row) {
        if (is_there != 0) {
            return -1;
        }
        is_there = rows_push_rows(image + row * ROWS_INPUT_ROW_SIZE, 1);
    }
    return is_there ? best_of(rows_output()) : -1;
}

int main(void)
{
    if (variables_are_wrong()) {
        return 50;
    }
    heap = malloc(BYTES);
    if (heap == NULL) {
        return 200;
    }
    int wrong = 0;
    for (int digit = 0; digit < 10; ++digit) {
        wrong += answer(digits_images[digit]) != digit;
        wrong += answer_by_rows(digits_images[digit]) != digit;
        for (int i = 0; i < BYTES; ++i) {
            if (heap[i] != 0xA5) {
                return 100 + digit;
            }
        }
    }
    return variables_are_wrong() ? 51 : wrong;
}
