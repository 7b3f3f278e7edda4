"""Ways to say an access in the dialect: of fields, of a register that a variable holds, or of a number.

A mask becomes fields where each of its bits belongs to one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edgebuild.driver.adopt.addresses import WIDE, Access, Refused
from edgebuild.driver.registers.regmap import FieldInfo, RegisterInfo
from edgebuild.driver.source import ir

Change = tuple[FieldInfo | None, str, int | ir.Expression]  # field, operator, value; without a field, of the number
NUMBER, DISCARD, MODIFY = "{number}", "(void){place}", "{number} = {number}{changes}"
LITERAL = "{place} = ({group}){{ .{changes} }}"  # a store of all fields
TEXTS: dict[type[ir.Node], str] = {  # of expressions
    ir.Name: "{x.name}",
    ir.Converted: "{inside}",
    ir.Parenthesised: "({inside})",
    ir.Cast: "({x.type.name}){inside}",
    ir.Unary: "{x.operator}{operand}",
    ir.Binary: "{left} {x.operator} {right}",
    ir.Logical: "{left} {x.operator} {right}",
    ir.Assignment: "{left} {x.operator}= {right}",
    ir.MemberOf: "{base}{arrow}{x.member.name}",
    ir.Subscript: "{base}[{index}]",
    ir.Choice: "{condition} ? {yes} : {no}",
}


@dataclass(frozen=True)
class Form:
    """Text of the dialect in place of `node`; without a text it is statements, each with a change of a field."""

    access: Access
    node: ir.Node
    text: str
    changes: tuple[Change, ...] = ()
    field: FieldInfo | None = None  # that is read


def form_of(a: Access, register: RegisterInfo, reads: bool, writes: bool) -> Form:
    """The form of one access. `reads`, `writes`: of fields, where the masks are constants. Raises Refused."""
    parent = next(p for p in a.parents if not isinstance(p, ir.Parenthesised))
    if any(isinstance(p, ir.Assembly) for p in a.parents):
        raise Refused("it stands in inline assembly")
    if isinstance(parent, ir.Unary) and parent.operator == "&":
        raise Refused("its address is taken")
    statement = next((p for p in a.parents if isinstance(p, ir.Evaluation)), None)
    value: ir.Node | None = statement and statement.value
    while isinstance(value, ir.Wrapped):
        value = value.inside
    if value is a.place and statement:
        return Form(a, statement, DISCARD)
    if isinstance(parent, ir.Step) or (isinstance(parent, ir.Assignment) and parent.left.bare is a.place):
        if value is parent and statement:
            return _written(a, register, parent, statement, writes)
        if isinstance(parent, ir.Step) or parent.operator:
            raise Refused("it is changed, and the value is used")
        reads = False
    return (reads and _read_field(a, register)) or Form(a, a.place, NUMBER)


def _read_field(a: Access, register: RegisterInfo) -> Form | None:
    """`place & mask` where the mask is one field, and all that is used is whether it is zero, or its number."""
    masked, around = [p for p in a.parents if not isinstance(p, ir.Parenthesised | ir.Converted)][:2]
    if not (isinstance(masked, ir.Binary) and masked.operator == "&"):
        return None
    mask = next((c & WIDE for x in (masked.left, masked.right) if (c := x.constant) is not None), None)
    info = next((f for f in register.fields if bits_of(f) == mask), None)
    if info is None:
        return None
    text, test = f"{{place}}.{info.name}", getattr(around, "condition", None)
    match around:
        case ir.Binary(left=left, right=right, operator="==" | "!=" as operator):
            for number in (left.constant, right.constant):
                if number is not None and not number & WIDE & ~bits_of(info):
                    return Form(a, around, f"{text} {operator} {(number & WIDE) >> info.lsb}", (), info)
        case ir.Binary(right=right, operator=">>") if right.constant == info.lsb:
            return Form(a, around, text, (), info)
    truth = isinstance(around, ir.Logical) or (isinstance(around, ir.Unary) and around.operator == "!")
    truth |= test is not None and any(x is masked for x in test.all())
    return Form(a, masked, text, (), info) if truth or info.lsb == 0 else None


def bits_of(f: FieldInfo) -> int:
    return ((1 << f.width) - 1) << f.lsb


def _written(
    a: Access, register: RegisterInfo, x: ir.Assignment | ir.Step, statement: ir.Evaluation, in_fields: bool
) -> Form:
    """A statement that stores to the register."""
    if isinstance(x, ir.Step):
        return Form(a, statement, MODIFY, ((None, x.operator, 1),))
    whole = not x.operator and x.right.constant is not None
    changes = _changes(a, register, x) if in_fields and (not whole or len(register.fields) > 1) else None
    if changes and whole:
        changes = [c for c in changes if c[2] or (c[0] and register.reset & bits_of(c[0]))]
    if changes:
        return Form(a, statement, LITERAL if whole else "", tuple(changes))
    if x.operator:
        return Form(a, statement, MODIFY, ((None, x.operator, x.right),))
    return Form(a, a.place, NUMBER)


def _changes(a: Access, register: RegisterInfo, x: ir.Assignment) -> list[Change] | None:
    """The fields that get other bits. None where bits belong to no one field, or the value has another form."""
    full = (1 << register.bits) - 1
    if (parts := _parts(a, x, full)) is None:
        return None
    mask, bits, values = parts
    changes, rest = list[Change](), mask | bits
    for f in sorted(register.fields, key=lambda f: f.lsb):
        own = bits_of(f)
        if not own & (mask | bits):
            continue
        if own & (mask | bits) & ~rest:  # another field has some of these bits, too
            return None
        rest &= ~own
        cleared, number = (mask & own) >> f.lsb, (bits & own) >> f.lsb
        value = next((v for x in values if (v := _field_value(x, f)) is not None), None)
        is_whole = cleared == own >> f.lsb
        if value is not None and is_whole and not number:
            values = [x for x in values if _field_value(x, f) is None]
            changes.append((f, "=", value))
        elif is_whole or number == own >> f.lsb:
            changes.append((f, "=", number))
        else:
            changes += [(f, "&=", own >> f.lsb & ~cleared)] if cleared else []
            changes += [(f, "|=", number)] if number else []
    # In a store of all, bits of no field stay as they are after reset.
    return None if values or rest & (bits if mask == full else WIDE) else changes


def _parts(a: Access, x: ir.Assignment, full: int) -> tuple[int, int, list[ir.Expression]] | None:
    """(bits that are cleared, bits that are set, other values) of `place = (place & ~mask) | bits | value`.

    Any part may be missing; `place |= bits` and `place &= ~mask` are the same.
    """
    if (constant := x.right.constant) is not None:
        numbers = constant & full
        return {"": (full, numbers, []), "|": (0, numbers, []), "&": (~numbers & full, 0, [])}.get(x.operator)
    if x.operator:
        return None
    masks, bits, values = list[int](), 0, list[ir.Expression]()
    for part in _operands(x.right, "|"):
        factors = list(_operands(part, "&"))
        others = [f for f in factors if not _is_same(a, f)]
        if len(others) < len(factors):
            kept = others[0].constant if others else full
            if len(others) > 1 or kept is None:
                return None
            masks.append(~kept & full)
        elif (number := part.constant) is not None:
            bits |= number & full
        else:
            values.append(part)
    return (masks[0], bits, values) if len(masks) == 1 else None


def _is_same(a: Access, x: ir.Expression) -> bool:
    """Whether an operand is a read of the place that is written: the same text without macros."""
    return type(x.bare) is type(a.place) and x.type.is_volatile and expanded(x) == expanded(a.place)


def expanded(x: ir.Node, text: Callable[[ir.Node], str] | None = None) -> str:
    """An expression without macros; `text` gives the text of its parts. Raises Refused."""
    part = text or expanded
    if isinstance(x, ir.Number):
        return f"{x.constant}{'' if x.type.signed else 'U'}"
    if isinstance(x, ir.Call) and x.callee:
        return f"{part(x.callee)}({', '.join(map(part, x.arguments))})"
    if type(x) not in TEXTS or (isinstance(x, ir.MemberOf) and x.base is None):
        raise Refused("it comes out of a macro that is no expression")
    arrow = "->" if isinstance(x, ir.MemberOf) and x.base and x.base.type.kind == "pointer" else "."
    parts = {name: part(value) for name, value in vars(x).items() if isinstance(value, ir.Node)}
    return TEXTS[type(x)].format(x=x, arrow=arrow, **{"yes": "", **parts})


def _operands(x: ir.Expression, operator: str) -> Iterator[ir.Expression]:
    bare = x.bare
    if isinstance(bare, ir.Binary) and bare.operator == operator and bare.constant is None:
        yield from _operands(bare.left, operator)
        yield from _operands(bare.right, operator)
    else:
        yield bare


def _field_value(x: ir.Expression, f: FieldInfo) -> ir.Expression | None:
    """The value of the field of which `x` is the number in the register."""
    match x.bare:
        case ir.Binary(left=left, right=right, operator="&") if right.constant == bits_of(f):
            return _field_value(left, f)
        case ir.Binary(left=left, right=right, operator="<<"):
            return left if right.constant == f.lsb else None
    return x.bare if f.lsb == 0 else None
