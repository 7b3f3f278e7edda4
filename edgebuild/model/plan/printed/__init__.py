"""Values of a plan that the C printer and the checks of plans read. Nothing here plans or checks.

The planner's own classes add fields to `Step` and `RolledCalls`. The checks share no algorithm with the planner through
these values: orders, places, sizes and counts are plain numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, Self

from ...ir import Op
from ...ops.base import Constant, Form, Kernel
from ..memory.problem import Place

STORE, STORE_CHANNELS = 40, 8  # EB_DMA_STORE of eb_dma.h: channels from the store to the second level, used in turn
PARTS = STORE + STORE_CHANNELS  # first channel of blocks that are fetched while their step runs, one for each slot
SLOTS = 2  # slots for such blocks
PASSING = PARTS + SLOTS  # first channel of tiles between the third level and the second, one for each operand
MAX_PASSING = 64 - PASSING


def newest_name(tensor: str) -> str:
    """The buffer name of a ring's separate newest row."""
    return f"{tensor} (newest row)"


def scratch_name(output: str) -> str:
    return f"{output} (scratch)"


class RolledCalls(Protocol):
    """A run that goes row by row. `rings`: rows of each; `inside`: tensors that are made in the place of a result.

    `numbers`: the number of each call, in order. One past the last op, the application brings a row of the streamed
    input. Higher numbers copy the separate newest row of a ring of `separate` into the ring.
    """

    @property
    def rings(self) -> Mapping[str, int]: ...

    @property
    def inside(self) -> Mapping[str, str]: ...

    @property
    def separate(self) -> tuple[str, ...]: ...

    @property
    def numbers(self) -> tuple[int, ...]: ...


@dataclass(frozen=True)
class Step:
    """A step of the schedule: an op that runs whole (`rolled` None), or a run. `inner`: bytes of rings and scratch.

    `forms`: of the ops' kernels. `results`: storages that are read after the step. `moves`: how it runs in a plan for
    memory levels. `before`, `after`: copies of constants, waits, and cache operations.
    """

    ops: tuple[Op, ...]
    rolled: RolledCalls | None
    results: tuple[str, ...]
    forms: tuple[Form, ...]
    inner: Mapping[str, int]
    moves: TiledOp | StreamedRun | UncopiedOp | None = None
    before: tuple[Transfer, ...] = ()
    after: tuple[Transfer, ...] = ()

    @property
    def name(self) -> str:
        return self.ops[-1].name


@dataclass(frozen=True)
class Copy:
    """A copy between a tensor, or a block of constants, and the first level: planes x rows pieces of `bytes`.

    `far` counts from the first byte of the tensor or block, `near` from that of the layer's buffers. Steps are in
    bytes. `stage`: the bytes pass through this memory in two copies. The copy between it and the farther memory
    (`into`) has the offset in `stage` as `near`; the other copy has it as `far`.
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
    """The call of one core in a turn: number of the kernel, and the ranges of the result that it makes.

    `at`: offsets of each activation operand, the result, and each constant of the kernel, in bytes from the start of
    the layer's buffers.
    """

    kernel: int
    at: tuple[int, ...]
    ranges: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Wait:
    """Wait until all copies of a channel are done."""

    channel: int


Operation = Copy | Wait | tuple[CoreWork, ...]  # of an op in tiles: start a copy, wait, or a call by each core


@dataclass(frozen=True)
class Region:
    """A range of a memory. For an engine's scratchpad, `base` is also its first address in the range of `Copy.near`."""

    memory: str
    base: int
    bytes: int


@dataclass(frozen=True)
class TiledOp:
    """An op that runs tile by tile. `blocks`: groups of constants, each fetched together.

    Operand i has the channels 2i and 2i + 1. Before placement, offsets in `script` count from their operand's buffers.
    `stage`: range of the second level that constants pass through; `slots`: range there for tiles of activations.
    `whole`: cycles of the op in one call that waits for nothing.
    """

    op: Op
    kernels: tuple[Kernel, ...]
    blocks: tuple[Constant, ...]
    script: tuple[Operation, ...]  # in order, with waits for all copies at the end
    scratch: int  # offset of the first core's scratch; that of the other cores follows
    scratch_each: int  # bytes of one core's scratch
    form: Form  # of the kernels
    regions: tuple[Region, ...] = ()  # the scratchpads of an engine; none: all lies in the first level
    stage: Region | None = None
    slots: Region | None = None
    why: str = ""  # reason for or against an engine
    whole: tuple[float, ...] = ()

    @property
    def ops(self) -> tuple[Op, ...]:
        return (self.op,)

    @property
    def copies(self) -> tuple[Copy, ...]:
        """In the order in which they start."""
        return tuple(o for o in self.script if isinstance(o, Copy))

    @property
    def calls(self) -> tuple[CoreWork, ...]:
        return tuple(call for o in self.script if isinstance(o, tuple) for call in o)

    def with_copies(self, copies: Iterable[Copy]) -> Self:
        """The op with its copies replaced one by one by `copies`, which has as many."""
        each = iter(copies)
        return replace(self, script=tuple(next(each) if isinstance(o, Copy) else o for o in self.script))


@dataclass(frozen=True)
class Stream:
    """Rows of a storage that are copied to (`fetched`) or from a ring of `slots` rows at offset `near`.

    Each copy has `together` rows, the last one the remainder. Even copies use `channel`, odd ones the next.
    `whole`: one copy has all rows, because a reduction makes them at once.
    """

    storage: str
    fetched: bool
    channel: int
    rows: int
    bytes: int  # of a row
    slots: int
    whole: bool = False
    near: int = 0
    together: int = 1

    @property
    def copies(self) -> int:
        return 1 if self.whole else -(-self.rows // self.together)

    @property
    def total(self) -> int:
        return self.rows * self.bytes

    @property
    def largest(self) -> int:
        """Bytes of the largest copy."""
        return (self.rows if self.whole else min(self.together, self.rows)) * self.bytes


@dataclass(frozen=True)
class Share:
    """The kernel of parts [first, past) of a row. Each part has `width` columns, or those up to the row's end.

    Part p reads operands from their column p x `step` - `before` on. `width` 0: the part is the whole row.
    """

    kernel: Kernel
    first: int = 0
    past: int = 1
    width: int = 0
    step: int = 0
    before: int = 0


@dataclass(frozen=True)
class StreamedRun:
    """A rolled run in the first level. Offsets count from its first byte there, those of held tensors are absolute.

    `rolled`: the run as its kernels see it, with the rings of its streams. `counts`: rows that each op makes, or adds
    if it reduces. `held`: operands and results that stay in the first level and are not streamed. `places`: of inner
    rings. `blocks`: the constants of each op, fetched before the run. `scratch`: by result, of the first core; that of
    the other cores follows at steps of `scratch_each` bytes (by op). Cores make `together` rows at once, each in at
    most `shares` parts by the kernels of `parts`. `events`: the number of each call, in order: first those of ops, then
    those of input streams. `stage`: range of the second level that the constants pass through.
    """

    ops: tuple[Op, ...]
    rolled: RolledCalls
    counts: tuple[int, ...]
    parts: tuple[tuple[Share, ...], ...]
    streams: tuple[Stream, ...]
    held: frozenset[str]
    blocks: tuple[Constant, ...]
    block_at: tuple[int, ...]
    constants: tuple[tuple[tuple[int, ...], ...], ...]  # by op and part: the offset of each constant
    places: Mapping[str, int]
    scratch: Mapping[str, int]
    scratch_each: tuple[int, ...]
    level1_bytes: int
    events: tuple[int, ...]
    together: int
    shares: int
    stage: Region | None = None
    whole: tuple[float, ...] = ()  # cycles of each op in one call that waits for nothing

    @property
    def inputs(self) -> tuple[Stream, ...]:
        return tuple(s for s in self.streams if s.fetched)

    @property
    def outputs(self) -> tuple[Stream, ...]:
        return tuple(s for s in self.streams if not s.fetched)


@dataclass(frozen=True)
class UncopiedOp:
    """An op of a plan for memory levels that needs no copies: the core reads its operands where they lie."""

    why: str = ""  # reason why no engine computes it; empty without engines
    whole: tuple[float, ...] = ()  # cycles of the op in one call


@dataclass(frozen=True)
class Start:
    """Begin a copy of constants of step `step`, which waits for it for `waited` cycles."""

    copy: Copy
    block: Constant
    step: int
    waited: float = 0.0


CLEAN, INVALIDATE = "clean", "invalidate"


@dataclass(frozen=True)
class CacheOp:
    """Clean or invalidate the cache lines of a range of a cached memory."""

    kind: str
    what: str  # a storage, or scratch
    place: Place
    bytes: int


Transfer = Start | Wait | CacheOp  # between two steps
Moves = TiledOp | StreamedRun  # of a step whose data a DMA unit moves
