"""int16 values times int8 weights (TFLite's 16x8), as far as no sum can leave 32 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...ir import Array, Graph, Op
from ...ops import spatial
from ...ops.base import Constant, Kernel, Traffic, zero_of
from ...ops.spatial import words
from ..row import KernelLayer


def fits(op: Op, graph: Graph) -> bool:
    """One image of int16, weights of int8, TFLite's rounding of 64-bit sums over 17 bits or more, no zero points."""
    (x, w), y = graph.operands(op)[:2], graph.result(op)
    types = (x.dtype, w.dtype, y.dtype) == ("int16", "int8", "int16") and w.data is not None
    if not types or not graph.arithmetic.fixed_point or zero_of(x) or not spatial.wide(op, graph):
        return False
    _, shift = spatial.multipliers(op, graph)
    return spatial.narrow(op, graph) and bool(((shift > -33) & (shift < -1)).all())


def ends(op: Op, graph: Graph) -> tuple[str, dict[str, int | float]]:
    """How sums end, and the scalars that this needs."""
    y = graph.result(op)
    low, high = spatial.bounds(op, y)
    if (low, high) == (-(2**15), 2**15 - 1):
        return "", {"y_zero": zero_of(y)}
    return "_clamped", {"y_zero": zero_of(y), "low": low, "high": high}


def start(op: Op, graph: Graph) -> Array:
    (k,), bias = graph.result(op).shape[-1:], graph.operands(op)[2].data
    return np.zeros(k, np.int64) if bias is None else bias.astype(np.int64).ravel()


def rescaling(op: Op, graph: Graph) -> Array:
    """Two constants a channel, K x 2: M * 2^16 and -2^(32 - right), where right = -1 - shift."""
    mantissa, shift = (a.astype(np.int64) for a in spatial.multipliers(op, graph))
    return np.stack([mantissa << 16, -(2 ** (33 + shift))], axis=1)


PAIRED = (0, 2, 1, 3)  # of four weights, so that those of neighbours are both in even bytes or both in odd ones


def stream(weights: Array, first: Array, factors: Array, ways: int, order: Sequence[int] = PAIRED) -> Array:
    """For each `ways` channels their start values, words of four weights in this order, and the rescaling.

    `weights`: K x rows x taps; the taps of each row are padded to a multiple of four.
    """
    k = len(weights)
    missing = -k % ways
    w = np.pad(weights.astype(np.int64), ((0, missing), (0, 0), (0, -weights.shape[2] % 4))) & 0xFF
    four = w.reshape(-1, ways, w.shape[1] * w.shape[2] // 4, 4).transpose(0, 2, 1, 3)
    packed = np.bitwise_or.reduce([four[..., tap] << 8 * byte for byte, tap in enumerate(order)])
    blocks = len(packed)
    parts = [np.pad(first, (0, missing)).reshape(blocks, -1), packed.reshape(blocks, -1)]
    parts.append(np.pad(factors, ((0, missing), (0, 0))).reshape(blocks, -1))
    return words(np.concatenate(parts, axis=1))


def dense(layer: KernelLayer) -> Kernel | None:
    """A row at a time, four channels of it at once."""
    op, graph = layer.op, layer.graph
    w = graph.operands(op)[1]
    if layer.form.rolled or not fits(op, graph) or w.data is None or w.shape[1] % 4:
        return None
    (k, c), n, (end, scalars) = w.shape, graph.operands(op)[0].shape[0], ends(op, graph)
    packed = stream(w.data[:, None], start(op, graph), rescaling(op, graph), 4)
    shape = {
        "N": n, "C": c, "K": k, "end": end, "blocks": k // 4, "tail": k % 4, "full": k // 4 * 4,
        "tail_at": k // 4 * packed.shape[1],
    }  # fmt: skip
    return Kernel(
        "arm_dsp/wide_dense.c.j2", layer.plain.stem, shape, (_constant(packed),), scalars,
        variant="dsp 1 pixel of int16",
        estimate=n * (30 + -(-k // 4) * (36 + 4.8 * c)), traffic=Traffic(passes=n),
    )  # fmt: skip


def depthwise(layer: KernelLayer) -> Kernel | None:
    """Four channels of a pixel at a time, straight from x."""
    op, graph, form = layer.op, layer.graph, layer.form
    (x, w), (oh, ow, k) = graph.operands(op)[:2], graph.result(op).shape[1:]
    if not fits(op, graph) or w.data is None or x.shape[3] != k or k % 4 or x.shape[0] > 1:
        return None
    taps = w.shape[1] * w.shape[2]
    fours = w.data.reshape(taps, k // 4, 2, 2).astype(np.int64).transpose(1, 0, 2, 3)  # block, tap, word, half
    packed = (fours[..., 0] & 0xFFFF) | fours[..., 1] << 16
    parts = (start(op, graph).reshape(-1, 4), packed.reshape(k // 4, -1), rescaling(op, graph).reshape(-1, 8))
    end, scalars = ends(op, graph)
    shape = {**spatial.window_shape(op, graph, w.shape[1:3], form), "end": end, "taps": taps, "list": 4 * taps}
    constants = (_constant(words(np.concatenate(parts, axis=1))),)
    made = ow * (1 if form.rolled else oh)
    return Kernel(
        "arm_dsp/wide_depthwise.c.j2", layer.plain.stem, shape, constants, {"x_zero": 0, **scalars},
        scratch=4 * taps + 2 * k, variant="dsp taps of int16", traffic=Traffic(passes=made),
        estimate=2 * k + made * (30 + 16 * taps + k // 4 * (36 + 9.5 * taps)),
    )  # fmt: skip


def _plain_halves(layer: KernelLayer) -> bool:
    """int16 in TFLite's arithmetic without zero points, whose results are bounded by their type alone."""
    tensors = (*layer.graph.operands(layer.op), layer.graph.result(layer.op))
    if not layer.graph.arithmetic.fixed_point or any(t.dtype != "int16" or zero_of(t) for t in tensors):
        return False
    return spatial.bounds(layer.op, tensors[-1]) == (-(2**15), 2**15 - 1)


def product(layer: KernelLayer) -> Kernel | None:
    """Elementwise products, rounded twice in a few instructions."""
    k = layer.plain
    if not _plain_halves(layer) or not -31 <= int(k.scalars["y_shift"]) <= -1:
        return None
    scalars = {name: value for name, value in k.scalars.items() if name not in ("low", "high")} | _end(k)
    shape, cost = {**k.shape, "ends": "eb_scale_halves"}, 20.0 + 13 * int(str(k.shape["N"]))
    return replace(k, shape=shape, scalars=scalars, variant="dsp products of int16", estimate=cost)


def total(layer: KernelLayer) -> Kernel | None:
    """Elementwise sums: each operand and the sum are rounded."""
    k = layer.plain
    if not _plain_halves(layer) or not k.shape["flat"] or not -31 <= int(k.scalars["y_shift"]) <= -1:
        return None
    shape, scalars = {"N": k.shape["N"]}, {"y_zero": 0} | _end(k)
    for name in ("x0", "x1"):
        shift = int(k.scalars[f"{name}_shift"])
        if not -31 <= shift <= 0:
            return None
        shape[f"ends{name[1]}"] = "_shifted" if shift else ""
        scalars |= {f"{name}_mul": k.scalars[f"{name}_mul"]} | (
            {f"{name}_shift": -(2 ** (32 + shift))} if shift else {}
        )
    cost = 20.0 + 16 * int(str(k.shape["N"]))
    return replace(
        k, template="arm_dsp/add_wide.c.j2", shape=shape, scalars=scalars, variant="dsp sums of int16", estimate=cost
    )


def _end(k: Kernel) -> dict[str, int | float]:
    """The factor of a result as eb_scale_halves takes it."""
    return {"y_mul": 2 * int(k.scalars["y_mul"]) - 2**32, "y_shift": -(2 ** (32 + int(k.scalars["y_shift"])))}


def _constant(packed: Array) -> Constant:
    return Constant("w", packed.ravel(), "start values, weights and rescaling by groups of channels")
