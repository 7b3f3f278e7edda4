"""Accesses of registers in plain C: where each goes, and the register of a description that lies there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from edgebuild.driver.registers.regmap import Block, RegisterInfo, normal
from edgebuild.driver.source import ir
from edgebuild.driver.source.sources import in_macro

WIDE = 0xFFFFFFFF
STATEMENTS = (ir.Block, ir.If, ir.Loop, ir.Switch, ir.Return)
NUMBERS, WORDS = ("number", "bool"), ("number", "pointer")
Stays = dict[tuple[int, str], None]  # lines that stay C, with the reasons, in order


class Refused(Exception):
    """The reason why an access stays C; none where it is of a variable."""


@dataclass(frozen=True)
class Address:
    """Bytes behind a base; without one they are the whole address."""

    offset: int
    base: ir.Expression | None = None

    def plus(self, other: Address, factor: int = 1) -> Address:
        """Raises Refused for a sum of two bases, and for a multiple of one."""
        if other.base and (self.base or factor != 1):
            raise Refused("the address is computed")
        return Address(self.offset + factor * other.offset, self.base or other.base)


@dataclass(frozen=True, eq=False)
class Access:
    """A place in the text that reads or writes a register. `parents`: what stands around it, the nearest first."""

    place: ir.Expression
    parents: tuple[ir.Node, ...]
    address: Address
    words: tuple[str, ...]  # names that say which peripheral it is: a macro, a struct, a parameter

    @property
    def owner(self) -> str:
        """The words without the register: accesses of one owner are of one kind of peripheral."""
        return "" if self.address.base is None else " ".join(self.words[1:])


def accesses_of(function: ir.Function) -> tuple[list[Access], Stays]:
    """(accesses of a function, what stays C)."""
    accesses, stays = list[Access](), Stays()
    for place, parents in _places(function.body) if function.body else ():
        try:
            if any(isinstance(p, STATEMENTS) and in_macro(p.origin.extent.start) for p in parents):
                raise Refused("it comes out of a macro that is no expression")
            address = _checked(place)
        except Refused as reason:
            stays |= {(place.where.line, str(reason)): None} if str(reason) else {}
        else:
            accesses.append(Access(place, parents, address, tuple(_words(place, parents, address))))
    return accesses, stays


def _places(x: ir.Node, parents: tuple[ir.Node, ...] = ()) -> Iterator[tuple[ir.Expression, tuple[ir.Node, ...]]]:
    """Accesses of volatile objects in a node, each with the nodes around it."""
    if isinstance(x, ir.Expression) and _is_place(x):
        yield x, parents
    for part in x.parts if not isinstance(x, ir.Unevaluated) else ():
        yield from _places(part, (x, *parents))


def _is_place(x: ir.Node) -> bool:
    memory = isinstance(x, ir.MemberOf | ir.Subscript) or (isinstance(x, ir.Unary) and x.operator == "*")
    return memory and isinstance(x, ir.Expression) and x.type.is_volatile and x.type.kind in NUMBERS


def _checked(place: ir.Expression) -> Address:
    """The address of a place. Raises Refused."""
    address = _object(place)
    if address.base is None:
        return Address(address.offset & WIDE)
    if any(ir.is_busy(n) for n in address.base.all()):
        raise Refused("the address is what a call or an assignment gives")
    if _is_place(address.base):
        raise Refused("the address is read from a register")
    return address


def _object(place: ir.Expression) -> Address:
    """The address of an object. Raises Refused."""
    match place.bare:
        case ir.MemberOf(base=ir.Expression() as base, member=ir.Member() as member):
            is_pointer = base.type.kind == "pointer"
            if any(m.type.kind == "pointer" for m in (base.type.to if is_pointer else base.type).fields):
                raise Refused  # a struct of the program: registers hold no pointers
            if member.bits is not None:
                raise Refused("a bit field of C")
            return (_sum(base) if is_pointer else _object(base)).plus(Address(member.at))
        case ir.Subscript(base=base, index=index):
            return _sum(base).plus(_sum(index), place.type.size)
        case ir.Unary(operator="*", operand=operand):
            return _sum(operand)
    raise Refused


def _sum(x: ir.Expression) -> Address:
    """A number or a pointer as an address. Raises Refused."""
    if x.type.kind in NUMBERS and (value := x.constant) is not None:
        return Address(value)
    is_wide = x.type.kind in WORDS and x.type.size >= 4
    match x:
        case ir.Converted(inside=inside) | ir.Cast(inside=inside) if inside.type.kind == "array":
            return _object(inside)
        case ir.Parenthesised(inside=inside):
            return _sum(inside)
        case ir.Converted(inside=inside) | ir.Cast(inside=inside) if is_wide and inside.type.kind in WORDS:
            return _sum(inside)
        case ir.Unary(operator="&", operand=operand):
            return _object(operand)
        case ir.Binary(left=left, right=right, operator="+" | "-" as operator) if is_wide:
            if right.type.kind == "pointer" and operator == "+":
                left, right = right, left
            size = left.type.to.size if left.type.kind == "pointer" else 1
            return _sum(left).plus(_sum(right), size if operator == "+" else -size)
        case ir.Binary(operator="*"):
            raise Refused("the address is computed")
    return Address(0, x)


def _words(place: ir.Expression, parents: Sequence[ir.Node], address: Address) -> Iterator[str]:
    """The register's name as the text has it, then names that say which peripheral it belongs to."""
    same = [place, *(p for p in parents if p.span == place.span)]
    word = re.match(r"\w*", same[-1].source.decode("utf-8", "replace"))
    member = next((x for x in place.all() if isinstance(x, ir.MemberOf)), None)
    yield member.member.name if member is not None and member.member else word[0] if word else ""
    if member is not None and member.base is not None:
        yield member.base.type.group[0] or member.base.type.name
    elif address.base is not None:
        stem = word[0].rpartition("_")[0] if word else ""
        yield from (stem, getattr(address.base, "name", "") or address.base.source.decode("utf-8", "replace"))


@dataclass(frozen=True)
class Target:
    """The register that an access goes to."""

    block: Block
    register: RegisterInfo


def targets(accesses: Sequence[Access], blocks: Sequence[Block]) -> dict[Access, Target]:
    """The register of each access that the description has. Accesses by pointers of one kind are of one peripheral."""
    result: dict[Access, Target] = {}
    owners: dict[str, list[Access]] = {}
    for a in accesses:
        owners.setdefault(a.owner, []).append(a)
    for a in owners.pop("", ()):
        places = (_register(a, b, a.address.offset - b.base) for b in blocks)
        if target := next(filter(None, places), None):
            result[a] = target
    named = {t.block.name for t in result.values()}
    order = sorted(blocks, key=lambda b: (b.name not in named, b.name))
    for mine in owners.values():
        block = max(order, key=partial(_likeness, mine), default=None)
        if block and any(_likeness(mine, block)):
            result |= {a: t for a in mine if (t := _register(a, block, a.address.offset))}
    return result


def _register(a: Access, block: Block, offset: int) -> Target | None:
    bits = 8 * a.place.type.size
    registers = [r for r in block.registers if r.offset == offset and r.bits == bits]
    best = max(registers, key=lambda r: normal(a.words[:1]).endswith(normal((r.name,))), default=None)
    return Target(block, best) if best else None


def _likeness(accesses: Sequence[Access], block: Block) -> tuple[int, int]:
    """(accesses that the peripheral has a register for, how much the names of both agree); zeros: it is another one."""
    own = re.sub(r"\d.*", "", block.name).upper()
    words = [w.upper() for a in accesses for w in a.words]
    places = [(a, t) for a in accesses if (t := _register(a, block, a.address.offset))]
    alike = sum(normal(a.words[:1]).endswith(normal((t.register.name,))) for a, t in places)
    stem = sum(any(n in w for w in words) for n in {own, block.group.upper()} - {""})
    stem += any(own in w for w in words)  # USART1 is more of a USART_TypeDef than UART4 is
    return (len(places), alike * 2 + stem * len(places)) if alike * 2 >= len(accesses) or stem else (0, 0)
