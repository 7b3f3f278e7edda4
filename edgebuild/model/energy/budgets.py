"""Several latency budgets for one firmware: kernels are the same for all, the clocks of steps are not.

A kernel that gathers its operands does so under every budget. So the forms that the best plan of each budget wants are
tried for all, and those are taken that lose least against the best plan of each.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgebuild.base.errors import EdgebuildError
from edgebuild.clock.power import PowerModel
from edgebuild.model.energy.compare import problem_of
from edgebuild.model.energy.layer_cost import Work, point
from edgebuild.model.energy.select import select
from edgebuild.model.energy.values import EnergyLayer, EnergyProblem, Selection

from ...base.dataclass import dataclass

Ways = tuple[tuple[int, bool], ...]  # of each step: granularity, and whether it gathers at the HSE


@dataclass(frozen=True)
class ChosenClocks:
    """A plan for each budget, in the order in which they were given."""

    problems: tuple[EnergyProblem, ...]
    selections: tuple[Selection, ...]
    ways: Ways


def select_all(
    layers: Sequence[EnergyLayer], forms: Sequence[Sequence[Work]], model: PowerModel, budgets_us: Sequence[float]
) -> ChosenClocks:
    """The plans of least energy within all budgets. Raises EdgebuildError if one is too short for any plan.

    `layers` have all points of `forms`, which are those of each step.
    """
    problems = tuple(problem_of(layers, model, budget) for budget in budgets_us)
    alone = tuple(select(problem) for problem in problems)
    if len(alone) == 1:
        return ChosenClocks(problems, alone, _ways(alone[0]))
    possible = [c for ways in dict.fromkeys(map(_ways, alone)) if (c := _under(ways, forms, model, budgets_us))]
    return min(possible, key=lambda c: sum(s.energy_uj / a.energy_uj for s, a in zip(c.selections, alone, strict=True)))


def _under(
    ways: Ways, forms: Sequence[Sequence[Work]], model: PowerModel, budgets_us: Sequence[float]
) -> ChosenClocks | None:
    """The plans with these forms of the steps; None if they are too slow for a budget. Never so for the shortest's."""
    layers = [_layer(each, *way, model) for each, way in zip(forms, ways, strict=True)]
    problems = tuple(problem_of(layers, model, budget) for budget in budgets_us)
    try:
        return ChosenClocks(problems, tuple(map(select, problems)), ways)
    except EdgebuildError:
        return None


def _layer(forms: Sequence[Work], g: int, lfo: bool, model: PowerModel) -> EnergyLayer:
    """A step in one form. Where a clock is that of the HSE anyway, nothing is gathered at another."""
    work = next(w for w in forms if w.g == g)
    return EnergyLayer(work.name, tuple(point(work, c, model, lfo and bool(c.pll)) for c in model.plan.configs))


def _ways(selection: Selection) -> Ways:
    return tuple((p.g, p.lfo) for p in selection.points)
