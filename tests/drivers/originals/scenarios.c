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
