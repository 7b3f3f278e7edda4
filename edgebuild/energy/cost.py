"""What a layer costs as a function of clock configuration, decoupling granularity and placement. All of it is modelled.

A layer is work: instructions, and cache lines fetched from flash and from RAM. Its time is cycles over the clock; a
line from flash takes more cycles the more wait states the clock asks for, so the memory-bound part of a layer gains
less from a fast clock than the rest. Energy is time times the supply power of the configuration by the datasheet.

Decoupled access-execute (Alvanaki et al., DATE 2024) gathers g channels (depthwise) or g columns (pointwise) into a
buffer in tightly coupled memory, and then computes on them. In this model that saves energy in two ways: a line that
holds data of g channels is fetched once instead of g times, weights too large for the cache are read once for g columns
instead of for every pair of them; and the access phases may run from the HSE by the quick mux.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from edgebuild.energy.configs import Config
from edgebuild.energy.power import PowerModel
from edgebuild.energy.tree import Timing
from edgebuild.energy.values import Layer, Point, pareto

GRANULARITIES = (0, 2, 4, 8, 12, 16)
COLUMNS = 2  # that a pointwise kernel without decoupling computes at once
CACHE_SHARE = 0.75  # of the cache that operands can count on staying in

# Instructions of the kernels, to be replaced by counts of the emitted code: per multiply-accumulate, per byte gathered,
# and per output element for its requantisation.
DEPTHWISE_PER_MAC = 1.6
POINTWISE_PER_MAC = 0.75
PER_GATHERED_BYTE = 1.5
PER_OUTPUT = 9.0


@dataclass(frozen=True)
class Phase:
    """A stretch of code: instructions, and lines that the cache does not have."""

    instructions: float
    flash_lines: float = 0.0
    sram_lines: float = 0.0

    def cycles(self, timing: Timing, wait_states: int) -> float:
        flash = self.flash_lines * (timing.flash_line_cycles + wait_states)
        return self.instructions * timing.cycles_per_instruction + flash + self.sram_lines * timing.sram_line_cycles


@dataclass(frozen=True)
class Work:
    """One form of a layer: `rounds` times an access and an execute phase (both given as totals), or execute only."""

    name: str
    g: int
    execute: Phase
    access: Phase | None = None
    rounds: int = 0
    buffer_bytes: int = 0


def point(work: Work, config: Config, model: PowerModel, lfo: bool = False) -> Point:
    """Time and energy of one form of a layer in one configuration; `lfo`: access phases from the HSE."""
    timing = require_timing(model)
    execute_us = _us(work.execute, timing, config, config.sysclk_hz)
    time, energy = execute_us, execute_us * model.run_mw(config)
    if work.access and lfo:
        mux = model.mux()
        access_us = _us(work.access, timing, config, model.plan.hse_hz) + 2 * work.rounds * mux.time_us
        time, energy = time + access_us, energy + access_us * model.lfo_mw(config)
    elif work.access:
        access_us = _us(work.access, timing, config, config.sysclk_hz)
        time, energy = time + access_us, energy + access_us * model.run_mw(config)
    return Point(config.name, work.g, time, energy / 1000, lfo)


def layer_points(name: str, forms: Iterable[Work], model: PowerModel) -> Layer:
    """A layer with all of its points that may be part of a least-energy plan."""
    modes = [m for c in model.plan.configs for m in model.idle_modes(c)]
    hungriest = max(m.power_mw for m in modes)
    points = [
        point(work, config, model, lfo)
        for work in forms
        for config in model.plan.configs
        for lfo in ((False, True) if work.access and config.pll else (False,))
    ]
    return Layer(name, pareto(points, hungriest))


def require_timing(model: PowerModel) -> Timing:
    tree = model.plan.tree
    if tree.timing is None:
        raise tree.unknown("the timing of its code is", "the cost of a layer cannot be modelled")
    return tree.timing


def _us(phase: Phase, timing: Timing, config: Config, hz: float) -> float:
    return phase.cycles(timing, config.wait_states or 0) / hz * 1e6


# ---- work of the kinds of layer, from their shapes


@dataclass(frozen=True)
class ConvShape:
    """A convolution, int8: output height and width, channels, kernel height and width, stride."""

    height: int
    width: int
    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1

    @property
    def input_bytes(self) -> int:
        return self.height * self.width * self.stride**2 * self.inputs

    @property
    def output_elements(self) -> int:
        return self.height * self.width * self.outputs


def depthwise(name: str, s: ConvShape, timing: Timing, tightly_coupled: bool = False) -> tuple[Work, ...]:
    """Forms of a depthwise convolution, which takes its input channel by channel.

    Channels lie side by side, so one channel alone touches every line of an input that the cache does not hold.
    """
    macs = s.output_elements * s.kernel**2
    compute = macs * DEPTHWISE_PER_MAC + s.output_elements * PER_OUTPUT
    gather = s.input_bytes * PER_GATHERED_BYTE
    pixels = s.input_bytes // s.inputs
    forms = []
    for g in (g for g in GRANULARITIES if g <= s.inputs):
        lines = 0.0
        if not tightly_coupled:
            once = s.input_bytes / timing.line_bytes
            passes = -(-s.inputs // max(g, 1))
            strided = pixels * passes * max(1.0, max(g, 1) / timing.line_bytes)
            lines = once if s.input_bytes <= CACHE_SHARE * timing.cache_bytes else max(once, strided)
        if g == 0:
            forms.append(Work(name, 0, Phase(compute + gather, sram_lines=lines)))
        else:
            access = Phase(gather, sram_lines=lines)
            forms.append(Work(name, g, Phase(compute), access, -(-s.inputs // g), g * pixels))
    return tuple(forms)


def pointwise(name: str, s: ConvShape, timing: Timing, tightly_coupled: bool = False) -> tuple[Work, ...]:
    """Forms of a 1x1 convolution, which takes its input column by column (all channels of one pixel)."""
    columns, weights = s.height * s.width, s.inputs * s.outputs
    compute = columns * weights * POINTWISE_PER_MAC + s.output_elements * PER_OUTPUT
    gather = s.input_bytes * PER_GATHERED_BYTE
    lines = 0.0 if tightly_coupled else s.input_bytes / timing.line_bytes
    forms = []
    for g in (g for g in GRANULARITIES if g <= columns):
        fits = weights <= CACHE_SHARE * timing.cache_bytes
        flash = weights / timing.line_bytes * (1 if fits else -(-columns // max(g, COLUMNS)))
        if g == 0:
            forms.append(Work(name, 0, Phase(compute + gather, flash, lines)))
        else:
            access = Phase(gather, sram_lines=lines)
            forms.append(Work(name, g, Phase(compute, flash), access, -(-columns // g), 2 * g * s.inputs))
    return tuple(forms)


def convolution(name: str, s: ConvShape, timing: Timing, tightly_coupled: bool = False) -> tuple[Work, ...]:
    """A convolution with a larger kernel: never decoupled."""
    taps = s.kernel**2 * s.inputs
    columns, weights = s.height * s.width, taps * s.outputs
    instructions = columns * (weights * POINTWISE_PER_MAC + taps * PER_GATHERED_BYTE) + s.output_elements * PER_OUTPUT
    fits = weights <= CACHE_SHARE * timing.cache_bytes
    flash = weights / timing.line_bytes * (1 if fits else -(-columns // COLUMNS))
    lines = 0.0 if tightly_coupled else s.input_bytes / timing.line_bytes
    return (Work(name, 0, Phase(instructions, flash, lines)),)
