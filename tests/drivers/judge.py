"""A judge of generated drivers that knows no proof: it runs two programs on one random device and compares the traces.

The device answers from the register description alone. A field that may change by itself has a new random value at each
read, and so have bits of silicon that are of no field. Any other field has what was written last. A trace has
each bus access with address, size and value, each call of a function from outside with its arguments, and at the end
the result and all variables.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from random import Random
from typing import Any

from clang.cindex import CursorKind, Type, TypeKind
from elftools.elf.elffile import ELFFile
from unicorn import UC_HOOK_CODE, Uc, UcError
from unicorn.riscv_const import UC_RISCV_REG_A0, UC_RISCV_REG_A1, UC_RISCV_REG_PC, UC_RISCV_REG_RA, UC_RISCV_REG_SP

from edgebuild.driver.layout.registers import Register, Slot
from edgebuild.driver.merge.merging import Driver
from edgebuild.driver.source.dialect import group_of
from tests.emulator import riscv32

CODE, RAM, STOP, OUTSIDE = 0x1000, 0x0080_0000, 0x0090_0000, 0x00A0_0000
VARIABLES, SCRATCH, STACK = RAM + 0x60000, RAM + 0xA0000, RAM + 0x90000
DEVICES = ((0x1000_0000, 0x1000_0000), (0x4000_0000, 0x2000_0000))
RETURN = b"\x67\x80\x00\x00"
INSTRUCTIONS = 8_000
GCC = (
    "riscv64-unknown-elf-gcc", "-march=rv32ima", "-mabi=ilp32", "-msmall-data-limit=0", "-Os", "-ffreestanding", "-w",
    "-std=gnu11", "-nostdlib", f"-Wl,-Ttext={CODE:#x}", f"-Wl,-Tdata={RAM:#x}", "-Wl,-e,0",
)  # fmt: skip


class NotJudged(Exception):
    """A function or a run of which no trace says anything."""


@dataclass
class Trace:
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    ended: bool = False


@dataclass
class Bits:
    """Of one byte of a device: bits that a store is compared in, that may change by themselves, and that are fields."""

    stored: int = 0
    volatile: int = 0
    fields: int = 0


@dataclass
class Judge:
    driver: Driver
    folder: Path
    bytes: dict[int, Bits] = field(default_factory=dict)
    groups: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.silicon = self.driver.layout.method == "fixed"
        self.moved = {f for d in self.driver.dialect.groups.values() for x in d.fields for f in x.rse | x.wse}
        for d in self.driver.dialect.devices.values():
            self._walk(d.group, d.address)
        top = self.driver.source.unit.top
        self.functions = {c.spelling: c for c in top if c.kind == CursorKind.FUNCTION_DECL and c.is_definition()}
        declared = {c.spelling: c for c in top if c.kind == CursorKind.FUNCTION_DECL}
        self.outside = sorted(declared.keys() - self.functions.keys())
        self.declared = declared
        self.variables = sorted(
            c.spelling for c in top if c.kind == CursorKind.VAR_DECL and c.storage_class.name == "EXTERN"
        )

    def _walk(self, group: str, base: int) -> None:
        self.groups.setdefault(group, []).append(base)
        layout = self.driver.layout.groups[group]
        for r in layout.registers:
            for i in range(r.count):
                self._note(group, r, base + r.offset + i * r.stride)
        for s in layout.subs:
            for i in range(prod(s.dims)):
                self._walk(s.group, base + s.offset + i * s.stride)

    def _note(self, group: str, r: Register, at: int) -> None:
        size = max(r.bits, 8) // 8
        stored, volatile, fields = (1 << 8 * size) - 1, 0, 0  # bits of no field are compared in stores, too
        for s in r.slots:
            stored = stored | s.cover if "w" in s.access else stored & ~s.cover
            fields |= s.cover
            volatile |= s.cover if self._changes(group, s) else 0
        for i in range(size):
            bits = self.bytes.setdefault(at + i, Bits())
            bits.stored |= stored >> 8 * i & 255
            bits.volatile |= volatile >> 8 * i & 255
            bits.fields |= fields >> 8 * i & 255

    def _changes(self, group: str, s: Slot) -> bool:
        info = self.driver.dialect.at(group, s.name, s.field) if s.field else None
        alone = s.volatile or s.sensitive or bool(s.modified) or "w" not in s.access or "r" not in s.access
        return alone or (info is not None and (info.volatile or s.field in self.moved or bool(info.rse)))

    # ---- programs

    def compiled(self, files: dict[str, bytes], name: str) -> Path | None:
        """The program of generated files; None if the compiler refuses it."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        for file, data in files.items():
            (folder / file).write_bytes(data)
        symbols = [f"-Wl,--defsym={f}={OUTSIDE + 16 * i:#x}" for i, f in enumerate(self.outside)]
        symbols += [f"-Wl,--defsym={v}={VARIABLES + 256 * i:#x}" for i, v in enumerate(self.variables)]
        sources = [f for f in files if f.endswith(".c")]
        includes = [f"-I{p.parent.resolve()}" for p in self.driver.request.sources[:1]]
        flags = [*includes, *self.driver.request.flags, *symbols]
        command = [*GCC, *sources, *flags, "-o", "p.elf", "-lgcc"]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False, timeout=60)
        return folder / "p.elf" if done.returncode == 0 else None

    def judged(self) -> list[str]:
        """Functions that can be called from outside with values that we can make."""
        names = []
        for name, c in self.functions.items():
            own = self.driver.source.unit.own(c) and c.storage_class.name != "STATIC"
            if own and name in self.driver.cdfg.functions and self._arguments(name, Random(0)) is not None:
                names.append(name)
        return names

    def _arguments(self, name: str, random: Random) -> list[int] | None:
        """Words of the arguments; None where a type is not known."""
        words: list[int] = []
        for i, a in enumerate(self.functions[name].get_arguments()):
            type_ = a.type.get_canonical()
            group, pointer = group_of(a.type, self.driver.dialect)
            if group and pointer and self.groups.get(group):
                words.append(random.choice(self.groups[group]))
            elif type_.kind == TypeKind.POINTER:
                function = type_.get_pointee().kind in (TypeKind.FUNCTIONPROTO, TypeKind.FUNCTIONNOPROTO)
                words.append(OUTSIDE + 0x800 if function else SCRATCH + 0x400 * i)
            elif type_.kind == TypeKind.RECORD or not 0 < type_.get_size() <= 8:
                return None
            else:
                value = random.choice([0, 1, 2, 3, 5, random.randrange(16), 255, random.getrandbits(32)])
                words += [value, 0] if type_.get_size() == 8 else [value]
        return words if len(words) <= 8 else None

    # ---- traces

    def trace(self, elf: Path, function: str, seed: int, inside: bool = False) -> Trace:
        """One run. Raises NotJudged if `inside`, and the program accesses what is no register."""
        random = Random(f"{function} {seed}")
        arguments = self._arguments(function, random)
        assert arguments is not None
        return _Run(self, elf, random, inside).call(function, arguments)

    def difference(self, one: Path, other: Path, function: str, seeds: range) -> str:
        """How a run tells two programs apart; "" if none does."""
        for seed in seeds:
            try:
                a = self.trace(one, function, seed, inside=True)
            except NotJudged:
                continue
            b = self.trace(other, function, seed)
            n = next((i for i, (x, y) in enumerate(zip(a.steps, b.steps, strict=False)) if x != y), None)
            if n is not None:
                return f"seed {seed}: {a.steps[n]} and {b.steps[n]}"
            if (a.ended or b.ended) and len(a.steps) != len(b.steps):
                return f"seed {seed}: {len(a.steps)} and {len(b.steps)} steps"
        return ""


class _Run:
    def __init__(self, judge: Judge, elf: Path, random: Random, inside: bool) -> None:
        self.judge, self.random, self.inside, self.done = judge, random, inside, Trace()
        self.memory: dict[int, int] = {}
        self.problem: Exception | None = None
        uc = self.uc = riscv32()
        for start, size in ((0, 0x200000), (RAM, 0x100000), (STOP, 0x1000), (OUTSIDE, 0x1000)):
            uc.mem_map(start, size)
        for start, size in DEVICES:
            uc.mmio_map(start, size, self._read, start, self._write, start)
        uc.mem_write(OUTSIDE, RETURN * 1024)
        with elf.open("rb") as file:
            program = ELFFile(file)
            for segment in program.iter_segments():
                if segment["p_type"] == "PT_LOAD":
                    uc.mem_write(segment["p_paddr"], segment.data())
            table = list(program.get_section_by_name(".symtab").iter_symbols())
        self.symbols = {s.name: s["st_value"] for s in table}
        objects = (s for s in table if s["st_info"]["type"] == "STT_OBJECT" and RAM <= s["st_value"] < VARIABLES)
        self.objects = sorted((s.name.partition(".")[0], s["st_value"], s["st_size"]) for s in objects)
        drawn = random.random()
        if drawn < 0.6:  # variables hold anything, as after other calls
            for name, at, size in self.objects:
                of_name = Random(f"{name} {drawn}")
                uc.mem_write(at, bytes(of_name.randrange(5) for _ in range(size)))
        uc.mem_write(SCRATCH, bytes(random.randrange(4) for _ in range(0x1000)))
        uc.hook_add(UC_HOOK_CODE, self._called, None, OUTSIDE, OUTSIDE + 0x1000)

    def _read(self, uc: Uc, offset: int, size: int, start: int) -> int:
        at, value = start + offset, 0
        drawn = self.random.getrandbits(64)
        self._step(("r", at, size), at)
        for i in range(size):
            bits, new = self.judge.bytes.get(at + i, Bits(0, 255, 255)), drawn >> 8 * i & 255
            kept = self.memory.setdefault(at + i, new)
            rest = ~bits.fields & 255 if self.judge.silicon else 0
            value |= (kept & bits.fields & ~bits.volatile | new & (bits.volatile | rest)) << 8 * i
        return value

    def _write(self, uc: Uc, offset: int, size: int, value: int, start: int) -> None:
        at, seen = start + offset, 0
        for i in range(size):
            bits = self.judge.bytes.get(at + i, Bits(255, 255))
            seen |= (value >> 8 * i & bits.stored) << 8 * i
            self.memory[at + i] = value >> 8 * i & 255
        self._step(("w", at, size, seen), at)

    def _step(self, step: tuple[Any, ...], at: int = 0) -> None:
        self.done.steps.append(step)
        if self.inside and at and at not in self.judge.bytes:
            self.problem = NotJudged(f"{at:#x}")
            self.uc.emu_stop()

    def _called(self, uc: Uc, address: int, size: int, data: Any) -> None:
        number, words = (address - OUTSIDE) // 16, 1
        name = self.judge.outside[number] if number < len(self.judge.outside) else "a pointer"
        if name in self.judge.declared:
            sizes = [a.type.get_canonical().get_size() for a in self.judge.declared[name].get_arguments()]
            words = sum(2 if n == 8 else 1 for n in sizes)
        values = [uc.reg_read(UC_RISCV_REG_A0 + i) & _mask(self.judge, name, i) for i in range(min(words, 8))]
        self._step(("call", name, *values))
        uc.reg_write(UC_RISCV_REG_A0, self.random.choice([0, 1, self.random.getrandbits(32)]))
        uc.reg_write(UC_RISCV_REG_A1, self.random.getrandbits(32))

    def call(self, function: str, arguments: list[int]) -> Trace:
        uc = self.uc
        if function not in self.symbols:
            return Trace([("absent",)], True)
        for i, value in enumerate(arguments):
            uc.reg_write(UC_RISCV_REG_A0 + i, value)
        uc.reg_write(UC_RISCV_REG_SP, STACK)
        uc.reg_write(UC_RISCV_REG_RA, STOP)
        try:
            uc.emu_start(self.symbols[function], STOP, count=INSTRUCTIONS)
        except UcError as error:
            if self.inside:
                raise NotJudged(str(error)) from error
            self._step(("fault",))
            return self.done
        if self.problem:
            raise self.problem
        self.done.ended = uc.reg_read(UC_RISCV_REG_PC) == STOP
        if self.done.ended:
            result = self._result(self.judge.functions[function].result_type.get_canonical())
            left = [(name, bytes(uc.mem_read(at, size))) for name, at, size in self.objects]
            self._step(("end", result, left, bytes(uc.mem_read(SCRATCH, 0x1000))))
        return self.done

    def _result(self, type_: Type) -> int:
        size = 0 if type_.kind == TypeKind.VOID else type_.get_size()
        low = self.uc.reg_read(UC_RISCV_REG_A0) | self.uc.reg_read(UC_RISCV_REG_A1) << 32
        return int(low & ((1 << 8 * min(size, 8)) - 1))


def _mask(judge: Judge, name: str, index: int) -> int:
    """Bits of an argument word that its type has."""
    if name not in judge.declared:
        return 0xFFFFFFFF
    masks = []
    for a in judge.declared[name].get_arguments():
        size = a.type.get_canonical().get_size()
        masks += [0xFFFFFFFF] * 2 if size == 8 else [(1 << 8 * max(1, min(size, 4))) - 1]
    return masks[index]
