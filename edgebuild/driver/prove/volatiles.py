"""The other side of a proof: generated C."""

from __future__ import annotations

from typing import Any

from clang.cindex import Cursor, CursorKind, TypeKind

from edgebuild.driver.prove.classes import Interpreter
from edgebuild.driver.prove.effort import Unknown
from edgebuild.driver.prove.hardware import Pointer
from edgebuild.driver.prove.values import POINTERS, Int, signed_type, sized
from edgebuild.driver.source import clang

K = CursorKind
HAL = "HAL_"  # how the names of functions begin that access registers


class Generated(Interpreter):
    """Generated C: stores and loads of volatile objects."""

    def cast(self, value: Any, inside: Cursor, c: Cursor) -> Any:
        name, pointer = clang.record(clang.bare(inside).type)
        if pointer and isinstance(value, Pointer) and c.type.get_canonical().kind != TypeKind.POINTER:
            return Pointer(value.value, name)  # from here on, offsets are those of registers
        return super().cast(value, inside, c)

    def device(self, d: Cursor) -> Pointer:
        """The address of a device, as the generated code itself has it."""
        value = self.value([x for x in clang.children(d) if clang.is_expression(x)][-1])
        assert isinstance(value, Pointer)
        return value

    def _is_register(self, at: Any) -> bool:
        """Whether an address is one in a group, in a function that accesses registers."""
        return isinstance(at, Pointer) and at.group in self.layout.groups and self.active[-1].spelling.startswith(HAL)

    def assigned(self, left: Cursor, value: Any) -> Any:
        target = clang.bare(left)
        volatile = target.type.is_volatile_qualified()
        if target.kind == K.UNARY_OPERATOR and volatile and clang.unary(target) == "*":
            at = self.value(clang.children(target)[0])
            if self._is_register(at):
                stored = self.converted(value, target.type)
                bits = sized(stored, self.width(target.type))
                self.hardware.store(at, bits.size() // 8, bits, self.active[-1].spelling)
                return stored
        return super().assigned(left, value)

    def e_unary_operator(self, c: Cursor) -> Any:
        at = None
        if clang.unary(c) == "*" and c.type.is_volatile_qualified() and self.active[-1].spelling.startswith(HAL):
            at = self.value(clang.children(c)[0])
        if at is not None and self._is_register(at):
            return Int(self.hardware.load(at, self.width(c.type) // 8, self.active[-1].spelling), signed_type(c.type))
        return super().e_unary_operator(c)

    def located(self, c: Cursor) -> Pointer:
        if c.kind == K.MEMBER_REF_EXPR and clang.children(c):
            base = clang.children(c)[0]
            start = self.value(base) if base.type.get_canonical().kind == TypeKind.POINTER else self.address(base)
            assert isinstance(start, Pointer)
            return start.moved(c.referenced.get_field_offsetof() // 8)
        if c.kind == K.ARRAY_SUBSCRIPT_EXPR:
            base, index = clang.children(c)
            return self.element(self.value(base), self.value(index), c.type)
        if c.kind == K.UNARY_OPERATOR and clang.unary(c) == "*":
            at = self.value(clang.children(c)[0])
            assert isinstance(at, Pointer)
            return at
        if c.kind == K.CALL_EXPR:
            raise Unknown("the address of a value")
        return super().located(c)

    def e_member_ref_expr(self, c: Cursor) -> Any:
        if c.type.get_canonical().kind in POINTERS[1:]:
            return self.address(c)  # an array decays
        return super().e_member_ref_expr(c)

    e_array_subscript_expr = e_member_ref_expr
