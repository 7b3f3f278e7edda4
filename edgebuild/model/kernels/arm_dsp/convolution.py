"""Sums over all channels for Armv7E-M with DSP: two channels in a word, one or two pixels at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....base.target import DUAL_ISSUE, SLOW_FLASH
from ...ir import Array
from ...ops.base import PIXELS, Constant, Form, FourBytes, Kernel, Sums, Traffic
from ...ops.sums import kept, shape_of, words
from .factors import factors


def _whole_words(n: int) -> int:
    """The next multiple of four."""
    return -(-n // 4) * 4


@kept
def paired(s: Sums, rows: int) -> Array | None:
    """The stream that eb_dot reads: for each four channels start values, weights and the words of `factors`.

    The taps of each of `rows` rows of the window are padded to a multiple of four. None: a channel breaks the
    condition of a shared word.
    """
    return paired_with(s, rows, factors(s).words)


def paired_with(s: Sums, rows: int, ends: Array) -> Array | None:
    """The same with other words for the ends of channels."""
    k, blocks = s.out[2], _whole_words(s.out[2]) // 4
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
    stream.append(np.pad(ends, ((0, 4 * blocks - k), (0, 0))).reshape(blocks, -1))
    return words(np.concatenate(stream, axis=1))


def _requantised(s: Sums, stream: Array) -> tuple[tuple[Constant, ...], dict[str, int | float]]:
    """Constants and scalars of a kernel with this stream of weights."""
    packed = Constant("w", stream.ravel(), "start values, weights and factors by groups of four channels")
    if s.finish != "sums":
        return (packed,), {"y_zero": s.y_zero, **factors(s).scalars, **bounds(s)}
    return (packed, *s.rescaling), {"y_zero": s.y_zero, "low": s.low, "high": s.high}


def manner(s: Sums, form: Form) -> str:
    """How the core wants its instructions: part of the names of functions in assembly. Empty: as few as possible."""
    if DUAL_ISSUE in form.core:
        return "dual_" if s.finish != "sums" else ""
    return "single_" if SLOW_FLASH in form.core else ""


def _groups(s: Sums, form: Form, stream: Array) -> dict[str, int | str]:
    k = s.out[2]
    full = k // 4 * 4
    return {
        **factors(s).shape,
        "manner": manner(s, form),
        "blocks": k // 4,
        "tail": k - full,
        "full": full,
        "tail_at": (k // 4) * stream.shape[1],
        "step": stream.shape[1] // 4,
    }


def bounds(s: Sums) -> dict[str, int | float]:
    """Bounds other than those of int8, four times in a word each."""
    if not s.finish.endswith("_clamped"):
        return {}
    low, high = ((bound & 0xFF) * 0x01010101 for bound in (s.low, s.high))
    return {"low4": FourBytes(low - (low >> 31 << 32)), "high4": FourBytes(high - (high >> 31 << 32))}


def per_output(s: Sums) -> float:
    """Instructions from a sum to its result."""
    how, _, clamped = s.finish.partition("_")
    return {"relu": 7.3, "signed": 8.3, "once": 7.3, "sums": 30.0}[how] + (1.2 if clamped else 0)


def one_pixel(s: Sums, form: Form) -> Kernel | None:
    """One pixel at a time, straight from int8: no scratch."""
    (_, width, c), k = s.size, s.out[2]
    pixels = s.size[0] * width
    stream = paired(s, 1) if s.pointwise and c % 4 == 0 else None
    if stream is None:
        return None
    constants, scalars = _requantised(s, stream)
    shape = {"C": c, "K": k, "pixels": pixels, **_groups(s, form, stream)}
    cost = pixels * (30 + k * (1.035 * c + per_output(s) + 1.7))
    return Kernel(
        "arm_dsp/dense.c.j2", s.stem, shape, constants, scalars,
        variant="dsp one pixel", estimate=cost, traffic=Traffic(passes=pixels),
    )  # fmt: skip


def widened_pixel(s: Sums, form: Form) -> Kernel | None:
    """The only pixel, widened to int16 once for all channels."""
    narrow = one_pixel(s, form)
    if narrow is None or narrow.shape["pixels"] != 1:
        return None
    c, k = s.size[2], s.out[2]
    return replace(
        narrow, template="arm_dsp/dense_wide.c.j2", variant="dsp widened pixel", scratch=2 * c,
        estimate=45 + 2.6 * c + k * (0.907 * c + per_output(s) + 1.7),
    )  # fmt: skip


def two_pixels(s: Sums, form: Form) -> Kernel | None:
    """Two pixels at a time, widened to int16."""
    (_, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    n = _whole_words(fw * c)
    if (s.dilation[1] != 1 and fw > 1) or s.weights.shape[3] != c:
        return None
    pointwise = s.pointwise and c % 4 == 0
    stream = paired(s, fh)
    if stream is None:
        return None
    constants, scalars = _requantised(s, stream)
    shape = shape_of(s, form)
    pixels = ow if form.rolled else oh * ow
    outside = s.padded_rows
    edges = s.padded_columns or n > fw * c
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
        "kept": bool(odd) and form.over,
        **_groups(s, form, stream),
    }
    gather = fh * (6 + 1.4 * n if pointwise or not edges else 12 + 2.0 * n)
    cost = pixels * (gather + 15 + k * (0.775 * fh * n + per_output(s) + 0.4))
    if pointwise:  # the last pixel by itself
        cost += odd * k * 0.27 * c
    elif odd:  # the last of each row; it is gathered twice
        cost += (1 if form.rolled else oh) * (gather + k * 0.2 * fh * n)
    return Kernel(
        "arm_dsp/conv.c.j2", s.stem, shape, constants, scalars,
        scratch=4 * fh * n + (2 * n if lined else 0), variant="dsp two pixels", estimate=cost,
        in_place=PIXELS if pointwise and (form.over or not odd) else "", traffic=Traffic(passes=(pixels + odd) // 2),
    )  # fmt: skip


MOST_CHANNELS, MOST_ROWS = 8, 5  # of a pixel and of a window whose copies are written out


def flat_pixels(s: Sums, form: Form) -> Kernel | None:
    """Two pixels at a time whose rows of taps lie without gaps: where a row by itself would be rounded up to four."""
    c, (oh, ow, k), (fh, fw) = s.size[2], s.out, s.window
    n, run = _whole_words(fh * fw * c), fw * c
    gapless = n < fh * _whole_words(run) and c <= MOST_CHANNELS and s.dilation[1] == 1 and s.weights.shape[3] == c
    stream = paired(s, 1) if gapless else None
    if stream is None:
        return None
    constants, scalars = _requantised(s, stream)
    edges, outside = s.padded_columns, s.padded_rows
    scalars = {"x_zero": s.x_zero, **scalars} if edges or outside else scalars
    shape = shape_of(s, form) | {
        "n": n, "run": run, "odd": bool(ow % 2), "edges": edges, "padded_rows": outside, **_groups(s, form, stream),
        "straight": not (form.rings and form.rings[0]) and fh <= MOST_ROWS, "line": s.dilation[0] * s.size[1] * c,
    }  # fmt: skip
    pixels = (ow + ow % 2) * (1 if form.rolled else oh)
    border = (8 * fh * run * (fw - 1) / ow if edges else 0) + (3 * fh if outside else 0)
    cost = pixels * (
        fh * ((2 if shape["straight"] else 12) + 0.8 * run)
        + border
        + 1.2 * n
        + 25
        + k * (0.775 * n + per_output(s) + 0.4)
    )
    return Kernel(
        "arm_dsp/conv_flat.c.j2", s.stem, shape, constants, scalars, scratch=6 * n,
        variant="dsp two flat pixels", estimate=cost, traffic=Traffic(passes=pixels // 2),
    )  # fmt: skip


NARROW = 1.2  # pace on a core that issues two instructions at once (`bench-cycles`): pixels wait to be widened


def narrow_pixels(together: int, s: Sums, form: Form) -> Kernel | None:
    """Two pixels at a time in int8, or one: a half or a quarter of the scratch of two in int16.

    They are widened anew for each four channels, and weights of one pixel serve no other.
    """
    (_, w, c), (oh, ow, k), (fh, fw) = s.size, s.out, s.window
    n = _whole_words(fw * c)
    if (s.dilation[1] != 1 and fw > 1) or s.weights.shape[3] != c or (s.pointwise and c % 4 == 0):
        return None
    stream = paired(s, fh)
    if stream is None:
        return None
    constants, scalars = _requantised(s, stream)
    edges, outside = s.padded_columns or n > fw * c, s.padded_rows
    scalars = {"x_zero": s.x_zero, **scalars} if edges or outside else scalars
    odd = ow % together
    shape = shape_of(s, form) | {
        "pixels": together, "n": n, "row_words": n // 4 * together, "words": fh * n // 4 * together, "odd": bool(odd),
        "edges": edges, "padded_rows": outside, "inner_last": (w * c - n) // c, **_groups(s, form, stream),
    }  # fmt: skip
    pixels = (ow + odd) * (1 if form.rolled else oh)
    rate = 0.9 if together == 2 else 1.035
    cost = pixels * (fh * (14 + 1.3 * n) + 30 / together + k * (rate * fh * n + per_output(s)))
    return Kernel(
        "arm_dsp/conv_narrow.c.j2", s.stem, shape, constants, scalars, scratch=fh * n * together,
        variant=f"dsp {'two narrow pixels' if together == 2 else 'one pixel'}", estimate=cost,
        pace=NARROW if DUAL_ISSUE in form.core else 1.0, traffic=Traffic(passes=pixels // together),
    )  # fmt: skip


MOST_TAPS = 25  # of a window whose rows are listed on the stack


def straight_pixel(s: Sums, form: Form) -> Kernel | None:
    """One pixel at a time where its bytes are: the scratch is a pixel of padding, or none."""
    c, (oh, ow, k), (fh, fw) = s.size[2], s.out, s.window
    if c % 4 or s.pointwise or s.dilation[1] != 1 or s.weights.shape[3] != c or fh * fw > MOST_TAPS:
        return None
    stream = paired(s, 1)
    if stream is None:
        return None
    constants, scalars = _requantised(s, stream)
    padded = s.padded_columns or s.padded_rows
    shape = shape_of(s, form) | {
        "padded_columns": s.padded_columns, "padded_rows": s.padded_rows, **_groups(s, form, stream),
    }  # fmt: skip
    pixels = ow if form.rolled else oh * ow
    cost = (3 * c if padded else 0) + pixels * (40 + 14 * fh + k * (fh * (1.035 * fw * c + 3) + per_output(s) + 1.2))
    return Kernel(
        "arm_dsp/conv_runs.c.j2", s.stem, shape, constants, {"x_zero": s.x_zero, **scalars} if padded else scalars,
        scratch=c if padded else 0, variant="dsp straight pixel", estimate=cost, traffic=Traffic(passes=pixels),
        pace=NARROW if DUAL_ISSUE in form.core else 1.0,
    )  # fmt: skip
