/* The second hart: serves for ever. */
#include <stdint.h>

#include "model_dev1.h"

_Alignas(16) uint8_t eb_hart_stack[4096];
int eb_relay_over;

void eb_hart_main(void);
void eb_hart_main(void)
{
    for (;;) {
        (void)model_dev1_serve();
    }
}
