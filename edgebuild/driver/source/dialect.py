"""The values of the dialect: fields, groups and devices, with the side effects of their accesses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from clang.cindex import Cursor, CursorKind, Type, TypeKind

from ...base.errors import did_you_mean
from . import clang
from .ir import CType

ARRAYS = (TypeKind.CONSTANTARRAY, TypeKind.VARIABLEARRAY, TypeKind.INCOMPLETEARRAY)


class FieldWrite(NamedTuple):
    """The effect of a write on a field. `neutral`: bits whose write has no effect ("never": none)."""

    neutral: str
    rdl: str  # SystemRDL's word
    model: str  # its name in models of devices


# By SVD's modifiedWriteValues.
WRITES = {
    "oneToClear": FieldWrite("0", "woclr", "ONE_CLEARS"),
    "oneToSet": FieldWrite("0", "woset", "ONE_SETS"),
    "oneToToggle": FieldWrite("0", "wot", "ONE_TOGGLES"),
    "zeroToClear": FieldWrite("1", "wzc", "ZERO_CLEARS"),
    "zeroToSet": FieldWrite("1", "wzs", "ZERO_SETS"),
    "zeroToToggle": FieldWrite("1", "wzt", "ZERO_TOGGLES"),
    "clear": FieldWrite("never", "wclr", "CLEARS"),
    "set": FieldWrite("never", "wset", "SETS"),
    "modify": FieldWrite("never", "wuser", "STORE"),
}
NEUTRAL = {word: write.neutral for word, write in WRITES.items()}
FieldId = tuple[str, str]  # (group, field): the target of an access, the same in all instances


@dataclass(frozen=True)
class Field:
    """A bit field, or an array of them. `rse`, `wse`: fields that a read, a write changes as a side effect."""

    group: str
    name: str
    width: int
    dims: tuple[int, ...] = ()
    rse: frozenset[FieldId] = frozenset()
    wse: frozenset[FieldId] = frozenset()
    volatile: bool = False  # hardware may change it: no read replaces another
    access: str = "rw"  # "rw", "r", "w"
    modified: str = ""  # effect of a write (SVD's modifiedWriteValues); "" if it stores
    action: str = ""  # side effect of a read (SVD's readAction)
    reset: int | None = None
    values: tuple[tuple[str, int], ...] = ()  # an enumeration
    stride: int = 0  # least bytes between two elements of an array; 0: the layout decides
    shared: bool = False  # a race between its writers is intended
    order: str = "memory"  # "ordered": each store is made, in the order of the device; "independent": in any order

    @property
    def id(self) -> FieldId:
        return (self.group, self.name)

    @property
    def back(self) -> str:
        """The value that a write of a neighbour puts here: "keep"; "0", "1" or "never" if a write has an effect."""
        return NEUTRAL[self.modified] if self.modified else "never" if self.wse else "keep"

    def effects(self, kind: str) -> frozenset[FieldId]:
        """Fields that an access of this kind ("r" or "w") changes; empty for a plain field."""
        return self.rse if kind == "r" else self.wse


@dataclass(frozen=True)
class Child:
    """A group inside of a group."""

    name: str
    group: str
    dims: tuple[int, ...] = ()
    stride: int = 0  # as in `Field`


@dataclass(frozen=True)
class Group:
    """A `bfGroup` with its members."""

    name: str
    members: tuple[Field | Child, ...]
    where: clang.Place
    extent: tuple[int, int]  # bytes of the definition in the unit's text
    scoped: bool = False  # whether it is in a namespace

    @property
    def fields(self) -> tuple[Field, ...]:
        return tuple(m for m in self.members if isinstance(m, Field))

    @property
    def children(self) -> tuple[Child, ...]:
        return tuple(m for m in self.members if isinstance(m, Child))

    @cached_property
    def _members(self) -> Mapping[str, Field | Child]:
        return {m.name: m for m in self.members}

    def member(self, name: str) -> Field | Child:
        return self._members[name]


@dataclass(frozen=True)
class Device:
    """A `make_device`."""

    name: str
    group: str
    address: int
    where: clang.Place


@dataclass(frozen=True)
class Offset:
    """An `offsetof(bfGroup G, f)`: the byte offset of the field's register, which the layout decides."""

    extent: tuple[int, int]
    field: FieldId
    where: clang.Place


@dataclass(frozen=True)
class Dialect:
    """All groups and devices that the sources declare."""

    groups: Mapping[str, Group]
    devices: Mapping[str, Device]
    cursors: Mapping[FieldId, Cursor] = field(repr=False, default_factory=dict)
    places: Mapping[tuple[str, str], Field] = field(repr=False, default_factory=dict)  # by group and leaf

    def at(self, group: str, leaf: str, id: FieldId) -> Field:
        """The field with its attributes at one leaf, where silicon's registers of one group differ."""
        return self.places.get((group, leaf)) or self.field(id)

    def group_of(self, type_: CType) -> tuple[str, bool]:
        """(group, whether the type is a pointer to it) of a type; ("", False) for other types."""
        name, pointer = type_.group
        return (name, pointer) if name in self.groups else ("", False)

    def field(self, id: FieldId) -> Field:
        member = self.groups[id[0]].member(id[1])
        assert isinstance(member, Field)
        return member


# Words of the dialect, and the attributes of a field that they set.
KINDS: Mapping[str, Mapping[str, str]] = {
    "ro": {"access": "r"},
    "wo": {"access": "w"},
    "w1c": {"modified": "oneToClear"},
    "w1s": {"modified": "oneToSet"},
    "w0c": {"modified": "zeroToClear"},
    "rc": {"action": "clear"},
}


def type_width(type_: object) -> int | None:
    """The width in bits of a field type of the support header; None for any other type."""
    match = re.fullmatch(rf"(?:const |volatile )*(?:{clang.TYPE.pattern})", str(getattr(type_, "spelling", "")))
    return int(match[1] or 1) if match else None


def read_dialect(unit: clang.Unit) -> Dialect:
    """The groups and devices of a unit. Raises EdgebuildError where a declaration is wrong.

    A struct is a group if its definition begins with the word `bfGroup`.
    """
    definitions: dict[str, Cursor] = {}
    devices: dict[str, Device] = {}
    numbers: dict[str, int] = {}
    for cursor in unit.top:
        if cursor.kind == CursorKind.STRUCT_DECL and cursor.is_definition():
            if _is_group(cursor, unit):
                if unit.text[clang.span(cursor)[0] + 7 :].lstrip().startswith(b"{"):
                    raise clang.error_at(cursor, unit.text, "a group needs a name: bfGroup NAME { ... };")
                if cursor.spelling in definitions:
                    raise clang.error_at(cursor, unit.text, f"there are two groups '{cursor.spelling}'")
                definitions[cursor.spelling] = cursor
        elif cursor.kind == CursorKind.ENUM_DECL:
            for c in clang.children(cursor):
                if c.spelling.startswith("edgebuild_address_"):
                    numbers[c.spelling[18:]] = c.enum_value
        elif cursor.kind == CursorKind.VAR_DECL and any(
            c.kind == CursorKind.ANNOTATE_ATTR and c.spelling == "edgebuild:device" for c in clang.children(cursor)
        ):
            _add_device(cursor, unit, numbers, devices)
    _names_are_free(unit, definitions)
    for cursor in unit.top:
        if cursor.kind == CursorKind.VAR_DECL and _value_of(cursor) in definitions:
            text = f"'{cursor.spelling}': a group cannot be a variable; a device is made by make_device()"
            raise clang.error_at(cursor, unit.text, text)
    cursors: dict[FieldId, Cursor] = {}
    children: dict[int, Cursor] = {}  # where each group inside of a group is declared
    members = {name: _members(cursor, unit, definitions, cursors, children) for name, cursor in definitions.items()}
    attributes = _Attributes(definitions, members, unit, children)
    groups = {
        name: Group(
            name,
            tuple(attributes.with_effects(m, cursors) for m in members[name]),
            clang.place(cursor.location),
            clang.span(cursor),
            cursor.semantic_parent.kind == CursorKind.NAMESPACE,
        )
        for name, cursor in definitions.items()
    }
    for device in devices.values():
        if device.group not in groups:
            text = f"make_device: '{device.group}' is not a bfGroup{did_you_mean(device.group, groups)}"
            raise clang.wrong(device.where, unit.text, text)
    return Dialect(groups, devices, cursors)


def _names_are_free(unit: clang.Unit, groups: Mapping[str, Cursor]) -> None:
    """Raise EdgebuildError if a class has a group's name (generated groups are global), or contains a group."""
    for c in unit.top if unit.cpp else ():
        other = c.kind in (*clang.CLASSES, CursorKind.CLASS_TEMPLATE) and c.spelling in groups
        if other and c.semantic_parent != groups[c.spelling].semantic_parent:
            raise clang.error_at(c, unit.text, f"'{c.spelling}' is also the name of a bfGroup: choose another")
        if c.kind in clang.CLASSES:
            inner = next((x for x in clang.children(c) if x.kind in clang.CLASSES and _is_group(x, unit)), None)
            if inner is not None:
                raise clang.error_at(inner, unit.text, "a group is defined outside of classes")


def _value_of(variable: Cursor) -> str:
    """The name of the struct that is a variable's type, or the type of its elements; "" for other types."""
    type_ = variable.type
    while type_.kind in ARRAYS:
        type_ = type_.element_type
    type_ = type_.get_canonical()
    return str(type_.get_declaration().spelling) if type_.kind == TypeKind.RECORD else ""


def _is_group(cursor: Cursor, unit: clang.Unit) -> bool:
    start = cursor.extent.start
    if start.file is None or start.file.name != unit.tu.spelling:
        return False
    return unit.text[start.offset : start.offset + 7] == b"bfGroup"


def _add_device(cursor: Cursor, unit: clang.Unit, numbers: Mapping[str, int], devices: dict[str, Device]) -> None:
    group = cursor.type.get_pointee().get_declaration().spelling
    new = Device(cursor.spelling, group, numbers[cursor.spelling], clang.place(cursor.location))
    for other in devices.values():
        if other.address == new.address:
            raise clang.error_at(
                cursor, unit.text, f"device '{new.name}' is at {new.address:#x}, and so is '{other.name}'"
            )
    devices[new.name] = new


def _members(
    cursor: Cursor,
    unit: clang.Unit,
    definitions: Mapping[str, Cursor],
    cursors: dict[FieldId, Cursor],
    inner: dict[int, Cursor],
) -> list[Field | Child]:
    members: list[Field | Child] = []
    for c in clang.children(cursor):
        if c.kind in (CursorKind.STRUCT_DECL, CursorKind.UNION_DECL):
            raise clang.error_at(c, unit.text, "a group is defined on its own, not inside of another")
        if c.kind in (*clang.FUNCTIONS, CursorKind.VAR_DECL, CursorKind.CXX_BASE_SPECIFIER):
            raise clang.error_at(c, unit.text, "a group holds fields and groups, and nothing else")
        if c.kind != CursorKind.FIELD_DECL:
            continue
        type_, dims = c.type, []
        while type_.kind == TypeKind.CONSTANTARRAY:
            dims.append(type_.element_count)
            type_ = type_.element_type
        if 0 in dims or (type_.kind == TypeKind.INCOMPLETEARRAY):
            raise clang.error_at(c, unit.text, f"array '{c.spelling}' needs a length of at least 1")
        canonical = type_.get_canonical()
        target = canonical.get_declaration().spelling if canonical.kind == TypeKind.RECORD else ""
        width = type_width(type_)
        cursors[(cursor.spelling, c.spelling)] = c
        if width is not None and not c.is_bitfield():
            members.append(Field(cursor.spelling, c.spelling, width, tuple(dims)))
        elif target in definitions:
            members.append(Child(c.spelling, target, tuple(dims)))
            inner[id(members[-1])] = c
        else:
            raise clang.error_at(
                c,
                unit.text,
                f"'{c.type.spelling}' is not a type of a bit field",
                "  use bit, uint1 to uint64, or a bfGroup",
            )
    return members


class _Attributes:
    """Applies the attributes of members, such as rse() and wse() with their targets."""

    def __init__(
        self,
        definitions: Mapping[str, Cursor],
        members: Mapping[str, list[Field | Child]],
        unit: clang.Unit,
        children: Mapping[int, Cursor],
    ) -> None:
        self.definitions, self.members, self.unit, self.children = definitions, members, unit, children

    def with_effects(self, member: Field | Child, cursors: Mapping[FieldId, Cursor]) -> Field | Child:
        """The member with all its attributes applied. Raises EdgebuildError for contradictions."""
        at = cursors[member.id] if isinstance(member, Field) else self.children[id(member)]
        for attribute in clang.children(at):
            if attribute.kind == CursorKind.ANNOTATE_ATTR and attribute.spelling.startswith("edgebuild:"):
                _, word, argument = attribute.spelling.split(":", 2)
                member = self.with_attribute(member, word, argument, attribute)
        if isinstance(member, Field) and member.modified and "w" not in member.access:
            raise self.error(at, member.name, f"'{member.name}' cannot be written, and says what a write does")
        if isinstance(member, Field) and member.action and "r" not in member.access:
            raise self.error(at, member.name, f"'{member.name}' cannot be read, and says what a read does")
        return member

    def with_attribute(self, member: Field | Child, word: str, argument: str, at: Cursor) -> Field | Child:
        """The member with one attribute applied."""
        if word == "stride":
            if not member.dims:
                raise self.error(at, "", f"'{member.name}' is no array, and has a stride")
            return replace(member, stride=self.number(argument, at))
        if isinstance(member, Child):
            raise self.error(at, "", f"'{word}' is said of a field, and '{member.name}' is a group")
        if word in ("rse", "wse"):
            effects = getattr(member, word)
            for target in argument.split(","):
                effects |= self.resolve(member, word, target.strip(), at)
            return replace(member, **{word: effects})
        if word == "reset":
            value = self.number(argument, at)
            if value < 0 or value >> member.width:
                text = f"reset value {value:#x} does not fit into the {member.width} bits of '{member.name}'"
                raise self.error(at, argument, text)
            return replace(member, reset=value)
        if word == "shared":
            return replace(member, shared=True)
        if word == "enum":
            return replace(member, values=self.enumeration(member, argument.strip(), at))
        for key, meaning in KINDS[argument].items():
            if getattr(member, key) not in ("", "rw", meaning):
                raise self.error(at, argument, f"'{member.name}': '{argument}' contradicts what was said before")
            member = replace(member, **{key: meaning})  # type: ignore[arg-type]
        if KINDS[argument].get("modified"):
            member = replace(member, wse=member.wse | {member.id})
        return replace(member, rse=member.rse | {member.id}) if KINDS[argument].get("action") else member

    def number(self, text: str, at: Cursor) -> int:
        word = text.strip().rstrip("uUlL")
        try:
            return int(word, 0)
        except ValueError:
            raise self.error(at, text, f"'{text.strip()}' is not a number") from None

    def enumeration(self, member: Field, name: str, at: Cursor) -> tuple[tuple[str, int], ...]:
        enums = {c.spelling: c for c in self.unit.top if c.kind == CursorKind.ENUM_DECL and c.spelling}
        name = name.removeprefix("enum ").strip()
        if name not in enums:
            raise self.error(at, name, f"there is no enum '{name}'{did_you_mean(name, enums)}")
        values = tuple((c.spelling, c.enum_value) for c in clang.children(enums[name]))
        wrong = next((f"{n} = {v}" for n, v in values if v < 0 or v >> member.width), "")
        if wrong:
            text = f"{wrong} of enum '{name}' does not fit into the {member.width} bits of '{member.name}'"
            raise self.error(at, name, text)
        return values

    def resolve(self, member: Field, kind: str, word: str, at: Cursor) -> set[FieldId]:
        own = {m.name for m in self.members[member.group] if isinstance(m, Field)}
        if word in own:
            return {(member.group, word)}
        if word == "self":
            return {member.id}
        group, colons, name = (part.strip() for part in word.partition("::"))
        if group in self.members:
            fields = {m.name for m in self.members[group] if isinstance(m, Field)}
            if not colons:
                return all_fields(self.members, group)
            if name in fields:
                return {(group, name)}
            text = f"{kind} target '{name}' is not a field of group '{group}'{did_you_mean(name, fields)}"
        elif colons:
            text = f"{kind} target '{word}': no group '{group}'{did_you_mean(group, self.members)}"
        else:
            child = next((m for m in self.members[member.group] if m.name == word), None)
            if isinstance(child, Child):
                return all_fields(self.members, child.group)
            text = f"{kind} target '{word}' is not a field of group '{member.group}'{did_you_mean(word, own)}"
        raise self.error(at, word, text)

    def error(self, at: Cursor, word: str, text: str) -> Exception:
        """An error that points at `word` in the macro's argument."""
        here, text_ = clang.place(at.extent.start), self.unit.text
        end = text_.find(b")", here.offset)
        inside = text_.find(word.encode(), here.offset, end if end > 0 else None) if word else -1
        shift = max(inside - here.offset, 0)
        here = replace(here, column=here.column + shift, offset=here.offset + shift)
        return clang.wrong(here, self.unit.text, text, length=len(word))


def all_fields(members: Mapping[str, Iterable[Field | Child]], group: str) -> set[FieldId]:
    """The fields of a group and of the groups in it. `members`: the members of each group."""
    inner = ({m.id} if isinstance(m, Field) else all_fields(members, m.group) for m in members[group])
    return set[FieldId]().union(*inner)


def group_of(type_: Type, dialect: Dialect) -> tuple[str, bool]:
    """(group, whether the type is a pointer to it) of a type; ("", False) for other types."""
    name, pointer = clang.record(type_)
    return (name, pointer) if name in dialect.groups else ("", False)


def read_offsets(unit: clang.Unit, dialect: Dialect) -> tuple[Offset, ...]:
    """Every `offsetof` of a group in the unit. Expressions with one no longer count as constants from here on."""
    offsets = []
    for c in clang.preorder(unit.tu.cursor) if b"offsetof" in unit.text else ():
        if not clang.is_offset(c):
            continue
        members = [x.referenced for x in clang.children(c) if x.kind == CursorKind.MEMBER_REF]
        owner, name = unit.member(members[0])
        if owner not in dialect.groups:
            continue
        if len(members) > 1 or not isinstance(dialect.groups[owner].member(name), Field):
            raise clang.error_at(c, unit.text, "offsetof of a group takes the name of one bit field")
        offsets.append(Offset(clang.span(c), (owner, name), clang.place(c.extent.start)))
    unit.tu.cursor._tu.offsets = {o.extent for o in offsets}
    return tuple(offsets)


def check_memory(unit: clang.Unit, dialect: Dialect) -> None:
    """Raise EdgebuildError for a union with a group or a pointer to one, whose other members would access registers
    unseen, and for a struct that contains a group."""
    classes = (c for c in unit.top if c.kind in clang.CLASSES and c.spelling not in dialect.groups and unit.own(c))
    for m in (f for c in classes for f in clang.children(c) if f.kind == CursorKind.FIELD_DECL):
        name, pointer = group_of(m.type, dialect)
        if name and not pointer and not clang.is_reference(m.type):
            text = f"'{m.spelling}': a group is no member of a struct"
            raise clang.error_at(m, unit.text, text, f"  use a pointer: bfGroup {name} *{m.spelling}")
    for union in clang.preorder(unit.tu.cursor) if b"union" in unit.text else ():
        for m in clang.children(union) if union.kind == CursorKind.UNION_DECL else ():
            if m.kind == CursorKind.FIELD_DECL and group_of(m.type, dialect)[0]:
                raise clang.error_at(m, unit.text, f"'{m.spelling}': a union cannot hold a group")
