// SPDX-License-Identifier: 0BSD
// Runs a program on the RTL of VexRiscv, which Verilator turned into C++: memories and a console on its Wishbone buses.
//
//     vexriscv PROGRAM.elf [WAITS]
//
// WAITS: cycles from a request to the first word, 0 by default; the words of a burst follow one a cycle. Both buses have
// a port to memory of their own, so that neither waits for the other.
//
// Memory is everything below 0x80000000 that the program's file loads or that the program writes. At PORT the program
// finds what semihosting offers elsewhere, see hal/src/semihost.c: it writes the number of a call to the first word and
// the address of its block to the second, then reads the result there. The third word gives the bytes that a call read,
// one at a time: memory that changed behind a cache would not be seen. A call that this machine lacks ends the run.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "VVexRiscv.h"
#include "verilated.h"

namespace {

constexpr uint32_t PORT = 0xF0000000u;
constexpr uint64_t LIMIT = 20'000'000'000u; // cycles: a program that hangs ends here
constexpr uint32_t PAGE = 1u << 16;

class Memory {
public:
    uint32_t word(uint32_t address)
    {
        uint32_t value;
        std::memcpy(&value, page(address) + address % PAGE / 4 * 4, 4);
        return value;
    }

    uint8_t &byte(uint32_t address) { return page(address)[address % PAGE]; }

    void store(uint32_t address, uint32_t value, unsigned lanes)
    {
        for (unsigned lane = 0; lane < 4; ++lane) {
            if (lanes >> lane & 1u) {
                byte(address + lane) = static_cast<uint8_t>(value >> 8 * lane);
            }
        }
    }

    std::string text(uint32_t address)
    {
        std::string result;
        for (; byte(address) != 0; ++address) {
            result += static_cast<char>(byte(address));
        }
        return result;
    }

private:
    uint8_t *page(uint32_t address)
    {
        const uint32_t number = address / PAGE;
        if (number != last_ || current_ == nullptr) {
            auto &bytes = pages_[number];
            if (!bytes) {
                bytes = std::make_unique<uint8_t[]>(PAGE);
            }
            current_ = bytes.get();
            last_ = number;
        }
        return current_;
    }

    std::map<uint32_t, std::unique_ptr<uint8_t[]>> pages_;
    uint32_t last_ = 0;
    uint8_t *current_ = nullptr;
};

// Files and console of this machine, in the words of semihosting.
class Host {
public:
    explicit Host(Memory &memory) : memory_(memory) {}

    bool ended = false;
    int status = 0;

    uint32_t call(uint32_t operation, uint32_t block)
    {
        switch (operation) {
        case 0x01: { // open: path, mode
            std::FILE *file = std::fopen(memory_.text(word(block, 0)).c_str(), word(block, 1) == 1 ? "rb" : "wb");
            if (file == nullptr) {
                return UINT32_MAX;
            }
            files_.push_back(file);
            return static_cast<uint32_t>(files_.size());
        }
        case 0x02: // close
            std::fclose(file(word(block, 0)));
            files_[word(block, 0) - 1] = nullptr;
            return 0;
        case 0x04: // write a text
            std::fputs(memory_.text(block).c_str(), stdout);
            return 0;
        case 0x05: // write: bytes that were not written
        case 0x06: { // read
            const uint32_t at = word(block, 1), size = word(block, 2);
            std::vector<uint8_t> bytes(size);
            uint32_t moved;
            if (operation == 0x05) {
                for (uint32_t i = 0; i < size; ++i) {
                    bytes[i] = memory_.byte(at + i);
                }
                moved = static_cast<uint32_t>(std::fwrite(bytes.data(), 1, size, file(word(block, 0))));
            } else {
                moved = static_cast<uint32_t>(std::fread(bytes.data(), 1, size, file(word(block, 0))));
                read_.insert(read_.end(), bytes.begin(), bytes.begin() + moved);
            }
            return size - moved;
        }
        case 0x20: // end: reason, status
            ended = true;
            status = static_cast<int>(word(block, 1));
            return 0;
        default:
            std::fprintf(stderr, "vexriscv: call 0x%x of semihosting is not there\n", operation);
            std::exit(126);
        }
    }

    // The next byte that a call read.
    uint32_t next()
    {
        if (read_.empty()) {
            return 0;
        }
        const uint32_t byte = read_.front();
        read_.pop_front();
        return byte;
    }

private:
    uint32_t word(uint32_t block, uint32_t index) { return memory_.word(block + 4 * index); }

    std::FILE *file(uint32_t number)
    {
        if (number == 0 || number > files_.size() || files_[number - 1] == nullptr) {
            std::fprintf(stderr, "vexriscv: no open file has the number %u\n", number);
            std::exit(126);
        }
        return files_[number - 1];
    }

    Memory &memory_;
    std::vector<std::FILE *> files_;
    std::deque<uint8_t> read_;
};

// One Wishbone slave: counts the waits in front of the first word of a burst.
class Slave {
public:
    explicit Slave(unsigned waits) : waits_(waits) {}

    bool acknowledges(bool requested) const { return requested && (inside_ || waited_ >= waits_); }

    void clock(bool requested, bool acknowledged, unsigned cycle_type)
    {
        waited_ = requested && !acknowledged ? waited_ + 1 : 0;
        inside_ = acknowledged ? cycle_type == 2 : inside_ && requested; // 2: the burst goes on at the next address
    }

private:
    unsigned waits_, waited_ = 0;
    bool inside_ = false;
};

Memory *shared = nullptr; // of a unit beside the core that reaches memory by itself

// Loads the segments of a 32-bit ELF file at their load addresses; returns its entry.
uint32_t load(const char *path, Memory &memory)
{
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    const auto field = [&](size_t at, size_t size) {
        uint32_t value = 0;
        if (at + size > bytes.size()) {
            std::fprintf(stderr, "vexriscv: %s is no ELF file of 32 bits\n", path);
            std::exit(126);
        }
        std::memcpy(&value, bytes.data() + at, size);
        return value;
    };
    if (field(0, 4) != 0x464C457Fu || field(4, 1) != 1) {
        std::fprintf(stderr, "vexriscv: %s is no ELF file of 32 bits\n", path);
        std::exit(126);
    }
    const uint32_t headers = field(28, 4), size = field(42, 2), count = field(44, 2);
    for (uint32_t i = 0; i < count; ++i) {
        const size_t at = headers + static_cast<size_t>(i) * size;
        if (field(at, 4) != 1) { // PT_LOAD
            continue;
        }
        const uint32_t offset = field(at + 4, 4), physical = field(at + 12, 4), length = field(at + 16, 4);
        for (uint32_t b = 0; b < length; ++b) {
            memory.byte(physical + b) = static_cast<uint8_t>(field(static_cast<size_t>(offset) + b, 1));
        }
    }
    return field(24, 4);
}

} // namespace

// What Verilog of such a unit imports: a word, a byte, and the store of a byte.
extern "C" int eb_word(int address) { return static_cast<int>(shared->word(static_cast<uint32_t>(address))); }
extern "C" signed char eb_byte(int address) { return static_cast<signed char>(shared->byte(static_cast<uint32_t>(address))); }
extern "C" void eb_store(int address, char value)
{
    shared->byte(static_cast<uint32_t>(address)) = static_cast<uint8_t>(value);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        std::fprintf(stderr, "usage: vexriscv PROGRAM.elf [WAITS]\n");
        return 2;
    }
    const unsigned waits = argc > 2 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : 0;
    Memory memory;
    shared = &memory;
    Host host(memory);
    Slave instructions(waits), data(waits);
    VerilatedContext context;
    const auto core = std::make_unique<VVexRiscv>(&context);
    core->externalResetVector = load(argv[1], memory);
    core->reset = 1;
    uint32_t operation = 0, result = 0;
    for (uint64_t cycle = 0; cycle < LIMIT && !host.ended; ++cycle) {
        core->clk = 0;
        core->reset = cycle < 8;
        core->eval();
        const bool fetches = core->iBusWishbone_CYC && core->iBusWishbone_STB;
        const bool accesses = core->dBusWishbone_CYC && core->dBusWishbone_STB;
        const uint32_t at = core->dBusWishbone_ADR << 2;
        const bool fetched = instructions.acknowledges(fetches), accessed = data.acknowledges(accesses);
        if (fetched) {
            core->iBusWishbone_DAT_MISO = memory.word(core->iBusWishbone_ADR << 2);
        }
        if (accessed && !core->dBusWishbone_WE) {
            core->dBusWishbone_DAT_MISO = at == PORT + 4 ? result : at == PORT + 8 ? host.next() : memory.word(at);
        }
        core->iBusWishbone_ACK = fetched;
        core->dBusWishbone_ACK = accessed;
        core->eval();
        if (accessed && core->dBusWishbone_WE) {
            if (at == PORT) {
                operation = core->dBusWishbone_DAT_MOSI;
            } else if (at == PORT + 4) {
                result = host.call(operation, core->dBusWishbone_DAT_MOSI);
            } else {
                memory.store(at, core->dBusWishbone_DAT_MOSI, core->dBusWishbone_SEL);
            }
        }
        const unsigned fetch_type = core->iBusWishbone_CTI, data_type = core->dBusWishbone_CTI;
        core->clk = 1;
        core->eval();
        instructions.clock(fetches, fetched, fetch_type);
        data.clock(accesses, accessed, data_type);
    }
    std::fflush(nullptr);
    if (!host.ended) {
        std::fprintf(stderr, "vexriscv: the program did not end within %llu cycles\n", static_cast<unsigned long long>(LIMIT));
        return 124;
    }
    return host.status;
}
