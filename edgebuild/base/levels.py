"""Facts about memory levels: channels that copy between memories, and engines that compute beside the core.

All cycles that follow from these facts are modelled: they say how plans compare, not what silicon takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .formula import Formula

LETTERS = ("K", "C", "OY", "OX", "FY", "FX")  # of a layer: channels out and in, rows and columns out, the window
PATTERNS = ("conv2d", "depthwise", "dense", "add")
REQUANTISE = ("shift", "multiply")
ACCESS = ("cpu", "dma")


@dataclass(frozen=True)
class Dma:
    """A DMA unit: `channels` copies at a time between any two of the memories `between`.

    A copy has up to `dimensions` nested loops over contiguous pieces and takes `start_cycles`, `piece_cycles` for each
    piece, and its bytes at the bandwidth of the slower memory. Addresses and pieces are multiples of `align` bytes; a
    copy moves at most `largest` bytes (0: any number). `overlap`: the core computes meanwhile.
    """

    name: str
    between: tuple[str, ...]
    channels: int = 1
    dimensions: int = 3
    start_cycles: int = 0
    piece_cycles: int = 0
    align: int = 1
    largest: int = 0
    overlap: bool = True
    port: str = "src/dma_copy.c"  # below the hal folder: eb_dma.h for this unit


@dataclass(frozen=True)
class Engine:
    """An accelerator: an array of multipliers, scratchpads for activations and for weights (bytes), and its time.

    `array` says how many of an axis are computed at once. `cycles` is for rows of output that all see FY rows of input
    under their windows: border rows, whose windows reach into the padding, are counted by themselves.
    """

    name: str
    array: dict[str, int] = field(hash=False)
    activations: int
    weights: int
    cycles: Formula
    patterns: tuple[str, ...] = ()
    requantise: str = "multiply"
