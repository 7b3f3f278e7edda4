"""Facts about memory levels: DMA units that copy between memories, and engines that compute beside the core.

All cycles that follow from these facts are modelled: they serve to compare plans, and do not predict silicon.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .facts import Count, Formula, Picojoules, Size, count, entries, keys_of, one_of, parse_formula, read_text, wrong
from .inputs import hal_dir
from .text import WORD, visible

if TYPE_CHECKING:
    from yaml.nodes import Node

LETTERS = ("K", "C", "OY", "OX", "FY", "FX")  # of a layer: channels out and in, rows and columns out, the window
PATTERNS = ("conv2d", "depthwise", "dense", "add", "max_pool", "avg_pool")  # structs of hal/include/eb_engine.h
REQUANTISE = ("shift", "multiply", "multiply-per-tensor")
# Of a shift: cuts bits off, or rounds halves to even. Of a product: "even" rounds once, "added" adds and cuts bits off.
ROUNDING = ("down", "even", "added")
PADDING = ("value", "zero")  # what a window reads outside of the input: a number of the job, or 0
ACCESS = ("cpu", "dma")
CACHE_LINE = 32  # bytes: Cortex-M7 (Arm DDI 0489, chapter 5)


def _source(node: Node) -> str:
    if not (text := read_text(node)).strip():
        raise wrong(node, "no `source`", "the document, and the place there, that states these energies")
    return text


Source = Annotated[str, _source]


@dataclass(frozen=True)
class MemoryEnergy:
    """Energy of reading and of writing one byte."""

    read_pj: Picojoules
    write_pj: Picojoules
    source: Source


@dataclass(frozen=True)
class CopyEnergy:
    """Energy of one byte in a DMA unit, without that of the two memories."""

    byte_pj: Picojoules
    source: Source


@dataclass(frozen=True)
class ComputeEnergy:
    """Energy of a core or an engine: `mac_pj` per multiply-accumulate, with its reads of the first level.

    Each cycle adds `busy_pj` if it computes, or `idle_pj` if it waits.
    """

    source: Source
    mac_pj: Picojoules = 0
    busy_pj: Picojoules = 0
    idle_pj: Picojoules = 0


def _port(node: Node) -> str:
    """The path of a file beside the target's, or below the hal folder. Raises EdgebuildError if it is missing."""
    text, beside = read_text(node), Path(node.start_mark.name).parent
    if not text or (hal_dir() / text).is_file():
        return text
    if not (beside / text).is_file():
        raise wrong(node, f"no such file: {visible(text)}", "a C file beside this one, or below the hal folder")
    return str((beside / text).resolve())


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
    port: Annotated[str, _port] = "src/dma_copy.c"  # implements eb_dma.h; beside the target's file or below hal
    energy: CopyEnergy | None = None

    def __post_init__(self) -> None:
        if self.align & (self.align - 1):
            raise ValueError(f"DMA '{self.name}' has align {self.align}: a power of two, as addresses are aligned to")
        if self.largest and self.largest < self.align:
            raise ValueError(f"DMA '{self.name}' copies at most {self.largest} B, and {self.align} B at a time")


def _cycles(node: Node) -> Formula:
    mark = node.start_mark
    try:
        return parse_formula(read_text(node), LETTERS, (mark.name, mark.line + 1, mark.column + 1))
    except ValueError as error:
        raise wrong(node, str(error)) from None


def _cycles_of(node: Node) -> dict[str, Formula]:
    return {pattern: _cycles(entry) for pattern, entry in keys_of(node, PATTERNS).items()}


def _array(node: Node) -> dict[str, int]:
    lengths = {}
    for axis, entry in entries(node).items():
        if axis not in LETTERS:
            raise wrong(entry, f"unknown axis '{axis}'", "known: " + " ".join(LETTERS))
        lengths[axis] = count(entry)
    return lengths


@dataclass(frozen=True)
class Engine:
    """An accelerator: an array of multipliers, scratchpads for activations and for weights (bytes), and its cycles.

    Without scratchpads it accesses operands in place, and is called instead of a kernel.

    `array`: elements of each axis that are computed at once. `largest`: limits of a layer's axes. `cycles`: formula for
    rows of output whose windows cover FY rows of input. Border rows, whose windows reach into the padding, are counted
    separately. `cycles_of`: formulas of patterns that differ from it.

    `requantise`: an arithmetic shift to the right with one of `rounding`, equal for all channels; or TFLite's
    multiplication per channel, or with one factor for all. With "even" in `rounding` it also does ONNX's
    multiplication, and with "added" that of NEMO and quantlib. `padding`: engines that pad with 0 do not compute
    borders of inputs with a zero point. `sum_bits`: width of a sum of products; `weight_bits`: of a weight.
    `memories`: those of activations and of weights. `port`: a C file beside the target's file or below the hal folder,
    with the functions of eb_engine.h for this engine; empty: the application provides them.
    """

    name: str
    cycles: Annotated[Formula, _cycles]
    cycles_of: Annotated[dict[str, Formula], _cycles_of] = field(default_factory=dict, hash=False)
    array: Annotated[dict[str, int], _array] = field(default_factory=dict, hash=False)
    largest: Annotated[dict[str, int], _array] = field(default_factory=dict, hash=False)
    activations: Count = 0
    weights: Count = 0
    patterns: tuple[Annotated[str, one_of(PATTERNS)], ...] = ()
    requantise: Annotated[str, one_of(REQUANTISE)] = "multiply"
    rounding: tuple[Annotated[str, one_of(ROUNDING)], ...] = ("down",)
    padding: Annotated[str, one_of(PADDING)] = "value"
    sum_bits: Count = 32
    weight_bits: Count = 8
    memories: tuple[str, ...] = ()
    port: Annotated[str, _port] = ""
    energy: ComputeEnergy | None = None

    def __post_init__(self) -> None:
        if not WORD.issuperset(self.name):
            raise ValueError(f"engine '{self.name}' becomes a part of names in C; letters, digits and _ are right")
        if bool(self.activations) != bool(self.weights) or (self.memories and not self.activations):
            raise ValueError(f"engine '{self.name}': `activations` and `weights` are both there, or neither")
        if len(self.memories) not in (0, 2):
            raise ValueError(
                f"engine '{self.name}' names {len(self.memories)} memories: [ACTIVATIONS, WEIGHTS] are two"
            )
        if len(set(self.memories)) < len(self.memories):
            raise ValueError(f"engine '{self.name}' names {self.memories[0]} for activations and for weights")

    def cycles_for(self, pattern: str) -> Formula:
        """The formula of a pattern's cycles."""
        return self.cycles_of.get(pattern, self.cycles)

    @property
    def called(self) -> bool:
        """Whether it is called instead of a kernel, on operands in place."""
        return bool(self.patterns) and not self.activations
