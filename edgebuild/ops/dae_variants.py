"""Decoupled access-execute kernels: g channels or columns are gathered into a buffer, then computed on.

After Alvanaki et al., "Decoupled Access-Execute Enabled DVFS for TinyML Deployments on STM32 Microcontrollers", DATE
2024 (arXiv 2407.03711). Each is the ordinary DSP kernel with its two halves pulled apart, so results are the same bit
for bit. `EB_ACCESS()` and `EB_COMPUTE()` around the gathering change the clock where that is wanted (`Form.lfo`).
"""

from __future__ import annotations

from dataclasses import replace

from .base import Form, Kernel, Traffic
from .depthwise_variants import CLEAR, depthwise_dsp, filling
from .sum_variants import DSP, conv_dsp
from .sums import Sums

STEP = 4  # from one granularity to the next: one that holds all there is has no use for a coarser one
KEPT = 4096  # bytes of weights that surely stay in a cache from one pair of columns to the next


def pointwise(s: Sums, form: Form, stem: str) -> Kernel | None:
    """A 1x1 convolution that gathers the columns of g pixels, then runs through the weights once for all of them."""
    g, pixels, (c, k) = form.granularity, s.out[0] * s.out[1], (s.size[2], s.out[2])
    plain = _ordinary(conv_dsp(s, form, stem), form)
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
        template="dae_pointwise.c.j2", stem=f"{stem}_g{g}", shape=shape,
        scratch=max(min(g, pixels) // 2 * 4 * c, (last_at + c) * (pixels % 2)),
        variant=f"dsp, {g} columns gathered", estimate=plain.estimate + rounds * 12 + pixels / 2 * (calls - 1) * 30,
        traffic=Traffic(rounds, chunk * group, -(-g // 2), gather=gather, rounds=rounds),
    )  # fmt: skip
    return _within(made, form)


def depthwise(s: Sums, form: Form, stem: str) -> Kernel | None:
    """A depthwise convolution that gathers the planes of g channels, in one way through the pixels for all of them."""
    g, (h, w, c) = form.granularity, s.size
    plain = _ordinary(depthwise_dsp(s, form, stem), form)
    if plain is None or c < 2 or g - STEP >= c:
        return None
    wide = next(n for n in (4, 2, 1) if g % n == 0 and c % n == 0)  # channels of a pixel that are read side by side
    rounds = -(-c // g)
    gather, clear = c / wide * filling(h, w, wide), CLEAR * (min(g, c) - 1) * plain.scratch / 2
    shape = {**plain.shape, "granularity": g, "ragged": c % g > 0, "held": min(g, c), "wide": wide, "lfo": form.lfo}
    made = replace(
        plain,
        template="dae_depthwise.c.j2", stem=f"{stem}_g{g}", shape=shape, scratch=min(g, c) * plain.scratch,
        variant=f"dsp, {g} planes gathered", estimate=plain.estimate - c * filling(h, w) + gather + rounds * 12 + clear,
        traffic=Traffic(channels_in=g, channels_out=1, gather=gather, rounds=rounds),
    )  # fmt: skip
    return _within(made, form)


def _within(kernel: Kernel, form: Form) -> Kernel | None:
    """The kernel if the form leaves room for its buffer."""
    return kernel if form.scratch_limit is None or kernel.scratch <= form.scratch_limit else None


def _ordinary(kernel: Kernel | None, form: Form) -> Kernel | None:
    """The kernel to be pulled apart, if that is wanted and the processor has it; never one that goes row by row."""
    wanted = form.granularity > 0 and not form.rolled and form.features >= DSP
    return kernel if wanted else None
