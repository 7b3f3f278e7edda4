"""Tables in place of arithmetic, and arithmetic in place of tables: plans choose by instructions and bytes of flash."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...ops import SPECS, normalization
from ...ops.base import Constant, Kernel, scale_of
from ...ops.fixedpoint import INT8
from ..row import KernelLayer

LEAST = 256  # elements that are worth a table of 256 bytes
# Instructions of a product of 64 bits, and those of the compiler's library on Armv6-M; of an exponential, its products.
PRODUCT, CALLED, EXPONENTIAL, PRODUCTS = 6, 45, 60, 9
RESCALED_BY_CALLS = 6.1  # of the instructions of a clamp or requantize, where its long products are calls


def own(layer: KernelLayer) -> Kernel | None:
    """The op's own kernel, beside others."""
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
