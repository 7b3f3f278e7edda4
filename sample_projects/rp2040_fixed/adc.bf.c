/* The ADC of the RP2040 over its real registers: rp2040_adc.svd says where the fields are, rp2040_adc.overlay.yaml which of
 * them are plain. */
#include "adc.h"
#include "edgebuild_bf.h"

bfGroup Control {
    bit EN;
    bit TS_EN;
    bit START_ONCE;
    bit READY;
    uint3 AINSEL;
};

bfGroup FifoControl {
    bit EN;
    bit SHIFT;
    bit ERR;
    bit DREQ_EN;
    bit UNDER;
    bit OVER;
    uint4 THRESH;
};

bfGroup Adc {
    bfGroup Control CS;
    bfGroup FifoControl FCS;
    uint12 RESULT;
};

make_device(Adc, adc, 0x4004C000);

void adc_setup(int threshold)
{
    adc->CS.EN = 1;
    adc->CS.TS_EN = 1;
    adc->FCS.EN = 1;
    adc->FCS.SHIFT = 0;
    adc->FCS.ERR = 1;
    adc->FCS.DREQ_EN = 0;
    adc->FCS.THRESH = threshold;
}

int adc_read(int channel)
{
    adc->CS.AINSEL = channel;
    adc->CS.START_ONCE = 1;
    while (!adc->CS.READY)
        ;
    return adc->RESULT;
}

bool adc_overflow(void)
{
    bool lost = adc->FCS.OVER;
    if (lost)
        adc->FCS.OVER = 1; /* clears it, and nothing else */
    return lost;
}
