"""The trade between memory and time, as words, as rows of the report and as a picture."""

from __future__ import annotations

from typing import Any

from ...base.dataclass import dataclass
from ...base.templates import render
from ..plan.search import Plan
from .names import comment

WIDTH, HEIGHT, LEFT, BELOW = 720, 300, 64, 40  # pixels
SHOWN = 8  # lines of the words


@dataclass(frozen=True)
class Mark:
    """A point of the picture: where, and what a reader may ask of it."""

    x: float
    y: float
    chosen: bool
    title: str


def trade_words(plan: Plan) -> list[str]:
    """A line for each cut, at most a few of them, evenly over the range."""
    points, own = plan.trade_off, plan.point
    step = max(1, -(-(len(points) - 1) // (SHOWN - 1)))
    shown = [p for i, p in enumerate(points) if i % step == 0 or i == len(points) - 1 or p is own]
    lines = [f"  {len(points)} cuts of this order of ops, with estimates:"]
    for p in shown:
        mark = "  <- this plan" if p is own else ""
        more = f"{100 * (p.cost / max(own.cost, 1) - 1):+.1f} %"
        lines.append(
            f"    {p.peak_bytes:>8} B {p.instructions:>12,} instructions {more:>8} time {p.calls:>5} calls{mark}"
        )
    return lines


def trade_rows(plan: Plan) -> list[dict[str, Any]]:
    """The plan and other cuts for the report."""
    return [
        {
            "peak_bytes": p.peak_bytes,
            "estimated_instructions": p.instructions,
            "time": round(p.cost / max(plan.point.cost, 1), 4),
            "calls": p.calls,
            "table_bytes": p.table_bytes,
            "flash_bytes": p.flash_bytes,
            "macs_twice": plan.extra_macs,
            "chosen": p is plan.point,
        }
        for p in plan.trade_off
    ]


def trade_picture(plan: Plan) -> str:
    """Memory to the right, instructions upwards, both from zero; the plan's own way in red."""
    points = plan.trade_off
    most, longest = max(p.peak_bytes for p in points), max(p.instructions for p in points)
    right, up = (WIDTH - LEFT - 24) / max(most, 1), (HEIGHT - BELOW - 24) / max(longest, 1)
    marks = []
    for p in points:
        title = f"{p.peak_bytes} B, {p.instructions:,} instructions estimated, {p.calls} calls, {p.rolled} ops by rows"
        x, y = LEFT + p.peak_bytes * right, HEIGHT - BELOW - p.instructions * up
        marks.append(Mark(round(x, 1), round(y, 1), p is plan.point, title))
    return render("trade.svg.j2", marks=marks, width=WIDTH, height=HEIGHT, left=LEFT, below=BELOW, most=most,
                  longest=f"{longest / 1e6:.2f} M", caption=comment(plan.graph.file))  # fmt: skip
