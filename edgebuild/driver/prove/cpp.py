"""Symbolic execution of C++ expressions: methods, references and casts. Objects in variables are not followed."""

from __future__ import annotations

from typing import Any

import z3
from clang.cindex import Cursor, CursorKind, TypeKind

from edgebuild.driver.analysis.chains import variable_name
from edgebuild.driver.analysis.keys import REFERENCES
from edgebuild.driver.prove.effort import Unknown
from edgebuild.driver.prove.hardware import ADDRESS, Pointer
from edgebuild.driver.prove.program import Program
from edgebuild.driver.prove.values import POINTERS, TURNS, Int, bits_of
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import group_of

K = CursorKind


class CppExpressions(Program):
    """Expressions of C++ besides those of C. In C nothing here is asked."""

    def e_cxx_this_expr(self, c: Cursor) -> Pointer:
        return self.this

    def e_cxx_null_ptr_literal_expr(self, c: Cursor) -> Pointer:
        return Pointer(z3.BitVecVal(0, ADDRESS))

    def e_cxx_bool_literal_expr(self, c: Cursor) -> Int:
        return Int(z3.BitVecVal(clang.constant(c) or 0, 8), False)

    e_cxx_static_cast_expr = e_cxx_reinterpret_cast_expr = Program.e_cstyle_cast_expr
    e_cxx_const_cast_expr = e_cxx_functional_cast_expr = Program.e_cstyle_cast_expr

    def bound(self, c: Cursor) -> Pointer:
        """The address that a reference is bound to: of a group, or of a struct that names the way to one."""
        return self.address(c)

    def e_decl_ref_expr(self, c: Cursor) -> Any:
        d = c.referenced
        if self.unit.cpp and d.type.get_canonical().kind in REFERENCES:
            return self.remembered(c)
        return super().e_decl_ref_expr(c)

    def assigned(self, left: Cursor, value: Any) -> Any:
        target = clang.bare(left)
        refers = target.kind == K.DECL_REF_EXPR and target.referenced.type.get_canonical().kind in REFERENCES
        if self.unit.cpp and refers:
            return self.remember(target, self.converted(value, target.type))
        return super().assigned(left, value)

    def begin(self, d: Cursor, parts: list[Cursor]) -> None:
        if self.unit.cpp and d.type.get_canonical().kind in REFERENCES:
            self.env[variable_name(d)] = self.bound(parts[-1])
        else:
            super().begin(d, parts)

    def s_cxx_for_range_stmt(self, c: Cursor) -> None:
        """A loop over an array of a known length, turn by turn."""
        *parts, body = clang.children(c)
        d, over = next(x for x in parts if x.kind == K.VAR_DECL), next(x for x in parts if clang.is_expression(x))
        type_ = over.type.get_canonical()
        if type_.kind != TypeKind.CONSTANTARRAY or type_.element_count > TURNS or self.in_memory(d):
            raise Unknown("a loop over a range that is no short array")
        element, name = type_.element_type, variable_name(d)
        whole = element.get_canonical().kind in (TypeKind.RECORD, TypeKind.CONSTANTARRAY)
        if whole or element.is_volatile_qualified():
            raise Unknown("a loop over a range of objects")
        for turn in range(type_.element_count):
            at = self.element(self.object(over), Int(z3.BitVecVal(turn, 32), False), element)
            if d.type.get_canonical().kind in REFERENCES:
                self.env[name] = at
            else:
                found = self.select(self.width(element), at.value)
                self.env[name] = self.converted(self.typed(found, element), d.type)
            if self.ended_by(body):
                return

    def returned(self, c: Cursor) -> Any:
        refers = self.active[-1].result_type.get_canonical().kind in REFERENCES
        return self.bound(c) if refers else super().returned(c)

    def address(self, c: Cursor) -> Pointer:
        target = clang.bare(c)
        return self._referred(target) or super().address(c)

    def _referred(self, target: Cursor) -> Pointer | None:
        """The place that a reference of C++ stands for: a variable, or the result of a call."""
        if self.unit.cpp and target.kind == K.DECL_REF_EXPR and target.type is not None:
            found = self.env.get(self.scope(target.referenced)[1])
            if isinstance(found, Pointer) and target.referenced.type.get_canonical().kind in REFERENCES:
                return found
        if self.unit.cpp and target.kind == K.MEMBER_REF_EXPR and _is_reference(target.referenced):
            inside = [x for x in clang.children(target) if clang.is_expression(x)]
            points = inside and inside[0].type.get_canonical().kind == TypeKind.POINTER
            of = self.value(inside[0]) if points else self.object(inside[0]) if inside else self.this
            at = of.moved(target.referenced.get_field_offsetof() // 8)
            return Pointer(self.select(ADDRESS, at.value))
        if self.unit.cpp and target.kind == K.CALL_EXPR and self._refers(target):
            value = self.value(target)
            assert isinstance(value, Pointer)
            return value
        return None

    @staticmethod
    def _refers(call: Cursor) -> bool:
        to = call.referenced
        return to is not None and to.result_type.get_canonical().kind in REFERENCES

    def object(self, c: Cursor) -> Pointer:
        target = clang.bare(c)
        if self.unit.cpp and target.kind == K.MEMBER_REF_EXPR and not clang.children(target):
            if target.referenced.kind != K.FIELD_DECL or target.type.get_canonical().kind in REFERENCES:
                raise Unknown("a member that is no value")
            return self.this.moved(target.referenced.get_field_offsetof() // 8)
        return self._referred(target) or super().object(c)

    def e_unexposed_expr(self, c: Cursor) -> Any:
        target = clang.bare(c)
        scalar = c.type.get_canonical().kind not in (*REFERENCES, TypeKind.RECORD)
        if self.unit.cpp and target.kind == K.CALL_EXPR and self._refers(target) and scalar:
            return self.converted(self.remembered(target), c.type)
        return super().e_unexposed_expr(c)

    def e_call_expr(self, c: Cursor) -> Any:
        if not self.unit.cpp:
            return super().e_call_expr(c)
        to = c.referenced
        parts = [x for x in clang.children(c) if clang.is_expression(x)]
        if to is None or to.kind in (K.VAR_DECL, K.PARM_DECL, K.FIELD_DECL):  # through a pointer
            return super().e_call_expr(c)
        if to.kind not in (K.FUNCTION_DECL, K.CXX_METHOD):
            raise Unknown("an object")
        if to.spelling.startswith("operator"):
            group, pointer = group_of(c.type, self.dialect)
            if to.spelling == "operator=" and group and not pointer:
                return self.stored(parts[0] if parts[0].kind != K.UNEXPOSED_EXPR else parts[1], parts[-1])
            if to.spelling.endswith("=") and to.spelling[8:] not in ("==", "!=", "<=", ">="):
                raise Unknown("an operator that assigns")
        called = [x for x in parts if clang.bare(x).kind == K.DECL_REF_EXPR and clang.bare(x).referenced == to]
        if called and to.spelling.startswith("operator"):  # an operator stands among its operands
            parts = [*(called if to.kind == K.FUNCTION_DECL else ()), *(x for x in parts if x is not called[0])]
        this, arguments = self.this, parts[1:]
        if to.kind == K.CXX_METHOD and not to.is_static_method():
            this = self.object(parts[0]) if called else self._this(parts[0])
        kinds = [a.type.get_canonical().kind for a in to.get_arguments()]
        if len(kinds) != len(arguments):
            raise Unknown("a call with other arguments than the function has")
        values = [
            self.bound(a) if kind in REFERENCES else self.value(a) for a, kind in zip(arguments, kinds, strict=True)
        ]
        name = self.unit.function_name(to)
        if name in self.functions and not (to.kind == K.CXX_METHOD and to.is_virtual_method()):
            outer, self.this = self.this, this
            result = self.call(self.functions[name], values)
            self.this = outer
            return result
        of = (this.value,) if to.kind == K.CXX_METHOD and not to.is_static_method() else ()
        number = self.called(to.spelling, (*of, *map(bits_of, values)))
        if c.type.get_canonical().kind == TypeKind.VOID:
            return None
        return self.symbol(f"{to.spelling}?{number}", c.type)

    def _this(self, member: Cursor) -> Pointer:
        """The object of `p->f`, `r.f` and `f`."""
        inside = [x for x in clang.children(member) if clang.is_expression(x)]
        if not inside:
            return self.this
        if inside[0].type.get_canonical().kind in POINTERS:
            value = self.value(inside[0])
            assert isinstance(value, Pointer)
            return value
        return self.object(inside[0])

    def parts(self, c: Cursor) -> list[Cursor]:
        """The parts of an if, while or switch; what it declares or does in front of its condition is done."""
        found = clang.children(c)
        while self.unit.cpp and len(found) > 2:
            between = self.unit.text[clang.span(found[0])[1] : clang.span(found[1])[0]]
            before = found[0].kind in (K.VAR_DECL, K.DECL_STMT) or between.strip().startswith(b";")
            if not before:
                break
            if c.kind == K.WHILE_STMT:
                raise Unknown("a declaration in a condition")
            (self.declared if found[0].kind == K.VAR_DECL else self.statement)(found[0])
            found = found[1:]
        return found


def _is_reference(member: Cursor | None) -> bool:
    if member is None or member.kind != K.FIELD_DECL:
        return False
    return bool(member.type.get_canonical().kind in REFERENCES)
