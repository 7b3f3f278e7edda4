"""Code that reductions over dimensions share: their index relation, and how files name the dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import Graph, Op, Tensor
from ..ir.axes import Dim, Nest, Same
from . import pointwise
from .moves import axis_of


def nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    dims: tuple[Dim, ...] = tuple(Same(name) for name in names)
    out = tuple(name for d, name in enumerate(names) if d not in op.attrs["axes"])
    return Nest(dict(zip(names, x.shape, strict=True)), out, (dims,))


def axes_of(node: Any, listed: Any, rank: int) -> tuple[int, ...]:
    """All dimensions if none are named."""
    if listed is None or np.size(listed) == 0:
        return tuple(range(rank))
    return tuple(sorted({axis_of(node, int(a), rank) for a in np.ravel(listed)}))


def kept_shape(x: Tensor, axes: tuple[int, ...], keep: bool) -> tuple[int, ...]:
    return tuple(1 if d in axes else n for d, n in enumerate(x.shape) if keep or d not in axes)


def keeps_dims(node: Any) -> bool:
    """The attribute keepdims, which is 0 or 1. Tools read other numbers each in its way."""
    keep = node.attr("keepdims", 1)
    if keep not in (0, 1):
        raise node.error(f"keepdims {keep}", "it must be 0 or 1")
    return bool(keep)


def onnx_axes(node: Any) -> tuple[int, ...] | None:
    """Axes are an attribute in older opsets and an operand in newer ones; None: nothing is to be done."""
    given = len(node.inputs) > 1 and node.inputs[1]
    listed = node.constant(1, "axes").data if given else node.attr("axes", None)
    if (listed is None or np.size(listed) == 0) and node.attr("noop_with_empty_axes", 0):
        return None
    return axes_of(node, listed, len(node.tensor(0).shape))


def from_onnx(kind: str, before: str = "", after: str = "") -> Any:
    """A reduction, perhaps with elementwise functions before and after it."""

    def read(node: Any) -> None:
        axes, name = onnx_axes(node), node.inputs[0]
        if before:
            name = node.inner("pointwise", [name], **pointwise.attributes(before))
        keep = keeps_dims(node)
        x = node.tensor(0)
        if axes is None:
            return node.emit("reshape", [name], shape=x.shape)
        shape = kept_shape(x, axes, keep)
        if not axes:
            axes, shape = (0,), ()
            name = node.reshaped(name, (1,))
        if not after:
            return node.emit_as(kind, [name], shape, axes=axes)
        total = node.inner(kind, [name], axes=axes)
        node.emit("pointwise", [node.reshaped(total, shape)], **pointwise.attributes(after))

    return read


def from_tflite(kind: str) -> Any:
    def read(node: Any) -> None:
        x = node.tensor(0)
        axes = axes_of(node, node.constant(1, "axis").data, len(x.shape))
        keep = bool(node.options("ReducerOptions").KeepDims())
        node.emit_as(kind, node.inputs[:1], kept_shape(x, axes, keep), axes=axes)

    return read


def from_onnx_global(kind: str) -> Any:
    """Over all rows and columns, which stay as dimensions of size 1."""

    def read(node: Any) -> None:
        x = node.tensor(0)
        axes = tuple(range(2, len(x.shape)))
        node.emit_as(kind, node.inputs[:1], kept_shape(x, axes, True), axes=axes)

    return read
