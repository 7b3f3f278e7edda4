"""A whole STM32 to run a program on: core, clocks by the register model, one cycle counter, pins, semihosting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import unicorn
from elftools.elf.elffile import ELFFile
from unicorn import arm_const as arm

from edgebuild.base.target import Target
from edgebuild.clock.configs import ClockPlan
from tests.clocks.register_model import Violation
from tests.clocks.vendor_model import model_of
from tests.emulator import cortex_m7

CYCCNT = 0x1004  # of the private peripheral bus
PPB, PPB_SIZE = 0xE0000000, 0x100000
OPEN, CLOSE, WRITE, EXIT = 0x01, 0x02, 0x05, 0x20


class Chip:
    """Code takes `cycles_per_halfword` cycles for each two bytes of it, in every memory and at every clock."""

    def __init__(self, target: Target, plan: ClockPlan, elf: Path, cycles_per_halfword: float) -> None:
        assert plan.tree.registers and plan.tree.registers.gpio
        self.model = model_of(plan, 30.0)
        self.gpio = plan.tree.registers.gpio
        self.pace, self.cycles, self.counting = cycles_per_halfword, 0.0, False
        self.written, self.pins, self.ended = b"", list[tuple[int, int]](), False
        self.violation: Exception | None = None
        self.uc = cortex_m7()
        for m in target.memories:
            self.uc.mem_map(m.origin, m.size)
        pages = {r.address & ~0xFFF for r in plan.tree.registers.map.values()}
        for page in sorted({*pages, self.gpio.base & ~0xFFF}):
            self.uc.mmio_map(page, 0x1000, self._read, page, self._write, page)
        self.uc.mmio_map(PPB, PPB_SIZE, self._read, PPB, self._write, PPB)
        with elf.open("rb") as stream:
            file = ELFFile(stream)
            for segment in file.iter_segments("PT_LOAD"):
                self.uc.mem_write(segment["p_paddr"], segment.data())
            symbols: Any = file.get_section_by_name(".symtab")
            self.symbols = {s.name: s["st_value"] for s in symbols.iter_symbols()}
        self.uc.hook_add(unicorn.UC_HOOK_BLOCK, self._block)
        self.uc.hook_add(unicorn.UC_HOOK_INTR, self._breakpoint)

    def run(self) -> None:
        """From reset to the program's end. Raises what the register model raised."""
        self.uc.reg_write(arm.UC_ARM_REG_SP, self.symbols["__stack_top"])
        try:
            self.uc.emu_start(self.symbols["Reset_Handler"] | 1, 0xFFFFFFFE)
        except unicorn.UcError as error:
            if not self.ended:
                raise Violation(f"at {self.uc.reg_read(arm.UC_ARM_REG_PC):#x}: {error}") from self.violation
        if self.violation:
            raise self.violation
        assert self.ended

    def _block(self, uc: Any, address: int, size: int, data: Any) -> None:
        self.cycles += size / 2 * self.pace

    def _breakpoint(self, uc: Any, number: int, data: Any) -> None:
        """Semihosting: files are all one, which is written only."""
        operation, block = uc.reg_read(arm.UC_ARM_REG_R0), uc.reg_read(arm.UC_ARM_REG_R1)
        words = [int.from_bytes(uc.mem_read(block + 4 * i, 4), "little") for i in range(3)] if operation != EXIT else []
        if operation == WRITE:
            self.written += bytes(uc.mem_read(words[1], words[2]))
        if operation == EXIT:
            self.ended = True
            uc.emu_stop()
            return
        uc.reg_write(arm.UC_ARM_REG_R0, 1 if operation == OPEN else 0)
        uc.reg_write(arm.UC_ARM_REG_PC, (uc.reg_read(arm.UC_ARM_REG_PC) + 2) | 1)

    def _read(self, uc: Any, offset: int, size: int, page: int) -> int:
        if page == PPB:
            return int(self.cycles) & 0xFFFFFFFF if offset == CYCCNT else 0
        if self._is_pin(page + offset):
            return 0
        try:
            return self.model.read(page + offset)
        except Violation as error:
            return self._stop(uc, error)

    def _write(self, uc: Any, offset: int, size: int, value: int, page: int) -> None:
        if page == PPB:
            return
        if self._is_pin(page + offset):
            self.pins.append((page + offset, value))
            return
        try:
            self.model.write(page + offset, value)
        except Violation as error:
            self._stop(uc, error)

    def _is_pin(self, address: int) -> bool:
        return (
            address == self.gpio.enable or self.gpio.base <= address < self.gpio.base + 16 * self.gpio.stride - 0x3000
        )

    def _stop(self, uc: Any, error: Violation) -> int:
        self.violation = error
        uc.emu_stop()
        return 0
