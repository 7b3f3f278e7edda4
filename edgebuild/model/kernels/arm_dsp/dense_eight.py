"""Sums over all channels of one pixel for Armv7E-M with DSP and a slow flash: eight channels at a time."""

from __future__ import annotations

import numpy as np

from ....base.target import DUAL_ISSUE
from ...ir import Array
from ...ops.base import Constant, Form, Kernel, Sums, Traffic
from ...ops.sums import kept, words
from .convolution import bounds, per_output
from .factors import factors


@kept
def stream(s: Sums) -> Array | None:
    """The words that eb_dot8 reads: for each eight channels start values, words of two taps of two, factors.

    None: the channels are no eights, or a channel breaks the condition of a shared word.
    """
    k = s.out[2]
    taps: Array = s.weights.reshape(k, -1).astype(np.int64)
    if k % 8 or taps.shape[1] % 4 or not s.fits or s.finish == "sums":
        return None
    low, high = taps[0::2], taps[1::2]
    halves = 256 * high + low
    if halves.min() < -(2**15) or halves.max() >= 2**15 or s.bound[1::2].max() >= 2**23:
        return None
    fours = halves.reshape(k // 8, 4, -1, 2, 2)  # block, pair of channels, four taps, half of the word, word
    packed = (fours[..., 0, :] & 0xFFFF) | fours[..., 1, :] << 16
    starts = np.stack([s.start[0::2], 256 * s.start[1::2] + s.start[0::2]], axis=1).reshape(k // 8, 8)
    weights = packed.transpose(0, 2, 3, 1).reshape(k // 8, -1)
    return words(np.concatenate([starts, weights, factors(s).words.reshape(k // 8, -1)], axis=1))


def eight_channels(s: Sums, form: Form) -> Kernel | None:
    """The only pixel, widened to int16. The estimate is of instructions of two_pixels that would take as long."""
    one = s.pointwise and s.size[:2] == (1, 1) and DUAL_ISSUE not in form.core
    packed = stream(s) if one else None
    if packed is None:
        return None
    c, k = s.size[2], s.out[2]
    shape: dict[str, int | str | bool | tuple[int, ...]] = {"C": c, "blocks": k // 8, **factors(s).shape}
    constant = Constant("w", packed.ravel(), "start values, weights and factors by groups of eight channels")
    return Kernel(
        "arm_dsp/dense_eight.c.j2", s.stem, shape, (constant,), {"y_zero": s.y_zero, **factors(s).scalars, **bounds(s)},
        scratch=2 * c,
        variant="dsp eight channels", estimate=45 + 2.6 * c + k * (0.86 * c + per_output(s)), traffic=Traffic(),
    )  # fmt: skip
