"""Random programs: generated driver against reference interpreter."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from tests.drivers.machine import Access, Bench, Model, build
from tests.drivers.programs import Device, F, Generator, Program, address

CALLS = ((0, 0, 3, 5), (0, 1, 1, 2), (1, 0, 7, 0))  # instance of p, instance of q, x, y


class Hardware:
    """The model of one program's device, with the consequences of its side effects."""

    def __init__(self, program: Program, model: Model) -> None:
        self.device = Device({f.name: f for f in program.fields})
        self.model = model
        self.seen = 0
        model.observer = self.observe

    def key(self, name: str) -> tuple[int, str, int]:
        _, instance, field, *index = name.split("_")
        return int(instance), field, int(index[0]) if index else 0

    def observe(self, access: Access) -> None:
        """After each bus access: note it, let it have its consequences, and put them into the model."""
        device = self.device
        for name, value in access.fields.items():
            key = self.key(name)
            f: F = device.fields[key[1]]
            if access.kind == "w":
                if f.wse:
                    device.notes.append(("w", *key, value, device.snapshot()))
                device.state[key] = value
                if f.wse:
                    device.disturb(key[0], f.wse, value + 3)
            elif f.rse:
                device.notes.append(("r", *key, value, device.snapshot()))
                device.disturb(key[0], f.rse, value + 1)
        for (instance, name, index), value in device.state.items():
            suffix = f"_{index}" if device.fields[name].count else ""
            self.model.values[f"pads_{instance}_{name}{suffix}"] = value


def check(b: Bench, programs: list[Program]) -> tuple[int, int]:
    """Compare all programs; return the numbers of accesses in the source and after merging."""
    for program in programs:
        model = b.machine.models[f"d{program.number}"]
        layout = b.driver.layout.groups[f"D{program.number}"].subs[0]
        for p, q, x, y in CALLS:
            model.values.clear()
            model.trace.clear()
            hardware = Hardware(program, model)
            expected = Device({f.name: f for f in program.fields})
            registers = b.driver.layout.groups[f"G{program.number}"].registers
            offsets = {s.name.removesuffix("_0"): r.offset for r in registers for s in r.slots}
            b.call(f"reset{program.number}")
            base = address(program.number) + layout.offset
            got = b.call(f"t{program.number}", base + p * layout.stride, base + q * layout.stride, x, y) & 0xFFFFFFFF
            want = program.run(expected, p, q, x, y, offsets)
            generated = next(data.decode() for n, data in b.files.items() if n in ("case.c", "case.cpp"))
            text = f"{program.c()}\n{re.split(rf'(?:unsigned t|::Driver){program.number}[(:]', generated)[1][:2000]}"
            assert got == want, f"result {got:#x}, expected {want:#x} for {(p, q, x, y)}\n{text}"
            assert hardware.device.notes == expected.notes, f"side effects for {(p, q, x, y)}\n{text}"
            assert hardware.device.snapshot() == expected.snapshot(), f"final state for {(p, q, x, y)}\n{text}"
    before = sum(len(f.accesses) for f in b.driver.cdfg.functions.values())
    return before, sum(len(r) for r in b.driver.merged.conflicts.regions.values())


ATOMICS = """
static inline void atomic_store(unsigned *a, unsigned v) { __atomic_store_n(a, v, 5); }
static inline unsigned atomic_fetch_add(unsigned *a, unsigned v) { return __atomic_fetch_add(a, v, 5); }
static inline unsigned atomic_exchange(unsigned *a, unsigned v) { return __atomic_exchange_n(a, v, 5); }
"""


def run(folder: Path, seed: int, count: int, target: str, cpp: bool = False) -> tuple[int, int]:
    generator = Generator(Random(seed))
    programs = [generator.program(n) for n in range(count)]
    head = "#include <stddef.h>\n" + (ATOMICS if cpp else "#include <stdatomic.h>\n")
    text = "\n".join(p.cpp() if cpp else p.c() for p in programs)
    b = build(folder, head + text, target=target, isa="rv32ima", cpp=cpp)
    return check(b, programs)


@pytest.mark.one_in(2)
@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("target", ["pulpino", "riscv-virt"])
def test_some_programs(target: str, tmp_path: Path) -> None:
    before, after = run(tmp_path, 1, 30, target)
    assert after < before, "nothing was merged: the test does not test"


@pytest.mark.one_in(2)
@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("target", ["pulpino", "riscv-virt"])
def test_some_programs_of_cpp(target: str, tmp_path: Path) -> None:
    before, after = run(tmp_path, 2, 30, target, cpp=True)
    assert after < before, "nothing was merged: the test does not test"


@pytest.mark.slow
@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("seed", range(40, 50))
def test_many_programs_of_cpp(seed: int, tmp_path: Path) -> None:
    run(tmp_path, seed, 100, "riscv-virt" if seed % 2 else "pulpino", cpp=True)


@pytest.mark.slow
@pytest.mark.needs("riscv64-unknown-elf-gcc")
@pytest.mark.parametrize("seed", range(10, 30))
def test_many_programs(seed: int, tmp_path: Path) -> None:
    run(tmp_path, seed, 100, "riscv-virt" if seed % 2 else "pulpino")
