"""Ways to say an access in the dialect: of fields, of a register that a variable holds, or of a number.

A mask becomes fields where each of its bits belongs to one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgebuild.driver.adopt.addresses import WIDE, Access, Refused
from edgebuild.driver.registers.regmap import FieldInfo, RegisterInfo
from edgebuild.driver.source import ir

TRUTH = (ir.If, ir.Loop, ir.Choice, ir.Logical)
Change = tuple[FieldInfo | None, str, int | ir.Expression]  # field, operator, value; without a field, of the number


@dataclass(frozen=True)
class Form:
    """A piece of the dialect in place of `node`.

    `kind`: "number" (the register as a number), "modify" (a change of the number), "discard" (a read for what it
    does), "read" (of a field), "change" (of fields), or "literal" (a store of all fields).
    """

    access: Access
    node: ir.Node
    kind: str
    changes: tuple[Change, ...] = ()
    field: FieldInfo | None = None  # that is read
    compared: str = ""  # operator and number

    @property
    def fields(self) -> Iterator[FieldInfo]:
        return (f for f in (self.field, *(f for f, _, _ in self.changes)) if f)


def form_of(a: Access, register: RegisterInfo, reads: bool, writes: bool) -> Form:
    """The form of one access. `reads`, `writes`: of fields, where the masks are constants. Raises Refused."""
    parent, *around = (p for p in a.parents if not isinstance(p, ir.Parenthesised))
    if isinstance(parent, ir.Assembly):
        raise Refused("it stands in inline assembly")
    if isinstance(parent, ir.Unary) and parent.operator == "&":
        raise Refused("its address is taken")
    statement = next((p for p in around if isinstance(p, ir.Evaluation)), None)
    value: ir.Node | None = statement and statement.value
    while isinstance(value, ir.Wrapped):
        value = value.inside
    if value is a.place and statement:
        return Form(a, statement, "discard")
    if not isinstance(parent, ir.Step | ir.Assignment) or (
        isinstance(parent, ir.Assignment) and parent.left.bare is not a.place
    ):
        return (reads and _read_field(a, register)) or Form(a, a.place, "number")
    if value is parent and statement:
        return _written(a, register, parent, statement, writes)
    if isinstance(parent, ir.Step) or parent.operator:
        raise Refused("it is changed, and the value is used")
    return Form(a, a.place, "number")


# ---- reads


def _read_field(a: Access, register: RegisterInfo) -> Form | None:
    """`place & mask` where the mask is one field, and all that is used is whether it is zero, or its number."""
    chain = [p for p in a.parents if not isinstance(p, ir.Parenthesised | ir.Converted)]
    masked, around = chain[0], chain[1]
    if not (isinstance(masked, ir.Binary) and masked.operator == "&"):
        return None
    mask = next((c for x in (masked.left, masked.right) if (c := x.constant) is not None), None)
    info = next((f for f in register.fields if mask is not None and bits_of(f) == mask & WIDE), None)
    if info is None or mask is None:
        return None
    if isinstance(around, ir.Binary) and around.operator in ("==", "!="):
        for x in (around.left, around.right):
            number = x.constant
            if number is not None and not number & WIDE & ~bits_of(info):
                return Form(a, around, "read", (), info, f" {around.operator} {(number & WIDE) >> info.lsb}")
    if isinstance(around, ir.Binary) and around.operator == ">>" and around.right.constant == info.lsb:
        return Form(a, around, "read", (), info)
    truth = isinstance(around, TRUTH) or (isinstance(around, ir.Unary) and around.operator == "!")
    if isinstance(around, ir.Choice):
        truth = any(x is masked for x in around.condition.all())
    return Form(a, masked, "read", (), info) if truth or info.lsb == 0 else None


def bits_of(f: FieldInfo) -> int:
    return ((1 << f.width) - 1) << f.lsb


# ---- writes


def _written(
    a: Access, register: RegisterInfo, x: ir.Assignment | ir.Step, statement: ir.Evaluation, in_fields: bool
) -> Form:
    if isinstance(x, ir.Step):
        return Form(a, statement, "modify", ((None, x.operator, 1),))
    full, constant = (1 << register.bits) - 1, x.right.constant
    changes: Sequence[Change] | None = None
    if in_fields and constant is None and not x.operator:
        changes = _combined(a, register, x.right, full)
    elif in_fields and constant is not None:
        sets = constant & full if x.operator != "&" else 0
        clears = full if not x.operator else ~constant & full if x.operator == "&" else 0
        changes = _changes(register, clears, sets, ()) if x.operator in ("", "|", "&") else None
        if changes and not x.operator:
            named = [c for c in changes if c[2] or (c[0] and register.reset & bits_of(c[0]))]
            changes = named if len(register.fields) > 1 else None
    if changes:
        return Form(a, statement, "literal" if constant is not None and not x.operator else "change", tuple(changes))
    if x.operator:
        return Form(a, statement, "modify", ((None, x.operator, x.right),))
    return Form(a, a.place, "number")


def _combined(a: Access, register: RegisterInfo, right: ir.Expression, full: int) -> list[Change] | None:
    """`(place & ~mask) | value`, in which any part but the place may be missing."""
    mask, bits, values, kept = 0, 0, list[ir.Expression](), 0
    for part in _operands(right, "|"):
        factors = list(_operands(part, "&"))
        if any(_is_same(a, f) for f in factors):
            numbers = [f.constant for f in factors if not _is_same(a, f)]
            if len(numbers) > 1 or None in numbers:
                return None
            mask, kept = ~sum(n for n in numbers if n is not None) & full if numbers else 0, kept + 1
        elif (number := part.constant) is not None:
            bits |= number & full
        else:
            values.append(part)
    return _changes(register, mask, bits, values) if kept == 1 else None


def _is_same(a: Access, x: ir.Expression) -> bool:
    """Whether an operand is a read of the place that is written: the same text, or the same macros."""
    while isinstance(x, ir.Parenthesised | ir.Converted):
        x = x.inside
    return type(x) is type(a.place) and x.type.is_volatile and tokens(x) == tokens(a.place)


def tokens(x: ir.Node) -> tuple[object, ...]:
    """The kinds, names and numbers of an expression: the same wherever it is repeated."""
    own = getattr(x, "name", None) or getattr(x, "operator", None) or getattr(getattr(x, "member", None), "name", None)
    number = x.constant if isinstance(x, ir.Number) else None
    return (type(x), own, number, *(tokens(p) for p in x.parts))


def _operands(x: ir.Expression, operator: str) -> Iterator[ir.Expression]:
    while isinstance(x, ir.Parenthesised | ir.Converted):
        x = x.inside
    if isinstance(x, ir.Binary) and x.operator == operator and x.constant is None:
        yield from _operands(x.left, operator)
        yield from _operands(x.right, operator)
    else:
        yield x


def _changes(register: RegisterInfo, mask: int, bits: int, values: Sequence[ir.Expression]) -> list[Change] | None:
    """The fields that get other bits: those of the mask are cleared first. None where bits belong to no one field."""
    changes, rest, open_ = list[Change](), mask | bits, list(values)
    for f in sorted(register.fields, key=lambda f: f.lsb):
        own = bits_of(f)
        if not own & (mask | bits):
            continue
        if own & (mask | bits) & ~rest:  # another field has some of these bits, too
            return None
        rest &= ~own
        cleared, number = (mask & own) >> f.lsb, (bits & own) >> f.lsb
        value = next((v for x in open_ if (v := _field_value(x, f)) is not None), None)
        whole = cleared == own >> f.lsb
        if value is not None and whole and not number:
            open_ = [x for x in open_ if _field_value(x, f) is None]
            changes.append((f, "=", value))
        elif whole or number == own >> f.lsb:
            changes.append((f, "=", number))
        else:
            changes += [(f, "&=", own >> f.lsb & ~cleared)] if cleared else []
            changes += [(f, "|=", number)] if number else []
    stored = mask == (1 << register.bits) - 1  # bits of no field stay as they are after reset
    return None if open_ or rest & (bits if stored else WIDE) else changes


def _field_value(x: ir.Expression, f: FieldInfo) -> ir.Expression | None:
    """The value of the field of which `x` is the number in the register."""
    while isinstance(x, ir.Parenthesised | ir.Converted):
        x = x.inside
    if isinstance(x, ir.Binary) and x.operator == "&" and x.right.constant == bits_of(f):
        return _field_value(x.left, f)
    if isinstance(x, ir.Binary) and x.operator == "<<":
        return x.left if x.right.constant == f.lsb else None
    return x if f.lsb == 0 else None
