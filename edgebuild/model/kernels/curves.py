"""Sigmoid and tanh of int16 as lines: TFLM's results without its index, sign and rounding of each element.

TFLM takes the argument a = round(x * multiplier / 2^shift), looks two values of a table up and rounds what lies between
them. For all a of one part, 2^B arguments wide, this is the upper half of start + slope * a in 32 bits: signs, rounding
and the origin of the part are in `start`. The lines are kept only if they are right for every int16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from ..ir import Array
from ..ops import fixedpoint, pointwise, spatial
from ..ops.base import Constant, Kernel, scale_of
from .row import KernelLayer

INT16 = (-(2**15), 2**15 - 1)
BITS = {"sigmoid": (9, 6), "tanh": (8, 8)}  # of a part's width; by which the unrounded result is shifted up


def linear_pieces(template: str, variant: str, cost: float, rounding: float) -> Callable[[KernelLayer], Kernel | None]:
    """The maker of a kernel for curves without broadcasting.

    `cost`: instructions an element, and `rounding` more where the argument is shifted.
    """

    def make(layer: KernelLayer) -> Kernel | None:
        op, graph = layer.op, layer.graph
        y, function = graph.result(op), op.attrs["function"]
        if y.dtype != "int16" or function not in BITS or not graph.arithmetic.fixed_point or layer.plain.shape["loops"]:
            return None
        if spatial.bounds(op, y) != INT16:  # another activation follows
            return None
        multiplier, shift = fixedpoint.sigmoid_scaling(scale_of(graph.operands(op)[0]), pointwise.CURVES[function][1])
        pieces = _lines(function, multiplier, shift)
        if pieces is None:
            return None
        first, table, clamped = pieces
        shape = {
            "N": layer.plain.shape["N"], "bits": str(BITS[function][0]), "shift": str(shift), "clamped": clamped,
            "zero": -first, "parts": len(table[0]),  # text: assembly has no parameters, so no two layers share it
        }  # fmt: skip
        lines = Constant("lines", table.ravel(), f"{function}: where the lines start, and their slopes")
        scalars: dict[str, int | float] = {"x_mul": multiplier, "half": (1 << shift) >> 1}
        estimate = 60.0 + (cost + (rounding if shift else 0)) * int(str(shape["N"]))
        return replace(
            layer.plain, template=template, shape=shape, constants=(lines,), scalars=scalars, variant=variant,
            estimate=estimate,
        )  # fmt: skip

    return make


@cache
def _lines(function: str, multiplier: int, shift: int) -> tuple[int, Array, bool] | None:
    """The first part that an int16 reaches, starts and slopes of all (2 x parts, int32), and whether a is clamped.

    The outermost parts then serve every a beyond them: it does not matter whether a is clamped or its part.
    """
    bits, up = BITS[function]
    most = 1 << (bits + 8)
    full = fixedpoint.sigmoid_argument(np.arange(-(2**15), 2**15), multiplier, shift)
    a = np.unique(np.concatenate([full, np.clip(full, -most, most - 1)]))
    exact, parts = pointwise.CURVES[function][0](a), np.clip(a >> bits, -256, 255)
    first, last = int(parts[0]), int(parts[-1])
    table = np.array([_line(part, bits, up) for part in range(first, last + 1)], np.int64).T
    read = _upper(table, a, parts - first)
    for part in np.unique(parts[read != exact]):
        values = exact[parts == part]
        if (values != values[0]).any():
            return None
        table[:, part - first] = int(values[0]) << 16, 0
    if (_upper(table, a, parts - first) != exact).any():
        return None
    return first, table.astype(np.uint32).astype(np.int32), bool(full[0] < -most or full[-1] >= most)


def _line(part: int, bits: int, up: int) -> tuple[int, int]:
    """Start and slope between two values of the table; results of negative arguments are mirrored."""
    values, low = fixedpoint.SIGMOID, min(part if part >= 0 else -part - 1, 254)
    slope = int(values[low + 1] - values[low])
    half, middle = 1 << (15 - up), (1 << (16 + bits)) >> 1
    at = int(values[min(abs(part), 255)]) << bits
    # in Q0.16 shifted by `bits`: of sigmoid the value itself, of tanh twice its distance from 1/2
    value = at + half if part >= 0 else 2 * middle - at + half - 1
    value -= middle if bits == 8 else 0
    return ((value - slope * (part << bits)) << up) % 2**32, (slope << up) % 2**32


def _upper(table: Array, a: Array, line: Array) -> Array:
    start, slope = table[:, line]
    return np.asarray(((start + slope * a) % 2**32).astype(np.uint32).astype(np.int32) >> 16)
