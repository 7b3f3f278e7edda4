"""RESHAPE, Flatten, Squeeze and their like: the same bytes under another shape; free."""

from __future__ import annotations

from math import prod
from typing import Any

from ..ir import Array, Graph, Op
from ..ir.axes import Dim, Fixed, Nest, Same, Whole
from .base import Ranges, Spec


def nest(op: Op, graph: Graph) -> Nest:
    """Dimensions of size 1 that come or go leave all others as they are; else any element may be anywhere."""
    (x,) = graph.operands(op)
    names, shape = tuple(f"i{d}" for d in range(len(op.attrs["shape"]))), op.attrs["shape"]
    dims: tuple[Dim, ...] = tuple(Whole(n) for n in x.shape)
    if [n for n in x.shape if n > 1] == [n for n in shape if n > 1]:
        kept = iter(name for name, n in zip(names, shape, strict=True) if n > 1)
        dims = tuple(Same(next(kept)) if n > 1 else Fixed() for n in x.shape)
    return Nest(dict(zip(names, shape, strict=True)), names, (dims,))


def same_elements(op: Op, graph: Graph) -> str | None:
    """The result has as many elements as the operand."""
    x, shape = graph.operands(op)[0], op.attrs["shape"]
    return None if x.elements == prod(shape) else f"elements of shape {x.shape} as {tuple(shape)}"


def part(op: Op, graph: Graph, out: Ranges, x: Ranges) -> dict[str, Any]:
    return {**op.attrs, "shape": tuple(past - first for first, past in out)}


def reference(op: Op, graph: Graph, x: Array) -> Array:
    return x.reshape(op.attrs["shape"])


SPEC = Spec(
    kind="reshape",
    nest=nest,
    reference=reference,
    view=True,
    limits=(same_elements,),
    part=part,
    exact=True,
)
