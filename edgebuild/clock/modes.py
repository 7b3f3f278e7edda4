"""Costs of switching between clock configurations and of idling. Microseconds, microjoules, mW."""

from __future__ import annotations

from collections.abc import Mapping

from edgebuild.base.dataclass import dataclass


@dataclass(frozen=True)
class SwitchCost:
    time_us: float
    energy_uj: float


FREE = SwitchCost(0.0, 0.0)
Switches = Mapping[tuple[str, str], SwitchCost]


@dataclass(frozen=True)
class IdleMode:
    """How the time until the deadline is spent, and the next inference begun.

    `energy_uj` and `min_time_us` are those of entering, waking and restoring the start's configuration, so the mode is
    possible for an idle time s >= min_time_us and costs energy_uj + power_mw * (s - min_time_us) / 1000.
    `returns`: the mode leaves the clock alone, so it is the start's configuration that has to be switched to first.
    """

    name: str
    power_mw: float
    energy_uj: float
    min_time_us: float
    returns: bool = False

    def cost(self, idle_us: float) -> float:
        return self.energy_uj + self.power_mw * (idle_us - self.min_time_us) / 1000
