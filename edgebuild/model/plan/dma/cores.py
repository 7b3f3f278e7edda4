"""A tile shared by cores: each computes a part of it, on operands that all of them see.

A part takes its operands as pointers, so it must find them contiguous. Tiles are cut along the axis that leaves the
least to the busiest core, into even parts. Where that makes fewer parts than there are cores, parts are cut again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.axes import Same, Window
from ..hierarchy.nest import Operand, Range, Ranges, TiledLayer
from ..tiling.paths import even

HANDOVER = 100  # cycles to wake cores and to wait for them; an estimate, for nothing here can measure it
MOST = 16  # cores: EB_CORES_MOST of hal/include/eb_dma.h

Parts = tuple[Mapping[str, Range], ...]


def shared(layer: TiledLayer, turn: Mapping[str, Range], buffers: Sequence[Ranges], cores: int) -> Parts:
    """The parts of a turn, at most `cores`; `buffers`: what each operand's buffer holds in this turn."""
    whole = {**turn, **{a: (0, layer.nest.extents[a]) for a in layer.core_axes if a not in turn}}
    parts: Parts = (whole,)
    for _ in layer.core_axes:
        each = cores // len(parts)
        if each < 2:
            break
        options = [_cut(layer, parts, axis, each, buffers) for axis in layer.core_axes]
        better = max(options, key=len, default=parts)
        if len(better) <= len(parts):
            break
        parts = better
    return parts if len(parts) > 1 else (turn,)  # an axis that is not cut needs all of an operand, unread ends as well


def _cut(layer: TiledLayer, parts: Parts, axis: str, count: int, buffers: Sequence[Ranges]) -> Parts:
    found = list[Mapping[str, Range]]()
    for part in parts:
        first, past = part[axis]
        cuts = [{**part, axis: (first + a, first + b)} for a, b in even(past - first, min(count, past - first))]
        sound = all(_contiguous(layer, cut, buffers) for cut in cuts)
        found += cuts if sound else [part]
    return tuple(found)


def _contiguous(layer: TiledLayer, part: Mapping[str, Range], buffers: Sequence[Ranges]) -> bool:
    """Whether a part finds all of its operands in one piece each, and none of them empty."""
    for operand, held in zip(layer.operands, buffers, strict=True):
        merged = True
        for (first, past), (begin, end) in zip(reversed(layer.region(operand, part)), reversed(held), strict=True):
            if past <= first or (not merged and past - first > 1 and not operand.packed):
                return False
            merged = merged and (first, past) == (begin, end)
    return True


def busiest(layer: TiledLayer, cores: int) -> Callable[[Mapping[str, Any]], Any]:
    """The part of a tile's work that the busiest core has, by the lengths of the tile's axes (numbers or arrays).

    For the search, which knows no buffers: of the ways along one axis the best.
    """

    def share(lengths: Mapping[str, Any]) -> Any:
        least: Any = 1.0
        for axis in layer.core_axes if cores > 1 else ():
            n = lengths[axis]
            cut = 1.0
            for operand in layer.operands:
                cut = cut * (operand.packed or _outermost(layer, operand, axis, lengths))
            part = -(-n // cores) / n
            least = np.minimum(least, part * cut + (1 - cut))
        return least

    return share


def _outermost(layer: TiledLayer, operand: Operand, axis: str, lengths: Mapping[str, Any]) -> Any:
    """1.0 where all dimensions around an axis have one index, so that a cut leaves pieces contiguous; else 0.0."""
    found: Any = 1.0
    if axis not in operand.axes:
        return found
    for dim, size in zip(operand.dims, operand.sizes, strict=True):
        if dim.axis == axis:
            return found
        if isinstance(dim, Same):
            found = found * (lengths[dim.axis] == 1)
        elif isinstance(dim, Window):
            found = found * ((lengths[dim.axis] == 1) * (layer.nest.extents[dim.tap] == 1))
        else:
            found = found * (size == 1)
    return found
