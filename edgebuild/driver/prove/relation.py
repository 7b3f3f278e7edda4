"""How a variable that holds a register is written on both sides: the source has its fields, generated code a word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import z3

from edgebuild.driver.layout.registers import Layout, Register, Slot
from edgebuild.driver.prove.effort import ask
from edgebuild.driver.prove.hardware import leaf_of
from edgebuild.driver.prove.rests import unowned
from edgebuild.driver.prove.values import Held, Int


@dataclass(frozen=True)
class HeldField:
    """A field of the source's value: its name there, its bits in the word, the bits of its value, and the value of bits
    of no field in a literal."""

    name: tuple[Any, Any]
    lsb: int
    width: int
    size: int
    reset: int = 0


Form = tuple[HeldField, ...]


def form_of(solver: z3.Solver, layout: Layout, fields: Held, word: Int) -> Form | None:
    """The places of all fields in a word that has their values and else zeros; None if no register is like that.

    Bits of no field of silicon are among the fields. In a literal they have their values after reset.
    """
    for group in layout.groups.values():
        for register in group.registers:
            form = _placed(layout, group.group, register, fields)
            if form and word.bits.size() >= register.bits and _fits(solver, form, fields, word):
                return form
    return None


def _placed(layout: Layout, group: str, register: Register, fields: Held) -> Form | None:
    rests = {(group, leaf_of(register, s)): s for s in unowned(layout, register)}
    found = [HeldField(n, s.lsb, s.width, s.width, register.reset >> s.lsb & s.mask >> s.lsb) for n, s in rests.items()]
    for name, value in fields.items():
        if name in rests:
            continue
        at = next(_slots(group, register, name), None)
        if at is None:
            return None
        found.append(HeldField(name, *at, value.size()))
    return tuple(sorted(found, key=lambda f: f.lsb))


def _slots(group: str, register: Register, name: tuple[Any, Any]) -> Iterator[tuple[int, int]]:
    """(lowest bit, width) of a field that a variable holds: (field, indices), or of silicon alone (group, leaf)."""
    first, second = name
    for s in register.slots:
        if "r" not in s.access:
            continue
        if isinstance(second, str):
            if (group, leaf_of(register, s)) == name:
                yield s.lsb, s.width
        elif s.field and s.field[1] == first and len(second) <= 1:
            yield from _element(s, second)


def _element(s: Slot, indices: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    if s.count > 1:
        yield s.lsb + indices[0] * s.stride, s.width
    elif not indices or s.name.endswith(f"_{indices[0]}"):
        yield s.lsb, s.width


def _fits(solver: z3.Solver, form: Form, fields: Held, word: Int) -> bool:
    mask, same = 0, []
    for f in form:
        mask |= ((1 << f.width) - 1) << f.lsb
        inside = z3.Extract(f.width - 1, 0, fields.get(f.name, z3.BitVecVal(f.reset, f.size)))
        same.append(z3.Extract(f.lsb + f.width - 1, f.lsb, word.bits) == inside)
    rest = ((1 << word.bits.size()) - 1) & ~mask
    condition = z3.simplify(z3.And(*same, word.bits & rest == 0))
    return bool(z3.is_true(condition) or ask(solver, z3.Not(condition)) == z3.unsat)


def fields_of(form: Form, name: str) -> Held:
    """New values of all fields, which the words of `word_of` share."""
    return {f.name: z3.simplify(z3.ZeroExt(f.size - f.width, _symbol(f, name))) for f in form}


def word_of(form: Form, name: str, bits: int) -> Any:
    word = z3.BitVecVal(0, bits)
    for f in form:
        wide = z3.ZeroExt(bits - f.width, _symbol(f, name)) if bits > f.width else _symbol(f, name)
        word = word | wide << f.lsb
    return z3.simplify(word)


def _symbol(f: HeldField, name: str) -> Any:
    return z3.BitVec(f"head {name} {f.name}", f.width)
