"""Which targets a model fits: arena, flash, modelled time and energy of many targets, without a compiler.

A plan depends on a core's instruction set and on the memories that it has to fit into. So targets share plans: those
whose first memory has room for every plan that is looked at, by instruction set, and others by their memories as well.
Arenas are those of `edgebuild model`; bytes of code are estimated from the C that would be printed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from math import ceil, inf
from typing import Any

from ...base.errors import EdgebuildError, did_you_mean, fail
from ...base.request import ModelRequest
from ...base.target import Memory, Target, load_target, target_names
from ...clock.emit import target_tree
from ..clocked import power_model
from ..emit.code import source
from ..emit.program import program as make_program
from ..ir import Graph
from ..kernels.core_cycles import cycles_of
from ..plan.choose import plan
from ..plan.search import Orders, Plan, arena_memories
from ..plan.section import cost
from .code_size import program_bytes

AMPLE = 1 << 30  # bytes of a memory in which nothing is scarce
CYCLES = "times: cycles of the core, estimated within about 12 %, at its highest clock, without wait states"


@dataclass(frozen=True)
class FitRow:
    """A target, and what a model takes of it. None: not known, or there is no plan.

    `short_of`: by `ram_bytes`, `flash_bytes` and `time_us`, the amount that is missing; None where only a model of the
    core could say it. Empty if the model fits.
    """

    target: Target
    arena_bytes: int | None = None
    flash_bytes: int | None = None
    time_us: float | None = None
    energy_uj: float | None = None
    tiled: bool = False
    short_of: Mapping[str, int | None] = field(default_factory=dict)

    @property
    def fits(self) -> bool:
        return not self.short_of

    @cached_property
    def ram(self) -> int:
        """Bytes of the memories that activations may lie in, less the stack."""
        stack = self.target.firmware.stack if self.target.firmware else 0
        return sum(m.size for m in _ram(self.target)) - stack

    @cached_property
    def flash(self) -> int:
        """Bytes of the memories of code and weights."""
        return sum(m.size for m in dict.fromkeys((self.target.memory("code"), self.target.memory("weights"))))


def _ram(target: Target) -> list[Memory]:
    return [m for m in target.memories if "arena" in m.roles and m.access == "cpu"]


@dataclass(frozen=True)
class _Sizes:
    """A plan, and the bytes that its program takes of flash."""

    plan: Plan
    code: int
    weights: int


@dataclass
class Fit:
    """A model and the plans of it that were made so far."""

    graph: Graph
    request: ModelRequest
    plans: dict[object, _Sizes | EdgebuildError] = field(default_factory=dict)
    leasts: dict[object, int] = field(default_factory=dict)
    orders: Orders = field(default_factory=dict)

    def row(self, target: Target) -> FitRow:
        """Of one target. Raises EdgebuildError for what is wrong with the model or the request, whatever the target."""
        sizes = self._sizes(target)
        if isinstance(sizes, int):
            return FitRow(target, short_of={"ram_bytes": sizes, **self._flash_short(target)})
        time = time_us(sizes.plan, target)
        short = _flash_missing(target, sizes.code, sizes.weights) | self._late(time)
        return FitRow(
            target,
            sizes.plan.arena_bytes,
            sizes.code + sizes.weights,
            time,
            _energy(target, self.request, time),
            sizes.plan.tiled,
            short,
        )

    def _plan(self, target: Target, request: ModelRequest) -> Plan:
        """Targets of one core share the order of ops and all cuts of it."""
        return plan(self.graph, target, request, orders=self.orders)

    def _late(self, time: float | None) -> dict[str, int | None]:
        """The time by which the strictest budget is missed."""
        budgets = self.request.qos if isinstance(self.request.qos, tuple) else (self.request.qos,)
        budget = min((b * 1000 for b in budgets if b is not None), default=inf)
        if budget == inf or (time is not None and time <= budget):
            return {}
        return {"time_us": None if time is None else ceil(time - budget)}

    def _flash_short(self, target: Target) -> dict[str, int | None]:
        """Bytes of flash that are missing whatever the plan: those of the constants, with the code of another plan."""
        ample = self._ample(target)
        return _flash_missing(target, ample.code, ample.weights)

    def _sizes(self, target: Target) -> _Sizes | int:
        """Of the plan for a target; bytes of RAM that are missing if there is none."""
        ample, memories = self._ample(target), arena_memories(self.graph, target, self.request)
        first = memories[0].capacity or AMPLE
        if max(ample.plan.untiled_bytes, ample.plan.arena_bytes) <= first and _peaks(ample.plan) <= first:
            return ample
        room = sum(m.capacity or 0 for m in memories)
        if (least := self._least(target)) > room:
            return least - room
        key = target.words, memories
        if key not in self.plans:
            try:
                self.plans[key] = _measured(self._plan(target, replace(self.request, target=target.name)))
            except EdgebuildError as refusal:
                self.plans[key] = refusal
        sizes = self.plans[key]
        return max(1, least - max(m.capacity or 0 for m in memories)) if isinstance(sizes, EdgebuildError) else sizes

    def _ample(self, target: Target) -> _Sizes:
        """Of the plan for the target's core with memory for everything."""
        if target.words not in self.plans:
            self.plans[target.words] = _measured(self._plan(_unlimited(target), self.request))
        sizes = self.plans[target.words]
        assert isinstance(sizes, _Sizes)
        return sizes

    def _least(self, target: Target) -> int:
        """The smallest arena that is found for the target's core by the options that a default compilation tries."""
        if target.words not in self.leasts:
            small = replace(self.request, objective="ram", tile="rolling", max_mac_overhead=0)
            self.leasts[target.words] = self._plan(_unlimited(target), small).arena_bytes
        return self.leasts[target.words]


def _peaks(decided: Plan) -> int:
    """The largest peak among the plans that run every op by itself: all are looked at where nothing is tiled."""
    return max(decided.cutter.profile(decided.cutter.untiled), default=0)


def _unlimited(target: Target) -> Target:
    memories = (replace(m, size=AMPLE + (m.size if "stack" in m.roles else 0)) for m in target.memories)
    return replace(target, memories=tuple(memories))


def _measured(decided: Plan) -> _Sizes:
    program = make_program(decided)
    code = program_bytes(source(program), decided.target)
    return _Sizes(decided, code, program.weights.linked_bytes)


def time_us(decided: Plan, target: Target) -> float | None:
    """Estimated time of an inference at the target's highest clock; None where its clock or its core has no figure."""
    cycles = cycles_of(target, cost(decided.steps))
    return cycles / target.clock_hz * 1e6 if cycles is not None and target.clock_hz else None


def _flash_missing(target: Target, code: int, weights: int) -> dict[str, int | None]:
    """Bytes that are missing in the memories of code and weights together."""
    homes = target.memory("code"), target.memory("weights")
    if homes[0] is homes[1]:
        missing = code + weights - homes[0].size
    else:
        missing = max(code - homes[0].size, 0) + max(weights - homes[1].size, 0)
    return {"flash_bytes": missing} if missing > 0 else {}


def _energy(target: Target, request: ModelRequest, time_us: float | None) -> float | None:
    """Energy of an inference at the highest clock, where the clock tree states currents."""
    if time_us is None or not target.clocks or target_tree(target).power is None:
        return None
    try:
        model = power_model(target, replace(request, calibration=None, hse=None))
    except EdgebuildError:
        return None
    fastest = max(model.plan.configs, key=lambda config: config.sysclk_hz)
    return time_us * model.run_mw(fastest) / 1000


def best_first(rows: Iterable[FitRow]) -> list[FitRow]:
    """Those that fit, the chip of least memory first and the faster of equals; then the others, the nearest first.

    A byte of RAM counts as four of flash, which is about their price on a chip.
    """

    def rank(row: FitRow) -> tuple[object, ...]:
        if row.fits:
            return 0, 4 * row.ram + row.flash, row.time_us or 0.0, row.target.name
        return 1, sum(n or 0 for n in row.short_of.values()), row.target.name, ""

    return sorted(rows, key=rank)


def chosen_targets(patterns: str | None) -> list[Target]:
    """Targets by names, patterns and files, separated by commas; None: all that state a clock.

    Raises EdgebuildError for a pattern that no target fits.
    """
    if patterns is None:
        return [target for name in target_names() if (target := load_target(name)).clock_hz]
    names, chosen = target_names(), dict[str, None]()
    for pattern in filter(None, (word.strip() for word in patterns.split(","))):
        is_path = "/" in pattern or pattern.endswith((".yaml", ".yml"))
        fitting = [pattern] if is_path else [name for name in names if fnmatchcase(name, pattern)]
        if not fitting:
            hints = ["`edgebuild targets` lists them; patterns are as in 'stm32f4*'"]
            raise fail(f"option 'targets': no target fits '{pattern}'{did_you_mean(pattern, names)}", hints=hints)
        chosen |= dict.fromkeys(fitting)
    if not chosen:
        raise fail("option 'targets': no target is named", hints=["such as --targets 'nrf5*,rp2040'"])
    return [load_target(name) for name in chosen]


# ---- The rows as a table and as JSON


SCHEMA = 1
BEST = 3  # rows that stand first by themselves
UNITS = {"ram_bytes": ("RAM", "B"), "flash_bytes": ("flash", "B"), "time_us": ("time", "us")}


def as_json(rows: Sequence[FitRow], request: ModelRequest) -> str:
    """All rows in their order. What is not known is null; `short_of` is empty for a target that fits."""
    data = {
        "schema": SCHEMA,
        "model": request.source.name,
        "basis": {"arena_bytes": "as compiled", "flash_bytes": "code estimated", "time_us": CYCLES},
        "rows": [_row(row) for row in rows],
    }
    return json.dumps(data, indent=1) + "\n"


def _row(row: FitRow) -> dict[str, Any]:
    return {
        "target": row.target.name,
        "description": row.target.description,
        "fits": row.fits,
        "arena_bytes": row.arena_bytes,
        "flash_bytes": row.flash_bytes,
        "time_us": _rounded(row.time_us),
        "energy_uj": _rounded(row.energy_uj),
        "tiled": row.tiled,
        "ram_bytes": row.ram,
        "rom_bytes": row.flash,
        "short_of": dict(row.short_of),
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)


def as_text(rows: Sequence[FitRow], request: ModelRequest, short: bool) -> str:
    """A line for each row, the best by themselves first; `short`: without head and end."""
    fitting = sum(row.fits for row in rows)
    width = max((len(row.target.name) for row in rows), default=6)
    head = f"  {'target':{width}} {'arena':>9} {'of RAM':>6} {'flash':>10} {'of':>5} {'ms':>9} {'uJ':>9}"
    lines = [] if short else [f"{request.source.name}: fits {fitting} of {len(rows)} targets"]
    lines.append(head)
    lines += [_line(row, width) for row in rows[:BEST]]
    lines += ["", *(_line(row, width) for row in rows[BEST:])] if len(rows) > BEST else []
    if not short:
        lines += ["", f"{CYCLES}; energy: at that clock", "first: the chips of least memory that the model fits"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _line(row: FitRow, width: int) -> str:
    words = [f"{row.arena_bytes:>9,} {_share(row.arena_bytes, row.ram)}" if row.arena_bytes is not None else " " * 16]
    words += [f"{row.flash_bytes:>10,} {_share(row.flash_bytes, row.flash, 5)}" if row.flash_bytes else " " * 16]
    words.append(f"{row.time_us / 1000:>9.2f}" if row.time_us is not None else " " * 9)
    words.append(f"{row.energy_uj:>9.1f}" if row.energy_uj is not None else " " * 9)
    missing = [
        f"{UNITS[key][0]} by {n:,} {UNITS[key][1]}" if n is not None else f"a model of {UNITS[key][0]}"
        for key, n in row.short_of.items()
    ]
    note = f"short of {', '.join(missing)}" if missing else "tiled" if row.tiled else ""
    return f"{'+' if row.fits else '-'} {row.target.name:{width}} {' '.join(words)}  {note}"


def _share(part: int, whole: int, width: int = 6) -> str:
    return f"{100 * part / max(whole, 1):.0f}%".rjust(width)
