"""BATCH_MATMUL, MatMul of two activations: out[a, b, n, k] = sum over c of x[a, b, n, c] * w[a, b, c, k].

Both operands have four dimensions; either may have one where the other has several batches. With `turned` the second is
K x C. Matrices are as they are in the file: a transpose in front of one is an op of its own.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ..ir import Array, Graph, Op, Tensor
from ..ir.axes import Dim, Fixed, Nest, Same
from . import fixedpoint, spatial
from .base import Constant, Form, Interval, Kernel, Spec, clip_float, is_float, scale_of, zero_of


def nest(op: Op, graph: Graph) -> Nest:
    x, w = graph.operands(op)
    k, c = (w.shape[2], w.shape[3]) if op.attrs["turned"] else (w.shape[3], w.shape[2])
    a, b = (max(m, n) for m, n in zip(x.shape[:2], w.shape[:2], strict=True))
    extents = {"a": a, "b": b, "n": x.shape[2], "k": k, "c": c}

    def batch(t: Tensor) -> tuple[Dim, ...]:
        return tuple(Same(axis) if n == extents[axis] else Fixed() for axis, n in zip("ab", t.shape[:2], strict=True))

    matrix = (Same("k"), Same("c")) if op.attrs["turned"] else (Same("c"), Same("k"))
    return Nest(extents, ("a", "b", "n", "k"), ((*batch(x), Same("n"), Same("c")), (*batch(w), *matrix)), macs=True)


def wide(op: Op, graph: Graph) -> bool:
    """int16 operands are summed in 64 bits."""
    return graph.operands(op)[0].dtype == "int16"


def multiplier(op: Op, graph: Graph) -> fixedpoint.Multiplier:
    x, w = (scale_of(t) for t in graph.operands(op))
    m = fixedpoint.quantize_multiplier(x * w / scale_of(graph.result(op)))
    if not wide(op, graph):
        return m
    mantissa, shift = fixedpoint.wide(np.array([m.mantissa]), np.array([m.shift]), graph.arithmetic)
    return fixedpoint.Multiplier(int(mantissa[0]), int(shift[0]))


def reference(op: Op, graph: Graph, x: Array, w: Array) -> Array:
    tx, tw = graph.operands(op)
    total = _products(op, x.astype(np.float64) - zero_of(tx), w.astype(np.float64) - zero_of(tw))
    if is_float(graph.result(op)):
        return clip_float(total, op.attrs["clamp"])
    return _rescaled(op, graph, total)


def _products(op: Op, x: Array, w: Array) -> Array:
    return np.asarray(x @ (w.swapaxes(2, 3) if op.attrs["turned"] else w))


def _rescaled(op: Op, graph: Graph, total: Array) -> Array:
    m, y = multiplier(op, graph), graph.result(op)
    requantize = fixedpoint.requantize_wide if wide(op, graph) else fixedpoint.requantize
    scaled = requantize(total.astype(np.int64), m.mantissa, m.shift, graph.arithmetic)
    return np.clip(scaled + zero_of(y), *spatial.bounds(op, y)).astype(y.dtype)


def interval(op: Op, graph: Graph, x: Interval, w: Interval) -> Interval:
    """Around products of middles: terms reach |x| dw + dx |w| + dx dw from there, at most that if both operands vary.

    Middles and their distances to the ends are taken twice, so that they are integers.
    """
    middles, reaches = [], []
    for (low, high), t in zip((x, w), graph.operands(op), strict=True):
        low, high = low.astype(np.float64), high.astype(np.float64)
        middles.append(low + high - 2 * zero_of(t))
        reaches.append(high - low)
    (mx, mw), (dx, dw) = middles, reaches
    total, reach = _products(op, mx, mw), _products(op, abs(mx) + dx, dw) + _products(op, dx, abs(mw))
    return _rescaled(op, graph, (total - reach) // 4), _rescaled(op, graph, -((-total - reach) // 4))


def fitting(op: Op, graph: Graph) -> str | None:
    """The first operand is computed; both have 4 dimensions, one scale, equal inner sizes, and batches equal or 1."""
    x, w = graph.operands(op)
    inner = w.shape[3] if op.attrs["turned"] else w.shape[2]
    batches = all(m == n or 1 in (m, n) for m, n in zip(x.shape[:2], w.shape[:2], strict=True))
    scales = any(t.quant is not None and not t.quant.per_tensor for t in (x, w))
    bad = x.constant or scales or len(x.shape) != 4 or len(w.shape) != 4 or x.shape[3] != inner or not batches
    return f"operands {x.shape}{' (constant)' if x.constant else ''} and {w.shape}" if bad else None


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    """Letters: A x B matrices of N x K, sums over C; steps to the next matrix of either operand, 0 for the same."""
    (x, w), y = graph.operands(op), graph.result(op)
    (a, b, n, k), c = y.shape, x.shape[3]
    steps: dict[str, Any] = {}
    for name, t in (("x", x), ("w", w)):
        size = prod(t.shape[2:])
        steps |= {f"{name}a": size * t.shape[1] if t.shape[0] > 1 else 0, f"{name}b": size if t.shape[1] > 1 else 0}
    shape: dict[str, Any] = {
        "A": a,
        "B": b,
        "N": n,
        "K": k,
        "C": c,
        "float": is_float(y),
        **steps,
        "wide": wide(op, graph),
    }
    shape |= {"at": (c, 1) if op.attrs["turned"] else (1, k)}
    scalars = spatial.float_bounds(op, graph)
    if not is_float(y):
        m, (low, high) = multiplier(op, graph), spatial.bounds(op, y)
        scalars = {"x0_zero": zero_of(x), "x1_zero": zero_of(w), "multiplier": m.mantissa, "shift": m.shift}
        scalars |= {"y_zero": zero_of(y), "low": low, "high": high}
    constants = (Constant("x1", w.data, "second operand"),) if w.data is not None else ()
    return Kernel("batch_matmul.c.j2", f"matmul_{a * b}x{n}x{c}x{k}", shape, constants, scalars)


SPEC = Spec(
    kind="batch_matmul",
    nest=nest,
    reference=reference,
    kernel=kernel,
    clamps=True,
    integers=("int8", "int16"),
    interval=interval,
    limits=(fitting,),
)
