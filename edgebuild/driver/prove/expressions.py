"""Symbolic execution of C expressions, with the objects that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3
from clang.cindex import Cursor, CursorKind, Type, TypeKind

from edgebuild.driver.analysis.cdfg import Chain
from edgebuild.driver.analysis.chains import Chains, variable_name
from edgebuild.driver.layout.registers import Layout, Register, Slot
from edgebuild.driver.prove.hardware import ADDRESS, INDEX, Hardware, Key, Pointer, Unknown
from edgebuild.driver.prove.values import (
    POINTERS,
    Answers,
    Decisions,
    Held,
    Int,
    bits_of,
    compared,
    computed,
    flag,
    product_of,
    signed_type,
    sized,
)
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect, group_of

K = CursorKind


class Expressions:
    """One unit; `generated` tells which kind of accesses it has."""

    def __init__(self, unit: clang.Unit, dialect: Dialect, layout: Layout, generated: bool) -> None:
        self.unit, self.dialect, self.layout, self.generated = unit, dialect, layout, generated
        self.chains = Chains(unit, dialect)
        self.functions = {f.spelling: f for f in unit.top if f.kind == K.FUNCTION_DECL and f.is_definition()}
        if unit.cpp:
            self.functions = {unit.function_name(f): f for f in unit.functions}
        self.this = Pointer(z3.BitVec("this", ADDRESS))
        self.hardware = Hardware(dialect, layout)
        self.answers: Answers = {}
        self.hints: list[Any] = []  # bounds of indices
        self.decisions = Decisions([], self.answers)
        self.env: dict[str, Any] = {}
        self.globals: dict[str, Any] = {}
        self.jumps = 0
        self.inside = 0  # expressions that hold statements
        self.active: list[str] = []  # the functions that are being run
        self.memory: dict[Any, Any] = {}  # ordinary objects, by their width; bit fields by their bits

    def symbol(self, name: str, type_: Type) -> Any:
        if type_.get_canonical().kind in POINTERS:
            return Pointer(z3.BitVec(name, ADDRESS))
        return Int(z3.BitVec(name, self.width(type_)), signed_type(type_))

    def call(self, function: Cursor, arguments: list[Any]) -> Any:
        raise NotImplementedError

    def statement(self, c: Cursor) -> None:
        raise NotImplementedError

    # ---- values

    def width(self, type_: Type) -> int:
        size = type_.get_canonical().get_size()
        if not 0 < size <= 8:
            raise Unknown(f"a value of type {type_.spelling}")
        return 8 * int(size)

    def converted(self, value: Any, type_: Type) -> Any:
        kind = type_.get_canonical().kind
        if kind == TypeKind.VOID or value is None or isinstance(value, dict):
            return value
        if kind in (TypeKind.FLOAT, TypeKind.DOUBLE):
            raise Unknown("a floating-point value")
        if kind in POINTERS:
            return value if isinstance(value, Pointer) else Pointer(sized(value, ADDRESS))
        if isinstance(value, Pointer):
            if kind == TypeKind.BOOL:
                return Int(z3.If(value.value != 0, z3.BitVecVal(1, 8), z3.BitVecVal(0, 8)), False)
            return (
                value if self.width(type_) == ADDRESS else Int(sized(Int(value.value, False), self.width(type_)), False)
            )
        if kind == TypeKind.BOOL:
            return Int(z3.If(value.bits != 0, z3.BitVecVal(1, 8), z3.BitVecVal(0, 8)), False)
        return Int(sized(value, self.width(type_)), signed_type(type_))

    def truth(self, value: Any) -> Any:
        return (value.value if isinstance(value, Pointer) else value.bits) != 0

    def number(self, value: Any) -> Any:
        """An index, as an unsigned word."""
        return z3.simplify(sized(value, INDEX)) if isinstance(value, Int) else value.value

    # ---- expressions

    def value(self, c: Cursor) -> Any:
        if not self.generated and c.kind in (K.MEMBER_REF_EXPR, K.ARRAY_SUBSCRIPT_EXPR, K.UNARY_OPERATOR):
            chain = self.chains.read(c)
            if chain and chain.local:
                return self.held(chain)
            if chain and chain.is_field and not chain.missing:
                return Int(self.read(chain), False)
            if chain:
                return self.place(chain)[0]
        handler: Callable[[Cursor], Any] | None = getattr(self, clang.method("e", c.kind), None)
        if handler is None:
            raise Unknown(f"an expression: {c.kind.name.lower()}")
        return handler(c)

    def read(self, chain: Chain) -> Any:
        raise NotImplementedError

    def held(self, chain: Chain) -> Any:
        raise NotImplementedError

    def loaded(self, c: Cursor) -> Held:
        raise NotImplementedError

    def place(self, chain: Chain) -> tuple[Pointer, Key, Register | None, Slot | None, Any]:
        raise NotImplementedError

    def e_integer_literal(self, c: Cursor) -> Int:
        return Int(z3.BitVecVal(clang.constant(c) or 0, self.width(c.type)), signed_type(c.type))

    e_character_literal = e_integer_literal

    def e_paren_expr(self, c: Cursor) -> Any:
        return self.value(clang.children(c)[0])

    def e_unexposed_expr(self, c: Cursor) -> Any:
        inside = [x for x in clang.children(c) if clang.is_expression(x)]
        if len(inside) != 1:
            return self._atomic(c, inside)
        target = clang.bare(c)
        if target.kind == K.DECL_REF_EXPR and target.referenced.kind == K.FUNCTION_DECL:
            return self.value(target)
        return self.converted(self.value(inside[0]), c.type)

    def _atomic(self, c: Cursor, operands: list[Cursor]) -> Any:
        """An operation of the compiler: a barrier, after which the object has some value."""
        places = [clang.bare(x) for x in operands]
        objects = [clang.bare(clang.children(x)[0]) for x in places if x.kind == K.UNARY_OPERATOR]
        values = [self.value(x) for x, p in zip(operands, places, strict=True) if p.kind != K.UNARY_OPERATOR]
        number = self.hardware.call("atomic", tuple(bits_of(v) for v in values))
        for o in objects:
            if o.kind != K.DECL_REF_EXPR:
                raise Unknown("an atomic object in memory")
            variables, name = self.scope(o.referenced)
            variables[name] = self.symbol(f"{o.spelling}?{number}", o.referenced.type)
        return None if c.type.get_canonical().kind == TypeKind.VOID else self.symbol(f"atomic?{number}", c.type)

    def e_generic_selection_expr(self, c: Cursor) -> Int:
        value = clang.constant(c)
        if value is None:
            raise Unknown("_Generic of something")
        return Int(z3.BitVecVal(value, self.width(c.type)), signed_type(c.type))

    def e_cstyle_cast_expr(self, c: Cursor) -> Any:
        inside = [x for x in clang.children(c) if clang.is_expression(x)][-1]
        value = self.value(inside)
        name, pointer = clang.record(clang.bare(inside).type)
        if (
            self.generated
            and pointer
            and isinstance(value, Pointer)
            and c.type.get_canonical().kind != TypeKind.POINTER
        ):
            return Pointer(value.value, name)  # from here on, offsets are those of registers
        return self.converted(value, c.type)

    def e_decl_ref_expr(self, c: Cursor) -> Any:
        d = c.referenced
        if d.kind == K.ENUM_CONSTANT_DECL:
            return Int(z3.BitVecVal(d.enum_value, self.width(c.type)), signed_type(c.type))
        if d.spelling in self.dialect.devices and variable_name(d) not in self.env:
            return Pointer(z3.BitVecVal(self.dialect.devices[d.spelling].address, ADDRESS))
        if c.type.is_volatile_qualified():
            number = self.hardware.call(f"volatile {d.spelling}", ())
            return self.symbol(f"{d.spelling}?{number}", d.type)
        variables, name = self.scope(d)
        if name not in variables:
            variables[name] = self.symbol(f"global {d.spelling}", d.type)
        return variables[name]

    def scope(self, d: Cursor) -> tuple[dict[str, Any], str]:
        """The variables that one is among, and its name there: a global has the same on both sides."""
        if d.storage_class.name == "STATIC" and d.semantic_parent.kind in clang.FUNCTIONS:
            return self.globals, f"{clang.qualified(d.semantic_parent)}: {d.spelling}"
        if variable_name(d) in self.env or d.semantic_parent.kind in clang.FUNCTIONS:
            return self.env, variable_name(d)
        return self.globals, clang.qualified(d) if self.unit.cpp else str(d.spelling)

    def assigned(self, left: Cursor, value: Any) -> Any:
        """Store to a place; the value that the place then has."""
        target = clang.bare(left)
        volatile = target.type.is_volatile_qualified()
        if target.kind == K.UNARY_OPERATOR and self.generated and volatile and clang.unary(target) == "*":
            at = self.value(clang.children(target)[0])
            if at.group:
                stored = self.converted(value, target.type)
                self.hardware.store(at, self.width(target.type) // 8, stored.bits, self.active[-1])
                return stored
        stored = self.converted(value, target.type)
        if target.kind != K.DECL_REF_EXPR or self.in_memory(target.referenced):
            return self.remember(target, stored)
        if target.type.is_volatile_qualified():
            self.hardware.call(f"volatile {target.spelling}", (stored.bits,) if isinstance(stored, Int) else ())
            return stored
        variables, name = self.scope(target.referenced)
        variables[name] = stored
        return stored

    def e_unary_operator(self, c: Cursor) -> Any:
        operator, operand = clang.unary(c), clang.children(c)[0]
        if operator == "&":
            return self.address(operand)
        if operator == "*" and c.type.is_volatile_qualified() and self.generated:
            at = self.value(operand)
            if at.group:
                return Int(self.hardware.load(at, self.width(c.type) // 8, self.active[-1]), signed_type(c.type))
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
        if operator in ("-", "~", "+"):
            return Int({"-": -value.bits, "~": ~value.bits, "+": value.bits}[operator], value.signed)
        raise Unknown(f"the operator {operator}")

    def address(self, c: Cursor) -> Pointer:
        """The address of a group, or of a struct that names the way to one."""
        c = clang.bare(c)
        if not self.generated:
            chain = self.chains.read(c)
            if chain and not chain.is_field:
                return self.place(chain)[0]
        elif c.kind == K.MEMBER_REF_EXPR:
            base = clang.children(c)[0]
            start = self.value(base) if base.type.get_canonical().kind == TypeKind.POINTER else self.address(base)
            return start.moved(c.referenced.get_field_offsetof() // 8)
        elif c.kind == K.ARRAY_SUBSCRIPT_EXPR:
            base, index = clang.children(c)
            return self._element(self.value(base), self.value(index), c.type)
        elif c.kind == K.UNARY_OPERATOR and clang.unary(c) == "*":
            return self.value(clang.children(c)[0])
        elif c.kind == K.CALL_EXPR:
            raise Unknown("the address of a value")
        return self.object(c)

    def _element(self, base: Pointer, index: Any, type_: Type) -> Pointer:
        name, pointer = group_of(type_, self.dialect)
        size = self.layout.groups[name].size if name in self.layout.groups and not pointer else type_.get_size()
        return Pointer(z3.simplify(base.value + self.number(index) * size))

    def e_member_ref_expr(self, c: Cursor) -> Any:
        if self.generated and c.type.get_canonical().kind in POINTERS[1:]:
            return self.address(c)  # an array decays
        return self.remembered(c)

    e_array_subscript_expr = e_member_ref_expr

    # ---- ordinary objects, which `memory` follows

    def remembered(self, c: Cursor) -> Any:
        raise NotImplementedError

    def remember(self, c: Cursor, value: Any) -> Any:
        raise NotImplementedError

    def object(self, c: Cursor) -> Pointer:
        raise NotImplementedError

    def in_memory(self, d: Cursor | None) -> bool:
        raise NotImplementedError

    def e_binary_operator(self, c: Cursor) -> Any:
        left, right = clang.children(c)
        operator = clang.binary(c)
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
        raise NotImplementedError

    def e_conditional_operator(self, c: Cursor) -> Any:
        condition, yes, no = clang.children(c)
        chosen = yes if self.decisions.decide(self.truth(self.value(condition))) else no
        return self.converted(self.value(chosen), c.type)

    def arithmetic(self, operator: str, a: Any, b: Any, type_: Type) -> Any:
        if isinstance(a, Pointer) or isinstance(b, Pointer):
            return self._with_pointer(operator, a, b, type_)
        shift = operator in ("<<", ">>")
        width = max(32, a.bits.size(), 0 if shift else b.bits.size())
        unsigned = any(not x.signed and x.bits.size() == width for x in ((a,) if shift else (a, b)))
        x, y = sized(a, width), sized(b, width)
        result = compared(operator, x, y, not unsigned)
        return flag(result) if result is not None else Int(computed(operator, x, y, not unsigned), not unsigned)

    def _with_pointer(self, operator: str, a: Any, b: Any, type_: Type) -> Any:
        if operator in ("==", "!="):
            x, y = (v.value if isinstance(v, Pointer) else sized(v, ADDRESS) for v in (a, b))
            return flag(x == y if operator == "==" else x != y)
        if operator not in ("+", "-") or not isinstance(a, Pointer) or isinstance(b, Pointer):
            raise Unknown("arithmetic on addresses")
        if type_.get_canonical().kind not in POINTERS:  # an address as a number
            amount = z3.simplify(b.bits)
            if z3.is_bv_value(amount):
                return a.moved(amount.as_long())
            stride, index = product_of(b.bits)
            return a.moved(0, stride, index)
        index = self.number(b)
        return self._element(a, Int(index if operator == "+" else -index, True), type_.get_canonical().get_pointee())

    def e_compound_assignment_operator(self, c: Cursor) -> Any:
        left, right = clang.children(c)
        old = self.value(left)
        return self.assigned(left, self.arithmetic(clang.binary(c)[:-1], old, self.value(right), left.type))

    def e_cxx_unary_expr(self, c: Cursor) -> Int:
        value = clang.constant(c)
        if value is None:
            raise Unknown("sizeof of something")
        return Int(z3.BitVecVal(value, self.width(c.type)), signed_type(c.type))

    def e_call_expr(self, c: Cursor) -> Any:
        callee, *arguments = clang.children(c) or [c]
        target = clang.bare(callee).referenced
        values = [self.value(a) for a in arguments]
        if target is not None and target.kind == K.FUNCTION_DECL and target.spelling in self.functions:
            return self.call(self.functions[target.spelling], values)
        name = target.spelling if target is not None and target.kind == K.FUNCTION_DECL else "a pointer"
        number = self.hardware.call(name, tuple(map(bits_of, values)))
        self.globals, self.memory = {}, {}
        if c.type.get_canonical().kind == TypeKind.VOID:
            return None
        return self.symbol(f"{name}?{number}", c.type)

    def e_stmtexpr(self, c: Cursor) -> Any:
        *statements, last = clang.children(clang.children(c)[0])
        self.inside += 1
        for s in statements:
            self.statement(s)
        value = self.value(last) if clang.is_expression(last) else self.statement(last)  # type: ignore[func-returns-value]
        self.inside -= 1
        return value
