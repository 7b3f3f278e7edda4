"""Random .tflite files of one operator: int16 sigmoid and tanh by TFLM's table of lines, quotients, log-softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema

from edgebuild.model.ir import Quant

from .tflite_models import OPERATORS, Draft


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


def running_sum(f: Draft) -> bytes:
    shape, options = f.shape(), schema.CumsumOptionsT()
    options.exclusive, options.reverse = f.s.pick(False, True), f.s.pick(False, True)
    axis = f.tensor("axis", (1,), "int32", None, np.array([f.s.between(-len(shape), len(shape) - 1)], np.int32))
    return f.done("CUMSUM", [f.input(shape, None, "float32"), axis], shape, None, options, "float32")


OPERATORS |= {"L2_NORMALIZATION": unit_rows, "L2_NORMALIZATION float": real_unit_rows, "CUMSUM float": running_sum}
OPERATORS |= {"LOG_SOFTMAX": log_softmax, "LOG_SOFTMAX float": real_log_softmax}
OPERATORS |= {f"{name} int16": curve(name) for name in ("LOGISTIC", "TANH")} | {"DIV": quotient}
