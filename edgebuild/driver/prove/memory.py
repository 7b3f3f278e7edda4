"""Ordinary objects with an address: structs, arrays, bit fields, and variables that something points to.

Each has an address of its own that nothing is known of, and what is stored there stands in an array per width. Both
sides make the same objects in the same order, so that these names are theirs in common.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import z3

from edgebuild.base.dataclass import dataclass
from edgebuild.driver.prove.effort import Unknown
from edgebuild.driver.prove.hardware import ADDRESS, Hardware, Outside, Pointer
from edgebuild.driver.prove.values import Int, bits_of, converted, width_of
from edgebuild.driver.source.ir import CType, Expression, MemberOf, Variable

COPIED = 16  # elements of an array that is copied
Key = int | tuple[int, int]  # the width of an object in bits; of a bit field (width, lowest bit in its byte)


@dataclass
class Memory:
    """The objects of one run, by their addresses, and the variables outside of functions that have none."""

    hardware: Hardware
    arrays: dict[Key, Any] = field(default_factory=dict)
    globals: dict[str, Any] = field(default_factory=dict)
    created: int = 0  # objects so far

    def create(self, name: str, numbered: str = " #") -> Pointer:
        """The address of a new object."""
        self.created += 1
        return Pointer(z3.BitVec(f"&{name}{numbered}{self.created}", ADDRESS))

    def call(self, name: str, values: tuple[Any, ...]) -> int:
        """Call something unknown, which finds all objects and variables as they are; its number."""
        number = self.hardware.call(name, values, Outside(self.hardware.calls, self.arrays, self.globals))
        self.globals, self.arrays = {}, {}
        return number

    def words(self, key: Key) -> Any:
        """All objects of a width; nothing is reordered among them, so objects of other widths are apart."""
        width = key if isinstance(key, int) else key[0]
        if key not in self.arrays:
            name = f"memory {key}!{self.hardware.calls}"
            self.arrays[key] = z3.Array(name, z3.BitVecSort(ADDRESS), z3.BitVecSort(width))
        return self.arrays[key]

    def load(self, key: Key, at: Any) -> Any:
        """The bits at an address. Stores of other widths since the last unknown call may have changed them: how is left
        open, and is the same if all of those were the same."""
        bits = z3.simplify(z3.Select(self.words(key), at))
        others = [a for k, a in sorted(self.arrays.items(), key=str) if k != key and _may_touch(a, k, at, key)]
        if not others:
            return bits
        sorts = [bits.sort(), at.sort(), *(a.sort() for a in others), bits.sort()]
        return z3.Function(f"beside {key} {len(others)} {[str(s) for s in sorts]}", *sorts)(bits, at, *others)

    def store(self, key: Key, at: Any, bits: Any) -> None:
        self.arrays[key] = z3.Store(self.words(key), at, bits)

    def forget_others(self, key: Key) -> None:
        """A member of a union was stored: nothing is known of objects of other widths."""
        self.created += 1
        for other in [k for k in self.arrays if k != key]:
            sort = self.arrays[other].sort()
            self.arrays[other] = z3.Const(f"memory {other} beside a union {self.created}", sort)

    def put(self, at: Pointer, type_: CType, value: Any) -> None:
        """The first value of an object at an address."""
        self.store(width_of(type_), at.value, bits_of(converted(value, type_)))

    def put_characters(self, at: Pointer, type_: CType, text: str | None) -> None:
        """The first value of an array of characters, with zeros behind the text."""
        if text is None or type_.element.size != 1 or type_.count > COPIED:
            raise Unknown("an array of characters")
        for i, byte in enumerate(text.encode()[: type_.count].ljust(type_.count, b"\0")):
            self.put(at.moved(i), type_.element, Int(z3.BitVecVal(byte, 8), False))

    def copy(self, to: Pointer, at: Pointer, type_: CType) -> None:
        """The value of a struct from another one."""
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
    """The array that holds an object: that of its width, for bit fields that of the same bits."""
    member = c.value_member if isinstance(c, MemberOf) else None
    if member is not None and member.bits is not None:
        return member.bits, member.at_bit % 8
    return width_of(c.type)


def sized_name(name: str, d: Variable) -> str:
    """The name of an object, which holds its bytes: one of another size is another one."""
    return f"{name} of {d.type.size} bytes" if d.type.size > 0 else name


def _bytes(key: Key) -> int:
    """Bytes that an object may touch from its address on; of a bit field those around it."""
    return key // 8 if isinstance(key, int) else (key[0] + key[1] + 7) // 8


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
