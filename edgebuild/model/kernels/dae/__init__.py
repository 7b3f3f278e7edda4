"""Decoupled access-execute kernels: g channels or columns are gathered into a buffer, then computed on.

After Alvanaki et al., "Decoupled Access-Execute Enabled DVFS for TinyML Deployments on STM32 Microcontrollers", DATE
2024 (arXiv 2407.03711). Each is the ordinary DSP kernel with its two halves pulled apart, so results are the same bit
for bit. `EB_ACCESS()` and `EB_COMPUTE()` around the gathering change the clock where that is wanted (`Form.lfo`).
"""

from __future__ import annotations

from dataclasses import replace

from ...ops.base import Form, Kernel, Sums, Traffic
from ..arm_dsp import CORE
from ..arm_dsp.convolution import TWO_PIXELS
from ..arm_dsp.depthwise import CLEAR, filling, planes
from ..row import Row, of_sums

STEP = 4  # from one granularity to the next: one that holds all there is has no use for a coarser one
KEPT = 4096  # bytes of weights that surely stay in a cache from one pair of columns to the next


def pointwise(s: Sums, form: Form) -> Kernel | None:
    """A 1x1 convolution that gathers the columns of g pixels, then runs through the weights once for all of them."""
    g, pixels, (c, k) = form.granularity, s.out[0] * s.out[1], (s.size[2], s.out[2])
    plain = _ordinary(TWO_PIXELS.kernel(s, form), form)
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
    made = replace(
        plain,
        template="dae/pointwise.c.j2", stem=f"{s.stem}_g{g}", shape=shape,
        scratch=max(min(g, pixels) // 2 * 4 * c, (last_at + c) * (pixels % 2)),
        variant=f"dsp, {g} columns gathered", estimate=plain.estimate + rounds * 12 + pixels / 2 * (calls - 1) * 30,
        traffic=Traffic(rounds, chunk * group, -(-g // 2), gather=gather, rounds=rounds),
    )  # fmt: skip
    return _within(made, form)


def depthwise(s: Sums, form: Form) -> Kernel | None:
    """A depthwise convolution that gathers the planes of g channels, in one way through the pixels for all of them."""
    g, c = form.granularity, s.size[2]
    return gathered(s, form, g) if c >= 2 and g - STEP < c else None


def gathered(s: Sums, form: Form, g: int) -> Kernel | None:
    """The kernel that gathers g planes at once, or fewer in the last round."""
    (h, w, c), plain = s.size, _ordinary(planes(s, form), form)
    if plain is None:
        return None
    wide = next(n for n in (4, 2, 1) if g % n == 0 and c % n == 0)  # channels of a pixel that are read side by side
    rounds = -(-c // g)
    gather, clear = c / wide * filling(h, w, wide), CLEAR * (min(g, c) - 1) * plain.scratch / 2
    shape = {**plain.shape, "granularity": g, "ragged": c % g > 0, "held": min(g, c), "wide": wide, "lfo": form.lfo}
    made = replace(
        plain,
        template="dae/depthwise.c.j2", stem=f"{s.stem}_g{g}", shape=shape, scratch=min(g, c) * plain.scratch,
        variant=f"dsp, {g} planes gathered", estimate=plain.estimate - c * filling(h, w) + gather + rounds * 12 + clear,
        traffic=Traffic(channels_in=g, channels_out=1, gather=gather, rounds=rounds),
    )  # fmt: skip
    return _within(made, form)


def _within(kernel: Kernel, form: Form) -> Kernel | None:
    """The kernel if the form leaves room for its buffer."""
    return kernel if form.scratch_limit is None or kernel.scratch <= form.scratch_limit else None


def _ordinary(kernel: Kernel | None, form: Form) -> Kernel | None:
    """The kernel to be pulled apart; never one that goes row by row."""
    return kernel if not form.rolled else None


ROWS = (
    Row("conv2d", CORE, of_sums(pointwise), gathers=True),
    Row("depthwise_conv2d", CORE, of_sums(depthwise), gathers=True),
)
