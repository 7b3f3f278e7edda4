"""Cycles for which a core waits for flash: lines that it fetches, times the wait states of a board.

A plugin of QEMU (hal/harness/flash.c) sees each instruction and each read with its address, and models the small caches
that stand before the flash. So the program runs on the simulated board, and the flash is that of another one.
"""

from __future__ import annotations

from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from ...base.errors import fail
from ...base.target import Flash, Target, hal_dir, load_target, target_names
from .harness import run_tool

FROM, TO = "main", "eb_exit"  # what is counted of a program


def flash_of(name: str) -> Flash:
    """The flash of a target. Raises EdgebuildError where the target does not say what it has."""
    target = load_target(name)
    if target.flash is None:
        known = [other for other in target_names() if load_target(other).flash is not None]
        raise fail(f"target {target.name} does not state its flash", hints=[f"known: {', '.join(known)}"])
    return target.flash


Misses = tuple[int, int]  # lines of instructions and of data that a program fetched from flash


def misses(elf: Path, target: Target, flash: Flash) -> Misses:
    """Those of a program from `main` to its end.

    Raises MissingTool without the simulator or a compiler for the machine that builds.
    """
    return _counted(elf, target, flash)[-1]


def _counted(elf: Path, target: Target, flash: Flash, mark: str = "") -> list[Misses]:
    """Up to each arrival at the function `mark`, and up to the end."""
    assert target.runner is not None
    plugin, found = elf.parent / "flash.so", elf.parent / "flash.txt"
    host = load_target("host").toolchain
    source = str(hal_dir() / "harness/flash.c")
    run_tool([host.compiler, "-O2", "-shared", "-fPIC", "-o", plugin.name, source], elf.parent, host.package)
    places = [m for m in target.memories if {"code", "weights"} & set(m.roles)]
    numbers = {"from": _address(elf, FROM), "to": _address(elf, TO), "flash": min(m.origin for m in places)}
    numbers |= {"end": max(m.origin + m.size for m in places), "line": flash.line_bytes}
    numbers |= {"code": flash.instruction_lines, "data": flash.data_lines}
    numbers |= {"mark": _address(elf, mark)} if mark else {}
    options = ",".join([str(plugin), *(f"{key}={value}" for key, value in numbers.items()), f"out={found}"])
    program = [word.replace("{elf}", elf.name) for word in target.runner.command]
    run_tool([*program, "-plugin", options], elf.parent, target.runner.package)
    lines = found.read_text().splitlines() if found.is_file() else []
    if not lines:
        raise fail("the simulator's plugin counted nothing", file=str(elf))
    pairs = (map(int, line.split()) for line in lines)
    return [(code, data) for code, data in pairs]


def waited(elf: Path, target: Target, flash: Flash) -> int:
    """Cycles that the core waits for lines."""
    return sum(misses(elf, target, flash)) * flash.wait_states


def waited_up_to(elf: Path, target: Target, flash: Flash, mark: str) -> list[int]:
    """The same from `main` up to each call of the function `mark`."""
    return [sum(found) * flash.wait_states for found in _counted(elf, target, flash, mark)[:-1]]


def in_words(name: str, flash: Flash) -> str:
    return (
        f"flash of {name}: {flash.wait_states} wait states, lines of {flash.line_bytes} B, "
        f"{flash.instruction_lines} of instructions and {flash.data_lines} of data kept"
    )


def _address(elf: Path, name: str) -> int:
    """Of a function; Thumb's lowest bit says nothing of the place."""
    with elf.open("rb") as stream:
        for table in ELFFile(stream).iter_sections():
            if isinstance(table, SymbolTableSection):
                for symbol in table.get_symbol_by_name(name) or ():
                    return int(symbol["st_value"]) & ~1
    raise fail(f"no function {name}", file=str(elf))
