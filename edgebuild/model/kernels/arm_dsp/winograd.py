"""Winograd's convolutions for Armv7E-M with DSP: 16 products instead of 36 for four outputs of a window of 3x3.

F(2x2, 3x3) of Lavin and Gray, "Fast Algorithms for Convolutional Networks" (2016), section 4.1. Weights are transformed
when the model is compiled, with a G twice as large, so that they are whole numbers. Every sum is then four times the
convolution's, which is exact: the reference's results come out bit by bit.
"""

from __future__ import annotations

import numpy as np

from ....base.target import DUAL_ISSUE, SLOW_FLASH
from ...ir import Array
from ...ops.base import Constant, Form, Kernel, Sums, Traffic
from ...ops.spatial import kept, sums_shape, words
from .factors import factors

TWICE_G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])
PLACES = 16  # of a tile of 4x4, each of which has its own matrix of channels
TILES = 4  # that meet a pair of words of weights in registers
ROOM = 64  # channels of the tiles that are transformed at a time, where flash is slow: weights serve them all


def transformed(weights: Array) -> Array:
    """4 G g G^T of weights K x 3 x 3 x C: K x 4 x 4 x C, of at most 1,152 in absolute value."""
    return np.einsum("ia,kabc,jb->kijc", TWICE_G, weights.astype(np.int64), TWICE_G)


@kept
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
    c, (oh, ow, _) = s.size[2], s.out
    across, tiles = -(-ow // 2), -(-ow // 2) * -(-oh // 2)
    groups = min(-(-tiles // TILES), max(1, min(4, ROOM // c)) if SLOW_FLASH in form.core else 1)
    at_once, padded = TILES * groups, s.padded_rows or s.padded_columns
    inputs, sums, pointers = 2 * PLACES * c * at_once, 4 * PLACES * 2 * at_once, 4 * at_once  # bytes
    shape = sums_shape(s, form) | {
        **factors(s).shape, "across": across, "tiles": tiles, "at_once": at_once, "groups": groups,
        "group": 2 * c, "place": 2 * c * groups, "sums_at": inputs // 4, "pointers_at": (inputs + sums) // 4,
        "patch_at": inputs + sums + pointers, "unroll": 4 if c % 8 == 0 else 2, "dual": DUAL_ISSUE in form.core,
        "bounds": s.finish.endswith("_clamped"),
        "padded": padded, "padded_rows": s.padded_rows, "padded_columns": s.padded_columns,
    }  # fmt: skip
    scalars = ({"x_zero": s.x_zero} if padded else {}) | {"y_zero": s.y_zero, **factors(s).scalars}
    scalars |= {"low": s.low, "high": s.high} if shape["bounds"] else {}
    constant = Constant("w", stream(s).ravel(), "transformed weights, start values and factors by pairs of channels")
    return Kernel(
        "arm_dsp/winograd.c.j2", s.stem, shape, (constant,), scalars,
        scratch=inputs + sums + pointers + (PLACES * c if padded else 0), variant="dsp winograd",
        estimate=_instructions(s, tiles, groups), pace=_pace(form, groups),
        traffic=Traffic(passes=-(-tiles // at_once)),
    )  # fmt: skip


def _instructions(s: Sums, tiles: int, groups: int) -> float:
    """Of a call: the tiles of a last pass are all computed, some of them more than once."""
    c, k, at_once = s.size[2], s.out[2], TILES * groups
    made = -(-tiles // at_once) * at_once
    result = 79 + 4 * s.finish.startswith("signed") + 26 * s.finish.endswith("_clamped")
    products = PLACES * ((7 + (0.375 if c % 8 == 0 else 0.75)) * c + 15 + 8 / groups) / TILES
    return made * (100 + 61 * c + k * (products / 2 + result)) + (made - tiles + _at_borders(s)) * 16 * (10 + 2 * c)


def _at_borders(s: Sums) -> int:
    """Tiles that see padding."""
    counts = []
    for size, out, pad in zip(s.size[:2], s.out[:2], s.pad, strict=True):
        starts = [min(2 * i, out - 2) - pad for i in range(-(-out // 2))]
        counts.append((len(starts), sum(0 <= at <= size - 4 for at in starts)))
    (rows, inner_rows), (columns, inner_columns) = counts
    return rows * columns - inner_rows * inner_columns


def _pace(form: Form, groups: int) -> float:
    """Cycles of an instruction against those of `two_pixels` (`verify --cycles`, layers of many shapes)."""
    return 1 + 0.12 / groups if SLOW_FLASH in form.core else 0.91
