"""Rows of the fuzzer's TFLite operators: norms, running sums, the best of a row."""

from __future__ import annotations

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Quant
from tests.graphs.tflite_models import VALID

from .recipe import DoesNotFit
from .tflite_elements import BOTH, FLOAT, Row, options_of
from .tflite_parts import Parts, Value


def unit_rows(w: Parts, x: Value, *_: Value) -> Value:
    options = schema.L2NormOptionsT()
    options.fusedActivationFunction = 0
    fixed = Quant((1 / 128,), (0,)) if w.kind == "int8" else None
    return w.emit("L2_NORMALIZATION", [x], x.shape, fixed, options, exact=False)


def running_sum(w: Parts, x: Value, *_: Value) -> Value:
    options = schema.CumsumOptionsT()
    options.exclusive, options.reverse = w.s.pick(False, True), w.s.pick(False, True)
    return w.emit("CUMSUM", [x, w.list_of([w.s.between(1, len(x.shape) - 1)])], x.shape, None, options, exact=False)


def local_response(w: Parts, x: Value, *_: Value) -> Value:
    """For TFLM a product with a band of weights, and a root."""
    c, radius, alpha = w.image(x)[2], w.s.between(1, 3), float(np.float32(w.s.rng.uniform(0.1, 1)))
    if not w.twin:
        options = schema.LocalResponseNormalizationOptionsT()
        options.radius, options.bias, options.alpha, options.beta = radius, 1.0, alpha, 0.5
        return w.emit("LOCAL_RESPONSE_NORMALIZATION", [x], x.shape, None, options, exact=False)
    away = np.arange(c) - np.arange(c)[:, None]
    band = np.where((away >= -radius) & (away < radius), alpha, 0).astype(np.float32)
    sums = schema.Conv2DOptionsT()
    sums.padding, sums.strideH, sums.strideW, sums.fusedActivationFunction = VALID, 1, 1, 0
    squares = w.emit("SQUARE", [x], x.shape, None, options_of("SQUARE"))
    weights = w.constant(band.reshape(c, 1, 1, c)), w.constant(np.ones(c, np.float32))
    base = w.emit("CONV_2D", [squares, *weights], x.shape, None, sums, exact=False)
    return w.emit("MUL", [x, w.emit("RSQRT", [base], x.shape, None)], x.shape, None, options_of("MUL"))


def best(w: Parts, x: Value, *_: Value) -> Value:
    """The best one of a row: for TFLM the largest; more of them are compared with numpy elsewhere."""
    if len(x.shape) < 2:
        raise DoesNotFit
    shape, options = (*x.shape[:-1], 1), schema.ReducerOptionsT()
    options.keepDims = True
    if w.twin:
        return w.emit("REDUCE_MAX", [x, w.list_of([len(shape) - 1])], shape, x.quant, options, exact=x.exact)
    one, where = w.constant(np.array(1, np.int32)), w.file.tensor(f"t{len(w.file.tensors)}", shape, "int32")
    value = Value(w.file.tensor(f"t{len(w.file.tensors)}", shape, w.kind, x.quant), shape, x.quant, x.exact)
    w.aside.add(where)
    w.file.operator("TOPK_V2", [x.index, one], [value.index, where], schema.TopKV2OptionsT())
    return value


NORMS = {
    "L2_NORMALIZATION": Row(unit_rows, BOTH),
    "CUMSUM": Row(running_sum, (FLOAT,)),
    "LOCAL_RESPONSE_NORMALIZATION": Row(local_response, (FLOAT,)),
    "TOPK_V2": Row(best, BOTH),
}
