"""Readers of TFLite operators that bring values to other places: views, slices, joins, gathers, resizes, blocks."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor, prod
from typing import Any

import numpy as np

from ...ir import Array, real_values
from ...ops import base, resampling
from ...ops.base import is_float, zero_of
from .. import compose
from .tflite_layers import activation_of

MOST_PADDING = 1 << 15  # elements at an end of a dimension that is cut into parts


def read_slice(node: Any) -> None:
    x = node.tensor(0)
    begin, size = node.numbers(1, "begin"), node.numbers(2, "size")
    if min((*begin, *(s + 1 for s in size)), default=0) < 0:
        raise node.error(f"begins {begin}, sizes {size}", "a begin is at least 0, a size too, or -1 for the rest")
    index = [range(b, n if s < 0 else b + s) for b, s, n in zip(begin, size, x.shape, strict=True)]
    compose.values_at(node, node.inputs[0], index)


def read_strided_slice(node: Any) -> None:
    """Bits of the masks: begin and end that do not count, dimensions that are dropped, added or left out."""
    options, x = node.options("StridedSliceOptions"), node.tensor(0)
    begin, end, strides = (node.numbers(i, what) for i, what in enumerate(("begin", "end", "strides"), start=1))
    if options.EllipsisMask() or options.NewAxisMask():
        raise node.error("ellipsis or new axes", "export with explicit slices")
    index = compose.whole_index(x)
    for d, (b, e, step) in enumerate(zip(begin, end, strides, strict=True)):
        if step == 0:
            raise node.error("stride 0")
        if options.ShrinkAxisMask() >> d & 1:
            index[d] = [compose.axis_of(node, b, x.shape[d])]
            continue
        first = None if options.BeginMask() >> d & 1 else b
        past = None if options.EndMask() >> d & 1 else b + e if options.Offset() else e
        index[d] = range(x.shape[d])[first:past:step]
    compose.values_at(node, node.inputs[0], index, node.written[0].shape)


def read_split(node: Any) -> None:
    x, (axis,), count = node.tensor(1), node.numbers(0, "axis"), len(node.outputs)
    axis = compose.axis_of(node, axis, len(x.shape))
    compose.parts_along(node, node.inputs[1], axis, [x.shape[axis] // count] * count)


def read_split_v(node: Any) -> None:
    x, sizes, (axis,) = node.tensor(0), node.numbers(1, "sizes"), node.numbers(2, "axis")
    axis = compose.axis_of(node, axis, len(x.shape))
    rest = x.shape[axis] - sum(n for n in sizes if n >= 0)
    compose.parts_along(node, node.inputs[0], axis, [rest if n < 0 else n for n in sizes])


def read_unpack(node: Any) -> None:
    x = node.tensor(0)
    axis = compose.axis_of(node, node.options("UnpackOptions").Axis(), len(x.shape))
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    for output in range(len(node.outputs)):
        index = compose.whole_index(x)
        index[axis] = [output]
        compose.values_at(node, node.inputs[0], index, shape, output)


def read_pack(node: Any) -> None:
    """Every operand with a new dimension, then all of them along it."""
    options = node.options("PackOptions")
    if options.ValuesCount() != len(node.inputs):
        raise node.error(f"{len(node.inputs)} operands, but a count of {options.ValuesCount()}")
    compose.stacked(node, options.Axis())


def read_fill(node: Any) -> None:
    """The node comes to a constant."""
    value = node.constant(1, "value")
    node.store(node.outputs[0], np.full(node.written[0].shape, np.ravel(value.data)[0], value.dtype), value.quant)


def read_zeros_like(node: Any) -> None:
    """TFLM stores zeros, whatever the zero point."""
    node.store(node.outputs[0], np.zeros(node.tensor(0).shape, node.written[0].dtype), node.written[0].quant)


def read_depth_to_space(node: Any) -> None:
    (n, h, w, c), b = node.tensor(0).shape, node.options("DepthToSpaceOptions").BlockSize()
    compose.check_blocks(node, b * b, c)
    inner, shape = (n, h, w, b, b, c // b**2), (n, h * b, w * b, c // b**2)
    compose.rearranged(node, node.inputs[0], inner, (0, 1, 3, 2, 4, 5), shape)


def read_space_to_depth(node: Any) -> None:
    (n, h, w, c), b = node.tensor(0).shape, node.options("SpaceToDepthOptions").BlockSize()
    compose.check_blocks(node, b, h, w)
    inner, shape = (n, h // b, b, w // b, b, c), (n, h // b, w // b, c * b * b)
    compose.rearranged(node, node.inputs[0], inner, (0, 1, 3, 2, 4, 5), shape)


def read_mirror_pad(node: Any) -> None:
    pads = compose.pairs(np.reshape(node.constant(1, "paddings").data, (-1, 2)))
    compose.bordered(node, pads, "symmetric" if node.options("MirrorPadOptions").Mode() else "reflect")


def read_nearest(node: Any) -> None:
    """TFLM takes places in float32."""
    options, (n, h, w, c) = node.options("ResizeNearestNeighborOptions"), node.tensor(0).shape
    out = node.numbers(1, "size")
    node.check_size((n, *out, c), node.tensor(0).dtype)
    index: list[compose.Index] = [range(n)]
    for size, wanted in zip((h, w), out, strict=True):
        corners = options.AlignCorners() and wanted > 1
        scale = np.float32((size - 1) / np.float32(wanted - 1) if corners else size / np.float32(wanted))
        at = (np.arange(wanted, dtype=np.float32) + np.float32(0.5 if options.HalfPixelCenters() else 0)) * scale
        places = [floor(abs(v) + 0.5) if options.AlignCorners() else floor(v) for v in at.astype(np.float64)]
        index.append([max(0, min(size - 1, p)) for p in places])
    compose.values_at(node, node.inputs[0], [*index, range(c)])


def read_batch_to_space(node: Any) -> None:
    """Blocks are a list of factors of the batch; crops are cut off afterwards."""
    x, block = node.tensor(0), node.numbers(1, "block")
    crops = np.reshape(node.constant(2, "crops").data, (-1, 2))
    n, spatial, rest = x.shape[0] // prod(block), x.shape[1 : 1 + len(block)], x.shape[1 + len(block) :]
    count = len(block)
    view = node.reshaped(node.inputs[0], (*block, n, *spatial, *rest))
    perm = [count, *(p for d in range(count) for p in (count + 1 + d, d))]
    perm += range(1 + 2 * count, 1 + 2 * count + len(rest))
    turned = node.inner("transpose", [view], perm=tuple(perm))
    whole = (n, *(s * b for s, b in zip(spatial, block, strict=True)), *rest)
    index: list[compose.Index] = [range(m) for m in whole]
    for d, (before, after) in enumerate(crops, start=1):
        index[d] = range(int(before), whole[d] - int(after))
    compose.values_at(node, node.reshaped(turned, whole), index)


def read_space_to_batch(node: Any) -> None:
    """TFLM pads with stored zeros, whatever the zero point. It cannot run a file that leaves the batch open: those are
    padded as TFLite does, with the zero point."""
    x, block = node.tensor(0), node.numbers(1, "block")
    pads = np.reshape(node.constant(2, "paddings").data, (-1, 2))
    count, index = len(block), compose.whole_index(x)
    if pads.min(initial=0) < 0 or pads.max(initial=0) > MOST_PADDING:
        raise node.error(f"paddings {pads.tolist()}", f"from 0 to {MOST_PADDING} elements are supported")
    for d, (before, after) in enumerate(pads, start=1):
        index[d] = [-1] * int(before) + list(range(x.shape[d])) + [-1] * int(after)
    value = zero_of(x) if node.outputs[0] in node.unsized else 0
    padded = node.inner("take", [node.inputs[0]], index=compose.moving(index, x), value=value)
    shape = node.builder.tensors[padded].shape
    split = [m for n, b in zip(shape[1:], block, strict=False) for m in (n // b, b)]
    view = node.reshaped(padded, (shape[0], *split, *shape[1 + count :]))
    perm = [*(2 + 2 * d for d in range(count)), 0, *(1 + 2 * d for d in range(count))]
    perm += range(1 + 2 * count, 1 + 2 * count + len(shape) - 1 - count)
    turned = node.inner("transpose", [view], perm=tuple(perm))
    inside = [n // b for n, b in zip(shape[1:], block, strict=False)]
    node.emit("reshape", [turned], shape=(shape[0] * prod(block), *inside, *shape[1 + count :]))


def read_reshape(node: Any) -> None:
    """The shape is the file's; where that leaves the batch open, the one that is an operand."""
    shape = node.written[0].shape
    if len(node.inputs) > 1 and node.tensor(1).data is not None:
        shape = node.open_shape([int(n) for n in np.ravel(node.tensor(1).data)])
    node.emit("reshape", node.inputs[:1], shape=shape)


def read_ones(node: Any) -> None:
    """SQUEEZE and EXPAND_DIMS: sizes of 1 go or come; a batch that is left open stays what it is."""
    x, shape = node.tensor(0).shape, node.written[0].shape
    node.emit("reshape", node.inputs[:1], shape=node.open_shape((-1, *shape[1:])) if x and shape else shape)


def read_shape(node: Any) -> None:
    """All shapes are static, so this is a constant. An open batch is 1 in the file."""
    shape = np.array(node.tensor(0).shape, node.written[0].dtype)
    node.builder.tensors[node.outputs[0]] = replace(node.written[0], data=shape)


def read_broadcast(node: Any) -> None:
    """The shape of two together."""
    shapes = [tuple(np.ravel(node.constant(i, "shape").data)) for i in range(2)]
    together = np.array(np.broadcast_shapes(*shapes), node.written[0].dtype)
    node.builder.tensors[node.outputs[0]] = replace(node.written[0], data=together)


def read_densify(node: Any) -> None:
    """Sparse constants are dense ever since they were read."""
    x = node.constant(0, "tensor")
    node.builder.tensors[node.outputs[0]] = replace(x, name=node.outputs[0])


def read_concat(node: Any) -> None:
    """The kernel of uint8 brings operands to the result's scale. Those of int8 and int16 move integers."""
    if activation_of(node, "ConcatenationOptions") != (None, None):
        raise node.error("fused activation", "apply the activation to the operands")
    scale, parts = node.written[0].quant, list[str]()
    for i, name in enumerate(node.inputs):
        if (x := node.tensor(i)).elements:
            rescaled = name in node.legacy and x.quant != scale
            parts.append(node.inner("requantize", [name], scale) if rescaled else name)
    axis = node.options("ConcatenationOptions").Axis()
    node.emit("concat", parts, axis=compose.axis_of(node, axis, len(node.tensor(0).shape)))


def read_pad(node: Any) -> None:
    """TFLM's border without a value is the zero point of the result, whatever the operand's is; of int16 it is 0."""
    pads = np.asarray(node.constant(1, "paddings").data).reshape(-1, 2)
    if len(node.inputs) > 2:
        fill = node.constant(2, "value")
        compose.padded(node, compose.pairs(pads), np.ravel(fill.data)[0].item())
    else:
        x, quant = node.tensor(0), node.written[0].quant
        zero = 0 if quant is None or x.dtype == "int16" else quant.zero_point[0]
        compose.padded(node, compose.pairs(pads), None if zero == zero_of(x) else zero)


def read_embedding_lookup(node: Any) -> None:
    """Rows of a table, which is the second operand; one of int8 with real results is read as real numbers."""
    table, index = node.tensor(1), node.inputs[0]
    real = table.data is not None and table.quant is not None and node.written[0].dtype == "float32"
    node.inputs = [node.array(real_values(table)) if real else node.inputs[1], index]
    compose.gathered(node, 0, 0)


def read_update_slice(node: Any) -> None:
    """DYNAMIC_UPDATE_SLICE: a part put to a place that is kept such that all of the part is inside."""
    x, part, start = (node.tensor(i) for i in range(3))
    if len(part.shape) != len(x.shape) or any(n > m for n, m in zip(part.shape, x.shape, strict=True)):
        raise node.error(f"a part of shape {part.shape} in {x.shape}", "as many dimensions, and none of them larger")
    depth = max((d + 1 for d, n in enumerate(part.shape) if n < x.shape[d]), default=0)
    if start.elements != len(x.shape) or not depth:
        return node.emit("reshape", node.inputs[1:2], shape=x.shape)
    steps = np.array(base.steps(x.shape[:depth]), np.int32)
    rest = np.tensordot(steps, np.indices(part.shape[:depth]), 1).ravel()
    most = np.array([m - n for m, n in zip(x.shape, part.shape, strict=True)][:depth], np.int32)
    table = prod(x.shape[:depth]), prod(x.shape[depth:])
    if start.data is not None:
        places: Array | str = (np.clip(start.data[:depth], 0, most) * steps).sum() + rest
        return compose.scattered(node, places, table, 1, "none")
    name = node.inner("take", [node.inputs[2]], index=(tuple(range(depth)),))
    name = name if start.dtype == "int32" else node.inner("cast", [name], to="int32")
    for function, bound in (("maximum", np.zeros(depth, np.int32)), ("minimum", most), ("product", steps)):
        name = node.apply(function, name, node.array(bound))
    total = node.reshaped(node.inner("reduce_sum", [name], axes=(0,)), (1,))
    places = node.apply("sum", total, node.array(rest.astype(np.int32)))
    compose.scattered(node, places, table, 1, "none")


def read_bilinear(node: Any) -> None:
    """Neighbours and weights of float32 are those of TFLM (kernels/internal/reference/resize_bilinear.h)."""
    options, x = node.options("ResizeBilinearOptions"), node.tensor(0)
    size = node.numbers(1, "size")
    if not is_float(x):
        ends = bool(options.AlignCorners()), bool(options.HalfPixelCenters())
        rows, columns = (resampling.table(n, m, *ends) for n, m in zip(x.shape[1:3], size, strict=True))
        return node.emit("bilinear", node.inputs[:1], rows=rows, columns=columns)
    passes = []
    for axis, m in enumerate(size, start=1):
        n = x.shape[axis]
        corners = options.AlignCorners() and m > 1
        step = np.float32(n - 1) / np.float32(m - 1) if corners else np.float32(n) / np.float32(m)
        half = 0.5 if options.HalfPixelCenters() else 0.0
        line = [float((i + half) * step - half) for i in range(m)]
        index = [[max(floor(at), 0), max(min(ceil(at), n - 1), 0)] for at in line]
        weight = [[1 - (at - first), at - first] for at, (first, _) in zip(line, index, strict=True)]
        if n != m:
            passes.append((axis, index, weight, [0.0] * m))
    compose.blended(node, passes)


def read_one_hot(node: Any) -> None:
    """`on` where the place along the new axis is the index, else `off`; indices do not count from the end."""
    x, rank, (_, _, on, off) = node.tensor(0), len(node.tensor(0).shape) + 1, node.inputs
    axis = compose.axis_of(node, node.options("OneHotOptions").Axis(), rank)
    depth = node.numbers(1, "depth")[0]
    if depth < 1:
        raise node.error(f"depth {depth}", "at least 1")
    for position, what in ((2, "on"), (3, "off")):
        value = node.tensor(position)
        if value.elements != 1 or value.dtype != node.written[0].dtype or value.quant != node.written[0].quant:
            raise node.error(f"{what} is {value.dtype} of shape {value.shape}", "one number like those of the result")
    index = node.reshaped(node.inputs[0], (*x.shape[:axis], 1, *x.shape[axis:]))
    compose.chosen(node, compose.is_place(node, index, axis, depth), on, off, node.written[0].dtype)
