"""The trade between memory and time, as words and as rows of the report."""

from __future__ import annotations

from typing import Any

from ..plan.search import Plan

SHOWN = 8  # lines of the words


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
