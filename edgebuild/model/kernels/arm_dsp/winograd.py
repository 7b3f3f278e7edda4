"""Winograd's convolutions for Armv7E-M with DSP: 16 products instead of 36 for four outputs of a window of 3x3.

F(2x2, 3x3) of Lavin and Gray, "Fast Algorithms for Convolutional Networks" (2016), section 4.1. Weights are transformed
when the model is compiled, with a G twice as large, so that they are whole numbers. Every sum is then four times the
convolution's, which is exact: the reference's results come out bit by bit.
"""

from __future__ import annotations

import numpy as np

from ....base.target import SLOW_FLASH
from ...ir import Array
from ...ops.base import Constant, Form, Kernel, Sums, Traffic
from ...ops.sums import shape_of, words
from .factors import factors

TWICE_G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])
PLACES = 16  # of a tile of 4x4, each of which has its own matrix of channels
TILES = 4  # that meet a pair of words of weights in registers
ROOM = 64  # channels of the tiles that are transformed at a time, where flash is slow: weights serve them all


def transformed(weights: Array) -> Array:
    """4 G g G^T of weights K x 3 x 3 x C: K x 4 x 4 x C, of at most 1,152 in absolute value."""
    return np.einsum("ia,kabc,jb->kijc", TWICE_G, weights.astype(np.int64), TWICE_G)


def stream(s: Sums) -> Array:
    """For each two channels: by place the words of two taps of both, then start value and factors of each."""
    k = s.out[2]
    fours = transformed(s.weights).reshape(k // 2, 2, PLACES, -1, 4)[..., [0, 2, 1, 3]]
    halves = fours.reshape(k // 2, 2, PLACES, -1, 2, 2) & 0xFFFF
    packed = (halves[..., 0] | halves[..., 1] << 16).transpose(0, 2, 3, 4, 1).reshape(k // 2, -1)
    ends = np.concatenate([s.start[:, None], factors(s).words], axis=1).reshape(k // 2, -1)
    return words(np.concatenate([packed, ends], axis=1))


def _serves(s: Sums, form: Form) -> bool:
    """Flash is free, outputs come in tiles of 2x2, channels in words, and four times a sum fits int32."""
    (oh, ow, k), c = s.out, s.size[2]
    plain = s.window == (3, 3) and s.stride == (1, 1) and s.dilation == (1, 1) and s.weights.shape[3] == c
    whole = c % 4 == 0 and k % 2 == 0 and min(oh, ow) >= 2
    exact = s.finish != "sums" and bool(s.bound.max() < 2**29)
    return form.wish.optimize == "speed" and not form.rolled and plain and whole and exact


def winograd(s: Sums, form: Form) -> Kernel | None:
    """3.6 times the weights' flash for about two thirds of the time; the scratch holds the tiles."""
    if not _serves(s, form):
        return None
    (h, w, c), (oh, ow, k) = s.size, s.out
    across, tiles = -(-ow // 2), -(-ow // 2) * -(-oh // 2)
    groups = min(-(-tiles // TILES), max(1, min(4, ROOM // c)) if SLOW_FLASH in form.core else 1)
    padded = s.padded_rows or s.padded_columns
    unroll = 4 if c % 8 == 0 else 2
    sizes = (2 * PLACES * c * TILES * groups, 4 * PLACES * 2 * TILES * groups, 4 * TILES * groups)
    shape = shape_of(s, form) | {
        **factors(s).shape, "across": across, "tiles": tiles, "at_once": TILES * groups, "groups": groups,
        "group": 2 * c, "place": 2 * c * groups, "products": sizes[0] // 4, "outputs": (sizes[0] + sizes[1]) // 4,
        "patch": sum(sizes), "padded": padded, "padded_rows": s.padded_rows, "padded_columns": s.padded_columns,
        "unroll": unroll, "bounds": s.finish.endswith("_clamped"),
    }  # fmt: skip
    scalars = ({"x_zero": s.x_zero} if padded else {}) | {"y_zero": s.y_zero, **factors(s).scalars}
    scalars |= {"low": s.low, "high": s.high} if shape["bounds"] else {}
    passes = -(-tiles // (TILES * groups))
    cost = passes * groups * (TILES * 62 * c + k / 2 * (PLACES * (7 * c + 22) + 8 * 85))
    constant = Constant("w", stream(s).ravel(), "transformed weights, start values and factors by pairs of channels")
    return Kernel(
        "arm_dsp/winograd.c.j2", s.stem, shape, (constant,), scalars, scratch=sum(sizes) + (PLACES * c if padded else 0),
        variant="dsp winograd", estimate=cost, traffic=Traffic(passes=passes),
    )  # fmt: skip
