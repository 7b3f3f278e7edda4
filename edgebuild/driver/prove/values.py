"""Values of a symbolic execution, C's operators and conversions on them, and the decisions along one path.

Operations on floating-point values are uninterpreted functions: equal operands give equal results, and nothing else is
assumed. The same holds for divisions by a variable, and for integer operations that C leaves undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from operator import add, and_, eq, ge, gt, le, lt, mul, ne, or_, sub, truediv, xor
from typing import Any

import z3

from ..source.ir import CType
from .hardware import ADDRESS, INDEX, Pointer, Unknown, ask, solver_of

TURNS, POLLS, DEPTH = 64, 3, 4  # turns of a loop; turns of a loop that waits; calls of a function in each other
WIDE = 64  # bits of an integer that becomes a floating-point value, and back


class Pruned(Exception):
    """The path is cut off: a loop has too many turns, or calls are nested too deeply."""


class EndlessWait(Exception):
    """The path ends in a loop that waits forever, or in a call that never returns."""


class Break(Exception):
    pass


class Continue(Exception):
    pass


class Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class Cut(Exception):
    """The path is cut at a loop's head, where another one begins (`compare.by_induction`)."""

    def __init__(self, at: tuple[int, int]) -> None:
        self.at = at


class Goto(Exception):
    def __init__(self, label: str) -> None:
        self.label = label


@dataclass(frozen=True)
class Int:
    bits: Any
    signed: bool


@dataclass(frozen=True)
class Real:
    """A floating-point value, as its bits."""

    bits: Any


def width_of(type_: CType) -> int:
    """The width of a type in bits. Raises Unknown for a type without a size, or with more than 64 bits."""
    if not 0 < type_.size <= 8:
        raise Unknown(f"a value of type {type_.name}")
    return 8 * type_.size


def symbol(name: str, type_: CType) -> Any:
    """An arbitrary value of a type: a symbol with a name."""
    return typed(z3.BitVec(name, ADDRESS if type_.is_address else width_of(type_)), type_)


def typed(bits: Any, type_: CType) -> Any:
    """The value of a type with these bits."""
    if type_.is_address:
        return Pointer(bits)
    return Real(bits) if type_.kind == "real" else Int(bits, type_.signed)


def truth(value: Any) -> Any:
    """The condition that a value is not 0."""
    if isinstance(value, Real):
        return _applied("true", 1, value.bits) == 1
    return bits_of(value) != 0


def number(value: Any) -> Any:
    """An index, as an unsigned word."""
    return z3.simplify(sized(value, INDEX)) if isinstance(value, Int) else value.value


def converted(value: Any, type_: CType) -> Any:
    """A value converted to a type. Raises Unknown for types without a width."""
    if type_.kind == "void" or value is None:
        return value
    if type_.kind == "real":
        return real(value, width_of(type_))
    if type_.kind == "bool":
        return Int(z3.If(truth(value), z3.BitVecVal(1, 8), z3.BitVecVal(0, 8)), False)
    if type_.is_address:
        return value if isinstance(value, Pointer) else Pointer(sized(integer(value), ADDRESS))
    width = width_of(type_)
    value = integer(value, width, type_.signed)
    if isinstance(value, Pointer):
        return value if width == ADDRESS else Int(sized(Int(value.value, False), width), False)
    return Int(sized(value, width), type_.signed)


def real(value: Any, width: int) -> Real:
    """A number as a floating-point value of `width` bits. Raises Unknown for an address."""
    if isinstance(value, Pointer):
        raise Unknown("an address as a floating-point value")
    if isinstance(value, Real):
        return value if value.bits.size() == width else Real(_applied("real of real", width, value.bits))
    missing = WIDE - value.bits.size()
    wide = z3.SignExt(missing, value.bits) if value.signed else z3.ZeroExt(missing, value.bits)
    large = "large " if not value.signed and not missing else ""
    return Real(_applied(f"real of {large}integer", width, wide))


def integer(value: Any, width: int = 32, signed: bool = False) -> Any:
    """A floating-point value as an integer of 64 bits; other values unchanged.

    C defines no result out of the range of the type, and processors differ there by its sign and size.
    """
    if not isinstance(value, Real):
        return value
    kind = f"{'signed' if signed else 'unsigned'} integer of {max(32, width)} bits of real"
    return Int(_applied(kind, WIDE, value.bits), True)


def negated(operator: str, value: Any) -> Any:
    """The operators `-`, `~` and `+` in front of a value."""
    if isinstance(value, Real):
        return Real(_applied("negated", value.bits.size(), value.bits)) if operator == "-" else value
    if operator not in ("-", "~", "+"):
        raise Unknown(f"the operator {operator}")
    return Int({"-": -value.bits, "~": ~value.bits, "+": value.bits}[operator], value.signed)


def _applied(name: str, width: int, *operands: Any) -> Any:
    sorts = [z3.BitVecSort(x.size()) for x in operands]
    whole = f"{name} {' '.join(str(x.size()) for x in operands)} {width}"
    return z3.Function(whole, *sorts, z3.BitVecSort(width))(*operands)


def operated(operator: str, a: Any, b: Any) -> Any:
    """An operator between two numbers, at least one of them an `Int` or a `Real`; neither is an address."""
    if isinstance(a, Real) or isinstance(b, Real):
        width = max(x.bits.size() for x in (a, b) if isinstance(x, Real))
        x, y = real(a, width).bits, real(b, width).bits
        if operator in ("==", "!=", "<", ">", "<=", ">="):
            return flag(_applied(operator, 1, x, y) == 1)
        return Real(_applied(operator, width, x, y))
    shift = operator in ("<<", ">>")
    width = max(32, a.bits.size(), 0 if shift else b.bits.size())
    unsigned = any(not x.signed and x.bits.size() == width for x in ((a,) if shift else (a, b)))
    x, y = sized(a, width), sized(b, width)
    result = compared(operator, x, y, not unsigned)
    return flag(result) if result is not None else Int(computed(operator, x, y, not unsigned), not unsigned)


# (can it hold, can it fail, conditions) of a condition after others, by z3 ids: z3 would reuse ids of freed conditions
Answers = dict[tuple[int, ...], tuple[bool, bool, Any]]


@dataclass
class Decisions:
    """The conditions on the current path, and the choices of paths that are still to be taken (`open`)."""

    choices: list[bool]
    answers: Answers = field(default_factory=dict)  # of the solver, on all paths so far
    open: list[list[bool]] = field(default_factory=list)
    path: list[Any] = field(default_factory=list)
    number: int = 0
    given: tuple[Any, ...] = ()  # conditions that hold on all paths
    asked: dict[int, Any] = field(default_factory=dict)  # all conditions on this path, also those without a choice

    def decide(self, condition: Any) -> bool:
        condition = z3.simplify(condition)
        if z3.is_true(condition) or z3.is_false(condition):
            return z3.is_true(condition)
        self.asked[condition.get_id()] = condition
        yes, no = self._possible(condition)
        if not (yes and no):
            return yes
        if self.number == len(self.choices):
            self.open.append([*self.choices, False])
            self.choices.append(True)
        choice = self.choices[self.number]
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


COMPARED: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {  # of unsigned and signed numbers
    "==": (eq, eq),
    "!=": (ne, ne),
    "<": (z3.ULT, lt),
    ">": (z3.UGT, gt),
    "<=": (z3.ULE, le),
    ">=": (z3.UGE, ge),
}
COMPUTED = {"+": add, "-": sub, "*": mul, "&": and_, "|": or_, "^": xor}


def compared(operator: str, x: Any, y: Any, signed: bool) -> Any:
    """The condition of a comparison; None if the operator is no comparison."""
    return COMPARED[operator][signed](x, y) if operator in COMPARED else None


def computed(operator: str, x: Any, y: Any, signed: bool) -> Any:
    if operator in COMPUTED:
        return COMPUTED[operator](x, y)
    match operator:
        case "<<" | ">>":
            shifted = x << y if operator == "<<" else x >> y if signed else z3.LShR(x, y)
            return _defined(z3.ULT(y, y.size()), shifted, operator, x, y, signed)
        case "/" | "%" if z3.is_bv_value(z3.simplify(y)):
            unsigned, both = (z3.UDiv, truediv) if operator == "/" else (z3.URem, z3.SRem)
            return _defined(y != 0, (both if signed else unsigned)(x, y), operator, x, y, signed)
        case "/" | "%":  # left open: the solver would divide bit by bit, which takes minutes for a baud rate
            sort = z3.BitVecSort(x.size())
            return z3.Function(f"{operator}{' signed' * signed}", sort, sort, sort)(x, y)
    raise Unknown(f"the operator {operator}")


def _defined(condition: Any, value: Any, operator: str, x: Any, y: Any, signed: bool) -> Any:
    """`value` where the condition holds; elsewhere C defines none, so any value that depends on the operands alone."""
    condition = z3.simplify(condition)
    if z3.is_true(condition):
        return value
    sort = z3.BitVecSort(x.size())
    open_ = z3.Function(f"{operator} {'signed ' * signed}without a meaning", sort, sort, sort)
    return z3.If(condition, value, open_(x, y))
