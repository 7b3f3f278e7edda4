"""Source-to-source rewriting: replace the field accesses in the user's text, and leave the rest unchanged.

Edits nest as expressions do: the text of an index or of an assigned value is rewritten first. Each edit keeps the
number of lines, so one `#line` at the top of each source suffices for debuggers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ..analysis.cdfg import MEMORY, Access, Cdfg, Function, Site
from ..analysis.conflicts import Region
from ..layout.registers import Window
from ..merge.merging import Merged
from ..source import clang, ir
from ..source.dialect import Dialect, Offset
from ..source.sources import LineMark, Source
from .hal import Hal, number, value_type, wide_type

Render = Callable[[], str]


@dataclass(eq=False)
class Edit:
    """A range of the text, and the function that renders its replacement."""

    start: int
    end: int
    render: Render
    inner: list[Edit] = field(default_factory=list)


class Text:
    """The unit's text, and the edits in it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.edits: list[Edit] = []
        self.active: list[Edit] = []

    def add(self, start: int, end: int, render: Render) -> None:
        self.edits.append(Edit(start, end, render))

    def nest(self) -> list[Edit]:
        """The outermost edits, each with its inner ones. Of two with equal ranges, the one added later is inside."""
        order = sorted(enumerate(self.edits), key=lambda e: (e[1].start, -e[1].end, e[0]))
        top: list[Edit] = []
        stack: list[Edit] = []
        for _, edit in order:
            while stack and not (stack[-1].start <= edit.start and edit.end <= stack[-1].end):
                stack.pop()
            (stack[-1].inner if stack else top).append(edit)
            if edit.end > edit.start:
                stack.append(edit)
        return top

    def rewritten(self) -> str:
        top = self.nest()
        return self._between(0, len(self.data), top)

    def part(self, start: int, end: int) -> str:
        """The text of a range inside of the edit that is being rendered, with the edits in it."""
        inside = [e for e in self.active[-1].inner if start <= e.start and e.end <= end] if self.active else []
        return self._between(start, end, inside)

    def whole(self) -> str:
        """The range of the edit that is being rendered, with the edits in it."""
        edit = self.active[-1]
        return self._between(edit.start, edit.end, edit.inner)

    def _between(self, start: int, end: int, edits: Iterable[Edit]) -> str:
        out, at = [], start
        for edit in edits:
            out.append(self.data[at : edit.start].decode())
            self.active.append(edit)
            text = edit.render()
            self.active.pop()
            lost = self.data.count(b"\n", edit.start, edit.end) - text.count("\n")
            out.append(text + "\n" * max(0, lost))
            at = edit.end
        out.append(self.data[at:end].decode())
        return "".join(out)


def rewrite(source: Source, dialect: Dialect, cdfg: Cdfg, merged: Merged, hal: Hal) -> str:
    """The unit's text with HAL calls; the functions that it calls are collected in `hal`."""
    unit, text = source.unit, Text(source.unit.text)
    for start, end, line in source.lines:
        text.add(start, end, lambda line=line: line.bare)  # type: ignore[misc]
    for group in dialect.groups.values():
        start, end = group.extent
        semicolon = unit.text.find(b";", end)
        if unit.text[end:semicolon].strip():  # typedef bfGroup G { ... } name;
            text.add(start, end, lambda name=group.name: f"struct {name}")  # type: ignore[misc]
        else:
            declaration = (
                f"using ::{group.name};"
                if group.scoped and group.name in merged.layout.groups
                else f"/* bfGroup {group.name} */"
            )
            text.add(start, semicolon + 1, lambda declaration=declaration: declaration)  # type: ignore[misc]
    for offset in cdfg.offsets:
        place = _register_offset(unit, merged, offset)
        text.add(*offset.extent, lambda place=place: place)  # type: ignore[misc]
    for function in cdfg.functions.values():
        depth = sum(f.body[0] < function.body[0] < f.body[1] for f in cdfg.functions.values()) if unit.cpp else 0
        _Rewriter(text, function, merged, hal, unit.cpp, depth).run()
    return text.rewritten()


def _register_offset(unit: clang.Unit, merged: Merged, offset: Offset) -> str:
    """The byte offset of a field's register."""
    group, name = offset.field
    layout = merged.layout.groups.get(group)
    register_offset = layout.offset_of(offset.field) if layout else None
    if register_offset is not None:
        return number(register_offset)
    raise clang.wrong(offset.where, unit.text, f"'{name}' has no offset of its own: '{group}' is a part of its parents")


def unsigned(c: ir.Expression, text: str, bits: int = 32) -> str:
    """C for an argument of an unsigned parameter: with a cast if it is signed, because compilers warn without one."""
    inside = c
    while isinstance(inside, ir.Wrapped) and not isinstance(inside, ir.Cast):
        inside = inside.inside
    signed = inside.type.canonical.signed or inside.type.kind == "real"
    fits = inside.constant is not None and inside.constant >= 0
    return cast_to(wide_type(bits), text) if signed and not fits else text


def cast_to(type_: str, text: str) -> str:
    """C that converts the expression `text` to a type."""
    return f"({type_}){text}" if text.isidentifier() else f"({type_})({text})"


def chained(before: list[str], text: str) -> str:
    """C for an expression that evaluates `before` first: a comma expression."""
    return f"({', '.join([*before, text])})" if before else text


@dataclass(frozen=True)
class TextPart:
    """The role of an access in its region. `temporary`: the variable with its value, or "last", "overwritten"..."""

    region: Region
    temporary: str
    constant: str = ""  # text of a constant that the merged store writes


class _Rewriter:
    """Rewrites the text of one function."""

    def __init__(self, text: Text, function: Function, merged: Merged, hal: Hal, cpp: bool, depth: int) -> None:
        """`depth`: number of functions that enclose a lambda, so that names of temporaries differ from theirs."""
        self.text, self.function, self.merged, self.hal, self.cpp = text, function, merged, hal, cpp
        self.prefix = "eb_" + "in_" * depth
        self.declarations: list[str] = []
        self.parts: dict[Access, TextPart] = {}

    def run(self) -> None:
        regions = self.merged.conflicts.regions[self.function.name]
        hoists: dict[int, list[Region]] = {}
        for region in regions:
            self._share(region)
            if region.hoisted:
                hoists.setdefault(region.place.full, []).append(region)
        for number_, hoist in hoists.items():
            extent = self.function.fulls[number_]
            assert extent is not None
            self.text.add(*extent, lambda hoist=hoist: self._hoisted(hoist))  # type: ignore[misc]
        for site in self.function.sites:
            self.text.add(*site.extent, lambda site=site: self._site(site))  # type: ignore[misc]
        if self.function.sites:
            start = self.function.body[0] + 1
            # Rendered last, when all temporaries are known: the body is one edit around all others.
            self.text.add(start, self.function.body[1] - 1, self._body)

    def _body(self) -> str:
        inside = self.text.whole()
        if not self.declarations:
            return inside
        at, line = self.function.opens, self.function.opens.line
        rest, end, after = inside.partition("\n")
        if end and not rest.strip():
            inside, line = after, line + 1
        lines = [*(f"    {d};" for d in self.declarations), LineMark(line, at.file).bare, ""]
        return "\n" + "\n".join(lines) + inside

    def _share(self, region: Region) -> None:
        if region.place.whole:
            for a in region.accesses:
                self.parts[a] = TextPart(region, region.place.site.variable)
            return
        if len(region.accesses) == 1 and region not in self.merged.reused.values():
            self.parts[region.accesses[0]] = TextPart(region, "")
            return
        if region.kind == "r":
            name = self._new(wide_type(self.merged.window(region).bits))
            for a in region.accesses:
                self.parts[a] = TextPart(region, name)
        else:
            last = {self.merged.ref(a).leaf: a for a in region.accesses}
            for a in region.accesses[:-1]:
                if last[self.merged.ref(a).leaf] is not a:
                    self.parts[a] = TextPart(region, "overwritten")
                elif constant := self._constant(a):
                    self.parts[a] = TextPart(region, "constant", constant)
                else:
                    self.parts[a] = TextPart(region, self._new(value_type(self._width(a))))
            self.parts[region.place] = TextPart(region, "last")

    def _constant(self, a: Access) -> str:
        """The text of an assigned constant, which can move to the merged store; "" for other values."""
        right = a.site.right
        if a.site.form != "assign" or a.site.used or right is None or right.constant is None:
            return ""
        return self._raw(right.source.decode())

    def _new(self, type_: str) -> str:
        name = f"{self.prefix}{len(self.declarations)}_"
        self.declarations.append(f"{type_} {name}" if not type_.endswith("*") else f"{type_}{name}")
        return name

    def _width(self, a: Access) -> int:
        return self.merged.register(a).slot(self.merged.ref(a).leaf).width

    def _group(self, a: Access) -> str:
        prefix = self.merged.ref(a).base
        inside = self._source(prefix.expression)
        simple = inside.replace("_", "a").isalnum()
        if prefix.pointer:
            return inside if simple else f"({inside})"
        return f"&({inside})" if not inside.endswith("]") else f"&{inside}"

    def _index(self, a: Access, source: Callable[[ir.Expression], str]) -> list[str]:
        """C for the flat index of an array leaf's element; empty for other leaves."""
        ref = self.merged.ref(a)
        text = ""
        for c, size in zip(ref.indices, ref.index_dims, strict=True):
            inside = unsigned(c, source(c))
            text = f"({text}) * {size}u + ({inside})" if text else inside
        return [text] if text else []

    def _source(self, c: ir.Expression) -> str:
        text = self.text.part(*c.span)
        return f"{text[:-2]}.operator->()" if text.endswith("->") else text  # a call of operator->

    def _address(self, a: Access) -> list[str]:
        return [self._group(a), *self._index(a, self._source)]

    def _load(self, region: Region, address: list[str]) -> str:
        a = region.place
        window = self.merged.window(region)
        register = self.merged.register(a)
        name = self.hal.load(self.merged.ref(a).group, register, self.merged.leaves(region), window)
        return f"{name}({', '.join(address if register.dims else address[:1])})"

    def _whole(self, site: Site) -> str:
        """C for one access of a whole register."""
        a = site.parts[0][0]
        region, ref, register = self.parts[a].region, self.merged.ref(a), self.merged.register(a)
        address, window = self._address(a), self.merged.window(region)
        if site.form == "load":
            value = self._load(region, address)
            rest = "" if site.is_number else self.hal.harmless(ref.group, register)
            return self._begun(site, f"{rest}({value})" if rest else value)
        if site.form == "group":
            before, values = self._values(site)
            leaves = self.merged.named(site)
            name = self.hal.put(ref.group, register, leaves, window)
            return chained(before, f"{name}({', '.join([*address, *(values[n] for n in leaves)])})")
        before, value = [], site.variable
        if site.right is not None:
            value = unsigned(site.right, self._source(site.right), window.bits)
            if self.merged.translated(site) or (self.cpp and site.does):
                name = self._new(wide_type(window.bits))
                before, value = [f"{name} = {value}"], name
        if self.merged.translated(site):
            return chained(before, self._translated(site, value))
        store = self.hal.store(ref.group, register, window, site.is_number)
        return chained(before, f"{store}({', '.join([*address, value])})")

    def _values(self, site: Site) -> tuple[list[str], dict[tuple[str, int], str]]:
        """(assignments to do first, values of a literal). C++ needs the former: arguments of a call have no order."""
        values = {self._leaf(x): unsigned(v, self._source(v), self._width(x)) for x, v in site.parts if v is not None}
        before = []
        for i in site.inner if self.cpp and (len(site.inner) > 1 or site.does) else ():
            a, v = site.parts[i]
            assert v is not None
            kept = self._new(wide_type(self._width(a)))
            before.append((v.span[0], f"{kept} = {values[self._leaf(a)]}"))
            values[self._leaf(a)] = kept
        return [text for _, text in sorted(before)], values

    def _translated(self, site: Site, variable: str) -> str:
        """C for a store of a value that was loaded from another register: its fields move to their bits here."""
        assert site.of
        a = site.parts[0][0]
        region, ref = self.parts[a].region, self.merged.ref(a)
        values = {}
        for (here, _), (there, _) in zip(site.parts, site.of.parts, strict=True):
            window, element = self.merged.window(self.parts[there].region), self.merged.element(there)
            get = self.hal.get(self.merged.ref(there).group, self.merged.ref(there).leaf, window, element)
            values[self._leaf(here)] = f"{get}({variable})"
        leaves = self.merged.named(site)
        name = self.hal.put(ref.group, self.merged.register(a), leaves, self.merged.window(region))
        return f"{name}({', '.join([*self._address(a), *(values[n] for n in leaves)])})"

    def _leaf(self, a: Access) -> tuple[str, int]:
        return self.merged.ref(a).leaf, self.merged.element(a)

    def _begun(self, site: Site, value: str) -> str:
        """C for an assignment of a value to a variable, or for its declaration if the site is one."""
        type_ = "unsigned int " if site.type == "first" else ""
        start = f"{type_}{site.variable}"
        if site.form == "hold":
            return start
        return f"{start} = {value}" if site.operator else value

    def _held(self, site: Site) -> str:
        """C for a use of a variable that holds a register."""
        v = site.variable
        if site.form == "hold":
            return self._begun(site, "")
        if site.form == "copy":
            assert site.right is not None
            return self._begun(site, self._source(site.right))
        if site.form == "make":
            before, values = self._values(site)
            home, leaves = site.parts[0][0], self.merged.named(site)
            name = self.hal.make(self.merged.ref(home).group, self.merged.register(home), leaves)
            return self._begun(site, chained(before, f"{name}({', '.join(values[n] for n in leaves)})"))
        a = site.read
        assert a
        ref, register = self.merged.ref(a), self.merged.register(a)
        element = self.merged.element(a)
        old = f"{self.hal.get(ref.group, ref.leaf, self.merged.window(self.parts[a].region), element)}({v})"
        if site.form == "get":
            return old
        type_ = wide_type(self._width(a))
        if site.right is None:
            value = cast_to(type_, f"{old} {site.operator[-1]} 1")
        elif site.operator == "=":
            value = unsigned(site.right, self._source(site.right), self._width(a))
        else:
            value = cast_to(type_, f"{old} {site.operator[:-1]} ({self._source(site.right)})")
        return f"{v} = {self.hal.changed(ref.group, register, ref.leaf, element)}({v}, {value})"

    # ---- accesses of fields

    def _site(self, site: Site) -> str:
        if site.form == "unevaluated":
            return f"(*({site.type})0)"
        if site.form in ("group", "store", "load"):
            return self._whole(site)
        if site.key and site.form in ("get", "set", "hold", "make", "copy"):
            return self._held(site)
        if site.form == "read":
            assert site.read
            return self._read(site.read, self._address(site.read))
        assert site.write
        if site.form == "assign":
            assert site.right is not None
            before, value = self._first(site, wide_type(self._width(site.write)))
            return chained(before, self._write(site, self._address(site.write), value))
        return self._modify(site)

    def _first(self, site: Site, type_: str) -> tuple[list[str], str]:
        """(assignments to do first, value): C++ evaluates the right side first, arguments of a call have no order."""
        assert site.right is not None and site.write
        value = self._source(site.right)
        if site.form == "assign":
            value = unsigned(site.right, value, self._width(site.write))
        open_ = site.read or None in site.write.key or (site.write.variables and site.does == "changes")
        if not self.cpp or not site.does or not open_ or is_steady(site.right):
            return [], value
        name = self._new(type_)
        return [f"{name} = {value}"], name

    def _modify(self, site: Site) -> str:
        """C for `f op= v` and `f++`: a read and a write, with an address that is evaluated once."""
        assert site.read and site.write
        type_ = wide_type(self._width(site.write))
        if site.form == "compound":
            assert site.right is not None
            first, right = self._first(site, site.right.type.text)
            address, before = self._once(site)
            value = cast_to(type_, f"{self._read(site.read, address)} {site.operator[:-1]} ({right})")
            return chained([*first, *before], self._write(site, address, value))
        address, before = self._once(site)
        old = self._read(site.read, address)
        operator = site.operator[-1]
        if site.operator.startswith("post") and site.used:
            kept = self._new(value_type(self._width(site.write)))
            write = self._write(site, address, cast_to(type_, f"{kept} {operator} 1"))
            return chained(before, f"({kept} = {old}, (void){write}, {kept})")
        return chained(before, self._write(site, address, cast_to(type_, f"{old} {operator} 1")))

    def _once(self, site: Site) -> tuple[list[str], list[str]]:
        """(address of `f` in `f op= v`, for use in two places; assignments to do first)."""
        a = site.write
        assert a
        address, ref = self._address(a), self.merged.ref(a)
        if None not in a.key and MEMORY not in a.variables:
            return address, []
        types = (f"volatile struct {ref.group} *", "unsigned int")
        places = [not ref.base.pointer or is_steady(ref.base.expression)]
        places += [len(ref.indices) == 1 and is_steady(ref.indices[0])]
        before = []
        for i, uses in enumerate(self._uses(site)[: len(address)]):
            if not uses and not places[i]:
                before.append(f"(void)({address[i]})")  # a call in it is still made
            elif uses > 1 or not places[i]:
                name = self._new(types[i])
                before.append(f"{name} = {address[i]}")
                address[i] = name
        return address, before

    def _uses(self, site: Site) -> tuple[int, int]:
        """(uses of the group, uses of the index) in the text of `f op= v`: accesses made elsewhere need neither."""
        assert site.read and site.write
        old, new = self.parts[site.read], self.parts[site.write]
        register = self.merged.register(site.read)
        loads = not old.temporary or (site.read is old.region.place and not old.region.hoisted)
        stores = not new.temporary or site.write is new.region.place
        indexed = (loads and bool(register.dims)) + (register.slot(self.merged.ref(site.read).leaf).count > 1)
        return loads + stores, (indexed if old.temporary else 1) + stores

    def _read(self, a: Access, address: list[str]) -> str:
        part, ref = self.parts[a], self.merged.ref(a)
        if not part.temporary:
            return f"{self.hal.read(ref.group, ref.leaf)}({', '.join(address)})"
        window = self.merged.window(part.region)
        if a is part.region.place and not part.region.hoisted:
            return self._get(a, f"{part.temporary} = {self._load(part.region, address)}", window, address)
        return self._get(a, part.temporary, window, address)

    def _get(self, a: Access, value: str, window: Window, address: list[str]) -> str:
        ref = self.merged.ref(a)
        packed = self.merged.register(a).slot(ref.leaf).count > 1
        name = self.hal.get(ref.group, ref.leaf, window)
        return f"{name}({', '.join([value, *address[1:]] if packed else [value])})"

    def _hoisted(self, regions: list[Region]) -> str:
        loads = []
        for region in regions:
            # The address is pure, so its text can stand at both places.
            address = [self._raw(x) for x in self._raw_address(region.place)]
            loads.append(f"{self.parts[region.place].temporary} = {self._load(region, address)}")
        return f"({', '.join([*loads, self.text.whole()])})"

    def _raw_address(self, a: Access) -> list[str]:
        ref = self.merged.ref(a)
        base = ref.base.expression.source.decode()
        return [f"({base})" if ref.base.pointer else f"&({base})", *self._index(a, lambda c: c.source.decode())]

    @staticmethod
    def _raw(text: str) -> str:
        return " ".join(text.split())

    def _write(self, site: Site, address: list[str], value: str) -> str:
        a = site.write
        assert a
        part, ref = self.parts[a], self.merged.ref(a)
        region, width = part.region, self._width(a)
        read = self.merged.reused.get(region)
        if not part.temporary and not read:
            return f"{self.hal.write(ref.group, (ref.leaf,))}({', '.join([*address, value])})"
        masked = f"({value_type(width)})(({value}) & {number((1 << width) - 1, width)})"
        if a is not region.place:
            if part.constant:
                return "(void)0"
            kept = f"({part.temporary} = {masked})"
            return kept if part.temporary != "overwritten" else masked if site.used else f"(void)({value})"
        last = {self.merged.ref(x).leaf: self.parts[x].constant or self.parts[x].temporary for x in region.accesses}
        leaves = self.merged.leaves(region)
        name = self.hal.write(ref.group, leaves, loaded=read is not None)
        address = [*address, self.parts[read.place].temporary] if read else address
        nested = any(site.extent[0] <= x.site.extent[0] < site.extent[1] for x in region.accesses if x is not a)
        nested = nested or bool(read and read.place.full == a.full)  # a load among the operands comes first
        if not site.used and not nested:
            values = [last[n] if n != ref.leaf else value for n in leaves]
            return f"{name}({', '.join([*address, *values])})"
        kept = last[ref.leaf] = self._new(value_type(width))
        call = f"{name}({', '.join([*address, *(last[n] for n in leaves)])})"
        return f"({kept} = {masked}, {call}, {kept})" if site.used else f"({kept} = {masked}, {call})"


def is_steady(c: ir.Expression) -> bool:
    """Whether an expression is a variable or an address, with the same value wherever it is evaluated."""
    bare = c.bare
    return isinstance(bare, ir.Name | ir.This) or (isinstance(bare, ir.Unary) and bare.operator == "&")
