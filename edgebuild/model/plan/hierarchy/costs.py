"""Cost of a mapping, counted copy by copy: the naive form from which every figure of a report is taken.

Cycles are modelled. A layer takes the sum of its computing and of all copies into or out of single buffers. Copies by
double buffers run beside the computing. Either the computing counts, with the first fetch and the last store of each,
or the copies do, with the last call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil

from ....base.dataclass import dataclass
from .nest import (
    Channel,
    Mapped,
    Move,
    Operand,
    Range,
    Ranges,
    TiledLayer,
    parts_of,
    pieces_of,
    region_bytes,
    starts_of,
)


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
    """A mapping's figures; cycles of all parts, calls of the kernel.

    `exposed`: copies that the core waits for. `beside`: those by double buffers, `ends` the first and last of them.
    """

    operands: tuple[OperandCost, ...]
    calls: int
    compute: float
    exposed: float
    beside: float = 0.0
    ends: float = 0.0

    @property
    def dma(self) -> float:
        return self.exposed + self.beside

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
    """Cycles of one call, without those of calling."""
    lengths = {a: (turn[a][1] - turn[a][0]) if a in turn else n for a, n in layer.nest.extents.items()}
    if layer.compute.rows is None:
        return float(layer.compute.cycles(lengths))
    axis, tap = layer.compute.rows
    rows = layer.taps(turn.get(axis, (0, layer.nest.extents[axis])))
    return sum(float(layer.compute.cycles({**lengths, axis: n, tap: taps})) for taps, n in rows.items())


def cost(layer: TiledLayer, mapped: Mapped) -> MappingCost:
    """Count a mapping call by call and copy by copy."""
    found, exposed, beside, ends = [], 0.0, 0.0, 0.0
    for move, operand in zip(mapped.moves, layer.operands, strict=True):
        if operand.held:
            found.append(OperandCost(operand.name, 0, 1, 0, 0, 0, 0, 0.0))
            continue
        sizes, cycles, pieces, tile = [], list[float](), 0, 0
        for region in fetches(layer, mapped, move, operand):
            size = region_bytes(operand, region)
            if operand.packed:
                runs = starts = parts_of(operand.channel, size)
            else:
                runs = pieces_of(region, operand.sizes)
                starts = starts_of(region, operand.sizes, operand.channel.dimensions)
            sizes.append(size)
            cycles.append(copy_cycles(operand.channel, starts, size, runs))
            pieces, tile = pieces + runs, max(tile, size)
        total = sum(cycles)
        found.append(OperandCost(operand.name, move.depth, move.buffers, tile, len(sizes), sum(sizes), pieces, total))
        if move.buffers == 2:
            beside, ends = beside + total, ends + total / len(cycles)
        else:
            exposed += total
    turns = list(mapped.turns(layer))
    compute = sum(compute_cycles(layer, turn) for turn in turns) + layer.compute.call * len(turns)
    return MappingCost(tuple(found), len(turns), compute, exposed, beside, ends)


def used(layer: TiledLayer, found: MappingCost) -> dict[str, int]:
    """Bytes that the buffers take in each space."""
    bytes_: dict[str, int] = {}
    for operand, moved in zip(layer.operands, found.operands, strict=True):
        bytes_[operand.space] = bytes_.get(operand.space, 0) + moved.buffers * aligned(moved.tile_bytes)
    return bytes_


def aligned(size: int) -> int:
    return -(-size // 4) * 4
