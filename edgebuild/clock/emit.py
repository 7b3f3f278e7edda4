"""`clock_config.h` and `clock_config.c`: the configurations of a clock plan, and how to get from one to another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..base.artifacts import Artifact
from ..base.errors import did_you_mean, fail
from ..base.facts import compose, entries, wrong
from ..base.request import CLOCK_OUTPUTS, ClockRequest
from ..base.target import Target, clock_tree_file, load_target
from ..base.templates import render
from .configs import ClockPlan, Config, clock_plan, mhz
from .families import FAMILIES
from .tree import ClockTree, Registers, clock_names, load_clock_tree


def target_tree(target: Target) -> ClockTree:
    """The clock tree of a target. Raises EdgebuildError if it has none."""
    if not target.clocks:
        raise fail(f"target {target.name} has no clock tree", hints=["its YAML names one with `clocks: NAME`"])
    if not clock_tree_file(target.clocks).is_file():
        known = clock_names()
        text = f"unknown clock tree '{target.clocks}'{did_you_mean(target.clocks, known)}"
        for file in target.files:
            if (node := compose(Path(file))) is not None and (said := entries(node).get("clocks")) is not None:
                raise wrong(said, text, "known: " + ", ".join(known))
    return load_clock_tree(target.clocks)


def requested_plan(request: ClockRequest) -> ClockPlan:
    """The configurations that a request asks for. Raises EdgebuildError for what the chip cannot do."""
    return clock_plan(target_tree(load_target(request.target)), request.hse, request.sysclk)


def clock_files(plan: ClockPlan) -> tuple[Artifact, Artifact]:
    """The source and the header. Raises EdgebuildError where the tree lacks what they need."""
    registers = _require(plan)
    view = _view(plan)
    own = FAMILIES[registers.family](plan, registers)
    source, header = CLOCK_OUTPUTS
    return (
        Artifact(source, render(f"{registers.family}/{source}.j2", **view, **own).encode()),
        Artifact(header, render(f"{header}.j2", **view).encode()),
    )


def summary(request: ClockRequest, plan: ClockPlan) -> str:
    """Summary of clock configurations for a build's output."""
    low, high = plan.configs[0], max(plan.configs, key=lambda c: c.sysclk_hz)
    feed = "fed in" if plan.hse_bypass else "crystal"
    return (
        f"[edgebuild] clocks {request.name} -> {plan.tree.device}: {len(plan.configs)} configurations, "
        f"{mhz(low.sysclk_hz)} (HSE, {feed}) to {mhz(high.sysclk_hz)}"
    )


def _require(plan: ClockPlan) -> Registers:
    tree = plan.tree
    if tree.registers is None:
        raise tree.unknown("registers are", "there is no code to switch clocks with")
    if tree.flash is None:
        raise tree.unknown("wait states are", "there is no safe order of switching")
    if plan.apb1 is None or plan.apb2 is None:
        raise tree.unknown("the limits of the buses are", "their dividers cannot be chosen")
    return tree.registers


def _view(plan: ClockPlan) -> dict[str, Any]:
    tree = plan.tree
    width = max(len(c.name) for c in plan.configs)
    locks = [most for r in tree.pll.vco for _, most in (r.lock_us or {}).values()]
    return {
        "device": tree.description,
        "hse": mhz(plan.hse_hz),
        "hse_hz": plan.hse_hz,
        "hsi_hz": tree.hsi_hz,
        "bypass": int(plan.hse_bypass),
        "apb1": plan.apb1,
        "apb2": plan.apb2,
        "lock": f"{max(locks):g}" if locks else "an unknown number of",
        "fastest": max(plan.configs, key=lambda c: c.sysclk_hz).name,
        "configs": [{"name": c.name, "pad": " " * (width - len(c.name)), "text": _text(c)} for c in plan.configs],
    }


def _text(c: Config) -> str:
    if c.pll is None:
        return f"HSE, PLL off; scale {c.scale.name}, {c.wait_states} wait states"
    over = " with over-drive" if c.overdrive else ""
    s = c.pll
    return f"M={s.m} N={s.n} P={s.p} Q={s.q}; scale {c.scale.name}{over}, {c.wait_states} wait states"
