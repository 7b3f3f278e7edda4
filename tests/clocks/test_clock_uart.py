"""UARTs that follow the clock by the hooks: their baud rates are right whenever they may send."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from edgebuild.clock.configs import ClockPlan, base_of, behind, clock_plan, preferred, settings
from edgebuild.clock.tree import clock_names, load_clock_tree

pytest.importorskip("unicorn", reason="the register model runs under unicorn")
from tests.clocks.machine import Machine, Model, build
from tests.clocks.register_model import RegisterModel
from tests.clocks.rp2_model import Rp2Model
from tests.clocks.small_models import SmallModel

BAUD, SWITCHES = 9600, 1000
PROBE = f"""
extern volatile uint32_t may_send, dividers[2];
volatile uint32_t may_send, dividers[2];
void eb_clock_before(uint32_t hz) {{ (void)hz; may_send = 0u; }}
void eb_clock_after(uint32_t hz)
{{
    (void)hz;
    dividers[0] = (eb_clock_apb1_hz() + {BAUD // 2}u) / {BAUD}u;
    dividers[1] = (eb_clock_apb2_hz() + {BAUD // 2}u) / {BAUD}u;
    may_send = 1u;
}}
"""
pytestmark = pytest.mark.needs("arm-none-eabi-gcc")


class Watched(Machine):
    """A UART of each bus, looked at at each access of a register.

    `worst`: the largest share that a rate was off; `rounding`: the largest difference of a divider and the exact one.
    """

    worst, rounding, looked = 0.0, 0.0, 0

    def _read(self, uc: Any, offset: int, size: int, page: int) -> int:
        self._look()
        return super()._read(uc, offset, size, page)

    def _write(self, uc: Any, offset: int, size: int, value: int, page: int) -> None:
        super()._write(uc, offset, size, value, page)
        self._look()

    def _look(self) -> None:
        if self.words("may_send", 1)[0]:
            self.looked += 1
            for hz, divider in zip(buses_hz(self.model), self.words("dividers", 2), strict=True):
                self.worst = max(self.worst, abs(hz / divider / BAUD - 1) if divider else 1.0)
                self.rounding = max(self.rounding, abs(hz / BAUD - divider))


def buses_hz(model: Model) -> tuple[float, float]:
    """APB1 and APB2 as the registers have them, by the manuals; the RP2's UARTs have clk_sys."""
    if isinstance(model, RegisterModel):
        hclk = model._hz(model.source) / model._divider("HPRE", 8, (2, 4, 8, 16, 64, 128, 256, 512))
        return hclk / model._divider("PPRE1", 4, (2, 4, 8, 16)), hclk / model._divider("PPRE2", 4, (2, 4, 8, 16))
    if isinstance(model, Rp2Model | SmallModel):
        is_small = isinstance(model, SmallModel)
        mhz = model.mhz() if is_small else model._mhz(model.from_crystal[0], model.from_pll[0])
        most = {"Esp32C3": 80.0, "Nrf53": 16.0}.get(type(model).__name__, mhz)
        return min(mhz, most) * 1e6, min(mhz, most) * 1e6
    buses = [place for place, _ in model.chip.buses]
    first, second = (buses[0], buses[-1]) if len(buses) < 3 else buses[1:3] if "D1PPRE" in buses[0] else buses[:2]
    hclk = model._mhz(model.source) * 1e6 / model._divider(model.chip.hpre)
    return hclk / model._divider(first), hclk / model._divider(second)


def drawn(chip: str, seed: int) -> ClockPlan:
    """Nine random legal settings behind a random oscillator."""
    tree, rng = load_clock_tree(chip), random.Random(seed)
    source = rng.choice([name for name, hz in (("hse", 1), ("hsi", tree.hsi_hz), ("msi", tree.msi_hz)) if hz])
    low, high = tree.hse.crystal_hz
    hse = rng.choice((rng.randint(low, high), high)) if source == "hse" else None
    base, _ = base_of(tree, hse, source)
    legal = list(preferred(tree, base, settings(behind(tree, source), base)))
    return clock_plan(tree, hse, tuple(rng.sample(legal, min(9, len(legal)))), source)


def run(plan: ClockPlan, folder: Path, change: Any = None, switches: int = SWITCHES) -> Watched:
    machine = Watched(plan, build(plan, folder, change=change, probe=PROBE))
    machine.call("eb_clock_init")
    rng = random.Random(0)
    for _ in range(switches):
        if rng.random() < 0.2:
            machine.call(rng.choice(("eb_clock_lfo", "eb_clock_hfo")))
        else:
            machine.call("eb_clock_switch", rng.randrange(len(plan.configs)))
    assert machine.looked
    return machine


@pytest.mark.parametrize(
    ("chip", "switches"),
    [("gd32vf103", 50), ("rp2040", 50), ("stm32l4x6", 50),
     *(pytest.param(c, SWITCHES, marks=pytest.mark.slow) for c in clock_names() if load_clock_tree(c).registers)],
)  # fmt: skip
def test_random_switches_leave_the_baud_rates_right(chip: str, switches: int, tmp_path: Path) -> None:
    """Only the divider's rounding remains."""
    for seed in range(1 if switches < SWITCHES else 3):
        plan = drawn(chip, seed)
        machine = run(plan, tmp_path / str(seed), switches=switches)
        assert machine.worst < 0.02 and machine.rounding < 0.501, f"{plan.feed}: off by {machine.worst:.2%}"


def test_a_forgotten_hook_is_seen(tmp_path: Path) -> None:
    plan = clock_plan(load_clock_tree("stm32f103"), 8_000_000)
    machine = run(plan, tmp_path, lambda t: t.replace("    eb_clock_before(hz);\n", "", 1), switches=40)
    assert machine.worst > 0.5


def test_a_boot_loaders_dividers_are_changed_between_the_hooks(tmp_path: Path) -> None:
    """AHB / 2, APB1 / 16 and APB2 / 4 at 8 MHz, and its UARTs run."""
    plan = clock_plan(load_clock_tree("stm32f103"), 8_000_000)
    machine = Watched(plan, build(plan, tmp_path, probe=PROBE))
    machine.model.values["RCC_CFGR"] = 0b1000 << 4 | 0b111 << 8 | 0b101 << 11
    for symbol, words in (("may_send", (1,)), ("dividers", (26, 104))):
        machine.uc.mem_write(machine.symbols[symbol], b"".join(n.to_bytes(4, "little") for n in words))
    machine.call("eb_clock_init")
    assert machine.looked and machine.worst < 0.02
