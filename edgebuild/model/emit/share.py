"""One C function for kernels that differ only in numbers: those become parameters of the function.

Which numbers may is found by printing the template with letters in their place. A letter can be calculated with, and
answers questions on which all the kernels agree; a template that has to know more keeps kernels apart by that number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from itertools import takewhile
from typing import Any

from ...base.dataclass import dataclass
from ..ops.base import Kernel


class NumberNeeded(Exception):
    """A template asks something about a letter to which the kernels have different answers."""

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

    `keys` are the entries of the kernels' shapes that it is made of; `printed` collects those of a template's letters
    that the code names. The filter `noted` prints a letter in a comment, where it is no use.
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

    __hash__ = object.__hash__  # a letter is itself; what `==` compares are its values
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
    """The kernels, with parameters in place of the numbers in which they differ from others of the same text.

    Only kernels of one kind are brought together, and only if their text has `least` characters or more. `prints`
    renders a kernel's template.
    """
    found = list(kernels)
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
        except NumberNeeded as problem:
            waiting += _parted(kernels, members, min(problem.keys))
            continue
        if letters and len(text) >= least:
            stem = _common_words([kernels[i].stem for i in members]) or _file_words(first.template)
            used = {key: letter for key, letter in letters.items() if key in letter.printed}
            for i in members:
                numbers: dict[str, Any] = {letter.text: kernels[i].shape[key] for key, letter in used.items()}
                scalars = {**kernels[i].scalars, **numbers}
                found[i] = replace(kernels[i], stem=stem, shape=first.shape, scalars=scalars)
    return found


def _parted(kernels: Sequence[Kernel], members: Iterable[int], key: str) -> list[list[int]]:
    """The members by what they have for this entry of their shapes."""
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


def _file_words(template: str) -> str:
    """arm_dsp/conv_pairs.c.j2: arm_dsp_conv."""
    return template.partition(".")[0].replace("/", "_")


def _common_words(stems: Sequence[str]) -> str:
    """conv2d_3x3_s1_c16 and conv2d_3x3_s2_c16: conv2d_3x3."""
    words = [stem.split("_") for stem in stems]
    return "_".join(same[0] for same in takewhile(lambda w: len(set(w)) == 1, zip(*words, strict=False)))
