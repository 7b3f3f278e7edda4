"""The exact meaning of each elementwise function: by Python's `math` in double precision, by its unbounded integers.

Nothing of `edgebuild` is in here, so that no fault of a row is in both. A function that has no value somewhere raises
ValueError, ZeroDivisionError or OverflowError there.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from statistics import NormalDist
from typing import Any


def between(low: float, x: float, high: float) -> float:
    return sorted((low, x, high))[1]


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def _elu(x: float, alpha: float) -> float:
    return x if x > 0 else alpha * math.expm1(x)


def _step_of_range(low: float, high: float) -> float:
    return (max(high, 0) - min(low, 0)) / 255 or 1.0


def _positive(step: float) -> float:
    if step <= 0:
        raise ValueError("not the length of a step")
    return step


Meaning = Callable[..., Any]
PREDICATES: dict[str, Meaning] = {
    "equal": operator.eq, "not_equal": operator.ne, "greater": operator.gt, "greater_equal": operator.ge,
    "less": operator.lt, "less_equal": operator.le,
}  # fmt: skip
EVERYWHERE: dict[str, Meaning] = {
    "abs": abs, "neg": operator.neg, "sign": lambda x: (x > 0) - (x < 0), "square": lambda x: x * x,
    "sum": operator.add, "difference": operator.sub, "product": operator.mul, "minimum": min, "maximum": max,
    "squared_difference": lambda x, y: x * x - 2 * x * y + y * y, "prelu": lambda x, slope: x if x >= 0 else slope * x,
    "where": lambda condition, x, y: x if condition else y, **PREDICATES,
}  # fmt: skip
REAL: dict[str, Meaning] = {
    **EVERYWHERE,
    **{name: getattr(math, name) for name in (
        "floor", "ceil", "sqrt", "exp", "log", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
        "asinh", "acosh", "atanh", "tanh")},
    "round": round,  # a half to the even one
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sigmoid": _sigmoid,
    "hard_sigmoid": lambda x, alpha, beta: between(0, alpha * x + beta, 1),
    "hard_swish": lambda x: x * between(0, x + 3, 6) / 6,
    "leaky_relu": lambda x, alpha: x if x > 0 else alpha * x,
    "thresholded_relu": lambda x, alpha: x if x > alpha else 0.0,
    "elu": _elu,
    "selu": lambda x, alpha, gamma: gamma * _elu(x, alpha),
    "celu": lambda x, alpha: max(0.0, x) + min(0.0, alpha * (math.exp(x / alpha) - 1)),
    "gelu": lambda x: x * NormalDist().cdf(x),
    "gelu_tanh": lambda x: x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)),
    "softplus": _softplus,
    "softsign": lambda x: x / (1 + abs(x)),
    "swish": lambda x, alpha: x * _sigmoid(alpha * x),
    "mish": lambda x: x * math.tanh(_softplus(x)),
    "shrink": lambda x, bias, lambd: x + bias if x < -lambd else x - bias if x > lambd else 0.0,
    "is_nan": math.isnan,
    "quotient": operator.truediv,
    "floor_div": lambda x, y: math.floor(x / y),
    "power": math.pow,
    "mod": operator.mod,  # of the divisor's sign
    "remainder": math.fmod,
    "step_of_range": _step_of_range,
    "zero_of_range": lambda low, step: between(0, round(-min(low, 0) / _positive(step)), 255),
    "steps_from_zero": lambda x, step, zero: between(0, round(x / _positive(step)) + int(zero), 255),
}  # fmt: skip


def _power(x: int, y: int) -> int:
    """Below 1 in size for exponents below 0, so that all but the powers of 1 and -1 are 0."""
    return int(x**y) if y >= 0 else 0 if abs(x) != 1 else x ** (y % 2)


def _towards_zero(x: int, y: int) -> int:
    return abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1) if y else 0


def _shifted(x: int, y: int) -> int:
    """Of unsigned integers of at most 64 bits, before they wrap; `y` below 0: to the right."""
    return 0 if abs(y) >= 64 else x << y if y >= 0 else x >> -y


INTEGER: dict[str, Meaning] = {
    **EVERYWHERE,
    "quotient": _towards_zero,
    "power": _power,
    "mod": lambda x, y: x % y if y else 0,
    "remainder": lambda x, y: x - _towards_zero(x, y) * y if y else 0,
    "unsigned_remainder": lambda x, y: x % y if y else 0,
    "bit_and": operator.and_,
    "bit_or": operator.or_,
    "bit_xor": operator.xor,
    "bit_not": operator.invert,
    "shift_left": _shifted,
    "shift_right": lambda x, y: _shifted(x, -y),
    "not": operator.not_,
    "and": lambda x, y: bool(x and y),
    "or": lambda x, y: bool(x or y),
    "xor": lambda x, y: bool(x) != bool(y),
    "shifted_product": lambda x, factor, added, bits, low, high: between(
        low, math.floor(Fraction(x * factor + added, 2 ** int(bits)) + Fraction(1, 2)), high
    ),
}
JUMPS = ("floor", "ceil", "round", "floor_div", "mod", "remainder", "zero_of_range", "steps_from_zero")
