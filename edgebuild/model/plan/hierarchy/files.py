"""Layers from a YAML file: `layers: [{name, K, C, FY, FX, OY, OX, pad_y, pad_x, stride, groups}]`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ....base.dataclass import dataclass
from ....base.facts import read_facts
from ...ir.axes import Dim, Nest, Same, Window
from .nest import Channel, Compute, Operand, TiledLayer

LARGEST = 16384  # extent of an axis: tiles are searched by their sizes, in time and memory that grow with it


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
            if not 1 <= getattr(self, letter) <= LARGEST:
                text = f"layer '{self.name}': {letter} is {getattr(self, letter)}, must be from 1 to {LARGEST}"
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
    """Content of the file."""

    layers: tuple[ShapeRow, ...]


@dataclass(frozen=True)
class Hardware:
    """Hardware that layers are mapped to: the space of each operand, the ways there, and the time of a tile.

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
    """Raises EdgebuildError with file and line."""
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
