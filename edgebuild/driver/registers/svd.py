"""CMSIS-SVD: a strict reader, whose errors have line and column, and a writer.

The reader resolves `derivedFrom`, `dim` arrays, clusters and inherited register properties: its result is flat.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from ...base.errors import EdgebuildError, did_you_mean
from ...base.inputs import read_bytes
from ...base.text import xml
from ..source.dialect import NEUTRAL
from .patches import Element, Patcher, decoded, parse, read_patch
from .patches import refused as wrong
from .regmap import RESERVED, Block, FieldInfo, RegisterInfo, RegisterMap, clusters

ACCESS = {"read-only": "r", "write-only": "w", "read-write": "rw", "writeOnce": "w", "read-writeOnce": "rw"}
WORD = {"r": "read-only", "w": "write-only", "rw": "read-write"}
ONCE = {"w": "writeOnce", "rw": "read-writeOnce"}
PARTS = ("cluster", "register", "field")
READ_ACTIONS = ("clear", "set", "modify", "modifyExternal")
POSITION = ("bitOffset", "bitWidth", "lsb", "msb", "bitRange")
MAX_DEPTH, MAX_ELEMENTS = 20, 1 << 16  # of a chain of derivedFrom; of an array, and registers of a peripheral
# A number as SVD defines it, or binary with 0b as vendors write it, and a unit (k is 1024).
NUMBER = re.compile(r"\+?(?:0x([0-9a-f]{1,32})|(?:0b|#)([01x]{1,64})|([0-9]{1,20}))([kmgt]?)")
UNITS = ("", "k", "m", "g", "t")
WILD = re.compile("[xX](?![0-9a-fA-F])|(#|0[bB]).*[xX]")  # a number with don't-care bits
ONLY_VALUE = {"Set": "oneToSet", "Clear": "oneToClear"}  # by the name of the only writable value, 1
SIZES = (8, 16, 32, 64)  # bits of registers; 64 are two accesses
INHERITED = ("size", "access", "resetValue", "resetMask")


def read_svd(path: Path) -> RegisterMap:
    """Read an SVD file. Raises EdgebuildError with line and column."""
    return _Reader(path).read()


def read_patched(path: Path) -> RegisterMap:
    """Read the description that svdtools' patch `path` names, and apply the patch. Raises EdgebuildError."""
    patch = read_patch(path)
    reader = _Reader(patch.description)

    def other(name: str) -> Element:
        return _Reader(path.parent / name).root.child("peripherals") or Element("peripherals", {}, 0, 0)

    if (top := reader.root.child("peripherals")) is not None:
        Patcher(patch, reader.bits, other).device(reader.root, top)
    return replace(reader.read(), files=(*patch.files, str(patch.description)))


class _Reader:
    def __init__(self, path: Path) -> None:
        self.file = str(path)
        text = decoded(read_bytes(path), self.file)
        self.lines = text.split("\n")
        self.root = parse(text, self.file)
        self.peripherals: dict[str, Element] = {}
        self.mistakes: list[tuple[str, EdgebuildError]] = []
        self.block, self.registers_read = "", 0  # the peripheral that is being read

    @cached_property
    def enumerations(self) -> dict[str, list[tuple[tuple[str, ...], Element]]]:
        """Enumerations by name, each with its path (names of the enclosing elements), for derivedFrom."""
        by_name: dict[str, list[tuple[tuple[str, ...], Element]]] = {}

        def look(at: Element, path: tuple[str, ...]) -> None:
            for c in at.children:
                name = c.value("name") or ""
                if c.tag == "enumeratedValues" and name:
                    by_name.setdefault(name, []).append((path, c))
                elif c.children:
                    look(c, (*path, name) if name else path)

        look(self.root, ())
        return by_name

    def enumeration(self, origin: str, around: tuple[str, ...]) -> Element | None:
        """The enumeration with this path; of several, the one whose path has most names in common with `around`."""
        *path, name = origin.split(".")
        fits = [(p, e) for p, e in self.enumerations.get(name, ()) if tuple(path) == p[len(p) - len(path) :]]
        return max(fits, key=lambda other: len({*other[0]} & {*around}))[1] if fits else None

    def read(self) -> RegisterMap:
        top = self.root.child("peripherals")
        if self.root.tag != "device" or top is None:
            raise self.wrong(self.root, "not a CMSIS-SVD file: <device> with <peripherals> is expected")
        defaults = self.properties(self.root, {"size": "32", "access": "read-write", "resetValue": "0"})
        self.peripherals = {p.value("name") or "": p for p in top.all("peripheral")}
        blocks = [b for p in top.all("peripheral") for b in self.peripheral(p, defaults)]
        names = (i.value("name") or "" for p in top.all("peripheral") for i in p.all("interrupt"))
        return RegisterMap(self.root.value("name") or "", tuple(blocks), frozenset(names), tuple(self.mistakes))

    def peripheral(self, p: Element, defaults: dict[str, str]) -> Iterator[Block]:
        p = self.derived(p, list(self.peripherals.values()))
        properties = self.properties(p, defaults)
        registers = p.child("registers")
        for name, shift, _, _ in self.instances(p):
            self.block, self.registers_read = name, 0
            infos = list(self.registers(registers, properties, 0, (), ())) if registers else []
            base, group = self.number(p, "baseAddress") + shift, p.value("groupName") or ""
            yield Block(name, base, _with_alternates(_numbered(infos)), group)

    def registers(
        self, parent: Element, defaults: dict[str, str], base: int, scope: tuple[str, ...], marks: tuple[str, ...]
    ) -> Iterator[RegisterInfo]:
        siblings = list(parent.all("register", "cluster"))
        for element in siblings:
            element = self.derived(element, siblings)
            properties = self.properties(element, defaults)
            for name, shift, _, mark in self.elements(element):
                offset = base + self.number(element, "addressOffset") + shift
                if element.tag == "cluster":
                    yield from self.registers(element, properties, offset, (*scope, name), (*marks, mark))
                else:
                    try:
                        info = self.register(element, name, offset, properties, scope)
                    except EdgebuildError as error:  # raised only for drivers that use the register
                        self.mistakes.append((f"{self.block}.{name}", error))
                        info = RegisterInfo(name, offset, 32, (), scope)
                    self.registers_read += 1
                    if self.registers_read > MAX_ELEMENTS:
                        raise self.wrong(element, f"{self.block} has more than {MAX_ELEMENTS} registers")
                    yield replace(info, marks=(*marks, mark))

    def elements(self, element: Element) -> Iterator[tuple[str, int, int, str]]:
        """The elements as in `instances`. Too many registers, such as a buffer of 16 MB, become one with a mistake."""
        try:
            yield from self.instances(element)
        except EdgebuildError as error:
            name = element.value("name") or ""
            if element.tag != "register" or not name:
                raise
            name = name.partition("[")[0].replace("%s", "")
            self.mistakes.append((f"{self.block}.{name}", error))
            yield name, 0, 0, name

    def register(
        self, r: Element, name: str, offset: int, properties: dict[str, str], scope: tuple[str, ...]
    ) -> RegisterInfo:
        bits = self.size(r, name, offset, properties["size"])
        access = self.access(r, properties["access"])
        holder = r.child("fields")
        fields = tuple(self.fields(holder, r, bits, properties["access"], name)) if holder else ()
        if not fields and (r.value("modifiedWriteValues") or r.value("readAction")):
            fields = (FieldInfo(name, 0, bits, access, *self.effects(r, r, access)),)
        reset = self.as_number(r, "resetValue", properties["resetValue"]) & ((1 << bits) - 1)
        alternate = r.value("alternateRegister") is not None or r.value("alternateGroup") is not None
        description = r.value("description") or ""
        return RegisterInfo(name, offset, bits, fields, scope, access, reset, alternate, description=description)

    def size(self, r: Element, name: str, offset: int, stated: str) -> int:
        """Size of a register in bits, rounded up to that of an access: vendors write 12 or 24 for 16 or 32."""
        bits = self.as_number(r, "size", stated)
        access = next((n for n in SIZES if bits <= n), 0)
        if not 0 < bits <= SIZES[-1]:
            raise self.wrong(r, f"register '{name}' has {bits} bits; 1 to {SIZES[-1]} can be accessed")
        if offset >> 32:
            raise self.wrong(r, f"register '{name}' lies at {offset:#x}, beyond 32 bits")
        if offset % (min(access, 32) // 8):
            raise self.wrong(r, f"register '{name}' lies at {offset:#x}, where none of {access} bits can be accessed")
        return access

    def fields(self, holder: Element, r: Element, bits: int, access: str, register: str) -> Iterator[FieldInfo]:
        fields: list[tuple[FieldInfo, Element]] = []
        siblings = list(holder.all("field"))
        for element in siblings:
            element = self.derived(element, siblings)
            around = (self.block, *(e.value("name") or "" for e in (r, element)))
            lsb, width = self.bits(element)
            for name, _, shift, mark in self.instances(element):
                word = self.access(element, element.value("access") or access)
                new = FieldInfo(
                    name,
                    lsb + shift,
                    width,
                    word,
                    *self.effects(element, r, word, around, width),
                    values=self.values(element, around, width),
                    accepts=self.accepts(element, self.values(element, around, width)),
                    once="once" in (element.value("access") or access).lower(),
                    mark=mark,
                    description=element.value("description") or "",
                )
                if (new.modified and "w" not in word) or (new.read_action and "r" not in word):
                    effect = (
                        f"modifiedWriteValues {new.modified}" if "w" not in word else f"readAction {new.read_action}"
                    )
                    text = f"field '{name}' of register '{register}' is {WORD[word]}, and has {effect}"
                    self.mistakes.append((f"{self.block}.{register}", self.wrong(element, text)))
                if new.lsb + width > bits:
                    text = f"field '{name}' ends at bit {new.lsb + width - 1}, and register '{register}' has {bits}"
                    self.mistakes.append((f"{self.block}.{register}", self.wrong(element, text)))
                fields.append((new, element))
        yield from self.disjoint(fields, register)

    def disjoint(self, fields: list[tuple[FieldInfo, Element]], register: str) -> Iterator[FieldInfo]:
        """The fields without reserved ones that overlap others. Any other overlap is recorded as a mistake."""
        kept = [
            (f, e) for f, e in fields if not (RESERVED.fullmatch(f.name) and any(_overlap(f, g) for g, _ in fields))
        ]
        for i, (late, element) in enumerate(kept):
            for other, _ in kept[:i]:
                if _overlap(late, other):
                    text = f"field '{late.name}' of register '{register}' overlaps field '{other.name}'"
                    self.mistakes.append((f"{self.block}.{register}", self.wrong(element, text)))
            yield late

    def values(
        self, element: Element, around: tuple[str, ...], width: int, usage: str = ""
    ) -> tuple[tuple[str, int], ...]:
        """The enumeration of a field, without values that have don't-care bits or do not fit.

        `around`: names of the peripheral, the register and the field. `usage`: only values with this usage.
        """
        values: dict[str, int] = {}
        for holder in element.all("enumeratedValues"):
            if usage and holder.value("usage") != usage:
                continue
            origin = holder.attributes.get("derivedFrom", "")
            for e in (self.enumeration(origin, around) or holder).all("enumeratedValue"):
                name, text = e.value("name") or "", e.value("value") or ""
                if re.fullmatch(r"[A-Za-z_]\w*", name) and text and not WILD.search(text):
                    values.setdefault(name, self.as_number(e, "value", text))
        return tuple((n, v) for n, v in values.items() if not v >> width)

    def accepts(self, element: Element, values: tuple[tuple[str, int], ...]) -> tuple[tuple[int, int], ...]:
        """The ranges of writable values by `writeConstraint`; empty: all values."""
        constraint = element.child("writeConstraint")
        if constraint is None:
            return ()
        if constraint.value("useEnumeratedValues") in ("true", "1"):
            return tuple((v, v) for _, v in values)
        limits = constraint.child("range")
        if limits is None:
            return ()
        low, high = (self.as_number(limits, word, limits.value(word) or "") for word in ("minimum", "maximum"))
        if low > high:
            raise self.wrong(limits, f"writeConstraint: minimum {low} is above maximum {high}")
        return ((low, high),)

    def effects(
        self, element: Element, register: Element, access: str, around: tuple[str, ...] = (), width: int = 0
    ) -> tuple[str, str]:
        """(effect of a write, side effect of a read). The register's own count only for accesses that the field has.

        If 1, named Set or Clear, is the only writable value of a bit, a 1 sets or clears it. nRF's files describe
        INTENSET and INTENCLR by that alone.
        """
        whole = register if element is not register else Element("", {}, 0, 0)
        modified = element.value("modifiedWriteValues") or ("w" in access and whole.value("modifiedWriteValues")) or ""
        action = element.value("readAction") or ("r" in access and whole.value("readAction")) or ""
        if modified and modified not in NEUTRAL:
            raise self.wrong(element, f"modifiedWriteValues '{modified}' is not known{did_you_mean(modified, NEUTRAL)}")
        if action and action not in READ_ACTIONS:
            raise self.wrong(element, f"readAction '{action}' is not known{did_you_mean(action, READ_ACTIONS)}")
        if not modified and "w" in access and width == 1:
            written = self.values(element, around, width, "write")
            modified = ONLY_VALUE.get(written[0][0], "") if [v for _, v in written] == [1] else ""
        return modified, action

    def bits(self, f: Element) -> tuple[int, int]:
        span = f.value("bitRange")
        if span is not None:
            match = re.fullmatch(r"\[\s*(\d+)\s*:\s*(\d+)\s*\]", span)
            if not match or int(match[1]) < int(match[2]):
                raise self.wrong(f.child("bitRange") or f, f"bitRange '{span}' is not [msb:lsb]")
            return int(match[2]), int(match[1]) - int(match[2]) + 1
        if f.child("lsb"):
            lsb, msb = self.number(f, "lsb"), self.number(f, "msb")
            if msb < lsb:
                raise self.wrong(f, f"field ends at bit {msb} and begins at bit {lsb}")
            return lsb, msb - lsb + 1
        width = self.number(f, "bitWidth") if f.child("bitWidth") else 1
        if width < 1:
            raise self.wrong(f, "a field has at least one bit")
        return self.number(f, "bitOffset"), width

    def instances(self, element: Element) -> Iterator[tuple[str, int, int, str]]:
        """(name, shift in bytes, shift in bits, mark) of each element of a `dim` array; only fields use the bits."""
        name = element.value("name") or ""
        if not name:
            raise self.wrong(element, f"<{element.tag}> without a <name>")
        if element.child("dim") is None:
            yield name, 0, 0, name
            return
        count, step = self.number(element, "dim"), self.number(element, "dimIncrement")
        if count > MAX_ELEMENTS:
            raise self.wrong(element.child("dim") or element, f"<dim> {count} is more than {MAX_ELEMENTS}")
        words = self.indices(element, count)
        for i, word in enumerate(words):
            one, mark = (name.replace("[%s]", w).replace("%s", w) for w in (word, f"#{i}"))
            yield one, i * step, i * step, mark

    def indices(self, element: Element, count: int) -> list[str]:
        text = element.value("dimIndex")
        if text is None:
            return [str(i) for i in range(count)]
        span = re.fullmatch(r"(\d+)-(\d+)", text) or re.fullmatch(r"([A-Z])-([A-Z])|([a-z])-([a-z])", text)
        if span and text[0].isdigit():
            words = [str(i) for i in range(int(span[1]), int(span[2]) + 1)]
        elif span:
            words = [chr(i) for i in range(ord(text[0]), ord(text[2]) + 1)]
        else:
            words = [w.strip() for w in text.split(",")]
        if len(words) != count:
            raise self.wrong(element, f"dimIndex '{text}' has {len(words)} words, and dim is {count}")
        return words

    def derived(self, element: Element, siblings: list[Element], depth: int = 0) -> Element:
        """The element, with missing properties filled in from the one that it is derived from."""
        origin = element.attributes.get("derivedFrom")
        if origin is None:
            return element
        words = origin.split(".")
        parent = self.at_path(words, element.tag) if len(words) > 1 else None
        parent = parent or next((s for s in siblings if s.value("name") == words[-1]), None)
        parent = parent or next((s for s in siblings if self.has_element(s, words[-1])), None)
        if parent is element or depth > MAX_DEPTH:
            raise self.wrong(element, f"derivedFrom '{origin}': it is derived from itself")
        if parent is None:
            names = [s.value("name") or "" for s in siblings]
            raise self.wrong(element, f"derivedFrom '{origin}': no such {element.tag}{did_you_mean(origin, names)}")
        parent = self.derived(parent, siblings, depth + 1)
        merged = copy.copy(element)
        own = {c.tag for c in element.children}
        if "%s" not in (element.value("name") or "%s"):  # a single element, derived from an array
            own |= {c.tag for c in parent.children if c.tag.startswith("dim")}
        if own & set(POSITION):  # possibly stated in another form than in the parent
            if not own & {"bitRange", "msb", "bitWidth"}:
                width = str(self.bits(parent)[1])
                merged.children = [*merged.children, replace(parent, tag="bitWidth", text=width, children=[])]
            own |= set(POSITION)
        merged.children = [*merged.children, *(c for c in parent.children if c.tag not in own)]
        holder, other = element.child("registers"), parent.child("registers")
        if holder and other:  # its own registers replace those of the same names
            redone = {c.value("name") for c in holder.children}
            both = [*holder.children, *(c for c in other.children if c.value("name") not in redone)]
            merged.children = [replace(c, children=both) if c is holder else c for c in merged.children]
        return merged

    def has_element(self, element: Element, name: str) -> bool:
        """Whether an element is an array with an element of this name."""
        pattern = re.escape(element.value("name") or "").replace("%s", ".+").replace(r"\[.+\]", ".+")
        return (
            ".+" in pattern and bool(re.fullmatch(pattern, name)) and name in (n for n, *_ in self.instances(element))
        )

    def at_path(self, words: list[str], tag: str) -> Element | None:
        """The element at PERIPHERAL.CLUSTER.REGISTER.FIELD, or at such a path in the current peripheral; else None."""
        for path in (words, [self.block, *words]):
            at = self.peripherals.get(path[0])
            at = self.derived(at, list(self.peripherals.values())) if at else None
            for word in path[1:]:
                inside = [c for holder in (at, *at.all("registers", "fields")) for c in holder.children] if at else []
                at = next((c for c in inside if c.tag in PARTS and c.value("name") == word), None)
            if at and at.tag == tag:
                return at
        return None

    def properties(self, element: Element, above: dict[str, str]) -> dict[str, str]:
        return {**above, **{k: v for k in INHERITED if (v := element.value(k)) is not None}}

    def access(self, element: Element, word: str) -> str:
        by_word = {w.lower(): access for w, access in ACCESS.items()} | {"read": "r", "write": "w"}  # as vendors write
        if word.lower() not in by_word:
            raise self.wrong(element, f"access '{word}' is not known{did_you_mean(word, ACCESS)}")
        return by_word[word.lower()]

    def number(self, element: Element, tag: str) -> int:
        text = element.value(tag)
        if text is None:
            raise self.wrong(element, f"<{element.tag}> '{element.value('name') or ''}' without <{tag}>")
        return self.as_number(element.child(tag) or element, tag, text)

    def as_number(self, element: Element, tag: str, text: str) -> int:
        match = NUMBER.fullmatch(text.strip().lower())
        if match is None:
            raise self.wrong(element, f"<{tag}> '{text}' is not a number")
        by_base = zip((16, 2, 10), match.groups(), strict=False)
        value = next(int(digits.replace("x", "0"), base) for base, digits in by_base if digits)
        return value << 10 * UNITS.index(match[4])

    def wrong(self, element: Element, text: str) -> EdgebuildError:
        lines = [] if element.file else self.lines
        return wrong(element.file or self.file, lines, element.line, element.column, text)


def _overlap(a: FieldInfo, b: FieldInfo) -> bool:
    """Whether two fields share bits that both read, or both write."""
    common = a.lsb < b.lsb + b.width and b.lsb < a.lsb + a.width
    return a is not b and common and bool(set(a.access) & set(b.access))


def _numbered(registers: list[RegisterInfo]) -> list[RegisterInfo]:
    """Mark `CCR1`, `CCR2`... as an array if they are alike, at equal distances, and counted from 1.

    Numbers inside of names may also count from 0: `TI0R`, `TI1R`. `TIR0`, `TIR1` need no mark.
    """
    series: dict[tuple[tuple[str, ...], str, str], dict[int, int]] = {}  # {number: index in `registers`}
    for place, r in enumerate(registers):
        parts = re.fullmatch(r"(\D+)(\d+)(\D.*)?", r.name)
        if parts and not any("#" in m for m in r.marks):
            series.setdefault((r.scope, parts[1], parts[3] or ""), {}).setdefault(int(parts[2]), place)
    out = list(registers)
    for (_, before, behind), by_number in series.items():
        numbers = sorted(by_number)
        elements = [registers[by_number[n]] for n in numbers]
        steps = {b.offset - a.offset for a, b in pairwise(elements)}
        places = {(f.lsb, f.width) for r in elements for f in r.fields}  # elements need not all have the same fields
        disjoint = all(a + w <= b for (a, w), (b, _) in pairwise(sorted(places)))
        alike = len({r.bits for r in elements}) == 1 and disjoint and len({not r.fields for r in elements}) == 1
        first = numbers[0]
        counted = numbers == list(range(first, first + len(numbers))) and (first == 1 or (first == 0 and behind))
        if counted and len(steps) == 1 and alike:
            for number, place in by_number.items():
                marks = (*registers[place].marks[:-1], f"{before}#{number - first}{behind}")
                out[place] = replace(registers[place], marks=marks)
    return out


def _with_alternates(registers: list[RegisterInfo]) -> tuple[RegisterInfo, ...]:
    """Mark the second and later views of one address."""
    seen: set[int] = set()
    out = []
    for r in registers:
        out.append(r if r.alternate or r.offset not in seen else replace(r, alternate=True))
        seen.add(r.offset)
    return tuple(out)


def write_svd(map_: RegisterMap, comment: str = "") -> str:
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        *([f"<!-- {xml(comment)} -->"] if comment else []),
        '<device schemaVersion="1.3" xmlns:xs="http://www.w3.org/2001/XMLSchema-instance">',
        f"  <name>{xml(map_.name)}</name>",
        "  <version>1.0</version>",
        "  <description>Register map</description>",
        "  <addressUnitBits>8</addressUnitBits>",
        "  <width>32</width>",
        "  <peripherals>",
    ]
    for block in map_.blocks:
        size = max((r.offset + r.bits // 8 for r in block.registers), default=4)
        lines += ["    <peripheral>", f"      <name>{xml(block.name)}</name>"]
        lines += [f"      <groupName>{xml(block.group)}</groupName>"] if block.group else []
        lines += [
            f"      <baseAddress>{block.base:#x}</baseAddress>",
            f"      <addressBlock><offset>0</offset><size>{size:#x}</size><usage>registers</usage></addressBlock>",
        ]
        if block.registers:
            lines += ["      <registers>", *_inside(block.registers, "        "), "      </registers>"]
        lines.append("    </peripheral>")
    return "\n".join([*lines, "  </peripherals>", "</device>", ""])


def _inside(registers: tuple[RegisterInfo, ...], pad: str) -> Iterator[str]:
    for item in clusters(registers):
        r = item.content
        tag = "register" if isinstance(r, RegisterInfo) else "cluster"
        yield f"{pad}<{tag}>"
        if item.count:
            yield f"{pad}  <dim>{item.count}</dim>"
            yield f"{pad}  <dimIncrement>{item.stride:#x}</dimIncrement>"
        yield f"{pad}  <name>{xml(item.name)}{'_%s' if item.count else ''}</name>"
        if isinstance(r, RegisterInfo) and r.alternate:
            yield f"{pad}  <alternateGroup>views</alternateGroup>"
        yield f"{pad}  <addressOffset>{item.offset:#x}</addressOffset>"
        yield from _register(r, pad) if isinstance(r, RegisterInfo) else _inside(r, pad + "  ")
        yield f"{pad}</{tag}>"


def _register(r: RegisterInfo, pad: str) -> Iterator[str]:
    """The lines of a register after its offset."""
    yield f"{pad}  <size>{r.bits}</size>"
    yield f"{pad}  <access>{WORD[r.access]}</access>"
    yield f"{pad}  <resetValue>{r.reset:#x}</resetValue>"
    if r.fields:
        yield f"{pad}  <fields>"
        for f in r.fields:
            effects = (f"<modifiedWriteValues>{f.modified}</modifiedWriteValues>" if f.modified else "") + (
                f"<readAction>{f.read_action}</readAction>" if f.read_action else ""
            )
            yield (
                f"{pad}    <field><name>{xml(f.name)}</name><bitOffset>{f.lsb}</bitOffset><bitWidth>{f.width}"
                f"</bitWidth><access>{(ONCE if f.once else WORD)[f.access]}</access>{effects}{_values(f)}</field>"
            )
        yield f"{pad}  </fields>"


def _values(f: FieldInfo) -> str:
    rows = (f"<enumeratedValue><name>{xml(n)}</name><value>{v}</value></enumeratedValue>" for n, v in f.values)
    return f"<enumeratedValues>{''.join(rows)}</enumeratedValues>" if f.values else ""
