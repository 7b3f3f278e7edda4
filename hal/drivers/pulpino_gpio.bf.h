/* The pads of PULPino as groups of bit fields, and the register of the SoC control that gives each pad its function. */
#ifndef PULPINO_GPIO_BF_H
#define PULPINO_GPIO_BF_H

#include "edgebuild_bf.h"

bfGroup GPIOPad {
    bit dir;
    bit rse(self) in;
    bit out;
    bit intEn;
    uint2 intType;
    uint8 cfg;
};

bfGroup GPIOType {
    bfGroup GPIOPad pads[32];
    uint32 rse(self) intStatus;
};

bfGroup SocControl {
    bit function[32];
};

make_device(GPIOType, gpio, 0x1A101000);
make_device(SocControl, soc, 0x1A107000);

#endif
