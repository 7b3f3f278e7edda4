"""Random .tflite files of one operator: int16 sigmoid and tanh by TFLM's table of lines, quotients, log-softmax,
norms, and what is rare.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Quant

from .tflite_models import INDEX_ROWS, OPERATORS, SAME, TYPES, VALID, Draft, output_size


def curve(name: str) -> Callable[[Draft], bytes]:
    def make(f: Draft) -> bytes:
        shape, power = f.shape(), f.s.between(-16, -8)
        scale = 2.0**power * f.s.pick(1.0, float(f.s.rng.uniform(1, 2)))
        x = f.input(shape, Quant((float(np.float32(scale)),), (0,)))
        return f.done(name, [x], shape, Quant((2.0**-15,), (0,)))

    return make


def quotient(f: Draft) -> bytes:
    """The divisor is nowhere 0, and quotients are not so small that TFLM shifts by more than a word."""
    shape = f.shape()
    other, a, b = f.s.pick(shape, tuple(f.s.pick(1, n) for n in shape)), f.quant(), f.quant()
    steps = f.s.rng.integers(-128, 128, other).astype(np.int8)
    steps[steps == b.zero_point[0]] ^= 1
    y = f.quant(float(np.float32(a.scale[0] / b.scale[0] * 2.0 ** -f.s.between(6, 12) * f.s.rng.uniform(1, 2))))
    options = schema.DivOptionsT()
    options.fusedActivationFunction = f.s.pick(0, 1, 3)
    return f.done("DIV", [f.input(shape, a), f.tensor("divisor", other, "int8", b, steps)], shape, y, options)


def log_softmax(f: Draft) -> bytes:
    size = f.s.pick(f.s.between(1, 30), f.s.between(30, 400))
    shape = f.s.pick((1, size), (1, f.s.between(1, 3), size), (size,))
    options = schema.LogSoftmaxOptionsT()
    q = f.quant(float(np.float32(2.0 ** -f.s.between(1, 11) * f.s.rng.uniform(1, 2))))
    return f.done("LOG_SOFTMAX", [f.input(shape, q)], shape, Quant((1 / 16,), (127,)), options)


def real_log_softmax(f: Draft) -> bytes:
    shape, options = f.shape(), schema.LogSoftmaxOptionsT()
    return f.done("LOG_SOFTMAX", [f.input(shape, None, "float32")], shape, None, options, "float32")


def unit_rows(f: Draft) -> bytes:
    """Long rows, and rows of few steps, in which the fixed point has its ends."""
    shape = (1, f.s.between(1, 4), f.s.pick(f.s.between(1, 12), f.s.between(300, 1200)))
    return f.done("L2_NORMALIZATION", [f.input(shape, f.quant())], shape, Quant((1 / 128,), (0,)), norm_options())


def real_unit_rows(f: Draft) -> bytes:
    shape = f.shape()
    return f.done("L2_NORMALIZATION", [f.input(shape, None, "float32")], shape, None, norm_options(), "float32")


def norm_options() -> schema.L2NormOptionsT:
    options = schema.L2NormOptionsT()
    options.fusedActivationFunction = 0
    return options


def running_sum(dtype: str) -> Callable[[Draft], bytes]:
    return lambda f: _running_sum(f, dtype)


def _running_sum(f: Draft, dtype: str) -> bytes:
    shape, options = f.shape(), schema.CumsumOptionsT()
    before, after = (f.quant(), f.quant()) if dtype == "int8" else (None, None)
    options.exclusive, options.reverse = f.s.pick(False, True), f.s.pick(False, True)
    axis = f.tensor("axis", (1,), "int32", None, np.array([f.s.between(-len(shape), len(shape) - 1)], np.int32))
    return f.done("CUMSUM", [f.input(shape, before, dtype), axis], shape, after, options, dtype)


def summed(f: Draft) -> bytes:
    shape, dtype = f.shape(), "float32"
    operands = [f.input(shape, None, dtype) for _ in range(f.s.between(2, 4))]
    return f.done("ADD_N", operands, shape, None, schema.AddNOptionsT(), dtype)


def zeros(f: Draft) -> bytes:
    """Beside the operand, which nothing else would read."""
    shape, dtype = f.shape(), f.s.pick("float32", "int8")
    q = f.quant() if dtype == "int8" else None
    x, none, y = f.input(shape, q, dtype), f.tensor("none", shape, dtype, q), f.tensor("y", shape, dtype, q)
    f.operator("ZEROS_LIKE", [x], [none], schema.ZerosLikeOptionsT())
    f.operator("MAXIMUM", [x, none], [y], schema.MaximumMinimumOptionsT())
    return f.pack([x], [y])


def together(f: Draft) -> bytes:
    """The shape of two together, as numbers that are added to others."""
    wide = tuple(f.s.between(1, 4) for _ in range(f.s.between(1, 4)))
    own, other = (tuple(f.s.pick(1, n) for n in wide) for _ in range(2))
    other = tuple(max(n, m) if f.s.pick(True, False) else m for n, m in zip(wide, other, strict=True))
    shape = tuple(np.broadcast_shapes(own, other))
    x, count = f.input((len(shape),), None, "float32"), f.tensor("shape", (len(shape),), "int32")
    real, y = (f.tensor(name, (len(shape),), "float32") for name in "ry")
    cast, add = schema.CastOptionsT(), schema.AddOptionsT()
    cast.inDataType, cast.outDataType = TYPES["int32"], TYPES["float32"]
    f.operator("BROADCAST_ARGS", [f.list_of(own), f.list_of(other)], [count])
    f.operator("CAST", [count], [real], cast)
    f.operator("ADD", [x, real], [y], add)
    return f.pack([x], [y])


def lengths(f: Draft) -> bytes:
    shape, options = (1, *f.s.shape(3, 3, 7)), schema.Pool2DOptionsT()
    window, stride = ([f.s.between(1, n) for n in shape[1:3]] for _ in range(2))
    options.filterHeight, options.filterWidth, options.strideH, options.strideW = *window, *stride
    options.padding, options.fusedActivationFunction = f.s.pick(SAME, VALID), f.s.pick(0, 0, 1, 3)
    size = output_size(shape[1:3], window, stride, options.padding)
    return f.done("L2_POOL_2D", [f.input(shape, None, "float32")], (1, *size, shape[3]), None, options, "float32")


def embedding(f: Draft) -> bytes:
    """Rows of a table in float32, or in int8 that become real numbers."""
    count, columns = f.s.between(1, 6), f.s.between(1, 5)
    if f.s.pick(True, False):
        data = f.s.rng.standard_normal((INDEX_ROWS, columns)).astype(np.float32)
        table = f.tensor("table", data.shape, "float32", None, data)
    else:
        data = f.s.rng.integers(-127, 128, (INDEX_ROWS, columns)).astype(np.int8)
        table = f.tensor("table", data.shape, "int8", Quant((f.quant().scale[0],), (0,)), data)
    return f.done(
        "EMBEDDING_LOOKUP", [f.input((count,), None, "int32"), table], (count, columns), None, None, "float32"
    )


OPERATORS |= {"EMBEDDING_LOOKUP": embedding}
OPERATORS |= {"ADD_N float": summed, "ZEROS_LIKE": zeros, "BROADCAST_ARGS": together, "L2_POOL_2D float": lengths}
OPERATORS |= {
    "L2_NORMALIZATION": unit_rows,
    "L2_NORMALIZATION float": real_unit_rows,
    "CUMSUM float": running_sum("float32"),
}
OPERATORS |= {"CUMSUM": running_sum("int8")}
OPERATORS |= {"LOG_SOFTMAX": log_softmax, "LOG_SOFTMAX float": real_log_softmax}
OPERATORS |= {f"{name} int16": curve(name) for name in ("LOGISTIC", "TANH")} | {"DIV": quotient}
