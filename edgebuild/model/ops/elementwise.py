"""Ops element by element with broadcasting: sums, products, bounds, conversions between types, copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isinf, prod
from typing import Any

import numpy as np

from ..ir import Arithmetic, Array, Dim, Fixed, Graph, Nest, Op, Same, Tensor, numbered
from . import base, fixedpoint, spatial
from .base import C_TYPES, UNSIGNED, Constant, Form, Kernel, Spec, clip_float, is_float, scale_of, zero_of
from .fixedpoint import Numbers
from .functions import instructions, quantised_instructions

LOOPS = 4  # loops of the kernel's template


def out_shape(*operands: Tensor) -> tuple[int, ...]:
    return tuple(int(n) for n in np.broadcast_shapes(*(t.shape for t in operands)))


def nest(op: Op, graph: Graph) -> Nest:
    """Index relation of any number of operands, each broadcast along axes that it lacks or where its size is 1."""
    operands = graph.operands(op)
    extents = numbered(out_shape(*operands))

    def dims(t: Tensor) -> tuple[Dim, ...]:
        own = list(extents.items())[len(extents) - len(t.shape) :]
        return tuple(Same(name) if n == size else Fixed() for n, (name, size) in zip(t.shape, own, strict=True))

    return Nest(extents, tuple(extents), tuple(map(dims, operands)))


def result_type(op: Op, graph: Graph) -> str | None:
    """The result is int8, int16 or float32."""
    y = graph.result(op)
    return None if y.dtype in ("int8", "int16", "float32") else f"'{y.name}' is {y.dtype}"


def broadcastable(op: Op, graph: Graph) -> str | None:
    """Operand shapes are equal, or one has size 1 (or no dimension) where they differ; in at most 4 loops."""
    a, b = graph.operands(op)
    for m, n in zip(reversed(a.shape), reversed(b.shape), strict=False):
        if m != n and 1 not in (m, n):
            return f"shapes {a.shape} and {b.shape}"
    turns = _turns(a, b, out_shape(a, b))
    return f"{len(turns)} loops for shapes {a.shape} and {b.shape}" if len(turns) > LOOPS else None


def _turns(a: Tensor, b: Tensor, shape: tuple[int, ...]) -> tuple[base.Loop, ...]:
    return base.collapsed(shape, *(base.broadcast_steps(t.shape, len(shape)) for t in (a, b)))


def elementwise_rows(op: Op, graph: Graph) -> str:
    """Return "each", row by row, if both operands have all rows; else ""."""
    a, b = graph.operands(op)
    return "each" if a.shape == b.shape and not b.constant and len(a.shape) > 1 else ""


def _beyond_words(a: Tensor, b: Tensor) -> bool:
    """Whether the product of two int16 values, less their zero points, can leave int32."""
    if a.dtype != "int16" or b.dtype != "int16":
        return False
    most = [max(abs(bound - zero_of(t)) for bound in fixedpoint.limits(t.dtype)) for t in (a, b)]
    return most[0] * most[1] >= 2**31


# ADD, Add: out[i] = a[i] + b[i]; MUL, Mul: out[i] = a[i] * b[i], with broadcasting.

Text = tuple[str, Numbers]  # C with shared functions in braces, and the numbers that it names
LEFT_SHIFT = {"int8": 20, "int16": 15}  # headroom of TFLM's quantised ADD (kernels/internal/reference/add.h)


def halved(op: Op, graph: Graph, bits: int, power: int = 1) -> dict[str, int]:
    """TFLM's factors of the operands to twice the larger scale, and of that scale, to `power`, to the result's.
    `bits`: by how many bits operands are shifted left, for headroom."""
    (a, b), y = (scale_of(t) for t in graph.operands(op)), scale_of(graph.result(op))
    twice = 2 * max(a, b)
    result = fixedpoint.quantize_multiplier(twice**power / (2.0 ** (bits * power) * y))
    operands = [fixedpoint.quantize_multiplier(x / twice) for x in (a, b)]
    return {**operands[0].named("x0"), **operands[1].named("x1"), **result.named("y")}


def add_scaling(op: Op, graph: Graph) -> dict[str, int]:
    """Fixed-point factors of both operands and of their sum.

    tflite: `halved`. onnx: both factors share one binary point, `point`, and the exact sum is rounded once.
    """
    if graph.arithmetic.fixed_point:
        return halved(op, graph, LEFT_SHIFT[graph.result(op).dtype])
    (a, b), y = (scale_of(t) for t in graph.operands(op)), scale_of(graph.result(op))
    point = min(46, 31 - fixedpoint.quantize_multiplier(max(a, b) / y).shift)
    return {"x0_mul": round(a / y * 2**point), "x1_mul": round(b / y * 2**point), "point": point}


def second_sign(op: Op) -> int:
    """1 for a sum, -1 for the difference of functions.py."""
    return 1 if op.kind == "add" else -1


def sum_steps(op: Op, graph: Graph, operands: Sequence[Array]) -> Array:
    """Steps of the sum of quantised operands, or of their difference, before the zero point is added."""
    f, sign = add_scaling(op, graph), second_sign(op)
    left, right = (x.astype(np.int64) - zero_of(t) for x, t in zip(operands, graph.operands(op), strict=True))
    if graph.arithmetic.rounds_once:
        return fixedpoint.round_half_even(left * f["x0_mul"] + sign * right * f["x1_mul"], f["point"])
    bits = LEFT_SHIFT[graph.result(op).dtype]
    terms = [
        fixedpoint.requantize(x << bits, f[f"{n}_mul"], f[f"{n}_shift"], Arithmetic.TFLITE)
        for x, n in ((left, "x0"), (right, "x1"))
    ]
    return fixedpoint.requantize(terms[0] + sign * terms[1], f["y_mul"], f["y_shift"], Arithmetic.TFLITE)


def scaled_operands(
    op: Op, graph: Graph, at: Sequence[str], factors: Mapping[str, int], bits: int, sign: str = "-"
) -> Text:
    """C of both operands, shifted left by `bits` and scaled by `factors`, joined by the operator `sign`."""
    parts, numbers = list[str](), Numbers()
    for t, element, name in zip(graph.operands(op), at, ("x0", "x1"), strict=True):
        factor = fixedpoint.Multiplier(factors[f"{name}_mul"], factors[f"{name}_shift"])
        value, most = f"({element} - {name}_zero)", fixedpoint.span(t.dtype)
        text, more = fixedpoint.scaled_text(value, name, factor, most, bits)
        parts, numbers = [*parts, text], {**numbers, **more}
    return f"{parts[0]} {sign} {parts[1]}", numbers


def sum_text(op: Op, graph: Graph, at: Sequence[str]) -> Text:
    """C of `sum_steps` from the C of the operands' elements, `at`, and the numbers that it names."""
    f, sign, dtype = add_scaling(op, graph), "+" if second_sign(op) > 0 else "-", graph.result(op).dtype
    if graph.arithmetic.rounds_once:
        terms = [f"(int64_t)({at[i]} - x{i}_zero) * x{i}_mul" for i in (0, 1)]
        return f"{{eb_round_half_even}}({terms[0]} {sign} {terms[1]}, point)", {**f}
    text, numbers = scaled_operands(op, graph, at, f, LEFT_SHIFT[dtype], sign)
    factor, most = fixedpoint.Multiplier(f["y_mul"], f["y_shift"]), fixedpoint.span(dtype) << LEFT_SHIFT[dtype]
    text, more = fixedpoint.scaled_text(f"({text})", "y", factor, most)  # two operands, each scaled by 1/2 or less
    return text, numbers | more


def add_reference(op: Op, graph: Graph, a: Array, b: Array) -> Array:
    y = graph.result(op)
    if is_float(y):
        return clip_float(np.asarray(a + b), op.attrs["clamp"])
    return spatial.stored(sum_steps(op, graph, (a, b)), op, y)


def add_steady(op: Op, graph: Graph) -> bool:
    """Whether the operands and their sum stay in int32 when they are scaled."""
    f = add_scaling(op, graph)
    return graph.arithmetic.rounds_once or fixedpoint.Multiplier(f["y_mul"], f["y_shift"]).holds(2**30)


def linear_add(op: Op, graph: Graph, to_even: bool = False) -> fixedpoint.Linear | None:
    """The linear form of a sum or difference of two int8 operands, if it is exact; `to_even`: halves to even."""
    y = graph.result(op)
    a, b = (scale_of(t) / scale_of(y) for t in graph.operands(op))
    b *= second_sign(op)
    want = add_reference(op, graph, fixedpoint.INT8[:, None], fixedpoint.INT8)
    terms = (fixedpoint.Term(fixedpoint.INT8[:, None], a, 8), fixedpoint.Term(fixedpoint.INT8, b, 8))
    if to_even:
        zeros = zero_of(y) - sum(w * zero_of(t) for w, t in zip((a, b), graph.operands(op), strict=True))
        return fixedpoint.fit_even(terms, want, zeros, *spatial.bounds(op, y))
    return fixedpoint.fit_terms(terms, want, *spatial.bounds(op, y))


def mul_factor(op: Op, graph: Graph) -> fixedpoint.Multiplier:
    a, b = (scale_of(t) for t in graph.operands(op))
    return fixedpoint.quantize_multiplier(a * b / scale_of(graph.result(op)))


def mul_reference(op: Op, graph: Graph, a: Array, b: Array) -> Array:
    y = graph.result(op)
    if is_float(y):
        return clip_float(np.asarray(a * b), op.attrs["clamp"])
    ta, tb = graph.operands(op)
    product = (a.astype(np.int64) - zero_of(ta)) * (b.astype(np.int64) - zero_of(tb))
    return spatial.stored(mul_factor(op, graph).times(product, graph.arithmetic), op, y)


def product_text(op: Op, graph: Graph, at: Sequence[str]) -> Text:
    """C of the scaled product from the C of the operands' elements, `at`, and the numbers that it names."""
    a, b = graph.operands(op)
    m, product = mul_factor(op, graph), f"({at[0]} - x0_zero) * ({at[1]} - x1_zero)"
    if graph.arithmetic.rounds_once and _beyond_words(a, b):
        return f"{{eb_round_half_even}}((int64_t){product} * y_mul, 31 - y_shift)", {**m.named("y")}
    if graph.arithmetic.rounds_once:
        return f"{{eb_requantize}}({product}, y_mul, y_shift)", {**m.named("y")}
    return fixedpoint.scaled_text(f"({product})", "y", m, fixedpoint.span(a.dtype) * fixedpoint.span(b.dtype))


def mul_steady(op: Op, graph: Graph) -> bool:
    """Whether no scaled product overflows: ONNX rounds in 64 bits; TFLM's product must stay in int32."""
    most = prod(fixedpoint.span(t.dtype) for t in graph.operands(op))
    return graph.arithmetic.rounds_once or mul_factor(op, graph).holds(most)


def linear_mul(op: Op, graph: Graph) -> fixedpoint.Linear | None:
    """The linear form of the product of two int8 operands, if it is exact for all values; else None."""
    (a, b), y = graph.operands(op), graph.result(op)
    products = (fixedpoint.INT8[:, None] - zero_of(a)) * (fixedpoint.INT8 - zero_of(b))
    want = mul_reference(op, graph, fixedpoint.INT8[:, None], fixedpoint.INT8)
    terms, ends = (fixedpoint.Term(products, scale_of(a) * scale_of(b) / scale_of(y), 18),), spatial.bounds(op, y)
    linear = fixedpoint.fit_terms(terms, want, *ends)
    if linear is None and graph.arithmetic.fixed_point:
        linear = fixedpoint.fit_twice(mul_factor(op, graph), products, want, zero_of(y), *ends)
    return linear


def has_single_element(shape: Mapping[str, Any]) -> bool:
    """Whether an operand is a single element that is broadcast."""
    return not shape["flat"] and not (any(shape["step0"]) and any(shape["step1"]))


def elementwise_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """The loop over all elements of a sum or product. For int8 it may be linear; for an int8 difference it must be."""
    (a, b), y, adds = graph.operands(op), graph.result(op), op.kind != "mul"
    flat = a.shape == b.shape == y.shape
    shape: dict[str, Any] = {"operator": "add" if adds else "mul", "float": is_float(y), "flat": flat}
    shape |= {"linear": False, "unroll": False, "ends": "", "N": y.elements, "steps": ""}
    if form.rolled:
        shape["N"] = y.elements // y.shape[1]
    if not flat:
        turns = _turns(a, b, y.shape)
        turns = ((1, 0, 0),) * (LOOPS - len(turns)) + turns
        shape["dims"], shape["step0"], shape["step1"] = zip(*turns, strict=True)
    scalars, linear = dict[str, int | float](), None
    if is_float(y):
        scalars = {name: bound for name, bound in spatial.float_bounds(op, graph).items() if not isinf(bound)}
        shape["bounds"] = tuple(scalars)
    else:
        ends = dict(zip(("low", "high"), spatial.bounds(op, y), strict=True))
        zeros: dict[str, int | float] = {"x0_zero": zero_of(a), "x1_zero": zero_of(b)}
        at = ("x0[i]", "x1[i]") if flat else ("x0[i0]", "x1[i1]")
        shape["steps"], factors = (sum_text if adds else product_text)(op, graph, at)
        scalars = {**zeros, "y_zero": zero_of(y), **factors, **ends}
        if y.dtype == "int8" and (linear := (linear_add if adds else linear_mul)(op, graph)) is not None:
            weights = dict(zip(("x0_mul", "x1_mul") if adds else ("y_mul",), linear.factors, strict=True))
            scalars = {**({} if adds else zeros), **weights, "offset": linear.offset}
            shape |= {"linear": True, "shift": linear.shift, "below": linear.below, **ends, "clamp": "eb_clamp"}
            shape["scale"] = "eb_scale" if adds else "eb_scale_product"
            shape |= {"unroll": flat and shape["N"] % 4 == 0 and not form.small}
    stem = f"{op.attrs.get('function', op.kind)}_{shape['N'] if flat else 'x'.join(map(str, y.shape))}"
    function = "sum" if adds else "product"
    once = graph.arithmetic.rounds_once
    variant, each = "portable", quantised_instructions(function, y.dtype, form.core, once)
    if is_float(y):
        clamped, free = (instructions(name, form.core) for name in (f"clamped {function}", function))
        each = free + (clamped - free) * len(scalars) / 2
        vectors = flat and not scalars and "mve" in form.core and shape["N"] % 4 == 0
        each = 1.5 if vectors else each  # of whole vectors, which compilers use by themselves
    if linear is not None:
        variant, each = "linear", 13.0
    if linear is not None and linear.below:
        each = 17.2 if shape["unroll"] else 16.6 if has_single_element(shape) else 19.0
    return Kernel(
        "elementwise.c:elementwise", stem, shape, base.constants_of((b,), ("x1",)), scalars,
        variant=variant, estimate=20.0 + each * int(shape["N"]), placed=form.rolled,
    )  # fmt: skip


ADD = Spec(
    "add", nest, add_reference, elementwise_kernel, clamps=True, integers=("int8", "int16"),
    interval=spatial.rising(add_reference, add_steady), rows=elementwise_rows, limits=(broadcastable, result_type),
)  # fmt: skip
MUL = replace(ADD, kind="mul", reference=mul_reference, interval=spatial.corners(mul_reference, mul_steady))


# Ops that change the type or the quantisation of each element: cast, quantize, dequantize, requantize. And clamp: RELU,
# RELU6, Relu, Clip: out[i] = min(max(in[i], low), high), fused into the op before it where possible.

INTEGERS = ("int8", "int16", "int32")


def cast_reference(op: Op, graph: Graph, x: Array) -> Array:
    """Cast; reals truncate towards 0 and saturate at 32 bits, or at the result's type (int64, or if `_narrow`)."""
    dtype = graph.result(op).dtype
    if x.dtype.kind != "f" or dtype in ("bool", "float32"):
        return x.astype(dtype)
    wide = dtype if dtype == "int64" or _narrow(op, graph) else "int32"
    low, high = fixedpoint.limits(wide)
    real = np.where(np.isnan(x), 0, x.astype(np.float64))
    below, above = real < float(low), real >= float(high + 1)
    whole = np.where(below | above, 0, real).astype(wide)
    return np.where(below, low, np.where(above, high, whole)).astype(wide).astype(dtype)


def _narrow(op: Op, graph: Graph) -> bool:
    """Whether a cast of reals to 8 or 16 bits saturates, as in TFLM; onnxruntime keeps the low bits."""
    x, y = graph.operands(op)[0], graph.result(op)
    return graph.arithmetic.saturating_casts and x.dtype == "float32" and y.dtype in ("int8", "uint8", "int16")


def quantize_reference(op: Op, graph: Graph, x: Array) -> Array:
    """TFLM rounds half away from zero, ONNX half to even. NaN becomes the lowest value."""
    y = graph.result(op)
    steps = (x / np.float32(scale_of(y))).astype(np.float32)
    half_away = np.sign(steps) * np.floor(np.abs(steps).astype(np.float64) + 0.5)
    steps = half_away if graph.arithmetic.fixed_point else np.rint(steps)
    steps = np.where(np.isnan(steps), -np.inf, steps + zero_of(y))
    return np.clip(steps, *fixedpoint.limits(y.dtype)).astype(y.dtype)


def dequantize_reference(op: Op, graph: Graph, x: Array) -> Array:
    t = graph.operands(op)[0]
    return ((x.astype(np.int64) - zero_of(t)).astype(np.float32) * np.float32(scale_of(t))).astype(np.float32)


def clamp_reference(op: Op, graph: Graph, x: Array) -> Array:
    """Clamp; or requantise, with the bounds of the type alone if there is no `clamp`."""
    t, y = graph.operands(op)[0], graph.result(op)
    if is_float(y):
        return clip_float(x, op.attrs["clamp"])
    target = _result(op, graph)
    m = fixedpoint.quantize_multiplier(scale_of(t) / scale_of(target))
    scaled = m.times(x.astype(np.int64) - zero_of(t), graph.arithmetic)
    low, high = _ends(op, target).values()
    return np.clip(scaled + zero_of(target), low, high).astype(y.dtype)


def _result(op: Op, graph: Graph) -> Tensor:
    """The tensor whose quantisation the stored results have: the operand if `as_stored`, else the result."""
    return graph.operands(op)[0] if op.attrs.get("as_stored") else graph.result(op)


def _ends(op: Op, y: Tensor) -> dict[str, int]:
    """Parameters `low` and `high` of C: the least and the largest result."""
    bounds = spatial.bounds(op, y) if "clamp" in op.attrs else fixedpoint.limits(y.dtype)
    return dict(zip(("low", "high"), bounds, strict=True))


def convert_steady(op: Op, graph: Graph) -> bool:
    """Whether the factor between the two quantisations keeps all values in int32."""
    x, y = graph.operands(op)[0], graph.result(op)
    return fixedpoint.quantize_multiplier(scale_of(x) / scale_of(y)).holds(fixedpoint.span(x.dtype))


def number_types(op: Op, graph: Graph) -> str | None:
    """Types are bool, float32, and integers of 8 to 64 bits; uint32 and uint64 are not made of float32."""
    x, y = graph.operands(op)[0], graph.result(op)
    real = x.dtype == "float32" and y.dtype in UNSIGNED
    unknown = [t.dtype for t in (x, y) if t.dtype not in C_TYPES or (t is y and real)]
    return f"type {unknown[0]}" if unknown else None


def operand_types(op: Op, graph: Graph) -> str | None:
    """Types are float32, int32, int16 and int8; quantised tensors have one scale."""
    x, y = graph.operands(op)[0], graph.result(op)
    for t in (x, y):
        if t.dtype not in ("float32", "int32", "int16", "int8"):
            return f"type {t.dtype}"
        if t.dtype != "float32" and (t.quant is None or not t.quant.per_tensor):
            return f"'{t.name}' is {t.dtype}, {t.quant}"
    return None


def convert_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    x, y = graph.operands(op)[0], graph.result(op)
    size = x.elements // (x.shape[1] if form.rolled else 1)
    shape: dict[str, Any] = {"operation": op.kind, "N": size, "x": x.dtype, "y": y.dtype}
    shape |= {"arithmetic": graph.arithmetic, "linear": False}
    if op.kind != "clamp":
        shape["bounds"] = fixedpoint.limits(y.dtype) if op.kind == "cast" and _narrow(op, graph) else ()
    target, scalars, variant = _result(op, graph), dict[str, int | float](), "portable"
    real = " of a real" if is_float(x) else " to a real" if is_float(y) else ""
    scaled = op.kind in ("clamp", "requantize") and not real
    cost = size * (30.0 if scaled else instructions(op.kind + real * (op.kind == "cast"), form.core))
    if op.kind == "quantize":
        scalars = {"scale": scale_of(y), "y_zero": zero_of(y), **_ends(op, y)}
    elif op.kind == "dequantize":
        scalars = {"x_zero": zero_of(x), "scale": scale_of(x)}
    elif op.kind == "clamp" and is_float(y):
        scalars = spatial.float_bounds(op, graph)
    elif op.kind in ("clamp", "requantize"):
        factor, ends = scale_of(x) / scale_of(target), _ends(op, target)
        m = fixedpoint.quantize_multiplier(factor)
        scalars = {"x_zero": zero_of(x), "y_zero": zero_of(target), "multiplier": m.mantissa, "shift": m.shift, **ends}
        if x.dtype == "int8" == y.dtype:
            linear = fixedpoint.fit_scale(
                -128 - zero_of(x), clamp_reference(op, graph, fixedpoint.INT8), factor, *ends.values()
            )
            if linear is not None:
                shape |= {**linear.letters(zero_of(x)), **ends}
                scalars, cost, variant = linear.scalars, 9.3 * size, "linear"
    return Kernel(
        "elementwise.c:convert", f"{op.kind}_{size}", shape, (), scalars,
        variant=variant, estimate=cost, placed=form.rolled,
    )  # fmt: skip


def conversion(kind: str, reference: Callable[..., Array], **facts: Any) -> Spec:
    facts = {"integers": INTEGERS, "limits": (operand_types,), **facts}
    facts["rows"] = lambda op, graph: "each" if len(graph.result(op).shape) > 1 else ""
    return Spec(kind, nest, reference, convert_kernel, **facts)


CONVERSIONS = (
    conversion(
        "clamp", clamp_reference, clamps=True, integers=("int8", "int16"), plain=True, limits=(),
        interval=spatial.rising(clamp_reference, convert_steady),
    ),
    conversion("cast", cast_reference, float_only=True, plain=True, limits=(number_types,)),
    conversion("quantize", quantize_reference, float_only=True, interval=spatial.rising(quantize_reference)),
    conversion("dequantize", dequantize_reference, float_only=True, interval=spatial.rising(dequantize_reference)),
    conversion("requantize", clamp_reference, interval=spatial.rising(clamp_reference, convert_steady)),
)  # fmt: skip


# A copy of a tensor under another name, for outputs of the model that are its inputs or constants.


def copy_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    shape: dict[str, Any] = {"N": x.elements}
    constants = (Constant("x", x.data, "operand"),) if x.data is not None else ()
    return Kernel("elementwise.c:copy", f"copy_{x.elements}", shape, constants)


COPY = Spec("copy", nest, lambda op, graph, x: x, copy_kernel, exact=True)
