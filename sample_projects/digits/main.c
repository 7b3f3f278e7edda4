/* SPDX-License-Identifier: 0BSD
 * Ten handwritten digits, read by the network of digits.onnx: prints the images and what they are taken for.
 * The exit status is the number of wrong answers.
 */
#include <string.h>

#include "digits.h"
#include "eb_semihost.h"
#include "images.h"

enum { IMAGES = 10, SIDE = 8, IN_A_ROW = 5 };

_Static_assert(DIGITS_INPUT_SIZE == SIDE * SIDE, "the images are of the size that the network takes");

/* The class with the highest score. */
static int answer(void)
{
    const int8_t *score = digits_output();
    int best = 0;
    for (int i = 1; i < DIGITS_OUTPUT_SIZE; ++i) {
        best = score[i] > score[best] ? i : best;
    }
    return best;
}

static int recognise(const int8_t *image)
{
    memcpy(digits_input(), image, DIGITS_INPUT_SIZE);
    digits_invoke();
    return answer();
}

/* One row of pixels, two characters each since characters are tall. */
static void print_pixels(const int8_t *row)
{
    char text[2 * SIDE + 3] = "";
    for (int x = 0; x < SIDE; ++x) {
        const char ink = " .:-=+*#%@"[(row[x] + 128) * 10 / 256];
        text[2 * x] = text[2 * x + 1] = ink;
    }
    text[2 * SIDE] = text[2 * SIDE + 1] = ' ';
    eb_print(text);
}

static void print_answer(int label, int seen)
{
    char text[] = "  digit 0: seen 0     ";
    text[8] = (char)('0' + label);
    text[16] = (char)('0' + seen);
    if (seen != label) {
        memcpy(text + 17, " !!!", 4);
    }
    text[2 * SIDE + 2] = '\0';
    eb_print(text);
}

int main(void)
{
    int wrong = 0;
    for (int first = 0; first < IMAGES; first += IN_A_ROW) {
        for (int y = 0; y < SIDE; ++y) {
            for (int i = first; i < first + IN_A_ROW; ++i) {
                print_pixels(digits_images[i] + SIDE * y);
            }
            eb_print("\n");
        }
        for (int label = first; label < first + IN_A_ROW; ++label) {
            const int seen = recognise(digits_images[label]);
            print_answer(label, seen);
            wrong += seen != label;
        }
        eb_print("\n\n");
    }
    return wrong;
}
