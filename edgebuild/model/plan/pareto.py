"""The trade between memory and time: ways to run a network of which none is better than another in both.

Each is the fastest cut into sections (see `sections`) within some memory. The memory goes down in steps, each to below
what the cut before took, so that nothing between two neighbours is missed but what lies within a step.
"""

from __future__ import annotations

from dataclasses import dataclass

from .cuts import Cutter
from .section import Section

STEP = 0.94  # of the memory of one way to the limit of the next


@dataclass(frozen=True)
class Point:
    """A way to run the network."""

    peak_bytes: int
    instructions: int  # estimated
    calls: int  # of kernels
    rolled: int  # ops that run row by row
    table_bytes: int  # of flash, for the order of calls


def front(cutter: Cutter) -> tuple[Point, ...]:
    """Plans that no other betters in both memory and time, the least memory first."""
    limit, points = 2 * sum(cutter.sizes.values()), list[Point]()
    while True:
        point = point_of(cutter, cutter.cut(limit))
        if not points or point.instructions > points[-1].instructions:
            points.append(point)
        elif point.peak_bytes < points[-1].peak_bytes:
            points[-1] = point
        if limit <= cutter.least_peak:
            break
        limit = min(int(limit * STEP), int(point.peak_bytes * STEP))
    return tuple(reversed(points))


def point_of(cutter: Cutter, sections: tuple[Section, ...]) -> Point:
    tables = [s.calls for s in sections if s.rolled]
    return Point(
        max(cutter.profile(sections), default=0),
        round(sum(s.instructions for s in sections)),
        sum(s.calls for s in sections),
        sum(len(s.ops) for s in sections if s.rolled),
        sum(tables),
    )
