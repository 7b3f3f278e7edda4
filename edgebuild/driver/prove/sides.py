"""The two sides of a proof: a source in the dialect, and generated C."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import z3

from edgebuild.driver.analysis.cdfg import Chain
from edgebuild.driver.analysis.chains import Chains
from edgebuild.driver.analysis.whole import group_value, holds_register, literal_items
from edgebuild.driver.layout.registers import Register, Slot
from edgebuild.driver.prove.effort import Unknown
from edgebuild.driver.prove.hardware import ADDRESS, INDEX, BusAccess, Key, Pointer, leaf_of, neutral_of, unowned
from edgebuild.driver.prove.interpreter import Side
from edgebuild.driver.prove.values import Held, Int, converted, integer, number, sized, width_of
from edgebuild.driver.source import ir
from edgebuild.driver.source.dialect import Child, Field
from edgebuild.driver.source.ir import Expression

HAL = "HAL_"  # how the names of functions begin that access registers


class GeneratedSide(Side):
    """Generated C: stores and loads of volatile objects."""

    def cast(self, value: Any, c: ir.Cast) -> Any:
        name, pointer = c.inside.bare.type.group
        if pointer and isinstance(value, Pointer) and c.type.kind != "pointer":
            return Pointer(value.value, name)  # from here on, offsets are those of registers
        return super().cast(value, c)

    def device(self, d: ir.Variable) -> Pointer:
        """The address of a device, as the generated code itself has it."""
        assert d.default is not None
        value = self.run.value(d.default)
        assert isinstance(value, Pointer)
        return value

    def _register(self, c: Expression) -> Pointer | None:
        """The address that a volatile object has, if it is one in a group, in a function that accesses registers."""
        accesses = self.run.active[-1].name.startswith(HAL)
        if not (isinstance(c, ir.Unary) and c.operator == "*" and c.type.is_volatile and accesses):
            return None
        at = self.run.value(c.operand)
        return at if isinstance(at, Pointer) and at.group in self.run.layout.groups else None

    def store(self, left: Expression, value: Any) -> Any:
        target = left.bare
        at = self._register(target)
        if at is None:
            return super().store(left, value)
        stored = converted(value, target.type)
        bits = sized(stored, width_of(target.type))
        self.run.hardware.store(at, bits.size() // 8, bits, self.run.active[-1].name)
        return stored

    def value(self, c: Expression) -> Any:
        at = self._register(c)
        if at is not None:
            bits = self.run.hardware.load(at, width_of(c.type) // 8, self.run.active[-1].name)
            return Int(bits, c.type.signed)
        if isinstance(c, ir.MemberOf | ir.Subscript) and c.type.is_address and c.type.kind != "pointer":
            return self.run.places.address(c)  # an array decays
        return super().value(c)

    def address(self, c: Expression) -> Pointer:
        run = self.run
        if isinstance(c, ir.MemberOf) and c.base is not None and isinstance(c.member, ir.Member):
            start = run.value(c.base) if c.base.type.kind == "pointer" else run.places.address(c.base)
            assert isinstance(start, Pointer)
            return start.moved(c.member.at)
        if isinstance(c, ir.Subscript):
            return run.places.element(run.value(c.base), run.value(c.index), c.type)
        if isinstance(c, ir.Unary) and c.operator == "*":
            at = run.value(c.operand)
            assert isinstance(at, Pointer)
            return at
        if isinstance(c, ir.Call):
            raise Unknown("the address of a value")
        return super().address(c)


class SourceSide(Side):
    """A program in the dialect."""

    def __init__(self) -> None:
        self.once: dict[ir.Span, Any] | None = None  # parts of the address of a whole register
        self.begun: set[ir.Span] = set()  # expressions before which loads stand, while they are evaluated
        self._chains: Chains | None = None

    @property
    def chains(self) -> Chains:
        if self._chains is None:
            self._chains = Chains(self.run.dialect)
            bodies = (f.body for f in self.run.program.functions if f.body)
            variables = (x.variable for b in bodies for x in b.all() if isinstance(x, ir.Declared))
            self._chains.locals |= {d.key for d in variables if holds_register(d, self.run.dialect)}
        return self._chains

    def begin(self) -> None:
        self.begun, self.once = set(), None

    def _on_bus(self, kind: str, c: Expression, place: Any, held: Held | None = None) -> Any:
        """Note what an access of the source is to be on the bus; what a load finds beside readable fields."""
        key, planned = (kind, c.bare.span), self.run.views.planned
        if key not in planned:
            self.run.hardware.bus.append(BusAccess(kind, None, name="an access that nothing is planned for"))
        elif (access := planned[key]) is not None:
            return self.run.hardware.plan(access, place, held)
        return None

    def value(self, c: Expression) -> Any:
        hoisted = self.run.views.hoisted
        if not hoisted or c.span not in hoisted or c.span in self.begun:
            return self._value(c)
        for planned in hoisted[c.span]:
            self.run.hardware.plan(planned)
        self.begun.add(c.span)
        try:
            return self._value(c)
        finally:
            self.begun.discard(c.span)

    def _value(self, c: Expression) -> Any:
        chain = self.chains.read(c) if isinstance(c, ir.MemberOf | ir.Subscript | ir.Unary) else None
        if chain is None:
            return super().value(c)
        if chain.local:
            return self._of_variable(chain)
        if chain.is_field and not chain.missing:
            return Int(self.read(chain, c), False)
        return self.place(chain)[0]

    def address(self, c: Expression) -> Pointer:
        """The address of a group, or of a struct that leads to one."""
        chain = self.chains.read(c)
        if chain and not chain.is_field:
            return self.place(chain)[0]
        return super().address(c)

    def offset(self, c: ir.OffsetOf) -> int | None:
        """Of a field, that of its register."""
        member = c.members[0]
        if member.owner not in self.run.dialect.groups:
            return super().offset(c)
        return self.run.layout.groups[member.owner].offset_of((member.owner, member.name))

    def declare(self, d: ir.Declared) -> bool:
        if not holds_register(d.variable, self.run.dialect):
            return False
        empty = d.value is None or (isinstance(d.value, ir.Call) and not d.value.parts)  # C++ says that it makes one
        self.run.env[d.variable.key] = self.group_value(d.value) if d.value and not empty else None
        return True

    def place(self, chain: Chain) -> tuple[Pointer, Key, Register | None, Slot | None, Any]:
        """(address of the group, leaf, its register and slot, place of the element) of a chain."""
        run, layout = self.run, self.run.layout
        group = chain.prefixes[0].group
        current = group
        at = self.device_at(chain.device) if chain.device else self._root(chain)
        words: list[str] = []
        steps, i = chain.steps, 0
        index: Any = z3.BitVecVal(0, INDEX)
        while i < len(steps):
            member = run.dialect.groups[current].member(steps[i].member)
            taken = steps[i + 1 : i + 1 + len(member.dims)]
            values = [
                z3.BitVecVal(s.constant, INDEX) if s.index is None else number(self._once(s.index)) for s in taken
            ]
            constants = [str(s.constant) for s in taken]
            flat: Any = z3.BitVecVal(0, INDEX)
            for size, v in zip(member.dims, values, strict=False):
                if not z3.is_bv_value(v):
                    run.decisions.path.append(z3.ULT(v, size))  # C knows no other index
                    run.hints.append(z3.ULT(v, size))
                flat = flat * size + v
            i += 1 + len(taken)
            name = "_".join([*words, member.name])
            if isinstance(member, Child):
                current = member.group
                sub = next((s for s in layout.groups[group].subs if s.name == name), None)
                if sub is None:
                    words += [member.name, *constants]
                    continue
                at, group, words = Pointer(z3.simplify(at.value + sub.offset + flat * sub.stride)), sub.group, []
                continue
            places = {s.name: (r, s) for r in layout.groups[group].registers for s in r.slots if s.field}
            if name not in places:
                name, flat = "_".join([name, *constants]), z3.BitVecVal(0, INDEX)
            register, slot = places[name]
            return at, (group, name), register, slot, z3.Concat(at.value, z3.simplify(flat))
        return at, (group, ""), None, None, index

    def device_at(self, name: str) -> Pointer:
        return Pointer(z3.BitVecVal(self.run.dialect.devices[name].address, ADDRESS))

    def _once(self, c: Expression) -> Any:
        """A part of an address: that of a whole register is evaluated once for all of its fields."""
        values, self.once = self.once, None
        if values is None:
            return self.run.value(c)
        if c.span not in values:
            values[c.span] = self.run.value(c)
        self.once = values
        return values[c.span]

    def _root(self, chain: Chain) -> Pointer:
        root = chain.root.bare
        if chain.prefixes[0].pointer:
            return self._once(chain.root)
        if self.run.cpp and isinstance(root, ir.Name | ir.Call | ir.MemberOf):
            return self.run.places.address(root)
        if isinstance(root, ir.Subscript):
            return self.run.places.element(self._once(root.base), self._once(root.index), root.type)
        assert isinstance(root, ir.Unary)
        return self._once(root.operand)

    def _device(self, chain: Chain) -> tuple[int, int] | None:
        if not chain.device:
            return None
        d = self.run.dialect.devices[chain.device]
        return d.address, self.run.layout.groups[d.group].size

    def read(self, chain: Chain, c: Expression) -> Any:
        _, key, _, slot, place = self.place(chain)
        assert slot
        self._on_bus("r", c, place)
        self.run.hardware.batch += 1
        return self._read_at(chain, key, slot, place, self._turn_of(c))

    def _turn_of(self, c: Expression) -> str:
        view, leads = self.run.views.of(c)
        return self.run.hardware.turn(view, leads) if view else ""

    def _read_at(self, chain: Chain, key: Key, slot: Slot, place: Any, turn: str) -> Any:
        assert isinstance(chain.end, Field)
        return _wide(self.run.hardware.read(key, slot, place, self._device(chain), turn), chain.end)

    def _write_at(self, chain: Chain, key: Key, slot: Slot, place: Any, value: Any, c: Expression) -> Int:
        assert isinstance(chain.end, Field)
        narrow = z3.simplify(z3.Extract(chain.end.width - 1, 0, sized(integer(value), 64)))
        self.run.hardware.batch += 1
        self.run.hardware.write_element(key, slot, place, narrow, self._device(chain))
        self._on_bus("w", c, place)
        return Int(_wide(narrow, chain.end), False)

    def modify(self, c: ir.Assignment | ir.Step) -> tuple[Any, Any] | None:
        """(old value, new one) of a field that is read, changed and written; its place is evaluated once."""
        left = c.operand if isinstance(c, ir.Step) else c.left
        chain = self._field(left)
        if chain is None or chain.local:
            return None
        right = c.right if isinstance(c, ir.Assignment) else None
        _, key, _, slot, place = self.place(chain)
        assert slot
        self.run.hardware.batch += 1
        first = self.run.value(right) if right is not None and self.run.cpp else None  # C++ has the right side first
        self._on_bus("r", left, place)
        old = Int(self._read_at(chain, key, slot, place, self._turn_of(left)), False)
        by = first or (self.run.value(right) if right is not None else Int(z3.BitVecVal(1, 32), True))
        new = self.run.arithmetic(c.operator, old, by, left.type)
        return old, self._write_at(chain, key, slot, place, new, left)

    def _field(self, c: Expression) -> Chain | None:
        chain = self.chains.read(c)
        return chain if chain and chain.is_field and not chain.missing else None

    def assign(self, left: Expression, right: Expression) -> Any:
        name, pointer = self.run.dialect.group_of(left.type)
        if name and not pointer:
            return self._whole(left, right.bare)
        return self.store(left, self.run.value(right))

    def store(self, left: Expression, value: Any) -> Any:
        chain = self._field(left)
        if chain is None:
            return super().store(left, value)
        if chain.local:
            return self._set(chain, value)
        _, key, _, slot, place = self.place(chain)
        assert slot
        return self._write_at(chain, key, slot, place, value, left)

    # ---- whole registers

    def _elements(self, c: Expression) -> list[Chain]:
        chain = self.chains.read(c)
        if chain is None:
            raise Unknown("a group as a value")
        return list(self.chains.elements(chain, c))

    def _places(self, chains: list[Chain]) -> list[tuple[Chain, tuple[Any, Key, Register, Slot, Any]]]:
        """The places of all fields of a register, whose address is evaluated once."""
        places = []
        self.once = {}
        for x in chains:
            at, key, register, slot, place = self.place(x)
            assert register and slot
            places.append((x, (at, key, register, slot, place)))
        self.once = None
        return places

    def group_value(self, c: Expression) -> Held:
        """The value of a group: of a register, of a variable, or the fields that a literal names."""
        c = group_value(c)
        if isinstance(c, ir.Name):
            assert c.variable
            return dict(self._held_in(c.variable.key))
        if self.chains.read(c) is not None:
            return self.loaded(c)
        values: Held = {}
        for item in literal_items(c):
            assert isinstance(item, ir.Designated)
            owner, name = item.members[0].owner, item.members[0].name
            field = self.run.dialect.field((owner, name))
            narrow = z3.Extract(field.width - 1, 0, sized(self.run.value(item.value), 64))
            values[name, tuple(i.constant for i in item.indices)] = _wide(narrow, field)
        return values

    def loaded(self, c: Expression) -> Held:
        """One load of a whole register."""
        held: Held = {}
        named: set[Key] = set()
        places, turn = self._places(self._elements(c)), self._turn_of(c)
        _, (_, group_leaf, register, _, place) = places[-1]
        beside = self._on_bus("r", c, place)
        if beside is None:
            raise Unknown("a load of a whole register that is not planned at its place")
        for x, (_, key, _, slot, at) in places:
            if "r" in slot.access:
                self.run.hardware.batch += 1
                held[_name(x)] = self._read_at(x, key, slot, at, turn)
            else:
                assert isinstance(x.end, Field)
                element = z3.simplify(z3.Extract(INDEX - 1, 0, at)).as_long() if slot.count > 1 else 0
                held[_name(x)] = _wide(_bits(beside, slot, element), x.end)
            named.add(key)
        for key, other in _besides(register, named):
            readable = "r" in other.access
            array = self.run.hardware.array(key, other.width)
            held[key] = z3.Select(array, place) if readable else _bits(beside, other)
        for s in unowned(self.run.layout, register):
            held[group_leaf[0], leaf_of(register, s)] = _bits(beside, s)
        return held

    def _of_variable(self, chain: Chain) -> Int:
        held = self._held_in(chain.local)
        if _name(chain) not in held:
            raise Unknown("a field that a literal does not name")
        return Int(held[_name(chain)], False)

    def _held_in(self, name: str) -> Held:
        held = self.run.env.get(name)
        if held is None:
            raise Unknown("a variable without a value")
        if not isinstance(held, dict):
            raise Unknown("a variable across a loop")
        return held

    def _set(self, chain: Chain, value: Any) -> Any:
        assert isinstance(chain.end, Field)
        narrow = z3.Extract(chain.end.width - 1, 0, sized(integer(value), 64))
        self._held_in(chain.local)[_name(chain)] = _wide(narrow, chain.end)
        return value

    def _whole(self, left: Expression, right: Expression) -> None:
        target = left.bare
        variable = target.variable if isinstance(target, ir.Name) else None
        if variable and variable.key in self.chains.locals:
            self.run.env[variable.key] = self.group_value(right)
            return
        held = self.group_value(right)
        chains = self._elements(left)
        place = self._put(chains, {_name(x): Int(held[_name(x)], False) for x in chains if _name(x) in held}, held)
        self._on_bus("w", left, place, held)

    def _put(self, chains: list[Chain], values: dict[Any, Any], held: Held) -> Any:
        """One store of a register; its place. `held`: what was loaded, of what silicon has besides."""
        hardware = self.run.hardware
        hardware.batch += 1
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
            hardware.batch += register.bits > self.run.layout.bus.width  # by words
            if "w" in slot.access:
                hardware.write(key, slot, place, value, self._device(chains[0]))
        return place

    def _turn(self, store: tuple[Key, Slot, Any, Any]) -> tuple[bool, int]:
        """Fields whose write has a side effect come behind the others; then the lowest bit counts."""
        return bool(self.run.hardware.effects(store[0], store[1], "w")), store[1].lsb


def _wide(value: Any, f: Field) -> Any:
    """The value of a field in the type that it has in C."""
    wide = next(w for w in (8, 16, 32, 64) if f.width <= w)
    return z3.ZeroExt(wide - f.width, value) if wide > f.width else value


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
