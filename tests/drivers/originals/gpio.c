/* The pads of PULPino as a driver over fixed registers does them: the measure for the generated driver. Written after
 * the description of the original's functions, with its habits (volatile locals, one bit per pad in a shared word). */
#include "pulpino_gpio.h"

#define REG(address) (*(volatile int *)(address))
#define PADDIR REG(0x1A101000)
#define PADIN REG(0x1A101004)
#define PADOUT REG(0x1A101008)
#define INTEN REG(0x1A10100C)
#define INTTYPE0 REG(0x1A101010)
#define INTTYPE1 REG(0x1A101014)
#define INTSTATUS REG(0x1A101018)
#define PADFUN REG(0x1A107000)

void set_pin_function(int pin, bool function)
{
    volatile int v;
    v = PADFUN;
    v &= ~(1 << pin);
    v |= function << pin;
    PADFUN = v;
}

int get_pin_function(int pin)
{
    volatile int v;
    v = PADFUN;
    v = (v >> pin) & 1;
    return v;
}

void set_gpio_pin_direction(int pin, bool direction)
{
    volatile int v;
    v = PADDIR;
    if (direction == 0)
        v &= ~(1 << pin);
    else
        v |= 1 << pin;
    PADDIR = v;
}

int get_gpio_pin_direction(int pin)
{
    volatile int v;
    v = PADDIR;
    v = (v >> pin) & 1;
    return v;
}

void set_gpio_pin_value(int pin, bool value)
{
    volatile int v;
    v = PADOUT;
    if (value == 0)
        v &= ~(1 << pin);
    else
        v |= 1 << pin;
    PADOUT = v;
}

int get_gpio_pin_value(int pin)
{
    volatile int v;
    v = PADIN;
    v = (v >> pin) & 1;
    return v;
}

void set_gpio_pin_irq_en(int pin, bool enable)
{
    int v = INTEN;
    if (enable == 0)
        v &= ~(1 << pin);
    else
        v |= 1 << pin;
    INTEN = v;
}

void set_gpio_pin_irq_type(int pin, int type)
{
    int low = INTTYPE0, high = INTTYPE1;
    if ((type & 1) == 0)
        low &= ~(1 << pin);
    else
        low |= 1 << pin;
    if ((type & 2) == 0)
        high &= ~(1 << pin);
    else
        high |= 1 << pin;
    INTTYPE0 = low;
    INTTYPE1 = high;
}

int get_gpio_irq_status(void)
{
    return INTSTATUS;
}
