"""Rows of the fuzzer's TFLite operators: those that bring values to other places."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from tests.graphs.tflite_models import TYPES
from tests.graphs.tflite_sparse import sparse

from .recipe import DoesNotFit
from .tflite_elements import BOTH, Make, Row, options_of, place
from .tflite_parts import FULL, Parts, Value


def _axis(w: Parts, x: Value) -> int:
    """One of the dimensions behind the batch."""
    if len(x.shape) < 2:
        raise DoesNotFit
    return w.s.between(1, len(x.shape) - 1)


def flatter(w: Parts, x: Value) -> Value:
    """An image as rows of pixels, so that there is room for one more dimension."""
    if len(x.shape) < 4:
        return x
    shape = (1, prod(x.shape[1:3]), x.shape[3])
    return w.emit("RESHAPE", [x, w.list_of(shape)], shape, x.quant)


def slice_(w: Parts, x: Value, *_: Value) -> Value:
    begin = [0, *(w.s.between(0, n - 1) for n in x.shape[1:])]
    size = [w.s.between(1, n - b) for n, b in zip(x.shape, begin, strict=True)]
    sizes = [w.s.pick(n, -1) if b + n == m else n for n, b, m in zip(size, begin, x.shape, strict=True)]
    return w.emit("SLICE", [x, w.list_of(begin), w.list_of(sizes)], size, x.quant)


def strided(w: Parts, x: Value, *_: Value) -> Value:
    """Steps of both signs, ends that count from behind or not at all, a dimension that is dropped."""
    rank, options = len(x.shape), schema.StridedSliceOptionsT()
    options.beginMask, options.endMask, options.shrinkAxisMask = (1 if rank > 1 else 0), (1 if rank > 1 else 0), 0
    begin, end, step = [0] * rank, [x.shape[0], *[0] * (rank - 1)], [1] * rank
    shape = [x.shape[0]]
    for d, n in enumerate(x.shape[1:], start=1):
        step[d] = w.s.pick(1, 1, 2, -1)
        begin[d], end[d] = (0, n) if step[d] > 0 else (n - 1, -n - 1)
        if w.s.pick(True, False):
            first, last = sorted((w.s.between(0, n - 1), w.s.between(0, n - 1)))
            begin[d], end[d] = (first, last + 1) if step[d] > 0 else (last, first - 1 if first else -n - 1)
        span = range(n)[begin[d] : end[d] if end[d] >= 0 else None : step[d]]
        if w.s.between(0, 5) == 0 and rank > 2 and options.shrinkAxisMask == 0:
            options.shrinkAxisMask, end[d], step[d] = 1 << d, begin[d] + 1, 1
        else:
            shape.append(len(span))
            begin[d] = begin[d] - n if w.s.between(0, 3) == 0 else begin[d]
    lists = [w.list_of(v) for v in (begin, end, step)]
    return w.emit("STRIDED_SLICE", [x, *lists], shape, x.quant, options)


def flattened(w: Parts, x: Value, *_: Value) -> Value:
    """Keras' Flatten of an open batch: the shape is computed from that of the operand."""
    picked, packed = schema.StridedSliceOptionsT(), schema.PackOptionsT()
    picked.beginMask, picked.endMask, picked.shrinkAxisMask, packed.valuesCount, packed.axis = 0, 0, 1, 2, 0
    size = w.emit("SHAPE", [x], [len(x.shape)], None, schema.ShapeOptionsT(), "int32", exact=True)
    lists = [w.list_of([n]) for n in (0, 1, 1)]
    batch = w.emit("STRIDED_SLICE", [size, *lists], [], None, picked, "int32")
    rest = prod(x.shape[1:])
    shape = w.emit("PACK", [batch, w.constant(np.array(rest, np.int32))], [2], None, packed, "int32")
    return w.emit("RESHAPE", [x, shape], [x.shape[0], rest], x.quant)


def split(w: Parts, x: Value, *_: Value) -> Value:
    axis = _axis(w, x)
    counts = [n for n in (2, 3, 4, x.shape[axis]) if x.shape[axis] % n == 0 and n <= 6]
    if not counts:
        raise DoesNotFit
    options, count = schema.SplitOptionsT(), w.s.pick(*counts)
    options.numSplits = count
    shape = [n // count if d == axis else n for d, n in enumerate(x.shape)]
    where = w.constant(np.array(w.s.pick(axis, axis - len(x.shape)), np.int32))
    return w.s.pick(*w.several("SPLIT", [where, x], [shape] * count, x.quant, options))


def split_v(w: Parts, x: Value, *_: Value) -> Value:
    axis = _axis(w, x)
    first, options = w.s.between(1, x.shape[axis]), schema.SplitVOptionsT()
    sizes = [n for n in (first, x.shape[axis] - first) if n]
    options.numSplits = len(sizes)
    shapes = [[n if d == axis else m for d, m in enumerate(x.shape)] for n in sizes]
    lengths = [*sizes[:-1], w.s.pick(sizes[-1], -1)]
    where = w.constant(np.array(axis, np.int32))
    return w.s.pick(*w.several("SPLIT_V", [x, w.list_of(lengths), where], shapes, x.quant, options))


def pack(w: Parts, x: Value, *others: Value) -> Value:
    x = flatter(w, x)
    y = next((y for y in others if y.shape == x.shape), None) or w.fresh(x.shape, x.quant)
    options = schema.PackOptionsT()
    options.axis, options.valuesCount = w.s.between(1, len(x.shape)), 2
    shape = (*x.shape[: options.axis], 2, *x.shape[options.axis :])
    return w.emit("PACK", [x, w.like(y, x.quant)], shape, x.quant, options)


def unpack(w: Parts, x: Value, *_: Value) -> Value:
    axis, options = _axis(w, x), schema.UnpackOptionsT()
    if x.shape[axis] > 6 or len(x.shape) < 3:
        raise DoesNotFit
    options.axis, options.num = axis, x.shape[axis]
    shape = [n for d, n in enumerate(x.shape) if d != axis]
    return w.s.pick(*w.several("UNPACK", [x], [shape] * options.num, x.quant, options))


def broadcast(w: Parts, x: Value, *_: Value) -> Value:
    shape = (x.shape[0], *(w.s.between(1, 4) if n == 1 else n for n in x.shape[1:]))
    return w.emit("BROADCAST_TO", [x, w.list_of(shape)], shape, x.quant)


def tile(w: Parts, x: Value, *_: Value) -> Value:
    """For TFLM, the value beside itself."""
    axis, count = _axis(w, x), w.sizes.of("copies", w.s.between(1, 3))
    shape = [n * count if d == axis else n for d, n in enumerate(x.shape)]
    if w.twin:
        options = schema.ConcatenationOptionsT()
        options.axis = axis
        return w.emit("CONCATENATION", [x] * count, shape, x.quant, options)
    return w.emit("TILE", [x, w.list_of([count if d == axis else 1 for d in range(len(shape))])], shape, x.quant)


def reverse(w: Parts, x: Value, *_: Value) -> Value:
    return w.emit("REVERSE_V2", [x, w.list_of([_axis(w, x)])], x.shape, x.quant)


def reversed_sequence(w: Parts, x: Value, *_: Value) -> Value:
    """The first elements of a dimension, in the other order. For TFLM they are cut off, turned and put back."""
    axis = _axis(w, x)
    options, length = schema.ReverseSequenceOptionsT(), w.s.between(1, x.shape[axis])
    options.seqDim, options.batchDim = axis, 0
    if not w.twin:
        return w.emit("REVERSE_SEQUENCE", [x, w.list_of([length] * x.shape[0])], x.shape, x.quant, options)
    parts = []
    for begin, size in ((0, length), (length, x.shape[axis] - length)):
        if size:
            shape = [size if d == axis else n for d, n in enumerate(x.shape)]
            at = [begin if d == axis else 0 for d in range(len(shape))]
            parts.append(w.emit("SLICE", [x, w.list_of(at), w.list_of(shape)], shape, x.quant))
    parts[0] = w.emit("REVERSE_V2", [parts[0], w.list_of([axis])], parts[0].shape, x.quant)
    joined = schema.ConcatenationOptionsT()
    joined.axis = axis
    return w.emit("CONCATENATION", parts, x.shape, x.quant, joined)


def densified(w: Parts, x: Value, *_: Value) -> Value:
    """The larger of a real value and a sparse constant, which is a dense one for TFLM."""
    if not w.real:
        raise DoesNotFit
    shape = x.shape[1:] if len(x.shape) > 1 else x.shape
    data = (w.s.rng.normal(size=shape) * (w.s.rng.random(shape) < 0.4)).astype(np.float32)
    data.flat[0] = 1  # a buffer without bytes is no constant
    if w.twin:
        constant: Value | int = w.constant(data)
    else:
        sparsity, values = sparse(data, list(range(len(shape))), {}, {len(shape) - 1})
        stored = w.file.tensor(f"c{len(w.file.tensors)}", shape, "float32", None, values)
        w.file.tensors[stored].sparsity = sparsity
        dense = w.file.tensor(f"t{len(w.file.tensors)}", shape, "float32")
        w.file.operator("DENSIFY", [stored], [dense], schema.DensifyOptionsT())
        constant = dense
    return w.emit("MAXIMUM", [x, constant], x.shape, x.quant, options_of("MAXIMUM"))


def fill(w: Parts, x: Value, *_: Value) -> Value:
    """The larger of a value and a filled tensor."""
    if x.quant is None:
        value = w.constant(np.array(0.25, np.float32))
    else:
        value = w.constant(np.array(w.s.between(*FULL[w.kind]), w.kind), x.quant)
    filled = w.emit("FILL", [w.list_of(x.shape), value], x.shape, x.quant)
    return w.emit("MAXIMUM", [x, filled], x.shape, x.quant, options_of("MAXIMUM"))


def pad(name: str) -> Make:
    def make(w: Parts, x: Value, *_: Value) -> Value:
        pads = [(0, 0), *(w.s.pair(0, 2) for _ in x.shape[1:])]
        pads = [tuple(w.sizes.of(f"pad {d} {i}", n) for i, n in enumerate(p)) for d, p in enumerate(pads)]
        if w.s.between(0, 3) and len(pads) == 4:
            pads[3] = (0, 0)
        shape = [n + sum(p) for n, p in zip(x.shape, pads, strict=True)]
        operands: list[Value | int] = [x, w.list_of(pads)]
        if name == "PADV2":
            whole = np.array([0.5], np.float32) if w.real else np.array([w.s.between(*FULL[w.kind])], w.kind)
            operands.append(w.constant(whole, x.quant))
        return w.emit(name, operands, shape, x.quant)

    return make


def mirror(w: Parts, x: Value, *_: Value) -> Value:
    options = schema.MirrorPadOptionsT()
    options.mode = w.s.pick(0, 1)
    most = [min(2, n - 1 + options.mode) for n in x.shape]
    pads = [(0, 0), *(w.s.pair(0, m) for m in most[1:])]
    shape = [n + sum(p) for n, p in zip(x.shape, pads, strict=True)]
    return w.emit("MIRROR_PAD", [x, w.list_of(pads)], shape, x.quant, options)


def blocks(name: str) -> Make:
    def make(w: Parts, x: Value, *_: Value) -> Value:
        h, v, c = w.image(x)
        if name == "SPACE_TO_DEPTH":
            sizes = [n for n in (2, 3) if h % n == 0 and v % n == 0]
            options: Any = schema.SpaceToDepthOptionsT()
        else:
            sizes = [n for n in (2, 3) if c % n**2 == 0]
            options = schema.DepthToSpaceOptionsT()
        if not sizes:
            raise DoesNotFit
        n = options.blockSize = w.s.pick(*sizes)
        deep = (1, h // n, v // n, c * n * n) if name == "SPACE_TO_DEPTH" else (1, h * n, v * n, c // n**2)
        return w.emit(name, [x], deep, x.quant, options)

    return make


def batches(w: Parts, x: Value, *_: Value) -> Value:
    """There and back, as a dilated convolution is written; with what it pads and crops."""
    h, v, c = w.image(x)
    n = w.sizes.of("block", w.s.between(1, 3))
    pads = [[0, -m % n + w.s.pick(0, n)] for m in (h, v)]
    rows, columns = h + pads[0][1], v + pads[1][1]
    block = w.list_of([n, n])
    shape = (n * n, rows // n, columns // n, c)
    y = w.emit("SPACE_TO_BATCH_ND", [x, block, w.list_of(pads)], shape, x.quant)
    y = w.emit("RELU", [y], y.shape, y.quant) if w.s.pick(True, False) else y
    crops = [[w.s.between(0, min(1, m - 1)), w.s.between(0, min(1, m // 2))] for m in (rows, columns)]
    crops = [[a, b] if a + b < m else [0, 0] for (a, b), m in zip(crops, (rows, columns), strict=True)]
    shape = (1, rows - sum(crops[0]), columns - sum(crops[1]), c)
    return w.emit("BATCH_TO_SPACE_ND", [y, block, w.list_of(crops)], shape, x.quant)


def resized(name: str) -> Make:
    def make(w: Parts, x: Value, *_: Value) -> Value:
        _, _, c = w.image(x)
        size = [w.sizes.of(f"size {d}", n) for d, n in enumerate(w.s.pair(1, 20))]
        bilinear = name == "RESIZE_BILINEAR"
        options: Any = schema.ResizeBilinearOptionsT() if bilinear else schema.ResizeNearestNeighborOptionsT()
        options.alignCorners, options.halfPixelCenters = w.s.pick((False, False), (True, False), (False, True))
        return w.emit(name, [x, w.list_of(size)], (1, *size, c), x.quant, options, exact=x.exact and not bilinear)

    return make


def transpose(w: Parts, x: Value, *_: Value) -> Value:
    perm = [0, *(1 + int(p) for p in w.s.rng.permutation(len(x.shape) - 1))]
    return w.emit("TRANSPOSE", [x, w.list_of(perm)], [x.shape[p] for p in perm], x.quant)


def expand_dims(w: Parts, x: Value, *_: Value) -> Value:
    x = flatter(w, x)
    axis = w.s.between(1, len(x.shape))
    position = w.s.pick(axis, axis - len(x.shape) - 1)
    return w.emit("EXPAND_DIMS", [x, w.list_of([position])], (*x.shape[:axis], 1, *x.shape[axis:]), x.quant)


def squeeze(w: Parts, x: Value, *_: Value) -> Value:
    ones = [d for d in range(1, len(x.shape)) if x.shape[d] == 1]
    if not ones:
        raise DoesNotFit
    options = schema.SqueezeOptionsT()
    options.squeezeDims = ones
    return w.emit("SQUEEZE", [x], [n for d, n in enumerate(x.shape) if d not in ones], x.quant, options)


def gather(w: Parts, x: Value, *_: Value) -> Value:
    """Known rows of the value, or computed rows of a constant table."""
    options = schema.GatherOptionsT()
    if w.s.pick(True, False):
        index, count = place(w, "ARG_MAX", x)
        columns = tuple(w.s.between(1, 4) for _ in range(4 - len(index.shape)))[:2]
        table = w.filled((count, *columns))
        return w.emit("GATHER", [table, index], (*index.shape, *columns), table.quant, options)
    axis = _axis(w, x)
    options.axis = axis
    indices = w.s.rng.integers(0, x.shape[axis], w.s.between(1, 5)).astype(np.int32)
    shape = (*x.shape[:axis], len(indices), *x.shape[axis + 1 :])
    return w.emit("GATHER", [x, w.constant(indices)], shape, x.quant, options)


def gather_nd(w: Parts, x: Value, *_: Value) -> Value:
    """Known places of the value's first dimensions, or computed rows of a constant table."""
    if len(x.shape) < 2:
        raise DoesNotFit
    if w.s.pick(True, False):
        index, count = place(w, "ARG_MIN", x)
        wide = (*index.shape, 1)
        index = w.emit("RESHAPE", [index, w.list_of(wide)], wide, None, None, "int32", exact=True)
        table = w.filled((count, w.s.between(1, 4)))
        return w.emit("GATHER_ND", [table, index], (*wide[:-1], table.shape[1]), table.quant)
    depth, many = w.s.between(1, len(x.shape)), w.s.between(1, 5)
    indices = np.stack([w.s.rng.integers(0, n, (1, many)) for n in x.shape[:depth]], axis=-1).astype(np.int32)
    return w.emit("GATHER_ND", [x, w.constant(indices)], (1, many, *x.shape[depth:]), x.quant)


def updated(w: Parts, x: Value, *_: Value) -> Value:
    """A part put into the value, at a known place or where the largest of some numbers is."""
    if len(x.shape) < 2:
        raise DoesNotFit
    part = w.fresh([1 if d == 0 else w.s.between(1, n) for d, n in enumerate(x.shape)], x.quant)
    start: Value | int = w.list_of([w.s.between(0, n) for n in x.shape])
    if w.s.pick(True, False):
        scores = w.given((len(x.shape), w.s.between(1, max(x.shape))), None, "float32")
        options = schema.ArgMaxOptionsT()
        options.outputType = TYPES["int32"]
        start = w.emit(
            "ARG_MAX", [scores, w.constant(np.array(1, np.int32))], (len(x.shape),), None, options, "int32", True
        )
    return w.emit("DYNAMIC_UPDATE_SLICE", [x, part, start], x.shape, x.quant)


MOVES = {
    "SLICE": Row(slice_),
    "STRIDED_SLICE": Row(strided),
    "SHAPE": Row(flattened),
    "SPLIT": Row(split),
    "SPLIT_V": Row(split_v),
    "PACK": Row(pack),
    "UNPACK": Row(unpack),
    "BROADCAST_TO": Row(broadcast),
    "TILE": Row(tile),
    "REVERSE_V2": Row(reverse),
    "REVERSE_SEQUENCE": Row(reversed_sequence, BOTH),
    "DENSIFY": Row(densified, BOTH),
    "FILL": Row(fill, BOTH),
    "PAD": Row(pad("PAD")),
    "PADV2": Row(pad("PADV2")),
    "MIRROR_PAD": Row(mirror, BOTH),
    "SPACE_TO_DEPTH": Row(blocks("SPACE_TO_DEPTH"), BOTH),
    "DEPTH_TO_SPACE": Row(blocks("DEPTH_TO_SPACE"), BOTH),
    "SPACE_TO_BATCH_ND": Row(batches, BOTH),
    "RESIZE_NEAREST_NEIGHBOR": Row(resized("RESIZE_NEAREST_NEIGHBOR")),
    "RESIZE_BILINEAR": Row(resized("RESIZE_BILINEAR"), BOTH),
    "TRANSPOSE": Row(transpose),
    "EXPAND_DIMS": Row(expand_dims),
    "SQUEEZE": Row(squeeze),
    "GATHER": Row(gather, BOTH),
    "GATHER_ND": Row(gather_nd, BOTH),
    "DYNAMIC_UPDATE_SLICE": Row(updated, BOTH),
}
