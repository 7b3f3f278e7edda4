"""Decoupled access-execute kernels: g channels or columns are gathered into a buffer, then computed on.

After Alvanaki et al., "Decoupled Access-Execute Enabled DVFS for TinyML Deployments on STM32 Microcontrollers", DATE
2024 (arXiv 2407.03711). Each is the ordinary DSP kernel, split into its two phases, so results are equal bit
for bit. `EB_ACCESS()` and `EB_COMPUTE()` around the gathering change the clock if `Form.lfo` asks for it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....base.target import SLOW_FLASH
from ...ir import Array
from ...ops.base import Constant, Form, Kernel, Sums, Traffic
from ...ops.spatial import computed_once, in_place, sums_shape, words
from ..arm_dsp import CORE
from ..arm_dsp.convolution import TWO_PIXELS
from ..arm_dsp.plane_words import multiplies
from ..arm_dsp.weight_words import factors
from ..row import Row, of_sums

STEP = 4  # from one granularity to the next; none is coarser than the first that holds all
KEPT = 4096  # bytes of weights that surely stay cached from one pair of columns to the next


def pointwise(s: Sums, form: Form) -> Kernel | None:
    """A 1x1 convolution that gathers the columns of g pixels, then reads the weights once for all of them."""
    g, pixels, (c, k) = form.granularity, s.out[0] * s.out[1], (s.size[2], s.out[2])
    plain = TWO_PIXELS.kernel(s, form) if not form.rolled else None
    if plain is None or not plain.shape["pointwise"] or pixels < 2 or g - STEP >= pixels:
        return None
    group = 16 * int(str(plain.shape["step"]))  # bytes of weights for four channels
    chunk = max(1, KEPT // group)
    rounds, last_at = -(-pixels // g), pixels % g // 2 * 4 * c
    calls = -(-k // (4 if plain.shape["finish"] == "sums" else 4 * chunk))
    gather = pixels * (6 + 1.4 * c) + rounds * 12
    shape = {
        **plain.shape,
        "granularity": g, "ragged": pixels % g > 0, "lfo": form.lfo, "last_at": last_at,
        "groups": chunk, "chunk": 4 * chunk, "pieces_ragged": k // 4 % chunk > 0,
    }  # fmt: skip
    kernel = replace(
        plain,
        template="dae/decoupled.c:pointwise", stem=f"{s.stem}_g{g}", shape=shape,
        scratch=max(min(g, pixels) // 2 * 4 * c, (last_at + c) * (pixels % 2)),
        variant=f"dsp, {g} columns gathered", estimate=plain.estimate + rounds * 12 + pixels / 2 * (calls - 1) * 30,
        traffic=Traffic(rounds, chunk * group, -(-g // 2), gather=gather, rounds=rounds),
    )  # fmt: skip
    return _within(kernel, form)


@computed_once
def stream(s: Sums, pairs: tuple[tuple[int, int], ...]) -> Array:
    """Per channel: start value, words of weights (two pairs in the even and odd bytes of a word), factors."""
    k, (fh, _) = s.out[2], s.window
    w = np.pad(s.weights[..., 0].astype(np.int64), ((0, 0), (0, 0), (0, 1)))  # tap -1 is 0
    halves = np.stack([w[:, :, [low for low, _ in pairs]], w[:, :, [high for _, high in pairs]]], axis=3)
    halves = np.pad(halves, ((0, 0), (0, 0), (0, len(pairs) % 2), (0, 0))) & 0xFF  # K, FH, word, half
    two = halves.reshape(k, fh, -1, 2, 2)
    packed = two[..., 0, 0] | two[..., 1, 0] << 8 | two[..., 0, 1] << 16 | two[..., 1, 1] << 24
    tail = factors(s).words if s.finish != "sums" else np.stack([s.mantissa, -s.right], axis=1)
    return words(np.concatenate([s.start[:, None], packed.reshape(k, -1), tail], axis=1))


CLEAR = 1.3  # instructions to clear an element of a plane; `./sconsw bench-kernels` shows the error of the estimate
FETCHING = 1.8  # pace with slow flash (`bench-cycles`): code and weights do not stay in its cached lines


def filling(rows: int, columns: int, wide: int = 1) -> int:
    """Instructions to copy rows of `wide` neighbouring channels into as many planes."""
    return rows * (12 + columns * (3 * wide + 2))


def planes(s: Sums, form: Form) -> Kernel | None:
    """The kernel which `dae` splits into two phases: two outputs of a row at a time."""
    (h, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    held, pairs = multiplies(fw, s.stride[1])
    if c != k or s.dilation[1] != 1 or fh * len(held) > 24 or not s.fits:
        return None
    packed = stream(s, tuple(held))
    loads = [1 + max(word for _, _, word in outputs) for outputs in (pairs[0], pairs[0] + pairs[1])]
    columns = max(
        s.pad[1] + w, ow // 2 * 2 * s.stride[1] - 2 * s.stride[1] + 2 * loads[1], (ow - 1) * s.stride[1] + 2 * loads[0]
    )
    columns += columns % 2
    reach = (fh - 1) * s.dilation[0] + 1
    rows = max(s.pad[0] + h, (oh - 1) * s.stride[0] + reach)
    shape = sums_shape(s, form) | {
        **factors(s).shape, "stride": columns, "plane": rows * columns, "plane_rows": rows,
        "pairs": tuple(tuple(p) for p in pairs), "loads": tuple(loads), "names": tuple("abcdefghijklmnop"[: len(held)]),
        "tap_rows": tuple(fy * s.dilation[0] * columns // 2 for fy in range(fh)),
        "row_words": (len(held) + 1) // 2, "step": packed.shape[1],
    }  # fmt: skip
    printed = pairs[0] + (pairs[1] if ow > 1 else [])
    shape["used"] = tuple(sorted({shape["names"][i] for _, i, _ in printed}))  # type: ignore[index]
    shape["pairs"] = tuple(tuple((f"__{m}", shape["names"][i], t) for m, i, t in p) for p in pairs)  # type: ignore[index]
    bounds = s.bounds(not s.full_range or s.finish == "sums")
    scalars = {"x_zero": s.x_zero, "y_zero": s.y_zero, **factors(s).scalars, **bounds}
    how, _, clamped = s.finish.partition("_")
    ends = {"relu": 5, "signed": 6, "once": 5, "sums": 28}[how] + (4 if clamped else 0)
    two = fh * (len(pairs[0]) + len(pairs[1]) + loads[1]) + 1 + 2 * ends
    one = fh * (len(pairs[0]) + loads[0]) + 5 + ends
    cost = CLEAR * rows * columns + c * (
        filling(h, w) + 30 + 3 * fh * len(held) + oh * (8 + ow // 2 * two + ow % 2 * one)
    )
    return Kernel(
        "dae/decoupled.c:depthwise", s.stem, shape, (Constant("w", packed.ravel(), "by channel"),), scalars,
        scratch=2 * rows * columns, variant="gathered", estimate=cost,
        pace=FETCHING if SLOW_FLASH in form.core else 1.0, in_place=in_place(s, form),
        traffic=Traffic(channels_in=1, channels_out=1),
    )  # fmt: skip


def depthwise(s: Sums, form: Form) -> Kernel | None:
    """A depthwise convolution that gathers the planes of g channels, in one pass through the pixels for all of them."""
    g, c = form.granularity, s.size[2]
    return gathered(s, form, g) if c >= 2 and g - STEP < c else None


def gathered(s: Sums, form: Form, g: int) -> Kernel | None:
    """The kernel that gathers g planes at once, or fewer in the last round."""
    (h, w, c), plain = s.size, planes(s, form) if not form.rolled else None
    if plain is None:
        return None
    wide = next(n for n in (4, 2, 1) if g % n == 0 and c % n == 0)  # channels of a pixel that are read side by side
    rounds = -(-c // g)
    gather, clear = c / wide * filling(h, w, wide), CLEAR * (min(g, c) - 1) * plain.scratch / 2
    shape = {**plain.shape, "granularity": g, "ragged": c % g > 0, "held": min(g, c), "wide": wide, "lfo": form.lfo}
    kernel = replace(
        plain,
        template="dae/decoupled.c:depthwise", stem=f"{s.stem}_g{g}", shape=shape, scratch=min(g, c) * plain.scratch,
        variant=f"dsp, {g} planes gathered", estimate=plain.estimate - c * filling(h, w) + gather + rounds * 12 + clear,
        traffic=Traffic(channels_in=g, channels_out=1, gather=gather, rounds=rounds),
    )  # fmt: skip
    return _within(kernel, form)


def _within(kernel: Kernel, form: Form) -> Kernel | None:
    """The kernel, or None if its buffer exceeds the form's scratch limit."""
    return kernel if form.scratch_limit is None or kernel.scratch <= form.scratch_limit else None


ROWS = (
    Row("conv2d", CORE, of_sums(pointwise), gathers=True),
    Row("depthwise_conv2d", CORE, of_sums(depthwise), gathers=True),
)
