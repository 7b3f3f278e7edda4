/* Driver of the PULPino pads, without a word about registers. */
#include "pulpino_gpio.bf.h"
#include "pulpino_gpio.h"

void set_pin_function(int pin, bool function) { soc->function[pin] = function; }

int get_pin_function(int pin) { return soc->function[pin]; }

void set_gpio_pin_direction(int pin, bool direction) { gpio->pads[pin].dir = direction; }

int get_gpio_pin_direction(int pin) { return gpio->pads[pin].dir; }

void set_gpio_pin_value(int pin, bool value) { gpio->pads[pin].out = value; }

int get_gpio_pin_value(int pin) { return gpio->pads[pin].in; }

void set_gpio_pin_irq_en(int pin, bool enable) { gpio->pads[pin].intEn = enable; }

void set_gpio_pin_irq_type(int pin, int type) { gpio->pads[pin].intType = type; }

int get_gpio_irq_status(void) { return (int)gpio->intStatus; }
