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


@dataclass(frozen=True)
class Scaling:
    """All that factors depend on. By channel: the bound of whole sums, the real factor, what start values lack.

    `added`, `bits`: as of `Sums`; bits are -1 where the arithmetic says how results are rounded.
    """

    bound: Array
    mantissa: Array
    right: Array
    left_out: Array
    added: Array
    form: tuple[int, int, int, int, Arithmetic]  # zero point, lowest and highest result, bits

    @property
    def y_zero(self) -> int:
        return self.form[0]

    @property
    def results(self) -> Array:
        """Those above the lowest."""
        return np.arange(self.form[1] + 1, self.form[2] + 1, dtype=np.int64)[None]

    @property
    def own_bound(self) -> Array:
        """Of sums without what is left out."""
        return np.asarray(np.maximum(self.bound - np.abs(self.left_out), 1))

    @property
    def channels(self) -> Array:
        rows = self.bound, self.mantissa, self.right, self.left_out, self.added
        return np.stack(rows, axis=1).astype(np.int64)

    @property
    def real(self) -> Array:
        """Steps of the result that a sum is worth."""
        return np.ldexp(self.mantissa.astype(float), (-31 - self.right).astype(int))

    @property
    def half(self) -> Array:
        """Steps that are added to a sum before it is rounded down."""
        return np.asarray(0.5 + self.added / 2.0 ** max(self.form[3], 0))


@kept
def ends(s: Sums) -> Ends | None:
    """By the product of fewest cycles that is exact in all channels; None where none is."""
    return _ends(s, np.zeros_like(s.start))


@kept
def raw_ends(s: Sums) -> Ends | None:
    """The same of sums without their start values, which are part of the rounding."""
    return None if s.finish.startswith("signed") else _ends(s, s.start)


def _ends(sums: Sums, left_out: Array) -> Ends | None:
    if not (sums.fits and fixedpoint.fits(sums.bound, -sums.right).all()):
        return None
    more, bits = (np.zeros_like(sums.start), -1) if sums.added is None else (sums.added, sums.bits)
    form = sums.y_zero, sums.low, sums.high, bits, sums.arithmetic
    s = Scaling(sums.bound, sums.mantissa, sums.right, left_out, more, form)
    products = _products(sums.finish.startswith("signed"), int(s.own_bound.max()).bit_length())
    return next((Ends(p, words) for p in products if (words := _words(s, p)) is not None), None)


def _words(s: Scaling, p: Product) -> Array | None:
    """Factors of all channels, of which those of other tiles of the layer are kept; None where one has none."""
    rows, factors = s.channels, _factors(p, s.form)
    keys = [row.tobytes() for row in rows]
    if new := {key: at for at, key in enumerate(keys) if key not in factors}:
        bound, mantissa, right, left_out, added = rows[list(new.values())].T
        others = Scaling(bound, mantissa, right, left_out, added, s.form)
        factors.update(zip(new, _exact(others, p), strict=True))
    words = [factors[key] for key in keys]
    return None if any(w is None for w in words) else np.array(words)


@lru_cache(LAYERS)
def _factors(p: Product, form: tuple[int, int, int, int, Arithmetic]) -> dict[bytes, Array | None]:
    """Factors by channel: a plan asks for the same in tiles of many sizes."""
    return {}


def _products(away: bool, bits: int) -> Iterator[Product]:
    """Those that may do, the quickest first."""
    free = WORD - bits
    if free >= 1:
        yield Product("two", free, 0, away)
        yield from (Product("mid", free, dropped, away) for dropped in (2, 3, 4))
    if free >= 0:
        yield Product("high", free, 0, away)


def _begins(s: Scaling) -> tuple[Array, Array]:
    """By channel, the least sum of each result above the lowest, and whether all are where reals say.

    FAR below or above: the result holds at every sum, or at none, say in a channel whose weights are 0.
    """
    results, most = s.results, s.bound[:, None] + 1
    guess = np.clip(np.floor((results - s.y_zero - s.half[:, None]) / s.real[:, None]), -(2.0**40), 2.0**40).astype(
        np.int64
    )
    first = np.full(guess.shape, np.iinfo(np.int64).max)
    for near in range(NEAR, -NEAR - 1, -1):
        x = np.clip(guess + near, 1 - most, most - 1)
        first = np.where(_results(s, x) >= results, x, first)
    below = np.clip(guess - NEAR - 1, 1 - most, most - 1)
    reached = first < np.iinfo(np.int64).max
    # A result that no sum near its real beginning has must be beyond them all.
    right = np.where(reached, (_results(s, below) < results) | (first == 1 - most), guess + NEAR >= most - 1)
    return np.where(first == 1 - most, -FAR, np.where(reached, first, FAR)), np.asarray(right.all(axis=1))


def _results(s: Scaling, x: Array) -> Array:
    """Of the reference."""
    y_zero, low, high, bits, arithmetic = s.form
    if bits < 0:
        scaled = fixedpoint.requantize(x, s.mantissa[:, None], -s.right[:, None], arithmetic)
    else:
        factor = np.rint(s.real * 2.0**bits).astype(np.int64)
        scaled = (x * factor[:, None] + s.added[:, None] + (1 << bits >> 1)) >> bits
    return np.asarray(np.clip(scaled + y_zero, low, high))


def _exact(s: Scaling, p: Product) -> list[Array | None]:
    """By channel, factors with which each result begins where the reference's does, as computing them shows."""
    results, real, bound = s.results, s.real, s.own_bound
    begins, right = _begins(s)
    begins = np.clip(begins - s.left_out[:, None], -bound[:, None], bound[:, None] + 1)
    largest = 2.0**31 - 1 if p.way == "high" else ((2**WORD - bound) // bound + 1.0) * 2.0**p.scale - 1
    reach = (s.bound + 1) * real + abs(s.y_zero) + abs(s.half - 0.5) + 2  # of p and r together, in results
    shift = np.minimum(np.floor(np.log2(largest / real)) - p.scale, np.floor(np.log2((2.0**31 - 1) / reach)))
    shift = np.minimum(shift, 30).astype(np.int64)
    sums = np.exp2(shift.astype(float)) * real  # units of p that a sum is worth
    away = np.rint(np.exp2((shift - s.right).astype(float))).astype(np.int64) * p.away
    middle = (s.y_zero + s.half) * np.exp2(shift.astype(float)) + s.left_out * sums
    middle += np.exp2((shift - s.right - 1).astype(float)) if s.form[4].fixed_point else 0
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
