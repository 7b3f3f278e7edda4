"""Layers with a state: LSTM and SVDF."""

from __future__ import annotations

from math import log2
from typing import Any

import numpy as np

from ..ir import ITEM_BYTES, Arithmetic, Array, Graph, Op, Tensor
from . import fixedpoint, spatial
from .base import C_TYPES, Constant, Form, Kernel, Spec, clip_float, is_float, lettered, scale_of, zero_of

# UNIDIRECTIONAL_SEQUENCE_LSTM of one sample: all steps of a long short-term memory, with a state that lasts.
#
# The result has T + 2 rows of U: the output before the first step, those of all steps, and the cell after the last. Of
# quantised networks these are int16, as the cell is: Q0.15 gates from Q3.12 sums (kernels/lstm_eval.h of TFLM). It
# holds int8 outputs unchanged; a later op casts them. The gates' order is forget, input, candidate, output.

Q12, Q15 = 2.0**-12, 2.0**-15


def lstm_macs(op: Op, graph: Graph) -> int:
    x, _, _, own, back = graph.operands(op)[:5]
    return x.shape[0] * (own.elements + back.elements)


def _wide(op: Op, graph: Graph) -> bool:
    """Whether sums have 64 bits, as TFLM's of int16 values."""
    return graph.operands(op)[0].dtype == "int16"


def _factors(op: Op, graph: Graph, name: str) -> tuple[Array, Array]:
    """Mantissas and shifts of the four gates."""
    mantissa, shift = fixedpoint.quantize_multipliers(op.attrs[name])
    return fixedpoint.wide(mantissa, shift, Arithmetic.TFLITE) if _wide(op, graph) else (mantissa, shift)


def _tanh_scaling(cell: Tensor) -> tuple[int, int]:
    """Multiplier and shift from steps of the cell, a power of two, to arguments of the table."""
    left = 12 + round(log2(scale_of(cell)))
    return (3 << left, 0) if left >= 0 else (3, -left)


def lstm_reference(op: Op, graph: Graph, x: Array, hidden: Array, cell: Array, *weights: Array) -> Array:
    step = _real_step if is_float(graph.operands(op)[0]) else _integer_step
    h, c, rows = hidden.ravel(), cell.ravel(), [hidden.ravel()]
    for features in x:
        h, c = step(op, graph, features, h, c, *weights)
        rows.append(h)
    return np.stack([*rows, c]).astype(graph.result(op).dtype)


def _real_step(
    op: Op, graph: Graph, x: Array, h: Array, c: Array, own: Array, back: Array, bias: Array
) -> tuple[Array, Array]:
    total = own.astype(np.float64) @ x + back.astype(np.float64) @ h + bias
    forget, enter, candidate, out = total.reshape(4, -1)
    forget, enter, out = (1 / (1 + np.exp(-g)) for g in (forget, enter, out))
    c = forget * c + enter * np.tanh(candidate)
    c = np.clip(c, -op.attrs["clip"], op.attrs["clip"]) if op.attrs["clip"] > 0 else c
    return np.tanh(c) * out, c


def _integer_step(
    op: Op, graph: Graph, x: Array, h: Array, c: Array, own: Array, back: Array, bias: Array
) -> tuple[Array, Array]:
    tx, th, tc = graph.operands(op)[:3]

    def sums(value: Array, zero: int, weights: Array, start: Array | int, name: str) -> Array:
        total = weights.astype(np.int64) @ (value.astype(np.int64) - zero) + start
        mantissa, shift = (np.repeat(f, len(h)) for f in _factors(op, graph, name))
        scale = fixedpoint.requantize_wide if _wide(op, graph) else fixedpoint.requantize
        return np.clip(scale(total, mantissa.astype(np.int64), shift, Arithmetic.TFLITE), -(2**15), 2**15 - 1)

    def product(a: Array, b: Array, name: str) -> Array:
        m = fixedpoint.quantize_multiplier(op.attrs[name])
        return m.times(a * b, Arithmetic.TFLITE)

    def int16(value: Array) -> Array:
        return np.clip(value, -(2**15), 2**15 - 1)

    gates = int16(sums(x, zero_of(tx), own, bias.astype(np.int64), "own") + sums(h, zero_of(th), back, 0, "back"))
    forget, enter, candidate, out = (3 * gates).reshape(4, -1)
    forget, enter, out = (fixedpoint.sigmoid(g) for g in (forget, enter, out))
    kept = int16(product(forget, c.astype(np.int64), "keep"))
    c = int16(kept + int16(product(enter, fixedpoint.tanh_int16(candidate), "add")))
    c = np.clip(c, -op.attrs["clip"], op.attrs["clip"]) if op.attrs["clip"] > 0 else c
    shown = fixedpoint.tanh_int16(fixedpoint.sigmoid_argument(c, *_tanh_scaling(tc)))
    return np.clip(product(shown, out, "out") + zero_of(th), *fixedpoint.limits(th.dtype)), c


def has_form(op: Op, graph: Graph) -> str | None:
    """Values are float32, int8 with int16 cells, or int16; a quantised cell's scale is a power of two."""
    x, hidden, cell = graph.operands(op)[:3]
    if is_float(x):
        return None if hidden.dtype == cell.dtype == "float32" else f"states of {hidden.dtype} and {cell.dtype}"
    if x.dtype not in ("int8", "int16") or hidden.dtype != x.dtype or cell.dtype != "int16" or cell.quant is None:
        return f"input {x.dtype}, output {hidden.dtype}, cell {cell.dtype}"
    if not graph.arithmetic.fixed_point:
        return "a quantised LSTM of another format"
    return None if 2.0 ** round(log2(scale_of(cell))) == scale_of(cell) else f"cell with scale {scale_of(cell)}"


def lstm_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (x, hidden, cell, own, back, bias), real = graph.operands(op), is_float(graph.operands(op)[0])
    wide = _wide(op, graph)
    shape: dict[str, Any] = {"T": x.shape[0], "I": x.shape[1], "U": hidden.shape[1], "float": real, "wide": wide}
    shape |= {"clips": op.attrs["clip"] > 0, "acc": "float" if real else "int64_t" if wide else "int32_t"}
    shape |= {"weight": C_TYPES[own.dtype]}
    kind: Any = np.float32 if real else np.int64 if wide else np.int32
    constants = [Constant("own", own.array, "weights of the input: forget, input, candidate, output")]
    constants += [
        Constant("back", back.array, "weights of the output before"),
        Constant("bias", bias.array.astype(kind)),
    ]
    scalars: dict[str, int | float] = {"clip": op.attrs["clip"]} if op.attrs["clip"] > 0 else {}
    if not real:
        for name in ("own", "back"):
            mantissa, shift = _factors(op, graph, name)
            constants += [Constant(f"{name}_mul", mantissa), Constant(f"{name}_shift", shift, "left if positive")]
        constants.append(fixedpoint.SIGMOID_CONSTANT)
        scalars |= {"x_zero": zero_of(x), "h_zero": zero_of(hidden)}
        for name in ("keep", "add", "out"):
            scalars |= fixedpoint.quantize_multiplier(op.attrs[name]).named(name)
        scalars |= dict(zip(("tanh_mul", "tanh_shift"), _tanh_scaling(cell), strict=True))
        scalars |= dict(zip(("low", "high"), fixedpoint.limits(hidden.dtype), strict=True))
    cost = x.shape[0] * (3.0 * (own.array.size + back.array.size) + 800 * hidden.shape[1])
    stem = f"lstm_{x.shape[0]}x{x.shape[1]}x{hidden.shape[1]}"
    return Kernel("recurrent.c:lstm", stem, shape, tuple(constants), scalars, estimate=cost)


LSTM = Spec(  # every row may need all operands
    "lstm", lettered(
        "-> ru", lstm_macs, r=lambda op, graph: graph.operands(op)[0].shape[0] + 2,
        u=lambda op, graph: graph.operands(op)[1].shape[1],
    ), lstm_reference, lstm_kernel, integers=("int8", "int16"), plain=True, limits=(has_form,),
)  # fmt: skip


# SVDF: a filter over the features of a step, then one over its last results in time (Nakkiran et al. 2015).
#
# svdf_state(state, x, features): shifts every filter's results by one step and appends the newest, the sum of
# x * features; the state is 1 x (filters * memory). svdf(state, times, bias): the sum over time of each filter, and
# of `rank` filters for each output. TFLM holds an int8 network's state in int16 or int8.


def factor(a: Tensor, b: Tensor, y: Tensor) -> fixedpoint.Multiplier:
    """scale(a) * scale(b) / scale(y), computed in double, as in the interpreter, although its source says float."""
    return fixedpoint.quantize_multiplier(scale_of(a) * scale_of(b) / scale_of(y))


def state_reference(op: Op, graph: Graph, state: Array, x: Array, w: Array) -> Array:
    (_, tx, tw), y, memory = graph.operands(op), graph.result(op), op.attrs["memory"]
    newest = (x.reshape(1, -1).astype(np.float64) - zero_of(tx)) @ w.astype(np.float64).T
    if not is_float(y):
        m = factor(tx, tw, y)
        scaled = m.times(newest.astype(np.int64), graph.arithmetic)
        newest = np.clip(scaled, *fixedpoint.limits(y.dtype))
    moved = np.roll(state.reshape(len(w), memory), -1, axis=1)
    moved[:, -1] = newest.ravel()
    return moved.reshape(state.shape).astype(y.dtype)


def svdf_reference(op: Op, graph: Graph, state: Array, w: Array, bias: Array | None = None) -> Array:
    (ts, tw), y = graph.operands(op)[:2], graph.result(op)
    sums = (state.reshape(w.shape).astype(np.float64) * w).sum(axis=1).reshape(1, -1, op.attrs["rank"]).sum(axis=2)
    total = sums + (0 if bias is None else bias)
    if is_float(y):
        return clip_float(total, op.attrs["clamp"])
    in_words = total.astype(np.int64).astype(np.int32)  # TFLM lets sums wrap around in 32 bits
    return spatial.stored(factor(ts, tw, y).times(in_words, graph.arithmetic), op, y)


def one_step(op: Op, graph: Graph) -> str | None:
    """The batch is 1; weights are constant matrices of F x C and F x memory, and the state has F * memory elements."""
    state, w = graph.operands(op)[0], graph.operands(op)[-1 if op.kind == "svdf_state" else 1]
    memory = op.attrs["memory"] if op.kind == "svdf_state" else w.shape[1]
    bad = w.data is None or len(w.shape) != 2 or state.shape != (1, w.shape[0] * memory)
    return f"weights {w.shape}, state {state.shape}" if bad else None


def state_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (_, x, w), y = graph.operands(op), graph.result(op)
    shape: dict[str, Any] = {"stage": "state", "F": w.shape[0], "C": w.shape[1], "M": op.attrs["memory"]}
    scalars: dict[str, int | float] = {}
    if not is_float(y):
        m, (low, high) = factor(x, w, y), fixedpoint.limits(y.dtype)
        scalars = {"x_zero": zero_of(x), "multiplier": m.mantissa, "shift": m.shift, "low": low, "high": high}
    shape |= {"float": is_float(y)}
    constants = (Constant("w", w.array, "weights"),)
    return Kernel("recurrent.c:svdf", f"svdf_state_{w.shape[0]}x{w.shape[1]}", shape, constants, scalars)


def svdf_kernel(op: Op, graph: Graph, form: Form) -> Kernel:
    (state, w), y = graph.operands(op)[:2], graph.result(op)
    kind = np.float32 if is_float(y) else np.int32
    bias = graph.operands(op)[2].data if len(op.inputs) > 2 else None
    start = np.zeros(y.shape[-1], kind) if bias is None else bias.astype(kind)
    shape: dict[str, Any] = {"stage": "out", "U": y.shape[-1], "T": op.attrs["rank"] * w.shape[1], "float": is_float(y)}
    shape["wraps"] = False  # whether sums wrap around in 32 bits, as TFLM lets them
    scalars = spatial.float_bounds(op, graph)
    if not is_float(y):
        most = np.abs(w.array.astype(np.int64)).reshape(y.shape[-1], -1).sum(1) << 8 * ITEM_BYTES[state.dtype] - 1
        shape["wraps"] = bool((most + np.abs(start.astype(np.int64)) >= 2**31).any())
        m, (low, high) = factor(state, w, y), spatial.bounds(op, y)
        scalars = {"multiplier": m.mantissa, "shift": m.shift, "y_zero": zero_of(y), "low": low, "high": high}
    constants = (Constant("w", w.array, "weights of times"), Constant("bias", start, "bias"))
    return Kernel("recurrent.c:svdf", f"svdf_{w.shape[0]}x{w.shape[1]}", shape, constants, scalars)


STATE = Spec(
    "svdf_state", lettered(
        "n* n* -> ns", lambda op, graph: graph.operands(op)[2].elements,
        s=lambda op, graph: graph.operands(op)[0].shape[1],
    ), state_reference, state_kernel, integers=("int8", "int16"), limits=(one_step,),
)  # fmt: skip
SVDF = Spec(
    "svdf", lettered(
        "n* ** u -> nu", lambda op, graph: graph.operands(op)[1].elements,
        u=lambda op, graph: graph.operands(op)[1].shape[0] // op.attrs["rank"],
    ), svdf_reference, svdf_kernel, integers=("int8", "int16"), limits=(one_step,),
)  # fmt: skip
