"""Instructions of each step of a model, counted while its test program runs.

Blocks of code that a program executes in the simulator, which followed which, and lines that caches did not hold.

A plugin of QEMU (hal/harness/execution.c) counts. objdump names the instructions: QEMU does not know the vector ones.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from .cycles import NO_CACHES, Block, Caches, CycleTable, Instruction, PipelineTable, Shape, Step
from .harness import Builder, run_program, run_tool, sources, write_sources
from .vectors import random_inputs

LIMIT_S = 1200.0
FROM, TO = "main", "eb_exit"  # what is counted of a program
MARK = "eb_layer"  # called as a step begins
COUNTING = (MARK, "eb_counter_read", "eb_cycles_read", "SysTick_Handler")  # what a program has only to count
VECTORS = "armv8.1-m.main"  # objdump takes vectors for coprocessors unless it is told this architecture
LISTED = re.compile(r"\s*([0-9a-f]+):\t([0-9a-f ]+?) *\t(\S+)(?:\t([^@;<]*))?")
Listing = Mapping[int, tuple[int, Instruction]]  # by address: bytes, and what stands there


@dataclass(frozen=True)
class Execution:
    """Blocks by their number, and the steps; the first step ends at the first mark."""

    blocks: Mapping[int, Block]
    steps: tuple[Step, ...]


def execute(elf: Path, target: Target, caches: Caches = NO_CACHES, by_step: bool = False) -> Execution:
    """Run a program in the simulator and count from `main` to its end; `by_step`: it calls `eb_layer` between steps.

    Raises MissingTool without the simulator, objdump or a compiler of the build machine, EdgebuildError where the
    program does not end.
    """
    assert target.runner is not None
    plugin, counts = elf.parent / "execution.so", elf.parent / "execution.txt"
    host = load_target("host").toolchain
    source = str(hal_dir() / "harness/execution.c")
    run_tool([host.compiler, "-O2", "-shared", "-fPIC", "-o", plugin.name, source], elf.parent, host.package)
    places = _functions(elf)
    options = [f"from={_begin(places, FROM, elf)}", f"to={_begin(places, TO, elf)}", f"line={caches.line_bytes}"]
    options += [f"low={caches.low}", f"high={caches.high}", f"out={counts}"]
    options += [f"icache={caches.instructions.sets}x{caches.instructions.ways}"]
    options += [f"dcache={caches.data.sets}x{caches.data.ways}"]
    if by_step:
        options += [f"mark={_begin(places, MARK, elf)}"]
        options += [f"skip={b}-{e}" for b, e in (places[name] for name in COUNTING if name in places)]
    command = [word.replace("{elf}", elf.name) for word in target.runner.command if word not in ("-icount", "shift=0")]
    counts.unlink(missing_ok=True)
    run_tool([*command, "-plugin", ",".join([str(plugin), *options])], elf.parent, target.runner.package, LIMIT_S)
    if not counts.is_file():
        raise fail("the simulator's plugin counted nothing", file=str(elf))
    return read_counts(counts.read_text(encoding="ascii"), listing(elf, target))


def read_counts(text: str, code: Listing) -> Execution:
    """Read what the plugin wrote, with the instructions of the program."""
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
    """Begin and end of each function; Thumb's lowest bit says nothing of the place."""
    with elf.open("rb") as stream:
        tables = [t for t in ELFFile(stream).iter_sections() if isinstance(t, SymbolTableSection)]
        symbols: list[Symbol] = [s for table in tables for s in table.iter_symbols()]
    return {s.name: (s["st_value"] & ~1, (s["st_value"] & ~1) + s["st_size"]) for s in symbols if s.name}


def _begin(places: Mapping[str, tuple[int, int]], name: str, elf: Path) -> int:
    if name not in places:
        raise fail(f"no function {name}", file=str(elf))
    return places[name][0]


# Modelled cycles of one inference, from what the simulator executed.
#
# A table of the core says what blocks of code take, and what leads from one to the next: cycles.py for Arm, in_order.py
# for RISC-V. Contention on buses is not part of the models.


class CoreModel(Protocol):
    """Answers of a table of a core. `core`: its name; `source`: of its numbers."""

    @property
    def core(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def caches(self) -> Caches: ...

    def block_to_block(self, here: Block, there: Block) -> int:
        """Cycles from the first instruction of a block to the first of the one behind it."""

    def misses(self, step: Step) -> int:
        """Cycles for which the core waits for lines of its caches, and for words that it has just stored."""


def has_model(target: Target) -> bool:
    """There is a table for the target's core."""
    return _table(target).is_file()


def _table(target: Target) -> Path:
    """The file of the target's core, whether it is there or not."""
    return hal_dir() / "cycles" / f"{target.cycle_table}.yaml"


def model_of(target: Target) -> CoreModel:
    """The table of the target's core. Raises EdgebuildError where there is none."""
    file = _table(target)
    if not file.is_file():
        tables = ", ".join(sorted(f.stem for f in file.parent.glob("*.yaml")))
        raise fail(f"target {target.name}: no table of cycles for its core", hints=[f"tables: {tables}"])
    if target.core.isa.startswith("rv"):
        return read_facts(PipelineTable, file)
    return read_facts(CycleTable, file)


def cycles(elf: Path, target: Target, flash: Flash | None = None) -> tuple[int, int, str]:
    """Cycles of the model's function in this program, those of them for flash, and the name of their model.

    Raises EdgebuildError for a core without a table, MissingTool without the simulator.
    """
    core = model_of(target)
    run = execute(elf, target, _caches(core, target, flash))
    waited = _waited(run.steps[-1], flash)
    return _cost(core, run, run.steps[-1]) + waited, waited, f"{core.core}: {core.source}"


def cycles_by_step(elf: Path, target: Target, flash: Flash | None = None) -> list[int]:
    """Cycles from each call of `eb_layer` in the program of harness/layers.c on, those for flash included."""
    core = model_of(target)
    run = execute(elf, target, _caches(core, target, flash), by_step=True)
    return [_cost(core, run, step) + _waited(step, flash) for step in run.steps[1:]]


def _caches(core: CoreModel, target: Target, flash: Flash | None) -> Caches:
    """Caches of the core, or the lines that are kept of flash."""
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


EMPTY = 64  # in layers.c


def layers(
    model_path: Path,
    artifacts: Sequence[Artifact],
    report: dict[str, Any],
    builder: Builder,
    by_cycles: bool = False,
    flash: Flash | None = None,
) -> list[dict[str, Any]]:
    """`ops` (names), `kinds`, `calls`, `macs` and `instructions` of every step, in the order of the schedule.

    The test program is made by `builder`, in its folder. A tick of the counter is up to 64 instructions on Cortex-M,
    so steps of fewer than a few hundred are known roughly. `by_cycles`: modelled `cycles` as well, with those for which
    the core waits for `flash`. Raises EdgebuildError for a target whose instructions cannot be counted.
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
    (vector,) = random_inputs(model_path, report, 1)
    (folder / "input.bin").write_bytes(b"".join(x.tobytes() for x in vector))
    model, *rest = sources(target, report)
    hal = [hal_dir() / name for name in ("harness/layers.c", "src/counter.c", *target.runner.sources)]
    elf = builder.program("layers", [*rest, *hal], {model: ("-include", str(hal_dir() / "harness/layers.h"))})
    run_program(elf, target)
    marks = np.frombuffer((folder / "layers.bin").read_bytes(), "<u4").reshape(-1, 3)
    ticks = np.diff(marks[:, 1]).astype(float)  # of 32 bits, like the counter
    empty = float(ticks[-EMPTY:].mean())
    scale = 1e9 / target.runner.tick_hz if target.runner.tick_hz else 1.0
    exact = np.diff(marks[:, 2]).astype(float)
    exact = exact if exact.any() else ticks  # a timer with the core's clock
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
