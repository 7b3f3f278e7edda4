"""Accesses of whole registers: `u->CTRL = (bfGroup Ctrl){ .en = 1 };` and `bfGroup Status s = u->STATUS;`.

Each is exactly one bus access of all fields of a group, is never split, and never becomes one with another. A variable
of a group holds the value of one register, its *home*: the first that it, or a copy of it, is read from, else the first
that it is stored to. Its fields are read and changed there, and `u->CTRL = s;` writes it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from edgebuild.base.dataclass import dataclass
from edgebuild.driver.analysis.cdfg import Access, Chain, Site
from edgebuild.driver.analysis.record import Recorder
from edgebuild.driver.source import ir
from edgebuild.driver.source.dialect import Dialect, Field
from edgebuild.driver.source.ir import Declared, Expression


@dataclass
class WholeRegisters:
    """Reads and writes of whole registers in one function, and the variables that hold them.

    `evaluate` and `evaluate_chain` record what expressions, and the parts of a chain, do.
    """

    graph: Recorder
    cpp: bool
    evaluate: Callable[[Expression], None]
    evaluate_chain: Callable[[Chain], None]
    uses: list[tuple[Site, Expression | Declared]] = field(default_factory=list)  # of variables, and where

    def write(self, c: Expression, left: Expression, right: Expression, used: bool) -> bool:
        """An assignment of a whole register, or to a variable that holds one; False for any other."""
        graph, chains = self.graph, self.graph.chains
        name, pointer = chains.dialect.group_of(c.type)
        if not name or pointer:
            return False
        target, value = left.bare, group_value(right)
        if used:
            raise c.error("an assignment of a whole register has no value")
        literal = is_literal(value)
        source = None if literal else chains.read(value)
        variable = self._variable(value)
        if not (literal or variable or source):
            return False
        if to := self._variable(target):
            self._to_variable(c, to, value)
            return True
        chain = self._group(left)
        site = graph.site("group" if literal else "store", c, left)
        outer = graph.path
        elements = list(chains.elements(chain, left))
        values = _values(value, elements) if literal else [None] * len(elements)
        if source:  # from one register to another
            site.right = value
        elif variable:
            self._about(site, value, variable)

        def evaluate(right: bool) -> None:
            graph.path = (*outer, ("u", 0))
            if not right:
                self.evaluate_chain(chain)
            elif source:
                site.of = self._load(value, "", value)
            for i, v in enumerate(values):
                if v is not None and right:
                    graph.path = (*outer, ("u", i + 1))
                    self.evaluate(v)

        for right_side in (True, False) if self.cpp else (False, True):
            evaluate(right_side)
        places = [chain.root, *(s.index for s in chain.steps if s.index is not None)]
        site.does = next((d for x in places if (d := chains.effect(x))), "")
        site.inner = tuple(i for i, v in enumerate(values) if v is not None and chains.effect(v))
        graph.path = outer
        site.parts = tuple((graph.access("w", x, site), v) for x, v in zip(elements, values, strict=True))
        return True

    def _variable(self, c: Expression) -> ir.Variable | None:
        """The variable that an expression is, if it holds a register."""
        variable = c.variable if isinstance(c, ir.Name) else None
        return variable if variable and variable.key in self.graph.chains.locals else None

    def _about(self, site: Site, at: Expression | Declared, variable: ir.Variable) -> None:
        """Note that a site is about a variable."""
        site.key, site.variable = variable.key, variable.name
        self.uses.append((site, at))

    def _load(self, value: Expression, operator: str, at: Expression | Declared) -> Site:
        """One load of a whole register; `operator`: "=" of an assignment, "" of a value; `at` is what is replaced."""
        chain = self._group(value)
        site = Site("load", at.span, value, operator)
        self.graph.sites.append(site)
        self.evaluate_chain(chain)
        elements = self.graph.chains.elements(chain, value)
        site.parts = tuple((self.graph.access("r", x, site), None) for x in elements)
        return site

    def _to_variable(
        self, c: Expression | Declared, variable: ir.Variable, value: Expression, declares: str = ""
    ) -> None:
        """A variable gets a value: a register, a literal, or that of another variable."""
        other = self._variable(value)
        if is_literal(value):
            site = self.graph.site("make", c, value, "=")
            site.right = value
            for v in literal_items(value):
                self.evaluate(v.value if isinstance(v, ir.Designated) else v)
        elif other:
            site = self.graph.site("copy", c, value, "=")
            site.source, site.right = other.key, value
        else:
            site = self._load(value, "=", c)
        site.type = declares
        self._about(site, c, variable)

    def _group(self, c: Expression) -> Chain:
        chain = self.graph.chains.read(c)
        if chain is None or chain.is_field or chain.missing or chain.local:
            raise c.error("one register of a device is expected here")
        return chain

    def declare(self, d: Declared) -> bool:
        """A declaration such as `bfGroup Status s = u->STATUS;`; False for any that is not of a group."""
        chains = self.graph.chains
        if not holds_register(d.variable, chains.dialect):
            return False
        value = group_value(d.value) if d.value else None
        declares = "first" if d.span[0] < d.variable.offset else "next"
        if value is None or (isinstance(value, ir.Call) and not value.parts):
            site = self.graph.site("hold", d, d)
            site.type = declares
            self._about(site, d, d.variable)
            return True
        if not (is_literal(value) or self._variable(value) or chains.read(value)):
            return False
        self.graph.start(None)
        self._to_variable(d, d.variable, value, declares)
        return True

    def check_value(self, c: Expression) -> None:
        """Raise EdgebuildError where a variable that holds a register is used as a value."""
        if variable := self._variable(c):
            raise c.error(f"'{variable.name}' holds a register: use its fields, or write it back as a whole")

    def use(
        self,
        form: str,
        c: Expression,
        chain: Chain,
        operator: str = "",
        right: Expression | None = None,
        used: bool = True,
    ) -> None:
        """A field of a variable that holds a register is read ("get") or changed ("set")."""
        if form == "set" and used:
            raise c.error("this assignment has no value: the register is in a variable")
        site = self.graph.site(form, c, c, operator, right, used)
        site.field = chain
        variable = self._variable(chain.root.bare)
        assert variable
        self._about(site, c, variable)
        if right is not None:
            self.evaluate(right)

    def find_homes(self) -> None:
        """Find the home of each variable, and what of it is meant."""
        alike = {site.key: {site.key} for site, _ in self.uses}  # copies are of one register
        for site in (s for s, _ in self.uses if s.form == "copy"):
            both = alike[site.key] | alike.setdefault(site.source, {site.source})
            alike.update((key, both) for key in both)
        homes: dict[str, Site] = {}
        for form in ("load", "store"):
            for site in (s for s, _ in self.uses if s.form == form):
                for key in sorted(alike[site.key]):
                    homes.setdefault(key, site)
        for site, at in self.uses:
            if site.key not in homes:
                text = f"'{site.variable}': a group cannot be a variable that no register is read into or stored from"
                raise at.error(text, f"  use a pointer: bfGroup ... *{site.variable}")
            self._with_home(site, at, homes)

    def _with_home(self, site: Site, at: Expression | Declared, homes: Mapping[str, Site]) -> None:
        home = site.of = homes[site.key]
        if site.form == "copy":
            site.read = homes[site.source].parts[0][0]
        if site.form == "make":
            assert site.right is not None
            values = _values(site.right, [a.chain for a, _ in home.parts])
            site.parts = tuple((a, v) for (a, _), v in zip(home.parts, values, strict=True))
            site.inner = tuple(i for i, v in enumerate(values) if v is not None and self.graph.chains.effect(v))
        if site.form in ("get", "set"):
            chain = site.field
            assert chain and isinstance(chain.end, Field)
            constants = tuple(s.constant for s in chain.steps if not s.member)
            site.read = next((a for a, _ in home.parts if _is_of(a, chain.end, constants)), None)
            if site.read is None or chain.missing:
                text = f"'{chain.end.name}' of a variable that holds a register: the index must be a constant"
                raise at.error(text)


def holds_register(variable: ir.Variable, dialect: Dialect) -> bool:
    """Whether it is a variable of a group, which lives in a call of the function."""
    name, pointer = dialect.group_of(variable.type)
    lives = not variable.is_parameter and variable.storage not in ("STATIC", "EXTERN")
    return lives and bool(name) and not pointer and not variable.type.is_reference


def group_value(c: Expression) -> Expression:
    """The expression of a group's value, inside of what C++ has around it: the copy constructor."""
    value = c.bare
    while isinstance(value, ir.Call) and len(value.parts) == 1 and isinstance(value.parts[0], Expression):
        value = value.parts[0].bare
    return value


def is_literal(value: Expression) -> bool:
    """Whether it is a literal of a group: that of C, which C++ has as an extension, or its own."""
    return isinstance(value, ir.CompoundLiteral | ir.ListValue) or (
        isinstance(value, ir.Cast) and value.form == "value"
    )


def literal_items(literal: Expression) -> tuple[Expression, ...]:
    return next((x.items for x in literal.all() if isinstance(x, ir.ListValue)), ())  # `G{}` of C++ has none


def _values(literal: Expression, chains: Sequence[Chain]) -> list[Expression | None]:
    """The value of each field that the literal names."""
    values: list[Expression | None] = [None] * len(chains)
    names = [(x.end.name, tuple(s.constant for s in x.steps if not s.member)) for x in chains if x.end]
    for item in literal_items(literal):
        if not isinstance(item, ir.Designated) or len(item.members) != 1 or isinstance(item.value.bare, ir.ListValue):
            raise item.error("name each field: { .field = value }, and each element: { .array[1] = value }")
        name, index = item.members[0].name, tuple(x.constant for x in item.indices)
        fits = [i for i, (n, at) in enumerate(names) if n == name and at[len(at) - len(index) :] == index]
        if len(fits) != 1 or values[fits[0]] is not None:
            raise item.error(f"'{name}' is not one field that is free")
        values[fits[0]] = item.value
    return values


def _is_of(a: Access, field: Field, constants: tuple[int | None, ...]) -> bool:
    """Whether an access is that of an element of a field."""
    mine = a.constants
    return a.field == field.id and mine[len(mine) - len(field.dims) :] == constants
