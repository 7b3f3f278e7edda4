#ifndef ADC_H
#define ADC_H

#include <stdbool.h>

void adc_setup(int threshold);
int adc_read(int channel);
bool adc_overflow(void);

#endif
