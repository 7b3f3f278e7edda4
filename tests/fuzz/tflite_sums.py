"""Rows of the fuzzer's TFLite operators: sums of products, and what remembers."""

from __future__ import annotations

import struct
from math import prod, sqrt

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Quant
from tests.graphs.tflite_models import SAME, VALID

from .recipe import DoesNotFit
from .tflite_elements import BOTH, Row, options_of
from .tflite_parts import SPREAD, Parts, Value


def transpose_conv(w: Parts, x: Value, *_: Value) -> Value:
    h, v, c = w.image(x)
    options = schema.TransposeConvOptionsT()
    taps = [w.sizes.of(f"window {d}", w.s.between(1, 4)) for d in range(2)]
    stride = [w.sizes.of(f"stride {d}", w.s.between(1, 3)) for d in range(2)]
    options.padding, options.strideH, options.strideW = w.s.pick(SAME, VALID), *stride
    grown = zip((h, v), stride, taps, strict=True)
    out = [n * s if options.padding == SAME else (n - 1) * s + k for n, s, k in grown]
    k = w.sizes.of("channels", w.s.pick(1, 2, 3, 4, 8))
    return w.sum("TRANSPOSE_CONV", x, (k, *taps, c), 0, prod(taps) * c, (1, *out, k), options)


def transpose_conv_of_mediapipe(w: Parts, x: Value, *_: Value) -> Value:
    """Real numbers. For TFLM it is the whole of a TRANSPOSE_CONV, of which the SAME form keeps a part."""
    h, v, c = w.image(x)
    if not w.real:
        raise DoesNotFit
    taps, stride = w.s.pair(1, 4), w.s.pair(1, 3)
    same, k = w.s.pick(True, False), w.s.pick(1, 2, 3, 4)
    whole = [(n - 1) * s + t for n, s, t in zip((h, v), stride, taps, strict=True)]
    less = [max(0, t - (n - 1) % s - 1) if same else 0 for n, s, t in zip((h, v), stride, taps, strict=True)]
    data = (w.s.rng.standard_normal((k, *taps, c)) / sqrt(prod(taps) * c)).astype(np.float32)
    weights, bias = w.constant(data), w.constant(w.s.rng.standard_normal(k).astype(np.float32))
    shape = (x.shape[0], *(n - p for n, p in zip(whole, less, strict=True)), k)
    if not w.twin:
        options = struct.pack("<3i", 1 if same else 2, stride[1], stride[0])
        return w.emit("custom Convolution2DTransposeBias", [x, weights, bias], shape, None, options, exact=False)
    plain, full = schema.TransposeConvOptionsT(), (x.shape[0], *whole, k)
    plain.padding, plain.strideH, plain.strideW = VALID, *stride
    y = w.emit("TRANSPOSE_CONV", [w.list_of(full), weights, x, bias], full, None, plain, exact=False)
    begin = w.list_of([0, *(p // 2 for p in less), 0])
    return w.emit("SLICE", [y, begin, w.list_of(shape)], shape, None, exact=False)


def batch_matmul(w: Parts, x: Value, *_: Value) -> Value:
    """With an input, or with itself turned around, as attention has it."""
    if len(x.shape) < 2 or prod(x.shape[:-1]) * x.shape[-1] > 4000:
        raise DoesNotFit
    *front, n, c = x.shape
    options = schema.BatchMatMulOptionsT()
    options.adjX, options.adjY, y = False, True, x
    k = n
    if w.s.pick(True, False):
        options.adjX, options.adjY, k = w.s.pick(True, False), w.s.pick(True, False), w.s.between(1, 8)
        n, c = (c, n) if options.adjX else (n, c)
        y = w.fresh((*front, *((k, c) if options.adjY else (c, k))))
    quant = None
    if x.quant is not None and y.quant is not None:
        quant = w.quant(x.quant.scale[0] * y.quant.scale[0] * sqrt(c) / SPREAD[w.kind] * w.s.pick(1.0, 0.5, 2.0))
    return w.emit("BATCH_MATMUL", [x, y], (*front, n, k), quant, options, exact=False)


def svdf(w: Parts, x: Value, *_: Value) -> Value:
    """Of all elements of the value; int8 networks keep the state in int16 or int8."""
    features, rank, units = prod(x.shape), w.s.between(1, 3), w.sizes.of("units", w.s.between(1, 6))
    if features > 400:
        raise DoesNotFit
    memory = w.sizes.of("memory", w.s.between(1, 6))
    x = w.emit("RESHAPE", [x, w.list_of((1, features))], (1, features), x.quant)
    filters, options = rank * units, schema.SVDFOptionsT()
    options.rank, options.fusedActivationFunction = rank, 1
    rng, shapes = w.s.rng, ((filters, features), (filters, memory), (units,))
    if x.quant is None:
        values = [rng.standard_normal(s).astype(np.float32) / sqrt(s[-1]) for s in shapes]
        operands = [w.constant(v) for v in values]
        state, quant = w.file.tensor(f"state{len(w.file.tensors)}", (1, filters * memory), "float32"), None
    else:
        wide = w.s.pick(True, False)
        scale, times = float(np.float32(x.quant.scale[0] * 0.01)), 0.0001 if wide else 0.01
        held = Quant((float(np.float32(scale * 74**2 * sqrt(features) / (8000 if wide else 60))),), (0,))
        data = rng.integers(-127, 128, shapes[0]).astype(np.int8)
        over = rng.integers(-3000 if wide else -127, 3000 if wide else 128, shapes[1])
        product = Quant((float(np.float32(held.scale[0] * times)),), (0,))
        operands = [
            w.constant(data, Quant((0.01,), (0,))),
            w.constant(over.astype(np.int16 if wide else np.int8), Quant((times,), (0,))),
            w.constant(rng.integers(-2000, 2001, shapes[2]).astype(np.int32), product),
        ]
        dtype = "int16" if wide else "int8"
        state = w.file.tensor(f"state{len(w.file.tensors)}", (1, filters * memory), dtype, held)
        spread = (8000 * 1700 if wide else 60 * 74) * sqrt(rank * memory) / 60
        quant = Quant((float(np.float32(product.scale[0] * spread)),), (w.s.pick(-128, 0),))
    w.file.tensors[state].isVariable = True
    return w.emit("SVDF", [x, *operands, state], (1, units), quant, options, exact=False)


def variable(w: Parts, x: Value, *_: Value) -> Value:
    """The larger of the value and what a variable holds, to which it is added; perhaps with a first value."""
    name, first = f"variable{len(w.file.tensors)}", w.s.pick(True, False)
    if first and not w.firsts:
        once = schema.CallOnceOptionsT()
        once.initSubgraphIndex = 1
        w.file.operator("CALL_ONCE", [], [], once)
    options = schema.VarHandleOptionsT()
    options.container, options.sharedName = b"", name.encode()
    handle = w.file.tensor(f"handle{len(w.file.tensors)}", (), "resource")
    w.file.operator("VAR_HANDLE", [], [handle], options)
    old = w.emit("READ_VARIABLE", [handle], x.shape, x.quant, schema.ReadVariableOptionsT(), exact=False)
    new = w.emit("ADD", [x, old], x.shape, x.quant, options_of("ADD"))
    w.file.operator("ASSIGN_VARIABLE", [handle, new.index], [], schema.AssignVariableOptionsT())
    if first:
        data = (10 * w.s.rng.standard_normal(x.shape)).astype(w.kind)
        w.firsts[name] = data, x.quant
    return w.emit("MAXIMUM", [x, old], x.shape, x.quant, options_of("MAXIMUM"))


def lstm(w: Parts, x: Value, *_: Value) -> Value:
    """Over some steps, with an output and a cell that stay from one inference to the next."""
    features, units = prod(x.shape), w.sizes.of("units", w.s.between(1, 6))
    steps = [t for t in (1, 2, 3, 4, 6) if features % t == 0 and features // t <= 60]
    if not steps:
        raise DoesNotFit
    shape = (1, t := w.s.pick(*steps), features // t)
    x = w.emit("RESHAPE", [x, w.list_of(shape)], shape, x.quant)
    quantised, wide = x.quant is not None, w.kind == "int16"
    held = Quant((2.0**-15,), (0,)) if wide else Quant((float(np.float32(w.s.pick(1 / 128, 0.01))),), (w.s.pick(0, 3),))
    held_scale, x_scale = (held.scale[0], x.quant.scale[0]) if x.quant is not None else (1.0, 1.0)
    operands: list[Value | int] = [x, *[-1] * 23]
    for gate in range(4):
        for base, columns, scale in ((1, shape[2], x_scale), (5, units, held_scale)):
            full = 74 * (74 if not wide else 19000)
            step = Quant((float(np.float32(w.s.pick(0.5, 2, 5) / (scale * full * sqrt(columns)))),), (0,))
            operands[base + gate] = _matrix(w, (units, columns), step if quantised else None)
            if base == 1:
                operands[12 + gate] = _gate_bias(
                    w, units, Quant((x_scale * step.scale[0],), (0,)) if quantised else None
                )
    for at, kind, own in (
        (18, w.kind, held),
        (19, "int16" if quantised else "float32", Quant((2.0 ** -w.s.between(9, 14),), (0,))),
    ):
        state = w.file.tensor(f"state{len(w.file.tensors)}", (1, units), kind, own if quantised else None)
        w.file.tensors[state].isVariable, operands[at] = True, state
    options = schema.UnidirectionalSequenceLSTMOptionsT()
    options.fusedActivationFunction, options.cellClip = TANH, w.s.pick(0.0, 0.0, 0.5, 3.0)
    name = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    return w.emit(name, operands, (*shape[:2], units), held if quantised else None, options, exact=False)


TANH = 4


def _matrix(w: Parts, shape: tuple[int, int], step: Quant | None) -> int:
    if step is None:
        return w.constant((w.s.rng.standard_normal(shape) / sqrt(shape[1])).astype(np.float32))
    return w.constant(w.s.rng.integers(-127, 128, shape).astype(np.int8), step)


def _gate_bias(w: Parts, units: int, product: Quant | None) -> int:
    if product is None:
        return w.constant(w.s.rng.standard_normal(units).astype(np.float32))
    values = w.s.rng.uniform(-1, 1, units) / product.scale[0]
    return w.constant(values.astype(np.int64 if w.kind == "int16" else np.int32), product)


SUMS = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": Row(lstm),
    "TRANSPOSE_CONV": Row(transpose_conv),
    "custom Convolution2DTransposeBias": Row(transpose_conv_of_mediapipe, BOTH),
    "BATCH_MATMUL": Row(batch_matmul),
    "SVDF": Row(svdf, BOTH),
    "VAR_HANDLE": Row(variable),
}
