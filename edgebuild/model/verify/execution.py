"""Instructions and cycles of each step of a model, counted while its test program runs.

A plugin of QEMU (hal/harness/execution.c) counts executed blocks of code, pairs of successive blocks and cache misses.
objdump disassembles the program, because QEMU cannot disassemble vector instructions.
Cycles are modelled from the order of instructions and a table of the core in `hal/cycles`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Symbol, SymbolTableSection

from ...base import programs
from ...base.artifacts import Artifact
from ...base.errors import Diagnostic, MissingTool, fail
from ...base.facts import read_facts
from ...base.target import Flash, Target, hal_dir, load_target
from ..ir import Array
from .harness import Builder, run_program, run_tool, sources, write_sources

CYCLES_REGISTER = re.compile(r"\b(?:r\d+|sp|lr|pc|ip|sl|fp|sb|[sdq]\d+)\b")
ACCESS = ("ldr", "str", "vldr", "vstr", "vld", "vst")
BLOCKS = ("ldm", "stm", "push", "pop", "vldm", "vstm", "vpush", "vpop", "ldrd", "strd")
MULTIPLIES = ("mul", "mla", "mls", "sml", "smu", "smm", "uml", "umu", "vml", "vmul", "vfm")
RANGE = re.compile(r"([sd])(\d+)-[sd](\d+)")
WITHOUT_RESULT = ("str", "stm", "push", "vst", "vpush", "cmp", "cmn", "tst", "teq", "vcmp", "vpt", "vctp", "vmsr")
TWO_RESULTS = re.compile(r"[su]m(ull|lal|lsl)|umaal|(asr|lsl|lsr|sqrshr)l$|vaddlv|vr?ml[as]ld")
ACCUMULATING = re.compile(  # also those that leave half of their result's lanes, or some bits, as they were
    r"[su]mlal|smlsl|umaal|bf[ic]$|movt|(asr|lsl|lsr|sqrshr)l$|vq?r?d?ml[as]s?h?$|vr?ml[as]l?davh?a|vfn?m|vaddl?va"
    r"|v(max|min)(nm)?a?v|vs[lr]i|vq?r?(mov|shr)u?n"
)
UNARY = ("mov", "mvn", "neg", "sxt", "uxt", "rev", "rbit", "clz", "adr", "mrs")
CYCLES_BRANCHES = ("b", "bl", "bx", "blx", "cbz", "cbnz", "tbb", "tbh", "le", "letp", "wls", "wlstp")


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

    @cached_property
    def gathers(self) -> int:
        """Elements of a gather load or scatter store, each with its own address; 0 for other instructions."""
        if not self.place:
            return 0
        return 128 // int(re.sub(r"\D", "", self.name.partition(".")[2]) or 32)

    @cached_property
    def place(self) -> list[str]:
        """Vector registers among those that form the addresses of an access."""
        if not self.accesses:
            return []
        return [r for r in CYCLES_REGISTER.findall(self.operands.partition("[")[2]) if r.startswith("q")]

    @property
    def loads(self) -> bool:
        """Whether this is a load of one word. The next load may overlap it; nothing overlaps a store or a block."""
        return self.accesses and not self.moves_block and not self.stem.startswith(("str", "vst"))

    @property
    def address(self) -> set[str]:
        """Registers that form the address of an access."""
        return set(CYCLES_REGISTER.findall(self.operands.partition("[")[2]))

    @property
    def multiplies(self) -> bool:
        return self.stem.startswith(MULTIPLIES)

    @property
    def branches(self) -> bool:
        stem = self.stem
        return stem in CYCLES_BRANCHES or (stem.startswith("b") and len(stem) == 3 and stem[1:] in CONDITIONS)

    @cached_property
    def registers(self) -> list[str]:
        return CYCLES_REGISTER.findall(RANGE.sub(_each, self.operands))

    @cached_property
    def base(self) -> list[str]:
        """The register with the address of an access."""
        if self.accesses or self.moves_block:
            inside = self.operands.partition("[")[2] or self.operands
            return [] if inside.startswith("{") else CYCLES_REGISTER.findall(inside)[:1]
        return []

    @property
    def moved(self) -> list[str]:
        """The base, if the access adds to it."""
        return self.base if "!" in self.operands or "]," in self.operands else []

    @cached_property
    def data(self) -> list[str]:
        """Registers that the instruction computes, loads or stores."""
        if "[" in self.operands and self.base:
            return CYCLES_REGISTER.findall(self.operands.partition("[")[0])
        if self.moves_block:
            return self.registers[len(self.base) :]
        two = TWO_RESULTS.match(self.stem) or re.match(r"vmov.* r\d+, r\d+, [dq]", f"{self.name} {self.operands}")
        return self.registers[: 2 if two else 1]

    @cached_property
    def writes(self) -> set[str]:
        """Registers with its result, without the base of an access."""
        return set() if self.branches or self.stem.startswith(WITHOUT_RESULT) else set(self.data)

    @cached_property
    def reads(self) -> set[str]:
        """Registers whose values the instruction needs; it may change its result, as `adds r0, #1` does."""
        changes = self.operands.count(",") == 1 and not self.base and not self.stem.startswith(("v", *UNARY))
        own = self.data if changes or not self.writes or ACCUMULATING.match(self.stem) else []
        return {*own, *((*self.base, *self.address) if self.base else self.registers[len(self.data) :])}


def _each(registers: re.Match[str]) -> str:
    """All registers of a range such as s0-s3."""
    return ", ".join(f"{registers[1]}{n}" for n in range(int(registers[2]), int(registers[3]) + 1))


@dataclass(frozen=True)
class Shape:
    """Organisation of a cache: `sets` sets of `ways` lines each."""

    sets: int = 1
    ways: int = 1


@dataclass(frozen=True)
class Caches:
    """Instruction cache and data cache of the addresses from `low` to `high`."""

    line_bytes: int = 4
    instructions: Shape = field(default_factory=Shape)
    data: Shape = field(default_factory=Shape)
    low: int = 0
    high: int = 1 << 32


NO_CACHES = Caches(low=0, high=0)


Pairs = Counter[tuple[int, int]]  # (number of a block, number of the next) -> how often this succession was executed


@dataclass(frozen=True)
class Block:
    """A block of code as QEMU translated it: its instructions, its address and the address behind it."""

    code: tuple[Instruction, ...]
    begin: int
    end: int
    first_bytes: int  # of its first instruction


@dataclass(frozen=True)
class Step:
    """Counts between two marks. `reloads`: loads of a word that one of the last two instructions stored."""

    pairs: Pairs
    instruction_misses: int
    data_misses: int
    reloads: int


@dataclass(frozen=True)
class Class:
    """Instructions, by names without suffixes, that take the same number of cycles."""

    names: tuple[str, ...]
    cycles: int


@dataclass(frozen=True)
class VectorClass:
    """Vector instructions, by prefixes of their names, with the units that can execute them and their latency."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    latency: int


@dataclass(frozen=True)
class CycleTable:
    """Timing of an Arm core, in cycles, except `width`: instructions issued per cycle.

    `latency`: of loads and products. `vector`: for which a vector instruction occupies its unit. `branch_refill`: to
    refill the pipeline after a taken branch. `gathered`: per element of a gather load or scatter store, whose vector
    of addresses must be ready `gather_address` cycles earlier than other operands.
    """

    core: str
    source: str
    load: int
    load_after_load: int
    store: int
    block: int
    block_word: int
    branch_refill: int
    classes: tuple[Class, ...] = ()
    vectors: tuple[VectorClass, ...] = ()
    gathered: int = 0
    gather_address: int = 0
    width: int = 1
    latency: int = 0
    vector: int = 1
    pair_words: int = 1
    free_branches: tuple[str, ...] = ()  # names of branches that cost no refill when taken

    @cached_property
    def by_name(self) -> dict[str, int]:
        return {name: c.cycles for c in self.classes for name in c.names}

    @property
    def caches(self) -> Caches:
        """No caches: the table is of memory without wait states."""
        return NO_CACHES

    def misses(self, step: Step) -> int:
        """Cycles of a step for cache misses: none."""
        return 0

    def block_to_block(self, here: Block, there: Block) -> int:
        """Cycles from the first instruction of a block to the first of the next block."""
        free = here.end == there.begin or here.code[-1].stem in self.free_branches
        return block_cycles(self, here.code) + (0 if free else self.branch_refill)


CONDITIONS = {"eq", "ne", "cs", "cc", "hs", "lo", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le"}


def block_cycles(core: CycleTable, code: Sequence[Instruction]) -> int:
    """Cycles from the first instruction of a block to the first of the next, without the refill of a taken branch."""
    return _wide(core, code) if core.width > 1 or core.vector > 1 else _single_instruction(core, code)


def _single_instruction(core: CycleTable, code: Sequence[Instruction]) -> int:
    total = 0
    loaded: set[str] = set()
    for i in code:
        total += _cycles(core, i, bool(loaded) and not loaded & i.address)
        loaded = i.writes if i.loads else set()
    return total


def _cycles(core: CycleTable, i: Instruction, pipelined: bool) -> int:
    """Cycles of one instruction. `pipelined`: it follows a load of a word that does not form its address."""
    if i.stem in core.by_name:
        return core.by_name[i.stem]
    if i.moves_block:
        words = 2 if i.stem in ("ldrd", "strd") else _words(i.operands)
        return core.block + -(-words * core.block_word // core.pair_words)
    if i.accesses:
        if i.stem.startswith(("str", "vstr")):
            return core.store
        return core.load_after_load if pipelined else core.load
    return 1


def _words(operands: str) -> int:
    """Words that a register list such as {r4, r5, lr} or {d8-d9} holds; a d register counts as two."""
    inside = operands[operands.find("{") + 1 : operands.find("}")]
    count = 0
    for part in inside.split(","):
        ends = [int(n) for n in re.findall(r"\d+", part)]
        size = 2 if part.strip().startswith("d") else 1
        count += size * (ends[1] - ends[0] + 1 if len(ends) == 2 else 1)
    return max(count, 1)


def _wide(core: CycleTable, code: Sequence[Instruction]) -> int:
    """Cycles on a core that issues up to `width` instructions a cycle, in order, each with ready operands and unit."""
    ready: dict[str, int] = {}
    free: dict[str, int] = {}
    now, issued = 0, 0
    for i in code:
        units, late = _units(core, i)
        busy = _busy(core, i)
        operands = [ready.get(r, 0) for r in i.reads]
        operands += [ready[r] + core.gather_address for r in i.place if r in ready]
        unit = min(units, key=lambda name: free.get(name, 0), default="")
        start = max([now + (issued >= core.width), free.get(unit, 0), *operands])
        issued = issued + 1 if start == now else 1
        now = start
        if busy > 1 and not i.vector:
            now, issued = start + busy - 1, core.width
        if unit:
            free[unit] = start + busy
        there = start + max(busy if not i.vector else 1 + busy - core.vector, late)
        ready.update(dict.fromkeys(i.moved, start + 1) | dict.fromkeys(i.writes, there))
    return now + 1


def _busy(core: CycleTable, i: Instruction) -> int:
    """Cycles for which an instruction occupies its unit."""
    if not i.vector:
        return _cycles(core, i, False)
    return max(core.vector, i.gathers * core.gathered)


def _units(core: CycleTable, i: Instruction) -> tuple[tuple[str, ...], int]:
    """Units that can execute an instruction, and cycles until its result is ready."""
    if i.vector:
        for vector in core.vectors:
            if i.name.startswith(vector.names):
                return vector.units, vector.latency
    unit = "memory" if i.accesses or i.moves_block else "multiply" if i.multiplies else ""
    late = core.latency if unit else 1
    return ((f"vector {unit}",) if i.vector else (unit,) if unit else ()), late


# Modelled cycles of in-order RISC-V cores: latencies of results, branches, caches.
#
# `hal/cycles` has the tables, each with its source.

IN_ORDER_REGISTER = re.compile(r"\b(?:zero|ra|sp|gp|tp|t[0-6]|s1[01]|s\d|a[0-7])\b")
STORES = ("sb", "sh", "sw")
IN_ORDER_BRANCHES = ("beq", "bne", "blt", "bge", "bltu", "bgeu", "beqz", "bnez", "blez", "bgez", "bltz", "bgtz", "bgt",
                     "ble", "bgtu", "bleu")  # fmt: skip
JUMPS, REGISTER_JUMPS = ("j", "jal"), ("jr", "jalr", "ret")


@dataclass(frozen=True)
class CacheTable:
    """A set-associative cache of `bytes` bytes; `refill`: cycles of a miss."""

    bytes: int
    line_bytes: int
    ways: int
    refill: int

    @property
    def shape(self) -> Shape:
        return Shape(self.bytes // self.line_bytes // self.ways, self.ways)


@dataclass(frozen=True)
class PipelineTable:
    """Timing, in cycles, of a core that issues one instruction a cycle, in order.

    `late`: how much later than an addition's the results of instructions may be used. `busy`: for which instructions
    block the core beyond one cycle. Lost cycles: `branch_back` and `branch_ahead` for taken branches, `missed_back`
    for a backward branch that is not taken, `jump` and `register_jump` for jumps. `straddled`: for a jump to an
    instruction of four bytes in the middle of a word. `reload`: for a load of a word that one of the last two
    instructions stored.
    """

    core: str
    source: str
    branch_back: int
    branch_ahead: int
    jump: int
    register_jump: int
    missed_back: int = 0
    straddled: int = 0
    reload: int = 0
    late: tuple[Class, ...] = ()
    busy: tuple[Class, ...] = ()
    instruction_cache: CacheTable | None = None
    data_cache: CacheTable | None = None

    @cached_property
    def _late(self) -> dict[str, int]:
        return {name: c.cycles for c in self.late for name in c.names}

    @cached_property
    def _busy(self) -> dict[str, int]:
        return {name: c.cycles for c in self.busy for name in c.names}

    @property
    def caches(self) -> Caches:
        code, data = self.instruction_cache, self.data_cache
        if code is None or data is None:
            return NO_CACHES
        return Caches(code.line_bytes, code.shape, data.shape)

    def misses(self, step: Step) -> int:
        """Cycles of a step for cache misses and for loads of words that were just stored."""
        code, data = self.instruction_cache, self.data_cache
        refills = step.instruction_misses * code.refill if code else 0
        refills += step.data_misses * data.refill if data else 0
        return refills + step.reloads * self.reload

    def block_to_block(self, here: Block, there: Block) -> int:
        """Cycles from the first instruction of a block to the first of the next block."""
        ready, now = self._run(here.code, {}, 0)
        lost = self._jump(here, there)
        # Late results of one block stall the first instructions of the next, less the cycles that the jump loses.
        head = there.code[:2]
        pending = {r: at - now - lost for r, at in ready.items() if at > now + lost}
        waits = self._run(head, pending, 0)[1] - self._run(head, {}, 0)[1] if pending else 0
        return now + lost + waits

    def _run(self, code: Sequence[Instruction], pending: Mapping[str, int], now: int) -> tuple[dict[str, int], int]:
        """Cycle at which each register may be read, and cycle at which the instruction behind `code` begins."""
        ready = dict(pending)
        for i in code:
            reads, writes = operands(i)
            now = max([now, *(ready.get(r, 0) for r in reads)])
            if writes:
                ready[writes] = now + 1 + self._late.get(i.name, 0)
            now += 1 + self._busy.get(i.name, 0)
        return ready, now

    def _jump(self, here: Block, there: Block) -> int:
        """Cycles lost by the branch or jump from one block to the next."""
        last, ahead = here.code[-1], here.end == there.begin
        if last.name in IN_ORDER_BRANCHES:
            back = int(last.operands.split(",")[-1], 16) < here.end
            if ahead:
                return self.missed_back if back else 0
            lost = self.branch_back if back else self.branch_ahead
        elif last.name in REGISTER_JUMPS:
            lost = self.register_jump
        elif last.name in JUMPS:
            lost = self.jump
        else:
            return 0
        return lost + (self.straddled if there.begin % 4 and there.first_bytes == 4 else 0)


def operands(i: Instruction) -> tuple[list[str], str]:
    """Registers that an instruction reads, and the register that it writes, "" for none."""
    named = IN_ORDER_REGISTER.findall(i.operands)
    if i.name in STORES or i.name in IN_ORDER_BRANCHES or i.name in ("jr", "j"):
        return named, ""
    if i.name == "ret":
        return ["ra"], ""
    if i.name in ("jal", "jalr") and len(named) < 2:
        return named if i.name == "jalr" else [], "ra"
    return named[1:], named[0] if named and named[0] != "zero" else ""


LIMIT_S = 1200.0
FROM, TO = "main", "eb_exit"  # counting begins and ends at these functions
MARK = "eb_layer"  # called as a step begins
COUNTING = (MARK, "eb_counter_read", "eb_cycles_read", "SysTick_Handler")  # functions that only count: left out
# Of harness.c: begin, end and mark. The first inference runs between the last two calls of the mark.
INVOKE = ("eb_counter_start", "eb_counter_stop", "eb_counter_read")
VECTORS = "armv8.1-m.main"  # without this architecture objdump lists vector instructions as those of coprocessors
LISTED = re.compile(r"\s*([0-9a-f]+):\t([0-9a-f ]+?) *\t(\S+)(?:\t([^@;<]*))?")
Listing = Mapping[int, tuple[int, Instruction]]  # address -> size in bytes, instruction


@dataclass(frozen=True)
class Execution:
    """Blocks by their number, and the steps; the first step ends at the first mark."""

    blocks: Mapping[int, Block]
    steps: tuple[Step, ...]


def execute(
    elf: Path, target: Target, caches: Caches = NO_CACHES, begin: str = FROM, end: str = TO, mark: str = ""
) -> Execution:
    """Run a program in the simulator and count from function `begin` to `end`; calls of `mark` separate steps.

    Raises MissingTool without the simulator, objdump or a compiler of the build machine, EdgebuildError if the
    program fails or lacks one of these functions.
    """
    assert target.runner is not None
    plugin, counts = elf.parent / "execution.so", elf.parent / "execution.txt"
    host = load_target("host").toolchain
    source = str(hal_dir() / "harness/execution.c")
    run_tool([host.compiler, "-O2", "-shared", "-fPIC", "-o", plugin.name, source], elf.parent, host.package)
    places = _functions(elf)
    options = [f"from={_begin(places, begin, elf)}", f"to={_begin(places, end, elf)}", f"line={caches.line_bytes}"]
    options += [f"low={caches.low}", f"high={caches.high}", f"out={counts}"]
    options += [f"icache={caches.instructions.sets}x{caches.instructions.ways}"]
    options += [f"dcache={caches.data.sets}x{caches.data.ways}"]
    if mark:
        options += [f"mark={_begin(places, mark, elf)}"]
        options += [f"skip={b}-{e}" for b, e in (places[name] for name in COUNTING if name in places)]
    command = [word.replace("{elf}", elf.name) for word in target.runner.command if word not in ("-icount", "shift=0")]
    counts.unlink(missing_ok=True)
    run_tool([*command, "-plugin", ",".join([str(plugin), *options])], elf.parent, target.runner.package, LIMIT_S)
    if not counts.is_file():
        raise fail("the simulator's plugin counted nothing", file=str(elf))
    return read_counts(counts.read_text(encoding="ascii"), listing(elf, target))


def read_counts(text: str, code: Listing) -> Execution:
    """Parse the plugin's output; `code` has the instructions of the program."""
    blocks: dict[int, Block] = {}
    steps: list[Step] = []
    for line in text.splitlines():
        word, *numbers = line.split()
        if word == "step":
            steps.append(Step(Counter(), *map(int, numbers)))
        elif word == "block":
            number, begin, end = map(int, numbers)
            if begin in code:
                blocks[number] = Block(_between(code, begin, end), begin, end, code[begin][0])
        else:
            here, there, count = int(word), *map(int, numbers)
            steps[-1].pairs[here, there] += count
    return Execution(blocks, tuple(steps))


def _between(code: Listing, begin: int, end: int) -> tuple[Instruction, ...]:
    instructions = []
    while begin < end:
        size, instruction = code[begin]
        instructions.append(instruction)
        begin += size
    return tuple(instructions)


def listing(elf: Path, target: Target) -> Listing:
    """All instructions of a program. Raises MissingTool without objdump."""
    tools = target.toolchain
    machine = ("-m", VECTORS) if "mve" in target.core.features else ()
    try:
        done = programs.run([f"{tools.prefix}objdump", "-d", *machine, elf])
    except FileNotFoundError:
        hint = ("it comes with the assembler",)
        raise MissingTool(Diagnostic(f"'{tools.prefix}objdump' is not installed", hints=hint)) from None
    matches = filter(None, map(LISTED.match, done.stdout.splitlines()))
    return {int(m[1], 16): (len(m[2].replace(" ", "")) // 2, Instruction(m[3], (m[4] or "").strip())) for m in matches}


def _functions(elf: Path) -> dict[str, tuple[int, int]]:
    """Begin and end address of each function, without Thumb's lowest bit."""
    with elf.open("rb") as stream:
        tables = [t for t in ELFFile(stream).iter_sections() if isinstance(t, SymbolTableSection)]
        symbols: list[Symbol] = [s for table in tables for s in table.iter_symbols()]
    return {s.name: (s["st_value"] & ~1, (s["st_value"] & ~1) + s["st_size"]) for s in symbols if s.name}


def _begin(places: Mapping[str, tuple[int, int]], name: str, elf: Path) -> int:
    if name not in places:
        raise fail(f"no function {name}", file=str(elf))
    return places[name][0]


# Modelled cycles of one inference, from the counts of the simulator.
#
# A table of the core gives the cycles of blocks and of the branches between them: `CycleTable` for Arm,
# `PipelineTable` for RISC-V. Contention on buses is not part of the models.


class CoreModel(Protocol):
    """A cycle model of a core. `core`: its name; `source`: where its numbers are from."""

    @property
    def core(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def caches(self) -> Caches: ...

    def block_to_block(self, here: Block, there: Block) -> int:
        """Cycles from the first instruction of a block to the first of the next block."""

    def misses(self, step: Step) -> int:
        """Cycles of a step for cache misses and for loads of words that were just stored."""


def model_of(target: Target) -> CoreModel:
    """The table of the target's core. Raises EdgebuildError if there is none."""
    file = hal_dir() / "cycles" / f"{target.cycle_table}.yaml"
    if not file.is_file():
        tables = ", ".join(sorted(f.stem for f in file.parent.glob("*.yaml")))
        raise fail(f"target {target.name}: no table of cycles for its core", hints=[f"tables: {tables}"])
    if target.core.isa.startswith("rv"):
        return read_facts(PipelineTable, file)
    return read_facts(CycleTable, file)


def cycles(elf: Path, target: Target, flash: Flash | None = None, harness: bool = False) -> tuple[int, int, str]:
    """Modelled cycles of a program, how many of them are waits for flash, and the name of the model.

    `harness`: count the first inference of harness.c, on the input vectors in its folder. Branches depend on them.
    Raises EdgebuildError for a core without a table, MissingTool without the simulator.
    """
    core = model_of(target)
    run = execute(elf, target, _caches(core, target, flash), *(INVOKE if harness else (FROM, TO)))
    step = run.steps[-2 if harness else -1]
    waited = _waited(step, flash)
    return _cost(core, run, step) + waited, waited, f"{core.core}: {core.source}"


def cycles_by_step(elf: Path, target: Target, flash: Flash | None = None) -> list[int]:
    """Modelled cycles behind each call of `eb_layer` in the program of harness/layers.c, with waits for flash."""
    core = model_of(target)
    run = execute(elf, target, _caches(core, target, flash), mark=MARK)
    return [_cost(core, run, step) + _waited(step, flash) for step in run.steps[1:]]


def _caches(core: CoreModel, target: Target, flash: Flash | None) -> Caches:
    """Caches of the core; with `flash`, its buffers as caches of the memories with code and weights."""
    if flash is None:
        return core.caches
    places = [m for m in target.memories if {"code", "weights"} & set(m.roles)]
    low, high = min(m.origin for m in places), max(m.origin + m.size for m in places)
    return Caches(flash.line_bytes, Shape(1, flash.instruction_lines), Shape(1, flash.data_lines), low, high)


def _waited(step: Step, flash: Flash | None) -> int:
    return (step.instruction_misses + step.data_misses) * flash.wait_states if flash else 0


def _cost(core: CoreModel, run: Execution, step: Step) -> int:
    blocks = run.blocks
    return core.misses(step) + sum(
        count * core.block_to_block(blocks[here], blocks[there]) for (here, there), count in step.pairs.items()
    )


EMPTY = 64  # marks at the end of layers.c with nothing between them: they measure a mark's own cost


def layers(
    vector: Sequence[Array],
    artifacts: Sequence[Artifact],
    report: dict[str, Any],
    builder: Builder,
    by_cycles: bool = False,
    flash: Flash | None = None,
) -> list[dict[str, Any]]:
    """Run the model on `vector` and measure every step, in the order of the schedule.

    Returns `ops` (names), `kinds`, `calls`, `macs` and `instructions` of each. A tick of the counter is up to 64
    instructions on Cortex-M, so counts below a few hundred are rough. `by_cycles`: modelled `cycles` as well, with
    waits for `flash`. Raises EdgebuildError for a streamed input and for a target whose instructions cannot be counted.
    """
    target, folder = builder.target, builder.folder
    if target.firmware is None or target.runner is None:
        hints = ["use a target with a simulator: mps2-an386, riscv-virt"]
        raise fail(f"target {target.name} has no simulator that counts instructions", hints=hints)
    if report["stream_rows"]:
        raise fail("steps are counted of an input that is there whole", hints=["leave --stream-input out"])
    steps = report["schedule"]["steps"]
    write_sources(folder, target, artifacts, report, 1)
    with (folder / "harness_model.h").open("a", encoding="utf-8") as file:
        file.write(f"#define LAYERS {len(steps)}\n")
    (folder / "input.bin").write_bytes(b"".join(x.tobytes() for x in vector))
    model, *rest = sources(target, report)
    hal = [hal_dir() / name for name in ("harness/layers.c", "src/counter.c", *target.runner.sources)]
    elf = builder.program("layers", [*rest, *hal], {model: ("-include", str(hal_dir() / "harness/layers.h"))})
    run_program(elf, target)
    marks = np.frombuffer((folder / "layers.bin").read_bytes(), "<u4").reshape(-1, 3)
    ticks = np.diff(marks[:, 1]).astype(float)  # of 32 bits, like the counter
    empty = float(ticks[-EMPTY:].mean())
    # Simulated instructions take a nanosecond each, so a tick of a slower timer is several instructions.
    scale = 1e9 / target.runner.tick_hz if target.runner.tick_hz else 1.0
    exact = np.diff(marks[:, 2]).astype(float)
    exact = exact if exact.any() else ticks  # no cycle counter: the timer runs at the core's clock
    cycles = (
        [round(n) for n in exact - exact[-EMPTY:].mean()] if target.runner.cycles
        else cycles_by_step(elf, target, flash) if by_cycles
        else []
    )  # fmt: skip
    layers = []
    for i, step in enumerate(steps):
        figures = {} if target.runner.port else {"instructions": round((float(ticks[i]) - empty) * scale)}
        figures |= {"cycles": cycles[i]} if cycles else {}
        layers.append({key: step[key] for key in ("ops", "kinds", "calls", "macs")} | figures)
    return layers
