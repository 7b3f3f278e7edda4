"""MEAN, ReduceMean: the average over some dimensions. SUM of quantised values is the same without the division."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op, Tensor
from . import fixedpoint, intervals, linear, loops, reduction
from .base import Form, Kernel, Spec, is_float, scale_of, zero_of


def divisor(op: Op, graph: Graph) -> int:
    x = graph.operands(op)[0]
    return prod(x.shape[d] for d in op.attrs["axes"]) if op.kind == "mean" else 1


def multiplier(op: Op, graph: Graph) -> fixedpoint.Multiplier:
    """scale(x) / scale(y) / n. TFLM divides the mantissa of scale(x) / scale(y) by n, shifted up as far as it goes."""
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


def reference(op: Op, graph: Graph, x: Array) -> Array:
    y, axes = graph.result(op), tuple(op.attrs["axes"])
    if is_float(y):
        return np.asarray(x.astype(np.float64).mean(axis=axes)).astype(np.float32)
    total = (x.astype(np.int64) - zero_of(graph.operands(op)[0])).sum(axis=axes)
    return _average(op, graph, total)


def _average(op: Op, graph: Graph, total: Array) -> Array:
    """The result from sums of elements less the zero point."""
    m = multiplier(op, graph)
    scaled = fixedpoint.requantize(total, m.mantissa, m.shift, graph.arithmetic)
    y = graph.result(op)
    return np.clip(scaled + zero_of(y), *fixedpoint.limits(y.dtype)).astype(y.dtype)


def _linear(op: Op, graph: Graph, count: int) -> linear.Scaled | None:
    """The average as one multiplication."""
    (x,), y = graph.operands(op), graph.result(op)
    if y.dtype != "int8" or count * 256 > linear.MOST_VALUES:
        return None
    total = np.arange(count * (-128 - zero_of(x)), count * (127 - zero_of(x)) + 1)
    weight = scale_of(x) / scale_of(y) / divisor(op, graph)
    return linear.scale(int(total[0]), _average(op, graph, total), weight, -128, 127)


def in_32_bits(op: Op, graph: Graph) -> str | None:
    """Sums of quantised values stay in 32 bits."""
    (x,) = graph.operands(op)
    most = 0 if is_float(x) else 2 ** (9 if x.dtype == "int8" else 17) * prod(x.shape[d] for d in op.attrs["axes"])
    return f"a sum of {x.shape} values of {x.dtype}" if most > 2**31 else None


def _turning(x: Tensor, dimensions: Sequence[int]) -> tuple[loops.Loop, ...]:
    steps = loops.steps(x.shape)
    return loops.turning([x.shape[d] for d in dimensions], [steps[d] for d in dimensions])


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """Loops over kept and averaged dimensions, each with its extent and step in the input."""
    (x,) = graph.operands(op)
    y, axes = graph.result(op), op.attrs["axes"]
    kept = [d for d in range(len(x.shape)) if d not in axes]
    count = prod(x.shape[d] for d in axes)
    shape: dict[str, Any] = {"float": is_float(x), "count": count, "linear": False}
    shape["parts"] = loops.parts(count, is_float(x))
    shape["kept"] = _turning(x, kept)
    shape["averaged"] = _turning(x, axes)
    stem = f"{op.kind}_{count}_of_{'x'.join(map(str, x.shape))}"
    scalars: dict[str, int | float] = {}
    if not is_float(x):
        m = multiplier(op, graph)
        shape["low"], shape["high"] = fixedpoint.limits(y.dtype)
        scalars = {"x_zero": zero_of(x), "y_zero": zero_of(y), "multiplier": m.mantissa, "shift": m.shift}
        if (found := _linear(op, graph, count)) is not None:
            shape |= {
                "linear": True,
                "up": found.up,
                "away": found.away,
                "shift": found.shift,
            }
            shape |= {"taken": count * zero_of(x)}
            scalars = {"y_mul": found.factor, "offset": found.offset}
    if form.rolled:
        shape |= {"averaged": _turning(x, [d for d in axes if d != 1]), "N": y.elements}
        shape |= {"rows": form.rows}
        return Kernel(
            "mean_rows.c.j2", f"{stem}_by_rows", shape, (), scalars, scratch=4 * y.elements, placed=True, counted=True
        )
    variant = "linear" if shape["linear"] else "portable"
    return Kernel("mean.c.j2", stem, shape, (), scalars, variant=variant, estimate=5.0 * x.elements)


SPEC = Spec(
    kind="mean",
    nest=reduction.nest,
    reference=reference,
    kernel=kernel,
    interval=intervals.rising(reference, steady),
    integers=("int8", "int16"),
    rows=lambda op, graph: "reduce" if 1 in op.attrs["axes"] and graph.result(op).dtype != "int16" else "",
    limits=(in_32_bits,),
)
SUM = Spec(
    kind="sum",
    nest=reduction.nest,
    reference=reference,
    kernel=kernel,
    interval=intervals.rising(reference, steady),
    integers=("int8", "int16"),
    limits=(in_32_bits,),
)
