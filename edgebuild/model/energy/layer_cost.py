"""Cost of a layer as a function of clock configuration, decoupling granularity and placement. All of it is modelled.

A layer is work: instructions by the estimates of its kernels, and cache lines fetched from flash and from RAM. Its time
is cycles over the clock. A line from flash takes more cycles if the clock asks for more wait states. So the
memory-bound part of a layer gains less from a fast clock than the rest. Energy is time times the supply power of the
configuration by the datasheet.

Decoupled access-execute (Alvanaki et al., DATE 2024) gathers g channels (depthwise) or g columns (pointwise) into a
buffer, and then computes on them. In this model that saves energy in three ways. A line of RAM behind the bus that
holds data of g channels is fetched once instead of g times. Weights too large for the cache are read once for g columns
instead of for every pair of them. The access phases may run from the HSE by the quick mux.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from edgebuild.clock.configs import Config
from edgebuild.clock.power import PowerModel
from edgebuild.clock.tree import Timing
from edgebuild.model.ops.base import PER_CALL, PER_TURN, Kernel

from ...clock.configs import FREE, IdleMode, SwitchCost, Switches

GRANULARITIES = (0, 2, 4, 8, 12, 16)
CACHE_SHARE = 0.75  # of the cache that operands can count on staying in; assumed, for no simulator here has caches


@dataclass(frozen=True)
class CodeStretch:
    """A stretch of code: instructions, and lines that the cache does not have."""

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
        """The work with its instructions and lines in one phase: nothing between gathering and computing."""
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
    """A layer for the forms of each step."""
    hungriest = _hungriest_mw(model)
    return tuple(layer_points(forms[0].name, forms, model, hungriest) for forms in steps)


def _hungriest_mw(model: PowerModel) -> float:
    """The power of the idle mode that takes most."""
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
    """An activation as a kernel meets it. `coupled`: in memory that never makes the core wait."""

    bytes: int
    channels: int  # bytes of a pixel
    coupled: bool

    def lines(self, timing: Timing, at_once: int) -> float:
        """Lines fetched to go through it with `at_once` bytes of each pixel at a time; 0: all of them."""
        if self.coupled:
            return 0.0
        once = self.bytes / timing.line_bytes
        if not 0 < at_once < self.channels or self.bytes <= CACHE_SHARE * timing.cache_bytes:
            return once
        pixels = self.bytes // self.channels
        return max(once, -(-self.channels // at_once) * pixels * max(1.0, at_once / timing.line_bytes))


@dataclass(frozen=True)
class KernelUse:
    """A kernel as a step uses it: how often it is called, on what, and how large the nest of loops of its op is."""

    kernel: Kernel
    calls: int
    iterations: int  # of all calls together
    reads: tuple[Activation, ...]
    result: Activation

    @property
    def instructions(self) -> float:
        """Instructions of all calls; where the kernel has no estimate, by its iterations."""
        estimated = self.kernel.estimate * self.calls
        return estimated or float(self.iterations * PER_TURN + self.calls * PER_CALL)

    @property
    def constants(self) -> int:
        return sum(c.data.nbytes for c in self.kernel.constants)


def work(name: str, uses: Sequence[KernelUse], timing: Timing, g: int = 0) -> Work:
    """Work of a step: one kernel, or those of a run that goes row by row, one after the other for each row.

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


# ---- The words of the selection: points, layers, plans. Microseconds, microjoules, mW


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
    """Choose a point per layer. `idle[start]`: the modes of a plan that begins in this configuration, which is that of
    its first layer. A pair that is missing in `switches` cannot be switched."""

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


def evaluate(
    problem: EnergyProblem, points: tuple[OperatingPoint, ...], mode: IdleMode, bound_uj: float = 0.0
) -> Selection:
    """Add a plan up, naively: this is the definition of what it costs."""
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

    Fronts are per configuration because a point that another configuration beats can win once switching has its price.
    Time saved is spent idling, so a point must save more than `idle_mw` over the time it takes longer: give the power
    of the hungriest idle mode, or too much is dropped.
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
