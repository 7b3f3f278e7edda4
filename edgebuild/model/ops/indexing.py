"""Ops that read or write places which an index names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ...base.templates import at_row, plus, times
from ..ir import ITEM_BYTES, Array, Dim, Graph, Grouped, Nest, Offset, Op, Same, Whole, Window, numbered, same
from . import base
from .base import Constant, Form, Kernel, Ranges, Spec, lettered, zero_of

# Values at other places: out[i0, i1, ...] = in[m0[i0], m1[i1], ...], with a table of indices for each dimension.
#
# Slices with steps, splits, tiles, expansions, reversals, gathers by constant indices, borders that repeat or mirror
# and resizing to the nearest are all this. Attributes: `index`, for each dimension a tuple in which -1 is `value`, or
# None if it stays as it is.

Index = tuple[int, ...]
OUTSIDE = -1


def take_nest(op: Op, graph: Graph) -> Nest:
    (x,), tables = graph.operands(op), op.attrs["index"]
    extents = numbered([n if index is None else len(index) for n, index in zip(x.shape, tables, strict=True)])
    moves = [_relation(*all_of) for all_of in zip(extents, tables, x.shape, strict=True)]
    if tables and tables[-1] is not None:
        moves[-1] = Whole(x.shape[-1])  # the table counts channels: none of them may be left out
    return Nest({**extents, **{f"t{name}": 1 for name in extents}}, tuple(extents), (tuple(moves),))


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


def take_reference(op: Op, graph: Graph, x: Array) -> Array:
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
    steps, axes = base.steps(x.shape), list[_Axis]()
    for d in range(last):
        if not (form.rolled and d == 0):
            variable = "row" if form.rolled and d == 1 else f"i{d}"
            axes.append(_axis(d, variable, tables[d] or tuple(range(x.shape[d])), steps[d], form))
    return axes, prod(x.shape[last:])


def take_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
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
    return Kernel("indexing.c:take", stem, shape, tuple(constants), scalars, estimate=20 + (2.0 + 12 / run) * count)


TAKE = Spec(
    "take", take_nest, take_reference, take_kernel, part=part, exact=True, limits=(inside,),
    rows=lambda op, graph: "each" if len(op.attrs["index"]) > 1 and not graph.operands(op)[0].constant else "",
)  # fmt: skip


# GATHER, Gather: out[a, i, b] = table[a, index[i], b]; GATHER_ND, GatherND: out[i, b] = table[index[i], b].
#
# `gather` has an `axis`, and `batch` leading dimensions that both operands share.

INDICES = ("int32", "int64", "int16", "int8", "uint8")


def gather_nest(op: Op, graph: Graph) -> Nest:
    table, index = graph.operands(op)
    axis, batch = op.attrs["axis"], op.attrs["batch"]
    before = tuple(f"a{d}" for d in range(axis))
    rows = tuple(f"i{d}" for d in range(batch, len(index.shape)))
    after = tuple(f"j{d}" for d in range(axis + 1, len(table.shape)))
    names, shape = before + rows + after, table.shape[:axis] + index.shape[batch:] + table.shape[axis + 1 :]
    from_table = (*same(*before), Whole(table.shape[axis]), *same(*after))
    return Nest(dict(zip(names, shape, strict=True)), names, (from_table, same(*before[:batch], *rows)))


def wrapped(index: Array, size: int) -> Array:
    """Negative indices count from the end; what lies outside all the same is kept inside."""
    at = index.astype(np.int64)
    return np.clip(np.where(at < 0, at + size, at), 0, size - 1)


def gather_reference(op: Op, graph: Graph, table: Array, index: Array) -> Array:
    axis, batch = op.attrs["axis"], op.attrs["batch"]
    at = wrapped(index, table.shape[axis])
    if not batch:
        return table.take(at, axis=axis)
    lead = table.shape[:batch]
    rows = [t.take(i, axis=0) for t, i in zip(table.reshape(-1, *table.shape[batch:]), at.reshape(prod(lead), -1))]  # noqa: B905
    return np.stack(rows).reshape(*lead, *index.shape[batch:], *table.shape[axis + 1 :])


def whole_numbers(op: Op, graph: Graph) -> str | None:
    """Indices are computed whole numbers; they are kept inside of the table."""
    index = graph.operands(op)[1]
    return None if index.dtype in INDICES and not index.constant else f"indices are {index.dtype}, {index.constant=}"


def gather_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """`outer` tables of `rows` rows; `lines` times as many indices if each outer one has its own."""
    table, index = graph.operands(op)
    axis, batch = op.attrs["axis"], op.attrs["batch"]
    row, outer = prod(table.shape[axis + 1 :]), prod(table.shape[:axis])
    count = prod(index.shape[batch:])
    if form.rolled:
        count //= index.shape[1]
    shape: dict[str, Any] = {
        "table": "table" if table.constant else "x0",
        "index": "x" if table.constant else "x1",
        "N": count,
        "outer": outer,
        "own": batch > 0,
        "rows": table.shape[axis],
        "row_bytes": row * ITEM_BYTES[table.dtype],
    }
    stem = f"gather_{table.shape[axis]}x{row}"
    constants = (Constant("table", table.data, "table"),) if table.data is not None else ()
    return Kernel("indexing.c:gather", stem, shape, constants, placed=form.rolled, estimate=20.0 + 12 * outer * count)


def gather_rows(op: Op, graph: Graph) -> str:
    """Row by row with the indices' rows, from a table that is a constant."""
    table, index = graph.operands(op)
    plain = table.constant and not op.attrs["axis"] and not op.attrs["batch"]
    return "each" if plain and len(index.shape) > 1 else ""


def nd_nest(op: Op, graph: Graph) -> Nest:
    """The last dimension of the indices is a place in the first dimensions of the table."""
    table, index = graph.operands(op)
    batch, depth = op.attrs["batch"], index.shape[-1]
    lead = tuple(f"i{d}" for d in range(len(index.shape) - 1))
    after = tuple(f"j{d}" for d in range(batch + depth, len(table.shape)))
    names, shape = lead + after, index.shape[:-1] + table.shape[batch + depth :]
    places = (Whole(n) for n in table.shape[batch : batch + depth])
    operands = (*same(*lead[:batch]), *places, *same(*after)), (*same(*lead), Whole(depth))
    return Nest(dict(zip(names, shape, strict=True)), names, operands)


def nd_reference(op: Op, graph: Graph, table: Array, index: Array) -> Array:
    batch, depth = op.attrs["batch"], index.shape[-1]
    lead = table.shape[:batch]
    tables, places = table.reshape(-1, *table.shape[batch:]), index.reshape(prod(lead), -1, depth)
    rows = [t[tuple(wrapped(p[:, d], t.shape[d]) for d in range(depth))] for t, p in zip(tables, places, strict=True)]
    return np.stack(rows).reshape((*index.shape[:-1], *table.shape[batch + depth :]))


def nd_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    table, index = graph.operands(op)
    batch, depth = op.attrs["batch"], index.shape[-1]
    size = ITEM_BYTES[table.dtype]
    places = tuple((d, table.shape[batch + d], prod(table.shape[batch + d + 1 :]) * size) for d in range(depth))
    outer = prod(table.shape[:batch])
    shape: dict[str, Any] = {
        "table": "table" if table.constant else "x0",
        "index": "x" if table.constant else "x1",
        "outer": outer,
        "N": index.elements // depth // outer,
        "depth": depth,
        "places": places,
        "table_bytes": table.bytes // outer,
        "row_bytes": prod(table.shape[batch + depth :]) * size,
    }
    constants = (Constant("table", table.data, "table"),) if table.data is not None else ()
    return Kernel("indexing.c:gather_nd", f"gather_nd_{depth}", shape, constants, estimate=20.0 + 12.0 * index.elements)


GATHER = Spec(
    "gather", gather_nest, gather_reference, gather_kernel, rows=gather_rows, exact=True, limits=(whole_numbers,)
)
GATHER_ND = Spec("gather_nd", nd_nest, nd_reference, nd_kernel, exact=True, limits=(whole_numbers,))


# GatherElements, ScatterElements, ScatterND, DYNAMIC_UPDATE_SLICE: elements or rows at places of their own.
#
# `scatter` is y = x with rows of the third operand at the places of the second, one after another; `scatter_reduce`
# joins them with those that are there. Readers make one place in a table of rows of all the indices that a file gives
# for it.

# How a row joins the one that is there, and the numpy meaning.
JOINS: dict[str, tuple[str, Any]] = {
    "none": ("next", lambda before, after: after),
    "add": ("before + next", np.add),
    "mul": ("before * next", np.multiply),
    "max": ("next > before ? next : before", np.maximum),
    "min": ("next < before ? next : before", np.minimum),
}


def scatter_reference(op: Op, graph: Graph, x: Array, index: Array, update: Array) -> Array:
    y, join = x.copy(), JOINS[op.attrs["reduction"]][1]
    for at, row in zip(wrapped(index, len(x)), update, strict=True):
        y[at] = join(y[at], row)
    return y


def whole_places(op: Op, graph: Graph) -> str | None:
    """Places are whole numbers, which are kept inside of the table; updates are of its type."""
    x, index, update = graph.operands(op)
    fits = index.dtype in INDICES and index.quant is None and update.dtype == x.dtype
    return None if fits else f"indices are {index.dtype}, updates {update.dtype} of a table of {x.dtype}"


def scatter_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    operands = graph.operands(op)
    x, index, _ = operands
    names = base.operand_names(operands)
    shape: dict[str, Any] = dict(zip(("table", "index", "update"), names, strict=True))
    shape |= {
        "rows": x.shape[0],
        "run": x.shape[1],
        "N": index.elements,
        "bytes": x.bytes,
        "row_bytes": x.bytes // x.shape[0],
    }
    shape["join"] = JOINS[op.attrs["reduction"]][0]
    constants = base.constants_of(operands, names)
    cost = 20.0 + 1.5 * x.elements + index.elements * (10.0 + 6.0 * x.shape[1])
    return Kernel("indexing.c:scatter", f"{op.kind}_{x.shape[0]}x{x.shape[1]}", shape, constants, estimate=cost)


SCATTER = Spec(  # rows of any number may be written; columns have nothing to do with each other
    "scatter", lettered("*c * *c -> rc", r=lambda op, graph: graph.operands(op)[0].shape[0]), scatter_reference,
    scatter_kernel, exact=True, limits=(whole_places,),
)  # fmt: skip
REDUCE = replace(SCATTER, kind="scatter_reduce", exact=False, float_only=True, plain=True)
