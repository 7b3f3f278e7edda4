"""Ops that read or write elements by index, and that sample or resize images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from ...base.templates import at_row, plus, times
from ..ir import ITEM_BYTES, Array, Dim, Graph, Grouped, Nest, Offset, Op, Same, Whole, Window, lines, numbered, same
from . import base
from .base import Constant, Form, Kernel, Ranges, Spec, is_float, lettered, zero_of

# Elements at constant places: out[i0, i1, ...] = in[m0[i0], m1[i1], ...], with a table of indices for each dimension.
#
# Slices with steps, splits, tiles, expansions, reversals, gathers by constant indices, borders that repeat or mirror,
# and resizing to the nearest are all `take`. Attributes: `index`, for each dimension a tuple of indices, in which -1 is
# `value`, or None if the dimension is unchanged.

Index = tuple[int, ...]
OUTSIDE = -1


def take_nest(op: Op, graph: Graph) -> Nest:
    (x,), tables = graph.operands(op), op.attrs["index"]
    extents = numbered([n if index is None else len(index) for n, index in zip(x.shape, tables, strict=True)])
    moves = [_relation(*all_of) for all_of in zip(extents, tables, x.shape, strict=True)]
    if tables and tables[-1] is not None:
        moves[-1] = Whole(x.shape[-1])  # the table indexes channels, so all of them must be present
    return Nest({**extents, **{f"t{name}": 1 for name in extents}}, tuple(extents), (tuple(moves),))


def _relation(name: str, index: Index | None, size: int) -> Dim:
    """The most precise relation that holds for a dimension with this table."""
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
    """The stored value of places outside: real zero unless `value` says otherwise."""
    value = op.attrs.get("value")
    return zero_of(graph.operands(op)[0]) if value is None else value


def part(op: Op, graph: Graph, out: Ranges, x: Ranges) -> dict[str, Any]:
    """Attributes of a part: the tables' entries for its result, relative to its part of the operand."""
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
    """First index and step of a table that is a progression without places outside; else None."""
    first, step = index[0], index[1] - index[0] if len(index) > 1 else 0
    straight = all(i == first + n * step for n, i in enumerate(index)) and min(index) >= 0
    return (first, step) if straight else None


@dataclass(frozen=True)
class _Axis:
    """A dimension in C: its loop variable and extent; its share of the operand's index, `term` as C and `fixed` as a
    number; the C condition for a place outside; its table."""

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
    """The dimensions that have loops, and the number of elements after them, which are copied as one run."""
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
    """The kernel with loops over the result; dimensions whose indices are no progression read them from a table."""
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
    """Indices in [0, size): negative ones count from the end, and those outside are clamped."""
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
    """The kernel for `outer` tables of `rows` rows; with `own`, each table has indices of its own."""
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
    """Return "each", a row of the indices at a time, if the table is constant; else ""."""
    table, index = graph.operands(op)
    plain = table.constant and not op.attrs["axis"] and not op.attrs["batch"]
    return "each" if plain and len(index.shape) > 1 else ""


def nd_nest(op: Op, graph: Graph) -> Nest:
    """Index relation. The last dimension of the indices addresses the first dimensions of the table."""
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
# `scatter` is y = x with the rows of the third operand written at the places of the second, in order. `scatter_reduce`
# combines them with the rows there. Importers flatten the indices of a file into one row number each.

# How a row is combined with the row there, in C and in numpy.
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


SCATTER = Spec(  # any row may be written; columns are independent
    "scatter", lettered("*c * *c -> rc", r=lambda op, graph: graph.operands(op)[0].shape[0]), scatter_reference,
    scatter_kernel, exact=True, limits=(whole_places,),
)  # fmt: skip
REDUCE = replace(SCATTER, kind="scatter_reduce", exact=False, float_only=True, plain=True)


# Resize, Upsample, RESIZE_BILINEAR: weighted sums of neighbours, one dimension at a time.
#
# `blend` works along `axis`: out[i] = offset[i] + sum over k of weight[i][k] * in[index[i][k]]. OUTSIDE is the index of
# no element. Elements of weight 0 count: 0 times an infinity is NaN, as in onnxruntime and TFLM. Resizing to the
# nearest is `take`.


def resize_reference(op: Op, graph: Graph, x: Array) -> Array:
    line = np.moveaxis(x.astype(np.float64), op.attrs["axis"], 0)
    index, weight = np.array(op.attrs["index"]), np.array(op.attrs["weight"])
    rows = [(i[i != OUTSIDE], w[i != OUTSIDE]) for i, w in zip(index, weight, strict=True)]
    with np.errstate(all="ignore"):
        parts = [np.tensordot(w, line[i], 1) + o for (i, w), o in zip(rows, op.attrs["offset"], strict=True)]
        return np.moveaxis(np.stack(parts), 0, op.attrs["axis"]).astype(np.float32)


def resize_real(op: Op, graph: Graph) -> str | None:
    """Values are float32."""
    x = graph.operands(op)[0]
    return None if is_float(x) else f"'{x.name}' is {x.dtype}"


def resize_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), y, axis = graph.operands(op), graph.result(op), op.attrs["axis"]
    index, weight = np.array(op.attrs["index"]), np.array(op.attrs["weight"], np.float32)
    offset = np.array(op.attrs["offset"], np.float32)
    inner = base.steps(x.shape)[axis]
    shape: dict[str, Any] = {
        "outer": prod(x.shape[:axis]),
        "N": x.shape[axis],
        "M": len(index),
        "K": index.shape[1],
        "inner": inner,
        "offset": bool(offset.any()),
        "gaps": bool((index == OUTSIDE).any()),
    }
    constants = [
        Constant("index", index.astype(np.int16 if x.shape[axis] < 2**15 else np.int32), "of neighbours"),
        Constant("weight", weight, "of neighbours"),
    ]
    constants += [Constant("offset", offset, "of values outside")] if offset.any() else []
    cost = 6.0 * y.elements * shape["K"]
    return Kernel("indexing.c:blend", f"blend_{shape['K']}_along_{axis}", shape, tuple(constants), estimate=cost)


RESIZE = Spec(
    "blend", lambda op, graph: lines(graph.operands(op)[0].shape, op.attrs["axis"], len(op.attrs["index"])),
    resize_reference, resize_kernel, float_only=True, limits=(resize_real,),
)  # fmt: skip


# RESIZE_BILINEAR of int8 and int16: rows and columns at once, places and weights in steps of 1/1024.
#
# kernels/internal/reference/resize_bilinear.h (ResizeBilinearInteger); TFLM calls it for int8 alone. `rows` and
# `columns` are tables of (before, after, weight of after). Files in uint8, whose elements are 128 less here, have
# weights in float32, and each product and sum rounds in the order of the same file's ResizeBilinear.

ONE = 1 << 10
INTEGERS = ("int8", "int16")


Table = tuple[tuple[int, int, int], ...]
RealTable = tuple[tuple[int, int, float], ...]


def real_table(n: int, m: int, corners: bool, half: bool) -> RealTable:
    """The same as `table`, with places and weights in float32."""
    step, shift = np.float32(n) / np.float32(m), np.float32(0.5 if half else 0.0)
    if corners and m > 1:
        step = np.float32(n - 1) / np.float32(m - 1)
    places = (np.arange(m, dtype=np.float32) + shift) * step - shift
    before = np.maximum(np.floor(places), 0)
    after, weights = np.minimum(np.ceil(places), n - 1), places - before
    return tuple((int(b), int(a), float(w)) for b, a, w in zip(before, after, weights, strict=True))


def table(n: int, m: int, corners: bool, half: bool) -> Table:
    """For each of m results of n elements: both neighbours, and the weight of the later one in 1/1024."""
    step = (ONE * (n - 1) + (m - 1) // 2) // (m - 1) if corners and m > 1 else (ONE * n + m // 2) // m
    rows = []
    for i in range(m):
        at = i * step + (step // 2 - ONE // 2 if half else 0)
        before = max(int(at / ONE), 0)
        rows.append((before, min(-(-at // ONE) if at > 0 else int((at + ONE - 1) / ONE), n - 1), at - ONE * before))
    return tuple(rows)


def in_float(op: Op) -> bool:
    """Whether the weights are float32."""
    return isinstance(op.attrs["rows"][0][2], float)


def bilinear_reference(op: Op, graph: Graph, x: Array) -> Array:
    kind: Any = np.float32 if in_float(op) else np.int64
    (top, bottom, down), (left, right, across) = (np.array(op.attrs[name], kind).T for name in ("rows", "columns"))
    top, bottom, left, right = (at.astype(np.int64) for at in (top, bottom, left, right))
    down, across, whole = down[:, None, None], across[:, None], x.astype(kind)
    rows = [whole[:, at] for at in (top, bottom)]
    if in_float(op):
        above, below = ((r + kind(128)) * weight for r, weight in zip(rows, (1 - down, down), strict=True))
        total = above[:, :, left] * (1 - across) + below[:, :, left] * (1 - across)
        total = total + above[:, :, right] * across + below[:, :, right] * across
        return np.asarray((total + kind(0.5)).astype(np.int32) - 128, np.int8)
    parts = [r[:, :, left] * (ONE - across) + r[:, :, right] * across for r in rows]
    total = parts[0] * (ONE - down) + parts[1] * down
    return np.trunc((total + np.where(total > 0, 1 << 19, -(1 << 19))) / (1 << 20)).astype(x.dtype)


def same_scale_images(op: Op, graph: Graph) -> str | None:
    """Images are N x H x W x C in int8 or int16; the result has the input's scale."""
    x, y = graph.operands(op)[0], graph.result(op)
    bad = x.dtype not in INTEGERS or len(x.shape) != 4 or x.quant != y.quant
    return f"{x.dtype} of shape {x.shape}, {x.quant} to {y.quant}" if bad else None


def bilinear_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), y = graph.operands(op), graph.result(op)
    shape: dict[str, Any] = {"wide": x.dtype == "int16", "real": in_float(op)}
    shape |= dict(zip(("N", "H", "W", "C", "OH", "OW"), (*x.shape, *y.shape[1:3]), strict=True))
    numbers = np.float32 if in_float(op) else np.int16
    constants = tuple(
        Constant(name, np.array(op.attrs[name], numbers).ravel(), "before, after, weight of after")
        for name in ("rows", "columns")
    )
    stem = f"bilinear_{y.shape[1]}x{y.shape[2]}"
    return Kernel("indexing.c:bilinear", stem, shape, constants, estimate=20.0 * y.elements)


BILINEAR = Spec(
    "bilinear",
    lettered("n**c -> nhwc", h=lambda op, g: len(op.attrs["rows"]), w=lambda op, g: len(op.attrs["columns"])),
    bilinear_reference, bilinear_kernel, integers=INTEGERS, limits=(same_scale_images,),
)  # fmt: skip


# GridSample: out[n, h, w, c] is the image at the place grid[n, h, w], a column and a row from -1 to 1.
#
# `taps`: neighbours of a place in each direction: 2 (linear), 4 (cubic: Keys, Cubic convolution interpolation, 1981,
# with a = -0.75) or 1 (nearest, halves to even). `corners`: -1 and 1 are the centres of the outer pixels, else the
# image's edges. `padding`: the values outside: zeros, the border's pixels, or the mirrored image. AffineGrid computes
# such places from a matrix.

SHARPNESS = -0.75  # parameter a of the cubic, as in onnxruntime and PyTorch
FAR = 1 << 20  # pixels beyond the image; places farther away are clamped to it


def _at(place: Array, size: int, corners: bool) -> Array:
    """Places in pixels from the first one, in float32; a NaN is far before it."""
    one = np.float32(1)
    at = (place + one) / np.float32(2) * np.float32(size - 1) if corners else ((place + one) * size - one) / 2
    inside = np.where(at > -FAR, np.where(at < size + FAR, at, size + FAR), -FAR)
    return np.asarray(inside, np.float32)


def _mirrored(i: Array, size: int, op: Op) -> tuple[Array, Array]:
    """Indices brought into the image by the padding mode, and whether their pixels count."""
    if op.attrs["padding"] == "zeros":
        return np.clip(i, 0, size - 1), (i >= 0) & (i < size)
    if op.attrs["padding"] == "reflection":
        corners = op.attrs["corners"]
        rest = i % max(2 * (size - 1 if corners else size), 1)
        i = np.minimum(rest, 2 * (size - 1) - rest if corners else 2 * size - 1 - rest)
    return np.clip(i, 0, size - 1), np.ones(i.shape, bool)


def grid_sample_reference(op: Op, graph: Graph, x: Array, grid: Array) -> Array:
    _, rows, columns, _ = x.shape
    with np.errstate(all="ignore"):
        down, across = (_at(grid[..., d], n, op.attrs["corners"]) for d, n in ((1, rows), (0, columns)))
    batch = np.arange(len(x))[:, None, None]

    def pixel(h: Array, w: Array) -> Array:
        (h, above), (w, beside) = _mirrored(h, rows, op), _mirrored(w, columns, op)
        return np.where((above & beside)[..., None], x[batch, h, w], np.float32(0)).astype(np.float32)

    taps = op.attrs["taps"]
    if taps == 1:
        return pixel(np.rint(down).astype(np.int64), np.rint(across).astype(np.int64))
    top, left = np.floor(down).astype(np.int64), np.floor(across).astype(np.int64)
    below, beside = (_weights((at - low).astype(np.float32), taps) for at, low in ((down, top), (across, left)))
    first = 1 - taps // 2
    total = np.zeros((*grid.shape[:3], x.shape[3]), np.float32)
    for i, b in enumerate(below, first):
        total += b * sum(r * pixel(top + i, left + j) for j, r in enumerate(beside, first))
    return total


def _weights(ratio: Array, taps: int) -> list[Array]:
    """Weights of the neighbours of a place that lies `ratio` after the last pixel before it."""
    t = ratio[..., None]
    if taps == 2:
        return [1 - t, t]
    far, near = ([curve(d) for d in ds] for curve, ds in ((_cubic_far, (t + 1, 2 - t)), (_cubic_near, (t, 1 - t))))
    return [np.asarray(w, np.float32) for w in (far[0], *near, far[1])]


def _cubic_near(d: Array) -> Array:
    """The cubic's weight of a neighbour at most 1 from a place."""
    return ((SHARPNESS + 2) * d - (SHARPNESS + 3)) * d * d + 1


def _cubic_far(d: Array) -> Array:
    """The cubic's weight of a neighbour between 1 and 2 from a place."""
    return ((SHARPNESS * d - 5 * SHARPNESS) * d + 8 * SHARPNESS) * d - 4 * SHARPNESS


def grid_sample_real(op: Op, graph: Graph) -> str | None:
    """Image and places are float32."""
    bad = [t for t in graph.operands(op) if not is_float(t)]
    return f"'{bad[0].name}' is {bad[0].dtype}" if bad else None


def grid_sample_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x, grid), names = graph.operands(op), base.operand_names(graph.operands(op), ("image", "grid"))
    shape: dict[str, Any] = dict(zip(("N", "H", "W", "C"), x.shape, strict=True))
    shape |= {"image": names[0], "grid": names[1], "places": grid.shape[1] * grid.shape[2], "far": FAR}
    shape |= {name: op.attrs[name] for name in ("taps", "corners", "padding")}
    stem = f"grid_sample_{grid.shape[1]}x{grid.shape[2]}"
    cost = (40.0 + 5.0 * max(op.attrs["taps"], 2) ** 2 * x.shape[3]) * grid.elements
    constants = base.constants_of((x, grid), names)
    return Kernel("indexing.c:grid_sample", stem, shape, constants, estimate=cost)


GRID_SAMPLE = Spec(
    "grid_sample", lettered("n**c nhw* -> nhwc"), grid_sample_reference, grid_sample_kernel, float_only=True,
    limits=(grid_sample_real,),
)  # fmt: skip
