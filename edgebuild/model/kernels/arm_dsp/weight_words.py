"""Streams that the dot products of `dot.py` read beside pixels: start values, words of weights and factors."""

from __future__ import annotations

import numpy as np

from ...ir import Array
from ...ops.base import Constant, FourBytes, Sums
from ...ops.spatial import kept, words
from .factors import factors
from .wide import stream

MOST = 2**23  # of a sum that shares a word: 256 times it fits int32
OFFSETS, STEPS = np.array([8, 8, 8, 0]), 4 * np.arange(4)  # of weights of four bits, and where they lie in a half word


def whole_words(n: int) -> int:
    """The next multiple of four."""
    return -(-n // 4) * 4


@kept
def of_channels(s: Sums, channels: int, rows: int) -> Array | None:
    """The stream of micro-kernels that pack two channels: see `of_channels_with`."""
    return of_channels_with(s, channels, rows, factors(s).words)


def of_channels_with(s: Sums, channels: int, rows: int, ends: Array) -> Array | None:
    """For each `channels` channels start values, words of two taps of two channels each, and words of `ends`.

    The taps of each of `rows` rows of the window are padded to a multiple of four, and channels to whole groups.
    None: a channel breaks the condition of a shared word.
    """
    k, pairs = s.out[2], channels // 2
    blocks = -(-k // channels)
    missing = channels * blocks - k
    taps: Array = s.weights.reshape(k, rows, -1).astype(np.int64)
    taps = np.pad(taps, ((0, missing), (0, 0), (0, -taps.shape[2] % 4))).reshape(blocks, pairs, 2, -1)
    start = np.pad(s.start, (0, missing)).reshape(blocks, pairs, 2)
    halves = 256 * taps[:, :, 1] + taps[:, :, 0]
    bound = np.pad(s.bound, (0, missing)).reshape(blocks, pairs, 2)[:, :, 1]
    if not s.fits or halves.min() < -(2**15) or halves.max() >= 2**15 or bound.max() >= MOST:
        return None
    fours = halves.reshape(blocks, pairs, -1, 2, 2)  # block, pair of channels, four taps, half of the word, word
    packed = (fours[:, :, :, 0] & 0xFFFF) | fours[:, :, :, 1] << 16
    starts = np.stack([start[:, :, 0], 256 * start[:, :, 1] + start[:, :, 0]], axis=2).reshape(blocks, channels)
    weights = packed.transpose(0, 2, 3, 1).reshape(blocks, -1)
    return words(np.concatenate([starts, weights, np.pad(ends, ((0, missing), (0, 0))).reshape(blocks, -1)], axis=1))


@kept
def of_nibbles(s: Sums, channels: int, rows: int) -> Array | None:
    """The stream of micro-kernels that take weights of four bits: start values, words of two taps of four channels.

    None: a weight takes more bits, or a sum leaves what its place in a word leaves it.
    """
    if not s.fits or s.weights.min() < -8 or s.weights.max() > 7:
        return None
    blocks = -(-s.out[2] // channels)
    missing = channels * blocks - s.out[2]
    taps: Array = s.weights.reshape(s.out[2], rows, -1).astype(np.int64)
    taps = np.pad(taps, ((0, missing), (0, 0), (0, -taps.shape[2] % 4))).reshape(blocks, channels, -1)
    bound = np.pad(s.bound, (0, missing)).reshape(blocks, channels) + 128 * OFFSETS * taps.shape[2]
    if (bound >= 2 ** (31 - STEPS)).any():
        return None
    halves = ((taps + OFFSETS[:, None] & 15) << STEPS[:, None]).sum(axis=1)
    fours = halves.reshape(blocks, -1, 2, 2)  # block, four taps, half of the word, word
    packed = (fours[:, :, 0] | fours[:, :, 1] << 16).reshape(blocks, -1)
    starts = np.pad(s.start.astype(np.int64), (0, missing)).reshape(blocks, channels) << STEPS
    ends = np.pad(factors(s).words, ((0, missing), (0, 0))).reshape(blocks, -1)
    return words(np.concatenate([starts, packed, ends], axis=1))


@kept
def of_single_channels(s: Sums, channels: int, rows: int) -> Array | None:
    """The stream of micro-kernels that pack nothing, for sums that share no word; None where others serve."""
    if of_channels(s, 4, 1) is not None or s.finish == "sums" or not s.fits:
        return None
    return stream(s.weights.reshape(s.out[2], rows, -1), s.start, factors(s).words, channels, range(4))


@kept
def of_pixels(s: Sums, channels: int, rows: int) -> Array | None:
    """The stream of eb_dot4, which packs two pixels: for each two channels start values, words of two taps, factors.

    None: a sum does not fit the upper part of a shared word, or a channel has no other beside it.
    """
    k = s.out[2]
    taps: Array = s.weights.reshape(k, -1).astype(np.int64)
    if k % 2 or not s.fits or s.finish == "sums" or s.bound.max() >= MOST:
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
    """Bounds other than those of int8, four times in a word each."""
    if not s.finish.endswith("_clamped"):
        return {}
    low, high = ((bound & 0xFF) * 0x01010101 for bound in (s.low, s.high))
    return {"low4": FourBytes(low - (low >> 31 << 32)), "high4": FourBytes(high - (high >> 31 << 32))}
