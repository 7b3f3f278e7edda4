"""Sums over all channels for Armv7E-M with DSP and a slow flash: four pixels for each pair of channels."""

from __future__ import annotations

import numpy as np

from ....base.target import DUAL_ISSUE
from ...ir import Array
from ...ops.base import PIXELS, Constant, Form, Kernel, Sums, Traffic
from ...ops.sums import kept, shape_of, words
from .convolution import bounds, per_output
from .factors import factors


@kept
def stream(s: Sums) -> Array | None:
    """The words that eb_dot4 reads: for each two channels start values, words of two taps of both, factors.

    None: a sum does not fit the upper part of a shared word, or a channel has no other beside it.
    """
    k = s.out[2]
    taps: Array = s.weights.reshape(k, -1).astype(np.int64)
    if k % 2 or not s.fits or s.finish == "sums" or s.bound.max() >= 2**23:
        return None
    fours = taps.reshape(k // 2, 2, -1, 4)[..., [0, 2, 1, 3]].reshape(k // 2, 2, -1, 2, 2) & 0xFF
    first, second = fours[:, 0], fours[:, 1]  # channels: pair, four, word, half of the word
    packed = first[..., 0] | second[..., 0] << 8 | first[..., 1] << 16 | second[..., 1] << 24
    low = s.start - 128 * taps.sum(axis=1)
    starts = np.stack([256 * s.start + low, low], axis=1).reshape(k // 2, 4)
    return words(np.concatenate([starts, packed.reshape(k // 2, -1), factors(s).words.reshape(k // 2, -1)], axis=1))


def _serves(s: Sums, form: Form) -> bool:
    """Four bytes of a pixel are four taps, and taps of a row are neighbours; the core issues one instruction a time."""
    (oh, ow, _), whole = s.out, s.weights.shape[3] == s.size[2] and s.size[2] % 4 == 0
    pixels = oh * ow if s.pointwise and not form.rolled else ow
    return whole and (s.dilation[1] == 1 or s.window[1] == 1) and pixels >= 4 and DUAL_ISSUE not in form.core


def four_pixels(s: Sums, form: Form) -> Kernel | None:
    """The estimate is of the instructions of two_pixels that would take as long, with waiting for flash."""
    (_, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    pixels = ow if form.rolled else oh * ow
    packed = stream(s) if _serves(s, form) else None
    if packed is None:
        return None
    n = fw * c
    padded = not s.pointwise and (s.padded_rows or s.padded_columns)
    scalars = ({"x_zero": s.x_zero} if padded else {}) | {"y_zero": s.y_zero, **factors(s).scalars, **bounds(s)}
    shape = shape_of(s, form) | {
        "pointwise": s.pointwise, "pixels": pixels, "n": n, "words": fh * n, "blocks": k // 2, **factors(s).shape,
        "padded_rows": s.padded_rows, "padded_columns": s.padded_columns, "inner_last": w - fw - 3 * s.stride[1],
        "rest": bool((pixels if s.pointwise else ow) % 4),
    }  # fmt: skip
    fours = pixels // 4 + pixels % 4 if s.pointwise else -(-ow // 4) * (1 if form.rolled else oh)
    gather = fh * (8 + 1.2 * n) + (fh * fw * 25 / ow if padded else 0)
    cost = 4 * fours * (gather + 8 + k * (0.735 * fh * n + 0.89 * per_output(s)))
    constant = Constant("w", packed.ravel(), "start values, weights and factors by pairs of channels")
    return Kernel(
        "arm_dsp/conv_four.c.j2", s.stem, shape, (constant,), scalars, scratch=4 * fh * n + (c if padded else 0),
        variant="dsp four pixels", estimate=cost, in_place=PIXELS if s.pointwise else "",
        traffic=Traffic(passes=fours),
    )  # fmt: skip
