"""Mul, Add, Div, Floor, Cast and Clip of whole numbers as one product, sum and shift.

NEMO, DORY and older quantlib write a requantisation so (github.com/pulp-platform/dory_examples 60dd66b, 2023-01-24):
Mul by kappa, Add of lambda, Mul by a factor, Div by 2^k or 2^k - 1, Floor or a Cast to int64, Clip. A `Form` is what
such nodes have come to so far, in exact numbers. Real nodes round products above 2^24 in float32; here none is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, lcm

import numpy as np

from ...ir import Array

Range = tuple[int, int]  # least and largest of whole numbers
INT32, MOST_BITS, FAR = np.iinfo(np.int32), 46, 1 << 33
ENDS = -(1 << 62), 1 << 62  # of what nothing bounds
MOST_LEVELS = 1 << 20  # of the results of all channels, for which other factors are looked for


def integers(data: Array) -> Array:
    """As Python's integers, which do not overflow."""
    return np.array([int(v) for v in data.ravel()], object).reshape(data.shape)


UNCHANGED = integers(np.array(1)), integers(np.array(0))  # factor, and what is added


def _array(numbers: object) -> Array:
    return np.asarray(numbers, object)  # of one integer numpy makes none


@dataclass(frozen=True)
class Form:
    """(base * factor + added) / divisor, rounded as `rounds` says: "", "Floor", or "Cast" towards zero."""

    base: str
    factor: Array
    added: Array
    divisor: int = 1
    rounds: str = ""

    def times(self, number: Array) -> Form:
        return replace(self, factor=_array(self.factor * number), added=_array(self.added * number)).reduced()

    def plus(self, number: Array) -> Form:
        return replace(self, added=_array(self.added + number * self.divisor))

    def over(self, number: int) -> Form:
        return replace(self, divisor=self.divisor * number).reduced()

    def rounded(self, how: str) -> Form:
        return replace(self, rounds=how) if self.divisor > 1 and not self.rounds else self

    def reduced(self) -> Form:
        common = gcd(self.divisor, *self.factor.ravel().tolist(), *self.added.ravel().tolist())
        return replace(
            self,
            factor=_array(self.factor // common),
            added=_array(self.added // common),
            divisor=self.divisor // common,
        )

    @property
    def is_base(self) -> bool:
        return self.divisor == 1 and bool((self.factor == 1).all()) and not self.added.any()

    def reach(self, of: Range) -> Range:
        """The least and the largest result; numbers below 0 count as rounded down."""
        ends = [(self.factor * end + self.added) // self.divisor for end in of]
        return int(min(np.min(e) for e in ends)), int(max(np.max(e) for e in ends))


def joined(a: Form, b: Form, name: str) -> tuple[Form, list[tuple[str, int]]] | None:
    """The sum of two forms, as one of `name`, which stands for the sum of these tensors times these numbers.

    None if the factors differ from channel to channel.
    """
    divisor = lcm(a.divisor, b.divisor)
    own = [_array(form.factor * (divisor // form.divisor)) for form in (a, b)]
    if any((factor != factor.ravel()[0]).any() for factor in own):
        return None
    first = [int(factor.ravel()[0]) for factor in own]
    common = gcd(*first) or 1
    added = sum(form.added * (divisor // form.divisor) for form in (a, b))
    form = Form(name, _array(common), _array(added), divisor)
    return form.reduced(), [(form.base, factor // common) for form, factor in zip((a, b), first, strict=True)]


@dataclass(frozen=True)
class Shift:
    """((base + before) * factor + added + half) >> bits, from `low` to `high`; all arrays are int32."""

    before: Array
    factor: Array
    added: Array
    bits: int
    low: int
    high: int


def shift_of(form: Form, of: Range, low: int, high: int) -> Shift | None:
    """The form of numbers within `of`, bounded, as a product and a shift that rounds halves up; None if there is none.

    Exact for every number: with the form's own numbers if its divisor is a power of two, else with others that reach
    each result at the same number.
    """
    first, last = form.reach(of)
    if form.rounds == "Cast" and form.divisor > 1 and first < 0 and low < 0:
        return None  # around 0 it rounds either way
    low, high = int(np.clip(first, low, high)), int(np.clip(last, low, high))
    factor, added = np.broadcast_arrays(form.factor, form.added)
    bits = form.divisor.bit_length() - 1
    own = added - ((1 << bits) >> 1)
    if form.divisor == 1 << bits and bits <= 31 and _fits(factor, own):
        before, factor, added = _words(0 * own, factor, own)
        return Shift(before, factor, added, bits, low, high)
    return _by_thresholds(form, of, low, high) if (high - low) * factor.size <= MOST_LEVELS else None


def _fits(*numbers: Array) -> bool:
    return all(INT32.min <= np.min(n) and np.max(n) <= INT32.max for n in numbers)


def _words(*numbers: Array) -> Array:
    return np.stack(numbers).astype(np.int32)


def _by_thresholds(form: Form, of: Range, low: int, high: int) -> Shift | None:
    """A product and a shift with as many bits as fit, for which each result begins at the same number.

    Numbers get an integer added first, so that what is added to products is small.
    """
    factor, added = (a.ravel() for a in np.broadcast_arrays(form.factor, form.added))
    half = form.divisor // 2  # which the shift adds
    before = np.where(factor == 0, 0, (added - half) // np.where(factor == 0, 1, factor))
    if not _fits(before + of[0], before + of[1]):
        return None
    rest, results = added - before * factor, np.arange(low + 1, high + 1)
    size, sign = np.abs(factor), np.where(factor < 0, -1, 1)
    # Of numbers times the sign, the first at which each result begins, and the ends.
    begin = -(-(np.multiply.outer(results.astype(object), [form.divisor]) - rest) // np.where(size == 0, 1, size))
    begin = np.clip(begin, -FAR, FAR).astype(np.int64)
    ends = np.sort(np.stack([(before + end) * sign for end in of]).astype(np.int64), axis=0)
    constant = np.clip(rest // form.divisor, low, high).astype(np.int64)
    for bits in range(MOST_BITS, -1, -1):
        wanted = (size * (2 << bits) + form.divisor) // (2 * form.divisor)
        if not _fits(wanted) or wanted[size > 0].min(initial=INT32.max) < 1 << max(bits - 30, 0):
            continue  # a factor of few bits loses more, and its half has no place in 64 bits beside 31 bits of another
        wanted = wanted.astype(np.int64)
        starts = results[:, None] << bits
        least = np.where((size > 0) & (begin <= ends[1]), starts - wanted * np.maximum(begin, ends[0]), -FAR << 29)
        most = np.where((size > 0) & (begin > ends[0]), starts - 1 - wanted * np.minimum(begin - 1, ends[1]), FAR << 29)
        least = np.where((size == 0) & (results[:, None] <= constant), starts, least)
        most = np.where((size == 0) & (results[:, None] > constant), starts - 1, most)
        lowest, highest = least.max(axis=0, initial=-FAR << 29), most.min(axis=0, initial=FAR << 29)
        own = np.clip(0, lowest - ((1 << bits) >> 1), highest - ((1 << bits) >> 1))
        if (lowest <= highest).all() and _fits(own):
            shape = np.broadcast_shapes(form.factor.shape, form.added.shape)
            before, factor, added = (a.reshape(shape) for a in _words(before, wanted * sign, own))
            return Shift(before, factor, added, bits, low, high)
    return None
