"""CUMSUM, CumSum, CumProd: sums or products of all elements of a line up to each of them.

`exclusive` leaves the element itself out, `reverse` begins at the end of the line. Floats are added in the order of the
line, as TFLM and onnxruntime do. The int8 form is TFLM's (kernels/internal/reference/cumsum.h): terms and result have
the factors of a quantised ADD of the operand with itself, and sums begin at the term of a stored 0.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..arithmetic import Arithmetic
from ..ir import Array, Graph, Op
from ..ir.axes import Dim, Nest, Same, Whole
from . import add, fixedpoint
from .base import C_TYPES, SAME, Form, Kernel, Spec, is_float, scale_of, zero_of
from .functions import WORDS, WRAPPED

LEFT = add.LEFT_SHIFT["int8"]
MOST = (1 << 31) // (255 << (LEFT - 1)) - 1  # terms of half a unit, LEFT bits up, that an int32 holds beside a first


def nest(op: Op, graph: Graph) -> Nest:
    (x,), axis = graph.operands(op), op.attrs["axis"]
    names = tuple(f"i{d}" for d in range(len(x.shape)))
    dims: tuple[Dim, ...] = tuple(Whole(n) if d == axis else Same(names[d]) for d, n in enumerate(x.shape))
    return Nest(dict(zip(names, x.shape, strict=True)), names, (dims,))


def factors(op: Op, graph: Graph) -> tuple[fixedpoint.Multiplier, fixedpoint.Multiplier]:
    """From an element, LEFT bits up, to a term, and from sums to the result."""
    x, y = scale_of(graph.operands(op)[0]), scale_of(graph.result(op))
    return fixedpoint.quantize_multiplier(0.5), fixedpoint.quantize_multiplier(2 * x / (2**LEFT * y))


def _parts(m: fixedpoint.Multiplier) -> tuple[int, int]:
    return m.mantissa, m.shift


def _first(zero: int, enter: fixedpoint.Multiplier) -> int:
    """Term of a stored 0, at which TFLM begins its sums."""
    return int(fixedpoint.requantize(np.int64(-zero) << LEFT, *_parts(enter), Arithmetic.TFLITE))


def reference(op: Op, graph: Graph, x: Array) -> Array:
    t, y, axis = graph.operands(op)[0], graph.result(op), op.attrs["axis"]
    line, start = np.flip(x, axis) if op.attrs["reverse"] else x, 0
    if t.quant is not None:
        enter, leave = factors(op, graph)
        line = fixedpoint.requantize((line.astype(np.int64) - zero_of(t)) << LEFT, *_parts(enter), Arithmetic.TFLITE)
        start = _first(zero_of(t), enter)
    product = op.attrs["product"]
    with np.errstate(over="ignore", invalid="ignore"):
        total = (np.cumprod if product else np.cumsum)(line, axis, dtype=line.dtype)
    if op.attrs["exclusive"]:
        total = np.roll(total, 1, axis)
        np.moveaxis(total, axis, 0)[0] = int(product)
    if t.quant is not None:
        scaled = fixedpoint.requantize(total + start, *_parts(leave), Arithmetic.TFLITE) + zero_of(y)
        total = np.clip(scaled, *fixedpoint.limits(y.dtype))
    return np.ascontiguousarray(np.flip(total, axis) if op.attrs["reverse"] else total).astype(y.dtype)


def known_form(op: Op, graph: Graph) -> str | None:
    """Values are float32, int32 or int64; sums are of int8, too, of a TFLite file in lines of at most 15 elements."""
    (x,), y = graph.operands(op), graph.result(op)
    if x.quant is None:
        return None if is_float(x) or x.dtype in WORDS else f"values of type {x.dtype}"
    if not graph.arithmetic.fixed_point or op.attrs["product"] or (x.dtype, y.dtype) != ("int8", "int8"):
        return f"quantised values of type {x.dtype}"
    most = max(x.shape[op.attrs["axis"]], 1)
    return None if most <= MOST else f"lines of {most}"


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), axis = graph.operands(op), op.attrs["axis"]
    word, item = WORDS.get(x.dtype, "") if x.quant is None else "", C_TYPES[x.dtype]
    join, sign = ("product", "*") if op.attrs["product"] else ("sum", "+")
    wrapped = WRAPPED[join].replace("{word}", word)
    shape: dict[str, Any] = {
        "outer": prod(x.shape[:axis]),
        "N": x.shape[axis],
        "inner": prod(x.shape[axis + 1 :]),
        "exclusive": op.attrs["exclusive"],
        "reverse": op.attrs["reverse"],
        "left": 0 if x.quant is None else LEFT,
        "first": int(op.attrs["product"]),
        "join": f"({item})({wrapped.format(join, 'next')})" if word else f"{join} {sign} next",
        "total": join,
    }
    scalars: dict[str, int | float] = {}
    if x.quant is not None:
        enter, leave = factors(op, graph)
        scalars = {
            "start": _first(zero_of(x), enter),
            "x_zero": zero_of(x),
            "x_mul": enter.mantissa,
            "x_shift": enter.shift,
        }
        scalars |= {"y_mul": leave.mantissa, "y_shift": leave.shift, "y_zero": zero_of(graph.result(op))}
    stem = f"running_{join}_{'x'.join(map(str, x.shape))}"
    cost = (6.0 if x.quant is None else 30.0) * x.elements
    return Kernel("running_sum.c.j2", stem, shape, (), scalars, estimate=cost, in_place="" if form.rolled else SAME)


SPEC = Spec(
    kind="running_sum",
    nest=nest,
    reference=reference,
    kernel=kernel,
    plain=True,
    limits=(known_form,),
)
