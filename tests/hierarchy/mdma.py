"""The MDMA of the STM32H7 as a register model that raises on whatever the manual forbids, beside a Cortex-M7.

Written from RM0433, chapter 14. Nothing is copied at once: each access to a register moves one buffer of one channel.
So a program which does not wait reads what was there before.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import unicorn
from elftools.elf.elffile import ELFFile
from unicorn import arm_const as arm

from tests.emulator import cortex_m7

MDMA, RCC, SYSTEM = 0x52000000, 0x58024000, 0xE000E000
AHB3ENR, DCCMVAC, SYSTEM_REGISTERS = 0x5802_44D4, 0xE000EF68, (0xE000ED08, 0xE000ED88, 0xE000EF5C)
ISR, IFCR, ESR, CR, TCR, BNDTR, SAR, DAR, BRUR, LAR, TBR, MAR, MDR = (
    0x00, 0x04, 0x08, 0x0C, 0x10, 0x14, 0x18, 0x1C, 0x20, 0x24, 0x28, 0x30, 0x34
)  # fmt: skip
LOADED = (TCR, BNDTR, SAR, DAR, BRUR, LAR, TBR, None, MAR, MDR)  # of a list's entry; the eighth word is reserved
RESERVED = {CR: 0xFFFE8F00, TCR: 0, BNDTR: 1 << 17, LAR: 7, TBR: 0xFFFCFFC0, SAR: 0, DAR: 0, BRUR: 0, MAR: 0, MDR: 0}
EN, SWRQ, CTCIF, TEIF, BTIF, BRTIF, TCIF = 1, 1 << 16, 2, 1, 8, 4, 16
TCM = ((0, 0x10000), (0x20000000, 0x20000))
AXI = ((0x08000000, 0x200000), (0x24000000, 0x80000))
RAM = (TCM[1], AXI[1])
STACK = 0x2001_F000
BACK = 0x081FF000
INSTRUCTIONS = 400_000_000


class Violation(Exception):
    """The program did what the chip does not allow."""


class Channel:
    """Registers by offset. `start`: BNDT as it was programmed, for blocks that repeat."""

    def __init__(self) -> None:
        self.values = dict.fromkeys((ISR, ESR, CR, *[r for r in LOADED if r is not None]), 0)
        self.start = 0

    def field(self, register: int, low: int, width: int) -> int:
        return self.values[register] >> low & (1 << width) - 1


def inside(address: int, size: int, regions: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= address and address + size <= first + length for first, length in regions)


class Mdma:
    """The unit and its clock. `memory` reads and writes what its ports reach."""

    def __init__(self, uc: Any, seed: int) -> None:
        self.uc, self.random = uc, random.Random(seed)
        self.channels = [Channel() for _ in range(16)]
        self.clock = 0
        self.cleaned: set[int] = set()  # lines that the core cleaned
        self.blocks = self.bytes = self.lists = 0

    # ---- what the program sees

    def read(self, address: int, size: int) -> int:
        if address == AHB3ENR:
            return self.clock
        if address in SYSTEM_REGISTERS:
            return 0
        channel, register = self.find(address, size)
        self.step()
        return channel.values.get(register, 0)

    def write(self, address: int, size: int, value: int) -> None:
        if address == AHB3ENR:
            self.clock = value
            return
        if address == DCCMVAC:
            self.cleaned.add(value & ~31)
            return
        if address in SYSTEM_REGISTERS:
            return
        channel, register = self.find(address, size)
        self.step()
        if register == IFCR:
            channel.values[ISR] &= ~value
        elif register in (ISR, ESR):
            raise Violation("a status register is written")
        elif value & RESERVED[register]:
            raise Violation(f"reserved bits of register {register:#x}: {value & RESERVED[register]:#x}")
        elif register == CR:
            self.control(channel, value)
        elif channel.values[CR] & EN:
            raise Violation(f"register {register:#x} is written while its channel is on")
        else:
            channel.values[register] = value

    def find(self, address: int, size: int) -> tuple[Channel, int]:
        if not self.clock & 1:
            raise Violation("the MDMA has no clock")
        number, register = divmod(address - MDMA - 0x40, 0x40)
        registers = (ISR, IFCR, ESR, CR, *[r for r in LOADED if r is not None])
        if not 0 <= number < 16 or register not in registers or size != 4:
            raise Violation(f"no register at {address:#x}")
        return self.channels[number], register

    def control(self, channel: Channel, value: int) -> None:
        was_on = channel.values[CR] & EN
        if value & EN and not was_on:
            if channel.values[ISR] & (CTCIF | TEIF):
                raise Violation("a channel is switched on with the flags of its last transfer")
            self.check(channel)
        if was_on and not value & EN:
            raise Violation("a channel is switched off under way")
        channel.values[CR] = value & ~SWRQ
        if value & SWRQ:
            if not was_on:
                raise Violation("a request to a channel that is off")
            if not channel.values[TCR] >> 30 & 1:
                raise Violation("a software request to a channel that listens to hardware")
            channel.values[ISR] |= 1 << 16

    # ---- rules of 14.5.6 to 14.5.12

    def check(self, channel: Channel) -> None:
        f, values = channel.field, channel.values
        channel.start = size = f(BNDTR, 0, 17)
        repeats, length = f(BNDTR, 20, 12), f(TCR, 18, 7) + 1
        if not 0 < size <= 65536:
            raise Violation(f"a block of {size} bytes")
        if f(TCR, 28, 2) != 3 and (values[LAR] or repeats):
            raise Violation("a request for less than the whole copy")
        sides = (("source", SAR, 0, 4, 8, 12, 16, 0), ("destination", DAR, 2, 6, 10, 15, 17, 16))
        for name, register, inc, data, offset, beats, bus, gap in sides:
            width, tcm = 1 << f(TCR, data, 2), f(TBR, bus, 1)
            burst, address = 1 << f(TCR, beats, 3), values[register]
            if f(TCR, inc, 2) != 2 or f(TCR, offset, 2) != f(TCR, data, 2):
                raise Violation(f"the {name} does not advance by its data size")
            if width == 8 and tcm:
                raise Violation(f"double words on the {name}'s TCM port")
            if address % width or size % width or length % width:
                raise Violation(f"the {name} at {address:#x} and {size} bytes are no multiples of {width}")
            if burst > 1 and burst * width >= length:
                raise Violation(f"a burst of {burst * width} bytes in buffers of {length}")
            if repeats and f(BRUR, gap, 16) % width:
                raise Violation(f"the {name}'s update value is no multiple of {width}")
            if not inside(address, 1, TCM if tcm else AXI):
                raise Violation(f"the {name} {address:#x} is not behind that port")
        if inside(values[DAR], 1, (AXI[0],)):
            raise Violation("a copy into flash")
        if values[LAR] and not inside(values[LAR], 40, (AXI[1],)):
            raise Violation(f"a list at {values[LAR]:#x}, which is not in AXI space")

    # ---- what it does

    def step(self) -> None:
        """One buffer of any channel with a request."""
        waiting = [c for c in self.channels if c.values[ISR] >> 16 & 1]
        if waiting:
            self.buffer(self.random.choice(waiting))

    def buffer(self, channel: Channel) -> None:
        values = channel.values
        size = min(channel.field(TCR, 18, 7) + 1, channel.field(BNDTR, 0, 17))
        for register, bus in ((SAR, 16), (DAR, 17)):
            if not inside(values[register], size, TCM if channel.field(TBR, bus, 1) else AXI):
                values[CR] &= ~EN
                values[ISR] = values[ISR] & ~(1 << 16) | TEIF
                return
        self.uc.mem_write(values[DAR], bytes(self.uc.mem_read(values[SAR], size)))
        values[SAR] += size
        values[DAR] += size
        values[BNDTR] -= size
        values[ISR] |= TCIF
        self.bytes += size
        if not channel.field(BNDTR, 0, 17):
            self.block(channel)

    def block(self, channel: Channel) -> None:
        values, f = channel.values, channel.field
        values[ISR] |= BTIF
        self.blocks += 1
        if f(BNDTR, 20, 12):
            values[SAR] += f(BRUR, 0, 16) * (-1 if f(BNDTR, 18, 1) else 1)
            values[DAR] += f(BRUR, 16, 16) * (-1 if f(BNDTR, 19, 1) else 1)
            values[BNDTR] = values[BNDTR] - (1 << 20) | channel.start
        elif values[LAR]:
            self.load(channel)
        else:
            values[CR] &= ~EN
            values[ISR] = values[ISR] & ~(1 << 16) | CTCIF | BRTIF

    def load(self, channel: Channel) -> None:
        at, mode = channel.values[LAR], channel.values[TCR] >> 28 & 7
        if not {at & ~31, (at + 39) & ~31} <= self.cleaned:
            raise Violation(f"the list at {at:#x} may still be in the cache")
        self.lists += 1
        for register, value in zip(LOADED, struct.unpack("<10I", self.uc.mem_read(at, 40)), strict=True):
            if value & RESERVED.get(register, 0xFFFFFFFF):  # type: ignore[arg-type]
                raise Violation("reserved bits in a list")
            if register is not None:
                channel.values[register] = value
        if channel.values[TCR] >> 28 & 7 != mode:
            raise Violation("a list changes its trigger mode")
        self.check(channel)


class Board:
    """A core, its memories and the MDMA. Runs functions of an ELF file."""

    def __init__(self, elf: Path, seed: int = 0) -> None:
        self.uc = cortex_m7()
        self.violation: Exception | None = None
        for first, size in (AXI[0], TCM[1], AXI[1]):
            self.uc.mem_map(first, size)
        self.mdma = Mdma(self.uc, seed)
        for page in (MDMA, RCC, SYSTEM):
            self.uc.mmio_map(page, 0x1000, self._read, page, self._write, page)
        noise = random.Random(seed)
        for first, size in RAM:  # nobody cleared it
            self.uc.mem_write(first, noise.randbytes(size))
        with elf.open("rb") as stream:
            file = ELFFile(stream)
            for segment in file.iter_segments("PT_LOAD"):
                self.uc.mem_write(segment["p_paddr"], segment.data())
            symbols: Any = file.get_section_by_name(".symtab")
            self.symbols = {s.name: s["st_value"] for s in symbols.iter_symbols()}
        bss = self.symbols["__bss_start"]
        self.uc.mem_write(bss, bytes(self.symbols["__bss_end"] - bss))

    def call(self, function: str, *arguments: int) -> int:
        registers = (arm.UC_ARM_REG_R0, arm.UC_ARM_REG_R1, arm.UC_ARM_REG_R2)
        for register, value in zip(registers, arguments, strict=False):
            self.uc.reg_write(register, value)
        self.uc.reg_write(arm.UC_ARM_REG_SP, STACK)
        self.uc.reg_write(arm.UC_ARM_REG_LR, BACK | 1)
        try:
            self.uc.emu_start(self.symbols[function] | 1, BACK, count=INSTRUCTIONS)
        except unicorn.UcError as error:
            raise Violation(f"{function}: {error}") from self.violation
        if self.violation:
            raise self.violation
        if self.uc.reg_read(arm.UC_ARM_REG_PC) & ~1 != BACK:
            raise Violation(f"{function} does not end")
        return int(self.uc.reg_read(arm.UC_ARM_REG_R0))

    def _read(self, uc: Any, offset: int, size: int, page: int) -> int:
        return self._access(lambda: self.mdma.read(page + offset, size))

    def _write(self, uc: Any, offset: int, size: int, value: int, page: int) -> None:
        self._access(lambda: self.mdma.write(page + offset, size, value) or 0)

    def _access(self, action: Any) -> int:
        try:
            return 0 if self.violation else int(action())
        except Violation as error:
            self.violation = error
            self.uc.emu_stop()
            return 0
