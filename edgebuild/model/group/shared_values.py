"""Values of a group: what has a place in its arena, and where that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Report = Mapping[str, Any]  # of a model, as its NAME_report.json has it


@dataclass(frozen=True)
class Spot:
    """A model's arena in one of its memories (`owner` is the model), or a buffer. `home`: where its plan put it."""

    owner: str
    home: str
    memory: str
    offset: int
    bytes: int


@dataclass(frozen=True)
class SharedArena:
    """Spots in order of models and buffers, bytes and alignment of each memory's arena, and how good they are."""

    spots: tuple[Spot, ...]
    heights: Mapping[str, int]
    aligns: Mapping[str, int]
    bound: int
    optimal: bool
    method: str
    live: Mapping[str, int]  # by moment, bytes that hold something
