/* The registers of a device behind a TLM socket, built from the table of fields that edgebuild generates. */
#ifndef REGISTERS_H
#define REGISTERS_H

#include <cstdint>
#include <cstring>
#include <vector>

#include <systemc>
#include <tlm>
#include <tlm_utils/simple_target_socket.h>

/* `Field` is the struct of the generated header. A derived class gives the fields their behaviour. */
template <class Field> class Registers : public sc_core::sc_module {
  public:
    tlm_utils::simple_target_socket<Registers> socket;

    template <std::size_t count>
    Registers(sc_core::sc_module_name name, const Field (&table)[count], bool takes_bytes)
        : sc_module(name), socket("socket"), fields(table, table + count), whole_only(!takes_bytes)
    {
        for (const Field &f : fields)
            values.push_back(f.reset);
        socket.register_b_transport(this, &Registers::b_transport);
    }

  protected:
    const std::vector<Field> fields;
    std::vector<std::uint64_t> values; /* of each field, at the index that the header names FIELD_index */

    /* After an access to the field; what a write has put into it is in `values`, `old` is what was there. */
    virtual void was_read(std::size_t) {}
    virtual void was_written(std::size_t, std::uint64_t) {}

  private:
    const bool whole_only; /* the bus has no byte strobes */

    void b_transport(tlm::tlm_generic_payload &access, sc_core::sc_time &)
    {
        const std::uint64_t offset = access.get_address();
        const unsigned bytes = access.get_data_length();
        bool found = false;
        std::uint64_t word = 0;
        std::memcpy(&word, access.get_data_ptr(), bytes);
        const std::uint64_t written = word;
        word = 0;
        for (std::size_t i = 0; i < fields.size(); i++) {
            const Field &f = fields[i];
            if (offset < f.offset || f.offset + f.bits / 8 < offset + bytes || (whole_only && bytes < 4))
                continue;
            found = true;
            /* where the field begins in the accessed bits; negative if its lower part is not among them */
            const int shift = int(8 * f.offset + f.lsb) - int(8 * offset);
            const std::uint64_t mine = moved(ones(8 * bytes), -shift) & ones(f.width);
            if (mine == 0)
                continue;
            if (access.is_write() && f.writable) {
                const std::uint64_t old = values[i];
                values[i] = (old & ~mine) | (moved(written, -shift) & mine);
                was_written(i, old);
            } else if (access.is_read() && f.readable) {
                word |= moved(values[i] & mine, shift);
                was_read(i);
            }
        }
        if (access.is_read())
            std::memcpy(access.get_data_ptr(), &word, bytes);
        access.set_response_status(found ? tlm::TLM_OK_RESPONSE : tlm::TLM_ADDRESS_ERROR_RESPONSE);
    }

    static std::uint64_t ones(unsigned width) { return width < 64 ? (std::uint64_t(1) << width) - 1 : ~std::uint64_t(0); }

    static std::uint64_t moved(std::uint64_t value, int left)
    {
        return left <= -64 || left >= 64 ? 0 : left < 0 ? value >> -left : value << left;
    }
};

#endif
