"""Costs of running, switching and idling, modelled from the currents of the datasheet (nothing here is measured).

Currents between the points of a table follow the slope of their own voltage scale. A scale with one point takes the
slope of the scale below, times the ratio of the core voltages: dynamic current is proportional to V and f. Units: mW,
microseconds, microjoules (mW * us / 1000 = uJ)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgebuild.base.errors import did_you_mean, fail
from edgebuild.clock.configs import (
    FREE,
    ClockPlan,
    Config,
    IdleMode,
    SwitchCost,
    Switches,
    bus_clocks,
    preferred,
    settings,
    vco_range,
)
from edgebuild.clock.tree import ClockTree, Power, Scale

# Cycles of the emitted code besides its waits, at the clock of the HSE: of a whole switch, and of one quick mux.
# Counted are instructions, in a simulator (tests/clocks/test_clock_sequences.py); two cycles for each are assumed.
SWITCH_CYCLES = 620
MUX_CYCLES = 104


@dataclass(frozen=True)
class PowerModel:
    """Costs of one plan with the code in one placement (`flash`, `itcm`, ... as the tree names them)."""

    plan: ClockPlan
    placement: str

    def __post_init__(self) -> None:
        power = require_power(self.plan.tree)
        if self.placement not in power.run_ma:
            near = did_you_mean(self.placement, power.run_ma)
            raise fail(
                f"{self.plan.tree.device}: no currents for code in '{self.placement}'{near}",
                hints=["known: " + ", ".join(power.run_ma)],
            )

    @property
    def _power(self) -> Power:
        return require_power(self.plan.tree)

    def run_mw(self, config: Config) -> float:
        """Supply power while code runs in this configuration."""
        table = _rows(self._power.run_ma[self.placement], config.scale)
        return self._power.vdd_v * _current(self.plan.tree, table, config.sysclk_hz, config.scale)

    def sleep_mw(self, config: Config) -> float:
        """Supply power in Sleep mode with the clocks of this configuration left running."""
        table = self._power.sleep_ma
        if table is None:
            raise self.plan.tree.unknown("currents in Sleep mode are", "there is no energy model of it")
        return self._power.vdd_v * _current(self.plan.tree, table, config.sysclk_hz, config.scale)

    def lfo_mw(self, config: Config) -> float:
        """Power while SYSCLK is the HSE by the quick mux and the PLL, the scale and over-drive of `config` stay on.

        No sheet has this state. Where it was not measured, assumed: the current at the HSE's frequency at the lowest
        scale, scaled with the core voltage, and the PLL's own current.
        """
        if self._power.lfo_ma:
            return self._power.vdd_v * _between(self._power.lfo_ma, config.sysclk_hz)
        low = self.plan.configs[0]
        ratio = (config.scale.core_v or 1.0) / (low.scale.core_v or 1.0) if config.scale.core_v else 1.0
        return self.run_mw(low) * ratio + self._power.vdd_v * self._pll_ma(config)

    def _pll_ma(self, config: Config) -> float:
        if config.pll is None:
            return 0.0
        spread = vco_range(self.plan.tree, self.plan.base_hz, config.pll).current_ma
        if spread is None:
            return 1.0  # no figure for this chip; 0.45 to 1.6 mA on those where there is one
        return _between({f: (a + b) / 2 for f, (a, b) in spread.items()}, config.pll.vco_hz)

    def lock_us(self, config: Config) -> float:
        """The longest lock time of the PLL at this setting; 0 with the PLL off."""
        if config.pll is None:
            return 0.0
        lock = vco_range(self.plan.tree, self.plan.base_hz, config.pll).lock_us
        if lock is None:
            raise self.plan.tree.unknown("the lock time of the PLL is", "the cost of a switch is not known")
        return _between({f: most for f, (_, most) in lock.items()}, config.pll.vco_hz)

    def switch(self, start: Config, end: Config) -> SwitchCost:
        """`eb_clock_switch` between two configurations; the longest times of the sheet, so that a deadline holds."""
        if start == end:
            return FREE
        time = SWITCH_CYCLES / self.plan.base_hz * 1e6 + self.lock_us(end)
        if over := self.plan.tree.overdrive:
            time += over.disable_us[1] * start.overdrive + over.enable_us[1] * end.overdrive
        return self._at_hse(time)

    def mux(self) -> SwitchCost:
        """One quick change between PLL and HSE, with the PLL left running."""
        return self._at_hse(MUX_CYCLES / self.plan.base_hz * 1e6)

    def wake(self, end: Config, wake_us: float) -> SwitchCost:
        """From Stop back to `end`: the chip's own wake-up, the HSE's start, and the switch."""
        crystal = self.plan.oscillator == "HSE" and not self.plan.bypass
        start = float(self.plan.tree.hse.crystal_start_us) if crystal else 0.0
        relock = self.switch(self.plan.configs[0], end)
        first = self._at_hse(wake_us + start)
        return SwitchCost(first.time_us + relock.time_us, first.energy_uj + relock.energy_uj)

    def switches(self) -> Switches:
        """All pairs of different configurations, by name."""
        all_ = self.plan.configs
        return {(a.name, b.name): self.switch(a, b) for a in all_ for b in all_ if a != b}

    def idle_modes(self, start: Config) -> tuple[IdleMode, ...]:
        """Idle modes of a plan that begins in `start`, until its next deadline.

        busy: poll, clocks as they are; gated: Sleep, clocks as they are; sleep: Sleep on the HSE with the PLL off;
        and the chip's Stop modes. Entering the last two from a faster configuration is priced at its worst.
        """
        low = self.plan.configs[0]
        modes = [IdleMode("busy", self.run_mw(start), 0.0, 0.0, returns=True)]
        if self._power.sleep_ma is not None:
            modes.append(IdleMode("gated", self.sleep_mw(start), 0.0, 0.0, returns=True))
            enter = max((self.switch(c, low) for c in self.plan.configs), key=lambda s: s.time_us)
            leave = self.switch(low, start)
            energy, time = enter.energy_uj + leave.energy_uj, enter.time_us + leave.time_us
            modes.append(IdleMode("sleep", self.sleep_mw(low), energy, time))
        for name, stop in (self._power.stop or {}).items():
            wake = self.wake(start, stop.wake_us)
            modes.append(IdleMode(f"stop_{name}", stop.ma * self._power.vdd_v, wake.energy_uj, wake.time_us))
        return tuple(modes)

    def _at_hse(self, time_us: float) -> SwitchCost:
        return SwitchCost(time_us, time_us * self.run_mw(self.plan.configs[0]) / 1000)


def require_power(tree: ClockTree) -> Power:
    """The tree's currents. Raises EdgebuildError where there are none: no energy objective for this chip."""
    if tree.power is None:
        raise tree.unknown("currents are", "energy cannot be modelled; choose another objective")
    return tree.power


def _rows(by_scale: Mapping[str, Mapping[int, float]], scale: Scale) -> Mapping[int, float]:
    return by_scale["any"] if "any" in by_scale else by_scale[scale.name]


def _current(tree: ClockTree, table: Mapping[int, float], hz: int, scale: Scale) -> float:
    """mA at this clock and scale from a table by frequency, in which each row ran at the lowest scale possible."""
    scales = tree.regulator.scales
    place = scales.index(scale)
    floor = scales[place - 1].max_hz if place else 0
    top = scale.max_hz if scale is not scales[-1] else max(scale.max_hz, scale.max_hz_overdrive or 0)
    own = {f: ma for f, ma in table.items() if floor < f <= top} or dict(table)
    if len(own) > 1:
        least = min(own)  # below it no less than in proportion to the clock: the sheets' whole mA make steep slopes
        return max(_between(own, hz), own[least] * min(hz / least, 1.0))
    (f, ma), *_ = own.items()
    if place == 0 or len(table) == 1:
        return ma * hz / f
    below = scales[place - 1]
    low = sorted((g, a) for g, a in table.items() if g <= below.max_hz)[-2:]
    if len(low) < 2:
        return ma * hz / f
    ratio = scale.core_v / below.core_v if scale.core_v and below.core_v else 1.0
    slope = (low[1][1] - low[0][1]) / (low[1][0] - low[0][0]) * ratio
    return ma + slope * (hz - f)


def _between(table: Mapping[int, float], hz: float) -> float:
    """Linear between the points, and beyond the outer ones along the last piece."""
    points = sorted(table.items())
    if len(points) == 1:
        return points[0][1]
    upper = next((i for i, (f, _) in enumerate(points) if hz <= f), len(points) - 1)
    (f0, a0), (f1, a1) = points[max(upper, 1) - 1], points[max(upper, 1)]
    return a0 + (a1 - a0) * (hz - f0) / (f1 - f0)


# The table of configurations that `edgebuild clock` prints.

HEADINGS = ("config", "SYSCLK", "from", "M", "N", "P", "Q", "VCO", "scale", "OD", "WS", "APB1", "APB2", "lock us", "mA",
            "nJ/cycle")  # fmt: skip


def table(plan: ClockPlan, placement: str | None = None) -> str:
    """Frequencies in MHz; currents are modelled from the datasheet's, with the code in its first placement."""
    tree = plan.tree
    model = PowerModel(plan, placement or next(iter(tree.power.run_ma))) if tree.power else None
    rows = [HEADINGS, *(_row(plan, c, model) for c in plan.configs)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    legal = list(settings(tree, plan.base_hz))
    lines.insert(0, f"{tree.description}; {plan.feed}")
    lines.append(f"{len(legal)} PLL settings are legal and give {len(preferred(tree, plan.base_hz, legal))} SYSCLKs.")
    if tree.power and model:
        lines.append(f"Currents: modelled, {tree.power.of}, code in {model.placement}, {tree.power.vdd_v:g} V.")
    return "\n".join(lines) + "\n"


def figures(plan: ClockPlan, placement: str | None = None) -> list[dict[str, Any]]:
    """Figures of each configuration: Hz, dividers of the PLL if it runs, wait states, and the modelled power in mW."""
    power = plan.tree.power
    model = PowerModel(plan, placement or next(iter(power.run_ma))) if power else None
    return [
        {
            "name": c.name,
            "sysclk_hz": c.sysclk_hz,
            "pll": {"m": c.pll.m, "n": c.pll.n, "p": c.pll.p, "vco_hz": c.pll.vco_hz} if c.pll else None,
            "wait_states": c.wait_states,
            "power_mw": model.run_mw(c) if model else None,
        }
        for c in plan.configs
    ]


def _row(plan: ClockPlan, c: Config, model: PowerModel | None) -> tuple[str, ...]:
    s = c.pll
    dividers = [str(x) for x in (s.m, s.n, s.p, s.q or "-")] if s else ["-"] * 4
    buses = [f"{hz / 1e6:g}" if hz else "?" for hz in bus_clocks(plan, c)]
    cost = ["?", "?"]
    if model:
        mw = model.run_mw(c)
        cost = [f"{mw / _vdd(plan):.1f}", f"{mw / c.sysclk_hz * 1e6:.3f}"]
    lock = "-"
    if s:
        stated_us = vco_range(plan.tree, plan.base_hz, s).lock_us
        lock = f"{PowerModel.lock_us(model, c):.0f}" if model and stated_us else "?"
    source = plan.rest[0] if s is None else plan.oscillator if s.bypass else "PLL"
    vco = f"{s.vco_hz / 1e6:g}" if s else "-"
    waits = "?" if c.wait_states is None else str(c.wait_states)
    over = "yes" if c.overdrive else "-"
    return (c.name, f"{c.sysclk_hz / 1e6:g}", source, *dividers, vco, c.scale.name, over, waits, *buses, lock, *cost)


def _vdd(plan: ClockPlan) -> float:
    return plan.tree.power.vdd_v if plan.tree.power else 1.0
