"""RESHAPE, Flatten, Squeeze and their like: the same bytes under another shape; free."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op, Tensor
from ..ir.axes import Dim, Fixed, Nest, Same, Whole
from .base import Ranges, Spec
from .moves import axis_of


def from_tflite(node: Any) -> None:
    """The shape is the file's; where that leaves the batch open, the one that is an operand."""
    shape = node.output_shape()
    if len(node.inputs) > 1 and node.tensor(1).data is not None:
        shape = node.open_shape([int(n) for n in np.ravel(node.tensor(1).data)])
    node.emit("reshape", node.inputs[:1], shape=shape)


def from_tflite_ones(node: Any) -> None:
    """SQUEEZE and EXPAND_DIMS: sizes of 1 go or come; a batch that is left open stays what it is."""
    x, shape = node.tensor(0).shape, node.output_shape()
    node.emit("reshape", node.inputs[:1], shape=node.open_shape((-1, *shape[1:])) if x and shape else shape)


def from_tflite_shape(node: Any) -> None:
    """All shapes are static, so this is a constant. An open batch is 1 in the file."""
    shape = np.array(node.tensor(0).shape, node.output_dtype())
    node.builder.tensors[node.outputs[0]] = replace(node.written[0], data=shape)


def from_tflite_broadcast(node: Any) -> None:
    """The shape of two together."""
    shapes = [tuple(np.ravel(node.constant(i, "shape").data)) for i in range(2)]
    together = np.array(np.broadcast_shapes(*shapes), node.output_dtype())
    node.builder.tensors[node.outputs[0]] = replace(node.written[0], data=together)


def from_tflite_densify(node: Any) -> None:
    """Sparse constants are dense ever since they were read."""
    x = node.constant(0, "tensor")
    node.builder.tensors[node.outputs[0]] = replace(x, name=node.outputs[0])


def from_onnx_reshape(node: Any) -> None:
    x = node.tensor(0)
    wanted = [int(n) for n in np.ravel(node.constant(1, "shape").data)]
    if not node.attr("allowzero", 0):
        wanted = [x.shape[d] if n == 0 else n for d, n in enumerate(wanted)]
    if -1 in wanted:
        rest = prod(n for n in wanted if n != -1)
        wanted[wanted.index(-1)] = x.elements // rest if rest else 0
    if prod(wanted) != x.elements:
        raise node.error(f"shape {tuple(wanted)} for an input of shape {x.shape}", "element counts must agree")
    node.emit("reshape", node.inputs[:1], shape=tuple(wanted))


def from_onnx_flatten(node: Any) -> None:
    x = node.tensor(0)
    axis = node.attr("axis", 1)
    axis += len(x.shape) if axis < 0 else 0
    node.emit("reshape", node.inputs[:1], shape=(prod(x.shape[:axis]), prod(x.shape[axis:])))


def from_onnx_squeeze(node: Any) -> None:
    x, listed = node.tensor(0), _axes(node)
    axes = (
        [d for d, n in enumerate(x.shape) if n == 1]
        if listed is None
        else [axis_of(node, a, len(x.shape)) for a in listed]
    )
    node.emit("reshape", node.inputs[:1], shape=tuple(n for d, n in enumerate(x.shape) if d not in axes))


def from_onnx_unsqueeze(node: Any) -> None:
    x, listed = node.tensor(0), _axes(node) or []
    rank = len(x.shape) + len(listed)
    axes, rest = {axis_of(node, a, rank) for a in listed}, iter(x.shape)
    node.emit("reshape", node.inputs[:1], shape=tuple(1 if d in axes else next(rest) for d in range(rank)))


def _axes(node: Any) -> list[int] | None:
    """Axes are an attribute up to opset 12 and an operand from 13 on."""
    if len(node.inputs) > 1 and node.inputs[1]:
        return [int(a) for a in np.ravel(node.constant(1, "axes").data)]
    listed = node.attr("axes", None)
    return None if listed is None else [int(a) for a in listed]


def from_onnx_identity(node: Any) -> None:
    """A constant, which may be quantised, stays one: exporters share what is equal in this way."""
    x = node.tensor(0)
    if x.constant:
        node.builder.tensors[node.outputs[0]] = replace(x, name=node.outputs[0])
        return
    node.emit("reshape", node.inputs[:1], shape=node.tensor(0).shape)


def from_onnx_dropout(node: Any) -> None:
    """Read it as outside of training: the identity. A mask keeps all elements."""
    from_onnx_identity(node)
    if len(node.outputs) > 1 and node.outputs[1]:
        kept = np.ones(node.tensor(0).shape, np.bool_)
        node.builder.tensors[node.outputs[1]] = Tensor(node.outputs[1], kept.shape, "bool", None, kept)


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
    tflite={
        "RESHAPE": from_tflite,
        "SQUEEZE": from_tflite_ones,
        "EXPAND_DIMS": from_tflite_ones,
        "SHAPE": from_tflite_shape,
        "BROADCAST_ARGS": from_tflite_broadcast,
        "DENSIFY": from_tflite_densify,
    },
    onnx={
        "Reshape": from_onnx_reshape,
        "Flatten": from_onnx_flatten,
        "Squeeze": from_onnx_squeeze,
        "Unsqueeze": from_onnx_unsqueeze,
        "Identity": from_onnx_identity,
        "Dropout": from_onnx_dropout,
    },
    view=True,
    limits=(same_elements,),
    part=part,
    exact=True,
)
