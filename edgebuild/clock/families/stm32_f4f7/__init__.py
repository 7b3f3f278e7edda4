"""STM32F4 and F7: one PLL behind the HSE, a voltage scale with over-drive, an accelerator in front of the flash."""

from __future__ import annotations

from typing import Any

from ...configs import DIVIDERS, ClockPlan, Config
from ...tree import Registers


def view(plan: ClockPlan, registers: Registers) -> dict[str, Any]:
    """Values of the template: the registers with their fields, and what every configuration writes there."""
    divider = {"HPRE": 1, "PPRE1": plan.apb1, "PPRE2": plan.apb2}
    return {
        "dividers": hex(sum(_put(registers, "RCC_CFGR", f, _divider_code(f, d or 1)) for f, d in divider.items())),
        "overdrive": plan.tree.overdrive is not None,
        "hse_wait_states": plan.configs[0].wait_states,
        "accelerator": " | ".join(f"FLASH_ACR_{name}" for name in registers.accelerator),
        "registers": [_register(registers, name) for name in registers.map],
        "settings": [(c.name, _fields(plan, registers, c)) for c in plan.configs],
    }


def _register(registers: Registers, name: str) -> dict[str, Any]:
    register = registers.map[name]
    fields = [
        {"name": f"{name}_{field}", "mask": hex(((1 << width) - 1) << low)}
        for field, (low, width) in register.fields.items()
    ]
    return {"name": name, "address": hex(register.address), "fields": fields}


def _fields(plan: ClockPlan, registers: Registers, c: Config) -> str:
    words = [f"{c.sysclk_hz}u", "true" if c.pll else "false", f"{hex(_pllcfgr(registers, c))}u"]
    words.append(f"{hex(_put(registers, 'PWR_CR', 'VOS', c.scale.vos or 0))}u")
    if plan.tree.overdrive:
        words.append("true" if c.overdrive else "false")
    return ", ".join([*words, f"{c.wait_states}u"])


def _pllcfgr(registers: Registers, c: Config) -> int:
    """The PLL is always fed by the HSE; P is written as P/2 - 1."""
    if c.pll is None:
        return 0
    values = {"PLLM": c.pll.m, "PLLN": c.pll.n, "PLLP": c.pll.p // 2 - 1, "PLLSRC": 1, "PLLQ": c.pll.q}
    return sum(_put(registers, "RCC_PLLCFGR", field, value) for field, value in values.items())


def _divider_code(field: str, divider: int) -> int:
    """HPRE has a bit more than PPRE1 and PPRE2; the highest bit means that there is a division at all."""
    place = DIVIDERS.index(divider)
    return 0 if place == 0 else (8 if field == "HPRE" else 4) + place - 1


def _put(registers: Registers, register: str, field: str, value: int) -> int:
    low, width = registers.field(register, field)
    if not 0 <= value < 1 << width:
        raise ValueError(f"{register}.{field} has {width} bits and cannot hold {value}")
    return value << low
