"""L2_NORMALIZATION: rows of the last dimension, divided by their Euclidean lengths.

The int8 form is TFLM's (kernels/internal/reference/integer_ops/l2normalization.h): one factor in fixed point a row, the
inverse root of the sum of squares by five Newton steps. Of real numbers it is made of other ops.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from . import fixedpoint, softmax
from .base import Form, Kernel, Spec, zero_of

OUTPUT = (1 / 128, 0)  # scale and zero point of the result
BITS = 7  # of the fraction of the result
MOST = 33000  # squares of at most 255 that an int32 holds


def reference(op: Op, graph: Graph, x: Array) -> Array:
    rows = x.reshape(-1, x.shape[-1]).astype(np.int64) - zero_of(graph.operands(op)[0])
    factors = [fixedpoint.inverse_root(int(total)) for total in (rows * rows).sum(axis=1)]
    steps = [
        fixedpoint.requantize(row, m, BITS - right, graph.arithmetic)
        for row, (m, right) in zip(rows, factors, strict=True)
    ]
    return np.clip(np.stack(steps), -128, 127).astype(np.int8).reshape(x.shape)


def known_form(op: Op, graph: Graph) -> str | None:
    """A quantised L2_NORMALIZATION is of int8, with output scale 1/128, zero point 0, and rows of at most 33000."""
    x, y = graph.operands(op)[0], graph.result(op)
    if not graph.arithmetic.fixed_point or x.dtype != "int8" or y.dtype != "int8" or y.quant is None or x.quant is None:
        return f"{x.dtype} to {y.dtype}"
    fits = y.quant.zero_point[0] == OUTPUT[1] and abs(y.quant.scale[0] / OUTPUT[0] - 1) < 1e-3
    return None if fits and y.shape[-1] <= MOST else f"output is {y.quant}, rows of {y.shape[-1]}"


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    size = x.shape[-1]
    shape: dict[str, Any] = {"N": x.elements // size, "C": size, "bits": BITS}
    return Kernel("unit_rows.c.j2", f"unit_rows_{size}", shape, (), {"x_zero": zero_of(x)}, estimate=20.0 * x.elements)


SPEC = Spec(
    kind="unit_rows",
    nest=softmax.nest,
    reference=reference,
    kernel=kernel,
    limits=(known_form,),
)
