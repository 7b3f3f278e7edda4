"""The table of elementwise functions: one row each, with its meaning in numpy and its C.

In C, {0}, {1} and {2} are the operands and other names in braces are parameters. Names in double braces are C functions
that kernels share. A row without `real` has no form for floats, one without `integer` none for integers. Comparisons
and predicates give `bool`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import erf, sqrt
from pathlib import Path
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

# Estimated instructions per value, by number format and function; `instructions.toml` says on which cores.
ESTIMATES: dict[str, dict[str, list[float]]] = tomllib.loads(
    (Path(__file__).parent / "instructions.toml").read_text(encoding="utf-8")
)
UNITS = frozenset({"fpu", "f", "portable"})
USUAL = [30.0] * 4  # instructions of a function that is not listed


def quantised_instructions(function: str, dtype: str, core: frozenset[str], once: bool = False) -> float:
    """Estimated instructions per int8 or int16 value of this function, on a core of these words (`Form.core`).

    `once`: rounded once, from the exact result.
    """
    names = [f"{function} once {dtype}", f"{function} once"] * once + [f"{function} {dtype}", function]
    listed = ESTIMATES["quantised"]
    row = next((listed[name] for name in names if name in listed), USUAL)
    return row[3] if "mve" in core else row[1] if "armv6-m" in core else row[2] if "rv32" in core else row[0]


def instructions(function: str, core: frozenset[str]) -> float:
    """Estimated instructions per float32 value of this function, on a core of these words (`Form.core`)."""
    unit, v7m, v6m, rv32 = ESTIMATES["float"].get(function, USUAL)
    if core & UNITS:
        return unit
    return v6m if "armv6-m" in core else rv32 if "rv32" in core else v7m
