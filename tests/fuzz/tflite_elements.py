"""Rows of the fuzzer's TFLite operators: functions of elements, truth values, reductions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Quant
from tests.graphs.tflite_models import ACTIVATIONS, TYPES, VALID

from .recipe import DoesNotFit
from .tflite_parts import FULL, Parts, Value

Make = Callable[..., Value]
INT8, INT16, FLOAT = "tflite", "tflite_int16", "tflite_float"
BOTH = (INT8, FLOAT)
ALL = (*BOTH, INT16)


@dataclass(frozen=True)
class Row:
    """`forms`: those that both edgebuild and TFLM have a kernel for."""

    make: Make
    forms: tuple[str, ...] = ALL


def options_of(name: str) -> Any:
    """The schema's options of an operator with none to be chosen, if it has such a table."""
    words = {"MAXIMUM": "MaximumMinimum", "MINIMUM": "MaximumMinimum", "SELECT_V2": "SelectV2"}
    table = getattr(schema, f"{words.get(name, name.title().replace('_', ''))}OptionsT", None)
    return table() if table is not None else None


# ---- one operand, every element by itself

STEPS = ("FLOOR", "CEIL", "ROUND")
KEEP = ("ABS", "NEG", "RELU", "RELU6", *STEPS)  # exact on floats
REAL = ("NEG", "SQUARE", *STEPS)  # computed in floats by TFLM, exactly
FIXED = {  # quantisations that TFLM wants of results
    "LOGISTIC": {"int8": Quant((1 / 256,), (-128,)), "int16": Quant((1 / 32768,), (0,))},
    "TANH": {"int8": Quant((1 / 128,), (0,)), "int16": Quant((1 / 32768,), (0,))},
    "SOFTMAX": {"int8": Quant((1 / 256,), (-128,)), "int16": Quant((1 / 32768,), (0,))},
    "LOG_SOFTMAX": {"int8": Quant((1 / 16,), (127,))},
}


def unary(name: str) -> Make:
    def make(w: Parts, x: Value, *_: Value) -> Value:
        if name in REAL and not w.real:
            x = w.as_real(x)
            return w.as_activation(w.emit(name, [x], x.shape, None, options_of(name), "float32", exact=True))
        x = w.exactly(x) if name in STEPS else _domain(w, name, x)
        options = options_of(name)
        if name == "LEAKY_RELU":
            options.alpha = float(np.float32(w.s.pick(0.1, 0.01, 0.3)))
        own = w.s.pick(x.quant, w.scaled(x, 0.4, 1.5))
        y = FIXED[name].get(w.kind) if name in FIXED else own
        return w.emit(name, [x], x.shape, y, options, exact=x.exact and name in KEEP)

    return make


def _domain(w: Parts, name: str, x: Value) -> Value:
    """The operand where the function is defined, and does not leave the numbers."""
    if name == "EXP" and w.real:
        return w.emit("MINIMUM", [x, w.number(4, x)], x.shape, None, options_of("MINIMUM"))
    if name in ("LOG", "SQRT", "RSQRT") and w.real:
        positive = w.emit("ABS", [x], x.shape, None, options_of("ABS"))
        return w.emit("ADD", [positive, w.number(0.5, x)], x.shape, None, options_of("ADD"), exact=False)
    if name in ("RSQRT", "LOG", "SQRT") and x.quant is not None:  # TFLM stops at a negative number
        return w.like(x, Quant(x.quant.scale, (FULL[w.kind][0] if w.kind == "int8" else 0,)))
    return x


# ---- operators that TFLM has not, and what they are made of for it


def _sign(w: Parts, x: Value) -> Value:
    def where(condition: str, value: float, otherwise: Value) -> Value:
        side = w.emit(condition, [x, w.number(0, x)], x.shape, None, options_of(condition), "bool")
        operands = [side, w.number(value, x), otherwise]
        return w.emit("SELECT_V2", operands, x.shape, None, options_of("SELECT_V2"))

    return where("GREATER", 1, where("LESS", -1, w.number(0, x)))


def _gelu(w: Parts, x: Value) -> Value:
    """By tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""

    def two(name: str, a: Value, b: Value) -> Value:
        return w.emit(name, [a, b], x.shape, None, options_of(name), exact=False)

    cube = two("MUL", two("MUL", x, x), x)
    inner = two("ADD", x, two("MUL", cube, w.number(0.044715, x)))
    bent = w.emit("TANH", [two("MUL", inner, w.number(0.7978845608, x))], x.shape, None)
    return two("MUL", two("MUL", x, w.number(0.5, x)), two("ADD", bent, w.number(1, x)))


def _clipped(w: Parts, x: Value) -> Value:
    """The same activation, fused into an average of single elements."""
    options = schema.Pool2DOptionsT()
    options.padding, options.strideH, options.strideW, options.filterHeight, options.filterWidth = VALID, 1, 1, 1, 1
    options.fusedActivationFunction = 2
    return w.emit("AVERAGE_POOL_2D", [x], x.shape, x.quant, options)


def sign(w: Parts, x: Value, *_: Value) -> Value:
    x = w.exactly(x)
    return _sign(w, x) if w.twin else w.emit("SIGN", [x], x.shape, None, options_of("SIGN"))


def gelu(w: Parts, x: Value, *_: Value) -> Value:
    options = schema.GeluOptionsT()
    options.approximate = True
    return _gelu(w, x) if w.twin else w.emit("GELU", [x], x.shape, None, options, exact=False)


def clipped(w: Parts, x: Value, *_: Value) -> Value:
    w.image(x)
    return _clipped(w, x) if w.twin else w.emit("RELU_N1_TO_1", [x], x.shape, x.quant)


def power(w: Parts, x: Value, *_: Value) -> Value:
    """The square, or the root of what is positive."""
    root = w.s.pick(True, False)
    x, name = _domain(w, "SQRT", x) if root else x, "SQRT" if root else "SQUARE"
    if w.twin:
        return w.emit(name, [x], x.shape, None, options_of(name), exact=False)
    return w.emit("POW", [x, w.number(0.5 if root else 2, x)], x.shape, None, options_of("POW"), exact=False)


def softmax(w: Parts, x: Value, *_: Value) -> Value:
    options = schema.SoftmaxOptionsT()
    options.beta = w.s.pick(1.0, 1.0, 0.5, 2.5)
    return w.emit("SOFTMAX", [x], x.shape, FIXED["SOFTMAX"].get(w.kind), options, exact=False)


def log_softmax(w: Parts, x: Value, *_: Value) -> Value:
    return w.emit("LOG_SOFTMAX", [x], x.shape, FIXED["LOG_SOFTMAX"].get(w.kind), options_of("LOG_SOFTMAX"), exact=False)


# ---- two operands


def partner(w: Parts, x: Value, others: Sequence[Value], quant: Quant | None = None) -> Value:
    """The second operand: the one that is given, if it suits, else a constant or an input of a shape that suits."""
    for y in others:
        pairs = list(zip(x.shape, y.shape, strict=False))
        if len(x.shape) == len(y.shape) and all(1 in pair or len(set(pair)) == 1 for pair in pairs):
            return y
    shape = w.s.pick(x.shape, x.shape, tuple(w.s.pick(1, n) for n in x.shape), (1,) * len(x.shape))
    return w.filled(shape, quant) if w.s.between(0, 1) else w.fresh(shape, quant)


def broadcast_shape(x: Value, y: Value) -> tuple[int, ...]:
    return tuple(int(n) for n in np.broadcast_shapes(x.shape, y.shape))


def binary(name: str) -> Make:
    def make(w: Parts, x: Value, *others: Value) -> Value:
        y = partner(w, x, others)
        if name in ("MAXIMUM", "MINIMUM"):
            y = w.like(y, x.quant)
            return w.emit(name, [x, y], broadcast_shape(x, y), x.quant, options_of(name))
        options = options_of(name)
        if hasattr(options, "fusedActivationFunction"):
            options.fusedActivationFunction = w.s.pick(*ACTIVATIONS)
        quant = None
        if x.quant is not None and y.quant is not None:
            scales = x.quant.scale[0], y.quant.scale[0]
            top = FULL[w.kind][1] * 0.6
            quant = w.quant(prod(scales) * top if name == "MUL" else max(scales) * w.s.pick(1.0, 1.4, 2.0))
            if name == "SQUARED_DIFFERENCE":
                quant = w.quant(max(scales) ** 2 * 2 * top)
        operands = [x, y] if w.s.pick(True, False) else [y, x]
        return w.emit(name, operands, broadcast_shape(x, y), quant, options, exact=False)

    return make


def divided(name: str) -> Make:
    """Numbers by others that are not near 0."""

    def make(w: Parts, x: Value, *_: Value) -> Value:
        if not w.real:
            return _quotient(w, x)
        x = w.exactly(x) if name != "DIV" else x
        shape = w.s.pick(x.shape, (1,) * len(x.shape), (*(1,) * (len(x.shape) - 1), x.shape[-1]))
        data = w.s.rng.choice([-3.0, -0.75, 0.5, 2.5], shape).astype(np.float32)
        return w.emit(name, [x, Value(w.constant(data), shape, None)], x.shape, None, options_of(name))

    return make


def _quotient(w: Parts, x: Value) -> Value:
    """int8 by a constant without zeros. -1 / 255 is shifted by at most 31 bits: TFLM leaves more to the processor."""
    assert x.quant is not None
    shape = w.s.pick(x.shape, (1,) * len(x.shape), (*(1,) * (len(x.shape) - 1), x.shape[-1]))
    own = w.quant(w.scale())
    assert own is not None
    steps = w.s.rng.integers(-128, 128, shape).astype(np.int8)
    steps[steps == own.zero_point[0]] ^= 1
    options = options_of("DIV")
    options.fusedActivationFunction = w.s.pick(*ACTIVATIONS)
    y = w.quant(x.quant.scale[0] / own.scale[0] * 2.0 ** -w.s.between(8, 12) * w.s.rng.uniform(1, 2))
    return w.emit("DIV", [x, Value(w.constant(steps, own), shape, own)], x.shape, y, options)


def prelu(w: Parts, x: Value, *_: Value) -> Value:
    """One slope for each channel, which is a constant."""
    shape = (*(1,) * (len(x.shape) - 2), x.shape[-1])
    if w.real:
        return w.emit("PRELU", [x, w.filled(shape)], x.shape, None, exact=False)
    slope = Quant((float(np.float32(w.s.rng.uniform(0.001, 0.01))),), (0,))
    data = w.s.rng.integers(-127, 128, shape).astype(w.kind)
    return w.emit("PRELU", [x, w.constant(data, slope)], x.shape, w.scaled(x, 0.7, 1.3))


# ---- truth values

COMPARISONS = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")


def truth(w: Parts, x: Value, *others: Value, name: str = "") -> Value:
    """A comparison."""
    x = w.exactly(x)
    y = w.exactly(partner(w, x, others))
    name = name or w.s.pick(*COMPARISONS)
    return w.emit(name, [x, y], broadcast_shape(x, y), None, options_of(name), "bool", exact=True)


def chosen(w: Parts, condition: Value, x: Value, name: str = "SELECT_V2") -> Value:
    """One of two values by a condition; back in the type of activations."""
    if len(condition.shape) != len(x.shape):
        raise DoesNotFit
    y = w.fresh(x.shape, x.quant) if w.s.pick(True, False) else w.filled(x.shape, x.quant)
    operands = [condition, *w.s.pick((x, y), (y, x))]
    shape = tuple(int(n) for n in np.broadcast_shapes(condition.shape, x.shape))
    if name == "SELECT" and condition.shape != x.shape:
        raise DoesNotFit
    return w.emit("SELECT_V2" if w.twin else name, operands, shape, x.quant, options_of("SELECT_V2"))


def comparison(name: str) -> Make:
    return lambda w, x, *others: chosen(w, truth(w, x, *others, name=name), x)


def logical(name: str) -> Make:
    def make(w: Parts, x: Value, *others: Value) -> Value:
        a = truth(w, x, *others)
        operands = [a] if name == "LOGICAL_NOT" else [a, _other_truth(w, a)]
        return chosen(w, w.emit(name, operands, a.shape, None, options_of(name), "bool", exact=True), x)

    return make


def _other_truth(w: Parts, a: Value) -> Value:
    return w.given(a.shape, None, "bool") if w.s.pick(True, False) else truth(w, w.fresh(a.shape))


def select(w: Parts, x: Value, *_: Value) -> Value:
    return chosen(w, w.given(x.shape, None, "bool"), x, "SELECT")


def quantified(name: str) -> Make:
    """REDUCE_ALL and REDUCE_ANY; TFLM has not the second: not all are not."""

    def make(w: Parts, x: Value, *others: Value) -> Value:
        a = truth(w, x, *others)
        axes, shape, options = _reduced(w, a, keep=True)

        def denied(v: Value) -> Value:
            return w.emit("LOGICAL_NOT", [v], v.shape, None, options_of("LOGICAL_NOT"), "bool", exact=True)

        if name == "REDUCE_ANY" and w.twin:
            every = w.emit("REDUCE_ALL", [denied(a), axes], shape, None, options, "bool", exact=True)
            return chosen(w, denied(every), x)
        return chosen(w, w.emit(name, [a, axes], shape, None, options, "bool", exact=True), x)

    return make


# ---- over dimensions


def _reduced(w: Parts, x: Value, keep: bool | None = None) -> tuple[int, tuple[int, ...], Any]:
    """Dimensions behind the batch, the shape without them, options."""
    if len(x.shape) < 2:
        raise DoesNotFit
    axes = [d for d in range(1, len(x.shape)) if w.s.pick(True, False)] or [len(x.shape) - 1]
    options = schema.ReducerOptionsT()
    options.keepDims = w.s.pick(True, False) if keep is None else keep
    shape = tuple(1 if d in axes else n for d, n in enumerate(x.shape) if options.keepDims or d not in axes)
    return w.list_of(axes), shape, options


def reduction(name: str) -> Make:
    def make(w: Parts, x: Value, *_: Value) -> Value:
        axes, shape, options = _reduced(w, x)
        return w.emit(name, [x, axes], shape, x.quant, options, exact=x.exact)

    return make


def total(w: Parts, x: Value, *_: Value) -> Value:
    """SUM, in a scale that takes it up."""
    axes, shape, options = _reduced(w, x)
    count = prod(x.shape) // prod(shape)
    return w.emit("SUM", [x, axes], shape, w.scaled(x, 0.5 * count**0.5, count), options, exact=False)


def product(w: Parts, x: Value, *_: Value) -> Value:
    """REDUCE_PROD along the last dimension; for TFLM it is taken apart and multiplied."""
    x, n = w.emit("TANH", [x], x.shape, None, exact=False), x.shape[-1]
    if len(x.shape) < 2 or n > 17:
        raise DoesNotFit
    options, shape = schema.ReducerOptionsT(), x.shape[:-1]
    options.keepDims = False
    if not w.twin:
        return w.emit("REDUCE_PROD", [x, w.list_of([len(x.shape) - 1])], shape, None, options, exact=False)
    unpack = schema.UnpackOptionsT()
    unpack.axis, unpack.num = len(x.shape) - 1, n
    total, *rest = w.several("UNPACK", [x], [shape] * n, None, unpack)
    for value in rest:
        total = w.emit("MUL", [total, value], shape, None, options_of("MUL"))
    return total


def place(w: Parts, name: str, x: Value) -> tuple[Value, int]:
    """Where the largest or the smallest along a dimension stands, as int32, and the size of the dimension."""
    if len(x.shape) < 2:
        raise DoesNotFit
    x, axis = w.exactly(x), w.s.between(1, len(x.shape) - 1)
    options = schema.ArgMaxOptionsT() if name == "ARG_MAX" else schema.ArgMinOptionsT()
    options.outputType = TYPES["int32"]
    where = w.constant(np.array(w.s.pick(axis, axis - len(x.shape)), np.int32))
    shape = [n for d, n in enumerate(x.shape) if d != axis]
    return w.emit(name, [x, where], shape, None, options, "int32", exact=True), x.shape[axis]


def extreme(name: str) -> Make:
    """A place as a number again."""
    return lambda w, x, *_: w.as_activation(_cast(w, place(w, name, x)[0], "int32", "float32"))


def _cast(w: Parts, x: Value, source: str, to: str) -> Value:
    options = schema.CastOptionsT()
    options.inDataType, options.outDataType = TYPES[source], TYPES[to]
    return w.emit("CAST", [x], x.shape, None, options, to, exact=x.exact)


def cast(w: Parts, x: Value, *_: Value) -> Value:
    """Numbers as they are stored; or whole parts of real ones."""
    if w.real:
        return _cast(w, _cast(w, w.exactly(x), "float32", "int32"), "int32", "float32")
    return w.as_activation(_cast(w, x, w.kind, "float32"))


def real_function(w: Parts, x: Value, *_: Value) -> Value:
    """From integers to real numbers and back."""
    return w.as_activation(w.as_real(x))


ELEMENTWISE = {
    **{name: Row(unary(name), BOTH) for name in ("HARD_SWISH", "ELU", "RSQRT")},
    **{name: Row(unary(name)) for name in ("LEAKY_RELU", "RELU", "RELU6", "LOGISTIC", "TANH", "ABS", *REAL)},
    **{name: Row(unary(name), (FLOAT,)) for name in ("SQRT", "LOG", "EXP", "SIN", "COS")},
    **{name: Row(binary(name)) for name in ("ADD", "SUB", "MUL", "MAXIMUM", "MINIMUM")},
    **{name: Row(divided(name), (FLOAT,)) for name in ("FLOOR_DIV", "FLOOR_MOD")},
    "DIV": Row(divided("DIV"), BOTH),
    **{name: Row(comparison(name), BOTH) for name in COMPARISONS},
    **{name: Row(logical(name), BOTH) for name in ("LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT")},
    **{name: Row(reduction(name), BOTH) for name in ("REDUCE_MAX", "REDUCE_MIN")},
    **{name: Row(quantified(name), BOTH) for name in ("REDUCE_ALL", "REDUCE_ANY")},
    **{name: Row(extreme(name), BOTH) for name in ("ARG_MAX", "ARG_MIN")},
    "SQUARED_DIFFERENCE": Row(binary("SQUARED_DIFFERENCE")),
    "SUM": Row(total),
    "SIGN": Row(sign, (FLOAT,)),
    "GELU": Row(gelu, (FLOAT,)),
    "POW": Row(power, (FLOAT,)),
    "RELU_N1_TO_1": Row(clipped, BOTH),
    "REDUCE_PROD": Row(product, (FLOAT,)),
    "SELECT": Row(select),
    "SOFTMAX": Row(softmax),
    "LOG_SOFTMAX": Row(log_softmax, BOTH),
    "PRELU": Row(prelu, BOTH),
    "CAST": Row(cast),
    "DEQUANTIZE": Row(real_function, (INT8, INT16)),
    "QUANTIZE": Row(lambda w, x, *_: w.like(x, w.scaled(x, 0.5, 2)), (INT8, INT16)),
}
