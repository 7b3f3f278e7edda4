"""The state of a symbolic execution of C, and what all of its parts ask: types, names, arithmetic, the next handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3
from clang.cindex import Cursor, CursorKind, Type, TypeKind

from edgebuild.driver.analysis.chains import Chains, variable_name
from edgebuild.driver.layout.registers import Layout
from edgebuild.driver.prove.effort import EFFORT, STEP, Unknown
from edgebuild.driver.prove.hardware import ADDRESS, INDEX, Hardware, Outside, Pointer
from edgebuild.driver.prove.reals import Real, integer, is_real, operated, real, true
from edgebuild.driver.prove.values import (
    POINTERS,
    Answers,
    Decisions,
    Int,
    compared,
    computed,
    flag,
    product_of,
    signed_type,
    sized,
)
from edgebuild.driver.prove.views import Views
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect, group_of

K = CursorKind


class Machine:
    """One unit.

    The classes on top of it stand in the order of need: memory, C's expressions, C's statements and calls, what C++ has
    besides, and the two kinds of accesses. A handler is the method of a cursor's kind. Each finds the values of its
    operands through `value`, so that none knows a class above its own.
    """

    def __init__(self, unit: clang.Unit, dialect: Dialect, layout: Layout, views: Views) -> None:
        self.unit, self.dialect, self.layout, self.views = unit, dialect, layout, views
        self.chains = Chains(unit, dialect)
        self.functions = {f.spelling: f for f in unit.top if f.kind == K.FUNCTION_DECL and f.is_definition()}
        if unit.cpp:
            self.functions = {unit.function_name(f): f for f in unit.functions}
        self.this = Pointer(z3.BitVec("this", ADDRESS))
        self.hardware = Hardware(dialect, layout)
        self.answers: Answers = {}
        self.assumed: list[Any] = []  # bounds of indices, as the other side has found them
        self.given: tuple[Any, ...] = ()  # conditions under which it runs
        self.decisions = Decisions([], self.answers)
        self.env: dict[str, Any] = {}
        self.globals: dict[str, Any] = {}
        self.jumps = 0
        self.made = 0  # objects so far
        self.inside = 0  # expressions that hold statements
        self.active: list[Cursor] = []  # the functions that are being run
        self.memory: dict[Any, Any] = {}  # ordinary objects, by their width; bit fields by their bits

    def value(self, c: Cursor) -> Any:
        """The value of an expression."""
        EFFORT.spend(STEP)
        handler: Callable[[Cursor], Any] | None = getattr(self, clang.method("e", c.kind), None)
        if handler is None:
            raise Unknown(f"an expression: {c.kind.name.lower()}")
        return handler(c)

    def symbol(self, name: str, type_: Type) -> Any:
        pointer = type_.get_canonical().kind in POINTERS
        return self.typed(z3.BitVec(name, ADDRESS if pointer else self.width(type_)), type_)

    def typed(self, bits: Any, type_: Type) -> Any:
        """The value of a type that has these bits."""
        if type_.get_canonical().kind in POINTERS:
            return Pointer(bits)
        return Real(bits) if is_real(type_) else Int(bits, signed_type(type_))

    def width(self, type_: Type) -> int:
        size = type_.get_canonical().get_size()
        if not 0 < size <= 8:
            raise Unknown(f"a value of type {type_.spelling}")
        return 8 * int(size)

    def converted(self, value: Any, type_: Type) -> Any:
        kind = type_.get_canonical().kind
        if kind == TypeKind.VOID or value is None or isinstance(value, dict):
            return value
        if is_real(type_):
            return real(value, self.width(type_))
        value = integer(value) if kind != TypeKind.BOOL else value
        if kind in POINTERS:
            return value if isinstance(value, Pointer) else Pointer(sized(value, ADDRESS))
        if isinstance(value, Pointer):
            if kind == TypeKind.BOOL:
                return Int(z3.If(value.value != 0, z3.BitVecVal(1, 8), z3.BitVecVal(0, 8)), False)
            return (
                value if self.width(type_) == ADDRESS else Int(sized(Int(value.value, False), self.width(type_)), False)
            )
        if kind == TypeKind.BOOL:
            return Int(z3.If(self.truth(value), z3.BitVecVal(1, 8), z3.BitVecVal(0, 8)), False)
        return Int(sized(value, self.width(type_)), signed_type(type_))

    def truth(self, value: Any) -> Any:
        if isinstance(value, Real):
            return true(value)
        return (value.value if isinstance(value, Pointer) else value.bits) != 0

    def called(self, name: str, values: tuple[Any, ...]) -> int:
        """Call something unknown, which finds all objects and variables as they are; its number."""
        number = self.hardware.call(name, values, Outside(self.hardware.calls, self.memory, self.globals))
        self.globals, self.memory = {}, {}
        return number

    def number(self, value: Any) -> Any:
        """An index, as an unsigned word."""
        return z3.simplify(sized(value, INDEX)) if isinstance(value, Int) else value.value

    def scope(self, d: Cursor) -> tuple[dict[str, Any], str]:
        """The variables that one is among, and its name there: a global has the same on both sides."""
        if d.storage_class.name == "STATIC" and d.semantic_parent.kind in clang.FUNCTIONS:
            return self.globals, f"{clang.qualified(d.semantic_parent)}: {d.spelling}"
        if variable_name(d) in self.env or d.semantic_parent.kind in clang.FUNCTIONS:
            return self.env, variable_name(d)
        return self.globals, clang.qualified(d) if self.unit.cpp else str(d.spelling)

    def element(self, base: Pointer, index: Any, type_: Type) -> Pointer:
        name, pointer = group_of(type_, self.dialect)
        size = self.layout.groups[name].size if name in self.layout.groups and not pointer else type_.get_size()
        if size < 0:
            raise Unknown("an element of a length that is not known")
        return Pointer(z3.simplify(base.value + self.number(index) * size))

    def arithmetic(self, operator: str, a: Any, b: Any, type_: Type) -> Any:
        if isinstance(a, Pointer) or isinstance(b, Pointer):
            return self._with_pointer(operator, a, b, type_)
        if isinstance(a, Real) or isinstance(b, Real):
            return operated(operator, a, b)
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
            if type_.get_canonical().kind in POINTERS:
                raise Unknown("arithmetic on addresses")
            x, y = (Int(v.value, False) if isinstance(v, Pointer) else v for v in (a, b))
            return self.arithmetic(operator, x, y, type_)
        if type_.get_canonical().kind not in POINTERS:  # an address as a number
            amount = z3.simplify(b.bits)
            if z3.is_bv_value(amount):
                return a.moved(amount.as_long())
            stride, index = product_of(b.bits)
            return a.moved(0, stride, index)
        index = self.number(b)
        return self.element(a, Int(index if operator == "+" else -index, True), type_.get_canonical().get_pointee())
