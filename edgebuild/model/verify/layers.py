"""Instructions of each step of a model, counted while its test program runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...base.artifacts import Artifact
from ...base.errors import fail
from ...base.target import hal_dir
from .build import MODEL_SOURCES, Builder, write_sources
from .cycles import cycles_by_step
from .oracles import random_inputs
from .run import run_program

EMPTY = 64  # in layers.c
# The model's functions call the counter when they come and go. Helpers are part of the kernel that uses them.
HOOKS = ("-finstrument-functions", "-finstrument-functions-exclude-function-list=eb_,__")


def layers(
    model_path: Path, artifacts: Sequence[Artifact], report: dict[str, Any], builder: Builder, by_cycles: bool = False
) -> list[dict[str, Any]]:
    """`ops` (names), `kinds`, `calls`, `macs` and `instructions` of every step, in the order of the schedule.

    The test program is made by `builder`, in its folder. A tick of the counter is up to 64 instructions on Cortex-M,
    so steps of fewer than a few thousand are known roughly. `by_cycles`: modelled `cycles` as well, without those for
    which the core waits for flash. Raises EdgebuildError for a target whose instructions cannot be counted.
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
    model, *rest = (Path(name) for name in MODEL_SOURCES)
    hal = [hal_dir() / name for name in ("harness/layers.c", "src/counter.c", *target.runner.sources)]
    elf = builder.program("layers", [*rest, *hal], {model: HOOKS})
    run_program(elf, target)
    *ticks, empty, empties = np.frombuffer((folder / "layers.bin").read_bytes(), "<u4").astype(float).tolist()
    scale = 1e9 / target.runner.tick_hz if target.runner.tick_hz else 1.0
    modelled = [{"cycles": n} for n in cycles_by_step(elf, target)[: len(steps)]] if by_cycles else [{} for _ in steps]
    found = []
    for step, taken, cycles in zip(steps, ticks, modelled, strict=True):
        inner = step["calls"] if step["calls"] > 1 else 0  # of a rolled run: functions called by the step's own
        counted = (taken - empty - inner * (empties - empty) / EMPTY) * scale
        figures = {"instructions": round(counted), **cycles}
        found.append({key: step[key] for key in ("ops", "kinds", "calls", "macs")} | figures)
    return found
