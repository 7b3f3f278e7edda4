"""One side of a proof: a source in the dialect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import z3
from clang.cindex import Cursor, CursorKind

from edgebuild.driver.analysis.cdfg import Chain
from edgebuild.driver.analysis.chains import variable_name
from edgebuild.driver.analysis.keys import REFERENCES
from edgebuild.driver.layout.registers import Layout, Register, Slot
from edgebuild.driver.prove.classes import Interpreter
from edgebuild.driver.prove.effort import Unknown
from edgebuild.driver.prove.hardware import ADDRESS, INDEX, BusAccess, Key, Pointer, leaf_of, neutral_of
from edgebuild.driver.prove.reals import integer
from edgebuild.driver.prove.rests import unowned
from edgebuild.driver.prove.values import (
    Held,
    Int,
    sized,
)
from edgebuild.driver.prove.views import Views
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Child, Dialect, Field, group_of

K = CursorKind


class SideSource(Interpreter):
    """A program in the dialect."""

    def __init__(self, unit: clang.Unit, dialect: Dialect, layout: Layout, views: Views) -> None:
        super().__init__(unit, dialect, layout, views)
        self.hints: list[Any] = []  # bounds of indices that it finds
        variables = (d for f in unit.functions for d in clang.preorder(f) if d.kind == K.VAR_DECL)
        self.chains.locals |= {variable_name(d) for d in variables if self._holds(d)}
        self.once: dict[tuple[int, int], Any] | None = None  # parts of the address of a whole register
        self.begun: set[tuple[int, int]] = set()  # expressions before which loads stand, while they are evaluated

    def run(self, name: str, taken: list[bool]) -> Any:
        self.begun, self.once = set(), None
        return super().run(name, taken)

    def _on_bus(self, kind: str, c: Cursor, place: Any, held: Held | None = None) -> Any:
        """Note what an access of the source is to be on the bus; what a load finds beside readable fields."""
        key = kind, clang.span(clang.bare(c))
        if key not in self.views.planned:
            self.hardware.bus.append(BusAccess(kind, None, name="an access that nothing is planned for"))
        elif (planned := self.views.planned[key]) is not None:
            return self.hardware.plan(planned, place, held)
        return None

    def value(self, c: Cursor) -> Any:
        extent = clang.span(c) if self.views.hoisted else (0, 0)
        if extent not in self.views.hoisted or extent in self.begun:
            return self._value(c)
        for planned in self.views.hoisted[extent]:
            self.hardware.plan(planned)
        self.begun.add(extent)
        try:
            return self._value(c)
        finally:
            self.begun.discard(extent)

    def _value(self, c: Cursor) -> Any:
        if c.kind in (K.MEMBER_REF_EXPR, K.ARRAY_SUBSCRIPT_EXPR, K.UNARY_OPERATOR):
            chain = self.chains.read(c)
            if chain and chain.local:
                return self.held(chain)
            if chain and chain.is_field and not chain.missing:
                return Int(self.read(chain, c), False)
            if chain:
                return self.place(chain)[0]
        return super().value(c)

    def located(self, c: Cursor) -> Pointer:
        """The address of a group, or of a struct that names the way to one."""
        chain = self.chains.read(c)
        if chain and not chain.is_field:
            return self.place(chain)[0]
        return super().located(c)

    def offset(self, c: Cursor) -> Int:
        """Of a field, that of its register."""
        member = next(x.referenced for x in clang.children(c) if x.kind == K.MEMBER_REF)
        owner, name = self.unit.member(member)
        if owner not in self.dialect.groups:
            return super().offset(c)
        return Int(z3.BitVecVal(self.layout.groups[owner].offset_of((owner, name)), self.width(c.type)), False)

    def _holds(self, d: Cursor) -> bool:
        """Whether a variable holds the value of a register."""
        group, pointer = group_of(d.type, self.dialect)
        return bool(group) and not pointer and d.type.get_canonical().kind not in REFERENCES

    def begin(self, d: Cursor, parts: list[Cursor]) -> None:
        if self._holds(d):
            called = [p for p in parts if p.kind != K.CALL_EXPR or clang.children(p)]  # C++ says that it makes one
            self.env[variable_name(d)] = self.group_value(called[-1]) if called else None
        else:
            super().begin(d, parts)

    def place(self, chain: Chain) -> tuple[Pointer, Key, Register | None, Slot | None, Any]:
        """(address of the group, leaf, its register and slot, place of the element) of a chain."""
        group = chain.prefixes[0].group
        current = group
        if chain.device:
            at = Pointer(z3.BitVecVal(self.dialect.devices[chain.device].address, ADDRESS))
        else:
            at = self._root(chain)
        words: list[str] = []
        steps, i = chain.steps, 0
        register: Register | None = None
        index: Any = z3.BitVecVal(0, INDEX)
        while i < len(steps):
            member = self.dialect.groups[current].member(steps[i].member)
            taken = steps[i + 1 : i + 1 + len(member.dims)]
            values = [
                z3.BitVecVal(s.constant, INDEX) if s.index is None else self.number(self._once(s.index)) for s in taken
            ]
            constants = [str(s.constant) for s in taken]
            flat: Any = z3.BitVecVal(0, INDEX)
            for size, v in zip(member.dims, values, strict=False):
                if not z3.is_bv_value(v):
                    self.decisions.path.append(z3.ULT(v, size))  # C knows no other index
                    self.hints.append(z3.ULT(v, size))
                flat = flat * size + v
            i += 1 + len(taken)
            name = "_".join([*words, member.name])
            if isinstance(member, Child):
                current = member.group
                sub = next((s for s in self.layout.groups[group].subs if s.name == name), None)
                if sub is None:
                    words += [member.name, *constants]
                    continue
                at, group, words = Pointer(z3.simplify(at.value + sub.offset + flat * sub.stride)), sub.group, []
                continue
            found = {s.name: (r, s) for r in self.layout.groups[group].registers for s in r.slots if s.field}
            if name not in found:
                name, flat = "_".join([name, *constants]), z3.BitVecVal(0, INDEX)
            register, slot = found[name]
            return at, (group, name), register, slot, z3.Concat(at.value, z3.simplify(flat))
        return at, (group, ""), None, None, index

    def _once(self, c: Cursor) -> Any:
        """A part of an address: that of a whole register is evaluated once for all of its fields."""
        known, self.once = self.once, None
        if known is None:
            return self.value(c)
        if clang.span(c) not in known:
            known[clang.span(c)] = self.value(c)
        self.once = known
        return known[clang.span(c)]

    def _root(self, chain: Chain) -> Pointer:
        root = clang.bare(chain.root)
        if chain.prefixes[0].pointer:
            return self._once(chain.root)
        if self.unit.cpp and root.kind in (K.DECL_REF_EXPR, K.CALL_EXPR, K.MEMBER_REF_EXPR):
            return self.address(root)
        if root.kind == K.ARRAY_SUBSCRIPT_EXPR:
            base, index = clang.children(root)
            return self.element(self._once(base), self._once(index), root.type)
        return self._once(clang.children(root)[0])

    def _device(self, chain: Chain) -> tuple[int, int] | None:
        if not chain.device:
            return None
        d = self.dialect.devices[chain.device]
        return d.address, self.layout.groups[d.group].size

    def read(self, chain: Chain, c: Cursor) -> Any:
        _, key, _, slot, place = self.place(chain)
        assert slot
        self._on_bus("r", c, place)
        return self._read_at(chain, key, slot, place, self._turn_of(c))

    def _turn_of(self, c: Cursor) -> str:
        view, leads = self.views.of(c)
        return self.hardware.turn(view, leads) if view else ""

    def _read_at(self, chain: Chain, key: Key, slot: Slot, place: Any, turn: str) -> Any:
        assert isinstance(chain.end, Field)
        self.hardware.batch += 1
        return self._wide(self.hardware.read(key, slot, place, self._device(chain), turn), chain.end)

    def _wide(self, value: Any, f: Field) -> Any:
        wide = next(w for w in (8, 16, 32, 64) if f.width <= w)
        return z3.ZeroExt(wide - f.width, value) if wide > f.width else value

    def write(self, chain: Chain, value: Any, c: Cursor) -> Int:
        assert isinstance(chain.end, Field)
        _, key, _, slot, place = self.place(chain)
        assert slot
        return self._write_at(chain, key, slot, place, value, c)

    def _write_at(self, chain: Chain, key: Key, slot: Slot, place: Any, value: Any, c: Cursor) -> Int:
        assert isinstance(chain.end, Field)
        narrow = z3.simplify(z3.Extract(chain.end.width - 1, 0, sized(integer(value), 64)))
        self.hardware.batch += 1
        self.hardware.write_element(key, slot, place, narrow, self._device(chain))
        self._on_bus("w", c, place)
        return Int(self._wide(narrow, chain.end), False)

    def _changed(self, chain: Chain, operator: str, right: Cursor | None, left: Cursor) -> tuple[Any, Any]:
        """(old value, new one) of a field that is read, changed and written; its place is evaluated once."""
        assert isinstance(chain.end, Field)
        _, key, _, slot, place = self.place(chain)
        assert slot
        self.hardware.batch += 1
        first = self.value(right) if right is not None and self.unit.cpp else None  # C++ has the right side first
        self._on_bus("r", left, place)
        found = self.hardware.read(key, slot, place, self._device(chain), self._turn_of(left))
        old = Int(self._wide(found, chain.end), False)
        by = first or (self.value(right) if right is not None else Int(z3.BitVecVal(1, 32), True))
        return old, self._write_at(chain, key, slot, place, self.arithmetic(operator, old, by, left.type), left)

    def e_compound_assignment_operator(self, c: Cursor) -> Any:
        left, right = clang.children(c)
        chain = self._field(left)
        if chain is None or chain.local:
            return super().e_compound_assignment_operator(c)
        return self._changed(chain, clang.binary(c)[:-1], right, left)[1]

    def e_unary_operator(self, c: Cursor) -> Any:
        operator, operand = clang.unary(c), clang.children(c)[0]
        chain = self._field(operand) if operator.endswith(("++", "--")) else None
        if chain is None or chain.local:
            return super().e_unary_operator(c)
        old, new = self._changed(chain, operator[-1], None, operand)
        return old if operator.startswith("post") else new

    def _field(self, c: Cursor) -> Chain | None:
        chain = self.chains.read(c)
        return chain if chain and chain.is_field and not chain.missing else None

    def stored(self, left: Cursor, right: Cursor) -> Any:
        name, pointer = group_of(left.type, self.dialect)
        if name and not pointer:
            return self._whole(left, clang.bare(right))
        chain = self._field(left)
        if chain and chain.local:
            return self._set(chain, self.value(right))
        if chain is None:
            return self.assigned(left, self.value(right))
        return self.write(chain, self.value(right), left)

    def assigned(self, left: Cursor, value: Any) -> Any:
        chain = self._field(left)
        if chain and chain.local:
            return self._set(chain, value)
        return self.write(chain, value, left) if chain else super().assigned(left, value)

    # ---- whole registers

    def _elements(self, c: Cursor) -> list[Chain]:
        chain = self.chains.read(c)
        if chain is None:
            raise Unknown("a group as a value")
        return list(self.chains.elements(chain, c))

    def _places(self, chains: list[Chain]) -> list[tuple[Chain, tuple[Any, Key, Register, Slot, Any]]]:
        """The places of all fields of a register, whose address is evaluated once."""
        found = []
        self.once = {}
        for x in chains:
            at, key, register, slot, place = self.place(x)
            assert register and slot
            found.append((x, (at, key, register, slot, place)))
        self.once = None
        return found

    def group_value(self, c: Cursor) -> Held:
        """The value of a group: of a register, of a variable, or the fields that a literal names."""
        c = clang.bare(c)
        while c.kind == K.CALL_EXPR and len(clang.children(c)) == 1:  # the copy constructor of C++
            c = clang.bare(clang.children(c)[0])
        if c.kind == K.DECL_REF_EXPR:
            return dict(self._held_in(variable_name(c.referenced)))
        if self.chains.read(c) is not None:
            return self.loaded(c)
        initial = next((x for x in clang.preorder(c) if x.kind == K.INIT_LIST_EXPR), None)
        values: Held = {}
        for item in clang.children(initial) if initial is not None else ():
            member, *indices, value = clang.children(item)
            field = next(f for g in self.dialect.groups.values() for f in g.fields if self._is_field(member, f))
            narrow = z3.Extract(field.width - 1, 0, sized(self.value(value), 64))
            values[member.spelling, tuple(clang.constant(i) for i in indices)] = self._wide(narrow, field)
        return values

    def _is_field(self, member: Cursor, field: Field) -> bool:
        return self.unit.member(member.referenced) == field.id

    def loaded(self, c: Cursor) -> Held:
        """One load of a whole register."""
        found: Held = {}
        named: set[Key] = set()
        places, turn = self._places(self._elements(c)), self._turn_of(c)
        _, (_, group_leaf, register, _, place) = places[-1]
        beside = self._on_bus("r", c, place)
        if beside is None:
            raise Unknown("a load of a whole register that is not planned at its place")
        for x, (_, key, _, slot, at) in places:
            if "r" in slot.access:
                found[_name(x)] = self._read_at(x, key, slot, at, turn)
            else:
                assert isinstance(x.end, Field)
                element = z3.simplify(z3.Extract(INDEX - 1, 0, at)).as_long() if slot.count > 1 else 0
                found[_name(x)] = self._wide(_bits(beside, slot, element), x.end)
            named.add(key)
        for key, other in _besides(register, named):
            readable = "r" in other.access
            found[key] = z3.Select(self.hardware.array(key, other.width), place) if readable else _bits(beside, other)
        for s in unowned(self.layout, register):
            found[group_leaf[0], leaf_of(register, s)] = _bits(beside, s)
        return found

    def held(self, chain: Chain) -> Int:
        found = self._held_in(chain.local)
        if _name(chain) not in found:
            raise Unknown("a field that a literal does not name")
        return Int(found[_name(chain)], False)

    def _held_in(self, name: str) -> Held:
        found = self.env.get(name)
        if found is None:
            raise Unknown("a variable without a value")
        if not isinstance(found, dict):
            raise Unknown("a variable across a loop")
        return found

    def _set(self, chain: Chain, value: Any) -> Any:
        assert isinstance(chain.end, Field)
        narrow = z3.Extract(chain.end.width - 1, 0, sized(integer(value), 64))
        self._held_in(chain.local)[_name(chain)] = self._wide(narrow, chain.end)
        return value

    def _whole(self, left: Cursor, right: Cursor) -> None:
        target = clang.bare(left)
        if target.kind == K.DECL_REF_EXPR and variable_name(target.referenced) in self.chains.locals:
            self.env[variable_name(target.referenced)] = self.group_value(right)
            return
        held = self.group_value(right)
        chains = self._elements(left)
        place = self._put(chains, {_name(x): Int(held[_name(x)], False) for x in chains if _name(x) in held}, held)
        self._on_bus("w", left, place, held)

    def _put(self, chains: list[Chain], values: dict[Any, Any], held: Held) -> Any:
        """One store of a register; its place. `held`: what was loaded, of what silicon has besides."""
        self.hardware.batch += 1
        stores: list[tuple[Key, Slot, Any, Any]] = []
        for x, (_, key, register, slot, place) in self._places(chains):
            element = z3.Extract(INDEX - 1, 0, place) if slot.count > 1 else z3.BitVecVal(0, INDEX)
            default = Int(z3.BitVecVal(_at_rest(register, slot, z3.simplify(element).as_long()), 64), False)
            narrow = z3.Extract(slot.width - 1, 0, sized(values.get(_name(x), default), 64))
            stores.append((key, slot, place, z3.simplify(narrow)))
        for key, other in _besides(register, {key for key, *_ in stores}):
            rests = key not in held or neutral_of(other) is not None
            value = z3.BitVecVal(_at_rest(register, other), other.width) if rests else held[key]
            stores.append((key, other, place, value))
        for key, slot, place, value in sorted(stores, key=self._turn):
            self.hardware.batch += register.bits > self.layout.bus.width  # by words
            if "w" in slot.access:
                self.hardware.write(key, slot, place, value, self._device(chains[0]))
        return place

    def _turn(self, store: tuple[Key, Slot, Any, Any]) -> tuple[bool, int]:
        """Fields whose write has a side effect come behind the others; then the lowest bit counts."""
        return bool(self.hardware.effects(store[0], store[1], "w")), store[1].lsb


def _bits(word: Any, slot: Slot, element: int = 0) -> Any:
    """The bits of a field in the word of its register."""
    low = slot.lsb + element * slot.stride
    return z3.Extract(low + slot.width - 1, low, word)


def _besides(register: Register, named: set[Key]) -> Iterator[tuple[Key, Slot]]:
    """Fields of silicon in a register besides those of the source; `named` are all of the latter."""
    group = next(iter(named))[0]
    found = (((group, leaf_of(register, s)), s) for s in register.slots)
    return ((key, slot) for key, slot in found if key not in named)


def _at_rest(register: Register, slot: Slot, element: int = 0) -> int:
    """The value of a field that a write of a whole register does not name: one that does nothing, else after reset."""
    neutral = neutral_of(slot)
    reset = (
        slot.reset
        if slot.reset is not None
        else (register.reset >> slot.lsb + element * slot.stride) & ((1 << slot.width) - 1)
    )
    return reset if neutral is None else neutral


def _name(chain: Chain) -> tuple[str, tuple[int | None, ...]]:
    assert isinstance(chain.end, Field)
    constants = tuple(s.constant for s in chain.steps if not s.member)
    return chain.end.name, constants[len(constants) - len(chain.end.dims) :]
