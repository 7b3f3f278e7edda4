"""A UART that follows the clock by the hooks: its baud rate is right whenever it may send."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from edgebuild.clock.configs import clock_plan
from edgebuild.clock.tree import load_clock_tree

pytest.importorskip("unicorn", reason="the register model runs under unicorn")
from tests.clocks.machine import Machine, build
from tests.clocks.register_model import RegisterModel

BAUD, SWITCHES = 115_200, 1000
PROBE = """
extern volatile uint32_t may_send, divider;
volatile uint32_t may_send, divider;
void eb_clock_before(uint32_t hz) { (void)hz; may_send = 0u; }
void eb_clock_after(uint32_t hz)
{
    (void)hz;
    divider = (eb_clock_apb1_hz() + 57600u) / 115200u;
    may_send = 1u;
}
"""


class Watched(Machine):
    """At each access of a register the UART is looked at. `worst`: the largest share that its baud rate was off."""

    worst, looked = 0.0, 0

    def _read(self, uc: Any, offset: int, size: int, page: int) -> int:
        self._look()
        return super()._read(uc, offset, size, page)

    def _write(self, uc: Any, offset: int, size: int, value: int, page: int) -> None:
        super()._write(uc, offset, size, value, page)
        self._look()

    def _look(self) -> None:
        may_send, divider = self.words("may_send", 1)[0], self.words("divider", 1)[0]
        if may_send:
            self.looked += 1
            self.worst = max(self.worst, abs(self.apb1_hz() / divider / BAUD - 1) if divider else 1.0)

    def apb1_hz(self) -> float:
        model = self.model
        if isinstance(model, RegisterModel):
            hclk = model._hz(model.source) / model._divider("HPRE", 8, (2, 4, 8, 16, 64, 128, 256, 512))
            return hclk / model._divider("PPRE1", 4, (2, 4, 8, 16))
        bus = model.chip.buses[1 if model.chip.pll == "PLL1" and len(model.chip.buses) > 2 else 0][0]
        return model._mhz(model.source) * 1e6 / model._divider(model.chip.hpre) / model._divider(bus)


def run(chip: str, hse_hz: int, folder: Path, change: Any = None, switches: int = SWITCHES) -> Watched:
    plan = clock_plan(load_clock_tree(chip), hse_hz)
    machine = Watched(plan, build(plan, folder, change=change, probe=PROBE))
    machine.call("eb_clock_init")
    rng = random.Random(0)
    for _ in range(switches):
        if rng.random() < 0.2:
            machine.call(rng.choice(("eb_clock_lfo", "eb_clock_hfo")))
        else:
            machine.call("eb_clock_switch", rng.randrange(len(plan.configs)))
    assert machine.looked > switches
    return machine


@pytest.mark.needs("arm-none-eabi-gcc")
@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("chip", "hse_hz"),
    [("stm32f103", 8_000_000), ("stm32f767", 25_000_000), ("stm32g474", 8_000_000), ("stm32l552", 8_000_000),
     ("stm32u575", 16_000_000), ("stm32h743v", 25_000_000)],
)  # fmt: skip
def test_a_thousand_switches_leave_the_baud_rate_right(chip: str, hse_hz: int, tmp_path: Path) -> None:
    assert run(chip, hse_hz, tmp_path).worst < 0.02


@pytest.mark.needs("arm-none-eabi-gcc")
def test_a_forgotten_hook_is_seen(tmp_path: Path) -> None:
    machine = run(
        "stm32f103", 8_000_000, tmp_path, lambda t: t.replace("    eb_clock_before(hz);\n", "", 1), switches=40
    )
    assert machine.worst > 0.5
