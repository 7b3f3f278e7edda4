/* The engine, its scratchpads and the unit that fills them, on the registers that edgebuild has laid out for their driver.
 * Cycles are those of hal/targets/diana.yaml. */
#ifndef DEVICES_H
#define DEVICES_H

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <tlm_utils/multi_passthrough_target_socket.h>

#include "diana_systemc.h"
#include "registers.h"

const sc_core::sc_time CYCLE(4, sc_core::SC_NS);
inline std::string wrong; /* the first access or start that the hardware does not take */

inline void violation(const std::string &what)
{
    wrong = wrong.empty() ? what : wrong;
    sc_core::sc_stop();
}

class Memory : public sc_core::sc_module {
  public:
    tlm_utils::multi_passthrough_target_socket<Memory> socket;
    const std::uint64_t base;
    std::vector<unsigned char> bytes;

    Memory(sc_core::sc_module_name name, std::uint64_t base, std::size_t size)
        : sc_module(name), socket("socket"), base(base), bytes(size, 0x5A)
    {
        socket.register_b_transport(this, &Memory::b_transport);
    }

  private:
    void b_transport(int, tlm::tlm_generic_payload &access, sc_core::sc_time &)
    {
        unsigned char *const mine = bytes.data() + access.get_address();
        if (access.is_read())
            std::copy_n(mine, access.get_data_length(), access.get_data_ptr());
        else
            std::copy_n(access.get_data_ptr(), access.get_data_length(), mine);
        access.set_response_status(tlm::TLM_OK_RESPONSE);
    }
};

/* The memories that a device reaches. */
class Port {
  public:
    sc_core::sc_vector<tlm_utils::simple_initiator_socket<Port>> sockets;

    explicit Port(const std::vector<Memory *> &reached) : sockets("port", reached.size()), memories(reached)
    {
        for (std::size_t i = 0; i < memories.size(); i++)
            sockets[i].bind(memories[i]->socket);
    }

    void access(tlm::tlm_command kind, std::uint64_t address, void *data, std::size_t bytes)
    {
        for (std::size_t i = 0; i < memories.size(); i++) {
            const Memory &m = *memories[i];
            if (address < m.base || address + bytes > m.base + m.bytes.size())
                continue;
            tlm::tlm_generic_payload payload;
            sc_core::sc_time delay = sc_core::SC_ZERO_TIME;
            payload.set_command(kind);
            payload.set_address(address - m.base);
            payload.set_data_ptr(static_cast<unsigned char *>(data));
            payload.set_data_length(unsigned(bytes));
            payload.set_streaming_width(unsigned(bytes));
            sockets[i]->b_transport(payload, delay);
            return;
        }
        char text[64];
        std::snprintf(text, sizeof text, "no %zu bytes at %#llx", bytes, (unsigned long long)address);
        violation(text);
    }

    std::vector<std::int8_t> read(std::uint64_t address, std::size_t bytes)
    {
        std::vector<std::int8_t> found(bytes);
        access(tlm::TLM_READ_COMMAND, address, found.data(), bytes);
        return found;
    }

  private:
    const std::vector<Memory *> memories;
};

/* A device that is busy from a start to the end of its work. */
class Worker : public Registers<diana_regs::Field> {
  public:
    std::uint64_t jobs = 0, cycles = 0;

    template <std::size_t count>
    Worker(sc_core::sc_module_name name, const diana_regs::Field (&table)[count], std::size_t start, std::size_t busy)
        : Registers(name, table, diana_regs::bus_bytes), start(start), busy(busy)
    {
        SC_HAS_PROCESS(Worker);
        SC_THREAD(run);
    }

  protected:
    virtual std::uint64_t begin() = 0; /* cycles of the work */
    virtual void end() = 0;

    std::int64_t number(std::size_t field) const { return std::int64_t(values[field]); }

  private:
    const std::size_t start, busy;
    sc_core::sc_event begun;

    void was_written(std::size_t field, std::uint64_t) override
    {
        if (values[busy]) {
            violation("a register is written while its device is busy");
        } else if (field == start && values[start]) {
            values[busy] = 1;
            begun.notify(sc_core::SC_ZERO_TIME);
        }
    }

    void run()
    {
        for (;;) {
            wait(begun);
            wait(CYCLE / 2); /* between two accesses, so that the order of processes at one time never counts */
            const std::uint64_t taken = begin();
            jobs++;
            cycles += taken;
            wait(double(taken) * CYCLE);
            end();
            values[busy] = 0;
        }
    }
};

/* Copies between the scratchpads and L2: 16 bytes a cycle, 70 cycles a piece. What arrives is there at the end. */
class Mover : public Worker {
  public:
    std::uint64_t bytes = 0, pieces = 0;

    Mover(sc_core::sc_module_name name, const std::vector<Memory *> &reached)
        : Worker(name, diana_regs::mover_device::fields, diana_regs::mover_device::start_index,
                 diana_regs::mover_device::busy_index),
          port(reached)
    {
    }

  private:
    Port port;
    std::vector<std::vector<std::int8_t>> taken;

    template <class Act> void each(Act act)
    {
        using namespace diana_regs::mover_device;
        for (std::int64_t plane = 0; plane < number(planes_index); plane++)
            for (std::int64_t row = 0; row < number(rows_index); row++)
                act(std::uint32_t(values[to_index] + plane * values[toPlane_index] + row * values[toRow_index]),
                    std::uint32_t(values[from_index] + plane * values[fromPlane_index] + row * values[fromRow_index]));
    }

    std::uint64_t begin() override
    {
        const std::size_t piece = values[diana_regs::mover_device::bytes_index];
        std::vector<std::int8_t> garbage(piece, std::int8_t(0xA5));
        taken.clear();
        each([&](std::uint32_t, std::uint32_t from) { taken.push_back(port.read(from, piece)); });
        each([&](std::uint32_t to, std::uint32_t) { port.access(tlm::TLM_WRITE_COMMAND, to, garbage.data(), piece); });
        bytes += taken.size() * piece;
        pieces += taken.size();
        return (taken.size() * piece + 15) / 16 + taken.size() * 70;
    }

    void end() override
    {
        std::size_t i = 0;
        each([&](std::uint32_t to, std::uint32_t) {
            port.access(tlm::TLM_WRITE_COMMAND, to, taken[i].data(), taken[i].size());
            i++;
        });
    }
};

/* A convolution of 16 channels x 16 columns at a time; it reaches its scratchpads alone. */
class Digital : public Worker {
  public:
    Digital(sc_core::sc_module_name name, Memory &activations, Memory &weights)
        : Worker(name, diana_regs::digital_device::fields, diana_regs::digital_device::start_index,
                 diana_regs::digital_device::busy_index),
          near({&activations}), constants({&weights})
    {
    }

  private:
    Port near, constants;
    std::vector<std::int8_t> result;

    std::int64_t scaled(std::int64_t sum) const
    {
        using namespace diana_regs::digital_device;
        const std::int64_t shift = number(shift_index), down = sum >> shift, twice = 2 * (sum - (down << shift));
        const std::int64_t one = std::int64_t(1) << shift;
        return down + (values[even_index] && (twice > one || (twice == one && down % 2 != 0)));
    }

    std::uint64_t add()
    {
        using namespace diana_regs::digital_device;
        const std::size_t elements = values[elements_index];
        const auto a = near.read(values[input_index], elements), b = near.read(values[weights_index], elements);
        const std::int64_t low = std::int8_t(values[low_index]), high = std::int8_t(values[high_index]);
        const std::int64_t a_factor = std::int32_t(values[aFactor_index]), b_factor = std::int32_t(values[bFactor_index]);
        result.clear();
        for (std::size_t i = 0; i < elements; i++) {
            const std::int64_t sum = (a[i] * a_factor >> 8) + (b[i] * b_factor >> 8) + std::int32_t(values[offset_index]);
            result.push_back(std::int8_t(std::clamp(scaled(sum), low, high)));
        }
        return (elements + 15) / 16 + 23;
    }

    std::uint64_t begin() override
    {
        using namespace diana_regs::digital_device;
        if (values[adds_index])
            return add();
        const std::int64_t h = number(height_index), w = number(width_index), c = number(channels_index);
        const std::int64_t oh = number(outHeight_index), ow = number(outWidth_index), k = number(outChannels_index);
        const std::int64_t fh = number(windowHeight_index), fw = number(windowWidth_index);
        const auto x = near.read(values[input_index], std::size_t(h * w * c));
        const bool single = values[depthwise_index];
        const std::int64_t depth = single ? 1 : c;
        const auto weights = constants.read(values[weights_index], std::size_t(k * fh * fw * depth));
        std::vector<std::int32_t> bias(static_cast<std::size_t>(k));
        constants.access(tlm::TLM_READ_COMMAND, values[bias_index], bias.data(), bias.size() * 4);
        const std::int64_t low = std::int8_t(values[low_index]), high = std::int8_t(values[high_index]);
        const std::int64_t zero = std::int8_t(values[zero_index]);
        std::uint64_t taken = 0;
        result.clear();
        for (std::int64_t oy = 0; oy < oh; oy++) {
            const std::int64_t y0 = oy * number(strideY_index) - number(top_index);
            std::int64_t taps = 0;
            for (std::int64_t fy = 0; fy < fh; fy++)
                taps += y0 + fy >= 0 && y0 + fy < h;
            const std::int64_t groups = single ? k : (k + 15) / 16;
            taken += std::uint64_t(groups * ((ow + 15) / 16) * (depth * taps * fw + 2 * depth * taps + 23));
            for (std::int64_t ox = 0; ox < ow; ox++) {
                const std::int64_t x0 = ox * number(strideX_index) - number(left_index);
                for (std::int64_t out = 0; out < k; out++) {
                    std::int64_t sum = bias[std::size_t(out)];
                    for (std::int64_t fy = 0; fy < fh; fy++)
                        for (std::int64_t fx = 0; fx < fw; fx++)
                            for (std::int64_t i = 0; i < depth; i++)
                                if (y0 + fy >= 0 && y0 + fy < h && x0 + fx >= 0 && x0 + fx < w)
                                    sum += x[std::size_t(((y0 + fy) * w + x0 + fx) * c + (single ? out : i))] *
                                           weights[std::size_t(((out * fh + fy) * fw + fx) * depth + i)];
                    result.push_back(std::int8_t(std::clamp(scaled(sum) + zero, low, high)));
                }
            }
        }
        return taken;
    }

    void end() override
    {
        near.access(tlm::TLM_WRITE_COMMAND, values[diana_regs::digital_device::output_index], result.data(), result.size());
    }
};

#endif
