"""Values of a symbolic execution, and the decisions that lead along one way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import z3
from clang.cindex import Type, TypeKind

from edgebuild.driver.prove.effort import Unknown, ask, solver_of
from edgebuild.driver.prove.hardware import Pointer

TURNS, POLLS, DEPTH = 64, 3, 4  # of a loop; of a loop whose end is not known; of calls
POINTERS = (
    TypeKind.POINTER,
    TypeKind.CONSTANTARRAY,
    TypeKind.INCOMPLETEARRAY,
    TypeKind.LVALUEREFERENCE,
    TypeKind.RVALUEREFERENCE,
)


class Pruned(Exception):
    """The way is not followed any longer: a poll that lasts."""


class Break(Exception):
    pass


class Continue(Exception):
    pass


class Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class Cut(Exception):
    """The way is followed to a loop's head, from where another one goes on (`loops`)."""

    def __init__(self, at: tuple[int, int]) -> None:
        self.at = at


class Goto(Exception):
    def __init__(self, label: str) -> None:
        self.label = label


@dataclass(frozen=True)
class Int:
    bits: Any
    signed: bool


# (can it hold, can it fail) of a condition behind others, which are named by their numbers and kept with the answer
Answers = dict[tuple[int, ...], tuple[bool, bool, Any]]


@dataclass
class Decisions:
    """The conditions on the way, and which ways were not taken yet."""

    taken: list[bool]
    answers: Answers = field(default_factory=dict)  # of the solver, on all ways so far
    open: list[list[bool]] = field(default_factory=list)
    path: list[Any] = field(default_factory=list)
    number: int = 0
    bounded: bool = False
    given: tuple[Any, ...] = ()  # what holds besides
    asked: dict[int, Any] = field(default_factory=dict)  # conditions on this way, whether they left a choice or not

    def decide(self, condition: Any) -> bool:
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return z3.is_true(condition)
        self.asked[condition.get_id()] = condition
        yes, no = self._possible(condition)
        if not (yes and no):
            return yes
        if self.number == len(self.taken):
            self.open.append([*self.taken, False])
            self.taken.append(True)
        choice = self.taken[self.number]
        self.number += 1
        self.path.append(condition if choice else z3.Not(condition))
        return choice

    def _possible(self, condition: Any) -> tuple[bool, bool]:
        key = (*(c.get_id() for c in (*self.given, *self.path)), condition.get_id())
        if key not in self.answers:
            solver = solver_of(*self.given, *self.path)
            yes = ask(solver, condition) != z3.unsat
            no = yes and ask(solver, z3.Not(condition)) != z3.unsat
            self.answers[key] = (yes, no, (*self.given, *self.path, condition))
        return self.answers[key][:2]


Held = dict[tuple[str, Any], Any]  # by name and subscripts; fields of silicon alone by group and leaf


def signed_type(type_: Type) -> bool:
    kind = type_.get_canonical()
    if kind.kind == TypeKind.ENUM:
        kind = kind.get_declaration().enum_type.get_canonical()
    return kind.kind in (
        TypeKind.INT,
        TypeKind.LONG,
        TypeKind.LONGLONG,
        TypeKind.SHORT,
        TypeKind.SCHAR,
        TypeKind.CHAR_S,
    )


def sized(value: Any, width: int) -> Any:
    bits, signed = (value.value, False) if isinstance(value, Pointer) else (value.bits, value.signed)
    if bits.size() > width:
        return z3.Extract(width - 1, 0, bits)
    if bits.size() < width:
        return z3.SignExt(width - bits.size(), bits) if signed else z3.ZeroExt(width - bits.size(), bits)
    return bits


def bits_of(value: Any) -> Any:
    return value.value if isinstance(value, Pointer) else value.bits


def flag(condition: Any) -> Int:
    return Int(z3.If(condition, z3.BitVecVal(1, 32), z3.BitVecVal(0, 32)), True)


def product_of(amount: Any) -> tuple[int, Any]:
    """`index * 4` as (4, index); anything else is a product with 1."""
    if amount.decl().kind() == z3.Z3_OP_BMUL and amount.num_args() == 2:
        for number, other in ((amount.arg(0), amount.arg(1)), (amount.arg(1), amount.arg(0))):
            if z3.is_bv_value(z3.simplify(number)):
                return z3.simplify(number).as_long(), z3.simplify(other)
    return 1, amount


def compared(operator: str, x: Any, y: Any, signed: bool) -> Any:
    match operator:
        case "==":
            return x == y
        case "!=":
            return x != y
        case "<":
            return x < y if signed else z3.ULT(x, y)
        case ">":
            return x > y if signed else z3.UGT(x, y)
        case "<=":
            return x <= y if signed else z3.ULE(x, y)
        case ">=":
            return x >= y if signed else z3.UGE(x, y)
    return None


def computed(operator: str, x: Any, y: Any, signed: bool) -> Any:
    match operator:
        case "+":
            return x + y
        case "-":
            return x - y
        case "*":
            return x * y
        case "&":
            return x & y
        case "|":
            return x | y
        case "^":
            return x ^ y
        case "<<" | ">>":
            shifted = x << y if operator == "<<" else x >> y if signed else z3.LShR(x, y)
            return _defined(z3.ULT(y, y.size()), shifted, operator, x, y, signed)
        case "/":
            return _defined(y != 0, x / y if signed else z3.UDiv(x, y), operator, x, y, signed)
        case "%":
            return _defined(y != 0, z3.SRem(x, y) if signed else z3.URem(x, y), operator, x, y, signed)
    raise Unknown(f"the operator {operator}")


def _defined(condition: Any, value: Any, operator: str, x: Any, y: Any, signed: bool) -> Any:
    """A result that C leaves open where a condition fails: some value then, the same for the same operands."""
    condition = z3.simplify(condition)
    if z3.is_true(condition):
        return value
    sort = z3.BitVecSort(x.size())
    open_ = z3.Function(f"{operator} {'signed ' * signed}without a meaning", sort, sort, sort)
    return z3.If(condition, value, open_(x, y))
