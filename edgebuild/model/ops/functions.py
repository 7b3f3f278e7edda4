"""The table of elementwise functions: one row each, with its meaning in numpy and its C.

In C, {0}, {1} and {2} are the operands and other names in braces are parameters. Names in double braces are C functions
that kernels share. A row without `real` has no form for floats, one without `integer` none for integers. Comparisons
and predicates give `bool`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import erf, sqrt
from typing import Any

import numpy as np

from ..ir import Array


@dataclass(frozen=True)
class ElementFunction:
    """A function of `arity` operands. `parameters`: the defaults of its numbers; `result`: a type if it is fixed.

    `condition`: the first operand is bool and does not count for the type of the others. `onnx`: the C for floats of
    ONNX files, where NaN is treated differently. `whole`: it takes quantised operands as whole numbers, with a scale of
    1 and no zero point; the result's zero point is added.
    """

    arity: int
    meaning: Callable[..., Any]
    real: str = ""
    integer: str = ""
    parameters: Mapping[str, float] = field(default_factory=dict)
    result: str = ""
    condition: bool = False
    onnx: str = ""
    whole: bool = False


_erf = np.vectorize(erf, otypes=[np.float64])


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _pow(x: Array, y: Array) -> Array:
    if x.dtype.kind == "f":
        return np.asarray(np.power(x, y))
    small = np.where(x == 1, 1, np.where(x == -1, np.where(y % 2, -1, 1), 0))
    return np.asarray(np.where(y < 0, small, np.power(x, np.maximum(y, 0).astype(np.int64))))


def _divide(x: Array, y: Array) -> Array:
    """Divide; integers truncate towards zero, and division by 0 gives 0."""
    if x.dtype.kind == "f":
        return np.asarray(x / y)
    divisor = np.where(y == 0, 1, y)
    with np.errstate(over="ignore"):  # the least integer by -1, which wraps to itself
        below, rest = np.floor_divide(x, divisor), np.remainder(x, divisor)
    return np.asarray(np.where(y == 0, 0, below + ((rest != 0) & ((x < 0) != (y < 0)))))


def _shift(x: Array, y: Array, left: bool) -> Array:
    bits = x.dtype.itemsize * 8
    moved = x << np.minimum(y, bits - 1) if left else x >> np.minimum(y, bits - 1)
    return np.asarray(np.where(y < bits, moved, 0))


def _range_step(low: Array, high: Array) -> Array:
    size = np.maximum(high, 0) - np.minimum(low, 0)
    return np.asarray(np.where(size > 0, size / np.float32(255), 1))


def _shifted_product(x: Array, factor: Array, added: Array, *parameters: float) -> Array:
    """(x * factor + added) / 2^bits, rounded to nearest, halves up, and clamped to [low, high]."""
    bits, low, high = map(int, parameters)
    whole = [np.asarray(a).astype(np.int64) for a in (x, factor, added)]
    return np.asarray(np.clip((whole[0] * whole[1] + whole[2] + (1 << bits >> 1)) >> bits, low, high))


def _unary(meaning: Callable[..., Any], real: str, integer: str = "", **parameters: float) -> ElementFunction:
    return ElementFunction(1, meaning, real, integer, parameters)


def _compare(meaning: Callable[..., Any], sign: str) -> ElementFunction:
    return ElementFunction(2, meaning, f"{{0}} {sign} {{1}}", f"{{0}} {sign} {{1}}", result="bool")


SWITCH = "{0} ? {1} : {2}"
# Quotients of the least integer by -1, and overflowing sums of remainder and divisor, are undefined in C.
FLOOR_MOD = "{1} > 0 || {1} < -1 ? {0} % {1} + ({0} % {1} != 0 && ({0} % {1} < 0) != ({1} < 0) ? {1} : 0) : 0"
# Integers as wide as C's int, or wider: results wrap around, so C computes them in unsigned words.
WORDS = {"int32": "uint32_t", "int64": "uint64_t"}
WRAPPED = {
    "abs": "{0} < 0 ? 0u - ({word}){0} : ({word}){0}",
    "neg": "0u - ({word}){0}",
    "square": "({word}){0} * ({word}){0}",
    "sum": "({word}){0} + ({word}){1}",
    "difference": "({word}){0} - ({word}){1}",
    "product": "({word}){0} * ({word}){1}",
    "quotient": "{1} == -1 ? 0u - ({word}){0} : {1} != 0 ? ({word})({0} / {1}) : 0u",
    "squared_difference": "(({word}){0} - ({word}){1}) * (({word}){0} - ({word}){1})",
    "prelu": "{0} < 0 ? ({word}){0} * ({word}){1} : ({word}){0}",
}
SHIFTS = ("shift_left", "shift_right")  # of unsigned integers
MODULAR = ("bit_and", "bit_or", "bit_xor", "bit_not", "sum", "difference", "product")  # also of uint32 and uint64
FUNCTIONS: dict[str, ElementFunction] = {
    # rounding and sign
    "abs": _unary(np.abs, "{{eb_abs}}({0})", "{0} < 0 ? -{0} : {0}"),
    "neg": _unary(np.negative, "-{0}", "-{0}"),
    "sign": _unary(np.sign, "({0} > 0.0f ? 1.0f : {0} < 0.0f ? -1.0f : {0} + 0.0f)", "({0} > 0) - ({0} < 0)"),
    "floor": _unary(np.floor, "{{eb_floor}}({0})"),
    "ceil": _unary(np.ceil, "{{eb_ceil}}({0})"),
    "round": _unary(np.rint, "{{eb_rint}}({0})"),
    # powers
    "reciprocal": _unary(lambda x: 1 / x, "1.0f / {0}"),
    "square": _unary(np.square, "{0} * {0}", "{0} * {0}"),
    "sqrt": _unary(np.sqrt, "{{eb_sqrt}}({0})"),
    "rsqrt": _unary(lambda x: 1 / np.sqrt(x), "1.0f / {{eb_sqrt}}({0})"),
    "exp": _unary(np.exp, "{{eb_exponential}}({0})"),
    "log": _unary(np.log, "{{eb_log}}({0})"),
    "erf": _unary(_erf, "{{eb_erf}}({0})"),
    # angles
    "sin": _unary(np.sin, "{{eb_circular}}({0}, 0)"),
    "cos": _unary(np.cos, "{{eb_circular}}({0}, 1)"),
    "tan": _unary(np.tan, "{{eb_circular}}({0}, 0) / {{eb_circular}}({0}, 1)"),
    "asin": _unary(np.arcsin, "{{eb_asin}}({0})"),
    "acos": _unary(np.arccos, "{{eb_acos}}({0})"),
    "atan": _unary(np.arctan, "{{eb_atan}}({0})"),
    "sinh": _unary(np.sinh, "{{eb_sinh}}({0})"),
    "cosh": _unary(np.cosh, "{{eb_cosh}}({0})"),
    "asinh": _unary(np.arcsinh, "{{eb_asinh}}({0})"),
    "acosh": _unary(np.arccosh, "{{eb_acosh}}({0})"),
    "atanh": _unary(np.arctanh, "{{eb_atanh}}({0})"),
    # activations
    "tanh": _unary(np.tanh, "{{eb_tanh}}({0})"),
    "sigmoid": _unary(_sigmoid, "{{eb_sigmoid}}({0})"),
    "hard_sigmoid": _unary(
        lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
        "{{eb_clamp_float}}({alpha} * {0} + {beta}, 0.0f, 1.0f)",
        alpha=0.2,
        beta=0.5,
    ),
    "hard_swish": ElementFunction(
        1,
        lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        "{0} * {{eb_clamp_float}}({0} + 3.0f, 0.0f, 6.0f) * 0.166666667f",
        onnx="{0} * {{eb_clamp_float}}({0} * 0.166666667f + 0.5f, 0.0f, 1.0f)",
    ),
    "leaky_relu": _unary(
        lambda x, alpha: np.where(x < 0, alpha * x, x), "({0} < 0.0f ? {alpha} * {0} : {0})", alpha=0.01
    ),
    "thresholded_relu": _unary(lambda x, alpha: np.where(x > alpha, x, 0), "({0} > {alpha} ? {0} : 0.0f)", alpha=1.0),
    "elu": _unary(
        lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
        "({0} < 0.0f ? {alpha} * ({{eb_exponential}}({0}) - 1.0f) : {0})",
        alpha=1.0,
    ),
    "selu": _unary(
        lambda x, alpha, gamma: gamma * np.where(x <= 0, alpha * np.expm1(np.minimum(x, 0)), x),
        "{gamma} * ({0} > 0.0f ? {0} : {alpha} * ({{eb_exponential}}({0}) - 1.0f))",
        alpha=1.67326319217681884765625,
        gamma=1.05070102214813232421875,
    ),
    "celu": _unary(
        lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0) / alpha), x),
        "({0} < 0.0f ? {alpha} * ({{eb_exponential}}({0} / {alpha}) - 1.0f) : {0})",
        alpha=1.0,
    ),
    "gelu": _unary(lambda x: 0.5 * x * (1 + _erf(x / sqrt(2))), "0.5f * {0} * (1.0f + {{eb_erf}}({0} * 0.707106781f))"),
    "gelu_tanh": _unary(
        lambda x: 0.5 * x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        "0.5f * {0} * (1.0f + {{eb_tanh}}(0.797884561f * ({0} + 0.044715f * {0} * {0} * {0})))",
    ),
    "softplus": _unary(
        lambda x: np.logaddexp(0, x), "({0} > 0.0f ? {0} : 0.0f) + {{eb_log1p}}({{eb_exponential}}(-{{eb_abs}}({0})))"
    ),
    "softsign": _unary(lambda x: x / (1 + np.abs(x)), "{0} / (1.0f + {{eb_abs}}({0}))"),
    "swish": _unary(lambda x, alpha: x * _sigmoid(alpha * x), "{0} * {{eb_sigmoid}}({alpha} * {0})", alpha=1.0),
    "mish": _unary(
        lambda x: x * np.tanh(np.logaddexp(0, x)),
        "{0} * {{eb_tanh}}(({0} > 0.0f ? {0} : 0.0f) + {{eb_log1p}}({{eb_exponential}}(-{{eb_abs}}({0}))))",
    ),
    "shrink": _unary(
        lambda x, bias, lambd: np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0)),
        "({0} < -{lambd} ? {0} + {bias} : {0} > {lambd} ? {0} - {bias} : 0.0f)",
        bias=0.0,
        lambd=0.5,
    ),
    # predicates
    "not": ElementFunction(1, np.logical_not, "", "!{0}", result="bool"),
    "is_nan": ElementFunction(1, np.isnan, "!({0} <= 0.0f || {0} >= 0.0f)", result="bool"),
    # arithmetic
    "sum": ElementFunction(2, np.add, "{0} + {1}", "{0} + {1}"),
    "difference": ElementFunction(2, np.subtract, "{0} - {1}", "{0} - {1}"),
    "product": ElementFunction(2, np.multiply, "{0} * {1}", "{0} * {1}"),
    "quotient": ElementFunction(2, _divide, "{0} / {1}", "{1} != 0 ? {0} / {1} : 0"),
    "floor_div": ElementFunction(2, np.floor_divide, "{{eb_floor}}({0} / {1})"),
    "minimum": ElementFunction(
        2, np.minimum, "({0} < {1} ? {0} : {1})", "{0} < {1} ? {0} : {1}", onnx="{{eb_minimum}}({0}, {1})"
    ),
    "maximum": ElementFunction(
        2, np.maximum, "({0} > {1} ? {0} : {1})", "{0} > {1} ? {0} : {1}", onnx="{{eb_maximum}}({0}, {1})"
    ),
    "squared_difference": ElementFunction(
        2,
        lambda a, b: (a - b) ** 2,
        "({0} - {1}) * ({0} - {1})",
        "(uint32_t)({0} - {1}) * (uint32_t)({0} - {1})",  # the square of an int16 difference needs an unsigned word
    ),
    "power": ElementFunction(2, _pow, "{{eb_pow}}({0}, {1})", "{{eb_integer_power}}({0}, {1})"),
    "mod": ElementFunction(2, np.mod, "{{eb_floor_mod}}({0}, {1})", FLOOR_MOD),
    "remainder": ElementFunction(2, np.fmod, "{{eb_fmod}}({0}, {1})", "{1} > 0 || {1} < -1 ? {0} % {1} : 0"),
    "unsigned_remainder": ElementFunction(2, np.fmod, "", "{1} != 0 ? {0} % {1} : 0"),
    "prelu": ElementFunction(
        2, lambda x, slope: np.where(x < 0, x * slope, x), "({0} < 0.0f ? {0} * {1} : {0})", "{0} < 0 ? {0} * {1} : {0}"
    ),
    # quantisation with a scale that the graph computes, of a range that is extended to 0
    "step_of_range": ElementFunction(
        2, _range_step, "{{eb_range}}({0}, {1}) > 0.0f ? {{eb_range}}({0}, {1}) / 255.0f : 1.0f"
    ),
    "zero_of_range": ElementFunction(
        2,
        lambda low, step: np.clip(np.rint(-np.minimum(low, 0) / step), 0, 255),
        "(float){{eb_clamp}}({{eb_round}}(({0} < 0.0f ? -{0} : 0.0f) / {1}), 0, 255)",
    ),
    "steps_from_zero": ElementFunction(
        3,
        lambda x, step, zero: np.clip(np.rint(x / step) + np.trunc(zero), 0, 255),
        "{{eb_clamp}}({{eb_round}}({0} / {1}) + (int32_t){2}, 0, 255)",
        result="uint8",
    ),
    # comparisons and logic
    "equal": ElementFunction(2, np.equal, "{0} <= {1} && {0} >= {1}", "{0} == {1}", result="bool"),
    "not_equal": ElementFunction(2, np.not_equal, "!({0} <= {1} && {0} >= {1})", "{0} != {1}", result="bool"),
    "greater": _compare(np.greater, ">"),
    "greater_equal": _compare(np.greater_equal, ">="),
    "less": _compare(np.less, "<"),
    "less_equal": _compare(np.less_equal, "<="),
    "and": ElementFunction(2, np.logical_and, "", "{0} && {1}", result="bool"),
    "or": ElementFunction(2, np.logical_or, "", "{0} || {1}", result="bool"),
    "xor": ElementFunction(2, np.logical_xor, "", "!{0} != !{1}", result="bool"),
    "bit_and": ElementFunction(2, np.bitwise_and, "", "{0} & {1}"),
    "bit_or": ElementFunction(2, np.bitwise_or, "", "{0} | {1}"),
    "bit_xor": ElementFunction(2, np.bitwise_xor, "", "{0} ^ {1}"),
    "bit_not": ElementFunction(1, np.invert, "", "~{0}"),
    "shift_left": ElementFunction(2, lambda x, y: _shift(x, y, True), "", "{1} < {bits} ? ({type}){0} << {1} : 0"),
    "shift_right": ElementFunction(2, lambda x, y: _shift(x, y, False), "", "{1} < {bits} ? ({type}){0} >> {1} : 0"),
    # three operands
    "where": ElementFunction(3, np.where, SWITCH, SWITCH, condition=True),
    "shifted_product": ElementFunction(
        3,
        _shifted_product,
        "",
        "{{eb_shifted_product}}({0}, {1}, {2}, {bits}, {low}, {high})",
        {"bits": 0, "low": -128, "high": 127},
        result="int8",
        whole=True,
    ),
}

# Instructions per float32 value: with a float unit; with the C library's functions on Armv7-M, Armv6-M and RV32.
# `./sconsw bench-functions` counts them. Softmax: per value of a row.
UNITS = frozenset({"fpu", "f", "portable"})
USUAL = 30.0  # instructions of a function that is not listed
INSTRUCTIONS: dict[str, tuple[float, float, float, float]] = {
    "abs": (10.0, 44.6, 48.1, 28.1),
    "neg": (6.0, 6.0, 8.8, 6.0),
    "sign": (11.6, 68.1, 63.3, 44.8),
    "floor": (27.1, 157.0, 199.0, 156.0),
    "ceil": (28.5, 159.0, 197.0, 153.0),
    "round": (47.5, 373.0, 481.0, 391.0),
    "reciprocal": (5.0, 154.0, 391.0, 107.0),
    "square": (6.9, 38.9, 125.0, 114.0),
    "sqrt": (30.0, 839.0, 2150.0, 980.0),
    "rsqrt": (31.0, 989.0, 2537.0, 1085.0),
    "exp": (41.1, 837.0, 1900.0, 1788.0),
    "log": (54.1, 1015.0, 2106.0, 1725.0),
    "erf": (60.6, 1275.0, 2920.0, 2566.0),
    "sin": (93.9, 1139.0, 2256.0, 2057.0),
    "cos": (95.5, 1159.0, 2286.0, 2091.0),
    "tan": (209.0, 2457.0, 4953.0, 4315.0),
    "asin": (85.2, 2204.0, 4984.0, 3112.0),
    "acos": (85.8, 2294.0, 5115.0, 3149.0),
    "atan": (45.8, 1006.0, 2107.0, 1715.0),
    "sinh": (39.4, 846.0, 1989.0, 1636.0),
    "cosh": (51.0, 1279.0, 3073.0, 2366.0),
    "asinh": (116.0, 2633.0, 5777.0, 3603.0),
    "acosh": (105.0, 2480.0, 5438.0, 3540.0),
    "atanh": (83.0, 1675.0, 3554.0, 2560.0),
    "tanh": (50.0, 1031.0, 2200.0, 1866.0),
    "sigmoid": (41.0, 1049.0, 2353.0, 1960.0),
    "hard_sigmoid": (15.0, 171.0, 294.0, 247.0),
    "hard_swish": (16.0, 205.0, 401.0, 349.0),
    "leaky_relu": (8.0, 60.2, 105.0, 87.7),
    "thresholded_relu": (10.0, 46.9, 47.4, 30.4),
    "elu": (26.7, 519.0, 1108.0, 1035.0),
    "selu": (30.8, 576.0, 1292.0, 1205.0),
    "celu": (26.7, 519.0, 1108.0, 1035.0),
    "gelu": (60.3, 1262.0, 2994.0, 2675.0),
    "gelu_tanh": (60.0, 1288.0, 2981.0, 2602.0),
    "softplus": (126.0, 2338.0, 4899.0, 4070.0),
    "softsign": (11.0, 246.0, 490.0, 199.0),
    "swish": (43.0, 1084.0, 2476.0, 2068.0),
    "mish": (187.0, 3497.0, 7410.0, 6201.0),
    "shrink": (10.0, 78.1, 86.2, 63.5),
    "is_nan": (9.9, 63.1, 62.8, 40.9),
    "sum": (7.1, 59.2, 78.2, 77.9),
    "clamp": (11.3, 66.0, 67.0, 43.0),
    "quantize": (36.0, 429.0, 725.0, 373.0),
    "dequantize": (7.5, 64.3, 173.0, 161.0),
    "cast": (4.0, 4.0, 6.0, 5.0),
    "cast of a real": (14.0, 103.0, 111.0, 78.0),
    "cast to a real": (5.0, 30.0, 49.0, 50.0),
    "clamped sum": (15.6, 140.0, 157.0, 131.0),
    "clamped product": (15.6, 120.0, 205.0, 166.0),
    "difference": (8.0, 60.6, 85.0, 83.6),
    "product": (7.1, 38.9, 130.0, 114.0),
    "quotient": (8.0, 155.0, 387.0, 109.0),
    "floor_div": (28.0, 312.0, 581.0, 264.0),
    "minimum": (12.1, 47.5, 48.9, 30.9),
    "maximum": (12.1, 43.5, 48.6, 30.9),
    "squared_difference": (8.0, 93.3, 200.0, 189.0),
    "power": (157.0, 2322.0, 4689.0, 4045.0),
    "mod": (61.6, 719.0, 1007.0, 773.0),
    "remainder": (50.8, 576.0, 866.0, 673.0),
    "prelu": (10.0, 61.1, 106.0, 88.2),
    "step_of_range": (17.4, 250.0, 434.0, 177.0),
    "zero_of_range": (45.0, 371.0, 567.0, 355.0),
    "steps_from_zero": (41.9, 397.0, 690.0, 352.0),
    "equal": (13.0, 67.1, 63.8, 43.0),
    "not_equal": (12.8, 66.4, 62.8, 43.0),
    "greater": (11.0, 46.0, 44.7, 28.6),
    "greater_equal": (11.1, 46.0, 44.5, 29.6),
    "less": (11.0, 42.1, 44.7, 28.6),
    "less_equal": (11.0, 42.1, 44.7, 28.6),
    "where": (8.0, 8.0, 7.9, 7.0),
    # Means of the layers of two networks. A library's product is short if a factor is 0, so
    # layers after a ReLU take half as long as the first one.
    "product of conv2d": (6.1, 80.0, 147.0, 175.0),
    "product of dense": (6.0, 57.0, 110.0, 142.0),
    "product of depthwise_conv2d": (15.3, 84.0, 162.0, 158.0),
    "softmax": (48.0, 1130.0, 2386.0, 1986.0),
    "log_softmax": (48.3, 1095.0, 2146.0, 2023.0),
}


# Instructions per quantised value of plain kernels on Armv7-M and later, Armv6-M, RV32, MVE, as `verify --layers`
# counts 256 values of scales whose quotients are no powers of two. "table": functions of one operand.
QUANTISED = {
    "table": (3.9, 7.0, 6.0, 3.25),
    "sum": (25.0, 52.0, 32.0, 24.0),
    "sum int16": (31.0, 139.0, 39.1, 28.0),
    "sum once": (47.0, 151.0, 46.1, 46.0),
    "sum once int16": (44.0, 105.0, 45.2, 44.0),
    "product": (20.0, 79.0, 23.6, 19.0),
    "product once": (27.0, 80.3, 24.8, 27.0),
    "difference": (25.0, 52.0, 32.0, 24.0),
    "difference int16": (31.0, 94.2, 37.0, 28.1),
    "difference once": (47.0, 151.0, 46.1, 50.0),
    "squared_difference": (30.0, 130.0, 33.6, 29.0),
    "squared_difference int16": (35.0, 148.0, 40.7, 36.0),
    "prelu": (25.6, 68.4, 24.6, 23.1),
    "quotient": (265.0, 790.0, 284.0, 275.0),
    "minimum": (8.0, 13.5, 11.5, 0.4),
    "maximum": (8.0, 13.5, 11.5, 0.4),
    "softmax": (50.0, 115.0, 57.9, 44.5),  # of each element
    "softmax once": (80.3, 149.0, 70.2, 69.2),
    "softmax by value": (10.0, 13.0, 12.0, 9.0),  # of each element, besides those of each value
    "values of softmax": (3200.0, 3500.0, 2500.0, 2600.0),  # of each row by value, besides those of each value
    "leaky_relu int16": (14.0, 14.0, 16.0, 13.0),
    "abs int16": (13.8, 58.5, 16.0, 14.0),
    **dict.fromkeys(("product of conv2d", "product of dense", "product of depthwise_conv2d"), (8.0,) * 4),
    "product of conv2d int16": (4.6, 10.3, 6.9, 4.6),
    "result of conv2d int16": (57.0, 150.0, 36.0, 57.0),
    "product of dense int16": (4.7, 9.7, 7.0, 4.7),
    "result of dense int16": (76.0, 148.0, 36.0, 76.0),
    "product of depthwise_conv2d int16": (7.4, 15.0, 7.0, 7.4),
    "result of depthwise_conv2d int16": (75.0, 182.0, 87.0, 75.0),
    **dict.fromkeys(("equal", "not_equal", "greater", "greater_equal", "less", "less_equal"), (21.0, 37.6, 22.0, 20.0)),
}
UNKNOWN = (30.0,) * 4


def quantised_instructions(function: str, dtype: str, core: frozenset[str], once: bool = False) -> float:
    """Estimated instructions per int8 or int16 value of this function, on a core of these words (`Form.core`).

    `once`: rounded once, from the exact result.
    """
    names = [f"{function} once {dtype}", f"{function} once"] * once + [f"{function} {dtype}", function]
    row = next((QUANTISED[name] for name in names if name in QUANTISED), UNKNOWN)
    return row[3] if "mve" in core else row[1] if "armv6-m" in core else row[2] if "rv32" in core else row[0]


def instructions(function: str, core: frozenset[str]) -> float:
    """Estimated instructions per float32 value of this function, on a core of these words (`Form.core`)."""
    unit, v7m, v6m, rv32 = INSTRUCTIONS.get(function, (USUAL,) * 4)
    if core & UNITS:
        return unit
    return v6m if "armv6-m" in core else rv32 if "rv32" in core else v7m
