/* G100 and S25: what an application does with the two drivers. The originals need 100 and 25 accesses for it. */
#include "pulpino_gpio.h"
#include "pulpino_spi.h"

void g100(void)
{
    set_pin_function(4, 1);
    set_gpio_pin_direction(4, 1);
    for (int pad = 0; pad < 4; pad++) {
        set_pin_function(pad, 1);
        get_pin_function(pad);
        set_gpio_pin_direction(pad, 1);
        get_gpio_pin_direction(pad);
        set_gpio_pin_irq_type(pad, 2);
        set_gpio_pin_irq_en(pad, 1);
        set_gpio_pin_value(pad, 1);
        get_gpio_pin_value(pad);
        get_gpio_irq_status();
        set_gpio_pin_value(pad, 0);
        get_gpio_pin_value(pad);
        get_gpio_irq_status();
        set_gpio_pin_irq_en(pad, 0);
        get_gpio_irq_status();
        get_gpio_pin_value(pad);
    }
}

int s25(void)
{
    int word = 0x12345678;
    spi_setup_master(1);
    spi_setup_cmd_addr(0x0B, 8, 0x1000, 24);
    spi_setup_dummy(8, 0);
    spi_set_datalen(32);
    spi_start_transaction(SPI_CMD_WR, SPI_CSN0);
    spi_write_fifo(&word, 32);
    while ((spi_get_status() & 0x7F) != 1)
        ;
    spi_set_datalen(32);
    spi_start_transaction(SPI_CMD_RD, SPI_CSN0);
    spi_read_fifo(&word, 32);
    return word;
}

/* A program of one of them for `xpulp corev PROGRAM 0x1a100000`, which counts accesses. SET: registers of another state
 * than 0, as address, bits. */
#ifdef RUN
#define STACK_END 0x40100000
#define SEMIHOST ((volatile unsigned int *)0xF0000000)

static void set(unsigned int address, unsigned int bits)
{
    *(volatile unsigned int *)address |= bits;
}

static const unsigned int ended[2] = {0x20026, 0};

__attribute__((used, noreturn)) static void scenario(void)
{
    SET
    RUN;
    SEMIHOST[0] = 0x20; /* SYS_EXIT_EXTENDED */
    SEMIHOST[1] = (unsigned int)ended;
    for (;;)
        ;
}

__attribute__((naked, noreturn)) void _start(void)
{
    __asm__("li sp, %0\n\tj scenario" : : "i"(STACK_END));
}
#endif
