"""Transpositions of a matrix where it stands: element by element along its cycles, or by blocks that move whole."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from ...ir import ITEM_BYTES
from ...ops import moves
from ...ops.base import C_TYPES, SAME, Constant, Kernel
from ..row import KernelLayer

WRITTEN_OUT = 8  # elements of a pixel: as many statements
MOST_SCRATCH = 512  # bytes of a piece, which is copied before it is transposed


def matrix(layer: KernelLayer) -> tuple[int, int] | None:
    """Rows and columns, if the op is the transposition of a matrix of elements."""
    (x,) = layer.graph.operands(layer.op)
    sizes = moves.swapped(x.shape, layer.op.attrs["perm"])
    return None if layer.form.rolled or sizes is None or sizes[2] != 1 else sizes[:2]


def along_cycles(layer: KernelLayer) -> Kernel | None:
    """Without divisions on cores where they are calls of the compiler's library."""
    if not layer.form.over:
        return None
    return moves.over_itself(layer.op, layer.graph, divides="armv6-m" not in layer.form.core)


def in_blocks(layer: KernelLayer) -> Kernel | None:
    """The long side of a matrix is cut into blocks, which move along cycles as a whole.

    A piece is as many elements of every line as a block has; it is transposed through a copy. Long lines are cut first
    and pieces transposed then; short lines go the other way.
    """
    sizes = matrix(layer) if layer.form.over else None
    if sizes is None:
        return None
    (x,), (short, long), planes = layer.graph.operands(layer.op), sorted(sizes), sizes[0] <= sizes[1]
    item = ITEM_BYTES[x.dtype]
    block = _block(short, long, item)
    if block is None:
        return None
    blocks = long // block
    rows, columns = (short, blocks) if planes else (blocks, short)
    starts = moves.cycle_starts(rows, columns) or ()
    shape: dict[str, Any] = {
        "type": C_TYPES[x.dtype], "item": item, "planes": planes, "short": short, "block": block, "blocks": blocks,
        "rows": rows, "columns": columns, "cycles": len(starts), "written_out": short <= WRITTEN_OUT,
        "spread": False, "copy": "memcpy",
    }  # fmt: skip
    cost = copies(shape, 40, 0.85) + (2.5 if shape["written_out"] else 5.0) * x.elements
    return Kernel(
        "blocks/transposed.c.j2", f"transpose_{'x'.join(map(str, x.shape))}_in_place", shape,
        (Constant("starts", np.array(starts, np.int32), "a block of every cycle"),),
        scratch=short * block * item, variant="in place by blocks", estimate=cost, in_place=SAME,
    )  # fmt: skip


@cache
def _block(short: int, long: int, item: int) -> int | None:
    """The most elements that are a part of a long line, and whose piece is small; None: there are no blocks."""
    fits = (n for n in range(min(long // 2, MOST_SCRATCH // (short * item)), 3, -1) if long % n == 0)
    return next((n for n in fits if moves.cycle_starts(short, long // n)), None)


def copies(shape: Mapping[str, Any], call: float, byte: float) -> float:
    """Instructions of all copies, if each takes so many for itself and for each of its bytes."""
    blocks, pieces = shape["short"] * shape["blocks"] + shape["cycles"], shape["blocks"]
    bytes_ = shape["block"] * shape["item"]
    return blocks * (call + byte * bytes_) + pieces * (call + byte * shape["short"] * bytes_)
