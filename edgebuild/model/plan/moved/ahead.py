"""Constants that are fetched under earlier steps, as far as the first level has room and the DMA unit has time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .copies import ALIGN
from .residency import Step


@dataclass(frozen=True)
class Early:
    """The constants of step `step` are fetched from before step `first` on. `hidden`: cycles that this saves."""

    step: int
    first: int
    hidden: float


def early(steps: Sequence[Step], sizes: Mapping[str, int], room: int) -> tuple[Early, ...]:
    """Each step's constants as late as they need not be waited for; with too little time, as early as there is room.

    `sizes`: bytes of tensors that are held, `room`: of the first level.
    """
    load = [step.need + sum(sizes[n] for n in step.held) for step in steps]
    return _hidden([step.constants for step in steps], [step.slack for step in steps], load, room)


def _hidden(
    copies: Sequence[tuple[float, int]], slacks: Sequence[float], load: list[int], room: int
) -> tuple[Early, ...]:
    slack, found = [max(0.0, s) for s in slacks], list[Early]()
    for at, (cycles, size) in enumerate(copies):
        size = -(-size // ALIGN) * ALIGN
        first, time = at, 0.0
        while first and time < cycles and load[first - 1] + size <= room:
            first -= 1
            time += slack[first]
        hidden = left = min(cycles, time)
        if not hidden:
            continue
        for i in range(first, at):
            load[i] += size
            used = min(left, slack[i])
            slack[i], left = slack[i] - used, left - used
        found.append(Early(at, first, hidden))
    return tuple(found)
