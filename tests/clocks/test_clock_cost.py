"""The cost model of layers and the comparison at equal latency. The figures hold for the model only."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.build.papers import Net
from edgebuild.clock.configs import PowerModel, clock_plan
from edgebuild.clock.tree import Timing, load_clock_tree
from edgebuild.model.clocked import choices
from edgebuild.model.energy.layer_cost import (
    GRANULARITIES,
    Activation,
    CodeStretch,
    KernelUse,
    Work,
    evaluate,
    layer_points,
    point,
    require_timing,
    work,
)
from edgebuild.model.energy.select import TOLERANCE, compare, problem_of, section, select
from edgebuild.model.ir import Graph
from edgebuild.model.kernels import kernel_of
from edgebuild.model.ops.base import Form
from tests.bench_clocks import choices_of, compare_network, settings
from tests.clocks.networks import NETWORKS

MODEL = PowerModel(clock_plan(load_clock_tree("stm32f767"), 50_000_000), "flash")
TIMING = require_timing(MODEL)
FAST, SLOW = MODEL.plan.config("216MHZ"), MODEL.plan.config("108MHZ")


def test_compute_scales_with_the_clock_and_memory_does_not() -> None:
    compute, memory = Work("c", 0, CodeStretch(1e6)), Work("m", 0, CodeStretch(0, flash_lines=1e5))
    assert point(compute, SLOW, MODEL).time_us == pytest.approx(2 * point(compute, FAST, MODEL).time_us)
    assert point(memory, SLOW, MODEL).time_us < 1.6 * point(memory, FAST, MODEL).time_us, "fewer wait states"


def test_energy_is_time_times_power() -> None:
    p = point(Work("c", 0, CodeStretch(1e6)), FAST, MODEL)
    assert p.energy_uj == pytest.approx(p.time_us * 90 * 3.3 / 1000)


def test_an_access_phase_at_the_low_clock_takes_longer_at_less_power() -> None:
    work = Work("d", 8, CodeStretch(1e6), CodeStretch(1e5, sram_lines=1e3), rounds=4)
    plain, low = point(work, FAST, MODEL), point(work, FAST, MODEL, lfo=True)
    assert low.time_us > plain.time_us
    assert low.energy_uj / low.time_us < plain.energy_uj / plain.time_us


NET = Net("layers", (24, 24, 96))
POINTWISE, DEPTHWISE = NET.conv("input", 192), NET.depthwise("input")
LAYERS = Graph("layers", tuple(NET.ops), NET.tensors, ("input",), (POINTWISE, DEPTHWISE))


def forms(name: str, coupled: bool, timing: Timing = TIMING) -> list[Work]:
    """The work of one of the layers in all its forms, with operands in tightly coupled memory or behind the bus.

    A depthwise layer that is not decoupled goes channel by channel.
    """
    op = next(op for op in LAYERS.ops if op.name == name)
    x, y = (LAYERS.tensors[n] for n in (op.inputs[0], name))
    works = []
    for g in GRANULARITIES:
        by_channel = "dsp plane" if op.kind == "depthwise_conv2d" and g == 0 else ""
        kernel = kernel_of(op, LAYERS, Form(frozenset({"armv7e-m", "dsp"}), granularity=g, variant=by_channel))
        operands = [Activation(t.bytes, t.shape[3], coupled) for t in (x, y)]
        works.append(work(name, [KernelUse(kernel, 1, 1, (operands[0],), operands[1])], timing, g))
    return works


@pytest.mark.parametrize("name", [POINTWISE, DEPTHWISE])
def test_a_coarser_granularity_fetches_less_and_buffers_more(name: str) -> None:
    works = forms(name, coupled=False)
    assert [w.rounds > 0 for w in works] == [w.g > 0 for w in works]
    phases = [w.execute + (w.access or CodeStretch(0)) for w in works]
    lines = [p.flash_lines + p.sram_lines for p in phases]
    assert lines == sorted(lines, reverse=True) and lines[-1] < 0.8 * lines[0]
    assert [w.buffer_bytes for w in works[1:]] == sorted({w.buffer_bytes for w in works[1:]})
    assert max(p.instructions for p in phases) < 1.3 * min(p.instructions for p in phases)


def test_tightly_coupled_memory_has_no_stalls() -> None:
    for name in (POINTWISE, DEPTHWISE):
        assert all((w.execute + (w.access or CodeStretch(0))).sram_lines == 0 for w in forms(name, coupled=True))


def test_a_granularity_beyond_the_layer_is_not_one_of_its_forms() -> None:
    net = Net("small", (3, 3, 8))
    net.depthwise("input")
    op = net.ops[0]
    graph = Graph("small", (op,), net.tensors, ("input",), op.outputs)
    features = frozenset({"armv7e-m", "dsp"})
    rounds = [kernel_of(op, graph, Form(features, granularity=g)).traffic.rounds for g in GRANULARITIES]
    assert rounds == [0, 4, 2, 1, 0, 0]


USED_HERE, AT_8_MHZ, _, AS_IN_THE_LITERATURE, *_ = settings()


# With the same depthwise kernels on both sides; faster pointwise kernels leave less to save.
MISSED = pytest.mark.xfail(strict=True, reason="no faster kernel is on the plan's side alone: 24.9, 23.6 %")
BELOW = ("VWW-like", "MobileNetV2-like")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", [pytest.param(n, marks=MISSED) if n in BELOW else n for n in NETWORKS])
def test_a_quarter_less_than_a_baseline_that_waits_busy(name: str) -> None:
    assert compare_network(name, AS_IN_THE_LITERATURE, 0.1).saving("busy") >= 0.25


@pytest.mark.parametrize("name", NETWORKS)
def test_the_goal_at_ten_percent_slack(name: str) -> None:
    comparison = compare_network(name, AS_IN_THE_LITERATURE, 0.1)
    assert comparison.saving("gated") >= 0.07
    assert comparison.plan.energy_uj <= comparison.single.energy_uj
    assert sum(comparison.shares.values()) == pytest.approx(comparison.saving("busy"))
    assert comparison.plan.time_us <= comparison.budget_us


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_left_to_save_where_kernels_do_not_wait(name: str) -> None:
    """In the DTCM, and where depthwise kernels take all channels at once, only weights in flash make the core wait."""
    comparison = compare_network(name, USED_HERE, 0.1)
    assert comparison.saving("busy") >= 0.14  # of a baseline whose kernels gather, too, where that is faster
    assert comparison.saving("gated") >= 0.07
    literature = compare_network(name, AS_IN_THE_LITERATURE, 0.1)
    assert comparison.plan.energy_uj < literature.plan.energy_uj, "and it takes less energy than that which saves more"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", NETWORKS)
def test_decoupling_saves_nothing_where_nothing_waits(name: str) -> None:
    """Lines so long that none is fetched: what is left is the quick mux, which mixes two clocks within a layer."""
    chosen = choices_of(name, USED_HERE)
    timing = replace(require_timing(chosen.model), line_bytes=10**15)
    model = replace(chosen.model, plan=replace(chosen.model.plan, tree=replace(chosen.model.plan.tree, timing=timing)))
    again = choices(chosen.whole.graph, chosen.whole.target, chosen.whole.request, model)
    assert any(w.g for each in again.forms for w in each)
    c = compare(again.plain, again.layers, model, 0.1)
    assert c.shares["decoupling"] <= 2 * TOLERANCE


def test_more_slack_saves_more_against_busy_idling() -> None:
    savings = [compare_network("VWW-like", AT_8_MHZ, slack).saving("busy") for slack in (0.1, 0.3, 0.5)]
    assert savings == sorted(savings)


def test_the_sections_sums_are_its_parts() -> None:
    layers = [layer_points(name, forms(name, coupled=False), MODEL) for name in (POINTWISE, DEPTHWISE)] * 3
    problem = problem_of(layers, MODEL, 250_000)
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
        layer_points("c", [Work("c", 0, CodeStretch(1e6))], model)


def test_comparison_of_nothing_to_gain() -> None:
    """Work that is all computing, no slack worth the name: the plan is full clock, and equals its baseline."""
    layer = layer_points("c", [Work("c", 0, CodeStretch(1e6))], MODEL)
    comparison = compare([layer], [layer], MODEL, 0.001)
    assert comparison.saving("gated") == pytest.approx(0, abs=1e-6)


def test_columns_gathered_save_nothing_where_no_piece_of_the_weights_stays_in_the_cache() -> None:
    timing = replace(TIMING, cache_bytes=128)
    lines = [w.execute.flash_lines for w in forms(POINTWISE, coupled=True, timing=timing)]
    assert lines == pytest.approx([lines[0]] * len(lines), rel=0.01)


@pytest.mark.parametrize("chip", ["stm32f767", "stm32f429", "stm32f411"])
@pytest.mark.parametrize("hse_hz", [4_000_000, 8_000_000, 25_000_000])
def test_currents_beyond_the_tables_are_still_currents(chip: str, hse_hz: int) -> None:
    model = PowerModel(clock_plan(load_clock_tree(chip), hse_hz), "flash")
    running = [model.run_mw(c) for c in model.plan.configs]
    assert running[0] > 0 and running == sorted(running)
    for config in model.plan.configs:
        modes = {m.name: m.power_mw for m in model.idle_modes(config)}
        assert all(0 < power <= modes["busy"] for power in modes.values()), (config.name, modes)


def test_a_chip_whose_sleep_is_unknown_is_compared_all_the_same() -> None:
    tree = load_clock_tree("stm32f767")
    assert tree.power
    awake = PowerModel(clock_plan(replace(tree, power=replace(tree.power, sleep_ma=None))), "flash")
    layer = layer_points("c", [Work("c", 0, CodeStretch(1e6))], awake)
    comparison = compare([layer], [layer], awake, 0.5)
    assert comparison.baselines["gated"] == comparison.baselines["busy"] > comparison.baselines["stop"]


@pytest.mark.parametrize("slack", [0.001, 0.5, 20.0])
def test_baselines_are_the_idle_modes_that_the_slack_admits(slack: float) -> None:
    layer = layer_points("c", [Work("c", 0, CodeStretch(1e6))], MODEL)
    comparison = compare([layer], [layer], MODEL, slack)
    stop, gated, busy = (comparison.baselines[name] for name in ("stop", "gated", "busy"))
    fastest = max(MODEL.plan.configs, key=lambda c: c.sysclk_hz)
    quick = min((p for p in layer.points if p.config == fastest.name), key=lambda p: p.time_us)
    problem = problem_of([layer], MODEL, quick.time_us * (1 + slack))
    modes = [m for m in problem.idle[fastest.name] if m.min_time_us <= quick.time_us * slack]
    energies = {m.name: evaluate(problem, (quick,), m).energy_uj for m in modes}
    assert {"busy", "gated"} <= energies.keys() and any(n.startswith("stop") for n in energies) == (slack > 0.01)
    assert (busy, gated, stop) == (
        energies["busy"],
        energies["gated"],
        min(v for k, v in energies.items() if k != "busy"),
    )
    assert stop < gated < busy if slack > 0.01 else stop == gated
    assert sum(comparison.shares.values()) == pytest.approx(1 - comparison.plan.energy_uj / busy)
