"""The emitted C, compiled for the Cortex-M7 and run instruction by instruction against the register model."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import unicorn
from elftools.elf.elffile import ELFFile
from unicorn import arm_const as arm

from edgebuild.base.request import CLOCK_OUTPUTS
from edgebuild.clock.configs import ClockPlan
from edgebuild.clock.emit import clock_files
from tests.clocks.register_model import RegisterModel, Violation
from tests.clocks.rp2_model import Rp2Model
from tests.clocks.small_models import SmallModel
from tests.clocks.vendor_model import VendorModel, model_of
from tests.emulator import cortex_m7

Model = RegisterModel | VendorModel | Rp2Model | SmallModel
SOURCE, HEADER = CLOCK_OUTPUTS
FLASH, RAM, RAM_SIZE = 0x08000000, 0x20000000, 0x4000
BACK = FLASH + 0xFF000  # where the called function returns to
INSTRUCTIONS = 2_000_000
REGULATORS_US = (5.0, 350.0)  # ready before the PLL, and after it
WARNINGS = (
    "all", "extra", "pedantic", "conversion", "sign-conversion", "shadow", "cast-qual", "cast-align",
    "strict-prototypes", "missing-prototypes", "undef", "switch-default", "double-promotion", "error",
)  # fmt: skip
STRICT = ["-std=c11", "-ffreestanding", *(f"-W{w}" for w in WARNINGS)]
PROBE = """
#include "clock_config.h"
extern volatile uint32_t probe_fault;
volatile uint32_t probe_fault;
void eb_clock_error(eb_clock_fault fault) { probe_fault = 1u + (uint32_t)fault; }
"""


def build(plan: ClockPlan, folder: Path, change: Any = None, flags: tuple[str, ...] = (), probe: str = "") -> Path:
    """An ELF of the plan's C, with `probe` in C beside it; `change` edits the source's text first.

    No warnings under the strict flags.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for artifact in clock_files(plan):
        text = artifact.data.decode()
        if change and artifact.name == SOURCE:
            changed = change(text)
            assert changed != text, "the mutation changes nothing"
            text = changed
        (folder / artifact.name).write_text(text)
    (folder / "probe.c").write_text(PROBE + probe)
    assert (folder / HEADER).is_file()
    strict = [f for f in STRICT if not (change and f == "-Werror")]
    link = ["-nostdlib", f"-Wl,-Ttext={FLASH:#x},-Tdata={RAM:#x},-e,eb_clock_init"]
    command = ["arm-none-eabi-gcc", "-mcpu=cortex-m7", "-mthumb", "-Os", *strict, *flags, *link, "-o", "clock.elf"]
    command += [SOURCE, "probe.c"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return folder / "clock.elf"


class Machine:
    """A core with its clock registers. `call` runs one function to its end and raises what the model raised."""

    def __init__(
        self,
        plan: ClockPlan,
        elf: Path,
        regulator_us: float = 30.0,
        ram_size: int = RAM_SIZE,
        instructions: int = INSTRUCTIONS,
    ) -> None:
        assert plan.tree.registers
        self.plan = plan
        self.model = model_of(plan, regulator_us)
        self.violation: Exception | None = None
        self.ram_size, self.instructions = ram_size, instructions
        self.uc = cortex_m7()
        self.uc.mem_map(FLASH, 0x100000)
        self.uc.mem_map(RAM, ram_size)
        for page in sorted({r.address & ~0xFFF for r in plan.tree.registers.map.values()}):
            self.uc.mmio_map(page, 0x1000, self._read, page, self._write, page)
        with elf.open("rb") as stream:
            file = ELFFile(stream)
            for segment in file.iter_segments("PT_LOAD"):
                self.uc.mem_write(segment["p_vaddr"], segment.data())
            symbols: Any = file.get_section_by_name(".symtab")
            self.symbols = {s.name: s["st_value"] for s in symbols.iter_symbols()}

    def call(self, function: str, argument: int = 0) -> None:
        self.violation = None
        self.uc.reg_write(arm.UC_ARM_REG_R0, argument)
        self.uc.reg_write(arm.UC_ARM_REG_SP, RAM + self.ram_size)
        self.uc.reg_write(arm.UC_ARM_REG_LR, BACK | 1)
        try:
            self.uc.emu_start(self.symbols[function] | 1, BACK, count=self.instructions)
        except unicorn.UcError as error:
            raise Violation(f"{function}: {error}") from self.violation
        if self.violation:
            raise self.violation
        if self.uc.reg_read(arm.UC_ARM_REG_PC) & ~1 != BACK:
            raise Violation(f"{function} does not end")

    def count(self, action: Callable[[str], None], name: str) -> int:
        """Instructions that run while `action` does, which is `call` or `switch`."""
        seen = 0

        def step(uc: Any, address: int, size: int, data: Any) -> None:
            nonlocal seen
            seen += 1

        hook = self.uc.hook_add(unicorn.UC_HOOK_CODE, step)
        self.uc.ctl_flush_tb()  # what is translated already would run without the hook
        action(name)
        self.uc.hook_del(hook)
        return seen

    def switch(self, name: str) -> None:
        """`eb_clock_switch`, and is the machine then in that configuration?"""
        index = [c.name for c in self.plan.configs].index(name)
        self.call("eb_clock_switch", index)
        self.expect(name)

    def expect(self, name: str) -> None:
        config = self.plan.config(name)
        hz, scale, overdrive, latency, pll = self.model.settled()
        seen = (hz, overdrive, latency, pll) + ((scale,) if pll else ())
        wanted: tuple[object, ...] = (config.sysclk_hz, config.overdrive, config.wait_states, config.pll is not None)
        wanted += (config.scale.name,) if pll else ()
        if seen != wanted:
            raise Violation(f"asked for {name}, the chip is left at {seen}, not {wanted}")
        if self.fault():
            raise Violation(f"{name}: fault {self.fault()}")

    def fault(self) -> int:
        return int.from_bytes(self.uc.mem_read(self.symbols["probe_fault"], 4), "little")

    def words(self, symbol: str, count: int) -> list[int]:
        """Words of the program's memory."""
        data = self.uc.mem_read(self.symbols[symbol], 4 * count)
        return [int.from_bytes(data[i : i + 4], "little") for i in range(0, 4 * count, 4)]

    def returned(self) -> int:
        return int(self.uc.reg_read(arm.UC_ARM_REG_R0))

    def save(self) -> tuple[Model, bytes]:
        model = copy.copy(self.model)
        model.values = dict(model.values)
        return model, bytes(self.uc.mem_read(RAM, self.ram_size))

    def restore(self, state: tuple[Model, bytes]) -> None:
        self.model = copy.copy(state[0])
        self.model.values = dict(state[0].values)
        self.uc.mem_write(RAM, state[1])

    def _read(self, uc: Any, offset: int, size: int, page: int) -> int:
        try:
            return self.model.read(page + offset) if not self.violation else 0
        except Violation as error:
            return self._stop(uc, error)

    def _write(self, uc: Any, offset: int, size: int, value: int, page: int) -> None:
        try:
            if not self.violation:
                self.model.write(page + offset, value)
        except Violation as error:
            self._stop(uc, error)

    def _stop(self, uc: Any, error: Violation) -> int:
        self.violation = error
        uc.emu_stop()
        return 0


def exercise(machine: Machine) -> int:
    """From reset, then every ordered pair of configurations, with the quick mux and Stop mode in each of them.

    Returns the number of pairs; those of a configuration with itself are among them.
    """
    machine.call("eb_clock_init")
    machine.expect(max(machine.plan.configs, key=lambda c: c.sysclk_hz).name)
    pairs = 0
    for start in machine.plan.configs:
        machine.switch(start.name)
        for function, hz in (("eb_clock_lfo", machine.plan.rest[1]), ("eb_clock_hfo", start.sysclk_hz)):
            machine.call(function)
            machine.call("eb_clock_hz")
            if machine.returned() != hz:
                raise Violation(f"{start.name}: {machine.returned()} Hz after {function}")
        machine.model.stop_mode()
        machine.call("eb_clock_wake")
        machine.expect(start.name)
        state = machine.save()
        for end in machine.plan.configs:
            machine.restore(state)
            if pairs % 2:
                machine.call("eb_clock_lfo")
            machine.switch(end.name)
            pairs += 1
    return pairs
