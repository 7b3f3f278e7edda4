"""How sums become results on XpulpV2: a product, a shifted sum and a clip, exact for every sum that can occur.

A result is g(x) = (p(x) + r) >> s within bounds, where p is about x * m / 2^e. Results of the reference rise with x,
and so do these: they agree on all sums if each result begins at the same x. The product comes in three ways:

- "two": x * low >> e, plus x * high, for m = high * 2^e + low. Three cycles.
- "mid": (x >> j) * low >> k, plus x * high: more bits of m, fewer of x. Four cycles.
- "high": `mulh` of x << n. Six cycles.

Where the reference rounds halves away from zero, results of negative sums begin later: `away` is then taken off p.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...arithmetic import Arithmetic
from ...ir import Array
from ...ops import fixedpoint
from ...ops.base import Sums
from ...ops.spatial import kept
from ..phases import group

NEAR = 4  # sums around the real beginning of a result among which that of the reference lies
STEPS = sorted(range(-12, 13), key=abs)  # eighths of a sum by which the rounding may be moved
FAR = 2**40
WORD = 30  # bits of a product, which leaves one for a sum of two
LAYERS = 64  # of which factors are kept


@dataclass(frozen=True)
class Product:
    """`way`: two, mid or high. `bits`: e, k or n; `dropped`: j. `away`: negative sums lose a number."""

    way: str
    bits: int
    dropped: int = 0
    away: bool = False

    @property
    def name(self) -> str:
        return f"{self.way}{self.bits}{f'_{self.dropped}' if self.dropped else ''}{'_away' if self.away else ''}"

    @property
    def scale(self) -> int:
        """e: x * m / 2^e."""
        return 32 - self.bits if self.way == "high" else self.bits + self.dropped

    @property
    def words(self) -> int:
        """Of a channel's factors."""
        return (3 if self.way == "high" else 4) + self.away

    @property
    def cycles(self) -> int:
        return {"two": 3, "mid": 4, "high": 6}[self.way] + 2 * self.away

    def fits(self, most: Array, m: Array, away: Array, rounding: Array) -> Array:
        """Whether p of sums up to `most` and what is added to it stay in int32."""
        ends = [abs(self.of(x, m, away) + rounding) for x in (most, -most)]
        return np.asarray((np.maximum(*ends) < 2**31) & (abs(rounding) < 2**31))

    def of(self, x: Array, m: Array, away: Array) -> Array:
        """p(x), as the instructions compute it."""
        if self.way == "high":
            product = x * m >> self.scale
        else:
            low, high = m & ((1 << self.scale) - 1), m >> self.scale
            product = ((x >> self.dropped) * low >> self.bits) + x * high
        return product - np.where(x < 0, away, 0)


@dataclass(frozen=True)
class Ends:
    """`words`: by channel m, or low and high; then r, s, and what negative sums lose if that is anything."""

    product: Product
    words: Array


@kept
def ends(s: Sums) -> Ends | None:
    """By the product of fewest cycles that is exact in all channels; None where none is."""
    return _ends(s, np.zeros_like(s.start))


@kept
def raw_ends(s: Sums) -> Ends | None:
    """The same of sums without their start values, which are part of the rounding."""
    return None if s.finish.startswith("signed") else _ends(s, s.start)


def _ends(s: Sums, left_out: Array) -> Ends | None:
    if not (s.fits and fixedpoint.fits(s.bound, -s.right).all()):
        return None
    products = _products(s.finish.startswith("signed"), int(_reach(s, left_out).max()).bit_length())
    return next((Ends(p, words) for p in products if (words := _words(s, left_out, p)) is not None), None)


def _reach(s: Sums, left_out: Array) -> Array:
    """By channel, the bound of sums without what is left out of them."""
    return np.asarray(np.maximum(s.bound - np.abs(left_out), 1))


def _words(s: Sums, left_out: Array, p: Product) -> Array | None:
    """Factors of all channels, of which those of other tiles of the layer are kept; None where one has none."""
    numbers = s.bound, s.mantissa, s.right, left_out, *(() if s.added is None else (s.added,))
    keys = [row.tobytes() for row in np.stack(numbers, axis=1).astype(np.int64)]
    factors = _factors(p, s.y_zero, s.low, s.high, s.arithmetic)
    if new := {key: at for at, key in enumerate(keys) if key not in factors}:
        own = np.array(list(new.values()))
        factors.update(zip(new, _exact(group(s, own), left_out[own], p), strict=True))
    words = [factors[key] for key in keys]
    return None if any(w is None for w in words) else np.array(words)


@lru_cache(LAYERS)
def _factors(p: Product, y_zero: int, low: int, high: int, arithmetic: Arithmetic) -> dict[bytes, Array | None]:
    """Factors by all that they depend on in a channel: a plan asks for the same in tiles of many sizes."""
    return {}


def _products(away: bool, bits: int) -> Iterator[Product]:
    """Those that may do, the quickest first."""
    free = WORD - bits
    if free >= 1:
        yield Product("two", free, 0, away)
        yield from (Product("mid", free, dropped, away) for dropped in (2, 3, 4))
    if free >= 0:
        yield Product("high", free, 0, away)


def _begins(s: Sums, results: Array, real: Array, half: Array | float) -> tuple[Array, Array]:
    """By channel, the least sum of each result above the lowest, and whether all are where reals say.

    FAR below or above: the result holds at every sum, or at none, say in a channel whose weights are 0.
    """
    most = s.bound[:, None] + 1
    places = np.floor((results - s.y_zero - np.reshape(half, (-1, 1))) / real[:, None])
    guess = np.clip(places, -(2.0**40), 2.0**40).astype(np.int64)
    first = np.full(guess.shape, np.iinfo(np.int64).max)
    for near in range(NEAR, -NEAR - 1, -1):
        x = np.clip(guess + near, 1 - most, most - 1)
        first = np.where(_results(s, x) >= results, x, first)
    below = np.clip(guess - NEAR - 1, 1 - most, most - 1)
    reached = first < np.iinfo(np.int64).max
    # A result that no sum near its real beginning has must be beyond them all.
    right = np.where(reached, (_results(s, below) < results) | (first == 1 - most), guess + NEAR >= most - 1)
    return np.where(first == 1 - most, -FAR, np.where(reached, first, FAR)), np.asarray(right.all(axis=1))


def _results(s: Sums, x: Array) -> Array:
    """Of the reference."""
    added = None if s.added is None else s.added[:, None]
    scaled = fixedpoint.requantize(x, s.mantissa[:, None], -s.right[:, None], s.arithmetic, added)
    return np.asarray(np.clip(scaled + s.y_zero, s.low, s.high))


def _exact(s: Sums, left_out: Array, p: Product) -> list[Array | None]:
    """By channel, factors with which each result begins where the reference's does, as computing them shows."""
    results = np.arange(s.low + 1, s.high + 1, dtype=np.int64)[None]
    real = np.ldexp(s.mantissa.astype(float), (-31 - s.right).astype(int))  # steps of the result that a sum is worth
    half = 0.5 if s.added is None else np.ldexp(s.added.astype(float), (-31 - s.right).astype(int))
    begins, right = _begins(s, results, real, half)
    bound = _reach(s, left_out)
    begins = np.clip(begins - left_out[:, None], -bound[:, None], bound[:, None] + 1)
    largest = 2.0**31 - 1 if p.way == "high" else ((2**WORD - bound) // bound + 1.0) * 2.0**p.scale - 1
    reach = (s.bound + 1) * real + abs(s.y_zero) + abs(half - 0.5) + 2  # of p and r together, in results
    shift = np.minimum(np.floor(np.log2(largest / real)) - p.scale, np.floor(np.log2((2.0**31 - 1) / reach)))
    shift = np.minimum(shift, 30).astype(np.int64)
    sums = np.exp2(shift.astype(float)) * real  # units of p that a sum is worth
    away = np.rint(np.exp2((shift - s.right).astype(float))).astype(np.int64) * p.away
    middle = (s.y_zero + half) * np.exp2(shift.astype(float)) + left_out * sums
    middle += np.exp2((shift - s.right - 1).astype(float)) if s.added is None and s.arithmetic.fixed_point else 0
    ideal = np.maximum(np.rint(real * np.exp2((p.scale + shift).astype(float))).astype(np.int64), 1)
    missing, words = np.flatnonzero(right & (shift >= 1)), list[Array | None]([None] * len(real))
    for step in STEPS:
        at = missing
        rounding = np.rint(middle[at] + step * sums[at] / 8).astype(np.int64)
        begin = (results << shift[at, None]) - rounding[:, None]
        with np.errstate(over="ignore"):  # `_same` refuses what comes of it
            least, last = _interval(begins[at], begin, away[at, None], p.scale, bound[at])
        # The middle of an interval is safest, but far from the real factor where few results can occur.
        chosen = np.clip((least + last) // 2, ideal[at] - ideal[at] // 1024, ideal[at] + ideal[at] // 1024)
        good = (least <= chosen) & (chosen <= last) & (chosen <= np.broadcast_to(largest, real.shape)[at])
        good &= p.fits(bound[at], chosen, away[at], rounding)
        good &= _same(p, begins[at], begin, chosen, away[at], bound[at])
        for i, m, r in zip(at[good], chosen[good], rounding[good], strict=True):
            parts = [m] if p.way == "high" else [m & ((1 << p.scale) - 1), m >> p.scale]
            words[i] = np.array([*parts, r, shift[i], *([away[i]] if p.away else [])])
        missing = at[~good]
        if not len(missing):
            break
    return words


def _same(p: Product, begins: Array, begin: Array, m: Array, away: Array, bound: Array) -> Array:
    """By channel, whether p reaches `begin` at each of `begins` and not before."""
    factors, most = (m[:, None], away[:, None]), bound[:, None]
    at, before = p.of(np.minimum(begins, most), *factors), p.of(np.maximum(begins - 1, -most), *factors)
    reached, follows = begins <= most, begins > -most
    return np.asarray(((~reached | (at >= begin)) & (~follows | (before < begin))).all(axis=1))


def _interval(begins: Array, begin: Array, away: Array, e: int, bound: Array) -> tuple[Array, Array]:
    """The least and the last m with which x * m / 2^e reaches `begin` at x = `begins` and not before."""
    least, last = np.full(len(begins), 0), np.full(len(begins), 2**40)
    at, before = begin + np.where(begins < 0, away, 0) << e, begin + np.where(begins <= 0, away, 0) << e
    reached, follows = begins <= bound[:, None], begins > -bound[:, None]
    # x m >= b; and (x - 1) m < b, which is (1 - x) m >= 1 - b
    for x, b, there in ((begins, at, reached), (1 - begins, 1 - before, follows)):
        quotient = b // np.where(x == 0, 1, x)
        up = quotient + (quotient * x != b)
        least = np.maximum(least, np.where(there & (x > 0), up, 0).max(axis=1, initial=0))
        last = np.minimum(last, np.where(there & (x < 0), quotient, 2**40).min(axis=1, initial=2**40))
        last = np.where((there & (x == 0) & (b > 0)).any(axis=1), -1, last)
    return least, last
