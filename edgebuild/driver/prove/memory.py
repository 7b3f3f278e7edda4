"""Ordinary objects with an address: structs, arrays, bit fields, and variables that something points to.

Each has an address of its own that nothing is known of, and what is stored there stands in an array per width. Both
sides make the same objects in the same order, so that these names are theirs in common.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import z3
from clang.cindex import Cursor, CursorKind, Type, TypeKind

from edgebuild.driver.analysis.chains import variable_name
from edgebuild.driver.analysis.keys import REFERENCES
from edgebuild.driver.prove.effort import Unknown
from edgebuild.driver.prove.hardware import ADDRESS, Pointer
from edgebuild.driver.prove.machine import Machine
from edgebuild.driver.prove.values import Int, bits_of, signed_type
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import group_of
from edgebuild.driver.source.texts import plain_string

K = CursorKind
WHOLES = (TypeKind.RECORD, TypeKind.CONSTANTARRAY, TypeKind.VARIABLEARRAY)
COPIED = 16  # elements of an array that is copied


class Memory(Machine):
    """Objects, by their addresses."""

    # ---- variables with an address

    @cached_property
    def pointed(self) -> frozenset[str]:
        """The variables whose address the unit takes, or to which it binds a reference."""
        found: list[Cursor] = []
        for f in self.unit.functions:
            for c in clang.preorder(f):
                if c.kind == K.UNARY_OPERATOR and clang.unary(c) == "&":
                    found += clang.children(c)
                elif self.unit.cpp and c.kind == K.CALL_EXPR and c.referenced is not None:
                    kinds = [p.type.get_canonical().kind for p in c.referenced.get_arguments() or ()]
                    arguments = clang.children(c)[len(clang.children(c)) - len(kinds) :]
                    found += [a for a, kind in zip(arguments, kinds, strict=False) if kind in REFERENCES]
                elif self.unit.cpp and c.kind == K.VAR_DECL and c.type.get_canonical().kind in REFERENCES:
                    found += clang.children(c)
        names = [clang.bare(x) for x in found]
        return frozenset(variable_name(x.referenced) for x in names if x.kind == K.DECL_REF_EXPR and x.referenced)

    def in_memory(self, d: Cursor | None) -> bool:
        """Whether a variable has an address that matters."""
        if d is None or d.kind not in (K.VAR_DECL, K.PARM_DECL):
            return False
        group, pointer = group_of(d.type, self.dialect)
        if (group and not pointer) or d.type.get_canonical().kind in REFERENCES:
            return False
        whole = d.type.get_canonical().kind in WHOLES and d.kind == K.VAR_DECL
        return whole or (variable_name(d) in self.pointed and d.spelling not in self.dialect.devices)

    def variable(self, d: Cursor) -> Pointer:
        """The address of a variable."""
        known = self.env.get(variable_name(d))
        if isinstance(known, Pointer):
            return known
        name = clang.qualified(d) if self.unit.cpp else d.spelling
        return Pointer(z3.BitVec(f"&{name}{_sized(d)}", ADDRESS))

    def new_object(self, d: Cursor) -> Pointer:
        """The address of a local variable whose life begins."""
        self.made += 1
        at = self.env[variable_name(d)] = Pointer(z3.BitVec(f"&{d.spelling}{_sized(d)} #{self.made}", ADDRESS))
        return at

    # ---- what is stored

    def words(self, key: Any) -> Any:
        """All objects of a width; nothing is reordered among them, so objects of other widths are apart."""
        width = key if isinstance(key, int) else key[0]
        if key not in self.memory:
            name = f"memory {key}!{self.hardware.calls}"
            self.memory[key] = z3.Array(name, z3.BitVecSort(ADDRESS), z3.BitVecSort(width))
        return self.memory[key]

    def select(self, key: Any, at: Any) -> Any:
        """The value at an address. Stores of other widths since the last unknown call may have changed it: how is left
        open, and is the same if all of those were the same."""
        found = z3.simplify(z3.Select(self.words(key), at))
        others = [a for k, a in sorted(self.memory.items(), key=str) if k != key and _may_touch(a, k, at, key)]
        if not others:
            return found
        sorts = [found.sort(), at.sort(), *(a.sort() for a in others), found.sort()]
        return z3.Function(f"beside {key} {len(others)} {[str(s) for s in sorts]}", *sorts)(found, at, *others)

    def _key(self, c: Cursor) -> Any:
        """The array that holds an object: that of its width, for bit fields that of the same bits."""
        d = c.referenced if c.kind == K.MEMBER_REF_EXPR else None
        if d is not None and d.kind == K.FIELD_DECL and d.is_bitfield():
            return d.get_bitfield_width(), d.get_field_offsetof() % 8
        return self.width(c.type)

    def remembered(self, c: Cursor) -> Any:
        """The value of an object."""
        c = clang.bare(c)
        if c.type.get_canonical().kind in WHOLES:
            if c.type.get_canonical().kind == TypeKind.RECORD:
                raise Unknown("a struct as a value")
            return self.object(c)  # an array decays
        key, at = self._key(c), self.object(c).value
        if c.type.is_volatile_qualified():
            number = self.hardware.call("a volatile object", (at,))
            return self.symbol(f"volatile?{number}", c.type)
        found = self.select(key, at)
        if not isinstance(key, int):
            return self.converted(Int(found, signed_type(c.type)), c.type)
        return self.typed(found, c.type)

    def remember(self, c: Cursor, value: Any) -> Any:
        """Store to an object; the value that it then has."""
        key, at = self._key(c), self.object(c).value
        bits = bits_of(value)
        if not isinstance(key, int):
            bits = z3.Extract(key[0] - 1, 0, bits)
            value = Int(z3.ZeroExt(self.width(c.type) - key[0], bits), signed_type(c.type))
        if c.type.is_volatile_qualified():
            self.hardware.call("a volatile object is stored", (at, bits))
            return value
        if self._of_union(c):
            self.made += 1
            for other in [k for k in self.memory if k != key]:
                sort = self.memory[other].sort()
                self.memory[other] = z3.Const(f"memory {other} beside a union {self.made}", sort)
        self.memory[key] = z3.Store(self.words(key), at, bits)
        return value

    @staticmethod
    def _of_union(c: Cursor) -> bool:
        parents = (x.referenced.semantic_parent for x in clang.preorder(c) if x.kind == K.MEMBER_REF_EXPR)
        return any(p is not None and p.kind == K.UNION_DECL for p in parents)

    def put(self, at: Pointer, type_: Type, value: Any) -> None:
        """The first value of an object at an address."""
        width = self.width(type_)
        self.memory[width] = z3.Store(self.words(width), at.value, bits_of(self.converted(value, type_)))

    def copy(self, to: Pointer, at: Pointer, type_: Type) -> None:
        """The value of a struct from another one."""
        type_ = type_.get_canonical()
        if type_.kind == TypeKind.RECORD:
            for f in type_.get_fields():
                if f.is_bitfield() or f.semantic_parent.kind == K.UNION_DECL or f.type.is_volatile_qualified():
                    raise Unknown("a struct as a value")
                offset = f.get_field_offsetof() // 8
                self.copy(to.moved(offset), at.moved(offset), f.type)
        elif type_.kind == TypeKind.CONSTANTARRAY:
            if type_.element_count > COPIED:
                raise Unknown("a long array as a value")
            for i in range(type_.element_count):
                offset = i * type_.element_type.get_size()
                self.copy(to.moved(offset), at.moved(offset), type_.element_type)
        else:
            width = ADDRESS if type_.kind in REFERENCES else self.width(type_)
            words = self.words(width)
            self.memory[width] = z3.Store(words, to.value, self.select(width, at.value))

    def initialise(self, at: Pointer, type_: Type, value: Cursor) -> None:
        """The first value of an object; of members that are not named, nothing is known."""
        type_ = type_.get_canonical()
        items = clang.children(value)
        if value.kind != K.INIT_LIST_EXPR:
            if type_.kind == TypeKind.RECORD:
                self.copy(at, self.object(value), type_)
            elif type_.kind == TypeKind.CONSTANTARRAY:
                self._characters(at, type_, clang.bare(value))
            else:
                self.put(at, type_, self.value(value))
        elif type_.kind == TypeKind.RECORD:
            self._members(at, type_, items)
        elif type_.kind == TypeKind.CONSTANTARRAY:
            if any(len(clang.children(x)) > 1 and x.kind == K.UNEXPOSED_EXPR for x in items):
                raise Unknown("an array whose elements are named")
            for i, x in enumerate(items):
                self.initialise(at.moved(i * type_.element_type.get_size()), type_.element_type, x)
        else:
            self.put(at, type_, self.value(items[0]) if items else Int(z3.BitVecVal(0, 32), True))

    def _characters(self, at: Pointer, type_: Type, text: Cursor) -> None:
        """The first value of an array of characters, with zeros behind the text."""
        plain = plain_string(text)
        size = type_.element_count
        if plain is None or type_.element_type.get_size() != 1 or size > COPIED:
            raise Unknown("an array of characters")
        for i, byte in enumerate(plain.encode()[:size].ljust(size, b"\0")):
            self.put(at.moved(i), type_.element_type, Int(z3.BitVecVal(byte, 8), False))

    def _members(self, at: Pointer, type_: Type, items: list[Cursor]) -> None:
        fields = list(type_.get_fields())
        for i, x in enumerate(items):
            parts = clang.children(x) if x.kind == K.UNEXPOSED_EXPR else []
            named = [p for p in parts if p.kind == K.MEMBER_REF]
            if len(named) > 1 or (named and len(parts) != 2):
                raise Unknown("a member of a member that is named")
            f = named[0].referenced if named else fields[i]
            if f.is_bitfield() or f.type.is_volatile_qualified():
                raise Unknown("the first value of a bit field in memory")
            value = parts[-1] if named else x
            if clang.span(value)[0] == clang.span(value)[1]:  # the value of C++ stands with the member
                value = next(iter([p for p in clang.children(f) if clang.is_expression(p)][-1:]), value)
            self.initialise(at.moved(f.get_field_offsetof() // 8), f.type, value)

    def object(self, c: Cursor) -> Pointer:
        """The address of an object."""
        c = clang.bare(c)
        if c.kind == K.DECL_REF_EXPR and self.in_memory(c.referenced):
            return self.variable(c.referenced)
        if c.kind == K.UNARY_OPERATOR and clang.unary(c) == "*":
            return self.value(clang.children(c)[0])
        if c.kind == K.ARRAY_SUBSCRIPT_EXPR:
            base, index = clang.children(c)
            at = self.value(base)
            if isinstance(at, Pointer):
                return self.element(at, self.value(index), c.type)
        if c.kind == K.MEMBER_REF_EXPR and c.referenced.kind == K.FIELD_DECL and clang.children(c):
            base = clang.children(c)[0]
            points = base.type.get_canonical().kind == TypeKind.POINTER
            return (self.value(base) if points else self.object(base)).moved(c.referenced.get_field_offsetof() // 8)
        raise Unknown("an object in memory")


def _sized(d: Cursor) -> str:
    """The bytes of a variable, which its name holds: one of another size is another one."""
    size = d.type.get_size()
    return f" of {size} bytes" if size > 0 else ""


def _bytes(key: Any) -> int:
    """Bytes that an object may touch from its address on; of a bit field those around it."""
    return int(key) // 8 if isinstance(key, int) else (key[0] + key[1] + 7) // 8


def _may_touch(array: Any, key: Any, at: Any, other: Any) -> bool:
    """Whether a store among those of an array may have touched an object of another width."""
    root, offset = _split(at)
    while z3.is_store(array):
        stored, first = _split(array.arg(1))
        apart = bool(root and stored and root != stored and "#" in root + stored)  # a local variable
        apart = apart or bool(root and stored and root != stored and root[0] == stored[0] == "&")
        if root == stored and root and offset is not None and first is not None:
            apart = first + _bytes(key) <= offset or offset + _bytes(other) <= first
        if not apart:
            return True
        array = array.arg(0)
    return False


def _split(at: Any) -> tuple[str, int | None]:
    """(the object that an address begins in, or "", the offset in it if that is a number)."""
    at = z3.simplify(at)
    parts = at.children() if z3.is_app_of(at, z3.Z3_OP_BADD) else [at]
    names = [str(p) for p in parts if z3.is_const(p) and not z3.is_bv_value(p)]
    roots = [n for n in names if n.startswith("&")] or names
    rest = [p for p in parts if z3.is_bv_value(p)]
    if len(roots) != 1:
        return "", None
    known = len(parts) == len(rest) + 1
    offset = sum(p.as_signed_long() for p in rest) if known else None
    return roots[0], offset
