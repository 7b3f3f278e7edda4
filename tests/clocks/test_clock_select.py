"""The selection against brute force, against a mixed-integer program, and against what must hold of any optimum."""

from __future__ import annotations

import itertools
import math

import pytest

from edgebuild.base.errors import EdgebuildError
from edgebuild.model.energy.layer_cost import (
    EnergyLayer,
    EnergyProblem,
    IdleMode,
    OperatingPoint,
    SwitchCost,
    evaluate,
    pareto,
)
from edgebuild.model.energy.select import TOLERANCE, best_single, select
from tests.clocks.instances import random_problem
from tests.clocks.milp import optimum


def brute_force(problem: EnergyProblem) -> float:
    best = math.inf
    for points in itertools.product(*(layer.points for layer in problem.layers)):
        for mode in problem.idle[points[0].config]:
            plan = evaluate(problem, points, mode)
            if plan.idle_us >= mode.min_time_us:
                best = min(best, plan.energy_uj)
    return best


@pytest.mark.parametrize("seed", range(60))
def test_equals_brute_force(seed: int) -> None:
    problem = random_problem(seed, layers=4, points=6, configs=3)
    plan = select(problem)
    assert plan.energy_uj == pytest.approx(brute_force(problem), rel=TOLERANCE)


@pytest.mark.parametrize("seed", range(4))
def test_equals_the_mixed_integer_program(seed: int) -> None:
    problem = random_problem(100 + seed, layers=10, points=8, configs=4)
    assert select(problem).energy_uj == pytest.approx(optimum(problem), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_equals_the_mixed_integer_program_at_full_size(seed: int) -> None:
    problem = random_problem(seed)
    plan = select(problem)
    assert plan.energy_uj == pytest.approx(optimum(problem), rel=1e-3)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("seed", range(12))
def test_full_size_keeps_its_bound(seed: int) -> None:
    problem = random_problem(1000 + seed)
    plan = select(problem)
    assert plan.bound_uj <= plan.energy_uj <= plan.bound_uj * (1 + 3 * TOLERANCE)
    assert plan.time_us <= problem.budget_us - plan.mode.min_time_us + 1e-3
    assert plan == evaluate(problem, plan.points, plan.mode, plan.bound_uj), "it costs what its parts cost"


@pytest.mark.parametrize("slack", [0.02, 0.1, 0.3, 0.5])
def test_the_problem_of_a_chip_is_solved(slack: float) -> None:
    """As large as MobileNetV2 on the F767: 16 configurations, 6 points in each of them. The bench has its time."""
    problem = random_problem(7, layers=52, points=96, configs=16, slack=slack)
    plan = select(problem)
    assert plan.bound_uj <= plan.energy_uj <= plan.bound_uj * (1 + 3 * TOLERANCE)


@pytest.mark.parametrize("slack", [0.0, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("seed", range(4))
def test_never_worse_than_one_frequency(seed: int, slack: float) -> None:
    problem = random_problem(2000 + seed, layers=30, slack=slack)
    assert select(problem).energy_uj <= best_single(problem).energy_uj


def test_more_time_never_costs_more_plans() -> None:
    """With free idling, a longer budget can only help."""
    tight = random_problem(5, layers=20, slack=0.05)
    free = {s: (IdleMode("off", 0.0, 0.0, 0.0),) for s in tight.idle}
    energies = [
        select(EnergyProblem(tight.layers, tight.switches, free, tight.budget_us * k)).energy_uj
        for k in (1, 1.1, 1.3, 2)
    ]
    assert energies == sorted(energies, reverse=True)


def test_an_impossible_budget_is_refused_with_the_time_of_the_fastest_plan() -> None:
    layer = EnergyLayer(
        "conv", (OperatingPoint("216MHZ", 0, 131_000.0, 40_000.0), OperatingPoint("144MHZ", 0, 190_000.0, 30_000.0))
    )
    idle = {c: (IdleMode("busy", 100.0, 0.0, 0.0),) for c in ("216MHZ", "144MHZ")}
    with pytest.raises(EdgebuildError, match="the fastest plan takes 131 ms; the budget is 120"):
        select(EnergyProblem((layer,), {}, idle, 120_000.0))


def test_a_switch_that_costs_more_than_it_saves_is_left_out() -> None:
    fast = [OperatingPoint("fast", 0, 10.0, 5.0), OperatingPoint("slow", 0, 12.0, 4.9)]
    layers = (EnergyLayer("a", (fast[0],)), EnergyLayer("b", tuple(fast)), EnergyLayer("c", (fast[0],)))
    idle = {"fast": (IdleMode("off", 0.0, 0.0, 0.0),)}
    for price, config in ((0.04, "slow"), (0.06, "fast")):
        cost = SwitchCost(1.0, price)
        plan = select(EnergyProblem(layers, {("fast", "slow"): cost, ("slow", "fast"): cost}, idle, 100.0))
        assert plan.points[1].config == config


def test_an_idle_mode_that_does_not_fit_is_not_chosen() -> None:
    layer = EnergyLayer("a", (OperatingPoint("c", 0, 90.0, 5.0),))
    modes = (IdleMode("busy", 100.0, 0.0, 0.0), IdleMode("stop", 0.0, 0.1, 20.0))
    assert select(EnergyProblem((layer,), {}, {"c": modes}, 100.0)).mode.name == "busy"
    assert select(EnergyProblem((layer,), {}, {"c": modes}, 120.0)).mode.name == "stop"


def test_fronts_are_kept_per_configuration() -> None:
    points = [
        OperatingPoint("a", 0, 10, 5),
        OperatingPoint("a", 2, 12, 6),
        OperatingPoint("a", 4, 14, 4),
        OperatingPoint("b", 0, 11, 5.5),
    ]
    assert pareto(points) == (points[0], points[2], points[3])
    assert points[1] in pareto(points, idle_mw=600), "0.5 uJ more for 2 us, while idling would cost 1.2"
