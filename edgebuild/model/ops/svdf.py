"""SVDF: a filter over the features of a step, then one over its last results in time (Nakkiran et al. 2015).

svdf_state(state, x, features): every filter's results move on by one step, and the newest, the sum of x * features,
goes behind them; the state is 1 x (filters * memory). svdf(state, times, bias): the sum over time of each filter, and
of `rank` filters for each output. TFLM holds an int8 network's state in int16 or int8.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ir import ITEM_BYTES, Array, Graph, Op, Tensor
from ..ir.axes import Dim, Nest, Same, Whole
from . import fixedpoint, spatial
from .base import Constant, Form, Kernel, Spec, clip_float, is_float, scale_of, zero_of


def state_nest(op: Op, graph: Graph) -> Nest:
    state, x, w = graph.operands(op)
    extents = {"n": state.shape[0], "s": state.shape[1]}
    dims: tuple[tuple[Dim, ...], ...] = (
        (Same("n"), Whole(state.shape[1])),
        (Same("n"), Whole(x.shape[-1])),
        tuple(Whole(n) for n in w.shape),
    )
    return Nest(extents, ("n", "s"), dims, inside=w.elements)


def factor(a: Tensor, b: Tensor, y: Tensor) -> fixedpoint.Multiplier:
    """scale(a) * scale(b) / scale(y), formed in double: so does the interpreter, though its source names float."""
    return fixedpoint.quantize_multiplier(scale_of(a) * scale_of(b) / scale_of(y))


def state_reference(op: Op, graph: Graph, state: Array, x: Array, w: Array) -> Array:
    (_, tx, tw), y, memory = graph.operands(op), graph.result(op), op.attrs["memory"]
    newest = (x.reshape(1, -1).astype(np.float64) - zero_of(tx)) @ w.astype(np.float64).T
    if not is_float(y):
        m = factor(tx, tw, y)
        scaled = fixedpoint.requantize(newest.astype(np.int64), m.mantissa, m.shift, graph.arithmetic)
        newest = np.clip(scaled, *fixedpoint.limits(y.dtype))
    moved = np.roll(state.reshape(len(w), memory), -1, axis=1)
    moved[:, -1] = newest.ravel()
    return moved.reshape(state.shape).astype(y.dtype)


def nest(op: Op, graph: Graph) -> Nest:
    state, w = graph.operands(op)[:2]
    extents = {"n": state.shape[0], "u": w.shape[0] // op.attrs["rank"]}
    bias = [(Same("u"),)] * (len(op.inputs) - 2)
    weights: tuple[Dim, ...] = tuple(Whole(n) for n in w.shape)
    return Nest(extents, ("n", "u"), ((Same("n"), Whole(state.shape[1])), weights, *bias), inside=w.elements)


def reference(op: Op, graph: Graph, state: Array, w: Array, bias: Array | None = None) -> Array:
    (ts, tw), y = graph.operands(op)[:2], graph.result(op)
    sums = (state.reshape(w.shape).astype(np.float64) * w).sum(axis=1).reshape(1, -1, op.attrs["rank"]).sum(axis=2)
    total = sums + (0 if bias is None else bias)
    if is_float(y):
        return clip_float(total, op.attrs["clamp"])
    m = factor(ts, tw, y)
    scaled = fixedpoint.requantize(
        total.astype(np.int64).astype(np.int32).astype(np.int64), m.mantissa, m.shift, graph.arithmetic
    )
    return np.clip(scaled + zero_of(y), *spatial.bounds(op, y)).astype(y.dtype)


def one_step(op: Op, graph: Graph) -> str | None:
    """The batch is 1; weights are constant matrices of F x C and F x memory, and the state has F * memory elements."""
    state, w = graph.operands(op)[0], graph.operands(op)[-1 if op.kind == "svdf_state" else 1]
    memory = op.attrs["memory"] if op.kind == "svdf_state" else w.shape[1]
    bad = w.data is None or len(w.shape) != 2 or state.shape != (1, w.shape[0] * memory)
    return f"weights {w.shape}, state {state.shape}" if bad else None


def state_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (_, x, w), y = graph.operands(op), graph.result(op)
    assert w.data is not None
    shape: dict[str, Any] = {"stage": "state", "F": w.shape[0], "C": w.shape[1], "M": op.attrs["memory"]}
    scalars: dict[str, int | float] = {}
    if not is_float(y):
        m, (low, high) = factor(x, w, y), fixedpoint.limits(y.dtype)
        scalars = {"x_zero": zero_of(x), "multiplier": m.mantissa, "shift": m.shift, "low": low, "high": high}
    shape |= {"float": is_float(y)}
    return Kernel(
        "svdf.c.j2", f"svdf_state_{w.shape[0]}x{w.shape[1]}", shape, (Constant("w", w.data, "weights"),), scalars
    )


def kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (state, w), y = graph.operands(op)[:2], graph.result(op)
    assert w.data is not None
    kind = np.float32 if is_float(y) else np.int32
    bias = graph.operands(op)[2].data if len(op.inputs) > 2 else None
    start = np.zeros(y.shape[-1], kind) if bias is None else bias.astype(kind)
    shape: dict[str, Any] = {"stage": "out", "U": y.shape[-1], "T": op.attrs["rank"] * w.shape[1], "float": is_float(y)}
    shape["wraps"] = False  # whether sums leave 32 bits, as TFLM lets them
    scalars = spatial.float_bounds(op, graph)
    if not is_float(y):
        most = np.abs(w.data.astype(np.int64)).reshape(y.shape[-1], -1).sum(1) << 8 * ITEM_BYTES[state.dtype] - 1
        shape["wraps"] = bool((most + np.abs(start.astype(np.int64)) >= 2**31).any())
        m, (low, high) = factor(state, w, y), spatial.bounds(op, y)
        scalars = {"multiplier": m.mantissa, "shift": m.shift, "y_zero": zero_of(y), "low": low, "high": high}
    constants = (Constant("w", w.data, "weights of times"), Constant("bias", start, "bias"))
    return Kernel("svdf.c.j2", f"svdf_{w.shape[0]}x{w.shape[1]}", shape, constants, scalars)


STATE = Spec(
    kind="svdf_state",
    nest=state_nest,
    reference=state_reference,
    kernel=state_kernel,
    integers=("int8", "int16"),
    limits=(one_step,),
)
SPEC = Spec(
    kind="svdf",
    nest=nest,
    reference=reference,
    kernel=kernel,
    integers=("int8", "int16"),
    limits=(one_step,),
)
