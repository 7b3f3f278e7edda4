"""Kernels for depthwise convolution: one channel at a time, copied into a plane with its padding."""

from __future__ import annotations

import numpy as np

from ....base.target import DUAL_ISSUE, SLOW_FLASH
from ...ir import Array
from ...ops.base import Constant, Form, Kernel, Sums, Traffic
from ...ops.spatial import in_place, kept, sums_shape, words
from .factors import Factors, factors, two_words
from .weight_words import bounds

Pair = tuple[int, int]  # taps in the low and the high half of a word; -1: none


def tap_words(taps: int, first: int) -> list[Pair]:
    """Taps of a row as words when the first one lies at column `first` (0 or 1) of the words."""
    column = [-1] * first + list(range(taps))
    column += [-1] * (len(column) % 2)
    return list(zip(column[::2], column[1::2], strict=True))


def multiplies(taps: int, stride: int) -> tuple[list[Pair], list[list[tuple[str, int, int]]]]:
    """Words of weights of a row, and for each output of a pair its (instruction, word of weights, word of the plane).

    A tap alone in a word is taken from a full word that holds it.
    """
    needed = [tap_words(taps, 0), tap_words(taps, stride % 2)]
    full = list(dict.fromkeys(p for row in needed for p in row if -1 not in p))
    held: list[Pair] = list(full)
    outputs: list[list[tuple[str, int, int]]] = []
    for o, row in enumerate(needed):
        outputs.append([])
        for at, pair in enumerate(row):
            word = at + o * (stride // 2)
            if -1 not in pair:
                outputs[o].append(("__smlad", held.index(pair), word))
                continue
            tap = max(pair)
            if not any(tap in p for p in held):
                held.append((tap, -1))
            place = next(i for i, p in enumerate(held) if tap in p)
            half = "b" if held[place][0] == tap else "t"
            outputs[o].append((f"__smla{half}{'b' if pair[0] == tap else 't'}", place, word))
    return held, outputs


@kept
def stream(s: Sums, held: tuple[Pair, ...]) -> Array:
    """For each channel start value, words of weights (two in the even and odd bytes of one), factors."""
    k, (fh, _) = s.out[2], s.window
    w = np.pad(s.weights[..., 0].astype(np.int64), ((0, 0), (0, 0), (0, 1)))  # tap -1 is 0
    halves = np.stack([w[:, :, [low for low, _ in held]], w[:, :, [high for _, high in held]]], axis=3)
    halves = np.pad(halves, ((0, 0), (0, 0), (0, len(held) % 2), (0, 0))) & 0xFF  # K, FH, word, half
    two = halves.reshape(k, fh, -1, 2, 2)
    packed = two[..., 0, 0] | two[..., 1, 0] << 8 | two[..., 0, 1] << 16 | two[..., 1, 1] << 24
    tail = factors(s).words if s.finish != "sums" else np.stack([s.mantissa, -s.right], axis=1)
    return words(np.concatenate([s.start[:, None], packed.reshape(k, -1), tail], axis=1))


# Paces where flash is slow (`bench-cycles`): of kernels whose code or weights do not stay in the lines that are kept,
# and of those that load with LDRD and LDM.
FETCHING, IN_PAIRS = 1.8, 1.15
CLEAR = 1.3  # instructions for a number of a plane; `./sconsw bench-kernels` shows the error of the estimate


def filling(rows: int, columns: int, wide: int = 1) -> int:
    """Instructions to copy rows of `wide` neighbouring channels into as many planes."""
    return rows * (12 + columns * (3 * wide + 2))


def planes(s: Sums, form: Form) -> Kernel | None:
    """The kernel whose halves `dae` pulls apart: two outputs of a row at a time."""
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
    shape["pairs"] = tuple(tuple((m, shape["names"][i], t) for m, i, t in p) for p in pairs)  # type: ignore[index]
    scalars: dict[str, int | float] = {"x_zero": s.x_zero, "y_zero": s.y_zero, **factors(s).scalars}
    if not s.full_range or s.finish == "sums":
        scalars |= {"low": s.low, "high": s.high}
    how, _, clamped = s.finish.partition("_")
    ends = {"relu": 5, "signed": 6, "once": 5, "sums": 28}[how] + (4 if clamped else 0)
    two = fh * (len(pairs[0]) + len(pairs[1]) + loads[1]) + 1 + 2 * ends
    one = fh * (len(pairs[0]) + loads[0]) + 5 + ends
    cost = CLEAR * rows * columns + c * (
        filling(h, w) + 30 + 3 * fh * len(held) + oh * (8 + ow // 2 * two + ow % 2 * one)
    )
    return Kernel(
        "dae/depthwise.c.j2", s.stem, shape, (Constant("w", packed.ravel(), "by channel"),), scalars,
        scratch=2 * rows * columns, variant="gathered", estimate=cost,
        pace=FETCHING if SLOW_FLASH in form.core else 1.0, in_place=in_place(s, form),
        traffic=Traffic(channels_in=1, channels_out=1),
    )  # fmt: skip


def lines(s: Sums, form: Form) -> Kernel | None:
    """Windows of 3x3 without stride: lines of the plane are rows of the image, or columns if that is less work."""
    plain = s.window == (3, 3) and s.stride == s.dilation == (1, 1) and s.size[2] == s.out[2]
    if form.rolled or not plain or not s.fits or s.finish == "sums" or min(s.out[:2]) < 2:
        return None
    return min((_lines(s, form, upright) for upright in (False, True)), key=lambda k: k.estimate)


@kept
def three_rows(s: Sums, upright: bool) -> tuple[Array, Factors]:
    """For each channel, without gaps, nine weights, a bias of two bytes and a factor of four; these factors.

    `upright`: weights by columns.

    The start value is the bias less the input's zero point times the weights. Where a bias needs more, or factors are
    two words: the start value, three words of three weights and a byte, of which the first is 32 - right, a factor.
    """
    weights = s.weights.swapaxes(1, 2) if upright else s.weights
    w, found = weights[..., 0].astype(np.int64), factors(s)
    bias = s.start + s.x_zero * w.sum(axis=(1, 2))
    if found.unit and bias.min() >= -(2**15) and bias.max() < 2**15:
        parts = [w.reshape(-1, 9).astype("<i1"), bias[:, None].astype("<i2"), words(found.words).astype("<i4")]
        return np.concatenate([part.view(np.int8) for part in parts], axis=1), found
    found, w = two_words(s), np.pad(w, ((0, 0), (0, 0), (0, 1)))
    w[:, 0, 3] = 32 - s.right
    rows = ((w & 0xFF) << np.array([0, 8, 16, 24])).sum(axis=2)
    return words(np.concatenate([s.start[:, None], rows, found.words[:, :1]], axis=1)), found


ZEROS = "(int32_t)(((uint32_t)-x_zero & 0xFFFFU) * 0x10001U)"  # of which weights of three_rows take the start value


def _lines(s: Sums, form: Form, upright: bool) -> Kernel:
    """`upright`: lines are columns. Letters end in x and y for the input and the output."""
    (h, w, c), (oh, ow, _) = s.size, s.out
    image = ((h, w * c, oh, ow * c, s.pad[0]), (w, c, ow, c, s.pad[1]))  # count and step in x and y, padding
    (lines_x, line_x, made, line_y, before), (run_x, step, run, step_y, left) = image[::-1] if upright else image
    columns = max(left + run_x, run // 2 * 2 + 2, run + 3)
    columns += columns % 2
    rows = max(before + lines_x, made + 2)
    packed, ends = three_rows(s, upright)
    shape = {
        "C": c, "upright": upright, "stride": columns, "plane": rows * columns, "first": before * columns + left,
        "step": step, "line_x": line_x, "lines_x": lines_x, "eights": run_x // 8, "rest": run_x % 8, "step_y": step_y,
        "pairs": run // 2 * 4, "lines": made, "next_y": line_y - run // 2 * 2 * step_y, "odd": bool(run % 2),
        "record": packed.shape[1], **ends.shape, "zeros": ZEROS, "bounds": s.finish.endswith("_clamped"),
    }  # fmt: skip
    scalars: dict[str, int | float] = {"x_zero": s.x_zero, "y_zero": s.y_zero, **ends.scalars}
    scalars |= {"low": s.low, "high": s.high} if shape["bounds"] else {}
    end = {"relu": 0, "signed": 1, "once": 0}[s.finish.partition("_")[0]] + (5.5 if shape["bounds"] else 0)
    work = made * (11 + run // 2 * (31 + 2 * end) + run % 2 * (20 + end))
    return Kernel(
        "arm_dsp/depthwise_lines.c.j2", s.stem, shape, (Constant("w", packed.ravel(), "by channel"),), scalars,
        scratch=2 * rows * columns, variant="dsp lines", in_place=in_place(s, form),
        estimate=CLEAR * rows * columns + c * (54 + lines_x * (8 + 2.5 * run_x) + work),
        traffic=Traffic(channels_in=1, channels_out=1), pace=IN_PAIRS if SLOW_FLASH in form.core else 1.0,
    )  # fmt: skip


WAITING = 1.12  # pace of `taps` on a core that issues one instruction at a time (`bench-cycles`): each tap is a load
TAPS = (9, 25)  # windows for which there is an unrolled kernel


@kept
def fours(s: Sums) -> Array:
    """For each four channels start values, a word of two taps' weights for each, the last odd tap, factors."""
    blocks, taps = s.out[2] // 4, s.window[0] * s.window[1]
    w = s.weights.reshape(blocks, 4, taps).astype(np.int64) & 0xFFFF
    pairs = w[:, :, 0 : taps - 1 : 2] | w[:, :, 1::2] << 16
    parts = [s.start.reshape(blocks, 4), pairs.transpose(0, 2, 1).reshape(blocks, -1)]
    if taps % 2:
        parts.append(w[:, :2, -1] | w[:, 2:, -1] << 16)
    parts.append(factors(s).words.reshape(blocks, -1))
    return words(np.concatenate(parts, axis=1))


def taps(s: Sums, form: Form) -> Kernel | None:
    """Four channels of a pixel at a time, straight from int8: nothing is copied, so rows of a ring cost no more."""
    c, (oh, ow, k), taps = s.size[2], s.out, s.window[0] * s.window[1]
    if c != k or c % 4 or taps not in TAPS or not s.fits:
        return None
    packed = fours(s)
    padded = s.padded_rows or s.padded_columns
    shape = sums_shape(s, form) | {**factors(s).shape, "padded": padded, "step": packed.shape[1]}
    scalars: dict[str, int | float] = {"x_zero": s.x_zero} if padded else {}
    scalars |= {"y_zero": s.y_zero, **factors(s).scalars, **bounds(s)}
    constants: tuple[Constant, ...] = (Constant("w", packed.ravel(), "by groups of four channels"),)
    if s.finish == "sums":
        scalars |= {"low": s.low, "high": s.high}
        constants = (*constants, *s.rescaling)
    how, _, clamped = s.finish.partition("_")
    ends = {"relu": 30, "signed": 34, "once": 30, "sums": 110}[how] + (4 if clamped else 0)
    made = ow if form.rolled else oh * ow
    cost = made * (50 + c // 4 * (14 * (taps // 2) + 9 * (taps % 2) + ends)) + c * (3 if padded else 0)
    return Kernel(
        "arm_dsp/depthwise_taps.c.j2", s.stem, shape, constants, scalars,
        scratch=c if padded else 0, variant="dsp taps", estimate=cost, traffic=Traffic(passes=made),
        pace=1.0 if DUAL_ISSUE in form.core else FETCHING if SLOW_FLASH in form.core else WAITING,
    )  # fmt: skip
