"""`clock_config.h` and `clock_config.c`: the configurations of a clock plan, and how to get from one to another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..base.artifacts import Artifact
from ..base.errors import did_you_mean, fail
from ..base.facts import compose, entries, wrong
from ..base.formula import parse_formula
from ..base.request import CLOCK_OUTPUTS, ClockRequest
from ..base.target import Target, clock_tree_file, load_target
from ..base.templates import render
from .configs import DIVIDERS, ClockPlan, Config, clock_plan, mhz, wait_states
from .tree import LETTERS, ClockTree, Registers, clock_names, load_clock_tree


def target_tree(target: Target) -> ClockTree:
    """The clock tree of a target. Raises EdgebuildError if it has none."""
    if not target.clocks:
        raise fail(f"target {target.name} has no clock tree", hints=["its YAML names one with `clocks: NAME`"])
    if clock_tree_file(target.clocks) is None:
        known = clock_names()
        text = f"unknown clock tree '{target.clocks}'{did_you_mean(target.clocks, known)}"
        for file in target.files:
            if (node := compose(Path(file))) is not None and (said := entries(node).get("clocks")) is not None:
                raise wrong(said, text, "known: " + ", ".join(known))
    return load_clock_tree(target.clocks)


def requested_plan(request: ClockRequest) -> ClockPlan:
    """The configurations that a request asks for. Raises EdgebuildError for what the chip cannot do."""
    return clock_plan(
        target_tree(load_target(request.target)), request.hse, request.sysclk, request.source, request.usb
    )


def clock_files(plan: ClockPlan) -> tuple[Artifact, Artifact]:
    """The source and the header. Raises EdgebuildError where the tree lacks what they need."""
    registers = _require(plan)
    view = _view(plan) | _registers_view(plan, registers)
    source, header = (Artifact(name, render(f"{name}.j2", **view).encode()) for name in CLOCK_OUTPUTS)
    return source, header


def summary(request: ClockRequest, plan: ClockPlan) -> str:
    """Summary of clock configurations for a build's output."""
    low, high = plan.configs[0], max(plan.configs, key=lambda c: c.sysclk_hz)
    return (
        f"[edgebuild] clocks {request.name} -> {plan.tree.device}: {len(plan.configs)} configurations, "
        f"{mhz(low.sysclk_hz)} ({plan.feed}) to {mhz(high.sysclk_hz)}"
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
        "feed": plan.feed,
        "oscillator": plan.oscillator,
        "base_hz": plan.base_hz,
        "hsi_hz": tree.hsi_hz,
        "bypass": int(plan.bypass),
        "apb1": plan.apb1,
        "apb2": plan.apb2,
        "lock": f"{max(locks):g}" if locks else "an unknown number of",
        "fastest": max(plan.configs, key=lambda c: c.sysclk_hz).name,
        "configs": [{"name": c.name, "pad": " " * (width - len(c.name)), "text": _text(c, plan)} for c in plan.configs],
    }


def _registers_view(plan: ClockPlan, registers: Registers) -> dict[str, Any]:
    """The registers with their fields, and what each configuration writes there."""
    divider = {"HPRE": 1, "PPRE1": plan.apb1 or 1, "PPRE2": plan.apb2 or 1}
    regulator = plan.tree.regulator
    stepped = regulator.step_hz is not None
    first = (plan.configs[0].wait_states, wait_states(plan.tree, regulator.scales[0], plan.tree.hsi_hz or 0))
    return {
        "registers": [_register(registers, name) for name in registers.map],
        "select": registers.select,
        "dividers": hex(sum(_put(registers, "RCC_CFGR", f, _divider_code(f, d)) for f, d in divider.items())),
        "overdrive": plan.tree.overdrive is not None,
        "with_pll": regulator.with_pll,
        "boost": any(s.boost for s in regulator.scales),
        "step": stepped and {"hz": regulator.step_hz, "reads": -(-max(c.sysclk_hz for c in plan.configs) // 1_000_000)},
        "oscillator_wait_states": plan.configs[0].wait_states,
        "first_wait_states": max(filter(None, first), default=0),
        "accelerator": " | ".join(f"FLASH_ACR_{name}" for name in registers.accelerator),
        "pll_fields": " | ".join(f"RCC_PLLCFGR_{name}" for name in registers.pll),
        "settings": [(c.name, _setting(plan, registers, c)) for c in plan.configs],
    }


def _register(registers: Registers, name: str) -> dict[str, Any]:
    register = registers.map[name]
    fields = [
        {"name": f"{name}_{field}", "mask": hex(((1 << width) - 1) << low)}
        for field, (low, width) in register.fields.items()
    ]
    return {"name": name, "address": hex(register.address), "fields": fields}


def _setting(plan: ClockPlan, registers: Registers, c: Config) -> str:
    """The values of one row of the C table, in its order."""
    words = [f"{c.sysclk_hz}u", "true" if c.pll else "false", f"{hex(_pllcfgr(plan, registers, c))}u"]
    words.append(f"{hex(_put(registers, 'PWR_CR', 'VOS', c.scale.vos or 0))}u")
    if plan.tree.overdrive:
        words.append("true" if c.overdrive else "false")
    if any(s.boost for s in plan.tree.regulator.scales):
        words.append("true" if c.scale.boost else "false")
    return ", ".join([*words, f"{c.wait_states}u"])


def _pllcfgr(plan: ClockPlan, registers: Registers, c: Config) -> int:
    if c.pll is None:
        return 0
    letters = {name: getattr(c.pll, name) for name in "mnpq"} | {"hse": plan.oscillator == "HSE"}
    fields = ((name, parse_formula(text, LETTERS)(letters)) for name, text in registers.pll.items())
    return sum(_put(registers, "RCC_PLLCFGR", name, round(value)) for name, value in fields)


def _divider_code(field: str, divider: int) -> int:
    """HPRE has a bit more than PPRE1 and PPRE2; the highest bit means that there is a division at all."""
    place = DIVIDERS.index(divider)
    return 0 if place == 0 else (8 if field == "HPRE" else 4) + place - 1


def _put(registers: Registers, register: str, field: str, value: int) -> int:
    low, width = registers.field(register, field)
    if not 0 <= value < 1 << width:
        raise ValueError(f"{register}.{field} has {width} bits and cannot hold {value}")
    return value << low


def _text(c: Config, plan: ClockPlan) -> str:
    if c.pll is None:
        return f"{plan.oscillator}, PLL off; scale {c.scale.name}, {c.wait_states} wait states"
    over = " with over-drive" if c.overdrive else ""
    s = c.pll
    return f"M={s.m} N={s.n} P={s.p} Q={s.q}; scale {c.scale.name}{over}, {c.wait_states} wait states"
