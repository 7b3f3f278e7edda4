"""Accesses of whole registers: `u->CTRL = (bfGroup Ctrl){ .en = 1 };` and `bfGroup Status s = u->STATUS;`.

Each is exactly one bus access of all fields of a group, is never split, and never becomes one with another. A variable
of a group holds the value of one register, its *home*: the first that it, or a copy of it, is read from, else the first
that it is stored to. Its fields are read and changed there, and `u->CTRL = s;` writes it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from clang.cindex import Cursor, CursorKind

from edgebuild.driver.analysis.cdfg import Access, Chain, Site
from edgebuild.driver.analysis.chains import variable_name
from edgebuild.driver.analysis.keys import REFERENCES
from edgebuild.driver.analysis.record import Recorder
from edgebuild.driver.source import clang
from edgebuild.driver.source.dialect import Dialect, Field, group_of

K = CursorKind
LITERALS = (K.INIT_LIST_EXPR, K.CXX_FUNCTIONAL_CAST_EXPR)  # besides C's, which C++ has as an extension


class Whole(Recorder):
    """Reads and writes of whole registers, and the variables that hold them."""

    def __init__(self, function: Cursor, unit: clang.Unit, dialect: Dialect) -> None:
        super().__init__(function, unit, dialect)
        self.held: list[tuple[Site, Cursor]] = []  # what is said of variables, and where
        for d in clang.preorder(function):
            if self.holds(d):
                self.chains.locals.add(variable_name(d))

    def holds(self, d: Cursor) -> bool:
        """Whether a declaration is that of a variable of a group, which lives in a call of the function."""
        if d.kind != K.VAR_DECL or d.storage_class.name in ("STATIC", "EXTERN"):
            return False
        name, pointer = group_of(d.type, self.dialect)
        return bool(name) and not pointer and d.type.get_canonical().kind not in REFERENCES

    def read_chain(self, c: Cursor, chain: Chain) -> None:
        if chain.local:
            self.local("get", c, chain)
        else:
            super().read_chain(c, chain)

    def group_write(self, c: Cursor, left: Cursor, right: Cursor, used: bool) -> bool:
        """An assignment of a whole register, or to a variable that holds one; False for any other."""
        name, pointer = group_of(c.type, self.dialect)
        if not name or pointer:
            return False
        target, value = clang.bare(left), _value(right)
        if used:
            raise clang.error_at(c, self.unit.text, "an assignment of a whole register has no value")
        literal = value.kind in (K.COMPOUND_LITERAL_EXPR, *LITERALS)
        source = None if literal else self.chains.read(value)
        if not (literal or self._variable(value) or source):
            return False
        if self._variable(target):
            self._to_variable(c, variable_name(target.referenced), target.spelling, value)
            return True
        chain = self._group(left)
        site = self.site("group" if literal else "store", c, left)
        outer = self.path
        chains = list(self.chains.elements(chain, left))
        values = self._values(value, chains) if literal else [None] * len(chains)
        if source:  # from one register to another
            site.right = value
        elif not literal:
            self._meets(site, value, variable_name(value.referenced), value.spelling)

        def evaluate(right: bool) -> None:
            self.path = (*outer, ("u", 0))
            if not right:
                self.evaluate_chain(chain)
            elif source:
                site.of = self._load(value, "", clang.span(value))
            for i, v in enumerate(values):
                if v is not None and right:
                    self.path = (*outer, ("u", i + 1))
                    self.expression(v)

        for right_side in (True, False) if self.unit.cpp else (False, True):
            evaluate(right_side)
        places = [chain.root, *(s.index for s in chain.steps if s.index is not None)]
        site.does = next((d for x in places if (d := self.chains.does(x))), "")
        site.inner = tuple(i for i, v in enumerate(values) if v is not None and self.chains.does(v))
        self.path = outer
        site.parts = tuple((self.access("w", x, site), v) for x, v in zip(chains, values, strict=True))
        return True

    def _variable(self, c: Cursor) -> bool:
        """Whether an expression names a variable that holds a register."""
        known = c.kind == K.DECL_REF_EXPR and c.referenced is not None
        return known and variable_name(c.referenced) in self.chains.locals

    def _meets(self, site: Site, at: Cursor, key: str, name: str) -> None:
        """Note that a site is about a variable."""
        site.key, site.variable = key, name
        self.held.append((site, at))

    def _load(self, value: Cursor, operator: str, extent: tuple[int, int]) -> Site:
        """One load of a whole register; `operator`: "=" of an assignment, "" of a value."""
        chain = self._group(value)
        site = Site("load", extent, value, operator)
        self.sites.append(site)
        self.evaluate_chain(chain)
        site.parts = tuple((self.access("r", x, site), None) for x in self.chains.elements(chain, value))
        return site

    def _to_variable(self, c: Cursor, key: str, name: str, value: Cursor, declares: str = "") -> None:
        """A variable gets a value: a register, a literal, or that of another variable."""
        if value.kind in (K.COMPOUND_LITERAL_EXPR, *LITERALS):
            site = self.site("make", c, value, "=")
            site.right = value
            for v in _items(value):
                self.expression((clang.children(v) or [v])[-1])
        elif self._variable(value):
            site = self.site("copy", c, value, "=")
            site.source = variable_name(value.referenced)
            site.right = value
        else:
            site = self._load(value, "=", clang.span(c))
        site.type = declares
        self._meets(site, c, key, name)

    def _group(self, c: Cursor) -> Chain:
        chain = self.chains.read(c)
        if chain is None or chain.is_field or chain.missing or chain.local:
            raise clang.error_at(c, self.unit.text, "one register of a device is expected here")
        return chain

    def _values(self, literal: Cursor, chains: list[Chain]) -> list[Cursor | None]:
        """The value of each field that the literal names."""
        values: list[Cursor | None] = [None] * len(chains)
        names = [(x.end.name, tuple(s.constant for s in x.steps if not s.member)) for x in chains if x.end]
        for item in _items(literal):
            parts = clang.children(item)
            members = [x for x in parts if x.kind == K.MEMBER_REF]
            if len(members) != 1 or clang.bare(parts[-1]).kind == K.INIT_LIST_EXPR:
                text = "name each field: { .field = value }, and each element: { .array[1] = value }"
                raise clang.error_at(item, self.unit.text, text)
            index = tuple(clang.constant(x) for x in parts[1:-1])
            depth = len(index)
            found = [
                i
                for i, (name, at) in enumerate(names)
                if name == members[0].spelling and at[len(at) - depth :] == index
            ]
            if len(found) != 1 or values[found[0]] is not None:
                raise clang.error_at(item, self.unit.text, f"'{members[0].spelling}' is not one field that is free")
            values[found[0]] = parts[-1]
        return values

    def loaded(self, d: Cursor) -> bool:
        """A declaration such as `bfGroup Status s = u->STATUS;`; False for any that is not of a group."""
        if not self.holds(d):
            return False
        parts = [x for x in clang.children(d) if clang.is_expression(x)]
        value = _value(parts[-1]) if parts else None
        declares = "first" if clang.span(d)[0] < clang.offset(d.location) else "next"
        if value is None or (value.kind == K.CALL_EXPR and not clang.children(value)):
            site = self.site("hold", d, d)
            site.type = declares
            self._meets(site, d, variable_name(d), d.spelling)
            return True
        known = value.kind in (K.COMPOUND_LITERAL_EXPR, *LITERALS) or self._variable(value) or self.chains.read(value)
        if not known:
            return False
        self.path = ()
        number = len(self.fulls) + 1
        self.fulls[number] = None  # nothing can be put in front of it
        self.starts[number] = self.node("start", text=str(number))
        self._to_variable(d, variable_name(d), d.spelling, value, declares)
        return True

    def no_register(self, c: Cursor) -> None:
        """An error where a variable that holds a register is used as a value."""
        if c.referenced is not None and variable_name(c.referenced) in self.chains.locals:
            text = f"'{c.spelling}' holds a register: use its fields, or write it back as a whole"
            raise clang.error_at(c, self.unit.text, text)

    def local(
        self, form: str, c: Cursor, chain: Chain, operator: str = "", right: Cursor | None = None, used: bool = True
    ) -> None:
        """A field of a variable that holds a register is read ("get") or changed ("set")."""
        if form == "set" and used:
            raise clang.error_at(c, self.unit.text, "this assignment has no value: the register is in a variable")
        site = self.site(form, c, c, operator, right, used)
        site.field = chain
        self._meets(site, c, chain.local, clang.bare(chain.root).spelling)
        if right is not None:
            self.expression(right)

    def settle(self) -> None:
        """Find the home of each variable, and what of it is meant."""
        alike = {site.key: {site.key} for site, _ in self.held}  # copies are of one register
        for site in (s for s, _ in self.held if s.form == "copy"):
            both = alike[site.key] | alike.setdefault(site.source, {site.source})
            alike.update((key, both) for key in both)
        homes: dict[str, Site] = {}
        for form in ("load", "store"):
            for site in (s for s, _ in self.held if s.form == form):
                for key in sorted(alike[site.key]):
                    homes.setdefault(key, site)
        for site, at in self.held:
            if site.key not in homes:
                text = f"'{site.variable}': a group cannot be a variable that no register is read into or stored from"
                raise clang.error_at(at, self.unit.text, text, f"  use a pointer: bfGroup ... *{site.variable}")
            self._settled(site, at, homes)

    def _settled(self, site: Site, at: Cursor, homes: Mapping[str, Site]) -> None:
        home = site.of = homes[site.key]
        if site.form == "copy":
            site.read = homes[site.source].parts[0][0]
        if site.form == "make":
            assert site.right is not None
            chains = [a.chain for a, _ in home.parts]
            values = self._values(site.right, chains)
            site.parts = tuple((a, v) for (a, _), v in zip(home.parts, values, strict=True))
            site.inner = tuple(i for i, v in enumerate(values) if v is not None and self.chains.does(v))
        if site.form in ("get", "set"):
            chain = site.field
            assert chain and isinstance(chain.end, Field)
            constants = tuple(s.constant for s in chain.steps if not s.member)
            site.read = next((a for a, _ in home.parts if _same(a, chain.end, constants)), None)
            if site.read is None or chain.missing:
                text = f"'{chain.end.name}' of a variable that holds a register: the index must be a constant"
                raise clang.error_at(at, self.unit.text, text)


def _value(c: Cursor) -> Cursor:
    """The expression of a group's value, inside of what C++ has around it: the copy constructor."""
    value = clang.bare(c)
    while value.kind == K.CALL_EXPR and len(clang.children(value)) == 1:
        value = clang.bare(clang.children(value)[0])
    return value


def _items(literal: Cursor) -> list[Cursor]:
    inside = (x for x in clang.preorder(literal) if x.kind == K.INIT_LIST_EXPR)
    initial = next(inside, None)  # `G{}` of C++ has none
    return clang.children(initial) if initial is not None else []


def _same(a: Access, field: Field, constants: tuple[int | None, ...]) -> bool:
    mine = a.constants
    return a.field == field.id and mine[len(mine) - len(field.dims) :] == constants
