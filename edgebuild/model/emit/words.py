"""A plan in words, for a terminal."""

from __future__ import annotations

from .. import ops
from ..plan.choose import mac_overhead
from ..plan.search import Plan
from ..plan.storage import NEWEST, RING, SCRATCH, Live, live_set
from .names import comment, shape_text
from .trade import trade_words

MOST_LINES = 8  # of a live set, the largest first


def steps(plan: Plan) -> str:
    """A line for each op: step, bytes live, calls, multiply-accumulates."""
    rows = [f"{'step':>4} {'live B':>9} {'calls':>6} {'MACs':>10}  op"]
    for step, section in enumerate(plan.steps):
        for i, op in enumerate(section.ops):
            head = f"{step:>4} {plan.schedule.profile[step]:>9} {section.calls:>6}" if i == 0 else " " * 21
            rows.append(f"{head} {ops.nest(op, plan.graph).mac_count:>10}  {op.kind} '{comment(op.name)}'")
    rows.append(f"arena {plan.arena_bytes} B, peak {plan.schedule.peak} B, bound {plan.schedule.bound} B")
    return "\n".join(rows) + "\n"


def tiling_words(plan: Plan) -> str:
    """Say what was tiled, what it saves, what takes the memory now, and what would have to go next."""
    lines = [f"{plan.graph.file}: arena {plan.arena_bytes} B; every op whole: {plan.untiled_bytes} B"]
    for step, section in enumerate(plan.steps):
        if section.rolled is not None:
            first, last = comment(section.ops[0].name), comment(section.ops[-1].name)
            held = max(section.in_use)
            lines.append(
                f"  step {step}: {len(section.ops)} ops from '{first}' to '{last}' row by row: {section.calls} calls,"
                f" {held} B of rings, sums and scratch, nothing computed twice"
            )
    lines += _fused(plan)
    if not plan.tiled and plan.fused is None:
        lines.append("  nothing is tiled: no run of ops takes less memory row by row than its ops take whole")
    return "\n".join([*lines, *_limit(plan), *trade_words(plan)]) + "\n"


def _fused(plan: Plan) -> list[str]:
    """The paths that are cut into parts, and why the search ended."""
    if plan.fused is None:
        return []
    lines = []
    for choice in plan.fused.tilings:
        assert choice.tiling is not None
        path, counts = choice.tiling.path, "x".join(map(str, choice.tiling.counts))
        along = {"fdt": "channels", "ffmt": "rows or columns", "both": "rows or columns, and channels"}[path.method]
        end = "their sums added up" if path.fan_in else "put together"
        twice = f"{choice.extra_macs} MACs done twice" if choice.extra_macs > 0 else "nothing computed twice"
        saved = f"{choice.saved} B less between them, " if choice.saved else ""
        lines.append(
            f"  {len(path.ops)} ops from '{comment(path.ops[0].name)}' to '{comment(path.ops[-1].name)}'"
            f" in {counts} parts along {along}, {end}: {saved}{twice}"
        )
    percent = mac_overhead(plan.request)
    limit = f"at most {percent:g} % of the MACs twice" if percent else "no MACs twice (--max-mac-overhead allows some)"
    none = "" if lines else "  nothing is tiled: "
    why = f"no path of {plan.fused.estimated} looked at takes less memory with {limit}"
    return [*lines, f"{none or '  '}{why}{'' if none else ' than these'}"]


def _limit(plan: Plan) -> list[str]:
    """The step that needs most, and what is live there, which adds up to it."""
    if not plan.steps:
        return []
    at = max(range(len(plan.steps)), key=lambda i: plan.schedule.profile[i])
    live = live_set(plan.cutter, plan.steps, at)
    lines = [f"  the most is live in step {at}, {plan.schedule.profile[at]} B:"]
    lines += [f"    {part.bytes:>8} B  {_described(plan, part)}" for part in live.parts[:MOST_LINES]]
    if more := live.parts[MOST_LINES:]:
        lines.append(f"    {sum(part.bytes for part in more):>8} B  in {len(more)} more")
    if (overlap := live.overlap) is not None:
        lines.append(f"    {-overlap.saved:>8} B  as {comment(overlap.result)} grows into {comment(overlap.operand)}")
    if live.parts[0].tensor in plan.graph.inputs:
        lines.append(f"  next limit: the input tensor itself, {live.parts[0].bytes} B")
    return lines


def _described(plan: Plan, part: Live) -> str:
    """Words for what the bytes hold."""
    if part.kind == SCRATCH:
        return f"what the kernel of {comment(plan.graph.producers[part.tensor].name)} works on"
    name, shape = comment(part.tensor), shape_text(plan.graph.tensors[part.tensor])
    if part.kind == NEWEST:
        return f"the newest row of {name}"
    return f"{name} (ring of {part.rows} rows of {shape})" if part.kind == RING else f"{name} ({shape})"
