"""The table of configurations that `edgebuild clock` prints."""

from __future__ import annotations

from edgebuild.clock.configs import ClockPlan, Config, preferred, settings, vco_range
from edgebuild.clock.power import PowerModel

HEADINGS = ("config", "SYSCLK", "from", "M", "N", "P", "Q", "VCO", "scale", "OD", "WS", "APB1", "APB2", "lock us", "mA",
            "nJ/cycle")  # fmt: skip


def table(plan: ClockPlan, placement: str | None = None) -> str:
    """Frequencies in MHz; currents are modelled from the datasheet's, with the code in its first placement."""
    tree = plan.tree
    model = PowerModel(plan, placement or next(iter(tree.power.run_ma))) if tree.power else None
    rows = [HEADINGS, *(_row(plan, c, model) for c in plan.configs)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    legal = list(settings(tree, plan.hse_hz))
    feed = "fed in" if plan.hse_bypass else "crystal"
    lines.insert(0, f"{tree.description}; HSE {plan.hse_hz / 1e6:g} MHz, {feed}")
    lines.append(f"{len(legal)} PLL settings are legal and give {len(preferred(tree, plan.hse_hz, legal))} SYSCLKs.")
    if tree.power and model:
        lines.append(f"Currents: modelled, {tree.power.of}, code in {model.placement}, {tree.power.vdd_v:g} V.")
    return "\n".join(lines) + "\n"


def _row(plan: ClockPlan, c: Config, model: PowerModel | None) -> tuple[str, ...]:
    s = c.pll
    dividers = [str(x) for x in (s.m, s.n, s.p, s.q or "-")] if s else ["-"] * 4
    buses = [f"{c.sysclk_hz / d / 1e6:g}" if d else "?" for d in (plan.apb1, plan.apb2)]
    cost = ["?", "?"]
    if model:
        mw = model.run_mw(c)
        cost = [f"{mw / _vdd(plan):.1f}", f"{mw / c.sysclk_hz * 1e6:.3f}"]
    lock = "-"
    if s:
        known = vco_range(plan.tree, plan.hse_hz, s).lock_us
        lock = f"{PowerModel.lock_us(model, c):.0f}" if model and known else "?"
    return (
        c.name, f"{c.sysclk_hz / 1e6:g}", "PLL" if s else "HSE", *dividers, f"{s.vco_hz / 1e6:g}" if s else "-",
        c.scale.name, "yes" if c.overdrive else "-", "?" if c.wait_states is None else str(c.wait_states),
        *buses, lock, *cost,
    )  # fmt: skip


def _vdd(plan: ClockPlan) -> float:
    return plan.tree.power.vdd_v if plan.tree.power else 1.0
