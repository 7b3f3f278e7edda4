/* A TLM-2.0 target around a model of registers (edgebuild_mock.h), which is in front of this text. */
#ifndef EDGEBUILD_TLM_H
#define EDGEBUILD_TLM_H

#include <vector>

#include <systemc>
#include <tlm>
#include <tlm_utils/simple_target_socket.h>

/* A target that accesses a model of registers. */
class eb_tlm_device : public sc_core::sc_module {
public:
    tlm_utils::simple_target_socket<eb_tlm_device> socket;

    std::uint64_t &value(std::size_t field) { return model.values[field]; }
    void script(std::size_t field, const std::uint64_t *next, std::size_t count) { eb_mock_script(&model, field, next, count); }
    void reset() { eb_mock_reset(&model); }

protected:
    eb_tlm_device(sc_core::sc_module_name name, const eb_mock_field *fields, std::size_t count, std::uint64_t base,
                  std::uint32_t bytes, int parts)
        : sc_core::sc_module(name), socket("socket"), values(count + 1), scripts(count + 1), model()
    {
        model.name = this->name();
        model.base = base;
        model.bytes = bytes;
        model.parts = parts;
        model.fields = fields;
        model.count = count;
        model.values = values.data();
        model.scripts = scripts.data();
        model.hook = &eb_tlm_device::hooked;
        model.context = this;
        reset();
        socket.register_b_transport(this, &eb_tlm_device::b_transport);
        socket.register_transport_dbg(this, &eb_tlm_device::transport_dbg);
    }

    virtual void before_read(const eb_mock_access &) {}
    virtual void accessed(const eb_mock_access &) {}

private:
    std::vector<std::uint64_t> values;
    std::vector<eb_mock_pending> scripts;
    eb_mock_device model;

    static void hooked(eb_mock_device *, const eb_mock_access *access, int before, void *context)
    {
        eb_tlm_device *self = static_cast<eb_tlm_device *>(context);
        before ? self->before_read(*access) : self->accessed(*access);
    }

    /* Addresses of a transaction count from the base of the device, as a bus passes them on. */
    void b_transport(tlm::tlm_generic_payload &t, sc_core::sc_time &)
    {
        unsigned size = t.get_data_length();
        if (t.get_byte_enable_ptr() || t.get_streaming_width() < size) {
            t.set_response_status(tlm::TLM_BYTE_ENABLE_ERROR_RESPONSE);
            return;
        }
        bool known = (size == 1 || size == 2 || size == 4 || size == 8) && t.get_address() < model.bytes;
        std::uint32_t offset = static_cast<std::uint32_t>(t.get_address());
        if (!known || !eb_mock_takes(&model, offset, size)) {
            t.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);
            return;
        }
        unsigned char *data = t.get_data_ptr();
        std::uint64_t word = 0;
        if (t.is_read()) {
            word = eb_mock_read(&model, offset, size);
            for (unsigned i = 0; i < size; i++)
                data[i] = static_cast<unsigned char>(word >> 8 * i);
        } else if (t.is_write()) {
            for (unsigned i = 0; i < size; i++)
                word |= static_cast<std::uint64_t>(data[i]) << 8 * i;
            eb_mock_write(&model, offset, size, word);
        }
        t.set_response_status(tlm::TLM_OK_RESPONSE);
    }

    /* Debuggers see values without side effects, and store none. */
    unsigned transport_dbg(tlm::tlm_generic_payload &t)
    {
        unsigned length = t.is_read() ? t.get_data_length() : 0;
        for (unsigned i = 0; i < length; i++)
            t.get_data_ptr()[i] = eb_mock_peek(&model, static_cast<std::uint32_t>(t.get_address()) + i);
        return length;
    }
};
#endif
