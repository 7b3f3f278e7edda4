"""The calls of a rolled run, and those that put the newest row of a ring among the others.

A ring has one row more than its readers need between their calls: the row that was made last. If that row is made in a
place of its own, *apart*, the place serves other rings while this one waits. As soon as the oldest row is not wanted
any more, the new one is copied over it: it is kept. So the ring itself has a row less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .printed import newest_name as newest_name

Reads = tuple[tuple[str, int, int], ...]  # storage, first row, one past the last


class Event(NamedTuple):
    """One call: op number `op` of the run makes row `row` (or takes it up, if it reduces over rows).

    `writes` is None while a reduction is not complete; then it writes all rows at once. The number
    one past the last op stands for the application, which brings the next row of a streamed input. Those behind it
    stand for rings whose newest row is apart: the call keeps the row.
    """

    op: int
    row: int
    reads: Reads
    writes: tuple[str, int, int] | None  # storage, first row, one past the last


def with_keeping(events: Sequence[Event], rings: Mapping[str, int], first: int) -> tuple[Event, ...]:
    """The calls, and those that keep the rows of rings whose newest row is apart.

    `rings`: the rows that each of them keeps; their numbers begin with `first`, in this order. Rows that nobody reads
    later are not kept.
    """
    if not rings:
        return tuple(events)
    made, last = dict[tuple[str, int], int](), dict[tuple[str, int], int]()
    for at, event in enumerate(events):
        if event.writes is not None and event.writes[0] in rings:
            name, low, high = event.writes
            made.update(dict.fromkeys(((name, row) for row in range(low, high)), at))
        last.update({(name, row): at for name, low, high in event.reads if name in rings for row in range(low, high)})
    numbers = {name: first + i for i, name in enumerate(rings)}
    end = {name: max(at for (n, _), at in last.items() if n == name) for name in rings}
    kept: list[list[Event]] = [[] for _ in events]
    for (name, row), at in made.items():
        free = max(at, last.get((name, row - rings[name]), at))
        if free < end[name]:
            kept[free].append(Event(numbers[name], row, ((name, row, row + 1),), (name, row, row + 1)))
    return tuple(each for event, more in zip(events, kept, strict=True) for each in (event, *more))


def waiting(
    numbers: Sequence[int], made: Sequence[tuple[int, int]], until: Mapping[int, int], rows: int
) -> tuple[int, int]:
    """The least and the largest number of what is called while the newest row of a ring of so many rows is apart.

    `numbers`: of all calls. `made`: the calls that make a row, and one past it. `until`: the last call that reads each.
    """
    spans = [numbers[at : max(at, until.get(past - rows, at)) + 1] for at, past in made]
    return min(map(min, spans)), max(map(max, spans))
