/* Behind every program of the tests: what it prints goes to the simulator's console. */
#include <stdio.h>

#include "eb_semihost.h"

int puts(const char *text)
{
    eb_print(text);
    eb_print("\n");
    return 0;
}
