/* PULPino pads: pin function, direction, value and interrupt. */
#ifndef PULPINO_GPIO_H
#define PULPINO_GPIO_H

#include <stdbool.h>

void set_pin_function(int pin, bool function);
int get_pin_function(int pin);
void set_gpio_pin_direction(int pin, bool direction);
int get_gpio_pin_direction(int pin);
void set_gpio_pin_value(int pin, bool value);
int get_gpio_pin_value(int pin);
void set_gpio_pin_irq_en(int pin, bool enable);
void set_gpio_pin_irq_type(int pin, int type);
int get_gpio_irq_status(void);

#endif
