"""Operators that bring values to other places, read as `take` (tables of indices), `reshape` and `transpose`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, floor, prod
from typing import Any

import numpy as np

from ..ir import Array, Tensor
from .base import Spec, zero_of
from .take import SPEC as TAKE

MOST_PADDING = 1 << 15  # elements at an end of a dimension that is cut into parts

Index = Sequence[int] | Array


def _whole(x: Tensor) -> list[Index]:
    return [range(n) for n in x.shape]


def _take(node: Any, name: str, index: Sequence[Index], shape: Sequence[int] | None = None, output: int = 0) -> None:
    """The node's output: values of tensor `name` at these indices, under `shape` if that is another one."""
    x = node.builder.tensors[name]
    tables = tuple(tuple(int(i) for i in table) for table in index)
    own = tuple(map(len, tables))
    shape = own if shape is None else tuple(shape)
    if not all(map(len, tables)):  # as bodies of standard operators have, which join them with others
        y = replace(x, name=node.outputs[output], shape=shape, data=np.zeros(shape, x.dtype), origin=None)
        node.builder.tensors[y.name] = y
        return
    moved = moving(tables, x)
    if not any(moved):
        node.emit("reshape", [name], output=output, shape=shape)
    elif own == shape:
        node.emit("take", [name], output=output, index=moved)
    else:
        inner = node.inner("take", [name], index=moved)
        node.emit("reshape", [inner], output=output, shape=shape)


def moving(index: Sequence[Index], x: Tensor) -> tuple[tuple[int, ...] | None, ...]:
    """The attribute of `take`: dimensions that stay as they are have none."""
    tables = [tuple(int(i) for i in table) for table in index]
    return tuple(None if t == tuple(range(n)) else t for t, n in zip(tables, x.shape, strict=True))


def _numbers(node: Any, position: int, what: str) -> list[int]:
    return [int(n) for n in np.ravel(node.constant(position, what).data)]


def _maybe(node: Any, position: int, what: str) -> list[int] | None:
    given = len(node.inputs) > position and node.inputs[position]
    return _numbers(node, position, what) if given else None


def axis_of(node: Any, axis: int, rank: int) -> int:
    """An axis that may count from the end."""
    if not -rank <= axis < rank:
        raise node.error(f"axis {axis} of {rank} dimensions")
    return axis % rank


# Slices --------------------------------------------------------------------------------------


def onnx_slice(node: Any) -> None:
    """Starts, ends, axes and steps are operands from opset 10 on."""
    x = node.tensor(0)
    starts = _maybe(node, 1, "starts") or list(node.attr("starts", []))
    ends = _maybe(node, 2, "ends") or list(node.attr("ends", []))
    axes = _maybe(node, 3, "axes")
    axes = list(node.attr("axes", range(len(starts)))) if axes is None else axes
    steps = _maybe(node, 4, "steps") or [1] * len(starts)
    index = _whole(x)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        d = axis_of(node, axis, len(x.shape))
        if step == 0:
            raise node.error("step 0")
        last = end if end > -(2**31) + 1 else None
        index[d] = range(x.shape[d])[start : None if step < 0 and last is None else end : step]
    _take(node, node.inputs[0], index)


def tflite_slice(node: Any) -> None:
    x = node.tensor(0)
    begin, size = _numbers(node, 1, "begin"), _numbers(node, 2, "size")
    if min((*begin, *(s + 1 for s in size)), default=0) < 0:
        raise node.error(f"begins {begin}, sizes {size}", "a begin is at least 0, a size too, or -1 for the rest")
    index = [range(b, n if s < 0 else b + s) for b, s, n in zip(begin, size, x.shape, strict=True)]
    _take(node, node.inputs[0], index)


def tflite_strided_slice(node: Any) -> None:
    """Bits of the masks: begin and end that do not count, dimensions that are dropped, added or left out."""
    options, x = node.options("StridedSliceOptions"), node.tensor(0)
    begin, end, strides = (_numbers(node, i, what) for i, what in enumerate(("begin", "end", "strides"), start=1))
    if options.EllipsisMask() or options.NewAxisMask():
        raise node.error("ellipsis or new axes", "export with explicit slices")
    index = _whole(x)
    for d, (b, e, step) in enumerate(zip(begin, end, strides, strict=True)):
        if step == 0:
            raise node.error("stride 0")
        if options.ShrinkAxisMask() >> d & 1:
            index[d] = [axis_of(node, b, x.shape[d])]
            continue
        first = None if options.BeginMask() >> d & 1 else b
        past = None if options.EndMask() >> d & 1 else b + e if options.Offset() else e
        index[d] = range(x.shape[d])[first:past:step]
    _take(node, node.inputs[0], index, node.output_shape())


def _parts(node: Any, name: str, axis: int, sizes: Sequence[int]) -> None:
    """One slice for each output that is wanted."""
    x, start = node.builder.tensors[name], 0
    if sum(sizes) != x.shape[axis] or len(sizes) != len(node.outputs):
        raise node.error(f"parts {tuple(sizes)} of {x.shape[axis]} for {len(node.outputs)} outputs")
    for output, size in enumerate(sizes):
        index = _whole(x)
        index[axis] = range(start, start + size)
        start += size
        if node.outputs[output]:
            _take(node, name, index, output=output)


def onnx_split(node: Any) -> None:
    """Equal parts if no sizes are given; the last may be smaller."""
    x, count = node.tensor(0), len(node.outputs)
    axis = axis_of(node, node.attr("axis", 0), len(x.shape))
    sizes = _maybe(node, 1, "split") or list(node.attr("split", []))
    if not sizes:
        count = node.attr("num_outputs", count)
        each = ceil(x.shape[axis] / count)
        sizes = [min(each, x.shape[axis] - i * each) for i in range(count)]
    _parts(node, node.inputs[0], axis, sizes)


def tflite_split(node: Any) -> None:
    x, (axis,), count = node.tensor(1), _numbers(node, 0, "axis"), len(node.outputs)
    axis = axis_of(node, axis, len(x.shape))
    _parts(node, node.inputs[1], axis, [x.shape[axis] // count] * count)


def tflite_split_v(node: Any) -> None:
    x, sizes, (axis,) = node.tensor(0), _numbers(node, 1, "sizes"), _numbers(node, 2, "axis")
    axis = axis_of(node, axis, len(x.shape))
    rest = x.shape[axis] - sum(n for n in sizes if n >= 0)
    _parts(node, node.inputs[0], axis, [rest if n < 0 else n for n in sizes])


def tflite_unpack(node: Any) -> None:
    x = node.tensor(0)
    axis = axis_of(node, node.options("UnpackOptions").Axis(), len(x.shape))
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    for output in range(len(node.outputs)):
        index = _whole(x)
        index[axis] = [output]
        _take(node, node.inputs[0], index, shape, output)


def tflite_pack(node: Any) -> None:
    """Every operand with a new dimension, then all of them along it."""
    x, options = node.tensor(0), node.options("PackOptions")
    if options.ValuesCount() != len(node.inputs):
        raise node.error(f"{len(node.inputs)} operands, but a count of {options.ValuesCount()}")
    axis = axis_of(node, options.Axis(), len(x.shape) + 1)
    shape = (*x.shape[:axis], 1, *x.shape[axis:])
    views = [node.inner("reshape", [name], shape=shape) for name in node.inputs]
    node.emit("concat", views, axis=axis)


# Repetition ----------------------------------------------------------------------------------


def _expanded(node: Any, shape: Sequence[int]) -> None:
    x = node.tensor(0)
    try:
        shape = np.broadcast_shapes(tuple(shape), x.shape)
    except ValueError:
        raise node.error(f"shape {x.shape} cannot be broadcast to {tuple(shape)}") from None
    wide = (1,) * (len(shape) - len(x.shape)) + x.shape
    name = node.reshaped(node.inputs[0], wide)
    _take(node, name, [range(n) if n == m else [0] * n for n, m in zip(shape, wide, strict=True)])


def expand(node: Any) -> None:
    _expanded(node, _numbers(node, 1, "shape"))


def tile(node: Any) -> None:
    x = node.tensor(0)
    _take(
        node, node.inputs[0], [list(range(n)) * r for n, r in zip(x.shape, _numbers(node, 1, "repeats"), strict=True)]
    )


def tflite_reverse(node: Any) -> None:
    x, index = node.tensor(0), _whole(node.tensor(0))
    for axis in _numbers(node, 1, "axis"):
        d = axis_of(node, axis, len(x.shape))
        index[d] = range(x.shape[d])[::-1]
    _take(node, node.inputs[0], index)


def tflite_fill(node: Any) -> None:
    value = node.constant(1, "value")
    _filled(node, value, node.output_shape(), np.ravel(value.data)[0])


def tflite_zeros(node: Any) -> None:
    """TFLM stores zeros, whatever the zero point."""
    _filled(node, node.written[0], node.tensor(0).shape, 0)


def _filled(node: Any, like: Tensor, shape: tuple[int, ...], value: Any) -> None:
    """The node comes to a constant."""
    name, data = node.outputs[0], np.full(shape, value, like.dtype)
    node.builder.tensors[name] = Tensor(name, shape, like.dtype, like.quant, data)


# Blocks of space and depth -------------------------------------------------------------------


def _turned(node: Any, name: str, inner: Sequence[int], perm: Sequence[int], shape: Sequence[int]) -> None:
    """reshape(transpose(reshape(x, inner), perm), shape)."""
    view = node.reshaped(name, tuple(inner))
    turned = node.inner("transpose", [view], perm=tuple(perm))
    node.emit("reshape", [turned], shape=tuple(shape))


def _block(node: Any, block: int, *sizes: int) -> None:
    if block < 1 or any(n % block for n in sizes):
        raise node.error(f"blocks of {block} in {sizes}")


def onnx_depth_to_space(node: Any) -> None:
    (n, c, h, w), b = node.tensor(0).shape, node.attr("blocksize", 1)
    _block(node, b * b, c)
    if node.attr("mode", "DCR") == "DCR":
        inner, perm = (n, b, b, c // b**2, h, w), (0, 3, 4, 1, 5, 2)
    else:
        inner, perm = (n, c // b**2, b, b, h, w), (0, 1, 4, 2, 5, 3)
    _turned(node, node.inputs[0], inner, perm, (n, c // b**2, h * b, w * b))


def onnx_space_to_depth(node: Any) -> None:
    (n, c, h, w), b = node.tensor(0).shape, node.attr("blocksize", 1)
    _block(node, b, h, w)
    inner = (n, c, h // b, b, w // b, b)
    perm = (0, 3, 5, 1, 2, 4) if node.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    _turned(node, node.inputs[0], inner, perm, (n, c * b * b, h // b, w // b))


def tflite_depth_to_space(node: Any) -> None:
    (n, h, w, c), b = node.tensor(0).shape, node.options("DepthToSpaceOptions").BlockSize()
    _block(node, b * b, c)
    _turned(node, node.inputs[0], (n, h, w, b, b, c // b**2), (0, 1, 3, 2, 4, 5), (n, h * b, w * b, c // b**2))


def tflite_space_to_depth(node: Any) -> None:
    (n, h, w, c), b = node.tensor(0).shape, node.options("SpaceToDepthOptions").BlockSize()
    _block(node, b, h, w)
    _turned(node, node.inputs[0], (n, h // b, b, w // b, b, c), (0, 1, 3, 2, 4, 5), (n, h // b, w // b, c * b * b))


# Gathers by constants, and borders -----------------------------------------------------------


def taken_along(node: Any, axis: int, index: Array, shape: Sequence[int], name: str = "") -> None:
    """A gather whose indices are known, from tensor `name` or the first operand."""
    name = name or node.inputs[0]
    x = node.builder.tensors[name]
    index = np.where(index < 0, index + x.shape[axis], index)
    if index.min(initial=0) < 0 or index.max(initial=0) >= x.shape[axis]:
        raise node.error(f"index {int(index.max())} of dimension {axis}, which has {x.shape[axis]}")
    tables = _whole(x)
    tables[axis] = index.ravel()
    _take(node, name, tables, shape)


def bordered(node: Any, pads: Sequence[tuple[int, int]], mode: str) -> None:
    """A border that repeats, mirrors or continues the tensor, by numpy's name of the mode; negative: cut off."""
    x, index = node.tensor(0), list[Index]()
    for n, (before, after) in zip(x.shape, pads, strict=True):
        grown = max(before, 0), max(after, 0)
        if mode == "reflect" and max(grown) >= n > 1:
            raise node.error(f"a border of {max(grown)} that mirrors {n} elements")
        more: dict[str, Any] = {"constant_values": -1} if mode == "constant" else {}
        line: Array = np.pad(np.arange(n), grown, mode, **more)  # type: ignore[call-overload]
        index.append(line[max(-before, 0) : len(line) - max(-after, 0)])
    _take(node, node.inputs[0], index)


def tflite_mirror_pad(node: Any) -> None:
    pads = [(int(a), int(b)) for a, b in np.reshape(node.constant(1, "paddings").data, (-1, 2))]
    bordered(node, pads, "symmetric" if node.options("MirrorPadOptions").Mode() else "reflect")


def tflite_nearest(node: Any) -> None:
    """TFLM takes places in float32."""
    options, (n, h, w, c) = node.options("ResizeNearestNeighborOptions"), node.tensor(0).shape
    out = _numbers(node, 1, "size")
    index: list[Index] = [range(n)]
    for size, wanted in zip((h, w), out, strict=True):
        corners = options.AlignCorners() and wanted > 1
        scale = np.float32((size - 1) / np.float32(wanted - 1) if corners else size / np.float32(wanted))
        at = (np.arange(wanted, dtype=np.float32) + np.float32(0.5 if options.HalfPixelCenters() else 0)) * scale
        places = [floor(abs(v) + 0.5) if options.AlignCorners() else floor(v) for v in at.astype(np.float64)]
        index.append([max(0, min(size - 1, p)) for p in places])
    _take(node, node.inputs[0], [*index, range(c)])


def tflite_batch_to_space(node: Any) -> None:
    """Blocks are a list of factors of the batch; crops are cut off afterwards."""
    x, block = node.tensor(0), _numbers(node, 1, "block")
    crops = np.reshape(node.constant(2, "crops").data, (-1, 2))
    n, spatial, rest = x.shape[0] // prod(block), x.shape[1 : 1 + len(block)], x.shape[1 + len(block) :]
    count = len(block)
    view = node.reshaped(node.inputs[0], (*block, n, *spatial, *rest))
    perm = [count, *(p for d in range(count) for p in (count + 1 + d, d))]
    perm += range(1 + 2 * count, 1 + 2 * count + len(rest))
    turned = node.inner("transpose", [view], perm=tuple(perm))
    whole = (n, *(s * b for s, b in zip(spatial, block, strict=True)), *rest)
    index: list[Index] = [range(m) for m in whole]
    for d, (before, after) in enumerate(crops, start=1):
        index[d] = range(int(before), whole[d] - int(after))
    _take(node, node.reshaped(turned, whole), index)


def tflite_space_to_batch(node: Any) -> None:
    """TFLM pads with stored zeros, whatever the zero point. It cannot run a file that leaves the batch open: those are
    padded as TFLite does, with the zero point."""
    x, block = node.tensor(0), _numbers(node, 1, "block")
    pads = np.reshape(node.constant(2, "paddings").data, (-1, 2))
    count, index = len(block), _whole(x)
    if pads.min(initial=0) < 0 or pads.max(initial=0) > MOST_PADDING:
        raise node.error(f"paddings {pads.tolist()}", f"from 0 to {MOST_PADDING} elements are supported")
    for d, (before, after) in enumerate(pads, start=1):
        index[d] = [-1] * int(before) + list(range(x.shape[d])) + [-1] * int(after)
    value = zero_of(x) if node.outputs[0] in node.unsized else 0
    padded = node.inner("take", [node.inputs[0]], index=moving(index, x), value=value)
    shape = node.builder.tensors[padded].shape
    split = [m for n, b in zip(shape[1:], block, strict=False) for m in (n // b, b)]
    view = node.reshaped(padded, (shape[0], *split, *shape[1 + count :]))
    perm = [*(2 + 2 * d for d in range(count)), 0, *(1 + 2 * d for d in range(count))]
    perm += range(1 + 2 * count, 1 + 2 * count + len(shape) - 1 - count)
    turned = node.inner("transpose", [view], perm=tuple(perm))
    inside = [n // b for n, b in zip(shape[1:], block, strict=False)]
    node.emit("reshape", [turned], shape=(shape[0] * prod(block), *inside, *shape[1 + count :]))


SPEC: Spec = TAKE.reading(
    tflite={
        "SLICE": tflite_slice,
        "STRIDED_SLICE": tflite_strided_slice,
        "SPLIT": tflite_split,
        "SPLIT_V": tflite_split_v,
        "UNPACK": tflite_unpack,
        "PACK": tflite_pack,
        "BROADCAST_TO": expand,
        "TILE": tile,
        "REVERSE_V2": tflite_reverse,
        "FILL": tflite_fill,
        "ZEROS_LIKE": tflite_zeros,
        "DEPTH_TO_SPACE": tflite_depth_to_space,
        "SPACE_TO_DEPTH": tflite_space_to_depth,
        "MIRROR_PAD": tflite_mirror_pad,
        "RESIZE_NEAREST_NEIGHBOR": tflite_nearest,
        "BATCH_TO_SPACE_ND": tflite_batch_to_space,
        "SPACE_TO_BATCH_ND": tflite_space_to_batch,
    },
    onnx={
        "Slice": onnx_slice,
        "Split": onnx_split,
        "Expand": expand,
        "Tile": tile,
        "DepthToSpace": onnx_depth_to_space,
        "SpaceToDepth": onnx_space_to_depth,
    },
)
