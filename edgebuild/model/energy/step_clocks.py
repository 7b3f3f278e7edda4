"""The clocks of a model's steps: what code generation and the report need to know of them."""

from __future__ import annotations

from itertools import pairwise

from edgebuild.clock.configs import ClockPlan, mhz
from edgebuild.clock.power import PowerModel
from edgebuild.model.energy.compare import Comparison
from edgebuild.model.energy.values import EnergyProblem, OperatingPoint, Selection

from ...base.dataclass import dataclass


@dataclass(frozen=True)
class ClockSchedule:
    """A point for each step of a plan, the problem it was chosen from, and what that is worth. All modelled."""

    model: PowerModel
    problem: EnergyProblem
    selection: Selection
    comparisons: tuple[Comparison, ...]  # at other budgets: the fastest clock's time and some slack
    others: tuple[tuple[EnergyProblem, Selection], ...] = ()  # for further budgets of the same firmware

    @property
    def clocks(self) -> ClockPlan:
        return self.model.plan

    @property
    def hse(self) -> str:
        """Frequency of the board's crystal, in words."""
        return mhz(self.clocks.hse_hz)

    @property
    def sources(self) -> dict[str, str]:
        """Sources of the model: whose currents, and where the cycles of stalls come from."""
        tree = self.clocks.tree
        return {"currents": tree.power.of if tree.power else "", "stalls": tree.timing.source if tree.timing else ""}

    @property
    def points(self) -> tuple[OperatingPoint, ...]:
        return self.selection.points

    @property
    def budgets(self) -> tuple[tuple[EnergyProblem, Selection], ...]:
        """Problem and plan of each budget; the first holds until the application asks for another."""
        return (self.problem, self.selection), *self.others

    @property
    def changes(self) -> tuple[int, ...]:
        """Steps before which the clock changes under any of the budgets; their number for a change after the last."""
        starts = zip(*((p.config for p in s.points) for _, s in self.budgets), strict=True)
        inside = (step for step, (a, b) in enumerate(pairwise(starts), 1) if a != b)
        after = (len(self.points),) if any(_returns(s) for _, s in self.budgets) else ()
        return (0, *inside, *after)

    @property
    def table(self) -> tuple[tuple[str, ...], ...]:
        """For each budget the configuration from each of the `changes` on."""
        ends = (
            (*(p.config for p in s.points), s.start if _returns(s) else s.points[-1].config) for _, s in self.budgets
        )
        return tuple(tuple(configs[step] for step in self.changes) for configs in ends)

    @property
    def switch_points(self) -> tuple[str | None, ...]:
        """For each step the configuration to change to before it, if it is another; for the first step always."""
        names = [p.config for p in self.points]
        return (names[0], *(b if a != b else None for a, b in pairwise(names)))

    @property
    def returns_to(self) -> str | None:
        """The configuration to change to after the last step, if the way of idling needs that."""
        last = self.points[-1].config
        return self.selection.start if self.selection.mode.returns and last != self.selection.start else None


def _returns(selection: Selection) -> bool:
    """Whether the clock changes after the last step."""
    return selection.mode.returns and selection.points[-1].config != selection.start
