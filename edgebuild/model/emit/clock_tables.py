"""A plan's clocks as the generated C and a terminal show them. All figures are modelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..plan.search import Plan
from .names import comment

if TYPE_CHECKING:
    from ..energy.layer_cost import Selection
    from ..energy.select import ClockSchedule


def header_view(plan: Plan) -> dict[str, Any] | None:
    """View of N_clock.h; None for a plan without clocks."""
    if plan.clocks is None:
        return None
    schedule, selection = plan.clocks, plan.clocks.selection
    return {
        "budgets": budget_views(plan),
        "hse": schedule.hse,
        "hse_hz": schedule.clocks.base_hz,
        "budget": f"{schedule.problem.budget_us / 1000:g}",
        "budget_us": round(schedule.problem.budget_us),
        "time_us": round(selection.time_us),
        "energy_nj": round(selection.energy_uj * 1000),
        "start": selection.start,
        "idle": idling(schedule, f"{plan.name.upper()}_CLOCK_START"),
        "layers": _layers(plan, selection),
    }


def _layers(plan: Plan, selection: Selection) -> list[dict[str, str]]:
    """View of the steps under one budget."""
    return [
        {
            "call": f"{step}, {p.config}, {p.g}, {int(p.lfo)}, {round(p.time_us)}, {round(p.energy_uj * 1000)}",
            "name": comment(section.name),
        }
        for step, (section, p) in enumerate(zip(plan.steps, selection.points, strict=True))
    ]


def budget_views(plan: Plan) -> list[dict[str, Any]]:
    """View of each budget where there are several; else nothing."""
    if plan.clocks is None or not plan.clocks.others:
        return []
    views: list[dict[str, Any]] = []
    for (problem, s), clocks in zip(plan.clocks.budgets, plan.clocks.table, strict=True):
        figures = f"{round(problem.budget_us)}, {s.start}, {round(s.time_us)}, {round(s.energy_uj * 1000)}"
        views.append({
            "ms": f"{problem.budget_us / 1000:g}", "call": f"{len(views)}, {figures}", "layers": _layers(plan, s),
            "idle": idling(plan.clocks, f"EB_CLOCK_{s.start}", s), "clocks": [f"EB_CLOCK_{name}" for name in clocks],
        })  # fmt: skip
    return views


def switch_points(plan: Plan) -> tuple[list[str | None], str | None]:
    """Arguments of N_CLOCK before each step, and after the last: configurations, or numbers of changes for several."""
    if plan.clocks is None:
        return [], None
    if not plan.clocks.others:
        return list(plan.clocks.switch_points), plan.clocks.returns_to
    numbers = {step: str(number) for number, step in enumerate(plan.clocks.changes)}
    return [numbers.get(step) for step in range(len(plan.steps))], numbers.get(len(plan.steps))


def idling(schedule: ClockSchedule, start: str, selection: Selection | None = None) -> str:
    """Say what the application does until the next inference, which begins in the configuration `start`."""
    mode, low = (selection or schedule.selection).mode.name, schedule.clocks.configs[0].name
    modes = {
        "busy": "wait, with the clocks as they are",
        "gated": "Sleep mode (WFI), with the clocks as they are",
        "sleep": f"eb_clock_switch(EB_CLOCK_{low}), then Sleep mode (WFI)",
    }
    return modes.get(mode, f"Stop mode ({mode.removeprefix('stop_').replace('_', ' ')}), then eb_clock_resume({start})")


def energy_words(plan: Plan) -> str:
    """The clocks of the steps, and what they are worth, for a terminal."""
    assert plan.clocks is not None
    schedule, s = plan.clocks, plan.clocks.selection
    spent = f"{s.time_us / 1000:.2f} ms at work, {s.idle_us / 1000:.2f} ms idle ({s.mode.name})"
    energy = f"{s.energy_uj / 1000:.3f} mJ in {schedule.problem.budget_us / 1000:g} ms"
    lines = [
        f"{plan.graph.file} on {plan.target.name}, HSE {schedule.hse}: everything here is modelled",
        f"  currents: {schedule.sources['currents']}; stalls: {schedule.sources['stalls']}",
        f"  {energy}: {spent}; no plan takes less than {s.bound_uj / 1000:.3f} mJ",
        f"{'step':>6} {'config':>9} {'g':>3} {'gather':>7} {'us':>9} {'uJ':>9}  layer",
    ]
    for step, (section, p) in enumerate(zip(plan.steps, schedule.points, strict=True)):
        gather = ("HSE" if p.lfo else "as is") if p.g else "-"
        numbers = f"{step:>6} {p.config:>9} {p.g or '-':>3} {gather:>7} {p.time_us:>9.1f} {p.energy_uj:>9.2f}"
        lines.append(f"{numbers}  {comment(section.name)}")
    for start, end in s.switched:
        cost = schedule.problem.switch(start, end)
        lines.append(f"  switch {start} -> {end}: {cost.time_us:.0f} us, {cost.energy_uj:.1f} uJ")
    for problem, other in schedule.others:
        spent = f"{other.time_us / 1000:.2f} ms at work, {other.mode.name}"
        clocks = ", ".join(dict.fromkeys(p.config for p in other.points))
        lines.append(f"  {other.energy_uj / 1000:.3f} mJ in {problem.budget_us / 1000:g} ms: {spent}, {clocks}")
    lines.append(
        "saved at equal latency, against the fastest clock and then idling busily / gated / in the best stop mode:"
    )
    for c in schedule.comparisons:
        saved = " / ".join(f"{c.saving(b):.1%}" for b in c.baselines)
        parts = ", ".join(f"{name} {share:.1%}" for name, share in c.shares.items())
        lines.append(f"  slack {c.slack:.0%} ({c.budget_us / 1000:.1f} ms): {saved}; of the first: {parts}")
    return "\n".join(lines) + "\n"
