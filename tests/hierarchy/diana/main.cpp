/* Virtual prototype of diana: `prototype PROGRAM.elf OUTPUT SYMBOL BYTES`. It prints what the devices counted. */
#include <cstdlib>

#include "bus.h"
#include "cpu.h"
#include "devices.h"

int sc_main(int argc, char *argv[])
{
    std::FILE *const out = argc == 5 ? std::fopen(argv[2], "wb") : nullptr;
    std::FILE *const trace = std::fopen("/dev/null", "w");
    if (!out || !trace) {
        std::fprintf(stderr, "usage: prototype PROGRAM.elf OUTPUT SYMBOL BYTES\n");
        return 2;
    }
    Memory l2("l2", 0x1C000000, 512 << 10), activations("act", 0x10000000, 256 << 10), weights("wgt", 0x10040000, 64 << 10);
    Bus bus("bus",
            {{diana_regs::mover_device::base, diana_regs::mover_device::bytes},
             {diana_regs::digital_device::base, diana_regs::digital_device::bytes}},
            trace);
    Mover mover("mover", {&l2, &activations, &weights});
    Digital digital("digital", activations, weights);
    bus.devices[0].bind(mover.socket);
    bus.devices[1].bind(digital.socket);
    try {
        Cpu cpu("cpu", argv[1], {{l2.base, l2.bytes.size(), l2.bytes.data()}}, bus.windows, CYCLE);
        cpu.socket.bind(bus.socket);
        sc_core::sc_start();
        wrong = wrong.empty() ? cpu.error : wrong;
        if (!wrong.empty()) {
            std::fprintf(stderr, "%s: %s\n", argv[1], wrong.c_str());
            return 1;
        }
        std::fwrite(l2.bytes.data() + (cpu.symbol(argv[3]) - l2.base), 1, std::strtoul(argv[4], nullptr, 0), out);
    } catch (const std::runtime_error &reason) {
        std::fprintf(stderr, "%s\n", reason.what());
        return 1;
    }
    std::fclose(out);
    std::printf("%llu %llu %llu %llu %llu %llu\n", (unsigned long long)mover.jobs, (unsigned long long)mover.bytes,
                (unsigned long long)mover.pieces, (unsigned long long)mover.cycles, (unsigned long long)digital.jobs,
                (unsigned long long)digital.cycles);
    return 0;
}
