"""Runs of calls that repeat with arguments in arithmetic progression, as loops: how parts of one path are printed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

LONGEST = 24  # calls in the body of a loop
LEAST = 3  # calls that a loop must save

Step = TypeVar("Step")

# What may differ from turn to turn: offsets of pointers, and whole numbers behind their names.
_NUMBER = re.compile(r"(?<=, )[^(),]+(?=\))|(?<=\*/ )-?\d+(?![\w.])")


@dataclass(frozen=True)
class Call:
    """A call of a kernel."""

    comment: str
    function: str
    lines: tuple[str, ...]  # arguments


@dataclass(frozen=True)
class Loop:
    """`calls` are made `count` times; in their arguments `t` is the number of the turn. `step`: of the first call."""

    step: int
    count: int
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class _Form:
    """A call apart from the numbers in it."""

    function: str
    text: tuple[str, ...]
    values: tuple[int, ...]


def looped(steps: Sequence[Step], offsets: Mapping[str, int]) -> list[Step | Loop]:
    """The steps with loops in place of calls that repeat. `offsets` are the values of the names in arguments."""
    forms = [_form(step, offsets) if isinstance(step, Call) else None for step in steps]
    found: list[Step | Loop] = []
    at = 0
    while at < len(steps):
        turns, body = max(((_turns(forms, at, n), n) for n in range(1, LONGEST + 1)), key=lambda r: (r[0] - 1) * r[1])
        if (turns - 1) * body < LEAST:
            found.append(steps[at])
            at += 1
            continue
        calls = [_with_t(steps[at + i], forms[at + i], forms[at + body + i], offsets) for i in range(body)]
        found.append(Loop(at, turns, tuple(calls)))
        at += turns * body
    return found


def _form(call: Call, offsets: Mapping[str, int]) -> _Form:
    numbers = [_value(m.group(), offsets) for line in call.lines for m in _NUMBER.finditer(line)]
    return _Form(call.function, tuple(_NUMBER.sub("", line) for line in call.lines), tuple(numbers))


def _value(text: str, offsets: Mapping[str, int]) -> int:
    return sum(offsets[term] if term in offsets else int(term) for term in text.split(" + "))


def _turns(forms: Sequence[_Form | None], at: int, body: int) -> int:
    """How often the `body` calls from `at` on are made, each time with all numbers further by the same steps."""
    turns = 1
    while at + (turns + 1) * body <= len(forms):
        for i in range(at, at + body):
            first, second, this = forms[i], forms[i + body], forms[i + turns * body]
            if first is None or second is None or this is None:
                return turns
            if (this.function, this.text) != (first.function, first.text) or second.text != first.text:
                return turns
            there = zip(first.values, second.values, this.values, strict=True)
            if any(c != a + turns * (b - a) for a, b, c in there):
                return turns
        turns += 1
    return turns


def _with_t(call: Step, form: _Form | None, after: _Form | None, offsets: Mapping[str, int]) -> Call:
    """The call of the first turn with what is added in each later one."""
    assert isinstance(call, Call) and form is not None and after is not None
    steps = iter([b - a for a, b in zip(form.values, after.values, strict=True)])

    def number(match: re.Match[str]) -> str:
        step = next(steps)
        more = f" {'-' if step < 0 else '+'} t * {abs(step)}" if step else ""
        return match.group() + more

    return replace(call, lines=tuple(_NUMBER.sub(number, line) for line in call.lines))
