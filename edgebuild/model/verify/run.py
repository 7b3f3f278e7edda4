"""Run the harness on a target and read what it wrote."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.dataclass import dataclass
from ...base.errors import EdgebuildError, fail
from ...base.target import Target
from .harness import Arena, arenas, run_tool


@dataclass(frozen=True)
class Outcome:
    """Results of the program, per input vector, and its measurements. None: not measurable there."""

    outputs: list[list[NDArray[Any]]]
    arenas: list[dict[str, bytes]]  # by memory
    instructions: int | None
    cycles: int | None  # counted, where the runner's are those of silicon
    stack_bytes: int | None
    arena_touched: int
    dma: dict[str, int] | None = None  # copies, bytes and pieces of one inference, as the model of a DMA unit counted


def run_harness(
    elf: Path,
    target: Target,
    inputs: list[list[NDArray[Any]]],
    report: dict[str, Any],
    env: Mapping[str, str] = MappingProxyType({}),
) -> Outcome:
    """Run the harness program on `inputs` (per vector, one array per input of the model)."""
    folder = elf.parent
    (folder / "input.bin").write_bytes(b"".join(x.tobytes() for vector in inputs for x in vector))
    run_program(elf, target, {"EB_DMA_COUNT": "dma.txt", **env} if "hierarchy" in report else env)
    measured = _measured(folder / "measured.txt")
    dma = _dma(folder / "dma.txt", measured, len(inputs)) if "hierarchy" in report else None
    ticks, stack = measured["ticks"], measured["stack"]
    scale = 1e9 / target.runner.tick_hz if target.runner and target.runner.tick_hz else 1.0
    written = (folder / "output.bin").read_bytes()
    outputs, dumps = _split(written, len(inputs), report["outputs"], arenas(target, report))
    bare = target.firmware is not None
    exact = target.runner is not None and target.runner.cycles != ""
    return Outcome(outputs, dumps, round(ticks * scale) if bare else None, measured["cycles"] if exact else None,
                   stack if bare else None,
                   measured.get("arena_touched", 0), dma)  # fmt: skip


def _dma(file: Path, measured: Mapping[str, int], invokes: int) -> dict[str, int] | None:
    """Counts of a DMA unit, modelled or running; the harness invokes the model once a vector, and once more."""
    if "copies" in measured:
        numbers = [measured[key] for key in ("copies", "copied_bytes", "pieces")]
    elif file.is_file():
        numbers = [int(word) for word in file.read_text(encoding="ascii").split()]
    else:
        return None
    return {key: n // (invokes + 1) for key, n in zip(("transfers", "bytes", "pieces"), numbers, strict=True)}


def run_program(elf: Path, target: Target, env: Mapping[str, str] = MappingProxyType({})) -> None:
    """Run a program in its folder, by the target's runner or here. Raises EdgebuildError where it fails."""
    if target.runner is not None:
        command = [word.replace("{elf}", elf.name) for word in target.runner.command]
        package, timeout = target.runner.package, target.runner.timeout_s
    else:
        command, package, timeout = [str(elf)], "", 600
    try:
        run_tool(command, elf.parent, package, timeout, env)
    except EdgebuildError as error:
        if type(error) is not EdgebuildError:
            raise
        raise fail(f"the test program failed on {target.name}: {error.diagnostics[0].text}",
                   hints=error.diagnostics[0].hints) from None  # fmt: skip


def _measured(file: Path) -> dict[str, int]:
    pairs = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return {name: int(value, 16) for name, value in pairs}


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
