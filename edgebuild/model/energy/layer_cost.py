"""Cost of a layer as a function of clock configuration, decoupling granularity and placement. All of it is modelled.

The work of a layer is instructions, by the estimates of its kernels, and cache lines fetched from flash and RAM. Its
time is cycles over the clock. A line from flash takes more cycles if the clock needs more wait states. So the
memory-bound part of a layer gains less from a fast clock than the rest. Energy is time times the supply power of the
configuration by the datasheet.

Decoupled access-execute (Alvanaki et al., DATE 2024) gathers g channels (depthwise) or g columns (pointwise) into a
buffer, and then computes on them. In this model that saves energy in three ways. A line of RAM behind the bus that
holds data of g channels is fetched once instead of g times. Weights too large for the cache are read once for g columns
instead of for every pair of them. The access phases may run from the HSE by the quick mux.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...base.errors import did_you_mean, fail
from ...base.facts import read_facts
from ...base.inputs import JSON, read_text
from ...clock.configs import FREE, Config, IdleMode, PowerModel, SwitchCost, Switches
from ...clock.tree import ClockTree, Timing
from ..ops.base import PER_CALL, PER_TURN, Kernel

GRANULARITIES = (0, 2, 4, 8, 12, 16)
CACHE_SHARE = 0.75  # share of the cache in which operands stay; assumed, as no simulator here has caches


@dataclass(frozen=True)
class CodeStretch:
    """A stretch of code: instructions, and cache lines that miss, from flash and from RAM."""

    instructions: float
    flash_lines: float = 0.0
    sram_lines: float = 0.0

    def __add__(self, other: CodeStretch) -> CodeStretch:
        lines = self.flash_lines + other.flash_lines, self.sram_lines + other.sram_lines
        return CodeStretch(self.instructions + other.instructions, *lines)

    def cycles(self, timing: Timing, wait_states: int) -> float:
        flash = self.flash_lines * (timing.flash_line_cycles + wait_states)
        return self.instructions * timing.cycles_per_instruction + flash + self.sram_lines * timing.sram_line_cycles


@dataclass(frozen=True)
class Work:
    """One form of a layer: `rounds` times an access and an execute phase (both given as totals), or execute only."""

    name: str
    g: int
    execute: CodeStretch
    access: CodeStretch | None = None
    rounds: int = 0
    buffer_bytes: int = 0

    @property
    def in_one_phase(self) -> Work:
        """The work with access and execute phase joined: no clock switch between gathering and computing."""
        return replace(self, execute=self.execute + self.access, access=None, rounds=0) if self.access else self


def point(work: Work, config: Config, model: PowerModel, lfo: bool = False) -> OperatingPoint:
    """Time and energy of one form of a layer in one configuration; `lfo`: access phases from the HSE."""
    timing = require_timing(model)
    execute_us = _us(work.execute, timing, config, config.sysclk_hz)
    time, energy = execute_us, execute_us * model.run_mw(config)
    if work.access and lfo:
        mux = model.mux()
        access_us = _us(work.access, timing, config, model.plan.base_hz) + 2 * work.rounds * mux.time_us
        time, energy = time + access_us, energy + access_us * model.lfo_mw(config)
    elif work.access:
        access_us = _us(work.access, timing, config, config.sysclk_hz)
        time, energy = time + access_us, energy + access_us * model.run_mw(config)
    return OperatingPoint(config.name, work.g, time, energy / 1000, lfo)


def layers_of(steps: Iterable[Sequence[Work]], model: PowerModel) -> tuple[EnergyLayer, ...]:
    """A layer for each step, with the points of its forms."""
    hungriest = _hungriest_mw(model)
    return tuple(layer_points(forms[0].name, forms, model, hungriest) for forms in steps)


def _hungriest_mw(model: PowerModel) -> float:
    """The power of the most power-hungry idle mode, in mW."""
    return max(m.power_mw for c in model.plan.configs for m in model.idle_modes(c))


def layer_points(name: str, forms: Iterable[Work], model: PowerModel, hungriest_mw: float | None = None) -> EnergyLayer:
    """A layer with all of its points that may be part of a least-energy plan."""
    points = [
        point(work, config, model, lfo)
        for work in forms
        for config in model.plan.configs
        for lfo in ((False, True) if work.access and config.pll else (False,))
    ]
    return EnergyLayer(name, pareto(points, _hungriest_mw(model) if hungriest_mw is None else hungriest_mw))


def require_timing(model: PowerModel) -> Timing:
    tree = model.plan.tree
    if tree.timing is None:
        raise tree.unknown("the timing of its code is", "the cost of a layer cannot be modelled")
    return tree.timing


def _us(phase: CodeStretch, timing: Timing, config: Config, hz: float) -> float:
    return phase.cycles(timing, config.wait_states or 0) / hz * 1e6


# ---- the work of a kernel


@dataclass(frozen=True)
class Activation:
    """An activation that a kernel reads or writes. `coupled`: in memory that never makes the core wait."""

    bytes: int
    channels: int  # bytes of a pixel
    coupled: bool

    def lines(self, timing: Timing, at_once: int) -> float:
        """Lines fetched in going through it with `at_once` bytes of each pixel at a time; 0: whole pixels."""
        if self.coupled:
            return 0.0
        once = self.bytes / timing.line_bytes
        if not 0 < at_once < self.channels or self.bytes <= CACHE_SHARE * timing.cache_bytes:
            return once
        pixels = self.bytes // self.channels
        return max(once, -(-self.channels // at_once) * pixels * max(1.0, at_once / timing.line_bytes))


@dataclass(frozen=True)
class KernelUse:
    """A kernel as a step uses it: number of calls, activations, and iterations of its op's loop nest."""

    kernel: Kernel
    calls: int
    iterations: int  # of all calls together
    reads: tuple[Activation, ...]
    result: Activation

    @property
    def instructions(self) -> float:
        """Instructions of all calls; if the kernel has no estimate, by its iterations."""
        estimated = self.kernel.estimate * self.calls
        return estimated or float(self.iterations * PER_TURN + self.calls * PER_CALL)

    @property
    def constants(self) -> int:
        return sum(c.data.nbytes for c in self.kernel.constants)


def work(name: str, uses: Sequence[KernelUse], timing: Timing, g: int = 0) -> Work:
    """Work of a step: of one kernel, or of those of a rolled run, one after the other for each row.

    Constants are fetched once if those of the whole step stay in the cache, else as often as they are read. A piece
    that is read several times in a row is fetched once if it stays there.
    """
    cached = CACHE_SHARE * timing.cache_bytes
    stay = sum(u.constants for u in uses) <= cached
    access, execute = CodeStretch(0.0), CodeStretch(0.0)
    for u in uses:
        traffic, gathers = u.kernel.traffic, u.kernel.traffic.rounds > 0
        reads = traffic.passes * (1 if traffic.piece <= cached else traffic.repeats)
        flash = u.constants / timing.line_bytes * (1 if stay else u.calls * reads)
        fetched = sum(x.lines(timing, traffic.channels_in) for x in u.reads)
        written = u.result.lines(timing, traffic.channels_out)
        gather = traffic.gather * u.calls
        access += CodeStretch(gather, 0.0, fetched if gathers else 0.0)
        execute += CodeStretch(u.instructions - gather, flash, written + (0.0 if gathers else fetched))
    rounds = sum(u.kernel.traffic.rounds * u.calls for u in uses)
    buffer = max((u.kernel.scratch for u in uses), default=0)
    return Work(name, g, execute, access if rounds else None, rounds, buffer)


# ---- Values of the selection: points, layers, plans. Microseconds, microjoules, mW


@dataclass(frozen=True)
class OperatingPoint:
    """One way to run a layer: in a clock configuration, with a decoupling granularity (0: not decoupled)."""

    config: str
    g: int
    time_us: float
    energy_uj: float
    lfo: bool = False  # whether the access phases run from the HSE by the quick mux


@dataclass(frozen=True)
class EnergyLayer:
    name: str
    points: tuple[OperatingPoint, ...]


@dataclass(frozen=True)
class EnergyProblem:
    """Choose a point per layer. `idle[start]`: the idle modes of a plan whose first layer runs in this configuration.
    No switch is possible between a pair that `switches` does not have."""

    layers: tuple[EnergyLayer, ...]
    switches: Switches
    idle: Mapping[str, tuple[IdleMode, ...]]
    budget_us: float

    def switch(self, start: str, end: str) -> SwitchCost:
        return FREE if start == end else self.switches[start, end]


@dataclass(frozen=True)
class Selection:
    """A plan. `energy_uj` covers the whole period of the budget; no plan has less than `bound_uj`."""

    points: tuple[OperatingPoint, ...]
    mode: IdleMode
    switched: tuple[tuple[str, str], ...]  # from, to; in order, the return to the start included where there is one
    time_us: float  # of the layers and the switches
    idle_us: float
    idle_energy_uj: float
    energy_uj: float
    bound_uj: float

    @property
    def start(self) -> str:
        return self.points[0].config

    @property
    def returns(self) -> bool:
        """Whether the clock changes after the last step, because the idle mode requires that."""
        return self.mode.returns and self.points[-1].config != self.start


def evaluate(
    problem: EnergyProblem, points: tuple[OperatingPoint, ...], mode: IdleMode, bound_uj: float = 0.0
) -> Selection:
    """Add up time and energy of a plan, naively: this defines its cost."""
    path = [p.config for p in points] + ([points[0].config] if mode.returns else [])
    switched = tuple((a, b) for a, b in pairwise(path) if a != b)
    costs = [problem.switch(a, b) for a, b in switched]
    time = sum(p.time_us for p in points) + sum(c.time_us for c in costs)
    idle = problem.budget_us - time
    idle_energy = mode.cost(idle)
    energy = sum(p.energy_uj for p in points) + sum(c.energy_uj for c in costs) + idle_energy
    return Selection(points, mode, switched, time, idle, idle_energy, energy, bound_uj)


def pareto(points: Iterable[OperatingPoint], idle_mw: float = 0.0) -> tuple[OperatingPoint, ...]:
    """The points worth keeping, per configuration, by rising time.

    Fronts are per configuration, because a point that another configuration beats can win once switches are counted.
    Time saved is spent idling, so a slower point must save more than `idle_mw` times the time lost. `idle_mw` has to be
    the power of the hungriest idle mode; less drops too many points.
    """
    kept: list[OperatingPoint] = []
    by_config: dict[str, list[OperatingPoint]] = {}
    for p in points:
        by_config.setdefault(p.config, []).append(p)
    for group in by_config.values():
        least = float("inf")
        for p in sorted(group, key=lambda p: (p.time_us, p.energy_uj)):
            value = p.energy_uj - idle_mw * p.time_us / 1000
            if value < least:
                least = value
                kept.append(p)
    return tuple(kept)


# Calibration: the cost model's constants, fitted by least squares to measurements on a chip.
#
# A step's cycles are linear in three constants: with I instructions, F lines fetched from flash,
# S lines fetched from RAM behind the bus and w wait states,
#
#     cycles = I * cycles_per_instruction + F * (flash_line_cycles + w) + S * sram_line_cycles
#
# so all steps in all configurations make one linear system. Its rows are divided by the root of the cycles assumed
# before: small steps count less than large ones, and the modelled cycles of all measurements together are the measured
# ones. A current is the sheet's, times a factor and plus an offset, the same for all configurations. Times and energies
# are still modelled, with measured constants.

# Measurements of a profiled model on a chip: the file that `edgebuild calibrate --fit` reads.
#
# CSV with the header `what,config,step,phase,value`, or JSON, a list of objects with these members. Lines that begin
# with # are skipped, so the output of the profiling firmware is such a file without changes.
#
#     what      cycles     of the core's clock, of one step in one configuration (or `us`, its time in microseconds)
#               run_ma     supply current while the model runs
#               sleep_ma   in Sleep mode with the clocks running
#               lfo_ma     while SYSCLK is the HSE by the quick mux and the PLL runs on
#               stop_ma    in a Stop mode
#     config    as `edgebuild clock` names it: 216MHZ; of stop_ma the mode: main, low_power
#     step      of cycles and us: the number of the step in the schedule, from 0
#     phase     of these: access or execute of a decoupled step; empty: the whole step
#     value     above 0; currents in mA
#
# Several rows for the same thing are all used.

COLUMNS = ("what", "config", "step", "phase", "value")
KINDS = ("cycles", "us", "run_ma", "sleep_ma", "lfo_ma", "stop_ma")
PHASES = ("", "access", "execute")


@dataclass(frozen=True)
class Measurement:
    """One row. `line`: of the file, or in JSON its position in the list."""

    what: str
    config: str
    step: int | None
    phase: str
    value: float
    line: int


def read_measurements(file: Path) -> tuple[Measurement, ...]:
    """All rows of the file. Raises EdgebuildError with file and line."""
    text = read_text(file, "cannot read the measurements", JSON)
    rows = _json(text, file) if file.suffix == ".json" else _csv(text, file)
    measurements = tuple(_measurement(row, line, str(file)) for line, row in rows)
    if not measurements:
        raise fail("there are no measurements in it", file=str(file))
    return measurements


def read_supply_log(file: Path, configs: Sequence[str]) -> list[Measurement]:
    """`run_ma` of every configuration, from a record of the supply's current while the profiling firmware runs.

    CSV with the columns `ma` and `pin` (0 or 1), a line for each sample, as a program that reads an INA219 writes them;
    other columns are ignored. The pin is high once for each configuration, in their order. The first and the last
    sample of each period may mix two states and are left out. Raises EdgebuildError if the number of periods differs.
    """
    text = read_text(file, "cannot read the log")
    try:
        rows = list(csv.DictReader(text.splitlines()))
    except csv.Error as error:
        raise fail(str(error), file=str(file)) from None
    if not rows or not {"ma", "pin"} <= rows[0].keys():
        raise fail("the first line does not name the columns ma and pin", file=str(file), line=1)
    times: list[list[tuple[int, float]]] = []
    before = False
    for line, row in enumerate(rows, 2):
        try:
            high, ma = bool(int(row["pin"])), float(row["ma"])
        except (TypeError, ValueError):
            raise fail(f"'{row['ma']}', '{row['pin']}': a current and 0 or 1 are expected", file=str(file),
                       line=line) from None  # fmt: skip
        if high:
            times += [] if before else [[]]
            times[-1].append((line, ma))
        before = high
    if len(times) != len(configs) or any(len(t) < 3 for t in times):
        shortest = min(map(len, times), default=0)
        raise fail(
            f"the pin is high {len(times)} times, for at least {shortest} samples",
            file=str(file),
            hints=[f"{len(configs)} times of 3 samples or more are expected: {', '.join(configs)}"],
        )
    inner = [t[1:-1] for t in times]
    return [Measurement("run_ma", c, None, "", sum(ma for _, ma in t) / len(t), t[0][0])
            for c, t in zip(configs, inner, strict=True)]  # fmt: skip


def _csv(text: str, file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")]
    if not lines:
        return
    header = tuple(word.strip() for word in lines[0][1].split(","))
    if header != COLUMNS:
        raise fail("the first line is not the header of a file of measurements", file=str(file), line=lines[0][0],
                   hints=["it is: " + ",".join(COLUMNS)])  # fmt: skip
    for n, line in lines[1:]:
        cells = next(csv.reader([line]))
        if len(cells) != len(COLUMNS):
            raise fail(f"{len(cells)} columns, not {len(COLUMNS)}", file=str(file), line=n,
                       hints=["they are: " + ",".join(COLUMNS)])  # fmt: skip
        yield n, dict(zip(COLUMNS, (c.strip() for c in cells), strict=True))


def _json(text: str, file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0)
        raise fail(f"not JSON: {getattr(error, 'msg', error)}", file=str(file), line=line) from None
    if not isinstance(data, list) or not all(isinstance(row, dict) for row in data):
        raise fail("a list of objects is expected", file=str(file), hints=["with the members " + ", ".join(COLUMNS)])
    for n, row in enumerate(data, 1):
        for key in row.keys() - set(COLUMNS):
            raise fail(f"object {n}: unknown member '{key}'{did_you_mean(key, COLUMNS)}", file=str(file))
        yield n, {c: "" if row.get(c) is None else str(row[c]) for c in COLUMNS}


def _measurement(row: dict[str, str], line: int, file: str) -> Measurement:
    what, config, phase = row["what"], row["config"], row["phase"]
    if what not in KINDS:
        hints = ["known: " + ", ".join(KINDS)]
        raise fail(f"'{what}' is not measured{did_you_mean(what, KINDS)}", file=file, line=line, hints=hints)
    if phase not in PHASES:
        raise fail(f"phase '{phase}'", file=file, line=line, hints=["access, execute, or nothing for the whole step"])
    of_step = what in ("cycles", "us")
    if of_step != row["step"].isdigit():
        text = (
            "the number of a step is missing" if of_step else f"{what} is not of a step, but there is '{row['step']}'"
        )
        raise fail(text, file=file, line=line)
    try:
        value = float(row["value"])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise fail(f"'{row['value']}' is not a number above 0", file=file, line=line)
    return Measurement(what, config, int(row["step"]) if of_step else None, phase, value, line)


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Error:
    """Distance of the model from measurements, in percent of the measured value: root mean square, and the largest."""

    rms_percent: float
    worst_percent: float
    measurements: int


@dataclass(frozen=True)
class FittedTiming:
    """Fitted cycles; None: no measurement depends on the constant, and the clock tree's value stays."""

    cycles_per_instruction: float | None
    flash_line_cycles: float | None
    sram_line_cycles: float | None
    error: Error

    def __post_init__(self) -> None:
        if any(x is not None and x < 0 for x in (*self.constants, self.error.rms_percent, self.error.worst_percent)):
            raise ValueError("cycles and errors are not negative")

    @property
    def constants(self) -> tuple[float | None, ...]:
        return self.cycles_per_instruction, self.flash_line_cycles, self.sram_line_cycles


@dataclass(frozen=True)
class FittedCurrent:
    """The current is `factor` times the sheet's plus `offset_ma`."""

    factor: float
    offset_ma: float
    error: Error

    def __post_init__(self) -> None:
        if self.factor <= 0:
            raise ValueError("a current's factor is above 0")

    def of(self, ma: float) -> float:
        return self.factor * ma + self.offset_ma


@dataclass(frozen=True)
class Calibration:
    """Measured constants of a device, with the code in one placement. None: not measured, the tree's value stays."""

    device: str
    placement: str
    measurements: str  # the file's name
    timing: FittedTiming | None
    run: FittedCurrent | None
    sleep: FittedCurrent | None
    lfo_ma: Mapping[int, float] | None  # by the SYSCLK of the PLL that runs on, Hz
    stop_ma: Mapping[str, float] | None

    def __post_init__(self) -> None:
        if any(ma <= 0 for table in (self.lfo_ma, self.stop_ma) for ma in (table or {}).values()):
            raise ValueError("a current is above 0")


def read_calibration(file: Path, tree: ClockTree) -> Calibration:
    """A calibration of this device. Raises EdgebuildError with file and line."""
    if not file.is_file():
        raise fail("no such calibration file", file=str(file))
    facts = read_facts(Calibration, file)
    if facts.device != tree.device:
        raise fail(f"this is a calibration of {facts.device}, not of {tree.device}", file=str(file))
    if tree.power and facts.placement not in tree.power.run_ma:
        placements = tree.power.run_ma
        raise fail(f"{tree.device} has no placement '{facts.placement}'{did_you_mean(facts.placement, placements)}",
                   file=str(file), hints=["known: " + ", ".join(placements)])  # fmt: skip
    return facts


def calibrated(tree: ClockTree, c: Calibration) -> ClockTree:
    """The tree with measured constants in place of assumed ones, or of another device's."""
    timing, power = tree.timing, tree.power
    if c.timing and timing:
        old = timing.cycles_per_instruction, timing.flash_line_cycles, timing.sram_line_cycles
        new = [was if measured is None else measured for was, measured in zip(old, c.timing.constants, strict=True)]
        timing = replace(timing, cycles_per_instruction=new[0], flash_line_cycles=new[1], sram_line_cycles=new[2],
                         source=f"fitted to {c.measurements}")  # fmt: skip
    if power and (c.run or c.sleep or c.lfo_ma or c.stop_ma):
        run = dict(power.run_ma)
        if c.run:
            rows = run[c.placement].items()
            run[c.placement] = {scale: {f: c.run.of(ma) for f, ma in row.items()} for scale, row in rows}
        sleep = (
            {f: c.sleep.of(ma) for f, ma in power.sleep_ma.items()} if c.sleep and power.sleep_ma else power.sleep_ma
        )
        stop = {n: replace(w, ma=(c.stop_ma or {}).get(n, w.ma)) for n, w in (power.stop or {}).items()}
        power = replace(power, of=f"{power.of}, fitted to {c.measurements}", run_ma=run, sleep_ma=sleep,
                        stop=stop or power.stop, lfo_ma=c.lfo_ma or power.lfo_ma)  # fmt: skip
    return replace(tree, timing=timing, power=power)


def fit(measured: Sequence[Measurement], works: Sequence[Work], model: PowerModel, file: str) -> Calibration:
    """Fit the constants that the measurements determine. `works`: of the profiled model's steps, in order. `file`: name
    of the measurements' file. Raises EdgebuildError for a measurement of an absent step, configuration or mode."""
    tree, power = model.plan.tree, model.plan.tree.power
    by = {what: [m for m in measured if m.what == what] for what in KINDS}
    steps = _cycles(measured, model, file)
    vdd = power.vdd_v if power else 1.0
    sleeps = by["sleep_ma"] if power and power.sleep_ma else []
    lfo = {_config(m, model, file).sysclk_hz: m.value for m in by["lfo_ma"]}
    stops = tuple(power.stop or ()) if power else ()
    for m in by["stop_ma"]:
        if m.config not in stops:
            raise fail(f"{tree.device} has no stop mode '{m.config}'{did_you_mean(m.config, stops)}", file=file,
                       line=m.line, hints=["known: " + ", ".join(stops)])  # fmt: skip
    stop = {n: [m.value for m in by["stop_ma"] if m.config == n] for n in stops}
    return Calibration(
        device=tree.device,
        placement=model.placement,
        measurements=Path(file).name,
        timing=_fit_timing(steps, works, model, file) if steps else None,
        run=_fit_current(by["run_ma"], model, lambda c: model.run_mw(c) / vdd, file),
        sleep=_fit_current(sleeps, model, lambda c: model.sleep_mw(c) / vdd, file),
        lfo_ma=lfo or None,
        stop_ma={n: float(np.mean(values)) for n, values in stop.items() if values} or None,
    )


def _cycles(measured: Sequence[Measurement], model: PowerModel, file: str) -> list[Measurement]:
    """Measurements of steps in cycles, with times converted to cycles."""
    times = [replace(m, value=m.value * _config(m, model, file).sysclk_hz / 1e6) for m in measured if m.what == "us"]
    return [m for m in measured if m.what == "cycles"] + times


def _fit_timing(rows: Sequence[Measurement], works: Sequence[Work], model: PowerModel, file: str) -> FittedTiming:
    design, cycles, waits = [], [], []
    for m in rows:
        if m.step is None or not 0 <= m.step < len(works):
            raise fail(f"the model has no step {m.step}: its steps are 0 to {len(works) - 1}", file=file, line=m.line)
        phase = _phase(works[m.step], m, file)
        design.append((phase.instructions, phase.flash_lines, phase.sram_lines))
        cycles.append(m.value)
        waits.append(phase.flash_lines * (_config(m, model, file).wait_states or 0))
    a, y, w = np.array(design, float), np.array(cycles, float), np.array(waits, float)
    timing = require_timing(model)
    assumed = np.array([timing.cycles_per_instruction, timing.flash_line_cycles, timing.sram_line_cycles])
    weight = 1 / np.sqrt(np.maximum(a @ assumed, 1.0))
    solved, fitted = _nonnegative(a * weight[:, None], (y - w) * weight, assumed)
    values = [float(round(v, 4)) if is_fitted else None for v, is_fitted in zip(solved, fitted, strict=True)]
    return FittedTiming(values[0], values[1], values[2], _error(a @ solved + w, y))


def _nonnegative(a: Floats, y: Floats, assumed: Floats) -> tuple[Floats, list[bool]]:
    """Least squares with coefficients of at least 0: the most negative one is set to 0 until none is negative.

    A column that depends linearly on the others, or is 0, keeps its assumed value. Also returns which were fitted.
    """
    free = list(range(a.shape[1]))
    scale = np.linalg.norm(a, axis=0)
    for column in sorted(free, key=lambda c: scale[c]):
        others = [c for c in free if c != column]
        rest = a[:, column] - a[:, others] @ np.linalg.lstsq(a[:, others], a[:, column], rcond=None)[0]
        if np.linalg.norm(rest) <= 1e-6 * max(scale[column], scale.max() * 1e-9):
            free.remove(column)
    fitted, solution = [c in free for c in range(a.shape[1])], assumed.astype(float)
    rest = y - a[:, [c for c in range(a.shape[1]) if c not in free]] @ solution[[not f for f in fitted]]
    while free:
        solved = np.linalg.lstsq(a[:, free], rest, rcond=None)[0]
        solution[free] = solved
        if (solved >= 0).all():
            break
        worst = free[int(solved.argmin())]
        solution[worst] = 0.0
        free.remove(worst)
    return solution, fitted


def _fit_current(
    rows: Sequence[Measurement], model: PowerModel, sheet: Callable[[Config], float], file: str
) -> FittedCurrent | None:
    if not rows:
        return None
    x = np.array([sheet(_config(m, model, file)) for m in rows])
    y = np.array([m.value for m in rows])
    if np.ptp(x) > 1e-6 * x.max():
        factor, offset = np.linalg.lstsq(np.stack([x / y, 1 / y], axis=1), np.ones(len(y)), rcond=None)[0]
    else:
        factor, offset = float(np.mean(y) / np.mean(x)), 0.0
    low = sheet(model.plan.configs[0])
    if factor <= 0 or factor * low + offset <= 0:
        raise fail("the measured currents fall where the sheet's rise: there is no factor that fits", file=file,
                   line=rows[0].line, hints=["is each with the configuration that it was measured in?"])  # fmt: skip
    return FittedCurrent(round(float(factor), 5), round(float(offset), 4), _error(factor * x + offset, y))


def _config(m: Measurement, model: PowerModel, file: str) -> Config:
    names = [c.name for c in model.plan.configs]
    if m.config not in names:
        raise fail(f"there is no configuration '{m.config}'{did_you_mean(m.config, names)}", file=file, line=m.line,
                   hints=[f"at this HSE: {', '.join(names)}"])  # fmt: skip
    return model.plan.config(m.config)


def _phase(work: Work, m: Measurement, file: str) -> CodeStretch:
    if m.phase == "execute":
        return work.execute
    if m.phase == "access" and work.access is None:
        raise fail(f"step {m.step} is not decoupled: it has no access phase", file=file, line=m.line)
    if m.phase == "access" and work.access:
        return work.access
    return work.execute + work.access if work.access else work.execute


def _error(modelled: Floats, measured: Floats) -> Error:
    relative = 100 * np.abs(modelled / measured - 1)
    rms, worst = float(np.sqrt(np.mean(relative**2))), float(relative.max())
    return Error(round(rms, 3), round(worst, 3), len(measured))


# ---- as a file


def calibration_text(c: Calibration) -> str:
    """The YAML that `read_calibration` reads."""
    lines = [
        f"# Constants of the cost model for the {c.device}, fitted to measurements.",
        f"device: {c.device}",
        f"placement: {c.placement}",
        f'measurements: "{c.measurements}"',
    ]
    for name, value in (("timing", c.timing), ("run", c.run), ("sleep", c.sleep)):
        lines += _block(name, value)
    for name, table in (("lfo_ma", c.lfo_ma), ("stop_ma", c.stop_ma)):
        entries = ", ".join(f"{k}: {v:g}" for k, v in (table or {}).items())
        lines.append(f"{name}: {{{entries}}}" if table else f"{name}: unknown")
    return "\n".join(lines) + "\n"


def _block(name: str, value: FittedTiming | FittedCurrent | None) -> Iterable[str]:
    if value is None:
        return [f"{name}: unknown"]
    e = value.error
    error = f"{{rms_percent: {e.rms_percent:g}, worst_percent: {e.worst_percent:g}, measurements: {e.measurements}}}"
    rows = {k: v for k, v in vars(value).items() if k != "error"}
    words = [f"  {k}: {'unknown' if v is None else f'{v:.6g}'}" for k, v in rows.items()]
    return [f"{name}:", *words, f"  error: {error}"]


def calibration_words(c: Calibration, model: PowerModel, works: Sequence[Work], measured: Sequence[Measurement]) -> str:
    """The fitted constants beside the old ones, and the errors of both against the measurements."""
    lines = [f"{c.device}, code in {c.placement}: fitted to {len(measured)} measurements of {c.measurements}"]
    if c.timing:
        timing = require_timing(model)
        rows = _cycles(measured, model, c.measurements)
        phases = [_phase(works[m.step or 0], m, c.measurements) for m in rows]
        waits = [_config(m, model, c.measurements).wait_states or 0 for m in rows]
        before = np.array([p.cycles(timing, w) for p, w in zip(phases, waits, strict=True)])
        old = (timing.cycles_per_instruction, timing.flash_line_cycles, timing.sram_line_cycles)
        names = ("cycles per instruction", "cycles per line of flash", "cycles per line of RAM")
        for name, assumed, new in zip(names, old, c.timing.constants, strict=True):
            lines.append(f"  {name:26} {assumed:8.3f} -> " + ("not determined" if new is None else f"{new:.3f}"))
        was, now = _error(before, np.array([m.value for m in rows])), c.timing.error
        lines.append(f"  error of a step's cycles   {was.rms_percent:7.1f}% -> {now.rms_percent:.1f}% rms, "
                     f"{now.worst_percent:.1f}% at worst")  # fmt: skip
    for name, current in (("run", c.run), ("sleep", c.sleep)):
        if current:
            e = current.error
            lines.append(f"  {name} current: {current.factor:.4g} x the sheet's {current.offset_ma:+.4g} mA; "
                         f"error {e.rms_percent:.1f}% rms, {e.worst_percent:.1f}% at worst")  # fmt: skip
    for hz, ma in (c.lfo_ma or {}).items():
        lines.append(f"  on the HSE with the PLL at {hz / 1e6:g} MHz: {ma:g} mA")
    for mode, ma in (c.stop_ma or {}).items():
        lines.append(f"  stop mode {mode}: {ma:g} mA")
    return "\n".join(lines) + "\n"
