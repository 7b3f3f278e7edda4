"""Compile and link test programs around the files of a model, and run them in a simulator or on a board.

A program on a board reads and writes files of the build machine over a raw serial line with eight data bits.
`hal/src/serial_files.c` has the messages.
"""

from __future__ import annotations

import binascii
import contextlib
import os
import re
import select
import struct
import subprocess
import tempfile
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NoReturn

import numpy as np
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection
from numpy.typing import NDArray

from ...base import programs
from ...base.artifacts import Artifact, own_folder, publish
from ...base.errors import Diagnostic, EdgebuildError, MissingTool, fail, from_os
from ...base.inputs import cmsis_nn_sources
from ...base.levels import Engine
from ...base.progress import say
from ...base.target import Flash, Target, firmware_support, hal_dir, link_flags, load_target, target_names
from ..emit.weights_file import HEADER
from ..surface import C_TYPES

# Symbols that an integer network must not link, as patterns.

HEAP = r"_?_?(malloc|calloc|realloc|free|sbrk)(_r)?"
LIBM = r"(exp|exp2|expm1|log|log2|log1p|pow|sqrt|tanh|sinh|cosh|sin|cos|tan|erf|round|frexp|ldexp|floor|ceil)[fl]?"
SOFT_DOUBLE = (
    r"__aeabi_(c?d(add|r?sub|mul|div|neg|cmp\w+|r?cmple|2\w+)|[a-z]+2d)"
    r"|__(add|sub|mul|div|neg|eq|ne|lt|le|gt|ge|unord|cmp)df[23]"
    r"|__(fix|fixuns)df[sd]i|__float(un)?[sd]idf|__extendsfdf2|__truncdfsf2"
)


@dataclass(frozen=True)
class ElfSizes:
    """Bytes. `flash` is code, constants and the image of initialised data; `ram` leaves out the stack."""

    flash: int
    ram: int
    arena: int
    weights: int
    forbidden: tuple[str, ...]  # functions that an integer network must not link


def read_sizes(elf: Path, model: str, allow_libm: bool) -> ElfSizes:
    """Measure a linked program that holds the model of this name; sections that are not loaded do not count."""
    with elf.open("rb") as stream:
        file = ELFFile(stream)
        flash = ram = 0
        for section in file.iter_sections():
            if section["sh_flags"] & SH_FLAGS.SHF_ALLOC and section.name != ".stack":
                flash += section["sh_size"] if section["sh_type"] != "SHT_NOBITS" else 0
                ram += section["sh_size"] if section["sh_flags"] & SH_FLAGS.SHF_WRITE else 0
        symbols = {
            symbol.name: symbol
            for table in file.iter_sections()
            if isinstance(table, SymbolTableSection)
            for symbol in table.iter_symbols()
            if symbol["st_shndx"] != "SHN_UNDEF"
        }
    patterns = [HEAP, SOFT_DOUBLE] + ([] if allow_libm else [LIBM])
    forbidden = sorted(
        name
        for name, symbol in symbols.items()
        if symbol["st_info"]["type"] == "STT_FUNC" and any(re.fullmatch(p, name) for p in patterns)
    )
    sizes = {name: int(symbol["st_size"]) for name, symbol in symbols.items()}
    arena = sum(size for name, size in sizes.items() if re.fullmatch(rf"{model}_arena(_\w+)?", name))
    return ElfSizes(flash, ram, arena, sizes.get(f"{model}_weights", 0), tuple(forbidden))


# Wait states of a board's flash, which may be another board than the simulated one.


def flash_of(name: str) -> Flash:
    """The flash of a target. Raises EdgebuildError if the target does not state it."""
    target = load_target(name)
    if target.flash is None:
        stated = [other for other in target_names() if load_target(other).flash is not None]
        raise fail(f"target {target.name} does not state its flash", hints=[f"known: {', '.join(stated)}"])
    return target.flash


def in_words(name: str, flash: Flash) -> str:
    return (
        f"flash of {name}: {flash.wait_states} wait states, lines of {flash.line_bytes} B, "
        f"{flash.instruction_lines} of instructions and {flash.data_lines} of data kept"
    )


NAME = "model"  # the name that compile_model was given
MODEL_SOURCES = (f"{NAME}.c", f"{NAME}_weights.S", f"{NAME}_weights.c")
# Without the last flag, variables in sections of their own, such as the arena, get no red zones. With the target's
# -O2 -g, gcc 12 takes 4 times as long, because it tracks each variable; -g1 is enough for line numbers in reports.
SANITIZERS = (
    "-O1",
    "-g1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-fsanitize-sections=.bss.edgebuild.*,.rodata.edgebuild.*",
)


def sources(target: Target, report: dict[str, Any]) -> tuple[Path, ...]:
    """Sources of the network, of its engines and, if it moves tiles on the build machine, of a simulated DMA unit.

    An engine is simulated in C if the target names no port, and on the build machine if that port is in the hal folder.
    """
    dma = [hal_dir() / "src/dma_model.c"] if "hierarchy" in report and target.firmware is None else []
    used = {row["engine"] for row in report.get("engines", ())}
    present = [e for e in target.engines if e.name in used]
    ports = [Path(e.port) for e in present if e.port and target.firmware is None and Path(e.port).is_absolute()]
    modelled = [_model_of(e) for e in present if not (e.port and (target.firmware or Path(e.port) in ports))]
    return (*map(Path, MODEL_SOURCES), *dma, *ports, *modelled)


def _model_of(engine: Engine) -> Path:
    """Name of the file that simulates an engine; `write_sources` writes it."""
    return Path(f"engine_{engine.name}.c")


@dataclass(frozen=True)
class Builder:
    """Compiles for one target in one folder, which also holds the model's files."""

    target: Target
    folder: Path
    needs_libm: bool
    extra: tuple[str, ...] = ()  # sanitizer flags, for the compiler and the linker
    cmsis_nn: Path | None = None  # folder of CMSIS-NN, if the model may call it
    name: str = NAME  # of the model

    def program(
        self, name: str, sources: Sequence[Path], special: Mapping[Path, tuple[str, ...]] = MappingProxyType({})
    ) -> Path:
        """Compile `sources` and link them with the target's start-up code to `name`.elf; return its path.

        `special`: more sources, each with its own flags. Raises MissingTool without compiler, EdgebuildError if it
        cannot build, TooLarge if the program exceeds a memory.
        """
        library = cmsis_nn_sources(self.cmsis_nn) if self.cmsis_nn else ()
        objects = [self._object(s) for s in (*sources, *(hal_dir() / s for s in self.target.startup), *library)]
        objects += [self._object(s, flags, f".{name}") for s, flags in special.items()]
        fragments = (f"{self.name}_memory.ld",) if self.target.firmware else ()
        tools = self.target.toolchain
        libraries = (tools.libm if self.needs_libm else ()) + tools.libs
        flags = (*self._libc(), *self.extra, *link_flags(self.target, fragments))
        try:
            self._run(*flags, "-o", f"{name}.elf", *objects, *libraries)
        except EdgebuildError as error:
            raise too_large(error, self.target.name) or error from None
        return self.folder / f"{name}.elf"

    def _object(self, source: Path, special: tuple[str, ...] = (), mark: str = "") -> str:
        """Compile one file, once; return its object's name. `mark` distinguishes objects with special flags."""
        name = f"{source.stem}{'.s' if source.suffix == '.S' else ''}{'.san' if self.extra else ''}{mark}.o"
        if not (self.folder / name).exists():
            flags = self.target.toolchain.cflags + self._libc() + self.extra + special
            flags += (f"-I{(self.cmsis_nn / 'Include').resolve()}",) if self.cmsis_nn else ()
            flags += ("-I.", f"-I{hal_dir() / 'include'}", "-c")
            key = (self.target.toolchain.compiler, flags, source.read_bytes()) if _is_fixed(source) else None
            if key in OBJECTS:
                (self.folder / name).write_bytes(OBJECTS[key])
                return name
            self._run(*flags, "-o", name, str(source))
            if key:
                OBJECTS[key] = (self.folder / name).read_bytes()
        return name

    def _libc(self) -> tuple[str, ...]:
        return self.target.toolchain.libc if self.needs_libm else ()

    def _run(self, *arguments: str) -> None:
        run_tool((self.target.toolchain.compiler, *arguments), self.folder, self.target.toolchain.package)


# Cache of objects that are the same for all models, by compiler, flags and source.
OBJECTS: dict[tuple[str, tuple[str, ...], bytes] | None, bytes] = {}


def _is_fixed(source: Path) -> bool:
    """Whether the object is the same for all models: the file and its headers are in the hal folder."""
    if source.suffix != ".c" or not source.is_relative_to(hal_dir()):
        return False
    included = re.findall(r'^ *# *include "(.+)"', source.read_text(encoding="utf-8"), re.MULTILINE)
    return all((hal_dir() / "include" / name).is_file() for name in included)


def run_tool(
    command: Sequence[str],
    folder: Path,
    package: str,
    timeout: float = 600,
    env: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Run a program in `folder`; return its standard output.

    `timeout`: seconds. Raises MissingTool if it is not installed, EdgebuildError with its last output if it fails.
    """
    try:
        done = programs.run(command, folder, timeout, env)
    except FileNotFoundError:
        hint = (f"apt-get install {package}",) if package else ()
        raise MissingTool(Diagnostic(f"'{command[0]}' is not installed", hints=hint)) from None
    except subprocess.TimeoutExpired:
        raise fail(f"'{command[0]}' did not end within {timeout:g} seconds", hints=[" ".join(command)]) from None
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise fail(f"'{command[0]}' ended with status {done.returncode}", hints=[*lines[-40:], " ".join(command)])
    return done.stdout


def xpulp_simulator(folder: Path) -> Path:
    """The program that `edgebuild simulate` runs, compiled in `folder`. Raises MissingTool without a compiler."""
    host = load_target("host").toolchain
    run_tool([host.compiler, "-O2", "-o", "xpulp", str(hal_dir() / "harness/xpulp.c")], folder, host.package)
    return folder / "xpulp"


class TooLarge(EdgebuildError):
    """A test program is larger than a memory of its target."""


def too_large(error: EdgebuildError, target: str) -> TooLarge | None:
    """A one-sentence error if the linker reported that the program exceeds a memory, else None.

    The model alone fits: the compiler has checked it against the target's memories.
    """
    advice = "\n".join(error.diagnostics[0].hints)
    over = re.search(r"region [`'](\w+)' overflowed by (\d+) bytes", advice)
    if over is None:
        return None
    hints = ["it holds more than the model: a streamed input whole, its own code and buffers",
             "verify on a target of the same core that has more memory"]  # fmt: skip
    text = f"the test program does not fit into {over[1]} of {target}: {over[2]} B too many"
    return TooLarge(Diagnostic(text, hints=tuple(hints)))


@dataclass(frozen=True)
class Arena:
    """The arena in one memory: its symbol in the program and its size in bytes."""

    memory: str
    symbol: str
    bytes: int


def arenas(target: Target, report: dict[str, Any]) -> list[Arena]:
    """Arenas in memories that the core can access, in the target's order, then arrays of the application.

    The first arena has the plain name, each further one its memory's name appended.
    """
    sizes: dict[str, int] = report["ram"]["by_memory"]
    used = [m for m in target.memories if sizes.get(m.name)]
    reached = [
        Arena(m.name, f"{NAME}_arena{f'_{m.name.lower()}' if i else ''}", sizes[m.name])
        for i, m in enumerate(used)
        if m.access == "cpu"
    ]
    return reached + [Arena(f"{p['array']}[]", p["array"], size) for p, size in _arrays(report)]


def _arrays(report: dict[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """Inputs and outputs that are arrays of the application, with their sizes in bytes, rounded up to words."""
    ports = (port for side in ("inputs", "outputs") for port in report[side] if "array" in port)
    return [(port, -(-port["bytes"] // 4) * 4) for port in ports]


def write_sources(folder: Path, target: Target, artifacts: Sequence[Artifact], report: dict[str, Any], n: int) -> None:
    """Write the model's files, the linker's regions and harness_model.h to `folder`. `n`: number of input vectors."""
    publish((*artifacts, *firmware_support(target)), folder)
    spaces = (f'X(arena_{i}, "{a.symbol}", {a.bytes}u)' for i, a in enumerate(arenas(target, report)))
    if report.get("arena") == "caller":
        report = _called(report)
    cached = [a for a in arenas(target, report) if target.firmware is None and _is_cached(target, a, report)]
    lines = [
        f'#include "{NAME}.h"',
        *(_units(target, report, artifacts) if "hierarchy" in report and target.firmware is None else ()),
        *([f"#define MODEL_CACHED {' '.join(f'X({a.symbol}, {a.bytes}u)' for a in cached)}"] if cached else []),
        *_own_arrays(report),
        *(_own_arena(report) if report.get("arena") == "caller" else ()),
        *(_stream(report) if report.get("stream_rows") else _plain(report)),
        *(_output_rows(report) if report.get("output_rows") else [f"#define MODEL_OUTPUTS {_list(report['outputs'])}"]),
        f"#define MODEL_ARENAS {' '.join(spaces)}",
        f"#define VECTORS {n}",
        f"#define {PROGRAM} {_number(artifacts):#010x}u",
        "",
    ]
    (folder / "harness_model.h").write_text("\n".join(lines), encoding="utf-8", newline="\n")
    for engine in target.engines:
        text = f'#define EB_ENGINE {engine.name}\n#include "../src/engine_model.c"\n'
        (folder / _model_of(engine)).write_text(text, encoding="utf-8", newline="\n")


def _number(artifacts: Sequence[Artifact]) -> int:
    """A checksum of the model's files, by which a board's program identifies its model."""
    return zlib.crc32(b"".join(a.data for a in artifacts))


def _units(target: Target, report: dict[str, Any], artifacts: Sequence[Artifact]) -> list[str]:
    """Macros for the simulated DMA unit: the memories of arenas and weights, and the target's DMA units."""
    blob = next(a.data for a in artifacts if a.name.endswith("_weights.bin"))
    parts = [(a.memory, a.symbol, a.bytes) for a in arenas(target, report)]
    if len(blob) > HEADER:
        parts.append((target.memory("weights").name, f"{NAME}_weights", len(blob)))
    number = {m.name: i for i, m in enumerate(target.memories)}
    words = (f"X({symbol}, {size}u, {number[memory]})" for memory, symbol, size in parts)
    units = (f"X({mask:#x}u, {align}, {largest}u)" for mask, align, largest in dma_units(target))
    return [f"#define MODEL_PARTS {' '.join(words)}", f"#define MODEL_UNITS {' '.join(units)}"]


def dma_units(target: Target) -> list[tuple[int, int, int]]:
    """Per DMA unit: mask of the memories that it connects, by number, its alignment and its largest copy in bytes."""
    number = {m.name: i for i, m in enumerate(target.memories)}
    return [(sum(1 << number[name] for name in dict.fromkeys(d.between)), d.align, d.largest) for d in target.dma]


def _is_cached(target: Target, arena: Arena, report: dict[str, Any]) -> bool:
    return "hierarchy" in report and any(m.cached for m in target.memories if m.name == arena.memory)


def _list(surface: Sequence[dict[str, Any]]) -> str:
    return " ".join(f"X({port['function']}, {port['bytes']}u)" for port in surface)


def _plain(report: dict[str, Any]) -> list[str]:
    invoke = f"{CALLER if report.get('arena') == 'caller' else ''}{NAME}_invoke"
    return [f"#define MODEL_INPUTS {_list(report['inputs'])}", f"#define MODEL_INVOKE {invoke}"]


CALLER = "caller_"  # prefix of the harness's wrappers, which pass its arena to functions of the model


def _called(report: dict[str, Any]) -> dict[str, Any]:
    """The report with the model's functions, which take an arena, replaced by the harness's wrappers."""
    surface = {
        side: [{**port, "function": CALLER + port["function"]} for port in report[side]]
        for side in ("inputs", "outputs")
    }
    return {**report, **surface}


def _own_arrays(report: dict[str, Any]) -> list[str]:
    """Definitions of the application's arrays for inputs and outputs, weak because two files may include them."""
    sizes = [(port, size // np.dtype(port["dtype"]).itemsize) for port, size in _arrays(report)]
    return [f"__attribute__((weak)) {C_TYPES[p['dtype']]} {p['array']}[{count}];" for p, count in sizes]


def _own_arena(report: dict[str, Any]) -> list[str]:
    """The harness's arena, under the symbol that a model's own arena has, and functions that pass it to the model.

    It is defined in assembly, because harness_model.h declares this symbol in MODEL_ARENAS already.
    """
    size, symbol = report["ram"]["arena_bytes"], f"{NAME}_arena"
    assembly = [
        f'.section .bss.edgebuild.{NAME}.arena,\\"aw\\",%nobits',
        ".balign 16",
        f".globl {symbol}",
        f".type {symbol},%object",
        f".size {symbol},{size}",
        f"{symbol}: .zero {max(size, 1)}",
        ".previous",
    ]
    functions = [port["function"].removeprefix(CALLER) for port in (*report["inputs"], *report["outputs"])]
    lines = [f'__asm__("{"; ".join(assembly)}");', f'extern uint8_t caller_arena[] __asm__("{symbol}");']
    for name in functions:
        kind = f"__typeof__({name}((void *)0))"
        lines.append(f"static inline {kind} {CALLER}{name}(void) {{ return {name}(caller_arena); }}")
    lines.append(f"static inline void {CALLER}{NAME}_invoke(void) {{ {NAME}_invoke(caller_arena); }}")
    return lines


def _stream(report: dict[str, Any]) -> list[str]:
    """Code for a streamed input: the harness has it whole and pushes it row by row."""
    (port,) = report["inputs"]
    rows, size = report["stream_rows"], port["bytes"] // report["stream_rows"]
    return [
        f"static int8_t stream_data[{port['bytes']}] __attribute__((aligned(4)));",
        "static int8_t *stream_input(void) { return stream_data; }",
        "static void stream_invoke(void)",
        "{",
        f"    for (int i = 0; i < {rows}; ++i) {{",
        f"        (void){NAME}_push_rows((const void *)(stream_data + i * {size}), 1);",
        "    }",
        "}",
        f"#define MODEL_INPUTS X(stream_input, {port['bytes']}u)",
        "#define MODEL_INVOKE stream_invoke",
    ]


def _output_rows(report: dict[str, Any]) -> list[str]:
    """Code for an output that the model passes on row by row: the harness collects it whole."""
    (port,) = report["outputs"]
    size = port["bytes"] // report["output_rows"]
    return [
        f"static uint8_t rows_data[{port['bytes']}] __attribute__((aligned(8)));",
        "static const uint8_t *rows_output(void) { return rows_data; }",
        f"void {NAME}_output_row(const {C_TYPES[port['dtype']]} *row, int32_t number)",
        "{",
        f"    for (int i = 0; i < {size}; ++i) {{",
        f"        rows_data[number * {size} + i] = ((const uint8_t *)(const void *)row)[i];",
        "    }",
        "}",
        f"#define MODEL_OUTPUTS X(rows_output, {port['bytes']}u)",
    ]


@contextlib.contextmanager
def folder_of(keep: Path | None) -> Iterator[Path]:
    """A folder for a test program: `keep`, without the objects of earlier runs, or a temporary one."""
    if keep is not None:
        own_folder(keep)
        for stale in keep.glob("*.o"):  # objects of an earlier run, perhaps of other sources
            stale.unlink()
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="edgebuild-verify-") as name:
        yield Path(name)


# Run the harness on a target and read what it wrote.


@dataclass(frozen=True)
class Outcome:
    """Results of the program, per input vector, and its measurements; None where the target cannot measure one."""

    outputs: list[list[NDArray[Any]]]
    arenas: list[dict[str, bytes]]  # by memory
    instructions: int | None
    cycles: int | None  # counted, only if the runner counts cycles as silicon does
    stack_bytes: int | None
    arena_touched: int  # bytes
    dma: dict[str, int] | None = None  # copies, bytes and pieces of one inference, counted by the simulated DMA unit

    @property
    def costs(self) -> dict[str, Any]:
        """Figures of one inference, named as `verify` reports them; `dma` only if there was DMA."""
        costs = {"instructions": self.instructions, "stack_bytes": self.stack_bytes}
        return {**costs, "arena_touched_bytes": self.arena_touched, **({"dma": self.dma} if self.dma else {})}


def run_harness(
    elf: Path,
    target: Target,
    inputs: list[list[NDArray[Any]]],
    report: dict[str, Any],
    env: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Run the harness on `inputs` (per vector, one array per input). Raises EdgebuildError if the program fails."""
    folder = elf.parent
    (folder / "input.bin").write_bytes(b"".join(x.tobytes() for vector in inputs for x in vector))
    run_program(elf, target, {"EB_DMA_COUNT": "dma.txt", **env} if "hierarchy" in report else env)
    pairs = (line.split() for line in (folder / "measured.txt").read_text(encoding="ascii").splitlines())
    measured = {name: int(value, 16) for name, value in pairs}
    dma = _dma(folder / "dma.txt", measured, len(inputs)) if "hierarchy" in report else None
    ticks, stack = measured["ticks"], measured["stack"]
    scale = 1e9 / target.runner.tick_hz if target.runner and target.runner.tick_hz else 1.0
    written = (folder / "output.bin").read_bytes()
    outputs, dumps = _split(written, len(inputs), report["outputs"], arenas(target, report))
    bare = target.firmware is not None
    exact = target.runner is not None and target.runner.cycles != ""
    on_board = target.runner is not None and target.runner.port != ""  # its timer counts cycles, not instructions
    instructions = round(ticks * scale) if bare and not on_board else None
    return Outcome(outputs, dumps, instructions, measured["cycles"] or ticks if exact else None,
                   stack if bare else None,
                   measured.get("arena_touched", 0), dma)  # fmt: skip


def _dma(file: Path, measured: Mapping[str, int], invokes: int) -> dict[str, int] | None:
    """Counts of a simulated or real DMA unit per inference. The harness invokes the model once more than per vector."""
    if "copies" in measured:
        numbers = [measured[key] for key in ("copies", "copied_bytes", "pieces")]
    elif file.is_file():
        numbers = [int(word) for word in file.read_text(encoding="ascii").split()]
    else:
        return None
    return {key: n // (invokes + 1) for key, n in zip(("transfers", "bytes", "pieces"), numbers, strict=True)}


def run_program(elf: Path, target: Target, env: Mapping[str, str] = MappingProxyType({})) -> None:
    """Run a program in its folder, by the target's runner or on this machine. Raises EdgebuildError if it fails."""
    if target.runner is not None:
        command = [word.replace("{elf}", elf.name) for word in target.runner.command]
        package, timeout = target.runner.package, target.runner.timeout_s
        if target.runner.port:
            number = re.search(rf"{PROGRAM} (\w+)u", (elf.parent / "harness_model.h").read_text(encoding="utf-8"))
            assert number is not None  # `write_sources` has put it there

            def start() -> None:
                if command:
                    run_tool(command, elf.parent, package)

            run_on_board(target.runner.port, int(number[1], 16), elf.parent, timeout, start)
            return
    else:
        command, package, timeout = [str(elf)], "", 600
    try:
        run_tool(command, elf.parent, package, timeout, env)
    except EdgebuildError as error:
        if type(error) is not EdgebuildError:
            raise
        raise fail(f"the test program failed on {target.name}: {error.diagnostics[0].text}",
                   hints=error.diagnostics[0].hints) from None  # fmt: skip


def _split(
    data: bytes, vectors: int, surface: list[dict[str, Any]], spaces: list[Arena]
) -> tuple[list[list[NDArray[Any]]], list[dict[str, bytes]]]:
    size = sum(port["bytes"] for port in surface) + sum(space.bytes for space in spaces)
    if len(data) != vectors * size:
        raise fail(f"the test program wrote {len(data)} bytes of output, not {vectors} x {size}")
    outputs: list[list[NDArray[Any]]] = []
    dumps: list[dict[str, bytes]] = []
    at = 0
    for _ in range(vectors):
        outputs.append([])
        for port in surface:
            piece = np.frombuffer(data[at : at + port["bytes"]], port["dtype"])
            outputs[-1].append(piece.reshape(port["shape"]))
            at += port["bytes"]
        dumps.append({})
        for space in spaces:
            dumps[-1][space.memory] = data[at : at + space.bytes]
            at += space.bytes
    return outputs, dumps


BEGIN, HEAD, TAIL = b"\xeb", 6, 2
MAX_BYTES = 1 << 20  # bytes of a message
BAUD = 115200
MODES = {1: "rb", 5: "wb"}
PROGRAM = "EB_PROGRAM"  # the macro with the program's number


def split_port(port: str) -> tuple[str, int]:
    """The device and the baud rate of `DEVICE[:BAUD]`. Raises EdgebuildError for a rate that the system lacks."""
    import termios

    device, _, rate = port.rpartition(":")
    if not device or not rate.isdecimal():
        return port, BAUD
    if not hasattr(termios, f"B{rate}"):
        raise fail(f"option 'port': no baud rate {rate}", hints=["such as 9600, 115200, 921600"])
    return device, int(rate)


@contextlib.contextmanager
def opened(port: str) -> Iterator[int]:
    """Open a serial line, raw and exclusively. Raises EdgebuildError if it is busy or no serial line."""
    try:
        import fcntl
        import termios
        import tty
    except ImportError:
        raise fail("option 'port': serial lines are read on Linux and macOS only") from None
    device, rate = split_port(port)
    try:
        line = os.open(device, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        ports = sorted(map(str, Path("/dev").glob("tty[AU][CS][MB]*")))
        hints = [f"ports: {', '.join(ports)}" if ports else "no board is connected by USB"]
        raise from_os(error, "cannot open the port", device, hints) from None
    try:
        fcntl.flock(line, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tty.setraw(line)
        attributes: list[Any] = termios.tcgetattr(line)
        attributes[4] = attributes[5] = getattr(termios, f"B{rate}")
        termios.tcsetattr(line, termios.TCSANOW, attributes)
        termios.tcflush(line, termios.TCIOFLUSH)
    except BlockingIOError:
        os.close(line)
        raise fail(
            "the port is busy", file=device, hints=["end the program that has it open, such as a terminal"]
        ) from None
    except termios.error:
        os.close(line)
        raise fail("this is no serial line", file=device) from None
    try:
        yield line
    finally:
        os.close(line)


class Board:
    """Serves a board program's file requests until it ends. `number`: its EB_PROGRAM. Files are in `folder`."""

    def __init__(self, line: int, port: str, folder: Path, number: int, silence_s: float) -> None:
        self.line, self.port, self.folder, self.number, self.silence_s = line, port, folder, number, silence_s
        self.files: list[BinaryIO] = []
        self.printed = ""
        self.skipped = 0  # bytes outside messages
        self.identified = False  # whether the program has sent its number

    def serve(self) -> int:
        """Answer requests; return the exit status. Raises EdgebuildError for a bad line or another model's program."""
        with contextlib.ExitStack() as stack:
            while True:
                letter, data = self._message()
                if letter == b"X":
                    return int.from_bytes(data, "little")
                if letter == b"H":
                    self._check_program(int.from_bytes(data, "little"))
                    self.identified = True
                elif not self.identified:
                    self._refuse("the board runs already, and this is not its beginning", "reset the board")
                self._send(letter, self._answer(letter, data, stack))

    def _answer(self, letter: bytes, data: bytes, stack: contextlib.ExitStack) -> bytes:
        if letter == b"P":
            self.printed += data.decode("ascii", "replace")
        elif letter == b"O":
            name = Path(data[1:].decode("ascii", "replace")).name
            try:
                self.files.append(stack.enter_context((self.folder / name).open(MODES[data[0]])))  # type: ignore[arg-type]
            except (OSError, KeyError):
                return struct.pack("<i", -1)
            return struct.pack("<i", len(self.files) - 1)
        elif letter in b"RW":
            file, rest = self.files[int.from_bytes(data[:4], "little")], data[4:]
            say(f"{self.port}: {file.tell():,} B of {Path(file.name).name}")
            if letter == b"R":
                return file.read(int.from_bytes(rest, "little"))
            return struct.pack("<i", file.write(rest))
        elif letter == b"C":
            self.files[int.from_bytes(data, "little")].close()
        return struct.pack("<i", 0)

    def _check_program(self, number: int) -> None:
        if number != self.number:
            self._refuse("the board runs the program of another model, target or options",
                         "write this one into its flash: --flash-with 'COMMAND {elf}'")  # fmt: skip

    def _message(self) -> tuple[bytes, bytes]:
        until = time.monotonic() + self.silence_s
        while self._read(1, until) != BEGIN:
            self.skipped += 1
        head = self._read(HEAD - 1, until)
        size = int.from_bytes(head[1:], "little")
        if size > MAX_BYTES:
            self._refuse("what comes is no message", "is the baud rate the board's? --port DEVICE:BAUD")
        data, check = self._read(size, until), self._read(TAIL, until)
        if binascii.crc_hqx(head + data, 0xFFFF) != int.from_bytes(check, "big"):
            self._refuse("bytes were lost or changed on the line", "try a lower baud rate")
        return head[:1], data

    def _read(self, size: int, until: float) -> bytes:
        data = b""
        while len(data) < size:
            ready, _, _ = select.select([self.line], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                self._silent()
            try:
                data += os.read(self.line, size - len(data))
            except OSError as error:
                raise from_os(error, "the port was closed", self.port) from None
        return data

    def _send(self, letter: bytes, data: bytes) -> None:
        head = letter + struct.pack("<I", len(data))
        rest = BEGIN + head + data + binascii.crc_hqx(head + data, 0xFFFF).to_bytes(2, "big")
        while rest:
            select.select([], [self.line], [], self.silence_s)
            rest = rest[os.write(self.line, rest) :]

    def _silent(self) -> NoReturn:
        if self.identified:
            self._refuse(f"the board stopped: nothing more for {self.silence_s:g} seconds", *self.printed.splitlines())
        if self.skipped:
            self._refuse(f"{self.skipped} bytes came and no message: another firmware, or another baud rate",
                         "--port DEVICE:BAUD; default: 115200")  # fmt: skip
        self._refuse(f"nothing came from the board in {self.silence_s:g} seconds",
                     "does it run the test program? --flash-with 'COMMAND {elf}' writes it")  # fmt: skip

    def _refuse(self, text: str, *hints: str) -> NoReturn:
        raise fail(text, file=self.port, hints=hints)


def run_on_board(port: str, number: int, folder: Path, silence_s: float, start: Any) -> None:
    """Open the port, then `start` the program, and serve it until it ends. Raises EdgebuildError if it fails."""
    with opened(port) as line:
        start()
        board = Board(line, split_port(port)[0], folder, number, silence_s)
        status = board.serve()
    if status:
        hints = board.printed.splitlines()
        raise EdgebuildError(*fail(f"the test program ended with status {status}", file=port, hints=hints).diagnostics)
