"""Elementwise ops by tables and transpositions in place, in plain C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ...ir import ITEM_BYTES, Array
from ...ops import SPECS, fixedpoint, moves, normalization, pointwise, spatial
from ...ops.base import C_TYPES, SAME, Constant, Kernel, scale_of
from ...ops.fixedpoint import INT8
from ...ops.functions import quantised_instructions
from ..row import KernelLayer

# Transpositions of a matrix in place: element by element along its cycles, or by blocks that move as a whole.

WRITTEN_OUT = 8  # most elements of a pixel that are written out as statements
MAX_SCRATCH = 512  # bytes of a piece, which is transposed through a copy


def matrix(layer: KernelLayer) -> tuple[int, int] | None:
    """Rows and columns, if the op is the transposition of a matrix of elements."""
    (x,) = layer.graph.operands(layer.op)
    sizes = moves.swapped(x.shape, layer.op.attrs["perm"])
    return None if layer.form.rolled or sizes is None or sizes[2] != 1 else sizes[:2]


def along_cycles(layer: KernelLayer) -> Kernel | None:
    """Transpose in place, without divisions on cores where these are calls of the compiler's library."""
    if not layer.form.in_place:
        return None
    return moves.in_place_transpose(layer.op, layer.graph, divides="armv6-m" not in layer.form.core)


def in_blocks(layer: KernelLayer) -> Kernel | None:
    """Transpose in place: the long side of a matrix is cut into blocks, which move along cycles as a whole.

    A piece is one block of every line; it is transposed through a copy. Long lines are cut before their pieces are
    transposed, short lines after.
    """
    sizes = matrix(layer) if layer.form.in_place else None
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
    """The most elements of a block that divides a long line and whose piece fits in the scratch; None: none does."""
    fits = (n for n in range(min(long // 2, MAX_SCRATCH // (short * item)), 3, -1) if long % n == 0)
    return next((n for n in fits if moves.cycle_starts(short, long // n)), None)


def copies(shape: Mapping[str, Any], call: float, byte: float) -> float:
    """Instructions of all copies: `call` for each copy, and `byte` for each of its bytes."""
    blocks, pieces = shape["short"] * shape["blocks"] + shape["cycles"], shape["blocks"]
    bytes_ = shape["block"] * shape["item"]
    return blocks * (call + byte * bytes_) + pieces * (call + byte * shape["short"] * bytes_)


# Tables in place of arithmetic, and arithmetic in place of tables: plans choose by instructions and bytes of flash.

MIN_ELEMENTS = 256  # elements that are worth a table of 256 bytes
# Instructions of a 64-bit product, and of one by the compiler's library on Armv6-M; of an exponential; its products.
PRODUCT, CALLED, EXPONENTIAL, PRODUCTS = 6, 45, 60, 9
RESCALED_BY_CALLS = 6.1  # times the instructions of a clamp or requantize, if long products are library calls


BY_VALUE_PACE = 1.35  # `Kernel.pace` of `by_value` on XpulpV2: loads, and high words of products


def own(layer: KernelLayer) -> Kernel | None:
    """The op's own kernel, as an alternative to those of other rows."""
    k, calls = layer.plain, "armv6-m" in layer.form.core and layer.plain.variant == "linear"
    return replace(k, estimate=k.estimate * (RESCALED_BY_CALLS if calls else 1)) if k.estimate else None


def exponentials(layer: KernelLayer) -> Kernel | None:
    """A quantised softmax whose exponentials are computed, twice for each element."""
    k, (x,) = layer.plain, layer.graph.operands(layer.op)
    if x.dtype != "int8" or layer.graph.result(layer.op).dtype != "int8":
        return None
    m = normalization.distance_factor(layer.op.attrs["beta"] * scale_of(x))
    each = EXPONENTIAL + PRODUCTS * (CALLED if "armv6-m" in layer.form.core else PRODUCT)
    return replace(
        k, shape={**k.shape, "computed": True}, constants=(), variant="computed exponentials",
        scalars={**k.scalars, "exp_factor": m.mantissa, "exp_shift": m.shift},
        estimate=k.estimate + 2 * each * x.elements,
    )  # fmt: skip


def softmax_by_value(layer: KernelLayer) -> Kernel | None:
    """A quantised softmax that counts the elements of each value, and computes the result of each value once."""
    k, (x,) = layer.plain, layer.graph.operands(layer.op)
    if x.dtype != "int8" or x.shape[-1] >= 1 << 16:
        return None
    core, rows, row = layer.form.core, int(str(k.shape["N"])), x.shape[-1]
    once = layer.graph.arithmetic.rounds_once
    values = 256 * (1 - (255 / 256) ** row)  # different ones of random elements
    by_element, by_row, by_value = (
        quantised_instructions(name, x.dtype, core, once)
        for name in ("softmax by value", "values of softmax", "softmax")
    )
    return replace(
        k, shape={**k.shape, "by_value": True}, scratch=2 * 256, variant="by value",
        estimate=rows * (by_row + by_value * values + by_element * row), pace=BY_VALUE_PACE if k.pace > 1 else 1.0,
    )  # fmt: skip


def rescaled(layer: KernelLayer) -> Kernel | None:
    """A clamp or requantize of many elements by a table of results."""
    k, op, graph = layer.plain, layer.op, layer.graph
    count = int(str(k.shape["N"]))
    if count < MIN_ELEMENTS or (graph.operands(op)[0].dtype, graph.result(op).dtype) != ("int8", "int8"):
        return None
    table = Constant("table", SPECS[op.kind].reference(op, graph, INT8), "results of -128 to 127")
    shape: dict[str, Any] = {"expression": "table[x[i] + 128]", "N": count, "loops": ()}
    return replace(
        k, template="elementwise.c:pointwise", shape=shape, constants=(table,), scalars={}, variant="table",
        estimate=20.0 + 5.0 * count,
    )  # fmt: skip


# Sigmoid and tanh of int16 as lines: TFLM's results without its index, sign and rounding of each element.
#
# TFLM takes the argument a = round(x * multiplier / 2^shift), looks up two values of a table and rounds the
# interpolation. For all a of one part, 2^B arguments wide, this is the upper half of start + slope * a in 32 bits:
# signs, rounding and the origin of the part are in `start`. The lines are used only if they are exact for every int16.

INT16 = (-(2**15), 2**15 - 1)
BITS = {"sigmoid": (9, 6), "tanh": (8, 8)}  # log2 of a part's width; left shift of the unrounded result


def linear_pieces(template: str, variant: str, cost: float, rounding: float) -> Callable[[KernelLayer], Kernel | None]:
    """`Row.make` of kernels for curves without broadcasting.

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

    The outermost parts then serve every a beyond them: clamping a and clamping its part are equivalent.
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
