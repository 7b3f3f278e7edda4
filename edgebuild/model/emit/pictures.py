"""Pictures of clocks and of the timeline of a cluster, as SVG.

A timeline shows one inference of a cluster: each device has a row, with boxes where it computes, sends or waits.

A clock picture shows frequency and power from the begin of an inference to its deadline; both are modelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...base.text import visible
from ...clock.configs import mhz
from ..energy.select import ClockSchedule
from ..plan.distribute.timeline import Timeline
from ..views.drawing import COLOURS, LETTER, Drawing, Shape, box, drawn, fitted, legend, line, short, ticks, words
from .addresses import comment

WIDTH, RIGHT = 720, 12  # pixels
NAMES, HEAD, ROW, BAR, FOOT = 100, 24, 30, 22, 52  # pixels, of timelines
KINDS = {"compute": COLOURS[0], "send": COLOURS[1], "wait": "#b8bfc6"}
MIN_WIDTH = 0.05  # pixels: a shorter time is not drawn


def timeline_picture(timeline: Timeline, names: Sequence[str], one_device_us: float, caption: str) -> Drawing:
    """The timeline, with modelled time to the right. `one_device_us`: the source's time alone, drawn as a line."""
    end = max([timeline.end(k) for k in range(len(names))] + [one_device_us, 1e-9])
    across, bottom = (WIDTH - NAMES - RIGHT) / end, HEAD + len(names) * ROW
    shapes = [words(NAMES, 14, fitted(visible(caption), WIDTH - NAMES))]
    for mark in ticks(end / 1000, 8):
        x = NAMES + mark * 1000 * across
        shapes += [line(x, HEAD, x, bottom), words(x, bottom + 12, f"{mark:g}", "middle", "muted")]
    for k, (name, spans) in enumerate(zip(names, timeline.spans, strict=True)):
        shapes.append(words(NAMES - 6, HEAD + k * ROW + BAR - 7, fitted(visible(name), NAMES - 10), "end"))
        for s in spans:
            if (width := (s.end - s.start) * across) >= MIN_WIDTH:
                text = f"{visible(name)}, {s.kind} {comment(s.what)}, {s.start / 1000:.3f} to {s.end / 1000:.3f} ms"
                shapes += box(NAMES + s.start * across, HEAD + k * ROW, width, BAR, KINDS[s.kind], text, s.what)
    alone = NAMES + one_device_us * across
    shapes += [line(alone, HEAD, alone, bottom, "limit"), words(alone - 4, bottom + 25, "one device", "end", "accent")]
    shapes.append(words(WIDTH - RIGHT, bottom + 42, "ms, modelled", "end", "muted"))
    shapes += legend(NAMES, bottom + 42, [(colour, kind) for kind, colour in KINDS.items()])
    return drawn(f"Timeline: {caption}", WIDTH, bottom + FOOT, shapes)


HEIGHT, LEFT, TOP, BELOW, GAP = 380, 56, 34, 50, 26  # pixels, of clocks
SWITCHING, IDLE = "#444444", "#cccccc"


@dataclass(frozen=True)
class Stretch:
    """A period of constant frequency and power, in microseconds, Hz and mW."""

    start_us: float
    time_us: float
    hz: float
    mw: float
    colour: str
    title: str


def clock_picture(schedule: ClockSchedule) -> Drawing:
    """The picture of a schedule, with time to the right, to the scale of the budget: clock above, power below. Each
    configuration has a colour, dark while the clock is switched, grey when idle. A bar's area in the lower panel is its
    energy."""
    parts, budget, chosen = list(stretches(schedule)), schedule.problem.budget_us, schedule.selection
    across, high = (WIDTH - LEFT - RIGHT) / budget, (HEIGHT - TOP - BELOW - GAP) / 2
    caption = f"{chosen.time_us / 1000:.4g} ms of {budget / 1000:g} ms: {chosen.energy_uj / 1000:.4g} mJ, modelled"
    shapes = [words(LEFT, 13, fitted(caption, WIDTH - LEFT))]
    for i, (title, values) in enumerate((
        ("clock, MHz", [s.hz / 1e6 for s in parts]),
        ("power, mW, modelled", [s.mw for s in parts]),
    )):  # fmt: skip
        most, base = max(values), TOP + high + i * (high + GAP)
        shapes += _panel(title, most, base, high)
        for s, value in zip(parts, values, strict=True):
            height, width = high * value / most, max(s.time_us * across, 0.2)
            shapes += box(LEFT + s.start_us * across, base - height, width, height, s.colour, s.title)
    for mark in ticks(budget / 1000, 8):
        x = LEFT + mark * 1000 * across
        shapes += [line(x, base, x, base + 4, "axis"), words(x, base + 15, f"{mark:g}", "middle", "muted")]
    shapes.append(line(WIDTH - RIGHT, TOP, WIDTH - RIGHT, base, "limit"))
    shapes.append(words(WIDTH - RIGHT, base + 28, f"ms; budget {budget / 1000:g} ms", "end", "muted"))
    used = [c for c in schedule.clocks.configs if any(p.config == c.name for p in schedule.points)]
    keys = [(_colour(schedule, c.name), mhz(c.sysclk_hz)) for c in used] + [(SWITCHING, "switch"), (IDLE, "idle")]
    shapes += legend(LEFT, HEIGHT - 8, keys[: int((WIDTH - LEFT) / (12 * LETTER))])
    return drawn(f"Clock and power: {caption}", WIDTH, HEIGHT, shapes)


def _panel(title: str, most: float, base: float, high: float) -> Iterator[Shape]:
    """The title, the base line and the ticks of a curve."""
    yield words(LEFT, base - high - 5, title, role="muted")
    for mark in ticks(most, 4):
        y = base - high * mark / (most or 1)
        yield line(LEFT, y, WIDTH - RIGHT, y, "grid" if mark else "axis")
        yield words(LEFT - 4, y + 3.5, short(mark), "end", "muted")


def stretches(schedule: ClockSchedule) -> Iterator[Stretch]:
    """Layers, switches and idling one after the other, up to the deadline."""
    problem, chosen, hse = schedule.problem, schedule.selection, schedule.clocks.base_hz
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
    if chosen.returns:
        yield switch(before, chosen.start)
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
