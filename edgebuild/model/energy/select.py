"""The least energy under a time budget: a point per layer, so that layers, switches and idling cost least together.

This is the multiple-choice knapsack of Alvanaki et al. (DATE 2024, arXiv 2407.03711) with two additions: changing
the clock between layers takes time and energy, and the rest of the budget is spent in the best idle mode. Each pair
of a start configuration and an idle mode is one case, in which the cost of idling is linear in time.

A case is solved by labels: dynamic programming over layers and configurations whose state is the exact time spent, not
a grid of times. Bounds from the Lagrangian relaxation of the budget keep the labels few: a label that cannot
beat the best plan so far is dropped. Labels closer than a fraction of the tolerance are merged, so the result is within
TOLERANCE of the optimum, and its bound proves that. No randomness, no clock: the same input gives the same plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ...base.errors import EdgebuildError, fail
from ...clock.configs import ClockPlan, IdleMode, PowerModel, mhz
from .layer_cost import EnergyLayer, EnergyProblem, OperatingPoint, Selection, Work, evaluate, point

TOLERANCE = 1e-4  # of the energy
COARSE = 1e-3  # tolerance of first tries: a good plan found quickly makes the exact search small
ROOMS = (1 / 8, 1 / 4, 1 / 2, 1.0)  # of first tries: shares of the distance from the bound to the best energy so far
BISECTIONS = 40
EPSILON_US = 1e-6
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def select(problem: EnergyProblem) -> Selection:
    """The plan of least energy within the budget, to a relative TOLERANCE; `bound_uj` is the proven lower bound.

    Never worse than `best_single`. Raises EdgebuildError if no plan keeps to the budget, with the time of the fastest.
    """
    best = _solve(problem)
    try:
        single = best_single(problem)
    except EdgebuildError:
        return best
    return replace(single, bound_uj=best.bound_uj) if single.energy_uj < best.energy_uj else best


def _solve(problem: EnergyProblem) -> Selection:
    arrays = _Arrays.of(problem)
    cases = _Cases.of(problem, arrays)
    shortest, _ = _relax(arrays, cases, np.zeros(len(cases.start)), np.ones(len(cases.start)), weigh_energy=False)
    fastest = _of_starts(shortest[0], cases)
    feasible = fastest <= cases.horizon + EPSILON_US
    if not feasible.any():
        least = float((fastest + problem.budget_us - cases.horizon).min())
        text = f"the fastest plan takes {least / 1000:.4g} ms; the budget is {problem.budget_us / 1000:.4g} ms"
        raise fail(text, hints=[f"give at least {np.ceil(least / 10) / 100:g} ms"])
    cases = cases.take(np.flatnonzero(feasible))
    prices, bounds, reached = _prices(arrays, cases)
    best: Selection | None = None
    least = float(reached.min())
    for case in np.argsort(bounds, kind="stable"):
        if best and bounds[case] >= least * (1 - TOLERANCE):
            break
        run = partial(_labels, problem, arrays, cases, int(case), prices[case])
        for room in () if best else ROOMS:
            limit = float(bounds[case] + room * (least - bounds[case]))
            quick = run(limit, COARSE)
            least = min(least, quick.energy_uj) if quick else least
            if least <= limit:
                break
        plans = run(least, TOLERANCE)
        if plans and plans.energy_uj <= (best.energy_uj if best else least * (1 + TOLERANCE)):
            best, least = plans, min(least, plans.energy_uj)
    assert best is not None, "the relaxation has found a plan in budget"
    proved = max(float(bounds.min()), best.energy_uj * (1 - 2 * TOLERANCE))
    return replace(best, bound_uj=min(best.energy_uj, proved))


def best_single(problem: EnergyProblem) -> Selection:
    """The best plan without any switch: one configuration for all layers. EdgebuildError if none is in budget."""
    return _solve(replace(problem, switches={}))


@dataclass(frozen=True)
class _Arrays:
    """The problem as arrays: `points[k][c]` are the points of layer k in configuration c.

    `time[k]` and `energy[k]` have a row for each configuration, padded with 0 to the most points of any. `absent[k]` is
    infinite where they are padded, else 0.
    """

    configs: tuple[str, ...]
    points: tuple[tuple[tuple[OperatingPoint, ...], ...], ...]
    time: tuple[Floats, ...]
    energy: tuple[Floats, ...]
    absent: tuple[Floats, ...]
    switch_time: Floats
    switch_energy: Floats

    @staticmethod
    def of(problem: EnergyProblem) -> _Arrays:
        if not problem.layers:
            raise fail("there are no layers to choose for")
        configs = tuple(dict.fromkeys([*problem.idle, *(p.config for y in problem.layers for p in y.points)]))
        points = tuple(tuple(tuple(p for p in y.points if p.config == c) for c in configs) for y in problem.layers)
        time = np.full((len(configs), len(configs)), np.inf)
        energy = time.copy()
        for (a, b), cost in problem.switches.items():
            if a in configs and b in configs:
                place = configs.index(a), configs.index(b)
                time[place], energy[place] = cost.time_us, cost.energy_uj
        np.fill_diagonal(time, 0.0)
        np.fill_diagonal(energy, 0.0)
        rows = [_padded(layer) for layer in points]
        times, energies, absent = (tuple(column) for column in zip(*rows, strict=True))
        return _Arrays(configs, points, times, energies, absent, time, energy)


def _padded(layer: tuple[tuple[OperatingPoint, ...], ...]) -> tuple[Floats, Floats, Floats]:
    shape = len(layer), max(map(len, layer))
    time, energy, absent = np.zeros(shape), np.zeros(shape), np.full(shape, np.inf)
    for c, points in enumerate(layer):
        time[c, : len(points)] = [p.time_us for p in points]
        energy[c, : len(points)] = [p.energy_uj for p in points]
        absent[c, : len(points)] = 0.0
    return time, energy, absent


@dataclass(frozen=True)
class _Cases:
    """Pairs of a start and an idle mode. Idling costs `fixed - power * T` (uJ) for a plan of T <= `horizon` (us)."""

    mode: tuple[IdleMode, ...]
    start: Ints
    power: Floats  # uJ per us
    horizon: Floats
    fixed: Floats
    returns: NDArray[np.bool_]

    @staticmethod
    def of(problem: EnergyProblem, arrays: _Arrays) -> _Cases:
        rows = [
            (arrays.configs.index(start), mode)
            for start, modes in problem.idle.items()
            for mode in modes
            if arrays.points[0][arrays.configs.index(start)]
        ]
        if not rows:
            raise fail("no idle mode belongs to a configuration that the first layer can run in")
        modes = tuple(m for _, m in rows)
        power = np.array([m.power_mw / 1000 for m in modes])
        horizon = problem.budget_us - np.array([m.min_time_us for m in modes])
        fixed = np.array([m.energy_uj for m in modes]) + power * horizon
        start, returns = np.array([s for s, _ in rows]), np.array([m.returns for m in modes])
        return _Cases(modes, start, power, horizon, fixed, returns)

    def take(self, rows: Ints) -> _Cases:
        modes, (_, *columns) = tuple(self.mode[r] for r in rows), (getattr(self, f.name) for f in fields(self))
        return _Cases(modes, *(column[rows] for column in columns))


def _relax(a: _Arrays, cases: _Cases, power: Floats, price: Floats, weigh_energy: bool = True) -> tuple[Floats, Floats]:
    """Least cost-to-go of all cases with time priced: energy + (price - power) * time.

    Returns the values and the times of the plans that attain them, both [layer, case, configuration before it]. In
    layer 0 the third index is the configuration of the layer itself, since nothing is switched before it.
    """
    weight = (price - power)[:, None]
    on = 1.0 if weigh_energy else 0.0
    with np.errstate(invalid="ignore"):
        switch = on * a.switch_energy + weight[:, :, None] * np.where(np.isinf(a.switch_time), 0.0, a.switch_time)
    switch = np.where(np.isinf(a.switch_time), np.inf, switch)
    back = cases.returns[:, None]
    value = np.where(back, switch[np.arange(len(price)), :, cases.start], 0.0)
    time = np.where(back, a.switch_time[:, cases.start].T, 0.0)
    values, times = [value], [time]
    for layer in reversed(range(len(a.points))):
        each = on * a.energy[layer] + weight[:, :, None] * a.time[layer] + a.absent[layer]
        points = each.argmin(axis=2)  # [case, configuration]: the cheapest of the layer
        cost = np.take_along_axis(each, points[:, :, None], 2)[:, :, 0] + value
        spent = a.time[layer][np.arange(len(a.configs)), points] + time
        if layer:
            through = switch + cost[:, None, :]
            choice = through.argmin(axis=2)
            value = np.take_along_axis(through, choice[:, :, None], 2)[:, :, 0]
            time = np.take_along_axis(spent, choice, 1) + a.switch_time[np.arange(len(a.configs))[None, :], choice]
        else:
            value, time = cost, spent
        values.append(value)
        times.append(time)
    return np.stack(values[::-1]), np.stack(times[::-1])


def _of_starts(values: Floats, cases: _Cases) -> Floats:
    return np.asarray(values[np.arange(len(cases.start)), cases.start])


def _prices(a: _Arrays, cases: _Cases) -> tuple[Floats, Floats, Floats]:
    """For each case the price of time that gives the best bound, that bound, and the energy of a plan in budget."""
    count = len(cases.start)
    low, high = np.zeros(count), np.full(count, 1e-3)
    best_price, bound, best = np.zeros(count), np.full(count, -np.inf), np.full(count, np.inf)
    rows: Ints = np.arange(count)  # the cases that another price may still help
    for step in range(BISECTIONS):
        some = cases.take(rows)
        rising = np.isinf(best[rows])
        price = np.where(rising, high[rows], (low[rows] + high[rows]) / 2) if step else np.zeros(count)
        values, times = _relax(a, some, some.power, price)
        value, time = _of_starts(values[0], some), _of_starts(times[0], some)
        new = value - price * some.horizon + some.fixed
        best_price[rows] = np.where(new > bound[rows], price, best_price[rows])
        bound[rows] = np.maximum(bound[rows], new)
        fits = time <= some.horizon + EPSILON_US
        best[rows] = np.where(fits, np.minimum(best[rows], value - price * time + some.fixed), best[rows])
        low[rows] = np.where(fits, low[rows], price)
        high[rows] = np.where(fits, price, np.where(rising & (step > 0), high[rows] * 4, high[rows]))
        done = np.isfinite(best) & (best - bound <= TOLERANCE / 10 * np.abs(best))
        rows = rows[~done[rows] & (bound[rows] < best.min())]
        if not len(rows):
            break
    return best_price, bound, best


def _labels(
    problem: EnergyProblem, a: _Arrays, cases: _Cases, case: int, price: float, ceiling: float, tolerance: float
) -> Selection | None:
    """The best plan of one case, to `tolerance`, if it costs no more than `ceiling`; otherwise possibly None."""
    one = cases.take(np.array([case]))
    start, power, horizon, fixed = int(one.start[0]), float(one.power[0]), float(one.horizon[0]), float(one.fixed[0])
    togo = _relax(a, one, one.power, np.array([price]))[0][:, 0]
    shortest = _relax(a, one, np.zeros(1), np.ones(1), weigh_energy=False)[0][:, 0]
    # Merging may replace a plan by one that costs up to this half of the tolerance more, which must not be dropped.
    limit = ceiling + tolerance / 2 * abs(ceiling) - fixed + price * horizon + 1e-9
    merge = max(tolerance * abs(ceiling) / (2 * len(a.points)), 1e-12)
    finite = np.where(np.isinf(a.switch_time), 0.0, a.switch_time)
    switch_energy = a.switch_energy - power * finite
    switch_value = switch_energy + price * finite
    fronts = [_Front.none()] * len(a.configs)
    history: list[list[_Front]] = []
    for layer in range(len(a.points)):
        energy = a.energy[layer] - power * a.time[layer]
        cheapest = (energy + price * a.time[layer] + a.absent[layer]).min(axis=1)
        least = np.array([f.least(price) for f in fronts])
        # [before, now]: the least cost of a plan through both; most pairs are above the limit.
        through = least[:, None] + switch_value + cheapest + togo[layer + 1]
        new = []
        for c, points in enumerate(a.points[layer]):
            t, e = a.time[layer][c, : len(points)], energy[c, : len(points)]
            before = np.flatnonzero(through[:, c] <= limit)
            ahead, latest = limit - togo[layer + 1][c], horizon - shortest[layer + 1][c] + EPSILON_US
            if layer == 0:
                front = _Front.first(t, e) if c == start else _Front.none()
            elif len(before):
                front = _Front.before(fronts, before, a.switch_time[:, c], switch_energy[:, c])
                front = front.within(price, ahead - cheapest[c], latest - float(t.min())).undominated(0.0)
                front = front.each(t, e, price, ahead)
            else:
                front = _Front.none()
            new.append(front.within(price, ahead, latest).undominated(merge) if len(front.time) else front)
        fronts = new
        history.append(fronts)
    return _trace(problem, a, history, one, power)


@dataclass(frozen=True)
class _Front:
    """Labels of one configuration after a layer: time and energy so far, and the labels that they extend."""

    time: Floats
    energy: Floats
    config: Ints  # of the layer before
    label: Ints  # in that configuration's front
    point: Ints  # of the layer

    @staticmethod
    def none() -> _Front:
        return _Front.first(np.zeros(0), np.zeros(0))

    @staticmethod
    def first(time: Floats, energy: Floats) -> _Front:
        none = np.zeros(len(time), np.int64)
        return _Front(time, energy, none, none, np.arange(len(time)))

    @staticmethod
    def before(fronts: list[_Front], configs: Ints, switch_time: Floats, switch_energy: Floats) -> _Front:
        """The labels of these configurations, switched to this one."""
        t = np.concatenate([fronts[c].time + switch_time[c] for c in configs])
        e = np.concatenate([fronts[c].energy + switch_energy[c] for c in configs])
        counts = [len(fronts[c].time) for c in configs]
        label = np.concatenate([np.arange(n) for n in counts])
        return _Front(t, e, np.repeat(configs, counts), label, np.zeros(len(t), np.int64))

    def least(self, price: float) -> float:
        return float((self.energy + price * self.time).min(initial=np.inf))

    def each(self, time: Floats, energy: Floats, price: float, limit: float) -> _Front:
        """Every label with every point that keeps at least the cheapest label within the limit."""
        points = np.flatnonzero(energy + price * time <= limit - self.least(price))
        n, m = len(self.time), len(points)
        return _Front(
            (self.time[:, None] + time[points]).ravel(),
            (self.energy[:, None] + energy[points]).ravel(),
            np.repeat(self.config, m),
            np.repeat(self.label, m),
            np.tile(points, n),
        )

    def within(self, price: float, value: float, time: float) -> _Front:
        """The labels that can still beat the best plan, and keep to the budget."""
        return self.keep((self.energy + price * self.time <= value) & (self.time <= time))

    def keep(self, rows: NDArray[np.bool_] | Ints) -> _Front:
        return _Front(self.time[rows], self.energy[rows], self.config[rows], self.label[rows], self.point[rows])

    def undominated(self, merge: float) -> _Front:
        """Labels by rising time, each of less energy than all before; only the first in each step of `merge` uJ."""
        if len(self.time) < 2:
            return self
        rows = np.argsort(self.time, kind="stable")
        energy = self.energy[rows]
        better = np.concatenate(([True], energy[1:] < np.minimum.accumulate(energy)[:-1]))
        rows = rows[better]
        if merge:
            step = np.floor(energy[better] / merge)
            rows = rows[np.concatenate(([True], step[1:] < step[:-1]))]
        return self.keep(rows)


def _trace(
    problem: EnergyProblem, a: _Arrays, history: list[list[_Front]], one: _Cases, power: float
) -> Selection | None:
    """The plan of the best label at the end, traced back; None: no label keeps to the budget."""
    best: tuple[float, int, int] | None = None
    for c, front in enumerate(history[-1]):
        time, energy = 0.0, 0.0
        if one.returns[0]:
            time, energy = a.switch_time[c, one.start[0]], a.switch_energy[c, one.start[0]]
        for i in np.flatnonzero(front.time + time <= one.horizon[0] + EPSILON_US).tolist():
            total = float(front.energy[i] + energy - power * time)
            if best is None or total < best[0]:
                best = (total, c, i)
    if best is None:
        return None
    _, c, i = best
    points: list[OperatingPoint] = []
    for layer in reversed(range(len(history))):
        front = history[layer][c]
        points.append(a.points[layer][c][front.point[i]])
        c, i = int(front.config[i]), int(front.label[i])
    return evaluate(problem, tuple(reversed(points)), one.mode[0])


# Energy at equal latency: a plan against running at full clock and idling, in three modes, until the same deadline.

SLACKS = (0.1, 0.3, 0.5)


@dataclass(frozen=True)
class Comparison:
    """Energies of one period, uJ. `budget_us` is the fastest clock's time for the plain layers, plus the slack."""

    slack: float
    budget_us: float
    plan: Selection
    single: Selection  # the best plan with one configuration for all layers
    baselines: dict[str, float]  # the fastest clock, plain layers, by mode of idling
    shares: dict[str, float]  # energy saved, as part of busy idling's, by step: idle, frequency, decoupling

    def saving(self, baseline: str) -> float:
        """Share of the baseline's energy that the plan saves, from 0 to 1."""
        return 1 - self.plan.energy_uj / self.baselines[baseline]


def problem_of(layers: Sequence[EnergyLayer], model: PowerModel, budget_us: float) -> EnergyProblem:
    """The selection problem of these layers on the model's chip."""
    idle = {c.name: model.idle_modes(c) for c in model.plan.configs}
    return EnergyProblem(tuple(layers), model.switches(), idle, budget_us)


def compare(
    plain: Sequence[EnergyLayer], decoupled: Sequence[EnergyLayer], model: PowerModel, slack: float
) -> Comparison:
    """Compare the best plan with the baselines at the fastest clock's time plus `slack`, a part of that time.

    `plain`: the layers with g = 0 only; `decoupled`: with all their points. Both with the fastest configuration.
    """
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
    """A comparison for the report: energies of one period in uJ, savings and shares as parts of one."""
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
    """One of several budgets for the report."""
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
    """The `energy` section of a model's report: the plan, and all points, switches and idle modes to choose from."""

    def switch_row(pair: tuple[str, str]) -> dict[str, object]:
        cost = problem.switch(*pair)
        return {"from": pair[0], "to": pair[1], "time_us": cost.time_us, "energy_uj": cost.energy_uj}

    return {
        "basis": "modelled",
        "qos_us": problem.budget_us,
        "time_us": plan.time_us,
        "energy_uj": plan.energy_uj,
        "bound_uj": plan.bound_uj,
        "start": plan.start,
        "layers": [
            {"name": layer.name, **asdict(p), "points": [asdict(q) for q in layer.points]}
            for layer, p in zip(problem.layers, plan.points, strict=True)
        ],
        "switches": [switch_row(pair) for pair in plan.switched],
        "switch_costs": [switch_row(pair) for pair in sorted(problem.switches)],
        "idle": {"mode": plan.mode.name, "time_us": plan.idle_us, "energy_uj": plan.idle_energy_uj},
        "idle_modes": [asdict(m) for m in problem.idle[plan.start]],
    }


# Several latency budgets for one firmware: kernels are the same for all, the clocks of steps are not.
#
# A kernel that gathers its operands does so under every budget. So the forms of each budget's best plan are tried for
# all budgets, and those that lose least against the best plans are taken.

StepForms = tuple[tuple[int, bool], ...]  # of each step: granularity, and whether it gathers at the HSE


@dataclass(frozen=True)
class ChosenClocks:
    """A plan for each budget, in the order in which they were given."""

    problems: tuple[EnergyProblem, ...]
    selections: tuple[Selection, ...]
    step_forms: StepForms


def select_all(
    layers: Sequence[EnergyLayer], forms: Sequence[Sequence[Work]], model: PowerModel, budgets_us: Sequence[float]
) -> ChosenClocks:
    """The plans of least energy within all budgets. Raises EdgebuildError if a budget is too short for any plan.

    `forms`: possible works of each step; `layers` have all points of these.
    """
    problems = tuple(problem_of(layers, model, budget) for budget in budgets_us)
    alone = tuple(select(problem) for problem in problems)
    if len(alone) == 1:
        return ChosenClocks(problems, alone, _step_forms(alone[0]))
    possible = [
        c
        for step_forms in dict.fromkeys(map(_step_forms, alone))
        if (c := _plans_with_forms(step_forms, forms, model, budgets_us))
    ]
    return min(possible, key=lambda c: sum(s.energy_uj / a.energy_uj for s, a in zip(c.selections, alone, strict=True)))


def _plans_with_forms(
    step_forms: StepForms, forms: Sequence[Sequence[Work]], model: PowerModel, budgets_us: Sequence[float]
) -> ChosenClocks | None:
    """The plans with these forms of the steps; None if a budget is too short. Forms of the shortest budget fit all."""
    layers = [_layer(each, *way, model) for each, way in zip(forms, step_forms, strict=True)]
    problems = tuple(problem_of(layers, model, budget) for budget in budgets_us)
    try:
        return ChosenClocks(problems, tuple(map(select, problems)), step_forms)
    except EdgebuildError:
        return None


def _layer(forms: Sequence[Work], g: int, lfo: bool, model: PowerModel) -> EnergyLayer:
    """A step in one form. Configurations without the PLL run from the HSE anyway, so `lfo` makes no difference."""
    work = next(w for w in forms if w.g == g)
    return EnergyLayer(work.name, tuple(point(work, c, model, lfo and bool(c.pll)) for c in model.plan.configs))


def _step_forms(selection: Selection) -> StepForms:
    return tuple((p.g, p.lfo) for p in selection.points)


# The clocks of a model's steps, for code generation and the report.


@dataclass(frozen=True)
class ClockSchedule:
    """A point for each step of a plan, the problem it solves, and comparisons with baselines. All modelled."""

    model: PowerModel
    problem: EnergyProblem
    selection: Selection
    comparisons: tuple[Comparison, ...]  # at other budgets: the fastest clock's time and some slack
    other_budgets: tuple[tuple[EnergyProblem, Selection], ...] = ()  # of the same firmware

    @property
    def clocks(self) -> ClockPlan:
        return self.model.plan

    @property
    def hse(self) -> str:
        """Frequency of the board's crystal, as text in MHz."""
        return mhz(self.clocks.base_hz)

    @property
    def sources(self) -> dict[str, str]:
        """Sources of the model's currents, and of its cycles of stalls."""
        tree = self.clocks.tree
        return {"currents": tree.power.of if tree.power else "", "stalls": tree.timing.source if tree.timing else ""}

    @property
    def points(self) -> tuple[OperatingPoint, ...]:
        return self.selection.points

    @property
    def budgets(self) -> tuple[tuple[EnergyProblem, Selection], ...]:
        """Problem and plan of each budget; the first holds until the application selects another."""
        return (self.problem, self.selection), *self.other_budgets

    @property
    def changes(self) -> tuple[int, ...]:
        """Steps before which the clock changes under any budget; the number of steps for a change after the last."""
        starts = zip(*((p.config for p in s.points) for _, s in self.budgets), strict=True)
        inside = (step for step, (a, b) in enumerate(pairwise(starts), 1) if a != b)
        after = (len(self.points),) if any(s.returns for _, s in self.budgets) else ()
        return (0, *inside, *after)

    @property
    def table(self) -> tuple[tuple[str, ...], ...]:
        """For each budget the configuration from each of the `changes` on."""
        ends = ((*(p.config for p in s.points), s.start if s.returns else s.points[-1].config) for _, s in self.budgets)
        return tuple(tuple(configs[step] for step in self.changes) for configs in ends)
