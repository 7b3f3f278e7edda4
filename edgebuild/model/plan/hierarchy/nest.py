"""A layer as a loop nest whose operands are moved between two levels, and a mapping of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import ceil, prod
from pathlib import Path
from typing import Any

from ....base.facts import read_facts
from ...ir import Dim, Nest, Same, Window, range_through

Range = tuple[int, int]
Ranges = tuple[Range, ...]


@dataclass(frozen=True)
class Channel:
    """Cycles of a copy: a start, its bytes, and a constant for each contiguous piece.

    One start covers `dimensions` nested loops; `overlap`: the core computes meanwhile. Addresses and pieces are
    multiples of `align`.
    """

    bytes_per_cycle: float
    start_cycles: int = 0
    piece_cycles: int = 0
    dimensions: int = 3
    align: int = 1
    largest: int = 0  # bytes of a copy; 0: any number
    overlap: bool = True
    fetch_pj: float = 0.0  # of a byte copied to the near memory
    store_pj: float = 0.0  # of a byte copied back

    def cut(self, size: int) -> Iterator[tuple[int, int]]:
        """First byte and size of each copy that together move `size` contiguous bytes."""
        step = self.largest // self.align * self.align or max(1, size)
        return ((at, min(step, size - at)) for at in range(0, size, step))


@dataclass(frozen=True)
class Operand:
    """An operand that is read by tiles, or the result, which is written by tiles; elements have `item` bytes.

    `packed`: it lies in the far memory tile by tile, so that every tile is one piece. `extra`: bytes that every index
    of dimension `extra_dim` brings along, as the bias does for weights.
    """

    name: str
    dims: tuple[Dim, ...]
    sizes: tuple[int, ...]
    item: int
    space: str  # whose capacity its buffers take
    channel: Channel
    result: bool = False
    packed: bool = False
    extra: int = 0
    extra_dim: int = 0
    held: bool = False  # it lies whole in the near memory before and after: no copies, and its bytes do not count
    start: int = 0  # bytes from a fully aligned address to its first

    @cached_property
    def cuts(self) -> tuple[tuple[str, Dim | None, int], ...]:
        """Each dimension's axis, how that indexes it (None: one to one), and its size."""
        rows = zip(self.dims, self.sizes, strict=True) if self.dims else ((Same(""), size) for size in self.sizes)
        return tuple((d.axis or "", None if isinstance(d, Same) else d, size) for d, size in rows)

    @property
    def byte_pj(self) -> float:
        """Picojoules of a copied byte."""
        return self.channel.store_pj if self.result else self.channel.fetch_pj

    @cached_property
    def axes(self) -> frozenset[str]:
        """The axes along which it can be cut."""
        return frozenset(d.axis for d in self.dims if d.axis)


@dataclass(frozen=True)
class Compute:
    """Cycles of a tile by the lengths of its axes (numbers or arrays), and of a call.

    `rows`: an axis and the axis of its window's taps; rows that see fewer taps, because the window reaches into the
    padding, are counted by themselves with that number of taps.
    """

    cycles: Callable[[Mapping[str, Any]], Any]
    call: float = 0.0
    rows: tuple[str, str] | None = None


@dataclass(frozen=True)
class Power:
    """Energy of a layer without its copies: once, for each cycle of computing, and for each other cycle.

    `least`: the search minimises energy, not cycles.
    """

    once_pj: float
    busy_pj: float
    idle_pj: float
    least: bool = False

    def picojoules(self, compute: Any, total: Any, copied: Any) -> Any:
        """Energy of a layer (numbers or arrays). `copied`: picojoules of all copies."""
        return self.once_pj + copied + self.busy_pj * compute + self.idle_pj * (total - compute)


@dataclass(frozen=True)
class TiledLayer:
    """A nest, its operands, the axes that may be cut, and `units`: how many of an axis the hardware computes at once.

    `views`: a call takes operands as pointers, so its part of a larger buffer must be contiguous. `cores` share a tile.
    `estimated`: kernels compute it, by their estimates; False on an engine. `alone`: cycles of all of it on one core.
    """

    name: str
    nest: Nest
    operands: tuple[Operand, ...]
    axes: tuple[str, ...]
    compute: Compute
    units: Mapping[str, int] = field(default_factory=dict)
    views: bool = False
    cores: int = 1
    estimated: bool = False
    alone: float = 0.0
    shares: tuple[str, ...] = ()  # axes along which cores share a tile; none: `axes`
    align: int = 8  # bytes, of buffers
    power: Power | None = None  # None: the target states no energies
    # Costs of its tile sizes: see `mapper.costs_of`.
    costs: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    _along: dict[tuple[str, ...], TiledLayer] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def core_axes(self) -> tuple[str, ...]:
        return self.shares or self.axes

    def along(self, *axes: str) -> TiledLayer:
        """The layer cut along these axes only; cores share its tiles along all axes as before."""
        if axes not in self._along:
            self._along[axes] = replace(self, axes=axes, shares=self.core_axes)
        return self._along[axes]

    def region(self, operand: Operand, ranges: Mapping[str, Range]) -> Ranges:
        """The part of an operand that a part of the nest needs; axes without a range are whole."""
        needed = []
        for axis, dim, size in operand.cuts:
            part = ranges.get(axis)
            if part is None:
                needed.append((0, size))
            else:
                needed.append(part if dim is None else range_through(self.nest, dim, *part))
        return tuple(needed)

    def taps(self, ranges: Range) -> dict[int, int]:
        """How many rows of a range see how many taps."""
        assert self.compute.rows is not None
        axis, tap = self.compute.rows
        n = self.nest.extents[tap]
        window = next((d for o in self.operands for d in o.dims if isinstance(d, Window) and d.axis == axis), None)
        if window is None:
            return {n: ranges[1] - ranges[0]}
        counts: dict[int, int] = {}
        for row in range(*ranges):
            first = row * window.stride - window.pad
            seen = sum(0 <= first + t * window.dilation < window.size for t in range(n))
            counts[seen] = counts.get(seen, 0) + 1
        return counts


def ranges_of(extent: int, size: int) -> tuple[Range, ...]:
    """Tiles of `size`; the last may be smaller."""
    return tuple((at, min(at + size, extent)) for at in range(0, extent, size))


@dataclass(frozen=True)
class Move:
    """How an operand is moved: inside of the `depth` outermost loops, with one or two buffers."""

    operand: str
    depth: int
    buffers: int


@dataclass(frozen=True)
class Mapped:
    """Tile sizes of the axes that may be cut, the loops (outermost first), and how operands move.

    `examined`: number of mappings that the search evaluated.
    """

    tile: Mapping[str, int]
    order: tuple[str, ...]
    moves: tuple[Move, ...]
    examined: int = 0

    def counts(self, layer: TiledLayer) -> dict[str, int]:
        return {a: ceil(layer.nest.extents[a] / self.tile[a]) for a in layer.axes}

    def turns(self, layer: TiledLayer) -> Iterator[dict[str, Range]]:
        """The ranges of every call, in order."""
        cuts = [ranges_of(layer.nest.extents[a], self.tile[a]) for a in self.order]
        for turn in product(*cuts):
            yield dict(zip(self.order, turn, strict=True))


def pieces_of(region: Ranges, sizes: tuple[int, ...], dimensions: int) -> tuple[int, int]:
    """Contiguous pieces of a part of an array, and starts of a copy unit of `dimensions` nested loops for them.

    A dimension that is whole merges with the one around it.
    """
    runs, starts, loops, merged = 1, 1, 0, True
    for (first, past), size in zip(reversed(region), reversed(sizes), strict=True):
        count = 1 if merged else past - first
        runs, loops = runs * count, loops + (count > 1)
        starts *= count if count > 1 and loops > dimensions - 1 else 1
        merged = merged and past - first == size
    return runs, starts


def parts_of(channel: Channel, size: Any) -> Any:
    """How many copies `Channel.cut` makes. `size`: bytes, a number or an array."""
    return -(-size // (channel.largest // channel.align * channel.align)) if channel.largest else 1


# Cost of a mapping, counted copy by copy: the naive form that gives every figure of a report.
#
# Cycles are modelled. A layer takes the sum of its computing and of all copies into or out of single buffers. Copies by
# double buffers run beside the computing. Of both, the longer one counts: computing with the first fetch and the last
# store of each operand, or copies with the last call.


@dataclass(frozen=True)
class OperandCost:
    """Sums over the copies of an operand; `tile_bytes`: of a buffer."""

    operand: str
    depth: int
    buffers: int
    tile_bytes: int
    transfers: int
    bytes: int
    pieces: int
    cycles: float


@dataclass(frozen=True)
class MappingCost:
    """Figures of a mapping: cycles of its parts, calls of the kernel.

    `exposed`: copies that the core waits for. `beside`: those by double buffers, `ends` the first and last of them.
    `copied_pj`: energy of all copies.
    """

    operands: tuple[OperandCost, ...]
    calls: int
    compute: float
    exposed: float
    beside: float = 0.0
    ends: float = 0.0
    copied_pj: float = 0.0
    power: Power | None = None

    @property
    def picojoules(self) -> float | None:
        """Energy in picojoules; None if the target does not state it."""
        return None if self.power is None else float(self.power.picojoules(self.compute, self.total, self.copied_pj))

    @property
    def score(self) -> float:
        """The cycles, or the energy, that the search minimises."""
        return self.picojoules or 0.0 if self.power is not None and self.power.least else self.total

    @property
    def dma(self) -> float:
        return self.exposed + self.beside

    @property
    def slack(self) -> float:
        """Cycles in which the core computes and no copy runs."""
        return self.total - self.dma

    @property
    def total(self) -> float:
        if not self.beside:
            return self.exposed + self.compute
        return self.exposed + max(self.compute + self.ends, self.beside + self.compute / self.calls)


def copy_cycles(channel: Channel, starts: int, size: int, pieces: int) -> float:
    return starts * channel.start_cycles + ceil(size / channel.bytes_per_cycle) + pieces * channel.piece_cycles


def fetches(layer: TiledLayer, mapped: Mapped, move: Move, operand: Operand) -> Iterator[Ranges]:
    """The part of an operand in every copy, in order."""
    outer, last = mapped.order[: move.depth], None
    for turn in mapped.turns(layer):
        now = tuple(turn[a] for a in outer)
        if now != last:
            last = now
            yield layer.region(operand, dict(zip(outer, now, strict=True)))


def compute_cycles(layer: TiledLayer, turn: Mapping[str, Range]) -> float:
    """Cycles of one call, without the overhead of calling."""
    lengths = {a: (turn[a][1] - turn[a][0]) if a in turn else n for a, n in layer.nest.extents.items()}
    if layer.compute.rows is None:
        return float(layer.compute.cycles(lengths))
    axis, tap = layer.compute.rows
    rows = layer.taps(turn.get(axis, (0, layer.nest.extents[axis])))
    return sum(float(layer.compute.cycles({**lengths, axis: n, tap: taps})) for taps, n in rows.items())


def cost(layer: TiledLayer, mapped: Mapped) -> MappingCost:
    """Count a mapping call by call and copy by copy."""
    costs, exposed, beside, ends, copied_pj = [], 0.0, 0.0, 0.0, 0.0
    for move, operand in zip(mapped.moves, layer.operands, strict=True):
        if operand.held:
            costs.append(OperandCost(operand.name, 0, 1, 0, 0, 0, 0, 0.0))
            continue
        sizes, cycles, pieces, tile = [], list[float](), 0, 0
        for region in fetches(layer, mapped, move, operand):
            lengths = [past - first for first, past in region]
            size = prod(lengths) * operand.item + operand.extra * (lengths[operand.extra_dim] if lengths else 1)
            if operand.packed:
                runs = starts = parts_of(operand.channel, size)
            else:
                runs, starts = pieces_of(region, operand.sizes, operand.channel.dimensions)
            sizes.append(size)
            cycles.append(copy_cycles(operand.channel, starts, size, runs))
            pieces, tile = pieces + runs, max(tile, size)
        total, copied_pj = sum(cycles), copied_pj + sum(sizes) * operand.byte_pj
        costs.append(OperandCost(operand.name, move.depth, move.buffers, tile, len(sizes), sum(sizes), pieces, total))
        if move.buffers == 2:
            beside, ends = beside + total, ends + total / len(cycles)
        else:
            exposed += total
    turns = list(mapped.turns(layer))
    compute = sum(compute_cycles(layer, turn) for turn in turns) + layer.compute.call * len(turns)
    return MappingCost(tuple(costs), len(turns), compute, exposed, beside, ends, copied_pj, layer.power)


# Layers from a YAML file: `layers: [{name, K, C, FY, FX, OY, OX, pad_y, pad_x, stride, groups}]`.

MAX_EXTENT = 16384  # extent of an axis: tiles are searched by their sizes, in time and memory that grow with it


@dataclass(frozen=True)
class ShapeRow:
    """Channels out and in, the window, rows and columns out; `groups` is 1, or the channels (depthwise)."""

    name: str
    K: int
    C: int
    FY: int
    FX: int
    OY: int
    OX: int
    pad_y: int = 0
    pad_x: int = 0
    stride: int = 1
    groups: int = 1

    def __post_init__(self) -> None:
        for letter in ("K", "C", "FY", "FX", "OY", "OX", "stride", "groups"):
            if not 1 <= getattr(self, letter) <= MAX_EXTENT:
                text = f"layer '{self.name}': {letter} is {getattr(self, letter)}, must be from 1 to {MAX_EXTENT}"
                raise ValueError(text)
        if self.groups not in (1, self.C) or (self.groups > 1 and self.K != self.C):
            raise ValueError(f"layer '{self.name}': groups is 1, or equal to both K and C")
        for axis, pad, n, out in (("y", self.pad_y, self.FY, self.OY), ("x", self.pad_x, self.FX, self.OX)):
            if not 0 <= pad < n:
                raise ValueError(f"layer '{self.name}': pad_{axis} is {pad}, must be from 0 to {n - 1}")
            if (out - 1) * self.stride + n - 2 * pad < 1:
                raise ValueError(f"layer '{self.name}': the input would have no {'rows' if axis == 'y' else 'columns'}")


@dataclass(frozen=True)
class LayerFile:
    """Content of a file of layers."""

    layers: tuple[ShapeRow, ...]


@dataclass(frozen=True)
class Hardware:
    """Hardware that layers are mapped to: the space and the channel of each operand, and the cycles of a tile.

    `channels_first`: activations are stored by channels, rows, columns, as accelerators have them; else rows, columns,
    channels. `cycles` takes the letters of a layer; `units`: how many of an axis are computed at once.
    """

    spaces: Mapping[str, str]  # of I, W and O
    channels: Mapping[str, Channel]
    cycles: Callable[[Mapping[str, Any]], Any]
    channelwise: Callable[[Mapping[str, Any]], Any]  # the same for depthwise layers
    units: Mapping[str, int]
    channels_first: bool
    call: float = 0.0


def read_layers(file: Path) -> tuple[ShapeRow, ...]:
    """The layers of a YAML file. Raises EdgebuildError with file and line."""
    return read_facts(LayerFile, file).layers


def layer_of(row: ShapeRow, hardware: Hardware) -> TiledLayer:
    """A row of the file as a loop nest."""
    depthwise = row.groups > 1
    height, width = (
        (o - 1) * row.stride + f - 2 * p for o, f, p in ((row.OY, row.FY, row.pad_y), (row.OX, row.FX, row.pad_x))
    )
    rows = Window("OY", "FY", row.stride, 1, row.pad_y, height)
    columns = Window("OX", "FX", row.stride, 1, row.pad_x, width)
    channel = Same("K" if depthwise else "C")
    extents = {"K": row.K, "C": 1 if depthwise else row.C, "FY": row.FY, "FX": row.FX, "OY": row.OY, "OX": row.OX}
    w_dims: tuple[Dim, ...] = (Same("K"), Same("C"), Same("FY"), Same("FX"))
    first = hardware.channels_first
    i_dims: tuple[Dim, ...] = (channel, rows, columns) if first else (rows, columns, channel)
    i_sizes = (row.C, height, width) if first else (height, width, row.C)
    out = ("K", "OY", "OX") if first else ("OY", "OX", "K")
    o_dims = tuple(Same(a) for a in out)
    nest = Nest(extents, out, (i_dims, w_dims), macs=True)

    def operand(name: str, dims: tuple[Dim, ...], sizes: tuple[int, ...]) -> Operand:
        return Operand(name, dims, sizes, 1, hardware.spaces[name], hardware.channels[name], result=name == "O")

    operands = (
        operand("I", i_dims, i_sizes),
        operand("W", w_dims, (row.K, extents["C"], row.FY, row.FX)),
        operand("O", o_dims, tuple(extents[a] for a in out)),
    )
    axes = tuple(a for a in ("K", "OY", "OX") if extents[a] > 1)
    compute = Compute(
        hardware.channelwise if depthwise else hardware.cycles, hardware.call, ("OY", "FY") if first else None
    )
    return TiledLayer(row.name, nest, operands, axes, compute, hardware.units)
