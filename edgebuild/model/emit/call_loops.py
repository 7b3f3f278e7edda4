"""Runs of calls that repeat with arguments in arithmetic progression, as loops: how parts of one path are printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from textwrap import indent
from typing import TypeVar

from ...base.dataclass import dataclass
from ...base.templates import times
from ...base.text import remark
from .names import wrapped

LONGEST = 24  # calls in the body of a loop
LEAST = 3  # calls that a loop must save
WIDTH = 100  # characters of arguments in a line

Other = TypeVar("Other")


@dataclass(frozen=True)
class Arg:
    """An argument of a call: C with one number where `text` has {}, or with none if `offset` is None.

    The number is `offset`, behind the constant `base` if there is one, which is worth `start`. In a loop it grows by
    `step` in every turn `t`.
    """

    text: str
    offset: int | None = None
    base: str = ""
    start: int = 0
    step: int = 0

    @property
    def value(self) -> int:
        return self.start + (self.offset or 0)

    def __str__(self) -> str:
        if self.offset is None:
            return self.text
        terms = [self.base] if self.base else []
        terms += [str(self.offset)] if self.offset or not self.base else []
        turns = f" {'-' if self.step < 0 else '+'} {times('t', abs(self.step))}" if self.step else ""
        return self.text.format(" + ".join(terms) + turns)


@dataclass(frozen=True)
class Call:
    """A call of a kernel. `groups`: its arguments, those of a line together."""

    comment: str
    function: str
    groups: tuple[tuple[Arg, ...], ...]
    fails: bool = False  # it returns a code, 0 if all is well

    @property
    def args(self) -> tuple[Arg, ...]:
        return tuple(arg for group in self.groups for arg in group)

    @property
    def text(self) -> str:
        """The statement in C; a call that fails ends the inference with its code."""
        arguments = ",\n".join(wrapped("", [str(arg) for arg in group], "", WIDTH) for group in self.groups)
        call = f"{self.function}(\n{indent(arguments, '    ')});"
        return f"status = {call}\nif (status != EB_OK) {{\n    return status;\n}}" if self.fails else call


@dataclass(frozen=True)
class Step:
    """A step of the schedule as C: its statement there, and the function that is called by it, if it has one.

    Without a comment the statement is printed as it is. `calls`: of kernels whose constants come from the weights.
    """

    comment: str
    statement: str
    calls: tuple[Call, ...] = ()
    function: str = ""  # its head
    definition: str = ""
    tables: str = ""  # what its function has in common with others: `tiles` or `streams`

    def text(self, number: int) -> str:
        """The statement in the schedule."""
        if not self.comment:
            return self.statement
        return f"{remark('    ', f'{number}  {self.comment}')}\n{indent(self.statement, '    ')}"


@dataclass(frozen=True)
class Loop:
    """`calls` are made `count` times; in their arguments `t` is the number of the turn. `step`: of the first call."""

    step: int
    count: int
    calls: tuple[Call, ...]

    @property
    def text(self) -> str:
        """The statement in C, as it stands in the schedule."""
        margin = 8 * " "
        calls = (f"{margin}EB_STEP();\n{remark(margin, c.comment)}\n{indent(c.text, margin)}" for c in self.calls)
        body = "\n".join(calls)
        return f"    for (int32_t t = 0; t < {self.count}; ++t) {{ /* steps from {self.step} on */\n{body}\n    }}"


def looped(steps: Sequence[Other]) -> list[Other | Loop]:
    """The steps with loops in place of calls that repeat."""
    found: list[Other | Loop] = []
    at = 0
    while at < len(steps):
        turns, body = max(((_turns(steps, at, n), n) for n in range(1, LONGEST + 1)), key=lambda r: (r[0] - 1) * r[1])
        if (turns - 1) * body < LEAST:
            found.append(steps[at])
            at += 1
            continue
        calls = [_with_t(steps[at + i], steps[at + body + i]) for i in range(body)]
        found.append(Loop(at, turns, tuple(calls)))
        at += turns * body
    return found


def _alike(a: object, b: object) -> bool:
    """Two calls that differ in nothing but numbers."""
    if not isinstance(a, Call) or not isinstance(b, Call) or a.function != b.function or len(a.args) != len(b.args):
        return False
    pairs = zip(a.args, b.args, strict=True)
    return all(x.text == y.text and (x.offset is None) == (y.offset is None) for x, y in pairs)


def _turns(steps: Sequence[object], at: int, body: int) -> int:
    """How often the `body` calls from `at` on are made, each time with all numbers further by the same steps."""
    turns = 1
    while at + (turns + 1) * body <= len(steps):
        for i in range(at, at + body):
            first, second, this = steps[i], steps[i + body], steps[i + turns * body]
            if not _alike(first, this) or not _alike(first, second):
                return turns
            assert isinstance(first, Call) and isinstance(second, Call) and isinstance(this, Call)
            there = zip(first.args, second.args, this.args, strict=True)
            if any(c.value != a.value + turns * (b.value - a.value) for a, b, c in there):
                return turns
        turns += 1
    return turns


def _with_t(call: object, after: object) -> Call:
    """The call of the first turn with what is added in each later one."""
    assert isinstance(call, Call) and isinstance(after, Call)
    later = iter(after.args)
    groups = [tuple(replace(a, step=next(later).value - a.value) for a in group) for group in call.groups]
    return replace(call, groups=tuple(groups))
