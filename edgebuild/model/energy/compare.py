"""Energy at equal latency: a plan against running at full clock and idling, in three ways, until the same deadline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edgebuild.clock.modes import IdleMode
from edgebuild.clock.power import PowerModel
from edgebuild.model.energy.select import best_single, select
from edgebuild.model.energy.values import EnergyLayer, EnergyProblem, Selection, evaluate

from ...base.dataclass import dataclass

SLACKS = (0.1, 0.3, 0.5)


@dataclass(frozen=True)
class Comparison:
    """Energies of one period, uJ. `budget_us` is the fastest clock's time for the plain layers, and the slack."""

    slack: float
    budget_us: float
    plan: Selection
    single: Selection  # the best plan with one configuration for all layers
    baselines: dict[str, float]  # the fastest clock, plain layers, with each way to idle
    shares: dict[str, float]  # what is saved against busy idling, by step: idle, frequency, decoupling

    def saving(self, baseline: str) -> float:
        """Part of the baseline's energy that the plan saves."""
        return 1 - self.plan.energy_uj / self.baselines[baseline]


def problem_of(layers: Sequence[EnergyLayer], model: PowerModel, budget_us: float) -> EnergyProblem:
    """The selection problem of these layers on this plan's chip."""
    idle = {c.name: model.idle_modes(c) for c in model.plan.configs}
    return EnergyProblem(tuple(layers), model.switches(), idle, budget_us)


def compare(
    plain: Sequence[EnergyLayer], decoupled: Sequence[EnergyLayer], model: PowerModel, slack: float
) -> Comparison:
    """`plain`: the layers with g = 0 only; `decoupled`: with all their points. Both with the fastest configuration."""
    fastest = max(model.plan.configs, key=lambda c: c.sysclk_hz)
    at_full = tuple(replace(y, points=tuple(p for p in y.points if p.config == fastest.name)) for y in plain)
    points = tuple(min(y.points, key=lambda p: p.time_us) for y in at_full)
    time = sum(p.time_us for p in points)
    budget = time * (1 + slack)
    problem = problem_of(plain, model, budget)
    modes = problem.idle[fastest.name]
    energies = {m.name: evaluate(problem, points, m).energy_uj for m in modes if m.min_time_us <= budget - time}
    gated = energies.get("gated", energies["busy"])  # no sheet of the chip may give its currents in Sleep mode
    stops = [e for name, e in energies.items() if name.startswith("stop")]
    baselines = {"busy": energies["busy"], "gated": gated, "stop": min([*stops, gated])}
    by_idle = min(energies.values())
    by_frequency = min(select(problem).energy_uj, by_idle)
    whole = problem_of(decoupled, model, budget)
    plan = select(whole)
    steps = (baselines["busy"], by_idle, by_frequency, plan.energy_uj)
    names = ("idle", "frequency", "decoupling")
    shares = {n: (a - b) / steps[0] for n, a, b in zip(names, steps, steps[1:], strict=False)}
    return Comparison(slack, budget, plan, best_single(whole), baselines, shares)


def iso_latency(c: Comparison) -> dict[str, object]:
    """A comparison as the report has it: energies of one period in uJ, savings and shares as parts of one."""
    return {
        "slack": c.slack,
        "budget_us": c.budget_us,
        "energy_uj": c.plan.energy_uj,
        "single_energy_uj": c.single.energy_uj,
        "baselines_uj": c.baselines,
        "saved": {b: c.saving(b) for b in c.baselines},
        "shares": c.shares,
    }


def budget_row(problem: EnergyProblem, plan: Selection) -> dict[str, object]:
    """One of several budgets as the report has it."""
    return {
        "qos_us": problem.budget_us,
        "time_us": plan.time_us,
        "energy_uj": plan.energy_uj,
        "bound_uj": plan.bound_uj,
        "start": plan.start,
        "idle": plan.mode.name,
        "configs": [p.config for p in plan.points],
    }


def section(problem: EnergyProblem, plan: Selection) -> dict[str, object]:
    """The `energy` section of a model's report: the plan and all that it was chosen from."""

    def mode_row(mode: IdleMode) -> dict[str, object]:
        return {
            "name": mode.name,
            "power_mw": mode.power_mw,
            "energy_uj": mode.energy_uj,
            "min_time_us": mode.min_time_us,
            "returns": mode.returns,
        }

    def switch_row(pair: tuple[str, str]) -> dict[str, object]:
        cost = problem.switch(*pair)
        return {"from": pair[0], "to": pair[1], "time_us": cost.time_us, "energy_uj": cost.energy_uj}

    def point_row(p: object) -> dict[str, object]:
        return {k: getattr(p, k) for k in ("config", "g", "lfo", "time_us", "energy_uj")}

    return {
        "basis": "modelled",
        "qos_us": problem.budget_us,
        "time_us": plan.time_us,
        "energy_uj": plan.energy_uj,
        "bound_uj": plan.bound_uj,
        "start": plan.start,
        "layers": [
            {"name": layer.name, **point_row(p), "points": [point_row(q) for q in layer.points]}
            for layer, p in zip(problem.layers, plan.points, strict=True)
        ],
        "switches": [switch_row(pair) for pair in plan.switched],
        "switch_costs": [switch_row(pair) for pair in sorted(problem.switches)],
        "idle": {"mode": plan.mode.name, "time_us": plan.idle_us, "energy_uj": plan.idle_energy_uj},
        "idle_modes": [mode_row(m) for m in problem.idle[plan.start]],
    }
