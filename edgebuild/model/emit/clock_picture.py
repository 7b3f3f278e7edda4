"""Frequency and power over one period, from the begin of an inference to its deadline, as an SVG; both modelled."""

from __future__ import annotations

from collections.abc import Iterator

from ...base.dataclass import dataclass
from ...base.templates import render
from ...clock.configs import mhz
from ..energy.step_clocks import ClockSchedule
from .names import comment
from .picture import COLOURS

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BELOW, GAP = 720, 360, 56, 12, 20, 44, 26  # pixels
SWITCHING, IDLE = "#444444", "#cccccc"


@dataclass(frozen=True)
class Stretch:
    """A time of constant frequency and power. Microseconds, Hz, mW."""

    start_us: float
    time_us: float
    hz: float
    mw: float
    colour: str
    title: str


@dataclass(frozen=True)
class Panel:
    """One of the two curves: its axis, and a bar for each stretch as (x, y, width, height, colour, title)."""

    title: str
    base: float
    most: str
    top: float
    bars: tuple[tuple[float, float, float, float, str, str], ...]


def clock_picture(schedule: ClockSchedule) -> str:
    """Time runs to the right, to the scale of the budget. The clock is above, the supply's power below. Each
    configuration has a colour, dark while the clock is switched, grey when idle. A bar's area in the lower panel is its
    energy."""
    parts = list(stretches(schedule))
    budget = schedule.problem.budget_us
    across, high = (WIDTH - LEFT - RIGHT) / budget, (HEIGHT - TOP - BELOW - GAP) / 2
    panels = []
    for i, (title, unit, values) in enumerate((
        ("clock", "MHz", [s.hz / 1e6 for s in parts]),
        ("power, modelled", "mW", [s.mw for s in parts]),
    )):  # fmt: skip
        most, base = max(values), TOP + high + i * (high + GAP)
        bars = []
        for s, value in zip(parts, values, strict=True):
            height = high * value / most
            x, width = round(LEFT + s.start_us * across, 1), round(max(s.time_us * across, 0.2), 1)
            bars.append((x, round(base - height, 1), width, round(height, 1), s.colour, s.title))
        panels.append(Panel(title, round(base, 1), f"{most:.4g} {unit}", round(base - high, 1), tuple(bars)))
    used = [c for c in schedule.clocks.configs if any(p.config == c.name for p in schedule.points)]
    keys = [(mhz(c.sysclk_hz), _colour(schedule, c.name)) for c in used] + [("switch", SWITCHING), ("idle", IDLE)]
    chosen = schedule.selection
    caption = (
        f"{len(schedule.points)} steps, {chosen.time_us / 1000:.4g} ms at work, "
        f"{chosen.idle_us / 1000:.4g} ms idle ({chosen.mode.name}): {chosen.energy_uj / 1000:.4g} mJ, modelled"
    )
    return render("clocks.svg.j2", panels=panels, keys=keys, width=WIDTH, height=HEIGHT, left=LEFT, right=WIDTH - RIGHT,
                  budget=f"{budget / 1000:g} ms", caption=comment(caption))  # fmt: skip


def stretches(schedule: ClockSchedule) -> Iterator[Stretch]:
    """Layers, switches and idling one after the other, up to the deadline."""
    problem, chosen, hse = schedule.problem, schedule.selection, schedule.clocks.hse_hz
    at = 0.0

    def stretch(time: float, energy: float, hz: float, colour: str, title: str) -> Stretch:
        nonlocal at
        start, at = at, at + time
        return Stretch(
            start, time, hz, energy / time * 1000 if time else 0.0, colour, f"{title}: {time:.0f} us, {energy:.1f} uJ"
        )

    def switch(start: str, end: str) -> Stretch:
        cost = problem.switch(start, end)
        return stretch(cost.time_us, cost.energy_uj, hse, SWITCHING, f"{start} to {end}")

    before = chosen.start
    for layer, p in zip(problem.layers, chosen.points, strict=True):
        if p.config != before:
            yield switch(before, p.config)
        before = p.config
        how = f", g = {p.g}" + (" gathered at the HSE" if p.lfo else "") if p.g else ""
        hz = schedule.clocks.config(p.config).sysclk_hz
        title = f"{comment(layer.name)} at {p.config}{how}"
        yield stretch(p.time_us, p.energy_uj, hz, _colour(schedule, p.config), title)
    if schedule.returns_to:
        yield switch(before, schedule.returns_to)
    mode = chosen.mode
    asleep = chosen.idle_us - mode.min_time_us
    clock = schedule.clocks.config(chosen.start).sysclk_hz if mode.returns else 0.0
    if asleep > 0:
        yield stretch(asleep, mode.power_mw * asleep / 1000, clock, IDLE, f"idle ({mode.name})")
    if mode.min_time_us > 0:
        yield stretch(mode.min_time_us, mode.energy_uj, hse, SWITCHING, f"into {mode.name} and back")


def _colour(schedule: ClockSchedule, config: str) -> str:
    used = sorted({p.config for p in schedule.points}, key=lambda name: schedule.clocks.config(name).sysclk_hz)
    return COLOURS[used.index(config) % len(COLOURS)]
