/* The SPI master of PULPino. What the original packs into one status register are fields of their own here. */
#ifndef PULPINO_SPI_BF_H
#define PULPINO_SPI_BF_H

#include "edgebuild_bf.h"

bfGroup SPIMaster {
    uint12 wse(self, state, rxCount, txCount) start; /* transaction in bits 4:0, chip select in 11:8, one bit each */
    uint7 rse(self) state;
    uint8 rse(self) rxCount;
    uint8 rse(self) txCount;
    uint8 wse(self) clkDiv;
    uint32 cmd;
    uint32 addr;
    uint6 cmdLen;
    uint6 addrLen;
    uint16 dataLen;
    uint16 dummyRd;
    uint16 dummyWr;
    uint32 wse(self, txCount) txFifo;
    uint32 rse(self, rxCount) rxFifo;
    uint5 thresholdTx;
    uint5 thresholdRx;
    uint5 countTx;
    uint5 countRx;
    bit countEn;
    bit intEn;
    uint32 rse(self) intAck;
};

make_device(SPIMaster, spi, 0x1A102000);

#endif
