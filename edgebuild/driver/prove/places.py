"""Where values live while C runs: variables, and the objects in memory that expressions name."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import z3

from edgebuild.base.errors import EdgebuildError
from edgebuild.driver.prove import objects
from edgebuild.driver.prove.effort import Unknown
from edgebuild.driver.prove.hardware import ADDRESS, Pointer
from edgebuild.driver.prove.memory import key_of, sized_name
from edgebuild.driver.prove.values import Int, bits_of, converted, number, symbol, typed, width_of
from edgebuild.driver.source import ir
from edgebuild.driver.source.ir import CType, Expression

if TYPE_CHECKING:
    from edgebuild.driver.prove.interpreter import Interpreter

WHOLES = ("record", "array", "variable array")


class Places:
    """The variables and objects of a run."""

    def __init__(self, run: Interpreter) -> None:
        self.run = run

    @cached_property
    def addressed(self) -> frozenset[str]:
        """The variables whose address the unit takes, or to which it binds a reference."""
        places: list[Expression] = []
        for x in (x for f in self.run.program.functions for root in pieces(f) for x in root.all()):
            if isinstance(x, ir.Unary) and x.operator == "&":
                places.append(x.operand)
            elif self.run.cpp and isinstance(x, ir.Call) and x.to is not None:
                refers = [p.type.is_reference for p in x.to.expected]
                arguments = x.arguments[max(0, len(x.arguments) - len(refers)) :]
                places += [a for a, r in zip(arguments, refers, strict=False) if r]
            elif self.run.cpp and isinstance(x, ir.Declared) and x.variable.type.is_reference and x.value:
                places.append(x.value)
        names = (p.bare for p in places)
        return frozenset(n.variable.key for n in names if isinstance(n, ir.Name) and n.variable)

    def in_memory(self, d: ir.Declaration | None) -> bool:
        """Whether a variable has an address that matters."""
        if not isinstance(d, ir.Variable):
            return False
        group, pointer = self.run.dialect.group_of(d.type)
        if (group and not pointer) or d.type.is_reference:
            return False
        whole = d.type.kind in WHOLES and not d.is_parameter
        return whole or (d.key in self.addressed and d.name not in self.run.dialect.devices)

    def variable(self, d: ir.Variable) -> Pointer:
        """The address of a variable."""
        address = self.run.env.get(d.key)
        if isinstance(address, Pointer):
            return address
        return Pointer(z3.BitVec(f"&{sized_name(d.qualified if self.run.cpp else d.name, d)}", ADDRESS))

    def new_object(self, d: ir.Variable) -> Pointer:
        """The address of a local variable whose life begins."""
        at = self.run.env[d.key] = self.run.memory.create(sized_name(d.name, d))
        return at

    def scope(self, d: ir.Variable) -> tuple[dict[str, Any], str]:
        """The variables that one is among, and its name there: a global has the same on both sides."""
        if d.storage == "STATIC" and d.function:
            return self.run.memory.globals, f"{d.function}: {d.name}"
        if d.key in self.run.env or d.function:
            return self.run.env, d.key
        return self.run.memory.globals, d.qualified if self.run.cpp else d.name

    def set_parameter(self, p: ir.Variable, value: Any) -> None:
        if self.in_memory(p):
            self.run.memory.put(self.new_object(p), p.type, value)
        else:
            self.run.env[p.key] = converted(value, p.type)

    def load(self, c: Expression) -> Any:
        """The value of an object in memory."""
        c = c.bare
        if c.type.kind in WHOLES:
            if c.type.kind == "record":
                raise Unknown("a struct as a value")
            return self.object(c)  # an array decays
        key, at = key_of(c), self.object(c).value
        if c.type.is_volatile:
            return symbol(f"volatile?{self.run.hardware.call('a volatile object', (at,))}", c.type)
        bits = self.run.memory.load(key, at)
        return typed(bits, c.type) if isinstance(key, int) else converted(Int(bits, c.type.signed), c.type)

    def store_object(self, c: Expression, value: Any) -> Any:
        """Store to an object in memory; the value that it then has."""
        key, at = key_of(c), self.object(c).value
        bits = bits_of(value)
        if not isinstance(key, int):
            bits = z3.Extract(key[0] - 1, 0, bits)
            value = Int(z3.ZeroExt(width_of(c.type) - key[0], bits), c.type.signed)
        if c.type.is_volatile:
            self.run.hardware.call("a volatile object is stored", (at, bits))
            return value
        if any(isinstance(x, ir.MemberOf) and isinstance(x.member, ir.Member) and x.member.in_union for x in c.all()):
            self.run.memory.forget_others(key)
        self.run.memory.store(key, at, bits)
        return value

    def store(self, left: Expression, value: Any) -> Any:
        """Give a variable or an object a value; the one that it then has."""
        target = left.bare
        stored = converted(value, target.type)
        d = target.to if isinstance(target, ir.Name) else None
        if not isinstance(d, ir.Variable) or not isinstance(target, ir.Name):
            return self.store_object(target, stored)
        if self.in_memory(d) or (self.run.cpp and d.type.is_reference):
            return self.store_object(target, stored)
        if target.type.is_volatile:
            self.run.hardware.call(f"a store of volatile {target.name}", (bits_of(stored),))
            return stored
        variables, name = self.scope(d)
        variables[name] = stored
        return stored

    def object(self, c: Expression) -> Pointer:
        """The address of an object."""
        made = objects.made_object(self.run, c) if self.run.cpp else None
        if made is not None:
            return made
        target = c.bare
        if self.run.cpp and isinstance(target, ir.MemberOf) and target.base is None:
            member = target.value_member
            if member is None or target.type.is_reference:
                raise Unknown("a member that is no value")
            return self.run.this.moved(member.at)
        referred = self.referred(target)
        if referred is not None:
            return referred
        match target:
            case ir.Name(to=ir.Variable() as d) if self.in_memory(d):
                return self.variable(d)
            case ir.Unary(operator="*", operand=operand):
                return self.run.value(operand)
            case ir.Subscript(base=base, index=index):
                at = self.run.value(base)
                if isinstance(at, Pointer):
                    return self.element(at, self.run.value(index), target.type)
            case ir.MemberOf(base=Expression() as base) if target.value_member:
                return self.object_of(base).moved(target.value_member.at)
        raise Unknown("an object in memory")

    def object_of(self, base: Expression) -> Pointer:
        """The object in front of `.` or `->`."""
        return self.run.value(base) if base.type.kind == "pointer" else self.object(base)

    def referred(self, target: Expression) -> Pointer | None:
        """The place that a reference of C++ stands for: a variable, a member, or the result of a call."""
        if not self.run.cpp:
            return None
        match target:
            case ir.Name(to=ir.Variable() as d) if d.type.is_reference:
                place = self.run.env.get(self.scope(d)[1])
                return place if isinstance(place, Pointer) else None
            case ir.MemberOf() if target.value_member and target.value_member.type.is_reference:
                of = self.object_of(target.base) if target.base else self.run.this
                return Pointer(self.run.memory.load(ADDRESS, of.moved(target.value_member.at).value))
            case ir.Call() if target.to and target.to.result.is_reference:
                value = self.run.value(target)
                assert isinstance(value, Pointer)
                return value
        return None

    def address(self, c: Expression) -> Pointer:
        """The address of a group, or of an object."""
        target = c.bare
        return self.referred(target) or self.run.side.address(target)

    def element(self, base: Pointer, index: Any, type_: CType) -> Pointer:
        name, pointer = self.run.dialect.group_of(type_)
        size = self.run.layout.groups[name].size if name in self.run.layout.groups and not pointer else type_.size
        if size < 0:
            raise Unknown("an element of a length that is not known")
        return Pointer(z3.simplify(base.value + number(index) * size))

    def initialise(self, at: Pointer, type_: CType, value: Expression) -> None:
        """The first value of an object; of members that are not named, nothing is known."""
        if self.run.cpp and objects.constructed(self.run, at, value):
            return
        if not isinstance(value, ir.ListValue):
            if type_.kind == "record":
                self.run.memory.copy(at, self.object(value), type_)
            elif type_.kind == "array":
                text = value.bare
                self.run.memory.put_characters(at, type_, text.plain if isinstance(text, ir.String) else None)
            else:
                self.run.memory.put(at, type_, self.run.value(value))
        elif type_.kind == "record":
            self._members(at, type_, value.items)
        elif type_.kind == "array":
            if any(isinstance(x, ir.Designated | ir.Intrinsic) and len(x.parts) > 1 for x in value.items):
                raise Unknown("an array whose elements are named")
            for i, x in enumerate(value.items):
                self.initialise(at.moved(i * type_.element.size), type_.element, x)
        else:
            first = self.run.value(value.items[0]) if value.items else Int(z3.BitVecVal(0, 32), True)
            self.run.memory.put(at, type_, first)

    def _members(self, at: Pointer, type_: CType, items: tuple[Expression, ...]) -> None:
        for i, x in enumerate(items):
            f, value = None, x
            if isinstance(x, ir.Designated):
                if len(x.members) > 1 or x.indices or not isinstance(x.members[0], ir.Member):
                    raise Unknown("a member of a member that is named")
                f, value = x.members[0], x.value
            f = f or type_.fields[i]
            if f.bits is not None or f.type.is_volatile:
                raise Unknown("the first value of a bit field in memory")
            if value.is_left_out:  # the value of C++ stands with the member
                value = f.default or value
            self.initialise(at.moved(f.at), f.type, value)


def body_of(function: ir.Function) -> ir.Block:
    """Raises Unknown for what no driver may have: generated code and headers may have more."""
    try:
        assert function.body is not None
        return function.body
    except EdgebuildError as error:
        raise Unknown(f"{error}") from None


def pieces(function: ir.Function) -> list[ir.Node]:
    """All that a function does: its body, and what stands in front of a constructor's."""
    return [*(i.value for i in function.initialisers if function.form == "constructor"), body_of(function)]
