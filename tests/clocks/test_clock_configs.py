"""Which configurations there are, why others are not, and what they are modelled to draw."""

from __future__ import annotations

import itertools

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.clock.configs import PowerModel, check_hse, clock_plan, explain, preferred, settings, violation
from edgebuild.clock.tree import load_clock_tree

F767 = load_clock_tree("stm32f767")
HSE = 50_000_000
GRID = list(itertools.product((25, 50), (75, 100, 150, 168, 216, 336, 432)))  # (M, N) of Alvanaki et al., P = 2


def test_the_pairs_that_were_published() -> None:
    """Of the 14 pairs three are illegal, each with its reason; the others give the SYSCLKs that were measured."""
    reasons = {(m, n): violation(F767, HSE, m, n, 2) for m, n in GRID}
    assert {pair: r for pair, r in reasons.items() if r} == {
        (25, 336): "VCO would be 672 MHz, above 432",
        (25, 432): "VCO would be 864 MHz, above 432",
        (50, 75): "VCO would be 75 MHz, below 100",
    }
    legal = {HSE * n // (m * 2) for (m, n), r in reasons.items() if r is None}
    assert legal == {f * 1_000_000 for f in (50, 75, 84, 100, 108, 150, 168, 216)}


def test_what_is_offered_includes_them_and_the_tops_of_the_voltage_scales() -> None:
    offered = {c.sysclk_hz // 1_000_000 for c in clock_plan(F767, HSE).configs}
    assert offered >= {50, 75, 84, 100, 108, 144, 150, 168, 180, 216}


def test_of_twins_the_lowest_vco_and_the_best_reference_wins() -> None:
    best = preferred(F767, HSE, settings(F767, HSE))
    for hz in (75_000_000, 168_000_000, 216_000_000):
        assert best[hz].m == 25, "a reference of 2 MHz, not of 1"
    every: dict[int, list[int]] = {}
    for s in settings(F767, HSE):
        every.setdefault(s.sysclk_hz, []).append(s.vco_hz)
    assert all(best[hz].vco_hz == min(vcos) for hz, vcos in every.items())


def test_8_mhz_gives_every_whole_number_of_mhz() -> None:
    best = preferred(F767, 8_000_000, settings(F767, 8_000_000))
    assert set(range(50, 217)) <= {hz // 1_000_000 for hz in best if hz % 1_000_000 == 0}


@pytest.mark.parametrize("hse", [1_900_000, 8_000_000, 12_288_000, 25_000_000, 26_000_000, 50_000_000])
@pytest.mark.parametrize("chip", ["stm32f767", "stm32f429", "stm32f411"])
def test_everything_offered_is_within_the_limits(chip: str, hse: int) -> None:
    """The limits again, naively, from the tree."""
    tree = load_clock_tree(chip)
    plan = clock_plan(tree, hse)
    assert tree.flash and tree.buses and plan.apb1 and plan.apb2
    assert len({c.name for c in plan.configs}) == len(plan.configs)
    for c in plan.configs:
        assert c.sysclk_hz <= ((c.scale.max_hz_overdrive or 0) if c.overdrive else c.scale.max_hz)
        assert c.wait_states is not None
        assert max(c.sysclk_hz, hse) <= tree.flash.max_hz[c.scale.flash][c.wait_states]
        assert c.sysclk_hz / plan.apb1 <= (tree.buses.overdrive_apb1_hz if c.overdrive else tree.buses.apb1_hz)
        assert c.sysclk_hz / plan.apb2 <= (tree.buses.overdrive_apb2_hz if c.overdrive else tree.buses.apb2_hz)
        if c.pll:
            assert 0.95e6 <= hse / c.pll.m <= 2.1e6
            assert 100e6 <= hse * c.pll.n / c.pll.m <= 432e6
            assert c.pll.vco_hz / c.pll.q <= 48e6


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ((1, 216, 2), "M is 1, outside of 2 to 63"),
        ((0, 216, 2), "M is 0, outside of 2 to 63"),
        ((25, 49, 2), "N is 49, outside of 50 to 432"),
        ((25, 216, 3), "P is 3, not one of 2, 4, 6, 8"),
        ((10, 60, 2), "the reference would be 5 MHz, outside of 950 kHz to 2.1 MHz"),
        ((25, 80, 8), "the PLL's output would be 20 MHz, below 24"),
    ],
)
def test_reasons(setting: tuple[int, int, int], reason: str) -> None:
    assert violation(F767, HSE, *setting) == reason.replace("950 kHz", "0.95 MHz")
    assert explain(F767, HSE, *setting).endswith(f"illegal: {reason}".replace("950 kHz", "0.95 MHz"))


def test_a_sysclk_over_the_chips_limit_is_illegal() -> None:
    f411 = load_clock_tree("stm32f411")
    assert violation(f411, 8_000_000, 4, 108, 2) == "SYSCLK would be 108 MHz, above 100"


def test_over_drive_only_where_it_is_needed() -> None:
    plan = clock_plan(F767, 8_000_000)
    assert [c.name for c in plan.configs if c.overdrive] == ["200MHZ", "210MHZ", "216MHZ"]


def test_illegal_hse() -> None:
    assert check_hse(F767, 50_000_000) is True
    for hz in (500_000, 51_000_000):
        with pytest.raises(EdgebuildError, match=r"an HSE of .* is not possible"):
            check_hse(F767, hz)


def test_a_wanted_clock_out_of_reach() -> None:
    with pytest.raises(EdgebuildError, match=r"no PLL setting gives 240 MHz from the HSE at 8 MHz: .*above 216"):
        clock_plan(F767, 8_000_000, (240_000_000,))


def test_currents_are_those_of_the_sheet_at_its_points() -> None:
    model = PowerModel(clock_plan(F767, 8_000_000), "flash")
    for name, ma in {"60MHZ": 23, "144MHZ": 51, "168MHZ": 66, "180MHZ": 74, "200MHZ": 84, "216MHZ": 90}.items():
        assert model.run_mw(model.plan.config(name)) == pytest.approx(3.3 * ma)


def test_the_least_energy_per_cycle_is_at_the_top_of_the_lowest_scale() -> None:
    for chip, best in (("stm32f767", "144MHZ"), ("stm32f429", "120MHZ"), ("stm32f411", "64MHZ")):
        model = PowerModel(clock_plan(load_clock_tree(chip), 8_000_000), "flash")
        assert min(model.plan.configs, key=lambda c: model.run_mw(c) / c.sysclk_hz).name == best


def test_a_step_up_in_voltage_costs_current() -> None:
    """150 MHz needs the next scale: the current between the points follows that scale, not a line from 144 to 168."""
    model = PowerModel(clock_plan(F767, 8_000_000), "flash")
    line = 51 + (66 - 51) * (150 - 144) / (168 - 144)
    assert model.run_mw(model.plan.config("150MHZ")) / 3.3 > line * 1.05


def test_relocking_costs_what_its_parts_cost() -> None:
    model = PowerModel(clock_plan(F767, 50_000_000), "flash")
    low, fast = model.plan.config("50MHZ"), model.plan.config("216MHZ")
    up, down = model.switch(low, fast), model.switch(fast, low)
    assert 400 <= up.time_us <= 415, "300 us of lock, 100 us of over-drive, the code"
    assert 80 <= down.time_us <= 95
    assert model.switch(fast, fast).time_us == 0
    assert up.energy_uj == pytest.approx(up.time_us * model.run_mw(low) / 1000)
