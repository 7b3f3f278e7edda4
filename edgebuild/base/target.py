"""Targets: facts about a chip or a board, read from YAML.

A target file may name one parent with `inherits:` (core <- family <- board). Maps are merged key by key, all other
values replace the parent's. Unknown keys, wrong types and impossible values are errors at their line and column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .artifacts import Artifact
from .errors import did_you_mean, fail
from .facts import (
    NAMED,
    PARTS,
    Count,
    Rate,
    Size,
    entries,
    map_of,
    merged,
    one_of,
    parts_of,
    read_flag,
    read_node,
    read_text,
    stated_in,
    wrong,
)
from .inputs import Kept
from .inputs import hal_dir as hal_dir
from .levels import ACCESS, ComputeEnergy, Dma, Engine, MemoryEnergy
from .text import comment, file_part, visible

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, Node


ROLES = ("code", "weights", "arena", "data", "stack")
LISTS = "lists"  # the role of a memory with a DMA unit's descriptor lists; without one they are data
DUAL_ISSUE = "dual-issue"
XPULP = ("corev", "gap8")  # encodings of the same instructions
FEATURES = ("dsp", DUAL_ISSUE, "fpu", "fpu64", "mve", "rv32", "m", "a", "c", "f", *XPULP)
SLOW_FLASH = "slow flash"  # a word of targets whose core waits for flash at the highest clock
WEIGHTS = ("asm", "c")
BUSES = ("words", "bytes")


@dataclass(frozen=True)
class Core:
    """The processor. `features` are words of FEATURES, in the file's order."""

    isa: str
    features: tuple[Annotated[str, one_of(FEATURES)], ...] = ()
    cycles: str = ""  # name of the table in hal/cycles; empty: that of the compiler's -mcpu
    energy: ComputeEnergy | None = None  # of one core


@dataclass(frozen=True)
class Memory:
    """One memory; `name` is also that of the linker's region. `origin` and `size` in bytes.

    `level` 1 is the nearest to the core; 0: no tiles are moved to or from it. `access: dma`: only the DMA unit can
    access it, not the core.
    """

    name: str
    origin: Size
    size: Size
    roles: tuple[Annotated[str, one_of((*ROLES, LISTS))], ...]
    tightly_coupled: bool = False  # beside the core: no bus, no cache, no wait states
    level: Count = 0
    bytes_per_cycle: Rate = 0  # 0: not stated
    latency: Size = 0  # cycles
    access: Annotated[str, one_of(ACCESS)] = "cpu"
    cached: bool = False
    energy: MemoryEnergy | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w*", self.name, re.ASCII):
            raise ValueError(f"memory name '{self.name}' is no name for a linker region; letters, digits and _ are")


@dataclass(frozen=True)
class Toolchain:
    """How to compile and link. `libc` and `libm` count only for a program that needs the C library."""

    prefix: str
    cc: str
    arch: tuple[str, ...] = ()  # flags of the processor; `load_target` puts them in front of `cflags` and `ldflags`
    cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    libs: tuple[str, ...] = ()  # libraries of every program, after the objects
    libc: tuple[str, ...] = ()  # flags for compiling and linking against the C library
    libm: tuple[str, ...] = ()  # libraries of floating-point models, in front of `libs`
    package: str = ""  # the Debian package of the compiler

    @property
    def compiler(self) -> str:
        """The compiler's command."""
        return self.prefix + self.cc


@dataclass(frozen=True)
class Runner:
    """How to run a program. `command`: `{elf}` stands for the program's file; on a board, it writes the flash."""

    command: tuple[str, ...]
    sources: tuple[str, ...] = ()  # below the hal folder, or absolute: semihosting, or files over a serial line
    port: str = ""  # DEVICE[:BAUD], over which a board reads its files; empty: a simulator
    tick_hz: Size = 0  # rate of the timer that counts instructions; 0: it counts them directly
    cycles: str = ""  # description of the exact cycle counter, if there is one; empty: none
    timeout_s: Size = 60
    package: str = ""


VECTORS_BYTES = 64  # of the table in startup/cortex_m.c, whose reserved entries are symbols


@dataclass(frozen=True)
class BootWords:
    """Words that the chip reads before it starts a program: `at` bytes behind the begin of the memory for code."""

    at: Size
    words: tuple[Size, ...]

    def __post_init__(self) -> None:
        if self.at % 4 or any(word >> 32 for word in self.words):
            raise ValueError("boot words have 32 bits, and their address is a multiple of 4")
        if self.at < VECTORS_BYTES and not 0x20 <= self.at <= self.at + 4 * len(self.words) <= 0x2C:
            raise ValueError("of the first 16 vectors, a target sets entries 8 to 10, which the core reserves")


@dataclass(frozen=True)
class Firmware:
    """Parts of a bare-metal program besides the user's code; paths are below the hal folder."""

    startup: tuple[str, ...]
    linker: str
    stack: Size  # bytes reserved at the bottom of the memory with the role `stack`
    boot: tuple[BootWords, ...] = ()
    vector_sum: bool = False  # whether the boot ROM wants the first eight vectors of an Arm core to add up to 0
    loader: str = ""  # what the chip needs beside the program to start it


@dataclass(frozen=True)
class Flash:
    """The flash at the core's highest clock: it reads whole lines, and buffers a few of them near the core."""

    wait_states: Count
    line_bytes: Count
    instruction_lines: Count = 1
    data_lines: Count = 1

    def __post_init__(self) -> None:
        if not (self.line_bytes and self.instruction_lines and self.data_lines):
            raise ValueError("a flash has lines of at least a byte, and keeps at least one of each kind")


def _clocks(node: Node) -> str:
    """The name of a clock tree that ships with edgebuild, or a path, relative to the target's file."""
    text = read_text(node)
    return str(Path(node.start_mark.name).parent / text) if text.endswith((".yaml", ".yml")) else text


@dataclass(frozen=True)
class Target:
    """One chip or board. `files`: the YAML files with its facts: its own, then its parents', the clock tree last."""

    name: str
    files: tuple[str, ...]
    description: str
    core: Core
    memories: Annotated[tuple[Memory, ...], NAMED]
    toolchain: Toolchain
    runner: Runner | None = None
    firmware: Firmware | None = None
    weights: Annotated[str, one_of(WEIGHTS)] = "asm"
    clocks: Annotated[str, _clocks] = ""  # the clock tree, by name or file; empty: clocks are not managed
    bus: Annotated[str, one_of(BUSES)] = "words"  # accesses of devices: "bytes" only if stated, or bits could be lost
    dma: Annotated[tuple[Dma, ...], NAMED] = ()
    engines: Annotated[tuple[Engine, ...], NAMED] = ()
    cores: Count = 1  # cores that run kernels together
    flash: Flash | None = None  # for models of cycles
    clock_hz: int = 0  # the highest frequency of the core; 0: not stated
    source: str = ""  # the documents, with pages, that state the sizes of the memories
    inherits: str = ""  # name of the parent
    abstract: bool = False  # whether it only serves as a parent

    @property
    def words(self) -> frozenset[str]:
        """Words that kernels may require: the instruction set, features of the core, SLOW_FLASH."""
        waits = self.flash is not None and self.flash.wait_states > 0
        return frozenset((self.core.isa, *self.core.features, *((SLOW_FLASH,) if waits else ())))

    @property
    def cycle_table(self) -> str:
        """Name of the core's table in hal/cycles: that of the target, else of the compiler's -mcpu, else `none`."""
        names = [f.removeprefix("-mcpu=").split("+")[0] for f in self.toolchain.cflags if f.startswith("-mcpu=")]
        return self.core.cycles or (names[-1] if names else "none")

    @property
    def levels(self) -> tuple[Memory, ...]:
        """The memories between which tiles are moved, the nearest to the core first."""
        return tuple(sorted((m for m in self.memories if m.level), key=lambda m: m.level))

    @property
    def dma_align(self) -> int:
        """Alignment in bytes of the addresses of all copies: that of the strictest DMA unit."""
        return max((d.align for d in self.dma), default=1)

    @property
    def startup(self) -> tuple[str, ...]:
        """Files below the hal folder for every bare-metal program: start-up code, ports of DMA unit and engines."""
        ports = (*(d.port for d in self.dma[:1]), *(e.port for e in self.engines if e.port))
        return tuple(dict.fromkeys((*self.firmware.startup, *ports))) if self.firmware else ()

    def memory(self, role: str) -> Memory:
        """The first memory with this role."""
        return next(m for m in self.memories if role in m.roles)

    def memory_named(self, name: str) -> Memory:
        return next(m for m in self.memories if m.name == name)


def clock_tree_file(name_or_path: str) -> Path | None:
    """The file of a clock tree, its own or that of its family; None if there is none."""
    is_path = "/" in name_or_path or "\\" in name_or_path or name_or_path.endswith((".yaml", ".yml"))
    if is_path:
        return Path(name_or_path) if Path(name_or_path).is_file() else None
    stated = stated_in(name_or_path, hal_dir() / "clocks")
    return stated[0] if stated else None


def target_names() -> list[str]:
    """Names of the targets that ship with edgebuild, without those that only serve as parents, sorted."""
    names = list[str]()
    for file in sorted((hal_dir() / "targets").glob("*.yaml")):
        node = map_of(file)
        names += [file.stem] if not _abstract(node) and PARTS not in entries(node) else []
        names += parts_of(node)
    return sorted(names)


_LOADED = Kept["Target"](1000)


def load_target(name_or_path: str) -> Target:
    """Read a target by its name, or from a file (anything with a slash or ending in .yaml).

    Targets are cached, and read again only if a file has changed.
    Raises EdgebuildError with file, line and column.
    """
    return _LOADED.get(name_or_path, _load, lambda target: target.files)


def _among(names: list[str]) -> str:
    """A few targets, as the end of a message that says how to list all."""
    return f", among them {', '.join(names[:8])}{' and others' if len(names) > 8 else ''}" if names else ""


def _load(name_or_path: str) -> Target:
    is_path = "/" in name_or_path or "\\" in name_or_path or name_or_path.endswith((".yaml", ".yml"))
    file = Path(name_or_path)
    if is_path and not file.is_file():
        raise fail("no such target file", file=name_or_path)
    stated = (file, map_of(file)) if is_path else stated_in(name_or_path, hal_dir() / "targets")
    if stated is None:
        names = target_names()
        begun = [name for name in names if name_or_path and name.startswith(name_or_path.casefold())]
        raise fail(
            f"unknown target '{name_or_path}'{did_you_mean(name_or_path, names)}",
            hints=[
                f"`edgebuild targets` lists {len(names)} of them{_among(begun)}",
                "or the path of a target's .yaml file",
            ],
        )
    if PARTS in entries(stated[1]):
        parts = "parts: " + ", ".join(parts_of(stated[1]))
        raise wrong(entries(stated[1])[PARTS], f"'{stated[0].stem}' is a family, of which one part can be named", parts)
    name = visible(file.stem if is_path else name_or_path)
    files: list[str] = []
    node = _inherited(*stated, (name,), files)
    target = _target(name, tuple(files), node)
    _check_memories(target, node)
    if target.clocks and (tree := clock_tree_file(target.clocks)):
        target = replace(target, files=(*target.files, str(tree)))
    return target


def _abstract(node: MappingNode) -> bool:
    flag = entries(node).get("abstract")
    return flag is not None and read_flag(flag)


def _target(name: str, files: tuple[str, ...], node: MappingNode) -> Target:
    if _abstract(node):
        heirs = [n for n in target_names() if files[0] in load_target(n).files]
        hint = f"`edgebuild targets` lists what can be built for{_among(heirs)}"
        raise wrong(entries(node)["abstract"], f"'{name}' is only a parent of targets and cannot be built for", hint)
    target = read_node(Target, node, name=name, files=files)
    arch, tools = target.toolchain.arch, target.toolchain
    return replace(target, toolchain=replace(tools, cflags=arch + tools.cflags, ldflags=arch + tools.ldflags))


def _check_memories(target: Target, node: MappingNode) -> None:
    """Raise EdgebuildError unless each role has a memory, memories do not overlap, and DMA, engines and stack fit."""
    where = entries(node)["memories"]
    needed = ROLES if target.firmware else ("code", "weights", "arena")
    for role in needed:
        if not any(role in m.roles for m in target.memories):
            raise wrong(where, f"no memory has the role '{role}'", "roles: " + ", ".join(ROLES))
    by_case: dict[str, str] = {}
    for name in (m.name for m in target.memories):
        if (other := by_case.setdefault(name.upper(), name)) != name:
            text = f"memories {other} and {name} differ only in case, and macros have names in upper case"
            raise wrong(entries(where)[name], text)
    by_origin = sorted(target.memories, key=lambda m: m.origin)
    for low, high in pairwise(by_origin):
        if low.origin + low.size > high.origin:
            raise wrong(
                entries(where)[high.name],
                f"memory {high.name} begins inside of {low.name}",
                f"{low.name} ends at {low.origin + low.size:#x}, {high.name} begins at {high.origin:#x}",
            )
    names = [m.name for m in target.memories]
    for dma, entry in zip(target.dma, entries(entries(node)["dma"]).values() if target.dma else (), strict=True):
        for name in dma.between:
            if name not in names:
                hint = "memories: " + ", ".join(names)
                raise wrong(entries(entry)["between"], f"no memory '{name}'{did_you_mean(name, names)}", hint)
            if (origin := target.memories[names.index(name)].origin) % dma.align:
                text = f"memory {name} begins at {origin:#x}, and DMA '{dma.name}' has align {dma.align}"
                raise wrong(entries(entry)["between"], text, "an origin that is a multiple of it")
    _check_engines(target, node)
    if set(XPULP) <= set(target.core.features):
        where = entries(entries(node)["core"])["features"]
        raise wrong(where, "two encodings of XpulpV2", f"a core has one: {' or '.join(XPULP)}")
    for memory in target.levels[1:]:
        if not any(memory.name in dma.between for dma in target.dma):
            text = f"no DMA reaches {memory.name}, which has level {memory.level}"
            raise wrong(entries(where)[memory.name], text, "add it to `between` of one in `dma:`")
    stack = target.firmware.stack if target.firmware else 0
    if stack % 8:
        raise wrong(
            entries(entries(node)["firmware"])["stack"],
            f"a stack of {stack} bytes",
            "a multiple of 8, as the calling conventions ask for",
        )


def _check_engines(target: Target, node: MappingNode) -> None:
    """Raise EdgebuildError unless the memories of engines' scratchpads exist and are large enough."""
    memories = {m.name: m for m in target.memories}
    nodes = entries(entries(node)["engines"]).values() if target.engines else ()
    for engine, entry in zip(target.engines, nodes, strict=True):
        for name, size in zip(engine.memories, (engine.activations, engine.weights), strict=False):
            where = entries(entry)["memories"]
            if name not in memories:
                hint = "memories: " + ", ".join(memories)
                raise wrong(where, f"no memory '{name}'{did_you_mean(name, memories)}", hint)
            if memories[name].size < size:
                room = memories[name].size
                raise wrong(
                    where, f"engine '{engine.name}' has a scratchpad of {size} B, and memory {name} has {room} B"
                )


# ---- inheritance


def _inherited(file: Path, node: MappingNode, names: tuple[str, ...], files: list[str]) -> MappingNode:
    """The node merged over its parents'; appends every file read to `files`. `names`: the chain of targets so far."""
    if str(file) not in files:
        files.append(str(file))
    parent = entries(node).get("inherits")
    if parent is None:
        return node
    name = read_text(parent)
    for folder in (file.parent, hal_dir() / "targets"):
        if name in names:
            raise wrong(parent, f"'{name}' inherits from itself", " <- ".join(names))
        if (stated := stated_in(name, folder)) is not None:
            if PARTS in entries(stated[1]):
                raise wrong(parent, f"'{name}' is a family", "one of its parts: " + ", ".join(parts_of(stated[1])))
            return merged(_inherited(*stated, (*names, name), files), node)
    parents = sorted({f.stem for f in (hal_dir() / "targets").glob("*.yaml")} | {*target_names()})
    raise wrong(parent, f"unknown parent '{name}'{did_you_mean(name, parents)}")


# Facts about a target that a build system needs for a bare-metal program.


def firmware_support(target: Target) -> tuple[Artifact, ...]:
    """The generated linker script `<target>_regions.ld`; empty for a target without `firmware`.

    On the linker's command line it precedes the fragments of models (`N_memory.ld`), see `link_flags`.
    """
    if target.firmware is None:
        return ()
    return (Artifact(_regions_name(target), regions_script(target).encode()),)


def regions_script(target: Target) -> str:
    """Linker script: the target's memories as regions, their roles as aliases, the stack's size.

    Raises EdgebuildError for a target without `firmware`.
    """
    if target.firmware is None:
        raise fail(f"target {target.name} has no `firmware:`, so there is no linker script for it")
    regions = (f"  {m.name} : ORIGIN = {m.origin:#010x}, LENGTH = {m.size:#x}" for m in target.memories)
    aliases = (
        f'REGION_ALIAS("EB_{role.upper()}", {target.memory(role).name})'
        for role in ("code", "weights", "data", "stack", "arena")
    )
    lists = next((m.name for m in target.memories if LISTS in m.roles), target.memory("data").name)
    return "\n".join([
        "/* SPDX-License-Identifier: 0BSD",
        f" * {comment(f'Memories of {target.name}: {target.description}.')}",
        " */",
        "MEMORY",
        "{",
        *regions,
        "}",
        *aliases,
        f'REGION_ALIAS("EB_LISTS", {lists})',
        f"__stack_size = {target.firmware.stack};",
        *_boot_lines(target.firmware),
        "",
    ])  # fmt: skip


def _boot_lines(firmware: Firmware) -> Iterator[str]:
    if firmware.vector_sum:
        handlers = "(Reset_Handler | 1) + (NMI_Handler | 1) + 4 * (eb_no_handler | 1)"
        yield f"__vector_7 = -(__stack_top + {handlers}) & 0xFFFFFFFF;"
    for row in firmware.boot:
        if row.at < VECTORS_BYTES:
            yield from (f"__vector_{row.at // 4 + i} = {word:#010x};" for i, word in enumerate(row.words))
        else:
            words = " ".join(f"LONG({word:#010x})" for word in row.words)
            yield f"SECTIONS {{ .boot ORIGIN(EB_CODE) + {row.at:#x} : {{ {words} }} > EB_CODE }} INSERT AFTER .vectors;"


def link_flags(target: Target, fragments: tuple[str, ...] = (), folder: str = "") -> tuple[str, ...]:
    """The linker flags, without objects, libraries and the output's name.

    `fragments`: paths of the models' `N_memory.ld`; `folder`: that of `firmware_support`'s file, ending in a slash.
    The linker must read the regions, then the fragments, then the fixed script. gcc moves -T to the end, but keeps the
    order of -Wl,-T, so fragments may be anywhere after the regions.
    """
    if target.firmware is None:
        return target.toolchain.ldflags
    scripts = (f"-Wl,-T,{folder}{_regions_name(target)}", *(f"-Wl,-T,{f}" for f in fragments))
    return (*target.toolchain.ldflags, f"-T{_hal(target.firmware.linker)}", *scripts)


def describe(target: Target) -> dict[str, object]:
    """The JSON of `edgebuild targets NAME --json`, for build systems. Paths below the hal folder are absolute."""
    tools, firmware, runner = target.toolchain, target.firmware, target.runner
    return {
        "name": target.name,
        "description": target.description,
        "clock_hz": target.clock_hz,
        "source": target.source,
        "core": {"isa": target.core.isa, "features": list(target.core.features)},
        "memories": [
            {"name": m.name, "origin": m.origin, "size": m.size, "roles": list(m.roles)} for m in target.memories
        ],
        "compiler": tools.compiler,
        "cflags": list(tools.cflags),
        "include": [str(hal_dir() / "include")],
        "ldflags": list(link_flags(target)),
        "libs": list(tools.libs),
        "libc_flags": list(tools.libc),
        "libm": list(tools.libm),
        "startup": [_hal(s) for s in target.startup],
        "linker_script": _hal(firmware.linker) if firmware else "",
        "regions_script": _regions_name(target) if firmware else "",
        "runner": list(runner.command) if runner else [],
        "runner_sources": [_hal(s) for s in runner.sources] if runner else [],
        "files": list(target.files),
    }


def _regions_name(target: Target) -> str:
    return f"{file_part(target.name)}_regions.ld"


def _hal(path: str) -> str:
    return (hal_dir() / path).as_posix()
