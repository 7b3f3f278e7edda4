"""Max and average pooling: each channel by itself, over a window of rows and columns.

An average counts only elements inside of the input unless `count_include_pad` is set (ONNX).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op
from ..ir.axes import Nest, Same, Window
from . import fixedpoint, intervals, linear, loops, spatial
from .base import Constant, Form, Kernel, Spec, clip_float, is_float, scale_of, zero_of

MOST_STEPS = 1 << 31  # elements under all windows of a pool: minutes on a microcontroller


def nest(op: Op, graph: Graph) -> Nest:
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
    return _average(op, graph, total + zero * count if graph.arithmetic.fixed_point else total, count)


def _average(op: Op, graph: Graph, total: Array, count: Array) -> Array:
    """The result from sums of `count` elements each; onnx: of elements less the zero point."""
    if graph.arithmetic.fixed_point:
        mean = np.where(total > 0, total + count // 2, -((-total) + count // 2))
        return _clip(np.sign(mean) * (abs(mean) // count), op, graph)
    mantissa, shift = _multiplier_table(op, graph)
    scaled = fixedpoint.requantize(total, mantissa.astype(np.int64)[count], shift[count], graph.arithmetic)
    return _clip(scaled + zero_of(graph.result(op)), op, graph)


def _clip(y: Array, op: Op, graph: Graph) -> Array:
    return np.clip(y, *spatial.bounds(op, graph.result(op))).astype(graph.result(op).dtype)


def _counts_pad(op: Op) -> int:
    return int(op.attrs.get("count_include_pad", False))


def _multiplier_table(op: Op, graph: Graph) -> tuple[Array, Array]:
    """scale(x) / (scale(y) * n) for every number n of elements that a window may hold; entry 0 is unused."""
    ratio = scale_of(graph.operands(op)[0]) / scale_of(graph.result(op))
    most = op.attrs["window"][0] * op.attrs["window"][1]
    pairs = [fixedpoint.quantize_multiplier(ratio / max(n, 1)) for n in range(most + 1)]
    return np.array([p.mantissa for p in pairs], np.int32), np.array([p.shift for p in pairs], np.int8)


def _linear(op: Op, graph: Graph) -> linear.Scaled | None:
    """The average as one multiplication, if all windows lie inside of the input."""
    (x,), y = graph.operands(op), graph.result(op)
    count = op.attrs["window"][0] * op.attrs["window"][1]
    if x.dtype != "int8" or any(op.attrs["pad"]) or count * 256 > linear.MOST_VALUES:
        return None
    scaled = graph.arithmetic.rounds_once
    zero = zero_of(x) if scaled else 0
    total = np.arange(count * (-128 - zero), count * (127 - zero) + 1)
    weight = (scale_of(x) / scale_of(y) if scaled else 1) / count
    return linear.scale(int(total[0]), _average(op, graph, total, np.array(count)), weight, *spatial.bounds(op, y))


def same_quantisation(op: Op, graph: Graph) -> str | None:
    """Quantised input and output have the same scale and zero point (TFLite, and max pooling)."""
    x, y = graph.operands(op)[0], graph.result(op)
    if is_float(x) or x.quant == y.quant or (op.kind == "avg_pool2d" and graph.arithmetic.rounds_once):
        return None
    return f"input is {x.quant}, output is {y.quant}"


def average_rows(op: Op, graph: Graph) -> str:
    """An average over the whole image is a sum that rows are added to as they come."""
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
    """Places of the result that are like all others: a tap falls into the input wherever it is not too narrow."""
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
    if any(taps > 4 * size + 64 for taps, size in zip(window, x.shape[1:3], strict=True)) or steps > MOST_STEPS:
        return f"windows of {window[0]}x{window[1]} on {x.shape[1]}x{x.shape[2]}, {steps} elements"
    return None


def _letters(op: Op, graph: Graph) -> dict[str, Any]:
    """The letters of the template: N, H, W, C in; OH, OW out; F window, S stride, P padding before, D dilation."""
    (x,), y = graph.operands(op), graph.result(op)
    names = ("N", "H", "W", "C", "OH", "OW", "FH", "FW", "SY", "SX", "PY", "PX", "DY", "DX")
    dilation = op.attrs.get("dilation", (1, 1))
    windows = (*op.attrs["window"], *op.attrs["stride"], *op.attrs["pad"][:2], *dilation)
    return dict(zip(names, (*x.shape, *y.shape[1:3], *windows), strict=True))


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x,) = graph.operands(op)
    y = graph.result(op)
    window, pad = op.attrs["window"], op.attrs["pad"]
    average, integer, count = op.kind == "avg_pool2d", not is_float(x), window[0] * window[1]
    shape = {
        **_letters(op, graph),
        "average": average,
        "float": not integer,
        "finite": graph.arithmetic.finite,  # TFLite's maximum begins at the least finite number
        "least": 0 if not integer else fixedpoint.limits(x.dtype)[0],
        "parts": loops.parts(count, average and not integer),
        "count_pad": bool(_counts_pad(op)),
        **spatial.rolled(form),
        "scaled": average and integer and graph.arithmetic.rounds_once,
    }
    constants: tuple[Constant, ...] = ()
    scalars = spatial.float_bounds(op, graph)
    if integer:
        low, high = spatial.bounds(op, y)
        scalars = {"low": low, "high": high}
    if shape["scaled"]:
        mantissa, shift = _multiplier_table(op, graph)
        scalars = {"x_zero": zero_of(x), "y_zero": zero_of(y), **scalars}
        shape["uniform"] = not any(pad) or bool(_counts_pad(op))
        if shape["uniform"]:
            scalars = {**scalars, "multiplier": int(mantissa[-1]), "shift": int(shift[-1])}
        else:
            constants = (Constant("multiplier", mantissa, "Q0.31 by count"), Constant("shift", shift, "by count"))
    found = _linear(op, graph) if average and integer else None
    shape["linear"] = found is not None
    if found is not None:
        shape |= {"up": found.up, "away": found.away, "shift": found.shift, "scaled": False}
        shape |= {"taken": count * zero_of(x) if graph.arithmetic.rounds_once else 0}
        shape |= {"low": scalars["low"], "high": scalars["high"]}
        scalars, constants = {"y_mul": found.factor, "offset": found.offset}, ()
    stem = f"{'avg' if average else 'max'}_pool_{window[0]}x{window[1]}_c{x.shape[3]}"
    if form.rolled and average and average_rows(op, graph) == "reduce":
        shape["rows"], size = form.rows, 4 * y.elements
        cost = 6.6 * x.elements / form.rows
        unit = {"stride": (1, 1), "dilation": (1, 1), "pad": (0, 0, 0, 0)}
        image = "avg_pool2d", {**unit, "window": (form.rows, x.shape[2])}
        return Kernel(
            "sum_rows.c.j2", f"{stem}_by_rows", shape, constants, scalars,
            scratch=size, estimate=cost, placed=True, counted=True, computes=image,
        )  # fmt: skip
    computes = ("avg_pool2d" if shape["average"] else "max_pool2d", {"window": (shape["FH"], shape["FW"])})
    pixels = (y.shape[2] if form.rolled else y.shape[1] * y.shape[2]) * count
    variant = "linear" if found is not None else "portable"
    each = x.shape[3] * (4.8 + 2 / count)
    return Kernel("pool2d.c.j2", stem, shape, constants, scalars, 0, "", variant, pixels * each, computes=computes)


MAX = Spec(
    kind="max_pool2d",
    nest=nest,
    reference=max_reference,
    kernel=kernel,
    rows=spatial.rows,
    part=spatial.part,
    exact=True,
    clamps=True,
    integers=("int8", "int16"),
    limits=(spatial.window_limit, sensible_window, windows_inside, same_quantisation),
)
AVERAGE = Spec(
    kind="avg_pool2d",
    nest=nest,
    reference=avg_reference,
    kernel=kernel,
    rows=average_rows,
    part=spatial.part,
    interval=intervals.rising(avg_reference),
    clamps=True,
    integers=("int8", "int16"),
    limits=(spatial.window_limit, sensible_window, windows_inside, same_quantisation),
)
