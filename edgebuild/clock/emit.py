"""`clock_config.h` and `clock_config.c`: the configurations of a clock plan, and the code to switch between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from ..base.artifacts import Artifact
from ..base.errors import did_you_mean, fail
from ..base.facts import compose, entries, parse_formula, wrong
from ..base.request import CLOCK_OUTPUTS, ClockRequest
from ..base.target import Target, clock_tree_file, load_target
from ..base.templates import render
from .configs import DIVIDERS, ClockPlan, Config, PllSetting, ahb, clock_plan, mhz, wait_states
from .tree import ClockTree, Registers, Step, clock_names, load_clock_tree, pause_of

CALLS = {
    "flash": ["if (!set_wait_states(s->wait_states)) {", "    return false;", "}"],
    "overdrive": ["if (s->overdrive && !overdrive_on()) {", "    return false;", "}"],
}


def target_tree(target: Target) -> ClockTree:
    """The clock tree of a target. Raises EdgebuildError if it has none."""
    if not target.clocks:
        raise fail(f"target {target.name} has no clock tree", hints=["its YAML names one with `clocks: NAME`"])
    if clock_tree_file(target.clocks) is None:
        shipped = clock_names()
        text = f"unknown clock tree '{target.clocks}'{did_you_mean(target.clocks, shipped)}"
        for file in target.files:
            if (node := compose(Path(file))) is not None and (stated := entries(node).get("clocks")) is not None:
                raise wrong(stated, text, "known: " + ", ".join(shipped))
    return load_clock_tree(target.clocks)


def requested_plan(request: ClockRequest) -> ClockPlan:
    """The requested configurations. Raises EdgebuildError for one that the chip does not allow."""
    tree = target_tree(load_target(request.target))
    return clock_plan(tree, request.hse, request.sysclk, request.source, request.usb, request.pll, request.dividers)


def clock_files(plan: ClockPlan) -> tuple[Artifact, Artifact]:
    """The source and the header. Raises EdgebuildError if the tree lacks registers, wait states or bus limits."""
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
        "oscillator": plan.rest[0],
        "base_hz": plan.rest[1],
        "caps": (tree.buses.apb1_hz, tree.buses.apb2_hz) if tree.buses and tree.buses.capped else (0, 0),
        "hsi_hz": tree.hsi_hz,
        "voltages": len({s.vos for s in tree.regulator.scales}) > 1,
        "bypass": int(plan.bypass),
        "ahb": ahb(tree),
        "apb1": plan.apb1,
        "apb2": plan.apb2,
        "limits": f"{mhz(tree.buses.apb1_hz)} and {mhz(tree.buses.apb2_hz)}" if tree.buses else "",
        "lock": f"{max(locks):g}" if locks else "an unknown number of",
        "fastest": max(plan.configs, key=lambda c: c.sysclk_hz).name,
        "configs": [{"name": c.name, "pad": " " * (width - len(c.name)), "text": _text(c, plan)} for c in plan.configs],
    }


def _registers_view(plan: ClockPlan, registers: Registers) -> dict[str, Any]:
    """Template variables of the registers: their fields, the values of each configuration, and the sequences."""
    tree, regulator = plan.tree, plan.tree.regulator
    stepped, table = regulator.step_hz is not None and ahb(tree) == 1, _Table(plan, registers)
    first = (plan.configs[0].wait_states, wait_states(tree, regulator.scales[0], (tree.hsi_hz or 0) / ahb(tree)))
    dividers = {"hpre": ahb(tree), "ppre1": plan.apb1 or 1, "ppre2": plan.apb2 or 1}
    codes = {name: _divider_code(name, divider) for name, divider in dividers.items()}
    register, _, field = registers.mux.partition(".")
    status, _, shown = registers.shown.partition(".")
    low = registers.field(status, shown)[0]
    starts = registers.oscillators or {}
    sequences = {name: table.lines(getattr(registers, name)) for name in ("prepare", "stop", "voltage", "start")}
    return {
        "registers": registers.map,
        "select": registers.select,
        "mux": {"register": register, "field": f"{register}_{field}", "low": registers.field(register, field)[0],
                "status": status, "shown": f"{status}_{shown}", "shift": low, "one_hot": registers.one_hot},
        "dividers": [line for text in registers.dividers for line in table.written(Step.parse(text), [codes])],
        "overdrive": tree.overdrive is not None,
        "step": stepped and {"hz": regulator.step_hz, "reads": -(-max(c.sysclk_hz for c in plan.configs) // 1_000_000)},
        "latency": registers.latency.replace(".", "_"),
        "latency_register": registers.latency.partition(".")[0],
        "oscillator_wait_states": plan.configs[0].wait_states,
        "first_wait_states": max(filter(None, first), default=0),
        "most_wait_states": _most_wait_states(plan),
        "accelerator": " | ".join(f"FLASH_ACR_{name}" for name in registers.accelerator),
        "first": "hsi" if "hsi" in registers.select else plan.rest[0].lower(),
        "first_hz": tree.hsi_hz if "hsi" in registers.select else plan.base_hz,
        "starts": {name: table.lines(starts[name]) for name in starts},
        **sequences,
        "columns": list(table.columns),
        "settings": [(c.name, _setting(plan, table, i)) for i, c in enumerate(plan.configs)],
    }  # fmt: skip


def _most_wait_states(plan: ClockPlan) -> int:
    """Wait states that are enough for all clocks, if the HSI needs any; else 0."""
    assert plan.tree.flash
    slowest = plan.tree.flash.max_hz[plan.tree.regulator.scales[0].flash]
    most = max(map(len, plan.tree.flash.max_hz.values())) - 1
    return most if (plan.tree.hsi_hz or 0) > slowest[0] else 0


class _Table:
    """Prints steps as lines of C. Values that differ between configurations become columns of their table."""

    def __init__(self, plan: ClockPlan, registers: Registers) -> None:
        self.registers, self.columns = registers, dict[str, list[int]]()
        self.letters = [_letters(plan, c) for c in plan.configs]
        self.rest_hz, self.mux = plan.rest[1], registers.mux.partition(".")[0]

    def lines(self, steps: tuple[str, ...]) -> list[str]:
        """Statements of a C function that returns false if a wait times out."""
        code: list[str] = []
        for text in steps:
            if text == "flash" and not self.registers.latency:
                continue
            if text == "pll":
                for register, fields in self.registers.pll_fields.items():
                    code += self.written(Step(register, dict(fields), waits=False), self.letters)
            elif pause := pause_of(text):  # a read of a register takes at least one cycle
                reads = pause * -(-self.rest_hz // 1_000_000)
                code += [f"for (uint32_t i = 0; i < {reads}u; i++) {{", f"    (void){self.mux};", "}"]
            else:
                code += CALLS[text] if text in CALLS else self.written(Step.parse(text), self.letters)
        return code

    def written(self, step: Step, letters: Sequence[Mapping[str, float]]) -> list[str]:
        """The statement of a step, for each configuration's values of the letters in its formulas."""
        names = [f"{step.register}_{field}" for field in step.fields]
        if not names:
            return [f"(void){step.register};"]
        values = [sum(self._put(step, field, each) for field in step.fields) for each in letters]
        fixed = all(text.isdigit() for text in step.fields.values()) or letters is not self.letters
        mask = " | ".join(names)
        value = self._value(step, values, mask, fixed)
        if step.waits:
            kind = "PLL" if "PLL" in mask else step.register.partition("_")[0]
            fault = {"PWR": "VOLTAGE", "FLASH": "FLASH", "PLL": "PLL"}.get(kind, "OSCILLATOR")
            wait = f"if (!wait_for(&{step.register}, {mask}, {value}, EB_CLOCK_FAULT_{fault})) {{"
            return [wait, "    return false;", "}"]
        return wrap(
            f"set(&{step.register}, {'0u' if value == mask else mask}, {value});", 112, subsequent_indent="    "
        )

    def _value(self, step: Step, values: list[int], mask: str, fixed: bool) -> str:
        if not fixed:
            only = next(iter(step.fields)) if len(step.fields) == 1 else step.register.partition("_")[2]
            if self.columns.setdefault(only.lower(), values) != values:
                raise ValueError(f"{step.register}: two steps write '{only}' with other values")
            return f"s->{only.lower()}"
        spans = [self.registers.field(step.register, f) for f in step.fields]
        full = sum(((1 << width) - 1) << low for low, width in spans)
        return mask if values[0] == full else f"{hex(values[0]) if values[0] else 0}u"

    def _put(self, step: Step, field: str, letters: Mapping[str, float]) -> int:
        low, width = self.registers.field(step.register, field)
        value = round(parse_formula(step.fields[field], tuple(letters))(letters))
        if not 0 <= value < 1 << width:
            raise ValueError(f"{step.register}.{field} has {width} bits and cannot hold {value}")
        return value << low


def _letters(plan: ClockPlan, c: Config) -> dict[str, float]:
    """Values of the letters in formulas. With the PLL off, they are those of the first setting that has a PLL."""
    limits = plan.tree.pll  # without any setting, the least one, which fits into the fields
    least = PllSetting(limits.m[0], limits.n[0], limits.p[0], (limits.q or (0,))[0], 0, 0)
    pll = c.pll or next((each.pll for each in plan.configs if each.pll), least)
    numbers: dict[str, float] = {name: getattr(pll, name) for name in "mnpq"}
    codes = {f"{name}_code": (plan.tree.pll.codes or {}).get(name, {}).get(int(numbers[name]), 0) for name in "mnpq"}
    sources = {name: plan.oscillator == name.upper() for name in ("hse", "hsi", "msi")}
    clocks = {"base_mhz": plan.base_hz / 1e6, "in_mhz": plan.base_hz / pll.m / 1e6}
    return numbers | codes | sources | clocks | {"vos": c.scale.vos or 0, "boost": c.scale.boost, "bypass": pll.bypass}


def _setting(plan: ClockPlan, table: _Table, row: int) -> str:
    """The values of one row of the C table, in the order of its columns."""
    c = plan.configs[row]
    words = [f"{c.sysclk_hz}u", "true" if c.pll else "false", *(f"{hex(v[row])}u" for v in table.columns.values())]
    words += ["true" if c.overdrive else "false"] * (plan.tree.overdrive is not None)
    return ", ".join([*words, f"{c.wait_states}u"])


def _divider_code(field: str, divider: int) -> int:
    """The code of a divider. HPRE has one bit more than PPRE1 and PPRE2; the highest bit enables the division."""
    place = DIVIDERS.index(divider)
    return 0 if place == 0 else (8 if field == "hpre" else 4) + place - 1


def _text(c: Config, plan: ClockPlan) -> str:
    if c.pll is None:
        return f"{plan.rest[0]}, PLL off; scale {c.scale.name}, {c.wait_states} wait states"
    over = " with over-drive" if c.overdrive else ""
    s = c.pll
    if s.bypass:
        return f"{plan.oscillator}, past the PLL; scale {c.scale.name}, {c.wait_states} wait states"
    return f"M={s.m} N={s.n} P={s.p} Q={s.q}; scale {c.scale.name}{over}, {c.wait_states} wait states"
