"""Streams that the dot products of `dot.py` read besides pixels: start values, words of weights and factors.

The factors of a channel are one word, where every sum that can occur has the same result as with two. A sum x becomes a
result in two steps: q = x * (2^32 + m) / 2^32, then q / 2^right (`Sums.finish` says how they round). One word is m
whose lowest five bits are those of `right`, plus a number that all channels of a layer have in common. So `ror` of the
layer's unit by the word is 2^(32 - right), whatever the other bits are, and m is off by a few. Results rise with x. So
two factors agree on all sums if each result begins at the same x, which leaves m an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...ir import Array
from ...ops.base import Constant, FourBytes, Sums
from ...ops.spatial import computed_once, words
from .wide import stream

TURNS = 32  # numbers that the lowest five bits can hold
MAX_SUM = 2**30  # bound of a sum: products with a factor of 33 bits fit int64
MIN_RIGHT, MAX_RIGHT = 2, 22  # 2^(32 - right) is positive, and the beginnings of results times 2^32 fit int64


@dataclass(frozen=True)
class Factors:
    """The factors of a layer. `words`, by channel: one, or 2 M - 2^32 and -2^(32 - right), or none in the stream.

    `finish`: that of `Sums`, with a 2 for two words, in names of functions. `unit`: what `ror` rotates, for one word.
    """

    words: Array
    finish: str
    unit: int = 0

    @property
    def shape(self) -> dict[str, str | bool]:
        return {"finish": self.finish, "unit": bool(self.unit)}

    @property
    def scalars(self) -> dict[str, int | float]:
        return {"unit": self.unit} if self.unit else {}


@computed_once
def factors(s: Sums) -> Factors:
    """Factors in one word for each channel, if there is such a word for every channel."""
    return factors_within(s, s.bound)


def factors_within(s: Sums, most: Array) -> Factors:
    """Factors as of `factors`, for sums that are at most so large, by channel."""
    if s.finish == "sums":
        return Factors(np.zeros((s.out[2], 0), np.int64), s.finish)
    bounds = (s.low - s.y_zero, s.high - s.y_zero)
    arrays = (np.asarray(a, np.int64).tobytes() for a in (s.mantissa, s.right, most))
    one_word = _one_word(s.finish.partition("_")[0], bounds, *arrays)
    return Factors(one_word[0], s.finish, one_word[1]) if one_word is not None else two_words(s)


def two_words(s: Sums) -> Factors:
    how, _, clamped = s.finish.partition("_")
    both = np.stack([2 * s.mantissa - 2**32, -(2 ** (32 - s.right))], axis=1)
    return Factors(both, f"{how}2_clamped" if clamped else f"{how}2")


@lru_cache(maxsize=1 << 12)
def _one_word(how: str, bounds: tuple[int, int], *arrays: bytes) -> tuple[Array, int] | None:
    """The words, K x 1, and the unit. `bounds`: of results without zero point; mantissa, right, most by channel."""
    mantissa, right, most = (np.frombuffer(a, np.int64) for a in arrays)
    right = np.where(most == 0, np.maximum(right, MIN_RIGHT), right)  # any shift gives the result
    if right.min() < MIN_RIGHT or right.max() > MAX_RIGHT or most.max() >= MAX_SUM:
        return None
    exact = 2 * mantissa
    least, last = _interval(_begins(how, bounds, right), exact, most)
    for turn in range(TURNS):
        factor = exact - (exact - right - turn) % TURNS
        factor = np.where(factor < least, factor + TURNS, factor)
        if (factor <= last).all():
            return (factor - 2**32)[:, None], int(np.uint32(1 << turn).view(np.int32))
    return None


def _begins(how: str, bounds: tuple[int, int], right: Array) -> Array:
    """K x results: the lower bound of x * (2^32 + m) for each result above the lowest.

    Rounding the product half up moves it by 2^31, rounding it down by nothing. Halves of q / 2^right go up, but those
    below zero go down where `how` is "signed".
    """
    result = np.arange(bounds[0] + 1, bounds[1] + 1, dtype=np.int64)
    down = (result <= 0).astype(np.int64) if how == "signed" else 0
    q: Array = (result << right[:, None]) - (np.int64(1) << (right - 1))[:, None] + down
    return (q << 32) - (0 if how == "once" else 2**31)


def _interval(begins: Array, exact: Array, most: Array) -> tuple[Array, Array]:
    """The least and the largest 2^32 + m with which all sums up to `most` have the results of `exact`."""
    most = most[:, None]
    first = np.clip(-(-begins // exact[:, None]), -most, most + 1)  # the least x of each result, or out of reach
    least, last = np.full(len(exact), 2**31), np.full(len(exact), 2**32 + 2**31 - 1)
    # first * factor >= begins, and not so of the sum before it: (1 - first) * factor >= 1 - begins
    for x, bound, there in ((first, begins, first <= most), (1 - first, 1 - begins, first > -most)):
        quotient = bound // np.where(x == 0, 1, x)
        up = quotient + (quotient * x != bound)
        least = np.maximum(least, np.where(there & (x > 0), up, 0).max(axis=1, initial=0))
        last = np.minimum(last, np.where(there & (x < 0), quotient, 2**40).min(axis=1, initial=2**40))
    return least, last


MAX_SHARED = 2**23  # bound of a sum that shares a word: 256 times it fits int32
OFFSETS, STEPS = np.array([8, 8, 8, 0]), 4 * np.arange(4)  # added to 4-bit weights, and their bits in a half word


def whole_words(n: int) -> int:
    """The next multiple of four."""
    return -(-n // 4) * 4


@computed_once
def of_channels(s: Sums, channels: int, rows: int) -> Array | None:
    """The stream of micro-kernels that pack two channels: see `of_channels_with`."""
    return of_channels_with(s, channels, rows, factors(s).words)


def of_channels_with(s: Sums, channels: int, rows: int, ends: Array) -> Array | None:
    """The stream by blocks of `channels`: start values, words of two taps of two channels each, and words of `ends`.

    The taps of each of `rows` rows of the window are padded to a multiple of four, and channels to whole groups.
    None: a channel breaks the condition of a shared word.
    """
    taps, start, bound = _in_blocks(s, 2, channels, rows)
    halves = 256 * taps[:, 1] + taps[:, 0]
    if not s.fits or halves.min() < -(2**15) or halves.max() >= 2**15 or bound[:, 1].max() >= MAX_SHARED:
        return None
    return _of_halves(np.stack([start[:, 0], 256 * start[:, 1] + start[:, 0]], axis=1), halves, ends, channels)


def _in_blocks(s: Sums, together: int, channels: int, rows: int) -> tuple[Array, Array, Array]:
    """Taps, start values and bounds of channels that share words, padded to whole blocks of `channels`."""
    missing = -s.out[2] % channels
    taps: Array = s.weights.reshape(s.out[2], rows, -1).astype(np.int64)
    taps = np.pad(taps, ((0, missing), (0, 0), (0, -taps.shape[2] % 4)))
    start, bound = (np.pad(a.astype(np.int64), (0, missing)).reshape(-1, together) for a in (s.start, s.bound))
    return taps.reshape(*start.shape, -1), start, bound


def _of_halves(starts: Array, halves: Array, ends: Array, channels: int) -> Array:
    """The stream of these start values, words of two taps from halves of words, and ends, by blocks of `channels`."""
    blocks, missing = starts.size // channels, starts.size - len(ends)
    fours = halves.reshape(
        blocks, len(halves) // blocks, -1, 2, 2
    )  # block, channels, four taps, half of the word, word
    packed = ((fours[:, :, :, 0] & 0xFFFF) | fours[:, :, :, 1] << 16).transpose(0, 2, 3, 1)
    parts = starts, packed, np.pad(ends, ((0, missing), (0, 0)))
    return words(np.concatenate([part.reshape(blocks, -1) for part in parts], axis=1))


@computed_once
def of_nibbles(s: Sums, channels: int, rows: int) -> Array | None:
    """The stream of micro-kernels that take weights of four bits: start values, words of two taps of four channels.

    None: a weight has more bits, or a sum exceeds its part of a word.
    """
    if not s.fits or s.weights.min() < -8 or s.weights.max() > 7:
        return None
    taps, start, bound = _in_blocks(s, channels, channels, rows)
    if (bound + 128 * OFFSETS * taps.shape[2] >= 2 ** (31 - STEPS)).any():
        return None
    halves = ((taps + OFFSETS[:, None] & 15) << STEPS[:, None]).sum(axis=1)
    return _of_halves(start << STEPS, halves, factors(s).words, channels)


@computed_once
def of_single_channels(s: Sums, channels: int, rows: int) -> Array | None:
    """The stream of micro-kernels that pack nothing, for sums that share no word; None if other streams apply."""
    if of_channels(s, 4, 1) is not None or s.finish == "sums" or not s.fits:
        return None
    return stream(s.weights.reshape(s.out[2], rows, -1), s.start, factors(s).words, channels, range(4))


@computed_once
def of_few(s: Sums, channels: int, rows: int) -> Array | None:
    """The stream of a layer with so few channels: start values, words of two taps of a channel, and factors."""
    copied = s.size[2] % 4 and not s.pointwise  # with gaps; gathered taps take less then
    if s.out[2] != channels or s.finish == "sums" or not s.fits or copied:
        return None
    taps, start, _ = _in_blocks(s, 1, channels, rows)
    return _of_halves(start, taps[:, 0], factors(s).words, channels)


@computed_once
def of_pixels(s: Sums, channels: int, rows: int) -> Array | None:
    """The stream of eb_dot4, which packs two pixels: for each two channels start values, words of two taps, factors.

    None: a sum does not fit the upper part of a shared word, or the number of channels is odd.
    """
    k = s.out[2]
    taps: Array = s.weights.reshape(k, -1).astype(np.int64)
    if k % 2 or not s.fits or s.finish == "sums" or s.bound.max() >= MAX_SHARED:
        return None
    fours = taps.reshape(k // 2, 2, -1, 4)[..., [0, 2, 1, 3]].reshape(k // 2, 2, -1, 2, 2) & 0xFF
    first, second = fours[:, 0], fours[:, 1]  # channels: pair, four, word, half of the word
    packed = first[..., 0] | second[..., 0] << 8 | first[..., 1] << 16 | second[..., 1] << 24
    low = s.start - 128 * taps.sum(axis=1)
    starts = np.stack([256 * s.start + low, low], axis=1).reshape(k // 2, 4)
    return words(np.concatenate([starts, packed.reshape(k // 2, -1), factors(s).words.reshape(k // 2, -1)], axis=1))


def requantised(s: Sums, values: Array, group: str) -> tuple[tuple[Constant, ...], dict[str, int | float]]:
    """Constants and scalars of a kernel with this stream, which has a record for each `group` of channels."""
    packed = Constant("w", values.ravel(), f"start values, weights and factors by {group} of channels")
    if s.finish != "sums":
        return (packed,), {"y_zero": s.y_zero, **factors(s).scalars, **bounds(s)}
    return (packed, *s.rescaling), {"y_zero": s.y_zero, "low": s.low, "high": s.high}


def bounds(s: Sums) -> dict[str, int | float]:
    """Scalars of bounds other than those of int8, each in four bytes of a word."""
    if not s.finish.endswith("_clamped"):
        return {}
    low, high = ((bound & 0xFF) * 0x01010101 for bound in (s.low, s.high))
    return {"low4": FourBytes(low - (low >> 31 << 32)), "high4": FourBytes(high - (high >> 31 << 32))}
