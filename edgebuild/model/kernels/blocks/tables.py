"""int8 of one quantisation in another, looked up: a load in place of a product, a rounding and two bounds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...ops import SPECS
from ...ops.base import Constant, Kernel
from ...ops.linear import INT8
from ..row import KernelLayer

LEAST = 256  # elements that are worth a table of 256 bytes


def rescaled(layer: KernelLayer) -> Kernel | None:
    """A clamp or requantize of many elements."""
    k, op, graph = layer.plain, layer.op, layer.graph
    count = int(str(k.shape["N"]))
    if count < LEAST or (graph.operands(op)[0].dtype, graph.result(op).dtype) != ("int8", "int8"):
        return None
    table = Constant("table", SPECS[op.kind].reference(op, graph, INT8), "results of -128 to 127")
    shape: dict[str, Any] = {"expression": "table[x[i] + 128]", "N": count, "loops": ()}
    return replace(
        k, template="pointwise.c.j2", shape=shape, constants=(table,), scalars={}, variant="table",
        estimate=20.0 + 5.0 * count,
    )  # fmt: skip
