"""Layouts by one pass over the buffers: fast, and on most networks already optimal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from edgebuild.model.plan.memory.sections import Sections

Key = Callable[[Sections, int], int]

# What makes a buffer hard to place; the letters name the orders in which buffers are placed.
_KEYS: dict[str, Key] = {
    "T": lambda s, i: max(s.sums[slice(*s.spans[i])]),  # the tightest section that it crosses
    "O": lambda s, i: len(s.conflicts[i]),  # how many others it is in the way of
    "W": lambda s, i: s.spans[i][1] - s.spans[i][0],  # its width in sections
    "Z": lambda s, i: s.buffers[i].size,
    "A": lambda s, i: s.buffers[i].size * (s.spans[i][1] - s.spans[i][0]),  # its area
    "L": lambda s, i: -s.spans[i][0],  # how early it begins
}
ORDERS = ("Z", "A", "TA", "TZ", "W", "OZ", "L", "TO", "AT")


def static_order(sections: Sections, letters: str) -> list[int]:
    """The buffers, hardest first by the first letter, ties broken by the next ones and then as given."""
    keys = [_KEYS[letter] for letter in letters]
    return sorted(range(len(sections.buffers)), key=lambda i: (*(-key(sections, i) for key in keys), i))


def layouts(sections: Sections) -> Iterator[list[int]]:
    """Offsets per buffer, by several rules in several orders."""
    for letters in ORDERS:
        order = static_order(sections, letters)
        yield _first_fit(sections, order)
        yield _lowest_first(sections, order)
        yield _first_fit(sections, order, best=True)


def best(sections: Sections, enough: int) -> list[int]:
    """The lowest of the layouts; the first of at most `enough` bytes will do."""
    lowest = list[int]()
    for offsets in layouts(sections):
        if not lowest or height(sections, offsets) < height(sections, lowest):
            lowest = offsets
        if height(sections, lowest) <= enough:
            break
    return lowest


def height(sections: Sections, offsets: Sequence[int]) -> int:
    return max((at + b.size for at, b in zip(offsets, sections.buffers, strict=True)), default=0)


def _first_fit(sections: Sections, order: Sequence[int], best: bool = False) -> list[int]:
    """Every buffer, in `order`, at the lowest gap that it fits into, or with `best` at the smallest."""
    offsets = [-1] * len(order)
    for i in order:
        b = sections.buffers[i]
        at, gaps = 0, list[tuple[int, int]]()  # (size of the gap, offset)
        placed = [j for j in sections.conflicts[i] if offsets[j] >= 0]
        for start, end in sorted(blocked for j in placed for blocked in sections.blocked(i, j, offsets[j])):
            if at <= start:
                gaps.append((start - at, at))
                if not best:
                    break
            at = max(at, _aligned(end, b.align))
        offsets[i] = min(gaps, default=(0, at))[1]
    return offsets


def _lowest_first(sections: Sections, order: Sequence[int]) -> list[int]:
    """Always the buffer that can lie lowest on top of those placed; `order` breaks ties."""
    lowest = [0] * len(order)
    left = list(order)
    while left:
        i = min(left, key=lowest.__getitem__)
        left.remove(i)
        for j in sections.conflicts[i].intersection(left):
            end = max((end for _, end in sections.blocked(j, i, lowest[i])), default=0)
            lowest[j] = max(lowest[j], _aligned(end, sections.buffers[j].align))
    return lowest


def _aligned(offset: int, align: int) -> int:
    return -(-offset // align) * align
