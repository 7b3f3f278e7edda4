#include "adc.h"

int main(void)
{
    adc_setup(4);
    int sum = 0;
    for (int channel = 0; channel < 4; channel++)
        sum += adc_read(channel);
    return adc_overflow() ? -1 : sum;
}
