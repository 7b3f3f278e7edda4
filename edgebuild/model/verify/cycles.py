"""Modelled cycles of one inference: the instructions that a simulator executed, times a table of the core.

QEMU prints each block that it executes; objdump names the instructions, for QEMU does not know the vector ones. A block
costs what its instructions cost in the order in which they stand; a branch that is taken costs the refill of the
pipeline. `hal/cycles` has the tables, each with its source. Caches and contention are not part of the model; flash.py
has the flash.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from ...base.errors import Diagnostic, MissingTool, fail
from ...base.facts import read_facts
from ...base.target import Target, hal_dir

Found = TypeVar("Found")
LIMIT_S = 1200.0  # of a traced run, which takes some fifty times as long as a plain one
STOP = b"eb_exit"  # where the test program ends
TRACE = ("-d", "exec,nochain,in_asm", "-D", "/dev/stdout")
REGISTER = re.compile(r"\b(?:r\d+|sp|lr|pc|ip|sl|fp|sb|[sdq]\d+)\b")
ACCESS = ("ldr", "str", "vldr", "vstr", "vld", "vst")
BLOCKS = ("ldm", "stm", "push", "pop", "vldm", "vstm", "vpush", "vpop", "ldrd", "strd")
MULTIPLIES = ("mul", "mla", "mls", "sml", "smu", "smm", "uml", "umu", "vml", "vmul", "vfm")
BRANCHES = ("b", "bl", "bx", "blx", "cbz", "cbnz", "tbb", "tbh", "le", "letp", "wls", "wlstp")


@dataclass(frozen=True)
class Class:
    """Instructions by their names without suffixes, and the cycles of each."""

    names: tuple[str, ...]
    cycles: int


@dataclass(frozen=True)
class CycleTable:
    """Cycles of a core. `width`: instructions a cycle; `latency`: of loads and products; `vector`: of a vector unit."""

    core: str
    source: str
    load: int
    load_after_access: int
    store: int
    block: int
    block_word: int
    taken: int
    classes: tuple[Class, ...] = ()
    width: int = 1
    latency: int = 0
    vector: int = 1
    pair_words: int = 1
    free_branches: tuple[str, ...] = ()  # that cost no refill when they are taken

    @cached_property
    def by_name(self) -> dict[str, int]:
        return {name: c.cycles for c in self.classes for name in c.names}


@dataclass(frozen=True)
class Instruction:
    """An executed instruction, as a disassembler prints it."""

    name: str
    operands: str

    @property
    def stem(self) -> str:
        return self.name.split(".")[0]

    @property
    def vector(self) -> bool:
        return self.stem.startswith("v") and "q" in self.operands

    @property
    def accesses(self) -> bool:
        return self.stem.startswith(ACCESS)

    @property
    def moves_block(self) -> bool:
        return self.stem.startswith(BLOCKS) and not self.stem.startswith(("vld2", "vld4", "vst2", "vst4"))

    @property
    def multiplies(self) -> bool:
        return self.stem.startswith(MULTIPLIES)

    @property
    def branches(self) -> bool:
        stem = self.stem
        return stem in BRANCHES or (stem.startswith("b") and len(stem) == 3 and stem[1:] in CONDITIONS)

    @cached_property
    def registers(self) -> list[str]:
        return REGISTER.findall(self.operands)

    @property
    def writes(self) -> set[str]:
        if self.stem.startswith(("str", "stm", "push", "cmp", "tst", "cmn", "vst", "vcmp")) or self.branches:
            return set()
        return set(self.registers[:2] if self.stem.startswith(("ldrd", "smlal", "umlal", "smull", "umull")) else
                   self.registers[:1])  # fmt: skip

    @property
    def reads(self) -> set[str]:
        return set(self.registers) if not self.writes else set(self.registers[1:])


CONDITIONS = {"eq", "ne", "cs", "cc", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le"}


def _table(target: Target) -> Path:
    """The file of the target's core, by its compiler's -mcpu, whether it is there or not."""
    names = [f.removeprefix("-mcpu=").split("+")[0] for f in target.toolchain.cflags if f.startswith("-mcpu=")]
    return hal_dir() / "cycles" / f"{names[-1] if names else 'none'}.yaml"


def has_model(target: Target) -> bool:
    """There is a table for the target's core."""
    return _table(target).is_file()


def model_of(target: Target) -> CycleTable:
    """The table of the target's core. Raises EdgebuildError where there is none."""
    file = _table(target)
    if not file.is_file():
        known = ", ".join(sorted(f.stem for f in file.parent.glob("*.yaml")))
        hints = [f"known: {known}"]
        raise fail(f"target {target.name}: no table of cycles for its core", hints=hints)
    return read_facts(CycleTable, file)


def cycles(elf: Path, target: Target) -> tuple[int, str]:
    """Modelled cycles of the model's function in this program, which runs it once; and the model's source.

    Raises EdgebuildError for a core without a table, MissingTool without the simulator.
    """
    core = model_of(target)
    blocks, pairs = _traced(elf, target, read_trace)
    return _cost(core, blocks, pairs), f"{core.core}: {core.source}"


def cycles_by_step(elf: Path, target: Target) -> list[int]:
    """Modelled cycles from each call of `eb_layer` in the program of harness/layers.c on; flash is not part of them.

    Raises EdgebuildError for a core without a table, MissingTool without the simulator.
    """
    core = model_of(target)
    blocks, steps = _traced(elf, target, read_steps)
    return [_cost(core, blocks, pairs) for pairs in steps]


def _cost(core: CycleTable, blocks: Mapping[int, Block], pairs: Pairs) -> int:
    total = 0
    for (here, there), count in pairs.items():
        block = blocks[here]
        free = block.end == there or block.code[-1].stem in core.free_branches
        total += count * (block_cycles(core, block.code) + (0 if free else core.taken))
    return total


def _traced(elf: Path, target: Target, read: Callable[[Iterable[bytes], Listing], Found]) -> Found:
    """Result of `read` for the simulator's trace of a program. Raises EdgebuildError where the program hangs."""
    assert target.runner is not None
    command = [word.replace("{elf}", elf.name) for word in target.runner.command if word not in ("-icount", "shift=0")]
    try:
        with subprocess.Popen([*command, *TRACE], cwd=elf.parent, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as process:  # fmt: skip
            assert process.stdout is not None
            limit = threading.Timer(LIMIT_S, process.kill)  # a simulator that hangs says nothing and does not end
            limit.start()
            found = read(process.stdout, listing(elf, target))
            in_time = limit.is_alive()
            limit.cancel()
            process.kill()
    except FileNotFoundError:
        hint = (f"it is in the package {target.runner.package}",)
        raise MissingTool(Diagnostic(f"'{command[0]}' is not installed", hints=hint)) from None
    if not in_time:
        raise fail(f"'{command[0]}' did not end within {LIMIT_S:g} seconds", hints=[" ".join(command)])
    return found


@dataclass(frozen=True)
class Block:
    """A translated block: its instructions, and the address behind it."""

    code: tuple[Instruction, ...]
    end: int


LINE = re.compile(rb"0x([0-9a-f]+):  ([0-9a-f ]+?)  +")
NAMED = re.compile(r"\s*([0-9a-f]+):\t([0-9a-f ]+?) *\t(\S+)(?:\t([^@;<]*))?")
VECTORS = (
    "armv8.1-m.main"  # the architecture whose names objdump is asked for; without, it takes vectors for coprocessors
)
Listing = Mapping[int, tuple[int, Instruction]]  # by address: bytes, and what stands there
Pairs = Counter[tuple[int, int]]  # how often the block at an address was followed by that at another
MARK = b"eb_layer"  # called as a step begins
COUNTING = {MARK, b"eb_counter_read", b"SysTick_Handler"}  # functions that the program has only to count


def listing(elf: Path, target: Target) -> Listing:
    """All instructions of a program. Raises MissingTool without objdump."""
    tools = target.toolchain
    machine = ("-m", VECTORS) if "mve" in target.core.features else ()
    try:
        done = subprocess.run(
            [f"{tools.prefix}objdump", "-d", *machine, elf], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        hint = ("it comes with the assembler",)
        raise MissingTool(Diagnostic(f"'{tools.prefix}objdump' is not installed", hints=hint)) from None
    matches = filter(None, map(NAMED.match, done.stdout.splitlines()))
    return {int(m[1], 16): (len(m[2].replace(" ", "")) // 2, Instruction(m[3], (m[4] or "").strip())) for m in matches}


def read_trace(stream: Iterable[bytes], known: Listing) -> tuple[dict[int, Block], Pairs]:
    """The blocks by address, and how often each was followed by which, from the entry of `main` on to its end.

    `known`: the instructions of the program. QEMU's own listing says only where a block begins and ends.
    """
    blocks: dict[int, Block] = {}
    pairs: Pairs = Counter()
    before = -1
    for address, _ in _executed(stream, known, blocks):
        if before >= 0:
            pairs[before, address] += 1
        before = address
    return blocks, pairs


def read_steps(stream: Iterable[bytes], known: Listing) -> tuple[dict[int, Block], list[Pairs]]:
    """Blocks, and pairs of what ran between each call of `eb_layer` in harness/layers.c and the next."""
    blocks: dict[int, Block] = {}
    steps: list[Pairs] = []
    before, counting = -1, False
    for address, line in _executed(stream, known, blocks):
        name = line.rsplit(None, 1)[-1]
        if name in COUNTING:
            if name == MARK and not counting:
                if before >= 0:
                    steps[-1][before, address] += 1
                steps.append(Counter())
                before, counting = -1, True
            continue
        counting = False
        if before >= 0:
            steps[-1][before, address] += 1
        before = address if steps else -1
    return blocks, steps


def _executed(stream: Iterable[bytes], known: Listing, blocks: dict[int, Block]) -> Iterator[tuple[int, bytes]]:
    """Address and line of each block that ran, from the entry of `main` on; `blocks` is filled on the way."""
    first, end, inside = -1, 0, False
    addresses: dict[bytes, int] = {}
    for line in stream:
        if line.startswith(b"Trace"):
            if first >= 0:
                blocks[first] = Block(tuple(_between(known, first, end)), end)
                first = -1
            if not inside:
                inside = line.rstrip().endswith(b" main")
                if not inside:
                    continue
            if line.rstrip().endswith(STOP):
                break
            address = addresses.get(line)
            if address is None:
                address = addresses[line] = int(line.split(b"/")[1], 16)
            yield address, line
        elif line.startswith(b"0x"):
            match = LINE.match(line)
            if match:
                at, size = int(match[1], 16), len(match[2].replace(b" ", b"")) // 2
                first, end = at if first < 0 else first, at + size


def _between(known: Listing, first: int, end: int) -> Iterator[Instruction]:
    while first < end:
        size, instruction = known[first]
        yield instruction
        first += size


def block_cycles(core: CycleTable, code: Sequence[Instruction]) -> int:
    """Cycles from the first instruction of a block to the first of the next, without the refill of a taken branch."""
    return _wide(core, code) if core.width > 1 or core.vector > 1 else _single(core, code)


def _single(core: CycleTable, code: Sequence[Instruction]) -> int:
    total, after_access = 0, False
    for i in code:
        total += _cycles(core, i, after_access)
        after_access = i.accesses and not i.moves_block
    return total


def _cycles(core: CycleTable, i: Instruction, after_access: bool) -> int:
    if i.stem in core.by_name:
        return core.by_name[i.stem]
    if i.moves_block:
        words = 2 if i.stem in ("ldrd", "strd") else _words(i.operands)
        return core.block + -(-words * core.block_word // core.pair_words)
    if i.accesses:
        if i.stem.startswith(("str", "vstr")):
            return core.store
        return core.load_after_access if after_access else core.load
    return 1


def _words(operands: str) -> int:
    """Registers of a list such as {r4, r5, lr} or {d8-d9}; a double counts twice."""
    inside = operands[operands.find("{") + 1 : operands.find("}")]
    count = 0
    for part in inside.split(","):
        ends = [int(n) for n in re.findall(r"\d+", part)]
        size = 2 if part.strip().startswith("d") else 1
        count += size * (ends[1] - ends[0] + 1 if len(ends) == 2 else 1)
    return max(count, 1)


def _wide(core: CycleTable, code: Sequence[Instruction]) -> int:
    """In order, up to `width` a cycle: each unit once a cycle, operands ready; vector units are taken for longer."""
    ready: dict[str, int] = {}
    free: dict[str, int] = {}
    now, issued = 0, 0
    for i in code:
        unit = "memory" if i.accesses or i.moves_block else "multiply" if i.multiplies else ""
        unit = f"vector {unit}" if i.vector else unit
        busy = core.vector if i.vector else _cycles(core, i, False)
        operands = [ready.get(r, 0) for r in i.reads]
        start = max([now + (issued >= core.width), free.get(unit, 0) if unit else 0, *operands])
        issued = issued + 1 if start == now else 1
        now = start
        if busy > 1 and not i.vector:
            now, issued = start + busy - 1, core.width
        if unit:
            free[unit] = start + busy
        late = core.latency if i.accesses or i.multiplies else 1
        ready.update(dict.fromkeys(i.writes, start + max(busy if not i.vector else 1, late)))
    return now + 1
