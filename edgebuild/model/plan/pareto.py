"""The trade between memory, time and flash: a plan among the fastest cuts into sections within some memory each."""

from __future__ import annotations

from dataclasses import dataclass

from .cuts import Cutter
from .section import Section, cost, instructions
from .thrift import flash_of


@dataclass(frozen=True)
class Point:
    """A way to run the network."""

    peak_bytes: int
    instructions: int  # estimated
    cost: float  # the same, more where they take longer
    calls: int  # of kernels
    rolled: int  # ops that run row by row
    table_bytes: int  # of flash, for the order of calls
    flash_bytes: int  # estimated, of constants and code, tables among them

    def undercuts(self, other: Point) -> bool:
        """Whether it takes no more of anything than the other, and is not equal."""
        mine, its = ((p.peak_bytes, p.cost, p.flash_bytes) for p in (self, other))
        return mine != its and all(a <= b for a, b in zip(mine, its, strict=True))


def around(cutter: Cutter, own: Point) -> tuple[Point, ...]:
    """A plan and the cuts of its order of ops that it does not undercut, the least memory first."""
    points = (point_of(cutter, sections) for sections in cutter.front)
    others = [p for p in points if p.peak_bytes != own.peak_bytes and not own.undercuts(p)]
    return tuple(sorted([own, *others], key=lambda p: p.peak_bytes))


def point_of(cutter: Cutter, sections: tuple[Section, ...]) -> Point:
    tables = [s.calls for s in sections if s.rolled]
    return Point(
        max(cutter.profile(sections), default=0),
        round(instructions(sections)),
        cost(sections),
        sum(s.calls for s in sections),
        sum(len(s.ops) for s in sections if s.rolled),
        sum(tables),
        flash_of(cutter.graph, sections, cutter.form),
    )
