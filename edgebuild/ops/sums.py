"""Sums of products in int8 as the kernels see them: one description for conv2d, depthwise_conv2d and dense.

The input's zero point is folded into the bias: sum of (x - z) * w + b = sum of x * w + (b - z * sum of w). That is
exact at borders too as long as padding reads as z.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..ir import Array, Graph, Op
from . import spatial
from .base import Form, zero_of

HALF_WORD = 2**15


@dataclass(frozen=True)
class Sums:
    """H x W x C to OH x OW x K through a window of FH x FW; `weights` are K x FH x FW x (channels of one sum).

    `start` is the folded bias, `mantissa` and `right` the factor M / 2^31 / 2^right; the result is clamped to
    [low, high] after `y_zero` is added.
    """

    size: tuple[int, int, int]
    out: tuple[int, int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    dilation: tuple[int, int]
    weights: Array
    start: Array
    mantissa: Array
    right: Array
    x_zero: int
    y_zero: int
    low: int
    high: int
    arithmetic: str

    @property
    def window(self) -> tuple[int, int]:
        return self.weights.shape[1], self.weights.shape[2]

    @property
    def macs(self) -> int:
        return self.out[0] * self.out[1] * int(self.weights.size)

    @property
    def pointwise(self) -> bool:
        """Output pixel p needs input pixel p and no other."""
        return self.window == (1, 1) and self.stride == (1, 1) and self.size[:2] == self.out[:2]

    @cached_property
    def bound(self) -> Array:
        """The largest absolute value that each channel's sum can take, in any order of summing."""
        weights = np.abs(self.weights.astype(np.int64)).reshape(len(self.start), -1)
        return np.abs(self.start) + 128 * weights.sum(axis=1)

    @property
    def fits(self) -> bool:
        """No partial sum leaves int32."""
        return bool((self.bound < 2**31).all())

    @property
    def rectified(self) -> bool:
        """Values below the zero point are clamped, so how negative halves are rounded does not show."""
        return self.low >= self.y_zero

    @property
    def full_range(self) -> bool:
        return (self.low, self.high) == (-128, 127)

    @property
    def shifts_right(self) -> bool:
        """Two roundings, the second over at least one bit, in every channel."""
        return self.arithmetic == "tflite" and bool(((self.right >= 1) & (self.right <= 31)).all())

    def scalars(self) -> dict[str, int | float]:
        return {"x_zero": self.x_zero, "y_zero": self.y_zero, "low": self.low, "high": self.high}


def of(op: Op, graph: Graph, weights: Array, size: tuple[int, ...], out: tuple[int, ...]) -> Sums:
    """The sums of an int8 op. `weights`: K x FH x FW x channels of one sum."""
    y = graph.result(op)
    mantissa, shift = (a.astype(np.int64) for a in spatial.multipliers(op, graph))
    bias = graph.operands(op)[2].data if len(op.inputs) > 2 else None
    start = np.zeros(out[2], np.int64) if bias is None else bias.astype(np.int64).ravel()
    dead = mantissa == 0  # the factor is below 2^-32: every sum becomes 0
    weights = np.where(dead[:, None, None, None], 0, weights).astype(np.int8)
    zero = zero_of(graph.operands(op)[0])
    start = np.where(dead, 0, start - zero * weights.astype(np.int64).sum(axis=(1, 2, 3)))
    low, high = spatial.bounds(op, y)
    return Sums(
        (size[0], size[1], size[2]),
        (out[0], out[1], out[2]),
        tuple(op.attrs.get("stride", (1, 1))),
        tuple(op.attrs.get("pad", (0, 0))[:2]),
        tuple(op.attrs.get("dilation", (1, 1))),
        weights,
        start,
        np.where(dead, 2**30, mantissa),
        np.where(dead, 1, -shift),
        zero,
        zero_of(y),
        low,
        high,
        graph.arithmetic,
    )


def shape_of(s: Sums, form: Form) -> dict[str, int | str | bool | tuple[int, ...]]:
    """The letters of the templates."""
    (h, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    return {
        "H": h, "W": w, "C": c, "OH": oh, "OW": ow, "K": k, "FH": fh, "FW": fw,
        "SY": s.stride[0], "SX": s.stride[1], "PY": s.pad[0], "PX": s.pad[1], "DY": s.dilation[0], "DX": s.dilation[1],
        **spatial.rolled(form),
    }  # fmt: skip


def words(values: Array) -> Array:
    """Values modulo 2^32 as int32."""
    return np.asarray(values & 0xFFFFFFFF, np.uint32).view(np.int32)
