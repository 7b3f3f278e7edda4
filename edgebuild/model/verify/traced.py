"""Modelled cycles of one inference, from the blocks of code that a simulator executed.

QEMU prints each block that it executes; objdump names the instructions, for QEMU does not know the vector ones. A
branch that is taken costs the refill of the pipeline; cycles.py says what a block costs. Caches and contention are not
part of the model; flash.py has the flash.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ...base import programs
from ...base.errors import Diagnostic, MissingTool, fail
from ...base.target import Target
from .cycles import CycleTable, Instruction, block_cycles, model_of

Found = TypeVar("Found")
LIMIT_S = 1200.0  # of a traced run, which takes some fifty times as long as a plain one
STOP = b"eb_exit"  # where the test program ends
TRACE = ("-d", "exec,nochain,in_asm", "-D", "/dev/stdout")


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
        with programs.together() as start:
            process = start([*command, *TRACE], cwd=elf.parent, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)  # fmt: skip
            assert process.stdout is not None
            limit = threading.Timer(LIMIT_S, process.kill)  # a simulator that hangs says nothing and does not end
            limit.start()
            try:
                found = read(process.stdout, listing(elf, target))
                in_time = limit.is_alive()
            finally:
                limit.cancel()
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
        done = programs.run([f"{tools.prefix}objdump", "-d", *machine, elf])
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
