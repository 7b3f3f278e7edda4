"""Code that reductions over dimensions share: their index relation, and how files name the dimensions."""

from __future__ import annotations

from ..ir import Graph, Op
from ..ir.axes import Dim, Nest, Same


def nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    dims: tuple[Dim, ...] = tuple(Same(name) for name in names)
    out = tuple(name for d, name in enumerate(names) if d not in op.attrs["axes"])
    return Nest(dict(zip(names, x.shape, strict=True)), out, (dims,))
