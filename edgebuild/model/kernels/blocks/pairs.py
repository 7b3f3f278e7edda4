"""Layers by two products in one multiplication, for cores whose multiplier has 32 bits: see `two_in_one.py`.

Convolutions take two pixels at a time, dense layers two channels.

An operand holds x0 + 65536 x1, so a sum of its products with weights holds the sums of both pixels. Each stays within
16 bits while the weights' absolute values add up to 255 at most, which edgebuild proves: it orders the taps into groups
that keep to that in every channel. A group starts at 0x8000 so that S0 borrows nothing from the upper half.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...ir import Array
from ...ops.base import PIXELS, Constant, Form, Kernel, Sums
from ...ops.spatial import sums_shape, words
from .sum_kernels import roundings
from .two_in_one import ANY, MICROS, TwoInOne, ends_of, micro, name

Groups = tuple[tuple[int, ...], ...]  # the taps of each group
SIZES = (1, 2, 3, 4, 5, 6)  # taps of a group
MAX_WEIGHT = 255  # sum of the absolute weights of a group: 128 x 255 < 2^15
OPEN_GROUPS = 256  # open groups that the search looks at
SMALL = 2**18  # weights of a layer for which the search tries groups of other sizes, too
START = 0x8000  # start value of a group's sum


CALL = 30.0  # instructions of a call of a micro-kernel; this and those below: `./sconsw bench-kernels` shows the error


@dataclass(frozen=True)
class PairsCore:
    """A micro-kernel, and instructions of compiled C that prepares its operands.

    `pack`: to pack one operand of one pixel; `place`: to locate one pixel's tap. A row by itself saves `in_row` of
    `place`, because its line is located once for all pixels.
    """

    stem: str
    pack: float
    place: float
    in_row: float = 0.0

    @property
    def micro(self) -> TwoInOne:
        return MICROS[self.stem]


RV32 = (
    PairsCore("eb_pairs_rv32_6x2", 3.4, 11),
    PairsCore("eb_pairs_rv32_6x1", 3.5, 5),
    PairsCore("eb_pairs_rv32_4x3", 3.6, 11),
    PairsCore("eb_pairs_rv32_2x6", 4, 12),
)
M3 = (PairsCore("eb_pairs_armv7m_4x1", 3.2, 10), PairsCore("eb_pairs_armv7m_2x2", 4, 12))
M0 = (PairsCore("eb_pairs_armv6m_4x1", 6, 16, in_row=7), PairsCore("eb_pairs_armv6m_2x2", 7, 18, in_row=7))


def groups(weights: Array, allowed: tuple[int, ...] = SIZES, quickly: bool = False) -> Groups:
    """Taps of weights (K x taps) in groups of allowed sizes, at most MAX_WEIGHT in every channel, largest first."""
    amounts = np.abs(weights.astype(np.int16)).astype(np.uint8)
    return _groups(amounts.tobytes(), amounts.shape, allowed, quickly)


@lru_cache(maxsize=512)
def _groups(data: bytes, shape: tuple[int, int], allowed: tuple[int, ...], quickly: bool) -> Groups:
    amounts = np.ascontiguousarray(np.frombuffer(data, np.uint8).reshape(shape).T)
    keys = [amounts.max(axis=1).astype(float)]
    keys += [] if quickly else [amounts.sum(axis=1, dtype=float)]
    if amounts.size < SMALL // 32 and not quickly:  # randomly perturbed orders sometimes give fewer groups
        shaken = np.random.default_rng(0).uniform(0.75, 1.25, (8, len(amounts)))
        keys += [keys[n % 2] * by for n, by in enumerate(shaken)]
    orders = [np.argsort(-key, kind="stable") for key in keys]
    limits = [n for n in allowed if n == max(allowed) or (n > 4 and amounts.size < SMALL and not quickly)]
    tries = [_split(_first_fit(amounts, order, most), allowed) for order in orders for most in limits]
    fewest = min(tries, key=lambda parts: len(parts))
    return tuple(sorted(fewest, key=lambda g: (-len(g), g)))


def _split(bins: list[list[int]], allowed: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Groups of allowed sizes; a part of a group weighs less than it."""
    parts: list[tuple[int, ...]] = []
    for group in bins:
        while group:
            size = max(n for n in allowed if n <= len(group))
            parts.append(tuple(group[:size]))
            group = group[size:]
    return parts


def _first_fit(amounts: Array, order: Array, most: int) -> list[list[int]]:
    """First fit of vectors into bins, the heaviest tap first.

    A vector is one integer, 16 bits a channel. Bit 8 of a channel's room survives a subtraction if the tap fits.
    """
    weights = [int.from_bytes(row.tobytes(), "little") for row in amounts.astype("<u2")]
    full = int.from_bytes(np.full(amounts.shape[1], 0x100, "<u2").tobytes(), "little")
    bins: list[list[int]] = []
    held: list[tuple[int, list[int]]] = []  # room and taps of each open group
    for tap in order.tolist():
        for row, (room, taps) in enumerate(held):  # noqa: B007
            left = room - weights[tap]
            if left & full == full:
                break
        else:
            row, taps = len(held), []
            left = full + full // 0x100 * MAX_WEIGHT - weights[tap]
            bins.append(taps)
            held.append((left, taps))
        taps.append(tap)
        held[row] = left, taps
        if len(taps) == most or len(held) > OPEN_GROUPS:
            del held[row if len(taps) == most else 0]  # full; or the oldest is closed
    return bins


def sizes(taps: Groups) -> tuple[tuple[int, int], ...]:
    """Runs of groups of equal size, as (size, count); a count fits a byte."""
    runs: list[tuple[int, int]] = []
    for group in taps:
        size, count = runs[-1] if runs else (0, 0)
        if size == len(group) and count < 255:
            runs[-1] = size, count + 1
        else:
            runs.append((len(group), 1))
    return tuple(runs)


def loops(taps: Groups, m: TwoInOne) -> Array:
    """Loops over the groups: number of the assembly's loop, iterations, taps of an iteration; zeros end the list."""
    rows = []
    for size, count in sizes(taps):
        turns = count // 2 if (size, size) in m.loops else 0
        rows += [(m.loops.index((size, size)) + 1, turns, 2 * size)] if turns else []
        rows += [(m.loops.index((size,)) + 1, count - 2 * turns, size)] if count > 2 * turns else []
    return np.array([*rows, (0, 0, 0)], np.uint8)


def rescaling(s: Sums, how: str) -> Array | None:
    """Four words a channel: start, multiplier, rounding, shift; None if no short sequence computes the result.

    "relu": (high(4 x M) + rounding) >> shift, the zero point inside of the rounding: halves up twice. "once": the same,
    halves up once. "signed": (((high(4 x M) + 1) >> 1) + its sign + rounding) >> shift, halves away from zero.
    """
    numbers = roundings(s, how)
    return None if numbers is None else words(np.stack([s.start, s.mantissa, *numbers], axis=1))


def finish(s: Sums) -> str:
    """The rounding of results, without regard to their bounds."""
    return s.finish.partition("_")[0]


def convolution(core: PairsCore, s: Sums, form: Form, away: bool = False) -> Kernel | None:
    """Blocks of pixels by channels in registers; blocks at the ends compute some pixels and channels again.

    `away`: halves are rounded away from zero even if they need not be, to share the function of other layers.
    """
    how = finish(s)
    if away and how != "relu":
        return None
    how = "signed" if away else how
    m, c, (oh, ow, k), (fh, fw) = core.micro, s.size[2], s.out, s.window
    count, taps = ow if form.rolled else oh * ow, fh * fw * c
    if not s.fits or s.weights.shape[3] != c or count < m.pixels or k < m.channels or form.small:
        return None
    scale = rescaling(s, how)
    if scale is None or taps * m.pixels // 2 >= 2**15:
        return None
    chosen = groups(s.weights.reshape(k, taps), quickly=form.tile)
    order = np.array([tap for group in chosen for tap in group])
    channels = channels_in_blocks(k, m.channels)
    places = np.empty(taps, np.int16)
    places[order] = np.arange(taps) * (m.pixels // 2)
    packed = s.weights.reshape(k, taps)[channels][:, order].reshape(-1, m.channels, taps).transpose(0, 2, 1)
    runs = loops(chosen, m)
    ends = ends_of(core.stem, how == "signed", not s.full_range)
    function = micro(name(core.stem, ends))
    padded = not s.pointwise and (s.padded_rows or s.padded_columns)
    shape = sums_shape(s, form) | {
        "function": function.name, "bounded": ends.clamped,
        "pixels": m.pixels, "taps": taps, "count": count, "pointwise": s.pointwise,
        "channels": m.channels, "blocks": k // m.channels, "odd": k % m.channels, "step": taps * m.channels,
        "padded_rows": not s.pointwise and s.padded_rows, "padded_columns": not s.pointwise and s.padded_columns,
        "padded": padded, "unroll": next(u for u in (4, 2, 1) if c % u == 0), "rest": count % m.pixels,
        "last_y": (count - m.pixels) // ow, "last_x": (count - m.pixels) % ow,
    }  # fmt: skip
    constants = (
        Constant("w", np.ascontiguousarray(packed), "by blocks of channels, in groups of taps"),
        Constant("rescale", scale[channels], "start, multiplier, rounding, shift"),
        Constant("places", places, "of each tap in its order"),
        Constant("runs", runs, "loop, turns, taps of a turn"),
    )
    turns = [(int(loop), int(count)) for loop, count, _ in runs[:-1]]
    calls = [k // m.channels] + [1] * (k % m.channels > 0)
    work = sum(CALL + function.executed(blocks=blocks, runs=turns) for blocks in calls)
    place = core.place - core.in_row * form.rolled
    bring = m.pixels * (core.pack * taps + (0 if s.pointwise else place * fh * fw))
    scalars = {"offset": int(words(np.array(-START * len(chosen)))), **s.bounds(ends.clamped)}
    scalars |= {"x_zero": s.x_zero} if padded else {}
    variant = f"pairs, {m.pixels} pixels{', away' if away else ''}"
    once = s.pointwise and not form.rolled and count % m.pixels == 0  # no pixel is read after its place is written
    return Kernel(
        "blocks/sum_kernels.c:pairs", s.stem, shape, constants, scalars, in_place=PIXELS if once else "",
        scratch=2 * m.pixels * taps + (c if padded else 0), variant=variant,
        estimate=-(-count // m.pixels) * (work + bring) + 60,
    )  # fmt: skip


def channels_in_blocks(k: int, block: int) -> list[int]:
    """Channels of all blocks in order; if blocks do not divide them, the last block repeats some."""
    return [*range(k // block * block), *(range(k - block, k) if k % block else ())]


# Dense layers by two channels in one multiplication.

PREPARE = 9  # instructions to bring one tap into its place; `./sconsw bench-kernels` shows the error of the estimate


def grouped(m: TwoInOne, function: str, weights: Array, quickly: bool) -> Groups:
    """The groups of taps that cost least. If loops are entered anywhere, smaller groups may make fewer runs."""
    allowed = tuple(size for (size,) in m.loops)
    if m.loops is not ANY:
        return groups(weights, allowed, quickly)
    most = allowed[-1:] if quickly or weights.size >= SMALL else (12, 16, allowed[-1])
    choices = (groups(weights, allowed[:n], quickly=True) for n in most)
    return min(choices, key=lambda taps: micro(function).executed(blocks=1, runs=sizes(taps)))


def dense(stem: str, s: Sums, form: Form) -> Kernel | None:
    """The kernel for one pixel; if blocks do not divide the channels, the last block repeats some."""
    m, (_, _, c), (oh, ow, k) = MICROS[stem], s.size, s.out
    scale = rescaling(s, finish(s)) if s.pointwise and oh * ow == 1 and k >= m.channels and not form.small else None
    if not s.fits or scale is None or s.weights.shape[3] != c or c >= 2**15:
        return None
    ends = ends_of(stem, finish(s) == "signed", not s.full_range)
    function = micro(name(stem, ends))
    chosen = grouped(m, function.name, s.weights.reshape(k, c), form.tile)
    order = np.array([tap for group in chosen for tap in group])
    channels = channels_in_blocks(k, m.channels)
    raised = (s.weights.reshape(k, c).astype(np.int16) + 128).astype(np.uint8)[channels][:, order]
    packed = np.ascontiguousarray(raised.reshape(-1, m.channels, c).transpose(0, 2, 1))
    runs = sizes(chosen)
    shape = sums_shape(s, form) | {
        "function": function.name, "bounded": ends.clamped, "groups": len(chosen),
        "blocks": k // m.channels, "odd": k % m.channels,
        "block": m.channels, "step": c * m.channels // 4,
    }  # fmt: skip
    constants = (
        Constant("w", packed.view(np.int32).reshape(-1), "128 more each, by blocks of channels, in groups of taps"),
        Constant("rescale", scale[channels], "start, multiplier, rounding, shift"),
        Constant("order", order.astype(np.int16), "of taps"),
        Constant("runs", np.array([*runs, (0, 0)], np.uint8), "size and number of groups"),
    )
    scalars = {"offset": int(words(np.array(-START * len(chosen)))), **s.bounds(ends.clamped)}
    calls = [k // m.channels] + [1] * (k % m.channels > 0)
    work = sum(CALL + function.executed(blocks=blocks, runs=runs) for blocks in calls)
    return Kernel(
        "blocks/sum_kernels.c:fours", s.stem, shape, constants, scalars,
        scratch=4 * len(chosen) + c, variant="two channels in one",
        estimate=work + PREPARE * c + 8 * len(chosen) + 10,
    )  # fmt: skip
