"""The order of a rolled run's calls as a table: it repeats itself, so it is kept as lines and how often each is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from .names import wrapped

MOST = 255  # a byte; repeats of a line, and its length


@dataclass(frozen=True)
class Line:
    """`numbers` are run through `count` times."""

    count: int
    numbers: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return 2 + len(self.numbers)


@dataclass(frozen=True)
class Order:
    """The table of a rolled run. `labels`: by number what has its next row made; `names`: the constants for them."""

    lines: tuple[Line, ...]
    labels: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return sum(line.bytes for line in self.lines)

    @property
    def printed(self) -> list[str]:
        """The table as C: before each line, in a comment, the rows that it makes the first time that it is run."""
        found = []
        for line, words in zip(self.lines, in_words(self.lines, self.labels), strict=True):
            found += wrapped("/* ", words, " */", 112).splitlines()
            head = f"{line.count}, {len(line.numbers)}, "
            found += wrapped(head, [self.names[n] for n in line.numbers], ",", 112).splitlines()
        return found


def lines(order: Sequence[int], longest: int = 64) -> list[Line]:
    """The fewest bytes of lines that give the order; lines that repeat have at most `longest` numbers."""
    end = len(order)
    same = [[0] * (longest + 1) for _ in range(end + 1)]  # from here on as many numbers are those `length` later
    best = [(0, 0, 0)] * (end + 1)  # from here on: bytes, and count and length of the first line
    for at in reversed(range(end)):
        found = []
        for length in range(1, min(MOST, end - at) + 1):
            found.append((2 + length + best[at + length][0], 1, length))
            if length <= longest and at + length < end and order[at] == order[at + length]:
                same[at][length] = same[at + 1][length] + 1
                turns = min(MOST, 1 + same[at][length] // length)
                found.append((2 + length + best[at + turns * length][0], turns, length))
        best[at] = min(found)
    result, at = list[Line](), 0
    while at < end:
        _, count, length = best[at]
        result.append(Line(count, tuple(order[at : at + length])))
        at += count * length
    return result


def in_words(order: Sequence[Line], labels: Sequence[str]) -> list[list[str]]:
    """Calls of each line: rows of each op, the first time that the line is run. `labels`: of the ops."""
    rows, found = [0] * len(labels), []
    for line in order:
        made, words = list(rows), list[str]()
        for number, calls in groupby(line.numbers):
            count = len(list(calls))
            last = made[number] + count - 1
            words.append(f"{labels[number]} {made[number]}" + (f"-{last}" if count > 1 else ""))
            made[number] += count
        rows = [before + line.count * (after - before) for before, after in zip(rows, made, strict=True)]
        if line.count > 1:
            words[0] = f"{line.count} times: {words[0]}"
        found.append(words)
    return found
