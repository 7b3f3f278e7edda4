"""Loops over tensors that step differently through each: with as few levels as can be."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

Loop = tuple[int, ...]  # extent, then the step of each operand
PART = 256  # float32 values that are added up at a time: of equal ones, 3e-6 of the sum is rounded away


def steps(shape: Sequence[int]) -> list[int]:
    """Elements from one index of each dimension to the next."""
    return [prod(shape[d + 1 :]) for d in range(len(shape))]


def broadcast_steps(shape: Sequence[int], rank: int) -> list[int]:
    """The same for a tensor that is broadcast to `rank` dimensions: 0 where it repeats."""
    own = [step if n > 1 else 0 for n, step in zip(shape, steps(shape), strict=True)]
    return [0] * (rank - len(shape)) + own


def collapsed(extents: Sequence[int], *operands: Sequence[int]) -> tuple[Loop, ...]:
    """Loops over `extents`, outermost first; those that go on where the inner one ends are one, those of 1 are none."""
    found: list[Loop] = []
    for extent, *moves in reversed(list(zip(extents, *operands, strict=True))):
        if extent == 1:
            continue
        inner = found[-1] if found else None
        if inner is not None and all(m == step * inner[0] for m, step in zip(moves, inner[1:], strict=True)):
            found[-1] = (extent * inner[0], *inner[1:])
        else:
            found.append((extent, *moves))
    return tuple(reversed(found)) or ((1, *(0 for _ in operands)),)


def turning(extents: Sequence[int], *operands: Sequence[int]) -> tuple[Loop, ...]:
    """The same, and none at all where there is one element."""
    return tuple(loop for loop in collapsed(extents, *operands) if loop[0] > 1)


def parts(count: int, is_float: bool) -> int:
    """Of how many values the parts of a sum of `count` are; 0: it has none."""
    return PART if is_float and count > PART else 0


def runs(sizes: Sequence[int], whole: Sequence[int]) -> tuple[tuple[Loop, ...], int]:
    """A part of a tensor: loops with the tensor's step, and how many elements lie side by side in the innermost."""
    *outer, last = collapsed(sizes, steps(whole))
    if last[0] == 1 or last[1] == 1:
        return tuple(outer), last[0]
    return (*outer, last), 1
