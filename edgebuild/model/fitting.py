"""Which targets a model fits: arena, flash, modelled time and energy of many targets, without a compiler.

A plan depends on a core's instruction set and on the memories that it has to fit into. So targets share plans: by
instruction set if their first memory has room for every plan that is tried, else by instruction set and memories.
Arenas are those of `edgebuild model`; bytes of code are estimated from the C that would be printed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from math import ceil, inf
from typing import Any

from ..base.errors import EdgebuildError, did_you_mean, fail
from ..base.progress import say
from ..base.request import ModelRequest
from ..base.target import Target, load_target, target_names
from ..base.workers import results
from ..clock.emit import target_tree
from .clocked import power_model
from .emit.code import program as make_program
from .emit.code import source
from .emit.report import level_steps
from .ir import Graph
from .kernels import cycles_of
from .plan.choose import plan
from .plan.dma.assembly import check_request, mapped_plan, with_dma_memories
from .plan.dma.levels import unstated_energies
from .plan.search import Orders, Plan, arena_memories
from .plan.section import cost
from .program_size import program_bytes

AMPLE = 1 << 30  # bytes of a memory that holds every plan
CYCLES = "times: cycles of the core, estimated within about 12 %, at its highest clock, without wait states"


@dataclass(frozen=True)
class FitRow:
    """A target, and the memory, time and energy of a model on it. None: there is no figure, or no plan.

    `short_of`: by `ram_bytes`, `flash_bytes` and `time_us`, the amount that is missing; None if the core has no timing
    model. Empty if the model fits.
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
        return sum(m.size for m in self.target.memories if "arena" in m.roles and m.access == "cpu") - stack

    @cached_property
    def flash(self) -> int:
        """Bytes of the memories of code and weights."""
        return sum(m.size for m in dict.fromkeys((self.target.memory("code"), self.target.memory("weights"))))


@dataclass(frozen=True)
class _Sizes:
    """A plan, and the bytes of flash of its program: code and weights."""

    plan: Plan
    code: int
    weights: int


@dataclass
class Fit:
    """A model, its request, and its plans so far, which targets share."""

    graph: Graph
    request: ModelRequest
    plans: dict[object, _Sizes | EdgebuildError] = field(default_factory=dict)
    leasts: dict[object, int] = field(default_factory=dict)
    orders: Orders = field(default_factory=dict)

    def row(self, target: Target) -> FitRow:
        """The row of one target. Raises EdgebuildError if the model or the request is invalid on any target."""
        sizes = self._sizes(target)
        if isinstance(sizes, int):
            ample = self._ample(target)  # flash of another plan, as there is none: it depends little on the plan
            missing = _flash_missing(target, ample.code, ample.weights)
            return FitRow(target, short_of={"ram_bytes": sizes, **missing})
        time = time_us(sizes.plan, target)
        short = _flash_missing(target, sizes.code, sizes.weights) | self._late(time)
        return FitRow(
            target,
            sizes.plan.arena_bytes,
            sizes.code + sizes.weights,
            time,
            self._levels_uj(target) or _energy(target, self.request, time),
            sizes.plan.tiled,
            short,
        )

    def _plan(self, target: Target, request: ModelRequest) -> Plan:
        """The plan for a target. Targets of one core share the order of ops and all its cuts."""
        return plan(self.graph, target, request, orders=self.orders)

    def _levels_uj(self, target: Target) -> float | None:
        """Energy in uJ of an inference with `--map layer`; None if the target does not state those of its levels."""
        on_engines = [unstated_energies(target, [e]) for e in target.engines]
        if len(target.levels) < 2 or not target.dma or any((unstated_energies(target), *on_engines)):
            return None
        request = replace(self.request, target=target.name, map="layer", tile="off")
        try:
            check_request(target, request)
            steps = level_steps(mapped_plan(self.graph, with_dma_memories(target), request))
        except EdgebuildError:
            return None
        return sum(row["energy_uj"] for row in steps)

    def _late(self, time: float | None) -> dict[str, int | None]:
        """Microseconds above the strictest budget, as `short_of` has them."""
        budgets = self.request.qos if isinstance(self.request.qos, tuple) else (self.request.qos,)
        budget = min((b * 1000 for b in budgets if b is not None), default=inf)
        if budget == inf or (time is not None and time <= budget):
            return {}
        return {"time_us": None if time is None else ceil(time - budget)}

    def _sizes(self, target: Target) -> _Sizes | int:
        """Sizes of the plan for a target; bytes of RAM that are missing if there is none."""
        ample, memories = self._ample(target), arena_memories(self.graph, target, self.request)
        first = memories[0].capacity or AMPLE
        cutter = ample.plan.cutter  # with `--tile off` all plans of single ops are tried
        peak = max(cutter.profile(cutter.untiled), default=0)
        if max(ample.plan.untiled_bytes, ample.plan.arena_bytes, peak) <= first:
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
        """Sizes of the plan for the target's core with memory for everything."""
        if target.words not in self.plans:
            self.plans[target.words] = _measured(self._plan(_unlimited(target), self.request))
        sizes = self.plans[target.words]
        assert isinstance(sizes, _Sizes)
        return sizes

    def _least(self, target: Target) -> int:
        """Bytes of the smallest arena for the target's core with the options that a default compilation tries."""
        if target.words not in self.leasts:
            small = replace(self.request, objective="ram", tile="rolling", max_mac_overhead=0)
            self.leasts[target.words] = self._plan(_unlimited(target), small).arena_bytes
        return self.leasts[target.words]


def fit_rows(
    graph: Graph, request: ModelRequest, targets: Iterable[Target], scheduler: str | None = None
) -> list[FitRow]:
    """Rows of targets, those of one core after each other; `scheduler`: see `workers.results`."""
    cores = dict[frozenset[str], list[Target]]()
    for target in targets:
        cores.setdefault(target.words, []).append(target)
    rows = results(partial(_rows, graph, request), cores.values(), scheduler)
    return [row for of_core in rows for row in of_core]


def _rows(graph: Graph, request: ModelRequest, targets: Sequence[Target]) -> list[FitRow]:
    """Rows of targets of one core, which share plans."""
    fit, rows = Fit(graph, request), list[FitRow]()
    for target in targets:
        say(f"target {target.name}")
        rows.append(fit.row(target))
    return rows


def _unlimited(target: Target) -> Target:
    memories = (replace(m, size=AMPLE + (m.size if "stack" in m.roles else 0)) for m in target.memories)
    return replace(target, memories=tuple(memories))


def _measured(decided: Plan) -> _Sizes:
    program = make_program(decided)
    code = program_bytes(source(program), decided.target)
    return _Sizes(decided, code, program.weights.linked_bytes)


def time_us(decided: Plan, target: Target) -> float | None:
    """Estimated microseconds of an inference at the target's highest clock; None if clock or core has no figure."""
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
    """Energy in uJ of an inference at the highest clock; None if the clock tree states no currents."""
    if time_us is None or not target.clocks or target_tree(target).power is None:
        return None
    try:
        model = power_model(target, replace(request, calibration=None, hse=None))
    except EdgebuildError:
        return None
    fastest = max(model.plan.configs, key=lambda config: config.sysclk_hz)
    return time_us * model.run_mw(fastest) / 1000


def best_first(rows: Iterable[FitRow]) -> list[FitRow]:
    """Rows that fit, the chip of least memory first and the faster of equals; then the others, the nearest first.

    A byte of RAM counts as four of flash, which is about their price on a chip.
    """

    def rank(row: FitRow) -> tuple[object, ...]:
        if row.fits:
            return 0, 4 * row.ram + row.flash, row.time_us or 0.0, row.target.name
        return 1, sum(n or 0 for n in row.short_of.values()), row.target.name, ""

    return sorted(rows, key=rank)


def chosen_targets(patterns: str | None) -> list[Target]:
    """Targets by names, patterns and files, separated by commas; None: all that state a clock.

    Raises EdgebuildError for a pattern that matches no target.
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
BEST = 3  # best rows, which are printed as a group of their own
UNITS = {"ram_bytes": ("RAM", "B"), "flash_bytes": ("flash", "B"), "time_us": ("time", "us")}


def as_json(rows: Sequence[FitRow], request: ModelRequest) -> str:
    """All rows in their order. Missing figures are null; `short_of` is empty for a target that fits."""
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
    """A line for each row, the best ones first in a group of their own; `short`: without first and last lines."""
    fitting = sum(row.fits for row in rows)
    width = max((len(row.target.name) for row in rows), default=6)
    head = f"  {'target':{width}} {'arena':>9} {'of RAM':>6} {'flash':>10} {'of':>5} {'ms':>9} {'uJ':>9}"
    lines = [] if short else [f"{request.source.name}: fits {fitting} of {len(rows)} targets"]
    lines.append(head)
    lines += [_line(row, width) for row in rows[:BEST]]
    lines += ["", *(_line(row, width) for row in rows[BEST:])] if len(rows) > BEST else []
    if not short:
        lines += [
            "",
            f"{CYCLES}; energy: at that clock, or of memory levels",
            "first: the chips of least memory that the model fits",
        ]
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
