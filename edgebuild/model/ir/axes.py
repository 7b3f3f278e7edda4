"""The index relation of an op, and what follows from it for every op alike.

An op is a loop nest over named axes. Its relation says, for each dimension of each operand, which
axes index it. All else is derived here once: shapes, multiply-accumulates, the input range that an output range needs,
whether the result may overwrite an operand, and the ways to cut the op. So no pass has to know an operator by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar


@dataclass(frozen=True)
class Same:
    """Indexed by one axis, unchanged."""

    axis: str


@dataclass(frozen=True)
class Window:
    """Indexed by stride * axis + dilation * tap - pad; indices outside of [0, size) read padding."""

    axis: str
    tap: str
    stride: int
    dilation: int
    pad: int
    size: int


@dataclass(frozen=True)
class Spread:
    """Indexed by (axis + pad - dilation * tap) / stride where that is whole and in [0, size); else not read."""

    axis: str
    tap: str
    stride: int
    dilation: int
    pad: int
    size: int


@dataclass(frozen=True)
class Offset:
    """Indexed by axis - start where that lies in [0, size); elsewhere this operand is not read."""

    axis: str
    start: int
    size: int


@dataclass(frozen=True)
class Grouped:
    """Indexed by axis // group: neighbouring output indices share one."""

    axis: str
    group: int


@dataclass(frozen=True)
class Fixed:
    """Always index 0: a dimension that is broadcast. No axis indexes it."""

    axis: ClassVar[str] = ""


@dataclass(frozen=True)
class Whole:
    """Any output element may need all `size` indices."""

    size: int
    axis: ClassVar[str] = ""


Dim = Same | Window | Spread | Offset | Grouped | Fixed | Whole


@dataclass(frozen=True)
class Nest:
    """`extents` of all axes, the axes of the output's dimensions, and a relation per operand.

    `macs` says whether one step of the innermost loop is a multiply-accumulate. `inside`: multiply-accumulates of an op
    that has loops of its own within a step.
    """

    extents: Mapping[str, int]
    out: tuple[str, ...]
    operands: tuple[tuple[Dim, ...], ...]
    macs: bool = False
    inside: int = 0

    @property
    def out_shape(self) -> tuple[int, ...]:
        return tuple(self.extents[axis] for axis in self.out)

    @property
    def mac_count(self) -> int:
        """Multiply-accumulates. Inputs that are spread over the output meet every tap once."""
        extents = {**self.extents, **{d.axis: d.size for dims in self.operands for d in dims if isinstance(d, Spread)}}
        return prod(extents.values()) if self.macs else self.inside


def same(*axes: str) -> tuple[Dim, ...]:
    """The dimensions of an operand that these axes index, each unchanged."""
    return tuple(map(Same, axes))


def numbered(shape: Sequence[int]) -> dict[str, int]:
    """Extents of an axis for each dimension: i0, i1, ..."""
    return {f"i{d}": n for d, n in enumerate(shape)}


def lines(shape: Sequence[int], axis: int, extent: int | None = None) -> Nest:
    """Results along a dimension of the operand, `extent` or as many as there are elements: each needs all of them."""
    extents = numbered(shape)
    names, dims = tuple(extents), list(same(*extents))
    dims[axis] = Whole(shape[axis])
    extents[names[axis]] = shape[axis] if extent is None else extent
    return Nest(extents, names, (tuple(dims),))


def input_range(nest: Nest, operand: int, dim: int, start: int, stop: int) -> tuple[int, int]:
    """Half-open range of an operand's dimension that output indices [start, stop) need.

    The range refers to the output axis that indexes the dimension and is clipped to the operand,
    so padding is never part of it. A dimension that no output axis indexes is needed whole.
    """
    return range_through(nest, nest.operands[operand][dim], start, stop)


def range_through(nest: Nest, relation: Dim, start: int, stop: int) -> tuple[int, int]:
    """`input_range` of a dimension with this relation to the output's axes."""
    match relation:
        case Same(axis):
            return (start, stop) if axis in nest.out else (0, nest.extents[axis])
        case Window(_, tap, stride, dilation, pad, size):
            first = start * stride - pad
            last = (stop - 1) * stride + (nest.extents[tap] - 1) * dilation - pad
            return max(0, first), max(0, min(size, last + 1))
        case Spread(_, tap, stride, dilation, pad, size):
            first = -(-(start + pad - (nest.extents[tap] - 1) * dilation) // stride)
            low = max(0, min(size, first))
            return low, max(low, min(size, (stop - 1 + pad) // stride + 1))
        case Offset(_, begin, size):
            return max(0, min(size, start - begin)), max(0, min(size, stop - begin))
        case Grouped(_, group):
            return start // group, (stop - 1) // group + 1
        case Fixed():
            return 0, 1
        case Whole(size):
            return 0, size


def separable(nest: Nest, axis: str) -> bool:
    """Whether the relations tell what a part along `axis` needs.

    They do not where an operand is read whole and the axis is none of the first operand's: it may choose what is read,
    as an output channel chooses its group of input channels.
    """
    whole = any(isinstance(d, Whole) for dims in nest.operands for d in dims)
    return not whole or any(d.axis == axis for d in nest.operands[0])


def elementwise(nest: Nest, operand: int) -> bool:
    """Output element i depends on no element of the operand but i: the result may overwrite it."""
    return nest.operands[operand] == tuple(Same(axis) for axis in nest.out)
