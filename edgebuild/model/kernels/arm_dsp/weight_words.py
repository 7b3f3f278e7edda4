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
    taps, start, bound = _in_blocks(s, 2, channels, rows)
    halves = 256 * taps[:, 1] + taps[:, 0]
    if not s.fits or halves.min() < -(2**15) or halves.max() >= 2**15 or bound[:, 1].max() >= MOST:
        return None
    return _of_halves(np.stack([start[:, 0], 256 * start[:, 1] + start[:, 0]], axis=1), halves, ends, channels)


def _in_blocks(s: Sums, together: int, channels: int, rows: int) -> tuple[Array, Array, Array]:
    """Taps, start values and bounds of channels that share words; there are as many as whole blocks of `channels`."""
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


@kept
def of_nibbles(s: Sums, channels: int, rows: int) -> Array | None:
    """The stream of micro-kernels that take weights of four bits: start values, words of two taps of four channels.

    None: a weight takes more bits, or a sum leaves what its place in a word leaves it.
    """
    if not s.fits or s.weights.min() < -8 or s.weights.max() > 7:
        return None
    taps, start, bound = _in_blocks(s, channels, channels, rows)
    if (bound + 128 * OFFSETS * taps.shape[2] >= 2 ** (31 - STEPS)).any():
        return None
    halves = ((taps + OFFSETS[:, None] & 15) << STEPS[:, None]).sum(axis=1)
    return _of_halves(start << STEPS, halves, factors(s).words, channels)


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
