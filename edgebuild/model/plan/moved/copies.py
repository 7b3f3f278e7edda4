"""Ops whose operands move by DMA: which copies are started when, which call waits for what, and where tiles lie.

Every operand and the result have one or two buffers in the first level. Double buffers are filled ahead: when a tile is
taken into use, the copy of the next is started. A call waits for the copies that it needs, and for a result's buffer to
have been stored. The `replay` of a plan runs exactly these events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..hierarchy.costs import MappingCost
from ..hierarchy.nest import Mapped, TiledLayer
from ..printed import CoreWork, Region, TileMoves

ALIGN = 8  # bytes, of buffers in the first level
WEIGHTS = "weights"
MOST_OPERANDS = 16  # of an op: two channels each, and a mask of channels has 32 bits
MOST_COPIES = 65535  # of an op: the tables count them in 16 bits


@dataclass(frozen=True, kw_only=True)
class MovedLayer(TileMoves):
    """An op that runs tile by tile, with the mapping that its tiles follow and what that costs.

    Operands that are held are read where they lie.
    """

    layer: TiledLayer
    mapped: Mapped
    cost: MappingCost
    why: str = "tiles by DMA"

    @property
    def engine(self) -> str:
        """Name of the engine that computes the op, or `cpu`."""
        return self.form.engine.name if self.form.engine is not None else "cpu"

    def region(self, near: int) -> Region | None:
        """The scratchpad that an address belongs to."""
        return max((r for r in self.regions if r.base <= near), key=lambda r: r.base, default=None)

    @property
    def at_operands(self) -> tuple[int, ...]:
        """The operand that each place of a turn belongs to; those behind them are of constants."""
        return tuple(i for i, o in enumerate(self.layer.operands) if not o.packed)

    def placed(self, base: int, held: Mapping[int, int]) -> MovedLayer:
        """The same with its buffers from `base` on, and operands that are held (by number) where they lie."""
        packed = next((i for i, o in enumerate(self.layer.operands) if o.packed), -1)
        width = max(len(c.at) for t in self.turns for c in t.calls)
        owners = (*self.at_operands, *[packed] * (width - len(self.at_operands)))
        shift = [held.get(i, base) for i in owners]
        turns = [replace(t, calls=tuple(_shifted(c, shift) for c in t.calls)) for t in self.turns]
        copies = [replace(c, near=c.near + base) for c in self.copies]
        return replace(self, copies=tuple(copies), turns=tuple(turns), scratch=self.scratch + base)


def _shifted(call: CoreWork, shift: Sequence[int]) -> CoreWork:
    return replace(call, at=tuple(a + s for a, s in zip(call.at, shift, strict=False)))
