/* What the pads and the SPI master of PULPino do, on the registers that edgebuild has laid out for their drivers. */
#ifndef DEVICES_H
#define DEVICES_H

#include <deque>

#include "gpio_systemc.h"
#include "registers.h"
#include "spi_systemc.h"

const sc_core::sc_time CYCLE(20, sc_core::SC_NS); /* of the processor and the bus: 50 MHz */

/* Every pad hears its own output. */
class Gpio : public Registers<gpio_regs::Field> {
  public:
    explicit Gpio(sc_core::sc_module_name name) : Registers(name, gpio_regs::gpio_device::fields, gpio_regs::bus_bytes) {}

  private:
    enum Trigger { HIGH, LOW, RISE, FALL };

    void was_written(std::size_t field, std::uint64_t old) override
    {
        using namespace gpio_regs::gpio_device;
        constexpr std::size_t per_pad = pads_1_out_index - pads_0_out_index;
        const std::size_t pad = (field - pads_0_out_index) / per_pad;
        if (field < pads_0_out_index || field != pads_0_out_index + pad * per_pad)
            return;
        const std::size_t first = pad * per_pad;
        const bool before = old, now = values[field];
        values[pads_0_in_index + first] = now;
        if (values[pads_0_intEn_index + first] && fires(values[pads_0_intType_index + first], before, now))
            values[intStatus_index] |= std::uint64_t(1) << pad;
    }

    void was_read(std::size_t field) override
    {
        if (field == gpio_regs::gpio_device::intStatus_index)
            values[field] = 0;
    }

    static bool fires(std::uint64_t trigger, bool before, bool now)
    {
        switch (trigger) {
        case HIGH: return now;
        case LOW: return !now;
        case RISE: return !before && now;
        default: return before && !now;
        }
    }
};

/* The register that gives each pad its function. */
class SocControl : public Registers<gpio_regs::Field> {
  public:
    explicit SocControl(sc_core::sc_module_name name)
        : Registers(name, gpio_regs::soc_device::fields, gpio_regs::bus_bytes)
    {
    }
};

/* The SPI master with a memory at its other end, whose word at address a is 0x9E3779B1 * a. */
class Spi : public Registers<spi_regs::Field> {
  public:
    explicit Spi(sc_core::sc_module_name name) : Registers(name, spi_regs::spi_device::fields, spi_regs::bus_bytes)
    {
        values[spi_regs::spi_device::state_index] = IDLE;
        SC_HAS_PROCESS(Spi);
        SC_THREAD(transfer);
    }

  private:
    enum : std::uint64_t { IDLE = 1, READ = 1, WRITE = 2, RESET = 16 };
    static constexpr std::size_t DEPTH = 8;
    std::deque<std::uint32_t> tx, rx;
    sc_core::sc_event begun, pushed, popped;

    void was_written(std::size_t field, std::uint64_t) override
    {
        using namespace spi_regs::spi_device;
        if (field == start_index && values[field] & RESET) {
            tx.clear();
            rx.clear();
        } else if (field == start_index && values[state_index] == IDLE) {
            values[state_index] = 0;
            begun.notify(sc_core::SC_ZERO_TIME);
        } else if (field == txFifo_index && tx.size() < DEPTH) {
            tx.push_back(std::uint32_t(values[field]));
            pushed.notify(sc_core::SC_ZERO_TIME);
        }
        count();
    }

    void was_read(std::size_t field) override
    {
        if (field != spi_regs::spi_device::rxFifo_index || rx.empty())
            return;
        rx.pop_front();
        popped.notify(sc_core::SC_ZERO_TIME);
        count();
    }

    void count()
    {
        using namespace spi_regs::spi_device;
        values[txCount_index] = tx.size();
        values[rxCount_index] = rx.size();
        values[rxFifo_index] = rx.empty() ? 0 : rx.front();
    }

    /* Half a cycle after the event: between two accesses, so that the order of processes at one time never counts. */
    void await(const sc_core::sc_event &event)
    {
        wait(event);
        wait(CYCLE / 2);
    }

    void clocks(std::uint64_t bits) { wait(double(bits * (values[spi_regs::spi_device::clkDiv_index] + 1)) * CYCLE); }

    void transfer()
    {
        using namespace spi_regs::spi_device;
        for (;;) {
            await(begun);
            const bool reads = values[start_index] & READ;
            const unsigned length = unsigned(values[addrLen_index]);
            std::uint32_t address = length ? std::uint32_t(values[addr_index] >> (32 - length)) : 0;
            clocks(values[cmdLen_index] + length + values[reads ? dummyRd_index : dummyWr_index]);
            for (std::uint64_t left = values[dataLen_index]; left > 0; address += 4) {
                const std::uint64_t bits = left < 32 ? left : 32;
                left -= bits;
                while (!reads && tx.empty())
                    await(pushed);
                clocks(bits);
                while (reads && rx.size() == DEPTH)
                    await(popped);
                if (reads)
                    rx.push_back(0x9E3779B1u * address);
                else if (!tx.empty())
                    tx.pop_front();
                count();
            }
            values[state_index] = IDLE;
        }
    }
};

#endif
