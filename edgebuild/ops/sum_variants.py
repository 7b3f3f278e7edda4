"""The kernels there are for sums of products, best first chosen by estimate: conditions, packing, cost.

Every variant says for which core it is, and answers None where one of its conditions does not hold for the layer's
weights; the portable kernel, which has none, is each op's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from ..ir import Array
from .base import Constant, Form, Kernel, Traffic
from .sums import Sums, shape_of, words

Maker = Callable[[Sums, Form, str], Kernel | None]


def best(s: Sums, form: Form, stem: str, makers: Iterable[tuple[frozenset[str], Maker]]) -> Kernel | None:
    """The cheapest of the variants that this core has and whose conditions hold, within the form's scratch.

    A row of an op that works pixel by pixel is an image of its own: the same C function serves for both forms.
    """
    if form.rolled and s.pointwise:
        row = replace(s, size=(1, *s.size[1:]), out=(1, *s.out[1:]))
        found = best(row, replace(form, rings=None, rows=0), stem, makers)
        return replace(found, placed=True) if found is not None else None
    ranked = by_cost([k for needs, make in makers if needs <= form.features and (k := make(s, form, stem))], form)
    return replace(ranked[0], others=tuple(ranked[1:])) if ranked else None


def by_cost(made: list[Kernel], form: Form) -> list[Kernel]:
    """Those within the form's scratch, the cheapest first; if there are none all, the least scratch first."""
    within = [k for k in made if form.scratch_limit is None or k.scratch <= form.scratch_limit]
    return sorted(within or made, key=lambda k: k.estimate if within else k.scratch)


def _up(n: int, to: int) -> int:
    return -(-n // to) * to


# Armv7E-M with DSP: two channels in a word ------------------------------------------------------


def finish(s: Sums) -> str:
    """How the assembly ends: requantised with halves up (relu) or away from zero (signed), or as plain sums."""
    if not (s.shifts_right and s.full_range):
        return "sums"
    return "relu" if s.rectified else "signed"


def rescaling(s: Sums) -> Array:
    """Two constants a channel, K x 2: 2 M - 2^32 and -2^(32 - right)."""
    return np.stack([2 * s.mantissa - 2**32, -(2 ** (32 - s.right))], axis=1)


def paired(s: Sums, rows: int) -> Array | None:
    """The stream that eb_dot reads: for each four channels start values, weights and (if they serve) rescaling.

    The taps of each of `rows` rows of the window are padded to a multiple of four. None: a channel breaks the
    condition of a shared word.
    """
    k, blocks = s.out[2], _up(s.out[2], 4) // 4
    taps: Array = s.weights.reshape(k, rows, -1).astype(np.int64)
    taps = np.pad(taps, ((0, 4 * blocks - k), (0, 0), (0, -taps.shape[2] % 4))).reshape(blocks, 2, 2, -1)
    start = np.pad(s.start, (0, 4 * blocks - k)).reshape(blocks, 2, 2)
    low, high = taps[:, :, 0], taps[:, :, 1]
    halves = 256 * high + low
    bound = np.pad(s.bound, (0, 4 * blocks - k)).reshape(blocks, 2, 2)[:, :, 1]
    if not s.fits or halves.min() < -(2**15) or halves.max() >= 2**15 or bound.max() >= 2**23:
        return None
    fours = halves.reshape(blocks, 2, -1, 2, 2)  # channel pair, four, half of the word, word
    pairs = (fours[:, :, :, 0] & 0xFFFF) | fours[:, :, :, 1] << 16
    stream = [np.stack([start[:, :, 0], 256 * start[:, :, 1] + start[:, :, 0]], axis=2).reshape(blocks, 4)]
    stream.append(pairs.transpose(0, 2, 3, 1).reshape(blocks, -1))
    if finish(s) != "sums":
        stream.append(np.pad(rescaling(s), ((0, 4 * blocks - k), (0, 0))).reshape(blocks, 8))
    return words(np.concatenate(stream, axis=1))


def _requantised(s: Sums, stream: Array) -> tuple[tuple[Constant, ...], dict[str, int | float]]:
    """Constants and scalars of a kernel with this stream of weights."""
    packed = Constant("w", stream.ravel(), "start values, weights and rescaling by groups of four channels")
    if finish(s) != "sums":
        return (packed,), {"y_zero": s.y_zero}
    return (packed, *plain_rescaling(s)), {"y_zero": s.y_zero, "low": s.low, "high": s.high}


def plain_rescaling(s: Sums) -> tuple[Constant, Constant]:
    multiplier = Constant("multiplier", s.mantissa.astype(np.int32), "Q0.31")
    return multiplier, Constant("shift", (-s.right).astype(np.int8), "left if positive")


def _groups(s: Sums, stream: Array) -> dict[str, int | str]:
    k = s.out[2]
    full = k // 4 * 4
    return {
        "finish": finish(s),
        "blocks": k // 4,
        "tail": k - full,
        "full": full,
        "tail_at": (k // 4) * stream.shape[1],
        "step": stream.shape[1] // 4,
    }


_PER_OUTPUT = {"relu": 7.1, "signed": 8.1, "sums": 30.0}


def dense_dsp(s: Sums, form: Form, stem: str) -> Kernel | None:
    """One pixel at a time, straight from int8: no scratch."""
    (_, width, c), k = s.size, s.out[2]
    pixels = s.size[0] * width
    stream = paired(s, 1) if s.pointwise and c % 4 == 0 else None
    if stream is None:
        return None
    constants, scalars = _requantised(s, stream)
    shape = {"C": c, "K": k, "pixels": pixels, **_groups(s, stream)}
    cost = pixels * (30 + k * (1.07 * c + _PER_OUTPUT[finish(s)] + 0.5))
    return Kernel(
        "dense_dsp.c.j2", stem, shape, constants, scalars,
        variant="dsp one pixel", estimate=cost, traffic=Traffic(passes=pixels),
    )  # fmt: skip


def conv_dsp(s: Sums, form: Form, stem: str) -> Kernel | None:
    """Two pixels at a time, widened to int16."""
    (_, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    n = _up(fw * c, 4)
    if (s.dilation[1] != 1 and fw > 1) or s.weights.shape[3] != c:
        return None
    pointwise = s.pointwise and c % 4 == 0
    stream = paired(s, fh)
    if stream is None:
        return None
    constants, scalars = _requantised(s, stream)
    shape = shape_of(s, form)
    pixels = ow if form.rolled else oh * ow
    outside = padded_rows(s)
    edges = padded_columns(s) or n > fw * c
    lined = edges and c % 4 > 0
    odd = (pixels if pointwise else ow) % 2
    if pointwise and pixels == 1:
        return None
    if not pointwise:
        scalars = {"x_zero": s.x_zero, **scalars} if outside or edges else scalars
        shape |= {"n": n, "lined": lined, "edges": edges, "padded_rows": outside}
        shape |= {"padded": outside or (edges and not lined), "inner_last": (w * c - n) // c - s.stride[1]}
    shape |= {
        "pointwise": pointwise,
        "pixels": pixels,
        "words": 2 * fh * n // 2,
        "odd": bool(odd),
        **_groups(s, stream),
    }
    gather = fh * (6 + 1.4 * n if pointwise or not edges else 12 + 2.0 * n)
    cost = (pixels + odd) * (gather + 15 + k * (0.8 * fh * n + _PER_OUTPUT[finish(s)]))
    if odd and pointwise:  # the last pixel by itself
        cost -= 2 * gather + k * (0.53 * c + _PER_OUTPUT[finish(s)])
    return Kernel(
        "conv_dsp.c.j2", stem, shape, constants, scalars,
        scratch=4 * fh * n + (n if lined else 0), variant="dsp two pixels", estimate=cost,
        in_place=pointwise and k <= c, traffic=Traffic(passes=(pixels + odd) // 2),
    )  # fmt: skip


def conv_narrow_dsp(together: int, s: Sums, form: Form, stem: str) -> Kernel | None:
    """Two pixels at a time in int8, or one: a half or a quarter of the scratch of two in int16.

    They are widened anew for each four channels, and weights of one pixel serve no other.
    """
    (_, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    n = _up(fw * c, 4)
    if (s.dilation[1] != 1 and fw > 1) or s.weights.shape[3] != c or (s.pointwise and c % 4 == 0):
        return None
    stream = paired(s, fh)
    if stream is None:
        return None
    constants, scalars = _requantised(s, stream)
    edges, outside = padded_columns(s) or n > fw * c, padded_rows(s)
    scalars = {"x_zero": s.x_zero, **scalars} if edges or outside else scalars
    odd = ow % together
    shape = shape_of(s, form) | {
        "pixels": together, "n": n, "row_words": n // 4 * together, "words": fh * n // 4 * together, "odd": bool(odd),
        "edges": edges, "padded_rows": outside, "inner_last": (w * c - n) // c, **_groups(s, stream),
    }  # fmt: skip
    pixels = (ow + odd) * (1 if form.rolled else oh)
    rate = 0.92 if together == 2 else 1.07
    cost = pixels * (fh * (14 + 1.3 * n) + 30 / together + k * (rate * fh * n + _PER_OUTPUT[finish(s)]))
    return Kernel(
        "conv_narrow.c.j2", stem, shape, constants, scalars, scratch=fh * n * together,
        variant=f"dsp {'two narrow pixels' if together == 2 else 'one pixel'}", estimate=cost,
        traffic=Traffic(passes=pixels // together),
    )  # fmt: skip


def padded_rows(s: Sums) -> bool:
    """Some window lies over rows of padding."""
    return s.pad[0] > 0 or (s.out[0] - 1) * s.stride[0] - s.pad[0] + (s.window[0] - 1) * s.dilation[0] >= s.size[0]


def padded_columns(s: Sums) -> bool:
    reach = (s.window[1] - 1) * s.dilation[1]
    return s.pad[1] > 0 or (s.out[1] - 1) * s.stride[1] - s.pad[1] + reach >= s.size[1]


DSP, MVE = frozenset({"dsp"}), frozenset({"mve"})
CONVOLUTIONS: tuple[tuple[frozenset[str], Maker], ...] = (
    (DSP, dense_dsp),
    (DSP, conv_dsp),
    (DSP, partial(conv_narrow_dsp, 2)),
    (DSP, partial(conv_narrow_dsp, 1)),
)
