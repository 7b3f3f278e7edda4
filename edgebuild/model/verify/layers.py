"""Instructions of each step of a model, counted while its test program runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...base.artifacts import Artifact
from ...base.errors import fail
from ...base.target import Flash, hal_dir
from .execution import cycles_by_step
from .harness import Builder, run_program, sources, write_sources
from .vectors import random_inputs

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
