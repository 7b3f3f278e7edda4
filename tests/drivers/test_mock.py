"""Mocks and SystemC targets run drivers as the emulator does: the same accesses, with nothing written for a device."""

from __future__ import annotations

import subprocess
from pathlib import Path
from random import Random

import pytest

from edgebuild.base.request import DriverRequest
from edgebuild.driver.emit.products import register_map
from edgebuild.driver.pipeline import compile_driver
from tests.conftest import ROOT, run
from tests.drivers.cases import svd
from tests.drivers.machine import Machine, Model, link
from tests.drivers.silicon import PARTS, Part, cut

SYSTEMC = "/" in run("gcc", "-print-file-name=libsystemc.so")
VALUES = 400  # that the reads of each field find, one after the other
HOST = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-unused-function")
TLM = """#include "case_tlm.h"
#include "case_mock.h"
#include <tlm_utils/simple_initiator_socket.h>
struct Bus : sc_core::sc_module {
    tlm_utils::simple_initiator_socket<Bus> socket;
    explicit Bus(sc_core::sc_module_name name) : sc_core::sc_module(name), socket("socket") {}
    std::uint64_t move(tlm::tlm_command command, std::uint64_t address, unsigned size, std::uint64_t value) {
        unsigned char data[8];
        for (unsigned i = 0; i < size; i++) data[i] = value >> 8 * i;
        tlm::tlm_generic_payload t; sc_core::sc_time delay;
        t.set_command(command); t.set_address(address - BASE); t.set_data_ptr(data); t.set_data_length(size);
        t.set_streaming_width(size); t.set_byte_enable_ptr(nullptr);
        socket->b_transport(t, delay);
        if (!t.is_response_ok()) { std::puts("no register"); std::exit(1); }
        value = 0;
        for (unsigned i = 0; i < size; i++) value |= static_cast<std::uint64_t>(data[i]) << 8 * i;
        return value;
    }
};
static Bus *bus;
extern "C" std::uint64_t case_mock_read(std::uint64_t a, unsigned n) {
    return bus->move(tlm::TLM_READ_COMMAND, a, n, 0);
}
extern "C" void case_mock_write(std::uint64_t a, unsigned n, std::uint64_t v) {
    bus->move(tlm::TLM_WRITE_COMMAND, a, n, v);
}
struct Device : case_NAME {
    using case_NAME::case_NAME;
    void accessed(const eb_mock_access &a) override {
        std::printf("%c %x %u %llx\\n", a.kind, a.offset, a.size, (unsigned long long)a.value);
    }
};
extern "C" { PROTOTYPES }
int sc_main(int, char **) {
    Bus b("bus"); Device d("device"); b.socket.bind(d.socket); bus = &b;
    SCRIPTS
    CALLS
    return 0;
}
"""
MOCK = """#define CASE_MOCK_DEVICES
#include "case_mock.h"
static void shown(eb_mock_device *d, const eb_mock_access *a, int before, void *context) {
    (void)d; (void)context;
    if (!before) printf("%c %x %u %llx\\n", a->kind, a->offset, a->size, (unsigned long long)a->value);
}
PROTOTYPES
int main(void) {
    case_mock_reset();
    case_mock_NAME.hook = shown;
    SCRIPTS
    CALLS
    return 0;
}
"""


def traces(part: Part, folder: Path, tlm: bool) -> tuple[list[str], list[str]]:
    """The accesses in the emulator and on the host, where each read of a field finds the next of random values."""
    file = folder / "chip.svd"
    text = part.text if part.text.startswith("<") else svd(part.text)
    file.write_bytes(cut(part.file, part.base) if part.file else text.encode())
    (folder / "chip.overlay.yaml").write_text(part.overlay)
    (folder / "case.bf.c").write_text(part.source)
    artifacts, driver = compile_driver(DriverRequest((folder / "case.bf.c",), "case", "pulpino", f"fixed:{file}"))
    for a in artifacts:
        (folder / a.name).write_bytes(a.data)
    (block,) = register_map("case", driver).blocks
    model, rng = Model(block, not driver.layout.bus.bytes, span=part.span), Random(part.name)
    names = ["_".join((*r.scope, f.name)) for r in block.registers for f in r.fields]
    scripts = []
    for name, f in zip(names, (f for r in block.registers for f in r.fields), strict=True):
        if names.count(name) == 1 and "r" in f.access:
            values = [rng.getrandbits(f.width) for _ in range(VALUES)]
            model.sequences[name] = list(values)
            array = f"static const uint64_t s_{name}[] = {{ {', '.join(f'{v}ull' for v in values)} }};"
            field = f"CASE_{block.name.upper()}_{name.upper()}"
            scripts.append(
                (array, f"eb_mock_script(&case_mock_{block.name}, {field}, s_{name}, {VALUES});", field, name)
            )
    machine = Machine(link(folder, ["case.c"]), {block.name: model})
    calls = [(str(f), [x for x in arguments if isinstance(x, int)]) for f, *arguments in part.calls]
    for f, arguments in calls:
        machine.call(f, *arguments)
    mine = [f"{a.kind} {a.offset:x} {a.size} {a.value:x}" for a in model.trace]
    run("gcc", "-std=gnu11", *HOST, "-include", "case_mock.h", "-c", "case.c", "-o", "host.o", cwd=folder)
    texts = {
        "NAME": block.name,
        "BASE": f"{block.base:#x}ull",
        "PROTOTYPES": " ".join(f"int {f}({', '.join('int' for _ in a) or 'void'});" for f, a in dict(calls).items()),
        "SCRIPTS": "\n".join(a for a, *_ in scripts)
        + "\n"
        + "\n".join(f"d.script({field}, s_{name}, {VALUES});" if tlm else call for _, call, field, name in scripts),
        "CALLS": " ".join(f"{f}({', '.join(map(str, a))});" for f, a in calls),
    }
    source = TLM if tlm else MOCK
    for word, text in texts.items():
        source = source.replace(word, text)
    (folder / f"main.{'cpp' if tlm else 'c'}").write_text(source)
    if tlm:
        run("g++", "-std=c++17", "-O0", "main.cpp", "host.o", "-lsystemc", "-o", "main", cwd=folder)
    else:
        run("gcc", "-std=gnu11", *HOST, "main.c", "host.o", "-o", "main", cwd=folder)
    theirs = subprocess.run([folder / "main"], capture_output=True, text=True, check=True).stdout.splitlines()
    return mine, [line for line in theirs if line[:2] in ("r ", "w ", "! ")]


@pytest.mark.one_in(2)
@pytest.mark.needs("riscv64-unknown-elf-gcc", "gcc")
@pytest.mark.parametrize("part", PARTS, ids=lambda p: p.name.replace(" ", "_"))
def test_a_mock_runs_a_driver_as_the_emulator(part: Part, tmp_path: Path) -> None:
    if not part.present:
        pytest.skip(f"{part.file} is not beside the checkout")
    mine, theirs = traces(part, tmp_path, tlm=False)
    assert mine == theirs
    assert len(mine) > 3


@pytest.mark.needs("riscv64-unknown-elf-gcc", "g++")
@pytest.mark.skipif(not SYSTEMC, reason="SystemC is not installed")
@pytest.mark.parametrize(
    "part",
    [pytest.param(p, id=p.name.replace(" ", "_"), marks=[pytest.mark.slow] if p.file else []) for p in PARTS[-2:]]
    + [pytest.param(p, id=p.name.replace(" ", "_"), marks=[pytest.mark.slow]) for p in PARTS[:-2]],
)
def test_a_systemc_target_runs_a_driver_as_the_emulator(part: Part, tmp_path: Path) -> None:
    if not part.present:
        pytest.skip(f"{part.file} is not beside the checkout")
    mine, theirs = traces(part, tmp_path, tlm=True)
    assert mine == theirs


ENGINE = """#include "edgebuild_mock.h"
#include <assert.h>
static const eb_mock_field fields[] = {
    { "a", 0, 32, 0, 8, 0x5A, 1, 1, EB_MOCK_STORE, EB_MOCK_KEEPS },
    { "flags", 0, 32, 8, 8, 0xF0, 1, 1, EB_MOCK_ONE_CLEARS, EB_MOCK_KEEPS },
    { "sets", 0, 32, 16, 4, 1, 1, 1, EB_MOCK_ONE_SETS, EB_MOCK_KEEPS },
    { "toggles", 0, 32, 20, 4, 6, 1, 1, EB_MOCK_ONE_TOGGLES, EB_MOCK_KEEPS },
    { "zeros", 0, 32, 24, 4, 0xF, 1, 1, EB_MOCK_ZERO_CLEARS, EB_MOCK_KEEPS },
    { "popped", 4, 16, 0, 16, 0x1234, 1, 0, EB_MOCK_STORE, EB_MOCK_READ_CLEARS },
    { "sent", 8, 8, 0, 8, 0, 0, 1, EB_MOCK_STORE, EB_MOCK_KEEPS },
    { "wide", 16, 64, 4, 56, 0, 1, 1, EB_MOCK_STORE, EB_MOCK_KEEPS },
};
static uint64_t values[8];
static eb_mock_pending scripts[8];
static eb_mock_device d = { "d", 0x1000, 24, 0, fields, 8, values, scripts, NULL, NULL, 0, { { 0, 0, 0, 0 } } };
static void busy(eb_mock_device *m, const eb_mock_access *a, int before, void *context)
{
    if (before && a->offset == 0) m->values[0]++;
    ++*(int *)context;
}
int main(void)
{
    eb_mock_device *all[] = { &d };
    int calls = 0;
    eb_mock_reset(&d);
    assert(eb_mock_read(&d, 0, 4) == 0x0F61F05A);
    eb_mock_write(&d, 0, 4, 0x0A323011);
    assert(eb_mock_read(&d, 0, 4) == 0x0A53C011);
    assert(eb_mock_read(&d, 4, 2) == 0x1234 && eb_mock_read(&d, 4, 2) == 0);
    eb_mock_write(&d, 4, 2, 7);
    eb_mock_write(&d, 8, 1, 0x41);
    assert(values[5] == 0 && values[6] == 0x41 && eb_mock_read(&d, 8, 1) == 0);
    eb_mock_write(&d, 16, 4, 0x89ABCDEF);
    eb_mock_write(&d, 20, 4, 0x01234567);
    assert(values[7] == 0x01234567 * 0x10000000ull + 0x89ABCDE && eb_mock_read(&d, 20, 4) == 0x01234567);
    uint64_t script[] = { 3, 4 };
    eb_mock_script(&d, 0, script, 2);
    assert((eb_mock_read(&d, 0, 4) & 0xFF) == 3 && (eb_mock_read(&d, 0, 4) & 0xFF) == 4);
    assert((eb_mock_read(&d, 0, 4) & 0xFF) == 4 && eb_mock_peek(&d, 0) == 4);
    assert(d.accesses == 14 && eb_mock_logged(&d, 1)->kind == 'w' && eb_mock_logged(&d, 1)->value == 0x0A323011);
    assert(!eb_mock_logged(&d, 14));
    d.hook = busy;
    d.context = &calls;
    assert((eb_mock_read(&d, 0, 4) & 0xFF) == 5 && calls == 2);
    assert(eb_mock_at(all, 1, 0x1004, 2) == &d && !eb_mock_takes(&d, 4, 4) && !eb_mock_takes(&d, 0, 1));
    assert(eb_mock_takes(&d, 16, 4) && !eb_mock_takes(&d, 16, 8) && !eb_mock_takes(&d, 12, 4));
    eb_mock_at(all, 1, 0x100C, 4);
    return 0;
}
"""


@pytest.mark.needs("gcc")
def test_each_policy_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "t.c").write_text(ENGINE)
    for compiler in ("gcc", "g++"):
        run(compiler, *HOST, "-I", ROOT / "hal" / "include", "t.c", "-o", "t", cwd=tmp_path)
        done = subprocess.run([tmp_path / "t"], capture_output=True, text=True, check=False)
        assert done.stderr == "mock: no register takes 4 bytes at 0x100c\n", done.stderr
        assert done.returncode == -6
