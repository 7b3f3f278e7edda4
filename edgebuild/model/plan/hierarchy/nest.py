"""A layer as a loop nest whose operands are moved between two levels, and a mapping of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from itertools import product
from math import ceil, prod
from typing import Any

from ....base.dataclass import dataclass
from ...ir.axes import Dim, Nest, Same, Window, range_through

Range = tuple[int, int]
Ranges = tuple[Range, ...]


@dataclass(frozen=True)
class Channel:
    """Cycles of a copy: a start, its bytes, and so much for each contiguous piece.

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

    def cut(self, size: int) -> Iterator[tuple[int, int]]:
        """First byte and bytes of the copies that move so many bytes which lie in one piece."""
        step = self.largest // self.align * self.align or max(1, size)
        return ((at, min(step, size - at)) for at in range(0, size, step))


@dataclass(frozen=True)
class Operand:
    """Something that is read (or, the result, written) by tiles, in units of `item` bytes.

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
    held: bool = False  # it lies in the near memory before and after, whole: nothing is moved, and its room is not ours
    start: int = 0  # bytes from an address with any alignment to its first

    @cached_property
    def cuts(self) -> tuple[tuple[str, Dim | None, int], ...]:
        """Of each dimension its axis, how that indexes it (None: one to one), and its size."""
        rows = zip(self.dims, self.sizes, strict=True) if self.dims else ((Same(""), size) for size in self.sizes)
        return tuple((d.axis or "", None if isinstance(d, Same) else d, size) for d, size in rows)

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
class TiledLayer:
    """A nest, its operands, the axes that may be cut, and how many of an axis the hardware likes at once.

    `views`: a call takes operands as pointers, so its part of a larger buffer must be contiguous. `cores` share a tile.
    `estimated`: no rate is stated, so what kernels estimate counts. `alone`: cycles of all of it on one core.
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

    @property
    def core_axes(self) -> tuple[str, ...]:
        return self.shares or self.axes

    @cached_property
    def costs(self) -> dict[Any, Any]:
        """Costs of its tile sizes: see `grid.costs_of`."""
        return {}

    def along(self, *axes: str) -> TiledLayer:
        """The same, cut along these axes alone; cores share its tiles along all."""
        if axes not in self._along:
            self._along[axes] = replace(self, axes=axes, shares=self.core_axes)
        return self._along[axes]

    @cached_property
    def _along(self) -> dict[tuple[str, ...], TiledLayer]:
        return {}

    def region(self, operand: Operand, ranges: Mapping[str, Range]) -> Ranges:
        """The part of an operand that a part of the nest needs; axes without a range are whole."""
        found = []
        for axis, dim, size in operand.cuts:
            part = ranges.get(axis)
            if part is None:
                found.append((0, size))
            else:
                found.append(part if dim is None else range_through(self.nest, dim, *part))
        return tuple(found)

    def taps(self, ranges: Range) -> dict[int, int]:
        """How many rows of a range see how many taps."""
        assert self.compute.rows is not None
        axis, tap = self.compute.rows
        n = self.nest.extents[tap]
        window = next((d for o in self.operands for d in o.dims if isinstance(d, Window) and d.axis == axis), None)
        if window is None:
            return {n: ranges[1] - ranges[0]}
        found: dict[int, int] = {}
        for row in range(*ranges):
            first = row * window.stride - window.pad
            seen = sum(0 <= first + t * window.dilation < window.size for t in range(n))
            found[seen] = found.get(seen, 0) + 1
        return found


def ranges_of(extent: int, size: int) -> tuple[Range, ...]:
    """Tiles of `size`; the last may be smaller."""
    return tuple((at, min(at + size, extent)) for at in range(0, extent, size))


@dataclass(frozen=True)
class Move:
    """How an operand is moved: inside of so many loops, by so many buffers."""

    operand: str
    depth: int
    buffers: int


@dataclass(frozen=True)
class Mapped:
    """Tile sizes of the axes that may be cut, the loops (outermost first), how operands move, and what it all costs."""

    tile: Mapping[str, int]
    order: tuple[str, ...]
    moves: tuple[Move, ...]
    cycles: float = 0.0
    examined: int = 0

    def counts(self, layer: TiledLayer) -> dict[str, int]:
        return {a: ceil(layer.nest.extents[a] / self.tile[a]) for a in layer.axes}

    def turns(self, layer: TiledLayer) -> Iterator[dict[str, Range]]:
        """The ranges of every call, in order."""
        cuts = [ranges_of(layer.nest.extents[a], self.tile[a]) for a in self.order]
        for found in product(*cuts):
            yield dict(zip(self.order, found, strict=True))


def pieces_of(region: Ranges, sizes: tuple[int, ...]) -> int:
    """Contiguous pieces of a part of an array: what is whole merges with the dimension around it."""
    runs, merged = 1, True
    for (first, past), size in zip(reversed(region), reversed(sizes), strict=True):
        runs = runs if merged else runs * (past - first)
        merged = merged and past - first == size
    return runs


def starts_of(region: Ranges, sizes: tuple[int, ...], dimensions: int) -> int:
    """How often a copy unit with so many nested loops is started for a part of an array."""
    starts, loops, merged = 1, 0, True
    for (first, past), size in zip(reversed(region), reversed(sizes), strict=True):
        if not merged and past - first > 1:
            loops += 1
            starts *= past - first if loops > dimensions - 1 else 1
        merged = merged and past - first == size
    return starts


def parts_of(channel: Channel, size: Any) -> Any:
    """How many copies `Channel.cut` makes, of a number of bytes or of an array of them."""
    return -(-size // (channel.largest // channel.align * channel.align)) if channel.largest else 1


def region_bytes(operand: Operand, region: Ranges) -> int:
    lengths = [past - first for first, past in region]
    return prod(lengths) * operand.item + operand.extra * (lengths[operand.extra_dim] if lengths else 1)
