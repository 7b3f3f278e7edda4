"""Accesses of registers in plain C: their addresses, and the registers of a description at these addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from .registers.regmap import Block, RegisterInfo, normal
from .source import clang, ir
from .source.lowering import Program

WIDE = 0xFFFFFFFF
ALIASES = 0x3000  # address bits of views that set, clear and toggle registers: Raspberry Pi's chips
STATEMENTS = (ir.Block, ir.If, ir.Loop, ir.Switch, ir.Return)
NUMBERS, WORDS = ("number", "bool"), ("number", "pointer")
Sizes = dict[str, dict[str, None]]  # names of registers, by peripheral
Stays = dict[tuple[int, str], None]  # (line that stays C, reason), in order


class Refused(Exception):
    """An access stays C; the text is the reason, empty if the access is one of a variable."""


@dataclass(frozen=True)
class Address:
    """An address in bytes: base + offset + stride * index. Base and index are optional."""

    offset: int
    base: ir.Expression | None = None
    stride: int = 0
    index: ir.Expression | None = None

    def plus(self, other: Address, factor: int = 1) -> Address:
        """The sum. Raises Refused for two bases, or two indices."""
        other = other.times(factor)
        if (self.base and other.base) or (self.index and other.index):
            raise Refused("the address is computed")
        stride, index = (self.stride, self.index) if self.index else (other.stride, other.index)
        return Address(self.offset + other.offset, self.base or other.base, stride, index)

    def times(self, factor: int) -> Address:
        """The multiple, in which the base becomes the index. Raises Refused if there is a base and an index."""
        if factor == 1:
            return self
        if self.base and self.index:
            raise Refused("the address is computed")
        stride = factor * (self.stride if self.index else 1)
        return Address(factor * self.offset, None, stride, self.index or self.base)


@dataclass(frozen=True, eq=False)
class Access:
    """An expression that reads or writes a register. `parents`: the enclosing nodes, the innermost first."""

    place: ir.Expression  # the object, or the call of an accessor
    parents: tuple[ir.Node, ...]
    address: Address
    words: tuple[str, ...]  # register, and names that suggest the peripheral: a macro, a struct, a parameter
    size: int  # bytes
    value: ir.Expression | None = None  # the value that a call stores

    @property
    def owner(self) -> str:
        """The words without the register, for an address with a base: equal owners are one kind of peripheral."""
        return "" if self.address.base is None else " ".join(self.words[1:])


def accesses_of(function: ir.Function, program: Program) -> tuple[list[Access], Stays]:
    """(accesses of a function, lines that stay C)."""
    accesses, stays = list[Access](), Stays()
    for place, parents in _places(function.body, program) if function.body else ():
        try:
            if any(isinstance(p, STATEMENTS) and clang.in_macro(p.origin.extent.start) for p in parents):
                raise Refused("it comes out of a macro that is no expression")
            if isinstance(place, ir.Call):
                accesses.append(_called(place, parents, program))
            else:
                address = _checked(place, _object(place))
                words = tuple(_words(place, parents, address))
                accesses.append(Access(place, parents, address, words, place.type.size))
        except Refused as reason:
            stays |= {(place.where.line, str(reason)): None} if str(reason) else {}
    return accesses, stays


def _places(
    x: ir.Node, program: Program, parents: tuple[ir.Node, ...] = ()
) -> Iterator[tuple[ir.Expression, tuple[ir.Node, ...]]]:
    """Accesses of volatile objects in a node, each with the nodes around it."""
    is_call = isinstance(x, ir.Call) and accessor(x.to, program) is not None
    if isinstance(x, ir.Expression) and (is_call or _is_place(x)):
        yield x, parents
    for part in x.parts if not isinstance(x, ir.Unevaluated) else ():
        address = plain(part) if is_call and isinstance(part, ir.Expression) else part
        if isinstance(address, ir.Unary) and address.operator == "&" and is_call:
            part = address.operand  # the object that the call accesses
            for inner in part.parts:
                yield from _places(inner, program, (part, address, x, *parents))
        else:
            yield from _places(part, program, (x, *parents))


def plain(x: ir.Expression) -> ir.Expression:
    while isinstance(x, ir.Wrapped):
        x = x.inside
    return x


def accessor(function: ir.Function | None, program: Program) -> tuple[ir.Expression, int, int | None] | None:
    """(the object that a function accesses, index of the address argument, index of the argument that it stores).

    None unless the function does only that, as Zephyr's `sys_read32` and the `hw_set_bits` of the Pico SDK.
    """
    f = program.definitions.get(function.full_name) if function else None
    if not (f and isinstance(f.body, ir.Block) and len(f.body.statements) == 1):
        return None
    names = [p.name for p in f.parameters]
    stored: ir.Expression | None = None
    match f.body.statements[0]:
        case ir.Return(value=ir.Expression() as value):
            place = plain(value)
        case ir.Evaluation(value=ir.Assignment(left=left, right=right, operator="")):
            place, stored = left.bare, plain(right)
        case _:
            return None
    if not _is_place(place) or not (stored is None or (isinstance(stored, ir.Name) and stored.name in names)):
        return None
    try:
        address = _object(place)
    except Refused:
        return None
    is_whole = isinstance(place, ir.Unary) and not address.offset & ~ALIASES and not address.index
    if not is_whole or not isinstance(address.base, ir.Name) or address.base.name not in names:
        return None
    return place, names.index(address.base.name), names.index(stored.name) if isinstance(stored, ir.Name) else None


def _called(call: ir.Call, parents: tuple[ir.Node, ...], program: Program) -> Access:
    """The access that a call of an accessor makes. Raises Refused if its address is not supported."""
    place, at, stored = accessor(call.to, program) or (call, 0, None)
    argument = call.arguments[at]
    address = _checked(call, _sum(argument).plus(Address(_object(place).offset)))
    bare = plain(argument)
    words: Iterator[str] | list[str]
    if isinstance(bare, ir.Unary) and bare.operator == "&":
        words = _words(bare.operand, (), address)
    else:
        names = re.findall(r"[A-Za-z_]\w*", argument.source.decode("utf-8", "replace"))
        register = re.sub(r"_(REG|OFFSET|OFFS|ADDR)$", "", names[-1] if names else "")
        words = [register, *([register.rpartition("_")[0], " ".join(names[:1])] if address.base else [])]
    value = None if stored is None else call.arguments[stored]
    return Access(call, parents, address, tuple(words), place.type.size, value)


def _is_place(x: ir.Node) -> bool:
    memory = isinstance(x, ir.MemberOf | ir.Subscript) or (isinstance(x, ir.Unary) and x.operator == "*")
    return memory and isinstance(x, ir.Expression) and x.type.is_volatile and x.type.kind in NUMBERS


def _checked(place: ir.Expression, address: Address) -> Address:
    """The address of a place, cut to 32 bits. Raises Refused if it is read from a register."""
    for part in (address.base, address.index):
        if part is not None and any(map(_is_place, part.all())):
            raise Refused("the address is read from a register")
    return address if address.base else replace(address, offset=address.offset & WIDE)


def _object(place: ir.Expression) -> Address:
    """The address of an object. Raises Refused for bit fields and the program's own structs."""
    match place.bare:
        case ir.MemberOf(base=ir.Expression() as base, member=ir.Member() as member) as whole:
            is_pointer = base.type.kind == "pointer"
            if any(m.type.kind == "pointer" for m in (base.type.to if is_pointer else base.type).fields):
                raise Refused  # a struct of the program: peripherals have no pointers
            if member.bits is not None:
                raise Refused("a bit field of C")
            return (_sum(base) if is_pointer else _object(base)).plus(Address(whole.at))
        case ir.Subscript(base=base, index=index):
            return _sum(base).plus(_sum(index), place.type.size)
        case ir.Unary(operator="*", operand=operand):
            return _sum(operand)
    raise Refused


def _sum(x: ir.Expression) -> Address:
    """The address that a number or a pointer is. Raises Refused for other arithmetic."""
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
        case ir.Binary(left=left, right=right, operator="*" | "<<" as operator) if is_wide:
            if operator == "*" and left.constant is not None:
                left, right = right, left
            if right.constant is None:
                raise Refused("the address is computed")
            return _sum(left).times(right.constant if operator == "*" else 1 << right.constant)
    return Address(0, x)


def _words(place: ir.Expression, parents: Sequence[ir.Node], address: Address) -> Iterator[str]:
    """The register's name in the text, then names that suggest its peripheral."""
    same = [place, *(p for p in parents if p.span == place.span)]
    word = re.match(r"\w*", same[-1].source.decode("utf-8", "replace"))
    member = next((x for x in place.all() if isinstance(x, ir.MemberOf)), None)
    yield member.member.name if member is not None and member.member else word[0] if word else ""
    if member is not None and (base := member.written_base) is not None:
        base = _named_base(base) or base
        yield base.type.group[0] or base.type.name
    elif address.base is not None:
        stem = word[0].rpartition("_")[0] if word else ""
        yield from (stem, getattr(address.base, "name", "") or address.base.source.decode("utf-8", "replace"))


def _named_base(base: ir.Expression | None) -> ir.Expression | None:
    """The nearest object around a member whose struct has a name: `p` of `p->CHANNEL[n].CR`."""
    while base is not None and "(" in base.type.text:
        inner = base.bare
        while isinstance(inner, ir.Subscript):
            inner = inner.base.bare
        base = inner.written_base if isinstance(inner, ir.MemberOf) else None
    return base


@dataclass(frozen=True)
class Target:
    """The register of an access, or the first of `count` if the access has an index.

    `name`: of the register or the array; `first`: the index of its first element in the source.
    """

    block: Block
    register: RegisterInfo
    name: str
    count: int = 0
    first: int = field(default=0, compare=False)
    alias: int = field(default=0, compare=False)  # bytes from the register to the view that is accessed


def targets(accesses: Sequence[Access], blocks: Sequence[Block]) -> dict[Access, Target]:
    """The register of each access, where the description has one. All accesses of one owner get one peripheral."""
    result: dict[Access, Target] = {}
    owners: dict[str, list[Access]] = {}
    for a in accesses:
        owners.setdefault(a.owner, []).append(a)
    for a in owners.pop("", ()):
        places = [t for b in blocks if (t := _register(a, b, a.address.offset - b.base))]
        if places:
            result[a] = min(places, key=lambda t: t.alias)
    named = {t.block.name for t in result.values()}
    order = sorted(blocks, key=lambda b: (b.name not in named, b.name))
    chosen: dict[tuple[str, str], Block] = {}
    for owner, addresses in sorted(owners.items()):
        stem, _, base = owner.partition(" ")
        near = (b for (s, of), b in chosen.items() if of == base and s and stem.startswith(s))  # I2C, for I2C_TASK
        pool = [b for b in order if _is_named(b, stem)] or order  # SPI_CTL0 never matches a GPIO
        block = max(pool, key=partial(_match_score, addresses), default=None)
        if block and not any(_match_score(addresses, block)):
            block = next(near, None)
        if block:
            chosen[stem, base] = block
            result |= {a: t for a in addresses if (t := _register(a, block, a.address.offset))}
    return result


def wider(accesses: Sequence[Access], blocks: Sequence[Block]) -> Sizes:
    """Registers that are narrower in the description, only accessed as words, and followed by none within the word."""
    right = targets(accesses, blocks)
    words = targets([a for a in accesses if a not in right and a.size == 4], [_widened(b) for b in blocks])
    narrow = {(t.block.name, t.name) for t in right.values()}
    result = Sizes()
    for t in words.values():
        if (t.block.name, t.name) not in narrow and t.name == t.register.name:
            result.setdefault(t.block.name, {})[t.name] = None
    return result


def _widened(block: Block) -> Block:
    offsets = {r.offset for r in block.registers}
    alone = {r for r in block.registers if not r.offset % 4 and offsets.isdisjoint(range(r.offset + 1, r.offset + 4))}
    return replace(
        block, registers=tuple(replace(r, bits=32) if r in alone else r for r in block.registers if r.bits <= 32)
    )


def absence(a: Access, blocks: Sequence[Block]) -> str:
    """The reason why the description has no register for an access."""
    bits, stem = 8 * a.size, a.owner.partition(" ")[0]
    for b in blocks:
        offset = a.address.offset - (0 if a.address.base else b.base)
        for r in b.registers if not a.address.base or _is_named(b, stem) else ():
            if r.offset == offset and r.bits != bits:
                sizes = f"with {r.bits} bits, the access {bits}"
                return f"the description has {r.full_name} {sizes}; a patch of svdtools may correct it"
    where, base, index = a.address, a.address.base, a.address.index
    terms = [_in_words(base)] if base else []
    terms += [f"{where.offset:#x}"] if where.offset or not base else []
    terms += [f"{where.stride} * {_in_words(index)}"] if index else []
    computed = ", which is computed at run time" if base or index else ""
    return f"the description has no such register at {' + '.join(terms)}{computed}"


def _in_words(x: ir.Expression) -> str:
    name = getattr(x.bare, "name", "") or " ".join(x.source.decode("utf-8", "replace").split())
    return f"'{name}'" if name else "an expression"  # in the argument of a macro


def _kind(block: Block) -> str:
    """The kind of a peripheral, its name without a number: I2C of I2C0, UART of UART1_S. P0 has none, and stays P0."""
    own = block.name.upper()
    kind = re.match(r"[A-Z]\d?[A-Z]+", own)
    return kind[0] if kind else own


def _is_named(block: Block, stem: str) -> bool:
    """Whether a word of a stem, such as SPI of SPI_TypeDef, is the block's kind or group."""
    words = {w.rstrip("0123456789") for w in re.split(r"[^A-Z0-9]+", stem.upper())}
    return not words.isdisjoint({_kind(block), block.group.upper()} - {""})


def _register(a: Access, block: Block, offset: int) -> Target | None:
    bits = 8 * a.size
    if a.address.index is not None:
        return _array(a, block, offset)
    for alias in {0, offset & ALIASES} if max(r.offset for r in block.registers) <= ~ALIASES & WIDE else {0}:
        registers = [r for r in block.registers if r.offset == offset - alias and r.bits == bits]
        if best := max(registers, key=lambda r: _is_alike(a.words[0], r.name), default=None):
            return Target(block, best, best.full_name, alias=alias)
    return None


def _is_alike(word: str, name: str) -> bool:
    """Whether one of a word and a register's name is a suffix of the other: cr0 of SSPCR0."""
    own, other = normal((word,)), normal((name,))
    return own.endswith(other) or (len(own) > 1 and other.endswith(own))


def _array(a: Access, block: Block, offset: int) -> Target | None:
    """An array: registers at equal distances with consecutive numbers, as CCR1 to CCR7.

    The access's index counts from 0, or as the names do. None if there is no such array.
    """
    rows: dict[str, dict[int, RegisterInfo]] = {}
    for r in block.registers:
        if (m := re.fullmatch(r"(\w*?[A-Za-z_])(\d+)(\D*)", r.full_name)) and r.bits == 8 * a.size:
            rows.setdefault(m[1] + m[3], {})[int(m[2])] = r
    for name, row in rows.items():
        first, stride = min(row), a.address.stride
        for start in {0, first}:
            even = all(r.offset == offset + stride * (start + n - first) for n, r in row.items())
            if even and len(row) == max(row) - first + 1 > 1:
                return Target(block, row[first], name, len(row), start)
    return None


def _match_score(accesses: Sequence[Access], block: Block) -> tuple[int, int]:
    """(number of accesses with a register in the block, score of their names); (0, 0) if the block is no candidate."""
    own = _kind(block)
    words = [w.upper() for a in accesses for w in a.words]
    places = [(a, t) for a in accesses if (t := _register(a, block, a.address.offset))]
    names = [(a.words[0], t.name if t.count else t.register.name) for a, t in places]
    alike = sum(_is_alike(word, name) for word, name in names)
    stem = sum(any(n in w for w in words) for n in {own, block.group.upper()} - {""})
    stem += any(own in w for w in words)  # USART_TypeDef is rather USART1 than UART4
    return (len(places), alike * 2 + stem * len(places)) if alike * 2 >= len(accesses) or (stem and alike) else (0, 0)
