"""Graphs of one op, of every kind in the registry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle
from math import inf, prod, sqrt
from typing import Any

import numpy as np
from hypothesis import strategies as st

from edgebuild.model import ops
from edgebuild.model.ir import Graph, Op, Quant, Tensor

from .source import Dice, Source, sources

FORMS = (("tflite", False), ("onnx", False), ("tflite", True))


def single(s: Source, kind: str, operands: Sequence[Tensor], y: Quant | None, dtype: str = "", **attrs: Any) -> Graph:
    """A graph of one op on `operands`; the op itself says which shape its result has."""
    dtype = dtype or ("float32" if s.real else s.integer)
    op = Op(kind, kind, tuple(t.name for t in operands), ("y",), attrs)
    draft = s.graph([op], [*operands, Tensor("y", (), dtype, y)], ["y"])
    return s.graph([op], [*operands, Tensor("y", ops.result_shape(op, draft), dtype, y)], ["y"])


def sum_result(s: Source, x: Tensor, w: Tensor, terms: int) -> Quant | None:
    """A quantisation of a sum of `terms` products that spreads it over int8, or an extreme one."""
    if x.quant is None or w.quant is None:
        return None
    largest = x.quant.scale[0] * max(w.quant.scale)
    if s.integer == "int16":
        return s.quant(float(np.float32(largest * 74 * sqrt(terms) * 2.0 ** s.pick(0, 0, 0, -2, 9, 30))))
    return s.quant(float(np.float32(largest / s.multiplier(60 / (74 * 74 * sqrt(terms))))))


def sum_graph(s: Source, kind: str, x: Tensor, w: Tensor, channels: int, terms: int, **attrs: Any) -> Graph:
    bias = [s.bias("bias", x, w, channels)] if s.pick(True, False) else []
    return single(s, kind, [x, w, *bias], sum_result(s, x, w, terms), clamp=s.clamp(), **attrs)


def window(
    s: Source, most_pad: Callable[[int, int], int], taps: tuple[int, int] | None = None
) -> tuple[dict[str, Any], tuple[int, int], tuple[int, int]]:
    """Stride, dilation and padding; the window; an image that is at least as large as the window, padded."""
    taps = s.pair(1, 4) if taps is None else taps
    stride, dilation = s.pair(1, 3), s.pair(1, 3)
    most = [most_pad(n, d) for n, d in zip(taps, dilation, strict=True)]
    pad = tuple(s.between(0, most[i % 2]) for i in range(4))
    least = [(n - 1) * d + 1 - pad[i] - pad[i + 2] for i, (n, d) in enumerate(zip(taps, dilation, strict=True))]
    size = max(least[0], s.between(1, 7)), max(least[1], s.between(1, 7))
    return {"stride": stride, "dilation": dilation, "pad": pad}, taps, size


def beyond(taps: int, dilation: int) -> int:
    """Padding with which a window may lie outside of the image altogether."""
    return taps * dilation + 1


def within(taps: int, dilation: int) -> int:
    """Padding with which every window has at least one element of the image, if dilation is 1."""
    return taps - 1


def without(taps: int, dilation: int) -> int:
    """No padding: kernels have other ways then."""
    return 0


def conv2d(s: Source, plain: bool = False) -> Graph:
    """`plain`: one image, one group."""
    attrs, taps, size = window(s, beyond)
    (channels, out), batch, groups = s.pair(1, 5), 1 if plain else s.pick(1, 1, 2), 1 if plain else s.pick(1, 1, 2, 3)
    x = s.tensor("x", (batch, *size, channels * groups), s.quant())
    w = s.weights("w", (out * groups, *taps, channels), 0)
    return sum_graph(s, "conv2d", x, w, out * groups, prod(taps) * channels, groups=groups, **attrs)


def transpose_conv2d(s: Source) -> Graph:
    """Padding reaches from cutting off taps to adding rows, as it does for parts of a result."""
    (channels, out), groups, size, taps = s.pair(1, 4), s.pick(1, 1, 2), s.pair(1, 5), s.pair(1, 4)
    stride, dilation, batch = s.pair(1, 3), s.pair(1, 2), s.pick(1, 1, 2)
    pad, more = s.pair(-1, 3), s.pair(0, 2)
    full = [(n - 1) * t + (k - 1) * d + 1 for n, t, k, d in zip(size, stride, taps, dilation, strict=True)]
    own = tuple(max(1, n - p + m) for n, p, m in zip(full, pad, more, strict=True))
    x = s.tensor("x", (batch, *size, channels * groups), s.quant())
    w = s.weights("w", (out * groups, *taps, channels), 0)
    attrs = {"stride": stride, "dilation": dilation, "pad": pad, "size": own, "groups": groups}
    return sum_graph(s, "transpose_conv2d", x, w, out * groups, prod(taps) * channels, **attrs)


def depthwise_conv2d(s: Source) -> Graph:
    usual = s.pick(None, (3, 3), (5, 5))
    attrs, taps, size = window(s, beyond, usual)
    channels, multiplier = (s.pick(4, 8), 1) if usual else (s.between(1, 5), s.between(1, 3))
    x = s.tensor("x", (s.pick(1, 1, 2), *size, channels), s.quant())
    w = s.weights("w", (1, *taps, channels * multiplier), 3)
    return sum_graph(s, "depthwise_conv2d", x, w, channels * multiplier, prod(taps), **attrs)


def dense(s: Source) -> Graph:
    rows, columns, out = s.between(1, 3), s.between(1, 40), s.between(1, 7)
    x = s.tensor("x", (rows, columns), s.quant())
    return sum_graph(s, "dense", x, s.weights("w", (out, columns), 0), out, columns)


def batch_matmul(s: Source) -> Graph:
    """Equal batches, or 1 of either operand; the second may be a constant."""
    batch, (n, k), c, turned = s.pair(1, 3), s.pair(1, 5), s.between(1, 12), s.pick(False, True)
    fronts = [tuple(s.pick(1, size, size) for size in batch) for _ in range(2)]
    x = s.tensor("x", (*fronts[0], n, c), s.quant())
    w = s.pick(s.tensor, s.constant)("w", (*fronts[1], *((k, c) if turned else (c, k))), s.quant())
    return single(s, "batch_matmul", [x, w], sum_result(s, x, w, c), clamp=s.clamp(), turned=turned)


def pool(kind: str) -> Callable[[Source], Graph]:
    def make(s: Source) -> Graph:
        attrs, taps, size = window(s, s.pick(within, without))
        attrs["dilation"] = (1, 1)
        x = s.tensor("x", (s.pick(1, 1, 2), *size, s.between(1, 5)), s.quant())
        y = x.quant
        if kind == "avg_pool2d" and s.arithmetic == "onnx" and y is not None:
            y = s.quant(float(np.float32(y.scale[0] / s.multiplier(1.0))))
            attrs["count_include_pad"] = s.pick(False, True)
        return single(s, kind, [x], y, window=taps, clamp=s.clamp(), **attrs)

    return make


def elementwise(kind: str) -> Callable[[Source], Graph]:
    """Equal shapes, or each dimension of either operand 1 or missing; the second may be a constant or the first."""

    def make(s: Source) -> Graph:
        shape = s.shape(1, 4)

        def operand(name: str, constant: bool) -> Tensor:
            part = shape
            if s.pick(False, True):
                part = tuple(s.pick(1, n) for n in shape)[s.between(0, len(shape)) :]
            return s.constant(name, part, s.quant()) if constant else s.tensor(name, part, s.quant())

        a, b = operand("a", False), operand("b", s.pick(False, True))
        b = a if s.between(0, 7) == 0 else b
        y = None
        if a.quant is not None and b.quant is not None:
            scales = a.quant.scale[0], b.quant.scale[0]
            own = max(scales) if kind == "add" else scales[0] * scales[1]
            y = s.quant(float(np.float32(own / s.multiplier(1.0 if kind == "add" else 1 / 80))))
        operands = [a] if a is b else [a, b]
        graph = single(s, kind, [a, b], y, clamp=s.clamp())
        return replace(graph, inputs=tuple(t.name for t in operands if not t.constant))

    return make


def clamp(s: Source) -> Graph:
    x = s.tensor("x", s.shape(1, 4), s.quant())
    y = s.pick(x.quant, _rescaled(s, x))
    as_stored = {"as_stored": True} if y != x.quant and s.pick(True, False) else {}
    return single(s, "clamp", [x], y, clamp=s.clamp(), **as_stored)


def _rescaled(s: Source, x: Tensor) -> Quant | None:
    return None if x.quant is None else s.quant(float(np.float32(x.quant.scale[0] / s.multiplier(1.0))))


def mean(s: Source, kind: str = "mean") -> Graph:
    x = s.tensor("x", s.shape(1, 4, most=7), s.quant())
    axes = tuple(d for d in range(len(x.shape)) if s.pick(True, False)) or (s.between(0, len(x.shape) - 1),)
    return single(s, kind, [x], _rescaled(s, x), axes=axes)


def softmax(s: Source) -> Graph:
    """TFLite's output quantisation is fixed; ONNX's is any."""
    size = s.pick(s.between(1, 20), s.between(200, 1100))
    x = s.tensor("x", (*s.shape(0, 1, most=3), size), s.quant(_power_scale(s)))
    y = None if s.real else Quant((1 / 256,), (-128,)) if s.integer == "int8" else Quant((2.0**-15,), (0,))
    if s.arithmetic == "onnx" and not s.real:
        y = s.pick(y, s.quant(2.0 ** -s.between(6, 12)))
    widens = s.arithmetic == "tflite" and not s.real and s.integer == "int8" and s.pick(False, False, True)
    y = Quant((2.0**-16,), (-(2**15),)) if widens else y
    beta = s.pick(1.0, 0.5, 3.0) if s.arithmetic == "tflite" else 1.0
    return single(s, "softmax", [x], y, "int16" if widens else "", beta=beta)


def _power_scale(s: Source) -> float:
    """Of exponents: powers of some neighbours count, and those of others are as good as 0.

    Tables of powers are longest where the scale is just below a power of two.
    """
    part = s.pick(1.0, 1.99, float(s.rng.uniform(1, 2)))
    return float(np.float32(2.0 ** s.between(*((-14, -6) if s.integer == "int16" else (-4, 1))) * part))


def log_softmax(s: Source) -> Graph:
    size = s.pick(s.between(1, 20), s.between(200, 1100))
    x = s.tensor("x", (*s.shape(0, 1, most=3), size), s.quant(_power_scale(s)))
    return single(s, "log_softmax", [x], None if s.real else Quant((1 / 16,), (127,)))


def running_sum(s: Source) -> Graph:
    plain = s.real or s.integer != "int8"
    x = s.tensor("x", (*s.shape(0, 2), s.between(1, 15), *s.shape(0, 1)), None if plain else s.quant())
    axis, y = s.between(0, len(x.shape) - 1), None if plain else s.quant()
    ways = {"exclusive": s.pick(False, True), "reverse": s.pick(False, True), "product": plain and s.pick(False, True)}
    return single(s, "running_sum", [x], y, axis=axis, **ways)


def unit_rows(s: Source) -> Graph:
    x = s.tensor("x", (*s.shape(0, 2, most=3), s.pick(s.between(1, 20), s.between(200, 1100))), s.quant())
    return single(s, "unit_rows", [x], Quant((1 / 128,), (0,)))


def concat(s: Source) -> Graph:
    shape = s.shape(1, 4)
    axis, quant = s.between(0, len(shape) - 1), s.quant()
    parts = [(*shape[:axis], s.between(1, 5), *shape[axis + 1 :]) for _ in range(s.between(1, 4))]
    makers = [s.pick(s.tensor, s.tensor, s.constant) if i else s.tensor for i in range(len(parts))]
    operands = [make(f"x{i}", part, quant) for i, (make, part) in enumerate(zip(makers, parts, strict=True))]
    return single(s, "concat", operands[:: s.pick(1, -1)], quant, axis=axis)


def gather(s: Source) -> Graph:
    """Indices reach beyond both ends of the table."""
    quant = s.quant()
    table = s.constant("table", s.shape(1, 3), quant)
    index = Tensor("index", s.shape(1, 2), "int32")
    return single(s, "gather", [table, index], quant, axis=0)


def pad(s: Source) -> Graph:
    x = s.tensor("x", s.shape(1, 4), s.quant())
    pads = tuple(s.pair(0, 3) for _ in x.shape)
    value: Any = s.pick(None, 1.5, -300.0, -inf) if s.real or s.arithmetic == "onnx" else s.pick(None, -128, 5)
    return single(s, "pad", [x], x.quant, pads=pads, value=value)


def reshape(s: Source) -> Graph:
    shape = s.shape(1, 4)
    x = s.tensor("x", shape, s.quant())
    return single(s, "reshape", [x], x.quant, shape=s.pick((prod(shape),), tuple(reversed(shape)), (1, *shape)))


def transpose(s: Source) -> Graph:
    x = s.tensor("x", s.shape(1, 5, most=4), s.quant())
    return single(s, "transpose", [x], x.quant, perm=s.order(len(x.shape)))


def cast(s: Source) -> Graph:
    """Between all types, for which the values of `random_inputs` are small enough."""
    source, to = s.pick("float32", "int32", "int8"), s.pick("float32", "int32", "int8")
    return single(s, "cast", [Tensor("x", s.shape(1, 4), source)], None, to, to=to)


def quantize(s: Source) -> Graph:
    return single(s, "quantize", [Tensor("x", s.shape(1, 4), "float32")], s.quant(), s.integer)


def dequantize(s: Source) -> Graph:
    return single(s, "dequantize", [Tensor("x", s.shape(1, 4), s.integer, s.quant())], None, "float32")


def requantize(s: Source) -> Graph:
    """From one integer type to the same or another one."""
    x, to = s.tensor("x", s.shape(1, 4), s.quant()), s.pick(s.integer, "int8", "int16", "int32")
    y = _rescaled(s, x)
    return single(s, "requantize", [x], y if to == "int8" or y is None else Quant(y.scale, (0,)), to)


def _part(s: Source) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """A shape, where a part of it begins, and the size of the part."""
    shape = s.shape(1, 4)
    begin = tuple(s.between(0, n - 1) for n in shape)
    return shape, begin, tuple(s.between(1, n - b) for n, b in zip(shape, begin, strict=True))


def slice_(s: Source) -> Graph:
    shape, begin, size = _part(s)
    x = s.tensor("x", shape, s.quant())
    return single(s, "slice", [x], x.quant, begin=begin, size=size)


def span(s: Source) -> Graph:
    """A cut of one dimension; those before it have size 1."""
    shape, begin, size = _part(s)
    at = s.between(0, len(shape) - 1)
    shape = (1,) * at + shape[at:]
    begin = tuple(b if d == at else 0 for d, b in enumerate(begin))
    x = s.tensor("x", shape, s.quant())
    return single(s, "span", [x], x.quant, begin=begin, size=(*shape[:at], size[at], *shape[at + 1 :]))


def insert(s: Source) -> Graph:
    """With a tensor so far; without one the rest of the result is undefined, so the part is all of it."""
    shape, begin, size = _part(s)
    quant = s.quant()
    if s.pick(False, True):
        return single(s, "insert", [s.tensor("x", shape, quant)], quant, begin=(0,) * len(shape), shape=shape)
    operands = [s.tensor("so_far", shape, quant), s.tensor("part", size, quant)]
    return single(s, "insert", operands, quant, begin=begin, shape=shape)


def partial_sum(s: Source) -> Graph:
    """The sums of a convolution or a dense layer, from a bias or from sums so far."""
    layer = conv2d(s, plain=True) if s.pick(True, False) else dense(s)
    (op,) = layer.ops
    x, w = layer.operands(op)[:2]
    dtype = "float32" if s.real else "int32"
    channels = w.shape[0]
    start = (
        s.constant("start", (channels,), None)
        if s.pick(False, True)
        else s.tensor("start", layer.result(op).shape, None)
    )
    start = replace(start, dtype=dtype, data=None if start.data is None else start.data.astype(dtype))
    return single(s, "partial_sum", [start, x, w], None, dtype, **op.attrs)


def join_sums(s: Source) -> Graph:
    shape, dtype = (1, s.between(1, 3), s.between(1, 3), s.between(1, 5)), "float32" if s.real else "int32"
    return single(s, "join_sums", [Tensor(name, shape, dtype) for name in ("x0", "x1")], None, dtype)


def finish_sum(s: Source) -> Graph:
    channels = s.between(1, 5)
    scales = tuple(float(np.float32(s.multiplier(1 / 40))) for _ in range(channels))
    x = Tensor("x", (1, s.between(1, 3), s.between(1, 3), channels), "int32", Quant(scales, (0,) * channels, 3))
    return single(s, "finish_sum", [x], s.quant(1.0), "int8", clamp=s.clamp())


def _state_quant(s: Source, dtype: str) -> Quant | None:
    return None if s.real else Quant((0.004 if dtype == "int16" else 0.3,), (0,))


def svdf_state(s: Source) -> Graph:
    """The state is int8 or int16 beside int8."""
    features, filters, memory = s.between(1, 12), s.between(1, 5), s.between(1, 5)
    dtype = "float32" if s.real else s.pick("int8", "int16")
    x, w = s.tensor("x", (1, features), s.quant()), s.weights("w", (filters, features), 0)
    if w.quant is not None:
        w = replace(w, quant=Quant(w.quant.scale[:1], (0,)))
    state = Tensor("state", (1, filters * memory), dtype, _state_quant(s, dtype))
    return single(s, "svdf_state", [state, x, w], state.quant, dtype, memory=memory)


def svdf(s: Source) -> Graph:
    units, rank, memory = s.between(1, 4), s.between(1, 3), s.between(1, 5)
    dtype = "float32" if s.real else s.pick("int8", "int16")
    state = Tensor("state", (1, units * rank * memory), dtype, _state_quant(s, dtype))
    data = s.rng.standard_normal((units * rank, memory)) * (1 if s.real else 40)
    w = Tensor("w", data.shape, dtype, None if s.real else Quant((0.01,), (0,)), data.astype(dtype))
    bias = [s.bias("bias", state, w, units)] if s.pick(True, False) else []
    return single(s, "svdf", [state, w, *bias], s.quant(), rank=rank, clamp=s.clamp())


KINDS: dict[str, Callable[[Source], Graph]] = {
    "add": elementwise("add"),
    "avg_pool2d": pool("avg_pool2d"),
    "batch_matmul": batch_matmul,
    "cast": cast,
    "clamp": clamp,
    "concat": concat,
    "conv2d": conv2d,
    "dense": dense,
    "depthwise_conv2d": depthwise_conv2d,
    "dequantize": dequantize,
    "finish_sum": finish_sum,
    "join_sums": join_sums,
    "gather": gather,
    "insert": insert,
    "log_softmax": log_softmax,
    "max_pool2d": pool("max_pool2d"),
    "mean": mean,
    "mul": elementwise("mul"),
    "pad": pad,
    "partial_sum": partial_sum,
    "quantize": quantize,
    "requantize": requantize,
    "reshape": reshape,
    "slice": slice_,
    "span": span,
    "running_sum": running_sum,
    "softmax": softmax,
    "svdf": svdf,
    "svdf_state": svdf_state,
    "transpose": transpose,
    "transpose_conv2d": transpose_conv2d,
    "unit_rows": unit_rows,
}
WIDE = (
    "add", "avg_pool2d", "batch_matmul", "clamp", "concat", "conv2d", "dense", "depthwise_conv2d", "dequantize",
    "max_pool2d", "mean", "mul", "quantize", "requantize", "sum", "transpose", "transpose_conv2d",
)  # exist in int16, too  # fmt: skip
INTEGER_ONLY = (
    "cast",
    "dequantize",
    "finish_sum",
    "quantize",
    "requantize",
)  # their float side, if any, is part of them


def forms(kind: str) -> tuple[tuple[Any, ...], ...]:
    """The (arithmetic, real, integer type) in which a kind exists."""
    wide = (("tflite", False, "int16"), ("onnx", False, "int16")) if kind in WIDE else ()
    wide = (("tflite", False, "int16"),) if kind == "softmax" else wide
    if kind == "log_softmax":
        return FORMS[::2]
    if kind == "unit_rows":
        return FORMS[:1]
    if kind == "running_sum":
        return *FORMS[::2], ("onnx", False, "int32"), ("onnx", False, "int64")
    return (*(FORMS[:2] if kind in INTEGER_ONLY else FORMS), *wide)


@st.composite
def single_ops(draw: st.DrawFn, kind: str) -> Graph:
    """A graph of one op of this kind, in any of its forms."""
    return KINDS[kind](draw(sources(forms(kind))))


def thrown(kind: str, count: int) -> list[Graph]:
    """Graphs of one op of this kind, in all of its forms in turn; the same in every run."""
    drawn = zip(range(count), cycle(forms(kind)), strict=False)
    return [KINDS[kind](Dice(None, np.random.default_rng(seed), *form)) for seed, form in drawn]  # type: ignore[arg-type]
