"""The text of accesses to whole registers, and of the variables that hold what was read of one."""

from __future__ import annotations

from dataclasses import dataclass

from edgebuild.driver.analysis.cdfg import Access, Function, Site
from edgebuild.driver.analysis.conflicts import Region
from edgebuild.driver.emit.edits import Text
from edgebuild.driver.emit.hal import Hal, wide_type
from edgebuild.driver.merge.merging import Merged
from edgebuild.driver.source import ir


def chained(before: list[str], text: str) -> str:
    """One expression that does some things first."""
    return f"({', '.join([*before, text])})" if before else text


@dataclass(frozen=True)
class TextPart:
    """Part of an access in its region, and the variable that it shares with the others."""

    region: Region
    temporary: str
    constant: str = ""  # text of the value, which is written later


class WholeTexts:
    """The text of one function: addresses, loads, and all that is about whole registers."""

    def __init__(self, text: Text, function: Function, merged: Merged, hal: Hal, cpp: bool, depth: int) -> None:
        """`depth`: how many functions are around a lambda. A name of theirs is no name of its own."""
        self.text, self.function, self.merged, self.hal, self.cpp = text, function, merged, hal, cpp
        self.prefix = "eb_" + "in_" * depth
        self.declarations: list[str] = []
        self.parts: dict[Access, TextPart] = {}

    def _new(self, type_: str) -> str:
        name = f"{self.prefix}{len(self.declarations)}_"
        self.declarations.append(f"{type_} {name}" if not type_.endswith("*") else f"{type_}{name}")
        return name

    def _width(self, a: Access) -> int:
        return self.merged.register(a).slot(self.merged.ref(a).leaf).width

    # ---- addresses

    def _group(self, a: Access) -> str:
        prefix = self.merged.ref(a).base
        inside = self._source(prefix.expression)
        simple = inside.replace("_", "a").isalnum()
        if prefix.pointer:
            return inside if simple else f"({inside})"
        return f"&({inside})" if not inside.endswith("]") else f"&{inside}"

    def _index(self, a: Access) -> str:
        """The element of an array leaf, counted through all of its dimensions."""
        ref = self.merged.ref(a)
        text = ""
        for c, size in zip(ref.indices, ref.index_dims, strict=True):
            inside = self._source(c)
            text = f"({text}) * {size}u + ({inside})" if text else inside
        return text

    def _source(self, c: ir.Expression) -> str:
        text = self.text.part(*c.span)
        return f"{text[:-2]}.operator->()" if text.endswith("->") else text  # an operator's call ends with its sign

    def _address(self, a: Access) -> list[str]:
        index = self._index(a)
        return [self._group(a), *([index] if index else [])]

    def _load(self, region: Region, address: list[str]) -> str:
        a = region.place
        window = self.merged.window(region)
        register = self.merged.register(a)
        name = self.hal.load(self.merged.ref(a).group, register, self.merged.leaves(region), window)
        return f"{name}({', '.join(address if register.dims else address[:1])})"

    def _whole(self, site: Site) -> str:
        """One access of a whole register."""
        a = site.parts[0][0]
        region, ref, register = self.parts[a].region, self.merged.ref(a), self.merged.register(a)
        address, window = self._address(a), self.merged.window(region)
        if site.form == "load":
            return self._begun(site, self._load(region, address))
        if site.form == "group":
            before, values = self._values(site)
            leaves = self.merged.named(site)
            name = self.hal.put(ref.group, register, leaves, window)
            return chained(before, f"{name}({', '.join([*address, *(values[n] for n in leaves)])})")
        before, value = [], site.variable
        if site.right is not None:
            value = self._source(site.right)
            if self.merged.translated(site) or (self.cpp and site.does):
                name = self._new(wide_type(window.bits))
                before, value = [f"{name} = {value}"], name
        if self.merged.translated(site):
            return chained(before, self._translated(site, value))
        return chained(before, f"{self.hal.store(ref.group, register, window)}({', '.join([*address, value])})")

    def _values(self, site: Site) -> tuple[list[str], dict[tuple[str, int], str]]:
        """The values that a literal names, and what C++ does in front, since arguments of a call have no order."""
        values = {self._leaf(x): self._source(v) for x, v in site.parts if v is not None}
        before = []
        for i in site.inner if self.cpp and (len(site.inner) > 1 or site.does) else ():
            a, v = site.parts[i]
            assert v is not None
            kept = self._new(wide_type(self._width(a)))
            before.append((v.span[0], f"{kept} = {values[self._leaf(a)]}"))
            values[self._leaf(a)] = kept
        return [text for _, text in sorted(before)], values

    def _translated(self, site: Site, variable: str) -> str:
        """A store of a value that was read from another register: each field out of it, and to its place here."""
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
        """A value as a variable's new one, or as the first one where the site declares it."""
        type_ = "unsigned int " if site.type == "first" else ""
        start = f"{type_}{site.variable}"
        if site.form == "hold":
            return start
        return f"{start} = {value}" if site.operator else value

    def _held(self, site: Site) -> str:
        """A use of a variable that holds a register."""
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
        if site.right is None:
            value = f"{old} {site.operator[-1]} 1"
        else:
            value = self._source(site.right)
            value = value if site.operator == "=" else f"{old} {site.operator[:-1]} ({value})"
        return f"{v} = {self.hal.changed(ref.group, register, ref.leaf, element)}({v}, {value})"


def is_steady(c: ir.Expression) -> bool:
    """Whether an expression is a variable or an address: it means the same wherever it is evaluated."""
    bare = c.bare
    return isinstance(bare, ir.Name | ir.This) or (isinstance(bare, ir.Unary) and bare.operator == "&")
