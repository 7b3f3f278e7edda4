"""Floating-point values in a proof: what an operation gives is unknown, but the same for the same operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import z3
from clang.cindex import Type, TypeKind

from edgebuild.driver.prove.effort import Unknown
from edgebuild.driver.prove.hardware import Pointer
from edgebuild.driver.prove.values import Int, flag

REALS = (TypeKind.FLOAT, TypeKind.DOUBLE)
WIDE = 64  # bits of an integer on its way to a floating-point value and back


@dataclass(frozen=True)
class Real:
    """A floating-point value, of which nothing but its bits is known."""

    bits: Any


def is_real(type_: Type) -> bool:
    return type_.get_canonical().kind in REALS


def real(value: Any, width: int) -> Real:
    """Any number as a floating-point value of so many bits."""
    if isinstance(value, Pointer):
        raise Unknown("an address as a floating-point value")
    if isinstance(value, Real):
        return value if value.bits.size() == width else Real(_applied("real of real", width, value.bits))
    missing = WIDE - value.bits.size()
    wide = z3.SignExt(missing, value.bits) if value.signed else z3.ZeroExt(missing, value.bits)
    large = "large " if not value.signed and not missing else ""
    return Real(_applied(f"real of {large}integer", width, wide))


def integer(value: Any) -> Any:
    """A floating-point value as an integer of 64 bits; others as they are. C knows no conversion out of range."""
    return Int(_applied("integer of real", WIDE, value.bits), True) if isinstance(value, Real) else value


def true(value: Real) -> Any:
    """Whether a floating-point value is not 0."""
    return _applied("true", 1, value.bits) == 1


def negated(value: Real) -> Real:
    return Real(_applied("negated", value.bits.size(), value.bits))


def operated(operator: str, a: Any, b: Any) -> Any:
    """An operation of which one operand at least is a floating-point value."""
    width = max(x.bits.size() for x in (a, b) if isinstance(x, Real))
    x, y = real(a, width).bits, real(b, width).bits
    if operator in ("==", "!=", "<", ">", "<=", ">="):
        return flag(_applied(operator, 1, x, y) == 1)
    return Real(_applied(operator, width, x, y))


def _applied(name: str, width: int, *operands: Any) -> Any:
    sorts = [z3.BitVecSort(x.size()) for x in operands]
    whole = f"{name} {' '.join(str(x.size()) for x in operands)} {width}"
    return z3.Function(whole, *sorts, z3.BitVecSort(width))(*operands)
