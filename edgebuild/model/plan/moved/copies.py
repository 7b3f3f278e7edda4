"""Ops whose operands move by DMA: which copies are started when, which call waits for what, and where tiles lie.

Every operand and the result have one or two buffers in the first level. Double buffers are filled ahead: when a tile is
taken into use, the copy of the next is started. A call waits for the copies that it needs, and for a result's buffer to
have been stored. The `replay` of a plan runs exactly these events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...ir import Op
from ...ops.base import Constant, Form, Kernel
from ..hierarchy.costs import MappingCost
from ..hierarchy.nest import Mapped, Range, TiledLayer

ALIGN = 8  # bytes, of buffers in the first level
WEIGHTS = "weights"
MOST_OPERANDS = 16  # of an op: two channels each, and a mask of channels has 32 bits
MOST_COPIES = 65535  # of an op: the tables count them in 16 bits


@dataclass(frozen=True)
class Copy:
    """A copy between a tensor, or a block of constants, and the first level: planes x rows pieces of `bytes`.

    `far` counts from the tensor's or the block's first byte, `near` from that of the layer's buffers. Steps in bytes.
    `stage`: constants come by way of this memory, by two copies. The one `into` it goes to `near`, counted there; the
    other one takes them from `far`, counted there as well.
    """

    channel: int
    fetch: bool
    tensor: str  # empty: constants
    block: int
    far: int
    near: int
    bytes: int
    rows: int = 1
    planes: int = 1
    far_row: int = 0
    far_plane: int = 0
    near_row: int = 0
    near_plane: int = 0
    stage: str = ""
    into: bool = False

    @property
    def total(self) -> int:
        return self.bytes * self.rows * self.planes


@dataclass(frozen=True)
class CoreWork:
    """The work of a core in a turn: number of the kernel, and the ranges of the result that it makes.

    `at`: where each operand that is an activation, the result, and each constant of the kernel lie, from the first byte
    of the layer's buffers.
    """

    kernel: int
    at: tuple[int, ...]
    ranges: Mapping[str, Range]


@dataclass(frozen=True)
class Turn:
    """Copies up to number `fetched` are started, `waits` (channels) awaited, calls made, then copies up to `stored`.

    Each core makes one of the calls. Where constants come by way of a second memory, `arrived` (channels) are awaited
    first, and copies up to `staged` are started behind `waits`.
    """

    fetched: int
    waits: tuple[int, ...]
    calls: tuple[CoreWork, ...]
    stored: int
    arrived: tuple[int, ...] = ()
    staged: int = 0


@dataclass(frozen=True)
class Region:
    """A memory that tiles lie in: its part of the addresses `near`, from `base` on."""

    memory: str
    base: int
    bytes: int


@dataclass(frozen=True)
class MovedLayer:
    """An op that runs tile by tile. `blocks` are runs of constants that are fetched together.

    Operands that are held are read where they lie. Until all is `placed`, places in a turn count from where their
    operand begins.
    """

    op: Op
    layer: TiledLayer
    mapped: Mapped
    cost: MappingCost
    kernels: tuple[Kernel, ...]
    blocks: tuple[Constant, ...]
    copies: tuple[Copy, ...]
    turns: tuple[Turn, ...]
    near_bytes: int
    scratch: int  # where the scratch of the first core's kernels lies; that of the others behind it
    scratch_each: int  # bytes of a core's
    form: Form  # of the kernels
    last_waits: tuple[int, ...]  # channels to wait for at the end
    regions: tuple[Region, ...] = ()  # the scratchpads of an engine; none: all lies in the first level
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
