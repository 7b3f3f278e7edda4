"""Constants that are fetched under earlier steps, as far as the first level has room and the DMA unit has time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .moves import ALIGN
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
    slack, found = [max(0.0, step.slack) for step in steps], list[Early]()
    for at, step in enumerate(steps):
        cycles, size = step.constants
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
