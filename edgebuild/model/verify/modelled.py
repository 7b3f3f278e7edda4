"""Modelled cycles of one inference, from what the simulator executed.

A table of the core says what blocks of code take, and what leads from one to the next: cycles.py for Arm, in_order.py
for RISC-V. Contention on buses is not part of the models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ...base.errors import fail
from ...base.facts import read_facts
from ...base.target import Flash, Target, hal_dir
from .cycles import Block, Caches, CycleTable, Shape, Step
from .execution import Execution, execute
from .in_order import PipelineTable


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
    """Of the model's function in this program, which runs it once: cycles, those of them for flash, and by what.

    Raises EdgebuildError for a core without a table, MissingTool without the simulator.
    """
    core = model_of(target)
    run = execute(elf, target, _caches(core, target, flash))
    waited = _waited(run.steps[-1], flash)
    return _cost(core, run, run.steps[-1]) + waited, waited, f"{core.core}: {core.source}"


def cycles_by_step(elf: Path, target: Target, flash: Flash | None = None) -> list[int]:
    """The same from each call of `eb_layer` in the program of harness/layers.c on, those for flash included."""
    core = model_of(target)
    run = execute(elf, target, _caches(core, target, flash), by_step=True)
    return [_cost(core, run, step) + _waited(step, flash) for step in run.steps[1:]]


def _caches(core: CoreModel, target: Target, flash: Flash | None) -> Caches:
    """Those of the core, or the lines that are kept of flash."""
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
