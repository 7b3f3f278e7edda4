"""Ops that reduce dimensions or windows: pools, means, sums, extremes, running sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from typing import Any

import numpy as np

from ..ir import Arithmetic, Array, Graph, Nest, Op, Same, Tensor, Window, lines, numbered, same
from . import base, elementwise, fixedpoint, spatial
from .base import C_TYPES, SAME, UNSIGNED, Constant, Form, Kernel, Spec, clip_float, is_float, scale_of, zero_of
from .functions import WORDS, WRAPPED

# The index relation that reductions over dimensions share.


def reduced_nest(op: Op, graph: Graph) -> Nest:
    extents = numbered(graph.operands(op)[0].shape)
    out = tuple(name for d, name in enumerate(extents) if d not in op.attrs["axes"])
    return Nest(extents, out, (same(*extents),))


# Max and average pooling: each channel by itself, over a window of rows and columns.
#
# An average counts only elements inside of the input unless `count_include_pad` is set (ONNX). Halves go away from
# zero, or up if `halves_up` is set (files in uint8, whose elements are 128 less here).

MAX_STEPS = 1 << 31  # elements under all windows of a pool: minutes on a microcontroller


def pool2d_nest(op: Op, graph: Graph) -> Nest:
    (x,) = graph.operands(op)
    extents, rows, columns = spatial.window_dims(op, x, op.attrs["window"])
    extents = {"n": x.shape[0], **extents, "k": x.shape[3]}
    return Nest(extents, ("n", "y", "x", "k"), ((Same("n"), rows, columns, Same("k")),))


def max_reference(op: Op, graph: Graph, x: Array) -> Array:
    out, fill = graph.result(op).shape[1:3], -np.inf if x.dtype.kind == "f" else fixedpoint.limits(str(x.dtype))[0]
    y = reduce(np.maximum, (under for *_, under in spatial.taps(x, op, op.attrs["window"], out, fill)))
    return clip_float(y, op.attrs["clamp"]) if x.dtype.kind == "f" else _clip(y, op, graph)


def avg_reference(op: Op, graph: Graph, x: Array) -> Array:
    y = graph.result(op)
    integer = x.dtype.kind == "i"
    zero = zero_of(graph.operands(op)[0]) if integer else 0
    inside = np.ones((1, *x.shape[1:3], 1), np.int64)
    windows = op.attrs["window"], y.shape[1:3]
    # One after another: all taps of a large window together would fill the memory.
    count: Array = reduce(np.add, (u for *_, u in spatial.taps(inside, op, *windows, fill=_counts_pad(op))))
    kind: Any = np.int64 if integer else np.float64
    total: Array = reduce(np.add, (u.astype(kind) - zero for *_, u in spatial.taps(x, op, *windows, fill=zero)))
    if not integer:
        return clip_float(total / count, op.attrs["clamp"])
    return _pool2d_average(op, graph, total + zero * count if graph.arithmetic.fixed_point else total, count)


def _pool2d_average(op: Op, graph: Graph, total: Array, count: Array) -> Array:
    """The result from sums of `count` elements each; onnx: of elements less the zero point."""
    if graph.arithmetic.fixed_point and _halves_up(op):
        return _clip((total + count // 2) // count, op, graph)
    if graph.arithmetic.fixed_point:
        mean = np.where(total > 0, total + count // 2, -((-total) + count // 2))
        return _clip(np.sign(mean) * (abs(mean) // count), op, graph)
    mantissa, shift = _multiplier_table(op, graph)
    scaled = fixedpoint.requantize(total, mantissa.astype(np.int64)[count], shift[count], graph.arithmetic)
    return _clip(scaled + zero_of(graph.result(op)), op, graph)


def _clip(y: Array, op: Op, graph: Graph) -> Array:
    return np.clip(y, *spatial.bounds(op, graph.result(op))).astype(graph.result(op).dtype)


def _halves_up(op: Op) -> bool:
    return bool(op.attrs.get("halves_up", False))


def _counts_pad(op: Op) -> int:
    return int(op.attrs.get("count_include_pad", False))


def _multiplier_table(op: Op, graph: Graph) -> tuple[Array, Array]:
    """scale(x) / (scale(y) * n) for every number n of elements that a window may hold; entry 0 is unused."""
    ratio = scale_of(graph.operands(op)[0]) / scale_of(graph.result(op))
    most = op.attrs["window"][0] * op.attrs["window"][1]
    return fixedpoint.quantize_multipliers(ratio / max(n, 1) for n in range(most + 1))


def _sums(op: Op, graph: Graph) -> tuple[Array, int, Array, float] | None:
    """All sums that a window may have, the offset subtracted from them, their averages, and the factor between both.

    None if windows reach beyond the input, or there are too many sums.
    """
    (x,), y = graph.operands(op), graph.result(op)
    count = op.attrs["window"][0] * op.attrs["window"][1]
    if x.dtype != "int8" or any(op.attrs["pad"]) or count * 256 > fixedpoint.MAX_VALUES:
        return None
    scaled, total = graph.arithmetic.rounds_once, np.arange(-128 * count, 127 * count + 1)
    zeros = zero_of(x) * count if scaled else 0
    weight = (scale_of(x) / scale_of(y) if scaled else 1) / count
    return total, zeros, _pool2d_average(op, graph, total - zeros, np.array(count)), weight


def _pool2d_linear(op: Op, graph: Graph) -> fixedpoint.Scaled | None:
    """The average as one multiplication, if all windows lie inside of the input."""
    if (sums := _sums(op, graph)) is None:
        return None
    total, zeros, want, weight = sums
    return fixedpoint.fit_scale(int(total[0]) - zeros, want, weight, *spatial.bounds(op, graph.result(op)))


def linear_sum(op: Op, graph: Graph, to_even: bool = False) -> fixedpoint.Scaled | None:
    """Rescaling of a plain sum of the elements by a product in 32 bits; None if none is exact.

    `to_even`: halves go to even.
    """
    if (sums := _sums(op, graph)) is None:
        return None
    (total, offset, want, weight), y = sums, graph.result(op)
    if to_even:
        zeros = zero_of(y) - weight * offset if graph.arithmetic.rounds_once else 0.0
        even = fixedpoint.fit_even((fixedpoint.Term(total, weight, 0),), want, zeros, *spatial.bounds(op, y))
        return None if even is None else fixedpoint.Scaled(even.factors[0], even.offset, even.shift, 0, False)
    for away in (False, True):
        term = fixedpoint.Term(total - (away & (total < 0)), weight, 0)
        form = fixedpoint.fit_terms((term,), want, *spatial.bounds(op, y))
        if form is not None:
            return fixedpoint.Scaled(form.factors[0], form.offset, form.shift, 0, away)
    return None


def same_quantisation(op: Op, graph: Graph) -> str | None:
    """Quantised input and output have the same scale and zero point (TFLite, and max pooling)."""
    x, y = graph.operands(op)[0], graph.result(op)
    if is_float(x) or x.quant == y.quant or (op.kind == "avg_pool2d" and graph.arithmetic.rounds_once):
        return None
    return f"input is {x.quant}, output is {y.quant}"


def average_rows(op: Op, graph: Graph) -> str:
    """How the op runs row by row: an average over the whole image is a sum to which rows are added one by one."""
    (x,), dilation = graph.operands(op), op.attrs.get("dilation", (1, 1))
    whole = (1, *op.attrs["window"]) == x.shape[:3] and tuple(dilation) == (1, 1) and not any(op.attrs["pad"])
    return "reduce" if whole else spatial.rows(op, graph)


def windows_inside(op: Op, graph: Graph) -> str | None:
    """Every window has at least one element of the input, however it is padded and dilated."""
    _, *sides = spatial.window_dims(op, graph.operands(op)[0], op.attrs["window"])
    ends = zip(sides, graph.result(op).shape[1:3], op.attrs["window"], strict=True)
    covered = all(_touches(side, place, taps) for side, out, taps in ends for place in _places(side, out))
    return None if covered else f"padding {op.attrs['pad']} of a window of {op.attrs['window']}"


def _places(side: Window, out: int) -> Sequence[int]:
    """Places of the result to check: the first and the last, or all if dilated taps may skip the whole input."""
    return (0, out - 1) if side.dilation <= side.size else range(out)


def _touches(side: Window, place: int, taps: int) -> bool:
    """Whether the window at this place of the result has a tap inside of the input."""
    start = place * side.stride - side.pad
    first = max(0, -(start // side.dilation))  # the first tap that is not in the padding before
    return first < taps and start + first * side.dilation < side.size


def sensible_window(op: Op, graph: Graph) -> str | None:
    """A window has at most 4 * size + 64 elements along a side of the input, all windows together at most 2^31."""
    (x,), y, window = graph.operands(op), graph.result(op), op.attrs["window"]
    steps = y.elements * window[0] * window[1]
    if any(taps > 4 * size + 64 for taps, size in zip(window, x.shape[1:3], strict=True)) or steps > MAX_STEPS:
        return f"windows of {window[0]}x{window[1]} on {x.shape[1]}x{x.shape[2]}, {steps} elements"
    return None


def pool2d_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,), y = graph.operands(op), graph.result(op)
    window, kind = op.attrs["window"], "avg" if op.kind == "avg_pool2d" else "max"
    average, integer, count = kind == "avg", not is_float(x), window[0] * window[1]
    shape = spatial.window_shape(op, graph, window, form) | {
        "average": average,
        "finite": graph.arithmetic.finite,  # TFLite's maximum begins at the least finite number
        "least": 0 if not integer else fixedpoint.limits(x.dtype)[0],
        "parts": base.parts(count, average and not integer),
        "count_pad": bool(_counts_pad(op)),
        "halves_up": _halves_up(op),
        "scaled": average and integer and graph.arithmetic.rounds_once,
    }
    del shape["K"]  # which is C
    constants: tuple[Constant, ...] = ()
    scalars = spatial.float_bounds(op, graph)
    if integer:
        scalars = dict(zip(("low", "high"), spatial.bounds(op, y), strict=True))
    if shape["scaled"]:
        mantissa, shift = _multiplier_table(op, graph)
        scalars = {"x_zero": zero_of(x), "y_zero": zero_of(y), **scalars}
        shape["uniform"] = not any(op.attrs["pad"]) or bool(_counts_pad(op))
        if shape["uniform"]:
            scalars = {**scalars, "multiplier": int(mantissa[-1]), "shift": int(shift[-1])}
        else:
            constants = (Constant("multiplier", mantissa, "Q0.31 by count"), Constant("shift", shift, "by count"))
    linear = _pool2d_linear(op, graph) if average and integer else None
    shape["linear"] = linear is not None
    if linear is not None:
        shape |= linear.letters(count * zero_of(x) if graph.arithmetic.rounds_once else 0)
        shape |= {"scaled": False, "low": scalars["low"], "high": scalars["high"]}
        scalars, constants = linear.scalars, ()
    stem = f"{kind}_pool_{window[0]}x{window[1]}_c{x.shape[3]}"
    if form.rolled and average and average_rows(op, graph) == "reduce":
        shape["rows"] = form.rows
        unit = {"stride": (1, 1), "dilation": (1, 1), "pad": (0, 0, 0, 0)}
        return Kernel(
            "reductions.c:sum_rows", f"{stem}_by_rows", shape, constants, scalars,
            scratch=4 * y.elements, estimate=6.6 * x.elements / form.rows, placed=True, counted=True,
            computes=("avg_pool2d", {**unit, "window": (form.rows, x.shape[2])}),
        )  # fmt: skip
    pixels = (y.shape[2] if form.rolled else y.shape[1] * y.shape[2]) * count
    return Kernel(
        "reductions.c:pool2d", stem, shape, constants, scalars, variant="linear" if linear is not None else "portable",
        estimate=pixels * (x.shape[3] * (4.8 + 2 / count)), computes=(op.kind, {"window": tuple(window)}),
    )  # fmt: skip


MAX = Spec(
    "max_pool2d", pool2d_nest, max_reference, pool2d_kernel, rows=spatial.rows, part=spatial.part, exact=True,
    clamps=True, integers=("int8", "int16"),
    limits=(spatial.window_limit, sensible_window, windows_inside, same_quantisation),
)  # fmt: skip
AVERAGE = replace(
    MAX, kind="avg_pool2d", reference=avg_reference, rows=average_rows, exact=False,
    interval=spatial.rising(avg_reference),
)  # fmt: skip


# MEAN, ReduceMean: the average over some dimensions. SUM of quantised values is the same without the division.


def divisor(op: Op, graph: Graph) -> int:
    x = graph.operands(op)[0]
    return prod(x.shape[d] for d in op.attrs["axes"]) if op.kind == "mean" else 1


def multiplier(op: Op, graph: Graph) -> fixedpoint.Multiplier:
    """scale(x) / scale(y) / n. TFLM divides the mantissa of scale(x) / scale(y), shifted up as far as it fits, by n."""
    x, y = graph.operands(op)[0], graph.result(op)
    count = divisor(op, graph)
    if graph.arithmetic.rounds_once:
        return fixedpoint.quantize_multiplier(scale_of(x) / scale_of(y) / count)
    m = fixedpoint.quantize_multiplier(scale_of(x) / scale_of(y))
    shift = min(count.bit_length() - 1, 32, 31 + m.shift)
    return fixedpoint.Multiplier((m.mantissa << shift) // count, m.shift - shift)


def steady(op: Op, graph: Graph) -> bool:
    (x,) = graph.operands(op)
    count = prod(x.shape[d] for d in op.attrs["axes"])
    return multiplier(op, graph).holds(fixedpoint.span(x.dtype) * count)


def mean_reference(op: Op, graph: Graph, x: Array) -> Array:
    y, axes = graph.result(op), tuple(op.attrs["axes"])
    if is_float(y):
        return np.asarray(x.astype(np.float64).mean(axis=axes)).astype(np.float32)
    total = (x.astype(np.int64) - zero_of(graph.operands(op)[0])).sum(axis=axes)
    return _mean_average(op, graph, total)


def _mean_average(op: Op, graph: Graph, total: Array) -> Array:
    """The result from sums of elements less the zero point."""
    m = multiplier(op, graph)
    scaled = m.times(total, graph.arithmetic)
    y = graph.result(op)
    return np.clip(scaled + zero_of(y), *fixedpoint.limits(y.dtype)).astype(y.dtype)


def _mean_linear(op: Op, graph: Graph, count: int) -> fixedpoint.Scaled | None:
    """The average as one multiplication."""
    (x,), y = graph.operands(op), graph.result(op)
    if y.dtype != "int8" or count * 256 > fixedpoint.MAX_VALUES:
        return None
    total = np.arange(count * (-128 - zero_of(x)), count * (127 - zero_of(x)) + 1)
    weight = scale_of(x) / scale_of(y) / divisor(op, graph)
    return fixedpoint.fit_scale(int(total[0]), _mean_average(op, graph, total), weight, -128, 127)


def in_32_bits(op: Op, graph: Graph) -> str | None:
    """Sums of quantised values stay in 32 bits."""
    (x,) = graph.operands(op)
    most = 0 if is_float(x) else 2 ** (9 if x.dtype == "int8" else 17) * prod(x.shape[d] for d in op.attrs["axes"])
    return f"a sum of {x.shape} values of {x.dtype}" if most > 2**31 else None


def _turning(x: Tensor, dimensions: Sequence[int]) -> tuple[base.Loop, ...]:
    steps = base.steps(x.shape)
    return base.real_loops([x.shape[d] for d in dimensions], [steps[d] for d in dimensions])


def mean_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """The kernel with loops over kept and averaged dimensions, each with its extent and step in the input."""
    (x,), y, axes = graph.operands(op), graph.result(op), op.attrs["axes"]
    count = prod(x.shape[d] for d in axes)
    shape: dict[str, Any] = {"float": is_float(x), "count": count, "linear": False}
    shape["parts"] = base.parts(count, is_float(x))
    shape["kept"] = _turning(x, [d for d in range(len(x.shape)) if d not in axes])
    shape["averaged"] = _turning(x, axes)
    stem = f"{op.kind}_{count}_of_{'x'.join(map(str, x.shape))}"
    scalars: dict[str, int | float] = {}
    if not is_float(x):
        m = multiplier(op, graph)
        shape["low"], shape["high"] = fixedpoint.limits(y.dtype)
        scalars = {"x_zero": zero_of(x), "y_zero": zero_of(y), "multiplier": m.mantissa, "shift": m.shift}
        if (linear := _mean_linear(op, graph, count)) is not None:
            shape |= linear.letters(count * zero_of(x))
            scalars = linear.scalars
    if form.rolled:
        shape |= {"averaged": _turning(x, [d for d in axes if d != 1]), "N": y.elements, "rows": form.rows}
        return Kernel(
            "reductions.c:mean_rows", f"{stem}_by_rows", shape, (), scalars,
            scratch=4 * y.elements, placed=True, counted=True,
        )  # fmt: skip
    variant = "linear" if shape["linear"] else "portable"
    return Kernel("reductions.c:mean", stem, shape, (), scalars, variant=variant, estimate=5.0 * x.elements)


SUM = Spec(
    "sum", reduced_nest, mean_reference, mean_kernel, interval=spatial.rising(mean_reference, steady),
    integers=("int8", "int16"), limits=(in_32_bits,),
)  # fmt: skip
MEAN = replace(
    SUM, kind="mean",
    rows=lambda op, graph: "reduce" if 1 in op.attrs["axes"] and graph.result(op).dtype != "int16" else "",
)  # fmt: skip


# Sums, products and extremes over some dimensions, and the places and values of extremes.
#
# `reduce_*` drop the dimensions `axes`. `arg` gives the index of the largest or smallest element along `axis`, `topk`
# the `k` largest or smallest in order, or their indices; a NaN is larger than all numbers.

# How a further element is combined, in C and in numpy.
JOINS = {
    "reduce_sum": ("result + next", np.sum),
    "reduce_prod": ("result * next", np.prod),
    "reduce_max": ("(next > result ? next : result)", np.max),
    "reduce_min": ("(next < result ? next : result)", np.min),
}
EXTREMES = ("reduce_max", "reduce_min")


def reduce_reference(op: Op, graph: Graph, x: Array) -> Array:
    y, meaning = graph.result(op), JOINS[op.kind][1]
    wide = x.astype(np.float64) if is_float(y) and op.kind not in EXTREMES else x
    return np.asarray(meaning(wide, axis=tuple(op.attrs["axes"]))).astype(y.dtype)  # type: ignore[operator]


def plain_numbers(op: Op, graph: Graph) -> str | None:
    """Sums and products are of floats and plain integers; extremes of any values, with one scale."""
    x, y = graph.operands(op)[0], graph.result(op)
    if x.dtype in UNSIGNED:
        return f"values of type {x.dtype}"
    if op.kind in EXTREMES:
        return None if x.quant == y.quant else f"scales {x.quant} and {y.quant}"
    return f"{op.kind} of quantised values" if x.quant is not None and x.dtype != "int32" else None


def _wrapped(kind: str, dtype: str) -> str:
    """C for a sum or product of integers that wraps around; "" for other reductions and types."""
    function = {"reduce_sum": "sum", "reduce_prod": "product"}.get(kind, "")
    word = WORDS.get(dtype, "")
    return WRAPPED[function].replace("{word}", word).format("result", "next") if word and function else ""


def reduce_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """The kernel of a reduction. Extremes begin at the first element; those of TFLite's floats at a finite number."""
    (x,) = graph.operands(op)
    steps, axes = base.steps(x.shape), op.attrs["axes"]
    kept = [d for d in range(len(x.shape)) if d not in axes]
    shape: dict[str, Any] = {
        "kept": base.collapsed([x.shape[d] for d in kept], [steps[d] for d in kept]),
        "reduced": base.collapsed([x.shape[d] for d in axes], [steps[d] for d in axes]),
        "join": _wrapped(op.kind, x.dtype) or JOINS[op.kind][0],
        "parts": base.parts(prod(x.shape[d] for d in axes), is_float(x) and op.kind == "reduce_sum"),
    }
    begun = is_float(x) and graph.arithmetic.finite
    shape["start"] = {"reduce_max": "-", "reduce_min": "+"}.get(op.kind, "") if begun else ""
    stem = f"{op.kind}_{'x'.join(map(str, x.shape)) or 1}"
    return Kernel("reductions.c:reduce", stem, shape, estimate=6.0 * x.elements)


# Places of extremes --------------------------------------------------------------------------


def line_nest(op: Op, graph: Graph) -> Nest:
    """Index relation of one result, or the k best, of each line: all may need the whole line along the axis."""
    axis = op.attrs["axis"]
    relation = lines(graph.operands(op)[0].shape, axis, op.attrs.get("k", 1))
    return relation if "k" in op.attrs else replace(relation, out=(*relation.out[:axis], *relation.out[axis + 1 :]))


def arg_reference(op: Op, graph: Graph, x: Array) -> Array:
    axis, last = op.attrs["axis"], op.attrs["last"]
    line = np.flip(x, axis) if last else x
    place = (np.argmax if op.attrs["largest"] else np.argmin)(line, axis)
    return np.asarray(x.shape[axis] - 1 - place if last else place).astype(graph.result(op).dtype)


def topk_reference(op: Op, graph: Graph, x: Array) -> Array:
    axis = op.attrs["axis"]
    none = x != x
    keys = (-x.astype(np.float64), ~none) if op.attrs["largest"] else (x, none)
    order = np.lexsort(keys, axis).take(np.arange(op.attrs["k"]), axis=axis)
    result = order if op.attrs["indices"] else np.take_along_axis(x, order, axis)
    return np.asarray(result).astype(graph.result(op).dtype)


def line_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """The kernel for lines of `N` elements at steps of `inner`; `sign` compares a candidate with the best so far."""
    (x,), axis = graph.operands(op), op.attrs["axis"]
    sign = ">" if op.attrs["largest"] else "<"
    shape: dict[str, Any] = {
        "N": x.shape[axis],
        "outer": prod(x.shape[:axis]),
        "inner": prod(x.shape[axis + 1 :]),
        "k": op.attrs.get("k", 1),
        "sign": sign,
        "above": is_float(x) and op.kind == "topk",
        "last": bool(op.attrs.get("last", False)),
        "indices": bool(op.attrs.get("indices", True)),
    }
    stem = f"{op.kind}_{'x'.join(map(str, x.shape))}"
    return Kernel(f"reductions.c:{op.kind}", stem, shape, estimate=6.0 * x.elements * shape["k"])


def same_scale(op: Op, graph: Graph) -> str | None:
    """The largest or smallest elements have the operand's scale."""
    x, y = graph.operands(op)[0], graph.result(op)
    return None if op.attrs["indices"] or x.quant == y.quant else f"scales {x.quant} and {y.quant}"


SPECS = (
    *(
        Spec(kind, reduced_nest, reduce_reference, reduce_kernel, exact=kind in EXTREMES, plain=True,
             limits=(plain_numbers,))
        for kind in JOINS
    ),
    Spec("arg", line_nest, arg_reference, line_kernel, float_only=True, plain=True),
    Spec(
        "topk", line_nest, topk_reference, line_kernel, float_only=True, integers=("int8", "int16"), plain=True,
        limits=(same_scale,), interval=spatial.rising(topk_reference, lambda op, graph: not op.attrs["indices"]),
    ),
)  # fmt: skip


# CUMSUM, CumSum, CumProd: sums or products of all elements of a line up to each of them.
#
# `exclusive` leaves the element itself out, `reverse` begins at the end of the line. Floats are added in the order of
# the line, as TFLM and onnxruntime do. The int8 form is TFLM's (kernels/internal/reference/cumsum.h): terms and result
# have the factors of a quantised ADD of the operand with itself, and sums begin at the term of a stored 0.

LEFT = elementwise.LEFT_SHIFT["int8"]
MAX_TERMS = (1 << 31) // (255 << (LEFT - 1)) - 1  # halves shifted left by LEFT that an int32 holds after a first


def factors(op: Op, graph: Graph) -> tuple[fixedpoint.Multiplier, fixedpoint.Multiplier]:
    """Factors from an element, shifted left by LEFT, to a term, and from sums to the result."""
    x, y = scale_of(graph.operands(op)[0]), scale_of(graph.result(op))
    return fixedpoint.quantize_multiplier(0.5), fixedpoint.quantize_multiplier(2 * x / (2**LEFT * y))


def _start_term(zero: int, enter: fixedpoint.Multiplier) -> int:
    """Term of a stored 0, at which TFLM begins its sums."""
    return int(enter.times(np.int64(-zero) << LEFT, Arithmetic.TFLITE))


def running_sum_reference(op: Op, graph: Graph, x: Array) -> Array:
    t, y, axis = graph.operands(op)[0], graph.result(op), op.attrs["axis"]
    line, start = np.flip(x, axis) if op.attrs["reverse"] else x, 0
    if t.quant is not None:
        enter, leave = factors(op, graph)
        line = enter.times((line.astype(np.int64) - zero_of(t)) << LEFT, Arithmetic.TFLITE)
        start = _start_term(zero_of(t), enter)
    product = op.attrs["product"]
    with np.errstate(over="ignore", invalid="ignore"):
        total = (np.cumprod if product else np.cumsum)(line, axis, dtype=line.dtype)
    if op.attrs["exclusive"]:
        total = np.roll(total, 1, axis)
        np.moveaxis(total, axis, 0)[0] = int(product)
    if t.quant is not None:
        scaled = leave.times(total + start, Arithmetic.TFLITE) + zero_of(y)
        total = np.clip(scaled, *fixedpoint.limits(y.dtype))
    return np.ascontiguousarray(np.flip(total, axis) if op.attrs["reverse"] else total).astype(y.dtype)


def has_form(op: Op, graph: Graph) -> str | None:
    """Values are float32, int32 or int64; sums are of int8, too, of a TFLite file in lines of at most 15 elements."""
    (x,), y = graph.operands(op), graph.result(op)
    if x.quant is None:
        return None if is_float(x) or x.dtype in WORDS else f"values of type {x.dtype}"
    if not graph.arithmetic.fixed_point or op.attrs["product"] or (x.dtype, y.dtype) != ("int8", "int8"):
        return f"quantised values of type {x.dtype}"
    most = max(x.shape[op.attrs["axis"]], 1)
    return None if most <= MAX_TERMS else f"lines of {most}"


def running_sum_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
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
            "start": _start_term(zero_of(x), enter),
            "x_zero": zero_of(x),
            **enter.named("x"),
            **leave.named("y"),
        }
        scalars["y_zero"] = zero_of(graph.result(op))
    stem = f"running_{join}_{'x'.join(map(str, x.shape))}"
    cost = (6.0 if x.quant is None else 30.0) * x.elements
    return Kernel(
        "reductions.c:running_sum", stem, shape, (), scalars, estimate=cost, in_place="" if form.rolled else SAME
    )


RUNNING_SUM = Spec(
    "running_sum", lambda op, graph: lines(graph.operands(op)[0].shape, op.attrs["axis"]), running_sum_reference,
    running_sum_kernel, plain=True, limits=(has_form,),
)  # fmt: skip
