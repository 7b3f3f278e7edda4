"""Storage of a symbolic run: variables, and objects in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import z3

from ...base.errors import EdgebuildError
from ..source import ir
from ..source.ir import CType, Expression, MemberOf, Variable
from ..source.lowering import Program
from . import objects
from .hardware import ADDRESS, Hardware, Outside, Pointer, Unknown
from .values import Int, bits_of, converted, number, symbol, typed, width_of

# Ordinary objects with an address: structs, arrays, bit fields, and variables that something points to.
#
# Each has a symbolic address. Stored values are in one array (from addresses to bits) per width. Both sides create the
# same objects in the same order, so these symbols are equal on both sides.

COPIED = 16  # most elements of an array that can be copied
Key = int | tuple[int, int]  # the width of an object in bits; of a bit field (width, lowest bit in its byte)


@dataclass
class Memory:
    """The objects of one run by address, and global variables whose address is never taken."""

    hardware: Hardware
    arrays: dict[Key, Any] = field(default_factory=dict)
    globals: dict[str, Any] = field(default_factory=dict)
    created: int = 0  # objects so far

    def create(self, name: str, numbered: str = " #") -> Pointer:
        """The address of a new object."""
        self.created += 1
        return Pointer(z3.BitVec(f"&{name}{numbered}{self.created}", ADDRESS))

    def call(self, name: str, values: tuple[Any, ...]) -> int:
        """Record an unknown call, which may read and change all objects and globals; returns its number."""
        number = self.hardware.call(name, values, Outside(self.hardware.calls, self.arrays, self.globals))
        self.globals, self.arrays = {}, {}
        return number

    def access(self, kind: str, key: object, size: int, values: tuple[Any, ...], text: str) -> int:
        """Record an access of `size` bytes to a volatile object; `values`: its address if it has one, and the value."""
        seen = Outside(self.hardware.calls, dict(self.arrays), dict(self.globals)) if kind == "w" else None
        return self.hardware.call(f"{kind} {key} in {size} bytes", values, text=text, size=size, seen=seen)

    def words(self, key: Key) -> Any:
        """The array of all objects of one width."""
        width = key if isinstance(key, int) else key[0]
        if key not in self.arrays:
            name = f"memory {key}!{self.hardware.calls}"
            self.arrays[key] = z3.Array(name, z3.BitVecSort(ADDRESS), z3.BitVecSort(width))
        return self.arrays[key]

    def load(self, key: Key, at: Any) -> Any:
        """The bits at an address. If stores of other widths may have changed them, the result is an uninterpreted
        function of these arrays: equal stores give equal results."""
        bits = z3.simplify(z3.Select(self.words(key), at))
        names = sorted(self.arrays.keys() - {key}, key=str)
        others = [a for k in names if _may_touch(a := self.arrays[k], k, at, key)]
        if not others:
            return bits
        sorts = [bits.sort(), at.sort(), *(a.sort() for a in others), bits.sort()]
        return z3.Function(f"beside {key} {len(others)} {[str(s) for s in sorts]}", *sorts)(bits, at, *others)

    def store(self, key: Key, at: Any, bits: Any) -> None:
        self.arrays[key] = z3.Store(self.words(key), at, bits)

    def forget_others(self, key: Key) -> None:
        """Give objects of other widths arbitrary values, after a store to a member of a union."""
        self.created += 1
        for other in [k for k in self.arrays if k != key]:
            sort = self.arrays[other].sort()
            self.arrays[other] = z3.Const(f"memory {other} beside a union {self.created}", sort)

    def put(self, at: Pointer, type_: CType, value: Any) -> None:
        """Store the initial value of an object."""
        self.store(width_of(type_), at.value, bits_of(converted(value, type_)))

    def put_characters(self, at: Pointer, type_: CType, text: str | None) -> None:
        """Store the initial value of an array of characters: the text, then zeros."""
        if text is None or type_.element.size != 1 or type_.count > COPIED:
            raise Unknown("an array of characters")
        for i, byte in enumerate(text.encode()[: type_.count].ljust(type_.count, b"\0")):
            self.put(at.moved(i), type_.element, Int(z3.BitVecVal(byte, 8), False))

    def copy(self, to: Pointer, at: Pointer, type_: CType) -> None:
        """Copy the value of a struct. Raises Unknown for bit fields, unions, volatile members and long arrays."""
        if type_.kind == "record":
            for f in type_.fields:
                if f.bits is not None or f.in_union or f.type.is_volatile:
                    raise Unknown("a struct as a value")
                self.copy(to.moved(f.at), at.moved(f.at), f.type)
        elif type_.kind == "array":
            if type_.count > COPIED:
                raise Unknown("a long array as a value")
            for i in range(type_.count):
                offset = i * type_.element.size
                self.copy(to.moved(offset), at.moved(offset), type_.element)
        else:
            width = ADDRESS if type_.is_reference else width_of(type_)
            words = self.words(width)
            self.arrays[width] = z3.Store(words, to.value, self.load(width, at.value))


def key_of(c: Expression) -> Key:
    """The key of the array that holds an object: its width; for a bit field, its bits."""
    member = c.value_member if isinstance(c, MemberOf) else None
    if member is not None and member.bits is not None:
        return member.bits, member.at_bit % 8
    return width_of(c.type)


def described(c: Expression) -> str:
    """A short text for an object in messages: `u->CR1`."""
    match c.bare:
        case ir.Name() as name:
            return name.name
        case ir.MemberOf(written_base=Expression() as base, member=ir.Declaration() as member):
            return f"{described(base)}{'->' if base.type.kind == 'pointer' else '.'}{member.name}"
        case ir.Subscript(base=base, index=index):
            return f"{described(base)}[{'' if index.constant is None else index.constant}]"
        case ir.Unary(operator="*", operand=operand):
            return f"*{described(operand)}"
        case ir.Cast(inside=inside):
            return described(inside)
        case ir.Binary(left=left, operator=operator, right=right) if c.constant is None:
            return f"({described(left)} {operator} {described(right)})"
    return "" if c.constant is None else f"{c.constant:#x}"


def sized_name(name: str, d: Variable) -> str:
    """The name of an object with its size, so that objects of different sizes have different names."""
    return f"{name} of {d.type.size} bytes" if d.type.size > 0 else name


def _bytes(key: Key) -> int:
    """Bytes of an object from its address on; for a bit field, the bytes that contain it."""
    return key // 8 if isinstance(key, int) else (key[0] + key[1] + 7) // 8


def _may_touch(array: Any, key: Any, at: Any, other: Any) -> bool:
    """Whether one of the stores in an array may have changed an object of another width."""
    root, offset = _split(at)
    while z3.is_store(array):
        stored, first = _split(array.arg(1))
        disjoint = bool(root and stored and root != stored and "#" in root + stored)  # a local variable
        disjoint = disjoint or bool(root and stored and root != stored and root[0] == stored[0] == "&")
        if root == stored and root and offset is not None and first is not None:
            disjoint = first + _bytes(key) <= offset or offset + _bytes(other) <= first
        if not disjoint:
            return True
        array = array.arg(0)
    return False


def _split(at: Any) -> tuple[str, int | None]:
    """(name of the object that contains an address, or ""; offset in it in bytes, or None if it is not constant)."""
    at = z3.simplify(at)
    parts = at.children() if z3.is_app_of(at, z3.Z3_OP_BADD) else [at]
    names = [p.decl().name() for p in parts if z3.is_const(p) and not z3.is_bv_value(p)]
    roots = [n for n in names if n.startswith("&")] or names
    rest = [p for p in parts if z3.is_bv_value(p)]
    if len(roots) != 1:
        return "", None
    constant = len(parts) == len(rest) + 1
    offset = sum(p.as_signed_long() for p in rest) if constant else None
    return roots[0], offset


Interpreter = Any  # that of `interpreter`, which imports this file
WHOLES = ("record", "array", "variable array")


@lru_cache(maxsize=8)
def addressed(program: Program) -> frozenset[str]:
    """The variables whose address the unit takes, or to which it binds a reference."""
    places, cpp = list[Expression](), program.unit.cpp
    for x in (x for f in program.functions for root in pieces(f) for x in root.all()):
        if isinstance(x, ir.Unary) and x.operator == "&":
            places.append(x.operand)
        elif cpp and isinstance(x, ir.Call) and x.to is not None:
            refers = [p.type.is_reference for p in x.to.expected]
            arguments = x.arguments[max(0, len(x.arguments) - len(refers)) :]
            places += [a for a, r in zip(arguments, refers, strict=False) if r]
        elif cpp and isinstance(x, ir.Declared) and x.variable.type.is_reference and x.value:
            places.append(x.value)
    names = (p.bare for p in places)
    return frozenset(n.variable.key for n in names if isinstance(n, ir.Name) and n.variable)


class Places:
    """The variables and objects of a run."""

    def __init__(self, run: Interpreter) -> None:
        self.run = run

    def in_memory(self, d: ir.Declaration | None) -> bool:
        """Whether a variable is stored in `Memory`: arrays and structs, and variables whose address is taken."""
        if not isinstance(d, ir.Variable):
            return False
        group, pointer = self.run.dialect.group_of(d.type)
        if (group and not pointer) or d.type.is_reference:
            return False
        whole = d.type.kind in WHOLES and not d.is_parameter
        return whole or (d.key in addressed(self.run.program) and d.name not in self.run.dialect.devices)

    def variable(self, d: ir.Variable) -> Pointer:
        """The address of a variable."""
        address = self.run.env.get(d.key)
        if isinstance(address, Pointer):
            return address
        return Pointer(z3.BitVec(f"&{sized_name(d.qualified if self.run.cpp else d.name, d)}", ADDRESS))

    def new_object(self, d: ir.Variable) -> Pointer:
        """Create the object of a local variable; returns its address."""
        at = self.run.env[d.key] = self.run.memory.create(sized_name(d.name, d))
        return at

    def scope(self, d: ir.Variable) -> tuple[dict[str, Any], str]:
        """(the variables that contain `d`, its key among them). The keys of globals are equal on both sides."""
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

    def is_stored(self, c: Expression) -> bool:
        """Whether an expression names an object in memory, in contrast to a variable outside of `Memory`."""
        target = c.bare
        d = target.variable if isinstance(target, ir.Name) else None
        return not d or self.in_memory(d) or bool(self.run.cpp and d.type.is_reference)

    def load(self, c: Expression, place: Pointer | None = None) -> Any:
        """The value of an object in memory. `place`: its address, if already evaluated."""
        c = c.bare
        if (constant := self.constant_of(c)) is not None:
            return constant
        if c.type.kind in WHOLES:
            if c.type.kind == "record":
                raise Unknown("a struct as a value")
            return self.object(c)  # an array decays
        key, at = key_of(c), (place or self.object(c)).value
        if c.type.is_volatile:
            return symbol(f"read?{self.run.memory.access('r', key, c.type.size, (at,), described(c))}", c.type)
        bits = self.run.memory.load(key, at)
        return typed(bits, c.type) if isinstance(key, int) else converted(Int(bits, c.type.signed), c.type)

    def constant_of(self, c: Expression) -> Int | Pointer | None:
        """The value of a global or static constant, or of an element of a constant array; None for others."""
        base = c.base.bare if isinstance(c, ir.Subscript) else c
        d = base.variable if isinstance(base, ir.Name) else None
        lasts = d is not None and (d.is_global or d.storage == "STATIC") and c.type.is_const
        if d is None or not lasts or c.type.is_volatile or d.default is None:
            return None
        if (
            c.type.kind == "pointer"
            and isinstance(base, ir.Name)
            and c is base
            and d.name not in self.run.dialect.devices
        ):
            return converted(self.run.value(d.default), c.type)
        if c.type.kind != "number":
            return None
        if not isinstance(c, ir.Subscript):
            return self.run.constant(d.default, d.name) if d.default.constant is not None else None
        items = d.default.items if isinstance(d.default, ir.ListValue) else ()
        if not items or any(x.constant is None or isinstance(x, ir.Designated) for x in items):
            return None
        width, index = width_of(c.type), number(self.run.value(c.index))
        value = z3.Function(f"behind {d.name}", index.sort(), z3.BitVecSort(width))(index)
        for i, x in enumerate((*items, *[None] * (d.type.count - len(items)))):
            value = z3.If(index == i, z3.BitVecVal(x.constant if x and x.constant else 0, width), value)
        return Int(z3.simplify(value), c.type.signed)

    @staticmethod
    def own_name(d: ir.Variable) -> str:
        """The name of a volatile variable whose address is never taken."""
        return d.name if d.is_global else f"local {d.name}"

    def store_object(self, c: Expression, value: Any, place: Pointer | None = None) -> Any:
        """Store to an object in memory; returns the stored value. `place`: its address, if already evaluated."""
        c = c.bare
        key, at = key_of(c), (place or self.object(c)).value
        bits = bits_of(value)
        if not isinstance(key, int):
            bits = z3.Extract(key[0] - 1, 0, bits)
            value = Int(z3.ZeroExt(width_of(c.type) - key[0], bits), c.type.signed)
        if c.type.is_volatile:
            self.run.memory.access("w", key, c.type.size, (at, bits), described(c))
            return value
        if any(isinstance(x, ir.MemberOf) and x.in_union for x in c.all()):
            self.run.memory.forget_others(key)
        self.run.memory.store(key, at, bits)
        return value

    def store(self, left: Expression, value: Any) -> Any:
        """Store to a variable or an object; returns the stored value."""
        target = left.bare
        stored = converted(value, target.type)
        d = target.to if isinstance(target, ir.Name) else None
        if not isinstance(d, ir.Variable) or not isinstance(target, ir.Name):
            return self.store_object(target, stored)
        if self.is_stored(target):
            return self.store_object(target, stored)
        if target.type.is_volatile:
            self.run.memory.access("w", self.own_name(d), d.type.size, (bits_of(stored),), target.name)
            return stored
        variables, name = self.scope(d)
        variables[name] = stored
        return stored

    def object(self, c: Expression) -> Pointer:
        """The address of an object. Raises Unknown for other expressions."""
        temporary = objects.temporary(self.run, c) if self.run.cpp else None
        if temporary is not None:
            return temporary
        target = c.bare
        if self.run.cpp and isinstance(target, ir.MemberOf) and target.base is None:
            member = target.value_member
            if member is None or target.type.is_reference:
                raise Unknown("a member that is no value")
            return self.run.this.moved(target.at)
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
                return self.object_of(base).moved(target.at)
        raise Unknown("an object in memory")

    def plain_object(self, c: Expression) -> Pointer:
        """The address of a struct that is copied. Raises Unknown if it is volatile: C leaves its accesses open."""
        if c.bare.type.is_volatile:
            raise Unknown("a volatile struct as a value")
        return self.object(c)

    def object_of(self, base: Expression) -> Pointer:
        """The object in front of `.` or `->`."""
        return self.run.value(base) if base.type.kind == "pointer" else self.object(base)

    def referred(self, target: Expression) -> Pointer | None:
        """The address that a C++ reference (a variable, a member, the result of a call) is bound to; else None."""
        if not self.run.cpp:
            return None
        match target:
            case ir.Name(to=ir.Variable() as d) if d.type.is_reference:
                place = self.run.env.get(self.scope(d)[1])
                return place if isinstance(place, Pointer) else None
            case ir.MemberOf() if target.value_member and target.value_member.type.is_reference:
                of = self.object_of(target.base) if target.base else self.run.this
                return Pointer(self.run.memory.load(ADDRESS, of.moved(target.at).value))
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
        """Store the initial value of an object. Members without a value stay arbitrary."""
        if self.run.cpp and objects.constructed(self.run, at, value):
            return
        if not isinstance(value, ir.ListValue):
            if type_.kind == "record":
                self.run.memory.copy(at, self.plain_object(value), type_)
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
            if value.is_left_out:  # C++'s default member initialiser
                value = f.default or value
            self.initialise(at.moved(f.at), f.type, value)


def body_of(function: ir.Function) -> ir.Block:
    """The body of a function. Raises Unknown for code that a driver must not have; headers may have it."""
    try:
        assert function.body is not None
        return function.body
    except EdgebuildError as error:
        raise Unknown(f"{error}") from None


def pieces(function: ir.Function) -> list[ir.Node]:
    """The code of a function: its body, and the member initialisers of a constructor."""
    return [*(i.value for i in function.initialisers if function.form == "constructor"), body_of(function)]
