/* The SPI master of PULPino over its fixed registers: the measure for the generated driver. */
#include "pulpino_gpio.h"
#include "pulpino_spi.h"

#define REG(address) (*(volatile int *)(address))
#define STATUS REG(0x1A102000)
#define SPICMD REG(0x1A102008)
#define SPIADR REG(0x1A10200C)
#define SPILEN REG(0x1A102010)
#define SPIDUM REG(0x1A102014)
#define TXFIFO REG(0x1A102018)
#define RXFIFO REG(0x1A102020)

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
    int cmd_reg;
    cmd_reg = cmd << (32 - cmdlen);
    SPICMD = cmd_reg;
    SPIADR = addr;
    SPILEN = (cmdlen & 0x3F) | ((addrlen << 8) & 0x3F00);
}

void spi_setup_dummy(int dummy_rd, int dummy_wr)
{
    SPIDUM = ((dummy_wr << 16) & 0xFFFF0000) | (dummy_rd & 0xFFFF);
}

void spi_set_datalen(int datalen)
{
    volatile int old_len;
    old_len = SPILEN;
    old_len = ((datalen << 16) & 0xFFFF0000) | (old_len & 0xFFFF);
    SPILEN = old_len;
}

void spi_start_transaction(int trans_type, int csnum)
{
    STATUS = ((1 << (csnum + 8)) & 0xF00) | ((1 << trans_type) & 0xFF);
}

int spi_get_status(void)
{
    volatile int status;
    status = STATUS;
    return status;
}

void spi_write_fifo(int *data, int datalen)
{
    volatile int i, j;
    int num_words;

    num_words = (datalen >> 5) & 0x7FF;
    if ((datalen & 0x1F) != 0)
        num_words++;
    for (i = 0; i < num_words; i++) {
        do {
            j = STATUS;
            j = (j >> 24) & 0xFF;
        } while (j >= 8);
        TXFIFO = data[i];
    }
}

void spi_read_fifo(int *data, int datalen)
{
    volatile int i, j;
    int num_words;

    num_words = (datalen >> 5) & 0x7FF;
    if ((datalen & 0x1F) != 0)
        num_words++;
    for (i = 0; i < num_words; i++) {
        do {
            j = STATUS;
            j = (j >> 16) & 0xFF;
        } while (j == 0);
        data[i] = RXFIFO;
    }
}
