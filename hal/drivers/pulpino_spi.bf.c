/* Driver of the PULPino SPI master. It takes its pins through the driver of the pads. */
#include "pulpino_spi.bf.h"
#include "pulpino_gpio.h"
#include "pulpino_spi.h"

#define FIFO_DEPTH 8
#define MAX_WORDS 0x7FF

void spi_setup_slave(void)
{
    set_pin_function(4, 0);
    set_pin_function(5, 0);
    set_pin_function(6, 0);
    set_pin_function(7, 0);
    set_pin_function(3, 0);
}

void spi_setup_master(int numcs)
{
    set_pin_function(15, 0);
    set_pin_function(14, 0);
    set_pin_function(13, 0);
    set_pin_function(12, 0);
    if (numcs > 0)
        set_pin_function(16, 0);
    if (numcs > 1)
        set_pin_function(11, 0);
    if (numcs > 2)
        set_pin_function(0, 0);
    if (numcs > 3)
        set_pin_function(1, 0);
}

void spi_setup_cmd_addr(int cmd, int cmdlen, int addr, int addrlen)
{
    spi->cmd = (unsigned)cmd << (32 - cmdlen);
    spi->addr = addr;
    spi->cmdLen = cmdlen;
    spi->addrLen = addrlen;
}

void spi_setup_dummy(int dummy_rd, int dummy_wr)
{
    spi->dummyRd = dummy_rd;
    spi->dummyWr = dummy_wr;
}

void spi_set_datalen(int datalen) { spi->dataLen = datalen; }

void spi_start_transaction(int trans_type, int csnum) { spi->start = 1 << trans_type | 1 << (csnum + 8); }

int spi_get_status(void) { return spi->state; }

static int words(int bits)
{
    return ((bits >> 5) + ((bits & 0x1F) != 0)) & MAX_WORDS;
}

void spi_write_fifo(int *data, int datalen)
{
    for (int i = 0, n = words(datalen); i < n; i++) {
        while (spi->txCount >= FIFO_DEPTH)
            ;
        spi->txFifo = data[i];
    }
}

void spi_read_fifo(int *data, int datalen)
{
    for (int i = 0, n = words(datalen); i < n; i++) {
        while (spi->rxCount == 0)
            ;
        data[i] = (int)spi->rxFifo;
    }
}
