"""Resize, Upsample, RESIZE_BILINEAR: each dimension by itself, as sums of neighbours with weights.

`blend` works along `axis`: out[i] = offset[i] + sum over k of weight[i][k] * in[index[i][k]]. OUTSIDE is the index of
no element. One of weight 0 counts: 0 times an infinity is no number, in onnxruntime and TFLM, too. To the nearest is
`take`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Same, Whole
from . import loops
from .base import Constant, Form, Kernel, Spec, is_float
from .take import OUTSIDE


def nest(op: Op, graph: Graph) -> Nest:
    (x,), axis = graph.operands(op), op.attrs["axis"]
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    extents = dict(zip(names, x.shape, strict=True)) | {names[axis]: len(op.attrs["index"])}
    dims = tuple(Whole(n) if d == axis else Same(names[d]) for d, n in enumerate(x.shape))
    return Nest(extents, names, (dims,))


def reference(op: Op, graph: Graph, x: Array) -> Array:
    line = np.moveaxis(x.astype(np.float64), op.attrs["axis"], 0)
    index, weight = np.array(op.attrs["index"]), np.array(op.attrs["weight"])
    rows = [(i[i != OUTSIDE], w[i != OUTSIDE]) for i, w in zip(index, weight, strict=True)]
    with np.errstate(all="ignore"):
        parts = [np.tensordot(w, line[i], 1) + o for (i, w), o in zip(rows, op.attrs["offset"], strict=True)]
        return np.moveaxis(np.stack(parts), 0, op.attrs["axis"]).astype(np.float32)


def real(op: Op, graph: Graph) -> str | None:
    """Values are float32."""
    x = graph.operands(op)[0]
    return None if is_float(x) else f"'{x.name}' is {x.dtype}"


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), y, axis = graph.operands(op), graph.result(op), op.attrs["axis"]
    index, weight = np.array(op.attrs["index"]), np.array(op.attrs["weight"], np.float32)
    offset = np.array(op.attrs["offset"], np.float32)
    inner = loops.steps(x.shape)[axis]
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
    return Kernel("blend.c.j2", f"blend_{shape['K']}_along_{axis}", shape, tuple(constants), estimate=cost)


# How neighbours are weighted -----------------------------------------------------------------


# Files ---------------------------------------------------------------------------------------


SPEC = Spec(
    kind="blend",
    nest=nest,
    reference=reference,
    kernel=kernel,
    float_only=True,
    limits=(real,),
)
