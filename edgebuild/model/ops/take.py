"""Values at other places: out[i0, i1, ...] = in[m0[i0], m1[i1], ...], with a table of indices for each dimension.

Slices with steps, splits, tiles, expansions, reversals, gathers by constant indices, borders that repeat or mirror and
resizing to the nearest are all this. Attributes: `index`, for each dimension a tuple in which -1 is `value`, or None if
it stays as it is.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...base.dataclass import dataclass
from ...base.templates import at_row, plus, times
from ..ir import ITEM_BYTES, Array, Graph, Op
from ..ir.axes import Dim, Grouped, Nest, Offset, Same, Whole, Window
from . import loops
from .base import Constant, Form, Kernel, Ranges, Spec, zero_of

Index = tuple[int, ...]
OUTSIDE = -1


def nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    names, tables = tuple(f"i{d}" for d in range(len(x.shape))), op.attrs["index"]
    sizes = (n if index is None else len(index) for n, index in zip(x.shape, tables, strict=True))
    moves = [_relation(*all_of) for all_of in zip(names, tables, x.shape, strict=True)]
    if tables and tables[-1] is not None:
        moves[-1] = Whole(x.shape[-1])  # the table counts channels: none of them may be left out
    extents = {**dict(zip(names, sizes, strict=True)), **{f"t{name}": 1 for name in names}}
    return Nest(extents, names, (tuple(moves),))


def _relation(name: str, index: Index | None, size: int) -> Dim:
    """The most that is known of one dimension."""
    if index is None:
        return Same(name)
    inside = [i for i in index if i != OUTSIDE]
    before = next((n for n, i in enumerate(index) if i != OUTSIDE), 0)
    first = inside[0] if inside else 0
    if len(inside) < len(index) or index == tuple(range(first, first + len(index))):
        whole = index == (OUTSIDE,) * before + tuple(range(first, first + len(inside))) + (OUTSIDE,) * (
            len(index) - before - len(inside)
        )
        return Offset(name, before - first, size) if whole and inside else Whole(size)
    step = index[1] - index[0] if len(index) > 1 else 1
    if step > 0 and index == tuple(range(first, first + len(index) * step, step)):
        return Window(name, f"t{name}", step, 1, -first, size)
    group = len(index) // size
    if group > 1 and index == tuple(i // group for i in range(len(index))) and len(index) == size * group:
        return Grouped(name, group)
    return Whole(size)


def reference(op: Op, graph: Graph, x: Array) -> Array:
    y, inside = x, np.ones((), bool)
    for d, index in enumerate(op.attrs["index"]):
        if index is None:
            continue
        at = np.array(index, np.int64)
        y = y.take(np.maximum(at, 0), axis=d)
        inside = inside & (at >= 0).reshape([-1 if e == d else 1 for e in range(len(op.attrs["index"]))])
    return np.where(inside, y, fill(op, graph)).astype(x.dtype) if not inside.all() else y


def fill(op: Op, graph: Graph) -> int | float:
    """The value outside: real zero if nothing else is said."""
    value = op.attrs.get("value")
    return zero_of(graph.operands(op)[0]) if value is None else value


def part(op: Op, graph: Graph, out: Ranges, x: Ranges) -> dict[str, Any]:
    """The rows of the tables for a part of the result, counted from the part of the operand."""
    cut = [
        None if index is None else tuple(i if i == OUTSIDE else i - low for i in index[first:past])
        for index, (first, past), (low, _) in zip(op.attrs["index"], out, x, strict=True)
    ]
    return {**op.attrs, "index": tuple(cut)}


def inside(op: Op, graph: Graph) -> str | None:
    """Every index lies in its dimension."""
    (x,) = graph.operands(op)
    for d, (index, n) in enumerate(zip(op.attrs["index"], x.shape, strict=True)):
        if bad := [i for i in index or () if not OUTSIDE <= i < n]:
            return f"index {bad[0]} of dimension {d}, which has {n}"
    return None


def rows(op: Op, graph: Graph) -> str:
    return "each" if len(op.attrs["index"]) > 1 and not graph.operands(op)[0].constant else ""


def _progression(index: Index) -> tuple[int, int] | None:
    """First index and step, if it is one without places outside."""
    first, step = index[0], index[1] - index[0] if len(index) > 1 else 0
    straight = all(i == first + n * step for n, i in enumerate(index)) and min(index) >= 0
    return (first, step) if straight else None


@dataclass(frozen=True)
class _Axis:
    """A dimension in C: the variable that runs over it, what it adds to the place in the operand as text and as a
    number, when it is outside, its table."""

    variable: str
    extent: int
    term: str
    fixed: int = 0
    outside: str = ""
    table: Constant | None = None


def _axis(d: int, variable: str, index: Index, step: int, form: Form) -> _Axis:
    rolled, line = form.rolled and d == 1, _progression(index)
    if line is not None:
        first, turn = line
        if rolled:
            return _Axis(variable, len(index), times(_in_ring(plus(times(variable, turn), first), form), step))
        return _Axis(variable, len(index), times(variable, turn * step) if turn else "", first * step)
    table = Constant(f"m{d}", np.array(index, np.int16 if max(index) < 2**15 else np.int32), f"indices, dimension {d}")
    place = f"m{d}[{variable}]"
    outside = f"{place} < 0" if min(index) == OUTSIDE else ""
    return _Axis(variable, len(index), times(_in_ring(place, form) if rolled else place, step), 0, outside, table)


def _in_ring(row: str, form: Form) -> str:
    ring = form.rings[0] if form.rings else 0
    return f"({at_row(row, ring)})" if ring or not row.isidentifier() else row


def _axes(op: Op, graph: Graph, form: Form) -> tuple[list[_Axis], int]:
    """The dimensions that are gone through one by one, and the elements of those after them, which are copied."""
    (x,), tables = graph.operands(op), op.attrs["index"]
    last, first = len(tables), 2 if form.rolled else 0
    while last > first and tables[last - 1] is None:
        last -= 1
    steps, found = loops.steps(x.shape), list[_Axis]()
    for d in range(last):
        if not (form.rolled and d == 0):
            variable = "row" if form.rolled and d == 1 else f"i{d}"
            found.append(_axis(d, variable, tables[d] or tuple(range(x.shape[d])), steps[d], form))
    return found, prod(x.shape[last:])


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """Loops over the result; dimensions whose indices are no progression read them from a table."""
    (x,), y = graph.operands(op), graph.result(op)
    axes, run = _axes(op, graph, form)
    holes = tuple(a.outside for a in axes if a.outside)
    fixed = sum(a.fixed for a in axes)
    shape: dict[str, Any] = {
        "loops": tuple((a.variable, a.extent) for a in axes if a.variable != "row" and (a.extent > 1 or a.table)),
        "place": " + ".join([*(a.term for a in axes if a.term), *([str(fixed)] if fixed else [])]) or "0",
        "holes": " || ".join(holes),
        "run": run,
        "bytes": run * ITEM_BYTES[x.dtype],
    }
    constants = [Constant("x", x.data, "operand")] if x.data is not None else []
    constants += [a.table for a in axes if a.table is not None]
    scalars: dict[str, int | float] = {"value": fill(op, graph)} if holes else {}
    count = y.elements // (y.shape[1] if form.rolled else 1)
    stem = f"take_{'x'.join(map(str, y.shape)) or 1}"
    return Kernel("take.c.j2", stem, shape, tuple(constants), scalars, estimate=20 + (2.0 + 12 / run) * count)


SPEC = Spec(
    kind="take",
    nest=nest,
    reference=reference,
    kernel=kernel,
    rows=rows,
    part=part,
    exact=True,
    limits=(inside,),
)
