"""GATHER, Gather: out[a, i, b] = table[a, index[i], b]; GATHER_ND, GatherND: out[i, b] = table[index[i], b].

`gather` has an `axis`, and `batch` leading dimensions that both operands share.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..ir import ITEM_BYTES, Array, Graph, Op
from ..ir.axes import Dim, Nest, Same, Whole
from .base import Constant, Form, Kernel, Spec

INDICES = ("int32", "int64", "int16", "int8", "uint8")


def nest(op: Op, graph: Graph) -> Nest:
    table, index = graph.operands(op)
    axis, batch = op.attrs["axis"], op.attrs["batch"]
    before = tuple(f"a{d}" for d in range(axis))
    rows = tuple(f"i{d}" for d in range(batch, len(index.shape)))
    after = tuple(f"j{d}" for d in range(axis + 1, len(table.shape)))
    shape = table.shape[:axis] + index.shape[batch:] + table.shape[axis + 1 :]
    from_table: list[Dim] = [Same(name) for name in before]
    from_table += [Whole(table.shape[axis]), *(Same(name) for name in after)]
    from_index = tuple(Same(name) for name in (*before[:batch], *rows))
    names = before + rows + after
    return Nest(dict(zip(names, shape, strict=True)), names, (tuple(from_table), from_index))


def wrapped(index: Array, size: int) -> Array:
    """Negative indices count from the end; what lies outside all the same is kept inside."""
    at = index.astype(np.int64)
    return np.clip(np.where(at < 0, at + size, at), 0, size - 1)


def reference(op: Op, graph: Graph, table: Array, index: Array) -> Array:
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


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
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
    return Kernel("gather.c.j2", stem, shape, constants, placed=form.rolled, estimate=20.0 + 12 * outer * count)


def rows(op: Op, graph: Graph) -> str:
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
    shape = index.shape[:-1] + table.shape[batch + depth :]
    from_table: list[Dim] = [Same(name) for name in lead[:batch]]
    from_table += [Whole(n) for n in table.shape[batch : batch + depth]]
    from_index: tuple[Dim, ...] = (*(Same(name) for name in lead), Whole(depth))
    names = lead + after
    return Nest(dict(zip(names, shape, strict=True)), names, ((*from_table, *(Same(n) for n in after)), from_index))


def nd_reference(op: Op, graph: Graph, table: Array, index: Array) -> Array:
    batch, depth = op.attrs["batch"], index.shape[-1]
    lead = table.shape[:batch]
    tables, places = table.reshape(-1, *table.shape[batch:]), index.reshape(prod(lead), -1, depth)
    found = [t[tuple(wrapped(p[:, d], t.shape[d]) for d in range(depth))] for t, p in zip(tables, places, strict=True)]
    return np.stack(found).reshape((*index.shape[:-1], *table.shape[batch + depth :]))


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
    return Kernel("gather_nd.c.j2", f"gather_nd_{depth}", shape, constants, estimate=20.0 + 12.0 * index.elements)


SPEC = Spec(
    kind="gather",
    nest=nest,
    reference=reference,
    kernel=kernel,
    rows=rows,
    exact=True,
    limits=(whole_numbers,),
)
ND = Spec(
    kind="gather_nd",
    nest=nd_nest,
    reference=nd_reference,
    kernel=nd_kernel,
    exact=True,
    limits=(whole_numbers,),
)
