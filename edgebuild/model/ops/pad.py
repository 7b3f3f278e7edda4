"""PAD, PADV2, Pad: a border of one value around the tensor."""

from __future__ import annotations

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Offset, Same
from . import loops
from .base import Form, Kernel, Spec, zero_of
from .slice import part_shape


def nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    extents = {name: n + sum(p) for name, n, p in zip(names, x.shape, op.attrs["pads"], strict=True)}
    kept = any(map(any, op.attrs["pads"]))  # else the border is filled first, so it does not work in place
    dims = tuple(
        Same(name) if kept and not any(p) else Offset(name, p[0], n)
        for name, n, p in zip(names, x.shape, op.attrs["pads"], strict=True)
    )
    return Nest(extents, names, (dims,))


def fill(op: Op, graph: Graph) -> int | float:
    """The stored value of the border: real zero by default; of integers, the last one for infinity."""
    x = graph.operands(op)[0]
    value = op.attrs["value"]
    if value is None:
        return zero_of(x)
    if x.quant is None or isinstance(value, int):
        return value if isinstance(value, int) else float(value)
    ends = np.iinfo(x.dtype)
    return int(np.clip(np.rint(value / x.quant.scale[0]) + zero_of(x), ends.min, ends.max))


def reference(op: Op, graph: Graph, x: Array) -> Array:
    return np.pad(x, op.attrs["pads"], constant_values=fill(op, graph))


def growing(op: Op, graph: Graph) -> str | None:
    """Padding adds elements at either end of any of at most 4 dimensions; it removes none."""
    if any(n < 0 for pair in op.attrs["pads"] for n in pair):
        return f"padding {op.attrs['pads']}"
    rank = len(graph.operands(op)[0].shape)
    return f"{rank} dimensions" if rank > 4 else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    y = graph.result(op)
    start = sum(p[0] * step for p, step in zip(op.attrs["pads"], loops.steps(y.shape), strict=True))
    shape = {**part_shape(x.shape, y.shape, x.dtype, there="y", here="x", start=start), "fill": y.elements}
    return Kernel("runs.c.j2", f"pad_{'x'.join(map(str, x.shape))}", shape, (), {"value": fill(op, graph)})


SPEC = Spec(
    kind="pad",
    nest=nest,
    reference=reference,
    kernel=kernel,
    exact=True,
    limits=(growing,),
)
