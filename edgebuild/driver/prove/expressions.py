"""Symbolic execution of C expressions."""

from __future__ import annotations

from typing import Any

import z3
from clang.cindex import Cursor, CursorKind, TypeKind

from edgebuild.driver.analysis.chains import is_elvis, variable_name
from edgebuild.driver.prove.effort import Unknown
from edgebuild.driver.prove.hardware import ADDRESS, Pointer
from edgebuild.driver.prove.memory import WHOLES, Memory
from edgebuild.driver.prove.reals import Real, negated
from edgebuild.driver.prove.values import Int, bits_of, flag, signed_type
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import group_of

K = CursorKind


class Expressions(Memory):
    """Expressions of C. Whatever has an address is in `memory`."""

    def e_integer_literal(self, c: Cursor) -> Int:
        return Int(z3.BitVecVal(clang.constant(c) or 0, self.width(c.type)), signed_type(c.type))

    e_character_literal = e_integer_literal

    def e_floating_literal(self, c: Cursor) -> Any:
        start, end = clang.span(c)
        text = self.unit.text[start:end].decode("utf-8", "replace")
        if not text[:1].isdigit() and text[:1] != ".":
            raise Unknown("a floating-point number whose text is not at hand")
        return self.typed(z3.BitVec(f"real {text}", self.width(c.type)), c.type)

    def e_string_literal(self, c: Cursor) -> Pointer:
        return Pointer(z3.BitVec(f"text {c.spelling}", ADDRESS))

    def e_init_list_expr(self, c: Cursor) -> Any:
        """`int x{3};`"""
        items = clang.children(c)
        if len(items) > 1 or c.type.get_canonical().kind in WHOLES:
            raise Unknown("a list of values")
        return self.value(items[0]) if items else Int(z3.BitVecVal(0, self.width(c.type)), False)

    def e_paren_expr(self, c: Cursor) -> Any:
        return self.value(clang.children(c)[0])

    def e_unexposed_expr(self, c: Cursor) -> Any:
        inside = [x for x in clang.children(c) if clang.is_expression(x)]
        if clang.is_offset(c):
            return self.offset(c)
        if is_elvis(inside):
            first = self.value(inside[0])
            return self.converted(first if self.decisions.decide(self.truth(first)) else self.value(inside[3]), c.type)
        if len(inside) != 1:
            return self._atomic(c, inside)
        target = clang.bare(c)
        if target.kind == K.DECL_REF_EXPR and target.referenced.kind == K.FUNCTION_DECL:
            return self.value(target)
        return self.converted(self.value(inside[0]), c.type)

    def _atomic(self, c: Cursor, operands: list[Cursor]) -> Any:
        """An operation of the compiler: a barrier, after which the object has some value."""
        if not operands or operands[0].type.get_canonical().kind != TypeKind.POINTER:
            raise Unknown(f"an expression of the compiler's own: {clang.pretty(c)}")
        places = [clang.bare(x) for x in operands]
        objects = [clang.bare(clang.children(x)[0]) for x in places if x.kind == K.UNARY_OPERATOR]
        values = [self.value(x) for x, p in zip(operands, places, strict=True) if p.kind != K.UNARY_OPERATOR]
        name = next((token.spelling for token in c.get_tokens()), "")
        of = " ".join([name, *(o.spelling for o in objects)])
        number = self.hardware.call(f"atomic {of}", tuple(bits_of(v) for v in values))
        for o in objects:
            if o.kind != K.DECL_REF_EXPR:
                raise Unknown("an atomic object in memory")
            variables, name = self.scope(o.referenced)
            variables[name] = self.symbol(f"{o.spelling}?{number}", o.referenced.type)
        return None if c.type.get_canonical().kind == TypeKind.VOID else self.symbol(f"atomic?{number}", c.type)

    def offset(self, c: Cursor) -> Int:
        """The value of an `offsetof`."""
        value = clang.constant(c)
        if value is None:
            raise Unknown("offsetof of something")
        return Int(z3.BitVecVal(value, self.width(c.type)), False)

    def e_generic_selection_expr(self, c: Cursor) -> Int:
        value = clang.constant(c)
        if value is None:
            raise Unknown("_Generic of something")
        return Int(z3.BitVecVal(value, self.width(c.type)), signed_type(c.type))

    def e_cstyle_cast_expr(self, c: Cursor) -> Any:
        inside = [x for x in clang.children(c) if clang.is_expression(x)][-1]
        value = self.value(inside)
        return self.cast(value, inside, c)

    def cast(self, value: Any, inside: Cursor, c: Cursor) -> Any:
        """The value of `inside` as the type of a cast."""
        return self.converted(value, c.type)

    def e_decl_ref_expr(self, c: Cursor) -> Any:
        d = c.referenced
        if d is not None and d.kind == K.FUNCTION_DECL:
            return Pointer(z3.BitVec(f"function {self.unit.function_name(d)}", ADDRESS))
        if self.in_memory(d):
            return self.remembered(c)
        if d.kind == K.ENUM_CONSTANT_DECL:
            return Int(z3.BitVecVal(d.enum_value, self.width(c.type)), signed_type(c.type))
        if d.spelling in self.dialect.devices and variable_name(d) not in self.env:
            return self.device(d)
        if c.type.is_volatile_qualified():
            number = self.hardware.call(f"volatile {d.spelling}", ())
            return self.symbol(f"{d.spelling}?{number}", d.type)
        variables, name = self.scope(d)
        if name not in variables:
            calls = f"!{self.hardware.calls}" if variables is self.globals else ""
            variables[name] = self.symbol(f"global {name}{calls}", d.type)
        return variables[name]

    def device(self, d: Cursor) -> Pointer:
        """The address of a device, as the source has it."""
        return Pointer(z3.BitVecVal(self.dialect.devices[d.spelling].address, ADDRESS))

    def assigned(self, left: Cursor, value: Any) -> Any:
        """Store to a place; the value that the place then has."""
        target = clang.bare(left)
        stored = self.converted(value, target.type)
        if target.kind != K.DECL_REF_EXPR or self.in_memory(target.referenced):
            return self.remember(target, stored)
        if target.type.is_volatile_qualified():
            self.hardware.call(f"a store of volatile {target.spelling}", (bits_of(stored),))
            return stored
        variables, name = self.scope(target.referenced)
        variables[name] = stored
        return stored

    def e_unary_operator(self, c: Cursor) -> Any:
        operator, operand = clang.unary(c), clang.children(c)[0]
        if operator == "&":
            return self.address(operand)
        if operator == "*":
            return self.remembered(c)
        if operator.endswith(("++", "--")):
            old = self.value(operand)
            new = self.arithmetic(operator[-1], old, Int(z3.BitVecVal(1, 32), True), operand.type)
            stored = self.assigned(operand, new)
            return old if operator.startswith("post") else stored
        value = self.value(operand)
        if operator == "!":
            return flag(z3.Not(self.truth(value)))
        if isinstance(value, Real):
            return negated(value) if operator == "-" else value
        if operator in ("-", "~", "+"):
            return Int({"-": -value.bits, "~": ~value.bits, "+": value.bits}[operator], value.signed)
        raise Unknown(f"the operator {operator}")

    def address(self, c: Cursor) -> Pointer:
        """The address of a group, or of a struct that names the way to one."""
        return self.located(clang.bare(c))

    def located(self, c: Cursor) -> Pointer:
        """The address of what no reference stands for."""
        return self.object(c)

    def e_member_ref_expr(self, c: Cursor) -> Any:
        return self.remembered(c)

    e_array_subscript_expr = e_member_ref_expr

    def e_binary_operator(self, c: Cursor) -> Any:
        left, right = clang.children(c)
        operator = clang.binary(c)
        if operator == "=" and _is_struct(left) and not group_of(left.type, self.dialect)[0]:
            self.copy(self.object(left), self.object(right), left.type)
            return None
        if operator == "=":
            return self.stored(left, right)
        if operator == ",":
            self.value(left)
            return self.value(right)
        if operator in ("&&", "||"):
            first = self.decisions.decide(self.truth(self.value(left)))
            if first == (operator == "||"):
                return flag(z3.BoolVal(first))
            return flag(z3.BoolVal(self.decisions.decide(self.truth(self.value(right)))))
        return self.arithmetic(operator, self.value(left), self.value(right), left.type)

    def stored(self, left: Cursor, right: Cursor) -> Any:
        """An assignment with `=`."""
        return self.assigned(left, self.value(right))

    def e_conditional_operator(self, c: Cursor) -> Any:
        condition, yes, no = clang.children(c)
        chosen = yes if self.decisions.decide(self.truth(self.value(condition))) else no
        return self.converted(self.value(chosen), c.type)

    def e_compound_assignment_operator(self, c: Cursor) -> Any:
        left, right = clang.children(c)
        old = self.value(left)
        return self.assigned(left, self.arithmetic(clang.binary(c)[:-1], old, self.value(right), left.type))

    def e_cxx_unary_expr(self, c: Cursor) -> Int:
        value = clang.constant(c)
        if value is None:
            raise Unknown("sizeof of something")
        return Int(z3.BitVecVal(value, self.width(c.type)), signed_type(c.type))


def _is_struct(c: Cursor) -> bool:
    return bool(c.type.get_canonical().kind == TypeKind.RECORD)
