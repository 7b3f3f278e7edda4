"""Elementwise functions of one to three operands, with broadcasting: the rows of functions.py in every form.

float32 and plain integers are computed by the row's C. int8 of one operand is a table of the 256 results. int8 of
more operands is computed as TFLM does if TWO or COMPARISONS has a form; values of one scale are compared as stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.templates import terms
from ..ir import ITEM_BYTES, Arithmetic, Array, Graph, Op, Tensor
from . import base, elementwise, fixedpoint, normalization, spatial
from .base import C_TYPES, UNSIGNED, Constant, Form, Interval, Kernel, Spec, clip_float, is_float, scale_of, zero_of
from .elementwise import Text
from .fixedpoint import (
    INT8,
    Multiplier,
    Numbers,
    inverse_root,
    limits,
    quantize_multiplier,
    requantize,
    scaled_text,
    span,
)
from .functions import (
    FUNCTIONS,
    MODULAR,
    SHIFTS,
    WORDS,
    WRAPPED,
    ElementFunction,
    instructions,
    quantised_instructions,
)

# Quantised values of several operands as ONNX defines them: dequantise, the function on real numbers, quantise.
#
# Each element is converted by itself, so no real tensor is stored. A difference needs no reals: both factors share one
# binary point, and the exact sum is rounded once, as in elementwise.py.

FAR = 2.0**30  # eb_round keeps results within this


def through_reals(op: Op, graph: Graph) -> bool:
    """Whether the op is computed in real numbers: the format defines that, and the function has a form for them."""
    return graph.arithmetic.rounds_once and bool(FUNCTIONS[op.attrs["function"]].real)


def through_reals_reference(op: Op, graph: Graph, *operands: Array, share: float = 0.0) -> Array:
    """Reference through reals. `share`: of the largest real result, added to all results before they are rounded."""
    y, row = graph.result(op), FUNCTIONS[op.attrs["function"]]
    if op.attrs["function"] == "difference":
        steps = elementwise.sum_steps(op, graph, operands)
    else:
        real = [
            x if t.quant is None else (x.astype(np.int64) - zero_of(t)).astype(np.float32) * np.float32(scale_of(t))
            for x, t in zip(operands, graph.operands(op), strict=True)
        ]
        with np.errstate(all="ignore"):
            result = np.asarray(row.meaning(*real, *(op.attrs[n] for n in row.parameters))).astype(np.float32)
            result = result + np.float32(share) * np.max(np.abs(result), where=np.isfinite(result), initial=0.0)
            scaled = np.nan_to_num(result / np.float32(scale_of(y)), nan=-FAR, posinf=FAR, neginf=-FAR)
        steps = np.rint(np.clip(scaled, -FAR, FAR)).astype(np.int64)
    return spatial.stored(steps, op, y)


def through_reals_expression(op: Op, graph: Graph, at: list[str]) -> tuple[str, Numbers]:
    """C for one element from the C of the operands, `at`, and the numbers that it names; shared C is in braces."""
    y, row, function = graph.result(op), FUNCTIONS[op.attrs["function"]], op.attrs["function"]
    numbers: Numbers = {"y_zero": zero_of(y), **dict(zip(("low", "high"), spatial.bounds(op, y), strict=True))}
    values = [(i, t) for i, t in enumerate(graph.operands(op)) if t.quant is not None]
    numbers |= {f"x{i}_zero": zero_of(t) for i, t in values}
    if function == "difference":
        text, more = elementwise.sum_text(op, graph, at)
        return _clamped(y.dtype, text), numbers | more
    numbers |= {f"x{i}_scale": scale_of(t) for i, t in values} | {"scale": scale_of(y)}
    numbers |= {name: float(op.attrs[name]) for name in row.parameters}
    real = list(at)
    for i, _ in values:
        real[i] = f"((float)({at[i]} - x{i}_zero) * x{i}_scale)"
    result = row.real.format(*real, **{n: n for n in row.parameters})
    return _clamped(y.dtype, f"{{eb_round}}(({result}) / scale)"), numbers


def _clamped(dtype: str, steps: str) -> str:
    return f"({C_TYPES[dtype]}){{eb_clamp}}({steps} + y_zero, low, high)"


# Quantised forms of the elementwise functions.
#
# One int8 operand: a table of the 256 results. In "tflite" arithmetic these are TFLM's, whose kernels take fixed-point
# steps for some functions (TABLES) and floats for the rest. In "onnx" arithmetic the real function is rounded once, as
# dequantise, function, quantise would. Two operands: forms of TFLM; ONNX's are computed through reals, see above.
# Values that share one quantisation are compared and selected as they are.

Expression = tuple[str, dict[str, int | float], list[Constant]]  # C, the numbers that it names, its tables
SELECT = ("minimum", "maximum", "where")  # exact on any values of one quantisation
COMPARE_BITS = 8  # headroom of TFLM's comparisons
HEADROOM = {"squared_difference": {"int8": 7, "int16": 0}}


def missing(op: Op, graph: Graph) -> str | None:
    """Why there is no quantised form; None if there is one."""
    function, operands, y = op.attrs["function"], graph.operands(op), graph.result(op)
    values = operands[1:] if FUNCTIONS[function].condition else operands
    wide = graph.arithmetic.rounds_once or function in (
        *SELECT,
        "difference",
        "squared_difference",
        *COMPARISONS,
        *WIDE,
    )
    types = {"int8", "int16"} if wide else {"int8"}
    if any(t.dtype not in types or t.quant is None or not t.quant.per_tensor for t in values):
        return f"quantised operands of types {', '.join(t.dtype for t in values)}"
    if FUNCTIONS[function].result:
        compared = function in COMPARISONS and graph.arithmetic.fixed_point
        return None if compared else f"{function} of quantised values"
    if y.dtype != values[0].dtype or y.quant is None:
        return f"result of type {y.dtype}"
    if through_reals(op, graph):
        return None
    if y.dtype == "int16" and function in CURVES and (scale_of(y) != 2.0**-15 or zero_of(y) or zero_of(values[0])):
        return f"{function} of int16 with another scale than 1/32768 or a zero point"
    if y.dtype == "int16" and function in CURVES and scale_of(values[0]) * 3 * 2**12 >= 2**16:
        return f"{function} of int16 with scale {scale_of(values[0]):g}: its steps times 12288 do not fit into int32"
    if len(operands) == 1 or (function in SELECT and all(t.quant == y.quant for t in values)):
        return None
    if function in TWO and graph.arithmetic.fixed_point:
        return None
    same = "; operands and result of one scale are supported" if function in SELECT else ""
    return f"{function} of quantised values{same}"


# One operand: a table ------------------------------------------------------------------------


def table(op: Op, graph: Graph) -> Array:
    """The results for -128 to 127."""
    x, y = graph.operands(op)[0], graph.result(op)
    function = op.attrs["function"]
    if graph.arithmetic.fixed_point and function in TABLES:
        steps = TABLES[function](op, x, y)
    else:
        steps = _through_floats(op, graph, x, y)
    return np.clip(steps, *spatial.bounds(op, y)).astype(np.int8)


def _through_floats(op: Op, graph: Graph, x: Tensor, y: Tensor) -> Array:
    row = FUNCTIONS[op.attrs["function"]]
    real = ((INT8 - zero_of(x)).astype(np.float32) * np.float32(scale_of(x))).astype(np.float64)
    with np.errstate(all="ignore"):
        result = np.asarray(row.meaning(real, *(op.attrs[n] for n in row.parameters))).astype(np.float32)
    if graph.arithmetic.fixed_point:
        ratio = result * (np.float32(1) / np.float32(scale_of(y)))
        steps = np.sign(ratio) * np.floor(np.abs(ratio).astype(np.float64) + 0.5)
    else:
        steps = np.rint(result / np.float32(scale_of(y)))
    nan = 0.0 if graph.arithmetic.fixed_point else -1e6  # onnxruntime makes it the lowest step, as `eb_round` does
    return np.nan_to_num(steps, nan=nan, posinf=1e6, neginf=-1e6) + zero_of(y)


def _slopes(op: Op, x: Tensor, y: Tensor) -> tuple[Multiplier, Multiplier, int]:
    """Factors of values above and below 0, and the sign of the second factor."""
    ratio, alpha = scale_of(x) / scale_of(y), op.attrs["alpha"]
    slope = scale_of(x) * alpha / scale_of(y)
    return quantize_multiplier(ratio), quantize_multiplier(abs(slope)), 1 if slope >= 0 else -1


def _leaky(op: Op, x: Tensor, y: Tensor, values: Array) -> Array:
    """Leaky ReLU in steps of the result, before the zero point is added."""
    (up, down, sign), value = _slopes(op, x, y), values.astype(np.int64) - zero_of(x)
    below = down.times(value, Arithmetic.TFLITE) * sign
    return np.where(value >= 0, up.times(value, Arithmetic.TFLITE), below)


def _wide_leaky(op: Op, graph: Graph, at: str) -> Expression:
    """C for an int16 element: int16 has no table of all its values."""
    x, y = graph.operands(op)[0], graph.result(op)
    up, down, sign = _slopes(op, x, y)
    above = f"{{eb_requantize}}({at} - x_zero, x0_mul, x0_shift)"
    below = f"{'-' if sign < 0 else ''}{{eb_requantize}}({at} - x_zero, x1_mul, x1_shift)"
    low, high = spatial.bounds(op, y)
    numbers = {**up.named("x0"), **down.named("x1"), "x_zero": zero_of(x), "y_zero": zero_of(y)}
    text = f"(int16_t){{eb_clamp}}(({at} >= x_zero ? {above} : {below}) + y_zero, low, high)"
    return text, {**numbers, "low": low, "high": high}, []


def _curve(op: Op, x: Tensor, y: Tensor, values: Array) -> Array:
    """Sigmoid and tanh of int16, interpolated between values of the table."""
    function, powers = CURVES[op.attrs["function"]]
    return function(fixedpoint.sigmoid_argument(values, *fixedpoint.sigmoid_scaling(scale_of(x), powers)))


def _wide_curve(op: Op, graph: Graph, at: str) -> Expression:
    function, (x,), y = op.attrs["function"], graph.operands(op), graph.result(op)
    multiplier, shift = fixedpoint.sigmoid_scaling(scale_of(x), CURVES[function][1])
    argument = f"({at} * x_mul + ((1 << x_shift) >> 1)) >> x_shift" if shift else f"{at} * x_mul"
    numbers: dict[str, int | float] = {"x_mul": multiplier, **({"x_shift": shift} if shift else {})}
    value = f"{{eb_table_{function}}}(table, {argument})"
    low, high = spatial.bounds(op, y)
    if (low, high) != (-(2**15), 2**15 - 1):
        value, numbers = f"{{eb_clamp}}({value}, low, high)", numbers | {"low": low, "high": high}
    return f"(int16_t){value}", numbers, [fixedpoint.SIGMOID_CONSTANT]


def _line_table(op: Op, x: Tensor, y: Tensor) -> Array:
    """Values of the function every 128 steps of int16 (LiteRT's LUTPopulate, in float32)."""
    one, (least, most), meaning = np.float32, limits("int16"), FUNCTIONS[op.attrs["function"]].meaning
    low, high = (one(scale_of(x)) * one(end - zero_of(x)) for end in (least, most))
    steps = one(most - least + 1) / (one(scale_of(y)) * one(most) - one(scale_of(y)) * one(least))
    return normalization.line_table(
        lambda value: float(meaning(np.float64(value))), float(low), float(high), float(steps)
    )


def _on_lines(op: Op, x: Tensor, y: Tensor, values: Array) -> Array:
    return normalization.looked_up(_line_table(op, x, y), values.astype(np.int64))


def _wide_lines(op: Op, graph: Graph, at: str) -> Expression:
    table = _line_table(op, graph.operands(op)[0], graph.result(op))
    return f"(int16_t){{eb_table_line}}(table, {at})", {}, [Constant("table", table, "every 128 steps")]


CURVES = {"sigmoid": (fixedpoint.sigmoid, (0,)), "tanh": (fixedpoint.tanh_int16, (0, 1))}


def _size_factor(x: Tensor, y: Tensor) -> Multiplier | None:
    """Factor of absolute values; None if the scale stays."""
    if scale_of(x) == scale_of(y):
        return None
    return quantize_multiplier(scale_of(x) / scale_of(y))


def _sizes(op: Op, x: Tensor, y: Tensor, values: Array) -> Array:
    """Absolute values in steps of the result, before the zero point is added."""
    value, m = abs(values.astype(np.int64) - zero_of(x)), _size_factor(x, y)
    return value if m is None else m.times(value, Arithmetic.TFLITE)


def _wide_sizes(op: Op, graph: Graph, at: str) -> Expression:
    x, y = graph.operands(op)[0], graph.result(op)
    m, (low, high) = _size_factor(x, y), spatial.bounds(op, y)
    numbers: dict[str, int | float] = {"x_zero": zero_of(x), "y_zero": zero_of(y), "low": low, "high": high}
    size = f"({at} >= x_zero ? {at} - x_zero : x_zero - {at})"
    if m is not None:
        size, numbers = f"{{eb_requantize}}({size}, x_mul, x_shift)", numbers | m.named("x")
    return f"(int16_t){{eb_clamp}}({size} + y_zero, low, high)", numbers, []


ROOT_BITS = 20  # of the fraction of a reciprocal root in TFLM


def _root_factor(x: Tensor, y: Tensor) -> Multiplier:
    unit = np.sqrt(scale_of(x)) * scale_of(y)  # may be 0; tiny ones have the largest factor
    return quantize_multiplier(1 / max(unit, float(np.finfo(np.float32).tiny)))


def _roots(op: Op, x: Tensor, y: Tensor, values: Array) -> Array:
    """Reciprocal roots as in TFLM's elementwise.cc, which refuses values below 0: any result will do there."""
    m, most = _root_factor(x, y), spatial.bounds(op, y)[1]
    several, places = np.unique(np.maximum(values.astype(np.int64) - zero_of(x), 0), return_inverse=True)
    steps = []
    for value in several.tolist():
        factor, right = inverse_root(value)
        root = requantize(np.int64(1), factor, ROOT_BITS - right, Arithmetic.TFLITE)
        steps.append(int(requantize(root, m.mantissa, m.shift - ROOT_BITS, Arithmetic.TFLITE)))
    return np.where(several > 0, steps, most - zero_of(y))[places].reshape(values.shape)


def _wide_roots(op: Op, graph: Graph, at: str) -> Expression:
    x, y = graph.operands(op)[0], graph.result(op)
    low, high = spatial.bounds(op, y)
    numbers: dict[str, int | float] = {"x_zero": zero_of(x), "y_zero": zero_of(y), "low": low, "high": high}
    root = f"{{eb_clamp}}({{eb_reciprocal_root}}({at} - x_zero, x_mul, x_shift) + y_zero, low, high)"
    return f"(int16_t)({at} > x_zero ? {root} : high)", numbers | _root_factor(x, y).named("x"), []


WIDE: Mapping[str, tuple[Callable[[Op, Tensor, Tensor, Array], Array], Callable[[Op, Graph, str], Expression]]] = {
    "abs": (_sizes, _wide_sizes),
    **dict.fromkeys(("exp", "gelu", "gelu_tanh"), (_on_lines, _wide_lines)),
    "leaky_relu": (_leaky, _wide_leaky),
    "rsqrt": (_roots, _wide_roots),
    "sigmoid": (_curve, _wide_curve),
    "tanh": (_curve, _wide_curve),
}
TABLES: Mapping[str, Callable[[Op, Tensor, Tensor], Array]] = {
    "sigmoid": fixedpoint.logistic,
    "tanh": fixedpoint.tanh_int8,
    "hard_swish": fixedpoint.hard_swish,
    "leaky_relu": lambda op, x, y: _leaky(op, x, y, INT8) + zero_of(y),
    "abs": lambda op, x, y: _sizes(op, x, y, INT8) + zero_of(y),
    "rsqrt": lambda op, x, y: _roots(op, x, y, INT8) + zero_of(y),
}


# Two operands --------------------------------------------------------------------------------

Scaling = dict[str, int]


def _squares(op: Op, graph: Graph) -> Scaling:
    return elementwise.halved(op, graph, HEADROOM["squared_difference"][graph.result(op).dtype], 2)


def _prelu(op: Op, graph: Graph) -> Scaling:
    """Factors of values above 0, and of products: quotients of float32 scales, in double (TFLM's prelu_common.cc)."""
    (a, b), y = (scale_of(t) for t in graph.operands(op)), scale_of(graph.result(op))
    return quantize_multiplier(a / y).named("x0") | quantize_multiplier(a * b / y).named("y")


def _comparison(op: Op, graph: Graph) -> Scaling:
    a, b = (quantize_multiplier(scale_of(t)) for t in graph.operands(op))
    return a.named("x0") | b.named("x1")


def _squares_text(op: Op, graph: Graph, at: Sequence[str]) -> Text:
    dtype, f = graph.result(op).dtype, _squares(op, graph)
    bits = HEADROOM["squared_difference"][dtype]
    text, numbers = elementwise.scaled_operands(op, graph, at, f, bits)
    factor = Multiplier(f["y_mul"], f["y_shift"])
    text, more = scaled_text(f"{{eb_square}}({text})", "y", factor, (span(dtype) << bits) ** 2)
    return text, numbers | more


def _prelu_text(op: Op, graph: Graph, at: Sequence[str]) -> Text:
    (x, slope), f = graph.operands(op), _prelu(op, graph)
    value, factors = f"({at[0]} - x0_zero)", [Multiplier(f[f"{name}_mul"], f[f"{name}_shift"]) for name in ("x0", "y")]
    above, numbers = scaled_text(value, "x0", factors[0], span(x.dtype))
    product = f"({value} * ({at[1]} - x1_zero))"
    below, more = scaled_text(product, "y", factors[1], span(x.dtype) * span(slope.dtype))
    return f"({at[0]} >= x0_zero ? {above} : {below})", numbers | more


def _quotient_text(op: Op, graph: Graph, at: Sequence[str]) -> Text:
    return fixedpoint.QUOTIENT.format(*at), {**fixedpoint.quotient_factor(op, graph).named("y")}


TWO: Mapping[str, Callable[[Op, Graph, Sequence[str]], Text]] = {
    "difference": elementwise.sum_text,
    "squared_difference": _squares_text,
    "prelu": _prelu_text,
    "quotient": _quotient_text,
}
COMPARISONS = {
    "equal": "==", "not_equal": "!=", "greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<=",
}  # fmt: skip


def _two(op: Op, graph: Graph, a: Array, b: Array) -> Array:
    """The arithmetic of the C of TWO and COMPARISONS, before the zero point is added."""
    function, (s, t) = op.attrs["function"], graph.operands(op)
    left, right = a.astype(np.int64) - zero_of(s), b.astype(np.int64) - zero_of(t)
    if function == "difference":
        return elementwise.sum_steps(op, graph, (a, b))
    if function == "quotient":
        return fixedpoint.quotient(left, right, fixedpoint.quotient_factor(op, graph))
    f = {"prelu": _prelu, "squared_difference": _squares}.get(function, _comparison)(op, graph)

    def scaled(value: Array, prefix: str, bits: int = 0) -> Array:
        return requantize(value << bits, f[f"{prefix}_mul"], f[f"{prefix}_shift"], Arithmetic.TFLITE)

    if function == "prelu":
        return np.where(left >= 0, scaled(left, "x0"), scaled(left * right, "y"))
    bits = HEADROOM[function][s.dtype] if function in HEADROOM else COMPARE_BITS
    one, other = scaled(left, "x0", bits), scaled(right, "x1", bits)
    if function in COMPARISONS:
        return np.asarray(FUNCTIONS[function].meaning(one, other))
    return scaled((one - other) ** 2, "y")


# Quantised forms, by arithmetic and function -------------------------------------------------


def _goes_through_reals(op: Op, graph: Graph) -> bool:
    """Whether ONNX computes in reals: always but for tables of int8 and selections among values of one scale."""
    values, y = graph.operands(op), graph.result(op)
    if not through_reals(op, graph) or (len(values) == 1 and y.dtype == "int8"):
        return False
    selected = values[1:] if FUNCTIONS[op.attrs["function"]].condition else values
    return op.attrs["function"] not in SELECT or any(t.quant != y.quant for t in selected)


def quantised_reference(op: Op, graph: Graph, *operands: Array, share: float = 0.0) -> Array:
    """Reference on quantised operands. `share`: see `through_reals_reference`."""
    y, function = graph.result(op), op.attrs["function"]
    if _goes_through_reals(op, graph):
        return through_reals_reference(op, graph, *operands, share=share)
    if len(operands) == 1 and y.dtype == "int16":
        result = WIDE[function][0](op, graph.operands(op)[0], y, operands[0]) + zero_of(y)
        return np.clip(result, *spatial.bounds(op, y)).astype(np.int16)
    if len(operands) == 1:
        return table(op, graph)[operands[0].astype(np.int64) + 128]
    if function in SELECT:
        return np.clip(FUNCTIONS[function].meaning(*operands), *spatial.bounds(op, y)).astype(y.dtype)
    result = _two(op, graph, *operands)
    if function in COMPARISONS:
        return result
    return spatial.stored(result, op, y)


def quantised_expression(op: Op, graph: Graph, at: list[str]) -> Expression:
    """C for one element from the C of the operands, `at`; the numbers and tables that it names."""
    y, function = graph.result(op), op.attrs["function"]
    if _goes_through_reals(op, graph):
        return *through_reals_expression(op, graph, at), []
    if len(at) == 1 and y.dtype == "int16":
        return WIDE[function][1](op, graph, at[0])
    if len(at) == 1:
        return f"table[{at[0]} + 128]", {}, [Constant("table", table(op, graph), f"{function} of -128 to 127")]
    bounds = dict(zip(("low", "high"), spatial.bounds(op, y), strict=True)) if y.quant is not None else {}
    if function in SELECT:
        text = FUNCTIONS[function].integer.format(*at)
        return f"({C_TYPES[y.dtype]}){{eb_clamp}}({text}, low, high)", {**bounds}, []
    zeros = {f"x{i}_zero": zero_of(t) for i, t in enumerate(graph.operands(op))}
    if function in COMPARISONS:
        text, numbers = elementwise.scaled_operands(
            op, graph, at, _comparison(op, graph), COMPARE_BITS, COMPARISONS[function]
        )  # fmt: skip
        return text, {**zeros, **numbers}, []
    text, numbers = TWO[function](op, graph, at)
    return _clamped(y.dtype, text), {**zeros, **numbers, "y_zero": zero_of(y), **bounds}, []


def interval(op: Op, graph: Graph, *operands: Interval) -> Interval | None:
    """Bounds of the result: extremes of a function of one operand; of minimum and maximum, the results of both ends.

    A difference falls as its second operand rises. None: unbounded.
    """
    if is_float(graph.result(op)) or missing(op, graph):
        return None
    if len(operands) == 1:
        return _extremes(op, graph, *operands[0])
    if op.attrs["function"] in ("minimum", "maximum"):
        return quantised_reference(op, graph, *(o[0] for o in operands)), quantised_reference(
            op, graph, *(o[1] for o in operands)
        )
    if op.attrs["function"] == "difference":
        (low, high), (least, most) = operands
        return quantised_reference(op, graph, low, most), quantised_reference(op, graph, high, least)
    return None


def _extremes(op: Op, graph: Graph, low: Array, high: Array) -> Interval:
    """Least and largest result from `low` to `high`: of two runs of 2^step values each, which meet or overlap."""
    first, last = limits(str(low.dtype))
    results = quantised_reference(op, graph, np.arange(first, last + 1).astype(low.dtype))
    reach = high.astype(np.int64) - low
    level = np.frexp(reach + 1)[1] - 1  # 2^level <= values between < 2^(level + 1)
    ends = np.empty((2, *low.shape), results.dtype)
    for end, combine in enumerate((np.minimum, np.maximum)):
        extremes = results
        for step in range(int(level.max(initial=0)) + 1):
            here, size = level == step, 1 << step
            start, stop = low[here].astype(np.int64) - first, high[here].astype(np.int64) - first + 1
            ends[end, here] = combine(extremes[start], extremes[stop - size])
            extremes = combine(extremes[:-size], extremes[size:])
    return ends[0, ...], ends[1, ...]  # `...` keeps arrays of a single value


MAX_DIMENSIONS = 8
OPEN = (None, None)


def attributes(function: str, to: str = "", **parameters: Any) -> dict[str, Any]:
    """The attributes of an op of this function: its parameters, or their defaults. `to`: the type of its result."""
    row = FUNCTIONS[function]
    numbers = {name: float(parameters.get(name, default)) for name, default in row.parameters.items()}
    return {"function": function, "clamp": OPEN, **({"to": to or row.result} if to or row.result else {}), **numbers}


def row_of(op: Op) -> ElementFunction:
    return FUNCTIONS[op.attrs["function"]]


def pointwise_reference(op: Op, graph: Graph, *operands: Array, share: float = 0.0) -> Array:
    y, row = graph.result(op), row_of(op)
    if is_quantised(op, graph):
        return quantised_reference(op, graph, *operands, share=share)
    if row.arity == 1 and is_float(graph.operands(op)[0]):
        operands = (operands[0].astype(np.float64),)
    with np.errstate(all="ignore"):
        result = np.asarray(row.meaning(*operands, *(op.attrs[name] for name in row.parameters)))
        return clip_float(result, op.attrs["clamp"]) if is_float(y) else (result + _zero(op, y)).astype(y.dtype)


def _zero(op: Op, y: Tensor) -> int:
    """The number that is added to the result of a function of whole numbers."""
    return zero_of(y) if row_of(op).whole and y.quant is not None else 0


def is_quantised(op: Op, graph: Graph) -> bool:
    """Whether the op computes on quantised values. A quantised constant beside real numbers is dequantised instead."""
    values = (*(t for t in graph.operands(op) if not t.constant), graph.result(op))
    return not row_of(op).whole and any(t.quant is not None and t.dtype != "int32" for t in values)


def has_form(op: Op, graph: Graph) -> str | None:
    """Operands are broadcast to at most 8 dimensions and are of one type, for which the function has a form."""
    row, operands = row_of(op), graph.operands(op)
    if len(operands) != row.arity:
        return f"{len(operands)} operands of {op.attrs['function']}"
    if len(graph.result(op).shape) > MAX_DIMENSIONS:
        return f"{len(graph.result(op).shape)} dimensions"
    values = operands[1:] if row.condition else operands
    mixed = not is_quantised(op, graph)
    types = sorted({"float32" if mixed and t.constant and t.quant is not None else t.dtype for t in values})
    if len(types) > 1:
        return f"operands are {' and '.join(types)}"
    if op.attrs["clamp"] != OPEN and not is_float(graph.result(op)) and not is_quantised(op, graph):
        return f"an activation after {types[0]}"
    if is_quantised(op, graph):
        return missing(op, graph)
    function, unsigned = op.attrs["function"], types[0] in UNSIGNED
    fits = types[0].startswith("u") if function in SHIFTS else not unsigned or function in MODULAR
    form = row.real if types == ["float32"] else row.integer if fits else None
    return None if form else f"{function} of {types[0]}"


def rows(op: Op, graph: Graph) -> str:
    """Return "each", row by row, if all computed operands have all rows and constants repeat for each; else ""."""
    y = graph.result(op)
    computed = [t for t in graph.operands(op) if not t.constant]
    repeated = [t for t in graph.operands(op) if t.constant and any(n > 1 for n in t.shape[: 2 - len(y.shape) or None])]
    whole = all(t.shape == y.shape for t in computed)
    return "each" if whole and not repeated and len(y.shape) > 1 else ""


def literal_value(t: Tensor) -> int | float | None:
    """The number of a constant of one element, if C can take it as an argument; else None."""
    if t.data is None or t.elements != 1:
        return None
    value = t.data.ravel()[0].item()
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return int(value) if abs(value) < 2**31 else None


def linear_difference(op: Op, graph: Graph, form: Form) -> Kernel | None:
    """The difference of two computed int8 operands as a linear sum, if there is one, so that fast sums compute it."""
    operands, y = graph.operands(op), graph.result(op)
    scaled = all(t.quant is not None for t in (*operands, y))  # integers without a scale wrap around
    if op.attrs["function"] != "difference" or y.dtype != "int8" or not scaled or any(t.constant for t in operands):
        return None
    whole = all(t.shape == y.shape for t in operands)
    if not whole and (form.rolled or elementwise.broadcastable(op, graph)):
        return None
    k = elementwise.elementwise_kernel(op, graph, form)
    return k if k.variant == "linear" else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """The kernel with one loop, or as many as broadcasting needs."""
    if (linear := linear_difference(op, graph, form)) is not None:
        return linear
    operands, y, row = graph.operands(op), graph.result(op), row_of(op)
    names = base.operand_names(operands)
    extents = (1, 1, *y.shape[2:]) if form.rolled else y.shape
    turns = base.collapsed(extents, *(_steps(t, y, form) for t in operands))
    flat = len(turns) == 1 and all(step == 1 for step in turns[0][1:])
    numbers = {name: value for name, t in zip(names, operands, strict=True) if (value := literal_value(t)) is not None}
    at = [_element(names[i], numbers, i, turns, flat) for i in range(len(operands))]
    constants = [c for c in base.constants_of(operands, names) if c.name not in numbers]
    if is_quantised(op, graph):
        expression, more, tables = quantised_expression(op, graph, at)
        numbers |= more
        constants += tables
    else:
        numbers |= {n: float(op.attrs[n]) if is_float(operands[-1]) else int(op.attrs[n]) for n in row.parameters}
        expression = _text(op, operands[-1], graph.arithmetic).format(*at, **{n: n for n in row.parameters})
        if is_float(y) and (op.attrs["clamp"] != OPEN or op.attrs.get("finite", False)):
            expression, bounds = f"{{eb_clamp_float}}({expression}, low, high)", spatial.float_bounds(op, graph)
            numbers |= bounds
        elif not is_float(y):
            zero = {"y_zero": value} if (value := _zero(op, y)) else {}
            expression, numbers = f"({C_TYPES[y.dtype]})({' + '.join([expression, *zero])})", numbers | zero
    shape: dict[str, Any] = {
        "expression": expression,
        "N": turns[0][0] if flat else 0,
        "loops": () if flat else tuple(turn[0] for turn in turns),
    }
    stem = f"{op.attrs['function']}_{'x'.join(map(str, y.shape)) or 1}"
    count = y.elements // (y.shape[1] if form.rolled else 1)
    each = instructions(op.attrs["function"], form.core)
    if not is_float(operands[-1]):
        name = "table" if len(operands) == 1 and y.dtype == "int8" else op.attrs["function"]
        each = quantised_instructions(name, operands[-1].dtype, form.core, graph.arithmetic.rounds_once)
    cost = 20.0 + each * count
    return Kernel("elementwise.c:pointwise", stem, shape, tuple(constants), numbers, estimate=cost, placed=form.rolled)


def _text(op: Op, x: Tensor, arithmetic: Arithmetic) -> str:
    """C for an element, by the type of the operands."""
    row, function = row_of(op), op.attrs["function"]
    if x.dtype in WORDS and function in WRAPPED:
        return WRAPPED[function].replace("{word}", WORDS[x.dtype])
    if is_float(x) and arithmetic.passes_nan and row.onnx:
        return row.onnx
    if function in SHIFTS:
        return row.integer.replace("{bits}", str(8 * ITEM_BYTES[x.dtype])).replace("{type}", C_TYPES[x.dtype])
    return row.real if is_float(x) else row.integer


def _steps(t: Tensor, y: Tensor, form: Form) -> list[int]:
    own = base.broadcast_steps(t.shape, len(y.shape))
    return [0, 0, *own[2:]] if form.rolled else own


def _element(name: str, numbers: dict[str, int | float], operand: int, turns: tuple[base.Loop, ...], flat: bool) -> str:
    """C for the operand's element in this iteration."""
    if name in numbers:
        return name
    if flat:
        return f"{name}[i]"
    return f"{name}[{terms((turn[1 + operand] for turn in turns), 'i')}]"


SPEC = Spec(
    "pointwise", elementwise.nest, pointwise_reference, kernel, rows=rows, clamps=True, integers=("int8", "int16"),
    plain=True, interval=interval, limits=(has_form,),
    moved=lambda op, graph, share, *operands: pointwise_reference(op, graph, *operands, share=share),
)  # fmt: skip
