/* A bus with devices at addresses. It writes down every access. */
#ifndef BUS_H
#define BUS_H

#include <cstdio>
#include <cstring>
#include <vector>

#include <systemc>
#include <tlm>
#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

class Bus : public sc_core::sc_module {
  public:
    struct Window {
        std::uint64_t base, bytes;
        void *host = nullptr; /* of a memory: where its bytes are, if others reach them as well */
    };

    tlm_utils::simple_target_socket<Bus> socket;
    sc_core::sc_vector<tlm_utils::simple_initiator_socket<Bus>> devices; /* one for each window */
    const std::vector<Window> windows;

    /* One line per access goes to `trace`: r or w, address, bytes, value. */
    Bus(sc_core::sc_module_name name, const std::vector<Window> &windows, std::FILE *trace)
        : sc_module(name), socket("socket"), devices("device", windows.size()), windows(windows), trace(trace)
    {
        socket.register_b_transport(this, &Bus::b_transport);
    }

  private:
    std::FILE *const trace;

    void b_transport(tlm::tlm_generic_payload &access, sc_core::sc_time &delay)
    {
        const std::uint64_t address = access.get_address();
        access.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
        for (std::size_t i = 0; i < windows.size(); i++) {
            const Window &w = windows[i];
            if (address < w.base || address + access.get_data_length() > w.base + w.bytes)
                continue;
            access.set_address(address - w.base);
            devices[i]->b_transport(access, delay);
            access.set_address(address);
        }
        std::uint32_t value = 0;
        std::memcpy(&value, access.get_data_ptr(), access.get_data_length());
        std::fprintf(trace, "%c %08llx %u %08x\n", access.is_read() ? 'r' : 'w', (unsigned long long)address,
                     access.get_data_length(), value);
    }
};

#endif
