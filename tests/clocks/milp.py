"""The selection problem as a mixed-integer program for OR-Tools: an oracle that shares nothing with the solver.

Binary x[k, j] choose the points; y[k, a, b] are the switches behind layer k as a flow between the configurations; the
start is that of layer 0. One program per kind of idle mode, whose fixed energy and time depend on the start.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from ortools.linear_solver import pywraplp

from edgebuild.model.energy.layer_cost import EnergyProblem, IdleMode


def optimum(problem: EnergyProblem, gap: float = 1e-5) -> float:
    """The least energy in uJ, to a relative `gap`; infinity if nothing is in budget."""
    kinds = sorted({m.name for modes in problem.idle.values() for m in modes})
    return min(_solve(problem, {s: m for s, ms in problem.idle.items() for m in ms if m.name == k}, gap) for k in kinds)


def _solve(problem: EnergyProblem, modes: dict[str, IdleMode], gap: float) -> float:
    solver: Any = pywraplp.Solver.CreateSolver("HIGHS") or pywraplp.Solver.CreateSolver("SCIP")
    configs = sorted({p.config for layer in problem.layers for p in layer.points})
    x = [[solver.BoolVar(f"x{k}_{j}") for j in range(len(y.points))] for k, y in enumerate(problem.layers)]

    def inside(k: int, config: str) -> Any:
        return solver.Sum([v for v, p in zip(x[k], problem.layers[k].points, strict=True) if p.config == config])

    time, energy = [], []
    for k, layer in enumerate(problem.layers):
        solver.Add(solver.Sum(x[k]) == 1)
        time += [v * p.time_us for v, p in zip(x[k], layer.points, strict=True)]
        energy += [v * p.energy_uj for v, p in zip(x[k], layer.points, strict=True)]
    links = [(k, k + 1) for k in range(len(x) - 1)]
    if any(m.returns for m in modes.values()):
        links.append((len(x) - 1, 0))
    for k, following in links:
        y = {ab: solver.NumVar(0, 1, f"y{k}_{ab}") for ab in itertools.product(configs, configs)}
        for c in configs:
            solver.Add(solver.Sum([y[c, b] for b in configs]) == inside(k, c))
            solver.Add(solver.Sum([y[a, c] for a in configs]) == inside(following, c))
        time += [v * problem.switch(a, b).time_us for (a, b), v in y.items()]
        energy += [v * problem.switch(a, b).energy_uj for (a, b), v in y.items()]
    # Idling costs energy + power * (budget - time - min_time); `power` depends on the start, which makes a product.
    # It is taken apart with one copy of the time for each start, at most one of which is not 0.
    total = solver.Sum(time)
    parts = []
    for c in configs:
        here = inside(0, c)
        if c not in modes:
            solver.Add(here == 0)
            continue
        mode = modes[c]
        spent = solver.NumVar(0, solver.infinity(), f"t_{c}")
        solver.Add(spent <= here * (problem.budget_us - mode.min_time_us))
        parts.append(spent)
        idle = here * (problem.budget_us - mode.min_time_us) - spent
        energy += [here * mode.energy_uj, idle * (mode.power_mw / 1000)]
    solver.Add(solver.Sum(parts) == total)
    solver.Minimize(solver.Sum(energy))
    parameters = pywraplp.MPSolverParameters()
    parameters.SetDoubleParam(pywraplp.MPSolverParameters.RELATIVE_MIP_GAP, gap)
    solver.SetTimeLimit(120_000)
    status = solver.Solve(parameters)
    if status == pywraplp.Solver.INFEASIBLE:
        return math.inf
    assert status == pywraplp.Solver.OPTIMAL, status
    return float(solver.Objective().Value())
