"""Compile and link test programs around the files of a model."""

from __future__ import annotations

import contextlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...base import programs
from ...base.artifacts import Artifact, own_folder, publish
from ...base.dataclass import dataclass
from ...base.errors import Diagnostic, EdgebuildError, MissingTool, fail
from ...base.firmware import firmware_support, link_flags
from ...base.installation import cmsis_nn_sources
from ...base.levels import Engine
from ...base.target import Target, hal_dir
from ..emit.weights_file import HEADER

NAME = "model"  # the name that compile_model was given
MODEL_SOURCES = (f"{NAME}.c", f"{NAME}_weights.S", f"{NAME}_weights.c")
# Without the last one variables in sections of their own, such as the arena, get no red zones.
SANITIZERS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-fsanitize-sections=.bss.edgebuild.*,.rodata.edgebuild.*",
)


def sources(target: Target, report: dict[str, Any]) -> tuple[Path, ...]:
    """The model's sources, and models of engines and, on the build machine, of a DMA unit, if it moves tiles.

    An engine is a model where the target names no port, and on the build machine where that port is of the hal folder.
    """
    dma = [hal_dir() / "src/dma_model.c"] if "hierarchy" in report and target.firmware is None else []
    used = {row["engine"] for row in report.get("engines", ())}
    mine = [e for e in target.engines if e.name in used]
    ports = [Path(e.port) for e in mine if e.port and target.firmware is None and Path(e.port).is_absolute()]
    modelled = [_model_of(e) for e in mine if not (e.port and (target.firmware or Path(e.port) in ports))]
    return (*map(Path, MODEL_SOURCES), *dma, *ports, *modelled)


def _model_of(engine: Engine) -> Path:
    """The file with a model of an engine, which `write_sources` writes."""
    return Path(f"engine_{engine.name}.c")


@dataclass(frozen=True)
class Builder:
    """Compiles for one target in one folder, which also holds the model's files."""

    target: Target
    folder: Path
    needs_libm: bool
    extra: tuple[str, ...] = ()  # flags for compiling and linking alike: sanitizers
    cmsis_nn: Path | None = None  # its folder, if the model may call it
    name: str = NAME  # of the model

    def program(
        self, name: str, sources: Sequence[Path], special: Mapping[Path, tuple[str, ...]] = MappingProxyType({})
    ) -> Path:
        """Compile `sources` and link them with the target's start-up code to `name`.elf.

        `special`: more sources, each with flags of its own.
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
        """Compile one file, once; return its object's name. `mark` tells apart those with flags of their own."""
        name = f"{source.stem}{'.s' if source.suffix == '.S' else ''}{'.san' if self.extra else ''}{mark}.o"
        if not (self.folder / name).exists():
            flags = self.target.toolchain.cflags + self._libc() + self.extra + special
            flags += (f"-I{(self.cmsis_nn / 'Include').resolve()}",) if self.cmsis_nn else ()
            self._run(*flags, "-I.", f"-I{hal_dir() / 'include'}", "-c", "-o", name, str(source))
        return name

    def _libc(self) -> tuple[str, ...]:
        return self.target.toolchain.libc if self.needs_libm else ()

    def _run(self, *arguments: str) -> None:
        run_tool((self.target.toolchain.compiler, *arguments), self.folder, self.target.toolchain.package)


def run_tool(
    command: Sequence[str],
    folder: Path,
    package: str,
    timeout: float = 600,
    env: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Run a program in `folder`; return its standard output.

    Raises MissingTool where it is not installed, EdgebuildError with the end of its output where it fails.
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


def too_large(error: EdgebuildError, target: str) -> EdgebuildError | None:
    """An error in one sentence where the linker says that a program is larger than a memory; None: it says otherwise.

    The model itself has been held against the target's memories before.
    """
    said = "\n".join(error.diagnostics[0].hints)
    over = re.search(r"region [`'](\w+)' overflowed by (\d+) bytes", said)
    if over is None:
        return None
    hints = ["it holds more than the model: a streamed input whole, its own code and buffers",
             "verify on a target of the same core that has more memory"]  # fmt: skip
    return fail(f"the test program does not fit into {over[1]} of {target}: {over[2]} B too many", hints=hints)


@dataclass(frozen=True)
class Arena:
    """The arena in one memory: its symbol in the program, its bytes."""

    memory: str
    symbol: str
    bytes: int


def arenas(target: Target, report: dict[str, Any]) -> list[Arena]:
    """In the target's order. The first memory in use has the plain name, the others their memory's behind it."""
    sizes: dict[str, int] = report["ram"]["by_memory"]
    used = [m.name for m in target.memories if sizes.get(m.name)]
    return [Arena(m, f"{NAME}_arena{f'_{m.lower()}' if i else ''}", sizes[m]) for i, m in enumerate(used)]


def write_sources(folder: Path, target: Target, artifacts: Sequence[Artifact], report: dict[str, Any], n: int) -> None:
    """Put the model's files, the linker's regions and the harness's description into `folder`; `n`: input vectors."""
    publish((*artifacts, *firmware_support(target)), folder)
    spaces = (f'X(arena_{i}, "{a.symbol}", {a.bytes}u)' for i, a in enumerate(arenas(target, report)))
    if report.get("arena") == "caller":
        report = _called(report)
    cached = [a for a in arenas(target, report) if target.firmware is None and _is_cached(target, a, report)]
    lines = [
        f'#include "{NAME}.h"',
        *(_units(target, report, artifacts) if "hierarchy" in report and target.firmware is None else ()),
        *([f"#define MODEL_CACHED {' '.join(f'X({a.symbol}, {a.bytes}u)' for a in cached)}"] if cached else []),
        *(_own_arena(report) if report.get("arena") == "caller" else ()),
        *(_stream(report) if report.get("stream_rows") else _plain(report)),
        f"#define MODEL_OUTPUTS {_list(report['outputs'])}",
        f"#define MODEL_ARENAS {' '.join(spaces)}",
        f"#define VECTORS {n}",
        "",
    ]
    (folder / "harness_model.h").write_text("\n".join(lines), encoding="utf-8")
    for engine in target.engines:
        text = f'#define EB_ENGINE {engine.name}\n#include "../src/engine_model.c"\n'
        (folder / _model_of(engine)).write_text(text, encoding="utf-8")


def _units(target: Target, report: dict[str, Any], artifacts: Sequence[Artifact]) -> list[str]:
    """Tell the model of a DMA unit which memories arenas and weights are in, and which units there are."""
    blob = next(a.data for a in artifacts if a.name.endswith("_weights.bin"))
    parts = [(a.memory, a.symbol, a.bytes) for a in arenas(target, report)]
    if len(blob) > HEADER:
        parts.append((target.memory("weights").name, f"{NAME}_weights", len(blob)))
    number = {m.name: i for i, m in enumerate(target.memories)}
    words = (f"X({symbol}, {size}u, {number[memory]})" for memory, symbol, size in parts)
    units = (f"X({mask:#x}u, {align}, {largest}u)" for mask, align, largest in dma_units(target))
    return [f"#define MODEL_PARTS {' '.join(words)}", f"#define MODEL_UNITS {' '.join(units)}"]


def dma_units(target: Target) -> list[tuple[int, int, int]]:
    """Of each DMA unit a mask of the memories that it joins, by their numbers, its alignment and its largest copy."""
    number = {m.name: i for i, m in enumerate(target.memories)}
    return [(sum(1 << number[name] for name in dict.fromkeys(d.between)), d.align, d.largest) for d in target.dma]


def _is_cached(target: Target, arena: Arena, report: dict[str, Any]) -> bool:
    return "hierarchy" in report and any(m.cached for m in target.memories if m.name == arena.memory)


def _list(surface: Sequence[dict[str, Any]]) -> str:
    return " ".join(f"X({port['function']}, {port['bytes']}u)" for port in surface)


def _plain(report: dict[str, Any]) -> list[str]:
    invoke = f"{CALLER if report.get('arena') == 'caller' else ''}{NAME}_invoke"
    return [f"#define MODEL_INPUTS {_list(report['inputs'])}", f"#define MODEL_INVOKE {invoke}"]


CALLER = "caller_"  # in front of a function of a model that takes the arena: the harness gives it one


def _called(report: dict[str, Any]) -> dict[str, Any]:
    """The report with functions of the harness, which need no arena, in place of the model's."""
    surface = {
        side: [{**port, "function": CALLER + port["function"]} for port in report[side]]
        for side in ("inputs", "outputs")
    }
    return {**report, **surface}


def _own_arena(report: dict[str, Any]) -> list[str]:
    """An arena of the harness, under the symbol that a model's own has, and functions that hand it on.

    In assembly, because the harness knows this memory as the arena of its first memory already.
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
    """A model whose input is brought row by row: an application that has it whole, and pushes it."""
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
