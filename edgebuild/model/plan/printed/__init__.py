"""Values of a plan: what its C is printed from, and all that its checks take of it. Nothing here plans or checks.

The planner makes them, and its own classes hold more than `Step` and `RolledCalls`. Checks get no algorithm of the
planner by them: orders, places, sizes and counts are numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol, Self

from ...ir import Op
from ...ops.base import Constant, Form, Kernel
from ..memory.problem import Place

STORE, STORE_CHANNELS = 40, 8  # EB_DMA_STORE of eb_dma.h: channels from the store to the second level, taken in turn
PARTS = STORE + STORE_CHANNELS  # the first of those for blocks that come while their step runs, one for each slot
SLOTS = 2  # of such blocks
PASSING = PARTS + SLOTS  # the first of those for tiles between the third level and the second, one for each operand
MOST_PASSING = 64 - PASSING


def newest_name(tensor: str) -> str:
    """The name of the place of the newest row of a ring, if it is separate."""
    return f"{tensor} (newest row)"


def scratch_name(output: str) -> str:
    return f"{output} (scratch)"


class RolledCalls(Protocol):
    """A run that goes row by row: rows of its rings, tensors inside of others, and rings with a separate newest row.

    `numbers`: the order of the calls. A number is that of an op of the run; one past the last op the application brings
    a row of the streamed input; those behind it put the newest row of a ring of `separate` into the ring.
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

    `forms`: of the ops' kernels. `results`: storages that are wanted behind it. `moves`: how it runs in a plan for
    memory levels. `before`, `after`: copies of constants, and cleaning of caches.
    """

    ops: tuple[Op, ...]
    rolled: RolledCalls | None
    results: tuple[str, ...]
    forms: tuple[Form, ...]
    inner: Mapping[str, int]
    moves: TiledOp | StreamedRun | ReachedOp | None = None
    before: tuple[Transfer, ...] = ()
    after: tuple[Transfer, ...] = ()

    @property
    def name(self) -> str:
        return self.ops[-1].name


@dataclass(frozen=True)
class Copy:
    """A copy between a tensor, or a block of constants, and the first level: planes x rows pieces of `bytes`.

    `far` counts from the tensor's or the block's first byte, `near` from that of the layer's buffers. Steps in bytes.
    `stage`: the bytes go by way of this memory, by two copies. That between there and the farther memory (`into`) has
    its place there as `near`, counted in that memory; the other one has it as `far`.
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
    ranges: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Turn:
    """Copies `fetched` are started, `waits` (channels) awaited, calls made, then copies `stored` started.

    Each core makes one of the calls; without calls a turn only copies. Where bytes go by way of a second memory,
    `arrived` (channels) are awaited first, and copies `staged` are started behind `waits`.
    """

    fetched: tuple[Copy, ...] = ()
    waits: tuple[int, ...] = ()
    calls: tuple[CoreWork, ...] = ()
    stored: tuple[Copy, ...] = ()
    arrived: tuple[int, ...] = ()
    staged: tuple[Copy, ...] = ()

    @property
    def copies(self) -> tuple[Copy, ...]:
        return (*self.fetched, *self.staged, *self.stored)

    def plus(self, **more: Iterable[Any]) -> Turn:
        """The turn with more of its parts, behind those that it has."""
        return replace(self, **{name: (*getattr(self, name), *parts) for name, parts in more.items()})

    @property
    def before(self) -> tuple[Copy | Wait, ...]:
        """Copies and waits before its calls, in order."""
        return (*map(Wait, self.arrived), *self.fetched, *map(Wait, self.waits), *self.staged)


@dataclass(frozen=True)
class Region:
    """A range of a memory. In an engine's scratchpads `base` is also where its part of the addresses `near` begins."""

    memory: str
    base: int
    bytes: int


@dataclass(frozen=True)
class TiledOp:
    """An op that runs tile by tile. `blocks` are runs of constants that are fetched together.

    Operand i has the channels 2i and 2i + 1. Until all is placed, places in a turn count from where their operand
    begins. `stage`: the memory that constants come by way of, and what they take there; `slots`: what tiles of
    activations take there. `why` it runs so. `whole`: cycles of the op in one call that waits for nothing.
    """

    op: Op
    kernels: tuple[Kernel, ...]
    blocks: tuple[Constant, ...]
    turns: tuple[Turn, ...]
    scratch: int  # where the scratch of the first core's kernels lies; that of the others behind it
    scratch_each: int  # bytes of a core's
    form: Form  # of the kernels
    last_waits: tuple[int, ...]  # channels to wait for at the end
    regions: tuple[Region, ...] = ()  # the scratchpads of an engine; none: all lies in the first level
    stage: Region | None = None
    slots: Region | None = None
    why: str = ""  # for or against an engine
    whole: tuple[float, ...] = ()

    @property
    def ops(self) -> tuple[Op, ...]:
        return (self.op,)

    @property
    def copies(self) -> tuple[Copy, ...]:
        """In the order in which they start."""
        return tuple(c for t in self.turns for c in t.copies)

    def with_copies(self, copies: Iterable[Copy]) -> Self:
        """The op with others in place of its copies, one for each."""
        each = iter(copies)
        turns = ((t, [tuple(islice(each, len(some))) for some in (t.fetched, t.staged, t.stored)]) for t in self.turns)
        return replace(self, turns=tuple(replace(t, fetched=f, staged=s, stored=o) for t, (f, s, o) in turns))


@dataclass(frozen=True)
class Stream:
    """Rows of a storage that are copied to (`fetched`) or from a ring of `slots` rows at `near`.

    A copy takes `together` rows, the last one those that are left. Even copies use `channel`, odd ones the next.
    `whole`: a reduction makes all rows at once; one copy takes them.
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
    """The kernel of the parts `first` to `past` of a row, of which each is `width` columns, or to the row's end.

    Part p reads operands from their column p x `step` - `before` on. `width` 0: it is the whole row.
    """

    kernel: Kernel
    first: int = 0
    past: int = 1
    width: int = 0
    step: int = 0
    before: int = 0


@dataclass(frozen=True)
class StreamedRun:
    """A rolled run in the first level. Places count from its first byte there, those of held tensors are absolute.

    `seen`: the run as its kernels see it, with the rings of its streams. `counts`: rows that each op makes, or takes up
    if it reduces. `places`: of inner rings and held tensors. `blocks`: the constants of each op, which come before the
    run; `constants`: where each of them lies. `scratch`: by result, of the first core; that of the others lies behind
    it, at steps of `scratch_each` bytes (of every op). Cores make `together` rows at once, each of them in at most
    `shares` parts by the kernels of `parts`. `events`: numbers of ops to call, and behind them of input streams to take
    a row from. `stage`: the memory that the constants come by way of.
    """

    ops: tuple[Op, ...]
    seen: RolledCalls
    counts: tuple[int, ...]
    parts: tuple[tuple[Share, ...], ...]
    streams: tuple[Stream, ...]
    held: frozenset[str]
    blocks: tuple[Constant, ...]
    block_at: tuple[int, ...]
    constants: tuple[tuple[int, ...], ...]  # of every op: where each constant lies
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
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels of the first part of a row: all parts have its constants."""
        return tuple(parts[0].kernel for parts in self.parts)

    @property
    def inputs(self) -> tuple[Stream, ...]:
        return tuple(s for s in self.streams if s.fetched)

    @property
    def outputs(self) -> tuple[Stream, ...]:
        return tuple(s for s in self.streams if not s.fetched)


@dataclass(frozen=True)
class ReachedOp:
    """An op of a plan for memory levels whose operands the core reaches where they lie. `whole`: as of other ops."""

    why: str = ""  # no engine computes it; empty if there are none
    whole: tuple[float, ...] = ()


@dataclass(frozen=True)
class Start:
    """Begin a copy of constants of step `step`, which waits for it for `waited` cycles."""

    copy: Copy
    block: Constant
    step: int
    waited: float = 0.0


@dataclass(frozen=True)
class Wait:
    """Go on when all copies of a channel are done."""

    channel: int


CLEAN, INVALIDATE = "clean", "invalidate"


@dataclass(frozen=True)
class CacheOp:
    """Clean or invalidate some bytes of a cached memory."""

    kind: str
    what: str  # a storage, or scratch
    place: Place
    bytes: int


Transfer = Start | Wait | CacheOp  # between two steps
Moves = TiledOp | StreamedRun  # of a step whose data a DMA unit moves
