"""A plan in words, for a terminal."""

from __future__ import annotations

from .. import ops
from ..plan.choose import mac_overhead
from ..plan.events import newest_name
from ..plan.search import Plan
from ..plan.section import scratch_name
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
    live = live_set(plan, at)
    lines = [f"  the most is live in step {at}, {plan.schedule.profile[at]} B:"]
    lines += [f"    {size:>8} B  {what}" for size, what, _ in live[:MOST_LINES]]
    if more := live[MOST_LINES:]:
        lines.append(f"    {sum(size for size, _, _ in more):>8} B  in {len(more)} more")
    overlap = plan.cutter.best_overlap(plan.steps[at])
    if overlap is not None:
        saved, y, x = plan.cutter.saving(overlap), comment(overlap.result), comment(overlap.operand)
        lines.append(f"    {-saved:>8} B  as {y} grows into {x}")
    if live[0][2] in plan.graph.inputs:
        lines.append(f"  next limit: the input tensor itself, {live[0][0]} B")
    return lines


def live_set(plan: Plan, step: int) -> list[tuple[int, str, str]]:
    """Bytes, description and tensor of all that is live when a step needs most, the largest first."""
    section, cutter = plan.steps[step], plan.cutter
    start = sum(len(s.ops) for s in plan.steps[:step])
    found = []
    for name in (*(n for n, (first, last) in cutter.life.items() if first < start <= last), *section.results):
        found.append((cutter.sizes[name], f"{comment(name)} ({shape_text(plan.graph.tensors[name])})", name))
    op_at = section.in_use.index(max(section.in_use))
    scratch = {scratch_name(op.outputs[0]): op for op in section.ops}
    newest = {newest_name(n): n for n in section.rolled.apart} if section.rolled else {}
    for name, size in section.inner.items():
        first, last = section.spans[name]
        if name in section.guests:
            continue  # it takes no byte of its own
        if first <= op_at <= last and name in scratch:
            found.append((size, f"what the kernel of {comment(scratch[name].name)} works on", name))
        elif first <= op_at <= last and name in newest:
            found.append((size, f"the newest row of {comment(newest[name])}", name))
        elif first <= op_at <= last:
            rows = section.rolled.rings[name] if section.rolled else 0
            shape = shape_text(plan.graph.tensors[name])
            found.append((size, f"{comment(name)} (ring of {rows} rows of {shape})", name))
    return sorted(found, key=lambda row: -row[0])
