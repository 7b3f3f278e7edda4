"""The fuzzer's work in units, each a function of its name: so that they run side by side, and a run can go on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import clusters, judged
from .hostile import USES
from .machine import machine
from .networks import Case, Tally, beside, drawn, keep, smaller, sweep
from .others import damaged_file, driver_programs, hostile_names, mutants_of_drivers, plan_of_energy
from .recipe import FORMS
from .wire import PORTS, STREAMS, harmed_streams

# Between whose memories a DMA unit moves tiles.
LEVELS = ("mps2-an521", "pulp-cluster", "gap8", "gap8-model", "diana-model")
TARGETS = ("microbit", "mps2-an385", "mps2-an386", "m4-flash-model", "mps2-an500", "mps2-an505", "mps3-an547",
           "riscv-virt", "cv32e40p", "ri5cy", *LEVELS)  # fmt: skip
PROGRAMS = 25  # drivers that are built together
NAMED = 100  # hostile names, in as many models or descriptions as that takes
DAMAGED = 50  # copies of one model, each damaged in another way
MUTANTS = 50  # faults in the generated code of one driver


@dataclass(frozen=True)
class Unit:
    """`part`: networks, layers or one of `OTHERS`; `form`, `blocks`: of networks; `targets`: where a network runs."""

    part: str
    seed: int
    form: str = ""
    targets: tuple[str, ...] = ()
    blocks: int = 0  # as `draw` takes them

    @property
    def name(self) -> str:
        size = [f"of {self.blocks} blocks"] if self.blocks else []
        return " ".join([self.part, str(self.seed), self.form, *self.targets, *size]).strip()


@dataclass
class Result:
    """Findings of a unit. `failures`: kind, how to see it again, text; `causes`: equal for alike ones."""

    unit: str
    runs: int = 0
    networks: int = 0
    streams: int = 0
    equal_plans: int = 0
    programs: dict[str, int] = field(default_factory=dict)  # built and run, by target and mode
    planned: dict[str, int] = field(default_factory=dict)  # run on values alone
    refused: dict[str, int] = field(default_factory=dict)
    mutants: dict[str, int] = field(default_factory=dict)  # refuted, unknown, alike; verdicts; clusters that ran
    failures: list[dict[str, str]] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)


def networks(
    seed: int, count: int, forms: Sequence[str], targets: Sequence[str] | None, blocks: int = 0
) -> Iterator[Unit]:
    """`targets`: None: the host, and of the others each in its turn."""
    for i, (number, form) in enumerate((n, f) for n in range(seed, seed + count) for f in forms):
        yield Unit("networks", number, form, tuple(targets or ("host", TARGETS[i % len(TARGETS)])), blocks)


def layers(seed: int, count: int, forms: Sequence[str], targets: Sequence[str] | None) -> Iterator[Unit]:
    """`count` programs of layers side by side, of all forms together. `targets`: None: two of them, in turn."""
    for i in range(count):
        pair = TARGETS[i % len(TARGETS)], TARGETS[(i + 1) % len(TARGETS)]
        yield Unit("layers", seed + i, forms[i % len(forms)], tuple(targets or pair))


def others(part: str, seed: int, count: int) -> Iterator[Unit]:
    """`count` programs, plans, faults, names, damaged files of each form, or times `STREAMS` streams over all ports."""
    each, forms = {
        "drivers": (PROGRAMS, [""]),
        "damaged": (DAMAGED, list(FORMS)),
        "energy": (1, ["tflite"]),
        "wire": (len(PORTS), list(PORTS)),
        "names": (NAMED, list(USES)),
        "mutants": (MUTANTS, [""]),
        "judge": (1, list(judged.FORMS)),
        "clusters": (1, list(clusters.FORMS)),
    }[part]
    for number in range(seed, seed - (-count // each)):
        yield from (Unit(part, number, form) for form in forms)


def run(unit: Unit, folder: Path, common: frozenset[str] = frozenset(), most: int = 0) -> Result:
    """`most`: programs for each network and machine; 0: all.

    `common`: causes that were seen often; failures of these are kept as they are, for making them small takes time.

    `folder`: cases go into it, scratch files into a place of this process.
    """
    place, result = folder / f"worker_{os.getpid()}", Result(unit.name)
    if unit.part in OTHERS:
        for trouble in OTHERS[unit.part](unit, place / unit.part, result.mutants):
            result.failures.append({"kind": trouble.kind, "command": trouble.command, "text": trouble.text})
        result.streams = STREAMS if unit.part == "wire" else 0
        return result
    tally = Tally()
    machines = [machine(t, place) for t in unit.targets]
    if unit.part == "layers":
        beside(unit.form, unit.seed, machines, place, tally)
    else:
        sweep(drawn(unit.form, unit.seed, unit.blocks), machines, place, tally, most)
    result.runs, result.networks, result.equal_plans = tally.runs, tally.networks, tally.same
    result.refused, result.programs, result.planned = tally.refused, dict(tally.programs), dict(tally.planned)
    for case in tally.cases:
        cause = f"{case.failure.cause} {case.target}"
        small = case if cause in common else smaller(case, machine(case.target, place), place / "small")
        result.failures.append(_kept(keep(small, folder / "cases")))
        result.causes.append(cause)
    return result


def _kept(case: Case) -> dict[str, str]:
    text = f"{case.recipe.described()}\n{case.failure.where}\n{case.failure.text}"
    return {"kind": case.failure.kind, "command": case.command, "text": text}


OTHERS: dict[str, Callable[[Unit, Path, dict[str, int]], Iterator[Any]]] = {
    "drivers": lambda unit, place, scores: driver_programs(unit.seed, PROGRAMS, place),
    "damaged": lambda unit, place, scores: damaged_file(unit.form, unit.seed, DAMAGED, place),
    "energy": lambda unit, place, scores: plan_of_energy(unit.seed, place),
    "wire": lambda unit, place, scores: harmed_streams(unit.form, unit.seed, place),
    "names": lambda unit, place, scores: hostile_names(unit.form, unit.seed, NAMED, place),
    "mutants": lambda unit, place, scores: mutants_of_drivers(unit.seed, MUTANTS, place, scores),
    "judge": lambda unit, place, scores: judged.verdicts(unit.form, unit.seed, place, scores),
    "clusters": lambda unit, place, scores: clusters.distributed(unit.form, unit.seed, place, scores),
}
