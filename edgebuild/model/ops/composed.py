"""Operators that are read as others: masks, places as vectors, windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..ir import Array
from . import pointwise
from .moves import axis_of, moving, taken_along
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


def compressed(node: Any) -> None:
    """The elements, or the places along an axis, of which the condition says so; it must be known."""
    kept, axis = node.constant(1, "condition (the result's size)").data, node.attr("axis", None)
    whole = node.inputs[0] if axis is not None else node.reshaped(node.inputs[0], (node.tensor(0).elements,))
    shape = node.builder.tensors[whole].shape
    axis, index = axis_of(node, axis or 0, len(shape)), np.flatnonzero(kept)
    taken_along(node, axis, index, (*shape[:axis], len(index), *shape[axis + 1 :]), whole)


def reversed_sequences(node: Any) -> None:
    """The first elements along the axis of time, as many as each sequence has, the other way round."""
    time, batch = node.attr("time_axis", 0), node.attr("batch_axis", 1)
    if sorted((time, batch)) != [0, 1]:
        raise node.error(f"axes {time} and {batch}", "time and batch are the axes 0 and 1")
    _reversed(node, time, batch)


def tflite_reversed_sequences(node: Any) -> None:
    options = node.options("ReverseSequenceOptions")
    _reversed(node, options.SeqDim(), options.BatchDim())


def _reversed(node: Any, time: int, batch: int) -> None:
    """Rows of a matrix, one for each time and batch; where the lengths are computed, their index is, too."""
    x, lengths, rank = node.tensor(0), node.tensor(1), len(node.tensor(0).shape)
    fits = min(time, batch) >= 0 and max(time, batch) < rank and time != batch and len(lengths.shape) == 1
    if not fits or lengths.elements != x.shape[batch]:
        raise node.error(f"{lengths.elements} sequences along axis {time}, batch axis {batch} of {x.shape}")
    order = (*sorted((time, batch)), *(d for d in range(rank) if d not in (time, batch)))
    shape = tuple(x.shape[d] for d in order)
    turned = node.inputs[0] if order == tuple(range(rank)) else node.turned(node.inputs[0], order)
    rows = node.reshaped(turned, (shape[0] * shape[1], *shape[2:]))
    places = np.indices(shape[:2])[:: 1 if time < batch else -1]  # time and batch of each row
    steps = (shape[1], 1)[:: 1 if time < batch else -1]
    if lengths.data is None:
        chosen = node.inner("gather", [rows, _reversed_index(node, places, steps)], axis=0, batch=0)
    else:
        count = lengths.data.astype(np.int64)
        if count.min(initial=0) < 0 or count.max(initial=0) > x.shape[time]:
            raise node.error(f"sequences of {sorted({*count.tolist()})} elements, of {x.shape[time]}")
        at, ends = places[0], count[places[1]]
        index = (np.where(at < ends, ends - 1 - at, at) * steps[0] + places[1] * steps[1]).ravel()
        tables = moving([index, *(range(n) for n in shape[2:])], node.builder.tensors[rows])
        chosen = node.inner("take", [rows], index=tables) if any(tables) else rows
    whole = node.reshaped(chosen, shape)
    node.emit("transpose", [whole], perm=tuple(order.index(d) for d in range(rank)))


def _reversed_index(node: Any, places: Array, steps: Sequence[int]) -> str:
    """Index of each row, of lengths that are computed."""
    shape = (1, -1) if steps[1] == 1 else (-1, 1)
    count = node.reshaped(node.inner("cast", node.inputs[1:2], to="int32"), tuple(
        places.shape[d + 1] if n < 0 else n for d, n in enumerate(shape)))  # fmt: skip
    at, past, others, step = (
        node.array(np.asarray(a, np.int32)) for a in (places[0], places[0] + 1, places[1] * steps[1], steps[0])
    )
    mirrored = node.inner("pointwise", [count, past], **pointwise.attributes("difference"))
    inside = node.inner("pointwise", [at, count], **{**pointwise.attributes("less"), "to": "bool"})
    row = node.inner("pointwise", [inside, mirrored, at], **{**pointwise.attributes("where"), "to": "int32"})
    scaled = node.inner("pointwise", [row, step], **pointwise.attributes("product"))
    index = node.inner("pointwise", [scaled, others], **pointwise.attributes("sum"))
    return str(node.reshaped(index, (places[0].size,)))


TFLITE = {"ONE_HOT": tflite_one_hot, "REVERSE_SEQUENCE": tflite_reversed_sequences}
ONNX = {
    "Compress": compressed,
    "GlobalLpPool": global_length_pool,
    "Hardmax": hard_max,
    "LpPool": length_pool,
    "OneHot": one_hot,
    "ReverseSequence": reversed_sequences,
    "Trilu": triangle,
}
