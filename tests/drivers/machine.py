"""A bench for generated drivers: compile, link, run on an emulated core against a model of the registers.

The model keeps a value per field. A field may have a sequence of values for its reads, as hardware has that changes by
itself, and what a write does follows the register description (write one to clear and so on). Everything that crosses
the bus is recorded.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from unicorn import UC_HOOK_CODE, Uc
from unicorn.arm_const import UC_ARM_REG_LR, UC_ARM_REG_R0, UC_ARM_REG_R1, UC_ARM_REG_R2, UC_ARM_REG_R3, UC_ARM_REG_SP
from unicorn.riscv_const import (
    UC_RISCV_REG_A0,
    UC_RISCV_REG_A1,
    UC_RISCV_REG_A2,
    UC_RISCV_REG_A3,
    UC_RISCV_REG_GP,
    UC_RISCV_REG_RA,
    UC_RISCV_REG_SP,
)

from edgebuild.base.request import DriverRequest
from edgebuild.driver.emit.products import register_map
from edgebuild.driver.pipeline import Driver, compile_driver
from edgebuild.driver.registers.regmap import Block, FieldInfo, RegisterInfo
from tests.emulator import cortex_m, riscv32

CODE, RAM, STOP = 0x1000, 0x0080_0000, 0x0090_0000
RISCV = ("riscv64-unknown-elf-gcc", "-mabi=ilp32", "-msmall-data-limit=0")
CORTEX_M3 = "cortex-m3"
ARM = ("arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb")
WARNINGS = (
    "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-Wno-unused-value", "-Wno-unused-variable",
    "-Wno-unused-parameter", "-Wno-int-in-bool-context", "-Wno-tautological-compare", "-Wno-bool-compare",
    "-Wno-sequence-point", "-Wno-type-limits", "-Wno-sign-compare", "-Wno-implicit-fallthrough",
)  # fmt: skip


# gcc 12 makes a volatile store in a loop once more than the source where it moves stores to members out of the loop
# (three turns of `p` and `q` of an object swapped, and a store through one of them): none of it is generated code.
CPP = ["-std=gnu++17", "-fno-exceptions", "-fno-rtti", "-Wno-volatile", "-fno-move-loop-stores"]


class BusError(Exception):
    """An access that the bus does not take."""


@dataclass
class Access:
    kind: str  # "r", "w"
    offset: int
    size: int
    fields: dict[str, int]  # the fields in the accessed bytes, and their values
    device: str
    value: int = 0  # what was on the bus

    def __str__(self) -> str:
        if self.kind == "r":
            return "r " + " ".join(self.fields)
        return "w " + " ".join(f"{name}={value:x}" for name, value in self.fields.items())


@dataclass
class Model:
    """The registers of one device."""

    block: Block
    word_only: bool
    values: dict[str, int] = field(default_factory=dict)
    sequences: dict[str, list[int]] = field(default_factory=dict)
    trace: list[Access] = field(default_factory=list)
    observer: Callable[[Access], None] | None = None  # told of each access after it was made
    span: int = 0x1000  # bytes of its addresses

    def read(self, offset: int, size: int) -> int:
        self._check(offset, size)
        result, seen = 0, {}
        for r, f, shift in self._fields(offset, size):
            name = _name(r, f)
            if "r" not in f.access:
                continue
            if self.sequences.get(name):
                self.values[name] = self.sequences[name].pop(0)
            value = self.values.get(name, (r.reset >> f.lsb) & _ones(f.width))
            seen[name] = value
            result |= (value << f.lsb) >> shift if shift >= 0 else value << (f.lsb - shift)
            if f.read_action == "clear":
                self.values[name] = 0
        result &= _ones(8 * size)
        self._note(Access("r", offset, size, seen, self.block.name, result))
        return result

    def write(self, offset: int, size: int, value: int) -> None:
        self._check(offset, size)
        seen = {}
        for r, f, shift in self._fields(offset, size):
            name = _name(r, f)
            if "w" not in f.access:
                continue
            old = self.values.get(name, (r.reset >> f.lsb) & _ones(f.width))
            span = _ones(8 * size) << shift
            whole = (((old << f.lsb) & ~span) | ((value << shift) & span)) >> f.lsb & _ones(f.width)
            seen[name] = whole
            self.values[name] = _stored(f.modified, old, whole)
        self._note(Access("w", offset, size, seen, self.block.name, value))

    def _note(self, access: Access) -> None:
        self.trace.append(access)
        if self.observer:
            self.observer(access)

    def _check(self, offset: int, size: int) -> None:
        if offset % size or (self.word_only and size != 4):
            raise BusError(f"{size} bytes at {offset:#x}")

    def _fields(self, offset: int, size: int) -> list[tuple[RegisterInfo, FieldInfo, int]]:
        """The fields in these bytes; the shift is that of the bytes in the register."""
        fields = []
        for r in self.block.registers:
            for f in r.fields:
                first = r.offset * 8 + f.lsb
                if first < (offset + size) * 8 and offset * 8 < first + f.width:
                    fields.append((r, f, (offset - r.offset) * 8))
        return fields


def _name(r: RegisterInfo, f: FieldInfo) -> str:
    return "_".join((*r.scope, f.name))


def _ones(width: int) -> int:
    return (1 << width) - 1


def _stored(modified: str, old: int, new: int) -> int:
    match modified:
        case "oneToClear":
            return old & ~new
        case "oneToToggle":
            return old ^ new
        case "zeroToClear":
            return old & new
        case "clear":
            return 0
    return new


@dataclass
class Machine:
    """A program and its devices. `call` runs a function and returns what it returns."""

    elf: Path
    models: dict[str, Model]
    arm: bool = False
    instructions: int = 0
    before: Callable[[int], None] | None = None  # before each instruction, with its number

    def __post_init__(self) -> None:
        self.uc = cortex_m() if self.arm else riscv32()
        self.uc.mem_map(0, 0x200000)
        self.uc.mem_map(RAM, 0x100000)
        self.uc.mem_map(STOP, 0x1000)
        with self.elf.open("rb") as file:
            elf = ELFFile(file)
            for segment in elf.iter_segments():
                if segment["p_type"] == "PT_LOAD":
                    self.uc.mem_write(segment["p_paddr"], segment.data())
            table = elf.get_section_by_name(".symtab")
            self.symbols = {s.name: (s["st_value"], s["st_size"]) for s in table.iter_symbols()}
        if "__global_pointer$" in self.symbols:
            self.uc.reg_write(UC_RISCV_REG_GP, self.symbols["__global_pointer$"][0])
        self.error: Exception | None = None
        for model in self.models.values():
            self.uc.mmio_map(model.block.base & ~0xFFF, model.span, self._reader, model, self._writer, model)
        self.uc.hook_add(UC_HOOK_CODE, self._step)

    def _reader(self, uc: Uc, offset: int, size: int, model: Model) -> int:
        try:
            return model.read(offset - (model.block.base & 0xFFF), size)
        except BusError as error:
            self.error = error
            uc.emu_stop()
            return 0

    def _writer(self, uc: Uc, offset: int, size: int, value: int, model: Model) -> None:
        try:
            model.write(offset - (model.block.base & 0xFFF), size, value)
        except BusError as error:
            self.error = error
            uc.emu_stop()

    def _step(self, uc: Uc, address: int, size: int, data: Any) -> None:
        if self.before:
            self.before(self.instructions)
        self.instructions += 1

    def call(self, function: str, *arguments: int, limit: int = 100_000, until: int = STOP) -> int:
        """Run until the function returns, or to the address `until`."""
        r = (
            (UC_ARM_REG_R0, UC_ARM_REG_R1, UC_ARM_REG_R2, UC_ARM_REG_R3)
            if self.arm
            else (UC_RISCV_REG_A0, UC_RISCV_REG_A1, UC_RISCV_REG_A2, UC_RISCV_REG_A3)
        )
        for register, value in zip(r, arguments, strict=False):
            self.uc.reg_write(register, value & 0xFFFFFFFF)
        self.uc.reg_write(UC_ARM_REG_SP if self.arm else UC_RISCV_REG_SP, RAM + 0x80000)
        self.uc.reg_write(UC_ARM_REG_LR if self.arm else UC_RISCV_REG_RA, STOP | self.arm)
        start = self.symbols[function][0]
        self.uc.emu_start(start | self.arm, until, count=limit)
        if self.error:
            raise self.error
        result = int(self.uc.reg_read(r[0]))
        return result - (1 << 32) if result >> 31 else result

    @property
    def trace(self) -> list[str]:
        return [str(a) for m in self.models.values() for a in m.trace]


@dataclass
class Bench:
    """One driver under test."""

    driver: Driver
    files: dict[str, bytes]
    machine: Machine

    def call(self, function: str, *arguments: int) -> int:
        return self.machine.call(function, *arguments)

    @property
    def model(self) -> Model:
        return next(iter(self.machine.models.values()))


def build(
    folder: Path,
    source: str,
    *,
    target: str = "pulpino",
    layout: str = "optimize",
    extra: str = "",
    headers: dict[str, str] | None = None,
    isa: str = "rv32im",
    optimise: str = "-Os",
    cpp: bool = False,
) -> Bench:
    """Compile a driver in the dialect, and C around it; `isa` is rv32im, rv32imc or cortex-m3."""
    for name, text in (headers or {}).items():
        (folder / name).write_text(text)
    suffix = ".cpp" if cpp else ".c"
    file = folder / f"case.bf{suffix}"
    file.write_text(source)
    artifacts, driver = compile_driver(DriverRequest((file,), "case", target, layout))
    for a in artifacts:
        (folder / a.name).write_bytes(a.data)
    (folder / "extra.c").write_text(extra)
    elf = link(folder, [f"case{suffix}", "extra.c"], isa=isa, optimise=optimise)
    return Bench(driver, {a.name: a.data for a in artifacts}, Machine(elf, models(driver), isa == CORTEX_M3))


def models(driver: Driver) -> dict[str, Model]:
    word_only = not driver.layout.bus.bytes
    described = fixed_map(driver)
    blocks = {b.name: b for b in register_map("m", driver).blocks}
    return {name: Model(described.get(name, block), word_only) for name, block in blocks.items()}


def fixed_map(driver: Driver) -> dict[str, Block]:
    """For fixed layouts the model is made from the silicon's description, not from ours."""
    kind, _, file = driver.request.layout.partition(":")
    if kind != "fixed":
        return {}
    from edgebuild.driver.registers.fixed import read_map

    blocks = {b.base: b for b in read_map(Path(file)).blocks}
    return {d.name: blocks[d.address] for d in driver.dialect.devices.values() if d.address in blocks}


def link(
    folder: Path,
    sources: Sequence[str],
    *,
    isa: str = "rv32im",
    optimise: str = "-Os",
    flags: Sequence[str] = (),
    output: str = "case.elf",
    entry: str = "0",
) -> Path:
    base = [
        *(ARM if isa == CORTEX_M3 else (*RISCV, f"-march={isa}")),
        optimise,
        "-g",
        "-ffreestanding",
        *WARNINGS,
        *flags,
        "-ffunction-sections",
    ]
    objects = []
    for source in sources:
        language = CPP if source.endswith(".cpp") else ["-std=gnu11"]
        objects.append(f"{Path(source).stem}.o")
        _run(folder, [*base, *language, "-c", "-o", objects[-1], source])
    command = [
        *base,
        "-nostdlib",
        f"-Wl,-Ttext={CODE:#x}",
        f"-Wl,-e,{entry}",
        f"-Wl,-Tdata={RAM:#x}",
        "-o",
        output,
        *objects,
        "-lgcc",
    ]
    _run(folder, command)
    return folder / output


def _run(folder: Path, command: Sequence[str]) -> None:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
