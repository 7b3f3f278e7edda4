/* SPDX-License-Identifier: 0BSD
 * Two hundred characters of a language model with random weights, one a call. The cache of keys and values lies in the
 * model's arena: this program writes each new row into it.
 */
#include <string.h>

#include "characters.h"
#include "eb_semihost.h"

enum {
    CHARACTERS = 200,
    FIRST_CHARACTER = 7,
    PLACES = CHARACTERS_INPUT_MASK_SIZE - 1,
    HEAD = CHARACTERS_INPUT_CACHE_SIZE / PLACES / 12, /* keys and values of six layers */
    RECENT = 8, /* characters that are not repeated */
};

/* Places without a character are hidden, others count for less the older they are. */
static void set_mask(int step)
{
    int8_t *mask = characters_input_mask();
    memset(mask, -127, PLACES);
    for (int place = 0; place < PLACES && place < step; ++place) {
        mask[place] = (int8_t)(-((step - 1 - place) % PLACES + 1) / 8);
    }
    mask[PLACES] = 0;
}

static void keep_rows(int step)
{
    const int8_t *row = characters_output_rows();
    int8_t *to = characters_input_cache() + step % PLACES * HEAD;
    for (int i = 0; i < CHARACTERS_OUTPUT_ROWS_SIZE / HEAD; ++i) {
        memcpy(to + i * PLACES * HEAD, row + i * HEAD, HEAD);
    }
}

/* The likeliest character that is none of the last ones. */
static int next_character(const int *recent)
{
    const int8_t *logits = characters_output_logits();
    int best = -1;
    for (int c = 0; c < CHARACTERS_OUTPUT_LOGITS_SIZE; ++c) {
        int old = 0;
        for (int i = 0; i < RECENT; ++i) {
            old |= recent[i] == c;
        }
        best = !old && (best < 0 || logits[c] > logits[best]) ? c : best;
    }
    return best;
}

int main(void)
{
    int character = FIRST_CHARACTER, recent[RECENT];
    for (int i = 0; i < RECENT; ++i) {
        recent[i] = -1;
    }
    memset(characters_input_cache(), 0, CHARACTERS_INPUT_CACHE_SIZE);
    for (int step = 0; step < CHARACTERS; ++step) {
        *characters_input_token() = character;
        set_mask(step);
        characters_invoke();
        keep_rows(step);
        recent[step % RECENT] = character = next_character(recent);
        char text[2] = {(char)(' ' + character), '\0'};
        eb_print(text);
    }
    eb_print("\n");
    return 0;
}
