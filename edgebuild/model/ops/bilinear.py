"""RESIZE_BILINEAR of int8 and int16: rows and columns at once, places and weights in steps of 1/1024.

kernels/internal/reference/resize_bilinear.h (ResizeBilinearInteger); TFLM calls it for int8 alone. `rows` and `columns`
are tables of (before, after, weight of after).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Same, Whole
from .base import Constant, Form, Kernel, Spec

ONE = 1 << 10
INTEGERS = ("int8", "int16")


Table = tuple[tuple[int, int, int], ...]


def table(n: int, m: int, corners: bool, half: bool) -> Table:
    """Of n elements for m places: neighbours, and the weight of the later one."""
    step = (ONE * (n - 1) + (m - 1) // 2) // (m - 1) if corners and m > 1 else (ONE * n + m // 2) // m
    found = []
    for i in range(m):
        at = i * step + (step // 2 - ONE // 2 if half else 0)
        before = max(int(at / ONE), 0)
        found.append(
            (
                before,
                min(-(-at // ONE) if at > 0 else int((at + ONE - 1) / ONE), n - 1),
                at - ONE * before,
            )
        )
    return tuple(found)


def nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    extents = {"n": x.shape[0], "h": len(op.attrs["rows"]), "w": len(op.attrs["columns"]), "c": x.shape[3]}
    return Nest(extents, ("n", "h", "w", "c"), ((Same("n"), Whole(x.shape[1]), Whole(x.shape[2]), Same("c")),))


def reference(op: Op, graph: Graph, x: Array) -> Array:
    (top, bottom, down), (left, right, across) = (np.array(op.attrs[name]).T for name in ("rows", "columns"))
    wide, (down, across) = x.astype(np.int64), (down[:, None, None], across[:, None])
    rows = [wide[:, at] for at in (top, bottom)]
    parts = [r[:, :, left] * (ONE - across) + r[:, :, right] * across for r in rows]
    total = parts[0] * (ONE - down) + parts[1] * down
    return np.trunc((total + np.where(total > 0, 1 << 19, -(1 << 19))) / (1 << 20)).astype(x.dtype)


def alike(op: Op, graph: Graph) -> str | None:
    """Images are N x H x W x C in int8 or int16; the result has the input's scale."""
    x, y = graph.operands(op)[0], graph.result(op)
    bad = x.dtype not in INTEGERS or len(x.shape) != 4 or x.quant != y.quant
    return f"{x.dtype} of shape {x.shape}, {x.quant} to {y.quant}" if bad else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), y = graph.operands(op), graph.result(op)
    shape: dict[str, Any] = {"wide": x.dtype == "int16"}
    shape |= dict(zip(("N", "H", "W", "C", "OH", "OW"), (*x.shape, *y.shape[1:3]), strict=True))
    rows, columns = (np.array(op.attrs[name], np.int16).ravel() for name in ("rows", "columns"))
    constants = (
        Constant("rows", rows, "before, after, weight of after"),
        Constant("columns", columns, "before, after, weight of after"),
    )
    stem = f"bilinear_{y.shape[1]}x{y.shape[2]}"
    return Kernel("bilinear.c.j2", stem, shape, constants, estimate=20.0 * y.elements)


SPEC = Spec(kind="bilinear", nest=nest, reference=reference, kernel=kernel, integers=INTEGERS, limits=(alike,))
