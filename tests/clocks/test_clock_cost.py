"""The cost model of layers and the comparison at equal latency. The figures hold for the model only."""

from __future__ import annotations

import json

import pytest

from edgebuild.energy.compare import compare, problem_of, section
from edgebuild.energy.configs import clock_plan
from edgebuild.energy.cost import ConvShape, Phase, Work, depthwise, layer_points, point, pointwise, require_timing
from edgebuild.energy.power import PowerModel
from edgebuild.energy.select import select
from edgebuild.energy.tree import load_clock_tree
from edgebuild.errors import EdgebuildError
from tests.bench_clocks import compare_network
from tests.clocks.networks import NETWORKS

MODEL = PowerModel(clock_plan(load_clock_tree("stm32f767"), 50_000_000), "flash")
TIMING = require_timing(MODEL)
FAST, SLOW = MODEL.plan.config("216MHZ"), MODEL.plan.config("108MHZ")


def test_compute_scales_with_the_clock_and_memory_does_not() -> None:
    compute, memory = Work("c", 0, Phase(1e6)), Work("m", 0, Phase(0, flash_lines=1e5))
    assert point(compute, SLOW, MODEL).time_us == pytest.approx(2 * point(compute, FAST, MODEL).time_us)
    assert point(memory, SLOW, MODEL).time_us < 1.6 * point(memory, FAST, MODEL).time_us, "fewer wait states"


def test_energy_is_time_times_power() -> None:
    p = point(Work("c", 0, Phase(1e6)), FAST, MODEL)
    assert p.energy_uj == pytest.approx(p.time_us * 90 * 3.3 / 1000)


def test_an_access_phase_at_the_low_clock_takes_longer_at_less_power() -> None:
    work = Work("d", 8, Phase(1e6), Phase(1e5, sram_lines=1e3), rounds=4)
    plain, low = point(work, FAST, MODEL), point(work, FAST, MODEL, lfo=True)
    assert low.time_us > plain.time_us
    assert low.energy_uj / low.time_us < plain.energy_uj / plain.time_us


@pytest.mark.parametrize("kernel", [depthwise, pointwise])
def test_a_coarser_granularity_fetches_less_and_buffers_more(kernel: object) -> None:
    forms = kernel("l", ConvShape(24, 24, 96, 192 if kernel is pointwise else 96, 3), TIMING)  # type: ignore[operator]
    assert [w.g for w in forms] == [0, 2, 4, 8, 12, 16]
    lines = [w.execute.flash_lines + w.execute.sram_lines + (w.access.sram_lines if w.access else 0) for w in forms]
    assert lines == sorted(lines, reverse=True) and lines[-1] < lines[0]
    assert [w.buffer_bytes for w in forms] == sorted(w.buffer_bytes for w in forms)
    assert len({w.execute.instructions + (w.access.instructions if w.access else 0) for w in forms}) == 1


def test_tightly_coupled_memory_has_no_stalls() -> None:
    forms = depthwise("l", ConvShape(24, 24, 96, 96, 3), TIMING, tightly_coupled=True)
    assert all((w.access or w.execute).sram_lines == 0 for w in forms)


def test_granularity_never_exceeds_the_layer() -> None:
    assert [w.g for w in pointwise("l", ConvShape(1, 3, 8, 8), TIMING)] == [0, 2]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_goal_at_ten_percent_slack(name: str) -> None:
    found = compare_network(NETWORKS[name], MODEL, 0.1)
    assert found.saving("busy") >= 0.25
    assert found.saving("gated") >= 0.07
    assert found.plan.energy_uj <= found.single.energy_uj
    assert sum(found.shares.values()) == pytest.approx(found.saving("busy"))
    assert found.plan.time_us <= found.budget_us


def test_more_slack_saves_more_against_busy_idling() -> None:
    savings = [compare_network(NETWORKS["person-detection-like"][:9], MODEL, s).saving("busy") for s in (0.1, 0.3, 0.5)]
    assert savings == sorted(savings)


def test_the_sections_sums_are_its_parts() -> None:
    layers = [layer_points(n, k(n, s, TIMING), MODEL) for n, k, s in NETWORKS["VWW-like"][:8]]
    problem = problem_of(layers, MODEL, 40_000)
    data = json.loads(json.dumps(section(problem, select(problem))))
    assert data["basis"] == "modelled"
    parts = [*data["layers"], *data["switches"]]
    assert data["time_us"] == pytest.approx(sum(p["time_us"] for p in parts))
    assert data["energy_uj"] == pytest.approx(sum(p["energy_uj"] for p in parts) + data["idle"]["energy_uj"])
    assert data["idle"]["time_us"] == pytest.approx(data["qos_us"] - data["time_us"])
    mode = next(m for m in data["idle_modes"] if m["name"] == data["idle"]["mode"])
    waited = data["idle"]["time_us"] - mode["min_time_us"]
    assert data["idle"]["energy_uj"] == pytest.approx(mode["energy_uj"] + mode["power_mw"] * waited / 1000)
    assert data["start"] == data["layers"][0]["config"]


def test_a_chip_without_timing_is_refused() -> None:
    model = PowerModel(clock_plan(load_clock_tree("stm32h743")), "itcm")
    with pytest.raises(EdgebuildError, match="timing of its code is unknown"):
        layer_points("c", [Work("c", 0, Phase(1e6))], model)


def test_comparison_of_nothing_to_gain() -> None:
    """Work that is all computing, no slack worth the name: the plan is full clock, and equals its baseline."""
    layer = layer_points("c", [Work("c", 0, Phase(1e6))], MODEL)
    found = compare([layer], [layer], MODEL, 0.001)
    assert found.saving("gated") == pytest.approx(0, abs=1e-6)
