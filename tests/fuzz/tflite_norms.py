"""Rows of the fuzzer's TFLite operators: norms, running sums, the best of a row, and what is rare."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from flatbuffers import flexbuffers
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Quant
from tests.graphs.tflite_models import VALID

from .recipe import DoesNotFit
from .tflite_elements import BOTH, FLOAT, Row, options_of, place
from .tflite_parts import Parts, Value

DETECTION = "custom TFLite_Detection_PostProcess"


def unit_rows(w: Parts, x: Value, *_: Value) -> Value:
    options = schema.L2NormOptionsT()
    options.fusedActivationFunction = 0
    fixed = Quant((1 / 128,), (0,)) if w.kind == "int8" else None
    return w.emit("L2_NORMALIZATION", [x], x.shape, fixed, options, exact=False)


def running_sum(w: Parts, x: Value, *_: Value) -> Value:
    axis, options = w.s.between(1, len(x.shape) - 1), schema.CumsumOptionsT()
    if w.kind == "int8" and x.shape[axis] > 15:
        raise DoesNotFit
    options.exclusive, options.reverse = w.s.pick(False, True), w.s.pick(False, True)
    fixed = Quant((w.s.pick(0.05, 0.2),), (w.s.between(-128, 127),)) if w.kind == "int8" else None
    return w.emit("CUMSUM", [x, w.list_of([axis])], x.shape, fixed, options, exact=True)


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


def summed(w: Parts, x: Value, *others: Value) -> Value:
    """Two to four values of one shape."""
    same = [y for y in others if y.shape == x.shape]
    parts = [x, *same, *(w.s.pick(w.fresh, w.filled)(x.shape) for _ in range(w.s.between(1, 2)))]
    return w.emit("ADD_N", parts, x.shape, None, options_of("ADD_N"), exact=False)


def zeros(w: Parts, x: Value, *_: Value) -> Value:
    """The larger of a value and zeros."""
    return w.emit("MAXIMUM", [x, w.emit("ZEROS_LIKE", [x], x.shape, x.quant)], x.shape, x.quant, options_of("MAXIMUM"))


def together(w: Parts, x: Value, *_: Value) -> Value:
    """The shape of a value and of one with more columns, to which it is broadcast; for TFLM a constant."""
    if w.batch > 1:
        raise DoesNotFit  # a list of sizes has no batch
    wider = [n if d == 0 or n > 1 else w.s.between(1, 4) for d, n in enumerate(x.shape)]
    other = w.s.pick(wider, wider[1:]) if len(wider) > 1 else wider
    if w.twin:
        return w.emit("BROADCAST_TO", [x, w.list_of(wider)], wider, x.quant)
    shapes = [w.list_of(x.shape), w.list_of(other)]
    shape = w.emit("BROADCAST_ARGS", shapes, (len(wider),), None, None, "int32", exact=True)
    return w.emit("BROADCAST_TO", [x, shape], wider, x.quant)


def clipped(w: Parts, x: Value, *_: Value) -> Value:
    """Values between 0 and 1; for TFLM the smaller of them and 1, rectified."""
    if not w.twin:
        return w.emit("RELU_0_TO_1", [x], x.shape, None)
    return w.emit("RELU", [w.emit("MINIMUM", [x, w.number(1, x)], x.shape, None, options_of("MINIMUM"))], x.shape, None)


def lengths(w: Parts, x: Value, *_: Value) -> Value:
    options = schema.Pool2DOptionsT()
    taps, (h, v) = w.window(x, options, False, dilated=False)
    options.filterHeight, options.filterWidth = taps
    return w.emit("L2_POOL_2D", [x], (x.shape[0], h, v, x.shape[3]), None, options, exact=False)


def embedding(w: Parts, x: Value, *_: Value) -> Value:
    """Computed rows of a table."""
    index, count = place(w, "ARG_MAX", x)
    flat = w.emit("RESHAPE", [index, w.list_of([prod(index.shape)])], (prod(index.shape),), None, None, "int32", True)
    table = w.filled((count, w.s.between(1, 6)))
    return w.emit("EMBEDDING_LOOKUP", [flat, table], (prod(index.shape), table.shape[1]), table.quant)


def hot(w: Parts, x: Value, *_: Value) -> Value:
    """A real row for each place of a largest value: 1.5 there, -0.5 elsewhere; for TFLM by comparisons."""
    index, count = place(w, "ARG_MAX", x)
    depth, axis = w.s.between(1, count + 1), w.s.between(1, len(index.shape))
    shape, on, off = list(index.shape), np.float32(1.5), np.float32(-0.5)
    shape.insert(axis, depth)
    options = schema.OneHotOptionsT()
    options.axis = -1 if axis == len(index.shape) and w.s.pick(True, False) else axis
    if not w.twin:
        operands = [index, w.constant(np.int32(depth)), w.constant(on), w.constant(off)]
        return w.as_activation(w.emit("ONE_HOT", operands, shape, None, options, "float32", exact=True))
    places = w.list_of(np.arange(depth).reshape([depth if d == axis else 1 for d in range(len(shape))]))
    wide = [*index.shape[:axis], 1, *index.shape[axis:]]
    index = w.emit("RESHAPE", [index, w.list_of(wide)], wide, None, None, "int32", exact=True)
    here = w.emit("EQUAL", [index, places], shape, None, options_of("EQUAL"), "bool", exact=True)
    values = [w.constant(np.full([1] * len(shape), v)) for v in (on, off)]
    chosen = w.emit("SELECT_V2", [here, *values], shape, None, options_of("SELECT_V2"), "float32", exact=True)
    return w.as_activation(chosen)


def detected(w: Parts, x: Value, *_: Value) -> Value:
    """Boxes around random anchors. TFLM leaves places behind the last unwritten if classes are not apart."""
    if len(x.shape) < 3:
        raise DoesNotFit
    count, classes, regular = w.s.between(2, 24), w.s.between(1, 3), w.s.pick(True, False)
    most, rng = w.s.between(1, count), w.s.rng
    options: dict[str, Any] = {"max_detections": most, "max_classes_per_detection": 1, "num_classes": classes}
    options |= {"use_regular_nms": regular, "detections_per_class": w.s.pick(1, 3, 100)}
    options["nms_score_threshold"] = w.s.pick(-1000.0, 0.5) if regular else -1000.0
    options["nms_iou_threshold"] = w.s.pick(0.2, 0.5) if regular else 1.0
    options |= {f"{side}_scale": w.s.pick(5.0, 10.0) for side in "yxhw"}
    anchors = np.concatenate([rng.uniform(0, 1, (count, 2)), rng.uniform(0.2, 0.6, (count, 2))], axis=1)
    sizes = (4, classes + w.s.pick(0, 1))
    operands = [w.given((1, count, n), None, "float32") for n in sizes]
    shapes = [(1, most, 4), (1, most), (1, most), (1,)]
    packed = bytes(flexbuffers.Dumps(options))
    given = [*operands, w.constant(anchors.astype(np.float32))]
    return w.as_activation(w.several(DETECTION, given, shapes, None, packed, "float32", exact=True)[0])


NORMS = {
    "ADD_N": Row(summed, (FLOAT,)),
    "ZEROS_LIKE": Row(zeros, BOTH),
    "BROADCAST_ARGS": Row(together, BOTH),
    "RELU_0_TO_1": Row(clipped, (FLOAT,)),
    "L2_POOL_2D": Row(lengths, (FLOAT,)),
    "EMBEDDING_LOOKUP": Row(embedding, BOTH),
    "L2_NORMALIZATION": Row(unit_rows, BOTH),
    "CUMSUM": Row(running_sum, BOTH),
    "LOCAL_RESPONSE_NORMALIZATION": Row(local_response, (FLOAT,)),
    "TOPK_V2": Row(best, BOTH),
    "ONE_HOT": Row(hot, BOTH),
    DETECTION: Row(detected, BOTH),
}
