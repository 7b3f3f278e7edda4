/* Virtual prototype of PULPino with the pads and the SPI master: `prototype PROGRAM.elf TRACE`. */
#include "bus.h"
#include "cpu.h"
#include "devices.h"

int sc_main(int argc, char *argv[])
{
    std::FILE *trace = argc == 3 ? std::fopen(argv[2], "w") : nullptr;
    if (!trace) {
        std::fprintf(stderr, "usage: prototype PROGRAM.elf TRACE\n");
        return 2;
    }
    Bus bus("bus",
            {{gpio_regs::gpio_device::base, gpio_regs::gpio_device::bytes},
             {gpio_regs::soc_device::base, gpio_regs::soc_device::bytes},
             {spi_regs::spi_device::base, spi_regs::spi_device::bytes}},
            trace);
    Gpio gpio("gpio");
    SocControl soc("soc");
    Spi spi("spi");
    bus.devices[0].bind(gpio.socket);
    bus.devices[1].bind(soc.socket);
    bus.devices[2].bind(spi.socket);

    try {
        Cpu cpu("cpu", argv[1], {{0, 32 << 10}, {1 << 20, 32 << 10}}, bus.windows, CYCLE);
        cpu.socket.bind(bus.socket);
        sc_core::sc_start();
        std::fclose(trace);
        if (!cpu.error.empty()) {
            std::fprintf(stderr, "%s: %s\n", argv[1], cpu.error.c_str());
            return 1;
        }
        std::printf("main returned %#x after %s\n", cpu.result, sc_core::sc_time_stamp().to_string().c_str());
    } catch (const std::runtime_error &wrong) {
        std::fprintf(stderr, "%s\n", wrong.what());
        return 1;
    }
    return 0;
}
