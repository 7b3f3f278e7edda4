"""TRANSPOSE, Transpose: out[i_p0, i_p1, ...] = in[i_0, i_1, ...]."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import numpy as np

from ..ir import ITEM_BYTES, Array, Graph, Op
from ..ir.axes import Nest, Same
from . import loops
from .base import C_TYPES, SAME, Constant, Form, Kernel, Spec


def nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    out = tuple(names[p] for p in op.attrs["perm"])
    return Nest(dict(zip(names, x.shape, strict=True)), out, (tuple(Same(name) for name in names),))


def reference(op: Op, graph: Graph, x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(op.attrs["perm"]))


def valid_permutation(op: Op, graph: Graph) -> str | None:
    """The permutation names every dimension once."""
    rank = len(graph.operands(op)[0].shape)
    return (
        None
        if sorted(op.attrs["perm"]) == list(range(rank))
        else f"permutation {op.attrs['perm']} of {rank} dimensions"
    )


MOST_CYCLES = 256  # of a transposition in place: their starts stand in a table
WRITTEN_OUT = 4  # turns of an inner loop: as many statements, for gcc 12 leaves some such loops as they are
MOST_ELEMENTS = 1 << 20  # which a search for the starts looks at


def swapped(shape: tuple[int, ...], perm: tuple[int, ...]) -> tuple[int, int, int] | None:
    """Rows, columns and elements of a matrix of blocks of which the permutation is the transposition, if it is one."""
    moved = [d for d in perm if shape[d] > 1]
    while moved and moved[-1] == max(moved):
        moved.pop()
    inner = prod(shape) // prod(shape[d] for d in moved)
    at = next((i for i in range(1, len(moved)) if moved[i] < moved[i - 1]), 0)
    if not moved or moved[at:] + moved[:at] != sorted(moved):
        return None
    return prod(shape[d] for d in moved[at:]), prod(shape[d] for d in moved[:at]), inner


@cache
def cycle_starts(rows: int, columns: int) -> tuple[int, ...] | None:
    """One place of every cycle of a matrix transposed in place: place i of the result is taken from i * columns modulo
    (rows * columns - 1). None: there are too many. (Cate and Twigg, "Analysis of In-Situ Transposition", 1977.)
    """
    last = rows * columns - 1
    seen, starts = bytearray(last + 1), list[int]()
    for start in range(1, last):
        if seen[start]:
            continue
        at, length = start, 0
        while not seen[at]:
            seen[at] = 1
            at, length = at * columns % last, length + 1
        starts += [start] if length > 1 else []
        if len(starts) > MOST_CYCLES:
            return None
    return tuple(starts)


def over_itself(op: Op, graph: Graph, divides: bool = True) -> Kernel | None:
    """The transposition of a matrix where it stands, along its cycles; None where that is not what the op is.

    Not `divides`: remainders by differences, for cores on which quotients of constants are no products.
    """
    (x,) = graph.operands(op)
    found = swapped(x.shape, op.attrs["perm"])
    if found is None or found[2] != 1 or x.elements > MOST_ELEMENTS:
        return None
    rows, columns, _ = found
    starts = cycle_starts(rows, columns)
    if not starts:
        return None
    folds, last = (min(rows, columns) - 1).bit_length(), x.elements - 1
    shape: dict[str, Any] = {"rows": rows, "columns": columns, "cycles": len(starts), "type": C_TYPES[x.dtype]}
    shape["forth"] = not divides and rows <= columns
    shape["folds"] = () if divides else tuple(last << n for n in reversed(range(folds)))
    return Kernel(
        "transpose_in_place.c.j2", f"transpose_{'x'.join(map(str, x.shape))}_in_place", shape,
        (Constant("starts", np.array(starts, np.int32), "a place of every cycle"),),
        variant="in place", estimate=(12.0 if divides else 8.0 + 3 * folds) * x.elements, in_place=SAME,
    )  # fmt: skip


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    steps = loops.steps(x.shape)
    turn = [d for d in range(len(x.shape)) if d != 1] if form.rolled else list(range(len(x.shape)))
    turned = [op.attrs["perm"][d] for d in turn]
    shape: dict[str, Any] = {"rolled": form.rolled, "row_step": steps[op.attrs["perm"][1]] if form.rolled else 0}
    ring = form.rings[0] if form.rings else 0  # of an operand whose rows are those of the result
    shape["at"] = f"(row % {ring})" if ring else "row"
    turns = loops.turning([x.shape[d] for d in turned], [steps[d] for d in turned])
    offsets: tuple[int, ...] = (0,)
    inner, count = turns[-1][0] if turns else 1, prod(x.shape[d] for d in turned)
    cost = 5.0 * count + 8 * count / inner  # `./sconsw bench-kernels` shows the error of the estimate
    if turns and inner <= WRITTEN_OUT:
        *outer, (_, step) = turns
        turns, offsets, cost = tuple(outer), tuple(range(0, inner * step, step)), 3.0 * count
    shape |= {"loops": turns, "offsets": offsets}
    shape |= {"item": ITEM_BYTES[x.dtype], "dtype": x.dtype}
    return Kernel("transpose.c.j2", f"transpose_{'x'.join(map(str, x.shape))}", shape, estimate=cost)


SPEC = Spec(
    kind="transpose",
    nest=nest,
    reference=reference,
    kernel=kernel,
    rows=lambda op, graph: "each" if len(op.attrs["perm"]) > 1 else "",
    exact=True,
    limits=(valid_permutation,),
)
