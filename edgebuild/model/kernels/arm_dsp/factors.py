"""The factors of channels: one word each, where every sum that can occur has the same result as with two.

A sum x becomes a result in two steps: q = x * (2^32 + m) / 2^32, then q / 2^right (`Sums.finish` says how they round).
One word is m whose lowest five bits are those of `right`, plus a number that all channels of a layer have in common.
So `ror` of the layer's unit by the word is 2^(32 - right), whatever the other bits are, and m is off by a few. Results
rise with x. So two factors agree on all sums if each result begins at the same x, which leaves m an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...ir import Array
from ...ops.base import Sums
from ...ops.spatial import kept

TURNS = 32  # numbers that the lowest five bits can hold
MOST = 2**30  # of a sum: products with a factor of 33 bits fit int64
LEAST_RIGHT, MOST_RIGHT = 2, 22  # 2^(32 - right) is positive, and the beginnings of results times 2^32 fit int64


@dataclass(frozen=True)
class Factors:
    """`words`: by channel one, or 2 M - 2^32 and -2^(32 - right), or none where they are not in the stream.

    `finish`: as of `Sums`, with a 2 where they are two, in names of functions. `unit`: what `ror` turns, if it is one.
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


@kept
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
    right = np.where(most == 0, np.maximum(right, LEAST_RIGHT), right)  # any will do
    if right.min() < LEAST_RIGHT or right.max() > MOST_RIGHT or most.max() >= MOST:
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
    """K x results: what x * (2^32 + m) is at least, for each result above the lowest.

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
