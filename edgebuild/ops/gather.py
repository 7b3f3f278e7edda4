"""GATHER, Gather along the first dimension of a table: out[i, ...] = table[index[i], ...]."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..axes import Dim, Nest, Same, Whole
from ..ir import ITEM_BYTES, Array, Graph, Op
from .base import Constant, Form, Kernel, Spec


def from_tflite(node: Any) -> None:
    options = node.options("GatherOptions")
    if options.BatchDims():
        raise node.error(f"batch_dims {options.BatchDims()}", "only batch_dims 0 is supported")
    node.emit("gather", node.inputs, axis=options.Axis())


def from_onnx(node: Any) -> None:
    node.emit("gather", node.inputs, axis=node.attr("axis", 0))


def nest(op: Op, graph: Graph) -> Nest:
    table, index = graph.operands(op)
    rows = tuple(f"i{d}" for d in range(len(index.shape)))
    columns = tuple(f"j{d}" for d in range(1, len(table.shape)))
    extents = dict(zip(rows + columns, index.shape + table.shape[1:], strict=True))
    from_table: tuple[Dim, ...] = (Whole(table.shape[0]), *(Same(name) for name in columns))
    return Nest(extents, rows + columns, (from_table, tuple(Same(name) for name in rows)))


def reference(op: Op, graph: Graph, table: Array, index: Array) -> Array:
    return table[np.clip(index.astype(np.int64), 0, len(table) - 1)]


def constant_table(op: Op, graph: Graph) -> str | None:
    """The table is a constant, the indices are int32, the axis is 0. Indices are kept inside of the table."""
    table, index = graph.operands(op)
    if not table.constant or index.constant:
        return "the table is computed" if not table.constant else "the indices are constant"
    if op.attrs["axis"] != 0:
        return f"axis {op.attrs['axis']}"
    return None if index.dtype == "int32" else f"indices are {index.dtype}"


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    table, index = graph.operands(op)
    assert table.data is not None
    row = prod(table.shape[1:])
    count = index.elements // index.shape[1] if form.rolled else index.elements
    ring = form.rings[0] if form.rings else 0
    shape: dict[str, Any] = {
        "N": count,
        "rolled": form.rolled,
        "ring": ring,
        "rows": table.shape[0],
        "row_bytes": row * ITEM_BYTES[table.dtype],
    }
    return Kernel("gather.c.j2", f"gather_{table.shape[0]}x{row}", shape, (Constant("table", table.data, "table"),))


SPEC = Spec(
    kind="gather",
    nest=nest,
    reference=reference,
    kernel=kernel,
    tflite={"GATHER": from_tflite},
    onnx={"Gather": from_onnx},
    rows=lambda op, graph: "each" if len(graph.operands(op)[1].shape) > 1 else "",
    exact=True,
    limits=(constant_table,),
)
