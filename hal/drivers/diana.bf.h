/* Registers of a DIANA-like accelerator and of the unit that fills its scratchpads, for eb_engine.h and eb_dma.h. */
#ifndef DIANA_BF_H
#define DIANA_BF_H

#include "edgebuild_bf.h"

/* Planes of rows of pieces, as in eb_copy. */
bfGroup Mover {
    uint32 to;
    uint32 from;
    uint32 bytes;
    uint16 rows;
    uint16 planes;
    uint32 toRow;
    uint32 fromRow;
    uint32 toPlane;
    uint32 fromPlane;
    bit wse(self, busy) start;
    bit ro rse(self) busy;
};

/* A convolution, as in eb_conv2d, or what `mode` says. The bias of the channels lies beside the weights. Two tensors are
 * added channel by channel as in eb_add: `weights` is then the second one. */
bfGroup Digital {
    uint32 input;
    uint32 output;
    uint32 weights;
    uint32 bias;
    uint32 elements;
    uint32 aFactor;
    uint32 bFactor;
    uint32 offset;
    bit depthwise;
    bit adds;
    uint16 height;
    uint16 width;
    uint16 channels;
    uint16 outHeight;
    uint16 outWidth;
    uint16 outChannels;
    uint8 windowHeight;
    uint8 windowWidth;
    uint8 strideY;
    uint8 strideX;
    uint8 top;
    uint8 left;
    uint5 shift;
    bit even;
    uint8 zero;
    uint8 low;
    uint8 high;
    bit wse(self, busy) start;
    bit ro rse(self) busy;
};

make_device(Mover, mover, 0x1A200000);
make_device(Digital, digital, 0x1A201000);

#endif
