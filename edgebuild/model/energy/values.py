"""The words of the selection: points, layers, plans. Microseconds, microjoules, mW."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from ...base.dataclass import dataclass
from ...clock.configs import FREE, IdleMode, SwitchCost, Switches


@dataclass(frozen=True)
class OperatingPoint:
    """One way to run a layer: in a clock configuration, with a decoupling granularity (0: not decoupled)."""

    config: str
    g: int
    time_us: float
    energy_uj: float
    lfo: bool = False  # whether the access phases run from the HSE by the quick mux


@dataclass(frozen=True)
class EnergyLayer:
    name: str
    points: tuple[OperatingPoint, ...]


@dataclass(frozen=True)
class EnergyProblem:
    """Choose a point per layer. `idle[start]`: the modes of a plan that begins in this configuration, which is that of
    its first layer. A pair that is missing in `switches` cannot be switched."""

    layers: tuple[EnergyLayer, ...]
    switches: Switches
    idle: Mapping[str, tuple[IdleMode, ...]]
    budget_us: float

    def switch(self, start: str, end: str) -> SwitchCost:
        return FREE if start == end else self.switches[start, end]


@dataclass(frozen=True)
class Selection:
    """A plan. `energy_uj` covers the whole period of the budget; no plan has less than `bound_uj`."""

    points: tuple[OperatingPoint, ...]
    mode: IdleMode
    switched: tuple[tuple[str, str], ...]  # from, to; in order, the return to the start included where there is one
    time_us: float  # of the layers and the switches
    idle_us: float
    idle_energy_uj: float
    energy_uj: float
    bound_uj: float

    @property
    def start(self) -> str:
        return self.points[0].config


def evaluate(
    problem: EnergyProblem, points: tuple[OperatingPoint, ...], mode: IdleMode, bound_uj: float = 0.0
) -> Selection:
    """Add a plan up, naively: this is the definition of what it costs."""
    path = [p.config for p in points] + ([points[0].config] if mode.returns else [])
    switched = tuple((a, b) for a, b in pairwise(path) if a != b)
    costs = [problem.switch(a, b) for a, b in switched]
    time = sum(p.time_us for p in points) + sum(c.time_us for c in costs)
    idle = problem.budget_us - time
    idle_energy = mode.cost(idle)
    energy = sum(p.energy_uj for p in points) + sum(c.energy_uj for c in costs) + idle_energy
    return Selection(points, mode, switched, time, idle, idle_energy, energy, bound_uj)


def pareto(points: Iterable[OperatingPoint], idle_mw: float = 0.0) -> tuple[OperatingPoint, ...]:
    """The points worth keeping, per configuration, by rising time.

    Fronts are per configuration because a point that another configuration beats can win once switching has its price.
    Time saved is spent idling, so a point must save more than `idle_mw` over the time it takes longer: give the power
    of the hungriest idle mode, or too much is dropped.
    """
    kept: list[OperatingPoint] = []
    by_config: dict[str, list[OperatingPoint]] = {}
    for p in points:
        by_config.setdefault(p.config, []).append(p)
    for group in by_config.values():
        least = float("inf")
        for p in sorted(group, key=lambda p: (p.time_us, p.energy_uj)):
            value = p.energy_uj - idle_mw * p.time_us / 1000
            if value < least:
                least = value
                kept.append(p)
    return tuple(kept)
