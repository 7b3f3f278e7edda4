/* Pad 4 blinks once per word that comes in over SPI. */
#include "pulpino_gpio.h"
#include "pulpino_spi.h"

enum { LED = 4, READ = 0x0B };

static int read_word(int address)
{
    int word = 0;
    spi_setup_cmd_addr(READ, 8, address << 8, 24);
    spi_setup_dummy(8, 0);
    spi_set_datalen(32);
    spi_start_transaction(SPI_CMD_RD, SPI_CSN0);
    spi_read_fifo(&word, 32);
    return word;
}

int main(void)
{
    set_pin_function(LED, true);
    set_gpio_pin_direction(LED, true);
    spi_setup_master(1);
    int sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += read_word(4 * i);
        set_gpio_pin_value(LED, true);
        set_gpio_pin_value(LED, false);
    }
    return sum;
}
