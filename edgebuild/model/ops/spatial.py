"""Code that the windowed ops (convolutions, pools) share: padding rules, window sums, requantisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, wraps
from itertools import chain, product
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from ..ir import Array, Graph, Op, Quant, Tensor, Window
from . import fixedpoint
from .base import (
    C_TYPES,
    SAME,
    Constant,
    Form,
    Interval,
    Ranges,
    Sums,
    Total,
    Transfer,
    clip_float,
    is_float,
    quant_of,
    scale_of,
    zero_of,
)

INTEGERS = ("int8", "int16", "int32")  # result types of sums
MAX_PADDED = 1 << 26  # elements of an image that is mostly padding
UNBOUNDED = ("clamp", "pointwise", "batch_matmul")  # ops whose float results TFLite leaves infinite


def window_dims(op: Op, x: Tensor, window: Sequence[int]) -> tuple[dict[str, int], Window, Window]:
    """Extents of output rows and columns, and the relations of the input's height and width."""
    stride, pad = op.attrs["stride"], op.attrs["pad"]
    dilation = op.attrs.get("dilation", (1, 1))
    height, width = (
        (x.shape[1 + i] + pad[i] + pad[i + 2] - (window[i] - 1) * dilation[i] - 1) // stride[i] + 1 for i in range(2)
    )
    extents = {"y": height, "x": width, "fy": window[0], "fx": window[1]}
    rows = Window("y", "fy", stride[0], dilation[0], pad[0], x.shape[1])
    columns = Window("x", "fx", stride[1], dilation[1], pad[1], x.shape[2])
    return extents, rows, columns


def window_limit(op: Op, graph: Graph) -> str | None:
    """The window is not larger than the padded input, which has at most 2^26 elements or 16 times the input's."""
    x, y = graph.operands(op)[0], graph.result(op)
    if len(x.shape) != 4:
        return f"input has {len(x.shape)} dimensions"
    if min(y.shape) < 1:
        return f"window is larger than the padded input {x.shape[1]}x{x.shape[2]}"
    top, left, bottom, right = op.attrs["pad"]
    padded = x.shape[0] * (x.shape[1] + top + bottom) * (x.shape[2] + left + right) * x.shape[3]
    if padded > max(MAX_PADDED, 16 * x.elements):
        return f"padding {op.attrs['pad']} makes {x.shape[1]}x{x.shape[2]} an image of {padded} elements"
    return None


def taps(x: Array, op: Op, window: Sequence[int], out: Sequence[int], fill: float) -> Iterator[tuple[int, int, Array]]:
    """Yield each tap (fy, fx) of the window and the input under it, shaped like the output's rows and columns."""
    top, left, bottom, right = op.attrs["pad"]
    stride, dilation = op.attrs["stride"], op.attrs.get("dilation", (1, 1))
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    for fy in range(window[0]):
        for fx in range(window[1]):
            y0, x0 = fy * dilation[0], fx * dilation[1]
            y1, x1 = y0 + (out[0] - 1) * stride[0] + 1, x0 + (out[1] - 1) * stride[1] + 1
            yield fy, fx, padded[:, y0 : y1 : stride[0], x0 : x1 : stride[1], :]


def rows(op: Op, graph: Graph) -> str:
    """Return "each", a row from the input rows under its window, for a single image; else ""."""
    return "each" if graph.result(op).shape[0] == 1 else ""


def part(op: Op, graph: Graph, out: Ranges, x: Ranges) -> dict[str, Any]:
    """Attributes of the op that computes rows and columns `out` from rows and columns `x` of its input.

    Its padding is how far its windows reach beyond `x`, which they do only at the border of the whole input.
    """
    taps = op.attrs["window"] if "window" in op.attrs else graph.operands(op)[1].shape[1:3]
    _, *relations = window_dims(op, graph.operands(op)[0], taps)
    pads = [(op.attrs["pad"][i], op.attrs["pad"][i + 2]) for i in range(2)]
    for i, (r, (first, past), (low, high)) in enumerate(zip(relations, out[1:3], x[1:3], strict=True)):
        if (first, past) != (0, graph.result(op).shape[1 + i]):
            end = (past - 1) * r.stride - r.pad + (taps[i] - 1) * r.dilation + 1
            pads[i] = low - (first * r.stride - r.pad), end - high
    (top, bottom), (left, right) = pads
    return {**op.attrs, "pad": (top, left, bottom, right)}


def window_shape(op: Op, graph: Graph, window: Sequence[int], form: Form) -> dict[str, Any]:
    """The letters of the templates: H, W, C in; OH, OW, K out; F window, S stride, P padding before, D dilation."""
    x, y = graph.operands(op)[0], graph.result(op)
    steps = op.attrs["stride"], op.attrs["pad"][:2], op.attrs.get("dilation", (1, 1))
    return letters(x.shape[1:], y.shape[1:], window, *steps) | {"N": x.shape[0], "float": is_float(x), **rolled(form)}


def letters(*sizes: Sequence[int]) -> dict[str, Any]:
    """Letters of templates for sizes of input, output, window, stride, padding and dilation."""
    names = ("H", "W", "C", "OH", "OW", "K", "FH", "FW", "SY", "SX", "PY", "PX", "DY", "DX")
    return dict(zip(names, chain.from_iterable(sizes), strict=True))


def sum_types(op: Op, graph: Graph) -> dict[str, Any]:
    """Template parameters of sums: types of weights and of the sum, and how the sum becomes a result."""
    (x, w), y = graph.operands(op)[:2], graph.result(op)
    scaled = is_float(x) and not is_float(w)
    acc = "float" if is_float(y) else "int64_t" if wide(op, graph) and not narrow(op, graph) else "int32_t"
    cast = "(float)" if scaled else "(int64_t)" if acc == "int64_t" and w.dtype != "int8" else ""
    types = {"weight": C_TYPES[w.dtype], "acc": acc, "wide": wide(op, graph), "scaled": scaled, "cast": cast}
    return types | {"shifted": shifted(op)}


def rolled(form: Form) -> dict[str, Any]:
    """Values with which a template finds input rows, see `row_at`."""
    return {"rolled": form.rolled, "ring": form.rings[0] if form.rings else 0, "separate": any(form.separate)}


# Requantisation of a sum of products to the quantised output ------------------------------------


def wide(op: Op, graph: Graph) -> bool:
    """Whether an int16 op sums in 64 bits: TFLM does where the bias is int64, else in 32."""
    if graph.operands(op)[0].dtype != "int16":
        return False
    return graph.arithmetic.rounds_once or (len(op.inputs) > 2 and graph.operands(op)[2].dtype == "int64")


def reach(op: Op, graph: Graph) -> Array:
    """The largest absolute value that each channel's sum can take, in any order of summing. Weights have no zero
    point."""
    x, w = graph.operands(op)[:2]
    axis = 0 if w.shape[0] == graph.result(op).shape[-1] else -1
    sizes = np.abs(np.moveaxis(w.array.astype(np.int64), axis, 0)).reshape(w.shape[axis], -1).sum(axis=1)
    bias = graph.operands(op)[2].data if len(op.inputs) > 2 else None
    low, high = fixedpoint.limits(x.dtype)
    start = 0 if bias is None else np.abs(bias.astype(np.int64)).ravel()
    return np.asarray(start + max(high - zero_of(x), zero_of(x) - low) * sizes)


def sums_fit(op: Op, graph: Graph) -> bool:
    """Whether all sums stay in the range that kernels can rescale: 32 bits, or that of `requantize_wide`."""
    return bool((reach(op, graph) < (fixedpoint.WIDE_SUMS if wide(op, graph) else 2**31 - 1)).all())


def narrow(op: Op, graph: Graph) -> bool:
    """Whether a `wide` op may sum in 32 bits after all: no partial sum leaves them."""
    return wide(op, graph) and bool((reach(op, graph) < 2**31).all())


def is_plain(op: Op, graph: Graph) -> bool:
    """Whether the op has the form of most kernels: one image or matrix, all tensors int8 or all float32.

    Ops with groups of channels or with results that are `shifted` have not.
    """
    return is_one_type(op, graph) and not shifted(op)


def shifted(op: Op) -> bool:
    """Whether sums are rescaled as by quantlib's RequantShift: (sum * factor + added) / 2^bits, halves up.

    `bits` is an attribute, `added` the fourth operand, and the factor is a part of the scales of the weights.
    """
    return "bits" in op.attrs


def added(op: Op, graph: Graph) -> tuple[Array, Array]:
    """Per channel, the factor of sums and the term added to the product of a `shifted` op; both int64."""
    x, w, _, more = graph.operands(op)
    scales = np.broadcast_to(scale_of(x) * np.array(quant_of(w).scale), more.shape)
    return np.rint(scales * 2.0 ** op.attrs["bits"]).astype(np.int64), more.array.astype(np.int64)


def rounding(op: Op, graph: Graph) -> Array | None:
    """The term of `added` plus half a step, at the scale of the mantissas of `multipliers`; None if not `shifted`."""
    if not shifted(op):
        return None
    bits, right = op.attrs["bits"], 31 - multipliers(op, graph)[1].astype(np.int64)
    return np.asarray((added(op, graph)[1] << (right - bits)) + (1 << (right - 1)))


def is_one_type(op: Op, graph: Graph) -> bool:
    """Whether operands and result are all int8 or all float32, of one image and without groups."""
    (x, w), y = graph.operands(op)[:2], graph.result(op)
    alike = x.dtype == w.dtype == y.dtype and x.dtype in ("int8", "float32")
    return alike and (len(x.shape) == 2 or x.shape[0] == 1) and op.attrs.get("groups", 1) == 1


def multipliers(op: Op, graph: Graph) -> tuple[Array, Array]:
    """Mantissa and shift for each output channel: scale(x) * scale(w) / scale(y).

    The product is formed in double from the file's float32 scales, as TFLM does; a product formed
    in float32 changes single results. For sums in 64 bits these are fixedpoint.wide's.
    """
    x, w = graph.operands(op)[:2]
    y = graph.result(op)
    factors = _factors(scale_of(x), quant_of(w).scale, scale_of(y))
    mantissa, shift = (np.repeat(a, y.shape[-1] // len(a)) for a in factors)
    return fixedpoint.wide(mantissa, shift, graph.arithmetic) if wide(op, graph) else (mantissa, shift)


@cache  # passes, kernels and checks need those of each layer many times
def _factors(x: float, weights: tuple[float, ...], y: float) -> tuple[Array, Array]:
    return fixedpoint.quantize_multipliers(x * w / y for w in weights)


def sum_fits(total: Array, op: Op, graph: Graph) -> Array:
    """Whether `requantize_sum` of each sum does not wrap around. If all sums fit, results rise with them."""
    _, shift = multipliers(op, graph)
    return np.abs(total) < fixedpoint.WIDE_SUMS if wide(op, graph) else fixedpoint.fits(total, shift)


def requantize_sum(total: Array, op: Op, graph: Graph) -> Array:
    """The quantised result of the integer `total` (channels last): scale, add the zero point, clamp."""
    y = graph.result(op)
    mantissa, shift = multipliers(op, graph)
    factor = mantissa.astype(np.int64), shift, graph.arithmetic
    if wide(op, graph):
        return stored(fixedpoint.requantize_wide(total, *factor), op, y)
    return stored(fixedpoint.requantize(total, *factor, rounding(op, graph)), op, y)


def centred(t: Tensor) -> Tensor:
    """Quantised weights with their zero points subtracted, in the smallest of int8, int16 and int32 that holds them."""
    assert t.quant is not None
    shape = [1] * len(t.shape)
    shape[t.quant.axis or 0] = -1 if t.quant.axis is not None else 1
    data = t.array.astype(np.int64) - np.reshape(t.quant.zero_point, shape)
    dtype = next((d for d in ("int8", "int16") if abs(data).max(initial=0) <= np.iinfo(d).max), "int32")
    return replace(
        t, dtype=dtype, data=data.astype(dtype), quant=replace(t.quant, zero_point=(0,) * len(t.quant.scale))
    )


def finished(products: Array, bias: Array | None, op: Op, graph: Graph) -> Array:
    """The op's result from its exact sums of products without bias, in float64 with channels last."""
    x, w = graph.operands(op)[:2]
    start = 0 if bias is None else bias.ravel()
    if x.dtype != "float32":
        return requantize_sum(products.astype(np.int64) + start, op, graph)
    scale = np.array(quant_of(w).scale) if w.dtype != "float32" else 1.0
    real = np.asarray(products * scale + start)
    if shifted(op):  # real numbers that hold integers
        real = np.floor(real + graph.operands(op)[3].array / 2.0 ** op.attrs["bits"] + 0.5)
    return clip_float(real, op.attrs["clamp"])


def bounds(op: Op, y: Tensor) -> tuple[int, int]:
    low, high = op.attrs["clamp"]
    return fixedpoint.clamp_bounds(quant_of(y), low, high, y.dtype)


def stored(steps: Array, op: Op, y: Tensor) -> Array:
    """The stored results, in the type of y: steps plus the zero point, clamped to the bounds."""
    return np.clip(steps + zero_of(y), *bounds(op, y)).astype(y.dtype)


def sum_constants(op: Op, graph: Graph, weights: Array) -> tuple[Constant, ...]:
    """Weights, bias and, if it is quantised, multipliers and shifts, in the order of the kernels' parameters.

    Integer weights of a float op come with their scales.
    """
    y, channels = graph.result(op), graph.result(op).shape[-1]
    out = [Constant("w", weights, "weights")]
    bias = graph.operands(op)[2].data if len(op.inputs) > 2 else None
    kind: Any = np.float32 if is_float(y) else np.int64 if wide(op, graph) and not narrow(op, graph) else np.int32
    out.append(Constant("bias", np.zeros(channels, kind) if bias is None else bias.astype(kind).ravel(), "bias"))
    if is_float(y) and weights.dtype != np.float32:
        scale = np.broadcast_to(np.array(quant_of(graph.operands(op)[1]).scale, np.float32), (channels,))
        out.append(Constant("scale", np.ascontiguousarray(scale), "of the weights"))
    if shifted(op):
        factor, more = (a.astype(np.int32) for a in added(op, graph))
        out += [Constant("multiplier", factor, "of sums"), Constant("added", more, "to products")]
    elif not is_float(y):
        mantissa, shift = multipliers(op, graph)
        out += [Constant("multiplier", mantissa, "Q0.31"), Constant("shift", shift, "left if positive")]
    return tuple(out)


def sum_scalars(op: Op, graph: Graph) -> dict[str, int | float]:
    """Zero points and output bounds as the kernels' scalar parameters."""
    x, y = graph.operands(op)[0], graph.result(op)
    if y.dtype == "float32":
        return float_bounds(op, graph)
    low, high = bounds(op, y)
    bits = {"bits": op.attrs["bits"]} if shifted(op) else {}
    return {"x_zero": zero_of(x), "y_zero": zero_of(y), "low": low, "high": high, **bits}


def float_bounds(op: Op, graph: Graph) -> dict[str, int | float]:
    """Bounds as scalar parameters; an open bound is finite where TFLite's operator may have an activation."""
    low, high = op.attrs["clamp"]
    finite = graph.arithmetic.finite and op.attrs.get("finite", op.kind not in UNBOUNDED)
    largest = float(np.finfo(np.float32).max if finite else np.inf)
    return {"low": -largest if low is None else float(low), "high": largest if high is None else float(high)}


def bias_agrees(op: Op, graph: Graph) -> str | None:
    """The bias has one number for each output channel."""
    bias, channels = graph.operands(op)[2:3], graph.result(op).shape[-1]
    if bias and bias[0].elements != channels:
        return f"a bias of shape {bias[0].shape} for {channels} outputs"
    return None


def symmetric_weights(op: Op, graph: Graph) -> str | None:
    """Weights and bias are constants; weights have one scale or one per output channel; the bias has scale(x) *
    scale(w), in TFLite to a fiftieth of a step of the result."""
    x, w = graph.operands(op)[:2]
    if computed := [t.name for t in graph.operands(op)[1:] if t.data is None]:
        return f"'{computed[0]}' is computed by the graph"
    if w.dtype == "float32":
        return None if is_float(x) else f"float32 weights for an input of {x.dtype}"
    if w.quant is None:
        return f"{w.dtype} weights without a scale"
    channels = graph.result(op).shape[-1]
    if len(w.quant.scale) not in (1, channels):
        return f"{len(w.quant.scale)} weight scales for {channels} output channels"
    if is_float(x):
        return None
    slack = graph.arithmetic.bias_slack * scale_of(graph.result(op))
    return bias_scale_problem(x, w, graph.operands(op)[2] if len(op.inputs) > 2 else None, slack)


def bias_scale_problem(x: Tensor, w: Tensor, bias: Tensor | None, slack: float) -> str | None:
    """Why the bias does not fit, or None. `slack`: by how much its scale may differ from that of the products."""
    if bias is not None and bias.dtype not in ("int32", "int64"):
        return f"bias is {bias.dtype}, not int32 or int64"
    if bias is None or bias.quant is None or not any(bias.quant.scale):
        return None
    if bias.data is not None and not bias.data.any():
        return None  # converters let layers share one bias of zeros, which has the scale of any of them
    want = np.array(quant_of(w).scale) * scale_of(x)
    have = np.array(bias.quant.scale)
    if len(have) not in (1, len(want)) or not np.allclose(have, want, rtol=1e-2, atol=slack):
        return f"scale {have[0]:.6g} of the bias, scale(x) * scale(w) is {want[0]:.6g}"
    return None


def bias_quant(x: Tensor, w: Tensor) -> Quant:
    """The quantisation that a bias must have with these operands."""
    scales = tuple(scale_of(x) * s for s in quant_of(w).scale)
    return Quant(scales, (0,) * len(scales), 0 if len(scales) > 1 else None)


# Sums of products in int8: how an op's tensors become `Sums`, and the letters of templates.

More = ParamSpec("More")
Result = TypeVar("Result")


def sums_of(op: Op, graph: Graph, stem: str, weights: Array, size: Any, out: Any) -> Sums:
    """The sums of an int8 op. `weights`: K x FH x FW x channels of one sum."""
    y = graph.result(op)
    mantissa, shift = (a.astype(np.int64) for a in multipliers(op, graph))
    bias = graph.operands(op)[2].data if len(op.inputs) > 2 else None
    start = np.zeros(out[2], np.int64) if bias is None else bias.astype(np.int64).ravel()
    dead = mantissa == 0  # the factor is below 2^-32: every sum becomes 0
    weights = np.where(dead[:, None, None, None], 0, weights).astype(np.int8)
    zero = zero_of(graph.operands(op)[0])
    start = np.where(dead, 0, start - zero * weights.astype(np.int64).sum(axis=(1, 2, 3)))
    mantissa, right = np.where(dead, 2**30, mantissa), np.where(dead, 1, -shift)
    defaults = {"stride": (1, 1), "pad": (0, 0), "dilation": (1, 1)}
    stride, pad, dilation = (tuple(op.attrs.get(name, default)[:2]) for name, default in defaults.items())
    return Sums(
        stem, tuple(size), tuple(out), stride, pad, dilation, weights, start, mantissa, right, zero, zero_of(y),
        *bounds(op, y), graph.arithmetic, rounding(op, graph),
    )  # fmt: skip


def computed_once(make: Callable[Concatenate[Sums, More], Result]) -> Callable[Concatenate[Sums, More], Result]:
    """Decorate a function of sums, such as a stream of weights, to cache its results in the `Sums`."""

    @wraps(make)
    def asked(s: Sums, /, *more: More.args, **named: More.kwargs) -> Result:
        key = (make, more, tuple(named.items()))
        if key not in s.computed:
            s.computed[key] = make(s, *more, **named)
        result: Result = s.computed[key]
        return result

    return asked


def sums_shape(s: Sums, form: Form) -> dict[str, int | str | bool | tuple[int, ...]]:
    """Template parameters of sums: the letters of their sizes, and the ring of input rows."""
    return letters(s.size, s.out, s.window, s.stride, s.pad, s.dilation) | rolled(form)


def in_place(s: Sums, form: Form) -> str:
    """`Kernel.in_place` of a kernel that computes one channel, or a few, completely before it reads the next.

    It reads each row of a channel before it writes the same row.
    """
    same = s.stride == (1, 1) and s.size == s.out
    return SAME if same and not form.rolled else ""


def words(values: Array) -> Array:
    """Values modulo 2^32 as int32."""
    return np.asarray(values & 0xFFFFFFFF, np.uint32).view(np.int32)


# Intervals for `Spec.interval`: the bounds of an op's int8 or int16 result, from bounds of its operands.
#
# Intervals are inclusive and kept per element, so that padding, slices and reshapes need no rules of their own.

Reference = Callable[..., Array]


def rising(reference: Reference, steady: Callable[[Op, Graph], bool] = lambda op, graph: True) -> Transfer:
    """Intervals of an op whose result never falls where an operand rises. `steady`: its arithmetic stays in int32."""

    def interval(op: Op, graph: Graph, *operands: Interval) -> Interval | None:
        low, high = zip(*operands, strict=True)
        return (reference(op, graph, *low), reference(op, graph, *high)) if steady(op, graph) else None

    return interval


def corners(reference: Reference, steady: Callable[[Op, Graph], bool] = lambda op, graph: True) -> Transfer:
    """Intervals of an op that is monotonic in each operand: extremes are at the ends of the operands' intervals."""

    def interval(op: Op, graph: Graph, *operands: Interval) -> Interval | None:
        if not steady(op, graph):
            return None
        ends = [reference(op, graph, *chosen) for chosen in product(*operands)]
        return np.minimum.reduce(ends), np.maximum.reduce(ends)

    return interval


def sums_interval(total: Total) -> Transfer:
    """Intervals of a requantised sum of products: negative weights take the other end of the input's interval.

    With the interval's ends at m - d and m + d, the sums lie between m w - d |w| and m w + d |w|: two sums of products
    in place of four. `total` subtracts the zero point, so its arguments are 2 m and 2 d plus the zero point.
    """

    def interval(op: Op, graph: Graph, x: Interval, w: Interval, *bias: Interval) -> Interval | None:
        (low, high), weights = (end.astype(np.int64) for end in x), w[0].astype(np.int64)
        zero, start = zero_of(graph.operands(op)[0]), bias[0][0].astype(np.int64).ravel() if bias else 0
        middle, reach = total(op, graph, low + high - zero, weights), total(op, graph, high - low + zero, abs(weights))
        least, most = (middle - reach) // 2 + start, (middle + reach) // 2 + start
        fits = sum_fits(least, op, graph) & sum_fits(most, op, graph)
        bottom, top = bounds(op, graph.result(op))
        ends = [requantize_sum(np.where(fits, end, 0), op, graph) for end in (least, most)]
        return np.where(fits, ends[0], bottom), np.where(fits, ends[1], top)

    return interval
