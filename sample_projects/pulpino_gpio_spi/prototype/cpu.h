/* A thread of the simulation that hosts unicorn's RV32 core. An instruction takes one cycle; the core runs ahead of the
 * simulation and waits for it at each access to a device. */
#ifndef CPU_H
#define CPU_H

#include <elf.h>

#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <systemc>
#include <tlm>
#include <tlm_utils/simple_initiator_socket.h>
#include <unicorn/unicorn.h>

#include "bus.h"

class Cpu : public sc_core::sc_module {
  public:
    tlm_utils::simple_initiator_socket<Cpu> socket;
    std::uint32_t result = 0; /* of main() */
    std::string error;        /* why the program came to no end */

    /* The program ends where it calls eb_exit. */
    Cpu(sc_core::sc_module_name name, const std::string &elf, const std::vector<Bus::Window> &memories,
        const std::vector<Bus::Window> &devices, sc_core::sc_time cycle)
        : sc_module(name), socket("socket"), cycle(cycle)
    {
        check(uc_open(UC_ARCH_RISCV, UC_MODE_RISCV32, &core), "uc_open");
        for (const Bus::Window &m : memories)
            check(m.host ? uc_mem_map_ptr(core, m.base, m.bytes, UC_PROT_ALL, m.host)
                         : uc_mem_map(core, m.base, m.bytes, UC_PROT_ALL),
                  "uc_mem_map");
        for (const Bus::Window &d : devices) /* the core maps pages of 4 KiB, the bus knows the windows */
            check(uc_mmio_map(core, d.base & ~std::uint64_t(0xFFF), 0x1000, reads, base_of(d), writes, base_of(d)),
                  "uc_mmio_map");
        load(elf);
        uc_hook hook;
        check(uc_hook_add(core, &hook, UC_HOOK_CODE, reinterpret_cast<void *>(counts), this, 1, 0), "uc_hook_add");
        SC_HAS_PROCESS(Cpu);
        SC_THREAD(run);
        set_stack_size(4 << 20); /* the core's translator works on this thread's stack */
    }

    ~Cpu() override { uc_close(core); }

    std::uint32_t symbol(const std::string &name) const { return symbols.at(name); }

  private:
    struct Page {
        Cpu *cpu;
        std::uint64_t base;
    };
    uc_engine *core = nullptr;
    std::vector<char> file;
    std::map<std::string, std::uint32_t> symbols;
    std::map<std::uint64_t, Page> pages;
    const sc_core::sc_time cycle;
    std::uint64_t behind = 0; /* instructions that the simulation has not waited for */

    static void check(uc_err status, const char *what)
    {
        if (status != UC_ERR_OK)
            throw std::runtime_error(std::string(what) + ": " + uc_strerror(status));
    }

    Page *base_of(const Bus::Window &d)
    {
        const std::uint64_t base = d.base & ~std::uint64_t(0xFFF);
        return &(pages[base] = {this, base});
    }

    template <class T> const T *at(std::size_t offset, std::size_t count = 1) const
    {
        if (offset + count * sizeof(T) > file.size())
            throw std::runtime_error("the ELF file is cut");
        return reinterpret_cast<const T *>(file.data() + offset);
    }

    void load(const std::string &path)
    {
        std::ifstream in(path, std::ios::binary);
        file.assign(std::istreambuf_iterator<char>(in), {});
        const Elf32_Ehdr *head = at<Elf32_Ehdr>(0);
        if (std::string(file.data(), 4) != ELFMAG || head->e_machine != EM_RISCV)
            throw std::runtime_error(path + " is no RISC-V ELF file");
        for (int i = 0; i < head->e_phnum; i++) {
            const Elf32_Phdr *p = at<Elf32_Phdr>(head->e_phoff + std::size_t(i) * head->e_phentsize);
            if (p->p_type == PT_LOAD && p->p_filesz > 0) /* to where it is stored: start-up code copies data itself */
                check(uc_mem_write(core, p->p_paddr, at<char>(p->p_offset, p->p_filesz), p->p_filesz), "uc_mem_write");
        }
        const Elf32_Shdr *sections = at<Elf32_Shdr>(head->e_shoff, head->e_shnum);
        for (int i = 0; i < head->e_shnum; i++) {
            const Elf32_Shdr &s = sections[i];
            for (std::uint32_t k = 0; s.sh_type == SHT_SYMTAB && k < s.sh_size / sizeof(Elf32_Sym); k++) {
                const Elf32_Sym *symbol = at<Elf32_Sym>(s.sh_offset + k * sizeof(Elf32_Sym));
                symbols[at<char>(sections[s.sh_link].sh_offset + symbol->st_name)] = symbol->st_value;
            }
        }
    }

    void run()
    {
        const uc_err status = uc_emu_start(core, at<Elf32_Ehdr>(0)->e_entry, symbols.at("eb_exit"), 0, 0);
        if (status != UC_ERR_OK && error.empty())
            error = uc_strerror(status);
        uc_reg_read(core, UC_RISCV_REG_A0, &result);
        wait(double(behind) * cycle);
        sc_core::sc_stop();
    }

    static void counts(uc_engine *, std::uint64_t, std::uint32_t, void *cpu) { static_cast<Cpu *>(cpu)->behind++; }

    static std::uint64_t reads(uc_engine *, std::uint64_t offset, unsigned bytes, void *page)
    {
        return static_cast<Page *>(page)->cpu->access(tlm::TLM_READ_COMMAND, page, offset, bytes, 0);
    }

    static void writes(uc_engine *, std::uint64_t offset, unsigned bytes, std::uint64_t value, void *page)
    {
        static_cast<Page *>(page)->cpu->access(tlm::TLM_WRITE_COMMAND, page, offset, bytes, value);
    }

    std::uint64_t access(tlm::tlm_command kind, void *page, std::uint64_t offset, unsigned bytes, std::uint64_t value)
    {
        wait(double(behind) * cycle);
        behind = 0;
        tlm::tlm_generic_payload payload;
        sc_core::sc_time delay = sc_core::SC_ZERO_TIME;
        payload.set_command(kind);
        payload.set_address(static_cast<Page *>(page)->base + offset);
        payload.set_data_ptr(reinterpret_cast<unsigned char *>(&value));
        payload.set_data_length(bytes);
        payload.set_streaming_width(bytes);
        socket->b_transport(payload, delay);
        if (payload.is_response_error() && error.empty()) {
            char text[64];
            std::snprintf(text, sizeof text, "no %u bytes at %#llx", bytes, (unsigned long long)payload.get_address());
            error = text;
            uc_emu_stop(core);
        }
        return value;
    }
};

#endif
