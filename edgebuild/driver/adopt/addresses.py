"""Accesses of registers in plain C: where each goes, and the register of a description that lies there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgebuild.driver.registers.regmap import Block, RegisterInfo, normal
from edgebuild.driver.source import ir
from edgebuild.driver.source.sources import in_macro

WIDE = 0xFFFFFFFF
STATEMENTS = (ir.Block, ir.If, ir.Loop, ir.Switch, ir.Return)


class Refused(Exception):
    """The reason why an access stays C; none where it is of a variable."""


@dataclass(frozen=True)
class Address:
    """Bytes behind a base; without one they are the whole address."""

    base: ir.Expression | None
    offset: int


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


def accesses_of(function: ir.Function) -> tuple[list[Access], list[tuple[ir.Node, str]]]:
    """(accesses of a function, places that stay C with the reason)."""
    accesses, refused = list[Access](), list[tuple[ir.Node, str]]()
    for place, parents in _volatile(function.body, ()) if function.body else ():
        try:
            if any(isinstance(p, STATEMENTS) and in_macro(p.origin.extent.start) for p in parents):
                raise Refused("it comes out of a macro that is no expression")
            address = _checked(place)
        except Refused as reason:
            refused += [(place, str(reason))] if str(reason) else []
        else:
            accesses.append(Access(place, parents, address, tuple(_words(place, parents, address))))
    return accesses, refused


def _volatile(x: ir.Node, parents: tuple[ir.Node, ...]) -> Iterator[tuple[ir.Expression, tuple[ir.Node, ...]]]:
    if isinstance(x, ir.Unevaluated):
        return
    if isinstance(x, ir.Assembly):
        yield from ((p, (x, *parents)) for p in x.operands if any(_is_place(n) for n in p.all()))
    elif isinstance(x, ir.Expression) and _is_place(x):
        yield x, parents
    for part in x.parts if not isinstance(x, ir.Assembly) else ():
        yield from _volatile(part, (x, *parents))


def _is_place(x: ir.Node) -> bool:
    memory = isinstance(x, ir.MemberOf | ir.Subscript) or (isinstance(x, ir.Unary) and x.operator == "*")
    return memory and isinstance(x, ir.Expression) and x.type.is_volatile and x.type.kind in ("number", "bool")


def _checked(place: ir.Expression) -> Address:
    """The address of a place. Raises Refused."""
    offset, terms = _object(place)
    if len(terms) > 1 or any(step != 1 for step, _ in terms):
        raise Refused("the address is computed")
    if not terms:
        return Address(None, offset & WIDE)
    base = terms[0][1]
    if any(ir.is_busy(n) for n in base.all()):
        raise Refused("the address is what a call or an assignment gives")
    if _is_place(base):
        raise Refused("the address is read from a register")
    return Address(base, offset)


Sum = tuple[int, list[tuple[int, ir.Expression]]]


def _object(place: ir.Expression) -> Sum:
    """The address of an object: a constant, and terms with their factors. Raises Refused."""
    if isinstance(place, ir.Parenthesised):
        return _object(place.inside)
    if isinstance(place, ir.MemberOf) and place.base is not None and (member := place.value_member):
        type_ = place.base.type.to if place.base.type.kind == "pointer" else place.base.type
        if any(m.type.kind == "pointer" for m in type_.fields):
            raise Refused  # a struct of the program: registers hold no pointers
        if member.bits is not None:
            raise Refused("a bit field of C")
        start = _sum(place.base) if place.base.type.kind == "pointer" else _object(place.base)
        return start[0] + member.at, start[1]
    if isinstance(place, ir.Subscript):
        return _added(_sum(place.base), _sum(place.index), place.type.size)
    if isinstance(place, ir.Unary) and place.operator == "*":
        return _sum(place.operand)
    raise Refused


def _sum(x: ir.Expression) -> Sum:
    """A number or a pointer as a sum."""
    if x.type.kind in ("number", "bool") and (value := x.constant) is not None:
        return value, []
    if isinstance(x, ir.Parenthesised):
        return _sum(x.inside)
    if isinstance(x, ir.Converted | ir.Cast) and x.inside.type.kind == "array":
        return _object(x.inside)
    narrow = x.type.kind not in ("number", "pointer") or x.type.size < 4
    if isinstance(x, ir.Converted | ir.Cast) and not narrow and x.inside.type.kind in ("number", "pointer"):
        return _sum(x.inside)
    if isinstance(x, ir.Unary) and x.operator == "&":
        return _object(x.operand)
    if isinstance(x, ir.Binary) and x.operator in ("+", "-") and not narrow:
        left, right = x.left, x.right
        if x.operator == "+" and right.type.kind == "pointer":
            left, right = right, left
        factor = left.type.to.size if left.type.kind == "pointer" else 1
        return _added(_sum(left), _sum(right), factor if x.operator == "+" else -factor)
    if isinstance(x, ir.Binary) and x.operator == "*" and not narrow:
        for value, other in ((x.left.constant, x.right), (x.right.constant, x.left)):
            if value is not None:
                return _added((0, []), _sum(other), value)
    return 0, [(1, x)]


def _added(a: Sum, b: Sum, factor: int) -> Sum:
    return a[0] + factor * b[0], [*a[1], *((factor * step, x) for step, x in b[1])]


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
        places = (_register(a, b, a.address.offset - b.base) for b in blocks if b.base <= a.address.offset)
        if target := next(filter(None, places), None):
            result[a] = target
    named = {t.block.name for t in result.values()}
    order = sorted(blocks, key=lambda b: (b.name not in named, b.name))
    for mine in owners.values():
        rows = [(likeness, b) for b in order if (likeness := _likeness(mine, b))[1]]
        for _, block in [max(rows, key=lambda row: row[0])] if rows else []:
            result |= {a: t for a in mine if (t := _register(a, block, a.address.offset))}
    return result


def _register(a: Access, block: Block, offset: int) -> Target | None:
    bits = 8 * a.place.type.size
    registers = [r for r in block.registers if r.offset == offset and r.bits == bits]
    best = max(registers, key=lambda r: normal(a.words[:1]).endswith(normal((r.name,))), default=None)
    return Target(block, best) if best else None


def _likeness(accesses: Sequence[Access], block: Block) -> tuple[int, int]:
    """(accesses that the peripheral has a register for, how much the names of both agree; 0: another one)."""
    own = re.sub(r"\d.*", "", block.name).upper()
    words = [w.upper() for a in accesses for w in a.words]
    places = [(a, t) for a in accesses if (t := _register(a, block, a.address.offset))]
    alike = sum(normal(a.words[:1]).endswith(normal((t.register.name,))) for a, t in places)
    stem = sum(any(n in w for w in words) for n in {own, block.group.upper()} - {""})
    stem += any(own in w for w in words)  # USART1 is more of a USART_TypeDef than UART4 is
    return len(places), alike * 2 + stem * len(places) if alike * 2 >= len(accesses) or stem else 0
