"""Operators that are read as others: masks, places as vectors, windows."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from . import pointwise
from .moves import axis_of, taken_along
from .pool2d import from_onnx as pool
from .reduction import kept_shape

LENGTHS = {1: ("abs", ""), 2: ("square", "sqrt")}  # of LpPool's p: before and after the sum; others are powers


def _chosen(node: Any, condition: str, yes: str, no: str, dtype: str) -> None:
    node.emit("pointwise", [condition, yes, no], **{**pointwise.attributes("where"), "to": dtype})


def _places(node: Any, axis: int, rank: int, depth: int, dtype: str) -> str:
    """0 to depth - 1 along an axis."""
    shape = [depth if d == axis else 1 for d in range(rank)]
    return str(node.array(np.arange(depth).astype(dtype).reshape(shape)))


def one_hot(node: Any) -> None:
    """`on` where the place along the new axis is the index, which may count from the end; else `off`.

    Real indices lose their fractions, as in onnxruntime.
    """
    if node.tensor(0).dtype == "float32":
        node.inputs[0] = node.inner("cast", node.inputs[:1], to="int32")
    x, rank = node.tensor(0), len(node.tensor(0).shape) + 1
    axis = axis_of(node, node.attr("axis", -1), rank)
    depth = int(np.ravel(node.constant(1, "depth").data)[0])
    if depth < 1:
        raise node.error(f"depth {depth}", "at least 1")
    off, on = np.ravel(node.real(node.constant(2, "values")))
    index = node.reshaped(node.inputs[0], (*x.shape[:axis], 1, *x.shape[axis:]))
    count = node.array(np.array(depth, x.dtype))
    below = node.inner("pointwise", [index, node.array(np.array(0, x.dtype))], **pointwise.attributes("less"))
    wrapped = node.inner("pointwise", [index, count], **pointwise.attributes("sum"))
    index = node.inner("pointwise", [below, wrapped, index], **{**pointwise.attributes("where"), "to": x.dtype})
    here = node.inner("pointwise", [index, _places(node, axis, rank, depth, x.dtype)], **pointwise.attributes("equal"))
    _chosen(node, here, node.array(np.array(on)), node.array(np.array(off)), str(on.dtype))


def tflite_one_hot(node: Any) -> None:
    """`on` where the place along the new axis is the index, else `off`; indices do not count from the end."""
    x, rank, (_, _, on, off) = node.tensor(0), len(node.tensor(0).shape) + 1, node.inputs
    axis = axis_of(node, node.options("OneHotOptions").Axis(), rank)
    depth = int(np.ravel(node.constant(1, "depth").data)[0])
    if depth < 1:
        raise node.error(f"depth {depth}", "at least 1")
    for position, what in ((2, "on"), (3, "off")):
        value = node.tensor(position)
        if value.elements != 1 or value.dtype != node.output_dtype() or value.quant != node.output_quant():
            raise node.error(f"{what} is {value.dtype} of shape {value.shape}", "one number like those of the result")
    index = node.reshaped(node.inputs[0], (*x.shape[:axis], 1, *x.shape[axis:]))
    here = node.inner("pointwise", [index, _places(node, axis, rank, depth, x.dtype)], **pointwise.attributes("equal"))
    _chosen(node, here, on, off, node.output_dtype())


def hard_max(node: Any) -> None:
    """1 at the first largest element along the axis, else 0."""
    x = node.tensor(0)
    axis = axis_of(node, node.attr("axis", -1), len(x.shape))
    best = node.inner("arg", node.inputs[:1], axis=axis, largest=True, last=False, to="int32")
    best = node.reshaped(best, kept_shape(x, (axis,), True))
    places = _places(node, axis, len(x.shape), x.shape[axis], "int32")
    here = node.inner("pointwise", [best, places], **pointwise.attributes("equal"))
    node.emit("cast", [here], to=x.dtype)


def triangle(node: Any) -> None:
    """Elements on one side of a diagonal; the others are 0."""
    x, given = node.tensor(0), len(node.inputs) > 1 and node.inputs[1]
    k = int(np.ravel(node.constant(1, "k").data)[0]) if given else 0
    rows, columns = x.shape[-2:]
    right = np.arange(columns) - np.arange(rows)[:, None] - k  # of the diagonal
    mask = right >= 0 if node.attr("upper", 1) else right <= 0
    _chosen(node, node.array(mask), node.inputs[0], node.array(np.zeros((), x.dtype)), x.dtype)


def length_pool(node: Any) -> None:
    """Lengths of windows: the root of an average of squares, times the number of elements."""
    p, window = node.attr("p", 2), node.attr("kernel_shape", [])
    if p < 1 or node.attr("ceil_mode", 0):
        raise node.error(f"p {p}, ceil_mode {node.attr('ceil_mode', 0)}", "supported: p from 1 on, ceil_mode 0")
    before, after = LENGTHS.get(p, ("abs", "power"))
    average, name = node.before("average"), node.inner("pointwise", node.inputs[:1], **pointwise.attributes(before))
    average.inputs = [name if p in LENGTHS else _power(node, name, p)]
    average.attributes = {**node.attributes, "count_include_pad": 1}
    pool("avg_pool2d")(average)
    total = [average.outputs[0], node.array(np.float32(prod(window)))]
    if not after:
        return node.emit("mul", total, clamp=pointwise.OPEN)
    more = [node.array(np.float32(1 / p))] if after == "power" else []
    node.emit("pointwise", [node.inner("mul", total, clamp=pointwise.OPEN), *more], **pointwise.attributes(after))


def global_length_pool(node: Any) -> None:
    """One window over the whole image."""
    node.attributes = {**node.attributes, "kernel_shape": list(node.tensor(0).shape[2:])}
    length_pool(node)


def _power(node: Any, name: str, p: int) -> str:
    return str(node.inner("pointwise", [name, node.array(np.float32(p))], **pointwise.attributes("power")))


def reversed_sequences(node: Any) -> None:
    """The first elements along the axis of time, as many as each sequence has, the other way round."""
    x, lengths = node.tensor(0), np.ravel(node.constant(1, "sequence_lens").data).astype(int).tolist()
    time, batch = node.attr("time_axis", 0), node.attr("batch_axis", 1)
    if sorted((time, batch)) != [0, 1] or len(x.shape) < 2 or len(lengths) != x.shape[batch]:
        raise node.error(f"{len(lengths)} sequences, axes {time} and {batch}", "time and batch are the axes 0 and 1")
    if not all(0 <= n <= x.shape[time] for n in lengths):
        raise node.error(f"sequences of {sorted({*lengths})} elements, of {x.shape[time]}")
    rows = np.arange(x.shape[0] * x.shape[1]).reshape(x.shape[:2])
    turned = np.moveaxis(rows, time, 0).copy()
    for sequence, n in zip(turned.T, lengths, strict=True):
        sequence[:n] = sequence[:n][::-1].copy()
    index = np.moveaxis(turned, 0, time).ravel()
    taken_along(node, 0, index, x.shape, node.reshaped(node.inputs[0], (rows.size, *x.shape[2:])))


TFLITE = {"ONE_HOT": tflite_one_hot}
ONNX = {
    "GlobalLpPool": global_length_pool,
    "Hardmax": hard_max,
    "LpPool": length_pool,
    "OneHot": one_hot,
    "ReverseSequence": reversed_sequences,
    "Trilu": triangle,
}
