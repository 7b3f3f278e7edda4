"""One inference of a cluster as an SVG: each device has a row, with boxes where it computes, sends or waits."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.dataclass import dataclass
from ...base.templates import render
from ..plan.distribute.timeline import Timeline
from .names import comment

WIDTH, LEFT, RIGHT, TOP, ROW, BAR, BELOW = 720, 90, 12, 24, 30, 22, 44  # pixels
LETTER = 6  # width of a letter, pixels
COLOURS = {"compute": "#4c78a8", "send": "#f58518", "wait": "#dddddd"}
LEAST = 0.05  # pixels: a shorter time is not drawn


@dataclass(frozen=True)
class Bar:
    x: float
    y: float
    width: float
    colour: str
    title: str


@dataclass(frozen=True)
class Label:
    x: float
    y: float
    text: str


def timeline_picture(found: Timeline, names: Sequence[str], one_device_us: float, caption: str) -> str:
    """Time to the right, modelled. `one_device_us`: how long the source alone takes, a line."""
    end = max([found.end(k) for k in range(len(names))] + [one_device_us, 1e-9])
    across = (WIDTH - LEFT - RIGHT) / end
    boxes = [
        Bar(round(LEFT + s.start * across, 2), TOP + k * ROW, round((s.end - s.start) * across, 2), COLOURS[s.kind],
            comment(f"{names[k]}, {s.kind} {s.what}, {s.start / 1000:.3f} to {s.end / 1000:.3f} ms"))
        for k, spans in enumerate(found.spans)
        for s in spans
        if (s.end - s.start) * across >= LEAST
    ]  # fmt: skip
    most = (LEFT - 10) // LETTER
    rows = [Label(LEFT - 6, TOP + k * ROW + BAR - 7, comment(n[:most])) for k, n in enumerate(names)]
    bottom = TOP + len(names) * ROW
    legend, at = list[Label](), float(LEFT)
    for kind in COLOURS:
        legend.append(Label(at, bottom + 30, kind))
        at += 90
    alone = round(LEFT + one_device_us * across, 2)
    return render("timeline.svg.j2", boxes=boxes, rows=rows, legend=legend, colours=list(COLOURS.values()), width=WIDTH,
                  height=bottom + BELOW, bar=BAR, top=TOP, bottom=bottom, left=LEFT, right=WIDTH - RIGHT, alone=alone,
                  end=f"{end / 1000:.3f} ms", caption=comment(caption))  # fmt: skip
