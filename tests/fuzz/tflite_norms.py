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
    if w.recipe.form == "tflite_uint8":
        raise DoesNotFit  # multiplied by 128 before they are rounded, those of the int8 twin that judges after it
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


def landmarks(w: Parts, x: Value, count: int) -> Value:
    """The elements of a value as landmarks of so many numbers."""
    if prod(x.shape) % count or prod(x.shape) == count:
        raise DoesNotFit
    shape = (1, prod(x.shape) // count, count)
    return w.emit("RESHAPE", [x, w.list_of(shape)], shape, x.quant)


def moved_landmarks(w: Parts, x: Value, *_: Value) -> Value:
    """For TFLM a dense layer over each landmark."""
    x = landmarks(w, x, count := w.s.pick(2, 3))
    matrix = w.s.rng.standard_normal((1, 4, 4)).astype(np.float32)
    if not w.twin:
        return w.emit("custom TransformLandmarks", [x, w.constant(matrix)], x.shape, None, b"", exact=False)
    weights, bias = np.eye(count, dtype=np.float32), np.zeros(count, np.float32)
    weights[:2, :2], bias[:2] = matrix[0, :2, :2], matrix[0, :2, 3]
    options = schema.FullyConnectedOptionsT()
    options.keepNumDims = True
    return w.emit("FULLY_CONNECTED", [x, w.constant(weights), w.constant(bias)], x.shape, None, options, exact=False)


def part_of_image(w: Parts, x: Value, *_: Value) -> Value:
    """A part that begins at a whole pixel and may end outside of the image; for TFLM cut out of it and zeros."""
    h, v, c = w.image(x)
    if x.shape[0] != 1:
        raise DoesNotFit
    top, left = w.s.between(0, h - 1), w.s.between(0, v - 1)
    size = [w.sizes.of("rows", w.s.between(1, h + 2)), w.sizes.of("columns", w.s.between(1, v + 2))]
    shape = (1, *size, c)
    matrix = np.eye(4, dtype=np.float32)[None]
    matrix[0, :2, 3] = left, top
    if not w.twin:
        options = bytes(flexbuffers.Dumps({"output_height": size[0], "output_width": size[1]}))
        operands = [x, w.constant(matrix)]
        return w.emit("custom TransformTensorBilinear", operands, shape, None, options, exact=False)
    whole = (1, h + top + size[0], v + left + size[1], c)
    pads = w.constant(np.array([[0, 0], [0, top + size[0]], [0, left + size[1]], [0, 0]], np.int32))
    wide = w.emit("PAD", [x, pads], whole, None, options_of("PAD"), exact=False)
    begin = w.list_of([0, top, left, 0])
    return w.emit("SLICE", [wide, begin, w.list_of(shape)], shape, None, options_of("SLICE"), exact=False)


def box_of_landmarks(w: Parts, x: Value, *_: Value) -> Value:
    """The box of all landmarks, not turned. For TFLM sums of their extremes times constants."""
    x = landmarks(w, x, 3)
    size, scale = [w.s.between(1, 9) for _ in range(2)], [float(w.s.pick(0.5, 1.0, 1.5)) for _ in range(2)]
    if not w.twin:
        settings = {"subset_idxs": list(range(x.shape[1])), "left_rotation_idx": 0, "right_rotation_idx": 0}
        settings |= dict(zip(("output_width", "output_height", "scale_x", "scale_y"), (*size, *scale), strict=True))
        options = bytes(flexbuffers.Dumps({**settings, "target_rotation_radians": 0.0}))
        return w.emit("custom Landmarks2TransformMatrix", [x], (1, 4, 4), None, options, exact=False)
    axis, wide, ends = w.list_of([1]), (1, 3, 1), list[Value]()
    for end in ("MAX", "MIN"):
        options = schema.ReducerOptionsT()
        options.keepDims = True
        flat = w.emit(f"REDUCE_{end}", [x, axis], (1, 1, 3), None, options, exact=False)
        ends.append(w.emit("RESHAPE", [flat, w.list_of(wide)], wide, None))
    over, middles = np.zeros((2, 1, 3, 4), np.float32)
    for k in range(2):
        over[0, k, k], over[0, k, 3], middles[0, k, 3] = scale[k] / size[k], -scale[k] / 2, 0.5
    rest = np.zeros((1, 4, 4), np.float32)
    rest[0, 2, 2] = rest[0, 3, 3] = 1
    parts = []
    for name, factors in (("SUB", over), ("ADD", middles)):
        both = w.emit(name, ends, wide, None, options_of(name), exact=False)
        parts.append(w.emit("MUL", [both, w.constant(factors)], (1, 3, 4), None, options_of("MUL"), exact=False))
    rows = w.emit("ADD", parts, (1, 3, 4), None, options_of("ADD"), exact=False)
    pads = w.constant(np.array([[0, 0], [0, 1], [0, 0]], np.int32))
    rows = w.emit("PAD", [rows, pads], (1, 4, 4), None, options_of("PAD"), exact=False)
    return w.emit("ADD", [rows, w.constant(rest)], (1, 4, 4), None, options_of("ADD"), exact=False)


NORMS = {
    "custom Landmarks2TransformMatrix": Row(box_of_landmarks, (FLOAT,)),
    "custom TransformLandmarks": Row(moved_landmarks, (FLOAT,)),
    "custom TransformTensorBilinear": Row(part_of_image, (FLOAT,)),
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
