"""C without repetition: loops for calls that repeat, and one function for kernels that differ only in numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from textwrap import indent
from typing import Any, TypeVar

from ...base.templates import times
from ...base.text import remark, wrapped
from ..ops.base import Kernel

MAX_CALLS = 24  # calls in the body of a loop
MIN_SAVED = 3  # calls that a loop must save
WIDTH = 100  # characters of arguments in a line

Other = TypeVar("Other")


@dataclass(frozen=True)
class Arg:
    """An argument of a call: C with a number in place of {} in `text`, or without one if `offset` is None.

    The number is `offset`, added to the C constant `base`, whose value is `start`, if there is one. In a loop it grows
    by `step` with every iteration `t`.
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
    """A call of a kernel. `groups`: its arguments, one tuple for each line of C."""

    comment: str
    function: str
    groups: tuple[tuple[Arg, ...], ...]
    fails: bool = False  # it returns an error code, 0 for none

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
    """A step of the schedule as C: its statement in the schedule, and the function that this calls, if there is one.

    Without a comment the statement is printed unchanged. `calls`: of kernels whose constants come from the weights.
    """

    comment: str
    statement: str
    calls: tuple[Call, ...] = ()
    function: str = ""  # its head
    definition: str = ""
    tables: str = ""  # the common code that its function needs: `tiles`, `streams` or none
    sliced: bool = False  # its function resumes where it stopped, and returns whether it is done

    def text(self, number: int, margin: str) -> str:
        """The statement in the schedule."""
        if not self.comment:
            return self.statement
        return f"{remark(margin, f'{number}  {self.comment}')}\n{indent(self.statement, margin)}"


@dataclass(frozen=True)
class Loop:
    """`calls` that C executes `count` times, with `t` as the iteration. `step`: the step of the first call."""

    step: int
    count: int
    calls: tuple[Call, ...]

    @property
    def text(self) -> str:
        """The statement in C, as the schedule has it."""
        margin = 8 * " "
        calls = (f"{margin}EB_STEP();\n{remark(margin, c.comment)}\n{indent(c.text, margin)}" for c in self.calls)
        body = "\n".join(calls)
        return f"    for (int32_t t = 0; t < {self.count}; ++t) {{ /* steps from {self.step} on */\n{body}\n    }}"


def looped(steps: Sequence[Other]) -> list[Other | Loop]:
    """The steps, with a loop for each stretch of calls that repeat."""
    schedule: list[Other | Loop] = []
    at = 0
    while at < len(steps):
        turns, body = max(((_turns(steps, at, n), n) for n in range(1, MAX_CALLS + 1)), key=lambda r: (r[0] - 1) * r[1])
        if (turns - 1) * body < MIN_SAVED:
            schedule.append(steps[at])
            at += 1
            continue
        calls = [_with_t(steps[at + i], steps[at + body + i]) for i in range(body)]
        schedule.append(Loop(at, turns, tuple(calls)))
        at += turns * body
    return schedule


def _differ_in_numbers(a: object, b: object) -> bool:
    """Whether two calls differ in numbers only."""
    if not isinstance(a, Call) or not isinstance(b, Call) or a.function != b.function or len(a.args) != len(b.args):
        return False
    pairs = zip(a.args, b.args, strict=True)
    return all(x.text == y.text and (x.offset is None) == (y.offset is None) for x, y in pairs)


def _turns(steps: Sequence[object], at: int, body: int) -> int:
    """The number of times that the `body` calls from `at` on repeat, every number growing by a constant step."""
    turns = 1
    while at + (turns + 1) * body <= len(steps):
        for i in range(at, at + body):
            first, second, this = steps[i], steps[i + body], steps[i + turns * body]
            if not _differ_in_numbers(first, this) or not _differ_in_numbers(first, second):
                return turns
            assert isinstance(first, Call) and isinstance(second, Call) and isinstance(this, Call)
            there = zip(first.args, second.args, this.args, strict=True)
            if any(c.value != a.value + turns * (b.value - a.value) for a, b, c in there):
                return turns
        turns += 1
    return turns


def _with_t(call: object, after: object) -> Call:
    """The call of the first iteration, with the step by which each argument grows."""
    assert isinstance(call, Call) and isinstance(after, Call)
    later = iter(after.args)
    groups = [tuple(replace(a, step=next(later).value - a.value) for a in group) for group in call.groups]
    return replace(call, groups=tuple(groups))


# One C function for kernels that differ only in numbers: those become parameters of the function.
#
# Printing the template with letters in place of numbers tells which may. A letter can be calculated with, and answers
# questions on which all kernels agree. A template that needs to know more separates kernels by that number.


class NumberNeeded(Exception):
    """Raised when a template asks something about a letter to which the kernels have different answers."""

    def __init__(self, keys: frozenset[str]) -> None:
        super().__init__(f"the numbers of {', '.join(sorted(keys))}")
        self.keys = keys


def _calculated(sign: str, f: Callable[[int, int], int], turned: bool = False) -> Callable[[Letter, Any], Any]:
    return lambda a, b: a.term(sign, f, b, turned)


def _asked(f: Callable[[int, int], bool]) -> Callable[[Letter, Any], bool]:
    return lambda a, b: bool(a.term("?", f, b, False))


@dataclass(frozen=True, eq=False)
class Letter:
    """A C expression in parameters of a function, and its value for each kernel that shares the function.

    `keys` are the entries of the kernels' shapes in the expression; `printed` collects the keys that the printed code
    names. The filter `noted` prints a letter in a comment, where it does not count as a use.
    """

    text: str
    values: tuple[int, ...]
    keys: frozenset[str]
    printed: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        self.printed.update(self.keys)
        return self.text

    def __index__(self) -> int:
        return int(self._agreed(self.values))

    def __bool__(self) -> bool:
        return bool(self._agreed([v != 0 for v in self.values]))

    def _agreed(self, answers: Sequence[int | bool]) -> int | bool:
        if len(set(answers)) > 1:
            raise NumberNeeded(self.keys)
        return answers[0]

    def term(self, sign: str, f: Callable[[int, int], int], other: Any, turned: bool) -> Any:
        if not isinstance(other, Letter):
            if (sign, other) == ("*", 0):
                return 0
            if (sign, other) in (("*", 1), ("+", 0)):
                return self
            other = Letter(str(other), (int(other),) * len(self.values), frozenset())
        a, b = (other, self) if turned else (self, other)
        keys = a.keys | b.keys
        if sign in "/%" and (min(*a.values, *b.values) < 0 or 0 in b.values):
            raise NumberNeeded(keys)  # C rounds toward zero, Python down
        values = tuple(map(f, a.values, b.values))
        return Letter(f"({a.text} {sign} {b.text})", values, keys, self.printed)

    __hash__ = object.__hash__  # hashed by identity, because `==` compares values
    __add__ = _calculated("+", operator.add)
    __radd__ = _calculated("+", operator.add, turned=True)
    __sub__ = _calculated("-", operator.sub)
    __rsub__ = _calculated("-", operator.sub, turned=True)
    __mul__ = _calculated("*", operator.mul)
    __rmul__ = _calculated("*", operator.mul, turned=True)
    __floordiv__ = _calculated("/", operator.floordiv)
    __rfloordiv__ = _calculated("/", operator.floordiv, turned=True)
    __mod__ = _calculated("%", operator.mod)
    __rmod__ = _calculated("%", operator.mod, turned=True)
    __eq__, __ne__ = _asked(operator.eq), _asked(operator.ne)
    __lt__, __le__, __gt__, __ge__ = map(_asked, (operator.lt, operator.le, operator.gt, operator.ge))


def shared(
    kernels: Sequence[Kernel], kinds: Sequence[object], prints: Callable[[Kernel], str], least: int
) -> list[Kernel]:
    """The kernels, with parameters for the numbers in which they differ from kernels of the same text.

    Only kernels of one kind are merged, and only if their text has at least `least` characters. `prints`
    renders a kernel's template.
    """
    merged = list(kernels)
    groups: dict[object, list[int]] = {}
    for i, (kernel, kind) in enumerate(zip(kernels, kinds, strict=True)):
        fixed = tuple((k, None if type(v) is int else v) for k, v in sorted(kernel.shape.items()))
        groups.setdefault((kernel.template, fixed, tuple(kernel.scalars), kind), []).append(i)
    waiting = list(groups.values())
    while waiting:
        members = waiting.pop()
        letters = _letters([kernels[i] for i in members])
        first = replace(kernels[members[0]], shape={**kernels[members[0]].shape, **letters})
        try:
            text = prints(first) if letters else ""
        except NumberNeeded as problem:  # retry in smaller groups that agree on the number
            waiting += _parted(kernels, members, min(problem.keys))
            continue
        if letters and len(text) >= least:
            words = zip(*(kernels[i].stem.split("_") for i in members), strict=False)
            stem = "_".join(same[0] for same in takewhile(lambda w: len(set(w)) == 1, words))
            stem = stem or _stem_of_template(first.template)
            used = {key: letter for key, letter in letters.items() if key in letter.printed}
            for i in members:
                numbers: dict[str, Any] = {letter.text: kernels[i].shape[key] for key, letter in used.items()}
                scalars = {**kernels[i].scalars, **numbers}
                merged[i] = replace(kernels[i], stem=stem, shape=first.shape, scalars=scalars)
    return merged


def _stem_of_template(template: str) -> str:
    """The template's folder and piece, or its file if it has no pieces: arm_dsp_svdf of `arm_dsp/matrix.c:svdf`."""
    file, _, piece = template.partition(":")
    folder, _, name = file.rpartition("/")
    return "_".join(filter(None, (folder, piece or name.partition(".")[0])))


def _parted(kernels: Sequence[Kernel], members: Iterable[int], key: str) -> list[list[int]]:
    """The members, grouped by the value of this entry of their shapes."""
    parts: dict[object, list[int]] = {}
    for i in members:
        parts.setdefault(kernels[i].shape[key], []).append(i)
    return list(parts.values())


def _letters(kernels: Sequence[Kernel]) -> dict[str, Any]:
    """A letter for every number in which the shapes differ."""
    numbers: dict[str, Any] = {key: tuple(k.shape[key] for k in kernels) for key in kernels[0].shape}
    printed = set[str]()
    return {
        key: Letter(key.upper(), values, frozenset({key}), printed)
        for key, values in numbers.items()
        if len(set(values)) > 1
    }
