"""The arena over time as an SVG: a box for each buffer, from its first step to its last."""

from __future__ import annotations

from itertools import accumulate

from ...base.dataclass import dataclass
from ...base.templates import render
from ..plan.search import Plan
from .names import comment, shape_text

WIDTH, HEIGHT, MARGIN, LABEL = 720, 300, 56, 7  # pixels; LABEL: width of a letter
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#eeca3b")


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    colour: str
    label: str
    title: str


def picture(plan: Plan, scale_bytes: int | None = None) -> str:
    """Addresses upwards, steps to the right; a rolled run is as wide as it has ops.

    `scale_bytes`: what the full height stands for; by default the arena.
    """
    full = max(scale_bytes or plan.arena_bytes, 1)
    edges = list(accumulate((s.callers for s in plan.steps), initial=0)) if plan.steps else [0, 1]
    across, up = (WIDTH - MARGIN - 8) / max(edges[-1], 1), (HEIGHT - 40) / full
    boxes = []
    for number, b in enumerate(
        b for b in plan.buffers if b.view_of is None and not (b.rows and b.overlaps and not b.calls)
    ):
        within = b.calls or (0, edges[b.last + 1] - edges[b.last] - 1)
        first, past = edges[b.first] + within[0], edges[b.last] + within[1] + 1
        x, right = MARGIN + first * across, MARGIN + past * across
        height = b.bytes * up
        label = "scratch" if b.scratch else "newest row" if b.newest else shape_text(plan.graph.tensors[b.tensor])
        label += f", {b.rows} rows" if b.rows else ""
        fits = height >= 11 and len(label) * LABEL * 0.8 < right - x
        what = "scratch of " if b.scratch else "newest row of " if b.newest else ""
        title = f"{what}{comment(b.tensor)}: {b.bytes} B at {b.place.offset}, steps {b.first} to {b.last}"
        top = HEIGHT - 24 - (b.place.offset + b.bytes) * up
        colour = COLOURS[number % len(COLOURS)]
        boxes.append(Box(round(x, 1), round(top, 1), round(right - x, 1), round(height, 1), colour,
                         label if fits else "", title))  # fmt: skip
    peak = round(HEIGHT - 24 - plan.arena_bytes * up, 1)
    caption = f"{plan.graph.file}: {plan.arena_bytes} bytes of arena, {len(plan.steps)} steps"
    return render("arena.svg.j2", boxes=boxes, width=WIDTH, height=HEIGHT, margin=MARGIN, peak=peak,
                  arena=plan.arena_bytes, caption=comment(caption))  # fmt: skip
