"""The emitted C under the register model: correct for all pairs, and every seeded mistake is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.clock.configs import MUX_CYCLES, SWITCH_CYCLES, ClockPlan, PowerModel, clock_plan
from edgebuild.clock.tree import ClockTree, clock_names, load_clock_tree

pytest.importorskip("unicorn", reason="the register model runs under unicorn")
from tests.clocks import register_model
from tests.clocks.machine import REGULATORS_US, Machine, build, exercise
from tests.clocks.mutations import SEEDED, caught

pytestmark = pytest.mark.needs("arm-none-eabi-gcc")
CHIPS = ("stm32f767", "stm32f429", "stm32f411")  # of which currents are known
TREES = {name: load_clock_tree(name) for name in clock_names()}
SWITCHED = [name for name, tree in TREES.items() if tree.registers]
PLANS: dict[str, Callable[[ClockTree], ClockPlan]] = {
    "slow HSE": lambda tree: clock_plan(tree, max(8_000_000, tree.hse.crystal_hz[0])),
    "fast HSE": lambda tree: clock_plan(tree, (tree.hse.bypass_hz or tree.hse.crystal_hz)[1]),
    "HSI": lambda tree: clock_plan(tree, source="hsi"),
    "USB": lambda tree: clock_plan(tree, usb=True),
    "MSI": lambda tree: clock_plan(tree, source="msi"),
}


def can(chip: str, kind: str) -> bool:
    tree = TREES[chip]
    facts = {"USB": tree.pll.q, "MSI": tree.msi_hz, "HSI": tree.hsi_hz}
    return facts.get(kind, True) is not None


def plan_of(chip: str, hse_hz: int) -> ClockPlan:
    return clock_plan(load_clock_tree(chip), hse_hz)


@pytest.mark.one_in(32)
@pytest.mark.parametrize(("chip", "kind"), [(c, k) for c in SWITCHED for k in PLANS if can(c, k)])
def test_no_pair_violates_anything(chip: str, kind: str, tmp_path: Path) -> None:
    plan = PLANS[kind](load_clock_tree(chip))
    assert len(plan.configs) > 1 or kind == "fast HSE", "no whole MHz may come from an odd oscillator"
    elf = build(plan, tmp_path)
    for regulator_us in REGULATORS_US:
        assert exercise(Machine(plan, elf, regulator_us)) == len(plan.configs) ** 2


@pytest.mark.parametrize("chip", [c for c in SWITCHED if can(c, "USB")])
def test_usb_has_48_mhz_at_each_setting(chip: str) -> None:
    plan = clock_plan(load_clock_tree(chip), usb=True)
    pll = [c.pll for c in plan.configs if c.pll]
    assert pll and all(plan.base_hz * s.n == 48_000_000 * s.q * s.m for s in pll)


def test_usb_from_a_crystal_that_gives_no_48_mhz_is_an_error() -> None:
    with pytest.raises(EdgebuildError, match="no PLL setting has 48 MHz"):
        clock_plan(load_clock_tree("stm32f411"), 7_372_800, usb=True)


@pytest.mark.parametrize("chip", ["stm32f429", "stm32g474"])
def test_hooks_hear_of_every_change(chip: str, tmp_path: Path) -> None:
    """Before each change of SYSCLK and after it; the buses' clocks are fractions of it at any time."""
    plan = plan_of(chip, 8_000_000)
    probe = """
        extern volatile uint32_t calls[64], count, buses[4];
        volatile uint32_t calls[64], count, buses[4];
        void eb_clock_before(uint32_t hz) { calls[count++ % 64u] = hz + 1u; }
        void eb_clock_after(uint32_t hz) { calls[count++ % 64u] = hz; }
        void read_buses(void);
        void read_buses(void)
        {
            buses[0] = eb_clock_apb1_hz();
            buses[1] = eb_clock_apb2_hz();
            buses[2] = eb_clock_apb1_timers_hz();
            buses[3] = eb_clock_apb2_timers_hz();
        }
    """
    machine = Machine(plan, build(plan, tmp_path, probe=probe))
    machine.call("eb_clock_init")
    fast, slow = plan.configs[-1], plan.configs[1]
    assert machine.words("count", 1) == [2 + 2 * len({"HSE", "PLL"})]  # around the dividers, and at each change
    before = machine.words("count", 1)[0]
    machine.switch(slow.name)
    assert machine.words("count", 1)[0] == before + 4
    hz = [plan.base_hz + 1, plan.base_hz, slow.sysclk_hz + 1, slow.sysclk_hz]
    assert machine.words("calls", 64)[before : before + 4] == hz
    machine.switch(fast.name)
    machine.call("read_buses")
    apb = [fast.sysclk_hz // d for d in (plan.apb1 or 0, plan.apb2 or 0)]
    timers = [f * (1 if d == 1 else 2) for f, d in zip(apb, (plan.apb1, plan.apb2), strict=True)]
    assert machine.words("buses", 4) == apb + timers


@pytest.mark.parametrize("chip", CHIPS)
def test_switch_costs_bound_the_time_of_the_code(chip: str, tmp_path: Path) -> None:
    """The planned time of a switch is at least what the code takes with the longest waits, and not much more."""
    plan = plan_of(chip, 8_000_000)
    costs = PowerModel(plan, "flash")
    machine = Machine(plan, build(plan, tmp_path))
    machine.call("eb_clock_init")
    longest = max(costs.lock_us(c) for c in plan.configs)
    for start in plan.configs:
        for end in plan.configs:
            machine.switch(start.name)
            before = machine.model.now
            machine.switch(end.name)
            duration = machine.model.now - before
            planned = costs.switch(start, end).time_us
            if start != end and end.pll:
                planned += 300 - costs.lock_us(end)  # the model's PLL takes its longest time at any VCO
                assert longest <= 300
            assert duration <= planned + (5 if start == end else 0)
            assert start == end or planned <= 2 * duration + 80


def test_the_code_is_no_longer_than_the_cost_model_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Instructions of switches and of the quick mux on a chip in which nothing has to be waited for."""
    for name in ("MUX_US", "PLL_STOP_US", "HSE_START_US"):
        monkeypatch.setattr(register_model, name, 0.0)
    tree = load_clock_tree("stm32f767")
    assert tree.overdrive
    vco = replace(tree.pll.vco[0], lock_us={100_000_000: (0.0, 0.0)})
    overdrive = replace(tree.overdrive, enable_us=(0.0, 0.0), disable_us=(0.0, 0.0))
    plan = clock_plan(replace(tree, pll=replace(tree.pll, vco=(vco,)), overdrive=overdrive))
    machine = Machine(plan, build(plan, tmp_path), regulator_us=0.0)
    machine.call("eb_clock_init")
    longest = 0
    for start in plan.configs:
        for end in plan.configs:
            machine.switch(start.name)
            longest = max(longest, machine.count(machine.switch, end.name))
    assert SWITCH_CYCLES / 2 * 0.8 <= longest <= SWITCH_CYCLES / 2
    machine.switch("216MHZ")
    for function in ("eb_clock_lfo", "eb_clock_hfo"):
        assert machine.count(machine.call, function) <= MUX_CYCLES / 2


def test_a_pll_that_never_locks_ends_in_the_error_hook(tmp_path: Path) -> None:
    plan = plan_of("stm32f767", 8_000_000)
    machine = Machine(plan, build(plan, tmp_path, flags=("-DEB_CLOCK_TIMEOUT=2000u",)))
    machine.model.pll_never_locks = True
    machine.call("eb_clock_init")
    machine.call("eb_clock_hz")
    assert machine.fault() == 4  # 1 + EB_CLOCK_FAULT_PLL
    assert machine.returned() == plan.base_hz, "it goes on with the HSE"
    machine.model.pll_never_locks = False
    machine.call("eb_clock_switch", 9)
    machine.call("eb_clock_hz")
    assert machine.returned() == plan.configs[9].sysclk_hz, "and can try again"


def test_a_configuration_that_does_not_exist_changes_nothing(tmp_path: Path) -> None:
    plan = plan_of("stm32f411", 8_000_000)
    machine = Machine(plan, build(plan, tmp_path))
    machine.call("eb_clock_init")
    machine.call("eb_clock_switch", 200)
    assert machine.fault() == 1
    assert machine.model.settled()[0] == 100_000_000


def test_a_crystal_after_a_boot_loader_that_took_it_for_a_fed_in_clock(tmp_path: Path) -> None:
    plan = replace(plan_of("stm32f767", 8_000_000), bypass=False)
    machine = Machine(plan, build(plan, tmp_path))
    machine.model.values["RCC_CR"] |= 0x50000  # HSEON, HSEBYP
    assert exercise(machine) == len(plan.configs) ** 2


def test_init_cleans_up_after_a_boot_loader(tmp_path: Path) -> None:
    plan = plan_of("stm32f767", 8_000_000)
    machine = Machine(plan, build(plan, tmp_path))
    machine.call("eb_clock_init")
    machine.call("eb_clock_init")
    machine.expect("216MHZ")


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("kind", "seed"), SEEDED, ids=lambda v: str(v).replace(" ", "-"))
def test_mutation_is_caught(kind: str, seed: int) -> None:
    assert caught(kind, seed) is not None
