"""How far real numbers may lie from an oracle's: both add in orders of their own, so both are rounded otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
Rng = np.random.Generator
RELATIVE = 1e-5  # of the largest value of a tensor
MOST = 1e-3  # of the same: less than a step of eight bits, which a nudge may turn, too
NUDGES = (1.0, 0.0, 0.5, 0.5, 0.5, 0.5)  # share of the elements that move up: of a mean that cancels all must
MARGIN = 8  # sums of n terms are rounded n times, the operands were moved once


def distance(a: Array, b: Array) -> float:
    """The largest difference of two elements. Equal infinities are none, two NaN are none, one NaN is infinite."""
    mine, theirs = a.astype(np.float64), b.astype(np.float64)
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    with np.errstate(invalid="ignore"):
        differences = np.where(same, 0.0, np.abs(mine - theirs))
    return float(np.max(np.nan_to_num(differences, nan=np.inf, posinf=np.inf), initial=0.0))


def largest(a: Array) -> float:
    """The largest absolute value of the finite elements."""
    values = np.abs(a.astype(np.float64))
    return float(np.max(values, where=np.isfinite(values), initial=0.0))


def limit(theirs: Array, moved: float = 0.0) -> float:
    """The difference that is rounding: none of integers. `moved`: what `moves` found for this tensor."""
    if theirs.dtype.kind != "f":
        return 0.0
    most = largest(theirs)
    return max(RELATIVE * most, min(moved, MOST * most))


def moves(
    vectors: list[list[Array]],
    run: Callable[[list[list[Array]], Rng | None], Sequence[Mapping[str, Array]]],
) -> dict[str, float]:
    """By name of a tensor of real numbers: how far it may move where operands move by one step, MARGIN included.

    A sum whose terms cancel is small, and its rounding is not: RELATIVE does not tell that. A computed sum of products
    is the exact one of operands that moved a little (Higham, Accuracy and Stability, 3.1); so constants move, too.
    `run`: gives the tensors of each vector, with the model's constants as they are, or `nudged` by the given numbers.
    """
    rng, base = np.random.default_rng(1), run(vectors, None)
    most = {name: 0.0 for name, value in base[0].items() if value.dtype.kind == "f"}
    for up in NUDGES:
        near = run([[nudged(x, rng, up) for x in row] for row in vectors], rng)
        for mine, theirs in zip(near, base, strict=True):
            most = {name: max(m, distance(mine[name], theirs[name])) for name, m in most.items()}
    return {name: MARGIN * m if np.isfinite(m) else 0.0 for name, m in most.items()}


def nudged(x: Array, rng: Rng, up: float = 0.5) -> Array:
    """Real numbers moved by one step, this share of them up; finite ones remain finite, others and 0 what they are."""
    if x.dtype.kind != "f":
        return x
    most = float(np.finfo(str(x.dtype)).max)
    towards = np.where(rng.random(x.shape) < up, most, -most).astype(x.dtype)
    return np.asarray(np.where(np.isfinite(x) & (x != 0), np.nextafter(x, towards), x), x.dtype)
