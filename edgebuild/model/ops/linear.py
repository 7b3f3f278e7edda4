"""Results of few quantised operands as one linear form in int32:

    y = clamp(((f0 x0 >> down0) + (f1 x1 >> down1) + offset) >> shift)

The arithmetics round several times, in 64 bits. But int8 operands have 2^16 pairs of values at most. Trying them all
tells whether a form is equal to the arithmetic. Only forms that are equal everywhere are used.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import product

import numpy as np

from ...base.dataclass import dataclass
from ..ir import Array

INT8 = np.arange(-128, 128, dtype=np.int64)
MOST_VALUES = 2**20  # that are tried


@dataclass(frozen=True)
class Term:
    """An operand's `values` (shaped for broadcasting), its weight in the result, the bits its product is shifted."""

    values: Array
    weight: float
    down: int


@dataclass(frozen=True)
class Linear:
    factors: tuple[int, ...]
    offset: int
    shift: int


def fit(terms: Sequence[Term], want: Array, low: int, high: int) -> Linear | None:
    """The form that gives `want`, which is clamped to [low, high], for all values; the finest that int32 holds.

    A search of plans asks for the same form many times, so answers are kept.
    """
    key = hashlib.sha256(want.tobytes())
    for t in terms:
        key.update(t.values.tobytes())
    known = (key.digest(), want.shape, low, high, *((t.values.shape, t.weight, t.down) for t in terms))
    if known not in _found:
        _found[known] = _fit(terms, want, low, high)
    return _found[known]


_found: dict[tuple[object, ...], Linear | None] = {}


def _fit(terms: Sequence[Term], want: Array, low: int, high: int) -> Linear | None:
    tried = 0
    for shift in range(30, 7, -1):
        factors = [round(t.weight * 2.0 ** (shift + t.down)) for t in terms]
        reach = sum(abs(f) * int(abs(t.values).max()) >> t.down for f, t in zip(factors, terms, strict=True))
        if max(map(abs, factors)) >= 2**31 - 1 or reach >= 2**30:
            continue
        for nudge in product((0, 1, -1), repeat=len(terms)):
            nudged = tuple(f + n for f, n in zip(factors, nudge, strict=True))
            found = _offset(terms, nudged, shift, want, low, high)
            if found is not None:
                return Linear(nudged, found, shift)
        tried += 1
        if tried == 2:  # what the finest forms do not give, coarser ones will not
            break
    return None


def _offset(
    terms: Sequence[Term], factors: tuple[int, ...], shift: int, want: Array, low: int, high: int
) -> int | None:
    """The middle of the offsets that serve all values: want << shift <= sum + offset < (want + 1) << shift."""
    total = np.zeros(want.shape, np.int64)
    for f, t in zip(factors, terms, strict=True):
        total = total + (f * t.values >> t.down)
    want = want.astype(np.int64)
    least = int(((want << shift) - total)[want > low].max(initial=-(2**31)))
    most = int((((want + 1) << shift) - 1 - total)[want < high].min(initial=2**31 - 1))
    offset = (least + most) // 2
    fits = abs(offset) < 2**31 and int(total.min()) + offset >= -(2**31) and int(total.max()) + offset < 2**31
    return offset if least <= most and fits else None


@dataclass(frozen=True)
class Scaled:
    """An integer x to clamp((high(x' << up, factor) + offset) >> shift), where high is the upper word of a product.

    x' is x, or x - 1 for negative x if `away`: then halves are rounded away from zero.
    """

    factor: int
    offset: int
    shift: int
    up: int
    away: bool


def scale(first: int, want: Array, weight: float, low: int, high: int) -> Scaled | None:
    """The form that takes first, first + 1, ... to `want`: about `weight` times that, clamped to [low, high]."""
    if want.size > MOST_VALUES:
        return None
    values = np.arange(first, first + want.size, dtype=np.int64)
    up = 30 - int(abs(values).max()).bit_length()
    for away in (False, True):
        found = fit((Term(values - (away & (values < 0)), weight, 32 - up),), want, low, high)
        if found is not None:
            return Scaled(found.factors[0], found.offset, found.shift, up, away)
    return None
