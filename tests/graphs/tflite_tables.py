"""Random .tflite files of one operator: functions of elements, and what moves elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Quant

from .tflite_models import INDEX_ROWS, OPERATORS, TYPES, Draft, mean

TYPES |= {"bool": 6}
BYTE = Quant((1 / 256,), (-128,))

# ---- of every element by itself

# int8 to int8; a quantisation of the result where TFLM wants that one
INT8: dict[str, Quant | None] = {
    "ABS": None,
    "LOGISTIC": BYTE,
    "TANH": Quant((1 / 128,), (0,)),
    "HARD_SWISH": None,
    "LEAKY_RELU": None,
    "ELU": None,
    "RSQRT": None,
}
EXACT = ("ABS", "CEIL", "FLOOR", "NEG", "ROUND", "SQUARE")
SMOOTH = ("COS", "ELU", "EXP", "LOG", "LOGISTIC", "RSQRT", "SIN", "SQRT", "TANH", "HARD_SWISH", "LEAKY_RELU")
OPTIONS: dict[str, Any] = {
    "ABS": schema.AbsOptionsT,
    "COS": schema.CosOptionsT,
    "EXP": schema.ExpOptionsT,
    "HARD_SWISH": schema.HardSwishOptionsT,
    "NEG": schema.NegOptionsT,
    "SQUARE": schema.SquareOptionsT,
    "SUB": schema.SubOptionsT,
    "DIV": schema.DivOptionsT,
    "MAXIMUM": schema.MaximumMinimumOptionsT,
    "MINIMUM": schema.MaximumMinimumOptionsT,
    "SQUARED_DIFFERENCE": schema.SquaredDifferenceOptionsT,
    "FLOOR_DIV": schema.FloorDivOptionsT,
    "FLOOR_MOD": schema.FloorModOptionsT,
    "EQUAL": schema.EqualOptionsT,
    "NOT_EQUAL": schema.NotEqualOptionsT,
    "GREATER": schema.GreaterOptionsT,
    "GREATER_EQUAL": schema.GreaterEqualOptionsT,
    "LESS": schema.LessOptionsT,
    "LESS_EQUAL": schema.LessEqualOptionsT,
    "LOGICAL_AND": schema.LogicalAndOptionsT,
    "LOGICAL_OR": schema.LogicalOrOptionsT,
    "LOGICAL_NOT": schema.LogicalNotOptionsT,
    "SELECT_V2": schema.SelectV2OptionsT,
    "SELECT": schema.SelectOptionsT,
}
COMPARISONS = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")


def _options(f: Draft, name: str) -> Any:
    if name == "LEAKY_RELU":
        leaky = schema.LeakyReluOptionsT()
        leaky.alpha = f.s.pick(0.1, 0.01, 0.5, 1.5)
        return leaky
    return OPTIONS[name]() if name in OPTIONS else None


def unary(name: str) -> Callable[[Draft], bytes]:
    def make(f: Draft) -> bytes:
        shape, q = f.shape(), f.quant(float(np.float32(2.0 ** -f.s.between(2, 7) * f.s.rng.uniform(1, 2))))
        if name == "RSQRT":  # of what is not negative: TFLM stops at a negative number
            q = Quant(q.scale, (-128,))
        y = INT8[name] or f.s.pick(q, f.quant(float(np.float32(q.scale[0] * f.s.rng.uniform(0.3, 2)))))
        return f.done(name, [f.input(shape, q)], shape, y, _options(f, name))

    return make


def real(name: str) -> Callable[[Draft], bytes]:
    """Float; the square of the input where a function wants what is not negative."""

    def make(f: Draft) -> bytes:
        shape = f.shape()
        x = f.input(shape, None, "float32")
        if name not in ("LOG", "SQRT", "RSQRT"):
            return f.done(name, [x], shape, None, _options(f, name), "float32")
        squared = f.tensor("squared", shape, "float32")
        f.operator("SQUARE", [x], [squared], schema.SquareOptionsT())
        y = f.tensor("y", shape, "float32")
        f.operator(name, [squared], [y], _options(f, name))
        return f.pack([x], [y])

    return make


def _two(f: Draft) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = f.shape()
    return shape, f.s.pick(shape, shape, tuple(f.s.pick(1, n) for n in shape))


def binary(name: str) -> Callable[[Draft], bytes]:
    """int8; operands of one scale where the operator cannot change it."""

    def make(f: Draft) -> bytes:
        shape, other = _two(f)
        q = f.quant(float(np.float32(2.0 ** -f.s.between(3, 6) * f.s.rng.uniform(1, 2))))
        same = name in ("MAXIMUM", "MINIMUM")
        p = q if same else f.quant(float(np.float32(q.scale[0] * f.s.rng.uniform(0.3, 3))))
        wide = 256 if f.s.integer == "int16" else 1
        factor = {"SUB": 2.0, "SQUARED_DIFFERENCE": 200 * wide * q.scale[0]}.get(name, 1.0)
        y = q if same else f.quant(float(np.float32(q.scale[0] * factor * f.s.rng.uniform(0.5, 2))))
        operands = [f.input(shape, q), f.input(other, p)]
        if name in COMPARISONS:
            return f.done(name, operands, shape, None, _options(f, name), "bool")
        return f.done(name, operands, shape, y, _options(f, name))

    return make


def real_binary(name: str, result: str = "float32") -> Callable[[Draft], bytes]:
    def make(f: Draft) -> bytes:
        shape, other = _two(f)
        a = f.input(shape, None, "float32")
        divides = name in ("DIV", "FLOOR_DIV", "FLOOR_MOD")
        if divides:
            data = f.s.rng.choice([-3.0, -0.7, 0.4, 2.5], other).astype(np.float32)
            b = f.tensor("divisor", other, "float32", None, data)
        else:
            b = f.input(other, None, "float32")
        return f.done(name, [a, b], shape, None, _options(f, name), result)

    return make


def logical(name: str) -> Callable[[Draft], bytes]:
    def make(f: Draft) -> bytes:
        shape = f.shape()
        operands = [f.input(shape, None, "bool") for _ in range(1 if name == "LOGICAL_NOT" else 2)]
        return f.done(name, operands, shape, None, _options(f, name), "bool")

    return make


def select(name: str) -> Callable[[Draft], bytes]:
    def make(f: Draft) -> bytes:
        shape, q = f.shape(), f.quant()
        operands = [f.input(shape, None, "bool"), f.input(shape, q), f.input(shape, q)]
        return f.done(name, operands, shape, q, _options(f, name))

    return make


def prelu(f: Draft) -> bytes:
    """One slope for each channel, which is a constant. Of the quotient of the scales, many products are near halves."""
    shape = (1, f.s.between(1, 4), f.s.between(1, 4), f.s.between(1, 5))
    q, y = f.quant(0.25), f.quant(0.2)
    slope = Quant((float(np.float32(f.s.rng.uniform(0.001, 0.01))),), (0,))
    data = f.s.rng.integers(-127, 128, (1, 1, shape[3])).astype(np.int8)
    return f.done("PRELU", [f.input(shape, q), f.tensor("slope", data.shape, "int8", slope, data)], shape, y)


# ---- what moves elements


def several(
    f: Draft, name: str, operands: Sequence[int], shapes: Sequence[Sequence[int]], q: Any, options: Any
) -> bytes:
    """A file whose operator has several results, all of which are outputs."""
    results = [f.tensor(f"y{i}", shape, "int8", q) for i, shape in enumerate(shapes)]
    f.operator(name, operands, results, options)
    return f.pack([i for i in operands if f.tensors[i].buffer == 0], results)


def cut(name: str) -> Callable[[Draft], bytes]:
    """SLICE and STRIDED_SLICE."""

    def make(f: Draft) -> bytes:
        shape, q = (1, *f.s.shape(1, 3)), f.quant()
        begin = [f.s.between(0, n - 1) for n in shape]
        size = [f.s.between(1, n - b) for n, b in zip(shape, begin, strict=True)]
        x = f.input(shape, q)
        if name == "SLICE":
            return f.done(name, [x, f.list_of(begin), f.list_of(size)], size, q)
        step = [1, *(f.s.pick(1, 1, 2) for _ in shape[1:])]
        end = [b + n for b, n in zip(begin, size, strict=True)]
        out = [-(-n // s) for n, s in zip(size, step, strict=True)]
        options = schema.StridedSliceOptionsT()
        return f.done(name, [x, f.list_of(begin), f.list_of(end), f.list_of(step)], out, q, options)

    return make


def split(f: Draft) -> bytes:
    parts, q = f.s.between(1, 3), f.quant()
    shape = [1, *f.s.shape(1, 3)]
    axis = f.s.between(1, len(shape) - 1)
    shape[axis] *= parts
    options = schema.SplitOptionsT()
    options.numSplits = parts
    part = [n // parts if d == axis else n for d, n in enumerate(shape)]
    where = f.tensor("axis", (), "int32", None, np.array(axis, np.int32))
    return several(f, "SPLIT", [where, f.input(shape, q)], [part] * parts, q, options)


def split_v(f: Draft) -> bytes:
    sizes, q = [f.s.between(1, 3) for _ in range(f.s.between(1, 3))], f.quant()
    shape = [1, *f.s.shape(1, 3)]
    axis = f.s.between(1, len(shape) - 1)
    shape[axis] = sum(sizes)
    options = schema.SplitVOptionsT()
    options.numSplits = len(sizes)
    parts = [[n if d == axis else m for d, m in enumerate(shape)] for n in sizes]
    where = f.tensor("axis", (), "int32", None, np.array(axis, np.int32))
    return several(f, "SPLIT_V", [f.input(shape, q), f.list_of(sizes), where], parts, q, options)


def pack(f: Draft) -> bytes:
    shape, q, count = (1, *f.s.shape(0, 2)), f.quant(), f.s.between(1, 3)
    options = schema.PackOptionsT()
    options.axis, options.valuesCount = f.s.between(1, len(shape)), count
    out = (*shape[: options.axis], count, *shape[options.axis :])
    return f.done("PACK", [f.input(shape, q) for _ in range(count)], out, q, options)


def unpack(f: Draft) -> bytes:
    shape, q = (1, *f.s.shape(2, 3, most=3)), f.quant()
    options = schema.UnpackOptionsT()
    options.axis = f.s.between(1, len(shape) - 1)
    options.num = shape[options.axis]
    part = [n for d, n in enumerate(shape) if d != options.axis]
    return several(f, "UNPACK", [f.input(shape, q)], [part] * options.num, q, options)


def broadcast(f: Draft) -> bytes:
    out, q = (1, *f.s.shape(1, 3, most=3)), f.quant()
    shape = (1, *(f.s.pick(1, n) for n in out[1:]))
    return f.done("BROADCAST_TO", [f.input(shape, q), f.list_of(out)], out, q)


def reverse(f: Draft) -> bytes:
    shape, q = (1, *f.s.shape(1, 3)), f.quant()
    return f.done("REVERSE_V2", [f.input(shape, q), f.list_of([f.s.between(1, len(shape) - 1)])], shape, q)


def fill(f: Draft) -> bytes:
    """A constant of a shape that is added to the input, for nothing may be left that depends on no input."""
    shape, q = f.shape(), f.quant()
    value = f.tensor("value", (), "int8", q, np.array(f.s.between(-128, 127), np.int8))
    filled = f.tensor("filled", shape, "int8", q)
    f.operator("FILL", [f.list_of(shape), value], [filled])
    x = f.input(shape, q)
    y = f.tensor("y", shape, "int8", q)
    f.operator("ADD", [x, filled], [y], schema.AddOptionsT())
    return f.pack([x], [y])


def blocks(name: str) -> Callable[[Draft], bytes]:
    """DEPTH_TO_SPACE and SPACE_TO_DEPTH."""

    def make(f: Draft) -> bytes:
        n, q = f.s.between(2, 3), f.quant()
        h, w, c = f.s.between(1, 4), f.s.between(1, 4), f.s.between(1, 3)
        wide, deep = (1, h * n, w * n, c), (1, h, w, c * n * n)
        options = getattr(schema, "DepthToSpaceOptionsT" if name == "DEPTH_TO_SPACE" else "SpaceToDepthOptionsT")()
        options.blockSize = n
        x, y = (deep, wide) if name == "DEPTH_TO_SPACE" else (wide, deep)
        return f.done(name, [f.input(x, q)], y, q, options)

    return make


def batches(name: str) -> Callable[[Draft], bytes]:
    """There and back, since a network has one sample; with what a dilated convolution pads and crops."""

    def make(f: Draft) -> bytes:
        n, q = f.s.between(1, 3), f.quant()
        h, w, c = f.s.between(1, 3) * n, f.s.between(1, 3) * n, f.s.between(1, 3)
        pads = [[f.s.pick(0, n), 0], [0, f.s.pick(0, n)]]
        rows, columns = h + sum(pads[0]), w + sum(pads[1])
        x = f.input((1, h, w, c), q)
        middle = f.tensor("middle", (n * n, rows // n, columns // n, c), "int8", q)
        f.operator("SPACE_TO_BATCH_ND", [x, f.list_of([n, n]), f.list_of(pads)], [middle])
        y = f.tensor("y", (1, rows, columns, c), "int8", q)
        f.operator("BATCH_TO_SPACE_ND", [middle, f.list_of([n, n]), f.list_of([[0, 0], [0, 0]])], [y])
        return f.pack([x], [y])

    return make


def mirror(f: Draft) -> bytes:
    shape, q = (1, *(f.s.between(3, 5) for _ in range(f.s.between(1, 3)))), f.quant()
    pads = [[0, 0], *(list(f.s.pair(0, 2)) for _ in shape[1:])]
    options = schema.MirrorPadOptionsT()
    options.mode = f.s.pick(0, 1)
    out = [n + sum(p) for n, p in zip(shape, pads, strict=True)]
    return f.done("MIRROR_PAD", [f.input(shape, q), f.list_of(pads)], out, q, options)


def nearest(f: Draft) -> bytes:
    shape, q = (1, f.s.between(1, 5), f.s.between(1, 5), f.s.between(1, 3)), f.quant()
    size = f.s.pair(1, 9)
    options = schema.ResizeNearestNeighborOptionsT()
    options.alignCorners, options.halfPixelCenters = f.s.pick((False, False), (True, False), (False, True))
    x = f.input(shape, q)
    return f.done("RESIZE_NEAREST_NEIGHBOR", [x, f.list_of(size)], (1, *size, shape[3]), q, options)


def reduction(name: str) -> Callable[[Draft], bytes]:
    """Over some dimensions: extremes of int8, sums of real numbers, truth values."""

    def make(f: Draft) -> bytes:
        shape = (1, *f.s.shape(1, 3))
        axes = [d for d in range(1, len(shape)) if f.s.pick(True, False)] or [len(shape) - 1]
        options = schema.ReducerOptionsT()
        options.keepDims = f.s.pick(True, False)
        out = [1 if d in axes else n for d, n in enumerate(shape) if options.keepDims or d not in axes]
        if name == "REDUCE_ALL":
            return f.done(name, [f.input(shape, None, "bool"), f.list_of(axes)], out, None, options, "bool")
        if name == "SUM":
            x = f.input(shape, None, "float32")
            return f.done(name, [x, f.list_of(axes)], out, None, options, "float32")
        q = f.quant()
        return f.done(name, [f.input(shape, q), f.list_of(axes)], out, q, options)

    return make


def extreme(name: str) -> Callable[[Draft], bytes]:
    """Where the largest or the smallest stands."""

    def make(f: Draft) -> bytes:
        shape = (1, *f.s.shape(1, 3))
        axis = f.s.between(1, len(shape) - 1)
        options = getattr(schema, "ArgMaxOptionsT" if name == "ARG_MAX" else "ArgMinOptionsT")()
        options.outputType = TYPES["int32"]
        where = f.tensor("axis", (), "int32", None, np.array(f.s.pick(axis, axis - len(shape)), np.int32))
        out = [n for d, n in enumerate(shape) if d != axis]
        return f.done(name, [f.input(shape, f.quant()), where], out, None, options, "int32")

    return make


def gather_nd(real: bool) -> Callable[[Draft], bytes]:
    """Computed places in a table that is larger than any index that tests draw."""

    def make(f: Draft) -> bytes:
        depth, rest = f.s.between(1, 2), f.s.shape(0, 2)
        shape, dtype, q = (*(INDEX_ROWS,) * depth, *rest), "float32" if real else "int8", None if real else f.quant()
        data = f.s.rng.standard_normal(shape) if real else f.s.rng.integers(-128, 128, shape)
        table = f.tensor("table", shape, dtype, q, data.astype(dtype))
        index = f.input((1, f.s.between(1, 4), depth), None, "int32")
        return f.done("GATHER_ND", [table, index], (1, f.tensors[index].shape[1], *rest), q, None, dtype)

    return make


def updated(real: bool) -> Callable[[Draft], bytes]:
    """A part put into a tensor, at a place that is known or computed, and may lie outside."""

    def make(f: Draft) -> bytes:
        shape = f.s.shape(1, 4)
        part = [f.s.pick(n, f.s.between(1, n)) for n in shape]
        dtype, q = f.s.pick("float32", "int32") if real else "int8", None if real else f.quant()
        operands = [f.input(shape, q, dtype), f.input(part, q, dtype)]
        begin = [f.s.between(-2, n + 1) for n in shape]
        start = f.list_of(begin) if f.s.pick(True, False) else f.input((len(shape),), None, f.s.pick("int32", "int64"))
        return f.done("DYNAMIC_UPDATE_SLICE", [*operands, start], shape, q, None, dtype)

    return make


def bilinear(real: bool) -> Callable[[Draft], bytes]:
    def make(f: Draft) -> bytes:
        shape, size = (1, f.s.between(1, 5), f.s.between(1, 5), f.s.between(1, 3)), f.s.pair(1, 9)
        options, q = schema.ResizeBilinearOptionsT(), None if real else f.quant()
        options.alignCorners, options.halfPixelCenters = f.s.pick((False, False), (True, False), (False, True))
        x = f.input(shape, q, "float32" if real else "int8")
        out = (1, *size, shape[3])
        return f.done("RESIZE_BILINEAR", [x, f.list_of(size)], out, q, options, "float32" if real else "int8")

    return make


OPERATORS |= {name: reduction(name) for name in ("REDUCE_MAX", "REDUCE_MIN", "REDUCE_ALL")}
OPERATORS |= {"SUM": mean("SUM"), "SUM int16": mean("SUM"), "SUM float": reduction("SUM")}
OPERATORS |= {"ARG_MAX": extreme("ARG_MAX"), "ARG_MIN": extreme("ARG_MIN")}
OPERATORS |= {
    "GATHER_ND": gather_nd(True),
    "GATHER_ND int8": gather_nd(False),
    "DYNAMIC_UPDATE_SLICE": updated(False),
    "DYNAMIC_UPDATE_SLICE float": updated(True),
    "RESIZE_BILINEAR": bilinear(False),
    "RESIZE_BILINEAR float": bilinear(True),
}
OPERATORS |= {name: unary(name) for name in INT8} | {"ABS int16": unary("ABS")}
OPERATORS |= {f"{name} float": real(name) for name in (*EXACT, *SMOOTH)}
OPERATORS |= {name: binary(name) for name in ("SUB", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", *COMPARISONS)}
OPERATORS |= {"SQUARED_DIFFERENCE int16": binary("SQUARED_DIFFERENCE")}
OPERATORS |= {f"{n} float": real_binary(n) for n in ("SUB", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")}
OPERATORS |= {f"{n} float": real_binary(n) for n in ("FLOOR_DIV", "FLOOR_MOD")}
OPERATORS |= {f"{n} float": real_binary(n, "bool") for n in COMPARISONS}
OPERATORS |= {name: logical(name) for name in ("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT")}
OPERATORS |= {name: select(name) for name in ("SELECT_V2",)}
OPERATORS |= {
    "PRELU": prelu,
    "SLICE": cut("SLICE"),
    "STRIDED_SLICE": cut("STRIDED_SLICE"),
    "SPLIT": split,
    "SPLIT_V": split_v,
    "PACK": pack,
    "UNPACK": unpack,
    "BROADCAST_TO": broadcast,
    "REVERSE_V2": reverse,
    "FILL": fill,
    "DEPTH_TO_SPACE": blocks("DEPTH_TO_SPACE"),
    "SPACE_TO_DEPTH": blocks("SPACE_TO_DEPTH"),
    "BATCH_TO_SPACE_ND": batches("BATCH_TO_SPACE_ND"),
    "SPACE_TO_BATCH_ND": batches("SPACE_TO_BATCH_ND"),
    "MIRROR_PAD": mirror,
    "RESIZE_NEAREST_NEIGHBOR": nearest,
}
APPROXIMATE = {"LOG_SOFTMAX float", "RESIZE_BILINEAR float", "SUM float", *(f"{name} float" for name in SMOOTH)}
APPROXIMATE |= {"L2_NORMALIZATION float", "L2_POOL_2D float"}
