"""Facts about memory levels: channels that copy between memories, and engines that compute beside the core.

All cycles that follow from these facts are modelled: they say how plans compare, not what silicon takes.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Annotated

from .dataclass import dataclass
from .facts import Count, Rate, Size, count, entries, one_of, read_text, wrong
from .formula import Formula, parse_formula
from .text import WORD

if TYPE_CHECKING:
    from yaml.nodes import Node

LETTERS = ("K", "C", "OY", "OX", "FY", "FX")  # of a layer: channels out and in, rows and columns out, the window
PATTERNS = ("conv2d", "depthwise", "dense")  # structs of hal/include/eb_engine.h
REQUANTISE = ("shift", "multiply")
ROUNDING = ("down", "even")  # of a shift: cuts bits off, or rounds halves to even
ACCESS = ("cpu", "dma")
CACHE_LINE = 32  # bytes: Cortex-M7 (Arm DDI 0489, chapter 5)


@dataclass(frozen=True)
class Dma:
    """A DMA unit: `channels` copies at a time between any two of the memories `between`.

    A copy has up to `dimensions` nested loops over contiguous pieces and takes `start_cycles`, `piece_cycles` for each
    piece, and its bytes at the bandwidth of the slower memory. Addresses and pieces are multiples of `align` bytes; a
    copy moves at most `largest` bytes (0: any number). `overlap`: the core computes meanwhile.
    """

    name: str
    between: tuple[str, ...]
    channels: Count = 1
    dimensions: Count = 3
    start_cycles: Size = 0
    piece_cycles: Size = 0
    align: Count = 1
    largest: Size = 0
    overlap: bool = True
    port: str = "src/dma_copy.c"  # below the hal folder: eb_dma.h for this unit

    def __post_init__(self) -> None:
        if self.align & (self.align - 1):
            raise ValueError(f"DMA '{self.name}' has align {self.align}: a power of two, as addresses are aligned to")
        if self.largest and self.largest < self.align:
            raise ValueError(f"DMA '{self.name}' copies at most {self.largest} B, and {self.align} B at a time")


def _cycles(node: Node) -> Formula:
    try:
        return parse_formula(read_text(node), LETTERS)
    except ValueError as error:
        raise wrong(node, str(error)) from None


def _array(node: Node) -> dict[str, int]:
    found = {}
    for axis, entry in entries(node).items():
        if axis not in LETTERS:
            raise wrong(entry, f"unknown axis '{axis}' of the array", "known: " + " ".join(LETTERS))
        found[axis] = count(entry)
    return found


@dataclass(frozen=True)
class Engine:
    """An accelerator: an array of multipliers, scratchpads for activations and for weights (bytes), and its time.

    `array` says how many of an axis are computed at once. `cycles` is for rows of output that all see FY rows of input
    under their windows: border rows, whose windows reach into the padding, are counted by themselves.

    `requantise`: how sums become results. It is an arithmetic shift to the right in one of the ways of `rounding`, the
    same for all channels, or TFLite's multiplication for each channel. `memories` are those of activations and of
    weights; without them layers can be mapped to the engine, and no program uses it. `port`: below the hal folder, the
    functions of eb_engine.h for this engine; empty: the application brings them.
    """

    name: str
    array: Annotated[dict[str, int], _array] = field(hash=False)
    activations: Count
    weights: Count
    cycles: Annotated[Formula, _cycles]
    patterns: tuple[Annotated[str, one_of(PATTERNS)], ...] = ()
    requantise: Annotated[str, one_of(REQUANTISE)] = "multiply"
    rounding: tuple[Annotated[str, one_of(ROUNDING)], ...] = ("down",)
    memories: tuple[str, ...] = ()
    port: str = ""

    def __post_init__(self) -> None:
        if not WORD.issuperset(self.name):
            raise ValueError(f"engine '{self.name}' becomes a part of names in C; letters, digits and _ are right")
        if len(self.memories) not in (0, 2):
            raise ValueError(
                f"engine '{self.name}' names {len(self.memories)} memories: [ACTIVATIONS, WEIGHTS] are two"
            )
        if len(set(self.memories)) < len(self.memories):
            raise ValueError(f"engine '{self.name}' names {self.memories[0]} for activations and for weights")


@dataclass(frozen=True)
class Rates:
    """Measured MACs a cycle of all cores together: of sums over channels, and of channels one by one."""

    over_channels: Rate
    channelwise: Rate
