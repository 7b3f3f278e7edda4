"""Critical buffers: those that a layout would be lower without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rectangle:
    """Bytes [offset, past) taken by a buffer during the steps `first` to `last`, both inclusive."""

    name: str
    offset: int
    past: int
    first: int
    last: int


def critical(pieces: Sequence[Rectangle]) -> tuple[str, ...]:
    """Buffers of all chains that reach from the top to zero, each standing on the next; the largest first.

    Two buffers touch if one ends where the other begins while both are live (Stahl 2024, section 4.3.3). Where no
    chain reaches zero, because of gaps, all that is live below a highest buffer counts.
    """
    height = max((p.past for p in pieces), default=0)
    reached: dict[Rectangle, bool] = {}
    ends: dict[int, list[Rectangle]] = {}
    for piece in pieces:
        ends.setdefault(piece.past, []).append(piece)

    def rests(piece: Rectangle) -> bool:
        """Whether a chain from here reaches zero; marks what it goes through."""
        if piece not in reached:
            reached[piece] = False
            below = [rests(p) for p in ends.get(piece.offset, ()) if _meet(p, piece)]
            reached[piece] = piece.offset == 0 or any(below)
        return reached[piece]

    tops = [p for p in pieces if p.past == height]
    complete = [rests(p) for p in tops]
    if not any(complete):
        reached = {p: True for p in pieces if any(_meet(p, top) for top in tops)}
    sizes = {p.name: p.past - p.offset for p, rests_on in reached.items() if rests_on}
    return tuple(sorted(sizes, key=lambda name: (-sizes[name], name)))


def _meet(a: Rectangle, b: Rectangle) -> bool:
    return a.first <= b.last and b.first <= a.last
