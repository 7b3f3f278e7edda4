"""A part put into its place in a tensor of which other parts may be there already: how tiles become one tensor.

Operands: the tensor so far, if any part is there, and the part. It is done in place where the tensor so far ends here.
Attributes: `shape` of the whole, `begin` of the part in every dimension. With no tensor so far, the rest is undefined.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..ir import ITEM_BYTES, Array, Graph, Op
from ..ir.axes import Dim, Nest, Offset, Same
from .base import Form, Kernel, Ranges, Spec
from .slice import part_shape, runs_cost


def nest(op: Op, graph: Graph) -> Nest:
    part = graph.operands(op)[-1]
    names = tuple(f"i{d}" for d in range(len(part.shape)))
    places = zip(names, op.attrs["begin"], part.shape, op.attrs["shape"], strict=True)
    dims = tuple(Same(name) if n == whole else Offset(name, b, n) for name, b, n, whole in places)
    before: tuple[tuple[Dim, ...], ...] = (tuple(Same(name) for name in names),) * (len(op.inputs) - 1)
    return Nest(dict(zip(names, op.attrs["shape"], strict=True)), names, (*before, dims))


def reference(op: Op, graph: Graph, *operands: Array) -> Array:
    part = operands[-1]
    y = operands[0].copy() if len(operands) > 1 else np.zeros(op.attrs["shape"], part.dtype)
    y[tuple(slice(b, b + n) for b, n in zip(op.attrs["begin"], part.shape, strict=True))] = part
    return y


def inside(op: Op, graph: Graph) -> str | None:
    """The part lies within the tensor, which has at most 4 dimensions."""
    part, shape = graph.operands(op)[-1], op.attrs["shape"]
    ends = tuple(b + n for b, n in zip(op.attrs["begin"], part.shape, strict=True))
    bad = len(shape) > 4 or any(end > n for end, n in zip(ends, shape, strict=True))
    return f"{op.attrs['begin']} to {ends} of {shape}" if bad else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """Runs of the part; of one row where it runs by rows."""
    part, whole = graph.operands(op)[-1], op.attrs["shape"]
    if form.rolled:
        whole = (1, 1, *whole[2:])
    steps = [prod(whole[d + 1 :]) for d in range(len(whole))]
    start = sum(b * step for b, step in zip(op.attrs["begin"], steps, strict=True))
    more, size = len(op.inputs) > 1, ITEM_BYTES[part.dtype]
    size_of_part = (1, 1, *part.shape[2:]) if form.rolled else part.shape
    shape = part_shape(size_of_part, whole, part.dtype, there="y", here="x1" if more else "x")
    shape |= {"more": more, "bytes": prod(whole) * size}
    stem = f"insert_{'x'.join(map(str, part.shape))}"
    cost = runs_cost(size_of_part, size)
    return Kernel("runs.c.j2", stem, shape, (), {"start": start}, placed=form.rolled, estimate=cost)


def part(op: Op, graph: Graph, out: Ranges, x: Ranges) -> dict[str, Any]:
    """Where what lies of the part in a piece of the result begins in that piece."""
    begin = tuple(max(b - first, 0) for b, (first, _) in zip(op.attrs["begin"], out, strict=True))
    return {"shape": tuple(past - first for first, past in out), "begin": begin}


def rows(op: Op, graph: Graph) -> str:
    """A part that has all rows is put in row by row."""
    part = graph.operands(op)[-1]
    return "each" if len(part.shape) > 2 and part.shape[:2] == tuple(op.attrs["shape"][:2]) else ""


SPEC = Spec(
    kind="insert", nest=nest, reference=reference, kernel=kernel, rows=rows, part=part, exact=True, limits=(inside,)
)
