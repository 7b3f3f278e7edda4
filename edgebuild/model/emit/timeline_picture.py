"""One inference of a cluster as an SVG: each device has a row, with boxes where it computes, sends or waits."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.text import visible
from ..plan.distribute.timeline import Timeline
from ..views.drawing import COLOURS, Drawing, box, drawn, fitted, legend, line, ticks, words
from .names import comment

WIDTH, LEFT, RIGHT, TOP, ROW, BAR, BELOW = 720, 100, 12, 24, 30, 22, 52  # pixels
KINDS = {"compute": COLOURS[0], "send": COLOURS[1], "wait": "#b8bfc6"}
LEAST = 0.05  # pixels: a shorter time is not drawn


def timeline_picture(timeline: Timeline, names: Sequence[str], one_device_us: float, caption: str) -> Drawing:
    """Time to the right, modelled. `one_device_us`: how long the source alone takes, a line."""
    end = max([timeline.end(k) for k in range(len(names))] + [one_device_us, 1e-9])
    across, bottom = (WIDTH - LEFT - RIGHT) / end, TOP + len(names) * ROW
    shapes = [words(LEFT, 14, fitted(visible(caption), WIDTH - LEFT))]
    for mark in ticks(end / 1000, 8):
        x = LEFT + mark * 1000 * across
        shapes += [line(x, TOP, x, bottom), words(x, bottom + 12, f"{mark:g}", "middle", "muted")]
    for k, (name, spans) in enumerate(zip(names, timeline.spans, strict=True)):
        shapes.append(words(LEFT - 6, TOP + k * ROW + BAR - 7, fitted(visible(name), LEFT - 10), "end"))
        for s in spans:
            if (width := (s.end - s.start) * across) >= LEAST:
                text = f"{visible(name)}, {s.kind} {comment(s.what)}, {s.start / 1000:.3f} to {s.end / 1000:.3f} ms"
                shapes += box(LEFT + s.start * across, TOP + k * ROW, width, BAR, KINDS[s.kind], text, s.what)
    alone = LEFT + one_device_us * across
    shapes += [line(alone, TOP, alone, bottom, "limit"), words(alone - 4, bottom + 25, "one device", "end", "accent")]
    shapes.append(words(WIDTH - RIGHT, bottom + 42, "ms, modelled", "end", "muted"))
    shapes += legend(LEFT, bottom + 42, [(colour, kind) for kind, colour in KINDS.items()])
    return drawn(f"Timeline: {caption}", WIDTH, bottom + BELOW, shapes)
